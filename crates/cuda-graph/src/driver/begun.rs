//! Where recordings began: for those who find a stream captured.

use std::panic::Location;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstreamCaptureStatus;

use super::{capture, stream::PER_THREAD};
use crate::{Error, Result};

/// The stream of a recording, and where that began.
struct Begun {
    serial: u64,
    /// The driver's number of its present capture.
    id: u64,
    stream: Key,
    location: &'static Location<'static>,
}

/// What tells a stream: its handle, its context, and for streams that each thread has under one
/// handle, the thread.
type Key = (usize, usize, Option<ThreadId>);

fn key(stream: &CudaStream) -> Key {
    let handle = stream.cu_stream() as usize;
    let of_thread = handle == PER_THREAD;
    let context = stream.context().cu_ctx() as usize;
    (handle, context, of_thread.then(|| thread::current().id()))
}

fn all() -> MutexGuard<'static, Vec<Begun>> {
    static BEGUN: Mutex<Vec<Begun>> = Mutex::new(Vec::new());
    BEGUN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Recording number `serial` begins.
pub(crate) fn add(serial: u64, stream: &CudaStream, location: &'static Location<'static>) {
    all().push(Begun {
        serial,
        id: 0,
        stream: key(stream),
        location,
    });
}

/// The recording is in another capture now.
pub(crate) fn set_id(serial: u64, id: u64) {
    if let Some(begun) = all().iter_mut().find(|begun| begun.serial == serial) {
        begun.id = id;
    }
}

/// The recording is over.
pub(crate) fn remove(serial: u64) {
    all().retain(|begun| begun.serial != serial);
}

/// Whether the recording is the last that began with this stream.
pub(crate) fn is_last(serial: u64, stream: &CudaStream) -> bool {
    let key = key(stream);
    let all = all();
    let last = all.iter().rfind(|begun| begun.stream == key);
    last.is_some_and(|begun| begun.serial == serial)
}

/// Where the recording began whose capture `stream` takes part in, if it is this library's.
fn at(stream: &CudaStream) -> Option<&'static Location<'static>> {
    let info = capture::info(stream.cu_stream()).ok()?;
    let key = key(stream);
    // The driver gives no number to an invalidated capture.
    let active = info.status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
    let is_it = |begun: &&Begun| match active {
        true => begun.id == info.id,
        false => begun.stream == key,
    };
    let all = all();
    all.iter().rfind(is_it).map(|begun| begun.location)
}

/// [`Error::AlreadyCapturing`] for a stream that would record what it is given and not run it.
pub(crate) fn refuse_captured(stream: &CudaStream) -> Result<()> {
    // The null stream is the current context's.
    super::bind(stream.context())?;
    match capture::is_captured(stream.cu_stream())? {
        false => Ok(()),
        true => Err(Error::AlreadyCapturing { begun: at(stream) }),
    }
}
