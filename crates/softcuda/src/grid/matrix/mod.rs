//! Matrix products of a warp, `mma` and `wmma.mma`: `D = A * B + C`, to the bit as an H200 gives
//! them.
//!
//! The lanes bring their parts of `A`, `B`, `C` and, where `A` is sparse, of the metadata, as words
//! of 32 bits: one array over the lanes for each register, in this order. They take the words of
//! `D`. A double is two words, the low one first.
//!
//! A product is made of tiles of 8 columns and 8 or 16 rows. Lane `4 g + t` holds, with `E`
//! elements in a register:
//!
//! | of | register `j` holds element `e` at |
//! |---|---|
//! | `A` | row `g + 8 (j % (rows / 8))`, column `4 E (j / (rows / 8)) + E t + e` |
//! | `B` | row `4 E j + E t + e`, column `g` |
//! | `C`, `D` | row `g + 8 (j / 2)`, column `2 t + j % 2`, where each element counts as a register |
//!
//! [`float`] has the rules of rounding, [`dense`] does the common ones fast, [`sparse`] has the
//! rules of the metadata, and [`quads`] the shape of the first tensor cores, which has a layout of
//! its own.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod dense;
mod float;
pub(crate) mod group;
mod integer;
mod quads;
pub(crate) mod rows;
mod sparse;
#[cfg(test)]
mod tests;

use sparse::Columns;

/// The most words that a lane takes from a product.
const MOST_TAKEN: usize = 8;

/// A register of all lanes.
pub(crate) type Words = [u32; 32];

/// The type of the elements of `A` or `B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are PTX's own
pub(crate) enum Element {
    F16,
    Bf16,
    Tf32,
    F64,
    E4m3,
    E5m2,
    S8,
    U8,
    S4,
    U4,
    B1,
}

impl Element {
    const ALL: [Element; 11] = {
        use Element::*;
        [F16, Bf16, Tf32, F64, E4m3, E5m2, S8, U8, S4, U4, B1]
    };

    /// Its size in bits.
    pub fn bits(self) -> u32 {
        match self {
            Element::F64 => 64,
            Element::Tf32 => 32,
            Element::F16 | Element::Bf16 => 16,
            Element::E4m3 | Element::E5m2 | Element::S8 | Element::U8 => 8,
            Element::S4 | Element::U4 => 4,
            Element::B1 => 1,
        }
    }

    /// It is a float of 8 bits.
    pub fn is_fp8(self) -> bool {
        matches!(self, Element::E4m3 | Element::E5m2)
    }

    /// It is an integer, or a bit.
    pub fn is_integer(self) -> bool {
        use Element::*;
        matches!(self, S8 | U8 | S4 | U4 | B1)
    }

    fn is_signed(self) -> bool {
        matches!(self, Element::S8 | Element::S4)
    }
}

/// How tiles make up the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tiles {
    /// It is one.
    One,
    /// Two beside each other: 16 columns.
    Beside,
    /// Two on top of each other: 32 rows.
    Stacked,
    /// Two beside each other, of 8 rows and 16 columns: computed as the transposed product, so that
    /// `A` and `B` change places.
    Transposed,
}

/// What a product is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Product {
    /// The rows of a tile: 8 or 16.
    pub rows: u32,
    /// The columns of `A`.
    pub depth: u32,
    pub tiles: Tiles,
    /// The types of the elements of `A` and `B`.
    pub elements: [Element; 2],
    /// `C` and `D` are of halves; otherwise of singles, doubles or integers of 32 bits.
    pub halves: [bool; 2],
    /// Integers do not wrap.
    pub saturates: bool,
    /// Bits are combined by exclusive or; otherwise by and.
    pub xor: bool,
    /// Half of the elements of `A` are zero and not there; which of four lanes have the metadata.
    pub sparse: Option<u32>,
    /// In the layout of [`quads`]: `A` goes by columns, `B` by rows.
    pub turned: [bool; 2],
}

impl Product {
    /// How many bits [`code`](Product::code) takes.
    pub const CODE_BITS: u32 = 23;

    /// A number that says all of it.
    pub fn code(self) -> u32 {
        let mut code = 0;
        let mut put = |bits: u32, value: u32| code = code << bits | value;
        put(1, u32::from(self.rows == 16));
        put(3, self.depth.trailing_zeros() - 2);
        put(2, self.tiles as u32);
        for element in self.elements {
            put(4, element as u32);
        }
        for half in self.halves {
            put(1, u32::from(half));
        }
        put(1, u32::from(self.saturates));
        put(1, u32::from(self.xor));
        put(1, u32::from(self.sparse.is_some()));
        put(2, self.sparse.unwrap_or(0));
        for turned in self.turned {
            put(1, u32::from(turned));
        }
        code
    }

