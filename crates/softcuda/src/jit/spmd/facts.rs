//! What is known of a body when its branches and loops are judged.

use super::assumed::Assumed;
use super::control::Control;
use super::{Class, Rows, Way};
use crate::jit::decode::RegId;
use crate::jit::program::{Body, Instruction, Step};

#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    pub body: &'a Body,
    pub control: &'a Control,
    /// The blocks.
    pub rows: Rows,
    /// By register.
    pub classes: &'a [Class],
    /// By register, whether it is 0 in all threads.
    pub zeros: &'a [bool],
    /// By step.
    pub ways: &'a [Way],
    /// By block, the registers that are live where it begins.
    pub live: &'a [Vec<RegId>],
    pub assumed: &'a Assumed,
}

impl<'a> Facts<'a> {
    /// The instructions of a block, with their places in the body.
    pub fn steps(self, block: usize) -> impl Iterator<Item = (usize, &'a Instruction)> {
        self.control.steps(self.body, block)
    }

    /// The instructions of some blocks.
    pub fn steps_of(self, blocks: &[usize]) -> impl Iterator<Item = (usize, &'a Instruction)> {
        blocks.iter().flat_map(move |block| self.steps(*block))
    }

    /// Whether threads may poll what others do.
    pub fn polls(self) -> bool {
        self.body.steps.iter().any(|step| match step {
            Step::Instruction(instruction) => instruction.operation.polls(),
            Step::Label(_) => false,
        })
    }

    /// Whether a step accesses a row of memory that others than the block see.
    pub fn goes_through_memory(self, (at, step): (usize, &Instruction)) -> bool {
        let access = step.operation.weak_access();
        self.ways[at] == Way::Row && access.is_some_and(|access| !access.shared)
    }

    pub fn class(self, register: RegId) -> Class {
        self.classes[register.0 as usize]
    }
}
