//! Memory pools and stream-ordered allocation.
//!
//! Memory is taken when the call is made and given back when the stream comes to the free. An
//! allocation of the same size that follows in the stream has the freed block at once, since all
//! work that used it comes before.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::handle::Table;
use super::interprocess::label::{self, Label, What};
use super::managed::Advice;
use super::memory::{Made, own};
use super::stream::Stream;
use super::virtual_memory::Access;
use super::{CUresult, Result, device};
use crate::abi::types::{CUdeviceptr, CUmemoryPool};
use crate::memory::{self, Allocation, Device, Kind, PAGE, PageFile, Reach, Space};

/// What a pool takes from the device at a time, as its figures show.
const CHUNK: u64 = 32 << 20;
/// Handle types that a pool can be made for: file descriptors and fabric handles.
const HANDLE_TYPES: u32 = 9;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const FILE_DESCRIPTOR: u32 = 1;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const NOT_SUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;

static POOLS: Table<Pool> = Table::new(10);
/// The default pool of each place, and the one that it allocates from.
static PLACES: Mutex<BTreeMap<Home, PoolsOf>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct PoolsOf {
    default: Option<Arc<Pool>>,
    current: Option<Arc<Pool>>,
}

/// `CUmemLocationType`.
mod location {
    pub const NONE: u32 = 0;
    pub const DEVICE: u32 = 1;
    pub const HOST: u32 = 2;
    pub const HOST_NUMA: u32 = 3;
    pub const HOST_NUMA_CURRENT: u32 = 4;
}

/// `CUmemAllocationType`.
mod kind {
    pub const PINNED: u32 = 1;
    pub const MANAGED: u32 = 2;
}

/// Where the memory of a pool is, and of what kind it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Home {
    managed: bool,
    /// `CUmemLocationType`.
    location: u32,
    /// The device that it names; the first where it names none.
    device: Device,
}

impl Home {
    /// A device's own memory.
    pub fn device(device: Device) -> Home {
        Home {
            managed: false,
            location: location::DEVICE,
            device,
        }
    }

    /// Of an allocation type and a location, which a pool can be made with.
    fn of(kind: u32, (location, number): (u32, i32)) -> Result<Home> {
        let managed = match kind {
            kind::PINNED => false,
            kind::MANAGED => true,
            _ => return Err(INVALID),
        };
        let mut device = Device::FIRST;
        match location {
            location::NONE | location::HOST_NUMA_CURRENT if managed => {}
            location::DEVICE => device = device::check(number).map_err(|_| INVALID)?,
            location::HOST => {}
            location::HOST_NUMA if number == 0 => {}
            location if managed && location > location::HOST_NUMA_CURRENT => {
                return Err(NOT_SUPPORTED);
            }
            _ => return Err(INVALID),
        }
        Ok(Home {
            managed,
            location,
            device,
        })
    }

    /// As [`of`](Self::of), of a place that has pools by itself.
    pub fn with_pools(kind: u32, place: (u32, i32)) -> Result<Home> {
        match place.0 {
            location::HOST_NUMA_CURRENT.. => Err(NOT_SUPPORTED),
            _ => Home::of(kind, place),
        }
    }

    /// `CUmemLocationType`.
    pub fn location(self) -> u32 {
        self.location
    }

    /// `CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION` of managed memory.
    pub fn preferred_number(self) -> i32 {
        match self.location {
            location::NONE => -2,
            location::DEVICE => self.device.number(),
            _ => -1,
        }
    }

    /// `CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID` of managed memory.
    pub fn preferred_id(self) -> i32 {
        match self.location {
            location::NONE => -2,
            _ => self.device.number(),
        }
    }

    fn is_of_host(self) -> bool {
        !self.managed && self.location != location::DEVICE
    }

    fn is_of_device(self) -> bool {
        !self.managed && self.location == location::DEVICE
    }
}

