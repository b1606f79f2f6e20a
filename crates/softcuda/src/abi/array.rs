//! Arrays.

use super::types::CUarray;
use super::{In, Out, export};
use crate::driver::array::{self, Shape};
use crate::driver::capture;

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArrayDescriptor {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArrayDescriptor3d {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
}

export! {
    /// Makes an array of one or two dimensions.
    fn cuArrayCreate_v2(handle: Out<CUarray>, descriptor: In<ArrayDescriptor>) {
        capture::permit()?;
        handle.some()?;
        let ArrayDescriptor { width, height, format, channels } = descriptor.get()?;
        let (width, height) = (width as u64, height as u64);
        handle.set(array::create(Shape { width, height, depth: 0, format, channels, flags: 0 })?)
    }

    /// Makes an array.
    fn cuArray3DCreate_v2(handle: Out<CUarray>, descriptor: In<ArrayDescriptor3d>) {
        capture::permit()?;
        handle.some()?;
        let ArrayDescriptor3d { width, height, depth, format, channels, flags } = descriptor.get()?;
        let (width, height, depth) = (width as u64, height as u64, depth as u64);
        handle.set(array::create(Shape { width, height, depth, format, channels, flags })?)
    }

    /// Destroys an array.
    fn cuArrayDestroy(handle: CUarray) {
        capture::permit()?;
        array::destroy(handle)
    }

    /// What an array is.
    fn cuArrayGetDescriptor_v2(descriptor: Out<ArrayDescriptor>, handle: CUarray) {
        descriptor.some()?;
        let shape = array::resolve(handle.0)?.shape();
        let (width, height) = (shape.width as usize, shape.height as usize);
        descriptor.set(ArrayDescriptor { width, height, format: shape.format, channels: shape.channels })
    }

    /// What an array is.
    fn cuArray3DGetDescriptor_v2(descriptor: Out<ArrayDescriptor3d>, handle: CUarray) {
        descriptor.some()?;
        let Shape { width, height, depth, format, channels, flags } = array::resolve(handle.0)?.shape();
        let (width, height, depth) = (width as usize, height as usize, depth as usize);
        descriptor.set(ArrayDescriptor3d { width, height, depth, format, channels, flags })
    }
}
