//! Scans, compaction and histograms.

use std::hint::black_box;

use cudarc::driver::DevicePtr;
use cudarc::driver::{CudaFunction, CudaSlice, PushKernelArg};
use rayon::prelude::*;

use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("scan_blelloch", |gpu, name| {
        scan(gpu, name, "scan_blelloch", 512, 256, 2_000_001)
    }),
    ("scan_hillis_steele", |gpu, name| {
        scan(gpu, name, "scan_hillis_steele", 512, 512, 2_000_001)
    }),
    ("scan_warp_shuffle", |gpu, name| {
        scan(gpu, name, "scan_warp_shuffle", 1024, 1024, 4_000_001)
    }),
    ("compact_ballot", compact),
    ("hist256_packed", hist256),
    ("hist16_warps", hist16),
    ("hist_global", hist_global),
    ("radix_count", radix),
];

/// One level: blocks scan, their sums are scanned by the next level, then added.
fn level(
    gpu: &Gpu,
    [f, add]: [&CudaFunction; 2],
    data: &mut [CudaSlice<i32>],
    sizes: &[usize],
    input: Option<&CudaSlice<i32>>,
    per: usize,
    threads: usize,
) -> Outcome<()> {
    // data[0] is the output, data[1] the sums, scanned in place.
    let n = sizes[0];
    let blocks = n.div_ceil(per);
    let ni = n as i32;
    {
        let (out, rest) = data.split_first_mut().unwrap();
        match input {
            Some(input) => launch!(
                gpu,
                f,
                line(blocks, threads),
                input,
                &mut *out,
                &mut rest[0],
                &ni
            ),
            None => {
                // In place: each block reads its part before it writes it.
                let alias = out.device_ptr(out.stream()).0;
                launch!(
                    gpu,
                    f,
                    line(blocks, threads),
                    &alias,
                    &mut *out,
                    &mut rest[0],
                    &ni
                )
            }
        }
        if blocks > 1 {
            level(gpu, [f, add], rest, &sizes[1..], None, per, threads)?;
            let per = per as i32;
            launch!(gpu, add, line(blocks, 256), &mut *out, &rest[0], &ni, &per);
        }
    }
    Ok(())
}

fn scan(gpu: &Gpu, name: &str, kernel: &str, per: usize, threads: usize, n: usize) -> Outcome<f64> {
    let (f, add) = (gpu.kernel(kernel)?, gpu.kernel("add_block_offsets")?);
    let a = below(1000, n, 1);
    let ad = gpu.stream.clone_htod(&a)?;
    let mut sizes = vec![n];
    while *sizes.last().unwrap() > per {
        sizes.push(sizes.last().unwrap().div_ceil(per));
    }
    let mut data: Vec<CudaSlice<i32>> = sizes
        .iter()
        .map(|&s| gpu.stream.alloc_zeros::<i32>(s))
        .collect::<Result<_, _>>()?;
    data.push(gpu.stream.alloc_zeros::<i32>(1)?);
    let mut out = vec![0i32; n];
    let times = race(
        name,
        || {
            level(gpu, [&f, &add], &mut data, &sizes, Some(&ad), per, threads)?;
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let a = black_box(&a[..]);
            let mut before: Vec<i32> = a
                .par_chunks(1 << 14)
                .map(|c| c.iter().fold(0i32, |s, &v| s.wrapping_add(v)))
                .collect();
            let mut total = 0i32;
            for sum in &mut before {
                total = total.wrapping_add(std::mem::replace(sum, total));
            }
            out.par_chunks_mut(1 << 14)
                .zip(a.par_chunks(1 << 14))
                .zip(before)
                .for_each(|((out, c), mut sum)| {
                    for (out, &v) in out.iter_mut().zip(c) {
                        *out = sum;
                        sum = sum.wrapping_add(v);
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&data[0])?, &out, 0.0))
}

fn compact(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 3_000_005usize;
    let f = gpu.kernel("compact_ballot")?;
    let a = noise(n, 1);
    let ad = gpu.stream.clone_htod(&a)?;
    let mut od = gpu.stream.alloc_zeros::<f32>(n)?;
    let mut cd = gpu.stream.alloc_zeros::<i32>(1)?;
    let threshold = 0.3f32;
    let mut out: Vec<f32> = Vec::new();
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut cd)?;
            let ni = n as i32;
            launch!(
                gpu,
                f,
                gpu.cover(n, 256),
                &ad,
                &mut od,
                &mut cd,
                &ni,
                &threshold
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let parts: Vec<Vec<f32>> = black_box(&a[..])
                .par_chunks(1 << 14)
                .map(|c| {
                    // Without a branch that nobody can foresee.
                    let (mut kept, mut n) = (vec![0.0f32; c.len()], 0);
                    for &v in c {
                        kept[n] = v;
                        n += usize::from(v > threshold);
                    }
                    kept.truncate(n);
                    kept
                })
                .collect();
            out.clear();
            for p in &parts {
                out.extend_from_slice(p);
            }
        },
    )?;
    let count = gpu.stream.clone_dtoh(&cd)?[0] as usize;
    let mut got = gpu.stream.clone_dtoh(&od)?;
    got.truncate(count);
    got.sort_by(f32::total_cmp);
    out.sort_by(f32::total_cmp);
    times.print(check(&got, &out, 0.0))
}

