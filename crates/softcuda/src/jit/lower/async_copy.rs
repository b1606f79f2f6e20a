//! `cp`: the asynchronous copies.
//!
//! A copy is done where it is started, which is one of the orders that PTX allows. So what waits
//! for copies to complete has nothing to wait for.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    InstBuilder, MemFlags, StackSlotData, StackSlotKind, Type as ValueType, Value, types,
};
use ptx::ast::{Immediate, Space, Type};

use super::lanes::Form;
use super::{Lower, PlainAccess, bulk, mbarrier};
use crate::jit::decode::{Arg, Operation, Reader, Refusal, Takes};
use crate::jit::runtime::copy;
use crate::jit::spmd::WIDTH;

/// `cp.async` of 4, 8 or 16 bytes.
#[derive(Debug)]
struct Copy {
    to: Arg,
    from: Arg,
    size: u32,
    part: Part,
}

/// How much of what is copied comes from the source; the rest is zeros.
#[derive(Debug)]
enum Part {
    Whole,
    /// So many bytes.
    Bytes(Arg),
    /// None where this is true.
    Unless(Arg),
}

/// What groups copies or waits for them.
#[derive(Debug)]
pub(super) struct Group;

/// Decodes every instruction of the family.
pub(super) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    if r.eat("reduce") {
        r.expect_any(&[("async", ())])?;
        r.expect_any(&[("bulk", ())])?;
        return bulk::decode_reduction(r);
    }
    r.expect_any(&[("async", ())])?;
    match r.peek() {
        Some("bulk") => {
            r.eat("bulk");
            bulk::decode(r)
        }
        Some("ca" | "cg") => decode_copy(r),
        Some("mbarrier") => mbarrier::decode_arrival_of_copies(r),
        Some("commit_group" | "wait_all") => {
            r.eat_any(&[("commit_group", ()), ("wait_all", ())]);
            let [] = r.finish()?;
            Ok(Box::new(Group))
        }
        Some("wait_group") => {
            r.eat("wait_group");
            let [groups] = r.finish()?;
            literal(r, &groups)?;
            Ok(Box::new(Group))
        }
        _ => Err(r.unknown_modifier()),
    }
}

/// The value of an operand that must be an integer literal.
pub(super) fn literal(r: &Reader<'_>, arg: &Arg) -> Result<u64, Refusal> {
    match arg {
        Arg::Imm(Immediate::Int { bits, .. }) => Ok(*bits),
        _ => Err(r.invalid("takes an integer constant".into())),
    }
}

/// An operand that must be an address in brackets.
pub(super) fn bracketed(r: &Reader<'_>, arg: &Arg) -> Result<Arg, Refusal> {
    match arg {
        Arg::Address(..) => Ok(arg.clone()),
        _ => Err(r.invalid("takes an address in brackets".into())),
    }
}

/// The hints, and whether they ask for a policy.
const HINTS: &[(&str, bool)] = &[
    ("L2::64B", false),
    ("L2::128B", false),
    ("L2::256B", false),
    ("L2::cache_hint", true),
];

/// Takes the next modifiers as long as they are hints to caches; says whether one of them asks for
/// a cache policy as the last operand.
pub(super) fn cache_hints(r: &mut Reader<'_>) -> bool {
    let mut policy = false;
    while let Some(asks) = r.eat_any(HINTS) {
        policy |= asks;
    }
    policy
}

/// The operands but for a cache policy, where there is one.
pub(super) fn without_policy<'a>(r: &Reader<'a>, policy: bool) -> Result<&'a [Arg], Refusal> {
    match (policy, r.args) {
        (false, args) => Ok(args),
        (true, [args @ .., Arg::Reg(id)]) if r.registers[id.0 as usize].size() == 8 => Ok(args),
        (true, [args @ .., Arg::Imm(_)]) => Ok(args),
        (true, _) => Err(r.invalid("takes a cache policy of 64 bits".into())),
    }
}

