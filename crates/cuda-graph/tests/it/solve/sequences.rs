//! Several systems of one matrix through one replay: what each of them gives alone, for one build.

use cuda_graph::testing::with_driver_version;
use cuda_graph::{Counters, Eager, Optimize, Recorder};

use super::matrix::Matrix;
use super::outcome::{Outcome, Reason};
use super::problem::Problem;
use super::reference;
use super::sequence::Sequence;
use super::solver::{Limits, Solver};
use super::system::System;
use super::systems::bits;
use crate::fixture::stream;

const LIMITS: Limits = Limits {
    tolerance: 1e-9,
    iterations: 20_000,
    restart_every: None,
};

/// Solves each system with a solver of its own, eagerly.
fn one_by_one(problem: &Problem) -> Vec<Outcome> {
    let stream = stream();
    let solved = problem.sides.iter().map(|side| {
        let solver = Solver::new(&stream, &problem.matrix, LIMITS).unwrap();
        let system = System::new(&stream, &side.b).unwrap();
        let mut eager = Eager::new(&stream).unwrap();
        let eager: &mut dyn Recorder = &mut eager;
        solver.record(eager, &system).unwrap();
        solver.outcome(&stream, &problem.matrix, &system).unwrap()
    });
    solved.collect()
}

/// Solves the systems in the order given, in a sequence, and compares each with what it gave alone.
/// Returns what the sequence counted. The driver may seem to be of an older version meanwhile.
#[track_caller]
fn in_sequence(problem: &Problem, order: &[usize], version: Option<i32>) -> Counters {
    let alone = one_by_one(problem);
    let stream = stream();
    let solver = Solver::new(&stream, &problem.matrix, LIMITS).unwrap();
    let systems = problem.sides.iter();
    let systems: Vec<System> = systems
        .map(|side| System::new(&stream, &side.b).unwrap())
        .collect();
    let mut sequence = Sequence::new(&stream, &solver, Optimize::ALL).unwrap();
    for &at in order {
        // Kernels are loaded by now: a driver that is too old for loops is too old for that, too.
        match version {
            Some(version) => with_driver_version(version, || sequence.solve(&systems[at])),
            None => sequence.solve(&systems[at]),
        }
        .unwrap();
        let outcome = solver
            .outcome(&stream, &problem.matrix, &systems[at])
            .unwrap();
        let name = &problem.name;
        assert!(bits(&outcome) == bits(&alone[at]), "{name}, system {at}");
        let (iterations, _) = systems[at].progress.read();
        assert_eq!(iterations, outcome.iterations, "{name}, system {at}");
    }
    let form = sequence.form();
    assert_eq!(form.built.is_some(), form.why_eager.is_none());
    sequence.counters().0
}

#[test]
fn systems_in_a_sequence_give_what_each_gives_alone() {
    for (name, matrix) in [
        ("one unknown", reference::diagonal(1, |_| 2.5)),
        ("diagonal", reference::diagonal(300, |i| 1.0 + i as f64)),
        ("line", reference::tridiagonal(33_025, 10.0, 3.0)),
        ("square", Matrix::poisson(20)),
        ("arrow", reference::arrow(700)),
        ("scattered", reference::scattered(2000, 6)),
        ("springs", reference::springs(120, 6)),
    ] {
        let problem = Problem::new(name.into(), matrix, 5);
        let counters = in_sequence(&problem, &[0, 1, 2, 3, 4], None);
        let counted = (counters.builds, counters.twins, counters.launches);
        assert_eq!(counted, (1, 0, 5), "{name}: {counters:?}");
        // The first kernel, the two of an iteration, and the flag.

        assert_eq!(counters.updated, 4 * 4, "{name}: {counters:?}");
    }
}

#[test]
fn right_hand_sides_differ_and_the_first_is_that_of_one_system() {
    let many = Problem::new("many".into(), Matrix::poisson(9), 3);
    let one = Problem::new("one".into(), Matrix::poisson(9), 1);
    assert_eq!(many.sides[0].b, one.sides[0].b);
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        let pairs = many.sides[one].known.iter().zip(&many.sides[other].known);
        assert!(pairs.clone().all(|(one, other)| one != other));
    }
}

/// A system that is solved again begins anew, whatever ran in between.
#[test]
fn systems_come_again() {
    let problem = Problem::new("again".into(), Matrix::poisson(12), 3);
    let counters = in_sequence(&problem, &[0, 0, 2, 1, 2, 2, 0, 1], None);
    assert_eq!((counters.builds, counters.launches), (1, 8), "{counters:?}");
}

#[test]
fn systems_that_cannot_be_solved_do_not_disturb_the_others() {
    let matrix = reference::symmetric(2, [(0, 0, 1.0), (1, 1, 1.0), (1, 0, 2.0)]);
    let mut problem = Problem::new("indefinite".into(), matrix, 5);
    // Along (1, 1) the matrix is positive, along (1, -1) it is not.
    let sides = [
        [1.0, 1.0],
        [1.0, -1.0],
        [f64::INFINITY, 1.0],
        [0.0, 0.0],
        [2.0, 2.0],
    ];
    for (side, b) in problem.sides.iter_mut().zip(sides) {
        side.b = b.to_vec();
    }
    let reasons: Vec<_> = one_by_one(&problem)
        .iter()
        .map(|outcome| outcome.reason)
        .collect();
    let converged = Reason::Converged;
    assert_eq!(
        reasons,
        [
            converged,
            Reason::NotPositive,
            Reason::NotFinite,
            converged,
            converged
        ]
    );
    in_sequence(&problem, &[0, 1, 2, 3, 4], None);
}

#[test]
fn on_drivers_without_loops_the_host_loops() {
    let problem = Problem::new("old".into(), Matrix::poisson(8), 3);
    let counters = in_sequence(&problem, &[0, 1, 2], Some(12_020));
    assert_eq!((counters.eager, counters.launches), (3, 0), "{counters:?}");
}
