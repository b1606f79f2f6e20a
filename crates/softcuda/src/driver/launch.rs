//! Launches: checked against the kernel and the device, then put into a stream.
//!
//! Invariant: a launch in a stream owns all it needs, its parameters' values included; nothing that
//! the program changes or frees after the call can reach it.

use std::sync::Arc;

use super::code::Kernel;
use super::context::Limits;
use super::event::Event;
use super::function::Function;
use super::stream::Stream;
use super::{CUresult, Result, device};
use crate::grid;
use crate::grid::device_functions::condition::Conditions;
use crate::grid::launch::{Fault, FaultKind, Launch};

/// The most blocks along each axis.
const MOST_BLOCKS: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// The most threads along each axis.
const MOST_THREADS: [u32; 3] = [1024, 1024, 64];

/// What a launch asks for.
#[derive(Clone)]
pub(crate) struct Config {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub dynamic_shared: u32,
    /// Blocks may wait for each other.
    pub cooperative: bool,
    /// Blocks of a cluster, where the launch says so.
    pub cluster: Option<[u32; 3]>,
    /// Recorded when all blocks have begun; we record it before they do.
    pub begun: Option<Trigger>,
    /// Recorded when the kernel says so; we record it when the launch has ended.
    pub ended: Option<Trigger>,
    /// The kernel may start when the one before it says so; here it waits for its end.
    pub programmatic: bool,
}

/// An event that a launch records.
#[derive(Clone)]
pub(crate) struct Trigger {
    /// The event.
    pub event: Arc<Event>,
    /// `CUevent_record_flags`.
    pub flags: u32,
    /// Not when the kernel says so but when its blocks have begun.
    pub at_block_start: bool,
}

impl Trigger {
    /// A capture can record it.
    pub fn fits_capture(&self) -> bool {
        self.flags == 0 && self.event.is_untimed()
    }
}

impl Config {
    /// An ordinary launch.
    pub fn new(grid: [u32; 3], block: [u32; 3], dynamic_shared: u32) -> Config {
        Config {
            grid,
            block,
            dynamic_shared,
            cooperative: false,
            cluster: None,
            begun: None,
            ended: None,
            programmatic: false,
        }
    }
}

/// Puts a launch into a stream. `params` are laid out as the kernel's signature says.
pub(crate) fn launch(
    function: &Function,
    stream: &Stream,
    config: &Config,
    params: Box<[u8]>,
) -> Result {
    if stream.context().id() != function.context().id() {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    let launch = prepare(function, config, params)?;
    if let Some(trigger) = &config.begun {
        trigger.event.record(stream)?;
    }
    stream.submit(move || run(&launch))?;
    if let Some(trigger) = &config.ended {
        trigger.event.record(stream)?;
    }
    Ok(())
}

/// A launch that was checked, of native code, to be run any number of times.
pub(crate) fn prepare(function: &Function, config: &Config, params: Box<[u8]>) -> Result<Launch> {
    let cluster = check(function, config)?;
    let kernel = function.kernel();
    let limits = &function.context().limits;
    let stack_limit = u32::try_from(limits.get(Limits::STACK_SIZE)?).unwrap_or(u32::MAX);
    Ok(Launch {
        code: function
            .code()
            .compile(function.index(), Some(config.block))?,
        owner: function.code().clone(),
        device: function.context().device(),
        kernel: function.code().kernel_name(function.index()),
        grid: config.grid,
        block: config.block,
        cluster,
        static_shared: kernel.dynamic_shared_offset,
        dynamic_shared: config.dynamic_shared,
        local: local_memory(kernel, stack_limit),
        stack: native_stack(stack_limit),
        cooperative: config.cooperative,
        params,
    })
}

/// Runs a launch on the calling thread; the error is what the context fails with.
pub(crate) fn run(launch: &Launch) -> Result {
    grid::run(launch).map_err(|fault| report(&fault))
}

/// The same inside a graph's launch, of a kernel that can set these conditions.
pub(crate) fn run_in_graph(launch: &Launch, conditions: Option<&Conditions>) -> Result {
    grid::run_in_graph(launch, conditions).map_err(|fault| report(&fault))
}

/// Checks a launch; gives the size of its clusters.
pub(crate) fn check(function: &Function, config: &Config) -> Result<[u32; 3]> {
    let (kernel, settings) = (function.kernel(), function.settings());
    let within = |dims: [u32; 3], most: [u32; 3]| {
        dims.iter()
            .zip(most)
            .all(|(&dim, most)| (1..=most).contains(&dim))
    };
    let threads = volume(config.block);
    if !within(config.grid, MOST_BLOCKS)
        || !within(config.block, MOST_THREADS)
        || threads > u64::from(kernel.max_threads)
        || kernel
            .required_block
            .is_some_and(|required| required != config.block)
    {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if config.cooperative {
        let each = function
            .needs()
            .blocks(threads as u32, config.dynamic_shared.into());
        if volume(config.grid) > u64::from(each) * u64::from(device::multiprocessors()) {
            return Err(CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
        }
    }
    if config.dynamic_shared > settings.max_dynamic_shared() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let set = settings.cluster();
    let cluster = config.cluster.or(set).unwrap_or([1; 3]);
    if kernel.explicit_cluster && config.cluster.or(set).is_none() {
        return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
    }
    if set.is_some_and(|set| set != cluster)
        || cluster.contains(&0)
        || volume(cluster) > u64::from(settings.max_cluster())
        || config
            .grid
            .iter()
            .zip(cluster)
            .any(|(&blocks, size)| blocks % size != 0)
    {
        return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
    }
    Ok(cluster)
}

/// Local memory of a thread: the kernel's own frame, and those of functions it calls, which take
/// more here than on a device, so the limit is taken as a measure.
fn local_memory(kernel: &Kernel, stack_limit: u32) -> u32 {
    let frames = stack_limit.saturating_mul(4).clamp(16 << 10, 4 << 20);
    kernel.local.saturating_add(frames).next_multiple_of(16)
}

/// Native stack of a thread, by the same measure.
fn native_stack(stack_limit: u32) -> u32 {
    stack_limit.saturating_mul(32).clamp(64 << 10, 16 << 20)
}

fn volume(dims: [u32; 3]) -> u64 {
    dims.iter().map(|&dim| u64::from(dim)).product()
}

/// Says on standard error what went wrong, and gives the error that the context fails with.
fn report(fault: &Fault) -> CUresult {
    let error = match fault.kind {
        FaultKind::IllegalAddress | FaultKind::StackOverflow => {
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        }
        FaultKind::Misaligned => CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
        FaultKind::InvalidAddressSpace => CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
        FaultKind::InvalidPc => CUresult::CUDA_ERROR_INVALID_PC,
        FaultKind::Assert => CUresult::CUDA_ERROR_ASSERT,
        FaultKind::IllegalInstruction => CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        FaultKind::Trap | FaultKind::Deadlock | FaultKind::LaunchFailure => {
            CUresult::CUDA_ERROR_LAUNCH_FAILED
        }
    };
    let [x, y, z] = fault.block;
    let mut line = format!(
        "softcuda: {error:?} in kernel {}, block ({x}, {y}, {z})",
        fault.kernel
    );
    if let Some([x, y, z]) = fault.thread {
        line += &format!(", thread ({x}, {y}, {z})");
    }
    if let Some((address, size)) = fault.access {
        line += &format!(", {size} bytes at {address:#x}");
    }
    if !fault.detail.is_empty() {
        line += &format!(": {}", fault.detail);
    }
    // A failed assertion has said so itself.
    if fault.kind != FaultKind::Assert {
        eprintln!("{line}");
    }
    error
}
