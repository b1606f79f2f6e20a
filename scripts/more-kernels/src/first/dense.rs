//! Products of matrices, transposed and in batches.

use std::hint::black_box;

use cudarc::driver::PushKernelArg;
use rayon::prelude::*;

use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("sgemm_8x8", sgemm),
    ("gemm_tile32", gemm32),
    ("dgemm_tile16", dgemm),
    ("batched_gemm16", batched),
    ("transpose_padded", transpose),
];

/// `C = A * B`: a panel of W columns of B brought together, then 4 rows of A at a time.
macro_rules! product {
    ($name:ident, $piece:ident, $t:ty, $w:literal) => {
        #[inline(never)]
        fn $piece(a: [&[$t]; 4], b: &[[$t; $w]]) -> [[$t; $w]; 4] {
            let mut sums = [[0 as $t; $w]; 4];
            let [a0, a1, a2, a3] = a;
            for ((((b, a0), a1), a2), a3) in b.iter().zip(a0).zip(a1).zip(a2).zip(a3) {
                for (sums, a) in sums.iter_mut().zip([a0, a1, a2, a3]) {
                    for (sum, b) in sums.iter_mut().zip(b) {
                        *sum += a * b;
                    }
                }
            }
            sums
        }
        fn $name(a: &[$t], b: &[$t], c: &mut [$t], n: usize, k: usize) {
            c.par_chunks_mut(64 * n).enumerate().for_each(|(tile, c)| {
                let rows = c.len() / n;
                let mut panel = vec![[0 as $t; $w]; k];
                for column in (0..n).step_by($w) {
                    let width = $w.min(n - column);
                    for (panel, b) in panel.iter_mut().zip(b.chunks_exact(n)) {
                        panel[..width].copy_from_slice(&b[column..column + width]);
                    }
                    let mut r = 0;
                    while r < rows {
                        let row = |i: usize| &a[(tile * 64 + (r + i).min(rows - 1)) * k..][..k];
                        let sums = $piece(std::array::from_fn(row), &panel);
                        for (i, sums) in sums.iter().enumerate().take(rows - r) {
                            c[(r + i) * n + column..][..width].copy_from_slice(&sums[..width]);
                        }
                        r += 4;
                    }
                }
            });
        }
    };
}
product!(product, piece, f32, 8usize);
product!(product64, piece64, f64, 4usize);

fn sgemm(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (m, n, k) = (512usize, 640usize, 500usize / 8 * 8);
    let f = gpu.kernel("sgemm_8x8")?;
    let (a, b) = (noise(m * k, 1), noise(k * n, 2));
    let (ad, bd) = (gpu.stream.clone_htod(&a)?, gpu.stream.clone_htod(&b)?);
    let mut cd = gpu.stream.alloc_zeros::<f32>(m * n)?;
    let mut c = vec![0.0f32; m * n];
    let times = race(
        name,
        || {
            let (mi, ni, ki) = (m as i32, n as i32, k as i32);
            launch!(
                gpu,
                f,
                shape((n / 128, m / 128, 1), (256, 1, 1)),
                &mi,
                &ni,
                &ki,
                &ad,
                &bd,
                &mut cd
            );
            Ok(gpu.stream.synchronize()?)
        },
        || product(black_box(&a), &b, &mut c, n, k),
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&cd)?, &c, 1e-3))
}

/// A product by tiles that each block brings together in shared memory.
macro_rules! tiled {
    ($run:ident, $kernel:literal, $t:ty, $noise:ident, $product:ident, $sizes:expr, $tile:literal, $tolerance:literal) => {
        fn $run(gpu: &Gpu, name: &str) -> Outcome<f64> {
            let [m, n, k]: [usize; 3] = $sizes;
            let f = gpu.kernel($kernel)?;
            let (a, b) = ($noise(m * k, 1), $noise(k * n, 2));
            let (ad, bd) = (gpu.stream.clone_htod(&a)?, gpu.stream.clone_htod(&b)?);
            let mut cd = gpu.stream.alloc_zeros::<$t>(m * n)?;
            let mut c = vec![0 as $t; m * n];
            let config = gpu.plane(n, m, $tile, $tile);
            let times = race(
                name,
                || {
                    let (mi, ni, ki) = (m as i32, n as i32, k as i32);
                    launch!(gpu, f, config, &ad, &bd, &mut cd, &mi, &ni, &ki);
                    Ok(gpu.stream.synchronize()?)
                },
                || $product(black_box(&a), &b, &mut c, n, k),
            )?;
            times.print(check(&gpu.stream.clone_dtoh(&cd)?, &c, $tolerance))
        }
    };
}
tiled!(
    gemm32,
    "gemm_tile32",
    f32,
    noise,
    product,
    [500, 420, 390],
    32,
    1e-3
);
tiled!(
    dgemm,
    "dgemm_tile16",
    f64,
    noise64,
    product64,
    [330, 410, 370],
    16,
    1e-10
);

fn batched(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let count = 8001usize;
    let f = gpu.kernel("batched_gemm16")?;
    let (a, b) = (noise(count * 256, 1), noise(count * 256, 2));
    let (ad, bd) = (gpu.stream.clone_htod(&a)?, gpu.stream.clone_htod(&b)?);
    let mut cd = gpu.stream.alloc_zeros::<f32>(count * 256)?;
    let mut c = vec![0.0f32; count * 256];
    let times = race(
        name,
        || {
            launch!(gpu, f, shape((count, 1, 1), (16, 16, 1)), &ad, &bd, &mut cd);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            c.par_chunks_exact_mut(256)
                .zip(black_box(&a[..]).par_chunks_exact(256))
                .zip(b.par_chunks_exact(256))
                .with_min_len(32)
                .for_each(|((c, a), b)| {
                    let ((c, _), (a, _), (b, _)) = (
                        c.as_chunks_mut::<16>(),
                        a.as_chunks::<16>(),
                        b.as_chunks::<16>(),
                    );
                    for (c, a) in c.iter_mut().zip(a) {
                        let mut sums = [0.0f32; 16];
                        for (a, b) in a.iter().zip(b) {
                            for (sum, b) in sums.iter_mut().zip(b) {
                                *sum += a * b;
                            }
                        }
                        *c = sums;
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&cd)?, &c, 1e-4))
}

fn transpose(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (1500usize, 1203usize);
    let f = gpu.kernel("transpose_padded")?;
    let a = noise64(w * h, 1);
    let ad = gpu.stream.clone_htod(&a)?;
    let mut od = gpu.stream.alloc_zeros::<f64>(w * h)?;
    let mut out = vec![0.0f64; w * h];
    let times = race(
        name,
        || {
            let (wi, hi) = (w as i32, h as i32);
            launch!(gpu, f, gpu.plane(w, h, 32, 8), &ad, &mut od, &wi, &hi);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            // 16 rows of the output at a time, in tiles of 16.
            let a = black_box(&a[..]);
            out.par_chunks_mut(16 * h)
                .enumerate()
                .for_each(|(tile, out)| {
                    let x0 = tile * 16;
                    for y0 in (0..h).step_by(16) {
                        let ys = y0..(y0 + 16).min(h);
                        for (x, out) in out.chunks_exact_mut(h).enumerate() {
                            for y in ys.clone() {
                                out[y] = a[y * w + x0 + x];
                            }
                        }
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 0.0))
}
