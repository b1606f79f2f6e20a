//! The sums of [`float`](super::float) of the products that most kernels are made of: `.f16`,
//! `.bf16` and `.tf32`, dense, of factors that are finite and neither huge nor tiny. A product of
//! two such factors is a single, exactly, and so is the factor that cuts it: eight columns at a
//! time are a few instructions of the processor.
#![allow(
    clippy::needless_range_loop,
    clippy::redundant_closure,
    reason = "loops over several arrays, and closures, become vectors"
)]

use std::ops::{Range, RangeInclusive};

use super::float::{DIGITS, NONE, Number, cut, half_of, power_of_two, single_cut};
use super::group::GroupProduct;
use super::{Element, Product, Words, place_of_sum};

/// Powers of two of factors, from the least to the greatest: products of them, and these cut, stay
/// in the range of a single.
pub(super) const POWERS: RangeInclusive<i32> = -30..=30;
/// The greatest factor that cuts a product, as a power of two: what is cut by more is zero.
const MOST_CUT: i32 = DIGITS - 2 * *POWERS.start();

/// Factors of a tile: `A` by rows, `B` by the rows of its eight columns.
struct Factors<'a, const DEPTH: usize> {
    a: &'a Elements<DEPTH, 16>,
    b: Elements<8, DEPTH>,
}

/// What elements are, and the powers of two that they count as: [`NONE`] for zero.
pub(super) struct Elements<const COLUMNS: usize, const ROWS: usize> {
    values: [[f32; COLUMNS]; ROWS],
    powers: [[i32; COLUMNS]; ROWS],
}

/// The layout of an element's bits, as a single's are.
#[derive(Clone, Copy)]
struct Layout {
    /// Bits of a register that an element takes.
    bits: u32,
    /// What of these counts.
    mask: u32,
    exponent: u32,
    fraction: u32,
}

impl Layout {
    /// `None` of elements that are of other kinds.
    fn of(element: Element) -> Option<Layout> {
        let (bits, mask, exponent, fraction) = match element {
            Element::F16 => (16, 0xffff, 5, 10),
            Element::Bf16 => (16, 0xffff, 8, 7),
            // The lowest bits are not looked at.
            Element::Tf32 => (32, !0x1fff, 8, 23),
            _ => return None,
        };
        Some(Layout {
            bits,
            mask,
            exponent,
            fraction,
        })
    }

