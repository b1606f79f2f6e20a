//! The functions that the driver gives kernels to call: `extern` in their PTX, here in Rust.
//!
//! Each has the signature of [`DeviceFn`](super::context::DeviceFn): results and parameters are blocks of bytes, laid out one
//! after the other as in a kernel's signature.

mod assert;
pub(crate) mod condition;
pub(crate) mod heap;
mod printf;

use super::block::Block;
use super::context::{BlockContext, Status, ThreadContext};
use super::launch::FaultKind;
use super::running::fault;
use crate::jit::runtime::RuntimeFn;
use crate::memory;

/// The device function of this name.
pub(crate) fn device_function(name: &str) -> Option<&'static RuntimeFn> {
    Some(match name {
        "vprintf" => &printf::VPRINTF,
        "__assertfail" => &assert::ASSERTFAIL,
        "malloc" => &heap::MALLOC,
        "free" => &heap::FREE,
        "cudaGraphSetConditional" => &condition::GRAPH_SET_CONDITIONAL,
        _ => return None,
    })
}

/// The parameter that starts at `offset` of the block of parameters that compiled code handed over.
fn param<T: Copy>(params: *const u8, offset: usize) -> T {
    // SAFETY: the block is laid out as the function's signature says, which every caller's call was checked against when it was
    // compiled; it may have any alignment.
    unsafe { params.add(offset).cast::<T>().read_unaligned() }
}

/// Writes the result where compiled code wants it.
fn give<T>(returns: *mut u8, value: T) {
    if !returns.is_null() {
        // SAFETY: the block of results is laid out as the function's signature says, see `param`.
        unsafe { returns.cast::<T>().write_unaligned(value) };
    }
}

/// A thread that calls, and reads memory as if it had done so itself.
struct Caller {
    thread: *mut ThreadContext,
    block: *mut BlockContext,
}

impl Caller {
    /// How many bytes the thread may read from a generic address on.
    fn readable(&self, address: u64) -> u64 {
        // SAFETY: compiled code passes on the contexts that the grid gave it, and no reference to them exists meanwhile.
        let windows = unsafe {
            let (thread, block) = (self.thread.read(), &*self.block);
            [
                (block.shared_base as u64, block.shared_size),
                (thread.local_base as u64, thread.local_size),
                (block.params as u64, block.params_size),
            ]
        };
        windows
            .into_iter()
            .chain(memory::find(address).map(|found| (found.base, found.size)))
            .find(|&(base, size)| address.wrapping_sub(base) < size)
            .map_or(0, |(base, size)| base + size - address)
    }

    /// Reads so many bytes, or ends the thread.
    fn read<const N: usize>(&self, address: u64) -> Result<[u8; N], Status> {
        if self.readable(address) < N as u64 {
            return Err(self.refuse(address, N as u32));
        }
        let mut bytes = [0; N];
        // SAFETY: the range is in a window of the thread or a live allocation, as was just asked.
        unsafe { memory::access::read(address, &mut bytes) };
        Ok(bytes)
    }

    /// Reads a string up to its zero byte, or ends the thread.
    fn string(&self, address: u64) -> Result<Vec<u8>, Status> {
        let mut text = Vec::new();
        let mut left = self.readable(address);
        let mut at = address;
        while left > 0 {
            let mut chunk = [0; 64];
            let size = left.min(chunk.len() as u64);
            let chunk = &mut chunk[..size as usize];
            // SAFETY: as in `read`.
            unsafe { memory::access::read(at, chunk) };
            if let Some(end) = chunk.iter().position(|&byte| byte == 0) {
                text.extend_from_slice(&chunk[..end]);
                return Ok(text);
            }
            text.extend_from_slice(chunk);
            at += size;
            left -= size;
        }
        Err(self.refuse(at, 1))
    }

    fn refuse(&self, address: u64, size: u32) -> Status {
        let access = Some((address, size));
        fault(
            self.thread,
            self.block,
            FaultKind::IllegalAddress,
            access,
            "",
        )
    }

    /// The state of its block.
    fn owner(&self) -> &Block {
        Block::of(self.block)
    }

    /// `%tid`
    fn tid(&self) -> [u32; 3] {
        // SAFETY: compiled code passes on the context that the grid gave it.
        unsafe { (*self.thread).tid }
    }
}
