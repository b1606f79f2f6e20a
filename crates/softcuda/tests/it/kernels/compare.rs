//! When two buffers are the same, and what to say when they are not.

use half::{bf16, f16};

use super::case::{Bound, Contents, Kind};

/// The bytes with every value that is no number made the same.
pub fn canonical(kind: Kind, bytes: &[u8]) -> Vec<u8> {
    let (sign, infinity) = match kind {
        Kind::Bits(_) => return bytes.to_vec(),
        Kind::F16 => (1 << 15, 0x7c00),
        Kind::Bf16 => (1 << 15, 0x7f80),
        Kind::F32 => (1 << 31, 0x7f80_0000),
        Kind::F64 => (1 << 63, 0x7ff0_0000_0000_0000),
    };
    let size = kind.size();
    let one = |value: &[u8]| {
        let bits = word(value);
        let bits = if bits & (sign - 1) > infinity {
            sign - 1
        } else {
            bits
        };
        bits.to_le_bytes()[..size].to_vec()
    };
    bytes.chunks(size).flat_map(one).collect()
}

/// The differences between two buffers of canonical bytes: none, or a text that shows the first of
/// them. Without bounds they must be equal.
pub fn differences(
    contents: &Contents,
    inputs: &[&Contents],
    bounds: Option<(&[Bound], u64)>,
    got: &[u8],
    want: &[u8],
) -> Option<String> {
    let (size, columns) = (contents.kind.size(), contents.columns);
    let mut lines = Vec::new();
    let mut wrong = 0;
    let mut by_column = vec![0usize; columns];
    for (i, (got, want)) in got.chunks(size).zip(want.chunks(size)).enumerate() {
        let same = match bounds {
            None => got == want,
            Some((bounds, times)) => {
                near(contents.kind, got, want, &bounds[i % bounds.len()], times)
            }
        };
        if same {
            continue;
        }
        wrong += 1;
        by_column[i % columns] += 1;
        if by_column[i % columns] <= 3 && lines.len() < 24 {
            let row = i / columns;
            let rows = contents.initial.len() / size / columns;
            let operands: Vec<String> = inputs
                .iter()
                .filter(|input| input.initial.len() / input.kind.size() == rows)
                .map(|input| {
                    let size = input.kind.size();
                    show(input.kind, &input.initial[row * size..(row + 1) * size])
                })
                .collect();
            lines.push(format!(
                "  [{row}][{}]: got {}, want {}{}{}",
                i % columns,
                show(contents.kind, got),
                show(contents.kind, want),
                if operands.is_empty() { "" } else { ", from " },
                operands.join(", ")
            ));
        }
    }
    if wrong == 0 {
        return None;
    }
    let columns: Vec<String> = by_column
        .iter()
        .enumerate()
        .filter(|(_, n)| **n > 0)
        .map(|(c, n)| format!("{c}: {n}"))
        .collect();
    Some(format!(
        "{wrong} values differ (by column {})\n{}",
        columns.join(", "),
        lines.join("\n")
    ))
}

fn near(kind: Kind, got: &[u8], want: &[u8], bound: &Bound, times: u64) -> bool {
    if got == want {
        return true;
    }
    let (x, y) = (number(kind, got), number(kind, want));
    if x.is_nan() || y.is_nan() || bound.determined && times > 1 {
        return false;
    }
    let difference = (x - y).abs();
    let times_f = times as f64;
    steps(kind, got).abs_diff(steps(kind, want))
        <= bound.ulp as u128 * times as u128 + (times == 1) as u128
        || difference <= bound.absolute * times_f
        || difference <= bound.relative * times_f * y.abs()
}

/// A value's place among all of its format, so that neighbours are one apart.
fn steps(kind: Kind, value: &[u8]) -> i128 {
    let bits = word(value);
    let sign = 1u64 << (8 * kind.size() - 1);
    let magnitude = (bits & (sign - 1)) as i128;
    if bits & sign != 0 {
        -magnitude
    } else {
        magnitude
    }
}

fn number(kind: Kind, value: &[u8]) -> f64 {
    let bits = word(value);
    match kind {
        Kind::Bits(_) => bits as f64,
        Kind::F16 => f16::from_bits(bits as u16).to_f64(),
        Kind::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        Kind::F32 => f32::from_bits(bits as u32) as f64,
        Kind::F64 => f64::from_bits(bits),
    }
}

fn show(kind: Kind, value: &[u8]) -> String {
    let bits = word(value);
    let digits = 2 * kind.size();
    match kind {
        Kind::Bits(_) => format!("{bits:0digits$x}"),
        Kind::F64 => format!("{bits:016x} ({:e})", f64::from_bits(bits)),
        _ => format!("{bits:0digits$x} ({:e})", number(kind, value) as f32),
    }
}

fn word(value: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..value.len()].copy_from_slice(value);
    u64::from_le_bytes(bytes)
}
