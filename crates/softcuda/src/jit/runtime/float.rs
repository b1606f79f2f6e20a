//! Exact floating-point arithmetic in every rounding mode and binary format.
//!
//! The host's own instructions round to nearest. Everything else is computed exactly here, as an
//! integer and an exponent ([`Exact`]), and rounded once by [`round`]; the host's rounding mode is
//! never touched. Where an intermediate result does not fit, it keeps a *sticky* last bit: set when
//! anything was cut off. Three bits more than the target has are then enough to round rightly in
//! every mode.
//!
//! Operations on single and half operands go through `f64` instead: their exact results fit, but
//! for a last bit that [`odd_sum`] and its like set in the same way.

use std::cmp::Ordering;

use super::runtime;
use crate::grid::context::{CONTINUE, Floats, Status, ThreadContext};

/// A rounding mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rounding {
    /// `.rn`, `.rni`: to nearest, ties to even.
    Nearest,
    /// `.rz`, `.rzi`: toward zero.
    Zero,
    /// `.rm`, `.rmi`: toward negative infinity.
    Down,
    /// `.rp`, `.rpi`: toward positive infinity.
    Up,
    /// `.rna`: to nearest, ties away from zero.
    Away,
}

impl Rounding {
    /// As a number that crosses into the runtime.
    pub fn code(self) -> i64 {
        self as i64
    }

    pub(super) fn from_code(code: u32) -> Rounding {
        match code {
            0 => Rounding::Nearest,
            1 => Rounding::Zero,
            2 => Rounding::Down,
            3 => Rounding::Up,
            _ => Rounding::Away,
        }
    }
}

/// A binary floating-point format with infinities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Bits of the exponent field.
    pub exponent: u32,
    /// Bits of the fraction field.
    pub fraction: u32,
}

impl Format {
    /// `.f16`
    pub const F16: Format = Format {
        exponent: 5,
        fraction: 10,
    };
    /// `.bf16`
    pub const BF16: Format = Format {
        exponent: 8,
        fraction: 7,
    };
    /// `.tf32`, without the 13 low bits of its register.
    pub const TF32: Format = Format {
        exponent: 8,
        fraction: 10,
    };
    /// `.f32`
    pub const F32: Format = Format {
        exponent: 8,
        fraction: 23,
    };
    /// `.f64`
    pub const F64: Format = Format {
        exponent: 11,
        fraction: 52,
    };
    /// `.e5m2`
    pub const E5M2: Format = Format {
        exponent: 5,
        fraction: 2,
    };

    const fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// The bits of positive infinity.
    pub const fn infinity(self) -> u64 {
        ((1 << self.exponent) - 1) << self.fraction
    }

    /// The sign bit.
    pub const fn sign(self) -> u64 {
        1 << (self.exponent + self.fraction)
    }

    /// The canonical NaN: every bit but the sign.
    pub const fn nan(self) -> u64 {
        self.sign() - 1
    }
}

/// A finite number that is not zero: `significand * 2^exponent`, negated if `negative`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exact {
    /// Below zero.
    pub negative: bool,
    /// Not zero. The last bit may be sticky.
    pub significand: u128,
    /// Of the significand's last bit.
    pub exponent: i32,
}

impl Exact {
    /// The value of a double; `None` for zero, infinity and NaN.
    pub fn of(value: f64) -> Option<Exact> {
        let bits = value.to_bits();
        let field = (bits >> 52 & 0x7ff) as i32;
        let fraction = bits & ((1 << 52) - 1);
        let (significand, exponent) = match field {
            0x7ff => return None,
            0 if fraction == 0 => return None,
            0 => (fraction, -1074),
            _ => (fraction | 1 << 52, field - 1075),
        };
        Some(Exact {
            negative: value.is_sign_negative(),
            significand: u128::from(significand),
            exponent,
        })
    }

    /// The same number with its leading bit at 126, so that another fits above it.
    fn normalized(self) -> Exact {
        let shift = self.significand.leading_zeros() as i32 - 1;
        Exact {
            significand: self.significand << shift,
            exponent: self.exponent - shift,
            ..self
        }
    }

    pub(crate) fn times(self, other: Exact) -> Exact {
        Exact {
            negative: self.negative != other.negative,
            significand: self.significand * other.significand,
            exponent: self.exponent + other.exponent,
        }
    }

