//! What a capture forbids to other calls.
//!
//! Some calls are *unsafe* while something is captured: those that wait, or that act at once on
//! what a replayed graph would need done again. A thread's own mode and the captures' modes decide
//! which captures forbid them to it; such a call invalidates these and does nothing else. Which
//! calls are unsafe is an H200's answer (`capture/unsafe` in its record), not to be guessed:
//! allocating is, copying at once is not, nor is loading a module. Each begins with [`permit`].

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Capture, any, invalidate};
use crate::driver::{CUresult, Result};

/// `CUstreamCaptureMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Unsafe calls of all threads are forbidden.
    Global,
    /// Unsafe calls of the thread that began the capture are.
    ThreadLocal,
    /// None are.
    Relaxed,
}

impl Mode {
    /// Of the mode's number.
    pub fn of_number(number: u32) -> Result<Mode> {
        match number {
            0 => Ok(Mode::Global),
            1 => Ok(Mode::ThreadLocal),
            2 => Ok(Mode::Relaxed),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }
}

thread_local! {
    /// The thread's own mode, by number: global at first.
    static OWN: Cell<u32> = const { Cell::new(0) };
    /// The thread's number; 0 before it has one.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// A number that no other thread has.
pub(super) fn thread() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    let number = |own: &Cell<u64>| {
        if own.get() == 0 {
            own.set(NUMBERS.fetch_add(1, Ordering::Relaxed));
        }
        own.get()
    };
    NUMBER.try_with(number).unwrap_or(0)
}

/// `cuThreadExchangeStreamCaptureMode`: sets the calling thread's mode, gives the one before. An
/// H200 takes any number; one that is no mode's acts as thread-local.
pub(crate) fn exchange(mode: u32) -> u32 {
    OWN.try_with(|own| own.replace(mode)).unwrap_or(0)
}

/// An unsafe call: fails where a capture forbids it, invalidated or not.
pub(crate) fn permit() -> Result {
    match any() {
        false => Ok(()),
        true => permit_while_capturing(),
    }
}

#[cold]
fn permit_while_capturing() -> Result {
    const GLOBAL: u32 = 0;
    const RELAXED: u32 = 2;
    let own = OWN.try_with(Cell::get).unwrap_or(GLOBAL);
    let thread = thread();
    let forbids = |_, capture: &Capture| match capture.mode {
        Mode::Relaxed => false,
        Mode::ThreadLocal => capture.thread == thread,
        Mode::Global => capture.thread == thread || own == GLOBAL,
    };
    match own != RELAXED && invalidate(forbids) {
        true => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        false => Ok(()),
    }
}
