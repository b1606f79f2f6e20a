//! Two devices in one process: what each may do with what the other has.
//!
//! Every case has a process to itself. Where one needs memory, streams or kernels of both, it has a
//! [`Side`] of each.

mod access;
mod capture;
mod context;
mod copy;
mod device;
mod event;
mod fill;
mod graph;
mod graph_exec;
mod graph_memory;
mod host;
mod kernel;
mod kernel_fault;
mod managed;
mod memory;
mod moves;
mod pool;
mod pool_use;
mod stream;
mod virtual_memory;

use std::time::{Duration, Instant};

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line};
use crate::conformance::fixture::void;
use crate::conformance::sides::Side;
use crate::graphs::api::current;

pub use virtual_memory::mapped_for;

pub const CASES: [&[Case]; 20] = [
    access::CASES,
    capture::CASES,
    context::CASES,
    copy::CASES,
    device::CASES,
    event::CASES,
    fill::CASES,
    graph::CASES,
    graph_exec::CASES,
    graph_memory::CASES,
    host::CASES,
    kernel::CASES,
    kernel_fault::CASES,
    managed::CASES,
    memory::CASES,
    moves::CASES,
    pool::CASES,
    pool_use::CASES,
    stream::CASES,
    virtual_memory::CASES,
];

/// Writes down the word at an address, as read by the host with the current context.
unsafe fn reads(line: &mut Line, what: &str, address: u64) {
    let mut value = 0u32;
    let answer = cuMemcpyDtoH_v2(void(&mut value), address, 4);
    line.gives(what, answer, value);
}

/// Has both contexts wait for their work, and writes down what they answer. Leaves the current
/// context as it was.
unsafe fn synchronizes(line: &mut Line, sides: [&Side; 2]) {
    let before = current();
    for (side, what) in sides.into_iter().zip(["end_zero", "end_one"]) {
        side.enter();
        line.says_as(what, cuCtxSynchronize());
    }
    cuCtxSetCurrent(before).ignore();
}

/// Asks a stream until its work has ended, and writes down what it says then. Work that waits for a
/// device that failed may never end: after a while `NOT_READY` is the answer. Gives back whether it
/// ended.
unsafe fn settles(line: &mut Line, what: &str, stream: Handle) -> bool {
    const NOT_READY: u32 = 600;
    let begun = Instant::now();
    loop {
        let answer = cuStreamQuery(stream);
        if answer.code != NOT_READY || begun.elapsed() > Duration::from_secs(5) {
            line.says_as(what, answer);
            return answer.code != NOT_READY;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lets kernels of one side use the other's memory. Leaves its context current.
unsafe fn enable(side: &Side, peer: &Side) {
    side.enter();
    cuCtxEnablePeerAccess(peer.context, 0).must();
}

/// A new context of a device, current to this thread.
unsafe fn new_context_of(device: i32) -> Handle {
    let mut context = 0;
    cuCtxCreate_v2(&mut context, 0, device).must();
    context
}
