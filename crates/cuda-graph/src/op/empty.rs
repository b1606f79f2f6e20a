//! Doing nothing, at one point of the order.

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraph, CUgraphExec, CUgraphNode, CUstream};

use super::access::Access;
use super::{Op, Shared, Tag, operation, shared};
use crate::{Result, driver};

operation! {
    /// Does nothing. Its node joins the nodes that it waits for.
    EmptyOp(())
}

impl EmptyOp {
    /// Makes one.
    #[track_caller]
    pub fn new() -> EmptyOp {
        EmptyOp(Shared::new((), None, Tag::here()))
    }
}

impl Op for EmptyOp {
    shared!(Empty);

    fn add_to(
        &self,
        _: &CudaContext,
        graph: CUgraph,
        after: &[CUgraphNode],
    ) -> Result<CUgraphNode> {
        driver::node::add_empty(graph, after)
    }

    fn set(&self, _: &CudaContext, _: CUgraphNode, _: Option<&Self>) -> Result<()> {
        Ok(())
    }

    fn set_in(&self, _: &CudaContext, _: CUgraphExec, _: CUgraphNode) -> Result<()> {
        Ok(())
    }

    fn is_same(&self, _: &Self) -> bool {
        true
    }

    fn accesses(&self) -> Option<Vec<Access>> {
        Some(Vec::new())
    }

    fn run(&self, _: CUstream) -> Option<Result<()>> {
        Some(Ok(()))
    }

    fn read(_: CUgraphNode) -> Result<EmptyOp> {
        Ok(EmptyOp(Shared::new((), None, Tag::default())))
    }
}
