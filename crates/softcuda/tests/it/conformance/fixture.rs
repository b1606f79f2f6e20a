//! What cases start from: a device, a context, memory, streams, kernels. Preparation that fails
//! ends the case with the call that failed; nothing is given back, the child process ends soon.

use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::api::*;

/// The kernels of the suite.
pub const KERNELS: &str = include_str!("kernels.ptx");

/// A stream flag: no implicit ordering with the legacy stream.
pub const NON_BLOCKING: u32 = 1;
/// The legacy default stream, and the calling thread's own, by their handles.
pub const LEGACY: Handle = 1;
pub const PER_THREAD: Handle = 2;

/// A handle that is certainly none of the driver's: small, and no stream's special name.
pub const BOGUS: Handle = 0x10;
/// A device address that no allocation holds.
pub const WILD: u64 = 0x10;

/// The first device, of an initialized driver.
pub unsafe fn device() -> i32 {
    cuInit(0).must();
    let mut device = -1;
    cuDeviceGet(&mut device, 0).must();
    device
}

/// The primary context, current to this thread.
pub unsafe fn context() -> Handle {
    let mut context = 0;
    cuDevicePrimaryCtxRetain(&mut context, device()).must();
    cuCtxSetCurrent(context).must();
    context
}

/// Whether the primary context, where there is one, has no error that would answer the next case's
/// calls. On a thread of its own, to leave nothing current.
pub unsafe fn context_is_healthy() -> bool {
    let check = std::thread::spawn(|| {
        // SAFETY: calls that are right whatever state the driver is in.
        unsafe {
            let (mut flags, mut active, mut context) = (0, 0, 0);
            if cuDevicePrimaryCtxGetState(0, &mut flags, &mut active).code != 0 || active == 0 {
                return true;
            }
            cuDevicePrimaryCtxRetain(&mut context, 0).code == 0
                && cuCtxSetCurrent(context).code == 0
                && cuCtxSynchronize().code == 0
        }
    });
    check.join().unwrap_or(false)
}

/// A new context, current to this thread.
pub unsafe fn new_context() -> Handle {
    let mut context = 0;
    cuCtxCreate_v2(&mut context, 0, device()).must();
    context
}

pub unsafe fn memory(bytes: usize) -> u64 {
    let mut pointer = 0;
    cuMemAlloc_v2(&mut pointer, bytes).must();
    pointer
}

/// Fills words in the legacy stream, and waits for that: streams that do not wait for it may use
/// the memory then.
pub unsafe fn fill_words(at: u64, value: u32, count: usize) {
    cuMemsetD32_v2(at, value, count).must();
    cuStreamSynchronize(LEGACY).must();
}

pub unsafe fn pinned(bytes: usize) -> *mut c_void {
    let mut pointer = std::ptr::null_mut();
    cuMemAllocHost_v2(&mut pointer, bytes).must();
    pointer
}

pub unsafe fn managed(bytes: usize) -> u64 {
    let mut pointer = 0;
    cuMemAllocManaged(&mut pointer, bytes, 1).must();
    pointer
}

/// A stream that does not wait for the legacy one.
pub unsafe fn stream() -> Handle {
    let mut stream = 0;
    cuStreamCreate(&mut stream, NON_BLOCKING).must();
    stream
}

pub unsafe fn event() -> Handle {
    let mut event = 0;
    cuEventCreate(&mut event, 0).must();
    event
}

/// The suite's kernels, loaded into the current context.
pub unsafe fn module() -> Handle {
    module_of(KERNELS)
}

pub unsafe fn module_of(ptx: &str) -> Handle {
    let text = CString::new(ptx).expect("PTX has no zero byte");
    let mut module = 0;
    cuModuleLoadData(&mut module, text.as_ptr().cast()).must();
    module
}

pub unsafe fn library() -> Handle {
    let text = CString::new(KERNELS).expect("PTX has no zero byte");
    let mut library = 0;
    let none = std::ptr::null_mut;
    cuLibraryLoadData(
        &mut library,
        text.as_ptr().cast(),
        none(),
        std::ptr::null_mut(),
        0,
        none(),
        none().cast(),
        0,
    )
    .must();
    library
}

pub unsafe fn function_of(module: Handle, name: &CStr) -> Handle {
    let mut function = 0;
    cuModuleGetFunction(&mut function, module, name.as_ptr()).must();
    function
}

/// A kernel of the suite, in the current context.
pub unsafe fn function(name: &CStr) -> Handle {
    function_of(module(), name)
}

/// Launches with a one-dimensional grid and block.
pub unsafe fn launch(
    function: Handle,
    blocks: u32,
    threads: u32,
    stream: Handle,
    arguments: &mut [*mut c_void],
) -> Answer {
    let arguments = arguments.as_mut_ptr();
    cuLaunchKernel(
        function,
        blocks,
        1,
        1,
        threads,
        1,
        1,
        0,
        stream,
        arguments,
        std::ptr::null_mut(),
    )
}

/// One word of device memory, read after all work of the context.
pub unsafe fn word(pointer: u64) -> u32 {
    let mut value = 0u32;
    cuMemcpyDtoH_v2(void(&mut value), pointer, 4).must();
    value
}

/// The address of a value, as the driver takes it.
pub fn void<T>(value: &mut T) -> *mut c_void {
    (value as *mut T).cast()
}

/// The text a driver function gave back, quoted, or `null`.
pub unsafe fn text(pointer: *const std::ffi::c_char) -> String {
    if pointer.is_null() {
        return "null".to_string();
    }
    format!("{:?}", CStr::from_ptr(pointer).to_string_lossy())
}

/// Makes a call while a gate is closed, and opens it when the call has not returned for so long:
/// also gives whether the call returned only after that.
pub unsafe fn while_held(
    gate: Gate,
    patience: Duration,
    call: impl FnOnce() -> Answer,
) -> (Answer, bool) {
    let returned = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let opener = scope.spawn(|| {
            let begun = Instant::now();
            while begun.elapsed() < patience {
                if returned.load(Ordering::Acquire) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            let waited = !returned.load(Ordering::Acquire);
            gate.open();
            waited
        });
        let answer = call();
        returned.store(true, Ordering::Release);
        (answer, opener.join().unwrap_or(false))
    })
}

/// Work that holds up its stream until it is told to finish.
pub struct Gate(&'static AtomicBool);

impl Gate {
    /// Puts a host function on the stream that returns when the gate opens.
    pub unsafe fn close(stream: Handle) -> Gate {
        unsafe extern "C" fn wait(open: *mut c_void) {
            let open = &*open.cast::<AtomicBool>();
            while !open.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        let open: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        cuLaunchHostFunc(
            stream,
            Some(wait),
            std::ptr::from_ref(open).cast_mut().cast(),
        )
        .must();
        Gate(open)
    }

    pub fn open(&self) {
        self.0.store(true, Ordering::Release);
    }
}
