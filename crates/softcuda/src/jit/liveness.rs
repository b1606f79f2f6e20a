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
    let words = body.tables.registers.len().div_ceil(64);
    let blocks = graph.successors.len();
    if blocks.checked_mul(words)? > MOST / 64 {
        return None;
    }
    let ranges = ranges(&graph.block_of, blocks);
    let mut live_in = vec![vec![0u64; words]; blocks];
    let mut predecessors = vec![vec![]; blocks];
    for (block, successors) in graph.successors.iter().enumerate() {
        for successor in successors {
            predecessors[*successor].push(block);
        }
    }
    let live_out = |live_in: &[Vec<u64>], block: usize| {
        let mut live = vec![0u64; words];
        for successor in &graph.successors[block] {
            for (word, more) in live.iter_mut().zip(&live_in[*successor]) {
                *word |= more;
            }
        }
        live
    };
    let mut work: Vec<usize> = (0..blocks).collect();
    let mut waiting = vec![true; blocks];
    while let Some(block) = work.pop() {
        waiting[block] = false;
        let mut live = live_out(&live_in, block);
        for step in body.steps[ranges[block].clone()].iter().rev() {
            before(step, &mut live);
        }
        if live != live_in[block] {
            live_in[block] = live;
            for from in &predecessors[block] {
                if !std::mem::replace(&mut waiting[*from], true) {
                    work.push(*from);
                }
            }
        }
    }
    let listed = |live: &[u64]| {
        (0..body.tables.registers.len() as u32)
            .map(RegId)
            .filter(|register| live[register.0 as usize / 64] >> (register.0 % 64) & 1 != 0)
            .collect()
    };
    let mut after = vec![];
    for step in steps {
        let block = graph.block_of[*step];
        let mut live = live_out(&live_in, block);
        for later in body.steps[step + 1..ranges[block].end].iter().rev() {
            before(later, &mut live);
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
                .for_each(|register| clear(&mut live, *register));
        }
        after.push(listed(&live));
    }
    let at_start = listed(&live_in[0]);
    Some(Kept { after, at_start })
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
