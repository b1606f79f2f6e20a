//! Runs of steps in slices: where more vectors of a group are live than the processor has
//! registers, the whole run is done for some of each register's vectors, then for the next ones.
//!
//! A slice is to a run what another group would be. So what is done once for the group is done once
//! for each slice, from what it began with.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use cranelift_codegen::ir::Value;
use cranelift_frontend::Variable;

use super::Kept;
use crate::jit::decode::{Flow, RegId};
use crate::jit::lower::Lower;
use crate::jit::program::{Instruction, Step};
use crate::jit::spmd::{Class, Way, wants_all};

/// With more live vectors, a run is done in slices.
const MOST_LIVE: usize = 24;
/// Live vectors of a slice at best: what is left of the registers are operands and temporaries.
const ENOUGH: usize = 14;

/// A slice: which of how many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    number: usize,
    of: usize,
}

impl Slice {
    pub const WHOLE: Slice = Slice { number: 0, of: 1 };

    /// The vectors of a register that are done, of so many.
    pub fn vectors(self, count: usize) -> Range<usize> {
        count * self.number / self.of..count * (self.number + 1) / self.of
    }
}

/// Steps of a block that may be done in slices.
struct Run {
    end: usize,
    /// Into so many; 1 if it does not pay.
    slices: usize,
    /// Registers that are written once for the group, and read before.
    once: Vec<RegId>,
}

