//! Comparisons are made again where control parts on them, behind a wait.
//!
//! `nvcc` compares `i < n` once, and branches on it before a barrier and behind it. A comparison
//! right before its branch tells what most threads do from the first one's number alone. From
//! anywhere else, each thread's result is asked.

use std::collections::{HashMap, HashSet};

use ptx::ast::{Immediate, Type};

use super::body::{Pending, PendingStep, named};
use super::loops::is_wide;
use crate::jit::decode::{Arg, RegId, Special};
use crate::jit::program::Tables;

/// Operations that are cheap to do again, by opcode and modifiers.
const CHEAP: [&[&str]; 11] = [
    &["mov", "u32"],
    &["mov", "b32"],
    &["mov", "s32"],
    &["ld", "param", "u32"],
    &["ld", "param", "s32"],
    &["ld", "param", "b32"],
    &["add", "s32"],
    &["add", "u32"],
    &["mul", "lo", "s32"],
    &["mad", "lo", "s32"],
    &["shl", "b32"],
];

/// What words are compared for.
const CONDITIONS: [&str; 6] = ["eq", "ne", "lt", "le", "gt", "ge"];

/// Operations at which threads wait for each other.
const WAITS: [&str; 6] = ["bar", "barrier", "shfl", "vote", "match", "redux"];

/// Makes comparisons again right before the branches on them, where a wait lies between.
///
/// What is compared is written once, before the first label and the first branch, and computed from
/// what is the same whenever it is read. So it is what it was, and all threads have it.
pub(super) fn compare(steps: &mut Vec<PendingStep<'_>>, tables: &mut Tables) {
    let compared = compared(steps, tables);
    if compared.is_empty() {
        return;
    }
    let mut last_wait = 0;
    let mut all = Vec::with_capacity(steps.len());
    for (at, mut step) in std::mem::take(steps).into_iter().enumerate() {
        if let PendingStep::Instruction(pending) = &mut step {
            let opcode = pending.instruction.opcode.as_str();
            if WAITS.contains(&opcode) {
                last_wait = at;
            }
            if let ("bra", Some((guard, _))) = (opcode, &mut pending.guard)
                && let Some(made) = compared.get(guard)
                && last_wait > *made
                && let Some(PendingStep::Instruction(comparison)) = all.get(*made)
            {
                let (own, comparison) = again(comparison, tables);
                *guard = own;
                all.push(PendingStep::Instruction(comparison));
            }
        }
        all.push(step);
    }
    *steps = all;
}

/// By predicate, the step that compares for it.
fn compared(steps: &[PendingStep<'_>], tables: &Tables) -> HashMap<RegId, usize> {
    let mut writes: HashMap<RegId, usize> = HashMap::new();
    for step in steps {
        if let PendingStep::Instruction(pending) = step {
            let (written, _) = named(&pending.instruction, &pending.args);
            let written = written.into_iter();
            written.for_each(|register| *writes.entry(register).or_default() += 1);
        }
    }
    let (mut stays, mut compared) = (HashSet::new(), HashMap::new());
    for (at, step) in steps.iter().enumerate() {
        let PendingStep::Instruction(pending) = step else {
            break;
        };
        if leaves(pending) {
            break;
        }
        let [Arg::Reg(to), from @ ..] = &pending.args[..] else {
            continue;
        };
        let known = from.iter().all(|arg| is_known(arg, &stays));
        if pending.guard.is_some() || !known || writes.get(to) != Some(&1) {
            continue;
        }
        if is_of_words(pending, tables) {
            compared.insert(*to, at);
        } else if is_cheap(pending) {
            stays.insert(*to);
        }
    }
    compared
}

/// The same comparison for a predicate of its own.
fn again<'a>(comparison: &Pending<'a>, tables: &mut Tables) -> (RegId, Pending<'a>) {
    let own = RegId(tables.registers.len() as u32);
    tables.registers.push(Type::Pred);
    let mut args = comparison.args.clone();
    args[0] = Arg::Reg(own);
    let comparison = Pending {
        instruction: comparison.instruction.clone(),
        guard: None,
        args,
    };
    (own, comparison)
}

/// Whether control may not go on with the next step.
fn leaves(pending: &Pending<'_>) -> bool {
    matches!(
        pending.instruction.opcode.as_str(),
        "bra" | "brx" | "ret" | "exit" | "trap" | "call"
    )
}

/// Whether an operand is the same whenever it is read.
fn is_known(arg: &Arg, stays: &HashSet<RegId>) -> bool {
    use Special::*;
    match arg {
        Arg::Reg(register) => stays.contains(register),
        Arg::Special(special) => {
            matches!(special, Tid(_) | Ntid(_) | Ctaid(_) | Nctaid(_) | Laneid)
        }
        Arg::Imm(_) | Arg::Symbol(..) => true,
        Arg::Address(base, _) => matches!(**base, Arg::Symbol(..)),
        _ => false,
    }
}

