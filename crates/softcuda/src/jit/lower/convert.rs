//! `cvt`: which conversion it is, and what it may say. Conversions of integers are here, those of
//! floats in [`convert_float`](super::convert_float).
//!
//! What float-to-integer gives for NaN: 0, but 1 in the highest bit where the source is `.f64` or
//! the result has 64 bits.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use ptx::ast::Type;

use super::Lower;
use super::convert_float::{FloatConversion, Shape};
use super::float_modifiers::{Flag, Modifiers};
use super::float_value::{
    and_number, compare_number, flush_if, narrow, number_like, saturate, widen,
};
use super::runs::Term;
use crate::jit::decode::{Arg, Operation, Reader, Refusal, RegId, Stride, Takes};
use crate::jit::runtime::convert::{self, Target};
use crate::jit::runtime::float::{Format, Rounding};

/// An integer type: its width and whether it is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Integer {
    bits: u32,
    signed: bool,
}

impl Integer {
    fn of(ty: Type) -> Option<Integer> {
        let (bits, signed) = match ty {
            Type::U8 => (8, false),
            Type::U16 => (16, false),
            Type::U32 => (32, false),
            Type::U64 => (64, false),
            Type::S8 => (8, true),
            Type::S16 => (16, true),
            Type::S32 => (32, true),
            Type::S64 => (64, true),
            _ => return None,
        };
        Some(Integer { bits, signed })
    }

    /// Least and greatest value.
    fn range(self) -> (i128, i128) {
        match self.signed {
            true => (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1),
            false => (0, (1 << self.bits) - 1),
        }
    }
}

/// In vectors, a source has its integers in the low bits of words.
fn is_in_words(source: &Arg, integer: Integer) -> bool {
    matches!(source, Arg::Reg(_)) || integer.bits == 32
}

fn is_float(ty: Type) -> bool {
    matches!(ty, Type::F16 | Type::Bf16 | Type::F32 | Type::F64)
}

/// Decodes `cvt` and `cvt.pack`.
pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    if r.eat("pack") {
        return decode_pack(r);
    }
    let mut modifiers = Modifiers::read(r)?;
    let to = r.ty()?;
    modifiers.more(r)?;
    let from = r.ty()?;
    modifiers.more(r)?;
    if modifiers.has(Flag::Ftz) && to != Type::F32 && from != Type::F32 {
        return Err(r.invalid(".ftz is for .f32".into()));
    }
    let special = matches!(r.args, [_, Arg::Special(_)]);
    if special && (Integer::of(to).is_none() || Integer::of(from).is_none()) {
        return Err(r.invalid("a special register is an integer".into()));
    }
    match (Integer::of(to), Integer::of(from)) {
        (Some(to_int), Some(from_int)) => {
            modifiers.no_rounding(r)?;
            let ((least, greatest), (from_least, from_greatest)) =
                (to_int.range(), from_int.range());
            if least > from_least || greatest < from_greatest {
                modifiers.allow(r, &[Flag::Sat])?;
            } else {
                modifiers.allow(r, &[])?;
            }
            let [dst, source] = r.finish()?;
            Ok(Box::new(Resize {
                to: (to, to_int),
                from: (from, from_int),
                sat: modifiers.has(Flag::Sat),
                dst,
                source,
            }))
        }
        (Some(integer), None) if is_float(from) => {
            let (Some(mode), None) = (modifiers.integer, modifiers.rounding) else {
                return Err(r.invalid("one of .rni, .rzi, .rmi and .rpi is required".into()));
            };
            let flags: &[Flag] = match from {
                Type::Bf16 => &[],
                _ => &[Flag::Ftz, Flag::Sat],
            };
            modifiers.allow(r, flags)?;
            let [dst, source] = r.finish()?;
            check_byte(r, &dst, to, from)?;
            Ok(Box::new(ToInteger {
                to: (to, integer),
                from,
                mode,
                ftz: modifiers.has(Flag::Ftz),
                dst,
                source,
            }))
        }
        (None, Some(integer)) if is_float(to) => {
            let mode = modifiers.mode(r, false)?;
            let flags: &[Flag] = match to {
                Type::Bf16 => &[],
                _ => &[Flag::Ftz, Flag::Sat],
            };
            modifiers.allow(r, flags)?;
            let [dst, source] = r.finish()?;
            check_byte(r, &source, from, to)?;
            Ok(Box::new(FromInteger {
                to,
                from: (from, integer),
                mode,
                sat: modifiers.has(Flag::Sat),
                dst,
                source,
            }))
        }
        (None, None) => decode_float(r, to, from, modifiers),
        _ => Err(r.invalid("these types do not convert".into())),
    }
}

