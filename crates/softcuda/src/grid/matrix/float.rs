//! Products of floats, rounded as the tensor cores of an H200 round. This was found by experiment;
//! each rule below gives the same bits for over a hundred thousand sums of each shape and type,
//! with infinities, NaNs, subnormals and cancellation among them.
//!
//! | elements | an element of `D` is |
//! |---|---|
//! | `.f16`, `.bf16`, `.tf32` | one sum of `C` and all products, see [`Sum`]; if it becomes a half and `C` is a single, a single first |
//! | `.tf32` of `wmma` | the same of the first four products and `C`, and of that and the others |
//! | `.e4m3`, `.e5m2` | these become halves; a sum from zero of the products of the first two bytes of each register, then that and the products of the others, and at last `C` added in the type of `D` |
//! | `.f64` | `fma` after `fma`, in the order of the columns of `A`. Of several NaNs that of `B` stays, else that of `C`, else that of `A` |

#[cfg(target_arch = "x86_64")]
use super::avx2;
use super::dense;
use super::group::GroupProduct;
use super::sparse::Columns;
use super::{Element, Product, Tiles, Words, place_of_sum};
use crate::jit::runtime::convert::e4m3_to_f16;

/// What an `.f32` result is that is no number.
const NAN_SINGLE: u32 = 0x7fff_ffff;
/// The exponent of zero: below that of any sum.
pub(super) const NONE: i32 = -100_000;
/// In the place of an exponent: the value is infinite, or no number.
const INFINITE: i32 = NONE - 1;
const NO_NUMBER: i32 = NONE - 2;

/// A float: its digits with their sign, less than 2, and the power of two that they are of. In a
/// subnormal the digit before the point is 0.
#[derive(Clone, Copy)]
pub(super) struct Number {
    /// Zero with a sign, if it is not finite.
    pub digits: f32,
    pub exponent: i32,
}

impl Number {
    const ZERO: Number = Number {
        digits: 0.0,
        exponent: NONE,
    };

    /// Of a float with so many bits of exponent and fraction, laid out as a single is.
    #[inline(always)]
    fn of(bits: u32, exponent: u32, fraction: u32) -> Number {
        const ONE: u32 = 127 << 23;
        let magnitude = bits & ((1 << (exponent + fraction)) - 1);
        let field = (magnitude >> fraction) as i32;
        let (bias, top) = ((1 << (exponent - 1)) - 1, (1 << exponent) - 1);
        let behind = magnitude & ((1 << fraction) - 1);
        let leading = if field == 0 { 1.0 } else { 0.0 };
        let digits = f32::from_bits(ONE | behind << (23 - fraction)) - leading;
        let exponent_of_finite = if magnitude == 0 {
            NONE
        } else {
            field.max(1) - bias
        };
        let other = if behind == 0 { INFINITE } else { NO_NUMBER };
        let finite = field != top;
        let digits = if finite { digits } else { 0.0 };
        let sign = (bits >> (exponent + fraction) & 1) << 31;
        Number {
            digits: f32::from_bits(digits.to_bits() | sign),
            exponent: if finite { exponent_of_finite } else { other },
        }
    }

    /// Of an element, of which only the bits that it has are set.
    #[inline(always)]
    fn of_element(element: Element, bits: u32) -> Number {
        match element {
            Element::F16 => Number::of(bits, 5, 10),
            Element::Bf16 => Number::of(bits, 8, 7),
            // The lowest bits are not looked at.
            Element::Tf32 => Number::of(bits >> 13, 8, 10),
            Element::E5m2 => Number::of(bits << 8, 5, 10),
            Element::E4m3 => Number::of_e4m3(bits),
            _ => unreachable!("the others are no floats of a sum"),
        }
    }

    /// The highest exponent is one like others, and only all digits set are no number.
    fn of_e4m3(bits: u32) -> Number {
        let magnitude = bits & 0x7f;
        let number = match magnitude {
            0x7f => Number {
                digits: 0.0,
                exponent: NO_NUMBER,
            },
            0x78.. => Number {
                digits: 1.0 + (magnitude & 7) as f32 / 8.0,
                exponent: 8,
            },
            _ => Number::of(magnitude, 4, 3),
        };
        number.signed(bits >> 7 != 0)
    }

    /// Negated, if it is to be.
    #[inline(always)]
    fn signed(self, negative: bool) -> Number {
        let digits = if negative { -self.digits } else { self.digits };
        Number { digits, ..self }
    }

