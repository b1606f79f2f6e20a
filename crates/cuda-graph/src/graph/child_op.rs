//! Running a graph as one node of another.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraphNode, CUgraphNodeParams};

use super::{Graph, View};
use crate::error::NodeKind;
use crate::op::{Op, Tag, labelled, shared_tag};
use crate::{Error, Result};

/// Runs an embedded copy of a graph.
///
/// The graph is copied when the operation is added or updated, with all that its nodes hold. Later
/// changes of the original do not reach the copy. [`Graph::child`] gives a view of the copy.
#[derive(Clone)]
pub struct ChildOp {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    graph: View,
    tag: Tag,
}

labelled!(ChildOp);

impl ChildOp {
    /// Embeds a copy of `graph`.
    #[track_caller]
    pub fn new(graph: &Graph) -> ChildOp {
        ChildOp::of(graph.view(), Tag::here())
    }

    /// The operation of a node whose embedded graph is `graph`.
    pub(super) fn of(graph: View, tag: Tag) -> ChildOp {
        ChildOp {
            inner: Arc::new(Inner { graph, tag }),
        }
    }

    /// The graph: the original, or for an operation read back from a node, the embedded copy.
    pub fn graph(&self) -> Graph {
        Graph::from_view(self.inner.graph.clone())
    }

    pub(crate) fn view(&self) -> &View {
        &self.inner.graph
    }
}

impl Op for ChildOp {
    shared_tag!(inner);

    fn kind(&self) -> NodeKind {
        NodeKind::Child
    }

    fn with_params<R>(
        &self,
        _: &CudaContext,
        _: impl FnOnce(&mut CUgraphNodeParams) -> R,
    ) -> Result<R> {
        unreachable!("the graph layer embeds graphs")
    }

    fn read(_: CUgraphNode) -> Result<ChildOp> {
        Err(Error::GraphGone)
    }
}

impl fmt::Debug for ChildOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { graph, tag } = &*self.inner;
        write!(f, "ChildOp of {graph:?} made at {tag:?}")
    }
}