/// Between `.bf16` and a byte, the byte is in a register of 8 bits. Other conversions take wider
/// ones.
fn check_byte(r: &Reader<'_>, byte: &Arg, ty: Type, float: Type) -> Result<(), Refusal> {
    match (ty, float) {
        (Type::U8 | Type::S8, Type::Bf16) => r.check(&[(byte, Takes::From(Type::B8))]),
        _ => Ok(()),
    }
}

fn decode_float(
    r: &Reader<'_>,
    to: Type,
    from: Type,
    modifiers: Modifiers,
) -> Result<Box<dyn Operation>, Refusal> {
    use Type::*;
    let mut mode = Rounding::Nearest;
    let finite = [Flag::Relu, Flag::Satfinite];
    let (shape, allowed): (Shape, &[Flag]) = match (to, from) {
        (F16 | Bf16 | F32 | F64, _) if to == from => {
            if modifiers.rounding.is_some() {
                return Err(r.invalid("only rounding to an integer is possible here".into()));
            }
            let flags: &[Flag] = match to {
                Bf16 => &[],
                _ => &[Flag::Ftz, Flag::Sat],
            };
            (Shape::Integral(modifiers.integer), flags)
        }
        (F32, F16) | (F64, F16 | F32) => {
            modifiers.no_rounding(r)?;
            (Shape::Scalar, &[Flag::Ftz, Flag::Sat])
        }
        // Exact, but a rounding modifier is accepted.
        (F32 | F64, Bf16) => {
            modifiers.mode(r, true)?;
            let flags: &[Flag] = match to {
                F32 => &[Flag::Ftz],
                _ => &[],
            };
            (Shape::Scalar, flags)
        }
        (F16 | Bf16, F32) => {
            mode = modifiers.mode(r, false)?;
            match (mode, to) {
                (Rounding::Nearest | Rounding::Zero, F16) => (
                    Shape::Scalar,
                    &[Flag::Ftz, Flag::Sat, Flag::Relu, Flag::Satfinite],
                ),
                (Rounding::Nearest | Rounding::Zero, _) => {
                    (Shape::Scalar, &[Flag::Ftz, Flag::Relu, Flag::Satfinite])
                }
                (_, F16) => (Shape::Scalar, &[Flag::Ftz, Flag::Sat]),
                _ => (Shape::Scalar, &[Flag::Ftz]),
            }
        }
        (F32, F64) => {
            mode = modifiers.mode(r, false)?;
            (Shape::Scalar, &[Flag::Ftz, Flag::Sat])
        }
        (F16, F64) => {
            mode = modifiers.mode(r, false)?;
            (Shape::Scalar, &[Flag::Sat])
        }
        (Bf16, F64 | F16) | (F16, Bf16) => {
            mode = modifiers.mode(r, from != F64)?;
            (Shape::Scalar, &[])
        }
        (F16x2 | Bf16x2, F32) => {
            mode = modifiers.mode(r, false)?;
            if !matches!(mode, Rounding::Nearest | Rounding::Zero) {
                return Err(r.invalid("rounds by .rn or .rz only".into()));
            }
            (Shape::Pair, &finite)
        }
        (Tf32, F32) => {
            mode = modifiers
                .rounding
                .ok_or_else(|| r.invalid("a rounding modifier is required".into()))?;
            match mode {
                Rounding::Away => (Shape::Tf32, &[Flag::Satfinite]),
                Rounding::Nearest | Rounding::Zero => (Shape::Tf32, &[Flag::Relu]),
                _ => return Err(r.invalid("rounds by .rna, .rn or .rz only".into())),
            }
        }
        (E4m3x2 | E5m2x2, F32 | F16x2) => {
            if modifiers.mode(r, false)? != Rounding::Nearest || !modifiers.has(Flag::Satfinite) {
                return Err(r.invalid(".rn and .satfinite are required".into()));
            }
            (Shape::ToFp8, &finite)
        }
        (F16x2, E4m3x2 | E5m2x2) => {
            if modifiers.mode(r, false)? != Rounding::Nearest {
                return Err(r.invalid(".rn is required".into()));
            }
            (Shape::FromFp8, &[Flag::Relu])
        }
        _ => return Err(r.invalid("these types do not convert".into())),
    };
    if modifiers.integer.is_some() && !matches!(shape, Shape::Integral(_)) {
        return Err(r.invalid("rounding to an integer is not possible here".into()));
    }
    modifiers.allow(r, allowed)?;
    r.end()?;
    let count = match shape {
        Shape::Pair => 3,
        Shape::ToFp8 if from == F32 => 3,
        _ => 2,
    };
    if r.args.len() != count {
        return Err(r.invalid(format!("takes {count} operands, not {}", r.args.len())));
    }
    Ok(Box::new(FloatConversion {
        shape,
        to,
        from,
        mode,
        modifiers,
        dst: r.args[0].clone(),
        sources: r.args[1..].iter().cloned().collect(),
    }))
}

