//! The sums of [`float`](super::float) for processors with AVX2, of what most kernels for tensor
//! cores multiply: dense factors of one type, finite and neither huge nor tiny, added to singles.
//!
//! A vector has the eight columns of a row. Powers of two are numbers of 8 bits, so that the
//! greatest of the products is found for two rows and two depths at a time.

use std::arch::x86_64::*;
use std::array;

use super::float::{DIGITS, single_bits};
use super::group::GroupProduct;
use super::{Element, Product, Tiles, Words};
use crate::jit::runtime::convert::e4m3_to_f16;

/// Eight elements of a row of `A` or of a column of `B`.
pub(super) type Line = [u16; 8];

/// The power of two of a factor that is zero: every product with one has less than [`LEAST`].
const NONE: i16 = i8::MIN as i16;
/// The least power of two of a product that is not zero.
const LEAST: i32 = 2 * *super::dense::POWERS.start();
const _: () = assert!(*super::dense::POWERS.start() == -*super::dense::POWERS.end());
/// What a single adds to its exponent.
const BIAS: i32 = 127;

/// The processor has what the functions here need.
#[inline(always)]
pub(super) fn is_there() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
}

/// The type of the factors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Factor {
    Half,
    Bf16,
    Tf32,
}

impl Factor {
    /// `None` of elements that are of other kinds.
    pub fn of(elements: [Element; 2]) -> Option<Factor> {
        match elements {
            [Element::F16, Element::F16] => Some(Factor::Half),
            [Element::Bf16, Element::Bf16] => Some(Factor::Bf16),
            [Element::Tf32, Element::Tf32] => Some(Factor::Tf32),
            _ => None,
        }
    }

    /// The values of eight elements of 16 bits.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn values(self, line: __m128i) -> __m256 {
        match self {
            Factor::Half => _mm256_cvtph_ps(line),
            _ => _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(line))),
        }
    }

    /// The powers of two of sixteen elements of 16 bits, and all bits of those that cannot be
    /// multiplied here: what is not finite, and what is of no power among
    /// [`dense::POWERS`](super::dense::POWERS).
    #[inline]
    #[target_feature(enable = "avx2")]
    fn powers(self, bits: __m256i) -> [__m256i; 2] {
        let magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7fff));
        let zero = _mm256_cmpeq_epi16(magnitude, _mm256_setzero_si256());
        let (power, outside) = match self {
            Factor::Half => {
                let field = _mm256_srli_epi16::<10>(magnitude);
                let power = _mm256_max_epi16(field, _mm256_set1_epi16(1));
                let power = _mm256_sub_epi16(power, _mm256_set1_epi16(15));
                (
                    power,
                    _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7bff)),
                )
            }
            _ => {
                let field = _mm256_srli_epi16::<7>(magnitude);
                let power = _mm256_sub_epi16(field, _mm256_set1_epi16(BIAS as i16));
                let most = _mm256_set1_epi16(*super::dense::POWERS.end() as i16);
                let outside = _mm256_cmpgt_epi16(_mm256_abs_epi16(power), most);
                (power, _mm256_andnot_si256(zero, outside))
            }
        };
        [
            _mm256_blendv_epi8(power, _mm256_set1_epi16(NONE), zero),
            outside,
        ]
    }
}

/// The values of twice eight `.tf32`, their powers of two, in 16 bits, and all bits of those that
/// cannot be multiplied here.
#[inline]
#[target_feature(enable = "avx2")]
fn of_tf32(bits: [__m256i; 2]) -> ([__m256; 2], __m256i, __m256i) {
    // The lowest bits are not looked at.
    let bits = bits.map(|bits| _mm256_and_si256(bits, _mm256_set1_epi32(!0x1fff)));
    let mut outside = _mm256_setzero_si256();
    let [first, second] = bits.map(|bits| {
        let magnitude = _mm256_slli_epi32::<1>(bits);
        let zero = _mm256_cmpeq_epi32(magnitude, _mm256_setzero_si256());
        let field = _mm256_srli_epi32::<24>(magnitude);
        let power = _mm256_sub_epi32(field, _mm256_set1_epi32(BIAS));
        let most = _mm256_set1_epi32(*super::dense::POWERS.end());
        let wrong = _mm256_cmpgt_epi32(_mm256_abs_epi32(power), most);
        outside = _mm256_or_si256(outside, _mm256_andnot_si256(zero, wrong));
        _mm256_blendv_epi8(power, _mm256_set1_epi32(NONE.into()), zero)
    });
    let powers = _mm256_packs_epi32(first, second);
    let powers = _mm256_permute4x64_epi64::<0b11_01_10_00>(powers);
    (bits.map(|bits| _mm256_castsi256_ps(bits)), powers, outside)
}

