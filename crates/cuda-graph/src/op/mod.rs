//! Operations: what a node does, as a value.
//!
//! Adding a node, updating it in a definition or an executable, and reading it back all speak of the same value. An operation holds what
//! it uses (invariant L4), so nothing else need be kept alive for it. Clones are cheap.
//!
//! Each file is one operation: how it is made, and how it becomes the driver's parameters and comes back from them.

mod alloc;
mod attribute;
mod batch;
mod child;
mod conditional;
mod copy;
mod empty;
mod fill;
mod fill_kernel;
mod free;
mod host;
mod kernel;
mod raw;
mod record_event;
mod run;
mod semaphores;
mod wait_event;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeParams, CUgraphNodeType};

pub use alloc::{AllocOp, MemoryLocation};
pub use attribute::{LaunchAttribute, RawAttribute};
pub use batch::{BatchOp, MemoryOperation, WaitCondition};
pub use child::ChildOp;
pub(crate) use conditional::need as need_conditional;
pub use conditional::{Conditional, IfElseOp, IfOp, SwitchOp, WhileOp};
pub use copy::{CopyOp, Pitched};
pub use empty::EmptyOp;
pub(crate) use fill::hex;
pub use fill::{FillOp, FillValue};
pub use free::FreeOp;
pub use host::HostOp;
pub use kernel::KernelOp;
pub use raw::RawOp;
pub use record_event::{EventHandle, RecordEventOp};
pub use semaphores::{SignalSemaphoresOp, WaitSemaphoresOp};
pub use wait_event::WaitEventOp;

use crate::{Owner, Result, driver};

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

impl NodeKind {
    pub(crate) fn from_driver(kind: u32) -> NodeKind {
        use CUgraphNodeType as T;
        const NAMED: [(T, NodeKind); 14] = [
            (T::CU_GRAPH_NODE_TYPE_KERNEL, NodeKind::Kernel),
            (T::CU_GRAPH_NODE_TYPE_MEMCPY, NodeKind::Copy),
            (T::CU_GRAPH_NODE_TYPE_MEMSET, NodeKind::Fill),
            (T::CU_GRAPH_NODE_TYPE_HOST, NodeKind::Host),
            (T::CU_GRAPH_NODE_TYPE_GRAPH, NodeKind::Child),
            (T::CU_GRAPH_NODE_TYPE_EMPTY, NodeKind::Empty),
            (T::CU_GRAPH_NODE_TYPE_WAIT_EVENT, NodeKind::WaitEvent),
            (T::CU_GRAPH_NODE_TYPE_EVENT_RECORD, NodeKind::RecordEvent),
            (
                T::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL,
                NodeKind::SignalSemaphores,
            ),
            (
                T::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
                NodeKind::WaitSemaphores,
            ),
            (T::CU_GRAPH_NODE_TYPE_MEM_ALLOC, NodeKind::Alloc),
            (T::CU_GRAPH_NODE_TYPE_MEM_FREE, NodeKind::Free),
            (T::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, NodeKind::Batch),
            (T::CU_GRAPH_NODE_TYPE_CONDITIONAL, NodeKind::Conditional),
        ];
        let named = NAMED.iter().find(|(driver, _)| *driver as u32 == kind);
        named.map_or(NodeKind::Other(kind), |(_, kind)| *kind)
    }
}

impl fmt::Display for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodeKind::Kernel => "kernel",
            NodeKind::Copy => "copy",
            NodeKind::Fill => "fill",
            NodeKind::Host => "host",
            NodeKind::Child => "child graph",
            NodeKind::Empty => "empty",
            NodeKind::WaitEvent => "event wait",
            NodeKind::RecordEvent => "event record",
            NodeKind::SignalSemaphores => "semaphore signal",
            NodeKind::WaitSemaphores => "semaphore wait",
            NodeKind::Alloc => "alloc",
            NodeKind::Free => "free",
            NodeKind::Batch => "batch memory operation",
            NodeKind::Conditional => "conditional",
            NodeKind::Other(kind) => return write!(f, "kind {kind}"),
        })
    }
}

/// What an operation is called and where it was made.
#[derive(Clone, Default)]
pub(crate) struct Tag {
    pub label: Option<Arc<str>>,
    pub location: Option<&'static Location<'static>>,
}

impl Tag {
    #[track_caller]
    pub(crate) fn here() -> Tag {
        Tag {
            label: None,
            location: Some(Location::caller()),
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
            None => f.write_str("nowhere known"),
        }
    }
}

/// A value that a node can be: [`KernelOp`], [`CopyOp`] and so on, or [`AnyOp`] for any of them.
pub trait Operation: Clone + fmt::Debug + Send + Sync + Sealed + 'static {
    /// The same operation, of whatever type.
    fn into_any(self) -> AnyOp;

    /// The same operation, if it is of this type.
    fn from_any(op: AnyOp) -> Option<Self>;

    /// Whether a node of this kind has such an operation.
    fn has_kind(kind: NodeKind) -> bool;
}

