//! Driver calls on memory, and on a device's graph memory pool.

use std::cell::Cell;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUdevice, CUdeviceptr, CUgraphMem_attribute, CUpointer_attribute, CUstream,
};

use super::{ask, call, calls};
use crate::Result;

calls! {
    /// Frees what was allocated in stream order, in the order of `stream`. A captured stream
    /// refuses, unless the memory is its graph's.
    free_in_order(address: CUdeviceptr, stream: CUstream): cuMemFreeAsync;

    /// Frees at once.
    free(address: CUdeviceptr): cuMemFree_v2;
    trim_pool(device: CUdevice): cuDeviceGraphMemTrim;
}

/// Whether memory of `context` is freed in stream order. Otherwise to free it waits for the device.
pub(crate) fn frees_in_order(context: &CudaContext) -> bool {
    context.has_async_alloc() && !WITHOUT_ORDER.get()
}

thread_local! {
    /// A test has this thread free in no order.
    pub(super) static WITHOUT_ORDER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the driver knows the address: it does of memory that it allocated or page-locked.
pub(crate) fn is_known(address: CUdeviceptr) -> bool {
    let kind = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    ask(0u32, |value| {
        call!(cuPointerGetAttribute(
            (&raw mut *value).cast(),
            kind,
            address
        ))
    })
    .is_ok()
}

pub(crate) fn pool_figure(device: CUdevice, figure: CUgraphMem_attribute) -> Result<u64> {
    ask(0u64, |value| {
        let value = (&raw mut *value).cast();
        call!(cuDeviceGetGraphMemAttribute(device, figure, value))
    })
}

/// Starts one of the two high figures anew.
pub(crate) fn reset_pool_figure(device: CUdevice, figure: CUgraphMem_attribute) -> Result<()> {
    let mut zero: u64 = 0;
    let value = (&raw mut zero).cast();
    call!(cuDeviceSetGraphMemAttribute(device, figure, value))
}
