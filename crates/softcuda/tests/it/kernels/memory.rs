//! `memory.cu`: module variables, every state space, vector and cache forms, the device heap.

use super::case::{Case, Ptx, args, structure};
use super::input::Inputs;

const PTX: Ptx = super::ptx!("memory");

super::cases! {
    constants, module_variables, dynamic_shared, local_array, struct_parameters, vector_access, address_spaces,
    device_heap, copy_bytes, clocks,
}

/// 1, -2, 3, -4, …
fn coefficient(k: usize) -> i32 {
    if k.is_multiple_of(2) {
        k as i32 + 1
    } else {
        -(k as i32 + 1)
    }
}

fn constants(name: &'static str) -> Case {
    let n = 128usize;
    let values = Inputs::new(name).make(n, |s| s.next() as i32 >> 10);
    let mut case = Case::new(name, PTX);
    let (input, out) = (case.input(&values), case.output::<i32>(n));
    let cell = |i: usize| {
        let sum: i32 = (0..16).map(|k| coefficient(k) * values[(i + k) % n]).sum();
        sum + coefficient(i % 16) + [3, -2, 1][i % 3] * 4 + b's' as i32
    };
    case.expect(out, &(0..n).map(cell).collect::<Vec<i32>>());
    case.launch(name, 2, 64, args![input, out]);
    case
}

fn module_variables(name: &'static str) -> Case {
    let mut case = Case::new(name, PTX);
    let (out, floats) = (case.output::<i32>(64), case.output::<f32>(32));
    let words: [&[u8]; 3] = [b"zero", b"one\0", b"two\0"];
    let first = (0..32).map(|t| words[t % 3][t % 4] as i32 + 40);
    case.expect(out, &first.chain([42 + 7; 32]).collect::<Vec<i32>>());
    let table = [[1.5f32, 2.5, 3.5], [-1.0, -2.0, -3.0]];
    case.expect(
        floats,
        &(0..32).map(|t| table[t % 2][t % 3]).collect::<Vec<f32>>(),
    );
    case.launch(name, 1, 32, args![out, floats]);
    case
}

fn dynamic_shared(name: &'static str) -> Case {
    let n = 64usize;
    let values = Inputs::new(name).make(n, |s| s.next() as u16);
    let mut case = Case::new(name, PTX);
    let (input, out) = (case.input(&values), case.output::<f64>(n));
    let cell = |t: usize| {
        let t = n - 1 - t;
        let word = (values[(t + 6) % n] as u32).wrapping_mul(65537);
        word as f64 + 0.5 * values[n - 1 - t] as f64
    };
    case.expect(out, &(0..n).map(cell).collect::<Vec<f64>>());
    case.launch(name, 1, n as u32, args![input, out, n as u32])
        .shared(n as u32 * (8 + 4 + 2));
    case
}

fn local_array(name: &'static str) -> Case {
    let values = Inputs::new(name).words32(128);
    let mut case = Case::new(name, PTX);
    let (input, out) = (case.input(&values), case.output::<u32>(128));
    let run = |(i, &start): (usize, &u32)| {
        let mut state: Vec<u32> = (0..64).map(|k| k * 7 + i as u32).collect();
        let mut bytes: Vec<u8> = (0..40).map(|k| k as u8 ^ i as u8).collect();
        let mut x = start;
        for k in 0..100usize {
            let at = (x % 64) as usize;
            let swap = state[at];
            state[at] = state[k % 64].wrapping_add(bytes[(x % 40) as usize] as u32);
            let byte = &mut bytes[((x >> 8) % 40) as usize];
            *byte = byte.wrapping_add(k as u8);
            state[k % 64] = swap;
            x = x
                .wrapping_mul(1664525)
                .wrapping_add(1013904223)
                .wrapping_add(swap);
        }
        x ^ state[(x % 64) as usize] ^ (bytes[5] as u32) << 24
    };
    case.expect(
        out,
        &values.iter().enumerate().map(run).collect::<Vec<u32>>(),
    );
    case.launch(name, 2, 64, args![input, out]);
    case
}

