//! A capture that other code began.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUgraphEdgeData, CUstreamCaptureStatus};

use super::Path;
use super::draft::{self, Numbers};
use crate::graph::{Graph, Operation};
use crate::{Error, Result, driver};

/// The stream of a capture of other code. It says where the capture is; other code moves it too.
pub(super) struct Joined {
    pub stream: Arc<CudaStream>,
    /// What the driver calls the capture.
    id: u64,
    /// The edges by which the next node waits; none if all are plain.
    edges: Vec<CUgraphEdgeData>,
}

impl Joined {
    /// What the next node waits for.
    pub(super) fn position(&mut self, graph: &Graph) -> Result<Numbers> {
        let info = driver::capture::info(self.stream.cu_stream())?;
        let active = info.status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
        if !active || info.id != self.id {
            return Err(Error::NotCapturing);
        }
        self.edges = info.edges;
        let mut state = graph.hierarchy().lock();
        let body = state.body_mut(graph.body_index())?;
        info.after.iter().map(|&raw| body.number(raw)).collect()
    }

    /// Has the stream go on after these nodes.
    pub(super) fn set_position(&self, graph: &Graph, after: &[u32]) -> Result<()> {
        let state = graph.hierarchy().look();
        let raw = draft::handles(state.body(graph.body_index())?, after)?;
        driver::capture::set_dependencies(self.stream.cu_stream(), &raw)
    }

    /// A node that waits for `after` by the edges that the driver names.
    pub(super) fn insert<O: Operation>(&self, graph: &Graph, op: O, after: &[u32]) -> Result<u32> {
        if self.edges.is_empty() {
            return draft::insert(graph, op, after);
        }
        let index = draft::insert(graph, op, &[])?;
        let state = graph.hierarchy().look();
        let body = state.body(graph.body_index())?;
        let from = draft::handles(body, after)?;
        let to = vec![draft::handles(body, &[index])?[0]; from.len()];
        driver::graph::add_edges(body.raw, &from, &to, &self.edges)?;
        Ok(index)
    }
}

impl Graph {
    /// Records into a capture that other code began on `stream`, behind what it has recorded so
    /// far. The capture then goes on behind what `record` recorded.
    ///
    /// The graph of the capture belongs to the other code. What the recorded operations use is held
    /// by that graph, and by what is made of it, with a CUDA user object.
    ///
    /// # Errors
    ///
    /// [`Error::NotCapturing`], and whatever `record` returns. What was recorded before stays.
    ///
    /// # Safety
    ///
    /// Nothing else uses the capture or its graph meanwhile. The driver does not lock them.
    pub unsafe fn record_in_capture<T>(
        stream: &Arc<CudaStream>,
        record: impl FnOnce(&mut Path) -> Result<T>,
    ) -> Result<T> {
        driver::choose()?;
        driver::bind(stream.context())?;
        let info = driver::capture::info(stream.cu_stream())?;
        if info.status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE {
            return Err(Error::NotCapturing);
        }
        let graph = Graph::of_raw(stream.context(), info.graph, false);
        /// Gives what was recorded to the graph, also if `record` panics.
        struct Hold<'a>(&'a Graph);
        impl Drop for Hold<'_> {
            fn drop(&mut self) {
                if let Err(error) = self.0.raw_with_owners() {
                    tracing::error!("what a joined capture uses leaks: {error}");
                    std::mem::forget(Graph::from_view(self.0.view()));
                }
            }
        }
        let _hold = Hold(&graph);
        let mut path = Path::new(&graph);
        path.joined = Some(Box::new(Joined {
            stream: stream.clone(),
            id: info.id,
            edges: Vec::new(),
        }));
        record(&mut path)
    }
}
