//! Arithmetic on `.f16`, `.bf16` and their packed pairs: add, sub, mul, fma, neg, abs, min, max,
//! ex2, tanh.
//!
//! Values are widened to `.f32`, computed there, and rounded back once:
//! - a sum or product of two halves, rounded first to 24 bits and then to 11 or 8, is what rounding
//!   once gives, since 24 is at least twice 11 plus 2, and a product or a sum of subnormals is
//!   exact in `.f32`;
//! - the product in `fma.f16` is exact in `.f32`, and the sum is rounded to odd there;
//! - `fma.bf16` has no such bound on its operands: the runtime computes it, or in vectors, the same
//!   is done in `.f64`.
//!
//! Where the processor converts halves by itself, so do vectors of them.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use ptx::ast::Type;
use smallvec::SmallVec;

use super::Lower;
use super::convert::format_of;
use super::float::host_has_fma;
use super::float_modifiers::{Flag, Modifiers};
use super::float_sign::{Second, extremum, relu, xor_sign};
use super::float_value::{
    NAN_HALF, and_number, bits, compare_number, const_f64, const_like, from_bits, half_number,
    halves, narrow, number_like, pair, saturate, widen,
};
use crate::jit::decode::{Arg, Operation, Reader, Refusal};
use crate::jit::runtime::half;

const TYPES: [Type; 4] = [Type::F16, Type::Bf16, Type::F16x2, Type::Bf16x2];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Add,
    Sub,
    Mul,
    Fma,
    Neg,
    Abs,
    Min,
    Max,
    Ex2,
    Tanh,
}

#[derive(Debug)]
struct Half {
    op: Op,
    /// `.f16` or `.bf16`.
    ty: Type,
    /// Two of them in one register.
    packed: bool,
    modifiers: Modifiers,
    dst: Arg,
    sources: SmallVec<[Arg; 3]>,
}

/// Decodes every instruction of the family.
pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let (op, sources) = match r.opcode {
        "add" => (Op::Add, 2),
        "sub" => (Op::Sub, 2),
        "mul" => (Op::Mul, 2),
        "fma" => (Op::Fma, 3),
        "neg" => (Op::Neg, 1),
        "abs" => (Op::Abs, 1),
        "min" => (Op::Min, 2),
        "max" => (Op::Max, 2),
        "ex2" => (Op::Ex2, 1),
        "tanh" => (Op::Tanh, 1),
        _ => return Err(r.invalid("does not take halves".into())),
    };
    let modifiers = Modifiers::read(r)?;
    if r.peek() == Some("f32") {
        return Err(r.invalid("mixed precision is of sm_100".into()));
    }
    let ty = r.ty_of(&TYPES)?;
    let bf16 = matches!(ty, Type::Bf16 | Type::Bf16x2);
    let allowed: &[Flag] = match (op, bf16) {
        (Op::Add | Op::Sub | Op::Mul, false) => &[Flag::Ftz, Flag::Sat],
        (Op::Fma, false) => &[Flag::Ftz, Flag::Sat, Flag::Relu, Flag::Oob],
        (Op::Fma, true) => &[Flag::Relu, Flag::Oob],
        (Op::Neg | Op::Abs, false) => &[Flag::Ftz],
        (Op::Min | Op::Max, false) => &[Flag::Ftz, Flag::Nan, Flag::Xorsign, Flag::Abs],
        (Op::Min | Op::Max, true) => &[Flag::Nan, Flag::Xorsign, Flag::Abs],
        (Op::Ex2, true) => &[Flag::Approx, Flag::Ftz],
        (Op::Ex2, false) | (Op::Tanh, _) => &[Flag::Approx],
        _ => &[],
    };
    modifiers.allow(r, allowed)?;
    let has = |flag| modifiers.has(flag);
    match op {
        Op::Add | Op::Sub | Op::Mul | Op::Fma => {
            if modifiers.mode(r, op != Op::Fma)? != crate::jit::runtime::float::Rounding::Nearest {
                return Err(r.invalid("halves round to nearest only".into()));
            }
        }
        _ => modifiers.no_rounding(r)?,
    }
    if has(Flag::Sat) && has(Flag::Relu) || has(Flag::Oob) && has(Flag::Ftz) {
        return Err(r.invalid("modifiers exclude each other".into()));
    }
    if has(Flag::Xorsign) != has(Flag::Abs) {
        return Err(r.invalid(".xorsign and .abs go together".into()));
    }
    if matches!(op, Op::Ex2 | Op::Tanh) && !has(Flag::Approx) {
        return Err(r.invalid(".approx is required".into()));
    }
    if op == Op::Ex2 && bf16 && !has(Flag::Ftz) {
        return Err(r.invalid(".ftz is required".into()));
    }
    r.end()?;
    if r.args.len() != sources + 1 {
        return Err(r.invalid(format!(
            "takes {} operands, not {}",
            sources + 1,
            r.args.len()
        )));
    }
    Ok(Box::new(Half {
        op,
        ty: if bf16 { Type::Bf16 } else { Type::F16 },
        packed: matches!(ty, Type::F16x2 | Type::Bf16x2),
        modifiers,
        dst: r.args[0].clone(),
        sources: r.args[1..].iter().cloned().collect(),
    }))
}

