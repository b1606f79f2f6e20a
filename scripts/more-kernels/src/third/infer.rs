//! Parts of language models.

use std::hint::black_box;

use cudarc::driver::{DeviceRepr, PushKernelArg};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;

use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("gemv_q8", gemv_q8),
    ("attention_decode", attention),
    ("rope", rope),
    ("swiglu_half", swiglu),
    ("geglu_bf16", geglu),
    ("layernorm_welford", layernorm),
];

#[repr(C)]
#[derive(Clone, Copy)]
struct BlockQ8 {
    d: f16,
    qs: [i8; 32],
}
#[repr(C)]
#[derive(Clone, Copy)]
struct BlockX8 {
    d: f32,
    qs: [i8; 32],
}
// SAFETY: plain numbers, laid out as in C.
unsafe impl DeviceRepr for BlockQ8 {}
// SAFETY: the same.
unsafe impl DeviceRepr for BlockX8 {}

/// In lanes, so that it vectorizes.
fn dot32(a: &[i8; 32], b: &[i8; 32]) -> i32 {
    let products: [i16; 32] = std::array::from_fn(|i| i16::from(a[i]) * i16::from(b[i]));
    let mut sums = [0i32; 8];
    for part in products.as_chunks::<8>().0 {
        for (s, &p) in sums.iter_mut().zip(part) {
            *s += i32::from(p);
        }
    }
    sums.iter().sum()
}

