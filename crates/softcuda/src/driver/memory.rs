//! Allocations as the program knows them: which context owns each, how it was made, and ranges that
//! calls name.
//!
//! Invariant: [`OWNED`] has an entry for every allocation that the program made itself, under its
//! base. Memory of modules and of kernels' own `malloc` has none, so the program cannot free it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::context::{self, Context};
use super::graph::memory::GraphMemory;
use super::interprocess;
use super::interprocess::label::Id;
use super::managed::Advice;
use super::pool::Pool;
use super::reach::Reacher;
use super::stream::{self, Stream};
use super::{CUresult, Result};
use crate::abi::types::CUdeviceptr;
use crate::memory::{self, Allocation, Device, Kind, OutOfMemory, Reach};

impl From<OutOfMemory> for CUresult {
    fn from(_: OutOfMemory) -> Self {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY
    }
}

/// `CU_MEMHOSTALLOC_*`: portable, mapped, write-combined.
const HOST_ALLOC_FLAGS: u32 = 7;
/// `CU_MEMHOSTREGISTER_*`: portable, mapped, memory of a device, read-only.
const HOST_REGISTER_FLAGS: u32 = 15;
/// `CU_MEMHOSTREGISTER_IOMEMORY`: there are no other devices whose memory could be registered.
const HOST_REGISTER_IO: u32 = 4;
/// `CU_MEMHOSTREGISTER_READ_ONLY`: kernels only read it.
const HOST_REGISTER_READ_ONLY: u32 = 8;
/// Pinned allocations that begin within so many bytes count as one mapping.
const MAPPING: u64 = 2 << 20;
/// `CU_MEMHOSTALLOC_DEVICEMAP`: always on with unified addresses.
const MAPPED: u32 = 2;
/// `CU_MEMHOSTALLOC_PORTABLE`: always on as well, and reported where there are several devices.
const PORTABLE: u32 = 1;
/// `CU_MEMHOSTALLOC_WRITECOMBINED`.
const WRITE_COMBINED: u32 = 4;
/// Pinned allocations below this share a mapping with others, and its flags.
const OWN_MAPPING: u64 = 1 << 20;
/// What pinned memory is aligned to: a page of the host's.
const HOST_ALIGNMENT: u64 = 4096;

/// How the program made an allocation.
#[derive(Clone)]
pub(crate) enum Made {
    /// `cuMemAlloc`.
    Plain,
    /// From a pool, in stream order; managed memory with what was said of it.
    Pooled(Arc<Pool>, Option<Arc<Mutex<Advice>>>),
    /// `cuIpcOpenMemHandle`: memory of another process, by its number.
    Opened(Id),
    /// `cuMemHostAlloc`: the flags that it reports, and where the mapping begins.
    Host {
        /// `CU_MEMHOSTALLOC_*`.
        flags: u32,
        /// `CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR`.
        mapping: u64,
    },
    /// `cuMemHostRegister`, with the flags that it reports.
    Registered(u32),
    /// By an allocation node of a graph, which does not free it.
    Graph(Arc<GraphMemory>),
    /// `cuMemAllocManaged`.
    Managed(Arc<Mutex<Advice>>),
}

/// What the driver knows of an allocation of the program's.
#[derive(Clone)]
pub(crate) struct Owned {
    /// The memory.
    pub allocation: Allocation,
    /// How it was made.
    pub made: Made,
    /// The context it belongs to.
    pub context: Arc<Context>,
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
    pub sync_memops: bool,
}

static OWNED: RwLock<BTreeMap<u64, Owned>> = RwLock::new(BTreeMap::new());

/// Puts an allocation in the program's hands.
pub(crate) fn own(allocation: Allocation, made: Made, context: Arc<Context>) -> CUdeviceptr {
    let sync_memops = matches!(made, Made::Managed(_) | Made::Pooled(_, Some(_)));
    let mut owned = Owned {
        allocation,
        made,
        context,
        sync_memops,
    };
    let mut all = OWNED.write();
    if owned.made.is_of_context() {
        owned.set_reach(owned.context.reach());
    }
    all.insert(allocation.base, owned);
    allocation.base
}

impl Made {
    /// Who reaches it follows from who enabled access to its context's memory.
    fn is_of_context(&self) -> bool {
        matches!(self, Made::Plain | Made::Opened(_))
    }
}

impl Owned {
    fn set_reach(&mut self, reach: Reach) {
        if self.allocation.reach != reach {
            self.allocation.reach = reach;
            memory::change(self.allocation.base, self.allocation.kind, reach);
        }
    }
}

