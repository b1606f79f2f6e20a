//! Conditional nodes of branches that are recorded side by side.
//!
//! On an H200 (driver for CUDA 13.0, plain driver calls) a launch does not end whose body has two conditional nodes beside
//! each other and beside a third branch, and one fails that has four loops side by side. IFs and SWITCHes that stand in no
//! body and have none inside were never seen to.

use super::{Graph, NodeId};
use crate::{Error, Result};

/// Of a way through a graph the conditional nodes that are not to run at once: the first and the last of them. They run
/// one after the other (invariant L16).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InTurn {
    ends: Option<(NodeId, NodeId)>,
}

impl InTurn {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_none()
    }

    /// `node` comes after the others.
    pub(crate) fn add(&mut self, node: NodeId) {
        self.append(InTurn {
            ends: Some((node, node)),
        });
    }

    /// `later` come after the others.
    pub(crate) fn append(&mut self, later: InTurn) {
        self.ends = match (self.ends, later.ends) {
            (Some((first, _)), Some((_, last))) => Some((first, last)),
            (ends, None) | (None, ends) => ends,
        };
    }

    /// Has `beside`, those of another branch of `graph`, wait for these, and takes them in.
    pub(crate) fn chain(&mut self, graph: &Graph, beside: InTurn) -> Result<()> {
        if let (Some((_, last)), Some((first, _))) = (self.ends, beside.ends) {
            match graph.add_edge(last, first) {
                // One waits for the other as it is, or is there no more.
                Ok(())
                | Err(Error::DuplicateEdge { .. } | Error::Cycle { .. } | Error::NodeGone { .. }) =>
                    {}
                Err(error) => return Err(error),
            }
        }
        self.append(beside);
        Ok(())
    }
}
