//! The owners that an executable holds.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use super::{AddressHasher, Owner};

/// A set of owners, each held once however many operations use it, so that binding the same few resources again and again neither grows
/// it nor costs more than a look.
#[derive(Default)]
pub(crate) struct Holdings {
    /// By address: an owner that is held keeps its address from being given out again.
    owners: HashMap<usize, Owner, BuildHasherDefault<AddressHasher>>,
    /// The owners that came last, by their place in the operation: most operations use what the one before used.
    last: [usize; 4],
}

impl Holdings {
    /// Holds the owners of an operation.
    #[inline]
    pub(crate) fn take(&mut self, owners: &[Owner]) {
        for (place, owner) in owners.iter().enumerate() {
            let address = address(owner);
            match self.last.get_mut(place) {
                Some(last) if *last == address => continue,
                Some(last) => *last = address,
                None => {}
            }
            self.insert(address, owner);
        }
    }

    #[inline(never)]
    fn insert(&mut self, address: usize, owner: &Owner) {
        self.owners.entry(address).or_insert_with(|| owner.clone());
    }

    /// Holds what `new` does from now on; gives what it no longer does.
    pub(crate) fn replace(&mut self, new: Holdings) -> Holdings {
        let mut old = std::mem::replace(self, new);
        old.owners
            .retain(|address, _| !self.owners.contains_key(address));
        old.last = Default::default();
        old
    }

    /// Whether it holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// How many owners it holds.
    pub(crate) fn len(&self) -> usize {
        self.owners.len()
    }
}

impl Drop for Holdings {
    /// An owner that panics when it is dropped does not keep the others: a vector goes on where a table would not.
    fn drop(&mut self) {
        drop(self.owners.drain().collect::<Vec<_>>());
    }
}

fn address(owner: &Owner) -> usize {
    Arc::as_ptr(owner).cast::<()>() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_held_once() {
        let (a, b): (Owner, Owner) = (Arc::new(1), Arc::new(2));
        let mut holdings = Holdings::default();
        for _ in 0..3 {
            holdings.take(&[a.clone(), b.clone()]);
            holdings.take(&[b.clone(), a.clone(), b.clone(), a.clone(), b.clone()]);
        }
        assert_eq!(holdings.len(), 2);
        assert_eq!((Arc::strong_count(&a), Arc::strong_count(&b)), (2, 2));
    }

    #[test]
    fn replacing_gives_what_is_no_longer_held() {
        let (a, b, c): (Owner, Owner, Owner) = (Arc::new(1), Arc::new(2), Arc::new(3));
        let (mut holdings, mut new) = (Holdings::default(), Holdings::default());
        holdings.take(&[a.clone(), b.clone()]);
        new.take(&[b.clone(), c.clone()]);
        let gone = holdings.replace(new);
        assert_eq!((gone.len(), holdings.len()), (1, 2));
        assert_eq!(Arc::strong_count(&b), 2);
        drop(gone);
        assert_eq!((Arc::strong_count(&a), Arc::strong_count(&c)), (1, 2));
    }

    /// What was let go and comes back at the same place is held again.
    #[test]
    fn the_last_owners_are_those_that_are_held() {
        let a: Owner = Arc::new(1);
        let mut holdings = Holdings::default();
        holdings.take(std::slice::from_ref(&a));
        drop(holdings.replace(Holdings::default()));
        assert_eq!(Arc::strong_count(&a), 1);
        holdings.take(std::slice::from_ref(&a));
        assert_eq!(Arc::strong_count(&a), 2);
    }
}
