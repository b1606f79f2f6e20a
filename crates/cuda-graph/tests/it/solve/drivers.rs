//! What the software driver computed, for every other driver to agree with.

use cuda_graph::{Graph, Path};

use super::matrix::Matrix;
use super::outcome::Reason;
use super::problem::Problem;
use super::reference;
use super::solver::{Limits, Solver};
use super::system::System;
use crate::fixture::{context, stream};

/// A system, its iterations, and a hash of its solution's bits.
type Record = (&'static str, u32, u64);

const RECORDS: [Record; 7] = [
    ("diagonal", 1, 0x191f_7e5a_dc61_1dfe),
    ("line", 68, 0xde6a_5383_4808_fd80),
    ("square", 133, 0x4aff_a8a8_6cf6_f1bd),
    ("cube", 55, 0x5b96_1abf_351e_35d7),
    ("arrow", 3, 0xa8dd_4da8_42fa_3349),
    ("scattered", 21, 0x821b_7737_b821_9b9e),
    ("springs", 120, 0x2d2b_0978_7881_e4ec),
];

fn matrix(name: &str) -> Matrix {
    match name {
        "diagonal" => reference::diagonal(1000, |i| 1.0 + i as f64),
        "line" => reference::tridiagonal(40_000, 2.1, -1.0),
        "square" => Matrix::poisson(40),
        "cube" => reference::poisson_3d(12),
        "arrow" => reference::arrow(700),
        "scattered" => reference::scattered(2000, 6),
        "springs" => reference::springs(120, 6),
        other => panic!("there is no system {other}"),
    }
}

#[test]
fn every_driver_computes_the_same_bits() {
    let stream = stream();
    let limits = Limits {
        tolerance: 1e-10,
        iterations: 20_000,
        restart_every: None,
    };
    let solved = RECORDS.map(|(name, ..)| {
        let problem = Problem::new(name.into(), matrix(name), 1);
        let solver = Solver::new(&stream, &problem.matrix, limits).unwrap();
        let system = System::new(&stream, &problem.sides[0].b).unwrap();
        let graph = Graph::new(&context()).unwrap();
        let mut path = Path::new(&graph);
        solver.record(&mut path, &system).unwrap();
        graph.instantiate().unwrap().launch(&stream).unwrap();
        let outcome = solver.outcome(&stream, &problem.matrix, &system).unwrap();
        assert_eq!(outcome.reason, Reason::Converged, "{name}");
        let hash = outcome.x.iter().fold(0u64, |hash, x| {
            (hash.rotate_left(5) ^ x.to_bits()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        (name, outcome.iterations, hash)
    });
    assert_eq!(solved, RECORDS);
}
