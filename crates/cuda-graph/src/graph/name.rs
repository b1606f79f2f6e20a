//! What to call a node in an error or a picture.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use super::state::Slot;
use crate::op::{AnyOp, NodeKind};

/// A node as errors name it: its kind, its number in its graph, its kernel, its label, and where its operation was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName {
    /// The kind.
    pub kind: NodeKind,
    /// The number, counted from 0 in the order in which this library saw the graph's nodes; none before it was added.
    pub index: Option<u32>,
    /// The kernel's name.
    pub kernel: Option<String>,
    /// The label.
    pub label: Option<Arc<str>>,
    /// Where the operation was made.
    pub location: Option<&'static Location<'static>>,
}

impl NodeName {
    pub(crate) fn of_op(op: &AnyOp) -> NodeName {
        NodeName {
            kind: op.kind(),
            index: None,
            kernel: match op {
                AnyOp::Kernel(op) => Some(op.kernel().name().to_owned()),
                _ => None,
            },
            label: op.tag().label.clone(),
            location: op.tag().location,
        }
    }

    pub(super) fn of_slot(index: u32, slot: &Slot) -> NodeName {
        NodeName {
            kind: slot.kind,
            index: Some(index),
            kernel: match slot.content.op() {
                Some(AnyOp::Kernel(op)) => Some(op.kernel().name().to_owned()),
                _ => None,
            },
            label: slot.content.tag().and_then(|tag| tag.label.clone()),
            location: slot.content.tag().and_then(|tag| tag.location),
        }
    }

    pub(super) fn unknown(index: u32) -> NodeName {
        NodeName {
            kind: NodeKind::Other(u32::MAX),
            index: Some(index),
            kernel: None,
            label: None,
            location: None,
        }
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} node", self.kind)?;
        if let Some(index) = self.index {
            write!(f, " {index}")?;
        }
        if let Some(kernel) = &self.kernel {
            write!(f, " `{kernel}`")?;
        }
        if let Some(label) = &self.label {
            write!(f, " \"{label}\"")?;
        }
        if let Some(location) = self.location {
            write!(f, " ({location})")?;
        }
        Ok(())
    }
}
