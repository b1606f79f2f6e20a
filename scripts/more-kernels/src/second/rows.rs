//! Softmax and what else is found of each row.

use std::hint::black_box;

use cudarc::driver::PushKernelArg;
use rayon::prelude::*;

use super::sums::total;
use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("softmax_three_pass", softmax),
    ("log_softmax_nll", nll),
    ("softmax_half2", softmax_half),
    ("argmax_rows", argmax),
    ("cumprod_rows", cumprod),
    ("logsumexp_rows", logsumexp),
    ("logcumsumexp_rows", logcumsumexp),
    ("top2_rows", top2),
];

pub fn largest(v: &[f32]) -> f32 {
    let (chunks, rest) = v.as_chunks::<16>();
    let mut tops = [f32::NEG_INFINITY; 16];
    for chunk in chunks {
        for (top, &v) in tops.iter_mut().zip(chunk) {
            *top = if v > *top { v } else { *top };
        }
    }
    tops.iter()
        .chain(rest)
        .copied()
        .fold(f32::NEG_INFINITY, f32::max)
}

fn softmax(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (401usize, 5000usize);
    let f = gpu.kernel(name)?;
    let x = between(-6.0, 6.0, rows * cols, 1);
    let xd = gpu.stream.clone_htod(&x)?;
    let mut yd = gpu.stream.alloc_zeros::<f32>(rows * cols)?;
    let mut y = vec![0.0f32; rows * cols];
    let times = race(
        name,
        || {
            let c = cols as i32;
            launch!(gpu, f, line(rows, 256), &xd, &mut yd, &c);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            y.par_chunks_exact_mut(cols)
                .zip(black_box(&x[..]).par_chunks_exact(cols))
                .for_each(|(y, x)| {
                    let top = largest(x);
                    for (y, x) in y.iter_mut().zip(x) {
                        *y = (x - top).exp();
                    }
                    let scale = 1.0 / total(y);
                    y.iter_mut().for_each(|y| *y *= scale);
                });
        },
    )?;
    // As small as they are, they are compared by parts of the row's mean.
    let scaled = |v: Vec<f32>| v.into_iter().map(|v| v * cols as f32).collect::<Vec<_>>();
    times.print(check(
        &scaled(gpu.stream.clone_dtoh(&yd)?),
        &scaled(y),
        1e-4,
    ))
}

fn nll(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (20_003usize, 100usize);
    let f = gpu.kernel(name)?;
    let x = between(-5.0, 5.0, rows * cols, 1);
    let target: Vec<i64> = below(cols as u32, rows, 2)
        .iter()
        .map(|&t| t.into())
        .collect();
    let (xd, td) = (gpu.stream.clone_htod(&x)?, gpu.stream.clone_htod(&target)?);
    let mut yd = gpu.stream.alloc_zeros::<f32>(rows * cols)?;
    let mut ld = gpu.stream.alloc_zeros::<f32>(rows)?;
    let (mut y, mut loss) = (vec![0.0f32; rows * cols], vec![0.0f32; rows]);
    let times = race(
        name,
        || {
            let (r, c) = (rows as i32, cols as i32);
            launch!(
                gpu,
                f,
                gpu.cover(rows * 32, 128),
                &xd,
                &td,
                &mut yd,
                &mut ld,
                &r,
                &c
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            y.par_chunks_exact_mut(cols)
                .zip(black_box(&x[..]).par_chunks_exact(cols))
                .zip(&mut loss)
                .zip(&target)
                .with_min_len(64)
                .for_each(|(((y, x), loss), &target)| {
                    let top = largest(x);
                    for (y, x) in y.iter_mut().zip(x) {
                        *y = (x - top).exp();
                    }
                    let lse = top + total(y).ln();
                    for (y, x) in y.iter_mut().zip(x) {
                        *y = x - lse;
                    }
                    *loss = -y[target as usize];
                });
        },
    )?;
    let checked = check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-5)
        .and_then(|()| check(&gpu.stream.clone_dtoh(&ld)?, &loss, 1e-5));
    times.print(checked)
}

/// Of a half, not of infinities.
fn from_half(h: u16) -> f32 {
    let size = f32::from_bits(u32::from(h & 0x7fff) << 13) * f32::from_bits(239 << 23);
    f32::from_bits(size.to_bits() | u32::from(h & 0x8000) << 16)
}

