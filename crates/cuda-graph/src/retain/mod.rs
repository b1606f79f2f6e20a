//! What nodes, executables and launches keep alive.
//!
//! An operation holds its owners; a definition holds its operations; an executable holds the owners of every operation that it may run
//! ([`Holdings`]). The driver's own way, a user object on the graph, would do the same for handles that leave the library, and costs every
//! launch of an executable that has one a microsecond on an H200. So user objects are made only for those who ask for them
//! ([`UserObject`]), and what an executable lets go of while a launch may still use it waits for the end of that launch on the reaper's
//! thread ([`drop_after`]). Launches of one executable run one after the other, so the end of the last is the end of all (invariant L5).

mod address;
mod fence;
mod holdings;
mod object;
mod reaper;

use std::any::Any;
use std::sync::Arc;

pub(crate) use address::AddressHasher;
pub(crate) use fence::Fence;
pub(crate) use holdings::Holdings;
pub(crate) use object::UserObject;
pub(crate) use reaper::{contain, drop_after, settle};

/// Anything that an operation keeps alive.
pub type Owner = Arc<dyn Any + Send + Sync>;
