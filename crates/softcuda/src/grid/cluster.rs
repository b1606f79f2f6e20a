//! The blocks of a cluster, which one worker runs together, and the barrier they share.

use std::cell::{Cell, RefCell};

use super::block::{Block, linear_of, suspend, thread_of};
use super::context::{BlockContext, CONTINUE, FAULTED, ThreadContext};
use super::launch::FaultKind;
use super::running::fault;
use crate::jit::runtime::runtime;

/// The state that the blocks of a cluster share; without clusters each block has one to itself.
#[derive(Default)]
pub(super) struct Cluster {
    /// Threads that have not ended.
    live: Cell<u32>,
    /// Of those, how many have arrived at the barrier's current phase.
    arrived: Cell<u32>,
    phase: Cell<u32>,
    /// Who waits for the current phase to complete: the block, and the thread's number in it.
    waiting: RefCell<Vec<(*const Block, u32)>>,
}

impl Cluster {
    /// Begins anew, with this many threads.
    pub fn reset(&self, threads: u32) {
        self.live.set(threads);
        self.arrived.set(0);
        self.phase.set(0);
        self.waiting.borrow_mut().clear();
    }

    /// A thread has ended.
    pub fn exit(&self) {
        self.live.set(self.live.get() - 1);
        if self.arrived.get() != 0 {
            self.complete();
        }
    }

    /// A thread that had arrived at `phase` has ended.
    pub fn forget(&self, phase: u32) {
        if phase == self.phase.get() {
            self.arrived.set(self.arrived.get() - 1);
        }
    }

    /// How many threads wait for the barrier.
    pub fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    fn complete(&self) {
        if self.arrived.get() < self.live.get() {
            return;
        }
        self.arrived.set(0);
        self.phase.set(self.phase.get().wrapping_add(1));
        for (block, linear) in self.waiting.borrow_mut().drain(..) {
            // SAFETY: the block is of this cluster and waits for this; it stays where it is until
            // all its threads have ended.
            let block = unsafe { &*block };
            let warp = &block.warps()[linear as usize / 32];
            warp.ready.set(warp.ready.get() | 1 << (linear % 32));
        }
    }
}

runtime! {
    /// `barrier.cluster.arrive`. The answer is a status.
    CLUSTER_ARRIVE = fn cluster_arrive(thread: *mut ThreadContext, block: *mut BlockContext) -> u32 {
        let owner = Block::of(block);
        let Some(fiber) = thread_of(thread) else {
            let what = "a cluster barrier in code that was compiled not to wait";
            return fault(thread, block, FaultKind::LaunchFailure, None, what);
        };
        if owner.running().stopped() {
            return FAULTED;
        }
        if fiber.cluster_phase.get().is_some() {
            let what = "barrier.cluster.arrive twice without a wait between";
            return fault(thread, block, FaultKind::IllegalInstruction, None, what);
        }
        owner.events.set(owner.events.get() + 1);
        let cluster = owner.cluster();
        fiber.cluster_phase.set(Some(cluster.phase.get()));
        cluster.arrived.set(cluster.arrived.get() + 1);
        cluster.complete();
        CONTINUE
    }

    /// `barrier.cluster.wait`. The answer is a status.
    CLUSTER_WAIT = fn cluster_wait(thread: *mut ThreadContext, block: *mut BlockContext) -> u32 {
        let owner = Block::of(block);
        let Some(fiber) = thread_of(thread) else {
            let what = "a cluster barrier in code that was compiled not to wait";
            return fault(thread, block, FaultKind::LaunchFailure, None, what);
        };
        if owner.running().stopped() {
            return FAULTED;
        }
        let Some(phase) = fiber.cluster_phase.take() else {
            let what = "barrier.cluster.wait without an arrive";
            return fault(thread, block, FaultKind::IllegalInstruction, None, what);
        };
        owner.events.set(owner.events.get() + 1);
        let cluster = owner.cluster();
        if phase != cluster.phase.get() {
            return CONTINUE;
        }
        cluster.waiting.borrow_mut().push((owner, linear_of(thread)));
        suspend(owner, fiber)
    }
}
