//! What an executable keeps alive beyond its definition's nodes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::CUgraph;

use super::{Bundle, Held, Owner, UserObject};
use crate::Result;

/// The owners that per-node updates gave an executable. The executable's user object holds it, hence its launches in flight do too;
/// the executable's handle holds it to append.
pub(crate) struct Accumulator {
    id: u64,
    /// By address, so that binding the same few resources again and again does not grow it.
    owners: Mutex<HashMap<usize, Owner>>,
}

impl Accumulator {
    pub(crate) fn new() -> Arc<Accumulator> {
        /// 0 is the mark of a bundle that no accumulator has taken.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Accumulator {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            owners: Mutex::new(HashMap::new()),
        })
    }

    /// Keeps the owners of `bundle`.
    #[inline]
    pub(crate) fn take(&self, bundle: Option<&Arc<Bundle>>) {
        if let Some(bundle) = bundle
            && !bundle.is_taken_by(self.id)
        {
            self.append(bundle);
        }
    }

    #[cold]
    fn append(&self, bundle: &Bundle) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        for owner in bundle.owners() {
            owners
                .entry(Arc::as_ptr(owner).cast::<()>() as usize)
                .or_insert_with(|| owner.clone());
        }
        drop(owners);
        bundle.take_by(self.id);
    }

    /// Whether it holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.owners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty()
    }

    /// Retains it on `graph` for as long as the answer lives: long enough to instantiate or update from the graph.
    pub(crate) fn lend_to(self: &Arc<Self>, graph: CUgraph) -> Result<Lent> {
        let held = UserObject::new(self.clone())?.give_to(graph)?;
        Ok(Lent { graph, held })
    }
}

impl std::fmt::Debug for Accumulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        write!(f, "{} owners", owners.len())
    }
}

/// An accumulator's reference on a source; dropping it takes it back.
pub(crate) struct Lent {
    graph: CUgraph,
    held: Held,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.held.release(self.graph);
    }
}
