//! Addresses and physical memory apart: reservations, physical memory of `cuMemCreate`, mappings,
//! and access to them.
//!
//! Invariant: a mapping is an allocation of the arena (`memory::find` knows it) while access was
//! set, and only then.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use super::handle::Table;
use super::interprocess::label::{self, Label, What};
use super::{CUresult, Result, device};
use crate::abi::types::CUdeviceptr;
use crate::memory::{self, Device, Kind, PageFile, Reach};

/// What sizes and addresses are multiples of.
pub(crate) const GRANULARITY: u64 = 2 << 20;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// `CUmemAllocationType`.
    pub kind: u32,
    /// `CUmemAllocationHandleType`.
    pub handle_types: u32,
    /// `CUmemLocationType`.
    pub location: u32,
    /// Which one of that type.
    pub number: i32,
    /// Of Windows.
    pub metadata: usize,
    /// Compression and the like.
    pub flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// `CUmemLocationType`.
    pub location: u32,
    /// Which one of that type.
    pub number: i32,
    /// `CUmemAccess_flags`: 0 for none, 1 to read, 3 to read and write.
    pub flags: u32,
}

static PHYSICAL: Table<Physical> = Table::new(11);
static RESERVED: Mutex<BTreeMap<u64, Reservation>> = Mutex::new(BTreeMap::new());

/// Physical memory: it lives as long as a handle or a mapping of it.
struct Physical {
    handle: usize,
    size: u64,
    properties: Properties,
    /// The device whose memory it takes from.
    device: Device,
    file: PageFile,
    /// It is another process's, of whose memory it takes.
    imported: bool,
    /// Handles that were given out.
    handles: AtomicU32,
}

impl Drop for Physical {
    fn drop(&mut self) {
        if !self.imported {
            memory::discharge(self.device, self.size);
        }
    }
}

struct Reservation {
    size: u64,
    /// By address.
    mappings: BTreeMap<u64, Mapping>,
}

#[derive(Clone)]
struct Mapping {
    physical: Arc<Physical>,
    reach: Reach,
}

/// `CUmemAllocationHandleType`.
mod handle_type {
    pub const FILE_DESCRIPTOR: u32 = 1;
    /// Two of Windows.
    pub const WIN32: u32 = 2;
    pub const WIN32_KMT: u32 = 4;
    pub const FABRIC: u32 = 8;
}

/// Checks what physical memory is to be; gives the device whose memory it takes from.
fn check_properties(properties: &Properties) -> Result<Device> {
    let device = match (properties.kind, properties.location, properties.number) {
        (1, 1, number) => device::check(number)?,
        // Memory of the host is shared where its node is named alone.
        (1, 2 | 4, _) if properties.handle_types == 0 => Device::FIRST,
        (1, 3, 0) => Device::FIRST,
        _ => return Err(INVALID),
    };
    if properties.handle_types & (handle_type::WIN32 | handle_type::WIN32_KMT) != 0 {
        return Err(INVALID);
    }
    match properties.handle_types & handle_type::FABRIC {
        0 => Ok(device),
        _ => Err(CUresult::CUDA_ERROR_NOT_PERMITTED),
    }
}

/// `cuMemGetAllocationGranularity`: minimal and recommended are the same.
pub(crate) fn granularity(option: u32) -> Result<u64> {
    match option {
        0 | 1 => Ok(GRANULARITY),
        _ => Err(INVALID),
    }
}

/// `cuMemAddressReserve`; the wish for an address is not granted.
pub(crate) fn reserve(size: u64, align: u64, flags: u64) -> Result<CUdeviceptr> {
    if size == 0
        || !size.is_multiple_of(GRANULARITY)
        || !(align == 0 || align.is_power_of_two())
        || flags != 0
    {
        return Err(INVALID);
    }
    let base = memory::reserve(size, align.max(GRANULARITY))?;
    RESERVED.lock().insert(
        base,
        Reservation {
            size,
            mappings: BTreeMap::new(),
        },
    );
    Ok(base)
}

/// `cuMemAddressFree`: a whole reservation, in which nothing is mapped.
pub(crate) fn unreserve(base: CUdeviceptr, size: u64) -> Result {
    let mut reserved = RESERVED.lock();
    match reserved.get(&base) {
        Some(reservation) if reservation.size == size && reservation.mappings.is_empty() => {}
        _ => return Err(INVALID),
    }
    reserved.remove(&base);
    memory::unreserve(base);
    Ok(())
}

