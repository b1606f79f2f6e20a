//! A kernel that runs its block in rounds: a loop over the threads, in which each goes on from
//! where it stood to the barrier.
//!
//! ```text
//! entry:   every thread stands at its start
//! round:   for each thread
//!            go to where it stands: start, after the nth barrier, or its end
//!            ...
//!            nth barrier: keep what is live, stand after the nth barrier, next thread
//!            end: stand at the end, next thread
//!          when a thread came to a barrier: round again
//! ```
//!
//! As the kernel waits nowhere else, all threads that have not ended stand at the barrier when a
//! round is over, so it is complete. What a thread keeps lies in a record of its own: first where
//! it stands, then the registers that are live there.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder, MemFlags, Type, Value, types};

use super::Lower;
use super::function::Frame;
use crate::grid::context::{BlockContext, CONTINUE, THREAD_STRIDE};
use crate::grid::rounds::ROUND_OVER;
use crate::jit::decode::RegId;
use crate::jit::program::Step;

/// Where a thread stands that has not started.
const START: i64 = 0;

/// Rounds, as far as they are lowered.
pub(super) struct Rounds {
    /// For each barrier in source order, the registers that are live after it.
    live: Vec<Vec<RegId>>,
    /// Where threads go on after each.
    resumes: Vec<Block>,
    /// The body uses the carry flag.
    uses_carry: bool,
    /// The barriers lowered so far.
    lowered: usize,
    /// Bytes of a thread's record.
    stride: u32,
    /// The record of the thread that runs.
    kept: Value,
    /// Threads left in this round, itself included.
    left: Value,
    /// Whether one of those before came to a barrier.
    waiting: Value,
    /// Begins a round.
    round: Block,
    /// The loop over threads.
    head: Block,
    /// Goes to the next thread; told whether one waits.
    latch: Block,
}

impl Rounds {
    /// Where a thread stands that has ended.
    fn ended(&self) -> i64 {
        self.resumes.len() as i64 + 1
    }
}

/// What is kept of a thread at a barrier.
struct Record {
    /// Where each register lies.
    registers: Vec<(RegId, i32)>,
    carry: i32,
    /// Where the area for calls lies, and how many bytes of it.
    call_area: (i32, u32),
    size: u32,
}

