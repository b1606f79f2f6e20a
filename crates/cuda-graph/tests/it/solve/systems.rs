//! Systems of many structures, solved by each recorder: the same to the bit, and what the host
//! finds; and what cannot be solved.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{
    Eager, Graph, InstantiateOptions, Optimize, Pass, Path, Recorder, Replay, ReplayOptions,
};

use super::matrix::Matrix;
use super::outcome::{Outcome, Reason, relative_residual};
use super::problem::Problem;
use super::reference;
use super::solver::{Limits, Solver};
use super::system::System;
use crate::fixture::{context, stream};

const LIMITS: Limits = Limits {
    tolerance: 1e-9,
    iterations: 20_000,
    restart_every: None,
};

#[derive(Clone, Copy, Debug)]
enum By {
    Path,
    Capture,
    Eager,
    Replay,
}

/// Solves by one recorder, with a new executable.
fn solve_by(
    by: By,
    unroll: u32,
    stream: &Arc<CudaStream>,
    solver: &Solver,
    system: &System,
    matrix: &Matrix,
) -> Outcome {
    let step = |r: &mut dyn Recorder| solver.record(r, system);
    let graph = Graph::new(&context()).unwrap();
    let instantiate = InstantiateOptions {
        optimize: Optimize::ALL.unroll(unroll),
        ..InstantiateOptions::default()
    };
    let run = |graph: Graph| {
        let mut exec = graph.instantiate_with(&instantiate).unwrap();
        let loops = exec.report().unwrap().pass(Pass::Loops).unwrap().clone();
        let count = if unroll == 1 { 0 } else { unroll as usize };
        assert_eq!(loops.count("repetitions of bodies"), count, "{loops:?}");
        exec.launch(stream).unwrap();
    };
    match by {
        By::Path => {
            step(&mut Path::new(&graph)).unwrap();
            run(graph);
        }
        By::Capture => {
            let (graph, ()) = Graph::capture(stream, |c| step(c)).unwrap();
            run(graph);
        }
        By::Eager => step(&mut Eager::new(stream).unwrap()).unwrap(),
        By::Replay => {
            let options = ReplayOptions {
                instantiate,
                ..ReplayOptions::default()
            };
            let mut replay = Replay::with_options(&context(), options).unwrap();
            replay.call(stream, step).unwrap();
            assert!(replay.why_eager().is_none(), "{replay:?}");
        }
    }
    solver.outcome(stream, matrix, system).unwrap()
}

/// All of an outcome, to the bit.
pub fn bits(outcome: &Outcome) -> (Reason, u32, u64, Vec<u64>) {
    let x = outcome.x.iter().map(|value| value.to_bits()).collect();
    let Outcome {
        reason,
        iterations,
        residual,
        ..
    } = *outcome;
    (reason, iterations, residual.to_bits(), x)
}

/// Solves by every recorder, in turns of several lengths; all give the same.
#[track_caller]
fn solve(name: &str, matrix: &Matrix, b: &[f64], limits: Limits) -> Outcome {
    let stream = stream();
    let solver = Solver::new(&stream, matrix, limits).unwrap();
    let system = System::new(&stream, b).unwrap();
    let first = solve_by(By::Path, 1, &stream, &solver, &system, matrix);
    for (by, unroll) in [
        (By::Path, 8),
        (By::Capture, 1),
        (By::Capture, 5),
        (By::Eager, 1),
        (By::Replay, 8),
    ] {
        let other = solve_by(by, unroll, &stream, &solver, &system, matrix);
        assert_eq!(
            (first.reason, first.iterations),
            (other.reason, other.iterations),
            "{name} by {by:?}, {unroll} in a turn"
        );
        let differ = (first.x.iter().zip(&other.x))
            .filter(|(one, other)| one.to_bits() != other.to_bits())
            .count();
        assert!(
            bits(&first) == bits(&other),
            "{name} by {by:?}, {unroll} in a turn: {differ} values differ"
        );
    }
    let (iterations, residual) = system.progress.read();
    assert_eq!(
        iterations, first.iterations,
        "{name}: what was told of the progress"
    );
    if first.residual.is_finite() {
        assert!(
            (residual - first.residual).abs() <= 1e-6 * first.residual,
            "{name}: {residual}"
        );
    }
    first
}

/// Solves a system whose solution is known, beside the host.
#[track_caller]
fn agrees(name: &str, matrix: Matrix, error: f64) {
    matrix.check().unwrap();
    let problem = Problem::new(name.into(), matrix, 1);
    let (matrix, side) = (&problem.matrix, &problem.sides[0]);
    let b = &side.b;
    let outcome = solve(name, matrix, b, LIMITS);
    assert_eq!(outcome.reason, Reason::Converged, "{name}");
    let by_host = reference::solve(matrix, b, LIMITS.tolerance);
    assert!(
        outcome.iterations.abs_diff(by_host.iterations) <= 1,
        "{name}: {} iterations, and {} on the host",
        outcome.iterations,
        by_host.iterations
    );
    assert!(
        outcome.residual <= LIMITS.tolerance,
        "{name}: {}",
        outcome.residual
    );
    let residual = relative_residual(matrix, &outcome.x, b);
    assert!(residual <= 1.1 * LIMITS.tolerance, "{name}: {residual}");
    for other in [&side.known, &by_host.x] {
        let errors = outcome
            .x
            .iter()
            .zip(other)
            .map(|(x, other)| (x - other).abs());
        let most = errors.fold(0.0, f64::max);
        assert!(most <= error, "{name}: off by {most}");
    }
}

