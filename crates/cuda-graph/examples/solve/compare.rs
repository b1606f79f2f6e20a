//! The same step run by the device alone and with a loop on the host, side by side. Where the
//! device is the software driver, plain Rust runs beside them.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Device, Driver, Eager, Error, Exec, Graph, InstantiateOptions};

use super::job::Failure;
use super::options::Options;
use super::outcome::{Outcome, relative_residual};
use super::plain_rust::PlainRust;
use super::problem::Problem;
use super::progress::watched;
use super::report::{FAITHFUL, in_words, largest};
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
        median(&self.times).checked_div(self.outcome.as_ref()?.iterations)
    }
}

/// Plain Rust, measured beside the contenders.
struct Beside<'a> {
    rust: PlainRust<'a>,
    iterations: u32,
    times: Vec<Duration>,
}

impl Beside<'_> {
    fn launch(&mut self) -> Duration {
        let start = Instant::now();
        self.iterations = self.rust.solve();
        start.elapsed()
    }

    /// Says how long both take, and whether they solved the same system.
    fn report(
        &self,
        device: &Contender,
        problem: &Problem,
        tolerance: f64,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let each = median(&self.times).checked_div(self.iterations);
        // Without an iteration there is nothing to measure.
        let (Some(device_each), Some(each), Some(outcome)) =
            (device.per_iteration(), each, &device.outcome)
        else {
            return Ok(());
        };
        let times = device_each.as_secs_f64() / each.as_secs_f64();
        let threads = rayon::current_num_threads();
        let residual = |x| relative_residual(&problem.matrix, x, &problem.sides[0].b);
        let (own, others) = (residual(self.rust.x()), residual(&outcome.x));
        let agree = match own <= FAITHFUL * others.max(tolerance) {
            true => "they agree",
            false => "they DISAGREE",
        };
        let pairs = outcome.x.iter().zip(self.rust.x());
        let apart = largest(pairs.map(|(x, other)| x - other));
        let (name, each) = ("Rust with rayon", in_words(each));
        let (device_name, device_each) = ("the graph, optimized", in_words(device_each));
        writeln!(
            out,
            "\nthe same method in Rust with rayon, on {threads} threads"
        )?;
        writeln!(out, "  {name:<28} {each:>12}")?;
        writeln!(
            out,
            "  {device_name:<28} {device_each:>12}   {times:>5.2} times as long"
        )?;
        writeln!(
            out,
            "  {agree}: {} and {} iterations, residuals {own:.3e} and {others:.3e}, solutions {apart:.1e} apart",
            self.iterations, outcome.iterations,
        )?;
        Ok(())
    }
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times[times.len() / 2]
}

/// Solves `system`, the first of `problem`, in every way on `device`.
pub fn run(
    device: &Device,
    stream: &Arc<CudaStream>,
    solver: &Solver,
    system: &System,
    problem: &Problem,
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
    // A GPU is not compared with the processor beside it.
    let mut beside = (device.driver() == Driver::Software).then(|| Beside {
        rust: PlainRust::new(&problem.matrix, &problem.sides[0].b, solver.limits()),
        iterations: 0,
        times: Vec::new(),
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
                contender.outcome = Some(solver.outcome(stream, &problem.matrix, system)?);
                if took > LONG {
                    runs = 1;
                }
            } else {
                contender.times.push(took);
            }
        }
        if let Some(beside) = &mut beside {
            let took = beside.launch();
            if run > 0 {
                beside.times.push(took);
            }
        }
    }
    report(&contenders, runs, out)?;
    let [_, _, optimized] = &contenders;
    match &beside {
        Some(beside) => beside.report(optimized, problem, options.tolerance, out),
        None => Ok(()),
    }
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
