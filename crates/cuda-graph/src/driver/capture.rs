//! Driver calls on streams in capture.

use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstream_flags, CUstreamCaptureMode,
    CUstreamCaptureStatus, CUstreamUpdateCaptureDependencies_flags,
};
use smallvec::SmallVec;

use super::call;
use super::graph::PLAIN;
use crate::{Error, Result};

/// Held while a capture begins, and while something is let go that no captured stream may let go.
static BEGINNING: Mutex<()> = Mutex::new(());

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops what goes in the order of `stream`, unless that is captured.
pub(crate) fn drop_unless_captured<T>(stream: CUstream, value: T) -> std::result::Result<(), T> {
    let _none_begins = lock(&BEGINNING);
    let none = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    match status(stream) {
        Ok(status) if status != none => Err(value),
        _ => {
            undisturbed(|| drop(value));
            Ok(())
        }
    }
}

/// Begins to record what `stream` is given as nodes of `graph`, the first of them after `after`.
pub(crate) fn begin(
    stream: CUstream,
    graph: CUgraph,
    after: &[CUgraphNode],
    mode: CUstreamCaptureMode,
) -> Result<()> {
    let _nothing_goes = lock(&BEGINNING);
    call!(cuStreamBeginCaptureToGraph(
        stream,
        graph,
        after.as_ptr(),
        ptr::null(),
        after.len(),
        mode
    ))
}

/// Ends what was begun. The graph that comes back is the one it was begun with.
pub(crate) fn end(stream: CUstream) -> Result<CUgraph> {
    let mut graph = ptr::null_mut();
    call!(cuStreamEndCapture(stream, &mut graph))?;
    Ok(graph)
}

/// What a stream's next operation waits for.
pub(crate) type Dependencies = SmallVec<[(CUgraphNode, CUgraphEdgeData); 4]>;

/// What a stream is recorded into.
pub(crate) struct Info {
    pub status: CUstreamCaptureStatus,
    /// Of the capture; no two have the same.
    pub id: u64,
    pub graph: CUgraph,
    pub dependencies: Dependencies,
}

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
    let mut dependencies = Dependencies::new();
    if status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE && !nodes.is_null() {
        for at in 0..count {
            // SAFETY: the driver gives so many of both, which hold until the next call about this capture; without data every edge is plain.
            unsafe {
                let data = if data.is_null() { PLAIN } else { *data.add(at) };
                dependencies.push((*nodes.add(at), data));
            }
        }
    }
    Ok(Info {
        status,
        id,
        graph,
        dependencies,
    })
}

/// What the stream is given next waits for `nodes` alone.
pub(crate) fn set_dependencies(stream: CUstream, nodes: &[CUgraphNode]) -> Result<()> {
    let flags = CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES;
    call!(cuStreamUpdateCaptureDependencies_v2(
        stream,
        nodes.as_ptr().cast_mut(),
        ptr::null(),
        nodes.len(),
        flags as u32
    ))
}

/// Whether a stream is being captured.
pub(crate) fn status(stream: CUstream) -> Result<CUstreamCaptureStatus> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    call!(cuStreamIsCapturing(stream, &mut status))?;
    Ok(status)
}

/// Sets the calling thread's mode, and `mode` to what it was.
fn exchange(mode: &mut CUstreamCaptureMode) -> Result<()> {
    call!(cuThreadExchangeStreamCaptureMode(mode))
}

/// What the calling thread asks of the driver from now on does not disturb what other threads capture.
pub(crate) fn allow_during_captures() {
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    if let Err(error) = exchange(&mut mode) {
        tracing::debug!("the reaper's thread may disturb captures: {error}");
    }
}

/// Makes a call that captures of this thread, or of others, would forbid.
pub(crate) fn undisturbed<R>(call: impl FnOnce() -> R) -> R {
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    if let Err(error) = exchange(&mut mode) {
        tracing::debug!("a call may disturb captures: {error}");
        return call();
    }
    let result = call();
    let mut back = || exchange(&mut mode);
    if let Err(error) = back().or_else(|_| back()) {
        tracing::error!("this thread's calls will not keep to what captures allow: {error}");
    }
    result
}

/// A stream of ours in the current context, which waits for no other.
pub(crate) fn create_stream() -> Result<CUstream> {
    let mut stream = ptr::null_mut();
    let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    call!(cuStreamCreate(&mut stream, flags))?;
    Ok(stream)
}

/// Has `stream` wait for `event`.
pub(crate) fn wait(stream: CUstream, event: &super::event::Event) -> Result<()> {
    call!(cuStreamWaitEvent(stream, event.raw(), 0))
}

/// Whether an answer is one of those that captures cause.
pub(crate) fn is_code(answer: CUresult) -> bool {
    (900..=908).contains(&(answer as u32))
}

/// The answer in an error that a capture caused.
pub(crate) fn code(error: &Error) -> Option<CUresult> {
    match error {
        Error::Call { source, .. } | Error::Foreign { source } => {
            is_code(source.0).then_some(source.0)
        }
        Error::Node { source, .. } => code(source),
        _ => None,
    }
}
