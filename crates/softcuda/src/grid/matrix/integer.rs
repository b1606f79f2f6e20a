//! Products of integers and of bits: exact, and at the end wrapped or saturated to 32 bits.

use super::sparse::{self, Columns};
use super::{Element, Product, Words, place_of_sum};

/// Computes a tile.
pub(super) fn compute(
    product: Product,
    a: &[Words],
    b: &[Words],
    c: &[Words],
    metadata: &[Words],
    d: &mut [Words],
) {
    let [of_a, of_b] = product.elements;
    let (mut rows, mut columns) = ([[0i32; 64]; 16], [[0i32; 128]; 8]);
    product.each_of_a(a, |row, at, bits| rows[row][at] = value(of_a, bits));
    product.each_of_b(b, |column, at, bits| {
        columns[column][at] = value(of_b, bits)
    });
    let depth = match of_a {
        Element::B1 => product.depth as usize / 32,
        _ if product.sparse.is_some() => product.depth as usize / 2,
        _ => product.depth as usize,
    };
    let places: Columns = sparse::columns(product, metadata);
    let combine = |x: i32, y: i32| match (of_a, product.xor) {
        (Element::B1, true) => i64::from((x ^ y).count_ones()),
        (Element::B1, false) => i64::from((x & y).count_ones()),
        _ => i64::from(x * y),
    };
    for row in 0..product.rows as usize {
        for column in 0..8 {
            let (lane, register) = place_of_sum(row, column);
            let terms = rows[row][..depth].iter().zip(&places[row]);
            let sum = terms.fold(i64::from(c[register][lane] as i32), |sum, (x, place)| {
                sum + combine(*x, columns[column][usize::from(*place)])
            });
            d[register][lane] = match product.saturates {
                true => sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32,
                false => sum as u32,
            };
        }
    }
}

/// The value of an element; of bits, all of them.
fn value(element: Element, bits: u32) -> i32 {
    let unused = 32 - element.bits() % 32;
    match element {
        Element::B1 => bits as i32,
        _ if element.is_signed() => (bits << unused) as i32 >> unused,
        _ => bits as i32,
    }
}
