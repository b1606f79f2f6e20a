//! What groups of one column of a block have in common: of threads' numbers, it hangs on `%tid.x`
//! alone. Where a block has rows, that is computed once for each column of a region.

use super::facts::Facts;
use super::teams::Teams;
use super::{Regions, Way, wants_all, wide};
use crate::jit::decode::{RegId, Special};
use crate::jit::program::{Instruction, Step};
use crate::jit::recompute;

/// What is computed once for each column of a region.
#[derive(Clone, Debug, Default)]
pub(crate) struct Column {
    /// The steps that do it, in source order: of the region, and of earlier ones.
    pub steps: Vec<usize>,
    /// The registers that groups take instead of doing these steps: no path in the region to a
    /// reader goes past its step. What is the same in all threads of the block is not among them:
    /// it may be read when the region is over.
    pub steady: Vec<RegId>,
    /// What the steps take that is the same in all threads of the block, and that the region does
    /// not write.
    pub of_block: Vec<RegId>,
}

/// The least steps in vectors that are worth a look at the table, and the most registers in it.
const LEAST: usize = 3;
const MOST: usize = 48;

/// What is known of a body.
pub(super) struct Judge<'a> {
    pub facts: Facts<'a>,
    pub regions: &'a Regions,
    pub teams: &'a Teams,
    /// The ways of wide groups.
    pub wide: &'a [Way],
}

impl Judge<'_> {
    /// By region, what is computed once for each column, if anything is.
    pub fn all(&self) -> Vec<Option<Column>> {
        let count = self.regions.regions.len();
        if !wide::has_short_rows(self.facts.body) {
            return vec![None; count];
        }
        let anywhere = self.steady_anywhere();
        // Those are not kept from region to region.
        let again = recompute::recomputed(self.facts.body, &self.facts.live[0]);
        let column = |region: usize| {
            let column = self.column(region, &anywhere, &again);
            let here = |at: usize| {
                let block = self.facts.control.graph.block_of[at];
                self.regions.of[block] == Some(region) && self.facts.ways[at] == Way::Vector
            };
            let vectors = column.steps.iter().filter(|at| here(**at)).count();
            let pays = vectors >= LEAST || wants_all() && !column.steady.is_empty();
            (pays && column.steady.len() <= MOST).then_some(column)
        };
        (0..count).map(column).collect()
    }

    fn steps(&self, region: usize) -> impl Iterator<Item = (usize, &Instruction)> {
        let of = &self.facts.control.graph.block_of;
        let steps = self.facts.body.steps.iter().zip(of).enumerate();
        steps.filter_map(move |(at, (step, block))| match step {
            Step::Instruction(step) if self.regions.of[*block] == Some(region) => Some((at, step)),
            _ => None,
        })
    }

    /// By register that is the same in all rows of a column wherever it is read, the step that
    /// computes it.
    fn steady_anywhere(&self) -> Vec<Option<usize>> {
        let count = self.facts.body.tables.registers.len();
        let mut writes = vec![0; count];
        let steps = || self.facts.body.steps.iter().enumerate();
        for (_, step) in steps() {
            if let Step::Instruction(step) = step {
                let written = step.writes.iter();
                written.for_each(|at| writes[at.0 as usize] += 1);
            }
        }
        let mut steady: Vec<Option<usize>> = vec![None; count];
        // In source order: most are written before they are read there, too.
        for (at, step) in steps() {
            if let Step::Instruction(step) = step
                && let [register] = step.writes[..]
                && writes[register.0 as usize] == 1
                && !self.facts.live[0].contains(&register)
                && self.is_straight(at, step)
                && step
                    .reads
                    .iter()
                    .all(|read| steady[read.0 as usize].is_some())
            {
                steady[register.0 as usize] = Some(at);
            }
        }
        steady
    }

    fn column(&self, region: usize, anywhere: &[Option<usize>], again: &[Option<usize>]) -> Column {
        let Facts { body, live, .. } = self.facts;
        let mut writes = vec![0; body.tables.registers.len()];
        for (_, step) in self.steps(region) {
            let written = step.writes.iter();
            written.for_each(|at| writes[at.0 as usize] += 1);
        }
        let written = |register: &RegId| writes[register.0 as usize] > 0;
        let anywhere_is = |register: &RegId| anywhere[register.0 as usize].is_some();
        let of_region = &self.regions.regions[region];
        let of_block = |register: &RegId| {
            self.teams.is_same(*register)
                && again[register.0 as usize].is_none()
                && !written(register)
                && of_region.loads.contains(register)
                && region != 0
        };
        let mut column = Column::default();
        let mut from_before: Vec<RegId> = vec![];
        for register in &of_region.loads {
            if anywhere_is(register) && !self.teams.is_same(*register) {
                column.steady.push(*register);
                from_before.push(*register);
            }
        }
        let mut here = vec![false; writes.len()];
        for (at, step) in self.steps(region) {
            let [register] = step.writes[..] else {
                continue;
            };
            let alone = writes[register.0 as usize] == 1;
            let first = alone && !live[of_region.head].contains(&register);
            let known = |read: &RegId| {
                here[read.0 as usize] || of_block(read) || anywhere_is(read) && !written(read)
            };
            let is_it = anywhere[register.0 as usize] == Some(at);
            if !(is_it || first && self.is_straight(at, step) && step.reads.iter().all(known)) {
                continue;
            }
            here[register.0 as usize] = true;
            if !column.steady.contains(&register) && !self.teams.is_same(register) {
                column.steady.push(register);
            }
            for read in &step.reads {
                match read {
                    read if here[read.0 as usize] => {}
                    read if of_block(read) => column.of_block.push(*read),
                    read => from_before.push(*read),
                }
            }
            column.steps.push(at);
        }
        column
            .steps
            .extend(recompute::steps(body, anywhere, &from_before));
        column.steps.sort_unstable();
        column.steps.dedup();
        column.of_block.sort_unstable_by_key(|register| register.0);
        column.of_block.dedup();
        column
    }

    /// Whether a step may be done for all groups that come to it, and others, of what is the same
    /// in all rows of a column, besides what it reads.
    fn is_straight(&self, at: usize, step: &Instruction) -> bool {
        let operation = &step.operation;
        let straight = |ways: &[Way]| matches!(ways[at], Way::Once | Way::Vector);
        let in_column = |special: &Special| {
            use Special::{Ctaid, Nctaid, Ntid, Tid};
            matches!(special, Tid(0) | Ntid(_) | Ctaid(_) | Nctaid(_))
        };
        step.guard.is_none()
            && (operation.pure() || operation.loads_parameter())
            && !operation.carry()
            && straight(self.facts.ways)
            && straight(self.wide)
            && step.specials.iter().all(in_column)
    }
}
