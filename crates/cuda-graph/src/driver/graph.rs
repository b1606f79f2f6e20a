//! Driver calls on definitions: graphs, their nodes as a set, their edges, the user objects they
//! retain.

use std::ffi::{CStr, c_void};
use std::ptr;

use cudarc::driver::sys::{self, CUgraph, CUgraphEdgeData, CUgraphNode, CUuserObject};

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

type Nodes = *mut CUgraphNode;

/// Calls `get` with nulls for the number of entries, then with room for them. Where a driver
/// function has fewer columns, the others stay null or plain.
fn list(
    get: impl Fn(Nodes, Nodes, *mut CUgraphEdgeData, *mut usize) -> Result<()>,
) -> Result<impl Iterator<Item = RawEdge>> {
    let (null, none) = (ptr::null_mut(), ptr::null_mut());
    let size = ask(0, |count| get(null, null, none, count))?;
    let (mut from, mut to) = (vec![ptr::null_mut(); size], vec![ptr::null_mut(); size]);
    let (mut data, mut count) = (vec![PLAIN; size], size);
    if size > 0 {
        let (from, to, data) = (from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr());
        get(from, to, data, &mut count)?;
    }
    let entries = from.into_iter().zip(to).zip(data).take(count);
    Ok(entries.map(|((from, to), data)| RawEdge { from, to, data }))
}

/// The graph's nodes, in the driver's order.
pub(crate) fn nodes(graph: CUgraph) -> Result<Vec<CUgraphNode>> {
    let nodes = list(|nodes, _, _, count| call!(cuGraphGetNodes(graph, nodes, count)))?;
    Ok(nodes.map(|node| node.from).collect())
}

/// The graph's nodes that depend on nothing.
pub(crate) fn roots(graph: CUgraph) -> Result<Vec<CUgraphNode>> {
    let nodes = list(|nodes, _, _, count| call!(cuGraphGetRootNodes(graph, nodes, count)))?;
    Ok(nodes.map(|node| node.from).collect())
}

pub(crate) fn edges(graph: CUgraph) -> Result<Vec<RawEdge>> {
    let edges =
        list(|from, to, data, count| call!(cuGraphGetEdges_v2(graph, from, to, data, count)))?;
    Ok(edges.collect())
}

/// What `node` waits for.
pub(crate) fn predecessors(node: CUgraphNode) -> Result<Vec<(CUgraphNode, CUgraphEdgeData)>> {
    let edges =
        list(|from, _, data, count| call!(cuGraphNodeGetDependencies_v2(node, from, data, count)))?;
    Ok(edges.map(|edge| (edge.from, edge.data)).collect())
}

/// What waits for `node`.
pub(crate) fn successors(node: CUgraphNode) -> Result<Vec<(CUgraphNode, CUgraphEdgeData)>> {
    let edges =
        list(|_, to, data, count| call!(cuGraphNodeGetDependentNodes_v2(node, to, data, count)))?;
    Ok(edges.map(|edge| (edge.to, edge.data)).collect())
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
