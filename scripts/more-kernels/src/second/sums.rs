//! Sums, and sums of parts.

use std::hint::black_box;

use cudarc::driver::PushKernelArg;
use rayon::prelude::*;

use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("sum_last_block_128", |gpu, name| {
        last_block(gpu, name, 128, 600)
    }),
    ("sum_last_block_512", |gpu, name| {
        last_block(gpu, name, 512, 264)
    }),
    ("summary_f64", summary),
    ("segment_mean", segments),
];

/// Eight sums at a time, so that they vectorize.
pub fn total(v: &[f32]) -> f32 {
    let (chunks, rest) = v.as_chunks::<16>();
    let mut sums = [0.0f32; 16];
    for chunk in chunks {
        for (sum, v) in sums.iter_mut().zip(chunk) {
            *sum += v;
        }
    }
    sums.iter().chain(rest).sum()
}

fn last_block(gpu: &Gpu, name: &str, threads: usize, blocks: usize) -> Outcome<f64> {
    let n = 12_000_007usize;
    let f = gpu.kernel(name)?;
    let x = between(0.0, 1.0, n, 1);
    let xd = gpu.stream.clone_htod(&x)?;
    let mut partial = gpu.stream.alloc_zeros::<f32>(blocks)?;
    let mut ticket = gpu.stream.alloc_zeros::<u32>(1)?;
    let mut sum_d = gpu.stream.alloc_zeros::<f32>(1)?;
    let mut sum = 0.0f32;
    let times = race(
        name,
        || {
            let config = line(blocks, threads);
            launch!(
                gpu,
                f,
                config,
                &xd,
                &n,
                &mut partial,
                &mut ticket,
                &mut sum_d
            );
            Ok(gpu.stream.synchronize()?)
        },
        || sum = black_box(&x[..]).par_chunks(1 << 14).map(total).sum(),
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&sum_d)?, &[sum], 1e-4))
}

fn summary(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 4_000_011usize;
    let (f, last) = (gpu.kernel(name)?, gpu.kernel("summary_f64_final")?);
    let x = noise64(n, 1);
    let xd = gpu.stream.clone_htod(&x)?;
    let blocks = 320usize;
    let mut partial = gpu.stream.alloc_zeros::<f64>(3 * blocks)?;
    let mut result = gpu.stream.alloc_zeros::<f64>(3)?;
    let mut want = [0.0f64; 3];
    let times = race(
        name,
        || {
            let (n, b) = (n as i32, blocks as i32);
            let mut config = line(blocks, 256);
            config.shared_mem_bytes = 256 * 24;
            launch!(gpu, f, config, &xd, &n, &mut partial);
            config.grid_dim.0 = 1;
            launch!(gpu, last, config, &partial, &b, &mut result);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            want = black_box(&x[..])
                .par_chunks(1 << 13)
                .map(|x| {
                    let (chunks, rest) = x.as_chunks::<8>();
                    let (mut lo, mut hi) = ([f64::MAX; 8], [f64::MIN; 8]);
                    let mut sum = [0.0; 8];
                    for c in chunks {
                        for i in 0..8 {
                            lo[i] = if c[i] < lo[i] { c[i] } else { lo[i] };
                            hi[i] = if c[i] > hi[i] { c[i] } else { hi[i] };
                            sum[i] += c[i];
                        }
                    }
                    let lo = lo.iter().chain(rest).copied().fold(f64::MAX, f64::min);
                    let hi = hi.iter().chain(rest).copied().fold(f64::MIN, f64::max);
                    [lo, hi, sum.iter().chain(rest).sum()]
                })
                .reduce(
                    || [f64::MAX, f64::MIN, 0.0],
                    |a, b| [a[0].min(b[0]), a[1].max(b[1]), a[2] + b[2]],
                )
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&result)?, &want, 1e-9))
}

fn segments(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let count = 8003usize;
    let f = gpu.kernel(name)?;
    let mut offsets = vec![0i32];
    for (i, length) in below(1600, count, 1).into_iter().enumerate() {
        let length = if i % 50 == 7 { 0 } else { length };
        offsets.push(offsets[i] + length);
    }
    let x = noise(offsets[count] as usize, 2);
    let (xd, od) = (gpu.stream.clone_htod(&x)?, gpu.stream.clone_htod(&offsets)?);
    let mut md = gpu.stream.alloc_zeros::<f32>(count)?;
    let mut means = vec![0.0f32; count];
    let times = race(
        name,
        || {
            launch!(gpu, f, line(count, 128), &xd, &od, &mut md);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let x = black_box(&x[..]);
            means
                .par_iter_mut()
                .zip(offsets.par_windows(2))
                .with_min_len(16)
                .for_each(|(mean, ends)| {
                    let part = &x[ends[0] as usize..ends[1] as usize];
                    *mean = if part.is_empty() {
                        0.0
                    } else {
                        total(part) / part.len() as f32
                    };
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&md)?, &means, 1e-4))
}
