//! Driver calls on streams.

use cudarc::driver::sys::CUstream;

use super::call;
use crate::Result;

/// Waits for all that the stream was given.
pub(crate) fn synchronize(stream: CUstream) -> Result<()> {
    call!(cuStreamSynchronize(stream))
}
