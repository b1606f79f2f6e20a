//! Conversions that round otherwise than the host does, or to formats it has not.

use super::float::{Exact, Format, Rounding, narrow, narrow_integer, round};
use super::runtime;

/// A destination format and a rounding mode as one number that crosses into the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The format.
    pub format: Format,
    /// The mode.
    pub mode: Rounding,
}

impl Target {
    /// As a number.
    pub fn code(self) -> i64 {
        i64::from(self.format.exponent)
            | i64::from(self.format.fraction) << 8
            | self.mode.code() << 16
    }

    fn from_code(code: u32) -> Target {
        Target {
            format: Format {
                exponent: code & 0xff,
                fraction: code >> 8 & 0xff,
            },
            mode: Rounding::from_code(code >> 16 & 0xff),
        }
    }
}

/// `.e4m3` rounded to nearest, without infinity: what is greater than 448 becomes 448. NaN has all
/// bits but the sign.
fn e4m3(value: f64) -> u8 {
    let sign = u8::from(value.is_sign_negative()) << 7;
    // The format has the greatest exponent for numbers too. With one bit more of exponent, whose
    // bias is 15 rather than 7, the same fields stand for a number 2^8 times smaller.
    const WIDER: Format = Format {
        exponent: 5,
        fraction: 3,
    };
    match Exact::of(value) {
        Some(exact) => {
            let scaled = Exact {
                negative: false,
                exponent: exact.exponent - 8,
                ..exact
            };
            sign | round(WIDER, scaled, Rounding::Nearest).min(0x7e) as u8
        }
        None if value.is_nan() => 0x7f,
        None if value == 0.0 => sign,
        None => sign | 0x7e,
    }
}

/// `.e5m2` rounded to nearest; what is greater than 57344 becomes that.
fn e5m2(value: f64) -> u8 {
    let bits = narrow(Format::E5M2, value, Rounding::Nearest) as u8;
    match bits & 0x7f {
        0x7c => bits - 1,
        _ => bits,
    }
}

/// The `.f16` of an `.e4m3`; all of them fit.
pub(crate) const fn e4m3_to_f16(bits: u8) -> u16 {
    let bits = bits as u16;
    let sign = (bits & 0x80) << 8;
    let (field, fraction) = (bits >> 3 & 0xf, bits & 7);
    match (field, fraction) {
        (0xf, 7) => 0x7fff,
        (0, 0) => sign,
        // A subnormal is `fraction * 2^-9`: its leading bit becomes the hidden one.
        (0, _) => {
            let up = fraction.leading_zeros() as u16 - 12;
            sign | (9 - up) << 10 | (fraction << up & 7) << 7
        }
        _ => sign | (field + 8) << 10 | fraction << 7,
    }
}

/// The `.f16` of an `.e5m2`: its upper byte.
fn e5m2_to_f16(bits: u8) -> u16 {
    match bits & 0x7f {
        0x7d.. => 0x7fff,
        _ => u16::from(bits) << 8,
    }
}

/// Added to a [`Target::code`]: a NaN stays itself, as far as there is room for it, rather than
/// become canonical.
pub(crate) const KEEP_PAYLOAD: i64 = 1 << 24;
/// Set in the code of an 8-bit conversion for `.e4m3`; otherwise `.e5m2`.
pub(crate) const FP8_E4M3: i64 = 1;
/// Set for `.relu`.
pub(crate) const FP8_RELU: i64 = 2;