/// Who was given access to a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reached {
    devices: Reach,
    host: bool,
    numa: bool,
}

/// A pool.
pub(crate) struct Pool {
    handle: usize,
    home: Home,
    /// Handle types that it was made for.
    exportable: u32,
    /// The most that it may hold; 0 for no limit.
    most: u64,
    figures: Mutex<Figures>,
    reached: Mutex<Reached>,
    /// Of a pool that other processes can import, or that is another process's.
    shared: Option<Shared>,
}

/// The pages of a pool that processes share.
struct Shared {
    file: PageFile,
    label: Label,
    pages: Mutex<Pages>,
}

enum Pages {
    /// The pool is of this process: which pages are taken, and where allocations have theirs, by
    /// address.
    Own(Space, HashMap<u64, u64>),
    /// The pool is another process's.
    Imported(Imported),
}

/// What the program has of another process's pool.
struct Imported {
    /// The other process is this one.
    own: bool,
    /// How often it was imported and not destroyed.
    times: u64,
    /// Allocations that were imported, by their place in the file.
    pointers: BTreeMap<u64, Allocation>,
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
    /// `CU_MEM_POOL_CREATE_USAGE_*`.
    pub usage: u16,
}

/// `cuMemPoolCreate`.
pub(crate) fn create(properties: Properties) -> Result<CUmemoryPool> {
    let home = Home::of(properties.kind, properties.location)?;
    let exportable = properties.handle_types;
    if exportable & !HANDLE_TYPES != 0 {
        return Err(INVALID);
    }
    if home.managed && (exportable != 0 || properties.most != 0 || properties.usage != 0) {
        return Err(INVALID);
    }
    if home.location == location::HOST && exportable != 0 {
        return Err(INVALID);
    }
    let shared = match exportable & FILE_DESCRIPTOR != 0 {
        true => Some(Shared::new(properties.location)?),
        false => None,
    };
    let pool = POOLS.insert(|handle| Pool {
        exportable,
        most: properties.most,
        shared,
        ..Pool::new(handle, home)
    });
    Ok(pool.handle())
}

/// `cuMemPoolDestroy`: its allocations live on. One of another process goes when nothing of it is
/// imported any more.
pub(crate) fn destroy(handle: CUmemoryPool) -> Result {
    let pool = resolve(handle)?;
    if let Some(shared) = &pool.shared
        && let Pages::Imported(imported) = &mut *shared.pages.lock()
    {
        if !imported.pointers.is_empty() {
            return Err(INVALID);
        }
        imported.times -= 1;
        if imported.times > 0 {
            return Ok(());
        }
    }
    let is_it = |other: &Arc<Pool>| Arc::ptr_eq(other, &pool);
    let mut places = PLACES.lock();
    if places
        .values()
        .any(|of| of.default.as_ref().is_some_and(is_it))
    {
        return Err(INVALID);
    }
    // The host's memory goes on being allocated from its pool, as on an H200.
    for (home, of) in places.iter_mut() {
        of.current
            .take_if(|current| !home.is_of_host() && is_it(current));
    }
    POOLS.remove(handle.0);
    Ok(())
}

/// The live pool of a handle.
pub(crate) fn resolve(handle: CUmemoryPool) -> Result<Arc<Pool>> {
    POOLS.get(handle.0).or(INVALID)
}

/// The live pool of a handle, where it is of this process.
pub(crate) fn resolve_own(handle: CUmemoryPool) -> Result<Arc<Pool>> {
    let pool = resolve(handle)?;
    match pool.is_imported() {
        true => Err(INVALID),
        false => Ok(pool),
    }
}

/// The default pool of a place.
pub(crate) fn default_of(home: Home) -> Arc<Pool> {
    let make = || POOLS.insert(|handle| Pool::new(handle, home));
    let mut places = PLACES.lock();
    let of = places.entry(home).or_default();
    of.default.get_or_insert_with(make).clone()
}

