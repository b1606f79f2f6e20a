//! Copies of bytes that compiled code asks for.

use super::access::check_range;
use super::runtime;
use crate::grid::context::{BlockContext, CONTINUE, ThreadContext};
use crate::grid::fault;
use crate::grid::launch::FaultKind;

runtime! {
    /// `cp.async` of the first `bytes` of `size` bytes at `from`, which is not checked yet, to
    /// `to`, which is; zeros follow. The answer is a status.
    COPY_PART = fn copy_part(
        thread: *mut ThreadContext, block: *mut BlockContext, to: *mut u8, from: u64, size: u32, bytes: u32,
    ) -> u32 {
        if bytes > size {
            // As the device answers.
            return fault(thread, block, FaultKind::Misaligned, Some((from, bytes)), "cp.async of more than its size");
        }
        let (size, bytes) = (size as usize, bytes as usize);
        if let Err(status) = check_range(thread, block, from, size as u64, bytes as u64, false) {
            return status;
        }
        let mut value = [0u8; 16];
        // SAFETY: the check passed, so that `bytes` bytes at `from` are mapped; `bytes` and `size`
        // are 16 at most.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, value.as_mut_ptr(), bytes) };
        // SAFETY: compiled code has checked `size` bytes at `to`.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), to, size) };
        CONTINUE
    }
}
