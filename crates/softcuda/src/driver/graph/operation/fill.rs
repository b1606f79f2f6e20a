//! Fill nodes.

use std::sync::Arc;

use crate::driver::context::Context;
use crate::driver::fill::{Fill, Request};
use crate::driver::graph::update::Refusal;
use crate::driver::reach::{Homes, Part, Reacher};
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
#[derive(Clone)]
pub(crate) struct FillNode {
    params: FillParams,
    context: Arc<Context>,
    /// Nothing where a capture recorded it and the memory was not there.
    fill: Option<Fill>,
    /// A capture recorded it: it fills what kernels of the context reach.
    captured: bool,
    /// What it fills.
    homes: Homes<1>,
}

impl FillNode {
    /// A node that fills, in a context.
    pub fn new(params: FillParams, context: Arc<Context>) -> Result<FillNode> {
        Self::made(params, context, false)
    }

    fn made(params: FillParams, context: Arc<Context>, captured: bool) -> Result<FillNode> {
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
        let by = match captured {
            true => context.fills(),
            false => Reacher::Copies(context.device()),
        };
        let fill = Fill::rows((address, by), pitch, value, element, width, height)?;
        Ok(FillNode {
            params,
            fill: Some(fill.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?),
            homes: Homes::of([(address, Part::Fill)], &context),
            context,
            captured,
        })
    }

    /// A node that does what was asked of a stream, whose memory need not be there; `None` where
    /// there is nothing to fill.
    pub fn captured(request: Request, context: Arc<Context>) -> Result<Option<FillNode>> {
        if request.width == 0 || request.height == 0 {
            return Ok(None);
        }
        let row = request.width.checked_mul(request.element.into());
        let pitch = request.pitch.unwrap_or(0);
        let apart =
            row.is_some_and(|row| pitch >= row) && pitch.is_multiple_of(request.element.into());
        if !request.address.is_multiple_of(request.element.into()) || request.height > 1 && !apart {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let params = FillParams {
            address: request.address,
            pitch,
            value: request.value,
            element: request.element,
            width: request.width,
            height: request.height,
        };
        Ok(Some(FillNode {
            params,
            fill: request.check(context.fills()).ok().flatten(),
            homes: Homes::of([(request.address, Part::Fill)], &context),
            context,
            captured: true,
        }))
    }

    /// The node, with its memory looked up again: it may have come or gone.
    pub fn prepare(&self) -> Result<Arc<FillNode>> {
        Self::made(self.params, self.context.clone(), self.captured).map(Arc::new)
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
        match &self.fill {
            Some(fill) => fill.execute_late(),
            None => Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS),
        }
    }

    /// It fills another device's memory.
    pub fn is_across(&self) -> bool {
        let own = self.context.device();
        self.homes.devices().any(|device| device != own)
    }

    /// The context may change, not whose memory it is; of rows, address and value may change
    /// alone.
    pub fn check_update(&self, next: &FillNode) -> std::result::Result<(), Refusal> {
        let shape = |params: &FillParams| (params.element, params.width, params.height);
        let rows = self.params.height > 1 || next.params.height > 1;
        let same_rows =
            shape(&self.params) == shape(&next.params) && self.params.pitch == next.params.pitch;
        match self.homes.may_move(&next.homes) && (!rows || same_rows) {
            true => Ok(()),
            false => Err(Refusal::ParametersChanged),
        }
    }

    /// The node in the place of another in an executable.
    pub fn following(self: Arc<Self>, before: &FillNode) -> Arc<FillNode> {
        match self.homes.following(&before.homes) {
            None => self,
            Some(homes) => Arc::new(FillNode {
                homes,
                ..(*self).clone()
            }),
        }
    }
}
