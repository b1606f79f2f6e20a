//! Operations: what a node does, as a value.
//!
//! Adding a node, updating it in a definition or an executable, and reading it back all speak of
//! the same value. An operation holds what it uses, so nothing else must be kept alive for it
//! (invariant L4). A clone costs a reference count.
//!
//! Each file is one operation: how it is made, how it becomes the driver's parameters, and how it
//! is read back from them. Operations that hold graphs are in [`graph`](crate::graph).
#![expect(
    clippy::new_without_default,
    reason = "a default would not know where an operation was made"
)]

mod access;
mod alloc;
mod attribute;
mod batch;
mod collective;
mod copy;
mod empty;
mod event;
mod expected;
mod fill;
mod free;
mod host;
mod kernel;
pub(crate) mod lowered;
mod raw;
mod semaphores;
mod transfer;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeParams, CUstream};
use smallvec::SmallVec;

pub(crate) use access::{Access, conflicts};
pub use alloc::{AllocOp, MemoryLocation};
pub use attribute::{LaunchAttribute, RawAttribute};
pub(crate) use attribute::{is_cooperative, priority};
pub use batch::{BatchOp, MemoryOperation, WaitCondition};
pub use collective::{CollectiveOp, Transmission};
pub use copy::{CopyOp, Pitched};
pub use empty::EmptyOp;
pub use event::{RecordEventOp, WaitEventOp};
pub(crate) use expected::{Expectation, Expected};
pub use fill::FillOp;
pub(crate) use fill::{MemsetRows, hex};
pub use free::FreeOp;
pub use host::HostOp;
pub use kernel::KernelOp;
pub use raw::RawOp;
pub use semaphores::{SignalSemaphoresOp, WaitSemaphoresOp};
pub(crate) use transfer::Transfer;

use crate::collective::Communicator;
use crate::error::{NodeKind, NodeName};
use crate::{Owner, Result, driver};

/// What an operation is called, where it was made, and whether it holds what it uses.
#[derive(Clone, Default)]
pub struct Tag {
    pub(crate) label: Option<Arc<str>>,
    pub(crate) location: Option<&'static Location<'static>>,
    /// It was read from the driver, and nobody holds what it uses.
    pub(crate) unowned: bool,
}

impl Tag {
    #[track_caller]
    pub(crate) fn here() -> Tag {
        Tag::at(Location::caller())
    }

    pub(crate) fn at(location: &'static Location<'static>) -> Tag {
        Tag {
            location: Some(location),
            ..Tag::default()
        }
    }

    /// Takes over what another operation is called, and where it was made.
    pub(crate) fn take_name_of(&mut self, other: &Tag) {
        self.location = other.location;
        self.label = other.label.clone();
    }

    /// Whether both were made at the same place, without a label, and hold what they use.
    #[inline(always)]
    fn is_plain_as(&self, other: &Tag) -> bool {
        let place = |tag: &Tag| tag.location.map(std::ptr::from_ref);
        self.label.is_none() && !self.unowned && place(self) == place(other)
    }

    /// The tag of an operation that is read from the driver.
    pub(crate) fn read() -> Tag {
        Tag {
            unowned: true,
            ..Tag::default()
        }
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(label) = &self.label {
            write!(f, "\"{label}\" ")?;
        }
        match self.location {
            Some(location) => write!(f, "{location}"),
            None => f.write_str("unknown"),
        }
    }
}

/// What an operation is, which its clones share.
#[derive(Clone)]
pub struct Shared<T> {
    pub(crate) value: T,
    pub(crate) owners: SmallVec<[Owner; 2]>,
    pub(crate) tag: Tag,
}

impl<T> Shared<T> {
    pub(crate) fn new(
        value: T,
        owners: impl IntoIterator<Item = Owner>,
        tag: Tag,
    ) -> Arc<Shared<T>> {
        let owners = owners.into_iter().collect();
        Arc::new(Shared { value, owners, tag })
    }
}

/// Copies `count` values out of a list of the driver's, which is null if there are none.
///
/// # Safety
///
/// If the list is not null, it has as many values.
unsafe fn copied<T: Clone>(list: *const T, count: usize) -> Vec<T> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: by the caller.
    unsafe { std::slice::from_raw_parts(list, count) }.to_vec()
}

