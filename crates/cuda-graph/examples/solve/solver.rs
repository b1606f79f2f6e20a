//! Conjugate gradients, preconditioned by the diagonal, as one step for any recorder.
//!
//! The arithmetic is that of `kernels/solve.cu`, two kernels an iteration; the step is a first
//! kernel, and a loop of iterations while the device says that it goes on. Nothing but that flag
//! decides, so the same step is a graph that loops on the device, a capture, or a sequence of
//! launches around which the host loops. Sums are taken in a fixed order: all of them give the same
//! bits. The graph's loop is unrolled by the optimizer. The kernels are declared to do nothing once
//! the flag is 0, so that it need not guard them.
//!
//! With restarts, the device pauses now and then. The loop has a checkpoint at the end of each turn
//! where a paused step stops. The host then runs [`Solver::restart`] and resumes the step.
//!
//! The matrix and the vectors of the iteration are on the device once. What differs from one
//! right-hand side to the next is a [`System`]: the steps of two systems are the same operations
//! with other arguments, and another flag.

use std::num::NonZeroU32;
use std::sync::Arc;

use cuda_graph::cudarc::driver::{CudaStream, LaunchConfig};
use cuda_graph::{Buffer, Kernel, KernelOp, Module, Recorder, Result};

use super::matrix::Matrix;
use super::outcome::{Outcome, Reason, is_positive_along};
use super::system::{State, System};

const PTX: &str = include_str!("../../../../kernels/ptx/solve.ptx");

/// What the kernels are compiled for: the most blocks whose sums they add up, and the threads of a
/// block.
const BLOCKS: usize = 128;
const THREADS: usize = 256;

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// As a part of the residual at the start.
    pub tolerance: f64,
    pub iterations: u32,
    /// Pause for a restart after so many iterations, and where the residual has become small
    /// enough but is not computed anew.
    pub restart_every: Option<NonZeroU32>,
}

/// A matrix on the device, and what solves systems with it, one at a time.
pub struct Solver {
    start: Kernel,
    multiply: Kernel,
    update: Kernel,
    restart: Kernel,
    config: LaunchConfig,
    /// The rows of the matrix, and how many of them a block has.
    n: u32,
    rows: u32,
    limits: Limits,
    starts: Buffer<u32>,
    columns: Buffer<u32>,
    values: Buffer<f64>,
    /// 1 divided by the diagonal.
    inverse: Buffer<f64>,
    r: Buffer<f64>,
    u: Buffer<f64>,
    w: Buffer<f64>,
    p: Buffer<f64>,
    s: Buffer<f64>,
    partials: Buffer<f64>,
}