runtime! {
    /// A double in a format that is no wider, as its bits; `code` is a [`Target::code`], with
    /// [`KEEP_PAYLOAD`] or without.
    NARROW = fn softcuda_narrow(value: f64, code: u32) -> u64 {
        let Target { format, mode } = Target::from_code(code);
        match value.is_nan() && code >> 24 != 0 {
            // Quiet, with the sign and the upper bits of the payload.
            true => {
                let bits = value.to_bits();
                let sign = (bits >> 63) * format.sign();
                let fraction = bits << 12 >> (64 - format.fraction);
                sign | format.infinity() | 1 << (format.fraction - 1) | fraction
            }
            false => narrow(format, value, mode),
        }
    }
    /// An unsigned integer in a format, as its bits.
    NARROW_UNSIGNED = fn softcuda_narrow_unsigned(value: u64, code: u32) -> u64 {
        let target = Target::from_code(code);
        narrow_integer(target.format, false, value, target.mode)
    }
    /// A signed integer in a format, as its bits.
    NARROW_SIGNED = fn softcuda_narrow_signed(value: i64, code: u32) -> u64 {
        let target = Target::from_code(code);
        narrow_integer(target.format, value < 0, value.unsigned_abs(), target.mode)
    }
    /// A pair of 8-bit floats, `high` in the upper byte; `code` is made of [`FP8_E4M3`] and
    /// [`FP8_RELU`].
    TO_FP8X2 = fn softcuda_to_fp8x2(high: f32, low: f32, code: u32) -> u32 {
        let [high, low] = [high, low].map(|value| {
            let value = match i64::from(code) & FP8_RELU != 0 && value <= 0.0 {
                true => 0.0,
                false => f64::from(value),
            };
            u32::from(match i64::from(code) & FP8_E4M3 != 0 {
                true => e4m3(value),
                false => e5m2(value),
            })
        });
        high << 8 | low
    }
    /// A pair of `.f16` from a pair of 8-bit floats.
    FROM_FP8X2 = fn softcuda_from_fp8x2(pair: u32, code: u32) -> u32 {
        let [high, low] = [(pair >> 8) as u8, pair as u8].map(|bits| {
            let half = match i64::from(code) & FP8_E4M3 != 0 {
                true => e4m3_to_f16(bits),
                false => e5m2_to_f16(bits),
            };
            // Negative, and no NaN: those are positive by now.
            match i64::from(code) & FP8_RELU != 0 && half & 0x8000 != 0 {
                true => 0,
                false => u32::from(half),
            }
        });
        high << 16 | low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    fn value_e4m3(bits: u8) -> f64 {
        let (field, fraction) = (i32::from(bits >> 3 & 0xf), f64::from(bits & 7));
        let magnitude = match field {
            0 => fraction / 8.0 * 2f64.powi(-6),
            _ => (1.0 + fraction / 8.0) * 2f64.powi(field - 7),
        };
        if bits & 0x80 != 0 {
            -magnitude
        } else {
            magnitude
        }
    }

    #[test]
    fn e4m3_is_exhaustively_right() {
        for bits in 0..=255u8 {
            let half = f16::from_bits(e4m3_to_f16(bits));
            if bits & 0x7f == 0x7f {
                assert_eq!(half.to_bits(), 0x7fff);
                continue;
            }
            let value = value_e4m3(bits);
            assert_eq!(half.to_f64().to_bits(), value.to_bits(), "{bits:02x}");
            assert_eq!(e4m3(value), bits);
            if bits & 0x7f < 0x7e {
                let next = value_e4m3(bits + 1);
                let middle = (value + next) / 2.0;
                assert_eq!(e4m3(middle), bits + (bits & 1));
                assert_eq!(e4m3(f64::from_bits(middle.to_bits() - 1)), bits);
                assert_eq!(e4m3(f64::from_bits(middle.to_bits() + 1)), bits + 1);
            }
        }
        assert_eq!(e4m3(460.0), 0x7e);
        assert_eq!(e4m3(1e300), 0x7e);
        assert_eq!(e4m3(f64::NEG_INFINITY), 0xfe);
        assert_eq!(e4m3(-f64::NAN), 0x7f);
    }

    #[test]
    fn e5m2_is_exhaustively_right() {
        for bits in 0..=255u8 {
            let half = f16::from_bits(e5m2_to_f16(bits));
            match bits & 0x7f {
                0x7d.. => assert_eq!(half.to_bits(), 0x7fff),
                0x7c => assert_eq!(e5m2(half.to_f64()), bits - 1),
                _ => assert_eq!(e5m2(half.to_f64()), bits),
            }
        }
        assert_eq!(e5m2(61440.0), 0x7b);
        assert_eq!(e5m2(f64::NAN), 0x7f);
    }

    #[test]
    fn fp8_pairs_keep_their_order() {
        let e4m3 = FP8_E4M3 as u32;
        assert_eq!(softcuda_to_fp8x2(1.0, -2.0, e4m3), 0x38c0);
        assert_eq!(softcuda_to_fp8x2(1.0, -2.0, e4m3 | FP8_RELU as u32), 0x3800);
        assert_eq!(softcuda_from_fp8x2(0x38c0, e4m3), 0x3c00_c000);
        assert_eq!(
            softcuda_from_fp8x2(0x38c0, e4m3 | FP8_RELU as u32),
            0x3c00_0000
        );
    }
}
