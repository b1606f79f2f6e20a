//! Groups of threads in rounds: what a group brings to where it waits, takes from there, and keeps
//! meanwhile.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlags, Value, types};
use ptx::ast::Type;

use super::{Form, Kept, vector_of};
use crate::grid::warp::Tile;
use crate::jit::decode::{Arg, RegId};
use crate::jit::lower::{Lower, is_signed, value_type};
use crate::jit::spmd::WIDTH;

impl Lower<'_> {
    /// Brings an operand of every thread of the group to the wait that is next.
    pub(in crate::jit::lower) fn group_brings(
        &mut self,
        arg: &Arg,
        ty: Type,
        low: usize,
        high: Option<usize>,
    ) {
        let flags = MemFlags::trusted();
        let at = self.lane_address(types::I32);
        let kind = value_type(ty);
        let in_vectors = match arg {
            Arg::Reg(id) => match (ty, self.kept_of(*id)) {
                (_, Kept::Each(_)) => false,
                (Type::Pred, _) => self.is_predicate(*id),
                _ => self.register_types[id.0 as usize].bits() == 32,
            },
            Arg::Imm(_) => true,
            _ => false,
        };
        if in_vectors && (ty == Type::Pred || kind.bits() == 32) {
            for chunk in 0..self.width() / 4 {
                self.set_form(Form::Vector { chunk, wide: false });
                let value = self.read(arg, ty);
                let mut value = self.as_vector(value, types::I32X4);
                if ty == Type::Pred {
                    let one = self.word(1);
                    value = self.b.ins().band(value, one);
                }
                if self.turns().in_chain.bring(value) {
                    continue;
                }
                let offset = 16 * chunk as i32;
                self.b.ins().store(flags, value, at, low as i32 + offset);
                if let Some(high) = high {
                    let zero = self.word(0);
                    self.b.ins().store(flags, zero, at, high as i32 + offset);
                }
            }
        } else {
            let mut vector = None;
            for lane in 0..self.width() {
                self.set_form(Form::Lane(lane));
                let value = self.read(arg, ty);
                let value = self.fit(value, types::I64, false);
                let offset = 4 * lane as i32;
                let word = self.b.ins().ireduce(types::I32, value);
                if self.turns().in_chain.brings() {
                    let before = match vector.take() {
                        None => self.b.ins().scalar_to_vector(types::I32X4, word),
                        Some(before) => self.b.ins().insertlane(before, word, lane as u8 % 4),
                    };
                    match lane % 4 {
                        3 => _ = self.turns().in_chain.bring(before),
                        _ => vector = Some(before),
                    }
                    continue;
                }
                self.b.ins().store(flags, word, at, low as i32 + offset);
                if let Some(high) = high {
                    let word = self.b.ins().ushr_imm(value, 32);
                    let word = self.b.ins().ireduce(types::I32, word);
                    self.b.ins().store(flags, word, at, high as i32 + offset);
                }
            }
        }
        self.set_form(Form::Once);
    }

    /// What each thread of the group takes from the last wait: a word in the array at `low`, and
    /// the upper half of what is longer in that at `high`.
    pub(in crate::jit::lower) fn group_takes(
        &mut self,
        to: &Arg,
        ty: Type,
        low: usize,
        high: Option<usize>,
    ) {
        let at = self.lane_address(types::I32);
        let flags = MemFlags::trusted();
        let Arg::Reg(register) = to else {
            return;
        };
        let held = self.register_types[register.0 as usize];
        let words = match ty {
            Type::Pred => self.is_predicate(*register),
            _ => held.bits() == 32,
        };
        if !words || high.is_some() || !matches!(self.kept_of(*register), Kept::Vectors(_)) {
            let values: Vec<Value> = (0..self.width())
                .map(|lane| {
                    let part = |l: &mut Self, array: usize| {
                        let offset = (array + 4 * lane) as i32;
                        l.b.ins().load(types::I32, flags, at, offset)
                    };
                    let mut value = match self.turns().in_chain.taken(lane / 4) {
                        Some(taken) => self.b.ins().extractlane(taken, lane as u8 % 4),
                        None => part(self, low),
                    };
                    if let Some(high) = high {
                        let upper = part(self, high);
                        value = self.joined(value, upper);
                    }
                    if ty == Type::Pred {
                        value = self.b.ins().icmp_imm(IntCC::NotEqual, value, 0);
                    }
                    self.fit_register(value, *register, is_signed(ty))
                })
                .collect();
            return self.gather(*register, &values);
        }
        for chunk in 0..self.width() / 4 {
            self.set_form(Form::Vector { chunk, wide: false });
            let offset = (low + 16 * chunk) as i32;
            let mut value = match self.turns().in_chain.taken(chunk) {
                Some(taken) => taken,
                None => self.b.ins().load(types::I32X4, flags, at, offset),
            };
            if ty == Type::Pred {
                let zero = self.word(0);
                value = self.b.ins().icmp(IntCC::NotEqual, value, zero);
            }
            self.write(to, ty, value);
        }
        self.set_form(Form::Once);
    }

    /// The predicates beside it.
    pub(in crate::jit::lower) fn group_takes_predicates(&mut self, to: &Arg) {
        let bits = self.group_predicates();
        let Arg::Reg(register) = to else {
            return;
        };
        if !self.is_predicate(*register) {
            let values: Vec<Value> = (0..self.width() as i64)
                .map(|lane| {
                    let own = self.b.ins().ushr_imm(bits, lane);
                    let own = self.b.ins().band_imm(own, 1);
                    self.fit_register(own, *register, false)
                })
                .collect();
            return self.gather(*register, &values);
        }
        for chunk in 0..self.width() / 4 {
            self.set_form(Form::Vector { chunk, wide: false });
            let all = self.b.ins().splat(types::I32X4, bits);
            let own = std::array::from_fn(|at| 1 << (4 * chunk + at));
            let own = self.constant_words(own);
            let own = self.b.ins().band(all, own);
            let zero = self.word(0);
            let value = self.b.ins().icmp(IntCC::NotEqual, own, zero);
            self.write(to, Type::Pred, value);
        }
        self.set_form(Form::Once);
    }

    /// Keeps a register of the group in the array at `offset` of the tile.
    pub(in crate::jit::lower) fn keep_of_group(&mut self, register: RegId, offset: usize) {
        let ty = self.register_types[register.0 as usize];
        let at = self.kept_address(ty);
        let (flags, offset) = (MemFlags::trusted(), offset as i32);
        let bytes = ty.bytes() as i32;
        let kept = self.kept_of(register);
        let vectors = matches!(ty, types::I32 | types::I64 | types::F32 | types::F64)
            && !matches!(kept, Kept::Each(_));
        if vectors {
            let wide = ty.bits() == 64;
            for chunk in 0..self.width() / vector_of(ty).lane_count() as usize {
                self.set_form(Form::Vector { chunk, wide });
                let value = self.held_in_group(register);
                let offset = offset + 16 * chunk as i32;
                self.b.ins().store(flags, value, at, offset);
            }
        } else if let Kept::Vectors(variables) = &kept {
            // A byte for each thread.
            for (eight, masks) in (0..).zip(variables.chunks(2)) {
                let [low, high] = [masks[0], masks[1]].map(|mask| self.b.use_var(mask));
                let words = self.b.ins().snarrow(low, high);
                let bytes = self.b.ins().snarrow(words, words);
                let whole = self.as_vector(bytes, types::I64X2);
                let whole = self.b.ins().extractlane(whole, 0);
                let ones = self.b.ins().iconst(types::I64, 0x0101_0101_0101_0101);
                let whole = self.b.ins().band(whole, ones);
                self.b.ins().store(flags, whole, at, offset + 8 * eight);
            }
        } else {
            for lane in 0..self.width() {
                self.set_form(Form::Lane(lane));
                let value = self.held_in_group(register);
                self.b
                    .ins()
                    .store(flags, value, at, offset + bytes * lane as i32);
            }
        }
        self.set_form(Form::Once);
    }

    /// The other way round.
    pub(in crate::jit::lower) fn take_of_group(&mut self, register: RegId, offset: usize) {
        let ty = self.register_types[register.0 as usize];
        let at = self.kept_address(ty);
        let (flags, offset) = (MemFlags::trusted(), offset as i32);
        let bytes = ty.bytes() as i32;
        match self.kept_of(register) {
            Kept::One(variable) => {
                let value = self.b.ins().load(ty, flags, at, offset);
                self.b.def_var(variable, value);
            }
            Kept::Vectors(variables) if ty == types::I8 => {
                let zero = self.b.ins().iconst(types::I32, 0);
                let zero = self.b.ins().splat(types::I32X4, zero);
                for (eight, variables) in (0..).zip(variables.chunks(2)) {
                    let whole = self.b.ins().load(types::I64, flags, at, offset + 8 * eight);
                    let bytes = self.b.ins().scalar_to_vector(types::I64X2, whole);
                    let bytes = self.as_vector(bytes, types::I8X16);
                    let words = self.b.ins().uwiden_low(bytes);
                    let parts = [
                        self.b.ins().uwiden_low(words),
                        self.b.ins().uwiden_high(words),
                    ];
                    for (variable, part) in variables.iter().zip(parts) {
                        let mask = self.b.ins().icmp(IntCC::NotEqual, part, zero);
                        self.b.def_var(*variable, mask);
                    }
                }
            }
            Kept::Vectors(variables) => {
                let vector = vector_of(ty);
                for (chunk, variable) in variables.into_iter().enumerate() {
                    let offset = offset + 16 * chunk as i32;
                    let value = self.b.ins().load(vector, flags, at, offset);
                    self.b.def_var(variable, value);
                }
            }
            Kept::Each(variables) => {
                for (lane, variable) in variables.into_iter().enumerate() {
                    let value = self
                        .b
                        .ins()
                        .load(ty, flags, at, offset + bytes * lane as i32);
                    self.b.def_var(variable, value);
                }
            }
        }
    }

    /// Every thread of the group stands here.
    pub(in crate::jit::lower) fn group_stands(&mut self, number: i64) {
        let at = self.lane_address(types::I32);
        let number = self.b.ins().iconst(types::I32, number);
        let all = self.b.ins().splat(types::I32X4, number);
        for chunk in 0..self.width() / 4 {
            let offset = (offset_of!(Tile, stands) + 16 * chunk) as i32;
            self.b.ins().store(MemFlags::trusted(), all, at, offset);
        }
    }

    /// The address of a tile's word that the group has for itself, less the word's offset.
    pub(in crate::jit::lower) fn group_word(&mut self, lane: Value, tile: Value) -> Value {
        let group = self
            .b
            .ins()
            .ushr_imm(lane, i64::from(WIDTH.trailing_zeros()));
        let distance = self.b.ins().ishl_imm(group, 2);
        self.b.ins().iadd(tile, distance)
    }
}
