//! Driver calls on streams in capture.

use std::ptr;
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
    CUstreamUpdateCaptureDependencies_flags,
};
use smallvec::SmallVec;

use super::{ask, call, values};
use crate::Result;

/// Held while a capture begins or takes in a stream, and while a stream that is not captured is
/// given something behind its users' backs: what another thread gives a stream in capture is a node
/// of a graph that the driver does not lock, and has crashed an H200's.
fn beginning() -> MutexGuard<'static, ()> {
    static BEGINNING: Mutex<()> = Mutex::new(());
    BEGINNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `body`, which gives `stream` something, unless the stream is captured. No capture of this
/// library begins meanwhile, in any thread: so `body` waits for nothing that the device does.
pub(crate) fn unless_captured<R>(stream: CUstream, body: impl FnOnce() -> R) -> Option<R> {
    let _none_begins = beginning();
    // Where that cannot be told, nothing is captured: the context has failed.
    (!is_captured(stream).unwrap_or(false)).then(body)
}

/// Begins to record what `stream` is given as nodes of `graph`, the first of them after `after`.
pub(crate) fn begin(
    stream: CUstream,
    graph: CUgraph,
    after: &[CUgraphNode],
    mode: CUstreamCaptureMode,
) -> Result<()> {
    let _nothing_is_given = beginning();
    let (from, count) = (after.as_ptr(), after.len());
    call!(cuStreamBeginCaptureToGraph(
        stream,
        graph,
        from,
        ptr::null(),
        count,
        mode
    ))
}

values! {
    /// Ends what was begun. The graph that comes back is the one it was begun with.
    end(stream: CUstream) -> CUgraph: cuStreamEndCapture;

    /// Whether a stream is being captured.
    status(stream: CUstream) -> CUstreamCaptureStatus: cuStreamIsCapturing;
}

/// What a stream is recorded into.
pub(crate) struct Info {
    pub status: CUstreamCaptureStatus,
    /// Of the capture; no two have the same.
    pub id: u64,
    pub graph: CUgraph,
    /// What its next operation waits for.
    pub after: SmallVec<[CUgraphNode; 8]>,
    /// By which edges; none where all are plain.
    pub edges: Vec<CUgraphEdgeData>,
}

#[inline(always)]
pub(crate) fn info(stream: CUstream) -> Result<Info> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut id, mut graph) = (0, ptr::null_mut());
    let (mut nodes, mut data, mut count) = (ptr::null(), ptr::null(), 0);
    call!(cuStreamGetCaptureInfo_v3(
        stream,
        &mut status,
        &mut id,
        &mut graph,
        &mut nodes,
        &mut data,
        &mut count
    ))?;
    let (mut after, mut edges) = (SmallVec::new(), Vec::new());
    if status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE && !nodes.is_null() {
        // SAFETY: the driver gives so many, which hold until the next call about this capture.
        let nodes = unsafe { slice::from_raw_parts(nodes, count) };
        after.extend(nodes.iter().copied());
        if !data.is_null() {
            // SAFETY: as above.
            let data = unsafe { slice::from_raw_parts(data, count) };
            if !data.iter().all(super::graph::is_plain) {
                edges = data.to_vec();
            }
        }
    }
    Ok(Info {
        status,
        id,
        graph,
        after,
        edges,
    })
}

/// What the stream is given next waits for `nodes` alone.
pub(crate) fn set_dependencies(stream: CUstream, nodes: &[CUgraphNode]) -> Result<()> {
    let flags = CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES;
    let (from, count) = (nodes.as_ptr().cast_mut(), nodes.len());
    call!(cuStreamUpdateCaptureDependencies_v2(
        stream,
        from,
        ptr::null(),
        count,
        flags as u32
    ))
}

/// Whether a stream takes part in a capture, be it one that was invalidated, or cannot be used
/// beside one.
pub(crate) fn is_captured(stream: CUstream) -> Result<bool> {
    match status(stream) {
        Ok(status) => Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE),
        // The null stream, beside a capture that waits for it.
        Err(error) if error.capture_code().is_some() => Ok(true),
        Err(error) => Err(error),
    }
}

/// Runs `body`, which lets go of something, and disturbs no capture by that: where things are
/// dropped is often nobody's choice, and much of what frees is forbidden while the same thread
/// captures.
pub(crate) fn undisturbed<R>(body: impl FnOnce() -> R) -> R {
    struct Back(u32);
    impl Drop for Back {
        fn drop(&mut self) {
            let back = || exchange_mode(self.0);
            if let Err(error) = back().or_else(|_| back()) {
                tracing::error!(
                    "this thread's calls will not keep to what captures allow: {error}"
                );
            }
        }
    }
    let _back = exchange_mode(RELAXED).map(Back);
    body()
}

const RELAXED: u32 = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as u32;

/// Sets the calling thread's mode, gives the one before. As numbers: the driver takes any.
fn exchange_mode(mode: u32) -> Result<u32> {
    ask(mode, |mode| {
        call!(cuThreadExchangeStreamCaptureMode((&raw mut *mode).cast()))
    })
}
