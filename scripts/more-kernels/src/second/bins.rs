//! Histograms.

use std::hint::black_box;

use cudarc::driver::{DeviceRepr, PushKernelArg};
use rayon::prelude::*;

use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("hist64_per_warp", hist64),
    ("hist512_float", hist512),
    ("count_words", count),
];

/// Counts by `add`, which counts a chunk's.
fn count_all<T: Sync>(
    all: &[T],
    bins: usize,
    add: impl Fn(&mut [u32], &[T]) + Sync + Send,
) -> Vec<u32> {
    all.par_chunks(all.len().div_ceil(8))
        .map(|chunk| {
            let mut counts = vec![0u32; bins];
            add(&mut counts, chunk);
            counts
        })
        .reduce(
            || vec![0u32; bins],
            |mut a, b| {
                a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
                a
            },
        )
}

fn hist64(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 8_000_012usize;
    let f = gpu.kernel(name)?;
    let x: Vec<u8> = words(1)
        .take(n)
        .map(|w| ((w as u8 as u32 + (w >> 8) as u8 as u32 + (w >> 16) as u8 as u32) / 3) as u8)
        .collect();
    let xd = gpu.stream.clone_htod(&x)?;
    let mut bd = gpu.stream.alloc_zeros::<u32>(64)?;
    let mut bins = vec![];
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut bd)?;
            let w = n as u32 / 4;
            launch!(gpu, f, line(240, 192), &xd, &w, &mut bd);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            bins = count_all(black_box(&x[..]), 64, |counts, x| {
                // Four tables, so that a count seldom waits for the one before.
                let mut tables = [[0u32; 64]; 4];
                let (quads, rest) = x.as_chunks::<4>();
                for quad in quads {
                    for (table, v) in tables.iter_mut().zip(quad) {
                        table[usize::from(v >> 2)] += 1;
                    }
                }
                rest.iter()
                    .for_each(|v| tables[0][usize::from(v >> 2)] += 1);
                for table in tables {
                    counts.iter_mut().zip(table).for_each(|(c, t)| *c += t);
                }
            })
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&bd)?, &bins, 0.0))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Range {
    lo: f32,
    hi: f32,
}
// SAFETY: as the kernel declares it.
unsafe impl DeviceRepr for Range {}

fn hist512(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 5_000_017usize;
    let f = gpu.kernel(name)?;
    let x = noise(n, 1);
    let xd = gpu.stream.clone_htod(&x)?;
    let mut bd = gpu.stream.alloc_zeros::<u32>(512)?;
    let mut bins = vec![];
    // A power of two of bins a unit: scaling is exact, as fused as it may be.
    let range = Range { lo: -0.5, hi: 0.5 };
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut bd)?;
            let (n, b) = (n as i32, 512i32);
            let mut config = line(128, 512);
            config.shared_mem_bytes = 2048;
            launch!(gpu, f, config, &xd, &n, &range, &b, &mut bd);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let Range { lo, hi } = black_box(range);
            let scale = 512.0 / (hi - lo);
            bins = count_all(&x, 512, |counts, x| {
                // Those outside go to the first and the last, without a branch.
                let mut table = [0u32; 514];
                for &v in x {
                    let bin = ((v - lo) * scale + 1.0).clamp(0.0, 513.0);
                    table[(bin as u32 as usize).min(513)] += 1;
                }
                counts
                    .iter_mut()
                    .zip(&table[1..])
                    .for_each(|(c, t)| *c += t);
            })
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&bd)?, &bins, 0.0))
}

fn mix(mut h: u32) -> u32 {
    h ^= h >> 16;
    h = h.wrapping_mul(0x85eb_ca6b);
    h ^= h >> 13;
    h = h.wrapping_mul(0xc2b2_ae35);
    h ^ h >> 16
}

fn count(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 4_000_003usize;
    let f = gpu.kernel(name)?;
    // Some words are much more frequent than others.
    let keys: Vec<u32> = noise(n, 1)
        .into_iter()
        .map(|v| (v * v * v * 50_000.0) as i32 as u32)
        .collect();
    let kd = gpu.stream.clone_htod(&keys)?;
    let mut bd = gpu.stream.alloc_zeros::<u32>(4096)?;
    let mut bins = vec![];
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut bd)?;
            launch!(gpu, f, gpu.cover(n, 256), &kd, &n, &mut bd);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            bins = count_all(black_box(&keys[..]), 4096, |counts, keys| {
                for &key in keys {
                    counts[mix(key) as usize & 4095] += 1;
                }
            })
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&bd)?, &bins, 0.0))
}
