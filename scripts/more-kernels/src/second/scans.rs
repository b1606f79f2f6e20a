//! Scans, and what is found by them.

use std::hint::black_box;

use cudarc::driver::{CudaSlice, DevicePtr, PushKernelArg};
use rayon::prelude::*;

use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("scan_kogge_stone", kogge_stone),
    ("scan_exclusive_x4", exclusive),
    ("compact_indexes", |gpu, name| compact(gpu, name, Some(500))),
    ("compact_flat", |gpu, name| compact(gpu, name, None)),
    ("compact_by_block", |gpu, name| compact(gpu, name, None)),
];

fn kogge_stone(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 2_000_003usize;
    let (f, add) = (gpu.kernel(name)?, gpu.kernel("scan_add_sums")?);
    let x = between(0.0, 1.0, n, 1);
    let xd = gpu.stream.clone_htod(&x)?;
    // The output, and the sums of each level above.
    let mut sizes = vec![n];
    while sizes[sizes.len() - 1] > 1 {
        sizes.push(sizes[sizes.len() - 1].div_ceil(256));
    }
    let levels: Vec<CudaSlice<f32>> = sizes
        .iter()
        .map(|&size| gpu.stream.alloc_zeros(size))
        .collect::<Result<_, _>>()?;
    let mut y = vec![0.0f32; n];
    let times = race(
        name,
        || {
            let at = |level: usize| levels[level].device_ptr(&gpu.stream).0;
            let top = levels.len() - 1;
            for (level, &size) in sizes.iter().enumerate().take(top) {
                let count = size as u32;
                let (from, to, sums) = (at(level), at(level), at(level + 1));
                let from = if level == 0 {
                    xd.device_ptr(&gpu.stream).0
                } else {
                    from
                };
                launch!(gpu, f, gpu.cover(size, 256), &from, &to, &sums, &count);
            }
            for level in (0..top - 1).rev() {
                let count = sizes[level] as u32;
                let (to, sums) = (at(level), at(level + 1));
                launch!(gpu, add, gpu.cover(sizes[level], 256), &to, &sums, &count);
            }
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let x = black_box(&x[..]);
            let mut before: Vec<f32> = x.par_chunks(1 << 13).map(super::sums::total).collect();
            let mut all = 0.0;
            for sum in &mut before {
                all += std::mem::replace(sum, all);
            }
            y.par_chunks_mut(1 << 13)
                .zip(x.par_chunks(1 << 13))
                .zip(before)
                .for_each(|((y, x), before)| {
                    let mut sum = before;
                    for (y, x) in y.iter_mut().zip(x) {
                        sum += x;
                        *y = sum;
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&levels[0])?, &y, 1e-3))
}

fn exclusive(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 4_000_001usize;
    let f = gpu.kernel(name)?;
    let (middle, add) = (gpu.kernel("scan_totals")?, gpu.kernel("scan_add_x4")?);
    let x = below(500, n, 1);
    let xd = gpu.stream.clone_htod(&x)?;
    let blocks = n.div_ceil(1024);
    let mut yd = gpu.stream.alloc_zeros::<i32>(n)?;
    let mut td = gpu.stream.alloc_zeros::<i32>(blocks)?;
    let mut y = vec![0i32; n];
    let times = race(
        name,
        || {
            let (n, b) = (n as i32, blocks as i32);
            launch!(gpu, f, line(blocks, 256), &xd, &mut yd, &mut td, &n);
            launch!(gpu, middle, line(1, 1024), &mut td, &b);
            launch!(gpu, add, line(blocks, 256), &mut yd, &td, &n);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let x = black_box(&x[..]);
            let mut before: Vec<i32> = x.par_chunks(1 << 14).map(|x| x.iter().sum()).collect();
            let mut all = 0;
            for sum in &mut before {
                all += std::mem::replace(sum, all);
            }
            y.par_chunks_mut(1 << 14)
                .zip(x.par_chunks(1 << 14))
                .zip(before)
                .for_each(|((y, x), before)| {
                    let mut sum = before;
                    for (y, x) in y.iter_mut().zip(x) {
                        *y = sum;
                        sum += x;
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&yd)?, &y, 0.0))
}

fn compact(gpu: &Gpu, name: &str, blocks: Option<usize>) -> Outcome<f64> {
    let n = 4_000_009usize;
    let f = gpu.kernel(name)?;
    let x = noise(n, 1);
    let xd = gpu.stream.clone_htod(&x)?;
    let mut fd = gpu.stream.alloc_zeros::<i32>(n)?;
    let mut cd = gpu.stream.alloc_zeros::<i32>(1)?;
    let limit = 0.5f32;
    let mut found: Vec<i32> = Vec::new();
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut cd)?;
            let ni = n as i32;
            let config = blocks.map_or(gpu.cover(n, 256), |blocks| line(blocks, 256));
            launch!(gpu, f, config, &xd, &ni, &limit, &mut fd, &mut cd);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            // How many each chunk has, then each into its part.
            const CHUNK: usize = 1 << 12;
            let x = black_box(&x[..]);
            let counts: Vec<usize> = x
                .par_chunks(CHUNK)
                .with_min_len(8)
                .map(|x| x.iter().map(|&v| u32::from(v > limit)).sum::<u32>() as usize)
                .collect();
            found.resize(counts.iter().sum(), 0);
            let mut rest = &mut found[..];
            let mut parts = Vec::with_capacity(counts.len());
            for count in counts {
                parts.push(rest.split_off_mut(..count).unwrap());
            }
            parts
                .into_par_iter()
                .zip(x.par_chunks(CHUNK))
                .enumerate()
                .with_min_len(8)
                .for_each(|(chunk, (part, x))| {
                    // All are written, and only those that count stay.
                    let (mut kept, mut count) = ([0i32; CHUNK], 0);
                    for (i, &v) in ((chunk * CHUNK) as i32..).zip(x) {
                        kept[count] = i;
                        count += usize::from(v > limit);
                    }
                    part.copy_from_slice(&kept[..count]);
                });
        },
    )?;
    let count = gpu.stream.clone_dtoh(&cd)?[0] as usize;
    let mut got = gpu.stream.clone_dtoh(&fd)?;
    got.truncate(count);
    got.sort_unstable();
    times.print(check(&got, &found, 0.0))
}
