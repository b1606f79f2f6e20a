//! What there is once for each of the driver's contexts.

use std::collections::BTreeMap;
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
    /// The life of the context that it is of.
    life: u64,
}

/// How often a context of this handle was torn down, as far as it was said.
static LIVES: Mutex<BTreeMap<usize, u64>> = Mutex::new(BTreeMap::new());

fn life_of(context: usize) -> u64 {
    let lives = LIVES.lock().unwrap_or_else(PoisonError::into_inner);
    lives.get(&context).copied().unwrap_or(0)
}

/// The context was torn down and made again under the same handle: what was in it is gone.
pub(crate) fn begin_life(context: &CudaContext) {
    let mut lives = LIVES.lock().unwrap_or_else(PoisonError::into_inner);
    *lives.entry(context.cu_ctx() as usize).or_insert(0) += 1;
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
        let life = life_of(handle);
        entries.retain(|entry| entry.context != handle || entry.life == life);
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
                life,
            });
        }
        Ok(value)
    }
}
