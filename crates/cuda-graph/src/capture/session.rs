//! One capture, from its beginning to its end.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use cudarc::driver::sys::{CUresult, CUstreamCaptureMode, CUstreamCaptureStatus};
use cudarc::driver::{CudaStream, DriverError};
use smallvec::SmallVec;

use super::invalidated::CaptureInvalidated;
use crate::graph::{After, Backup, Graph, NodeId, NodeName, NodeSet, View};
use crate::op::{NodeKind, Operation};
use crate::retain::{Fence, drop_after};
use crate::{Error, Owner, Result, driver};

/// What the handles of one capture share.
pub(super) struct Session {
    origin: Arc<CudaStream>,
    view: View,
    begun: &'static Location<'static>,
    /// The driver's number of the capture. Later ones need not be higher.
    id: u64,
    /// This library's: later ones are.
    serial: u64,
    /// Begun and not ended.
    open: AtomicBool,
    /// A copy of the graph as it was before, where it is not the capture's own. When a capture fails, the driver
    /// destroys its graph. None of a body, which the driver does not copy.
    backup: Mutex<Option<Backup>>,
    /// The nodes that a body had before.
    before: Option<Vec<NodeId>>,
    /// The number of the node that was recorded last, counted from 1.
    last: AtomicU32,
    /// What was recorded last beside it, into another graph.
    beside: Mutex<Option<(View, u32)>>,
    /// Nodes that were added and could not be recorded. No node goes while its graph is captured.
    spoilt: Mutex<Vec<NodeId>>,
    /// It does not record: what it is given runs at once.
    eager: bool,
    /// What is to be held by the graph once the capture has gone well, or until what runs at once is over.
    kept: Mutex<Vec<Owner>>,
}

/// A capture that this library began, and did not end.
struct Begun {
    /// The driver's number.
    id: u64,
    stream: StreamKey,
    location: &'static Location<'static>,
}

/// What a stream is told by: its handle; those that every context, and every thread, has under one handle, by these too.
type StreamKey = (usize, usize, Option<ThreadId>);

fn key(stream: &CudaStream) -> StreamKey {
    let handle = stream.cu_stream() as usize;
    let of_thread = handle == driver::stream::PER_THREAD;
    let context = stream.context().cu_ctx() as usize;
    (handle, context, of_thread.then(|| thread::current().id()))
}

type AllBegun = BTreeMap<u64, Begun>;

/// They in the order in which they were begun.
fn begun() -> MutexGuard<'static, AllBegun> {
    static BEGUN: Mutex<AllBegun> = Mutex::new(BTreeMap::new());
    BEGUN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the capture was begun that `stream` takes part in. The driver gives no number to one that was invalidated.
pub(super) fn begun_of(
    stream: &CudaStream,
    info: &driver::capture::Info,
) -> Option<&'static Location<'static>> {
    let key = key(stream);
    let active = info.status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
    let is_it = |begun: &&Begun| match active {
        true => begun.id == info.id,
        false => begun.stream == key,
    };
    begun().values().rfind(is_it).map(|begun| begun.location)
}

