//! Which addresses of a range are taken.
//!
//! Invariant: free blocks and taken ones partition the range; no two free blocks touch.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A range of addresses, parts of which are taken.
#[derive(Debug)]
pub(crate) struct Space {
    /// Free blocks: base to size.
    free: BTreeMap<u64, u64>,
    /// The same: size, then base.
    by_size: BTreeSet<(u64, u64)>,
    /// Taken blocks: base to size.
    taken: HashMap<u64, u64>,
}

impl Space {
    /// A range that is free as a whole.
    pub fn new(base: u64, size: u64) -> Self {
        Space {
            free: BTreeMap::from([(base, size)]),
            by_size: BTreeSet::from([(size, base)]),
            taken: HashMap::new(),
        }
    }

    /// Takes `size` bytes, more than none, at a multiple of `align`, a power of two: the smallest
    /// block that they fit in.
    pub fn take(&mut self, size: u64, align: u64) -> Option<u64> {
        let fits = |&(block_size, block): &(u64, u64)| {
            let base = block.checked_next_multiple_of(align)?;
            let end = base.checked_add(size)?;
            (end <= block + block_size).then_some((block, block_size, base))
        };
        let (block, block_size, base) = self.by_size.range((size, 0)..).find_map(fits)?;
        self.remove_free(block, block_size);
        if base > block {
            self.insert_free(block, base - block);
        }
        let (end, block_end) = (base + size, block + block_size);
        if block_end > end {
            self.insert_free(end, block_end - end);
        }
        self.taken.insert(base, size);
        Some(base)
    }

    /// The size of a taken block.
    pub fn size(&self, base: u64) -> Option<u64> {
        self.taken.get(&base).copied()
    }

    /// Gives a taken block back; answers its size.
    pub fn give(&mut self, base: u64) -> Option<u64> {
        let size = self.taken.remove(&base)?;
        let (mut start, mut end) = (base, base + size);
        if let Some((&below, &below_size)) = self.free.range(..base).next_back()
            && below + below_size == base
        {
            self.remove_free(below, below_size);
            start = below;
        }
        if let Some(&above_size) = self.free.get(&end) {
            self.remove_free(end, above_size);
            end += above_size;
        }
        self.insert_free(start, end - start);
        Some(size)
    }

    fn insert_free(&mut self, base: u64, size: u64) {
        self.free.insert(base, size);
        self.by_size.insert((size, base));
    }

    fn remove_free(&mut self, base: u64, size: u64) {
        self.free.remove(&base);
        self.by_size.remove(&(size, base));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: u64 = 0x10_0000;
    const SIZE: u64 = 0x10_0000;

    fn check(space: &Space) {
        let blocks = |map: Vec<(u64, u64)>, free: bool| {
            map.into_iter().map(move |(base, size)| (base, size, free))
        };
        let free = blocks(
            space
                .free
                .iter()
                .map(|(&base, &size)| (base, size))
                .collect(),
            true,
        );
        let mut all: Vec<_> = free
            .chain(blocks(
                space
                    .taken
                    .iter()
                    .map(|(&base, &size)| (base, size))
                    .collect(),
                false,
            ))
            .collect();
        all.sort_unstable();
        let mut at = BASE;
        let mut after_free = false;
        for (base, size, free) in all {
            assert_eq!(base, at, "a hole or an overlap");
            assert!(size > 0);
            assert!(!(free && after_free), "free blocks touch at {base:#x}");
            (at, after_free) = (base + size, free);
        }
        assert_eq!(at, BASE + SIZE);
        let sizes: BTreeSet<_> = space
            .free
            .iter()
            .map(|(&base, &size)| (size, base))
            .collect();
        assert_eq!(sizes, space.by_size);
    }

    proptest! {
        #[test]
        fn blocks_partition_the_range(steps in prop::collection::vec((any::<bool>(), 1u64..0x8000, 0u32..14, any::<usize>()), 1..300)) {
            let mut space = Space::new(BASE, SIZE);
            let mut live = Vec::new();
            for (take, size, align, pick) in steps {
                if take {
                    if let Some(base) = space.take(size, 1 << align) {
                        prop_assert_eq!(base % (1 << align), 0);
                        live.push((base, size));
                    }
                } else if !live.is_empty() {
                    let (base, size) = live.swap_remove(pick % live.len());
                    prop_assert_eq!(space.give(base), Some(size));
                    prop_assert_eq!(space.give(base), None);
                }
                check(&space);
            }
            for (base, _) in live {
                space.give(base);
            }
            prop_assert_eq!(&space.free, &BTreeMap::from([(BASE, SIZE)]));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut space = Space::new(BASE, SIZE);
        assert_eq!(space.take(SIZE + 1, 1), None);
        assert_eq!(space.take(u64::MAX, 1), None);
        assert_eq!(space.take(1, 1 << 63), None);
        assert_eq!(space.take(SIZE, 1), Some(BASE));
        assert_eq!(space.take(1, 1), None);
    }
}