/// To the nearest half, of what is not beyond all of them.
fn to_half(v: f32) -> u16 {
    let bits = v.to_bits() & 0x7fff_ffff;
    let normal = bits.wrapping_sub(0x3800_0000) + 0xfff + (bits >> 13 & 1);
    let small = (f32::from_bits(bits) + 0.5)
        .to_bits()
        .wrapping_sub(0.5f32.to_bits());
    let size = if bits < 0x3880_0000 {
        small
    } else {
        normal >> 13
    };
    size as u16 | (v.to_bits() >> 16) as u16 & 0x8000
}

fn softmax_half(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (2003usize, 1026usize);
    let f = gpu.kernel(name)?;
    let x: Vec<u16> = between(-6.0, 6.0, rows * cols, 1)
        .into_iter()
        .map(to_half)
        .collect();
    let xd = gpu.stream.clone_htod(&x)?;
    let mut yd = gpu.stream.alloc_zeros::<u16>(rows * cols)?;
    let mut y = vec![0u16; rows * cols];
    let times = race(
        name,
        || {
            let pairs = cols as i32 / 2;
            let mut config = line(rows, 160);
            config.shared_mem_bytes = cols as u32 * 4;
            launch!(gpu, f, config, &xd, &mut yd, &pairs);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            y.par_chunks_exact_mut(cols)
                .zip(black_box(&x[..]).par_chunks_exact(cols))
                .with_min_len(8)
                .for_each_init(
                    || vec![0.0f32; cols],
                    |wide, (y, x)| {
                        for (wide, &x) in wide.iter_mut().zip(x) {
                            *wide = from_half(x);
                        }
                        let top = largest(wide);
                        wide.iter_mut().for_each(|v| *v = (*v - top).exp());
                        let scale = 1.0 / total(wide);
                        for (y, v) in y.iter_mut().zip(wide) {
                            *y = to_half(*v * scale);
                        }
                    },
                );
        },
    )?;
    let wide =
        |v: Vec<u16>| -> Vec<f32> { v.into_iter().map(|h| from_half(h) * cols as f32).collect() };
    times.print(check(&wide(gpu.stream.clone_dtoh(&yd)?), &wide(y), 2e-3))
}

fn argmax(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (3001usize, 1501usize);
    let f = gpu.kernel(name)?;
    // Some of the largest are there twice.
    let x: Vec<f32> = below(5000, rows * cols, 1)
        .into_iter()
        .map(|v| v as f32 / 8.0)
        .collect();
    let xd = gpu.stream.clone_htod(&x)?;
    let mut id = gpu.stream.alloc_zeros::<i32>(rows)?;
    let mut vd = gpu.stream.alloc_zeros::<f32>(rows)?;
    let (mut index, mut value) = (vec![0i32; rows], vec![0.0f32; rows]);
    let times = race(
        name,
        || {
            let c = cols as i32;
            launch!(gpu, f, line(rows, 128), &xd, &mut id, &mut vd, &c);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            (&mut index, &mut value)
                .into_par_iter()
                .zip(black_box(&x[..]).par_chunks_exact(cols))
                .with_min_len(16)
                .for_each(|((index, value), x)| {
                    *value = largest(x);
                    *index = x.iter().position(|v| v == value).unwrap() as i32;
                });
        },
    )?;
    let checked = check(&gpu.stream.clone_dtoh(&id)?, &index, 0.0)
        .and_then(|()| check(&gpu.stream.clone_dtoh(&vd)?, &value, 0.0));
    times.print(checked)
}