fn is_cheap(pending: &Pending<'_>) -> bool {
    let instruction = &pending.instruction;
    CHEAP.iter().any(|words| {
        let [opcode, modifiers @ ..] = words else {
            return false;
        };
        instruction.opcode == *opcode && instruction.modifiers == modifiers
    })
}

/// Whether it compares two numbers of 32 bits and does nothing else. What PTX does not have is left
/// out, so that it is refused once.
fn is_of_words(pending: &Pending<'_>, tables: &Tables) -> bool {
    let instruction = &pending.instruction;
    let ("setp", [condition, ty]) = (instruction.opcode.as_str(), &instruction.modifiers[..])
    else {
        return false;
    };
    let [Arg::Reg(to), a, b] = &pending.args[..] else {
        return false;
    };
    let ty_of = |register: &RegId| tables.registers[register.0 as usize];
    let is_word = |arg: &Arg| match arg {
        Arg::Reg(register) => is_wide(ty_of(register)) == Some(false),
        arg => matches!(arg, Arg::Imm(Immediate::Int { .. })),
    };
    CONDITIONS.contains(&condition.as_str())
        && matches!(ty.as_str(), "s32" | "u32")
        && ty_of(to) == Type::Pred
        && is_word(a)
        && is_word(b)
}

#[cfg(test)]
mod tests {
    use crate::jit::harness::{load, module};
    use crate::jit::program::Step;

    /// How many comparisons a kernel has.
    fn comparisons(body: &str) -> usize {
        let module = load(&module(&format!(
            ".visible .entry k(.param .u64 to, .param .u32 n) {{
                .reg .b32 %r<8>; .reg .b64 %rd<2>; .reg .pred %p<4>; .shared .b32 s[32];
                ld.param.u64 %rd1, [to]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x;
                {body}
                st.shared.u32 [s], %r2; out: ret;
            }}"
        )));
        let body = module.program().functions[0].body.as_ref();
        let steps = &body.expect("it has a body").steps;
        let compares = |step: &&Step| match step {
            Step::Instruction(step) => step.operation.comparison().is_some(),
            Step::Label(_) => false,
        };
        steps.iter().filter(compares).count()
    }

    #[test]
    fn comparisons_are_made_again_behind_waits() {
        for (body, count) in [
            ("setp.ge.u32 %p1, %r2, %r1; bar.sync 0; @%p1 bra out;", 2),
            (
                "setp.ge.u32 %p1, %r2, %r1; bar.sync 0; @!%p1 bra out; bar.sync 1; @%p1 bra out;",
                3,
            ),
            (
                "mov.u32 %r3, %ntid.x; mov.u32 %r4, %ctaid.x; mad.lo.s32 %r5, %r3, %r4, %r2;
                setp.gt.s32 %p1, %r5, 100; setp.eq.s32 %p2, %r2, 0; @%p2 bra in;
                in: barrier.sync 0; @%p1 bra out;",
                3,
            ),
        ] {
            assert_eq!(comparisons(body), count, "{body}");
        }
    }

    #[test]
    fn comparisons_that_may_come_out_otherwise_are_not() {
        for body in [
            // Without a wait.
            "setp.ge.u32 %p1, %r2, %r1; add.u32 %r3, %r2, 1; @%p1 bra out;",
            // What is compared, or what came of it, is written once more, or under a guard.
            "setp.ge.u32 %p1, %r2, %r1; bar.sync 0; add.u32 %r2, %r2, 1; @%p1 bra out;",
            "setp.ge.u32 %p1, %r2, %r1; bar.sync 0; not.pred %p1, %p1; @%p1 bra out;",
            "@%p3 setp.ge.u32 %p1, %r2, %r1; bar.sync 0; @%p1 bra out;",
            "@%p3 mov.u32 %r3, %ntid.x; setp.ge.u32 %p1, %r2, %r3; bar.sync 0; @%p1 bra out;",
            // It depends on memory, or on the time.
            "ld.global.u32 %r3, [%rd1]; setp.ge.u32 %p1, %r2, %r3; bar.sync 0; @%p1 bra out;",
            "mov.u32 %r3, %clock; setp.ge.u32 %p1, %r2, %r3; bar.sync 0; @%p1 bra out;",
            // Not all threads come to it, or several times.
            "@%p3 bra in; setp.ge.u32 %p1, %r2, %r1; in: bar.sync 0; @%p1 bra out;",
            "again: setp.ge.u32 %p1, %r2, %r1; bar.sync 0; @%p1 bra out; @%p3 bra again;",
            "@%p3 ret; setp.ge.u32 %p1, %r2, %r1; bar.sync 0; @%p1 bra out;",
            // More than two words are compared.
            "setp.ge.and.u32 %p1, %r2, %r1, %p3; bar.sync 0; @%p1 bra out;",
            "cvt.u64.u32 %rd0, %r2; setp.ge.u64 %p1, %rd0, 9; bar.sync 0; @%p1 bra out;",
        ] {
            let once = comparisons(body);
            assert!(once <= 1, "{body}");
        }
    }
}
