//! What comes of a system, and what the host computes to judge it.

use super::matrix::Matrix;
use super::system::State;

/// A direction d is one in which the matrix is not positive if d·Ad is below this part of the sum
/// of what it is made of: as far as double precision can tell, it is zero at most.
const NOTHING: f64 = 1e-13;

/// Why the device stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    Converged,
    LimitReached,
    /// The device came upon a direction in which the matrix is not positive, and the host finds so
    /// too.
    NotPositive,
    /// The device came upon such a direction, but there it is positive; or restarts found that the
    /// residual was not as small as it seemed. It is as small as rounding errors let it be.
    RoundedOff,
    /// Numbers became too large.
    NotFinite,
}

/// What came of a system.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub reason: Reason,
    pub iterations: u32,
    /// The residual that the device went by, as a part of that at the start.
    pub residual: f64,
    pub x: Vec<f64>,
}

/// What a device has of a system when it stops, or several devices together.
pub struct Ended {
    pub state: State,
    /// The vectors that make the next direction.
    pub u: Vec<f64>,
    pub p: Vec<f64>,
    pub x: Vec<f64>,
}

impl Ended {
    /// What came of the system, of which this is all.
    pub fn outcome(self, matrix: &Matrix) -> Outcome {
        let State { now, next, .. } = self.state;
        let reason = match next.status {
            1 => Reason::Converged,
            2 => Reason::LimitReached,
            3 => {
                let beta = next.gamma / now.gamma;
                let pairs = self.u.iter().zip(&self.p);
                let direction: Vec<f64> = pairs.map(|(u, p)| u + beta * p).collect();
                match is_positive_along(matrix, &direction) {
                    true => Reason::RoundedOff,
                    false => Reason::NotPositive,
                }
            }
            4 => Reason::NotFinite,
            5 => Reason::RoundedOff,
            status => unreachable!("the device stopped with status {status}"),
        };
        let residual = match next.first {
            0.0 => 0.0,
            first => (next.residual / first).sqrt(),
        };
        Outcome {
            reason,
            iterations: next.iterations,
            residual,
            x: self.x,
        }
    }
}

/// The power of two at or below `value`; 1 for 0.
pub fn power_of_two(value: f64) -> f64 {
    match value {
        0.0 => 1.0,
        // A power of two that is a normal number, and so is its inverse.
        value => 2f64.powi(value.log2().floor().clamp(-1000.0, 1000.0) as i32),
    }
}

pub fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, value| value.abs().max(most))
}

/// Whether d·Ad is more than rounding errors could make of zero. Of a direction that has no length
/// nothing can be said against it.
pub fn is_positive_along(matrix: &Matrix, direction: &[f64]) -> bool {
    let scale = power_of_two(largest(direction));
    let (mut sum, mut parts) = (0.0, 0.0);
    for (row, d) in direction.iter().enumerate() {
        for (column, value) in matrix.row(row) {
            let part = d / scale * value * (direction[column] / scale);
            sum += part;
            parts += part.abs();
        }
    }
    sum > NOTHING * parts || parts == 0.0
}

/// The residual of `x` as a part of that of zero, computed on the host.
pub fn relative_residual(matrix: &Matrix, x: &[f64], b: &[f64]) -> f64 {
    let product = matrix.times(x);
    let scale = power_of_two(largest(b));
    let norm = |values: &mut dyn Iterator<Item = f64>| -> f64 {
        values
            .map(|value| (value / scale).powi(2))
            .sum::<f64>()
            .sqrt()
    };
    match norm(&mut b.iter().copied()) {
        0.0 => norm(&mut product.iter().copied()),
        start => norm(&mut b.iter().zip(&product).map(|(b, product)| b - product)) / start,
    }
}
