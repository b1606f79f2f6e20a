//! Driver calls on a device's graph memory pool.

use cudarc::driver::sys::{CUdevice, CUgraphMem_attribute};

use super::call;
use crate::Result;

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
