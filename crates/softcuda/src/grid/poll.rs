//! A thread that polls memory lets others run.

use super::block::{Block, linear_of, suspend, thread_of};
use super::context::{BlockContext, CONTINUE, FAULTED, ThreadContext};
use crate::jit::runtime::runtime;

/// How many polls a thread has before it lets others run: enough for code that only happens to use
/// volatile loads, few enough that a thread in a spin loop wastes little.
pub(crate) const BUDGET: i32 = 32;

/// How many polls a block of so many threads has before its threads have turns one by one: what
/// another worker is about to write comes within some microseconds.
pub(super) fn budget_of_all(threads: u32) -> i32 {
    match cfg!(test) {
        // Tests see it used up.
        true => threads as i32,
        false => 8192 + BUDGET * threads as i32,
    }
}

runtime! {
    /// Lets the other threads run and starts a new budget of polls. The answer is a status.
    POLL = fn poll(thread: *mut ThreadContext, block: *mut BlockContext) -> u32 {
        // SAFETY: compiled code passes on the context that the grid gave it, and no reference to it
        // exists meanwhile.
        unsafe { (*thread).polls = BUDGET };
        let block = Block::of(block);
        if block.running().stopped() {
            return FAULTED;
        }
        let Some(fiber) = thread_of(thread) else { return CONTINUE };
        let linear = linear_of(thread);
        block.warps()[linear as usize / 32].poll(1 << (linear % 32));
        suspend(block, fiber)
    }
}
