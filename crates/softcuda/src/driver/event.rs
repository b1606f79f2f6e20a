//! Events: the contents of a stream at some moment, to be queried, waited for and timed.

use std::sync::Arc;

use parking_lot::Mutex;

use super::context::Context;
use super::handle::{Found, Table};
use super::stream::Stream;
use super::{CUresult, Result, failure};
use crate::abi::types::CUevent;
use crate::engine::Marker;

const BLOCKING_SYNC: u32 = 1;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

static EVENTS: Table<Event> = Table::new(3);

/// An event.
pub(crate) struct Event {
    handle: usize,
    context: Arc<Context>,
    flags: u32,
    /// What was recorded last; several markers for a whole context. Nothing before the first record.
    recorded: Mutex<Vec<Arc<Marker>>>,
}

/// `cuEventCreate`.
pub(crate) fn create(context: &Arc<Context>, flags: u32) -> Result<CUevent> {
    let known = BLOCKING_SYNC | DISABLE_TIMING | INTERPROCESS;
    let timed_between_processes = flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0;
    if flags & !known != 0 || timed_between_processes {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let event = EVENTS.insert(|handle| Event {
        handle,
        context: context.clone(),
        flags,
        recorded: Mutex::default(),
    });
    Ok(CUevent(event.handle))
}

/// The event of a handle. One of a context that failed or was destroyed answers with that.
pub(crate) fn resolve(handle: CUevent) -> Result<Arc<Event>> {
    let event = resolve_any(handle)?;
    event.context.check()?;
    Ok(event)
}

/// As [`resolve`], whatever became of the context. A null or stale handle is an error before all others.
pub(crate) fn resolve_any(handle: CUevent) -> Result<Arc<Event>> {
    match EVENTS.get(handle.0) {
        Found::Live(event) => Ok(event),
        // A real driver crashes on the former.
        Found::Destroyed | Found::Unknown => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
    }
}

/// `cuEventDestroy`: whoever waits for the event's work already goes on waiting.
pub(crate) fn destroy(handle: CUevent) -> Result {
    resolve_any(handle)?;
    failure::check()?;
    match EVENTS.remove(handle.0) {
        Found::Live(_) => Ok(()),
        Found::Destroyed | Found::Unknown => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
    }
}

/// The context ends: the handles of its events mean nothing any more.
pub(crate) fn end_context(context: &Context) {
    for event in EVENTS.all() {
        if event.context.id() == context.id() {
            EVENTS.remove(event.handle);
        }
    }
}

/// `cuEventElapsedTime`: milliseconds from one event to another.
pub(crate) fn elapsed(start: &Event, end: &Event) -> Result<f32> {
    failure::notice()?;
    if start.context.id() != end.context.id() || (start.flags | end.flags) & DISABLE_TIMING != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    let start = start.nanoseconds()?;
    let end = end.nanoseconds()?;
    match (start, end) {
        (Some(start), Some(end)) => Ok(((end as i64 - start as i64) as f64 / 1e6) as f32),
        _ => Err(CUresult::CUDA_ERROR_NOT_READY),
    }
}

impl Event {
    /// Its handle.
    pub fn handle(&self) -> CUevent {
        CUevent(self.handle)
    }

    /// What it is now.
    pub fn recorded(&self) -> Vec<Arc<Marker>> {
        self.recorded.lock().clone()
    }

    /// From now on the event is what a marker says.
    pub fn set_recorded(&self, marker: Arc<Marker>) {
        *self.recorded.lock() = vec![marker];
    }

    /// `cuEventRecord`: from now on the event is what the stream was given so far.
    pub fn record(&self, stream: &Stream) -> Result {
        if stream.context().id() != self.context.id() {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let marker = stream.record()?;
        *self.recorded.lock() = vec![marker];
        Ok(())
    }

    /// `cuCtxRecordEvent`: from now on the event is what all streams of a context were given so far.
    pub fn record_context(&self, context: &Context) -> Result {
        if context.id() != self.context.id() {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        *self.recorded.lock() = context.streams.mark();
        Ok(())
    }

    /// `cuStreamWaitEvent`: later work of the stream waits for what is recorded now.
    pub fn order_before(&self, stream: &Stream) -> Result {
        let recorded = self.recorded.lock().clone();
        recorded
            .into_iter()
            .try_for_each(|marker| stream.wait(marker))
    }

    /// `cuEventQuery`: `CUDA_ERROR_NOT_READY` while the recorded work goes on.
    pub fn query(&self) -> Result {
        self.context.notice()?;
        match self.recorded.lock().iter().all(|marker| marker.fired()) {
            true => self.context.notice(),
            false => Err(CUresult::CUDA_ERROR_NOT_READY),
        }
    }

    /// `cuEventSynchronize`: waits for the recorded work.
    pub fn synchronize(&self) -> Result {
        self.context.notice()?;
        let recorded = self.recorded.lock().clone();
        recorded.iter().for_each(|marker| marker.synchronize());
        self.context.notice()
    }

    /// When the recorded work ended; `None` while it goes on.
    fn nanoseconds(&self) -> Result<Option<u64>> {
        self.context.notice()?;
        let recorded = self.recorded.lock();
        if recorded.is_empty() {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        Ok(match recorded.iter().all(|marker| marker.fired()) {
            true => recorded.iter().map(|marker| marker.nanoseconds()).max(),
            false => None,
        })
    }
}
