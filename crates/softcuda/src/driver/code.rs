//! An image of code, compiled: the one place where the driver meets the PTX compiler.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use super::{CUresult, Result, device};
use crate::jit::module::{Compiled, LoadErrorKind, LoadOptions, Module};
use crate::memory::{self, Device};

/// The most threads of a block of any kernel.
const MOST_THREADS: u32 = 1024;

/// Nothing here runs out of registers: what is told of them never keeps blocks from fitting.
const MOST_REGISTERS: u32 = 32;

/// Why an image was not loaded.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    /// What the call answers.
    pub error: CUresult,
    /// What the error log gets.
    pub log: String,
}

/// A compiled image: kernels, and variables with their memory. The variables live as long as it
/// does.
pub(crate) struct Code {
    module: Arc<Module>,
    /// The device whose memory its variables are.
    pub device: Device,
    /// Its kernels, in source order.
    pub kernels: Vec<Kernel>,
}

/// A kernel, as its PTX describes it.
pub(crate) struct Kernel {
    /// Its name.
    pub name: CString,
    /// Offset and size of each parameter.
    pub params: Vec<(usize, usize)>,
    /// Size of all parameters.
    pub params_size: usize,
    /// The most threads of a block.
    pub max_threads: u32,
    /// `.reqntid`: the block must have this shape.
    pub required_block: Option<[u32; 3]>,
    /// `.reqnctapercluster`.
    pub required_cluster: Option<[u32; 3]>,
    /// `.explicitcluster`: a launch must say the cluster's size.
    pub explicit_cluster: bool,
    /// Bytes of static shared memory.
    pub static_shared: u32,
    /// Where dynamic shared memory starts.
    pub dynamic_shared_offset: u32,
    /// Bytes of constant memory of the module.
    pub constant: u32,
    /// Bytes of local memory of a thread.
    pub local: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// The compute capability that the PTX is for, ten times.
    pub ptx_target: u32,
}

/// The compute capability of the device, ten times.
pub(crate) fn capability() -> u32 {
    let (major, minor) = device::compute_capability();
    major * 10 + minor
}

impl Code {
    /// Compiles PTX as far as loading does: kernels become native code when they are first used.
    /// Its variables are memory of a device.
    pub fn load(text: &[u8], device: Device) -> std::result::Result<Arc<Code>, Refused> {
        let options = LoadOptions {
            capability: capability(),
            device,
            ..LoadOptions::default()
        };
        let module = Module::load(text, &options).map_err(|refused| Refused {
            error: match refused.kind {
                LoadErrorKind::InvalidImage => CUresult::CUDA_ERROR_INVALID_IMAGE,
                // The compiler does not know targets beyond the device's.
                LoadErrorKind::InvalidPtx | LoadErrorKind::NoBinaryForGpu => {
                    CUresult::CUDA_ERROR_INVALID_PTX
                }
                LoadErrorKind::UnsupportedPtxVersion => {
                    CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                }
                LoadErrorKind::OutOfMemory => CUresult::CUDA_ERROR_OUT_OF_MEMORY,
            },
            log: refused.log,
        })?;
        let kernels = module.kernels().iter().map(|kernel| {
            let attributes = &kernel.attributes;
            Kernel {
                name: CString::new(&*kernel.name).expect("PTX names have no NUL"),
                params: kernel
                    .params
                    .iter()
                    .map(|field| (field.offset as usize, field.size as usize))
                    .collect(),
                params_size: kernel.params_size as usize,
                max_threads: attributes.maxntid.map_or(MOST_THREADS, |dims| {
                    dims.iter()
                        .fold(1u32, |threads, &dim| threads.saturating_mul(dim))
                        .min(MOST_THREADS)
                }),
                required_block: attributes.reqntid,
                required_cluster: attributes.cluster,
                explicit_cluster: attributes.cluster_must_be_set,
                static_shared: attributes.static_shared,
                dynamic_shared_offset: attributes.shared_offset,
                constant: attributes.constant,
                local: attributes.local,
                registers: attributes.registers.clamp(16, MOST_REGISTERS),
                ptx_target: attributes.binary_version,
            }
        });
        Ok(Arc::new(Code {
            kernels: kernels.collect(),
            device,
            module,
        }))
    }

    /// What the information log gets: more if it is asked for.
    pub fn info(&self, verbose: bool) -> String {
        let more = if verbose { &*self.module.info } else { "" };
        self.module.warnings.clone() + more
    }

    /// The native code of a kernel, for blocks of this shape or of the usual one; lives as long as
    /// this does.
    pub fn compile(&self, index: usize, block: Option<[u32; 3]>) -> Result<Compiled> {
        let kernel = &self.module.kernels()[index];
        let compiled = match block {
            Some(block) => kernel.compile_for(block),
            None => kernel.compile(),
        };
        compiled.map_err(|error| {
            eprintln!("softcuda: {error}");
            match error.unsupported {
                true => CUresult::CUDA_ERROR_NOT_SUPPORTED,
                false => CUresult::CUDA_ERROR_INVALID_PTX,
            }
        })
    }

    /// The name of a kernel.
    pub fn kernel_name(&self, index: usize) -> Arc<str> {
        self.module.kernels()[index].name.clone()
    }

    /// Address and size of a variable.
    pub fn global(&self, name: &CStr) -> Option<(u64, u64)> {
        self.module.global(name.to_str().ok()?)
    }

    /// An address is in one of its variables.
    pub fn has(&self, address: u64) -> bool {
        self.module.has(address)
    }

    /// Address and size of a managed variable.
    pub fn managed(&self, name: &CStr) -> Option<(u64, u64)> {
        let (address, size) = self.global(name)?;
        let managed =
            memory::find(address).is_some_and(|found| found.kind == memory::Kind::Managed);
        managed.then_some((address, size))
    }
}
