//! Systems of one matrix, solved one after the other through one replay: the first call builds the
//! graph, each later one sets its own buffers and its flag on the nodes.
//!
//! With restarts, a step that stops at its checkpoint is resumed behind it: that is a second graph.
//! The restart in between goes through a replay of its own, because a replay resumes its last call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{
    Counters, Error, InstantiateOptions, Optimize, Outcome, Pass, Recorder, Replay, ReplayOptions,
    Report, Result,
};

use super::solver::Solver;
use super::system::System;

pub struct Sequence<'a> {
    stream: &'a Arc<CudaStream>,
    solver: &'a Solver,
    replay: Replay,
    restarts: Replay,
    /// How long the calls took that built graphs.
    built: Duration,
}

/// What a step became.
#[derive(Clone, Debug)]
pub struct Form {
    /// Why the host loops, if it does.
    pub why_eager: Option<String>,
    /// How long it took to build graphs, if the device loops.
    pub built: Option<Duration>,
    pub iterations_a_turn: usize,
    /// What the optimizer did.
    pub reports: String,
}

/// What solving a system took.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Without what it took to build graphs.
    pub took: Duration,
    /// None without the option.
    pub restarts: Option<u32>,
}

impl<'a> Sequence<'a> {
    /// The graphs are optimized as `optimize` says.
    pub fn new(
        stream: &'a Arc<CudaStream>,
        solver: &'a Solver,
        optimize: Optimize,
    ) -> Result<Sequence<'a>> {
        let options = ReplayOptions {
            instantiate: InstantiateOptions {
                optimize,
                ..InstantiateOptions::default()
            },
            ..ReplayOptions::default()
        };
        Ok(Sequence {
            stream,
            solver,
            replay: Replay::with_options(stream.context(), options)?,
            restarts: Replay::new(stream.context())?,
            built: Duration::ZERO,
        })
    }

    /// Solves a system, and waits until that is done.
    pub fn solve(&mut self, system: &System) -> Result<Run> {
        let (stream, solver) = (self.stream, self.solver);
        let step = |r: &mut dyn Recorder| solver.record(r, system);
        let built_before = self.built;
        let start = Instant::now();
        let mut restarts = solver.limits().restart_every.map(|_| 0);
        let mut outcome = self.timed(|it| it.replay.call(stream, step))?;
        if let Some(restarts) = &mut restarts {
            // It would wait for ever for a rank that is gone.
            while solver
                .wait(stream)
                .and_then(|()| outcome.stopped())?
                .is_some()
            {
                let restart = |r: &mut dyn Recorder| solver.record_restart(r, system);
                self.timed(|it| it.restarts.call(stream, restart))?;
                outcome = self.timed(|it| it.replay.resume(stream, step))?;
                *restarts += 1;
            }
        }
        solver.wait(stream)?;
        Ok(Run {
            took: start.elapsed() - (self.built - built_before),
            restarts,
        })
    }

    /// Makes a call. If it builds a graph, how long it takes counts as building.
    fn timed(&mut self, call: impl FnOnce(&mut Self) -> Result<Outcome>) -> Result<Outcome> {
        let builds = |it: &Self| it.replay.counters().builds + it.restarts.counters().builds;
        let (before, start) = (builds(self), Instant::now());
        let outcome = call(self);
        if builds(self) > before && self.why_eager().is_none() {
            self.built += start.elapsed();
        }
        outcome
    }

    /// How long it took to build graphs, if the device loops.
    fn built(&self) -> Option<Duration> {
        self.why_eager().is_none().then_some(self.built)
    }

    /// Why the host loops, if it does.
    pub fn why_eager(&self) -> Option<&Error> {
        self.replay.why_eager()
    }

    /// What the optimizer did to the graphs of the last call.
    fn reports(&self) -> impl Iterator<Item = &Report> {
        self.replay.reports()
    }

    /// How many iterations a turn of the loop has: as many as the optimizer made of it.
    pub fn iterations_a_turn(&self) -> usize {
        let loops = self.reports().filter_map(|report| report.pass(Pass::Loops));
        let repetitions = loops.map(|pass| pass.count("repetitions of bodies"));
        repetitions.max().unwrap_or(0).max(1)
    }

    /// What the step became, which its first call tells.
    pub fn form(&self) -> Form {
        Form {
            why_eager: self.why_eager().map(Error::to_string),
            built: self.built(),
            iterations_a_turn: self.iterations_a_turn(),
            reports: self.reports().map(Report::to_string).collect(),
        }
    }

    /// What the replay of the steps did, and that of the restarts.
    pub fn counters(&self) -> (Counters, Counters) {
        (self.replay.counters(), self.restarts.counters())
    }
}
