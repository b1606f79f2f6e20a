//! `cuEvent*`, and the events of whole contexts.

use super::types::{CUcontext, CUevent, CUstream};
use super::{NullStream, Out, export, permitted};
use crate::driver::{CUresult, Result, capture, context, event, stream};

/// The one flag, which makes a node of its own in a capture.
pub(super) fn is_external(flags: u32) -> Result<bool> {
    match flags {
        0 | 1 => Ok(flags == 1),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

fn record(handle: CUevent, stream: CUstream, null: NullStream, flags: u32) -> Result {
    let event = event::resolve_any(handle)?;
    let stream = stream::resolve(stream, null)?;
    match is_external(flags)? {
        true => capture::record_external(&stream, &event),
        false => event.record(&stream),
    }
}

fn elapsed(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> Result {
    let (start, end) = (event::resolve_any(start)?, event::resolve_any(end)?);
    let elapsed = event::elapsed(&start, &end)?;
    milliseconds
        .set(elapsed)
        .map_err(|_| CUresult::CUDA_ERROR_INVALID_HANDLE)
}

export! {
    /// Makes an event.
    fn cuEventCreate(handle: Out<CUevent>, flags: u32) {
        handle.some()?;
        handle.set(event::create(&context::current()?, flags)?)
    }

    /// Destroys an event; what it recorded goes on.
    early fn cuEventDestroy(handle: CUevent) {
        event::resolve_any(handle)?;
        permitted()?;
        event::destroy(handle)
    }

    /// Destroys an event; what it recorded goes on.
    early fn cuEventDestroy_v2(handle: CUevent) {
        event::resolve_any(handle)?;
        permitted()?;
        event::destroy(handle)
    }

    /// From now on the event is what the stream was given so far.
    fn cuEventRecord | cuEventRecord_ptsz(null; handle: CUevent, stream: CUstream) { record(handle, stream, null, 0) }

    /// From now on the event is what the stream was given so far.
    fn cuEventRecordWithFlags | cuEventRecordWithFlags_ptsz(null; handle: CUevent, stream: CUstream, flags: u32) {
        record(handle, stream, null, flags)
    }

    /// Says whether what the event recorded has ended.
    early fn cuEventQuery(handle: CUevent) {
        // A wrong handle is reported even where no call is permitted.
        let event = event::resolve_any(handle)?;
        permitted()?;
        event.query()
    }

    /// Waits for what the event recorded.
    fn cuEventSynchronize(handle: CUevent) { event::resolve_any(handle)?.synchronize() }

    /// Milliseconds from one event to another.
    fn cuEventElapsedTime(milliseconds: Out<f32>, start: CUevent, end: CUevent) { elapsed(milliseconds, start, end) }

    /// Milliseconds from one event to another.
    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: CUevent, end: CUevent) { elapsed(milliseconds, start, end) }

    /// From now on the event is what all streams of the context were given so far.
    fn cuCtxRecordEvent(owner: CUcontext, handle: CUevent) {
        let owner = context::resolve(owner)?;
        let event = event::resolve(handle)?;
        capture::refuse_context(&owner)?;
        event.record_context(&owner)
    }

    /// Later work of all streams of the context waits for what the event recorded.
    fn cuCtxWaitEvent(owner: CUcontext, handle: CUevent) {
        let owner = context::resolve(owner)?;
        let event = event::resolve_any(handle)?;
        capture::refuse_context(&owner)?;
        stream::all_of(&owner).iter().try_for_each(|stream| event.order_before(stream))
    }
}
