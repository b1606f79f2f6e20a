//! Tensor cores, computed to the bit as an H200 does, beside the same work in singles.

use std::hint::black_box;

use cudarc::driver::{CudaFunction, PushKernelArg};
use half::f16;
use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;

use super::Outcome;
use super::dense::product;
use super::device::{Device, Kernel, TENSOR, plane};
use super::input::noise;
use super::measure::{Measured, Row, check, timed, timed_in_rust};

fn halves(count: usize, seed: u64) -> Vec<f16> {
    noise(count, seed).into_iter().map(f16::from_f32).collect()
}

fn singles(halves: &[f16]) -> Vec<f32> {
    black_box(halves).to_f32_vec()
}

pub const GEMM_HALVES: Row = Row {
    name: "GEMM f16 by `mma.sync`, 1,024 x 1,024 x 1,024",
    aim: f64::INFINITY,
    kernel: Kernel {
        source: TENSOR,
        name: "gemm_halves",
    },
    run: gemm_halves,
};

fn gemm_halves(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let n = 1024;
    let (a, b) = (halves(n * n, 31), halves(n * n, 32));
    let stream = &device.stream;
    // As bits: cudarc takes halves with a feature only.
    let bits = |halves: &[f16]| {
        halves
            .iter()
            .map(|half| half.to_bits())
            .collect::<Vec<u16>>()
    };
    let (a_device, b_device) = (stream.clone_htod(&bits(&a))?, stream.clone_htod(&bits(&b))?);
    let mut c_device = stream.alloc_zeros::<f32>(n * n)?;
    let softcuda = timed(|| {
        let size = n as i32;
        let mut call = stream.launch_builder(function);
        call.arg(&a_device).arg(&b_device).arg(&mut c_device);
        call.arg(&size).arg(&size);
        // SAFETY: the arguments are those of `gemm_halves`, and the buffers hold `n` by `n`
        // elements.
        unsafe { call.launch(plane((n / 64, n / 64), (128, 1))) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut c = vec![0.0f32; n * n];
    let rust = timed_in_rust(|| product(&singles(&a), &singles(&b), &mut c, n))?;
    check(&stream.clone_dtoh(&c_device)?, &c, 1e-3)?;
    Ok(Measured { softcuda, rust })
}

pub const ATTENTION: Row = Row {
    name: "flash attention f16, 4 heads of 64, 512 rows",
    aim: f64::INFINITY,
    kernel: Kernel {
        source: TENSOR,
        name: "flash_attention",
    },
    run: attention,
};

const HEAD: usize = 64;

fn attention(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let (heads, length) = (4, 512);
    let count = heads * length * HEAD;
    let [q, k, v] = [33, 34, 35].map(|seed| halves(count, seed));
    let stream = &device.stream;
    let bits = |halves: &[f16]| {
        halves
            .iter()
            .map(|half| half.to_bits())
            .collect::<Vec<u16>>()
    };
    let on_device = |halves: &[f16]| stream.clone_htod(&bits(halves));
    let (of_q, of_k, of_v) = (on_device(&q)?, on_device(&k)?, on_device(&v)?);
    let mut out = stream.alloc_zeros::<f32>(count)?;
    let scale = 0.125f32;
    let softcuda = timed(|| {
        let (rows, causal) = (length as i32, 0i32);
        let mut call = stream.launch_builder(function);
        call.arg(&of_q).arg(&of_k).arg(&of_v).arg(&mut out);
        call.arg(&rows).arg(&scale).arg(&causal);
        // SAFETY: the arguments are those of `flash_attention`, and the buffers hold `heads` times
        // `length` rows.
        unsafe { call.launch(plane((length / 64, heads), (128, 1))) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut host = vec![0.0f32; count];
    let rust = timed_in_rust(|| {
        let [q, k, v] = [&q, &k, &v].map(|halves| singles(halves));
        host.par_chunks_exact_mut(length * HEAD)
            .zip(q.par_chunks_exact(length * HEAD))
            .zip(
                k.par_chunks_exact(length * HEAD)
                    .zip(v.par_chunks_exact(length * HEAD)),
            )
            .for_each(|((out, q), (k, v))| head(out, q, k, v, scale));
    })?;
    check(&stream.clone_dtoh(&out)?, &host, 2e-3)?;
    Ok(Measured { softcuda, rust })
}

/// A head: 8 rows of Q meet all of K and V.
fn head(out: &mut [f32], q: &[f32], k: &[f32], v: &[f32], scale: f32) {
    out.par_chunks_exact_mut(8 * HEAD)
        .zip(q.par_chunks_exact(8 * HEAD))
        .for_each(|(out, q)| {
            let mut weights = vec![0.0f32; k.len() / HEAD];
            for (out, q) in out.chunks_exact_mut(HEAD).zip(q.chunks_exact(HEAD)) {
                for (weight, k) in weights.iter_mut().zip(k.chunks_exact(HEAD)) {
                    // Eight sums, so that they are made in vectors.
                    let mut sums = [0.0f32; 8];
                    for (q, k) in q.chunks_exact(8).zip(k.chunks_exact(8)) {
                        for ((sum, q), k) in sums.iter_mut().zip(q).zip(k) {
                            *sum += q * k;
                        }
                    }
                    *weight = sums.iter().sum::<f32>() * scale;
                }
                let most = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let mut total = 0.0;
                out.fill(0.0);
                for (weight, v) in weights.iter().zip(v.chunks_exact(HEAD)) {
                    let weight = (weight - most).exp();
                    total += weight;
                    for (out, v) in out.iter_mut().zip(v) {
                        *out += weight * v;
                    }
                }
                out.iter_mut().for_each(|out| *out /= total);
            }
        });
}
