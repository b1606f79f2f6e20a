//! Solves a sparse symmetric positive definite system by conjugate gradients, wholly on the device:
//! one graph, one launch. Several right-hand sides are one graph, too, and a launch for each.
//!
//! `cargo run --release --example solve [-- matrix.mtx] [--systems 8] [--svg graph.svg]`; `--help`
//! says the rest. With `--devices 2`, several devices solve one system together; started by
//! `torchrun`, `mpirun` or `srun`, several processes do, with the feature `nccl`.

mod compare;
mod job;
mod matrix;
mod matrix_market;
mod options;
mod outcome;
mod partition;
mod plain_rust;
mod problem;
mod progress;
mod report;
mod sequence;
mod several;
mod shared;
mod solver;
mod system;

use std::io::{ErrorKind, Write, stdout};
use std::process::ExitCode;

use cuda_graph::Cluster;
use job::{Exit, Failure};
use options::{Options, Request};

/// Solves by this process, or as one of several.
fn solve(options: &Options) -> Result<Exit, Failure> {
    let cluster = Cluster::from_environment()?;
    match cluster.size() {
        1 => job::run(&cuda_graph::device(0)?, options, &mut stdout()),
        _ => several::run_process(&cluster, options, &mut stdout()),
    }
}

fn main() -> ExitCode {
    // SAFETY: this is the start of `main`, and no other thread runs.
    unsafe { cuda_graph::set_nccl_environment() };
    let options = match options::parse(std::env::args_os().skip(1)) {
        Ok(Request::Solve(options)) => options,
        Ok(Request::Help) => {
            // Whoever does not read on need not be told.
            let _ = writeln!(stdout(), "{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("solve: {error}");
            return ExitCode::from(2);
        }
    };
    match solve(&options) {
        Ok(Exit::Solved) => ExitCode::SUCCESS,
        Ok(Exit::Unsolved) => ExitCode::from(1),
        Err(Failure::Report(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::from(1),
        Err(error) => {
            eprintln!("solve: {error}");
            ExitCode::from(1)
        }
    }
}
