//! Whether a thread may spin in a body: go round a cycle until another thread has written
//! something.
//!
//! A cycle that polls is no wait where what threads may see of each other does not decide how often
//! it goes round: then it ends, or not, as if the thread were alone. So for each component of the
//! control flow that polls, this follows what is not computed from parameters and constants alone
//! to the branches that it decides: through registers, and to all that is done under a branch that
//! it decides, up to where the branch's ways join. If none of these branches decides whether the
//! thread comes back to it, nobody spins.
//!
//! A retry is left out of this: a compare-and-swap that is done again if it failed, then expecting
//! what it found. Alone, a thread fails once, as nobody else writes; among others, who
//! fails has made way for one that did not. So whoever runs gets on, and no thread needs another's
//! turn. A lock is none: it expects the same number each time.

use std::ops::Range;

use smallvec::SmallVec;

use super::analysis::Graph;
use super::decode::{Arg, Callee, Flow, RegId, Swap};
use super::program::{Body, Instruction, Step};
use super::spmd::post_dominators;

/// A body of more blocks is not looked at: whoever polls in a cycle spins.
const MOST_BLOCKS: usize = 1024;

/// Whether a thread may spin in a body.
pub(crate) fn spins(body: &Body) -> bool {
    if !instructions(body, 0..body.steps.len()).any(|(_, step)| step.operation.polls()) {
        return false;
    }
    let graph = Graph::of(body);
    let components = graph.components();
    let polls = |component: &&Vec<usize>| {
        let mut blocks = component.iter();
        blocks.any(|block| polls(body, graph.steps(*block)))
    };
    let mut waiting = components.iter().filter(polls).peekable();
    if waiting.peek().is_none() {
        return false;
    }
    if graph.successors.len() > MOST_BLOCKS {
        return true;
    }
    let ways = Ways::of(body, &graph);
    waiting.any(|component| Cycle::of(body, &graph, &ways, component).spins())
}

fn polls(body: &Body, steps: Range<usize>) -> bool {
    instructions(body, steps).any(|(_, step)| step.operation.polls())
}

/// The instructions among some steps, and where they are.
fn instructions(
    body: &Body,
    steps: Range<usize>,
) -> impl DoubleEndedIterator<Item = (usize, &Instruction)> {
    steps.filter_map(|at| match &body.steps[at] {
        Step::Instruction(instruction) => Some((at, instruction)),
        Step::Label(_) => None,
    })
}

/// Where control may go from each block, the end of the thread included.
struct Ways {
    /// By block; the end is one more.
    successors: Vec<SmallVec<[usize; 2]>>,
    /// By block, where all ways from its end join.
    joins: Vec<Option<usize>>,
}

impl Ways {
    fn of(body: &Body, graph: &Graph) -> Ways {
        let end = graph.successors.len();
        let leaves = |block: usize| {
            let last = instructions(body, graph.steps(block)).next_back();
            let leaves = last.is_some_and(|(_, step)| step.operation.flow() == Flow::Leave);
            leaves || graph.successors[block].is_empty()
        };
        let mut lists: Vec<Vec<usize>> = graph.successors.clone();
        for (block, list) in lists.iter_mut().enumerate() {
            if leaves(block) {
                list.push(end);
            }
            list.sort_unstable();
            list.dedup();
        }
        lists.push(vec![]);
        Ways {
            joins: post_dominators(&lists, end),
            successors: lists.into_iter().map(SmallVec::from_vec).collect(),
        }
    }
}

/// A component of the control flow: from each of its blocks, control may come to each.
struct Cycle<'a> {
    body: &'a Body,
    graph: &'a Graph,
    ways: &'a Ways,
    blocks: &'a [usize],
    /// By block, whether it is one of these.
    inside: Vec<bool>,
    /// The ways by which compare-and-swaps are done again, from block to block.
    retries: Vec<(usize, usize)>,
    /// By register, whether other threads may decide what it holds.
    decided: Vec<bool>,
    /// By block, whether other threads may decide if it is done.
    under: Vec<bool>,
}

