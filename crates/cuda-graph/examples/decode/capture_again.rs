//! A new graph for each step.

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Body, Graph, Result};

use super::way::Way;

/// Records each step into a graph of its own, which is instantiated and launched once.
pub struct CaptureAgain(Arc<CudaStream>);

impl CaptureAgain {
    pub fn new(stream: &Arc<CudaStream>) -> CaptureAgain {
        CaptureAgain(stream.clone())
    }
}

impl Way for CaptureAgain {
    fn name(&self) -> &'static str {
        "capture again"
    }

    fn call(&mut self, step: &mut Body<'_>) -> Result<()> {
        let (graph, ()) = Graph::record(self.0.context(), |path| step(path))?;
        graph.instantiate()?.launch(&self.0)
    }
}
