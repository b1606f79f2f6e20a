//! Nodes of external semaphores: there are no semaphores here, so no call can name one.

use super::graph::dependencies;
use super::graph_params::no_data;
use super::types::{CUgraph, CUgraphExec, CUgraphNode};
use super::{In, Out, export};
use crate::driver::graph::{definition, executable};
use crate::driver::{CUresult, Result};

/// `CUDA_EXT_SEM_SIGNAL_NODE_PARAMS` and `CUDA_EXT_SEM_WAIT_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SemaphoreParams {
    semaphores: In<usize>,
    params: In<u8>,
    count: u32,
}

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

fn add(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
    params: In<SemaphoreParams>,
) -> Result {
    node.some()?;
    definition::resolve(graph)?;
    dependencies(nodes, no_data(), count)?;
    params.some()?;
    Err(INVALID)
}

/// No node is of this kind.
fn of_node(node: CUgraphNode) -> Result {
    definition::operation_of(node)?;
    Err(INVALID)
}

fn of_executable(exec: CUgraphExec, node: CUgraphNode) -> Result {
    executable::resolve(exec)?;
    of_node(node)
}

export! {
    /// Adds a node that signals semaphores.
    fn cuGraphAddExternalSemaphoresSignalNode(
        node: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: In<SemaphoreParams>,
    ) {
        add(node, graph, nodes, count, params)
    }

    /// Adds a node that waits for semaphores.
    fn cuGraphAddExternalSemaphoresWaitNode(
        node: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: In<SemaphoreParams>,
    ) {
        add(node, graph, nodes, count, params)
    }

    /// What a node signals.
    fn cuGraphExternalSemaphoresSignalNodeGetParams(node: CUgraphNode, _params: Out<SemaphoreParams>) { of_node(node) }

    /// Has a node signal something else.
    fn cuGraphExternalSemaphoresSignalNodeSetParams(node: CUgraphNode, _params: In<SemaphoreParams>) { of_node(node) }

    /// What a node waits for.
    fn cuGraphExternalSemaphoresWaitNodeGetParams(node: CUgraphNode, _params: Out<SemaphoreParams>) { of_node(node) }

    /// Has a node wait for something else.
    fn cuGraphExternalSemaphoresWaitNodeSetParams(node: CUgraphNode, _params: In<SemaphoreParams>) { of_node(node) }

    /// Has a node of an executable signal something else.
    fn cuGraphExecExternalSemaphoresSignalNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, _params: In<SemaphoreParams>,
    ) {
        of_executable(exec, node)
    }

    /// Has a node of an executable wait for something else.
    fn cuGraphExecExternalSemaphoresWaitNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, _params: In<SemaphoreParams>,
    ) {
        of_executable(exec, node)
    }
}
