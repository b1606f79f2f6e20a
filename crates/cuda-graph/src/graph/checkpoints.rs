//! Where a graph's steps can stop.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};

use super::Graph;
use crate::memory::{Buffer, Region, Source};
use crate::{Result, driver};

/// The checkpoints of a recorded step, and the word on the device that says where it stopped.
#[derive(Clone)]
pub struct Checkpoints {
    inner: Arc<Inner>,
}

struct Inner {
    /// 0 while the step goes on, and otherwise the number of the checkpoint, counted from 1.
    stopped: Buffer<u32>,
    names: Vec<Arc<str>>,
}

impl Checkpoints {
    pub(crate) fn new(stopped: Buffer<u32>, names: Vec<Arc<str>>) -> Checkpoints {
        Checkpoints {
            inner: Arc::new(Inner { stopped, names }),
        }
    }

    /// The word that says where the step stopped.
    pub(crate) fn word(&self) -> Region {
        self.inner.stopped.source()
    }

    /// Their names, in the order in which they were recorded.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.inner.names.iter().map(|name| &**name)
    }

    /// Waits for `stream`, and says at which checkpoint the last launch stopped, if it did.
    pub fn stopped(&self, stream: &Arc<CudaStream>) -> Result<Option<Arc<str>>> {
        let number = self.inner.stopped.to_host(stream)?[0] as usize;
        let name = number
            .checked_sub(1)
            .and_then(|at| self.inner.names.get(at));
        Ok(name.cloned())
    }
}

impl fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// A word on the device, zero, whatever else is captured.
pub(crate) fn word(context: &Arc<CudaContext>) -> Result<(Buffer<u32>, Region)> {
    let word = words(context, 1)?;
    let region = word.source();
    Ok((word, region))
}

/// Words on the device, zero, whatever else is captured.
pub(crate) fn words(context: &Arc<CudaContext>, count: usize) -> Result<Buffer<u32>> {
    driver::capture::undisturbed(|| {
        let stream = context.new_stream()?;
        let words = Buffer::<u32>::zeroed(&stream, count)?;
        driver::stream::synchronize(stream.cu_stream())?;
        Ok(words)
    })
}

impl Graph {
    /// The checkpoints of the steps that were recorded into it, a set for each recording.
    pub fn checkpoints(&self) -> Vec<Checkpoints> {
        self.hierarchy().look().checkpoints.clone()
    }
}
