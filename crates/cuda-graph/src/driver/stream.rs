//! Driver calls on streams.

use cudarc::driver::sys::CUstream;

use super::calls;

/// A thread's own default stream: another one for each thread that names it so.
pub(crate) const PER_THREAD: usize = 2;

calls! {
    /// Waits for all that the stream was given.
    synchronize(stream: CUstream): cuStreamSynchronize;
}