    /// What a code says.
    pub fn of_code(mut code: u32) -> Product {
        let mut take = |bits: u32| {
            let value = code & ((1 << bits) - 1);
            code >>= bits;
            value
        };
        // The other way round.
        let turned = [take(1), take(1)].map(|bit| bit != 0);
        let selector = take(2);
        let sparse = (take(1) != 0).then_some(selector);
        let [xor, saturates] = [take(1), take(1)].map(|bit| bit != 0);
        let halves = [take(1), take(1)].map(|bit| bit != 0);
        let elements = [take(4), take(4)].map(|at| Element::ALL[at as usize % 11]);
        let tiles = match take(2) {
            0 => Tiles::One,
            1 => Tiles::Beside,
            2 => Tiles::Stacked,
            _ => Tiles::Transposed,
        };
        let depth = 4 << take(3);
        Product {
            rows: 8 + 8 * take(1),
            depth,
            tiles,
            elements: [elements[1], elements[0]],
            halves: [halves[1], halves[0]],
            saturates,
            xor,
            sparse,
            turned: [turned[1], turned[0]],
        }
    }

    /// It has the layout of the first tensor cores.
    pub fn in_quads(self) -> bool {
        self.elements[0] == Element::F16 && self.rows == 8
    }

    /// Where the elements of `A` are.
    fn places(self, metadata: &[Words]) -> Columns {
        sparse::columns(self.elements[0], self.depth, self.sparse, metadata)
    }

    /// How many words a lane has of `A`, `B`, `C` and `D`.
    pub fn words(self) -> [usize; 4] {
        if self.in_quads() {
            let [c, d] = self.halves.map(|half| if half { 4 } else { 8 });
            return [2, 2, c, d];
        }
        let bits = self.elements[0].bits();
        let kept = if self.sparse.is_some() { 2 } else { 1 };
        let a = self.rows * self.depth * bits / 1024 / kept;
        let b = 8 * self.depth * bits / 1024;
        let sum = |half| match (half, bits) {
            (true, _) => self.rows * 8 / 64,
            (false, 64) => self.rows * 8 / 16,
            (false, _) => self.rows * 8 / 32,
        };
        let [c, d] = self.halves.map(sum);
        let words = match self.tiles {
            Tiles::One => [a, b, c, d],
            Tiles::Beside => [a, 2 * b, 2 * c, 2 * d],
            Tiles::Stacked => [2 * a, b, 2 * c, 2 * d],
            Tiles::Transposed => [b, 2 * a, 2 * c, 2 * d],
        };
        words.map(|words| words as usize)
    }

    /// How many words a lane brings.
    pub fn brought(self) -> usize {
        let [a, b, c, _] = self.words();
        a + b + c + usize::from(self.sparse.is_some())
    }

    /// Computes what the lanes take, over what they brought.
    pub fn compute(self, words: &mut [Words]) {
        #[cfg(target_arch = "x86_64")]
        if avx2::compute_over(self, words).is_some() {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has what the function needs.
            return unsafe { self.compute_in_wide_vectors(words) };
        }
        self.compute_anywhere(words);
    }