/// Computes a tile. `None`, if it must be computed otherwise; then `d` is as it was.
pub(super) fn compute(
    product: Product,
    a: &[Words],
    b: &[Words],
    c: &[Words],
    d: &mut [Words],
) -> Option<()> {
    if product.tiles != Tiles::One && product.elements[0] == Element::Tf32 {
        return None; // in two steps
    }
    let mut words = [[0; 32]; 10];
    let brought = [a, b, c].into_iter().flatten();
    let mut count = 0;
    for (to, from) in words.iter_mut().zip(brought) {
        *to = *from;
        count += 1;
    }
    let tile = Product {
        tiles: Tiles::One,
        ..product
    };
    compute_over(tile, &mut words[..count])?;
    d.copy_from_slice(words.get(..d.len())?);
    Some(())
}

/// Computes what the lanes take over what they brought. `None`, if it must be computed otherwise;
/// then all is as it was.
pub(super) fn compute_over(product: Product, words: &mut [Words]) -> Option<()> {
    let one = (product.tiles, product.rows) == (Tiles::One, 16) && product.sparse.is_none();
    let fits = one && product.halves == [false; 2];
    if !fits || !is_there() {
        return None;
    }
    // SAFETY: the processor has what the functions need.
    unsafe {
        match Factor::of(product.elements) {
            Some(factor) => multiply(factor, words),
            None if product.elements.into_iter().all(Element::is_fp8) => {
                multiply_bytes(product.elements, words)
            }
            None => None,
        }
    }
}

#[target_feature(enable = "avx2,f16c")]
fn multiply(factor: Factor, words: &mut [Words]) -> Option<()> {
    // A product of half the depth has half of the registers: behind it all is zero.
    let zeros = [0; 32];
    let (a, b, c) = match &*words {
        [a, b, c, d, e, f, sums @ ..] if sums.len() >= 4 => ([[a, b], [c, d]], [e, f], sums),
        [a, b, c, sums @ ..] => ([[a, b], [&zeros; 2]], [c, &zeros], sums),
        _ => return None,
    };
    let (mut rows, mut columns, mut sums) = (Rows::new(), Columns::new(), Sums::new());
    rows.set(factor, |half, row| line(a[half][row / 8], row % 8))?;
    columns.set(factor, |half, column| line(b[half], column))?;
    sums.set(c.first_chunk()?)?;
    let d = words.first_chunk_mut()?;
    match factor {
        Factor::Tf32 => rows.add::<8>(&columns, &sums, d),
        _ => rows.add::<16>(&columns, &sums, d),
    }
    Some(())
}

/// The same of `.e4m3` and `.e5m2`, as halves: those of the first two bytes of each register, then
/// the others, and at last the summands.
#[target_feature(enable = "avx2,f16c")]
fn multiply_bytes(elements: [Element; 2], words: &mut [Words]) -> Option<()> {
    let [a0, a1, a2, a3, b0, b1, c @ ..] = &*words else {
        return None;
    };
    let (a, b, c) = ([[a0, a1], [a2, a3]], [b0, b1], c.first_chunk::<4>()?);
    let half = |element, byte: u8| match element {
        Element::E4m3 => HALF_OF_E4M3[usize::from(byte)],
        _ => u16::from(byte) << 8,
    };
    let line = |element, words: &Words, at: usize, first: usize| -> Line {
        let words: [u32; 4] = words.as_chunks().0[at];
        array::from_fn(|n| half(element, words[n / 2].to_le_bytes()[first + n % 2]))
    };
    let (mut rows, mut columns, mut sums) = (Rows::new(), Columns::new(), Sums::new());
    let mut totals = [[0; 32]; 4];
    for first in [0, 2] {
        let [of_a, of_b] = elements;
        let of_rows = |half: usize, row: usize| line(of_a, a[half][row / 8], row % 8, first);
        rows.set(Factor::Half, of_rows)?;
        let of_columns = |half: usize, column: usize| line(of_b, b[half], column, first);
        columns.set(Factor::Half, of_columns)?;
        sums.set(&totals)?;
        rows.add::<16>(&columns, &sums, &mut totals);
    }
    for (totals, c) in totals.iter_mut().zip(c) {
        for (total, c) in totals.iter_mut().zip(c) {
            *total = single_bits(f32::from_bits(*c) + f32::from_bits(*total));
        }
    }
    *words.first_chunk_mut()? = totals;
    Some(())
}

