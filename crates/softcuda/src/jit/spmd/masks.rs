//! Branches that a group takes by masks: where its threads do not agree, the group does all steps
//! to where the ways join, each for those threads alone that come to it. Loops on the way are done
//! for as long as a thread is in them.
//!
//! That is cheaper than letting threads go on one by one where there are few steps.

use super::alone::is_alone;
use super::facts::Facts;
use super::regions::Regions;
use super::{Class, Way, wants_all};
use crate::jit::decode::{Flow, Operation, RegId};
use crate::jit::program::Instruction;

/// The most steps between a branch and where its ways join, but for those that are done once.
const MOST_STEPS: usize = 64;
/// The most steps of a body that are done so, counted for each branch.
const MOST_IN_ALL: usize = 256;
/// The most blocks between a branch and where its ways join.
const MOST_BLOCKS: usize = 16;

/// What lies between a branch and where its ways join.
#[derive(Clone, Debug)]
pub(crate) struct Masked {
    /// The branch where threads part. With loops, also other branches between lead in.
    pub branch: usize,
    /// In source order, in which control goes through them, but for jumps back.
    pub blocks: Vec<usize>,
    /// Those that are loops by themselves or with others, as numbers in `blocks`.
    pub loops: Vec<Loop>,
    /// By block of these, whether all ways to the later ones go through it, once.
    pub gates: Vec<bool>,
    /// By block of these, the registers that it writes and that threads elsewhere still need.
    pub shared: Vec<Vec<RegId>>,
    pub join: usize,
}

/// Blocks that are done again as long as threads come back to the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loop {
    /// The first.
    pub head: usize,
    /// The last that leads back.
    pub last: usize,
}

impl Loop {
    fn has(&self, number: usize) -> bool {
        (self.head..=self.last).contains(&number)
    }
}

/// What the branches are judged by.
pub(super) struct Judge<'a> {
    pub facts: Facts<'a>,
    pub regions: Option<&'a Regions>,
}

impl Judge<'_> {
    /// By block, what is done by masks if threads part at its end.
    pub fn all(&self) -> Vec<Option<Masked>> {
        let mut left = MOST_IN_ALL;
        let count = self.facts.control.joins.len();
        let mut all: Vec<Option<Masked>> = vec![None; count];
        for branch in 0..count {
            if all[branch].is_some() {
                continue;
            }
            let Some(masked) = self.masked(branch, &[]) else {
                continue;
            };
            // Loops are there once, whichever branch within leads to them.
            let inside = |other: &usize| {
                let loops = self.masked(*other, &[]).is_some_and(|inner| {
                    let has = |block: &usize| masked.blocks.contains(block);
                    !inner.loops.is_empty() && inner.blocks.iter().all(has)
                });
                *other != branch && loops
            };
            let inner: Vec<usize> = masked.blocks.iter().copied().filter(inside).collect();
            let shared = match inner.is_empty() {
                true => None,
                false => self.masked(branch, &inner),
            };
            let inner = if shared.is_some() { inner } else { vec![] };
            let masked = shared.unwrap_or(masked);
            let steps = self.each(&masked.blocks);
            let Some(rest) = left.checked_sub(steps) else {
                continue;
            };
            left = rest;
            for branch in inner.into_iter().chain([branch]) {
                all[branch] = Some(masked.clone());
            }
        }
        all
    }

    /// What is done by masks if threads part at the end of a block, or of some in between.
    fn masked(&self, branch: usize, inner: &[usize]) -> Option<Masked> {
        let join = self.facts.control.joins[branch]?;
        let (_, last) = self.facts.steps(branch).last()?;
        let (guard, _) = last.guard?;
        let varies = self.facts.class(guard) == Class::Varying;
        let jumps = matches!(last.operation.flow(), Flow::Jump(_));
        let decides = self.regions.is_some_and(|all| all.decides(branch));
        if !varies || !jumps || decides {
            return None;
        }
        let mut blocks = self.facts.control.between(branch);
        blocks.sort_unstable();
        if blocks.len() > MOST_BLOCKS {
            return None;
        }
        let one_region = |block: &usize| {
            self.regions
                .is_none_or(|all| all.of[*block] == all.of[branch] && !all.decides(*block))
        };
        let steps = || self.facts.steps_of(&blocks);
        if self.each(&blocks) > MOST_STEPS || !blocks.iter().all(one_region) {
            return None;
        }
        if !steps().all(|(at, step)| self.can(at, step)) {
            return None;
        }
        let ways = Ways::of(&self.facts.control.graph.successors, branch, inner, blocks);
        let in_loops = ways
            .loops
            .iter()
            .map(|turns| &ways.blocks[turns.head..=turns.last]);
        if !in_loops.into_iter().all(|blocks| self.pays(blocks)) {
            return None;
        }
        let mut shared = vec![];
        for (number, block) in ways.blocks.iter().enumerate() {
            let others = ways.others(number);
            let elsewhere = |register: &RegId| {
                let mut others = others.iter();
                self.facts.live[join].contains(register)
                    || others.any(|other| self.facts.live[ways.blocks[*other]].contains(register))
            };
            let mut needed: Vec<RegId> = vec![];
            for (_, step) in self.facts.steps(*block) {
                for register in step.writes.iter().filter(|register| elsewhere(register)) {
                    if self.facts.class(*register) != Class::Varying {
                        return None; // it has one place for all threads
                    }
                    if !needed.contains(register) {
                        needed.push(*register);
                    }
                }
            }
            shared.push(needed);
        }
        Some(Masked {
            branch,
            gates: (0..ways.blocks.len()).map(|n| ways.is_gate(n)).collect(),
            blocks: ways.blocks,
            loops: ways.loops,
            shared,
            join,
        })
    }

    /// How many steps of blocks are not done once for all threads.
    fn each(&self, blocks: &[usize]) -> usize {
        let steps = self.facts.steps_of(blocks);
        let each = steps.filter(|(at, _)| !matches!(self.facts.ways[*at], Way::Once));
        each.count()
    }

    /// Whether a loop of these blocks is better done by all threads as long as one is in it than by
    /// each by itself: where all is done in vectors. Loops over memory mostly end for all threads
    /// at once, and would only be there twice.
    fn pays(&self, blocks: &[usize]) -> bool {
        let mut steps = self.facts.steps_of(blocks);
        let in_vectors =
            |(at, _)| matches!(self.facts.ways[at], Way::Vector | Way::Once | Way::Control);
        // Tests want all that can be.
        wants_all() || steps.all(in_vectors)
    }

    /// Whether a step can be done for some threads of a group.
    fn can(&self, at: usize, step: &Instruction) -> bool {
        let operation = &step.operation;
        let narrow =
            |register: &RegId| self.facts.body.tables.registers[register.0 as usize].size() <= 8;
        let jumps = matches!(operation.flow(), Flow::Next | Flow::Jump(_));
        if !jumps || is_alone(step) || operation.waits() || operation.polls() || operation.faults()
        {
            return false;
        }
        if operation.flow() != Flow::Next {
            return true;
        }
        let free = operation.pure() || operation.loads_parameter();
        step.guard.is_none()
            && step.writes.iter().all(narrow)
            && match self.facts.ways[at] {
                // One of those that come here accesses memory for all; where threads wait, each has
                // a context, which says of a fault whose it is.
                Way::Once => free || self.regions.is_some() && by_first(&**operation),
                Way::Widen { .. } | Way::Vector => free,
                Way::Row | Way::Each => true,
                // What is assumed is so of all threads, or of none that is here.
                Way::Assume { .. } | Way::Same(_) | Way::Control | Way::Wait => false,
            }
    }
}

