//! Driver calls on one node of a definition, and on kernels.
//!
//! Kernels have entry points of their own, the fastest; other kinds go through the generic ones,
//! with one description of parameters for adding, setting and updating. Reading is typed: the
//! generic getter came with CUDA 13.2.

use std::ffi::CStr;
use std::mem;
use std::ptr;

use cudarc::driver::sys::{
    self, CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
    CUDA_EXT_SEM_WAIT_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUdeviceptr, CUevent,
    CUfunction, CUgraph, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUkernelNodeAttrID,
    CUkernelNodeAttrValue,
};

use super::{ask, call, calls, values};
use crate::Result;

calls! {
    set_kernel(node: CUgraphNode, params: &CUDA_KERNEL_NODE_PARAMS): cuGraphKernelNodeSetParams_v2;
    set_attribute(node: CUgraphNode, id: CUkernelNodeAttrID, value: &CUkernelNodeAttrValue):
        cuGraphKernelNodeSetAttribute;
    set(node: CUgraphNode, params: &mut CUgraphNodeParams): cuGraphNodeSetParams;
    destroy(node: CUgraphNode): cuGraphDestroyNode;
}

values! {
    attribute(node: CUgraphNode, id: CUkernelNodeAttrID) -> CUkernelNodeAttrValue:
        cuGraphKernelNodeGetAttribute;
    kernel_params(node: CUgraphNode) -> CUDA_KERNEL_NODE_PARAMS: cuGraphKernelNodeGetParams_v2;
    fill_params(node: CUgraphNode) -> CUDA_MEMSET_NODE_PARAMS: cuGraphMemsetNodeGetParams;
    host_params(node: CUgraphNode) -> CUDA_HOST_NODE_PARAMS: cuGraphHostNodeGetParams;
    child(node: CUgraphNode) -> CUgraph: cuGraphChildGraphNodeGetGraph;
    recorded_event(node: CUgraphNode) -> CUevent: cuGraphEventRecordNodeGetEvent;
    awaited_event(node: CUgraphNode) -> CUevent: cuGraphEventWaitNodeGetEvent;
    freed_address(node: CUgraphNode) -> CUdeviceptr: cuGraphMemFreeNodeGetParams;
    batch_params(node: CUgraphNode) -> CUDA_BATCH_MEM_OP_NODE_PARAMS:
        cuGraphBatchMemOpNodeGetParams;
    signal_params(node: CUgraphNode) -> CUDA_EXT_SEM_SIGNAL_NODE_PARAMS:
        cuGraphExternalSemaphoresSignalNodeGetParams;
    wait_params(node: CUgraphNode) -> CUDA_EXT_SEM_WAIT_NODE_PARAMS:
        cuGraphExternalSemaphoresWaitNodeGetParams;
}

#[inline]
pub(crate) fn add_kernel(
    graph: CUgraph,
    after: &[CUgraphNode],
    params: &CUDA_KERNEL_NODE_PARAMS,
) -> Result<CUgraphNode> {
    let (from, count) = (after.as_ptr(), after.len());
    ask(ptr::null_mut(), |node| {
        call!(cuGraphAddKernelNode_v2(node, graph, from, count, params))
    })
}

/// Adds a node of any kind. Some kinds answer in `params`.
pub(crate) fn add(
    graph: CUgraph,
    after: &[CUgraphNode],
    params: &mut CUgraphNodeParams,
) -> Result<CUgraphNode> {
    let (from, plain, count) = (after.as_ptr(), ptr::null(), after.len());
    ask(ptr::null_mut(), |node| {
        call!(cuGraphAddNode_v2(node, graph, from, plain, count, params))
    })
}

pub(crate) fn add_empty(graph: CUgraph, after: &[CUgraphNode]) -> Result<CUgraphNode> {
    let (from, count) = (after.as_ptr(), after.len());
    ask(ptr::null_mut(), |node| {
        call!(cuGraphAddEmptyNode(node, graph, from, count))
    })
}

/// A node's kind as a number: a later driver may have kinds without a name here.
pub(crate) fn kind(node: CUgraphNode) -> Result<u32> {
    ask(0, |kind| {
        call!(cuGraphNodeGetType(node, (&raw mut *kind).cast()))
    })
}

pub(crate) fn copy_params(node: CUgraphNode) -> Result<CUDA_MEMCPY3D> {
    let mut params = mem::MaybeUninit::<CUDA_MEMCPY3D>::zeroed();
    // SAFETY: plain data; 0 is no value of the two memory types, so they get one.
    let params = unsafe {
        (*params.as_mut_ptr()).srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
        (*params.as_mut_ptr()).dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
        params.assume_init()
    };
    ask(params, |params| {
        call!(cuGraphMemcpyNodeGetParams(node, params))
    })
}

/// The driver's kinds of memory may have no name in the version that cudarc speaks.
pub(crate) fn alloc_params(
    node: CUgraphNode,
) -> Result<mem::MaybeUninit<CUDA_MEM_ALLOC_NODE_PARAMS>> {
    ask(mem::MaybeUninit::zeroed(), |params| {
        call!(cuGraphMemAllocNodeGetParams(node, params.as_mut_ptr()))
    })
}

/// Parameters of kind `kind`, everything else zero.
pub(crate) fn blank(kind: CUgraphNodeType) -> CUgraphNodeParams {
    let mut params = mem::MaybeUninit::<CUgraphNodeParams>::zeroed();
    // SAFETY: a kind, which gets a value here, and plain data for which zero is a value.
    unsafe {
        (*params.as_mut_ptr()).type_ = kind;
        params.assume_init()
    }
}

/// Whether the driver can move a graph into a node (CUDA 12.9).
pub(crate) fn has_moving() -> bool {
    super::has(12_090)
}

/// Makes parameters of a child node move their graph into the node instead of copying it.
pub(crate) fn make_moving(params: &mut CUgraphNodeParams) {
    /// CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE, which headers before 12.9 lack.
    const MOVE: i32 = 1;
    let child = (&raw mut params.__bindgen_anon_1.graph).cast::<CUgraph>();
    // SAFETY: in 12.9 the ownership follows the graph's handle. Headers before have only the
    // handle, in a union with members that are larger than both.
    unsafe { child.add(1).cast::<i32>().write(MOVE) };
}

/// Where parameter `index` of a function lies in its parameter block: offset and size. `None`
/// beyond the last.
pub(crate) fn function_parameter(
    function: CUfunction,
    index: usize,
) -> Result<Option<(usize, usize)>> {
    let (mut offset, mut size) = (0, 0);
    match call!(cuFuncGetParamInfo(function, index, &mut offset, &mut size)) {
        Ok(()) => Ok(Some((offset, size))),
        Err(error) if error.is(sys::CUresult::CUDA_ERROR_INVALID_VALUE) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A function's name, as the module has it.
pub(crate) fn function_name(function: CUfunction) -> Result<String> {
    let name = ask(ptr::null(), |name| call!(cuFuncGetName(name, function)))?;
    if name.is_null() {
        return Ok(String::new());
    }
    // SAFETY: the driver gives a C string that lives as long as the function's module, which the
    // caller holds.
    Ok(unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned())
}