/// `cuMemCreate`.
pub(crate) fn create(size: u64, properties: Properties, flags: u64) -> Result<u64> {
    if size == 0 || !size.is_multiple_of(GRANULARITY) || flags != 0 {
        return Err(INVALID);
    }
    let device = check_properties(&properties)?;
    memory::charge(device, size)?;
    let file = match properties.handle_types & handle_type::FILE_DESCRIPTOR {
        0 => PageFile::new(size).map_err(CUresult::from),
        _ => label(size, &properties).and_then(|label| label.create()),
    };
    let file = file.inspect_err(|_| memory::discharge(device, size))?;
    let physical = PHYSICAL.insert(|handle| Physical {
        handle,
        size,
        properties,
        device,
        file,
        imported: false,
        handles: AtomicU32::new(1),
    });
    Ok(physical.handle as u64)
}

fn label(size: u64, properties: &Properties) -> Result<Label> {
    Ok(Label {
        what: What::Physical,
        id: label::new_id()?,
        size,
        location: (properties.location, properties.number),
    })
}

/// `cuMemExportToShareableHandle`: a descriptor, which the program closes.
pub(crate) fn export(handle: u64, kind: u32, flags: u64) -> Result<RawFd> {
    let physical = resolve(handle)?;
    let may = kind != 0 && physical.properties.handle_types & kind == kind;
    if !may || kind != handle_type::FILE_DESCRIPTOR || flags != 0 {
        return Err(INVALID);
    }
    label::export(&physical.file, true)
}

