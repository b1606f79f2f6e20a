//! The driver's graph functions as raw calls, and short ways to build graphs with them.

#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    reason = "the functions are the driver's"
)]

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use crate::conformance::api::*;
use crate::conformance::structs::{BatchOperation, Copy3d, LaunchAttributeValue};
use crate::driver;

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelParams {
    pub function: Handle,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub values: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kernel: Handle,
    pub context: Handle,
}

/// `CUDA_MEMSET_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FillParams {
    pub address: u64,
    pub pitch: usize,
    pub value: u32,
    pub element: u32,
    pub width: usize,
    pub height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HostParams {
    pub function: HostFn,
    pub data: *mut c_void,
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BatchParams {
    pub context: Handle,
    pub count: u32,
    pub operations: *mut BatchOperation,
    pub flags: u32,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UpdateInfo {
    pub result: u32,
    pub node: Handle,
    pub from: Handle,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InstantiateParams {
    pub flags: u64,
    pub upload: Handle,
    pub node: Handle,
    pub result: u32,
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocParams {
    /// `CUmemPoolProps`: allocation type, handle types, location type and number, and nothing else
    /// set.
    pub properties: [u32; 4],
    pub rest: [u64; 9],
    pub access: usize,
    pub access_count: usize,
    pub size: usize,
    pub address: u64,
}

/// `CUgraphNodeParams`, its union as words.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NodeParams {
    pub kind: u32,
    pub reserved: [i32; 3],
    pub union: [u64; 29],
    pub last: u64,
}

driver_functions! {
    cuGraphAddNode_v2(node: *mut Handle, graph: Handle, nodes: *const Handle, data: *const [u8; 8], count: usize, params: *mut NodeParams);
    cuGraphExecNodeSetParams(exec: Handle, node: Handle, params: *mut NodeParams);
    cuGraphAddMemAllocNode(node: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *mut AllocParams);
    cuGraphAddMemFreeNode(node: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, address: u64);
    cuGraphDebugDotPrint(graph: Handle, path: *const std::ffi::c_char, flags: u32);
    cuGraphCreate(graph: *mut Handle, flags: u32);
    cuGraphDestroy(graph: Handle);
    cuGraphClone(clone: *mut Handle, graph: Handle);
    cuGraphNodeFindInClone(node: *mut Handle, original: Handle, clone: Handle);
    cuGraphAddKernelNode_v2(node: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const KernelParams);
    cuGraphKernelNodeSetParams_v2(node: Handle, params: *const KernelParams);
    cuGraphAddMemsetNode(node: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const FillParams, context: Handle);
    cuGraphMemsetNodeSetParams(node: Handle, params: *const FillParams);
    cuGraphAddMemcpyNode(node: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const Copy3d, context: Handle);
    cuGraphAddHostNode(node: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const HostParams);
    cuGraphAddEmptyNode(node: *mut Handle, graph: Handle, nodes: *const Handle, count: usize);
    cuGraphAddChildGraphNode(node: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, child: Handle);
    cuGraphChildGraphNodeGetGraph(node: Handle, graph: *mut Handle);
    cuGraphAddEventRecordNode(node: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, event: Handle);
    cuGraphAddEventWaitNode(node: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, event: Handle);
    cuGraphAddDependencies(graph: Handle, from: *const Handle, to: *const Handle, count: usize);
    cuGraphRemoveDependencies(graph: Handle, from: *const Handle, to: *const Handle, count: usize);
    cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize);
    cuGraphGetRootNodes(graph: Handle, nodes: *mut Handle, count: *mut usize);
    cuGraphNodeGetDependencies(node: Handle, nodes: *mut Handle, count: *mut usize);
    cuGraphNodeGetDependentNodes(node: Handle, nodes: *mut Handle, count: *mut usize);
    cuGraphGetEdges(graph: Handle, from: *mut Handle, to: *mut Handle, count: *mut usize);
    cuGraphDestroyNode(node: Handle);
    cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, flags: u64);
    cuGraphInstantiateWithParams(exec: *mut Handle, graph: Handle, params: *mut InstantiateParams);
    cuGraphLaunch(exec: Handle, stream: Handle);
    cuGraphExecDestroy(exec: Handle);
    cuGraphExecUpdate_v2(exec: Handle, graph: Handle, info: *mut UpdateInfo);
    cuGraphExecKernelNodeSetParams_v2(exec: Handle, node: Handle, params: *const KernelParams);
    cuGraphExecChildGraphNodeSetParams(exec: Handle, node: Handle, child: Handle);
    cuGraphNodeSetEnabled(exec: Handle, node: Handle, enabled: u32);
    cuGraphAddNode(node: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *mut NodeParams);
    cuGraphAddKernelNode(node: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const KernelParams);
    cuGraphKernelNodeGetParams(node: Handle, params: *mut KernelParams);
    cuGraphKernelNodeSetParams(node: Handle, params: *const KernelParams);
    cuGraphExecKernelNodeSetParams(exec: Handle, node: Handle, params: *const KernelParams);
    cuGraphInstantiate(exec: *mut Handle, graph: Handle, node: *mut Handle, text: *mut std::ffi::c_char, room: usize);
    cuGraphExecUpdate(exec: Handle, graph: Handle, node: *mut Handle, result: *mut u32);
    cuGraphAddExternalSemaphoresSignalNode(node: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const [usize; 3]);
    cuGraphAddExternalSemaphoresWaitNode(node: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const [usize; 3]);
    cuGraphExternalSemaphoresSignalNodeGetParams(node: Handle, params: *mut [usize; 3]);
    cuGraphNodeGetType(node: Handle, kind: *mut u32);
    cuGraphNodeSetParams(node: Handle, params: *mut NodeParams);
    cuGraphKernelNodeGetParams_v2(node: Handle, params: *mut KernelParams);
    cuGraphKernelNodeGetAttribute(node: Handle, id: u32, value: *mut LaunchAttributeValue);
    cuGraphKernelNodeSetAttribute(node: Handle, id: u32, value: *const LaunchAttributeValue);
    cuGraphKernelNodeCopyAttributes(to: Handle, from: Handle);
    cuGraphMemcpyNodeGetParams(node: Handle, params: *mut Copy3d);
    cuGraphMemcpyNodeSetParams(node: Handle, params: *const Copy3d);
    cuGraphMemsetNodeGetParams(node: Handle, params: *mut FillParams);
    cuGraphHostNodeGetParams(node: Handle, params: *mut HostParams);
    cuGraphHostNodeSetParams(node: Handle, params: *const HostParams);
    cuGraphEventRecordNodeGetEvent(node: Handle, event: *mut Handle);
    cuGraphEventRecordNodeSetEvent(node: Handle, event: Handle);
    cuGraphEventWaitNodeGetEvent(node: Handle, event: *mut Handle);
    cuGraphEventWaitNodeSetEvent(node: Handle, event: Handle);
    cuGraphAddBatchMemOpNode(node: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const BatchParams);
    cuGraphBatchMemOpNodeGetParams(node: Handle, params: *mut BatchParams);
    cuGraphBatchMemOpNodeSetParams(node: Handle, params: *const BatchParams);
    cuGraphExecBatchMemOpNodeSetParams(exec: Handle, node: Handle, params: *const BatchParams);
    cuGraphAddDependencies_v2(graph: Handle, from: *const Handle, to: *const Handle, data: *const [u8; 8], count: usize);
    cuGraphRemoveDependencies_v2(graph: Handle, from: *const Handle, to: *const Handle, data: *const [u8; 8], count: usize);
    cuGraphGetEdges_v2(graph: Handle, from: *mut Handle, to: *mut Handle, data: *mut [u8; 8], count: *mut usize);
    cuGraphNodeGetDependencies_v2(node: Handle, nodes: *mut Handle, data: *mut [u8; 8], count: *mut usize);
    cuGraphNodeGetDependentNodes_v2(node: Handle, nodes: *mut Handle, data: *mut [u8; 8], count: *mut usize);
    cuGraphInstantiate_v2(exec: *mut Handle, graph: Handle, node: *mut Handle, text: *mut std::ffi::c_char, room: usize);
    cuGraphExecGetFlags(exec: Handle, flags: *mut u64);
    cuGraphUpload(exec: Handle, stream: Handle);
    cuGraphExecMemcpyNodeSetParams(exec: Handle, node: Handle, params: *const Copy3d, context: Handle);
    cuGraphExecMemsetNodeSetParams(exec: Handle, node: Handle, params: *const FillParams, context: Handle);
    cuGraphExecHostNodeSetParams(exec: Handle, node: Handle, params: *const HostParams);
    cuGraphExecEventRecordNodeSetEvent(exec: Handle, node: Handle, event: Handle);
    cuGraphExecEventWaitNodeSetEvent(exec: Handle, node: Handle, event: Handle);
    cuGraphNodeGetEnabled(exec: Handle, node: Handle, enabled: *mut u32);
    cuGraphMemAllocNodeGetParams(node: Handle, params: *mut AllocParams);
    cuGraphMemFreeNodeGetParams(node: Handle, address: *mut u64);
    cuDeviceGetGraphMemAttribute(device: i32, attribute: u32, value: *mut u64);
    cuDeviceSetGraphMemAttribute(device: i32, attribute: u32, value: *const u64);
    cuDeviceGraphMemTrim(device: i32);
    cuUserObjectCreate(object: *mut Handle, data: *mut c_void, destroy: HostFn, count: u32, flags: u32);
    cuUserObjectRelease(object: Handle, count: u32);
    cuUserObjectRetain(object: Handle, count: u32);
    cuGraphRetainUserObject(graph: Handle, object: Handle, count: u32, flags: u32);
    cuGraphReleaseUserObject(graph: Handle, object: Handle, count: u32);
}

pub unsafe fn graph() -> Handle {
    let mut graph = 0;
    cuGraphCreate(&mut graph, 0).must();
    graph
}

/// Parameters of one block of one thread.
pub fn kernel_params(function: Handle, values: &mut [*mut c_void]) -> KernelParams {
    KernelParams {
        function,
        grid: [1; 3],
        block: [1; 3],
        shared: 0,
        values: values.as_mut_ptr(),
        extra: null_mut(),
        kernel: 0,
        context: 0,
    }
}

pub unsafe fn add_kernel(
    graph: Handle,
    on: &[Handle],
    function: Handle,
    values: &mut [*mut c_void],
) -> Handle {
    let (mut node, params) = (0, kernel_params(function, values));
    cuGraphAddKernelNode_v2(&mut node, graph, on.as_ptr(), on.len(), &params).must();
    node
}

/// A node with the kernel `store`, which writes a word.
pub unsafe fn add_store(
    graph: Handle,
    on: &[Handle],
    store: Handle,
    to: u64,
    value: u32,
) -> Handle {
    let (mut to, mut value) = (to, value);
    let values = &mut [(&raw mut to).cast(), (&raw mut value).cast()];
    add_kernel(graph, on, store, values)
}

pub unsafe fn add_host(
    graph: Handle,
    on: &[Handle],
    function: HostFn,
    data: *mut c_void,
) -> Handle {
    let (mut node, params) = (0, HostParams { function, data });
    cuGraphAddHostNode(&mut node, graph, on.as_ptr(), on.len(), &params).must();
    node
}

pub unsafe fn add_empty(graph: Handle, on: &[Handle]) -> Handle {
    let mut node = 0;
    cuGraphAddEmptyNode(&mut node, graph, on.as_ptr(), on.len()).must();
    node
}

pub unsafe fn add_child(graph: Handle, on: &[Handle], child: Handle) -> Handle {
    let mut node = 0;
    cuGraphAddChildGraphNode(&mut node, graph, on.as_ptr(), on.len(), child).must();
    node
}

/// One word filled with a value.
pub fn word_fill(address: u64, value: u32) -> FillParams {
    FillParams {
        address,
        pitch: 0,
        value,
        element: 4,
        width: 1,
        height: 1,
    }
}

pub unsafe fn add_fill(graph: Handle, on: &[Handle], address: u64, value: u32) -> Handle {
    let (mut node, mut context) = (0, 0);
    cuCtxGetCurrent(&mut context).must();
    let params = word_fill(address, value);
    cuGraphAddMemsetNode(&mut node, graph, on.as_ptr(), on.len(), &params, context).must();
    node
}

/// An allocation node of device memory; also its address.
pub unsafe fn add_alloc(graph: Handle, on: &[Handle], size: usize) -> (Handle, u64) {
    let mut node = 0;
    let mut params = alloc_params(size);
    cuGraphAddMemAllocNode(&mut node, graph, on.as_ptr(), on.len(), &mut params).must();
    (node, params.address)
}

/// Of pinned memory on the device.
pub fn alloc_params(size: usize) -> AllocParams {
    AllocParams {
        properties: [1, 0, 1, 0],
        rest: [0; 9],
        access: 0,
        access_count: 0,
        size,
        address: 0,
    }
}

pub unsafe fn add_free(graph: Handle, on: &[Handle], address: u64) -> Handle {
    let mut node = 0;
    cuGraphAddMemFreeNode(&mut node, graph, on.as_ptr(), on.len(), address).must();
    node
}

/// Parameters of any kind of node, with the first words of the union.
pub fn node_params(kind: u32, words: &[u64]) -> NodeParams {
    let mut params = NodeParams {
        kind,
        reserved: [0; 3],
        union: [0; 29],
        last: 0,
    };
    params.union[..words.len()].copy_from_slice(words);
    params
}

/// The context current to this thread.
pub unsafe fn current() -> Handle {
    let mut context = 0;
    cuCtxGetCurrent(&mut context).must();
    context
}

/// A copy of one line between device addresses.
pub fn line_copy(to: u64, from: u64, bytes: usize) -> Copy3d {
    // SAFETY: numbers and null pointers.
    let mut copy: Copy3d = unsafe { std::mem::zeroed() };
    (copy.src_kind, copy.src_device) = (2, from);
    (copy.dst_kind, copy.dst_device) = (2, to);
    (copy.width, copy.height, copy.depth) = (bytes, 1, 1);
    copy
}

pub unsafe fn add_copy(graph: Handle, on: &[Handle], copy: &Copy3d) -> Handle {
    let mut node = 0;
    cuGraphAddMemcpyNode(&mut node, graph, on.as_ptr(), on.len(), copy, current()).must();
    node
}

/// Which of some handles with names one is, to be written down in its place.
pub fn named<'a>(handle: Handle, names: &[(&'a str, Handle)]) -> &'a str {
    match names.iter().find(|(_, known)| *known == handle) {
        Some((name, _)) => name,
        None if handle == 0 => "null",
        None => "other",
    }
}

