//! The addresses of rows, which lanes tell each other: `ldmatrix` and `stmatrix`.
//!
//! Lane `8 m + r` says where row `r` of matrix `m` is: 16 bytes in a row. Each lane takes, for each
//! matrix, where its own two neighbours lie, row `lane / 4` and columns `2 (lane % 4)` and the
//! next; where the matrix is transposed, one place for each of the two. From shared memory the rows
//! are read at once, and each lane takes what lies there.

use std::array;

use super::Words;
use super::group::Shared;
use crate::grid::warp::Meeting;

/// How many addresses each lane takes, or how many words of what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub count: u32,
    /// Matrices are transposed.
    pub turned: bool,
    pub how: How,
}

/// What lanes bring and take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// They tell each other addresses.
    Tell,
    /// The rows lie in shared memory, and are read at once: lanes take what is there.
    Read,
    /// The same, where a lane brings an address of 32 bits and what is added to it. The sum wraps.
    ReadAt,
}

impl Rows {
    /// The kind that the operation has.
    pub fn kind(self) -> u32 {
        let code = self.count << 3 | (self.how as u32) << 1 | u32::from(self.turned);
        code << 8 | Meeting::Rows as u32
    }

    /// What a kind says.
    pub fn of_kind(kind: u32) -> Rows {
        let code = kind >> 8;
        Rows {
            count: code >> 3 & 0xf,
            turned: code & 1 != 0,
            how: match code >> 1 & 3 {
                0 => How::Tell,
                1 => How::Read,
                _ => How::ReadAt,
            },
        }
    }

    /// How many words a lane brings or takes.
    pub fn words(self) -> usize {
        let each = if self.how == How::Tell { 2 } else { 1 };
        (each * self.count as usize).max(2)
    }

    /// The lower and upper words of the addresses that lanes bring.
    pub fn addresses(self, brought: &[Words]) -> [Words; 2] {
        match self.how {
            How::Tell | How::Read => [brought[0], brought[1]],
            How::ReadAt => {
                let sum = |lane| u32::wrapping_add(brought[0][lane], brought[1][lane]);
                [array::from_fn(sum), [0; 32]]
            }
        }
    }

    /// Reads the rows at these addresses. `None` if one is not there, or not all of it: what is not
    /// is zero then.
    pub fn read(self, [lows, highs]: &[Words; 2], shared: &Shared, to: &mut [Words]) -> Option<()> {
        let mut all_there = true;
        let lines = lows.as_chunks().0.iter().zip(highs.as_chunks().0);
        for ((lows, highs), to) in lines.zip(to).take(self.count as usize) {
            let matrix = shared.lines(lows, highs).unwrap_or_else(|| {
                all_there = false;
                shared.parts_of_lines(lows, highs)
            });
            // SAFETY: both are 128 bytes of which all values are allowed.
            *to = unsafe { std::mem::transmute::<[[u64; 2]; 8], Words>(matrix) };
            if self.turned {
                *to = super::transpose(to);
            }
        }
        all_there.then_some(())
    }

    /// From the lower and upper words of addresses those that the lanes take.
    pub fn exchange(self, [lows, highs]: &[Words; 2]) -> impl Iterator<Item = [Words; 2]> {
        let each = if self.turned { 2 } else { 1 };
        let count = match self.how {
            How::Tell => self.count as usize,
            How::Read | How::ReadAt => each * self.count as usize,
        };
        (0..count.min(4 * each)).map(move |at| {
            let mut taken = [[0; 32]; 2];
            let [to_lows, to_highs] = &mut taken;
            // A row starts at a multiple of its size, or no part of it can be accessed.
            let start = |row: usize| lows[row] | u32::from(lows[row] % 16 != 0);
            let parts = to_lows.as_chunks_mut::<4>().0.iter_mut();
            let parts = parts.zip(to_highs.as_chunks_mut::<4>().0);
            if self.turned {
                let from = array::from_fn(|n| 8 * (at / 2) + 2 * n + at % 2);
                let (starts, above) = (from.map(start), from.map(|row| highs[row]));
                for (row, (low, high)) in (0..).zip(parts) {
                    let column = 2 * row;
                    (*low, *high) = (starts.map(|start| start | column), above);
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
