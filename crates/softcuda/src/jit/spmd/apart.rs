//! Branches from which the threads of a group go on one after the other to where they join, in code
//! of one thread that lies within the group's: where they go their ways by what they have loaded,
//! and access memory at any place, as along the rows of a sparse matrix.
//!
//! There, vectors gain nothing: their elements are put together and taken apart again for each
//! access.
//!
//! At other branches over few steps, they do so where they do not agree.

use super::classes::writes_count_up;
use super::control::compared;
use super::facts::Facts;
use super::teams::Teams;
use super::{Class, Regions, Way, in_rows, wants_all};
use crate::jit::decode::{Arg, Comparison, Flow, RegId};
use crate::jit::program::Instruction;

/// The most steps between a branch and where its ways join, if threads that do not agree go on one
/// after the other.
const MOST_STEPS: usize = 64;
/// The same of all such branches of a body.
const MOST_IN_ALL: usize = 192;

/// What threads do one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Apart {
    /// Whether or not they agree at the branch.
    pub always: bool,
    /// In source order.
    pub blocks: Vec<usize>,
    pub join: usize,
    /// Registers that they begin with.
    pub takes: Vec<RegId>,
    /// Registers that they leave where they join.
    pub leaves: Vec<RegId>,
}

/// What the branches are judged by.
pub(super) struct Judge<'a> {
    pub facts: Facts<'a>,
    pub regions: &'a Regions,
    pub teams: &'a Teams,
    /// By register that varies, how much more each thread's value is most likely.
    pub likely: &'a [Option<i64>],
    /// The registers as they differ where threads have never parted.
    pub alike: &'a [Class],
}

impl Judge<'_> {
    /// By block, what threads do one after the other from its end on.
    pub fn all(&self) -> Vec<Option<Apart>> {
        let count = self.facts.control.joins.len();
        let mut left = MOST_IN_ALL;
        let mut all: Vec<Option<Apart>> = vec![None; count];
        for branch in 0..count {
            let known = |apart: &Apart| apart.always && apart.blocks.contains(&branch);
            if all.iter().flatten().any(known) {
                continue;
            }
            let Some(apart) = self.apart(branch) else {
                continue;
            };
            if !apart.always {
                let steps = self.facts.steps_of(&apart.blocks).count();
                match left.checked_sub(steps).filter(|_| steps <= MOST_STEPS) {
                    Some(rest) => left = rest,
                    None => continue,
                }
            }
            all[branch] = Some(apart);
        }
        all
    }

    /// By block, whether groups never come to it but by masks.
    pub fn unreached(&self, apart: &[Option<Apart>]) -> Vec<bool> {
        let successors = &self.facts.control.graph.successors;
        let mut unreached = vec![true; successors.len()];
        let heads = self.regions.regions.iter().map(|region| region.head);
        let mut work: Vec<usize> = heads.collect();
        while let Some(block) = work.pop() {
            if std::mem::replace(&mut unreached[block], false) {
                match &apart[block] {
                    Some(apart) if apart.always => work.push(apart.join),
                    _ => work.extend(&successors[block]),
                }
            }
        }
        unreached
    }

    fn apart(&self, branch: usize) -> Option<Apart> {
        // Tests want both.
        if wants_all() && self.facts.body.steps.len() % 8 >= 4 {
            return None;
        }
        let join = self.facts.control.joins[branch]?;
        let (at, last) = self.facts.steps(branch).last()?;
        let (guard, _) = last.guard?;
        let jumps = matches!(last.operation.flow(), Flow::Jump(_));
        let varies = self.facts.class(guard) == Class::Varying;
        if !jumps || !varies || self.regions.decides(branch) {
            return None;
        }
        let mut blocks = self.facts.control.between(branch);
        blocks.sort_unstable();
        let region = self.regions.of[branch];
        let inside =
            |block: &usize| self.regions.of[*block] == region && !self.regions.decides(*block);
        if !blocks.iter().all(inside) {
            return None;
        }
        let steps = || self.facts.steps_of(&blocks);
        if !steps().all(|(_, step)| self.can(step)) {
            return None;
        }
        let (mut each, mut together) = (0, 0);
        for (at, step) in steps() {
            match self.facts.ways[at] {
                Way::Vector | Way::Row => together += 1,
                // Where threads agree, it is a row.
                Way::Each if self.is_likely_row(step) => together += 1,
                Way::Each if !writes_count_up(step, self.likely) => each += 1,
                _ => {}
            }
        }
        let pays = each > 0 && (2 * each > together || wants_all());
        let differs = |is: fn(&Self, RegId) -> bool| self.compares(at, guard, is);
        let by_thread = |l: &Self, register: RegId| l.alike[register.0 as usize] == Class::Varying;
        let by_block = |l: &Self, register| match l.facts.class(register) {
            Class::Affine(_) => false,
            _ => !l.teams.is_same(register),
        };
        let always = pays && !blocks.contains(&branch) && differs(by_thread);
        // Others agree but where a loop over memory ends.
        if !always && !differs(by_block) && !wants_all() {
            return None;
        }
        let successors = &self.facts.control.graph.successors[branch];
        // Who goes on by one way alone need not ask again which.
        let asks = !successors.contains(&join);
        let touches = |register: &RegId| {
            asks && *register == guard || steps().any(|(_, step)| step.touches(*register))
        };
        let mut takes: Vec<RegId> = successors
            .iter()
            .flat_map(|to| self.facts.live[*to].iter().copied())
            .chain([guard])
            .filter(|register| touches(register))
            .collect();
        takes.sort_unstable_by_key(|register| register.0);
        takes.dedup();
        let written = |register: &RegId| steps().any(|(_, step)| step.writes.contains(register));
        let leaves = self.facts.live[join].iter().copied().filter(written);
        Some(Apart {
            always,
            leaves: leaves.collect(),
            blocks,
            join,
            takes,
        })
    }

    /// Whether an access is to a row, most likely.
    fn is_likely_row(&self, step: &Instruction) -> bool {
        let Some(access) = step.operation.plain_access() else {
            return false;
        };
        let by = self.likely[access.base.0 as usize];
        by.is_some_and(|by| in_rows(by, access.size))
    }

    /// Whether a guard compares a register that `is` so.
    fn compares(&self, at: usize, guard: RegId, is: fn(&Self, RegId) -> bool) -> bool {
        let Some(Comparison { a, b, .. }) = compared(self.facts.body, at, guard) else {
            return false;
        };
        [a, b].iter().any(|arg| match arg {
            Arg::Reg(register) => is(self, *register),
            _ => false,
        })
    }

    /// Whether a step can be lowered for one thread of a group.
    fn can(&self, step: &Instruction) -> bool {
        let operation = &step.operation;
        match operation.flow() {
            Flow::Jump(_) => true,
            Flow::Next => {
                step.specials.is_empty()
                    && (operation.pure()
                        || operation.loads_parameter()
                        || operation.weak_access().is_some())
            }
            _ => false,
        }
    }
}
