//! `cuGraphAdd*Node`, and the parameters of nodes: typed functions, and the ones for any kind.

use super::copy::Copy3d;
use super::graph::dependencies;
use super::graph_memory::{add_alloc, add_free};
use super::graph_params::{
    self, BatchParams, ChildParams, ConditionalParams, CopyParams, FillParams1, FillParams2,
    FreeParams, HostParams, KernelParams, KernelParams1, NodeParams, Params, RecordParams,
    WaitParams, no_data,
};
use super::types::{CUcontext, CUevent, CUgraph, CUgraphNode};
use super::{In, InOut, Out, export};
use crate::driver::graph::definition::{By, MemoryNodes};
use crate::driver::graph::edge::{EdgeData, Edges};
use crate::driver::graph::operation::{Choice, WRONG_KIND};
use crate::driver::graph::{Kind, Operation, conditional, definition};
use crate::driver::stream::Attribute;
use crate::driver::{CUresult, Result, context};

/// `CUgraphChildGraphNodeOwnership`. Any other number asks for a copy too, and no one looks for
/// memory nodes then: so an H200 does.
mod ownership {
    pub const CLONE: u32 = 0;
    pub const MOVE: u32 = 1;
}

/// Adds a node; its operation is made when the rest is known to be right.
fn add(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    on: Edges,
    operation: impl FnOnce() -> Result<Operation>,
) -> Result {
    node.some()?;
    let graph = definition::resolve(graph)?;
    node.set(graph.add(By::Program, &on, operation()?)?)
}

/// Adds a node of a kind whose parameters are a structure of its own.
fn add_typed<P: Params>(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
    params: impl FnOnce() -> Result<P>,
) -> Result {
    let on = dependencies(nodes, no_data(), count)?;
    add(node, graph, on, || params()?.decode(None))
}

fn get<P: Params>(node: CUgraphNode) -> Result<P> {
    P::encode(&definition::operation_of(node)?)
}

fn set<P: Params>(node: CUgraphNode, params: P) -> Result {
    replace(node, |old| {
        P::encode(old)?;
        params.decode(Some(old))
    })
}

fn replace(node: CUgraphNode, make: impl FnOnce(&Operation) -> Result<Operation>) -> Result {
    definition::graph_of(node)?.replace(node, make)
}

fn add_child(node: Out<CUgraphNode>, graph: CUgraph, on: &Edges, params: ChildParams) -> Result {
    node.some()?;
    let graph = definition::resolve(graph)?;
    let child = definition::resolve(params.graph)?;
    let added = match params.ownership {
        ownership::MOVE => definition::move_child(&graph, on, &child)?,
        ownership::CLONE => definition::add_child(&graph, on, &child, MemoryNodes::Refused)?,
        _ => definition::add_child(&graph, on, &child, MemoryNodes::Shared)?,
    };
    node.set(added)
}

fn add_conditional(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    on: &Edges,
    params: InOut<ConditionalParams>,
) -> Result {
    let given = params.get()?;
    let graph = definition::resolve(graph)?;
    if given.context.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let context = context::resolve(given.context)?;
    let choice = Choice::of_number(given.kind, given.count)?;
    let number = given.condition;
    let (added, made) = conditional::add(&graph, on, number, choice, given.count, &context)?;
    params.set(ConditionalParams {
        bodies: In::<u8>::from_address(made.handles().as_ptr() as usize).cast(),
        ..given
    })?;
    node.set(added)
}

fn child_graph(node: CUgraphNode) -> Result<CUgraph> {
    match definition::operation_of(node)? {
        Operation::Child(graph) => graph.read(|_| Ok(graph.handle())),
        _ => Err(WRONG_KIND),
    }
}

