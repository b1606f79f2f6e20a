//! What looks at `.f32` and `.f64` without computing: min, max, abs, neg, copysign, testp.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use ptx::ast::{Immediate, Type};

use super::Lower;
use super::float_modifiers::{Flag, Modifiers};
use super::float_value::{bits, const_f32, const_f64, flush_if, from_bits};
use crate::jit::decode::{Arg, Operation, Reader, Refusal};

/// What the second operand of `min` or `max` is known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Second {
    Any,
    /// No NaN.
    Number,
    /// No NaN; and no zero that would be the result of itself and the other zero, but is not.
    Plain,
}

/// `min` or `max` of two floats: with NaN as with a missing operand unless `propagate`, and -0
/// below +0. Where the result is NaN its bits are open.
pub(crate) fn extremum(
    l: &mut Lower<'_>,
    max: bool,
    propagate: bool,
    a: Value,
    b: Value,
    second: Second,
) -> Value {
    if propagate {
        return match max {
            true => l.b.ins().fmax(a, b),
            false => l.b.ins().fmin(a, b),
        };
    }
    // One instruction: the second where both are zeros, or one is NaN.
    let first = pick(l, max, a, b);
    if second == Second::Plain {
        return first;
    }
    let other = pick(l, max, b, a);
    // They differ in the sign of zeros, or where a NaN is.
    let mut result = match max {
        true => l.b.ins().band(first, other),
        false => l.b.ins().bor(first, other),
    };
    // A NaN operand gives the other one, two of them the second.
    if second == Second::Any {
        let b_nan = l.b.ins().fcmp(FloatCC::Unordered, b, b);
        result = l.select(b_nan, a, result);
    }
    let a_nan = l.b.ins().fcmp(FloatCC::Unordered, a, a);
    l.select(a_nan, b, result)
}

/// The lesser of two, or the greater; the second where neither is.
fn pick(l: &mut Lower<'_>, max: bool, a: Value, b: Value) -> Value {
    let is_first = match max {
        true => l.b.ins().fcmp(FloatCC::LessThan, b, a),
        false => l.b.ins().fcmp(FloatCC::LessThan, a, b),
    };
    l.select(is_first, a, b)
}

/// A double whose NaN is made quiet.
fn quiet(l: &mut Lower<'_>, value: Value) -> Value {
    let sum = l.b.ins().fadd(value, value);
    let nan = l.b.ins().fcmp(FloatCC::Unordered, value, value);
    l.select(nan, sum, value)
}

/// Gives `value` the sign of `a` xor that of `b`, unless it is NaN.
pub(crate) fn xor_sign(l: &mut Lower<'_>, value: Value, a: Value, b: Value) -> Value {
    let (a_bits, b_bits) = (bits(l, a), bits(l, b));
    let sign = l.b.ins().bxor(a_bits, b_bits);
    let sign = from_bits(l, sign);
    let signed = l.b.ins().fcopysign(value, sign);
    let nan = l.b.ins().fcmp(FloatCC::Unordered, value, value);
    l.select(nan, value, signed)
}

#[derive(Debug)]
struct Extremum {
    max: bool,
    ty: Type,
    ftz: bool,
    propagate: bool,
    xorsign: bool,
    args: [Arg; 3],
}

/// Decodes `min` and `max` of `.f32` and `.f64`.
pub(crate) fn decode_extremum(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let modifiers = Modifiers::read(r)?;
    let ty = r.ty_of(&[Type::F32, Type::F64])?;
    modifiers.no_rounding(r)?;
    let allowed: &[Flag] = match ty {
        Type::F32 => &[Flag::Ftz, Flag::Nan, Flag::Xorsign, Flag::Abs],
        _ => &[],
    };
    modifiers.allow(r, allowed)?;
    if r.args.len() == 4 {
        return Err(r.invalid("the form with three inputs is of sm_100".into()));
    }
    if modifiers.has(Flag::Xorsign) != modifiers.has(Flag::Abs) {
        return Err(r.invalid(".xorsign and .abs go together".into()));
    }
    Ok(Box::new(Extremum {
        max: r.opcode == "max",
        ty,
        ftz: modifiers.has(Flag::Ftz),
        propagate: modifiers.has(Flag::Nan),
        xorsign: modifiers.has(Flag::Xorsign),
        args: r.finish()?,
    }))
}

