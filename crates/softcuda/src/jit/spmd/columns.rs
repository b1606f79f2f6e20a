//! The order in which groups go through a region of a block with rows: those of one column, row
//! after row, and then the next column. What is the same in all rows of a column is computed once
//! for all of them: what hangs on `%tid.x` alone, of the numbers of threads.
//!
//! That is for regions whose threads cannot tell who goes first.

use super::facts::Facts;
use super::{Regions, Way, wide};
use crate::jit::decode::{Flow, RegId, Special};
use crate::jit::program::{Body, Instruction, Step};

/// What goes in columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    /// By region, whether groups go through it so if the block has rows.
    pub regions: Vec<bool>,
    /// By register that is the same in all rows of a column, the step that computes it. No path to
    /// a reader goes past that.
    pub steady: Vec<Option<usize>>,
}

impl Columns {
    /// Of a body with these regions. `wide` are the ways of wide groups, if there are any.
    pub(super) fn of(facts: Facts<'_>, regions: &Regions, wide: Option<&[Way]>) -> Columns {
        let body = facts.body;
        let has_rows = wide::has_short_rows(body);
        let mut goes = vec![has_rows; regions.regions.len()];
        for (step, block) in body.steps.iter().zip(&facts.control.graph.block_of) {
            if let Step::Instruction(step) = step
                && let Some(region) = regions.of[*block]
            {
                goes[region] &= goes_unseen(step);
            }
        }
        let steady = match goes.contains(&true) {
            true => steady(facts, wide.unwrap_or(facts.ways)),
            false => vec![None; body.tables.registers.len()],
        };
        Columns {
            regions: goes,
            steady,
        }
    }
}

/// Whether a step is nothing by which threads of a region may tell who goes first.
fn goes_unseen(step: &Instruction) -> bool {
    let operation = &step.operation;
    operation.pure()
        || operation.loads_parameter()
        || operation.weak_access().is_some()
        || operation.waits()
        || operation.flow() != Flow::Next
}

/// The registers that are the same in all rows of a column.
fn steady(facts: Facts<'_>, wide: &[Way]) -> Vec<Option<usize>> {
    let body: &Body = facts.body;
    let mut writes = vec![0; body.tables.registers.len()];
    for step in &body.steps {
        if let Step::Instruction(step) = step {
            step.writes
                .iter()
                .for_each(|at| writes[at.0 as usize] += 1);
        }
    }
    let mut steady: Vec<Option<usize>> = vec![None; writes.len()];
    // In source order: most are written before they are read there, too.
    for (at, step) in body.steps.iter().enumerate() {
        let Step::Instruction(step) = step else {
            continue;
        };
        let [register] = step.writes[..] else {
            continue;
        };
        let operation = &step.operation;
        let straight = |way: Way| matches!(way, Way::Once | Way::Vector);
        let known = |register: &RegId| steady[register.0 as usize].is_some();
        let in_column = |special: &Special| {
            use Special::{Ctaid, Nctaid, Ntid, Tid};
            matches!(special, Tid(0) | Ntid(_) | Ctaid(_) | Nctaid(_))
        };
        if writes[register.0 as usize] == 1
            && !facts.live[0].contains(&register)
            && step.guard.is_none()
            && (operation.pure() || operation.loads_parameter())
            && !operation.carry()
            && straight(facts.ways[at])
            && straight(wide[at])
            && step.specials.iter().all(in_column)
            && step.reads.iter().all(known)
        {
            steady[register.0 as usize] = Some(at);
        }
    }
    steady
}
