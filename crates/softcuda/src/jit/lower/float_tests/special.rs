//! Special values (zeros, subnormals, limits, infinities, NaNs with and without payload) through
//! every instruction, in every combination of operands, against what an H200 gave.
//!
//! `special.h200.txt` has a line for each instruction: its name, how many operands it takes, and
//! either the digest of all results, where they must be equal, or the results themselves, where
//! they are approximate.

use super::{kernel, run};
use crate::jit::harness;

const F32: &[u64] = &[
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x3f800000, 0xbf800000,
    0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0xff812345,
    0x7fffffff, 0x7fc12345, 0x40490fdb, 0x4f000000, 0xcf000000, 0x5f000000, 0x3f000000, 0x3fc00000,
    0xbfc00000,
];
const F64: &[u64] = &[
    0,
    1 << 63,
    1,
    (1 << 63) | 1,
    0x000fffffffffffff,
    0x0010000000000000,
    0x3ff0000000000000,
    0xbff0000000000000,
    0x7fefffffffffffff,
    0x7ff0000000000000,
    0xfff0000000000000,
    0x7ff8000000000000,
    0xfff8000000000000,
    0x7ff0000000000001,
    0xfff0000000012345,
    0x7fffffffffffffff,
    0x7ff8123456789abc,
    0x400921fb54442d18,
    0x43e0000000000000,
    0xc3e0000000000000,
    0x41e0000000000000,
    0x3fe0000000000000,
    0xbff8000000000000,
];
const F16: &[u64] = &[
    0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00,
    0xfe00, 0x7c01, 0xfd23, 0x7fff, 0x7e12, 0x4248, 0x3800,
];
const BF16: &[u64] = &[
    0, 0x8000, 1, 0x8001, 0x7f, 0x80, 0x3f80, 0xbf80, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0,
    0xffc0, 0x7f81, 0xff92, 0x7fff, 0x7fc1, 0x4049, 0x3f00,
];

fn source(ty: &str) -> Option<(u8, &'static [u64])> {
    Some(match ty {
        "f32" => (b'f', F32),
        "f64" => (b'd', F64),
        "f16" => (b'h', F16),
        "bf16" => (b'h', BF16),
        _ => return None,
    })
}

/// One number of all results, where they must be equal.
fn digest(results: &[u64]) -> u64 {
    results.iter().fold(0xcbf2_9ce4_8422_2325, |state, result| {
        (state ^ result)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(23)
    })
}

fn is_nan(ty: &str, bits: u64) -> bool {
    match ty {
        "f64" => f64::from_bits(bits).is_nan(),
        _ => false,
    }
}

fn value(ty: &str, bits: u64) -> f64 {
    match ty {
        "f16" => half::f16::from_bits(bits as u16).to_f64(),
        "bf16" => half::bf16::from_bits(bits as u16).to_f64(),
        "f32" => f64::from(f32::from_bits(bits as u32)),
        _ => f64::from_bits(bits),
    }
}

/// How far from the device's an approximate result may be: twice the documented error.
fn tolerance(instruction: &str, result: f64) -> f64 {
    let relative = match instruction {
        text if text.starts_with("tanh") || text.ends_with("bf16") => 2f64.powi(-6),
        text if text.ends_with("f16") => 2f64.powi(-8),
        _ => 2f64.powi(-20),
    };
    result.abs().max(f64::from(f32::MIN_POSITIVE)) * relative
}

/// The device's and our results are as near as they must be.
fn agrees(instruction: &str, ty: &str, ours: u64, device: u64) -> bool {
    let (near, exact) = (value(ty, ours), value(ty, device));
    let absolute = match instruction.starts_with("sin") || instruction.starts_with("cos") {
        true => 2f64.powi(-19),
        false => 0.0,
    };
    ours == device || (near - exact).abs() <= tolerance(instruction, exact) + absolute
}

#[test]
fn special_values_give_what_the_device_gives() {
    let mut wrong = Vec::new();
    let lines = include_str!("special.h200.txt").lines();
    for line in lines.filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        let mut word = || {
            words
                .next()
                .expect("instruction, number of operands, results")
        };
        let (instruction, count) = (word(), word().parse::<usize>().expect("a number"));
        let recorded: Vec<u64> = words
            .map(|word| u64::from_str_radix(word, 16).expect("hexadecimal"))
            .collect();
        let parts: Vec<&str> = instruction.split('.').collect();
        let ty = parts[parts.len() - 1];
        let (class, values) = source(ty).expect("a float");
        let dst = match parts[parts.len() - 2] {
            _ if parts[0] != "cvt" => class,
            "f32" => b'f',
            "f64" => b'd',
            "f16" | "bf16" | "u16" | "s16" => b'h',
            "u64" | "s64" => b'l',
            _ => b'r',
        };
        let classes = match (char::from(dst), char::from(class), count) {
            (d, s, 1) => format!("{d}={s}"),
            (d, s, 2) => format!("{d}={s}{s}"),
            (d, s, _) => format!("{d}={s}{s}{s}"),
        };
        let operands = ["%a", "%a, %b", "%a, %b, %c"][count - 1];
        let form = super::form(
            format!("{instruction} %d, {operands}"),
            classes.leak(),
            |v| v[0],
        );
        let n = values.len();
        let cases: Vec<[u64; 3]> = (0..n.pow(count as u32))
            .map(|t| [values[t % n], values[t / n % n], values[t / (n * n) % n]])
            .collect();
        let module = harness::load(&harness::module(&kernel("k", &form)));
        let mut results = run(&module, "k", &cases);
        // Of several NaN operands the device's double arithmetic picks one, the host's another.
        for (case, result) in cases.iter().zip(&mut results) {
            if case[..count]
                .iter()
                .filter(|bits| is_nan(ty, **bits))
                .count()
                > 1
            {
                *result = f64::NAN.to_bits();
            }
        }
        match recorded[..] {
            [recorded] => {
                let ours = digest(&results);
                if ours != recorded {
                    wrong.push(format!(
                        "{instruction}: digest {ours:016x}, not {recorded:016x}"
                    ));
                }
            }
            _ => {
                for ((case, ours), device) in cases.iter().zip(&results).zip(&recorded) {
                    if !agrees(instruction, ty, *ours, *device) {
                        wrong.push(format!(
                            "{instruction} {:x?}: {ours:x}, not {device:x}",
                            &case[..count]
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
