//! Images, grids, products, parts of language models, simulations, graphs.

mod dense;
mod graphs;
mod images;
mod infer;
mod simulate;

use crate::Row;

pub const ROWS: &[&[Row]] = &[
    images::ROWS,
    dense::ROWS,
    infer::ROWS,
    simulate::ROWS,
    graphs::ROWS,
];
