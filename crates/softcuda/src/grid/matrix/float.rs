//! Products of floats, rounded as the tensor cores of an H200 round. This was found by experiment;
//! each rule below gives the same bits for over a hundred thousand sums of each shape and type, with
//! infinities, NaNs, subnormals and cancellation among them.
//!
//! | elements | an element of `D` is |
//! |---|---|
//! | `.f16`, `.bf16`, `.tf32` | one sum of `C` and all products, see [`Sum`]; if it becomes a half and `C` is a single, a single first |
//! | `.tf32` of `wmma` | the same of the first four products and `C`, and of that and the others |
//! | `.e4m3`, `.e5m2` | these become halves; a sum from zero of the products of the first two bytes of each register, then that and the products of the others, and at last `C` added in the type of `D` |
//! | `.f64` | `fma` after `fma`, in the order of the columns of `A`. Of several NaNs that of `B` stays, else that of `C`, else that of `A` |

use super::sparse::{self, Columns};
use super::{Element, Product, Tiles, Words, place_of_sum};
use crate::jit::runtime::float::{Format, Rounding, narrow};

/// What an `.f32` result is that is no number.
const NAN_SINGLE: u32 = 0x7fff_ffff;
/// The exponent of zero: below that of any sum.
const NONE: i32 = -100_000;

/// A float, and the power of two that its leading digit stands for; in a subnormal that digit is 0.
#[derive(Clone, Copy, Default)]
struct Number {
    value: f64,
    exponent: i32,
}

impl Number {
    /// Of a float of up to 32 bits with so many of exponent and fraction.
    fn of(bits: u32, exponent: u32, fraction: u32) -> Number {
        let sign = bits >> (exponent + fraction) & 1 != 0;
        let field = bits >> fraction & ((1 << exponent) - 1);
        let digits = bits & ((1 << fraction) - 1);
        let bias = (1 << (exponent - 1)) - 1;
        let signed = |value: f64| if sign { -value } else { value };
        if field == (1 << exponent) - 1 {
            let value = if digits == 0 { f64::INFINITY } else { f64::NAN };
            return Number {
                value: signed(value),
                exponent: NONE,
            };
        }
        let (power, leading) = match field {
            0 => (1 - bias, 0),
            _ => (field as i32 - bias, 1 << fraction),
        };
        let digits = digits | leading;
        Number {
            value: signed(f64::from(digits) * power_of_two(power - fraction as i32)),
            exponent: if digits == 0 { NONE } else { power },
        }
    }

    fn of_element(element: Element, bits: u32) -> Number {
        match element {
            Element::F16 => Number::of(bits, 5, 10),
            Element::Bf16 => Number::of(bits, 8, 7),
            // The lowest bits are not looked at.
            Element::Tf32 => Number::of(bits >> 13, 8, 10),
            Element::E5m2 => Number::of(bits << 8, 5, 10),
            Element::E4m3 => Number::of(e4m3_to_half(bits), 5, 10),
            _ => unreachable!("the others are no floats of a sum"),
        }
    }

    fn single(bits: u32) -> Number {
        Number::of(bits, 8, 23)
    }
}

/// The bits of the half that has the value of an `.e4m3`.
fn e4m3_to_half(bits: u32) -> u32 {
    let (sign, rest) = (bits >> 7 & 1, bits & 0x7f);
    let magnitude = match rest {
        0x7f => 0x7e00,
        0..8 => {
            // A subnormal is a normal half.
            let value = f64::from(rest) * power_of_two(-9);
            u32::from(half_of(value))
        }
        _ => (rest << 7) + (8 << 10),
    };
    sign << 15 | magnitude
}

/// `2.powi(n)` where that is a normal number.
fn power_of_two(n: i32) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

/// The value of a half.
pub(super) fn half(bits: u16) -> f32 {
    Number::of(u32::from(bits), 5, 10).value as f32
}

/// The half nearest to a value.
pub(super) fn half_of(value: f64) -> u16 {
    narrow(Format::F16, value, Rounding::Nearest) as u16
}

/// The bits of a single that arithmetic gave.
pub(super) fn single_bits(value: f32) -> u32 {
    match value.is_nan() {
        true => NAN_SINGLE,
        false => value.to_bits(),
    }
}

