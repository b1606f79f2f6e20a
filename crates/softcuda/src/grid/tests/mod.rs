//! The scheduler, with kernels written by hand: what compiled code does, in Rust.
//!
//! A kernel's parameter is the address of a slice of 32-bit cells that it shares with its test.

mod barriers;
mod blocks;
mod device_functions;
mod faults;
mod rounds;
mod warps;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::context::{BlockContext, KernelFn, Mode, Status, ThreadContext};
use super::launch::{Fault, Launch};
use crate::jit::module::Compiled;
use crate::jit::runtime::access::Accesses;
use crate::jit::runtime::arrays::Arrays;
use crate::memory::Device;

/// Threads as fibers, one block.
fn launch(entry: KernelFn, threads: u32) -> Launch {
    Launch {
        code: Compiled {
            entry,
            mode: Mode::Fibers,
            kept: 0,
            sites: 3,
            accesses: Accesses::NONE,
            arrays: Arrays::NONE,
            frame: 256,
            spins: false,
            passes: false,
            reaches: false,
        },
        owner: Arc::new(()),
        device: Device::FIRST,
        kernel: "by_hand".into(),
        grid: [1; 3],
        block: [threads, 1, 1],
        cluster: [1; 3],
        static_shared: 4096,
        dynamic_shared: 0,
        local: 256,
        stack: 1024,
        cooperative: false,
        params: Box::new([]),
    }
}

/// Runs a launch whose kernel gets `cells`.
fn run(mut launch: Launch, cells: &[AtomicU32]) -> Result<(), Fault> {
    launch.params = Box::new((cells.as_ptr() as u64).to_ne_bytes());
    super::run(&launch)
}

/// So many cells that are 0.
fn cells(count: usize) -> Vec<AtomicU32> {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

/// The cell `index` of the running kernel's parameter.
fn cell<'a>(block: *mut BlockContext, index: u32) -> &'a AtomicU32 {
    // SAFETY: `run` made the parameter the address of a slice that outlives the launch, and the
    // test keeps inside it.
    unsafe {
        let base = (*block).params.cast::<u64>().read_unaligned() as *const AtomicU32;
        &*base.add(index as usize)
    }
}

/// `%tid` by number.
fn tid(thread: *mut ThreadContext) -> u32 {
    // SAFETY: the grid gave the kernel this context.
    unsafe { (*thread).linear }
}

/// `%ctaid.x`
fn ctaid(block: *mut BlockContext) -> u32 {
    // SAFETY: the grid gave the kernel this context.
    unsafe { (*block).ctaid[0] }
}

/// Goes on, or returns the status as compiled code does.
macro_rules! go {
    ($status:expr) => {
        match $status {
            $crate::grid::context::CONTINUE => {}
            status => return status,
        }
    };
}
use go;

/// The status in the answer of a warp operation.
fn status_of(answer: u64) -> Status {
    (answer >> super::warp::STATUS_SHIFT) as Status
}

/// The least time that one of many runs takes: the others measure what else the machine does.
fn least(runs: u32, mut run: impl FnMut()) -> std::time::Duration {
    (0..runs)
        .map(|_| {
            let start = std::time::Instant::now();
            run();
            start.elapsed()
        })
        .min()
        .expect("there are runs")
}
