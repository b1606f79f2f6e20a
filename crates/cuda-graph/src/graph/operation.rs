//! Operations of every type, and an operation of any type.

use std::fmt;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraph, CUgraphExec, CUgraphNode, CUstream};

use super::child_op::ChildOp;
use super::conditional::{Branching, IfElseOp, IfOp, SwitchOp, WhileOp};
use crate::collective::Communicator;
use crate::error::NodeKind;
use crate::op::{
    Access, AllocOp, BatchOp, CollectiveOp, CopyOp, EmptyOp, FillOp, FreeOp, HostOp, KernelOp, Op,
    RawOp, RecordEventOp, SignalSemaphoresOp, Tag, Transfer, WaitEventOp, WaitSemaphoresOp,
    labelled,
};
use crate::{Owner, Result};

/// The value of a node: [`KernelOp`], [`CopyOp`] and so on, or [`AnyOp`] for any of them.
///
/// What the library itself does with one is out of reach: it takes raw handles.
///
/// ```compile_fail,E0624
/// use cuda_graph::cudarc::driver::{CudaContext, sys};
/// fn set<O: cuda_graph::Operation>(
///     op: &O,
///     context: &CudaContext,
///     exec: sys::CUgraphExec,
///     node: sys::CUgraphNode,
/// ) {
///     let _ = op.set_in(context, exec, node);
/// }
/// ```
/// ```compile_fail,E0624
/// fn passes_off_as_owned<O: cuda_graph::Operation>(mut read: O, made: &O) -> O {
///     *read.tag_mut() = made.tag().clone();
///     read
/// }
/// ```
#[expect(
    private_bounds,
    reason = "safe code must not reach the methods of `Op`"
)]
pub trait Operation: Op {
    /// The same operation as an [`AnyOp`].
    fn into_any(self) -> AnyOp;

    /// The operation, if it is of this type.
    fn from_any(op: AnyOp) -> Option<Self>;

    /// Whether a node of this kind has such an operation.
    fn has_kind(kind: NodeKind) -> bool;

    #[doc(hidden)]
    #[inline]
    fn holds(&self) -> Holds<'_> {
        Holds::Nothing
    }

    /// Makes `other` the same operation in place, if that is cheap and changes no hold.
    #[doc(hidden)]
    fn assign_to_any(&self, _other: &mut AnyOp) -> bool {
        false
    }
}

/// The graphs that an operation's node holds.
pub enum Holds<'a> {
    Nothing,
    /// A copy of a graph.
    Copy(&'a ChildOp),
    /// Bodies.
    Bodies(&'a Branching),
}

/// Everything that is done once for each type of operation.
macro_rules! operations {
    ($($variant:ident($op:ty) = $kind:ident $(, |$this:ident| $holds:expr)?;)+) => {
        /// An operation of any type.
        #[derive(Clone)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "each is described at its own type")]
        pub enum AnyOp {
            $($variant($op),)+
            /// A kind that this library knows by name alone.
            Raw(RawOp),
        }

        /// Does the same with the operation in whichever variant.
        macro_rules! each {
            ($self:expr, $inner:ident => $result:expr) => {
                match $self {
                    $(AnyOp::$variant($inner) => $result,)+
                    AnyOp::Raw($inner) => $result,
                }
            };
        }

        $(
            impl Operation for $op {
                #[inline]
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

                #[inline]
                fn assign_to_any(&self, other: &mut AnyOp) -> bool {
                    match other {
                        AnyOp::$variant(other) => self.assign_to(other),
                        _ => false,
                    }
                }

                $(
                    fn holds(&self) -> Holds<'_> {
                        let $this = self;
                        $holds
                    }
                )?
            }

            impl From<$op> for AnyOp {
                fn from(op: $op) -> AnyOp {
                    AnyOp::$variant(op)
                }
            }
        )+

        impl AnyOp {
            /// Sets a node that did `old`, an operation of the same type.
            fn set_after(
                &self,
                context: &CudaContext,
                node: CUgraphNode,
                old: &AnyOp,
            ) -> Result<()> {
                match (self, old) {
                    $((AnyOp::$variant(op), AnyOp::$variant(old)) => op.set(context, node, Some(old)),)+
                    _ => {
                        self.set(context, node, None)?;
                        // A fill can take a launch's place, without its attributes.
                        let new = Op::attributes(self);
                        let gone = Op::attributes(old).iter();
                        gone.filter(|old| new.iter().all(|new| new.id() != old.id()))
                            .try_for_each(|old| old.plain().set(node))
                    }
                }
            }

            /// As [`Op::is_same`]; operations of different types are not.
            pub(crate) fn is_same_as(&self, other: &AnyOp) -> bool {
                match (self, other) {
                    $((AnyOp::$variant(op), AnyOp::$variant(other)) => op.is_same(other),)+
                    _ => false,
                }
            }

            /// As [`Op::can_follow`]; an operation of another type cannot.
            pub(crate) fn can_follow_on(&self, old: &AnyOp) -> bool {
                match (self, old) {
                    $((AnyOp::$variant(op), AnyOp::$variant(old)) => op.can_follow(old),)+
                    // What is not known of a node is replaced.
                    (op, AnyOp::Raw(old)) => op.kind() == old.kind(),
                    _ => false,
                }
            }
        }
    };
}

