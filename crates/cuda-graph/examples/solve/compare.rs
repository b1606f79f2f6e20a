//! The same step run by the device alone and with a loop on the host, side by side. Where the
//! device is the software driver, plain Rust runs beside them.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{
    Buffer, CollectiveOp, Communicator, Device, Driver, Eager, Error, Exec, Graph,
    InstantiateOptions, Optimize, Reduction,
};

use super::job::Failure;
use super::options::Options;
use super::outcome::{Outcome, relative_residual};
use super::partition::Part;
use super::plain_rust::PlainRust;
use super::problem::Problem;
use super::progress::watched;
use super::report::{FAITHFUL, in_words, largest};
use super::several::{gather, on_ranks};
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

/// How long a contender took in each run, and what came of the system.
struct Measured {
    name: &'static str,
    times: Vec<Duration>,
    outcome: Option<Outcome>,
}

impl Measured {
    fn new(name: &'static str) -> Measured {
        Measured {
            name,
            times: Vec::new(),
            outcome: None,
        }
    }

    fn per_iteration(&self) -> Option<Duration> {
        median(&self.times).checked_div(self.outcome.as_ref()?.iterations)
    }
}

impl Way {
    /// A graph that loops by itself.
    fn device(
        solver: &Solver,
        stream: &Arc<CudaStream>,
        system: &System,
        optimize: Optimize,
    ) -> Result<Way, Error> {
        let (graph, ()) = Graph::record(stream.context(), |r| solver.record(r, system))?;
        Ok(Way::Device(graph.instantiate_with(
            &InstantiateOptions {
                optimize,
                ..InstantiateOptions::default()
            },
        )?))
    }