    #[inline(always)]
    pub fn half(bits: u32) -> Number {
        Number::of(bits, 5, 10)
    }

    #[inline(always)]
    pub fn single(bits: u32) -> Number {
        Number::of(bits, 8, 23)
    }

    #[inline(always)]
    pub fn is_finite(self) -> bool {
        self.exponent >= NONE
    }

    /// What it is, also where that is not finite.
    pub fn float(self) -> f64 {
        let digits = f64::from(self.digits);
        match self.exponent {
            INFINITE => f64::INFINITY.copysign(digits),
            NO_NUMBER => f64::NAN,
            NONE => digits,
            exponent => digits * power_of_two(exponent),
        }
    }
}

/// `2.powi(n)` where that is a normal number.
#[inline(always)]
pub(super) fn power_of_two(n: i32) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

/// The value of a half.
pub(super) fn half(bits: u16) -> f32 {
    Number::of(u32::from(bits), 5, 10).float() as f32
}

/// The half nearest to a value.
#[inline(always)]
pub(super) fn half_of(value: f64) -> u16 {
    const NAN: u16 = 0x7fff;
    const INFINITY: u16 = 0x7c00;
    // So large that a sum with it is a whole number, and so is the difference again.
    const WHOLE: f64 = 1.5 * (1u64 << 52) as f64;
    if value.is_nan() {
        return NAN;
    }
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let magnitude = value.abs();
    if magnitude >= f64::from(1 << 16) {
        return sign | INFINITY;
    }
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(-14);
    let digits = magnitude * power_of_two(10 - exponent);
    let nearest = (digits + WHOLE) - WHOLE;
    let field = ((exponent + 14) as u16) << 10;
    sign | (field + nearest as u16)
}

/// The bits of a single that arithmetic gave.
pub(super) fn single_bits(value: f32) -> u32 {
    match value.is_nan() {
        true => NAN_SINGLE,
        false => value.to_bits(),
    }
}

/// A single without the digits that do not fit.
#[inline(always)]
pub(super) fn single_cut(value: f64) -> u32 {
    let (nearest, magnitude) = (value as f32, value.abs());
    let over = (f64::from(nearest).abs() > magnitude) & (magnitude < power_of_two(128));
    nearest.to_bits() - u32::from(over)
}

/// How many digits behind the leading one of the greatest term count in a sum.
pub(super) const DIGITS: i32 = 25;
/// The same of `.e4m3` and `.e5m2` in a warpgroup, where a single has no more either.
const DIGITS_OF_BYTES: i32 = 13;

/// One sum as a tensor core makes it: the products are exact; they and the summand are cut, towards
/// zero, to multiples of 2 to the power of the greatest exponent among them less so many
/// [`DIGITS`], where the exponent of a product is the sum of its factors'; the sum of these is
/// exact. What is no number wins, as in all arithmetic, and zero has no sign.
struct Sum(f64);

impl Sum {
    /// A single: cut.
    #[inline(always)]
    fn single(&self) -> u32 {
        match self.0.is_nan() {
            true => NAN_SINGLE,
            false => single_cut(self.0),
        }
    }

    /// A half: the nearest.
    #[inline(always)]
    fn half(&self) -> u16 {
        half_of(self.0)
    }

    /// A single with no more digits behind its leading one than these.
    #[inline(always)]
    fn single_of(&self, digits: i32) -> u32 {
        let bits = self.single();
        let cut = match self.0.is_finite() {
            true => bits & !0 << (23 - digits),
            false => bits,
        };
        // Zero has no sign.
        if cut << 1 == 0 { 0 } else { cut }
    }
}

/// Rows of `A`, or of `B`, whose rows are of 8 columns.
struct Numbers<const COLUMNS: usize, const ROWS: usize> {
    digits: [[f32; COLUMNS]; ROWS],
    exponents: [[i32; COLUMNS]; ROWS],
}

impl<const COLUMNS: usize, const ROWS: usize> Numbers<COLUMNS, ROWS> {
    /// Nothing but zeros.
    const ZEROS: Self = Numbers {
        digits: [[0.0; COLUMNS]; ROWS],
        exponents: [[NONE; COLUMNS]; ROWS],
    };

    #[inline(always)]
    fn set(&mut self, row: usize, column: usize, number: Number) {
        self.digits[row][column] = number.digits;
        self.exponents[row][column] = number.exponent;
    }

    #[inline(always)]
    fn number(&self, row: usize, column: usize) -> Number {
        Number {
            digits: self.digits[row][column],
            exponent: self.exponents[row][column],
        }
    }

