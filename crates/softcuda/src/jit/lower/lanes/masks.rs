//! Branches that a group takes by masks, as [`Masked`] says.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use cranelift_frontend::Variable;
use smallvec::SmallVec;

use super::{Form, Kept};
use crate::jit::decode::{Flow, RegId};
use crate::jit::lower::Lower;
use crate::jit::program::{Instruction, Step};
use crate::jit::spmd::{Masked, WIDTH, Way};

/// Which threads of a group come somewhere: elements of 32 bits, all set or none.
pub(super) type Mask = SmallVec<[Value; WIDTH / 4]>;

/// The same, as it grows.
type Coming = SmallVec<[Variable; WIDTH / 4]>;

impl Lower<'_> {
    /// The threads of a group do not agree at a branch: does all that is `between` it and where
    /// they join. Those where the guard holds, or does not if it is `negated`, come to
    /// the first of `to`.
    pub(super) fn go_by_masks(
        &mut self,
        between: &Masked,
        guard: RegId,
        negated: bool,
        to: [usize; 2],
    ) {
        let region = self.lanes().turns.as_ref().map_or(0, |turns| turns.region);
        let none = self.b.ins().iconst(types::I32, 0);
        let none = self.b.ins().splat(types::I32X4, none);
        let coming: Vec<Coming> = between.blocks.iter().map(|_| self.nobody(none)).collect();
        let holds = self.predicate_mask(guard);
        let [taken, falls] = self.both(&holds, negated);
        self.come(between, &coming, to[0], &taken);
        self.come(between, &coming, to[1], &falls);
        let over = self.fresh_block();
        for number in 0..between.blocks.len() {
            let mask: Mask = coming[number]
                .iter()
                .map(|mask| self.b.use_var(*mask))
                .collect();
            let bits = self.threads_in(&mask);
            let (some, next) = (self.fresh_block(), self.fresh_block());
            // Where nobody comes, nobody comes further.
            let past = if between.gates[number] { over } else { next };
            self.b.ins().brif(bits, some, &[], past, &[]);
            self.enter(some);
            self.lanes().bases.fill([None; WIDTH]);
            self.block_by_mask(between, number, &coming, &mask, bits);
            self.b.ins().jump(next, &[]);
            self.enter(next);
        }
        self.b.ins().jump(over, &[]);
        self.enter(over);
        self.set_form(Form::Once);
        let goes = self.way_in(region, between.join);
        self.b.ins().jump(goes, &[]);
    }

    /// A mask that no thread is in yet.
    fn nobody(&mut self, none: Value) -> Coming {
        let mask = |_| {
            let variable = self.b.declare_var(types::I32X4);
            self.b.def_var(variable, none);
            variable
        };
        (0..WIDTH / 4).map(mask).collect()
    }

    /// The threads where a predicate is true.
    pub(super) fn predicate_mask(&mut self, register: RegId) -> Mask {
        match self.lanes().kept(register).clone() {
            Kept::Vectors(variables) => {
                let variables = variables.into_iter();
                variables.map(|variable| self.b.use_var(variable)).collect()
            }
            _ => {
                self.set_form(Form::Once);
                let value = self.held_in_group(register);
                let value = self.b.ins().uextend(types::I32, value);
                let value = self.b.ins().ineg(value);
                let mask = self.b.ins().splat(types::I32X4, value);
                (0..WIDTH / 4).map(|_| mask).collect()
            }
        }
    }

    /// A mask and the other threads; the other way round if it is `negated`.
    fn both(&mut self, mask: &Mask, negated: bool) -> [Mask; 2] {
        let others: Mask = mask.iter().map(|mask| self.b.ins().bnot(*mask)).collect();
        match negated {
            false => [mask.clone(), others],
            true => [others, mask.clone()],
        }
    }

    /// These threads come to a block.
    fn come(&mut self, between: &Masked, coming: &[Coming], to: usize, mask: &Mask) {
        let Some(number) = between.blocks.iter().position(|block| *block == to) else {
            return; // they have come to where all join
        };
        for (variable, mask) in coming[number].iter().zip(mask) {
            let before = self.b.use_var(*variable);
            let all = self.b.ins().bor(before, *mask);
            self.b.def_var(*variable, all);
        }
    }

    /// A bit for each thread.
    pub(super) fn threads_in(&mut self, mask: &[Value]) -> Value {
        let mut bits = None;
        for (chunk, mask) in mask.iter().enumerate() {
            let more = self.b.ins().vhigh_bits(types::I32, *mask);
            bits = Some(match bits {
                None => more,
                Some(bits) => {
                    let more = self.b.ins().ishl_imm(more, 4 * chunk as i64);
                    self.b.ins().bor(bits, more)
                }
            });
        }
        bits.expect("a group has a vector")
    }

    fn block_by_mask(
        &mut self,
        between: &Masked,
        number: usize,
        coming: &[Coming],
        mask: &Mask,
        bits: Value,
    ) {
        let (block, body) = (between.blocks[number], self.body);
        let control = &self.lanes().plan.control;
        let of = &control.graph.block_of;
        let steps = control.first[block]..of.len();
        let steps: Vec<usize> = steps.take_while(|at| of[*at] == block).collect();
        let mut falls = Some(mask.clone());
        for at in steps {
            let Step::Instruction(instruction) = &body.steps[at] else {
                continue;
            };
            self.step = at as u32;
            self.reads_bits = instruction.reads_bits;
            if let Flow::Jump(label) = instruction.operation.flow() {
                let to = self.jump_target(label);
                let Some((guard, negated)) = instruction.guard else {
                    self.come(between, coming, to, mask);
                    falls = None;
                    continue;
                };
                let holds = self.predicate_mask(guard);
                let [taken, other] = self.both(&holds, negated);
                let [taken, other] = [taken, other].map(|ways| -> Mask {
                    let both = ways.iter().zip(mask);
                    both.map(|(way, mask)| self.b.ins().band(*way, *mask))
                        .collect()
                });
                self.come(between, coming, to, &taken);
                falls = Some(other);
                continue;
            }
            self.group = None;
            let way = self.lanes().plan.ways[at];
            if let Way::Widen { from, signed } = way {
                self.widen_by_mask(between, number, coming, bits, (from, signed));
                instruction.operation.lower(self);
                continue;
            }
            if instruction.operation.pure() || instruction.operation.loads_parameter() {
                self.step_by_mask(at, instruction, &between.shared[number], mask, bits);
            } else {
                let shared = &between.shared[number];
                self.each(instruction, Some(bits), |written| shared.contains(written));
            }
        }
        if let Some(falls) = falls {
            self.come(between, coming, block + 1, &falls);
        }
    }

    /// Does a step for all threads, and lets those that are not here keep what they had.
    fn step_by_mask(
        &mut self,
        at: usize,
        instruction: &Instruction,
        shared: &[RegId],
        mask: &Mask,
        bits: Value,
    ) {
        let needed = |register: &&RegId| shared.contains(*register);
        let needed: Vec<RegId> = instruction.writes.iter().filter(needed).copied().collect();
        let old: Vec<Vec<Value>> = needed
            .iter()
            .map(|register| self.all_of(*register))
            .collect();
        self.group_step(at, instruction);
        for (register, old) in needed.into_iter().zip(old) {
            match self.lanes().kept(register).clone() {
                Kept::One(_) => unreachable!("what others need is not kept once"),
                Kept::Vectors(variables) => {
                    for (chunk, (variable, old)) in variables.into_iter().zip(old).enumerate() {
                        let new = self.b.use_var(variable);
                        let ty = self.b.func.dfg.value_type(new);
                        let mask = match ty.lane_bits() {
                            64 if chunk % 2 == 0 => self.b.ins().swiden_low(mask[chunk / 2]),
                            64 => self.b.ins().swiden_high(mask[chunk / 2]),
                            _ => mask[chunk],
                        };
                        let mask = self.as_vector(mask, ty);
                        let value = self.b.ins().bitselect(mask, new, old);
                        self.b.def_var(variable, value);
                    }
                }
                Kept::Each(variables) => {
                    for (lane, (variable, old)) in variables.into_iter().zip(old).enumerate() {
                        let new = self.b.use_var(variable);
                        let counts = self.b.ins().band_imm(bits, 1 << lane);
                        let value = self.b.ins().select(counts, new, old);
                        self.b.def_var(variable, value);
                    }
                }
            }
        }
    }

    /// What a register that varies holds.
    fn all_of(&mut self, register: RegId) -> Vec<Value> {
        match self.lanes().kept(register).clone() {
            Kept::One(variable) => vec![self.b.use_var(variable)],
            Kept::Vectors(variables) => {
                let variables = variables.into_iter();
                variables.map(|variable| self.b.use_var(variable)).collect()
            }
            Kept::Each(variables) => variables.map(|variable| self.b.use_var(variable)).into(),
        }
    }

    /// Where a value wraps on the way to a wide one, threads go on one by one: those with a bit
    /// from here, others where they are to come, or wait where all join.
    fn widen_by_mask(
        &mut self,
        between: &Masked,
        number: usize,
        coming: &[Coming],
        bits: Value,
        (from, signed): (RegId, bool),
    ) {
        let next = self.unless_it_wraps(from, signed);
        let mut blocks = vec![between.join];
        let join = self.stand(between.join);
        let mut stands = [join; WIDTH];
        for (later, block) in between.blocks.iter().enumerate().skip(number) {
            let here = self.stand(*block);
            let bits = match later == number {
                true => bits,
                false => {
                    let mask: Mask = coming[later].iter().map(|at| self.b.use_var(*at)).collect();
                    self.threads_in(&mask)
                }
            };
            for (lane, stand) in stands.iter_mut().enumerate() {
                let counts = self.b.ins().band_imm(bits, 1 << lane);
                let counts = self.b.ins().icmp_imm(IntCC::NotEqual, counts, 0);
                *stand = self.b.ins().select(counts, here, *stand);
            }
            blocks.push(*block);
        }
        self.part(&blocks, &stands, Some(between.join));
        self.enter(next);
    }
}
