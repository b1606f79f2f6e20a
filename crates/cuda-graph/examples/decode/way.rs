//! The ways in which the step of a token comes to the device.

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Body, Result};

use super::capture_again::CaptureAgain;
use super::eager::Eagerly;
use super::replay::Replayed;

/// A way to have steps done in the order of a stream.
pub trait Way {
    fn name(&self) -> &'static str;

    /// Has `step` done, after all steps before it.
    fn call(&mut self, step: &mut Body<'_>) -> Result<()>;

    /// What it says of itself in the end.
    fn remark(&self) -> Option<String> {
        None
    }
}

/// All of them, beginning with the one that the others are compared with.
pub fn all(stream: &Arc<CudaStream>) -> Result<Vec<Box<dyn Way>>> {
    Ok(vec![
        Box::new(Eagerly::new(stream)?),
        Box::new(CaptureAgain::new(stream)),
        Box::new(Replayed::new(stream)?),
    ])
}