fn struct_parameters(name: &'static str) -> Case {
    let (a, b, c, d, e) = (
        100i8,
        2.25f64,
        [1.5f32, -2.5, 4.0],
        [10i16, -20, 30, -40, 50],
        0x5au8,
    );
    let mut mixed = vec![0u8; 48];
    let mut put = |at: usize, bytes: &[u8]| mixed[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &a.to_le_bytes());
    put(8, &b.to_le_bytes());
    (0..3).for_each(|k| put(16 + 4 * k, &c[k].to_le_bytes()));
    (0..5).for_each(|k| put(28 + 2 * k, &d[k].to_le_bytes()));
    put(38, &[e]);
    let (lead, middle, pair, tail) = (27u8, 1000i16, [0.5f32, 8.0], -3.0f64);
    let mut case = Case::new(name, PTX);
    let out = case.output::<f64>(12 * 8);
    let row = |t: usize| {
        let mut d = d.map(|v| v as f64);
        d[t % 5] = d[(t + 1) % 5] + middle as f64;
        let changed = c[0] as f64 + pair[1] as f64;
        let head = [
            (a as u8).wrapping_add(lead) as i8 as f64,
            b * tail,
            c[0] as f64,
            changed,
            c[2] as f64,
        ];
        head.into_iter()
            .chain(d)
            .chain([(e ^ t as u8) as f64, pair[0] as f64])
    };
    case.columns(out, 12);
    case.expect(out, &(0..8).flat_map(row).collect::<Vec<f64>>());
    let pair = structure(pair.iter().flat_map(|v| v.to_le_bytes()).collect());
    case.launch(
        name,
        1,
        8,
        vec![
            lead.into(),
            structure(mixed),
            middle.into(),
            pair,
            out.into(),
            tail.into(),
        ],
    );
    case
}

fn vector_access(name: &'static str) -> Case {
    let n = 64usize;
    let values = Inputs::new(name).make(4 * n, |s| s.next() as u32);
    let mut case = Case::new(name, PTX);
    let (input, out) = (case.input(&values), case.output::<u32>(16 * n));
    let mut expected = vec![0u32; 16 * n];
    for i in 0..n {
        let v = &values[4 * i..4 * i + 4];
        let c = v[2].to_le_bytes().map(|b| b as u32);
        let s = [v[3] as i16 as i32, (v[3] >> 16) as i16 as i32];
        let cached = [v[0], v[1], v[2], v[3], v[0]]
            .iter()
            .fold(0u32, |sum, w| sum.wrapping_add(*w));
        let long = |at: usize| (v[at + 1] as u64) << 32 | v[at] as u64;
        let (sum, fold) = (long(0).wrapping_add(long(2)), long(0) ^ long(2));
        let rows = [
            [v[3], v[2], v[2], v[3]],
            [
                c[0] + c[1],
                c[2].wrapping_sub(c[3]),
                (s[0] * s[1]) as u32,
                cached,
            ],
            [
                sum as u32,
                (sum >> 32) as u32,
                fold as u32,
                (fold >> 32) as u32,
            ],
            [
                v[0].wrapping_add(1),
                0xa5a5_0000 | c[2] << 8 | c[3],
                (v[3] >> 16) << 16 | 0xa5a5,
                v[1],
            ],
        ];
        rows.iter()
            .enumerate()
            .for_each(|(k, row)| expected[4 * (k * n + i)..][..4].copy_from_slice(row));
    }
    case.expect(out, &expected);
    case.launch(name, 2, 32, args![input, out]);
    case
}

fn address_spaces(name: &'static str) -> Case {
    let values = Inputs::new(name).make(32, |s| s.below(1000) as i32);
    let mut case = Case::new(name, PTX);
    let (input, out) = (case.input(&values), case.output::<i32>(96));
    let row = |t: usize| match t % 4 {
        0 => [values[t], 1],
        1 => [values[t ^ 1] * 2, 2],
        2 => [values[(t + t % 3) % 32] * 3, 4],
        _ => [coefficient(t % 16), 8],
    };
    let offsets = (0..32).map(|t| 4 * t as i32 + values[31 - t] * 2);
    case.expect(
        out,
        &(0..32).flat_map(row).chain(offsets).collect::<Vec<i32>>(),
    );
    case.launch(name, 1, 32, args![input, out]);
    case
}

fn device_heap(name: &'static str) -> Case {
    let mut case = Case::new(name, PTX);
    let out = case.output::<i32>(64);
    let cell = |t: i32| (0..=63 - t).map(|k| k * k).sum::<i32>() + 1;
    case.expect(out, &(0..64).map(cell).collect::<Vec<i32>>());
    case.launch(name, 1, 64, args![out]);
    case
}

fn copy_bytes(name: &'static str) -> Case {
    let values = Inputs::new(name).make(180, |s| s.next() as u8);
    let n = 101usize;
    let mut case = Case::new(name, PTX);
    let (input, out) = (case.input(&values), case.output::<u8>(32 * 24 + n));
    let mut expected = Vec::new();
    for t in 0..32usize {
        let mut block = [t as u8; 24];
        block[3..16].copy_from_slice(&values[5 * t..5 * t + 13]);
        block.copy_within(3..14, 5);
        expected.extend(block);
    }
    expected.extend(&values[..n]);
    case.expect(out, &expected);
    case.launch(name, 1, 32, args![input, out, n as u32]);
    case
}

fn clocks(name: &'static str) -> Case {
    let mut case = Case::new(name, PTX);
    let out = case.output::<u32>(64);
    case.expect(out, &[7u32; 64]);
    case.launch(name, 1, 64, args![out]);
    case
}
