//! What a product is of survives its code; `movmatrix` transposes. Results are compared with those
//! of an H200 by the integration test `kernels`.

#[cfg(target_arch = "x86_64")]
use super::avx2;
use super::group::GroupProduct;
use super::{Element, Product, Tiles, Words, dense, float, sparse, transpose, transpose_anywhere};

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
    assert_eq!(transpose_anywhere(&matrix), transposed);
}

/// Numbers that look random.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A float with so many bits of exponent and fraction: one of so many exponents around one,
    /// some zeros, and a few that are anything.
    fn float(&mut self, exponent: u32, fraction: u32, spread: u64) -> u32 {
        let bias = (1i64 << (exponent - 1)) - 1;
        let power = bias + self.below(spread) as i64 - (spread / 2) as i64;
        let power = power.clamp(0, 2 * bias) as u64;
        let digits = self.below(1 << fraction);
        let magnitude = match self.below(if spread > 30 { 100 } else { 100_000 }) {
            0 => self.below(1 << (exponent + fraction)),
            _ if self.below(11) == 0 => 0,
            _ => power << fraction | digits,
        };
        (magnitude | self.below(2) << (exponent + fraction)) as u32
    }

    /// A register of such elements.
    fn register(&mut self, element: Element, spread: u64) -> Words {
        std::array::from_fn(|_| match element {
            Element::F16 => self.float(5, 10, spread) | self.float(5, 10, spread) << 16,
            Element::Bf16 => self.float(8, 7, spread) | self.float(8, 7, spread) << 16,
            _ => self.float(8, 23, spread),
        })
    }

    fn registers(&mut self, count: usize, element: Element, spread: u64) -> Vec<Words> {
        (0..count).map(|_| self.register(element, spread)).collect()
    }
}

/// The fast sums are the sums, wherever they are made: of all exponents, of those that cancel, of
/// zeros and subnormals, and of what is not finite.
#[test]
fn dense_sums_are_the_sums() {
    use Element::{Bf16, F16, Tf32};
    let mut noise = Noise(0x510f7);
    let mut fast = [0; 2];
    #[cfg(target_arch = "x86_64")]
    let mut faster = [0; 2];
    let shapes = [
        (F16, 8),
        (F16, 16),
        (Bf16, 8),
        (Bf16, 16),
        (Tf32, 4),
        (Tf32, 8),
    ];
    for round in 0..6000 {
        let (element, depth) = shapes[round % shapes.len()];
        let spread = [2, 5, 12, 29, 60, 300][round / 6 % 6];
        let in_steps = (element, depth) == (Tf32, 8) && round % 4 == 1;
        let halves = [0, 1].map(|_| element == F16 && noise.below(2) == 0);
        let product = Product {
            rows: 16,
            depth,
            tiles: if in_steps { Tiles::Beside } else { Tiles::One },
            elements: [element; 2],
            halves,
            saturates: false,
            xor: false,
            sparse: None,
            turned: [false; 2],
        };
        let [a, b, c, d] = Product {
            tiles: Tiles::One,
            ..product
        }
        .words();
        let [a, b] = [a, b].map(|count| noise.registers(count, element, spread));
        let c = noise.registers(c, if halves[0] { F16 } else { Tf32 }, spread);
        let [mut got, mut wanted] = [0; 2].map(|_| vec![[0; 32]; d]);
        float::compute(product, &a, &b, &c, &[], &mut wanted);
        let computed = dense::compute(product, &a, &b, &c, &mut got).is_some();
        fast[usize::from(computed)] += 1;
        let expected = |computed| match computed {
            true => wanted.clone(),
            false => vec![[0; 32]; d],
        };
        assert_eq!(
            got,
            expected(computed),
            "{product:?}\n{a:x?}\n{b:x?}\n{c:x?}"
        );
        #[cfg(target_arch = "x86_64")]
        {
            let mut got = vec![[0; 32]; d];
            let computed = avx2::compute(product, &a, &b, &c, &mut got).is_some();
            faster[usize::from(computed)] += 1;
            assert_eq!(
                got,
                expected(computed),
                "{product:?}\n{a:x?}\n{b:x?}\n{c:x?}"
            );
        }
    }
    #[cfg(target_arch = "x86_64")]
    assert!(!avx2::is_there() || faster[1] > 1000, "{faster:?}");
    assert!(fast[0] > 1000 && fast[1] > 3000, "{fast:?}");
}

/// The same of a warpgroup.
#[test]
fn dense_sums_of_a_warpgroup_are_the_sums() {
    let mut noise = Noise(0x6709);
    let mut fast = [0; 2];
    #[cfg(target_arch = "x86_64")]
    let mut faster = [0; 2];
    for round in 0..6000 {
        let element = [Element::F16, Element::Bf16, Element::Tf32][round % 3];
        let spread = [2, 5, 12, 29, 60, 300][round / 3 % 6];
        let half = element == Element::F16 && noise.below(2) == 0;
        let product = GroupProduct {
            columns: 8,
            elements: [element; 2],
            half,
            saturates: false,
            in_registers: true,
            negated: [noise.below(2) == 0, noise.below(2) == 0],
            turned: [false; 2],
            sparse: None,
        };
        let mut element_bits = || match element {
            Element::F16 => noise.float(5, 10, spread),
            Element::Bf16 => noise.float(8, 7, spread),
            _ => noise.float(8, 23, spread),
        };
        let rows = [0; 16].map(|_| [0; 32].map(|_| element_bits()));
        let columns = [0; 8].map(|_| [0; 64].map(|_| element_bits()));
        let of_c = if half { Element::F16 } else { Element::Tf32 };
        let before = noise.registers(product.sums(), of_c, spread);
        let count = product.depth() as usize;
        let places = sparse::columns(element, product.depth(), None, &[]);
        let mut wanted = before.clone();
        let mut plain = float::Group::new(product, &rows, count, places);
        plain.without_dense().tile(&columns, &mut wanted);
        // Whichever way is taken.
        let mut got = before.clone();
        float::Group::new(product, &rows, count, places).tile(&columns, &mut got);
        assert_eq!(got, wanted, "{product:?}\n{rows:x?}\n{columns:x?}");
        #[cfg(target_arch = "x86_64")]
        {
            let group = avx2::Group::of(product, &rows);
            let mut got = before.clone();
            let computed = group.is_some_and(|group| group.tile(&columns, &mut got).is_some());
            faster[usize::from(computed)] += 1;
            let expected = if computed { &wanted } else { &before };
            assert_eq!(&got, expected, "{product:?}\n{rows:x?}\n{columns:x?}");
        }
        let mut got = before.clone();
        let dense = dense::Rows::of(product, &rows);
        let computed = dense.is_some_and(|dense| dense.tile(product, &columns, &mut got).is_some());
        fast[usize::from(computed)] += 1;
        let wanted = if computed { wanted } else { before };
        assert_eq!(got, wanted, "{product:?}\n{rows:x?}\n{columns:x?}");
    }
    #[cfg(target_arch = "x86_64")]
    assert!(!avx2::is_there() || faster[1] > 1000, "{faster:?}");
    assert!(fast[0] > 1000 && fast[1] > 3000, "{fast:?}");
}
