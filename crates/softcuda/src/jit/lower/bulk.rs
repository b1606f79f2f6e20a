//! `cp.async.bulk`, `cp.reduce.async.bulk`, `st.async` and `red.async`.

use cranelift_codegen::ir::{InstBuilder, MemFlags, Value, types};
use ptx::ast::{Immediate, Type};

use super::async_copy::{Group, bracketed, cache_hints, literal, without_policy};
use super::cluster::Reach;
use super::{Lower, tensor};
use crate::grid::bulk::{BULK_COPY, BYTES_COME, Place, RED_ASYNC, how};
use crate::grid::reduce::{Element, Reduction};
use crate::jit::decode::{Arg, Operation, Reader, Refusal, Takes};

/// A copy or reduction of bytes.
#[derive(Debug)]
struct Bulk {
    how: u32,
    to: Arg,
    from: Arg,
    size: Arg,
    object: Option<Arg>,
    mask: Option<Arg>,
}

/// What is checked and then forgotten: a prefetch.
#[derive(Debug)]
struct Prefetch;

const REDUCTIONS: &[(&str, Reduction)] = &[
    ("add", Reduction::Add),
    ("min", Reduction::Min),
    ("max", Reduction::Max),
    ("inc", Reduction::Inc),
    ("dec", Reduction::Dec),
    ("and", Reduction::And),
    ("or", Reduction::Or),
    ("xor", Reduction::Xor),
];

/// What follows the spaces of a copy.
pub(super) struct Manner {
    /// It completes at an `mbarrier`; otherwise in a group.
    pub completes: bool,
    pub multicast: bool,
    pub policy: bool,
}

impl Manner {
    /// `.mbarrier::complete_tx::bytes{.multicast::cluster}` or `.bulk_group`, and hints.
    pub fn of(r: &mut Reader<'_>) -> Result<Manner, Refusal> {
        let completes = r.expect_any(&[
            ("mbarrier::complete_tx::bytes", true),
            ("bulk_group", false),
        ])?;
        Ok(Manner {
            completes,
            multicast: completes && r.eat("multicast::cluster"),
            policy: cache_hints(r),
        })
    }
}

/// `.global`, `.shared::cta` or `.shared::cluster`
pub(super) fn place(r: &mut Reader<'_>) -> Result<Place, Refusal> {
    r.expect_any(&[
        ("global", Place::Global),
        ("shared::cta", Place::Block),
        ("shared::cluster", Place::Cluster),
    ])
}

/// Behind `cp.async.bulk`.
pub(super) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    if r.eat("commit_group") {
        let [] = r.finish()?;
        return Ok(Box::new(Group));
    }
    if r.eat("wait_group") {
        r.eat("read");
        let [groups] = r.finish()?;
        literal(r, &groups)?;
        return Ok(Box::new(Group));
    }
    if r.eat("prefetch") {
        if r.eat("tensor") {
            return tensor::decode_prefetch(r);
        }
        r.expect_any(&[("L2", ())])?;
        r.expect_any(&[("global", ())])?;
        let policy = cache_hints(r);
        r.end()?;
        let [from, size] = without_policy(r, policy)? else {
            return Err(r.invalid("takes an address and a size".into()));
        };
        check_size(r, size)?;
        bracketed(r, from)?;
        return Ok(Box::new(Prefetch));
    }
    if r.eat("tensor") {
        return tensor::decode_copy(r);
    }
    let (to, from) = (place(r)?, place(r)?);
    let manner = Manner::of(r)?;
    let fits = match (to, from) {
        (Place::Cluster, Place::Global) => manner.completes,
        (Place::Cluster, Place::Block) | (Place::Block, Place::Global) => {
            manner.completes && !manner.multicast
        }
        (Place::Global, Place::Block) => !manner.completes,
        _ => false,
    };
    if !fits {
        return Err(r.invalid("does not copy so between these state spaces".into()));
    }
    finish(r, to, from, &manner, 0)
}