    #[inline(always)]
    fn is_finite(&self) -> bool {
        let rows = self.exponents.iter().flatten();
        rows.fold(0, |least, exponent| least.min(*exponent)) >= NONE
    }
}

/// Rows of `A`, and the rows of `B` that they go with.
struct Factors {
    a: Numbers<32, 16>,
    b: Numbers<8, 64>,
    /// For each row of `A`, the rows of `B`.
    places: Columns,
    /// How many elements of a row are there.
    count: usize,
    /// How many digits of a sum count.
    digits: i32,
    /// All factors are finite.
    finite: bool,
}

impl Factors {
    /// Nothing but zeros, of which none is there.
    const ZEROS: Factors = Factors {
        a: Numbers::ZEROS,
        b: Numbers::ZEROS,
        places: [[0; 64]; 16],
        count: 0,
        digits: DIGITS,
        finite: false,
    };

    #[inline(always)]
    fn of(product: Product, a: &[Words], b: &[Words], metadata: &[Words]) -> Factors {
        let [of_a, of_b] = product.elements;
        let mut factors = Factors {
            places: product.places(metadata),
            count: (product.depth >> u32::from(product.sparse.is_some())) as usize,
            ..Factors::ZEROS
        };
        let number = |element: Element, bits: u32| {
            match element {
                // They become halves first, where none is a subnormal.
                Element::E4m3 => Number::of(u32::from(e4m3_to_f16(bits as u8)), 5, 10),
                _ => Number::of_element(element, bits),
            }
        };
        if product.elements == [Element::F16; 2] {
            // The common case, where all elements are read in the same way.
            let half = |bits: u32| Number::of(bits, 5, 10);
            product.each_of_a(a, |row, at, bits| factors.a.set(row, at, half(bits)));
            product.each_of_b(b, |column, at, bits| factors.b.set(at, column, half(bits)));
        } else {
            product.each_of_a(a, |row, at, bits| {
                factors.a.set(row, at, number(of_a, bits));
            });
            product.each_of_b(b, |column, at, bits| {
                factors.b.set(at, column, number(of_b, bits));
            });
        }
        factors.finite = factors.a.is_finite() && factors.b.is_finite();
        factors
    }

    /// For each column, the sum of a summand and the products of a row that `takes` names.
    #[inline(always)]
    fn sums(
        &self,
        row: usize,
        summands: &[Number; 8],
        takes: impl Fn(usize) -> bool + Copy,
    ) -> [Sum; 8] {
        let terms = || {
            let places = &self.places[row][..self.count];
            let taken = places.iter().enumerate().filter(move |(at, _)| takes(*at));
            taken.map(|(at, place)| (at, usize::from(*place) % 64))
        };
        let sums = self.finite_sums(row, summands, terms);
        if self.finite && summands.iter().all(|summand| summand.is_finite()) {
            return sums.map(Sum);
        }
        std::array::from_fn(|column| {
            let numbers = || {
                terms().map(|(at, place)| [self.a.number(row, at), self.b.number(place, column)])
            };
            let summand = summands[column];
            if numbers().flatten().chain([summand]).all(Number::is_finite) {
                return Sum(sums[column]);
            }
            // Where something is not finite, arithmetic gives what there is of it.
            let start = summand.float();
            Sum(numbers().fold(start, |sum, [a, b]| sum + a.float() * b.float()))
        })
    }

    /// The same, of what is finite; of anything else, anything.
    #[inline(always)]
    fn finite_sums<T: Iterator<Item = (usize, usize)>>(
        &self,
        row: usize,
        summands: &[Number; 8],
        terms: impl Fn() -> T,
    ) -> [f64; 8] {
        let mut highest: [i32; 8] = std::array::from_fn(|n| summands[n].exponent);
        for (at, place) in terms() {
            let of_a = self.a.exponents[row][at];
            for (highest, of_b) in highest.iter_mut().zip(&self.b.exponents[place]) {
                *highest = (*highest).max(of_a + of_b);
            }
        }
        let digits = self.digits;
        let mut units: [i64; 8] = std::array::from_fn(|n| {
            i64::from(cut(
                summands[n].digits,
                summands[n].exponent - highest[n] + digits,
            ))
        });
        // Eight terms at most fit into 32 bits.
        let mut parts = [0i32; 8];
        for (number, (at, place)) in terms().enumerate() {
            let (of_a, power) = (self.a.digits[row][at], self.a.exponents[row][at]);
            let (columns, powers) = (&self.b.digits[place], &self.b.exponents[place]);
            for n in 0..8 {
                parts[n] += cut(of_a * columns[n], power + powers[n] - highest[n] + digits);
            }
            if number % 8 == 7 {
                for (units, part) in units.iter_mut().zip(&mut parts) {
                    *units += i64::from(std::mem::take(part));
                }
            }
        }
        std::array::from_fn(|n| {
            // Where all is zero any unit does.
            let last = highest[n].max(-300) - digits;
            (units[n] + i64::from(parts[n])) as f64 * power_of_two(last)
        })
    }
}

