//! What there is once for each of the driver's contexts.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUcontext;

use super::values;
use crate::Result;

values! {
    /// A number that no other context has, also if the driver gives its handle again.
    id(context: CUcontext) -> u64: cuCtxGetId;
}

/// Values by context. A value is let go some time after the context is gone: what it has there went
/// with that, and is not given back.
pub(crate) struct PerContext<T> {
    entries: Mutex<Vec<Entry<T>>>,
    /// Whether values stay when the last handle goes that asked for them.
    outlives_handles: bool,
}

struct Entry<T> {
    context: Life,
    /// A handle of cudarc's, of which a context may have several, each with an entry. While one of
    /// them is there, so is the context, unless it was torn down.
    by: Weak<CudaContext>,
    value: T,
}

/// A context, by its handle and its number. A primary context that is torn down and made again has
/// the same handle.
#[derive(Clone, Copy, PartialEq)]
struct Life {
    handle: usize,
    /// 0 where the driver tells none.
    id: u64,
}

impl<T: Clone> PerContext<T> {
    pub(crate) const fn new() -> PerContext<T> {
        PerContext {
            entries: Mutex::new(Vec::new()),
            outlives_handles: false,
        }
    }

    /// Values that use nothing of the driver's when they go. They stay until another context has
    /// the handle of theirs, where the driver numbers contexts.
    pub(crate) const fn that_stay() -> PerContext<T> {
        PerContext {
            entries: Mutex::new(Vec::new()),
            outlives_handles: true,
        }
    }

    /// The value of `context`, made if there is none.
    pub(crate) fn get(
        &self,
        context: &Arc<CudaContext>,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let stays = |entry: &Entry<T>| self.outlives_handles && entry.context.id != 0;
        entries.retain(|entry| entry.by.strong_count() > 0 || stays(entry));
        let handle = context.cu_ctx() as usize;
        // A call that fails once is no reason to take it for another context.
        let known = entries.iter().find(|entry| entry.context.handle == handle);
        let known = known.map_or(0, |entry| entry.context.id);
        let life = Life {
            handle,
            id: id(context.cu_ctx()).unwrap_or(known),
        };
        // Those of a life that is over.
        entries.retain(|entry| entry.context.handle != life.handle || entry.context == life);
        let value = match entries.iter().find(|entry| entry.context == life) {
            Some(entry) => entry.value.clone(),
            None => make()?,
        };
        let mut known = entries.iter();
        if !known.any(|entry| std::ptr::eq(entry.by.as_ptr(), &**context)) {
            // One entry is enough of those that stay without a handle.
            entries.retain(|entry| entry.context != life || entry.by.strong_count() > 0);
            entries.push(Entry {
                context: life,
                by: Arc::downgrade(context),
                value: value.clone(),
            });
        }
        Ok(value)
    }
}
