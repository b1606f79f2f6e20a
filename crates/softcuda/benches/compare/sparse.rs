//! Compressed sparse rows: a product with a vector.

use std::hint::black_box;

use cudarc::driver::{CudaFunction, PushKernelArg};
use rayon::prelude::*;

use super::Outcome;
use super::device::{Device, Kernel, SPMV, config};
use super::input::{Rows, noise};
use super::measure::{Measured, Row, check, timed, timed_in_rust};

pub const THREAD_A_ROW: Row = Row {
    name: "sparse mat-vec CSR f32, 1 M rows of 5",
    aim: 2.0,
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
