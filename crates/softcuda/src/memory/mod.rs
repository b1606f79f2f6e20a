//! Device memory: one reserved range of the process's address space, in which everything a device
//! address can mean is allocated, so that a device address is a host address and a look-up says
//! what it belongs to.
//!
//! Global, constant and generic addresses are host addresses. Shared and local ones are offsets in
//! the memory of the block and of the thread, so that they fit in 32 bits. Their generic form is
//! the host address of the same byte. Registered host memory lies outside of the arena and is
//! looked up in a table.
//!
//! Raw device memory is read and written here and by compiled code after its check, nowhere else.
//!
//! Invariant: arena pages stay mapped readable and writable for the process's life, so an access
//! that was checked against an allocation freed meanwhile reads or writes stale bytes, never an
//! unmapped page.

pub(crate) mod access;
mod arena;
mod device;
mod index;
mod size;
mod space;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;

pub(crate) use arena::PageFile;
use arena::arena;
pub(crate) use device::{Device, Reach, View};
pub(crate) use size::parse as parse_size;
pub(crate) use space::Space;

/// What every allocation is aligned to at least.
pub(crate) const ALIGNMENT: u64 = index::GRANULE;

/// The host's pages, in which memory is mapped.
pub(crate) const PAGE: u64 = arena::OS_PAGE;

/// What an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// `cuMemAlloc`, pools, device `malloc`.
    Device,
    /// `cuMemAllocHost`, `cuMemHostAlloc`.
    Pinned,
    /// `cuMemAllocManaged`, `.managed` variables.
    Managed,
    /// Host memory of the program, by `cuMemHostRegister`: outside the arena.
    Registered,
    /// The same, which kernels may not write.
    RegisteredReadOnly,
    /// A `.global` variable of a module.
    Global,
    /// A `.const` variable of a module: kernels may not write it.
    Constant,
    /// Of a pool of the host's memory, which the device has access to.
    HostPool,
    /// Of a pool of the host's memory, which the device has no access to.
    HostOnly,
}

impl Kind {
    /// A kernel may access it so.
    pub fn permits(self, write: bool) -> bool {
        match self {
            Kind::Constant | Kind::RegisteredReadOnly => !write,
            Kind::HostOnly => false,
            _ => true,
        }
    }
}

impl Kind {
    /// It takes from the device's memory, rather than from the host's.
    fn is_charged(self) -> bool {
        matches!(self, Kind::Device | Kind::Global | Kind::Constant)
    }

    /// Who reaches it at first.
    fn reach(self, device: Device) -> Reach {
        match self {
            Kind::HostOnly => Reach::NOBODY,
            _ if self.is_charged() => Reach::of_context(device),
            _ => Reach::EVERYBODY,
        }
    }
}

/// A live allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// Its first byte.
    pub base: u64,
    /// Its size in bytes, as asked for.
    pub size: u64,
    /// What it is.
    pub kind: Kind,
    /// Unique among all allocations ever made.
    pub id: u64,
    /// The device whose memory it is, or whose context made it.
    pub device: Device,
    /// Which devices reach it.
    pub reach: Reach,
}

impl Allocation {
    /// The address after its last byte.
    pub fn end(&self) -> u64 {
        self.base + self.size
    }

    /// The address is in it.
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.size
    }
}

/// There is not enough memory left, or no hole in the arena that is large enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory;

/// The memory of each device in bytes.
pub(crate) fn capacity() -> u64 {
    arena().capacity()
}

/// A device's memory in use, in bytes.
pub(crate) fn used(device: Device) -> u64 {
    USED[device.index()].load(Ordering::Relaxed)
}

static USED: [AtomicU64; Device::MOST] = [const { AtomicU64::new(0) }; Device::MOST];

/// Takes from a device's memory without taking addresses.
pub(crate) fn charge(device: Device, size: u64) -> Result<(), OutOfMemory> {
    let capacity = capacity();
    let more = |used: u64| used.checked_add(size).filter(|&used| used <= capacity);
    match USED[device.index()].fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
        Ok(_) => Ok(()),
        Err(_) => Err(OutOfMemory),
    }
}

/// Gives back what [`charge`] took.
pub(crate) fn discharge(device: Device, size: u64) {
    USED[device.index()].fetch_sub(size, Ordering::Relaxed);
}

