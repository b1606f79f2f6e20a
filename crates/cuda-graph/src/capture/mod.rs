//! Streams in capture.
//!
//! A recording with a stream owns a [`Session`]. Between foreign blocks the stream is held in an
//! empty capture, so that work that reaches it outside of a block neither runs nor gets lost: it is
//! found there and fails the recording (L9). The hold is relaxed and forbids nothing else. For the
//! length of a block the stream is captured into a graph of the block's own.

mod session;
mod status;

pub use session::CaptureMode;
pub(crate) use session::{Block, Session};
pub use status::{CaptureInfo, CaptureStatus};
