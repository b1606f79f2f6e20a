//! `malloc` and `free` in kernels: the device heap.
//!
//! Each block of the heap is an allocation of its own, so that an access outside it or after `free`
//! is a fault. Each device has a heap, whose size is a limit on the sum of its blocks. Blocks live
//! until they are freed or the heap is reset, whatever launch made them.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::{give, param};
use crate::grid::context::{BlockContext, CONTINUE, ThreadContext};
use crate::grid::launch::FaultKind;
use crate::grid::running::{device, fault};
use crate::jit::runtime::runtime;
use crate::memory::{self, Device, Kind};

/// The size of the heap unless the program asks for another.
pub(crate) const DEFAULT_LIMIT: u64 = 8 << 20;
/// Blocks are multiples of this.
const GRAIN: u64 = 16;

struct Heap {
    limit: u64,
    used: u64,
    /// The size of each block, by its address.
    blocks: Option<HashMap<u64, u64>>,
}

/// The heap of each device.
static HEAPS: [Mutex<Heap>; Device::MOST] = [const {
    Mutex::new(Heap {
        limit: DEFAULT_LIMIT,
        used: 0,
        blocks: None,
    })
}; Device::MOST];

fn heap_of(device: Device) -> &'static Mutex<Heap> {
    &HEAPS[device.index()]
}

/// The size of a device's heap in bytes.
#[cfg(test)]
pub(crate) fn limit(device: Device) -> u64 {
    heap_of(device).lock().limit
}

/// Sets the size of a device's heap.
pub(crate) fn set_limit(device: Device, limit: u64) {
    heap_of(device).lock().limit = limit;
}

/// Frees every block of a device's heap, and makes the heap as large as it was at first.
pub(crate) fn reset(device: Device) {
    let blocks = {
        let mut heap = heap_of(device).lock();
        heap.used = 0;
        heap.limit = DEFAULT_LIMIT;
        heap.blocks.take()
    };
    for address in blocks.into_iter().flatten().map(|(address, _)| address) {
        memory::free(address);
    }
}

/// A block of a device's heap, or null.
fn allocate(device: Device, size: u64) -> u64 {
    let mut heap = heap_of(device).lock();
    let Some(size) = size.max(1).checked_next_multiple_of(GRAIN) else {
        return 0;
    };
    if size > heap.limit.saturating_sub(heap.used) {
        return 0;
    }
    match memory::alloc(device, size, GRAIN, Kind::Device) {
        Err(_) => 0,
        Ok(block) => {
            heap.used += size;
            heap.blocks.get_or_insert_default().insert(block.base, size);
            block.base
        }
    }
}

/// Frees a block of a device's heap; false when there is none at the address.
fn release(device: Device, address: u64) -> bool {
    let mut heap = heap_of(device).lock();
    let Some(size) = heap
        .blocks
        .as_mut()
        .and_then(|blocks| blocks.remove(&address))
    else {
        return false;
    };
    heap.used -= size;
    memory::free(address);
    true
}

runtime! {
    /// `void* malloc(size_t)`: null when the heap is exhausted.
    MALLOC = fn malloc(_thread: *mut ThreadContext, block: *mut BlockContext, returns: *mut u8, params: *const u8) -> u32 {
        give(returns, allocate(device(block), param(params, 0)));
        CONTINUE
    }

    /// `void free(void*)`: null is ignored, anything else that `malloc` did not give ends the
    /// launch.
    FREE = fn free(thread: *mut ThreadContext, block: *mut BlockContext, _returns: *mut u8, params: *const u8) -> u32 {
        let address: u64 = param(params, 0);
        if address == 0 || release(device(block), address) {
            return CONTINUE;
        }
        let detail = format!("free of {address:#x}, which malloc did not give or which was freed");
        fault(thread, block, FaultKind::LaunchFailure, None, detail)
    }
}
