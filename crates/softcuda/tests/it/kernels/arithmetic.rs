//! `rounding.cu`, `ftz.cu`: float arithmetic with named roundings, comparisons, flushed subnormals,
//! bits of no numbers.

use std::cmp::Ordering::{Equal, Greater, Less};

use super::case::{Case, Element, Ptx, args};
use super::exact::{self, F32, F64, Format, ROUNDINGS, Round};
use super::input::Inputs;

const ROUNDING: Ptx = super::ptx!("rounding");
const FTZ: Ptx = super::ptx!("ftz");
const N: usize = 384;

super::cases! {
    rounded_f32, rounded_f64, compare_f32, compare_f64, nan_bits, flush_f32, flush_saxpy, flush_convert,
}

/// A kernel over the inputs that writes rows.
fn rows<T: Element, U: Element>(
    name: &'static str,
    ptx: Ptx,
    inputs: &[&[T]],
    expected: &[U],
) -> Case {
    let mut case = Case::new(name, ptx);
    let mut arguments: Vec<_> = inputs
        .iter()
        .map(|values| case.input(values).into())
        .collect();
    let out = case.output::<U>(expected.len());
    case.columns(out, expected.len() / N);
    case.expect(out, expected);
    arguments.push(out.into());
    case.launch(name, N as u32 / 128, 128, arguments);
    case
}

/// The seven operations, each in four roundings.
fn rounded(format: Format, x: u64, y: u64, z: u64) -> Vec<u64> {
    let operations: [&dyn Fn(Round) -> u64; 7] = [
        &|r| exact::add(format, x, y, r),
        &|r| exact::sub(format, x, y, r),
        &|r| exact::mul(format, x, y, r),
        &|r| exact::fma(format, x, y, z, r),
        &|r| exact::div(format, x, y, r),
        &|r| exact::sqrt(format, x, r),
        &|r| exact::div(format, exact::from_integer(format, 1, Round::Zero), x, r),
    ];
    operations
        .iter()
        .flat_map(|operation| ROUNDINGS.map(operation))
        .collect()
}

/// Clamped to [0, 1]; no number is zero.
fn saturated(bits: u64) -> u64 {
    let x = f32::from_bits(bits as u32);
    if x > 0.0 {
        x.min(1.0).to_bits() as u64
    } else {
        0
    }
}

fn rounded_f32(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b, c) = (inputs.f32s(N), inputs.f32s(N), inputs.f32s(N));
    let row = |i: usize| {
        let [x, y, z] = [a[i], b[i], c[i]].map(|v| v.to_bits() as u64);
        let mut row = rounded(F32, x, y, z);
        row.push(saturated(x));
        row.push(saturated(exact::add(F32, x, y, Round::Nearest)));
        row.push(saturated(exact::mul(F32, x, y, Round::Zero)));
        row.push(saturated(exact::fma(F32, x, y, z, Round::Nearest)));
        row.into_iter().map(|v| f32::from_bits(v as u32))
    };
    rows(
        name,
        ROUNDING,
        &[&a, &b, &c],
        &(0..N).flat_map(row).collect::<Vec<f32>>(),
    )
}

fn rounded_f64(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b, c) = (inputs.f64s(N), inputs.f64s(N), inputs.f64s(N));
    let row = |i: usize| {
        rounded(F64, a[i].to_bits(), b[i].to_bits(), c[i].to_bits())
            .into_iter()
            .map(f64::from_bits)
    };
    rows(
        name,
        ROUNDING,
        &[&a, &b, &c],
        &(0..N).flat_map(row).collect::<Vec<f64>>(),
    )
}

/// The fourteen comparisons as bits.
fn comparisons(format: Format, x: u64, y: u64) -> u32 {
    let order = exact::compare(format, x, y);
    let none = order.is_none();
    let bits = [
        order == Some(Equal),
        matches!(order, Some(Less | Greater)),
        order == Some(Less),
        matches!(order, Some(Less | Equal)),
        order == Some(Greater),
        matches!(order, Some(Greater | Equal)),
        none || order == Some(Equal),
        none || order != Some(Equal),
        none || order == Some(Less),
        none || order != Some(Greater),
        none || order == Some(Greater),
        none || order != Some(Less),
        !none,
        none,
    ];
    bits.iter().enumerate().map(|(i, &b)| (b as u32) << i).sum()
}

