//! The same step run by the device alone and with a loop on the host, side by side.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Eager, Error, Exec, Graph, Path};

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
    unroll: u32,
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
            Way::Host(eager) => solver.record(eager, system, self.unroll)?,
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
    let mut contenders = Vec::new();
    // Beginning with the slowest, which the others are compared with.
    let mut unrolls = vec![1, options.unroll];
    unrolls.dedup();
    for on_host in [true, false] {
        for &unroll in &unrolls {
            let way = if on_host {
                Way::Host(Eager::new(stream)?)
            } else {
                let graph = Graph::new(stream.context())?;
                solver.record(&mut Path::new(&graph), system, unroll)?;
                Way::Device(graph.instantiate()?)
            };
            contenders.push(Contender {
                way,
                unroll,
                times: Vec::new(),
                outcome: None,
            });
        }
    }

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
        let who = match contender.way {
            Way::Device(_) => "graph, looping on the device",
            Way::Host(_) => "eager, looping on the host",
        };
        let tested = match contender.unroll {
            1 => "tested after each".into(),
            unroll => format!("tested after every {unroll}"),
        };
        let each = contender.per_iteration().unwrap_or_default();
        writeln!(
            out,
            "  {who:<28} {tested:<21} {:>12}   {:>5.2} times as fast",
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
