//! The memory pool that a device's graphs allocate from.

use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUgraphMem_attribute as A;

use crate::{Result, driver};

/// The graph memory pool of a device.
#[derive(Clone, Debug)]
pub struct GraphPool {
    context: Arc<CudaContext>,
}

/// Figures of a pool, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFigures {
    /// In use by graphs now.
    pub used: u64,
    /// The most in use since the last reset.
    pub used_high: u64,
    /// Held by the pool now.
    pub reserved: u64,
    /// The most held since the last reset.
    pub reserved_high: u64,
}

impl GraphPool {
    /// The pool of the device of `context`.
    pub fn of(context: &Arc<CudaContext>) -> GraphPool {
        GraphPool {
            context: context.clone(),
        }
    }

    /// Its figures.
    pub fn figures(&self) -> Result<PoolFigures> {
        driver::bind(&self.context)?;
        let figure = |figure| driver::memory::pool_figure(self.context.cu_device(), figure);
        Ok(PoolFigures {
            used: figure(A::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)?,
            used_high: figure(A::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)?,
            reserved: figure(A::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)?,
            reserved_high: figure(A::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)?,
        })
    }

    /// Starts the two high figures anew.
    pub fn reset_high(&self) -> Result<()> {
        driver::bind(&self.context)?;
        let device = self.context.cu_device();
        driver::memory::reset_pool_figure(device, A::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)?;
        driver::memory::reset_pool_figure(device, A::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
    }

    /// Gives back to the device what the pool holds and no graph uses.
    pub fn trim(&self) -> Result<()> {
        driver::bind(&self.context)?;
        driver::memory::trim_pool(self.context.cu_device())
    }
}
