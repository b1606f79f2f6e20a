//! Registers of a group: vectors, single values, and the forms in which operations read and write
//! them.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Opcode, Type as ValueType, Value, types};
use cranelift_frontend::Variable;
use ptx::ast::{Immediate, Type};

use super::{Form, Kept, little_endian, vector_of};
use crate::jit::decode::{Arg, RegId};
use crate::jit::lower::{Lower, value_type};
use crate::jit::spmd::Class;

impl Lower<'_> {
    /// A scalar as a vector of it, where the operation works on vectors; a predicate as a mask.
    pub(in crate::jit::lower) fn spread(&mut self, value: Value) -> Value {
        let Form::Vector { wide, .. } = self.form() else {
            return value;
        };
        match self.b.func.dfg.value_type(value) {
            types::I8 => {
                let ty = if wide { types::I64 } else { types::I32 };
                let value = self.b.ins().uextend(ty, value);
                let value = self.b.ins().ineg(value);
                self.b.ins().splat(vector_of(ty), value)
            }
            types::I16 => {
                let value = self.b.ins().uextend(types::I32, value);
                self.b.ins().splat(types::I32X4, value)
            }
            ty => self.b.ins().splat(vector_of(ty), value),
        }
    }

    /// A word, or a vector of it.
    pub(in crate::jit::lower) fn word(&mut self, number: i64) -> Value {
        let value = self.b.ins().iconst(types::I32, number);
        self.spread(value)
    }

    /// The low bits of the words of a vector, extended by their sign or by zeros.
    pub(in crate::jit::lower) fn extended(
        &mut self,
        words: Value,
        bits: u32,
        signed: bool,
    ) -> Value {
        match (bits, signed) {
            (32.., _) => words,
            (_, true) => {
                let by = self.b.ins().iconst(types::I32, i64::from(32 - bits));
                let high = self.b.ins().ishl(words, by);
                self.b.ins().sshr(high, by)
            }
            (_, false) => {
                let mask = self.word((1 << bits) - 1);
                self.b.ins().band(words, mask)
            }
        }
    }

    /// An integer of 16 bits as an operation reads it: in vectors, signed ones are extended.
    pub(in crate::jit::lower) fn read_number(&mut self, arg: &Arg, ty: Type) -> Value {
        let value = self.read(arg, ty);
        match self.in_vectors() && ty == Type::S16 {
            true => self.extended(value, 16, true),
            false => value,
        }
    }

    /// Puts an integer into a destination: in vectors, one of 16 bits without what is above them.
    pub(in crate::jit::lower) fn write_number(&mut self, arg: &Arg, ty: Type, value: Value) {
        match self.in_vectors() {
            true => self.write_word(arg, value),
            false => self.write(arg, ty, value),
        }
    }

    /// Puts the words of a vector into a destination, or the low halves where it has 16 bits.
    pub(in crate::jit::lower) fn write_word(&mut self, arg: &Arg, words: Value) {
        let short = matches!(arg, Arg::Reg(register) if self.is_short(*register));
        let words = match short {
            true => self.extended(words, 16, false),
            false => words,
        };
        self.write(arg, Type::B32, words);
    }

    /// A complement of a predicate.
    pub(in crate::jit::lower) fn not(&mut self, predicate: Value) -> Value {
        match self.in_vectors() {
            true => self.b.ins().bnot(predicate),
            false => self.b.ins().bxor_imm(predicate, 1),
        }
    }

    /// `a` where a predicate is true, otherwise `b`.
    pub(in crate::jit::lower) fn select(&mut self, predicate: Value, a: Value, b: Value) -> Value {
        if !self.in_vectors() {
            return self.b.ins().select(predicate, a, b);
        }
        let ty = self.b.func.dfg.value_type(a);
        let mask = self.as_vector(predicate, ty);
        self.blend(mask, a, b)
    }

    /// Elements of `a` where a mask has all bits set, and of `b` where it has none.
    pub(super) fn blend(&mut self, mask: Value, a: Value, b: Value) -> Value {
        // Cranelift does so by comparisons, but does not see that what follows from them is a mask.
        let dfg = &self.b.func.dfg;
        let of = |value| {
            dfg.value_def(value)
                .inst()
                .map(|inst| (inst, dfg.insts[inst].opcode()))
        };
        let is_comparison = match of(mask) {
            Some((_, Opcode::Icmp | Opcode::Fcmp)) => true,
            Some((cast, Opcode::Bitcast)) => {
                let from = of(dfg.inst_args(cast)[0]);
                from.is_some_and(|(_, opcode)| opcode == Opcode::Fcmp)
            }
            _ => false,
        };
        if is_comparison || !cfg!(target_arch = "x86_64") {
            return self.b.ins().bitselect(mask, a, b);
        }
        let ty = self.b.func.dfg.value_type(a);
        let words = match ty.lane_type().is_float() {
            true => types::I32X4,
            false => types::I8X16,
        };
        let [mask, a, b] = [mask, a, b].map(|value| self.as_vector(value, words));
        let blended = self.b.ins().blendv(mask, a, b);
        self.as_vector(blended, ty)
    }

    /// The first of two vectors in those threads that have a bit set, otherwise the second; what
    /// they are read from tells of a zero.
    pub(in crate::jit::lower) fn select_known(
        &mut self,
        bits: u32,
        args: [&Arg; 2],
        [a, b]: [Value; 2],
    ) -> Value {
        let ty = self.b.func.dfg.value_type(a);
        let all = (1 << ty.lane_count()) - 1;
        if bits == 0 || bits == all {
            return if bits == 0 { b } else { a };
        }
        let is_zero = |arg: &Arg| matches!(arg, Arg::Imm(Immediate::Int { bits: 0, .. }));
        let [a_is_zero, b_is_zero] = args.map(is_zero);
        if a_is_zero || b_is_zero {
            let (value, bits) = if a_is_zero { (b, !bits) } else { (a, bits) };
            let mask = self.mask_of_bits(bits, ty.lane_count());
            let word = self.as_vector(value, types::I32X4);
            let word = self.b.ins().band(word, mask);
            return self.as_vector(word, ty);
        }
        let mask = self.mask_of_bits(bits, ty.lane_count());
        let mask = self.as_vector(mask, ty);
        self.b.ins().bitselect(mask, a, b)
    }

    /// A vector of so many elements that have all bits set, or none.
    fn mask_of_bits(&mut self, bits: u32, count: u32) -> Value {
        let size = (16 / count) as usize;
        let elements = (0..count).map(|at| if bits >> at & 1 != 0 { 0xff } else { 0 });
        let bytes: Vec<u8> = elements.flat_map(|byte| vec![byte; size]).collect();
        let mask = self.b.func.dfg.constants.insert(bytes.into());
        self.b.ins().vconst(types::I32X4, mask)
    }

    /// The bits of a vector in another type.
    pub(in crate::jit::lower) fn as_vector(&mut self, value: Value, ty: ValueType) -> Value {
        match self.b.func.dfg.value_type(value) == ty {
            true => value,
            false => self.b.ins().bitcast(ty, little_endian(), value),
        }
    }

    pub(super) fn declare(&mut self) {
        self.lanes().registers = self.new_set();
    }

    /// Variables for the registers of a group.
    pub(super) fn new_set(&mut self) -> Vec<Option<Kept>> {
        let registers = (0..self.register_types.len()).map(|at| {
            let register = RegId(at as u32);
            let ty = self.register_types[at];
            let class = self.lanes().plan.class(register);
            let kept = match class {
                Class::Varying if self.lanes().plan.vectors[at] => {
                    let ty = vector_of(ty);
                    let count = self.width() / ty.lane_count() as usize;
                    Kept::Vectors((0..count).map(|_| self.b.declare_var(ty)).collect())
                }
                Class::Varying => {
                    let threads = 0..self.width();
                    Kept::Each(threads.map(|_| self.b.declare_var(ty)).collect())
                }
                _ => Kept::One(self.b.declare_var(ty)),
            };
            Some(kept)
        });
        registers.collect()
    }

    /// Every register of a group is zero.
    pub(super) fn clear_group(&mut self) {
        for at in 0..self.register_types.len() {
            let zero = self.zero(self.register_types[at]);
            self.put_all(RegId(at as u32), zero);
        }
    }

    /// Puts a value into a register of every thread.
    pub(in crate::jit::lower) fn put_all(&mut self, register: RegId, value: Value) {
        match self.lanes().kept(register).clone() {
            Kept::One(variable) => self.b.def_var(variable, value),
            Kept::Vectors(variables) => {
                let ty = self.b.func.dfg.value_type(value);
                let value = match ty {
                    types::I8 => {
                        let wide = self.b.ins().uextend(types::I32, value);
                        let mask = self.b.ins().ineg(wide);
                        self.b.ins().splat(types::I32X4, mask)
                    }
                    ty => self.b.ins().splat(vector_of(ty), value),
                };
                for variable in variables {
                    self.b.def_var(variable, value);
                }
            }
            Kept::Each(variables) => {
                for variable in variables {
                    self.b.def_var(variable, value);
                }
            }
        }
    }

    /// What a register holds, for the form being lowered, which is not [`Form::Thread`].
    pub(in crate::jit::lower) fn held_in_group(&mut self, register: RegId) -> Value {
        let kept = self.lanes().kept(register).clone();
        let stride = self.lanes().plan.class(register).stride().unwrap_or(0);
        let form = self.form();
        if let Some((_, first)) = self
            .lanes()
            .firsts
            .iter()
            .find(|(known, _)| *known == register)
            && form == Form::Lane(0)
        {
            return *first;
        }
        match (kept, form) {
            (Kept::One(variable), Form::Once | Form::Thread) => self.b.use_var(variable),
            (Kept::One(variable), Form::Lane(lane)) => {
                let value = self.b.use_var(variable);
                match stride.wrapping_mul(lane as i64) {
                    0 => value,
                    more => self.plus(value, more),
                }
            }
            (Kept::One(variable), Form::InTurn) => {
                let first = match self.first_in_turn(register) {
                    Some(first) => first,
                    None => self.b.use_var(variable),
                };
                let lane = self.lane_in_turn();
                self.left_by_group(register, Some(first), lane)
            }
            (Kept::Vectors(_) | Kept::Each(_), Form::InTurn) => self.held_in_turn(register),
            (Kept::One(variable), Form::Vector { chunk, .. }) => {
                let value = self.b.use_var(variable);
                let vector = self.spread(value);
                if stride == 0 {
                    return vector;
                }
                let ty = self.b.func.dfg.value_type(vector);
                let steps = self.steps(ty, chunk, stride);
                self.b.ins().iadd(vector, steps)
            }
            (Kept::Vectors(variables), Form::Vector { chunk, wide }) => {
                let halved = wide && self.is_predicate(register);
                match halved {
                    false => self.b.use_var(variables[chunk]),
                    true => {
                        let mask = self.b.use_var(variables[chunk / 2]);
                        match chunk % 2 {
                            0 => self.b.ins().swiden_low(mask),
                            _ => self.b.ins().swiden_high(mask),
                        }
                    }
                }
            }
            (Kept::Vectors(variables), Form::Lane(lane)) => {
                let ty = self.register_types[register.0 as usize];
                let count = vector_of(ty).lane_count() as usize;
                let vector = self.b.use_var(variables[lane / count]);
                let value = self.lane_of(vector, (lane % count) as u8);
                match ty {
                    types::I8 => self.b.ins().icmp_imm(IntCC::NotEqual, value, 0),
                    _ => value,
                }
            }
            (Kept::Each(variables), Form::Lane(lane)) => self.b.use_var(variables[lane]),
            // What is done once is done with what the first thread has.
            (Kept::Vectors(_) | Kept::Each(_), Form::Once) => {
                self.set_form(Form::Lane(0));
                let value = self.held_in_group(register);
                self.set_form(Form::Once);
                value
            }
            (kept, form) => unreachable!("{kept:?} is not read in {form:?}"),
        }
    }

    /// A register as a vector of a type.
    pub(in crate::jit::lower) fn read_vector(&mut self, register: RegId, ty: Type) -> Value {
        let value = self.held(register);
        if ty != Type::Pred {
            return self.as_vector(value, vector_of(value_type(ty)));
        }
        if self.is_predicate(register) {
            return value;
        }
        let words = self.as_vector(value, types::I32X4);
        let zero = self.word(0);
        self.b.ins().icmp(IntCC::NotEqual, words, zero)
    }

    pub(in crate::jit::lower) fn is_predicate(&self, register: RegId) -> bool {
        self.body.tables.registers[register.0 as usize] == Type::Pred
    }

    /// An integer and a number, in its width.
    pub(super) fn plus(&mut self, value: Value, more: i64) -> Value {
        let ty = self.b.func.dfg.value_type(value);
        let more = match ty {
            types::I32 => i64::from(more as i32),
            _ => more,
        };
        self.b.ins().iadd_imm(value, more)
    }

    /// A vector of these words, as a constant.
    pub(in crate::jit::lower) fn constant_words(&mut self, words: [i32; 4]) -> Value {
        let bytes = words.map(i32::to_le_bytes).concat();
        let constant = self.b.func.dfg.constants.insert(bytes.into());
        self.b.ins().vconst(types::I32X4, constant)
    }

    /// How much more each thread of a vector has than the group's first.
    pub(super) fn steps(&mut self, ty: ValueType, chunk: usize, stride: i64) -> Value {
        let count = ty.lane_count() as usize;
        let numbers = (0..count).map(|at| stride.wrapping_mul((chunk * count + at) as i64));
        let bytes: Vec<u8> = match ty {
            types::I64X2 => numbers.flat_map(i64::to_le_bytes).collect(),
            _ => numbers.flat_map(|n| (n as i32).to_le_bytes()).collect(),
        };
        let constant = self.b.func.dfg.constants.insert(bytes.into());
        self.b.ins().vconst(ty, constant)
    }

    /// Puts a value into a register, for the form being lowered, which is not [`Form::Thread`].
    pub(in crate::jit::lower) fn put_in_group(&mut self, register: RegId, value: Value) {
        match self.form() {
            Form::Once | Form::Thread => self.put_all(register, value),
            Form::InTurn => self.put_in_turn(register, value),
            Form::Lane(lane) => {
                let variable = self.lanes().written.get(&(register, lane)).copied();
                let variable = match variable {
                    Some(variable) => variable,
                    None => {
                        let ty = self.b.func.dfg.value_type(value);
                        let variable = self.b.declare_var(ty);
                        self.lanes().written.insert((register, lane), variable);
                        variable
                    }
                };
                self.b.def_var(variable, value);
            }
            Form::Vector { chunk, wide } => {
                let Kept::Vectors(variables) = self.lanes().kept(register).clone() else {
                    unreachable!("register {register:?} is no vector");
                };
                if wide && self.is_predicate(register) {
                    if chunk % 2 == 0 {
                        self.lanes().halves.insert(register, value);
                        return;
                    }
                    let low = self.lanes().halves.remove(&register);
                    let low = low.expect("the first half comes first");
                    let mask = self.narrow_masks(low, value);
                    return self.put_vector(register, variables[chunk / 2], chunk / 2, mask);
                }
                let ty = vector_of(self.register_types[register.0 as usize]);
                let value = self.as_vector(value, ty);
                self.put_vector(register, variables[chunk], chunk, value);
            }
        }
    }

    /// Puts a vector into a register, of those threads that it counts for.
    pub(super) fn put_vector(&mut self, register: RegId, to: Variable, chunk: usize, value: Value) {
        let _ = register;
        let value = match self.lanes().mask {
            None => value,
            Some(guard) => {
                let ty = self.b.func.dfg.value_type(value);
                let wide = ty.lane_bits() == 64;
                let form = self.form();
                self.set_form(Form::Vector { chunk, wide });
                let mut mask = self.held_in_group(guard);
                if self.lanes().masks_by_false {
                    mask = self.b.ins().bnot(mask);
                }
                let old = self.b.use_var(to);
                let value = self.select(mask, value, old);
                self.set_form(form);
                value
            }
        };
        self.b.def_var(to, value);
    }

    /// Two masks of 64-bit elements as one of 32-bit elements.
    pub(in crate::jit::lower) fn narrow_masks(&mut self, low: Value, high: Value) -> Value {
        let [low, high] = [low, high].map(|mask| self.as_vector(mask, types::I8X16));
        let picks = [0u8, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27];
        let mask = self.b.func.dfg.immediates.push(picks.to_vec().into());
        let both = self.b.ins().shuffle(low, high, mask);
        self.as_vector(both, types::I32X4)
    }

    /// Puts a value of each thread into a register.
    pub(in crate::jit::lower) fn gather(&mut self, register: RegId, values: &[Value]) {
        match self.lanes().kept(register).clone() {
            Kept::One(variable) => self.b.def_var(variable, values[0]),
            Kept::Each(variables) => {
                for (variable, value) in variables.into_iter().zip(values) {
                    self.b.def_var(variable, *value);
                }
            }
            Kept::Vectors(variables) => {
                let ty = self.register_types[register.0 as usize];
                let vector = vector_of(ty);
                let values: Vec<Value> = values
                    .iter()
                    .map(|value| match ty {
                        types::I8 => {
                            let value = self.b.ins().uextend(types::I32, *value);
                            self.b.ins().ineg(value)
                        }
                        _ => *value,
                    })
                    .collect();
                let count = vector.lane_count() as usize;
                for (variable, values) in variables.into_iter().zip(values.chunks(count)) {
                    let mut all = self.b.ins().scalar_to_vector(vector, values[0]);
                    for (at, value) in values.iter().enumerate().skip(1) {
                        all = self.b.ins().insertlane(all, *value, at as u8);
                    }
                    self.b.def_var(variable, all);
                }
            }
        }
    }

    /// Whether a register is the same in all threads of a group, and there are groups.
    pub(in crate::jit::lower) fn is_of_group(&self, register: RegId) -> bool {
        let lanes = self.lanes.as_ref();
        lanes.is_some_and(|lanes| lanes.plan.class(register) == Class::Uniform)
    }

    /// How a register is kept of a group.
    pub(in crate::jit::lower) fn kept_of(&mut self, register: RegId) -> Kept {
        self.lanes().kept(register).clone()
    }

    /// A special register's value for the form being lowered.
    pub(in crate::jit::lower) fn special_in_vectors(
        &mut self,
        value: Value,
        is_tid: bool,
    ) -> Value {
        let Form::Vector { chunk, .. } = self.form() else {
            return value;
        };
        let vector = self.spread(value);
        if !is_tid {
            return vector;
        }
        let ty = self.b.func.dfg.value_type(vector);
        let steps = self.steps(ty, chunk, 1);
        self.b.ins().iadd(vector, steps)
    }
}