/// One kind of operation.
///
/// Most kinds are described to the driver by its generic node parameters
/// ([`node_params`](Op::node_params)), and get everything else from that.
pub(crate) trait Op: Clone + fmt::Debug + Send + Sync + 'static {
    /// Its kind.
    fn kind(&self) -> NodeKind;

    fn tag(&self) -> &Tag;

    fn tag_mut(&mut self) -> &mut Tag;

    /// What it keeps alive.
    fn owners(&self) -> &[Owner];

    /// Writes what it does, for `Debug`.
    fn describe(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }

    /// Its parameters, which may point to parts of it.
    fn node_params(&self, _context: &CudaContext) -> Result<CUgraphNodeParams> {
        unreachable!("it has driver calls of its own")
    }

    /// The launch that does it, if its node is a kernel node.
    fn launch(&self) -> Option<&KernelOp> {
        None
    }

    /// What it does, if it is a fill or a copy between regions.
    fn transfer(&self) -> Option<Transfer<'_>> {
        None
    }

    /// What it reads and writes. `None` if that is not known.
    fn accesses(&self) -> Option<Vec<Access>> {
        None
    }

    /// The communicator that it is a collective of, by this rank's end.
    #[inline]
    fn of_communicator(&self) -> Option<&Communicator> {
        None
    }

    /// Adds a node that does this.
    fn add_to(
        &self,
        context: &CudaContext,
        graph: CUgraph,
        after: &[CUgraphNode],
    ) -> Result<CUgraphNode> {
        match self.launch() {
            Some(launch) => launch.add_to(context, graph, after),
            None => driver::node::add(graph, after, &mut self.node_params(context)?),
        }
    }

    /// Makes a node of a definition do this. It did `old`, where that is known.
    fn set(&self, context: &CudaContext, node: CUgraphNode, _old: Option<&Self>) -> Result<()> {
        match self.launch() {
            Some(launch) => launch.set(context, node, None),
            None => driver::node::set(node, &mut self.node_params(context)?),
        }
    }

    /// Makes a node of an executable do this.
    fn set_in(&self, context: &CudaContext, exec: CUgraphExec, node: CUgraphNode) -> Result<()> {
        match self.launch() {
            Some(launch) => launch.set_in(context, exec, node),
            None => driver::exec::set(exec, node, &mut self.node_params(context)?),
        }
    }

    /// Gives it to a stream to run now. `None` if streams do not take such an operation. The caller
    /// holds what it uses until it has run.
    fn run(&self, _stream: CUstream) -> Option<Result<()>> {
        None
    }

    /// Reads what a node does that this library did not make.
    fn read(node: CUgraphNode) -> Result<Self>;

    /// Whether a body of a conditional node may hold it.
    fn fits_in_body(&self) -> bool {
        self.kind().fits_in_body()
    }

    /// The graph whose conditions it looks at or sets, if any.
    fn condition_of(&self) -> Option<u64> {
        None
    }

    /// Its launch attributes, if it is a launch.
    fn attributes(&self) -> &[LaunchAttribute] {
        self.launch().map_or(&[], KernelOp::attributes)
    }

    /// Makes `other` the same operation in place, if that is cheap and changes no hold.
    fn assign_to(&self, _other: &mut Self) -> bool {
        false
    }

    /// Whether both do the same. Names do not count. `false` where it cannot be told.
    ///
    /// Each holds as much as the other. What one of them holds keeps alive what both use, because
    /// they use the same addresses.
    fn is_same(&self, _other: &Self) -> bool {
        false
    }

    /// Whether a node of an executable that does `old` may be able to do this. The driver decides.
    fn can_follow(&self, _old: &Self) -> bool {
        true
    }

    /// A number that tells it from most others of its type, or 0.
    fn digest(&self) -> u64 {
        0
    }

    /// What errors call it.
    fn name(&self, index: impl Into<Option<u32>>) -> NodeName {
        let tag = self.tag();
        NodeName {
            kernel: self.launch().map(|op| op.kernel().name().to_owned()),
            label: tag.label.clone(),
            location: tag.location,
            ..NodeName::of_kind(self.kind(), index)
        }
    }
}

/// Whether a node that does `old` may do `op`, as far as communicators go: loops around it, and the
/// order of its graph, were made for the one that it has.
#[inline]
pub(crate) fn stays_with(op: &impl Op, old: &impl Op) -> bool {
    match (op.of_communicator(), old.of_communicator()) {
        (None, None) => true,
        (Some(op), Some(old)) => op.is_same_end(old),
        _ => false,
    }
}

/// Whether a node with a graph of the communicators `old` inside may have one of `new`.
pub(crate) fn all_stay(new: &[Communicator], old: &[Communicator]) -> bool {
    let stays = |new: &Communicator| old.iter().any(|old| new.is_same_end(old));
    new.len() == old.len() && new.iter().all(stays)
}

/// Gives an operation its public label and location.
macro_rules! labelled {
    ($op:ident) => {
        impl $op {
            /// The same operation under a name, for errors and pictures.
            pub fn label(mut self, label: impl Into<std::sync::Arc<str>>) -> Self {
                $crate::op::Op::tag_mut(&mut self).label = Some(label.into());
                self
            }

            /// Its name, if it has one.
            pub fn label_text(&self) -> Option<&str> {
                $crate::op::Op::tag(self).label.as_deref()
            }

            /// Where it was made, if this library made it.
            pub fn location(&self) -> Option<&'static std::panic::Location<'static>> {
                $crate::op::Op::tag(self).location
            }

            /// The same operation, to be added although nobody holds what it uses: it was read
            /// from a node of other code.
            ///
            /// # Safety
            ///
            /// What the operation uses lives for as long as a graph, an executable or a launch
            /// uses it.
            pub unsafe fn assume_owned(mut self) -> Self {
                $crate::op::Op::tag_mut(&mut self).unowned = false;
                self
            }
        }
    };
}
pub(crate) use labelled;

/// Gives an operation what is public of every one. With its documentation and the type of its value
/// it declares the operation too.
macro_rules! operation {
    ($(#[$doc:meta])* $op:ident($value:ty)) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $op(std::sync::Arc<$crate::op::Shared<$value>>);

        $crate::op::operation!($op);
    };
    ($op:ident) => {
        $crate::op::labelled!($op);

        impl std::fmt::Debug for $op {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($op))?;
                $crate::op::Op::describe(self, f)?;
                write!(f, " made at {:?}", $crate::op::Op::tag(self))
            }
        }
    };
}
pub(crate) use operation;

/// What [`Op`] asks of an operation that is a [`Shared`] value, of a kind.
macro_rules! shared {
    ($kind:ident) => {
        fn kind(&self) -> $crate::error::NodeKind {
            $crate::error::NodeKind::$kind
        }

        $crate::op::shared!();
    };
    () => {
        fn tag(&self) -> &$crate::op::Tag {
            &self.0.tag
        }

        fn tag_mut(&mut self) -> &mut $crate::op::Tag {
            &mut std::sync::Arc::make_mut(&mut self.0).tag
        }

        fn owners(&self) -> &[$crate::Owner] {
            &self.0.owners
        }
    };
}
pub(crate) use shared;
