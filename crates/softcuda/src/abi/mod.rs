//! The exported driver functions: decode, call, encode, nothing else.
//!
//! [`export!`] makes each of them. Its body returns a `Result`, runs with panics caught and is
//! traced; functions but for the `early` ones fail before `cuInit` and in host functions.
//! Enumerations are taken as integers: a value that CUDA has no name for must be an error, not an
//! undefined Rust value. Pointers of the caller's are [`Out`], [`In`] and [`InOut`], which know
//! null. The program's floating-point control word is put aside for the call.
//!
//! Invariant: no panic crosses into the caller, and every function of `cuda.h` is exported
//! (`symbols`, and `unsupported` for toolkits newer than the driver).

pub(crate) mod args;
mod array;
mod capture;
mod context;
mod copy;
mod device;
mod event;
mod fill;
mod function;
mod graph;
mod graph_exec;
mod graph_memory;
mod graph_node;
mod graph_params;
mod graph_semaphore;
mod graph_user_object;
mod launch;
mod library;
mod link;
mod memory;
mod memory_operation;
mod module;
mod occupancy;
mod pool;
mod process;
mod stream;
pub(crate) mod symbols;
mod tensor_map;
pub(crate) mod types;
mod unsupported;
mod virtual_memory;

pub(crate) use args::{In, InOut, Out};

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::control_word;
use crate::driver::{CUresult, Result, init};
use crate::engine::host;

/// Which stream the null stream handle is in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NullStream {
    /// The legacy default stream.
    Legacy,
    /// The calling thread's own: functions whose names end in `_ptds` or `_ptsz`.
    PerThread,
}

/// Fails before `cuInit` and in host functions.
pub(crate) fn permitted() -> Result {
    init::check()?;
    match host::calls_forbidden() {
        false => Ok(()),
        true => Err(CUresult::CUDA_ERROR_NOT_PERMITTED),
    }
}

/// Runs the body of an exported function.
pub(crate) fn call(
    name: &'static str,
    args: &[(&'static str, &dyn Debug)],
    early: bool,
    body: impl FnOnce() -> Result,
) -> CUresult {
    let _word = control_word::by_default();
    let run = || -> Result {
        if !early {
            permitted()?;
        }
        body()
    };
    let result = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => CUresult::CUDA_SUCCESS,
        Ok(Err(error)) => error,
        Err(panic) => {
            let what = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied());
            tracing::error!(
                function = name,
                what,
                "a driver function panicked: this is a bug of softcuda's"
            );
            CUresult::CUDA_ERROR_UNKNOWN
        }
    };
    if tracing::enabled!(tracing::Level::DEBUG) {
        let args: Vec<_> = args
            .iter()
            .map(|(name, value)| format!("{name}={value:?}"))
            .collect();
        tracing::debug!("{name}({}) = {result:?}", args.join(", "));
    }
    result
}

/// Defines exported functions, each with documentation:
///
/// - `fn cuName(arg: Type, ..) { body }`: the body's value is a `Result<()>`.
/// - `early fn cuName(..) { body }`: may be called before `cuInit`.
/// - `fn cuName | cuName_ptsz(null; arg: Type, ..) { body }`: two functions; `null` is the
///   [`NullStream`] of each.
///
/// A parameter's type must be one that C passes the same way and for which every bit pattern is a
/// value.
macro_rules! export {
    () => {};
    ($(#[$meta:meta])* early fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $crate::abi::export!(@one [$(#[$meta])*] true $name($($arg: $ty),*) $body);
        $crate::abi::export!($($rest)*);
    };
    ($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $crate::abi::export!(@one [$(#[$meta])*] false $name($($arg: $ty),*) $body);
        $crate::abi::export!($($rest)*);
    };
    ($(#[$meta:meta])* fn $name:ident | $thread:ident($null:ident; $($arg:ident: $ty:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $crate::abi::export!(@one [$(#[$meta])*] false $name($($arg: $ty),*) {
            let $null = $crate::abi::NullStream::Legacy;
            $body
        });
        $crate::abi::export!(@one [$(#[$meta])*] false $thread($($arg: $ty),*) {
            let $null = $crate::abi::NullStream::PerThread;
            $body
        });
        $crate::abi::export!($($rest)*);
    };
    (@one [$(#[$meta:meta])*] $early:literal $name:ident($($arg:ident: $ty:ty),*) $body:block) => {
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $crate::driver::CUresult {
            let args: &[(&'static str, &dyn ::std::fmt::Debug)] = &[$((stringify!($arg), &$arg)),*];
            $crate::abi::call(stringify!($name), args, $early, || -> $crate::driver::Result { $body })
        }
    };
}
pub(crate) use export;
