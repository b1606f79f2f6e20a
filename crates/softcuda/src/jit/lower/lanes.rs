//! The vector form of a kernel, as [`spmd`](crate::jit::spmd) plans it: a group of neighbouring
//! threads runs together.
//!
//! ```text
//! for each row of threads
//!   if whole groups make up the row
//!     for each group: the vector form
//!                     where threads part: note where each stands; "next thread"
//!   else
//!     for each thread: the form of one thread
//! next thread: of the group that parted, one that has not come to where the ways join goes on
//!              there, in the form of one thread; when all have come there, the group goes on
//! ```
//!
//! What a thread leaves for the other form lies in a slot of the native stack, which has a place
//! for each register and thread.

use std::collections::HashMap;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, Block, InstBuilder, MemFlags, Type as ValueType, Value, types};
use cranelift_frontend::{Switch, Variable};
use ptx::ast::Type;
use smallvec::SmallVec;

use super::Lower;
use super::function::slot;
use crate::grid::context::{THREAD_STRIDE, ThreadContext};
use crate::jit::decode::{Arg, Flow, RegId};
use crate::jit::program::{Instruction, Step};
use crate::jit::spmd::{Class, Plan, WIDTH, Way};

/// What the operation being lowered is lowered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A thread, by itself.
    Thread,
    /// The first thread of a group, for all.
    Once,
    /// One thread of a group.
    Lane(usize),
    /// A vector of threads of a group: which, and whether of values of 64 bits.
    Vector { chunk: usize, wide: bool },
}

/// How a register is kept of a group.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    /// The first thread's value, or that of all.
    One(Variable),
    /// Vectors, of so many bits an element; a predicate's elements have all bits set or none.
    Vectors(SmallVec<[Variable; 4]>),
    /// Each thread's value.
    Each([Variable; WIDTH]),
}

/// Where a thread stands that has ended.
const ENDED: i64 = 0;
/// Where threads join that never do.
const NOWHERE: i64 = -1;
/// In the slot: which thread of a group runs by itself; none, where the block has no groups.
const LANE: i32 = 0;
const NO_LANE: i64 = -1;
/// In the slot: where the threads join.
const JOIN: i32 = 4;
/// In the slot: `%tid.x` of the group's first thread.
const FIRST: i32 = 8;
/// In the slot, in rounds: the number of the group's first thread in its warp.
const GROUP: i32 = 12;
/// In the slot: where each thread stands.
const STANDS: i32 = 16;
/// In the slot: the registers.
const REGISTERS: i32 = STANDS + 4 * WIDTH as i32;

/// The vector form, while a function is lowered.
pub(super) struct Lanes {
    plan: Plan,
    pub form: Form,
    registers: Vec<Option<Kept>>,
    /// What threads of the group write one after the other, until all have.
    written: HashMap<(RegId, usize), Variable>,
    /// The first half of a predicate that is computed from values of 64 bits.
    halves: HashMap<RegId, Value>,
    /// The threads for which the operation counts; all, where there is none.
    mask: Option<RegId>,
    masks_by_false: bool,
    /// For each group of accesses, what [`Lower::group_bases`] is for one thread: by thread.
    pub bases: Vec<[Option<Value>; WIDTH]>,
    /// By block of the plan: where the group's code begins, and where that of one thread does.
    group_blocks: Vec<Block>,
    thread_blocks: Vec<Option<Block>>,
    /// By block of the plan, where threads join: they stop there.
    joins: Vec<bool>,
    /// `%tid.x` of the group's first thread.
    first: Variable,
    /// `%tid.x` of the thread that runs by itself.
    x: Variable,
    slot: ir::StackSlot,
    /// Where registers lie in it.
    places: HashMap<RegId, i32>,
    size: i32,
    /// Goes to the next thread of a group that parted.
    next: Block,
    /// Goes to the next group.
    latch: Block,
    /// In rounds: the context of the group's first thread, and where a lane has its turn by itself.
    own_contexts: Option<(Value, Block)>,
    /// Where a thread goes on that parted from its group.
    parted: Block,
}

impl Lanes {
    fn kept(&self, register: RegId) -> &Kept {
        self.registers[register.0 as usize]
            .as_ref()
            .expect("every register is declared before the form is lowered")
    }
}

/// Threads in a vector of values of so many bits.
const fn in_vector(wide: bool) -> usize {
    if wide { 2 } else { 4 }
}

pub(super) fn vector_of(ty: ValueType) -> ValueType {
    match ty {
        types::F32 => types::F32X4,
        types::F64 => types::F64X2,
        types::I64 => types::I64X2,
        _ => types::I32X4,
    }
}