/// Allocates. `align` is a power of two; the base is a multiple of it and of [`ALIGNMENT`]. What
/// the memory holds is arbitrary. No address belongs to an allocation of no bytes.
pub(crate) fn alloc(
    device: Device,
    size: u64,
    align: u64,
    kind: Kind,
) -> Result<Allocation, OutOfMemory> {
    let charged = if kind.is_charged() {
        footprint(size)?
    } else {
        0
    };
    charge(device, charged)?;
    let taken = arena()
        .take(size, align)
        .and_then(|base| insert(device, base, size, kind).inspect_err(|_| arena().give(base)));
    taken.inspect_err(|_| discharge(device, charged))
}

/// Puts an allocation in the index, reached as its kind is.
fn insert(device: Device, base: u64, size: u64, kind: Kind) -> Result<Allocation, OutOfMemory> {
    let reach = kind.reach(device);
    arena().index().insert(base, size, (device, kind, reach))
}

/// Frees the allocation that begins at `base`, and answers what it was; `None` when none does.
pub(crate) fn free(base: u64) -> Option<Allocation> {
    let allocation = arena().index().remove(base)?;
    arena().give(base);
    if allocation.kind.is_charged() {
        discharge_footprint(&allocation);
    }
    Some(allocation)
}

/// As [`alloc`] of [`Kind::Device`], on pages that no other allocation is on, so that
/// [`share`] can move them.
pub(crate) fn alloc_apart(device: Device, size: u64) -> Result<Allocation, OutOfMemory> {
    // Allocations that all begin where a page does would share cache sets. Where one begins follows
    // from its block, so that memory that is taken again has the same address.
    let within = |block: u64| block / PAGE * ALIGNMENT % PAGE;
    let charged = footprint(size)?;
    charge(device, charged)?;
    let taken = size.checked_add(PAGE - ALIGNMENT).ok_or(OutOfMemory);
    let taken = taken.and_then(|size| arena().take(size, PAGE));
    let made = taken.and_then(|block| {
        insert(device, block + within(block), size, Kind::Device)
            .inspect_err(|_| arena().give(block))
    });
    made.inspect_err(|_| discharge(device, charged))
}

/// The pages of an allocation that has them for itself: the first one's address, and their size.
pub(crate) fn pages_of(allocation: &Allocation) -> (u64, u64) {
    pages_around(allocation.base, allocation.size)
}

/// The pages that a range is on: the first one's address, and their size.
fn pages_around(base: u64, size: u64) -> (u64, u64) {
    let start = base & !(PAGE - 1);
    (start, (base + size - start).next_multiple_of(PAGE))
}

/// Moves the pages of an allocation of [`alloc_apart`] into a file of as many bytes, where another
/// process can map them. Waits until nothing runs that may access memory.
pub(crate) fn share(allocation: &Allocation, file: &PageFile) -> Result<(), OutOfMemory> {
    let (start, size) = pages_of(allocation);
    let _alone = ACCESS.write();
    arena().move_to(start, size, file)
}

/// Frees what [`share`] moved; the pages live on in the file.
pub(crate) fn free_shared(allocation: &Allocation) {
    if arena().index().remove(allocation.base).is_none() {
        return;
    }
    let (start, size) = pages_of(allocation);
    // Addresses that cannot be had back stay reserved.
    if arena().unmap(start, size).is_ok() {
        arena().give(start);
    }
    discharge_footprint(allocation);
}

/// Makes an allocation on pages of a file, from `offset`, a multiple of a page; it begins `within`
/// the first page. It takes nothing from the device's memory.
pub(crate) fn alloc_file(
    device: Device,
    file: &PageFile,
    offset: u64,
    within: u64,
    size: u64,
    kind: Kind,
) -> Result<Allocation, OutOfMemory> {
    let pages = within.checked_add(size).ok_or(OutOfMemory)?;
    let pages = pages.checked_next_multiple_of(PAGE).ok_or(OutOfMemory)?;
    let block = arena().take(pages, PAGE)?;
    let mapped = arena().map(block, pages, file, offset);
    let made = mapped.and_then(|()| insert(device, block + within, size, kind));
    made.inspect_err(|_| {
        if arena().unmap(block, pages).is_ok() {
            arena().give(block);
        }
    })
}

