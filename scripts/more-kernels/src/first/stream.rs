//! What each thread does by itself.

use std::hint::black_box;

use cudarc::driver::PushKernelArg;
use rayon::prelude::*;

use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("saxpy4", saxpy4),
    ("triad_gs", triad),
    ("bias_gelu", bias_gelu),
    ("rgb_to_gray", gray),
    ("embedding_gather", gather),
    ("black_scholes_f64", black_scholes),
    ("mandel_smooth", mandel),
    ("julia", julia),
    ("monte_carlo_pi", pi),
    ("kmeans_assign", kmeans),
];

fn saxpy4(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n: usize = 8_000_003;
    let f = gpu.kernel("saxpy4")?;
    let (x, mut y) = (noise(n, 1), noise(n, 2));
    let (xd, mut yd) = (gpu.stream.clone_htod(&x)?, gpu.stream.clone_htod(&y)?);
    let a = 0.01f32;
    let times = race(
        name,
        || {
            let (n4, n) = (n / 4, n as i32);
            launch!(
                gpu,
                f,
                line((n4 + 1).div_ceil(256), 256),
                &n,
                &a,
                &xd,
                &mut yd
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let a = black_box(a);
            y.par_iter_mut()
                .zip(&x)
                .with_min_len(1 << 14)
                .for_each(|(y, x)| *y += a * *x);
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-4))
}

fn triad(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n: usize = 4_000_037;
    let f = gpu.kernel("triad_gs")?;
    let (b, c) = (noise64(n, 1), noise64(n, 2));
    let (bd, cd) = (gpu.stream.clone_htod(&b)?, gpu.stream.clone_htod(&c)?);
    let mut ad = gpu.stream.alloc_zeros::<f64>(n)?;
    let mut a = vec![0.0f64; n];
    let s = 3.0f64;
    let times = race(
        name,
        || {
            launch!(gpu, f, line(264, 256), &mut ad, &bd, &cd, &s, &n);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let s = black_box(s);
            (&mut a, &b, &c)
                .into_par_iter()
                .with_min_len(1 << 14)
                .for_each(|(a, b, c)| *a = b + s * c);
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&ad)?, &a, 1e-12))
}

