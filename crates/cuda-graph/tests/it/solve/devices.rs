//! A matrix divided among devices, and systems that they solve together.

use std::time::Duration;

use cuda_graph::cudarc::driver::CudaContext;
use cuda_graph::{Cluster, Communicator, CommunicatorOptions, Eager, Error};
use proptest::prelude::*;

use super::job::{self, Exit, Failure};
use super::matrix::{Entry, Matrix};
use super::options::{self, Options, Request};
use super::outcome::{Outcome, Reason, relative_residual};
use super::partition::{Part, cuts, divide, whole};
use super::problem::Problem;
use super::several::{gather, on_ranks, run_process, solve};
use super::solver::{Limits, Solver};
use super::system::System;
use crate::fixture::{context, is_software, on_devices};

/// A symmetric matrix of `n` rows with a dominant diagonal. An entry may be zero on one side alone.
fn matrix(n: usize, places: &[(usize, usize, i8)]) -> Matrix {
    let mut sums = vec![1.0; n];
    let mut entries = Vec::new();
    for &(row, column, value) in places {
        let (row, column, value) = (row % n, column % n, f64::from(value));
        if row != column {
            let mut put = |row: usize, column: usize| {
                sums[row] += value.abs();
                entries.push(Entry {
                    row: row as u32,
                    column: column as u32,
                    value,
                });
            };
            put(row, column);
            if value != 0.0 {
                put(column, row);
            }
        }
    }
    for (row, value) in sums.into_iter().enumerate() {
        entries.push(Entry {
            row: row as u32,
            column: row as u32,
            value,
        });
    }
    Matrix::from_entries(n, entries)
}

/// What the parts make of `x` together, each with what its neighbours send it.
fn product(parts: &[Part], x: &[f64]) -> Vec<f64> {
    let own = |part: &Part| [&x[part.rows.clone()], &vec![f64::NAN; part.halo]].concat();
    let mut vectors: Vec<Vec<f64>> = parts.iter().map(own).collect();
    for (rank, part) in parts.iter().enumerate() {
        for neighbour in &part.neighbours {
            let to = &parts[neighbour.rank];
            let back = to.neighbours.iter().find(|other| other.rank == rank);
            let back = back.expect("who sends or receives is the other's neighbour, too");
            let sent: Vec<f64> = neighbour
                .sends
                .iter()
                .map(|&place| vectors[rank][place as usize])
                .collect();
            vectors[neighbour.rank][back.receives.clone()].copy_from_slice(&sent);
        }
    }
    let rows = parts.iter().zip(&vectors).flat_map(|(part, vector)| {
        (0..part.rows.len()).map(move |row| {
            let entries = part.starts[row] as usize..part.starts[row + 1] as usize;
            let columns = part.columns[entries.clone()].iter();
            let pairs = columns.zip(&part.values[entries]);
            pairs
                .map(|(&column, value)| value * vector[column as usize])
                .sum()
        })
    });
    rows.collect()
}

proptest! {
    /// Parts that send each other what they need make the product that the whole makes.
    #[test]
    fn parts_multiply_as_the_whole(
        n in 1usize..40,
        places in prop::collection::vec((any::<usize>(), any::<usize>(), -3i8..4), 0..120),
        at in prop::collection::vec(any::<usize>(), 0..6),
    ) {
        let matrix = matrix(n, &places);
        let mut at: Vec<usize> = at.iter().map(|at| at % (n + 1)).collect();
        at.sort_unstable();
        let x: Vec<f64> = (0..n).map(|row| (row * row % 17) as f64).collect();
        for cuts in [at, cuts(&matrix, 5), Vec::new()] {
            let parts = divide(&matrix, &cuts);
            prop_assert_eq!(parts.len(), cuts.len() + 1);
            let rows: Vec<usize> = parts.iter().flat_map(|part| part.rows.clone()).collect();
            prop_assert_eq!(rows, (0..n).collect::<Vec<_>>());
            let diagonal: Vec<f64> = parts.iter().flat_map(|part| part.diagonal.clone()).collect();
            prop_assert_eq!(diagonal, matrix.diagonal());
            // Sums of whole numbers are exact in any order.
            prop_assert_eq!(product(&parts, &x), matrix.times(&x));
        }
    }
}

#[test]
fn parts_have_about_as_many_entries() {
    let matrix = Matrix::poisson(50);
    for count in 1..8 {
        let parts = divide(&matrix, &cuts(&matrix, count));
        assert_eq!(parts.len(), count);
        for part in parts {
            let each = matrix.values().len() / count;
            assert!(part.values.len().abs_diff(each) <= 10, "{count}: {each}");
        }
    }
    assert_eq!(whole(&matrix).halo, 0);
    assert_eq!(whole(&matrix).neighbours, []);
}

