//! Freeing what a graph allocated.

use std::fmt;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraphNode, CUgraphNodeParams, CUgraphNodeType};

use super::{Op, Shared, Tag, operation, shared};
use crate::memory::RawMemory;
use crate::{Result, driver};

operation! {
    /// Frees, when its node runs, memory that an [`AllocOp`](super::AllocOp) allocated.
    FreeOp(u64)
}

impl FreeOp {
    /// Frees `memory`, which [`Graph::allocation`](crate::Graph::allocation) gave. The driver
    /// refuses any other address.
    #[track_caller]
    pub fn new(memory: &RawMemory) -> FreeOp {
        FreeOp(Shared::new(memory.address(), None, Tag::here()))
    }

    /// The address that it frees.
    pub fn address(&self) -> u64 {
        self.0.value
    }
}

impl Op for FreeOp {
    shared!(Free);

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " of {:#x}", self.address())
    }

    fn node_params(&self, _: &CudaContext) -> Result<CUgraphNodeParams> {
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE);
        params.__bindgen_anon_1.free.dptr = self.address();
        Ok(params)
    }

    fn is_same(&self, other: &Self) -> bool {
        self.address() == other.address()
    }

    /// No executable frees something else.
    fn can_follow(&self, old: &Self) -> bool {
        self.is_same(old)
    }

    fn read(node: CUgraphNode) -> Result<FreeOp> {
        let address = driver::node::freed_address(node)?;
        Ok(FreeOp(Shared::new(address, None, Tag::read())))
    }
}
