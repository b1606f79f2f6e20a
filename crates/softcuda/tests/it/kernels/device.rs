//! Runs a case on whatever driver there is, through cudarc.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock};

use cudarc::driver::{CudaContext, result, sys};

use super::case::{Arg, Case, Launch, Ptx, Shape, Tensor};

/// Deep enough for the recursive kernels.
const STACK: usize = 16 << 10;

/// The process's context, current on the calling thread.
pub fn context() -> Arc<CudaContext> {
    static CONTEXT: OnceLock<Arc<CudaContext>> = OnceLock::new();
    crate::driver::driver();
    let context = CONTEXT.get_or_init(|| {
        let context = CudaContext::new(0).expect("the device opens");
        context
            .bind_to_thread()
            .expect("its context becomes current");
        result::ctx::set_limit(sys::CUlimit::CU_LIMIT_STACK_SIZE, STACK)
            .expect("the stack limit can be set");
        context
    });
    context
        .bind_to_thread()
        .expect("its context becomes current");
    context.clone()
}

/// The module, loaded once a process.
pub fn module(ptx: Ptx) -> sys::CUmodule {
    static MODULES: Mutex<Option<HashMap<&str, usize>>> = Mutex::new(None);
    let mut modules = MODULES.lock().unwrap_or_else(|broken| broken.into_inner());
    let modules = modules.get_or_insert_default();
    if let Some(&module) = modules.get(ptx.name) {
        return module as sys::CUmodule;
    }
    let image = CString::new(ptx.text).expect("PTX has no zero byte");
    let mut log = vec![0u8; 16 << 10];
    let mut options = [
        sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
    let mut module = null_mut();
    // SAFETY: the image ends in zero, the options and their values are two, and the log outlives
    // the call.
    let status = unsafe {
        sys::cuModuleLoadDataEx(
            &mut module,
            image.as_ptr().cast(),
            options.len() as u32,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
    let log = String::from_utf8_lossy(&log[..end]);
    assert_eq!(
        status,
        sys::CUresult::CUDA_SUCCESS,
        "kernels/ptx/{}.ptx does not load:\n{log}",
        ptx.name
    );
    modules.insert(ptx.name, module as usize);
    module
}

/// Runs the case's launches in order and gives every buffer's bytes.
pub fn run(case: &Case) -> Vec<Vec<u8>> {
    let _context = context();
    let module = module(case.ptx);
    let buffers: Vec<_> = case
        .buffers
        .iter()
        .map(|buffer| Allocation::from(&buffer.initial))
        .collect();
    for launch in &case.launches {
        start(module, launch, &buffers).unwrap_or_else(|error| {
            panic!("{}: launch of {}: {error:?}", case.name, launch.kernel)
        });
    }
    result::ctx::synchronize().unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
    buffers.iter().map(Allocation::read).collect()
}

/// Device memory of a case, freed when it goes.
pub struct Allocation {
    pointer: sys::CUdeviceptr,
    bytes: usize,
}

impl Allocation {
    pub fn from(bytes: &[u8]) -> Self {
        // SAFETY: the allocation is as long as what is copied to it.
        let pointer = unsafe {
            let pointer = result::malloc_sync(bytes.len()).expect("device memory");
            result::memcpy_htod_sync(pointer, bytes).expect("copy to the device");
            pointer
        };
        Allocation {
            pointer,
            bytes: bytes.len(),
        }
    }

    pub fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        // SAFETY: the allocation is as long as what is copied from it.
        unsafe { result::memcpy_dtoh_sync(&mut bytes, self.pointer) }
            .expect("copy from the device");
        bytes
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: the pointer came from an allocation and is freed here alone. After a failed
        // launch the context answers everything with its error, which the test has told already.
        let _ = unsafe { result::free_sync(self.pointer) };
    }
}

/// `CUtensorMap`, where the driver wants it.
#[repr(align(64))]
struct Map([u8; 128]);

type EncodeTiled = unsafe extern "C" fn(
    *mut Map,
    u32,
    u32,
    u64,
    *const u64,
    *const u64,
    *const u32,
    *const u32,
    u32,
    u32,
    u32,
    u32,
) -> u32;
type EncodeColumns = unsafe extern "C" fn(
    *mut Map,
    u32,
    u32,
    u64,
    *const u64,
    *const u64,
    *const i32,
    *const i32,
    u32,
    u32,
    *const u32,
    u32,
    u32,
    u32,
    u32,
) -> u32;

/// The map of a tensor at an address.
fn map(tensor: &Tensor, address: u64) -> [u8; 128] {
    let mut map = Map([0; 128]);
    let rank = tensor.dims.len() as u32;
    let function = |name| {
        let address = crate::driver::symbol(name);
        assert_ne!(address, 0, "the driver has {name}");
        address
    };
    let (dims, strides, steps) = (&tensor.dims, &tensor.strides, &tensor.steps);
    let status = match &tensor.shape {
        Shape::Tile(size) => {
            // SAFETY: the function has this type in `cuda.h`.
            let encode = unsafe {
                std::mem::transmute::<usize, EncodeTiled>(function("cuTensorMapEncodeTiled"))
            };
            // SAFETY: each list is as long as the tensor's rank says.
            unsafe {
                encode(
                    &mut map,
                    tensor.data,
                    rank,
                    address,
                    dims.as_ptr(),
                    strides.as_ptr(),
                    size.as_ptr(),
                    steps.as_ptr(),
                    tensor.interleave,
                    tensor.swizzle,
                    0,
                    tensor.fill,
                )
            }
        }
        Shape::Columns {
            lower,
            upper,
            channels,
            pixels,
        } => {
            // SAFETY: the function has this type in `cuda.h`.
            let encode = unsafe {
                std::mem::transmute::<usize, EncodeColumns>(function("cuTensorMapEncodeIm2col"))
            };
            // SAFETY: each list is as long as the tensor's rank says.
            unsafe {
                encode(
                    &mut map,
                    tensor.data,
                    rank,
                    address,
                    dims.as_ptr(),
                    strides.as_ptr(),
                    lower.as_ptr(),
                    upper.as_ptr(),
                    *channels,
                    *pixels,
                    steps.as_ptr(),
                    tensor.interleave,
                    tensor.swizzle,
                    0,
                    tensor.fill,
                )
            }
        }
    };
    assert_eq!(status, 0, "the driver makes the map");
    map.0
}

pub fn start(
    module: sys::CUmodule,
    launch: &Launch,
    buffers: &[Allocation],
) -> Result<(), cudarc::driver::DriverError> {
    let name = CString::new(launch.kernel).expect("a kernel's name has no zero byte");
    // SAFETY: the module is loaded and never unloaded.
    let function = unsafe { result::module::get_function(module, name) }?;
    let mut values: Vec<Vec<u8>> = launch
        .args
        .iter()
        .map(|arg| match arg {
            Arg::Buffer(buffer) => buffers[buffer.0].pointer.to_le_bytes().to_vec(),
            Arg::Value(bytes) => bytes.clone(),
            Arg::Map(tensor) => map(tensor, buffers[tensor.buffer.0].pointer).to_vec(),
        })
        .collect();
    let mut pointers: Vec<*mut c_void> = values
        .iter_mut()
        .map(|value| value.as_mut_ptr().cast())
        .collect();
    if launch.shared > 48 << 10 {
        // More than every device has is allowed on request.
        let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is the module's, which stays loaded.
        unsafe { result::function::set_function_attribute(function, most, launch.shared as i32)? };
    }
    // SAFETY: the case gives the kernel's own parameters, each as long as the kernel takes it, and
    // buffers as long as the kernel reaches.
    unsafe {
        if launch.cooperative {
            result::launch_cooperative_kernel(
                function,
                launch.grid,
                launch.block,
                launch.shared,
                null_mut(),
                &mut pointers,
            )
        } else {
            result::launch_kernel(
                function,
                launch.grid,
                launch.block,
                launch.shared,
                null_mut(),
                &mut pointers,
            )
        }
    }
}
