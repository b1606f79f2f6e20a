//! Accesses of a group's threads at one distance after the other, which have passed their check.
//! Where each thread loads or stores several registers, vectors go between memory and registers
//! by shuffles: a thread's values lie side by side in memory, a register's in vectors.

use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, MemFlags, Type as ValueType, Value, types};
use cranelift_frontend::Variable;
use ptx::ast::Type;
use smallvec::SmallVec;

use super::{Form, Kept, vector_of};
use crate::jit::decode::{Arg, RegId};
use crate::jit::lower::entry::Entry;
use crate::jit::lower::float_value::{and_number, canonical_f32};
use crate::jit::lower::{Lower, is_signed, value_type};
use crate::jit::program::Instruction;
use crate::jit::spmd::{Class, in_rows};

/// How the values of several registers lie in memory.
enum Layout {
    /// Two words for each thread, without a gap.
    Pairs,
    /// A vector for each thread: four words, or two of 64 bits.
    Vectors,
}

/// Bytes that caches hold together.
const LINE: i32 = 64;

/// So many vectors are worth a branch.
const MANY: usize = 4;

/// A register's vectors: their type and variables.
type Column = (ValueType, SmallVec<[Variable; 4]>);

/// Of words so far apart, where each four are in the two vectors that begin with the first and end
/// with the last.
fn spread_over_two(ty: ValueType, stride: i64) -> Option<[u8; 4]> {
    match (ty.bits(), stride) {
        (32, 8) => Some([0, 2, 5, 7]),
        (32, 12) => Some([0, 3, 4, 7]),
        _ => None,
    }
}