/// What an operand is that is a literal, or a register that holds one, as the second of `max`, or
/// of `min`.
fn literal(l: &Lower<'_>, arg: &Arg, max: bool) -> Second {
    let number = match arg {
        Arg::Imm(number) => Some(*number),
        Arg::Reg(register) => l.steady.numbers.get(register).copied(),
        _ => None,
    };
    let value = match number {
        Some(Immediate::F32(bits)) => f64::from(f32::from_bits(bits)),
        Some(Immediate::F64(bits)) => f64::from_bits(bits),
        _ => return Second::Any,
    };
    match value {
        nan if nan.is_nan() => Second::Any,
        // With `.ftz`, what is subnormal counts as zero.
        zero if zero.abs() < f64::from(f32::MIN_POSITIVE) && zero.is_sign_negative() == max => {
            Second::Number
        }
        _ => Second::Plain,
    }
}

impl Operation for Extremum {
    fn pure(&self) -> bool {
        true
    }

    fn vectorizes(&self) -> bool {
        !self.xorsign
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let [dst, mut a, mut b] = self.args.each_ref();
        if literal(l, a, self.max) != Second::Any {
            std::mem::swap(&mut a, &mut b);
        }
        let second = literal(l, b, self.max);
        let [a, b] = [a, b].map(|arg| {
            let value = l.read(arg, self.ty);
            flush_if(l, self.ftz, value)
        });
        let value = match self.xorsign {
            true => {
                let (a_abs, b_abs) = (l.b.ins().fabs(a), l.b.ins().fabs(b));
                let second_abs = match second {
                    Second::Any => Second::Any,
                    _ => Second::Number,
                };
                let value = extremum(l, self.max, self.propagate, a_abs, b_abs, second_abs);
                xor_sign(l, value, a, b)
            }
            false => extremum(l, self.max, self.propagate, a, b, second),
        };
        let value = match self.ty == Type::F64 && second == Second::Any {
            true => quiet(l, value),
            false => value,
        };
        match second == Second::Any || self.propagate {
            true => l.write_float(dst, self.ty, value),
            // It is no NaN.
            false => l.write(dst, self.ty, value),
        }
    }
}

#[derive(Debug)]
struct Sign {
    negate: bool,
    ty: Type,
    ftz: bool,
    args: [Arg; 2],
}

/// Decodes `abs` and `neg` of `.f32` and `.f64`.
pub(crate) fn decode_sign(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let modifiers = Modifiers::read(r)?;
    let ty = r.ty_of(&[Type::F32, Type::F64])?;
    modifiers.no_rounding(r)?;
    modifiers.allow(r, if ty == Type::F32 { &[Flag::Ftz] } else { &[] })?;
    Ok(Box::new(Sign {
        negate: r.opcode == "neg",
        ty,
        ftz: modifiers.has(Flag::Ftz),
        args: r.finish()?,
    }))
}

impl Operation for Sign {
    fn pure(&self) -> bool {
        true
    }

    fn vectorizes(&self) -> bool {
        true
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let [dst, a] = &self.args;
        let value = l.read(a, self.ty);
        let value = flush_if(l, self.ftz, value);
        // A double that is NaN keeps its sign, and is made quiet.
        let value = match (self.negate, self.ty) {
            (true, Type::F64) => {
                let zero = const_f64(l, (-0f64).to_bits());
                l.b.ins().fsub(zero, value)
            }
            (false, Type::F64) => {
                let absolute = l.b.ins().fabs(value);
                let sum = l.b.ins().fadd(value, value);
                let nan = l.b.ins().fcmp(FloatCC::Unordered, value, value);
                l.select(nan, sum, absolute)
            }
            (true, _) => l.b.ins().fneg(value),
            (false, _) => l.b.ins().fabs(value),
        };
        l.write_float(dst, self.ty, value);
    }
}

