//! Registers that are the same in all threads of a block. Each is one variable of the function, as
//! long as all warps go on together; the tiles take it where threads or warps go on by themselves.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlags, Value, types};

use super::Kept;
use crate::grid::context::Turn;
use crate::jit::decode::RegId;
use crate::jit::lower::Lower;

impl Lower<'_> {
    /// Takes those registers out of a list that are the same in all threads of the block and that
    /// have a place in tiles; gives them.
    pub(super) fn take_out_of_block(&mut self, list: &mut Vec<RegId>) -> Vec<RegId> {
        let plan = &self.lanes().plan;
        let of_block = list.iter().copied();
        let of_block: Vec<RegId> = of_block.filter(|at| plan.is_of_block(*at)).collect();
        let placed = self.places_of(&of_block);
        let of_block: Vec<RegId> = placed.into_iter().map(|(register, _)| register).collect();
        list.retain(|register| !of_block.contains(register));
        of_block
    }

    /// The value of a register that is the same in all threads of the block.
    pub(super) fn held_of_block(&mut self, register: RegId) -> Value {
        match self.kept_of(register) {
            Kept::One(variable) => self.b.use_var(variable),
            kept => unreachable!("{kept:?} is not the same in all threads"),
        }
    }

    /// Puts the registers of a list that are the same in all threads of the block into the tiles of
    /// the warps of the turn, for each lane.
    pub(super) fn keep_of_block(&mut self, list: &[RegId]) {
        let of_block = self.take_out_of_block(&mut list.to_vec());
        if of_block.is_empty() {
            return;
        }
        let (flags, places) = (MemFlags::trusted(), self.places_of(&of_block));
        let (head, done) = (self.b.create_block(), self.b.create_block());
        let warp = self.b.append_block_param(head, types::I32);
        let begin = self.turn_field(offset_of!(Turn, begin));
        self.b.ins().jump(head, &[begin.into()]);
        self.b.switch_to_block(head);
        let tile = self.tile_of(warp);
        for (register, place) in places {
            let value = self.held_of_block(register);
            let ty = self.register_types[register.0 as usize];
            let (value, lanes) = match ty.by(16 / ty.bytes().min(16)) {
                Some(vector) if ty.bytes() < 16 => {
                    let value = self.b.ins().splat(vector, value);
                    (value, vector.lane_count() as usize)
                }
                _ => (value, 1),
            };
            for lane in (0..32).step_by(lanes) {
                let at = place + lane * ty.bytes() as usize;
                self.b.ins().store(flags, value, tile, at as i32);
            }
        }
        self.next_warp(warp, head, done);
        self.b.switch_to_block(done);
    }

    /// The other way round, from the turn's first warp.
    pub(super) fn take_of_block(&mut self, list: &[RegId]) {
        let of_block = self.take_out_of_block(&mut list.to_vec());
        if of_block.is_empty() {
            return;
        }
        let begin = self.turn_field(offset_of!(Turn, begin));
        let tile = self.tile_of(begin);
        for (register, place) in self.places_of(&of_block) {
            let ty = self.register_types[register.0 as usize];
            let value = self
                .b
                .ins()
                .load(ty, MemFlags::trusted(), tile, place as i32);
            self.put_all(register, value);
        }
    }

    /// Whether a register of a list that is the same in all threads of the block is not what the
    /// block's first warp has kept of it. Warps may come to one barrier in different turns of a
    /// loop.
    pub(super) fn differs_from_first(&mut self, list: &[RegId]) -> Option<Value> {
        let of_block = self.take_out_of_block(&mut list.to_vec());
        let zero = self.b.ins().iconst(types::I32, 0);
        let (flags, first) = (MemFlags::trusted(), self.tile_of(zero));
        let mut any = None;
        for (register, place) in self.places_of(&of_block) {
            let ty = self.register_types[register.0 as usize].as_int();
            let value = self.held_of_block(register);
            let value = match self.b.func.dfg.value_type(value) == ty {
                true => value,
                false => self.b.ins().bitcast(ty, MemFlags::new(), value),
            };
            let kept = self.b.ins().load(ty, flags, first, place as i32);
            let differs = self.b.ins().icmp(IntCC::NotEqual, value, kept);
            any = Some(match any {
                Some(any) => self.b.ins().bor(any, differs),
                None => differs,
            });
        }
        any
    }
}
