//! Stream capture, end to end through the driver's functions: what becomes of what streams are
//! given, which streams take part, what is forbidden meanwhile, and that streams are of use
//! afterwards whatever went wrong.
//!
//! On a GPU or in software alike. What a capture forbids, it forbids to all threads of its process,
//! so each test is a process of its own.

#![allow(
    unsafe_op_in_unsafe_fn,
    clippy::undocumented_unsafe_blocks,
    reason = "raw driver calls whose memory outlives the work; each test says what it does"
)]

pub(crate) mod api;
mod bodies;
mod failing;
mod forks;
mod graphs;
mod memory;
mod modes;
mod random;
mod recording;

use std::ffi::c_void;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::conformance::api::*;
use crate::conformance::fixture::*;
use crate::graphs::api::*;
use api::*;

/// Runs a test, which this is the body of, in a process of its own.
fn alone<F: FnOnce()>(body: F) {
    const CHILD: &str = "SOFTCUDA_TEST_CAPTURE_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    let name = std::any::type_name::<F>();
    let name = name.trim_end_matches("::{{closure}}");
    let (_, name) = name
        .split_once("::")
        .expect("a crate, then the test's path");
    let test = std::env::current_exe().expect("the test knows its own path");
    let mut command = Command::new(test);
    command
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, "1");
    let output = command.output().expect("the test starts itself");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

/// Adds one to the counter it is given.
unsafe extern "C" fn add_one(counter: *mut c_void) {
    (*counter.cast::<AtomicU32>()).fetch_add(1, Ordering::SeqCst);
}

/// A counter that host functions may use for as long as they like.
fn counter() -> &'static AtomicU32 {
    Box::leak(Box::new(AtomicU32::new(0)))
}

fn pointer_to<T>(value: &'static T) -> *mut c_void {
    std::ptr::from_ref(value).cast_mut().cast()
}

/// Errors can be asked for on which a real driver crashes.
fn is_software() -> bool {
    crate::driver::driver() == crate::driver::Driver::Software
}

/// Launches a graph once and waits.
unsafe fn run_once(graph: Handle, stream: Handle) {
    cuGraphLaunch(instantiate(graph), stream).must();
    cuStreamSynchronize(stream).must();
}

/// A stream takes work and finishes it.
unsafe fn is_of_use(stream: Handle) -> bool {
    let pointer = memory(4);
    status(stream) == NONE_STATUS
        && cuMemsetD32Async(pointer, 77, 1, stream).code == 0
        && cuStreamSynchronize(stream).code == 0
        && word(pointer) == 77
}
