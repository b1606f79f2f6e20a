//! Blocks whose sizes are no powers of two.

use std::hint::black_box;

use cudarc::driver::PushKernelArg;
use rayon::prelude::*;

use super::{down, set, sync, up, zeros};
use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("dgemm_12x12", dgemm),
    ("jacobi_20x10", jacobi),
    ("lengths_100", lengths),
    ("min_max_6x6", min_max),
    ("stencil7_6x6x6", stencil7),
    ("conv3_10x10", conv3),
    ("planes_96x3", planes),
    ("column_sums_33x8", column_sums),
    ("transpose_f64_24x6", transpose),
];

fn dgemm(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (m, n, k) = (403usize, 408usize, 397usize);
    let (mi, ni, ki) = (m as i32, n as i32, k as i32);
    let f = gpu.kernel(name)?;
    let (a, b) = (noise64(m * k, 1), noise64(k * n, 2));
    let (ad, bd, mut cd) = (up(gpu, &a)?, up(gpu, &b)?, zeros::<f64>(gpu, m * n)?);
    let mut c = vec![0.0f64; m * n];
    let times = race(
        name,
        || {
            let config = gpu.plane(n, m, 12, 12);
            launch!(gpu, f, config, &ad, &bd, &mut cd, &mi, &ni, &ki);
            sync(gpu)
        },
        || {
            let (a, b) = (black_box(&a[..]), &b[..]);
            c.par_chunks_mut(4 * n)
                .zip(a.par_chunks(4 * k))
                .for_each(|(c, a)| {
                    for col in (0..n).step_by(8) {
                        let mut sums = [[0.0f64; 8]; 4];
                        for (i, b) in b.chunks_exact(n).enumerate() {
                            let b: &[f64; 8] = b[col..].first_chunk().unwrap();
                            for (sums, a) in sums.iter_mut().zip(a.chunks_exact(k)) {
                                let a = a[i];
                                sums.iter_mut().zip(b).for_each(|(s, b)| *s += a * b);
                            }
                        }
                        for (c, sums) in c.chunks_exact_mut(n).zip(sums) {
                            c[col..col + 8].copy_from_slice(&sums);
                        }
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &cd)?, &c, 1e-9))
}

fn jacobi(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h, h2) = (1303usize, 1201usize, 0.01f32);
    let (wi, hi) = (w as i32, h as i32);
    let f = gpu.kernel(name)?;
    let (u, force) = (noise(w * h, 1), noise(w * h, 2));
    let (ud, fd, mut od) = (up(gpu, &u)?, up(gpu, &force)?, zeros::<f32>(gpu, w * h)?);
    let mut out = vec![0.0f32; w * h];
    let times = race(
        name,
        || {
            let config = gpu.plane(w, h, 20, 10);
            launch!(gpu, f, config, &ud, &fd, &mut od, &wi, &hi, &h2);
            sync(gpu)
        },
        || {
            let u = black_box(&u[..]);
            out.par_chunks_mut(w)
                .enumerate()
                .skip(1)
                .take(h - 2)
                .with_min_len(16)
                .for_each(|(y, out)| {
                    let row = |y: usize| &u[y * w..(y + 1) * w];
                    let (above, below) = (&row(y - 1)[1..], &row(y + 1)[1..]);
                    let force = &force[y * w + 1..];
                    for ((((out, m), a), b), f) in out[1..w - 1]
                        .iter_mut()
                        .zip(row(y).windows(3))
                        .zip(above)
                        .zip(below)
                        .zip(force)
                    {
                        *out = 0.25 * (m[0] + m[2] + a + b - h2 * f);
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 1e-5))
}

fn lengths(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 1_500_033usize;
    let ni = n as i32;
    let f = gpu.kernel(name)?;
    let (x, y, z) = (noise(n, 1), noise(n, 2), noise(n, 3));
    let (xd, yd, zd) = (up(gpu, &x)?, up(gpu, &y)?, up(gpu, &z)?);
    let mut od = zeros::<f32>(gpu, n)?;
    let mut out = vec![0.0f32; n];
    let times = race(
        name,
        || {
            launch!(gpu, f, gpu.cover(n, 100), &xd, &yd, &zd, &mut od, &ni);
            sync(gpu)
        },
        || {
            const PART: usize = 1 << 14;
            out.par_chunks_mut(PART)
                .zip(black_box(&x[..]).par_chunks(PART))
                .zip(y.par_chunks(PART))
                .zip(z.par_chunks(PART))
                .for_each(|(((out, x), y), z)| {
                    for (((out, x), y), z) in out.iter_mut().zip(x).zip(y).zip(z) {
                        *out = (x * x + y * y + z * z).sqrt();
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 1e-6))
}

fn min_max(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (tiles_x, tiles_y) = (171usize, 167usize);
    let (w, wi) = (tiles_x * 6, tiles_x as i32 * 6);
    let f = gpu.kernel(name)?;
    let a = noise(w * tiles_y * 6, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<f32>(gpu, tiles_x * tiles_y * 2)?);
    let mut out = vec![0.0f32; tiles_x * tiles_y * 2];
    let times = race(
        name,
        || {
            let config = shape((tiles_x, tiles_y, 1), (6, 6, 1));
            launch!(gpu, f, config, &ad, &mut od, &wi);
            sync(gpu)
        },
        || {
            out.par_chunks_mut(tiles_x * 2)
                .zip(black_box(&a[..]).par_chunks(w * 6))
                .for_each(|(out, rows)| {
                    let (mut lo, mut hi) = (rows[..w].to_vec(), rows[..w].to_vec());
                    for row in rows.chunks_exact(w).skip(1) {
                        for ((lo, hi), &v) in lo.iter_mut().zip(&mut hi).zip(row) {
                            *lo = if v < *lo { v } else { *lo };
                            *hi = if v > *hi { v } else { *hi };
                        }
                    }
                    let tiles = lo.chunks_exact(6).zip(hi.chunks_exact(6));
                    for (out, (lo, hi)) in out.chunks_exact_mut(2).zip(tiles) {
                        out[0] = lo.iter().copied().fold(f32::INFINITY, f32::min);
                        out[1] = hi.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn stencil7(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (nx, ny, nz) = (125usize, 118usize, 97usize);
    let (xi, yi, zi) = (nx as i32, ny as i32, nz as i32);
    let (c0, c1) = (0.4f32, 0.1f32);
    let f = gpu.kernel(name)?;
    let a = noise(nx * ny * nz, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<f32>(gpu, a.len())?);
    let mut out = vec![0.0f32; a.len()];
    let blocks = (nx.div_ceil(6), ny.div_ceil(6), nz.div_ceil(6));
    let times = race(
        name,
        || {
            let config = shape(blocks, (6, 6, 6));
            launch!(gpu, f, config, &ad, &mut od, &xi, &yi, &zi, &c0, &c1);
            sync(gpu)
        },
        || {
            let a = black_box(&a[..]);
            let none = vec![0.0f32; nx];
            let row = |y: usize, z: usize| {
                if y < ny && z < nz {
                    &a[(z * ny + y) * nx..][..nx]
                } else {
                    &none
                }
            };
            out.par_chunks_mut(nx)
                .enumerate()
                .with_min_len(32)
                .for_each(|(i, out)| {
                    let (y, z) = (i % ny, i / ny);
                    let (mid, n, s) = (row(y, z), row(y.wrapping_sub(1), z), row(y + 1, z));
                    let (b, t) = (row(y, z.wrapping_sub(1)), row(y, z + 1));
                    let around = |x: usize| n[x] + s[x] + b[x] + t[x];
                    out[0] = c0 * mid[0] + c1 * (mid[1] + around(0));
                    out[nx - 1] = c0 * mid[nx - 1] + c1 * (mid[nx - 2] + around(nx - 1));
                    for (((((out, m), n), s), b), t) in out[1..nx - 1]
                        .iter_mut()
                        .zip(mid.windows(3))
                        .zip(&n[1..])
                        .zip(&s[1..])
                        .zip(&b[1..])
                        .zip(&t[1..])
                    {
                        *out = c0 * m[1] + c1 * (m[0] + m[2] + n + s + b + t);
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 1e-5))
}

fn conv3(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (1021usize, 1013usize);
    let (wi, hi) = (w as i32, h as i32);
    let f = gpu.kernel(name)?;
    let (a, taps) = (noise(w * h, 1), noise(9, 2));
    set(gpu, "taps3", &taps)?;
    let (ad, mut od) = (up(gpu, &a)?, zeros::<f32>(gpu, w * h)?);
    let mut out = vec![0.0f32; w * h];
    let times = race(
        name,
        || {
            launch!(gpu, f, gpu.plane(w, h, 10, 10), &ad, &mut od, &wi, &hi);
            sync(gpu)
        },
        || {
            let a = black_box(&a[..]);
            out.par_chunks_mut(w)
                .enumerate()
                .with_min_len(16)
                .for_each(|(y, out)| {
                    out.fill(0.0);
                    for (r, t) in taps.as_chunks::<3>().0.iter().enumerate() {
                        let row = (y + r).saturating_sub(1).min(h - 1);
                        let row = &a[row * w..][..w];
                        out[0] += t[0] * row[0] + t[1] * row[0] + t[2] * row[1];
                        out[w - 1] += t[0] * row[w - 2] + t[1] * row[w - 1] + t[2] * row[w - 1];
                        for (out, m) in out[1..w - 1].iter_mut().zip(row.windows(3)) {
                            *out += t[0] * m[0] + t[1] * m[1] + t[2] * m[2];
                        }
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 1e-5))
}

fn planes(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 700_001usize;
    let ni = n as i32;
    let f = gpu.kernel(name)?;
    let rgb: Vec<u8> = below(256, n * 3, 1).into_iter().map(|v| v as u8).collect();
    let (mean, scale) = ([0.485f32, 0.456, 0.406], [4.4f32, 4.5, 4.6]);
    let (md, sd) = (super::Float3(mean), super::Float3(scale));
    let (rd, mut od) = (up(gpu, &rgb)?, zeros::<f32>(gpu, n * 3)?);
    let mut out = vec![0.0f32; n * 3];
    let times = race(
        name,
        || {
            let config = shape((n.div_ceil(96), 1, 1), (96, 3, 1));
            launch!(gpu, f, config, &rd, &mut od, &ni, &md, &sd);
            sync(gpu)
        },
        || {
            const PART: usize = 1 << 13;
            let (r, rest) = out.split_at_mut(n);
            let (g, b) = rest.split_at_mut(n);
            black_box(&rgb[..])
                .par_chunks(PART * 3)
                .zip(r.par_chunks_mut(PART))
                .zip(g.par_chunks_mut(PART))
                .zip(b.par_chunks_mut(PART))
                .for_each(|(((rgb, r), g), b)| {
                    let value = |v: u8, c: usize| (v as f32 / 255.0 - mean[c]) * scale[c];
                    let pixels = rgb.as_chunks::<3>().0;
                    for (((p, r), g), b) in pixels.iter().zip(r).zip(g).zip(b) {
                        (*r, *g, *b) = (value(p[0], 0), value(p[1], 1), value(p[2], 2));
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 1e-5))
}

fn column_sums(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (1003usize, 1501usize);
    let (ri, ci) = (rows as i32, cols as i32);
    let f = gpu.kernel(name)?;
    let a = noise(rows * cols, 1);
    let (ad, mut sd) = (up(gpu, &a)?, zeros::<f32>(gpu, cols)?);
    let mut sums = vec![0.0f32; cols];
    let times = race(
        name,
        || {
            let config = shape((cols.div_ceil(33), 1, 1), (33, 8, 1));
            launch!(gpu, f, config, &ad, &mut sd, &ri, &ci);
            sync(gpu)
        },
        || {
            sums = black_box(&a[..])
                .par_chunks(cols * 128)
                .map(|rows| {
                    let mut sums = vec![0.0f32; cols];
                    for row in rows.chunks_exact(cols) {
                        sums.iter_mut().zip(row).for_each(|(s, v)| *s += v);
                    }
                    sums
                })
                .reduce_with(|mut a, b| {
                    a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
                    a
                })
                .unwrap();
        },
    )?;
    times.print(check(&down(gpu, &sd)?, &sums, 1e-4))
}

fn transpose(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (1201usize, 907usize);
    let (wi, hi) = (w as i32, h as i32);
    let f = gpu.kernel(name)?;
    let a = noise64(w * h, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<f64>(gpu, w * h)?);
    let mut out = vec![0.0f64; w * h];
    let times = race(
        name,
        || {
            let config = shape((w.div_ceil(24), h.div_ceil(24), 1), (24, 6, 1));
            launch!(gpu, f, config, &ad, &mut od, &wi, &hi);
            sync(gpu)
        },
        || {
            let a = black_box(&a[..]);
            out.par_chunks_mut(h * 8).enumerate().for_each(|(i, out)| {
                let (x0, count) = (i * 8, out.len() / h);
                for y0 in (0..h).step_by(8) {
                    for x in 0..count {
                        let out = &mut out[x * h + y0..(x * h + y0 + 8).min((x + 1) * h)];
                        for (y, out) in out.iter_mut().enumerate() {
                            *out = a[(y0 + y) * w + x0 + x];
                        }
                    }
                }
            });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}