/// The pool that a place allocates from.
pub(crate) fn current_of(home: Home) -> Arc<Pool> {
    let current = PLACES.lock().get(&home).and_then(|of| of.current.clone());
    current.unwrap_or_else(|| default_of(home))
}

/// `cuDeviceSetMemPool`: makes a pool of the device's, also of managed memory, the one that its
/// place allocates from.
pub(crate) fn set_of_device(device: Device, handle: CUmemoryPool) -> Result {
    let home = resolve_own(handle)?.home;
    match home.location {
        location::DEVICE if home.device == device => set_current(home, handle),
        _ => Err(INVALID),
    }
}

/// Makes a pool the one that a place allocates from: it must be of that place.
pub(crate) fn set_current(home: Home, handle: CUmemoryPool) -> Result {
    let pool = resolve_own(handle)?;
    if pool.home != home {
        return Err(INVALID);
    }
    PLACES.lock().entry(home).or_default().current = Some(pool);
    Ok(())
}

/// `cuMemAllocFromPoolAsync`; null for no bytes.
pub(crate) fn alloc(pool: &Arc<Pool>, size: u64, stream: &Arc<Stream>) -> Result<CUdeviceptr> {
    stream.context().check()?;
    if pool.is_imported() {
        return Err(INVALID);
    }
    if size == 0 {
        return Ok(0);
    }
    let again = pool.take_again(size, stream.id());
    let allocation = match again.map_or_else(|| pool.take(size), Ok) {
        Ok(allocation) => allocation,
        // An allocation may take memory that earlier work of the stream frees.
        Err(_) if size <= memory::capacity() => {
            stream.synchronize()?;
            pool.take(size)?
        }
        Err(error) => return Err(error),
    };
    if !pool.home.managed {
        // Access may have changed since another allocation had the block.
        memory::change(allocation.base, pool.kind(), pool.reach());
    }
    let advice = pool
        .home
        .managed
        .then(|| Arc::new(Mutex::new(Advice::new(size))));
    Ok(own(
        allocation,
        Made::Pooled(pool.clone(), advice),
        stream.context().clone(),
    ))
}

/// `cuMemPoolImportFromShareableHandle`: a pool that was imported before has the same handle again.
pub(crate) fn import(fd: RawFd) -> Result<CUmemoryPool> {
    let (file, label) = label::import(fd)?;
    if label.what != What::Pool {
        return Err(NOT_SUPPORTED);
    }
    let known = POOLS.all().into_iter().find(|pool| {
        pool.is_imported()
            && pool
                .shared
                .as_ref()
                .is_some_and(|shared| shared.label == label)
    });
    if let Some(pool) = known
        && let Some(shared) = &pool.shared
        && let Pages::Imported(imported) = &mut *shared.pages.lock()
        && imported.times > 0
    {
        imported.times += 1;
        return Ok(pool.handle());
    }
    let home = Home::of(kind::PINNED, label.location)?;
    let own = POOLS.all().iter().any(|pool| {
        let shared = pool.shared.as_ref();
        shared.is_some_and(|shared| shared.label == label)
    });
    let shared = Shared {
        file,
        label,
        pages: Mutex::new(Pages::Imported(Imported {
            own,
            times: 1,
            pointers: BTreeMap::new(),
        })),
    };
    let pool = POOLS.insert(|handle| Pool {
        shared: Some(shared),
        ..Pool::new(handle, home)
    });
    Ok(pool.handle())
}

/// What another process imports an allocation by: `CUmemPoolPtrExportData`.
struct Pointer {
    /// The pool.
    id: label::Id,
    /// Where it begins in the pool's file, and how large it is.
    offset: u64,
    size: u64,
}

impl Pointer {
    const MAGIC: u64 = u64::from_le_bytes(*b"softpool");

