//! Loops that the blocks of a range may go through in step, as [`Passes`] says.
//!
//! ```text
//! for each group: in the first pass, or if it is in the loop:
//!   it begins; at the loop's head, what counts up is as many turns further as there were passes
//!   the turn; where the loop begins again, in step: note that the group is in it; next group
//! ```
//!
//! Where blocks do not go in step, there is one pass, and the loop begins again there.
//!
//! Threads that go on by themselves do all turns that are left.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, MemFlags, Type, Value, types};

use super::Form;
use crate::grid::context::BlockContext;
use crate::jit::lower::Lower;
use crate::jit::lower::entry::Entry;
use crate::jit::spmd::{Passes, WIDTH};

impl Lower<'_> {
    fn passes(&mut self) -> Option<&Passes> {
        self.lanes().plan.passes.as_ref()
    }

    /// Whether this is the way back to the head of a loop that blocks go through in step.
    pub(super) fn is_next_turn(&mut self, from: usize, to: usize) -> bool {
        let passes = self.passes();
        passes.is_some_and(|passes| (passes.branch, passes.head) == (from, to))
    }

    /// The threads of a row from `first` on are in no group. They begin at `scalar`, one by one,
    /// unless they have done all turns in the first pass; then the row is `over`. Fills the
    /// builder's block.
    pub(super) fn begin_alone(&mut self, first: Value, scalar: Block, over: Block) {
        if self.passes().is_none() {
            self.b.ins().jump(scalar, &[first.into()]);
            return;
        }
        let pass = self.entry(Entry::Pass);
        self.b.ins().brif(pass, over, &[], scalar, &[first.into()]);
    }

    /// A group begins: in the first pass, or if it is in the loop.
    pub(super) fn begin_pass(&mut self) {
        if self.passes().is_none() {
            return;
        }
        self.unit.passes = true;
        let (latch, first) = (self.lanes().latch, self.lanes().first);
        let (later, goes, begins) = (
            self.b.create_block(),
            self.b.create_block(),
            self.b.create_block(),
        );
        let pass = self.entry(Entry::Pass);
        self.b.ins().brif(pass, later, &[], begins, &[]);
        self.b.switch_to_block(later);
        let (ty, yes) = self.group_flags();
        let (flags, at) = (MemFlags::new().with_notrap(), self.group_flag());
        let is_in = self.b.ins().load(ty, flags, at, 0);
        let first = self.b.use_var(first);
        let some = match self.is_wide() {
            true => self.b.create_block(),
            false => goes,
        };
        self.b.ins().brif(is_in, some, &[], latch, &[first.into()]);
        if some != goes {
            // Those of its groups that are go on by themselves.
            self.b.switch_to_block(some);
            let all = self.b.ins().icmp_imm(IntCC::Equal, is_in, yes);
            let narrow = self.cold_block();
            self.b.ins().brif(all, goes, &[], narrow, &[]);
            self.b.switch_to_block(narrow);
            self.begin_narrow();
        }
        self.b.switch_to_block(goes);
        let no = self.b.ins().iconst(ty, 0);
        self.b.ins().store(flags, no, at, 0);
        self.b.ins().jump(begins, &[]);
        self.b.switch_to_block(begins);
    }

    /// A wide group gives up before its turn: behind the first pass, its groups are in the loop
    /// still. Leaves the builder where they may begin.
    pub(super) fn begin_pass_anew(&mut self) {
        if self.passes().is_none() {
            return;
        }
        let (later, begins) = (self.b.create_block(), self.b.create_block());
        let pass = self.entry(Entry::Pass);
        self.b.ins().brif(pass, later, &[], begins, &[]);
        self.b.switch_to_block(later);
        self.note_in_loop();
        self.b.ins().jump(begins, &[]);
        self.b.switch_to_block(begins);
    }

    /// Notes that the group is in the loop.
    fn note_in_loop(&mut self) {
        let (flags, at) = (MemFlags::new().with_notrap(), self.group_flag());
        let (ty, yes) = self.group_flags();
        let yes = self.b.ins().iconst(ty, yes);
        self.b.ins().store(flags, yes, at, 0);
    }

    /// At the head of the loop, what counts up is as far as in this pass.
    pub(super) fn begin_turn(&mut self, block: usize) {
        let passes = self.passes().filter(|passes| passes.head == block);
        let Some(counts) = passes.map(|passes| passes.counts.clone()) else {
            return;
        };
        self.set_form(Form::Once);
        for (register, by) in counts {
            let ty = self.body.tables.registers[register.0 as usize];
            let (before, by) = (self.held(register), self.read(&by, ty));
            let pass = self.entry(Entry::Pass);
            let pass = match self.b.func.dfg.value_type(before) {
                types::I64 => pass,
                narrow => self.b.ins().ireduce(narrow, pass),
            };
            let more = self.b.ins().imul(pass, by);
            let value = self.b.ins().iadd(before, more);
            self.put_all(register, value);
        }
        let turn = self.lanes().turn;
        self.b.ins().jump(turn, &[]);
        self.b.switch_to_block(turn);
    }

    /// Groups that are to do another turn do it in the next pass, if there is one. The builder's
    /// block is filled.
    pub(super) fn close_turn(&mut self) {
        if self.passes().is_none() {
            return;
        }
        let (turn, next_turn, latch, first) = {
            let lanes = self.lanes();
            (lanes.turn, lanes.next_turn, lanes.latch, lanes.first)
        };
        self.b.switch_to_block(next_turn);
        let in_step = self.entry(Entry::Again);
        let waits = self.b.create_block();
        self.b.ins().brif(in_step, waits, &[], turn, &[]);
        self.b.switch_to_block(waits);
        self.set_form(Form::Once);
        self.note_in_loop();
        let flags = MemFlags::new().with_notrap();
        let yes = self.b.ins().iconst(types::I32, 1);
        let goes = offset_of!(BlockContext, goes) as i32;
        let block = self.block;
        self.b.ins().store(flags, yes, block, goes);
        let first = self.b.use_var(first);
        self.b.ins().jump(latch, &[first.into()]);
        self.set_form(Form::Thread);
    }

    /// The type of the bytes for the groups that are lowered as one, and their value where all are
    /// in the loop.
    fn group_flags(&self) -> (Type, i64) {
        match self.width() / WIDTH {
            1 => (types::I8, 1),
            2 => (types::I16, 0x0101),
            _ => (types::I32, 0x0101_0101),
        }
    }

    /// Where it is noted that the group is in the loop.
    fn group_flag(&mut self) -> Value {
        let (first, again) = (self.lanes().first, self.entry(Entry::Again));
        let [nx, ny] = [0, 1].map(|axis| self.entry(Entry::Ntid(axis)));
        let [y, z] = [1, 2].map(|axis| self.tid(axis));
        let row = self.b.ins().imul(z, ny);
        let row = self.b.ins().iadd(row, y);
        let width = i64::from(WIDTH.ilog2());
        let in_row = self.b.ins().ushr_imm(nx, width);
        let row = self.b.ins().imul(row, in_row);
        let first = self.b.use_var(first);
        let number = self.b.ins().ushr_imm(first, width);
        let number = self.b.ins().iadd(row, number);
        let number = self.b.ins().uextend(types::I64, number);
        self.b.ins().iadd(again, number)
    }
}
