//! `atom` and `red`.
//!
//! Integers of 32 and 64 bits are atomic instructions of the processor; the rest are calls. All are
//! sequentially consistent, so `.sem` and `.scope` say nothing more. A vector is atomic element by
//! element, as PTX has it.
//!
//! In shared memory, most are a load and a store: all threads that share it run on one thread of
//! the host, and none has its turn in between.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AtomicRmwOp, InstBuilder, MemFlags, StackSlotData, StackSlotKind, Value, types,
};
use ptx::ast::{Space, Type};

use super::cluster::Reach;
use super::{Lower, bulk, float_value, value_type};
use crate::grid::atomic::{self, BF16, HalfOp};
use crate::grid::context::{BlockContext, Sums};
use crate::jit::decode::{Arg, MemoryPlace, Operation, Reader, Refusal, Swap};
use crate::jit::resolve::changes::Ways;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Add,
    Exch,
    Cas,
    Min,
    Max,
    Inc,
    Dec,
    And,
    Or,
    Xor,
}

#[derive(Debug)]
struct Atomic {
    op: Op,
    ty: Type,
    reach: Reach,
    /// One, or the elements of a vector; none for `red`.
    destinations: Vec<Arg>,
    address: Arg,
    values: Vec<Arg>,
    /// What `cas` stores.
    new: Option<Arg>,
    /// The result may decide how long a loop waits.
    polls: bool,
    /// Nothing reads the result.
    unread: bool,
    /// It puts what its thread does before or after it in order, or host threads look at it.
    orders: bool,
}

const OPS: &[(&str, Op)] = &[
    ("add", Op::Add),
    ("exch", Op::Exch),
    ("cas", Op::Cas),
    ("min", Op::Min),
    ("max", Op::Max),
    ("inc", Op::Inc),
    ("dec", Op::Dec),
    ("and", Op::And),
    ("or", Op::Or),
    ("xor", Op::Xor),
];