impl Operation for Half {
    fn pure(&self) -> bool {
        true
    }

    fn vectorizes(&self) -> bool {
        match self.op {
            Op::Ex2 | Op::Tanh => host_has_fma(),
            _ => !self.modifiers.has(Flag::Xorsign),
        }
    }

    fn vectorizes_short(&self) -> bool {
        self.vectorizes()
    }

    fn lower(&self, l: &mut Lower<'_>) {
        if self.lower_at_once(l) {
            return;
        }
        let mut low = SmallVec::<[Value; 3]>::new();
        let mut high = SmallVec::<[Value; 3]>::new();
        let ty = self.operand_type();
        for source in &self.sources {
            let value = l.read(source, ty);
            match self.packed {
                false => low.push(value),
                true => {
                    let [l_half, h_half] = halves(l, value);
                    low.push(l_half);
                    high.push(h_half);
                }
            }
        }
        let mut result = self.one(l, &low);
        if self.packed {
            let upper = self.one(l, &high);
            result = pair(l, [result, upper]);
        }
        l.write(&self.dst, ty, result);
    }
}

impl Half {
    fn operand_type(&self) -> Type {
        match (self.packed, self.ty) {
            (false, ty) => ty,
            (true, Type::Bf16) => Type::Bf16x2,
            (true, _) => Type::F16x2,
        }
    }

    /// Computes the halves of a vector as they lie there, whichever is a pair's first.
    #[cfg(target_arch = "x86_64")]
    fn lower_at_once(&self, l: &mut Lower<'_>) -> bool {
        use super::float_value::{eight_by_four, halves_go_at_once};
        use crate::jit::runtime::halves::{FMA_BF16, FMA_F16};
        if !self.modifiers.is_plain() || !halves_go_at_once(l) {
            return false;
        }
        let ty = self.operand_type();
        let read = |l: &mut Lower<'_>, at: usize| {
            let value = l.read(&self.sources[at], ty);
            l.as_vector(value, types::I32X4)
        };
        let result = match (self.op, self.ty, self.packed) {
            (Op::Add | Op::Sub | Op::Mul, Type::F16, true) => {
                let operands = [0, 1].map(|at| read(l, at));
                eight_by_four(l, operands, |l, [a, b]| match self.op {
                    Op::Add => l.b.ins().fadd(a, b),
                    Op::Sub => l.b.ins().fsub(a, b),
                    _ => l.b.ins().fmul(a, b),
                })
            }
            // That takes more than a call.
            (Op::Fma, Type::F16, true) | (Op::Fma, Type::Bf16, _) => {
                let operands = [0, 1, 2].map(|at| read(l, at));
                let function = match self.ty {
                    Type::Bf16 => &FMA_BF16,
                    _ => &FMA_F16,
                };
                l.call_value(function, &operands)
            }
            _ => return false,
        };
        l.write(&self.dst, ty, result);
        true
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn lower_at_once(&self, _: &mut Lower<'_>) -> bool {
        false
    }

