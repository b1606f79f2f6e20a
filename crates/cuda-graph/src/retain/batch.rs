//! Things to drop together, once a fence has passed.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Fence, run_after};

/// A collection `T` that is dropped once a fence has passed. More can be added until then.
pub(crate) struct Batch<T: Default + Send + 'static> {
    /// None once it was dropped.
    things: Arc<Mutex<Option<T>>>,
}

impl<T: Default + Send + 'static> Batch<T> {
    /// A batch of one thing. It is in the batch before the fence is looked at, so the reaper drops
    /// it.
    pub(crate) fn after<U>(
        fence: Fence,
        first: U,
        add: impl FnOnce(&mut T, U) -> Option<U>,
    ) -> Batch<T> {
        let things = Arc::new(Mutex::new(Some(T::default())));
        let batch = Batch {
            things: things.clone(),
        };
        batch.add(first, add);
        run_after(Some(fence), move || {
            let things = things.lock().unwrap_or_else(PoisonError::into_inner).take();
            // In a statement of its own: the lock is released before user code runs.
            drop(things);
        });
        batch
    }

    /// Adds something, unless `add` gives it back because no work behind the fence uses it: then it
    /// is dropped now, as it is if the fence has passed.
    pub(crate) fn add<U>(&self, thing: U, add: impl FnOnce(&mut T, U) -> Option<U>) {
        let mut things = self.things.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = match things.as_mut() {
            Some(things) => add(things, thing),
            None => Some(thing),
        };
        // In statements of their own: the lock is released before user code runs.
        drop(things);
        drop(unused);
    }
}
