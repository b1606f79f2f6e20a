//! Doing nothing, at one point of the order.

use std::fmt;

use super::{Tag, tagged};

/// Does nothing; its node joins what it waits for.
#[derive(Clone)]
pub struct EmptyOp {
    pub(super) tag: Tag,
}

tagged!(EmptyOp);

impl EmptyOp {
    /// Makes one.
    #[track_caller]
    #[expect(
        clippy::new_without_default,
        reason = "a default would not know where it was made"
    )]
    pub fn new() -> EmptyOp {
        EmptyOp { tag: Tag::here() }
    }

    /// The operation of a node that this library did not make.
    pub(super) fn unmade() -> EmptyOp {
        EmptyOp {
            tag: Tag::default(),
        }
    }
}

impl fmt::Debug for EmptyOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EmptyOp made at {:?}", self.tag)
    }
}
