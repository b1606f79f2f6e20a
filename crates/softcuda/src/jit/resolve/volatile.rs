//! Volatile accesses to shared memory that are in no loop, as the last steps of many sums have
//! them:
//!
//! ```text
//! ld.volatile.shared.f32 %f2, [%r3+64];
//! add.f32 %f1, %f1, %f2;
//! st.volatile.shared.f32 [%r3], %f1;
//! bar.warp.sync 0xffffffff;
//! ```
//!
//! Nobody waits there for what others write, and each access is made once. So these are as any
//! other: threads of a group make them together.

use std::borrow::Cow;
use std::collections::HashMap;

use super::body::{Pending, PendingStep};
use super::loops::target;

/// Takes the word from a kernel's accesses.
pub(super) fn drop_outside_loops(steps: &mut [PendingStep<'_>]) {
    if !steps.iter().any(is_volatile) {
        return;
    }
    let mut labels = HashMap::new();
    for (at, step) in steps.iter().enumerate() {
        if let PendingStep::Label(label) = step {
            labels.insert(*label, at);
        }
    }
    // Up to here steps are in a loop: each goes back to its first step somewhere.
    let mut looped = vec![false; steps.len()];
    for (at, step) in steps.iter().enumerate() {
        let PendingStep::Instruction(pending) = step else {
            continue;
        };
        match pending.instruction.opcode.as_str() {
            "bra" => {
                let to = target(pending).and_then(|label| labels.get(&label));
                if let Some(to) = to.filter(|to| **to <= at) {
                    looped[*to..=at].fill(true);
                }
            }
            // It may go anywhere.
            "brx" => return,
            _ => {}
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

fn is_volatile(step: &PendingStep<'_>) -> bool {
    let PendingStep::Instruction(Pending { instruction, .. }) = step else {
        return false;
    };
    let modifiers = instruction.modifiers.iter().map(String::as_str);
    let modifiers: Vec<&str> = modifiers.collect();
    matches!(instruction.opcode.as_str(), "ld" | "st")
        && matches!(
            modifiers[..],
            ["volatile", "shared" | "shared::cta", _]
                | ["volatile", "shared" | "shared::cta", "v2" | "v4", _]
        )
}
