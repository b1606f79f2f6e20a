//! Driver calls on modules.

use std::ffi::CStr;
use std::ptr;

use cudarc::driver::sys::{CUfunction, CUmodule};

use super::{ask, call};
use crate::Result;

/// Loads a module from PTX into the current context. It is unloaded with that.
pub(crate) fn load(ptx: &CStr) -> Result<CUmodule> {
    let ptx = ptx.as_ptr().cast();
    ask(ptr::null_mut(), |module| {
        call!(cuModuleLoadData(module, ptx))
    })
}

pub(crate) fn function(module: CUmodule, name: &CStr) -> Result<CUfunction> {
    let name = name.as_ptr();
    ask(ptr::null_mut(), |function| {
        call!(cuModuleGetFunction(function, module, name))
    })
}
