//! Driver calls on modules.

use std::ffi::CStr;
use std::ptr;

use cudarc::driver::sys::{CUfunction, CUmodule};

use super::call;
use crate::Result;

/// Loads a module from PTX into the current context. It is unloaded with that.
pub(crate) fn load(ptx: &CStr) -> Result<CUmodule> {
    let mut module = ptr::null_mut();
    call!(cuModuleLoadData(&mut module, ptx.as_ptr().cast()))?;
    Ok(module)
}

pub(crate) fn function(module: CUmodule, name: &CStr) -> Result<CUfunction> {
    let mut function = ptr::null_mut();
    call!(cuModuleGetFunction(&mut function, module, name.as_ptr()))?;
    Ok(function)
}
