//! Things to drop together, once a fence has passed.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Fence, drop_after};

/// A collection `T` that is dropped once a fence has passed. More can be added until then.
pub(crate) struct Batch<T: Default + Send + 'static> {
    /// None once it was dropped.
    things: Arc<Mutex<Option<T>>>,
}

/// The reaper's end of a batch.
struct End<T: Default + Send + 'static>(Arc<Mutex<Option<T>>>);

impl<T: Default + Send + 'static> Batch<T> {
    /// A batch of one thing. It is in the batch before the fence is looked at, so the reaper drops
    /// it.
    pub(crate) fn after<U>(
        fence: Fence,
        first: U,
        add: impl FnOnce(&mut T, U) -> Option<U>,
    ) -> Batch<T> {
        let mut things = T::default();
        let unused = add(&mut things, first);
        debug_assert!(unused.is_none(), "an empty batch takes anything");
        let things = Arc::new(Mutex::new(Some(things)));
        drop_after(fence, End(things.clone()));
        Batch { things }
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

impl<T: Default + Send + 'static> Drop for End<T> {
    fn drop(&mut self) {
        let things = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // In a statement of its own: the lock is released before user code runs.
        drop(things);
    }
}