mod sealed {
    use super::*;

    pub trait Sealed {
        /// Has a node of an executable do this. Children are embedded by the layer above.
        fn set_in(&self, context: &CudaContext, exec: CUgraphExec, node: CUgraphNode)
        -> Result<()>;

        /// Itself, if it is the operation that there are most of.
        fn into_kernel(self) -> std::result::Result<KernelOp, Self>
        where
            Self: Sized,
        {
            Err(self)
        }

        /// Its kind.
        fn kind(&self) -> NodeKind;

        /// What it keeps alive.
        fn owners(&self) -> &[Owner];

        /// The graph that it embeds.
        fn child(&self) -> Option<&ChildOp> {
            None
        }

        /// The graph whose conditions it sets, if it does.
        fn condition_of(&self) -> Option<u64> {
            None
        }

        /// Its launch attributes, if it is a launch.
        fn attributes(&self) -> Option<&[LaunchAttribute]> {
            None
        }
    }
}
pub(crate) use sealed::Sealed;

/// Gives an operation with a field `tag` its label and location.
macro_rules! tagged {
    ($op:ty) => {
        impl $op {
            pub(super) fn tag(&self) -> &$crate::op::Tag {
                &self.tag
            }

            pub(super) fn tag_mut(&mut self) -> &mut $crate::op::Tag {
                &mut self.tag
            }
        }

        $crate::op::labelled!($op);
    };
}
use tagged;

/// Gives an operation with a tag its label and location.
macro_rules! labelled {
    ($op:ty) => {
        impl $op {
            /// The same operation under a name, for errors and pictures.
            pub fn label(mut self, label: impl Into<std::sync::Arc<str>>) -> Self {
                self.tag_mut().label = Some(label.into());
                self
            }

            /// Its name, if it has one.
            pub fn label_text(&self) -> Option<&str> {
                self.tag().label.as_deref()
            }

            /// Where it was made, if this library made it.
            pub fn location(&self) -> Option<&'static std::panic::Location<'static>> {
                self.tag().location
            }
        }
    };
}
use labelled;

macro_rules! operations {
    ($($variant:ident($op:ty) = $kind:ident),+ $(,)?) => {
        /// An operation of any type.
        #[derive(Clone)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "each is described at its own type")]
        pub enum AnyOp {
            $($variant($op),)+
            /// A kind that this library knows by name alone.
            Raw(RawOp),
        }

        impl fmt::Debug for AnyOp {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(AnyOp::$variant(op) => op.fmt(f),)+
                    AnyOp::Raw(op) => op.fmt(f),
                }
            }
        }

        impl AnyOp {
            /// Its kind.
            pub fn kind(&self) -> NodeKind {
                match self {
                    $(AnyOp::$variant(_) => NodeKind::$kind,)+
                    AnyOp::Raw(op) => op.kind(),
                }
            }

            pub(crate) fn tag(&self) -> &Tag {
                match self {
                    $(AnyOp::$variant(op) => op.tag(),)+
                    AnyOp::Raw(op) => op.tag(),
                }
            }

            pub(crate) fn tag_mut(&mut self) -> &mut Tag {
                match self {
                    $(AnyOp::$variant(op) => op.tag_mut(),)+
                    AnyOp::Raw(op) => op.tag_mut(),
                }
            }
        }

        $(operation!($variant($op) = $kind);)+
    };
}

/// Makes a type an operation of one kind.
macro_rules! operation {
    // It may be a kernel too, and says so itself.
    (Fill($op:ty) = Fill) => {};
    ($variant:ident($op:ty) = $kind:ident) => {
        impl Operation for $op {
            fn into_any(self) -> AnyOp {
                AnyOp::$variant(self)
            }

            fn from_any(op: AnyOp) -> Option<Self> {
                match op {
                    AnyOp::$variant(op) => Some(op),
                    _ => None,
                }
            }

            fn has_kind(kind: NodeKind) -> bool {
                kind == NodeKind::$kind
            }
        }

        impl From<$op> for AnyOp {
            fn from(op: $op) -> AnyOp {
                AnyOp::$variant(op)
            }
        }
    };
}

