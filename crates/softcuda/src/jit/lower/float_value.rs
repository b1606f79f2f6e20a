//! What every floating-point family needs of a value: flush, saturate, canonical NaN, widen and
//! narrow halves.
//!
//! # NaN
//!
//! | result | NaN bits |
//! |---|---|
//! | `.f32` arithmetic | `0x7fffffff`, whatever the operands |
//! | `.f16`, `.bf16` arithmetic | `0x7fff` |
//! | `.f64` arithmetic | the operand's payload, made quiet; `0xfff8000000000000` where no operand is NaN |
//! | `.f32`, `.f16` from `.f64` | the payload's upper bits, made quiet |
//!
//! An H200 gave all of these. What it gives for `.f64` is what x86-64 does by itself, but where two
//! operands of `sub` or `fma` are NaN the two may pick different ones. For `.f32` it takes an
//! instruction or two for each operation, so it is left out where nothing can see the bits
//! ([`Lower::nan_bits_matter`]): an operation on NaN gives NaN whatever its payload.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::immediates::{Ieee32, Ieee64};
use cranelift_codegen::ir::{InstBuilder, MemFlags, Value, types};
use ptx::ast::Type;

use super::Lower;
use crate::jit::decode::Arg;
#[cfg(target_arch = "x86_64")]
use crate::jit::runtime::halves as at_once;

/// The NaN of `.f32` arithmetic.
pub(crate) const NAN_F32: u32 = 0x7fff_ffff;
/// The NaN of `.f16` and `.bf16` arithmetic.
pub(crate) const NAN_HALF: i64 = 0x7fff;

/// A constant single, by its bits.
pub(crate) fn const_f32(l: &mut Lower<'_>, bits: u32) -> Value {
    let value = l.b.ins().f32const(Ieee32::with_bits(bits));
    l.spread(value)
}

/// A constant double, by its bits.
pub(crate) fn const_f64(l: &mut Lower<'_>, bits: u64) -> Value {
    let value = l.b.ins().f64const(Ieee64::with_bits(bits));
    l.spread(value)
}

/// 0 or 1 of the same type as `like`.
pub(crate) fn const_like(l: &mut Lower<'_>, like: Value, value: f32) -> Value {
    match l.b.func.dfg.value_type(like).lane_type() {
        types::F64 => const_f64(l, f64::from(value).to_bits()),
        _ => const_f32(l, value.to_bits()),
    }
}

/// The bits of a float as an integer.
pub(crate) fn bits(l: &mut Lower<'_>, value: Value) -> Value {
    let ty = l.b.func.dfg.value_type(value);
    match ty.is_vector() {
        true => l.as_vector(value, ty.as_int()),
        false => l.b.ins().bitcast(ty.as_int(), MemFlags::new(), value),
    }
}

/// The float of these bits.
pub(crate) fn from_bits(l: &mut Lower<'_>, value: Value) -> Value {
    let ty = match l.b.func.dfg.value_type(value) {
        types::I64 => types::F64,
        types::I32X4 => return l.as_vector(value, types::F32X4),
        types::I64X2 => return l.as_vector(value, types::F64X2),
        _ => types::F32,
    };
    l.b.ins().bitcast(ty, MemFlags::new(), value)
}

/// A subnormal single becomes a zero of its sign (`.ftz`).
pub(crate) fn flush_f32(l: &mut Lower<'_>, value: Value) -> Value {
    let magnitude = l.b.ins().fabs(value);
    let least_normal = const_f32(l, f32::MIN_POSITIVE.to_bits());
    let subnormal = l.b.ins().fcmp(FloatCC::LessThan, magnitude, least_normal);
    let zero = zero_of_sign(l, value);
    l.select(subnormal, zero, value)
}

/// A single zero of a value's sign.
pub(crate) fn zero_of_sign(l: &mut Lower<'_>, value: Value) -> Value {
    let sign = const_f32(l, (-0f32).to_bits());
    l.b.ins().band(value, sign)
}