/// Integer to integer.
#[derive(Debug)]
struct Resize {
    to: (Type, Integer),
    from: (Type, Integer),
    sat: bool,
    dst: Arg,
    source: Arg,
}

impl Operation for Resize {
    fn pure(&self) -> bool {
        true
    }

    fn vectorizes(&self) -> bool {
        let narrow = self.to.1.bits <= 32 && self.from.1.bits <= 32;
        narrow && !self.sat && is_in_words(&self.source, self.from.1)
    }

    fn vectorizes_short(&self) -> bool {
        self.vectorizes()
    }

    fn stride(&self, of: &dyn Fn(&Arg) -> Option<Stride>) -> Option<Stride> {
        let mut stride = of(&self.source)?;
        if self.from.1.bits == 32 {
            stride = stride.in_words();
        }
        match (self.from.1.bits, self.to.1.bits) {
            _ if self.sat => None,
            (32 | 64, 32) => Some(stride.in_words()),
            (32 | 64, 64) => Some(stride),
            _ => None,
        }
    }

    fn term(&self) -> Option<Term<'_>> {
        let (from, signed) = self.widens().filter(|_| !self.sat)?;
        Some(Term::Scaled {
            from,
            by: 1,
            signed,
        })
    }

    fn widens(&self) -> Option<(RegId, bool)> {
        match (&self.source, self.from.1.bits, self.to.1.bits) {
            (Arg::Reg(from), 32, 64) => Some((*from, self.from.1.signed)),
            _ => None,
        }
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let ((to_type, to), (from_type, from)) = (self.to, self.from);
        let mut value = l.read(&self.source, from_type);
        if l.in_vectors() {
            if to.bits > from.bits {
                value = l.extended(value, from.bits, from.signed);
            }
            let value = l.extended(value, to.bits, to.signed);
            return l.write_word(&self.dst, value);
        }
        if self.sat {
            value = clamp(l, value, from, to);
        }
        let ty = super::value_type(to_type);
        let value = match (to.bits.cmp(&from.bits), from.signed) {
            (std::cmp::Ordering::Less, _) => l.b.ins().ireduce(ty, value),
            (std::cmp::Ordering::Equal, _) => value,
            (std::cmp::Ordering::Greater, true) => l.b.ins().sextend(ty, value),
            (std::cmp::Ordering::Greater, false) => l.b.ins().uextend(ty, value),
        };
        l.write(&self.dst, to_type, value);
    }
}

/// Limits a value of one integer type to what another can hold.
fn clamp(l: &mut Lower<'_>, value: Value, from: Integer, to: Integer) -> Value {
    let ((least, greatest), (from_least, from_greatest)) = (to.range(), from.range());
    let mut value = value;
    if from_least < least {
        // Only a signed type has values below another's least.
        let limit = number_like(l, value, least as i64);
        value = l.b.ins().smax(value, limit);
    }
    if from_greatest > greatest {
        let limit = number_like(l, value, greatest as i64);
        value = match from.signed {
            true => l.b.ins().smin(value, limit),
            false => l.b.ins().umin(value, limit),
        };
    }
    value
}

/// Float to integer: rounded, then limited to the integer's range.
#[derive(Debug)]
struct ToInteger {
    to: (Type, Integer),
    from: Type,
    mode: Rounding,
    ftz: bool,
    dst: Arg,
    source: Arg,
}

impl Operation for ToInteger {
    fn pure(&self) -> bool {
        true
    }

    fn vectorizes(&self) -> bool {
        self.from != Type::F64 && self.to.1.bits <= 32
    }