operations! {
    Kernel(KernelOp) = Kernel,
    Copy(CopyOp) = Copy,
    Fill(FillOp) = Fill,
    Host(HostOp) = Host,
    Child(ChildOp) = Child,
    Empty(EmptyOp) = Empty,
    RecordEvent(RecordEventOp) = RecordEvent,
    WaitEvent(WaitEventOp) = WaitEvent,
    Alloc(AllocOp) = Alloc,
    Free(FreeOp) = Free,
    Batch(BatchOp) = Batch,
    SignalSemaphores(SignalSemaphoresOp) = SignalSemaphores,
    WaitSemaphores(WaitSemaphoresOp) = WaitSemaphores,
    If(IfOp) = Conditional,
    IfElse(IfElseOp) = Conditional,
    Switch(SwitchOp) = Conditional,
    While(WhileOp) = Conditional,
}

impl Sealed for AnyOp {
    fn set_in(&self, context: &CudaContext, exec: CUgraphExec, node: CUgraphNode) -> Result<()> {
        match self {
            AnyOp::Kernel(op) => Sealed::set_in(op, context, exec, node),
            AnyOp::Empty(_) => Ok(()),
            other => other.with_params(context, |params| driver::exec::set(exec, node, params))?,
        }
    }

    fn into_kernel(self) -> std::result::Result<KernelOp, AnyOp> {
        match self {
            AnyOp::Kernel(op) => Ok(op),
            other => Err(other),
        }
    }

    fn kind(&self) -> NodeKind {
        AnyOp::kind(self)
    }

    fn owners(&self) -> &[Owner] {
        AnyOp::owners(self)
    }

    fn child(&self) -> Option<&ChildOp> {
        match self {
            AnyOp::Child(op) => Some(op),
            _ => None,
        }
    }

    fn condition_of(&self) -> Option<u64> {
        AnyOp::condition_of(self)
    }

    fn attributes(&self) -> Option<&[LaunchAttribute]> {
        match self {
            AnyOp::Kernel(op) => Some(op.attributes()),
            _ => None,
        }
    }
}

impl Sealed for KernelOp {
    #[inline(always)]
    fn set_in(&self, context: &CudaContext, exec: CUgraphExec, node: CUgraphNode) -> Result<()> {
        KernelOp::set_in(self, exec, node, context)
    }

    #[inline]
    fn into_kernel(self) -> std::result::Result<KernelOp, KernelOp> {
        Ok(self)
    }

    #[inline]
    fn kind(&self) -> NodeKind {
        NodeKind::Kernel
    }

    #[inline]
    fn owners(&self) -> &[Owner] {
        KernelOp::owners(self)
    }

    #[inline]
    fn condition_of(&self) -> Option<u64> {
        self.arguments().condition_of()
    }

    #[inline]
    fn attributes(&self) -> Option<&[LaunchAttribute]> {
        Some(KernelOp::attributes(self))
    }
}

/// The operations whose updates are not frequent enough to spare a clone of their handle.
macro_rules! through_any {
    ($($op:ty),+ $(,)?) => {$(
        impl Sealed for $op {
            fn set_in(&self, context: &CudaContext, exec: CUgraphExec, node: CUgraphNode) -> Result<()> {
                Sealed::set_in(&self.clone().into_any(), context, exec, node)
            }

            fn kind(&self) -> NodeKind {
                AnyOp::kind(&self.clone().into_any())
            }

            fn owners(&self) -> &[Owner] {
                <$op>::owners(self)
            }
        }
    )+};
}

through_any!(
    CopyOp,
    HostOp,
    EmptyOp,
    RecordEventOp,
    WaitEventOp,
    AllocOp,
    FreeOp,
    BatchOp,
    SignalSemaphoresOp,
    WaitSemaphoresOp,
    RawOp,
    IfOp,
    IfElseOp,
    SwitchOp,
    WhileOp,
);

/// What uses nothing.
macro_rules! without_owners {
    ($($op:ident),+ $(,)?) => {$(
        impl $op {
            fn owners(&self) -> &[Owner] {
                &[]
            }
        }
    )+};
}

without_owners!(EmptyOp, AllocOp, FreeOp, IfOp, IfElseOp, SwitchOp, WhileOp);

impl Sealed for ChildOp {
    fn set_in(&self, _: &CudaContext, _: CUgraphExec, _: CUgraphNode) -> Result<()> {
        unreachable!("children are embedded by the layer above")
    }

    fn kind(&self) -> NodeKind {
        NodeKind::Child
    }

    fn owners(&self) -> &[Owner] {
        &[]
    }

    fn child(&self) -> Option<&ChildOp> {
        Some(self)
    }
}

impl Operation for AnyOp {
    fn into_any(self) -> AnyOp {
        self
    }

    fn from_any(op: AnyOp) -> Option<Self> {
        Some(op)
    }

    fn has_kind(_: NodeKind) -> bool {
        true
    }
}