    /// The sum; `None` when it is zero. Both significands have at most 106 bits.
    pub(crate) fn plus(self, other: Exact) -> Option<Exact> {
        let (mut large, mut small) = (self.normalized(), other.normalized());
        if large.exponent < small.exponent {
            (large, small) = (small, large);
        }
        // Normalized, both have 20 zeros at the end: a shift that loses bits is at least 21, so no
        // cancellation can bring the sticky bit near the bits that count.
        let distance = (large.exponent - small.exponent) as u32;
        small.significand = shift_right_sticky(small.significand, distance);
        let (negative, significand) = if large.negative == small.negative {
            (large.negative, large.significand + small.significand)
        } else {
            match large.significand.cmp(&small.significand) {
                Ordering::Equal => return None,
                Ordering::Greater => (large.negative, large.significand - small.significand),
                Ordering::Less => (small.negative, small.significand - large.significand),
            }
        };
        Some(Exact {
            negative,
            significand,
            exponent: large.exponent,
        })
    }
}

/// Shifts right; what falls off sets the last bit.
fn shift_right_sticky(value: u128, distance: u32) -> u128 {
    match value.checked_shr(distance) {
        Some(kept) => kept | u128::from(kept << distance != value),
        None => 1,
    }
}

/// Rounds to a format: its bits, the last of them lowest. Overflow gives infinity or the greatest
/// finite number, as the mode says.
pub(crate) fn round(format: Format, value: Exact, mode: Rounding) -> u64 {
    let leading = value.exponent + 127 - value.significand.leading_zeros() as i32;
    let scale = leading.max(1 - format.bias());
    let last = scale - format.fraction as i32;
    let (kept, rest) = match last - value.exponent {
        up @ ..=0 => (value.significand << -up, Ordering::Less),
        // Twice what is cut off against one unit of what is kept; `Less` with an exact result means
        // nothing was cut off.
        down @ 1..=127 => {
            let kept = value.significand >> down;
            let cut = value.significand & ((1 << down) - 1);
            (kept, cut.cmp(&(1 << (down - 1))))
        }
        _ => (0, Ordering::Less),
    };
    let exact = match last - value.exponent {
        ..=0 => true,
        down @ 1..=127 => value.significand.trailing_zeros() as i32 >= down,
        _ => false,
    };
    let away = !exact
        && match mode {
            Rounding::Nearest => match rest {
                Ordering::Less => false,
                Ordering::Equal => kept & 1 == 1,
                Ordering::Greater => true,
            },
            Rounding::Away => rest != Ordering::Less,
            Rounding::Zero => false,
            Rounding::Down => value.negative,
            Rounding::Up => !value.negative,
        };
    let kept = kept as u64 + u64::from(away);
    // The hidden bit and a carry add themselves to the exponent field.
    let field = (scale + format.bias() - 1).min(1 << format.exponent) as u64;
    let mut bits = (field << format.fraction) + kept;
    if bits >= format.infinity() {
        let toward_infinity = match mode {
            Rounding::Nearest | Rounding::Away => true,
            Rounding::Zero => false,
            Rounding::Down => value.negative,
            Rounding::Up => !value.negative,
        };
        bits = format.infinity() - u64::from(!toward_infinity);
    }
    match value.negative {
        true => bits | format.sign(),
        false => bits,
    }
}

/// A double rounded to a format that is no wider. Zeros and infinities keep their sign, NaN becomes
/// canonical.
pub(crate) fn narrow(format: Format, value: f64, mode: Rounding) -> u64 {
    match Exact::of(value) {
        Some(exact) => round(format, exact, mode),
        None if value.is_nan() => format.nan(),
        None => {
            let magnitude = match value == 0.0 {
                true => 0,
                false => format.infinity(),
            };
            match value.is_sign_negative() {
                true => magnitude | format.sign(),
                false => magnitude,
            }
        }
    }
}

/// An integer rounded to a format.
pub(crate) fn narrow_integer(
    format: Format,
    negative: bool,
    magnitude: u64,
    mode: Rounding,
) -> u64 {
    match magnitude {
        0 => 0,
        _ => round(
            format,
            Exact {
                negative,
                significand: u128::from(magnitude),
                exponent: 0,
            },
            mode,
        ),
    }
}

