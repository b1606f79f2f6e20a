//! The memory behind shared and local addresses: a worker's own buffer, which grows and is reused.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// Shared variables may ask for any alignment up to this.
const ALIGN: usize = 1024;

/// A buffer whose address stays until it grows.
pub(super) struct Scratch {
    base: *mut u8,
    size: usize,
}

// SAFETY: it owns its memory, and the pointer is shared with nobody unless its owner hands it out.
unsafe impl Send for Scratch {}

impl Scratch {
    /// An empty one.
    pub const fn new() -> Scratch {
        Scratch {
            base: std::ptr::without_provenance_mut(ALIGN),
            size: 0,
        }
    }

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, ALIGN).expect("sizes are far below isize::MAX")
    }

    /// At least `size` bytes. What they hold is left from before, or zero.
    pub fn reserve(&mut self, size: usize) -> *mut u8 {
        if size > self.size {
            let size = size.next_multiple_of(ALIGN);
            // SAFETY: the size is not 0, as it is greater than another.
            let base = unsafe { alloc_zeroed(Self::layout(size)) };
            if base.is_null() {
                handle_alloc_error(Self::layout(size));
            }
            *self = Scratch { base, size };
        }
        self.base
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.size != 0 {
            // SAFETY: allocated by `reserve` with this layout.
            unsafe { dealloc(self.base, Self::layout(self.size)) };
        }
    }
}
