//! Freeing what a graph allocated.

use std::fmt;

use cudarc::driver::sys::{
    CUDA_MEM_FREE_NODE_PARAMS, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
};

use super::{Tag, tagged};
use crate::memory::RawMemory;
use crate::{Result, driver};

/// Frees, when its node runs, memory that an [`AllocOp`](super::AllocOp) allocated.
#[derive(Clone)]
pub struct FreeOp {
    address: u64,
    pub(super) tag: Tag,
}

tagged!(FreeOp);

impl FreeOp {
    /// Frees `memory`, which [`Graph::allocation`](crate::Graph::allocation) gave. Any other address the driver refuses.
    #[track_caller]
    pub fn new(memory: &RawMemory) -> FreeOp {
        FreeOp {
            address: memory.address(),
            tag: Tag::here(),
        }
    }

    /// The address that it frees.
    pub fn address(&self) -> u64 {
        self.address
    }

    pub(super) fn with_params<R>(&self, call: impl FnOnce(&mut CUgraphNodeParams) -> R) -> R {
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE);
        params.__bindgen_anon_1.free = CUDA_MEM_FREE_NODE_PARAMS { dptr: self.address };
        call(&mut params)
    }

    pub(super) fn read(node: CUgraphNode) -> Result<FreeOp> {
        Ok(FreeOp {
            address: driver::node::freed_address(node)?,
            tag: Tag::default(),
        })
    }
}

impl fmt::Debug for FreeOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FreeOp of {:#x} made at {:?}", self.address, self.tag)
    }
}
