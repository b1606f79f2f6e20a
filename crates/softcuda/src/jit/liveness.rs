//! Which registers hold what is read later: what a thread keeps while it waits, and what of it
//! must move.
//!
//! A poll is a wait before its operation, which a thread may also pass.
//!
//! A register that is kept lies at one place whichever wait the thread stands at. So nothing needs
//! to be stored that lies there since an earlier wait, nor loaded that is not read before the next.

use super::analysis::Graph;
use super::decode::RegId;
use super::program::{Body, Instruction, Step};

/// The most bits that all sets of a body take; beyond, nobody asks how much is live.
const MOST: usize = 1 << 28;

/// What threads keep while they wait.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// For each wait, in source order.
    pub waits: Vec<AtWait>,
    /// The registers that are live where the body starts: what may be read before it is written.
    pub at_start: Vec<RegId>,
}

/// What a thread keeps at a wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtWait {
    /// The registers that are live after the wait.
    pub live: Vec<RegId>,
    /// Those that may have changed since they were last kept.
    pub store: Vec<RegId>,
    /// Those that may be read, or stored, before the next wait is over.
    pub load: Vec<RegId>,
    /// The same of those who come to the wait: before it is over.
    pub load_before: Vec<RegId>,
}

/// A set of registers.
type Set = Vec<u64>;

/// What is kept at each of these steps, which are in ascending order. `None` for a body that is too
/// large.
pub(super) fn kept(body: &Body, steps: &[usize]) -> Option<Kept> {
    let graph = Graph::of(body);
    let flow = Flow::of(body, &graph)?;
    let mut wait_of = vec![None; body.steps.len()];
    for (number, step) in steps.iter().enumerate() {
        wait_of[*step] = Some(number);
    }

    let live_in = flow.backward(|live, at| before(&body.steps[at], live));
    let live: Vec<Set> = steps
        .iter()
        .map(|step| {
            let back = |live: &mut Set, at: usize| before(&body.steps[at], live);
            match polls(body, *step) {
                true => flow.at(*step, &live_in, back),
                false => flow.after(*step, &live_in, back),
            }
        })
        .collect();

    // Forward: what lies where it is kept.
    let pass = |lies: &mut Set, at: usize| {
        let Step::Instruction(instruction) = &body.steps[at] else {
            return;
        };
        if let Some(number) = wait_of[at] {
            match instruction.guard {
                None if !polls(body, at) => lies.clone_from(&live[number]),
                // Who does not wait has what lay there before.
                _ => lies
                    .iter_mut()
                    .zip(&live[number])
                    .for_each(|(a, b)| *a &= b),
            }
        }
        for register in &instruction.writes {
            clear(lies, *register);
        }
    };
    let lies = flow.forward(pass);
    let store: Vec<Set> = steps
        .iter()
        .zip(&live)
        .map(|(step, live)| {
            let block = flow.graph.block_of[*step];
            let mut lies = lies[block].clone();
            (flow.ranges[block].start..*step).for_each(|at| pass(&mut lies, at));
            live.iter().zip(&lies).map(|(a, b)| a & !b).collect()
        })
        .collect();

    // Backward: what is wanted before the next wait is over.
    let wanted = |wanted: &mut Set, at: usize| {
        let step = &body.steps[at];
        if let (Some(number), true) = (wait_of[at], polls(body, at)) {
            before(step, wanted);
            let stored = wanted.iter_mut().zip(&store[number]);
            return stored.for_each(|(a, b)| *a |= b);
        }
        if let (Some(number), Step::Instruction(instruction)) = (wait_of[at], step) {
            match instruction.guard {
                None => wanted.clone_from(&store[number]),
                Some(_) => wanted
                    .iter_mut()
                    .zip(&store[number])
                    .for_each(|(a, b)| *a |= b),
            }
            return read(instruction, wanted);
        }
        before(step, wanted);
    };
    let wanted_in = flow.backward(wanted);
    let waits = steps
        .iter()
        .zip(live.iter().zip(&store))
        .map(|(step, (live, store))| {
            let load = match polls(body, *step) {
                true => flow.at(*step, &wanted_in, wanted),
                false => flow.after(*step, &wanted_in, wanted),
            };
            let load: Set = load.iter().zip(live).map(|(a, b)| a & b).collect();
            AtWait {
                live: registers(live),
                store: registers(store),
                load: registers(&load),
                load_before: registers(&flow.at(*step, &wanted_in, wanted)),
            }
        })
        .collect();
    let at_start = live_in.first().map_or(vec![], |live| registers(live));
    Some(Kept { waits, at_start })
}

/// Whether a step that is a wait is a poll.
fn polls(body: &Body, at: usize) -> bool {
    matches!(&body.steps[at], Step::Instruction(step) if !step.operation.waits())
}

/// For each block of this graph of the body, the registers that are live where it begins. `None`
/// for a body that is too large.
pub(super) fn live_in(body: &Body, graph: &Graph) -> Option<Vec<Vec<RegId>>> {
    let flow = Flow::of(body, graph)?;
    let live = flow.backward(|live, at| before(&body.steps[at], live));
    Some(live.iter().map(|live| registers(live)).collect())
}

/// The control flow of a body, for sets of its registers.
struct Flow<'a> {
    body: &'a Body,
    graph: &'a Graph,
    predecessors: Vec<Vec<usize>>,
    /// The steps of each block; they stand in order.
    ranges: Vec<std::ops::Range<usize>>,
    words: usize,
}

