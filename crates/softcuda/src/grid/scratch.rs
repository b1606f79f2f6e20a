//! The memory behind shared and local addresses: a worker's own buffer, which grows and is reused.
//!
//! It is mapped, so that what no thread touches takes no memory: a block reserves local memory for
//! its deepest thread a thousand times over.

/// A buffer whose address stays until it grows, aligned to a page: shared variables may ask for any
/// alignment up to that.
pub(super) struct Scratch {
    base: *mut u8,
    size: usize,
}

/// What it grows by.
const PAGE: usize = 4096;

// SAFETY: it owns its memory, and the pointer is shared with nobody unless its owner hands it out.
unsafe impl Send for Scratch {}

impl Scratch {
    /// An empty one.
    pub const fn new() -> Scratch {
        Scratch {
            base: std::ptr::without_provenance_mut(PAGE),
            size: 0,
        }
    }

    /// At least `size` bytes, which hold what is left from before, or zeros; `None` when there is
    /// no memory.
    pub fn reserve(&mut self, size: usize) -> Option<*mut u8> {
        if size > self.size {
            let size = size.checked_next_multiple_of(PAGE)?;
            // SAFETY: a fresh anonymous mapping touches nothing that exists.
            let base = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    size,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if base == libc::MAP_FAILED {
                return None;
            }
            *self = Scratch {
                base: base.cast(),
                size,
            };
        }
        Some(self.base)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.size != 0 {
            // SAFETY: mapped by `reserve`, with this size.
            unsafe { libc::munmap(self.base.cast(), self.size) };
        }
    }
}