pub unsafe fn instantiate(graph: Handle) -> Handle {
    let mut exec = 0;
    cuGraphInstantiateWithFlags(&mut exec, graph, 0).must();
    exec
}

pub unsafe fn add_edge(graph: Handle, from: Handle, to: Handle) -> Answer {
    cuGraphAddDependencies(graph, &from, &to, 1)
}

pub unsafe fn nodes(graph: Handle) -> Vec<Handle> {
    let mut count = 0;
    cuGraphGetNodes(graph, null_mut(), &mut count).must();
    if count == 0 {
        // The driver takes no array without room.
        return Vec::new();
    }
    let mut nodes = vec![0; count];
    cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count).must();
    nodes
}

pub unsafe fn edge_count(graph: Handle) -> usize {
    let mut count = 0;
    cuGraphGetEdges(graph, null_mut(), null_mut(), &mut count).must();
    count
}

/// The nodes that edges come from, and those that they lead to.
pub unsafe fn edge_ends(graph: Handle) -> (Vec<Handle>, Vec<Handle>) {
    let mut count = edge_count(graph);
    let (mut from, mut to) = (vec![0; count], vec![0; count]);
    if count > 0 {
        cuGraphGetEdges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &mut count).must();
    }
    (from, to)
}

/// No nodes.
pub const NONE: *const Handle = null();
