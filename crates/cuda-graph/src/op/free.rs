//! Freeing what a graph allocated.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUDA_MEM_FREE_NODE_PARAMS, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
};

use super::{Op, Tag, labelled, shared_tag};
use crate::error::NodeKind;
use crate::memory::RawMemory;
use crate::{Result, driver};

/// Frees, when its node runs, memory that an [`AllocOp`](super::AllocOp) allocated.
#[derive(Clone)]
pub struct FreeOp {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    address: u64,
    tag: Tag,
}

labelled!(FreeOp);

impl FreeOp {
    /// Frees `memory`, which [`Graph::allocation`](crate::Graph::allocation) gave. Any other address the driver refuses.
    #[track_caller]
    pub fn new(memory: &RawMemory) -> FreeOp {
        FreeOp::of(memory.address(), Tag::here())
    }

    fn of(address: u64, tag: Tag) -> FreeOp {
        FreeOp {
            inner: Arc::new(Inner { address, tag }),
        }
    }

    /// The address that it frees.
    pub fn address(&self) -> u64 {
        self.inner.address
    }
}

impl Op for FreeOp {
    shared_tag!(inner);

    fn kind(&self) -> NodeKind {
        NodeKind::Free
    }

    fn with_params<R>(
        &self,
        _: &CudaContext,
        call: impl FnOnce(&mut CUgraphNodeParams) -> R,
    ) -> Result<R> {
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE);
        params.__bindgen_anon_1.free = CUDA_MEM_FREE_NODE_PARAMS {
            dptr: self.inner.address,
        };
        Ok(call(&mut params))
    }

    fn read(node: CUgraphNode) -> Result<FreeOp> {
        Ok(FreeOp::of(driver::node::freed_address(node)?, Tag::read()))
    }
}

impl fmt::Debug for FreeOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "FreeOp of {:#x} made at {:?}",
            self.inner.address, self.inner.tag
        )
    }
}
