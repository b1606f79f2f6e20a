//! Running a graph as one node of another.

use std::fmt;

use super::{Tag, tagged};
use crate::graph::{Graph, View};

/// Runs an embedded copy of a graph.
///
/// The driver copies the graph when the operation is added or updated, with all that its nodes hold; later changes of the original do
/// not reach the copy. The copy is reached by [`Graph::child`](crate::Graph::child).
#[derive(Clone)]
pub struct ChildOp {
    pub(crate) graph: View,
    pub(crate) tag: Tag,
}

tagged!(ChildOp);

impl ChildOp {
    /// Embeds a copy of `graph`.
    #[track_caller]
    pub fn new(graph: &Graph) -> ChildOp {
        ChildOp {
            graph: graph.view(),
            tag: Tag::here(),
        }
    }

    /// The operation of a node whose embedded graph is `graph`.
    pub(crate) fn of(graph: View, tag: Tag) -> ChildOp {
        ChildOp { graph, tag }
    }

    /// The graph: the original, or for an operation read back from a node, the embedded copy.
    pub fn graph(&self) -> Graph {
        Graph::from_view(self.graph.clone())
    }
}

impl fmt::Debug for ChildOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChildOp of {:?} made at {:?}", self.graph, self.tag)
    }
}
