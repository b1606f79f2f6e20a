//! Registers that are the same in all threads of a block: counters of loops around barriers, what
//! is computed from parameters.

use super::classes::{self, Known};
use super::control::Control;
use super::{Class, Plan, WIDTH};
use crate::jit::decode::{Arg, Flow, RegId, Special, Stride};
use crate::jit::program::{Body, Instruction, Step};

/// What is known of the registers beyond a group.
#[derive(Debug)]
pub(super) struct Teams {
    /// By register, whether it is the same in all threads of the block.
    same: Vec<bool>,
    /// By register, whether its value counts up by one distance over the lanes of a warp, as it
    /// does over a group, where whole warps make up the rows of the block.
    counts: Vec<bool>,
    /// The same over the threads of a row.
    counts_on: Vec<bool>,
}

impl Teams {
    /// Whether a register is the same in all threads of a block.
    pub fn is_same(&self, register: RegId) -> bool {
        self.same[register.0 as usize]
    }

    pub fn of(body: &Body, control: &Control, known: &Known) -> Teams {
        let classes = &known.classes;
        let is = |class: &Class| *class == Class::Uniform;
        let is_same = |step: &Instruction, same: &[bool]| is_same(step, same);
        // Threads that make no group may be in another turn of a loop.
        let may_be = |class: &Class| is(class) && !known.group.rows.has_rest();
        let same = settled(body, control, classes.iter().map(may_be).collect(), is_same);
        let is = |class: &Class| matches!(class, Class::Affine(_));
        let all = classes
            .iter()
            .zip(&same)
            .map(|(class, same)| is(class) || *same);
        let all: Vec<bool> = all.collect();
        let counts = |of: fn(Special) -> Option<i64>| {
            if known.group.rows.goes_across() || known.group.rows.has_rest() {
                return vec![false; classes.len()];
            }
            settled(body, control, all.clone(), |step, counts| {
                is_same(step, &same) || counts_up(step, classes, counts, of)
            })
        };
        Teams {
            counts: counts(over_warp),
            counts_on: counts(over_row),
            same,
        }
    }
}

/// The registers of `all` that stay when those are left out that a step writes which some threads
/// may come to and others not, or which does not `keep` them.
fn settled(
    body: &Body,
    control: &Control,
    mut all: Vec<bool>,
    keeps: impl Fn(&Instruction, &[bool]) -> bool,
) -> Vec<bool> {
    loop {
        let before = all.clone();
        let mut apart = vec![false; control.joins.len()];
        for (at, step) in body.steps.iter().enumerate() {
            let block = control.graph.block_of[at];
            if let Step::Instruction(step) = step
                && step.operation.flow() != Flow::Next
                && let Some((guard, _)) = step.guard
                && !all[guard.0 as usize]
            {
                control
                    .between(block)
                    .into_iter()
                    .for_each(|between| apart[between] = true);
            }
        }
        for (at, step) in body.steps.iter().enumerate() {
            if let Step::Instruction(step) = step
                && (apart[control.graph.block_of[at]] || !keeps(step, &all))
            {
                step.writes
                    .iter()
                    .for_each(|register| all[register.0 as usize] = false);
            }
        }
        if all == before {
            return all;
        }
    }
}

/// How much more a special register is in each lane of a warp than in the one before, where whole
/// warps make up rows.
fn over_warp(special: Special) -> Option<i64> {
    match special {
        Special::Tid(0) | Special::Laneid => Some(1),
        special => classes::of_block(special).then_some(0),
    }
}

/// The same of the threads of a row.
fn over_row(special: Special) -> Option<i64> {
    over_warp(special).filter(|_| special != Special::Laneid)
}

/// Whether what an instruction writes counts up over threads beyond a group, as special registers
/// do, without regard to where a group begins.
fn counts_up(
    step: &Instruction,
    classes: &[Class],
    counts: &[bool],
    special: fn(Special) -> Option<i64>,
) -> bool {
    let of = |arg: &Arg| {
        let step = match arg {
            Arg::Reg(register) if counts[register.0 as usize] => {
                classes[register.0 as usize].stride()?
            }
            Arg::Special(register) => special(*register)?,
            Arg::Imm(_) | Arg::Symbol(..) => 0,
            _ => return None,
        };
        Some(Stride {
            step,
            zeros: 0,
            group: WIDTH.ilog2(),
        })
    };
    let [written] = step.writes[..] else {
        return false;
    };
    step.guard.is_none()
        && step.operation.pure()
        && step.operation.widens().is_none()
        && step.operation.stride(&of).map(|stride| stride.step)
            == classes[written.0 as usize].stride()
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
        self.teams.is_same(register)
    }

    /// Whether a register counts up over the lanes of a warp, where whole warps make up rows.
    pub fn counts_over_warp(&self, register: RegId) -> bool {
        self.teams.counts[register.0 as usize]
    }

    /// Whether a register counts up over the threads of a row, where whole warps make up rows.
    pub fn counts_over_row(&self, register: RegId) -> bool {
        self.teams.counts_on[register.0 as usize]
    }
}
