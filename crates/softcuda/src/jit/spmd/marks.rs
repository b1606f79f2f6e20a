//! Marks of registers that spread over a body's steps.

use crate::jit::decode::RegId;
use crate::jit::program::{Body, Instruction, Step};

/// Which registers are marked.
pub(super) struct Marks {
    marked: Vec<bool>,
    more: bool,
}

impl Marks {
    pub fn add(&mut self, register: RegId) {
        self.more |= !std::mem::replace(&mut self.marked[register.0 as usize], true);
    }

    pub fn any<'a>(&self, registers: impl IntoIterator<Item = &'a RegId>) -> bool {
        let mut registers = registers.into_iter();
        registers.any(|register| self.marked[register.0 as usize])
    }

    pub fn add_all<'a>(&mut self, registers: impl IntoIterator<Item = &'a RegId>) {
        registers
            .into_iter()
            .for_each(|register| self.add(*register));
    }
}

/// By register, whether it is one of the first or `step` has marked it: that sees all steps until
/// none of them adds a mark.
pub(super) fn marked(
    body: &Body,
    first: &[RegId],
    mut step: impl FnMut(&Instruction, &mut Marks),
) -> Vec<bool> {
    let mut marks = Marks {
        marked: vec![false; body.tables.registers.len()],
        more: true,
    };
    marks.add_all(first);
    while std::mem::take(&mut marks.more) {
        for instruction in &body.steps {
            if let Step::Instruction(instruction) = instruction {
                step(instruction, &mut marks);
            }
        }
    }
    marks.marked
}