impl<'a> Cycle<'a> {
    fn of(body: &'a Body, graph: &'a Graph, ways: &'a Ways, blocks: &'a [usize]) -> Cycle<'a> {
        let mut inside = vec![false; ways.successors.len()];
        blocks.iter().for_each(|block| inside[*block] = true);
        let mut cycle = Cycle {
            body,
            graph,
            ways,
            blocks,
            under: vec![false; inside.len()],
            inside,
            retries: vec![],
            decided: vec![false; body.tables.registers.len()],
        };
        let retries = blocks.iter().filter_map(|block| cycle.retry(*block));
        cycle.retries = retries.collect();
        cycle
    }

    fn steps(&self) -> impl Iterator<Item = (usize, &'a Instruction)> + use<'a, '_> {
        let (body, graph) = (self.body, self.graph);
        let steps = |block: &usize| {
            let block = *block;
            instructions(body, graph.steps(block)).map(move |(_, step)| (block, step))
        };
        self.blocks.iter().flat_map(steps)
    }

    fn spins(mut self) -> bool {
        // Who knows what is decided in another function.
        let calls = |(_, step): (_, &Instruction)| step.operation.callee() != Callee::None;
        if self.steps().any(calls) {
            return true;
        }
        while self.follow() {}
        self.blocks.iter().any(|block| self.comes_back(*block))
    }

    fn reads_decided(&self, step: &Instruction) -> bool {
        let guard = step.guard.map(|(register, _)| register);
        let mut reads = step.reads.iter().copied().chain(guard);
        reads.any(|register| self.decided[register.0 as usize])
    }

    /// Follows what other threads decide a step further; whether there was news.
    fn follow(&mut self) -> bool {
        let mut news = false;
        let steps: Vec<_> = self.steps().collect();
        for (block, step) in steps {
            let computes = step.operation.pure() || step.operation.loads_constant();
            if !computes || self.under[block] || self.reads_decided(step) {
                for register in &step.writes {
                    news |= !std::mem::replace(&mut self.decided[register.0 as usize], true);
                }
            }
        }
        for block in self.blocks {
            if self.decides(*block) {
                for other in self.until_join(*block, &self.ways.successors[*block], &[]) {
                    news |= !std::mem::replace(&mut self.under[other], true);
                }
            }
        }
        news
    }

    /// Other threads decide where control goes from a block.
    fn decides(&self, block: usize) -> bool {
        let last = instructions(self.body, self.graph.steps(block)).next_back();
        self.ways.successors[block].len() > 1
            && last.is_some_and(|(_, step)| self.reads_decided(step))
    }

    /// Other threads decide whether control comes back to a block from its end, before its ways
    /// join.
    fn comes_back(&self, block: usize) -> bool {
        let successors = &self.ways.successors[block];
        let stays = |to: &usize| !self.retries.contains(&(block, *to));
        let from: SmallVec<[usize; 2]> = successors.iter().copied().filter(stays).collect();
        let comes_to = self.until_join(block, &from, &self.retries);
        self.decides(block) && comes_to.contains(&block)
    }

    /// The blocks that control may come to from some of a block's successors before it is where
    /// all its ways join; not by the ways of `without`.
    fn until_join(&self, block: usize, from: &[usize], without: &[(usize, usize)]) -> Vec<usize> {
        let join = self.ways.joins[block];
        self.reach(from, |to| Some(to) == join, without)
    }

    /// The blocks that control may come to in this component, from some of it on, but not those
    /// where `stops` says so, nor by the ways of `without`.
    fn reach(
        &self,
        from: &[usize],
        stops: impl Fn(usize) -> bool,
        without: &[(usize, usize)],
    ) -> Vec<usize> {
        let mut seen = vec![false; self.inside.len()];
        let mut found = vec![];
        let mut work: Vec<(Option<usize>, usize)> = from.iter().map(|to| (None, *to)).collect();
        while let Some((from, to)) = work.pop() {
            let gone = from.is_some_and(|from| without.contains(&(from, to)));
            if !self.inside[to] || gone || seen[to] || stops(to) {
                continue;
            }
            seen[to] = true;
            found.push(to);
            let next = self.ways.successors[to].iter();
            work.extend(next.map(|next| (Some(to), *next)));
        }
        found
    }

    /// The way by which control goes from the end of a block if the compare-and-swap in it failed,
    /// where it is a retry.
    fn retry(&self, block: usize) -> Option<(usize, usize)> {
        let steps: Vec<_> = instructions(self.body, self.graph.steps(block)).collect();
        let (branch_at, branch) = *steps.last()?;
        let (Flow::Jump(_), Some((predicate, negated))) = (branch.operation.flow(), branch.guard)
        else {
            return None;
        };
        // The last that writes the predicate compares.
        let writes = |step: &Instruction, register| step.writes.contains(&register);
        let before = |end: usize| steps.iter().rev().filter(move |(at, _)| *at < end);
        let (compare_at, compare) = *before(branch_at).find(|(_, step)| writes(step, predicate))?;
        let (equal, a, b, size) = compare.operation.equality()?;
        // The last that writes what it compares is the swap.
        let is_compared = |step: &Instruction| writes(step, a) || writes(step, b);
        let (_, swapping) = *before(compare_at).find(|(_, step)| is_compared(step))?;
        let swap = swapping.operation.swap()?;
        let pair = (swap.old, swap.expected);
        let always = compare.guard.is_none() && swapping.guard.is_none();
        if !always || size != swap.place.size || (pair != (a, b) && pair != (b, a)) || a == b {
            return None;
        }
        let [target, next] = self.graph.successors[block][..] else {
            return None;
        };
        // The branch is taken where the predicate is true, or where it is not.
        let (failed, done) = match equal == negated {
            true => (target, next),
            false => (next, target),
        };
        let again =
            failed != done && self.expects_what_it_found(block, (failed, done), swapping, swap);
        again.then_some((block, failed))
    }

    /// Whichever way a swap in `block` comes to be done again after it failed, it is at the same
    /// place, of which nothing is known to be written between, and expects what is there.
    fn expects_what_it_found(
        &self,
        block: usize,
        (failed, done): (usize, usize),
        swapping: &Instruction,
        swap: Swap<'_>,
    ) -> bool {
        let without = [(block, done)];
        let onward = self.reach(&[failed], |_| false, &without);
        let between: Vec<usize> = onward
            .iter()
            .copied()
            .filter(|from| self.reach(&[*from], |_| false, &without).contains(&block))
            .collect();
        if !between.contains(&block) {
            return false;
        }
        let is_swap = |step: &Instruction| std::ptr::eq(step, swapping);
        let refreshes = |step: &Instruction| {
            let operation = &step.operation;
            let found = operation.moves() == Some((swap.old, swap.place.size));
            let loads = operation.loads_place() == Some(swap.place);
            step.guard.is_none() && step.writes[..] == [swap.expected] && (found || loads)
        };
        let base = match swap.place.address {
            Arg::Address(base, _) => match **base {
                Arg::Reg(base) => Some(base),
                _ => None,
            },
            _ => return false,
        };
        let steps = |block: usize| instructions(self.body, self.graph.steps(block));
        for (_, step) in between.iter().flat_map(|block| steps(*block)) {
            let operation = &step.operation;
            let harmless = operation.pure() || operation.only_loads() || operation.stores_weakly();
            let jumps = operation.flow() != Flow::Next;
            let keeps = (harmless || jumps || is_swap(step)) && !operation.waits();
            let writes = |register: RegId| step.writes.contains(&register);
            if !keeps
                || base.is_some_and(writes)
                || writes(swap.old) && !is_swap(step)
                || writes(swap.expected) && !refreshes(step)
            {
                return false;
            }
        }
        // Every way back refreshes what is expected.
        let fresh = |block: usize| steps(block).any(|(_, step)| refreshes(step));
        fresh(block) || !self.reach(&[failed], fresh, &without).contains(&block)
    }
}
