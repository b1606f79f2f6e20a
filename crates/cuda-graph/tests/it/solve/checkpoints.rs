//! Systems with restarts: the step stops at its checkpoint on the device, and is resumed behind it.

use std::num::NonZeroU32;

use cuda_graph::testing::with_driver_version;
use cuda_graph::{Eager, Optimize, Recorder};

use super::matrix::Matrix;
use super::outcome::{Outcome, Reason, relative_residual};
use super::problem::Problem;
use super::reference;
use super::restarts::matrices;
use super::sequence::Sequence;
use super::solver::{Limits, Solver};
use super::system::System;
use super::systems::bits;
use crate::fixture::stream;

fn limits(tolerance: f64, every: u32) -> Limits {
    Limits {
        tolerance,
        iterations: 20_000,
        restart_every: NonZeroU32::new(every),
    }
}

/// What came of a system, and how often it restarted.
type Restarted = (Outcome, u32);

/// Solves the systems of `problem` in the order given through one replay, and counts what is built.
/// The driver may seem to be of an older version meanwhile.
#[track_caller]
fn in_sequence(
    problem: &Problem,
    order: &[usize],
    limits: Limits,
    unroll: u32,
    version: Option<i32>,
) -> Vec<Restarted> {
    let stream = stream();
    let matrix = &problem.matrix;
    let solver = Solver::new(&stream, matrix, limits).unwrap();
    let systems = problem.sides.iter();
    let systems: Vec<System> = systems
        .map(|side| System::new(&stream, &side.b).unwrap())
        .collect();
    let mut sequence = Sequence::new(&stream, &solver, Optimize::ALL.unroll(unroll)).unwrap();
    let solved = order.iter().map(|&at| {
        let run = match version {
            Some(version) => with_driver_version(version, || sequence.solve(&systems[at])),
            None => sequence.solve(&systems[at]),
        }
        .unwrap();
        let outcome = solver.outcome(&stream, matrix, &systems[at]).unwrap();
        (outcome, run.restarts.unwrap_or_default())
    });
    let solved: Vec<_> = solved.collect();

    let stops: u32 = solved.iter().map(|(_, restarts)| restarts).sum();
    let calls = order.len() as u64 + u64::from(stops);
    let (step, restart) = sequence.counters();
    let name = &problem.name;
    assert_eq!((step.calls, restart.calls), (calls, stops.into()), "{name}");
    match version {
        Some(_) => assert_eq!((step.eager, step.launches), (calls, 0), "{name}: {step:?}"),
        None => {
            // The step, and what is resumed of it.
            let builds = if stops == 0 { 1 } else { 2 };
            assert_eq!((step.builds, step.launches), (builds, calls), "{name}");
            let built = u64::from(stops > 0);
            assert_eq!((restart.builds, restart.launches), (built, stops.into()));
        }
    }
    solved
}

/// Solves without a checkpoint: the host looks after each iteration whether the device pauses.
fn by_hand(problem: &Problem, at: usize, limits: Limits) -> Restarted {
    let stream = stream();
    let solver = Solver::new(&stream, &problem.matrix, limits).unwrap();
    let system = System::new(&stream, &problem.sides[at].b).unwrap();
    let mut eager = Eager::new(&stream).unwrap();
    let eager: &mut dyn Recorder = &mut eager;
    eager.record(solver.start(&system).unwrap()).unwrap();
    let mut restarts = 0;
    while system.go.to_host(&stream).unwrap() != [0] {
        solver.iterate(eager, &system).unwrap();
        if system.pause.to_host(&stream).unwrap() != [0] {
            eager.record(solver.restart(&system).unwrap()).unwrap();
            restarts += 1;
        }
    }
    let outcome = solver.outcome(&stream, &problem.matrix, &system).unwrap();
    (outcome, restarts)
}

fn all_bits((outcome, restarts): &Restarted) -> (impl PartialEq + use<>, u32) {
    (bits(outcome), *restarts)
}

/// What comes after a pause in an unrolled turn does nothing, so all turns give the same.
#[test]
fn all_matrices_are_solved_and_what_the_device_says_is_true() {
    for (name, matrix) in matrices() {
        let problem = Problem::new(name.into(), matrix, 1);
        let (matrix, b) = (&problem.matrix, &problem.sides[0].b);
        let limits = limits(1e-10, 25);
        let by_hand = by_hand(&problem, 0, limits);
        let (outcome, restarts) = &by_hand;
        assert_eq!(outcome.reason, Reason::Converged, "{name}");
        let residual = relative_residual(matrix, &outcome.x, b);
        assert!(residual <= limits.tolerance * (1.0 + 1e-6), "{name}");
        let gap = (residual - outcome.residual).abs();
        assert!(gap <= 1e-6 * limits.tolerance, "{name}: {gap}");
        // Each stretch is of 25 iterations; the last restart checks what came of it.
        assert_eq!(*restarts, outcome.iterations.div_ceil(25), "{name}");
        for unroll in [1, 8, 40] {
            let solved = in_sequence(&problem, &[0], limits, unroll, None);
            assert!(
                all_bits(&solved[0]) == all_bits(&by_hand),
                "{name}, {unroll} in a turn"
            );
        }
    }
}