impl<'a> Flow<'a> {
    fn of(body: &'a Body, graph: &'a Graph) -> Option<Flow<'a>> {
        let words = body.tables.registers.len().div_ceil(64);
        let blocks = graph.successors.len();
        if blocks.checked_mul(words)? > MOST / 64 {
            return None;
        }
        let mut predecessors = vec![vec![]; blocks];
        for (block, successors) in graph.successors.iter().enumerate() {
            for successor in successors {
                predecessors[*successor].push(block);
            }
        }
        Some(Flow {
            body,
            ranges: ranges(&graph.block_of, blocks),
            predecessors,
            graph,
            words,
        })
    }

    /// What holds before each block, from what holds after it: in one of its successors. `step`
    /// goes back over a step.
    fn backward(&self, step: impl Fn(&mut Set, usize)) -> Vec<Set> {
        let blocks = self.graph.successors.len();
        let mut before = vec![vec![0; self.words]; blocks];
        self.settle(&self.predecessors, (0..blocks).collect(), |block| {
            let mut set = self.leaving(&before, block);
            for at in self.ranges[block].clone().rev() {
                step(&mut set, at);
            }
            let changed = set != before[block];
            before[block] = set;
            changed
        });
        before
    }

    /// What holds in one of a block's successors.
    fn leaving(&self, before: &[Set], block: usize) -> Set {
        let mut set = vec![0; self.words];
        for successor in &self.graph.successors[block] {
            for (word, more) in set.iter_mut().zip(&before[*successor]) {
                *word |= more;
            }
        }
        set
    }

    /// What holds right after a step, but for what the step itself writes, as it does that after
    /// its wait.
    fn after(&self, step: usize, before: &[Set], back: impl Fn(&mut Set, usize)) -> Set {
        let block = self.graph.block_of[step];
        let mut set = self.leaving(before, block);
        for at in (step + 1..self.ranges[block].end).rev() {
            back(&mut set, at);
        }
        if let Step::Instruction(Instruction {
            writes,
            guard: None,
            ..
        }) = &self.body.steps[step]
        {
            writes
                .iter()
                .for_each(|register| clear(&mut set, *register));
        }
        set
    }

    /// What holds right before a step.
    fn at(&self, step: usize, before: &[Set], back: impl Fn(&mut Set, usize)) -> Set {
        let block = self.graph.block_of[step];
        let mut set = self.leaving(before, block);
        for at in (step..self.ranges[block].end).rev() {
            back(&mut set, at);
        }
        set
    }

    /// What holds before each block: after all of its predecessors. Nothing holds at the start.
    fn forward(&self, step: impl Fn(&mut Set, usize)) -> Vec<Set> {
        let blocks = self.graph.successors.len();
        let mut after = vec![vec![u64::MAX; self.words]; blocks];
        let entering = |after: &[Set], block: usize| {
            let mut set = vec![if block == 0 { 0 } else { u64::MAX }; self.words];
            for predecessor in &self.predecessors[block] {
                for (word, other) in set.iter_mut().zip(&after[*predecessor]) {
                    *word &= other;
                }
            }
            set
        };
        self.settle(
            &self.graph.successors,
            (0..blocks).rev().collect(),
            |block| {
                let mut set = entering(&after, block);
                for at in self.ranges[block].clone() {
                    step(&mut set, at);
                }
                let changed = set != after[block];
                after[block] = set;
                changed
            },
        );
        (0..blocks).map(|block| entering(&after, block)).collect()
    }

    /// Looks at all blocks, the last of `work` first, and again at those that `next` names after
    /// one that has changed.
    fn settle(
        &self,
        next: &[Vec<usize>],
        mut work: Vec<usize>,
        mut changes: impl FnMut(usize) -> bool,
    ) {
        let mut waiting = vec![true; work.len()];
        while let Some(block) = work.pop() {
            waiting[block] = false;
            if changes(block) {
                for other in &next[block] {
                    if !std::mem::replace(&mut waiting[*other], true) {
                        work.push(*other);
                    }
                }
            }
        }
    }
}

/// The registers of a set.
fn registers(set: &[u64]) -> Vec<RegId> {
    let bits = set.iter().enumerate().flat_map(|(word, bits)| {
        (0..64u32)
            .filter(move |bit| bits >> bit & 1 != 0)
            .map(move |bit| RegId(word as u32 * 64 + bit))
    });
    bits.collect()
}

/// What is live before a step, from what is live after it.
fn before(step: &Step, live: &mut Set) {
    let Step::Instruction(instruction) = step else {
        return;
    };
    // Under a guard the old value may stay.
    if instruction.guard.is_none() {
        for register in &instruction.writes {
            clear(live, *register);
        }
    }
    read(instruction, live);
}

/// Adds what an instruction reads.
fn read(instruction: &Instruction, live: &mut Set) {
    let guard = instruction.guard.map(|(register, _)| register);
    for register in instruction.reads.iter().copied().chain(guard) {
        live[register.0 as usize / 64] |= 1 << (register.0 % 64);
    }
}

fn clear(live: &mut [u64], register: RegId) {
    live[register.0 as usize / 64] &= !(1 << (register.0 % 64));
}

/// The steps of each block; they stand in order.
fn ranges(block_of: &[usize], blocks: usize) -> Vec<std::ops::Range<usize>> {
    let mut ranges = vec![0..0; blocks];
    for (at, block) in block_of.iter().enumerate() {
        let range = &mut ranges[*block];
        if range.end == 0 {
            range.start = at;
        }
        range.end = at + 1;
    }
    ranges
}
