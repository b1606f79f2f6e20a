//! Loads at one of two addresses, as each thread chooses. `c[i] ? a[i] : b[i]` is compiled to one
//! load that takes its array from a `selp`: where both arrays have a row for the group, both are
//! loaded, and each thread keeps its own.

use cranelift_codegen::ir::InstBuilder;
use ptx::ast::Type;

use super::Form;
use crate::jit::decode::{Arg, RegId};
use crate::jit::lower::Lower;
use crate::jit::lower::groups::PlainAccess;
use crate::jit::lower::runs::Term;
use crate::jit::program::{Instruction, Step};
use crate::jit::spmd::{Class, in_rows};

/// An address that is the sum of one of two registers and a third.
struct Chosen {
    /// The first of the two is it where this is true.
    guard: RegId,
    of: [RegId; 2],
    plus: Option<RegId>,
    /// From one thread's to the next's, of both.
    stride: i64,
}

impl Lower<'_> {
    /// Does a load of all threads, if its address is so; says whether it is.
    pub(super) fn load_chosen(&mut self, instruction: &Instruction) -> bool {
        let operation = &instruction.operation;
        let (Some(access), Some(weak)) = (operation.plain_access(), operation.weak_access()) else {
            return false;
        };
        if access.write || !access.is_host() || self.group.is_some() {
            return false;
        }
        let Some(chosen) = self.chosen(access) else {
            return false;
        };
        let mask = self.predicate_mask(chosen.guard);
        let bits = self.threads_in(&mask);
        self.set_form(Form::Once);
        let plus = chosen
            .plus
            .map(|plus| self.read(&Arg::Reg(plus), Type::B64));
        let [first, second] = chosen.of.map(|of| {
            let base = self.read(&Arg::Reg(of), Type::B64);
            let sum = plus.map_or(base, |plus| self.b.ins().iadd(base, plus));
            self.b.ins().iadd_imm(sum, access.offset)
        });
        let rows = [first, second].map(|at| self.row_in_range(at, access, chosen.stride));
        let both = self.b.ins().band(rows[0].0, rows[1].0);
        let (row, each, next) = (self.fresh_block(), self.cold_block(), self.fresh_block());
        self.b.ins().brif(both, row, &[], each, &[]);
        self.enter(row);
        self.load_rows(weak.registers, weak.ty, second, chosen.stride);
        let of_second = self.held_before(instruction, |_| true);
        self.load_rows(weak.registers, weak.ty, first, chosen.stride);
        self.keep_others(of_second, &mask, bits);
        self.b.ins().jump(next, &[]);
        self.enter(each);
        let done = self.likely_row(instruction);
        let others = self.b.ins().bnot(bits);
        for (bits, (_, site)) in [bits, others].into_iter().zip(rows) {
            self.lanes().site = Some(site);
            self.each(instruction, Some(bits), |_| true);
        }
        self.lanes().site = None;
        if let Some(done) = done {
            self.b.ins().jump(done, &[]);
            self.enter(done);
        }
        self.b.ins().jump(next, &[]);
        self.enter(next);
        true
    }

    /// What the address of the step's access is computed from, in its block.
    fn chosen(&mut self, access: PlainAccess) -> Option<Chosen> {
        let at = self.step as usize;
        let (sum_at, sum) = self.computed(access.base, at)?;
        let (choice_at, choice, plus) = match (sum.operation.chooses(), sum.operation.term()) {
            (Some(choice), _) => (sum_at, choice, None),
            (None, Some(Term::Sum(Arg::Reg(a), Arg::Reg(b), 64))) => {
                let mut orders = [(*a, *b), (*b, *a)].into_iter();
                orders.find_map(|(chosen, plus)| {
                    let (choice_at, choice) = self.computed(chosen, sum_at)?;
                    Some((choice_at, choice.operation.chooses()?, Some(plus)))
                })?
            }
            _ => return None,
        };
        let (guard, of) = choice;
        let stays = |register: RegId, since: usize| {
            let steps = &self.body.steps[since..at];
            !steps.iter().any(|step| match step {
                Step::Instruction(step) => step.writes.contains(&register),
                Step::Label(_) => false,
            })
        };
        let all_stay = [guard, of[0], of[1]]
            .into_iter()
            .all(|it| stays(it, choice_at));
        if !all_stay || !plus.is_none_or(|plus| stays(plus, sum_at)) {
            return None;
        }
        let plan = &self.lanes().plan;
        let stride = |register: RegId| plan.class(register).stride();
        let more = plus.map_or(Some(0), stride)?;
        let [first, second] = [stride(of[0])? + more, stride(of[1])? + more];
        let are_rows = first == second && in_rows(first, access.size);
        (are_rows && plan.class(guard) == Class::Varying).then_some(Chosen {
            guard,
            of,
            plus,
            stride: first,
        })
    }

    /// The step that computes what a register holds before another, through copies; of this block,
    /// or of blocks that groups come from without a way past them. What is computed elsewhere may
    /// be held no more: nothing here reads it.
    fn computed(
        &mut self,
        mut register: RegId,
        mut before: usize,
    ) -> Option<(usize, &Instruction)> {
        let body = self.body;
        let begins = self.lanes().plan.straight_to(before, body);
        loop {
            let mut steps = (begins..before)
                .rev()
                .filter_map(|at| match &body.steps[at] {
                    Step::Instruction(step) => Some((at, step)),
                    Step::Label(_) => None,
                });
            let (at, step) = steps.find(|(_, step)| step.writes.contains(&register))?;
            if step.guard.is_some() {
                return None;
            }
            let Some(from) = step.operation.copies() else {
                return Some((at, step));
            };
            (register, before) = (from, at);
        }
    }
}
