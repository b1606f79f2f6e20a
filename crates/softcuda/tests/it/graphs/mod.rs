//! Graphs, end to end through the driver's functions: what runs and in which order, what an
//! executable keeps, and when what the program gave a graph is let go of.
//!
//! On a GPU or in software alike.

#![allow(
    unsafe_op_in_unsafe_fn,
    clippy::undocumented_unsafe_blocks,
    reason = "raw driver calls with right arguments, whose memory outlives the work; each test says what it does"
)]

pub(crate) mod api;
mod conditionals;
pub(crate) mod conditions;
mod definitions;
mod destroying;
mod failing;
mod memory_nodes;
mod moving;
mod pictures;
mod running;
mod threads;
mod updating;
mod user_objects;

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::conformance::api::*;
use crate::conformance::fixture::*;
use api::*;

/// `CUDA_ERROR_INVALID_VALUE`.
const INVALID_VALUE: u32 = 1;

/// Errors can be asked for on which a real driver crashes.
fn is_software() -> bool {
    crate::driver::driver() == crate::driver::Driver::Software
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

/// Where host nodes write down that they ran.
type Log = Mutex<Vec<u32>>;

/// A log, and something that a host node can be given for each number.
fn log() -> &'static Log {
    Box::leak(Box::default())
}

struct Entry {
    log: &'static Log,
    number: u32,
}

/// A host node that writes its number down.
unsafe fn add_note(graph: Handle, on: &[Handle], log: &'static Log, number: u32) -> Handle {
    unsafe extern "C" fn note(entry: *mut c_void) {
        let entry = &*entry.cast::<Entry>();
        entry.log.lock().unwrap().push(entry.number);
    }
    let entry = pointer_to(Box::leak(Box::new(Entry { log, number })));
    add_host(graph, on, Some(note), entry)
}

/// Launches and waits.
unsafe fn run(exec: Handle, stream: Handle) {
    cuGraphLaunch(exec, stream).must();
    cuStreamSynchronize(stream).must();
}

/// Waits until a counter is at a value: true when it got there in time.
fn comes_to(counter: &AtomicU32, value: u32) -> bool {
    let start = Instant::now();
    while counter.load(Ordering::SeqCst) != value {
        if start.elapsed() > Duration::from_secs(10) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}
