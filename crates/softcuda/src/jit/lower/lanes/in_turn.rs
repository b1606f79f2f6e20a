//! Threads of a group one after the other, in a loop over those that do a step.
//!
//! What they read, the group leaves in the native stack, and takes from there what they wrote. Code
//! for each thread would be several times as long, most of it checks of accesses.

use std::collections::HashMap;

use cranelift_codegen::ir::{BlockArg, InstBuilder, MemFlags, Value, types};

use super::{Form, Kept, vector_of};
use crate::grid::context::THREAD_STRIDE;
use crate::jit::decode::RegId;
use crate::jit::lower::Lower;
use crate::jit::lower::runs::Element;
use crate::jit::program::Instruction;

/// The thread whose turn it is.
pub(super) struct InTurn {
    /// Its number in the group.
    lane: Value,
    /// Where registers lie in the slot, behind the context of the group's first thread, and where
    /// there is room for more.
    places: HashMap<RegId, i32>,
    size: i32,
    /// Those that the group has once, and the step does not write.
    once: Vec<RegId>,
}

impl Lower<'_> {
    /// Does a step for those threads that have a bit set. The others keep what they have in
    /// registers that are `kept`.
    pub(super) fn in_turn(
        &mut self,
        instruction: &Instruction,
        bits: Value,
        kept: impl Fn(&RegId) -> bool,
    ) {
        self.set_form(Form::Once);
        let group = self.group.take();
        let lane = self.b.ins().iconst(types::I64, 0);
        self.lanes().in_turn = Some(InTurn {
            lane,
            places: HashMap::new(),
            size: 16,
            once: vec![],
        });
        let (slot, first) = (self.lanes().turns_slot, self.thread);
        self.b.ins().stack_store(first, slot, 0);
        // The index of the array that it accesses is read too, and perhaps written.
        let element = self.array_element();
        let indices = element.into_iter().flat_map(Element::indices);
        for register in instruction.reads.iter().copied().chain(indices) {
            match self.kept_of(register) {
                Kept::One(_) if instruction.writes.contains(&register) => {}
                Kept::One(_) => {
                    self.leave_in_turn(register);
                    self.turn().once.push(register);
                }
                _ => self.leave_in_turn(register),
            }
        }
        for register in &instruction.writes {
            match kept(register) {
                true => self.leave_in_turn(*register),
                false => self.clear_in_turn(*register),
            }
        }
        let all = self.every_bit();
        let bits = self.b.ins().band_imm(bits, all);
        let (head, turn, done) = (self.cold_block(), self.cold_block(), self.fresh_block());
        let left = self.b.append_block_param(head, types::I32);
        self.b.ins().jump(head, &[BlockArg::Value(bits)]);
        self.b.switch_to_block(head);
        self.b.ins().brif(left, turn, &[], done, &[]);
        self.enter(turn);
        let lane = self.b.ins().ctz(left);
        self.turn().lane = self.b.ins().uextend(types::I64, lane);
        self.set_form(Form::InTurn);
        instruction.operation.lower(self);
        self.set_form(Form::Once);
        let others = self.b.ins().iadd_imm(left, -1);
        let left = self.b.ins().band(left, others);
        self.b.ins().jump(head, &[BlockArg::Value(left)]);
        self.b.seal_block(head);
        self.enter(done);
        for register in &instruction.writes {
            self.take_in_turn(*register);
        }
        self.lanes().in_turn = None;
        self.group = group;
    }

    fn turn(&mut self) -> &mut InTurn {
        let turn = self.lanes().in_turn.as_mut();
        turn.expect("the form is that of a turn")
    }

    /// The number in its group of the thread whose turn it is.
    pub(in crate::jit::lower) fn lane_in_turn(&mut self) -> Value {
        self.turn().lane
    }

    /// Its context.
    pub(super) fn context_in_turn(&mut self) -> Value {
        let (lane, slot) = (self.turn().lane, self.lanes().turns_slot);
        let first = self.b.ins().stack_load(types::I64, slot, 0);
        let distance = self.b.ins().imul_imm(lane, THREAD_STRIDE as i64);
        self.b.ins().iadd(first, distance)
    }

    /// What it has in a register that differs from thread to thread.
    pub(super) fn held_in_turn(&mut self, register: RegId) -> Value {
        let (from, at) = self.place_of_turn(register);
        let ty = self.element(register);
        let value = self.b.ins().load(ty, MemFlags::trusted(), from, at);
        self.register_value(register, value)
    }

    /// What the group has once in a register: what the step does not write, the loop takes from
    /// memory, so that nothing stays in registers on its account.
    pub(super) fn first_in_turn(&mut self, register: RegId) -> Option<Value> {
        if !self.turn().once.contains(&register) {
            return None;
        }
        let (slot, place) = (self.lanes().turns_slot, self.place_in_turn(register));
        let ty = self.element(register);
        let value = self.b.ins().stack_load(ty, slot, place);
        Some(self.register_value(register, value))
    }

    /// Puts what it has computed into a register.
    pub(super) fn put_in_turn(&mut self, register: RegId, value: Value) {
        let (to, at) = self.place_of_turn(register);
        let value = self.slot_value(register, value);
        self.b.ins().store(MemFlags::trusted(), value, to, at);
    }

    /// Where it has a register: so far from an address.
    fn place_of_turn(&mut self, register: RegId) -> (Value, i32) {
        let (lane, place) = (self.turn().lane, self.turn().places[&register]);
        let (slot, bytes) = (self.lanes().turns_slot, self.element(register).bytes());
        let base = self.b.ins().stack_addr(types::I64, slot, 0);
        let distance = self.b.ins().imul_imm(lane, i64::from(bytes));
        (self.b.ins().iadd(base, distance), place)
    }

    /// Where the threads have a register in the slot.
    fn place_in_turn(&mut self, register: RegId) -> i32 {
        let bytes = self.element(register).bytes() * self.width() as u32;
        let turn = self.turn();
        let place = *turn.places.entry(register).or_insert(turn.size);
        turn.size = turn.size.max((place + bytes as i32 + 15) & !15);
        let (size, slot) = (turn.size as u32, self.lanes().turns_slot);
        let room = &mut self.b.func.sized_stack_slots[slot].size;
        *room = size.max(*room);
        place
    }

    /// Leaves what the group has in a register, unless it has left that.
    fn leave_in_turn(&mut self, register: RegId) {
        if !self.turn().places.contains_key(&register) {
            let (slot, place) = (self.lanes().turns_slot, self.place_in_turn(register));
            self.leave_at(register, slot, place);
        }
    }

    /// The same, where nobody needs what the group has.
    fn clear_in_turn(&mut self, register: RegId) {
        if self.turn().places.contains_key(&register) {
            return;
        }
        let (slot, place) = (self.lanes().turns_slot, self.place_in_turn(register));
        let bytes = self.element(register).bytes() as i32 * self.width() as i32;
        let zero = self.zero(types::I64);
        let zero = self.b.ins().splat(types::I64X2, zero);
        for at in (0..bytes).step_by(16) {
            self.b.ins().stack_store(zero, slot, place + at);
        }
    }

    /// The group takes what is in a register's place.
    fn take_in_turn(&mut self, register: RegId) {
        let (slot, place) = (self.lanes().turns_slot, self.place_in_turn(register));
        let element = self.element(register);
        let (ty, variables) = match self.kept_of(register) {
            Kept::One(variable) => (element, vec![variable]),
            Kept::Vectors(variables) => (vector_of(element), variables.into_vec()),
            Kept::Each(variables) => (element, variables.into_vec()),
        };
        let apart = ty.bytes() as i32;
        for (n, variable) in (0..).zip(variables) {
            let mut value = self.b.ins().stack_load(ty, slot, place + apart * n);
            if !ty.is_vector() {
                value = self.register_value(register, value);
            }
            self.b.def_var(variable, value);
        }
    }
}
