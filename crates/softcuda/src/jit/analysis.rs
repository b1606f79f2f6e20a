//! What a function may do while it runs: wait for other threads or not. It decides how a kernel's
//! threads are run, its [`Mode`].
//!
//! An operation polls if it looks at memory that another thread may write for it to see. Inside a
//! cycle it may wait so for a write of a thread that loop mode would run later: the thread
//! [spins].
//!
//! A kernel that waits or spins in its own body alone, at barriers of its block, operations of its
//! warp and polls, runs in rounds. It must run in fiber mode when it can reach
//! - an operation that waits elsewhere (in a called function, or at a cluster's barrier), or
//! - a function that spins, or that polls and is called inside a cycle or by itself.

use std::ops::Range;

use super::decode::{Callee, Flow};
use super::program::{Body, Program, Step};
use super::spins::spins;
use crate::grid::context::Mode;

/// What is known of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// It, or what it calls, polls somewhere.
    pub polls: bool,
    /// It must run as a fiber.
    pub waits: bool,
    /// It is a kernel that waits or spins where it can do so in rounds.
    pub rounds: bool,
}

impl Facts {
    /// How a kernel is run.
    pub fn mode(self) -> Mode {
        match (self.waits, self.rounds) {
            (true, _) => Mode::Fibers,
            (false, true) => Mode::Rounds,
            (false, false) => Mode::Loop,
        }
    }
}

/// Facts of every function of the module.
pub(crate) fn analyse(program: &Program) -> Vec<Facts> {
    let count = program.functions.len();
    let mut facts = vec![Facts::default(); count];
    let mut calls: Vec<Vec<(u32, bool)>> = vec![vec![]; count];
    for (at, function) in program.functions.iter().enumerate() {
        let Some(body) = &function.body else {
            continue;
        };
        let (cycles, spins) = (steps_in_cycles(body), spins(body));
        for (step, in_cycle) in body.steps.iter().zip(&cycles) {
            let Step::Instruction(instruction) = step else {
                continue;
            };
            let operation = &instruction.operation;
            let spins = spins && operation.polls() && *in_cycle;
            if spins || operation.waits() {
                match function.kernel && (spins || operation.waits_in_rounds()) {
                    true => facts[at].rounds = true,
                    false => facts[at].waits = true,
                }
            }
            facts[at].polls |= operation.polls();
            match operation.callee() {
                Callee::None | Callee::Device => {}
                Callee::Function(callee) => calls[at].push((callee, *in_cycle)),
                Callee::Indirect => {
                    calls[at].extend(
                        program
                            .address_taken
                            .iter()
                            .map(|callee| (*callee, *in_cycle)),
                    );
                }
            }
        }
        calls[at].sort_unstable();
        calls[at].dedup();
    }
    spread(&calls, &mut facts, |callee, _| callee);
    for (at, facts) in facts.iter_mut().enumerate() {
        facts.waits |= facts.polls && calls_itself(&calls, at);
    }
    spread(&calls, &mut facts, |callee, in_cycle| Facts {
        waits: callee.waits || (in_cycle && callee.polls),
        ..callee
    });
    facts
}

/// Carries facts from callees to callers until nothing changes.
fn spread(calls: &[Vec<(u32, bool)>], facts: &mut [Facts], from: impl Fn(Facts, bool) -> Facts) {
    let mut callers: Vec<Vec<u32>> = vec![vec![]; calls.len()];
    for (at, list) in calls.iter().enumerate() {
        for (callee, _) in list {
            callers[*callee as usize].push(at as u32);
        }
    }
    let mut work: Vec<u32> = (0..calls.len() as u32).collect();
    while let Some(at) = work.pop() {
        let before = facts[at as usize];
        let mut now = before;
        for (callee, in_cycle) in &calls[at as usize] {
            let more = from(facts[*callee as usize], *in_cycle);
            now.polls |= more.polls;
            now.waits |= more.waits;
        }
        if now != before {
            facts[at as usize] = now;
            work.extend(&callers[at as usize]);
        }
    }
}

fn calls_itself(calls: &[Vec<(u32, bool)>], at: usize) -> bool {
    let mut seen = vec![false; calls.len()];
    let mut work = vec![at];
    while let Some(from) = work.pop() {
        for (callee, _) in &calls[from] {
            let callee = *callee as usize;
            if callee == at {
                return true;
            }
            if !std::mem::replace(&mut seen[callee], true) {
                work.push(callee);
            }
        }
    }
    false
}

/// Whether threads have local memory in a body.
pub(crate) fn has_local(body: &Body) -> bool {
    let stack =
        |step: &Step| matches!(step, Step::Instruction(step) if step.operation.uses_stack());
    body.tables.frame > 0 || body.steps.iter().any(stack)
}

/// Whether no thread of another block learns from a thread how far it has come in a body.
pub(crate) fn tells_nobody(body: &Body) -> bool {
    body.uses.functions.is_empty()
        && body.steps.iter().all(|step| match step {
            Step::Instruction(step) => step.operation.tells_nobody(),
            Step::Label(_) => true,
        })
}

/// Whether a thread may reach the shared memory of other blocks of the cluster in a body.
pub(crate) fn reaches(body: &Body) -> bool {
    let reaches = |step: &Step| matches!(step, Step::Instruction(step) if step.operation.reaches());
    body.steps.iter().any(reaches)
}

