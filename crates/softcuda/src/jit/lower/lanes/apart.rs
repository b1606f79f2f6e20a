//! What the threads of a group do one after the other, within its code: see
//! [`Apart`].
//!
//! ```text
//! leave what threads begin with in the slot
//! for each thread: take it; the code of one thread, to where the ways join; leave what it wrote
//! take what they wrote
//! ```

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, MemFlags, Value, types};

use super::{Form, Kept};
use crate::grid::context::THREAD_STRIDE;
use crate::jit::decode::RegId;
use crate::jit::lower::Lower;
use crate::jit::program::{Instruction, Step};
use crate::jit::spmd::{Apart, WIDTH};

impl Lower<'_> {
    /// The threads of a group go on one after the other from a branch, to where they join. Fills the
    /// builder's block.
    pub(super) fn go_apart(&mut self, apart: &Apart, at: usize, branch: &Instruction) {
        let region = self.turns().region;
        for register in &apart.takes {
            if !matches!(self.lanes().kept(*register), Kept::One(_)) {
                self.leave_register(*register);
            }
        }
        // Who leaves nothing on its way leaves what was there.
        for register in &apart.leaves {
            if !apart.takes.contains(register) {
                self.leave_register(*register);
            }
        }
        let (head, ends, done) = (
            self.b.create_block(),
            self.b.create_block(),
            self.b.create_block(),
        );
        let lane = self.b.append_block_param(head, types::I64);
        let zero = self.b.ins().iconst(types::I64, 0);
        self.b.ins().jump(head, &[zero.into()]);

        self.b.switch_to_block(head);
        let context = self.turns().context;
        let first = self.b.use_var(context);
        let distance = self.b.ins().imul_imm(lane, THREAD_STRIDE as i64);
        for register in &apart.takes {
            let value = self.value_of_lane(*register, lane);
            let variable = self.variable(*register);
            self.b.def_var(variable, value);
        }
        let thread = self.b.ins().iadd(first, distance);
        self.set_form(Form::Thread);
        self.thread = thread;
        self.lower_apart(apart, at, branch, ends);

        self.b.switch_to_block(ends);
        for register in &apart.leaves {
            if matches!(self.lanes().kept(*register), Kept::One(_)) {
                continue; // nothing between wrote it
            }
            let (place, slot) = (self.place(*register), self.lanes().slot);
            let value = self.held(*register);
            let value = self.slot_value(*register, value);
            let bytes = self.element(*register).bytes();
            let base = self.b.ins().stack_addr(types::I64, slot, place);
            let offset = self.b.ins().imul_imm(lane, i64::from(bytes));
            let to = self.b.ins().iadd(base, offset);
            self.b.ins().store(MemFlags::trusted(), value, to, 0);
        }
        let next = self.b.ins().iadd_imm(lane, 1);
        let more = self
            .b
            .ins()
            .icmp_imm(IntCC::UnsignedLessThan, next, WIDTH as i64);
        self.b.ins().brif(more, head, &[next.into()], done, &[]);

        self.b.switch_to_block(done);
        self.set_form(Form::Once);
        for register in &apart.leaves {
            self.take_register(*register);
        }
        let goes = self.way_in(region, apart.join);
        self.b.ins().jump(goes, &[]);
    }

    /// What a register of a group holds for a thread of this number.
    fn value_of_lane(&mut self, register: RegId, lane: Value) -> Value {
        let ty = self.element(register);
        let value = match self.lanes().kept(register).clone() {
            Kept::One(variable) => {
                let value = self.b.use_var(variable);
                let stride = self.lanes().plan.class(register).stride().unwrap_or(0);
                if stride == 0 {
                    return value;
                }
                let (lane, stride) = match ty {
                    types::I64 => (lane, stride),
                    _ => (self.b.ins().ireduce(ty, lane), i64::from(stride as i32)),
                };
                let more = self.b.ins().imul_imm(lane, stride);
                return self.b.ins().iadd(value, more);
            }
            _ => {
                let (place, slot) = (self.place(register), self.lanes().slot);
                let base = self.b.ins().stack_addr(types::I64, slot, place);
                let offset = self.b.ins().imul_imm(lane, i64::from(ty.bytes()));
                let from = self.b.ins().iadd(base, offset);
                self.b.ins().load(ty, MemFlags::trusted(), from, 0)
            }
        };
        self.register_value(register, value)
    }

    /// The code of one thread, from the branch on; it goes to `ends` where the ways join. Fills the
    /// builder's block.
    fn lower_apart(&mut self, apart: &Apart, at: usize, branch: &Instruction, ends: Block) {
        let body = self.body;
        let of = self.lanes().plan.control.graph.block_of.clone();
        let begins: Vec<Block> = apart.blocks.iter().map(|_| self.b.create_block()).collect();
        let to = |block: usize| match apart.blocks.binary_search(&block) {
            Ok(number) => begins[number],
            Err(_) => ends,
        };
        let mut labels = self.labels.clone();
        for (at, step) in body.steps.iter().enumerate() {
            if let Step::Label(label) = step {
                labels[*label as usize] = to(of[at]);
            }
        }
        let labels = std::mem::replace(&mut self.labels, labels);
        self.forget_checks(at);
        self.thread_step(at, branch);
        let falls = to(of[at] + 1);
        self.b.ins().jump(falls, &[]);
        for (block, begins) in apart.blocks.iter().zip(&begins) {
            self.b.switch_to_block(*begins);
            let first = self.lanes().plan.control.first[*block];
            self.forget_checks(first);
            for at in (first..of.len()).take_while(|at| of[*at] == *block) {
                if let Step::Instruction(step) = &body.steps[at] {
                    self.thread_step(at, step);
                }
            }
            let next = to(block + 1);
            self.b.ins().jump(next, &[]);
        }
        self.forget_checks(0);
        self.labels = labels;
    }

    /// Lowers a step for one thread.
    fn thread_step(&mut self, at: usize, step: &Instruction) {
        self.step = at as u32;
        self.group = self.groups.of_step.get(&(at as u32)).copied();
        self.instruction(step);
        self.group = None;
    }

    /// Who begins here has checked nothing.
    pub(super) fn forget_checks(&mut self, at: usize) {
        self.group_bases.fill(None);
        self.runs_checked.fill(false);
        self.entered = at as u32;
    }
}
