//! Which registers hold what is read later: what a thread keeps while it waits for the others of
//! its block.

use super::analysis::Graph;
use super::decode::RegId;
use super::program::{Body, Instruction, Step};

/// The most bits that all sets of a body take; beyond, nobody asks how much is live.
const MOST: usize = 1 << 28;

/// What threads keep while they wait.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// For each wait, in source order, the registers that are live after it.
    pub after: Vec<Vec<RegId>>,
    /// The registers that are live where the body starts: what may be read before it is written.
    pub at_start: Vec<RegId>,
}

/// What is live after each of these steps, which are in ascending order. `None` for a body that is
/// too large.
pub(super) fn kept(body: &Body, steps: &[usize]) -> Option<Kept> {
    let graph = Graph::of(body);
    let live = Live::of(body, &graph)?;
    let mut found = vec![];
    for step in steps {
        let block = graph.block_of[*step];
        let mut after = live.at_end(block);
        for later in body.steps[step + 1..live.ranges[block].end].iter().rev() {
            before(later, &mut after);
        }
        // What the step itself writes, it writes after the wait.
        if let Step::Instruction(Instruction {
            writes,
            guard: None,
            ..
        }) = &body.steps[*step]
        {
            writes
                .iter()
                .for_each(|register| clear(&mut after, *register));
        }
        found.push(registers(&after));
    }
    Some(Kept {
        after: found,
        at_start: registers(&live.at_start[0]),
    })
}

/// For each block of this graph of the body, the registers that are live where it begins. `None`
/// for a body that is too large.
pub(super) fn live_in(body: &Body, graph: &Graph) -> Option<Vec<Vec<RegId>>> {
    let live = Live::of(body, graph)?;
    Some(live.at_start.iter().map(|set| registers(set)).collect())
}

/// The sets of registers that are live where blocks begin.
struct Live<'a> {
    graph: &'a Graph,
    words: usize,
    /// The steps of each block.
    ranges: Vec<std::ops::Range<usize>>,
    at_start: Vec<Vec<u64>>,
}

impl<'a> Live<'a> {
    fn of(body: &Body, graph: &'a Graph) -> Option<Live<'a>> {
        let words = body.tables.registers.len().div_ceil(64);
        let blocks = graph.successors.len();
        if blocks.checked_mul(words)? > MOST / 64 {
            return None;
        }
        let mut live = Live {
            graph,
            words,
            ranges: ranges(&graph.block_of, blocks),
            at_start: vec![vec![0u64; words]; blocks],
        };
        let mut predecessors = vec![vec![]; blocks];
        for (block, successors) in graph.successors.iter().enumerate() {
            for successor in successors {
                predecessors[*successor].push(block);
            }
        }
        let mut work: Vec<usize> = (0..blocks).collect();
        let mut waiting = vec![true; blocks];
        while let Some(block) = work.pop() {
            waiting[block] = false;
            let mut set = live.at_end(block);
            for step in body.steps[live.ranges[block].clone()].iter().rev() {
                before(step, &mut set);
            }
            if set != live.at_start[block] {
                live.at_start[block] = set;
                for from in &predecessors[block] {
                    if !std::mem::replace(&mut waiting[*from], true) {
                        work.push(*from);
                    }
                }
            }
        }
        Some(live)
    }

    fn at_end(&self, block: usize) -> Vec<u64> {
        let mut live = vec![0u64; self.words];
        for successor in &self.graph.successors[block] {
            for (word, more) in live.iter_mut().zip(&self.at_start[*successor]) {
                *word |= more;
            }
        }
        live
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
fn before(step: &Step, live: &mut [u64]) {
    let Step::Instruction(instruction) = step else {
        return;
    };
    // Under a guard the old value may stay.
    if instruction.guard.is_none() {
        for register in &instruction.writes {
            clear(live, *register);
        }
    }
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