/// Takes back what [`alloc_file`] made.
pub(crate) fn free_file(allocation: &Allocation) {
    if arena().index().remove(allocation.base).is_none() {
        return;
    }
    let (start, size) = pages_of(allocation);
    if arena().unmap(start, size).is_ok() {
        arena().give(start);
    }
}

/// Changes what a live allocation is and who reaches it, from now on.
pub(crate) fn change(base: u64, kind: Kind, reach: Reach) {
    arena().index().change(base, kind, reach);
}

/// Whoever accesses device memory holds this, so that [`share`] finds nobody who does.
static ACCESS: RwLock<()> = RwLock::new(());

/// Keeps memory where it is: held by whatever accesses it, also by several at once and one in
/// another.
pub(crate) fn hold() -> impl Drop {
    // Kernels wait for what other kernels or copies write, so that a holder that waits to begin
    // could be waited for.
    ACCESS.read_recursive()
}

/// Makes a fresh allocation read as zero. However large it is, it takes no more of the machine's
/// memory by that.
pub(crate) fn clear(allocation: &Allocation) {
    arena().clear(allocation.base, allocation.size);
}

/// What an allocation takes of the device's memory.
fn footprint(size: u64) -> Result<u64, OutOfMemory> {
    size.max(1)
        .checked_next_multiple_of(ALIGNMENT)
        .ok_or(OutOfMemory)
}

/// Gives back what an allocation took of its device's memory.
fn discharge_footprint(allocation: &Allocation) {
    let size = footprint(allocation.size).expect("it was computed when this was allocated");
    discharge(allocation.device, size);
}

/// The live allocation that an address is in. Any thread may ask at any time; takes no lock for
/// addresses in the arena.
pub(crate) fn find(address: u64) -> Option<Allocation> {
    let arena = arena();
    match arena.contains(address) {
        true => arena.index().find(address),
        false => find_registered(address),
    }
}

/// Addresses for mappings of physical memory, none of which is an allocation yet.
pub(crate) fn reserve(size: u64, align: u64) -> Result<u64, OutOfMemory> {
    arena().take(size, align)
}

/// Gives back what [`reserve`] gave, in which nothing is mapped any more.
pub(crate) fn unreserve(base: u64) {
    arena().give(base);
}

/// Puts physical memory at addresses that were reserved. Nothing may access them before [`expose`].
pub(crate) fn map(base: u64, size: u64, file: &PageFile, offset: u64) -> Result<(), OutOfMemory> {
    arena().map(base, size, file, offset)
}

/// Puts fresh pages where [`map`] put physical memory.
pub(crate) fn unmap(base: u64, size: u64) -> Result<(), OutOfMemory> {
    arena().unmap(base, size)
}

/// Makes reserved addresses an allocation; `base` and `size` are multiples of [`ALIGNMENT`].
pub(crate) fn expose(
    device: Device,
    base: u64,
    size: u64,
    reach: Reach,
) -> Result<Allocation, OutOfMemory> {
    arena()
        .index()
        .insert(base, size, (device, Kind::Device, reach))
}

/// Takes back what [`expose`] did.
pub(crate) fn hide(base: u64) {
    arena().index().remove(base);
}

/// Registered host ranges by base, and how many there are.
static REGISTERED: RwLock<BTreeMap<u64, Registered>> = RwLock::new(BTreeMap::new());
static REGISTERED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// A range of the program's memory that it registered.
struct Registered {
    allocation: Allocation,
    /// The piece of [`WORK`] at which it was found mapped last; [`UNMAPPED`] once it was not.
    mapped: AtomicU64,
}

/// The program unmapped the range, or a part of it.
const UNMAPPED: u64 = u64::MAX;

/// Launches and copies so far: each asks anew whether registered memory is still mapped.
static WORK: AtomicU64 = AtomicU64::new(0);

/// A range of the program's memory overlaps one that is registered, or the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overlap;

