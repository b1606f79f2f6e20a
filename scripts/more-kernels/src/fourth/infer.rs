//! Parts of language models, and of their training.

use std::hint::black_box;

use cudarc::driver::PushKernelArg;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;

use super::{down, sync, up, zeros};
use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("add_rms_norm", add_rms_norm),
    ("rope_halves", rope_halves),
    ("gemm_i8_dp4a", gemm_i8),
    ("gemv_half_warp", gemv_half),
    ("gemv_int4_groups", gemv_int4),
    ("topk_rows", topk),
    ("argmax_half", argmax),
    ("kv_append", kv_append),
    ("attention_warp", attention),
    ("layer_norm_grad", layer_norm_grad),
    ("cross_entropy", cross_entropy),
    ("embed_positions", embed),
    ("silu_gate_bf16", silu_gate),
    ("adam_step", adam),
    ("causal_softmax", causal_softmax),
];

fn halves(count: usize, seed: u64) -> Vec<f16> {
    noise(count, seed).into_iter().map(f16::from_f32).collect()
}

/// A dot product, several sums at a time.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    let mut sums = [0.0f32; 16];
    for (a, b) in a.iter().zip(b) {
        sums.iter_mut()
            .zip(a.iter().zip(b))
            .for_each(|(s, (a, b))| *s += a * b);
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

fn most(values: &[f32]) -> f32 {
    let (parts, rest) = values.as_chunks::<16>();
    let mut most = [f32::NEG_INFINITY; 16];
    for part in parts {
        for (most, &v) in most.iter_mut().zip(part) {
            *most = if v > *most { v } else { *most };
        }
    }
    most.iter()
        .chain(rest)
        .copied()
        .fold(f32::NEG_INFINITY, f32::max)
}

fn add_rms_norm(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols, eps) = (401usize, 1536usize, 1e-5f32);
    let pairs = cols as i32 / 2;
    let f = gpu.kernel(name)?;
    let (x, residual, gamma) = (
        halves(rows * cols, 1),
        halves(rows * cols, 2),
        halves(cols, 3),
    );
    let (xd, rd, gd) = (up(gpu, &x)?, up(gpu, &residual)?, up(gpu, &gamma)?);
    let (mut sd, mut od) = (zeros::<f16>(gpu, x.len())?, zeros::<f16>(gpu, x.len())?);
    let (mut sums, mut out) = (vec![f16::ZERO; x.len()], vec![f16::ZERO; x.len()]);
    let mut config = line(rows, 256);
    config.shared_mem_bytes = cols as u32 * 4;
    let times = race(
        name,
        || {
            launch!(
                gpu, f, config, &xd, &rd, &gd, &mut sd, &mut od, &pairs, &eps
            );
            sync(gpu)
        },
        || {
            let mut scales = vec![0.0f32; cols];
            gamma.convert_to_f32_slice(&mut scales);
            black_box(&x[..])
                .par_chunks(cols)
                .zip(residual.par_chunks(cols))
                .zip(sums.par_chunks_mut(cols).zip(out.par_chunks_mut(cols)))
                .for_each_init(
                    || [vec![0.0f32; cols], vec![0.0f32; cols]],
                    |[a, b], ((x, residual), (sums, out))| {
                        x.convert_to_f32_slice(a);
                        residual.convert_to_f32_slice(b);
                        a.iter_mut().zip(&*b).for_each(|(a, b)| *a += b);
                        sums.convert_from_f32_slice(a);
                        let scale = 1.0 / (dot(a, a) / cols as f32 + eps).sqrt();
                        a.iter_mut().zip(&scales).for_each(|(a, g)| *a *= scale * g);
                        out.convert_from_f32_slice(a);
                    },
                );
        },
    )?;
    let checked = check(&down(gpu, &sd)?, &sums, 0.0);
    times.print(checked.and(check(&down(gpu, &od)?, &out, 2e-3)))
}

