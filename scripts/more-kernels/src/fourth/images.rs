//! Images, and fields on grids.

use std::hint::black_box;

use cudarc::driver::PushKernelArg;
use rayon::prelude::*;

use super::{Float4, down, set, sync, up, zeros};
use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("depthwise_3x3", depthwise),
    ("box_7x7", box7),
    ("sad_search", sad_search),
    ("upsample_2x", upsample),
    ("im2col_3x3", im2col),
    ("median_3x3", median),
    ("rgb_to_yuv420", yuv),
    ("gauss_separable", gauss),
    ("integral_rows", integral),
    ("dilate_disc", dilate),
    ("stencil27_3d", stencil27),
    ("ising_step", ising),
    ("lbm_d2q9", lbm),
    ("fdtd_h", fdtd),
];

fn bytes(count: usize, seed: u64) -> Vec<u8> {
    words(seed).take(count).map(|w| (w >> 56) as u8).collect()
}

fn depthwise(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (channels, h, w) = (24usize, 113usize, 115usize);
    let (ci, hi, wi) = (channels as i32, h as i32, w as i32);
    let f = gpu.kernel(name)?;
    let a = noise(channels * h * w, 1);
    let (weight, bias) = (noise(channels * 9, 2), noise(channels, 3));
    let (ad, wd, bd) = (up(gpu, &a)?, up(gpu, &weight)?, up(gpu, &bias)?);
    let mut od = zeros::<f32>(gpu, a.len())?;
    let mut out = vec![0.0f32; a.len()];
    let times = race(
        name,
        || {
            let config = shape(((h * w).div_ceil(256), channels, 1), (256, 1, 1));
            launch!(gpu, f, config, &ad, &wd, &bd, &mut od, &ci, &hi, &wi);
            sync(gpu)
        },
        || {
            let a = black_box(&a[..]);
            let rows = out.par_chunks_mut(w).enumerate().with_min_len(16);
            rows.for_each(|(i, out)| {
                let (c, y) = (i / h, i % h);
                out.fill(bias[c]);
                let taps = weight[c * 9..][..9].as_chunks::<3>().0;
                for (r, t) in taps.iter().enumerate() {
                    let row = (y + r).wrapping_sub(1);
                    if row >= h {
                        continue;
                    }
                    let row = &a[(c * h + row) * w..][..w];
                    out[0] += t[1] * row[0] + t[2] * row[1];
                    out[w - 1] += t[0] * row[w - 2] + t[1] * row[w - 1];
                    for (out, m) in out[1..w - 1].iter_mut().zip(row.windows(3)) {
                        *out += t[0] * m[0] + t[1] * m[1] + t[2] * m[2];
                    }
                }
                out.iter_mut()
                    .for_each(|v| *v = if *v > 0.0 { *v } else { 0.0 });
            });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 1e-5))
}