/// Whether what is done once is done by the first of the threads that are there: it may fault.
pub(crate) fn by_first(operation: &dyn Operation) -> bool {
    let is_weak = operation.weak_access().is_some() || operation.loads_constant();
    is_weak && !operation.loads_parameter()
}

/// The ways from a branch to where they join.
struct Ways {
    blocks: Vec<usize>,
    /// Where threads go from each, and from branches where they part, as numbers.
    next: Vec<Vec<usize>>,
    first: Vec<usize>,
    loops: Vec<Loop>,
}

impl Ways {
    fn of(successors: &[Vec<usize>], branch: usize, inner: &[usize], blocks: Vec<usize>) -> Ways {
        let numbers = |block: usize| -> Vec<usize> {
            let number = |to: &usize| blocks.binary_search(to).ok();
            successors[block].iter().filter_map(number).collect()
        };
        let next: Vec<Vec<usize>> = blocks.iter().map(|block| numbers(*block)).collect();
        let mut loops: Vec<Loop> = vec![];
        for (last, to) in next.iter().enumerate() {
            for head in to.iter().copied().filter(|to| *to <= last) {
                match loops.iter_mut().find(|known| known.head == head) {
                    Some(known) => known.last = last,
                    None => loops.push(Loop { head, last }),
                }
            }
        }
        Ways {
            first: [branch]
                .iter()
                .chain(inner)
                .flat_map(|from| numbers(*from))
                .collect(),
            next,
            blocks,
            loops,
        }
    }

    /// The blocks where threads may stand while others do this one: those do later blocks, that
    /// they came to without this one in this turn or left its loop to, or began a turn already.
    fn others(&self, number: usize) -> Vec<usize> {
        let around = self.loops.iter().filter(|turns| turns.has(number));
        let mut begin = self.first.clone();
        begin.extend(around.clone().map(|turns| turns.head));
        let past = self.past(number, begin);
        let leads_back = |head: usize| {
            let before = &self.next[..number];
            let mut before = before.iter().enumerate().skip(head);
            before.any(|(_, to)| to.contains(&head))
        };
        let others = (0..self.blocks.len()).filter(|other| {
            let later = *other > number && past[*other];
            let left = around.clone().any(|turns| *other > turns.last);
            let again = around
                .clone()
                .any(|turns| turns.head == *other && *other != number && leads_back(*other));
            later || left || again
        });
        others.collect()
    }

    /// Whether all threads that come to later blocks come through this one, and that once.
    fn is_gate(&self, number: usize) -> bool {
        let past = self.past(number, self.first.clone());
        let others = past[number + 1..].contains(&true);
        !others && !self.loops.iter().any(|turns| turns.has(number))
    }

    /// Where threads come to from some blocks without this one.
    fn past(&self, number: usize, mut work: Vec<usize>) -> Vec<bool> {
        let mut seen = vec![false; self.blocks.len()];
        while let Some(block) = work.pop() {
            if block != number && !std::mem::replace(&mut seen[block], true) {
                work.extend(&self.next[block]);
            }
        }
        seen
    }
}