/// Pairs, a third of them equal in magnitude.
fn pairs<T: Copy>(
    inputs: &mut Inputs,
    values: Vec<T>,
    others: Vec<T>,
    negate: impl Fn(T) -> T,
) -> (Vec<T>, Vec<T>) {
    let others = values
        .iter()
        .zip(others)
        .map(|(&v, other)| match inputs.below(6) {
            0 => v,
            1 => negate(v),
            _ => other,
        })
        .collect();
    (values, others)
}

fn compare_f32(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b) = (inputs.f32s(N), inputs.f32s(N));
    let (a, b) = pairs(&mut inputs, a, b, |v| -v);
    let row = |(x, y): (&f32, &f32)| {
        let (p, q) = (x.to_bits() as u64, y.to_bits() as u64);
        let kinds = [
            x.is_finite(),
            x.is_infinite(),
            !x.is_nan(),
            x.is_nan(),
            // Zeros count as normal.
            x.is_normal() || *x == 0.0,
            x.is_subnormal(),
        ];
        let kinds: u32 = kinds
            .iter()
            .enumerate()
            .map(|(i, &b)| (b as u32) << (16 + i))
            .sum();
        let either = x.is_nan() || y.is_nan();
        let or_nan = |v: u64| if either { F32.nan() } else { v };
        let sign = (p ^ q) & F32.negate(0);
        let largest = exact::max(F32, F32.absolute(p), F32.absolute(q));
        let values = [
            exact::min(F32, p, q),
            exact::max(F32, p, q),
            or_nan(exact::min(F32, p, q)),
            or_nan(exact::max(F32, p, q)),
            exact::min(F32, F32.flush(p), F32.flush(q)),
            if F32.is_nan(largest) {
                largest
            } else {
                largest | sign
            },
            F32.absolute(q) | p & F32.negate(0),
        ];
        std::iter::once(comparisons(F32, p, q) | kinds).chain(values.map(|v| v as u32))
    };
    rows(
        name,
        ROUNDING,
        &[&a, &b],
        &a.iter().zip(&b).flat_map(row).collect::<Vec<u32>>(),
    )
}

fn compare_f64(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b) = (inputs.f64s(N), inputs.f64s(N));
    let (a, b) = pairs(&mut inputs, a, b, |v| -v);
    let row = |(x, y): (&f64, &f64)| {
        let (p, q) = (x.to_bits(), y.to_bits());
        let or_one = |v: u64| if F64.is_nan(v) { 1 } else { v };
        let kinds = [
            x.is_finite(),
            x.is_infinite(),
            x.is_nan(),
            x.is_sign_negative(),
        ];
        let kinds = kinds
            .iter()
            .enumerate()
            .map(|(i, &b)| (b as u64) << i)
            .sum();
        [
            comparisons(F64, p, q) as u64,
            or_one(exact::min(F64, p, q)),
            or_one(exact::max(F64, p, q)),
            kinds,
        ]
    };
    rows(
        name,
        ROUNDING,
        &[&a, &b],
        &a.iter().zip(&b).flat_map(row).collect::<Vec<u64>>(),
    )
}

/// Only the GPU can say.
fn nan_bits(name: &'static str) -> Case {
    let special = [
        0x7fc0_0000u32,
        0xffc0_1234,
        0x7f80_0001,
        0xff81_2345,
        0x7f80_0000,
        0xff80_0000,
        0x3f80_0000,
        0,
    ];
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for x in special {
        for y in special {
            a.push(x);
            b.push(y);
        }
    }
    let mut case = Case::new(name, ROUNDING);
    let (da, db, out) = (case.input(&a), case.input(&b), case.output::<u32>(12 * 64));
    case.columns(out, 12);
    case.launch(name, 1, 64, args![da, db, out]);
    case
}

