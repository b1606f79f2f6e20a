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
//! Several devices solve one system together. Each has a [`Part`] of the rows, and the same loop:
//! before the product it exchanges what the product needs of others' vectors, and behind it the sums
//! are added up over all. All decide by the same sums, so all loops end in the same turn.
//!
//! The matrix and the vectors of the iteration are on the device once. What differs from one
//! right-hand side to the next is a [`System`]: the steps of two systems are the same operations
//! with other arguments, and another flag.

use std::num::NonZeroU32;
use std::sync::Arc;

use cuda_graph::cudarc::driver::{CudaStream, LaunchConfig};
use cuda_graph::{Buffer, Communicator, Kernel, KernelOp, Module, Recorder, Result};

use super::matrix::Matrix;
use super::outcome::{Ended, Outcome};
use super::partition::{Part, whole};
use super::shared::Shared;
use super::system::System;

const PTX: &str = include_str!("../../../../kernels/ptx/solve.ptx");

/// What the kernels are compiled for: how many blocks' sums they add up at a time, and the threads
/// of a block.
const BLOCKS: usize = 128;
const THREADS: usize = 256;

/// The most blocks for a part of so many rows: a thread has some rows, and a large device runs all
/// blocks at once.
fn most_blocks(rows: usize) -> usize {
    let blocks = (rows / (4 * THREADS)).next_power_of_two();
    blocks.clamp(BLOCKS, 4 * BLOCKS)
}

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

/// A matrix on the device, or a part of it, and what solves systems with it, one at a time.
pub struct Solver {
    start: Kernel,
    multiply: Kernel,
    update: Kernel,
    restart: Kernel,
    config: LaunchConfig,
    /// The rows of the part, how many of them a block has, and how many blocks have sums.
    n: u32,
    rows: u32,
    blocks: u32,
    /// The values of a vector that the matrix is multiplied with.
    len: usize,
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
    /// The partial sums of all devices; of one device, `partials` itself.
    sums: Buffer<f64>,
    /// What there is to do with other devices.
    shared: Option<Shared>,
}

impl Solver {
    /// Puts `matrix` on the device, in the order of `stream`.
    pub fn new(stream: &Arc<CudaStream>, matrix: &Matrix, limits: Limits) -> Result<Solver> {
        Solver::of_part(stream, &whole(matrix), None, limits)
    }

    /// Puts a part of a matrix on the device, whose other parts the other ranks have.
    pub fn of_part(
        stream: &Arc<CudaStream>,
        part: &Part,
        communicator: Option<Communicator>,
        limits: Limits,
    ) -> Result<Solver> {
        let module = Module::load(stream.context(), PTX)?;
        let kernel = |name| module.kernel(name);
        let n = part.rows.len();
        // All parts have as many sums. One without rows has a block, too: it decides for the device
        // when to stop.
        let blocks = most_blocks(part.largest);
        let rows = n.div_ceil(blocks).max(1).next_multiple_of(THREADS);
        let inverse: Vec<f64> = part.diagonal.iter().map(|value| 1.0 / value).collect();
        let vector = || Buffer::<f64>::zeroed(stream, n);
        let partials = Buffer::zeroed(stream, 3 * blocks)?;
        let shared = communicator
            .map(|communicator| Shared::new(stream, &module, part, communicator))
            .transpose()?;
        Ok(Solver {
            start: kernel("cg_start")?,
            multiply: kernel("cg_multiply")?,
            update: kernel("cg_update")?,
            restart: kernel("cg_restart")?,
            config: LaunchConfig {
                grid_dim: (n.div_ceil(rows).max(1) as u32, 1, 1),
                block_dim: (THREADS as u32, 1, 1),
                shared_mem_bytes: 0,
            },
            n: n as u32,
            rows: rows as u32,
            blocks: blocks as u32,
            len: part.len(),
            limits,
            starts: Buffer::from_host(stream, &part.starts)?,
            columns: Buffer::from_host(stream, &part.columns)?,
            values: Buffer::from_host(stream, part.values)?,
            inverse: Buffer::from_host(stream, &inverse)?,
            r: vector()?,
            u: Buffer::zeroed(stream, part.len())?,
            w: vector()?,
            p: vector()?,
            s: vector()?,
            sums: match &shared {
                Some(_) => Buffer::zeroed(stream, 3 * blocks)?,
                None => Buffer::clone(&partials),
            },
            partials,
            shared,
        })
    }