/// `cp.async.ca.shared.global{hints} [to], [from], size{, bytes or ignore}{, policy}`, `.cg`
/// likewise
fn decode_copy(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let whole_lines = r.expect_any(&[("ca", false), ("cg", true)])?;
    r.expect_any(&[("shared", ()), ("shared::cta", ())])?;
    r.expect_any(&[("global", ())])?;
    let policy = cache_hints(r);
    r.end()?;
    let (to, from, size, part) = match without_policy(r, policy)? {
        [to, from, size] => (to, from, size, Part::Whole),
        [to, from, size, part] => (to, from, size, part_of(r, part)?),
        _ => return Err(r.invalid("takes two addresses and a size".into())),
    };
    let size = literal(r, size)?;
    if !(size == 16 || !whole_lines && matches!(size, 4 | 8)) {
        return Err(r.invalid(format!("cannot copy {size} bytes")));
    }
    // Compilers name the size twice where nothing is left out.
    let part = match part {
        Part::Bytes(Arg::Imm(Immediate::Int { bits, .. })) if bits == size => Part::Whole,
        Part::Bytes(Arg::Imm(Immediate::Int { bits, .. })) if bits > size => {
            return Err(r.invalid(format!("takes {size} bytes of the source at most")));
        }
        part => part,
    };
    Ok(Box::new(Copy {
        to: bracketed(r, to)?,
        from: bracketed(r, from)?,
        size: size as u32,
        part,
    }))
}

fn part_of(r: &Reader<'_>, arg: &Arg) -> Result<Part, Refusal> {
    let is_predicate =
        |arg: &Arg| matches!(arg, Arg::Reg(id) if r.registers[id.0 as usize] == Type::Pred);
    match arg {
        Arg::Not(inner) if is_predicate(inner) => Ok(Part::Unless(arg.clone())),
        arg if is_predicate(arg) => Ok(Part::Unless(arg.clone())),
        Arg::Reg(_) | Arg::Imm(Immediate::Int { .. }) => {
            r.check(&[(arg, Takes::From(Type::U32))])?;
            Ok(Part::Bytes(arg.clone()))
        }
        _ => Err(r.invalid("takes a number of bytes or a predicate".into())),
    }
}

impl Copy {
    /// The value that is copied.
    fn value(&self) -> ValueType {
        match self.size {
            4 => types::I32,
            8 => types::I64,
            _ => types::I64X2,
        }
    }

    /// The host address of the source, once it is checked.
    fn source(&self, l: &mut Lower<'_>) -> Value {
        l.checked_address(&self.from, Some(Space::Global), self.size, false)
    }

    /// The host address of the destination, once it is checked.
    fn destination(&self, l: &mut Lower<'_>) -> Value {
        l.checked_alone(&self.to, Some(Space::Shared), self.size, true)
    }

    /// For each thread of a group, a host address and how far from there its destination is, once
    /// all are checked. Threads fault in their order, each at its source first: so where a
    /// destination is wrong, a function goes through the sources too.
    fn destinations(&self, l: &mut Lower<'_>, stride: i64) -> Vec<(Value, i32)> {
        let (size, apart) = (self.size, l.row_stride(&self.to, self.size));
        let (mut places, mut host, mut inside) = (vec![], vec![], vec![]);
        if let Some(apart) = apart {
            let first = l.address(&self.to);
            let more = (WIDTH as i64 - 1) * apart;
            let (to, all) = l.shared_access(first, size, more as u32);
            places.extend((0..WIDTH as i64).map(|lane| (first, lane * apart)));
            host.extend((0..WIDTH as i32).map(|lane| (to, lane * apart as i32)));
            inside.push(all);
        } else {
            for lane in 0..WIDTH {
                l.set_form(Form::Lane(lane));
                let place = l.address(&self.to);
                let (to, is) = l.shared_access(place, size, 0);
                places.push((place, 0));
                host.push((to, 0));
                inside.push(is);
            }
            l.set_form(Form::Once);
        }
        let all = inside.into_iter().reduce(|all, is| l.b.ins().band(all, is));
        let all = all.expect("a group has threads");
        let (next, wrong) = (l.fresh_block(), l.cold_block());
        l.b.ins().brif(all, next, &[], wrong, &[]);
        l.enter(wrong);
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, 8 * WIDTH as u32, 3);
        let slot = l.b.create_sized_stack_slot(data);
        for (lane, (place, more)) in (0..).zip(places) {
            let place = l.b.ins().iadd_imm(place, more);
            l.b.ins().stack_store(place, slot, 8 * lane);
        }
        let from = l.address(&self.from);
        let stride = l.b.ins().iconst(types::I64, stride);
        let to = l.b.ins().stack_addr(types::I64, slot, 0);
        let size = l.b.ins().iconst(types::I32, i64::from(size));
        let args = [l.thread, from, stride, to, size];
        l.cold_call(&copy::STATUS_OF_COPIES, &args, next);
        l.enter(next);
        host
    }

    fn move_value(&self, l: &mut Lower<'_>, from: Value, to: Value) {
        let flags = MemFlags::trusted();
        let value = l.b.ins().load(self.value(), flags, from, 0);
        l.b.ins().store(flags, value, to, 0);
    }

    fn whole(&self, l: &mut Lower<'_>) {
        let from = self.source(l);
        let to = self.destination(l);
        self.move_value(l, from, to);
    }

    /// All of the destination is zeros.
    fn zeros(&self, l: &mut Lower<'_>) {
        let to = self.destination(l);
        let zero = l.b.ins().iconst(types::I64, 0);
        for at in (0..self.size as i32).step_by(8) {
            let zero = match self.size {
                4 => l.b.ins().ireduce(types::I32, zero),
                _ => zero,
            };
            l.b.ins().store(MemFlags::trusted(), zero, to, at);
        }
    }
}

