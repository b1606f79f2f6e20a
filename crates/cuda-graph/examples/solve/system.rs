//! A right-hand side on the device, and what the device keeps while it solves for it.

use std::ops::Range;
use std::sync::Arc;

use cuda_graph::bytemuck::AnyBitPattern;
use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Buffer, PinnedBuffer, Result};

use super::outcome::{largest, power_of_two};

/// As in `kernels/solve.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, AnyBitPattern)]
pub struct Turn {
    pub gamma: f64,
    pub alpha: f64,
    pub first: f64,
    pub residual: f64,
    pub curvature: f64,
    pub refuted: f64,
    pub iterations: u32,
    pub status: u32,
    pub since: u32,
    pub claimed: u32,
}

/// As in `kernels/solve.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, AnyBitPattern)]
pub struct State {
    pub now: Turn,
    pub next: Turn,
    pub tolerance: f64,
    pub limit: u32,
    pub every: u32,
}

/// How far the device has come, read while it goes on.
#[derive(Clone)]
pub struct Progress(pub PinnedBuffer<u64>);

impl Progress {
    /// The iterations, and the residual as a part of that at the start, as the device last said.
    pub fn read(&self) -> (u32, f64) {
        let word = self.0.to_vec()[0];
        let square = f32::from_bits((word >> 32) as u32);
        (word as u32, f64::from(square).sqrt())
    }
}

/// One system of equations with the matrix of a [`Solver`](super::solver::Solver).
pub struct System {
    pub b: Buffer<f64>,
    pub x: Buffer<f64>,
    pub state: Buffer<State>,
    /// Not zero while the device is to go on.
    pub go: Buffer<u32>,
    /// Not zero while the device waits for a restart.
    pub pause: Buffer<u32>,
    pub progress: Progress,
    /// The device's right-hand side is the host's divided by this power of two, so that squares
    /// neither vanish nor overflow.
    scale: f64,
}

impl System {
    /// Puts `b` on the device, in the order of `stream`.
    pub fn new(stream: &Arc<CudaStream>, b: &[f64]) -> Result<System> {
        System::of_part(stream, b, 0..b.len(), b.len())
    }

    /// Puts `rows` of `b` on the device that has this part of the matrix, whose vectors have `len`
    /// values.
    pub fn of_part(
        stream: &Arc<CudaStream>,
        b: &[f64],
        rows: Range<usize>,
        len: usize,
    ) -> Result<System> {
        let scale = power_of_two(largest(b));
        let scaled: Vec<f64> = b[rows].iter().map(|value| value / scale).collect();
        Ok(System {
            b: Buffer::from_host(stream, &scaled)?,
            x: Buffer::zeroed(stream, len)?,
            state: Buffer::zeroed(stream, 1)?,
            go: Buffer::zeroed(stream, 1)?,
            pause: Buffer::zeroed(stream, 1)?,
            progress: Progress(PinnedBuffer::zeroed(stream.context(), 1)?),
            scale,
        })
    }

    /// The solution of the first `n` rows, once `stream` has done the step.
    pub fn solution(&self, stream: &CudaStream, n: usize) -> Result<Vec<f64>> {
        let mut x = self.x.slice(..n)?.to_host(stream)?;
        x.iter_mut().for_each(|value| *value *= self.scale);
        Ok(x)
    }
}
