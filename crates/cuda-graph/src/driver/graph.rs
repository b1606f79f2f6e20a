//! Driver calls on definitions: graphs, their nodes as a set, their edges, the user objects they
//! retain.

use std::ffi::{CStr, c_void};
use std::ptr;

use cudarc::driver::sys::{self, CUgraph, CUgraphEdgeData, CUgraphNode, CUuserObject};
use smallvec::SmallVec;

use super::{ask, call, calls};
use crate::Result;

/// An edge without data: the plain dependency.
pub(crate) const PLAIN: CUgraphEdgeData = CUgraphEdgeData {
    from_port: 0,
    to_port: 0,
    type_: 0,
    reserved: [0; 5],
};

/// Whether an edge is the plain dependency.
pub(crate) fn is_plain(data: &CUgraphEdgeData) -> bool {
    data.from_port == 0 && data.to_port == 0 && data.type_ == 0
}

calls! {
    destroy(graph: CUgraph): cuGraphDestroy;
}

#[inline(always)]
pub(crate) fn create() -> Result<CUgraph> {
    ask(ptr::null_mut(), |graph| call!(cuGraphCreate(graph, 0)))
}

pub(crate) fn clone(graph: CUgraph) -> Result<CUgraph> {
    ask(ptr::null_mut(), |copy| call!(cuGraphClone(copy, graph)))
}

pub(crate) fn find_in_clone(node: CUgraphNode, clone: CUgraph) -> Result<CUgraphNode> {
    ask(ptr::null_mut(), |found| {
        call!(cuGraphNodeFindInClone(found, node, clone))
    })
}

/// Whether the graph has no node.
pub(crate) fn is_empty(graph: CUgraph) -> Result<bool> {
    let count = ask(0, |count| {
        call!(cuGraphGetNodes(graph, ptr::null_mut(), count))
    })?;
    Ok(count == 0)
}

/// An edge as the driver gives it.
#[derive(Clone, Copy)]
pub(crate) struct RawEdge {
    pub from: CUgraphNode,
    pub to: CUgraphNode,
    pub data: CUgraphEdgeData,
}

/// Nodes on the other side of edges.
type Neighbours = SmallVec<[(CUgraphNode, CUgraphEdgeData); FEW]>;

/// So many neighbours are read in one call. Most nodes have no more.
const FEW: usize = 4;

/// Calls `get` with room for a few entries, and again with room for all if there may be more.
fn neighbours(
    get: impl Fn(*mut CUgraphNode, *mut CUgraphEdgeData, *mut usize) -> Result<()>,
) -> Result<Neighbours> {
    let (mut nodes, mut data) = ([ptr::null_mut(); FEW], [PLAIN; FEW]);
    let mut count = FEW;
    get(nodes.as_mut_ptr(), data.as_mut_ptr(), &mut count)?;
    if count < FEW {
        return Ok(nodes.into_iter().zip(data).take(count).collect());
    }
    let size = ask(0, |count| get(ptr::null_mut(), ptr::null_mut(), count))?;
    let (mut nodes, mut data) = (vec![ptr::null_mut(); size], vec![PLAIN; size]);
    let mut count = size;
    get(nodes.as_mut_ptr(), data.as_mut_ptr(), &mut count)?;
    Ok(nodes.into_iter().zip(data).take(count).collect())
}

/// Calls `get` with null for the number of nodes, then with room for them.
fn list(get: impl Fn(*mut CUgraphNode, *mut usize) -> Result<()>) -> Result<Vec<CUgraphNode>> {
    let size = ask(0, |count| get(ptr::null_mut(), count))?;
    let (mut nodes, mut count) = (vec![ptr::null_mut(); size], size);
    if size > 0 {
        get(nodes.as_mut_ptr(), &mut count)?;
    }
    nodes.truncate(count);
    Ok(nodes)
}

/// The graph's nodes, in the driver's order.
pub(crate) fn nodes(graph: CUgraph) -> Result<Vec<CUgraphNode>> {
    list(|nodes, count| call!(cuGraphGetNodes(graph, nodes, count)))
}

