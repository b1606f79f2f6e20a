//! Waits at an `mbarrier`: tests of a phase that a thread does again and again, and nothing else,
//! until others have completed the phase.
//!
//! A kernel that is wrong leaves its threads there for ever. Other polls may see memory that
//! anybody writes, but an `mbarrier` is the cluster's own. So where none of a cluster's threads can
//! do anything but test again, and nothing happened since each has, the launch is over.

use ptx::ast::Immediate;
use smallvec::SmallVec;

use cranelift_codegen::ir::condcodes::IntCC;

use super::decode::{Arg, Flow, RegId};
use super::liveness::kept;
use super::program::{Body, Step};

/// A loop of more steps is not looked at.
const MOST_STEPS: usize = 64;

/// The steps where threads wait so: who finds the phase incomplete is there again, and has all
/// registers that it may still read as they were.
pub(crate) fn mbarrier_waits(body: &Body) -> Vec<u32> {
    let loops: Vec<(usize, Written)> = body
        .steps
        .iter()
        .enumerate()
        .filter_map(|(at, step)| Some((at, again(body, at, step)?)))
        .collect();
    if loops.is_empty() {
        return vec![];
    }
    let tests: Vec<usize> = loops.iter().map(|(at, _)| *at).collect();
    let Some(kept) = kept(body, &tests) else {
        return vec![];
    };
    let same = loops.iter().zip(&kept.waits).filter(|((_, written), at)| {
        let changes = |register: &RegId| at.live.contains(register);
        !written.iter().any(changes)
    });
    same.map(|((at, _), _)| *at as u32).collect()
}

/// Registers that were written.
type Written = SmallVec<[RegId; 8]>;

/// What a thread writes on its way from the test at `start`, which answers "no", back to it.
/// `None` if it is no such test, or the way is not known, or does more than compute.
fn again(body: &Body, start: usize, test: &Step) -> Option<Written> {
    let Step::Instruction(test) = test else {
        return None;
    };
    if !test.operation.tests_mbarrier() || test.guard.is_some() {
        return None;
    }
    let mut written = Written::new();
    // The values of registers, as far as they are known; the last holds.
    let mut known: SmallVec<[(RegId, Option<u32>); 8]> = SmallVec::new();
    for register in &test.writes {
        written.push(*register);
        known.push((*register, Some(0)));
    }
    let mut at = start + 1;
    for _ in 0..MOST_STEPS {
        if at == start {
            return Some(written);
        }
        let instruction = match body.steps.get(at)? {
            Step::Label(_) => {
                at += 1;
                continue;
            }
            Step::Instruction(instruction) => instruction,
        };
        let value = |register: RegId| {
            let last = known.iter().rev().find(|(of, _)| *of == register);
            last.and_then(|(_, value)| *value)
        };
        at += 1;
        if let Some((predicate, negated)) = instruction.guard
            && (value(predicate)? != 0) == negated
        {
            continue;
        }
        let operation = &instruction.operation;
        match operation.flow() {
            Flow::Next => {}
            Flow::Jump(label) => {
                let is_label = |step: &Step| matches!(step, Step::Label(to) if *to == label);
                at = body.steps.iter().position(is_label)?;
                continue;
            }
            Flow::Table(_) | Flow::Leave => return None,
        }
        if !operation.pure() || !instruction.specials.is_empty() {
            return None;
        }
        let number = |arg: &Arg| match arg {
            Arg::Reg(register) => value(*register),
            Arg::Imm(Immediate::Int { bits, .. }) => Some(*bits as u32),
            _ => None,
        };
        let result = if let Some((condition, a, b)) = operation.comparison() {
            match (condition, number(a), number(b)) {
                (IntCC::Equal, Some(a), Some(b)) => Some(u32::from(a == b)),
                (IntCC::NotEqual, Some(a), Some(b)) => Some(u32::from(a != b)),
                _ => None,
            }
        } else if let Some((condition, a, b)) = operation.selects() {
            match number(condition) {
                Some(0) => number(b),
                Some(_) => number(a),
                None => None,
            }
        } else {
            None
        };
        for register in &instruction.writes {
            written.push(*register);
            known.push((*register, result.filter(|_| instruction.writes.len() == 1)));
        }
    }
    None
}
