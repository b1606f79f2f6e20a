//! `atomics.cu`.

use half::{bf16, f16};

use super::case::{Case, Ptx, args};
use super::input::Inputs;

const PTX: Ptx = super::ptx!("atomics");

super::cases! {
    atomics_32, atomics_64, atomics_contended, atomics_shared, atomics_half, atomics_scopes,
}

fn atomics_32(name: &'static str) -> Case {
    let n = 128;
    let mut inputs = Inputs::new(name);
    let (words, operands) = (inputs.words32(12 * n), inputs.words32(n));
    let mut case = Case::new(name, PTX);
    let (dw, dv, old) = (
        case.inout(&words),
        case.input(&operands),
        case.output::<u32>(12 * n),
    );
    let mut after = words.clone();
    let mut before = words;
    for i in 0..n {
        let v = operands[i];
        let w = &mut after[12 * i..12 * i + 12];
        w[0] = w[0].wrapping_add(v);
        w[1] = w[1].wrapping_sub(v);
        w[2] = v;
        w[3] = (w[3] as i32).min(v as i32) as u32;
        w[4] = (w[4] as i32).max(v as i32) as u32;
        w[5] = w[5].min(v);
        w[6] = w[6].max(v);
        w[7] = if w[7] >= v { 0 } else { w[7] + 1 };
        w[8] = if w[8] == 0 || w[8] > v { v } else { w[8] - 1 };
        w[9] = if i % 2 == 1 { v } else { w[9] };
        before[12 * i + 10] = w[10] ^ (w[10] & v);
        w[10] = w[10] & v | v << 1;
        w[11] ^= v;
    }
    case.columns(dw, 12);
    case.columns(old, 12);
    case.expect(dw, &after);
    case.expect(old, &before);
    case.launch(name, 2, 64, args![dw, dv, old]);
    case
}

fn atomics_64(name: &'static str) -> Case {
    let n = 96;
    let mut inputs = Inputs::new(name);
    let (words, operands) = (inputs.words64(10 * n), inputs.words64(n));
    let mut case = Case::new(name, PTX);
    let (dw, dv, old) = (
        case.inout(&words),
        case.input(&operands),
        case.output::<u64>(10 * n),
    );
    let mut after = words.clone();
    for i in 0..n {
        let v = operands[i];
        let w = &mut after[10 * i..10 * i + 10];
        w[0] = w[0].wrapping_add(v);
        w[1] = v;
        w[2] = (w[2] as i64).min(v as i64) as u64;
        w[3] = (w[3] as i64).max(v as i64) as u64;
        w[4] = w[4].min(v);
        w[5] = w[5].max(v);
        w[6] = if i % 2 == 1 { v } else { w[6] };
        w[7] &= v;
        w[8] |= v;
        w[9] ^= v;
    }
    case.columns(dw, 10);
    case.columns(old, 10);
    case.expect(dw, &after);
    case.expect(old, &words);
    case.launch(name, 3, 32, args![dw, dv, old]);
    case
}

fn atomics_contended(name: &'static str) -> Case {
    let n = 1900u32;
    let start = [7u32, 3, 0xffff_0000, 0, 0x1234, u32::MAX, 5, 9, 100];
    let mut case = Case::new(name, PTX);
    let (words, f, d) = (case.inout(&start), case.inout(&[1f32]), case.inout(&[2f64]));
    let mut w = start;
    for i in 0..n {
        let mixed = i.wrapping_mul(2654435761);
        w[0] = w[0].wrapping_add(i);
        w[1] = w[1].max(mixed);
        w[2] = w[2].min(mixed);
        w[3] |= 1 << (i % 29);
        w[4] ^= i.wrapping_mul(40503);
        w[5] &= !(1 << (i % 23));
        w[6] = if w[6] >= 1000 { 0 } else { w[6] + 1 };
        w[7] = if w[7] == 0 || w[7] > 1000 {
            1000
        } else {
            w[7] - 1
        };
        w[8] += i & 7;
    }
    let sum: u32 = (0..n).map(|i| i % 16).sum();
    case.expect(words, &w);
    case.expect(f, &[1.0 + sum as f32]);
    case.expect(d, &[2.0 + 0.25 * sum as f64]);
    case.launch(name, 16, 128, args![words, f, d, n]);
    case
}