impl Lower<'_> {
    /// Lowers steps from this one on, all of its block. The builder is where they begin.
    pub(super) fn lower_group_part(&mut self, steps: Range<usize>) {
        let joined = self.join_loads(steps.clone());
        let outer = std::mem::replace(&mut self.lanes().joined, joined);
        let mut at = steps.start;
        while at < steps.end {
            let run = self.run_from(at, steps.end);
            if run.slices > 1 {
                self.lower_run(at, &run);
            } else {
                (at..run.end).for_each(|at| self.lower_group_step(at));
            }
            at = run.end;
            if at < steps.end {
                self.lower_group_step(at);
                at += 1;
            }
        }
        self.lanes().joined = outer;
    }

    /// Where a row lies, which the slices of a run have in common.
    pub(in crate::jit::lower) fn once_for_slices(
        &mut self,
        address: impl FnOnce(&mut Self) -> Value,
    ) -> Value {
        let step = self.step;
        let lanes = self.lanes();
        let sliced = lanes.slice.of > 1;
        if let Some(address) = lanes.rows.get(&step).copied().filter(|_| sliced) {
            return address;
        }
        let address = address(self);
        if sliced {
            self.lanes().rows.insert(step, address);
        }
        address
    }

    fn lower_run(&mut self, begin: usize, run: &Run) {
        let one = |register: &RegId| match self.lanes().kept(*register) {
            Kept::One(variable) => Some(*variable),
            _ => None,
        };
        let once: Vec<Variable> = run.once.iter().filter_map(one).collect();
        let before: Vec<Value> = once.iter().map(|one| self.b.use_var(*one)).collect();
        for number in 0..run.slices {
            if number > 0 {
                for (one, value) in once.iter().zip(&before) {
                    self.b.def_var(*one, *value);
                }
            }
            self.lanes().slice = Slice {
                number,
                of: run.slices,
            };
            (begin..run.end).for_each(|at| self.lower_group_step(at));
        }
        let lanes = self.lanes();
        lanes.slice = Slice::WHOLE;
        lanes.rows.clear();
    }

    /// The steps from this one on that may be done in slices.
    fn run_from(&mut self, begin: usize, end: usize) -> Run {
        let body = self.body;
        let (mut once, mut written): (Vec<RegId>, Vec<RegId>) = (vec![], vec![]);
        let mut read: HashSet<RegId> = HashSet::new();
        let mut run = begin..begin;
        for step in &body.steps[begin..end] {
            if let Step::Instruction(instruction) = step {
                if !self.goes_in_slices(run.end, instruction) {
                    break;
                }
                let guard = instruction.guard.map(|(register, _)| register);
                let reads = instruction.reads.iter().chain(&guard);
                read.extend(reads.filter(|register| !written.contains(register)));
                if self.lanes().plan.ways[run.end] == Way::Once {
                    let again = instruction.writes.iter();
                    once.extend(again.filter(|register| read.contains(register)));
                    written.extend(&instruction.writes);
                }
            }
            run.end += 1;
        }
        let slices = self.slices(run.clone());
        Run {
            end: run.end,
            slices,
            once,
        }
    }

    /// Whether a step may be done in slices.
    fn goes_in_slices(&mut self, at: usize, instruction: &Instruction) -> bool {
        let operation = &instruction.operation;
        let again = operation.pure() || operation.loads() && !operation.polls();
        if !again || operation.flow() != Flow::Next {
            return false;
        }
        let way = self.lanes().plan.ways[at];
        let guard = instruction.guard;
        let fits = match way {
            Way::Once => guard.is_none(),
            Way::Row => guard.is_none() && self.row_goes_by_vectors(instruction),
            Way::Vector => guard.is_none_or(|(guard, _)| {
                self.lanes().plan.class(guard) == Class::Varying && instruction.writes.len() < 2
            }),
            _ => false,
        };
        let once = way == Way::Once;
        let mut written = instruction.writes.iter();
        fits && written.all(|register| match self.kept_of(*register) {
            Kept::One(_) => once,
            Kept::Vectors(_) => !once,
            Kept::Each(_) => false,
        })
    }

    /// How many slices a run is best done in.
    fn slices(&mut self, run: Range<usize>) -> usize {
        let body = self.body;
        let instructions = |range: Range<usize>| {
            body.steps[range]
                .iter()
                .rev()
                .filter_map(|step| match step {
                    Step::Instruction(instruction) => Some(instruction),
                    Step::Label(_) => None,
                })
        };
        let mut vectors: HashMap<RegId, usize> = HashMap::new();
        let mut work = 0;
        for instruction in instructions(run.clone()) {
            let mut most = 0;
            for register in instruction.reads.iter().chain(&instruction.writes) {
                if let Kept::Vectors(variables) = self.kept_of(*register) {
                    vectors.insert(*register, variables.len());
                    most = most.max(variables.len());
                }
            }
            work += most;
        }
        let Some(least) = vectors.values().copied().min() else {
            return 1;
        };
        // From the block's end backwards.
        let plan = &self.lanes().plan;
        let of = &plan.control.graph.block_of;
        let block = of[run.start];
        let after = plan.control.graph.successors[block].iter();
        let mut live: Vec<RegId> = after
            .flat_map(|block| &plan.live[*block])
            .copied()
            .collect();
        let end = (run.end..of.len()).find(|at| of[*at] != block);
        live.sort_unstable_by_key(|register| register.0);
        live.dedup();
        let pass = |live: &mut Vec<RegId>, instruction: &Instruction| {
            if instruction.guard.is_none() {
                live.retain(|register| !instruction.writes.contains(register));
            }
            let guard = instruction.guard.map(|(register, _)| register);
            for register in instruction.reads.iter().chain(&guard) {
                if !live.contains(register) {
                    live.push(*register);
                }
            }
        };
        for instruction in instructions(run.end..end.unwrap_or(of.len())) {
            pass(&mut live, instruction);
        }
        let (mut most, mut held) = (0, vec![]);
        for instruction in instructions(run) {
            pass(&mut live, instruction);
            held.clear();
            held.extend(live.iter().filter_map(|register| vectors.get(register)));
            most = most.max(held.iter().sum());
        }
        // Tests want both.
        if wants_all() && body.steps.len().is_multiple_of(3) {
            return least;
        }
        if most <= MOST_LIVE || work < 2 * most {
            return 1;
        }
        let mut slices = 1;
        while most / slices > ENOUGH && 2 * slices <= least {
            slices *= 2;
        }
        slices
    }
}
