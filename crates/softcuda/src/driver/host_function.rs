//! Host functions and stream callbacks: calls into the program, in a stream's turn, on a thread of
//! the driver's where CUDA may not be called.

use std::ffi::c_void;

use super::graph::Operation;
use super::graph::operation::HostNode;
use super::stream::Stream;
use super::{CUresult, Result, capture};
use crate::abi::types::CUstream;
use crate::engine::Step;

/// `CUhostFn`.
pub(crate) type HostFn = unsafe extern "C" fn(*mut c_void);
/// `CUstreamCallback`.
pub(crate) type StreamCallback = unsafe extern "C" fn(CUstream, CUresult, *mut c_void);

/// The program's own pointer, which it wants back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct UserData(pub *mut c_void);

// SAFETY: we only hand the pointer back; the program that passed it to a function which says that
// it is used on another thread has made it fit for that.
unsafe impl Send for UserData {}

// SAFETY: as above; nothing is reached through it here.
unsafe impl Sync for UserData {}

impl UserData {
    /// Takes the whole structure into a closure, not the bare pointer in it.
    pub fn get(&self) -> *mut c_void {
        self.0
    }
}

/// `cuLaunchHostFunc`: not called once the context has failed. In a capture it becomes a node.
///
/// # Safety
/// `function` may be called with `data`, on any thread: once, or from a capture by every launch of
/// its graph.
pub(crate) unsafe fn launch(stream: &Stream, function: HostFn, data: *mut c_void) -> Result {
    let data = UserData(data);
    if stream.is_capturing() {
        return capture::record(stream, Operation::Host(HostNode { function, data }));
    }
    stream.push(Step::Host(Box::new(move || {
        // SAFETY: the caller's promise; the step runs once.
        unsafe { function(data.get()) }
    })))
}

/// `cuStreamAddCallback`: called also when the context has failed, with the error.
///
/// # Safety
/// `callback` may be called with the stream's handle, a result and `data`, once, on any thread.
pub(crate) unsafe fn add_callback(
    stream: &Stream,
    callback: StreamCallback,
    data: *mut c_void,
) -> Result {
    let data = UserData(data);
    let handle = stream.handle();
    stream.push(Step::Callback(Box::new(move |failure| {
        let status = failure.map_or(CUresult::CUDA_SUCCESS, |failure| CUresult(failure.0));
        // SAFETY: the caller's promise; the step runs once.
        unsafe { callback(handle, status, data.get()) }
    })))
}
