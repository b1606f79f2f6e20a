//! `asynchronous.cu`: pipelines of copies, bulk copies and reductions, clusters.

use half::{bf16, f16};

use super::case::{Case, Ptx, args};
use super::input::Inputs;

const ASYNCHRONOUS: Ptx = super::ptx!("asynchronous");

super::cases! {
    staged_copies, bulk_pipeline, bulk_reductions, cluster_sums, cluster_messages, barrier_states,
}

fn staged_copies(name: &'static str) -> Case {
    let (blocks, tiles) = (3usize, 9usize);
    // The last tile of the last block is half full.
    let count = blocks * tiles * 128 - 64;
    let values = Inputs::new(name).make(4 * count, |s| s.below(2000) as f32 / 8.0 - 100.0);
    let mut case = Case::new(name, ASYNCHRONOUS);
    let (input, out) = (case.input(&values), case.output::<f32>(blocks * 128));
    let value = |at: usize| values.get(at).copied().unwrap_or(0.0);
    let thread_sum = |block: usize, thread: usize| {
        (0..tiles).fold(0f32, |sum, tile| {
            let at = 4 * ((block * tiles + tile) * 128 + 127 - thread);
            let pairs = (value(at) - value(at + 1)) + (value(at + 2) - value(at + 3));
            // The compiler fuses the product with the sum.
            sum.mul_add(0.5, pairs)
        })
    };
    let expected: Vec<f32> = (0..blocks * 128)
        .map(|at| thread_sum(at / 128, at % 128))
        .collect();
    case.expect(out, &expected);
    case.launch(
        name,
        blocks as u32,
        128,
        args![input, out, count as i32, tiles as i32],
    );
    case
}

fn bulk_pipeline(name: &'static str) -> Case {
    let (blocks, tiles) = (5usize, 11usize);
    let values = Inputs::new(name).words32(blocks * tiles * 256);
    let mut case = Case::new(name, ASYNCHRONOUS);
    let (input, out) = (case.input(&values), case.output::<u32>(blocks * 256));
    let before: Vec<u32> = (0..256).collect();
    let sums = case.inout(&before);
    let sum = |at: usize| {
        (0..tiles).fold(0u32, |sum, tile| {
            let word = values[(at / 256 * tiles + tile) * 256 + ((at % 256) ^ 1)];
            sum.wrapping_mul(31).wrapping_add(word)
        })
    };
    let expected: Vec<u32> = (0..blocks * 256).map(sum).collect();
    let all = |at: u32| {
        let of_blocks = expected.iter().skip(at as usize).step_by(256);
        of_blocks.fold(at, |all, sum| all.wrapping_add(*sum))
    };
    case.expect(sums, &(0..256).map(all).collect::<Vec<u32>>());
    case.expect(out, &expected);
    case.launch(
        name,
        blocks as u32,
        288,
        args![input, out, sums, tiles as i32],
    );
    case
}

fn bulk_reductions(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (mut values, mut before) = (inputs.words32(27 * 16 + 80), inputs.words32(27 * 16));
    // Counters and limits of the same size.
    for at in 11 * 16..13 * 16 {
        values[at] %= 9;
        before[at] %= 9;
    }
    let half = |n: u32, bits: fn(f32) -> u16| u32::from(bits((n % 4000) as f32 / 16.0 - 120.0));
    let f16_bits = |x: f32| f16::from_f32(x).to_bits();
    let bf16_bits = |x: f32| bf16::from_f32(x).to_bits();
    for list in [&mut values, &mut before] {
        for (at, word) in list.iter_mut().enumerate() {
            *word = match at / 16 {
                19..22 => half(*word, f16_bits) | half(*word >> 12, f16_bits) << 16,
                22..25 => half(*word, bf16_bits) | half(*word >> 12, bf16_bits) << 16,
                25 => ((*word % 100_000) as f32 / 7.0 - 5000.0).to_bits(),
                _ => *word,
            };
        }
        for pair in list[26 * 16..27 * 16].chunks_mut(2) {
            let bits = (f64::from(pair[0]) / 3.0 - f64::from(pair[1])).to_bits();
            (pair[0], pair[1]) = (bits as u32, (bits >> 32) as u32);
        }
    }
    let expected: Vec<u32> = (0..27)
        .flat_map(|which| {
            let row = which * 16..which * 16 + 16;
            reduced(which, &before[row.clone()], &values[row])
        })
        .collect();
    let mut case = Case::new(name, ASYNCHRONOUS);
    let (input, out) = (case.input(&values), case.inout(&before));
    case.expect(out, &expected);
    case.launch(name, 1, 32, args![input, out]);
    case
}

