//! The one device.

use super::{CUresult, Result};
use crate::abi::types::CUdevice;

/// The most that `CU_LIMIT_PERSISTING_L2_CACHE_SIZE` can be.
pub(crate) const PERSISTING_L2_MAX: u64 = 0x1e0_0000;

/// There is device 0 alone.
pub(crate) fn check(device: CUdevice) -> Result {
    match device {
        0 => Ok(()),
        _ => Err(CUresult::CUDA_ERROR_INVALID_DEVICE),
    }
}