impl Lower<'_> {
    /// The operation works on vectors.
    pub(super) fn in_vectors(&self) -> bool {
        matches!(self.form(), Form::Vector { .. })
    }

    pub(super) fn form(&self) -> Form {
        self.lanes.as_ref().map_or(Form::Thread, |lanes| lanes.form)
    }

    pub(super) fn set_form(&mut self, form: Form) {
        let Some(lanes) = &mut self.lanes else {
            return;
        };
        lanes.form = form;
        // In rounds, each thread has a context of its own.
        if let Some((first, _)) = lanes.own_contexts {
            self.thread = match form {
                Form::Lane(lane @ 1..) => {
                    self.b.ins().iadd_imm(first, (lane * THREAD_STRIDE) as i64)
                }
                _ => first,
            };
        }
    }

    /// How a register is kept of a group.
    pub(super) fn kept_of(&mut self, register: RegId) -> Kept {
        self.lanes().kept(register).clone()
    }

    fn lanes(&mut self) -> &mut Lanes {
        self.lanes
            .as_mut()
            .expect("the vector form is only lowered where there is one")
    }

    /// A scalar as a vector of it, where the operation works on vectors; a predicate as a mask.
    pub(super) fn spread(&mut self, value: Value) -> Value {
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
            ty => self.b.ins().splat(vector_of(ty), value),
        }
    }

    /// A word, or a vector of it.
    pub(super) fn word(&mut self, number: i64) -> Value {
        let value = self.b.ins().iconst(types::I32, number);
        self.spread(value)
    }

    /// A complement of a predicate.
    pub(super) fn not(&mut self, predicate: Value) -> Value {
        match self.in_vectors() {
            true => self.b.ins().bnot(predicate),
            false => self.b.ins().bxor_imm(predicate, 1),
        }
    }

    /// `a` where a predicate is true, otherwise `b`.
    pub(super) fn select(&mut self, predicate: Value, a: Value, b: Value) -> Value {
        if !self.in_vectors() {
            return self.b.ins().select(predicate, a, b);
        }
        let ty = self.b.func.dfg.value_type(a);
        let mask = self.as_vector(predicate, ty);
        self.b.ins().bitselect(mask, a, b)
    }

    /// The bits of a vector in another type.
    pub(super) fn as_vector(&mut self, value: Value, ty: ValueType) -> Value {
        match self.b.func.dfg.value_type(value) == ty {
            true => value,
            false => self.b.ins().bitcast(ty, little_endian(), value),
        }
    }

    // Registers.

    fn declare(&mut self) {
        let body = self.body;
        for at in 0..self.register_types.len() {
            let register = RegId(at as u32);
            let ty = self.register_types[at];
            let class = self.lanes().plan.class(register);
            let kept = match class {
                Class::Varying if crate::jit::spmd::in_vectors(body, register) => {
                    let ty = vector_of(ty);
                    let count = WIDTH / ty.lane_count() as usize;
                    Kept::Vectors((0..count).map(|_| self.b.declare_var(ty)).collect())
                }
                Class::Varying => Kept::Each([(); WIDTH].map(|()| self.b.declare_var(ty))),
                _ => Kept::One(self.b.declare_var(ty)),
            };
            self.lanes().registers[at] = Some(kept);
        }
    }

    /// Every register of a group is zero.
    fn clear_group(&mut self) {
        for at in 0..self.register_types.len() {
            let zero = self.zero(self.register_types[at]);
            self.put_all(RegId(at as u32), zero);
        }
    }

    /// Puts a value into a register of every thread.
    fn put_all(&mut self, register: RegId, value: Value) {
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
    pub(super) fn held_in_group(&mut self, register: RegId) -> Value {
        let kept = self.lanes().kept(register).clone();
        let stride = self.lanes().plan.class(register).stride().unwrap_or(0);
        let form = self.form();
        match (kept, form) {
            (Kept::One(variable), Form::Once | Form::Thread) => self.b.use_var(variable),
            (Kept::One(variable), Form::Lane(lane)) => {
                let value = self.b.use_var(variable);
                match stride.wrapping_mul(lane as i64) {
                    0 => value,
                    more => self.plus(value, more),
                }
            }
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
                let value = self.b.ins().extractlane(vector, (lane % count) as u8);
                match ty {
                    types::I8 => self.b.ins().icmp_imm(IntCC::NotEqual, value, 0),
                    _ => value,
                }
            }
            (Kept::Each(variables), Form::Lane(lane)) => self.b.use_var(variables[lane]),
            (kept, form) => unreachable!("{kept:?} is not read in {form:?}"),
        }
    }

    /// A register as a vector of a type.
    pub(super) fn read_vector(&mut self, register: RegId, ty: Type) -> Value {
        let value = self.held(register);
        if ty != Type::Pred {
            return self.as_vector(value, vector_of(super::value_type(ty)));
        }
        if self.is_predicate(register) {
            return value;
        }
        let words = self.as_vector(value, types::I32X4);
        let zero = self.word(0);
        self.b.ins().icmp(IntCC::NotEqual, words, zero)
    }

    pub(super) fn is_predicate(&self, register: RegId) -> bool {
        self.body.tables.registers[register.0 as usize] == Type::Pred
    }

    /// An integer and a number, in its width.
    fn plus(&mut self, value: Value, more: i64) -> Value {
        let ty = self.b.func.dfg.value_type(value);
        let more = match ty {
            types::I32 => i64::from(more as i32),
            _ => more,
        };
        self.b.ins().iadd_imm(value, more)
    }

    /// How much more each thread of a vector has than the group's first.
    fn steps(&mut self, ty: ValueType, chunk: usize, stride: i64) -> Value {
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
    pub(super) fn put_in_group(&mut self, register: RegId, value: Value) {
        match self.form() {
            Form::Once | Form::Thread => self.put_all(register, value),
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
    fn put_vector(&mut self, register: RegId, to: Variable, chunk: usize, value: Value) {
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
    fn narrow_masks(&mut self, low: Value, high: Value) -> Value {
        let [low, high] = [low, high].map(|mask| self.as_vector(mask, types::I8X16));
        let picks = [0u8, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27];
        let mask = self.b.func.dfg.immediates.push(picks.to_vec().into());
        let both = self.b.ins().shuffle(low, high, mask);
        self.as_vector(both, types::I32X4)
    }

    // Steps.

    /// Lowers the group's code; the builder is where a row's groups begin.
    pub(super) fn lower_groups(&mut self) {
        self.set_form(Form::Once);
        // Operations of a group leave the function by faults alone.
        let fault = self.cold_block();
        let status = self.b.append_block_param(fault, types::I32);
        let leave = std::mem::replace(&mut self.leave, fault);
        self.declare();
        self.clear_group();
        let body = self.body;
        for (at, step) in body.steps.iter().enumerate() {
            self.group_begins(at);
            if let Step::Instruction(instruction) = step {
                self.group = self.groups.of_step.get(&(at as u32)).copied();
                self.reads_bits = instruction.reads_bits;
                self.group_step(at, instruction);
            }
        }
        self.group_begins(body.steps.len());
        self.end_group();
        self.b.switch_to_block(fault);
        self.b.ins().return_(&[status]);
        self.leave = leave;
        self.set_form(Form::Thread);
    }

    /// In the code of a group, where a step may begin a block.
    fn group_begins(&mut self, at: usize) {
        if let Some(block) = self.lanes().plan.control.begins(at) {
            let begins = self.lanes().group_blocks[block];
            self.b.ins().jump(begins, &[]);
            self.b.switch_to_block(begins);
            self.lanes().bases.fill([None; WIDTH]);
        }
    }

    /// The group has ended: the next one's turn.
    fn end_group(&mut self) {
        if self.lanes().own_contexts.is_some() {
            self.group_stands(i64::from(crate::grid::rounds::ENDED as i32));
        }
        self.leave_turn();
    }

    /// The next group's turn.
    pub(super) fn leave_turn(&mut self) {
        let (latch, first) = (self.lanes().latch, self.lanes().first);
        if self.lanes().own_contexts.is_some() {
            self.b.ins().jump(latch, &[]);
            return;
        }
        let first = self.b.use_var(first);
        self.b.ins().jump(latch, &[first.into()]);
    }

    /// In rounds: the number of the group's first thread in its row.
    pub(super) fn group_first(&mut self) {
        let variable = self.lanes().first;
        let x = self.thread_field(types::I32, std::mem::offset_of!(ThreadContext, tid));
        self.b.def_var(variable, x);
    }

    /// No group has parted.
    pub(super) fn alone(&mut self) {
        let slot = self.lanes().slot;
        let none = self.b.ins().iconst(types::I32, NO_LANE);
        self.b.ins().stack_store(none, slot, LANE);
        let nowhere = self.b.ins().iconst(types::I32, NOWHERE);
        self.b.ins().stack_store(nowhere, slot, JOIN);
    }

    /// Goes on where a thread stands that parted from its group, if the one that runs has. Gives
    /// the branch.
    pub(super) fn unless_parted(&mut self) -> ir::Inst {
        let (slot, parted) = (self.lanes().slot, self.lanes().parted);
        let lane = self.b.ins().stack_load(types::I32, slot, LANE);
        let alone = self.b.ins().icmp_imm(IntCC::SignedLessThan, lane, 0);
        let on = self.fresh_block();
        let branch = self.b.ins().brif(alone, on, &[], parted, &[]);
        self.enter(on);
        branch
    }

    /// Does a step once more that computes what the group has not kept.
    pub(super) fn group_step_again(&mut self, at: usize) {
        let body = self.body;
        if let Step::Instruction(instruction) = &body.steps[at] {
            self.reads_bits = instruction.reads_bits;
            match self.lanes().plan.ways[at] {
                // Nobody's value wrapped the first time.
                Way::Widen { .. } => instruction.operation.lower(self),
                _ => self.group_step(at, instruction),
            }
        }
    }

    fn group_step(&mut self, at: usize, instruction: &Instruction) {
        let way = self.lanes().plan.ways[at];
        if way == Way::Control {
            return self.group_control(at, instruction);
        }
        let guard = instruction.guard;
        let parts =
            guard.is_some_and(|(register, _)| self.lanes().plan.class(register) == Class::Varying);
        if parts {
            let Some((register, negated)) = guard else {
                return;
            };
            return match way {
                Way::Vector => {
                    let lanes = self.lanes();
                    lanes.mask = Some(register);
                    lanes.masks_by_false = negated;
                    self.by_vectors(instruction);
                    self.lanes().mask = None;
                }
                _ => self.each(instruction, Some((register, negated))),
            };
        }
        let next = guard.map(|(register, negated)| {
            self.set_form(Form::Once);
            let guard = self.read(&Arg::Reg(register), Type::Pred);
            let (then, next) = (self.fresh_block(), self.fresh_block());
            match negated {
                false => self.b.ins().brif(guard, then, &[], next, &[]),
                true => self.b.ins().brif(guard, next, &[], then, &[]),
            };
            self.enter(then);
            next
        });
        match way {
            Way::Once | Way::Wait => {
                self.set_form(Form::Once);
                instruction.operation.lower(self);
            }
            Way::Widen { from, signed } => self.widen(at, instruction, from, signed),
            Way::Vector => self.by_vectors(instruction),
            Way::Row => {
                self.set_form(Form::Once);
                let access = instruction.operation.plain_access();
                let stride =
                    access.and_then(|access| self.lanes().plan.class(access.base).stride());
                instruction.operation.lower_row(self, stride.unwrap_or(0));
            }
            Way::Each => self.each(instruction, None),
            Way::Control => unreachable!("done above"),
        }
        if let Some(next) = next {
            self.b.ins().jump(next, &[]);
            self.enter(next);
        }
        self.set_form(Form::Once);
    }

    fn by_vectors(&mut self, instruction: &Instruction) {
        let registers = instruction.reads.iter().chain(&instruction.writes);
        let wide = registers
            .clone()
            .any(|register| self.register_types[register.0 as usize].bits() == 64);
        for chunk in 0..WIDTH / in_vector(wide) {
            self.set_form(Form::Vector { chunk, wide });
            instruction.operation.lower(self);
        }
        self.set_form(Form::Once);
    }

    /// Thread after thread, those where a guard does not hold left out.
    fn each(&mut self, instruction: &Instruction, guard: Option<(RegId, bool)>) {
        self.lanes().written.clear();
        for lane in 0..WIDTH {
            self.set_form(Form::Lane(lane));
            let next = guard.map(|(register, negated)| {
                for written in &instruction.writes {
                    // Where the guard does not hold, it stays.
                    let old = self.held_in_group(*written);
                    self.put_in_group(*written, old);
                }
                let guard = self.read(&Arg::Reg(register), Type::Pred);
                let (then, next) = (self.fresh_block(), self.fresh_block());
                match negated {
                    false => self.b.ins().brif(guard, then, &[], next, &[]),
                    true => self.b.ins().brif(guard, next, &[], then, &[]),
                };
                self.enter(then);
                next
            });
            instruction.operation.lower(self);
            if let Some(next) = next {
                self.b.ins().jump(next, &[]);
                self.enter(next);
            }
        }
        self.set_form(Form::Once);
        for register in &instruction.writes {
            let variables: Option<Vec<Variable>> = (0..WIDTH)
                .map(|lane| self.lanes().written.get(&(*register, lane)).copied())
                .collect();
            // An operation that writes a register at all writes it in each thread.
            if let Some(variables) = variables {
                let values = variables
                    .into_iter()
                    .map(|variable| self.b.use_var(variable));
                let values: Vec<Value> = values.collect();
                self.gather(*register, &values);
            }
        }
    }

    /// Puts a value of each thread into a register.
    pub(super) fn gather(&mut self, register: RegId, values: &[Value]) {
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

    /// Puts what lies side by side in memory into a register of a group: `stride` apart.
    pub(super) fn load_row(&mut self, register: &Arg, ty: Type, from: Value, at: i32, stride: i64) {
        let Arg::Reg(register) = register else {
            return;
        };
        let held = self.register_types[register.0 as usize];
        let flags = MemFlags::trusted();
        let as_is = held.bits() == super::value_type(ty).bits();
        if let Kept::Vectors(variables) = self.lanes().kept(*register).clone()
            && as_is
            && stride == i64::from(held.bytes())
        {
            let vector = vector_of(held);
            for (chunk, variable) in variables.into_iter().enumerate() {
                let value = self
                    .b
                    .ins()
                    .load(vector, flags, from, at + 16 * chunk as i32);
                self.b.def_var(variable, value);
            }
            return;
        }
        let kind = if as_is { held } else { super::value_type(ty) };
        let values: Vec<Value> = (0..WIDTH as i32)
            .map(|lane| {
                let value = self
                    .b
                    .ins()
                    .load(kind, flags, from, at + lane * stride as i32);
                self.fit(value, held, super::is_signed(ty))
            })
            .collect();
        self.gather(*register, &values);
    }

    /// The other way round.
    pub(super) fn store_row(&mut self, register: &Arg, ty: Type, to: Value, at: i32, stride: i64) {
        let flags = MemFlags::trusted();
        let kind = super::value_type(ty);
        if let Arg::Reg(id) = register
            && let Kept::Vectors(variables) = self.lanes().kept(*id).clone()
            && self.register_types[id.0 as usize].bits() == kind.bits()
            && stride == i64::from(kind.bytes())
        {
            let wide = kind.bits() == 64;
            for chunk in 0..variables.len() {
                self.set_form(Form::Vector { chunk, wide });
                let value = self.held(*id);
                self.b.ins().store(flags, value, to, at + 16 * chunk as i32);
            }
            self.set_form(Form::Once);
            return;
        }
        for lane in 0..WIDTH {
            self.set_form(Form::Lane(lane));
            let value = self.read(register, ty);
            let at = at + lane as i32 * stride as i32;
            self.b.ins().store(flags, value, to, at);
        }
        self.set_form(Form::Once);
    }

    /// Extends the first thread's value, where that tells what the others' extend to.
    fn widen(&mut self, at: usize, instruction: &Instruction, from: RegId, signed: bool) {
        self.set_form(Form::Once);
        let stride = self.lanes().plan.class(from).stride().unwrap_or(0);
        let span = i64::from(stride as i32) * (WIDTH as i64 - 1);
        let value = self.read(&Arg::Reg(from), Type::B32);
        let value = match signed {
            true => self.b.ins().sextend(types::I64, value),
            false => self.b.ins().uextend(types::I64, value),
        };
        let last = self.b.ins().iadd_imm(value, span);
        let narrow = self.b.ins().ireduce(types::I32, last);
        let same = match signed {
            true => self.b.ins().sextend(types::I64, narrow),
            false => self.b.ins().uextend(types::I64, narrow),
        };
        let fits = self.b.ins().icmp(IntCC::Equal, last, same);
        let (next, cold) = (self.fresh_block(), self.cold_block());
        self.b.ins().brif(fits, next, &[], cold, &[]);
        self.enter(cold);
        let block = self.lanes().plan.control.graph.block_of[at];
        let here = self.stand(block);
        let stands = [here; WIDTH];
        self.part(&[block], &stands, None);
        self.enter(next);
        instruction.operation.lower(self);
    }

    /// A jump or an end.
    fn group_control(&mut self, at: usize, instruction: &Instruction) {
        self.set_form(Form::Once);
        let control = &self.lanes().plan.control;
        let block = control.graph.block_of[at];
        let (taken, falls) = match instruction.operation.flow() {
            Flow::Jump(label) => {
                let step = self
                    .body
                    .steps
                    .iter()
                    .position(|step| matches!(step, Step::Label(known) if *known == label));
                let step = step.expect("resolve has found every label");
                (
                    Some(self.lanes().plan.control.graph.block_of[step]),
                    block + 1,
                )
            }
            _ => (None, block + 1),
        };
        let is_trap = taken.is_none() && instruction.operation.faults();
        let go = |l: &mut Self| match taken {
            _ if is_trap => {
                instruction.operation.lower(l);
                // What follows is not reached.
                l.end_group();
            }
            Some(taken) => {
                let to = l.lanes().group_blocks[taken];
                l.b.ins().jump(to, &[]);
            }
            None => l.end_group(),
        };
        let Some((register, negated)) = instruction.guard else {
            go(self);
            let next = self.fresh_block();
            return self.enter(next);
        };
        let (then, next) = (self.fresh_block(), self.fresh_block());
        if self.lanes().plan.class(register) != Class::Varying {
            let guard = self.read(&Arg::Reg(register), Type::Pred);
            match negated {
                false => self.b.ins().brif(guard, then, &[], next, &[]),
                true => self.b.ins().brif(guard, next, &[], then, &[]),
            };
            self.enter(then);
            go(self);
            return self.enter(next);
        }
        let bits = self.mask_bits(register);
        let all = (1i64 << WIDTH) - 1;
        let (none, some) = match negated {
            false => (0, all),
            true => (all, 0),
        };
        let (other, cold) = (self.fresh_block(), self.cold_block());
        let is_none = self.b.ins().icmp_imm(IntCC::Equal, bits, none);
        self.b.ins().brif(is_none, next, &[], other, &[]);
        self.enter(other);
        let is_all = self.b.ins().icmp_imm(IntCC::Equal, bits, some);
        self.b.ins().brif(is_all, then, &[], cold, &[]);
        self.enter(then);
        go(self);
        self.enter(cold);
        let there = match taken {
            Some(taken) => self.stand(taken),
            // A thread that traps does so by itself; a block begins there.
            None if is_trap => self.stand(block),
            None => self.b.ins().iconst(types::I32, ENDED),
        };
        let here = self.stand(falls);
        let mut stands = [here; WIDTH];
        for (lane, stand) in stands.iter_mut().enumerate() {
            let bit = self.b.ins().band_imm(bits, 1 << lane);
            *stand = match negated {
                false => self.b.ins().select(bit, there, here),
                true => self.b.ins().select(bit, here, there),
            };
        }
        let mut blocks: SmallVec<[usize; 2]> = SmallVec::new();
        blocks.push(falls);
        blocks.extend(taken);
        if is_trap {
            blocks.push(block);
        }
        let join = self.lanes().plan.join(block);
        self.part(&blocks, &stands, join);
        self.enter(next);
    }

    /// A bit for each thread of a group, of a predicate that varies.
    fn mask_bits(&mut self, register: RegId) -> Value {
        let Kept::Vectors(variables) = self.lanes().kept(register).clone() else {
            unreachable!("predicates that vary are vectors");
        };
        let mut bits = None;
        for (chunk, variable) in variables.into_iter().enumerate() {
            let mask = self.b.use_var(variable);
            let more = self.b.ins().vhigh_bits(types::I32, mask);
            bits = Some(match bits {
                None => more,
                Some(bits) => {
                    let more = self.b.ins().ishl_imm(more, 4 * chunk as i64);
                    self.b.ins().bor(bits, more)
                }
            });
        }
        bits.expect("a group has a vector")
    }

    /// What says that a thread stands where a block begins.
    fn stand(&mut self, block: usize) -> Value {
        self.b.ins().iconst(types::I32, block as i64 + 1)
    }

    /// The threads of the group go on by themselves: each where it stands, one of `blocks`. The
    /// builder's block is filled.
    fn part(&mut self, blocks: &[usize], stands: &[Value; WIDTH], join: Option<usize>) {
        let mut live: Vec<RegId> = vec![];
        for block in blocks {
            self.thread_block(*block);
            live.extend(&self.lanes().plan.live[*block]);
        }
        live.sort_unstable_by_key(|register| register.0);
        live.dedup();
        for register in live {
            self.leave_register(register);
        }
        if let Some(join) = join {
            self.thread_block(join);
            self.lanes().joins[join] = true;
        }
        let slot = self.lanes().slot;
        for (lane, stand) in stands.iter().enumerate() {
            self.b
                .ins()
                .stack_store(*stand, slot, STANDS + 4 * lane as i32);
        }
        let join = join.map_or(NOWHERE, |join| join as i64 + 1);
        let join = self.b.ins().iconst(types::I32, join);
        self.b.ins().stack_store(join, slot, JOIN);
        let first = self.lanes().first;
        let first = self.b.use_var(first);
        self.b.ins().stack_store(first, slot, FIRST);
        if let Some(lane) = self.rounds_lane() {
            // Those that go on say where they come to; the others have ended.
            self.group_stands(i64::from(crate::grid::rounds::ENDED as i32));
            let lane = self.b.ins().ireduce(types::I32, lane);
            self.b.ins().stack_store(lane, slot, GROUP);
        }
        let before = self.b.ins().iconst(types::I32, NO_LANE);
        self.b.ins().stack_store(before, slot, LANE);
        let next = self.lanes().next;
        self.b.ins().jump(next, &[]);
    }

    /// Where the code of one thread begins for a block of the plan.
    fn thread_block(&mut self, block: usize) -> Block {
        if let Some(begins) = self.lanes().thread_blocks[block] {
            return begins;
        }
        let begins = self.b.create_block();
        self.lanes().thread_blocks[block] = Some(begins);
        begins
    }

    /// Where a register lies in the slot.
    fn place(&mut self, register: RegId) -> i32 {
        let bytes = self.element(register).bytes() as i32 * WIDTH as i32;
        let lanes = self.lanes();
        if let Some(place) = lanes.places.get(&register) {
            return *place;
        }
        let place = (lanes.size + 15) & !15;
        lanes.places.insert(register, place);
        lanes.size = place + bytes;
        place
    }

    /// The type of a thread's value in the slot: a predicate's has 32 bits, all set or none.
    fn element(&self, register: RegId) -> ValueType {
        match self.is_predicate(register) {
            true => types::I32,
            false => self.register_types[register.0 as usize],
        }
    }

    /// Leaves what a group has in a register for the code of one thread.
    fn leave_register(&mut self, register: RegId) {
        let (place, slot) = (self.place(register), self.lanes().slot);
        match self.lanes().kept(register).clone() {
            Kept::One(variable) => {
                let value = self.b.use_var(variable);
                let value = self.to_slot(register, value);
                self.b.ins().stack_store(value, slot, place);
            }
            Kept::Vectors(variables) => {
                for (chunk, variable) in variables.into_iter().enumerate() {
                    let value = self.b.use_var(variable);
                    self.b
                        .ins()
                        .stack_store(value, slot, place + 16 * chunk as i32);
                }
            }
            Kept::Each(variables) => {
                let bytes = self.element(register).bytes() as i32;
                for (lane, variable) in variables.into_iter().enumerate() {
                    let value = self.b.use_var(variable);
                    self.b
                        .ins()
                        .stack_store(value, slot, place + bytes * lane as i32);
                }
            }
        }
    }

    /// A thread's value as it lies in the slot.
    fn to_slot(&mut self, register: RegId, value: Value) -> Value {
        match self.is_predicate(register) {
            false => value,
            true => {
                let value = self.b.ins().uextend(types::I32, value);
                self.b.ins().ineg(value)
            }
        }
    }

    /// The other way round.
    fn from_slot(&mut self, register: RegId, value: Value) -> Value {
        match self.is_predicate(register) {
            false => value,
            true => self.b.ins().icmp_imm(IntCC::NotEqual, value, 0),
        }
    }

    /// In the code of one thread, where a step begins a block that threads of a group come to.
    pub(super) fn thread_begins(&mut self, at: usize) {
        let Some(lanes) = &self.lanes else {
            return;
        };
        let Some(block) = lanes.plan.control.begins(at) else {
            return;
        };
        let (begins, joins, slot, next) = (
            lanes.thread_blocks[block],
            lanes.joins[block],
            lanes.slot,
            lanes.next,
        );
        let Some(begins) = begins else {
            return;
        };
        if joins {
            // A thread of a group that joins here waits for the others.
            let join = self.b.ins().stack_load(types::I32, slot, JOIN);
            let stands = self.b.ins().icmp_imm(IntCC::Equal, join, block as i64 + 1);
            let stop = self.cold_block();
            self.b.ins().brif(stands, stop, &[], begins, &[]);
            self.enter(stop);
            let lane = self.b.ins().stack_load(types::I32, slot, LANE);
            let lane = self.b.ins().uextend(types::I64, lane);
            let base = self.b.ins().stack_addr(types::I64, slot, 0);
            for register in self.lanes().plan.live[block].clone() {
                if matches!(self.lanes().kept(register), Kept::One(_)) {
                    // Nothing between wrote it.
                    continue;
                }
                let place = self.place(register);
                let value = self.held(register);
                let value = self.to_slot(register, value);
                let bytes = self.element(register).bytes();
                let offset = self.b.ins().imul_imm(lane, i64::from(bytes));
                let to = self.b.ins().iadd(base, offset);
                self.b.ins().store(MemFlags::trusted(), value, to, place);
            }
            let offset = self.b.ins().imul_imm(lane, 4);
            let to = self.b.ins().iadd(base, offset);
            self.b.ins().store(MemFlags::trusted(), join, to, STANDS);
            self.b.ins().jump(next, &[]);
        } else {
            self.b.ins().jump(begins, &[]);
        }
        self.b.switch_to_block(begins);
        // Who begins here has checked nothing.
        self.group_bases.fill(None);
    }

    /// A thread has ended; the builder is where all that end come together. Goes on where the block
    /// has no groups.
    pub(super) fn thread_ends(&mut self) {
        let Some(lanes) = &self.lanes else {
            return;
        };
        let (slot, next) = (lanes.slot, lanes.next);
        let lane = self.b.ins().stack_load(types::I32, slot, LANE);
        let alone = self.b.ins().icmp_imm(IntCC::SignedLessThan, lane, 0);
        let (on, ended) = (self.fresh_block(), self.cold_block());
        self.b.ins().brif(alone, on, &[], ended, &[]);
        self.enter(ended);
        let lane = self.b.ins().uextend(types::I64, lane);
        let base = self.b.ins().stack_addr(types::I64, slot, 0);
        let offset = self.b.ins().imul_imm(lane, 4);
        let to = self.b.ins().iadd(base, offset);
        let over = self.b.ins().iconst(types::I32, ENDED);
        self.b.ins().store(MemFlags::trusted(), over, to, STANDS);
        self.b.ins().jump(next, &[]);
        self.enter(on);
    }

    /// The function has a vector form: what its lowering needs.
    pub(super) fn new_lanes(
        &mut self,
        plan: Plan,
        latch: Block,
        own_contexts: Option<(Value, Block)>,
    ) {
        let count = plan.control.graph.successors.len();
        self.lanes = Some(Lanes {
            form: Form::Thread,
            registers: vec![None; self.register_types.len()],
            written: HashMap::new(),
            halves: HashMap::new(),
            mask: None,
            masks_by_false: false,
            bases: vec![[None; WIDTH]; self.groups.groups.len()],
            group_blocks: (0..count).map(|_| self.b.create_block()).collect(),
            thread_blocks: vec![None; count],
            joins: vec![false; count],
            first: self.b.declare_var(types::I32),
            x: self.b.declare_var(types::I32),
            slot: slot(&mut self.b, 16),
            places: HashMap::new(),
            size: REGISTERS,
            next: self.cold_block(),
            parted: self.cold_block(),
            latch,
            own_contexts,
            plan,
        });
    }

    /// Opens the loop over a row of threads, in groups and one by one; lowers the groups. The
    /// builder is where a thread starts; what is answered is the head of its loop, which takes
    /// `%tid.x`, and where a row is over.
    pub(super) fn open_row(&mut self, plan: Plan) -> (Block, Block) {
        let head = self.b.create_block();
        let begins = self.b.append_block_param(head, types::I32);
        let latch = self.b.create_block();
        self.b.append_block_param(latch, types::I32);
        self.new_lanes(plan, latch, None);
        let (first, x) = (self.lanes().first, self.lanes().x);
        let (scalar, over) = (self.b.create_block(), self.b.create_block());
        let threads = self.entry(super::entry::Entry::Ntid(0));
        let odd = self.b.ins().band_imm(threads, WIDTH as i64 - 1);
        let zero = self.b.ins().iconst(types::I32, 0);
        self.alone();
        self.b
            .ins()
            .brif(odd, scalar, &[zero.into()], head, &[zero.into()]);

        self.b.switch_to_block(head);
        self.b.def_var(first, begins);
        self.lower_groups();
        self.b.switch_to_block(latch);
        let at = self.b.block_params(latch)[0];
        let at = self.b.ins().iadd_imm(at, WIDTH as i64);
        let threads = self.entry(super::entry::Entry::Ntid(0));
        let more = self.b.ins().icmp(IntCC::UnsignedLessThan, at, threads);
        self.b.ins().brif(more, head, &[at.into()], over, &[]);

        self.b.switch_to_block(scalar);
        let at = self.b.append_block_param(scalar, types::I32);
        self.b.def_var(x, at);
        self.group = None;
        (scalar, over)
    }

    /// What leads from thread to thread of a group that parted, and back to the group.
    pub(super) fn close_row(&mut self) {
        let Some(lanes) = &self.lanes else {
            return;
        };
        let (slot, next) = (lanes.slot, lanes.next);
        let flags = MemFlags::trusted();
        let (resume, over) = (self.cold_block(), self.cold_block());

        self.b.switch_to_block(next);
        let lane = self.b.ins().stack_load(types::I32, slot, LANE);
        let lane = self.b.ins().iadd_imm(lane, 1);
        self.b.ins().stack_store(lane, slot, LANE);
        let more = self
            .b
            .ins()
            .icmp_imm(IntCC::UnsignedLessThan, lane, WIDTH as i64);
        self.b.ins().brif(more, resume, &[], over, &[]);

        self.b.switch_to_block(resume);
        let join = self.b.ins().stack_load(types::I32, slot, JOIN);
        let wide = self.b.ins().uextend(types::I64, lane);
        let base = self.b.ins().stack_addr(types::I64, slot, 0);
        let offset = self.b.ins().imul_imm(wide, 4);
        let from = self.b.ins().iadd(base, offset);
        let stands = self.b.ins().load(types::I32, flags, from, STANDS);
        let waits = self.b.ins().icmp(IntCC::Equal, stands, join);
        let (goes, sets) = (self.cold_block(), self.cold_block());
        self.b.ins().brif(waits, next, &[], goes, &[]);
        self.b.switch_to_block(goes);
        let ended = self.b.ins().icmp_imm(IntCC::Equal, stands, ENDED);
        self.b.ins().brif(ended, next, &[], sets, &[]);
        self.b.switch_to_block(sets);
        let (parted, own_contexts) = (self.lanes().parted, self.lanes().own_contexts);
        match own_contexts {
            Some((_, enter)) => {
                let first = self.b.ins().stack_load(types::I32, slot, GROUP);
                let first = self.b.ins().uextend(types::I64, first);
                let lane = self.b.ins().iadd(first, wide);
                self.b.ins().jump(enter, &[lane.into()]);
            }
            None => {
                let first = self.b.ins().stack_load(types::I32, slot, FIRST);
                let x = self.b.ins().iadd(first, lane);
                let variable = self.lanes().x;
                self.b.def_var(variable, x);
                self.b.ins().jump(parted, &[]);
            }
        }

        self.b.switch_to_block(parted);
        let lane = self.b.ins().stack_load(types::I32, slot, LANE);
        let wide = self.b.ins().uextend(types::I64, lane);
        let base = self.b.ins().stack_addr(types::I64, slot, 0);
        let offset = self.b.ins().imul_imm(wide, 4);
        let from = self.b.ins().iadd(base, offset);
        let stands = self.b.ins().load(types::I32, flags, from, STANDS);
        let nobody = self.cold_block();
        let entries: Vec<(usize, Block)> = self
            .lanes()
            .thread_blocks
            .iter()
            .enumerate()
            .filter_map(|(block, begins)| begins.map(|begins| (block, begins)))
            .collect();
        let mut switch = Switch::new();
        let mut restores = vec![];
        for (block, begins) in &entries {
            let restore = self.cold_block();
            switch.set_entry(*block as u128 + 1, restore);
            restores.push((*block, *begins, restore));
        }
        switch.emit(&mut self.b, stands, nobody);
        for (block, begins, restore) in restores {
            self.b.switch_to_block(restore);
            for register in self.lanes().plan.live[block].clone() {
                let place = self.place(register);
                let ty = self.element(register);
                let class = self.lanes().plan.class(register);
                let value = match (self.lanes().kept(register).clone(), class) {
                    (Kept::One(_), class) => {
                        let value = self.b.ins().stack_load(ty, slot, place);
                        match class.stride() {
                            Some(0) | None => value,
                            Some(stride) => {
                                let lane = match ty {
                                    types::I64 => wide,
                                    _ => lane,
                                };
                                let stride = match ty {
                                    types::I64 => stride,
                                    _ => i64::from(stride as i32),
                                };
                                let more = self.b.ins().imul_imm(lane, stride);
                                self.b.ins().iadd(value, more)
                            }
                        }
                    }
                    _ => {
                        let offset = self.b.ins().imul_imm(wide, i64::from(ty.bytes()));
                        let from = self.b.ins().iadd(base, offset);
                        self.b.ins().load(ty, flags, from, place)
                    }
                };
                let value = self.from_slot(register, value);
                let variable = self.variable(register);
                self.b.def_var(variable, value);
            }
            self.b.ins().jump(begins, &[]);
        }
        // No thread stands anywhere else.
        self.b.switch_to_block(nobody);
        self.b.ins().jump(next, &[]);

        // Every thread has had its turn.
        self.b.switch_to_block(over);
        let join = self.b.ins().stack_load(types::I32, slot, JOIN);
        let wanted = self.b.ins().splat(types::I32X4, join);
        let ended = self.b.ins().iconst(types::I32, ENDED);
        let ended = self.b.ins().splat(types::I32X4, ended);
        let (mut all_join, mut all_ended) = (None, None);
        for chunk in 0..WIDTH as i32 / 4 {
            let stands = self
                .b
                .ins()
                .stack_load(types::I32X4, slot, STANDS + 16 * chunk);
            for (all, want) in [(&mut all_join, wanted), (&mut all_ended, ended)] {
                let same = self.b.ins().icmp(IntCC::Equal, stands, want);
                *all = Some(match *all {
                    None => same,
                    Some(before) => self.b.ins().band(before, same),
                });
            }
        }
        let [all_join, all_ended] = [all_join, all_ended].map(|all| {
            let all = all.expect("a group has a vector");
            let bits = self.b.ins().vhigh_bits(types::I32, all);
            self.b.ins().icmp_imm(IntCC::Equal, bits, 15)
        });
        let none = self.b.ins().iconst(types::I32, NO_LANE);
        let (together, apart, done, again) = (
            self.cold_block(),
            self.cold_block(),
            self.cold_block(),
            self.cold_block(),
        );
        self.b.ins().brif(all_join, together, &[], apart, &[]);
        self.b.switch_to_block(apart);
        self.b.ins().brif(all_ended, done, &[], again, &[]);
        // Some have ended: the others go on by themselves to their ends.
        self.b.switch_to_block(again);
        let nowhere = self.b.ins().iconst(types::I32, NOWHERE);
        self.b.ins().stack_store(nowhere, slot, JOIN);
        self.b.ins().stack_store(none, slot, LANE);
        self.b.ins().jump(next, &[]);
        self.b.switch_to_block(done);
        self.b.ins().stack_store(none, slot, LANE);
        self.back_to_latch();

        self.b.switch_to_block(together);
        self.b.ins().stack_store(none, slot, LANE);
        let nowhere = self.b.ins().iconst(types::I32, NOWHERE);
        self.b.ins().stack_store(nowhere, slot, JOIN);
        let joins: Vec<usize> = (0..self.lanes().joins.len())
            .filter(|block| self.lanes().joins[*block])
            .collect();
        let mut switch = Switch::new();
        let mut restores = vec![];
        for block in joins {
            let restore = self.cold_block();
            switch.set_entry(block as u128 + 1, restore);
            restores.push((block, restore));
        }
        let elsewhere = self.cold_block();
        switch.emit(&mut self.b, join, elsewhere);
        for (block, restore) in restores {
            self.b.switch_to_block(restore);
            let (first, at) = (
                self.lanes().first,
                self.b.ins().stack_load(types::I32, slot, FIRST),
            );
            self.b.def_var(first, at);
            for register in self.lanes().plan.live[block].clone() {
                self.take_register(register);
            }
            let begins = self.lanes().group_blocks[block];
            self.b.ins().jump(begins, &[]);
        }
        // Threads join nowhere else.
        self.b.switch_to_block(elsewhere);
        self.back_to_latch();
        let size = self.lanes().size as u32;
        self.b.func.sized_stack_slots[slot].size = size.next_multiple_of(16);
    }

    /// All threads of a group that parted have ended, or wait.
    fn back_to_latch(&mut self) {
        let (slot, latch) = (self.lanes().slot, self.lanes().latch);
        if self.lanes().own_contexts.is_some() {
            self.b.ins().jump(latch, &[]);
            return;
        }
        let first = self.b.ins().stack_load(types::I32, slot, FIRST);
        self.b.ins().jump(latch, &[first.into()]);
    }

    /// Takes what lies in the slot into a register of a group.
    fn take_register(&mut self, register: RegId) {
        let (place, slot) = (self.place(register), self.lanes().slot);
        let ty = self.element(register);
        match self.lanes().kept(register).clone() {
            Kept::One(variable) => {
                let value = self.b.ins().stack_load(ty, slot, place);
                let value = self.from_slot(register, value);
                self.b.def_var(variable, value);
            }
            Kept::Vectors(variables) => {
                for (chunk, variable) in variables.into_iter().enumerate() {
                    let at = place + 16 * chunk as i32;
                    let value = self.b.ins().stack_load(vector_of(ty), slot, at);
                    self.b.def_var(variable, value);
                }
            }
            Kept::Each(variables) => {
                for (lane, variable) in variables.into_iter().enumerate() {
                    let at = place + ty.bytes() as i32 * lane as i32;
                    let value = self.b.ins().stack_load(ty, slot, at);
                    self.b.def_var(variable, value);
                }
            }
        }
    }

    /// `%tid.x` of the thread that the operation is lowered for: of a group, its first.
    pub(super) fn group_tid(&mut self) -> Option<Value> {
        let lanes = self.lanes.as_ref()?;
        let (form, first, x) = (lanes.form, lanes.first, lanes.x);
        Some(match form {
            Form::Thread if lanes.own_contexts.is_some() => return None,
            Form::Thread => self.b.use_var(x),
            Form::Once | Form::Vector { .. } | Form::Lane(0) => self.b.use_var(first),
            Form::Lane(lane) => {
                let first = self.b.use_var(first);
                self.b.ins().iadd_imm(first, lane as i64)
            }
        })
    }

    /// A special register's value for the form being lowered.
    pub(super) fn special_in_vectors(&mut self, value: Value, is_tid: bool) -> Value {
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

fn little_endian() -> MemFlags {
    MemFlags::new().with_endianness(ir::Endianness::Little)
}