/// Makes a range of the program's own memory an allocation: the device may read it, and write it if
/// it is `writable`.
pub(crate) fn register(
    device: Device,
    base: u64,
    size: u64,
    writable: bool,
) -> Result<Allocation, Overlap> {
    let end = base.checked_add(size).ok_or(Overlap)?;
    let mut registered = REGISTERED.write();
    let below = registered.range(..end).next_back();
    if arena().overlaps(base, size) || below.is_some_and(|(_, other)| other.allocation.end() > base)
    {
        return Err(Overlap);
    }
    let allocation = Allocation {
        base,
        size,
        kind: match writable {
            true => Kind::Registered,
            false => Kind::RegisteredReadOnly,
        },
        id: index::new_id(),
        device,
        reach: Reach::EVERYBODY,
    };
    let mapped = AtomicU64::new(WORK.load(Ordering::Relaxed));
    registered.insert(base, Registered { allocation, mapped });
    REGISTERED_COUNT.store(registered.len(), Ordering::Release);
    Ok(allocation)
}

/// Takes back what [`register`] did; `None` when no registered range begins there.
pub(crate) fn unregister(base: u64) -> Option<Allocation> {
    let mut registered = REGISTERED.write();
    let removed = registered.remove(&base)?;
    REGISTERED_COUNT.store(registered.len(), Ordering::Release);
    Some(removed.allocation)
}

/// A launch or a copy begins. Registered ranges that the program has unmapped since are no memory
/// of the device's any more: work that reaches for them fails. A device still has their pages;
/// here they are gone, and an access would end the process. What is unmapped while work runs, or
/// loses its permissions or its file, is not seen.
pub(crate) fn begin_work() {
    if REGISTERED_COUNT.load(Ordering::Acquire) != 0 {
        WORK.fetch_add(1, Ordering::Relaxed);
    }
}

/// An address is in registered memory that the program has unmapped since, as a piece of work
/// that begins now finds it.
pub(crate) fn was_unmapped(address: u64) -> bool {
    begin_work();
    find_in_registered(address, |found| (!found.is_mapped()).then_some(())).is_some()
}

impl Registered {
    fn is_mapped(&self) -> bool {
        let work = WORK.load(Ordering::Relaxed);
        let seen = self.mapped.load(Ordering::Relaxed);
        if seen >= work {
            return seen != UNMAPPED;
        }
        let Allocation { base, size, .. } = self.allocation;
        let mapped = is_mapped(base, size);
        if !mapped {
            tracing::warn!("memory at {base:#x} was unmapped before `cuMemHostUnregister`");
        }
        // Nothing makes it the device's again.
        self.mapped
            .fetch_max(if mapped { work } else { UNMAPPED }, Ordering::Relaxed);
        mapped
    }
}

/// All pages of a range are mapped, whatever they permit.
fn is_mapped(base: u64, size: u64) -> bool {
    let (start, length) = pages_around(base, size);
    // SAFETY: Linux does nothing for this but look whether there are mappings.
    let found = unsafe { libc::msync(start as *mut _, length as usize, libc::MS_ASYNC) };
    found == 0
}

/// Brings the pages of a range into memory, to be read or written as well. Fails where some are not
/// mapped, permit less, or lie past the end of a file. The range does not wrap.
pub(crate) fn populate(base: u64, size: u64, writable: bool) -> io::Result<()> {
    let advice = match writable {
        true => libc::MADV_POPULATE_WRITE,
        false => libc::MADV_POPULATE_READ,
    };
    let (start, length) = pages_around(base, size);
    // SAFETY: the advice changes no byte, and writes nothing but page tables.
    let advise = |length| unsafe { libc::madvise(start as *mut _, length, advice) };
    if advise(length as usize) == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // Linux before 5.14 does not know the advice, and says so even of no pages.
    match advise(0) {
        0 => Err(error),
        _ => Ok(()),
    }
}

fn find_registered(address: u64) -> Option<Allocation> {
    find_in_registered(address, |found| {
        found.is_mapped().then_some(found.allocation)
    })
}

/// What `get` gives of the registered range that an address is in, mapped or not.
fn find_in_registered<T>(address: u64, get: impl FnOnce(&Registered) -> Option<T>) -> Option<T> {
    if REGISTERED_COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let registered = REGISTERED.read();
    let (_, found) = registered.range(..=address).next_back()?;
    found.allocation.contains(address).then(|| get(found))?
}

/// The address is in the arena: no memory of the program's own.
pub(crate) fn is_in_arena(address: u64) -> bool {
    arena().contains(address)
}

#[cfg(test)]
mod tests;