#[derive(Debug)]
struct Copysign {
    ty: Type,
    args: [Arg; 3],
}

/// Decodes `copysign`.
pub(crate) fn decode_copysign(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    Ok(Box::new(Copysign {
        ty: r.ty_of(&[Type::F32, Type::F64])?,
        args: r.finish()?,
    }))
}

impl Operation for Copysign {
    fn pure(&self) -> bool {
        true
    }

    fn vectorizes(&self) -> bool {
        true
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let [dst, sign, magnitude] = &self.args;
        let (sign, magnitude) = (l.read(sign, self.ty), l.read(magnitude, self.ty));
        let value = match l.in_vectors() {
            true => {
                let bits = match self.ty {
                    Type::F32 => const_f32(l, (-0f32).to_bits()),
                    _ => const_f64(l, (-0f64).to_bits()),
                };
                l.b.ins().bitselect(bits, sign, magnitude)
            }
            false => l.b.ins().fcopysign(magnitude, sign),
        };
        l.write(dst, self.ty, value);
    }
}

#[derive(Clone, Copy, Debug)]
enum Property {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}

#[derive(Debug)]
struct Testp {
    property: Property,
    ty: Type,
    args: [Arg; 2],
}

/// Decodes `testp`.
pub(crate) fn decode_testp(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    Ok(Box::new(Testp {
        property: r.expect_any(&[
            ("finite", Property::Finite),
            ("infinite", Property::Infinite),
            ("number", Property::Number),
            ("notanumber", Property::NotANumber),
            ("normal", Property::Normal),
            ("subnormal", Property::Subnormal),
        ])?,
        ty: r.ty_of(&[Type::F32, Type::F64])?,
        args: r.finish()?,
    }))
}

impl Operation for Testp {
    fn pure(&self) -> bool {
        true
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let [dst, a] = &self.args;
        let value = l.read(a, self.ty);
        let result = self.test(l, value);
        l.write(dst, Type::Pred, result);
    }
}

impl Testp {
    fn test(&self, l: &mut Lower<'_>, value: Value) -> Value {
        let all = bits(l, value);
        let (integer, infinity, least_normal) = match self.ty {
            Type::F32 => (types::I32, 0x7f80_0000, 0x0080_0000),
            _ => (types::I64, 0x7ff0_0000_0000_0000, 0x0010_0000_0000_0000),
        };
        // Without the sign, magnitudes order as integers: zero, subnormal, normal, infinity, NaN.
        let doubled = l.b.ins().ishl_imm(all, 1);
        let magnitude = l.b.ins().ushr_imm(doubled, 1);
        let infinity = l.b.ins().iconst(integer, infinity);
        let against_infinity = match self.property {
            Property::Finite => IntCC::UnsignedLessThan,
            Property::Infinite => IntCC::Equal,
            Property::Number => IntCC::UnsignedLessThanOrEqual,
            Property::NotANumber => IntCC::UnsignedGreaterThan,
            Property::Normal | Property::Subnormal => {
                // Zero less one is the greatest integer, so it is neither below the limit nor in
                // the subnormal range.
                let less_one = l.b.ins().iadd_imm(magnitude, -1);
                let limit = l.b.ins().iconst(integer, least_normal - 1);
                let subnormal = l.b.ins().icmp(IntCC::UnsignedLessThan, less_one, limit);
                if let Property::Subnormal = self.property {
                    return subnormal;
                }
                let finite = l.b.ins().icmp(IntCC::UnsignedLessThan, magnitude, infinity);
                return l.b.ins().band_not(finite, subnormal);
            }
        };
        l.b.ins().icmp(against_infinity, magnitude, infinity)
    }
}

/// `value` if it is not below zero, otherwise +0; NaN stays (`.relu`).
pub(crate) fn relu(l: &mut Lower<'_>, value: Value) -> Value {
    let zero = const_f32(l, 0);
    let keep = l.b.ins().fcmp(FloatCC::UnorderedOrGreaterThan, value, zero);
    l.select(keep, value, zero)
}
