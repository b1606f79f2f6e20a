//! Systems of equations: a matrix, read or made, and right-hand sides whose solutions are known.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use super::matrix::Matrix;
use super::matrix_market::{self, ReadError};
use super::options;

/// A file that gives no matrix.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", .file.display())]
pub struct LoadError {
    file: PathBuf,
    error: ReadError,
}

pub struct Problem {
    /// Where the matrix is from.
    pub name: String,
    pub matrix: Matrix,
    pub sides: Vec<RightHandSide>,
}

pub struct RightHandSide {
    /// What the solution should be.
    pub known: Vec<f64>,
    pub b: Vec<f64>,
}

impl Problem {
    /// Reads or makes the matrix, for so many systems.
    pub fn load(from: &options::Problem, systems: usize) -> Result<Problem, LoadError> {
        Ok(match from {
            options::Problem::Grid(side) => Problem::new(
                format!("5-point Poisson problem, {side} x {side}"),
                Matrix::poisson(*side),
                systems,
            ),
            options::Problem::File(file) => {
                let matrix = File::open(file)
                    .map_err(ReadError::from)
                    .and_then(|opened| matrix_market::read(BufReader::new(opened)))
                    .map_err(|error| LoadError {
                        file: file.clone(),
                        error,
                    })?;
                Problem::new(file.display().to_string(), matrix, systems)
            }
        })
    }

    pub fn new(name: String, matrix: Matrix, systems: usize) -> Problem {
        let side = |system| {
            let known = known(matrix.n(), system);
            let b = matrix.times(&known);
            RightHandSide { known, b }
        };
        Problem {
            name,
            sides: (0..systems).map(side).collect(),
            matrix,
        }
    }
}

/// Numbers from -1 to 1 without a pattern, others for each system, and the same each time.
fn known(n: usize, system: usize) -> Vec<f64> {
    let number = |i: usize| {
        // What splitmix64 makes of a counter.
        let mut bits = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (system * n..(system + 1) * n).map(number).collect()
}
