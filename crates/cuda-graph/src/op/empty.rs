//! Doing nothing, at one point of the order.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUstream,
};

use super::{Op, Tag, labelled};
use crate::error::NodeKind;
use crate::{Result, driver};

/// Does nothing. Its node joins the nodes that it waits for.
#[derive(Clone)]
pub struct EmptyOp {
    tag: Arc<Tag>,
}

labelled!(EmptyOp);

impl EmptyOp {
    /// Makes one.
    #[track_caller]
    #[expect(
        clippy::new_without_default,
        reason = "a default would not know where it was made"
    )]
    pub fn new() -> EmptyOp {
        EmptyOp {
            tag: Arc::new(Tag::here()),
        }
    }
}

impl Op for EmptyOp {
    fn kind(&self) -> NodeKind {
        NodeKind::Empty
    }

    fn tag(&self) -> &Tag {
        &self.tag
    }

    fn tag_mut(&mut self) -> &mut Tag {
        Arc::make_mut(&mut self.tag)
    }

    fn with_params<R>(
        &self,
        _: &CudaContext,
        call: impl FnOnce(&mut CUgraphNodeParams) -> R,
    ) -> Result<R> {
        let kind = CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
        Ok(call(&mut driver::node::blank(kind)))
    }

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

    fn run(&self, _: CUstream) -> Option<Result<()>> {
        Some(Ok(()))
    }

    fn read(_: CUgraphNode) -> Result<EmptyOp> {
        Ok(EmptyOp {
            tag: Arc::default(),
        })
    }
}

impl fmt::Debug for EmptyOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EmptyOp made at {:?}", self.tag)
    }
}
