//! Whether the threads of a group agree on a comparison, told from the first and the last: of a
//! number that counts up from thread to thread with one that is the same in all.

use cranelift_codegen::ir::condcodes::{CondCode, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use ptx::ast::Type;
use smallvec::{SmallVec, smallvec};

use super::Form;
use crate::jit::decode::{Arg, Comparison, Flow, Logic, RegId};
use crate::jit::lower::Lower;
use crate::jit::program::{Body, Instruction, Step};
use crate::jit::spmd::{Class, compared};

/// The most predicates from which follows what is certain.
pub(super) const MOST_COMBINED: usize = 12;

/// Of which threads it is asked, from the group's first on.
#[derive(Clone, Copy)]
pub(super) enum Threads {
    Known(i64),
    /// So many, which are not more than this number.
    UpTo(i64, Value),
}

/// What is certain, if all values of a list are true; otherwise, threads may agree or not.
pub(super) struct Agreement {
    /// It holds in no thread.
    pub none: Option<Told>,
    /// It holds in all.
    pub all: Option<Told>,
}

/// One value or two.
pub(super) type Told = SmallVec<[Value; 2]>;

/// The step that writes a register for all threads, before `at` with nothing but straight steps
/// between, whose registers are added to `written`.
pub(super) fn written_before<'a>(
    body: &'a Body,
    at: usize,
    register: RegId,
    written: &mut Vec<RegId>,
) -> Option<(usize, &'a Instruction)> {
    for (at, step) in body.steps[..at].iter().enumerate().rev() {
        let Step::Instruction(step) = step else {
            return None;
        };
        if step.operation.flow() != Flow::Next || step.operation.waits() {
            return None;
        }
        if step.writes.contains(&register) {
            return step.guard.is_none().then_some((at, step));
        }
        written.extend(&step.writes);
    }
    None
}

