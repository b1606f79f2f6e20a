//! Captures into bodies of conditional nodes, for loops and branches that are captured.

use std::panic::Location;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUgraphNode;
use smallvec::SmallVec;

use super::session::Session;
use super::streams::Lane;
use super::{Branch, Capture, Kind, Mode};
use crate::graph::{Graph, NodeId};
use crate::{Owner, Result, driver};

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

    /// What its stream waits for next.
    pub(crate) fn position(&self) -> Result<SmallVec<[CUgraphNode; 4]>> {
        let info = self.session.position(self.lane.stream())?;
        Ok(info.dependencies.iter().map(|(node, _)| *node).collect())
    }

    /// Has its stream wait for `position` again; `nodes`, which came since, go when the capture ends.
    pub(crate) fn go_back(&self, nodes: &[NodeId], position: &[CUgraphNode]) -> Result<()> {
        self.session.spoil(nodes);
        let stream = self.lane.stream();
        self.session.position(stream)?;
        driver::capture::set_dependencies(stream.cu_stream(), position)
    }

    /// Has `record` be captured into `body`, a body of a node of this capture, in a stream of the pool.
    pub(crate) fn capture_body(
        &self,
        body: &Graph,
        location: &'static Location<'static>,
        record: impl FnOnce(&mut Capture<Branch, M>) -> Result<()>,
    ) -> Result<()> {
        driver::bind(body.context())?;
        let lane = Lane::pooled(body.context())?;
        let into = Some((body, &() as &dyn crate::NodeSet));
        let session = Session::begin(lane.stream(), into, M::DRIVER, location)?;
        let mut capture = Capture::branch(&Arc::new(session), lane, 0);
        match record(&mut capture) {
            Ok(()) => capture.session.end().map(drop),
            Err(error) => Err(capture.session.abandon(Some(error))),
        }
    }
}