/// `atom{.sem}{.scope}{.space}.op{.noftz}{.level::cache_hint}{.vec}.type d, [a], b{, c}{, policy}`,
/// and `red` without `d`.
pub(super) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let fetches = r.opcode == "atom";
    if !fetches && r.peek() == Some("async") {
        return bulk::decode_red(r);
    }
    // Compilers and generations of the ISA order these differently.
    let (mut op, mut reach, mut vector, mut orders) = (None, Reach::Own(None), 1, false);
    while r.peek().is_some_and(|name| Type::from_name(name).is_none()) {
        if let Some(found) = r.eat_any(OPS).filter(|_| op.is_none()) {
            op = Some(found);
        } else if let found @ (Reach::Own(Some(_)) | Reach::Cluster) = Reach::of(r) {
            reach = found;
        } else if let Some(found) = r.eat_any(&[("v2", 2), ("v4", 4), ("v8", 8)]) {
            vector = found;
        } else if let Some(found) = r.eat_any(&[
            ("relaxed", false),
            ("acquire", true),
            ("release", true),
            ("acq_rel", true),
            ("cta", false),
            ("cluster", false),
            ("gpu", false),
            ("sys", true),
            ("noftz", false),
            ("L2::cache_hint", false),
        ]) {
            orders |= found;
        } else {
            return Err(r.unknown_modifier());
        }
    }
    let ty = r.ty()?;
    r.end()?;
    let Some(op) = op else {
        return Err(r.invalid("names no operation".into()));
    };
    if !fetches && matches!(op, Op::Exch | Op::Cas) {
        return Err(r.invalid("takes no such operation".into()));
    }
    if !matches!(reach.space(), None | Some(Space::Global | Space::Shared)) {
        return Err(r.invalid("works on global and shared memory".into()));
    }
    let halves = matches!(ty, Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2);
    let fits = match op {
        Op::Add => {
            matches!(
                ty,
                Type::U32 | Type::S32 | Type::U64 | Type::S64 | Type::F32 | Type::F64
            ) || halves
        }
        Op::Min | Op::Max => matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::S64) || halves,
        Op::Inc | Op::Dec => ty == Type::U32,
        Op::And | Op::Or | Op::Xor => matches!(ty, Type::B32 | Type::B64),
        Op::Exch => matches!(ty, Type::B32 | Type::B64 | Type::B128),
        Op::Cas => matches!(ty, Type::B16 | Type::B32 | Type::B64 | Type::B128),
    };
    // Eight elements of 16 bits, or four of 32.
    let most = if halves || ty == Type::F32 {
        16 / ty.size() as usize
    } else {
        1
    };
    if !fits || vector > most {
        return Err(r.invalid(format!("does not take .{}", ty.name())));
    }
    let (destination, rest) = match (fetches, r.args) {
        (true, [destination, rest @ ..]) => (Some(destination), rest),
        (_, rest) => (None, rest),
    };
    let (address, value, new) = match (op, rest) {
        (Op::Cas, [address, compare, new]) => (address, compare, Some(new.clone())),
        (Op::Cas, _) => return Err(r.invalid("takes a value to compare and a new one".into())),
        // The cache policy is a hint.
        (_, [address, value] | [address, value, _]) => (address, value, None),
        _ => return Err(r.invalid("takes an address and a value".into())),
    };
    if !matches!(address, Arg::Address(..)) {
        return Err(r.invalid("takes an address in brackets".into()));
    }
    let elements = |arg: &Arg| match arg {
        Arg::Vector(elements) if elements.len() == vector => Ok(elements.clone()),
        Arg::Sink if vector > 1 => Ok(vec![Arg::Sink; vector]),
        arg if vector == 1 && !matches!(arg, Arg::Vector(_)) => Ok(vec![arg.clone()]),
        _ => Err(r.invalid("the vector has not as many elements as the instruction".into())),
    };
    let destinations = destination.map(elements).transpose()?.unwrap_or_default();
    let values = elements(value)?;
    // What may leave memory as it is serves to read it, and so to wait for another thread. What
    // always changes it does where it also goes another way.
    let ways = Ways::of(r.modifiers, value);
    let used = destinations.iter().any(|arg| match arg {
        // Compilers write `atom` with a register that nothing reads.
        Arg::Reg(id) => r.tables.mentions[id.0 as usize] > 1,
        Arg::Sink => false,
        _ => true,
    });
    Ok(Box::new(Atomic {
        unread: !used,
        orders,
        polls: used && (ways == Ways::ANY || ways.lacks(r.tables.changes.at(address))),
        op,
        ty,
        reach,
        destinations,
        address: address.clone(),
        values,
        new,
    }))
}

impl Operation for Atomic {
    fn lower(&self, l: &mut Lower<'_>) {
        if self.polls {
            l.poll();
        }
        let values: Vec<Value> = self
            .values
            .iter()
            .map(|value| l.read(value, self.ty))
            .collect();
        let new = self.new.as_ref().map(|new| l.read(new, self.ty));
        let size = self.ty.size() * values.len() as u32;
        if let ([value], true) = (&values[..], l.unit.sums && self.is_sum()) {
            l.sum = true;
            let address = l.reached_address(&self.address, self.reach, size, true);
            l.sum = false;
            return self.add_aside(l, address, *value);
        }
        let address = l.reached_address(&self.address, self.reach, size, true);
        if let [value] = values[..]
            && l.put_in_batch(address, value)
        {
            return;
        }
        let mut old = Vec::new();
        for (n, value) in values.into_iter().enumerate() {
            let offset = i64::from(self.ty.size()) * n as i64;
            let address = match offset {
                0 => address,
                offset => l.b.ins().iadd_imm(address, offset),
            };
            old.push(self.element(l, address, value, new));
        }
        // All are done before any is written: the address or a value may be in one of them.
        for (destination, old) in self.destinations.iter().zip(old) {
            l.write(destination, self.ty, old);
        }
    }

    fn polls(&self) -> bool {
        self.polls
    }

    fn reaches(&self) -> bool {
        self.reach == Reach::Cluster
    }

    fn counts(&self) -> bool {
        matches!(self.op, Op::Add | Op::Inc) && !self.destinations.is_empty()
    }

    fn tells_nobody(&self) -> bool {
        !self.orders && (self.unread || self.reach.space() == Some(Space::Shared))
    }

