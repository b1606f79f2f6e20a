//! Copies of boxes of tensors, `cp.async.bulk.tensor` and what belongs to it.

use cranelift_codegen::ir::{InstBuilder, StackSlotData, StackSlotKind, Value, types};
use ptx::ast::{Space, Type};

use super::Lower;
use super::async_copy::{bracketed, cache_hints, literal, without_policy};
use super::bulk::{Manner, check_mask, place, prefetch};
use super::cluster::Reach;
use crate::grid::bulk::Place;
use crate::grid::reduce::Reduction;
use crate::grid::tensor::{TENSOR_COPY, TENSOR_REPLACE, how};
use crate::jit::decode::{Arg, Operation, Reader, Refusal, Takes};

/// A copy of a box.
#[derive(Debug)]
struct Copy {
    how: u32,
    map: Arg,
    at: Vec<Arg>,
    offsets: Vec<Arg>,
    shared: Arg,
    object: Option<Arg>,
    mask: Option<Arg>,
}

/// `tensormap.replace`
#[derive(Debug)]
struct Replace {
    place: Place,
    map: Arg,
    field: u32,
    ord: u32,
    value: (Arg, Type),
}

/// How an instruction says which elements it takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Tile,
    Columns,
    ColumnsWithoutOffsets,
}

/// `.1d` to `.5d`
fn rank(r: &mut Reader<'_>) -> Result<u32, Refusal> {
    r.expect_any(&[("1d", 1), ("2d", 2), ("3d", 3), ("4d", 4), ("5d", 5)])
}

fn mode(r: &mut Reader<'_>, modes: &[(&str, Mode)], rank: u32) -> Result<Mode, Refusal> {
    let mode = r.eat_any(modes).unwrap_or(Mode::Tile);
    if mode != Mode::Tile && rank < 3 {
        return Err(r.invalid("takes columns of tensors of 3 dimensions or more".into()));
    }
    Ok(mode)
}

const LOADS: &[(&str, Mode)] = &[("tile", Mode::Tile), ("im2col", Mode::Columns)];
const STORES: &[(&str, Mode)] = &[
    ("tile", Mode::Tile),
    ("im2col_no_offs", Mode::ColumnsWithoutOffsets),
];

/// `[map, {coordinates}]`
fn place_in_tensor(r: &Reader<'_>, arg: &Arg, rank: u32) -> Result<(Arg, Vec<Arg>), Refusal> {
    match arg {
        Arg::List(parts) => match &parts[..] {
            [map @ Arg::Address(_, offset), Arg::Vector(at)] if at.len() == rank as usize => {
                r.check(&[(&parts[1], Takes::From(Type::S32))])?;
                if *offset != 0 {
                    return Err(r.invalid("takes a tensor map at no offset".into()));
                }
                Ok((map.clone(), at.clone()))
            }
            _ => Err(r.invalid(format!("takes a tensor map and {rank} coordinates"))),
        },
        _ => Err(r.invalid("takes a tensor map with coordinates in brackets".into())),
    }
}

/// `{offsets}`, of each dimension of pixels.
fn pixel_offsets(r: &Reader<'_>, arg: &Arg, rank: u32) -> Result<Vec<Arg>, Refusal> {
    match arg {
        Arg::Vector(offsets) if offsets.len() + 2 == rank as usize => {
            r.check(&[(arg, Takes::From(Type::U16))])?;
            Ok(offsets.clone())
        }
        _ => Err(r.invalid(format!("takes {} offsets of pixels", rank - 2))),
    }
}

fn flag(is: bool, flag: u32) -> u32 {
    if is { flag } else { 0 }
}

/// Behind `cp.async.bulk.tensor`.
pub(super) fn decode_copy(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let rank = rank(r)?;
    let (to, from) = (place(r)?, place(r)?);
    match (to, from) {
        (Place::Cluster | Place::Block, Place::Global) => load(r, rank, to),
        (Place::Global, Place::Block) => store(r, rank, None),
        _ => Err(r.invalid("does not copy so between these state spaces".into())),
    }
}

