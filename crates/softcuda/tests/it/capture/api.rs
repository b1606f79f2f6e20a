//! The driver's capture functions as raw calls, and short ways to capture with them.

#![allow(
    dead_code,
    non_snake_case,
    clippy::too_many_arguments,
    reason = "the functions are the driver's, whichever of them is asked"
)]

use std::ffi::c_void;
use std::ptr::null;
use std::sync::OnceLock;

use crate::conformance::api::*;
use crate::conformance::fixture::*;
use crate::conformance::structs::BatchOperation;
use crate::driver;
use crate::graphs::api::*;

driver_functions! {
    cuStreamBeginCapture_v2(stream: Handle, mode: u32);
    cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: u32);
    cuStreamBeginCaptureToGraph(stream: Handle, graph: Handle, nodes: *const Handle, data: *const EdgeData, count: usize, mode: u32);
    cuStreamEndCapture(stream: Handle, graph: *mut Handle);
    cuStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle);
    cuStreamGetCaptureInfo_v2(stream: Handle, status: *mut u32, id: *mut u64, graph: *mut Handle, nodes: *mut *const Handle, count: *mut usize);
    cuStreamGetCaptureInfo_v3(stream: Handle, status: *mut u32, id: *mut u64, graph: *mut Handle, nodes: *mut *const Handle, data: *mut *const EdgeData, count: *mut usize);
    cuStreamUpdateCaptureDependencies_v2(stream: Handle, nodes: *const Handle, data: *const EdgeData, count: usize, flags: u32);
    cuCtxRecordEvent(context: Handle, event: Handle);
    cuCtxWaitEvent(context: Handle, event: Handle);
    cuCtxSynchronize_v2(context: Handle);
    cuMemcpyPeerAsync(target: u64, target_context: Handle, source: u64, source_context: Handle, size: usize, stream: Handle);
    cuMemcpyHtoD_v2_ptds(target: u64, source: *const c_void, size: usize);
    cuMemsetD32_v2_ptds(target: u64, value: u32, count: usize);
    cuStreamWriteValue32(stream: Handle, address: u64, value: u32, flags: u32);
    cuStreamWaitValue32(stream: Handle, address: u64, value: u32, flags: u32);
    cuMemcpyDtoD_v2_ptds(target: u64, source: u64, size: usize);
    cuLaunchHostFunc_ptsz(stream: Handle, function: HostFn, data: *mut c_void);
    cuStreamIsCapturing_ptsz(stream: Handle, status: *mut u32);
    cuStreamGetCaptureInfo(stream: Handle, status: *mut u32, id: *mut u64);
    cuStreamUpdateCaptureDependencies(stream: Handle, nodes: *const Handle, count: usize, flags: u32);
    cuMemPrefetchBatchAsync(addresses: *const u64, sizes: *const usize, count: usize, locations: *const crate::conformance::structs::Location, first: *const usize, location_count: usize, flags: u64, stream: Handle);
    cuMemcpyBatchAsync_v2(targets: *const u64, sources: *const u64, sizes: *const usize, count: usize, attributes: *const [u32; 6], first: *const usize, attribute_count: usize, stream: Handle);
    cuMemDiscardBatchAsync(addresses: *const u64, sizes: *const usize, count: usize, flags: u64, stream: Handle);
    cuMemcpy3DPeerAsync(copy: *const crate::conformance::structs::Copy3d, stream: Handle);
    cuStreamGetGreenCtx(stream: Handle, context: *mut Handle);
    cuGraphKernelNodeSetAttribute(node: Handle, attribute: u32, value: *const [u64; 8]);
    cuStreamBatchMemOp(stream: Handle, count: u32, operations: *mut BatchOperation, flags: u32);
}

/// `CUgraphEdgeData`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeData {
    pub from_port: u8,
    pub to_port: u8,
    pub kind: u8,
    pub reserved: [u8; 5],
}

/// `CUstreamCaptureMode`.
pub const GLOBAL: u32 = 0;
pub const THREAD_LOCAL: u32 = 1;
pub const RELAXED: u32 = 2;

/// `CUstreamCaptureStatus`.
pub const NONE_STATUS: u32 = 0;
pub const ACTIVE: u32 = 1;
pub const INVALIDATED_STATUS: u32 = 2;

/// The flag of events that makes nodes of them.
pub const EXTERNAL: u32 = 1;