    fn launch(
        &mut self,
        stream: &Arc<CudaStream>,
        solver: &Solver,
        system: &System,
    ) -> Result<(), Error> {
        match self {
            Way::Device(exec) => exec.launch(stream)?,
            Way::Host(eager) => solver.record(eager, system)?,
        }
        solver.wait(stream)
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
        device: &Measured,
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
        writeln!(out, "  {name:<33}{each:>10}")?;
        writeln!(
            out,
            "  {device_name:<33}{device_each:>10}   {times:>5.2} times as long"
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
    let way = |optimize| Way::device(solver, stream, system, optimize);
    // Beginning with the slowest, which the others are compared with.
    let mut contenders = [
        ("eager, looping on the host", Way::Host(Eager::new(stream)?)),
        ("graph, looping on the device", way(Optimize::NONE)?),
        ("the same, optimized", way(options.optimize())?),
    ]
    .map(|(name, way)| (Measured::new(name), way));
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
        for (contender, way) in &mut contenders {
            let took = watched(&system.progress, options.tolerance, || {
                let start = Instant::now();
                way.launch(stream, solver, system)?;
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
    let contenders = contenders.map(|(measured, _)| measured);
    table(&contenders, runs, out)?;
    let agree = match agree(&contenders) {
        true => "all gave the same, bit for bit",
        false => "they DIFFER",
    };
    writeln!(out, "  {agree}")?;
    let [_, _, optimized] = &contenders;
    match &beside {
        Some(beside) => beside.report(optimized, problem, options.tolerance, out),
        None => Ok(()),
    }
}

fn table(contenders: &[Measured], runs: usize, out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(
        out,
        "\nthe same step, an iteration in the median of {runs} runs"
    )?;
    let Some(first) = contenders[0].per_iteration() else {
        writeln!(out, "there was no iteration to measure")?;
        return Ok(());
    };
    for contender in contenders {
        let each = contender.per_iteration().unwrap_or_default();
        writeln!(
            out,
            "  {:<33}{:>10}   {:>5.2} times as fast",
            contender.name,
            in_words(each),
            first.as_secs_f64() / each.as_secs_f64()
        )?;
    }
    Ok(())
}

/// Whether all came to the same, to the bit.
fn agree(contenders: &[Measured]) -> bool {
    let bits = |outcome: &Option<Outcome>| {
        outcome.as_ref().map(|outcome| {
            let x: Vec<u64> = outcome.x.iter().map(|value| value.to_bits()).collect();
            (outcome.iterations, outcome.reason, x)
        })
    };
    let first = bits(&contenders[0].outcome);
    contenders
        .iter()
        .all(|contender| bits(&contender.outcome) == first)
}

/// Solves the first system of `problem` on all devices that have `parts` of its matrix, whose loops
/// the host runs, or they themselves, and on rank 0's alone. The ranks of this process are
/// `communicators`.
pub fn several(
    communicators: &[Communicator],
    parts: &[Part],
    problem: &Problem,
    options: &Options,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let ranks = on_ranks(communicators, |communicator| {
        together(communicator, parts, problem, options)
    })?;
    if communicators[0].rank() != 0 {
        return Ok(());
    }
    let [host, device] = ranks.into_iter().next().expect("there is a rank");
    // The other ranks are done, and wait for nothing.
    let runs = host.times.len();
    let stream = communicators[0].context().new_stream();
    let stream = stream.map_err(Error::from)?;
    let solver = Solver::new(&stream, &problem.matrix, options.limits())?;
    let system = System::new(&stream, &problem.sides[0].b)?;
    let mut way = Way::device(&solver, &stream, &system, options.optimize())?;
    let mut alone = Measured::new("one device, looping by itself");
    for _ in 0..=runs {
        let start = Instant::now();
        way.launch(&stream, &solver, &system)?;
        alone.times.push(start.elapsed());
    }
    // The first warmed up.
    alone.times.remove(0);
    alone.outcome = Some(solver.outcome(&stream, &problem.matrix, &system)?);

    let contenders = [alone, host, device];
    table(&contenders, runs, out)?;
    let [alone, together @ ..] = &contenders;
    let agree = match agree(together) {
        true => "all devices gave the same, bit for bit, wherever they loop",
        false => "all devices DIFFER, as they loop on the host or by themselves",
    };
    writeln!(out, "  {agree}")?;
    if let (Some(one), Some(all)) = (&alone.outcome, &together[0].outcome) {
        let apart = largest(one.x.iter().zip(&all.x).map(|(one, all)| one - all));
        writeln!(out, "  one device's solution is {apart:.1e} apart")?;
    }
    Ok(())
}

/// Measures a rank's part, with a loop on the host and as a graph that loops by itself. Rank 0 has
/// the outcomes.
fn together(
    communicator: &Communicator,
    parts: &[Part],
    problem: &Problem,
    options: &Options,
) -> Result<[Measured; 2], Failure> {
    let part = &parts[communicator.rank() as usize];
    let stream = communicator.context().new_stream().map_err(Error::from)?;
    let ranks = Some(communicator.clone());
    let solver = Solver::of_part(&stream, part, ranks, options.limits())?;
    let b = &problem.sides[0].b;
    let system = System::of_part(&stream, b, part.rows.clone(), part.len())?;
    let ways = [
        (
            "all devices, looping on the host",
            Way::Host(Eager::new(&stream)?),
        ),
        (
            "all devices, each by itself",
            Way::device(&solver, &stream, &system, options.optimize())?,
        ),
    ];
    // All begin a run together, and agree on how long the longest of the first runs took.
    let longest = Buffer::<u64>::zeroed(&stream, 1)?;
    let meet = CollectiveOp::all_reduce(communicator, &longest, &longest, Reduction::Max)?;
    let run = |way: &mut Way, last: Duration| -> Result<(Duration, Duration), Error> {
        longest.copy_from_host(&stream, &[last.as_nanos() as u64])?;
        Eager::new(&stream)?.record(meet.clone())?;
        communicator.wait(&stream)?;
        let longest = Duration::from_nanos(longest.to_host(&stream)?[0]);
        let start = Instant::now();
        way.launch(&stream, &solver, &system)?;
        Ok((start.elapsed(), longest))
    };
    let measure = |(name, mut way): (&'static str, Way)| -> Result<Measured, Failure> {
        let mut measured = Measured::new(name);
        let (warming, _) = run(&mut way, Duration::ZERO)?;
        while measured.times.len() < RUNS {
            let (took, longest) = run(&mut way, warming)?;
            measured.times.push(took);
            if longest > LONG {
                break;
            }
        }
        let ended = gather(communicator, parts, solver.ended(&stream, &system)?)?;
        let leads = communicator.rank() == 0;
        measured.outcome = leads.then(|| ended.outcome(&problem.matrix));
        Ok(measured)
    };
    let [host, device] = ways;
    Ok([measure(host)?, measure(device)?])
}
