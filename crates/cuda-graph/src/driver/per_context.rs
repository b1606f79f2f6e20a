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
    /// cudarc's handles of it: while one of them is there, so is the context.
    by: Vec<Weak<CudaContext>>,
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
        entries.retain_mut(|entry| {
            entry.by.retain(|handle| handle.strong_count() > 0);
            !entry.by.is_empty()
        });
        let handle = context.cu_ctx() as usize;
        if let Some(entry) = entries.iter_mut().find(|entry| entry.context == handle) {
            let is_this =
                |handle: &Weak<CudaContext>| std::ptr::eq(handle.as_ptr(), Arc::as_ptr(context));
            if !entry.by.iter().any(is_this) {
                entry.by.push(Arc::downgrade(context));
            }
            return Ok(entry.value.clone());
        }
        let value = make()?;
        entries.push(Entry {
            context: handle,
            by: vec![Arc::downgrade(context)],
            value: value.clone(),
        });
        Ok(value)
    }
}