/// By their bits.
static HALF_OF_E4M3: [u16; 256] = {
    let mut halves = [0; 256];
    let mut bits = 0;
    while bits < 256 {
        halves[bits] = e4m3_to_f16(bits as u8);
        bits += 1;
    }
    halves
};

/// The rows of a warp of a warpgroup.
pub(super) struct Group {
    factor: Factor,
    rows: Rows,
    /// What is flipped in the columns' elements.
    sign: u16,
}

impl Group {
    /// `None` where the products must be computed otherwise.
    pub fn of(product: GroupProduct, bits: &[[u32; 32]; 16]) -> Option<Group> {
        let fits = !product.half && product.sparse.is_none() && is_there();
        let of_16_bits = |factor: &Factor| fits && *factor != Factor::Tf32;
        let factor = Factor::of(product.elements).filter(of_16_bits)?;
        let [sign_of_a, sign] = product.negated.map(|negated| u16::from(negated) << 15);
        // SAFETY: the processor has what the function needs.
        let rows = unsafe {
            let mut rows = Rows::new();
            rows.set(factor, |half, row| signed(sign_of_a, &bits[row], half))?;
            rows
        };
        Some(Group { factor, rows, sign })
    }

    /// Adds the products with these columns to sums. `None` if they must be computed otherwise;
    /// then the sums are as they were.
    pub fn tile(&self, columns: &[[u32; 64]; 8], sums: &mut [Words]) -> Option<()> {
        // SAFETY: the processor has what the function needs, or there would be no rows.
        unsafe { self.add(columns, sums.first_chunk_mut()?) }
    }

    #[target_feature(enable = "avx2,f16c")]
    fn add(&self, columns: &[[u32; 64]; 8], sums: &mut [Words; 4]) -> Option<()> {
        let line = |half, column: usize| signed(self.sign, &columns[column], half);
        let (mut of_b, mut before) = (Columns::new(), Sums::new());
        of_b.set(self.factor, line)?;
        before.set(sums)?;
        self.rows.add::<16>(&of_b, &before, sums);
        Some(())
    }
}

/// Eight elements, whose bits are given, with the bits of `sign` flipped.
#[inline(always)]
fn signed(sign: u16, bits: &[u32], half: usize) -> Line {
    let bits: [u32; 8] = bits.as_chunks().0[half];
    bits.map(|bits| bits as u16 ^ sign)
}

/// What four lanes from `4 at` on have in a register.
#[inline(always)]
fn line(words: &Words, at: usize) -> Line {
    let words: [u32; 4] = words.as_chunks().0[at];
    // SAFETY: both are 16 bytes of which all values are allowed.
    unsafe { std::mem::transmute(words) }
}

/// 16 rows of 16 elements of `A`.
pub(super) struct Rows {
    values: [[f32; 16]; 16],
    /// Of rows `2 n` and `2 n + 1`, one in each half of the vector.
    powers: [__m256i; 8],
}

impl Rows {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Rows {
        Rows {
            values: [[0.0; 16]; 16],
            powers: [_mm256_setzero_si256(); 8],
        }
    }

