//! Driver calls on modules.

use std::ffi::{CStr, c_void};
use std::ptr;

use cudarc::driver::sys::{CUfunction, CUjit_option, CUmodule};

use super::{ask, call, calls};
use crate::{Error, Result};

calls! {
    unload(module: CUmodule): cuModuleUnload;
}

/// The most bytes of its log that the driver gives.
const LOG: usize = 8 << 10;

/// Loads a module from PTX into the current context. It is unloaded with that.
///
/// # Errors
///
/// [`Error::PtxRefused`] when the driver's compiler says why.
pub(crate) fn load(ptx: &CStr) -> Result<CUmodule> {
    let ptx = ptx.as_ptr().cast();
    let mut log = vec![0u8; LOG];
    let mut options = [
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    // The size is passed as if it were a pointer.
    let mut settings: [*mut c_void; 2] =
        [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG)];
    let (options, settings) = (options.as_mut_ptr(), settings.as_mut_ptr());
    let loaded = ask(ptr::null_mut(), |module| {
        call!(cuModuleLoadDataEx(module, ptx, 2, options, settings))
    });
    loaded.map_err(|error| {
        let end = log.iter().position(|&byte| byte == 0);
        let log = String::from_utf8_lossy(&log[..end.unwrap_or(LOG)]);
        match (error.code(), log.trim_end()) {
            (Some(code), log) if !log.is_empty() => Error::PtxRefused {
                code,
                log: log.into(),
            },
            _ => error,
        }
    })
}

pub(crate) fn function(module: CUmodule, name: &CStr) -> Result<CUfunction> {
    let name = name.as_ptr();
    ask(ptr::null_mut(), |function| {
        call!(cuModuleGetFunction(function, module, name))
    })
}

/// The module of a function.
pub(crate) fn of_function(function: CUfunction) -> Result<CUmodule> {
    ask(ptr::null_mut(), |module| {
        call!(cuFuncGetModule(module, function))
    })
}

/// The kernels of a module.
pub(crate) fn functions(module: CUmodule) -> Result<Vec<CUfunction>> {
    let count = ask(0, |count| call!(cuModuleGetFunctionCount(count, module)))?;
    let mut functions = vec![ptr::null_mut(); count as usize];
    if count > 0 {
        let all = functions.as_mut_ptr();
        call!(cuModuleEnumerateFunctions(all, count, module))?;
    }
    Ok(functions)
}
