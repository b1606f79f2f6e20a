//! What the threads of a group do one after the other, within its code: see
//! [`Apart`].
//!
//! ```text
//! leave what threads begin with in the slot
//! for each thread that has not come to where the ways join:
//!   take it; the code of one thread, up to there; leave what it wrote
//! take what they wrote
//! ```
//!
//! Where nothing of that is stored, threads *retreat* from an access that is not known to be
//! allowed: the group parts at the branch, and each thread begins there anew. So no code comes back
//! from a check, and one check may speak for several accesses, see [`ahead`](super::ahead).

use cranelift_codegen::ir::{Block, InstBuilder, Value, types};

use super::{Form, Kept};
use crate::grid::context::THREAD_STRIDE;
use crate::jit::decode::{Flow, RegId};
use crate::jit::lower::Lower;
use crate::jit::program::{Instruction, Step};
use crate::jit::spmd::{Apart, WIDTH};

impl Lower<'_> {
    /// The threads of a group go on one after the other from a branch to where they join. Fills the
    /// builder's block.
    pub(super) fn go_apart(&mut self, apart: &Apart, at: usize, branch: &Instruction) {
        let region = self.turns().region;
        // Who leaves nothing on its way leaves what was there.
        let leaves = apart.leaves.iter();
        let leaves = leaves.filter(|register| !apart.takes.contains(register));
        for register in apart.takes.iter().chain(leaves) {
            if !matches!(self.lanes().kept(*register), Kept::One(_)) {
                self.leave_register(*register);
            }
        }
        let of = &self.lanes().plan.control.graph.block_of;
        let falls = of[at] + 1;
        let taken = match branch.operation.flow() {
            Flow::Jump(label) => self.jump_target(label),
            _ => falls,
        };
        // Threads that have come to where the ways join have nothing to do.
        let every = self.every_bit();
        let (bits, begins) = match branch.guard {
            Some((guard, negated)) if [taken, falls].contains(&apart.join) => {
                let bits = self.mask_bits(at, guard);
                let holds = (taken == apart.join) == negated;
                let bits = match holds {
                    true => bits,
                    false => self.b.ins().bxor_imm(bits, every),
                };
                let begins = if taken == apart.join { falls } else { taken };
                (bits, Some(begins))
            }
            _ => (self.b.ins().iconst(types::I32, every), None),
        };
        let (test, head, ends, done) = (
            self.b.create_block(),
            self.b.create_block(),
            self.b.create_block(),
            self.b.create_block(),
        );
        let left = self.b.append_block_param(test, types::I32);
        self.b.ins().jump(test, &[bits.into()]);
        self.b.switch_to_block(test);
        self.b.ins().brif(left, head, &[], done, &[]);

        self.b.switch_to_block(head);
        let lane = self.b.ins().ctz(left);
        let lane = self.b.ins().uextend(types::I64, lane);
        let context = self.turns().context;
        let first = self.b.use_var(context);
        let distance = self.b.ins().imul_imm(lane, THREAD_STRIDE as i64);
        for register in &apart.takes {
            let first = match self.lanes().kept(*register) {
                Kept::One(variable) => {
                    let variable = *variable;
                    Some(self.b.use_var(variable))
                }
                _ => None,
            };
            let value = self.left_by_group(*register, first, lane);
            let variable = self.variable(*register);
            self.b.def_var(variable, value);
        }
        let thread = self.b.ins().iadd(first, distance);
        self.set_form(Form::Thread);
        self.thread = thread;
        let retreat = self.can_retreat(apart).then(|| self.cold_block());
        self.lanes().retreat = retreat;
        self.lower_apart(apart, (at, branch), begins, ends);
        self.lanes().retreat = None;
        self.lanes().ahead.clear();

        self.b.switch_to_block(ends);
        for register in &apart.leaves {
            self.leave_for_group(*register, lane);
        }
        let less = self.b.ins().iadd_imm(left, -1);
        let rest = self.b.ins().band(left, less);
        self.b.ins().jump(test, &[rest.into()]);

        self.b.switch_to_block(done);
        self.set_form(Form::Once);
        for register in &apart.leaves {
            self.take_each(*register);
        }
        let goes = self.way_in(region, apart.join);
        self.b.ins().jump(goes, &[]);
        if let (Some(retreat), Some((guard, _))) = (retreat, branch.guard) {
            self.enter(retreat);
            let bits = self.mask_bits(at, guard);
            self.part_at_branch(at, branch, bits);
        }
    }

    /// Takes what threads have just left one by one. A load of a whole vector would wait until the
    /// processor has written all of its elements to the cache.
    fn take_each(&mut self, register: RegId) {
        if self.is_predicate(register) || !matches!(self.lanes().kept(register), Kept::Vectors(_)) {
            return self.take_register(register);
        }
        let (place, slot) = (self.place(register), self.lanes().slot);
        let ty = self.element(register);
        let at = |lane: i32| place + ty.bytes() as i32 * lane;
        let values: Vec<Value> = (0..WIDTH as i32)
            .map(|lane| self.b.ins().stack_load(ty, slot, at(lane)))
            .collect();
        self.gather(register, &values);
    }

    /// Whether the group's threads can do anew, each by itself, what some have done one after the
    /// other: nobody sees that they loaded twice.
    fn can_retreat(&mut self, apart: &Apart) -> bool {
        if self.is_wide() || self.unit.local {
            return false;
        }
        let region = self.turns().region;
        let may_part = self.may_part(region);
        let (body, of) = (self.body, &self.lanes().plan.control.graph.block_of);
        let mut steps = body.steps.iter().zip(of);
        may_part
            && !steps.any(|(step, block)| match step {
                Step::Instruction(step) => {
                    apart.blocks.contains(block) && step.operation.stores_weakly()
                }
                Step::Label(_) => false,
            })
    }

    /// The code of one thread, from the branch on, or from where it `begins` if that is known; it
    /// goes to `ends` where the ways join. Fills the builder's block.
    fn lower_apart(
        &mut self,
        apart: &Apart,
        (at, branch): (usize, &Instruction),
        begins: Option<usize>,
        ends: Block,
    ) {
        let body = self.body;
        let of = self.lanes().plan.control.graph.block_of.clone();
        let blocks: Vec<Block> = apart.blocks.iter().map(|_| self.b.create_block()).collect();
        let to = |block: usize| match apart.blocks.binary_search(&block) {
            Ok(number) => blocks[number],
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
        if begins.is_none() {
            self.thread_step(at, branch);
        }
        let first = to(begins.unwrap_or(of[at] + 1));
        self.b.ins().jump(first, &[]);
        let ahead = match self.lanes().retreat {
            Some(retreat) => self.look_ahead(apart, of[at], retreat),
            None => vec![],
        };
        for (block, begins) in apart.blocks.iter().zip(&blocks) {
            self.b.switch_to_block(*begins);
            let first = self.lanes().plan.control.first[*block];
            self.forget_checks(first);
            for ahead in ahead.iter().filter(|ahead| ahead.block == *block) {
                self.check_ahead(ahead);
            }
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
