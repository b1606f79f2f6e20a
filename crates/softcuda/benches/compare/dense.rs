//! Dense arithmetic: gravity between all pairs, and products of matrices.

use std::hint::black_box;

use cudarc::driver::{CudaFunction, PushKernelArg};
use rayon::prelude::*;

use super::Outcome;
use super::device::{Device, GEMM, Kernel, NBODY, config, plane};
use super::input::noise;
use super::measure::{Measured, Row, check, timed, timed_in_rust};

pub const NBODY_TILED: Row = Row {
    name: "n-body f32 through a shared tile, 4,096 bodies (barriers)",
    aim: 6.0,
    kernel: Kernel {
        source: NBODY,
        name: "nbody",
    },
    run: nbody_tiled,
};

fn nbody_tiled(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let n = 4096;
    let position: Vec<f32> = noise(4 * n, 3);
    let stream = &device.stream;
    let position_device = stream.clone_htod(&position)?;
    let mut force = stream.alloc_zeros::<f32>(4 * n)?;
    let softening = 0.01f32;
    let softcuda = timed(|| {
        let count = n as u32;
        let mut call = stream.launch_builder(function);
        call.arg(&position_device)
            .arg(&mut force)
            .arg(&count)
            .arg(&softening);
        // SAFETY: the arguments are those of `nbody`, and both buffers hold `n` bodies.
        unsafe { call.launch(config(n / 64, 64)) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut host: Vec<f32> = Vec::new();
    let rust = timed_in_rust(|| {
        let (all, _) = black_box(&position[..]).as_chunks::<4>();
        host = all
            .par_iter()
            .flat_map_iter(|me| {
                let mut force = [0.0f32; 4];
                for other in all {
                    let (dx, dy, dz) = (other[0] - me[0], other[1] - me[1], other[2] - me[2]);
                    let r = 1.0 / (dx * dx + dy * dy + dz * dz + softening).sqrt();
                    let s = other[3] * r * r * r;
                    force[0] += dx * s;
                    force[1] += dy * s;
                    force[2] += dz * s;
                }
                force[3] = me[3];
                force
            })
            .collect();
    })?;
    check(&stream.clone_dtoh(&force)?, &host, 1e-3)?;
    Ok(Measured { softcuda, rust })
}

pub const NBODY_PLAIN: Row = Row {
    name: "n-body f64, 2,048 bodies (arithmetic)",
    aim: 6.0,
    kernel: Kernel {
        source: NBODY,
        name: "nbody_f64",
    },
    run: nbody_plain,
};

fn nbody_plain(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let n = 2048;
    let position: Vec<f64> = noise(4 * n, 4).into_iter().map(f64::from).collect();
    let stream = &device.stream;
    let position_device = stream.clone_htod(&position)?;
    let mut force = stream.alloc_zeros::<f64>(3 * n)?;
    let softening = 0.01f64;
    let softcuda = timed(|| {
        let count = n as u32;
        let mut call = stream.launch_builder(function);
        call.arg(&position_device)
            .arg(&mut force)
            .arg(&count)
            .arg(&softening);
        // SAFETY: the arguments are those of `nbody_f64`, and the buffers hold `n` bodies.
        unsafe { call.launch(config(n / 64, 64)) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut host: Vec<f64> = Vec::new();
    let rust = timed_in_rust(|| {
        let (all, _) = black_box(&position[..]).as_chunks::<4>();
        host = all
            .par_iter()
            .flat_map_iter(|me| {
                let mut force = [0.0f64; 3];
                for other in all {
                    let (dx, dy, dz) = (other[0] - me[0], other[1] - me[1], other[2] - me[2]);
                    let d = dx * dx + dy * dy + dz * dz + softening;
                    let s = other[3] / (d * d.sqrt());
                    force[0] += dx * s;
                    force[1] += dy * s;
                    force[2] += dz * s;
                }
                force
            })
            .collect();
    })?;
    // In Rust the products are rounded before they are added: without target features it has no
    // fused multiply-add but a slow call.
    check(&stream.clone_dtoh(&force)?, &host, 1e-9)?;
    Ok(Measured { softcuda, rust })
}

pub const GEMM_TILED: Row = Row {
    name: "tiled GEMM f32, 512 x 512 x 512 (barriers)",
    aim: 2.0,
    kernel: Kernel {
        source: GEMM,
        name: "gemm_f32",
    },
    run: gemm_tiled,
};

fn gemm_tiled(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let n = 512;
    let (a, b) = (noise(n * n, 5), noise(n * n, 6));
    let stream = &device.stream;
    let (a_device, b_device) = (stream.clone_htod(&a)?, stream.clone_htod(&b)?);
    let mut c_device = stream.alloc_zeros::<f32>(n * n)?;
    let softcuda = timed(|| {
        let size = n as u32;
        let mut call = stream.launch_builder(function);
        call.arg(&a_device)
            .arg(&b_device)
            .arg(&mut c_device)
            .arg(&size)
            .arg(&size)
            .arg(&size);
        // SAFETY: the arguments are those of `gemm_f32`, and the buffers hold `n` by `n` elements.
        unsafe { call.launch(plane((n / 16, n / 16), (16, 16))) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut c = vec![0.0f32; n * n];
    // The same tiling: 16 rows at a time against 16 rows of B, the inner loop along a row of B and
    // C.
    let rust = timed_in_rust(|| {
        let (a, b) = (black_box(&a), black_box(&b));
        c.par_chunks_mut(16 * n).enumerate().for_each(|(tile, c)| {
            c.fill(0.0);
            for k0 in (0..n).step_by(16) {
                for (row, c) in c.chunks_exact_mut(n).enumerate() {
                    for k in k0..k0 + 16 {
                        let a = a[(tile * 16 + row) * n + k];
                        for (c, b) in c.iter_mut().zip(&b[k * n..(k + 1) * n]) {
                            *c += a * b;
                        }
                    }
                }
            }
        });
    })?;
    check(&stream.clone_dtoh(&c_device)?, &c, 1e-3)?;
    Ok(Measured { softcuda, rust })
}

pub const GEMM_REGISTERS: Row = Row {
    name: "GEMM f32, 4 x 4 in registers, 512 x 512 x 512 (barriers)",
    aim: 2.0,
    kernel: Kernel {
        source: GEMM,
        name: "gemm_register_tile",
    },
    run: gemm_registers,
};

/// Adds 4 rows of A times 8 columns of B: `a` holds the rows, `b` the columns, one `k` after
/// another.
fn piece(a: [&[f32]; 4], b: &[[f32; 8]]) -> [[f32; 8]; 4] {
    let mut sums = [[0.0f32; 8]; 4];
    let [a0, a1, a2, a3] = a;
    for ((((b, a0), a1), a2), a3) in b.iter().zip(a0).zip(a1).zip(a2).zip(a3) {
        for (sums, a) in sums.iter_mut().zip([a0, a1, a2, a3]) {
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum += a * b;
            }
        }
    }
    sums
}

/// `C = A * B`, of `n` rows and columns: 64 rows of `C` at a time; 8 columns of `B` are brought
/// together, then meet 4 rows at a time.
pub fn product(a: &[f32], b: &[f32], c: &mut [f32], n: usize) {
    c.par_chunks_mut(64 * n).enumerate().for_each(|(tile, c)| {
        let mut panel = vec![[0.0f32; 8]; n];
        for column in (0..n).step_by(8) {
            for (panel, b) in panel.iter_mut().zip(b.chunks_exact(n)) {
                panel.copy_from_slice(&b[column..column + 8]);
            }
            for (four, c) in c.chunks_exact_mut(4 * n).enumerate() {
                let row = |r| &a[(tile * 64 + four * 4 + r) * n..][..n];
                let sums = piece(std::array::from_fn(row), &panel);
                for (c, sums) in c.chunks_exact_mut(n).zip(&sums) {
                    c[column..column + 8].copy_from_slice(sums);
                }
            }
        }
    });
}

fn gemm_registers(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let n = 512;
    let (a, b) = (noise(n * n, 23), noise(n * n, 24));
    let stream = &device.stream;
    let (a_device, b_device) = (stream.clone_htod(&a)?, stream.clone_htod(&b)?);
    let mut c_device = stream.alloc_zeros::<f32>(n * n)?;
    let softcuda = timed(|| {
        let size = n as u32;
        let mut call = stream.launch_builder(function);
        call.arg(&a_device).arg(&b_device).arg(&mut c_device);
        call.arg(&size).arg(&size);
        // SAFETY: the arguments are those of `gemm_register_tile`, and the buffers hold `n` by `n`
        // elements.
        unsafe { call.launch(plane((n / 32, n / 32), (64, 1))) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut c = vec![0.0f32; n * n];
    let rust = timed_in_rust(|| product(black_box(&a), black_box(&b), &mut c, n))?;
    check(&stream.clone_dtoh(&c_device)?, &c, 1e-3)?;
    Ok(Measured { softcuda, rust })
}
