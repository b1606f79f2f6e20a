//! Driver calls that give a stream work to do at once.

use std::ffi::c_void;

use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS_v2, CUevent, CUlaunchAttribute,
    CUlaunchConfig, CUstream,
};

use super::{call, calls};
use crate::Result;

pub(crate) fn kernel(
    params: &CUDA_KERNEL_NODE_PARAMS,
    attributes: &mut [CUlaunchAttribute],
    stream: CUstream,
) -> Result<()> {
    let config = CUlaunchConfig {
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        hStream: stream,
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as u32,
    };
    let (function, arguments) = (params.func, params.kernelParams);
    call!(cuLaunchKernelEx(&config, function, arguments, params.extra))
}

calls! {
    copy(params: &CUDA_MEMCPY3D, stream: CUstream): cuMemcpy3DAsync_v2;
    record(event: CUevent, stream: CUstream): cuEventRecord;
}

/// Reads a word of the device into host memory.
pub(crate) fn read_word(to: *mut c_void, from: u64, stream: CUstream) -> Result<()> {
    call!(cuMemcpyDtoHAsync_v2(to, from, 4, stream))
}

pub(crate) fn fill(params: &CUDA_MEMSET_NODE_PARAMS_v2, stream: CUstream) -> Result<()> {
    let (to, value) = (params.dst, params.value);
    let (byte, half) = (value as u8, value as u16);
    let (width, height, pitch) = (params.width, params.height, params.pitch);
    if width == 0 || height == 0 {
        return Ok(());
    }
    match (params.elementSize, height) {
        (1, 1) => call!(cuMemsetD8Async(to, byte, width, stream)),
        (2, 1) => call!(cuMemsetD16Async(to, half, width, stream)),
        (_, 1) => call!(cuMemsetD32Async(to, value, width, stream)),
        (1, _) => call!(cuMemsetD2D8Async(to, pitch, byte, width, height, stream)),
        (2, _) => call!(cuMemsetD2D16Async(to, pitch, half, width, height, stream)),
        (_, _) => call!(cuMemsetD2D32Async(to, pitch, value, width, height, stream)),
    }
}

pub(crate) fn host(
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
    stream: CUstream,
) -> Result<()> {
    call!(cuLaunchHostFunc(stream, Some(function), data))
}

pub(crate) fn wait(event: CUevent, stream: CUstream) -> Result<()> {
    call!(cuStreamWaitEvent(stream, event, 0))
}
