//! The failure of a process: one that faults on a device loses the contexts that it has on all of
//! them, and no new one can be made, as an H200 does it.
//!
//! Work stops as soon as some has failed. Calls answer the error from the first one on that waits
//! for work or asks how it goes: calls that only put work into streams do not look, so whether they
//! succeed does not depend on how fast the work before them failed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::{CUresult, Result, context};
use crate::engine::{Failure, Fate};

/// The first error of work; 0 while there is none.
static FAILED: AtomicU32 = AtomicU32::new(0);
/// A call has waited or asked since.
static NOTICED: AtomicBool = AtomicBool::new(false);

/// The error of work that failed, noticed or not.
pub(crate) fn failed() -> Option<CUresult> {
    match FAILED.load(Ordering::Acquire) {
        0 => None,
        code => Some(CUresult(code)),
    }
}

/// Fails once a failure has been noticed.
pub(crate) fn check() -> Result {
    match NOTICED.load(Ordering::Acquire) {
        false => Ok(()),
        true => notice(),
    }
}

/// As [`check`], for calls that need no context: without one they do not look.
pub(crate) fn check_if_current() -> Result {
    match context::lives_here() {
        true => check(),
        false => Ok(()),
    }
}

/// Fails once work has: for calls that wait or ask.
pub(crate) fn notice() -> Result {
    match failed() {
        None => Ok(()),
        Some(error) => {
            NOTICED.store(true, Ordering::Release);
            Err(error)
        }
    }
}

/// The fate of all contexts.
pub(crate) struct OfProcess;

impl Fate for OfProcess {
    fn failure(&self) -> Option<Failure> {
        failed().map(|error| Failure(error.0))
    }

    fn fail(&self, error: Failure) {
        // The first one stays.
        let _ = FAILED.compare_exchange(0, error.0, Ordering::AcqRel, Ordering::Relaxed);
    }
}
