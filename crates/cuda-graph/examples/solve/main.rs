//! Solves a sparse symmetric positive definite system by conjugate gradients, wholly on the device:
//! one graph, one launch. Several right-hand sides are one graph, too, and a launch for each.
//!
//! `cargo run --release --example solve [-- matrix.mtx] [--systems 8] [--svg graph.svg]`; `--help`
//! says the rest.

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

use job::{Exit, Failure};
use options::Request;

fn main() -> ExitCode {
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
    let solved = cuda_graph::device(0)
        .map_err(Failure::from)
        .and_then(|device| job::run(&device, &options, &mut stdout()));
    match solved {
        Ok(Exit::Solved) => ExitCode::SUCCESS,
        Ok(Exit::Unsolved) => ExitCode::from(1),
        Err(Failure::Report(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::from(1),
        Err(error) => {
            eprintln!("solve: {error}");
            ExitCode::from(1)
        }
    }
}
