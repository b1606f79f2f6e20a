//! Each operation launched by itself.

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Body, Eager, Result};

use super::way::Way;

/// Launches the operations of a step one by one, through one recorder that is kept.
pub struct Eagerly(Eager);

impl Eagerly {
    pub fn new(stream: &Arc<CudaStream>) -> Result<Eagerly> {
        Eager::new(stream).map(Eagerly)
    }
}

impl Way for Eagerly {
    fn name(&self) -> &'static str {
        "eager"
    }

    fn call(&mut self, step: &mut Body<'_>) -> Result<()> {
        step(&mut self.0)
    }
}
