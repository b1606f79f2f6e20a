//! What a product is of survives its code; `movmatrix` transposes. Results are compared with those
//! of an H200 by the integration test `kernels`.

use super::{Element, Product, Tiles, Words, dense, float, transpose};

#[test]
fn codes_say_all() {
    for tiles in [Tiles::One, Tiles::Beside, Tiles::Stacked, Tiles::Transposed] {
        for (a, b) in Element::ALL.into_iter().zip(Element::ALL.into_iter().rev()) {
            for bits in 0..256u32 {
                let bit = |n: u32| bits >> n & 1 != 0;
                let product = Product {
                    rows: if bit(0) { 16 } else { 8 },
                    depth: 4 << (bits % 7),
                    tiles,
                    elements: [a, b],
                    halves: [bit(1), bit(2)],
                    saturates: bit(3),
                    xor: bit(4),
                    sparse: bit(5).then_some(bits >> 6),
                    turned: [bit(6), bit(7)],
                };
                let code = product.code();
                assert!(code < 1 << Product::CODE_BITS);
                assert_eq!(Product::of_code(code), product);
            }
        }
    }
}

#[test]
fn rows_become_columns() {
    let element = |row: usize, column: usize| (8 * row + column) as u32;
    let matrix = std::array::from_fn(|lane| {
        let (row, column) = (lane / 4, 2 * (lane % 4));
        element(row, column) | element(row, column + 1) << 16
    });
    let transposed = transpose(&matrix);
    for (lane, word) in transposed.into_iter().enumerate() {
        let (row, column) = (lane / 4, 2 * (lane % 4));
        assert_eq!(word & 0xffff, element(column, row));
        assert_eq!(word >> 16, element(column + 1, row));
    }
    assert_eq!(transpose(&transposed), matrix);
}

/// Words that come one after the other, and look random.
fn noise(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// The fast sums are the sums: of all exponents, of those that cancel, of zeros and subnormals, and
/// of what only one of a tile's elements is.
#[test]
fn dense_sums_are_the_sums() {
    use Element::{Bf16, F16, Tf32};
    let mut next = noise(0x51_0f7);
    let (mut fast, mut slow) = (0, 0);
    let shapes = [
        (F16, 8),
        (F16, 16),
        (Bf16, 8),
        (Bf16, 16),
        (Tf32, 4),
        (Tf32, 8),
    ];
    for round in 0..4000 {
        let (element, depth) = shapes[round % shapes.len()];
        let steps = element == Tf32 && depth == 8 && round % 4 == 1;
        let bits = next();
        let may_halve = element == F16;
        let product = Product {
            rows: 16,
            depth,
            tiles: if steps { Tiles::Beside } else { Tiles::One },
            elements: [element; 2],
            halves: [may_halve && bits & 1 != 0, may_halve && bits & 2 != 0],
            saturates: false,
            xor: false,
            sparse: None,
            turned: [false; 2],
        };
        let one = Product {
            tiles: Tiles::One,
            ..product
        };
        let [a, b, c, d] = one.words();
        // Exponents around one, with more of the range from round to round, and some odd ones out.
        let spread = [1, 4, 12, 40, 200][round / 7 % 5];
        let mut exponent = |bias: i64, top: i64, next: &mut dyn FnMut() -> u64| {
            let about = bias + (next() % spread) as i64 - spread as i64 / 2;
            match next() % 97 {
                0 => 0,
                1 if round % 5 == 0 => (next() % (top as u64 + 1)) as i64,
                _ => about.clamp(0, top - 1),
            }
        };
        let mut half = |next: &mut dyn FnMut() -> u64| {
            let exponent = exponent(15, 31, next) as u64;
            let zero = next() % 11 == 0;
            (if zero {
                0
            } else {
                exponent << 10 | next() & 0x3ff
            }) | next() & 0x8000
        };
        let mut half_words = |next: &mut dyn FnMut() -> u64| (half(next) | half(next) << 16) as u32;
        let mut wide = |next: &mut dyn FnMut() -> u64| {
            let about = (127 + (next() % spread) as i64 - spread as i64 / 2).clamp(0, 254) as u64;
            let bits = match next() % 97 {
                0 => next() & 0x7fff_ffff,
                1 => 0,
                _ => about << 23 | next() & 0x7f_ffff,
            };
            (bits | next() & 1 << 31) as u32
        };
        let mut factor = |next: &mut dyn FnMut() -> u64| match element {
            F16 => half_words(next),
            Bf16 => wide(next) >> 16 | wide(next) & 0xffff_0000,
            _ => wide(next),
        };
        let mut words = |count: usize, word: &mut dyn FnMut(&mut dyn FnMut() -> u64) -> u32| {
            let words: Vec<Words> = (0..count)
                .map(|_| std::array::from_fn(|_| word(&mut next)))
                .collect();
            words
        };
        let (a, b) = (words(a, &mut factor), words(b, &mut factor));
        let c = match product.halves[0] {
            true => words(c, &mut half_words),
            false => words(c, &mut wide),
        };
        let [mut got, mut wanted] = [0; 2].map(|_| vec![[0; 32]; d]);
        float::compute(product, &a, &b, &c, &[], &mut wanted);
        match dense::compute(product, &a, &b, &c, &mut got) {
            Some(()) => {
                assert_eq!(got, wanted, "{product:?}\n{a:x?}\n{b:x?}\n{c:x?}");
                fast += 1;
            }
            None => {
                assert_eq!(got, vec![[0; 32]; d]);
                slow += 1;
            }
        }
    }
    assert!(fast > 1000 && slow > 100, "{fast} and {slow}");
}