impl Lower<'_> {
    /// How far apart the group's accesses at an operand's address are, if one check is enough for
    /// all.
    pub(in crate::jit::lower) fn row_stride(&mut self, address: &Arg, size: u32) -> Option<i64> {
        match address {
            Arg::Address(base, _) => match **base {
                Arg::Reg(base) => match self.lanes().plan.class(base) {
                    Class::Affine(stride) => in_rows(stride, size).then_some(stride),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether nothing has been fetched for an access of a group, so far from its lowest, that lies
    /// about where this one does.
    pub(in crate::jit::lower) fn is_new_line(&mut self, group: u32, offset: i64) -> bool {
        let line = (group, offset / i64::from(LINE));
        let fetched = &mut self.lanes().fetched;
        let is_new = !fetched.contains(&line);
        if is_new {
            fetched.push(line);
        }
        is_new
    }

    /// Fetches what will soon be loaded or stored, where the step's accesses are `stride` apart,
    /// the first at `from`.
    pub(in crate::jit::lower) fn fetch_next(&mut self, from: Value, write: bool, stride: i64) {
        let at = self.step as usize;
        let Some(next) = self.lanes().plan.ahead(at) else {
            return;
        };
        // Groups of bytes would fetch each line many times.
        let bytes = self.width() as i32 * stride as i32;
        if !cfg!(target_arch = "x86_64") || bytes < LINE / 4 {
            return;
        }
        // The line that a row begins in is also the one that the row before it ends in.
        let end = if next.by > 0 { bytes.min(LINE) - 1 } else { 0 };
        let distance = match next.times {
            None => self.b.ins().iconst(types::I64, next.by),
            Some(times) => match self.lanes().kept(times).clone() {
                Kept::One(variable) if self.lanes().plan.class(times) == Class::Uniform => {
                    let times = self.b.use_var(variable);
                    let times = match self.b.func.dfg.value_type(times) {
                        types::I64 => times,
                        types::I32 => self.b.ins().sextend(types::I64, times),
                        _ => return,
                    };
                    self.b.ins().imul_imm(times, next.by)
                }
                _ => return,
            },
        };
        let distance = match next.in_turns {
            true => {
                let processors = self.entry(Entry::Nsmid);
                let processors = self.b.ins().uextend(types::I64, processors);
                self.b.ins().imul(distance, processors)
            }
            false => distance,
        };
        let next = self.b.ins().iadd(from, distance);
        for line in (0..bytes).step_by(LINE as usize) {
            self.fetch(next, line + end, write);
        }
    }

    /// The same where a thread that goes on by itself accesses something at an address.
    pub(in crate::jit::lower) fn fetch_stream(&mut self, address: Value, write: bool) {
        let stream = self.streams.get(&self.step).copied();
        if let Some(distance) = stream
            && self.form() == Form::Thread
            && cfg!(target_arch = "x86_64")
        {
            self.fetch(address, distance as i32, write);
        }
    }

    /// Fetches a line of memory.
    fn fetch(&mut self, base: Value, offset: i32, write: bool) {
        // See `stand_ins`.
        let flags = MemFlags::new();
        match write {
            false => self.b.ins().uload8(types::I32, flags, base, offset),
            true => self.b.ins().uload16(types::I32, flags, base, offset),
        };
    }

    /// Loads registers of a group: the first thread's lie at `from`, those of the others `stride`
    /// apart.
    pub(in crate::jit::lower) fn load_rows(
        &mut self,
        registers: &[Arg],
        ty: Type,
        from: Value,
        stride: i64,
    ) {
        if let Some((joined, distance)) = self.joined_loads() {
            let from = self.b.ins().iadd_imm(from, distance);
            return self.load_columns(&joined, ty, from, stride);
        }
        self.load_columns(registers, ty, from, stride);
    }

    fn load_columns(&mut self, registers: &[Arg], ty: Type, from: Value, stride: i64) {
        if let Some(parts) = self.parts(registers, ty, stride) {
            return self.load_parts(&parts, ty, from);
        }
        let Some((layout, variables)) = self.layout(registers, ty, stride) else {
            for (n, register) in (0..).zip(registers) {
                self.load_row(register, ty, from, n * ty.size() as i32, stride);
            }
            return;
        };
        let vector = vector_of(value_type(ty));
        let (flags, threads) = (MemFlags::trusted(), vector.lane_count() as usize);
        let vectors = self.width() / threads;
        for chunk in self.lanes().slice.vectors(vectors) {
            let apart = match layout {
                Layout::Pairs => 16,
                Layout::Vectors => stride as i32,
            };
            let first = (threads * chunk) as i32 * stride as i32;
            let rows = (0..registers.len() as i32).map(|row| first + row * apart);
            let rows: Vec<Value> = rows
                .map(|at| self.b.ins().load(vector, flags, from, at))
                .collect();
            let columns = self.turned(&layout, &rows, true);
            for ((held, variables), column) in variables.iter().zip(columns) {
                let column = self.as_vector(column, *held);
                self.b.def_var(variables[chunk], column);
            }
        }
    }

    /// Whether a load of a row fills each vector by itself.
    pub(super) fn row_goes_by_vectors(&mut self, instruction: &Instruction) -> bool {
        let operation = &instruction.operation;
        let (Some(plain), Some(weak)) = (operation.plain_access(), operation.weak_access()) else {
            return false;
        };
        let Some(stride) = self.lanes().plan.class(plain.base).stride() else {
            return false;
        };
        let bytes = weak.ty.size();
        let fits = |register: &Arg| match register {
            Arg::Reg(id) => self.register_types[id.0 as usize].bytes() == bytes,
            _ => false,
        };
        if !weak.registers.iter().all(fits) {
            return false;
        }
        match (weak.registers.len(), bytes) {
            (1, 4 | 8) | (4, 4) | (2, 8) => true,
            (2, 4) => stride == 8,
            _ => false,
        }
    }

    /// The other way round.
    pub(in crate::jit::lower) fn store_rows(
        &mut self,
        registers: &[Arg],
        ty: Type,
        to: Value,
        stride: i64,
    ) {
        if let Some(parts) = self.parts(registers, ty, stride) {
            return self.store_parts(&parts, ty, to);
        }
        let Some((layout, _)) = self.layout(registers, ty, stride) else {
            for (n, register) in (0..).zip(registers) {
                self.store_row(register, ty, to, n * ty.size() as i32, stride);
            }
            return;
        };
        let vector = vector_of(value_type(ty));
        let (flags, threads) = (MemFlags::trusted(), vector.lane_count() as usize);
        let values = registers.iter().map(|register| match register {
            Arg::Reg(register) => self.seen_vectors(*register),
            _ => unreachable!("what lies in memory so is in registers"),
        });
        let values: Vec<Vec<Value>> = values.collect();
        for chunk in 0..self.width() / threads {
            let columns: Vec<Value> = values.iter().map(|vectors| vectors[chunk]).collect();
            let rows = self.turned(&layout, &columns, false);
            let apart = match layout {
                Layout::Pairs => 16,
                Layout::Vectors => stride as i32,
            };
            let first = (threads * chunk) as i32 * stride as i32;
            for (row, value) in (0..).zip(rows) {
                self.b.ins().store(flags, value, to, first + row * apart);
            }
        }
    }

    /// The vectors of a register as who reads its bits sees them, see
    /// [`nans`](crate::jit::resolve). Many are looked at together: NaNs are rare.
    fn seen_vectors(&mut self, register: RegId) -> Vec<Value> {
        let Kept::Vectors(variables) = self.kept_of(register) else {
            unreachable!("it is in vectors");
        };
        let is_lazy = self.reads_bits && self.body.tables.lazy_nans[register.0 as usize];
        let values = variables.iter().map(|variable| self.b.use_var(*variable));
        let values: Vec<Value> = values.collect();
        if !is_lazy {
            return values;
        }
        self.set_form(Form::Vector {
            chunk: 0,
            wide: false,
        });
        let right = |l: &mut Self| -> Vec<Value> {
            let right = values.iter().map(|value| canonical_f32(l, *value));
            right.collect()
        };
        if values.len() < MANY {
            let right = right(self);
            self.set_form(Form::Once);
            return right;
        }
        let mut all = None;
        for pair in values.chunks(2) {
            let [a, b] = [pair[0], pair[pair.len() - 1]];
            let more = self.b.ins().fcmp(FloatCC::Unordered, a, b);
            all = Some(match all {
                None => more,
                Some(all) => self.b.ins().bor(all, more),
            });
        }
        let all = all.expect("a group has vectors");
        let any = self.b.ins().vany_true(all);
        let (next, cold) = (self.fresh_block(), self.cold_block());
        self.b.ins().brif(any, cold, &[], next, &[]);
        self.enter(cold);
        let right = right(self);
        for (variable, value) in variables.iter().zip(right) {
            self.b.def_var(*variable, value);
        }
        self.b.ins().jump(next, &[]);
        self.enter(next);
        self.set_form(Form::Once);
        variables
            .iter()
            .map(|variable| self.b.use_var(*variable))
            .collect()
    }

    /// How registers lie in memory, if shuffles bring them there; the vectors of each.
    fn layout(
        &mut self,
        registers: &[Arg],
        ty: Type,
        stride: i64,
    ) -> Option<(Layout, Vec<Column>)> {
        let bits = value_type(ty).bits();
        let layout = match (registers.len(), bits) {
            (4, 32) | (2, 64) => Layout::Vectors,
            (2, 32) if stride == 8 => Layout::Pairs,
            _ => return None,
        };
        let variables = registers.iter().map(|register| {
            let Arg::Reg(id) = register else {
                return None;
            };
            let held = self.register_types[id.0 as usize];
            match self.kept_of(*id) {
                Kept::Vectors(variables) if held.bits() == bits => {
                    Some((vector_of(held), variables))
                }
                _ => None,
            }
        });
        Some((layout, variables.collect::<Option<_>>()?))
    }

    /// Vectors of what lies side by side in memory as vectors of one register each, or back.
    fn turned(&mut self, layout: &Layout, rows: &[Value], load: bool) -> Vec<Value> {
        match (layout, rows) {
            (Layout::Pairs, [a, b]) if load => {
                vec![
                    self.shuffled(*a, *b, [0, 2, 4, 6]),
                    self.shuffled(*a, *b, [1, 3, 5, 7]),
                ]
            }
            (Layout::Pairs, [x, y]) => {
                vec![
                    self.shuffled(*x, *y, [0, 4, 1, 5]),
                    self.shuffled(*x, *y, [2, 6, 3, 7]),
                ]
            }
            (_, [a, b]) => self.halves(*a, *b),
            (_, [a, b, c, d]) => {
                let [low, high] = [[0, 4, 1, 5], [2, 6, 3, 7]];
                let (ab, cd) = (self.shuffled(*a, *b, low), self.shuffled(*c, *d, low));
                let mut all = self.halves(ab, cd);
                let (ab, cd) = (self.shuffled(*a, *b, high), self.shuffled(*c, *d, high));
                all.extend(self.halves(ab, cd));
                all
            }
            (_, rows) => unreachable!("{} vectors", rows.len()),
        }
    }

    /// The low halves of two vectors, and the high ones.
    fn halves(&mut self, a: Value, b: Value) -> Vec<Value> {
        let [low, high] = [[0, 1, 4, 5], [2, 3, 6, 7]].map(|words| self.shuffled(a, b, words));
        vec![low, high]
    }

    /// Registers of which several lie in a word, if a thread has one or two words of them and
    /// there is no gap between the threads'.
    fn parts(&mut self, registers: &[Arg], ty: Type, stride: i64) -> Option<Vec<(RegId, Column)>> {
        let bytes = ty.size() as usize * registers.len();
        if ty.size() > 2 || !matches!(bytes, 4 | 8) || stride != bytes as i64 {
            return None;
        }
        let parts = registers.iter().map(|register| {
            let Arg::Reg(id) = register else {
                return None;
            };
            let held = vector_of(self.register_types[id.0 as usize]);
            match self.kept_of(*id) {
                Kept::Vectors(variables) if held.lane_count() == 4 => {
                    Some((*id, (held, variables)))
                }
                _ => None,
            }
        });
        parts.collect()
    }

    /// Takes registers out of words.
    fn load_parts(&mut self, parts: &[(RegId, Column)], ty: Type, from: Value) {
        let (flags, bits) = (MemFlags::trusted(), 8 * i64::from(ty.size()));
        let rows = parts.len() as i64 * bits / 32;
        for chunk in self.lanes().slice.vectors(self.width() / 4) {
            let rows = (0..rows as i32).map(|row| {
                let at = 16 * (chunk as i32 * rows as i32 + row);
                self.b.ins().load(types::I32X4, flags, from, at)
            });
            let mut words: Vec<Value> = rows.collect();
            if let [_, _] = words[..] {
                words = self.turned(&Layout::Pairs, &words, true);
            }
            for (n, (register, (held, variables))) in (0..).zip(parts) {
                let (row, at) = ((n * bits / 32) as usize, n * bits % 32);
                let word = self.as_vector(words[row], types::I32X4);
                let is_short = self.is_short(*register);
                let mut part = self.b.ins().ishl_imm(word, 32 - bits - at);
                part = match is_signed(ty) && !(is_short && bits == 16) {
                    true => self.b.ins().sshr_imm(part, 32 - bits),
                    false => self.b.ins().ushr_imm(part, 32 - bits),
                };
                if is_signed(ty) && is_short && bits < 16 {
                    part = and_number(self, part, 0xffff);
                }
                let part = self.as_vector(part, *held);
                self.b.def_var(variables[chunk], part);
            }
        }
    }

    /// The other way round.
    fn store_parts(&mut self, parts: &[(RegId, Column)], ty: Type, to: Value) {
        let (flags, bits) = (MemFlags::trusted(), 8 * i64::from(ty.size()));
        let in_word = (32 / bits) as usize;
        for chunk in 0..self.width() / 4 {
            self.set_form(Form::Vector { chunk, wide: false });
            let words = parts.chunks(in_word).map(|parts| {
                let mut word = None;
                for (n, (register, _)) in (0..).zip(parts) {
                    let value = self.held(*register);
                    let value = self.as_vector(value, types::I32X4);
                    // What lies above a part is shifted out of it, and into its place.
                    let part = self.b.ins().ishl_imm(value, 32 - bits);
                    let part = self.b.ins().ushr_imm(part, 32 - bits - n * bits);
                    word = Some(match word {
                        None => part,
                        Some(word) => self.b.ins().bor(word, part),
                    });
                }
                word.expect("a word has parts")
            });
            let mut rows: Vec<Value> = words.collect();
            if let [_, _] = rows[..] {
                rows = self.turned(&Layout::Pairs, &rows, false);
            }
            let count = rows.len();
            for (row, value) in rows.into_iter().enumerate() {
                let at = 16 * (chunk * count + row) as i32;
                self.b.ins().store(flags, value, to, at);
            }
        }
        self.set_form(Form::Once);
    }

    /// Puts what lies side by side in memory into a register of a group: `stride` apart.
    fn load_row(&mut self, register: &Arg, ty: Type, from: Value, at: i32, stride: i64) {
        let Arg::Reg(register) = register else {
            return;
        };
        let held = self.register_types[register.0 as usize];
        let flags = MemFlags::trusted();
        let as_is = held.bits() == value_type(ty).bits();
        if let Kept::Vectors(variables) = self.lanes().kept(*register).clone()
            && as_is
            && matches!(held.bits(), 32 | 64)
        {
            for chunk in self.lanes().slice.vectors(variables.len()) {
                let value = self.load_spread(held, from, at, chunk, stride);
                self.b.def_var(variables[chunk], value);
            }
            return;
        }
        if let Kept::Vectors(variables) = self.lanes().kept(*register).clone()
            && held.bits() == 32
            && stride == i64::from(ty.size())
            && let Some(words) = self.load_words(*register, ty, from, at, variables.len())
        {
            for (variable, words) in variables.into_iter().zip(words) {
                let words = self.as_vector(words, vector_of(held));
                self.b.def_var(variable, words);
            }
            return;
        }
        let kind = if as_is { held } else { value_type(ty) };
        let values: Vec<Value> = (0..self.width() as i32)
            .map(|lane| {
                let value = self
                    .b
                    .ins()
                    .load(kind, flags, from, at + lane * stride as i32);
                self.fit_register(value, *register, is_signed(ty))
            })
            .collect();
        self.gather(*register, &values);
    }

    /// Loads one of the vectors of a register whose values lie `stride` apart.
    fn load_spread(
        &mut self,
        held: ValueType,
        from: Value,
        at: i32,
        chunk: usize,
        stride: i64,
    ) -> Value {
        let (vector, flags) = (vector_of(held), MemFlags::trusted());
        let count = vector.lane_count() as i32;
        let (words, stride) = (spread_over_two(held, stride), stride as i32);
        let first = at + count * stride * chunk as i32;
        if stride == held.bytes() as i32 {
            return self.b.ins().load(vector, flags, from, first);
        }
        if let Some(words) = words {
            // Both vectors lie between the first and the last of the four.
            let both = [first, first + 3 * stride - 12];
            let [low, high] = both.map(|at| self.b.ins().load(vector, flags, from, at));
            let value = self.shuffled(low, high, words);
            return self.as_vector(value, vector);
        }
        let one = self.b.ins().load(held, flags, from, first);
        let mut all = self.b.ins().scalar_to_vector(vector, one);
        for lane in 1..count {
            let one = self.b.ins().load(held, flags, from, first + lane * stride);
            all = self.b.ins().insertlane(all, one, lane as u8);
        }
        all
    }

    /// Loads values of 8 or 16 bits that lie side by side, as vectors of words.
    fn load_words(
        &mut self,
        register: RegId,
        ty: Type,
        from: Value,
        at: i32,
        vectors: usize,
    ) -> Option<Vec<Value>> {
        let (flags, signed, short) = (MemFlags::trusted(), is_signed(ty), self.is_short(register));
        let mut words = vec![];
        match value_type(ty) {
            types::I16 => {
                for chunk in 0..vectors as i32 {
                    let at = at + 8 * chunk;
                    words.push(match signed && !short {
                        true => self.b.ins().sload16x4(flags, from, at),
                        false => self.b.ins().uload16x4(flags, from, at),
                    });
                }
            }
            types::I8 => {
                for eight in 0..vectors as i32 / 2 {
                    let at = at + 8 * eight;
                    let halves = match signed {
                        true => self.b.ins().sload8x8(flags, from, at),
                        false => self.b.ins().uload8x8(flags, from, at),
                    };
                    words.extend(match signed && !short {
                        true => [
                            self.b.ins().swiden_low(halves),
                            self.b.ins().swiden_high(halves),
                        ],
                        false => [
                            self.b.ins().uwiden_low(halves),
                            self.b.ins().uwiden_high(halves),
                        ],
                    });
                }
            }
            _ => return None,
        }
        Some(words)
    }

    /// Stores the low 8 or 16 bits of vectors of words side by side.
    fn store_words(&mut self, register: RegId, ty: Type, to: Value, at: i32, vectors: usize) {
        let bytes = ty.size() as i32;
        let flags = MemFlags::trusted();
        let mut halves: Vec<Value> = vec![];
        for pair in 0..vectors / 2 {
            let [low, high] = [0, 1].map(|half| {
                let chunk = 2 * pair + half;
                self.set_form(Form::Vector { chunk, wide: false });
                let words = self.held(register);
                let words = self.as_vector(words, types::I32X4);
                // What is narrowed saturates.
                match bytes == 2 && self.is_short(register) {
                    true => words,
                    false => {
                        let mask = self.word((1 << (8 * bytes)) - 1);
                        self.b.ins().band(words, mask)
                    }
                }
            });
            halves.push(self.b.ins().unarrow(low, high));
        }
        self.set_form(Form::Once);
        if bytes == 2 {
            for (pair, halves) in (0..).zip(halves) {
                self.b.ins().store(flags, halves, to, at + 16 * pair);
            }
            return;
        }
        for (quad, halves) in (0..).zip(halves.chunks(2)) {
            let all = self.b.ins().unarrow(halves[0], halves[halves.len() - 1]);
            let at = at + 16 * quad;
            if let [_, _] = halves {
                self.b.ins().store(flags, all, to, at);
                continue;
            }
            let all = self.as_vector(all, types::I64X2);
            let eight = self.b.ins().extractlane(all, 0);
            self.b.ins().store(flags, eight, to, at);
        }
    }

    /// The other way round.
    fn store_row(&mut self, register: &Arg, ty: Type, to: Value, at: i32, stride: i64) {
        let flags = MemFlags::trusted();
        let kind = value_type(ty);
        if let Arg::Reg(id) = register
            && matches!(self.kept_of(*id), Kept::Vectors(_))
            && self.register_types[id.0 as usize].bits() == kind.bits()
            && stride == i64::from(kind.bytes())
        {
            for (chunk, value) in (0..).zip(self.seen_vectors(*id)) {
                self.b.ins().store(flags, value, to, at + 16 * chunk);
            }
            return;
        }
        if let Arg::Reg(id) = register
            && let Kept::Vectors(variables) = self.kept_of(*id)
            && self.register_types[id.0 as usize].bits() == 32
            && kind.bits() < 32
            && stride == i64::from(kind.bytes())
        {
            return self.store_words(*id, ty, to, at, variables.len());
        }
        for lane in 0..self.width() {
            self.set_form(Form::Lane(lane));
            let value = self.read(register, ty);
            let at = at + lane as i32 * stride as i32;
            self.b.ins().store(flags, value, to, at);
        }
        self.set_form(Form::Once);
    }
}
