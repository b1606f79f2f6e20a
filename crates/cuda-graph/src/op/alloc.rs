//! Allocating memory when the graph runs.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUDA_MEM_ALLOC_NODE_PARAMS_v2, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationType, CUmemLocation, CUmemLocationType,
};

use super::{Op, Tag, labelled, shared_tag};
use crate::error::NodeKind;
use crate::memory::{RawMemory, Space};
use crate::{Result, driver};

/// What names managed memory since CUDA 13.0; the enumeration of 12.8 has no name for it.
const MANAGED: u32 = 2;

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

/// Allocates memory when its node runs. The address is fixed when the node is added: [`Graph::allocation`](crate::Graph::allocation).
///
/// A graph with allocations cannot be cloned or embedded, nor instantiated twice; that is the driver's rule.
#[derive(Clone)]
pub struct AllocOp {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    bytes: usize,
    location: MemoryLocation,
    peers: Vec<i32>,
    /// 0 until it is a node.
    address: u64,
    tag: Tag,
}

labelled!(AllocOp);

impl AllocOp {
    /// Allocates `bytes` bytes at `location`.
    #[track_caller]
    pub fn new(location: MemoryLocation, bytes: usize) -> AllocOp {
        AllocOp {
            inner: Arc::new(Inner {
                bytes,
                location,
                peers: Vec::new(),
                address: 0,
                tag: Tag::here(),
            }),
        }
    }

    /// The same allocation, which the device of this ordinal may access too.
    pub fn peer(mut self, ordinal: i32) -> Self {
        Arc::make_mut(&mut self.inner).peers.push(ordinal);
        self
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.inner.bytes
    }

    /// The devices that may access it besides its own.
    pub fn peers(&self) -> &[i32] {
        &self.inner.peers
    }

    /// Where it lies.
    pub fn location_of_memory(&self) -> MemoryLocation {
        self.inner.location
    }

    /// The address of the memory, for an operation read back from a node.
    pub fn address(&self) -> Option<u64> {
        let address = self.inner.address;
        (address != 0).then_some(address)
    }

    /// The memory, for an operation read back from a node.
    ///
    /// # Safety
    ///
    /// As [`Graph::allocation`](crate::Graph::allocation).
    pub unsafe fn memory(&self) -> Option<RawMemory> {
        let space = match self.inner.location {
            MemoryLocation::Device(_) => Space::Device,
            MemoryLocation::Host | MemoryLocation::HostNuma(_) | MemoryLocation::Managed(_) => {
                Space::Managed
            }
        };
        self.address()
            .map(|address| RawMemory::new(space, address, self.inner.bytes))
    }

    /// The same operation, whose node has got its memory.
    pub(crate) fn at(mut self, address: u64) -> AllocOp {
        Arc::make_mut(&mut self.inner).address = address;
        self
    }
}

impl Op for AllocOp {
    shared_tag!(inner);

    fn kind(&self) -> NodeKind {
        NodeKind::Alloc
    }

    fn with_params<R>(
        &self,
        _: &CudaContext,
        call: impl FnOnce(&mut CUgraphNodeParams) -> R,
    ) -> Result<R> {
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC);
        let access: Vec<CUmemAccessDesc> = self
            .inner
            .peers
            .iter()
            .map(|&ordinal| CUmemAccessDesc {
                location: location(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, ordinal),
                flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            })
            .collect();
        use CUmemLocationType as T;
        let (kind, id) = match self.inner.location {
            MemoryLocation::Device(ordinal) | MemoryLocation::Managed(ordinal) => {
                (T::CU_MEM_LOCATION_TYPE_DEVICE, ordinal)
            }
            MemoryLocation::Host => (T::CU_MEM_LOCATION_TYPE_HOST, 0),
            MemoryLocation::HostNuma(node) => (T::CU_MEM_LOCATION_TYPE_HOST_NUMA, node),
        };
        let mut alloc = std::mem::MaybeUninit::<CUDA_MEM_ALLOC_NODE_PARAMS_v2>::zeroed();
        // SAFETY: plain data for which zero is a value, but for the kinds, which get one.
        let mut alloc = unsafe {
            let props = &raw mut (*alloc.as_mut_ptr()).poolProps;
            (*props).allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
            if let MemoryLocation::Managed(_) = self.inner.location {
                (&raw mut (*props).allocType).cast::<u32>().write(MANAGED);
            }
            (*props).location = location(kind, id);
            alloc.assume_init()
        };
        alloc.accessDescs = if access.is_empty() {
            ptr::null()
        } else {
            access.as_ptr()
        };
        alloc.accessDescCount = access.len();
        alloc.bytesize = self.inner.bytes;
        params.__bindgen_anon_1.alloc = alloc;
        Ok(call(&mut params))
    }

    fn read(node: CUgraphNode) -> Result<AllocOp> {
        let params = driver::node::alloc_params(node)?;
        let params = params.as_ptr();
        // SAFETY: the driver has filled it in; kinds are read as numbers, for a later driver may have more of them. In every CUDA
        // version a location is a kind and a number.
        let (allocation, kind, id, descs, count, bytes, address) = unsafe {
            let props = &raw const (*params).poolProps;
            let place = (&raw const (*props).location).cast::<i32>();
            (
                (&raw const (*props).allocType).cast::<u32>().read(),
                place.read(),
                place.add(1).read(),
                (*params).accessDescs,
                (*params).accessDescCount,
                (*params).bytesize,
                (*params).dptr,
            )
        };
        let peers = if descs.is_null() {
            Vec::new()
        } else {
            (0..count)
                // SAFETY: the driver gives so many, which live as long as the node; each begins with a location.
                .map(|index| unsafe { descs.add(index).cast::<i32>().add(1).read() })
                .collect()
        };
        use CUmemLocationType as T;
        let named = |named: T| kind == named as i32;
        let location = if allocation == MANAGED {
            MemoryLocation::Managed(id)
        } else if named(T::CU_MEM_LOCATION_TYPE_HOST)
            || named(T::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
        {
            MemoryLocation::Host
        } else if named(T::CU_MEM_LOCATION_TYPE_HOST_NUMA) {
            MemoryLocation::HostNuma(id)
        } else {
            MemoryLocation::Device(id)
        };
        Ok(AllocOp {
            inner: Arc::new(Inner {
                bytes,
                location,
                peers,
                address,
                tag: Tag::default(),
            }),
        })
    }
}

fn location(kind: CUmemLocationType, id: i32) -> CUmemLocation {
    let mut location = std::mem::MaybeUninit::<CUmemLocation>::zeroed();
    // SAFETY: in every CUDA version the structure is a kind and a number.
    unsafe {
        let start = location.as_mut_ptr();
        (&raw mut (*start).type_).write(kind);
        start.cast::<i32>().add(1).write(id);
        location.assume_init()
    }
}

impl fmt::Debug for AllocOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.inner;
        write!(
            f,
            "AllocOp of {} bytes at {:?}",
            inner.bytes, inner.location
        )?;
        if let Some(address) = self.address() {
            write!(f, ", address {address:#x}")?;
        }
        write!(f, ", made at {:?}", inner.tag)
    }
}
