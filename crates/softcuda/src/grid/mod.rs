//! A launch, run: blocks, fibers, barriers, warps.
//!
//! | file | is |
//! |---|---|
//! | `launch` | what a launch is, and how it can fail |
//! | `context` | what compiled code sees of its thread and block |
//! | `running` | a launch in flight, shared by its workers |
//! | `pool`, `worker` | the threads that run blocks, and what each needs for it |
//! | `block`, `fiber`, `stack`, `scratch` | a resident block, its threads and their memory |
//! | `barrier`, `warp`, `cluster`, `mbarrier`, `poll` | where threads wait, and the functions by which compiled code gets there |
//! | `atomic`, `reduce` | the atomic operations that are no single instruction |
//! | `sums` | integers that a worker adds to a copy of its own |
//! | `bulk`, `tensor` | copies of bytes and of boxes of tensors |
//! | `matrix` | tensor cores: products of a warp and of a warpgroup |
//! | `device_functions` | what the driver gives kernels to call |
//!
//! Invariant: a fiber is never unwound nor dropped while it is suspended. When a launch must stop,
//! every wait answers `FAULTED`, compiled code returns it, and the fiber ends by itself.

pub(crate) mod atomic;
pub(crate) mod barrier;
mod block;
pub(crate) mod bulk;
pub(crate) mod cluster;
pub(crate) mod context;
pub(crate) mod device_functions;
mod fiber;
pub(crate) mod launch;
pub(crate) mod matrix;
pub(crate) mod mbarrier;
mod output;
pub(crate) mod poll;
mod pool;
pub(crate) mod reduce;
pub(crate) mod rounds;
mod running;
mod scratch;
mod stack;
pub(crate) mod sums;
pub(crate) mod tensor;
#[cfg(test)]
mod tests;
pub(crate) mod warp;
mod worker;

use std::time::{Duration, Instant};

pub(crate) use block::{MOST_THREADS, has_contexts};
use device_functions::condition::Conditions;
use launch::{Fault, Launch};
pub(crate) use pool::workers;
use running::{Running, volume};
pub(crate) use running::{device, fault};
#[cfg(test)]
pub(crate) use stack::use_of as stack_use;
use worker::Worker;

use crate::jit::runtime::RuntimeFn;
use crate::memory;

/// The functions here that compiled code calls, by file.
pub(crate) const FUNCTIONS: &[&[&RuntimeFn]] = &[
    atomic::FUNCTIONS,
    barrier::FUNCTIONS,
    bulk::FUNCTIONS,
    cluster::FUNCTIONS,
    mbarrier::FUNCTIONS,
    poll::FUNCTIONS,
    rounds::FUNCTIONS,
    tensor::FUNCTIONS,
    warp::FUNCTIONS,
    device_functions::assert::FUNCTIONS,
    device_functions::condition::FUNCTIONS,
    device_functions::heap::FUNCTIONS,
    device_functions::printf::FUNCTIONS,
];

/// A launch of this many threads or fewer runs its first block before it asks for help.
const FEW_THREADS: u64 = 1024;
/// Asking for help must save about as much as it costs.
const WORTH_HELP: Duration = Duration::from_micros(20);

/// Runs a launch to its end, on this thread and those that are free to help.
pub(crate) fn run(launch: &Launch) -> Result<(), Fault> {
    run_in_graph(launch, None)
}

/// As [`run`], of a kernel that can set these conditions.
pub(crate) fn run_in_graph(launch: &Launch, conditions: Option<&Conditions>) -> Result<(), Fault> {
    // Helpers have ended when this is dropped.
    let _held = memory::hold();
    memory::begin_work();
    let workspace = match launch.cooperative {
        true => Some(Workspace::new(launch.device).map_err(|_| out_of_memory(launch))?),
        false => None,
    };
    let workspace = workspace.as_ref();
    let address = workspace.map_or(0, Workspace::address);
    let running = Running::new(launch, conditions, address);
    let mut worker = Worker::take();
    let units = running.units();
    let mut wanted = (units - units.min(1)).min(u64::from(workers()) - 1) as u32;
    if wanted > 0 && units * volume(launch.block) <= FEW_THREADS {
        let start = Instant::now();
        worker.work(&running, 0, workers(), 1);
        let left = u32::try_from(running.left()).unwrap_or(u32::MAX);
        if start.elapsed().saturating_mul(left) < WORTH_HELP {
            wanted = 0;
        }
    }
    let invitation = (wanted > 0).then(|| pool::Invitation::new(&running, wanted));
    worker.work(&running, 0, workers(), u64::MAX);
    drop(invitation);
    worker.put();
    running.output.flush();
    running.result()
}

/// The memory by which the blocks of a cooperative launch meet: device code finds it through
/// `%envreg1` and `%envreg2`.
struct Workspace(memory::Allocation);

impl Workspace {
    const SIZE: u64 = 256;

    fn new(device: memory::Device) -> Result<Workspace, memory::OutOfMemory> {
        // Not the program's, so it takes nothing from the memory that the program may have.
        let allocation = memory::alloc(device, Self::SIZE, 16, memory::Kind::Pinned)?;
        // SAFETY: the memory was allocated just now, for nobody else.
        unsafe { memory::access::fill(allocation.base, 0, 1, Self::SIZE) };
        Ok(Workspace(allocation))
    }

    fn address(&self) -> u64 {
        self.0.base
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        memory::free(self.0.base);
    }
}

fn out_of_memory(launch: &Launch) -> Fault {
    Fault {
        kind: launch::FaultKind::LaunchFailure,
        kernel: launch.kernel.clone(),
        block: [0; 3],
        thread: None,
        access: None,
        detail: "no memory for the workspace of a cooperative launch".into(),
    }
}
