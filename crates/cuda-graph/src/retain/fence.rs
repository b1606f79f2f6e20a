//! The end of work that was given to the device.

use std::sync::Arc;

use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaContext, CudaStream};

use crate::driver::{self, event::Event};
use crate::{Error, Result};

/// Has passed once some work is over.
pub(crate) struct Fence {
    context: Arc<CudaContext>,
    /// Recorded behind the work, or none where it could not be yet.
    event: Option<Arc<Event>>,
    /// The stream of the work, where the event is to be recorded.
    stream: Option<Arc<CudaStream>>,
}

impl Fence {
    /// Behind everything that `stream` was given so far.
    pub(crate) fn behind(stream: Arc<CudaStream>) -> Fence {
        Fence {
            context: stream.context().clone(),
            event: record(&stream).ok().flatten(),
            stream: Some(stream),
        }
    }

    /// Behind what an event of `context` was recorded behind.
    pub(crate) fn of(context: Arc<CudaContext>, event: Arc<Event>) -> Fence {
        Fence {
            context,
            event: Some(event),
            stream: None,
        }
    }

    /// Whether it has passed. Where no event could be recorded, one is now: later work is then
    /// waited for too.
    pub(super) fn has_passed(&mut self) -> bool {
        // What this thread had current last may be gone meanwhile, which answers as if this context
        // were.
        let bound = driver::bind(&self.context);
        let over = bound.and_then(|()| match (&self.event, &self.stream) {
            (Some(event), _) => event.is_over(),
            (None, Some(stream)) => record(stream).map(|event| {
                self.event = event;
                false
            }),
            (None, None) => Ok(true),
        });
        over.unwrap_or_else(|error| {
            // A capture began and ended around the record, which became a part of it.
            if self.stream.is_some() && error.is(CUresult::CUDA_ERROR_CAPTURED_EVENT) {
                self.event = None;
            }
            nothing_runs(&error)
        })
    }
}

/// Records an event at the end of a stream; none while the stream is captured, because it would be
/// part of the capture.
fn record(stream: &CudaStream) -> Result<Option<Arc<Event>>> {
    driver::bind(stream.context())?;
    let event = Event::new()?;
    let raw = stream.cu_stream();
    let recorded = driver::capture::unless_captured(raw, || event.record(raw)).transpose()?;
    // Other code may have begun a capture in between.
    let whole = recorded.is_some() && !driver::capture::is_captured(raw)?;
    Ok(whole.then(|| Arc::new(event)))
}

/// Whether an error says that the context has failed for good, so that nothing of it runs any more.
fn nothing_runs(error: &Error) -> bool {
    use CUresult as R;
    let Error::Call { code, .. } = error else {
        return false;
    };
    matches!(
        code,
        R::CUDA_ERROR_DEINITIALIZED
            | R::CUDA_ERROR_INVALID_CONTEXT
            | R::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | R::CUDA_ERROR_INVALID_HANDLE
            | R::CUDA_ERROR_ECC_UNCORRECTABLE
            | R::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | R::CUDA_ERROR_ILLEGAL_ADDRESS
            | R::CUDA_ERROR_LAUNCH_TIMEOUT
            | R::CUDA_ERROR_ASSERT
            | R::CUDA_ERROR_HARDWARE_STACK_ERROR
            | R::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | R::CUDA_ERROR_MISALIGNED_ADDRESS
            | R::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | R::CUDA_ERROR_INVALID_PC
            | R::CUDA_ERROR_LAUNCH_FAILED
    )
}
