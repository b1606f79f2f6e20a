//! An element a thread: saxpy, Black-Scholes, Mandelbrot, and a stencil through shared memory.

use std::hint::black_box;

use cudarc::driver::{CudaFunction, PushKernelArg};
use rayon::prelude::*;

use super::Outcome;
use super::device::{BENCH, Device, ELEMENTWISE, Kernel, STENCIL, config, plane};
use super::input::{between, noise};
use super::measure::{Measured, Row, check, timed, timed_in_rust};

pub const SAXPY: Row = Row {
    name: "streaming: saxpy, 16 M floats",
    aim: 1.3,
    kernel: Kernel {
        source: ELEMENTWISE,
        name: "saxpy",
    },
    run: |device, function| saxpy(device, function, (1 << 24) / 256),
};

pub const SAXPY_OVER_THE_GRID: Row = Row {
    name: "saxpy, 16 M floats, in 1,056 blocks whose threads go over the grid",
    aim: f64::INFINITY,
    run: |device, function| saxpy(device, function, 1056),
    ..SAXPY
};

fn saxpy(device: &Device, function: &CudaFunction, blocks: usize) -> Outcome<Measured> {
    let n = 1 << 24;
    let (x, y) = (noise(n, 1), noise(n, 2));
    let stream = &device.stream;
    let (x_device, mut y_device) = (stream.clone_htod(&x)?, stream.clone_htod(&y)?);
    let mut launch = |a: f32| -> Outcome<()> {
        let count = n as u32;
        let mut call = stream.launch_builder(function);
        call.arg(&a).arg(&x_device).arg(&mut y_device).arg(&count);
        // SAFETY: the arguments are those of `saxpy`, and both buffers hold `n` elements.
        unsafe { call.launch(config(blocks, 256)) }?;
        Ok(stream.synchronize()?)
    };
    let softcuda = timed(|| launch(0.0))?;
    launch(2.0)?;
    let mut host = y;
    let mut in_rust = |a: f32| {
        host.par_iter_mut()
            .zip(&x)
            .with_min_len(1 << 14)
            .for_each(|(y, x)| *y += a * *x)
    };
    let rust = timed_in_rust(|| in_rust(black_box(0.0)))?;
    in_rust(2.0);
    check(&stream.clone_dtoh(&y_device)?, &host, 1e-6)?;
    Ok(Measured { softcuda, rust })
}

pub const BLACK_SCHOLES: Row = Row {
    name: "Black-Scholes f32, 1 M options",
    aim: 6.0,
    kernel: Kernel {
        source: BENCH,
        name: "black_scholes",
    },
    run: black_scholes,
};

/// The normal distribution function, after Abramowitz and Stegun 26.2.17.
fn normal(d: f32) -> f32 {
    let k = 1.0 / (1.0 + 0.231_641_9 * d.abs());
    let series = -1.821_255_9 + k * 1.330_274_5;
    let series = k * (0.319_381_54 + k * (-0.356_563_78 + k * (1.781_477_9 + k * series)));
    let tail = 0.398_942_3 * (-0.5 * d * d).exp() * series;
    if d > 0.0 { 1.0 - tail } else { tail }
}

fn black_scholes(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let n = 1 << 20;
    let price = between(5.0, 30.0, n, 9);
    let strike = between(1.0, 100.0, n, 10);
    let years = between(0.25, 10.0, n, 11);
    let (rate, volatility) = (0.02f32, 0.3f32);
    let stream = &device.stream;
    let (price_device, strike_device) = (stream.clone_htod(&price)?, stream.clone_htod(&strike)?);
    let years_device = stream.clone_htod(&years)?;
    let mut call_device = stream.alloc_zeros::<f32>(n)?;
    let mut put_device = stream.alloc_zeros::<f32>(n)?;
    let softcuda = timed(|| {
        let count = n as u32;
        let mut call = stream.launch_builder(function);
        call.arg(&price_device)
            .arg(&strike_device)
            .arg(&years_device)
            .arg(&mut call_device)
            .arg(&mut put_device)
            .arg(&rate)
            .arg(&volatility)
            .arg(&count);
        // SAFETY: the arguments are those of `black_scholes`, and all buffers hold `n` elements.
        unsafe { call.launch(config(n / 256, 256)) }?;
        Ok(stream.synchronize()?)
    })?;
    let (mut calls, mut puts) = (vec![0.0f32; n], vec![0.0f32; n]);
    let rust = timed_in_rust(|| {
        let volatility = black_box(volatility);
        (&price, &strike, &years, &mut calls, &mut puts)
            .into_par_iter()
            .with_min_len(1 << 12)
            .for_each(|(&s, &x, &t, call, put)| {
                let spread = volatility * t.sqrt();
                let drift = (rate + 0.5 * volatility * volatility) * t;
                let d1 = ((s / x).ln() + drift) / spread;
                let (n1, n2) = (normal(d1), normal(d1 - spread));
                let discounted = x * (-rate * t).exp();
                *call = s * n1 - discounted * n2;
                *put = discounted * (1.0 - n2) - s * (1.0 - n1);
            });
    })?;
    check(&stream.clone_dtoh(&call_device)?, &calls, 1e-4)?;
    check(&stream.clone_dtoh(&put_device)?, &puts, 1e-4)?;
    Ok(Measured { softcuda, rust })
}

