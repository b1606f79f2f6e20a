//! The stream of one recording, held between foreign blocks and captured in them.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::{CUgraph, CUresult, CUstreamCaptureMode, CUstreamCaptureStatus};
use cudarc::driver::{CudaContext, CudaStream, DriverError};

use crate::driver::begun::{self, refuse_captured};
use crate::error::{CaptureInvalidated, NodeKind, NodeName, StrayWork};
use crate::graph::{Graph, NodeId};
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
    /// What the recording goes into.
    graph: Graph,
    last: RefCell<Last>,
    /// A foreign block records.
    in_block: Cell<bool>,
    open: Cell<bool>,
    /// Why the stream could not be held again after a block.
    lost: RefCell<Option<Error>>,
}

/// The operation that was recorded last.
#[derive(Default)]
enum Last {
    #[default]
    Nothing,
    /// A node of the session's graph.
    Node(u32),
    /// It is no node yet.
    Planned(NodeName),
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
    /// Begins to hold `stream`, for a recording that goes into `graph`.
    pub(crate) fn begin(
        graph: Graph,
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
            graph,
            last: RefCell::default(),
            in_block: Cell::new(false),
            open: Cell::new(true),
            lost: RefCell::default(),
        });
        begun::add(session.serial, stream, location);
        session.capture_into(driver::graph::create()?, CaptureMode::Relaxed)?;
        Ok(session)
    }

    fn context(&self) -> &Arc<CudaContext> {
        self.stream.context()
    }

    /// An operation was recorded, as no node yet.
    pub(crate) fn note(&self, name: NodeName) {
        *self.last.borrow_mut() = Last::Planned(name);
    }

    /// Node `index` of the graph was recorded.
    #[inline]
    pub(crate) fn note_node(&self, index: u32) {
        *self.last.borrow_mut() = Last::Node(index);
    }

    /// What errors call the operation that was recorded last.
    fn last(&self) -> Option<NodeName> {
        match &*self.last.borrow() {
            Last::Nothing => None,
            Last::Node(index) => Some(self.graph.name(self.graph.id_of(*index, NodeKind::Empty))),
            Last::Planned(name) => Some(name.clone()),
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
        self.check_hold(false)
    }

    /// As [`check`](Session::check). With `forks`, work in forks of the stream that did not come
    /// back is found too.
    #[inline]
    fn check_hold(&self, forks: bool) -> Result<()> {
        let Some(held) = self.capture.get().filter(|_| self.open.get()) else {
            return Err(self.lost.borrow().clone().unwrap_or(Error::RecordingOver));
        };
        if self.in_block.get() {
            return Ok(());
        }
        // The stream is asked first: if other code ended the capture, the graph may be gone. The
        // end says so.
        let info = driver::capture::info(self.stream.cu_stream())?;
        let active = info.status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
        if active
            && info.id == held.id
            && (!info.after.is_empty() || forks && !driver::graph::is_empty(held.graph)?)
        {
            return Err(self.stray(held.graph));
        }
        Ok(())
    }

    /// As [`check`](Session::check), before `op` is recorded.
    #[inline]
    pub(crate) fn check_before(&self, op: &impl Op) -> Result<()> {
        self.check().map_err(|mut error| {
            if let Error::StrayWork(stray) = &mut error {
                stray.before = Some(op.name(None));
            }
            error
        })
    }

    #[cold]
    fn stray(&self, raw: CUgraph) -> Error {
        // The handle is not ours to destroy: the graph is looked at only.
        let graph = Graph::of_raw(self.context(), raw, false);
        let name = |node: NodeId| match graph.any_op(node) {
            Ok(op) => op.name(Some(node.index())),
            Err(_) => graph.name(node),
        };
        let found = graph.nodes().unwrap_or_default();
        Error::StrayWork(Box::new(StrayWork {
            stream: self.stream.cu_stream() as usize,
            begun: self.begun,
            found: found.into_iter().map(name).collect(),
            after: self.last(),
            before: None,
        }))
    }

    /// Ends the present capture, with what is known of it while it is there.
    fn end_capture(&self) -> Ended {
        let offence = driver::take_offence();
        let kept = self.context().check_err().err();
        let graph = self.graph_of_capture();
        // The error from ending the capture repeats the first one.
        driver::take_offence();
        Ended {
            graph,
            offence: offence.map(|(call, code)| Error::Call { call, code }),
            kept,
        }
    }

    fn graph_of_capture(&self) -> Result<CUgraph> {
        let held = self.capture.take().ok_or(Error::RecordingOver)?;
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
        let Ok(info) = driver::capture::info(self.stream.cu_stream()) else {
            return true;
        };
        match info.status {
            S::CU_STREAM_CAPTURE_STATUS_NONE => false,
            S::CU_STREAM_CAPTURE_STATUS_ACTIVE => held.id == 0 || info.id == held.id,
            // The driver gives no number. If this library began another capture on the stream
            // since, it is that.
            S::CU_STREAM_CAPTURE_STATUS_INVALIDATED => begun::is_last(self.serial, &self.stream),
        }
    }

    fn already_capturing(&self) -> Error {
        Error::AlreadyCapturing {
            begun: Some(self.begun),
        }
    }

    /// Begins a foreign block.
    pub(crate) fn begin_block(self: &Rc<Self>) -> Result<Block> {
        if self.in_block.get() {
            return Err(self.already_capturing());
        }
        self.check_hold(true)?;
        let (hold, ()) = self.judge(self.end_capture(), Ok(()))?;
        self.in_block.set(true);
        let block = Block {
            session: self.clone(),
            hold: Some(hold),
        };
        // An error ends the block, which is dropped.
        self.capture_into(driver::graph::create()?, self.mode)?;
        Ok(block)
    }

    /// Ends the hold, and the recording with it, which came to `recorded`. An error is what went
    /// wrong first: that of the recording, or what invalidated the hold.
    pub(crate) fn end<T>(&self, recorded: Result<T>) -> Result<T> {
        let is_told =
            |error: &Error| matches!(error, Error::CaptureInvalidated(_) | Error::StrayWork(_));
        let known = match &recorded {
            // A block that was forgotten has all that reached the stream since.
            Ok(_) if self.in_block.get() => Some(self.already_capturing()),
            Ok(_) => self.check_hold(true).err(),
            Err(error) if !self.open.get() || is_told(error) => Some(error.clone()),
            Err(_) => {
                let checked = self.check_hold(true).err();
                checked.filter(|error| matches!(error, Error::StrayWork(_)))
            }
        };
        if let Some(error) = known {
            self.give_up();
            return Err(error);
        }
        self.open.set(false);
        let ended = self.end_capture();
        begun::remove(self.serial);
        let (graph, value) = self.judge(ended, recorded)?;
        // Another thread may have given the stream something since the check.
        let late = match driver::graph::is_empty(graph) {
            Ok(true) => Ok(value),
            Ok(false) => Err(self.stray(graph)),
            Err(error) => Err(error),
        };
        destroy(graph);
        late
    }

    /// Ends the recording, whatever came of it.
    pub(crate) fn give_up(&self) {
        if self.open.replace(false) {
            self.discard();
            begun::remove(self.serial);
        }
    }

    /// Ends the present capture, whatever came of it.
    fn discard(&self) {
        let ended = self.end_capture();
        if let Ok(graph) = ended.graph {
            destroy(graph);
        }
        self.give_back(ended.kept);
    }

    /// What cudarc kept was not ours to take.
    fn give_back(&self, kept: Option<DriverError>) {
        if let Some(kept) = kept {
            self.context().record_err::<()>(Err(kept));
        }
    }

    /// Tells what a capture and the work given to it came to: the graph and the value, or what went
    /// wrong first.
    fn judge<T>(&self, ended: Ended, work: Result<T>) -> Result<(CUgraph, T)> {
        let error = match (ended.graph, work) {
            (Ok(graph), Ok(value)) => {
                self.give_back(ended.kept);
                return Ok((graph, value));
            }
            (Ok(graph), Err(error)) => {
                destroy(graph);
                match error.capture_code() {
                    Some(code) => {
                        let error = Some(error);
                        return Err(self.invalidated(code, error, ended.offence, ended.kept));
                    }
                    None => error,
                }
            }
            // Forks that a failure left unjoined are none of its causes.
            (Err(end), Err(error))
                if end.is(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
                    && error.capture_code().is_none() =>
            {
                error
            }
            (Err(Error::Call { code, .. }), work) => {
                return Err(self.invalidated(code, work.err(), ended.offence, ended.kept));
            }
            (Err(end), work) => work.err().unwrap_or(end),
        };
        self.give_back(ended.kept);
        Err(error)
    }

    fn invalidated(
        &self,
        answer: CUresult,
        error: Option<Error>,
        offence: Option<Error>,
        kept: Option<DriverError>,
    ) -> Error {
        let calls = [error, offence, kept.map(Error::from)];
        let mut calls = calls.into_iter().flatten().peekable();
        let first = calls.peek().cloned();
        // An answer that only says that the capture was invalid came after the one that did it.
        let says_more = |error: &Error| {
            error.capture_code() != Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        };
        Error::CaptureInvalidated(Box::new(CaptureInvalidated {
            stream: self.stream.cu_stream() as usize,
            begun: self.begun,
            last: self.last(),
            call: calls.find(says_more).or(first),
            answer,
            tracked: self.context().is_managing_stream_synchronization(),
        }))
    }
}

/// A capture that was ended.
struct Ended {
    /// Its graph. If the driver destroyed that, the error says why.
    graph: Result<CUgraph>,
    /// The first call through this library that failed because of the capture.
    offence: Option<Error>,
    /// cudarc keeps errors that it could not return, and would give them to the next call, which
    /// has nothing to do with them.
    kept: Option<DriverError>,
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

    /// Ends the block, whose work came to `worked`. Returns its graph, or what went wrong first.
    pub(crate) fn end(mut self, worked: Result<()>) -> Result<CUgraph> {
        let ended = self.session.end_capture();
        self.go_on();
        let (graph, ()) = self.session.judge(ended, worked)?;
        Ok(graph)
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
            // Other code may have ended the block and had the stream join another capture.
            let taken = refuse_captured(&self.session.stream).err();
            *self.session.lost.borrow_mut() = Some(taken.unwrap_or(error));
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.hold.is_some() {
            self.session.discard();
            self.go_on();
        }
    }
}