fn bias_gelu(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (1300usize, 777usize);
    let n = rows * cols;
    let f = gpu.kernel("bias_gelu")?;
    let (x, bias) = (between(-4.0, 4.0, n, 1), noise(cols, 2));
    let (xd, bd) = (gpu.stream.clone_htod(&x)?, gpu.stream.clone_htod(&bias)?);
    let mut od = gpu.stream.alloc_zeros::<f32>(n)?;
    let mut out = vec![0.0f32; n];
    let times = race(
        name,
        || {
            let (n, cols) = (n as i32, cols as i32);
            launch!(gpu, f, line(512, 256), &xd, &bd, &mut od, &n, &cols);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            out.par_chunks_mut(cols)
                .zip(black_box(&x).par_chunks(cols))
                .with_min_len(8)
                .for_each(|(out, x)| {
                    for ((out, x), bias) in out.iter_mut().zip(x).zip(&bias) {
                        let v = x + bias;
                        let t = 0.797_884_6 * (v + 0.044715 * v * v * v);
                        *out = 0.5 * v * (1.0 + t.tanh());
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 1e-5))
}

fn gray(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (3001usize, 2001usize);
    let f = gpu.kernel("rgb_to_gray")?;
    let input: Vec<u8> = words(1).take(w * h * 3).map(|w| w as u8).collect();
    let ind = gpu.stream.clone_htod(&input)?;
    let mut od = gpu.stream.alloc_zeros::<u8>(w * h)?;
    let mut out = vec![0u8; w * h];
    let times = race(
        name,
        || {
            let (wi, hi) = (w as i32, h as i32);
            launch!(gpu, f, gpu.plane(w, h, 16, 16), &ind, &mut od, &wi, &hi);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let (pixels, _) = black_box(&input[..]).as_chunks::<3>();
            out.par_iter_mut()
                .zip(pixels)
                .with_min_len(1 << 14)
                .for_each(|(out, p)| {
                    *out = (0.299 * p[0] as f32 + 0.587 * p[1] as f32 + 0.114 * p[2] as f32) as u8
                });
        },
    )?;
    // Fused products round otherwise.
    let got: Vec<u32> = gpu
        .stream
        .clone_dtoh(&od)?
        .into_iter()
        .map(u32::from)
        .collect();
    let want: Vec<u32> = out.into_iter().map(u32::from).collect();
    times.print(check_some(&got, &want, 0.0, 1e-3))
}

fn gather(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (vocab, dim, tokens) = (30_000usize, 300usize, 20_001usize);
    let f = gpu.kernel("embedding_gather")?;
    let (table, ids) = (noise(vocab * dim, 1), below(vocab as u32, tokens, 2));
    let (td, id) = (gpu.stream.clone_htod(&table)?, gpu.stream.clone_htod(&ids)?);
    let mut od = gpu.stream.alloc_zeros::<f32>(tokens * dim)?;
    let mut out = vec![0.0f32; tokens * dim];
    let times = race(
        name,
        || {
            let d = dim as i32;
            launch!(gpu, f, line(tokens, 128), &td, &id, &mut od, &d);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let table = black_box(&table[..]);
            out.par_chunks_mut(dim)
                .zip(&ids)
                .with_min_len(64)
                .for_each(|(out, &id)| out.copy_from_slice(&table[id as usize * dim..][..dim]));
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 0.0))
}

fn cnd(d: f64) -> f64 {
    let k = 1.0 / (1.0 + 0.2316419 * d.abs());
    let series = k
        * (0.31938153
            + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))));
    let c = 0.398_942_280_401_432_7 * (-0.5 * d * d).exp() * series;
    if d > 0.0 { 1.0 - c } else { c }
}