    /// One half from halves: `I16`, or in vectors, words.
    fn one(&self, l: &mut Lower<'_>, operands: &[Value]) -> Value {
        if matches!(self.op, Op::Neg | Op::Abs) {
            return self.sign(l, operands[0]);
        }
        // `ex2.ftz.bf16` needs no flush: what is subnormal in `.bf16` is near 1 when raised, and
        // flushed as a single.
        let ftz = self.modifiers.has(Flag::Ftz) && self.ty == Type::F16;
        let wide: SmallVec<[Value; 3]> = operands
            .iter()
            .map(|operand| widen(l, self.ty, ftz, *operand))
            .collect();
        let result = match self.op {
            Op::Fma => return self.fused(l, operands, &wide, ftz),
            Op::Add => l.b.ins().fadd(wide[0], wide[1]),
            Op::Sub => l.b.ins().fsub(wide[0], wide[1]),
            Op::Mul => l.b.ins().fmul(wide[0], wide[1]),
            Op::Ex2 => l.power_of_2(wide[0]),
            Op::Tanh => l.hyperbolic_tangent(wide[0]),
            Op::Min | Op::Max => self.extremum(l, wide[0], wide[1]),
            Op::Neg | Op::Abs => unreachable!("dealt with above"),
        };
        let result = match self.modifiers.has(Flag::Sat) {
            true => saturate(l, result),
            false => result,
        };
        let result = narrow(l, self.ty, result);
        let ftz = ftz || self.op == Op::Ex2 && self.ty == Type::Bf16;
        self.flush_result(l, ftz, result)
    }

    fn sign(&self, l: &mut Lower<'_>, value: Value) -> Value {
        let value = self.flush_result(l, self.modifiers.has(Flag::Ftz), value);
        let magnitude = and_number(l, value, 0x7fff);
        let result = match self.op {
            Op::Neg => {
                let sign = half_number(l, 0x8000);
                l.b.ins().bxor(value, sign)
            }
            _ => magnitude,
        };
        let infinity = format_of(self.ty).infinity() as i64;
        let is_nan = compare_number(l, IntCC::SignedGreaterThan, magnitude, infinity);
        let nan = half_number(l, NAN_HALF);
        l.select(is_nan, nan, result)
    }

    fn extremum(&self, l: &mut Lower<'_>, a: Value, b: Value) -> Value {
        let max = self.op == Op::Max;
        let propagate = self.modifiers.has(Flag::Nan);
        if !self.modifiers.has(Flag::Xorsign) {
            return extremum(l, max, propagate, a, b, Second::Any);
        }
        let (a_abs, b_abs) = (l.b.ins().fabs(a), l.b.ins().fabs(b));
        let value = extremum(l, max, propagate, a_abs, b_abs, Second::Any);
        xor_sign(l, value, a, b)
    }

    fn fused(&self, l: &mut Lower<'_>, operands: &[Value], wide: &[Value], ftz: bool) -> Value {
        let single = match (self.ty, l.in_vectors()) {
            (Type::Bf16, false) => {
                let bits = l.call_value(&half::FMA_BF16, wide);
                let bits = l.b.ins().ireduce(types::I16, bits);
                return self.modified(l, operands, bits);
            }
            (Type::Bf16, true) => fused_doubles(l, wide),
            _ => {
                let product = l.b.ins().fmul(wide[0], wide[1]);
                sum_to_odd(l, product, wide[2])
            }
        };
        let result = narrow(l, self.ty, single);
        let result = self.flush_result(l, ftz, result);
        self.modified(l, operands, result)
    }

    /// What the modifiers of `fma` make of a result.
    fn modified(&self, l: &mut Lower<'_>, operands: &[Value], result: Value) -> Value {
        let mut result = result;
        let zero = half_number(l, 0);
        if self.modifiers.has(Flag::Sat) {
            let value = widen(l, self.ty, false, result);
            let value = saturate(l, value);
            result = narrow(l, self.ty, value);
        }
        if self.modifiers.has(Flag::Relu) {
            let value = widen(l, self.ty, false, result);
            let value = relu(l, value);
            result = narrow(l, self.ty, value);
        }
        if self.modifiers.has(Flag::Oob) {
            for operand in operands {
                let oob = compare_number(l, IntCC::Equal, *operand, OOB_NAN);
                result = l.select(oob, zero, result);
            }
        }
        result
    }

