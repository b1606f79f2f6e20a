//! What groups of one column of a block have in common: of threads' numbers, it hangs on `%tid.x`
//! alone. Where a block has rows, that is computed once for each column of a region; what is the
//! same in the whole block, once for the region.

use super::facts::Facts;
use super::teams::Teams;
use super::{Regions, Way, wants_all, wide};
use crate::jit::decode::{RegId, Special};
use crate::jit::program::{Body, Instruction, Step};
use crate::jit::recompute;

/// What is computed once for each column of a region.
#[derive(Clone, Debug, Default)]
pub(crate) struct Column {
    /// The steps that do it, in source order: of the region, and of earlier ones.
    pub steps: Vec<usize>,
    /// The registers that groups take instead of doing these steps: no path in the region to a
    /// reader goes past its step.
    pub steady: Vec<RegId>,
    /// Those of them that are the same in all threads of the block, and what the steps take of
    /// this kind that the region does not write. These may be read when the region is over.
    pub common: Vec<RegId>,
}

impl Column {
    /// Whether groups take a register instead of computing it.
    pub fn has(&self, register: RegId) -> bool {
        self.steady.contains(&register) || self.common.contains(&register)
    }

    /// Whether groups take what a step computes.
    pub fn does(&self, body: &Body, at: usize) -> bool {
        self.steps.binary_search(&at).is_ok() && writes_all(body, at, |register| self.has(register))
    }

    /// Whether one of the steps computes what is the same in all threads of the block.
    pub fn is_for_all(&self, body: &Body, at: usize) -> bool {
        writes_all(body, at, |register| self.common.contains(&register))
    }
}

/// How often these steps write each of so many registers.
fn writes_in<'a>(steps: impl Iterator<Item = &'a Instruction>, registers: usize) -> Vec<usize> {
    let mut writes = vec![0; registers];
    for register in steps.flat_map(|step| &step.writes) {
        writes[register.0 as usize] += 1;
    }
    writes
}

fn writes_all(body: &Body, at: usize, known: impl Fn(RegId) -> bool) -> bool {
    match &body.steps[at] {
        Step::Instruction(step) => step.writes.iter().all(|register| known(*register)),
        Step::Label(_) => false,
    }
}

/// The least steps in vectors that are worth a look at the table, and the most registers in it, of
/// one region and of all.
const LEAST: usize = 3;
const MOST: usize = 48;
const MOST_OF_ALL: usize = 160;

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
        let mut left = MOST_OF_ALL;
        let column = |region: usize| {
            let column = self.column(region, &anywhere, &again);
            let here = |at: usize| {
                let block = self.facts.control.graph.block_of[at];
                self.regions.of[block] == Some(region) && self.facts.ways[at] == Way::Vector
            };
            let vectors = column.steps.iter().filter(|at| here(**at)).count();
            let pays = vectors >= LEAST || wants_all() && !column.steps.is_empty();
            let count = column.steady.len() + column.common.len();
            let fits = column.steady.len() <= MOST && count <= left;
            (pays && fits).then(|| {
                left -= count;
                column
            })
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
        let steps = || {
            let steps = self.facts.body.steps.iter().enumerate();
            steps.filter_map(|(at, step)| match step {
                Step::Instruction(step) => Some((at, step)),
                Step::Label(_) => None,
            })
        };
        let writes = writes_in(steps().map(|(_, step)| step), count);
        let mut steady: Vec<Option<usize>> = vec![None; count];
        // In source order: most are written before they are read there, too.
        for (at, step) in steps() {
            if let [register] = step.writes[..]
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
        let steps = self.steps(region).map(|(_, step)| step);
        let writes = writes_in(steps, body.tables.registers.len());
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
        let add = |column: &mut Column, register: RegId| {
            let same = self.teams.is_same(register);
            let list = if same {
                &mut column.common
            } else {
                &mut column.steady
            };
            if !list.contains(&register) {
                list.push(register);
            }
        };
        for register in &of_region.loads {
            if anywhere_is(register) {
                add(&mut column, *register);
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
            add(&mut column, register);
            for read in &step.reads {
                match read {
                    read if here[read.0 as usize] => {}
                    read if of_block(read) => add(&mut column, *read),
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
        // Steps for columns read what is the same in all threads where it lies for all.
        for at in column.steps.clone() {
            if let Step::Instruction(step) = &body.steps[at] {
                let same = step.writes.iter();
                let same = same.filter(|register| self.teams.is_same(**register));
                same.for_each(|register| add(&mut column, *register));
            }
        }
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