impl Session {
    pub(super) fn begin(
        stream: &Arc<CudaStream>,
        into: Option<(&Graph, &dyn NodeSet)>,
        mode: CUstreamCaptureMode,
        location: &'static Location<'static>,
    ) -> Result<Session> {
        driver::choose()?;
        driver::bind(stream.context())?;
        let none = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // Of a stream that cannot be captured the driver says so below.
        if let Ok(info) = driver::capture::info(stream.cu_stream())
            && info.status != none
        {
            return Err(Error::AlreadyCapturing {
                begun: begun_of(stream, &info),
            });
        }
        driver::take_offence();
        let (mut backup, mut before, mut nodes) = (None, None, SmallVec::<[NodeId; 8]>::new());
        let view = match into {
            None => Graph::new(stream.context())?.view(),
            Some((graph, after)) => {
                after.add_to(&mut nodes);
                graph.raw_nodes(&nodes)?;
                match graph.is_in_body() {
                    true => before = Some(graph.nodes()?),
                    false => backup = Some(graph.back_up()?),
                }
                graph.view()
            }
        };
        let graph = Graph::from_view(view.clone());
        let (raw, after) = (graph.raw()?, graph.raw_nodes(&nodes)?);
        if before.is_some() {
            graph.set_captured(true)?;
        }
        driver::capture::begin(stream.cu_stream(), raw, &after, mode).inspect_err(|_| {
            if before.is_some() {
                // It is there: nothing was done to it.
                let _ = graph.set_captured(false);
            }
        })?;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // From here on the capture is ended by being dropped.
        let mut session = Session {
            origin: stream.clone(),
            view,
            begun: location,
            id: 0,
            serial: NEXT.fetch_add(1, Ordering::Relaxed),
            open: AtomicBool::new(true),
            backup: Mutex::new(backup),
            before,
            last: AtomicU32::new(0),
            beside: Mutex::default(),
            spoilt: Mutex::default(),
            eager: false,
            kept: Mutex::default(),
        };
        session.id = driver::capture::info(stream.cu_stream())?.id;
        let here = Begun {
            id: session.id,
            stream: key(stream),
            location,
        };
        begun().insert(session.serial, here);
        Ok(session)
    }

    /// One that runs what it is given at once.
    pub(super) fn eager(
        stream: &Arc<CudaStream>,
        location: &'static Location<'static>,
    ) -> Result<Session> {
        Ok(Session {
            origin: stream.clone(),
            view: Graph::new(stream.context())?.view(),
            begun: location,
            id: 0,
            serial: 0,
            open: AtomicBool::new(false),
            backup: Mutex::default(),
            before: None,
            last: AtomicU32::new(0),
            beside: Mutex::default(),
            spoilt: Mutex::default(),
            eager: true,
            kept: Mutex::default(),
        })
    }

