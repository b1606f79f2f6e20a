//! Driver calls on memory, and on a device's graph memory pool.

use std::cell::Cell;
use std::ops::Range;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUgraphMem_attribute, CUmemorytype,
    CUpointer_attribute as Attribute, CUstream,
};

use super::{ask, call, calls};
use crate::Result;

calls! {
    /// Frees what was allocated in stream order, in the order of `stream`. A captured stream
    /// refuses, unless the memory is its graph's.
    free_in_order(address: CUdeviceptr, stream: CUstream): cuMemFreeAsync;

    /// Frees at once.
    free(address: CUdeviceptr): cuMemFree_v2;
    trim_pool(device: CUdevice): cuDeviceGraphMemTrim;
}

/// Allocates in the current context, with which the memory goes.
pub(crate) fn allocate(bytes: usize) -> Result<CUdeviceptr> {
    ask(0, |address| call!(cuMemAlloc_v2(address, bytes)))
}

/// Whether memory of `context` is freed in stream order. Otherwise to free it waits for the device.
pub(crate) fn frees_in_order(context: &CudaContext) -> bool {
    context.has_async_alloc() && !WITHOUT_ORDER.get()
}

thread_local! {
    /// A test has this thread free in no order.
    pub(super) static WITHOUT_ORDER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the driver knows the address: it does of memory that it allocated or page-locked.
pub(crate) fn is_known(address: CUdeviceptr) -> bool {
    attribute(address, Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0u32).is_some()
}

/// What the driver says of an address, which is of the type of `zero`. `None` if it says nothing.
fn attribute<T>(address: CUdeviceptr, attribute: Attribute, zero: T) -> Option<T> {
    ask(zero, |value| {
        let value = (&raw mut *value).cast();
        call!(cuPointerGetAttribute(value, attribute, address))
    })
    .ok()
}

/// Which part of a node names an address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Where a copy writes.
    Target,
    /// Where a copy reads.
    Source,
    /// Where a fill writes.
    Fill,
}

/// What memory is to the nodes of a context.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// The context reaches it: its own, the host's, managed memory. For fills also what was given
    /// to its device.
    Reached,
    /// Of a pool of a device, by the pool's handle.
    Pool(i32, usize),
    /// Of a device, and of no context and no pool: mapped, or allocated by a graph.
    Apart(i32),
    /// Another context's.
    Others(usize),
}

impl Memory {
    fn of(address: CUdeviceptr, part: Part, context: CUcontext) -> Option<Memory> {
        let kind = attribute(address, Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0u32)?;
        let managed = attribute(address, Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED, 0u8)?;
        if kind != CUmemorytype::CU_MEMORYTYPE_DEVICE as u32 || managed != 0 {
            return Some(Memory::Reached);
        }
        let ordinal = Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        let device = attribute(address, ordinal, 0i32)?;
        let made_in = attribute(address, Attribute::CU_POINTER_ATTRIBUTE_CONTEXT, 0usize)?;
        if made_in == 0 {
            let pool = attribute(
                address,
                Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                0usize,
            );
            return Some(match (part, pool?) {
                (Part::Fill, _) => Memory::Reached,
                (_, 0) => Memory::Apart(device),
                (_, pool) => Memory::Pool(device, pool),
            });
        }
        let own = ask(0, |device| call!(cuCtxGetDevice(device))).ok()?;
        let reached = match (made_in == context as usize, device == own) {
            (true, _) => true,
            (_, true) => part == Part::Target,
            // The current context has enabled access where it is told an address.
            _ => {
                let there = Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER;
                part != Part::Fill && attribute(address, there, 0u64).is_some()
            }
        };
        Some(match reached {
            true => Memory::Reached,
            false => Memory::Others(made_in),
        })
    }
}

/// Whether a node of an executable may go from one address to another. Its context is the current
/// one. `None` if that is not known: the memory is gone, or the driver does not say what it is.
pub(crate) fn may_move(
    from: CUdeviceptr,
    to: CUdeviceptr,
    part: Part,
    context: CUcontext,
) -> Option<bool> {
    if from == to {
        return Some(true);
    }
    let of = |address| Memory::of(address, part, context);
    match (of(from)?, of(to)?) {
        // Pools and mappings are alike where the same devices have access, and what graphs allocated
        // is alike.
        (Memory::Apart(one), Memory::Apart(other) | Memory::Pool(other, _))
        | (Memory::Pool(one, _), Memory::Apart(other))
            if one == other =>
        {
            None
        }
        (Memory::Pool(one, pool), Memory::Pool(other, others)) if one == other => {
            (pool == others).then_some(true)
        }
        (one, other) => Some(one == other),
    }
}

/// Where a device reaches memory.
pub(crate) struct Place {
    pub address: CUdeviceptr,
    /// It is page-locked memory of the host.
    pub is_host: bool,
}

/// Where device `ordinal` reaches the memory at `range`. `None` unless that is part of one
/// allocation of the device, in this context or in none, or of page-locked memory that is mapped
/// there; and for managed memory.
///
/// `context` is the current one, and the device's.
pub(crate) fn place(
    range: &Range<CUdeviceptr>,
    context: CUcontext,
    ordinal: usize,
) -> Option<Place> {
    let address = range.start;
    let kind = attribute(address, Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0u32)?;
    let is_host = kind == CUmemorytype::CU_MEMORYTYPE_HOST as u32;
    if !is_host && kind != CUmemorytype::CU_MEMORYTYPE_DEVICE as u32 {
        return None;
    }
    if attribute(address, Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED, 0u32)? != 0 {
        return None;
    }
    // Memory of pools has no context.
    let made_in = attribute(address, Attribute::CU_POINTER_ATTRIBUTE_CONTEXT, 0usize)?;
    let device = attribute(
        address,
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        0i32,
    )?;
    if ![0, context as usize].contains(&made_in) || usize::try_from(device) != Ok(ordinal) {
        return None;
    }
    let start = attribute(
        address,
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        0u64,
    )?;
    let size = attribute(address, Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, 0u64)?;
    if address < start || range.end > start.saturating_add(size) {
        return None;
    }
    let address = attribute(
        address,
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        0u64,
    )?;
    Some(Place { address, is_host })
}

pub(crate) fn pool_figure(device: CUdevice, figure: CUgraphMem_attribute) -> Result<u64> {
    ask(0u64, |value| {
        let value = (&raw mut *value).cast();
        call!(cuDeviceGetGraphMemAttribute(device, figure, value))
    })
}

/// Starts one of the two high figures anew.
pub(crate) fn reset_pool_figure(device: CUdevice, figure: CUgraphMem_attribute) -> Result<()> {
    let mut zero: u64 = 0;
    let value = (&raw mut zero).cast();
    call!(cuDeviceSetGraphMemAttribute(device, figure, value))
}