fn atomics_shared(name: &'static str) -> Case {
    let (grid, block, rounds) = (3u32, 96u32, 5u32);
    let mut case = Case::new(name, PTX);
    let out = case.output::<u32>(16 * grid as usize);
    let mut expected = Vec::new();
    for b in 0..grid {
        let mut w = [0u32, 0, u32::MAX, 0, 0, u32::MAX, 0, 0];
        let mut wide = [0u64; 3];
        let mut f = 0f32;
        for t in 0..block {
            for r in 0..rounds {
                let v = (b * block + t).wrapping_mul(2654435761).wrapping_add(r);
                w[0] = w[0].wrapping_add(v);
                w[1] = w[1].max(v);
                w[2] = w[2].min(v);
                w[3] |= v & 0x1111_1111;
                w[4] ^= v;
                w[5] &= v | 0xfff0_ffff;
                w[6] += 3;
                w[7] = if w[7] >= 76 { 0 } else { w[7] + 1 };
                wide[0] = wide[0].wrapping_add((v as u64) << 13);
                wide[1] = wide[1].max((v as u64) << 20);
                wide[2] ^= v.wrapping_mul(v) as u64;
                f += (v >> 28) as f32;
            }
        }
        // The product of two 64-bit values keeps its upper half.
        wide[2] = 0;
        for t in 0..block {
            for r in 0..rounds {
                let v = (b * block + t).wrapping_mul(2654435761).wrapping_add(r) as u64;
                wide[2] ^= v.wrapping_mul(v);
            }
        }
        expected.extend(w);
        expected.extend(wide.iter().flat_map(|v| [*v as u32, (*v >> 32) as u32]));
        expected.extend([f.to_bits(), 0]);
    }
    case.columns(out, 16);
    case.expect(out, &expected);
    case.launch(name, grid, block, args![out, rounds]);
    case
}

fn atomics_half(name: &'static str) -> Case {
    let n = 64usize;
    let mut case = Case::new(name, PTX);
    let h = case.inout(&[f16::from_f32(2.0); 4]);
    let h2 = case.inout(&[f16::ZERO; 4]);
    let b = case.inout(&[bf16::from_f32(3.0); 8]);
    let b2 = case.inout(&[bf16::ZERO; 16]);
    let v = case.inout(&[0f32, 1.0, 2.0, 3.0]);
    let words: Vec<f32> = (0..2 * n).map(|i| i as f32 * 0.25).collect();
    let old = case.inout(&words);
    case.expect(h, &[f16::from_f32(2.0 + 16.0); 4]);
    case.expect(h2, &[32.0, 16.0, 32.0, 16.0].map(f16::from_f32));
    case.expect(b, &[bf16::from_f32(3.0 + 8.0); 8]);
    let pair = [2.0f32, 16.0].map(bf16::from_f32);
    case.expect(b2, &[pair; 8].concat());
    case.expect(v, &[64.0f32, 129.0, 34.0, 99.0]);
    let mut expected = words;
    for i in 0..n {
        // The sum comes back from the exchange, which leaves the first value, eight more.
        let first = expected[2 * i + 1];
        expected[2 * i] = first + 1.5;
        expected[2 * i + 1] = first + 8.0;
    }
    case.expect(old, &expected);
    case.launch(name, 2, 32, args![h, h2, b, b2, v, old]);
    case
}

fn atomics_scopes(name: &'static str) -> Case {
    let (grid, block) = (4u32, 64u32);
    let n = grid * block;
    let start = vec![0u32; 16 + n as usize];
    let mut case = Case::new(name, PTX);
    let (words, wide) = (case.inout(&start), case.inout(&[0u64, 0]));
    let mut expected = start;
    for i in 0..n {
        expected[(i / block) as usize] += i;
        expected[8] += i;
        expected[9] = i;
        expected[10] += i;
        expected[11] += 1;
        // The upper half was zero, so the exchange takes place and gives zero.
        expected[16 + i as usize] = (i * 3 + 1) | i << 16;
    }
    case.expect(words, &expected);
    case.expect(wide, &[((n * (n - 1) / 2) as u64) << 32, (1 << 60) - 1]);
    case.launch(name, grid, block, args![words, wide]);
    case
}
