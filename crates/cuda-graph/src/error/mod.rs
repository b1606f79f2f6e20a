//! What can go wrong: what, where, and what to do about it.
//!
//! An error's text is complete. It includes what the driver answered, so no error repeats itself
//! as its own [`source`](std::error::Error::source).

mod collective;
mod difference;
mod failure;
mod invalidated;
mod name;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

pub use collective::CollectiveFailure;
pub use difference::{Change, ChangedParameter, Difference, NodeParameter, Verdict, Within};
pub use failure::{InstantiateFailure, UpdateFailure};
pub use invalidated::{CaptureInvalidated, StrayWork};
pub use name::{NodeKind, NodeName};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate.
///
/// Sizes are in bytes, and counting begins at 0. `node` is the node that the error is about,
/// `wants` what was needed, `got` what there was, and `code` what the driver answered.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "what is not said here of a field, its name and the text say"
)]
pub enum Error {
    /// There is no driver to run on.
    #[error("no CUDA driver to run on: {looked_for}. {remedy}")]
    NoDriver {
        /// What was looked for, and what came of it.
        looked_for: String,
        remedy: &'static str,
    },

    /// The environment variable `CUDA_GRAPH_DRIVER` has an unknown value.
    #[error("CUDA_GRAPH_DRIVER is `{value}`: it takes `auto`, `gpu` or `software`")]
    UnknownDriver { value: String },

    /// There is no device of this number.
    #[error("no device {ordinal}: the {driver} driver has {count}, counted from 0")]
    NoDevice {
        ordinal: usize,
        count: usize,
        /// The driver that was asked: `gpu` or `software`.
        driver: &'static str,
    },

