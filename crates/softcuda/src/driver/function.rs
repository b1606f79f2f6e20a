//! Functions: kernels in a context, with what can be set for them.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;

use super::code::{self, Code, Kernel};
use super::context::{self, Context};
use super::handle::{Found, Table};
use super::occupancy::{BLOCK_SHARED, Needs};
use super::stream::Stream;
use super::{CUresult, Result, failure, library};
use crate::abi::types::CUfunction;

static FUNCTIONS: Table<Function> = Table::new(5);

/// Dynamic and static shared memory that a block gets without asking.
pub(crate) const DEFAULT_SHARED: u32 = 48 << 10;

/// A kernel in a context.
pub(crate) struct Function {
    handle: usize,
    context: Arc<Context>,
    /// The handle of its module.
    module: usize,
    code: Arc<Code>,
    index: usize,
    settings: Arc<Settings>,
    /// What the deprecated calls set for the next launch.
    pub old: Mutex<OldLaunch>,
}

/// What can be set for a kernel: of a library's kernel, in all contexts of a device
/// alike.
pub(crate) struct Settings {
    max_dynamic_shared: AtomicU32,
    /// Percent, or -1 as bits.
    carveout: AtomicU32,
    cluster: [AtomicU32; 3],
    non_portable_cluster: AtomicU32,
    cluster_scheduling: AtomicU32,
    cache_config: AtomicU32,
    shared_config: AtomicU32,
}

/// The state of `cuFuncSetBlockShape`, `cuFuncSetSharedSize` and `cuParamSet*`.
#[derive(Clone, Default)]
pub(crate) struct OldLaunch {
    /// The block's shape.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Parameters.
    pub params: Vec<u8>,
}

/// `CUfunction_attribute`.
mod attribute {
    pub const MAX_THREADS_PER_BLOCK: u32 = 0;
    pub const SHARED_SIZE_BYTES: u32 = 1;
    pub const CONST_SIZE_BYTES: u32 = 2;
    pub const LOCAL_SIZE_BYTES: u32 = 3;
    pub const NUM_REGS: u32 = 4;
    pub const PTX_VERSION: u32 = 5;
    pub const BINARY_VERSION: u32 = 6;
    pub const CACHE_MODE_CA: u32 = 7;
    pub const MAX_DYNAMIC_SHARED_SIZE_BYTES: u32 = 8;
    pub const PREFERRED_SHARED_MEMORY_CARVEOUT: u32 = 9;
    pub const CLUSTER_SIZE_MUST_BE_SET: u32 = 10;
    pub const REQUIRED_CLUSTER_WIDTH: u32 = 11;
    pub const REQUIRED_CLUSTER_DEPTH: u32 = 13;
    pub const NON_PORTABLE_CLUSTER_SIZE_ALLOWED: u32 = 14;
    pub const CLUSTER_SCHEDULING_POLICY_PREFERENCE: u32 = 15;
}

impl Settings {
    /// What a kernel starts with.
    pub fn of(kernel: &Kernel) -> Arc<Settings> {
        Arc::new(Settings {
            max_dynamic_shared: AtomicU32::new(DEFAULT_SHARED.saturating_sub(kernel.static_shared)),
            carveout: AtomicU32::new(-1i32 as u32),
            cluster: kernel
                .required_cluster
                .unwrap_or_default()
                .map(AtomicU32::new),
            non_portable_cluster: AtomicU32::new(0),
            cluster_scheduling: AtomicU32::new(0),
            cache_config: AtomicU32::new(0),
            shared_config: AtomicU32::new(0),
        })
    }

