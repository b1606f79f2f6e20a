//! Driver calls on streams.

use cudarc::driver::sys::CUstream;

use super::call;
use crate::Result;

/// A thread's own default stream: another one for each thread that names it so.
pub(crate) const PER_THREAD: usize = 2;

/// Waits for all that the stream was given.
pub(crate) fn synchronize(stream: CUstream) -> Result<()> {
    call!(cuStreamSynchronize(stream))
}
