//! Streams, reductions, norms, stencils, scans, sparse matrices, products, sorts.

mod dense;
mod grids;
mod misc;
mod reduce;
mod scans;
mod sparse;
mod stream;

use crate::Row;

pub const ROWS: &[&[Row]] = &[
    stream::ROWS,
    reduce::ROWS,
    grids::ROWS,
    scans::ROWS,
    sparse::ROWS,
    dense::ROWS,
    misc::ROWS,
];
