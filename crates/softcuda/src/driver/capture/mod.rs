//! Stream capture: what streams are given becomes nodes of a graph instead of running.
//!
//! | file | is |
//! |---|---|
//! | `mod` | captures: begun, joined by streams, invalidated, ended |
//! | `mode` | what a capture forbids to other calls, by its mode and the calling thread's |
//! | `record` | operations that become nodes |
//! | `event` | events recorded in a capture, forks and joins |
//! | `info` | what the program may ask of a capture, and the dependencies that it may set |
//!
//! A stream in a capture has *dependencies*: the nodes that its next node will depend on. A new
//! node takes their place. An event recorded in the stream is a copy of them; a stream that waits
//! for it takes part in the capture from then on, with these as well.
//!
//! A call that puts work into a stream asks the stream's seat after it has checked the stream. In a
//! capture the request that would have become a step becomes the operation of a node.
//!
//! *Open* nodes are those that no later node of the capture depends on. At the end each must be
//! among the dependencies of the stream where the capture was begun, have got an edge from the
//! program, or have been taken out of a stream's dependencies by the program.
//!
//! What cannot be recorded invalidates: calls that wait for members or ask about them, waits for
//! work outside, the legacy stream beside a blocking member, unsafe calls as the modes of captures
//! and threads say. Then every member is an ordinary stream again once the capture has ended.
//!
//! Invariants:
//! - a stream takes part in one capture at most, and its [`Seat`] names it exactly as long as the
//!   capture has the stream as a member;
//! - dependencies are nodes of the capture's graph: a graph that is captured to loses no node;
//! - a capture that was invalidated records nothing more and ends without a graph;
//! - while nothing is captured, a call pays one relaxed load for all of this.
//!
//! Lock order: [`ONGOING`], then a graph's. Graphs are dismantled, and events changed, without it.

mod event;
mod info;
mod mode;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::context::Context;
use super::graph::definition::{self, Graph};
use super::graph::edge::{Edge, Edges};
use super::stream::Stream;
use super::{CUresult, Result};
use crate::abi::types::CUgraph;

pub(crate) use event::Captured;
pub(crate) use info::{Info, info, update};
pub(crate) use mode::{Mode, exchange, permit};
pub(crate) use record::{alloc, copy, fill, free, launch, record, record_external, wait_external};

/// The captures that have begun and not ended, by id.
static ONGOING: Mutex<BTreeMap<u64, Capture>> = Mutex::new(BTreeMap::new());
/// How many these are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A stream's place in captures.
pub(crate) struct Seat {
    /// The stream's id.
    stream: u64,
    /// Which context's it is, as a number that tells contexts apart.
    context: usize,
    /// The legacy stream waits for it, and it for the legacy stream.
    blocking: bool,
    /// The id of the capture that it takes part in; 0 for none. Changes under the lock of
    /// [`ONGOING`].
    capture: AtomicU64,
}

impl Seat {
    /// Of a stream in no capture.
    pub fn new(stream: u64, context: usize, blocking: bool) -> Arc<Seat> {
        Arc::new(Seat {
            stream,
            context,
            blocking,
            capture: AtomicU64::new(0),
        })
    }

    /// Its stream takes part in a capture.
    pub fn is_taken(&self) -> bool {
        any() && self.capture.load(Ordering::Acquire) != 0
    }
}

/// A capture.
struct Capture {
    mode: Mode,
    /// The thread that began it.
    thread: u64,
    /// The stream that it was begun on.
    origin: u64,
    graph: Arc<Graph>,
    invalid: bool,
    members: Vec<Member>,
    /// Recorded nodes that no node recorded later depends on. Those that the program took out of a
    /// stream's dependencies are not among them.
    open: BTreeSet<usize>,
}

/// A stream in a capture.
struct Member {
    seat: Arc<Seat>,
    dependencies: Edges,
    /// The dependencies as the program was shown them.
    shown: Option<info::Shown>,
}

impl Member {
    fn new(seat: Arc<Seat>, dependencies: Edges) -> Member {
        Member {
            seat,
            dependencies,
            shown: None,
        }
    }

    fn set(&mut self, dependencies: Edges) {
        self.dependencies = dependencies;
        self.shown = None;
    }

