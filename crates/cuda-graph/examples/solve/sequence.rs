//! Systems of one matrix, solved one after the other through one replay: the first call builds the
//! graph, each later one sets its own buffers and its flag on the nodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Counters, Error, Replay, Result};

use super::solver::Solver;
use super::system::System;

pub struct Sequence<'a> {
    stream: &'a Arc<CudaStream>,
    solver: &'a Solver,
    unroll: u32,
    replay: Replay,
    /// How long the first call took, if it built a graph.
    built: Option<Duration>,
}

impl<'a> Sequence<'a> {
    pub fn new(
        stream: &'a Arc<CudaStream>,
        solver: &'a Solver,
        unroll: u32,
    ) -> Result<Sequence<'a>> {
        Ok(Sequence {
            stream,
            solver,
            unroll,
            replay: Replay::new(stream.context())?,
            built: None,
        })
    }

    /// Solves a system, and waits until that is done. Returns how long it took, without what the
    /// first took to build.
    pub fn solve(&mut self, system: &System) -> Result<Duration> {
        let start = Instant::now();
        self.replay
            .call(self.stream, |r| self.solver.record(r, system, self.unroll))?;
        let called = start.elapsed();
        self.stream.synchronize()?;
        let took = start.elapsed();
        let is_first = self.counters().calls == 1;
        if is_first && self.why_eager().is_none() {
            self.built = Some(called);
            return Ok(took - called);
        }
        Ok(took)
    }

    /// How long it took to build the graph.
    pub fn built(&self) -> Option<Duration> {
        self.built
    }

    /// Why the host loops, if it does.
    pub fn why_eager(&self) -> Option<&Error> {
        self.replay.why_eager()
    }

    pub fn counters(&self) -> Counters {
        self.replay.counters()
    }
}
