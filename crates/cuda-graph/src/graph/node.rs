//! Handles of nodes.

use std::fmt;
use std::marker::PhantomData;

use super::operation::Operation;
use crate::error::NodeKind;

/// A node whose operation is an `O`. It knows its graph and keeps nothing alive: used after its
/// node or graph is gone, it is an error.
pub struct Node<O> {
    id: NodeId,
    op: PhantomData<fn() -> O>,
}

/// A node of any kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeId {
    pub(crate) hierarchy: u64,
    pub(crate) body: u32,
    pub(crate) index: u32,
    pub(crate) kind: NodeKind,
}

impl NodeId {
    /// The kind of its node.
    pub fn kind(&self) -> NodeKind {
        self.kind
    }

    /// The number of its node in its graph, as errors and pictures have it.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The same node with its operation's type, if it is of that type.
    pub fn typed<O: Operation>(self) -> Option<Node<O>> {
        O::has_kind(self.kind).then(|| Node::new(self))
    }
}

impl<O> Node<O> {
    pub(crate) fn new(id: NodeId) -> Node<O> {
        Node {
            id,
            op: PhantomData,
        }
    }

    /// The node, of whatever kind.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The same without a copy.
    #[inline]
    pub(crate) fn id_ref(&self) -> &NodeId {
        &self.id
    }
}

impl<O> Clone for Node<O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for Node<O> {}

impl<O> PartialEq for Node<O> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl<O> Eq for Node<O> {}

impl<O> std::hash::Hash for Node<O> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl<O> From<Node<O>> for NodeId {
    fn from(node: Node<O>) -> NodeId {
        node.id
    }
}

impl<O> fmt::Debug for Node<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeId { kind, index, .. } = self;
        write!(f, "{kind} node {index} of graph {}", self.hierarchy)?;
        match self.body {
            0 => Ok(()),
            body => write!(f, ".{body}"),
        }
    }
}

/// Nodes: one, a tuple of several of whatever kinds, an array, a slice or a vector of them, an
/// option, or `()` for none.
pub trait NodeSet: sealed::Sealed {
    /// Calls `visit` with each of them.
    #[doc(hidden)]
    fn each(&self, visit: &mut impl FnMut(NodeId));
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! node_sets {
    ($({$($generics:tt)*} $set:ty, |$this:ident, $visit:ident| $each:expr;)+) => {$(
        impl<$($generics)*> sealed::Sealed for $set {}
        impl<$($generics)*> NodeSet for $set {
            #[inline]
            fn each(&self, $visit: &mut impl FnMut(NodeId)) {
                let $this = self;
                $each
            }
        }
    )+};
}

node_sets! {
    {} (), |_this, _visit| {};
    {} NodeId, |this, visit| visit(*this);
    {O} Node<O>, |this, visit| visit(this.id);
    {S: NodeSet} [S], |this, visit| this.iter().for_each(|set| set.each(visit));
    {S: NodeSet, const N: usize} [S; N], |this, visit| this.as_slice().each(visit);
    {S: NodeSet} Vec<S>, |this, visit| this.as_slice().each(visit);
    {S: NodeSet} Option<S>, |this, visit| this.iter().for_each(|set| set.each(visit));
    {S: NodeSet + ?Sized} &S, |this, visit| (**this).each(visit);
}

macro_rules! tuples {
    () => {};
    ($first:ident $($name:ident)*) => {
        tuples!(@ $first $($name)*);
        tuples!($($name)*);
    };
    (@ $($name:ident)+) => {
        impl<$($name: NodeSet),+> sealed::Sealed for ($($name,)+) {}
        impl<$($name: NodeSet),+> NodeSet for ($($name,)+) {
            #[inline]
            fn each(&self, visit: &mut impl FnMut(NodeId)) {
                #[allow(non_snake_case, reason = "a type parameter's name serves as its variable's")]
                let ($($name,)+) = self;
                $($name.each(visit);)+
            }
        }
    };
}

tuples!(A B C D E F G H);
