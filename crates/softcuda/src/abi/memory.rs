//! Allocation: `cuMemAlloc` and the like, pinned, registered and managed memory.

use super::types::{CUdevice, CUdeviceptr, CUevent, CUstream};
use super::{In, NullStream, Out, export};
use crate::driver::managed::{self, Location};
use crate::driver::{
    CUresult, Result, capture, context, event, interprocess, memory, pointer, stream,
};

/// Writes the address of an allocation, or null where there is none.
fn set_address(target: Out<u64>, address: impl FnOnce() -> Result<u64>) -> Result {
    context::current()?;
    target.some()?;
    let address = address().inspect_err(|_| target.set_if_wanted(0))?;
    target.set(address)
}

fn set_pointer_value(target: Out<u8>, value: pointer::PointerValue) -> Result {
    match value {
        pointer::PointerValue::Flag(flag) => target.set(flag.into()),
        pointer::PointerValue::Word(word) => target.cast().set(word),
        pointer::PointerValue::Long(long) => target.cast().set(long),
    }
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemoryLocation {
    /// `CUmemLocationType`.
    pub kind: u32,
    /// Which one of that type.
    pub number: i32,
}

impl MemoryLocation {
    fn decode(self) -> Result<Location> {
        Location::of_kind(self.kind, self.number)
    }
}

fn prefetch(
    address: u64,
    size: usize,
    location: impl FnOnce() -> Result<Location>,
    stream: CUstream,
    null: NullStream,
) -> Result {
    stream::resolve_to_run(stream, null)?;
    managed::prefetch(address, size as u64, location)
}

/// The location of range `index` of a batch: that of the last entry that begins no later.
fn location_of(locations: &[MemoryLocation], first: &[usize], index: usize) -> Result<Location> {
    let entry = first
        .partition_point(|&start| start <= index)
        .checked_sub(1);
    entry
        .and_then(|entry| locations.get(entry))
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?
        .decode()
}

/// Ranges of managed memory, one after the other; all are checked before `with` sees one.
fn batch(
    addresses: In<CUdeviceptr>,
    sizes: In<usize>,
    count: usize,
    flags: u64,
    mut with: impl FnMut(usize, u64, u64) -> Result,
) -> Result {
    if count == 0 || flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (addresses, sizes) = (addresses.list(count)?, sizes.list(count)?);
    let ranges = || {
        addresses
            .iter()
            .copied()
            .zip(sizes.iter().map(|&size| size as u64))
    };
    ranges().try_for_each(|(address, size)| managed::check_range(address, size))?;
    ranges()
        .enumerate()
        .try_for_each(|(index, (address, size))| with(index, address, size))
}

export! {
    /// Free and total memory in bytes.
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let (now_free, all) = memory::info()?;
        free.set_if_wanted(now_free as usize);
        total.set_if_wanted(all as usize);
        Ok(())
    }

    /// Allocates device memory.
    fn cuMemAlloc_v2(address: Out<CUdeviceptr>, size: usize) {
        capture::permit()?;
        set_address(address, || memory::alloc(size as u64))
    }

    /// Allocates device memory for rows.
    fn cuMemAllocPitch_v2(address: Out<CUdeviceptr>, pitch: Out<usize>, width: usize, height: usize, element: u32) {
        capture::permit()?;
        context::current()?;
        pitch.some()?;
        set_address(address, || {
            let (base, distance) = memory::alloc_pitch(width as u64, height as u64, element)?;
            pitch.set(distance as usize)?;
            Ok(base)
        })
    }

    /// Frees device memory.
    fn cuMemFree_v2(address: CUdeviceptr) {
        capture::permit()?;
        memory::free(address)
    }

    /// The allocation that an address is in.
    fn cuMemGetAddressRange_v2(base: Out<CUdeviceptr>, size: Out<usize>, address: CUdeviceptr) {
        let (start, bytes) = memory::address_range(address)?;
        base.set_if_wanted(start);
        size.set_if_wanted(bytes as usize);
        Ok(())
    }

    /// Allocates pinned host memory.
    fn cuMemAllocHost_v2(address: Out<u64>, size: usize) {
        capture::permit()?;
        set_address(address, || memory::host_alloc(size as u64, 0))
    }

    /// Frees pinned host memory.
    fn cuMemFreeHost(address: usize) {
        capture::permit()?;
        memory::host_free(address as u64)
    }

    /// Allocates pinned host memory.
    fn cuMemHostAlloc(address: Out<u64>, size: usize, flags: u32) {
        capture::permit()?;
        set_address(address, || memory::host_alloc(size as u64, flags))
    }

    /// The device's address of pinned host memory.
    fn cuMemHostGetDevicePointer_v2(address: Out<CUdeviceptr>, host: usize, flags: u32) {
        set_address(address, || memory::host_device_pointer(host as u64, flags))
    }

    /// The flags of pinned host memory.
    fn cuMemHostGetFlags(flags: Out<u32>, host: usize) {
        let now = memory::host_flags(host as u64)?;
        flags.set(now)
    }

    /// Pins host memory of the program's.
    fn cuMemHostRegister(host: usize, size: usize, flags: u32) {
        capture::permit()?;
        memory::host_register(host as u64, size as u64, flags)
    }

    /// Pins host memory of the program's.
    fn cuMemHostRegister_v2(host: usize, size: usize, flags: u32) {
        capture::permit()?;
        memory::host_register(host as u64, size as u64, flags)
    }

    /// Ends what `cuMemHostRegister` began.
    fn cuMemHostUnregister(host: usize) {
        capture::permit()?;
        memory::host_unregister(host as u64)
    }

    /// Allocates managed memory.
    fn cuMemAllocManaged(address: Out<CUdeviceptr>, size: usize, flags: u32) {
        capture::permit()?;
        set_address(address, || memory::alloc_managed(size as u64, flags))
    }

    /// Says how managed memory is used.
    fn cuMemAdvise(address: CUdeviceptr, size: usize, advice: u32, device: CUdevice) {
        capture::permit()?;
        managed::advise(address, size as u64, advice, || Location::of_device(device))
    }

    /// Says how managed memory is used.
    fn cuMemAdvise_v2(address: CUdeviceptr, size: usize, advice: u32, location: MemoryLocation) {
        capture::permit()?;
        managed::advise(address, size as u64, advice, || location.decode())
    }

    /// Brings managed memory somewhere.
    fn cuMemPrefetchAsync | cuMemPrefetchAsync_ptsz(null; address: CUdeviceptr, size: usize, device: CUdevice, stream: CUstream) {
        prefetch(address, size, || Location::of_device(device), stream, null)
    }

    /// Brings managed memory somewhere.
    fn cuMemPrefetchAsync_v2 | cuMemPrefetchAsync_v2_ptsz(null;
        address: CUdeviceptr, size: usize, location: MemoryLocation, flags: u32, stream: CUstream,
    ) {
        if flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        prefetch(address, size, || location.decode(), stream, null)
    }

    /// Brings ranges of managed memory somewhere.
    fn cuMemPrefetchBatchAsync | cuMemPrefetchBatchAsync_ptsz(null;
        addresses: In<CUdeviceptr>, sizes: In<usize>, count: usize, locations: In<MemoryLocation>, first: In<usize>,
        location_count: usize, flags: u64, stream: CUstream,
    ) {
        stream::resolve_to_run(stream, null)?;
        let (locations, first) = (locations.list(location_count)?, first.list(location_count)?);
        batch(addresses, sizes, count, flags, |index, address, size| {
            managed::prefetch(address, size, || location_of(&locations, &first, index))
        })
    }

    /// Says that ranges of managed memory may lose what they hold: they keep it.
    fn cuMemDiscardBatchAsync | cuMemDiscardBatchAsync_ptsz(null;
        addresses: In<CUdeviceptr>, sizes: In<usize>, count: usize, flags: u64, stream: CUstream,
    ) {
        stream::resolve_to_run(stream, null)?;
        batch(addresses, sizes, count, flags, |_, _, _| Ok(()))
    }

    /// Says that ranges of managed memory may lose what they hold, and brings them somewhere.
    fn cuMemDiscardAndPrefetchBatchAsync | cuMemDiscardAndPrefetchBatchAsync_ptsz(null;
        addresses: In<CUdeviceptr>, sizes: In<usize>, count: usize, locations: In<MemoryLocation>, first: In<usize>,
        location_count: usize, flags: u64, stream: CUstream,
    ) {
        stream::resolve_to_run(stream, null)?;
        let (locations, first) = (locations.list(location_count)?, first.list(location_count)?);
        batch(addresses, sizes, count, flags, |index, address, size| {
            managed::prefetch(address, size, || location_of(&locations, &first, index))
        })
    }

    /// Says which stream uses managed memory: all may, at all times.
    fn cuStreamAttachMemAsync | cuStreamAttachMemAsync_ptsz(null;
        stream: CUstream, address: CUdeviceptr, size: usize, flags: u32,
    ) {
        let stream = stream::resolve_to_run(stream, null)?;
        capture::permit()?;
        managed::attach(address, size as u64, flags, stream.is_legacy())
    }

    /// What was said of a range of managed memory.
    fn cuMemRangeGetAttribute(value: Out<i32>, bytes: usize, attribute: u32, address: CUdeviceptr, size: usize) {
        let words = managed::range_attribute(address, size as u64, attribute, bytes)?;
        words.into_iter().enumerate().try_for_each(|(index, word)| value.at(index).set(word))
    }

    /// What was said of a range of managed memory.
    fn cuMemRangeGetAttributes(
        values: In<Out<i32>>, bytes: In<usize>, attributes: In<u32>, count: usize, address: CUdeviceptr, size: usize,
    ) {
        if count == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let (values, bytes, attributes) = (values.list(count)?, bytes.list(count)?, attributes.list(count)?);
        for ((value, bytes), attribute) in values.into_iter().zip(bytes).zip(attributes) {
            let words = managed::range_attribute(address, size as u64, attribute, bytes)?;
            words.into_iter().enumerate().try_for_each(|(index, word)| value.at(index).set(word))?;
        }
        Ok(())
    }

    /// An attribute of an address.
    fn cuPointerGetAttribute(value: Out<u8>, attribute: u32, address: CUdeviceptr) {
        value.some()?;
        set_pointer_value(value, pointer::attribute(address, attribute)?)
    }

    /// Attributes of an address, which need be no allocation's.
    fn cuPointerGetAttributes(count: u32, attributes: In<u32>, values: In<Out<u8>>, address: CUdeviceptr) {
        if count == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let (attributes, values) = (attributes.list(count as usize)?, values.list(count as usize)?);
        let read = |number| pointer::attribute_or_nothing(address, number);
        let found = attributes.into_iter().map(read).collect::<Result<Vec<_>>>()?;
        found.into_iter().zip(values).try_for_each(|(found, value)| set_pointer_value(value, found))
    }

    /// Sets `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`, the one attribute that can be.
    fn cuPointerSetAttribute(value: In<u32>, attribute: u32, address: CUdeviceptr) {
        capture::permit()?;
        const SYNC_MEMOPS: u32 = 6;
        let on = value.get()? != 0;
        match attribute == SYNC_MEMOPS && memory::set_sync_memops(address, on) {
            true => Ok(()),
            false => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// A handle of an event, for another process.
    fn cuIpcGetEventHandle(handle: Out<[u8; 64]>, event: CUevent) {
        context::current()?;
        handle.some()?;
        if event.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        handle.set(event::resolve(event)?.interprocess_handle()?)
    }

    /// Opens a handle of another process's event.
    fn cuIpcOpenEventHandle(event: Out<CUevent>, handle: IpcHandle) {
        let context = context::current()?;
        event.some()?;
        event.set(event::open(&context, &handle.0)?)
    }

    /// A handle of an allocation, for another process.
    fn cuIpcGetMemHandle(handle: Out<[u8; 64]>, address: CUdeviceptr) {
        context::current()?;
        handle.some()?;
        handle.set(interprocess::memory::handle_of(address)?)
    }

    /// Opens a handle of another process's allocation.
    fn cuIpcOpenMemHandle(address: Out<CUdeviceptr>, handle: IpcHandle, flags: u32) {
        context::current()?;
        address.some()?;
        address.set(interprocess::memory::open(&handle.0, flags)?)
    }

    /// Opens a handle of another process's allocation.
    fn cuIpcOpenMemHandle_v2(address: Out<CUdeviceptr>, handle: IpcHandle, flags: u32) {
        context::current()?;
        address.some()?;
        address.set(interprocess::memory::open(&handle.0, flags)?)
    }

    /// Closes what `cuIpcOpenMemHandle` opened.
    fn cuIpcCloseMemHandle(address: CUdeviceptr) { interprocess::memory::close(address) }
}

/// `CUipcMemHandle`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle([u8; 64]);

impl std::fmt::Debug for IpcHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("..")
    }
}