operations! {
    Kernel(KernelOp) = Kernel;
    Copy(CopyOp) = Copy;
    Fill(FillOp) = Fill;
    Host(HostOp) = Host;
    Child(ChildOp) = Child, |op| Holds::Copy(op);
    Empty(EmptyOp) = Empty;
    RecordEvent(RecordEventOp) = RecordEvent;
    WaitEvent(WaitEventOp) = WaitEvent;
    Alloc(AllocOp) = Alloc;
    Free(FreeOp) = Free;
    Batch(BatchOp) = Batch;
    Collective(CollectiveOp) = Kernel;
    SignalSemaphores(SignalSemaphoresOp) = SignalSemaphores;
    WaitSemaphores(WaitSemaphoresOp) = WaitSemaphores;
    If(IfOp) = Conditional, |op| Holds::Bodies(op.branching());
    IfElse(IfElseOp) = Conditional, |op| Holds::Bodies(op.branching());
    Switch(SwitchOp) = Conditional, |op| Holds::Bodies(op.branching());
    While(WhileOp) = Conditional, |op| Holds::Bodies(op.branching());
}

impl Operation for RawOp {
    fn into_any(self) -> AnyOp {
        AnyOp::Raw(self)
    }

    fn from_any(op: AnyOp) -> Option<Self> {
        match op {
            AnyOp::Raw(op) => Some(op),
            op => {
                let mut tag = op.tag().clone();
                tag.unowned = true;
                Some(RawOp::opaque(op.kind(), tag, Vec::new()))
            }
        }
    }

    fn has_kind(_: NodeKind) -> bool {
        true
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

    fn assign_to_any(&self, other: &mut AnyOp) -> bool {
        each!(self, op => op.assign_to_any(other))
    }

    fn holds(&self) -> Holds<'_> {
        each!(self, op => op.holds())
    }
}

/// Functions that do the same with the operation in whichever variant.
macro_rules! forward {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)+) => {$(
        fn $name(&self, $($argument: $type),*) -> $result {
            each!(self, op => op.$name($($argument),*))
        }
    )+};
}

impl Op for AnyOp {
    forward! {
        kind() -> NodeKind;
        tag() -> &Tag;
        owners() -> &[Owner];
        add_to(context: &CudaContext, graph: CUgraph, after: &[CUgraphNode]) -> Result<CUgraphNode>;
        set_in(context: &CudaContext, exec: CUgraphExec, node: CUgraphNode) -> Result<()>;
        run(stream: CUstream) -> Option<Result<()>>;
        fits_in_body() -> bool;
        condition_of() -> Option<u64>;
        launch() -> Option<&KernelOp>;
        of_communicator() -> Option<&Communicator>;
        digest() -> u64;
        transfer() -> Option<Transfer<'_>>;
        accesses() -> Option<Vec<Access>>;
    }

    fn tag_mut(&mut self) -> &mut Tag {
        each!(self, op => op.tag_mut())
    }

    fn set(&self, context: &CudaContext, node: CUgraphNode, old: Option<&Self>) -> Result<()> {
        match old {
            Some(old) => self.set_after(context, node, old),
            None => each!(self, op => op.set(context, node, None)),
        }
    }

    fn read(node: CUgraphNode) -> Result<AnyOp> {
        let raw = RawOp::read(node)?;
        Ok(match raw.kind() {
            NodeKind::Kernel => KernelOp::read(node)?.into(),
            NodeKind::Copy => CopyOp::read(node)?.into(),
            NodeKind::Fill => FillOp::read(node)?.into(),
            NodeKind::Host => HostOp::read(node)?.into(),
            NodeKind::Empty => EmptyOp::read(node)?.into(),
            NodeKind::RecordEvent => RecordEventOp::read(node)?.into(),
            NodeKind::WaitEvent => WaitEventOp::read(node)?.into(),
            NodeKind::Alloc => AllocOp::read(node)?.into(),
            NodeKind::Free => FreeOp::read(node)?.into(),
            NodeKind::Batch => BatchOp::read(node)?.into(),
            NodeKind::SignalSemaphores => SignalSemaphoresOp::read(node)?.into(),
            NodeKind::WaitSemaphores => WaitSemaphoresOp::read(node)?.into(),
            NodeKind::Child | NodeKind::Conditional | NodeKind::Other(_) => AnyOp::Raw(raw),
        })
    }
}

labelled!(AnyOp);

impl AnyOp {
    /// Its kind.
    pub fn kind(&self) -> NodeKind {
        Op::kind(self)
    }
}

impl fmt::Debug for AnyOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        each!(self, op => op.fmt(f))
    }
}
