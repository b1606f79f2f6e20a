//! Runs PTX in unit tests: any family's tests load a source and run a kernel of it as the driver
//! would.
//!
//! ```ignore
//! let mut out = [0u32; 4];
//! harness::run(PTX, "kernel", [1, 1, 1], [4, 1, 1], &mut [harness::buffer(&mut out)], &[&7u32.to_le_bytes()])?;
//! ```
//!
//! The kernel's parameters are the device addresses of the buffers, each a `.u64`, and then the
//! scalars, each as its bytes. After the launch, whatever its end, the buffers hold what device
//! memory holds.

use std::sync::Arc;

use super::module::{Form, Kernel, LoadError, LoadOptions, Module};
use crate::grid;
use crate::grid::launch::{Fault, Launch};
use crate::memory::{self, Device, Kind};

/// Local memory of a thread and its native stack, unless a test says otherwise.
const LOCAL: u32 = 16 << 10;
const STACK: u32 = 256 << 10;

/// The bytes of a typed buffer. For types of plain numbers alone.
pub(crate) fn buffer<T: Copy>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: numbers have no padding and any bytes are a number; the slice covers exactly the
    // values.
    unsafe {
        std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), std::mem::size_of_val(values))
    }
}

/// Loads a module, and panics with its log when it is refused.
pub(crate) fn load(source: &str) -> Arc<Module> {
    Module::load(source.as_bytes(), &LoadOptions::default())
        .unwrap_or_else(|error| panic!("{}", error.log))
}

/// Loads a module whose kernels wait in this form.
pub(crate) fn load_as(source: &str, form: Form) -> Arc<Module> {
    let options = LoadOptions {
        form,
        ..LoadOptions::default()
    };
    Module::load(source.as_bytes(), &options).unwrap_or_else(|error| panic!("{}", error.log))
}

/// The refusal of a module that must not load.
pub(crate) fn refusal(source: &str) -> LoadError {
    Module::load(source.as_bytes(), &LoadOptions::default())
        .expect_err("the module must be refused")
}

/// What loading says of a module that is wrong, or has what is not run.
pub(crate) fn complaint(source: &str) -> String {
    match Module::load(source.as_bytes(), &LoadOptions::default()) {
        Ok(module) => module.warnings.clone(),
        Err(error) => error.log,
    }
}

/// A whole module around some text: version, target and address size.
pub(crate) fn module(text: &str) -> String {
    format!(".version 8.8\n.target sm_90a\n.address_size 64\n{text}")
}

/// Loads a source and runs a kernel of it.
pub(crate) fn run(
    source: &str,
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    buffers: &mut [&mut [u8]],
    scalars: &[&[u8]],
) -> Result<(), Fault> {
    run_in(&load(source), kernel, grid, block, 0, buffers, scalars)
}

/// Runs a kernel of a loaded module, with this much dynamic shared memory.
pub(crate) fn run_in(
    module: &Arc<Module>,
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    buffers: &mut [&mut [u8]],
    scalars: &[&[u8]],
) -> Result<(), Fault> {
    let kernel = module
        .kernel(kernel)
        .unwrap_or_else(|| panic!("no kernel `{kernel}`"));
    let allocations: Vec<u64> = buffers
        .iter()
        .map(|buffer| {
            let allocation =
                memory::alloc(memory::Device::FIRST, buffer.len() as u64, 1, Kind::Device)
                    .expect("memory");
            // SAFETY: the allocation has as many bytes, and nobody else knows it.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    buffer.as_ptr(),
                    allocation.base as *mut u8,
                    buffer.len(),
                );
            }
            allocation.base
        })
        .collect();
    let addresses: Vec<[u8; 8]> = allocations.iter().map(|base| base.to_le_bytes()).collect();
    let values: Vec<&[u8]> = addresses
        .iter()
        .map(|address| &address[..])
        .chain(scalars.iter().copied())
        .collect();
    let result = grid::run(&launch(
        module,
        kernel,
        grid,
        block,
        dynamic_shared,
        &values,
    ));
    for (buffer, base) in buffers.iter_mut().zip(allocations) {
        // SAFETY: as above, and the launch is over.
        unsafe {
            std::ptr::copy_nonoverlapping(base as *const u8, buffer.as_mut_ptr(), buffer.len());
        }
        memory::free(base);
    }
    result
}

/// A launch of a kernel with these values as its parameters.
pub(crate) fn launch(
    module: &Arc<Module>,
    kernel: &Kernel,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    values: &[&[u8]],
) -> Launch {
    assert_eq!(
        values.len(),
        kernel.params.len(),
        "one value for each parameter"
    );
    let mut params = vec![0; kernel.params_size as usize];
    for (value, field) in values.iter().zip(&kernel.params) {
        assert_eq!(
            value.len() as u64,
            field.size,
            "a value has the parameter's size"
        );
        let at = field.offset as usize;
        params[at..at + value.len()].copy_from_slice(value);
    }
    Launch {
        code: kernel
            .compile_for(block)
            .unwrap_or_else(|error| panic!("{error}")),
        owner: module.clone(),
        device: Device::FIRST,
        kernel: Arc::clone(&kernel.name),
        grid,
        block,
        cluster: [1, 1, 1],
        static_shared: kernel.attributes.shared_offset,
        dynamic_shared,
        local: LOCAL.max(kernel.attributes.local),
        stack: STACK,
        cooperative: false,
        params: params.into(),
    }
}
