//! The end of what a stream has been given so far.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUresult, CUstreamCaptureStatus};

use crate::driver::{self, event::Event};
use crate::{Error, Result};

/// Has passed once everything that its stream was given before it was made is over.
pub(super) struct Fence {
    stream: Arc<CudaStream>,
    /// Recorded behind the work, or none where it could not be yet.
    event: Option<Event>,
}

impl Fence {
    pub(super) fn new(stream: Arc<CudaStream>) -> Fence {
        let event = record(&stream).ok().flatten();
        Fence { stream, event }
    }

    /// Whether it has passed. Where no event could be recorded, one is now: later work is then waited for too.
    pub(super) fn has_passed(&mut self) -> bool {
        let over = match &self.event {
            Some(event) => event.is_over(),
            None => record(&self.stream).map(|event| {
                self.event = event;
                false
            }),
        };
        match over {
            Ok(over) => over,
            Err(error) => nothing_runs(&error),
        }
    }
}

/// Records an event at the end of a stream; none while the stream is captured, because it would be part of the capture.
fn record(stream: &CudaStream) -> Result<Option<Event>> {
    driver::bind(stream.context())?;
    let captured = || {
        let status = driver::event::capture_status(stream.cu_stream())?;
        Ok::<_, Error>(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    };
    if captured()? {
        return Ok(None);
    }
    let event = Event::new()?;
    event.record(stream.cu_stream())?;
    // Another thread may have begun a capture in between.
    Ok((!captured()?).then_some(event))
}

/// Whether an error says that the context has failed for good, so that nothing of it runs any more.
fn nothing_runs(error: &Error) -> bool {
    use CUresult as R;
    let Error::Call { source, .. } = error else {
        return false;
    };
    matches!(
        source.0,
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