    /// The same code, for vectors of 256 bits.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn compute_in_wide_vectors(self, words: &mut [Words]) {
        self.compute_anywhere(words);
    }

    #[inline(always)]
    fn compute_anywhere(self, words: &mut [Words]) {
        let taken = self.product(words);
        let [.., d] = self.words();
        words[..d].copy_from_slice(&taken[..d]);
    }

    #[inline(always)]
    fn product(self, brought: &[Words]) -> [Words; MOST_TAKEN] {
        let mut taken = [[0; 32]; MOST_TAKEN];
        let [a, b, c, d] = self.words();
        let (a, rest) = brought.split_at(a);
        let (b, rest) = rest.split_at(b);
        let (c, metadata) = rest.split_at(c);
        let d = &mut taken[..d];
        if self.in_quads() {
            quads::compute(self, a, b, c, d);
            return taken;
        }
        let [upper_c, lower_c] = halves(c);
        let (upper_d, lower_d) = d.split_at_mut(d.len() / 2);
        match self.tiles {
            Tiles::One => self.tile(a, b, c, metadata, d),
            Tiles::Beside => {
                let [left, right] = halves(b);
                self.tile(a, left, upper_c, metadata, upper_d);
                self.tile(a, right, lower_c, metadata, lower_d);
            }
            Tiles::Stacked => {
                let [upper, lower] = halves(a);
                self.tile(upper, b, upper_c, metadata, upper_d);
                self.tile(lower, b, lower_c, metadata, lower_d);
            }
            Tiles::Transposed => {
                let [left, right] = halves(b);
                let turned = Product {
                    elements: [self.elements[1], self.elements[0]],
                    ..self
                };
                turned.tile(left, a, upper_c, metadata, upper_d);
                turned.tile(right, a, lower_c, metadata, lower_d);
            }
        }
        taken
    }

    /// Computes a tile.
    #[inline(always)]
    fn tile(self, a: &[Words], b: &[Words], c: &[Words], metadata: &[Words], d: &mut [Words]) {
        match self.elements[0] {
            Element::F64 => float::doubles(self, a, b, c, d),
            element if element.is_integer() => integer::compute(self, a, b, c, metadata, d),
            element if element.is_fp8() => float::bytes(self, a, b, c, metadata, d),
            #[cfg(target_arch = "x86_64")]
            _ if avx2::compute(self, a, b, c, d).is_some() => {}
            _ if dense::compute(self, a, b, c, d).is_some() => {}
            _ => float::compute(self, a, b, c, metadata, d),
        }
    }

    /// Calls `put` with row, column and bits of each element of `A`, as far as it is there.
    #[inline(always)]
    fn each_of_a(self, a: &[Words], put: impl FnMut(usize, usize, u32)) {
        let high = self.rows as usize / 8;
        each_element(a, self.elements[0], high, put);
    }

    /// The same of `B`, its column first.
    #[inline(always)]
    fn each_of_b(self, b: &[Words], put: impl FnMut(usize, usize, u32)) {
        each_element(b, self.elements[1], 1, put);
    }
}

fn halves(words: &[Words]) -> [&[Words]; 2] {
    let (first, second) = words.split_at(words.len() / 2);
    [first, second]
}

/// Calls `put` for each element in these registers, of which `high` lie in the same columns. A
/// single bit is no element here, but a whole register of them.
#[inline(always)]
fn each_element(
    words: &[Words],
    element: Element,
    high: usize,
    put: impl FnMut(usize, usize, u32),
) {
    match element.bits() {
        4 => each_of::<8>(words, high, put),
        8 => each_of::<4>(words, high, put),
        16 => each_of::<2>(words, high, put),
        _ => each_of::<1>(words, high, put),
    }
}

/// The same of registers that have so many elements.
#[inline(always)]
fn each_of<const EACH: usize>(
    words: &[Words],
    high: usize,
    mut put: impl FnMut(usize, usize, u32),
) {
    let bits = 32 / EACH;
    let mask = u32::MAX >> (32 - bits);
    for (j, register) in words.iter().enumerate() {
        let (down, along) = (8 * (j % high), 4 * EACH * (j / high));
        for (row, line) in register.as_chunks::<4>().0.iter().enumerate() {
            for at in 0..4 * EACH {
                let element = line[at / EACH] >> (bits * (at % EACH)) & mask;
                put(down + row, along + at, element);
            }
        }
    }
}

/// The lane and the register that have an element of `C` or `D`, each of which counts as one.
#[inline(always)]
fn place_of_sum(row: usize, column: usize) -> (usize, usize) {
    (4 * (row % 8) + column / 2, 2 * (row / 8) + column % 2)
}

/// The transposed matrix of 8 rows and 8 columns of 16 bits, of which each lane has two neighbours
/// in a row: `movmatrix`.
pub(crate) fn transpose(words: &Words) -> Words {
    #[cfg(target_arch = "x86_64")]
    return avx2::transpose(words);
    #[cfg(not(target_arch = "x86_64"))]
    transpose_anywhere(words)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn transpose_anywhere(words: &Words) -> Words {
    let element = |row: usize, column: usize| {
        let word = words[4 * row + column / 2];
        word >> (16 * (column % 2)) & 0xffff
    };
    std::array::from_fn(|lane| {
        let (row, column) = (lane / 4, 2 * (lane % 4));
        element(column, row) | element(column + 1, row) << 16
    })
}
