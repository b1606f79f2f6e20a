//! A loop over the grid, which the blocks of a range go through in step where there are many:
//!
//! ```text
//! for (i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
//! ```
//!
//! All blocks do one turn, then all groups that are not done do the next. So memory is gone through
//! in order; otherwise a group would do all its turns, far from each other, before the next one
//! begins.
//!
//! Nothing is kept from turn to turn: in each pass a group begins anew, and what counts up in the
//! loop is that much further.

use ptx::ast::Immediate;

use super::facts::Facts;
use super::loops::Counting;
use crate::jit::decode::{Arg, Flow, RegId, Special};
use crate::jit::lower::Term;
use crate::jit::program::Instruction;

/// The most steps before the loop, which are done again in each pass.
const MOST_STEPS: usize = 48;

/// The loop.
#[derive(Clone, Debug)]
pub(crate) struct Passes {
    /// The block where a turn begins.
    pub head: usize,
    /// The block that ends with the branch back to it.
    pub branch: usize,
    /// The registers that count up, and by what in a turn.
    pub counts: Vec<(RegId, Arg)>,
}

impl Passes {
    /// The loop of a body in which no thread waits or spins, if there is one.
    pub(super) fn of(facts: Facts<'_>) -> Option<Passes> {
        if facts.polls() {
            return None;
        }
        let count = facts.control.graph.successors.len();
        // An inner loop's branch lies before that of the loop around it.
        let mut loops = (0..count).rev().filter_map(|at| facts.counting_loop(at));
        loops.find_map(|turns| of_loop(facts, &turns))
    }
}

fn of_loop(facts: Facts<'_>, turns: &Counting) -> Option<Passes> {
    let Counting {
        head,
        branch,
        ref blocks,
    } = *turns;
    let steps = || facts.steps_of(blocks);
    // What is done once in each turn.
    let successors = &facts.control.graph.successors;
    let leads = |(from, to): (usize, &Vec<usize>)| to.contains(&branch).then_some(from);
    let mut before = successors.iter().enumerate().filter_map(leads);
    let falls = match (before.next(), before.next()) {
        (Some(from), None) if successors[from][..] == [branch] => from,
        _ => branch,
    };
    if !steps().any(|step| facts.goes_through_memory(step)) || !begins_anew(facts, turns) {
        return None;
    }
    let mut counts = vec![];
    for register in &facts.live[head] {
        let mut writes = steps().filter(|(_, step)| step.writes.contains(register));
        if let Some((at, step)) = writes.next() {
            let block = facts.control.graph.block_of[at];
            if writes.next().is_some() || ![head, falls, branch].contains(&block) {
                return None; // not once in each turn
            }
            counts.push((*register, adds(facts, turns, *register, step)?));
        }
    }
    Some(Passes {
        head,
        branch,
        counts,
    })
}

/// Whether threads come to a loop once, by little that may be done again.
fn begins_anew(facts: Facts<'_>, turns: &Counting) -> bool {
    let successors = &facts.control.graph.successors;
    let from = |start: usize| {
        let mut seen = vec![false; successors.len()];
        let mut work = vec![start];
        while let Some(block) = work.pop() {
            if block != turns.head && !std::mem::replace(&mut seen[block], true) {
                work.extend(&successors[block]);
            }
        }
        seen
    };
    let (before, past) = (from(0), from(turns.branch + 1));
    let again = |(_, step): (usize, &Instruction)| {
        let operation = &step.operation;
        let flows = matches!(operation.flow(), Flow::Jump(_) | Flow::Leave);
        let steady = |register: &Special| {
            use Special::{Ctaid, Nctaid, Ntid, Tid};
            matches!(register, Tid(_) | Ntid(_) | Ctaid(_) | Nctaid(_))
        };
        step.specials.iter().all(steady)
            && !operation.faults()
            && (flows || operation.pure() || operation.loads_parameter())
    };
    let mut count = 0;
    for block in 0..successors.len() {
        if past[block] {
            if successors[block].contains(&turns.head) {
                return false;
            }
        } else if before[block] {
            count += facts.steps(block).count();
            let onwards = successors[block].iter().all(|to| *to > block);
            if !onwards || !facts.steps(block).all(again) {
                return false;
            }
        }
    }
    count <= MOST_STEPS
}

/// What a step adds to a register in each turn of a loop.
pub(super) fn adds(
    facts: Facts<'_>,
    turns: &Counting,
    register: RegId,
    step: &Instruction,
) -> Option<Arg> {
    let steady = |arg: &Arg| match arg {
        Arg::Reg(by) => {
            let mut steps = facts.steps_of(&turns.blocks);
            facts.class(*by).stride() == Some(0) && steps.all(|(_, step)| !step.writes.contains(by))
        }
        arg => matches!(arg, Arg::Imm(Immediate::Int { .. })),
    };
    let is_it = |arg: &Arg| matches!(arg, Arg::Reg(at) if *at == register);
    let (a, b, bits) = match step.operation.term()? {
        Term::Sum(a, b, bits) => (a, b, bits),
        Term::Scaled { .. } | Term::Product { .. } => return None,
    };
    let by = match (is_it(a), is_it(b)) {
        (true, false) => b,
        (false, true) => a,
        _ => return None,
    };
    let size = facts.body.tables.registers[register.0 as usize].size();
    let counts = step.guard.is_none()
        && bits == 8 * size
        && facts.class(register).stride().is_some()
        && step.writes[..] == [register]
        && steady(by);
    counts.then(|| by.clone())
}
