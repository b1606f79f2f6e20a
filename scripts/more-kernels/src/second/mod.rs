//! Reductions, norms, sparse matrices, scans, histograms: what threads do together.

mod bins;
mod norms;
mod rows;
mod scans;
mod sparse;
mod sums;

use crate::Row;

pub const ROWS: &[&[Row]] = &[
    sums::ROWS,
    rows::ROWS,
    norms::ROWS,
    sparse::ROWS,
    scans::ROWS,
    bins::ROWS,
];
