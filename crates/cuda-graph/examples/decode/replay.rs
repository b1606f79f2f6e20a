//! One graph for all steps, whose arguments follow the step.

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Body, Replay, Result};

use super::way::Way;

/// Has each step compared with the executable of an earlier one, which is updated where they
/// differ, and launched.
pub struct Replayed {
    replay: Replay,
    stream: Arc<CudaStream>,
}

impl Replayed {
    pub fn new(stream: &Arc<CudaStream>) -> Result<Replayed> {
        Ok(Replayed {
            replay: Replay::new(stream.context())?,
            stream: stream.clone(),
        })
    }
}

impl Way for Replayed {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn call(&mut self, step: &mut Body<'_>) -> Result<()> {
        self.replay.call(&self.stream, |r| step(r)).map(drop)
    }

    fn remark(&self) -> Option<String> {
        let counted = self.replay.counters();
        Some(format!(
            "{} calls, {} launches, {} graphs built, {} calls that found theirs; \
             {} operations compared, {} updated",
            counted.calls,
            counted.launches,
            counted.builds,
            counted.hits,
            counted.compared,
            counted.updated
        ))
    }
}
