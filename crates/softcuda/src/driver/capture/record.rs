//! Operations that become nodes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Captured, fail, with};
use crate::abi::types::CUgraphNode;
use crate::driver::copy::Request as CopyRequest;
use crate::driver::event::Event;
use crate::driver::fill::Request as FillRequest;
use crate::driver::function::Function;
use crate::driver::graph::attribute::Attributes;
use crate::driver::graph::definition::{self, By, Graph};
use crate::driver::graph::edge::{Edge, EdgeData, Edges};
use crate::driver::graph::memory::{AllocParams, GraphMemory};
use crate::driver::graph::operation::{CopyNode, EventNode, FillNode, KernelNode};
use crate::driver::graph::{Kind, Operation};
use crate::driver::launch::{self, Config};
use crate::driver::pool::Pool;
use crate::driver::stream::Stream;
use crate::driver::{CUresult, Result};

/// Adds a node after what the stream depends on, in whose place it then is.
fn add(
    stream: &Stream,
    make: impl FnOnce(&Arc<Graph>, &[Edge]) -> Result<CUgraphNode>,
) -> Result<(u64, CUgraphNode)> {
    with(stream.seat(), |capture, place| {
        capture.check()?;
        let member = &mut capture.members[place];
        let node = make(&capture.graph, &member.dependencies)?;
        for edge in &member.dependencies {
            capture.open.remove(&edge.node);
        }
        capture.open.insert(node.0);
        let edge = Edge {
            node: node.0,
            data: EdgeData::default(),
        };
        member.set(Edges::from_elem(edge, 1));
        Ok((member.seat.capture.load(Ordering::Relaxed), node))
    })
}

/// Records an operation.
pub(crate) fn record(stream: &Stream, operation: Operation) -> Result {
    add(stream, |graph, on| graph.add(By::Capture, on, operation)).map(drop)
}

/// Records a copy; one of nothing is none.
pub(crate) fn copy(stream: &Stream, request: CopyRequest) -> Result {
    match CopyNode::of(request, stream.context().clone())? {
        Some(node) => record(stream, Operation::Copy(Arc::new(node))),
        None => Ok(()),
    }
}

/// Records a fill; one of nothing is none. Whether the memory is there is looked at when the graph
/// is instantiated.
pub(crate) fn fill(stream: &Stream, request: FillRequest) -> Result {
    match FillNode::captured(request, stream.context().clone())? {
        Some(node) => record(stream, Operation::Fill(Arc::new(node))),
        None => Ok(()),
    }
}

/// `cuStreamWaitEvent` with the flag that makes a node of it.
pub(crate) fn wait_external(stream: &Stream, event: &Arc<Event>) -> Result {
    record(stream, Operation::EventWait(EventNode::new(event.clone())))
}

/// `cuEventRecord` with the flag that makes a node of it.
pub(crate) fn record_external(stream: &Stream, event: &Arc<Event>) -> Result {
    if !stream.is_capturing() {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    record(
        stream,
        Operation::EventRecord(EventNode::new(event.clone())),
    )
}

/// Records an allocation; gives the address, 0 for no bytes.
pub(crate) fn alloc(stream: &Stream, pool: &Pool, size: u64) -> Result<u64> {
    if size == 0 {
        return Ok(0);
    }
    let params = AllocParams {
        properties: pool.properties(),
        access: Box::default(),
        size,
    };
    let memory = GraphMemory::new(params, stream.context().clone())?;
    add(stream, |graph, on| {
        definition::add_alloc(By::Capture, graph, on, &memory)
    })?;
    Ok(memory.address())
}

/// Records that memory of an allocation node is freed.
pub(crate) fn free(stream: &Stream, address: u64) -> Result {
    match address {
        0 => Ok(()),
        _ => add(stream, |graph, on| {
            definition::add_free(By::Capture, graph, on, address)
        })
        .map(drop),
    }
}

/// The data of an edge that a kernel may start before the one it depends on has ended, and of one
/// from a kernel's moments.
mod data {
    use super::EdgeData;

    const fn of(from_port: u8, kind: u8) -> EdgeData {
        EdgeData {
            from_port,
            to_port: 0,
            kind,
            reserved: [0; 5],
        }
    }

    /// The kernel lets its dependents start.
    pub const PROGRAMMATIC: EdgeData = of(1, 1);
    /// The same, when its blocks have begun.
    pub const AT_BLOCK_START: EdgeData = of(2, 1);
    /// All its blocks have begun.
    pub const BEGUN: EdgeData = of(2, 0);
}

/// Records a launch that was asked for as `config` says. One whose shape cannot be invalidates the
/// capture.
pub(crate) fn launch(
    stream: &Stream,
    function: &Arc<Function>,
    config: &Config,
    params: impl FnOnce() -> Result<Box<[u8]>>,
    attributes: impl FnOnce(Attributes) -> Result<Attributes>,
) -> Result {
    launch::check(function, config).map_err(|error| fail(stream, error))?;
    for trigger in [&config.begun, &config.ended].into_iter().flatten() {
        if !trigger.fits_capture() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
    }
    let set = Attributes::of_launch(stream.priority(), config.cooperative, config.cluster)?;
    let attributes = attributes(set)?;
    let node = KernelNode::new(function.clone(), None, config, params()?, attributes)?;
    let node = Operation::Kernel(Arc::new(node));
    let (capture, node) = add(stream, |graph, on| {
        if !config.programmatic {
            return graph.add(By::Capture, on, node);
        }
        graph.add(By::Capture, &programmatic(graph, on)?, node)
    })?;
    let event = |event: &Event, data| {
        let node = node.0;
        event.set_captured(Captured::of_node(capture, Edge { node, data }));
    };
    if let Some(begun) = &config.begun {
        event(&begun.event, data::BEGUN);
    }
    if let Some(ended) = &config.ended {
        match ended.at_block_start {
            true => event(&ended.event, data::AT_BLOCK_START),
            false => event(&ended.event, data::PROGRAMMATIC),
        }
    }
    Ok(())
}

/// The same dependencies; those on kernels let the new one start early.
fn programmatic(graph: &Graph, on: &[Edge]) -> Result<Edges> {
    graph.read(|definition| {
        let early = |&Edge { node, data }: &Edge| {
            let from = definition.nodes.get(&node);
            let kernel = from.is_some_and(|from| from.operation.kind() == Kind::Kernel);
            let data = match kernel && data.is_default() {
                true => data::PROGRAMMATIC,
                false => data,
            };
            Edge { node, data }
        };
        Ok(on.iter().map(early).collect())
    })
}
