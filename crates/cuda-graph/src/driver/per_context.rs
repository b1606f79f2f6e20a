//! What there is once for each of the driver's contexts.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::CudaContext;

use crate::Result;

/// Values by the driver's handle of a context. A value is let go some time after the context is
/// gone: what it has there went with that, and is not given back.
pub(crate) struct PerContext<T> {
    entries: Mutex<Vec<Entry<T>>>,
}

struct Entry<T> {
    /// The driver's handle of the context.
    context: usize,
    /// A handle of cudarc's, of which a context may have several, each with an entry. While one of
    /// them is there, so is the context.
    by: Weak<CudaContext>,
    value: T,
}

impl<T: Clone> PerContext<T> {
    pub(crate) const fn new() -> PerContext<T> {
        PerContext {
            entries: Mutex::new(Vec::new()),
        }
    }

    /// The value of `context`, made if there is none.
    pub(crate) fn get(
        &self,
        context: &Arc<CudaContext>,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.by.strong_count() > 0);
        let handle = context.cu_ctx() as usize;
        let value = match entries.iter().find(|entry| entry.context == handle) {
            Some(entry) => entry.value.clone(),
            None => make()?,
        };
        if !entries
            .iter()
            .any(|entry| std::ptr::eq(entry.by.as_ptr(), &**context))
        {
            entries.push(Entry {
                context: handle,
                by: Arc::downgrade(context),
                value: value.clone(),
            });
        }
        Ok(value)
    }
}
