//! What a product is of survives its code; `movmatrix` transposes. Results are compared with those
//! of an H200 by the integration test `kernels`.

use super::{Element, Product, Tiles, transpose};

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
