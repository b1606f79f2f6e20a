//! Driver calls on definitions: graphs, their nodes as a set, their edges, the user objects they retain.

use std::ffi::{CStr, c_void};
use std::ptr;

use cudarc::driver::sys::{self, CUgraph, CUgraphEdgeData, CUgraphNode, CUuserObject};

use super::call;
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

pub(crate) fn create() -> Result<CUgraph> {
    let mut graph = ptr::null_mut();
    call!(cuGraphCreate(&mut graph, 0))?;
    Ok(graph)
}

pub(crate) fn destroy(graph: CUgraph) -> Result<()> {
    call!(cuGraphDestroy(graph))
}

pub(crate) fn clone(graph: CUgraph) -> Result<CUgraph> {
    let mut copy = ptr::null_mut();
    call!(cuGraphClone(&mut copy, graph))?;
    Ok(copy)
}

pub(crate) fn find_in_clone(node: CUgraphNode, clone: CUgraph) -> Result<CUgraphNode> {
    let mut found = ptr::null_mut();
    call!(cuGraphNodeFindInClone(&mut found, node, clone))?;
    Ok(found)
}

/// Whether the graph has no node.
pub(crate) fn is_empty(graph: CUgraph) -> Result<bool> {
    let mut count = 0;
    call!(cuGraphGetNodes(graph, ptr::null_mut(), &mut count))?;
    Ok(count == 0)
}

/// The graph's nodes, in the driver's order.
pub(crate) fn nodes(graph: CUgraph) -> Result<Vec<CUgraphNode>> {
    let mut count = 0;
    call!(cuGraphGetNodes(graph, ptr::null_mut(), &mut count))?;
    let mut nodes = vec![ptr::null_mut(); count];
    if count > 0 {
        call!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count))?;
        nodes.truncate(count);
    }
    Ok(nodes)
}

/// The graph's nodes that depend on nothing.
pub(crate) fn roots(graph: CUgraph) -> Result<Vec<CUgraphNode>> {
    let mut count = 0;
    call!(cuGraphGetRootNodes(graph, ptr::null_mut(), &mut count))?;
    let mut nodes = vec![ptr::null_mut(); count];
    if count > 0 {
        call!(cuGraphGetRootNodes(graph, nodes.as_mut_ptr(), &mut count))?;
        nodes.truncate(count);
    }
    Ok(nodes)
}

/// An edge as the driver gives it.
#[derive(Clone, Copy)]
pub(crate) struct RawEdge {
    pub from: CUgraphNode,
    pub to: CUgraphNode,
    pub data: CUgraphEdgeData,
}

pub(crate) fn edges(graph: CUgraph) -> Result<Vec<RawEdge>> {
    let mut count = 0;
    call!(cuGraphGetEdges_v2(
        graph,
        ptr::null_mut(),
        ptr::null_mut(),
        ptr::null_mut(),
        &mut count
    ))?;
    let (mut from, mut to) = (vec![ptr::null_mut(); count], vec![ptr::null_mut(); count]);
    let mut data = vec![PLAIN; count];
    if count > 0 {
        call!(cuGraphGetEdges_v2(
            graph,
            from.as_mut_ptr(),
            to.as_mut_ptr(),
            data.as_mut_ptr(),
            &mut count
        ))?;
    }
    Ok((0..count)
        .map(|i| RawEdge {
            from: from[i],
            to: to[i],
            data: data[i],
        })
        .collect())
}

/// What `node` waits for.
pub(crate) fn predecessors(node: CUgraphNode) -> Result<Vec<(CUgraphNode, CUgraphEdgeData)>> {
    let mut count = 0;
    call!(cuGraphNodeGetDependencies_v2(
        node,
        ptr::null_mut(),
        ptr::null_mut(),
        &mut count
    ))?;
    let mut nodes = vec![ptr::null_mut(); count];
    let mut data = vec![PLAIN; count];
    if count > 0 {
        call!(cuGraphNodeGetDependencies_v2(
            node,
            nodes.as_mut_ptr(),
            data.as_mut_ptr(),
            &mut count
        ))?;
        nodes.truncate(count);
    }
    Ok(nodes.into_iter().zip(data).collect())
}

/// What waits for `node`.
pub(crate) fn successors(node: CUgraphNode) -> Result<Vec<(CUgraphNode, CUgraphEdgeData)>> {
    let mut count = 0;
    call!(cuGraphNodeGetDependentNodes_v2(
        node,
        ptr::null_mut(),
        ptr::null_mut(),
        &mut count
    ))?;
    let mut nodes = vec![ptr::null_mut(); count];
    let mut data = vec![PLAIN; count];
    if count > 0 {
        call!(cuGraphNodeGetDependentNodes_v2(
            node,
            nodes.as_mut_ptr(),
            data.as_mut_ptr(),
            &mut count
        ))?;
        nodes.truncate(count);
    }
    Ok(nodes.into_iter().zip(data).collect())
}

/// Adds edges, all of them in one call. The slices have one length.
pub(crate) fn add_edges(
    graph: CUgraph,
    from: &[CUgraphNode],
    to: &[CUgraphNode],
    data: &[CUgraphEdgeData],
) -> Result<()> {
    assert!(from.len() == to.len() && to.len() == data.len());
    call!(cuGraphAddDependencies_v2(
        graph,
        from.as_ptr(),
        to.as_ptr(),
        data.as_ptr(),
        from.len()
    ))
}

/// Removes edges, all of them in one call. The slices have one length, and the data are those of the edges.
pub(crate) fn remove_edges(
    graph: CUgraph,
    from: &[CUgraphNode],
    to: &[CUgraphNode],
    data: &[CUgraphEdgeData],
) -> Result<()> {
    assert!(from.len() == to.len() && to.len() == data.len());
    call!(cuGraphRemoveDependencies_v2(
        graph,
        from.as_ptr(),
        to.as_ptr(),
        data.as_ptr(),
        from.len()
    ))
}

/// A condition for a node of `graph`.
pub(crate) fn create_condition(
    graph: CUgraph,
    context: sys::CUcontext,
    default: Option<u32>,
) -> Result<sys::CUgraphConditionalHandle> {
    let mut handle = 0;
    // CU_GRAPH_COND_ASSIGN_DEFAULT
    let flags = u32::from(default.is_some());
    call!(cuGraphConditionalHandleCreate(
        &mut handle,
        graph,
        context,
        default.unwrap_or(0),
        flags
    ))?;
    Ok(handle)
}

/// A user object with one reference, the caller's. `destroy(payload)` runs once when the last reference is gone.
pub(crate) fn create_user_object(
    payload: *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void),
) -> Result<CUuserObject> {
    let mut object = ptr::null_mut();
    call!(cuUserObjectCreate(
        &mut object,
        payload,
        Some(destroy),
        1,
        sys::CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC as u32
    ))?;
    Ok(object)
}

/// Gives up a reference of the caller's own.
pub(crate) fn release_user_object(object: CUuserObject) -> Result<()> {
    call!(cuUserObjectRelease(object, 1))
}

/// Moves the caller's reference to the graph.
pub(crate) fn move_user_object(graph: CUgraph, object: CUuserObject) -> Result<()> {
    call!(cuGraphRetainUserObject(
        graph,
        object,
        1,
        sys::CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE as u32
    ))
}

/// Writes the driver's own picture of the graph to a file.
pub(crate) fn print_dot(graph: CUgraph, path: &CStr, flags: u32) -> Result<()> {
    call!(cuGraphDebugDotPrint(graph, path.as_ptr(), flags))
}
