//! Conjugate gradients, preconditioned by the diagonal, as one step for any recorder.
//!
//! The arithmetic is that of `kernels/solve.cu`, two kernels an iteration; the step is a first
//! kernel, and a loop of iterations while the device says that it goes on. Nothing but that flag
//! decides, so the same step is a graph that loops on the device, a capture, or a sequence of
//! launches around which the host loops. Sums are taken in a fixed order: all of them give the same
//! bits.

use std::sync::Arc;

use cuda_graph::bytemuck::AnyBitPattern;
use cuda_graph::cudarc::driver::{CudaStream, LaunchConfig};
use cuda_graph::cudarc::nvrtc::Ptx;
use cuda_graph::{Buffer, Kernel, KernelOp, PinnedBuffer, Recorder, Result};

use super::matrix::Matrix;

const PTX: &str = include_str!("../../../../kernels/ptx/solve.ptx");

/// What the kernels are compiled for: the most blocks whose sums they add up, and the threads of a
/// block.
const BLOCKS: usize = 128;
const THREADS: usize = 256;

/// A direction d is one in which the matrix is not positive if d·Ad is below this part of the sum
/// of what it is made of: as far as double precision can tell, it is zero at most.
const NOTHING: f64 = 1e-13;

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// As a part of the residual at the start.
    pub tolerance: f64,
    pub iterations: u32,
}

/// Why it stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    Converged,
    LimitReached,
    /// The device came upon a direction in which the matrix is not positive, and the host finds so
    /// too.
    NotPositive,
    /// The device came upon such a direction, but there it is positive: the residual is as small as
    /// rounding errors let it be.
    RoundedOff,
    /// Numbers became too large.
    NotFinite,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub reason: Reason,
    pub iterations: u32,
    /// The residual that the device went by, as a part of that at the start.
    pub residual: f64,
    pub x: Vec<f64>,
}

/// As in `kernels/solve.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, AnyBitPattern)]
struct Turn {
    gamma: f64,
    alpha: f64,
    first: f64,
    residual: f64,
    curvature: f64,
    iterations: u32,
    status: u32,
}

/// As in `kernels/solve.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, AnyBitPattern)]
struct State {
    now: Turn,
    next: Turn,
    tolerance: f64,
    limit: u32,
}

/// How far the device has come, read while it goes on.
#[derive(Clone)]
pub struct Progress(PinnedBuffer<u64>);

impl Progress {
    /// The iterations, and the residual as a part of that at the start, as the device last said.
    pub fn read(&self) -> (u32, f64) {
        let word = self.0.to_vec()[0];
        let square = f32::from_bits((word >> 32) as u32);
        (word as u32, f64::from(square).sqrt())
    }
}

/// A system of equations on the device.
pub struct Solver {
    start: KernelOp,
    multiply: KernelOp,
    update: KernelOp,
    /// Not zero while it is to go on.
    go: Buffer<u32>,
    state: Buffer<State>,
    x: Buffer<f64>,
    u: Buffer<f64>,
    p: Buffer<f64>,
    progress: Progress,
    /// The device's right-hand side is `b` divided by this power of two, so that squares neither
    /// vanish nor overflow.
    scale: f64,
}

impl Solver {
    /// Puts `matrix` and `b` on the device, in the order of `stream`.
    pub fn new(
        stream: &Arc<CudaStream>,
        matrix: &Matrix,
        b: &[f64],
        limits: Limits,
    ) -> Result<Solver> {
        let n = matrix.n();
        assert_eq!(b.len(), n, "a value for each row");
        let module = stream.context().load_module(Ptx::from_src(PTX))?;
        let kernel = |name| Kernel::new(&module.load_function(name)?);

        let rows = n.div_ceil(BLOCKS).next_multiple_of(THREADS);
        let config = LaunchConfig {
            grid_dim: (n.div_ceil(rows) as u32, 1, 1),
            block_dim: (THREADS as u32, 1, 1),
            shared_mem_bytes: 0,
        };
        let (n, rows) = (n as u32, rows as u32);

        let scale = power_of_two(largest(b));
        let scaled: Vec<f64> = b.iter().map(|value| value / scale).collect();
        let inverse: Vec<f64> = matrix.diagonal().iter().map(|value| 1.0 / value).collect();
        let b = Buffer::from_host(stream, &scaled)?;
        let inverse = Buffer::from_host(stream, &inverse)?;
        let starts = Buffer::from_host(stream, matrix.starts())?;
        let columns = Buffer::from_host(stream, matrix.columns())?;
        let values = Buffer::from_host(stream, matrix.values())?;
        let vector = || Buffer::<f64>::zeroed(stream, n as usize);
        let (x, r, u, w, p, s) = (
            vector()?,
            vector()?,
            vector()?,
            vector()?,
            vector()?,
            vector()?,
        );
        let partials = Buffer::<f64>::zeroed(stream, 3 * BLOCKS)?;
        let state = Buffer::<State>::zeroed(stream, 1)?;
        let go = Buffer::<u32>::zeroed(stream, 1)?;
        let progress = PinnedBuffer::<u64>::zeroed(stream.context(), 1)?;

        let (tolerance, limit) = (limits.tolerance, limits.iterations);
        // SAFETY: these are the kernel's parameters; vectors have `n` values.
        let start = unsafe {
            KernelOp::new(
                kernel("cg_start")?,
                config,
                (
                    n, rows, &b, &inverse, &x, &r, &u, &p, &s, &state, &go, &progress, tolerance,
                    limit,
                ),
            )
        }?;
        // SAFETY: as above; the matrix has `n` rows, whose columns are below `n`.
        let multiply = unsafe {
            KernelOp::new(
                kernel("cg_multiply")?,
                config,
                (
                    n, rows, &starts, &columns, &values, &u, &r, &w, &partials, &state, &go,
                ),
            )
        }?;
        // SAFETY: as above.
        let update = unsafe {
            KernelOp::new(
                kernel("cg_update")?,
                config,
                (
                    n, rows, &inverse, &w, &partials, &x, &r, &u, &p, &s, &state, &go, &progress,
                ),
            )
        }?;
        Ok(Solver {
            start,
            multiply,
            update,
            go,
            state,
            x,
            u,
            p,
            progress: Progress(progress),
            scale,
        })
    }