fn cumprod(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (3001usize, 500usize);
    let f = gpu.kernel(name)?;
    let x: Vec<f64> = between(0.9, 1.1, rows * cols, 1)
        .into_iter()
        .map(f64::from)
        .collect();
    let xd = gpu.stream.clone_htod(&x)?;
    let mut yd = gpu.stream.alloc_zeros::<f64>(rows * cols)?;
    let mut y = vec![0.0f64; rows * cols];
    let times = race(
        name,
        || {
            let (r, c) = (rows as i32, cols as i32);
            let config = shape((rows.div_ceil(4), 1, 1), (32, 4, 1));
            launch!(gpu, f, config, &xd, &mut yd, &r, &c);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            y.par_chunks_exact_mut(cols)
                .zip(black_box(&x[..]).par_chunks_exact(cols))
                .with_min_len(16)
                .for_each(|(y, x)| {
                    let mut product = 1.0;
                    for (y, x) in y.iter_mut().zip(x) {
                        product *= x;
                        *y = product;
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-10))
}

fn logsumexp(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (5003usize, 300usize);
    let f = gpu.kernel(name)?;
    let x = between(-10.0, 10.0, rows * cols, 1);
    let xd = gpu.stream.clone_htod(&x)?;
    let mut yd = gpu.stream.alloc_zeros::<f32>(rows)?;
    let mut y = vec![0.0f32; rows];
    let times = race(
        name,
        || {
            let (r, c) = (rows as i32, cols as i32);
            launch!(gpu, f, gpu.cover(rows * 16, 192), &xd, &mut yd, &r, &c);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            y.par_iter_mut()
                .zip(black_box(&x[..]).par_chunks_exact(cols))
                .with_min_len(16)
                .for_each(|(y, x)| {
                    let top = largest(x);
                    *y = top + x.iter().map(|x| (x - top).exp()).sum::<f32>().ln();
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-5))
}

fn logcumsumexp(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (300usize, 1001usize);
    let f = gpu.kernel(name)?;
    let x = between(-4.0, 4.0, rows * cols, 1);
    let xd = gpu.stream.clone_htod(&x)?;
    let mut yd = gpu.stream.alloc_zeros::<f32>(rows * cols)?;
    let mut y = vec![0.0f32; rows * cols];
    let times = race(
        name,
        || {
            let c = cols as i32;
            launch!(gpu, f, line(rows, 64), &xd, &mut yd, &c);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            y.par_chunks_exact_mut(cols)
                .zip(black_box(&x[..]).par_chunks_exact(cols))
                .for_each(|(y, x)| {
                    let mut all = f32::NEG_INFINITY;
                    for (y, &x) in y.iter_mut().zip(x) {
                        let (high, low) = (all.max(x), all.min(x));
                        all = high + (low - high).exp().ln_1p();
                        *y = all;
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-5))
}

fn top2(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (6001usize, 700usize);
    let f = gpu.kernel(name)?;
    let x = noise(rows * cols, 1);
    let xd = gpu.stream.clone_htod(&x)?;
    let mut wd = gpu.stream.alloc_zeros::<f32>(rows * 2)?;
    let mut ed = gpu.stream.alloc_zeros::<i32>(rows * 2)?;
    let (mut weights, mut experts) = (vec![[0.0f32; 2]; rows], vec![[0i32; 2]; rows]);
    let times = race(
        name,
        || {
            let (r, c) = (rows as i32, cols as i32);
            launch!(
                gpu,
                f,
                line(rows.div_ceil(8), 256),
                &xd,
                &mut wd,
                &mut ed,
                &r,
                &c
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            (&mut weights, &mut experts)
                .into_par_iter()
                .zip(black_box(&x[..]).par_chunks_exact(cols))
                .with_min_len(16)
                .for_each(|((weights, experts), x)| {
                    let (mut v, mut at) = ([f32::NEG_INFINITY; 2], [-1i32; 2]);
                    for (i, &x) in x.iter().enumerate() {
                        // Seldom.
                        if x > v[1] {
                            if x > v[0] {
                                (v, at) = ([x, v[0]], [i as i32, at[0]]);
                            } else {
                                (v[1], at[1]) = (x, i as i32);
                            }
                        }
                    }
                    let e = (v[1] - v[0]).exp();
                    *weights = [1.0 / (1.0 + e), e / (1.0 + e)];
                    *experts = at;
                });
        },
    )?;
    // What is there twice may be found in either place.
    let checked =
        check(&gpu.stream.clone_dtoh(&wd)?, weights.as_flattened(), 1e-5).and_then(|()| {
            let got = gpu.stream.clone_dtoh(&ed)?;
            check_some(&got, experts.as_flattened(), 0.0, 1e-3)
        });
    times.print(checked)
}
