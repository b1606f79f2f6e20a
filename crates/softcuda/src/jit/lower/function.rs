//! A whole function: its prologue, the loop over the threads of a block, its steps, its ends.
//!
//! | frame | function | `ret` | a status other than `CONTINUE` |
//! |---|---|---|---|
//! | loop | all threads of a block, x innermost | next thread | `EXITED`: next thread; otherwise returned |
//! | rounds | all threads of a block, from wait to wait | next lane | `EXITED`: next lane; otherwise returned |
//! | fiber | one thread | returns | returned |
//! | device | called | returns | returned |
//!
//! Every register is zero when a thread starts, so that what one thread leaves never reaches the
//! next.

use std::collections::HashMap;
use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, Block, BlockArg, InstBuilder, MemFlags, Value, types};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use ptx::ast::Type;

use super::Lower;
use super::entry::{Entries, Entry};
use super::groups::Groups;
use super::lanes::Form;
use super::runs::Runs;
use super::steady::Steady;
use crate::grid::context::{CONTINUE, EXITED, Mode, ThreadContext};
use crate::grid::launch::FaultKind;
use crate::jit::compile::Unit;
use crate::jit::decode::{Arg, Flow};
use crate::jit::layout::align_up;
use crate::jit::object::Name;
use crate::jit::program::{Body, Function, Instruction, Place, Step};
use crate::jit::spmd::{Granted, Plan, streams_of_threads};
use crate::jit::waits::mbarrier_waits;

/// How the function is run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Frame {
    /// A kernel that loops over its block's threads.
    Loop {
        /// `%tid`.
        tid: [Value; 3],
        /// Where a thread ends and the next begins.
        latch: Block,
    },
    /// A kernel that runs its block's threads in rounds.
    Rounds {
        /// Where a thread ends.
        end: Block,
    },
    /// A kernel that is one thread.
    Fiber {
        /// Where it ends.
        end: Block,
    },
    /// A device function.
    Device {
        /// Where its return parameters go.
        returns: Value,
        /// Its parameters.
        params: Value,
        /// Where it ends.
        end: Block,
    },
}

/// Emits a function into `ir`, whose signature is set. A kernel may take something for
/// [granted](crate::jit::spmd::Granted) where `grants` lets it. Answers whether it does: then it
/// has a [second form](Name::Second).
pub(crate) fn lower(
    unit: &mut Unit,
    (function, body): (&Function, &Body),
    grants: bool,
    ir: &mut ir::Function,
    context: &mut FunctionBuilderContext,
) -> bool {
    let (groups, runs) = (Groups::of(body), Runs::of(body));
    let mut b = FunctionBuilder::new(ir, context);
    let register_types: Vec<ir::Type> = body
        .tables
        .registers
        .iter()
        .zip(&body.tables.floats)
        .map(|(ty, float)| match (ty, float) {
            (Type::B32, true) => types::F32,
            (Type::B64, true) => types::F64,
            (ty, _) => match super::value_type(*ty) {
                types::I16 => types::I32, // see `is_short`
                ty => ty,
            },
        })
        .collect();
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    b.seal_block(entry);
    let params = b.block_params(entry).to_vec();
    let leave = b.create_block();
    b.set_cold_block(leave);
    b.append_block_param(leave, types::I32);
    let end = b.create_block();
    let labels = (0..body.tables.labels).map(|_| b.create_block()).collect();
    let call_area = slot(&mut b, body.tables.call_area);
    let frame = if !function.kernel {
        Frame::Device {
            returns: params[2],
            params: params[3],
            end,
        }
    } else {
        match unit.mode {
            Mode::Fibers => Frame::Fiber { end },
            Mode::Rounds => Frame::Rounds { end },
            Mode::Loop => Frame::Loop {
                tid: [params[0]; 3], // set when the loop is made
                latch: end,
            },
        }
    };
    let mut l = Lower {
        b,
        thread: params[0],
        block: params[1],
        unit,
        body,
        frame,
        registers: vec![None; register_types.len()],
        register_types,
        labels,
        call_area,
        call_blocks: [None; 2],
        leave,
        rounds: None,
        lanes: None,
        entry: Entries {
            end: None,
            thread_end: None,
            thread: params[0],
            values: HashMap::new(),
            slots: HashMap::new(),
        },
        imports: HashMap::new(),
        outside: HashMap::new(),
        group_bases: vec![None; groups.groups.len()],
        groups,
        runs_checked: vec![false; runs.runs.len()],
        entered: 0,
        steady: Steady::of(body),
        streams: streams_of_threads(body),
        runs,
        step: 0,
        mbarrier_waits: mbarrier_waits(body),
        group: None,
        carry: None,
        reads_bits: true,
        sum: false,
    };
    let plan = match l.frame {
        Frame::Loop { .. } | Frame::Rounds { .. } if l.unit.vectors => {
            let is_loop = matches!(l.frame, Frame::Loop { .. });
            let plan = Plan::of(function, body, (l.unit.rows, grants && is_loop));
            plan.filter(|plan| is_loop || !plan.has_alone())
        }
        _ => None,
    };
    l.prologue(function);
    let granted = plan.as_ref().and_then(Plan::granted);
    if let Some(granted) = granted {
        l.second_unless(granted, function);
    }
    let has_second = granted.is_some();
    let loops = l.open_loop(plan);
    l.start_thread();
    for (at, step) in (0..).zip(&body.steps) {
        l.step = at;
        l.group = l.groups.of_step.get(&at).copied();
        if let Step::Label(label) = step {
            let block = l.labels[*label as usize];
            l.b.ins().jump(block, &[]);
            l.b.switch_to_block(block);
        }
        l.thread_begins(at as usize);
        if let Step::Instruction(instruction) = step {
            l.instruction(instruction);
        }
    }
    l.thread_begins(body.steps.len());
    l.end_thread();
    l.epilogue(loops);
    l.b.seal_all_blocks();
    l.b.finalize();
    has_second
}