fn load(r: &mut Reader<'_>, rank: u32, to: Place) -> Result<Box<dyn Operation>, Refusal> {
    let mode = mode(r, LOADS, rank)?;
    let manner = Manner::of(r)?;
    r.end()?;
    if !manner.completes || manner.multicast && to == Place::Block {
        return Err(r.invalid("does not copy so between these state spaces".into()));
    }
    let wrong = || Err(r.invalid("has not the operands that it takes".into()));
    let [shared, tensor, object, rest @ ..] = without_policy(r, manner.policy)? else {
        return wrong();
    };
    let (offsets, rest) = match (mode, rest) {
        (Mode::Tile, rest) => (vec![], rest),
        (_, [offsets, rest @ ..]) => (pixel_offsets(r, offsets, rank)?, rest),
        _ => return wrong(),
    };
    let mask = match (manner.multicast, rest) {
        (false, []) => None,
        (true, [mask]) => Some(mask.clone()),
        _ => return wrong(),
    };
    check_mask(r, mask.as_ref())?;
    let (map, at) = place_in_tensor(r, tensor, rank)?;
    Ok(Box::new(Copy {
        how: rank << how::RANK
            | flag(mode != Mode::Tile, how::COLUMNS)
            | flag(manner.multicast, how::MULTICAST)
            | (to as u32) << how::TO,
        map,
        at,
        offsets,
        shared: bracketed(r, shared)?,
        object: Some(bracketed(r, object)?),
        mask,
    }))
}

fn store(
    r: &mut Reader<'_>,
    rank: u32,
    reduction: Option<Reduction>,
) -> Result<Box<dyn Operation>, Refusal> {
    let mode = mode(r, STORES, rank)?;
    let manner = Manner::of(r)?;
    r.end()?;
    if manner.completes {
        return Err(r.invalid("completes in a group".into()));
    }
    let [tensor, shared] = without_policy(r, manner.policy)? else {
        return Err(r.invalid("takes a place in a tensor and an address".into()));
    };
    let (map, at) = place_in_tensor(r, tensor, rank)?;
    Ok(Box::new(Copy {
        how: rank << how::RANK
            | flag(mode != Mode::Tile, how::COLUMNS)
            | how::STORES
            | flag(reduction.is_some(), how::REDUCES)
            | reduction.map_or(0, |reduction| (reduction as u32) << how::REDUCTION),
        map,
        at,
        offsets: vec![],
        shared: bracketed(r, shared)?,
        object: None,
        mask: None,
    }))
}

/// Behind `cp.reduce.async.bulk.tensor`.
pub(super) fn decode_reduction(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let rank = rank(r)?;
    let (Place::Global, Place::Block) = (place(r)?, place(r)?) else {
        return Err(r.invalid("does not reduce so between these state spaces".into()));
    };
    let reduction = r.expect_any(&[
        ("add", Reduction::Add),
        ("min", Reduction::Min),
        ("max", Reduction::Max),
        ("inc", Reduction::Inc),
        ("dec", Reduction::Dec),
        ("and", Reduction::And),
        ("or", Reduction::Or),
        ("xor", Reduction::Xor),
    ])?;
    store(r, rank, Some(reduction))
}

/// Behind `cp.async.bulk.prefetch.tensor`.
pub(super) fn decode_prefetch(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let rank = rank(r)?;
    r.expect_any(&[("L2", ())])?;
    r.expect_any(&[("global", ())])?;
    let mode = mode(r, LOADS, rank)?;
    let policy = cache_hints(r);
    r.end()?;
    let tensor = match (mode, without_policy(r, policy)?) {
        (Mode::Tile, [tensor]) => tensor,
        (Mode::Columns, [tensor, offsets]) => {
            pixel_offsets(r, offsets, rank)?;
            tensor
        }
        _ => return Err(r.invalid("takes a place in a tensor".into())),
    };
    place_in_tensor(r, tensor, rank)?;
    Ok(prefetch())
}

