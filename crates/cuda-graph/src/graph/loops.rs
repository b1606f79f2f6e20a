//! Loops of branches that are recorded side by side.

use super::{Graph, NodeId};
use crate::{Error, Result};

/// The nodes of a way through a graph that are loops, or have loops inside: the first and the last of them. They run one
/// after the other (invariant L16).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loops {
    ends: Option<(NodeId, NodeId)>,
}

impl Loops {
    /// `node` comes after the others.
    pub(crate) fn add(&mut self, node: NodeId) {
        self.append(Loops {
            ends: Some((node, node)),
        });
    }

    /// `later` come after the others.
    pub(crate) fn append(&mut self, later: Loops) {
        self.ends = match (self.ends, later.ends) {
            (Some((first, _)), Some((_, last))) => Some((first, last)),
            (ends, None) | (None, ends) => ends,
        };
    }

    /// Has `beside`, those of another branch of `graph`, wait for these, and takes them in.
    pub(crate) fn chain(&mut self, graph: &Graph, beside: Loops) -> Result<()> {
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