    fn adds_floats(&self) -> Option<Type> {
        let float = matches!(self.ty, Type::F32 | Type::F64) && self.values.len() == 1;
        let adds = self.op == Op::Add && float && self.is_of_host() && self.unread;
        adds.then_some(self.ty)
    }

    fn swap(&self) -> Option<Swap<'_>> {
        let ([Arg::Reg(old)], [Arg::Reg(expected)]) = (&self.destinations[..], &self.values[..])
        else {
            return None;
        };
        let words = matches!(self.ty, Type::B32 | Type::B64) && self.reach != Reach::Cluster;
        (self.op == Op::Cas && words).then_some(Swap {
            place: MemoryPlace {
                address: &self.address,
                shared: self.reach.space() == Some(Space::Shared),
                size: self.ty.size(),
            },
            old: *old,
            expected: *expected,
        })
    }
}

impl Atomic {
    /// Whether it adds an integer to memory that blocks share, and does nothing else.
    fn is_sum(&self) -> bool {
        let integer = matches!(self.ty, Type::U32 | Type::S32 | Type::U64 | Type::S64);
        self.op == Op::Add && integer && self.is_of_host() && self.unread && !self.orders
    }

    /// Whether its address is the host's.
    fn is_of_host(&self) -> bool {
        matches!(self.reach, Reach::Own(None | Some(Space::Global)))
    }

    /// The operation on one element: its old value.
    fn element(
        &self,
        l: &mut Lower<'_>,
        address: Value,
        value: Value,
        new: Option<Value>,
    ) -> Value {
        if self.reach.space() == Some(Space::Shared)
            && let Some(old) = self.unshared(l, address, value, new)
        {
            return old;
        }
        let flags = MemFlags::trusted();
        let signed = matches!(self.ty, Type::S32 | Type::S64);
        let rmw = match (self.op, self.ty) {
            (Op::Add, Type::F32) => {
                return l.call_value(&atomic::ATOM_ADD_F32, &[l.block, address, value]);
            }
            (Op::Add, Type::F64) => return l.call_value(&atomic::ATOM_ADD_F64, &[address, value]),
            (Op::Add | Op::Min | Op::Max, Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2) => {
                return self.half(l, address, value);
            }
            (Op::Exch | Op::Cas, Type::B128) => return wide(l, address, value, new),
            (Op::Inc, _) => return l.call_value(&atomic::ATOM_INC, &[address, value]),
            (Op::Dec, _) => return l.call_value(&atomic::ATOM_DEC, &[address, value]),
            (Op::Cas, _) => {
                let new = new.expect("cas was decoded with a new value");
                return l.b.ins().atomic_cas(flags, address, value, new);
            }
            (Op::Add, _) => AtomicRmwOp::Add,
            (Op::Exch, _) => AtomicRmwOp::Xchg,
            (Op::And, _) => AtomicRmwOp::And,
            (Op::Or, _) => AtomicRmwOp::Or,
            (Op::Xor, _) => AtomicRmwOp::Xor,
            (Op::Min, _) if signed => AtomicRmwOp::Smin,
            (Op::Min, _) => AtomicRmwOp::Umin,
            (Op::Max, _) if signed => AtomicRmwOp::Smax,
            (Op::Max, _) => AtomicRmwOp::Umax,
        };
        l.b.ins()
            .atomic_rmw(value_type(self.ty), flags, rmw, address, value)
    }

    /// A sum: in the copy of the array that threads of this worker add to, if it is in the array.
    fn add_aside(&self, l: &mut Lower<'_>, address: Value, value: Value) {
        let flags = MemFlags::trusted();
        let block = l.block;
        let mut field = |offset: usize| {
            let at = offset_of!(BlockContext, sums) + offset;
            l.b.ins().load(types::I64, flags, block, at as i32)
        };
        let base = field(offset_of!(Sums, base));
        let size = field(offset_of!(Sums, size));
        let aside = field(offset_of!(Sums, aside));
        let distance = l.b.ins().isub(address, base);
        let (here, there, next) = (l.fresh_block(), l.fresh_block(), l.fresh_block());
        let inside = l.b.ins().icmp(IntCC::UnsignedLessThan, distance, size);
        l.b.ins().brif(inside, here, &[], there, &[]);
        l.enter(here);
        let at = l.b.ins().iadd(aside, distance);
        let old = l.b.ins().load(value_type(self.ty), flags, at, 0);
        let sum = l.b.ins().iadd(old, value);
        l.b.ins().store(flags, sum, at, 0);
        l.b.ins().jump(next, &[]);
        l.enter(there);
        self.element(l, address, value, None);
        l.b.ins().jump(next, &[]);
        l.enter(next);
    }

