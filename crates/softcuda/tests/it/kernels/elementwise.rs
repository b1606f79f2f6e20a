//! `elementwise.cu`: one element per thread, in every type.

use half::{bf16, f16};

use super::case::{Case, Element, Ptx, args};
use super::exact::{self, BF16, F16, F32, F64, Format, Round};
use super::input::Inputs;

const PTX: Ptx = super::ptx!("elementwise");
const N: usize = 500;

super::cases! {
    ew_i8, ew_i16, ew_i32, ew_i64, ew_u8, ew_u16, ew_u32, ew_u64, ew_f32, ew_f64, ew_f16, ew_bf16, ew_half2, ew_bf162,
    saxpy, daxpby, scale4,
}

macro_rules! integers {
    ($($name:ident: $signed:ident, $unsigned:ident;)+) => {
        $(fn $name(name: &'static str) -> Case {
            type T = $signed;
            type U = $unsigned;
            let mut inputs = Inputs::new(name);
            let a: Vec<T> = inputs.words64(N).into_iter().map(|w| w as T).collect();
            let b: Vec<T> = inputs.words64(N).into_iter().map(|w| w as T).collect();
            let row = |(&x, &y): (&T, &T)| {
                let s = y as u32 & (T::BITS - 1);
                [
                    x.wrapping_add(y), x.wrapping_sub(y), x.wrapping_mul(y),
                    x.checked_div(y).unwrap_or(0), x.checked_rem(y).unwrap_or(0),
                    x & y, x | y, x ^ y, ((x as U) << s) as T, x >> s, x.min(y), x.max(y),
                    (0 as T).wrapping_sub(x), !x,
                    (x == y) as T | ((x < y) as T) << 1 | ((x <= y) as T) << 2 | ((x != y) as T) << 3,
                    #[allow(unused_comparisons)]
                    if x < 0 { (0 as T).wrapping_sub(x) } else { x },
                ]
            };
            let expected: Vec<T> = a.iter().zip(&b).flat_map(row).collect();
            rows(name, &a, &b, &expected)
        })+
    };
}

integers! {
    ew_i8: i8, u8;
    ew_i16: i16, u16;
    ew_i32: i32, u32;
    ew_i64: i64, u64;
    ew_u8: u8, u8;
    ew_u16: u16, u16;
    ew_u32: u32, u32;
    ew_u64: u64, u64;
}

/// A kernel over `a` and `b` that writes a row for each pair.
fn rows<T: Element>(name: &'static str, a: &[T], b: &[T], expected: &[T]) -> Case {
    let mut case = Case::new(name, PTX);
    let (x, y, out) = (
        case.input(a),
        case.input(b),
        case.output::<T>(expected.len()),
    );
    case.columns(out, expected.len() / a.len());
    case.expect(out, expected);
    case.launch(name, 4, 128, args![x, y, out, a.len() as u32]);
    case
}

/// The sixteen columns of a float kernel.
fn float_row(format: Format, x: u64, y: u64) -> [u64; 16] {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let nearest = Round::Nearest;
    let order = exact::compare(format, x, y);
    let bits = [
        order == Some(Less),
        matches!(order, Some(Less | Equal)),
        order == Some(Equal),
        order != Some(Equal),
        order == Some(Greater),
        matches!(order, Some(Greater | Equal)),
        format.is_nan(x),
        order != Some(Less),
    ];
    let flags = bits
        .iter()
        .enumerate()
        .map(|(i, &b)| (b as i128) << i)
        .sum();
    [
        exact::add(format, x, y, nearest),
        exact::sub(format, x, y, nearest),
        exact::mul(format, x, y, nearest),
        exact::div(format, x, y, nearest),
        exact::fma(format, x, y, x, nearest),
        exact::min(format, x, y),
        exact::max(format, x, y),
        exact::sqrt(format, x, nearest),
        format.negate(x),
        format.absolute(x),
        exact::integral(format, x, Round::Down),
        exact::integral(format, x, Round::Up),
        exact::integral(format, x, Round::Zero),
        exact::integral(format, x, nearest),
        format.absolute(x) | format.negate(0) & y,
        exact::from_integer(format, flags, nearest),
    ]
}

fn ew_f32(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b) = (inputs.f32s(N), inputs.f32s(N));
    let row = |(x, y): (&f32, &f32)| float_row(F32, x.to_bits() as u64, y.to_bits() as u64);
    let expected: Vec<f32> = a
        .iter()
        .zip(&b)
        .flat_map(row)
        .map(|v| f32::from_bits(v as u32))
        .collect();
    rows(name, &a, &b, &expected)
}