impl Operation for Copy {
    fn lower(&self, l: &mut Lower<'_>) {
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, 32, 4);
        let slot = l.b.create_sized_stack_slot(data);
        let zero = l.b.ins().iconst(types::I32, 0);
        let at = self.at.iter().map(|at| l.read(at, Type::S32));
        let mut words: Vec<Value> = at.collect();
        words.resize(5, zero);
        for offset in &self.offsets {
            let offset = l.read(offset, Type::U16);
            words.push(l.b.ins().uextend(types::I32, offset));
        }
        words.resize(8, zero);
        for (n, word) in words.into_iter().enumerate() {
            l.b.ins().stack_store(word, slot, 4 * n as i32);
        }
        let at = l.b.ins().stack_addr(types::I64, slot, 0);
        let (map, shared) = (l.address(&self.map), l.address(&self.shared));
        let object = l.address_or_zero(self.object.as_ref());
        let mask = l.mask_or_zero(self.mask.as_ref());
        let how = l.b.ins().iconst(types::I32, i64::from(self.how));
        let args = [l.thread, l.block, how, map, at, shared, object, mask];
        let status = l.call_value(&TENSOR_COPY, &args);
        l.check_status(status);
    }

    fn reaches(&self) -> bool {
        self.how >> how::TO & 3 == Place::Cluster as u32
    }
}

/// `tensormap.replace.tile.field{.space}.b1024.type [map]{, ord}, value`
pub(super) fn decode_replace(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    r.expect_any(&[("replace", ())])?;
    r.expect_any(&[("tile", ())])?;
    let field = r.expect_any(&[
        ("global_address", 0),
        ("rank", 1),
        ("box_dim", 2),
        ("global_dim", 3),
        ("global_stride", 4),
        ("element_stride", 5),
        ("elemtype", 6),
        ("interleave_layout", 7),
        ("swizzle_mode", 8),
        ("fill_mode", 9),
    ])?;
    let place = match Reach::of(r) {
        Reach::Own(None | Some(Space::Global)) => Place::Generic,
        Reach::Own(Some(Space::Shared)) => Place::Block,
        _ => return Err(r.invalid("does not work on that state space".into())),
    };
    r.expect_any(&[("b1024", ())])?;
    let ty = r.ty_of(&[match field {
        0 | 4 => Type::B64,
        _ => Type::B32,
    }])?;
    r.end()?;
    let (map, ord, value) = match (field, r.args) {
        (2..=5, [map, ord, value]) => (map, literal(r, ord)?, value),
        (0 | 1 | 6.., [map, value]) => (map, 0, value),
        _ => return Err(r.invalid("has not the operands that it takes".into())),
    };
    if ord > 4 {
        return Err(r.invalid("takes a dimension from 0 to 4".into()));
    }
    r.check(&[(value, Takes::From(ty))])?;
    // The last value of each field that is a choice.
    let last = match field {
        6 => 12,
        7 => 2,
        8 => 3,
        9 => 1,
        _ => u64::MAX,
    };
    if field >= 6 && literal(r, value)? > last {
        return Err(r.invalid(format!("takes a number from 0 to {last}")));
    }
    Ok(Box::new(Replace {
        place,
        map: bracketed(r, map)?,
        field,
        ord: u32::try_from(ord).unwrap_or(u32::MAX),
        value: (value.clone(), ty),
    }))
}

impl Operation for Replace {
    fn lower(&self, l: &mut Lower<'_>) {
        let map = l.address(&self.map);
        let (value, ty) = &self.value;
        let value = l.read(value, *ty);
        let value = l.fit(value, types::I64, false);
        let [place, field, ord] = [self.place as u32, self.field, self.ord]
            .map(|number| l.b.ins().iconst(types::I32, i64::from(number)));
        let args = [l.thread, l.block, place, map, field, ord, value];
        let status = l.call_value(&TENSOR_REPLACE, &args);
        l.check_status(status);
    }
}