/// Behind `cp.reduce.async.bulk`.
pub(super) fn decode_reduction(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    if r.eat("tensor") {
        return tensor::decode_reduction(r);
    }
    let (to, from) = (place(r)?, place(r)?);
    let manner = Manner::of(r)?;
    let reduction = r.expect_any(REDUCTIONS)?;
    let keeps_subnormals = r.eat("noftz");
    let element = element(r, reduction)?;
    let halves = matches!(element, Element::F16 | Element::Bf16);
    if keeps_subnormals != (halves && reduction == Reduction::Add) {
        return Err(r.invalid("adds halves with .noftz, and nothing else".into()));
    }
    let fits = match (to, from) {
        (Place::Global, Place::Block) => !manner.completes,
        (Place::Cluster, Place::Block) => {
            let small = match reduction {
                Reduction::Add => !matches!(element, Element::F32 | Element::F64) && !halves,
                _ => matches!(element, Element::U32 | Element::S32),
            };
            manner.completes && !manner.multicast && small
        }
        _ => false,
    };
    if !fits {
        return Err(r.invalid("does not reduce so between these state spaces".into()));
    }
    let what =
        how::REDUCES | (reduction as u32) << how::REDUCTION | (element as u32) << how::ELEMENT;
    finish(r, to, from, &manner, what)
}

/// `.type`, which must be one that the reduction takes.
fn element(r: &mut Reader<'_>, reduction: Reduction) -> Result<Element, Refusal> {
    let ty = r.ty()?;
    let bits = matches!(reduction, Reduction::And | Reduction::Or | Reduction::Xor);
    let element = match ty {
        Type::B32 if bits => Element::U32,
        Type::B64 if bits => Element::U64,
        Type::U32 if !bits => Element::U32,
        Type::S32 => Element::S32,
        Type::U64 if !bits => Element::U64,
        Type::S64 => Element::S64,
        Type::F16 => Element::F16,
        Type::Bf16 => Element::Bf16,
        Type::F32 => Element::F32,
        Type::F64 => Element::F64,
        _ => return Err(r.invalid(format!("does not take .{}", ty.name()))),
    };
    match reduction.takes(element) {
        true => Ok(element),
        false => Err(r.invalid(format!("does not take .{}", ty.name()))),
    }
}

fn finish(
    r: &mut Reader<'_>,
    to: Place,
    from: Place,
    manner: &Manner,
    what: u32,
) -> Result<Box<dyn Operation>, Refusal> {
    r.end()?;
    let (first, object, mask) = match (without_policy(r, manner.policy)?, manner) {
        (
            [to, from, size, object, mask],
            Manner {
                completes: true,
                multicast: true,
                ..
            },
        ) => ([to, from, size], Some(object), Some(mask.clone())),
        (
            [to, from, size, object],
            Manner {
                completes: true,
                multicast: false,
                ..
            },
        ) => ([to, from, size], Some(object), None),
        (
            [to, from, size],
            Manner {
                completes: false, ..
            },
        ) => ([to, from, size], None, None),
        _ => return Err(r.invalid("has not the operands that it takes".into())),
    };
    let [at, source, size] = first;
    check_size(r, size)?;
    check_mask(r, mask.as_ref())?;
    let flag = |is: bool, flag| if is { flag } else { 0 };
    Ok(Box::new(Bulk {
        how: (to as u32) << how::TO
            | (from as u32) << how::FROM
            | flag(manner.completes, how::COMPLETES)
            | flag(manner.multicast, how::MULTICAST)
            | what,
        to: bracketed(r, at)?,
        from: bracketed(r, source)?,
        size: size.clone(),
        object: object.map(|object| bracketed(r, object)).transpose()?,
        mask,
    }))
}

/// The largest number of bytes that a bulk copy may name.
const MAX_BYTES: u64 = 1_048_560;

