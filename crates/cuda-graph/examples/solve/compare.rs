//! The same step run by the device alone and with a loop on the host, side by side.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Eager, Error, Exec, Graph, InstantiateOptions};

use super::job::Failure;
use super::matrix::Matrix;
use super::options::Options;
use super::outcome::Outcome;
use super::progress::watched;
use super::report::in_words;
use super::solver::Solver;
use super::system::System;

/// Runs of each, in turn, of which the median counts; fewer where they are long.
const RUNS: usize = 15;
const LONG: Duration = Duration::from_millis(500);

/// One way to run the step.
enum Way {
    Device(Exec),
    Host(Eager),
}

struct Contender {
    way: Way,
    name: &'static str,
    times: Vec<Duration>,
    outcome: Option<Outcome>,
}

impl Contender {
    fn launch(
        &mut self,
        stream: &Arc<CudaStream>,
        solver: &Solver,
        system: &System,
    ) -> Result<(), Error> {
        match &mut self.way {
            Way::Device(exec) => exec.launch(stream)?,
            Way::Host(eager) => solver.record(eager, system)?,
        }
        stream.synchronize().map_err(Error::from)
    }

    fn per_iteration(&self) -> Option<Duration> {
        let mut times = self.times.clone();
        times.sort();
        let iterations = self.outcome.as_ref()?.iterations;
        times[times.len() / 2].checked_div(iterations)
    }
}

pub fn run(
    stream: &Arc<CudaStream>,
    solver: &Solver,
    system: &System,
    matrix: &Matrix,
    options: &Options,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (graph, ()) = Graph::record(stream.context(), |r| solver.record(r, system))?;
    let plain = graph.instantiate()?;
    drop(graph);
    // A graph with a loop has one executable at a time.
    let (graph, ()) = Graph::record(stream.context(), |r| solver.record(r, system))?;
    let optimized = graph.instantiate_with(&InstantiateOptions {
        optimize: options.optimize(),
        ..InstantiateOptions::default()
    })?;
    // Beginning with the slowest, which the others are compared with.
    let mut contenders = [
        ("eager, looping on the host", Way::Host(Eager::new(stream)?)),
        ("graph, looping on the device", Way::Device(plain)),
        ("the same, optimized", Way::Device(optimized)),
    ]
    .map(|(name, way)| Contender {
        way,
        name,
        times: Vec::new(),
        outcome: None,
    });

    // The first round warms up and tells how long the others would take.
    let mut runs = RUNS;
    for run in 0..=RUNS {
        if run > runs {
            break;
        }
        for contender in &mut contenders {
            let took = watched(&system.progress, options.tolerance, || {
                let start = Instant::now();
                contender.launch(stream, solver, system)?;
                Ok::<_, Error>(start.elapsed())
            })?;
            if run == 0 {
                contender.outcome = Some(solver.outcome(stream, matrix, system)?);
                if took > LONG {
                    runs = 1;
                }
            } else {
                contender.times.push(took);
            }
        }
    }
    report(&contenders, runs, out)
}

fn report(contenders: &[Contender], runs: usize, out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(
        out,
        "\nthe same step, an iteration in the median of {runs} runs"
    )?;
    let Some(host) = contenders[0].per_iteration() else {
        writeln!(out, "there was no iteration to measure")?;
        return Ok(());
    };
    for contender in contenders {
        let each = contender.per_iteration().unwrap_or_default();
        writeln!(
            out,
            "  {:<28} {:>12}   {:>5.2} times as fast",
            contender.name,
            in_words(each),
            host.as_secs_f64() / each.as_secs_f64()
        )?;
    }
    let bits = |outcome: &Option<Outcome>| {
        outcome.as_ref().map(|outcome| {
            let x: Vec<u64> = outcome.x.iter().map(|value| value.to_bits()).collect();
            (outcome.iterations, outcome.reason, x)
        })
    };
    let first = bits(&contenders[0].outcome);
    let same = contenders
        .iter()
        .all(|contender| bits(&contender.outcome) == first);
    let agree = if same {
        "all gave the same, bit for bit"
    } else {
        "they DIFFER"
    };
    writeln!(out, "  {agree}")?;
    Ok(())
}