impl Operation for Copy {
    fn lower(&self, l: &mut Lower<'_>) {
        match &self.part {
            Part::Whole => self.whole(l),
            Part::Unless(ignore) => {
                let ignore = l.read(ignore, Type::Pred);
                let (zeros, copies, next) = (l.fresh_block(), l.fresh_block(), l.fresh_block());
                l.b.ins().brif(ignore, zeros, &[], copies, &[]);
                l.enter(zeros);
                self.zeros(l);
                l.b.ins().jump(next, &[]);
                l.enter(copies);
                self.whole(l);
                l.b.ins().jump(next, &[]);
                l.enter(next);
            }
            Part::Bytes(bytes) => {
                let bytes = l.read(bytes, Type::U32);
                let (part, zeros) = (l.fresh_block(), l.fresh_block());
                let (some, copies, next) = (l.fresh_block(), l.fresh_block(), l.fresh_block());
                let all =
                    l.b.ins()
                        .icmp_imm(IntCC::Equal, bytes, i64::from(self.size));
                l.b.ins().brif(all, copies, &[], part, &[]);
                l.enter(copies);
                self.whole(l);
                l.b.ins().jump(next, &[]);
                l.enter(part);
                l.b.ins().brif(bytes, some, &[], zeros, &[]);
                l.enter(zeros);
                self.zeros(l);
                l.b.ins().jump(next, &[]);
                l.enter(some);
                let from = l.address(&self.from);
                let to = self.destination(l);
                let (thread, block) = (l.thread, l.block);
                let size = l.b.ins().iconst(types::I32, i64::from(self.size));
                let args = [thread, block, to, from, size, bytes];
                let status = l.call_value(&copy::COPY_PART, &args);
                l.check_status(status);
                l.b.ins().jump(next, &[]);
                l.enter(next);
            }
        }
    }

    /// The source is checked as that of a load; the destination by itself.
    fn plain_access(&self) -> Option<PlainAccess> {
        match (&self.from, &self.part) {
            (Arg::Address(base, offset), Part::Whole) => match **base {
                Arg::Reg(base) => Some(PlainAccess {
                    base,
                    offset: *offset,
                    space: Some(Space::Global),
                    size: self.size,
                    write: false,
                }),
                _ => None,
            },
            _ => None,
        }
    }

    fn lower_row(&self, l: &mut Lower<'_>, stride: i64) {
        let destinations = self.destinations(l, stride);
        let from = l.row_address(&self.from, Some(Space::Global), self.size, false, stride);
        let flags = MemFlags::trusted();
        for (lane, (to, at)) in (0..).zip(destinations) {
            let value =
                l.b.ins()
                    .load(self.value(), flags, from, lane * stride as i32);
            l.b.ins().store(flags, value, to, at);
        }
    }
}

impl Operation for Group {
    fn lower(&self, _: &mut Lower<'_>) {}

    fn pure(&self) -> bool {
        true
    }
}

impl Lower<'_> {
    /// The host address of an access that is not the first of its step: it has a check of its own.
    pub(super) fn checked_alone(
        &mut self,
        address: &Arg,
        space: Option<Space>,
        size: u32,
        write: bool,
    ) -> Value {
        let (group, step) = (
            self.group.take(),
            std::mem::replace(&mut self.step, u32::MAX),
        );
        let value = self.checked_address(address, space, size, write);
        (self.group, self.step) = (group, step);
        value
    }
}
