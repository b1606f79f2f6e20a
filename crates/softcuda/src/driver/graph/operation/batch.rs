//! Nodes of memory operations.

use std::sync::Arc;

use crate::driver::context::Context;
use crate::driver::graph::update::Refusal;
use crate::driver::memory_operation::{Batch, Parameters};
use crate::driver::{CUresult, Result};

/// A node that waits for values in memory and writes some, in order.
pub(crate) struct BatchNode {
    context: Arc<Context>,
    parameters: Box<[Parameters]>,
    flags: u32,
    batch: Batch,
}

impl BatchNode {
    /// A node of these operations, in a context.
    pub fn new(
        context: Arc<Context>,
        parameters: Vec<Parameters>,
        flags: u32,
    ) -> Result<BatchNode> {
        if flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(BatchNode {
            context,
            batch: Batch::check(&parameters)?,
            parameters: parameters.into(),
            flags,
        })
    }

    /// Where it runs.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The operations; they live as long as the node has them.
    pub fn parameters(&self) -> &[Parameters] {
        &self.parameters
    }

    /// Flags of the node.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Fails where a launch cannot do it: addresses are looked at then, not when the node is made.
    pub fn check_memory(&self) -> Result {
        self.batch.check_memory(&self.context)
    }

    /// Does it.
    pub fn execute(&self) -> Result {
        self.batch.execute()
    }

    /// Addresses, values and conditions may change, neither how many operations there are nor of
    /// which kinds.
    pub fn check_update(&self, next: &BatchNode) -> std::result::Result<(), Refusal> {
        let kinds = |node: &BatchNode| -> Vec<u32> {
            node.parameters.iter().map(|it| it.operation).collect()
        };
        match self.context.id() == next.context.id() && kinds(self) == kinds(next) {
            true => Ok(()),
            false => Err(Refusal::ParametersChanged),
        }
    }
}
