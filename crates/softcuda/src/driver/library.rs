//! Libraries: code that belongs to no context, and is loaded into each where it is used.
//!
//! As on a real device with lazy loading, an image that does not compile is a library nevertheless;
//! what it is asked for tells the error.
//!
//! Invariant: a library's variables are apart in each context. The code that loading checked is the
//! module of the first context of device 0 that uses the library; others compile the text again.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::code::{Code, Refused};
use super::context::Context;
use super::function::{Function, Settings};
use super::handle::{Found, Table};
use super::module::{self, Module};
use super::{CUresult, Result};
use crate::abi::types::{CUkernel, CUlibrary};
use crate::memory::Device;

static LIBRARIES: Table<Library> = Table::new(6);
static KERNELS: Table<Kernel> = Table::new(7);

/// Code of no context.
pub(crate) struct Library {
    handle: usize,
    text: Vec<u8>,
    code: std::result::Result<Arc<Code>, Refused>,
    kernels: Vec<Arc<Kernel>>,
    modules: Mutex<Modules>,
}

#[derive(Default)]
struct Modules {
    /// The checked code is a context's module.
    taken: bool,
    /// By the context's id.
    of: HashMap<u64, Arc<Module>>,
}

/// A kernel of a library.
pub(crate) struct Kernel {
    handle: usize,
    library: usize,
    code: Arc<Code>,
    index: usize,
    /// What was set for it on each device.
    settings: Box<[Arc<Settings>]>,
}

/// Loads an image as a library: its PTX, or why it has none.
pub(crate) fn load(text: Result<Vec<u8>>) -> Arc<Library> {
    let (text, code) = match text {
        Ok(text) => {
            let code = Code::load(&text, Device::FIRST);
            (text, code)
        }
        Err(error) => {
            let log = String::new();
            (Vec::new(), Err(Refused { error, log }))
        }
    };
    LIBRARIES.insert(|library| {
        let mut kernels = Vec::new();
        if let Ok(code) = &code {
            for (index, kernel) in code.kernels.iter().enumerate() {
                let settings = Device::all().map(|_| Settings::of(kernel)).collect();
                let code = code.clone();
                kernels.push(KERNELS.insert(|handle| Kernel {
                    handle,
                    library,
                    code,
                    index,
                    settings,
                }));
            }
        }
        Library {
            handle: library,
            text,
            code,
            kernels,
            modules: Mutex::default(),
        }
    })
}

/// The library of a handle.
pub(crate) fn resolve(handle: CUlibrary) -> Result<Arc<Library>> {
    LIBRARIES
        .get(handle.0)
        .or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// As [`resolve`]; an unloaded library has no kernel of any name.
pub(crate) fn resolve_for_kernel(handle: CUlibrary) -> Result<Arc<Library>> {
    match LIBRARIES.get(handle.0) {
        Found::Destroyed => Err(CUresult::CUDA_ERROR_NOT_FOUND),
        found => found.or(CUresult::CUDA_ERROR_INVALID_HANDLE),
    }
}

/// The kernel of a handle.
pub(crate) fn kernel(handle: CUkernel) -> Result<Arc<Kernel>> {
    KERNELS
        .get(handle.0)
        .or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// A kernel's function in a context, for calls that take a kernel's handle for a function's.
pub(crate) fn function_of(handle: usize, context: &Arc<Context>) -> Result<Arc<Function>> {
    kernel(CUkernel(handle))?.function(context)
}

/// `cuLibraryUnload`: waits for all work of each context in which a kernel of it was asked for or
/// launched, as `cuModuleUnload` does.
pub(crate) fn unload(handle: CUlibrary) -> Result {
    let Found::Live(library) = LIBRARIES.remove(handle.0) else {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    };
    for kernel in &library.kernels {
        KERNELS.remove(kernel.handle);
    }
    let modules: Vec<_> = library.modules.lock().of.drain().collect();
    let mut waited = Ok(());
    for (_, module) in &modules {
        waited = waited.and(module.wait());
        module::remove(module);
    }
    waited
}

/// The context ends: so do the modules that libraries have in it.
pub(crate) fn end_context(context: &Context) {
    for library in LIBRARIES.all() {
        library.modules.lock().of.remove(&context.id());
    }
}

impl Library {
    /// Its handle.
    pub fn handle(&self) -> CUlibrary {
        CUlibrary(self.handle)
    }

    /// The code, or why there is none.
    pub fn code(&self) -> std::result::Result<&Arc<Code>, &Refused> {
        self.code.as_ref()
    }

    /// Its kernels, in source order.
    pub fn kernels(&self) -> Result<&[Arc<Kernel>]> {
        self.code().map_err(|refused| refused.error)?;
        Ok(&self.kernels)
    }

    /// The kernel of a name.
    pub fn kernel(&self, name: &CStr) -> Result<&Arc<Kernel>> {
        let mut kernels = self.kernels()?.iter();
        kernels
            .find(|kernel| kernel.name() == name)
            .ok_or(CUresult::CUDA_ERROR_NOT_FOUND)
    }

    /// Its module in a context, loaded if need be.
    pub fn module(&self, context: &Arc<Context>) -> Result<Arc<Module>> {
        let mut modules = self.modules.lock();
        if let Some(module) = modules.of.get(&context.id()) {
            return Ok(module.clone());
        }
        let checked = self.code().map_err(|refused| refused.error)?;
        let code = match !modules.taken && checked.device == context.device() {
            true => {
                modules.taken = true;
                checked.clone()
            }
            false => {
                let loaded = Code::load(&self.text, context.device());
                loaded.map_err(|refused| refused.error)?
            }
        };
        let settings = self
            .kernels
            .iter()
            .map(|kernel| kernel.settings(context.device()).clone())
            .collect();
        let module = module::insert(context, code, settings, true);
        modules.of.insert(context.id(), module.clone());
        Ok(module)
    }
}

impl Kernel {
    /// Its handle.
    pub fn handle(&self) -> CUkernel {
        CUkernel(self.handle)
    }

    /// The library it belongs to.
    pub fn library(&self) -> CUlibrary {
        CUlibrary(self.library)
    }

    /// What its PTX says of it.
    pub fn described(&self) -> &super::code::Kernel {
        &self.code.kernels[self.index]
    }

    /// Its name; lives as long as the library.
    pub fn name(&self) -> &CStr {
        &self.described().name
    }

    /// What was set for it on a device.
    pub fn settings(&self, device: Device) -> &Arc<Settings> {
        &self.settings[device.index()]
    }

    /// Its function in a context.
    pub fn function(&self, context: &Arc<Context>) -> Result<Arc<Function>> {
        let module = resolve(self.library())?.module(context)?;
        Ok(module.functions()[self.index].clone())
    }

    /// `cuKernelGetParamInfo`.
    pub fn param(&self, index: usize) -> Result<(usize, usize)> {
        self.described()
            .params
            .get(index)
            .copied()
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }
}
