//! `cuGraph*` of definitions: made, cloned, looked through, tied together.

use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::graph_params::no_data;
use super::types::{CUcontext, CUgraph, CUgraphNode};
use super::{In, InOut, Out, export};
use crate::driver::graph::edge::{Edge, EdgeData, Edges, Pair};
use crate::driver::graph::{conditional, definition, dot};
use crate::driver::{CUresult, Result, context};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// `CU_GRAPH_COND_ASSIGN_DEFAULT`.
const ASSIGN_DEFAULT: u32 = 1;

/// What a new node depends on.
pub(super) fn dependencies(
    nodes: In<CUgraphNode>,
    data: In<EdgeData>,
    count: usize,
) -> Result<Edges> {
    // Nobody has so many nodes, and room for them would not be there.
    if count > 0 && (nodes.is_null() || count > u32::MAX as usize) {
        return Err(INVALID);
    }
    let edge = |at: usize| {
        Ok(Edge {
            node: nodes.at(at).get()?.0,
            data: match data.is_null() {
                true => EdgeData::default(),
                false => data.at(at).get()?,
            },
        })
    };
    (0..count).map(edge).collect()
}

/// Gives a list, or how long it is where there is no array for one. Room that is left gets nulls;
/// no room at all is an error.
fn give_nodes(list: &[CUgraphNode], to: Out<CUgraphNode>, count: InOut<usize>) -> Result {
    count.out().some()?;
    if to.is_null() {
        return count.set(list.len());
    }
    let room = room(count)?;
    for at in 0..room {
        to.at(at)
            .set(list.get(at).copied().unwrap_or(CUgraphNode::NULL))?;
    }
    count.set(list.len().min(room))
}

/// The length of the caller's array: an H200 takes none without room.
fn room(count: InOut<usize>) -> Result<usize> {
    match count.get()? {
        0 => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        room => Ok(room),
    }
}

/// As [`give_nodes`], of edges seen from one of their nodes; data that cannot be given is an error.
fn give_edges(list: &Edges, to: Out<CUgraphNode>, data: Data, count: InOut<usize>) -> Result {
    count.out().some()?;
    data.check(to.is_null(), list.iter().map(|edge| &edge.data))?;
    if !to.is_null() {
        data.give(list.iter().map(|edge| edge.data), count.get()?)?;
    }
    let nodes: Vec<_> = list.iter().map(|edge| CUgraphNode(edge.node)).collect();
    give_nodes(&nodes, to, count)
}

/// Where the data of edges goes.
#[derive(Clone, Copy)]
struct Data(Out<EdgeData>);

impl Data {
    /// Of functions that do not know data.
    fn none() -> Data {
        Data(Out::null())
    }

    fn check<'a>(self, only_count: bool, mut data: impl Iterator<Item = &'a EdgeData>) -> Result {
        match (only_count, self.0.is_null()) {
            (true, false) => Err(INVALID),
            (false, true) if !data.all(EdgeData::is_default) => {
                Err(CUresult::CUDA_ERROR_LOSSY_QUERY)
            }
            _ => Ok(()),
        }
    }

    fn give(self, data: impl Iterator<Item = EdgeData>, room: usize) -> Result {
        if self.0.is_null() {
            return Ok(());
        }
        data.take(room)
            .enumerate()
            .try_for_each(|(at, data)| self.0.at(at).set(data))
    }
}

fn edges(
    graph: CUgraph,
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    data: Data,
    count: InOut<usize>,
) -> Result {
    let edges = definition::resolve(graph)?.edges()?;
    if from.is_null() != to.is_null() {
        return Err(INVALID);
    }
    data.check(from.is_null(), edges.iter().map(|edge| &edge.2))?;
    let (sources, targets): (Vec<_>, Vec<_>) = edges.iter().map(|edge| (edge.0, edge.1)).unzip();
    if !from.is_null() {
        let room = count.get()?;
        data.give(edges.iter().map(|edge| edge.2), room)?;
        give_nodes(&sources, from, count)?;
        count.set(room)?;
    }
    give_nodes(&targets, to, count)
}

fn pairs(
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    data: In<EdgeData>,
    count: usize,
) -> Result<Vec<Pair>> {
    if count > 0 && (from.is_null() || to.is_null()) {
        return Err(INVALID);
    }
    let sources = dependencies(from, data, count)?;
    let targets = to.list(count)?;
    Ok(sources
        .iter()
        .zip(targets)
        .map(|(edge, to)| (CUgraphNode(edge.node), to, edge.data))
        .collect())
}

