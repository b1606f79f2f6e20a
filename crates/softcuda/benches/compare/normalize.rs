//! Normalization of the rows of a matrix: softmax and layer norm.

use std::hint::black_box;

use cudarc::driver::{CudaFunction, PushKernelArg};
use rayon::prelude::*;

use super::Outcome;
use super::device::{BENCH, Device, Kernel, SOFTMAX, config};
use super::input::{between, noise};
use super::measure::{Measured, Row, check, timed, timed_in_rust};
use super::sums::sum;

const ROWS: usize = 4096;
const WIDTH: usize = 1024;

pub const SOFTMAX_ROWS: Row = Row {
    name: "softmax f32, 4,096 rows of 1,024, a block a row (shuffles, 2 barriers)",
    aim: 6.0,
    kernel: Kernel {
        source: BENCH,
        name: "softmax_block",
    },
    run: softmax,
};

/// The largest value, found in as many parts as keep a vector unit busy.
fn largest(values: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    let (chunks, rest) = values.as_chunks::<16>();
    let mut tops = [f32::NEG_INFINITY; 16];
    for chunk in chunks {
        for (top, &value) in tops.iter_mut().zip(chunk) {
            *top = larger(*top, value);
        }
    }
    let all = tops.into_iter().chain(rest.iter().copied());
    all.fold(f32::NEG_INFINITY, larger)
}

fn softmax(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let input = between(-8.0, 8.0, ROWS * WIDTH, 16);
    let stream = &device.stream;
    let input_device = stream.clone_htod(&input)?;
    let mut out_device = stream.alloc_zeros::<f32>(ROWS * WIDTH)?;
    let softcuda = timed(|| {
        let width = WIDTH as u32;
        let mut call = stream.launch_builder(function);
        call.arg(&input_device).arg(&mut out_device).arg(&width);
        // SAFETY: the arguments are those of `softmax_block`, and both buffers hold all rows.
        unsafe { call.launch(config(ROWS, 256)) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut out = vec![0.0f32; ROWS * WIDTH];
    let rust = timed_in_rust(|| {
        out.par_chunks_mut(WIDTH)
            .zip(black_box(&input[..]).par_chunks(WIDTH))
            .with_min_len(16)
            .for_each(|(out, row)| {
                let top = largest(row);
                for (out, value) in out.iter_mut().zip(row) {
                    *out = (value - top).exp();
                }
                let scale = 1.0 / sum(out);
                out.iter_mut().for_each(|out| *out *= scale);
            });
    })?;
    check(&stream.clone_dtoh(&out_device)?, &out, 1e-5)?;
    Ok(Measured { softcuda, rust })
}

pub const LAYER_NORM: Row = Row {
    name: "layer norm f32, 4,096 rows of 1,024, a warp a row (shuffles)",
    aim: 6.0,
    kernel: Kernel {
        source: SOFTMAX,
        name: "layer_norm",
    },
    run: layer_norm,
};

/// The sum of squares, in as many parts as keep a vector unit busy.
fn sum_of_squares(values: &[f32]) -> f32 {
    let (chunks, rest) = values.as_chunks::<16>();
    let mut sums = [0.0f32; 16];
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += value * value;
        }
    }
    sums.iter().sum::<f32>() + rest.iter().map(|value| value * value).sum::<f32>()
}

fn layer_norm(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let (input, gain) = (noise(ROWS * WIDTH, 17), noise(WIDTH, 18));
    let stream = &device.stream;
    let (input_device, gain_device) = (stream.clone_htod(&input)?, stream.clone_htod(&gain)?);
    let mut out_device = stream.alloc_zeros::<f32>(ROWS * WIDTH)?;
    let softcuda = timed(|| {
        let width = WIDTH as u32;
        let mut call = stream.launch_builder(function);
        call.arg(&input_device).arg(&gain_device);
        call.arg(&mut out_device).arg(&width);
        // SAFETY: the arguments are those of `layer_norm`, and the buffers hold all rows.
        unsafe { call.launch(config(ROWS, 32)) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut out = vec![0.0f32; ROWS * WIDTH];
    let rust = timed_in_rust(|| {
        out.par_chunks_mut(WIDTH)
            .zip(black_box(&input[..]).par_chunks(WIDTH))
            .with_min_len(16)
            .for_each(|(out, row)| {
                let mean = sum(row) / WIDTH as f32;
                let variance = sum_of_squares(row) / WIDTH as f32 - mean * mean;
                let scale = 1.0 / (variance + 1e-5).sqrt();
                for ((out, value), gain) in out.iter_mut().zip(row).zip(&gain) {
                    *out = (value - mean) * scale * gain;
                }
            });
    })?;
    check(&stream.clone_dtoh(&out_device)?, &out, 1e-4)?;
    Ok(Measured { softcuda, rust })
}
