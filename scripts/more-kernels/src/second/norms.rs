//! Norms of layers, batches and groups.

use std::hint::black_box;

use cudarc::driver::{DeviceRepr, PushKernelArg};
use rayon::prelude::*;

use super::sums::total;
use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("layer_norm_welford", layer_norm),
    ("batch_norm_stats", |gpu, name| batch_norm(gpu, name, false)),
    ("batch_norm_train", |gpu, name| batch_norm(gpu, name, true)),
    ("group_norm_1024", group_norm),
    ("rms_norm_bf16", rms_norm),
];

#[repr(C)]
#[derive(Clone, Copy)]
struct ImageShape {
    n: i32,
    c: i32,
    h: i32,
    w: i32,
}
// SAFETY: as the kernels declare it.
unsafe impl DeviceRepr for ImageShape {}

/// The sum of squares of what these are away from `mean`.
fn squares(v: &[f32], mean: f32) -> f32 {
    let (chunks, rest) = v.as_chunks::<16>();
    let mut sums = [0.0f32; 16];
    for chunk in chunks {
        for (sum, v) in sums.iter_mut().zip(chunk) {
            *sum += (v - mean) * (v - mean);
        }
    }
    let rest = rest.iter().map(|v| (v - mean) * (v - mean));
    sums.iter().sum::<f32>() + rest.sum::<f32>()
}