    /// Sets them to lines, by which eight columns they are and by row. `None` where the products
    /// must be computed otherwise.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn set(&mut self, factor: Factor, line: impl Fn(usize, usize) -> Line) -> Option<()> {
        let mut outside = _mm256_setzero_si256();
        for pair in 0..8 {
            if factor == Factor::Tf32 {
                let of_row = |row| _mm256_set_m128i(vector(line(1, row)), vector(line(0, row)));
                let (values, powers, wrong) = of_tf32([2 * pair, 2 * pair + 1].map(of_row));
                for (row, values) in self.values[2 * pair..].iter_mut().zip(values) {
                    // SAFETY: both are 32 bytes of which all values are allowed.
                    let values = unsafe { std::mem::transmute::<__m256, [f32; 8]>(values) };
                    row.as_chunks_mut().0[0] = values;
                }
                outside = _mm256_or_si256(outside, wrong);
                self.powers[pair] = _mm256_packs_epi16(powers, powers);
                continue;
            }
            // Closures that arrays are mapped by are not always compiled into what maps them, which
            // has none of the processor's features.
            let mut lines = [[_mm_setzero_si128(); 2]; 2];
            for (n, lines) in lines.iter_mut().enumerate() {
                let row = 2 * pair + n;
                *lines = [vector(line(0, row)), vector(line(1, row))];
                let values = [factor.values(lines[0]), factor.values(lines[1])];
                // SAFETY: both are 64 bytes of which all values are allowed.
                self.values[row] = unsafe { std::mem::transmute::<[__m256; 2], [f32; 16]>(values) };
            }
            let [upper, lower] = lines;
            let [first, wrong] = factor.powers(_mm256_set_m128i(lower[0], upper[0]));
            outside = _mm256_or_si256(outside, wrong);
            let [second, wrong] = factor.powers(_mm256_set_m128i(lower[1], upper[1]));
            outside = _mm256_or_si256(outside, wrong);
            self.powers[pair] = _mm256_packs_epi16(first, second);
        }
        (_mm256_testz_si256(outside, outside) != 0).then_some(())
    }

    /// Adds the products with eight columns, to a depth, to sums.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub fn add<const DEPTH: usize>(&self, columns: &Columns, sums: &Sums, d: &mut [Words; 4]) {
        for pair in 0..8 {
            let powers = columns.greatest_powers::<DEPTH>(self.powers[pair]);
            for (row, powers) in (2 * pair..).zip(powers) {
                set_row(
                    d,
                    row,
                    columns.sum::<DEPTH>(&self.values[row], powers, sums.0[row]),
                );
            }
        }
    }
}

/// The rows of `C`, which are singles.
pub(super) struct Sums([__m256i; 16]);

impl Sums {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Sums {
        Sums([_mm256_setzero_si256(); 16])
    }

    /// Sets them. `None` where one is not finite, or a subnormal.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn set(&mut self, c: &[Words; 4]) -> Option<()> {
        let mut outside = _mm256_setzero_si256();
        for (row, to) in self.0.iter_mut().enumerate() {
            *to = row_of(c, row);
            let magnitude = _mm256_slli_epi32::<1>(*to);
            let zero = _mm256_cmpeq_epi32(magnitude, _mm256_setzero_si256());
            let field = _mm256_srli_epi32::<24>(magnitude);
            let first = _mm256_cmpeq_epi32(field, _mm256_setzero_si256());
            let last = _mm256_cmpeq_epi32(field, _mm256_set1_epi32(0xff));
            let wrong = _mm256_andnot_si256(zero, _mm256_or_si256(first, last));
            outside = _mm256_or_si256(outside, wrong);
        }
        (_mm256_testz_si256(outside, outside) != 0).then_some(())
    }
}

/// The eight columns of a tile of `B`.
pub(super) struct Columns {
    /// For each depth, the eight of them.
    values: [__m256; 16],
    /// For depths `2 n` and `2 n + 1`, the eight of each: the same in both halves of the vector.
    powers: [__m256i; 8],
}

impl Columns {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Columns {
        Columns {
            values: [_mm256_setzero_ps(); 16],
            powers: [_mm256_setzero_si256(); 8],
        }
    }

