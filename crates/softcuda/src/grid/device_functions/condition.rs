//! `cudaGraphSetConditional`: the values of graphs' condition handles.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::param;
use crate::grid::context::{BlockContext, CONTINUE, ThreadContext};
use crate::jit::runtime::runtime;

/// The value of each handle that exists, by its number.
static VALUES: Mutex<Option<HashMap<u64, u32>>> = Mutex::new(None);

/// Makes a handle known, or gives it a new value.
#[cfg_attr(
    not(test),
    allow(dead_code, reason = "the driver's graphs own the handles")
)]
pub(crate) fn set(handle: u64, value: u32) {
    VALUES.lock().get_or_insert_default().insert(handle, value);
}

/// The value of a handle; `None` when it does not exist.
#[cfg_attr(
    not(test),
    allow(dead_code, reason = "the driver's graphs own the handles")
)]
pub(crate) fn get(handle: u64) -> Option<u32> {
    VALUES.lock().as_ref()?.get(&handle).copied()
}

/// Forgets a handle.
#[cfg_attr(
    not(test),
    allow(dead_code, reason = "the driver's graphs own the handles")
)]
pub(crate) fn remove(handle: u64) {
    if let Some(values) = VALUES.lock().as_mut() {
        values.remove(&handle);
    }
}

runtime! {
    /// `cudaGraphSetConditional(handle, value)`. A handle that does not exist is ignored.
    GRAPH_SET_CONDITIONAL = fn graph_set_conditional(
        _thread: *mut ThreadContext, _block: *mut BlockContext, _returns: *mut u8, params: *const u8,
    ) -> u32 {
        let (handle, value): (u64, u32) = (param(params, 0), param(params, 8));
        if let Some(known) = VALUES.lock().as_mut().and_then(|values| values.get_mut(&handle)) {
            *known = value;
        }
        CONTINUE
    }
}
