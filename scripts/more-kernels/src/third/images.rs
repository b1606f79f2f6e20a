//! Stencils on grids, and images.

use std::hint::black_box;

use cudarc::driver::PushKernelArg;
use rayon::prelude::*;

use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("stencil5_halo", stencil5),
    ("stencil7_march", stencil7),
    ("conv5x5_const", conv5),
    ("maxpool3x3", maxpool),
    ("sobel_u8", sobel),
    ("resize_rgb", resize),
    ("transpose_32x8", transpose),
];

fn stencil5(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (2050usize, 1535usize);
    let f = gpu.kernel("stencil5_halo")?;
    let a = noise(w * h, 1);
    let ad = gpu.stream.clone_htod(&a)?;
    let mut od = gpu.stream.alloc_zeros::<f32>(w * h)?;
    let mut out = vec![0.0f32; w * h];
    let (c, s) = (0.5f32, 0.125f32);
    let times = race(
        name,
        || {
            let (wi, hi) = (w as i32, h as i32);
            launch!(
                gpu,
                f,
                gpu.plane(w, h, 16, 16),
                &ad,
                &mut od,
                &wi,
                &hi,
                &c,
                &s
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let a = black_box(&a[..]);
            let zeros = vec![0.0f32; w];
            let row = |y: usize| {
                a.get(y.wrapping_mul(w)..)
                    .map_or(&zeros[..], |r| r.get(..w).unwrap_or(&zeros))
            };
            out.par_chunks_mut(w)
                .enumerate()
                .with_min_len(16)
                .for_each(|(y, out)| {
                    let up = if y == 0 { &zeros[..] } else { row(y - 1) };
                    let (mid, down) = (row(y), row(y + 1));
                    out[0] = c * mid[0] + s * (up[0] + down[0] + mid[1]);
                    out[w - 1] = c * mid[w - 1] + s * (up[w - 1] + down[w - 1] + mid[w - 2]);
                    for (((out, u), m), d) in out[1..w - 1]
                        .iter_mut()
                        .zip(&up[1..])
                        .zip(mid.windows(3))
                        .zip(&down[1..])
                    {
                        *out = c * m[1] + s * (u + d + m[0] + m[2]);
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 1e-5))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Grid3 {
    nx: i32,
    ny: i32,
    nz: i32,
    c0: f32,
    c1: f32,
}
// SAFETY: plain numbers, laid out as in C.
unsafe impl cudarc::driver::DeviceRepr for Grid3 {}

fn stencil7(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (nx, ny, nz) = (210usize, 187usize, 100usize);
    let f = gpu.kernel("stencil7_march")?;
    let n = nx * ny * nz;
    let a = noise(n, 1);
    let ad = gpu.stream.clone_htod(&a)?;
    let mut od = gpu.stream.alloc_zeros::<f32>(n)?;
    let mut out = vec![0.0f32; n];
    let (c0, c1) = (0.4f32, 0.1f32);
    let grid = Grid3 {
        nx: nx as i32,
        ny: ny as i32,
        nz: nz as i32,
        c0,
        c1,
    };
    let times = race(
        name,
        || {
            launch!(gpu, f, gpu.plane(nx, ny, 32, 8), &ad, &mut od, &grid);
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
                    let (back, ahead, up, down) =
                        (row(i - plane), row(i + plane), row(i - nx), row(i + nx));
                    let out = &mut out[y * nx + 1..(y + 1) * nx - 1];
                    for (((((out, h), b), t), u), d) in out
                        .iter_mut()
                        .zip(a[i..i + nx].windows(3))
                        .zip(back)
                        .zip(ahead)
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

fn conv5(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (1021usize, 1533usize);
    let f = gpu.kernel("conv5x5_const")?;
    let (a, filter) = (noise(w * h, 1), noise(25, 2));
    let ad = gpu.stream.clone_htod(&a)?;
    let mut od = gpu.stream.alloc_zeros::<f32>(w * h)?;
    {
        let mut symbol = gpu.module.get_global("conv_filter", &gpu.stream)?;
        // SAFETY: it has 25 floats, for which any bytes are values.
        let mut view = unsafe { symbol.transmute_mut::<f32>(25).unwrap() };
        gpu.stream.memcpy_htod(&filter, &mut view)?;
    }
    let mut out = vec![0.0f32; w * h];
    let config = shape((w.div_ceil(28), h.div_ceil(28), 1), (32, 32, 1));
    let times = race(
        name,
        || {
            let (wi, hi) = (w as i32, h as i32);
            launch!(gpu, f, config, &ad, &mut od, &wi, &hi);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let a = black_box(&a[..]);
            let filter: &[[f32; 5]; 5] =
                &std::array::from_fn(|r| std::array::from_fn(|c| filter[r * 5 + c]));
            let zeros = vec![0.0f32; w];
            out.par_chunks_mut(w)
                .enumerate()
                .with_min_len(16)
                .for_each(|(y, out)| {
                    let rows: [&[f32]; 5] = std::array::from_fn(|r| match (y + r).checked_sub(2) {
                        Some(y) if y < h => &a[y * w..][..w],
                        _ => &zeros[..],
                    });
                    for x in [0, 1, w - 2, w - 1] {
                        out[x] = 0.0;
                        for (row, taps) in rows.iter().zip(filter) {
                            for (k, tap) in taps.iter().enumerate() {
                                if let Some(v) = (x + k).checked_sub(2).and_then(|x| row.get(x)) {
                                    out[x] += tap * v;
                                }
                            }
                        }
                    }
                    let out = &mut out[2..w - 2];
                    out.fill(0.0);
                    for (row, f) in rows.iter().zip(filter) {
                        for (out, v) in out.iter_mut().zip(row.windows(5)) {
                            *out +=
                                f[0] * v[0] + f[1] * v[1] + f[2] * v[2] + f[3] * v[3] + f[4] * v[4];
                        }
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 1e-4))
}

fn maxpool(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (planes, h, w) = (53usize, 225usize, 223usize);
    let (ph, pw) = (h.div_ceil(2), w.div_ceil(2));
    let f = gpu.kernel("maxpool3x3")?;
    let a = noise(planes * h * w, 1);
    let ad = gpu.stream.clone_htod(&a)?;
    let count = planes * ph * pw;
    let mut od = gpu.stream.alloc_zeros::<f32>(count)?;
    let mut out = vec![0.0f32; count];
    let times = race(
        name,
        || {
            let [c, hi, wi, phi, pwi] = [count, h, w, ph, pw].map(|v| v as i32);
            let (stride, pad) = (2i32, 1i32);
            launch!(
                gpu,
                f,
                line(count.div_ceil(512).min(1024), 512),
                &c,
                &ad,
                &hi,
                &wi,
                &phi,
                &pwi,
                &stride,
                &pad,
                &mut od
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            out.par_chunks_mut(ph * pw)
                .zip(black_box(&a[..]).par_chunks(h * w))
                .for_each(|(out, a)| {
                    let mut highest = vec![f32::NEG_INFINITY; w + 2];
                    for (y, out) in out.chunks_exact_mut(pw).enumerate() {
                        // The rows' greatest, then those of three columns.
                        let row = |y: usize| &a[y.min(h - 1) * w..][..w];
                        let rows = [row((2 * y).saturating_sub(1)), row(2 * y), row(2 * y + 1)];
                        for (((m, a), b), c) in highest[1..]
                            .iter_mut()
                            .zip(rows[0])
                            .zip(rows[1])
                            .zip(rows[2])
                        {
                            let ab = if a > b { *a } else { *b };
                            *m = if ab > *c { ab } else { *c };
                        }
                        for (out, m) in out.iter_mut().zip(highest.windows(3).step_by(2)) {
                            let ab = if m[0] > m[1] { m[0] } else { m[1] };
                            *out = if ab > m[2] { ab } else { m[2] };
                        }
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 0.0))
}

fn wide(a: Vec<u8>) -> Vec<u32> {
    a.into_iter().map(u32::from).collect()
}

/// The root as a byte. Casts of floats do not vectorize for SSE2, so the fraction is shifted out;
/// roots of these integers that are not whole stay further than 0.001 below the next.
#[inline(always)]
fn root(square: i32) -> u8 {
    let below = (square as f32).sqrt().min(255.0) - 0.499;
    (below + 12_582_912.0).to_bits() as u8
}

/// Of the eight around a pixel.
fn gradient(around: [u8; 8]) -> u8 {
    let [u0, u1, u2, m0, m2, d0, d1, d2] = around.map(i32::from);
    let gx = u2 + 2 * m2 + d2 - u0 - 2 * m0 - d0;
    let gy = u0 + 2 * u1 + u2 - d0 - 2 * d1 - d2;
    root(gx * gx + gy * gy)
}

fn sobel(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (3001usize, 2003usize);
    let f = gpu.kernel("sobel_u8")?;
    let a: Vec<u8> = words(1).take(w * h).map(|w| w as u8).collect();
    let ad = gpu.stream.clone_htod(&a)?;
    let mut od = gpu.stream.alloc_zeros::<u8>(w * h)?;
    let mut out = vec![0u8; w * h];
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
                        gradient([
                            up[l], up[c], up[r], mid[l], mid[r], down[l], down[c], down[r],
                        ])
                    };
                    out[0] = at(0, 0, 1);
                    out[w - 1] = at(w - 2, w - 1, w - 1);
                    // Sums and differences of columns, then those of three columns.
                    let (mut sums, mut differences) = ([0i16; 258], [0i16; 258]);
                    for (part, out) in out[1..w - 1].chunks_mut(256).enumerate() {
                        let columns = part * 256..part * 256 + out.len() + 2;
                        for ((((s, t), u), m), d) in sums
                            .iter_mut()
                            .zip(&mut differences)
                            .zip(&up[columns.clone()])
                            .zip(&mid[columns.clone()])
                            .zip(&down[columns])
                        {
                            let [u, m, d] = [*u, *m, *d].map(i16::from);
                            (*s, *t) = (u + 2 * m + d, u - d);
                        }
                        for ((out, s), t) in out
                            .iter_mut()
                            .zip(sums.windows(3))
                            .zip(differences.windows(3))
                        {
                            let (gx, gy) =
                                (i32::from(s[2] - s[0]), i32::from(t[0] + 2 * t[1] + t[2]));
                            *out = root(gx * gx + gy * gy);
                        }
                    }
                });
        },
    )?;
    times.print(check(&wide(gpu.stream.clone_dtoh(&od)?), &wide(out), 0.0))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Resize {
    src_w: i32,
    src_h: i32,
    dst_w: i32,
    dst_h: i32,
    scale_x: f32,
    scale_y: f32,
}
// SAFETY: plain numbers, laid out as in C.
unsafe impl cudarc::driver::DeviceRepr for Resize {}

fn resize(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h, dw, dh) = (1920usize, 1080usize, 1333usize, 751usize);
    let f = gpu.kernel("resize_rgb")?;
    let a: Vec<u8> = words(1).take(w * h * 3).map(|w| w as u8).collect();
    let ad = gpu.stream.clone_htod(&a)?;
    let mut od = gpu.stream.alloc_zeros::<u8>(dw * dh * 3)?;
    let mut out = vec![0u8; dw * dh * 3];
    let (scale_x, scale_y) = (w as f32 / dw as f32, h as f32 / dh as f32);
    let r = Resize {
        src_w: w as i32,
        src_h: h as i32,
        dst_w: dw as i32,
        dst_h: dh as i32,
        scale_x,
        scale_y,
    };
    let times = race(
        name,
        || {
            launch!(gpu, f, gpu.plane(dw, dh, 16, 16), &ad, &mut od, &r);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let (pixels, _) = black_box(&a[..]).as_chunks::<3>();
            // Where a destination's coordinate lies in the source.
            let place = |i: usize, scale: f32, limit: usize| {
                let at = ((i as f32 + 0.5) * scale - 0.5).max(0.0);
                let first = at as usize;
                (first, (first + 1).min(limit - 1), at - first as f32)
            };
            let columns: Vec<(usize, usize, f32)> = (0..dw).map(|x| place(x, scale_x, w)).collect();
            let lerp = |a: f32, b: f32, t: f32| a + t * (b - a);
            out.par_chunks_mut(dw * 3)
                .enumerate()
                .with_min_len(8)
                .for_each(|(y, out)| {
                    let (y0, y1, ty) = place(y, scale_y, h);
                    let (top, bottom) = (&pixels[y0 * w..][..w], &pixels[y1 * w..][..w]);
                    for (out, &(x0, x1, tx)) in out.as_chunks_mut::<3>().0.iter_mut().zip(&columns)
                    {
                        let (a, b, c, d) = (&top[x0], &top[x1], &bottom[x0], &bottom[x1]);
                        for (i, out) in out.iter_mut().enumerate() {
                            let t = lerp(a[i] as f32, b[i] as f32, tx);
                            let u = lerp(c[i] as f32, d[i] as f32, tx);
                            // Rounded by the sum: a cast asks for sign and NaN.
                            *out = (lerp(t, u, ty) + 12_582_912.0).to_bits() as u8;
                        }
                    }
                });
        },
    )?;
    // Fused products round otherwise.
    let (got, want) = (wide(gpu.stream.clone_dtoh(&od)?), wide(out));
    if got.iter().zip(&want).any(|(g, w)| g.abs_diff(*w) > 1) {
        return Err("resize: far off".into());
    }
    times.print(check_some(&got, &want, 0.0, 1e-2))
}

fn transpose(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (2017usize, 1501usize);
    let f = gpu.kernel("transpose_32x8")?;
    let a = noise(w * h, 1);
    let ad = gpu.stream.clone_htod(&a)?;
    let mut od = gpu.stream.alloc_zeros::<f32>(w * h)?;
    let mut out = vec![0.0f32; w * h];
    let config = shape((w.div_ceil(32), h.div_ceil(32), 1), (32, 8, 1));
    let times = race(
        name,
        || {
            let (wi, hi) = (w as i32, h as i32);
            launch!(gpu, f, config, &mut od, &ad, &wi, &hi);
            Ok(gpu.stream.synchronize()?)
        },
        || {
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
