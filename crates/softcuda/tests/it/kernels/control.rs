//! `control.cu`, `recursion.cu`, `function_pointers.cu`: branches, loops and calls.

use super::case::{Case, Ptx, args};
use super::input::Inputs;

const CONTROL: Ptx = super::ptx!("control");
const RECURSION: Ptx = super::ptx!("recursion");
const POINTERS: Ptx = super::ptx!("function_pointers");

super::cases! {
    dense_switch, indexed_branch, sparse_switch, collatz, nested_exits, number_theory, fibonacci, ackermann, even_odd,
    quicksort_local, hanoi_moves, call_tables, call_pointer, call_with_struct, virtual_calls,
}

/// What an unwritten word of an output holds.
const UNWRITTEN: u32 = 0xa5a5_a5a5;

fn dense_switch(name: &'static str) -> Case {
    let values = Inputs::new(name).words32(256);
    let rounds = 50;
    let mut case = Case::new(name, CONTROL);
    let (input, out) = (case.input(&values), case.output::<u32>(256));
    let run = |&start: &u32| {
        let (mut x, mut sum) = (start, 0u32);
        for _ in 0..rounds {
            sum = match x % 13 {
                0 => sum.wrapping_add(x),
                1 => sum ^ x << 3,
                2 => sum.wrapping_sub(x.wrapping_mul(3)),
                3 => sum.reverse_bits().wrapping_add(1),
                4 => sum.wrapping_mul(17).wrapping_add(5),
                5 => sum.wrapping_add(5),
                6 => (sum / 7).wrapping_add(x),
                7 => sum | 0x101,
                8 => sum & !0x11,
                9 => sum.count_ones().wrapping_mul(x),
                10 => sum.wrapping_add(sum << 5),
                11 => sum ^ sum >> 7,
                _ => !sum,
            };
            x = x
                .wrapping_mul(1103515245)
                .wrapping_add(12345)
                .wrapping_add(sum & 1);
            x ^= x >> 16;
        }
        sum
    };
    case.expect(out, &values.iter().map(run).collect::<Vec<u32>>());
    case.launch(name, 2, 128, args![input, out, rounds as u32]);
    case
}

fn indexed_branch(name: &'static str) -> Case {
    let values = Inputs::new(name).words32(128);
    let mut case = Case::new(name, CONTROL);
    let (input, out) = (case.input(&values), case.output::<u32>(128));
    let target = |v: &u32| match v % 4 {
        0 => 100,
        2 => 600,
        odd => odd + 200,
    };
    case.expect(out, &values.iter().map(target).collect::<Vec<u32>>());
    case.launch(name, 2, 64, args![input, out]);
    case
}

fn sparse_switch(name: &'static str) -> Case {
    let named = [-1000000, -5, 0, 7, 1234, i32::MAX];
    let values = Inputs::new(name).make(128, |s| match s.below(2) {
        0 => named[s.below(6) as usize],
        _ => s.below(20) as i32 - 10,
    });
    let mut case = Case::new(name, CONTROL);
    let (input, out) = (case.input(&values), case.output::<i32>(128));
    let result = |v: &i32| match named.iter().position(|n| n == v) {
        Some(at) => at as i32 + 1,
        None if v & 1 == 1 => 7,
        None => 8,
    };
    case.expect(out, &values.iter().map(result).collect::<Vec<i32>>());
    case.launch(name, 1, 128, args![input, out]);
    case
}

fn collatz(name: &'static str) -> Case {
    let first = 837_700u32;
    let mut case = Case::new(name, CONTROL);
    let out = case.output::<u32>(256);
    let steps = |n: u32| {
        let mut n = (first + n) as u64;
        let mut steps = 0;
        while n != 1 {
            n = if n % 2 == 1 { 3 * n + 1 } else { n / 2 };
            steps += 1;
        }
        steps
    };
    case.expect(out, &(0..256).map(steps).collect::<Vec<u32>>());
    case.launch(name, 2, 128, args![out, first]);
    case
}