    fn sign_at(self) -> u32 {
        self.exponent + self.fraction
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// The exponent of what is not finite.
    fn top(self) -> i32 {
        (1 << self.exponent) - 1
    }
}

impl<const COLUMNS: usize, const ROWS: usize> Elements<COLUMNS, ROWS> {
    /// `None` where a power is not among [`POWERS`], or an element is not finite.
    #[inline(always)]
    fn of(layout: Layout, bits: [[u32; COLUMNS]; ROWS]) -> Option<Self> {
        let mut elements = Elements {
            values: [[0.0; COLUMNS]; ROWS],
            powers: [[0; COLUMNS]; ROWS],
        };
        let mut wide = [false; COLUMNS];
        let sign_at = layout.sign_at();
        // From the layout's bias to that of a single, which subnormals come along with.
        let unit = f32::from_bits(((254 - layout.bias()) as u32) << 23);
        for row in 0..ROWS {
            for column in 0..COLUMNS {
                let bits = bits[row][column] & layout.mask;
                let magnitude = bits & ((1 << sign_at) - 1);
                let value = f32::from_bits(magnitude << (23 - layout.fraction)) * unit;
                let sign = (bits >> sign_at & 1) << 31;
                let field = (magnitude >> layout.fraction) as i32;
                elements.values[row][column] = f32::from_bits(value.to_bits() | sign);
                let power = field.max(1) - layout.bias();
                let outside = (power < *POWERS.start()) | (power > *POWERS.end());
                let special = field == layout.top();
                wide[column] |= (outside | special) & (magnitude != 0);
                elements.powers[row][column] = if magnitude == 0 { NONE } else { power };
            }
        }
        (wide == [false; COLUMNS]).then_some(elements)
    }
}

/// Computes a tile, if it can be computed so. `D` is zero before; if it cannot, it stays so.
#[inline(always)]
pub(super) fn compute(
    product: Product,
    a: &[Words],
    b: &[Words],
    c: &[Words],
    d: &mut [Words],
) -> Option<()> {
    if product.sparse.is_some() || product.elements[0] != product.elements[1] {
        return None;
    }
    let layout = Layout::of(product.elements[0])?;
    match (layout.bits, a.len()) {
        (16, 2) => tile::<8, 2>(product, layout, a, b, c, d),
        (16, 4) => tile::<16, 2>(product, layout, a, b, c, d),
        (32, 2) => tile::<4, 1>(product, layout, a, b, c, d),
        (32, 4) => tile::<8, 1>(product, layout, a, b, c, d),
        _ => None,
    }
}

/// The same of a certain depth and number of elements in a register.
#[inline(always)]
fn tile<const DEPTH: usize, const EACH: usize>(
    product: Product,
    layout: Layout,
    a: &[Words],
    b: &[Words],
    c: &[Words],
    d: &mut [Words],
) -> Option<()> {
    let element = |words: &Words, row: usize, column: usize| {
        words[4 * row + column / EACH] >> (layout.bits * (column % EACH) as u32)
    };
    let (mut rows, mut columns) = ([[0; DEPTH]; 16], [[0; 8]; DEPTH]);
    for (register, words) in a.iter().enumerate() {
        let (down, along) = (8 * (register % 2), 4 * EACH * (register / 2));
        for row in 0..8 {
            for column in 0..4 * EACH {
                rows[down + row][along + column] = element(words, row, column);
            }
        }
    }
    for (register, words) in b.iter().enumerate() {
        for at in 0..4 * EACH {
            for column in 0..8 {
                columns[4 * EACH * register + at][column] = element(words, column, at);
            }
        }
    }
    let factors = Factors {
        a: &Elements::of(layout, rows)?,
        b: Elements::of(layout, columns)?,
    };
    let [half_c, half_d] = product.halves;
    let in_steps = product.tiles != super::Tiles::One && product.elements[0] == Element::Tf32;
    let mut sums = gathered(half_c, c);
    if in_steps {
        factors.add(&mut sums, [false; 2], 0..DEPTH / 2)?;
        factors.add(&mut sums, [false; 2], DEPTH / 2..DEPTH)?;
    } else {
        factors.add(&mut sums, [half_c, half_d], 0..DEPTH)?;
    }
    scatter(half_d, &sums, d);
    Some(())
}

/// The 16 rows of `A` that a warp of a warpgroup has.
#[allow(clippy::large_enum_variant, reason = "it lives on the stack")]
pub(super) enum Rows {
    Eight(Elements<8, 16>),
    Sixteen(Elements<16, 16>),
}

impl Rows {
    /// `None` where the products must be computed otherwise.
    pub fn of(product: GroupProduct, bits: &[[u32; 32]; 16]) -> Option<Rows> {
        if product.sparse.is_some() || product.elements[0] != product.elements[1] {
            return None;
        }
        let layout = Layout::of(product.elements[0])?;
        match layout.bits {
            16 => Elements::of(layout, signed(layout, bits, product.negated[0])).map(Rows::Sixteen),
            _ => Elements::of(layout, signed(layout, bits, product.negated[0])).map(Rows::Eight),
        }
    }