fn black_scholes(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n: usize = 500_009;
    let f = gpu.kernel("black_scholes_f64")?;
    let wide = |v: Vec<f32>| v.into_iter().map(f64::from).collect::<Vec<f64>>();
    let (s, x, t) = (
        wide(between(5.0, 30.0, n, 1)),
        wide(between(1.0, 100.0, n, 2)),
        wide(between(0.25, 10.0, n, 3)),
    );
    let (sd, xd, td) = (
        gpu.stream.clone_htod(&s)?,
        gpu.stream.clone_htod(&x)?,
        gpu.stream.clone_htod(&t)?,
    );
    let (mut cd, mut pd) = (
        gpu.stream.alloc_zeros::<f64>(n)?,
        gpu.stream.alloc_zeros::<f64>(n)?,
    );
    let (mut call, mut put) = (vec![0.0f64; n], vec![0.0f64; n]);
    let (r, v) = (0.02f64, 0.3f64);
    let times = race(
        name,
        || {
            let ni = n as i32;
            launch!(
                gpu,
                f,
                gpu.cover(n, 128),
                &mut cd,
                &mut pd,
                &sd,
                &xd,
                &td,
                &r,
                &v,
                &ni
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let v = black_box(v);
            (&s, &x, &t, &mut call, &mut put)
                .into_par_iter()
                .with_min_len(1 << 12)
                .for_each(|(&s, &x, &t, call, put)| {
                    let sq = t.sqrt();
                    let d1 = ((s / x).ln() + (r + 0.5 * v * v) * t) / (v * sq);
                    let (n1, n2) = (cnd(d1), cnd(d1 - v * sq));
                    let e = x * (-r * t).exp();
                    *call = s * n1 - e * n2;
                    *put = e * (1.0 - n2) - s * (1.0 - n1);
                });
        },
    )?;
    let checked = check(&gpu.stream.clone_dtoh(&cd)?, &call, 1e-11)
        .and_then(|()| check(&gpu.stream.clone_dtoh(&pd)?, &put, 1e-11));
    times.print(checked)
}

/// Eight points at once: how many steps each goes, and where it was then.
fn smooth(cx: [f64; 8], cy: f64, limit: u32) -> [f32; 8] {
    let (mut x, mut y, mut count) = ([0.0f64; 8], [0.0f64; 8], [0u64; 8]);
    for _ in 0..limit {
        let mut inside = 0;
        for i in 0..8 {
            let (xx, yy) = (x[i] * x[i], y[i] * y[i]);
            let stays = xx + yy < 256.0;
            let (nx, ny) = (xx - yy + cx[i], 2.0 * x[i] * y[i] + cy);
            x[i] = if stays { nx } else { x[i] };
            y[i] = if stays { ny } else { y[i] };
            count[i] += u64::from(stays);
            inside |= u64::from(stays);
        }
        if inside == 0 {
            break;
        }
    }
    std::array::from_fn(|i| {
        if count[i] < u64::from(limit) {
            let r2 = (x[i] * x[i] + y[i] * y[i]) as f32;
            (count[i] + 1) as f32 - (0.5 * r2.log2()).log2()
        } else {
            count[i] as f32
        }
    })
}

fn mandel(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h, limit) = (640usize, 500usize, 200i32);
    let f = gpu.kernel("mandel_smooth")?;
    let (x0, y0, scale) = (-2.2f64, -1.25f64, 0.005f64);
    let mut od = gpu.stream.alloc_zeros::<f32>(w * h)?;
    let mut out = vec![0.0f32; w * h];
    let times = race(
        name,
        || {
            let (wi, hi) = (w as i32, h as i32);
            let config = gpu.plane(w, h, 16, 16);
            launch!(gpu, f, config, &mut od, &wi, &hi, &x0, &y0, &scale, &limit);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let scale = black_box(scale);
            out.par_chunks_mut(w).enumerate().for_each(|(py, out)| {
                let cy = y0 + py as f64 * scale;
                let (groups, _) = out.as_chunks_mut::<8>();
                for (g, out) in groups.iter_mut().enumerate() {
                    *out = smooth(
                        std::array::from_fn(|i| x0 + (8 * g + i) as f64 * scale),
                        cy,
                        limit as u32,
                    );
                }
            });
        },
    )?;
    times.print(check_some(&gpu.stream.clone_dtoh(&od)?, &out, 1e-3, 0.01))
}

fn julia_steps(mut x: [f32; 16], mut y: [f32; 16], cr: f32, ci: f32) -> [u32; 16] {
    let mut count = [0u32; 16];
    for _ in 0..200 {
        let mut inside = 0;
        for i in 0..16 {
            let (xx, yy) = (x[i] * x[i], y[i] * y[i]);
            let stays = u32::from(xx + yy <= 4.0);
            count[i] += stays;
            inside |= stays;
            y[i] = 2.0 * x[i] * y[i] + ci;
            x[i] = xx - yy + cr;
        }
        if inside == 0 {
            break;
        }
    }
    count
}

fn julia(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (1200usize, 801usize);
    let f = gpu.kernel("julia")?;
    let (cr, ci) = (-0.8f32, 0.156f32);
    let mut od = gpu.stream.alloc_zeros::<u32>(w * h)?;
    let mut out = vec![0u32; w * h];
    let times = race(
        name,
        || {
            let (wi, hi) = (w as i32, h as i32);
            launch!(gpu, f, gpu.plane(w, h, 32, 8), &mut od, &wi, &hi, &cr, &ci);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let (cr, ci) = black_box((cr, ci));
            out.par_chunks_mut(w).enumerate().for_each(|(py, out)| {
                let zi = (py as i32 - h as i32 / 2) as f32 / (0.5 * h as f32);
                let (groups, _) = out.as_chunks_mut::<16>();
                for (g, out) in groups.iter_mut().enumerate() {
                    let zr = std::array::from_fn(|i| {
                        1.5 * ((16 * g + i) as i32 - w as i32 / 2) as f32 / (0.5 * w as f32)
                    });
                    let counts = julia_steps(zr, [zi; 16], cr, ci);
                    for (out, count) in out.iter_mut().zip(counts) {
                        let shade = 255 * count / 200;
                        *out =
                            0xff00_0000 | shade << 16 | ((shade * shade) >> 8) << 8 | (255 - shade);
                    }
                }
            });
        },
    )?;
    times.print(check_some(&gpu.stream.clone_dtoh(&od)?, &out, 0.0, 0.05))
}

