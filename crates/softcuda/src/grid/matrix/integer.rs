//! Products of integers and of bits: exact, and at the end wrapped or saturated to 32 bits. Dense
//! products of integers are made for eight columns at a time.
#![allow(
    clippy::needless_range_loop,
    reason = "loops over several arrays become vectors"
)]

use super::sparse::Columns;
use super::{Element, Product, Words, place_of_sum};

/// Computes a tile.
#[inline(always)]
pub(super) fn compute(
    product: Product,
    a: &[Words],
    b: &[Words],
    c: &[Words],
    metadata: &[Words],
    d: &mut [Words],
) {
    let [of_a, of_b] = product.elements;
    if product.sparse.is_none() && of_a != Element::B1 {
        let (mut rows, mut columns) = ([[0; 64]; 16], [[0; 64]; 8]);
        product.each_of_a(a, |row, at, bits| rows[row][at] = bits);
        product.each_of_b(b, |column, at, bits| columns[column][at] = bits);
        d.copy_from_slice(c);
        let rows = &rows[..product.rows as usize];
        let how = (product.elements, product.saturates);
        return dense(how, rows, product.depth as usize, &columns, d);
    }
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

/// Adds the products of rows and columns to a depth, all given by the bits of their elements, to
/// what is there.
#[inline(always)]
fn dense<const DEPTH: usize>(
    ([of_a, of_b], saturates): ([Element; 2], bool),
    rows: &[[u32; DEPTH]],
    depth: usize,
    columns: &[[u32; 64]; 8],
    sums: &mut [Words],
) {
    let mut by_depth = [[0; 8]; 64];
    for at in 0..depth.min(64) {
        for column in 0..8 {
            by_depth[at][column] = columns[column][at];
        }
        by_depth[at] = values(of_b, by_depth[at]);
    }
    let by_depth = by_depth.map(|bits| bits.map(|bits| bits as i32));
    for (row, factors) in rows.iter().enumerate() {
        let factors = values(of_a, *factors);
        // At most 64 products of 8 bits: they fit.
        let mut totals = [0i32; 8];
        for (factor, others) in factors[..depth].iter().zip(&by_depth) {
            for column in 0..8 {
                totals[column] += *factor as i32 * others[column];
            }
        }
        for (column, total) in totals.into_iter().enumerate() {
            let (lane, register) = place_of_sum(row, column);
            let sum = &mut sums[register][lane];
            *sum = narrowed(i64::from(*sum as i32) + i64::from(total), saturates);
        }
    }
}

/// The values of integers that bits are, extended to 32 bits.
#[inline(always)]
fn values<const COUNT: usize>(element: Element, bits: [u32; COUNT]) -> [u32; COUNT] {
    let unused = 32 - element.bits();
    match element.is_signed() {
        true => bits.map(|bits| ((bits << unused) as i32 >> unused) as u32),
        false => bits,
    }
}

/// Adds the products of a tile of rows, of which so many elements are there, and columns, given by
/// their bits, to what is there. Of sparse rows, `places` says where the elements are.
#[inline(always)]
pub(super) fn tile(
    (elements, saturates): ([Element; 2], bool),
    (rows, count): (&[[u32; 32]; 16], usize),
    places: Option<&Columns>,
    columns: &[[u32; 64]; 8],
    sums: &mut [Words],
) {
    let [of_a, of_b] = elements;
    if places.is_none() && of_a != Element::B1 {
        return dense((elements, saturates), rows, count, columns, sums);
    }
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