fn ew_f64(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b) = (inputs.f64s(N), inputs.f64s(N));
    let row = |(x, y): (&f64, &f64)| float_row(F64, x.to_bits(), y.to_bits());
    let expected: Vec<f64> = a.iter().zip(&b).flat_map(row).map(f64::from_bits).collect();
    rows(name, &a, &b, &expected)
}

/// The eight columns of a kernel of halves.
fn small_row(format: Format, x: u64, y: u64) -> [u64; 8] {
    let row = float_row(format, x, y);
    [
        row[0], row[1], row[2], row[4], row[5], row[6], row[8], row[9],
    ]
}

fn ew_f16(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b) = (inputs.f16s(N), inputs.f16s(N));
    let row = |(x, y): (&f16, &f16)| small_row(F16, x.to_bits() as u64, y.to_bits() as u64);
    let expected: Vec<f16> = a
        .iter()
        .zip(&b)
        .flat_map(row)
        .map(|v| f16::from_bits(v as u16))
        .collect();
    rows(name, &a, &b, &expected)
}

fn ew_bf16(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b) = (inputs.bf16s(N), inputs.bf16s(N));
    let row = |(x, y): (&bf16, &bf16)| small_row(BF16, x.to_bits() as u64, y.to_bits() as u64);
    let expected: Vec<bf16> = a
        .iter()
        .zip(&b)
        .flat_map(row)
        .map(|v| bf16::from_bits(v as u16))
        .collect();
    rows(name, &a, &b, &expected)
}

/// Rows of pairs: both halves of each operation side by side.
fn paired<T: Element>(
    format: Format,
    a: &[T],
    b: &[T],
    bits: fn(T) -> u64,
    value: fn(u64) -> T,
) -> Vec<T> {
    let row = |(x, y): (&[T], &[T])| {
        let low = small_row(format, bits(x[0]), bits(y[0]));
        let high = small_row(format, bits(x[1]), bits(y[1]));
        low.into_iter()
            .zip(high)
            .flat_map(|(l, h)| [value(l), value(h)])
            .collect::<Vec<T>>()
    };
    a.chunks(2).zip(b.chunks(2)).flat_map(row).collect()
}

fn pairs<T: Element>(name: &'static str, a: &[T], b: &[T], expected: &[T]) -> Case {
    let mut case = Case::new(name, PTX);
    let (x, y, out) = (
        case.input(a),
        case.input(b),
        case.output::<T>(expected.len()),
    );
    case.columns(out, 16);
    case.expect(out, expected);
    case.launch(name, 4, 128, args![x, y, out, a.len() as u32 / 2]);
    case
}

fn ew_half2(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b) = (inputs.f16s(N), inputs.f16s(N));
    let expected = paired(
        F16,
        &a,
        &b,
        |v| v.to_bits() as u64,
        |v| f16::from_bits(v as u16),
    );
    pairs(name, &a, &b, &expected)
}

fn ew_bf162(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b) = (inputs.bf16s(N), inputs.bf16s(N));
    let expected = paired(
        BF16,
        &a,
        &b,
        |v| v.to_bits() as u64,
        |v| bf16::from_bits(v as u16),
    );
    pairs(name, &a, &b, &expected)
}

fn saxpy(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (x, y, a) = (inputs.f32s(1000), inputs.f32s(1000), 1.7f32);
    let mut case = Case::new(name, PTX);
    let (dx, dy) = (case.input(&x), case.inout(&y));
    let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| a.mul_add(*x, *y)).collect();
    case.expect(dy, &expected);
    case.launch(name, 3, 64, args![a, dx, dy, 1000u32]);
    case
}

fn daxpby(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (x, y, a, b) = (inputs.f64s(700), inputs.f64s(700), -0.3f64, 1e-3f64);
    let mut case = Case::new(name, PTX);
    let (dx, dy) = (case.input(&x), case.inout(&y));
    let expected: Vec<f64> = x.iter().zip(&y).map(|(x, y)| a * x + b * y).collect();
    case.expect(dy, &expected);
    case.launch(name, 2, 96, args![a, dx, b, dy, 700u32]);
    case
}

fn scale4(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let values = inputs.f32s(1024);
    let mut case = Case::new(name, PTX);
    let (input, out) = (case.input(&values), case.output::<f32>(1024));
    let expected: Vec<f32> = values
        .chunks(4)
        .flat_map(|v| [v[3], v[2], v[1], v[0]])
        .map(|v| v * 0.75)
        .collect();
    case.expect(out, &expected);
    case.launch(name, 2, 128, args![input, out, 0.75f32, 256u32]);
    case
}
