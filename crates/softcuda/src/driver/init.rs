//! `cuInit`: before it, nearly every function answers `CUDA_ERROR_NOT_INITIALIZED`.
//!
//! So does every one in a process that was forked after it: the driver's threads stayed behind.

use std::io::IsTerminal;
use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};

use super::{CUresult, Result};

static STATE: AtomicU8 = AtomicU8::new(BEFORE);
const BEFORE: u8 = 0;
const DONE: u8 = 1;
const FORKED: u8 = 2;

/// `cuInit`; may be called again.
pub(crate) fn init(flags: u32) -> Result {
    if flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if STATE.load(Ordering::Acquire) == FORKED {
        return check();
    }
    start_log();
    tell_forks();
    let _ = STATE.compare_exchange(BEFORE, DONE, Ordering::AcqRel, Ordering::Acquire);
    Ok(())
}

/// Fails before [`init`], and in a process that was forked after it.
pub(crate) fn check() -> Result {
    match STATE.load(Ordering::Acquire) {
        DONE => Ok(()),
        _ => Err(CUresult::CUDA_ERROR_NOT_INITIALIZED),
    }
}

/// Has a child by `fork` know that it is one. To ask for the process's number in every call would
/// cost each a system call.
fn tell_forks() {
    extern "C" fn in_child() {
        let _ = STATE.compare_exchange(DONE, FORKED, Ordering::AcqRel, Ordering::Acquire);
    }
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        // SAFETY: the handler touches an atomic variable and nothing else, which is allowed in a
        // child whose other threads are gone. It goes when this library is unloaded.
        let error = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if error != 0 {
            tracing::warn!("processes made by fork will not know that they are: error {error}");
        }
    });
}

/// Sends events to standard error when `SOFTCUDA_LOG` names a level (`info`) or targets with levels
/// (`softcuda::abi=debug`).
///
/// The library as `libcuda.so.1` has its own copy of `tracing`, which no subscriber of the
/// program's can reach. Where it is linked as a crate and the program has set a subscriber, that
/// one stays.
pub(crate) fn start_log() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        use tracing_subscriber::filter::Targets;
        use tracing_subscriber::layer::SubscriberExt;
        let Ok(filter) = std::env::var("SOFTCUDA_LOG") else {
            return;
        };
        match filter.parse::<Targets>() {
            Ok(targets) => {
                let lines = tracing_subscriber::fmt::layer()
                    .with_writer(std::io::stderr)
                    .with_ansi(std::io::stderr().is_terminal());
                let subscriber = tracing_subscriber::registry().with(targets).with(lines);
                let _ = tracing::subscriber::set_global_default(subscriber);
            }
            Err(error) => eprintln!("softcuda: SOFTCUDA_LOG={filter}: {error}"),
        }
    });
}
