//! `convert.cu`: between all number formats, in every rounding.

use half::{bf16, f16};

use super::case::{Case, Element, Ptx, args};
use super::exact::{self, BF16, F16, F32, F64, Format, ROUNDINGS, Round};
use super::input::Inputs;

const PTX: Ptx = super::ptx!("convert");
const N: usize = 256;

super::cases! {
    f32_to_int, f64_to_int, int_to_f32, int_to_f64, f64_to_f32, f32_to_f64, f32_to_f16, f32_to_bf16, f32_pairs,
    f16_to_all, int_to_f16, saturating,
}

/// A kernel from `a` to rows of results, 128 threads a block.
fn rows<T: Element, U: Element>(
    name: &'static str,
    a: &[T],
    threads: usize,
    expected: &[U],
) -> Case {
    let mut case = Case::new(name, PTX);
    let (input, out) = (case.input(a), case.output::<U>(expected.len()));
    case.columns(out, expected.len() / threads);
    case.expect(out, expected);
    case.launch(name, threads as u32 / 128, 128, args![input, out]);
    case
}

/// The integer type's limits, and the bits it has.
#[derive(Clone, Copy)]
struct Integer {
    bits: u32,
    signed: bool,
}

const fn signed(bits: u32) -> Integer {
    Integer { bits, signed: true }
}

const fn unsigned(bits: u32) -> Integer {
    Integer {
        bits,
        signed: false,
    }
}

impl Integer {
    fn clamp(self, n: i128) -> i128 {
        if self.signed {
            n.clamp(-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1)
        } else {
            n.clamp(0, (1 << self.bits) - 1)
        }
    }

    /// What a float becomes: the nearest the type has; no number is zero, or the top bit alone
    /// where either side has 64 bits.
    fn of(self, format: Format, a: u64, round: Round) -> i128 {
        match exact::to_integer(format, a, round) {
            Some(n) => self.clamp(n),
            None if format == F64 || self.bits == 64 => 1 << (self.bits - 1),
            None => 0,
        }
    }

    /// The value as a word of that many bits.
    fn word(self, n: i128) -> u64 {
        n as u64 & (u64::MAX >> (64 - self.bits))
    }
}

const WORDS: [Integer; 4] = [signed(32), unsigned(32), signed(64), unsigned(64)];

fn to_words(format: Format, a: u64) -> impl Iterator<Item = u64> {
    WORDS
        .into_iter()
        .flat_map(move |to| ROUNDINGS.map(|round| to.word(to.of(format, a, round))))
}

fn f32_to_int(name: &'static str) -> Case {
    let values = wide_f32s(name);
    let expected: Vec<u64> = values
        .iter()
        .flat_map(|v| to_words(F32, v.to_bits() as u64))
        .collect();
    rows(name, &values, N, &expected)
}

/// Floats of every kind, and those near the integers' limits.
fn wide_f32s(name: &str) -> Vec<f32> {
    let mut inputs = Inputs::new(name);
    let mut values = inputs.f32s(N);
    for (i, v) in values.iter_mut().enumerate().filter(|(i, _)| i % 3 == 0) {
        let limit = 2f32.powi([7, 8, 15, 16, 31, 32, 63, 64][i / 3 % 8]);
        let near = f32::from_bits(limit.to_bits() - 2 + inputs.below(4) as u32);
        *v = if inputs.below(2) == 0 { near } else { -near };
    }
    values
}

fn wide_f64s(name: &str) -> Vec<f64> {
    let mut inputs = Inputs::new(name);
    let mut values = inputs.f64s(N);
    for (i, v) in values.iter_mut().enumerate().filter(|(i, _)| i % 3 == 0) {
        let limit = 2f64.powi([31, 32, 63, 64][i / 3 % 4]);
        let near = limit + [-1.0, -0.5, 0.0, 0.5, 1.0][inputs.below(5) as usize];
        *v = if inputs.below(2) == 0 { near } else { -near };
    }
    values
}

fn f64_to_int(name: &'static str) -> Case {
    let values = wide_f64s(name);
    let expected: Vec<u64> = values
        .iter()
        .flat_map(|v| to_words(F64, v.to_bits()))
        .collect();
    rows(name, &values, N, &expected)
}

/// The word read as each of the four integers.
fn readings(word: u64) -> [i128; 4] {
    [
        word as i32 as i128,
        word as u32 as i128,
        word as i64 as i128,
        word as i128,
    ]
}

