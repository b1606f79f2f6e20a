//! Reductions, norms and softmax.

use std::hint::black_box;

use cudarc::driver::PushKernelArg;
use rayon::prelude::*;

use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("dot_product", dot),
    ("reduce_unrolled", unrolled),
    ("max_redux", max_redux),
    ("argmax_pairs", argmax),
    ("gemv_warp", gemv),
    ("softmax_warp_online", softmax_warp),
    ("softmax_f4_128", softmax_block),
    ("rms_norm", rms_norm),
    ("layer_norm_tree", layer_norm),
];

pub fn dot_of(a: &[f32], b: &[f32]) -> f32 {
    let ((ac, ar), (bc, br)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    let mut sums = [0.0f32; 16];
    for (a, b) in ac.iter().zip(bc) {
        for i in 0..16 {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum::<f32>() + ar.iter().zip(br).map(|(a, b)| a * b).sum::<f32>()
}

fn fold16(v: &[f32], zero: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
    let (chunks, rest) = v.as_chunks::<16>();
    let mut acc = [zero; 16];
    for c in chunks {
        for i in 0..16 {
            acc[i] = f(acc[i], c[i]);
        }
    }
    let mut all = zero;
    for a in acc {
        all = if zero == 0.0 { all + a } else { f(all, a) };
    }
    rest.iter().fold(all, |a, &x| f(a, x))
}

fn sum(v: &[f32]) -> f32 {
    fold16(v, 0.0, |a, x| a + x)
}

fn largest(v: &[f32]) -> f32 {
    fold16(v, f32::NEG_INFINITY, |a, x| if a > x { a } else { x })
}

fn dot(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n: usize = 10_000_019;
    let f = gpu.kernel("dot_product")?;
    let (a, b) = (noise(n, 1), between(0.0, 1.0, n, 2));
    let (ad, bd) = (gpu.stream.clone_htod(&a)?, gpu.stream.clone_htod(&b)?);
    let mut rd = gpu.stream.alloc_zeros::<f32>(1)?;
    let mut r = 0.0f32;
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut rd)?;
            let n = n as i32;
            launch!(gpu, f, line(528, 256), &ad, &bd, &mut rd, &n);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let (a, b) = (black_box(&a[..]), black_box(&b[..]));
            r = a
                .par_chunks(1 << 14)
                .zip(b.par_chunks(1 << 14))
                .map(|(a, b)| dot_of(a, b))
                .sum();
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&rd)?, &[r], 2e-2))
}

fn unrolled(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n: usize = 12_345_678;
    let f = gpu.kernel("reduce_unrolled")?;
    let a = between(0.0, 1.0, n, 1);
    let ad = gpu.stream.clone_htod(&a)?;
    let blocks = 512usize;
    let (mut partial, mut rd) = (
        gpu.stream.alloc_zeros::<f32>(blocks)?,
        gpu.stream.alloc_zeros::<f32>(1)?,
    );
    let mut r = 0.0f32;
    let times = race(
        name,
        || {
            let (n, b) = (n as u32, blocks as u32);
            launch!(gpu, f, line(blocks, 256), &ad, &mut partial, &n);
            launch!(gpu, f, line(1, 256), &partial, &mut rd, &b);
            Ok(gpu.stream.synchronize()?)
        },
        || r = black_box(&a[..]).par_chunks(1 << 14).map(sum).sum(),
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&rd)?, &[r], 1e-4))
}

fn max_redux(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n: usize = 10_000_001;
    let f = gpu.kernel("max_redux")?;
    let a: Vec<i32> = words(5).take(n).map(|w| w as i32).collect();
    let ad = gpu.stream.clone_htod(&a)?;
    let mut rd = gpu.stream.clone_htod(&[i32::MIN])?;
    let mut r = 0;
    let times = race(
        name,
        || {
            let ni = n as i32;
            launch!(gpu, f, gpu.cover(n, 512), &ad, &mut rd, &ni);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            r = black_box(&a[..])
                .par_chunks(1 << 14)
                .map(|c| c.iter().copied().fold(i32::MIN, i32::max))
                .max()
                .unwrap();
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&rd)?, &[r], 0.0))
}

fn argmax(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n: usize = 10_000_003;
    let f = gpu.kernel("argmax_pairs")?;
    let a = noise(n, 1);
    let ad = gpu.stream.clone_htod(&a)?;
    let blocks = 400usize;
    let (mut pv, mut pi) = (
        gpu.stream.alloc_zeros::<f32>(blocks)?,
        gpu.stream.alloc_zeros::<i32>(blocks)?,
    );
    let (mut rv, mut ri) = (
        gpu.stream.alloc_zeros::<f32>(1)?,
        gpu.stream.alloc_zeros::<i32>(1)?,
    );
    let mut r = (0.0f32, 0usize);
    let times = race(
        name,
        || {
            let (n, b, none) = (n as i32, blocks as i32, 0u64);
            launch!(gpu, f, line(blocks, 256), &ad, &none, &mut pv, &mut pi, &n);
            launch!(gpu, f, line(1, 256), &pv, &pi, &mut rv, &mut ri, &b);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            // The largest of each chunk, then where it is in the chunk that has it.
            let a = black_box(&a[..]);
            let (chunk, top) = a
                .par_chunks(1 << 13)
                .enumerate()
                .map(|(i, c)| (i, largest(c)))
                .reduce(
                    || (usize::MAX, f32::NEG_INFINITY),
                    |x, y| {
                        if y.1 > x.1 || (y.1 == x.1 && y.0 < x.0) {
                            y
                        } else {
                            x
                        }
                    },
                );
            let start = chunk << 13;
            let at = a[start..].iter().position(|&v| v == top).unwrap();
            r = (top, start + at);
        },
    )?;
    let checked = check(&gpu.stream.clone_dtoh(&rv)?, &[r.0], 0.0)
        .and_then(|()| check(&gpu.stream.clone_dtoh(&ri)?, &[r.1 as i32], 0.0));
    times.print(checked)
}