/// The whole units in a term of a sum: digits, less than 4, of so many times 2.
#[inline(always)]
pub(super) fn cut(digits: f32, power: i32) -> i32 {
    debug_assert!(power <= DIGITS, "the greatest power is that of the sum");
    // What is less than a unit is nothing.
    let factor = f32::from_bits(((power.max(-64) + 127) << 23) as u32);
    // SAFETY: digits are finite and less than 4, and the power is at most `DIGITS`, as no term is
    // of a greater power than the greatest.
    unsafe { (digits * factor).to_int_unchecked() }
}

/// Tiles of a warp of a warpgroup, which have the same rows of `A`.
pub(super) struct Group<'a> {
    product: GroupProduct,
    /// The bits of the elements of the rows, of which so many are there.
    rows: &'a [[u32; 32]; 16],
    count: usize,
    places: Columns,
    /// How most sums are computed.
    fast: Fast,
    /// The rows, and whether they are finite, once a sum is computed in the general way. Not on the
    /// stack, which may be nearly used up.
    general: Option<Box<(Factors, bool)>>,
}

/// Ways to compute the sums of a warpgroup, in which not all can be.
#[allow(clippy::large_enum_variant, reason = "it lives on the stack")]
enum Fast {
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Group),
    Dense(dense::Rows),
    None,
}

impl Fast {
    fn of(product: GroupProduct, rows: &[[u32; 32]; 16]) -> Fast {
        #[cfg(target_arch = "x86_64")]
        if let Some(group) = avx2::Group::of(product, rows) {
            return Fast::Avx2(group);
        }
        dense::Rows::of(product, rows).map_or(Fast::None, Fast::Dense)
    }
}

impl<'a> Group<'a> {
    /// Of rows, of which so many elements are there, given by their bits.
    pub fn new(
        product: GroupProduct,
        rows: &'a [[u32; 32]; 16],
        count: usize,
        places: Columns,
    ) -> Group<'a> {
        Group {
            product,
            rows,
            count,
            places,
            fast: Fast::of(product, rows),
            general: None,
        }
    }

    /// Computes all sums in the general way.
    #[cfg(test)]
    pub fn without_dense(&mut self) -> &mut Group<'a> {
        self.fast = Fast::None;
        self
    }

    /// The rows as factors, without columns.
    #[inline(never)]
    fn factors(&self) -> Box<(Factors, bool)> {
        // A constant needs no room on the stack on its way.
        let mut general = Box::new((Factors::ZEROS, false));
        let (factors, finite) = &mut *general;
        (factors.places, factors.count) = (self.places, self.count);
        if self.product.elements[0].is_fp8() {
            factors.digits = DIGITS_OF_BYTES;
        }
        for (row, bits) in self.rows.iter().enumerate() {
            for (at, bits) in bits[..self.count].iter().enumerate() {
                let number = Number::of_element(self.product.elements[0], *bits);
                let number = number.signed(self.product.negated[0]);
                factors.a.set(row, at, number);
            }
        }
        *finite = factors.a.is_finite();
        general
    }

    /// Adds the products with these columns to what is there.
    #[inline(always)]
    pub fn tile(&mut self, columns: &[[u32; 64]; 8], sums: &mut [Words]) {
        let (product, depth) = (self.product, self.product.depth() as usize);
        let computed = match &self.fast {
            #[cfg(target_arch = "x86_64")]
            Fast::Avx2(group) => group.tile(columns, sums),
            Fast::Dense(rows) => rows.tile(product, columns, sums),
            Fast::None => None,
        };
        if computed.is_some() {
            return;
        }
        let mut general = self.general.take().unwrap_or_else(|| self.factors());
        let (factors, finite) = &mut *general;
        for (column, bits) in columns.iter().enumerate() {
            for (at, bits) in bits[..depth].iter().enumerate() {
                let number = Number::of_element(product.elements[1], *bits);
                let number = number.signed(product.negated[1]);
                factors.b.set(at, column, number);
            }
        }
        factors.finite = *finite && factors.b.is_finite();
        for row in 0..16 {
            let of_c = row_of(product.half, sums, row);
            let summands = of_c.map(|bits| summand(product.half, bits));
            let totals = factors.sums(row, &summands, |_| true);
            for (column, total) in totals.iter().enumerate() {
                let (lane, register) = place_of_sum(row, column);
                if product.half {
                    let word = &mut sums[register / 2][lane];
                    let shift = 16 * (register % 2);
                    *word = *word & !(0xffff << shift) | u32::from(total.half()) << shift;
                } else {
                    sums[register][lane] = match factors.digits {
                        DIGITS_OF_BYTES => total.single_of(DIGITS_OF_BYTES),
                        _ => total.single(),
                    };
                }
            }
        }
        self.general = Some(general);
    }
}

