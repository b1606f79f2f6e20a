//! Operations in which the lanes of a warp meet: `shfl`, `vote`, `match`, `redux`, `activemask`,
//! `elect`, `bar.warp.sync`.

use std::mem::offset_of;

use cranelift_codegen::ir::{InstBuilder, Value, types};
use ptx::ast::{Immediate, Type};

use super::Lower;
use crate::grid::rounds::Wait;
use crate::grid::warp::{MEET, Meeting, PREDICATE, STATUS_SHIFT, Tile, plainly, unmasked};
use crate::jit::decode::{Arg, Operation, Reader, Refusal, Takes};

/// An operation, with what a lane brings and where its results go.
#[derive(Debug)]
struct Meet {
    /// See [`MEET`].
    kind: u32,
    /// `None`: the lanes that are there.
    mask: Option<Arg>,
    /// What the lane brings, and its type.
    value: (Arg, Type),
    /// The second and third operand of `shfl`.
    selectors: Option<[Arg; 2]>,
    /// Where the low half of the answer goes, and its type.
    to: (Arg, Type),
    /// Where the predicate beside it goes.
    predicate: Arg,
}

const NOTHING: Arg = Arg::Imm(Immediate::Int {
    bits: 0,
    signed: false,
});
const TRUE: Arg = Arg::Imm(Immediate::Int {
    bits: 1,
    signed: false,
});

/// An operation without operands and results.
pub(super) fn meeting(meeting: Meeting, mask: Arg) -> Box<dyn Operation> {
    Box::new(Meet {
        kind: meeting as u32,
        mask: Some(mask),
        value: (NOTHING, Type::B32),
        selectors: None,
        to: (Arg::Sink, Type::B32),
        predicate: Arg::Sink,
    })
}

/// An operation of the whole warp in which each lane brings and takes a word.
pub(super) fn exchange(meeting: Meeting, value: Arg, to: Arg) -> Box<dyn Operation> {
    Box::new(Meet {
        kind: meeting as u32,
        mask: Some(Arg::Imm(Immediate::Int {
            bits: u64::from(u32::MAX),
            signed: false,
        })),
        value: (value, Type::B32),
        selectors: None,
        to: (to, Type::B32),
        predicate: Arg::Sink,
    })
}

/// Decodes every opcode of the family.
pub(super) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    match r.opcode {
        "shfl" => shuffle(r),
        "vote" => vote(r),
        "match" => matches(r),
        "redux" => redux(r),
        "activemask" => {
            r.ty_of(&[Type::B32])?;
            let [to] = r.finish()?;
            r.check(&[(&to, Takes::To(Type::B32))])?;
            Ok(Box::new(Meet {
                kind: unmasked(Meeting::VoteBallot, site(r)),
                mask: None,
                value: (TRUE, Type::B32),
                selectors: None,
                to: (to, Type::B32),
                predicate: Arg::Sink,
            }))
        }
        "elect" => {
            if !r.eat("sync") {
                return Err(r.unknown_modifier());
            }
            let [to, mask] = r.finish()?;
            let Arg::Pair(to, predicate) = to else {
                return Err(r.invalid("takes a register and a predicate: d|p".into()));
            };
            r.check(&[
                (&to, Takes::ToOrNothing(Type::U32)),
                (&predicate, Takes::To(Type::Pred)),
                (&mask, Takes::From(Type::U32)),
            ])?;
            let (to, predicate) = (*to, *predicate);
            Ok(Box::new(Meet {
                kind: Meeting::Elect as u32,
                mask: Some(mask),
                value: (NOTHING, Type::B32),
                selectors: None,
                to: (to, Type::B32),
                predicate,
            }))
        }
        _ => Err(r.invalid("is no operation of a warp".into())),
    }
}

/// What tells the instruction from every other of its module.
fn site(r: &Reader<'_>) -> u32 {
    r.pos.line.wrapping_mul(509).wrapping_add(r.pos.column)
}

/// A value and the predicate beside it.
fn pair(arg: &Arg) -> (Arg, Arg) {
    match arg {
        Arg::Pair(value, predicate) => ((**value).clone(), (**predicate).clone()),
        value => (value.clone(), Arg::Sink),
    }
}

/// The kind of an operation that has a mask in newer PTX, and that mask.
fn kind(
    r: &Reader<'_>,
    meeting: Meeting,
    sync: bool,
    mask: Option<&Arg>,
) -> Result<(u32, Option<Arg>), Refusal> {
    match (sync, mask) {
        (true, Some(mask)) => {
            r.check(&[(mask, Takes::From(Type::U32))])?;
            Ok((meeting as u32, Some(mask.clone())))
        }
        (false, None) => Ok((unmasked(meeting, site(r)), None)),
        _ => Err(r.invalid("takes a mask if it is .sync, and otherwise none".into())),
    }
}

