//! Blocks that groups have no form for, as they call functions or use local memory: a group that
//! comes to one parts, and its threads go on by themselves to where they join. That pays where
//! threads seldom come there: to what `sinf` does with large numbers, say.

use super::control::Control;
use crate::jit::decode::{Callee, RegId};
use crate::jit::program::{Body, Instruction, Place, Step};

/// The most bytes of local memory that each thread of a group keeps of its own.
const MOST_LOCAL: u64 = 256;

/// Whether a step is done by one thread at a time.
pub(super) fn is_alone(step: &Instruction) -> bool {
    step.operation.callee() != Callee::None || step.operation.uses_local() || step.in_call_area
}

/// Whether a body has such steps, and its groups may part around them.
pub(super) fn may_be(body: &Body) -> bool {
    let is_copied =
        |place: Place, copy: Option<u64>| matches!(place, Place::Call(_)) && copy.is_some();
    let mut params = body.tables.params.iter();
    body.tables.frame <= MOST_LOCAL
        && !params.any(|param| is_copied(param.place, param.copy))
        && body.steps.iter().all(|step| match step {
            // A generic address of local memory may come anywhere.
            Step::Instruction(step) => !(step.operation.uses_local() && step.operation.pure()),
            Step::Label(_) => true,
        })
}

/// By block, whether threads go through it by themselves; `None` where that does not pay, or
/// arguments of a call would be left from one block to another.
pub(super) fn blocks(body: &Body, control: &Control) -> Option<Vec<bool>> {
    let count = control.graph.successors.len();
    let mut alone = vec![false; count];
    for (block, alone) in alone.iter_mut().enumerate() {
        *alone = control.steps(body, block).any(|(_, step)| is_alone(step));
        if *alone && !(is_seldom(body, control, block) && keeps_calls(body, control, block)) {
            return None;
        }
    }
    Some(alone)
}

/// Whether what a branch decides about has the block, and not nearly all of the body.
fn is_seldom(body: &Body, control: &Control, block: usize) -> bool {
    (0..control.graph.successors.len()).any(|branch| {
        let between = control.between(branch);
        let steps = between.iter().map(|at| control.steps(body, *at).count());
        between.contains(&block)
            && !between.contains(&branch)
            && 4 * steps.sum::<usize>() <= 3 * body.steps.len()
    })
}

/// Whether each call of a block has its arguments and results there.
fn keeps_calls(body: &Body, control: &Control, block: usize) -> bool {
    let (mut given, mut called) = (false, false);
    for (_, step) in control.steps(body, block) {
        if step.operation.callee() != Callee::None {
            (given, called) = (false, true);
        } else if step.in_call_area {
            match step.operation.only_loads() {
                true if !called => return false,
                true => {}
                false => given = true,
            }
        }
    }
    !given
}

/// The registers that threads may have written each by itself where they join behind such blocks.
pub(super) fn written(body: &Body, control: &Control, live: &[Vec<RegId>]) -> Vec<RegId> {
    let mut written = vec![];
    let blocks = 0..control.graph.successors.len();
    for block in blocks {
        let Some(join) = control.joins[block] else {
            continue; // they end by themselves
        };
        if !control.steps(body, block).any(|(_, step)| is_alone(step)) {
            continue;
        }
        let mut way = control.between(block);
        way.push(block);
        let steps = way.iter().flat_map(|block| control.steps(body, *block));
        let all = steps.flat_map(|(_, step)| step.writes.iter().copied());
        written.extend(all.filter(|register| live[join].contains(register)));
    }
    written
}