/// The steps of a kernel where its threads wait in rounds, in source order. Where they may spin,
/// each poll is one.
pub(crate) fn waits_in_rounds(body: &Body) -> Vec<usize> {
    let spins = spins(body);
    let waits = |at: &usize| match &body.steps[*at] {
        Step::Instruction(step) => {
            step.operation.waits_in_rounds() || spins && step.operation.polls()
        }
        Step::Label(_) => false,
    };
    (0..body.steps.len()).filter(waits).collect()
}

/// For each step, whether control can come back to it.
fn steps_in_cycles(body: &Body) -> Vec<bool> {
    let graph = Graph::of(body);
    let in_cycle = graph.in_cycles();
    graph
        .block_of
        .iter()
        .map(|block| in_cycle[*block])
        .collect()
}

/// The control flow of a body: runs of steps without a jump or a label between.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    /// The block that each step is in; blocks are numbered in source order.
    pub block_of: Vec<usize>,
    /// The blocks that control may go to from each.
    pub successors: Vec<Vec<usize>>,
}

impl Graph {
    pub fn of(body: &Body) -> Graph {
        Graph::with_cuts(body, |_| false)
    }

    /// As [`of`](Self::of), but a block also begins at each step that `cut` says.
    pub fn with_cuts(body: &Body, cut: impl Fn(usize) -> bool) -> Graph {
        let mut block_of = Vec::with_capacity(body.steps.len());
        let mut labels = vec![0; body.tables.labels as usize];
        let mut block = 0;
        for (at, step) in body.steps.iter().enumerate() {
            match step {
                Step::Label(label) => {
                    // A block without steps would lead nowhere.
                    if block_of.last() == Some(&block) {
                        block += 1;
                    }
                    labels[*label as usize] = block;
                    block_of.push(block);
                }
                Step::Instruction(instruction) => {
                    if cut(at) && block_of.last() == Some(&block) {
                        block += 1;
                    }
                    block_of.push(block);
                    if instruction.operation.flow() != Flow::Next {
                        block += 1;
                    }
                }
            }
        }
        let mut successors = vec![vec![]; block + 1];
        for (at, step) in body.steps.iter().enumerate() {
            let here = block_of[at];
            let last = block_of.get(at + 1) != Some(&here);
            let mut falls = true;
            if let Step::Instruction(instruction) = step {
                match instruction.operation.flow() {
                    Flow::Next => {}
                    Flow::Jump(label) => {
                        successors[here].push(labels[label as usize]);
                        falls = instruction.guard.is_some();
                    }
                    Flow::Table(table) => {
                        if let super::program::Targets::Branch(targets) =
                            &body.tables.targets[table as usize]
                        {
                            successors[here]
                                .extend(targets.iter().map(|label| labels[*label as usize]));
                        }
                        falls = instruction.guard.is_some();
                    }
                    Flow::Leave => falls = instruction.guard.is_some(),
                }
            }
            if last && falls && here < block {
                successors[here].push(here + 1);
            }
        }
        Graph {
            block_of,
            successors,
        }
    }

    /// The steps of a block; they stand in order.
    pub fn steps(&self, block: usize) -> Range<usize> {
        let start = self.block_of.partition_point(|of| *of < block);
        let end = self.block_of.partition_point(|of| *of <= block);
        start..end
    }

    /// Which blocks are in a cycle.
    pub fn in_cycles(&self) -> Vec<bool> {
        let mut in_cycle = vec![false; self.successors.len()];
        for block in self.components().into_iter().flatten() {
            in_cycle[block] = true;
        }
        in_cycle
    }

    /// The blocks that are in cycles, those together from each of which control may come to each:
    /// Tarjan's strongly connected components, without recursion.
    pub fn components(&self) -> Vec<Vec<usize>> {
        const NEW: u32 = u32::MAX;
        let count = self.successors.len();
        let mut components = vec![];
        let mut number = vec![NEW; count];
        let mut low = vec![0; count];
        let mut on_stack = vec![false; count];
        let mut stack = vec![];
        let mut next = 0;
        for root in 0..count {
            if number[root] != NEW {
                continue;
            }
            let mut path = vec![(root, 0)];
            while let Some((at, edge)) = path.last_mut() {
                let at = *at;
                if *edge == 0 {
                    number[at] = next;
                    low[at] = next;
                    next += 1;
                    stack.push(at);
                    on_stack[at] = true;
                }
                if let Some(to) = self.successors[at].get(*edge).copied() {
                    *edge += 1;
                    if number[to] == NEW {
                        path.push((to, 0));
                    } else if on_stack[to] {
                        low[at] = low[at].min(number[to]);
                    }
                    continue;
                }
                path.pop();
                if let Some((parent, _)) = path.last() {
                    low[*parent] = low[*parent].min(low[at]);
                }
                if low[at] == number[at] {
                    let start = stack
                        .iter()
                        .rposition(|block| *block == at)
                        .expect("a block is on the stack until its component is complete");
                    let component = stack.split_off(start);
                    for block in &component {
                        on_stack[*block] = false;
                    }
                    if component.len() > 1 || self.successors[at].contains(&at) {
                        components.push(component);
                    }
                }
            }
        }
        components
    }
}