    fn vectorizes_short(&self) -> bool {
        self.vectorizes()
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let (to_type, to) = self.to;
        let value = l.read(&self.source, self.from);
        let value = match self.from {
            Type::F16 | Type::Bf16 => widen(l, self.from, false, value),
            _ => flush_if(l, self.ftz, value),
        };
        let rounded = match self.mode {
            // The conversion itself cuts off.
            Rounding::Zero => value,
            mode => round_to_integral(l, value, mode),
        };
        let wide = match to.bits {
            64 => types::I64,
            _ if l.in_vectors() => types::I32X4,
            _ => types::I32,
        };
        let mut result = match to.signed {
            true => l.b.ins().fcvt_to_sint_sat(wide, rounded),
            false => l.b.ins().fcvt_to_uint_sat(wide, rounded),
        };
        if to.bits < 32 {
            let wider = Integer {
                bits: 32,
                signed: to.signed,
            };
            result = clamp(l, result, wider, to);
        }
        if l.in_vectors() {
            return l.write_word(&self.dst, result);
        }
        if to.bits < 32 {
            result = l.b.ins().ireduce(super::value_type(to_type), result);
        }
        if self.from == Type::F64 || to.bits == 64 {
            let highest = (1u64 << (to.bits - 1)) as i64;
            // A constant of a narrow type is given sign-extended.
            let highest = highest << (64 - to.bits) >> (64 - to.bits);
            let ty = super::value_type(to_type);
            let marker = l.b.ins().iconst(ty, highest & mask(to.bits));
            let nan = l.b.ins().fcmp(FloatCC::Unordered, value, value);
            result = l.b.ins().select(nan, marker, result);
        }
        l.write(&self.dst, to_type, result);
    }
}

/// The low bits of a 64-bit number.
fn mask(bits: u32) -> i64 {
    (u64::MAX >> (64 - bits)) as i64
}

/// A float rounded to an integral value.
pub(crate) fn round_to_integral(l: &mut Lower<'_>, value: Value, mode: Rounding) -> Value {
    // Vectors of doubles, rounded, stand for conversions of halves: see `jit::stand_ins`.
    debug_assert_ne!(l.b.func.dfg.value_type(value), types::F64X2);
    match mode {
        Rounding::Nearest | Rounding::Away => l.b.ins().nearest(value),
        Rounding::Zero => l.b.ins().trunc(value),
        Rounding::Down => l.b.ins().floor(value),
        Rounding::Up => l.b.ins().ceil(value),
    }
}

/// Integer to float.
#[derive(Debug)]
struct FromInteger {
    to: Type,
    from: (Type, Integer),
    mode: Rounding,
    sat: bool,
    dst: Arg,
    source: Arg,
}

impl Operation for FromInteger {
    fn pure(&self) -> bool {
        true
    }

    fn vectorizes(&self) -> bool {
        self.mode == Rounding::Nearest
            && matches!(self.to, Type::F16 | Type::F32)
            && self.from.1.bits <= 32
            && is_in_words(&self.source, self.from.1)
            && !self.sat
    }

    fn vectorizes_short(&self) -> bool {
        self.vectorizes()
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let (from_type, from) = self.from;
        let value = l.read(&self.source, from_type);
        let least = if self.mode == Rounding::Nearest {
            32
        } else {
            64
        };
        let value = match (from.bits < least, from.signed) {
            _ if l.in_vectors() => l.extended(value, from.bits, from.signed),
            (false, _) => value,
            (true, true) => l.b.ins().sextend(int_type(least), value),
            (true, false) => l.b.ins().uextend(int_type(least), value),
        };
        // What was extended is not negative.
        let signed = from.signed || from.bits < 32;
        let mut result = match (self.mode, self.to) {
            (Rounding::Nearest, Type::F32 | Type::F64) => nearest(l, value, signed, self.to),
            // Halves are all below 2^17, where singles are exact.
            (Rounding::Nearest, Type::F16) => {
                let single = nearest(l, value, signed, Type::F32);
                narrow(l, Type::F16, single)
            }
            _ => self.exact(l, value, from.signed),
        };
        if self.sat {
            result = match self.to {
                Type::F32 | Type::F64 => saturate(l, result),
                ty => {
                    let wide = widen(l, ty, false, result);
                    let wide = saturate(l, wide);
                    narrow(l, ty, wide)
                }
            };
        }
        l.write(&self.dst, self.to, result);
    }
}

fn int_type(bits: u32) -> cranelift_codegen::ir::Type {
    match bits {
        64 => types::I64,
        _ => types::I32,
    }
}

fn nearest(l: &mut Lower<'_>, value: Value, signed: bool, to: Type) -> Value {
    let mut ty = super::value_type(to);
    if l.in_vectors() {
        ty = cranelift_codegen::ir::types::F32X4;
    }
    match signed {
        true => l.b.ins().fcvt_from_sint(ty, value),
        false => l.b.ins().fcvt_from_uint(ty, value),
    }
}