export! {
    /// Makes a graph.
    fn cuGraphCreate(graph: Out<CUgraph>, flags: u32) {
        graph.some()?;
        match flags {
            0 => graph.set(definition::create()?),
            _ => Err(INVALID),
        }
    }

    /// Makes a condition handle for nodes of a graph and of what is inside it.
    fn cuGraphConditionalHandleCreate(
        handle: Out<u64>, graph: CUgraph, context: CUcontext, default: u32, flags: u32,
    ) {
        handle.some()?;
        let graph = definition::resolve(graph)?;
        if context.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        let context = context::resolve(context)?;
        let default = match flags {
            0 => None,
            ASSIGN_DEFAULT => Some(default),
            _ => return Err(INVALID),
        };
        handle.set(conditional::create(&graph, context, default)?)
    }

    /// Destroys a graph and all its nodes.
    fn cuGraphDestroy(graph: CUgraph) { definition::destroy(graph) }

    /// Copies a graph.
    fn cuGraphClone(clone: Out<CUgraph>, original: CUgraph) {
        clone.some()?;
        clone.set(definition::resolve(original)?.copy(definition::MemoryNodes::Refused)?.handle())
    }

    /// The node of a clone that an original's node became.
    fn cuGraphNodeFindInClone(node: Out<CUgraphNode>, original: CUgraphNode, clone: CUgraph) {
        node.set(CUgraphNode::NULL)?;
        let clone = definition::resolve(clone)?;
        node.set(definition::find_in_clone(original, &clone)?)
    }

    /// The kind of a node.
    fn cuGraphNodeGetType(node: CUgraphNode, kind: Out<u32>) {
        kind.some()?;
        kind.set(definition::operation_of(node)?.kind() as u32)
    }

    /// All nodes.
    fn cuGraphGetNodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: InOut<usize>) {
        give_nodes(&definition::resolve(graph)?.nodes()?, nodes, count)
    }

    /// The nodes that depend on no other.
    fn cuGraphGetRootNodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: InOut<usize>) {
        give_nodes(&definition::resolve(graph)?.roots()?, nodes, count)
    }

    /// All edges.
    fn cuGraphGetEdges(graph: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, count: InOut<usize>) {
        edges(graph, from, to, Data::none(), count)
    }

    /// All edges, with their data.
    fn cuGraphGetEdges_v2(
        graph: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, data: Out<EdgeData>, count: InOut<usize>,
    ) {
        edges(graph, from, to, Data(data), count)
    }

    /// The nodes that a node depends on.
    fn cuGraphNodeGetDependencies(node: CUgraphNode, nodes: Out<CUgraphNode>, count: InOut<usize>) {
        give_edges(&definition::graph_of(node)?.dependencies(node)?, nodes, Data::none(), count)
    }

    /// The nodes that a node depends on, with the data of the edges.
    fn cuGraphNodeGetDependencies_v2(
        node: CUgraphNode, nodes: Out<CUgraphNode>, data: Out<EdgeData>, count: InOut<usize>,
    ) {
        give_edges(&definition::graph_of(node)?.dependencies(node)?, nodes, Data(data), count)
    }

    /// The nodes that depend on a node.
    fn cuGraphNodeGetDependentNodes(node: CUgraphNode, nodes: Out<CUgraphNode>, count: InOut<usize>) {
        give_edges(&definition::graph_of(node)?.dependents(node)?, nodes, Data::none(), count)
    }

    /// The nodes that depend on a node, with the data of the edges.
    fn cuGraphNodeGetDependentNodes_v2(
        node: CUgraphNode, nodes: Out<CUgraphNode>, data: Out<EdgeData>, count: InOut<usize>,
    ) {
        give_edges(&definition::graph_of(node)?.dependents(node)?, nodes, Data(data), count)
    }

    /// Adds edges.
    fn cuGraphAddDependencies(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) {
        definition::resolve(graph)?.add_dependencies(&pairs(from, to, no_data(), count)?)
    }

    /// Adds edges with data.
    fn cuGraphAddDependencies_v2(
        graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, data: In<EdgeData>, count: usize,
    ) {
        definition::resolve(graph)?.add_dependencies(&pairs(from, to, data, count)?)
    }

    /// Removes edges.
    fn cuGraphRemoveDependencies(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) {
        definition::resolve(graph)?.remove_dependencies(&pairs(from, to, no_data(), count)?)
    }

    /// Removes edges that have this data.
    fn cuGraphRemoveDependencies_v2(
        graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, data: In<EdgeData>, count: usize,
    ) {
        definition::resolve(graph)?.remove_dependencies(&pairs(from, to, data, count)?)
    }

    /// Writes a picture of a graph.
    fn cuGraphDebugDotPrint(graph: CUgraph, path: In<c_char>, flags: u32) {
        let path = path.text()?;
        let text = dot::dot(&definition::resolve(graph)?, flags)?;
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        std::fs::write(path, text).map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)
    }

    /// Destroys a node and its edges.
    fn cuGraphDestroyNode(node: CUgraphNode) { definition::destroy_node(node) }
}