const LIMITS: Limits = Limits {
    tolerance: 1e-10,
    iterations: 10_000,
    restart_every: None,
};

/// Ranks that share one device solve with their loops on the host.
fn eagerly(problem: &Problem, cuts: &[usize], limits: Limits) -> Outcome {
    let parts = divide(&problem.matrix, cuts);
    let contexts = vec![context(); parts.len()];
    let options = CommunicatorOptions::default().timeout(Duration::from_secs(20));
    let ranks = Communicator::all(&contexts, &options).unwrap();
    let mut ended = on_ranks(&ranks, |communicator| {
        let part = &parts[communicator.rank() as usize];
        let b = &problem.sides[0].b;
        let stream = communicator.context().new_stream().map_err(Error::from)?;
        let solver = Solver::of_part(&stream, part, Some(communicator.clone()), limits)?;
        let system = System::of_part(&stream, b, part.rows.clone(), part.len())?;
        solver.record(&mut Eager::new(&stream)?, &system)?;
        solver.wait(&stream)?;
        Ok(gather(
            communicator,
            &parts,
            solver.ended(&stream, &system)?,
        )?)
    })
    .unwrap();
    ended.swap_remove(0).outcome(&problem.matrix)
}

/// However the rows are divided, also into empty parts.
///
/// In software alone: loading a kernel waits for a GPU that runs other ranks' kernels, which wait
/// for this rank. Ranks of a GPU's own have no such trouble.
#[test]
fn any_parts_solve_it() {
    if !is_software() {
        return;
    }
    let matrix = Matrix::poisson(12);
    let problem = Problem::new("grid".into(), matrix, 1);
    for cuts in [
        vec![],
        vec![72],
        vec![1],
        vec![143],
        vec![0],
        vec![144],
        vec![0, 0, 144],
        vec![50, 50],
        vec![12, 13, 100],
    ] {
        let outcome = eagerly(&problem, &cuts, LIMITS);
        assert_eq!(outcome.reason, Reason::Converged, "{cuts:?}");
        let residual = relative_residual(&problem.matrix, &outcome.x, &problem.sides[0].b);
        assert!(residual <= 2e-10, "{cuts:?}: {residual}");
    }
}

/// One part is the whole: the same bits as without a communicator.
#[test]
fn one_part_is_the_whole() {
    let problem = Problem::new("grid".into(), Matrix::poisson(20), 1);
    let stream = crate::fixture::stream();
    let solver = Solver::new(&stream, &problem.matrix, LIMITS).unwrap();
    let system = System::new(&stream, &problem.sides[0].b).unwrap();
    let mut eager = Eager::new(&stream).unwrap();
    solver.record(&mut eager, &system).unwrap();
    let alone = solver.outcome(&stream, &problem.matrix, &system).unwrap();
    let part = eagerly(&problem, &[], LIMITS);
    assert_eq!(super::systems::bits(&alone), super::systems::bits(&part));
}

/// What cannot be solved is found out by all.
#[test]
fn what_is_not_positive_is_told() {
    if !is_software() {
        return;
    }
    let entry = |row, column, value| Entry { row, column, value };
    let matrix = Matrix::from_entries(
        2,
        vec![
            entry(0, 0, 1.0),
            entry(1, 1, 1.0),
            entry(0, 1, 2.0),
            entry(1, 0, 2.0),
        ],
    );
    let mut problem = Problem::new("indefinite".into(), matrix, 1);
    problem.sides[0].b = vec![1.0, -1.0];
    let outcome = eagerly(&problem, &[1], LIMITS);
    assert_eq!(outcome.reason, Reason::NotPositive);
    let few = Limits {
        iterations: 3,
        ..LIMITS
    };
    let problem = Problem::new("grid".into(), Matrix::poisson(12), 1);
    let outcome = eagerly(&problem, &[50, 100], few);
    assert_eq!(
        (outcome.reason, outcome.iterations),
        (Reason::LimitReached, 3)
    );
}

fn options(line: &str) -> Options {
    match options::parse(line.split_whitespace()) {
        Ok(Request::Solve(options)) => options,
        other => panic!("{line}: {other:?}"),
    }
}

