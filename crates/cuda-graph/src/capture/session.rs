//! The stream of one recording, held between foreign blocks and captured in them.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::{CUgraph, CUresult, CUstreamCaptureMode, CUstreamCaptureStatus};
use cudarc::driver::{CudaContext, CudaStream};

use crate::driver::begun::{self, refuse_captured};
use crate::error::{CaptureInvalidated, NodeKind, NodeName, StrayWork};
use crate::graph::Graph;
use crate::op::Op;
use crate::{Error, Result, driver};

/// Which calls a foreign block forbids while its stream is captured: `cuMemAlloc`, for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CaptureMode {
    /// Such calls of this thread invalidate the block.
    #[default]
    ThreadLocal,
    /// Such calls of any thread invalidate the block.
    Global,
    /// No call invalidates the block for being such.
    Relaxed,
}

impl CaptureMode {
    fn to_driver(self) -> CUstreamCaptureMode {
        use CUstreamCaptureMode as M;
        match self {
            CaptureMode::ThreadLocal => M::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            CaptureMode::Global => M::CU_STREAM_CAPTURE_MODE_GLOBAL,
            CaptureMode::Relaxed => M::CU_STREAM_CAPTURE_MODE_RELAXED,
        }
    }
}

/// The stream of a recording.
pub(crate) struct Session {
    stream: Arc<CudaStream>,
    mode: CaptureMode,
    begun: &'static Location<'static>,
    serial: u64,
    /// The capture that the stream is in, if it is in one of ours.
    capture: Cell<Option<Held>>,
    /// The operation that was recorded last: its name, or its number in `graph`.
    last: RefCell<Option<NodeName>>,
    last_node: Cell<Option<u32>>,
    /// What the recording goes into.
    graph: RefCell<Option<Graph>>,
    /// A foreign block records.
    in_block: Cell<bool>,
    open: Cell<bool>,
    /// Why the stream could not be held again after a block.
    lost: RefCell<Option<Error>>,
}

/// A capture of the session's stream.
#[derive(Clone, Copy)]
struct Held {
    /// The driver's number of it.
    id: u64,
    /// What it records into. An ended hold leaves it to be used again.
    graph: CUgraph,
}