    /// The step: solves, testing after every `unroll` iterations whether there is more to do.
    /// Iterations after the last do nothing.
    pub fn record(&self, to: &mut dyn Recorder, unroll: u32) -> Result<()> {
        to.record(self.start.clone())?;
        to.do_while_nonzero(&self.go, |turn| {
            for _ in 0..unroll {
                turn.record(self.multiply.clone())?;
                turn.record(self.update.clone())?;
            }
            Ok(())
        })
    }

    /// How far it has come.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// What came of it, once `stream` has done the step.
    pub fn outcome(&self, stream: &CudaStream, matrix: &Matrix) -> Result<Outcome> {
        let State { now, next, .. } = self.state.to_host(stream)?[0];
        let reason = match next.status {
            1 => Reason::Converged,
            2 => Reason::LimitReached,
            3 => {
                let beta = if next.iterations == 0 {
                    0.0
                } else {
                    next.gamma / now.gamma
                };
                let (u, p) = (self.u.to_host(stream)?, self.p.to_host(stream)?);
                let direction: Vec<f64> = u.iter().zip(&p).map(|(u, p)| u + beta * p).collect();
                match is_positive_along(matrix, &direction) {
                    true => Reason::RoundedOff,
                    false => Reason::NotPositive,
                }
            }
            4 => Reason::NotFinite,
            status => unreachable!("the device stopped with status {status}"),
        };
        let residual = match next.first {
            0.0 => 0.0,
            first => (next.residual / first).sqrt(),
        };
        let mut x = self.x.to_host(stream)?;
        x.iter_mut().for_each(|value| *value *= self.scale);
        Ok(Outcome {
            reason,
            iterations: next.iterations,
            residual,
            x,
        })
    }
}

/// The power of two at or below `value`; 1 for 0.
fn power_of_two(value: f64) -> f64 {
    match value {
        0.0 => 1.0,
        // A power of two that is a normal number, and so is its inverse.
        value => 2f64.powi(value.log2().floor().clamp(-1000.0, 1000.0) as i32),
    }
}

/// Whether d·Ad is more than rounding errors could make of zero. Of a direction that has no length
/// nothing can be said against it.
fn is_positive_along(matrix: &Matrix, direction: &[f64]) -> bool {
    let scale = power_of_two(largest(direction));
    let (mut sum, mut parts) = (0.0, 0.0);
    for (row, d) in direction.iter().enumerate() {
        for (column, value) in matrix.row(row) {
            let part = d / scale * value * (direction[column] / scale);
            sum += part;
            parts += part.abs();
        }
    }
    sum > NOTHING * parts || parts == 0.0
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, value| value.abs().max(most))
}

/// The residual of `x` as a part of that of zero, computed on the host.
pub fn relative_residual(matrix: &Matrix, x: &[f64], b: &[f64]) -> f64 {
    let product = matrix.times(x);
    let scale = power_of_two(largest(b));
    let norm = |values: &mut dyn Iterator<Item = f64>| -> f64 {
        values
            .map(|value| (value / scale).powi(2))
            .sum::<f64>()
            .sqrt()
    };
    match norm(&mut b.iter().copied()) {
        0.0 => norm(&mut product.iter().copied()),
        start => norm(&mut b.iter().zip(&product).map(|(b, product)| b - product)) / start,
    }
}
