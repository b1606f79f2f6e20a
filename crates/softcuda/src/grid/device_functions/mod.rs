//! The functions that the driver gives kernels to call: `extern` in their PTX, here in Rust.
//!
//! Each has the signature of [`DeviceFn`](super::context::DeviceFn): results and parameters are
//! blocks of bytes, laid out one after the other as in a kernel's signature.

pub(super) mod assert;
pub(crate) mod condition;
pub(crate) mod heap;
pub(super) mod printf;

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

/// Whether a declaration with these sizes of results and parameters is that of the device function
/// of this name: with any other, the function would read and write past what its caller handed
/// over.
pub(crate) fn declared_right(name: &str, returns: &[u64], params: &[u64]) -> bool {
    let (result, takes): (&[u64], &[u64]) = match name {
        "vprintf" => (&[4], &[8, 8]),
        "__assertfail" => (&[], &[8, 8, 4, 8, 8]),
        "malloc" => (&[8], &[8]),
        "free" => (&[], &[8]),
        "cudaGraphSetConditional" => (&[], &[8, 4]),
        _ => return false,
    };
    params == takes && (returns == result || returns.is_empty())
}

/// The parameter that starts at `offset` of the block of parameters that compiled code handed over.
fn param<T: Copy>(params: *const u8, offset: usize) -> T {
    // SAFETY: the block is laid out as the function's signature says, see `declared_right`, which
    // every call was checked against when it was compiled; it may have any alignment.
    unsafe { params.add(offset).cast::<T>().read_unaligned() }
}

/// Writes the result where compiled code wants it.
fn give<T>(returns: *mut u8, value: T) {
    if !returns.is_null() {
        // SAFETY: the block of results is laid out as the function's signature says, see `param`.
        unsafe { returns.cast::<T>().write_unaligned(value) };
    }
}

/// The most that is taken of a string: one without an end may lie in gigabytes that hold no zero.
const LONGEST: usize = 1 << 20;

/// A thread that calls, and reads memory as if it had done so itself.
struct Caller {
    thread: *mut ThreadContext,
    block: *mut BlockContext,
}

impl Caller {
    /// How many bytes the thread may read from a generic address on.
    fn readable(&self, address: u64) -> u64 {
        // SAFETY: compiled code passes on the contexts that the grid gave it, and no reference to
        // them exists meanwhile.
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

    /// Reads a string up to its zero byte, or as much of it as is taken, or ends the thread.
    fn string(&self, address: u64) -> Result<Vec<u8>, Status> {
        let mut text = Vec::new();
        let mut left = self.readable(address);
        let mut at = address;
        while left > 0 && text.len() < LONGEST {
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
        match left {
            0 => Err(self.refuse(at, 1)),
            _ => Ok(text),
        }
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
