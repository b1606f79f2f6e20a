//! Sparse square matrices, a row after the other, and what must hold of one that conjugate
//! gradients are to solve with.

use std::fmt;

/// Rows, and entries, are counted in 31 bits, so that kernels may count a little further in 32.
pub const MOST: usize = i32::MAX as usize;

/// How far entries (i, j) and (j, i) may be apart, as a part of the larger: duplicates may have
/// been summed in another order.
const ASYMMETRY: f64 = 1e-12;

/// A value and where it is, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    pub row: u32,
    pub column: u32,
    pub value: f64,
}

/// A square matrix of `n` rows: row `i` has `columns[starts[i]..starts[i + 1]]`, in ascending
/// order, each once, and as many `values`.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    n: usize,
    starts: Vec<u32>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

/// Why a matrix is not symmetric positive definite, as far as its entries show. Rows are counted
/// from 1, as files count them.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Flaw {
    #[error(
        "it is not symmetric: entry ({row}, {column}) is {value}, and entry ({column}, {row}) is {mirrored}"
    )]
    NotSymmetric {
        row: usize,
        column: usize,
        value: f64,
        mirrored: f64,
    },
    #[error("it is not positive definite: entry ({row}, {row}) is {value}, and must be positive")]
    NotPositive { row: usize, value: f64 },
    #[error("entry ({row}, {column}) is the sum of several, and too large for a number")]
    Overflow { row: usize, column: usize },
}

impl Matrix {
    /// The matrix of `entries`, which lie within `n` rows and columns. Those of one place are added
    /// up in the order given.
    pub fn from_entries(n: usize, mut entries: Vec<Entry>) -> Matrix {
        assert!(n <= MOST && entries.len() <= MOST, "31 bits count them");
        entries.sort_by_key(|entry| (entry.row, entry.column));
        entries.dedup_by(|next, kept| {
            let same = (next.row, next.column) == (kept.row, kept.column);
            if same {
                kept.value += next.value;
            }
            same
        });
        let mut starts = vec![0u32; n + 1];
        for entry in &entries {
            starts[entry.row as usize + 1] += 1;
        }
        for row in 0..n {
            starts[row + 1] += starts[row];
        }
        Matrix {
            n,
            starts,
            columns: entries.iter().map(|entry| entry.column).collect(),
            values: entries.iter().map(|entry| entry.value).collect(),
        }
    }

    /// The 5-point Laplacian on `side` × `side` points with zero around them: 4 on the diagonal, -1
    /// for each neighbour.
    pub fn poisson(side: usize) -> Matrix {
        let n = side * side;
        let mut entries = Vec::with_capacity(5 * n);
        for point in 0..n {
            let (x, y) = (point % side, point / side);
            let mut put = |column: usize, value| {
                entries.push(Entry {
                    row: point as u32,
                    column: column as u32,
                    value,
                });
            };
            if y > 0 {
                put(point - side, -1.0);
            }
            if x > 0 {
                put(point - 1, -1.0);
            }
            put(point, 4.0);
            if x + 1 < side {
                put(point + 1, -1.0);
            }
            if y + 1 < side {
                put(point + side, -1.0);
            }
        }
        Matrix::from_entries(n, entries)
    }

    /// How many rows it has, and columns.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Where each row starts among the entries, and where the last ends.
    pub fn starts(&self) -> &[u32] {
        &self.starts
    }

    /// The column of each entry.
    pub fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// The value of each entry.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The entries of a row: columns and values.
    pub fn row(&self, row: usize) -> impl Iterator<Item = (usize, f64)> {
        let range = self.starts[row] as usize..self.starts[row + 1] as usize;
        let columns = self.columns[range.clone()].iter();
        let values = &self.values[range];
        columns
            .zip(values)
            .map(|(&column, &value)| (column as usize, value))
    }

    /// The value at a place, which is 0 where there is no entry.
    pub fn at(&self, row: usize, column: usize) -> f64 {
        let range = self.starts[row] as usize..self.starts[row + 1] as usize;
        let found = self.columns[range.clone()].binary_search(&(column as u32));
        found.map_or(0.0, |at| self.values[range][at])
    }

    /// The values on the diagonal.
    pub fn diagonal(&self) -> Vec<f64> {
        (0..self.n).map(|row| self.at(row, row)).collect()
    }

    /// The product with `x`.
    pub fn times(&self, x: &[f64]) -> Vec<f64> {
        let product = |row| self.row(row).map(|(column, value)| value * x[column]).sum();
        (0..self.n).map(product).collect()
    }

    /// Looks for what shows that it is not symmetric positive definite. That it is cannot be told
    /// from single entries: the solver may still come upon a direction in which it is not positive.
    pub fn check(&self) -> Result<(), Flaw> {
        for row in 0..self.n {
            for (column, value) in self.row(row) {
                if !value.is_finite() {
                    let (row, column) = (row + 1, column + 1);
                    return Err(Flaw::Overflow { row, column });
                }
                let mirrored = self.at(column, row);
                if (value - mirrored).abs() > ASYMMETRY * value.abs().max(mirrored.abs()) {
                    return Err(Flaw::NotSymmetric {
                        row: row + 1,
                        column: column + 1,
                        value,
                        mirrored,
                    });
                }
            }
            let value = self.at(row, row);
            if value <= 0.0 {
                return Err(Flaw::NotPositive {
                    row: row + 1,
                    value,
                });
            }
        }
        Ok(())
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} unknowns, {} entries", self.n, self.values.len())
    }
}
