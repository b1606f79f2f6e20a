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
    /// some zeros, and a few that are anything. Without a spread, the ends of what is summed fast.
    fn float(&mut self, exponent: u32, fraction: u32, spread: u64) -> u32 {
        let bias = (1i64 << (exponent - 1)) - 1;
        if spread == 0 {
            let powers = [
                -31,
                -30,
                -29,
                -1,
                0,
                0,
                1,
                29,
                30,
                31,
                -bias,
                1 - bias,
                bias,
            ];
            let power = powers[self.below(powers.len() as u64) as usize] + bias;
            let all = (1 << fraction) - 1;
            let digits = [0, 1, all, all - 1, all >> 1][self.below(5) as usize];
            let magnitude = (power.clamp(0, 2 * bias) as u64) << fraction | digits;
            return (magnitude | self.below(2) << (exponent + fraction)) as u32;
        }
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
        let spread = [2, 5, 12, 29, 60, 300, 0][round / 6 % 7];
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
        let spread = [2, 5, 12, 29, 60, 300, 0][round / 3 % 7];
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

fn product(elements: [Element; 2], rows: u32, depth: u32) -> Product {
    Product {
        rows,
        depth,
        tiles: Tiles::One,
        elements,
        halves: [false; 2],
        saturates: false,
        xor: false,
        sparse: None,
        turned: [false; 2],
    }
}

/// So are those of bytes, as halves.
#[test]
#[cfg(target_arch = "x86_64")]
fn sums_of_bytes_are_the_sums() {
    let mut noise = Noise(0xb17e5);
    let mut fast = [0; 2];
    for round in 0..4000 {
        let elements = [0, 1].map(|_| match noise.below(2) {
            0 => Element::E4m3,
            _ => Element::E5m2,
        });
        let product = product(elements, 16, 32);
        let [a, b, c, d] = product.words();
        // Any bits now and then; mostly numbers.
        let any = round % 8 == 0;
        let mut bytes = |count: usize| -> Vec<Words> {
            let byte = |noise: &mut Noise| match noise.below(if any { 2 } else { 6 }) {
                0 if any => noise.below(256) as u32,
                0 => noise.below(2) as u32 * 0x80,
                _ => (noise.below(0x78) | noise.below(2) << 7) as u32,
            };
            let word = |noise: &mut Noise| (0..4).fold(0, |word, _| word << 8 | byte(noise));
            (0..count)
                .map(|_| std::array::from_fn(|_| word(&mut noise)))
                .collect()
        };
        let (a, b) = (bytes(a), bytes(b));
        let c = noise.registers(c, Element::Tf32, [12, 60, 300][round % 3]);
        let mut wanted = vec![[0; 32]; d];
        float::bytes(product, &a, &b, &c, &[], &mut wanted);
        let mut words = [a, b, c].concat();
        let computed = avx2::compute_over(product, &mut words).is_some();
        fast[usize::from(computed)] += 1;
        if computed {
            assert_eq!(words[..d], wanted, "{product:?}");
        }
    }
    assert!(!avx2::is_there() || fast[1] > 1000, "{fast:?}");
}

/// Doubles are added by `fma`, column by column; of several NaNs the right one stays.
#[test]
fn sums_of_doubles_are_the_sums() {
    let mut noise = Noise(0xd0b1e);
    for (rows, depth) in [(8, 4), (16, 4), (16, 8), (16, 16)] {
        for round in 0..50 {
            let product = product([Element::F64; 2], rows, depth);
            let [a, b, c, _] = product.words();
            let mut words = vec![[0u32; 32]; a + b + c];
            for lane in 0..32 {
                for pair in words.chunks_mut(2) {
                    let value = match noise.below(if round % 2 == 0 { 20 } else { 2000 }) {
                        0 => f64::from_bits(0x7ff0_0000_0000_0000 | noise.next()),
                        1 => f64::INFINITY,
                        _ => noise.below(1 << 20) as f64 / 1024.0 - 512.0,
                    };
                    pair[0][lane] = value.to_bits() as u32;
                    pair[1][lane] = (value.to_bits() >> 32) as u32;
                }
            }
            let double = |register: usize, lane: usize| {
                let [low, high] = [0, 1].map(|n| u64::from(words[register + n][lane]));
                f64::from_bits(high << 32 | low)
            };
            let high = rows as usize / 8;
            let mut wanted = vec![];
            for row in 0..rows as usize {
                for column in 0..8 {
                    let (lane, register) = super::place_of_sum(row, column);
                    let start = double(a + b + 2 * register, lane);
                    let sum = (0..depth as usize).fold(start, |sum, k| {
                        let from_a = 2 * (k / 4 * high + row / 8);
                        let x = double(from_a, 4 * (row % 8) + k % 4);
                        let y = double(a + 2 * (k / 4), 4 * column + k % 4);
                        match [y, sum, x].into_iter().find(|value| value.is_nan()) {
                            Some(nan) => f64::from_bits(nan.to_bits() | 1 << 51),
                            None if x.mul_add(y, sum).is_nan() => f64::from_bits(0xfff8 << 48),
                            None => x.mul_add(y, sum),
                        }
                    });
                    wanted.push((lane, register, sum.to_bits()));
                }
            }
            let mut got = words.clone();
            product.compute(&mut got);
            for (lane, register, bits) in wanted {
                let [low, high] = [0, 1].map(|n| u64::from(got[2 * register + n][lane]));
                assert_eq!(high << 32 | low, bits, "{product:?} {lane} {register}");
            }
        }
    }
}

/// Sums of integers are exact, and wrap or saturate at the end.
#[test]
fn sums_of_integers_are_the_sums() {
    use Element::{S4, S8, U4, U8};
    let mut noise = Noise(0x1e7e6e5);
    for round in 0..400 {
        let pairs = [
            [S8, S8],
            [U8, S8],
            [S8, U8],
            [U8, U8],
            [S4, S4],
            [U4, S4],
            [S4, U4],
            [U4, U4],
        ];
        let elements = pairs[round % pairs.len()];
        let bits = elements[0].bits();
        let (rows, depth) = [(8, 16), (16, 16), (16, 32)][round / 8 % 3];
        let product = Product {
            saturates: round % 5 < 2,
            ..product(elements, rows, depth * 8 / bits)
        };
        let [a, b, c, _] = product.words();
        let words: Vec<Words> = (0..a + b + c)
            .map(|at| {
                std::array::from_fn(|_| match noise.below(4) {
                    0 if at >= a + b => i32::MAX as u32,
                    1 if at >= a + b => i32::MIN as u32,
                    0 => 0x8f7f_ff80,
                    _ => noise.next() as u32,
                })
            })
            .collect();
        let each = (32 / bits) as usize;
        let value = |element: Element, word: u32, at: usize| {
            let unused = 32 - bits;
            let top = word << (unused - bits * at as u32);
            match element {
                S8 | S4 => i64::from(top as i32 >> unused),
                _ => i64::from(top >> unused),
            }
        };
        let mut got = words.clone();
        product.compute(&mut got);
        let high = rows as usize / 8;
        for row in 0..rows as usize {
            for column in 0..8 {
                let (lane, register) = super::place_of_sum(row, column);
                let mut sum = i64::from(words[a + b + register][lane] as i32);
                for k in 0..product.depth as usize {
                    let (chunk, in_chunk) = (k / (4 * each), k % (4 * each));
                    let (t, e) = (in_chunk / each, in_chunk % each);
                    let x = words[chunk * high + row / 8][4 * (row % 8) + t];
                    let y = words[a + chunk][4 * column + t];
                    sum += value(elements[0], x, e) * value(elements[1], y, e);
                }
                let wanted = match product.saturates {
                    true => sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32,
                    false => sum as u32,
                };
                assert_eq!(got[register][lane], wanted, "{product:?} {row} {column}");
            }
        }
    }
}
