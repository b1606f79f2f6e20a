//! Products of integers and of bits: exact, and at the end wrapped or saturated to 32 bits.

use super::sparse::Columns;
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
    let places = product.places(metadata);
    let factors = rows[..product.rows as usize].iter().zip(&places);
    for (row, (factors, places)) in factors.enumerate() {
        for (column, others) in columns.iter().enumerate() {
            let (lane, register) = place_of_sum(row, column);
            let terms = factors[..depth].iter().zip(places);
            let sum = terms.fold(i64::from(c[register][lane] as i32), |sum, (x, place)| {
                sum + combined(of_a, product.xor, *x, others[usize::from(*place)])
            });
            d[register][lane] = narrowed(sum, product.saturates);
        }
    }
}

/// Adds the products of a tile of rows, of which so many elements are there, and columns, given by
/// their bits, to what is there. Of sparse rows, `places` says where the elements are.
pub(super) fn tile(
    (elements, saturates): ([Element; 2], bool),
    (rows, count): (&[[u32; 32]; 16], usize),
    places: Option<&Columns>,
    columns: &[[u32; 64]; 8],
    sums: &mut [Words],
) {
    let [of_a, of_b] = elements;
    let product = |a: u32, b: u32| combined(of_a, false, value(of_a, a), value(of_b, b));
    for (row, factors) in rows.iter().enumerate() {
        for (column, others) in columns.iter().enumerate() {
            let (lane, register) = place_of_sum(row, column);
            let sum = &mut sums[register][lane];
            let (start, factors) = (i64::from(*sum as i32), &factors[..count]);
            let total = match places {
                None => {
                    let terms = factors.iter().zip(&others[..count]);
                    terms.fold(start, |total, (a, b)| total + product(*a, *b))
                }
                Some(places) => {
                    let terms = factors.iter().zip(&places[row]);
                    terms.fold(start, |total, (a, place)| {
                        total + product(*a, others[usize::from(*place)])
                    })
                }
            };
            *sum = narrowed(total, saturates);
        }
    }
}

/// What a pair of elements adds.
fn combined(element: Element, xor: bool, a: i32, b: i32) -> i64 {
    match (element, xor) {
        (Element::B1, true) => i64::from((a ^ b).count_ones()),
        (Element::B1, false) => i64::from((a & b).count_ones()),
        _ => i64::from(a * b),
    }
}

/// A sum in 32 bits.
fn narrowed(sum: i64, saturates: bool) -> u32 {
    match saturates {
        true => sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32,
        false => sum as u32,
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
