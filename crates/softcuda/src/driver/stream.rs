//! Streams: created ones, the legacy default stream of each context, and the default stream of each
//! thread.
//!
//! Invariant: a stream's queue is closed when nobody can submit to it any more, so what it holds
//! still runs and still counts for the legacy stream and for the synchronization of its context.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::capture::{self, Seat};
use super::context::{self, Context};
use super::handle::{Found, Table};
use super::{CUresult, Result, failure};
use crate::abi::NullStream;
use crate::abi::types::CUstream;
use crate::engine::{Domain, Failure, Marker, Queue, Role, Step};

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// The handle of the legacy default stream.
const LEGACY: usize = 1;
/// The handle of the calling thread's default stream.
const PER_THREAD: usize = 2;
/// The priorities of streams: 0 is the lowest, this the highest.
pub(crate) const GREATEST_PRIORITY: i32 = -5;

static STREAMS: Table<Stream> = Table::new(2);

/// What a context keeps about its streams.
pub(crate) struct Streams {
    domain: Arc<Domain>,
    legacy: Arc<Lane>,
}

impl Streams {
    /// Of a new context.
    pub fn new() -> Self {
        let domain = Arc::new(Domain::new(Arc::new(failure::OfProcess)));
        let legacy = Arc::new(Lane::new(&domain, domain.legacy().clone(), LEGACY, 0, 0));
        Streams { domain, legacy }
    }

    /// Waits for all work.
    pub fn synchronize(&self) {
        self.domain.synchronize_all();
    }

    /// A number that tells contexts apart.
    pub fn tag(&self) -> usize {
        tag(&self.domain)
    }

    /// A marker for each stream that has work, after all of it.
    pub fn mark(&self) -> Vec<Arc<Marker>> {
        self.domain.mark_all()
    }
}

fn tag(domain: &Arc<Domain>) -> usize {
    Arc::as_ptr(domain) as usize
}

/// A stream without its context, so that a context can hold its own.
struct Lane {
    domain: Arc<Domain>,
    queue: Arc<Queue>,
    handle: usize,
    flags: u32,
    priority: i32,
    id: u64,
    seat: Arc<Seat>,
    /// `CUlaunchAttributeID` to value, where one was set.
    attributes: Mutex<HashMap<u32, Attribute>>,
}

/// `CUlaunchAttributeValue`: 64 bytes.
pub(crate) type Attribute = [u64; 8];

impl Lane {
    fn new(
        domain: &Arc<Domain>,
        queue: Arc<Queue>,
        handle: usize,
        flags: u32,
        priority: i32,
    ) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let blocking = queue.role() == Role::Blocking;
        Lane {
            domain: domain.clone(),
            queue,
            handle,
            flags,
            priority,
            id,
            seat: Seat::new(id, tag(domain), blocking),
            attributes: Mutex::default(),
        }
    }

    fn open(domain: &Arc<Domain>, handle: usize, flags: u32, priority: i32) -> Self {
        let role = match flags & NON_BLOCKING {
            0 => Role::Blocking,
            _ => Role::NonBlocking,
        };
        let queue = domain.open(role, (priority - GREATEST_PRIORITY) as usize);
        Lane::new(domain, queue, handle, flags, priority)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        capture::leave(&self.seat);
        self.domain.close(&self.queue);
    }
}

/// A stream.
pub(crate) struct Stream {
    context: Arc<Context>,
    lane: Arc<Lane>,
}

/// The stream that a handle means in a call of the current thread; the null handle and the special
/// ones mean the current context's default streams. A stream of a context that failed or was
/// destroyed answers with that, and one in a capture that was invalidated.
pub(crate) fn resolve(handle: CUstream, null: NullStream) -> Result<Arc<Stream>> {
    let stream = resolve_quietly(handle, null)?;
    capture::admit(&stream)?;
    Ok(stream)
}

/// As [`resolve`], for a call that no capture records: it fails for a stream in one, and
/// invalidates the capture.
pub(crate) fn resolve_to_run(handle: CUstream, null: NullStream) -> Result<Arc<Stream>> {
    let stream = resolve_quietly(handle, null)?;
    capture::refuse(&stream)?;
    Ok(stream)
}

/// As [`resolve`], whatever capture the stream is in.
pub(crate) fn resolve_quietly(handle: CUstream, null: NullStream) -> Result<Arc<Stream>> {
    let stream = find(handle, null)?;
    stream.context.check()?;
    Ok(stream)
}

