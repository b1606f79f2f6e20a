//! Loops by a number that counts up from thread to thread, up to one that is the same in all:
//! `for (i = thread; i < n; i += threads)`.

use super::Class;
use super::control::compared;
use super::facts::Facts;
use crate::jit::decode::{Arg, Comparison, Flow};

/// Such a loop.
pub(super) struct Counting {
    /// The block where a turn begins.
    pub head: usize,
    /// The block that ends with the branch back to it, and behind which all go on.
    pub branch: usize,
    pub blocks: Vec<usize>,
}

impl<'a> Facts<'a> {
    /// The loop that a block leads back to the head of, if nothing in it waits or ends a thread.
    pub fn counting_loop(self, branch: usize) -> Option<Counting> {
        let successors = &self.control.graph.successors;
        if !self.counts(branch, self.classes) {
            return None;
        }
        let mut back = successors[branch].iter().filter(|to| **to <= branch);
        let (head, join) = (*back.next()?, self.control.joins[branch]?);
        let blocks = self.control.between(branch);
        let is_loop = head > 0
            && join == branch + 1
            && back.next().is_none()
            && blocks.contains(&head)
            && blocks.contains(&branch);
        let has = |block: &usize| blocks.contains(block);
        // It is entered at its head alone, by threads that come in or from its branch.
        let entered = |(from, to): (usize, &Vec<usize>)| {
            to.iter().filter(|to| has(to)).all(|to| match has(&from) {
                true => *to != head || from == branch,
                false => *to == head,
            })
        };
        let stays = self.steps_of(&blocks).all(|(_, step)| {
            let operation = &step.operation;
            let flows = matches!(operation.flow(), Flow::Next | Flow::Jump(_));
            flows && !operation.waits() && !operation.polls() && !operation.faults()
        });
        let is_loop = is_loop && stays && successors.iter().enumerate().all(entered);
        is_loop.then_some(Counting {
            head,
            branch,
            blocks,
        })
    }

    /// Whether a block ends with a branch by a number that counts up from thread to thread, and is
    /// compared with one that is the same in all: threads mostly go round as often as each other.
    pub fn counts(self, branch: usize, classes: &[Class]) -> bool {
        let class = |arg: &Arg| match arg {
            Arg::Reg(register) => classes[register.0 as usize],
            _ => Class::Uniform,
        };
        self.compares(branch).is_some_and(|[a, b]| {
            matches!(
                (class(a), class(b)),
                (Class::Affine(_), Class::Uniform) | (Class::Uniform, Class::Affine(_))
            )
        })
    }

    /// What the branch that a block ends with compares.
    pub fn compares(self, block: usize) -> Option<[&'a Arg; 2]> {
        let (at, last) = self.steps(block).last()?;
        let (guard, _) = last
            .guard
            .filter(|_| matches!(last.operation.flow(), Flow::Jump(_)))?;
        let Comparison { a, b, .. } = compared(self.body, at, guard)?;
        Some([a, b])
    }
}