/// A single without the digits that do not fit.
fn single_cut(value: f64) -> u32 {
    let nearest = value as f32;
    let over = match nearest.is_infinite() {
        true => value.abs() < power_of_two(128),
        false => f64::from(nearest).abs() > value.abs(),
    };
    nearest.to_bits() - u32::from(over)
}

/// One sum as a tensor core makes it: the products are exact; they and the summand are cut, towards
/// zero, to multiples of 2 to the power of the greatest exponent among them less [`Sum::DIGITS`],
/// where the exponent of a product is the sum of its factors'; the sum of these is exact. What is no
/// number wins, as in all arithmetic, and zero has no sign.
struct Sum {
    /// The sum in units of the last digit.
    units: f64,
    /// What the last digit stands for.
    unit: f64,
}

impl Sum {
    const DIGITS: i32 = 25;

    /// A single: cut.
    fn single(&self) -> u32 {
        match self.units.is_nan() {
            true => NAN_SINGLE,
            false => single_cut(self.units * self.unit),
        }
    }

    /// A half: the nearest.
    fn half(&self) -> u16 {
        half_of(self.units * self.unit)
    }
}

/// Rows of `A`, and the rows of `B` that they go with.
struct Factors {
    a: [[Number; 64]; 16],
    /// By row, then column.
    b: [[Number; 8]; 64],
    /// For each row of `A`, the rows of `B`.
    places: Columns,
    /// How many elements of a row are there.
    count: usize,
}

impl Factors {
    fn of(product: Product, a: &[Words], b: &[Words], metadata: &[Words]) -> Factors {
        let [of_a, of_b] = product.elements;
        let mut factors = Factors {
            a: [[Number::default(); 64]; 16],
            b: [[Number::default(); 8]; 64],
            places: sparse::columns(product, metadata),
            count: (product.depth >> u32::from(product.sparse.is_some())) as usize,
        };
        product.each_of_a(a, |row, at, bits| {
            factors.a[row][at] = Number::of_element(of_a, bits);
        });
        product.each_of_b(b, |column, at, bits| {
            factors.b[at][column] = Number::of_element(of_b, bits);
        });
        factors
    }

    /// For each column, the sum of a summand and the products of a row that `takes` names.
    fn sums(
        &self,
        row: usize,
        summands: &[Number; 8],
        takes: impl Fn(usize) -> bool + Copy,
    ) -> [Sum; 8] {
        let terms = || {
            let of_a = self.a[row][..self.count].iter().zip(&self.places[row]);
            let taken = of_a.enumerate().filter(move |(at, _)| takes(*at));
            taken.map(|(_, (a, place))| (*a, &self.b[usize::from(*place)]))
        };
        let mut highest = summands.map(|summand| summand.exponent);
        for (a, b) in terms() {
            for (highest, b) in highest.iter_mut().zip(b) {
                *highest = (*highest).max(a.exponent + b.exponent);
            }
        }
        // Where all is zero any unit does; where something is infinite or no number, too.
        let last = highest.map(|highest| highest.max(-300) - Sum::DIGITS);
        let scale = last.map(|last| power_of_two(-last));
        let cut = |value: f64| f64::from(value as i32);
        let mut units: [f64; 8] = std::array::from_fn(|n| cut(summands[n].value * scale[n]));
        for (a, b) in terms() {
            for ((units, b), scale) in units.iter_mut().zip(b).zip(scale) {
                *units += cut(a.value * b.value * scale);
            }
        }
        let plain = |a: f64| a.is_finite();
        std::array::from_fn(|n| {
            let finite = plain(summands[n].value)
                && terms().all(|(a, b)| plain(a.value) && plain(b[n].value));
            let units = match finite {
                true => units[n],
                // Factors are exact, so arithmetic gives what there is of infinity and NaN.
                false => terms().fold(summands[n].value, |sum, (a, b)| sum + a.value * b[n].value),
            };
            Sum {
                units,
                unit: power_of_two(last[n]),
            }
        })
    }
}

/// The elements of a row of `C`.
fn row_of_c(product: Product, c: &[Words], row: usize) -> [u32; 8] {
    std::array::from_fn(|column| {
        let (lane, register) = place_of_sum(row, column);
        match product.halves[0] {
            true => c[register / 2][lane] >> (16 * (register % 2)) & 0xffff,
            false => c[register][lane],
        }
    })
}