impl Solver {
    /// Puts `matrix` on the device, in the order of `stream`.
    pub fn new(stream: &Arc<CudaStream>, matrix: &Matrix, limits: Limits) -> Result<Solver> {
        let module = Module::load(stream.context(), PTX)?;
        let kernel = |name| module.kernel(name);
        let n = matrix.n();
        let rows = n.div_ceil(BLOCKS).next_multiple_of(THREADS);
        let inverse: Vec<f64> = matrix.diagonal().iter().map(|value| 1.0 / value).collect();
        let vector = || Buffer::<f64>::zeroed(stream, n);
        Ok(Solver {
            start: kernel("cg_start")?,
            multiply: kernel("cg_multiply")?,
            update: kernel("cg_update")?,
            restart: kernel("cg_restart")?,
            config: LaunchConfig {
                grid_dim: (n.div_ceil(rows) as u32, 1, 1),
                block_dim: (THREADS as u32, 1, 1),
                shared_mem_bytes: 0,
            },
            n: n as u32,
            rows: rows as u32,
            limits,
            starts: Buffer::from_host(stream, matrix.starts())?,
            columns: Buffer::from_host(stream, matrix.columns())?,
            values: Buffer::from_host(stream, matrix.values())?,
            inverse: Buffer::from_host(stream, &inverse)?,
            r: vector()?,
            u: vector()?,
            w: vector()?,
            p: vector()?,
            s: vector()?,
            partials: Buffer::zeroed(stream, 3 * BLOCKS)?,
        })
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The step: solves `system`.
    ///
    /// With restarts, the step stops at a checkpoint where the device pauses, and is to be resumed
    /// after a [`restart`](Solver::restart).
    pub fn record(&self, to: &mut dyn Recorder, system: &System) -> Result<()> {
        to.record(self.start(system)?)?;
        self.go_on(to, system)
    }

    /// The step without its start: iterates until the device says that it is over.
    pub fn go_on(&self, to: &mut dyn Recorder, system: &System) -> Result<()> {
        to.do_while_nonzero(&system.go, |turn| {
            self.iterate(turn, system)?;
            match self.limits.restart_every {
                Some(_) => turn.checkpoint("restart", &system.pause),
                None => Ok(()),
            }
        })
    }

    /// Records an iteration.
    pub fn iterate(&self, to: &mut dyn Recorder, system: &System) -> Result<()> {
        to.record(self.multiply(system)?)?;
        to.record(self.update(system)?)?;
        Ok(())
    }

    /// x = 0, and the residual of that.
    pub fn start(&self, system: &System) -> Result<KernelOp> {
        self.check(system);
        let (n, rows, inverse) = (self.n, self.rows, &self.inverse);
        let (r, u, p, s) = (&self.r, &self.u, &self.p, &self.s);
        let (b, x, state) = (&system.b, &system.x, &system.state);
        let (go, pause, progress) = (&system.go, &system.pause, &system.progress.0);
        let limits = self.limits;
        let every = limits.restart_every.map_or(0, NonZeroU32::get);
        let arguments = (
            n,
            rows,
            b,
            inverse,
            x,
            r,
            u,
            p,
            s,
            state,
            go,
            pause,
            progress,
            limits.tolerance,
            limits.iterations,
            every,
        );
        // SAFETY: these are the kernel's parameters; vectors have `n` values.
        unsafe { KernelOp::new(&self.start, self.config, arguments) }
    }

    /// The first half of an iteration: the product with the matrix, and the dot products.
    fn multiply(&self, system: &System) -> Result<KernelOp> {
        let (n, rows) = (self.n, self.rows);
        let (starts, columns, values) = (&self.starts, &self.columns, &self.values);
        let (u, r, w, partials) = (&self.u, &self.r, &self.w, &self.partials);
        let (state, go) = (&system.state, &system.go);
        let arguments = (
            n, rows, starts, columns, values, u, r, w, partials, state, go,
        );
        // SAFETY: these are the kernel's parameters; vectors have `n` values, and the matrix has
        // `n` rows, whose columns are below `n`.
        let op = unsafe { KernelOp::new(&self.multiply, self.config, arguments) }?;
        Ok(op.idle_without(&system.go))
    }

    /// The second half: decides whether to go on, and takes the step.
    fn update(&self, system: &System) -> Result<KernelOp> {
        self.check(system);
        let (n, rows, inverse) = (self.n, self.rows, &self.inverse);
        let (w, partials) = (&self.w, &self.partials);
        let (r, u, p, s) = (&self.r, &self.u, &self.p, &self.s);
        let (x, state) = (&system.x, &system.state);
        let (go, pause, progress) = (&system.go, &system.pause, &system.progress.0);
        let arguments = (
            n, rows, inverse, w, partials, x, r, u, p, s, state, go, pause, progress,
        );
        // SAFETY: these are the kernel's parameters; vectors have `n` values.
        let op = unsafe { KernelOp::new(&self.update, self.config, arguments) }?;
        Ok(op.idle_without(&system.go))
    }

    /// Between two iterations: computes the residual anew from x, has the next iteration begin as a
    /// first one does, and ends a pause. Once the device has stopped it does nothing.
    pub fn restart(&self, system: &System) -> Result<KernelOp> {
        self.check(system);
        let (n, rows, inverse) = (self.n, self.rows, &self.inverse);
        let (starts, columns, values) = (&self.starts, &self.columns, &self.values);
        let (r, u, p, s) = (&self.r, &self.u, &self.p, &self.s);
        let (b, x, state) = (&system.b, &system.x, &system.state);
        let (go, pause) = (&system.go, &system.pause);
        let arguments = (
            n, rows, starts, columns, values, b, inverse, x, r, u, p, s, state, go, pause,
        );
        // SAFETY: these are the kernel's parameters; vectors have `n` values, and the matrix has
        // `n` rows, whose columns are below `n`.
        unsafe { KernelOp::new(&self.restart, self.config, arguments) }
    }

    /// Kernels rely on it.
    fn check(&self, system: &System) {
        let n = self.n as usize;
        let given = (system.b.len(), system.x.len());
        assert_eq!(given, (n, n), "a value for each row");
    }

    /// What came of `system`, once `stream` has done its step and before it does another.
    pub fn outcome(
        &self,
        stream: &CudaStream,
        matrix: &Matrix,
        system: &System,
    ) -> Result<Outcome> {
        let State { now, next, .. } = system.state.to_host(stream)?[0];
        let reason = match next.status {
            1 => Reason::Converged,
            2 => Reason::LimitReached,
            3 => {
                let beta = next.gamma / now.gamma;
                let (u, p) = (self.u.to_host(stream)?, self.p.to_host(stream)?);
                let direction: Vec<f64> = u.iter().zip(&p).map(|(u, p)| u + beta * p).collect();
                match is_positive_along(matrix, &direction) {
                    true => Reason::RoundedOff,
                    false => Reason::NotPositive,
                }
            }
            4 => Reason::NotFinite,
            5 => Reason::RoundedOff,
            status => unreachable!("the device stopped with status {status}"),
        };
        let residual = match next.first {
            0.0 => 0.0,
            first => (next.residual / first).sqrt(),
        };
        Ok(Outcome {
            reason,
            iterations: next.iterations,
            residual,
            x: system.solution(stream)?,
        })
    }
}
