//! The one place that calls the driver.
//!
//! A function here is a driver function: its arguments in Rust's words, its answer checked, its name in the error. It holds nothing
//! and knows nothing of ownership; the layers above uphold what each asks of handles and pointers.
//!
//! cudarc panics when it looks up a function that the installed driver lacks, so each call site asks once whether it is there, and an
//! old driver is [`Error::Unsupported`].

pub(crate) mod begun;
pub(crate) mod capture;
pub(crate) mod choice;
pub(crate) mod event;
pub(crate) mod exec;
pub(crate) mod graph;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod node;
pub(crate) mod per_context;
pub(crate) mod run;
pub(crate) mod stream;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, result};

pub use choice::Driver;
pub(crate) use choice::choose;

use crate::error::is_capture_code;
use crate::{Error, Result};

/// Calls `sys::$function` with the arguments and checks what it answers.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        static FOUND: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        if !FOUND.load(std::sync::atomic::Ordering::Relaxed) {
            $crate::driver::find(&FOUND, stringify!($function))?;
        }
        $crate::driver::check(stringify!($function), || {
            // SAFETY: the function exists in this driver (just looked up). That the handles are alive and the pointers point at
            // what the driver reads and writes is what the caller, a function of this layer, states about its own arguments.
            unsafe { cudarc::driver::sys::$function($($argument),*) }
        })
    }};
}
pub(crate) use call;

/// Makes one call, unless a test asked for it to fail.
#[inline(always)]
pub(crate) fn check(name: &'static str, call: impl FnOnce() -> CUresult) -> Result<()> {
    if INJECTING.load(Ordering::Relaxed) && injected() {
        return Err(Error::Call {
            call: name,
            code: CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        });
    }
    match call() {
        CUresult::CUDA_SUCCESS => Ok(()),
        status => Err(failed(name, status)),
    }
}

#[cold]
fn failed(call: &'static str, status: CUresult) -> Error {
    if is_capture_code(status) {
        OFFENCE.with(|offence| {
            if offence.get().is_none() {
                offence.set(Some((call, status)));
            }
        });
    }
    Error::Call { call, code: status }
}

/// The first call of this thread that failed because of a capture, since it was last asked for.
pub(crate) fn take_offence() -> Option<(&'static str, CUresult)> {
    OFFENCE.with(Cell::take)
}

/// Whether the driver has function `name`; notes it in `found`.
#[cold]
pub(crate) fn find(found: &AtomicBool, name: &'static str) -> Result<()> {
    choose()?;
    let symbol = symbol(name);
    // SAFETY: `choose` has said that there is a driver, and the symbol's address alone is taken.
    let there = unsafe { sys::culib().get::<*const ()>(symbol.as_bytes()) }.is_ok();
    if !there {
        return Err(Error::Unsupported {
            what: name,
            needs: "a driver that has this function".into(),
            have: version(),
        });
    }
    found.store(true, Ordering::Relaxed);
    Ok(())
}

/// The name that the dynamic linker knows a function by; cudarc uses the same.
fn symbol(name: &str) -> String {
    format!("{name}\0")
}

/// The driver's version, in words.
fn version() -> String {
    match version_number() {
        Ok(version) => format!("a driver for CUDA {}", in_words(version)),
        Err(error) => format!("a driver whose version is unknown ({error})"),
    }
}

fn in_words(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The driver's version: 12030 is 12.3.
fn version_number() -> Result<i32> {
    if let Some(pretended) = PRETENDED.with(Cell::get) {
        return Ok(pretended);
    }
    choose()?;
    let mut version = 0;
    call!(cuDriverGetVersion(&mut version))?;
    Ok(version)
}

/// Whether the driver has what CUDA `version` brought.
pub(crate) fn has(version: i32) -> bool {
    version_number().is_ok_and(|have| have >= version)
}

/// [`Error::Unsupported`] unless the driver has what CUDA `version` brought.
pub(crate) fn need(version: i32, what: &'static str) -> Result<()> {
    let have = version_number()?;
    if have >= version {
        return Ok(());
    }
    Err(Error::Unsupported {
        what,
        needs: format!("a driver for CUDA {}", in_words(version)),
        have: format!("one for CUDA {}", in_words(have)),
    })
}

/// Runs `body` as if the driver were of `version`, as far as this thread asks.
pub(crate) fn with_version<R>(version: i32, body: impl FnOnce() -> R) -> R {
    struct Back(Option<i32>);
    impl Drop for Back {
        fn drop(&mut self) {
            PRETENDED.with(|pretended| pretended.set(self.0));
        }
    }
    let _back = Back(PRETENDED.with(|pretended| pretended.replace(Some(version))));
    body()
}

/// Makes `context` the calling thread's.
///
/// cudarc's own way answers first with an error that some drop left in the context, and then binds nothing. Such an error is not this
/// call's, and stays for who asks cudarc for it.
#[inline]
pub(crate) fn bind(context: &CudaContext) -> Result<()> {
    let bind = || {
        if result::ctx::get_current()? == Some(context.cu_ctx()) {
            return Ok(());
        }
        // SAFETY: the context lives for as long as cudarc's handle of it.
        unsafe { result::ctx::set_current(context.cu_ctx()) }
    };
    HAS_CONTEXT.set(true);
    bind().map_err(Error::call("cuCtxSetCurrent"))
}

/// Makes `context` the calling thread's if this library never did so for a context: for calls that
/// name their context themselves, and crash the driver in a thread without any. A thread loses its
/// context only by unsafe calls of the driver.
#[inline]
pub(crate) fn bind_some(context: &CudaContext) -> Result<()> {
    match HAS_CONTEXT.get() {
        true => Ok(()),
        false => bind(context),
    }
}

/// Makes a call that names its context itself. A thread that never called CUDA has no context, which some drivers want all the same:
/// then `context` is made the thread's, and the call is made again. Asking first would cost every call.
#[inline(always)]
pub(crate) fn bound_if_wanted<R>(
    context: &CudaContext,
    mut call: impl FnMut() -> Result<R>,
) -> Result<R> {
    let mut bound = false;
    // One place that calls, so that the call is compiled into it.
    loop {
        match call() {
            Err(error) if !bound && error.is(CUresult::CUDA_ERROR_INVALID_CONTEXT) => {
                bind(context)?;
                bound = true;
            }
            result => return result,
        }
    }
}

static INJECTING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// This thread was given a context.
    static HAS_CONTEXT: Cell<bool> = const { Cell::new(false) };

    static OFFENCE: Cell<Option<(&'static str, CUresult)>> = const { Cell::new(None) };

    /// The version that a test has this thread see.
    static PRETENDED: Cell<Option<i32>> = const { Cell::new(None) };

    /// How many more calls of this thread succeed before one fails; negative when none will.
    static COUNTDOWN: Cell<i64> = const { Cell::new(-1) };
}

#[cold]
fn injected() -> bool {
    COUNTDOWN.with(|countdown| {
        let left = countdown.get();
        if left >= 0 {
            countdown.set(left - 1);
        }
        left == 0
    })
}

/// Runs `body` while call number `nth` (from 0) of this crate's layer `driver` on this thread fails with OUT_OF_MEMORY without being
/// made. Says whether there was such a call.
pub(crate) fn with_failing_call<R>(nth: u32, body: impl FnOnce() -> R) -> (R, bool) {
    INJECTING.store(true, Ordering::Relaxed);
    COUNTDOWN.with(|countdown| countdown.set(i64::from(nth)));
    let result = body();
    let fired = COUNTDOWN.with(|countdown| countdown.replace(-1)) < 0;
    (result, fired)
}
