//! What is known of the nodes of one graph: what each does, and who is held for it.
//!
//! A definition and its executables share one list until one of them changes it ([`Contents`]).
//! Each side then lets go of what it replaces by itself.

use std::mem;
use std::ops::Deref;
use std::sync::Arc;

use super::operation::AnyOp;
use crate::Owner;
use crate::error::NodeKind;
use crate::op::{Op, RawOp, Tag};

/// What a node does. Of an [`AnyOp::Raw`] without parameters, only the driver knows more than kind,
/// tag and owners.
pub(crate) type Content = AnyOp;

impl Content {
    /// A node of which only the kind is known.
    pub(crate) fn unknown(kind: NodeKind) -> Content {
        Content::other(kind, Tag::default(), Vec::new())
    }

    pub(crate) fn other(kind: NodeKind, tag: Tag, owners: Vec<Owner>) -> Content {
        Content::Raw(RawOp::opaque(kind, tag, owners))
    }

    /// The operation, if this library made the node do it.
    #[inline]
    pub(crate) fn op(&self) -> Option<&AnyOp> {
        let unknown = matches!(self, Content::Raw(op) if op.params().is_none());
        (!unknown).then_some(self)
    }

    /// Only what the node is called.
    pub(crate) fn name_only(&self) -> Content {
        Content::other(self.kind(), self.tag().clone(), Vec::new())
    }

    /// Whether everything that it holds is held by `other` too.
    #[inline]
    pub(crate) fn is_held_by(&self, other: &[Owner]) -> bool {
        let held = |owner: &Owner| other.iter().any(|other| Arc::ptr_eq(owner, other));
        self.owners().iter().all(held)
    }
}

/// The contents of a graph's nodes by their numbers, copied when a shared list is changed.
#[derive(Clone)]
pub(crate) enum Contents {
    Own(Vec<Content>),
    Shared(Arc<Vec<Content>>),
}

impl Default for Contents {
    fn default() -> Contents {
        Contents::Own(Vec::new())
    }
}

impl From<Vec<Content>> for Contents {
    fn from(list: Vec<Content>) -> Contents {
        Contents::Own(list)
    }
}

impl Deref for Contents {
    type Target = [Content];

    #[inline]
    fn deref(&self) -> &[Content] {
        match self {
            Contents::Own(list) => list,
            Contents::Shared(list) => list,
        }
    }
}

impl Contents {
    /// The list, to be changed.
    #[inline]
    pub(crate) fn edit(&mut self) -> &mut Vec<Content> {
        if let Contents::Shared(_) = self {
            self.unshare();
        }
        match self {
            Contents::Own(list) => list,
            Contents::Shared(_) => unreachable!("it was just made its own"),
        }
    }

    #[cold]
    fn unshare(&mut self) {
        if let Contents::Shared(list) = self {
            *self = Contents::Own(Arc::unwrap_or_clone(mem::take(list)));
        }
    }

    /// The same list, shared.
    #[inline]
    pub(crate) fn share(&mut self) -> Contents {
        if let Contents::Shared(list) = self {
            return Contents::Shared(list.clone());
        }
        self.share_own()
    }

    #[inline(never)]
    fn share_own(&mut self) -> Contents {
        if let Contents::Own(list) = self {
            *self = Contents::Shared(Arc::new(mem::take(list)));
        }
        self.clone()
    }
}
