//! The sixteen barriers of a block.
//!
//! A barrier counts threads. Without a count it waits for every thread that has not ended. With
//! one, a warp whose threads have all arrived or ended counts as 32, as the hardware counts warps;
//! of another warp, the threads that have arrived count.

use std::cell::Cell;

use super::block::{Block, MOST_WARPS, linear_of, suspend, thread_of};
use super::context::{BlockContext, CONTINUE, FAULTED, Status, ThreadContext};
use super::launch::FaultKind;
use super::running::fault;
use crate::jit::runtime::runtime;

/// A barrier's current generation.
#[derive(Default)]
pub(super) struct Barrier {
    /// Which lanes have arrived, by warp.
    arrived: [Cell<u32>; MOST_WARPS],
    /// Which of them wait, by warp.
    waiting: [Cell<u32>; MOST_WARPS],
    /// Threads that have arrived and not ended.
    present: Cell<u32>,
    /// Arrivals of threads that had arrived before.
    again: Cell<u32>,
    /// How many arrivals complete it; 0 is every thread that has not ended.
    expected: Cell<u32>,
    /// Arrivals with a predicate, and those whose predicate was true.
    tally: Cell<(u32, u32)>,
}

/// How a thread takes part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Arrive,
    Wait,
}

runtime! {
    /// `bar.sync`, `barrier.sync`: waits at barrier `id` for `count` threads, 0 for all. The answer
    /// is a status.
    BARRIER_SYNC = fn barrier_sync(thread: *mut ThreadContext, block: *mut BlockContext, id: u32, count: u32) -> u32 {
        arrive(thread, block, id, count, None, Part::Wait)
    }

    /// `bar.arrive`, `barrier.arrive`: is counted and goes on. The answer is a status.
    BARRIER_ARRIVE = fn barrier_arrive(thread: *mut ThreadContext, block: *mut BlockContext, id: u32, count: u32) -> u32 {
        arrive(thread, block, id, count, None, Part::Arrive)
    }

    /// `bar.red`, `barrier.red`: waits, with a predicate. The low half of the answer is how many
    /// predicates were true or, unless `all` is 0, whether all were; the high half is a status.
    BARRIER_RED = fn barrier_red(
        thread: *mut ThreadContext, block: *mut BlockContext, id: u32, count: u32, predicate: u32, all: u32,
    ) -> u64 {
        let status = arrive(thread, block, id, count, Some(predicate != 0), Part::Wait);
        if status != CONTINUE {
            return u64::from(status) << 32;
        }
        let linear = linear_of(thread);
        let tally = Block::of(block).warps()[linear as usize / 32].result(linear % 32);
        let (came, true_ones) = (tally >> 32, tally & 0xffff_ffff);
        if all != 0 { u64::from(came == true_ones) } else { true_ones }
    }
}

fn arrive(
    context: *mut ThreadContext,
    block_context: *mut BlockContext,
    id: u32,
    count: u32,
    predicate: Option<bool>,
    part: Part,
) -> Status {
    let block = Block::of(block_context);
    let (Some(barrier), Some(thread)) = (block.barriers.get(id as usize), thread_of(context))
    else {
        let detail = format!("barrier {id} is not one of the 16 that a block has");
        return fault(
            context,
            block_context,
            FaultKind::IllegalInstruction,
            None,
            detail,
        );
    };
    if block.running().stopped() {
        return FAULTED;
    }
    block.events.set(block.events.get() + 1);
    block.barriers_open.set(block.barriers_open.get() | 1 << id);
    let linear = linear_of(context);
    let (warp, lane) = (linear as usize / 32, linear % 32);
    let (arrived, bit) = (barrier.arrived[warp].get(), 1 << lane);
    if arrived & bit == 0 {
        barrier.arrived[warp].set(arrived | bit);
        barrier.present.set(barrier.present.get() + 1);
    } else {
        barrier.again.set(barrier.again.get() + 1);
    }
    barrier
        .expected
        .set(count.checked_next_multiple_of(32).unwrap_or(count));
    if let Some(predicate) = predicate {
        let (came, true_ones) = barrier.tally.get();
        barrier
            .tally
            .set((came + 1, true_ones + u32::from(predicate)));
    }
    if barrier.complete(block) {
        let (came, true_ones) = barrier.tally.get();
        block.warps()[warp].set_result(lane, u64::from(came) << 32 | u64::from(true_ones));
        barrier.release(block, id);
        return CONTINUE;
    }
    match part {
        Part::Arrive => CONTINUE,
        Part::Wait => {
            barrier.waiting[warp].set(barrier.waiting[warp].get() | bit);
            suspend(block, thread)
        }
    }
}

impl Barrier {
    fn complete(&self, block: &Block) -> bool {
        match self.expected.get() {
            0 => self.present.get() + block.exited() == block.threads().len() as u32,
            expected => {
                let counted: u32 = block
                    .warps()
                    .iter()
                    .zip(&self.arrived)
                    .map(|(warp, arrived)| match arrived.get() {
                        0 => 0,
                        arrived if arrived | warp.exited() == u32::MAX => 32,
                        arrived => arrived.count_ones(),
                    })
                    .sum();
                counted + self.again.get() >= expected
            }
        }
    }

    /// Completes the generation: those that wait go on, the next generation begins.
    fn release(&self, block: &Block, id: u32) {
        let (came, true_ones) = self.tally.get();
        for (index, warp) in block.warps().iter().enumerate() {
            let waiting = self.waiting[index].take();
            self.arrived[index].set(0);
            warp.ready.set(warp.ready.get() | waiting);
            if came != 0 {
                warp.set_results(waiting, u64::from(came) << 32 | u64::from(true_ones));
            }
        }
        self.present.set(0);
        self.again.set(0);
        self.tally.set((0, 0));
        block
            .barriers_open
            .set(block.barriers_open.get() & !(1 << id));
    }

    /// How many threads wait here.
    pub fn waiting(&self) -> u32 {
        self.waiting
            .iter()
            .map(|lanes| lanes.get().count_ones())
            .sum()
    }
}

impl Block {
    /// A thread has ended: barriers that waited for it alone complete.
    pub(super) fn barriers_without(&self, linear: u32) {
        for (id, barrier) in (0..).zip(&self.barriers) {
            if self.barriers_open.get() & (1 << id) == 0 {
                continue;
            }
            if barrier.arrived[linear as usize / 32].get() & (1 << (linear % 32)) != 0 {
                barrier.present.set(barrier.present.get() - 1);
            }
            if barrier.complete(self) {
                barrier.release(self, id);
            }
        }
    }
}
