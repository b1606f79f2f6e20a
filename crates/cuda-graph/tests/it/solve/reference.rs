//! Conjugate gradients as textbooks write them, on the host, and matrices of many structures to
//! solve with.

use super::matrix::{Entry, Matrix};

pub struct Solved {
    pub x: Vec<f64>,
    pub iterations: u32,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Solves from zero until the residual is `tolerance` times that of zero.
pub fn solve(matrix: &Matrix, b: &[f64], tolerance: f64) -> Solved {
    let diagonal = matrix.diagonal();
    let preconditioned =
        |r: &[f64]| -> Vec<f64> { r.iter().zip(&diagonal).map(|(r, d)| r / d).collect() };
    let mut x = vec![0.0; b.len()];
    let mut r = b.to_vec();
    let mut z = preconditioned(&r);
    let mut p = z.clone();
    let mut rz = dot(&r, &z);
    let limit = tolerance * dot(&r, &r).sqrt();
    let mut iterations = 0;
    while dot(&r, &r).sqrt() > limit {
        assert!(iterations < 100_000, "the reference does not converge");
        let q = matrix.times(&p);
        let alpha = rz / dot(&p, &q);
        for i in 0..x.len() {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        z = preconditioned(&r);
        let before = std::mem::replace(&mut rz, dot(&r, &z));
        for (p, z) in p.iter_mut().zip(&z) {
            *p = z + rz / before * *p;
        }
        iterations += 1;
    }
    Solved { x, iterations }
}

/// The matrix that has `value(row, column)` at the places given, and at those mirrored.
pub fn symmetric(n: usize, places: impl IntoIterator<Item = (usize, usize, f64)>) -> Matrix {
    let mut entries = Vec::new();
    for (row, column, value) in places {
        let mut put = |row, column| {
            entries.push(Entry {
                row: row as u32,
                column: column as u32,
                value,
            });
        };
        put(row, column);
        if row != column {
            put(column, row);
        }
    }
    Matrix::from_entries(n, entries)
}

/// `diagonal` there, and `beside` right beside it.
pub fn tridiagonal(n: usize, diagonal: f64, beside: f64) -> Matrix {
    let own = (0..n).map(|i| (i, i, diagonal));
    symmetric(n, own.chain((1..n).map(|i| (i, i - 1, beside))))
}

pub fn diagonal(n: usize, value: impl Fn(usize) -> f64) -> Matrix {
    symmetric(n, (0..n).map(|i| (i, i, value(i))))
}

/// The 7-point Laplacian on `side`³ points.
pub fn poisson_3d(side: usize) -> Matrix {
    let mut places = Vec::new();
    for point in 0..side.pow(3) {
        places.push((point, point, 6.0));
        for step in [1, side, side * side] {
            if point / step % side > 0 {
                places.push((point, point - step, -1.0));
            }
        }
    }
    symmetric(side.pow(3), places)
}

/// A first row and a first column that are full, and a diagonal.
pub fn arrow(n: usize) -> Matrix {
    let own = (1..n).map(|i| (i, i, 2.0 + (i % 7) as f64));
    let first = (1..n).map(|i| (i, 0, 1.0));
    symmetric(n, [(0, 0, n as f64)].into_iter().chain(own).chain(first))
}

/// So many entries a row at places without a pattern, and a diagonal that outweighs them.
pub fn scattered(n: usize, each: usize) -> Matrix {
    let mut bits = 1u64;
    let mut below = |most: usize| {
        bits = bits
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        ((bits >> 33) % most as u64) as usize
    };
    let mut places = Vec::new();
    let mut weights = vec![1.0; n];
    for row in 1..n {
        for _ in 0..each {
            let (column, value) = (below(row), (below(2000) as f64 - 1000.0) / 100.0);
            places.push((row, column, value));
            weights[row] += value.abs();
            weights[column] += value.abs();
        }
    }
    places.extend(
        weights
            .into_iter()
            .enumerate()
            .map(|(i, weight)| (i, i, weight)),
    );
    symmetric(n, places)
}

/// Springs in a row between two walls, in groups, each ten times as stiff as the one before.
pub fn springs(n: usize, groups: usize) -> Matrix {
    // Multiplied here, as what libraries make of powers differs in the last bit.
    let stiffness = |i: usize| (0..i * groups / (n + 1)).fold(1.0, |stiffness, _| 10.0 * stiffness);
    let own = (0..n).map(|i| (i, i, stiffness(i) + stiffness(i + 1)));
    symmetric(n, own.chain((1..n).map(|i| (i, i - 1, -stiffness(i)))))
}
