//! Modules: code loaded into a context, with its functions and variables.
//!
//! Invariant: a module's code and variables live as long as the module, or as a launch of one of
//! its kernels is in flight.

use std::ffi::CStr;
use std::sync::Arc;

use super::code::{Code, Refused};
use super::context::Context;
use super::function::{self, Function, Settings};
use super::handle::{Found, Table};
use super::{CUresult, Result, failure, stream};
use crate::abi::types::CUmodule;

static MODULES: Table<Module> = Table::new(4);

/// Code in a context.
pub(crate) struct Module {
    handle: usize,
    context: Arc<Context>,
    code: Arc<Code>,
    functions: Vec<Arc<Function>>,
    /// It belongs to a library, which unloads it.
    of_library: bool,
}

/// Loads PTX into a context.
pub(crate) fn load(
    context: &Arc<Context>,
    text: &[u8],
) -> std::result::Result<Arc<Module>, Refused> {
    let code = Code::load(text, context.device())?;
    let settings = code.kernels.iter().map(Settings::of).collect();
    Ok(insert(context, code, settings, false))
}

/// Makes a module of loaded code.
pub(crate) fn insert(
    context: &Arc<Context>,
    code: Arc<Code>,
    settings: Vec<Arc<Settings>>,
    of_library: bool,
) -> Arc<Module> {
    MODULES.insert(|handle| {
        let kernels = settings.into_iter().enumerate();
        let functions = kernels
            .map(|(index, settings)| function::insert(context, handle, &code, index, settings));
        Module {
            handle,
            context: context.clone(),
            functions: functions.collect(),
            code,
            of_library,
        }
    })
}

/// The module of a handle.
pub(crate) fn resolve(handle: CUmodule) -> Result<Arc<Module>> {
    failure::check_if_current()?;
    MODULES
        .get(handle.0)
        .or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// `cuModuleUnload`: waits for all work of the module's context, whether or not a kernel of the
/// module is in flight; until then the module is there.
pub(crate) fn unload(handle: CUmodule) -> Result {
    let module = resolve(handle)?;
    if module.of_library {
        return Err(CUresult::CUDA_ERROR_NOT_PERMITTED);
    }
    let waited = module.wait();
    match remove(&module) {
        true => waited,
        // Another thread did it meanwhile.
        false => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
    }
}

/// The module's handle and those of its functions mean nothing any more; launches in flight go on.
/// False when it was so already.
pub(crate) fn remove(module: &Module) -> bool {
    let Found::Live(module) = MODULES.remove(module.handle) else {
        return false;
    };
    let functions = module.functions.iter();
    functions.for_each(|function| function::remove(function));
    true
}

/// The context of the module with a variable that an address is in.
pub(crate) fn context_at(address: u64) -> Option<Arc<Context>> {
    let modules = MODULES.all();
    let found = modules.iter().find(|module| module.code.has(address));
    found.map(|module| module.context.clone())
}

/// The context ends: its modules do.
pub(crate) fn end_context(context: &Context) {
    for module in MODULES.all() {
        if module.context.id() == context.id() {
            remove(&module);
        }
    }
}

impl Module {
    /// Waits for all work of its context, as the device does before it takes code away.
    pub(super) fn wait(&self) -> Result {
        stream::synchronize_context(&self.context)
    }

    /// Its handle.
    pub fn handle(&self) -> CUmodule {
        CUmodule(self.handle)
    }

    /// What the information log gets.
    pub fn info(&self, verbose: bool) -> String {
        self.code.info(verbose)
    }

    /// Its functions, in source order.
    pub fn functions(&self) -> &[Arc<Function>] {
        &self.functions
    }

    /// The function of a name.
    pub fn function(&self, name: &CStr) -> Result<&Arc<Function>> {
        let mut functions = self.functions.iter();
        functions
            .find(|function| function.name() == name)
            .ok_or(CUresult::CUDA_ERROR_NOT_FOUND)
    }

    /// Address and size of the variable of a name.
    pub fn global(&self, name: &CStr) -> Result<(u64, u64)> {
        match self.code.global(name) {
            Some(found) => Ok(found),
            None if self.function(name).is_ok() => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            None => Err(CUresult::CUDA_ERROR_NOT_FOUND),
        }
    }

    /// Address and size of the managed variable of a name.
    pub fn managed(&self, name: &CStr) -> Result<(u64, u64)> {
        self.code
            .managed(name)
            .ok_or(CUresult::CUDA_ERROR_NOT_FOUND)
    }
}