/// A kernel that makes an image of bytes of another, beside a function that makes a row.
fn of_bytes(
    gpu: &Gpu,
    name: &str,
    (w, h): (usize, usize),
    block: (usize, usize),
    row: impl Fn(&[u8], usize, &mut [u8]) + Sync,
) -> Outcome<f64> {
    let (wi, hi) = (w as i32, h as i32);
    let f = gpu.kernel(name)?;
    let a = bytes(w * h, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<u8>(gpu, w * h)?);
    let mut out = vec![0u8; w * h];
    let times = race(
        name,
        || {
            let config = gpu.plane(w, h, block.0, block.1);
            launch!(gpu, f, config, &ad, &mut od, &wi, &hi);
            sync(gpu)
        },
        || {
            let a = black_box(&a[..]);
            let rows = out.par_chunks_mut(w).enumerate().with_min_len(16);
            rows.for_each(|(y, out)| row(a, y, out));
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn box7(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (1021usize, 767usize);
    of_bytes(gpu, name, (w, h), (32, 8), |a, y, out| {
        let mut columns = vec![0u16; w];
        let rows = y.saturating_sub(3)..(y + 4).min(h);
        for row in a[rows.start * w..rows.end * w].chunks_exact(w) {
            columns
                .iter_mut()
                .zip(row)
                .for_each(|(c, &v)| *c += v as u16);
        }
        let mut sum: usize = columns[..3].iter().map(|&c| c as usize).sum();
        for (x, out) in out.iter_mut().enumerate() {
            sum += columns.get(x + 3).copied().unwrap_or(0) as usize;
            let across = x.saturating_sub(3)..(x + 4).min(w);
            *out = (sum / (across.len() * rows.len())) as u8;
            sum -= if x >= 3 { columns[x - 3] as usize } else { 0 };
        }
    })
}

fn median(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (1021usize, 767usize);
    fn of(v: [u8; 9]) -> u8 {
        let order3 = |a: u8, b: u8, c: u8| {
            let (lo, hi) = (a.min(b), a.max(b));
            (lo.min(c), lo.max(hi.min(c)), hi.max(c))
        };
        let (a, b, c) = (
            order3(v[0], v[1], v[2]),
            order3(v[3], v[4], v[5]),
            order3(v[6], v[7], v[8]),
        );
        let lo = a.0.max(b.0).max(c.0);
        let mid = order3(a.1, b.1, c.1).1;
        let hi = a.2.min(b.2).min(c.2);
        order3(lo, mid, hi).1
    }
    of_bytes(gpu, name, (w, h), (16, 16), |a, y, out| {
        let row = |y: usize| &a[y * w..][..w];
        let (p, q, r) = (row(y.saturating_sub(1)), row(y), row((y + 1).min(h - 1)));
        let at = |l: usize, m: usize, n: usize| {
            of([p[l], p[m], p[n], q[l], q[m], q[n], r[l], r[m], r[n]])
        };
        (out[0], out[w - 1]) = (at(0, 0, 1), at(w - 2, w - 1, w - 1));
        let windows = p.windows(3).zip(q.windows(3)).zip(r.windows(3));
        for (out, ((p, q), r)) in out[1..w - 1].iter_mut().zip(windows) {
            *out = of([p[0], p[1], p[2], q[0], q[1], q[2], r[0], r[1], r[2]]);
        }
    })
}

fn dilate(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (1021usize, 767usize);
    of_bytes(gpu, name, (w, h), (32, 4), |a, y, out| {
        out.fill(0);
        for dy in 0..7 {
            let row = (y + dy).wrapping_sub(3);
            if row >= h {
                continue;
            }
            let row = &a[row * w..][..w];
            let half = [1, 2, 3, 3, 3, 2, 1][dy];
            let most = |out: &mut [u8], row: &[u8]| {
                out.iter_mut().zip(row).for_each(|(o, &v)| *o = (*o).max(v));
            };
            for d in 0..=half {
                most(out, &row[d..]);
                most(&mut out[d..], row);
            }
        }
    })
}

fn sad_search(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (320usize, 240usize);
    let (wi, hi) = (w as i32, h as i32);
    let f = gpu.kernel(name)?;
    let (cur, reference) = (bytes(w * h, 1), bytes(w * h, 2));
    let (cd, rd) = (up(gpu, &cur)?, up(gpu, &reference)?);
    let mut bd = zeros::<i32>(gpu, w / 8 * (h / 8))?;
    let mut best = vec![0i32; w / 8 * (h / 8)];
    let times = race(
        name,
        || {
            let config = shape((w / 8, h / 8, 1), (16, 16, 1));
            launch!(gpu, f, config, &cd, &rd, &mut bd, &wi, &hi);
            sync(gpu)
        },
        || {
            let cur = black_box(&cur[..]);
            best.par_iter_mut().enumerate().for_each(|(i, best)| {
                let (bx, by) = (i % (w / 8) * 8, i / (w / 8) * 8);
                let row = |image: &[u8], x: usize, y: usize| -> [u8; 8] {
                    *image[y * w + x..].first_chunk().unwrap()
                };
                let block: [[u8; 8]; 8] = std::array::from_fn(|y| row(cur, bx, by + y));
                *best = (0..256)
                    .filter_map(|t| {
                        let x = (bx + t % 16).checked_sub(8).filter(|x| x + 8 <= w)?;
                        let y = (by + t / 16).checked_sub(8).filter(|y| y + 8 <= h)?;
                        let mut sums = [0u16; 8];
                        for (i, a) in block.iter().enumerate() {
                            let b = row(&reference, x, y + i);
                            for ((s, &a), b) in sums.iter_mut().zip(a).zip(b) {
                                *s += (a.max(b) - a.min(b)) as u16;
                            }
                        }
                        let sad: i32 = sums.iter().map(|&s| s as i32).sum();
                        Some(sad << 10 | t as i32)
                    })
                    .min()
                    .unwrap();
            });
        },
    )?;
    times.print(check(&down(gpu, &bd)?, &best, 0.0))
}

fn upsample(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (channels, h, w) = (12usize, 120usize, 130usize);
    let (hi, wi) = (h as i32, w as i32);
    let f = gpu.kernel(name)?;
    let a = noise(channels * h * w, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<f32>(gpu, a.len() * 4)?);
    let mut out = vec![0.0f32; a.len() * 4];
    let times = race(
        name,
        || {
            let config = shape(((2 * w).div_ceil(128), 2 * h, channels), (128, 1, 1));
            launch!(gpu, f, config, &ad, &mut od, &hi, &wi);
            sync(gpu)
        },
        || {
            let a = black_box(&a[..]);
            let rows = out.par_chunks_mut(2 * w).enumerate().with_min_len(16);
            rows.for_each(|(i, out)| {
                let (c, oy) = (i / (2 * h), i % (2 * h));
                let fy = ((oy as f32 + 0.5) * 0.5 - 0.5).max(0.0);
                let y0 = fy as usize;
                let (y1, t) = ((y0 + 1).min(h - 1), fy - y0 as f32);
                let row = |y: usize| &a[(c * h + y) * w..][..w];
                let mid: Vec<f32> = row(y0)
                    .iter()
                    .zip(row(y1))
                    .map(|(a, b)| (1.0 - t) * a + t * b)
                    .collect();
                (out[0], out[2 * w - 1]) = (mid[0], mid[w - 1]);
                let pairs = out[1..2 * w - 1].as_chunks_mut::<2>().0;
                for (out, m) in pairs.iter_mut().zip(mid.windows(2)) {
                    *out = [0.75 * m[0] + 0.25 * m[1], 0.25 * m[0] + 0.75 * m[1]];
                }
            });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 1e-5))
}

fn im2col(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (channels, h, w) = (14usize, 101usize, 103usize);
    let (ci, hi, wi) = (channels as i32, h as i32, w as i32);
    let f = gpu.kernel(name)?;
    let a = noise(channels * h * w, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<f32>(gpu, a.len() * 9)?);
    let mut out = vec![0.0f32; a.len() * 9];
    let times = race(
        name,
        || {
            launch!(gpu, f, line(120, 192), &ad, &mut od, &ci, &hi, &wi);
            sync(gpu)
        },
        || {
            let a = black_box(&a[..]);
            let planes = out.par_chunks_mut(h * w).enumerate();
            planes.for_each(|(i, out)| {
                let (c, r, s) = (i / 9, i % 9 / 3, i % 3);
                for (y, out) in out.chunks_exact_mut(w).enumerate() {
                    let row = (y + r).wrapping_sub(1);
                    if row >= h {
                        out.fill(0.0);
                        continue;
                    }
                    let row = &a[(c * h + row) * w..][..w];
                    match s {
                        0 => {
                            out[0] = 0.0;
                            out[1..].copy_from_slice(&row[..w - 1]);
                        }
                        1 => out.copy_from_slice(row),
                        _ => {
                            out[..w - 1].copy_from_slice(&row[1..]);
                            out[w - 1] = 0.0;
                        }
                    }
                }
            });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn yuv(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (1022usize, 768usize);
    let (wi, hi) = (w as i32, h as i32);
    let f = gpu.kernel(name)?;
    let rgb = bytes(w * h * 3, 1);
    let rd = up(gpu, &rgb)?;
    let (mut yd, mut ud) = (zeros::<u8>(gpu, w * h)?, zeros::<u8>(gpu, w * h / 4)?);
    let mut vd = zeros::<u8>(gpu, w * h / 4)?;
    let (mut luma, mut u) = (vec![0u8; w * h], vec![0u8; w * h / 4]);
    let mut v = u.clone();
    let times = race(
        name,
        || {
            let config = gpu.plane(w / 2, h / 2, 32, 8);
            launch!(gpu, f, config, &rd, &mut yd, &mut ud, &mut vd, &wi, &hi);
            sync(gpu)
        },
        || {
            black_box(&rgb[..])
                .par_chunks(w * 6)
                .zip(luma.par_chunks_mut(w * 2))
                .zip(u.par_chunks_mut(w / 2).zip(v.par_chunks_mut(w / 2)))
                .with_min_len(8)
                .for_each(|((rgb, luma), (u, v))| {
                    let pixels = rgb.as_chunks::<3>().0;
                    for (luma, p) in luma.iter_mut().zip(pixels) {
                        let [r, g, b] = p.map(|v| v as i32);
                        *luma = (((66 * r + 129 * g + 25 * b + 128) >> 8) + 16) as u8;
                    }
                    let (top, low) = pixels.split_at(w);
                    let quads = top.as_chunks::<2>().0.iter().zip(low.as_chunks::<2>().0);
                    for ((u, v), (top, low)) in u.iter_mut().zip(v).zip(quads) {
                        let sum = |c: usize| -> i32 {
                            [top[0], top[1], low[0], low[1]]
                                .iter()
                                .map(|p| p[c] as i32)
                                .sum()
                        };
                        let (r, g, b) = (sum(0), sum(1), sum(2));
                        *u = (((-38 * r - 74 * g + 112 * b + 512) >> 10) + 128) as u8;
                        *v = (((112 * r - 94 * g - 18 * b + 512) >> 10) + 128) as u8;
                    }
                });
        },
    )?;
    let checked = check(&down(gpu, &yd)?, &luma, 0.0);
    let checked = checked.and(check(&down(gpu, &ud)?, &u, 0.0));
    times.print(checked.and(check(&down(gpu, &vd)?, &v, 0.0)))
}

fn gauss(gpu: &Gpu, name: &str) -> Outcome<f64> {
    const R: usize = 6;
    let (w, h) = (1023usize, 701usize);
    let (wi, hi) = (w as i32, h as i32);
    let f = gpu.kernel(name)?;
    let taps: [f32; 2 * R + 1] = std::array::from_fn(|i| {
        let x = i as f32 - R as f32;
        (-x * x / 8.0).exp() / 5.0
    });
    set(gpu, "gauss_taps", &taps)?;
    let a = noise(w * h, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<f32>(gpu, w * h)?);
    let mut out = vec![0.0f32; w * h];
    let times = race(
        name,
        || {
            launch!(gpu, f, gpu.plane(w, h, 32, 16), &ad, &mut od, &wi, &hi);
            sync(gpu)
        },
        || {
            let a = black_box(&a[..]);
            let rows = out.par_chunks_mut(w).enumerate().with_min_len(16);
            rows.for_each_init(
                || vec![0.0f32; w + 2 * R],
                |mid, (y, out)| {
                    let inner = &mut mid[R..R + w];
                    inner.fill(0.0);
                    for (i, t) in taps.iter().enumerate() {
                        let row = (y + i).saturating_sub(R).min(h - 1);
                        let row = &a[row * w..][..w];
                        inner.iter_mut().zip(row).for_each(|(m, v)| *m += t * v);
                    }
                    let (first, last) = (inner[0], inner[w - 1]);
                    mid[..R].fill(first);
                    mid[R + w..].fill(last);
                    out.fill(0.0);
                    for (i, t) in taps.iter().enumerate() {
                        out.iter_mut().zip(&mid[i..]).for_each(|(o, m)| *o += t * m);
                    }
                },
            );
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 1e-5))
}

fn integral(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (1001usize, 803usize);
    let (wi, hi) = (w as i32, h as i32);
    let (rows, columns) = (gpu.kernel(name)?, gpu.kernel("integral_columns")?);
    let a = bytes(w * h, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<u32>(gpu, w * h)?);
    let mut out = vec![0u32; w * h];
    let times = race(
        name,
        || {
            launch!(gpu, rows, line(h.div_ceil(4), 128), &ad, &mut od, &wi, &hi);
            launch!(gpu, columns, gpu.cover(w, 128), &mut od, &wi, &hi);
            sync(gpu)
        },
        || {
            out.par_chunks_mut(w)
                .zip(black_box(&a[..]).par_chunks(w))
                .with_min_len(16)
                .for_each(|(out, row)| {
                    let mut sum = 0;
                    for (out, &v) in out.iter_mut().zip(row) {
                        sum += v as u32;
                        *out = sum;
                    }
                });
            let mut rows = out.chunks_exact_mut(w);
            let mut above = rows.next().unwrap();
            for row in rows {
                row.iter_mut().zip(&*above).for_each(|(v, a)| *v += a);
                above = row;
            }
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn stencil27(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (nx, ny, nz) = (131usize, 97usize, 83usize);
    let (xi, yi, zi) = (nx as i32, ny as i32, nz as i32);
    let f = gpu.kernel(name)?;
    let a = noise(nx * ny * nz, 1);
    let c = [0.3f32, 0.06, 0.02, 0.01];
    let cd = Float4(c);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<f32>(gpu, a.len())?);
    let mut out = vec![0.0f32; a.len()];
    let times = race(
        name,
        || {
            let blocks = (
                (nx - 2).div_ceil(32),
                (ny - 2).div_ceil(4),
                (nz - 2).div_ceil(2),
            );
            let config = shape(blocks, (32, 4, 2));
            launch!(gpu, f, config, &ad, &mut od, &xi, &yi, &zi, &cd);
            sync(gpu)
        },
        || {
            let a = black_box(&a[..]);
            let rows = out.par_chunks_mut(nx).enumerate().with_min_len(32);
            rows.for_each(|(i, out)| {
                let (y, z) = (i % ny, i / ny);
                if y == 0 || z == 0 || y == ny - 1 || z == nz - 1 {
                    return;
                }
                let out = &mut out[1..nx - 1];
                out.fill(0.0);
                for (dz, dy) in (0..3).flat_map(|dz| (0..3).map(move |dy| (dz, dy))) {
                    let row = &a[((z + dz - 1) * ny + y + dy - 1) * nx..][..nx];
                    let off = (dz != 1) as usize + (dy != 1) as usize;
                    let (mid, side) = (c[off], c[off + 1]);
                    for (out, m) in out.iter_mut().zip(row.windows(3)) {
                        *out += side * (m[0] + m[2]) + mid * m[1];
                    }
                }
            });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 1e-5))
}

fn mix3(a: u32, b: u32, c: u32) -> u32 {
    let mut v =
        a.wrapping_mul(0x9e37_79b1) ^ b.wrapping_mul(0x85eb_ca77) ^ c.wrapping_mul(0xc2b2_ae3d);
    v ^= v >> 15;
    v = v.wrapping_mul(0x2c1b_3c6d);
    v ^= v >> 12;
    v = v.wrapping_mul(0x297a_2d39);
    v ^ (v >> 15)
}

fn ising(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (768usize, 514usize);
    let (wi, hi, half) = (w as i32, h as i32, w / 2);
    let f = gpu.kernel(name)?;
    let spins: Vec<i8> = below(2, w * h, 1)
        .iter()
        .map(|&v| 2 * v as i8 - 1)
        .collect();
    let accept: [f32; 5] = std::array::from_fn(|i| (-0.44f32 * (4 * i as i32 - 8) as f32).exp());
    let (mut sd, ad) = (up(gpu, &spins)?, up(gpu, &accept)?);
    // Each colour of the board alone: a step reads one and writes the other.
    let mut boards: [Vec<i8>; 2] = std::array::from_fn(|c| {
        let cells = (0..h).flat_map(|y| (0..half).map(move |k| y * w + 2 * k + (y + c) % 2));
        cells.map(|i| spins[i]).collect()
    });
    let (mut step_gpu, mut step) = (0i32, 0u32);
    let times = race(
        name,
        || {
            for colour in [0i32, 1] {
                step_gpu += 1;
                let config = gpu.plane(half, h, 32, 8);
                launch!(gpu, f, config, &mut sd, &wi, &hi, &colour, &step_gpu, &ad);
            }
            sync(gpu)
        },
        || {
            for colour in [0usize, 1] {
                step += 1;
                let (a, b) = boards.split_at_mut(1);
                let (own, other) = if colour == 0 {
                    (&mut a[0], &b[0])
                } else {
                    (&mut b[0], &a[0])
                };
                let other = black_box(&other[..]);
                let rows = own.par_chunks_mut(half).enumerate().with_min_len(16);
                rows.for_each(|(y, own)| {
                    let row = |y: usize| &other[y % h * half..][..half];
                    let (above, below, mid) = (row(y + h - 1), row(y + 1), row(y));
                    let odd = (y + colour) % 2;
                    // Of the two beside, one has the same place in its row.
                    let mut beside = mid.to_vec();
                    if odd == 0 {
                        beside.rotate_right(1);
                    } else {
                        beside.rotate_left(1);
                    }
                    for (k, s) in own.iter_mut().enumerate() {
                        let sum = above[k] + below[k] + mid[k] + beside[k];
                        let chance = accept[((*s * sum + 4) / 2) as usize];
                        let dice = mix3((2 * k + odd) as u32, y as u32, step) >> 8;
                        if (dice as f32 * (1.0 / 16777216.0)) < chance {
                            *s = -*s;
                        }
                    }
                });
            }
        },
    )?;
    let mut want = vec![0i8; w * h];
    for (i, spin) in want.iter_mut().enumerate() {
        let (x, y) = (i % w, i / w);
        *spin = boards[(x + y) % 2][y * half + x / 2];
    }
    times.print(check(&down(gpu, &sd)?, &want, 0.0))
}

fn lbm(gpu: &Gpu, name: &str) -> Outcome<f64> {
    const CX: [isize; 9] = [0, 1, 0, -1, 0, 1, -1, -1, 1];
    const CY: [isize; 9] = [0, 0, 1, 0, -1, 1, 1, -1, -1];
    let weight: [f32; 9] = std::array::from_fn(|i| match i {
        0 => 4.0 / 9.0,
        1..5 => 1.0 / 9.0,
        _ => 1.0 / 36.0,
    });
    let (w, h, omega) = (303usize, 251usize, 1.1f32);
    let (wi, hi) = (w as i32, h as i32);
    let f = gpu.kernel(name)?;
    let start: Vec<f32> = noise(9 * w * h, 1)
        .iter()
        .enumerate()
        .map(|(i, v)| weight[i / (w * h)] * (1.0 + 0.1 * v))
        .collect();
    let (mut ad, mut bd) = (up(gpu, &start)?, up(gpu, &start)?);
    let (mut from, mut to) = (start.clone(), start);
    let times = race(
        name,
        || {
            let config = gpu.plane(w, h, 32, 8);
            launch!(gpu, f, config, &ad, &mut bd, &wi, &hi, &omega);
            std::mem::swap(&mut ad, &mut bd);
            sync(gpu)
        },
        || {
            let now = black_box(&from[..]);
            let mut planes: Vec<_> = to
                .chunks_exact_mut(w * h)
                .map(|plane| plane.chunks_exact_mut(w))
                .collect();
            let rows: Vec<[&mut [f32]; 9]> = (0..h)
                .map(|_| std::array::from_fn(|i| planes[i].next().unwrap()))
                .collect();
            rows.into_par_iter()
                .enumerate()
                .with_min_len(8)
                .for_each(|(y, mut out)| {
                    for (i, out) in out.iter_mut().enumerate() {
                        let sy = (y + h).wrapping_add_signed(-CY[i]) % h;
                        out.copy_from_slice(&now[(i * h + sy) * w..][..w]);
                        match CX[i] {
                            1 => out.rotate_right(1),
                            -1 => out.rotate_left(1),
                            _ => {}
                        }
                    }
                    let f = out.map(|row| &mut row[..w]);
                    (0..w).for_each(|x| {
                        let v: [f32; 9] = std::array::from_fn(|i| f[i][x]);
                        let rho: f32 = v.iter().sum();
                        let ux = (v[1] - v[3] + v[5] - v[6] - v[7] + v[8]) / rho;
                        let uy = (v[2] - v[4] + v[5] + v[6] - v[7] - v[8]) / rho;
                        let uu = 1.5 * (ux * ux + uy * uy);
                        for i in 0..9 {
                            let cu = 3.0 * (CX[i] as f32 * ux + CY[i] as f32 * uy);
                            let eq = weight[i] * rho * (1.0 + cu + 0.5 * cu * cu - uu);
                            f[i][x] = v[i] + omega * (eq - v[i]);
                        }
                    });
                });
            std::mem::swap(&mut from, &mut to);
        },
    )?;
    times.print(check(&down(gpu, &ad)?, &from, 1e-4))
}

fn fdtd(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h, k) = (701usize, 603usize, 0.5f32);
    let (wi, hi) = (w as i32, h as i32);
    let (fh, fe) = (gpu.kernel(name)?, gpu.kernel("fdtd_e")?);
    let (mut ez, eps) = (noise(w * h, 1), between(1.0, 3.0, w * h, 2));
    let (mut hx, mut hy) = (vec![0.0f32; w * h], vec![0.0f32; w * h]);
    let (mut zd, ed) = (up(gpu, &ez)?, up(gpu, &eps)?);
    let (mut xd, mut yd) = (up(gpu, &hx)?, up(gpu, &hy)?);
    let times = race(
        name,
        || {
            let config = gpu.plane(w, h, 32, 8);
            launch!(gpu, fh, config, &zd, &mut xd, &mut yd, &wi, &hi, &k);
            launch!(gpu, fe, config, &mut zd, &xd, &yd, &ed, &wi, &hi, &k);
            sync(gpu)
        },
        || {
            let field = black_box(&ez[..]);
            hx.par_chunks_mut(w)
                .zip(hy.par_chunks_mut(w))
                .take(h - 1)
                .enumerate()
                .with_min_len(16)
                .for_each(|(y, (hx, hy))| {
                    let (row, below) = (&field[y * w..][..w], &field[(y + 1) * w..]);
                    let fields = hx[..w - 1].iter_mut().zip(&mut hy[..w - 1]);
                    for (((hx, hy), e), b) in fields.zip(row.windows(2)).zip(below) {
                        *hx -= k * (b - e[0]);
                        *hy += k * (e[1] - e[0]);
                    }
                });
            ez.par_chunks_mut(w)
                .enumerate()
                .skip(1)
                .take(h - 2)
                .with_min_len(16)
                .for_each(|(y, ez)| {
                    let i = y * w;
                    let (row, eps) = (&hy[i..i + w], &eps[i + 1..i + w]);
                    let (mid, above) = (&hx[i + 1..i + w], &hx[i + 1 - w..i]);
                    for ((((e, y), x), above), eps) in ez[1..w - 1]
                        .iter_mut()
                        .zip(row.windows(2))
                        .zip(mid)
                        .zip(above)
                        .zip(eps)
                    {
                        *e += k / eps * ((y[1] - y[0]) - (x - above));
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &zd)?, &ez, 1e-3))
}