/// `cuGraphAddNode`.
fn add_any(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    data: In<EdgeData>,
    count: usize,
    params: Out<NodeParams>,
) -> Result {
    node.some()?;
    let given = In::<u8>::from_address(params.address()).cast::<NodeParams>();
    let kind = given.get()?.kind()?;
    let on = dependencies(nodes, data, count)?;
    if kind == Kind::Child as u32 {
        let child = graph_params::member::<ChildParams>(given).get()?;
        return add_child(node, graph, &on, child);
    }
    if kind == Kind::Alloc as u32 {
        return add_alloc(node, graph, &on, graph_params::member_in_out(params));
    }
    if kind == Kind::Free as u32 {
        let FreeParams(address) = graph_params::member(given).get()?;
        return add_free(node, graph, &on, address);
    }
    if kind == Kind::Conditional as u32 {
        return add_conditional(node, graph, &on, graph_params::member_in_out(params));
    }
    add(node, graph, on, || graph_params::decode(given, None))
}

export! {
    /// Adds a kernel node.
    fn cuGraphAddKernelNode(
        node: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: In<KernelParams1>,
    ) {
        add_typed(node, graph, nodes, count, || params.get())
    }

    /// Adds a kernel node.
    fn cuGraphAddKernelNode_v2(
        node: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: In<KernelParams>,
    ) {
        add_typed(node, graph, nodes, count, || params.get())
    }

    /// What a kernel node launches.
    fn cuGraphKernelNodeGetParams(node: CUgraphNode, params: Out<KernelParams1>) {
        params.some()?;
        params.set(get(node)?)
    }

    /// What a kernel node launches.
    fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: Out<KernelParams>) {
        params.some()?;
        params.set(get(node)?)
    }

    /// Has a kernel node launch something else.
    fn cuGraphKernelNodeSetParams(node: CUgraphNode, params: In<KernelParams1>) { set(node, params.get()?) }

    /// Has a kernel node launch something else.
    fn cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: In<KernelParams>) { set(node, params.get()?) }

    /// An attribute of a kernel node.
    fn cuGraphKernelNodeGetAttribute(node: CUgraphNode, id: u32, value: Out<Attribute>) {
        value.some()?;
        match definition::operation_of(node)? {
            Operation::Kernel(node) => value.set(node.attributes().get(id)?),
            _ => Err(WRONG_KIND),
        }
    }

    /// Sets an attribute of a kernel node.
    fn cuGraphKernelNodeSetAttribute(node: CUgraphNode, id: u32, value: In<Attribute>) {
        let value = value.get()?;
        replace(node, |old| match old {
            Operation::Kernel(old) => {
                let mut attributes = old.attributes().clone();
                attributes.set(id, value)?;
                Ok(Operation::Kernel(old.with_attributes(attributes)?.into()))
            }
            _ => Err(WRONG_KIND),
        })
    }

    /// Sets all attributes of a kernel node to another's.
    fn cuGraphKernelNodeCopyAttributes(target: CUgraphNode, source: CUgraphNode) {
        let Operation::Kernel(source) = definition::operation_of(source)? else {
            return Err(WRONG_KIND);
        };
        replace(target, |old| match old {
            // Only those of the same context take over attributes.
            Operation::Kernel(old)
                if old.function().context().id() == source.function().context().id() =>
            {
                let node = old.with_attributes(source.attributes().clone());
                Ok(Operation::Kernel(node.map_err(|_| WRONG_KIND)?.into()))
            }
            _ => Err(WRONG_KIND),
        })
    }

    /// Adds a copy node.
    fn cuGraphAddMemcpyNode(
        node: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, copy: In<Copy3d>,
        context: CUcontext,
    ) {
        add_typed(node, graph, nodes, count, || Ok(CopyParams::new(copy.get()?, context)))
    }

    /// What a copy node copies.
    fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, copy: Out<Copy3d>) {
        copy.some()?;
        copy.set(get::<CopyParams>(node)?.copy())
    }

    /// Has a copy node copy something else.
    fn cuGraphMemcpyNodeSetParams(node: CUgraphNode, copy: In<Copy3d>) {
        set(node, CopyParams::new(copy.get()?, CUcontext::NULL))
    }

    /// Adds a fill node.
    fn cuGraphAddMemsetNode(
        node: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, fill: In<FillParams1>,
        context: CUcontext,
    ) {
        add_typed(node, graph, nodes, count, || Ok(fill.get()?.in_context(context)))
    }

    /// What a fill node fills.
    fn cuGraphMemsetNodeGetParams(node: CUgraphNode, fill: Out<FillParams1>) {
        fill.some()?;
        fill.set(get::<FillParams2>(node)?.first())
    }

    /// Has a fill node fill something else.
    fn cuGraphMemsetNodeSetParams(node: CUgraphNode, fill: In<FillParams1>) {
        set(node, fill.get()?.in_context(CUcontext::NULL))
    }

    /// Adds a host node.
    fn cuGraphAddHostNode(
        node: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: In<HostParams>,
    ) {
        add_typed(node, graph, nodes, count, || params.get())
    }

    /// What a host node calls.
    fn cuGraphHostNodeGetParams(node: CUgraphNode, params: Out<HostParams>) {
        params.some()?;
        params.set(get(node)?)
    }

    /// Has a host node call something else.
    fn cuGraphHostNodeSetParams(node: CUgraphNode, params: In<HostParams>) { set(node, params.get()?) }

    /// Adds a node with a copy of a graph.
    fn cuGraphAddChildGraphNode(
        node: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, child: CUgraph,
    ) {
        let on = dependencies(nodes, no_data(), count)?;
        add_child(node, graph, &on, ChildParams { graph: child, ownership: ownership::CLONE })
    }

    /// The graph that a child graph's node owns.
    fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: Out<CUgraph>) {
        graph.some()?;
        graph.set(child_graph(node)?)
    }

    /// Adds a node that does nothing.
    fn cuGraphAddEmptyNode(node: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize) {
        add(node, graph, dependencies(nodes, no_data(), count)?, || Ok(Operation::Empty))
    }

    /// Adds a node that records an event.
    fn cuGraphAddEventRecordNode(
        node: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, event: CUevent,
    ) {
        add_typed(node, graph, nodes, count, || Ok(RecordParams(event)))
    }

    /// The event that a node records.
    fn cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: Out<CUevent>) {
        event.some()?;
        event.set(get::<RecordParams>(node)?.0)
    }

    /// Has a node record another event.
    fn cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent) { set(node, RecordParams(event)) }

    /// Adds a node that waits for an event.
    fn cuGraphAddEventWaitNode(
        node: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, event: CUevent,
    ) {
        add_typed(node, graph, nodes, count, || Ok(WaitParams(event)))
    }

    /// The event that a node waits for.
    fn cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: Out<CUevent>) {
        event.some()?;
        event.set(get::<WaitParams>(node)?.0)
    }

    /// Has a node wait for another event.
    fn cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent) { set(node, WaitParams(event)) }

    /// Adds a node of memory operations.
    fn cuGraphAddBatchMemOpNode(
        node: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: In<BatchParams>,
    ) {
        add_typed(node, graph, nodes, count, || params.get())
    }

    /// The memory operations of a node.
    fn cuGraphBatchMemOpNodeGetParams(node: CUgraphNode, params: Out<BatchParams>) {
        params.some()?;
        params.set(get(node)?)
    }

    /// Gives a node other memory operations.
    fn cuGraphBatchMemOpNodeSetParams(node: CUgraphNode, params: In<BatchParams>) { set(node, params.get()?) }

    /// Adds a node of any kind.
    fn cuGraphAddNode(
        node: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: Out<NodeParams>,
    ) {
        add_any(node, graph, nodes, no_data(), count, params)
    }

    /// Adds a node of any kind, with data of its edges.
    fn cuGraphAddNode_v2(
        node: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, data: In<EdgeData>, count: usize,
        params: Out<NodeParams>,
    ) {
        add_any(node, graph, nodes, data, count, params)
    }

    /// Gives a node other parameters.
    fn cuGraphNodeSetParams(node: CUgraphNode, params: In<NodeParams>) {
        if params.get()?.kind()? == Kind::Child as u32 {
            let child = graph_params::member::<ChildParams>(params).get()?;
            let moved = child.ownership == ownership::MOVE;
            return definition::replace_child(node, &definition::resolve(child.graph)?, moved);
        }
        replace(node, |old| graph_params::decode(params, Some(old)))
    }
}