/// A number of bytes, in whole vectors of 16.
fn check_size(r: &Reader<'_>, size: &Arg) -> Result<(), Refusal> {
    r.check(&[(size, Takes::From(Type::U32))])?;
    match size {
        Arg::Imm(Immediate::Int { bits, .. }) if *bits > MAX_BYTES || bits % 16 != 0 => {
            Err(r.invalid(format!("takes a multiple of 16 bytes, {MAX_BYTES} at most")))
        }
        _ => Ok(()),
    }
}

/// The blocks that a multicast goes to.
pub(super) fn check_mask(r: &Reader<'_>, mask: Option<&Arg>) -> Result<(), Refusal> {
    match mask {
        Some(mask) => r.check(&[(mask, Takes::From(Type::U16))]),
        None => Ok(()),
    }
}

impl Lower<'_> {
    /// The address in an operand, or 0 without one.
    pub(super) fn address_or_zero(&mut self, address: Option<&Arg>) -> Value {
        match address {
            Some(address) => self.address(address),
            None => self.b.ins().iconst(types::I64, 0),
        }
    }

    /// A mask of blocks, or 0 without one.
    pub(super) fn mask_or_zero(&mut self, mask: Option<&Arg>) -> Value {
        match mask {
            Some(mask) => {
                let mask = self.read(mask, Type::B16);
                self.b.ins().uextend(types::I32, mask)
            }
            None => self.b.ins().iconst(types::I32, 0),
        }
    }
}

impl Operation for Bulk {
    fn lower(&self, l: &mut Lower<'_>) {
        let (to, from) = (l.address(&self.to), l.address(&self.from));
        let size = l.read(&self.size, Type::U32);
        let object = l.address_or_zero(self.object.as_ref());
        let mask = l.mask_or_zero(self.mask.as_ref());
        let how = l.b.ins().iconst(types::I32, i64::from(self.how));
        let args = [l.thread, l.block, how, to, from, size, object, mask];
        let status = l.call_value(&BULK_COPY, &args);
        l.check_status(status);
    }

    fn reaches(&self) -> bool {
        self.how >> how::TO & 3 == Place::Cluster as u32
    }
}

