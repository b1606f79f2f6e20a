//! The same conjugate gradients in plain Rust, with rayon: what the software driver is compared
//! with.
//!
//! An iteration passes over the vectors twice, as the kernels do: once for the product with the
//! matrix and the dot products, once for the step. It adds up in another order, and rounds products
//! before it adds them, so its results differ from the kernels' in the last bits.

use rayon::prelude::*;

use super::matrix::Matrix;
use super::solver::Limits;

/// How many rows a thread takes at a time. The sums of these pieces are added in their order, so
/// every run gives the same bits.
const ROWS: usize = 4096;

/// A system in host memory, and the vectors of the iteration.
pub struct PlainRust<'a> {
    matrix: &'a Matrix,
    b: &'a [f64],
    limits: Limits,
    /// 1 divided by the diagonal.
    inverse: Vec<f64>,
    x: Vec<f64>,
    r: Vec<f64>,
    u: Vec<f64>,
    w: Vec<f64>,
    p: Vec<f64>,
    s: Vec<f64>,
}

/// The dot products of an iteration.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// r·u.
    gamma: f64,
    /// w·u.
    delta: f64,
    /// r·r.
    residual: f64,
}

impl<'a> PlainRust<'a> {
    pub fn new(matrix: &'a Matrix, b: &'a [f64], limits: Limits) -> PlainRust<'a> {
        let vector = || vec![0.0; b.len()];
        PlainRust {
            matrix,
            b,
            limits,
            inverse: matrix.diagonal().iter().map(|value| 1.0 / value).collect(),
            x: vector(),
            r: vector(),
            u: vector(),
            w: vector(),
            p: vector(),
            s: vector(),
        }
    }

    /// Solves the system by the kernels' stop rule, and returns the number of iterations.
    pub fn solve(&mut self) -> u32 {
        self.start();
        let (mut first, mut iterations) = (0.0, 0);
        let (mut gamma, mut alpha) = (f64::INFINITY, f64::INFINITY);
        loop {
            let sums = self.multiply();
            if iterations == 0 {
                first = sums.residual;
            }
            let beta = sums.gamma / gamma;
            let curvature = sums.delta - beta * (sums.gamma / alpha);
            let small = sums.residual <= self.limits.tolerance.powi(2) * first;
            let goes_on = curvature > 0.0 && curvature.is_finite() && sums.residual.is_finite();
            if small || !goes_on || iterations >= self.limits.iterations {
                return iterations;
            }
            iterations += 1;
            gamma = sums.gamma;
            alpha = gamma / curvature;
            self.update(alpha, beta);
        }
    }

    /// The solution of the last call of [`solve`](PlainRust::solve).
    pub fn x(&self) -> &[f64] {
        &self.x
    }

    /// x = 0, and the residual of that.
    fn start(&mut self) {
        self.r.copy_from_slice(self.b);
        for vector in [&mut self.x, &mut self.p, &mut self.s] {
            vector.fill(0.0);
        }
        for ((u, r), inverse) in self.u.iter_mut().zip(&self.r).zip(&self.inverse) {
            *u = r * inverse;
        }
    }

    /// w = A u, and the dot products.
    fn multiply(&mut self) -> Sums {
        let (starts, columns) = (self.matrix.starts(), self.matrix.columns());
        let values = self.matrix.values();
        let u = &self.u[..];
        let pieces = (
            self.w.par_chunks_mut(ROWS),
            self.r.par_chunks(ROWS),
            u.par_chunks(ROWS),
        );
        let pieces = pieces.into_par_iter().enumerate();
        let sums: Vec<Sums> = pieces
            .map(|(piece, (w, r, own))| {
                let mut sums = Sums::default();
                let bounds = starts[piece * ROWS..].windows(2);
                for (((w, r), own), bounds) in w.iter_mut().zip(r).zip(own).zip(bounds) {
                    let range = bounds[0] as usize..bounds[1] as usize;
                    let entries = columns[range.clone()].iter().zip(&values[range]);
                    *w = entries
                        .map(|(&column, &value)| value * u[column as usize])
                        .sum();
                    sums.gamma += r * own;
                    sums.delta += *w * own;
                    sums.residual += r * r;
                }
                sums
            })
            .collect();
        sums.iter().fold(Sums::default(), |all, sums| Sums {
            gamma: all.gamma + sums.gamma,
            delta: all.delta + sums.delta,
            residual: all.residual + sums.residual,
        })
    }

    /// Takes the step.
    fn update(&mut self, alpha: f64, beta: f64) {
        let pieces = (
            self.x.par_chunks_mut(ROWS),
            self.r.par_chunks_mut(ROWS),
            self.u.par_chunks_mut(ROWS),
            self.p.par_chunks_mut(ROWS),
            self.s.par_chunks_mut(ROWS),
            self.w.par_chunks(ROWS),
            self.inverse.par_chunks(ROWS),
        );
        pieces
            .into_par_iter()
            .for_each(|(x, r, u, p, s, w, inverse)| {
                let rows = x.iter_mut().zip(r).zip(u).zip(p).zip(s).zip(w).zip(inverse);
                for ((((((x, r), u), p), s), w), inverse) in rows {
                    *p = *u + beta * *p;
                    *s = w + beta * *s;
                    *x += alpha * *p;
                    *r -= alpha * *s;
                    *u = inverse * *r;
                }
            });
    }
}
