//! Events: the contents of a stream at some moment, to be queried, waited for and timed.

use std::sync::Arc;

use parking_lot::Mutex;

use super::capture::{self, Captured};
use super::context::Context;
use super::handle::{Found, Table};
use super::interprocess::event::Shared;
use super::stream::{self, Stream};
use super::{CUresult, Result, failure};
use crate::abi::types::CUevent;
use crate::engine::{Marker, Step};

const BLOCKING_SYNC: u32 = 1;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

static EVENTS: Table<Event> = Table::new(3);

/// An event.
pub(crate) struct Event {
    handle: usize,
    context: Arc<Context>,
    flags: u32,
    recorded: Mutex<Recorded>,
    /// Of an event that processes share, which then says what was recorded.
    shared: Option<Arc<Shared>>,
    /// It is another process's.
    opened: bool,
}

/// What was recorded last.
#[derive(Clone)]
enum Recorded {
    /// Work of a stream, or of several for a whole context. Nothing before the first record.
    Work(Vec<Arc<Marker>>),
    /// In a capture.
    Captured(Captured),
}

impl Default for Recorded {
    fn default() -> Self {
        Recorded::Work(Vec::new())
    }
}

/// `cuEventCreate`.
pub(crate) fn create(context: &Arc<Context>, flags: u32) -> Result<CUevent> {
    let known = BLOCKING_SYNC | DISABLE_TIMING | INTERPROCESS;
    let timed_between_processes = flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0;
    if flags & !known != 0 || timed_between_processes {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let shared = match flags & INTERPROCESS != 0 {
        true => Some(Shared::new()?),
        false => None,
    };
    Ok(insert(context, flags, shared, false))
}

fn insert(
    context: &Arc<Context>,
    flags: u32,
    shared: Option<Arc<Shared>>,
    opened: bool,
) -> CUevent {
    let event = EVENTS.insert(|handle| Event {
        handle,
        context: context.clone(),
        flags,
        recorded: Mutex::default(),
        shared,
        opened,
    });
    CUevent(event.handle)
}

/// `cuIpcOpenEventHandle`: another event each time, which is the same to all who have it.
pub(crate) fn open(context: &Arc<Context>, handle: &[u8; 64]) -> Result<CUevent> {
    let shared = Shared::open(handle)?;
    Ok(insert(
        context,
        INTERPROCESS | DISABLE_TIMING,
        Some(shared),
        true,
    ))
}

/// The event of a handle. One of a context that failed or was destroyed answers with that.
pub(crate) fn resolve(handle: CUevent) -> Result<Arc<Event>> {
    let event = resolve_any(handle)?;
    event.context.check()?;
    Ok(event)
}

/// As [`resolve`], whatever became of the context. A null or stale handle is an error before all
/// others.
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

    /// The context that it was made in.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// What it is now; nothing where it was recorded in a capture.
    pub fn recorded(&self) -> Vec<Arc<Marker>> {
        match &*self.recorded.lock() {
            Recorded::Work(markers) => markers.clone(),
            Recorded::Captured(_) => Vec::new(),
        }
    }

    /// From now on the event is what a marker says.
    pub fn set_recorded(&self, marker: Arc<Marker>) {
        *self.recorded.lock() = Recorded::Work(vec![marker]);
    }

    /// From now on the event is what was recorded in a capture.
    pub fn set_captured(&self, captured: Captured) {
        *self.recorded.lock() = Recorded::Captured(captured);
    }

    /// `cuIpcGetEventHandle`.
    pub fn interprocess_handle(&self) -> Result<[u8; 64]> {
        match &self.shared {
            Some(shared) if !self.opened => Ok(shared.handle()),
            _ => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// Where processes share it: from now on the event is what the stream was given so far. That
    /// ends with the stream's context too.
    pub fn share_record(&self, stream: &Stream) -> Result {
        let Some(shared) = &self.shared else {
            return Ok(());
        };
        let ticket = shared.record();
        stream.push(Step::Callback(Box::new(move |_| drop(ticket))))
    }

    /// Where processes share it: later work of the stream waits for what is recorded now.
    pub fn share_wait(&self, stream: &Stream) -> Result {
        let Some(shared) = &self.shared else {
            return Ok(());
        };
        let (shared, ticket) = (shared.clone(), shared.last());
        match shared.reached(ticket) {
            true => Ok(()),
            false => stream.push(Step::Host(Box::new(move || shared.wait(ticket)))),
        }
    }

    /// It keeps no time.
    pub fn is_untimed(&self) -> bool {
        self.flags & DISABLE_TIMING != 0
    }

    /// What was recorded in a capture.
    fn captured(&self) -> Option<Captured> {
        match &*self.recorded.lock() {
            Recorded::Work(_) => None,
            Recorded::Captured(captured) => Some(captured.clone()),
        }
    }

    /// `cuEventRecord`: from now on the event is what the stream was given so far, in a capture
    /// what it depends on.
    pub fn record(&self, stream: &Stream) -> Result {
        if stream.context().id() != self.context.id() {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        match (stream.is_capturing(), &self.shared) {
            (true, Some(_)) => return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            (true, None) => self.set_captured(Captured::record(stream)?),
            (false, Some(_)) => self.share_record(stream)?,
            (false, None) => self.set_recorded(stream.record()?),
        }
        Ok(())
    }

    /// `cuCtxRecordEvent`: from now on the event is what all streams of a context were given so
    /// far.
    pub fn record_context(&self, context: &Arc<Context>) -> Result {
        if context.id() != self.context.id() {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        if let Some(shared) = &self.shared {
            // Done when the last of the streams has come to it.
            let ticket = Arc::new(shared.record());
            return stream::all_of(context).iter().try_for_each(|stream| {
                let ticket = ticket.clone();
                stream.push(Step::Callback(Box::new(move |_| drop(ticket))))
            });
        }
        *self.recorded.lock() = Recorded::Work(context.streams.mark());
        Ok(())
    }

    /// `cuStreamWaitEvent`: later work of the stream waits for what is recorded now. An event
    /// recorded in a capture draws the stream into it; in a capture there is no waiting for work
    /// outside.
    pub fn order_before(&self, stream: &Stream) -> Result {
        if self.shared.is_some() {
            return match stream.is_capturing() {
                true => Err(capture::fail(
                    stream,
                    CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                )),
                false => self.share_wait(stream),
            };
        }
        if let Some(captured) = self.captured() {
            return captured.join(stream);
        }
        let recorded = self.recorded();
        if stream.is_capturing() {
            return match recorded.is_empty() {
                true => Ok(()),
                false => Err(capture::fail(
                    stream,
                    CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                )),
            };
        }
        recorded
            .into_iter()
            .try_for_each(|marker| stream.wait(marker))
    }

    /// `cuStreamWaitEvent` with the flag that makes a node of it.
    pub fn order_before_externally(self: &Arc<Self>, stream: &Stream) -> Result {
        match self.captured() {
            Some(captured) if !captured.is_live() => captured.join(stream),
            _ if stream.is_capturing() => capture::wait_external(stream, self),
            _ => Err(CUresult::CUDA_ERROR_ILLEGAL_STATE),
        }
    }

    /// `cuEventQuery`: `CUDA_ERROR_NOT_READY` while the recorded work goes on.
    pub fn query(&self) -> Result {
        self.context.notice()?;
        if let Some(captured) = self.captured() {
            return Err(captured.awaited());
        }
        capture::permit()?;
        let ended = match &self.shared {
            Some(shared) => shared.reached(shared.last()),
            None => self.recorded().iter().all(|marker| marker.fired()),
        };
        match ended {
            true => self.context.notice(),
            false => Err(CUresult::CUDA_ERROR_NOT_READY),
        }
    }

    /// `cuEventSynchronize`: waits for the recorded work.
    pub fn synchronize(&self) -> Result {
        self.context.notice()?;
        if let Some(captured) = self.captured() {
            return Err(captured.awaited());
        }
        capture::permit()?;
        if let Some(shared) = &self.shared {
            shared.wait(shared.last());
        }
        let recorded = self.recorded();
        recorded.iter().for_each(|marker| marker.synchronize());
        self.context.notice()
    }

    /// When the recorded work ended; `None` while it goes on.
    fn nanoseconds(&self) -> Result<Option<u64>> {
        self.context.notice()?;
        if let Some(captured) = self.captured() {
            return Err(captured.asked());
        }
        let recorded = self.recorded();
        if recorded.is_empty() {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        Ok(match recorded.iter().all(|marker| marker.fired()) {
            true => recorded.iter().map(|marker| marker.nanoseconds()).max(),
            false => None,
        })
    }
}
