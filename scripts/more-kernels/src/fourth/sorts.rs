//! Sorts and scans of blocks.

use std::hint::black_box;

use cudarc::driver::PushKernelArg;
use rayon::prelude::*;

use super::{down, sync, up, zeros};
use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("radix_split_256", radix_split),
    ("odd_even_merge_512", odd_even_merge),
    ("bitonic_pairs_1024", bitonic_pairs),
    ("scan_pingpong_u64", scan_pingpong),
    ("scan_raking", scan_raking),
    ("segmented_scan_256", segmented_scan),
    ("radix_rank_128", radix_rank),
    ("cub_scan_tiles", cub_scan),
    ("cub_reduce_max", cub_reduce),
    ("cub_radix_sort", cub_sort),
    ("cub_histogram", cub_histogram),
];

fn keys(count: usize, seed: u64) -> Vec<u32> {
    words(seed).take(count).map(|w| (w >> 32) as u32).collect()
}

/// Where the keys of each digit start, from how many there are.
fn starts<const N: usize>(digits: impl Iterator<Item = usize>) -> [u32; N] {
    let mut counts = [0u32; N];
    digits.for_each(|d| counts[d] += 1);
    let mut sum = 0;
    counts.map(|count| {
        sum += count;
        sum - count
    })
}

fn radix_split(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (blocks, bits) = (300usize, 8i32);
    let f = gpu.kernel(name)?;
    let a = keys(blocks * 256, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<u32>(gpu, a.len())?);
    let mut out = vec![0u32; a.len()];
    let times = race(
        name,
        || {
            launch!(gpu, f, line(blocks, 256), &ad, &mut od, &bits);
            sync(gpu)
        },
        || {
            out.par_chunks_mut(256)
                .zip(black_box(&a[..]).par_chunks(256))
                .with_min_len(16)
                .for_each(|(out, keys)| {
                    let digits = keys.iter().map(|key| (key & 255) as usize);
                    let mut next = starts::<256>(digits);
                    for &key in keys {
                        let at = &mut next[(key & 255) as usize];
                        out[*at as usize] = key;
                        *at += 1;
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn odd_even_merge(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let blocks = 300usize;
    let f = gpu.kernel(name)?;
    let a = below(1 << 30, blocks * 512, 1);
    let mut ad = up(gpu, &a)?;
    let mut out = a.clone();
    let times = race(
        name,
        || {
            gpu.stream.memcpy_htod(&a, &mut ad)?;
            launch!(gpu, f, line(blocks, 256), &mut ad);
            sync(gpu)
        },
        || {
            out.par_chunks_mut(512)
                .zip(black_box(&a[..]).par_chunks(512))
                .for_each(|(out, keys)| {
                    out.copy_from_slice(keys);
                    out.sort_unstable();
                });
        },
    )?;
    times.print(check(&down(gpu, &ad)?, &out, 0.0))
}

fn bitonic_pairs(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let blocks = 120usize;
    let n = blocks * 1024;
    let f = gpu.kernel(name)?;
    let a: Vec<u32> = keys(n, 1)
        .into_iter()
        .zip((0..1024).cycle())
        .map(|(key, i)| key << 10 | i)
        .collect();
    let b = keys(n, 2);
    let (mut ad, mut bd) = (up(gpu, &a)?, up(gpu, &b)?);
    let (mut keys, mut values) = (a.clone(), b.clone());
    let times = race(
        name,
        || {
            gpu.stream.memcpy_htod(&a, &mut ad)?;
            gpu.stream.memcpy_htod(&b, &mut bd)?;
            launch!(gpu, f, line(blocks, 512), &mut ad, &mut bd);
            sync(gpu)
        },
        || {
            let (a, b) = (black_box(&a[..]), &b[..]);
            keys.par_chunks_mut(1024)
                .zip(values.par_chunks_mut(1024))
                .zip(a.par_chunks(1024).zip(b.par_chunks(1024)))
                .enumerate()
                .for_each(|(i, ((keys, values), (a, b)))| {
                    let mut pairs: Vec<u64> = a
                        .iter()
                        .zip(b)
                        .map(|(&a, &b)| (a as u64) << 32 | b as u64)
                        .collect();
                    pairs.sort_unstable();
                    if i % 2 == 1 {
                        pairs.reverse();
                    }
                    for ((key, value), pair) in keys.iter_mut().zip(values).zip(pairs) {
                        (*key, *value) = ((pair >> 32) as u32, pair as u32);
                    }
                });
        },
    )?;
    let checked = check(&down(gpu, &ad)?, &keys, 0.0);
    times.print(checked.and(check(&down(gpu, &bd)?, &values, 0.0)))
}

fn scan_pingpong(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, n) = (700usize, 384usize);
    let f = gpu.kernel(name)?;
    let a: Vec<u64> = words(1).take(rows * n).map(|w| w >> 24).collect();
    let (ad, mut od) = (up(gpu, &a)?, zeros::<u64>(gpu, rows * n)?);
    let mut out = vec![0u64; rows * n];
    let mut config = line(rows, n);
    config.shared_mem_bytes = n as u32 * 16;
    let times = race(
        name,
        || {
            launch!(gpu, f, config, &ad, &mut od);
            sync(gpu)
        },
        || {
            out.par_chunks_mut(n)
                .zip(black_box(&a[..]).par_chunks(n))
                .with_min_len(16)
                .for_each(|(out, values)| {
                    let mut sum = 0;
                    for (out, v) in out.iter_mut().zip(values) {
                        sum += v;
                        *out = sum;
                    }
                });
        },
    )?;
    let same = down(gpu, &od)? == out;
    times.print(same.then_some(()).ok_or_else(|| "sums differ".into()))
}

fn scans(gpu: &Gpu, name: &str, tile: usize, threads: usize, blocks: usize) -> Outcome<f64> {
    let f = gpu.kernel(name)?;
    let a = below(1000, blocks * tile, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<i32>(gpu, a.len())?);
    let mut out = vec![0i32; a.len()];
    let times = race(
        name,
        || {
            launch!(gpu, f, line(blocks, threads), &ad, &mut od);
            sync(gpu)
        },
        || {
            out.par_chunks_mut(tile)
                .zip(black_box(&a[..]).par_chunks(tile))
                .with_min_len(16)
                .for_each(|(out, values)| {
                    let mut sum = 0;
                    for (out, v) in out.iter_mut().zip(values) {
                        *out = sum;
                        sum += v;
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn scan_raking(gpu: &Gpu, name: &str) -> Outcome<f64> {
    scans(gpu, name, 512, 512, 2000)
}

fn cub_scan(gpu: &Gpu, name: &str) -> Outcome<f64> {
    scans(gpu, name, 1024, 128, 1000)
}

fn segmented_scan(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 700_003usize;
    let ni = n as i32;
    let f = gpu.kernel(name)?;
    let a = noise(n, 1);
    let heads: Vec<u8> = below(20, n, 2).iter().map(|&v| (v == 0) as u8).collect();
    let (ad, hd, mut od) = (up(gpu, &a)?, up(gpu, &heads)?, zeros::<f32>(gpu, n)?);
    let mut out = vec![0.0f32; n];
    let times = race(
        name,
        || {
            launch!(gpu, f, gpu.cover(n, 256), &ad, &hd, &mut od, &ni);
            sync(gpu)
        },
        || {
            out.par_chunks_mut(256)
                .zip(black_box(&a[..]).par_chunks(256))
                .zip(heads.par_chunks(256))
                .with_min_len(32)
                .for_each(|((out, values), heads)| {
                    let mut sum = 0.0;
                    for ((out, v), &head) in out.iter_mut().zip(values).zip(heads) {
                        sum = if head != 0 { *v } else { sum + v };
                        *out = sum;
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 1e-4))
}

fn radix_rank(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (blocks, shift) = (800usize, 12i32);
    let f = gpu.kernel(name)?;
    let a = keys(blocks * 512, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<i32>(gpu, a.len())?);
    let mut out = vec![0i32; a.len()];
    let times = race(
        name,
        || {
            launch!(gpu, f, line(blocks, 128), &ad, &mut od, &shift);
            sync(gpu)
        },
        || {
            out.par_chunks_mut(512)
                .zip(black_box(&a[..]).par_chunks(512))
                .with_min_len(16)
                .for_each(|(out, keys)| {
                    let digit = |key: &u32| (key >> shift & 15) as usize;
                    let mut next = starts::<16>(keys.iter().map(digit));
                    for (out, key) in out.iter_mut().zip(keys) {
                        let at = &mut next[digit(key)];
                        *out = *at as i32;
                        *at += 1;
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn cub_reduce(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (700usize, 1501usize);
    let ci = cols as i32;
    let f = gpu.kernel(name)?;
    let a = noise(rows * cols, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<f32>(gpu, rows)?);
    let mut out = vec![0.0f32; rows];
    let times = race(
        name,
        || {
            launch!(gpu, f, line(rows, 256), &ad, &mut od, &ci);
            sync(gpu)
        },
        || {
            out.par_iter_mut()
                .zip(black_box(&a[..]).par_chunks(cols))
                .with_min_len(16)
                .for_each(|(out, row)| {
                    // The greatest of all first, which is done for many at a time.
                    let mut most = [f32::NEG_INFINITY; 16];
                    let (parts, rest) = row.as_chunks::<16>();
                    for part in parts {
                        for (most, &v) in most.iter_mut().zip(part) {
                            *most = if v > *most { v } else { *most };
                        }
                    }
                    let most = most.iter().chain(rest).copied().fold(f32::MIN, f32::max);
                    *out = row.iter().position(|&v| v == most).unwrap() as f32;
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn cub_sort(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let blocks = 200usize;
    let f = gpu.kernel(name)?;
    let a = keys(blocks * 512, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<u32>(gpu, a.len())?);
    let mut out = a.clone();
    let times = race(
        name,
        || {
            launch!(gpu, f, line(blocks, 128), &ad, &mut od);
            sync(gpu)
        },
        || {
            out.par_chunks_mut(512)
                .zip(black_box(&a[..]).par_chunks(512))
                .for_each(|(out, keys)| {
                    out.copy_from_slice(keys);
                    out.sort_unstable();
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn cub_histogram(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let blocks = 1000usize;
    let f = gpu.kernel(name)?;
    let a: Vec<u8> = below(256, blocks * 2048, 1)
        .iter()
        .map(|&v| (v * v / 256) as u8)
        .collect();
    let (ad, mut bd) = (up(gpu, &a)?, zeros::<u32>(gpu, 256)?);
    let mut bins = [0u32; 256];
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut bd)?;
            launch!(gpu, f, line(blocks, 128), &ad, &mut bd);
            sync(gpu)
        },
        || {
            bins = black_box(&a[..])
                .par_chunks(1 << 17)
                .map(|values| {
                    let mut bins = [[0u32; 256]; 2];
                    let (pairs, rest) = values.as_chunks::<2>();
                    for &[a, b] in pairs {
                        bins[0][a as usize] += 1;
                        bins[1][b as usize] += 1;
                    }
                    rest.iter().for_each(|&v| bins[0][v as usize] += 1);
                    std::array::from_fn(|i| bins[0][i] + bins[1][i])
                })
                .reduce(|| [0; 256], |a, b| std::array::from_fn(|i| a[i] + b[i]));
        },
    )?;
    times.print(check(&down(gpu, &bd)?, &bins, 0.0))
}
