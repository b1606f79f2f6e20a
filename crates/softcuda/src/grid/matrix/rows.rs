//! The addresses of rows, which lanes tell each other: `ldmatrix` and `stmatrix`.
//!
//! Lane `8 m + r` says where row `r` of matrix `m` is: 16 bytes in a row. Each lane takes, for each
//! matrix, where its own two neighbours lie, row `lane / 4` and columns `2 (lane % 4)` and the
//! next; where the matrix is transposed, one place for each of the two.

use std::array;

use super::Words;
use crate::grid::warp::Meeting;

/// How many addresses each lane takes, and whether matrices are transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub count: u32,
    pub turned: bool,
}

impl Rows {
    /// The kind that the operation has.
    pub fn kind(self) -> u32 {
        (self.count << 1 | u32::from(self.turned)) << 8 | Meeting::Rows as u32
    }

    /// What a kind says.
    pub fn of_kind(kind: u32) -> Rows {
        let code = kind >> 8;
        Rows {
            count: code >> 1 & 0xf,
            turned: code & 1 != 0,
        }
    }

    /// From the lower and upper words of addresses those that the lanes take.
    pub fn exchange(self, [lows, highs]: &[Words; 2]) -> impl Iterator<Item = [Words; 2]> {
        let most = if self.turned { 8 } else { 4 };
        (0..most.min(self.count as usize)).map(move |at| {
            let mut taken = [[0; 32]; 2];
            let [to_lows, to_highs] = &mut taken;
            // A row starts at a multiple of its size, or no part of it can be accessed.
            let start = |row: usize| lows[row] | u32::from(lows[row] % 16 != 0);
            let parts = to_lows.as_chunks_mut::<4>().0.iter_mut();
            let parts = parts.zip(to_highs.as_chunks_mut::<4>().0);
            if self.turned {
                let from = array::from_fn(|n| 8 * (at / 2) + 2 * n + at % 2);
                let (starts, above) = (from.map(start), from.map(|row| highs[row]));
                for (row, (low, high)) in parts.enumerate() {
                    (*low, *high) = (starts.map(|start| start | 2 * row as u32), above);
                }
            } else {
                for (row, (low, high)) in (8 * at..).zip(parts) {
                    let start = start(row);
                    (*low, *high) = ([0, 4, 8, 12].map(|part| start | part), [highs[row]; 4]);
                }
            }
            taken
        })
    }
}
