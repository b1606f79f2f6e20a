//! Products of matrices and vectors, and a factorization.

use std::hint::black_box;

use cudarc::driver::PushKernelArg;
use rayon::prelude::*;

use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("gemm_naive", naive),
    ("gemm_tiled16", tiled),
    ("sgemm_8x4_db", blocked),
    ("gemv_block128", gemv),
    ("gemv_transposed", gemv_t),
    ("matmul4_batched", matmul4),
    ("cholesky16", cholesky),
];

/// 4 rows of A by a panel of 8 columns of B.
#[inline(never)]
fn piece(a: [&[f32]; 4], panel: &[[f32; 8]]) -> [[f32; 8]; 4] {
    let mut sums = [[0.0f32; 8]; 4];
    let [a0, a1, a2, a3] = a;
    for ((((b, a0), a1), a2), a3) in panel.iter().zip(a0).zip(a1).zip(a2).zip(a3) {
        for (sums, a) in sums.iter_mut().zip([a0, a1, a2, a3]) {
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum += a * b;
            }
        }
    }
    sums
}

/// `C = alpha * A * B + beta * C`.
fn product(a: &[f32], b: &[f32], c: &mut [f32], n: usize, k: usize, alpha: f32, beta: f32) {
    let panels: Vec<Vec<[f32; 8]>> = (0..n.div_ceil(8))
        .into_par_iter()
        .map(|p| {
            let columns = p * 8..(p * 8 + 8).min(n);
            b.chunks_exact(n)
                .map(|row| {
                    let mut part = [0.0; 8];
                    part[..columns.len()].copy_from_slice(&row[columns.clone()]);
                    part
                })
                .collect()
        })
        .collect();
    c.par_chunks_mut(32 * n).enumerate().for_each(|(tile, c)| {
        let rows = c.len() / n;
        for (p, panel) in panels.iter().enumerate() {
            let (column, width) = (p * 8, 8.min(n - p * 8));
            for r in (0..rows).step_by(4) {
                let row = |i: usize| &a[(tile * 32 + (r + i).min(rows - 1)) * k..][..k];
                let sums = piece(std::array::from_fn(row), panel);
                for (i, sums) in sums.iter().enumerate().take(rows - r) {
                    for (c, sum) in c[(r + i) * n + column..][..width].iter_mut().zip(sums) {
                        *c = alpha * sum + beta * *c;
                    }
                }
            }
        }
    });
}

fn naive(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (m, n, k) = (401usize, 389usize, 353usize);
    let f = gpu.kernel("gemm_naive")?;
    let (a, b) = (noise(m * k, 1), noise(k * n, 2));
    let (ad, bd) = (gpu.stream.clone_htod(&a)?, gpu.stream.clone_htod(&b)?);
    let mut cd = gpu.stream.alloc_zeros::<f32>(m * n)?;
    let mut c = vec![0.0f32; m * n];
    let times = race(
        name,
        || {
            let [mi, ni, ki] = [m, n, k].map(|v| v as i32);
            launch!(
                gpu,
                f,
                gpu.plane(n, m, 16, 16),
                &ad,
                &bd,
                &mut cd,
                &mi,
                &ni,
                &ki
            );
            Ok(gpu.stream.synchronize()?)
        },
        || product(black_box(&a), &b, &mut c, n, k, 1.0, 0.0),
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&cd)?, &c, 1e-3))
}

fn tiled(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (m, n, k) = (517usize, 499usize, 611usize);
    let f = gpu.kernel("gemm_tiled16")?;
    let (a, b) = (noise(m * k, 1), noise(k * n, 2));
    let (ad, bd) = (gpu.stream.clone_htod(&a)?, gpu.stream.clone_htod(&b)?);
    let mut cd = gpu.stream.alloc_zeros::<f32>(m * n)?;
    let mut c = vec![0.0f32; m * n];
    let (alpha, beta) = (1.5f32, 0.25f32);
    let times = race(
        name,
        || {
            let [mi, ni, ki] = [m, n, k].map(|v| v as i32);
            launch!(
                gpu,
                f,
                gpu.plane(n, m, 16, 16),
                &ad,
                &bd,
                &mut cd,
                &mi,
                &ni,
                &ki,
                &alpha,
                &beta
            );
            Ok(gpu.stream.synchronize()?)
        },
        || product(black_box(&a), &b, &mut c, n, k, alpha, beta),
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&cd)?, &c, 1e-3))
}

fn blocked(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (m, n, k) = (384usize, 640usize, 512usize);
    let f = gpu.kernel("sgemm_8x4_db")?;
    let (a, b) = (noise(m * k, 1), noise(k * n, 2));
    let (ad, bd) = (gpu.stream.clone_htod(&a)?, gpu.stream.clone_htod(&b)?);
    let mut cd = gpu.stream.alloc_zeros::<f32>(m * n)?;
    let mut c = vec![0.0f32; m * n];
    let times = race(
        name,
        || {
            let [mi, ni, ki] = [m, n, k].map(|v| v as i32);
            launch!(
                gpu,
                f,
                shape((n / 64, m / 128, 1), (256, 1, 1)),
                &mi,
                &ni,
                &ki,
                &ad,
                &bd,
                &mut cd
            );
            Ok(gpu.stream.synchronize()?)
        },
        || product(black_box(&a), &b, &mut c, n, k, 1.0, 0.0),
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&cd)?, &c, 1e-3))
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 16];
    let ((a, ra), (b, rb)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    for (a, b) in a.iter().zip(b) {
        for ((s, a), b) in sums.iter_mut().zip(a).zip(b) {
            *s += a * b;
        }
    }
    sums.iter().sum::<f32>() + ra.iter().zip(rb).map(|(a, b)| a * b).sum::<f32>()
}