/// What the reduction of a number leaves of 64 bytes.
fn reduced(which: usize, old: &[u32], new: &[u32]) -> Vec<u32> {
    let words = |f: fn(u32, u32) -> u32| -> Vec<u32> {
        old.iter()
            .zip(new)
            .map(|(old, new)| f(*old, *new))
            .collect()
    };
    let longs = |f: fn(u64, u64) -> u64| -> Vec<u32> {
        let long = |pair: &[u32]| u64::from(pair[0]) | u64::from(pair[1]) << 32;
        let pairs = old.chunks(2).zip(new.chunks(2));
        let results = pairs.map(|(old, new)| f(long(old), long(new)));
        results
            .flat_map(|long| [long as u32, (long >> 32) as u32])
            .collect()
    };
    let halves = |f: fn(u16, u16) -> u16| -> Vec<u32> {
        let both = |(old, new): (&u32, &u32)| {
            let (low, high) = (
                f(*old as u16, *new as u16),
                f((*old >> 16) as u16, (*new >> 16) as u16),
            );
            u32::from(low) | u32::from(high) << 16
        };
        old.iter().zip(new).map(both).collect()
    };
    match which {
        0 | 1 => words(u32::wrapping_add),
        2 => longs(u64::wrapping_add),
        3 => words(u32::min),
        4 => words(|old, new| (old as i32).min(new as i32) as u32),
        5 => longs(u64::min),
        6 => longs(|old, new| (old as i64).min(new as i64) as u64),
        7 => words(u32::max),
        8 => words(|old, new| (old as i32).max(new as i32) as u32),
        9 => longs(u64::max),
        10 => longs(|old, new| (old as i64).max(new as i64) as u64),
        11 => words(|old, new| if old >= new { 0 } else { old + 1 }),
        12 => words(|old, new| if old == 0 || old > new { new } else { old - 1 }),
        13 | 16 => words(|old, new| old & new),
        14 | 17 => words(|old, new| old | new),
        15 | 18 => words(|old, new| old ^ new),
        19 => halves(|old, new| {
            let sum = f16::from_bits(old).to_f32() + f16::from_bits(new).to_f32();
            f16::from_f32(sum).to_bits()
        }),
        20 => halves(|old, new| f16::from_bits(old).min(f16::from_bits(new)).to_bits()),
        21 => halves(|old, new| f16::from_bits(old).max(f16::from_bits(new)).to_bits()),
        22 => halves(|old, new| {
            let sum = bf16::from_bits(old).to_f32() + bf16::from_bits(new).to_f32();
            bf16::from_f32(sum).to_bits()
        }),
        23 => halves(|old, new| bf16::from_bits(old).min(bf16::from_bits(new)).to_bits()),
        24 => halves(|old, new| bf16::from_bits(old).max(bf16::from_bits(new)).to_bits()),
        25 => words(|old, new| (f32::from_bits(old) + f32::from_bits(new)).to_bits()),
        _ => longs(|old, new| (f64::from_bits(old) + f64::from_bits(new)).to_bits()),
    }
}

fn cluster_sums(name: &'static str) -> Case {
    let values = Inputs::new(name).make(12 * 128, |s| s.below(1000) as u32);
    let mut case = Case::new(name, ASYNCHRONOUS);
    let (input, out) = (case.input(&values), case.output::<u32>(12 * 128));
    let sums = |block: &[u32]| {
        let mut sums = block.to_vec();
        for half in [64, 32, 16, 8, 4, 2, 1] {
            for at in 0..half {
                sums[at] += sums[at + half];
            }
        }
        sums
    };
    let sums: Vec<Vec<u32>> = values.chunks(128).map(sums).collect();
    let word = |at: usize| {
        let (block, thread) = (at / 128, at % 128);
        let first = block / 4 * 4;
        let all: u32 = sums[first..first + 4].iter().map(|sums| sums[0]).sum();
        all + 1000 * sums[first + (block + 1) % 4][thread]
    };
    case.expect(out, &(0..12 * 128).map(word).collect::<Vec<u32>>());
    case.launch(name, 12, 128, args![input, out]);
    case
}

fn cluster_messages(name: &'static str) -> Case {
    let values = Inputs::new(name).make(8 * 64, |s| s.below(1 << 30) as u32);
    let mut case = Case::new(name, ASYNCHRONOUS);
    let (input, out) = (case.input(&values), case.output::<u32>(8 * 256));
    let word = |at: usize| {
        let (block, thread) = (at / 256, at % 256);
        let (first, rank) = (block / 4 * 4, block % 4);
        let sender = (rank + 3) % 4;
        let sent = |word: usize| values[(first + sender) * 64 + word];
        match thread {
            0..64 => sent(thread) + sender as u32,
            64..128 => 7.max(thread as u32 % 16),
            128..192 => sent(thread - 128),
            _ => values[block / 4 * 64 + thread - 192],
        }
    };
    case.expect(out, &(0..8 * 256).map(word).collect::<Vec<u32>>());
    case.launch(name, 8, 128, args![input, out]);
    case
}

fn barrier_states(name: &'static str) -> Case {
    let rounds = 13;
    let mut case = Case::new(name, ASYNCHRONOUS);
    let out = case.output::<u32>(2 * 96);
    let mut values: Vec<u32> = (0..96).collect();
    for _ in 0..rounds {
        let other = |at: usize| values[(at + 33) % 96];
        let next = |at: usize| values[at].wrapping_mul(3).wrapping_add(other(at));
        values = (0..96).map(next).collect();
    }
    case.expect(out, &values.repeat(2));
    case.launch(name, 2, 96, args![out, rounds]);
    case
}