/// Access to a context's memory was enabled or disabled.
pub(crate) fn update_reach(context: &Context) {
    // What is allocated meanwhile sees the old reach and is in the table then, or the new one.
    let mut all = OWNED.write();
    let Some(reach) = context.find_reach() else {
        return;
    };
    for entry in all.values_mut() {
        if entry.context.id() == context.id() && entry.made.is_of_context() {
            entry.set_reach(reach);
        }
    }
}

/// Takes an allocation that begins at `base` out of the program's hands, where `may` says so.
pub(crate) fn disown(base: u64, may: impl FnOnce(&Owned) -> bool) -> Option<Owned> {
    let mut owned = OWNED.write();
    match owned.get(&base) {
        Some(entry) if may(entry) => owned.remove(&base),
        _ => None,
    }
}

/// The allocation of the program's that an address is in.
pub(crate) fn owner(address: u64) -> Option<Owned> {
    let owned = OWNED.read();
    let (_, entry) = owned.range(..=address).next_back()?;
    entry.allocation.contains(address).then(|| entry.clone())
}

/// Sets `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS` of the allocation that an address is in; false when it
/// is in none.
pub(crate) fn set_sync_memops(address: u64, on: bool) -> bool {
    let mut owned = OWNED.write();
    match owned.range_mut(..=address).next_back() {
        Some((_, entry)) if entry.allocation.contains(address) => {
            entry.sync_memops = on;
            true
        }
        _ => false,
    }
}

/// Changes what the memory of a pool is that the program has, and who reaches it.
pub(crate) fn change_pooled(pool: &Pool, kind: Kind, reach: Reach) {
    for (&base, entry) in OWNED.write().iter_mut() {
        if let Made::Pooled(of, _) = &entry.made
            && std::ptr::eq(&**of, pool)
        {
            entry.allocation.kind = kind;
            memory::change(base, kind, reach);
        }
    }
}

/// Frees what belongs to a context that ends. Memory of pools goes once the context is gone in
/// whose stream it was allocated, and with it all contexts of its device.
pub(crate) fn end_context(context: &Context) {
    let live = context::all();
    let is_left = |device| live.iter().any(|other| other.device() == device);
    let ends = |entry: &Owned| match entry.made {
        Made::Pooled(..) => entry.context.is_destroyed() && !is_left(entry.allocation.device),
        _ => entry.context.id() == context.id(),
    };
    let ended: Vec<Owned> = OWNED
        .write()
        .extract_if(.., |_, entry| ends(entry))
        .map(|(_, entry)| entry)
        .collect();
    // Not under the lock: what frees has locks of its own.
    ended.into_iter().for_each(release);
}

/// `cuMemGetInfo`: free and total.
pub(crate) fn info() -> Result<(u64, u64)> {
    let device = context::current()?.device();
    let total = memory::capacity();
    Ok((total - memory::used(device).min(total), total))
}

/// `cuMemAlloc`.
pub(crate) fn alloc(size: u64) -> Result<CUdeviceptr> {
    let context = context::current()?;
    if size == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let allocation = memory::alloc_apart(context.device(), size)?;
    Ok(own(allocation, Made::Plain, context))
}

/// `cuMemAllocPitch`: the memory, and the distance of its rows.
pub(crate) fn alloc_pitch(width: u64, height: u64, element: u32) -> Result<(CUdeviceptr, u64)> {
    context::current()?;
    if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let pitch = width
        .checked_next_multiple_of(memory::ALIGNMENT)
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let size = pitch
        .checked_mul(height)
        .ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    Ok((alloc(size)?, pitch))
}

/// `cuMemFree`: waits for the work that may use the memory, unless it is from a pool: that is taken
/// to be out of use. Null is fine.
pub(crate) fn free(address: CUdeviceptr) -> Result {
    context::check_if_any()?;
    if address == 0 {
        return Ok(());
    }
    let may = |entry: &Owned| {
        matches!(
            entry.made,
            Made::Plain | Made::Pooled(..) | Made::Managed(_) | Made::Graph(_)
        )
    };
    let owned = disown(address, may).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let waited = match owned.made {
        Made::Pooled(..) => Ok(()),
        _ => stream::synchronize_context(&owned.context),
    };
    release(owned);
    waited
}

