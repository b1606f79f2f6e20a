//! Registers of their own for loops. Compilers let a loop count in a register that holds something
//! else before it, if nobody needs that afterwards:
//!
//! ```text
//!     mov.u32 %r1, %tid.x;
//!     ...
//! $loop:
//!     add.s32 %r1, %r1, %r2;
//!     setp.lt.s32 %p1, %r1, %r3;
//!     @%p1 bra $loop;
//! ```
//!
//! Here the loop counts in a copy. So `%r1` is the number of the thread wherever it is read: where
//! threads wait, it is [computed again](crate::jit::recompute) instead of kept.

use ptx::ast::{Pos, Type};
use smallvec::SmallVec;

use super::body::{Pending, PendingStep, named};
use crate::jit::decode::{Arg, RegId, Symbol};
use crate::jit::program::Tables;

/// Gives loops registers of their own.
pub(super) fn split(steps: &mut Vec<PendingStep<'_>>, tables: &mut Tables) {
    let Some(mut flow) = Flow::of(steps, tables) else {
        return;
    };
    let mut copies = vec![];
    for (head, end) in flow.loops() {
        for register in flow.counters(head, end, tables) {
            let own = RegId(tables.registers.len() as u32);
            tables.registers.push(tables.registers[register.0 as usize]);
            for (at, step) in (head..).zip(&mut steps[head..=end]) {
                flow.rename(at, register, own);
                if let PendingStep::Instruction(pending) = step {
                    let other = |id| if id == register { own } else { id };
                    let args = pending.args.iter_mut();
                    args.for_each(|arg| rename(arg, &other));
                }
            }
            copies.push((head, own, register));
        }
    }
    // The last come first: those before them stay where they are.
    copies.sort_by_key(|(head, ..)| std::cmp::Reverse(*head));
    for (head, to, from) in copies {
        let pos = steps[head..].iter().find_map(|step| match step {
            PendingStep::Instruction(pending) => Some(pending.instruction.pos),
            PendingStep::Label(_) => None,
        });
        let wide = is_wide(tables.registers[from.0 as usize]) == Some(true);
        steps.insert(head, copy(pos.unwrap_or_default(), wide, to, from));
    }
}

/// Whether registers of a type have 64 bits; `None` of types that loops do not count in.
pub(super) fn is_wide(ty: Type) -> Option<bool> {
    match ty {
        Type::U32 | Type::S32 | Type::B32 => Some(false),
        Type::U64 | Type::S64 | Type::B64 => Some(true),
        _ => None,
    }
}

fn copy(pos: Pos, wide: bool, to: RegId, from: RegId) -> PendingStep<'static> {
    let text = if wide { "mov.b64" } else { "mov.b32" };
    let args = vec![Arg::Reg(to), Arg::Reg(from)];
    PendingStep::Instruction(Pending::new(pos, None, text, args))
}

/// Puts other registers in the place of those that an operand names.
pub(super) fn rename(arg: &mut Arg, other: &impl Fn(RegId) -> RegId) {
    match arg {
        Arg::Reg(id) | Arg::Part(id, _) => *id = other(*id),
        Arg::Address(arg, _) | Arg::Not(arg) => rename(arg, other),
        Arg::Pair(a, b) => [a, b].into_iter().for_each(|arg| rename(arg, other)),
        Arg::Vector(args) | Arg::List(args) => args.iter_mut().for_each(|arg| rename(arg, other)),
        _ => {}
    }
}

/// What a step does, as far as it matters here.
#[derive(Default)]
struct Does {
    writes: SmallVec<[RegId; 2]>,
    reads: SmallVec<[RegId; 4]>,
    /// It has a guard: it may do nothing.
    may: bool,
    /// The step that it branches to.
    branches: Option<usize>,
    /// It does not go on with the step behind it, unless it does nothing.
    leaves: bool,
}

pub(super) struct Flow(Vec<Does>);

