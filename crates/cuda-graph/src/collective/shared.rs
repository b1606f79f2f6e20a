//! Contexts that several ranks share.
//!
//! Ranks wait for each other inside their launches. If their loops also took turns (L16), each in
//! its own order, some would wait for ever. Software needs no turns, so there they take none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cudarc::driver::CudaContext;

use crate::Result;
use crate::driver::per_context::PerContext;
use crate::driver::{self, Driver};

/// Counts the ranks that share a context of software's.
#[derive(Clone)]
pub(crate) struct Shared(Arc<AtomicUsize>);

impl Shared {
    pub(crate) fn of(context: &Arc<CudaContext>) -> Result<Shared> {
        static SHARED: PerContext<Shared> = PerContext::that_stay();
        SHARED.get(context, || Ok(Shared(Arc::default())))
    }

    /// Whether ranks share the context now.
    pub(crate) fn is_shared(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// One of several ranks that share a context of software's.
pub(super) struct Sharer(Shared);

impl Sharer {
    /// `None` on a GPU: its driver cannot run loops at once.
    pub(super) fn of(context: &Arc<CudaContext>) -> Result<Option<Sharer>> {
        if driver::choose()? == Driver::Gpu {
            return Ok(None);
        }
        let shared = Shared::of(context)?;
        shared.0.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Sharer(shared)))
    }
}

impl Drop for Sharer {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
