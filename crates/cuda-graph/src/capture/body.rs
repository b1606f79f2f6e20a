//! What loops and branches ask of a capture.

use std::panic::Location;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraphNode, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaStream};
use smallvec::SmallVec;

use super::session::Session;
use super::streams::Lane;
use super::{Capture, Kind, Mode};
use crate::graph::{Graph, InTurn, NodeId};
use crate::{Error, Owner, Result, driver};

/// Where the capture was begun that `stream` takes part in, if this library began it.
pub(crate) fn begun_at(stream: &CudaStream) -> Option<&'static Location<'static>> {
    let info = driver::capture::info(stream.cu_stream()).ok()?;
    super::session::begun_of(stream, &info)
}

impl<K: Kind, M: Mode> Capture<K, M> {
    /// Whether it runs what it is given instead of recording it.
    pub(crate) fn is_eager(&self) -> bool {
        self.session.is_eager()
    }

    /// What it records into.
    pub(crate) fn target(&self) -> Graph {
        self.session.graph()
    }

    pub(crate) fn keep_owner(&self, owner: Owner) {
        self.session.keep(owner);
    }

    /// The conditional nodes recorded so far that take turns.
    pub(crate) fn own_in_turn(&mut self) -> &mut InTurn {
        &mut self.in_turn
    }

    /// What its stream waits for next.
    pub(crate) fn position(&self) -> Result<SmallVec<[CUgraphNode; 8]>> {
        let info = self.session.position(self.lane.stream())?;
        Ok(info.after)
    }

    /// Has its stream wait for `position` again; `nodes`, which came since, go when the capture ends.
    pub(crate) fn go_back(&self, nodes: &[NodeId], position: &[CUgraphNode]) -> Result<()> {
        self.session.spoil(nodes);
        let stream = self.lane.stream();
        self.session.position(stream)?;
        driver::capture::set_dependencies(stream.cu_stream(), position)
    }

    /// The mode, as the driver calls it.
    pub(crate) fn mode(&self) -> CUstreamCaptureMode {
        M::DRIVER
    }
}

/// A stream of the pool in capture beside another capture, into a graph of its own.
pub(crate) struct Aside {
    // Goes first: the pool takes back streams that are not captured any more.
    session: Session,
    lane: Lane,
    mode: CUstreamCaptureMode,
}

impl Aside {
    pub(crate) fn begin(
        context: &Arc<CudaContext>,
        mode: CUstreamCaptureMode,
        location: &'static Location<'static>,
    ) -> Result<Aside> {
        driver::bind(context)?;
        let lane = Lane::pooled(context)?;
        let session = Session::begin(lane.stream(), None, mode, location)?;
        Ok(Aside {
            lane,
            session,
            mode,
        })
    }

    pub(crate) fn stream(&self) -> &Arc<CudaStream> {
        self.lane.stream()
    }

    pub(crate) fn mode(&self) -> CUstreamCaptureMode {
        self.mode
    }

    /// Where it was begun.
    pub(crate) fn begun(&self) -> &'static Location<'static> {
        self.session.begun()
    }

    /// An operation of the step was recorded elsewhere, as `node` of `graph`.
    pub(crate) fn note(&self, graph: &Graph, node: NodeId) {
        self.session.note(graph, node);
    }

    /// The graph of what the stream was given so far, if it was given anything. It goes on with an empty one.
    ///
    /// # Errors
    ///
    /// The capture was invalidated, and stays so until [`end`](Aside::end); or other code's fork was not joined, and what
    /// the stream was given is lost.
    pub(crate) fn take(&mut self) -> Result<Option<Graph>> {
        self.session.position(self.lane.stream())?;
        if self.session.graph().is_empty()? {
            return Ok(None);
        }
        let ended = self.session.end();
        // Whatever comes of that, the stream does not run what it is given.
        self.session = Session::begin(self.lane.stream(), None, self.mode, self.session.begun())?;
        ended.map(Some)
    }

    /// Ends it, and gives the graph of what the stream was given since it was last taken, if it was given anything.
    pub(crate) fn end(self) -> Result<Option<Graph>> {
        let graph = self.session.end()?;
        Ok((!graph.is_empty()?).then_some(graph))
    }

    /// Ends it because of an error; gives that, or what invalidated the capture.
    pub(crate) fn abandon(self, error: Error) -> Error {
        self.session.abandon(Some(error))
    }
}