fn int_to_f32(name: &'static str) -> Case {
    let words = Inputs::new(name).words64(N);
    let row = |&word: &u64| {
        let all = readings(word)
            .into_iter()
            .flat_map(|n| ROUNDINGS.map(|round| exact::from_integer(F32, n, round)));
        all.map(|v| f32::from_bits(v as u32)).collect::<Vec<f32>>()
    };
    rows(
        name,
        &words,
        N,
        &words.iter().flat_map(row).collect::<Vec<f32>>(),
    )
}

fn int_to_f64(name: &'static str) -> Case {
    let words = Inputs::new(name).words64(N);
    let row = |&word: &u64| {
        let [i32, u32, i64, u64] = readings(word);
        let narrow = [i32, u32].map(|n| exact::from_integer(F64, n, Round::Nearest));
        let wide = [i64, u64]
            .into_iter()
            .flat_map(|n| ROUNDINGS.map(|round| exact::from_integer(F64, n, round)));
        narrow
            .into_iter()
            .chain(wide)
            .map(f64::from_bits)
            .collect::<Vec<f64>>()
    };
    rows(
        name,
        &words,
        N,
        &words.iter().flat_map(row).collect::<Vec<f64>>(),
    )
}

fn f64_to_f32(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let mut values = inputs.f64s(N);
    // Half way between floats, and just off it; among the subnormals too.
    for v in values.iter_mut().step_by(3) {
        let float = f32::from_bits(inputs.next() as u32);
        let half = 1u64 << 28;
        *v = f64::from_bits((float as f64).to_bits() + half - 1 + inputs.below(3));
    }
    for v in values.iter_mut().skip(1).step_by(5) {
        *v = (inputs.next() >> 30) as f64 * 2f64.powi(-160);
    }
    let row = |v: &f64| {
        ROUNDINGS.map(|r| f32::from_bits(exact::convert(F64, F32, v.to_bits(), r) as u32))
    };
    rows(
        name,
        &values,
        N,
        &values.iter().flat_map(row).collect::<Vec<f32>>(),
    )
}

fn f32_to_f64(name: &'static str) -> Case {
    let values = Inputs::new(name).f32s(N);
    let wide =
        |v: &f32| f64::from_bits(exact::convert(F32, F64, v.to_bits() as u64, Round::Nearest));
    rows(
        name,
        &values,
        N,
        &values.iter().map(wide).collect::<Vec<f64>>(),
    )
}

/// Floats around the range of a narrower format: ties, limits, subnormals.
fn narrowing_f32s(name: &str, dropped: u32, least: i32) -> Vec<f32> {
    let mut inputs = Inputs::new(name);
    let mut values = inputs.f32s(N);
    for v in values.iter_mut().step_by(3) {
        let tie = (v.to_bits() >> dropped << dropped) | 1 << (dropped - 1);
        *v = f32::from_bits(tie - 1 + inputs.below(3) as u32);
    }
    for v in values.iter_mut().skip(1).step_by(4) {
        *v = inputs.between(-4.0, 4.0) as f32 * 2f32.powi(least - inputs.below(12) as i32);
    }
    values
}

fn f32_to_f16(name: &'static str) -> Case {
    let values = narrowing_f32s(name, 13, -14);
    let row = |v: &f32| {
        ROUNDINGS.map(|r| f16::from_bits(exact::convert(F32, F16, v.to_bits() as u64, r) as u16))
    };
    rows(
        name,
        &values,
        N,
        &values.iter().flat_map(row).collect::<Vec<f16>>(),
    )
}

fn f32_to_bf16(name: &'static str) -> Case {
    let values = narrowing_f32s(name, 16, -120);
    let both = [Round::Nearest, Round::Zero];
    let row = |v: &f32| {
        both.map(|r| bf16::from_bits(exact::convert(F32, BF16, v.to_bits() as u64, r) as u16))
    };
    rows(
        name,
        &values,
        N,
        &values.iter().flat_map(row).collect::<Vec<bf16>>(),
    )
}

/// Nothing below zero; no number stays.
fn relu(format: Format, a: u64) -> u64 {
    if format.is_negative(a) && !format.is_nan(a) {
        0
    } else {
        a
    }
}

