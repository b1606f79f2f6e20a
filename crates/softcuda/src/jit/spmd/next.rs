//! Where the next blocks, or the next turns of a loop, access memory. Compiled code fetches that
//! ahead where the processor does not foresee it: see [`Plan::ahead`](super::Plan::ahead).
//!
//! What is said here is a guess: nothing depends on it but time.

use std::collections::HashMap;

use super::facts::Facts;
use super::loops::Counting;
use super::marks::marked;
use super::passes::{Passes, adds};
use super::wide::has_short_rows;
use crate::jit::analysis::Graph;
use crate::jit::decode::{Arg, Division, Divisor, RegId, Special, Stride};
use crate::jit::lower::Term;
use crate::jit::program::{Body, Instruction, Step};
use ptx::ast::{Immediate, Space};

/// Bytes that a stream is fetched ahead.
const STREAM: i64 = 2048;

/// How much more a value is in the next block of a row of the grid, or in the next turn of a loop:
/// `by` times something that is the same in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Distance {
    /// A register; 1, where there is none.
    pub times: Option<RegId>,
    pub by: i64,
    /// Times the number of processors: blocks take numbers, and this one gets one again when all
    /// others have had theirs.
    pub in_turns: bool,
}

impl Distance {
    const NONE: Distance = Distance::of(None, 0);

    pub const fn of(times: Option<RegId>, by: i64) -> Distance {
        Distance {
            times,
            by,
            in_turns: false,
        }
    }

    /// The same, or as far in this direction as streams are fetched.
    fn or_as_stream(self, is_far: bool) -> Distance {
        match is_far {
            true => self,
            false => Distance::of(None, STREAM * self.by.signum()),
        }
    }
}

/// What is known of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nothing is written to it.
    Unset,
    Apart(Distance),
    Unknown,
}

/// By step, how far from what it accesses something is to be fetched. `passes` is the loop that
/// blocks go through in step.
pub(super) fn of(facts: Facts<'_>, passes: Option<&Passes>) -> HashMap<usize, Distance> {
    let mut graph = facts.control.graph.clone();
    if let Some(Passes { head, branch, .. }) = passes {
        // All blocks do one turn before any does the next.
        graph.successors[*branch].retain(|to| to != head);
    }
    let in_loop = graph.in_cycles();
    let mut in_turns = in_turns(facts);
    let of_blocks = of_blocks(facts.body);
    let mut found = HashMap::new();
    for (at, step) in facts.body.steps.iter().enumerate() {
        let Step::Instruction(step) = step else {
            continue;
        };
        let access = step.operation.plain_access();
        let Some(access) = access.filter(|access| access.space == Some(Space::Global)) else {
            continue;
        };
        let in_loop = in_loop[graph.block_of[at]];
        let turn = in_turns.remove(&at).filter(|_| in_loop);
        let block = of_blocks[access.base.0 as usize].filter(|next| next.is_far || !in_loop);
        let distance = turn.or(block.map(|block| block.distance));
        found.extend(distance.map(|distance| (at, distance)));
    }
    found
}

/// Where the next block accesses memory.
#[derive(Clone, Copy)]
struct NextBlock {
    distance: Distance,
    /// In blocks of short rows, each thread goes through memory in pieces that lie far apart;
    /// blocks that go through rows of memory begin a row far from where the last one ended. Else
    /// blocks follow each other in memory: the processor foresees that, but not far enough.
    is_far: bool,
}

/// The same by register that holds an address.
fn of_blocks(body: &Body) -> Vec<Option<NextBlock>> {
    let short = has_short_rows(body);
    let of_threads = computed_from(body, |special| matches!(special, Special::Ntid(_)));
    let next = |next| {
        let Next::Apart(distance) = next else {
            return None;
        };
        let by_rows = |register: RegId| !of_threads[register.0 as usize];
        let is_far = short || distance.times.is_some_and(by_rows);
        (distance.by != 0).then_some(NextBlock {
            distance: distance.or_as_stream(is_far),
            is_far,
        })
    };
    let mut all: Vec<_> = settled(body).into_iter().map(next).collect();
    let by_numbers = by_numbers(body).into_iter().flatten();
    for (known, next) in all.iter_mut().zip(by_numbers) {
        if let (None, Next::Apart(distance)) = (&known, next)
            && distance.by != 0
        {
            let distance = Distance {
                in_turns: true,
                ..distance
            };
            *known = Some(NextBlock {
                distance,
                is_far: true,
            });
        }
    }
    all
}