#[test]
fn one_unknown() {
    agrees("one", reference::diagonal(1, |_| 2.5), 1e-15);
}

#[test]
fn a_diagonal() {
    agrees(
        "diagonal",
        reference::diagonal(1000, |i| 1.0 + i as f64),
        1e-12,
    );
    agrees(
        "diagonal",
        reference::diagonal(300, |i| 10f64.powi(i as i32 - 150)),
        1e-12,
    );
}

#[test]
fn a_line() {
    agrees("tridiagonal", reference::tridiagonal(500, 2.01, -1.0), 1e-6);
}

#[test]
fn lines_that_just_fill_blocks_or_do_not() {
    for n in [2, 255, 256, 257, 511, 513, 32_767, 32_768, 32_769, 33_025] {
        agrees(
            &format!("line of {n}"),
            reference::tridiagonal(n, 10.0, 3.0),
            1e-8,
        );
    }
}

#[test]
fn a_square_of_points() {
    agrees("2-D Poisson", Matrix::poisson(30), 1e-6);
}

#[test]
fn a_cube_of_points() {
    agrees("3-D Poisson", reference::poisson_3d(11), 1e-7);
}

#[test]
fn an_arrow() {
    agrees("arrow", reference::arrow(700), 1e-7);
}

#[test]
fn places_without_a_pattern() {
    agrees("scattered", reference::scattered(2000, 6), 1e-6);
}

#[test]
fn springs_from_soft_to_stiff() {
    agrees("springs", reference::springs(120, 6), 1e-3);
}

/// A matrix whose entries do not show that it is not positive definite.
#[track_caller]
fn is_not_positive(name: &str, matrix: Matrix, b: &[f64]) {
    matrix.check().unwrap();
    let outcome = solve(name, &matrix, b, LIMITS);
    assert_eq!(outcome.reason, Reason::NotPositive, "{name}: {outcome:?}");
}

#[test]
fn what_is_indefinite_is_told() {
    let small = reference::symmetric(2, [(0, 0, 1.0), (1, 1, 1.0), (1, 0, 2.0)]);
    is_not_positive("of two", small, &[1.0, -1.0]);
    let small = reference::symmetric(2, [(0, 0, 1.0), (1, 1, 1.0), (1, 0, 2.0)]);
    is_not_positive("of two, seen in the second iteration", small, &[1.0, 0.5]);
    // The least eigenvalue of the Poisson problem here is 0.04, and one less of each makes it
    // negative.
    let mut shifted = Vec::new();
    let poisson = Matrix::poisson(20);
    for row in 0..poisson.n() {
        let lower = poisson.row(row).filter(|&(column, _)| column <= row);
        shifted.extend(
            lower.map(|(column, value)| (row, column, if row == column { 3.0 } else { value })),
        );
    }
    let problem = Problem::new("shifted".into(), reference::symmetric(400, shifted), 1);
    is_not_positive("shifted", problem.matrix, &problem.sides[0].b);
}

#[test]
fn what_is_singular_is_told() {
    let pair = reference::symmetric(2, [(0, 0, 1.0), (1, 1, 1.0), (1, 0, -1.0)]);
    is_not_positive("pair", pair, &[1.0, 0.0]);
    // A ring of springs without a wall: whatever moves all of them is not resisted.
    let ring = |n: usize| {
        let own = (0..n).map(|i| (i, i, 2.0));
        reference::symmetric(n, own.chain((0..n).map(|i| ((i + 1) % n, i, -1.0))))
    };
    for n in [3, 10, 100] {
        let mut b = vec![0.0; n];
        b[0] = 1.0;
        is_not_positive(&format!("ring of {n}"), ring(n), &b);
    }
}

#[test]
fn the_limit_is_exact() {
    let problem = Problem::new("limited".into(), Matrix::poisson(16), 1);
    let mut residuals = Vec::new();
    for iterations in [1, 2, 7, 8, 9, 20] {
        let limits = Limits {
            iterations,
            ..LIMITS
        };
        let outcome = solve("limited", &problem.matrix, &problem.sides[0].b, limits);
        assert_eq!(outcome.reason, Reason::LimitReached);
        assert_eq!(outcome.iterations, iterations);
        let by_host = relative_residual(&problem.matrix, &outcome.x, &problem.sides[0].b);
        assert!((outcome.residual - by_host).abs() < 1e-9 * by_host);
        residuals.push(by_host);
    }
    assert!(residuals.last() < residuals.first());
}