/// The elements of a row of `C`.
#[inline(always)]
fn row_of_c(product: Product, c: &[Words], row: usize) -> [u32; 8] {
    row_of(product.halves[0], c, row)
}

#[inline(always)]
fn row_of(half: bool, c: &[Words], row: usize) -> [u32; 8] {
    std::array::from_fn(|column| {
        let (lane, register) = place_of_sum(row, column);
        match half {
            true => c[register / 2][lane] >> (16 * (register % 2)) & 0xffff,
            false => c[register][lane],
        }
    })
}

/// The number that an element of `C` is.
#[inline(always)]
fn summand(half: bool, bits: u32) -> Number {
    match half {
        true => Number::half(bits),
        false => Number::single(bits),
    }
}

#[inline(always)]
fn set_d(product: Product, d: &mut [Words], (row, column): (usize, usize), bits: u32) {
    let (lane, register) = place_of_sum(row, column);
    match product.halves[1] {
        true => d[register / 2][lane] |= bits << (16 * (register % 2)),
        false => d[register][lane] = bits,
    }
}

/// A tile of `.f16`, `.bf16` or `.tf32`.
#[inline(always)]
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
                (false, true) => u32::from(half_of(Number::single(sum.single()).float())),
                (_, false) => sum.single(),
            };
            set_d(product, d, (row, column), bits);
        }
    }
}

/// A tile of `.e4m3` and `.e5m2`.
#[inline(always)]
pub(super) fn bytes(
    product: Product,
    a: &[Words],
    b: &[Words],
    c: &[Words],
    metadata: &[Words],
    d: &mut [Words],
) {
    let factors = Factors::of(product, a, b, metadata);
    for row in 0..product.rows as usize {
        let mut summands = [Number::ZERO; 8];
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
            let sum = summand.float() + summands[column].float();
            let bits = match product.halves[1] {
                true => u32::from(half_of(sum)),
                false => single_bits(sum as f32),
            };
            set_d(product, d, (row, column), bits);
        }
    }
}

/// A tile of `.f64`.
#[inline(always)]
pub(super) fn doubles(product: Product, a: &[Words], b: &[Words], c: &[Words], d: &mut [Words]) {
    let (high, depth) = (product.rows as usize / 8, product.depth as usize);
    let double = |words: &[Words], register: usize, lane: usize| {
        let [low, upper] = [0, 1].map(|n| u64::from(words[2 * register + n][lane]));
        f64::from_bits(upper << 32 | low)
    };
    let mut by_depth = [[0.0; 8]; 16];
    for (k, others) in by_depth[..depth].iter_mut().enumerate() {
        *others = std::array::from_fn(|column| double(b, k / 4, 4 * column + k % 4));
    }
    for row in 0..product.rows as usize {
        let place = |column| place_of_sum(row, column);
        let start: [f64; 8] = std::array::from_fn(|column| {
            let (lane, register) = place(column);
            double(c, register, lane)
        });
        let factor = |k| double(a, k / 4 * high + row / 8, 4 * (row % 8) + k % 4);
        let mut sums = start;
        for (k, others) in by_depth[..depth].iter().enumerate() {
            let factor = factor(k);
            for column in 0..8 {
                sums[column] = factor.mul_add(others[column], sums[column]);
            }
        }
        for (column, mut sum) in sums.into_iter().enumerate() {
            if sum.is_nan() {
                // Which of several it is, this does not tell.
                let terms = by_depth[..depth].iter().enumerate();
                sum = terms.fold(start[column], |sum, (k, others)| {
                    fma(factor(k), others[column], sum)
                });
            }
            let (lane, register) = place(column);
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