    pub(super) fn is_eager(&self) -> bool {
        self.eager
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn origin(&self) -> &Arc<CudaStream> {
        &self.origin
    }

    pub(super) fn begun(&self) -> &'static Location<'static> {
        self.begun
    }

    /// What it records into.
    pub(super) fn graph(&self) -> Graph {
        Graph::from_view(self.view.clone())
    }

    /// Holds `owner` for as long as what is recorded can run, or what runs at once runs.
    pub(super) fn keep(&self, owner: Owner) {
        lock(&self.kept).push(owner);
    }

    /// What `stream` waits for next.
    ///
    /// # Errors
    ///
    /// INVALIDATED unless it records for this capture: other code may have ended that, and begun another.
    #[inline]
    pub(super) fn position(&self, stream: &CudaStream) -> Result<driver::capture::Info> {
        let info = driver::capture::info(stream.cu_stream())?;
        if info.status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE
            && info.id == self.id
        {
            return Ok(info);
        }
        Err(Error::Call {
            call: "cuStreamGetCaptureInfo",
            source: DriverError(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
        })
    }

    /// A node that does `op` after what `stream` waits for, which the stream's next work waits for in turn.
    pub(super) fn insert<O: Operation>(&self, stream: &CudaStream, op: O) -> Result<NodeId> {
        let info = self.position(stream)?;
        let graph = self.view.as_graph();
        let (node, raw) = if info.edges.is_empty() {
            graph.insert(op, After::Raw(&info.after))?
        } else {
            let (node, raw) = graph.insert(op, After::Raw(&[]))?;
            let to: SmallVec<[_; 8]> = info.after.iter().map(|_| raw).collect();
            if let Err(error) = driver::graph::add_edges(info.graph, &info.after, &to, &info.edges)
            {
                lock(&self.spoilt).push(node);
                return Err(error);
            }
            (node, raw)
        };
        if let Err(error) = driver::capture::set_dependencies(stream.cu_stream(), &[raw]) {
            lock(&self.spoilt).push(node);
            return Err(error);
        }
        self.last.store(node.index() + 1, Ordering::Relaxed);
        Ok(node)
    }

    /// Ends the capture and gives its graph.
    pub(super) fn end(&self) -> Result<Graph> {
        let found = self.look();
        // A capture into a body of it failed, and nobody made that this capture's failure.
        let lost = self.graph().is_gone();
        match self.close(lost) {
            Ok(()) if lost => {
                let source = DriverError(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
                Err(self.invalidated(found, source, None))
            }
            Ok(()) => {
                self.give_back(found);
                self.check_body()?;
                Ok(self.graph())
            }
            Err(source) => Err(self.invalidated(found, source, None)),
        }
    }

    /// Refuses what other code recorded into a body that may not hold it.
    fn check_body(&self) -> Result<()> {
        let graph = self.graph();
        if self.before.is_none() {
            return Ok(());
        }
        let nodes = graph.nodes()?;
        let fits = |node: NodeId| match node.kind() {
            NodeKind::Copy => graph.any_op(node).is_ok_and(|op| op.fits_in_body()),
            kind => kind.fits_in_body(),
        };
        let Some(&refused) = nodes.iter().find(|&&node| !fits(node)) else {
            return Ok(());
        };
        let error = Error::NotInBody {
            node: Box::new(graph.name(refused)),
        };
        self.take_away_new();
        Err(error)
    }

    /// Destroys the nodes that a body did not have before.
    fn take_away_new(&self) {
        let (graph, Some(before)) = (self.graph(), &self.before) else {
            return;
        };
        let taken = graph.nodes().and_then(|nodes| {
            let new = nodes.into_iter().filter(|node| !before.contains(node));
            new.map(|node| graph.destroy(node))
                .fold(Ok(()), Result::and)
        });
        if let Err(error) = taken {
            tracing::error!("nodes of an abandoned capture stay in a body: {error}");
        }
    }

    /// Nodes that are to go when the capture ends.
    pub(super) fn spoil(&self, nodes: &[NodeId]) {
        lock(&self.spoilt).extend_from_slice(nodes);
    }

    /// `node` of `graph` was recorded beside it.
    pub(super) fn note(&self, graph: &Graph, node: NodeId) {
        *lock(&self.beside) = Some((graph.view(), node.index()));
    }

    /// Ends the capture because of an error, or of nothing but that it is dropped. Says what went wrong: the capture,
    /// if it was invalidated, or else the error.
    pub(super) fn abandon(&self, error: Option<Error>) -> Error {
        let found = self.look();
        let closed = if self.is_open() {
            self.close(true)
        } else {
            Ok(())
        };
        let offence = error.as_ref().and_then(driver::capture::code);
        let source = match (closed, offence) {
            (Err(source), _) if source.0 != CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED => source,
            (_, Some(code)) => DriverError(code),
            // Branches that a failure left unjoined are none of its causes.
            (_, None) => match error {
                Some(error) => {
                    self.give_back(found);
                    return error;
                }
                None => DriverError(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED),
            },
        };
        self.invalidated(found, source, error)
    }

    /// Has the driver end the capture. However that goes, it is over.
    fn close(&self, given_up: bool) -> std::result::Result<(), DriverError> {
        self.open.store(false, Ordering::Relaxed);
        // On an error the context is not bound; the stream's is what counts.
        let _ = driver::bind(self.origin.context());
        let end = || match self.is_ours() {
            true => driver::capture::end(self.origin.cu_stream()).map(drop),
            // Other code ended it. Whether its graph is still there, nobody can tell: it is not touched again.
            false => Err(Error::Call {
                call: "cuStreamEndCapture",
                source: DriverError(CUresult::CUDA_ERROR_ILLEGAL_STATE),
            }),
        };
        let mut ended = end();
        if ended.is_err() && self.is_ours() {
            // The call was not made, or came to nothing.
            ended = end();
        }
        begun().remove(&self.serial);
        if self.before.is_some() {
            // A graph that is gone is not captured into.
            let _ = self.graph().set_captured(false);
        }
        match &ended {
            Ok(()) if !given_up => self.settle(),
            _ => self.undo(ended.is_err()),
        }
        ended.map_err(|error| match error {
            Error::Call { source, .. } => source,
            _ => DriverError(CUresult::CUDA_ERROR_UNKNOWN),
        })
    }

    /// Whether the stream still takes part in this capture, as far as can be told.
    fn is_ours(&self) -> bool {
        use CUstreamCaptureStatus as S;
        match driver::capture::info(self.origin.cu_stream()) {
            Ok(info) => match info.status {
                S::CU_STREAM_CAPTURE_STATUS_NONE => false,
                S::CU_STREAM_CAPTURE_STATUS_ACTIVE => self.id == 0 || info.id == self.id,
                // The driver gives no number. Where this library began another on the stream since, it is that.
                S::CU_STREAM_CAPTURE_STATUS_INVALIDATED => {
                    let key = key(&self.origin);
                    let begun = begun();
                    let last = begun.iter().rfind(|(_, begun)| begun.stream == key);
                    self.id == 0 || last.is_some_and(|(serial, _)| *serial == self.serial)
                }
            },
            Err(_) => true,
        }
    }

    /// After an end that went well.
    fn settle(&self) {
        // In statements of their own: dropping what the locks guard runs foreign code.
        let backup = lock(&self.backup).take();
        drop(backup);
        let kept = std::mem::take(&mut *lock(&self.kept));
        let spoilt = std::mem::take(&mut *lock(&self.spoilt));
        let graph = self.graph();
        let kept = kept.into_iter().map(|owner| graph.keep(owner));
        let cleared = spoilt.into_iter().map(|node| graph.destroy(node));
        for error in kept.chain(cleared).filter_map(Result::err) {
            tracing::error!("a graph is not quite what was recorded: {error}");
        }
    }

    /// After a failure: the graph is what it was before, or no more. The driver destroyed it if it is `gone`.
    fn undo(&self, gone: bool) {
        let graph = self.graph();
        let backup = lock(&self.backup).take();
        match backup {
            Some(backup) => graph.restore(backup, gone),
            None if gone => graph.forsake(),
            None if graph.is_gone() => {}
            None => self.take_away_new(),
        }
    }

    /// What is known of the capture while it is there.
    fn look(&self) -> Found {
        let own = self.last.load(Ordering::Relaxed).checked_sub(1);
        let own = own.map(|index| (self.view.clone(), index));
        let last = own.or_else(|| lock(&self.beside).clone());
        Found {
            last: last.map(|(view, index)| Graph::from_view(view).name_of(index)),
            offence: driver::take_offence(),
            kept: self.origin.context().check_err().err(),
        }
    }

    /// What cudarc kept was not ours to take.
    fn give_back(&self, found: Found) {
        if let Some(kept) = found.kept {
            self.origin.context().record_err::<()>(Err(kept));
        }
    }

    fn invalidated(&self, found: Found, source: DriverError, error: Option<Error>) -> Error {
        // That of the end is no news.
        driver::take_offence();
        let offence = found.offence.map(|(call, answer)| Error::Call {
            call,
            source: DriverError(answer),
        });
        let kept = found.kept.map(|source| Error::Foreign { source });
        // An answer that says no more than that the capture was invalid came after the one that did it.
        let says_more = |error: &Error| {
            driver::capture::code(error) != Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        };
        let mut calls: Vec<Error> = [error, offence, kept].into_iter().flatten().collect();
        let first = calls.iter().position(says_more).unwrap_or(0);
        let call = (!calls.is_empty()).then(|| calls.swap_remove(first));
        Error::CaptureInvalidated(Box::new(CaptureInvalidated {
            stream: self.origin.cu_stream() as usize,
            begun: self.begun,
            last: found.last,
            call,
            source,
            tracked: self.origin.context().is_managing_stream_synchronization(),
        }))
    }
}

/// What is asked of a capture before it ends.
struct Found {
    last: Option<NodeName>,
    /// The first call through this library that failed because of a capture.
    offence: Option<(&'static str, CUresult)>,
    /// What cudarc could not answer with it keeps, and would give to the next call, which has nothing to do with it.
    kept: Option<DriverError>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_open() {
            self.abandon(None);
        }
        let kept = std::mem::take(&mut *lock(&self.kept));
        if self.eager && !kept.is_empty() {
            drop_after(Fence::behind(self.origin.clone()), kept);
        }
    }
}