impl Flow {
    /// `None` of a body without loops, or with branches by a table.
    pub fn of(steps: &[PendingStep<'_>], tables: &Tables) -> Option<Flow> {
        let mut labels = vec![usize::MAX; tables.labels as usize];
        let mut has_loops = false;
        for (at, step) in steps.iter().enumerate() {
            match step {
                PendingStep::Label(label) => labels[*label as usize] = at,
                PendingStep::Instruction(pending) => match pending.instruction.opcode.as_str() {
                    "bra" => has_loops |= labels[target(pending)? as usize] < at,
                    "brx" => return None,
                    _ => {}
                },
            }
        }
        if !has_loops {
            return None;
        }
        let does = |step: &PendingStep<'_>| {
            let PendingStep::Instruction(pending) = step else {
                return Some(Does::default());
            };
            let (writes, mut reads) = named(&pending.instruction, &pending.args);
            reads.extend(pending.guard.map(|(guard, _)| guard));
            let opcode = pending.instruction.opcode.as_str();
            Some(Does {
                writes,
                reads,
                may: pending.guard.is_some(),
                branches: match opcode {
                    "bra" => Some(labels[target(pending)? as usize]),
                    _ => None,
                },
                leaves: matches!(opcode, "bra" | "ret" | "exit" | "trap"),
            })
        };
        steps.iter().map(does).collect::<Option<_>>().map(Flow)
    }

    /// The first and last steps of loops that are entered from the step before them alone.
    fn loops(&self) -> Vec<(usize, usize)> {
        let branches = || {
            let all = self.0.iter().enumerate();
            all.filter_map(|(at, does)| Some((at, does.branches?)))
        };
        let mut loops: Vec<(usize, usize)> = vec![];
        for (from, to) in branches().filter(|(from, to)| to <= from) {
            match loops.iter_mut().find(|(head, _)| *head == to) {
                Some((_, end)) => *end = from.max(*end),
                None => loops.push((to, from)),
            }
        }
        loops.retain(|(head, end)| {
            let inside = *head..=*end;
            let before = head.checked_sub(1).map(|at| &self.0[at]);
            before.is_some_and(|does| does.may || !does.leaves)
                && branches().all(|(from, to)| inside.contains(&from) || !inside.contains(&to))
        });
        loops
    }

    /// The registers that a loop counts in and that hold something else outside.
    fn counters(&self, head: usize, end: usize, tables: &Tables) -> Vec<RegId> {
        let mut found: Vec<RegId> = vec![];
        for register in self.0[head..=end].iter().flat_map(|does| &does.writes) {
            if !found.contains(register) && self.is_counter(*register, head, end, tables) {
                found.push(*register);
            }
        }
        found
    }

    fn is_counter(&self, register: RegId, head: usize, end: usize, tables: &Tables) -> bool {
        let passed = || tables.incoming.iter().chain(&tables.outgoing);
        if is_wide(tables.registers[register.0 as usize]).is_none()
            || passed().any(|(passed, _)| *passed == register)
        {
            return false;
        }
        let (before, behind) = (&self.0[..head], &self.0[end + 1..]);
        let writes = |does: &&Does| does.writes.contains(&register);
        let mut writers = before.iter().filter(writes);
        let once = writers.next().is_some_and(|does| !does.may)
            && writers.next().is_none()
            && !behind.iter().any(|does| writes(&does));
        let mut outside = before.iter().chain(behind);
        once && outside.any(|does| does.reads.contains(&register))
            && !self.is_read_behind(register, head, end)
    }

    /// Whether what a register holds when a loop is left may be read.
    fn is_read_behind(&self, register: RegId, head: usize, end: usize) -> bool {
        let branches = self.0[head..=end].iter().filter_map(|does| does.branches);
        let mut left: Vec<usize> = branches.filter(|to| !(head..=end).contains(to)).collect();
        left.extend(self.0[end].may.then_some(end + 1));
        self.is_read_from(register, left)
    }

    /// Whether what a register holds before one of these steps may be read.
    pub fn is_read_from(&self, register: RegId, mut work: Vec<usize>) -> bool {
        let mut seen = vec![false; self.0.len()];
        while let Some(mut at) = work.pop() {
            while let Some(does) = self.0.get(at) {
                if std::mem::replace(&mut seen[at], true) {
                    break;
                }
                if does.reads.contains(&register) {
                    return true;
                }
                if !does.may && does.writes.contains(&register) {
                    break;
                }
                work.extend(does.branches);
                if does.leaves && !does.may {
                    break;
                }
                at += 1;
            }
        }
        false
    }

