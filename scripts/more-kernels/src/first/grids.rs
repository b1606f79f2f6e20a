//! Stencils and convolutions on grids.

use std::hint::black_box;

use cudarc::driver::PushKernelArg;
use rayon::prelude::*;

use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("stencil9_shared", stencil9),
    ("blur_clamped", stencil9),
    ("blur_filter", stencil9),
    ("stencil7_3d", stencil7),
    ("jacobi", jacobi),
    ("game_of_life", life),
    ("conv1d", conv1d),
];

fn stencil9(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (2001usize, 1999usize);
    let f = gpu.kernel(name)?;
    let a = noise(w * h, 1);
    let ad = gpu.stream.clone_htod(&a)?;
    let mut od = gpu.stream.alloc_zeros::<f32>(w * h)?;
    let mut out = vec![0.0f32; w * h];
    let times = race(
        name,
        || {
            let (wi, hi) = (w as i32, h as i32);
            launch!(gpu, f, gpu.plane(w, h, 32, 8), &ad, &mut od, &wi, &hi);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let a = black_box(&a[..]);
            let row = |y: usize| &a[y * w..][..w];
            out.par_chunks_mut(w)
                .enumerate()
                .with_min_len(16)
                .for_each(|(y, out)| {
                    let (up, mid, down) =
                        (row(y.saturating_sub(1)), row(y), row((y + 1).min(h - 1)));
                    let at = |l: usize, c: usize, r: usize| {
                        let corners = up[l] + up[r] + down[l] + down[r];
                        let sides = up[c] + mid[l] + mid[r] + down[c];
                        0.25 * mid[c] + 0.125 * sides + 0.0625 * corners
                    };
                    out[0] = at(0, 0, 1);
                    out[w - 1] = at(w - 2, w - 1, w - 1);
                    for (((out, u), m), d) in out[1..w - 1]
                        .iter_mut()
                        .zip(up.windows(3))
                        .zip(mid.windows(3))
                        .zip(down.windows(3))
                    {
                        let corners = u[0] + u[2] + d[0] + d[2];
                        let sides = u[1] + m[0] + m[2] + d[1];
                        *out = 0.25 * m[1] + 0.125 * sides + 0.0625 * corners;
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 1e-5))
}

fn stencil7(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (nx, ny, nz) = (250usize, 203usize, 90usize);
    let f = gpu.kernel("stencil7_3d")?;
    let n = nx * ny * nz;
    let a = noise(n, 1);
    let ad = gpu.stream.clone_htod(&a)?;
    let mut od = gpu.stream.alloc_zeros::<f32>(n)?;
    let mut out = vec![0.0f32; n];
    let (c0, c1) = (0.4f32, 0.1f32);
    let times = race(
        name,
        || {
            let (x, y, z) = (nx as i32, ny as i32, nz as i32);
            launch!(
                gpu,
                f,
                gpu.plane(nx, ny, 32, 8),
                &ad,
                &mut od,
                &x,
                &y,
                &z,
                &c0,
                &c1
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let a = black_box(&a[..]);
            let plane = nx * ny;
            out.par_chunks_mut(plane).enumerate().for_each(|(z, out)| {
                if z == 0 || z == nz - 1 {
                    return;
                }
                for y in 1..ny - 1 {
                    let i = z * plane + y * nx;
                    let row = |at: usize| &a[at + 1..at + nx - 1];
                    let (below, above, up, down) =
                        (row(i - plane), row(i + plane), row(i - nx), row(i + nx));
                    let here = &a[i..i + nx];
                    for (((((out, h), b), t), u), d) in out[y * nx + 1..(y + 1) * nx - 1]
                        .iter_mut()
                        .zip(here.windows(3))
                        .zip(below)
                        .zip(above)
                        .zip(up)
                        .zip(down)
                    {
                        *out = c0 * h[1] + c1 * (b + t + h[0] + h[2] + u + d);
                    }
                }
            });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 1e-5))
}

fn jacobi_step(u: &[f64], f: &[f64], v: &mut [f64], n: usize, h2: f64) {
    v.par_chunks_mut(n)
        .enumerate()
        .with_min_len(16)
        .for_each(|(i, v)| {
            if i == 0 || i == n - 1 {
                return;
            }
            let row = |a: usize| &u[a * n..(a + 1) * n];
            let (up, mid, down, f) = (&row(i - 1)[1..], row(i), &row(i + 1)[1..], &f[i * n + 1..]);
            for ((((v, u), d), m), f) in v[1..n - 1]
                .iter_mut()
                .zip(up)
                .zip(down)
                .zip(mid.windows(3))
                .zip(f)
            {
                *v = 0.25 * (u + d + m[0] + m[2] + h2 * f);
            }
        });
}

fn jacobi(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 1023usize;
    let k = gpu.kernel("jacobi")?;
    let (mut u, f) = (noise64(n * n, 1), noise64(n * n, 2));
    let mut v = u.clone();
    let (mut ud, fd, mut vd) = (
        gpu.stream.clone_htod(&u)?,
        gpu.stream.clone_htod(&f)?,
        gpu.stream.clone_htod(&v)?,
    );
    let h2 = 0.01f64;
    let times = race(
        name,
        || {
            let ni = n as i32;
            let config = gpu.plane(n, n, 16, 16);
            for _ in 0..2 {
                launch!(gpu, k, config, &ud, &fd, &mut vd, &ni, &h2);
                launch!(gpu, k, config, &vd, &fd, &mut ud, &ni, &h2);
            }
            Ok(gpu.stream.synchronize()?)
        },
        || {
            for _ in 0..2 {
                jacobi_step(&u, &f, &mut v, n, h2);
                jacobi_step(&v, &f, &mut u, n, h2);
            }
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&ud)?, &u, 1e-9))
}

fn life(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (3000usize, 2001usize);
    let k = gpu.kernel("game_of_life")?;
    let a: Vec<u8> = words(1).take(w * h).map(|w| (w % 3 == 0) as u8).collect();
    let ad = gpu.stream.clone_htod(&a)?;
    let mut od = gpu.stream.alloc_zeros::<u8>(w * h)?;
    let mut out = vec![0u8; w * h];
    let times = race(
        name,
        || {
            let (wi, hi) = (w as i32, h as i32);
            launch!(gpu, k, gpu.plane(w, h, 32, 4), &ad, &mut od, &wi, &hi);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let a = black_box(&a[..]);
            let row = |y: usize| &a[y * w..][..w];
            out.par_chunks_mut(w)
                .enumerate()
                .with_min_len(16)
                .for_each(|(y, out)| {
                    let (up, mid, down) = (row((y + h - 1) % h), row(y), row((y + 1) % h));
                    let next = |n: u8, alive: u8| u8::from(n == 3 || (n == 2 && alive != 0));
                    let edge = |l: usize, c: usize, r: usize| {
                        next(
                            up[l] + up[c] + up[r] + mid[l] + mid[r] + down[l] + down[c] + down[r],
                            mid[c],
                        )
                    };
                    out[0] = edge(w - 1, 0, 1);
                    out[w - 1] = edge(w - 2, w - 1, 0);
                    for (((out, u), m), d) in out[1..w - 1]
                        .iter_mut()
                        .zip(up.windows(3))
                        .zip(mid.windows(3))
                        .zip(down.windows(3))
                    {
                        let n = u[0] + u[1] + u[2] + m[0] + m[2] + d[0] + d[1] + d[2];
                        *out = u8::from(n == 3) | (u8::from(n == 2) & m[1]);
                    }
                });
        },
    )?;
    let got: Vec<u32> = gpu
        .stream
        .clone_dtoh(&od)?
        .into_iter()
        .map(u32::from)
        .collect();
    let want: Vec<u32> = out.into_iter().map(u32::from).collect();
    times.print(check(&got, &want, 0.0))
}

fn conv1d(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 2_000_003usize;
    let k = gpu.kernel("conv1d")?;
    let (a, taps) = (noise(n, 1), noise(17, 2));
    let ad = gpu.stream.clone_htod(&a)?;
    let mut od = gpu.stream.alloc_zeros::<f32>(n)?;
    {
        let mut symbol = gpu.module.get_global("taps", &gpu.stream)?;
        // SAFETY: `taps` has 17 floats, for which any bytes are values.
        let mut view = unsafe { symbol.transmute_mut::<f32>(17).unwrap() };
        gpu.stream.memcpy_htod(&taps, &mut view)?;
    }
    let mut out = vec![0.0f32; n];
    let times = race(
        name,
        || {
            let ni = n as i32;
            launch!(gpu, k, gpu.cover(n, 256), &ad, &mut od, &ni);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let a = black_box(&a[..]);
            let taps: &[f32; 17] = taps.as_slice().try_into().unwrap();
            out.par_chunks_mut(1 << 12)
                .enumerate()
                .for_each(|(chunk, out)| {
                    let start = chunk << 12;
                    if start == 0 || start + out.len() + 8 > n {
                        for (i, out) in out.iter_mut().enumerate() {
                            let at = |k: usize| {
                                (start + i + k)
                                    .checked_sub(8)
                                    .and_then(|j| a.get(j))
                                    .copied()
                                    .unwrap_or(0.0)
                            };
                            *out = (0..17).map(|k| at(k) * taps[k]).sum();
                        }
                        return;
                    }
                    for (out, window) in out.iter_mut().zip(a[start - 8..].windows(17)) {
                        let mut sum = 0.0;
                        for k in 0..17 {
                            sum += window[k] * taps[k];
                        }
                        *out = sum;
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 1e-5))
}