fn nested_exits(name: &'static str) -> Case {
    let values = Inputs::new(name).words32(192);
    let mut case = Case::new(name, CONTROL);
    let (input, out) = (case.input(&values), case.output::<u32>(192));
    let search = |(i, &x): (usize, &u32)| {
        if i % 7 == 3 {
            return UNWRITTEN;
        }
        for a in (2..40u32).filter(|a| a * 3 != x % 101) {
            for b in a..40 {
                if ((a * b) ^ x) % 97 == 0 {
                    return a << 16 | b;
                }
                if b * 2 > x % 61 + 30 {
                    break;
                }
            }
        }
        u32::MAX
    };
    case.expect(
        out,
        &values.iter().enumerate().map(search).collect::<Vec<u32>>(),
    );
    case.launch(name, 3, 64, args![input, out]);
    case
}

fn number_theory(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b) = (inputs.words32(128), inputs.words32(128));
    let mut case = Case::new(name, CONTROL);
    let (da, db, out) = (case.input(&a), case.input(&b), case.output::<u32>(256));
    fn gcd(a: u32, b: u32) -> u32 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    let power = |base: u32, exponent: u32| {
        let modulus = 998_244_353u64;
        let square = |v: u64| v * v % modulus;
        (0..32).rev().fold(1u64, |r, bit| {
            let r = square(r);
            if exponent >> bit & 1 == 1 {
                r * (base as u64 % modulus) % modulus
            } else {
                r
            }
        }) as u32
    };
    case.columns(out, 2);
    case.expect(
        out,
        &a.iter()
            .zip(&b)
            .flat_map(|(&a, &b)| [gcd(a, b), power(a, b)])
            .collect::<Vec<u32>>(),
    );
    case.launch(name, 2, 64, args![da, db, out]);
    case
}

fn fibonacci(name: &'static str) -> Case {
    let values: Vec<u32> = (0..32).map(|i| i * 5 % 18).collect();
    let mut case = Case::new(name, RECURSION);
    let (input, out) = (case.input(&values), case.output::<u32>(32));
    let fib = |&n: &u32| (0..n).fold((0u32, 1u32), |(a, b), _| (b, a + b)).0;
    case.expect(out, &values.iter().map(fib).collect::<Vec<u32>>());
    case.launch(name, 1, 32, args![input, out]);
    case
}

fn ackermann(name: &'static str) -> Case {
    let mut case = Case::new(name, RECURSION);
    let out = case.output::<u32>(48);
    let value = |t: u32| match (t % 3, t / 3) {
        (0, n) => n + 1,
        (1, n) => n + 2,
        (_, n) => 2 * n + 3,
    };
    case.expect(out, &(0..48).map(value).collect::<Vec<u32>>());
    case.launch(name, 1, 48, args![out]);
    case
}

fn even_odd(name: &'static str) -> Case {
    let mut case = Case::new(name, RECURSION);
    let out = case.output::<u32>(96);
    case.expect(
        out,
        &(0..96)
            .map(|t| if t % 2 == 0 { 2 * t } else { t })
            .collect::<Vec<u32>>(),
    );
    case.launch(name, 1, 96, args![out]);
    case
}

fn quicksort_local(name: &'static str) -> Case {
    let values = Inputs::new(name).make(48 * 40, |s| s.below(1000) as i32 - 500);
    let mut case = Case::new(name, RECURSION);
    let (input, out) = (case.input(&values), case.output::<i32>(48 * 40));
    let mut expected = values;
    expected.chunks_mut(48).for_each(|part| part.sort());
    case.columns(out, 48);
    case.expect(out, &expected);
    case.launch(name, 2, 20, args![input, out]);
    case
}

