//! Handles: what the program holds instead of our objects.
//!
//! Invariant: a handle is a number that is looked up and never dereferenced, and no number is given
//! out twice, so a stale handle is known as such and a wild one does no harm.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

/// Where the numbers of all tables begin: no address of the process, and no special stream handle,
/// is above it.
const ORIGIN: usize = 0x5c << 48;

/// What a handle turned out to be.
pub(crate) enum Found<T> {
    /// A live object's.
    Live(Arc<T>),
    /// An object's that was destroyed.
    Destroyed,
    /// Nothing that this table gave out.
    Unknown,
}

impl<T> Found<T> {
    /// The object, or `error` where there is none.
    pub fn or<E>(self, error: E) -> Result<Arc<T>, E> {
        match self {
            Found::Live(object) => Ok(object),
            Found::Destroyed | Found::Unknown => Err(error),
        }
    }
}

type Map<T> = HashMap<usize, Arc<T>, BuildHasherDefault<std::hash::DefaultHasher>>;

/// The live objects of one type by handle.
pub(crate) struct Table<T> {
    origin: usize,
    next: AtomicUsize,
    live: RwLock<Map<T>>,
}

impl<T> Table<T> {
    /// An empty table; `tag` sets its handles apart from every other table's.
    pub const fn new(tag: u8) -> Self {
        Table {
            origin: ORIGIN + ((tag as usize) << 40),
            next: AtomicUsize::new(1),
            live: RwLock::new(HashMap::with_hasher(BuildHasherDefault::new())),
        }
    }

    /// A new handle for an object that is put in with [`put`](Self::put).
    pub fn reserve(&self) -> usize {
        self.origin + (self.next.fetch_add(1, Ordering::Relaxed) << 4)
    }

    /// Makes `handle`, which [`reserve`](Self::reserve) gave, mean `object`.
    pub fn put(&self, handle: usize, object: Arc<T>) {
        self.live.write().insert(handle, object);
    }

    /// Makes an object that knows its handle, and puts it in.
    pub fn insert(&self, make: impl FnOnce(usize) -> T) -> Arc<T> {
        let handle = self.reserve();
        let object = Arc::new(make(handle));
        self.put(handle, object.clone());
        object
    }

    /// What `handle` means.
    pub fn get(&self, handle: usize) -> Found<T> {
        match self.live.read().get(&handle) {
            Some(object) => Found::Live(object.clone()),
            None => self.absent(handle),
        }
    }

    /// Takes an object out: its handle means a destroyed one from now on.
    pub fn remove(&self, handle: usize) -> Found<T> {
        match self.live.write().remove(&handle) {
            Some(object) => Found::Live(object),
            None => self.absent(handle),
        }
    }

    /// All live objects.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.live.read().values().cloned().collect()
    }

    fn absent(&self, handle: usize) -> Found<T> {
        let given = self.origin + 1..self.origin + (self.next.load(Ordering::Relaxed) << 4);
        if given.contains(&handle) && handle & 15 == 0 {
            Found::Destroyed
        } else {
            Found::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_live_then_destroyed_and_never_reused() {
        let table = Table::new(7);
        let first = table.insert(|handle| handle);
        assert!(matches!(table.get(*first), Found::Live(object) if *object == *first));
        assert!(matches!(table.remove(*first), Found::Live(_)));
        assert!(matches!(table.get(*first), Found::Destroyed));
        assert!(matches!(table.remove(*first), Found::Destroyed));
        assert_ne!(*table.insert(|handle| handle), *first);
        for wild in [0, 1, 2, *first + 1, *first + 0x1000, usize::MAX] {
            assert!(matches!(table.get(wild), Found::Unknown), "{wild:#x}");
        }
        assert!(matches!(Table::<u8>::new(8).get(*first), Found::Unknown));
    }
}