    fn encode(&self) -> [u8; 64] {
        let words = [Self::MAGIC, self.id[0], self.id[1], self.offset, self.size];
        let mut bytes = [0; 64];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; 64]) -> Result<Pointer> {
        let [magic, id, more_id, offset, size] = label::words(bytes);
        let pointer = Pointer {
            id: [id, more_id],
            offset,
            size,
        };
        match magic == Self::MAGIC {
            true => Ok(pointer),
            false => Err(INVALID),
        }
    }
}

/// `cuMemPoolExportPointer`, of the address that an allocation begins at.
pub(crate) fn export_pointer(address: CUdeviceptr) -> Result<[u8; 64]> {
    let owned = super::memory::owner(address).ok_or(INVALID)?;
    let Made::Pooled(pool, _) = owned.made else {
        return Err(INVALID);
    };
    let shared = pool.shared.as_ref().ok_or(INVALID)?;
    let offset = match &*shared.pages.lock() {
        Pages::Own(_, places) => *places.get(&address).ok_or(INVALID)?,
        Pages::Imported(_) => return Err(INVALID),
    };
    let pointer = Pointer {
        id: shared.label.id,
        offset,
        size: owned.allocation.size,
    };
    Ok(pointer.encode())
}

/// `cuMemPoolImportPointer`: what was imported before has the same address again.
pub(crate) fn import_pointer(
    pool: &Arc<Pool>,
    data: &[u8; 64],
    context: &Arc<super::context::Context>,
) -> Result<CUdeviceptr> {
    let pointer = Pointer::decode(data)?;
    let shared = pool.shared.as_ref().ok_or(INVALID)?;
    let mut pages = shared.pages.lock();
    let Pages::Imported(imported) = &mut *pages else {
        return Err(INVALID);
    };
    let fits = pointer.size > 0
        && pointer.offset.is_multiple_of(PAGE)
        && pointer
            .offset
            .checked_add(pointer.size)
            .is_some_and(|end| end <= shared.label.size);
    if pointer.id != shared.label.id || !fits {
        return Err(INVALID);
    }
    if let Some(known) = imported.pointers.get(&pointer.offset) {
        return Ok(known.base);
    }
    let kind = pool.kind();
    let device = pool.home.device;
    let allocation =
        memory::alloc_file(device, &shared.file, pointer.offset, 0, pointer.size, kind)?;
    memory::change(allocation.base, kind, pool.reach());
    imported.pointers.insert(pointer.offset, allocation);
    drop(pages);
    let made = Made::Pooled(pool.clone(), None);
    Ok(own(allocation, made, context.clone()))
}

impl Shared {
    /// The pages of a new pool: as many as there can be.
    fn new(location: (u32, i32)) -> Result<Shared> {
        let label = Label {
            what: What::Pool,
            id: label::new_id()?,
            size: memory::capacity(),
            location,
        };
        Ok(Shared {
            file: label.create()?,
            label,
            pages: Mutex::new(Pages::Own(Space::new(0, label.size), HashMap::new())),
        })
    }

    fn take(&self, device: Device, size: u64, kind: Kind) -> Result<Allocation> {
        let mut pages = self.pages.lock();
        let Pages::Own(space, places) = &mut *pages else {
            return Err(INVALID);
        };
        const FULL: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let length = size.checked_next_multiple_of(PAGE).ok_or(FULL)?;
        let offset = space.take(length, PAGE).ok_or(FULL)?;
        let made = memory::alloc_file(device, &self.file, offset, 0, size, kind)
            .inspect_err(|_| _ = space.give(offset))?;
        places.insert(made.base, offset);
        Ok(made)
    }

    fn free(&self, allocation: &Allocation) {
        // Once the addresses are free, another allocation may have them: until then this one's
        // place is looked up, and nobody takes any.
        let mut pages = self.pages.lock();
        memory::free_file(allocation);
        if let Pages::Own(space, places) = &mut *pages
            && let Some(offset) = places.remove(&allocation.base)
            && let Some(length) = space.give(offset)
        {
            self.file.punch(offset, length);
        }
    }
}

