//! Streams.

use std::sync::Arc;

use super::context::{self, Context};
use super::{CUresult, Result};
use crate::abi::NullStream;
use crate::abi::types::CUstream;

/// Work that a stream does in its turn.
pub(crate) type Task = Box<dyn FnOnce() -> Result + Send>;

/// What a context keeps about its streams.
#[derive(Default)]
pub(crate) struct Streams {}

/// A stream.
pub(crate) struct Stream {
    context: Arc<Context>,
}

/// The stream that a handle means in a call of the current thread; the null handle and the special ones mean the current
/// context's default streams.
pub(crate) fn resolve(handle: CUstream, null: NullStream) -> Result<Arc<Stream>> {
    let context = context::current()?;
    let _ = null;
    match handle.0 {
        0..=2 => Ok(Arc::new(Stream { context })),
        _ => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
    }
}

/// Waits for all work of a context; answers its sticky error.
pub(crate) fn synchronize_context(context: &Context) -> Result {
    context.check()
}

impl Stream {
    /// The context it belongs to.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Puts work behind all that the stream was given before. The work's error becomes the context's sticky one.
    pub fn submit(&self, task: Task) -> Result {
        self.context.check()?;
        task().inspect_err(|&error| self.context.fail(error))
    }

    /// Waits for all work that the stream was given.
    pub fn synchronize(&self) -> Result {
        self.context.check()
    }
}
