//! Branches that a group takes by masks: where its threads do not agree, the group does all steps
//! to where the ways join, each for those threads alone that come to it.
//!
//! That is cheaper than letting threads go on one by one where there are few steps, and no loop.

use super::control::Control;
use super::regions::Regions;
use super::{Class, Way};
use crate::jit::decode::{Flow, RegId};
use crate::jit::program::{Body, Instruction, Step};

/// The most steps between a branch and where its ways join.
const MOST_STEPS: usize = 48;
/// The most steps of a body that are done so, counted for each branch.
const MOST_IN_ALL: usize = 256;
/// The most blocks between a branch and where its ways join.
const MOST_BLOCKS: usize = 16;

/// What lies between a branch and where its ways join.
#[derive(Clone, Debug)]
pub(crate) struct Masked {
    /// In source order, in which control goes through them.
    pub blocks: Vec<usize>,
    /// By block of these, whether all ways to the later ones go through it.
    pub gates: Vec<bool>,
    /// By block of these, the registers that it writes and that threads elsewhere still need.
    pub shared: Vec<Vec<RegId>>,
    pub join: usize,
}

/// What the branches are judged by.
pub(super) struct Judge<'a> {
    pub body: &'a Body,
    pub control: &'a Control,
    pub classes: &'a [Class],
    pub ways: &'a [Way],
    pub live: &'a [Vec<RegId>],
    pub regions: Option<&'a Regions>,
}

impl Judge<'_> {
    /// By block, what is done by masks if threads part at its end.
    pub fn all(&self) -> Vec<Option<Masked>> {
        let mut left = MOST_IN_ALL;
        let branches = (0..self.control.joins.len()).map(|block| {
            let masked = self.masked(block)?;
            let steps = masked.blocks.iter().map(|block| self.steps(*block).count());
            left = left.checked_sub(steps.sum())?;
            Some(masked)
        });
        branches.collect()
    }

    fn steps(&self, block: usize) -> impl Iterator<Item = (usize, &Instruction)> {
        let of = &self.control.graph.block_of;
        let steps = (self.control.first[block]..of.len()).take_while(move |at| of[*at] == block);
        steps.filter_map(|at| match &self.body.steps[at] {
            Step::Instruction(instruction) => Some((at, instruction)),
            Step::Label(_) => None,
        })
    }

    fn masked(&self, branch: usize) -> Option<Masked> {
        let join = self.control.joins[branch]?;
        let (_, last) = self.steps(branch).last()?;
        let (guard, _) = last.guard?;
        let varies = self.classes[guard.0 as usize] == Class::Varying;
        let jumps = matches!(last.operation.flow(), Flow::Jump(_));
        let decides = self.regions.is_some_and(|all| all.decides(branch));
        if !varies || !jumps || decides {
            return None;
        }
        let mut blocks = self.control.between(branch);
        blocks.sort_unstable();
        if blocks.len() > MOST_BLOCKS {
            return None;
        }
        let successors = &self.control.graph.successors;
        let onwards = |block: &usize| {
            let one_region = self
                .regions
                .is_none_or(|all| all.of[*block] == all.of[branch]);
            one_region && *block > branch && successors[*block].iter().all(|to| to > block)
        };
        let steps: usize = blocks.iter().map(|block| self.steps(*block).count()).sum();
        if steps > MOST_STEPS || !blocks.iter().all(onwards) || join <= branch {
            return None;
        }
        if !blocks
            .iter()
            .all(|block| self.steps(*block).all(|(at, step)| self.can(at, step)))
        {
            return None;
        }
        let passed = self.passed(branch, &blocks);
        let mut shared = vec![];
        for (number, block) in blocks.iter().enumerate() {
            let elsewhere = |register: &RegId| {
                // Threads that did not come through the block.
                let others = blocks.iter().zip(&passed);
                let mut others = others.filter(|(_, passed)| *passed >> number & 1 == 0);
                self.live[join].contains(register)
                    || others.any(|(other, _)| self.live[*other].contains(register))
            };
            let mut needed: Vec<RegId> = vec![];
            for (_, step) in self.steps(*block) {
                for register in step.writes.iter().filter(|register| elsewhere(register)) {
                    if self.classes[register.0 as usize] != Class::Varying {
                        return None; // it has one place for all threads
                    }
                    if !needed.contains(register) {
                        needed.push(*register);
                    }
                }
            }
            shared.push(needed);
        }
        let gate = |number: usize| passed[number..].iter().all(|all| all >> number & 1 != 0);
        Some(Masked {
            gates: (0..blocks.len()).map(gate).collect(),
            blocks,
            shared,
            join,
        })
    }

    /// Whether a step can be done for some threads of a group.
    fn can(&self, at: usize, step: &Instruction) -> bool {
        let operation = &step.operation;
        let narrow = |register: &RegId| self.body.tables.registers[register.0 as usize].size() <= 8;
        let jumps = matches!(operation.flow(), Flow::Next | Flow::Jump(_));
        if !jumps || operation.waits() || operation.polls() || operation.faults() {
            return false;
        }
        if operation.flow() != Flow::Next {
            return true;
        }
        let free = operation.pure() || operation.loads_parameter();
        step.guard.is_none()
            && step.writes.iter().all(narrow)
            // What accesses memory once for all may fault in a thread that does not come here.
            && match self.ways[at] {
                Way::Once | Way::Widen { .. } | Way::Vector => free,
                Way::Row | Way::Each => true,
                Way::Control | Way::Wait => false,
            }
    }

    /// For each block, a bit for each of the blocks that all ways to it from the branch go through,
    /// itself included.
    fn passed(&self, branch: usize, blocks: &[usize]) -> Vec<u32> {
        let successors = &self.control.graph.successors;
        let mut passed = vec![u32::MAX; blocks.len()];
        for (number, block) in blocks.iter().enumerate() {
            let from = |number: usize| successors[blocks[number]].contains(block);
            let before = (0..number).filter(|before| from(*before));
            let ways = before
                .map(|before| passed[before])
                .fold(u32::MAX, |all, way| all & way);
            let ways = if successors[branch].contains(block) {
                0
            } else {
                ways
            };
            passed[number] = ways | 1 << number;
        }
        passed
    }
}