impl Operation for Prefetch {
    fn lower(&self, _: &mut Lower<'_>) {}

    fn pure(&self) -> bool {
        true
    }
}

/// A prefetch, which does nothing.
pub(super) fn prefetch() -> Box<dyn Operation> {
    Box::new(Prefetch)
}

/// `st.async`
#[derive(Debug)]
struct Store {
    reach: Reach,
    ty: Type,
    to: Arg,
    values: Vec<Arg>,
    object: Arg,
}

/// `red.async`
#[derive(Debug)]
struct Reduce {
    reach: Reach,
    reduction: Reduction,
    element: Element,
    ty: Type,
    to: Arg,
    value: Arg,
    object: Arg,
}

/// The space and the completion of `st.async` and `red.async`.
fn completion(r: &mut Reader<'_>) -> Result<Reach, Refusal> {
    let reach = match r.eat("shared::cluster") {
        true => Reach::Cluster,
        false => Reach::Own(None),
    };
    r.expect_any(&[("mbarrier::complete_tx::bytes", ())])?;
    Ok(reach)
}

/// The host address that such an instruction writes to.
fn shared_place(l: &mut Lower<'_>, to: &Arg, reach: Reach, size: u32) -> Value {
    if let Reach::Own(_) = reach {
        l.must_be_shared(to, size);
    }
    l.reached_address(to, reach, size, true)
}

/// The number of the place where the object of such an instruction lies.
fn place_of(l: &mut Lower<'_>, reach: Reach) -> Value {
    let place = match reach {
        Reach::Cluster => Place::Cluster,
        Reach::Own(_) => Place::Generic,
    };
    l.b.ins().iconst(types::I32, place as i64)
}

/// `st.async{.weak}{.shared::cluster}.mbarrier::complete_tx::bytes{.vec}.type [to], value,
/// [object]`
pub(super) fn decode_store(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    r.expect_any(&[("async", ())])?;
    r.eat("weak");
    let reach = completion(r)?;
    let vector = r.eat_any(&[("v2", 2), ("v4", 4)]);
    use Type::*;
    let ty = r.ty_of(&[B32, U32, S32, F32, B64, U64, S64, F64])?;
    let [to, value, object] = r.finish()?;
    let values = match (value, vector) {
        (Arg::Vector(values), Some(count)) if values.len() == count => values,
        (Arg::Vector(_), _) | (_, Some(_)) => {
            return Err(r.invalid("the vector has not as many elements as the instruction".into()));
        }
        (value, None) => vec![value],
    };
    values
        .iter()
        .try_for_each(|value| r.check(&[(value, Takes::From(ty))]))?;
    if ty.size() as usize * values.len() > 16 {
        return Err(r.invalid("stores 16 bytes at most".into()));
    }
    Ok(Box::new(Store {
        reach,
        ty,
        to: bracketed(r, &to)?,
        values,
        object: bracketed(r, &object)?,
    }))
}

/// `red.async.relaxed.cluster{.shared::cluster}.mbarrier::complete_tx::bytes.op.type [to], value,
/// [object]`
pub(super) fn decode_red(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    r.expect_any(&[("async", ())])?;
    if !r.eat("relaxed") {
        return Err(r.invalid("takes an order: .relaxed".into()));
    }
    if !r.eat("cluster") {
        return Err(r.invalid("takes a scope: .cluster".into()));
    }
    let reach = completion(r)?;
    let reduction = r.expect_any(REDUCTIONS)?;
    let last = r.last_type();
    // Numbers of 64 bits are added alone, with a sign as without.
    let element = match (reduction, r.peek()) {
        (Reduction::Add, Some("s64")) => {
            r.skip();
            Element::U64
        }
        _ => element(r, reduction)?,
    };
    let fits = match reduction {
        Reduction::Add => matches!(element, Element::U32 | Element::S32 | Element::U64),
        _ => matches!(element, Element::U32 | Element::S32),
    };
    let ty = match last {
        Some(ty) if fits => ty,
        _ => return Err(r.invalid("does not take this type".into())),
    };
    let [to, value, object] = r.finish()?;
    r.check(&[(&value, Takes::From(ty))])?;
    Ok(Box::new(Reduce {
        reach,
        reduction,
        element,
        ty,
        to: bracketed(r, &to)?,
        value,
        object: bracketed(r, &object)?,
    }))
}

impl Operation for Store {
    fn lower(&self, l: &mut Lower<'_>) {
        let values = self.values.iter();
        let values: Vec<Value> = values.map(|value| l.read(value, self.ty)).collect();
        let size = self.ty.size() * values.len() as u32;
        let to = shared_place(l, &self.to, self.reach, size);
        for (n, value) in values.into_iter().enumerate() {
            let offset = n as i32 * self.ty.size() as i32;
            l.b.ins().store(MemFlags::trusted(), value, to, offset);
        }
        let object = l.address(&self.object);
        let size = l.b.ins().iconst(types::I32, i64::from(size));
        let place = place_of(l, self.reach);
        let args = [l.thread, l.block, place, object, size];
        let status = l.call_value(&BYTES_COME, &args);
        l.check_status(status);
    }

    fn reaches(&self) -> bool {
        true
    }
}

impl Operation for Reduce {
    fn lower(&self, l: &mut Lower<'_>) {
        let value = l.read(&self.value, self.ty);
        let value = l.fit(value, types::I64, false);
        let to = shared_place(l, &self.to, self.reach, self.ty.size());
        let object = l.address(&self.object);
        let what = self.reduction as u32 | (self.element as u32) << 4;
        let what = l.b.ins().iconst(types::I32, i64::from(what));
        let place = place_of(l, self.reach);
        let args = [l.thread, l.block, to, value, what, place, object];
        let status = l.call_value(&RED_ASYNC, &args);
        l.check_status(status);
    }

    fn reaches(&self) -> bool {
        true
    }
}
