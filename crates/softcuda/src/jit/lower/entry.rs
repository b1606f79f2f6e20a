//! Values that stay the same for as long as a function runs: loaded once, in its entry block, when
//! first asked for.

use std::collections::HashMap;
use std::mem::offset_of;

use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::{Inst, InstBuilder, MemFlags, StackSlot, Type, Value, types};

use super::Lower;
use super::function::slot;
use super::lanes::Form;
use crate::grid::context::{BlockContext, ThreadContext};

/// What the entry block can load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Entry {
    Tid(u8),
    Linear,
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    Cluster(u8),
    Smid,
    Nsmid,
    DynamicShared,
    Gridid,
    Params,
    ParamsSize,
    SharedBase,
    SharedSize,
    Sites,
    Arrays,
    /// How many indices of an [array](crate::jit::runtime::arrays) are inside, by its number.
    ArrayCount(u32),
    Workspace,
    Pass,
    Again,
    LocalBase,
    LocalSize,
    /// How many accesses of `1 << n` bytes fit in shared memory.
    SharedUnits(u8),
    /// The same in local memory.
    LocalUnits(u8),
    /// The same in the kernel's parameters.
    ParamUnits(u8),
    /// [`SharedUnits`](Self::SharedUnits), and so many fewer; at least none.
    SharedUnitsLess(u8, u32),
    /// The same in local memory.
    LocalUnitsLess(u8, u32),
    /// Where the function's frame starts in local memory.
    Frame,
}

/// The values loaded so far.
pub(super) struct Entries {
    /// The last instruction of the entry block; values go before it.
    pub end: Option<Inst>,
    /// In rounds: the last instruction of the block where a thread's turn begins. What differs from
    /// thread to thread goes before it.
    pub thread_end: Option<Inst>,
    /// The `ThreadContext` that the function was given.
    pub thread: Value,
    pub values: HashMap<Entry, Value>,
    /// In the native stack, the values that groups take from there.
    pub slots: HashMap<Entry, (Type, StackSlot)>,
}

impl Lower<'_> {
    /// A value of the entry block.
    pub(super) fn entry(&mut self, entry: Entry) -> Value {
        match self.is_taken(entry) {
            true => self.taken(entry),
            false => self.entry_value(entry),
        }
    }

    /// Whether what is lowered takes a value from the native stack: groups that go from wait to
    /// wait do where they need it few times. It would not stay in a register until then, and to
    /// compute it again takes longer. Loops over threads in turn do, too, so that no register is
    /// taken from other code.
    fn is_taken(&mut self, entry: Entry) -> bool {
        let is_one = matches!(
            entry,
            Entry::SharedBase | Entry::SharedUnitsLess(..) | Entry::ArrayCount(_)
        );
        let in_turn = self.form() == Form::InTurn && (is_one || entry == Entry::Sites);
        let in_groups = is_one && self.form() != Form::Thread && self.is_simple();
        (in_turn || in_groups) && self.entry.end.is_some()
    }

    fn taken(&mut self, entry: Entry) -> Value {
        let (ty, from) = match self.entry.slots.get(&entry) {
            Some(known) => *known,
            None => {
                let value = self.entry_value(entry);
                let (ty, to) = (self.b.func.dfg.value_type(value), slot(&mut self.b, 8));
                if let Some(end) = self.entry.end {
                    let mut cursor = FuncCursor::new(self.b.func).at_inst(end);
                    cursor.ins().stack_store(value, to, 0);
                }
                self.entry.slots.insert(entry, (ty, to));
                (ty, to)
            }
        };
        self.b.ins().stack_load(ty, from, 0)
    }

    fn entry_value(&mut self, entry: Entry) -> Value {
        if let Some(value) = self.entry.values.get(&entry) {
            return *value;
        }
        let value = match entry {
            Entry::SharedUnits(log2) => self.entry_shift(Entry::SharedSize, log2),
            Entry::LocalUnits(log2) => self.entry_shift(Entry::LocalSize, log2),
            Entry::ParamUnits(log2) => self.entry_shift(Entry::ParamsSize, log2),
            Entry::SharedUnitsLess(log2, less) => self.entry_less(Entry::SharedUnits(log2), less),
            Entry::LocalUnitsLess(log2, less) => self.entry_less(Entry::LocalUnits(log2), less),
            Entry::ArrayCount(number) => {
                let counts = self.entry_value(Entry::Arrays);
                let flags = MemFlags::trusted().with_readonly().with_can_move();
                let at = 4 * number as i32;
                self.at_entry(|cursor| cursor.ins().load(types::I32, flags, counts, at))
            }
            Entry::Frame => self.at_entry(|cursor| cursor.ins().iconst(types::I64, 0)),
            entry => {
                let (thread, ty, offset) = place(entry);
                let flags = MemFlags::trusted().with_readonly().with_can_move();
                let emit = |cursor: &mut FuncCursor<'_>, base: Value| {
                    cursor.ins().load(ty, flags, base, offset as i32)
                };
                if thread
                    && entry != Entry::LocalSize
                    && self.many_contexts()
                    && self.form() != Form::Thread
                {
                    // Of the group's first thread, or the one that has its turn in it.
                    let base = self.thread;
                    return emit(&mut self.b.cursor(), base);
                }
                match (thread, self.entry.thread_end) {
                    // The same for all threads.
                    (true, Some(end)) if entry != Entry::LocalSize => {
                        let base = self.thread;
                        emit(&mut FuncCursor::new(self.b.func).at_inst(end), base)
                    }
                    _ => {
                        let base = if thread {
                            self.entry.thread
                        } else {
                            self.block
                        };
                        self.at_entry(|cursor| emit(cursor, base))
                    }
                }
            }
        };
        self.entry.values.insert(entry, value);
        value
    }

    fn entry_shift(&mut self, size: Entry, log2: u8) -> Value {
        let size = self.entry_value(size);
        self.at_entry(|cursor| cursor.ins().ushr_imm(size, i64::from(log2)))
    }

    fn entry_less(&mut self, units: Entry, less: u32) -> Value {
        let units = self.entry_value(units);
        self.at_entry(|cursor| {
            let floor = cursor.ins().iconst(types::I64, i64::from(less));
            let units = cursor.ins().umax(units, floor);
            cursor.ins().isub(units, floor)
        })
    }

    fn at_entry(&mut self, emit: impl FnOnce(&mut FuncCursor<'_>) -> Value) -> Value {
        match self.entry.end {
            Some(end) => emit(&mut FuncCursor::new(self.b.func).at_inst(end)),
            // The entry block is still being written, and the builder is in it.
            None => emit(&mut self.b.cursor()),
        }
    }
}

