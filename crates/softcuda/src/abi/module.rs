//! `cuModule*`.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

use super::types::{CUdeviceptr, CUfunction, CUmodule};
use super::{In, InOut, Out, export};
use crate::driver::jit_options::Options;
use crate::driver::{CUresult, Result, capture, code, context, image, module};

/// `CU_MODULE_LAZY_LOADING`.
const LAZY: u32 = 2;

/// The PTX of an image in memory.
pub(super) fn text_of(image: In<u8>) -> Result<Vec<u8>> {
    image.some()?;
    // SAFETY: the caller passes an image that is complete by its own account.
    unsafe { image::read(image.address() as *const u8, code::capability()) }
}

/// The PTX of a file.
pub(super) fn text_of_file(path: In<c_char>) -> Result<Vec<u8>> {
    let path = OsStr::from_bytes(path.text()?.to_bytes());
    let data = std::fs::read(path).map_err(|_| CUresult::CUDA_ERROR_FILE_NOT_FOUND)?;
    image::read_sized(&data, code::capability())
}

fn load(handle: Out<CUmodule>, text: &[u8], options: &Options) -> Result {
    let context = context::current()?;
    let start = Instant::now();
    match module::load(&context, text) {
        Ok(module) => {
            options.log_success(|verbose| module.info(verbose), start.elapsed());
            handle.set(module.handle())
        }
        Err(refused) => {
            options.log_error(&refused.log);
            tracing::info!(error = ?refused.error, log = refused.log, "a module was refused");
            Err(refused.error)
        }
    }
}

/// The name of a variable whose address or size is asked for.
pub(super) fn wanted_name<'a>(nothing_asked: bool, name: In<c_char>) -> Result<&'a CStr> {
    let name = name.text()?;
    match nothing_asked || name.is_empty() {
        false => Ok(name),
        true => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

fn global(
    address: Out<CUdeviceptr>,
    size: Out<usize>,
    handle: CUmodule,
    name: In<c_char>,
) -> Result {
    let name = wanted_name(address.is_null() && size.is_null(), name)?;
    let (at, bytes) = module::resolve(handle)?.global(name)?;
    address.set_if_wanted(at);
    size.set_if_wanted(bytes as usize);
    Ok(())
}

export! {
    /// Loads a file of PTX or a fat binary.
    fn cuModuleLoad(handle: Out<CUmodule>, path: In<c_char>) {
        handle.some()?;
        context::current()?;
        load(handle, &text_of_file(path)?, &Options::default())
    }

    /// Loads PTX or a fat binary.
    fn cuModuleLoadData(handle: Out<CUmodule>, image: In<u8>) {
        handle.some()?;
        context::current()?;
        load(handle, &text_of(image)?, &Options::default())
    }

    /// Loads PTX or a fat binary, with options and logs.
    fn cuModuleLoadDataEx(
        handle: Out<CUmodule>, image: In<u8>, count: u32, names: In<u32>, values: InOut<usize>,
    ) {
        handle.some()?;
        context::current()?;
        let options = Options::read(count, names, values)?;
        load(handle, &text_of(image)?, &options)
    }

    /// Loads a fat binary.
    fn cuModuleLoadFatBinary(handle: Out<CUmodule>, image: In<u8>) {
        handle.some()?;
        context::current()?;
        load(handle, &text_of(image)?, &Options::default())
    }

    /// Unloads a module, when the work of its context is done.
    fn cuModuleUnload(handle: CUmodule) {
        capture::permit()?;
        context::usable()?;
        module::unload(handle)
    }

    /// Whether functions are compiled when first used: they are.
    fn cuModuleGetLoadingMode(mode: Out<u32>) { mode.set(LAZY) }

    /// The function of a name.
    fn cuModuleGetFunction(function: Out<CUfunction>, handle: CUmodule, name: In<c_char>) {
        function.some()?;
        let name = wanted_name(false, name)?;
        function.set(module::resolve(handle)?.function(name)?.handle())
    }

    /// How many functions a module has.
    fn cuModuleGetFunctionCount(count: Out<u32>, handle: CUmodule) {
        count.some()?;
        count.set(module::resolve(handle)?.functions().len() as u32)
    }

    /// A module's functions, up to a number.
    fn cuModuleEnumerateFunctions(functions: Out<CUfunction>, count: u32, handle: CUmodule) {
        functions.some()?;
        let module = module::resolve(handle)?;
        for (index, function) in module.functions().iter().take(count as usize).enumerate() {
            functions.at(index).set(function.handle())?;
        }
        Ok(())
    }

    /// Address and size of the variable of a name; sizes are 32 bits here.
    fn cuModuleGetGlobal(address: Out<u32>, size: Out<u32>, handle: CUmodule, name: In<c_char>) {
        let name = name.text()?;
        let (at, bytes) = module::resolve(handle)?.global(name)?;
        let narrow = |value: u64| u32::try_from(value).map_err(|_| CUresult::CUDA_ERROR_NOT_SUPPORTED);
        address.set_if_wanted(narrow(at)?);
        size.set_if_wanted(narrow(bytes)?);
        Ok(())
    }

    /// Address and size of the variable of a name.
    fn cuModuleGetGlobal_v2(address: Out<CUdeviceptr>, size: Out<usize>, handle: CUmodule, name: In<c_char>) {
        global(address, size, handle, name)
    }
}
