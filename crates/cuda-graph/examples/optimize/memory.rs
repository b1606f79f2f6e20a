//! The memory that a case works on: what is in it at the start, and what a launch left there.

use std::sync::Arc;

use cuda_graph::bytemuck::{self, Pod};
use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Buffer, PinnedBuffer, Result};

/// A buffer and its first values.
trait Kept {
    fn reset(&self, stream: &CudaStream) -> Result<()>;
    fn read(&self, stream: &CudaStream, into: &mut Vec<u8>) -> Result<()>;
}

impl<T: Pod> Kept for (Buffer<T>, Vec<T>) {
    fn reset(&self, stream: &CudaStream) -> Result<()> {
        self.0.copy_from_host(stream, &self.1)
    }

    fn read(&self, stream: &CudaStream, into: &mut Vec<u8>) -> Result<()> {
        into.extend_from_slice(bytemuck::cast_slice(&self.0.to_host(stream)?));
        Ok(())
    }
}

/// Pinned memory is read and written at once: the stream must be idle.
impl<T: Pod> Kept for (PinnedBuffer<T>, Vec<T>) {
    fn reset(&self, _: &CudaStream) -> Result<()> {
        self.0.write(&self.1)
    }

    fn read(&self, _: &CudaStream, into: &mut Vec<u8>) -> Result<()> {
        into.extend_from_slice(bytemuck::cast_slice(&self.0.to_vec()));
        Ok(())
    }
}

/// All memory of a case.
pub struct Memory {
    stream: Arc<CudaStream>,
    kept: Vec<Box<dyn Kept>>,
}

impl Memory {
    pub fn new(stream: &Arc<CudaStream>) -> Memory {
        Memory {
            stream: stream.clone(),
            kept: Vec::new(),
        }
    }

    pub fn buffer<T: Pod>(&mut self, start: Vec<T>) -> Result<Buffer<T>> {
        let buffer = Buffer::from_host(&self.stream, &start)?;
        self.kept.push(Box::new((buffer.clone(), start)));
        Ok(buffer)
    }

    pub fn zeros<T: Pod>(&mut self, len: usize) -> Result<Buffer<T>> {
        self.buffer(vec![T::zeroed(); len])
    }

    pub fn pinned<T: Pod>(&mut self, start: Vec<T>) -> Result<PinnedBuffer<T>> {
        let buffer = PinnedBuffer::from_slice(self.stream.context(), &start)?;
        self.kept.push(Box::new((buffer.clone(), start)));
        Ok(buffer)
    }

    /// Puts the first values back.
    pub fn reset(&self) -> Result<()> {
        self.stream.synchronize()?;
        self.kept
            .iter()
            .try_for_each(|kept| kept.reset(&self.stream))
    }

    /// What is in it now.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        self.stream.synchronize()?;
        let mut bytes = Vec::new();
        for kept in &self.kept {
            kept.read(&self.stream, &mut bytes)?;
        }
        Ok(bytes)
    }
}

/// Values from -`size` to `size` that look random, and are the same each time.
pub fn values(len: usize, size: f32, mut seed: u32) -> Vec<f32> {
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..len).map(|_| size * next()).collect()
}
