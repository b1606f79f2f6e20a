//! The end of a round: see [`Mode::Rounds`](super::context::Mode::Rounds).

use super::block::Block;
use super::context::{BlockContext, CONTINUE, FAULTED, ThreadContext};
use crate::jit::runtime::runtime;

runtime! {
    /// All threads of the block have come to its barrier, or ended. The answer is a status.
    ROUND_OVER = fn round_over(_thread: *mut ThreadContext, block: *mut BlockContext) -> u32 {
        if Block::of(block).running().stopped() {
            return FAULTED;
        }
        // SAFETY: compiled code passes on the context that the grid gave it, and no reference to it
        // exists meanwhile.
        unsafe {
            let [came, true_ones, ..] = (*block).tally;
            (*block).tally = [0, 0, came, true_ones];
        }
        CONTINUE
    }
}
