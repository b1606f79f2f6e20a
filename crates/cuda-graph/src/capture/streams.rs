//! The streams that branches run on.
//!
//! They are made once and used again. One that is still part of a capture, because its branch was never joined and the
//! capture not yet ended, waits in the pool until it is not.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys::{CUstream, CUstreamCaptureStatus};
use cudarc::driver::{CudaContext, CudaStream};

use crate::{Result, driver};

/// A stream that is recorded. Dropping one of the pool gives it back.
pub(super) struct Lane {
    stream: Arc<CudaStream>,
    pooled: bool,
}

impl Lane {
    /// A stream of the caller's.
    pub(super) fn of(stream: Arc<CudaStream>) -> Lane {
        Lane {
            stream,
            pooled: false,
        }
    }

    /// A stream of the pool, which is given nothing by anybody else.
    pub(super) fn pooled(context: &Arc<CudaContext>) -> Result<Lane> {
        let raw = match take(context) {
            Some(raw) => raw,
            None => driver::capture::create_stream()?,
        };
        // SAFETY: the stream is one of the context; the pool never destroys it while the context lives.
        let stream = unsafe { context.wrap_borrowed_stream(raw) };
        Ok(Lane {
            stream,
            pooled: true,
        })
    }

    pub(super) fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if self.pooled {
            let pooled = Pooled {
                raw: self.stream.cu_stream(),
                context: Arc::downgrade(self.stream.context()),
            };
            pool().push(pooled);
        }
    }
}

/// A stream of the pool. It goes with its context.
struct Pooled {
    raw: CUstream,
    context: Weak<CudaContext>,
}

// SAFETY: a stream's handle may be used from any thread.
unsafe impl Send for Pooled {}

fn pool() -> std::sync::MutexGuard<'static, Vec<Pooled>> {
    static POOL: Mutex<Vec<Pooled>> = Mutex::new(Vec::new());
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream of `context` that is free.
fn take(context: &Arc<CudaContext>) -> Option<CUstream> {
    let mut pool = pool();
    pool.retain(|pooled| pooled.context.strong_count() > 0);
    let free = |pooled: &Pooled| {
        let none = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        std::ptr::eq(pooled.context.as_ptr(), Arc::as_ptr(context))
            && driver::capture::status(pooled.raw).is_ok_and(|status| status == none)
    };
    let at = pool.iter().position(free)?;
    Some(pool.swap_remove(at).raw)
}
