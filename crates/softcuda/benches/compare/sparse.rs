//! Compressed sparse rows: products with a vector, and a breadth-first search.

use std::hint::black_box;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use cudarc::driver::{CudaFunction, PushKernelArg};
use rayon::prelude::*;

use super::Outcome;
use super::device::{BENCH, Device, Kernel, SPMV, config};
use super::input::{Rows, noise};
use super::measure::{Measured, Row, check, timed, timed_in_rust};

pub const THREAD_A_ROW: Row = Row {
    name: "sparse mat-vec CSR f32, 1 M rows of 5",
    aim: 1.5,
    kernel: Kernel {
        source: SPMV,
        name: "spmv_scalar",
    },
    run: thread_a_row,
};

fn thread_a_row(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let matrix = Rows::laplacian(1024);
    let rows = matrix.count();
    let value = |row| {
        let columns = &matrix.columns[matrix.range(row)];
        columns
            .iter()
            .map(move |&column| if column as usize == row { 4.0 } else { -1.0 })
    };
    let values: Vec<f32> = (0..rows).flat_map(value).collect();
    let x = noise(rows, 8);
    let stream = &device.stream;
    let offsets_device = stream.clone_htod(&matrix.offsets)?;
    let columns_device = stream.clone_htod(&matrix.columns)?;
    let (values_device, x_device) = (stream.clone_htod(&values)?, stream.clone_htod(&x)?);
    let mut y_device = stream.alloc_zeros::<f32>(rows)?;
    let softcuda = timed(|| {
        let count = rows as u32;
        let mut call = stream.launch_builder(function);
        call.arg(&offsets_device)
            .arg(&columns_device)
            .arg(&values_device)
            .arg(&x_device)
            .arg(&mut y_device)
            .arg(&count);
        // SAFETY: the arguments are those of `spmv_scalar` and describe one matrix of `rows` rows.
        unsafe { call.launch(config(rows / 256, 256)) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut y = vec![0.0f32; rows];
    let rust = timed_in_rust(|| {
        let x = &black_box(&x)[..];
        y.par_iter_mut()
            .enumerate()
            .with_min_len(1 << 12)
            .for_each(|(row, y)| {
                let range = matrix.range(row);
                *y = matrix.columns[range.clone()]
                    .iter()
                    .zip(&values[range])
                    .fold(0.0, |sum: f32, (&column, &value)| {
                        sum + value * x[column as usize]
                    });
            });
    })?;
    check(&stream.clone_dtoh(&y_device)?, &y, 1e-5)?;
    Ok(Measured { softcuda, rust })
}

pub const WARP_A_ROW: Row = Row {
    name: "sparse mat-vec CSR f64, 64 k rows of about 32, a warp a row (shuffles)",
    aim: 1.5,
    kernel: Kernel {
        source: SPMV,
        name: "spmv_warp",
    },
    run: warp_a_row,
};

fn warp_a_row(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let rows = 1 << 16;
    let matrix = Rows::random(rows, 16, 48, 19);
    let wide = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<f64>>();
    let (values, x) = (wide(noise(matrix.columns.len(), 20)), wide(noise(rows, 21)));
    let stream = &device.stream;
    let offsets_device = stream.clone_htod(&matrix.offsets)?;
    let columns_device = stream.clone_htod(&matrix.columns)?;
    let (values_device, x_device) = (stream.clone_htod(&values)?, stream.clone_htod(&x)?);
    let mut y_device = stream.alloc_zeros::<f64>(rows)?;
    let softcuda = timed(|| {
        let count = rows as u32;
        let mut call = stream.launch_builder(function);
        call.arg(&offsets_device)
            .arg(&columns_device)
            .arg(&values_device)
            .arg(&x_device)
            .arg(&mut y_device)
            .arg(&count);
        // SAFETY: the arguments are those of `spmv_warp` and describe one matrix of `rows` rows.
        unsafe { call.launch(config(rows / 8, 256)) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut y = vec![0.0f64; rows];
    let rust = timed_in_rust(|| {
        let x = &black_box(&x)[..];
        y.par_iter_mut()
            .enumerate()
            .with_min_len(1 << 10)
            .for_each(|(row, y)| {
                let range = matrix.range(row);
                *y = matrix.columns[range.clone()]
                    .iter()
                    .zip(&values[range])
                    .map(|(&column, &value)| value * x[column as usize])
                    .sum();
            });
    })?;
    check(&stream.clone_dtoh(&y_device)?, &y, 1e-12)?;
    Ok(Measured { softcuda, rust })
}

pub const SEARCH: Row = Row {
    name: "breadth-first search, 256 k vertices of degree 8, all levels (atomics)",
    aim: 6.0,
    kernel: Kernel {
        source: BENCH,
        name: "bfs_level",
    },
    run: search,
};

fn search(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let vertices = 1 << 18;
    let graph = Rows::random(vertices, 8, 8, 22);
    let stream = &device.stream;
    let offsets_device = stream.clone_htod(&graph.offsets)?;
    let neighbours_device = stream.clone_htod(&graph.columns)?;
    let mut levels_device = stream.alloc_zeros::<u32>(vertices)?;
    let mut frontier = stream.alloc_zeros::<u32>(vertices)?;
    let mut next = stream.alloc_zeros::<u32>(vertices)?;
    let mut next_count = stream.alloc_zeros::<u32>(1)?;
    let softcuda = timed(|| {
        stream.memset_zeros(&mut levels_device)?;
        stream.memcpy_htod(&[1u32], &mut levels_device.slice_mut(..1))?;
        stream.memcpy_htod(&[0u32], &mut frontier.slice_mut(..1))?;
        let (mut count, mut level) = (1u32, 1u32);
        while count > 0 {
            level += 1;
            stream.memset_zeros(&mut next_count)?;
            let mut call = stream.launch_builder(function);
            call.arg(&offsets_device)
                .arg(&neighbours_device)
                .arg(&frontier)
                .arg(&count)
                .arg(&mut next)
                .arg(&mut next_count)
                .arg(&mut levels_device)
                .arg(&level);
            // SAFETY: the arguments are those of `bfs_level`. Frontiers have room for all vertices,
            // and a vertex comes to one only once.
            unsafe { call.launch(config(count.div_ceil(256) as usize, 256)) }?;
            count = stream.clone_dtoh(&next_count)?[0];
            std::mem::swap(&mut frontier, &mut next);
        }
        Ok(())
    })?;
    let levels: Vec<AtomicU32> = (0..vertices).map(|_| AtomicU32::new(0)).collect();
    let rust = timed_in_rust(|| {
        levels.par_iter().for_each(|level| level.store(0, Relaxed));
        levels[0].store(1, Relaxed);
        let (mut frontier, mut level) = (vec![0u32], 1);
        while !frontier.is_empty() {
            level += 1;
            let first_to_see = |neighbour: &u32| {
                let seen = &levels[*neighbour as usize];
                seen.load(Relaxed) == 0 && seen.compare_exchange(0, level, Relaxed, Relaxed).is_ok()
            };
            let parts: Vec<Vec<u32>> = black_box(frontier)
                .par_chunks(1 << 10)
                .map(|part| {
                    part.iter()
                        .flat_map(|&vertex| &graph.columns[graph.range(vertex as usize)])
                        .copied()
                        .filter(first_to_see)
                        .collect()
                })
                .collect();
            frontier = parts.concat();
        }
    })?;
    let levels: Vec<u32> = levels.into_iter().map(AtomicU32::into_inner).collect();
    check(&stream.clone_dtoh(&levels_device)?, &levels, 0.0)?;
    Ok(Measured { softcuda, rust })
}