impl Session {
    /// Begins to hold `stream`.
    pub(crate) fn begin(
        stream: &Arc<CudaStream>,
        mode: CaptureMode,
        location: &'static Location<'static>,
    ) -> Result<Rc<Session>> {
        driver::choose()?;
        driver::bind(stream.context())?;
        // The driver reports streams that cannot be captured when the hold begins.
        if driver::capture::status(stream.cu_stream())
            .is_ok_and(|status| status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
        {
            refuse_captured(stream)?;
        }
        driver::take_offence();
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let session = Rc::new(Session {
            stream: stream.clone(),
            mode,
            begun: location,
            serial: NEXT.fetch_add(1, Ordering::Relaxed),
            capture: Cell::new(None),
            last: RefCell::default(),
            last_node: Cell::new(None),
            graph: RefCell::default(),
            in_block: Cell::new(false),
            open: Cell::new(true),
            lost: RefCell::default(),
        });
        begun::add(session.serial, stream, location);
        session.capture_into(driver::graph::create()?, CaptureMode::Relaxed)?;
        Ok(session)
    }

    pub(crate) fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    pub(crate) fn context(&self) -> &Arc<CudaContext> {
        self.stream.context()
    }

    /// The recording goes into `graph`.
    pub(crate) fn set_graph(&self, graph: Graph) {
        *self.graph.borrow_mut() = Some(graph);
    }

    /// An operation was recorded, as no node yet.
    pub(crate) fn note(&self, op: &impl Op) {
        self.last_node.set(None);
        *self.last.borrow_mut() = Some(op.name(None));
    }

    /// A foreign block was recorded, as no node yet.
    pub(crate) fn note_block(&self, location: Option<&'static Location<'static>>) {
        self.last_node.set(None);
        *self.last.borrow_mut() = Some(NodeName {
            location,
            ..NodeName::of_kind(NodeKind::Child, None)
        });
    }

    /// Node `index` of the graph was recorded.
    #[inline]
    pub(crate) fn note_node(&self, index: u32) {
        self.last_node.set(Some(index));
    }

    /// What errors call the operation that was recorded last.
    fn last(&self) -> Option<NodeName> {
        match (self.last_node.get(), &*self.graph.borrow()) {
            (Some(index), Some(graph)) => Some(graph.name(graph.id_of(index, NodeKind::Empty))),
            _ => self.last.borrow().clone(),
        }
    }

    /// Begins to capture the stream into `graph`, which is this session's from here on.
    fn capture_into(&self, graph: CUgraph, mode: CaptureMode) -> Result<()> {
        let raw = self.stream.cu_stream();
        if let Err(error) = driver::capture::begin(raw, graph, &[], mode.to_driver()) {
            destroy(graph);
            return Err(error);
        }
        // From here on the capture is ended when the session is dropped.
        self.capture.set(Some(Held { id: 0, graph }));
        let id = driver::capture::info(raw)?.id;
        self.capture.set(Some(Held { id, graph }));
        begun::set_id(self.serial, id);
        Ok(())
    }

    /// Refuses to go on if the recording is over, or work reached the stream outside of a block.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        let Some(held) = self.capture.get().filter(|_| self.open.get()) else {
            return Err(self.over());
        };
        if self.in_block.get() {
            return Ok(());
        }
        // The stream is asked, not the graph: if other code ended the capture, the graph may be
        // gone. The end says so.
        let info = driver::capture::info(self.stream.cu_stream())?;
        let active = info.status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
        if active && info.id == held.id && !info.after.is_empty() {
            return Err(self.stray(held));
        }
        Ok(())
    }

    /// As [`check`](Session::check), and finds forks of the stream too, which did not come back.
    fn check_all(&self) -> Result<()> {
        self.check()?;
        let Some(held) = self.capture.get().filter(|_| !self.in_block.get()) else {
            return Ok(());
        };
        let info = driver::capture::info(self.stream.cu_stream())?;
        let active = info.status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
        if active && info.id == held.id && !driver::graph::is_empty(held.graph)? {
            return Err(self.stray(held));
        }
        Ok(())
    }

    #[cold]
    fn over(&self) -> Error {
        self.lost.borrow().clone().unwrap_or(Error::RecordingOver)
    }

    /// As [`check`](Session::check), before `op` is recorded.
    #[inline]
    pub(crate) fn check_before(&self, op: &impl Op) -> Result<()> {
        self.check().map_err(|error| match error {
            Error::StrayWork(mut stray) => {
                stray.before = Some(op.name(None));
                Error::StrayWork(stray)
            }
            error => error,
        })
    }

    #[cold]
    fn stray(&self, held: Held) -> Error {
        // The handle is not ours to destroy: the graph is looked at only.
        let found = (|| {
            let graph = Graph::of_raw(self.context(), held.graph, false);
            let nodes = graph.nodes()?;
            Ok::<_, Error>(
                nodes
                    .into_iter()
                    .map(|node| match graph.any_op(node) {
                        Ok(op) => op.name(Some(node.index())),
                        Err(_) => graph.name(node),
                    })
                    .collect(),
            )
        })();
        Error::StrayWork(Box::new(StrayWork {
            stream: self.stream.cu_stream() as usize,
            begun: self.begun,
            found: found.unwrap_or_default(),
            after: self.last(),
            before: None,
        }))
    }

    /// Ends the present capture, whose graph comes back. If the driver destroyed that, the error
    /// says why.
    fn end_capture(&self) -> Result<CUgraph> {
        let Some(held) = self.capture.take() else {
            return Err(Error::RecordingOver);
        };
        let raw = self.stream.cu_stream();
        // On an error the context is not bound; the stream's is what counts.
        let _ = driver::bind(self.context());
        if !self.is_ours(held) {
            // Other code ended it. Whether its graph is still there, nobody can tell: it is not
            // touched again.
            return Err(Error::Call {
                call: "cuStreamEndCapture",
                code: CUresult::CUDA_ERROR_ILLEGAL_STATE,
            });
        }
        let ended = driver::capture::end(raw);
        if ended.is_err() && self.is_ours(held) {
            // The call was not made, or came to nothing.
            return driver::capture::end(raw);
        }
        ended
    }

    /// Whether the stream still takes part in this capture, as far as can be told.
    fn is_ours(&self, held: Held) -> bool {
        use CUstreamCaptureStatus as S;
        match driver::capture::info(self.stream.cu_stream()) {
            Ok(info) => match info.status {
                S::CU_STREAM_CAPTURE_STATUS_NONE => false,
                S::CU_STREAM_CAPTURE_STATUS_ACTIVE => held.id == 0 || info.id == held.id,
                // The driver gives no number. If this library began another capture on the stream
                // since, it is that.
                S::CU_STREAM_CAPTURE_STATUS_INVALIDATED => {
                    begun::is_last(self.serial, &self.stream)
                }
            },
            Err(_) => true,
        }
    }

    /// Begins a foreign block.
    pub(crate) fn begin_block(self: &Rc<Self>) -> Result<Block> {
        if self.in_block.get() {
            return Err(Error::AlreadyCapturing {
                begun: Some(self.begun),
            });
        }
        self.check_all()?;
        let found = self.look();
        let hold = match self.end_capture() {
            Ok(graph) => graph,
            Err(error) => return Err(self.invalidated(found, error, None)),
        };
        self.give_back(found);
        self.in_block.set(true);
        let block = Block {
            session: self.clone(),
            hold: Some(hold),
        };
        // An error ends the block, which is dropped.
        self.capture_into(driver::graph::create()?, self.mode)?;
        Ok(block)
    }

    /// Ends the hold, and the recording with it.
    pub(crate) fn end(&self) -> Result<()> {
        // A block that was forgotten has all that reached the stream since.
        if self.in_block.get() {
            self.give_up();
            return Err(Error::AlreadyCapturing {
                begun: Some(self.begun),
            });
        }
        let checked = self.check_all();
        let found = self.look();
        self.open.set(false);
        let ended = self.end_capture();
        self.close();
        match (checked, ended) {
            (Err(Error::RecordingOver), _) => Err(Error::RecordingOver),
            (Err(stray), ended) => {
                if let Ok(graph) = ended {
                    destroy(graph);
                }
                self.give_back(found);
                Err(stray)
            }
            (Ok(()), Ok(graph)) => {
                // Another thread may have given the stream something since the check.
                let late = match driver::graph::is_empty(graph) {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(self.stray(Held { id: 0, graph })),
                    Err(error) => Err(error),
                };
                destroy(graph);
                self.give_back(found);
                late
            }
            (Ok(()), Err(error)) => Err(self.invalidated(found, error, None)),
        }
    }

    /// Ends the recording because of an error. Returns what went wrong first: the error, or what
    /// invalidated the hold.
    pub(crate) fn abandon(&self, error: Error) -> Error {
        if matches!(error, Error::CaptureInvalidated(_) | Error::StrayWork(_)) {
            self.give_up();
            return error;
        }
        if !self.open.get() {
            return error;
        }
        if let Err(stray @ Error::StrayWork(_)) = self.check_all() {
            self.give_up();
            return stray;
        }
        let found = self.look();
        self.open.set(false);
        let ended = self.end_capture();
        self.close();
        match (ended, error.capture_code()) {
            (Ok(graph), None) => {
                destroy(graph);
                self.give_back(found);
                error
            }
            (Ok(graph), Some(code)) => {
                destroy(graph);
                let call = "cuStreamEndCapture";
                self.invalidated(found, Error::Call { call, code }, Some(error))
            }
            (Err(ended), _) => self.invalidated(found, ended, Some(error)),
        }
    }

    /// Ends the recording, whatever came of it.
    pub(crate) fn give_up(&self) {
        if !self.open.replace(false) {
            return;
        }
        let found = self.look();
        if let Ok(graph) = self.end_capture() {
            destroy(graph);
        }
        self.give_back(found);
        driver::take_offence();
        self.close();
    }

    fn close(&self) {
        begun::remove(self.serial);
    }

    /// What is known of the capture while it is there.
    fn look(&self) -> Found {
        Found {
            offence: driver::take_offence(),
            kept: self.context().check_err().err(),
        }
    }

    /// What cudarc kept was not ours to take.
    fn give_back(&self, found: Found) {
        if let Some(kept) = found.kept {
            self.context().record_err::<()>(Err(kept));
        }
    }

    fn invalidated(&self, found: Found, ended: Error, error: Option<Error>) -> Error {
        // The error from ending the capture repeats the first one.
        driver::take_offence();
        let Error::Call { code: answer, .. } = ended else {
            return error.unwrap_or(ended);
        };
        let offence = found.offence.map(|(call, code)| Error::Call { call, code });
        let kept = found.kept.map(Error::from);
        // An answer that only says that the capture was invalid came after the one that did it.
        let says_more = |error: &Error| {
            error.capture_code() != Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        };
        let mut calls: Vec<Error> = [error, offence, kept].into_iter().flatten().collect();
        let first = calls.iter().position(says_more).unwrap_or(0);
        let call = (!calls.is_empty()).then(|| calls.swap_remove(first));
        Error::CaptureInvalidated(Box::new(CaptureInvalidated {
            stream: self.stream.cu_stream() as usize,
            begun: self.begun,
            last: self.last(),
            call,
            answer,
            tracked: self.context().is_managing_stream_synchronization(),
        }))
    }
}