/// Flushes if asked to.
pub(crate) fn flush_if(l: &mut Lower<'_>, ftz: bool, value: Value) -> Value {
    match ftz {
        true => flush_f32(l, value),
        false => value,
    }
}

/// Clamps to [0, 1]; NaN and -0 become +0 (`.sat`).
pub(crate) fn saturate(l: &mut Lower<'_>, value: Value) -> Value {
    let zero = const_like(l, value, 0.0);
    let one = const_like(l, value, 1.0);
    let positive = l.b.ins().fcmp(FloatCC::LessThan, zero, value);
    let floored = l.select(positive, value, zero);
    let below = l.b.ins().fcmp(FloatCC::LessThan, floored, one);
    l.select(below, floored, one)
}

/// Any NaN becomes [`NAN_F32`].
pub(crate) fn canonical_f32(l: &mut Lower<'_>, value: Value) -> Value {
    let unordered = l.b.ins().fcmp(FloatCC::Unordered, value, value);
    let nan = const_f32(l, NAN_F32);
    l.select(unordered, nan, value)
}

/// The low and the high half of a packed pair: each an `I16`, or in vectors, words whose upper half
/// is zero.
pub(crate) fn halves(l: &mut Lower<'_>, pair: Value) -> [Value; 2] {
    let high = l.b.ins().ushr_imm(pair, 16);
    match l.in_vectors() {
        true => [and_number(l, pair, 0xffff), high],
        false => [pair, high].map(|half| l.b.ins().ireduce(types::I16, half)),
    }
}

/// The pair of two halves.
pub(crate) fn pair(l: &mut Lower<'_>, halves: [Value; 2]) -> Value {
    let [low, high] = halves.map(|half| word_of(l, half));
    let high = l.b.ins().ishl_imm(high, 16);
    l.b.ins().bor(low, high)
}

/// A half (`I16`, or in vectors, words) as a word.
fn word_of(l: &mut Lower<'_>, half: Value) -> Value {
    match l.in_vectors() {
        true => half,
        false => l.b.ins().uextend(types::I32, half),
    }
}

/// The other way round.
fn half_of(l: &mut Lower<'_>, word: Value) -> Value {
    match l.in_vectors() {
        true => word,
        false => l.b.ins().ireduce(types::I16, word),
    }
}

/// A number as a half.
pub(crate) fn half_number(l: &mut Lower<'_>, number: i64) -> Value {
    let value = l.b.ins().iconst(types::I16, number);
    l.spread(value)
}

/// An integer of a value's type, or a vector of it.
pub(crate) fn number_like(l: &mut Lower<'_>, like: Value, number: i64) -> Value {
    let ty = l.b.func.dfg.value_type(like);
    let element = ty.lane_type();
    // Cranelift wants constants without bits beyond their type.
    let shift = 64 - element.bits();
    let number =
        l.b.ins()
            .iconst(element, ((number as u64) << shift >> shift) as i64);
    match ty.is_vector() {
        true => l.b.ins().splat(ty, number),
        false => number,
    }
}

/// The bits of a value, or of those of a vector, that are set in a number.
pub(crate) fn and_number(l: &mut Lower<'_>, value: Value, number: i64) -> Value {
    let number = number_like(l, value, number);
    l.b.ins().band(value, number)
}

/// Whether a value, or those of a vector, and a number compare so.
pub(crate) fn compare_number(
    l: &mut Lower<'_>,
    condition: IntCC,
    value: Value,
    number: i64,
) -> Value {
    let number = number_like(l, value, number);
    l.b.ins().icmp(condition, value, number)
}

