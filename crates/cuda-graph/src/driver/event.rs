//! Driver calls on events.

use std::ptr;

use cudarc::driver::sys::{CUevent, CUevent_flags, CUresult, CUstream};

use super::{ask, call, log_leak};
use crate::Result;

/// An event of ours, without timing.
pub(crate) struct Event(CUevent);

// SAFETY: an event's handle may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// In the current context.
    pub(crate) fn new() -> Result<Event> {
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        ask(ptr::null_mut(), |event| call!(cuEventCreate(event, flags))).map(Event)
    }

    pub(crate) fn record(&self, stream: CUstream) -> Result<()> {
        super::run::record(self.0, stream)
    }

    pub(crate) fn raw(&self) -> CUevent {
        self.0
    }

    /// Whether what was recorded is over.
    pub(crate) fn is_over(&self) -> Result<bool> {
        match call!(cuEventQuery(self.0)) {
            Ok(()) => Ok(true),
            Err(error) if error.is(CUresult::CUDA_ERROR_NOT_READY) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        log_leak("an event", call!(cuEventDestroy_v2(self.0)));
    }
}