impl AnyOp {
    /// The same operation under a name, for errors and pictures.
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.tag_mut().label = Some(label.into());
        self
    }

    /// Its name, if it has one.
    pub fn label_text(&self) -> Option<&str> {
        self.tag().label.as_deref()
    }

    /// What it keeps alive.
    pub(crate) fn owners(&self) -> &[Owner] {
        match self {
            AnyOp::Kernel(op) => op.owners(),
            AnyOp::Copy(op) => op.owners(),
            AnyOp::Fill(op) => op.owners(),
            AnyOp::Host(op) => op.owners(),
            AnyOp::RecordEvent(op) => op.owners(),
            AnyOp::WaitEvent(op) => op.owners(),
            AnyOp::Batch(op) => op.owners(),
            AnyOp::SignalSemaphores(op) => op.owners(),
            AnyOp::WaitSemaphores(op) => op.owners(),
            AnyOp::Raw(op) => op.owners(),
            // An embedded graph holds what its own nodes use; the others use nothing.
            AnyOp::Child(_)
            | AnyOp::Empty(_)
            | AnyOp::Alloc(_)
            | AnyOp::Free(_)
            | AnyOp::If(_)
            | AnyOp::IfElse(_)
            | AnyOp::Switch(_)
            | AnyOp::While(_) => &[],
        }
    }

    /// Adds a node that does this. Children are embedded by the layer above.
    #[inline]
    pub(crate) fn add_to(
        &self,
        context: &CudaContext,
        graph: CUgraph,
        after: &[CUgraphNode],
    ) -> Result<CUgraphNode> {
        match self {
            AnyOp::Kernel(op) => op.add_to(graph, after, context),
            AnyOp::Empty(_) => driver::node::add_empty(graph, after),
            other => {
                other.with_params(context, |params| driver::node::add(graph, after, params))?
            }
        }
    }

    /// Has a node of a definition do this, which did `old`.
    pub(crate) fn set(
        &self,
        context: &CudaContext,
        node: CUgraphNode,
        old: Option<&AnyOp>,
    ) -> Result<()> {
        match self {
            AnyOp::Kernel(op) => {
                let old = match old {
                    Some(AnyOp::Kernel(old)) => old.attributes(),
                    _ => &[],
                };
                op.set(node, context, old)
            }
            AnyOp::Empty(_) => Ok(()),
            other => other.with_params(context, |params| driver::node::set(node, params))?,
        }
    }

    fn with_params<R>(
        &self,
        context: &CudaContext,
        call: impl FnOnce(&mut CUgraphNodeParams) -> R,
    ) -> Result<R> {
        Ok(match self {
            AnyOp::Copy(op) => op.with_params(context, call),
            AnyOp::Fill(op) => op.with_params(context, call)?,
            AnyOp::Host(op) => op.with_params(call),
            AnyOp::RecordEvent(op) => op.with_params(call),
            AnyOp::WaitEvent(op) => op.with_params(call),
            AnyOp::Alloc(op) => op.with_params(call),
            AnyOp::Free(op) => op.with_params(call),
            AnyOp::Batch(op) => op.with_params(context, call),
            AnyOp::SignalSemaphores(op) => op.with_params(call),
            AnyOp::WaitSemaphores(op) => op.with_params(call),
            AnyOp::Raw(op) => op.with_params(call)?,
            AnyOp::If(_) | AnyOp::IfElse(_) | AnyOp::Switch(_) | AnyOp::While(_) => {
                return Err(crate::Error::InvalidOperation {
                    why: "a conditional node stays what it is: change what its bodies hold".into(),
                });
            }
            AnyOp::Kernel(_) | AnyOp::Child(_) | AnyOp::Empty(_) => {
                unreachable!("these three have calls of their own")
            }
        })
    }

    /// What a node that this library did not make does. Children are read by the layer above.
    pub(crate) fn read(kind: NodeKind, node: CUgraphNode) -> Result<AnyOp> {
        Ok(match kind {
            NodeKind::Kernel => KernelOp::read(node)?.into(),
            NodeKind::Copy => CopyOp::read(node)?.into(),
            NodeKind::Fill => FillOp::read(node)?.into(),
            NodeKind::Host => HostOp::read(node)?.into(),
            NodeKind::Empty => EmptyOp::unmade().into(),
            NodeKind::RecordEvent => RecordEventOp::read(node)?.into(),
            NodeKind::WaitEvent => WaitEventOp::read(node)?.into(),
            NodeKind::Alloc => AllocOp::read(node)?.into(),
            NodeKind::Free => FreeOp::read(node)?.into(),
            NodeKind::Batch => BatchOp::read(node)?.into(),
            NodeKind::SignalSemaphores => SignalSemaphoresOp::read(node)?.into(),
            NodeKind::WaitSemaphores => WaitSemaphoresOp::read(node)?.into(),
            NodeKind::Child | NodeKind::Conditional | NodeKind::Other(_) => {
                AnyOp::Raw(RawOp::opaque(kind))
            }
        })
    }
}
