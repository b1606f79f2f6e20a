//! `half.cu`: arithmetic of halves and bfloat16, single and paired.

use std::cmp::Ordering::{Equal, Greater, Less};

use half::{bf16, f16};

use super::case::{Case, Element, Ptx, args, ulp};
use super::exact::{self, BF16, F16, F32, Format, Round};
use super::input::Inputs;

const PTX: Ptx = super::ptx!("half");
const N: usize = 384;

super::cases! { half_ops, bf16_ops, half2_ops, bf162_ops, half_functions, half_dot }

fn rows<T: Element>(name: &'static str, inputs: [&[T]; 3], threads: usize, expected: &[T]) -> Case {
    let mut case = Case::new(name, PTX);
    let [a, b, c] = inputs.map(|values| case.input(values));
    let out = case.output::<T>(expected.len());
    case.columns(out, expected.len() / threads);
    case.expect(out, expected);
    case.launch(name, threads as u32 / 64, 64, args![a, b, c, out]);
    case
}

fn relu(format: Format, a: u64) -> u64 {
    if format.is_negative(a) && !format.is_nan(a) {
        0
    } else {
        a
    }
}

/// Clamped to [0, 1]; no number is zero.
fn saturated(format: Format, a: u64) -> u64 {
    let one = exact::from_integer(format, 1, Round::Zero);
    match exact::compare(format, a, 0) {
        Some(Greater) if exact::compare(format, a, one) == Some(Greater) => one,
        Some(Greater) => a,
        _ => 0,
    }
}

fn or_nan(format: Format, x: u64, y: u64, value: u64) -> u64 {
    if format.is_nan(x) || format.is_nan(y) {
        format.nan()
    } else {
        value
    }
}

fn flags(format: Format, x: u64, y: u64) -> u64 {
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
        order != Some(Equal),
        none || order == Some(Less),
        order != Some(Greater),
        none || order == Some(Greater),
        order != Some(Less),
        format.is_nan(x),
        format.absolute(x) == format.infinity(),
    ];
    bits.iter().enumerate().map(|(i, &b)| (b as u64) << i).sum()
}

fn operations(format: Format, x: u64, y: u64, z: u64) -> [u64; 16] {
    let nearest = Round::Nearest;
    let fused = exact::fma(format, x, y, z, nearest);
    let (min, max) = (exact::min(format, x, y), exact::max(format, x, y));
    [
        exact::add(format, x, y, nearest),
        exact::sub(format, x, y, nearest),
        exact::mul(format, x, y, nearest),
        fused,
        or_nan(format, x, y, min),
        or_nan(format, x, y, max),
        relu(format, fused),
        exact::div(format, x, y, nearest),
        min,
        max,
        flags(format, x, y),
        exact::integral(format, x, Round::Zero),
        exact::integral(format, x, nearest),
        exact::integral(format, x, Round::Down),
        exact::integral(format, x, Round::Up),
        format.negate(format.absolute(x)),
    ]
}

fn half_ops(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b, c) = (inputs.f16s(N), inputs.f16s(N), inputs.f16s(N));
    let row = |i: usize| {
        let [x, y, z] = [a[i], b[i], c[i]].map(|v| v.to_bits() as u64);
        let mut row = operations(F16, x, y, z);
        row[15] = saturated(F16, row[0]);
        row.map(|v| f16::from_bits(v as u16))
    };
    rows(
        name,
        [&a, &b, &c],
        N,
        &(0..N).flat_map(row).collect::<Vec<f16>>(),
    )
}

fn bf16_ops(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b, c) = (inputs.bf16s(N), inputs.bf16s(N), inputs.bf16s(N));
    let row = |i: usize| {
        let [x, y, z] = [a[i], b[i], c[i]].map(|v| v.to_bits() as u64);
        operations(BF16, x, y, z).map(|v| bf16::from_bits(v as u16))
    };
    rows(
        name,
        [&a, &b, &c],
        N,
        &(0..N).flat_map(row).collect::<Vec<bf16>>(),
    )
}

/// Rows of pairs: `one` gives a column of a half, and both halves stand side by side.
fn paired(n: usize, columns: usize, one: impl Fn(usize) -> Vec<u64>) -> Vec<u64> {
    (0..n / 2)
        .flat_map(|i| {
            let (low, high) = (one(2 * i), one(2 * i + 1));
            (0..columns)
                .flat_map(move |c| [low[c], high[c]])
                .collect::<Vec<u64>>()
        })
        .collect()
}