    /// The same where no other thread of the host comes: `None` for types that take a call.
    fn unshared(
        &self,
        l: &mut Lower<'_>,
        address: Value,
        value: Value,
        new: Option<Value>,
    ) -> Option<Value> {
        let flags = MemFlags::trusted();
        let ty = match (self.op, self.ty) {
            (Op::Add, Type::F32) => types::F32,
            (_, Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2 | Type::F64 | Type::B128) => {
                return None;
            }
            _ => value_type(self.ty),
        };
        let old = l.b.ins().load(ty, flags, address, 0);
        let signed = matches!(self.ty, Type::S32 | Type::S64);
        let result = match self.op {
            Op::Add if ty == types::F32 => {
                let sum = l.b.ins().fadd(old, value);
                float_value::canonical_f32(l, sum)
            }
            Op::Add => l.b.ins().iadd(old, value),
            Op::Exch => value,
            Op::And => l.b.ins().band(old, value),
            Op::Or => l.b.ins().bor(old, value),
            Op::Xor => l.b.ins().bxor(old, value),
            Op::Min if signed => l.b.ins().smin(old, value),
            Op::Min => l.b.ins().umin(old, value),
            Op::Max if signed => l.b.ins().smax(old, value),
            Op::Max => l.b.ins().umax(old, value),
            Op::Cas => {
                let same = l.b.ins().icmp(IntCC::Equal, old, value);
                l.b.ins().select(same, new?, old)
            }
            Op::Inc => {
                let more = l.b.ins().iadd_imm(old, 1);
                let zero = l.zero(ty);
                let below = l.b.ins().icmp(IntCC::UnsignedLessThan, old, value);
                l.b.ins().select(below, more, zero)
            }
            Op::Dec => {
                // Less than zero is more than any limit.
                let less = l.b.ins().iadd_imm(old, -1);
                let below = l.b.ins().icmp(IntCC::UnsignedLessThan, less, value);
                l.b.ins().select(below, less, value)
            }
        };
        l.b.ins().store(flags, result, address, 0);
        Some(old)
    }

    fn half(&self, l: &mut Lower<'_>, address: Value, value: Value) -> Value {
        let op = match self.op {
            Op::Min => HalfOp::Min,
            Op::Max => HalfOp::Max,
            _ => HalfOp::Add,
        } as u32;
        let brain = matches!(self.ty, Type::Bf16 | Type::Bf16x2);
        let op =
            l.b.ins()
                .iconst(types::I32, i64::from(op | if brain { BF16 } else { 0 }));
        let value = l.fit(value, types::I32, false);
        let function = match self.ty {
            Type::F16 | Type::Bf16 => &atomic::ATOM_HALF,
            _ => &atomic::ATOM_HALF2,
        };
        let old = l.call_value(function, &[address, value, op]);
        l.fit(old, value_type(self.ty), false)
    }
}

/// `exch` and `cas` of 128 bits.
fn wide(l: &mut Lower<'_>, address: Value, value: Value, new: Option<Value>) -> Value {
    let slot =
        l.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 16, 4));
    let old = l.b.ins().stack_addr(types::I64, slot, 0);
    let (low, high) = l.b.ins().isplit(value);
    match new {
        None => l.call(&atomic::ATOM_EXCH_B128, &[address, low, high, old]),
        Some(new) => {
            let (new_low, new_high) = l.b.ins().isplit(new);
            l.call(
                &atomic::ATOM_CAS_B128,
                &[address, low, high, new_low, new_high, old],
            )
        }
    };
    let low = l.b.ins().stack_load(types::I64, slot, 0);
    let high = l.b.ins().stack_load(types::I64, slot, 8);
    l.b.ins().iconcat(low, high)
}