    /// A device cannot reach another's memory.
    #[error(
        "device {device} cannot reach the memory of device {peer}: copy through the host instead"
    )]
    NoPeerAccess {
        /// The device that was to reach.
        device: usize,
        /// The device whose memory it is.
        peer: usize,
    },

    /// A driver call failed.
    #[error("{call} failed: {code:?}")]
    Call {
        /// The driver function.
        call: &'static str,
        code: CUresult,
    },

    /// The driver refuses PTX.
    #[error("the driver refuses the PTX: {code:?}\n{log}")]
    PtxRefused {
        code: CUresult,
        /// What the driver's compiler says, with lines of the PTX; it may be cut off.
        log: Box<str>,
    },

    /// The module has no such kernel.
    #[error("the module has no kernel `{kernel}`")]
    UnknownKernel { kernel: Box<str> },

    /// A driver call failed that did not go through this library.
    #[error("a driver call of other code failed: {code:?}")]
    Foreign { code: CUresult },

    /// An error of other code, passed through by [`Error::other`].
    #[error(transparent)]
    Other(Arc<dyn std::error::Error + Send + Sync>),

    /// The driver is too old for what was asked.
    #[error("{what} needs {needs}, and this is {have}")]
    Unsupported {
        what: &'static str,
        needs: String,
        have: String,
    },

    /// An action on one node failed.
    #[error("{action} the {node}: {error}")]
    Node {
        /// What was done to it.
        action: &'static str,
        node: Box<NodeName>,
        error: Box<Error>,
    },

    /// A kernel takes another number of arguments.
    #[error("kernel `{kernel}` takes {wants} arguments and got {got}")]
    ArgumentCount {
        kernel: Box<str>,
        wants: usize,
        got: usize,
    },

    /// An argument of a kernel has another size.
    #[error("argument {index} of kernel `{kernel}` takes {wants} bytes and got {got}")]
    ArgumentSize {
        kernel: Box<str>,
        index: usize,
        wants: usize,
        got: usize,
    },

    /// A parameter has no value.
    #[error("the parameter `{name}` has no value: bind it first")]
    Unbound { name: Box<str> },

    /// No executable of a replay uses the parameter.
    #[error("no step that was called uses the parameter `{name}`")]
    UnusedParam { name: Box<str> },

    /// A replay cannot run without calling its step.
    #[error("the step must be given to `Replay::call`: {why}")]
    NotCalled { why: &'static str },

    /// The driver does not tell the arguments of a launch that other code made.
    #[error("the arguments of kernel `{kernel}` cannot be read: {why}")]
    UnknownArguments { kernel: Box<str>, why: &'static str },

    /// Two sizes differ that must be the same.
    #[error("{what}: {wants} bytes are wanted and {got} given")]
    SizeMismatch {
        /// What was to be done.
        what: &'static str,
        wants: usize,
        got: usize,
    },

    /// A range is not within what it is a part of.
    #[error("{start}..{end} is not within 0..{len}")]
    OutOfRange {
        start: usize,
        end: usize,
        len: usize,
    },

    /// Rows of `width` bytes, each from byte `start`, do not fit in their pitch.
    #[error("rows of {width} bytes from byte {start} do not fit in a pitch of {pitch} bytes")]
    PitchTooSmall {
        width: usize,
        start: usize,
        pitch: usize,
    },

    /// `height` rows from row `start` do not fit in a plane.
    #[error("{height} rows from row {start} do not fit in planes of {rows} rows")]
    PlaneTooSmall {
        height: usize,
        start: usize,
        rows: usize,
    },

    /// A region is not a whole number of values.
    #[error("{bytes} bytes are no whole number of values of {size} bytes")]
    NotWhole { bytes: usize, size: usize },

    /// A fill takes values of 1 to 256 bytes. Copy longer ones.
    #[error("a fill takes values of 1 to 256 bytes, and got one of {bytes}: copy it instead")]
    FillValueSize { bytes: usize },

    /// An address is not aligned to the values there.
    #[error("{address:#x} is not aligned to values of {size} bytes")]
    Misaligned { address: u64, size: usize },

    /// The graph is gone. The node that held it was destroyed or updated, or the graph was never
    /// completed.
    #[error("the graph is gone: the node that held it was destroyed or updated")]
    GraphGone,

    /// The node was destroyed.
    #[error("the {node} was destroyed")]
    NodeGone { node: Box<NodeName> },

    /// The node belongs to another graph, where it has number `node`.
    #[error("{kind} node {node} belongs to another graph")]
    ForeignNode { node: u32, kind: NodeKind },

    /// The node has no copy in the graph.
    #[error("the {node} has no copy in that graph")]
    NotInClone { node: Box<NodeName> },

    /// The executable does not have the node.
    #[error(
        "the executable does not have the {node}: it was added later, or is outside of its graph"
    )]
    NotInExecutable { node: Box<NodeName> },

    /// The operation is of another kind than the node.
    #[error("the node is of kind {is}, not {wanted}")]
    WrongKind { is: NodeKind, wanted: NodeKind },

    /// The node does another operation of its kind than asked for: an if and not a loop, or a fill
    /// by a kernel and no launch of the program's.
    #[error("the {node} does another operation of its kind, such as an if and not a loop")]
    WrongBranching { node: Box<NodeName> },

    /// Nobody holds what the operation uses. It was read from a node that other code made, or from
    /// raw parameters.
    #[error(
        "the operation was read from the driver, so nobody holds what the {node} uses: take \
         responsibility with the unsafe `assume_owned`"
    )]
    Unowned { node: Box<NodeName> },

    /// What the node does cannot be told: other code made it, or an update replaced what was known.
    #[error("what the {node} does is not known here")]
    UnknownOperation { node: Box<NodeName> },

    /// A node is named twice where each counts once.
    #[error("the {node} is named twice")]
    DuplicateNode { node: Box<NodeName> },

    /// An edge from a node to itself.
    #[error("the {node} cannot wait for itself")]
    SelfEdge { node: Box<NodeName> },

    /// The edge exists already, or is named twice.
    #[error("the {to} waits for the {from} already")]
    DuplicateEdge {
        from: Box<NodeName>,
        to: Box<NodeName>,
    },

    /// There is no such edge.
    #[error("the {to} does not wait for the {from}")]
    NoEdge {
        from: Box<NodeName>,
        to: Box<NodeName>,
    },

    /// The edge would close a cycle.
    #[error("the {to} cannot wait for the {from}, which waits for it in turn: that is a cycle")]
    Cycle {
        from: Box<NodeName>,
        to: Box<NodeName>,
    },

    /// A graph embedded in itself, or in something embedded in it.
    #[error("a graph cannot be embedded in itself{}", or_nothing(" (", .location, ")"))]
    SelfEmbed {
        /// Where the operation was made.
        location: Option<&'static Location<'static>>,
    },

    /// A graph could not be instantiated.
    #[error("the graph cannot be instantiated: {reason}{}: {code:?}", or_nothing(" (", .node, ")"))]
    Instantiate {
        reason: InstantiateFailure,
        /// The node at fault, where the driver names one.
        node: Option<Box<NodeName>>,
        code: CUresult,
    },

    /// Two conditional nodes could run side by side that must take turns.
    #[error(
        "the {first} and the {second} could run side by side, which drivers fail on: add an edge \
         between them, or instantiate with `loops_at_once`"
    )]
    SideBySide {
        first: Box<NodeName>,
        second: Box<NodeName>,
    },

    /// An executable could not be updated. It is what it was.
    #[error(
        "the executable cannot be updated: {reason}{}: {code:?}{}",
        or_nothing(" (", .node, ")"),
        difference::in_short(.difference)
    )]
    Update {
        reason: UpdateFailure,
        /// The node of the new definition at fault, where the driver names one.
        node: Option<Box<NodeName>>,
        code: CUresult,
        /// What is different about the new definition, where what the executable is made of is
        /// known: [`Exec::diff`](crate::Exec::diff).
        difference: Option<Arc<Difference>>,
    },

    /// The launch attributes of a kernel node are fixed when the graph is instantiated.
    #[error(
        "the {node} cannot change its launch attributes in an executable: update the whole \
         executable from a definition"
    )]
    AttributesFixed { node: Box<NodeName> },

    /// A conditional node stays what it is. Change what its bodies hold, or set its condition.
    #[error(
        "the {node} stays what it is: change or disable what its bodies hold, or set its condition"
    )]
    ConditionalFixed { node: Box<NodeName> },

    /// The node has no body.
    #[error("the {node} has no body")]
    NoBody { node: Box<NodeName> },

    /// The executable came as a raw handle without its graph.
    #[error("the executable came as a raw handle without its graph, so its nodes are not known")]
    UnknownSource,

    /// The stream is being captured.
    #[error(
        "the stream is being captured{}: end that capture first",
        or_nothing(" since ", .begun, "")
    )]
    AlreadyCapturing {
        /// Where that capture was begun, if this library began it.
        begun: Option<&'static Location<'static>>,
    },

    /// The stream is not being captured, so no capture can be joined.
    #[error("the stream is not being captured")]
    NotCapturing,

    /// A capture was invalidated. Its streams take new work again.
    #[error("{0}")]
    CaptureInvalidated(Box<CaptureInvalidated>),

    /// Work reached the stream of a recording outside of a foreign block.
    #[error("{0}")]
    StrayWork(Box<StrayWork>),

    /// The recorder has no stream, so it cannot record foreign work.
    #[error("this recorder has no stream for foreign work: record with `Graph::capture`")]
    NoStream,

    /// No graph holds what the host does between two parts of a step.
    #[error("no graph holds a section for the host: give the step to a `Replay` or an `Eager`")]
    OutsideGraph,

    /// Two checkpoints of a step have one name.
    #[error("the step has a checkpoint `{name}` already")]
    DuplicateCheckpoint { name: Box<str> },

    /// A step cannot stop here.
    #[error(
        "no checkpoint can be here: they go into steps recorded by a closure, and not into \
         branches of a parallel part"
    )]
    CheckpointHere,

    /// A step has no checkpoint of this name, or did not come to it.
    #[error("the step did not come to a checkpoint `{name}`")]
    UnknownCheckpoint { name: Box<str> },

    /// The last call did not stop at a checkpoint.
    #[error("the last call did not stop at a checkpoint")]
    NotStopped,

    /// Another call was made since: what came of this one is not known any more.
    #[error("another call was made since: what came of this one is not known any more")]
    OutcomeGone,

    /// The stream is one of another context.
    #[error("the stream belongs to another context than what it is to run")]
    ForeignStream,

    /// The recording is over: it ended, or was abandoned.
    #[error("the recording is over")]
    RecordingOver,

    /// A thread's own default stream is a different stream in each thread.
    #[error(
        "a thread's own default stream is a different stream in each thread that uses it: use a \
         stream made with `CudaContext::new_stream`"
    )]
    PerThreadStream,

    /// A body of a conditional node cannot hold the operation.
    #[error(
        "a body of a conditional node cannot hold the {node}: it holds kernels, copies of memory \
         that is not pageable, fills, empty nodes, graphs and conditional nodes"
    )]
    NotInBody { node: Box<NodeName> },

    /// Foreign work with a conditional node is only a graph by itself: the driver embeds none.
    #[error(
        "foreign work with conditional nodes cannot be embedded: record loops and branches with \
         this library, or record nothing beside the block"
    )]
    ForeignConditional,

    /// A condition belongs to the graph that made it, with all that is embedded there.
    #[error(
        "the condition belongs to another graph: nodes look at, and kernels set, conditions that \
         their own graph made"
    )]
    ForeignCondition,

    /// A kernel that sets a condition runs in the graph of the condition alone.
    #[error("a kernel that sets a condition cannot run outside of the condition's graph")]
    ConditionOutsideGraph,

    /// A switch without a case.
    #[error("a switch needs a case")]
    EmptySwitch,

    /// A branch was to be joined with others than those that it was split off with.
    #[error("a branch of another split cannot be joined here")]
    ForeignBranch,

    /// A capture that goes into a graph that exists cannot be split.
    #[error("a capture into an existing graph cannot be split: record branches with `parallel`")]
    SplitAside,

    /// A communicator failed. It is of no use any more; the devices are.
    #[error("the communicator failed, says rank {rank} of {size}: {failure}")]
    Communicator {
        /// The rank that was asked.
        rank: u32,
        size: u32,
        failure: Box<CollectiveFailure>,
    },

    /// A communicator cannot be made as it was asked for.
    #[error("no such communicator: {why}")]
    NoCommunicator { why: Box<str> },

    /// A call of NCCL failed.
    #[error("{call} failed: {why}; NCCL_DEBUG=WARN has it say more")]
    Nccl {
        /// NCCL's function.
        call: &'static str,
        /// What NCCL says of it.
        why: Box<str>,
    },

    /// NCCL does a collective by something else than one kernel, which graphs do not take.
    #[error(
        "NCCL does this by nodes of the kinds {kinds:?}, not by one kernel (0), and graphs take no \
         other: set NCCL_GRAPH_MIXING_SUPPORT=0 before NCCL's first call; between machines NCCL \
         needs the host, which is not supported"
    )]
    NotOneKernel {
        /// `CUgraphNodeType` of each node.
        kinds: Vec<u32>,
    },

    /// A communicator has no such rank.
    #[error("{what} is rank {rank}, and the communicator has {size} ranks, counted from 0")]
    NoRank {
        /// What is to be a rank.
        what: &'static str,
        rank: u32,
        size: u32,
    },

    /// Memory of a collective overlaps other memory of it in part.
    #[error(
        "{what} overlap: give the same memory for both where that can be done in place, or \
         memory that does not overlap"
    )]
    Overlap { what: &'static str },

    /// No device reaches the memory: it is pageable memory of the host.
    #[error("{what} is pageable memory of the host, which collectives do not reach: use a buffer")]
    Pageable { what: &'static str },

    /// Something belongs to another context than the communicator.
    #[error("{what} belongs to another context than rank {rank} of the communicator")]
    ForeignRank { what: &'static str, rank: u32 },

    /// A node is to do a collective of another communicator.
    #[error(
        "the {node} stays with its communicator: loops and branches around it were made for that"
    )]
    CommunicatorFixed { node: Box<NodeName> },

    /// Two collectives of one communicator could run side by side.
    #[error(
        "the {first} and the {second} are of one communicator and could run side by side: add an \
         edge between them"
    )]
    CollectivesAtOnce {
        first: Box<NodeName>,
        second: Box<NodeName>,
    },

    /// A graph has collectives of several ranks of one communicator.
    #[error(
        "a graph has collectives of ranks {ranks:?} of one communicator, which would wait for each \
         other: give each rank a graph"
    )]
    RanksInOneGraph { ranks: [u32; 2] },

    /// The body of a loop, and what is inside of it, has collectives of more communicators than a
    /// loop looks at.
    #[error(
        "a loop has collectives of {count} communicators, and takes {most}: take some out of it"
    )]
    ManyCommunicators { count: usize, most: usize },

    /// A graph with loops holds collectives between ranks that share a GPU.
    #[error(
        "ranks {ranks:?} share a GPU, whose driver fails on loops of several launches: give \
         each rank a GPU, or take the collectives out of loops"
    )]
    LoopsShareDevice { ranks: Vec<u32> },

    /// A picture could not be drawn or read.
    #[error("the picture: {why}")]
    Picture { why: String },
}

