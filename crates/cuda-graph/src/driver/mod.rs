//! The one place that calls the driver.
//!
//! A function here is a driver function: its answer checked, its name in the error. It holds
//! nothing and knows nothing of ownership; the layers above uphold what each asks of handles and
//! pointers.
//!
//! cudarc panics when it looks up a function that the installed driver lacks, so each call site
//! asks once whether it is there, and an old driver is [`Error::Unsupported`].

pub(crate) mod begun;
pub(crate) mod capture;
pub(crate) mod choice;
pub(crate) mod event;
pub(crate) mod exec;
pub(crate) mod graph;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod node;
pub(crate) mod peer;
pub(crate) mod per_context;
pub(crate) mod run;
pub(crate) mod stream;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::LocalKey;

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
        $crate::driver::check(&FOUND, stringify!($function), || {
            // SAFETY: the function exists in this driver (just looked up). The caller, a function
            // of this layer, states of its own arguments that the handles are alive, and that the
            // pointers point at what the driver reads and writes.
            unsafe { cudarc::driver::sys::$function($($argument),*) }
        })
    }};
}
pub(crate) use call;

/// Declares functions that pass their arguments to a driver function as they are.
macro_rules! calls {
    ($(
        $(#[$attribute:meta])*
        $name:ident($($argument:ident: $type:ty),*): $function:ident;
    )+) => {$(
        $(#[$attribute])*
        pub(crate) fn $name($($argument: $type),*) -> $crate::Result<()> {
            $crate::driver::call!($function($($argument),*))
        }
    )+};
}
pub(crate) use calls;

/// Declares functions that return what a driver function writes to its last argument. Zero must be
/// a value of that: of a handle, a number, or each field of plain data.
macro_rules! values {
    ($(
        $(#[$attribute:meta])*
        $name:ident($($argument:ident: $type:ty),*) -> $value:ty: $function:ident;
    )+) => {$(
        $(#[$attribute])*
        pub(crate) fn $name($($argument: $type),*) -> $crate::Result<$value> {
            // SAFETY: zero is a value of those types that the macro is used with.
            let zero: $value = unsafe { std::mem::zeroed() };
            $crate::driver::ask(zero, |value| {
                $crate::driver::call!($function($($argument,)* value))
            })
        }
    )+};
}
pub(crate) use values;

/// Returns what `call` makes of `value`.
#[inline(always)]
pub(crate) fn ask<T>(mut value: T, call: impl FnOnce(&mut T) -> Result<()>) -> Result<T> {
    call(&mut value)?;
    Ok(value)
}

/// Makes one call of a function that was found, unless a test asked for it to fail.
#[inline(always)]
pub(crate) fn check(
    found: &AtomicBool,
    name: &'static str,
    call: impl FnOnce() -> CUresult,
) -> Result<()> {
    if !found.load(Ordering::Relaxed) {
        find(found, name)?;
    }
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
        OFFENCE.set(OFFENCE.get().or(Some((call, status))));
    }
    Error::Call { call, code: status }
}

/// The first call of this thread that failed because of a capture, since it was last asked for.
pub(crate) fn take_offence() -> Option<(&'static str, CUresult)> {
    OFFENCE.take()
}

/// Whether the driver has function `name`; notes it in `found`.
#[cold]
pub(crate) fn find(found: &AtomicBool, name: &'static str) -> Result<()> {
    choose()?;
    let symbol = format!("{name}\0");
    // SAFETY: `choose` has said that there is a driver, and the symbol's address alone is taken.
    if unsafe { sys::culib().get::<*const ()>(symbol.as_bytes()) }.is_err() {
        return Err(Error::Unsupported {
            what: name,
            needs: "a driver that has this function".into(),
            have: match version_number() {
                Ok(version) => format!("a driver for CUDA {}", in_words(version)),
                Err(error) => format!("a driver whose version is unknown ({error})"),
            },
        });
    }
    found.store(true, Ordering::Relaxed);
    Ok(())
}

fn in_words(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The driver's version: 12030 is 12.3.
fn version_number() -> Result<i32> {
    match PRETENDED.get() {
        Some(pretended) => Ok(pretended),
        None => ask(0, |version| call!(cuDriverGetVersion(version))),
    }
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

/// Logs that what could not be given back leaks.
pub(crate) fn log_leak(what: &str, given_back: Result<()>) {
    if let Err(error) = given_back {
        tracing::error!("{what} leaks: {error}");
    }
}

/// Makes `context` the calling thread's.
///
/// cudarc's own way answers first with an error that some drop left in the context, and then binds
/// nothing. Such an error is not this call's, and stays for who asks cudarc for it.
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

/// The calling thread's context.
pub(crate) fn current() -> Result<sys::CUcontext> {
    let current = result::ctx::get_current().map_err(Error::call("cuCtxGetCurrent"))?;
    Ok(current.unwrap_or(std::ptr::null_mut()))
}

/// Makes `context` the calling thread's if this library never did so for a context: for calls that
/// name their context themselves, and crash the driver in a thread without any. A thread loses its
/// context only by unsafe calls of the driver.
#[inline]
pub(crate) fn bind_some(context: &CudaContext) -> Result<()> {
    match HAS_CONTEXT.get() {
        true => Ok(()),
        false => bind_first(context),
    }
}

#[cold]
#[inline(never)]
fn bind_first(context: &CudaContext) -> Result<()> {
    bind(context)
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
    let left = COUNTDOWN.get();
    COUNTDOWN.set((left - 1).max(-1));
    left == 0
}

/// Runs `body` while call number `nth` (from 0) that this crate makes of the driver on this thread
/// fails with OUT_OF_MEMORY, without being made. Says whether there was such a call.
pub fn with_failing_call<R>(nth: u32, body: impl FnOnce() -> R) -> (R, bool) {
    INJECTING.store(true, Ordering::Relaxed);
    let body = || (body(), COUNTDOWN.get() < 0);
    with(&COUNTDOWN, i64::from(nth), body)
}

/// Runs `body` as if the driver were of `version` (12030 is 12.3), as far as this thread asks.
pub fn with_driver_version<R>(version: i32, body: impl FnOnce() -> R) -> R {
    with(&PRETENDED, Some(version), body)
}

/// Runs `body` as if devices freed memory in no stream's order, as far as this thread asks.
pub fn without_ordered_frees<R>(body: impl FnOnce() -> R) -> R {
    with(&memory::WITHOUT_ORDER, true, body)
}

/// Runs `body` while `cell` has `value` in this thread.
fn with<T: Copy, R>(cell: &'static LocalKey<Cell<T>>, value: T, body: impl FnOnce() -> R) -> R {
    struct Back<T: Copy + 'static>(&'static LocalKey<Cell<T>>, T);
    impl<T: Copy> Drop for Back<T> {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let _back = Back(cell, cell.replace(value));
    body()
}
