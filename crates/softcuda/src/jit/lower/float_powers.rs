//! `ex2.approx.f32` and `lg2.approx.f32`: polynomials, for one value or a vector of them.
//!
//! Each operation is rounded by itself, so that results are the same on every host and in every
//! form of a kernel.

use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, Value};

use super::Lower;
use super::float::fma;
use super::float_value::{bits, const_f32, from_bits};

/// 2^x for |x| <= 1/2, from the lowest power of x: its values at Chebyshev's points.
const POWERS: [f32; 7] = [
    1.0,
    std::f32::consts::LN_2,
    0.240_226_5,
    0.055_503_27,
    0.009_618_057,
    0.001_340_042_8,
    0.000_154_614_45,
];

/// 2 / (ln(2) (2n + 1)): the series of log2((1 + s) / (1 - s)) / s in s^2.
const LOGARITHMS: [f32; 5] = [
    2.885_39,
    0.961_796_7,
    0.577_078_04,
    0.412_198_6,
    0.320_598_9,
];

/// Beyond this power of 2 everything is 0 or infinite.
const FAR: f32 = 252.0;
/// 2 to this is the least that is not subnormal; to the other, the least that is infinite.
const LEAST: f32 = -126.0;
const MOST: f32 = 128.0;
/// Added to a small number, leaves its nearest integer in the lowest bits.
pub(super) const ROUND: f32 = 12_582_912.0;
/// The bits of the root of 1/2.
const ROOT: u32 = 0x3f35_04f3;

impl Lower<'_> {
    /// 2^x, where a subnormal result becomes 0 (`.ftz`).
    pub(super) fn normal_power_of_2(&mut self, x: Value) -> Value {
        let within = self.limited(x, LEAST, MOST);
        let (power, sum) = self.power_of_fraction(within);
        // Into the exponent: 2^128 is 1 there, and becomes infinite.
        let [sum, power] = [sum, power].map(|value| bits(self, value));
        let exponent = self.b.ins().ishl_imm(sum, 23);
        let power = self.b.ins().iadd(power, exponent);
        let power = from_bits(self, power);
        let (least, zero) = (self.single(LEAST), self.single(0.0));
        let nothing = self.b.ins().fcmp(FloatCC::LessThan, x, least);
        let power = self.select(nothing, zero, power);
        let unordered = self.b.ins().fcmp(FloatCC::Unordered, x, x);
        self.select(unordered, x, power)
    }

    /// 2^x.
    pub(super) fn power_of_2(&mut self, x: Value) -> Value {
        let x = self.limited(x, -FAR, FAR);
        let (power, sum) = self.power_of_fraction(x);
        // Two steps reach the subnormals and the infinite.
        let round = self.single(ROUND);
        let (sum, round) = (bits(self, sum), bits(self, round));
        let exponent = self.b.ins().isub(sum, round);
        let half = self.b.ins().sshr_imm(exponent, 1);
        let rest = self.b.ins().isub(exponent, half);
        let [half, rest] = [half, rest].map(|exponent| {
            let bias = self.word(127);
            let biased = self.b.ins().iadd(exponent, bias);
            let bits = self.b.ins().ishl_imm(biased, 23);
            from_bits(self, bits)
        });
        let power = self.b.ins().fmul(power, half);
        self.b.ins().fmul(power, rest)
    }

    /// `x`, or the limit that it passes; a NaN passes none.
    fn limited(&mut self, x: Value, least: f32, most: f32) -> Value {
        let (most, least) = (self.single(most), self.single(least));
        let passed = self.b.ins().fcmp(FloatCC::LessThan, most, x);
        let x = self.select(passed, most, x);
        let passed = self.b.ins().fcmp(FloatCC::LessThan, x, least);
        self.select(passed, least, x)
    }

    /// 2 to what `x` is more than the nearest integer, and that integer in the lowest bits of a
    /// single.
    fn power_of_fraction(&mut self, x: Value) -> (Value, Value) {
        let round = self.single(ROUND);
        let sum = self.b.ins().fadd(x, round);
        let whole = self.b.ins().fsub(sum, round);
        let fraction = self.b.ins().fsub(x, whole);
        (self.polynomial(fraction, &POWERS), sum)
    }

    /// log2(x).
    pub(super) fn logarithm_to_2(&mut self, x: Value) -> Value {
        let (zero, one) = (self.single(0.0), self.single(1.0));
        let least = self.single(f32::MIN_POSITIVE);
        let small = self.b.ins().fcmp(FloatCC::LessThan, x, least);
        let more = self.single(8_388_608.0);
        let scaled = self.b.ins().fmul(x, more);
        let scaled = self.select(small, scaled, x);
        let less = self.single(-23.0);
        let correction = self.select(small, less, zero);
        // The number is 2^exponent times `mantissa`, which is between the roots of 1/2 and 2.
        let bits = bits(self, scaled);
        let root = self.word(i64::from(ROOT));
        let above = self.b.ins().isub(bits, root);
        let exponent = self.b.ins().sshr_imm(above, 23);
        let shifted = self.b.ins().ishl_imm(exponent, 23);
        let mantissa = self.b.ins().isub(bits, shifted);
        let mantissa = from_bits(self, mantissa);
        let float = self.b.func.dfg.value_type(x);
        let exponent = self.b.ins().fcvt_from_sint(float, exponent);
        let exponent = self.b.ins().fadd(exponent, correction);
        let (less, more) = (
            self.b.ins().fsub(mantissa, one),
            self.b.ins().fadd(mantissa, one),
        );
        let ratio = self.b.ins().fdiv(less, more);
        let square = self.b.ins().fmul(ratio, ratio);
        let series = self.polynomial(square, &LOGARITHMS);
        let logarithm = fma(self, ratio, series, exponent);
        // What is no positive number.
        let infinity = self.single(f32::INFINITY);
        let infinite = self.b.ins().fcmp(FloatCC::Equal, x, infinity);
        let logarithm = self.select(infinite, x, logarithm);
        let nothing = self.b.ins().fcmp(FloatCC::Equal, x, zero);
        let lowest = self.single(f32::NEG_INFINITY);
        let logarithm = self.select(nothing, lowest, logarithm);
        let number = self.b.ins().fcmp(FloatCC::GreaterThanOrEqual, x, zero);
        let nan = const_f32(self, super::float_value::NAN_F32);
        self.select(number, logarithm, nan)
    }

    pub(super) fn single(&mut self, value: f32) -> Value {
        const_f32(self, value.to_bits())
    }

    pub(super) fn polynomial(&mut self, x: Value, coefficients: &[f32]) -> Value {
        let mut coefficients = coefficients.iter().rev();
        let highest = coefficients.next().expect("a polynomial has coefficients");
        let mut sum = self.single(*highest);
        for coefficient in coefficients {
            let coefficient = self.single(*coefficient);
            sum = fma(self, sum, x, coefficient);
        }
        sum
    }
}
