//! Comparisons are made again where control parts on them, behind a wait.
//!
//! `nvcc` compares `i < n` once, and branches on it before a barrier and behind it. A comparison
//! right before its branch tells what most threads do from the first one's number alone. From
//! anywhere else, each thread's result is asked.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use ptx::ast::{Immediate, Type};

use super::body::{Pending, PendingStep, named};
use super::loops::{is_wide, labels, target};
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

/// Memory that all threads of a block see alike.
const SPACES: [&str; 3] = ["shared", "global", "const"];

/// Makes comparisons again right before the branches on them, where a wait lies between.
///
/// What is compared is written once. No way to the comparison goes past that, and none to the
/// branch goes past the comparison. So it is what it was. To have it still costs nothing: it is
/// computed from what is the same whenever it is read, or it is read behind the branch, too.
pub(super) fn compare(steps: &mut Vec<PendingStep<'_>>, tables: &mut Tables) {
    let Some(until) = certain_until(steps, tables) else {
        return;
    };
    let compared = compared(steps, tables, &until);
    if compared.is_empty() {
        return;
    }
    let mut last_wait = 0;
    let mut all = Vec::with_capacity(steps.len());
    let mut places = Vec::with_capacity(steps.len());
    for (at, mut step) in std::mem::take(steps).into_iter().enumerate() {
        if let PendingStep::Instruction(pending) = &mut step {
            let opcode = pending.instruction.opcode.as_str();
            if WAITS.contains(&opcode) {
                last_wait = at;
            }
            if let ("bra", Some((guard, _))) = (opcode, &mut pending.guard)
                && let Some(Made { by, read_until }) = compared.get(guard)
                && (last_wait > *by && at < until[*by] && at < *read_until)
                && let Some(PendingStep::Instruction(comparison)) = all.get(places[*by])
            {
                let (own, comparison) = again(comparison, tables);
                *guard = own;
                all.push(PendingStep::Instruction(comparison));
            }
        }
        places.push(all.len());
        all.push(step);
    }
    *steps = all;
}

/// What a register holds that is written once.
#[derive(Clone, Copy)]
struct Made {
    /// The step that writes it.
    by: usize,
    /// The last step that reads it, or what is compared for it; `usize::MAX` of what is computed
    /// from what is the same whenever it is read.
    read_until: usize,
}