impl Pool {
    fn new(handle: usize, home: Home) -> Pool {
        let host = home.is_of_host();
        Pool {
            handle,
            home,
            exportable: 0,
            most: 0,
            figures: Mutex::new(Figures::new()),
            reached: Mutex::new(Reached {
                devices: match home.is_of_device() {
                    true => Reach::NOBODY.with(home.device, true, true),
                    false => Reach::NOBODY,
                },
                host,
                numa: host,
            }),
            shared: None,
        }
    }

    /// Its handle.
    pub fn handle(&self) -> CUmemoryPool {
        CUmemoryPool(self.handle)
    }

    /// Where its memory is, and of what kind.
    pub fn home(&self) -> Home {
        self.home
    }

    /// What memory of a graph's is made of that is allocated as if from it.
    pub fn properties(&self) -> Properties {
        Properties {
            kind: match self.home.managed {
                true => kind::MANAGED,
                false => kind::PINNED,
            },
            handle_types: 0,
            location: (self.home.location, self.home.device.number()),
            most: 0,
            usage: 0,
        }
    }

    /// Handle types that it was made for.
    pub fn exportable(&self) -> u32 {
        self.exportable
    }

    /// It is another process's.
    fn is_imported(&self) -> bool {
        let shared = self.shared.as_ref();
        shared.is_some_and(|shared| matches!(*shared.pages.lock(), Pages::Imported(_)))
    }

    /// `cuMemPoolExportToShareableHandle`: a descriptor, which the program closes.
    pub fn export(&self, kind: u32, flags: u64) -> Result<RawFd> {
        if kind == 0 || self.exportable & kind != kind || flags != 0 {
            return Err(INVALID);
        }
        match &self.shared {
            Some(shared) if kind == FILE_DESCRIPTOR => label::export(&shared.file, false),
            _ => Err(CUresult::CUDA_ERROR_NOT_PERMITTED),
        }
    }

    /// The set of devices that were given access to it, and whether the host was.
    pub fn reached_by(&self) -> (u32, bool) {
        let reached = self.reached.lock();
        (reached.devices.writers(), reached.host || reached.numa)
    }

    /// The devices that reach its memory.
    fn reach(&self) -> Reach {
        match self.home.managed {
            true => Reach::EVERYBODY,
            false => self.reached.lock().devices,
        }
    }

    /// What its memory is now.
    fn kind(&self) -> Kind {
        match (self.home.managed, self.home.is_of_host()) {
            (true, _) => Kind::Managed,
            (false, false) => Kind::Device,
            (false, true) if self.reached.lock().devices != Reach::NOBODY => Kind::HostPool,
            (false, true) => Kind::HostOnly,
        }
    }

    /// `cuMemPoolGetAccess`.
    pub fn access(&self, (location, number): (u32, i32)) -> Result<u32> {
        const READ_WRITE: u32 = 3;
        let reached = self.reached.lock();
        let may = match (location, number) {
            (location::DEVICE, _) => {
                let device = device::check(number).map_err(|_| INVALID)?;
                reached.devices.of(device).1
            }
            (location::HOST, _) => reached.host,
            (location::HOST_NUMA, 0) => reached.numa,
            _ => return Err(INVALID),
        };
        Ok(if may { READ_WRITE } else { 0 })
    }

    /// `cuMemPoolSetAccess`: all that is asked for, or nothing.
    pub fn set_access(&self, wishes: &[Access]) -> Result {
        let mut reached = self.reached.lock();
        let mut next = *reached;
        for wish in wishes {
            self.grant(&mut next, wish)?;
        }
        *reached = next;
        drop(reached);
        super::memory::change_pooled(self, self.kind(), self.reach());
        Ok(())
    }