fn layer_norm(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (3001usize, 1020usize);
    let f = gpu.kernel(name)?;
    let (x, gamma, beta) = (
        between(1.0, 4.0, rows * cols, 1),
        noise(cols, 2),
        noise(cols, 3),
    );
    let xd = gpu.stream.clone_htod(&x)?;
    let (gd, bd) = (
        gpu.stream.clone_htod(&gamma)?,
        gpu.stream.clone_htod(&beta)?,
    );
    let mut yd = gpu.stream.alloc_zeros::<f32>(rows * cols)?;
    let mut y = vec![0.0f32; rows * cols];
    let eps = 1e-5f32;
    let times = race(
        name,
        || {
            let vectors = cols as i32 / 4;
            launch!(
                gpu,
                f,
                line(rows, 128),
                &xd,
                &gd,
                &bd,
                &mut yd,
                &vectors,
                &eps
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            y.par_chunks_exact_mut(cols)
                .zip(black_box(&x[..]).par_chunks_exact(cols))
                .with_min_len(16)
                .for_each(|(y, x)| {
                    let mean = total(x) / cols as f32;
                    let scale = 1.0 / (squares(x, mean) / cols as f32 + eps).sqrt();
                    for (((y, x), gamma), beta) in y.iter_mut().zip(x).zip(&gamma).zip(&beta) {
                        *y = (x - mean) * scale * gamma + beta;
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-4))
}

fn batch_norm(gpu: &Gpu, name: &str, apply: bool) -> Outcome<f64> {
    let shape4 = ImageShape {
        n: 30,
        c: 35,
        h: 56,
        w: 53,
    };
    let (images, channels, plane) = (30usize, 35usize, 56 * 53usize);
    let size = images * channels * plane;
    let stats = gpu.kernel("batch_norm_stats")?;
    let norm = gpu.kernel("batch_norm_apply")?;
    let x = noise(size, 1);
    let (weight, bias) = (noise(channels, 2), noise(channels, 3));
    let xd = gpu.stream.clone_htod(&x)?;
    let (wd, bd) = (
        gpu.stream.clone_htod(&weight)?,
        gpu.stream.clone_htod(&bias)?,
    );
    let mut md = gpu.stream.alloc_zeros::<f32>(channels)?;
    let mut sd = gpu.stream.alloc_zeros::<f32>(channels)?;
    let mut yd = gpu.stream.alloc_zeros::<f32>(size)?;
    let mut y = vec![0.0f32; size];
    let mut found = vec![[0.0f32; 2]; channels];
    let eps = 1e-5f32;
    let times = race(
        name,
        || {
            let config = shape((channels, 1, 1), (32, 16, 1));
            launch!(gpu, stats, config, &xd, &mut md, &mut sd, &shape4, &eps);
            if apply {
                let config = shape((plane.div_ceil(256), channels, images), (256, 1, 1));
                launch!(gpu, norm, config, &xd, &mut yd, &md, &sd, &wd, &bd, &shape4);
            }
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let x = black_box(&x[..]);
            found.par_iter_mut().enumerate().for_each(|(c, found)| {
                let (mut sum, mut square) = (0.0, 0.0);
                for image in x.chunks_exact(channels * plane) {
                    let part = &image[c * plane..][..plane];
                    sum += total(part);
                    square += squares(part, 0.0);
                }
                let count = (images * plane) as f32;
                let mean = sum / count;
                *found = [mean, 1.0 / (square / count - mean * mean + eps).sqrt()];
            });
            if apply {
                y.par_chunks_exact_mut(plane)
                    .zip(x.par_chunks_exact(plane))
                    .enumerate()
                    .for_each(|(i, (y, x))| {
                        let c = i % channels;
                        let ([mean, scale], weight, bias) = (found[c], weight[c], bias[c]);
                        for (y, x) in y.iter_mut().zip(x) {
                            *y = (x - mean) * scale * weight + bias;
                        }
                    });
            }
        },
    )?;
    let (mean, scale): (Vec<f32>, Vec<f32>) = found.iter().map(|f| (f[0], f[1])).unzip();
    let checked = check(&gpu.stream.clone_dtoh(&md)?, &mean, 1e-5)
        .and_then(|()| check(&gpu.stream.clone_dtoh(&sd)?, &scale, 1e-4))
        .and_then(|()| check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-4));
    times.print(checked)
}

fn group_norm(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let shape4 = ImageShape {
        n: 16,
        c: 64,
        h: 48,
        w: 49,
    };
    let (images, channels, plane, groups) = (16usize, 64usize, 48 * 49usize, 8usize);
    let size = images * channels * plane;
    let f = gpu.kernel(name)?;
    let x = between(0.0, 3.0, size, 1);
    let (weight, bias) = (noise(channels, 2), noise(channels, 3));
    let xd = gpu.stream.clone_htod(&x)?;
    let (wd, bd) = (
        gpu.stream.clone_htod(&weight)?,
        gpu.stream.clone_htod(&bias)?,
    );
    let mut yd = gpu.stream.alloc_zeros::<f32>(size)?;
    let mut y = vec![0.0f32; size];
    let eps = 1e-5f32;
    let times = race(
        name,
        || {
            let g = groups as i32;
            launch!(
                gpu,
                f,
                line(images * groups, 1024),
                &xd,
                &wd,
                &bd,
                &mut yd,
                &shape4,
                &g,
                &eps
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let part = channels / groups * plane;
            y.par_chunks_exact_mut(part)
                .zip(black_box(&x[..]).par_chunks_exact(part))
                .enumerate()
                .for_each(|(i, (y, x))| {
                    let mean = total(x) / part as f32;
                    let scale = 1.0 / (squares(x, mean) / part as f32 + eps).sqrt();
                    let first = i % groups * (channels / groups);
                    for (c, (y, x)) in y
                        .chunks_exact_mut(plane)
                        .zip(x.chunks_exact(plane))
                        .enumerate()
                    {
                        let (weight, bias) = (weight[first + c], bias[first + c]);
                        for (y, x) in y.iter_mut().zip(x) {
                            *y = (x - mean) * scale * weight + bias;
                        }
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-4))
}

fn from_bf16(v: u16) -> f32 {
    f32::from_bits(u32::from(v) << 16)
}

fn to_bf16(v: f32) -> u16 {
    let bits = v.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

fn rms_norm(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (5003usize, 770usize);
    let f = gpu.kernel(name)?;
    let some = |count, seed| -> Vec<u16> { noise(count, seed).into_iter().map(to_bf16).collect() };
    let (x, weight) = (some(rows * cols, 1), some(cols, 2));
    let (xd, wd) = (gpu.stream.clone_htod(&x)?, gpu.stream.clone_htod(&weight)?);
    let mut yd = gpu.stream.alloc_zeros::<u16>(rows * cols)?;
    let mut y = vec![0u16; rows * cols];
    let eps = 1e-6f32;
    let times = race(
        name,
        || {
            let (r, c) = (rows as u32, cols as u32);
            let config = shape((rows.div_ceil(8), 1, 1), (32, 8, 1));
            launch!(gpu, f, config, &xd, &wd, &mut yd, &r, &c, &eps);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            y.par_chunks_exact_mut(cols)
                .zip(black_box(&x[..]).par_chunks_exact(cols))
                .with_min_len(16)
                .for_each(|(y, x)| {
                    let (chunks, rest) = x.as_chunks::<16>();
                    let mut sums = [0.0f32; 16];
                    for chunk in chunks {
                        for (sum, &v) in sums.iter_mut().zip(chunk) {
                            *sum += from_bf16(v) * from_bf16(v);
                        }
                    }
                    let rest = rest.iter().map(|&v| from_bf16(v) * from_bf16(v));
                    let square = sums.iter().sum::<f32>() + rest.sum::<f32>();
                    let scale = 1.0 / (square / cols as f32 + eps).sqrt();
                    for ((y, &x), &weight) in y.iter_mut().zip(x).zip(&weight) {
                        *y = to_bf16(from_bf16(x) * scale * from_bf16(weight));
                    }
                });
        },
    )?;
    let wide = |v: Vec<u16>| -> Vec<f32> { v.into_iter().map(from_bf16).collect() };
    times.print(check(&wide(gpu.stream.clone_dtoh(&yd)?), &wide(y), 1e-2))
}
