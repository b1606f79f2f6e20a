//! What errors and pictures call nodes.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use cudarc::driver::sys::CUgraphNodeType;

use super::or_nothing;

/// Declares the kinds, each with the driver's name for it and its name in errors.
macro_rules! kinds {
    ($($kind:ident = $driver:ident: $name:literal,)+) => {
        /// The kinds of nodes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "the names are CUDA's own")]
        pub enum NodeKind {
            $($kind,)+
            /// A kind that this library does not know.
            Other(u32),
        }

        impl NodeKind {
            pub(crate) fn from_driver(kind: u32) -> NodeKind {
                match kind {
                    $(_ if kind == CUgraphNodeType::$driver as u32 => NodeKind::$kind,)+
                    _ => NodeKind::Other(kind),
                }
            }
        }

        impl fmt::Display for NodeKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(NodeKind::$kind => f.write_str($name),)+
                    NodeKind::Other(kind) => write!(f, "kind {kind}"),
                }
            }
        }
    };
}

kinds! {
    Kernel = CU_GRAPH_NODE_TYPE_KERNEL: "kernel",
    Copy = CU_GRAPH_NODE_TYPE_MEMCPY: "copy",
    Fill = CU_GRAPH_NODE_TYPE_MEMSET: "fill",
    Host = CU_GRAPH_NODE_TYPE_HOST: "host",
    Child = CU_GRAPH_NODE_TYPE_GRAPH: "child graph",
    Empty = CU_GRAPH_NODE_TYPE_EMPTY: "empty",
    WaitEvent = CU_GRAPH_NODE_TYPE_WAIT_EVENT: "event wait",
    RecordEvent = CU_GRAPH_NODE_TYPE_EVENT_RECORD: "event record",
    SignalSemaphores = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL: "semaphore signal",
    WaitSemaphores = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT: "semaphore wait",
    Alloc = CU_GRAPH_NODE_TYPE_MEM_ALLOC: "alloc",
    Free = CU_GRAPH_NODE_TYPE_MEM_FREE: "free",
    Batch = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: "batch memory operation",
    Conditional = CU_GRAPH_NODE_TYPE_CONDITIONAL: "conditional",
}

impl NodeKind {
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
        let index = or_nothing(" ", &self.index, "");
        let kernel = or_nothing(" `", &self.kernel, "`");
        let label = or_nothing(" \"", &self.label, "\"");
        let location = or_nothing(" (", &self.location, ")");
        write!(f, "{} node{index}{kernel}{label}{location}", self.kind)
    }
}