/// By register, how much more its value is where the block's number is the next one, if blocks
/// number themselves: a thread counts, and leaves the number to the others in shared memory.
fn by_numbers(body: &Body) -> Option<Vec<Next>> {
    let steps = || {
        body.steps.iter().filter_map(|step| match step {
            Step::Instruction(step) => Some(step),
            Step::Label(_) => None,
        })
    };
    let counted = |arg: &Arg| match arg {
        Arg::Reg(register) => {
            let mut writes = steps().filter(|step| step.writes.contains(register));
            writes.any(|step| step.operation.counts())
        }
        _ => false,
    };
    let shared = |step: &Instruction| {
        let access = step.operation.weak_access()?;
        access.shared.then(|| access.registers.iter().any(counted))
    };
    let leaves = |step: &Instruction| step.operation.stores_weakly() && shared(step) == Some(true);
    if !steps().any(leaves) {
        return None;
    }
    // All threads find one number there.
    let takes = |step: &Instruction| {
        step.operation.loads() && step.reads.is_empty() && shared(step).is_some()
    };
    let (takes, others): (Vec<&Instruction>, Vec<_>) = steps().partition(|step| takes(step));
    let mut all = vec![Next::Unset; body.tables.registers.len()];
    for register in takes.iter().flat_map(|step| &step.writes) {
        all[register.0 as usize] = Next::Apart(Distance::of(None, 1));
    }
    settle(&mut all, &others);
    Some(all)
}

/// By step of a loop over numbers that count up from thread to thread, how much further it accesses
/// memory in the next turn, or in a later one.
fn in_turns(facts: Facts<'_>) -> HashMap<usize, Distance> {
    let mut found = HashMap::new();
    // An inner loop's branch lies before that of the loop around it.
    for branch in 0..facts.control.graph.successors.len() {
        let Some(turns) = facts.counting_loop(branch) else {
            continue;
        };
        let all = over_turns(facts, &turns);
        for (at, step) in facts.steps_of(&turns.blocks) {
            let base = step.operation.plain_access().map(|access| access.base);
            if let Some(Next::Apart(distance)) = base.map(|base| all[base.0 as usize])
                && distance.by != 0
            {
                let is_far =
                    distance.times.is_some() || distance.by.unsigned_abs() >= STREAM as u64;
                found.entry(at).or_insert(distance.or_as_stream(is_far));
            }
        }
    }
    found
}

/// By step of a loop that each thread goes through by itself, as often as it likes, how far from
/// what it accesses something is to be fetched, in bytes: often, the next thread goes on where the
/// one before has ended, as in the rows of a sparse matrix.
pub(crate) fn streams_of_threads(body: &Body) -> HashMap<u32, i64> {
    let Graph {
        block_of,
        successors,
    } = Graph::of(body);
    let mut found = HashMap::new();
    // An inner loop's branch lies before that of the loop around it.
    for (branch, leads) in successors.iter().enumerate() {
        let Some(head) = leads.iter().copied().find(|to| *to <= branch) else {
            continue;
        };
        let steps = (0..).zip(&body.steps).zip(&block_of);
        let steps = steps.filter_map(|((at, step), block)| match step {
            Step::Instruction(step) if (head..=branch).contains(block) => Some((at, step)),
            _ => None,
        });
        let steps: Vec<(u32, &Instruction)> = steps.collect();
        let all = over_own_turns(body, &steps);
        for (at, step) in steps {
            let access = step.operation.plain_access();
            if let Some(access) = access.filter(|access| access.space == Some(Space::Global))
                && let Next::Apart(Distance {
                    times: None, by, ..
                }) = all[access.base.0 as usize]
                && by != 0
                && by.unsigned_abs() < STREAM as u64
            {
                found.entry(at).or_insert(STREAM * by.signum());
            }
        }
    }
    found
}

/// By register, how much more its value is in the next turn of a loop of these steps.
fn over_own_turns(body: &Body, steps: &[(u32, &Instruction)]) -> Vec<Next> {
    let mut all = vec![Next::Apart(Distance::NONE); body.tables.registers.len()];
    let mut writes = vec![0; all.len()];
    for register in steps.iter().flat_map(|(_, step)| &step.writes) {
        writes[register.0 as usize] += 1;
        all[register.0 as usize] = Next::Unset;
    }
    for (_, step) in steps {
        if let [register] = step.writes[..]
            && writes[register.0 as usize] == 1
            && let Some(by) = adds_to(step, register)
        {
            all[register.0 as usize] = Next::Apart(Distance::of(None, by));
        }
    }
    let steps: Vec<&Instruction> = steps.iter().map(|(_, step)| *step).collect();
    settle(&mut all, &steps);
    all
}

/// The number that a step adds to a register.
fn adds_to(step: &Instruction, register: RegId) -> Option<i64> {
    let Term::Sum(a, b, size) = step.operation.term()? else {
        return None;
    };
    let (from, bits) = match (a, b) {
        (Arg::Reg(from), Arg::Imm(Immediate::Int { bits, .. }))
        | (Arg::Imm(Immediate::Int { bits, .. }), Arg::Reg(from)) => (*from, *bits),
        _ => return None,
    };
    let by = match size {
        32 => i64::from(bits as i32),
        _ => bits as i64,
    };
    (step.guard.is_none() && from == register).then_some(by)
}

