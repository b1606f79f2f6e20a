//! Several devices solve together, each on a thread of this process or in a process of its own: a
//! rank has a part of the matrix's rows, and a graph that loops by itself.

use std::io::Write;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cuda_graph::cudarc::driver::CudaContext;
use cuda_graph::{
    Buffer, Cluster, CollectiveOp, Communicator, CommunicatorOptions, Counters, Eager, Error,
    Transmission,
};

use super::compare;
use super::job::{Exit, Failure, draw, introduce, judge, load};
use super::options::Options;
use super::outcome::Ended;
use super::partition::{Part, cuts, divide};
use super::problem::Problem;
use super::progress::watched;
use super::report::{Solved, in_words};
use super::sequence::{Form, Run, Sequence};
use super::solver::Solver;
use super::system::System;

/// What a rank did. What systems ended with is the whole of it at rank 0, and elsewhere the rank's
/// part.
pub struct RankRun {
    pub systems: Vec<(Ended, Run)>,
    pub form: Form,
    pub counters: (Counters, Counters),
    /// How long kernels and copies took.
    copied: Duration,
}

/// Solves what `options` say on devices 0 to `count` - 1.
pub fn run(count: usize, options: &Options, out: &mut dyn Write) -> Result<Exit, Failure> {
    let contexts = (0..count)
        .map(|ordinal| Ok(cuda_graph::device(ordinal)?.context().clone()))
        .collect::<Result<Vec<_>, Error>>()?;
    let communicators = Communicator::all(&contexts, &CommunicatorOptions::default())?;
    run_ranks(&communicators, "devices", options, out)
}

/// Solves what `options` say on the devices of all processes of `cluster`, of which this is one.
/// Rank 0 reports to `out`.
pub fn run_process(
    cluster: &Cluster,
    options: &Options,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    // Processes share the devices there are, if NCCL is told to let them.
    cuda_graph::device(0)?;
    let devices = CudaContext::device_count().map_err(Error::from)?;
    let ordinal = cluster.local_rank() as usize % devices.max(1) as usize;
    let device = cuda_graph::device(ordinal)?;
    let ways = CommunicatorOptions::default();
    let communicator = Communicator::join(device.context(), cluster, &ways)?;
    let mut nowhere = std::io::sink();
    let out = match communicator.rank() {
        0 => out,
        _ => &mut nowhere,
    };
    let (name, driver) = (device.name()?, device.driver());
    writeln!(out, "device: {name}, driver: {driver}")?;
    run_ranks(&[communicator], "processes", options, out)
}

/// Solves what `options` say on the ranks of this process, and says so where the first of them is
/// rank 0.
fn run_ranks(
    communicators: &[Communicator],
    what: &str,
    options: &Options,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    let first = &communicators[0];
    let problem = load(options, out)?;
    let parts = divide(
        &problem.matrix,
        &cuts(&problem.matrix, first.size() as usize),
    );
    introduce_parts(out, &parts, first, what)?;
    let mut runs = solve(communicators, &parts, &problem, options)?;
    let run = runs.swap_remove(0);
    introduce(out, &run.form, options, &in_words(run.copied))?;
    let exit = match first.rank() {
        0 => {
            let solved = run.systems.into_iter().zip(&problem.sides);
            let solved: Vec<Solved> = solved
                .map(|((ended, run), side)| {
                    let outcome = ended.outcome(&problem.matrix);
                    Solved::new(&outcome, &problem.matrix, side, options.tolerance, run)
                })
                .collect();
            judge(out, &solved, options, run.counters)?
        }
        // Rank 0's process says.
        _ => Exit::Solved,
    };
    if options.compare && run.form.why_eager.is_none() {
        compare::several(communicators, &parts, &problem, options, out)?;
    } else if options.compare {
        writeln!(out, "there is no loop on the device to compare with")?;
    }
    Ok(exit)
}

/// Brings to rank 0 what all ranks have in the end; the others keep their parts.
pub fn gather(communicator: &Communicator, parts: &[Part], ended: Ended) -> Result<Ended, Error> {
    let stream = communicator.context().new_stream()?;
    let n = parts.last().map_or(0, |part| part.rows.end);
    let part = &parts[communicator.rank() as usize];
    let gathered = |own: Vec<f64>| -> Result<Vec<f64>, Error> {
        if parts.len() == 1 {
            return Ok(own);
        }
        let all = Buffer::<f64>::zeroed(&stream, n)?;
        all.slice(part.rows.clone())?
            .copy_from_host(&stream, &own)?;
        let mut messages = Vec::new();
        let others = (0..).zip(parts).filter(|(_, part)| !part.rows.is_empty());
        match communicator.rank() {
            0 => {
                for (rank, part) in others.filter(|&(rank, _)| rank != 0) {
                    let rows = all.slice(part.rows.clone())?;
                    messages.push(Transmission::recv(&rows, rank));
                }
            }
            _ if part.rows.is_empty() => {}
            _ => messages.push(Transmission::send(&all.slice(part.rows.clone())?, 0)),
        }
        let exchange = CollectiveOp::exchange(communicator, messages)?;
        Eager::new(&stream)?.record(exchange)?;
        communicator.wait(&stream)?;
        match communicator.rank() {
            0 => all.to_host(&stream),
            _ => Ok(own),
        }
    };
    Ok(Ended {
        state: ended.state,
        u: gathered(ended.u)?,
        p: gathered(ended.p)?,
        x: gathered(ended.x)?,
    })
}

