//! Waits at an `mbarrier`: tests of a phase that a thread does again and again, and nothing else
//! that another can see, until others have completed the phase.
//!
//! A kernel that is wrong leaves its threads there for ever. Other polls may see memory that
//! anybody writes, but an `mbarrier` is the cluster's own. So where none of a cluster's threads can
//! do anything but test again, and nothing happened since each has, the launch is over.

use std::collections::{HashMap, HashSet};

use ptx::ast::{Immediate, Type};

use super::decode::{Arg, Flow, RegId};
use super::program::{Body, Instruction, Step};

/// A loop of more steps is not looked at.
const MOST_STEPS: usize = 64;

/// The most tests and pauses of such a loop.
const MOST_POLLS: usize = 8;

/// After so many rounds in which nothing happened, each thread has done all tests of its loop with
/// the operands that they have in every turn from the second on.
pub(crate) const ROUNDS: usize = 2 * MOST_POLLS + 1;

/// The steps where threads wait so: who finds the phase incomplete comes back to it, and tests the
/// same. They are the tests, and pauses between them.
pub(crate) fn mbarrier_waits(body: &Body) -> Vec<u32> {
    let is = |at: usize, what: fn(&Instruction) -> bool| instruction(body, at).is_some_and(what);
    let steps = 0..body.steps.len();
    if !steps.clone().any(|at| is(at, is_test)) {
        return vec![];
    }
    let waits = steps.filter(|at| (is(*at, is_test) || is(*at, is_pause)) && is_wait(body, *at));
    waits.map(|at| at as u32).collect()
}

fn instruction(body: &Body, at: usize) -> Option<&Instruction> {
    match body.steps.get(at)? {
        Step::Instruction(instruction) => Some(instruction),
        Step::Label(_) => None,
    }
}

fn is_test(instruction: &Instruction) -> bool {
    instruction.operation.tests_mbarrier() && instruction.guard.is_none()
}

fn is_pause(instruction: &Instruction) -> bool {
    instruction.operation.pauses() && instruction.guard.is_none()
}

/// What is known of a register, from one turn of a loop to the next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    /// It is this number.
    Number(u64),
    /// It is the same in all turns but the first.
    Same,
    /// It may change.
    Varies,
}

/// What is known of registers in a turn of a loop. Of those that it does not write, they are the
/// same.
type Values = HashMap<RegId, Value>;

fn is_wait(body: &Body, start: usize) -> bool {
    let written = |values: &Values| values.keys().copied().collect::<HashSet<_>>();
    // What a turn writes may vary in the next, unless the turn writes the same whatever it was.
    let Some(first) = walk(body, start, Values::new(), false) else {
        return false;
    };
    let varying = first.keys().map(|register| (*register, Value::Varies));
    let Some(left) = walk(body, start, varying.collect(), false) else {
        return false;
    };
    written(&left) == written(&first) && walk(body, start, left, true).is_some()
}

/// Follows a thread from `start` back to it, through a turn in which all tests answer "no". Gives
/// what is known at its end of the registers that it was given values of, and that it writes.
/// `None` if the way is not known, tests nothing, or does more than compute; also, if `strict`,
/// where a test may have other operands than in another turn.
fn walk(body: &Body, start: usize, mut values: Values, strict: bool) -> Option<Values> {
    let (mut at, mut polls, mut tested) = (start, 0, false);
    for step in 0..MOST_STEPS {
        if at == start && step > 0 {
            return tested.then_some(values);
        }
        let Some(instruction) = instruction(body, at) else {
            at += 1;
            continue;
        };
        at += 1;
        let value = |register: &RegId| values.get(register).copied().unwrap_or(Value::Same);
        if let Some((predicate, negated)) = &instruction.guard {
            match value(predicate) {
                Value::Number(number) if (number != 0) == *negated => continue,
                Value::Number(_) => {}
                _ => return None,
            }
        }
        let operation = &instruction.operation;
        let varies = instruction
            .reads
            .iter()
            .any(|read| value(read) == Value::Varies);
        let result = match operation.flow() {
            Flow::Jump(label) => {
                let is_label = |step: &Step| matches!(step, Step::Label(to) if *to == label);
                at = body.steps.iter().position(is_label)?;
                continue;
            }
            Flow::Table(_) | Flow::Leave => return None,
            Flow::Next if is_test(instruction) || is_pause(instruction) => {
                polls += 1;
                tested |= is_test(instruction);
                if polls > MOST_POLLS || strict && is_test(instruction) && varies {
                    return None;
                }
                Value::Number(0)
            }
            Flow::Next if operation.pure() && instruction.specials.is_empty() => {
                let number = |arg: &Arg| match arg {
                    Arg::Reg(register) => match value(register) {
                        Value::Number(number) => Some(number),
                        _ => None,
                    },
                    Arg::Imm(Immediate::Int { bits, .. }) => Some(*bits),
                    _ => None,
                };
                match operation.evaluates(&number) {
                    Some(number) => Value::Number(number),
                    None if varies => Value::Varies,
                    None => Value::Same,
                }
            }
            Flow::Next => return None,
        };
        for register in &instruction.writes {
            let bits = match body.tables.registers[register.0 as usize] {
                Type::Pred => 1,
                ty => 8 * ty.size().min(8),
            };
            let value = match (result, instruction.writes.len()) {
                (Value::Number(number), 1) => Value::Number(number & (u64::MAX >> (64 - bits))),
                (Value::Number(_), _) => Value::Same,
                (other, _) => other,
            };
            values.insert(*register, value);
        }
    }
    None
}