/// `cuMemFreeAsync`: the memory is not the program's any more, and is free again when the stream
/// comes to it.
pub(crate) fn free_async(address: CUdeviceptr, stream: &Arc<Stream>) -> Result {
    stream.context().check()?;
    if address == 0 {
        return Ok(());
    }
    if owner(address).is_some_and(|owned| matches!(owned.made, Made::Managed(_))) {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let may = |entry: &Owned| matches!(entry.made, Made::Plain | Made::Pooled(..) | Made::Graph(_));
    let owned = disown(address, may).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    match &owned.made {
        Made::Pooled(pool, _) => pool.free_async(owned.allocation, stream),
        // Launches after this call may take it again.
        Made::Graph(memory) => {
            memory.give_back();
            Ok(())
        }
        _ => stream.submit(move || {
            release(owned);
            Ok(())
        }),
    }
}

/// Frees what was taken out of the program's hands.
fn release(owned: Owned) {
    let base = owned.allocation.base;
    let freed = match owned.made {
        Made::Pooled(pool, _) => return pool.free(owned.allocation),
        Made::Graph(memory) => return memory.give_back(),
        Made::Registered(_) => memory::unregister(base),
        Made::Plain => interprocess::memory::free(base),
        Made::Opened(id) => interprocess::memory::release(id),
        Made::Host { .. } | Made::Managed(_) => memory::free(base),
    };
    debug_assert!(
        freed.is_some(),
        "{base:#x} was an allocation of the program's"
    );
}

/// `cuMemGetAddressRange`: base and size of the allocation that an address is in, where the current
/// context reaches it.
pub(crate) fn address_range(address: CUdeviceptr) -> Result<(u64, u64)> {
    let context = context::current()?;
    match memory::find(address).filter(|found| context.fills().reaches(found)) {
        Some(found) => Ok((found.base, found.size)),
        None => Err(CUresult::CUDA_ERROR_NOT_FOUND),
    }
}

/// `cuMemHostAlloc`; null for no bytes.
pub(crate) fn host_alloc(size: u64, flags: u32) -> Result<CUdeviceptr> {
    let context = context::current()?;
    if flags & !HOST_ALLOC_FLAGS != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if size == 0 {
        return Ok(0);
    }
    let allocation = memory::alloc(context.device(), size, HOST_ALIGNMENT, Kind::Pinned)?;
    let made = Made::Host {
        flags: pinned_flags(&context, size, flags),
        mapping: mapping_of(allocation.base),
    };
    Ok(own(allocation, made, context))
}

/// What the driver says of host memory that was made with these flags.
fn reported_flags(flags: u32) -> u32 {
    match Device::count() {
        1 if flags & WRITE_COMBINED == 0 => flags & !PORTABLE | MAPPED,
        _ => flags | MAPPED,
    }
}

/// The flags that a pinned allocation reports. Small ones share a mapping, and report the flags of
/// the first one in it; write-combined ones have a mapping of their own.
fn pinned_flags(context: &Context, size: u64, flags: u32) -> u32 {
    let flags = reported_flags(flags);
    let shared = &context.pinned_flags[usize::from(flags & WRITE_COMBINED != 0)];
    match size < OWN_MAPPING {
        true => *shared.get_or_init(|| flags),
        false => flags,
    }
}

/// Where the mapping begins that a pinned allocation is in.
fn mapping_of(base: u64) -> u64 {
    static LAST: Mutex<u64> = Mutex::new(0);
    let mut last = LAST.lock();
    if base.wrapping_sub(*last) >= MAPPING {
        *last = base;
    }
    *last
}

/// `cuMemAllocManaged`, with `CU_MEM_ATTACH_GLOBAL` or `CU_MEM_ATTACH_HOST`.
pub(crate) fn alloc_managed(size: u64, flags: u32) -> Result<CUdeviceptr> {
    let context = context::current()?;
    if size == 0 || !matches!(flags, 1 | 2) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let allocation = memory::alloc(context.device(), size, 1, Kind::Managed)?;
    let advice = Arc::new(Mutex::new(Advice::new(size)));
    Ok(own(allocation, Made::Managed(advice), context))
}

/// `cuMemFreeHost`: waits for the work that may use the memory. Null is fine.
pub(crate) fn host_free(address: u64) -> Result {
    context::check_if_any()?;
    if address == 0 {
        return Ok(());
    }
    let owned = disown(address, |entry| matches!(entry.made, Made::Host { .. }))
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let waited = stream::synchronize_context(&owned.context);
    release(owned);
    waited
}

/// `cuMemHostRegister`.
pub(crate) fn host_register(address: u64, size: u64, flags: u32) -> Result {
    let context = context::current()?;
    let right = address != 0
        && size != 0
        && flags & !HOST_REGISTER_FLAGS == 0
        && flags & HOST_REGISTER_IO == 0;
    let end = address.checked_add(size);
    let wraps = end.is_none_or(|end| end > u64::MAX - memory::PAGE);
    if !right || wraps || memory::is_in_arena(address) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // More than the machine can hold, whether it is mapped or not.
    if size > host_memory() {
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    }
    let writable = flags & HOST_REGISTER_READ_ONLY == 0;
    memory::populate(address, size, writable).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let registered = memory::register(context.device(), address, size, writable)
        .map_err(|_| CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)?;
    own(registered, Made::Registered(reported_flags(flags)), context);
    Ok(())
}

/// The machine's memory in bytes.
fn host_memory() -> u64 {
    // SAFETY: the call only answers.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).map_or(u64::MAX, |pages| pages.saturating_mul(memory::PAGE))
}

/// `cuMemHostUnregister`: waits for the work that may use the memory.
pub(crate) fn host_unregister(address: u64) -> Result {
    context::current()?;
    let owned = match disown(address, |entry| matches!(entry.made, Made::Registered(_))) {
        Some(owned) => owned,
        None if address == 0 || owner(address).is_some() => {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        None => return Err(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
    };
    let waited = stream::synchronize_context(&owned.context);
    release(owned);
    waited
}

/// `cuMemHostGetFlags`.
pub(crate) fn host_flags(address: u64) -> Result<u32> {
    context::current()?;
    match owner(address).map(|owned| owned.made) {
        Some(Made::Host { flags, .. } | Made::Registered(flags)) => Ok(flags),
        Some(Made::Managed(_)) => Ok(MAPPED),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// `cuMemHostGetDevicePointer`: the same address, with unified addresses.
pub(crate) fn host_device_pointer(address: u64, flags: u32) -> Result<CUdeviceptr> {
    context::current()?;
    match owner(address).map(|owned| owned.made) {
        Some(Made::Host { .. } | Made::Registered(_)) if flags == 0 => Ok(address),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// Whose memory a range is, as far as copies care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The device's.
    Device,
    /// The host's, where the device reaches it: copies may still be under way when the call
    /// returns.
    Reachable,
    /// The host's, pageable: the call is done with it when it returns.
    Pageable,
}

/// Whose memory a range is; an error where it is in the arena and not all in live allocations that
/// `by` reaches, and for null.
pub(crate) fn place(address: u64, size: u64, by: Reacher) -> Result<Place> {
    const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
    let end = address
        .checked_add(size)
        .filter(|_| address != 0)
        .ok_or(INVALID)?;
    memory::begin_work();
    let Some(first) = memory::find(address) else {
        // What is the program's and is not found was registered, and unmapped since.
        return match memory::is_in_arena(address) || owner(address).is_some() {
            true => Err(INVALID),
            false => Ok(Place::Pageable),
        };
    };
    if !by.reaches(&first) {
        return Err(INVALID);
    }
    let place = match first.kind {
        Kind::Device | Kind::Global | Kind::Constant => Place::Device,
        Kind::Pinned | Kind::Managed | Kind::HostPool => Place::Reachable,
        Kind::HostOnly => Place::Pageable,
        // What is behind a registered range is the program's as well.
        Kind::Registered | Kind::RegisteredReadOnly if first.end() < end => {
            return Ok(Place::Pageable);
        }
        Kind::Registered | Kind::RegisteredReadOnly => return Ok(Place::Reachable),
    };
    // Mappings of physical memory lie side by side; other allocations have a gap behind them.
    let mut reached = first.end();
    while reached < end {
        let next = memory::find(reached).filter(|next| by.reaches(next));
        reached = next.ok_or(INVALID)?.end();
    }
    Ok(place)
}

/// As [`device_place`], of an end of a copy: an H200 takes no memory of the host's pools for the
/// device's there.
pub(crate) fn copied_place(address: u64, size: u64, by: Reacher) -> Result<Place> {
    let place = device_place(address, size, by)?;
    match memory::find(address) {
        Some(found) if found.kind == Kind::HostPool => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        _ => Ok(place),
    }
}

/// As [`place`], of an argument that must be an address of the device's.
pub(crate) fn device_place(address: u64, size: u64, by: Reacher) -> Result<Place> {
    match place(address, size, by)? {
        Place::Pageable => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        place => Ok(place),
    }
}
