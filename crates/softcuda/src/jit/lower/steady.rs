//! Registers that hold one thing wherever they are read.

use std::collections::HashMap;

use ptx::ast::Immediate;

use crate::jit::analysis::Graph;
use crate::jit::decode::RegId;
use crate::jit::liveness;
use crate::jit::program::{Body, Instruction, Place, Step};

/// What is known of the registers of a body.
#[derive(Default)]
pub(super) struct Steady {
    /// Where the pointer lies in the parameters that a register holds.
    pub pointers: HashMap<RegId, u32>,
    /// The number that a register holds.
    pub numbers: HashMap<RegId, Immediate>,
}

impl Steady {
    pub fn of(body: &Body) -> Steady {
        let mut steady = Steady::default();
        // Those that may be read before they are written hold nothing then.
        let Some(live) = liveness::live_in(body, &Graph::of(body)) else {
            return steady;
        };
        let unset = live.first().map_or(&[][..], |live| live);
        let mut written: HashMap<RegId, u32> = HashMap::new();
        for step in &body.steps {
            if let Step::Instruction(step) = step {
                step.writes
                    .iter()
                    .for_each(|register| *written.entry(*register).or_default() += 1);
            }
        }
        for step in &body.steps {
            let Step::Instruction(step) = step else {
                continue;
            };
            let [to] = step.writes[..] else {
                continue;
            };
            if step.guard.is_none() && written[&to] == 1 && !unset.contains(&to) {
                steady.add(body, step, to);
            }
        }
        steady
    }

    /// A step writes a register that no other does.
    fn add(&mut self, body: &Body, step: &Instruction, to: RegId) {
        let operation = &step.operation;
        let loaded = operation.loads_pointer().and_then(|(number, offset)| {
            let Place::Kernel(at) = body.tables.params[number as usize].place else {
                return None;
            };
            u32::try_from((at as i64).checked_add(offset)?).ok()
        });
        let number = operation.number().map(|(_, number)| number);
        let copied = operation.copies();
        let pointer = loaded.or_else(|| self.pointers.get(&copied?).copied());
        let number = number.or_else(|| self.numbers.get(&copied?).copied());
        self.pointers.extend(pointer.map(|at| (to, at)));
        self.numbers.extend(number.map(|number| (to, number)));
    }
}
