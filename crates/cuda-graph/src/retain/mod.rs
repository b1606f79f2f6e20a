//! What nodes, executables and launches keep alive.
//!
//! An operation holds its owners. A definition holds its operations, and an executable those that
//! its nodes do now; they share one list until one of them changes it. The driver's own way, a user
//! object on the graph, costs every launch of an executable that has one a microsecond on an H200.
//! So user objects are made only for raw handles that leave the library ([`hold`]).
//!
//! What an executable lets go of while a launch may use it waits for the end of that launch
//! ([`Batch`], [`drop_after`]), on the reaper's thread. Launches of one executable run one after
//! the other, so the end of the last is the end of all (invariant L5).

mod address;
mod batch;
mod fence;
mod meeting;
mod object;
mod reaper;

use std::any::Any;
use std::sync::Arc;

pub(crate) use address::AddressHasher;
pub(crate) use batch::Batch;
pub(crate) use fence::Fence;
pub(crate) use meeting::{Meeting, is_idle, when_idle};
pub(crate) use object::hold;
pub use reaper::settle;
pub(crate) use reaper::{contain, drop_after, run_after};

/// Anything that an operation keeps alive.
pub type Owner = Arc<dyn Any + Send + Sync>;