    /// What becomes of access by one location's wish, as an H200 takes it: the device cannot lose
    /// its own memory, nor the host its own, and nobody may only read.
    fn grant(&self, reached: &mut Reached, wish: &Access) -> Result {
        const NONE: u32 = 0;
        const READ: u32 = 1;
        const READ_WRITE: u32 = 3;
        let Access {
            location,
            number,
            flags,
        } = *wish;
        let known = matches!(flags, NONE | READ | READ_WRITE);
        if self.home.is_of_device() {
            if location != location::DEVICE {
                return Err(NOT_SUPPORTED);
            }
            if !known {
                return Err(INVALID);
            }
            let own = device::check(number)? == self.home.device;
            match flags {
                READ_WRITE if own => return Ok(()),
                READ => return Err(NOT_SUPPORTED),
                _ if own => return Err(CUresult::CUDA_ERROR_INVALID_DEVICE),
                _ => {}
            }
        }
        if !known {
            return Err(INVALID);
        }
        if flags == READ {
            return Err(NOT_SUPPORTED);
        }
        let may = flags == READ_WRITE;
        match (location, number) {
            (location::DEVICE, _) => {
                reached.devices = reached.devices.with(device::check(number)?, may, may);
            }
            (location::HOST | location::HOST_NUMA, _)
                if flags == NONE && self.home.is_of_host() =>
            {
                return Err(NOT_SUPPORTED);
            }
            (location::HOST, _) => reached.host = may,
            (location::HOST_NUMA, 0) => reached.numa = may,
            _ => return Err(INVALID),
        }
        Ok(())
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
        let (device, kind) = (self.home.device, self.kind());
        let allocation = match &self.shared {
            Some(shared) => {
                let charged = self.charge(size);
                memory::charge(device, charged)?;
                shared
                    .take(device, size, kind)
                    .inspect_err(|_| memory::discharge(device, charged))?
            }
            // The host may write its memory at any time, so it shares no pages with the device's.
            None if kind != Kind::Device => memory::alloc(device, size, PAGE, kind)?,
            None => memory::alloc(device, size, 1, kind)?,
        };
        figures.used = used;
        figures.used_high = figures.used_high.max(used);
        figures.reserved = figures.reserved.max(used.next_multiple_of(CHUNK));
        figures.reserved_high = figures.reserved_high.max(figures.reserved);
        Ok(allocation)
    }

    /// What an allocation of shared pages takes of the device's memory.
    fn charge(&self, size: u64) -> u64 {
        match self.home.is_of_host() {
            true => 0,
            false => size.next_multiple_of(memory::ALIGNMENT),
        }
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
        if self.forget(&allocation) {
            let pool = self.clone();
            return stream.submit(move || {
                pool.let_go(&allocation);
                Ok(())
            });
        }
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
        if self.forget(&allocation) {
            return self.let_go(&allocation);
        }
        match &self.shared {
            Some(shared) => {
                shared.free(&allocation);
                memory::discharge(self.home.device, self.charge(allocation.size));
            }
            None => _ = memory::free(allocation.base),
        }
        let mut figures = self.figures.lock();
        figures.used -= allocation.size;
        let threshold = figures.threshold;
        figures.shrink(threshold);
    }

    /// Frees what was imported. On an H200 a pool that its own process imported goes with the last
    /// of it.
    fn let_go(&self, allocation: &Allocation) {
        memory::free_file(allocation);
        let shared = self.shared.as_ref();
        let over = shared.is_some_and(|shared| {
            matches!(&*shared.pages.lock(), Pages::Imported(imported)
                if imported.own && imported.pointers.is_empty())
        });
        if over {
            POOLS.remove(self.handle);
        }
    }

    /// Takes an allocation out of those that were imported; whether it was one.
    fn forget(&self, allocation: &Allocation) -> bool {
        let Some(shared) = &self.shared else {
            return false;
        };
        match &mut *shared.pages.lock() {
            Pages::Own(..) => false,
            Pages::Imported(imported) => {
                imported
                    .pointers
                    .retain(|_, known| known.base != allocation.base);
                true
            }
        }
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
