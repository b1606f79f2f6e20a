//! The addresses of rows, which lanes tell each other: `ldmatrix` and `stmatrix`.
//!
//! Lane `8 m + r` says where row `r` of matrix `m` is: 16 bytes in a row. Each lane takes, for each
//! matrix, where its own two neighbours lie, row `lane / 4` and columns `2 (lane % 4)` and the
//! next; where the matrix is transposed, one place for each of the two.

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
        (0..self.count as usize).map(move |at| {
            let mut taken = [[0; 32]; 2];
            let [to_lows, to_highs] = &mut taken;
            for lane in 0..32 {
                let (from, offset) = match self.turned {
                    false => (8 * at + lane / 4, 4 * (lane % 4)),
                    true => (8 * (at / 2) + 2 * (lane % 4) + at % 2, 2 * (lane / 4)),
                };
                let low = lows[from % 32];
                // A row starts at a multiple of its size, or no part of it can be accessed.
                let misaligned = u32::from(low % 16 != 0);
                to_lows[lane] = low | offset as u32 | misaligned;
                to_highs[lane] = highs[from % 32];
            }
            taken
        })
    }
}
