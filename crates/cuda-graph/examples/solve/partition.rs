//! A matrix divided by rows among devices: what each one has, and what they send each other.
//!
//! A part has a range of rows. It numbers columns anew: its own rows come first, and behind them
//! the rows of others that its entries ask for, its *halo*, in ascending order. So a vector of a
//! part goes on behind its own values with those that others send, and a product needs to know of
//! nothing but that.

use std::borrow::Cow;
use std::ops::Range;

use super::matrix::Matrix;

/// What one device has of a matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Part<'a> {
    /// Its rows, as the whole matrix counts them.
    pub rows: Range<usize>,
    /// Row `i` of the part has `columns[starts[i]..starts[i + 1]]`, and as many `values`. Columns
    /// are places in the part's vectors.
    pub starts: Cow<'a, [u32]>,
    pub columns: Cow<'a, [u32]>,
    pub values: &'a [f64],
    pub diagonal: Vec<f64>,
    /// How many values of others its vectors have behind its own.
    pub halo: usize,
    /// The rows of the largest part.
    pub largest: usize,
    /// What it sends and receives, by the other device.
    pub neighbours: Vec<Neighbour>,
}

/// What a part and another send each other. Either may be nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    pub rank: usize,
    /// The places in its vectors of what it sends.
    pub sends: Vec<u32>,
    /// The places in its vectors of what it receives.
    pub receives: Range<usize>,
}

impl Part<'_> {
    /// How many values its vectors have: one for each row, and the halo.
    pub fn len(&self) -> usize {
        self.rows.len() + self.halo
    }
}

/// The matrix as one part.
pub fn whole(matrix: &Matrix) -> Part<'_> {
    let mut parts = divide(matrix, &[]);
    parts.pop().expect("there is a part behind the last cut")
}

/// Where to cut a matrix into `count` parts that have about as many entries. Small matrices have
/// empty parts.
pub fn cuts(matrix: &Matrix, count: usize) -> Vec<usize> {
    let (starts, entries) = (matrix.starts(), matrix.columns().len());
    (1..count)
        .map(|part| {
            let wanted = (entries as u64 * part as u64 / count as u64) as u32;
            starts.partition_point(|&start| start < wanted)
        })
        .collect()
}

/// Divides a matrix at rows in ascending order: one part more than there are cuts.
pub fn divide<'a>(matrix: &'a Matrix, cuts: &[usize]) -> Vec<Part<'a>> {
    let ends = cuts.iter().copied().chain([matrix.n()]);
    let mut from = 0;
    let ranges: Vec<Range<usize>> = ends
        .map(|end| std::mem::replace(&mut from, end)..end)
        .collect();
    let largest = ranges.iter().map(Range::len).max().unwrap_or(0);
    let halos: Vec<Vec<u32>> = ranges.iter().map(|rows| halo(matrix, rows)).collect();
    let parts = ranges.iter().zip(&halos).enumerate();
    parts
        .map(|(rank, (rows, halo))| {
            let others = ranges.iter().zip(&halos).enumerate();
            let others = others.filter(|&(other, _)| other != rank);
            let neighbours = others.filter_map(|(other, (range, theirs))| {
                let asked = &theirs[within(theirs, rows)];
                let wanted = within(halo, range);
                (!asked.is_empty() || !wanted.is_empty()).then(|| Neighbour {
                    rank: other,
                    sends: asked.iter().map(|row| row - rows.start as u32).collect(),
                    receives: rows.len() + wanted.start..rows.len() + wanted.end,
                })
            });
            Part {
                largest,
                neighbours: neighbours.collect(),
                ..part(matrix, rows.clone(), halo)
            }
        })
        .collect()
}

/// The columns of some rows that are not among them.
fn halo(matrix: &Matrix, rows: &Range<usize>) -> Vec<u32> {
    let entries = matrix.starts()[rows.start] as usize..matrix.starts()[rows.end] as usize;
    let columns = matrix.columns()[entries].iter().copied();
    let mut others: Vec<u32> = columns
        .filter(|&column| !rows.contains(&(column as usize)))
        .collect();
    others.sort_unstable();
    others.dedup();
    others
}

/// Which places of a sorted list have rows of a range.
fn within(list: &[u32], rows: &Range<usize>) -> Range<usize> {
    let below = |end: usize| list.partition_point(|&row| (row as usize) < end);
    below(rows.start)..below(rows.end)
}

/// A part by itself.
fn part<'a>(matrix: &'a Matrix, rows: Range<usize>, halo: &[u32]) -> Part<'a> {
    let starts = &matrix.starts()[rows.start..=rows.end];
    let first = starts[0];
    let entries = first as usize..starts[rows.len()] as usize;
    let place = |&column: &u32| match rows.contains(&(column as usize)) {
        true => column - rows.start as u32,
        false => {
            let at = halo.binary_search(&column);
            (rows.len() + at.expect("the halo has all columns of others")) as u32
        }
    };
    let columns = &matrix.columns()[entries.clone()];
    // A large matrix is not copied where it is one part.
    let is_whole = rows.len() == matrix.n();
    Part {
        starts: match is_whole {
            true => starts.into(),
            false => starts.iter().map(|start| start - first).collect(),
        },
        columns: match is_whole {
            true => columns.into(),
            false => columns.iter().map(place).collect(),
        },
        values: &matrix.values()[entries],
        diagonal: rows.clone().map(|row| matrix.at(row, row)).collect(),
        halo: halo.len(),
        largest: rows.len(),
        neighbours: Vec::new(),
        rows,
    }
}