/// A slot of the native stack.
pub(super) fn slot(b: &mut FunctionBuilder<'_>, size: u64) -> ir::StackSlot {
    b.create_sized_stack_slot(ir::StackSlotData::new(
        ir::StackSlotKind::ExplicitSlot,
        // Behind the slots, Cranelift puts vectors that it has no register for. They are aligned
        // if the slots are.
        size.next_multiple_of(16) as u32,
        4,
    ))
}

/// The headers of the loops over z, y and x; where a row of threads is over, if that is a block of
/// its own.
type Loops = Option<([Block; 3], Option<Block>)>;

impl Lower<'_> {
    /// Takes the function's frame in local memory and looks whether there is native stack left.
    fn prologue(&mut self, function: &Function) {
        let size = self.body.tables.frame;
        if !function.kernel {
            let limit = self.thread_field(types::I64, offset_of!(ThreadContext, stack_limit));
            let pointer = self.b.ins().get_stack_pointer(types::I64);
            let enough = self
                .b
                .ins()
                .icmp(IntCC::UnsignedGreaterThan, pointer, limit);
            self.fault_unless(enough, FaultKind::StackOverflow);
        }
        if function.kernel {
            let calls = !self.body.uses.functions.is_empty();
            if size > 0 {
                let limit = self.entry(Entry::LocalSize);
                let enough =
                    self.b
                        .ins()
                        .icmp_imm(IntCC::UnsignedGreaterThanOrEqual, limit, size as i64);
                self.fault_unless(enough, FaultKind::StackOverflow);
            }
            if (calls || self.uses_stack()) && !self.many_contexts() {
                self.reset_top();
            }
        } else if size > 0 || self.uses_stack() {
            let limit = self.entry(Entry::LocalSize);
            let base = self.thread_field(types::I64, offset_of!(ThreadContext, local_top));
            self.entry.values.insert(Entry::Frame, base);
            let top = self.b.ins().iadd_imm(base, align_up(size, 16) as i64);
            let enough = self
                .b
                .ins()
                .icmp(IntCC::UnsignedLessThanOrEqual, top, limit);
            self.fault_unless(enough, FaultKind::StackOverflow);
            self.set_thread_field(top, offset_of!(ThreadContext, local_top));
        }
    }

    /// The body moves `local_top` by itself.
    fn uses_stack(&self) -> bool {
        self.body.steps.iter().any(|step| {
            matches!(step, Step::Instruction(instruction) if instruction.operation.uses_stack())
        })
    }

    /// In the prologue: leaves the block to the kernel's second form unless what is taken for
    /// granted of the launch is so.
    fn second_unless(&mut self, granted: &Granted, function: &Function) {
        let body = self.body;
        for at in &granted.steps {
            if let Step::Instruction(instruction) = &body.steps[*at] {
                self.step = *at as u32;
                self.group = None;
                self.instruction(instruction);
            }
        }
        let mut small = None;
        for register in &granted.divisors {
            let divisor = self.read(&Arg::Reg(*register), Type::B32);
            let less = IntCC::UnsignedLessThan;
            let is_small = self.b.ins().icmp_imm(less, divisor, granted.least as i64);
            small = Some(match small {
                Some(small) => self.b.ins().bor(small, is_small),
                None => is_small,
            });
        }
        let Some(small) = small else {
            return;
        };
        let (second, next) = (self.cold_block(), self.fresh_block());
        let end = self.b.ins().brif(small, second, &[], next, &[]);
        self.entry.end.get_or_insert(end);
        self.enter(second);
        let program = &self.unit.program.functions;
        let at = program
            .iter()
            .position(|known| std::ptr::eq(known, function));
        let at = at.expect("the function is of the program") as u32;
        let second = self.import(Name::Second(at));
        let call = self.b.ins().call(second, &[self.thread, self.block]);
        let status = self.b.inst_results(call)[0];
        self.b.ins().return_(&[status]);
        self.enter(next);
    }

    /// In the prologue: a fault that returns at once.
    fn fault_unless(&mut self, ok: Value, kind: FaultKind) {
        let cold = self.cold_block();
        let next = self.fresh_block();
        let end = self.b.ins().brif(ok, next, &[], cold, &[]);
        if self.entry.end.is_none() {
            self.entry.end = Some(end);
        }
        self.enter(cold);
        let kind = self.b.ins().iconst(types::I32, kind as i64);
        let size = self.b.ins().iconst(types::I32, 0);
        let address = self.b.ins().iconst(types::I64, 0);
        let function = self.runtime(&crate::jit::runtime::access::FAULT);
        let (thread, block) = (self.thread, self.block);
        let call = self
            .b
            .ins()
            .call(function, &[thread, block, kind, address, size]);
        let status = self.b.inst_results(call)[0];
        self.b.ins().return_(&[status]);
        self.enter(next);
    }

    /// Opens the loops over the threads of a block; the builder is in the innermost.
    fn open_loop(&mut self, plan: Option<Plan>) -> Loops {
        if self.many_contexts() {
            let live = std::mem::take(&mut self.unit.live);
            self.open_rounds(live, plan);
            return None;
        }
        if !matches!(self.frame, Frame::Loop { .. }) {
            let next = self.fresh_block();
            let end = self.b.ins().jump(next, &[]);
            self.entry.end.get_or_insert(end);
            self.enter(next);
            return None;
        }
        let rows = if plan.is_some() { 2 } else { 3 };
        let mut headers = [self.b.current_block().expect("the builder is in a block"); 3];
        let mut tid = [self.thread; 3];
        for (at, header) in headers.iter_mut().enumerate().take(rows) {
            *header = self.b.create_block();
            tid[2 - at] = self.b.append_block_param(*header, types::I32);
            let zero = self.b.ins().iconst(types::I32, 0);
            let end = self.b.ins().jump(*header, &[BlockArg::Value(zero)]);
            self.entry.end.get_or_insert(end);
            self.b.switch_to_block(*header);
            if at < 2 {
                let to = offset_of!(ThreadContext, tid) + 4 * (2 - at);
                self.set_thread_field(tid[2 - at], to);
            }
        }
        if let Frame::Loop { tid: known, .. } = &mut self.frame {
            *known = tid;
        }
        let over = plan.map(|plan| {
            let (head, over) = self.open_row(plan);
            headers[2] = head;
            over
        });
        Some((headers, over))
    }

    /// What a thread finds: registers that are zero, or parameters.
    fn start_thread(&mut self) {
        self.clear_registers();
        let calls = self.many_contexts() && !self.body.uses.functions.is_empty();
        if calls
            || (matches!(self.frame, Frame::Loop { .. } | Frame::Rounds { .. })
                && self.uses_stack())
        {
            self.reset_top();
        }
        let carry = self.b.declare_var(types::I8);
        self.carry = Some(carry);
        let zero = self.zero(types::I8);
        self.b.def_var(carry, zero);
        let Frame::Device { params, .. } = self.frame else {
            return;
        };
        for (id, offset) in self.body.tables.incoming.iter().copied() {
            let ty = self.body.tables.registers[id.0 as usize];
            let value = self.b.ins().load(
                super::value_type(ty),
                MemFlags::trusted(),
                params,
                offset as i32,
            );
            self.write(&Arg::Reg(id), ty, value);
        }
        for param in &self.body.tables.params {
            if let (Place::Incoming(from), Some(copy)) = (param.place, param.copy) {
                let frame = self.entry(Entry::Frame);
                let base = self.entry(Entry::LocalBase);
                let frame = self.b.ins().iadd(base, frame);
                let to = self.b.ins().iadd_imm(frame, copy as i64);
                let from = self.b.ins().iadd_imm(params, from as i64);
                self.copy(to, from, param.size, param.align);
            }
        }
    }

    pub(super) fn instruction(&mut self, instruction: &Instruction) {
        self.reads_bits = instruction.reads_bits;
        let Some((register, negated)) = instruction.guard else {
            return instruction.operation.lower(self);
        };
        let guard = self.read(&Arg::Reg(register), Type::Pred);
        let next = self.fresh_block();
        let (then, jump) = match instruction.operation.flow() {
            Flow::Jump(label) => (self.labels[label as usize], true),
            _ => (self.fresh_block(), false),
        };
        if negated {
            self.b.ins().brif(guard, next, &[], then, &[]);
        } else {
            self.b.ins().brif(guard, then, &[], next, &[]);
        }
        if !jump {
            self.enter(then);
            instruction.operation.lower(self);
            self.b.ins().jump(next, &[]);
        }
        self.enter(next);
    }

    /// `ret`: the function or, in a kernel, the thread ends well.
    pub(super) fn end_thread(&mut self) {
        if let Frame::Device { returns, .. } = self.frame {
            self.reads_bits = true;
            for (id, offset) in self.body.tables.outgoing.iter().copied() {
                let ty = self.body.tables.registers[id.0 as usize];
                let value = self.read(&Arg::Reg(id), ty);
                self.b
                    .ins()
                    .store(MemFlags::trusted(), value, returns, offset as i32);
            }
        }
        let end = self.end();
        self.b.ins().jump(end, &[]);
    }

    fn end(&self) -> Block {
        match self.frame {
            Frame::Loop { latch, .. } => latch,
            Frame::Rounds { end } | Frame::Fiber { end } | Frame::Device { end, .. } => end,
        }
    }

    /// The blocks where all paths end; the builder's block is filled.
    fn epilogue(&mut self, loops: Loops) {
        let end = self.end();
        self.b.switch_to_block(end);
        if loops.is_some() {
            self.thread_ends();
        }
        if let Some(([z, y, x], over)) = loops {
            for (header, n) in [x, y, z].into_iter().zip(0..) {
                let limit = self.entry(Entry::Ntid(n));
                let at = self.tid(n);
                let next = self.b.ins().iadd_imm(at, 1);
                let more = self.b.ins().icmp(IntCC::UnsignedLessThan, next, limit);
                let done = match over {
                    Some(over) if n == 0 => over,
                    _ => self.fresh_block(),
                };
                self.b
                    .ins()
                    .brif(more, header, &[BlockArg::Value(next)], done, &[]);
                self.b.switch_to_block(done);
            }
        }
        let over = loops.is_some() || self.rounds();
        if self.rounds() {
            self.close_rounds();
        } else {
            self.restore_frame();
            let status = self.b.ins().iconst(types::I32, i64::from(CONTINUE));
            self.b.ins().return_(&[status]);
        }

        self.close_row();
        let leave = self.leave;
        self.b.switch_to_block(leave);
        let status = self.b.block_params(leave)[0];
        if over {
            let faulted = self.fresh_block();
            if loops.is_some() && !self.body.uses.functions.is_empty() {
                // A callee that ended the thread left its frame behind.
                self.reset_top();
            }
            let exited = self
                .b
                .ins()
                .icmp_imm(IntCC::Equal, status, i64::from(EXITED));
            self.b.ins().brif(exited, end, &[], faulted, &[]);
            self.b.switch_to_block(faulted);
        }
        self.restore_frame();
        self.b.ins().return_(&[status]);
    }

    /// In a kernel: local memory above its own frame is free.
    fn reset_top(&mut self) {
        let top = align_up(self.body.tables.frame, 16) as i64;
        let top = self.b.ins().iconst(types::I64, top);
        self.set_thread_field(top, offset_of!(ThreadContext, local_top));
    }

    /// Gives the function's frame in local memory back.
    fn restore_frame(&mut self) {
        if let (Frame::Device { .. }, Some(base)) =
            (self.frame, self.entry.values.get(&Entry::Frame).copied())
            && (self.body.tables.frame > 0 || self.uses_stack())
        {
            self.set_thread_field(base, offset_of!(ThreadContext, local_top));
        }
    }

    /// In loop mode, puts `%tid.x` where the runtime looks for it; the rest of `%tid` is there.
    pub(super) fn sync(&mut self) {
        if let Frame::Loop { .. } = self.frame {
            let x = self.tid(0);
            self.set_thread_field(x, offset_of!(ThreadContext, tid));
        }
    }

    /// The same for functions of the module, which read the thread's number in its block, too.
    pub(super) fn sync_for_call(&mut self) {
        self.sync();
        if let Frame::Loop { .. } = self.frame {
            let linear = self.linear();
            self.set_thread_field(linear, offset_of!(ThreadContext, linear));
        }
    }

    /// A component of `%tid`.
    pub(super) fn tid(&mut self, n: u8) -> Value {
        match (self.frame, n) {
            (Frame::Rounds { .. }, n) if self.goes_across() => self.lane_tid(n),
            (Frame::Loop { tid, .. }, 0) => self.group_tid().unwrap_or(tid[0]),
            (Frame::Loop { tid, .. }, n) => tid[usize::from(n)],
            (Frame::Rounds { .. }, n) if n > 0 || self.form() == Form::Thread => self.lane_tid(n),
            (_, 0) => match self.group_tid() {
                Some(x) => x,
                None => self.entry(Entry::Tid(0)),
            },
            _ => self.entry(Entry::Tid(n)),
        }
    }

    /// The thread's number in its block.
    pub(super) fn linear(&mut self) -> Value {
        match self.frame {
            Frame::Loop { .. } => {}
            Frame::Rounds { .. } => return self.lane_linear(),
            _ => return self.entry(Entry::Linear),
        }
        let [x, y, z] = [0, 1, 2].map(|n| self.tid(n));
        let (nx, ny) = (self.entry(Entry::Ntid(0)), self.entry(Entry::Ntid(1)));
        let plane = self.b.ins().imul(z, ny);
        let row = self.b.ins().iadd(plane, y);
        let row = self.b.ins().imul(row, nx);
        self.b.ins().iadd(row, x)
    }

    /// A field of the `ThreadContext` that changes while the function runs.
    pub(super) fn thread_field(&mut self, ty: ir::Type, offset: usize) -> Value {
        let thread = self.thread;
        self.b
            .ins()
            .load(ty, MemFlags::trusted(), thread, offset as i32)
    }

    pub(super) fn set_thread_field(&mut self, value: Value, offset: usize) {
        let thread = self.thread;
        self.b
            .ins()
            .store(MemFlags::trusted(), value, thread, offset as i32);
    }
}