/// A `.f16` or `.bf16` (its bits, `I16`, or in vectors, words) as the single of the same value;
/// `ftz` flushes a subnormal `.f16`. NaN stays NaN, with its payload moved to the top of the
/// single's.
pub(crate) fn widen(l: &mut Lower<'_>, ty: Type, ftz: bool, value: Value) -> Value {
    let wide = word_of(l, value);
    if ty == Type::Bf16 {
        let shifted = l.b.ins().ishl_imm(wide, 16);
        return from_bits(l, shifted);
    }
    #[cfg(target_arch = "x86_64")]
    if !ftz && halves_go_at_once(l) {
        let halves = l.b.ins().unarrow(wide, wide);
        return widen_four(l, halves);
    }
    // Sign, exponent and fraction go where a single has them; what the shift copies of the sign
    // goes.
    let high = l.b.ins().ishl_imm(wide, 16);
    let spread = l.b.ins().sshr_imm(high, 3);
    let shifted = and_number(l, spread, 0x8fff_e000);
    // The exponent field is now off by 127 - 15. A multiplication corrects it for subnormals too;
    // infinity and NaN need the full exponent.
    let number = from_bits(l, shifted);
    let scale = const_f32(l, (127 + 127 - 15) << 23);
    let scaled = l.b.ins().fmul(number, scale);
    let scaled = bits(l, scaled);
    let exponent = and_number(l, shifted, 0x0f80_0000);
    let is_special = compare_number(l, IntCC::Equal, exponent, 0x0f80_0000);
    let full = number_like(l, scaled, 0x7f80_0000);
    let special = l.b.ins().bor(scaled, full);
    let mut result = l.select(is_special, special, scaled);
    if ftz {
        let subnormal = compare_number(l, IntCC::Equal, exponent, 0);
        let sign = and_number(l, result, 0x8000_0000);
        result = l.select(subnormal, sign, result);
    }
    from_bits(l, result)
}

/// A single rounded to the nearest `.f16` or `.bf16`, ties to even, as its bits (`I16`, or in
/// vectors, words); NaN becomes [`NAN_HALF`].
pub(crate) fn narrow(l: &mut Lower<'_>, ty: Type, value: Value) -> Value {
    #[cfg(target_arch = "x86_64")]
    if ty == Type::F16 && halves_go_at_once(l) {
        let halves = narrow_four(l, value);
        let words = l.b.ins().uwiden_low(halves);
        let unordered = l.b.ins().fcmp(FloatCC::Unordered, value, value);
        let nan = l.word(NAN_HALF);
        return l.select(unordered, nan, words);
    }
    if ty == Type::Bf16 {
        return narrow_bf16(l, value);
    }
    let all = bits(l, value);
    let sign = l.b.ins().ushr_imm(all, 16);
    let sign = and_number(l, sign, 0x8000);
    let magnitude = and_number(l, all, 0x7fff_ffff);
    // From here on, a half is infinite.
    let limit = number_like(l, magnitude, (127 + 16) << 23);
    let finite = l.b.ins().smin(magnitude, limit);
    let rounded = without_last(l, finite, 13, -((127 - 15) << 23));
    // Below the least normal half: adding one half leaves a sum whose last bit weighs 2^-24, so
    // the adder rounds.
    let small = from_bits(l, magnitude);
    let half = const_f32(l, 0.5f32.to_bits());
    let sum = l.b.ins().fadd(small, half);
    let sum = bits(l, sum);
    let half = number_like(l, sum, i64::from(0.5f32.to_bits()));
    let subnormal = l.b.ins().isub(sum, half);
    let is_small = compare_number(l, IntCC::SignedLessThan, magnitude, 113 << 23);
    let result = l.select(is_small, subnormal, rounded);
    let result = l.b.ins().bor(result, sign);
    let nan = l.word(NAN_HALF);
    let is_nan = compare_number(l, IntCC::SignedGreaterThan, magnitude, 0x7f80_0000);
    let result = l.select(is_nan, nan, result);
    half_of(l, result)
}

/// The same of `.bf16`, which is a single's upper half.
fn narrow_bf16(l: &mut Lower<'_>, value: Value) -> Value {
    let all = bits(l, value);
    let rounded = without_last(l, all, 16, 0);
    let unordered = l.b.ins().fcmp(FloatCC::Unordered, value, value);
    let nan = l.word(NAN_HALF);
    let result = l.select(unordered, nan, rounded);
    half_of(l, result)
}

