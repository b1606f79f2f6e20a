//! The job: read or make the systems, solve one after the other, say what came of it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use cuda_graph::cudarc::driver::CudaContext;
use cuda_graph::{Counters, Device, Graph, Optimize};

use super::compare;
use super::options::Options;
use super::problem::{LoadError, Problem};
use super::progress::watched;
use super::report::{self, Solved, in_words};
use super::sequence::{Form, Sequence};
use super::several;
use super::solver::Solver;
use super::system::System;

/// How it ended, where nothing failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Exit {
    Solved,
    /// Not all systems are solved.
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

/// Solves what `options` say on `device`, or on several of which it is the first, and reports to
/// `out`.
pub fn run(device: &Device, options: &Options, out: &mut dyn Write) -> Result<Exit, Failure> {
    let driver = device.driver();
    writeln!(out, "device: {}, driver: {driver}", device.name()?)?;
    if let Some(count) = options.devices {
        return several::run(count, options, out);
    }
    let problem = load(options, out)?;
    let matrix = &problem.matrix;
    let stream = device
        .context()
        .new_stream()
        .map_err(cuda_graph::Error::from)?;
    let start = Instant::now();
    let solver = Solver::new(&stream, matrix, options.limits())?;
    let systems = problem.sides.iter();
    let systems = systems.map(|side| System::new(&stream, &side.b));
    let systems = systems.collect::<Result<Vec<_>, _>>()?;
    stream.synchronize().map_err(cuda_graph::Error::from)?;
    let copied = in_words(start.elapsed());
    if let Some(file) = &options.svg {
        let context = device.context();
        draw(context, &solver, &systems[0], options.optimize(), file)?;
    }

    let mut sequence = Sequence::new(&stream, &solver, options.optimize())?;
    let mut all = Vec::with_capacity(systems.len());
    for (system, side) in systems.iter().zip(&problem.sides) {
        let run = watched(&system.progress, options.tolerance, || {
            sequence.solve(system)
        })?;
        if all.is_empty() {
            introduce(out, &sequence.form(), options, &copied)?;
        }
        let outcome = solver.outcome(&stream, matrix, system)?;
        all.push(Solved::new(&outcome, matrix, side, options.tolerance, run));
    }
    let exit = judge(out, &all, options, sequence.counters())?;
    if options.compare && sequence.why_eager().is_none() {
        let (solver, system) = (&solver, &systems[0]);
        compare::run(device, &stream, solver, system, &problem, options, out)?;
    } else if options.compare {
        writeln!(out, "there is no loop on the device to compare with")?;
    }
    Ok(exit)
}

/// Reads or makes the systems, and says what they are.
pub fn load(options: &Options, out: &mut dyn Write) -> Result<Problem, Failure> {
    let start = Instant::now();
    let problem = Problem::load(&options.problem, options.systems)?;
    let (name, matrix) = (&problem.name, &problem.matrix);
    let sides = match problem.sides.len() {
        1 => String::new(),
        count => format!(", {count} right-hand sides"),
    };
    let made = in_words(start.elapsed());
    writeln!(out, "system: {name}: {matrix}{sides}, ready in {made}")?;
    out.flush()?;
    Ok(problem)
}

/// Says what came of the systems, and what the replays of steps and restarts did.
pub fn judge(
    out: &mut dyn Write,
    all: &[Solved],
    options: &Options,
    counters: (Counters, Counters),
) -> io::Result<Exit> {
    match all {
        [solved] => report::one(out, solved, options.tolerance)?,
        all => report::several(out, all, options.tolerance, counters)?,
    }
    Ok(match all.iter().all(Solved::is_solved) {
        true => Exit::Solved,
        false => Exit::Unsolved,
    })
}

/// Says what the step became.
pub fn introduce(
    out: &mut dyn Write,
    step: &Form,
    options: &Options,
    copied: &str,
) -> io::Result<()> {
    let form = match &step.why_eager {
        None => "a graph that loops on the device".into(),
        Some(why) => format!("launches around which the host loops ({why})"),
    };
    let built = match step.built {
        Some(built) => format!("built in {}, ", in_words(built)),
        None => String::new(),
    };
    let turn = match step.iterations_a_turn {
        1 => String::new(),
        count => format!(", {count} iterations a turn"),
    };
    writeln!(
        out,
        "step:   {form}{turn}; {built}after {copied} for kernels and copies",
    )?;
    if let Some(file) = &options.svg {
        let optimized = beside(file);
        writeln!(
            out,
            "graph:  drawn in {}, optimized in {}",
            file.display(),
            optimized.display()
        )?;
    }
    if options.report {
        write!(out, "{}", step.reports)?;
    }
    Ok(())
}

pub fn draw(
    context: &Arc<CudaContext>,
    solver: &Solver,
    system: &System,
    optimize: Optimize,
    file: &Path,
) -> Result<(), Failure> {
    let (graph, ()) = Graph::record(context, |r| solver.record(r, system))?;
    write(graph.svg()?, file)?;
    match graph.optimized(optimize)? {
        (Some(optimized), _) => write(optimized.svg()?, &beside(file)),
        (None, _) => Ok(()),
    }
}

/// Where what the optimizer makes of a graph is drawn that is drawn in `file`.
fn beside(file: &Path) -> PathBuf {
    file.with_extension("optimized.svg")
}

fn write(picture: String, file: &Path) -> Result<(), Failure> {
    std::fs::write(file, picture).map_err(|error| Failure::Picture {
        file: file.to_owned(),
        error,
    })
}
