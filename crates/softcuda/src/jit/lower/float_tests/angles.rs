//! Sines, cosines and hyperbolic tangents, against doubles and what an H200 gave.

use std::f64::consts::TAU;

use super::{Threads, form, kernel, run};
use crate::jit::harness;
use crate::jit::runtime::float::tests::Random;

/// Angles, and what an H200 gave for their sines and cosines.
const LARGE: [(u32, u32, u32); 8] = [
    (0x4640_0000, 0xbf71_4c7a, 0xbeab_01f8),
    (0x47fe_a267, 0x3e22_abaa, 0xbf7c_bfc9),
    (0x4665_9bb3, 0xbf7e_06c2, 0x3dfd_d092),
    (0x47db_e91e, 0xbee0_9248, 0x3f66_0f88),
    (0xc834_80cf, 0xbebe_1d45, 0xbf6d_b292),
    (0x4b19_85fa, 0x8000_0000, 0xbf80_0000),
    (0x4850_ff5f, 0x3f73_1447, 0xbea0_9ae5),
    (0x4964_8392, 0xbef1_5ae7, 0x3f61_c596),
];

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

/// What a kernel of an instruction gives for these operands, in vectors and thread by thread.
fn results(instruction: &str, operands: &[u32]) -> Vec<f32> {
    let form = form(format!("{instruction} %d, %a"), "f=f", |v| v[0]);
    let text = harness::module(&kernel("k", &form));
    let cases: Vec<[u64; 3]> = operands
        .iter()
        .map(|bits| [u64::from(*bits), 0, 0])
        .collect();
    let [vectors, alone] = [Threads::Vectors, Threads::Rounds]
        .map(|form| run(&harness::load_as(&text, form), "k", &cases));
    assert_eq!(vectors, alone, "{instruction}");
    vectors
        .iter()
        .map(|bits| f32::from_bits(*bits as u32))
        .collect()
}

/// Operands of all sizes, many in a few turns.
fn operands() -> Vec<u32> {
    let mut random = Random(5);
    let near = (0..20_000).map(|at| (at as f32 / 800.0 - 12.5).to_bits());
    let quarters = (-40..=40).map(|at| (at as f32 * std::f32::consts::FRAC_PI_2).to_bits());
    near.chain(quarters)
        .chain((0..20_000).map(|_| random.next() as u32))
        .chain([
            0,
            0x8000_0000,
            1,
            0x8000_0001,
            0x0080_0000,
            0x7f7f_ffff,
            0x3f80_0000,
        ])
        .filter(|bits| f32::from_bits(*bits).is_finite())
        .collect()
}

#[test]
fn sines_and_cosines_are_near() {
    let operands = operands();
    let (sines, cosines) = (
        results("sin.approx.f32", &operands),
        results("cos.approx.f32", &operands),
    );
    for ((angle, sine), cosine) in operands.iter().zip(&sines).zip(&cosines) {
        let angle = f32::from_bits(*angle);
        let part = turn(angle);
        for (got, expected) in [(sine, (part * TAU).sin()), (cosine, (part * TAU).cos())] {
            let error = (f64::from(*got) - expected).abs();
            assert!(
                error < 2f64.powi(-22),
                "{angle:e}: {got:e} for {expected:e}"
            );
        }
        // Where the angle is a number of quarter turns, nothing is left of it.
        match part.abs() {
            0.0 | 0.5 => assert_eq!(sine.to_bits(), 0f32.copysign(angle).to_bits(), "{angle:e}"),
            0.25 | 0.75 => assert_eq!(cosine.to_bits(), 0, "{angle:e}"),
            _ => {}
        }
        if part == 0.0 {
            assert_eq!(*cosine, 1.0, "{angle:e}");
        }
    }
}

#[test]
fn large_angles_give_what_the_device_gives() {
    let angles = LARGE.map(|(angle, ..)| angle);
    let (sines, cosines) = (
        results("sin.approx.f32", &angles),
        results("cos.approx.f32", &angles),
    );
    for ((angle, sine, cosine), ours) in LARGE.iter().zip(sines.iter().zip(&cosines)) {
        let bound = 2f32.powi(-21);
        assert!((ours.0 - f32::from_bits(*sine)).abs() < bound, "{angle:x}");
        assert!(
            (ours.1 - f32::from_bits(*cosine)).abs() < bound,
            "{angle:x}"
        );
    }
}

#[test]
fn tangents_are_near() {
    let operands = operands();
    let tangents = results("tanh.approx.f32", &operands);
    for (x, got) in operands.iter().zip(&tangents) {
        let x = f32::from_bits(*x);
        let expected = f64::from(x).tanh();
        let error = (f64::from(*got) - expected).abs();
        let bound = expected.abs().max(f64::from(f32::MIN_POSITIVE)) * 2f64.powi(-22);
        assert!(error <= bound, "{x:e}: {got:e} for {expected:e}");
        assert_eq!(got.is_sign_negative(), x.is_sign_negative(), "{x:e}");
    }
}