/// By register, how much more its value is in the next turn of a loop.
fn over_turns(facts: Facts<'_>, turns: &Counting) -> Vec<Next> {
    let steps = facts.steps_of(&turns.blocks).map(|(_, step)| step);
    let steps: Vec<&Instruction> = steps.collect();
    let mut all = vec![Next::Apart(Distance::NONE); facts.classes.len()];
    for step in &steps {
        // A block's number is the same in all turns; it is seldom asked for in a loop.
        let known = match step.specials.contains(&Special::Ctaid(0)) {
            true => Next::Unknown,
            false => Next::Unset,
        };
        for register in &step.writes {
            all[register.0 as usize] = known;
        }
    }
    for register in &facts.live[turns.head] {
        let mut writes = steps.iter().filter(|step| step.writes.contains(register));
        let counts = match (writes.next(), writes.next()) {
            (Some(step), None) => adds(facts, turns, *register, step),
            _ => None,
        };
        let known = &mut all[register.0 as usize];
        let (times, by) = match (counts, *known) {
            (Some(Arg::Reg(times)), _) => (Some(times), 1),
            (Some(Arg::Imm(Immediate::Int { bits, .. })), _) => (None, bits as i64),
            (_, Next::Unset) => {
                *known = Next::Unknown;
                continue;
            }
            _ => continue,
        };
        *known = Next::Apart(Distance::of(times, by));
    }
    settle(&mut all, &steps);
    all
}

fn settled(body: &Body) -> Vec<Next> {
    let mut all = vec![Next::Unset; body.tables.registers.len()];
    let steps = body.steps.iter().filter_map(|step| match step {
        Step::Instruction(step) => Some(step),
        Step::Label(_) => None,
    });
    let steps: Vec<&Instruction> = steps.collect();
    settle(&mut all, &steps);
    all
}

/// Completes what is known of registers by what steps write.
fn settle(all: &mut Vec<Next>, steps: &[&Instruction]) {
    loop {
        let before = all.clone();
        for step in steps {
            let next = next(step, all);
            for register in &step.writes {
                let known = &mut all[register.0 as usize];
                *known = match (*known, next) {
                    (Next::Unset, next) => next,
                    (known, Next::Unset) => known,
                    (known, next) if known == next => known,
                    _ => Next::Unknown,
                };
            }
        }
        if *all == before {
            return;
        }
    }
}

/// What is known of what a step writes.
fn next(step: &Instruction, all: &[Next]) -> Next {
    let operation = &step.operation;
    let mut times = None;
    let mut is_apart = false;
    for register in &step.reads {
        match all[register.0 as usize] {
            Next::Unset => return Next::Unset,
            Next::Unknown => return Next::Unknown,
            Next::Apart(Distance::NONE) => {}
            Next::Apart(apart) if is_apart && apart.times != times => return Next::Unknown,
            Next::Apart(apart) => (times, is_apart) = (apart.times, true),
        }
    }
    for special in &step.specials {
        match special {
            Special::Ctaid(0) if is_apart && times.is_some() => return Next::Unknown,
            Special::Ctaid(0) => is_apart = true,
            Special::Tid(_)
            | Special::Ntid(_)
            | Special::Nctaid(_)
            | Special::Ctaid(_)
            | Special::Laneid => {}
            _ => return Next::Unknown,
        }
    }
    if !is_apart {
        return match operation.pure() || operation.loads_parameter() {
            true => Next::Apart(Distance::NONE),
            false => Next::Unknown,
        };
    }
    let stride = |by| {
        Some(Stride {
            step: by,
            ..Stride::same(0)
        })
    };
    let of = |arg: &Arg| match arg {
        Arg::Reg(register) => match all[register.0 as usize] {
            Next::Apart(apart) => stride(apart.by),
            _ => None,
        },
        Arg::Special(special) => stride(i64::from(*special == Special::Ctaid(0))),
        Arg::Imm(Immediate::Int { bits, .. }) => Some(Stride::number(*bits)),
        Arg::Imm(_) | Arg::Symbol(..) => stride(0),
        _ => None,
    };
    // Columns mostly go on in a row.
    match operation.division() {
        Some(Division {
            from, rest: true, ..
        }) => return all[from.0 as usize],
        Some(Division {
            by: Divisor::Register(_),
            ..
        }) => return Next::Apart(Distance::NONE),
        _ => {}
    }
    if let Some(Stride { step: by, .. }) = operation.likely_stride(&of) {
        return Next::Apart(Distance::of(times, by));
    }
    // A number of the block by what all have.
    let by = |arg: &Arg| of(arg).map_or(0, |stride| stride.step);
    match operation.factors() {
        Some([a, b]) if times.is_none() => match (by(a), by(b), a, b) {
            (by, 0, _, Arg::Reg(times)) | (0, by, Arg::Reg(times), _) if by != 0 => {
                Next::Apart(Distance::of(Some(*times), by))
            }
            _ => Next::Unknown,
        },
        _ => Next::Unknown,
    }
}

/// By register, whether it is computed from a special register like this.
pub(super) fn computed_from(body: &Body, like: impl Fn(&Special) -> bool) -> Vec<bool> {
    marked(body, &[], |step, computed| {
        if step.specials.iter().any(&like) || computed.any(&step.reads) {
            computed.add_all(&step.writes);
        }
    })
}
