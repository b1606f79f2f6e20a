//! Driver calls on memory, and on a device's graph memory pool.

use cudarc::driver::sys::{
    CUdevice, CUdeviceptr, CUgraphMem_attribute, CUpointer_attribute, CUstream,
};

use super::call;
use crate::Result;

/// Frees what was allocated in stream order, in the order of `stream`. A captured stream refuses, unless the memory is its graph's.
pub(crate) fn free_in_order(address: CUdeviceptr, stream: CUstream) -> Result<()> {
    call!(cuMemFreeAsync(address, stream))
}

/// Frees at once.
pub(crate) fn free(address: CUdeviceptr) -> Result<()> {
    call!(cuMemFree_v2(address))
}

/// Whether the driver knows the address: it does of memory that it allocated or page-locked.
pub(crate) fn is_known(address: CUdeviceptr) -> bool {
    let mut kind: u32 = 0;
    let mut ask = || {
        call!(cuPointerGetAttribute(
            (&raw mut kind).cast(),
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            address
        ))
    };
    ask().is_ok()
}

pub(crate) fn pool_figure(device: CUdevice, figure: CUgraphMem_attribute) -> Result<u64> {
    let mut value: u64 = 0;
    call!(cuDeviceGetGraphMemAttribute(
        device,
        figure,
        (&raw mut value).cast()
    ))?;
    Ok(value)
}

pub(crate) fn set_pool_figure(
    device: CUdevice,
    figure: CUgraphMem_attribute,
    mut value: u64,
) -> Result<()> {
    call!(cuDeviceSetGraphMemAttribute(
        device,
        figure,
        (&raw mut value).cast()
    ))
}

pub(crate) fn trim_pool(device: CUdevice) -> Result<()> {
    call!(cuDeviceGraphMemTrim(device))
}