/// Whether a value is in the `ThreadContext`, its type, and its offset.
fn place(entry: Entry) -> (bool, Type, usize) {
    use types::{I32, I64};
    let block = |ty, offset| (false, ty, offset);
    let component = |base: usize, n: u8| (false, I32, base + 4 * usize::from(n));
    match entry {
        Entry::Tid(n) => (
            true,
            I32,
            offset_of!(ThreadContext, tid) + 4 * usize::from(n),
        ),
        Entry::Linear => (true, I32, offset_of!(ThreadContext, linear)),
        Entry::LocalBase => (true, I64, offset_of!(ThreadContext, local_base)),
        Entry::LocalSize => (true, I64, offset_of!(ThreadContext, local_size)),
        Entry::Ntid(n) => component(offset_of!(BlockContext, ntid), n),
        Entry::Ctaid(n) => component(offset_of!(BlockContext, ctaid), n),
        Entry::Nctaid(n) => component(offset_of!(BlockContext, nctaid), n),
        Entry::Cluster(n) => component(offset_of!(BlockContext, cluster), n),
        Entry::Smid => block(I32, offset_of!(BlockContext, smid)),
        Entry::Nsmid => block(I32, offset_of!(BlockContext, nsmid)),
        Entry::DynamicShared => block(I32, offset_of!(BlockContext, dynamic_shared)),
        Entry::Gridid => block(I64, offset_of!(BlockContext, gridid)),
        Entry::Params => block(I64, offset_of!(BlockContext, params)),
        Entry::ParamsSize => block(I64, offset_of!(BlockContext, params_size)),
        Entry::SharedBase => block(I64, offset_of!(BlockContext, shared_base)),
        Entry::SharedSize => block(I64, offset_of!(BlockContext, shared_size)),
        Entry::Sites => block(I64, offset_of!(BlockContext, sites)),
        Entry::Arrays => block(I64, offset_of!(BlockContext, arrays)),
        Entry::Workspace => block(I64, offset_of!(BlockContext, workspace)),
        Entry::Pass => block(I64, offset_of!(BlockContext, pass)),
        Entry::Again => block(I64, offset_of!(BlockContext, again)),
        Entry::SharedUnits(_)
        | Entry::LocalUnits(_)
        | Entry::ParamUnits(_)
        | Entry::SharedUnitsLess(..)
        | Entry::LocalUnitsLess(..)
        | Entry::ArrayCount(_)
        | Entry::Frame => {
            unreachable!("computed, not loaded")
        }
    }
}
