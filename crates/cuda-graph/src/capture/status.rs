//! What any stream is in, captured by this library or not.

use std::ptr::null_mut;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUgraph, CUgraphNode, CUstreamCaptureStatus};

use crate::{Result, driver};

/// Whether a stream is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaptureStatus {
    /// It runs what it is given.
    None,
    /// It records.
    Active,
    /// It recorded until something went wrong, and takes nothing until the capture is ended.
    Invalidated,
}

/// What a stream is in.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CaptureInfo {
    /// Whether it is recorded.
    pub status: CaptureStatus,
    /// The driver's number of the capture: no two have the same.
    pub id: u64,
    /// The graph that it is recorded into, or null.
    pub graph: CUgraph,
    /// What its next operation waits for.
    pub dependencies: Vec<CUgraphNode>,
}

impl CaptureInfo {
    /// Of `stream`.
    ///
    /// # Errors
    ///
    /// The driver's: for the default stream while another stream is captured that synchronizes with
    /// it, for one.
    pub fn of(stream: &CudaStream) -> Result<CaptureInfo> {
        driver::choose()?;
        driver::bind(stream.context())?;
        let info = driver::capture::info(stream.cu_stream())?;
        use CUstreamCaptureStatus as S;
        let (status, id, graph) = match info.status {
            S::CU_STREAM_CAPTURE_STATUS_NONE => (CaptureStatus::None, 0, null_mut()),
            S::CU_STREAM_CAPTURE_STATUS_ACTIVE => (CaptureStatus::Active, info.id, info.graph),
            S::CU_STREAM_CAPTURE_STATUS_INVALIDATED => (CaptureStatus::Invalidated, 0, null_mut()),
        };
        Ok(CaptureInfo {
            status,
            id,
            graph,
            dependencies: info.after.into_vec(),
        })
    }

    /// Whether the stream takes part in a capture, be it one that was invalidated.
    pub fn is_capturing(&self) -> bool {
        self.status != CaptureStatus::None
    }
}
