//! What nodes and executables keep alive.
//!
//! The owners of one parameter version form a [`Bundle`], which never changes. A bundle on a definition is the payload of one CUDA user
//! object that the graph retains; the driver carries references of it into clones, child graphs, executables and launches in
//! flight. An [`Accumulator`] does the same for an executable: the driver takes user objects for definitions only and copies their
//! references when it instantiates or updates, so it is retained on the source just before and released from it just after.
//!
//! The driver runs a user object's destructor where CUDA calls are forbidden. Ours only hands the payload to the reaper's thread, which
//! drops it (invariant L3).

mod accumulator;
mod object;
mod reaper;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

pub(crate) use accumulator::Accumulator;
pub(crate) use object::{Held, UserObject};

/// Anything that an operation keeps alive.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// The owners of one parameter version.
pub struct Bundle {
    owners: SmallVec<[Owner; 4]>,
    /// The accumulator that took these owners last, so that updating again with the same operation costs nothing.
    taken_by: AtomicU64,
}

impl Bundle {
    /// The bundle of `owners`, or nothing where there are none.
    pub(crate) fn of(owners: impl IntoIterator<Item = Owner>) -> Option<Arc<Bundle>> {
        let owners: SmallVec<[Owner; 4]> = owners.into_iter().collect();
        if owners.is_empty() {
            return None;
        }
        Some(Arc::new(Bundle {
            owners,
            taken_by: AtomicU64::new(0),
        }))
    }

    /// What it holds.
    pub(crate) fn owners(&self) -> &[Owner] {
        &self.owners
    }

    fn is_taken_by(&self, accumulator: u64) -> bool {
        self.taken_by.load(Ordering::Relaxed) == accumulator
    }

    fn take_by(&self, accumulator: u64) {
        self.taken_by.store(accumulator, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Bundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} owners", self.owners.len())
    }
}
