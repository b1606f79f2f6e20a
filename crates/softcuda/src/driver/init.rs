//! `cuInit`: before it, nearly every function answers `CUDA_ERROR_NOT_INITIALIZED`.

use std::io::IsTerminal;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{CUresult, Result};

static DONE: AtomicBool = AtomicBool::new(false);

/// `cuInit`; may be called again.
pub(crate) fn init(flags: u32) -> Result {
    if flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    start_log();
    DONE.store(true, Ordering::Release);
    Ok(())
}

/// Fails before [`init`].
pub(crate) fn check() -> Result {
    match DONE.load(Ordering::Acquire) {
        true => Ok(()),
        false => Err(CUresult::CUDA_ERROR_NOT_INITIALIZED),
    }
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