fn gemv(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (2003usize, 2060usize);
    let f = gpu.kernel("gemv_block128")?;
    let (a, x) = (noise(rows * cols, 1), noise(cols, 2));
    let (ad, xd) = (gpu.stream.clone_htod(&a)?, gpu.stream.clone_htod(&x)?);
    let mut yd = gpu.stream.alloc_zeros::<f32>(rows)?;
    let mut y = vec![0.0f32; rows];
    let times = race(
        name,
        || {
            let c = cols as u32;
            launch!(gpu, f, line(rows, 128), &ad, &xd, &mut yd, &c);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            y.par_iter_mut()
                .zip(black_box(&a[..]).par_chunks_exact(cols))
                .with_min_len(32)
                .for_each(|(y, a)| *y = dot(a, &x));
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-3))
}

fn gemv_t(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols, slice) = (1999usize, 2050usize, 128usize);
    let f = gpu.kernel("gemv_transposed")?;
    let (a, x) = (noise(rows * cols, 1), noise(rows, 2));
    let (ad, xd) = (gpu.stream.clone_htod(&a)?, gpu.stream.clone_htod(&x)?);
    let mut yd = gpu.stream.alloc_zeros::<f32>(cols)?;
    let mut y = vec![0.0f32; cols];
    let config = shape((cols.div_ceil(256), rows.div_ceil(slice), 1), (256, 1, 1));
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut yd)?;
            let [r, c, s] = [rows, cols, slice].map(|v| v as i32);
            launch!(gpu, f, config, &ad, &xd, &mut yd, &r, &c, &s);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            y = black_box(&a[..])
                .par_chunks_exact(cols)
                .zip(&x)
                .with_min_len(128)
                .fold(
                    || vec![0.0f32; cols],
                    |mut y, (a, x)| {
                        y.iter_mut().zip(a).for_each(|(y, a)| *y += a * x);
                        y
                    },
                )
                .reduce_with(|mut y, z| {
                    y.iter_mut().zip(z).for_each(|(y, z)| *y += z);
                    y
                })
                .unwrap();
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-3))
}

fn matmul4(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let count = 60_001usize;
    let f = gpu.kernel("matmul4_batched")?;
    let (a, b) = (noise64(count * 16, 1), noise64(count * 16, 2));
    let (ad, bd) = (gpu.stream.clone_htod(&a)?, gpu.stream.clone_htod(&b)?);
    let mut cd = gpu.stream.alloc_zeros::<f64>(count * 16)?;
    let mut c = vec![0.0f64; count * 16];
    let times = race(
        name,
        || {
            launch!(gpu, f, gpu.cover(count, 128), &ad, &bd, &mut cd, &count);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            c.par_chunks_exact_mut(16)
                .zip(black_box(&a[..]).par_chunks_exact(16))
                .zip(b.par_chunks_exact(16))
                .with_min_len(1 << 10)
                .for_each(|((c, a), b)| {
                    let (c, a, b) = (
                        c.as_chunks_mut::<4>().0,
                        a.as_chunks::<4>().0,
                        b.as_chunks::<4>().0,
                    );
                    for (c, a) in c.iter_mut().zip(a) {
                        let mut sums = [0.0f64; 4];
                        for (a, b) in a.iter().zip(b) {
                            for (s, b) in sums.iter_mut().zip(b) {
                                *s += a * b;
                            }
                        }
                        *c = sums;
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&cd)?, &c, 1e-12))
}

fn cholesky(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let count = 6001usize;
    let f = gpu.kernel("cholesky16")?;
    // Symmetric, and the diagonal dominates.
    let mut a = noise(count * 256, 1);
    for m in a.chunks_exact_mut(256) {
        for i in 0..16 {
            for j in 0..i {
                m[j * 16 + i] = m[i * 16 + j];
            }
            m[i * 17] += 17.0;
        }
    }
    let ad = gpu.stream.clone_htod(&a)?;
    let mut od = gpu.stream.alloc_zeros::<f32>(count * 256)?;
    let mut out = vec![0.0f32; count * 256];
    let times = race(
        name,
        || {
            let n = 16i32;
            launch!(gpu, f, shape((count, 1, 1), (16, 16, 1)), &ad, &mut od, &n);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            out.par_chunks_exact_mut(256)
                .zip(black_box(&a[..]).par_chunks_exact(256))
                .with_min_len(32)
                .for_each(|(out, a)| {
                    // Columns of L as rows, each whole, so that updates vectorize.
                    let mut u: [[f32; 16]; 16] =
                        std::array::from_fn(|i| a[i * 16..][..16].try_into().unwrap());
                    for k in 0..16 {
                        let inverse = 1.0 / u[k][k].sqrt();
                        for v in &mut u[k] {
                            *v *= inverse;
                        }
                        let pivot = u[k];
                        for i in k + 1..16 {
                            let factor = pivot[i];
                            for (v, p) in u[i].iter_mut().zip(&pivot) {
                                *v -= factor * p;
                            }
                        }
                    }
                    for (i, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                        for (j, out) in out.iter_mut().enumerate() {
                            *out = if j <= i { u[j][i] } else { 0.0 };
                        }
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 1e-4))
}
