//! A launch in flight: which blocks are still to start, whether to go on, and what went wrong
//! first.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::block::Block;
use super::context::{BlockContext, FAULTED, Status, ThreadContext};
use super::device_functions::condition::Conditions;
use super::launch::{Fault, FaultKind, Launch};
use super::output::Output;
use crate::memory::Device;

/// What the workers of a launch share.
pub(crate) struct Running<'a> {
    /// The launch.
    pub launch: &'a Launch,
    /// What its kernel can set, where it is part of a graph's launch.
    pub conditions: Option<&'a Conditions>,
    /// `%gridid`.
    pub gridid: u64,
    /// Address of the workspace of a cooperative launch, otherwise 0.
    pub workspace: u64,
    /// What `printf` wrote.
    pub output: Output,
    /// How long a thread has slept, in nanoseconds: the longest time of any.
    pub slept: AtomicU64,
    /// Clusters, or blocks where there are no clusters.
    units: u64,
    next: Next,
    stop: AtomicBool,
    fault: Mutex<Option<Fault>>,
}

/// The next unit to start. Workers write it for each of theirs, so nothing else, which they read
/// meanwhile, lies in its cache line or the one beside it.
#[repr(align(128))]
struct Next(AtomicU64);

impl<'a> Running<'a> {
    /// The launch, of which nothing has started.
    pub fn new(
        launch: &'a Launch,
        conditions: Option<&'a Conditions>,
        workspace: u64,
    ) -> Running<'a> {
        static GRIDS: AtomicU64 = AtomicU64::new(1);
        Running {
            launch,
            conditions,
            gridid: GRIDS.fetch_add(1, Ordering::Relaxed),
            workspace,
            output: Output::default(),
            slept: AtomicU64::new(0),
            units: volume(launch.grid) / volume(launch.cluster).max(1),
            next: Next(AtomicU64::new(0)),
            stop: AtomicBool::new(false),
            fault: Mutex::new(None),
        }
    }

    /// How many units the launch has.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// The next `count` units to start, in order of their linear index; fewer at the end, none
    /// after it or after a fault.
    pub fn take(&self, count: u64) -> std::ops::Range<u64> {
        if self.stopped() {
            return 0..0;
        }
        let first = self.next.0.fetch_add(count, Ordering::Relaxed);
        first.min(self.units)..first.saturating_add(count).min(self.units)
    }

    /// Units that have not been taken.
    pub fn left(&self) -> u64 {
        self.units
            .saturating_sub(self.next.0.load(Ordering::Relaxed))
    }

    /// A fault happened: every thread is to end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What [`stopped`](Self::stopped) looks at.
    pub fn stop_flag(&self) -> &AtomicBool {
        &self.stop
    }

    /// Ends the launch with a fault, unless there was one before.
    pub fn fail(
        &self,
        kind: FaultKind,
        block: [u32; 3],
        thread: Option<[u32; 3]>,
        access: Option<(u64, u32)>,
        detail: String,
    ) {
        self.fault.lock().get_or_insert_with(|| Fault {
            kind,
            kernel: self.launch.kernel.clone(),
            block,
            thread,
            access,
            detail,
        });
        self.stop.store(true, Ordering::Relaxed);
    }

    /// How the launch ended.
    pub fn result(self) -> Result<(), Fault> {
        match self.fault.into_inner() {
            None => Ok(()),
            Some(fault) => Err(fault),
        }
    }
}

/// The product of three dimensions.
pub(super) fn volume(dims: [u32; 3]) -> u64 {
    dims.iter().map(|&dim| u64::from(dim)).product()
}

/// The device of a running block.
///
/// For runtime functions, as [`fault`].
pub(crate) fn device(block: *mut BlockContext) -> Device {
    Block::of(block).running().launch.device
}

/// Ends the launch of a running thread with a fault, unless there was one before. The thread
/// returns what this returns.
///
/// For runtime functions: the contexts are those that compiled code passed on.
pub(crate) fn fault(
    thread: *mut ThreadContext,
    block: *mut BlockContext,
    kind: FaultKind,
    access: Option<(u64, u32)>,
    detail: impl Display,
) -> Status {
    // SAFETY: compiled code passes on the thread context that the grid gave it, and no reference to
    // it exists meanwhile.
    let tid = unsafe { (*thread).tid };
    let owner = Block::of(block);
    owner
        .running()
        .fail(kind, owner.ctaid(), Some(tid), access, detail.to_string());
    FAULTED
}
