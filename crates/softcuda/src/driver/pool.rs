//! Memory pools and stream-ordered allocation.
//!
//! Memory is taken when the call is made and given back when the stream comes to the free. An
//! allocation of the same size that follows in the stream has the freed block at once, since all
//! work that used it comes before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::handle::Table;
use super::managed::Location;
use super::memory::{Made, own};
use super::stream::Stream;
use super::{CUresult, Result};
use crate::abi::types::{CUdeviceptr, CUmemoryPool};
use crate::memory::{self, Allocation, Kind};

/// What a pool takes from the device at a time, as its figures show.
const CHUNK: u64 = 32 << 20;
/// Handle types that a pool can be made for: file descriptors and fabric handles.
const HANDLE_TYPES: u32 = 9;

static POOLS: Table<Pool> = Table::new(10);
/// The default pool, and the one that the device allocates from.
static OF_DEVICE: Mutex<OfDevice> = Mutex::new(OfDevice {
    default: None,
    current: None,
});

struct OfDevice {
    default: Option<Arc<Pool>>,
    current: Option<Arc<Pool>>,
}

/// A pool.
pub(crate) struct Pool {
    handle: usize,
    location: Location,
    /// Handle types that it was made for.
    exportable: u32,
    /// The most that it may hold; 0 for no limit.
    most: u64,
    figures: Mutex<Figures>,
}

struct Figures {
    /// `CU_MEMPOOL_ATTR_REUSE_*`, in the order of their numbers.
    reuse: [bool; 3],
    threshold: u64,
    used: u64,
    used_high: u64,
    reserved: u64,
    reserved_high: u64,
    /// Blocks that were freed in streams that have not come to it.
    freed: Vec<Freed>,
}

/// A block that a stream is to free.
#[derive(Clone, Copy)]
struct Freed {
    allocation: Allocation,
    stream: u64,
    /// Which free this is: a block that was taken again may be freed again before the first free
    /// runs.
    ticket: u64,
}

impl Figures {
    fn new() -> Self {
        Figures {
            reuse: [true; 3],
            threshold: 0,
            used: 0,
            used_high: 0,
            reserved: 0,
            reserved_high: 0,
            freed: Vec::new(),
        }
    }

    /// Gives back what the pool does not use, but for `keep` bytes.
    fn shrink(&mut self, keep: u64) {
        let needed = self.used.next_multiple_of(CHUNK);
        self.reserved = self.reserved.min(keep.max(needed)).max(needed);
    }
}

/// What a pool is made of: `CUmemPoolProps`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
    /// `CUmemAllocationType`.
    pub kind: u32,
    /// `CUmemAllocationHandleType`.
    pub handle_types: u32,
    /// `CUmemLocation`.
    pub location: (u32, i32),
    /// The most that it may hold; 0 for no limit.
    pub most: u64,
}

/// `cuMemPoolCreate`.
pub(crate) fn create(properties: Properties) -> Result<CUmemoryPool> {
    const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
    let (kind, number) = properties.location;
    let location = Location::of_kind(kind, number).map_err(|_| INVALID)?;
    if properties.kind != 1 || properties.handle_types & !HANDLE_TYPES != 0 {
        return Err(INVALID);
    }
    let pool = POOLS.insert(|handle| Pool {
        handle,
        location,
        exportable: properties.handle_types,
        most: properties.most,
        figures: Mutex::new(Figures::new()),
    });
    Ok(pool.handle())
}

