//! A thread that polls memory lets others run, and so does one that sleeps.
//!
//! Threads that sleep side by side on a device come one after the other here, and must not add
//! their times up. So the launch counts how long any of its threads has slept, and a thread sleeps
//! for what its own sleeps exceed that by: a launch sleeps as long as its sleepiest thread. PTX
//! lets `nanosleep` take any time up to twice what was asked for, also none.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::block::{Block, linear_of, suspend, thread_of};
use super::context::{BlockContext, CONTINUE, FAULTED, ThreadContext};
use crate::jit::runtime::runtime;

/// How many polls a thread has before it lets others run: enough for code that only happens to use
/// volatile loads, few enough that a thread in a spin loop wastes little.
pub(crate) const BUDGET: i32 = 32;

/// How many turns of lanes there are in rounds before each poll lets others run: the threads may
/// poll between waits that complete, and then no turn uses up its polls.
pub(super) const TURNS: u32 = if cfg!(test) { 64 } else { 16384 };

/// How many polls a block of so many threads has before its threads have turns one by one: what
/// another worker is about to write comes within some microseconds.
pub(super) fn budget_of_all(threads: u32) -> i32 {
    match cfg!(test) {
        // Tests see it used up.
        true => threads as i32,
        false => 8192 + BUDGET * threads as i32,
    }
}

/// A sleep of so many nanoseconds, as a power of two, counts as a poll.
pub(crate) const NANOSECONDS_SHIFT: i64 = 3;

/// The longest sleep, in nanoseconds.
const LONGEST: u32 = 1_000_000;
/// The system wakes a thread up to so many nanoseconds late.
const LATE: u64 = 100_000;

/// Waits. Long waits leave the processor to others; on a busy machine a short one would not get it
/// back in time.
fn wait(nanoseconds: u64) {
    let start = Instant::now();
    let length = Duration::from_nanos(nanoseconds);
    if nanoseconds > 2 * LATE {
        std::thread::sleep(Duration::from_nanos(nanoseconds - LATE));
    }
    while start.elapsed() < length {
        std::hint::spin_loop();
    }
}

runtime! {
    /// `nanosleep`
    SLEEP = fn sleep(block: *mut BlockContext, linear: u32, nanoseconds: u32) {
        let nanoseconds = nanoseconds.min(LONGEST);
        // SAFETY: compiled code passes on the context that the grid gave it, and no reference to it
        // exists meanwhile.
        unsafe { (*block).polls = (*block).polls.saturating_sub((nanoseconds >> NANOSECONDS_SHIFT) as i32) };
        let block = Block::of(block);
        let (slept, of_launch) = (block.slept(linear, nanoseconds.into()), &block.running().slept);
        let ahead = slept.saturating_sub(of_launch.load(Ordering::Relaxed));
        if ahead > 0 {
            wait(ahead);
            of_launch.fetch_max(slept, Ordering::Relaxed);
        }
    }

    /// Lets the other threads run and starts a new budget of polls. `at_mbarrier`, if not 0: as in
    /// [`Wait::AT_MBARRIER`](super::rounds::Wait::AT_MBARRIER). The answer is a status.
    POLL = fn poll(thread: *mut ThreadContext, block: *mut BlockContext, at_mbarrier: u32) -> u32 {
        // SAFETY: compiled code passes on the context that the grid gave it, and no reference to it
        // exists meanwhile.
        unsafe { (*thread).polls = BUDGET };
        let block = Block::of(block);
        if block.running().stopped() {
            return FAULTED;
        }
        let Some(fiber) = thread_of(thread) else { return CONTINUE };
        let linear = linear_of(thread);
        block.warps()[linear as usize / 32].poll(1 << (linear % 32), at_mbarrier != 0);
        suspend(block, fiber)
    }
}