fn gemv(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (4001usize, 2003usize);
    let f = gpu.kernel("gemv_warp")?;
    let (a, x) = (noise(rows * cols, 1), noise(cols, 2));
    let (ad, xd) = (gpu.stream.clone_htod(&a)?, gpu.stream.clone_htod(&x)?);
    let mut yd = gpu.stream.alloc_zeros::<f32>(rows)?;
    let mut y = vec![0.0f32; rows];
    let times = race(
        name,
        || {
            let (r, c) = (rows as i32, cols as i32);
            launch!(
                gpu,
                f,
                line((rows * 32).div_ceil(128), 128),
                &ad,
                &xd,
                &mut yd,
                &r,
                &c
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            y.par_iter_mut()
                .zip(black_box(&a[..]).par_chunks(cols))
                .with_min_len(16)
                .for_each(|(y, a)| *y = dot_of(a, &x))
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-3))
}

fn softmax_rust(out: &mut [f32], row: &[f32]) {
    let top = largest(row);
    for (out, v) in out.iter_mut().zip(row) {
        *out = (v - top).exp();
    }
    let scale = 1.0 / sum(out);
    out.iter_mut().for_each(|out| *out *= scale);
}

fn softmax_warp(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (2002usize, 1000usize);
    let f = gpu.kernel("softmax_warp_online")?;
    let a = between(-8.0, 8.0, rows * cols, 1);
    let ad = gpu.stream.clone_htod(&a)?;
    let mut od = gpu.stream.alloc_zeros::<f32>(rows * cols)?;
    let mut out = vec![0.0f32; rows * cols];
    let times = race(
        name,
        || {
            let (r, c) = (rows as i32, cols as i32);
            launch!(
                gpu,
                f,
                shape((rows.div_ceil(4), 1, 1), (32, 4, 1)),
                &ad,
                &mut od,
                &r,
                &c
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            out.par_chunks_mut(cols)
                .zip(black_box(&a[..]).par_chunks(cols))
                .with_min_len(16)
                .for_each(|(o, r)| softmax_rust(o, r));
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 1e-5))
}

fn softmax_block(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (1001usize, 2020usize);
    let f = gpu.kernel("softmax_f4_128")?;
    let a = between(-8.0, 8.0, rows * cols, 1);
    let ad = gpu.stream.clone_htod(&a)?;
    let mut od = gpu.stream.alloc_zeros::<f32>(rows * cols)?;
    let mut out = vec![0.0f32; rows * cols];
    let times = race(
        name,
        || {
            let c = cols as i32 / 4;
            launch!(gpu, f, line(rows, 128), &ad, &mut od, &c);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            out.par_chunks_mut(cols)
                .zip(black_box(&a[..]).par_chunks(cols))
                .with_min_len(16)
                .for_each(|(o, r)| softmax_rust(o, r));
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 1e-5))
}

fn rms_norm(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (4000usize, 1100usize);
    let f = gpu.kernel("rms_norm")?;
    let (a, w) = (noise(rows * cols, 1), noise(cols, 2));
    let (ad, wd) = (gpu.stream.clone_htod(&a)?, gpu.stream.clone_htod(&w)?);
    let mut od = gpu.stream.alloc_zeros::<f32>(rows * cols)?;
    let mut out = vec![0.0f32; rows * cols];
    let eps = 1e-6f32;
    let times = race(
        name,
        || {
            let c = cols as i32;
            launch!(gpu, f, line(rows, 256), &ad, &wd, &mut od, &c, &eps);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            out.par_chunks_mut(cols)
                .zip(black_box(&a[..]).par_chunks(cols))
                .with_min_len(16)
                .for_each(|(out, row)| {
                    let scale = 1.0 / (dot_of(row, row) / cols as f32 + eps).sqrt();
                    for ((out, v), w) in out.iter_mut().zip(row).zip(&w) {
                        *out = v * scale * w;
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 1e-4))
}

fn layer_norm(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (5001usize, 768usize);
    let f = gpu.kernel("layer_norm_tree")?;
    let (a, g, b) = (noise(rows * cols, 1), noise(cols, 2), noise(cols, 3));
    let (ad, gd, bd) = (
        gpu.stream.clone_htod(&a)?,
        gpu.stream.clone_htod(&g)?,
        gpu.stream.clone_htod(&b)?,
    );
    let mut od = gpu.stream.alloc_zeros::<f32>(rows * cols)?;
    let mut out = vec![0.0f32; rows * cols];
    let eps = 1e-5f32;
    let times = race(
        name,
        || {
            let c = cols as i32;
            launch!(gpu, f, line(rows, 128), &ad, &gd, &bd, &mut od, &c, &eps);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            out.par_chunks_mut(cols)
                .zip(black_box(&a[..]).par_chunks(cols))
                .with_min_len(16)
                .for_each(|(out, row)| {
                    let mean = sum(row) / cols as f32;
                    let q = fold16(row, 0.0, |acc, x| acc + (x - mean) * (x - mean));
                    let inv = 1.0 / (q / cols as f32 + eps).sqrt();
                    for (((out, v), g), b) in out.iter_mut().zip(row).zip(&g).zip(&b) {
                        *out = (v - mean) * inv * g + b;
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 1e-4))
}
