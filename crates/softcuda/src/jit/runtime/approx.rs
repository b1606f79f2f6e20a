//! The functions that PTX computes approximately.
//!
//! The results here are those of the host's mathematical library, which errs by less than one unit
//! in the last place, correctly rounded ones, or those of polynomials. That is inside every
//! documented bound:
//!
//! | instruction | documented error | ours |
//! |---|---|---|
//! | `sin`, `cos` | 2^-20.5 absolute in [-2pi, 2pi], 2^-14.7 in [-100pi, 100pi] | about 2^-21 and 2^-15 |
//! | `lg2` | 2^-22 absolute in (0.5, 2), 2^-22 relative elsewhere | 2 ulp |
//! | `ex2` | 2 ulp; 2^-9.9 relative in `.f16`, 2^-7 in `.bf16` | 2 ulp; correctly rounded but for 2^-12 ulp |
//! | `tanh` | 2^-11 relative; 2^-10.987 absolute in `.f16`, 2^-8 in `.bf16` | 2 ulp; as `ex2` |
//! | `rcp`, `div.full`, `div.approx` | 1 ulp, 2 ulp, 2 ulp | correctly rounded |
//! | `sqrt`, `rsqrt` | 2^-23, 2^-22.9 relative | correctly rounded, 1 ulp (2^-23) |
//! | `rsqrt.approx.f64` | none given | the nearest double or its neighbour |
//! | `rcp.approx.ftz.f64`, `rsqrt.approx.ftz.f64` | a gross approximation of 20 bits | the true value cut to 20 bits |

use super::runtime;

/// The high word alone, as `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64` read and write it,
/// without subnormals.
fn high_word(value: f64) -> f64 {
    let cut = f64::from_bits(value.to_bits() & 0xffff_ffff_0000_0000);
    match cut.abs() < f64::MIN_POSITIVE {
        true => 0f64.copysign(cut),
        false => cut,
    }
}

/// The NaN of the two instructions on the high word.
const NAN_HIGH: f64 = f64::from_bits(0x7fff_ffff_0000_0000);

runtime! {
    /// `rsqrt.approx.f64`: `1 / sqrt(x)`, and a step of Newton's method with its residual to twice
    /// the precision.
    RSQRT_F64 = fn softcuda_rsqrt_f64(x: f64) -> f64 {
        // Squares of very great and very small roots leave the range: by 2^200 at a time.
        let (scaled, back) = match x.abs() {
            magnitude if magnitude > 1e290 => (x * 2f64.powi(-200), 2f64.powi(-100)),
            magnitude if magnitude < 1e-270 => (x * 2f64.powi(200), 2f64.powi(100)),
            _ => (x, 1.0),
        };
        let root = 1.0 / scaled.sqrt();
        if !root.is_normal() {
            return root;
        }
        let square = root * root;
        let rest = root.mul_add(root, -square);
        let residual = (-scaled).mul_add(square, 1.0) - scaled * rest;
        root.mul_add(residual * 0.5, root) * back
    }
    /// `rcp.approx.ftz.f64`
    RCP_HIGH_F64 = fn softcuda_rcp_high_f64(x: f64) -> f64 {
        let x = high_word(x);
        match x.is_nan() {
            true => NAN_HIGH,
            false => high_word(1.0 / x),
        }
    }
    /// `rsqrt.approx.ftz.f64`
    RSQRT_HIGH_F64 = fn softcuda_rsqrt_high_f64(x: f64) -> f64 {
        let x = high_word(x);
        match x.is_nan() || x < 0.0 {
            true => NAN_HIGH,
            false => high_word(1.0 / x.sqrt()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_word_reciprocals_have_the_documented_corners() {
        let rcp = |x: f64| softcuda_rcp_high_f64(x).to_bits();
        let rsqrt = |x: f64| softcuda_rsqrt_high_f64(x).to_bits();
        let inf = f64::INFINITY.to_bits();
        let sign = 1u64 << 63;
        let subnormal = f64::from_bits(0x000f_ffff_ffff_ffff);
        for (x, reciprocal, root) in [
            (-f64::INFINITY, sign, NAN_HIGH.to_bits()),
            (-subnormal, inf | sign, inf | sign),
            (-0.0, inf | sign, inf | sign),
            (0.0, inf, inf),
            (subnormal, inf, inf),
            (f64::INFINITY, 0, 0),
            (f64::NAN, NAN_HIGH.to_bits(), NAN_HIGH.to_bits()),
        ] {
            assert_eq!(rcp(x), reciprocal, "{x:e}");
            assert_eq!(rsqrt(x), root, "{x:e}");
        }
        // Subnormal results are flushed, the low word never counts and is never set.
        assert_eq!(rcp(f64::MAX), 0);
        assert_eq!(rcp(-f64::MAX), sign);
        assert_eq!(
            rcp(f64::from_bits(0x4008_0000_ffff_ffff)),
            rcp(f64::from_bits(0x4008_0000_0000_0000))
        );
        for x in [3.0, 1e-300, 7.5e200, 0.1] {
            assert_eq!(rcp(x) << 32, 0);
            assert!((f64::from_bits(rcp(x)) * x - 1.0).abs() < 4e-6);
            assert!((f64::from_bits(rsqrt(x)).powi(2) * x - 1.0).abs() < 4e-6);
        }
    }
}
