//! Jumps and ends: `bra`, `brx`, `ret`, `exit`, `trap`, and what only lets time pass.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, JumpTableData, types};
use ptx::ast::Type;

use super::Lower;
use super::async_copy::literal;
use crate::grid::context::EXITED;
use crate::grid::launch::FaultKind;
use crate::grid::poll;
use crate::jit::decode::{Arg, Flow, Operation, Reader, Refusal, Symbol};
use crate::jit::program::Targets;

#[derive(Debug)]
enum Control {
    Branch(u32),
    Indexed {
        index: Arg,
        table: u32,
    },
    Return,
    Exit,
    Trap,
    /// `nanosleep`, of so many nanoseconds.
    Pause(Arg),
    Nothing,
}

pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    Ok(Box::new(match reader.opcode {
        "bra" => {
            reader.eat("uni");
            let [target] = reader.finish()?;
            let Arg::Symbol(Symbol::Label(label), 0) = target else {
                return Err(reader.invalid("takes a label".into()));
            };
            Control::Branch(label)
        }
        "brx" => {
            if !reader.eat("idx") {
                return Err(reader.unknown_modifier());
            }
            reader.eat("uni");
            let [index, table] = reader.finish()?;
            let Arg::Symbol(Symbol::Table(table), 0) = table else {
                return Err(reader.invalid("takes a .branchtargets".into()));
            };
            match &reader.tables.targets[table as usize] {
                Targets::Branch(labels) if !labels.is_empty() => Control::Indexed { index, table },
                _ => return Err(reader.invalid("takes a .branchtargets".into())),
            }
        }
        "ret" => {
            reader.eat("uni");
            let [] = reader.finish()?;
            Control::Return
        }
        "exit" => {
            let [] = reader.finish()?;
            Control::Exit
        }
        "trap" => {
            let [] = reader.finish()?;
            Control::Trap
        }
        "nanosleep" => {
            reader.ty_of(&[Type::U32])?;
            let [time] = reader.finish()?;
            Control::Pause(time)
        }
        "brkpt" => {
            let [] = reader.finish()?;
            Control::Nothing
        }
        "griddepcontrol" => {
            reader.expect_any(&[("launch_dependents", ()), ("wait", ())])?;
            let [] = reader.finish()?;
            Control::Nothing
        }
        "setmaxnreg" => {
            reader.expect_any(&[("inc", ()), ("dec", ())])?;
            reader.expect_any(&[("sync", ())])?;
            reader.expect_any(&[("aligned", ())])?;
            reader.ty_of(&[Type::U32])?;
            let [count] = reader.finish()?;
            match literal(reader, &count)? {
                count if (24..=256).contains(&count) && count % 8 == 0 => Control::Nothing,
                _ => return Err(reader.invalid("takes a multiple of 8 from 24 to 256".into())),
            }
        }
        _ => return Err(reader.invalid("is no instruction of control".into())),
    }))
}

/// An operation that does nothing.
pub(super) fn nothing() -> Box<dyn Operation> {
    Box::new(Control::Nothing)
}

impl Operation for Control {
    fn pure(&self) -> bool {
        matches!(self, Control::Nothing)
    }

    fn tells_nobody(&self) -> bool {
        true
    }

    fn lower(&self, l: &mut Lower<'_>) {
        match self {
            Control::Branch(label) => {
                let block = l.labels[*label as usize];
                l.b.ins().jump(block, &[]);
                let next = l.fresh_block();
                l.enter(next);
            }
            Control::Indexed { index, table } => l.indexed_branch(index, *table),
            Control::Return => {
                l.end_thread();
                let next = l.fresh_block();
                l.enter(next);
            }
            Control::Exit => {
                let status = l.b.ins().iconst(types::I32, i64::from(EXITED));
                l.exit_with(status);
            }
            Control::Trap => l.fault(FaultKind::Trap),
            Control::Pause(time) => l.pause(time),
            Control::Nothing => {}
        }
    }

    fn polls(&self) -> bool {
        self.pauses()
    }

    fn pauses(&self) -> bool {
        matches!(self, Control::Pause(_))
    }

    fn faults(&self) -> bool {
        matches!(self, Control::Trap)
    }

    fn flow(&self) -> Flow {
        match self {
            Control::Branch(label) => Flow::Jump(*label),
            Control::Indexed { table, .. } => Flow::Table(*table),
            Control::Return | Control::Exit | Control::Trap => Flow::Leave,
            Control::Pause(_) | Control::Nothing => Flow::Next,
        }
    }
}

impl Lower<'_> {
    /// An index beyond the table is a jump to nowhere.
    fn indexed_branch(&mut self, index: &Arg, table: u32) {
        let Targets::Branch(labels) = &self.body.tables.targets[table as usize] else {
            return;
        };
        let index = self.read(index, Type::U32);
        let wild = self.cold_block();
        let calls: Vec<_> = labels
            .iter()
            .map(|label| {
                ir::BlockCall::new(
                    self.labels[*label as usize],
                    [],
                    &mut self.b.func.dfg.value_lists,
                )
            })
            .collect();
        let default = ir::BlockCall::new(wild, [], &mut self.b.func.dfg.value_lists);
        let data = JumpTableData::new(default, &calls);
        let table = self.b.create_jump_table(data);
        self.b.ins().br_table(index, table);
        self.enter(wild);
        self.fault(FaultKind::InvalidPc);
    }

    /// `exit`: in a kernel the same as `ret`.
    fn exit_with(&mut self, status: ir::Value) {
        if matches!(self.frame, super::function::Frame::Device { .. }) {
            self.leave_with(status);
            return;
        }
        self.end_thread();
        let next = self.fresh_block();
        self.enter(next);
    }

    /// Lets others run, the sooner the longer the thread sleeps, and sleeps.
    fn pause(&mut self, time: &Arg) {
        if self.fibers() {
            let time = self.read(time, Type::U32);
            let spent = self.b.ins().ushr_imm(time, poll::NANOSECONDS_SHIFT);
            let spent = self.b.ins().iadd_imm(spent, 1);
            self.poll_in_fibers(spent);
        } else {
            self.poll_in_rounds();
        }
        // Registers may have been put away and taken back meanwhile.
        let time = self.read(time, Type::U32);
        let (block, linear) = (self.block, self.linear());
        self.call(&poll::SLEEP, &[block, linear, time]);
    }

    /// The thread looks at what another may write: now and then it lets the others run.
    pub fn poll(&mut self) {
        if !self.fibers() {
            return self.poll_in_rounds();
        }
        let one = self.b.ins().iconst(types::I32, 1);
        self.poll_in_fibers(one);
    }

    /// Takes polls from the thread's budget, and lets others run when it is used up.
    fn poll_in_fibers(&mut self, spent: ir::Value) {
        let offset = std::mem::offset_of!(crate::grid::context::ThreadContext, polls);
        let polls = self.thread_field(types::I32, offset);
        let polls = self.b.ins().isub(polls, spent);
        self.set_thread_field(polls, offset);
        let over = self.b.ins().icmp_imm(IntCC::SignedLessThan, polls, 0);
        let cold = self.cold_block();
        let next = self.fresh_block();
        self.b.ins().brif(over, cold, &[], next, &[]);
        self.enter(cold);
        let (thread, block) = (self.thread, self.block);
        let at_mbarrier = i64::from(self.mbarrier_waits.contains(&self.step));
        let at_mbarrier = self.b.ins().iconst(types::I32, at_mbarrier);
        self.cold_call(&poll::POLL, &[thread, block, at_mbarrier], next);
        self.enter(next);
    }
}
