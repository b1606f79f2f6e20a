//! Branches that a group takes by masks, as [`Masked`] says.

use cranelift_codegen::ir::{self, Block, InstBuilder, MemFlags, Value, types};
use cranelift_frontend::Variable;
use smallvec::SmallVec;

use super::{Form, Kept, LARGEST, vector_of};
use crate::grid::context::THREAD_STRIDE;
use crate::jit::analysis;
use crate::jit::decode::{Arg, Flow, RegId};
use crate::jit::lower::memory::WeakAccess;
use crate::jit::lower::{Lower, value_type};
use crate::jit::program::{Instruction, Step};
use crate::jit::spmd::{Loop, Masked, WIDEST, WIDTH, Way, by_first, in_rows};

/// Which threads of a group come somewhere: elements of 32 bits, all set or none.
pub(super) type Mask = SmallVec<[Value; WIDTH / 4]>;

/// The same, as it grows.
type Coming = SmallVec<[Variable; WIDTH / 4]>;

/// Blocks that are done by masks, as they are lowered.
#[derive(Clone)]
pub(super) struct ByMasks {
    /// Which threads come to each.
    coming: Vec<Coming>,
    /// Where that is asked of each, and of those after it; then, where all join.
    tests: Vec<Block>,
    /// The registers.
    set: Set,
}

