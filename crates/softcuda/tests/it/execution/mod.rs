//! Work in streams, end to end through the driver's functions: what runs, in which order, and what
//! outlives what.
//!
//! On a GPU or in software alike.

#![allow(
    unsafe_op_in_unsafe_fn,
    clippy::undocumented_unsafe_blocks,
    reason = "raw driver calls with right arguments, whose memory outlives the work; each test says what it does"
)]

mod clients;
#[cfg(target_arch = "x86_64")]
mod control_word;
mod faults;
mod launching;
mod lifetimes;
mod linking;
mod ordering;
mod sleeping;

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::conformance::api::*;
use crate::conformance::fixture::*;

/// Adds one to the counter it is given.
unsafe extern "C" fn add_one(counter: *mut c_void) {
    (*counter.cast::<AtomicU32>()).fetch_add(1, Ordering::SeqCst);
}

/// A counter that host functions may use for as long as they like.
fn counter() -> &'static AtomicU32 {
    Box::leak(Box::new(AtomicU32::new(0)))
}

fn pointer_to(counter: &'static AtomicU32) -> *mut c_void {
    std::ptr::from_ref(counter).cast_mut().cast()
}

/// Address of a variable of a module.
unsafe fn global(module: Handle, name: &CStr) -> u64 {
    let (mut pointer, mut size) = (0, 0);
    cuModuleGetGlobal_v2(&mut pointer, &mut size, module, name.as_ptr()).must();
    pointer
}

/// Writes a word of device memory in a stream, by a kernel.
unsafe fn store(function: Handle, stream: Handle, address: u64, value: u32) -> Answer {
    let (mut address, mut value) = (address, value);
    launch(
        function,
        1,
        1,
        stream,
        &mut [void(&mut address), void(&mut value)],
    )
}
