//! Volatile accesses to shared memory in which nobody waits for what others write, as the last
//! steps of many sums have them:
//!
//! ```text
//! ld.volatile.shared.f32 %f2, [%r3+64];
//! add.f32 %f1, %f1, %f2;
//! st.volatile.shared.f32 [%r3], %f1;
//! bar.warp.sync 0xffffffff;
//! ```
//!
//! They are in no loop, or all threads of the block meet in each turn of it. So these are as any
//! other: threads of a group make them together.

use std::borrow::Cow;

use super::body::{Pending, PendingStep};
use super::loops::{labels, target};
use crate::jit::program::Tables;

/// Takes the word from a kernel's accesses.
pub(super) fn drop_where_nobody_waits(steps: &mut [PendingStep<'_>], tables: &Tables) {
    if !steps.iter().any(is_volatile) {
        return;
    }
    let labels = labels(steps, tables);
    // In loops in which threads may go round without the others: each goes back to its first step
    // somewhere.
    let mut looped = vec![false; steps.len()];
    for (at, step) in steps.iter().enumerate() {
        let PendingStep::Instruction(pending) = step else {
            continue;
        };
        if pending.instruction.opcode == "brx" {
            return; // it may go anywhere
        }
        if let Some(to) = leads(step, &labels).filter(|to| *to <= at)
            && !meets(&steps[to..at], to, &labels)
        {
            looped[to..=at].fill(true);
        }
    }
    for (step, _) in steps.iter_mut().zip(looped).filter(|(_, looped)| !looped) {
        if is_volatile(step)
            && let PendingStep::Instruction(Pending { instruction, .. }) = step
        {
            let mut other = instruction.as_ref().clone();
            other.modifiers.remove(0);
            *instruction = Cow::Owned(other);
        }
    }
}

/// Where a branch leads to.
fn leads(step: &PendingStep<'_>, labels: &[usize]) -> Option<usize> {
    match step {
        PendingStep::Instruction(pending) if pending.instruction.opcode == "bra" => {
            target(pending).map(|label| labels[label as usize])
        }
        _ => None,
    }
}

/// Whether each turn of a loop, whose first step is at `first`, comes to a barrier that waits for
/// all threads of the block.
fn meets(turn: &[PendingStep<'_>], first: usize, labels: &[usize]) -> bool {
    let is_barrier = |step: &PendingStep<'_>| {
        let PendingStep::Instruction(pending) = step else {
            return false;
        };
        let mut modifiers = pending.instruction.modifiers.iter();
        matches!(pending.instruction.opcode.as_str(), "bar" | "barrier")
            && modifiers
                .find(|modifier| *modifier != "cta")
                .is_some_and(|what| what == "sync")
            && pending.guard.is_none()
            && pending.args.len() == 1
    };
    // None before it leads past it.
    let passes = |barrier: usize| {
        let mut ways = turn[..barrier]
            .iter()
            .filter_map(|step| leads(step, labels));
        ways.any(|to| (barrier + 1..=turn.len()).contains(&to.wrapping_sub(first)))
    };
    let mut steps = turn.iter().enumerate();
    steps.any(|(at, step)| is_barrier(step) && !passes(at))
}

fn is_volatile(step: &PendingStep<'_>) -> bool {
    let PendingStep::Instruction(Pending { instruction, .. }) = step else {
        return false;
    };
    let [order, space, of @ ..] = &instruction.modifiers[..] else {
        return false;
    };
    let is_type = match of {
        [_] => true,
        [count, _] => matches!(count.as_str(), "v2" | "v4"),
        _ => false,
    };
    matches!(instruction.opcode.as_str(), "ld" | "st")
        && order == "volatile"
        && matches!(space.as_str(), "shared" | "shared::cta")
        && is_type
}