/// The sign of an exact zero sum: that of both operands, otherwise positive but in mode `Down`.
fn zero_sum(a: f64, b: f64, mode: Rounding) -> f64 {
    match mode {
        Rounding::Down if a.is_sign_negative() || b.is_sign_negative() => -0.0,
        _ => a + b,
    }
}

/// `value` moved one step toward `error`, if there is an error and the last bit of `value` is 0:
/// rounding to odd, which any later rounding to fewer bits sees as the exact value.
fn odd(value: f64, error: f64) -> f64 {
    let bits = value.to_bits();
    if error == 0.0 || bits & 1 == 1 || !value.is_finite() {
        return value;
    }
    match (error > 0.0) == (value > 0.0) {
        true => f64::from_bits(bits + 1),
        false => f64::from_bits(bits - 1),
    }
}

/// The sum rounded to odd. For operands far from the ends of the range, as those made of singles
/// are.
pub(crate) fn odd_sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let rest = sum - a;
    odd(sum, (a - (sum - rest)) + (b - rest))
}

/// `a * b + c` of singles or halves, rounded to a format.
pub(crate) fn fma_narrow(format: Format, a: f32, b: f32, c: f32, mode: Rounding) -> u64 {
    let (product, addend) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = odd_sum(product, addend);
    match sum == 0.0 {
        true => narrow(format, zero_sum(product, addend, mode), mode),
        false => narrow(format, sum, mode),
    }
}

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// Quotient of singles, rounded to odd.
fn odd_quotient(a: f32, b: f32) -> f64 {
    let (a, b) = (f64::from(a), f64::from(b));
    let quotient = a / b;
    let remainder = (-quotient).mul_add(b, a);
    match remainder.is_nan() {
        true => quotient,
        false => odd(quotient, remainder * b.signum()),
    }
}

/// A NaN made quiet, any other value as it is. (An addition of 0 would be left out by the
/// compiler.)
fn quiet(value: f64) -> f64 {
    match value.is_nan() {
        true => f64::from_bits(value.to_bits() | 1 << 51),
        false => value,
    }
}

/// `a * b + c` rounded in any mode. Of several NaNs that of `b`, then of `a`, as x86-64 does.
pub(crate) fn fma_exact(a: f64, b: f64, c: f64, mode: Rounding) -> f64 {
    if let Some(nan) = [b, a, c].into_iter().find(|operand| operand.is_nan()) {
        return quiet(nan);
    }
    let product = match (Exact::of(a), Exact::of(b)) {
        (Some(a), Some(b)) => a.times(b),
        // The product is zero, or not finite and then so is the result.
        _ => {
            let product = a * b;
            return match product == 0.0 && c == 0.0 {
                true => zero_sum(product, c, mode),
                false if product == 0.0 => quiet(c),
                false => a.mul_add(b, c),
            };
        }
    };
    let sum = match Exact::of(c) {
        Some(c) => match product.plus(c) {
            Some(sum) => sum,
            None => return zero_sum(1.0, -1.0, mode),
        },
        None if c == 0.0 => product,
        None => return quiet(c),
    };
    f64::from_bits(round(Format::F64, sum, mode))
}

/// `a * b` rounded in any mode.
pub(crate) fn mul_exact(a: f64, b: f64, mode: Rounding) -> f64 {
    match (Exact::of(a), Exact::of(b)) {
        (Some(a), Some(b)) => f64::from_bits(round(Format::F64, a.times(b), mode)),
        // Of two NaNs the second, as the device gives; the compiler is free to exchange the
        // factors.
        _ if b.is_nan() => quiet(b),
        _ if a.is_nan() => quiet(a),
        _ => a * b,
    }
}

/// `a / b` rounded in any mode.
pub(crate) fn div_exact(a: f64, b: f64, mode: Rounding) -> f64 {
    let (Some(dividend), Some(divisor)) = (Exact::of(a), Exact::of(b)) else {
        return a / b;
    };
    // At least 74 bits of quotient.
    let dividend = dividend.normalized();
    let quotient = dividend.significand / divisor.significand;
    let inexact = dividend.significand % divisor.significand != 0;
    let exact = Exact {
        negative: dividend.negative != divisor.negative,
        significand: quotient | u128::from(inexact),
        exponent: dividend.exponent - divisor.exponent,
    };
    f64::from_bits(round(Format::F64, exact, mode))
}