    /// Depends on these as well.
    fn join(&mut self, others: &[Edge]) {
        let mut all = std::mem::take(&mut self.dependencies);
        others.iter().for_each(|&edge| merge(&mut all, edge));
        self.set(all);
    }
}

/// Adds a dependency. Two on one node with different data are a full one.
fn merge(all: &mut Edges, edge: Edge) {
    match all.iter_mut().find(|it| it.node == edge.node) {
        None => all.push(edge),
        Some(there) if there.data == edge.data => {}
        Some(there) => there.data = Default::default(),
    }
}

impl Capture {
    /// Fails where it was invalidated.
    fn check(&self) -> Result {
        match self.invalid {
            false => Ok(()),
            true => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
        }
    }

    fn has_context(&self, context: usize) -> bool {
        let mut members = self.members.iter();
        members.any(|member| member.seat.context == context)
    }

    fn holds_up_legacy(&self, context: usize) -> bool {
        let mut seats = self.members.iter().map(|member| &member.seat);
        seats.any(|seat| seat.context == context && seat.blocking)
    }

    /// Every branch has come back to the stream that the capture was begun on.
    fn is_joined(&self) -> bool {
        let origin = self.members.iter();
        let mut origin = origin.filter(|member| member.seat.stream == self.origin);
        let Some(origin) = origin.next() else {
            return false;
        };
        let joined: BTreeSet<usize> = origin.dependencies.iter().map(|it| it.node).collect();
        let mut left = self.open.iter().filter(|node| !joined.contains(node));
        left.all(|&node| self.graph.has_dependents(node))
    }
}

/// Something is captured, somewhere.
fn any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Looks at the capture that a stream takes part in, and the stream's place among its members.
fn with<R>(seat: &Seat, f: impl FnOnce(&mut Capture, usize) -> Result<R>) -> Result<R> {
    const NONE: CUresult = CUresult::CUDA_ERROR_ILLEGAL_STATE;
    let mut ongoing = ONGOING.lock();
    let id = seat.capture.load(Ordering::Relaxed);
    let capture = ongoing.get_mut(&id).ok_or(NONE)?;
    let mut members = capture.members.iter();
    let place = members.position(|member| member.seat.stream == seat.stream);
    f(capture, place.ok_or(NONE)?)
}

/// Invalidates the captures that `which` says; true where there are some.
fn invalidate(which: impl Fn(u64, &Capture) -> bool) -> bool {
    let mut found = false;
    for (&id, capture) in ONGOING.lock().iter_mut() {
        if which(id, capture) {
            capture.invalid = true;
            found = true;
        }
    }
    found
}

/// Takes a capture out; its streams are free again.
fn remove(ongoing: &mut BTreeMap<u64, Capture>, id: u64) -> Option<Capture> {
    let capture = ongoing.remove(&id)?;
    COUNT.fetch_sub(1, Ordering::Relaxed);
    for member in &capture.members {
        member.seat.capture.store(0, Ordering::Release);
    }
    Some(capture)
}

/// What a capture leaves when it fails: not even the graph that it was to add to.
fn discard(captures: impl IntoIterator<Item = Capture>) {
    for capture in captures {
        capture.graph.dismantle();
    }
}

