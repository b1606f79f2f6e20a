//! `cuFunc*` and the deprecated `cuParamSet*`.

use super::types::{CUfunction, CUmodule};
use super::{In, Out, export};
use crate::driver::{CUresult, function};

/// `CU_FUNCTION_LOADING_STATE_LOADED`.
const LOADED: u32 = 1;
/// The most bytes of parameters that the deprecated calls take.
const MOST_PARAMETERS: usize = 4096;

/// Some functions take a null handle for a wrong argument rather than a wrong handle.
fn given(handle: CUfunction) -> crate::driver::Result {
    match handle.is_null() {
        false => Ok(()),
        true => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// Puts bytes at an offset of the parameters of the next deprecated launch.
fn set_parameter(handle: CUfunction, offset: i32, bytes: &[u8]) -> crate::driver::Result {
    let function = function::resolve(handle)?;
    let start = usize::try_from(offset).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let end = start + bytes.len();
    if end > MOST_PARAMETERS {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let mut old = function.old.lock();
    if old.params.len() < end {
        old.params.resize(end, 0);
    }
    old.params[start..end].copy_from_slice(bytes);
    Ok(())
}

export! {
    /// An attribute of a function.
    fn cuFuncGetAttribute(value: Out<i32>, attribute: u32, handle: CUfunction) {
        value.some()?;
        let function = function::resolve(handle)?;
        value.set(function.settings().attribute(function.kernel(), attribute)?)
    }

    /// Sets an attribute of a function.
    fn cuFuncSetAttribute(handle: CUfunction, attribute: u32, value: i32) {
        let function = function::resolve(handle)?;
        function.settings().set_attribute(function.kernel(), attribute, value)
    }

    /// Sets how a function would like cache and shared memory divided.
    fn cuFuncSetCacheConfig(handle: CUfunction, config: u32) {
        function::resolve(handle)?.settings().set_cache_config(config)
    }

    /// Sets a function's shared memory bank size.
    fn cuFuncSetSharedMemConfig(handle: CUfunction, config: u32) {
        function::resolve(handle)?.settings().set_shared_config(config)
    }

    /// The module that a function belongs to.
    fn cuFuncGetModule(module: Out<CUmodule>, handle: CUfunction) {
        module.some()?;
        given(handle)?;
        module.set(CUmodule(function::resolve(handle)?.module()))
    }

    /// A function's name, which lives as long as its module.
    fn cuFuncGetName(name: Out<usize>, handle: CUfunction) {
        name.some()?;
        given(handle)?;
        name.set(function::resolve(handle)?.name().as_ptr() as usize)
    }

    /// Offset and size of a function's parameter.
    fn cuFuncGetParamInfo(handle: CUfunction, index: usize, offset: Out<usize>, size: Out<usize>) {
        offset.some()?;
        given(handle)?;
        let (at, bytes) = function::resolve(handle)?.param(index)?;
        offset.set(at)?;
        size.set_if_wanted(bytes);
        Ok(())
    }

    /// Whether a function is loaded.
    fn cuFuncIsLoaded(state: Out<u32>, handle: CUfunction) {
        state.some()?;
        function::resolve(handle)?;
        state.set(LOADED)
    }

    /// Compiles a function now.
    fn cuFuncLoad(handle: CUfunction) {
        let function = function::resolve(handle)?;
        function.code().compile(function.index(), None).map(drop)
    }

    /// Sets the block's shape for the next deprecated launch.
    fn cuFuncSetBlockShape(handle: CUfunction, x: i32, y: i32, z: i32) {
        if x <= 0 || y <= 0 || z <= 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        function::resolve(handle)?.old.lock().block = [x as u32, y as u32, z as u32];
        Ok(())
    }

    /// Sets the dynamic shared memory of the next deprecated launch.
    fn cuFuncSetSharedSize(handle: CUfunction, bytes: u32) {
        function::resolve(handle)?.old.lock().shared = bytes;
        Ok(())
    }

    /// Sets the size of the parameters of the next deprecated launch.
    fn cuParamSetSize(handle: CUfunction, bytes: u32) {
        if bytes as usize > MOST_PARAMETERS {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        function::resolve(handle)?.old.lock().params.resize(bytes as usize, 0);
        Ok(())
    }

    /// Sets an integer parameter of the next deprecated launch.
    fn cuParamSeti(handle: CUfunction, offset: i32, value: u32) { set_parameter(handle, offset, &value.to_ne_bytes()) }

    /// Sets a float parameter of the next deprecated launch.
    fn cuParamSetf(handle: CUfunction, offset: i32, value: f32) { set_parameter(handle, offset, &value.to_ne_bytes()) }

    /// Sets some bytes of the parameters of the next deprecated launch.
    fn cuParamSetv(handle: CUfunction, offset: i32, data: In<u8>, bytes: u32) {
        if bytes as usize > MOST_PARAMETERS {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        set_parameter(handle, offset, data.bytes(bytes as usize)?)
    }
}
