//! Work in which the threads of a block add up: reductions, a scan, a histogram.

use std::hint::black_box;

use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use rayon::prelude::*;

use super::Outcome;
use super::device::{BENCH, Device, HISTOGRAM, Kernel, REDUCE, SCAN, config};
use super::input::{noise, words};
use super::measure::{Measured, Row, check, timed, timed_in_rust};

pub const BLOCK_REDUCTION: Row = Row {
    name: "block reduction f32, 4 M in blocks of 256 (9 barriers)",
    aim: 5.0,
    kernel: Kernel {
        source: REDUCE,
        name: "reduce_shared_f32",
    },
    run: block_reduction,
};

fn block_reduction(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let n: usize = 1 << 22;
    let input = noise(n, 7);
    let stream = &device.stream;
    let input_device = stream.clone_htod(&input)?;
    let blocks = n / 256;
    let mut sums = stream.alloc_zeros::<f32>(blocks)?;
    let softcuda = timed(|| {
        let count = n as u32;
        let mut call = stream.launch_builder(function);
        call.arg(&input_device).arg(&mut sums).arg(&count);
        // SAFETY: the arguments are those of `reduce_shared_f32`; `sums` has an element for each
        // block.
        unsafe {
            call.launch(LaunchConfig {
                shared_mem_bytes: 4 * 256,
                ..config(blocks, 256)
            })
        }?;
        Ok(stream.synchronize()?)
    })?;
    let mut host = vec![0.0f32; blocks];
    let rust = timed_in_rust(|| {
        let (chunks, _) = black_box(&input[..]).as_chunks::<256>();
        host.par_iter_mut()
            .zip(chunks)
            .with_min_len(64)
            .for_each(|(sum, chunk)| {
                let mut tree = *chunk;
                let mut width = 128;
                while width > 0 {
                    let (low, high) = tree.split_at_mut(width);
                    for (a, b) in low.iter_mut().zip(high.iter()) {
                        *a += b;
                    }
                    width /= 2;
                }
                *sum = tree[0];
            });
    })?;
    check(&stream.clone_dtoh(&sums)?, &host, 1e-5)?;
    Ok(Measured { softcuda, rust })
}

pub const REDUCTION: Row = Row {
    name: "reduction f32 by warp shuffles, an atomic a block, 4 M",
    aim: 6.0,
    kernel: Kernel {
        source: BENCH,
        name: "sum_atomic",
    },
    run: reduction,
};

/// The sum, in as many parts as keep a vector unit busy.
pub fn sum(values: &[f32]) -> f32 {
    let (chunks, rest) = values.as_chunks::<16>();
    let mut sums = [0.0f32; 16];
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += value;
        }
    }
    sums.iter().sum::<f32>() + rest.iter().sum::<f32>()
}

fn reduction(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let n: usize = 1 << 22;
    let input = noise(n, 13);
    let stream = &device.stream;
    let input_device = stream.clone_htod(&input)?;
    let mut total = stream.alloc_zeros::<f32>(1)?;
    let softcuda = timed(|| {
        stream.memset_zeros(&mut total)?;
        let count = n as u32;
        let mut call = stream.launch_builder(function);
        call.arg(&input_device).arg(&mut total).arg(&count);
        // SAFETY: the arguments are those of `sum_atomic`, and the input holds `n` elements.
        unsafe { call.launch(config(1024, 256)) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut host = 0.0;
    let rust = timed_in_rust(|| host = black_box(&input[..]).par_chunks(1 << 14).map(sum).sum())?;
    check(&stream.clone_dtoh(&total)?, &[host], 1e-4)?;
    Ok(Measured { softcuda, rust })
}

pub const PREFIX_SUMS: Row = Row {
    name: "scan u32 in one pass of blocks that look back, 4 M (shuffles, 4 barriers)",
    aim: 6.0,
    kernel: Kernel {
        source: SCAN,
        name: "scan_lookback",
    },
    run: prefix_sums,
};

fn prefix_sums(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let n: usize = 1 << 22;
    let input: Vec<u32> = words(14).take(n).map(|word| word as u32).collect();
    let stream = &device.stream;
    let input_device = stream.clone_htod(&input)?;
    let mut out_device = stream.alloc_zeros::<u32>(n)?;
    let mut status = stream.alloc_zeros::<u64>(n / 256)?;
    let mut next_tile = stream.alloc_zeros::<u32>(1)?;
    let softcuda = timed(|| {
        stream.memset_zeros(&mut status)?;
        stream.memset_zeros(&mut next_tile)?;
        let count = n as u32;
        let mut call = stream.launch_builder(function);
        call.arg(&input_device).arg(&mut out_device);
        call.arg(&mut status).arg(&mut next_tile).arg(&count);
        // SAFETY: the arguments are those of `scan_lookback`; there is a status for each block.
        unsafe { call.launch(config(n / 256, 256)) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut out = vec![0u32; n];
    let rust = timed_in_rust(|| {
        let input = black_box(&input[..]);
        let mut before: Vec<u32> = input
            .par_chunks(1 << 14)
            .map(|chunk| chunk.iter().fold(0, |sum: u32, &v| sum.wrapping_add(v)))
            .collect();
        let mut total = 0u32;
        for sum in &mut before {
            total = total.wrapping_add(std::mem::replace(sum, total));
        }
        out.par_chunks_mut(1 << 14)
            .zip(input.par_chunks(1 << 14))
            .zip(before)
            .for_each(|((out, chunk), mut sum)| {
                for (out, &v) in out.iter_mut().zip(chunk) {
                    sum = sum.wrapping_add(v);
                    *out = sum;
                }
            });
    })?;
    check(&stream.clone_dtoh(&out_device)?, &out, 0.0)?;
    Ok(Measured { softcuda, rust })
}

pub const BINS: Row = Row {
    name: "histogram of 16 M bytes by shared atomics (2 barriers)",
    aim: 6.0,
    kernel: Kernel {
        source: HISTOGRAM,
        name: "histogram",
    },
    run: bins,
};

fn bins(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let n: usize = 1 << 24;
    let input: Vec<u8> = words(15).take(n / 8).flat_map(u64::to_le_bytes).collect();
    let stream = &device.stream;
    let input_device = stream.clone_htod(&input)?;
    let mut bins_device = stream.alloc_zeros::<u32>(256)?;
    let softcuda = timed(|| {
        stream.memset_zeros(&mut bins_device)?;
        let count = n as u32;
        let mut call = stream.launch_builder(function);
        call.arg(&input_device).arg(&mut bins_device).arg(&count);
        // SAFETY: the arguments are those of `histogram`, with `n` bytes and 256 bins.
        unsafe { call.launch(config(1024, 256)) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut bins = [0u32; 256];
    let rust = timed_in_rust(|| {
        bins = black_box(&input[..])
            .par_chunks(1 << 16)
            .fold(
                || [0u32; 256],
                |mut bins, chunk| {
                    for &byte in chunk {
                        bins[usize::from(byte)] += 1;
                    }
                    bins
                },
            )
            .reduce(
                || [0u32; 256],
                |mut all, bins| {
                    all.iter_mut().zip(bins).for_each(|(all, bin)| *all += bin);
                    all
                },
            );
    })?;
    check(&stream.clone_dtoh(&bins_device)?, &bins, 0.0)?;
    Ok(Measured { softcuda, rust })
}