    /// Sets them to lines, by which eight rows they are and by column. `None` where the products
    /// must be computed otherwise.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn set(&mut self, factor: Factor, line: impl Fn(usize, usize) -> Line) -> Option<()> {
        let mut outside = _mm256_setzero_si256();
        for half in 0..2 {
            if factor == Factor::Tf32 {
                let lines = array::from_fn(|column| vector(line(half, column)));
                let depths = transposed_words(lines);
                for pair in 0..2 {
                    let at = 4 * half + 2 * pair;
                    let of_both = [depths[2 * pair], depths[2 * pair + 1]];
                    let (values, powers, wrong) = of_tf32(of_both);
                    [self.values[at], self.values[at + 1]] = values;
                    outside = _mm256_or_si256(outside, wrong);
                    self.powers[at / 2] = in_both_halves(powers);
                }
                continue;
            }
            let depths = transposed(array::from_fn(|column| vector(line(half, column))));
            for pair in 0..4 {
                let [first, second] = [depths[2 * pair], depths[2 * pair + 1]];
                let [of_both, wrong] = factor.powers(_mm256_set_m128i(second, first));
                outside = _mm256_or_si256(outside, wrong);
                self.powers[4 * half + pair] = in_both_halves(of_both);
                self.values[8 * half + 2 * pair] = factor.values(first);
                self.values[8 * half + 2 * pair + 1] = factor.values(second);
            }
        }
        (_mm256_testz_si256(outside, outside) != 0).then_some(())
    }

    /// Of two rows, whose powers are given, the greatest power of two of a product for each column.
    #[target_feature(enable = "avx2")]
    fn greatest_powers<const DEPTH: usize>(&self, of_rows: __m256i) -> [__m256i; 2] {
        let mut greatest = _mm256_set1_epi8(i8::MIN);
        // Eight times the power of a depth, eight times that of the next.
        let mut from = _mm256_broadcastsi128_si256(_mm_set_epi64x(0x0101_0101_0101_0101, 0));
        for of_columns in &self.powers[..DEPTH / 2] {
            let of_rows = _mm256_shuffle_epi8(of_rows, from);
            let of_products = _mm256_adds_epi8(of_rows, *of_columns);
            greatest = _mm256_max_epi8(greatest, of_products);
            from = _mm256_add_epi8(from, _mm256_set1_epi8(2));
        }
        greatest = _mm256_max_epi8(greatest, _mm256_bsrli_epi128::<8>(greatest));
        [
            _mm256_cvtepi8_epi32(_mm256_castsi256_si128(greatest)),
            _mm256_cvtepi8_epi32(_mm256_extracti128_si256::<1>(greatest)),
        ]
    }

    /// The sums of a row: what they are so far, and the products with its values.
    #[target_feature(enable = "avx2")]
    fn sum<const DEPTH: usize>(
        &self,
        row: &[f32; 16],
        of_products: __m256i,
        so_far: __m256i,
    ) -> __m256 {
        let magnitude = _mm256_slli_epi32::<1>(so_far);
        let power = _mm256_sub_epi32(_mm256_srli_epi32::<24>(magnitude), _mm256_set1_epi32(BIAS));
        let greatest = _mm256_max_epi32(of_products, power);

        // The summand's digits, and what is cut off of them. Of zero nothing is left, where there
        // are products.
        let sign_and_fraction = _mm256_and_si256(so_far, _mm256_set1_epi32(!0x7f80_0000));
        let digits = _mm256_or_si256(sign_and_fraction, _mm256_set1_epi32(BIAS << 23));
        let field = _mm256_sub_epi32(power, greatest);
        let field = _mm256_add_epi32(field, _mm256_set1_epi32(DIGITS + BIAS));
        let field = _mm256_max_epi32(field, _mm256_set1_epi32(1));
        let unit = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(field));
        let digits = _mm256_mul_ps(_mm256_castsi256_ps(digits), unit);

        let field = _mm256_sub_epi32(_mm256_set1_epi32(DIGITS + BIAS), greatest);
        let units = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(field));
        // Eight terms at most fit into 32 bits, and the summand.
        let mut parts = [_mm256_cvttps_epi32(digits), _mm256_setzero_si256()];
        for (at, value) in row[..DEPTH].iter().enumerate() {
            let product = _mm256_mul_ps(_mm256_set1_ps(*value), self.values[at]);
            let cut = _mm256_cvttps_epi32(_mm256_mul_ps(product, units));
            parts[at / 8] = _mm256_add_epi32(parts[at / 8], cut);
        }
        let sum = _mm256_set_m128(
            sum_cut(parts.map(|part| _mm256_extracti128_si256::<1>(part))),
            sum_cut(parts.map(|part| _mm256_castsi256_si128(part))),
        );
        let field = _mm256_add_epi32(greatest, _mm256_set1_epi32(BIAS - DIGITS));
        let sum = _mm256_mul_ps(sum, _mm256_castsi256_ps(_mm256_slli_epi32::<23>(field)));

        // Without products the summand stays. Zero has no sign.
        let zero = _mm256_cmpeq_epi32(magnitude, _mm256_setzero_si256());
        let alone = _mm256_castsi256_ps(_mm256_andnot_si256(zero, so_far));
        let none = _mm256_cmpgt_epi32(_mm256_set1_epi32(LEAST), of_products);
        _mm256_blendv_ps(sum, alone, _mm256_castsi256_ps(none))
    }
}