    fn rename(&mut self, at: usize, from: RegId, to: RegId) {
        let Does { writes, reads, .. } = &mut self.0[at];
        let named = writes.iter_mut().chain(reads);
        named
            .filter(|register| **register == from)
            .for_each(|register| *register = to);
    }
}

/// By label, where it stands.
pub(super) fn labels(steps: &[PendingStep<'_>], tables: &Tables) -> Vec<usize> {
    let mut labels = vec![usize::MAX; tables.labels as usize];
    for (at, step) in steps.iter().enumerate() {
        if let PendingStep::Label(label) = step {
            labels[*label as usize] = at;
        }
    }
    labels
}

/// The label that a branch names.
pub(super) fn target(branch: &Pending<'_>) -> Option<u32> {
    match branch.args[..] {
        [Arg::Symbol(Symbol::Label(label), 0)] => Some(label),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::jit::harness;
    use crate::jit::program::Step;
    use crate::jit::recompute::recomputed;

    /// How many registers a kernel has that begins with the number of the thread in `%r1`, and
    /// whether that is computed again where threads wait.
    fn kernel(body: &str) -> (usize, bool) {
        let module = harness::load(&harness::module(&format!(
            ".visible .entry k(.param .u32 n) {{
                .reg .b32 %r<4>; .reg .pred %p<2>;
                mov.u32 %r1, %tid.x; ld.param.u32 %r2, [n];
                {body}
                ret;
            }}"
        )));
        let body = module.program().functions[0].body.as_ref();
        let body = body.expect("it has a body");
        let again = recomputed(body, &[]);
        let first = body.steps.iter().find_map(|step| match step {
            Step::Instruction(step) => step.writes.first(),
            Step::Label(_) => None,
        });
        let first = first.expect("it writes the thread's number first");
        let registers = body.tables.registers.len();
        (registers, again[first.0 as usize].is_some())
    }

    const NEXT: &str = "add.u32 %r1, %r1, 32; setp.lt.u32 %p1, %r1, %r2;";

    #[test]
    fn a_loop_has_a_register_of_its_own() {
        for (body, own) in [
            ("mov.u32 %r3, %r1; again: NEXT @%p1 bra again;", true),
            (
                "mov.u32 %r3, %r1; again: NEXT @!%p1 bra out; bra again; out:",
                true,
            ),
            // Nothing but the loop reads it.
            ("mov.u32 %r3, %r2; again: NEXT @%p1 bra again;", false),
            // It is read when the loop is over, at its end or in the middle.
            (
                "mov.u32 %r3, %r1; again: NEXT @%p1 bra again; mov.u32 %r3, %r1;",
                false,
            ),
            (
                "mov.u32 %r3, %r1; again: @%p1 bra out; NEXT @%p1 bra again; bra end;
              out: mov.u32 %r3, %r1; end:",
                false,
            ),
            // The loop is come to from elsewhere, or not entered from before it.
            (
                "mov.u32 %r3, %r1; @%p1 bra again; mov.u32 %r3, 1; again: NEXT @%p1 bra again;",
                false,
            ),
            (
                "mov.u32 %r3, %r1; @%p1 bra into; again: NEXT into: @%p1 bra again;",
                false,
            ),
            (
                "mov.u32 %r3, %r1; bra in; again: NEXT @%p1 bra again; bra out;
                in: bra again; out:",
                false,
            ),
            // A loop around it comes back to it, and what it wrote is still there.
            (
                "around: mov.u32 %r3, %r1; again: NEXT @%p1 bra again; setp.lt.u32 %p1, %r3, %r2;
              @%p1 bra around;",
                false,
            ),
            // It is written again elsewhere.
            (
                "mov.u32 %r3, %r1; again: NEXT @%p1 bra again; mov.u32 %r1, 5; mov.u32 %r3, %r1;",
                false,
            ),
        ] {
            let body = body.replace("NEXT", NEXT);
            let (registers, again) = kernel(&body);
            // `%r0` and `%p0` are not named.
            let named = 4 + usize::from(own);
            assert_eq!((registers, again), (named, own), "{body}");
        }
    }
}