/// The graph's nodes that depend on nothing.
pub(crate) fn roots(graph: CUgraph) -> Result<Vec<CUgraphNode>> {
    list(|nodes, count| call!(cuGraphGetRootNodes(graph, nodes, count)))
}

/// The graph's edges, ordered by the nodes that they lead to.
///
/// Every node is asked for its own. `cuGraphGetEdges` takes time squared in the number of edges: on
/// an H200 0.7 µs an edge of 10,000, and 9 µs of 100,000; a node's dependencies take 0.1 µs.
pub(crate) fn edges(graph: CUgraph) -> Result<Vec<RawEdge>> {
    let nodes = nodes(graph)?;
    let mut edges = Vec::with_capacity(nodes.len());
    for to in nodes {
        let before = predecessors(to)?.into_iter();
        edges.extend(before.map(|(from, data)| RawEdge { from, to, data }));
    }
    Ok(edges)
}

/// What `node` waits for.
pub(crate) fn predecessors(node: CUgraphNode) -> Result<Neighbours> {
    neighbours(|nodes, data, count| call!(cuGraphNodeGetDependencies_v2(node, nodes, data, count)))
}

/// What waits for `node`.
pub(crate) fn successors(node: CUgraphNode) -> Result<Neighbours> {
    neighbours(|nodes, data, count| {
        call!(cuGraphNodeGetDependentNodes_v2(node, nodes, data, count))
    })
}

/// Adds edges, all of them in one call. The slices have one length.
pub(crate) fn add_edges(
    graph: CUgraph,
    from: &[CUgraphNode],
    to: &[CUgraphNode],
    data: &[CUgraphEdgeData],
) -> Result<()> {
    assert!(from.len() == to.len() && to.len() == data.len());
    let (count, from, to, data) = (from.len(), from.as_ptr(), to.as_ptr(), data.as_ptr());
    call!(cuGraphAddDependencies_v2(graph, from, to, data, count))
}

/// Removes edges, all of them in one call. The slices have one length, and the data are those of
/// the edges.
pub(crate) fn remove_edges(
    graph: CUgraph,
    from: &[CUgraphNode],
    to: &[CUgraphNode],
    data: &[CUgraphEdgeData],
) -> Result<()> {
    assert!(from.len() == to.len() && to.len() == data.len());
    let (count, from, to, data) = (from.len(), from.as_ptr(), to.as_ptr(), data.as_ptr());
    call!(cuGraphRemoveDependencies_v2(graph, from, to, data, count))
}

/// A condition for a node of `graph`.
pub(crate) fn create_condition(
    graph: CUgraph,
    context: sys::CUcontext,
    default: Option<u32>,
) -> Result<sys::CUgraphConditionalHandle> {
    // CU_GRAPH_COND_ASSIGN_DEFAULT
    let flags = u32::from(default.is_some());
    let default = default.unwrap_or(0);
    ask(0, |handle| {
        call!(cuGraphConditionalHandleCreate(
            handle, graph, context, default, flags
        ))
    })
}

/// A user object with one reference, the caller's. `destroy(payload)` runs once when the last
/// reference is gone.
pub(crate) fn create_user_object(
    payload: *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void),
) -> Result<CUuserObject> {
    let flags = sys::CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC as u32;
    ask(ptr::null_mut(), |object| {
        call!(cuUserObjectCreate(object, payload, Some(destroy), 1, flags))
    })
}

/// Gives up a reference of the caller's own.
pub(crate) fn release_user_object(object: CUuserObject) -> Result<()> {
    call!(cuUserObjectRelease(object, 1))
}

/// Moves the caller's reference to the graph.
pub(crate) fn move_user_object(graph: CUgraph, object: CUuserObject) -> Result<()> {
    let flags = sys::CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE as u32;
    call!(cuGraphRetainUserObject(graph, object, 1, flags))
}

/// Writes the driver's own picture of the graph to a file.
pub(crate) fn print_dot(graph: CUgraph, path: &CStr, flags: u32) -> Result<()> {
    call!(cuGraphDebugDotPrint(graph, path.as_ptr(), flags))
}
