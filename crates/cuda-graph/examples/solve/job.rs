//! The job: read or make the system, build the graph, launch it once, say what came of it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_graph::{Device, Graph, Path, Step};

use super::compare;
use super::options::Options;
use super::problem::{LoadError, Problem};
use super::progress::watched;
use super::solver::{Limits, Outcome, Reason, Solver, relative_residual};

/// A system is solved if its true residual is at most so many times the tolerance.
const FAITHFUL: f64 = 2.0;

/// How it ended, where nothing failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Exit {
    Solved,
    Unsolved,
}

/// What failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Device(#[from] cuda_graph::Error),
    #[error("{}: it cannot be written: {error}", .file.display())]
    Picture { file: PathBuf, error: io::Error },
    #[error("the report cannot be written: {0}")]
    Report(#[from] io::Error),
}

/// Solves what `options` say on `device`, and reports to `out`.
pub fn run(device: &Device, options: &Options, out: &mut dyn Write) -> Result<Exit, Failure> {
    let driver = device.driver();
    writeln!(out, "device: {}, driver: {driver}", device.name()?)?;
    let start = Instant::now();
    let problem = Problem::load(&options.problem)?;
    let (name, matrix) = (&problem.name, &problem.matrix);
    let made = in_words(start.elapsed());
    writeln!(out, "system: {name}: {matrix}, ready in {made}")?;

    let stream = device
        .context()
        .new_stream()
        .map_err(cuda_graph::Error::from)?;
    let limits = Limits {
        tolerance: options.tolerance,
        iterations: options.max_iterations,
    };
    let start = Instant::now();
    let solver = Arc::new(Solver::new(&stream, matrix, &problem.b, limits)?);
    let (copied, start) = (start.elapsed(), Instant::now());
    let mut step = {
        let (solver, unroll) = (solver.clone(), options.unroll);
        Step::new(device.context(), move |r| solver.record(r, unroll))?
    };
    let form = match step.why_eager() {
        None => "a graph that loops on the device".into(),
        Some(why) => format!("launches around which the host loops ({why})"),
    };
    if let Some(exec) = step.exec() {
        exec.upload(&stream)?;
    }
    stream.synchronize().map_err(cuda_graph::Error::from)?;
    writeln!(
        out,
        "step:   {form}, {} iterations a turn; built in {}, after {} for kernels and copies",
        options.unroll,
        in_words(start.elapsed()),
        in_words(copied),
    )?;
    if let Some(file) = &options.svg {
        draw(device, &solver, options.unroll, file)?;
        writeln!(out, "graph:  drawn in {}", file.display())?;
    }
    out.flush()?;

    let took = watched(solver.progress(), options.tolerance, || {
        let start = Instant::now();
        step.launch(&stream)?;
        stream.synchronize()?;
        Ok::<_, cuda_graph::Error>(start.elapsed())
    })?;
    let outcome = solver.outcome(&stream, matrix)?;
    let exit = report(out, &problem, options, &outcome, took)?;
    match step.why_eager() {
        None if options.compare => compare::run(&stream, &solver, matrix, options, out)?,
        Some(_) if options.compare => {
            writeln!(out, "there is no loop on the device to compare with")?;
        }
        _ => {}
    }
    Ok(exit)
}

fn draw(device: &Device, solver: &Solver, unroll: u32, file: &PathBuf) -> Result<(), Failure> {
    let graph = Graph::new(device.context())?;
    solver.record(&mut Path::new(&graph), unroll)?;
    std::fs::write(file, graph.svg()?).map_err(|error| Failure::Picture {
        file: file.clone(),
        error,
    })
}

/// Says what came of it, and whether the system is solved.
fn report(
    out: &mut dyn Write,
    problem: &Problem,
    options: &Options,
    outcome: &Outcome,
    took: Duration,
) -> io::Result<Exit> {
    let (iterations, tolerance, x) = (outcome.iterations, options.tolerance, &outcome.x);
    let true_residual = relative_residual(&problem.matrix, x, &problem.b);
    // The device goes by a residual that it keeps up to date. Below what rounding allows, that
    // parts from the true one.
    let reason = match outcome.reason {
        Reason::Converged if true_residual <= FAITHFUL * tolerance => Reason::Converged,
        Reason::Converged => Reason::RoundedOff,
        reason => reason,
    };
    let ended = match reason {
        Reason::Converged => "converged".into(),
        Reason::LimitReached => format!("NOT converged to {tolerance:e}: that is the limit"),
        Reason::NotPositive => {
            "NOT solved: the matrix is not positive definite, as far as double precision can tell"
                .into()
        }
        Reason::RoundedOff => {
            format!("NOT converged to {tolerance:e}: rounding errors let it come no further")
        }
        Reason::NotFinite => "NOT solved: numbers became too large".into(),
    };
    let each = match iterations {
        0 => String::new(),
        _ => format!(", {} an iteration", in_words(took / iterations)),
    };
    writeln!(out, "solve:  {iterations} iterations, {ended}")?;
    writeln!(out, "time:   {}{each}", in_words(took))?;
    writeln!(
        out,
        "relative residual: {:.3e} as the device went by; {true_residual:.3e} recomputed on the host",
        outcome.residual
    )?;
    let errors = x
        .iter()
        .zip(&problem.known)
        .map(|(x, known)| (x - known).abs());
    let error = errors.fold(0.0, f64::max);
    writeln!(
        out,
        "largest error: {error:.1e}, of a solution from -1 to 1 that is known"
    )?;
    Ok(match reason {
        Reason::Converged => Exit::Solved,
        _ => Exit::Unsolved,
    })
}

pub fn in_words(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds @ 10.0.. => format!("{seconds:.1} s"),
        seconds @ 1.0.. => format!("{seconds:.2} s"),
        seconds @ 1e-3.. => format!("{:.2} ms", seconds * 1e3),
        seconds => format!("{:.2} µs", seconds * 1e6),
    }
}
