//! Restarts between iterations: the kernel `cg_restart`.

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Eager, Recorder};

use super::matrix::Matrix;
use super::outcome::{Outcome, Reason, relative_residual};
use super::problem::Problem;
use super::reference;
use super::solver::{Limits, Solver};
use super::system::System;
use super::systems::bits;
use crate::fixture::stream;

const LIMITS: Limits = Limits {
    tolerance: 1e-10,
    iterations: 20_000,
    restart_every: None,
};

struct Solving {
    stream: Arc<CudaStream>,
    problem: Problem,
    solver: Solver,
    system: System,
}

impl Solving {
    fn new(name: &str, matrix: Matrix, limits: Limits) -> Solving {
        let stream = stream();
        let problem = Problem::new(name.into(), matrix, 1);
        Solving {
            solver: Solver::new(&stream, &problem.matrix, limits).unwrap(),
            system: System::new(&stream, &problem.sides[0].b).unwrap(),
            stream,
            problem,
        }
    }

    /// Solves, with a restart after each of the counts of iterations.
    fn restarted(&self, counts: &[u32]) -> Outcome {
        let Solving { solver, system, .. } = self;
        let mut eager = Eager::new(&self.stream).unwrap();
        let eager: &mut dyn Recorder = &mut eager;
        eager.record(solver.start(system).unwrap()).unwrap();
        for &count in counts {
            for _ in 0..count {
                solver.iterate(eager, system).unwrap();
            }
            eager.record(solver.restart(system).unwrap()).unwrap();
        }
        solver.go_on(eager, system).unwrap();
        let matrix = &self.problem.matrix;
        solver.outcome(&self.stream, matrix, system).unwrap()
    }
}

pub fn matrices() -> [(&'static str, Matrix); 5] {
    [
        ("diagonal", reference::diagonal(300, |i| 1.0 + i as f64)),
        ("line", reference::tridiagonal(33_025, 2.1, -1.0)),
        ("square", Matrix::poisson(30)),
        ("arrow", reference::arrow(700)),
        ("scattered", reference::scattered(2000, 6)),
    ]
}

/// Where x is 0 the residual is b, whichever kernel says so.
#[test]
fn a_restart_at_the_start_changes_no_bit() {
    for (name, matrix) in matrices() {
        let solving = Solving::new(name, matrix, LIMITS);
        let plain = bits(&solving.restarted(&[]));
        assert!(bits(&solving.restarted(&[0])) == plain, "{name}");
        assert!(bits(&solving.restarted(&[0, 0])) == plain, "{name}");
    }
}

#[test]
fn it_goes_on_from_where_it_was() {
    for (name, matrix) in matrices() {
        let solving = Solving::new(name, matrix, LIMITS);
        let plain = solving.restarted(&[]);
        let outcome = solving.restarted(&[plain.iterations / 2]);
        let (reason, iterations) = (outcome.reason, outcome.iterations);
        assert_eq!(reason, Reason::Converged, "{name}");
        // It loses the directions that it had, but not x.
        assert!(
            (plain.iterations..2 * plain.iterations).contains(&iterations),
            "{name}: {iterations} iterations, {} without a restart",
            plain.iterations
        );
        let side = &solving.problem.sides[0];
        let residual = relative_residual(&solving.problem.matrix, &outcome.x, &side.b);
        assert!(residual <= 1.1 * LIMITS.tolerance, "{name}: {residual}");
    }
}

/// Each iteration after a restart is a first one: steepest descent, whose residuals in the norm of
/// the inverse fall each time.
#[test]
fn the_iteration_after_a_restart_is_a_first_one() {
    let limits = Limits {
        iterations: 3,
        ..LIMITS
    };
    let solving = Solving::new("descent", Matrix::poisson(10), limits);
    let outcome = solving.restarted(&[1, 1]);
    assert_eq!(outcome.iterations, 3);

    // The same on the host.
    let (matrix, side) = (&solving.problem.matrix, &solving.problem.sides[0]);
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let mut x = vec![0.0; matrix.n()];
    for _ in 0..3 {
        let product = matrix.times(&x);
        let r: Vec<f64> = side.b.iter().zip(&product).map(|(b, p)| b - p).collect();
        // The diagonal is 4 everywhere, so it cancels.
        let alpha = dot(&r, &r) / dot(&r, &matrix.times(&r));
        x.iter_mut().zip(&r).for_each(|(x, r)| *x += alpha * r);
    }
    for (device, host) in outcome.x.iter().zip(&x) {
        assert!((device - host).abs() < 1e-13, "{device} and {host}");
    }
}

/// Without a restart the device does not notice what became of x; with one it goes by x as it is.
#[test]
fn a_restart_goes_by_x_as_it_is() {
    let solving = Solving::new("moved", reference::scattered(2000, 6), LIMITS);
    let (matrix, b) = (&solving.problem.matrix, &solving.problem.sides[0].b);
    let moved = |restart: bool| {
        let Solving {
            solver,
            system,
            stream,
            ..
        } = &solving;
        let mut eager = Eager::new(stream).unwrap();
        let eager: &mut dyn Recorder = &mut eager;
        eager.record(solver.start(system).unwrap()).unwrap();
        for _ in 0..5 {
            solver.iterate(eager, system).unwrap();
        }
        let mut x = system.x.to_host(stream).unwrap();
        x.iter_mut().step_by(3).for_each(|x| *x += 0.25);
        system.x.copy_from_host(stream, &x).unwrap();
        if restart {
            eager.record(solver.restart(system).unwrap()).unwrap();
        }
        solver.go_on(eager, system).unwrap();
        let outcome = solver.outcome(stream, matrix, system).unwrap();
        assert_eq!(outcome.reason, Reason::Converged);
        relative_residual(matrix, &outcome.x, b)
    };
    let (with, without) = (moved(true), moved(false));
    assert!(with <= 1.1 * LIMITS.tolerance, "{with}");
    assert!(without > 0.01, "{without}");
}

/// Once the device has stopped, its answer stays.
#[test]
fn after_the_end_it_does_nothing() {
    let solving = Solving::new("over", Matrix::poisson(12), LIMITS);
    let plain = solving.restarted(&[]);
    let over = plain.iterations + 3;
    assert!(bits(&solving.restarted(&[over])) == bits(&plain));
}
