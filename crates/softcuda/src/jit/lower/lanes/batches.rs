//! Floats that threads of a group add to memory, where nobody reads the results: the group gathers
//! them, and adds all with one call. Neighbours that add to one place, as along the rows of a
//! sparse matrix, do so there with one atomic operation.

use cranelift_codegen::ir::{self, InstBuilder, MemFlags, Value, types};
use ptx::ast::Type;

use super::Form;
use crate::grid::atomic::{ATOM_ADD_ALL_F32, ATOM_ADD_ALL_F64};
use crate::jit::lower::Lower;
use crate::jit::lower::function::slot;
use crate::jit::program::Instruction;
use crate::jit::spmd::WIDEST;

/// In a batch's slot: addresses lie first, then values, then how many there are, where that is not
/// known.
const VALUES: i32 = 8 * WIDEST as i32;
const COUNT: i32 = 16 * WIDEST as i32;

/// What is gathered.
#[derive(Clone, Copy)]
pub(super) struct Batch {
    slot: ir::StackSlot,
    ty: Type,
}

impl Lower<'_> {
    /// What threads add in a step from now on is gathered. Whether it is such a step; `bits`: not
    /// all threads of the group do it.
    pub(super) fn begin_batch(&mut self, instruction: &Instruction, bits: Option<Value>) -> bool {
        let Some(ty) = instruction.operation.adds_floats() else {
            return false;
        };
        let slot = match self.lanes().batches {
            Some(slot) => slot,
            None => slot(&mut self.b, COUNT as u64 + 8),
        };
        self.lanes().batches = Some(slot);
        if bits.is_some() {
            let none = self.b.ins().iconst(types::I64, 0);
            self.b.ins().stack_store(none, slot, COUNT);
        }
        self.lanes().batch = Some(Batch { slot, ty });
        true
    }

    /// A thread adds a value at a host address. Whether it is gathered.
    pub(in crate::jit::lower) fn put_in_batch(&mut self, address: Value, value: Value) -> bool {
        let Some(Batch { slot, ty }) = self.lanes.as_ref().and_then(|lanes| lanes.batch) else {
            return false;
        };
        let size = ty.size() as i32;
        if let Form::Lane(lane) = self.form() {
            let lane = lane as i32;
            self.b.ins().stack_store(address, slot, 8 * lane);
            self.b.ins().stack_store(value, slot, VALUES + size * lane);
            return true;
        }
        let count = self.b.ins().stack_load(types::I64, slot, COUNT);
        for (value, size, first) in [(address, 8, 0), (value, size, VALUES)] {
            let first = self.b.ins().stack_addr(types::I64, slot, first);
            let at = self.b.ins().imul_imm(count, i64::from(size));
            let at = self.b.ins().iadd(first, at);
            self.b.ins().store(MemFlags::trusted(), value, at, 0);
        }
        let more = self.b.ins().iadd_imm(count, 1);
        self.b.ins().stack_store(more, slot, COUNT);
        true
    }

    /// Adds what has been gathered.
    pub(super) fn end_batch(&mut self, bits: Option<Value>) {
        let Some(Batch { slot, ty }) = self.lanes().batch.take() else {
            return;
        };
        let count = match bits {
            Some(_) => self.b.ins().stack_load(types::I64, slot, COUNT),
            None => {
                let count = self.width() as i64;
                self.b.ins().iconst(types::I64, count)
            }
        };
        let addresses = self.b.ins().stack_addr(types::I64, slot, 0);
        let values = self.b.ins().stack_addr(types::I64, slot, VALUES);
        let block = self.block;
        match ty {
            Type::F32 => self.call(&ATOM_ADD_ALL_F32, &[block, addresses, values, count]),
            _ => self.call(&ATOM_ADD_ALL_F64, &[addresses, values, count]),
        };
    }
}
