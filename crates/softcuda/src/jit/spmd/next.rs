//! How far from what a block accesses the next one does. Compiled code fetches that ahead where the
//! processor does not foresee it: see [`Plan::next_block`](super::Plan::next_block).
//!
//! What is said here is a guess: nothing depends on it but time.

use super::wide::has_short_rows;
use crate::jit::decode::{Arg, RegId, Special, Stride};
use crate::jit::program::{Body, Instruction, Step};
use ptx::ast::Immediate;

/// How much more a value is in the next block of a row of the grid: `by` times something that is
/// the same in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Apart {
    /// A register; 1, where there is none.
    pub times: Option<RegId>,
    pub by: i64,
}

impl Apart {
    const NOT: Apart = Apart { times: None, by: 0 };
}

/// What is known of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nothing is written to it.
    Unset,
    Apart(Apart),
    Unknown,
}

/// By register that holds an address, how far the next block's is, where it is worth while to
/// fetch what is there. In blocks of short rows, each thread goes through memory in pieces that lie
/// far apart; blocks that go through rows of memory begin a row far from where the last one ended.
/// Where blocks follow each other in memory, the processor foresees what comes.
pub(super) fn of(body: &Body) -> Vec<Option<Apart>> {
    let short = has_short_rows(body);
    let of_threads = of_threads(body);
    let worth = |apart: &Apart| {
        let far = |register: RegId| !of_threads[register.0 as usize];
        apart.by != 0 && (short || apart.times.is_some_and(far))
    };
    let all = settled(body).into_iter();
    all.map(|next| match next {
        Next::Apart(apart) => Some(apart).filter(worth),
        _ => None,
    })
    .collect()
}

fn settled(body: &Body) -> Vec<Next> {
    let mut all = vec![Next::Unset; body.tables.registers.len()];
    loop {
        let before = all.clone();
        for step in &body.steps {
            let Step::Instruction(step) = step else {
                continue;
            };
            let next = next(step, &all);
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
        if all == before {
            return all;
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
            Next::Apart(Apart::NOT) => {}
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
            true => Next::Apart(Apart::NOT),
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
    if let Some(Stride { step: by, .. }) = operation.stride(&of) {
        return Next::Apart(Apart { times, by });
    }
    // A number of the block by what all have.
    let by = |arg: &Arg| of(arg).map_or(0, |stride| stride.step);
    match operation.factors() {
        Some([a, b]) if times.is_none() => match (by(a), by(b), a, b) {
            (by, 0, _, Arg::Reg(times)) | (0, by, Arg::Reg(times), _) if by != 0 => {
                let times = Some(*times);
                Next::Apart(Apart { times, by })
            }
            _ => Next::Unknown,
        },
        _ => Next::Unknown,
    }
}

/// By register, whether it is computed from the number of threads of a block.
fn of_threads(body: &Body) -> Vec<bool> {
    let mut all = vec![false; body.tables.registers.len()];
    loop {
        let mut more = false;
        for step in &body.steps {
            let Step::Instruction(step) = step else {
                continue;
            };
            let asks = |special: &Special| matches!(special, Special::Ntid(_));
            if step.specials.iter().any(asks)
                || step.reads.iter().any(|register| all[register.0 as usize])
            {
                for register in &step.writes {
                    more |= !std::mem::replace(&mut all[register.0 as usize], true);
                }
            }
        }
        if !more {
            return all;
        }
    }
}