#[test]
fn nothing_is_solved_by_nothing() {
    let outcome = solve("zero", &Matrix::poisson(8), &[0.0; 64], LIMITS);
    assert_eq!((outcome.reason, outcome.iterations), (Reason::Converged, 0));
    assert_eq!(outcome.x, [0.0; 64]);
}

#[test]
fn very_small_and_very_large_numbers_are_solved_with() {
    let plain = Problem::new("plain".into(), Matrix::poisson(8), 1);
    let one = solve("plain", &plain.matrix, &plain.sides[0].b, LIMITS);
    for scale in [2f64.powi(-900), 2f64.powi(900)] {
        let b: Vec<f64> = plain.sides[0].b.iter().map(|value| value * scale).collect();
        let outcome = solve("scaled", &plain.matrix, &b, LIMITS);
        assert_eq!(
            (outcome.reason, outcome.iterations),
            (one.reason, one.iterations)
        );
        let x: Vec<f64> = outcome.x.iter().map(|value| value / scale).collect();
        assert_eq!(x, one.x, "a power of two changes nothing else");
    }
}

#[test]
fn where_rounding_ends_it_the_matrix_is_not_blamed() {
    let limits = Limits {
        tolerance: 1e-200,
        ..LIMITS
    };
    let problem = Problem::new("rounded".into(), Matrix::poisson(12), 1);
    let outcome = solve("rounded", &problem.matrix, &problem.sides[0].b, limits);
    assert_eq!(outcome.reason, Reason::RoundedOff);
    assert!(relative_residual(&problem.matrix, &outcome.x, &problem.sides[0].b) < 1e-14);
}

#[test]
fn numbers_that_become_too_large_are_told() {
    let matrix = reference::symmetric(2, [(0, 0, 1e-320), (1, 1, 1.0)]);
    matrix.check().unwrap();
    let outcome = solve("too large", &matrix, &[1.0, 1.0], LIMITS);
    assert_eq!(outcome.reason, Reason::NotFinite);
    for b in [[f64::INFINITY, 1.0], [1.0, f64::NAN]] {
        let outcome = solve("no numbers", &reference::diagonal(2, |_| 2.0), &b, LIMITS);
        assert_eq!((outcome.reason, outcome.iterations), (Reason::NotFinite, 0));
    }
    // The right-hand side is too large already.
    let problem = Problem::new(
        "large".into(),
        reference::tridiagonal(9, 1.7e308, -1e308),
        1,
    );
    let outcome = solve("large", &problem.matrix, &problem.sides[0].b, LIMITS);
    assert_eq!(outcome.reason, Reason::NotFinite);
}

#[test]
fn a_solver_solves_again_and_again() {
    let stream = stream();
    let problem = Problem::new("again".into(), Matrix::poisson(20), 1);
    let solver = Solver::new(&stream, &problem.matrix, LIMITS).unwrap();
    let system = System::new(&stream, &problem.sides[0].b).unwrap();
    let graph = Graph::new(&context()).unwrap();
    let mut path = Path::new(&graph);
    solver.record(&mut path, &system).unwrap();
    let mut exec = graph.instantiate().unwrap();
    let mut outcomes = (0..3).map(|_| {
        exec.launch(&stream).unwrap();
        bits(&solver.outcome(&stream, &problem.matrix, &system).unwrap())
    });
    let first = outcomes.next();
    assert!(outcomes.all(|outcome| Some(outcome) == first));
}

#[test]
fn the_host_sees_how_far_the_device_is_while_it_goes_on() {
    let stream = stream();
    let problem = Problem::new("watched".into(), Matrix::poisson(100), 1);
    let solver = Solver::new(&stream, &problem.matrix, LIMITS).unwrap();
    let system = System::new(&stream, &problem.sides[0].b).unwrap();
    let graph = Graph::new(&context()).unwrap();
    let mut path = Path::new(&graph);
    solver.record(&mut path, &system).unwrap();
    let mut exec = graph.instantiate().unwrap();
    let (is_over, progress) = (AtomicBool::new(false), &system.progress);
    let seen = std::thread::scope(|scope| {
        // Whoever watches makes no driver call, nor waits for one: while other threads are in the
        // driver, a launch may return after it is over.
        let watcher = scope.spawn(|| {
            let mut seen = vec![0];
            while !is_over.load(Ordering::Relaxed) {
                let (iterations, _) = progress.read();
                let last = seen.last().copied().unwrap_or_default();
                assert!(iterations >= last, "{iterations} after {last}");
                if iterations > last {
                    seen.push(iterations);
                }
            }
            seen
        });
        let (launched, waited) = (exec.launch(&stream), stream.synchronize());
        is_over.store(true, Ordering::Relaxed);
        launched.unwrap();
        waited.unwrap();
        watcher.join().unwrap()
    });
    let outcome = solver.outcome(&stream, &problem.matrix, &system).unwrap();
    assert_eq!(system.progress.read().0, outcome.iterations);
    // It tells every 16 iterations, of some hundreds; a host that is interrupted misses some.
    assert!(seen.len() > 3, "{seen:?} of {}", outcome.iterations);
}