/// What is asked of a capture before it ends.
struct Found {
    /// The first call through this library that failed because of a capture.
    offence: Option<(&'static str, CUresult)>,
    /// cudarc keeps errors that it could not return, and would give them to the next call, which
    /// has nothing to do with them.
    kept: Option<cudarc::driver::DriverError>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.give_up();
    }
}

fn destroy(graph: CUgraph) {
    if let Err(error) = driver::graph::destroy(graph) {
        tracing::error!("an empty graph leaks: {error}");
    }
}

/// A foreign block: the stream is captured into a graph of the block's own until it ends.
pub(crate) struct Block {
    session: Rc<Session>,
    /// The graph of the hold, to go on with. None once the block has ended.
    hold: Option<CUgraph>,
}

impl Block {
    pub(crate) fn stream(&self) -> &Arc<CudaStream> {
        &self.session.stream
    }

    /// Ends the block. Returns its graph, or what invalidated the block.
    pub(crate) fn end(mut self) -> Result<CUgraph> {
        let found = self.session.look();
        let ended = self.session.end_capture();
        self.go_on();
        match ended {
            Ok(graph) => {
                self.session.give_back(found);
                Ok(graph)
            }
            Err(error) => Err(self.session.invalidated(found, error, None)),
        }
    }

    /// Ends the block because of an error. Returns what went wrong first.
    pub(crate) fn abandon(mut self, error: Error) -> Error {
        let found = self.session.look();
        let ended = self.session.end_capture();
        self.go_on();
        let unjoined = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        match (ended, error.capture_code()) {
            // Forks that a failure left unjoined are none of its causes.
            (Err(ended), None) if ended.is(unjoined) => {
                self.session.give_back(found);
                error
            }
            (Err(ended), _) => self.session.invalidated(found, ended, Some(error)),
            (Ok(graph), code) => {
                destroy(graph);
                match code {
                    None => {
                        self.session.give_back(found);
                        error
                    }
                    Some(code) => {
                        let call = "cuStreamEndCapture";
                        let ended = Error::Call { call, code };
                        self.session.invalidated(found, ended, Some(error))
                    }
                }
            }
        }
    }

    /// Holds the stream again. If that fails, the recording is over.
    fn go_on(&mut self) {
        let Some(hold) = self.hold.take() else {
            return;
        };
        self.session.in_block.set(false);
        // The recording was abandoned meanwhile: nobody would end another hold.
        if !self.session.open.get() {
            return destroy(hold);
        }
        if let Err(error) = self.session.capture_into(hold, CaptureMode::Relaxed) {
            *self.session.lost.borrow_mut() = Some(error);
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.hold.is_some() {
            let found = self.session.look();
            if let Ok(graph) = self.session.end_capture() {
                destroy(graph);
            }
            driver::take_offence();
            self.session.give_back(found);
            self.go_on();
        }
    }
}
