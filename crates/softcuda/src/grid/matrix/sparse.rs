//! Sparse `A`: of each four neighbours in a row two are there, and the metadata says which, in two
//! bits each. Neighbours are elements; of `.s4` and `.u4` pairs of them, and of `.tf32` halves, so
//! that one of two is there.
//!
//! A row's numbers are chunks of 16 bits. Lanes `4 g` to `4 g + 3` have those of the rows `g` and
//! `g + 8`, and the selector says which of them, where not all are needed:
//!
//! | numbers of a row | floats | integers and `.e4m3`, `.e5m2` |
//! |---|---|---|
//! | 16 bits | lane `selector`, row `g + 8` in its upper half | |
//! | 32 bits | lane `2 selector` has the first chunks, the next the second | lane `2 selector` has row `g`, the next row `g + 8` |
//! | 64 bits | | lanes 0 and 2 have row `g`, 1 and 3 row `g + 8` |

use super::{Element, Words};

/// For each row, the column of each element of `A` that is there.
pub(super) type Columns = [[u8; 64]; 16];

/// All elements are there.
pub(super) const IN_ORDER: Columns = {
    let mut row = [0; 64];
    let mut at = 0;
    while at < 64 {
        row[at] = at as u8;
        at += 1;
    }
    [row; 16]
};

/// The columns of the elements that are there, of rows of `depth` columns; in order where all are,
/// without a selector.
pub(super) fn columns(
    element: Element,
    depth: u32,
    selector: Option<u32>,
    metadata: &[Words],
) -> Columns {
    let mut columns = [[0; 64]; 16];
    let Some(selector) = selector else {
        return IN_ORDER;
    };
    // Neighbours for a column, or columns for a neighbour.
    let (neighbours, pairs) = match element {
        Element::Tf32 => (2 * depth, false),
        Element::S4 | Element::U4 => (depth / 2, true),
        _ => (depth, false),
    };
    let fours = neighbours as usize / 4;
    let by_rows = element.bits() <= 8;
    let four = |row: usize, at: usize| {
        let (lanes, high) = (4 * (row % 8), row / 8);
        let (lane, shift) = match fours {
            4 => (selector as usize, 16 * high + 4 * at),
            8 if by_rows => (2 * (selector as usize & 1) + high, 4 * at),
            8 => (
                2 * (selector as usize & 1) + at / 4,
                16 * high + 4 * (at % 4),
            ),
            _ => (high + 2 * (at / 8), 4 * (at % 8)),
        };
        metadata[0][lanes + lane] >> shift & 0xf
    };
    for (row, columns) in columns.iter_mut().enumerate() {
        for at in 0..fours {
            let four = four(row, at);
            let [first, second] = [four & 3, four >> 2].map(|number| number as u8);
            let start = 4 * at as u8;
            if element == Element::Tf32 {
                columns[at] = start / 2 + first / 2;
            } else if pairs {
                for (n, number) in [first, first, second, second].into_iter().enumerate() {
                    columns[4 * at + n] = 2 * (start + number) + (n as u8 & 1);
                }
            } else {
                columns[2 * at] = start + first;
                columns[2 * at + 1] = start + second;
            }
        }
    }
    columns
}