impl FromInteger {
    /// Through the runtime.
    fn exact(&self, l: &mut Lower<'_>, value: Value, signed: bool) -> Value {
        let value = match (l.b.func.dfg.value_type(value), signed) {
            (types::I64, _) => value,
            (_, true) => l.b.ins().sextend(types::I64, value),
            (_, false) => l.b.ins().uextend(types::I64, value),
        };
        let target = Target {
            format: format_of(self.to),
            mode: self.mode,
        };
        let code = l.b.ins().iconst(types::I32, target.code());
        let bits = match signed {
            true => l.call_value(&convert::NARROW_SIGNED, &[value, code]),
            false => l.call_value(&convert::NARROW_UNSIGNED, &[value, code]),
        };
        super::convert_float::from_narrow(l, self.to, bits)
    }
}

/// The format of a scalar float type.
pub(crate) fn format_of(ty: Type) -> Format {
    match ty {
        Type::F16 => Format::F16,
        Type::Bf16 => Format::BF16,
        Type::Tf32 => Format::TF32,
        Type::F32 => Format::F32,
        _ => Format::F64,
    }
}

/// `cvt.pack`: two integers, saturated, in the low bits of the result.
#[derive(Debug)]
struct Pack {
    bits: u32,
    signed: bool,
    dst: Arg,
    high: Arg,
    low: Arg,
    rest: Option<Arg>,
}

fn decode_pack(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    if !r.eat("sat") {
        return Err(r.invalid(".sat is required".into()));
    }
    let (bits, signed) = r.expect_any(&[
        ("u16", (16, false)),
        ("s16", (16, true)),
        ("u8", (8, false)),
        ("s8", (8, true)),
        ("u4", (4, false)),
        ("s4", (4, true)),
        ("u2", (2, false)),
        ("s2", (2, true)),
    ])?;
    r.ty_of(&[Type::S32])?;
    let (dst, high, low, rest) = if bits == 16 {
        let [dst, high, low] = r.finish()?;
        (dst, high, low, None)
    } else {
        r.ty_of(&[Type::B32])?;
        let [dst, high, low, rest] = r.finish()?;
        (dst, high, low, Some(rest))
    };
    Ok(Box::new(Pack {
        bits,
        signed,
        dst,
        high,
        low,
        rest,
    }))
}

impl Operation for Pack {
    fn pure(&self) -> bool {
        true
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let from = Integer {
            bits: 32,
            signed: true,
        };
        let to = Integer {
            bits: self.bits,
            signed: self.signed,
        };
        let [high, low] = [&self.high, &self.low].map(|arg| {
            let value = l.read(arg, Type::S32);
            // Every source is signed: compare as such, whatever the target.
            let (least, greatest) = to.range();
            let least = l.b.ins().iconst(types::I32, least as i64);
            let greatest = l.b.ins().iconst(types::I32, greatest as i64);
            debug_assert!(from.signed);
            let value = l.b.ins().smax(value, least);
            let value = l.b.ins().smin(value, greatest);
            l.b.ins().band_imm(value, mask(self.bits))
        });
        let high = l.b.ins().ishl_imm(high, i64::from(self.bits));
        let mut result = l.b.ins().bor(high, low);
        if let Some(rest) = &self.rest {
            let rest = l.read(rest, Type::B32);
            let rest = l.b.ins().ishl_imm(rest, i64::from(2 * self.bits));
            result = l.b.ins().bor(result, rest);
        }
        l.write(&self.dst, Type::U32, result);
    }
}

/// A half (`I16`, or in vectors, words), with a negative value made zero (`.relu`) and infinity the
/// greatest number (`.satfinite`).
pub(crate) fn limit_half(l: &mut Lower<'_>, ty: Type, modifiers: Modifiers, value: Value) -> Value {
    let mut value = value;
    if modifiers.has(Flag::Satfinite) {
        let infinity = format_of(ty).infinity() as i64;
        let magnitude = and_number(l, value, 0x7fff);
        let infinite = compare_number(l, IntCC::Equal, magnitude, infinity);
        let one = number_like(l, value, 1);
        let greatest = l.b.ins().isub(value, one);
        value = l.select(infinite, greatest, value);
    }
    if modifiers.has(Flag::Relu) {
        // A NaN has no sign once narrowed.
        let sign = and_number(l, value, 0x8000);
        let positive = compare_number(l, IntCC::Equal, sign, 0);
        let zero = number_like(l, value, 0);
        value = l.select(positive, value, zero);
    }
    value
}
