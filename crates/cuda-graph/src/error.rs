//! What can go wrong, saying what, where and what to do about it.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use cudarc::driver::DriverError;

use crate::capture::CaptureInvalidated;
use crate::graph::NodeName;
use crate::op::NodeKind;
use crate::{Driver, UpdateFailure};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no driver to run on.
    #[error("no CUDA driver to run on: {looked_for}. {remedy}")]
    NoDriver {
        /// What was looked for, and what came of it.
        looked_for: String,
        /// What to do about it.
        remedy: &'static str,
    },

    /// The environment variable `CUDA_GRAPH_DRIVER` has a value that means nothing.
    #[error("CUDA_GRAPH_DRIVER is `{value}`: it takes `auto`, `gpu` or `software`")]
    UnknownDriver {
        /// Its value.
        value: String,
    },

    /// There is no device of this number.
    #[error("no device {ordinal}: the {driver} driver has {count}, counted from 0")]
    NoDevice {
        /// The device asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
        /// The driver that was asked.
        driver: Driver,
    },

    /// A call of the driver failed.
    #[error("{call} failed: {source}")]
    Call {
        /// The driver function.
        call: &'static str,
        /// What it answered.
        source: DriverError,
    },

    /// The driver is too old for what was asked.
    #[error("{what} needs {needs}, and this is {have}")]
    Unsupported {
        /// What was asked.
        what: &'static str,
        /// What that takes.
        needs: String,
        /// What there is.
        have: String,
    },

    /// Something went wrong about one node.
    #[error("{action} the {node}: {source}")]
    Node {
        /// What was done to it.
        action: &'static str,
        /// The node.
        node: Box<NodeName>,
        /// What went wrong.
        source: Box<Error>,
    },

    /// A kernel takes another number of arguments.
    #[error("kernel `{kernel}` takes {wants} arguments and got {got}")]
    ArgumentCount {
        /// The kernel.
        kernel: Box<str>,
        /// How many it takes.
        wants: usize,
        /// How many it got.
        got: usize,
    },

    /// An argument of a kernel has another size.
    #[error("argument {index} of kernel `{kernel}` takes {wants} bytes and got {got}")]
    ArgumentSize {
        /// The kernel.
        kernel: Box<str>,
        /// Which argument, counted from 0.
        index: usize,
        /// The bytes that it takes.
        wants: usize,
        /// The bytes that it got.
        got: usize,
    },

    /// Two things that are to have one size differ.
    #[error("{what}: {wants} bytes are wanted and {got} given")]
    SizeMismatch {
        /// What was to be done.
        what: &'static str,
        /// The bytes wanted.
        wants: usize,
        /// The bytes given.
        got: usize,
    },

    /// A range does not lie within what it is a part of.
    #[error("{start}..{end} does not lie within 0..{len}")]
    OutOfRange {
        /// Where it starts.
        start: usize,
        /// Where it ends.
        end: usize,
        /// How much there is.
        len: usize,
    },

    /// An operation that means nothing.
    #[error("{why}")]
    InvalidOperation {
        /// Why.
        why: String,
    },

    /// The graph is gone: the node that it was embedded in was destroyed or given another graph, or its root's last handle dropped.
    #[error(
        "the graph is gone: the node it was embedded in was destroyed or updated, or its last handle was dropped"
    )]
    GraphGone,

    /// The node was destroyed.
    #[error("the {node} was destroyed")]
    NodeGone {
        /// The node.
        node: Box<NodeName>,
    },

    /// The node is one of another graph.
    #[error("{kind} node {node} is one of another graph")]
    ForeignNode {
        /// Its number there.
        node: u32,
        /// Its kind.
        kind: NodeKind,
    },

    /// The node has no copy in the graph.
    #[error("the {node} has no copy in that graph")]
    NotInClone {
        /// The node.
        node: Box<NodeName>,
    },

    /// The node was added after the executable was made.
    #[error("the {node} was added after the executable was made")]
    NotInExecutable {
        /// The node.
        node: Box<NodeName>,
    },

    /// The node's operation is of another kind.
    #[error("the node is of kind {is}, not {wanted}")]
    WrongKind {
        /// The node's kind.
        is: NodeKind,
        /// The kind asked for.
        wanted: NodeKind,
    },

    /// A node is named twice where each counts once.
    #[error("the {node} is named twice")]
    DuplicateNode {
        /// The node.
        node: Box<NodeName>,
    },

    /// An edge from a node to itself.
    #[error("the {node} cannot wait for itself")]
    SelfEdge {
        /// The node.
        node: Box<NodeName>,
    },

    /// The edge is there already.
    #[error("the {to} waits for the {from} already")]
    DuplicateEdge {
        /// What is waited for.
        from: Box<NodeName>,
        /// What waits.
        to: Box<NodeName>,
    },

    /// There is no such edge.
    #[error("the {to} does not wait for the {from}")]
    NoEdge {
        /// What would be waited for.
        from: Box<NodeName>,
        /// What would wait.
        to: Box<NodeName>,
    },

    /// The edge would close a cycle.
    #[error("the {to} cannot wait for the {from}, which waits for it in turn: that is a cycle")]
    Cycle {
        /// What would be waited for.
        from: Box<NodeName>,
        /// What would wait.
        to: Box<NodeName>,
    },

    /// A graph embedded in itself, or in something embedded in it.
    #[error("a graph cannot be embedded in itself{}", At(*.location))]
    SelfEmbed {
        /// Where the operation was made.
        location: Option<&'static Location<'static>>,
    },

    /// A graph could not be instantiated.
    #[error("the graph cannot be instantiated: {reason}{}: {source}", Of(.node))]
    Instantiate {
        /// Why.
        reason: InstantiateFailure,
        /// The node at fault, where the driver names one.
        node: Option<Box<NodeName>>,
        /// What the driver answered.
        source: DriverError,
    },

    /// An executable could not be updated; it is what it was.
    #[error("the executable cannot be updated: {reason}{}: {source}", Of(.node))]
    Update {
        /// Why.
        reason: UpdateFailure,
        /// The node of the new definition at fault, where the driver names one.
        node: Option<Box<NodeName>>,
        /// What the driver answered.
        source: DriverError,
    },

    /// The launch attributes of a kernel node are fixed when the graph is instantiated.
    #[error(
        "the {node} cannot change its launch attributes in an executable: update the whole executable from a definition"
    )]
    AttributesFixed {
        /// The node.
        node: Box<NodeName>,
    },

    /// The executable was not made from a graph that this library knows, so its nodes cannot be named.
    #[error(
        "the executable's nodes cannot be told: it came from a raw handle without its graph, or a capture into its graph failed since, and the \
         graph was restored from a copy"
    )]
    UnknownSource,

    /// A call that did not go through this library failed.
    #[error("a call of other code failed: {source}")]
    Foreign {
        /// What the driver answered.
        source: DriverError,
    },

    /// An error of other code, handed through by [`Error::other`].
    #[error("{0}")]
    Other(Arc<dyn std::error::Error + Send + Sync>),

    /// The stream is being captured already.
    #[error("the stream is being captured already{}: end that capture first", BegunAt(*.begun))]
    AlreadyCapturing {
        /// Where that capture was begun, if this library began it.
        begun: Option<&'static Location<'static>>,
    },

    /// A capture came to nothing. Its streams take new work again.
    #[error("{0}")]
    CaptureInvalidated(Box<CaptureInvalidated>),

    /// A body of a conditional node holds kernels, copies of memory that is not pageable, fills, graphs, conditional nodes and nothing else.
    #[error(
        "a body of a conditional node cannot hold the {node}: it holds kernels, copies of memory that is not pageable, fills, empty nodes, \
         graphs and conditional nodes"
    )]
    NotInBody {
        /// What was to be added.
        node: Box<NodeName>,
    },

    /// A condition belongs to the graph that made it, with all that is embedded there.
    #[error(
        "the condition is one of another graph: nodes look at, and kernels set, conditions that their own graph made"
    )]
    ForeignCondition,

    /// A branch was to be joined with others than those that it was split off with.
    #[error("a branch of another split cannot be joined here")]
    ForeignBranch,

    /// A picture could not be drawn or read.
    #[error("the picture: {why}")]
    Picture {
        /// Why.
        why: String,
    },
}

