//! Memory that the caller vouches for.

use super::{Region, Source, Space, Target};
use crate::Owner;

/// Memory given by its address.
///
/// It is kept alive by the owner given with [`owned_by`](RawMemory::owned_by), if any, and else by
/// the caller.
#[derive(Clone, Debug)]
pub struct RawMemory {
    region: Region,
}

impl RawMemory {
    /// Memory of a device.
    ///
    /// # Safety
    ///
    /// For as long as a graph, executable or launch uses it, `address` starts `bytes` bytes that a
    /// device may read and write.
    pub unsafe fn device(address: u64, bytes: usize) -> RawMemory {
        RawMemory::new(Space::Device, address, bytes)
    }

    /// Memory of the host, pinned or pageable.
    ///
    /// # Safety
    ///
    /// For as long as a graph, executable or launch uses it, `start` is valid for reads, and for
    /// writes if it is written, of `bytes` bytes, and nothing in the program borrows what a launch
    /// writes.
    pub unsafe fn host<T>(start: *mut T, bytes: usize) -> RawMemory {
        RawMemory::new(Space::Host, start as u64, bytes)
    }

    /// Managed memory.
    ///
    /// # Safety
    ///
    /// As for [`device`](RawMemory::device) and [`host`](RawMemory::host) both.
    pub unsafe fn managed(address: u64, bytes: usize) -> RawMemory {
        RawMemory::new(Space::Managed, address, bytes)
    }

    pub(crate) fn new(space: Space, address: u64, bytes: usize) -> RawMemory {
        RawMemory {
            region: Region {
                space,
                address,
                bytes,
                owner: None,
            },
        }
    }

    /// The same memory, kept alive by `owner`.
    pub fn owned_by(mut self, owner: Owner) -> RawMemory {
        self.region.owner = Some(owner);
        self
    }

    /// Its first byte.
    pub fn address(&self) -> u64 {
        self.region.address
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.region.bytes
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }
}

impl Source for RawMemory {
    fn source(&self) -> Region {
        self.region.clone()
    }
}

// SAFETY: whoever made it says so.
unsafe impl Target for RawMemory {}
