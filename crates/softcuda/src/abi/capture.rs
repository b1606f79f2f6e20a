//! `cuStream*Capture*`, `cuThreadExchangeStreamCaptureMode`.

use super::graph::dependencies;
use super::graph_params::no_data;
use super::types::{CUgraph, CUgraphNode, CUstream};
use super::{In, InOut, NullStream, Out, export};
use crate::driver::capture::{self, Info, Mode};
use crate::driver::graph::definition;
use crate::driver::graph::edge::EdgeData;
use crate::driver::{CUresult, Result, stream};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

fn begin(handle: CUstream, null: NullStream, mode: u32) -> Result {
    let mode = Mode::of_number(mode)?;
    let stream = stream::resolve_quietly(handle, null)?;
    if stream.is_legacy() {
        capture::admit(&stream)?;
    }
    capture::begin(&stream, mode, None)
}

/// Where the answers about a capture go; those that nobody asked for are null.
struct Wanted {
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<CUgraph>,
    nodes: Out<usize>,
    data: Out<usize>,
    count: Out<usize>,
}

impl Wanted {
    fn tell(self, handle: CUstream, null: NullStream) -> Result {
        self.status.some()?;
        let told = capture::info(&*stream::resolve_quietly(handle, null)?)?;
        self.status.set(told.status())?;
        let Info::Active {
            id,
            graph,
            nodes,
            data,
            count,
            has_data,
        } = told
        else {
            return Ok(());
        };
        if self.nodes.is_null() && !self.data.is_null() {
            return Err(INVALID);
        }
        if has_data && self.data.is_null() && !self.nodes.is_null() {
            return Err(CUresult::CUDA_ERROR_LOSSY_QUERY);
        }
        self.id.set_if_wanted(id);
        self.graph.set_if_wanted(graph);
        self.nodes.set_if_wanted(nodes);
        self.data.set_if_wanted(data);
        self.count.set_if_wanted(count);
        Ok(())
    }
}

fn update(
    handle: CUstream,
    null: NullStream,
    nodes: In<CUgraphNode>,
    data: In<EdgeData>,
    count: usize,
    flags: u32,
) -> Result {
    let stream = stream::resolve(handle, null)?;
    if flags > 1 {
        return Err(INVALID);
    }
    capture::update(&stream, &dependencies(nodes, data, count)?, flags == 1)
}

export! {
    /// Begins a capture, which forbids unsafe calls to all threads.
    fn cuStreamBeginCapture | cuStreamBeginCapture_ptsz(null; handle: CUstream) { begin(handle, null, 0) }

    /// Begins a capture.
    fn cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz(null; handle: CUstream, mode: u32) {
        begin(handle, null, mode)
    }

    /// Begins a capture into a graph, after some of its nodes.
    fn cuStreamBeginCaptureToGraph | cuStreamBeginCaptureToGraph_ptsz(null;
        handle: CUstream, graph: CUgraph, nodes: In<CUgraphNode>, data: In<EdgeData>, count: usize, mode: u32,
    ) {
        let mode = Mode::of_number(mode)?;
        let stream = stream::resolve_quietly(handle, null)?;
        if stream.is_legacy() {
            capture::admit(&stream)?;
        }
        let after = dependencies(nodes, data, count)?;
        capture::begin(&stream, mode, Some((definition::resolve(graph)?, after)))
    }

    /// Ends a capture; gives its graph, or null where there is none.
    fn cuStreamEndCapture | cuStreamEndCapture_ptsz(null; handle: CUstream, graph: Out<CUgraph>) {
        graph.set_if_wanted(CUgraph::NULL);
        let stream = stream::resolve_quietly(handle, null)?;
        if stream.is_legacy() {
            capture::admit(&stream)?;
        }
        graph.set_if_wanted(capture::end(&stream)?);
        Ok(())
    }

    /// Sets the calling thread's mode; gives what it was before.
    fn cuThreadExchangeStreamCaptureMode(mode: InOut<u32>) { mode.set(capture::exchange(mode.get()?)) }

    /// Says whether the stream is in capture.
    fn cuStreamIsCapturing | cuStreamIsCapturing_ptsz(null; handle: CUstream, status: Out<u32>) {
        let (id, graph) = (Out::null(), Out::null());
        let (nodes, data, count) = (Out::null(), Out::null(), Out::null());
        Wanted { status, id, graph, nodes, data, count }.tell(handle, null)
    }

    /// Says whether the stream is in capture, and in which.
    fn cuStreamGetCaptureInfo | cuStreamGetCaptureInfo_ptsz(null; handle: CUstream, status: Out<u32>, id: Out<u64>) {
        let graph = Out::null();
        let (nodes, data, count) = (Out::null(), Out::null(), Out::null());
        Wanted { status, id, graph, nodes, data, count }.tell(handle, null)
    }

    /// Says whether the stream is in capture, in which, and what its next node will depend on.
    fn cuStreamGetCaptureInfo_v2 | cuStreamGetCaptureInfo_v2_ptsz(null;
        handle: CUstream, status: Out<u32>, id: Out<u64>, graph: Out<CUgraph>, nodes: Out<usize>, count: Out<usize>,
    ) {
        let data = Out::null();
        Wanted { status, id, graph, nodes, data, count }.tell(handle, null)
    }

    /// Says whether the stream is in capture, in which, and what its next node will depend on and
    /// how.
    fn cuStreamGetCaptureInfo_v3 | cuStreamGetCaptureInfo_v3_ptsz(null;
        handle: CUstream, status: Out<u32>, id: Out<u64>, graph: Out<CUgraph>, nodes: Out<usize>, data: Out<usize>,
        count: Out<usize>,
    ) {
        Wanted { status, id, graph, nodes, data, count }.tell(handle, null)
    }

    /// Changes what the stream's next node will depend on.
    fn cuStreamUpdateCaptureDependencies | cuStreamUpdateCaptureDependencies_ptsz(null;
        handle: CUstream, nodes: In<CUgraphNode>, count: usize, flags: u32,
    ) {
        update(handle, null, nodes, no_data(), count, flags)
    }

    /// Changes what the stream's next node will depend on, and how.
    fn cuStreamUpdateCaptureDependencies_v2 | cuStreamUpdateCaptureDependencies_v2_ptsz(null;
        handle: CUstream, nodes: In<CUgraphNode>, data: In<EdgeData>, count: usize, flags: u32,
    ) {
        update(handle, null, nodes, data, count, flags)
    }
}