impl Lower<'_> {
    /// Whether the threads of the group agree on the guard of the step at `at`.
    pub(super) fn agreement(&mut self, at: usize, guard: RegId) -> Option<Agreement> {
        self.agreement_of(Threads::Known(self.width() as i64), at, guard)
    }

    /// The same of other threads.
    pub(super) fn agreement_of(
        &mut self,
        threads: Threads,
        at: usize,
        guard: RegId,
    ) -> Option<Agreement> {
        let body = self.body;
        self.agreement_on(threads, compared(body, at, guard)?)
    }

    /// Whether a guard of the step at `at` is certain to be what is wanted in all threads of the
    /// group: it follows from comparisons, and from what is the same in all, right before.
    pub(super) fn certain(&mut self, at: usize, guard: RegId, wanted: bool) -> Option<Value> {
        let mut left = MOST_COMBINED;
        self.certain_before(at, vec![], &Arg::Reg(guard), wanted, &mut left)
    }

    /// The same of an operand of the step at `at`, where these registers have been written since.
    fn certain_before(
        &mut self,
        at: usize,
        mut written: Vec<RegId>,
        operand: &Arg,
        wanted: bool,
        left: &mut usize,
    ) -> Option<Value> {
        let Arg::Reg(guard) = *operand else {
            return None;
        };
        *left = left.checked_sub(1)?;
        if self.lanes().plan.class(guard) != Class::Varying {
            if written.contains(&guard) {
                return None;
            }
            self.set_form(Form::Once);
            let value = self.read(operand, Type::Pred);
            return Some(match wanted {
                true => value,
                false => self.b.ins().bxor_imm(value, 1),
            });
        }
        let (at, step) = written_before(self.body, at, guard, &mut written)?;
        if let Some(comparison) = step.operation.comparison() {
            let stays = |arg: &Arg| match arg {
                Arg::Reg(id) => !written.contains(id),
                arg => matches!(arg, Arg::Imm(_)),
            };
            if !stays(comparison.a) || !stays(comparison.b) {
                return None;
            }
            let threads = Threads::Known(self.width() as i64);
            let agreement = self.agreement_on(threads, comparison)?;
            let told = if wanted {
                agreement.all
            } else {
                agreement.none
            };
            return Some(self.all_told(told?));
        }
        written.extend(&step.writes);
        let (a, b, all) = match step.operation.logic()? {
            Logic::Not(a) => return self.certain_before(at, written, a, !wanted, left),
            Logic::Both(a, b) => (a, b, wanted),
            Logic::Either(a, b) => (a, b, !wanted),
        };
        let first = self.certain_before(at, written.clone(), a, wanted, left);
        let second = self.certain_before(at, written, b, wanted, left);
        match (first, second) {
            (Some(first), Some(second)) if all => Some(self.b.ins().band(first, second)),
            (Some(first), Some(second)) => Some(self.b.ins().bor(first, second)),
            (one, other) if !all => one.or(other),
            _ => None,
        }
    }

    /// Whether all of these are true.
    pub(super) fn all_told(&mut self, told: Told) -> Value {
        let all = told.into_iter();
        let all = all.reduce(|all, one| self.b.ins().band(all, one));
        all.expect("something is told")
    }

    /// Whether a number of 32 bits is certain to have no sign with so much added.
    fn stays_small(&mut self, arg: &Arg, more: i64) -> bool {
        let Arg::Reg(register) = arg else {
            return false;
        };
        let most = self.lanes().plan.most(*register);
        most.is_some_and(|most| i64::from(most) + more <= i64::from(i32::MAX))
    }

    /// Whether the threads agree on a comparison.
    fn agreement_on(&mut self, threads: Threads, comparison: Comparison<'_>) -> Option<Agreement> {
        let Comparison {
            condition, a, b, ..
        } = comparison;
        let (read, ty) = match comparison.of_words() {
            true => (Type::U32, types::I32),
            false => (Type::U64, types::I64),
        };
        let stride = |l: &mut Self, arg: &Arg| match arg {
            Arg::Imm(_) => Some(0),
            Arg::Reg(id) => {
                let by = l.lanes().plan.class(*id).stride()?;
                Some(if ty == types::I32 {
                    i64::from(by as i32)
                } else {
                    by
                })
            }
            _ => None,
        };
        let (condition, counts, same, stride) = match (stride(self, a)?, stride(self, b)?) {
            (0, 0) => return None,
            (stride, 0) => (condition, a, b, stride),
            (0, stride) => (condition.swap_args(), b, a, stride),
            _ => return None,
        };
        // Of numbers that go round more than once, the first and the last tell nothing.
        let (Threads::Known(most) | Threads::UpTo(most, _)) = threads;
        let most = stride.checked_mul(most - 1)?;
        if ty == types::I32 {
            i32::try_from(most).ok()?;
        }
        let never_wraps = stride > 0 && ty == types::I32 && self.stays_small(counts, most);
        self.set_form(Form::Once);
        let first = self.read(counts, read);
        let first = self.fit(first, ty, false);
        let same = self.read(same, read);
        let same = self.fit(same, ty, false);
        let span = match threads {
            Threads::Known(_) => self.b.ins().iconst(ty, most),
            Threads::UpTo(_, count) => {
                let span = self.b.ins().iadd_imm(count, -1);
                let span = self.fit(span, ty, false);
                self.b.ins().imul_imm(span, stride)
            }
        };
        let last = self.b.ins().iadd(first, span);
        let (low, high) = if stride > 0 {
            (first, last)
        } else {
            (last, first)
        };
        let span = if stride > 0 {
            span
        } else {
            self.b.ins().ineg(span)
        };
        use IntCC::*;
        let (less, or_equal) = match condition {
            Equal | NotEqual => {
                let distance = self.b.ins().isub(same, low);
                let beyond = self.b.ins().icmp(UnsignedGreaterThan, distance, span);
                let (told, other) = (Some(smallvec![beyond]), None);
                return Some(match condition {
                    Equal => Agreement {
                        none: told,
                        all: other,
                    },
                    _ => Agreement {
                        none: other,
                        all: told,
                    },
                });
            }
            UnsignedLessThan | UnsignedGreaterThanOrEqual => (UnsignedLessThan, false),
            UnsignedLessThanOrEqual | UnsignedGreaterThan => (UnsignedLessThanOrEqual, true),
            SignedLessThan | SignedGreaterThanOrEqual => (SignedLessThan, false),
            SignedLessThanOrEqual | SignedGreaterThan => (SignedLessThanOrEqual, true),
        };
        let above = self.b.ins().icmp(less.complement(), low, same);
        let (all, none) = if never_wraps {
            let below = self.b.ins().icmp(less, high, same);
            (smallvec![below], smallvec![above])
        } else {
            let below = self.b.ins().icmp(less, low, same);
            let distance = self.b.ins().isub(same, low);
            let far = match or_equal {
                true => UnsignedGreaterThanOrEqual,
                false => UnsignedGreaterThan,
            };
            let far = self.b.ins().icmp(far, distance, span);
            let rises = match less {
                SignedLessThan | SignedLessThanOrEqual => SignedGreaterThanOrEqual,
                _ => UnsignedGreaterThanOrEqual,
            };
            let rises = self.b.ins().icmp(rises, high, low);
            (smallvec![below, far], smallvec![above, rises])
        };
        let (none, all) = match condition == less {
            true => (none, all),
            false => (all, none),
        };
        let (none, all) = (Some(none), Some(all));
        Some(Agreement { none, all })
    }
}
