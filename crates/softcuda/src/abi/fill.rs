//! `cuMemset*`.

use super::types::{CUdeviceptr, CUstream};
use super::{NullStream, export};
use crate::driver::copy::Until;
use crate::driver::fill::Request;
use crate::driver::{Result, stream};

fn run(stream: CUstream, null: NullStream, until: Until, fill: Request) -> Result {
    fill.run(&stream::resolve(stream, null)?, until)
}

fn now(null: NullStream, fill: Request) -> Result {
    run(CUstream::NULL, null, Until::Done, fill)
}

fn queued(stream: CUstream, null: NullStream, fill: Request) -> Result {
    run(stream, null, Until::Queued, fill)
}

fn line(address: CUdeviceptr, value: u32, element: u32, count: usize) -> Request {
    Request {
        address,
        pitch: None,
        value,
        element,
        width: count as u64,
        height: 1,
    }
}

fn rows(
    address: CUdeviceptr,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
) -> Request {
    Request {
        address,
        pitch: Some(pitch as u64),
        value,
        element,
        width: width as u64,
        height: height as u64,
    }
}

export! {
    /// Fills with a byte.
    fn cuMemsetD8_v2 | cuMemsetD8_v2_ptds(null; address: CUdeviceptr, value: u8, count: usize) {
        now(null, line(address, value.into(), 1, count))
    }

    /// Fills with a value of two bytes.
    fn cuMemsetD16_v2 | cuMemsetD16_v2_ptds(null; address: CUdeviceptr, value: u16, count: usize) {
        now(null, line(address, value.into(), 2, count))
    }

    /// Fills with a value of four bytes.
    fn cuMemsetD32_v2 | cuMemsetD32_v2_ptds(null; address: CUdeviceptr, value: u32, count: usize) {
        now(null, line(address, value, 4, count))
    }

    /// Fills rows with a byte.
    fn cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds(null;
        address: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize,
    ) {
        now(null, rows(address, pitch, value.into(), 1, width, height))
    }

    /// Fills rows with a value of two bytes.
    fn cuMemsetD2D16_v2 | cuMemsetD2D16_v2_ptds(null;
        address: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize,
    ) {
        now(null, rows(address, pitch, value.into(), 2, width, height))
    }

    /// Fills rows with a value of four bytes.
    fn cuMemsetD2D32_v2 | cuMemsetD2D32_v2_ptds(null;
        address: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize,
    ) {
        now(null, rows(address, pitch, value, 4, width, height))
    }

    /// Queues a fill with a byte.
    fn cuMemsetD8Async | cuMemsetD8Async_ptsz(null; address: CUdeviceptr, value: u8, count: usize, stream: CUstream) {
        queued(stream, null, line(address, value.into(), 1, count))
    }

    /// Queues a fill with a value of two bytes.
    fn cuMemsetD16Async | cuMemsetD16Async_ptsz(null; address: CUdeviceptr, value: u16, count: usize, stream: CUstream) {
        queued(stream, null, line(address, value.into(), 2, count))
    }

    /// Queues a fill with a value of four bytes.
    fn cuMemsetD32Async | cuMemsetD32Async_ptsz(null; address: CUdeviceptr, value: u32, count: usize, stream: CUstream) {
        queued(stream, null, line(address, value, 4, count))
    }

    /// Queues a fill of rows with a byte.
    fn cuMemsetD2D8Async | cuMemsetD2D8Async_ptsz(null;
        address: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream,
    ) {
        queued(stream, null, rows(address, pitch, value.into(), 1, width, height))
    }

    /// Queues a fill of rows with a value of two bytes.
    fn cuMemsetD2D16Async | cuMemsetD2D16Async_ptsz(null;
        address: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream,
    ) {
        queued(stream, null, rows(address, pitch, value.into(), 2, width, height))
    }

    /// Queues a fill of rows with a value of four bytes.
    fn cuMemsetD2D32Async | cuMemsetD2D32Async_ptsz(null;
        address: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream,
    ) {
        queued(stream, null, rows(address, pitch, value, 4, width, height))
    }
}