/// `shfl{.sync}.mode.b32 d{|p}, a, b, c{, mask}`
fn shuffle(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let sync = r.eat("sync");
    let meeting = r.expect_any(&[
        ("up", Meeting::ShflUp),
        ("down", Meeting::ShflDown),
        ("bfly", Meeting::ShflBfly),
        ("idx", Meeting::ShflIdx),
    ])?;
    r.ty_of(&[Type::B32])?;
    r.end()?;
    let [to, value, b, c, mask @ ..] = r.args else {
        return Err(r.invalid("takes a value, a lane and a clamp".into()));
    };
    if mask.len() > 1 {
        return Err(r.invalid("takes at most one mask".into()));
    }
    let (kind, mask) = kind(r, meeting, sync, mask.first())?;
    let (to, predicate) = pair(to);
    r.check(&[
        (&to, Takes::To(Type::B32)),
        (&predicate, Takes::ToOrNothing(Type::Pred)),
        (value, Takes::From(Type::B32)),
        (b, Takes::From(Type::B32)),
        (c, Takes::From(Type::B32)),
    ])?;
    Ok(Box::new(Meet {
        kind,
        mask,
        value: (value.clone(), Type::B32),
        selectors: Some([b.clone(), c.clone()]),
        to: (to, Type::B32),
        predicate,
    }))
}

/// `vote{.sync}.mode.pred d, {!}a{, mask}`, `vote{.sync}.ballot.b32 d, {!}a{, mask}`. CUB writes
/// `.sync` behind the mode, which the device's compiler takes as well.
fn vote(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let mut sync = r.eat("sync");
    let meeting = r.expect_any(&[
        ("all", Meeting::VoteAll),
        ("any", Meeting::VoteAny),
        ("uni", Meeting::VoteUni),
        ("ballot", Meeting::VoteBallot),
    ])?;
    sync |= r.eat("sync");
    let ty = r.ty_of(&[if meeting == Meeting::VoteBallot {
        Type::B32
    } else {
        Type::Pred
    }])?;
    r.end()?;
    let [to, value, mask @ ..] = r.args else {
        return Err(r.invalid("takes a predicate".into()));
    };
    if mask.len() > 1 {
        return Err(r.invalid("takes at most one mask".into()));
    }
    let (kind, mask) = kind(r, meeting, sync, mask.first())?;
    r.check(&[(to, Takes::To(ty)), (value, Takes::From(Type::Pred))])?;
    Ok(Box::new(Meet {
        kind,
        mask,
        value: (value.clone(), Type::Pred),
        selectors: None,
        to: (to.clone(), ty),
        predicate: Arg::Sink,
    }))
}

/// `match.any.sync.type d, a, mask`, `match.all.sync.type d{|p}, a, mask`
fn matches(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let meeting = r.expect_any(&[("any", Meeting::MatchAny), ("all", Meeting::MatchAll)])?;
    if !r.eat("sync") {
        return Err(r.unknown_modifier());
    }
    let ty = r.ty_of(&[Type::B32, Type::B64])?;
    let [to, value, mask] = r.finish()?;
    let (to, predicate) = pair(&to);
    if meeting == Meeting::MatchAny && predicate != Arg::Sink {
        return Err(r.invalid("has no predicate beside its result".into()));
    }
    let takes = match meeting {
        Meeting::MatchAny => Takes::To(Type::U32),
        _ => Takes::ToOrNothing(Type::U32),
    };
    r.check(&[
        (&to, takes),
        (&predicate, Takes::ToOrNothing(Type::Pred)),
        (&value, Takes::From(ty)),
        (&mask, Takes::From(Type::U32)),
    ])?;
    Ok(Box::new(Meet {
        kind: meeting as u32,
        mask: Some(mask),
        value: (value, ty),
        selectors: None,
        to: (to, Type::B32),
        predicate,
    }))
}

