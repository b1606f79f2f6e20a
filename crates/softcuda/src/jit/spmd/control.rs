//! Control flow as the vector form sees it: blocks, and where ways that part join again.

use crate::jit::analysis::Graph;
use crate::jit::decode::{Arg, Comparison, Flow, RegId};
use crate::jit::program::{Body, Instruction, Step};

/// Blocks of a body, and where their ways join.
#[derive(Debug)]
pub(crate) struct Control {
    /// The blocks. Where threads may have to go on by themselves, one begins.
    pub graph: Graph,
    /// By block, the first step.
    pub first: Vec<usize>,
    /// By block, the nearest one that all ways from its end come to; `None` where that is the end
    /// of the thread.
    pub joins: Vec<Option<usize>>,
}

impl Control {
    /// The blocks of a body. Threads may have to go on by themselves from the steps that `parts`
    /// names.
    pub fn of(body: &Body, parts: impl Fn(usize) -> bool) -> Control {
        let waits = |at: usize| match &body.steps[at] {
            Step::Instruction(step) => step.operation.waits(),
            Step::Label(_) => false,
        };
        let any = (0..body.steps.len()).any(waits);
        let cuts = |at: usize| match &body.steps[at] {
            Step::Instruction(instruction) => {
                let operation = &instruction.operation;
                // Regions begin at waits, and end at branches.
                let region = any
                    && (waits(at)
                        || at > 0 && waits(at - 1)
                        || instruction.guard.is_some() && operation.flow() != Flow::Next);
                region || parts(at) || operation.faults()
            }
            Step::Label(_) => false,
        };
        let graph = Graph::with_cuts(body, cuts);
        let count = graph.successors.len();
        let mut first = vec![body.steps.len(); count];
        for (at, block) in graph.block_of.iter().enumerate().rev() {
            first[*block] = at;
        }
        // The end of the thread is one block more, which those lead to that leave, and those that
        // lead nowhere else.
        let end = count;
        let mut successors = graph.successors.clone();
        for (at, step) in body.steps.iter().enumerate() {
            if let Step::Instruction(instruction) = step
                && instruction.operation.flow() == Flow::Leave
            {
                successors[graph.block_of[at]].push(end);
            }
        }
        if let Some(last) = count.checked_sub(1)
            && !successors[last].contains(&end)
        {
            successors[last].push(end);
        }
        successors.push(vec![]);
        let joins = post_dominators(&successors, end);
        Control {
            graph,
            first,
            joins,
        }
    }

    /// The block of a step; behind the last one, the last.
    pub fn block_at(&self, at: usize) -> usize {
        let last = self.first.len() - 1;
        self.graph.block_of.get(at).copied().unwrap_or(last)
    }

    /// The block that begins at a step, or where the last step ends.
    pub fn begins(&self, at: usize) -> Option<usize> {
        let block = self.block_at(at);
        (self.first[block] == at).then_some(block)
    }

    /// The blocks that threads may go through between the end of `from` and where they join.
    pub fn between(&self, from: usize) -> Vec<usize> {
        self.on_the_way(from, self.joins[from])
    }

    /// The blocks on the ways from the end of a block to another, or to the end of the thread.
    pub fn on_the_way(&self, from: usize, to: Option<usize>) -> Vec<usize> {
        let mut seen = vec![false; self.graph.successors.len()];
        let mut work: Vec<usize> = self.graph.successors[from].clone();
        let mut found = vec![];
        while let Some(block) = work.pop() {
            if Some(block) == to || std::mem::replace(&mut seen[block], true) {
                continue;
            }
            found.push(block);
            work.extend(&self.graph.successors[block]);
        }
        found
    }

    /// The instructions of a block, with their places in the body.
    pub fn steps<'a>(
        &'a self,
        body: &'a Body,
        block: usize,
    ) -> impl Iterator<Item = (usize, &'a Instruction)> {
        let of = &self.graph.block_of;
        let steps = (self.first[block]..of.len()).take_while(move |at| of[*at] == block);
        steps.filter_map(|at| match &body.steps[at] {
            Step::Instruction(instruction) => Some((at, instruction)),
            Step::Label(_) => None,
        })
    }
}

/// By block before `end`, its immediate post-dominator. `None` where that is `end`, or where no way
/// leads to the end.
pub(in crate::jit) fn post_dominators(successors: &[Vec<usize>], end: usize) -> Vec<Option<usize>> {
    let joins = dominators(successors, end).into_iter().take(end);
    joins.map(|join| join.filter(|join| *join != end)).collect()
}

/// By block, its immediate post-dominator, of which the last is `end`; or, of a graph given by the
/// blocks before each, its immediate dominator, of which the last is the first block. The iteration
/// of Cooper, Harvey and Kennedy. `None` where no way leads there.
pub(in crate::jit) fn dominators(successors: &[Vec<usize>], end: usize) -> Vec<Option<usize>> {
    const NONE: usize = usize::MAX;
    let count = successors.len();
    let mut predecessors = vec![vec![]; count];
    for (from, list) in successors.iter().enumerate() {
        for to in list {
            predecessors[*to].push(from);
        }
    }
    // Post-order of the reversed graph, from the end.
    let mut order = vec![];
    let mut seen = vec![false; count];
    seen[end] = true;
    let mut path = vec![(end, 0)];
    while let Some((at, edge)) = path.last_mut() {
        match predecessors[*at].get(*edge) {
            Some(next) => {
                *edge += 1;
                if !std::mem::replace(&mut seen[*next], true) {
                    path.push((*next, 0));
                }
            }
            None => {
                order.push(*at);
                path.pop();
            }
        }
    }
    let mut number = vec![0; count];
    for (at, block) in order.iter().enumerate() {
        number[*block] = at;
    }
    let mut dominator = vec![NONE; count];
    dominator[end] = end;
    let mut changed = true;
    while changed {
        changed = false;
        for block in order.iter().rev().copied().filter(|block| *block != end) {
            let mut new = NONE;
            for next in successors[block].iter().copied() {
                if dominator[next] == NONE {
                    continue;
                }
                if new == NONE {
                    new = next;
                    continue;
                }
                let (mut a, mut b) = (new, next);
                while a != b {
                    while number[a] < number[b] {
                        a = dominator[a];
                    }
                    while number[b] < number[a] {
                        b = dominator[b];
                    }
                }
                new = a;
            }
            if dominator[block] != new {
                dominator[block] = new;
                changed = true;
            }
        }
    }
    let known = |block| Some(block).filter(|block| *block != NONE);
    dominator.into_iter().map(known).collect()
}

/// What the guard of a step says, as far as it is a comparison right before, of what has not
/// been written since. Behind a wait, what was compared may not be kept.
pub(crate) fn compared(body: &Body, at: usize, guard: RegId) -> Option<Comparison<'_>> {
    let mut written: Vec<RegId> = vec![];
    for step in body.steps[..at].iter().rev() {
        let Step::Instruction(step) = step else {
            return None;
        };
        if step.operation.flow() != Flow::Next || step.operation.waits() {
            return None;
        }
        if step.writes.contains(&guard) {
            let comparison = step.operation.comparison()?;
            let stays = |arg: &Arg| match arg {
                Arg::Reg(id) => !written.contains(id),
                arg => matches!(arg, Arg::Imm(_)),
            };
            let is_it = step.guard.is_none() && stays(comparison.a) && stays(comparison.b);
            return is_it.then_some(comparison);
        }
        written.extend(&step.writes);
    }
    None
}
