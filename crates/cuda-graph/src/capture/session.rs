//! One capture, from its beginning to its end.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{CUgraphNode, CUresult, CUstreamCaptureMode, CUstreamCaptureStatus};
use cudarc::driver::{CudaStream, DriverError};
use smallvec::SmallVec;

use super::invalidated::CaptureInvalidated;
use crate::graph::{After, Backup, Graph, NodeId, NodeSet, View};
use crate::retain::{Fence, drop_after};
use crate::{Error, Owner, Result, driver};

/// What the handles of one capture share.
pub(super) struct Session {
    origin: Arc<CudaStream>,
    view: View,
    begun: &'static Location<'static>,
    /// The driver's number of the capture.
    id: u64,
    /// Begun and not ended.
    open: AtomicBool,
    /// A copy of the graph as it was before, where it is not the capture's own. When a capture fails, the driver destroys its graph.
    backup: Mutex<Option<Backup>>,
    /// The number of the node that was recorded last, counted from 1.
    last: AtomicU32,
    /// It does not record: what it is given runs at once, and this is what is held meanwhile.
    eager: Option<Mutex<Vec<Owner>>>,
}

type Begun = BTreeMap<u64, &'static Location<'static>>;

/// Where the captures that this library began were begun, by the driver's numbers.
fn begun() -> MutexGuard<'static, Begun> {
    static BEGUN: Mutex<Begun> = Mutex::new(BTreeMap::new());
    BEGUN.lock().unwrap_or_else(PoisonError::into_inner)
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
                begun: begun().get(&info.id).copied(),
            });
        }
        driver::take_offence();
        let (view, backup, after) = match into {
            None => (
                Graph::new(stream.context())?.view(),
                None,
                SmallVec::default(),
            ),
            Some((graph, after)) => {
                let mut nodes = SmallVec::<[NodeId; 8]>::new();
                after.add_to(&mut nodes);
                let after = graph.raw_nodes(&nodes)?;
                (graph.view(), Some(graph.back_up()?), after)
            }
        };
        let graph = Graph::from_view(view.clone());
        driver::capture::begin(stream.cu_stream(), graph.raw()?, &after, mode)?;
        // From here on the capture is ended by being dropped.
        let mut session = Session {
            origin: stream.clone(),
            view,
            begun: location,
            id: 0,
            open: AtomicBool::new(true),
            backup: Mutex::new(backup),
            last: AtomicU32::new(0),
            eager: None,
        };
        session.id = driver::capture::info(stream.cu_stream())?.id;
        begun().insert(session.id, location);
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
            open: AtomicBool::new(false),
            backup: Mutex::default(),
            last: AtomicU32::new(0),
            eager: Some(Mutex::default()),
        })
    }

    pub(super) fn is_eager(&self) -> bool {
        self.eager.is_some()
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
    pub(super) fn keep(&self, owner: Owner) -> Result<()> {
        match &self.eager {
            Some(kept) => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push(owner);
                Ok(())
            }
            None => self.graph().keep(owner),
        }
    }

    /// A node that does `op` after what `stream` waits for, which the stream's next work waits for in turn.
    pub(super) fn insert(&self, stream: &CudaStream, op: crate::op::AnyOp) -> Result<NodeId> {
        let info = driver::capture::info(stream.cu_stream())?;
        if info.status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE
            || info.id != self.id
        {
            return Err(Error::Call {
                call: "cuStreamGetCaptureInfo",
                source: DriverError(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            });
        }
        let graph = self.graph();
        let plain = info
            .dependencies
            .iter()
            .all(|(_, data)| driver::graph::is_plain(data));
        let after: SmallVec<[CUgraphNode; 8]> =
            info.dependencies.iter().map(|(node, _)| *node).collect();
        let (node, raw) = if plain {
            graph.insert(op, After::Raw(&after))?
        } else {
            let (node, raw) = graph.insert(op, After::Raw(&[]))?;
            let data: SmallVec<[_; 4]> = info.dependencies.iter().map(|(_, data)| *data).collect();
            let to: SmallVec<[_; 8]> = after.iter().map(|_| raw).collect();
            if let Err(error) = driver::graph::add_edges(info.graph, &after, &to, &data) {
                graph.destroy(node)?;
                return Err(error);
            }
            (node, raw)
        };
        if let Err(error) = driver::capture::set_dependencies(stream.cu_stream(), &[raw]) {
            graph.destroy(node)?;
            return Err(error);
        }
        self.last.store(node.index() + 1, Ordering::Relaxed);
        Ok(node)
    }

    /// Ends the capture and gives its graph.
    pub(super) fn end(&self) -> Result<Graph> {
        if !self.is_open() {
            return Err(self.invalidated(
                DriverError(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED),
                None,
            ));
        }
        match self.close() {
            Ok(()) => {
                drop(self.take_backup());
                Ok(self.graph())
            }
            Err(error) => {
                let error = match error {
                    Error::Call { source, .. } => self.invalidated(source, None),
                    error => error,
                };
                self.undo(true);
                Err(error)
            }
        }
    }

    /// Ends the capture because of an error, or of nothing but that it is dropped. Says what went wrong: the capture, if it was
    /// invalidated, or else the error.
    pub(super) fn abandon(&self, error: Option<Error>) -> Error {
        if !self.is_open() {
            return error.unwrap_or(Error::GraphGone);
        }
        let active = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
        let invalidated =
            driver::capture::status(self.origin.cu_stream()).is_ok_and(|now| now != active);
        let closed = self.close();
        let gone = closed.is_err();
        let offence = error.as_ref().and_then(driver::capture::code);
        let explained = match (invalidated || offence.is_some(), closed) {
            (true, Err(Error::Call { source, .. })) => self.invalidated(source, error),
            (true, _) => {
                let source = offence.unwrap_or(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
                self.invalidated(DriverError(source), error)
            }
            (false, _) => error.unwrap_or(Error::GraphGone),
        };
        self.undo(gone);
        explained
    }

    /// Has the driver end the capture. However that goes, it is over.
    fn close(&self) -> Result<()> {
        self.open.store(false, Ordering::Relaxed);
        begun().remove(&self.id);
        // On an error the context is not bound; the stream's is what counts.
        let _ = driver::bind(self.origin.context());
        let stream = self.origin.cu_stream();
        let none = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        match driver::capture::end(stream) {
            Ok(_) => Ok(()),
            // The call was not made, or came to nothing.
            Err(_) if driver::capture::status(stream).is_ok_and(|status| status != none) => {
                driver::capture::end(stream).map(drop)
            }
            Err(error) => Err(error),
        }
    }

    fn take_backup(&self) -> Option<Backup> {
        self.backup
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// After a failure: the graph is what it was before, or no more. The driver destroyed it if it is `gone`.
    fn undo(&self, gone: bool) {
        let graph = self.graph();
        match self.take_backup() {
            Some(backup) => graph.restore(backup, gone),
            None if gone => graph.forsake(),
            None => {}
        }
    }

    fn invalidated(&self, source: DriverError, call: Option<Error>) -> Error {
        let context = self.origin.context();
        // What cudarc could not answer with it keeps, and would give to the next call, which has nothing to do with it.
        let kept = context.check_err().err();
        let call = call
            .or_else(|| {
                driver::take_offence().map(|(call, answer)| Error::Call {
                    call,
                    source: DriverError(answer),
                })
            })
            .or(kept.map(|source| Error::Foreign { source }));
        let last = self.last.load(Ordering::Relaxed).checked_sub(1);
        Error::CaptureInvalidated(Box::new(CaptureInvalidated {
            stream: self.origin.cu_stream() as usize,
            begun: self.begun,
            last: last.map(|index| self.graph().name_of(index)),
            call,
            source,
            tracked: context.is_managing_stream_synchronization(),
        }))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_open() {
            self.abandon(None);
        }
        if let Some(kept) = self.eager.take() {
            let kept = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
            if !kept.is_empty() {
                drop_after(Fence::behind(self.origin.clone()), kept);
            }
        }
    }
}