/// Errors.
pub const UNSUPPORTED: u32 = 900;
pub const INVALIDATED: u32 = 901;
pub const MERGE: u32 = 902;
pub const UNMATCHED: u32 = 903;
pub const UNJOINED: u32 = 904;
pub const ISOLATION: u32 = 905;
pub const IMPLICIT: u32 = 906;
pub const CAPTURED_EVENT: u32 = 907;
pub const WRONG_THREAD: u32 = 908;
pub const ILLEGAL_STATE: u32 = 401;
pub const INVALID_VALUE: u32 = 1;

/// Kinds of nodes.
pub const KERNEL: u32 = 0;
pub const COPY: u32 = 1;
pub const FILL: u32 = 2;
pub const HOST: u32 = 3;
pub const EVENT_WAIT: u32 = 6;
pub const EVENT_RECORD: u32 = 7;
pub const ALLOC: u32 = 10;
pub const FREE: u32 = 11;
pub const BATCH: u32 = 12;

pub unsafe fn begin(stream: Handle, mode: u32) {
    cuStreamBeginCapture_v2(stream, mode).must();
}

/// Ends a capture that must have succeeded.
pub unsafe fn end(stream: Handle) -> Handle {
    let mut graph = 0;
    cuStreamEndCapture(stream, &mut graph).must();
    assert_ne!(graph, 0);
    graph
}

/// Ends a capture that failed; gives the error.
#[track_caller]
pub unsafe fn end_failed(stream: Handle) -> u32 {
    let mut graph = BOGUS;
    let answer = cuStreamEndCapture(stream, &mut graph);
    assert_ne!(answer.code, 0);
    assert_eq!(graph, 0);
    answer.code
}

/// `CUstreamCaptureStatus` of a stream.
pub unsafe fn status(stream: Handle) -> u32 {
    let mut status = 77;
    cuStreamIsCapturing(stream, &mut status).must();
    status
}

/// What a stream in a capture tells: the capture's id, the graph, the dependencies and their data.
pub unsafe fn info(stream: Handle) -> (u64, Handle, Vec<Handle>, Vec<EdgeData>) {
    let (mut status, mut id, mut graph, mut count) = (77, 0, 0, 0);
    let (mut nodes, mut data) = (null(), null());
    cuStreamGetCaptureInfo_v3(
        stream,
        &mut status,
        &mut id,
        &mut graph,
        &mut nodes,
        &mut data,
        &mut count,
    )
    .must();
    assert_eq!(status, ACTIVE);
    let list = match count {
        0 => (Vec::new(), Vec::new()),
        _ => (
            std::slice::from_raw_parts(nodes, count).to_vec(),
            std::slice::from_raw_parts(data, count).to_vec(),
        ),
    };
    (id, graph, list.0, list.1)
}

/// The graph that a stream is captured to.
pub unsafe fn graph_of(stream: Handle) -> Handle {
    info(stream).1
}

/// What the next node of a stream will depend on.
pub unsafe fn dependencies(stream: Handle) -> Vec<Handle> {
    info(stream).2
}

/// Has `to` wait for what `from` was given so far; gives the event.
pub unsafe fn order(from: Handle, to: Handle) -> Handle {
    let event = event();
    cuEventRecord(event, from).must();
    cuStreamWaitEvent(to, event, 0).must();
    event
}

/// The kinds of all nodes, in order.
pub unsafe fn kinds(graph: Handle) -> Vec<u32> {
    let kind = |node| {
        let mut kind = 77;
        cuGraphNodeGetType(node, &mut kind).must();
        kind
    };
    nodes(graph).into_iter().map(kind).collect()
}

/// The edges between nodes, by the order in which these were made.
pub unsafe fn edges(graph: Handle) -> Vec<(usize, usize)> {
    let (from, to) = edge_ends(graph);
    let all = nodes(graph);
    let place = |node: &Handle| all.iter().position(|it| it == node).unwrap_or(usize::MAX);
    let mut edges: Vec<_> = from
        .iter()
        .zip(&to)
        .map(|(a, b)| (place(a), place(b)))
        .collect();
    edges.sort_unstable();
    edges
}

/// Launches the kernel `store`, which writes a word.
pub unsafe fn launch_store(store: Handle, stream: Handle, to: u64, value: u32) -> Answer {
    let (mut to, mut value) = (to, value);
    launch(store, 1, 1, stream, &mut [void(&mut to), void(&mut value)])
}