#[test]
fn the_step_stops_after_so_many_iterations_and_once_to_check() {
    let problem = Problem::new("square".into(), Matrix::poisson(10), 1);
    let solved = |every| in_sequence(&problem, &[0], limits(1e-9, every), 8, None).remove(0);
    let (plain, none) = solved(0);
    assert_eq!(none, 0);
    let (outcome, restarts) = solved(100_000);
    assert_eq!(restarts, 1);
    assert_eq!(outcome.iterations, plain.iterations);
    assert!(bits(&outcome).3 == bits(&plain).3, "the same x");
    for every in [1, 7, 8, 9, plain.iterations - 1, plain.iterations] {
        let (outcome, restarts) = solved(every);
        assert_eq!(outcome.reason, Reason::Converged, "{every}");
        assert_eq!(restarts, outcome.iterations.div_ceil(every), "{every}");
    }
}

#[test]
fn the_limit_is_exact_with_restarts_too() {
    let problem = Problem::new("limited".into(), Matrix::poisson(16), 1);
    for iterations in [1, 4, 5, 10, 12] {
        let limits = Limits {
            iterations,
            ..limits(1e-9, 5)
        };
        let (outcome, restarts) = in_sequence(&problem, &[0], limits, 4, None).remove(0);
        assert_eq!(outcome.reason, Reason::LimitReached);
        assert_eq!(outcome.iterations, iterations);
        assert_eq!(restarts, iterations / 5);
    }
}

#[test]
fn systems_stop_and_resume_one_after_the_other() {
    for (name, matrix) in [
        ("square", Matrix::poisson(20)),
        ("scattered", reference::scattered(2000, 6)),
        ("springs", reference::springs(120, 6)),
    ] {
        let problem = Problem::new(name.into(), matrix, 3);
        let limits = limits(1e-9, 15);
        let alone = [0, 1, 2].map(|at| by_hand(&problem, at, limits));
        let order = [0, 1, 2, 1, 1, 0];
        let solved = in_sequence(&problem, &order, limits, 4, None);
        for (at, solved) in order.iter().zip(&solved) {
            assert!(
                all_bits(solved) == all_bits(&alone[*at]),
                "{name}, system {at}"
            );
        }
    }
}

#[test]
fn a_system_that_ends_without_a_stop_does_not_disturb_those_that_stop() {
    let mut problem = Problem::new("mixed".into(), Matrix::poisson(12), 4);
    problem.sides[1].b.fill(0.0);
    problem.sides[2].b[5] = f64::NAN;
    let limits = limits(1e-9, 10);
    let solved = in_sequence(&problem, &[0, 1, 2, 3, 1, 0], limits, 8, None);
    let stopped: Vec<_> = solved.iter().map(|(_, restarts)| *restarts > 0).collect();
    assert_eq!(stopped, [true, false, false, true, false, true]);
    for (solved, at) in solved.iter().zip([0, 1, 2, 3, 1, 0]) {
        assert!(all_bits(solved) == all_bits(&by_hand(&problem, at, limits)));
    }
}

#[test]
fn on_drivers_without_loops_the_host_stops_and_resumes_to_the_same_bits() {
    let problem = Problem::new("old".into(), Matrix::poisson(12), 3);
    let limits = limits(1e-9, 10);
    let order = [0, 1, 2, 0];
    let by_graph = in_sequence(&problem, &order, limits, 4, None);
    let by_host = in_sequence(&problem, &order, limits, 4, Some(12_020));
    for (graph, host) in by_graph.iter().zip(&by_host) {
        assert!(all_bits(graph) == all_bits(host));
        assert!(graph.1 > 1);
    }
}

/// The residual that the device keeps is below the tolerance, and the true one is not. Restarts
/// bring that below, too.
#[test]
fn restarts_mend_a_residual_that_drifted() {
    let square = Problem::new("square".into(), Matrix::poisson(40), 1);
    let mut springs = Problem::new("springs".into(), reference::springs(200, 8), 1);
    springs.sides[0].b.fill(1.0);
    for (problem, tolerance) in [(square, 4e-16), (springs, 1e-12)] {
        let solve = |every| {
            let limits = limits(tolerance, every);
            let (outcome, restarts) = in_sequence(&problem, &[0], limits, 8, None).remove(0);
            assert_eq!(outcome.reason, Reason::Converged, "{}", problem.name);
            assert!(outcome.residual <= tolerance, "{}", problem.name);
            let b = &problem.sides[0].b;
            let residual = relative_residual(&problem.matrix, &outcome.x, b);
            (residual, restarts)
        };
        let (drifted, _) = solve(0);
        let (residual, restarts) = solve(100_000);
        let told = format!("{}: {drifted} and {residual}", problem.name);
        assert!(drifted > 1.1 * tolerance, "{told}");
        assert!(residual <= tolerance, "{told}");
        assert!(restarts > 1, "what the device found first was not true");
    }
}

/// Twice the residual is not as small as it seems. That ends it, where without restarts the device
/// takes it as solved.
#[test]
fn what_only_seems_to_converge_is_found_out() {
    let problem = Problem::new("seems".into(), Matrix::poisson(12), 1);
    let (b, solve) = (&problem.sides[0].b, |every| {
        in_sequence(&problem, &[0], limits(1e-18, every), 8, None).remove(0)
    });
    let (plain, _) = solve(0);
    assert_eq!(plain.reason, Reason::Converged);
    let (outcome, restarts) = solve(100);
    assert_eq!(outcome.reason, Reason::RoundedOff);
    assert!((2..10).contains(&restarts), "{restarts}");
    let residual = relative_residual(&problem.matrix, &outcome.x, b);
    assert!(residual < 1e-15, "{residual}");
}
