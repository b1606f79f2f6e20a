//! Running a graph as one node of another.

use std::fmt;

use cudarc::driver::sys::CUgraphNode;
use smallvec::SmallVec;

use super::{Graph, View};
use crate::collective::Communicator;
use crate::op::{Op, Shared, Tag, operation, shared};
use crate::{Error, Result};

operation! {
    /// Runs an embedded copy of a graph.
    ///
    /// The graph is copied when the operation is added or updated, with all that its nodes hold.
    /// Later changes of the original do not reach the copy. [`Graph::child`] gives a view of the
    /// copy.
    ChildOp(View)
}

impl ChildOp {
    /// Embeds a copy of `graph`.
    #[track_caller]
    pub fn new(graph: &Graph) -> ChildOp {
        ChildOp::of(graph.view(), Tag::here())
    }

    /// The operation of a node whose embedded graph is `graph`.
    pub(super) fn of(graph: View, tag: Tag) -> ChildOp {
        ChildOp(Shared::new(graph, None, tag))
    }

    /// The graph: the original, or for an operation read back from a node, the embedded copy.
    pub fn graph(&self) -> Graph {
        Graph::from_view(self.0.value.clone())
    }

    /// The communicators that it has collectives of.
    pub(crate) fn communicators(&self) -> SmallVec<[Communicator; 1]> {
        let view = self.view();
        view.hierarchy.look().communicators(view.body)
    }

    pub(crate) fn view(&self) -> &View {
        &self.0.value
    }
}

impl Op for ChildOp {
    shared!(Child);

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " of {:?}", self.view())
    }

    fn read(_: CUgraphNode) -> Result<ChildOp> {
        Err(Error::GraphGone)
    }
}