fn rope_halves(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (tokens, heads, half, length) = (301usize, 16usize, 64usize, 1024usize);
    let (hi, di) = (heads as i32, half as i32);
    let f = gpu.kernel(name)?;
    let x = halves(tokens * heads * half * 2, 1);
    let angles = between(-3.0, 3.0, length * half, 2);
    let (cosines, sines): (Vec<f32>, Vec<f32>) = angles.iter().map(|a| (a.cos(), a.sin())).unzip();
    let positions = below(length as u32, tokens, 3);
    let (xd, cd, sd) = (up(gpu, &x)?, up(gpu, &cosines)?, up(gpu, &sines)?);
    let (pd, mut od) = (up(gpu, &positions)?, zeros::<f16>(gpu, x.len())?);
    let mut out = vec![f16::ZERO; x.len()];
    let times = race(
        name,
        || {
            launch!(
                gpu,
                f,
                line(tokens, 256),
                &xd,
                &mut od,
                &cd,
                &sd,
                &pd,
                &hi,
                &di
            );
            sync(gpu)
        },
        || {
            let row = heads * half * 2;
            out.par_chunks_mut(row)
                .zip(black_box(&x[..]).par_chunks(row))
                .zip(&positions)
                .for_each_init(
                    || vec![0.0f32; row],
                    |values, ((out, x), &position)| {
                        x.convert_to_f32_slice(values);
                        let at = position as usize * half;
                        let (c, s) = (&cosines[at..at + half], &sines[at..at + half]);
                        for head in values.chunks_exact_mut(half * 2) {
                            let (a, b) = head.split_at_mut(half);
                            for (((a, b), c), s) in a.iter_mut().zip(b).zip(c).zip(s) {
                                (*a, *b) = (*a * c - *b * s, *b * c + *a * s);
                            }
                        }
                        out.convert_from_f32_slice(values);
                    },
                );
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 2e-3))
}

