//! Driver calls on the access of devices to each other's memory.

use std::ptr;

use cudarc::driver::sys::{CUcontext, CUdevice, CUmemoryPool, CUresult};

use super::{ask, call};
use crate::{Error, Result};

/// Whether a device can reach the memory of another.
pub(crate) fn can_access(device: CUdevice, peer: CUdevice) -> Result<bool> {
    let can = ask(0, |can| call!(cuDeviceCanAccessPeer(can, device, peer)))?;
    Ok(can != 0)
}

/// Kernels of the current context reach what `peer` allocates without a pool. That they do already
/// is no error.
pub(crate) fn enable(peer: CUcontext) -> Result<()> {
    match call!(cuCtxEnablePeerAccess(peer, 0)) {
        Err(Error::Call {
            code: CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
            ..
        }) => Ok(()),
        done => done,
    }
}

/// The pool that a device allocates from in stream order, unless another is named.
pub(crate) fn current_pool(device: CUdevice) -> Result<CUmemoryPool> {
    ask(ptr::null_mut(), |pool| {
        call!(cuDeviceGetMemPool(pool, device))
    })
}

/// A device reaches the memory of a pool.
pub(crate) fn open_pool(pool: CUmemoryPool, device: usize) -> Result<()> {
    const DEVICE: i32 = 1;
    const READ_WRITE: i32 = 3;
    // `CUmemAccessDesc`: the bindings have another form of it for each version of CUDA.
    let access = [DEVICE, device as i32, READ_WRITE];
    call!(cuMemPoolSetAccess(pool, (&raw const access).cast(), 1))
}
