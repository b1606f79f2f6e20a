//! Loops, and how control goes through a body whose families have not read it yet.

use ptx::ast::Type;
use ptx::opcode::{self, Fact};
use smallvec::SmallVec;

use super::body::{Pending, PendingStep, named};
use super::webs::Event;
use crate::jit::decode::{Arg, RegId, Symbol};
use crate::jit::program::Tables;

/// Whether registers of a type have 64 bits; `None` of types that loops do not count in.
pub(super) fn is_wide(ty: Type) -> Option<bool> {
    match ty {
        Type::U32 | Type::S32 | Type::B32 => Some(false),
        Type::U64 | Type::S64 | Type::B64 => Some(true),
        _ => None,
    }
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
    /// What it writes to, or a part of that, it may have read before.
    updates: bool,
    /// It writes a number.
    gives_number: bool,
    /// The step that it branches to.
    branches: Option<usize>,
    /// It does not go on with the step behind it, unless it does nothing.
    leaves: bool,
}

pub(super) struct Flow(Vec<Does>);

impl Flow {
    /// `None` of a body with branches by a table.
    pub fn of(steps: &[PendingStep<'_>], tables: &Tables) -> Option<Flow> {
        let labels = labels(steps, tables);
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
                updates: opcode::has(opcode, Fact::UpdatesFirst)
                    || matches!(pending.args.first(), Some(Arg::Part(..))),
                gives_number: opcode == "mov" && matches!(pending.args[..], [_, Arg::Imm(_)]),
                branches: match opcode {
                    "bra" => Some(labels[target(pending)? as usize]).filter(|at| *at < steps.len()),
                    "brx" => return None,
                    _ => None,
                },
                leaves: matches!(opcode, "bra" | "ret" | "exit" | "trap"),
            })
        };
        steps.iter().map(does).collect::<Option<_>>().map(Flow)
    }

    /// Whether a step branches to one before it.
    pub fn has_loops(&self) -> bool {
        let all = self.0.iter().enumerate();
        all.filter_map(|(at, does)| Some(does.branches? <= at))
            .any(|back| back)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The step that a step branches to.
    pub fn branches(&self, at: usize) -> Option<usize> {
        self.0[at].branches
    }

    /// Whether the step behind a step never follows it.
    pub fn leaves(&self, at: usize) -> bool {
        self.0[at].leaves && !self.0[at].may
    }

    /// Whether the step behind a step may not follow it.
    pub fn may_leave(&self, at: usize) -> bool {
        self.0[at].leaves
    }

    /// What a step does with registers.
    pub fn events(&self, at: usize) -> Vec<(RegId, Event)> {
        let does = &self.0[at];
        let mut events: Vec<(RegId, Event)> = vec![];
        for register in does.reads.iter().chain(&does.writes) {
            if events.iter().all(|(known, _)| known != register) {
                let (reads, writes) = (
                    does.reads.contains(register),
                    does.writes.contains(register),
                );
                let event = Event {
                    step: at,
                    reads,
                    writes,
                    keeps: writes && (does.may || does.updates),
                    gives_number: does.gives_number,
                };
                events.push((*register, event));
            }
        }
        events
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