    /// Adds the products with these columns to sums. `None` if they cannot be computed so, and the
    /// sums are as they were.
    #[inline(always)]
    pub fn tile(
        &self,
        product: GroupProduct,
        columns: &[[u32; 64]; 8],
        sums: &mut [Words],
    ) -> Option<()> {
        match self {
            Rows::Eight(rows) => tile_of_group(rows, product, columns, sums),
            Rows::Sixteen(rows) => tile_of_group(rows, product, columns, sums),
        }
    }
}

#[inline(always)]
fn tile_of_group<const DEPTH: usize>(
    rows: &Elements<DEPTH, 16>,
    product: GroupProduct,
    columns: &[[u32; 64]; 8],
    d: &mut [Words],
) -> Option<()> {
    let layout = Layout::of(product.elements[1])?;
    let columns: [[u32; DEPTH]; 8] = signed(layout, columns, product.negated[1]);
    let mut by_rows = [[0; 8]; DEPTH];
    for at in 0..DEPTH {
        for column in 0..8 {
            by_rows[at][column] = columns[column][at];
        }
    }
    let factors = Factors {
        a: rows,
        b: Elements::of(layout, by_rows)?,
    };
    let mut sums = gathered(product.half, d);
    factors.add(&mut sums, [product.half; 2], 0..DEPTH)?;
    d.iter_mut().for_each(|words| *words = [0; 32]);
    scatter(product.half, &sums, d);
    Some(())
}

/// The first elements of each row, negated if they are to be.
#[inline(always)]
fn signed<const FROM: usize, const DEPTH: usize, const ROWS: usize>(
    layout: Layout,
    rows: &[[u32; FROM]; ROWS],
    negated: bool,
) -> [[u32; DEPTH]; ROWS] {
    let flip = u32::from(negated) << layout.sign_at();
    let mut signed = [[0; DEPTH]; ROWS];
    for row in 0..ROWS {
        for at in 0..DEPTH {
            signed[row][at] = rows[row][at] ^ flip;
        }
    }
    signed
}

/// `C`, row by row.
#[inline(always)]
fn gathered(half: bool, c: &[Words]) -> [[u32; 8]; 16] {
    let mut rows = [[0; 8]; 16];
    for row in 0..16 {
        for column in 0..8 {
            let (lane, register) = place_of_sum(row, column);
            rows[row][column] = match half {
                true => c[register / 2][lane] >> (16 * (register % 2)) & 0xffff,
                false => c[register][lane],
            };
        }
    }
    rows
}

/// Puts rows into `D`, which is zero before.
#[inline(always)]
fn scatter(half: bool, rows: &[[u32; 8]; 16], d: &mut [Words]) {
    for row in 0..16 {
        for column in 0..8 {
            let (lane, register) = place_of_sum(row, column);
            let bits = rows[row][column];
            match half {
                true => d[register / 2][lane] |= bits << (16 * (register % 2)),
                false => d[register][lane] = bits,
            }
        }
    }
}

/// What the sums of a row begin with.
struct Summands {
    digits: [f32; 8],
    powers: [i32; 8],
}

impl Summands {
    #[inline(always)]
    fn of(bits: &[u32; 8], number: impl Fn(u32) -> Number) -> Summands {
        let (mut digits, mut powers) = ([0.0; 8], [0; 8]);
        for column in 0..8 {
            let number = number(bits[column]);
            (digits[column], powers[column]) = (number.digits, number.exponent);
        }
        Summands { digits, powers }
    }
}

/// Sums as singles, cut.
#[inline(always)]
fn singles(sums: &[f64; 8]) -> [u32; 8] {
    let mut singles = [0; 8];
    for column in 0..8 {
        singles[column] = single_cut(sums[column]);
    }
    singles
}

/// Sums as the nearest halves, where the summands are halves; otherwise they are singles before.
#[inline(always)]
fn halves(sums: &[f64; 8], exact: bool) -> [u32; 8] {
    let mut halves = [0; 8];
    for column in 0..8 {
        let sum = match exact {
            true => sums[column],
            false => Number::single(single_cut(sums[column])).float(),
        };
        halves[column] = half_of(sum).into();
    }
    halves
}

impl<const DEPTH: usize> Factors<'_, DEPTH> {
    /// Adds the products at some depths to what is there: halves or not, and so after it. `None`
    /// where something is not finite; then rows may have changed.
    #[inline(always)]
    fn add(
        &self,
        rows: &mut [[u32; 8]; 16],
        [half_before, half_after]: [bool; 2],
        depths: Range<usize>,
    ) -> Option<()> {
        for (row, bits) in rows.iter_mut().enumerate() {
            let summands = match half_before {
                true => Summands::of(bits, |bits| Number::half(bits)),
                false => Summands::of(bits, |bits| Number::single(bits)),
            };
            let sums = self.sums(row, &summands, depths.clone())?;
            *bits = match half_after {
                true => halves(&sums, half_before),
                false => singles(&sums),
            };
        }
        Some(())
    }

    /// For each column, the sum of a summand and the products of a row at some depths. `None` where
    /// a summand is not finite.
    #[inline(always)]
    fn sums(&self, row: usize, summands: &Summands, depths: Range<usize>) -> Option<[f64; 8]> {
        let (values, powers) = (&self.a.values[row], &self.a.powers[row]);
        let mut highest = summands.powers;
        let mut finite = true;
        for n in 0..8 {
            finite &= highest[n] >= NONE;
        }
        if !finite {
            return None;
        }
        for at in depths.clone() {
            for n in 0..8 {
                highest[n] = highest[n].max(powers[at] + self.b.powers[at][n]);
            }
        }
        let (mut cuts, mut totals) = ([0.0; 8], [0.0; 8]);
        for n in 0..8 {
            let power = (DIGITS - highest[n]).min(MOST_CUT);
            cuts[n] = f32::from_bits(((power + 127) << 23) as u32);
            let power = summands.powers[n] - highest[n] + DIGITS;
            totals[n] = f64::from(cut(summands.digits[n], power));
        }
        let mut at = depths.start;
        while at < depths.end {
            // Eight terms at most fit into 32 bits.
            let mut parts = [0i32; 8];
            for at in at..depths.end.min(at + 8) {
                for n in 0..8 {
                    let product = values[at] * self.b.values[at][n] * cuts[n];
                    // SAFETY: factors are finite, and no product is of a greater power than the
                    // highest: it is less than 4 times 2 to the power of `DIGITS`.
                    parts[n] += unsafe { product.to_int_unchecked::<i32>() };
                }
            }
            for n in 0..8 {
                totals[n] += f64::from(parts[n]);
            }
            at += 8;
        }
        for n in 0..8 {
            // Where all is zero any unit does.
            totals[n] *= power_of_two(highest[n].max(-300) - DIGITS);
        }
        Some(totals)
    }
}