fn f32_pairs(name: &'static str) -> Case {
    let values: Vec<f32> = narrowing_f32s(name, 13, -14)
        .into_iter()
        .chain(narrowing_f32s("f32_pairs 2", 16, -120))
        .collect();
    let pair = |v: &[f32]| {
        let (x, y) = (v[0].to_bits() as u64, v[1].to_bits() as u64);
        let packed = |to: Format, round: Round, clamp: bool| {
            let one = |v: u64| {
                let narrow = exact::convert(F32, to, v, round);
                if clamp { relu(to, narrow) } else { narrow }
            };
            (one(x) << 16 | one(y)) as u32
        };
        // The ten bits of tf32: to the nearest, halves away from zero, and to even. The low bits
        // are zero, which the manual leaves open; of no number, the first keeps the bits that fit,
        // the second makes one.
        let tf32 = |bits: u64, away: bool| match () {
            () if F32.is_nan(bits) && away => bits as u32 & !0x1fff,
            () if F32.is_nan(bits) => F32.nan() as u32 & !0x1fff,
            () if away => (bits as u32).wrapping_add(0x1000) & !0x1fff,
            () => (bits as u32).wrapping_add(0xfff + (bits as u32 >> 13 & 1)) & !0x1fff,
        };
        [
            packed(F16, Round::Nearest, false),
            packed(F16, Round::Zero, false),
            packed(F16, Round::Nearest, true),
            packed(BF16, Round::Nearest, false),
            packed(BF16, Round::Zero, false),
            packed(BF16, Round::Nearest, true),
            tf32(x, true),
            relu(F32, tf32(y, false) as u64) as u32,
        ]
    };
    rows(
        name,
        &values,
        N,
        &values.chunks(2).flat_map(pair).collect::<Vec<u32>>(),
    )
}

fn f16_to_all(name: &'static str) -> Case {
    let row = |bits: u64| {
        let to = |to: Integer, round: Round| to.word(to.of(F16, bits, round));
        let float = exact::convert(F16, F32, bits, Round::Nearest);
        [
            float << 32 | to(signed(32), Round::Nearest),
            to(signed(32), Round::Down) << 32 | to(signed(32), Round::Up),
            to(unsigned(32), Round::Zero) << 32
                | to(signed(16), Round::Nearest) << 16
                | to(unsigned(16), Round::Up),
            to(signed(64), Round::Zero) ^ to(unsigned(64), Round::Nearest) << 1,
        ]
    };
    let mut case = Case::new(name, PTX);
    let out = case.output::<u64>(4 << 16);
    case.columns(out, 4);
    case.expect(out, &(0..1 << 16).flat_map(row).collect::<Vec<u64>>());
    case.launch(name, 256, 256, args![out]);
    case
}

fn int_to_f16(name: &'static str) -> Case {
    let values: Vec<i32> = Inputs::new(name)
        .words32(N)
        .into_iter()
        .map(|w| w as i32)
        .collect();
    let row = |&x: &i32| {
        let half =
            |n: i128, round: Round| f16::from_bits(exact::from_integer(F16, n, round) as u16);
        let [rn, rz, ru, rd] = ROUNDINGS.map(|round| half(x as i128, round));
        [
            rn,
            rz,
            ru,
            rd,
            half(x as u32 as i128, Round::Nearest),
            half(x as i16 as i128, Round::Nearest),
            half(x as i128 * 3, Round::Nearest),
            half(x as u16 as i128, Round::Down),
        ]
    };
    rows(
        name,
        &values,
        N,
        &values.iter().flat_map(row).collect::<Vec<f16>>(),
    )
}

fn saturating(name: &'static str) -> Case {
    let floats = wide_f32s(name);
    let integers: Vec<i64> = Inputs::new("saturating 2")
        .words64(N)
        .into_iter()
        .map(|w| w as i64)
        .collect();
    let mut case = Case::new(name, PTX);
    let (df, di, out) = (
        case.input(&floats),
        case.input(&integers),
        case.output::<u32>(16 * N),
    );
    let row = |(x, &n): (&f32, &i64)| {
        let bits = x.to_bits() as u64;
        let integral = |round: Round| exact::integral(F32, bits, round) as u32;
        let unit = if *x > 0.0 { x.min(1.0) } else { 0.0 };
        let (word, uword) = (n as i32 as i128, n as u32 as i128);
        let float = |to: Integer, round: Round| to.of(F32, bits, round) as u32;
        [
            unit.to_bits(),
            integral(Round::Nearest),
            integral(Round::Down),
            integral(Round::Up),
            integral(Round::Zero),
            signed(32).clamp(n as i128) as u32,
            unsigned(32).clamp(n as i128) as u32,
            signed(8).clamp(n as i128) as u32,
            unsigned(8).clamp(word) as u32,
            signed(16).clamp(uword) as u32,
            unsigned(16).clamp(word) as u32,
            n as i8 as u32,
            float(signed(8), Round::Zero),
            float(unsigned(8), Round::Zero),
            float(signed(16), Round::Nearest),
            float(unsigned(16), Round::Nearest),
        ]
    };
    case.columns(out, 16);
    case.expect(
        out,
        &floats
            .iter()
            .zip(&integers)
            .flat_map(row)
            .collect::<Vec<u32>>(),
    );
    case.launch(name, N as u32 / 128, 128, args![df, di, out]);
    case
}
