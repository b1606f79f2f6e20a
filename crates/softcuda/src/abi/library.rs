//! `cuLibrary*`, `cuKernel*`.

use std::ffi::c_char;
use std::time::Instant;

use super::module::{text_of, text_of_file, wanted_name};
use super::types::{CUdevice, CUdeviceptr, CUfunction, CUkernel, CUlibrary, CUmodule};
use super::{In, InOut, Out, export};
use crate::driver::jit_options::Options;
use crate::driver::{CUresult, Result, capture, context, device, library};

/// Past the last of `CUlibraryOption`.
const LIBRARY_OPTIONS: u32 = 2;

/// A library's own options tell how the caller keeps the image; we copy what we need of it.
fn check_options(count: u32, names: In<u32>, values: InOut<usize>) -> Result {
    if count == 0 {
        return Ok(());
    }
    values.some()?;
    match names
        .list(count as usize)?
        .iter()
        .all(|&name| name < LIBRARY_OPTIONS)
    {
        true => Ok(()),
        false => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

fn load(handle: Out<CUlibrary>, text: Result<Vec<u8>>, options: &Options) -> Result {
    let start = Instant::now();
    let library = library::load(text);
    match library.code() {
        Ok(code) => options.log_success(|verbose| code.info(verbose), start.elapsed()),
        Err(refused) => {
            options.log_error(&refused.log);
            tracing::info!(error = ?refused.error, log = refused.log, "a library does not compile");
        }
    }
    handle.set(library.handle())
}

export! {
    /// Loads PTX or a fat binary for all contexts.
    fn cuLibraryLoadData(
        handle: Out<CUlibrary>, image: In<u8>, jit_names: In<u32>, jit_values: InOut<usize>, jit_count: u32,
        names: In<u32>, values: InOut<usize>, count: u32,
    ) {
        handle.some()?;
        let options = Options::read(jit_count, jit_names, jit_values)?;
        check_options(count, names, values)?;
        image.some()?;
        load(handle, text_of(image), &options)
    }

    /// Loads a file of PTX or a fat binary for all contexts.
    fn cuLibraryLoadFromFile(
        handle: Out<CUlibrary>, path: In<c_char>, jit_names: In<u32>, jit_values: InOut<usize>, jit_count: u32,
        names: In<u32>, values: InOut<usize>, count: u32,
    ) {
        handle.some()?;
        let options = Options::read(jit_count, jit_names, jit_values)?;
        check_options(count, names, values)?;
        let text = text_of_file(path);
        if let Err(error @ (CUresult::CUDA_ERROR_FILE_NOT_FOUND | CUresult::CUDA_ERROR_INVALID_VALUE)) = text {
            return Err(error);
        }
        load(handle, text, &options)
    }

    /// Unloads a library, once the contexts in which a kernel of it was used have done their work.
    fn cuLibraryUnload(handle: CUlibrary) {
        capture::permit()?;
        library::unload(handle)
    }

    /// The kernel of a name.
    fn cuLibraryGetKernel(kernel: Out<CUkernel>, handle: CUlibrary, name: In<c_char>) {
        kernel.some()?;
        let name = name.text()?;
        kernel.set(library::resolve_for_kernel(handle)?.kernel(name)?.handle())
    }

    /// How many kernels a library has.
    fn cuLibraryGetKernelCount(count: Out<u32>, handle: CUlibrary) {
        count.some()?;
        count.set(library::resolve(handle)?.kernels()?.len() as u32)
    }

    /// A library's kernels, up to a number.
    fn cuLibraryEnumerateKernels(kernels: Out<CUkernel>, count: u32, handle: CUlibrary) {
        kernels.some()?;
        let library = library::resolve(handle)?;
        for (index, kernel) in library.kernels()?.iter().take(count as usize).enumerate() {
            kernels.at(index).set(kernel.handle())?;
        }
        Ok(())
    }

    /// The library's module in the current context.
    fn cuLibraryGetModule(module: Out<CUmodule>, handle: CUlibrary) {
        module.some()?;
        let library = library::resolve(handle)?;
        module.set(library.module(&context::current()?)?.handle())
    }

    /// Address and size of the variable of a name, in the current context.
    fn cuLibraryGetGlobal(address: Out<CUdeviceptr>, size: Out<usize>, handle: CUlibrary, name: In<c_char>) {
        let name = wanted_name(address.is_null() && size.is_null(), name)?;
        let library = library::resolve(handle)?;
        let (at, bytes) = library.module(&context::current()?)?.global(name)?;
        address.set_if_wanted(at);
        size.set_if_wanted(bytes as usize);
        Ok(())
    }

    /// Address and size of the managed variable of a name.
    fn cuLibraryGetManaged(address: Out<CUdeviceptr>, size: Out<usize>, handle: CUlibrary, name: In<c_char>) {
        let name = wanted_name(address.is_null() && size.is_null(), name)?;
        let library = library::resolve(handle)?;
        let (at, bytes) = library.module(&context::current()?)?.managed(name)?;
        address.set_if_wanted(at);
        size.set_if_wanted(bytes as usize);
        Ok(())
    }

    /// A function with unified linkage; there are none.
    fn cuLibraryGetUnifiedFunction(address: Out<usize>, handle: CUlibrary, name: In<c_char>) {
        address.some()?;
        name.text()?;
        library::resolve(handle)?;
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// The kernel's function in the current context.
    fn cuKernelGetFunction(function: Out<CUfunction>, handle: CUkernel) {
        function.some()?;
        let kernel = library::kernel(handle)?;
        function.set(kernel.function(&context::current()?)?.handle())
    }

    /// The library that a kernel belongs to.
    fn cuKernelGetLibrary(library: Out<CUlibrary>, handle: CUkernel) {
        library.some()?;
        library.set(library::kernel(handle)?.library())
    }

    /// A kernel's name, which lives as long as its library.
    fn cuKernelGetName(name: Out<usize>, handle: CUkernel) {
        name.some()?;
        if handle.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        name.set(library::kernel(handle)?.name().as_ptr() as usize)
    }

    /// Offset and size of a kernel's parameter.
    fn cuKernelGetParamInfo(handle: CUkernel, index: usize, offset: Out<usize>, size: Out<usize>) {
        offset.some()?;
        if handle.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        context::current()?;
        let (at, bytes) = library::kernel(handle)?.param(index)?;
        offset.set(at)?;
        size.set_if_wanted(bytes);
        Ok(())
    }

    /// An attribute of a kernel on a device.
    fn cuKernelGetAttribute(value: Out<i32>, attribute: u32, handle: CUkernel, device: CUdevice) {
        value.some()?;
        let kernel = library::kernel(handle)?;
        let device = device::check(device)?;
        value.set(kernel.settings(device).attribute(kernel.described(), attribute)?)
    }

    /// Sets an attribute of a kernel on a device.
    fn cuKernelSetAttribute(attribute: u32, value: i32, handle: CUkernel, device: CUdevice) {
        let kernel = library::kernel(handle)?;
        let device = device::check(device)?;
        kernel.settings(device).set_attribute(kernel.described(), attribute, value)
    }

    /// Sets how a kernel would like cache and shared memory divided.
    fn cuKernelSetCacheConfig(handle: CUkernel, config: u32, device: CUdevice) {
        let kernel = library::kernel(handle)?;
        let device = device::check(device)?;
        kernel.settings(device).set_cache_config(config)
    }
}
