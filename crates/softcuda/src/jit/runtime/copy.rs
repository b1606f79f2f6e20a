//! Copies of bytes that compiled code asks for.

use super::access::{Window, check_source, check_window, next_thread};
use super::runtime;
use crate::grid::context::{BlockContext, CONTINUE, ThreadContext};
use crate::grid::fault;
use crate::grid::launch::FaultKind;
use crate::jit::spmd::WIDTH;

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
        if let Err(status) = check_source(thread, block, from, size as u64, bytes as u64) {
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

    /// The status of the copies of a group, some of which go outside of shared memory: the fault of
    /// the first thread whose source or destination is wrong. Sources are `stride` bytes apart;
    /// `to` has a destination for each thread.
    STATUS_OF_COPIES = fn status_of_copies(
        thread: *mut ThreadContext, from: u64, stride: u64, to: *const u64, size: u32,
    ) -> u32 {
        // SAFETY: compiled code hands on the context that it was given, and nothing else uses it
        // and its block's meanwhile; the destinations are on its stack.
        let (block, destinations) = unsafe { ((*thread).block, to.cast::<[u64; WIDTH]>().read()) };
        // SAFETY: as of the thread.
        let length = unsafe { (*block).shared_size };
        let (mut thread, size) = (thread, u64::from(size));
        for (lane, to) in (0..).zip(destinations) {
            if lane > 0 {
                // SAFETY: as above; a group has so many threads.
                thread = unsafe { next_thread(thread, block) };
            }
            let from = from.wrapping_add(stride * lane);
            let source = check_source(thread, block, from, size, size);
            let destination =
                || check_window(thread, block, Window::Shared, length, (to, size));
            if let Err(status) = source.and_then(|()| destination()) {
                return status;
            }
        }
        CONTINUE
    }
}
