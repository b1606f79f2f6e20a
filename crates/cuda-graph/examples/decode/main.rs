//! Decodes text greedily with a small transformer, one token a step, as inference engines do: the
//! same step launched kernel by kernel, and as a graph.
//!
//! The weights are random, so the text means nothing; what counts is how the step is launched. Its
//! arguments change with each token: the position, the token's place, the buffer of the stream.
//!
//! `cargo run --release --example decode [-- --tokens 64] [--prompt TEXT]`; `--help` says the rest.

mod capture_again;
mod decoder;
mod eager;
mod job;
mod kernels;
mod model;
mod options;
mod replay;
mod sizes;
mod step;
mod way;
mod weights;

use std::io::{ErrorKind, Write, stdout};
use std::process::ExitCode;

use job::{Exit, Failure};
use options::Request;

fn main() -> ExitCode {
    let options = match options::parse(std::env::args_os().skip(1)) {
        Ok(Request::Decode(options)) => options,
        Ok(Request::Help) => {
            // Whoever does not read on need not be told.
            let _ = writeln!(stdout(), "{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("decode: {error}");
            return ExitCode::from(2);
        }
    };
    let decoded = cuda_graph::device(0)
        .map_err(Failure::from)
        .and_then(|device| job::run(&device, &options, &mut stdout()));
    match decoded {
        Ok(Exit::Same) => ExitCode::SUCCESS,
        Ok(Exit::Different(why)) => {
            eprintln!("decode: {why}");
            ExitCode::from(1)
        }
        Err(Failure::Report(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::from(1),
        Err(error) => {
            eprintln!("decode: {error}");
            ExitCode::from(1)
        }
    }
}