fn half2_ops(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b, c) = (inputs.f16s(N), inputs.f16s(N), inputs.f16s(N));
    let bits = |v: &[f16], i: usize| v[i].to_bits() as u64;
    let one = exact::from_integer(F16, 1, Round::Zero);
    let column = |i: usize| {
        let (x, y, z) = (bits(&a, i), bits(&b, i), bits(&c, i));
        let o = operations(F16, x, y, z);
        let order = exact::compare(F16, x, y);
        let flag = |b: bool| if b { one } else { 0 };
        let low_pair = if i.is_multiple_of(2) {
            bits(&a, i)
        } else {
            bits(&b, i - 1)
        };
        vec![
            o[0],
            o[1],
            o[2],
            o[3],
            o[6],
            saturated(F16, o[3]),
            o[4],
            o[9],
            flag(order == Some(Equal)),
            flag(order.is_none() || order == Some(Greater)),
            bits(&a, i ^ 1),
            low_pair,
            saturated(F16, o[0]),
            F16.negate(x),
            F16.absolute(x),
            if order == Some(Less) { 0xffff } else { 0 },
        ]
    };
    let expected: Vec<f16> = paired(N, 16, column)
        .into_iter()
        .map(|v| f16::from_bits(v as u16))
        .collect();
    rows(name, [&a, &b, &c], N / 2, &expected)
}

fn bf162_ops(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b, c) = (inputs.bf16s(N), inputs.bf16s(N), inputs.bf16s(N));
    let one = exact::from_integer(BF16, 1, Round::Zero);
    let column = |i: usize| {
        let [x, y, z] = [a[i], b[i], c[i]].map(|v| v.to_bits() as u64);
        let o = operations(BF16, x, y, z);
        let below = matches!(exact::compare(BF16, x, y), Some(Less | Equal));
        vec![
            o[0],
            o[1],
            o[2],
            o[3],
            o[6],
            o[4],
            o[9],
            if below { one } else { 0 },
            BF16.negate(x),
            BF16.absolute(x),
        ]
    };
    let expected: Vec<bf16> = paired(N, 10, column)
        .into_iter()
        .map(|v| bf16::from_bits(v as u16))
        .collect();
    rows(name, [&a, &b, &c], N / 2, &expected)
}

fn half_functions(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let values: Vec<f16> = inputs.make(256, |s| f16::from_f64(s.between(-8.0, 8.0)));
    let mut case = Case::new(name, PTX);
    let (input, out) = (case.input(&values), case.output::<f16>(12 * 256));
    let row = |v: &f16| {
        let x = v.to_f64();
        let values = [
            x.sqrt(),
            1.0 / x.sqrt(),
            1.0 / x,
            x.exp(),
            x.exp2(),
            10f64.powf(x),
            x.ln(),
            x.log2(),
            x.log10(),
            x.sin(),
            x.cos(),
            x.tanh(),
        ];
        values.map(f16::from_f64)
    };
    // Each is within an ulp by the math API's tables; sine and cosine near their zeros by what
    // float gives.
    let mut bounds = [ulp(1); 12];
    bounds[9] = ulp(1).or_absolute(2f64.powi(-20));
    bounds[10] = bounds[9];
    bounds[11] = ulp(2);
    case.near(out, &bounds);
    case.expect(out, &values.iter().flat_map(row).collect::<Vec<f16>>());
    case.launch(name, 2, 128, args![input, out]);
    case
}

fn half_dot(name: &'static str) -> Case {
    let (threads, n) = (32usize, 20usize);
    let mut inputs = Inputs::new(name);
    let (a, b) = (
        moderate(&mut inputs, 2 * threads * n),
        moderate(&mut inputs, 2 * threads * n),
    );
    let mut case = Case::new(name, PTX);
    let (da, db) = (case.input(&a), case.input(&b));
    let (wide, narrow) = (case.output::<f32>(threads), case.output::<f16>(threads));
    let bits = |v: &[f16], i: usize| v[i].to_bits() as u64;
    let float = |v: &[f16], i: usize| exact::convert(F16, F32, bits(v, i), Round::Nearest);
    let terms = |t: usize| 2 * t * n..2 * (t + 1) * n;
    let sum = |t: usize| {
        terms(t).fold(0, |sum, i| {
            exact::fma(F32, float(&a, i), float(&b, i), sum, Round::Nearest)
        })
    };
    let half = |t: usize, first: usize| {
        let alternate = terms(t).skip(first).step_by(2);
        alternate.fold(0, |sum, i| {
            exact::fma(F16, bits(&a, i), bits(&b, i), sum, Round::Nearest)
        })
    };
    let both = |t: usize| exact::add(F16, half(t, 0), half(t, 1), Round::Nearest);
    case.expect(
        wide,
        &(0..threads)
            .map(|t| f32::from_bits(sum(t) as u32))
            .collect::<Vec<f32>>(),
    );
    case.expect(
        narrow,
        &(0..threads)
            .map(|t| f16::from_bits(both(t) as u16))
            .collect::<Vec<f16>>(),
    );
    case.launch(
        name,
        1,
        threads as u32,
        args![da, db, wide, narrow, n as u32],
    );
    case
}

fn moderate(inputs: &mut Inputs, count: usize) -> Vec<f16> {
    inputs.make(count, |s| f16::from_f64(s.between(-2.0, 2.0)))
}