/// The number that an element of `C` is.
fn summand(half: bool, bits: u32) -> Number {
    match half {
        true => Number::of(bits, 5, 10),
        false => Number::single(bits),
    }
}

fn set_d(product: Product, d: &mut [Words], (row, column): (usize, usize), bits: u32) {
    let (lane, register) = place_of_sum(row, column);
    match product.halves[1] {
        true => d[register / 2][lane] |= bits << (16 * (register % 2)),
        false => d[register][lane] = bits,
    }
}

/// A tile of `.f16`, `.bf16` or `.tf32`.
pub(super) fn compute(
    product: Product,
    a: &[Words],
    b: &[Words],
    c: &[Words],
    metadata: &[Words],
    d: &mut [Words],
) {
    let factors = Factors::of(product, a, b, metadata);
    let [half_c, half_d] = product.halves;
    let in_steps = product.tiles != Tiles::One && product.elements[0] == Element::Tf32;
    for row in 0..product.rows as usize {
        let mut summands = row_of_c(product, c, row).map(|bits| summand(half_c, bits));
        if in_steps {
            let sums = factors.sums(row, &summands, |at| at < 4);
            summands = sums.map(|sum| Number::single(sum.single()));
        }
        let sums = factors.sums(row, &summands, |at| !in_steps || at >= 4);
        for (column, sum) in sums.iter().enumerate() {
            let bits = match (half_c, half_d) {
                (true, true) => u32::from(sum.half()),
                (false, true) => u32::from(half_of(Number::single(sum.single()).value)),
                (_, false) => sum.single(),
            };
            set_d(product, d, (row, column), bits);
        }
    }
}

/// A tile of `.e4m3` and `.e5m2`.
pub(super) fn bytes(
    product: Product,
    a: &[Words],
    b: &[Words],
    c: &[Words],
    metadata: &[Words],
    d: &mut [Words],
) {
    let factors = Factors::of(product, a, b, metadata);
    let zero = Number {
        value: 0.0,
        exponent: NONE,
    };
    for row in 0..product.rows as usize {
        let mut summands = [zero; 8];
        let of_c = row_of_c(product, c, row);
        for upper in [false, true] {
            let sums = factors.sums(row, &summands, |at| (at % 4 >= 2) == upper);
            summands = match product.halves[1] {
                true => sums.map(|sum| Number::of(u32::from(sum.half()), 5, 10)),
                false => sums.map(|sum| Number::single(sum.single())),
            };
        }
        for column in 0..8 {
            let summand = summand(product.halves[0], of_c[column]);
            let sum = summand.value + summands[column].value;
            let bits = match product.halves[1] {
                true => u32::from(half_of(sum)),
                false => single_bits(sum as f32),
            };
            set_d(product, d, (row, column), bits);
        }
    }
}

/// A tile of `.f64`.
pub(super) fn doubles(product: Product, a: &[Words], b: &[Words], c: &[Words], d: &mut [Words]) {
    let (high, depth) = (product.rows as usize / 8, product.depth as usize);
    let double = |words: &[Words], register: usize, lane: usize| {
        let [low, upper] = [0, 1].map(|n| u64::from(words[2 * register + n][lane]));
        f64::from_bits(upper << 32 | low)
    };
    for row in 0..product.rows as usize {
        for column in 0..8 {
            let (lane, register) = place_of_sum(row, column);
            let sum = (0..depth).fold(double(c, register, lane), |sum, k| {
                let from_a = double(a, k / 4 * high + row / 8, 4 * (row % 8) + k % 4);
                let from_b = double(b, k / 4, 4 * column + k % 4);
                fma(from_a, from_b, sum)
            });
            let bits = sum.to_bits();
            d[2 * register][lane] = bits as u32;
            d[2 * register + 1][lane] = (bits >> 32) as u32;
        }
    }
}

fn fma(a: f64, b: f64, c: f64) -> f64 {
    const QUIET: u64 = 1 << 51;
    const INVALID: u64 = 0xfff8 << 48;
    if let Some(nan) = [b, c, a].into_iter().find(|value| value.is_nan()) {
        return f64::from_bits(nan.to_bits() | QUIET);
    }
    let sum = a.mul_add(b, c);
    match sum.is_nan() {
        true => f64::from_bits(INVALID),
        false => sum,
    }
}
