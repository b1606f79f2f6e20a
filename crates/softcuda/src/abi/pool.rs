//! Memory pools and stream-ordered allocation.

use super::memory::MemoryLocation;
use super::types::{CUdevice, CUdeviceptr, CUmemoryPool, CUstream, Unused};
use super::{In, NullStream, Out, export};
use crate::driver::pool::{self, Home, Pool, PoolValue, Properties};
use crate::driver::stream::Stream;
use crate::driver::virtual_memory::Access;
use crate::driver::{CUresult, Result, capture, context, device, memory, stream};
use std::sync::Arc;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolProperties {
    kind: u32,
    handle_types: u32,
    location: MemoryLocation,
    security: usize,
    most: usize,
    usage: u16,
    reserved: [u8; 54],
}

impl PoolProperties {
    /// What the driver reads of it.
    pub(super) fn decode(&self) -> Properties {
        Properties {
            kind: self.kind,
            handle_types: self.handle_types,
            location: (self.location.kind, self.location.number),
            most: self.most as u64,
            usage: self.usage,
        }
    }

    /// As the program said it.
    pub(super) fn encode(properties: &Properties) -> PoolProperties {
        let (kind, number) = properties.location;
        PoolProperties {
            kind: properties.kind,
            handle_types: properties.handle_types,
            location: MemoryLocation { kind, number },
            security: 0,
            most: properties.most as usize,
            usage: properties.usage,
            reserved: [0; 54],
        }
    }
}

fn alloc(
    address: Out<CUdeviceptr>,
    size: usize,
    pool: impl FnOnce(&Stream) -> Result<Arc<Pool>>,
    stream: CUstream,
    null: NullStream,
) -> Result {
    let stream = stream::resolve(stream, null)?;
    let capturing = stream.is_capturing();
    if !capturing {
        capture::permit()?;
    }
    address.some()?;
    let pool = pool(&stream)?;
    let base = match capturing {
        true => capture::alloc(&stream, &pool, size as u64),
        false => pool::alloc(&pool, size as u64, &stream),
    };
    address.set(base.inspect_err(|_| address.set_if_wanted(0))?)
}

/// The pools of a place.
fn home(location: In<MemoryLocation>, kind: u32) -> Result<Home> {
    let location = location.get()?;
    Home::with_pools(kind, (location.kind, location.number))
}

/// A descriptor in the place of a pointer.
fn descriptor(handle: usize) -> i32 {
    handle as u32 as i32
}

