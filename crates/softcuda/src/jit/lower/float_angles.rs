//! `sin.approx.f32`, `cos.approx.f32` and `tanh.approx.f32`: polynomials, for one value or a vector
//! of them, as in [`float_powers`](super::float_powers).
//!
//! Sines and cosines work as the device's do: the angle is first multiplied by 1/2pi, which is
//! rounded to a single towards zero, so an angle too great for that to leave a fraction counts as a
//! whole number of turns. With that, results are within 2^-21 of an H200's for all angles.

use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, Value};

use super::Lower;
use super::float::fma;
use super::float_powers::ROUND;
use super::float_value::{bits, flush_f32, from_bits, number_like, zero_of_sign};

/// sin(2 pi r) / r in r^2, for |r| <= 1/4: its values at Chebyshev's points, less [`TURN`].
const SINES: [f32; 5] = [-2.018_74e-7, -41.341_68, 81.602_48, -76.581_17, 39.759_827];
/// 2 pi.
const TURN: f32 = std::f32::consts::TAU;
/// 1 / (2 pi).
const PART: f32 = std::f32::consts::FRAC_1_PI * 0.5;

/// tanh(x) / x in x^2, for |x| <= 1/2: its values at Chebyshev's points.
const TANGENTS: [f32; 5] = [1.0, -0.333_330_7, 0.133_247_5, -0.052_984_24, 0.017_131_344];
/// 2 / ln(2).
const DOUBLED: f32 = 2.0 * std::f32::consts::LOG2_E;

impl Lower<'_> {
    /// sin(x).
    pub(super) fn sine(&mut self, x: Value) -> Value {
        let part = self.part_of_turn(x);
        let (rest, sign) = self.half_turns(part);
        let sine = self.sine_of_turns(rest);
        let sine = self.with_sign(sine, sign);
        // A half turn gives a zero of the angle's sign, as none does.
        let zero = self.single(0.0);
        let whole = self.b.ins().fcmp(FloatCC::Equal, rest, zero);
        let zero = zero_of_sign(self, x);
        self.select(whole, zero, sine)
    }

    /// cos(x).
    pub(super) fn cosine(&mut self, x: Value) -> Value {
        let part = self.part_of_turn(x);
        let (rest, sign) = self.half_turns(part);
        let (quarter, rest) = (self.single(0.25), self.b.ins().fabs(rest));
        let rest = self.b.ins().fsub(quarter, rest);
        let cosine = self.sine_of_turns(rest);
        let cosine = self.with_sign(cosine, sign);
        // No zero is negative.
        let zero = self.single(0.0);
        self.b.ins().fadd(cosine, zero)
    }

    /// tanh(x).
    pub(super) fn hyperbolic_tangent(&mut self, x: Value) -> Value {
        let square = self.b.ins().fmul(x, x);
        let series = self.polynomial(square, &TANGENTS);
        let small = self.b.ins().fmul(x, series);
        // 1 - 2 / (e^2x + 1), of the magnitude.
        let magnitude = self.b.ins().fabs(x);
        let (doubled, one, two) = (self.single(DOUBLED), self.single(1.0), self.single(2.0));
        let power = self.b.ins().fmul(magnitude, doubled);
        let power = self.power_of_2(power);
        let more = self.b.ins().fadd(power, one);
        let less = self.b.ins().fdiv(two, more);
        let large = self.b.ins().fsub(one, less);
        let sign = zero_of_sign(self, x);
        let large = self.b.ins().bor(large, sign);
        let half = self.single(0.5);
        let is_small = self.b.ins().fcmp(FloatCC::LessThan, magnitude, half);
        self.select(is_small, small, large)
    }

    /// The fraction of a turn that an angle is, of the angle's sign.
    fn part_of_turn(&mut self, x: Value) -> Value {
        let (part, zero) = (self.single(PART), self.single(0.0));
        let nearest = self.b.ins().fmul(x, part);
        // How much more the product is: of another sign where rounding took it away from zero.
        let negative = self.b.ins().fneg(nearest);
        let error = fma(self, x, part, negative);
        let mut compare = |a, b| self.b.ins().fcmp(FloatCC::LessThan, a, b);
        let (above, below) = (compare(zero, nearest), compare(nearest, zero));
        let (more, less) = (compare(zero, error), compare(error, zero));
        let (above, below) = (
            self.b.ins().band(above, less),
            self.b.ins().band(below, more),
        );
        let away = self.b.ins().bor(above, below);
        let all = bits(self, nearest);
        let one = number_like(self, all, 1);
        let nearer = self.b.ins().isub(all, one);
        let nearer = from_bits(self, nearer);
        let turns = self.select(away, nearer, nearest);
        let turns = flush_f32(self, turns);
        let whole = self.b.ins().trunc(turns);
        let fraction = self.b.ins().fsub(turns, whole);
        let sign = zero_of_sign(self, x);
        self.b.ins().bor(fraction, sign)
    }

    /// What of a turn is left beyond the nearest number of half turns, and the sign that a sine or
    /// cosine gets by these.
    fn half_turns(&mut self, part: Value) -> (Value, Value) {
        let (round, half) = (self.single(ROUND), self.single(0.5));
        let twice = self.b.ins().fadd(part, part);
        let sum = self.b.ins().fadd(twice, round);
        let count = self.b.ins().fsub(sum, round);
        let halves = self.b.ins().fmul(count, half);
        let rest = self.b.ins().fsub(part, halves);
        let sum = bits(self, sum);
        (rest, self.b.ins().ishl_imm(sum, 31))
    }

    /// sin(2 pi r), for |r| <= 1/4.
    fn sine_of_turns(&mut self, rest: Value) -> Value {
        let square = self.b.ins().fmul(rest, rest);
        let series = self.polynomial(square, &SINES);
        let less = self.b.ins().fmul(rest, series);
        let turn = self.single(TURN);
        fma(self, rest, turn, less)
    }

    /// Changes a value's sign where that of the bits is set.
    fn with_sign(&mut self, value: Value, sign: Value) -> Value {
        let all = bits(self, value);
        let signed = self.b.ins().bxor(all, sign);
        from_bits(self, signed)
    }
}