/// `redux.sync.op.type d, a, mask`
fn redux(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    if !r.eat("sync") {
        return Err(r.unknown_modifier());
    }
    let name = r.expect_any(&[
        ("add", "add"),
        ("min", "min"),
        ("max", "max"),
        ("and", "and"),
        ("or", "or"),
        ("xor", "xor"),
    ])?;
    if r.peek() == Some("abs") || r.peek() == Some("NaN") || r.peek() == Some("f32") {
        return Err(r.invalid("reducing singles is of sm_100".into()));
    }
    let arithmetic = matches!(name, "add" | "min" | "max");
    let ty = r.ty_of(if arithmetic {
        &[Type::U32, Type::S32]
    } else {
        &[Type::B32]
    })?;
    let meeting = match (name, ty) {
        ("add", _) => Meeting::ReduxAdd,
        ("min", Type::S32) => Meeting::ReduxMinS,
        ("min", _) => Meeting::ReduxMinU,
        ("max", Type::S32) => Meeting::ReduxMaxS,
        ("max", _) => Meeting::ReduxMaxU,
        ("and", _) => Meeting::ReduxAnd,
        ("or", _) => Meeting::ReduxOr,
        _ => Meeting::ReduxXor,
    };
    let [to, value, mask] = r.finish()?;
    let integer = match ty {
        Type::S32 => Type::S32,
        _ => Type::U32,
    };
    r.check(&[
        (&to, Takes::To(integer)),
        (&value, Takes::From(integer)),
        (&mask, Takes::From(Type::U32)),
    ])?;
    Ok(Box::new(Meet {
        kind: meeting as u32,
        mask: Some(mask),
        value: (value, ty),
        selectors: None,
        to: (to, ty),
        predicate: Arg::Sink,
    }))
}

impl Operation for Meet {
    fn lower(&self, l: &mut Lower<'_>) {
        if l.rounds() {
            return self.lower_in_rounds(l);
        }
        let kind = l.b.ins().iconst(types::I32, i64::from(self.kind));
        let mask = match &self.mask {
            Some(mask) => l.read(mask, Type::B32),
            None => l.b.ins().iconst(types::I32, i64::from(u32::MAX)),
        };
        let value = l.read(&self.value.0, self.value.1);
        let value = l.fit(value, types::I64, false);
        let [b, c] = match &self.selectors {
            Some([b, c]) => [l.read(b, Type::B32), l.read(c, Type::B32)],
            None => [l.b.ins().iconst(types::I32, 0); 2],
        };
        let (thread, block) = (l.thread, l.block);
        let answer = l.call_value(&MEET, &[thread, block, kind, mask, value, b, c]);
        let status = l.b.ins().ushr_imm(answer, i64::from(STATUS_SHIFT));
        let status = l.b.ins().ireduce(types::I32, status);
        l.check_status(status);
        self.write_value(l, answer);
        if self.predicate != Arg::Sink {
            let predicate =
                l.b.ins()
                    .ushr_imm(answer, i64::from(PREDICATE.trailing_zeros()));
            let predicate = l.b.ins().ireduce(types::I8, predicate);
            let predicate = l.b.ins().band_imm(predicate, 1);
            l.write(&self.predicate, Type::Pred, predicate);
        }
    }

    fn waits(&self) -> bool {
        true
    }

    fn tells_who_is_there(&self) -> bool {
        let votes = plainly(self.kind) == Meeting::VoteBallot as u32;
        votes && self.value.0 == TRUE && self.mask.is_none()
    }

    fn tells_nobody(&self) -> bool {
        true
    }

    fn is_of_warp(&self) -> bool {
        true
    }

    fn waits_in_rounds(&self) -> bool {
        true
    }
}

impl Meet {
    /// In rounds: the lane is done until the others are here.
    fn lower_in_rounds(&self, l: &mut Lower<'_>) {
        let (mask, tiles) = match &self.mask {
            None => (Some(u32::MAX), None),
            Some(mask) => match l.known_number(mask) {
                None => (None, l.tiles(mask)),
                known => (known, None),
            },
        };
        // In a chain nobody asks for masks of tiles.
        if let (Some(said), None) = (&self.mask, mask)
            && !(tiles.is_some() && l.brings_in_chain())
        {
            l.bring_number(said, offset_of!(Tile, masks));
        }
        let mut wait = Wait {
            kind: self.kind,
            mask,
            b: Some(0),
            c: Some(0),
            tiles,
        };
        if self.value.0 != NOTHING {
            let matches = [Meeting::MatchAny, Meeting::MatchAll].map(|kind| kind as u32);
            let high = matches
                .contains(&self.kind)
                .then_some(offset_of!(Tile, highs));
            l.bring(&self.value.0, self.value.1, offset_of!(Tile, values), high);
        }
        if let Some([b, c]) = &self.selectors {
            wait.b = l.bring_number(b, offset_of!(Tile, b));
            wait.c = l.bring_number(c, offset_of!(Tile, c));
        }
        l.wait(wait);
        l.take(&self.to.0, self.to.1);
        l.take_predicate(&self.predicate);
    }

    /// Puts the value, in the low bits of what is taken, where it goes.
    fn write_value(&self, l: &mut Lower<'_>, taken: Value) {
        let (to, ty) = &self.to;
        let want = match ty {
            Type::Pred => types::I8,
            _ => types::I32,
        };
        let value = l.fit(taken, want, false);
        l.write(to, *ty, value);
    }
}