/// For each step, that up to which all steps behind it come after it only, in the order of the
/// source. `None` of a body with branches by a table.
fn certain_until(steps: &[PendingStep<'_>], tables: &Tables) -> Option<Vec<usize>> {
    let labels = labels(steps, tables);
    let mut jumps = vec![];
    // The first step that is jumped to from one or from those behind it.
    let mut least = vec![usize::MAX; steps.len() + 1];
    for (at, step) in steps.iter().enumerate() {
        let PendingStep::Instruction(pending) = step else {
            continue;
        };
        match pending.instruction.opcode.as_str() {
            "bra" => {
                let to = labels[target(pending)? as usize];
                least[at] = to;
                jumps.push((at, to));
            }
            "brx" => return None,
            _ => {}
        }
    }
    for at in (0..steps.len()).rev() {
        least[at] = least[at].min(least[at + 1]);
    }
    let mut jumps = jumps.into_iter().filter(|(from, to)| to > from).peekable();
    // Of the jumps that lead past a step: where those lead to behind which nothing leads back, and
    // the last that others lead to.
    let (mut past, mut back) = (BinaryHeap::new(), 0);
    let until = (0..steps.len()).map(|at| {
        while let Some((_, to)) = jumps.next_if(|(from, _)| *from < at) {
            match least.get(to) {
                Some(least) if *least >= to => past.push(Reverse(to)),
                _ => back = back.max(to),
            }
        }
        while past.peek().is_some_and(|Reverse(to)| *to <= at) {
            past.pop();
        }
        match past.peek() {
            _ if back > at => at,
            Some(Reverse(to)) => *to,
            None => steps.len(),
        }
    });
    Some(until.collect())
}

/// By predicate, the step that compares for it.
fn compared(steps: &[PendingStep<'_>], tables: &Tables, until: &[usize]) -> HashMap<RegId, Made> {
    let mut writes = vec![0u32; tables.registers.len()];
    let mut reads = vec![0; tables.registers.len()];
    for (at, step) in steps.iter().enumerate() {
        if let PendingStep::Instruction(pending) = step {
            let (written, read) = named(&pending.instruction, &pending.args);
            written.iter().for_each(|id| writes[id.0 as usize] += 1);
            read.iter().for_each(|id| reads[id.0 as usize] = at);
        }
    }
    let (mut stays, mut compared) = (HashMap::<RegId, Made>::new(), HashMap::new());
    for (at, step) in steps.iter().enumerate() {
        let PendingStep::Instruction(pending) = step else {
            continue;
        };
        let [Arg::Reg(to), from @ ..] = &pending.args[..] else {
            continue;
        };
        if pending.guard.is_some() || writes[to.0 as usize] != 1 {
            continue;
        }
        let read_until = |arg: &Arg| match arg {
            Arg::Reg(register) => {
                let made = stays.get(register).filter(|made| at < until[made.by]);
                made.map(|made| made.read_until)
            }
            arg => is_known(arg).then_some(usize::MAX),
        };
        let mut all = from.iter().map(read_until);
        let all = all.try_fold(usize::MAX, |least, read| Some(least.min(read?)));
        let Some(read_until) = all else {
            continue;
        };
        let by = at;
        if is_of_words(pending, tables) {
            compared.insert(*to, Made { by, read_until });
        } else if is_cheap(pending) || is_load(pending) {
            let is_known = read_until == usize::MAX && !is_load(pending);
            let read_until = if is_known {
                usize::MAX
            } else {
                reads[to.0 as usize]
            };
            stays.insert(*to, Made { by, read_until });
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

/// Whether an operand that is no register is the same whenever it is read.
fn is_known(arg: &Arg) -> bool {
    use Special::*;
    match arg {
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

/// Whether all threads load the same, if none writes there meanwhile.
fn is_load(pending: &Pending<'_>) -> bool {
    let instruction = &pending.instruction;
    let [space, _] = &instruction.modifiers[..] else {
        return false;
    };
    instruction.opcode == "ld" && SPACES.contains(&space.as_str())
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
            // In a loop, behind an end, behind a branch that leads past other things.
            (
                "again: setp.ge.u32 %p1, %r2, %r1; bar.sync 0; @%p1 bra out; @%p3 bra again;",
                2,
            ),
            (
                "@%p3 ret; setp.ge.u32 %p1, %r2, %r1; bar.sync 0; @%p1 bra out;",
                2,
            ),
            (
                "@%p3 bra in; bar.sync 1; in: setp.ge.u32 %p1, %r2, %r1; bar.sync 0; @%p1 bra out;",
                2,
            ),
            // A branch past it leads past its branch, too.
            (
                "@%p3 bra out; setp.ge.u32 %p1, %r2, %r1; bar.sync 0; @%p1 bra out;",
                2,
            ),
            // What it needs is read behind the branch.
            (
                "ld.shared.u32 %r3, [s]; add.u32 %r4, %r3, %r2; setp.ge.u32 %p1, %r4, %r1;
                bar.sync 0; @%p1 bra out; st.shared.u32 [s], %r4;",
                2,
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
            // Nor to what is compared.
            "@%p3 bra in; mov.u32 %r3, %ntid.x; in: setp.ge.u32 %p1, %r2, %r3; bar.sync 0;
            @%p1 bra out;",
            // Past it, and back to before its branch.
            "bra first; in: bar.sync 0; @%p1 bra out; ret;
            first: setp.ge.u32 %p1, %r2, %r1; bra in;",
            "@%p3 bra far; setp.ge.u32 %p1, %r2, %r1; in: bar.sync 0; @%p1 bra out; ret;
            far: bra in;",
            // What it needs is not read behind the branch, or not all.
            "ld.shared.u32 %r3, [s]; add.u32 %r4, %r3, %r2; setp.ge.u32 %p1, %r4, %r1; bar.sync 0;
            @%p1 bra out;",
            "ld.shared.u32 %r3, [s]; add.u32 %r4, %r3, %r2; setp.ge.u32 %p1, %r4, %r3; bar.sync 0;
            @%p1 bra out; st.shared.u32 [s], %r4;",
            // By a table, any label may be come to.
            "table: .branchtargets in, out; setp.ge.u32 %p1, %r2, %r1; bar.sync 0; @%p1 bra out;
            in: brx.idx %r2, table;",
            // More than two words are compared.
            "setp.ge.and.u32 %p1, %r2, %r1, %p3; bar.sync 0; @%p1 bra out;",
            "cvt.u64.u32 %rd0, %r2; setp.ge.u64 %p1, %rd0, 9; bar.sync 0; @%p1 bra out;",
        ] {
            let once = comparisons(body);
            assert!(once <= 1, "{body}");
        }
    }
}
