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

/// Whether groups may part around such steps of a body. Of its local memory nobody may have a
/// generic address, which would be that of another thread's: it makes none, and calls nobody who
/// could.
pub(super) fn may_be(body: &Body) -> bool {
    let is_copied =
        |place: Place, copy: Option<u64>| matches!(place, Place::Call(_)) && copy.is_some();
    let calls = |step: &Instruction| step.operation.callee() != Callee::None;
    let converts = |step: &Instruction| step.operation.uses_local() && step.operation.pure();
    let mut params = body.tables.params.iter();
    body.tables.frame <= MOST_LOCAL
        && !params.any(|param| is_copied(param.place, param.copy))
        && !instructions(body).any(converts)
        && (body.tables.frame == 0 || !instructions(body).any(calls))
}

/// By block, whether threads go through it by themselves; `None` where that does not pay, or
/// arguments of a call would be left from one block to another.
pub(super) fn blocks(body: &Body, control: &Control) -> Option<Vec<bool>> {
    let count = control.graph.successors.len();
    let mut alone = vec![false; count];
    for (block, alone) in alone.iter_mut().enumerate() {
        *alone = has_alone(body, control, block);
        if *alone && !(is_seldom(body, control, block) && keeps_calls(body, control, block)) {
            return None;
        }
    }
    Some(alone)
}

fn has_alone(body: &Body, control: &Control, block: usize) -> bool {
    control.steps(body, block).any(|(_, step)| is_alone(step))
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

/// The registers that threads may write each by itself from such blocks on to where they join,
/// however the body is cut into blocks.
pub(super) fn written(body: &Body) -> Vec<RegId> {
    if !instructions(body).any(is_alone) {
        return vec![];
    }
    let control = Control::of(body, |_| false);
    let blocks = 0..control.graph.successors.len();
    let alone = blocks.filter(|block| has_alone(body, &control, *block));
    let ways = alone.flat_map(|block| [vec![block], control.between(block)].concat());
    let steps = ways.flat_map(|block| control.steps(body, block));
    steps
        .flat_map(|(_, step)| step.writes.iter().copied())
        .collect()
}

fn instructions(body: &Body) -> impl Iterator<Item = &Instruction> {
    body.steps.iter().filter_map(|step| match step {
        Step::Instruction(step) => Some(step),
        Step::Label(_) => None,
    })
}