    /// Waits for `stream`, at most as long as the communicator lets it where there are other ranks.
    pub fn wait(&self, stream: &Arc<CudaStream>) -> Result<()> {
        match self.communicator() {
            Some(communicator) => communicator.wait(stream),
            None => Ok(stream.synchronize()?),
        }
    }

    /// The ranks that have the other parts, if there are any.
    pub fn communicator(&self) -> Option<&Communicator> {
        self.shared.as_ref().map(Shared::communicator)
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
        if let Some(shared) = &self.shared {
            shared.fill_halo(to, &self.u)?;
        }
        to.record(self.multiply(system)?)?;
        if let Some(shared) = &self.shared {
            shared.sum(to, &self.sums, &self.partials)?;
        }
        to.record(self.update(system)?)?;
        Ok(())
    }

    /// Records a [`restart`](Solver::restart), for which the product needs others' values of x.
    pub fn record_restart(&self, to: &mut dyn Recorder, system: &System) -> Result<()> {
        if let Some(shared) = &self.shared {
            shared.fill_halo(to, &system.x)?;
        }
        to.record(self.restart(system)?)?;
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
        let (n, rows, blocks) = (self.n, self.rows, self.blocks);
        let (starts, columns, values) = (&self.starts, &self.columns, &self.values);
        let (u, r, w, partials) = (&self.u, &self.r, &self.w, &self.partials);
        let (state, go) = (&system.state, &system.go);
        let arguments = (
            n, rows, blocks, starts, columns, values, u, r, w, partials, state, go,
        );
        // SAFETY: these are the kernel's parameters; vectors have `n` values, and the part has `n`
        // rows, whose columns are places in `u`.
        let op = unsafe { KernelOp::new(&self.multiply, self.config, arguments) }?;
        Ok(op.idle_without(&system.go))
    }

    /// The second half: decides whether to go on, and takes the step.
    fn update(&self, system: &System) -> Result<KernelOp> {
        self.check(system);
        let (n, rows, blocks) = (self.n, self.rows, self.blocks);
        let (inverse, w, sums) = (&self.inverse, &self.w, &self.sums);
        let (r, u, p, s) = (&self.r, &self.u, &self.p, &self.s);
        let (x, state) = (&system.x, &system.state);
        let (go, pause, progress) = (&system.go, &system.pause, &system.progress.0);
        let arguments = (
            n, rows, blocks, inverse, w, sums, x, r, u, p, s, state, go, pause, progress,
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
        // SAFETY: these are the kernel's parameters; vectors have `n` values, and the part has `n`
        // rows, whose columns are places in `x`.
        unsafe { KernelOp::new(&self.restart, self.config, arguments) }
    }

    /// Kernels rely on it.
    fn check(&self, system: &System) {
        let given = (system.b.len(), system.x.len());
        assert_eq!(
            given,
            (self.n as usize, self.len),
            "a value for each row, and the halo"
        );
    }

    /// What came of `system`, once `stream` has done its step and before it does another.
    pub fn outcome(
        &self,
        stream: &CudaStream,
        matrix: &Matrix,
        system: &System,
    ) -> Result<Outcome> {
        Ok(self.ended(stream, system)?.outcome(matrix))
    }

    /// What the device has of `system` at that time.
    pub fn ended(&self, stream: &CudaStream, system: &System) -> Result<Ended> {
        let own = |vector: &Buffer<f64>| vector.slice(..self.n as usize)?.to_host(stream);
        Ok(Ended {
            state: system.state.to_host(stream)?[0],
            u: own(&self.u)?,
            p: own(&self.p)?,
            x: system.solution(stream, self.n as usize)?,
        })
    }
}