/// `cuMemPoolDestroy`: its allocations live on.
pub(crate) fn destroy(handle: CUmemoryPool) -> Result {
    let pool = resolve(handle)?;
    let mut device = OF_DEVICE.lock();
    if device
        .default
        .as_ref()
        .is_some_and(|default| Arc::ptr_eq(default, &pool))
    {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    device
        .current
        .take_if(|current| Arc::ptr_eq(current, &pool));
    POOLS.remove(handle.0);
    Ok(())
}

/// The live pool of a handle.
pub(crate) fn resolve(handle: CUmemoryPool) -> Result<Arc<Pool>> {
    POOLS.get(handle.0).or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// The device's default pool.
pub(crate) fn default() -> Arc<Pool> {
    let make = || {
        POOLS.insert(|handle| Pool {
            handle,
            location: Location::Device,
            exportable: 0,
            most: 0,
            figures: Mutex::new(Figures::new()),
        })
    };
    OF_DEVICE.lock().default.get_or_insert_with(make).clone()
}

/// The pool that the device allocates from.
pub(crate) fn current() -> Arc<Pool> {
    let current = OF_DEVICE.lock().current.clone();
    current.unwrap_or_else(default)
}

/// Makes a pool the one that the device allocates from.
pub(crate) fn set_current(handle: CUmemoryPool) -> Result {
    let pool = resolve(handle)?;
    OF_DEVICE.lock().current = Some(pool);
    Ok(())
}

/// `cuMemAllocFromPoolAsync`; null for no bytes.
pub(crate) fn alloc(pool: &Arc<Pool>, size: u64, stream: &Arc<Stream>) -> Result<CUdeviceptr> {
    stream.context().check()?;
    if size == 0 {
        return Ok(0);
    }
    let again = pool.take_again(size, stream.id());
    let allocation = match again.map_or_else(|| pool.take(size), Ok) {
        Ok(allocation) => allocation,
        // What earlier work of the stream frees is this allocation's to have.
        Err(_) if size <= memory::capacity() => {
            stream.synchronize()?;
            pool.take(size)?
        }
        Err(error) => return Err(error),
    };
    Ok(own(
        allocation,
        Made::Pooled(pool.clone()),
        stream.context().clone(),
    ))
}

impl Pool {
    /// Its handle.
    pub fn handle(&self) -> CUmemoryPool {
        CUmemoryPool(self.handle)
    }

    /// Where its memory is.
    pub fn location(&self) -> Location {
        self.location
    }

    /// What memory of a graph's is made of that is allocated as if from it.
    pub fn properties(&self) -> Properties {
        Properties {
            kind: 1,
            handle_types: 0,
            location: match self.location {
                Location::Device => (1, 0),
                Location::Host => (2, 0),
            },
            most: 0,
        }
    }

    /// Handle types that it was made for.
    pub fn exportable(&self) -> u32 {
        self.exportable
    }

    fn take(&self, size: u64) -> Result<Allocation> {
        let mut figures = self.figures.lock();
        let used = figures
            .used
            .checked_add(size)
            .ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        if self.most != 0 && used > self.most {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        let kind = match self.location {
            Location::Device => Kind::Device,
            Location::Host => Kind::Pinned,
        };
        let allocation = memory::alloc(size, 1, kind)?;
        figures.used = used;
        figures.used_high = figures.used_high.max(used);
        figures.reserved = figures.reserved.max(used.next_multiple_of(CHUNK));
        figures.reserved_high = figures.reserved_high.max(figures.reserved);
        Ok(allocation)
    }

    /// A block of this size that the stream is to free: it keeps it instead.
    fn take_again(&self, size: u64, stream: u64) -> Option<Allocation> {
        let mut figures = self.figures.lock();
        let fits = |freed: &Freed| freed.stream == stream && freed.allocation.size == size;
        let place = figures.freed.iter().rposition(fits)?;
        Some(figures.freed.swap_remove(place).allocation)
    }

    /// Takes an allocation of its own back when the stream comes to it.
    pub fn free_async(self: &Arc<Self>, allocation: Allocation, stream: &Arc<Stream>) -> Result {
        static TICKETS: AtomicU64 = AtomicU64::new(0);
        let ticket = TICKETS.fetch_add(1, Ordering::Relaxed);
        self.figures.lock().freed.push(Freed {
            allocation,
            stream: stream.id(),
            ticket,
        });
        let pool = self.clone();
        stream.submit(move || {
            let taken_out = {
                let mut figures = pool.figures.lock();
                let place = figures
                    .freed
                    .iter()
                    .position(|freed| freed.ticket == ticket);
                place.map(|place| figures.freed.swap_remove(place))
            };
            if let Some(freed) = taken_out {
                pool.free(freed.allocation);
            }
            Ok(())
        })
    }

    /// Takes an allocation of its own back.
    pub fn free(&self, allocation: Allocation) {
        memory::free(allocation.base);
        let mut figures = self.figures.lock();
        figures.used -= allocation.size;
        let threshold = figures.threshold;
        figures.shrink(threshold);
    }

    /// `cuMemPoolTrimTo`.
    pub fn trim(&self, keep: u64) {
        self.figures.lock().shrink(keep);
    }

    /// `cuMemPoolGetAttribute`, by the numbers of `CUmemPool_attribute`.
    pub fn attribute(&self, number: u32) -> Result<PoolValue> {
        let figures = self.figures.lock();
        Ok(match number {
            1..=3 => PoolValue::Flag(figures.reuse[number as usize - 1]),
            4 => PoolValue::Size(figures.threshold),
            5 => PoolValue::Size(figures.reserved),
            6 => PoolValue::Size(figures.reserved_high),
            7 => PoolValue::Size(figures.used),
            8 => PoolValue::Size(figures.used_high),
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        })
    }

    /// `cuMemPoolSetAttribute`: high marks can be set to zero alone, which means to what is now.
    pub fn set_attribute(&self, number: u32, value: u64) -> Result {
        let mut figures = self.figures.lock();
        match (number, value) {
            (1..=3, _) => figures.reuse[number as usize - 1] = value != 0,
            (4, threshold) => figures.threshold = threshold,
            (6, 0) => figures.reserved_high = figures.reserved,
            (8, 0) => figures.used_high = figures.used,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
}

/// The value of a pool's attribute, by its size in the ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolValue {
    /// An `int`.
    Flag(bool),
    /// A `cuuint64_t`.
    Size(u64),
}

/// `cuMemPoolSetAccess` of one location: the device reaches its pools always, and there is no
/// other.
pub(crate) fn set_access(pool: CUmemoryPool, location: (u32, i32), flags: u32) -> Result {
    resolve(pool)?;
    let (kind, number) = location;
    match (kind, number, flags) {
        (_, _, 2 | 4..) => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        (1, 0, 3) | (2..=4, _, 3) => Ok(()),
        (1, 0, 1) => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        (1, _, _) => Err(CUresult::CUDA_ERROR_INVALID_DEVICE),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}