/// Words without their last bits, rounded to nearest, after `bias` is added.
fn without_last(l: &mut Lower<'_>, words: Value, drop: i64, bias: i64) -> Value {
    // Half a unit less one, and one more where the last bit kept is odd: ties go to even, and a
    // carry moves on into the exponent, up to infinity.
    let odd = l.b.ins().ushr_imm(words, drop);
    let odd = and_number(l, odd, 1);
    let half = number_like(l, words, (1i64 << (drop - 1)) - 1 + bias);
    let rounded = l.b.ins().iadd(words, half);
    let rounded = l.b.ins().iadd(rounded, odd);
    l.b.ins().ushr_imm(rounded, drop)
}

/// The singles of the four `.f16` in the lower half of a vector, by the processor's instruction.
#[cfg(target_arch = "x86_64")]
fn widen_four(l: &mut Lower<'_>, halves: Value) -> Value {
    let halves = l.as_vector(halves, types::F64X2);
    let singles = l.b.ins().floor(halves);
    l.as_vector(singles, types::F32X4)
}

/// The other way round, as `I16X8`; NaN is any.
#[cfg(target_arch = "x86_64")]
fn narrow_four(l: &mut Lower<'_>, singles: Value) -> Value {
    let singles = l.as_vector(singles, types::F64X2);
    let halves = l.b.ins().ceil(singles);
    l.as_vector(halves, types::I16X8)
}

/// What `compute` makes of singles, for vectors of eight `.f16`: four at a time.
#[cfg(target_arch = "x86_64")]
pub(crate) fn eight_by_four<const N: usize>(
    l: &mut Lower<'_>,
    operands: [Value; N],
    compute: impl Fn(&mut Lower<'_>, [Value; N]) -> Value,
) -> Value {
    let upper = operands.map(|eight| l.shuffled(eight, eight, [2, 3, 2, 3]));
    let [low, high] = [operands, upper].map(|halves| {
        let singles = halves.map(|four| widen_four(l, four));
        compute(l, singles)
    });
    let [of_low, of_high] = [low, high].map(|four| narrow_four(l, four));
    let halves = l.shuffled(of_low, of_high, [0, 1, 4, 5]);
    let [of_low, of_high] = [low, high].map(|four| {
        let unordered = l.b.ins().fcmp(FloatCC::Unordered, four, four);
        l.as_vector(unordered, types::I32X4)
    });
    let unordered = l.b.ins().snarrow(of_low, of_high);
    let halves = l.as_vector(halves, types::I16X8);
    let nan = number_like(l, halves, NAN_HALF);
    let result = l.b.ins().bitselect(unordered, nan, halves);
    l.as_vector(result, types::I32X4)
}

/// Whether vectors of halves are converted by the processor's own instructions: here by their
/// [stand-ins](crate::jit::stand_ins), in the runtime where that takes more than a few.
#[cfg(target_arch = "x86_64")]
pub(crate) fn halves_go_at_once(l: &Lower<'_>) -> bool {
    // Tests want both ways.
    let may = !cfg!(test) || l.body.steps.len().is_multiple_of(2);
    may && l.in_vectors() && at_once::are_there()
}

impl Lower<'_> {
    /// Puts the result of `.f32` or `.f64` arithmetic into a destination, with the NaN that the
    /// device gives.
    pub(crate) fn write_float(&mut self, dst: &Arg, ty: Type, value: Value) {
        let value = match ty == Type::F32 && self.nan_bits_matter(dst) {
            true => canonical_f32(self, value),
            false => value,
        };
        self.write(dst, ty, value);
    }

    /// Whether anything can see which NaN a register holds.
    pub(crate) fn nan_bits_matter(&self, dst: &Arg) -> bool {
        match dst {
            Arg::Reg(id) => {
                let (tables, at) = (&self.body.tables, id.0 as usize);
                tables.seen_nans[at] && !tables.lazy_nans[at]
            }
            _ => true,
        }
    }
}
