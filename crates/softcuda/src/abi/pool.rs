//! Memory pools and stream-ordered allocation.

use super::memory::MemoryLocation;
use super::types::{CUdevice, CUdeviceptr, CUmemoryPool, CUstream, Unused};
use super::{In, NullStream, Out, export};
use crate::driver::managed::Location;
use crate::driver::pool::{self, Pool, PoolValue, Properties};
use crate::driver::virtual_memory::Access;
use crate::driver::{CUresult, Result, capture, device, memory, stream};
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
            usage: 0,
            reserved: [0; 54],
        }
    }
}

fn alloc(
    address: Out<CUdeviceptr>,
    size: usize,
    pool: impl FnOnce() -> Result<Arc<Pool>>,
    stream: CUstream,
    null: NullStream,
) -> Result {
    let stream = stream::resolve(stream, null)?;
    let capturing = stream.is_capturing();
    if !capturing {
        capture::permit()?;
    }
    address.some()?;
    let pool = pool()?;
    let base = match capturing {
        true => capture::alloc(&stream, &pool, size as u64),
        false => pool::alloc(&pool, size as u64, &stream),
    };
    address.set(base.inspect_err(|_| address.set_if_wanted(0))?)
}

/// The pool of a place: the device's alone can be asked for.
fn pool_at(
    location: In<MemoryLocation>,
    kind: u32,
    pool: impl FnOnce() -> Arc<Pool>,
) -> Result<CUmemoryPool> {
    let location = location.get()?;
    match (Location::of_kind(location.kind, location.number)?, kind) {
        (Location::Device, 1) => Ok(pool().handle()),
        (Location::Host, 1) => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        _ => Err(INVALID),
    }
}

export! {
    /// Allocates from the device's pool, in stream order.
    fn cuMemAllocAsync | cuMemAllocAsync_ptsz(null; address: Out<CUdeviceptr>, size: usize, stream: CUstream) {
        alloc(address, size, || Ok(pool::current()), stream, null)
    }

    /// Allocates from a pool, in stream order.
    fn cuMemAllocFromPoolAsync | cuMemAllocFromPoolAsync_ptsz(null;
        address: Out<CUdeviceptr>, size: usize, pool: CUmemoryPool, stream: CUstream,
    ) {
        alloc(address, size, || pool::resolve(pool), stream, null)
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
        pool::resolve(pool)?.trim(keep as u64);
        Ok(())
    }

    /// Sets an attribute of a pool.
    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: u32, value: In<Unused>) {
        capture::permit()?;
        let pool = pool::resolve(pool)?;
        let value = match pool.attribute(attribute)? {
            PoolValue::Flag(_) => value.cast::<i32>().get()? as u64,
            PoolValue::Size(_) => value.cast::<u64>().get()?,
        };
        pool.set_attribute(attribute, value)
    }

    /// An attribute of a pool.
    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: u32, value: Out<Unused>) {
        capture::permit()?;
        match pool::resolve(pool)?.attribute(attribute)? {
            PoolValue::Flag(flag) => value.cast::<i32>().set(flag.into()),
            PoolValue::Size(size) => value.cast::<u64>().set(size),
        }
    }

    /// Sets who reaches a pool's memory.
    fn cuMemPoolSetAccess(pool: CUmemoryPool, wishes: In<Access>, count: usize) {
        capture::permit()?;
        pool::resolve(pool)?;
        let wishes = wishes.list(count)?;
        wishes.iter().try_for_each(|wish| pool::set_access(pool, (wish.location, wish.number), wish.flags))
    }

    /// Who reaches a pool's memory: the device does.
    fn cuMemPoolGetAccess(flags: Out<u32>, pool: CUmemoryPool, location: In<MemoryLocation>) {
        capture::permit()?;
        const READ_WRITE: u32 = 3;
        flags.some()?;
        let pool = pool::resolve(pool)?;
        let location = location.get()?;
        let asked = Location::of_kind(location.kind, location.number).map_err(|_| INVALID)?;
        flags.set(if asked == Location::Device || asked == pool.location() { READ_WRITE } else { 0 })
    }

    /// The device's default pool.
    fn cuDeviceGetDefaultMemPool(pool: Out<CUmemoryPool>, ordinal: CUdevice) {
        pool.some()?;
        device::check(ordinal)?;
        pool.set(pool::default().handle())
    }

    /// The pool that the device allocates from.
    fn cuDeviceGetMemPool(pool: Out<CUmemoryPool>, ordinal: CUdevice) {
        pool.some()?;
        device::check(ordinal)?;
        pool.set(pool::current().handle())
    }

    /// Sets the pool that the device allocates from.
    fn cuDeviceSetMemPool(ordinal: CUdevice, pool: CUmemoryPool) {
        capture::permit()?;
        device::check(ordinal).map_err(|_| INVALID)?;
        pool::set_current(pool)
    }

    /// The default pool of a place.
    fn cuMemGetDefaultMemPool(pool: Out<CUmemoryPool>, location: In<MemoryLocation>, kind: u32) {
        pool.some()?;
        pool.set(pool_at(location, kind, pool::default)?)
    }

    /// The pool that a place allocates from.
    fn cuMemGetMemPool(pool: Out<CUmemoryPool>, location: In<MemoryLocation>, kind: u32) {
        pool.some()?;
        pool.set(pool_at(location, kind, pool::current)?)
    }

    /// Sets the pool that a place allocates from.
    fn cuMemSetMemPool(location: In<MemoryLocation>, kind: u32, pool: CUmemoryPool) {
        capture::permit()?;
        pool_at(location, kind, pool::current)?;
        pool::set_current(pool)
    }

    /// A handle of a pool for another process: memory stays in its process.
    fn cuMemPoolExportToShareableHandle(handle: Out<Unused>, pool: CUmemoryPool, kind: u32, flags: u64) {
        handle.some()?;
        match pool::resolve(pool)?.exportable() & kind != 0 && flags == 0 {
            true => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            false => Err(INVALID),
        }
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