impl Lower<'_> {
    /// The kernel runs its block in rounds.
    pub(super) fn rounds(&self) -> bool {
        self.rounds.is_some()
    }

    /// Where what is live at a barrier lies in a record: the larger before the smaller, so that
    /// each is aligned.
    fn record(&self, live: &[RegId]) -> Record {
        let bytes = |register: &RegId| self.register_types[register.0 as usize].bytes();
        let mut registers = live.to_vec();
        registers.sort_by_key(|register| std::cmp::Reverse(bytes(register)));
        let mut size = 16;
        let registers = registers
            .into_iter()
            .map(|register| {
                let at = size;
                size += bytes(&register);
                (register, at as i32)
            })
            .collect();
        let carry = size as i32;
        size = (size + 1).next_multiple_of(8);
        let call_area = (
            size as i32,
            (self.body.tables.call_area as u32).next_multiple_of(8),
        );
        Record {
            registers,
            carry,
            call_area,
            size: (size + call_area.1).next_multiple_of(16),
        }
    }

    /// Opens the loops over rounds and threads; the builder is where a thread starts.
    pub(super) fn open_rounds(&mut self, live: Vec<Vec<RegId>>) {
        let flags = MemFlags::trusted();
        let stride = live
            .iter()
            .map(|live| self.record(live).size)
            .max()
            .unwrap_or(16);
        self.unit.kept = stride;
        let field = |offset: usize| offset as i32;
        let block = self.block;
        let records = self.b.ins().load(
            types::I64,
            flags,
            block,
            field(offset_of!(BlockContext, kept)),
        );
        let threads = self.b.ins().load(
            types::I32,
            flags,
            block,
            field(offset_of!(BlockContext, threads)),
        );

        // Every thread stands at its start.
        let clear = self.b.create_block();
        let at = self.b.append_block_param(clear, types::I64);
        let left = self.b.append_block_param(clear, types::I32);
        let end = self.b.ins().jump(clear, &[records.into(), threads.into()]);
        self.entry.end.get_or_insert(end);
        self.b.switch_to_block(clear);
        let start = self.b.ins().iconst(types::I32, START);
        self.b.ins().store(flags, start, at, 0);
        let next = self.b.ins().iadd_imm(at, i64::from(stride));
        let less = self.b.ins().iadd_imm(left, -1);
        let round = self.b.create_block();
        self.b
            .ins()
            .brif(less, clear, &[next.into(), less.into()], round, &[]);

        self.b.switch_to_block(round);
        let head = self.b.create_block();
        let first = self.thread;
        let no = self.b.ins().iconst(types::I8, 0);
        self.b.ins().jump(
            head,
            &[first.into(), records.into(), threads.into(), no.into()],
        );

        self.thread = self.b.append_block_param(head, types::I64);
        let rounds = Rounds {
            resumes: live.iter().map(|_| self.b.create_block()).collect(),
            live,
            uses_carry: self.uses_carry(),
            lowered: 0,
            stride,
            kept: self.b.append_block_param(head, types::I64),
            left: self.b.append_block_param(head, types::I32),
            waiting: self.b.append_block_param(head, types::I8),
            round,
            head,
            latch: self.b.create_block(),
        };
        self.b.append_block_param(rounds.latch, types::I8);
        self.b.switch_to_block(head);
        let stands = self.b.ins().load(types::I32, flags, rounds.kept, 0);
        let start = self.b.create_block();
        // All threads mostly stand at one place, so these branches are predicted.
        for (number, resume) in (1..).zip(&rounds.resumes) {
            let here = self.b.ins().icmp_imm(IntCC::Equal, stands, number);
            let other = self.b.create_block();
            let branch = self.b.ins().brif(here, *resume, &[], other, &[]);
            self.entry.thread_end.get_or_insert(branch);
            self.b.switch_to_block(other);
            self.b.seal_block(other);
        }
        let over = self.b.ins().icmp_imm(IntCC::Equal, stands, rounds.ended());
        let skip = [BlockArg::Value(rounds.waiting)];
        let branch = self.b.ins().brif(over, rounds.latch, &skip, start, &[]);
        self.entry.thread_end.get_or_insert(branch);
        self.rounds = Some(rounds);
        self.enter(start);
    }

    /// The thread has come to the barrier: the next thread's turn. What is lowered next, it does in
    /// the next round.
    pub(super) fn next_round(&mut self) {
        let Some(rounds) = &mut self.rounds else {
            return;
        };
        let number = rounds.lowered;
        rounds.lowered += 1;
        let (kept, latch, resume) = (rounds.kept, rounds.latch, rounds.resumes[number]);
        let carry = self.carry.filter(|_| rounds.uses_carry);
        let live = std::mem::take(&mut rounds.live[number]);
        let record = self.record(&live);
        let flags = MemFlags::trusted();
        for (register, offset) in &record.registers {
            let variable = self.variable(*register);
            let value = self.b.use_var(variable);
            self.b.ins().store(flags, value, kept, *offset);
        }
        if let Some(carry) = carry {
            let value = self.b.use_var(carry);
            self.b.ins().store(flags, value, kept, record.carry);
        }
        let (area, bytes) = record.call_area;
        for word in (0..bytes as i32).step_by(8) {
            let value = self.b.ins().stack_load(types::I64, self.call_area, word);
            self.b.ins().store(flags, value, kept, area + word);
        }
        let stands = self.b.ins().iconst(types::I32, number as i64 + 1);
        self.b.ins().store(flags, stands, kept, 0);
        let yes = self.b.ins().iconst(types::I8, 1);
        self.b.ins().jump(latch, &[yes.into()]);

        self.enter(resume);
        self.clear_registers();
        for (register, offset) in &record.registers {
            let variable = self.variable(*register);
            let ty = self.register_types[register.0 as usize];
            let value = self.b.ins().load(ty, flags, kept, *offset);
            self.b.def_var(variable, value);
        }
        if let Some(carry) = carry {
            let value = self.b.ins().load(types::I8, flags, kept, record.carry);
            self.b.def_var(carry, value);
        }
        for word in (0..bytes as i32).step_by(8) {
            let value = self.b.ins().load(types::I64, flags, kept, area + word);
            self.b.ins().stack_store(value, self.call_area, word);
        }
    }

    fn uses_carry(&self) -> bool {
        self.body.steps.iter().any(
            |step| matches!(step, Step::Instruction(instruction) if instruction.operation.carry()),
        )
    }

    /// Counts a thread that comes to the barrier with a predicate.
    pub(super) fn count_predicate(&mut self, predicate: Value) {
        let one = self.b.ins().iconst(types::I32, 1);
        let predicate = self.b.ins().uextend(types::I32, predicate);
        for (n, more) in [one, predicate].into_iter().enumerate() {
            let count = self.tally(n);
            let count = self.b.ins().iadd(count, more);
            let offset = (offset_of!(BlockContext, tally) + 4 * n) as i32;
            let block = self.block;
            self.b
                .ins()
                .store(MemFlags::trusted(), count, block, offset);
        }
    }

    /// How many threads came to the barrier of the last round with a predicate, and with a true
    /// one.
    pub(super) fn last_tally(&mut self) -> [Value; 2] {
        [self.tally(2), self.tally(3)]
    }

    fn tally(&mut self, n: usize) -> Value {
        let offset = (offset_of!(BlockContext, tally) + 4 * n) as i32;
        let block = self.block;
        self.b
            .ins()
            .load(types::I32, MemFlags::trusted(), block, offset)
    }

    /// A thread has ended; the builder is where all that end come together. Goes on to the next
    /// thread, and the next round.
    pub(super) fn close_rounds(&mut self) {
        let Some(rounds) = self.rounds.take() else {
            return;
        };
        let flags = MemFlags::trusted();
        let ended = self.b.ins().iconst(types::I32, rounds.ended());
        self.b.ins().store(flags, ended, rounds.kept, 0);
        self.b
            .ins()
            .jump(rounds.latch, &[BlockArg::Value(rounds.waiting)]);

        self.b.switch_to_block(rounds.latch);
        let waits = self.b.block_params(rounds.latch)[0];
        let thread = self.b.ins().iadd_imm(self.thread, THREAD_STRIDE as i64);
        let kept = self.b.ins().iadd_imm(rounds.kept, i64::from(rounds.stride));
        let left = self.b.ins().iadd_imm(rounds.left, -1);
        let over = self.b.create_block();
        self.b.ins().brif(
            left,
            rounds.head,
            &[thread.into(), kept.into(), left.into(), waits.into()],
            over,
            &[],
        );

        self.b.switch_to_block(over);
        let (again, done) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(waits, again, &[], done, &[]);
        self.b.switch_to_block(again);
        let (thread, block) = (self.thread, self.block);
        let status = self.call_value(&ROUND_OVER, &[thread, block]);
        let stop = self.b.create_block();
        self.b.ins().brif(status, stop, &[], rounds.round, &[]);
        self.b.switch_to_block(stop);
        self.b.ins().return_(&[status]);
        self.b.switch_to_block(done);
        let status = self.b.ins().iconst(types::I32, i64::from(CONTINUE));
        self.b.ins().return_(&[status]);
    }

    /// Whether values of the thread's context differ from one run through the body to the next.
    pub(super) fn many_contexts(&self) -> bool {
        matches!(self.frame, Frame::Rounds { .. })
    }

    /// Every register is zero.
    pub(super) fn clear_registers(&mut self) {
        let mut zeros: Vec<(Type, Value)> = vec![];
        for at in 0..self.register_types.len() {
            let ty = self.register_types[at];
            let zero = match zeros.iter().find(|(known, _)| *known == ty) {
                Some((_, zero)) => *zero,
                None => {
                    let zero = self.zero(ty);
                    zeros.push((ty, zero));
                    zero
                }
            };
            let variable = self.variable(RegId(at as u32));
            self.b.def_var(variable, zero);
        }
    }
}
