//! Copy nodes.

use std::sync::Arc;

use crate::driver::context::Context;
use crate::driver::copy::{Copy, End, Extent, Request, Side};
use crate::driver::graph::plan::Why;
use crate::driver::graph::update::Refusal;
use crate::driver::memory::Place;
use crate::driver::reach::{Homes, Part};
use crate::driver::{CUresult, Result};

/// A copy node.
#[derive(Clone)]
pub(crate) struct CopyNode {
    target: Side,
    source: Side,
    extent: Extent,
    context: Arc<Context>,
    copy: Copy,
    /// What the target and the source are.
    homes: Homes<2>,
}

/// `CUmemorytype` of an end.
pub(crate) fn memory_type(end: End) -> u32 {
    match end {
        End::Host(_) => 1,
        End::Device(_) => 2,
        End::Array(_) => 3,
        End::Unified(_) => 4,
    }
}

impl CopyNode {
    /// A node that copies, in a context.
    pub fn new(
        target: Side,
        source: Side,
        extent: Extent,
        context: Arc<Context>,
    ) -> Result<CopyNode> {
        // Of a single row too, which other copies do not look at.
        let too_narrow = |side: &Side| side.pitch != 0 && side.pitch < side.x + extent.width;
        let narrow = too_narrow(&target) || too_narrow(&source);
        let request = Request::Rows {
            target,
            source,
            extent,
        };
        let node = Self::of(request, context)?.filter(|_| !narrow);
        node.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// A node that does what was asked of a stream; `None` where there is nothing to copy.
    pub fn of(request: Request, context: Arc<Context>) -> Result<Option<CopyNode>> {
        let (target, source, extent) = request.as_rows();
        let copy = request.check(context.device())?;
        let places = [(target, Part::Target), (source, Part::Source)];
        let places = places.map(|(side, part)| (side.end.address(), part));
        Ok(copy.map(|copy| CopyNode {
            target,
            source,
            extent,
            homes: Homes::of(places, &context),
            context,
            copy,
        }))
    }

    /// Target, source and extent, as the program said.
    pub fn params(&self) -> (Side, Side, Extent) {
        (self.target, self.source, self.extent)
    }

    /// Where it runs.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Does it.
    pub fn execute(&self) -> Result {
        self.copy.execute_late()
    }

    /// Why an executable that kernels launch cannot have it: the device does not reach both ends,
    /// or one is an array.
    pub fn why_not_for_kernels(&self) -> Option<Why> {
        let (target, source) = self.copy.places();
        let array = |side: &Side| matches!(side.end, End::Array(_));
        if array(&self.target) || array(&self.source) {
            return Some(Why::NotForKernels);
        }
        let device = self.context.device();
        let across = self.homes.devices().any(|home| home != device);
        let pageable = target == Place::Pageable || source == Place::Pageable;
        (across || pageable).then_some(Why::SeveralContexts)
    }

    fn is_line(&self) -> bool {
        self.extent.height <= 1 && self.extent.depth <= 1
    }

    /// Addresses and sizes of a line may change, and so may the context; not what memory the ends
    /// are in, nor its kinds as the program names them. Of rows nothing may.
    pub fn check_update(&self, next: &CopyNode) -> std::result::Result<(), Refusal> {
        let kinds = |node: &CopyNode| (memory_type(node.target.end), memory_type(node.source.end));
        let fine = self.homes.may_move(&next.homes)
            && kinds(self) == kinds(next)
            && (self.is_line() && next.is_line() || self.params() == next.params());
        match fine {
            true => Ok(()),
            false => Err(Refusal::ParametersChanged),
        }
    }

    /// The node in the place of another in an executable.
    pub fn following(self: Arc<Self>, before: &CopyNode) -> Arc<CopyNode> {
        match self.homes.following(&before.homes) {
            None => self,
            Some(homes) => Arc::new(CopyNode {
                homes,
                ..(*self).clone()
            }),
        }
    }
}
