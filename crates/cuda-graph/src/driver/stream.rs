//! Driver calls on streams.

use std::ops::RangeInclusive;

use cudarc::driver::sys::{CUresult, CUstream};

use super::{ask, call, calls};
use crate::Result;

/// A thread's own default stream: another one for each thread that names it so.
pub(crate) const PER_THREAD: usize = 2;

calls! {
    /// Waits for all that the stream was given.
    synchronize(stream: CUstream): cuStreamSynchronize;
}

/// Whether all is over that the stream was given.
pub(crate) fn is_over(stream: CUstream) -> Result<bool> {
    match call!(cuStreamQuery(stream)) {
        Ok(()) => Ok(true),
        Err(error) if error.is(CUresult::CUDA_ERROR_NOT_READY) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The priorities that streams and kernels of the current context have: the highest, which is the
/// smallest number, to the lowest.
pub(crate) fn priorities() -> Result<RangeInclusive<i32>> {
    let mut lowest = 0;
    let highest = ask(0, |highest| {
        call!(cuCtxGetStreamPriorityRange(&mut lowest, highest))
    })?;
    Ok(highest..=lowest)
}
