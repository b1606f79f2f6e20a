//! Addresses and physical memory apart: `cuMemAddressReserve`, `cuMemCreate`, `cuMemMap`.

use super::memory::MemoryLocation;
use super::types::{CUdeviceptr, Unused};
use super::{In, Out, export};
use crate::driver::virtual_memory::{self, Access, Properties};
use crate::driver::{context, stream};

export! {
    /// Reserves addresses.
    fn cuMemAddressReserve(address: Out<CUdeviceptr>, size: usize, align: usize, _wish: CUdeviceptr, flags: u64) {
        address.some()?;
        address.set(virtual_memory::reserve(size as u64, align as u64, flags)?)
    }

    /// Gives reserved addresses back.
    fn cuMemAddressFree(address: CUdeviceptr, size: usize) { virtual_memory::unreserve(address, size as u64) }

    /// Makes physical memory.
    fn cuMemCreate(handle: Out<u64>, size: usize, properties: In<Properties>, flags: u64) {
        handle.some()?;
        let properties = properties.get()?;
        handle.set(virtual_memory::create(size as u64, properties, flags)?)
    }

    /// Gives a handle of physical memory back.
    fn cuMemRelease(handle: u64) { virtual_memory::release(handle) }

    /// Puts physical memory at reserved addresses.
    fn cuMemMap(address: CUdeviceptr, size: usize, offset: usize, handle: u64, flags: u64) {
        virtual_memory::map(address, size as u64, offset as u64, handle, flags)
    }

    /// Takes physical memory from its addresses, when the work that may use it has ended.
    fn cuMemUnmap(address: CUdeviceptr, size: usize) {
        if let context::Top::Live(context) = context::top()? {
            stream::synchronize_context(&context)?;
        }
        virtual_memory::unmap(address, size as u64)
    }

    /// Sets who reaches mapped memory.
    fn cuMemSetAccess(address: CUdeviceptr, size: usize, wishes: In<Access>, count: usize) {
        let wishes = wishes.list(count)?;
        virtual_memory::set_access(address, size as u64, &wishes)
    }

    /// Who reaches mapped memory.
    fn cuMemGetAccess(flags: Out<u64>, location: In<MemoryLocation>, address: CUdeviceptr) {
        flags.some()?;
        let location = location.get()?;
        flags.set(virtual_memory::access(address, location.kind, location.number)?)
    }

    /// What sizes and addresses are multiples of.
    fn cuMemGetAllocationGranularity(size: Out<usize>, properties: In<Properties>, option: u32) {
        size.some()?;
        properties.some()?;
        size.set(virtual_memory::granularity(option)? as usize)
    }

    /// What physical memory was made with.
    fn cuMemGetAllocationPropertiesFromHandle(properties: Out<Properties>, handle: u64) {
        properties.some()?;
        properties.set(virtual_memory::properties(handle)?)
    }

    /// Another handle of the physical memory at an address.
    fn cuMemRetainAllocationHandle(handle: Out<u64>, address: usize) {
        handle.some()?;
        handle.set(virtual_memory::retain(address as u64)?)
    }

    /// A file descriptor of physical memory, for another process.
    fn cuMemExportToShareableHandle(handle: Out<Unused>, memory: u64, kind: u32, flags: u64) {
        handle.some()?;
        handle.cast::<i32>().set(virtual_memory::export(memory, kind, flags)?)
    }

    /// Imports another process's physical memory.
    fn cuMemImportFromShareableHandle(memory: Out<u64>, handle: usize, kind: u32) {
        memory.some()?;
        memory.set(virtual_memory::import(handle as u32 as i32, kind)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys;

    #[test]
    fn structures_are_cudas() {
        assert_eq!(
            size_of::<Properties>(),
            size_of::<sys::CUmemAllocationProp_v1>()
        );
        assert_eq!(size_of::<Access>(), size_of::<sys::CUmemAccessDesc_v1>());
        assert_eq!(
            size_of::<MemoryLocation>(),
            size_of::<sys::CUmemLocation_v1>()
        );
    }
}