fn gemv_q8(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, blocks) = (4001usize, 130usize);
    let f = gpu.kernel("gemv_q8")?;
    let mut words = words(1);
    let mut some = || std::array::from_fn(|_| words.next().unwrap() as i8);
    let scales = between(0.001, 0.01, rows * blocks, 2);
    let w: Vec<BlockQ8> = scales
        .iter()
        .map(|&d| BlockQ8 {
            d: f16::from_f32(d),
            qs: some(),
        })
        .collect();
    let x: Vec<BlockX8> = scales
        .iter()
        .take(blocks)
        .map(|&d| BlockX8 { d, qs: some() })
        .collect();
    let (wd, xd) = (gpu.stream.clone_htod(&w)?, gpu.stream.clone_htod(&x)?);
    let mut yd = gpu.stream.alloc_zeros::<f32>(rows)?;
    let mut y = vec![0.0f32; rows];
    let times = race(
        name,
        || {
            let (r, b) = (rows as i32, blocks as i32);
            launch!(
                gpu,
                f,
                shape((rows.div_ceil(4), 1, 1), (32, 4, 1)),
                &wd,
                &xd,
                &mut yd,
                &r,
                &b
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            y.par_iter_mut()
                .zip(black_box(&w[..]).par_chunks_exact(blocks))
                .with_min_len(32)
                .for_each(|(y, w)| {
                    *y = w
                        .iter()
                        .zip(&x)
                        .map(|(w, x)| {
                            let dot = dot32(&w.qs, &x.qs);
                            f16::to_f32_const(w.d) * x.d * dot as f32
                        })
                        .sum();
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-3))
}

fn halves(count: usize, seed: u64) -> Vec<f16> {
    noise(count, seed).into_iter().map(f16::from_f32).collect()
}

fn attention(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (heads, length) = (32usize, 1037usize);
    const D: usize = 128;
    let f = gpu.kernel("attention_decode")?;
    let q = noise(heads * D, 1);
    let (k, v) = (halves(heads * length * D, 2), halves(heads * length * D, 3));
    let (qd, kd, vd) = (
        gpu.stream.clone_htod(&q)?,
        gpu.stream.clone_htod(&k)?,
        gpu.stream.clone_htod(&v)?,
    );
    let mut od = gpu.stream.alloc_zeros::<f32>(heads * D)?;
    let mut out = vec![0.0f32; heads * D];
    let scale = 1.0 / (D as f32).sqrt();
    let mut config = line(heads, D);
    config.shared_mem_bytes = length as u32 * 4;
    let times = race(
        name,
        || {
            let l = length as i32;
            launch!(gpu, f, config, &qd, &kd, &vd, &mut od, &l, &scale);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            out.par_chunks_exact_mut(D)
                .zip(black_box(&q[..]).par_chunks_exact(D))
                .zip(k.par_chunks_exact(length * D))
                .zip(v.par_chunks_exact(length * D))
                .for_each(|(((out, q), k), v)| {
                    let mut wide = [0.0f32; D];
                    let mut scores: Vec<f32> = k
                        .chunks_exact(D)
                        .map(|k| {
                            k.convert_to_f32_slice(&mut wide);
                            let mut sums = [0.0f32; 16];
                            for (k, q) in wide.as_chunks::<16>().0.iter().zip(q.as_chunks::<16>().0)
                            {
                                for ((s, k), q) in sums.iter_mut().zip(k).zip(q) {
                                    *s += k * q;
                                }
                            }
                            sums.iter().sum::<f32>() * scale
                        })
                        .collect();
                    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    let mut total = 0.0;
                    for s in &mut scores {
                        *s = (*s - largest).exp();
                        total += *s;
                    }
                    let mut sums = [0.0f32; D];
                    for (p, v) in scores.iter().zip(v.chunks_exact(D)) {
                        v.convert_to_f32_slice(&mut wide);
                        for (s, v) in sums.iter_mut().zip(&wide) {
                            *s += p * v;
                        }
                    }
                    for (out, s) in out.iter_mut().zip(&sums) {
                        *out = s / total;
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 1e-4))
}

fn rope(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (tokens, heads, pairs) = (501usize, 32usize, 64usize);
    let f = gpu.kernel("rope")?;
    let n = tokens * heads * pairs * 2;
    let x = noise(n, 1);
    let positions: Vec<i32> = below(4096, tokens, 2);
    let (xd, pd) = (
        gpu.stream.clone_htod(&x)?,
        gpu.stream.clone_htod(&positions)?,
    );
    let mut od = gpu.stream.alloc_zeros::<f32>(n)?;
    let mut out = vec![0.0f32; n];
    let base = 10000.0f32;
    let times = race(
        name,
        || {
            let [t, h, p] = [tokens, heads, pairs].map(|v| v as i32);
            launch!(
                gpu,
                f,
                shape((tokens.div_ceil(4), 1, 1), (pairs, 4, 1)),
                &xd,
                &mut od,
                &pd,
                &t,
                &h,
                &p,
                &base
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let speeds: Vec<f32> = (0..pairs)
                .map(|i| base.powf(-(i as f32) / pairs as f32))
                .collect();
            let token = heads * pairs * 2;
            out.par_chunks_exact_mut(token)
                .zip(black_box(&x[..]).par_chunks_exact(token))
                .zip(&positions)
                .with_min_len(4)
                .for_each(|((out, x), &position)| {
                    let turns: Vec<(f32, f32)> = speeds
                        .iter()
                        .map(|s| (position as f32 * s).sin_cos())
                        .collect();
                    for (out, x) in out
                        .chunks_exact_mut(pairs * 2)
                        .zip(x.chunks_exact(pairs * 2))
                    {
                        for ((out, x), (s, c)) in out
                            .as_chunks_mut::<2>()
                            .0
                            .iter_mut()
                            .zip(x.as_chunks::<2>().0)
                            .zip(&turns)
                        {
                            *out = [x[0] * c - x[1] * s, x[0] * s + x[1] * c];
                        }
                    }
                });
        },
    )?;
    // At 4000 radians, an ulp of the angle is 2.4e-4, and powers may differ by one or two.
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 3e-3))
}

fn swiglu(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (301usize, 2818usize);
    let f = gpu.kernel("swiglu_half")?;
    let x: Vec<f16> = between(-6.0, 6.0, rows * cols * 2, 1)
        .into_iter()
        .map(f16::from_f32)
        .collect();
    let xd = gpu.stream.clone_htod(&x)?;
    let mut od = gpu.stream.alloc_zeros::<f16>(rows * cols)?;
    let mut out = vec![f16::ZERO; rows * cols];
    let times = race(
        name,
        || {
            let c = cols as i32;
            launch!(gpu, f, line(rows, 256), &xd, &mut od, &c);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            out.par_chunks_exact_mut(cols)
                .zip(black_box(&x[..]).par_chunks_exact(2 * cols))
                .with_min_len(4)
                .for_each_init(
                    || vec![0.0f32; 2 * cols],
                    |wide, (out, x)| {
                        x.convert_to_f32_slice(wide);
                        let (gate, up) = wide.split_at_mut(cols);
                        for (g, u) in gate.iter_mut().zip(up) {
                            *g = *g / (1.0 + (-*g).exp()) * *u;
                        }
                        out.convert_from_f32_slice(gate);
                    },
                );
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 1e-3))
}

fn geglu(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 1_000_003usize;
    let f = gpu.kernel("geglu_bf16")?;
    let short = |seed| -> Vec<bf16> {
        between(-4.0, 4.0, n, seed)
            .into_iter()
            .map(bf16::from_f32)
            .collect()
    };
    let (gate, up) = (short(1), short(2));
    let (gd, ud) = (gpu.stream.clone_htod(&gate)?, gpu.stream.clone_htod(&up)?);
    let mut od = gpu.stream.alloc_zeros::<bf16>(n)?;
    let mut out = vec![bf16::ZERO; n];
    let times = race(
        name,
        || {
            let ni = n as i32;
            launch!(gpu, f, gpu.cover(n, 192), &gd, &ud, &mut od, &ni);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            out.par_iter_mut()
                .zip(black_box(&gate))
                .zip(&up)
                .with_min_len(1 << 12)
                .for_each(|((out, g), u)| {
                    let (x, u) = (g.to_f32(), u.to_f32());
                    let t = (0.797_884_6 * x * (1.0 + 0.044715 * x * x)).tanh();
                    *out = bf16::from_f32(0.5 * x * (1.0 + t) * u);
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 1e-2))
}

fn layernorm(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (2003usize, 1100usize);
    let f = gpu.kernel("layernorm_welford")?;
    let (x, gamma, beta) = (
        between(-1.0, 3.0, rows * cols, 1),
        noise(cols, 2),
        noise(cols, 3),
    );
    let (xd, gd, bd) = (
        gpu.stream.clone_htod(&x)?,
        gpu.stream.clone_htod(&gamma)?,
        gpu.stream.clone_htod(&beta)?,
    );
    let mut yd = gpu.stream.alloc_zeros::<f32>(rows * cols)?;
    let mut y = vec![0.0f32; rows * cols];
    let eps = 1e-5f32;
    let times = race(
        name,
        || {
            launch!(gpu, f, line(rows, 32), &xd, &gd, &bd, &mut yd, &cols, &eps);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            y.par_chunks_exact_mut(cols)
                .zip(black_box(&x[..]).par_chunks_exact(cols))
                .with_min_len(16)
                .for_each(|(y, x)| {
                    let mean = lanes(x, |v| v) / cols as f32;
                    let variance = lanes(x, |v| (v - mean) * (v - mean)) / cols as f32;
                    let scale = 1.0 / (variance + eps).sqrt();
                    for (((y, x), g), b) in y.iter_mut().zip(x).zip(&gamma).zip(&beta) {
                        *y = (x - mean) * scale * g + b;
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-4))
}

/// A sum in 16 lanes.
fn lanes(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let (chunks, rest) = x.as_chunks::<16>();
    let mut sums = [0.0f32; 16];
    for x in chunks {
        for (s, &x) in sums.iter_mut().zip(x) {
            *s += f(x);
        }
    }
    sums.iter().sum::<f32>() + rest.iter().map(|&x| f(x)).sum::<f32>()
}