fn bins_of<T: Sync, const N: usize>(input: &[T], bin: impl Fn(&T) -> usize + Sync) -> [u32; N] {
    input
        .par_chunks(1 << 16)
        .fold(
            || [0u32; N],
            |mut bins, chunk| {
                for v in chunk {
                    bins[bin(v)] += 1;
                }
                bins
            },
        )
        .reduce(
            || [0u32; N],
            |mut all, bins| {
                all.iter_mut().zip(bins).for_each(|(a, b)| *a += b);
                all
            },
        )
}

fn hist256(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 8_000_004usize;
    let f = gpu.kernel("hist256_packed")?;
    let a: Vec<u8> = words(1)
        .take(n)
        .map(|w| (((w & 0xff) * (w >> 8 & 0xff)) >> 8) as u8)
        .collect();
    let ad = gpu.stream.clone_htod(&a)?;
    let mut bd = gpu.stream.alloc_zeros::<u32>(256)?;
    let mut bins = [0u32; 256];
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut bd)?;
            let w = n as i32 / 4;
            launch!(gpu, f, line(264, 256), &ad, &mut bd, &w);
            Ok(gpu.stream.synchronize()?)
        },
        || bins = bins_of(black_box(&a), |&b| usize::from(b)),
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&bd)?, &bins, 0.0))
}

fn hist16(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 4_000_003usize;
    let f = gpu.kernel("hist16_warps")?;
    let a = between(0.0, 1.0, n, 1);
    let ad = gpu.stream.clone_htod(&a)?;
    let mut bd = gpu.stream.alloc_zeros::<u32>(16)?;
    let mut bins = [0u32; 16];
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut bd)?;
            let ni = n as i32;
            launch!(gpu, f, line(200, 256), &ad, &mut bd, &ni);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            bins = bins_of(black_box(&a), |&v| {
                ((v * 16.0) as i32).clamp(0, 15) as usize
            })
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&bd)?, &bins, 0.0))
}

fn hist_global(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 2_000_003usize;
    let f = gpu.kernel("hist_global")?;
    let a: Vec<u32> = words(1).take(n).map(|w| w as u32).collect();
    let ad = gpu.stream.clone_htod(&a)?;
    let mut bd = gpu.stream.alloc_zeros::<u32>(1024)?;
    let mut bins = [0u32; 1024];
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut bd)?;
            let ni = n as i32;
            launch!(gpu, f, gpu.cover(n, 256), &ad, &mut bd, &ni);
            Ok(gpu.stream.synchronize()?)
        },
        || bins = bins_of(black_box(&a), |&v| (v >> 22) as usize),
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&bd)?, &bins, 0.0))
}

fn radix(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 4_000_003usize;
    let f = gpu.kernel("radix_count")?;
    let a: Vec<u32> = words(1).take(n).map(|w| w as u32).collect();
    let ad = gpu.stream.clone_htod(&a)?;
    let blocks = n.div_ceil(1024);
    let mut cd = gpu.stream.alloc_zeros::<u32>(16 * blocks)?;
    let mut counts = vec![0u32; 16 * blocks];
    let shift = 8i32;
    let times = race(
        name,
        || {
            let ni = n as i32;
            launch!(gpu, f, line(blocks, 256), &ad, &mut cd, &ni, &shift);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let shift = black_box(shift);
            let each: Vec<[u32; 16]> = a
                .par_chunks(1024)
                .with_min_len(16)
                .map(|c| {
                    let mut bins = [0u32; 16];
                    for &k in c {
                        bins[(k >> shift & 15) as usize] += 1;
                    }
                    bins
                })
                .collect();
            for (digit, row) in counts.chunks_exact_mut(blocks).enumerate() {
                for (count, bins) in row.iter_mut().zip(&each) {
                    *count = bins[digit];
                }
            }
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&cd)?, &counts, 0.0))
}