/// Says who has which part.
fn introduce_parts(
    out: &mut dyn Write,
    parts: &[Part],
    communicator: &Communicator,
    what: &str,
) -> std::io::Result<()> {
    let rows = parts.iter().map(|part| part.rows.len());
    let (least, most) = (rows.clone().min(), rows.max());
    writeln!(
        out,
        "parts:  {} {what} of {} to {} rows, {:?} collectives",
        parts.len(),
        least.unwrap_or_default(),
        most.unwrap_or_default(),
        communicator.engine(),
    )?;
    out.flush()
}

/// Solves all systems of `problem`, whose matrix the ranks have in `parts`.
pub fn solve(
    communicators: &[Communicator],
    parts: &[Part],
    problem: &Problem,
    options: &Options,
) -> Result<Vec<RankRun>, Failure> {
    on_ranks(communicators, |communicator| {
        solve_part(communicator, parts, problem, options)
    })
}

fn solve_part(
    communicator: &Communicator,
    parts: &[Part],
    problem: &Problem,
    options: &Options,
) -> Result<RankRun, Failure> {
    let part = &parts[communicator.rank() as usize];
    let start = Instant::now();
    let stream = communicator.context().new_stream().map_err(Error::from)?;
    let limits = options.limits();
    let solver = Solver::of_part(&stream, part, Some(communicator.clone()), limits)?;
    let system = |b: &[f64]| System::of_part(&stream, b, part.rows.clone(), part.len());
    let systems = problem.sides.iter().map(|side| system(&side.b));
    let systems = systems.collect::<Result<Vec<_>, _>>()?;
    stream.synchronize().map_err(Error::from)?;
    let copied = start.elapsed();
    let leads = communicator.rank() == 0;
    if let (Some(file), true) = (&options.svg, leads) {
        let context: &Arc<CudaContext> = communicator.context();
        draw(context, &solver, &systems[0], options.optimize(), file)?;
    }
    let mut sequence = Sequence::new(&stream, &solver, options.optimize())?;
    let mut form = None;
    let mut all = Vec::with_capacity(systems.len());
    for system in &systems {
        let run = match leads {
            true => watched(&system.progress, options.tolerance, || {
                sequence.solve(system)
            })?,
            false => sequence.solve(system)?,
        };
        form.get_or_insert_with(|| sequence.form());
        let ended = gather(communicator, parts, solver.ended(&stream, system)?)?;
        all.push((ended, run));
    }
    Ok(RankRun {
        systems: all,
        form: form.expect("there is a system at least"),
        counters: sequence.counters(),
        copied,
    })
}

/// Runs `work` for each rank on a thread of its own. If one fails, all end.
pub fn on_ranks<T: Send>(
    communicators: &[Communicator],
    work: impl Fn(&Communicator) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    /// The other ranks would wait for one that is gone, also by a panic.
    struct Abort<'a>(&'a Communicator);

    impl Drop for Abort<'_> {
        fn drop(&mut self) {
            self.0.abort();
        }
    }

    let done: Vec<Result<T, Failure>> = thread::scope(|scope| {
        let ranks = communicators.iter().map(|communicator| {
            let work = &work;
            scope.spawn(move || {
                let abort = Abort(communicator);
                let done = work(communicator)?;
                std::mem::forget(abort);
                Ok(done)
            })
        });
        let ranks: Vec<_> = ranks.collect();
        let join = |rank: thread::ScopedJoinHandle<'_, _>| {
            rank.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        ranks.into_iter().map(join).collect()
    });
    // Of a rank that failed by itself, rather than because another did.
    let is_cause =
        |failure: &Failure| !matches!(failure, Failure::Device(Error::Communicator { .. }));
    let (done, mut failed): (Vec<_>, Vec<_>) = done.into_iter().partition(Result::is_ok);
    let first = failed
        .iter()
        .position(|failed| failed.as_ref().err().is_some_and(is_cause));
    match failed.is_empty() {
        true => done.into_iter().collect(),
        false => Err(failed
            .swap_remove(first.unwrap_or(0))
            .err()
            .expect("it is one of those that failed")),
    }
}