fn gemm_i8(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (m, n, k) = (250usize, 247usize, 516usize);
    let (mi, ni, wi) = (m as i32, n as i32, k as i32 / 4);
    let f = gpu.kernel(name)?;
    let ints = |count, seed| -> Vec<i8> {
        let values = below(255, count, seed).into_iter();
        values.map(|v| (v - 127) as i8).collect()
    };
    let (a, b) = (ints(m * k, 1), ints(n * k, 2));
    let (ad, bd, mut cd) = (up(gpu, &a)?, up(gpu, &b)?, zeros::<i32>(gpu, m * n)?);
    let mut c = vec![0i32; m * n];
    let times = race(
        name,
        || {
            let config = gpu.plane(n, m, 16, 16);
            launch!(gpu, f, config, &ad, &bd, &mut cd, &mi, &ni, &wi);
            sync(gpu)
        },
        || {
            let wide: Vec<i16> = b.iter().map(|&v| v as i16).collect();
            c.par_chunks_mut(n)
                .zip(black_box(&a[..]).par_chunks(k))
                .with_min_len(4)
                .for_each(|(c, a)| {
                    let a: Vec<i16> = a.iter().map(|&v| v as i16).collect();
                    for (c, b) in c.iter_mut().zip(wide.chunks_exact(k)) {
                        *c = a.iter().zip(b).map(|(&a, &b)| a as i32 * b as i32).sum();
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &cd)?, &c, 0.0))
}

fn gemv_half(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (1027usize, 1024usize);
    let (ri, ci) = (rows as i32, cols as i32);
    let f = gpu.kernel(name)?;
    let (w, x) = (halves(rows * cols, 1), halves(cols, 2));
    let (wd, xd, mut yd) = (up(gpu, &w)?, up(gpu, &x)?, zeros::<f32>(gpu, rows)?);
    let mut y = vec![0.0f32; rows];
    let times = race(
        name,
        || {
            let config = shape((rows.div_ceil(4), 1, 1), (32, 4, 1));
            launch!(gpu, f, config, &wd, &xd, &mut yd, &ri, &ci);
            sync(gpu)
        },
        || {
            let mut vector = vec![0.0f32; cols];
            x.convert_to_f32_slice(&mut vector);
            y.par_iter_mut()
                .zip(black_box(&w[..]).par_chunks(cols))
                .with_min_len(16)
                .for_each_init(
                    || vec![0.0f32; cols],
                    |row, (y, w)| {
                        w.convert_to_f32_slice(row);
                        *y = dot(row, &vector);
                    },
                );
        },
    )?;
    times.print(check(&down(gpu, &yd)?, &y, 1e-4))
}

fn gemv_int4(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (1027usize, 2048usize);
    let ci = cols as i32;
    let f = gpu.kernel(name)?;
    let w: Vec<u32> = words(1).take(rows * cols / 8).map(|w| w as u32).collect();
    let (scales, x) = (halves(rows * cols / 64, 2), noise(cols, 3));
    let (wd, sd, xd) = (up(gpu, &w)?, up(gpu, &scales)?, up(gpu, &x)?);
    let mut yd = zeros::<f32>(gpu, rows)?;
    let mut y = vec![0.0f32; rows];
    let times = race(
        name,
        || {
            launch!(gpu, f, line(rows, 128), &wd, &sd, &xd, &mut yd, &ci);
            sync(gpu)
        },
        || {
            y.par_iter_mut()
                .zip(black_box(&w[..]).par_chunks(cols / 8))
                .zip(scales.par_chunks(cols / 64))
                .with_min_len(16)
                .for_each(|((y, w), scales)| {
                    let groups = w.as_chunks::<8>().0.iter().zip(x.as_chunks::<64>().0);
                    *y = groups
                        .zip(scales)
                        .map(|((w, x), scale)| {
                            let mut sums = [0.0f32; 8];
                            for (w, x) in w.iter().zip(x.as_chunks::<8>().0) {
                                for (j, (s, x)) in sums.iter_mut().zip(x).enumerate() {
                                    *s += ((w >> (4 * j) & 15) as i32 - 8) as f32 * x;
                                }
                            }
                            sums.iter().sum::<f32>() * scale.to_f32()
                        })
                        .sum();
                });
        },
    )?;
    times.print(check(&down(gpu, &yd)?, &y, 1e-4))
}

fn topk(gpu: &Gpu, name: &str) -> Outcome<f64> {
    const K: usize = 8;
    let (rows, cols) = (201usize, 1003usize);
    let (ci, ki) = (cols as i32, K as i32);
    let f = gpu.kernel(name)?;
    let a = noise(rows * cols, 1);
    let (ad, mut vd) = (up(gpu, &a)?, zeros::<f32>(gpu, rows * K)?);
    let mut id = zeros::<i32>(gpu, rows * K)?;
    let (mut values, mut indices) = (vec![0.0f32; rows * K], vec![0i32; rows * K]);
    let mut config = line(rows, 32);
    config.shared_mem_bytes = cols as u32 * 4;
    let times = race(
        name,
        || {
            launch!(gpu, f, config, &ad, &mut vd, &mut id, &ci, &ki);
            sync(gpu)
        },
        || {
            values
                .par_chunks_mut(K)
                .zip(indices.par_chunks_mut(K))
                .zip(black_box(&a[..]).par_chunks(cols))
                .with_min_len(8)
                .for_each(|((values, indices), row)| {
                    let mut best = [(f32::NEG_INFINITY, 0i32); K];
                    for (i, &v) in row.iter().enumerate() {
                        if v > best[K - 1].0 {
                            let at = best.iter().position(|b| v > b.0).unwrap();
                            best[at..].rotate_right(1);
                            best[at] = (v, i as i32);
                        }
                    }
                    for ((v, i), best) in values.iter_mut().zip(indices).zip(best) {
                        (*v, *i) = best;
                    }
                });
        },
    )?;
    let checked = check(&down(gpu, &vd)?, &values, 0.0);
    times.print(checked.and(check(&down(gpu, &id)?, &indices, 0.0)))
}

fn argmax(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (300usize, 4003usize);
    let ci = cols as i32;
    let f = gpu.kernel(name)?;
    let a = halves(rows * cols, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<i32>(gpu, rows)?);
    let mut out = vec![0i32; rows];
    let times = race(
        name,
        || {
            launch!(gpu, f, line(rows, 256), &ad, &mut od, &ci);
            sync(gpu)
        },
        || {
            out.par_iter_mut()
                .zip(black_box(&a[..]).par_chunks(cols))
                .with_min_len(4)
                .for_each_init(
                    || vec![0.0f32; cols],
                    |row, (out, a)| {
                        a.convert_to_f32_slice(row);
                        let most = most(row);
                        *out = row.iter().position(|&v| v == most).unwrap() as i32;
                    },
                );
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn kv_append(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (tokens, heads, dim, slots) = (503usize, 12usize, 64usize, 2048usize);
    let (hi, di, n) = (heads as i32, dim as i32, heads * dim);
    let f = gpu.kernel(name)?;
    let qkv = halves(tokens * 3 * n, 1);
    // No two tokens have the same slot, and some have none.
    let at: Vec<i32> = (0..tokens as i32)
        .map(|t| if t % 7 == 3 { -1 } else { t * 5 % slots as i32 })
        .collect();
    let (qd, sd) = (up(gpu, &qkv)?, up(gpu, &at)?);
    let (mut kd, mut vd) = (zeros::<f16>(gpu, slots * n)?, zeros::<f16>(gpu, slots * n)?);
    let mut keys = vec![f16::ZERO; slots * n];
    let mut values = keys.clone();
    let times = race(
        name,
        || {
            launch!(
                gpu,
                f,
                line(tokens, 256),
                &qd,
                &mut kd,
                &mut vd,
                &sd,
                &hi,
                &di
            );
            sync(gpu)
        },
        || {
            let qkv = black_box(&qkv[..]);
            let copy = |to: &mut [f16], part: usize| {
                for (token, &slot) in qkv.chunks_exact(3 * n).zip(&at) {
                    if slot >= 0 {
                        let to = &mut to[slot as usize * n..][..n];
                        to.copy_from_slice(&token[part * n..][..n]);
                    }
                }
            };
            rayon::join(|| copy(&mut keys, 1), || copy(&mut values, 2));
        },
    )?;
    let checked = check(&down(gpu, &kd)?, &keys, 0.0);
    times.print(checked.and(check(&down(gpu, &vd)?, &values, 0.0)))
}

fn attention(gpu: &Gpu, name: &str) -> Outcome<f64> {
    const D: usize = 128;
    let (heads, length, scale) = (24usize, 601usize, 0.088_388_35f32);
    let li = length as i32;
    let f = gpu.kernel(name)?;
    let q = noise(heads * D, 1);
    let (k, v) = (halves(heads * length * D, 2), halves(heads * length * D, 3));
    let (qd, kd, vd) = (up(gpu, &q)?, up(gpu, &k)?, up(gpu, &v)?);
    let mut od = zeros::<f32>(gpu, heads * D)?;
    let mut out = vec![0.0f32; heads * D];
    let times = race(
        name,
        || {
            launch!(gpu, f, line(heads, 32), &qd, &kd, &vd, &mut od, &li, &scale);
            sync(gpu)
        },
        || {
            out.par_chunks_mut(D)
                .zip(black_box(&q[..]).par_chunks(D))
                .zip(k.par_chunks(length * D).zip(v.par_chunks(length * D)))
                .for_each(|((out, q), (k, v))| {
                    let mut row = [0.0f32; D];
                    let mut scores: Vec<f32> = k
                        .chunks_exact(D)
                        .map(|k| {
                            k.convert_to_f32_slice(&mut row);
                            scale * dot(q, &row)
                        })
                        .collect();
                    let top = most(&scores);
                    scores.iter_mut().for_each(|s| *s = (*s - top).exp());
                    let total: f32 = scores.iter().sum();
                    out.fill(0.0);
                    for (v, p) in v.chunks_exact(D).zip(&scores) {
                        v.convert_to_f32_slice(&mut row);
                        out.iter_mut().zip(&row).for_each(|(o, v)| *o += p * v);
                    }
                    out.iter_mut().for_each(|o| *o /= total);
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 1e-4))
}

fn layer_norm_grad(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (403usize, 770usize);
    let ci = cols as i32;
    let f = gpu.kernel(name)?;
    let (x, dy) = (noise(rows * cols, 1), noise(rows * cols, 2));
    let (gamma, mean, rstd) = (noise(cols, 3), noise(rows, 4), between(0.5, 2.0, rows, 5));
    let (xd, yd, gd) = (up(gpu, &x)?, up(gpu, &dy)?, up(gpu, &gamma)?);
    let (md, rd) = (up(gpu, &mean)?, up(gpu, &rstd)?);
    let mut dxd = zeros::<f32>(gpu, rows * cols)?;
    let (mut dgd, mut dbd) = (zeros::<f32>(gpu, cols)?, zeros::<f32>(gpu, cols)?);
    let mut dx = vec![0.0f32; rows * cols];
    let mut sums = [vec![], vec![]];
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut dgd)?;
            gpu.stream.memset_zeros(&mut dbd)?;
            launch!(
                gpu,
                f,
                line(rows, 128),
                &xd,
                &yd,
                &gd,
                &md,
                &rd,
                &mut dxd,
                &mut dgd,
                &mut dbd,
                &ci
            );
            sync(gpu)
        },
        || {
            const ROWS: usize = 64;
            let (x, dy) = (black_box(&x[..]), &dy[..]);
            sums = dx
                .par_chunks_mut(cols * ROWS)
                .enumerate()
                .map(|(part, dx)| {
                    let [mut dgamma, mut dbeta] = [vec![0.0f32; cols], vec![0.0f32; cols]];
                    let (mut hats, mut g) = (vec![0.0f32; cols], vec![0.0f32; cols]);
                    for (i, dx) in dx.chunks_exact_mut(cols).enumerate() {
                        let row = part * ROWS + i;
                        let (m, r) = (mean[row], rstd[row]);
                        let (x, dy) = (&x[row * cols..][..cols], &dy[row * cols..][..cols]);
                        hats.iter_mut().zip(x).for_each(|(h, x)| *h = (x - m) * r);
                        let products = g.iter_mut().zip(dy.iter().zip(&gamma));
                        products.for_each(|(g, (d, gamma))| *g = d * gamma);
                        let ones = g.chunks(16).map(|g| g.iter().sum::<f32>());
                        let s1 = ones.sum::<f32>() / cols as f32;
                        let s2 = dot(&g, &hats) / cols as f32;
                        for ((dx, g), h) in dx.iter_mut().zip(&g).zip(&hats) {
                            *dx = r * (g - s1 - h * s2);
                        }
                        for ((s, d), h) in dgamma.iter_mut().zip(dy).zip(&hats) {
                            *s += d * h;
                        }
                        dbeta.iter_mut().zip(dy).for_each(|(s, d)| *s += d);
                    }
                    [dgamma, dbeta]
                })
                .reduce_with(|mut a, b| {
                    for (a, b) in a.iter_mut().flatten().zip(b.iter().flatten()) {
                        *a += b;
                    }
                    a
                })
                .unwrap();
        },
    )?;
    let checked = check(&down(gpu, &dxd)?, &dx, 1e-4);
    let checked = checked.and(check(&down(gpu, &dgd)?, &sums[0], 1e-4));
    times.print(checked.and(check(&down(gpu, &dbd)?, &sums[1], 1e-4)))
}

fn cross_entropy(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (101usize, 5003usize);
    let (ci, scale) = (cols as i32, 1.0 / rows as f32);
    let f = gpu.kernel(name)?;
    let (logits, target) = (
        between(-4.0, 4.0, rows * cols, 1),
        below(cols as u32, rows, 2),
    );
    let (ld, td) = (up(gpu, &logits)?, up(gpu, &target)?);
    let (mut od, mut gd) = (zeros::<f32>(gpu, rows)?, zeros::<f32>(gpu, rows * cols)?);
    let (mut loss, mut grad) = (vec![0.0f32; rows], vec![0.0f32; rows * cols]);
    let times = race(
        name,
        || {
            launch!(
                gpu,
                f,
                line(rows, 256),
                &ld,
                &td,
                &mut od,
                &mut gd,
                &ci,
                &scale
            );
            sync(gpu)
        },
        || {
            grad.par_chunks_mut(cols)
                .zip(&mut loss)
                .zip(black_box(&logits[..]).par_chunks(cols).zip(&target))
                .for_each(|((grad, loss), (row, &target))| {
                    let m = most(row);
                    grad.iter_mut()
                        .zip(row)
                        .for_each(|(g, v)| *g = (v - m).exp());
                    let sum: f32 = grad.chunks(16).map(|g| g.iter().sum::<f32>()).sum();
                    *loss = sum.ln() + m - row[target as usize];
                    grad.iter_mut().for_each(|g| *g *= scale / sum);
                    grad[target as usize] -= scale;
                });
        },
    )?;
    let checked = check(&down(gpu, &od)?, &loss, 1e-4);
    times.print(checked.and(check(&down(gpu, &gd)?, &grad, 1e-6)))
}

fn embed(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (tokens, length, cols, vocabulary) = (1500usize, 256usize, 640usize, 3000usize);
    let (ti, li, qi) = (tokens as i32, length as i32, cols as i32 / 4);
    let f = gpu.kernel(name)?;
    let (table, positions) = (noise(vocabulary * cols, 1), noise(length * cols, 2));
    let ids = below(vocabulary as u32, tokens, 3);
    let (wd, pd, id) = (up(gpu, &table)?, up(gpu, &positions)?, up(gpu, &ids)?);
    let mut od = zeros::<f32>(gpu, tokens * cols)?;
    let mut out = vec![0.0f32; tokens * cols];
    let times = race(
        name,
        || {
            let config = gpu.cover(tokens * cols / 4, 256);
            launch!(gpu, f, config, &wd, &pd, &id, &mut od, &ti, &li, &qi);
            sync(gpu)
        },
        || {
            out.par_chunks_mut(cols)
                .zip(black_box(&ids[..]))
                .enumerate()
                .with_min_len(16)
                .for_each(|(i, (out, &id))| {
                    let word = &table[id as usize * cols..][..cols];
                    let position = &positions[i % length * cols..][..cols];
                    for ((out, w), p) in out.iter_mut().zip(word).zip(position) {
                        *out = w + p;
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn silu_gate(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 600_002usize;
    let pairs = n as i32 / 2;
    let f = gpu.kernel(name)?;
    let brains = |seed| -> Vec<bf16> {
        let values = between(-4.0, 4.0, n, seed).into_iter();
        values.map(bf16::from_f32).collect()
    };
    let (gate, value) = (brains(1), brains(2));
    let (gd, vd, mut od) = (up(gpu, &gate)?, up(gpu, &value)?, zeros::<bf16>(gpu, n)?);
    let mut out = vec![bf16::ZERO; n];
    let times = race(
        name,
        || {
            launch!(gpu, f, line(160, 256), &gd, &vd, &mut od, &pairs);
            sync(gpu)
        },
        || {
            const PART: usize = 1 << 13;
            out.par_chunks_mut(PART)
                .zip(black_box(&gate[..]).par_chunks(PART))
                .zip(value.par_chunks(PART))
                .for_each(|((out, gate), value)| {
                    for ((out, g), v) in out.iter_mut().zip(gate).zip(value) {
                        let g = g.to_f32();
                        *out = bf16::from_f32(g / (1.0 + (-g).exp()) * v.to_f32());
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 1e-2))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Adam {
    rate: f32,
    beta1: f32,
    beta2: f32,
    eps: f32,
    decay: f32,
    fix1: f32,
    fix2: f32,
}
// SAFETY: plain numbers, laid out as in C.
unsafe impl cudarc::driver::DeviceRepr for Adam {}

fn adam(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 500_003usize;
    let ni = n as i32;
    let f = gpu.kernel(name)?;
    let (mut p, g) = (noise(n, 1), noise(n, 2));
    let (mut m, mut v) = (noise(n, 3), between(0.0, 1.0, n, 4));
    let (mut pd, gd) = (up(gpu, &p)?, up(gpu, &g)?);
    let (mut md, mut vd) = (up(gpu, &m)?, up(gpu, &v)?);
    let a = Adam {
        rate: 1e-3,
        beta1: 0.9,
        beta2: 0.99,
        eps: 1e-6,
        decay: 0.01,
        fix1: 1.2,
        fix2: 1.1,
    };
    let times = race(
        name,
        || {
            launch!(
                gpu,
                f,
                gpu.cover(n, 256),
                &mut pd,
                &gd,
                &mut md,
                &mut vd,
                &ni,
                &a
            );
            sync(gpu)
        },
        || {
            const PART: usize = 1 << 13;
            p.par_chunks_mut(PART)
                .zip(black_box(&g[..]).par_chunks(PART))
                .zip(m.par_chunks_mut(PART).zip(v.par_chunks_mut(PART)))
                .for_each(|((p, g), (m, v))| {
                    for (((p, g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
                        *m = a.beta1 * *m + (1.0 - a.beta1) * g;
                        *v = a.beta2 * *v + (1.0 - a.beta2) * g * g;
                        let step = *m * a.fix1 / ((*v * a.fix2).sqrt() + a.eps);
                        *p -= a.rate * (step + a.decay * *p);
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &pd)?, &p, 1e-4))
}

fn causal_softmax(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (heads, length, scale) = (6usize, 301usize, 0.125f32);
    let (rows, ri, li) = (heads * length, (heads * length) as i32, length as i32);
    let f = gpu.kernel(name)?;
    let a = between(-20.0, 20.0, rows * length, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<f32>(gpu, a.len())?);
    let mut out = vec![0.0f32; a.len()];
    let times = race(
        name,
        || {
            let config = line(rows.div_ceil(4), 128);
            launch!(gpu, f, config, &ad, &mut od, &ri, &li, &scale);
            sync(gpu)
        },
        || {
            out.par_chunks_mut(length)
                .zip(black_box(&a[..]).par_chunks(length))
                .enumerate()
                .with_min_len(8)
                .for_each(|(row, (out, values))| {
                    let (out, rest) = out.split_at_mut(row % length + 1);
                    rest.fill(0.0);
                    let m = most(&values[..out.len()]) * scale;
                    let pairs = out.iter_mut().zip(values);
                    pairs.for_each(|(o, v)| *o = (v * scale - m).exp());
                    let sum: f32 = out.chunks(16).map(|o| o.iter().sum::<f32>()).sum();
                    out.iter_mut().for_each(|o| *o *= 1.0 / sum);
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 1e-5))
}
