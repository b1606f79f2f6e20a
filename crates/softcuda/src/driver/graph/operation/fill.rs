//! Fill nodes.

use std::sync::Arc;

use crate::driver::context::Context;
use crate::driver::fill::Fill;
use crate::driver::graph::update::Refusal;
use crate::driver::{CUresult, Result};

/// A fill, as the program described it: `CUDA_MEMSET_NODE_PARAMS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FillParams {
    /// Where.
    pub address: u64,
    /// From one row to the next, in bytes.
    pub pitch: u64,
    /// With what.
    pub value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element: u32,
    /// Elements of a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
}

/// A fill node.
pub(crate) struct FillNode {
    params: FillParams,
    context: Arc<Context>,
    fill: Fill,
}

impl FillNode {
    /// A node that fills, in a context.
    pub fn new(params: FillParams, context: Arc<Context>) -> Result<FillNode> {
        if !matches!(params.element, 1 | 2 | 4) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let FillParams {
            address,
            pitch,
            value,
            element,
            width,
            height,
        } = params;
        let fill = Fill::rows(address, pitch, value, element, width, height)?;
        Ok(FillNode {
            params,
            context,
            fill: fill.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?,
        })
    }

    /// What the program said.
    pub fn params(&self) -> FillParams {
        self.params
    }

    /// Where it runs.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Does it.
    pub fn execute(&self) -> Result {
        self.fill.execute_late()
    }

    /// Of rows, address and value may change alone.
    pub fn check_update(&self, next: &FillNode) -> std::result::Result<(), Refusal> {
        let shape = |params: &FillParams| (params.element, params.width, params.height);
        let rows = self.params.height > 1 || next.params.height > 1;
        let same_rows =
            shape(&self.params) == shape(&next.params) && self.params.pitch == next.params.pitch;
        match self.context.id() == next.context.id() && (!rows || same_rows) {
            true => Ok(()),
            false => Err(Refusal::ParametersChanged),
        }
    }
}
