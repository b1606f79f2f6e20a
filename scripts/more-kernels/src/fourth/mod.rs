//! Odd shapes of blocks, lanes that part and meet, sorts, images, language models, numerics.

mod blocks;
mod images;
mod infer;
mod lanes;
mod numerics;
mod sorts;
mod waits;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use cudarc::driver::{CudaSlice, DeviceRepr, ValidAsZeroBits};

use crate::Row;
use crate::harness::*;

pub const ROWS: &[&[Row]] = &[
    blocks::ROWS,
    lanes::ROWS,
    sorts::ROWS,
    images::ROWS,
    infer::ROWS,
    numerics::ROWS,
    waits::ROWS,
];

fn up<T: DeviceRepr>(gpu: &Gpu, values: &[T]) -> Outcome<CudaSlice<T>> {
    Ok(gpu.stream.clone_htod(values)?)
}

fn zeros<T: DeviceRepr + ValidAsZeroBits>(gpu: &Gpu, count: usize) -> Outcome<CudaSlice<T>> {
    Ok(gpu.stream.alloc_zeros::<T>(count)?)
}

fn down<T: DeviceRepr>(gpu: &Gpu, values: &CudaSlice<T>) -> Outcome<Vec<T>> {
    Ok(gpu.stream.clone_dtoh(values)?)
}

/// Sets a variable of the module.
fn set<T: DeviceRepr>(gpu: &Gpu, symbol: &str, values: &[T]) -> Outcome<()> {
    let mut symbol = gpu.module.get_global(symbol, &gpu.stream)?;
    // SAFETY: it has as many values of the type, for which any bytes are values.
    let mut view = unsafe { symbol.transmute_mut::<T>(values.len()) }.ok_or("another size")?;
    Ok(gpu.stream.memcpy_htod(values, &mut view)?)
}

fn sync(gpu: &Gpu) -> Outcome<()> {
    Ok(gpu.stream.synchronize()?)
}

fn sorted<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort_unstable();
    values
}

#[repr(C)]
struct Float3([f32; 3]);
// SAFETY: plain numbers, laid out as in C.
unsafe impl DeviceRepr for Float3 {}

#[repr(C, align(16))]
struct Float4([f32; 4]);
// SAFETY: plain numbers, laid out as in C.
unsafe impl DeviceRepr for Float4 {}

/// Adds to a float of which only the bits are atomic.
fn add_float(to: &AtomicU32, value: f32) {
    let mut old = to.load(Relaxed);
    loop {
        let new = (f32::from_bits(old) + value).to_bits();
        match to.compare_exchange_weak(old, new, Relaxed, Relaxed) {
            Ok(_) => return,
            Err(now) => old = now,
        }
    }
}