fn find(handle: CUstream, null: NullStream) -> Result<Arc<Stream>> {
    let handle = match (handle.0, null) {
        (0, NullStream::Legacy) => LEGACY,
        (0, NullStream::PerThread) => PER_THREAD,
        (handle, _) => handle,
    };
    match handle {
        LEGACY => {
            let context = context::usable()?;
            let lane = context.streams.legacy.clone();
            Ok(Arc::new(Stream { context, lane }))
        }
        PER_THREAD => {
            let context = context::usable()?;
            let lane = per_thread(&context)?;
            Ok(Arc::new(Stream { context, lane }))
        }
        _ => {
            super::init::check()?;
            match STREAMS.get(handle) {
                Found::Live(stream) => Ok(stream),
                // A real driver crashes on it.
                Found::Destroyed | Found::Unknown => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
            }
        }
    }
}

/// The calling thread's default stream in a context; it ends with the thread.
fn per_thread(context: &Context) -> Result<Arc<Lane>> {
    thread_local! {
        static OWN: RefCell<HashMap<u64, Arc<Lane>>> = RefCell::new(HashMap::new());
    }
    OWN.try_with(|own| {
        let mut own = own.borrow_mut();
        if !own.contains_key(&context.id()) {
            // A new stream is a rare moment: those of contexts that are gone go now.
            let live: HashSet<u64> = context::all().iter().map(|context| context.id()).collect();
            own.retain(|id, _| live.contains(id));
        }
        let lane = own
            .entry(context.id())
            .or_insert_with(|| Arc::new(Lane::open(&context.streams.domain, PER_THREAD, 0, 0)));
        lane.clone()
    })
    .map_err(|_| CUresult::CUDA_ERROR_DEINITIALIZED)
}

/// `cuStreamCreateWithPriority`; a priority out of range is brought into it.
pub(crate) fn create(context: &Arc<Context>, flags: u32, priority: i32) -> Result<CUstream> {
    if flags & !NON_BLOCKING != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let stream = STREAMS.insert(|handle| {
        let priority = priority.clamp(GREATEST_PRIORITY, 0);
        let lane = Arc::new(Lane::open(&context.streams.domain, handle, flags, priority));
        Stream {
            context: context.clone(),
            lane,
        }
    });
    Ok(stream.handle())
}

