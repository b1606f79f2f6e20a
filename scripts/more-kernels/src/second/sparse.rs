//! Sparse matrices.

use std::hint::black_box;

use cudarc::driver::{DevicePtr, DeviceRepr, PushKernelArg};
use rayon::prelude::*;

use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("spmv_csr4", csr4),
    ("spmv_scalar_f64", csr64),
    ("spmm_csr_x8", |gpu, name| spmm(gpu, name, true)),
    ("spmm_csr_f4", |gpu, name| spmm(gpu, name, false)),
];

/// Where rows begin, and the columns of what they have, some near the diagonal and some anywhere.
fn pattern(rows: usize, longest: u32, seed: u64) -> (Vec<i32>, Vec<i32>) {
    let mut starts = vec![0i32];
    let mut columns = Vec::new();
    let mut any = words(seed + 1);
    for (row, length) in below(longest + 1, rows, seed).into_iter().enumerate() {
        let start = columns.len();
        for k in 0..length {
            let word = (any.next().unwrap() >> 33) as usize;
            columns.push(if k % 4 == 0 {
                (word % rows) as i32
            } else {
                ((row + word % 200) % rows) as i32
            });
        }
        columns[start..].sort_unstable();
        starts.push(columns.len() as i32);
    }
    (starts, columns)
}

fn csr4(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let rows = 150_001usize;
    let f = gpu.kernel(name)?;
    let (starts, columns) = pattern(rows, 24, 1);
    let (values, x) = (noise(columns.len(), 2), noise(rows, 3));
    let (sd, cd) = (
        gpu.stream.clone_htod(&starts)?,
        gpu.stream.clone_htod(&columns)?,
    );
    let (vd, xd) = (gpu.stream.clone_htod(&values)?, gpu.stream.clone_htod(&x)?);
    let mut yd = gpu.stream.alloc_zeros::<f32>(rows)?;
    let mut y = vec![0.0f32; rows];
    let times = race(
        name,
        || {
            let r = rows as i32;
            let config = gpu.cover(rows * 4, 128);
            launch!(gpu, f, config, &r, &sd, &cd, &vd, &xd, &mut yd);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let x = black_box(&x[..]);
            y.par_iter_mut()
                .zip(starts.par_windows(2))
                .with_min_len(1 << 10)
                .for_each(|(y, ends)| {
                    let range = ends[0] as usize..ends[1] as usize;
                    let entries = columns[range.clone()].iter().zip(&values[range]);
                    *y = entries.map(|(&c, v)| v * x[c as usize]).sum();
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-5))
}

fn csr64(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let rows = 120_011usize;
    let f = gpu.kernel(name)?;
    let (starts, columns) = pattern(rows, 20, 5);
    let (values, x) = (noise64(columns.len(), 2), noise64(rows, 3));
    let mut y = noise64(rows, 4);
    let (sd, cd) = (
        gpu.stream.clone_htod(&starts)?,
        gpu.stream.clone_htod(&columns)?,
    );
    let (vd, xd) = (gpu.stream.clone_htod(&values)?, gpu.stream.clone_htod(&x)?);
    let mut yd = gpu.stream.clone_htod(&y)?;
    let (alpha, beta) = (1.5f64, 0.25f64);
    let times = race(
        name,
        || {
            let r = rows as i32;
            let config = line(160, 256);
            launch!(
                gpu, f, config, &r, &alpha, &sd, &cd, &vd, &xd, &beta, &mut yd
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let x = black_box(&x[..]);
            y.par_iter_mut()
                .zip(starts.par_windows(2))
                .with_min_len(1 << 10)
                .for_each(|(y, ends)| {
                    let range = ends[0] as usize..ends[1] as usize;
                    let entries = columns[range.clone()].iter().zip(&values[range]);
                    let dot: f64 = entries.map(|(&c, v)| v * x[c as usize]).sum();
                    *y = alpha * dot + beta * *y;
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-12))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CsrView {
    rows: i32,
    starts: u64,
    columns: u64,
    values: u64,
}
// SAFETY: as the kernels declare it.
unsafe impl DeviceRepr for CsrView {}

fn spmm(gpu: &Gpu, name: &str, thread_each: bool) -> Outcome<f64> {
    let rows = 80_003usize;
    let f = gpu.kernel(name)?;
    let (starts, columns) = pattern(rows, 20, 9);
    let (values, b) = (noise(columns.len(), 2), noise(rows * 8, 3));
    let (sd, cd) = (
        gpu.stream.clone_htod(&starts)?,
        gpu.stream.clone_htod(&columns)?,
    );
    let (vd, bd) = (gpu.stream.clone_htod(&values)?, gpu.stream.clone_htod(&b)?);
    let mut od = gpu.stream.alloc_zeros::<f32>(rows * 8)?;
    let mut out = vec![[0.0f32; 8]; rows];
    let view = CsrView {
        rows: rows as i32,
        starts: sd.device_ptr(&gpu.stream).0,
        columns: cd.device_ptr(&gpu.stream).0,
        values: vd.device_ptr(&gpu.stream).0,
    };
    let times = race(
        name,
        || {
            let config = if thread_each {
                shape((rows.div_ceil(32), 1, 1), (8, 32, 1))
            } else {
                gpu.cover(rows, 128)
            };
            launch!(gpu, f, config, &view, &bd, &mut od);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let (b, _) = black_box(&b[..]).as_chunks::<8>();
            out.par_iter_mut()
                .zip(starts.par_windows(2))
                .with_min_len(1 << 9)
                .for_each(|(out, ends)| {
                    let range = ends[0] as usize..ends[1] as usize;
                    let mut sums = [0.0f32; 8];
                    for (&c, v) in columns[range.clone()].iter().zip(&values[range]) {
                        for (sum, b) in sums.iter_mut().zip(&b[c as usize]) {
                            *sum += v * b;
                        }
                    }
                    *out = sums;
                });
        },
    )?;
    times.print(check(
        &gpu.stream.clone_dtoh(&od)?,
        out.as_flattened(),
        1e-5,
    ))
}