/// Floats with many subnormals, and many whose product or quotient is one.
fn small_f32s(inputs: &mut Inputs) -> Vec<f32> {
    let mut values = inputs.f32s(N);
    for v in values.iter_mut().step_by(2) {
        let exponent = [-126, -127, -130, -64, -62, 63, -149, -125][inputs.below(8) as usize];
        *v = (inputs.between(-2.0, 2.0) * 2f64.powi(exponent)) as f32;
    }
    values
}

fn flush_f32(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b) = (small_f32s(&mut inputs), small_f32s(&mut inputs));
    let row = |(p, q): (&f32, &f32)| {
        let raw = p.to_bits() as u64;
        let (x, y) = (F32.flush(raw), F32.flush(q.to_bits() as u64));
        let nearest = Round::Nearest;
        let order = exact::compare(F32, x, y);
        let nonzero = exact::compare(F32, x, 0) != Some(Equal);
        let flags = (order == Some(Less)) as i128
            | ((order == Some(Equal)) as i128) << 1
            | (nonzero as i128) << 2;
        let flushed = [
            exact::add(F32, x, y, nearest),
            exact::sub(F32, x, y, nearest),
            exact::mul(F32, x, y, nearest),
            exact::div(F32, x, y, nearest),
            exact::fma(F32, x, y, x, nearest),
            exact::min(F32, x, y),
            exact::max(F32, x, y),
            exact::sqrt(F32, x, nearest),
            F32.negate(x),
            F32.absolute(x),
            exact::integral(F32, x, Round::Down),
            exact::integral(F32, x, nearest),
            exact::add(F32, x, y, Round::Up),
            exact::mul(F32, x, y, Round::Zero),
        ];
        let rest = [raw, exact::from_integer(F32, flags, nearest)];
        flushed
            .map(|v| F32.flush(v))
            .into_iter()
            .chain(rest)
            .map(|v| f32::from_bits(v as u32))
    };
    rows(
        name,
        FTZ,
        &[&a, &b],
        &a.iter().zip(&b).flat_map(row).collect::<Vec<f32>>(),
    )
}

fn flush_saxpy(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (x, y, a) = (small_f32s(&mut inputs), small_f32s(&mut inputs), 0.5f32);
    let mut case = Case::new(name, FTZ);
    let (dx, dy) = (case.input(&x), case.inout(&y));
    let bits = |v: f32| F32.flush(v.to_bits() as u64);
    let cell = |(x, y): (&f32, &f32)| {
        F32.flush(exact::fma(F32, bits(a), bits(*x), bits(*y), Round::Nearest))
    };
    case.expect(
        dy,
        &x.iter()
            .zip(&y)
            .map(cell)
            .map(|v| f32::from_bits(v as u32))
            .collect::<Vec<f32>>(),
    );
    case.launch(name, N as u32 / 128, 128, args![a, dx, dy]);
    case
}

fn flush_convert(name: &'static str) -> Case {
    let a = small_f32s(&mut Inputs::new(name));
    let row = |v: &f32| {
        let x = F32.flush(v.to_bits() as u64);
        let to = |round: Round| exact::to_integer(F32, x, round);
        [
            to(Round::Up)
                .unwrap_or(0)
                .clamp(i32::MIN as i128, i32::MAX as i128) as i32 as u32 as u64,
            to(Round::Down).unwrap_or(0).clamp(0, u32::MAX as i128) as u64,
            to(Round::Up).map_or(1 << 63, |n| {
                n.clamp(i64::MIN as i128, i64::MAX as i128) as u64
            }),
            exact::convert(F32, F64, x, Round::Nearest),
        ]
    };
    let mut expected: Vec<u64> = a.iter().flat_map(row).collect();
    // The bits of a double that is no number are the machine's choice: keep it out.
    let mut a = a;
    for (i, v) in a.iter_mut().enumerate().filter(|(_, v)| v.is_nan()) {
        *v = 2.0;
        expected[4 * i..4 * i + 4].copy_from_slice(&[2, 2, 2, 2f64.to_bits()]);
    }
    rows(name, FTZ, &[&a], &expected)
}