/// Says `what` between `before` and `after`, or nothing where there is none.
fn or_nothing(before: &str, what: &Option<impl fmt::Display>, after: &str) -> String {
    let text = what.as_ref().map(|what| format!("{before}{what}{after}"));
    text.unwrap_or_default()
}

impl Error {
    /// The driver's answer, where there is one.
    pub fn code(&self) -> Option<CUresult> {
        match self.root() {
            Error::Call { code, .. }
            | Error::PtxRefused { code, .. }
            | Error::Foreign { code }
            | Error::Instantiate { code, .. }
            | Error::Update { code, .. } => Some(*code),
            Error::CaptureInvalidated(why) => Some(why.code()),
            _ => None,
        }
    }

    /// What went wrong, whatever node it is about.
    fn root(&self) -> &Error {
        match self {
            Error::Node { error, .. } => error.root(),
            error => error,
        }
    }

    /// An error of other code, to leave a closure of this library with.
    pub fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Other(Arc::new(error))
    }

    /// Names the node that it is about.
    #[cold]
    pub(crate) fn about(self, node: NodeName, action: &'static str) -> Error {
        Error::Node {
            action,
            node: Box::new(node),
            error: Box::new(self),
        }
    }

    /// Whether no graph can be made of it, so that it runs eagerly: the driver is too old, or NCCL
    /// needs more than a kernel.
    pub(crate) fn is_unsupported(&self) -> bool {
        matches!(
            self.root(),
            Error::Unsupported { .. } | Error::NotOneKernel { .. }
        )
    }

    /// Whether it is this answer of the driver.
    pub(crate) fn is(&self, answer: CUresult) -> bool {
        matches!(self, Error::Call { code, .. } if *code == answer)
    }

    /// The driver's answer, where a capture caused it.
    pub(crate) fn capture_code(&self) -> Option<CUresult> {
        match self.root() {
            Error::Call { code, .. } | Error::Foreign { code } => Some(*code),
            _ => None,
        }
        .filter(|code| is_capture_code(*code))
    }

    /// Names the call that failed.
    pub(crate) fn call(call: &'static str) -> impl FnOnce(DriverError) -> Error {
        move |DriverError(code)| Error::Call { call, code }
    }
}

/// Whether an answer is one of those that captures cause.
pub(crate) fn is_capture_code(answer: CUresult) -> bool {
    (900..=908).contains(&(answer as u32))
}

impl From<DriverError> for Error {
    /// An answer that cudarc got, so that `?` works between its calls and this library's.
    fn from(DriverError(code): DriverError) -> Error {
        Error::Foreign { code }
    }
}
