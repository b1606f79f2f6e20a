//! Driver calls on memory, and on a device's graph memory pool.

use std::cell::Cell;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUdevice, CUdeviceptr, CUgraphMem_attribute, CUpointer_attribute, CUstream,
};

use super::call;
use crate::Result;

/// Frees what was allocated in stream order, in the order of `stream`. A captured stream refuses,
/// unless the memory is its graph's.
pub(crate) fn free_in_order(address: CUdeviceptr, stream: CUstream) -> Result<()> {
    call!(cuMemFreeAsync(address, stream))
}

/// Whether memory of `context` is freed in stream order. Otherwise to free it waits for the device.
pub(crate) fn frees_in_order(context: &CudaContext) -> bool {
    context.has_async_alloc() && !WITHOUT_ORDER.with(Cell::get)
}

thread_local! {
    static WITHOUT_ORDER: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body` as if devices freed memory in no stream's order, as far as this thread asks.
pub(crate) fn without_order<R>(body: impl FnOnce() -> R) -> R {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            WITHOUT_ORDER.set(self.0);
        }
    }
    let _back = Back(WITHOUT_ORDER.replace(true));
    body()
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
