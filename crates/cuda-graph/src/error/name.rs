//! What errors and pictures call nodes.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use cudarc::driver::sys::CUgraphNodeType;

/// The kinds of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are CUDA's own")]
pub enum NodeKind {
    Kernel,
    Copy,
    Fill,
    Host,
    Child,
    Empty,
    WaitEvent,
    RecordEvent,
    SignalSemaphores,
    WaitSemaphores,
    Alloc,
    Free,
    Batch,
    Conditional,
    /// A kind that this library does not know.
    Other(u32),
}

/// Each kind with the driver's number and its name in errors.
const NAMES: [(CUgraphNodeType, NodeKind, &str); 14] = {
    use CUgraphNodeType as T;
    use NodeKind as K;
    [
        (T::CU_GRAPH_NODE_TYPE_KERNEL, K::Kernel, "kernel"),
        (T::CU_GRAPH_NODE_TYPE_MEMCPY, K::Copy, "copy"),
        (T::CU_GRAPH_NODE_TYPE_MEMSET, K::Fill, "fill"),
        (T::CU_GRAPH_NODE_TYPE_HOST, K::Host, "host"),
        (T::CU_GRAPH_NODE_TYPE_GRAPH, K::Child, "child graph"),
        (T::CU_GRAPH_NODE_TYPE_EMPTY, K::Empty, "empty"),
        (T::CU_GRAPH_NODE_TYPE_WAIT_EVENT, K::WaitEvent, "event wait"),
        (
            T::CU_GRAPH_NODE_TYPE_EVENT_RECORD,
            K::RecordEvent,
            "event record",
        ),
        (
            T::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL,
            K::SignalSemaphores,
            "semaphore signal",
        ),
        (
            T::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
            K::WaitSemaphores,
            "semaphore wait",
        ),
        (T::CU_GRAPH_NODE_TYPE_MEM_ALLOC, K::Alloc, "alloc"),
        (T::CU_GRAPH_NODE_TYPE_MEM_FREE, K::Free, "free"),
        (
            T::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
            K::Batch,
            "batch memory operation",
        ),
        (
            T::CU_GRAPH_NODE_TYPE_CONDITIONAL,
            K::Conditional,
            "conditional",
        ),
    ]
};

impl NodeKind {
    pub(crate) fn from_driver(kind: u32) -> NodeKind {
        let named = NAMES.iter().find(|(driver, ..)| *driver as u32 == kind);
        named.map_or(NodeKind::Other(kind), |(_, kind, _)| *kind)
    }

    /// Whether a body of a conditional node may hold a node of this kind. The driver decides about
    /// kinds that this library does not know.
    pub(crate) fn fits_in_body(self) -> bool {
        use NodeKind as K;
        matches!(
            self,
            K::Kernel | K::Copy | K::Fill | K::Empty | K::Child | K::Conditional | K::Other(_)
        )
    }
}

impl fmt::Display for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, kind, _)| kind == self) {
            Some((.., name)) => f.write_str(name),
            None => match self {
                NodeKind::Other(kind) => write!(f, "kind {kind}"),
                _ => unreachable!("every other kind has a name"),
            },
        }
    }
}

/// A node as errors name it: its kind, its number, its kernel, its label, and the source line that
/// made its operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName {
    /// The kind.
    pub kind: NodeKind,
    /// The number, counted from 0 in the order in which this library saw the graph's nodes. An
    /// operation that is no node yet has none.
    pub index: Option<u32>,
    /// The kernel's name.
    pub kernel: Option<String>,
    /// The label.
    pub label: Option<Arc<str>>,
    /// Where the operation was made.
    pub location: Option<&'static Location<'static>>,
}

impl NodeName {
    /// A node of which only the kind is known.
    pub(crate) fn of_kind(kind: NodeKind, index: impl Into<Option<u32>>) -> NodeName {
        NodeName {
            kind,
            index: index.into(),
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