export! {
    /// Allocates from the device's pool, in stream order.
    fn cuMemAllocAsync | cuMemAllocAsync_ptsz(null; address: Out<CUdeviceptr>, size: usize, stream: CUstream) {
        alloc(address, size, |stream| Ok(pool::current_of(Home::device(stream.context().device()))), stream, null)
    }

    /// Allocates from a pool, in stream order.
    fn cuMemAllocFromPoolAsync | cuMemAllocFromPoolAsync_ptsz(null;
        address: Out<CUdeviceptr>, size: usize, pool: CUmemoryPool, stream: CUstream,
    ) {
        alloc(address, size, |_| pool::resolve(pool), stream, null)
    }

    /// Frees in stream order.
    fn cuMemFreeAsync | cuMemFreeAsync_ptsz(null; address: CUdeviceptr, stream: CUstream) {
        let stream = stream::resolve(stream, null)?;
        if stream.is_capturing() {
            return capture::free(&stream, address);
        }
        capture::permit()?;
        memory::free_async(address, &stream)
    }

    /// Makes a pool.
    fn cuMemPoolCreate(pool: Out<CUmemoryPool>, properties: In<PoolProperties>) {
        capture::permit()?;
        pool.some()?;
        pool.set(pool::create(properties.get()?.decode())?)
    }

    /// Destroys a pool; what was allocated from it lives on.
    fn cuMemPoolDestroy(pool: CUmemoryPool) {
        capture::permit()?;
        pool::destroy(pool)
    }

    /// Gives back what a pool does not use.
    fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) {
        capture::permit()?;
        pool::resolve_own(pool)?.trim(keep as u64);
        Ok(())
    }

    /// Sets an attribute of a pool.
    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: u32, value: In<Unused>) {
        capture::permit()?;
        let pool = pool::resolve_own(pool)?;
        let value = match pool.attribute(attribute)? {
            PoolValue::Flag(_) => value.cast::<i32>().get()? as u64,
            PoolValue::Size(_) => value.cast::<u64>().get()?,
        };
        pool.set_attribute(attribute, value)
    }

    /// An attribute of a pool.
    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: u32, value: Out<Unused>) {
        capture::permit()?;
        match pool::resolve_own(pool)?.attribute(attribute)? {
            PoolValue::Flag(flag) => value.cast::<i32>().set(flag.into()),
            PoolValue::Size(size) => value.cast::<u64>().set(size),
        }
    }

    /// Sets who reaches a pool's memory.
    fn cuMemPoolSetAccess(pool: CUmemoryPool, wishes: In<Access>, count: usize) {
        capture::permit()?;
        let pool = pool::resolve(pool)?;
        // An empty list is fine, none is not.
        let wishes = wishes.some()?.list(count)?;
        pool.set_access(&wishes)
    }

    /// Who reaches a pool's memory.
    fn cuMemPoolGetAccess(flags: Out<u32>, pool: CUmemoryPool, location: In<MemoryLocation>) {
        capture::permit()?;
        flags.some()?;
        let pool = pool::resolve(pool)?;
        let location = location.get()?;
        flags.set(pool.access((location.kind, location.number))?)
    }

    /// The device's default pool.
    fn cuDeviceGetDefaultMemPool(pool: Out<CUmemoryPool>, ordinal: CUdevice) {
        pool.some()?;
        pool.set(pool::default_of(Home::device(device::check(ordinal)?)).handle())
    }

    /// The pool that the device allocates from.
    fn cuDeviceGetMemPool(pool: Out<CUmemoryPool>, ordinal: CUdevice) {
        pool.some()?;
        pool.set(pool::current_of(Home::device(device::check(ordinal)?)).handle())
    }

    /// Sets the pool that the device allocates from.
    fn cuDeviceSetMemPool(ordinal: CUdevice, pool: CUmemoryPool) {
        capture::permit()?;
        pool::set_of_device(device::check(ordinal).map_err(|_| INVALID)?, pool)
    }

    /// The default pool of a place.
    fn cuMemGetDefaultMemPool(pool: Out<CUmemoryPool>, location: In<MemoryLocation>, kind: u32) {
        pool.some()?;
        pool.set(pool::default_of(home(location, kind)?).handle())
    }

    /// The pool that a place allocates from.
    fn cuMemGetMemPool(pool: Out<CUmemoryPool>, location: In<MemoryLocation>, kind: u32) {
        pool.some()?;
        pool.set(pool::current_of(home(location, kind)?).handle())
    }

    /// Sets the pool that a place allocates from.
    fn cuMemSetMemPool(location: In<MemoryLocation>, kind: u32, pool: CUmemoryPool) {
        capture::permit()?;
        pool::set_current(home(location, kind)?, pool)
    }

    /// A file descriptor of a pool, for another process.
    fn cuMemPoolExportToShareableHandle(handle: Out<Unused>, pool: CUmemoryPool, kind: u32, flags: u64) {
        handle.some()?;
        handle.cast::<i32>().set(pool::resolve(pool)?.export(kind, flags)?)
    }

    /// Imports another process's pool.
    fn cuMemPoolImportFromShareableHandle(pool: Out<CUmemoryPool>, handle: usize, kind: u32, flags: u64) {
        const FILE_DESCRIPTOR: u32 = 1;
        pool.some()?;
        if kind != FILE_DESCRIPTOR || flags != 0 {
            return Err(INVALID);
        }
        pool.set(pool::import(descriptor(handle))?)
    }

    /// What another process imports an allocation of a pool by.
    fn cuMemPoolExportPointer(data: Out<[u8; 64]>, address: CUdeviceptr) {
        data.some()?;
        data.set(pool::export_pointer(address)?)
    }

    /// Imports an allocation of another process's pool.
    fn cuMemPoolImportPointer(address: Out<CUdeviceptr>, pool: CUmemoryPool, data: In<[u8; 64]>) {
        address.some()?;
        let data = data.get()?;
        let pool = pool::resolve(pool)?;
        address.set(pool::import_pointer(&pool, &data, &context::current()?)?)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn structures_are_cudas() {
        assert_eq!(
            size_of::<super::PoolProperties>(),
            size_of::<cudarc::driver::sys::CUmemPoolProps_v1>()
        );
    }
}