/// `cuStreamDestroy`: what the stream was given still runs.
pub(crate) fn destroy(handle: CUstream) -> Result {
    if matches!(handle.0, 0 | LEGACY | PER_THREAD) {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    failure::check_if_current()?;
    match STREAMS.remove(handle.0) {
        Found::Live(stream) => {
            capture::leave(&stream.lane.seat);
            Ok(())
        }
        Found::Destroyed | Found::Unknown => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
    }
}

/// Waits for all work of a context; answers its sticky error.
pub(crate) fn synchronize_context(context: &Context) -> Result {
    context.streams.synchronize();
    context.notice()
}

/// The streams of a context that have handles, and its legacy one.
pub(crate) fn all_of(context: &Arc<Context>) -> Vec<Arc<Stream>> {
    let lane = context.streams.legacy.clone();
    let legacy = Arc::new(Stream {
        context: context.clone(),
        lane,
    });
    let created = STREAMS.all().into_iter();
    created
        .filter(|stream| stream.context.id() == context.id())
        .chain([legacy])
        .collect()
}

/// The context ends: the handles of its streams mean nothing any more.
pub(crate) fn end_context(context: &Context) {
    capture::end_context(context);
    for stream in STREAMS.all() {
        if stream.context.id() == context.id() {
            STREAMS.remove(stream.lane.handle);
        }
    }
}

impl Stream {
    /// Its handle; of a default stream, the special one.
    pub fn handle(&self) -> CUstream {
        CUstream(self.lane.handle)
    }

    /// The context it belongs to.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// `cuStreamGetFlags`.
    pub fn flags(&self) -> u32 {
        self.lane.flags
    }

    /// `cuStreamGetPriority`.
    pub fn priority(&self) -> i32 {
        self.lane.priority
    }

    /// `cuStreamGetId`: unique among all streams ever made.
    pub fn id(&self) -> u64 {
        self.lane.id
    }

    /// Its place in captures.
    pub fn seat(&self) -> &Arc<Seat> {
        &self.lane.seat
    }

    /// What it is given is recorded.
    pub fn is_capturing(&self) -> bool {
        self.lane.seat.is_taken()
    }

    /// It is the legacy default stream.
    pub fn is_legacy(&self) -> bool {
        self.lane.handle == LEGACY
    }

    /// Puts work behind all that the stream was given before. The work's error becomes the
    /// context's sticky one.
    pub fn submit(&self, task: impl FnOnce() -> Result + Send + 'static) -> Result {
        self.push(Step::Device(Box::new(move || {
            task().map_err(|error| Failure(error.0))
        })))
    }

    /// As [`submit`](Self::submit), for work on so few bytes that the calling thread may do it at
    /// once when it is its turn.
    pub fn submit_sized(
        &self,
        bytes: u64,
        task: impl FnOnce() -> Result + Send + 'static,
    ) -> Result {
        /// What takes less time to do than to hand to another thread.
        const BRIEF: u64 = 64 << 10;
        let work = Box::new(move || task().map_err(|error| Failure(error.0)));
        self.push(match bytes <= BRIEF {
            true => Step::Brief(work),
            false => Step::Device(work),
        })
    }

    /// Puts a step behind all that the stream was given before.
    pub fn push(&self, step: Step) -> Result {
        self.context.check()?;
        self.lane.domain.submit(&self.lane.queue, step);
        Ok(())
    }

    /// A marker after all that the stream was given.
    pub fn record(&self) -> Result<Arc<Marker>> {
        self.context.check()?;
        Ok(self.lane.domain.record(&self.lane.queue))
    }

    /// Later work of the stream waits for a marker, of any context.
    pub fn wait(&self, marker: Arc<Marker>) -> Result {
        match marker.fired() {
            true => self.context.check(),
            false => self.push(Step::Wait(marker)),
        }
    }

    /// Waits for all work that the stream was given.
    pub fn synchronize(&self) -> Result {
        self.context.notice()?;
        self.lane.domain.synchronize(&self.lane.queue);
        self.context.notice()
    }

    /// `cuStreamQuery`: `CUDA_ERROR_NOT_READY` while there is work.
    pub fn query(&self) -> Result {
        self.context.notice()?;
        match self.lane.domain.is_idle(&self.lane.queue) {
            true => self.context.notice(),
            false => Err(CUresult::CUDA_ERROR_NOT_READY),
        }
    }

    /// `cuStreamGetAttribute`.
    pub fn attribute(&self, id: u32) -> Result<Attribute> {
        let default = match id {
            attribute::ACCESS_POLICY_WINDOW | attribute::MEM_SYNC_DOMAIN => [0; 8],
            attribute::SYNCHRONIZATION_POLICY => words(&[u32::MAX]),
            attribute::PRIORITY => words(&[self.lane.priority as u32]),
            // A map of two bytes: the default domain and the remote one.
            attribute::MEM_SYNC_DOMAIN_MAP => words(&[0x0100]),
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        Ok(self
            .lane
            .attributes
            .lock()
            .get(&id)
            .copied()
            .unwrap_or(default))
    }

    /// `cuStreamSetAttribute`.
    pub fn set_attribute(&self, id: u32, mut value: Attribute) -> Result {
        let first = value[0] as u32;
        let fine = match id {
            attribute::ACCESS_POLICY_WINDOW => true,
            attribute::SYNCHRONIZATION_POLICY => (1..=4).contains(&first),
            attribute::PRIORITY => {
                value[0] = u64::from((first as i32).clamp(GREATEST_PRIORITY, 0) as u32);
                true
            }
            attribute::MEM_SYNC_DOMAIN => first <= 1,
            attribute::MEM_SYNC_DOMAIN_MAP => true,
            _ => false,
        };
        if !fine {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.lane.attributes.lock().insert(id, value);
        Ok(())
    }

    /// `cuStreamCopyAttributes`: takes over those of another stream of the same context.
    pub fn copy_attributes(&self, from: &Stream) -> Result {
        if self.context.id() != from.context.id() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let theirs = from.lane.attributes.lock().clone();
        *self.lane.attributes.lock() = theirs;
        Ok(())
    }
}

/// Attributes of streams: `CUstreamAttrID`, which are some of `CUlaunchAttributeID`.
mod attribute {
    pub const ACCESS_POLICY_WINDOW: u32 = 1;
    pub const SYNCHRONIZATION_POLICY: u32 = 3;
    pub const PRIORITY: u32 = 8;
    pub const MEM_SYNC_DOMAIN_MAP: u32 = 9;
    pub const MEM_SYNC_DOMAIN: u32 = 10;
}

/// An attribute value that starts with these 32-bit words.
fn words(words: &[u32]) -> Attribute {
    let mut value = [0; 8];
    for (index, &word) in words.iter().enumerate() {
        value[index / 2] |= u64::from(word) << (index % 2 * 32);
    }
    value
}
