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
//! | `tanh` | 2^-11 relative; 2^-10.987 absolute in `.f16`, 2^-8 in `.bf16` | 1 ulp; as `ex2` |
//! | `rcp`, `div.full`, `div.approx` | 1 ulp, 2 ulp, 2 ulp | correctly rounded |
//! | `sqrt`, `rsqrt` | 2^-23, 2^-22.9 relative | correctly rounded, 1 ulp (2^-23) |
//! | `rsqrt.approx.f64` | none given | the nearest double or its neighbour |
//! | `rcp.approx.ftz.f64`, `rsqrt.approx.ftz.f64` | a gross approximation of 20 bits | the true value cut to 20 bits |

//!
//! `sin` and `cos` work as the device does: the angle is first multiplied by 1/2pi, which is
//! rounded to a single towards zero, so an angle too great for that to leave a fraction counts as a
//! whole number of turns. With that the results are within 2^-21 of an H200's for all angles.

use std::f64::consts::TAU;

use super::runtime;

/// The fraction of a turn that an angle is, of the angle's sign.
fn turn(angle: f32) -> f64 {
    const PART: f32 = std::f32::consts::FRAC_1_PI * 0.5;
    // Exact, as 24 bits times 24.
    let product = f64::from(angle) * f64::from(PART);
    let nearest = product as f32;
    let turns = match f64::from(nearest).abs() > product.abs() {
        true => f32::from_bits(nearest.to_bits() - 1),
        false => nearest,
    };
    match turns.abs() < f32::MIN_POSITIVE {
        true => 0f64.copysign(f64::from(angle)),
        false => f64::from(turns - turns.trunc()).copysign(f64::from(angle)),
    }
}

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
    /// The sine.
    SIN_F32 = fn softcuda_sin_f32(x: f32) -> f32 {
        let turn = turn(x);
        match turn.abs() == 0.5 {
            true => 0f32.copysign(x),
            false => (turn * TAU).sin() as f32,
        }
    }
    /// The cosine.
    COS_F32 = fn softcuda_cos_f32(x: f32) -> f32 {
        let turn = turn(x).abs();
        match turn == 0.25 || turn == 0.75 {
            true => 0.0,
            false => (turn * TAU).cos() as f32,
        }
    }
    /// The hyperbolic tangent.
    TANH_F32 = fn softcuda_tanh_f32(x: f32) -> f32 { x.tanh() }
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

    /// Arguments from memory, and what an H200 gave.
    #[test]
    fn large_angles() {
        for (angle, sine, cosine) in [
            (0x4640_0000u32, 0xbf71_4c7au32, 0xbeab_01f8u32),
            (0x47fe_a267, 0x3e22_abaa, 0xbf7c_bfc9),
            (0x4665_9bb3, 0xbf7e_06c2, 0x3dfd_d092),
            (0x47db_e91e, 0xbee0_9248, 0x3f66_0f88),
            (0xc834_80cf, 0xbebe_1d45, 0xbf6d_b292),
            (0x4b19_85fa, 0x8000_0000, 0xbf80_0000),
            (0x4850_ff5f, 0x3f73_1447, 0xbea0_9ae5),
            (0x4964_8392, 0xbef1_5ae7, 0x3f61_c596),
        ] {
            let [angle, sine, cosine] = [angle, sine, cosine].map(f32::from_bits);
            let bound = 2f32.powi(-21);
            assert!((softcuda_sin_f32(angle) - sine).abs() < bound, "{angle}");
            assert!((softcuda_cos_f32(angle) - cosine).abs() < bound, "{angle}");
        }
    }

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