fn pi(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (threads, samples, seed) = (40_192usize, 100i32, 12345u32);
    let f = gpu.kernel("monte_carlo_pi")?;
    let mut hd = gpu.stream.alloc_zeros::<u64>(1)?;
    let mut hits = 0u64;
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut hd)?;
            launch!(gpu, f, line(threads / 256, 256), &mut hd, &samples, &seed);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let seed = black_box(seed);
            hits = (0..threads / 16)
                .into_par_iter()
                .with_min_len(16)
                .map(|group| {
                    let mut state: [u32; 16] = std::array::from_fn(|i| {
                        let s =
                            seed.wrapping_add(((16 * group + i) as u32).wrapping_mul(2654435761));
                        if s == 0 { 1 } else { s }
                    });
                    let mut inside = [0u32; 16];
                    for _ in 0..samples {
                        for i in 0..16 {
                            let mut next = || {
                                let mut s = state[i];
                                s ^= s << 13;
                                s ^= s >> 17;
                                s ^= s << 5;
                                state[i] = s;
                                (s >> 8) as i32 as f32 * (1.0 / 16777216.0)
                            };
                            let (x, y) = (next(), next());
                            inside[i] += u32::from(x * x + y * y <= 1.0);
                        }
                    }
                    inside.iter().map(|&i| u64::from(i)).sum::<u64>()
                })
                .sum();
        },
    )?;
    let got = gpu.stream.clone_dtoh(&hd)?[0] as f64;
    times.print(check(&[got], &[hits as f64], 1e-6))
}

fn kmeans(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (n, k, dims) = (300_017usize, 32usize, 4usize);
    let f = gpu.kernel("kmeans_assign")?;
    let (points, centers) = (noise(n * dims, 1), noise(k * dims, 2));
    let (pd, cd) = (
        gpu.stream.clone_htod(&points)?,
        gpu.stream.clone_htod(&centers)?,
    );
    let mut od = gpu.stream.alloc_zeros::<i32>(n)?;
    let mut out = vec![0i32; n];
    let times = race(
        name,
        || {
            let ni = n as i32;
            launch!(gpu, f, gpu.cover(n, 256), &pd, &cd, &mut od, &ni);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let points = black_box(&points[..]);
            let (centers, _) = centers.as_chunks::<4>();
            let column = |d: usize| &points[d * n..(d + 1) * n];
            out.par_chunks_mut(1024)
                .enumerate()
                .for_each(|(chunk, out)| {
                    let part: [&[f32]; 4] =
                        std::array::from_fn(|d| &column(d)[chunk * 1024..][..out.len()]);
                    let mut best = [f32::MAX; 1024];
                    let best = &mut best[..out.len()];
                    for (which, c) in centers.iter().enumerate() {
                        for (i, (best, out)) in best.iter_mut().zip(out.iter_mut()).enumerate() {
                            let diff: [f32; 4] = std::array::from_fn(|d| part[d][i] - c[d]);
                            let dist = diff[0] * diff[0]
                                + diff[1] * diff[1]
                                + diff[2] * diff[2]
                                + diff[3] * diff[3];
                            *out = if dist < *best { which as i32 } else { *out };
                            *best = if dist < *best { dist } else { *best };
                        }
                    }
                });
        },
    )?;
    times.print(check_some(&gpu.stream.clone_dtoh(&od)?, &out, 0.0, 1e-4))
}