/// `cuStreamBeginCapture`, and to a graph after some of its nodes.
pub(crate) fn begin(stream: &Stream, mode: Mode, to: Option<(Arc<Graph>, Edges)>) -> Result {
    static IDS: AtomicU64 = AtomicU64::new(1);
    if stream.is_legacy() {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let seat = stream.seat();
    let mut ongoing = ONGOING.lock();
    if seat.is_taken() {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    let (graph, dependencies) = match to {
        Some((graph, after)) => {
            let after = info::checked(&after, &graph)?;
            (graph, after)
        }
        None => (definition::new_graph(), Edges::new()),
    };
    graph.begin_capture(&dependencies)?;
    let id = IDS.fetch_add(1, Ordering::Relaxed);
    let capture = Capture {
        mode,
        thread: mode::thread(),
        origin: seat.stream,
        graph,
        invalid: false,
        members: vec![Member::new(seat.clone(), dependencies)],
        open: BTreeSet::new(),
    };
    ongoing.insert(id, capture);
    COUNT.fetch_add(1, Ordering::Relaxed);
    seat.capture.store(id, Ordering::Release);
    Ok(())
}

/// `cuStreamEndCapture`: whatever it answers, a capture that was begun on the stream is over.
pub(crate) fn end(stream: &Stream) -> Result<CUgraph> {
    let seat = stream.seat();
    let mut ongoing = ONGOING.lock();
    let id = seat.capture.load(Ordering::Relaxed);
    let capture = ongoing.get_mut(&id);
    let capture = capture.ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    if capture.origin != seat.stream {
        capture.invalid = true;
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    let foreign = capture.mode != Mode::Relaxed && capture.thread != mode::thread();
    let fault = match () {
        () if capture.invalid => Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
        () if !capture.is_joined() => Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED),
        () if foreign => Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD),
        () => None,
    };
    let ended = remove(&mut ongoing, id);
    drop(ongoing);
    let ended = ended.ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    match fault {
        None => {
            ended.graph.end_capture()?;
            Ok(ended.graph.handle())
        }
        Some(fault) => {
            discard([ended]);
            Err(fault)
        }
    }
}

/// A stream ends: the capture that was begun on it with it; another goes on without it.
pub(crate) fn leave(seat: &Seat) {
    if !seat.is_taken() {
        return;
    }
    let mut ongoing = ONGOING.lock();
    let id = seat.capture.load(Ordering::Relaxed);
    let Some(capture) = ongoing.get_mut(&id) else {
        return;
    };
    if capture.origin == seat.stream {
        let ended = remove(&mut ongoing, id);
        drop(ongoing);
        discard(ended);
        return;
    }
    let mut members = capture.members.iter();
    if let Some(place) = members.position(|member| member.seat.stream == seat.stream) {
        capture.members.remove(place);
    }
    seat.capture.store(0, Ordering::Release);
}

/// A context ends: captures that were begun on its streams with it; others go on without them.
pub(crate) fn end_context(context: &Context) {
    let tag = context.streams.tag();
    let ended: Vec<Arc<Seat>> = {
        let ongoing = ONGOING.lock();
        let members = ongoing.values().flat_map(|capture| &capture.members);
        let seats = members.map(|member| &member.seat);
        seats.filter(|seat| seat.context == tag).cloned().collect()
    };
    ended.iter().for_each(|seat| leave(seat));
}

/// Checks a stream that a call names: the legacy stream is of no use while a stream that it waits
/// for is in a capture, and asking invalidates; a stream in a capture that was invalidated takes
/// nothing.
pub(crate) fn admit(stream: &Stream) -> Result {
    if !any() {
        return Ok(());
    }
    let seat = stream.seat();
    if stream.is_legacy() {
        let implied = invalidate(|_, capture| capture.holds_up_legacy(seat.context));
        return match implied {
            true => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
            false => Ok(()),
        };
    }
    match seat.is_taken() {
        true => with(seat, |capture, _| capture.check()),
        false => Ok(()),
    }
}

/// Fails for a stream in a capture, which it invalidates: for calls that a capture can make nothing
/// of. So does [`admit`] for the legacy stream.
pub(crate) fn refuse(stream: &Stream) -> Result {
    if !any() {
        return Ok(());
    }
    if stream.is_legacy() {
        return admit(stream);
    }
    match stream.seat().is_taken() {
        false => Ok(()),
        true => Err(fail(
            stream,
            CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        )),
    }
}

/// Invalidates the capture that a stream takes part in; gives the error back.
pub(crate) fn fail(stream: &Stream, error: CUresult) -> CUresult {
    let _ = with(stream.seat(), |capture, _| {
        capture.invalid = true;
        Ok(())
    });
    error
}

/// Fails while streams of a context are in captures, which it invalidates: for calls that are about
/// all streams of the context.
pub(crate) fn refuse_context(context: &Context) -> Result {
    if !any() {
        return Ok(());
    }
    let context = context.streams.tag();
    match invalidate(|_, capture| capture.has_context(context)) {
        true => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        false => Ok(()),
    }
}
