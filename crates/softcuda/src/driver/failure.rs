//! The failures of devices: a device that faults loses all contexts that the process has on it, and
//! no new one can be made, as an H200 does it. Other devices go on.
//!
//! Work stops as soon as it has failed. Calls answer the error from the first one on that waits for
//! work or asks how it goes: calls that only put work into streams do not look, so whether they
//! succeed does not depend on how fast the work before them failed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::{CUresult, Result, context};
use crate::engine::{Failure, Fate};
use crate::memory::Device;

/// What became of the work of a device.
struct Work {
    /// Its first error; 0 while there is none.
    failed: AtomicU32,
    /// A call has waited or asked since.
    noticed: AtomicBool,
}

static WORK: [Work; Device::MOST] = [const {
    Work {
        failed: AtomicU32::new(0),
        noticed: AtomicBool::new(false),
    }
}; Device::MOST];

/// The error of a device's work that failed, noticed or not.
pub(crate) fn failed(device: Device) -> Option<CUresult> {
    match WORK[device.index()].failed.load(Ordering::Acquire) {
        0 => None,
        code => Some(CUresult(code)),
    }
}

/// Fails once a failure has been noticed.
pub(crate) fn check(device: Device) -> Result {
    match WORK[device.index()].noticed.load(Ordering::Acquire) {
        false => Ok(()),
        true => notice(device),
    }
}

/// As [`check`], of the current context's device, for calls that need no context.
pub(crate) fn check_current() -> Result {
    context::current_device().map_or(Ok(()), check)
}

/// Fails once work has: for calls that wait or ask.
pub(crate) fn notice(device: Device) -> Result {
    match failed(device) {
        None => Ok(()),
        Some(error) => {
            WORK[device.index()].noticed.store(true, Ordering::Release);
            Err(error)
        }
    }
}

/// The fate of the contexts of a device.
pub(crate) struct Of(pub Device);

impl Fate for Of {
    fn failure(&self) -> Option<Failure> {
        failed(self.0).map(|error| Failure(error.0))
    }

    fn fail(&self, error: Failure) {
        let first = &WORK[self.0.index()].failed;
        // The first one stays.
        let _ = first.compare_exchange(0, error.0, Ordering::AcqRel, Ordering::Relaxed);
    }
}
