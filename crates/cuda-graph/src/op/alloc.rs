//! Allocating memory when the graph runs.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationType, CUmemLocation, CUmemLocationType as Type,
};

use super::{Op, Shared, Tag, copied, operation, shared};
use crate::memory::{RawMemory, Space};
use crate::{Result, driver};

/// What names managed memory since CUDA 13.0; the enumeration of 12.8 has no name for it.
const MANAGED: u32 = 2;
const PINNED: u32 = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED as u32;

const DEVICE: i32 = Type::CU_MEM_LOCATION_TYPE_DEVICE as i32;
const HOST: i32 = Type::CU_MEM_LOCATION_TYPE_HOST as i32;
const HOST_NUMA: i32 = Type::CU_MEM_LOCATION_TYPE_HOST_NUMA as i32;
const HOST_CURRENT: i32 = Type::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT as i32;
const READ_WRITE: i32 = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as i32;

/// A location in every CUDA version: a kind and a number.
type Location = [i32; 2];
/// Who has access, in every CUDA version: a location and flags.
type Access = [i32; 3];
const _: () = assert!(size_of::<Location>() == size_of::<CUmemLocation>());
const _: () = assert!(size_of::<Access>() == size_of::<CUmemAccessDesc>());

/// Where an allocation lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryLocation {
    /// On the device of this ordinal.
    Device(i32),
    /// On the host.
    Host,
    /// On the host, near this NUMA node.
    HostNuma(i32),
    /// Managed memory whose home is the device of this ordinal; drivers for CUDA 13.
    Managed(i32),
}

operation! {
    /// Allocates memory when its node runs. The address is fixed when the node is added:
    /// [`Graph::allocation`](crate::Graph::allocation).
    ///
    /// The driver does not clone or embed a graph with allocations, nor instantiate it twice.
    AllocOp(Allocation)
}

#[derive(Clone)]
struct Allocation {
    bytes: usize,
    location: MemoryLocation,
    peers: Vec<i32>,
    /// The peers as the driver takes them.
    access: Vec<Access>,
    /// 0 until it is a node.
    address: u64,
}

impl AllocOp {
    /// Allocates `bytes` bytes at `location`.
    #[track_caller]
    pub fn new(location: MemoryLocation, bytes: usize) -> AllocOp {
        AllocOp::of(location, bytes, 0, Tag::here())
    }

    fn of(location: MemoryLocation, bytes: usize, address: u64, tag: Tag) -> AllocOp {
        let allocation = Allocation {
            bytes,
            location,
            peers: Vec::new(),
            access: Vec::new(),
            address,
        };
        AllocOp(Shared::new(allocation, None, tag))
    }

    /// The same allocation, which the device of this ordinal may access too.
    pub fn peer(mut self, ordinal: i32) -> Self {
        let allocation = &mut Arc::make_mut(&mut self.0).value;
        allocation.peers.push(ordinal);
        allocation.access.push([DEVICE, ordinal, READ_WRITE]);
        self
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.0.value.bytes
    }

    /// The devices that may access it besides its own.
    pub fn peers(&self) -> &[i32] {
        &self.0.value.peers
    }

    /// Where it lies.
    pub fn location_of_memory(&self) -> MemoryLocation {
        self.0.value.location
    }

    /// The address of the memory, for an operation read back from a node.
    pub fn address(&self) -> Option<u64> {
        Some(self.0.value.address).filter(|&address| address != 0)
    }

    /// The memory, for an operation read back from a node.
    ///
    /// # Safety
    ///
    /// As [`Graph::allocation`](crate::Graph::allocation).
    pub unsafe fn memory(&self) -> Option<RawMemory> {
        let space = match self.location_of_memory() {
            MemoryLocation::Device(_) => Space::Device,
            _ => Space::Managed,
        };
        let address = self.address()?;
        Some(RawMemory::new(space, address, self.bytes()))
    }

    /// The same operation, whose node has got its memory.
    pub(crate) fn at(mut self, address: u64) -> AllocOp {
        Arc::make_mut(&mut self.0).value.address = address;
        self
    }
}

impl Op for AllocOp {
    shared!(Alloc);

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, location) = (self.bytes(), self.location_of_memory());
        let address = self.0.value.address;
        write!(f, " of {bytes} bytes at {location:?}, {address:#x},")
    }

    fn node_params(&self, _: &CudaContext) -> Result<CUgraphNodeParams> {
        let allocation = &self.0.value;
        let (allocated, location) = match allocation.location {
            MemoryLocation::Device(ordinal) => (PINNED, [DEVICE, ordinal]),
            MemoryLocation::Managed(ordinal) => (MANAGED, [DEVICE, ordinal]),
            MemoryLocation::Host => (PINNED, [HOST, 0]),
            MemoryLocation::HostNuma(node) => (PINNED, [HOST_NUMA, node]),
        };
        let mut node = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC);
        let params = &raw mut node.__bindgen_anon_1.alloc;
        // SAFETY: the pointer is to `node`. Kinds are written as numbers, which may have no name.
        unsafe {
            let props = &raw mut (*params).poolProps;
            (&raw mut (*props).allocType).cast::<u32>().write(allocated);
            (&raw mut (*props).location)
                .cast::<Location>()
                .write(location);
            (*params).bytesize = allocation.bytes;
            if !allocation.access.is_empty() {
                (*params).accessDescs = allocation.access.as_ptr().cast();
                (*params).accessDescCount = allocation.access.len();
            }
        }
        Ok(node)
    }

    fn is_same(&self, other: &Self) -> bool {
        let (own, others) = (&self.0.value, &other.0.value);
        (own.bytes, own.location) == (others.bytes, others.location) && own.peers == others.peers
    }

    /// No executable allocates something else.
    fn can_follow(&self, old: &Self) -> bool {
        self.is_same(old)
    }

    fn read(node: CUgraphNode) -> Result<AllocOp> {
        let params = driver::node::alloc_params(node)?;
        let params = params.as_ptr();
        // SAFETY: the driver has filled it in, and what it points to lives as long as the node.
        // Kinds are read as numbers, for a later driver may have more of them.
        let (allocated, [kind, id], peers, bytes, address) = unsafe {
            let props = &raw const (*params).poolProps;
            (
                (&raw const (*props).allocType).cast::<u32>().read(),
                (&raw const (*props).location).cast::<Location>().read(),
                copied::<Access>((*params).accessDescs.cast(), (*params).accessDescCount),
                (*params).bytesize,
                (*params).dptr,
            )
        };
        let location = match kind {
            _ if allocated == MANAGED => MemoryLocation::Managed(id),
            HOST | HOST_CURRENT => MemoryLocation::Host,
            HOST_NUMA => MemoryLocation::HostNuma(id),
            _ => MemoryLocation::Device(id),
        };
        let op = AllocOp::of(location, bytes, address, Tag::default());
        let peers = peers.into_iter().map(|[_, ordinal, _]| ordinal);
        Ok(peers.fold(op, AllocOp::peer))
    }
}