/// The registers of a group.
type Set = Vec<Option<Kept>>;

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
        let none = self.b.ins().iconst(types::I32, 0);
        let none = self.b.ins().splat(types::I32X4, none);
        let known = self.lanes().by_masks.get(&between.branch).cloned();
        let (coming, tests, mut set) = match &known {
            Some(known) => (known.coming.clone(), known.tests.clone(), known.set.clone()),
            None => {
                let blocks = between.blocks.iter();
                let coming: Vec<Coming> = blocks.clone().map(|_| self.anybody()).collect();
                let tests = (0..=blocks.len()).map(|_| self.fresh_block()).collect();
                (coming, tests, self.set_for(between))
            }
        };
        for variable in coming.iter().flatten() {
            self.b.def_var(*variable, none);
        }
        let holds = self.predicate_mask(guard);
        let [taken, falls] = self.both(&holds, negated);
        self.come(between, &coming, to[0], &taken, true);
        self.come(between, &coming, to[1], &falls, to[0] != to[1]);
        let begins = between.blocks.iter().position(|block| to.contains(block));
        let begins = begins.unwrap_or(between.blocks.len());
        if !between.loops.is_empty() {
            let mut live: Vec<RegId> = vec![];
            for block in between.blocks.iter().chain([&between.join]) {
                live.extend(&self.lanes().plan.live[*block]);
            }
            live.sort_unstable_by_key(|register| register.0);
            live.dedup();
            self.pass_on(&live, &mut set);
        }
        self.b.ins().jump(tests[begins], &[]);
        if known.is_none() {
            let by_masks = ByMasks {
                coming,
                tests,
                set: set.clone(),
            };
            self.lanes()
                .by_masks
                .insert(between.branch, by_masks.clone());
            let before = std::mem::replace(&mut self.lanes().registers, set);
            self.lower_masked(between, &by_masks, before, begins == 0);
        }
    }

    /// Does what is between a branch and where its ways join. The builder's block is filled. Where
    /// the branch leads to the first block, some threads come there: they do not agree.
    fn lower_masked(
        &mut self,
        between: &Masked,
        by_masks: &ByMasks,
        mut before: Set,
        begins_with_first: bool,
    ) {
        let ByMasks { coming, tests, .. } = by_masks;
        // Of the block that the branch ends.
        let joined = std::mem::take(&mut self.lanes().joined);
        let region = self.lanes().turns.as_ref().map_or(0, |turns| turns.region);
        let over = tests[between.blocks.len()];
        let mut heads = vec![None; between.blocks.len()];
        for number in 0..between.blocks.len() {
            if number > 0 {
                self.b.ins().jump(tests[number], &[]);
            }
            // Other branches may lead here.
            self.b.switch_to_block(tests[number]);
            let is_head = between.loops.iter().any(|turns| turns.head == number);
            let mut mask = self.mask_of(&coming[number]);
            let mut bits = self.threads_in(&mask);
            let (some, next) = (self.fresh_block(), self.fresh_block());
            // Where nobody comes, nobody comes further.
            let past = if between.gates[number] { over } else { next };
            match number == 0 && begins_with_first {
                true => self.b.ins().jump(some, &[]),
                false => self.b.ins().brif(bits, some, &[], past, &[]),
            };
            if is_head {
                heads[number] = Some(some);
                self.b.switch_to_block(some);
                mask = self.mask_of(&coming[number]);
                bits = self.threads_in(&mask);
            } else {
                self.enter(some);
            }
            if !between.loops.is_empty() {
                let none = self.b.ins().iconst(types::I32, 0);
                let none = self.b.ins().splat(types::I32X4, none);
                let variables = coming[number].iter();
                variables.for_each(|variable| self.b.def_var(*variable, none));
            }
            self.lanes().bases.fill([None; WIDEST]);
            self.block_by_mask(between, number, coming, &mask, bits);
            self.b.ins().jump(next, &[]);
            self.enter(next);
            for Loop { head, last } in &between.loops {
                if let (Some(begins), true) = (heads[*head], *last == number) {
                    let back = self.mask_of(&coming[*head]);
                    let back = self.threads_in(&back);
                    let on = self.fresh_block();
                    self.b.ins().brif(back, begins, &[], on, &[]);
                    self.b.seal_block(begins);
                    self.enter(on);
                }
            }
        }
        if !between.blocks.is_empty() {
            self.b.ins().jump(over, &[]);
        }
        self.b.switch_to_block(over);
        if !between.loops.is_empty() {
            let live = self.lanes().plan.live[between.join].clone();
            self.pass_on(&live, &mut before);
        }
        self.lanes().registers = before;
        self.lanes().joined = joined;
        self.set_form(Form::Once);
        let goes = self.way_in(region, between.join);
        self.b.ins().jump(goes, &[]);
    }

    /// Registers for what is done by masks. Loops have vectors of their own: registers of the
    /// processor that hold these are not needed by what the group does together.
    fn set_for(&mut self, between: &Masked) -> Set {
        let mut set = self.lanes().registers.clone();
        if between.loops.is_empty() {
            return set;
        }
        for (at, kept) in set.iter_mut().enumerate() {
            let (register, ty) = (RegId(at as u32), self.register_types[at]);
            // What is computed before the group's code stays where it is.
            if let Some(Kept::Vectors(variables)) = kept
                && !self.is_steady_here(register)
            {
                for variable in variables {
                    *variable = self.b.declare_var(vector_of(ty));
                }
            }
        }
        set
    }

    /// Passes vectors that are live on to other variables, through memory.
    fn pass_on(&mut self, live: &[RegId], to: &mut Set) {
        let slot = self.lanes().slot;
        for register in live {
            if self.is_steady_here(*register) {
                continue;
            }
            let place = self.place(*register);
            let ty = vector_of(self.register_types[register.0 as usize]);
            let (from, into) = (self.kept_of(*register), &to[register.0 as usize]);
            let (Kept::Vectors(from), Some(Kept::Vectors(into))) = (from, into) else {
                continue;
            };
            for (chunk, (from, into)) in from.into_iter().zip(into).enumerate() {
                let at = place + 16 * chunk as i32;
                let value = self.b.use_var(from);
                // Of another type, so that the load is not replaced by what is stored.
                let value = self.as_vector(value, types::I8X16);
                self.b.ins().stack_store(value, slot, at);
                let value = self.b.ins().stack_load(ty, slot, at);
                self.b.def_var(*into, value);
            }
        }
    }

    /// A mask that says nothing yet.
    fn anybody(&mut self) -> Coming {
        let chunks = 0..WIDTH / 4;
        chunks.map(|_| self.b.declare_var(types::I32X4)).collect()
    }

    /// A mask as it is now.
    fn mask_of(&mut self, coming: &Coming) -> Mask {
        coming.iter().map(|mask| self.b.use_var(*mask)).collect()
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
                (0..self.width() / 4).map(|_| mask).collect()
            }
        }
    }

    /// A mask and the other threads; the other way round if it is `negated`.
    pub(super) fn both(&mut self, mask: &Mask, negated: bool) -> [Mask; 2] {
        let others: Mask = mask.iter().map(|mask| self.b.ins().bnot(*mask)).collect();
        match negated {
            false => [mask.clone(), others],
            true => [others, mask.clone()],
        }
    }

    /// These threads come to a block: with others, unless they are the `first`.
    fn come(&mut self, between: &Masked, coming: &[Coming], to: usize, mask: &Mask, first: bool) {
        let Some(number) = between.blocks.iter().position(|block| *block == to) else {
            return; // they have come to where all join
        };
        for (variable, mask) in coming[number].iter().zip(mask) {
            let all = match first {
                true => *mask,
                false => {
                    let before = self.b.use_var(*variable);
                    self.b.ins().bor(before, *mask)
                }
            };
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
            if self.is_done_before(at) {
                continue;
            }
            self.step = at as u32;
            self.reads_bits = instruction.reads_bits;
            if let Flow::Jump(label) = instruction.operation.flow() {
                let to = self.jump_target(label);
                let Some((guard, negated)) = instruction.guard else {
                    self.come(between, coming, to, mask, false);
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
                self.come(between, coming, to, &taken, false);
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
            let shared = &between.shared[number];
            let free = instruction.operation.pure() || instruction.operation.loads_parameter();
            if free || way == Way::Once {
                self.step_by_mask(at, instruction, shared, mask, bits);
            } else {
                let kept = |written: &RegId| shared.contains(written);
                if !self.row_by_mask(instruction, mask, bits, kept)
                    && self
                        .load_likely_row(instruction, mask, bits, kept)
                        .is_none()
                {
                    self.each(instruction, Some(bits), kept);
                }
            }
        }
        if let Some(falls) = falls {
            self.come(between, coming, block + 1, &falls, false);
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
        let old = self.held_before(instruction, |written| shared.contains(written));
        match by_first(&*instruction.operation) {
            true => self.by_first(instruction, bits),
            false => self.group_step(at, instruction),
        }
        self.keep_others(old, mask, bits);
    }

    /// What the registers that a step writes hold before, of those that are `kept`.
    pub(super) fn held_before(
        &mut self,
        instruction: &Instruction,
        kept: impl Fn(&RegId) -> bool,
    ) -> Vec<(RegId, Vec<Value>)> {
        let needed = instruction.writes.iter().filter(|written| kept(written));
        needed
            .map(|register| (*register, self.all_of(*register)))
            .collect()
    }

    /// Threads that are not here have again what they had.
    pub(super) fn keep_others(&mut self, old: Vec<(RegId, Vec<Value>)>, mask: &Mask, bits: Value) {
        for (register, old) in old {
            match self.lanes().kept(register).clone() {
                Kept::One(_) => unreachable!("what others need is not kept once"),
                Kept::Vectors(variables) => {
                    for (chunk, (variable, old)) in variables.into_iter().zip(old).enumerate() {
                        let new = self.b.use_var(variable);
                        let ty = self.b.func.dfg.value_type(new);
                        let mask = self.mask_in(mask, chunk, ty);
                        let value = self.blend(mask, new, old);
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

    /// An access that is the same for all threads: the first does it that is here.
    fn by_first(&mut self, instruction: &Instruction, bits: Value) {
        self.set_form(Form::Once);
        let lane = self.b.ins().ctz(bits);
        let lane = self.b.ins().uextend(types::I64, lane);
        let distance = self.b.ins().imul_imm(lane, THREAD_STRIDE as i64);
        self.thread = self.b.ins().iadd(self.thread, distance);
        self.lanes().by_one = true;
        instruction.operation.lower(self);
        self.lanes().by_one = false;
        self.set_form(Form::Once);
    }

    /// Accesses of a row by those threads that are here. Where the whole row is inside, a load
    /// takes all of it, and each thread that is not here stores aside; where it is not, threads
    /// access it one after the other. The registers that are `kept` hold what they did where
    /// threads are not here.
    pub(super) fn row_by_mask(
        &mut self,
        instruction: &Instruction,
        mask: &Mask,
        bits: Value,
        kept: impl Fn(&RegId) -> bool,
    ) -> bool {
        let operation = &instruction.operation;
        let (Some(access), Some(weak)) = (operation.plain_access(), operation.weak_access()) else {
            return false;
        };
        let stride = self.lanes().plan.class(access.base).stride();
        let Some(stride) = stride.filter(|stride| in_rows(*stride, access.size)) else {
            return false;
        };
        if !(weak.shared || access.is_host()) || self.group.is_some() {
            return false;
        }
        self.set_form(Form::Once);
        let base = Arg::Reg(access.base);
        let first = self.address(&Arg::Address(Box::new(base), access.offset));
        let (at, inside, site) = match weak.shared {
            true => {
                let more = stride as u32 * (self.width() as u32 - 1);
                let (at, inside) = self.shared_access(first, access.size, more);
                (at, inside, None)
            }
            false => {
                let (inside, site) = self.row_is_inside(first, access, stride);
                (first, inside, site)
            }
        };
        let (row, each, next) = (self.fresh_block(), self.cold_block(), self.fresh_block());
        self.b.ins().brif(inside, row, &[], each, &[]);
        self.enter(row);
        if !access.write {
            let old = self.held_before(instruction, &kept);
            self.load_rows(weak.registers, weak.ty, at, stride);
            self.keep_others(old, mask, bits);
        } else if !(weak.shared && self.store_over(weak, at, stride, mask)) {
            debug_assert!(u64::from(access.size) <= LARGEST);
            self.store_aside(weak, at, stride, bits);
        }
        self.b.ins().jump(next, &[]);
        self.enter(each);
        self.lanes().site = site;
        self.each(instruction, Some(bits), kept);
        self.lanes().site = None;
        self.b.ins().jump(next, &[]);
        self.enter(next);
        true
    }

    /// The same of a load from an array, at indices that likely count up from thread to thread,
    /// also in those that are not here; `None` where they do not.
    fn load_likely_row(
        &mut self,
        instruction: &Instruction,
        mask: &Mask,
        bits: Value,
        kept: impl Fn(&RegId) -> bool,
    ) -> Option<()> {
        if !instruction.operation.loads() {
            return None;
        }
        let likely = self.row_or_each(instruction, &kept)?;
        let next = self.fresh_block();
        self.enter(likely.row);
        let old = self.held_before(instruction, &kept);
        self.checked_row(instruction, &likely);
        self.keep_others(old, mask, bits);
        self.b.ins().jump(next, &[]);
        self.enter(likely.each);
        self.each(instruction, Some(bits), kept);
        self.b.ins().jump(next, &[]);
        self.enter(next);
        Some(())
    }

    /// Stores a row in the block's shared memory, where threads that are not here store what is
    /// there: nobody else accesses that while the block's groups run, but blocks of a cluster.
    fn store_over(&mut self, weak: WeakAccess<'_>, to: Value, stride: i64, mask: &Mask) -> bool {
        let [Arg::Reg(register)] = weak.registers else {
            return false;
        };
        let Kept::Vectors(variables) = self.kept_of(*register) else {
            return false;
        };
        let held = self.register_types[register.0 as usize];
        if analysis::reaches(self.body) {
            return false;
        }
        let is_whole = held.bits() == value_type(weak.ty).bits();
        if !is_whole || stride != i64::from(held.bytes()) || self.is_predicate(*register) {
            return false;
        }
        let (vector, flags) = (vector_of(held), MemFlags::trusted());
        let wide = vector.lane_bits() == 64;
        for chunk in 0..variables.len() {
            let offset = 16 * chunk as i32;
            let mask = self.mask_in(mask, chunk, vector);
            let there = self.b.ins().load(vector, flags, to, offset);
            self.set_form(Form::Vector { chunk, wide });
            let value = self.held(*register);
            let value = self.blend(mask, value, there);
            self.b.ins().store(flags, value, to, offset);
        }
        self.set_form(Form::Once);
        true
    }

    /// Stores a row, where threads that are not here store into a place of their own: which those
    /// are, no branch of the processor must foretell.
    fn store_aside(&mut self, weak: WeakAccess<'_>, to: Value, stride: i64, bits: Value) {
        let flags = MemFlags::trusted();
        let slot = self.lanes().aside;
        let aside = self.b.ins().stack_addr(types::I64, slot, 0);
        for lane in 0..self.width() {
            self.set_form(Form::Lane(lane));
            let here = self.b.ins().iadd_imm(to, lane as i64 * stride);
            let counts = self.b.ins().band_imm(bits, 1 << lane);
            let at = self.b.ins().select(counts, here, aside);
            for (n, register) in (0..).zip(weak.registers) {
                let value = self.read(register, weak.ty);
                let offset = n * weak.ty.size() as i32;
                self.b.ins().store(flags, value, at, offset);
            }
        }
        self.set_form(Form::Once);
    }

    /// A part of a mask for a vector of a type.
    fn mask_in(&mut self, mask: &Mask, chunk: usize, ty: ir::Type) -> Value {
        let mask = match ty.lane_bits() {
            64 if chunk.is_multiple_of(2) => self.b.ins().swiden_low(mask[chunk / 2]),
            64 => self.b.ins().swiden_high(mask[chunk / 2]),
            _ => mask[chunk],
        };
        self.as_vector(mask, ty)
    }

    /// What a register that varies holds.
    fn all_of(&mut self, register: RegId) -> Vec<Value> {
        match self.lanes().kept(register).clone() {
            Kept::One(variable) => vec![self.b.use_var(variable)],
            Kept::Vectors(variables) => {
                let variables = variables.into_iter();
                variables.map(|variable| self.b.use_var(variable)).collect()
            }
            Kept::Each(variables) => {
                let variables = variables.into_iter();
                variables.map(|variable| self.b.use_var(variable)).collect()
            }
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
        let mut stands = self.stands(Some(between.join));
        for (other, block) in between.blocks.iter().enumerate() {
            let begins_again = between.loops.iter().any(|turns| turns.head == other);
            let bits = match other == number {
                true => bits,
                // Nobody is left there.
                false if other < number && !begins_again => continue,
                false => {
                    let mask = self.mask_of(&coming[other]);
                    self.threads_in(&mask)
                }
            };
            let here = self.stands(Some(*block));
            stands = self.stands_by_bits(bits, here, stands);
            blocks.push(*block);
        }
        self.part(&blocks, stands, Some(between.join));
        self.enter(next);
    }
}