/// Why a graph cannot be instantiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InstantiateFailure {
    /// The driver failed for a reason of its own.
    Driver,
    /// The structure is not that of a graph, as with a cycle.
    InvalidStructure,
    /// Some node's operation is not supported in this place, or with these options.
    OperationNotSupported,
    /// The nodes belong to several contexts.
    SeveralContexts,
    /// A condition handle is used by no conditional node.
    ConditionUnused,
    /// A graph with conditional or allocation nodes has one executable at a time, and this one may have one.
    HasExecutable,
    /// A reason that this library does not know.
    Other(u32),
}

impl fmt::Display for InstantiateFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InstantiateFailure::Driver => "the driver failed",
            InstantiateFailure::InvalidStructure => "its structure is invalid",
            InstantiateFailure::OperationNotSupported => "an operation is not supported here",
            InstantiateFailure::SeveralContexts => "its nodes belong to several contexts",
            InstantiateFailure::ConditionUnused => "a condition is used by no conditional node",
            InstantiateFailure::HasExecutable => {
                "a graph with conditional or allocation nodes has one executable at a time: drop that first"
            }
            InstantiateFailure::Other(reason) => return write!(f, "reason {reason}"),
        })
    }
}

struct BegunAt(Option<&'static Location<'static>>);

impl fmt::Display for BegunAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(location) => write!(f, ", begun at {location}"),
            None => Ok(()),
        }
    }
}

struct At(Option<&'static Location<'static>>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(location) => write!(f, " ({location})"),
            None => Ok(()),
        }
    }
}

struct Of<'a>(&'a Option<Box<NodeName>>);

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(node) => write!(f, " ({node})"),
            None => Ok(()),
        }
    }
}

impl Error {
    /// Names the node that it is about.
    #[cold]
    pub(crate) fn about(self, node: NodeName, action: &'static str) -> Error {
        Error::Node {
            action,
            node: Box::new(node),
            source: Box::new(self),
        }
    }

    /// An error of other code, to leave a closure of this library with.
    pub fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Other(Arc::new(error))
    }

    /// Whether the driver is too old.
    pub(crate) fn is_unsupported(&self) -> bool {
        match self {
            Error::Unsupported { .. } => true,
            Error::Node { source, .. } => source.is_unsupported(),
            _ => false,
        }
    }

    /// Names the call that failed.
    pub(crate) fn call(call: &'static str) -> impl FnOnce(DriverError) -> Error {
        move |source| Error::Call { call, source }
    }
}

impl From<DriverError> for Error {
    /// An answer that cudarc got, so that `?` works between its calls and this library's.
    fn from(source: DriverError) -> Error {
        Error::Foreign { source }
    }
}
