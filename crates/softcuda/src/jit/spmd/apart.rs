//! Branches from which the threads of a group go on one after the other to where they join, in code
//! of one thread that lies within the group's: where they go their ways by what they have loaded, and
//! access memory at any place, as along the rows of a sparse matrix.
//!
//! There, vectors gain nothing: their elements are put together and taken apart again for each access.

use super::control::{Control, compared};
use super::{Class, Regions, Way};
use crate::jit::decode::{Arg, Flow, RegId};
use crate::jit::program::{Body, Instruction, Step};

/// What threads do one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Apart {
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
    pub body: &'a Body,
    pub control: &'a Control,
    pub classes: &'a [Class],
    pub ways: &'a [Way],
    pub live: &'a [Vec<RegId>],
    pub regions: &'a Regions,
}

impl Judge<'_> {
    /// By block, what threads do one after the other from its end on.
    pub fn all(&self) -> Vec<Option<Apart>> {
        let count = self.control.joins.len();
        let mut all: Vec<Option<Apart>> = vec![None; count];
        for branch in 0..count {
            let known = |apart: &Apart| apart.blocks.contains(&branch);
            if !all.iter().flatten().any(known) {
                all[branch] = self.apart(branch);
            }
        }
        all
    }

    /// By block, whether groups never come to it.
    pub fn unreached(&self, apart: &[Option<Apart>]) -> Vec<bool> {
        let successors = &self.control.graph.successors;
        let mut unreached = vec![true; successors.len()];
        let heads = self.regions.regions.iter().map(|region| region.head);
        let mut work: Vec<usize> = heads.collect();
        while let Some(block) = work.pop() {
            if std::mem::replace(&mut unreached[block], false) {
                match &apart[block] {
                    Some(apart) => work.push(apart.join),
                    None => work.extend(&successors[block]),
                }
            }
        }
        // Behind the last step, there is always somebody.
        if let Some(last) = unreached.last_mut() {
            *last = false;
        }
        unreached
    }

    fn steps(&self, block: usize) -> impl Iterator<Item = (usize, &Instruction)> {
        let of = &self.control.graph.block_of;
        let steps = (self.control.first[block]..of.len()).take_while(move |at| of[*at] == block);
        steps.filter_map(|at| match &self.body.steps[at] {
            Step::Instruction(instruction) => Some((at, instruction)),
            Step::Label(_) => None,
        })
    }

    fn apart(&self, branch: usize) -> Option<Apart> {
        // Tests want both.
        if cfg!(test) && self.body.steps.len() % 8 >= 4 {
            return None;
        }
        let join = self.control.joins[branch]?;
        let (at, last) = self.steps(branch).last()?;
        let (guard, _) = last.guard?;
        let jumps = matches!(last.operation.flow(), Flow::Jump(_));
        let loaded = |arg: &Arg| match arg {
            Arg::Reg(register) => self.classes[register.0 as usize] == Class::Varying,
            _ => false,
        };
        let (_, a, b) = compared(self.body, at, guard)?;
        let varies = self.classes[guard.0 as usize] == Class::Varying && (loaded(&a) || loaded(&b));
        if !jumps || !varies || self.regions.decides(branch) {
            return None;
        }
        let mut blocks = self.control.between(branch);
        blocks.sort_unstable();
        let region = self.regions.of[branch];
        let inside =
            |block: &usize| self.regions.of[*block] == region && !self.regions.decides(*block);
        if blocks.contains(&branch) || !blocks.iter().all(inside) {
            return None;
        }
        let steps = || blocks.iter().flat_map(|block| self.steps(*block));
        if !steps().all(|(_, step)| self.can(step)) {
            return None;
        }
        let each = |way: &Way| *way == Way::Each;
        let together = |way: &Way| matches!(way, Way::Vector | Way::Row);
        let count =
            |is: &dyn Fn(&Way) -> bool| steps().filter(|(at, _)| is(&self.ways[*at])).count();
        let (each, together) = (count(&each), count(&together));
        if each == 0 || each <= together && !cfg!(test) {
            return None;
        }
        let touches = |register: &RegId| {
            *register == guard
                || steps().any(|(_, step)| {
                    let is_guard = |(guard, _)| guard == *register;
                    step.reads.contains(register)
                        || step.writes.contains(register)
                        || step.guard.is_some_and(is_guard)
                })
        };
        let successors = self.control.graph.successors[branch].iter();
        let mut takes: Vec<RegId> = successors
            .flat_map(|to| self.live[*to].iter().copied())
            .chain([guard])
            .filter(|register| touches(register))
            .collect();
        takes.sort_unstable_by_key(|register| register.0);
        takes.dedup();
        let leaves = self.live[join].iter().copied().filter(|register| {
            self.classes[register.0 as usize] == Class::Varying
                && steps().any(|(_, step)| step.writes.contains(register))
        });
        Some(Apart {
            leaves: leaves.collect(),
            blocks,
            join,
            takes,
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