/// The job on several devices, each of which loops by itself: it converges as on one.
#[test]
fn each_device_loops() {
    on_devices(2..=3, "solve::devices::each_device_loops", |contexts| {
        let most = contexts.len();
        for line in [
            "--grid 40 --devices 1".to_owned(),
            "--grid 40 --devices 2".to_owned(),
            format!("--grid 40 --devices {most}"),
            format!("--grid 1 --devices {most}"),
            format!("--grid 2 --devices {most} --tolerance 1e-4"),
            format!("--grid 40 --devices {most} --systems 3"),
            "--grid 40 --devices 2 --restart-every 30".to_owned(),
            "--grid 30 --devices 2 --compare".to_owned(),
        ] {
            let device = cuda_graph::device(0).unwrap();
            let mut told = Vec::new();
            let done = job::run(&device, &options(&line), &mut told);
            let told = String::from_utf8(told).unwrap();
            assert_eq!(done.unwrap(), Exit::Solved, "{line}: {told}");
            assert!(told.contains("a graph that loops on the device"), "{told}");
            assert!(!told.contains("DIFFER"), "{told}");
        }
    });
}

/// All ranks come to the same state, in as many iterations as one device takes, give or take one.
#[test]
fn all_stop_together() {
    on_devices(2..=2, "solve::devices::all_stop_together", |contexts| {
        let options = options("--grid 33 --tolerance 1e-9");
        let problem = Problem::load(&options.problem, 1).unwrap();
        let ranks = Communicator::all(contexts, &CommunicatorOptions::default()).unwrap();
        let iterations = [300, 600].map(|cut| {
            let parts = divide(&problem.matrix, &[cut]);
            let mut runs = solve(&ranks, &parts, &problem, &options).unwrap();
            let states: Vec<_> = runs
                .iter()
                .map(|run| run.systems[0].0.state.next)
                .map(|turn| (turn.iterations, turn.residual.to_bits(), turn.status))
                .collect();
            assert_eq!(states[0], states[1]);
            let (ended, _) = runs[0].systems.swap_remove(0);
            let outcome = ended.outcome(&problem.matrix);
            let residual = relative_residual(&problem.matrix, &outcome.x, &problem.sides[0].b);
            assert!(residual <= 2e-9, "{residual}");
            outcome.iterations
        });
        assert!(iterations[0].abs_diff(iterations[1]) <= 1, "{iterations:?}");
    });
}

/// A rank that fails ends the others, and its error is told rather than theirs.
#[test]
fn one_that_fails_ends_all() {
    let contexts = vec![context(); 3];
    let ranks = Communicator::all(&contexts, &CommunicatorOptions::default()).unwrap();
    let problem = Problem::new("grid".into(), Matrix::poisson(12), 1);
    let parts = divide(&problem.matrix, &[40, 80]);
    let failed = on_ranks(&ranks, |communicator| {
        let rank = communicator.rank() as usize;
        if rank == 1 {
            return Err(Failure::Report(std::io::Error::other("rank 1 is gone")));
        }
        let stream = communicator.context().new_stream().map_err(Error::from)?;
        let own = Some(communicator.clone());
        let solver = Solver::of_part(&stream, &parts[rank], own, LIMITS)?;
        let (rows, len) = (parts[rank].rows.clone(), parts[rank].len());
        let system = System::of_part(&stream, &problem.sides[0].b, rows, len)?;
        solver.record(&mut Eager::new(&stream)?, &system)?;
        solver.wait(&stream)?;
        Ok(())
    });
    let failed = failed.unwrap_err().to_string();
    assert!(failed.contains("rank 1 is gone"), "{failed}");
}

#[test]
fn more_devices_than_there_are() {
    let count = CudaContext::device_count().unwrap() + 1;
    let device = cuda_graph::device(0).unwrap();
    let options = options(&format!("--grid 4 --devices {count}"));
    let failed = job::run(&device, &options, &mut Vec::new()).unwrap_err();
    assert!(failed.to_string().contains("no device"), "{failed}");
}

/// A process that is the only rank solves as one device does.
#[test]
fn a_process_of_a_cluster_solves() {
    let cluster = Cluster::new(0, 1, 0, "127.0.0.1", 29_876).unwrap();
    let mut told = Vec::new();
    for (line, wants) in [
        ("--grid 30 --systems 2", "1 processes of 900 to 900 rows"),
        ("--grid 30 --compare", "each by itself"),
    ] {
        told.clear();
        let done = run_process(&cluster, &options(line), &mut told);
        let told = String::from_utf8_lossy(&told);
        assert_eq!(done.unwrap(), Exit::Solved, "{told}");
        assert!(told.contains(wants), "{told}");
        assert!(!told.contains("DIFFER"), "{told}");
    }
}