    /// A subnormal half becomes a zero of its sign.
    fn flush_result(&self, l: &mut Lower<'_>, ftz: bool, value: Value) -> Value {
        if !ftz {
            return value;
        }
        let least_normal = match self.ty {
            Type::Bf16 => 0x0080,
            _ => 0x0400,
        };
        let magnitude = and_number(l, value, 0x7fff);
        let subnormal = compare_number(l, IntCC::SignedLessThan, magnitude, least_normal);
        let zero = and_number(l, value, 0x8000);
        l.select(subnormal, zero, value)
    }
}

/// The NaN that marks an element from outside of a tensor.
const OOB_NAN: i64 = 0x7fff;

/// The sum of two singles or doubles, or those of vectors, rounded to odd: where it is not exact,
/// the one of the two next to it whose last bit is 1. Rounded again to at least two bits less, it
/// gives what rounding the sum itself gives. What is added is so far from the ends of its format
/// that neither an error nor its product with the sum vanishes, nor is too great.
fn sum_to_odd(l: &mut Lower<'_>, a: Value, b: Value) -> Value {
    let sum = l.b.ins().fadd(a, b);
    let part = l.b.ins().fsub(sum, a);
    let rest = l.b.ins().fsub(sum, part);
    let (of_a, of_b) = (l.b.ins().fsub(a, rest), l.b.ins().fsub(b, part));
    let error = l.b.ins().fadd(of_a, of_b);
    // Infinity and NaN have no error that compares.
    let side = l.b.ins().fmul(error, sum);
    let zero = const_like(l, side, 0.0);
    let too_great = l.b.ins().fcmp(FloatCC::LessThan, side, zero);
    let too_small = l.b.ins().fcmp(FloatCC::LessThan, zero, side);
    let all = bits(l, sum);
    let one = number_like(l, all, 1);
    let less = l.b.ins().isub(all, one);
    let (less, same) = (l.b.ins().bor(less, one), l.b.ins().bor(all, one));
    let result = l.select(too_small, same, all);
    let result = l.select(too_great, less, result);
    from_bits(l, result)
}

/// `fma` of vectors of singles that are `.bf16`, as singles that round to what it gives as `.bf16`.
/// Products of such are exact as doubles.
fn fused_doubles(l: &mut Lower<'_>, wide: &[Value]) -> Value {
    let parts = [[0, 1, 0, 1], [2, 3, 2, 3]].map(|words| {
        let doubles: SmallVec<[Value; 3]> = wide
            .iter()
            .map(|value| {
                let part = l.shuffled(*value, *value, words);
                l.b.ins().fvpromote_low(part)
            })
            .collect();
        let product = l.b.ins().fmul(doubles[0], doubles[1]);
        let sum = sum_to_odd(l, product, doubles[2]);
        // What is subnormal as a single is rounded here: added to this, the last bit of a double
        // weighs what the least `.bf16` does.
        let magnitude = l.b.ins().fabs(sum);
        let unit = const_f64(l, 2f64.powi(52 - 133).to_bits());
        let rounded = l.b.ins().fadd(magnitude, unit);
        let rounded = l.b.ins().fsub(rounded, unit);
        let zero = const_f64(l, (-0f64).to_bits());
        let sign = l.b.ins().band(sum, zero);
        let rounded = l.b.ins().bor(rounded, sign);
        let least_normal = const_f64(l, f64::from(f32::MIN_POSITIVE).to_bits());
        let small = l.b.ins().fcmp(FloatCC::LessThan, magnitude, least_normal);
        let value = l.select(small, rounded, sum);
        // The bits that a single has no room for become one, its last.
        let all = bits(l, value);
        let cut = number_like(l, all, (1 << 29) - 1);
        let below = l.b.ins().band(all, cut);
        // Adding all ones carries into bit 29 if anything is set below it.
        let carried = l.b.ins().iadd(below, cut);
        let kept = l.b.ins().bor(all, carried);
        let kept = l.b.ins().band_not(kept, cut);
        let kept = from_bits(l, kept);
        l.b.ins().fvdemote(kept)
    });
    l.shuffled(parts[0], parts[1], [0, 1, 4, 5])
}