/// The square root rounded in any mode.
pub(crate) fn sqrt_exact(a: f64, mode: Rounding) -> f64 {
    let Some(exact) = Exact::of(a).filter(|exact| !exact.negative) else {
        return a.sqrt();
    };
    let mut square = exact.normalized();
    if square.exponent % 2 != 0 {
        square.significand >>= 1;
        square.exponent += 1;
    }
    // 63 bits of root.
    let root = square.significand.isqrt();
    let inexact = root * root != square.significand;
    let exact = Exact {
        negative: false,
        significand: root << 1 | u128::from(inexact),
        exponent: square.exponent / 2 - 1,
    };
    f64::from_bits(round(Format::F64, exact, mode))
}

fn fma_floats(thread: *mut ThreadContext, mode: Rounding) -> Status {
    // SAFETY: compiled code hands on the context that it was given, and nothing else uses it and
    // its block's meanwhile.
    let Floats([to, b, c]) = unsafe { &mut (*(*thread).block).floats };
    for (a, (b, c)) in to.iter_mut().zip(b.iter().zip(c.iter())) {
        *a = single(fma_narrow(Format::F32, *a, *b, *c, mode));
    }
    CONTINUE
}

runtime! {
    /// `a / b` of singles.
    DIV_F32 = fn softcuda_div_f32(a: f32, b: f32, mode: u32) -> f32 {
        single(narrow(Format::F32, odd_quotient(a, b), Rounding::from_code(mode)))
    }
    /// The square root of a single.
    SQRT_F32 = fn softcuda_sqrt_f32(a: f32, mode: u32) -> f32 {
        let a = f64::from(a);
        let root = a.sqrt();
        single(narrow(Format::F32, odd(root, (-root).mul_add(root, a)), Rounding::from_code(mode)))
    }
    /// `a * b + c` of singles to nearest, where the host has no instruction for it.
    FMA_RN_F32 = fn softcuda_fma_rn_f32(a: f32, b: f32, c: f32) -> f32 { a.mul_add(b, c) }
    /// `a * b + c` of doubles to nearest, where the host has no instruction for it.
    FMA_RN_F64 = fn softcuda_fma_rn_f64(a: f64, b: f64, c: f64) -> f64 { a.mul_add(b, c) }
    /// `a * b + c` of four singles each, which lie in the [block's context](Floats), rounded down.
    FMA_DOWN = fn softcuda_fma_down(thread: *mut ThreadContext) -> u32 { fma_floats(thread, Rounding::Down) }
    /// The same, rounded up.
    FMA_UP = fn softcuda_fma_up(thread: *mut ThreadContext) -> u32 { fma_floats(thread, Rounding::Up) }
    /// `a + b` of doubles. Of two NaNs the second, as the device gives.
    ADD_F64 = fn softcuda_add_f64(a: f64, b: f64, mode: u32) -> f64 {
        fma_exact(b, 1.0, a, Rounding::from_code(mode))
    }
    /// `a - b` of doubles. A NaN keeps its sign.
    SUB_F64 = fn softcuda_sub_f64(a: f64, b: f64, mode: u32) -> f64 {
        match b.is_nan() {
            true => fma_exact(a, 1.0, b, Rounding::Nearest),
            false => fma_exact(a, 1.0, -b, Rounding::from_code(mode)),
        }
    }
    /// `a * b` of doubles.
    MUL_F64 = fn softcuda_mul_f64(a: f64, b: f64, mode: u32) -> f64 {
        mul_exact(a, b, Rounding::from_code(mode))
    }
    /// `a * b + c` of doubles.
    FMA_F64 = fn softcuda_fma_f64(a: f64, b: f64, c: f64, mode: u32) -> f64 {
        fma_exact(a, b, c, Rounding::from_code(mode))
    }
    /// `a / b` of doubles.
    DIV_F64 = fn softcuda_div_f64(a: f64, b: f64, mode: u32) -> f64 {
        div_exact(a, b, Rounding::from_code(mode))
    }
    /// The square root of a double.
    SQRT_F64 = fn softcuda_sqrt_f64(a: f64, mode: u32) -> f64 {
        sqrt_exact(a, Rounding::from_code(mode))
    }
}

#[cfg(test)]
pub(crate) mod tests;