/// `cuMemImportFromShareableHandle`: another handle each time, of memory that cannot be exported
/// again.
pub(crate) fn import(fd: RawFd, kind: u32) -> Result<u64> {
    match kind {
        handle_type::FILE_DESCRIPTOR => {}
        handle_type::WIN32 | handle_type::WIN32_KMT => {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        _ => return Err(INVALID),
    }
    let (file, label) = label::import(fd)?;
    if label.what != What::Physical {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let (location, number) = label.location;
    let properties = Properties {
        kind: 1,
        handle_types: 0,
        location,
        number,
        metadata: 0,
        flags: [0; 8],
    };
    let device = check_properties(&properties)?;
    let physical = PHYSICAL.insert(|handle| Physical {
        handle,
        size: label.size,
        properties,
        device,
        file,
        imported: true,
        handles: AtomicU32::new(1),
    });
    Ok(physical.handle as u64)
}

fn resolve(handle: u64) -> Result<Arc<Physical>> {
    PHYSICAL.get(handle as usize).or(INVALID)
}

/// `cuMemRelease`: mappings keep the memory.
pub(crate) fn release(handle: u64) -> Result {
    // Taken over the count and the removal, so that nobody retains in between.
    let _reserved = RESERVED.lock();
    let physical = resolve(handle)?;
    if physical.handles.fetch_sub(1, Ordering::Relaxed) == 1 {
        PHYSICAL.remove(physical.handle);
    }
    Ok(())
}

/// `cuMemGetAllocationPropertiesFromHandle`.
pub(crate) fn properties(handle: u64) -> Result<Properties> {
    Ok(resolve(handle)?.properties)
}

/// `cuMemRetainAllocationHandle`: another handle of the memory that is mapped at an address.
pub(crate) fn retain(address: u64) -> Result<u64> {
    let reserved = RESERVED.lock();
    let (_, reservation) = reserved.range(..=address).next_back().ok_or(INVALID)?;
    let (&base, mapping) = reservation
        .mappings
        .range(..=address)
        .next_back()
        .ok_or(INVALID)?;
    if address - base >= mapping.physical.size {
        return Err(INVALID);
    }
    let physical = &mapping.physical;
    if physical.handles.fetch_add(1, Ordering::Relaxed) == 0 {
        PHYSICAL.put(physical.handle, physical.clone());
    }
    Ok(physical.handle as u64)
}

/// The reservation that a range is in, and its base.
fn reservation(
    reserved: &mut BTreeMap<u64, Reservation>,
    address: u64,
    size: u64,
) -> Result<&mut Reservation> {
    let end = address
        .checked_add(size)
        .filter(|_| size != 0)
        .ok_or(INVALID)?;
    let (&base, reservation) = reserved.range_mut(..=address).next_back().ok_or(INVALID)?;
    match end <= base + reservation.size {
        true => Ok(reservation),
        false => Err(INVALID),
    }
}

/// `cuMemMap`: all of some physical memory.
pub(crate) fn map(address: CUdeviceptr, size: u64, offset: u64, handle: u64, flags: u64) -> Result {
    let mut reserved = RESERVED.lock();
    let physical = resolve(handle)?;
    if flags != 0 || !address.is_multiple_of(GRANULARITY) || size == 0 {
        return Err(INVALID);
    }
    let reservation = reservation(&mut reserved, address, size)?;
    if offset != 0 || size != physical.size {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let below = reservation.mappings.range(..address + size).next_back();
    if below.is_some_and(|(&other, mapping)| other + mapping.physical.size > address) {
        return Err(INVALID);
    }
    memory::map(address, size, &physical.file, 0)?;
    reservation.mappings.insert(
        address,
        Mapping {
            physical,
            reach: Reach::NOBODY,
        },
    );
    Ok(())
}

/// The mappings that make up a range; an error where one is cut, or where `gaps` may not be and
/// there is one.
fn whole_mappings(
    reservation: &Reservation,
    address: u64,
    size: u64,
    gaps: bool,
) -> Result<Vec<u64>> {
    let end = address + size;
    let mut reached = address;
    let mut found = Vec::new();
    if let Some((&below, mapping)) = reservation.mappings.range(..address).next_back()
        && below + mapping.physical.size > address
    {
        return Err(INVALID);
    }
    for (&base, mapping) in reservation.mappings.range(address..end) {
        if base != reached && !gaps || base + mapping.physical.size > end {
            return Err(INVALID);
        }
        reached = base + mapping.physical.size;
        found.push(base);
    }
    match reached == end || gaps {
        true => Ok(found),
        false => Err(INVALID),
    }
}

/// `cuMemUnmap`: whole mappings; that there are none is fine.
pub(crate) fn unmap(address: CUdeviceptr, size: u64) -> Result {
    let mut reserved = RESERVED.lock();
    if !address.is_multiple_of(GRANULARITY) || !size.is_multiple_of(GRANULARITY) {
        return Err(INVALID);
    }
    let reservation = reservation(&mut reserved, address, size)?;
    for base in whole_mappings(reservation, address, size, true)? {
        let Some(mapping) = reservation.mappings.remove(&base) else {
            continue;
        };
        if mapping.reach != Reach::NOBODY {
            memory::hide(base);
        }
        memory::unmap(base, mapping.physical.size)?;
    }
    Ok(())
}

/// `cuMemSetAccess` of devices; the host has no access to physical memory of a device's.
pub(crate) fn set_access(address: CUdeviceptr, size: u64, wishes: &[Access]) -> Result {
    let mut reserved = RESERVED.lock();
    let reservation = reservation(&mut reserved, address, size)?;
    let mappings = whole_mappings(reservation, address, size, false)?;
    if wishes.is_empty() {
        return Err(INVALID);
    }
    // All of them, or none.
    let mut given = Vec::with_capacity(wishes.len());
    for wish in wishes {
        if !matches!(wish.flags, 0 | 1 | 3) {
            return Err(INVALID);
        }
        match wish.location {
            1 => given.push((device::check(wish.number).map_err(|_| INVALID)?, wish.flags)),
            2..=4 => {}
            _ => return Err(INVALID),
        }
    }
    for (device, flags) in given {
        for &base in &mappings {
            let Some(mapping) = reservation.mappings.get_mut(&base) else {
                continue;
            };
            let (read, write) = (flags != 0, flags == 3);
            let reach = mapping.reach.with(device, read, write);
            match (mapping.reach == Reach::NOBODY, reach == Reach::NOBODY) {
                (true, true) => {}
                (true, false) => {
                    let physical = &mapping.physical;
                    memory::expose(physical.device, base, physical.size, reach)?;
                }
                (false, true) => memory::hide(base),
                (false, false) => memory::change(base, Kind::Device, reach),
            }
            mapping.reach = reach;
        }
    }
    Ok(())
}

/// The handle types of the physical memory that is mapped at an address; `None` where none is.
pub(crate) fn handle_types_at(address: u64) -> Option<u32> {
    let reserved = RESERVED.lock();
    let (_, reservation) = reserved.range(..=address).next_back()?;
    let (&base, mapping) = reservation.mappings.range(..=address).next_back()?;
    let physical = &mapping.physical;
    (address - base < physical.size).then_some(physical.properties.handle_types)
}

/// `cuMemGetAccess`.
pub(crate) fn access(address: CUdeviceptr, location: u32, number: i32) -> Result<u64> {
    let reserved = RESERVED.lock();
    let device = match location {
        1 => device::check(number)?,
        2..=4 => return Ok(0),
        _ => return Err(INVALID),
    };
    let (_, reservation) = reserved.range(..=address).next_back().ok_or(INVALID)?;
    match reservation.mappings.range(..=address).next_back() {
        Some((&base, mapping)) if address - base < mapping.physical.size => {
            Ok(match mapping.reach.of(device) {
                (false, _) => 0,
                (true, false) => 1,
                (true, true) => 3,
            })
        }
        _ => Err(INVALID),
    }
}