/// The exact sums of two numbers, without the digits that do not fit into a single.
#[target_feature(enable = "avx2")]
fn sum_cut(parts: [__m128i; 2]) -> __m128 {
    let [first, second] = parts.map(|part| _mm256_cvtepi32_pd(part));
    let kept = _mm256_castsi256_pd(_mm256_set1_epi64x(!0 << (52 - 23)));
    _mm256_cvtpd_ps(_mm256_and_pd(_mm256_add_pd(first, second), kept))
}

/// The sums of a row: register 0 has its even columns, register 1 its odd ones, and 2 and 3 are of
/// the lower rows.
#[target_feature(enable = "avx2")]
fn row_of(sums: &[Words; 4], row: usize) -> __m256i {
    let [even, odd] = [0, 1].map(|n| vector(line(&sums[2 * (row / 8) + n], row % 8)));
    _mm256_set_m128i(_mm_unpackhi_epi32(even, odd), _mm_unpacklo_epi32(even, odd))
}

#[target_feature(enable = "avx2")]
fn set_row(sums: &mut [Words; 4], row: usize, values: __m256) {
    let [low, high] = [
        _mm256_castps256_ps128(values),
        _mm256_extractf128_ps::<1>(values),
    ];
    let even = _mm_shuffle_ps::<0b10_00_10_00>(low, high);
    let odd = _mm_shuffle_ps::<0b11_01_11_01>(low, high);
    for (n, values) in [even, odd].into_iter().enumerate() {
        // SAFETY: both are 16 bytes of which all values are allowed.
        let words: [u32; 4] = unsafe { std::mem::transmute(values) };
        sums[2 * (row / 8) + n].as_chunks_mut().0[row % 8] = words;
    }
}

/// The transposed matrix of lines that lie in a register, one behind the other.
pub(super) fn transpose(words: &Words) -> Words {
    let lines = array::from_fn(|at| vector(line(words, at)));
    // SAFETY: every processor of x86-64 has SSE2. Then both are 128 bytes of which all values are
    // allowed.
    unsafe { std::mem::transmute(transposed(lines)) }
}

/// Columns of eight lines.
#[inline]
#[target_feature(enable = "sse2")]
fn transposed(lines: [__m128i; 8]) -> [__m128i; 8] {
    // Each time, the upper half of the lines goes between the lower ones, element by element.
    let interleaved = |lines: [__m128i; 8]| {
        array::from_fn(|n| match n % 2 {
            0 => _mm_unpacklo_epi16(lines[n / 2], lines[4 + n / 2]),
            _ => _mm_unpackhi_epi16(lines[n / 2], lines[4 + n / 2]),
        })
    };
    interleaved(interleaved(interleaved(lines)))
}

/// For each depth, the eight columns of which these are the lines, of four words each.
#[inline]
#[target_feature(enable = "avx2")]
fn transposed_words(lines: [__m128i; 8]) -> [__m256i; 4] {
    let four = |first: usize| {
        let lines: [__m128i; 4] = array::from_fn(|n| lines[first + n]);
        let [a, b] = [0, 1].map(|n| _mm_unpacklo_epi32(lines[2 * n], lines[2 * n + 1]));
        let [c, d] = [0, 1].map(|n| _mm_unpackhi_epi32(lines[2 * n], lines[2 * n + 1]));
        [
            _mm_unpacklo_epi64(a, b),
            _mm_unpackhi_epi64(a, b),
            _mm_unpacklo_epi64(c, d),
            _mm_unpackhi_epi64(c, d),
        ]
    };
    let (left, right) = (four(0), four(4));
    array::from_fn(|depth| _mm256_set_m128i(right[depth], left[depth]))
}

/// Sixteen numbers as bytes, the same in both halves of the vector.
#[inline]
#[target_feature(enable = "avx2")]
fn in_both_halves(numbers: __m256i) -> __m256i {
    let bytes = _mm256_packs_epi16(numbers, numbers);
    _mm256_permute4x64_epi64::<0b10_00_10_00>(bytes)
}

/// A line as a vector.
#[inline(always)]
fn vector(line: Line) -> __m128i {
    // SAFETY: both are 16 bytes of which all values are allowed.
    unsafe { std::mem::transmute(line) }
}