fn hanoi_moves(name: &'static str) -> Case {
    let disks = 5u16;
    let mut case = Case::new(name, RECURSION);
    let out = case.output::<u16>(3 * 128 * 4);
    fn moves(disks: u16, from: u16, to: u16, list: &mut Vec<u16>) {
        if disks > 0 {
            let by = 3 - from - to;
            moves(disks - 1, from, by, list);
            list.extend([disks, from, to]);
            moves(disks - 1, by, to, list);
        }
    }
    let mut expected = Vec::new();
    for thread in 0..4 {
        let mut list = Vec::new();
        moves(disks, 0, 1 + thread % 2, &mut list);
        list.extend([list.len() as u16 / 3, 0xffff, 0xffff]);
        list.resize(3 * 128, UNWRITTEN as u16);
        expected.extend(list);
    }
    case.columns(out, 3);
    case.expect(out, &expected);
    case.launch(name, 1, 4, args![out, disks]);
    case
}

/// The four functions, in the order of the constant table.
fn binary(which: usize, a: i32, b: i32) -> i32 {
    match which {
        0 => a.wrapping_add(b),
        1 => a.wrapping_sub(b),
        2 => (a ^ b).wrapping_add(a >> 3),
        _ => a.max(b),
    }
}

fn call_tables(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b) = (
        inputs.make(128, |s| s.next() as i32 >> 4),
        inputs.make(128, |s| s.next() as i32 >> 4),
    );
    let mut case = Case::new(name, POINTERS);
    let (da, db, out) = (case.input(&a), case.input(&b), case.output::<i32>(256));
    let row = |i: usize| [binary(i % 4, a[i], b[i]), binary(3 - i % 4, a[i], b[i])];
    case.columns(out, 2);
    case.expect(out, &(0..128).flat_map(row).collect::<Vec<i32>>());
    case.launch(name, 2, 64, args![da, db, out]);
    case
}

fn call_pointer(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b) = (
        inputs.make(64, |s| s.next() as i32 >> 4),
        inputs.make(64, |s| s.next() as i32 >> 4),
    );
    let mut case = Case::new(name, POINTERS);
    let (slot, da, db) = (case.scratch(8), case.input(&a), case.input(&b));
    for which in 0..4 {
        let out = case.output::<i32>(64);
        case.expect(
            out,
            &(0..64)
                .map(|i| binary(which, a[i], b[i]))
                .collect::<Vec<i32>>(),
        );
        case.launch("make_pointer", 1, 1, args![slot, which as i32]);
        case.launch("call_pointer", 1, 64, args![slot, da, db, out]);
    }
    case
}

fn call_with_struct(name: &'static str) -> Case {
    let pairs: Vec<(f64, i32, i32)> = (0..32)
        .map(|i| (i as f64 * 1.25 - 7.0, i * 3, 100))
        .collect();
    let bytes = |pairs: &[(f64, i32, i32)]| -> Vec<u64> {
        pairs
            .iter()
            .flat_map(|(x, n, sum)| [x.to_bits(), (*sum as u64) << 32 | *n as u32 as u64])
            .collect()
    };
    let mut case = Case::new(name, POINTERS);
    let buffer = case.inout(&bytes(&pairs));
    let after: Vec<(f64, i32, i32)> = pairs
        .iter()
        .enumerate()
        .map(|(i, &(x, n, sum))| match i % 2 {
            1 => (x * 0.5 * 2.0, n + 2, sum + 2 * n + 1),
            _ => (x - 0.5 - 2.0, n - 2, sum - 2 * n + 1),
        })
        .collect();
    case.expect(buffer, &bytes(&after));
    case.launch(name, 1, 32, args![buffer]);
    case
}

fn virtual_calls(name: &'static str) -> Case {
    let values: Vec<f32> = (0..64).map(|i| i as f32 * 0.5).collect();
    let mut case = Case::new(name, POINTERS);
    let (input, out) = (case.input(&values), case.output::<f32>(64));
    let area = |(i, &v): (usize, &f32)| {
        if i >> 2 & 1 == 1 {
            v * (v + 1.0) + 4.0
        } else {
            3.0 * v * v
        }
    };
    case.expect(
        out,
        &values.iter().enumerate().map(area).collect::<Vec<f32>>(),
    );
    case.launch(name, 1, 64, args![input, out]);
    case
}