pub const MANDELBROT: Row = Row {
    name: "Mandelbrot f32, 1,024 x 1,024, up to 256 steps",
    aim: 6.0,
    kernel: Kernel {
        source: BENCH,
        name: "mandelbrot",
    },
    run: mandelbrot,
};

/// How many steps each of 16 points stays within a distance of 2, all of them at once.
fn steps(cx: [f32; 16], cy: f32, limit: u32) -> [u32; 16] {
    let (mut x, mut y, mut counts) = ([0.0f32; 16], [0.0f32; 16], [0; 16]);
    for _ in 0..limit {
        let mut inside = 0;
        for i in 0..16 {
            let (xx, yy) = (x[i] * x[i], y[i] * y[i]);
            // A point that has left grows to infinity and to no number, so it stays outside.
            let stays = u32::from(xx + yy <= 4.0);
            counts[i] += stays;
            inside |= stays;
            y[i] = 2.0 * x[i] * y[i] + cy;
            x[i] = xx - yy + cx[i];
        }
        if inside == 0 {
            break;
        }
    }
    counts
}

fn mandelbrot(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let (side, limit) = (1024, 256u32);
    let (left, top, step) = (-2.0f32, -1.5f32, 3.0 / side as f32);
    let stream = &device.stream;
    let mut counts_device = stream.alloc_zeros::<u32>(side * side)?;
    let softcuda = timed(|| {
        let size = side as u32;
        let mut call = stream.launch_builder(function);
        call.arg(&mut counts_device).arg(&size).arg(&size);
        call.arg(&left).arg(&top).arg(&step).arg(&limit);
        // SAFETY: the arguments are those of `mandelbrot`, and the buffer holds all points.
        unsafe { call.launch(plane((side / 16, side / 16), (16, 16))) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut counts = vec![0u32; side * side];
    let rust = timed_in_rust(|| {
        let step = black_box(step);
        counts
            .par_chunks_mut(side)
            .enumerate()
            .for_each(|(row, counts)| {
                let cy = top + row as f32 * step;
                let (points, _) = counts.as_chunks_mut::<16>();
                for (group, counts) in points.iter_mut().enumerate() {
                    let cx = std::array::from_fn(|i| left + (16 * group + i) as f32 * step);
                    *counts = steps(cx, cy, limit);
                }
            });
    })?;
    // The kernel fuses products and sums, which moves a few points at the edge of the set.
    let got = stream.clone_dtoh(&counts_device)?;
    let moved = got.iter().zip(&counts).filter(|(a, b)| a != b).count();
    if moved > side * side / 100 {
        return Err(format!("{moved} points differ from Rust's").into());
    }
    Ok(Measured { softcuda, rust })
}

pub const STENCIL_5: Row = Row {
    name: "5-point stencil f32 through a shared tile, 2,048 x 2,048 (1 barrier)",
    aim: 6.0,
    kernel: Kernel {
        source: STENCIL,
        name: "stencil_5_shared",
    },
    run: stencil,
};

fn stencil(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let side = 2048;
    let rate = 0.2f32;
    let input = noise(side * side, 12);
    let stream = &device.stream;
    let input_device = stream.clone_htod(&input)?;
    let mut out_device = stream.alloc_zeros::<f32>(side * side)?;
    let softcuda = timed(|| {
        let size = side as i32;
        let mut call = stream.launch_builder(function);
        call.arg(&input_device).arg(&mut out_device);
        call.arg(&size).arg(&size).arg(&rate);
        // SAFETY: the arguments are those of `stencil_5_shared`, and both buffers hold the grid.
        unsafe { call.launch(plane((side / 16, side / 16), (16, 16))) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut out = vec![0.0f32; side * side];
    let rust = timed_in_rust(|| {
        let input = &black_box(&input)[..];
        let row = |y: usize| &input[y * side..(y + 1) * side];
        out.par_chunks_mut(side)
            .enumerate()
            .with_min_len(16)
            .for_each(|(y, out)| {
                let here = row(y);
                out.copy_from_slice(here);
                if y == 0 || y == side - 1 {
                    return;
                }
                let beside = here.iter().zip(&here[2..]);
                let across = row(y - 1)[1..].iter().zip(&row(y + 1)[1..]);
                for ((out, (left, right)), (up, down)) in
                    out[1..side - 1].iter_mut().zip(beside).zip(across)
                {
                    *out += rate * ((left + right) + (up + down) - 4.0 * *out);
                }
            });
    })?;
    check(&stream.clone_dtoh(&out_device)?, &out, 1e-5)?;
    Ok(Measured { softcuda, rust })
}
