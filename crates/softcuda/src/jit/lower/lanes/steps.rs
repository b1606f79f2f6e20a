//! Steps of a group: done once, in vectors, in rows of memory, or thread after thread.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, Block, InstBuilder, Value, types};
use cranelift_frontend::Variable;
use ptx::ast::{Space, Type};
use smallvec::SmallVec;

use super::agreement::Agreement;
use super::skips::Skip;
use super::{Form, Kept, in_vector, vector_of};
use crate::jit::decode::{Arg, Divisor, Flow, Halves, RegId};
use crate::jit::lower::Lower;
use crate::jit::program::{Instruction, Step};
use crate::jit::runtime::access::Access;
use crate::jit::spmd::{Class, Same, Way, in_rows};

/// Accesses that are elements one after the other, if they are as is likely.
pub(super) struct LikelyRow {
    /// Where they are, all inside of an array; where they are not.
    pub row: Block,
    pub each: Block,
    /// How far elements are apart.
    stride: i64,
    /// The register of indices, and what the first thread has there, where that is known.
    first: Option<(RegId, Value)>,
}

impl Lower<'_> {
    pub(super) fn group_step(&mut self, at: usize, instruction: &Instruction) {
        let way = self.lanes().plan.ways[at];
        if way == Way::Control {
            return self.group_control(at, instruction);
        }
        let guard = instruction.guard;
        let parts =
            guard.is_some_and(|(register, _)| self.lanes().plan.class(register) == Class::Varying);
        if parts {
            let Some((register, negated)) = guard else {
                return;
            };
            return match way {
                // Each vector that is written looks at the guard: none before may change it.
                Way::Vector
                    if instruction.writes.len() < 2 || !instruction.writes.contains(&register) =>
                {
                    let lanes = self.lanes();
                    lanes.mask = Some(register);
                    lanes.masks_by_false = negated;
                    self.by_vectors(instruction);
                    self.lanes().mask = None;
                }
                _ => {
                    let bits = self.mask_bits(at, register);
                    let bits = match negated {
                        false => bits,
                        true => self.b.ins().bnot(bits),
                    };
                    let is_row = instruction.operation.weak_access().is_some() && {
                        let holds = self.predicate_mask(register);
                        let [mask, _] = self.both(&holds, negated);
                        self.row_by_mask(instruction, &mask, bits, |_| true)
                    };
                    if !is_row {
                        self.each(instruction, Some(bits), |_| true);
                    }
                }
            };
        }
        let next = guard.map(|(register, negated)| {
            self.set_form(Form::Once);
            let guard = self.read(&Arg::Reg(register), Type::Pred);
            let (then, next) = (self.fresh_block(), self.fresh_block());
            match negated {
                false => self.b.ins().brif(guard, then, &[], next, &[]),
                true => self.b.ins().brif(guard, next, &[], then, &[]),
            };
            self.enter(then);
            next
        });
        match way {
            Way::Once => {
                self.set_form(Form::Once);
                instruction.operation.lower(self);
            }
            // Between regions.
            Way::Wait => {}
            Way::Widen { from, signed } => {
                let stride = self.lanes().plan.class(from).stride().unwrap_or(0);
                let fits = self.never_wraps(from, signed, stride);
                self.go_on_if(fits, at);
                instruction.operation.lower(self);
            }
            Way::Assume { from, signed, by } => {
                let counts = self.counts_up(from, by);
                let fits = self.never_wraps(from, signed, by);
                let holds = self.b.ins().band(counts, fits);
                self.go_on_if(holds, at);
                instruction.operation.lower(self);
            }
            Way::Same(same) => self.same(at, instruction, same),
            Way::Vector => self.by_vectors(instruction),
            Way::Row if self.is_loaded(at) => {}
            Way::Row => {
                self.set_form(Form::Once);
                let access = instruction.operation.plain_access();
                let stride =
                    access.and_then(|access| self.lanes().plan.class(access.base).stride());
                instruction.operation.lower_row(self, stride.unwrap_or(0));
            }
            Way::Each => match instruction.operation.halves() {
                Some(halves) if self.by_halves(halves) => {}
                _ => self.each_of_all(instruction),
            },
            Way::Control => unreachable!("done above"),
        }
        if let Some(next) = next {
            self.b.ins().jump(next, &[]);
            self.enter(next);
        }
        self.set_form(Form::Once);
    }

    /// Does a step once more that computes what the group has not kept.
    pub(in crate::jit::lower) fn group_step_again(&mut self, at: usize) {
        let body = self.body;
        if let Step::Instruction(instruction) = &body.steps[at] {
            self.reads_bits = instruction.reads_bits;
            let way = self.lanes().plan.ways[at];
            match way {
                Way::Widen { from, signed } if self.is_wide() => {
                    let next = self.unless_it_wraps(from, signed);
                    self.begin_narrow();
                    self.enter(next);
                    instruction.operation.lower(self);
                }
                // What was assumed the first time was so.
                Way::Widen { .. } | Way::Assume { .. } | Way::Same(_) => {
                    instruction.operation.lower(self);
                }
                _ => self.group_step(at, instruction),
            }
        }
    }

    pub(super) fn by_vectors(&mut self, instruction: &Instruction) {
        let registers = instruction.reads.iter().chain(&instruction.writes);
        let wide = registers
            .clone()
            .any(|register| self.register_types[register.0 as usize].bits() == 64);
        let vectors = self.width() / in_vector(wide);
        for chunk in self.lanes().slice.vectors(vectors) {
            self.set_form(Form::Vector { chunk, wide });
            instruction.operation.lower(self);
        }
        self.set_form(Form::Once);
    }

    /// Joins or splits vectors of 64 bits, if all registers are kept in vectors.
    fn by_halves(&mut self, halves: Halves) -> bool {
        let Halves {
            whole,
            parts,
            joins,
        } = halves;
        let kept = [whole, parts[0], parts[1]].map(|register| self.kept_of(register));
        let [
            Kept::Vectors(whole),
            Kept::Vectors(low),
            Kept::Vectors(high),
        ] = kept
        else {
            return false;
        };
        let of = |l: &Self, at: usize| vector_of(l.register_types[parts[at].0 as usize]);
        let types = [of(self, 0), of(self, 1)];
        let is_word = |ty: &ir::Type| matches!(*ty, types::I32X4 | types::F32X4);
        if whole.len() != 2 * low.len() || low.len() != high.len() || !types.iter().all(is_word) {
            return false;
        }
        for chunk in 0..low.len() {
            let (first, second) = (whole[2 * chunk], whole[2 * chunk + 1]);
            if joins {
                let (a, b) = (self.b.use_var(low[chunk]), self.b.use_var(high[chunk]));
                if let Some(whole) = self.lanes().split.get(&(a, b)).copied() {
                    self.b.def_var(first, whole.0);
                    self.b.def_var(second, whole.1);
                    continue;
                }
                for (to, words) in [(first, [0, 4, 1, 5]), (second, [2, 6, 3, 7])] {
                    let pair = self.shuffled(a, b, words);
                    let pair = self.as_vector(pair, types::F64X2);
                    self.b.def_var(to, pair);
                }
            } else {
                let (a, b) = (self.b.use_var(first), self.b.use_var(second));
                let [lows, highs] =
                    [[0, 2, 4, 6], [1, 3, 5, 7]].map(|words| self.shuffled(a, b, words));
                let (lows, highs) = (
                    self.as_vector(lows, types[0]),
                    self.as_vector(highs, types[1]),
                );
                self.lanes().split.insert((lows, highs), (a, b));
                self.b.def_var(low[chunk], lows);
                self.b.def_var(high[chunk], highs);
            }
        }
        true
    }

    /// Thread after thread. Where one check tells that all accesses are inside of an array, none
    /// has one of its own.
    fn each_of_all(&mut self, instruction: &Instruction) {
        if self.load_chosen(instruction) {
            return;
        }
        let mut row = self.row_of_array(instruction);
        self.set_form(Form::Once);
        let single = self.single_access(instruction);
        let of_parameter = match &single {
            Some((low, access)) => self.any_outside_array(*low, access),
            None => None,
        };
        let outside = match of_parameter {
            Some(outside) => Some((outside, None)),
            None => {
                row = row.or_else(|| self.likely_row(instruction));
                single.and_then(|(low, access)| self.any_outside_of(low, &access))
            }
        };
        let Some((outside, site)) = outside else {
            self.each(instruction, None, |_| true);
            if let Some(done) = row {
                self.forget_bases();
                self.b.ins().jump(done, &[]);
                self.enter(done);
            }
            return;
        };
        let (fast, slow, next) = (self.fresh_block(), self.cold_block(), self.fresh_block());
        self.b.ins().brif(outside, slow, &[], fast, &[]);
        self.enter(slow);
        let all = self.every_bit();
        let all = self.b.ins().iconst(types::I32, all);
        self.lanes().site = site;
        self.in_turn(instruction, all, |_| false);
        self.lanes().site = None;
        self.b.ins().jump(next, &[]);
        self.enter(fast);
        self.lanes().checked = true;
        self.each(instruction, None, |_| true);
        self.lanes().checked = false;
        self.b.ins().jump(next, &[]);
        self.enter(next);
        if let Some(done) = row {
            self.b.ins().jump(done, &[]);
            self.enter(done);
        }
    }

    /// Does accesses that are likely a row of elements, where they are. The builder is where they
    /// are not; what is answered is where those of a row are done.
    fn row_of_array(&mut self, instruction: &Instruction) -> Option<Block> {
        let likely = self.row_or_each(instruction, |_| false)?;
        let done = self.fresh_block();
        self.enter(likely.row);
        self.checked_row(instruction, &likely);
        self.b.ins().jump(done, &[]);
        self.enter(likely.each);
        Some(done)
    }

    /// Asks whether accesses that are likely elements one after the other are such, all inside of an
    /// array. Fills the builder's block. In registers that are `kept`, some threads may have what
    /// they had before.
    pub(super) fn row_or_each(
        &mut self,
        instruction: &Instruction,
        kept: impl Fn(&RegId) -> bool,
    ) -> Option<LikelyRow> {
        let access = instruction.operation.plain_access()?;
        let (index, stride) = self.likely_elements(instruction)?;
        let told = match kept(&index) {
            true => None,
            false => self.column_row(index),
        };
        let first = told.map(|(_, first)| (index, first));
        let all = Access {
            threads: self.width() as u64,
            stride: stride as u64,
            ..Access::one(access.size, access.write)
        };
        self.lanes().firsts.extend(first);
        self.set_form(Form::Lane(0));
        let inside = self.inside_array(access.offset, &all);
        self.set_form(Form::Once);
        self.lanes().firsts.clear();
        let mut inside = inside?;
        if let Some(whole) = self.stays_whole(index) {
            inside = self.b.ins().band(inside, whole);
        }
        let differs = match told {
            Some((differs, _)) => differs,
            None => self.differs(index, 1),
        };
        let (counts, row, each) = (self.fresh_block(), self.fresh_block(), self.fresh_block());
        self.b.ins().brif(differs, each, &[], counts, &[]);
        self.enter(counts);
        self.b.ins().brif(inside, row, &[], each, &[]);
        Some(LikelyRow {
            row,
            each,
            stride,
            first,
        })
    }

    /// Whether no index wraps that counts up from the first thread's, where something is added to
    /// it: the sum tells nothing of that.
    fn stays_whole(&mut self, index: RegId) -> Option<Value> {
        let element = self.array_element()?;
        element.plus?;
        let (order, most) = match element.signed {
            true => (IntCC::SignedLessThanOrEqual, i64::from(i32::MAX)),
            false => (IntCC::UnsignedLessThanOrEqual, i64::from(u32::MAX)),
        };
        self.set_form(Form::Lane(0));
        let first = self.read(&Arg::Reg(index), Type::B32);
        self.set_form(Form::Once);
        let most = (most - self.width() as i64) as i32;
        let most = self.b.ins().iconst(types::I32, i64::from(most));
        Some(self.b.ins().icmp(order, first, most))
    }

    /// The register that the index of an access into an array is in, where it likely counts up by 1
    /// from thread to thread, and how far elements are apart.
    fn likely_elements(&mut self, instruction: &Instruction) -> Option<(RegId, i64)> {
        let access = instruction.operation.plain_access()?;
        let element = self.array_element()?;
        if let Some((plus, _)) = element.plus
            && !self.is_of_group(plus)
        {
            return None;
        }
        let step = self.lanes().plan.likely_stride(element.index)?;
        let stride = element.by;
        // By more than 1, indices could wrap without one that is outside.
        let is_row = step == 1
            && access.is_host()
            && self.group.is_none()
            && in_rows(stride, access.size)
            && instruction.operation.weak_access().is_some()
            && matches!(self.kept_of(element.index), Kept::Vectors(_));
        is_row.then_some((element.index, stride))
    }

    /// Does the accesses of a row that is known to be inside of an array.
    pub(super) fn checked_row(&mut self, instruction: &Instruction, likely: &LikelyRow) {
        if let Some((index, first)) = likely.first
            && let Some(access) = instruction.operation.plain_access()
            && let Some(element) = self.element_at(first)
        {
            let firsts = [(index, first), (access.base, element)];
            self.lanes().firsts.extend(firsts);
        }
        self.set_form(Form::Lane(0));
        self.lanes().checked = true;
        instruction.operation.lower_row(self, likely.stride);
        self.lanes().checked = false;
        self.lanes().firsts.clear();
        self.set_form(Form::Once);
    }

    /// Where the threads' addresses likely count up, the accesses of those that do are one row. The
    /// builder is where they do not; what is answered is where those of a row are done.
    pub(super) fn likely_row(&mut self, instruction: &Instruction) -> Option<Block> {
        let access = instruction.operation.plain_access()?;
        instruction.operation.weak_access()?;
        let stride = self.lanes().plan.likely_stride(access.base)?;
        if !in_rows(stride, access.size) {
            return None;
        }
        let is_word = self.register_types[access.base.0 as usize] == types::I32;
        let different = match (self.kept_of(access.base), access.space) {
            (Kept::Vectors(_), Some(Space::Shared)) if is_word => {
                Some(self.differs(access.base, stride))
            }
            _ if access.is_host() => self.addresses_differ(access.base, stride),
            _ => return None,
        };
        let (row, each, done) = (self.fresh_block(), self.fresh_block(), self.fresh_block());
        self.b.ins().brif(different?, each, &[], row, &[]);
        self.enter(row);
        self.forget_bases();
        self.set_form(Form::Lane(0));
        instruction.operation.lower_row(self, stride);
        self.set_form(Form::Once);
        self.forget_bases();
        self.b.ins().jump(done, &[]);
        self.enter(each);
        Some(done)
    }

    /// Whether some thread's address is not so far from the first one's, as bits.
    fn addresses_differ(&mut self, base: RegId, stride: i64) -> Option<Value> {
        let base = Arg::Reg(base);
        let mut different = None;
        let mut first = None;
        for lane in 0..self.width() {
            self.set_form(Form::Lane(lane));
            let address = self.read(&base, Type::B64);
            let Some(first) = first else {
                first = Some(address);
                continue;
            };
            let expected = self.b.ins().iadd_imm(first, lane as i64 * stride);
            let bits = self.b.ins().bxor(address, expected);
            different = Some(match different {
                None => bits,
                Some(different) => self.b.ins().bor(different, bits),
            });
        }
        different
    }

    /// What was checked of the step's group of accesses is known on one of several ways alone.
    fn forget_bases(&mut self) {
        if let Some(group) = self.group {
            self.lanes().bases[group as usize].fill(None);
        }
    }

    /// How far a thread's access is from its base, and what it is; `None` where one check cannot
    /// tell of all threads' accesses, or tells of several of each.
    fn single_access(&self, instruction: &Instruction) -> Option<(i64, Access)> {
        let access = instruction.operation.plain_access()?;
        let is_single = access.is_host() && self.group.is_none();
        is_single.then(|| (access.offset, Access::one(access.size, access.write)))
    }

    /// Thread after thread; only those that have a bit set, where there are bits. The others keep
    /// what they have in registers that are `kept`.
    pub(super) fn each(
        &mut self,
        instruction: &Instruction,
        bits: Option<Value>,
        kept: impl Fn(&RegId) -> bool,
    ) {
        let in_batch = self.begin_batch(instruction, bits);
        self.one_by_one_of(instruction, bits, kept);
        if in_batch {
            self.end_batch(bits);
        }
    }

    fn one_by_one_of(
        &mut self,
        instruction: &Instruction,
        bits: Option<Value>,
        kept: impl Fn(&RegId) -> bool,
    ) {
        self.lanes().written.clear();
        if let Some(bits) = bits
            && !instruction.operation.pure()
        {
            return self.in_turn(instruction, bits, kept);
        }
        for lane in 0..self.width() {
            self.set_form(Form::Lane(lane));
            let next = bits.map(|bits| {
                for written in &instruction.writes {
                    let old = match kept(written) {
                        true => self.held_in_group(*written),
                        false => self.zero(self.register_types[written.0 as usize]),
                    };
                    self.put_in_group(*written, old);
                }
                let counts = self.b.ins().band_imm(bits, 1 << lane);
                let (then, next) = (self.fresh_block(), self.fresh_block());
                self.b.ins().brif(counts, then, &[], next, &[]);
                self.enter(then);
                next
            });
            instruction.operation.lower(self);
            if let Some(next) = next {
                self.b.ins().jump(next, &[]);
                self.enter(next);
            }
        }
        self.gather_written(instruction);
    }

    /// Puts what the threads have written one after the other into registers.
    fn gather_written(&mut self, instruction: &Instruction) {
        self.set_form(Form::Once);
        for register in &instruction.writes {
            let variables: Option<Vec<Variable>> = (0..self.width())
                .map(|lane| self.lanes().written.get(&(*register, lane)).copied())
                .collect();
            // An operation that writes a register at all writes it in each thread.
            if let Some(variables) = variables {
                let values = variables
                    .into_iter()
                    .map(|variable| self.b.use_var(variable));
                let values: Vec<Value> = values.collect();
                self.gather(*register, &values);
            }
        }
    }

    /// Computes what the first thread has, where that shows that all have what counts up from
    /// there, or the last one's does.
    fn same(&mut self, at: usize, instruction: &Instruction, same: Same) {
        let Same {
            from,
            signed,
            by,
            gives,
        } = same;
        let [to] = instruction.writes[..] else {
            unreachable!("it gives one number");
        };
        let mut holds = self.never_wraps(from, signed, by);
        if self.lanes().plan.class(from) == Class::Varying {
            let counts = self.counts_up(from, by);
            holds = self.b.ins().band(holds, counts);
        }
        let lane = |l: &mut Self, lane| {
            l.lanes().written.clear();
            l.set_form(Form::Lane(lane));
            instruction.operation.lower(l);
            let variable = l.lanes().written[&(to, lane)];
            l.b.use_var(variable)
        };
        let first = lane(self, 0);
        let next = self.room_in_row(instruction, same, first).map(|room| {
            let holds = self.b.ins().band(room, holds);
            let (near, next) = (self.cold_block(), self.fresh_block());
            self.b.ins().brif(holds, next, &[], near, &[]);
            self.enter(near);
            next
        });
        let last = lane(self, self.width() - 1);
        let expected = match gives.wrapping_mul(self.width() as i64 - 1) {
            0 => first,
            more => self.plus(first, more),
        };
        let same = self.b.ins().icmp(IntCC::Equal, expected, last);
        let holds = self.b.ins().band(same, holds);
        self.go_on_if(holds, at);
        if let Some(next) = next {
            self.b.ins().jump(next, &[]);
            self.enter(next);
        }
        self.put_all(to, first);
    }

    /// Whether all threads of a group are certain to divide alike: so much is left in the first
    /// one's row, which has divided by a register. No number is below zero then.
    fn room_in_row(&mut self, step: &Instruction, same: Same, first: Value) -> Option<Value> {
        let division = step.operation.division()?;
        let by = match division.by {
            Divisor::Register(by) if by != division.from && same.by >= 0 => by,
            _ => return None,
        };
        self.set_form(Form::Once);
        let [from, by] = [division.from, by].map(|of| self.read(&Arg::Reg(of), Type::B32));
        let rest = match division.rest {
            true => first,
            false => {
                let whole = self.b.ins().imul(first, by);
                self.b.ins().isub(from, whole)
            }
        };
        let [long_rest, long_by] = [rest, by].map(|value| match division.signed {
            true => self.b.ins().sextend(types::I64, value),
            false => self.b.ins().uextend(types::I64, value),
        });
        let last = self.plus(long_rest, same.by * (self.width() as i64 - 1));
        let order = IntCC::SignedLessThan;
        let room = self.b.ins().icmp(order, last, long_by);
        if !division.signed {
            return Some(room);
        }
        let order = IntCC::SignedGreaterThanOrEqual;
        let positive = self.b.ins().icmp_imm(order, from, 0);
        Some(self.b.ins().band(room, positive))
    }

    /// Goes on where it holds by what a step is done once. Otherwise the group's threads go on by
    /// themselves from that step.
    fn go_on_if(&mut self, holds: Value, at: usize) {
        let (next, cold) = (self.fresh_block(), self.cold_block());
        self.b.ins().brif(holds, next, &[], cold, &[]);
        self.enter(cold);
        let block = self.lanes().plan.control.graph.block_of[at];
        if self.is_wide() {
            self.resume(block);
        } else {
            let (here, join) = (self.stands(Some(block)), self.lanes().plan.assumed_join(at));
            self.part(&[block], here, join);
        }
        self.enter(next);
        self.set_form(Form::Once);
    }

    /// Whether a register of words holds so much more in each thread than in the one before.
    fn counts_up(&mut self, register: RegId, by: i64) -> Value {
        let differs = self.differs(register, by);
        self.b.ins().bxor_imm(differs, 1)
    }

    /// Whether it does not.
    pub(super) fn differs(&mut self, register: RegId, by: i64) -> Value {
        let Kept::Vectors(variables) = self.kept_of(register) else {
            unreachable!("words that vary are in vectors");
        };
        let (mut first, mut all) = (None, None);
        for (chunk, variable) in variables.into_iter().enumerate() {
            let value = self.b.use_var(variable);
            let value = self.as_vector(value, types::I32X4);
            let first = *first.get_or_insert_with(|| {
                let first = self.b.ins().extractlane(value, 0);
                self.b.ins().splat(types::I32X4, first)
            });
            let steps = self.steps(types::I32X4, chunk, by);
            let expected = self.b.ins().iadd(first, steps);
            let bits = self.b.ins().bxor(value, expected);
            all = Some(match all {
                None => bits,
                Some(all) => self.b.ins().bor(all, bits),
            });
        }
        let all = all.expect("a group has a vector");
        self.b.ins().vany_true(all)
    }

    /// The builder is where a thread's value wraps; what is answered is where it goes on
    /// otherwise.
    pub(super) fn unless_it_wraps(&mut self, from: RegId, signed: bool) -> Block {
        let stride = self.lanes().plan.class(from).stride().unwrap_or(0);
        let fits = self.never_wraps(from, signed, stride);
        let (next, cold) = (self.fresh_block(), self.cold_block());
        self.b.ins().brif(fits, next, &[], cold, &[]);
        self.enter(cold);
        next
    }

    /// Whether no thread's value wraps, which are so far apart.
    fn never_wraps(&mut self, from: RegId, signed: bool, stride: i64) -> Value {
        self.set_form(Form::Once);
        let span = i64::from(stride as i32) * (self.width() as i64 - 1);
        let value = self.read(&Arg::Reg(from), Type::B32);
        let (least, most) = match signed {
            true => (i64::from(i32::MIN), i64::from(i32::MAX)),
            false => (0, i64::from(u32::MAX)),
        };
        // The first thread's value with which the last one's is the last that fits.
        let (order, limit) = match (span < 0, signed) {
            (false, true) => (IntCC::SignedLessThanOrEqual, most - span),
            (false, false) => (IntCC::UnsignedLessThanOrEqual, most - span),
            (true, true) => (IntCC::SignedGreaterThanOrEqual, least - span),
            (true, false) => (IntCC::UnsignedGreaterThanOrEqual, least - span),
        };
        match (least..=most).contains(&limit) {
            true => {
                let limit = self.b.ins().iconst(types::I32, i64::from(limit as i32));
                self.b.ins().icmp(order, value, limit)
            }
            false => self.b.ins().iconst(types::I8, 0),
        }
    }

    /// Where a jump leads to, a block of the plan.
    pub(super) fn jump_target(&mut self, label: u32) -> usize {
        let is_it = |step: &Step| matches!(step, Step::Label(known) if *known == label);
        let step = self.body.steps.iter().position(is_it);
        let step = step.expect("resolve has found every label");
        self.lanes().plan.control.graph.block_of[step]
    }

    /// A jump or an end.
    pub(super) fn group_control(&mut self, at: usize, instruction: &Instruction) {
        self.set_form(Form::Once);
        let control = &self.lanes().plan.control;
        let block = control.graph.block_of[at];
        let falls = block + 1;
        let taken = match instruction.operation.flow() {
            Flow::Jump(label) => Some(self.jump_target(label)),
            _ => None,
        };
        let is_trap = taken.is_none() && instruction.operation.faults();
        let go = |l: &mut Self| match taken {
            _ if is_trap => {
                instruction.operation.lower(l);
                // What follows is not reached.
                l.end_group();
            }
            Some(taken) => {
                let to = l.way_to(block, taken);
                l.b.ins().jump(to, &[]);
            }
            None => l.end_group(),
        };
        let Some((register, negated)) = instruction.guard else {
            go(self);
            let next = self.fresh_block();
            return self.enter(next);
        };
        if self.decides(block) {
            return self.decide(at, register, negated);
        }
        let apart = self.lanes().plan.apart.get(block).cloned().flatten();
        if let Some(apart) = apart.as_ref().filter(|apart| apart.always) {
            self.go_apart(apart, at, instruction);
            let next = self.fresh_block();
            return self.enter(next);
        }
        // The way back to a loop's head comes first, and leads there at once. So a turn's results
        // are computed in it: Cranelift does that where they are needed first, and would keep what
        // they are computed from behind the branches.
        let back = taken
            .filter(|taken| *taken <= block)
            .map(|taken| self.way_to(block, taken));
        let (then, next) = (self.fresh_block(), self.fresh_block());
        if self.lanes().plan.class(register) != Class::Varying {
            let guard = self.read(&Arg::Reg(register), Type::Pred);
            let to = back.unwrap_or(then);
            match negated {
                false => self.b.ins().brif(guard, to, &[], next, &[]),
                true => self.b.ins().brif(guard, next, &[], to, &[]),
            };
            if back.is_none() {
                self.enter(then);
                go(self);
            }
            return self.enter(next);
        }
        if let Some(Agreement { none, all }) = self.agreement(at, register) {
            // Most often this tells, and no vector is needed.
            let (none, mut all) = if negated { (all, none) } else { (none, all) };
            let skip = match self.is_wide() {
                true => None,
                false => self.skip_at(at),
            };
            let stays = |skip: &Skip| skip.if_true == negated;
            let back = back.filter(|_| skip.as_ref().is_none_or(stays));
            if let Some(back) = back
                && let Some(told) = all.take()
            {
                let other = self.fresh_block();
                let goes = self.all_told(told);
                self.b.ins().brif(goes, back, &[], other, &[]);
                self.enter(other);
            }
            let may_be_all = all.is_some();
            for (told, to) in [(none, next), (all, then)] {
                let Some((last, before)) = told.as_ref().and_then(|told| told.split_last()) else {
                    continue;
                };
                let unknown = self.fresh_block();
                for told in before {
                    let both = self.fresh_block();
                    self.b.ins().brif(*told, both, &[], unknown, &[]);
                    self.enter(both);
                }
                let leaves = |skip: &&Skip| (skip.if_true != negated) == (to == then);
                match skip.as_ref().filter(leaves) {
                    None => _ = self.b.ins().brif(*last, to, &[], unknown, &[]),
                    Some(skip) => {
                        let rest = self.fresh_block();
                        self.b.ins().brif(*last, rest, &[], unknown, &[]);
                        self.enter(rest);
                        self.leave_for_rest(skip, to);
                    }
                }
                self.enter(unknown);
            }
            if self.is_wide() {
                // Hardly ever do they agree yet.
                self.resume(block);
                if may_be_all {
                    self.enter(then);
                    go(self);
                }
                return self.enter(next);
            }
        } else if self.lanes().plan.regions.is_none()
            && let Some(none) = self.certain(at, register, negated)
        {
            let unknown = self.fresh_block();
            self.b.ins().brif(none, next, &[], unknown, &[]);
            self.enter(unknown);
        }
        let bits = self.mask_bits(at, register);
        let all = self.every_bit();
        let (none, some) = match negated {
            false => (0, all),
            true => (all, 0),
        };
        let other = self.fresh_block();
        let cold = match self.lanes().plan.masked[block] {
            None => self.cold_block(),
            Some(_) => self.fresh_block(),
        };
        let is_none = self.b.ins().icmp_imm(IntCC::Equal, bits, none);
        self.b.ins().brif(is_none, next, &[], other, &[]);
        self.enter(other);
        let is_all = self.b.ins().icmp_imm(IntCC::Equal, bits, some);
        self.b.ins().brif(is_all, then, &[], cold, &[]);
        self.enter(then);
        go(self);
        self.enter(cold);
        if self.is_wide() {
            self.resume(block);
            return self.enter(next);
        }
        if let (Some(masked), Some(taken)) = (self.lanes().plan.masked[block].clone(), taken) {
            self.go_by_masks(&masked, register, negated, [taken, falls]);
            return self.enter(next);
        }
        if let Some(apart) = apart {
            self.go_apart(&apart, at, instruction);
            return self.enter(next);
        }
        self.part_at_branch(at, instruction, bits);
        self.enter(next);
    }

    /// The threads of the group go on by themselves from a step that may leave its block: those
    /// that have a bit set do where the guard is not negated.
    pub(super) fn part_at_branch(&mut self, at: usize, instruction: &Instruction, bits: Value) {
        let block = self.lanes().plan.control.graph.block_of[at];
        let (falls, negated) = (block + 1, instruction.guard.is_some_and(|(_, not)| not));
        let leads = match instruction.operation.flow() {
            Flow::Jump(label) => Some(self.jump_target(label)),
            // A thread that traps does so by itself; a block begins there.
            _ if instruction.operation.faults() => Some(block),
            _ => None,
        };
        let (there, here) = (self.stands(leads), self.stands(Some(falls)));
        let stands = match negated {
            false => self.stands_by_bits(bits, there, here),
            true => self.stands_by_bits(bits, here, there),
        };
        let mut blocks: SmallVec<[usize; 2]> = SmallVec::new();
        blocks.push(falls);
        blocks.extend(leads);
        let join = self.lanes().plan.join(block);
        self.part(&blocks, stands, join);
    }

    /// A bit for each thread of a group, of a predicate that varies, as the step at `at` reads it.
    pub(super) fn mask_bits(&mut self, at: usize, register: RegId) -> Value {
        let known = self.taken_bits(register);
        if let Some(bits) = known.or_else(|| self.column_bits(at, register)) {
            return bits;
        }
        let mask = self.predicate_mask(register);
        self.threads_in(&mask)
    }
}