    /// `cuFuncGetAttribute`.
    pub fn attribute(&self, kernel: &Kernel, attribute: u32) -> Result<i32> {
        use attribute::*;
        let value = match attribute {
            MAX_THREADS_PER_BLOCK => kernel.max_threads,
            SHARED_SIZE_BYTES => kernel.static_shared,
            CONST_SIZE_BYTES => kernel.constant,
            LOCAL_SIZE_BYTES => kernel.local,
            NUM_REGS => kernel.registers,
            PTX_VERSION => kernel.ptx_target,
            BINARY_VERSION => code::capability(),
            CACHE_MODE_CA => 0,
            MAX_DYNAMIC_SHARED_SIZE_BYTES => self.max_dynamic_shared.load(Relaxed),
            PREFERRED_SHARED_MEMORY_CARVEOUT => self.carveout.load(Relaxed),
            CLUSTER_SIZE_MUST_BE_SET => u32::from(kernel.explicit_cluster),
            REQUIRED_CLUSTER_WIDTH..=REQUIRED_CLUSTER_DEPTH => {
                self.cluster[(attribute - REQUIRED_CLUSTER_WIDTH) as usize].load(Relaxed)
            }
            NON_PORTABLE_CLUSTER_SIZE_ALLOWED => self.non_portable_cluster.load(Relaxed),
            CLUSTER_SCHEDULING_POLICY_PREFERENCE => self.cluster_scheduling.load(Relaxed),
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        Ok(value as i32)
    }

    /// `cuFuncSetAttribute`.
    pub fn set_attribute(&self, kernel: &Kernel, attribute: u32, value: i32) -> Result {
        use attribute::*;
        let (place, fine) = match attribute {
            MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                let most = BLOCK_SHARED as i32 - kernel.static_shared as i32;
                (&self.max_dynamic_shared, (0..=most).contains(&value))
            }
            PREFERRED_SHARED_MEMORY_CARVEOUT => (&self.carveout, (-1..=100).contains(&value)),
            REQUIRED_CLUSTER_WIDTH..=REQUIRED_CLUSTER_DEPTH => {
                let axis = (attribute - REQUIRED_CLUSTER_WIDTH) as usize;
                (
                    &self.cluster[axis],
                    value >= 0 && kernel.required_cluster.is_none(),
                )
            }
            NON_PORTABLE_CLUSTER_SIZE_ALLOWED => {
                self.non_portable_cluster
                    .store((value != 0).into(), Relaxed);
                return Ok(());
            }
            CLUSTER_SCHEDULING_POLICY_PREFERENCE => {
                (&self.cluster_scheduling, (0..=2).contains(&value))
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        if !fine {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        place.store(value as u32, Relaxed);
        Ok(())
    }

    /// `cuFuncSetCacheConfig`.
    pub fn set_cache_config(&self, config: u32) -> Result {
        if config > 3 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.cache_config.store(config, Relaxed);
        Ok(())
    }

    /// `cuFuncSetSharedMemConfig`.
    pub fn set_shared_config(&self, config: u32) -> Result {
        if config > 2 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.shared_config.store(config, Relaxed);
        Ok(())
    }

    /// The most dynamic shared memory of a launch.
    pub fn max_dynamic_shared(&self) -> u32 {
        self.max_dynamic_shared.load(Relaxed)
    }

    /// The cluster that launches have without saying so.
    pub fn cluster(&self) -> Option<[u32; 3]> {
        let cluster = [0, 1, 2].map(|axis| self.cluster[axis].load(Relaxed));
        (cluster != [0; 3]).then(|| cluster.map(|size| size.max(1)))
    }

    /// The most blocks of a cluster.
    pub fn max_cluster(&self) -> u32 {
        if self.non_portable_cluster.load(Relaxed) != 0 {
            16
        } else {
            8
        }
    }
}

/// Puts the function of a kernel into the table; it lives there until [`remove`].
pub(crate) fn insert(
    context: &Arc<Context>,
    module: usize,
    code: &Arc<Code>,
    index: usize,
    settings: Arc<Settings>,
) -> Arc<Function> {
    FUNCTIONS.insert(|handle| Function {
        handle,
        context: context.clone(),
        module,
        code: code.clone(),
        index,
        settings,
        old: Mutex::default(),
    })
}

/// The function's handle means nothing any more; launches in flight go on.
pub(crate) fn remove(function: &Function) {
    FUNCTIONS.remove(function.handle);
}

/// The function of a handle; of a library's kernel, its function in the current context.
pub(crate) fn resolve(handle: CUfunction) -> Result<Arc<Function>> {
    failure::check_if_current()?;
    find(handle, context::current)
}

/// As [`resolve`], for a launch in a stream: of a library's kernel, its function in the stream's
/// context.
pub(crate) fn resolve_for(handle: CUfunction, stream: &Stream) -> Result<Arc<Function>> {
    failure::check_if_current()?;
    find(handle, || Ok(stream.context().clone()))
}

fn find(
    handle: CUfunction,
    context: impl FnOnce() -> Result<Arc<Context>>,
) -> Result<Arc<Function>> {
    match FUNCTIONS.get(handle.0) {
        Found::Live(function) => Ok(function),
        Found::Destroyed => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
        Found::Unknown => library::function_of(handle.0, &context()?),
    }
}

/// As [`resolve`], of a function's own handle alone.
pub(crate) fn resolve_itself(handle: CUfunction) -> Result<Arc<Function>> {
    failure::check_if_current()?;
    FUNCTIONS
        .get(handle.0)
        .or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

impl Function {
    /// Its handle.
    pub fn handle(&self) -> CUfunction {
        CUfunction(self.handle)
    }

    /// The context it belongs to.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The handle of its module.
    pub fn module(&self) -> usize {
        self.module
    }

    /// What it is part of.
    pub fn code(&self) -> &Arc<Code> {
        &self.code
    }

    /// Its number among the code's kernels.
    pub fn index(&self) -> usize {
        self.index
    }

    /// What its PTX says of it.
    pub fn kernel(&self) -> &Kernel {
        &self.code.kernels[self.index]
    }

    /// Its name; lives as long as the function.
    pub fn name(&self) -> &CStr {
        &self.kernel().name
    }

    /// What was set for it.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// `cuFuncGetParamInfo`.
    pub fn param(&self, index: usize) -> Result<(usize, usize)> {
        self.kernel()
            .params
            .get(index)
            .copied()
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// What a block of it needs.
    pub fn needs(&self) -> Needs {
        let kernel = self.kernel();
        Needs {
            registers: kernel.registers,
            static_shared: kernel.static_shared.into(),
            max_dynamic_shared: self.settings.max_dynamic_shared().into(),
            max_threads: kernel.max_threads,
        }
    }
}
