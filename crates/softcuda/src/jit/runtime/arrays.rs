//! Arrays that parameters of a kernel point to, and that it accesses at indices of 32 bits: how
//! many of these are inside is looked up once for a launch, so that a check is one comparison.

use crate::memory::{self, Device};

/// The most indices: with what accesses that are checked together lie apart, none wraps.
pub(crate) const MOST: u64 = 1 << 30;

/// Accesses to such an array, at an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    /// Where the pointer lies among the parameters.
    pub param: u32,
    /// From there to the first access at index 0, in bytes.
    pub low: u64,
    /// From its start to the end of the last at the same index.
    pub length: u64,
    /// From an index to the next.
    pub by: u64,
    /// Each access is of `1 << log2` bytes.
    pub log2: u32,
    /// One of them writes.
    pub write: bool,
}

impl Array {
    /// What the parameter points to.
    fn pointer(&self, params: &[u8]) -> Option<u64> {
        let pointer = params.get(self.param as usize..)?.first_chunk()?;
        Some(u64::from_ne_bytes(*pointer))
    }

    /// Below this, all indices are inside of what the parameter points into.
    fn count(&self, params: &[u8], device: Device) -> Option<u32> {
        let pointer = self.pointer(params)?;
        let found = memory::find(pointer)?;
        let first = pointer.checked_add(self.low)?;
        if !first.is_multiple_of(1 << self.log2) || !device.reaches(&found, self.write) {
            return None;
        }
        let last = found
            .base
            .checked_add(found.size)?
            .checked_sub(self.length)?;
        let more = last.checked_sub(first)?.checked_div(self.by)?;
        Some((more + 1).min(MOST) as u32)
    }

    /// What is allowed, but does not come from a compilation, may not be run.
    pub fn is_sound(&self) -> bool {
        let size = 1u64.checked_shl(self.log2).unwrap_or(0);
        size > 0 && self.by > 0 && self.by.is_multiple_of(size) && self.length >= size
    }
}

/// The arrays of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrays(*const [Array]);

// SAFETY: arrays are only read, and whoever has a kernel's code holds its module, and so them.
unsafe impl Send for Arrays {}
// SAFETY: as above.
unsafe impl Sync for Arrays {}

impl Arrays {
    /// Of code that has none.
    #[cfg(test)]
    pub const NONE: Arrays = Arrays(&[]);

    /// These, which must stay where they are for as long as code uses them.
    pub fn of(arrays: &[Array]) -> Arrays {
        Arrays(arrays)
    }

    /// Whether a parameter points to one of them that begins among these addresses.
    ///
    /// # Safety
    /// The arrays are still there.
    pub unsafe fn any_in(self, params: &[u8], within: std::ops::Range<u64>) -> bool {
        // SAFETY: the caller's promise.
        let arrays = unsafe { &*self.0 };
        let mut pointers = arrays.iter().filter_map(|array| array.pointer(params));
        pointers.any(|pointer| within.contains(&pointer))
    }

    /// For each, the number of indices that are inside: none where nothing is known.
    ///
    /// # Safety
    /// The arrays are still there.
    pub unsafe fn count(self, params: &[u8], device: Device, counts: &mut Vec<u32>) {
        // SAFETY: the caller's promise.
        let arrays = unsafe { &*self.0 };
        counts.clear();
        counts.extend(
            arrays
                .iter()
                .map(|array| array.count(params, device).unwrap_or(0)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_counted_to_the_last_that_is_inside() {
        let memory = memory::alloc(Device::FIRST, 100, 1, memory::Kind::Device).unwrap();
        let params = [[0; 8], memory.base.to_ne_bytes()].concat();
        let array = Array {
            param: 8,
            low: 0,
            length: 4,
            by: 4,
            log2: 2,
            write: true,
        };
        let count = |array: Array| array.count(&params, Device::FIRST);
        assert_eq!(count(array), Some(25));
        assert_eq!(count(Array { low: 4, ..array }), Some(24));
        assert_eq!(count(Array { low: 96, ..array }), Some(1));
        assert_eq!(count(Array { low: 100, ..array }), None);
        assert_eq!(
            count(Array {
                length: 12,
                ..array
            }),
            Some(23)
        );
        assert_eq!(count(Array { by: 8, ..array }), Some(13));
        let wide = Array {
            length: 8,
            by: 8,
            log2: 3,
            ..array
        };
        assert_eq!(count(wide), Some(12));
        // Misaligned, and no pointer.
        assert_eq!(count(Array { low: 2, ..array }), None);
        assert_eq!(count(Array { param: 0, ..array }), None);
        assert_eq!(count(Array { param: 12, ..array }), None);
        assert_eq!(
            count(Array {
                length: 101,
                ..array
            }),
            None
        );
        memory::free(memory.base);
        assert_eq!(count(array), None);
    }
}
