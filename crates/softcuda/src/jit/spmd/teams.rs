//! Registers that are the same in all threads of a block: counters of loops around barriers, what is
//! computed from parameters.

use super::classes;
use super::control::Control;
use super::{Class, Plan};
use crate::jit::decode::{Flow, RegId};
use crate::jit::program::{Body, Instruction, Step};

/// By register, whether it is one.
pub(super) fn of(body: &Body, control: &Control, classes: &[Class]) -> Vec<bool> {
    let mut same: Vec<bool> = classes
        .iter()
        .map(|class| *class == Class::Uniform)
        .collect();
    loop {
        let before = same.clone();
        // Blocks that some threads may come to, and others not.
        let mut apart = vec![false; control.joins.len()];
        for (at, step) in body.steps.iter().enumerate() {
            let block = control.graph.block_of[at];
            if let Step::Instruction(step) = step
                && step.operation.flow() != Flow::Next
                && let Some((guard, _)) = step.guard
                && !same[guard.0 as usize]
            {
                control
                    .between(block)
                    .into_iter()
                    .for_each(|between| apart[between] = true);
            }
        }
        for (at, step) in body.steps.iter().enumerate() {
            if let Step::Instruction(step) = step
                && (apart[control.graph.block_of[at]] || !is_same(step, &same))
            {
                step.writes
                    .iter()
                    .for_each(|register| same[register.0 as usize] = false);
            }
        }
        if same == before {
            return same;
        }
    }
}

/// Whether what an instruction writes is the same in all threads of a block.
fn is_same(step: &Instruction, same: &[bool]) -> bool {
    let guard = step.guard.map(|(register, _)| register);
    let mut reads = step.reads.iter().copied().chain(guard);
    (step.operation.pure() || step.operation.loads_parameter())
        && reads.all(|register| same[register.0 as usize])
        && step
            .specials
            .iter()
            .all(|special| classes::of_block(*special))
}

impl Plan {
    /// Whether a register is the same in all threads of a block.
    pub fn is_of_block(&self, register: RegId) -> bool {
        self.of_block[register.0 as usize]
    }
}
