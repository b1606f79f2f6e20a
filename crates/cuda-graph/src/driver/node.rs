//! Driver calls on one node of a definition, and on kernels.
//!
//! Kernels have entry points of their own, the fastest; other kinds go through the generic ones, with one description of parameters for
//! adding, setting and updating. Reading is typed: the generic getter came with CUDA 13.2.

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

use super::call;
use crate::Result;

pub(crate) fn add_kernel(
    graph: CUgraph,
    after: &[CUgraphNode],
    params: &CUDA_KERNEL_NODE_PARAMS,
) -> Result<CUgraphNode> {
    let mut node = ptr::null_mut();
    call!(cuGraphAddKernelNode_v2(
        &mut node,
        graph,
        after.as_ptr(),
        after.len(),
        params
    ))?;
    Ok(node)
}

pub(crate) fn set_kernel(node: CUgraphNode, params: &CUDA_KERNEL_NODE_PARAMS) -> Result<()> {
    call!(cuGraphKernelNodeSetParams_v2(node, params))
}

pub(crate) fn kernel_params(node: CUgraphNode) -> Result<CUDA_KERNEL_NODE_PARAMS> {
    // SAFETY: the structure is plain data for which zero is a value of every field.
    let mut params: CUDA_KERNEL_NODE_PARAMS = unsafe { mem::zeroed() };
    call!(cuGraphKernelNodeGetParams_v2(node, &mut params))?;
    Ok(params)
}

pub(crate) fn set_attribute(
    node: CUgraphNode,
    attribute: CUkernelNodeAttrID,
    value: &CUkernelNodeAttrValue,
) -> Result<()> {
    call!(cuGraphKernelNodeSetAttribute(node, attribute, value))
}

pub(crate) fn attribute(
    node: CUgraphNode,
    attribute: CUkernelNodeAttrID,
) -> Result<CUkernelNodeAttrValue> {
    // SAFETY: the union is plain data with a member of bytes.
    let mut value: CUkernelNodeAttrValue = unsafe { mem::zeroed() };
    call!(cuGraphKernelNodeGetAttribute(node, attribute, &mut value))?;
    Ok(value)
}

/// Adds a node of any kind. Some kinds answer in `params`.
pub(crate) fn add(
    graph: CUgraph,
    after: &[CUgraphNode],
    params: &mut CUgraphNodeParams,
) -> Result<CUgraphNode> {
    let mut node = ptr::null_mut();
    call!(cuGraphAddNode_v2(
        &mut node,
        graph,
        after.as_ptr(),
        ptr::null(),
        after.len(),
        params
    ))?;
    Ok(node)
}

pub(crate) fn add_empty(graph: CUgraph, after: &[CUgraphNode]) -> Result<CUgraphNode> {
    let mut node = ptr::null_mut();
    call!(cuGraphAddEmptyNode(
        &mut node,
        graph,
        after.as_ptr(),
        after.len()
    ))?;
    Ok(node)
}

pub(crate) fn set(node: CUgraphNode, params: &mut CUgraphNodeParams) -> Result<()> {
    call!(cuGraphNodeSetParams(node, params))
}

pub(crate) fn destroy(node: CUgraphNode) -> Result<()> {
    call!(cuGraphDestroyNode(node))
}

/// A node's kind as a number: a later driver may have kinds without a name here.
pub(crate) fn kind(node: CUgraphNode) -> Result<u32> {
    let mut kind = CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY as u32;
    call!(cuGraphNodeGetType(node, (&raw mut kind).cast()))?;
    Ok(kind)
}

pub(crate) fn copy_params(node: CUgraphNode) -> Result<CUDA_MEMCPY3D> {
    // SAFETY: plain data; 0 is no value of the two memory types, so they get one.
    let mut params = unsafe {
        let mut params = mem::MaybeUninit::<CUDA_MEMCPY3D>::zeroed();
        (*params.as_mut_ptr()).srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
        (*params.as_mut_ptr()).dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
        params.assume_init()
    };
    call!(cuGraphMemcpyNodeGetParams(node, &mut params))?;
    Ok(params)
}

pub(crate) fn fill_params(node: CUgraphNode) -> Result<CUDA_MEMSET_NODE_PARAMS> {
    // SAFETY: plain data for which zero is a value of every field.
    let mut params: CUDA_MEMSET_NODE_PARAMS = unsafe { mem::zeroed() };
    call!(cuGraphMemsetNodeGetParams(node, &mut params))?;
    Ok(params)
}

pub(crate) fn host_params(node: CUgraphNode) -> Result<CUDA_HOST_NODE_PARAMS> {
    // SAFETY: plain data for which zero is a value of every field, `None` for the function.
    let mut params: CUDA_HOST_NODE_PARAMS = unsafe { mem::zeroed() };
    call!(cuGraphHostNodeGetParams(node, &mut params))?;
    Ok(params)
}

pub(crate) fn child(node: CUgraphNode) -> Result<CUgraph> {
    let mut graph = ptr::null_mut();
    call!(cuGraphChildGraphNodeGetGraph(node, &mut graph))?;
    Ok(graph)
}

pub(crate) fn recorded_event(node: CUgraphNode) -> Result<CUevent> {
    let mut event = ptr::null_mut();
    call!(cuGraphEventRecordNodeGetEvent(node, &mut event))?;
    Ok(event)
}

pub(crate) fn awaited_event(node: CUgraphNode) -> Result<CUevent> {
    let mut event = ptr::null_mut();
    call!(cuGraphEventWaitNodeGetEvent(node, &mut event))?;
    Ok(event)
}

/// Filled in by the driver, whose kinds of memory may have no name in the version that cudarc speaks.
pub(crate) fn alloc_params(
    node: CUgraphNode,
) -> Result<mem::MaybeUninit<CUDA_MEM_ALLOC_NODE_PARAMS>> {
    let mut params = mem::MaybeUninit::<CUDA_MEM_ALLOC_NODE_PARAMS>::zeroed();
    call!(cuGraphMemAllocNodeGetParams(node, params.as_mut_ptr()))?;
    Ok(params)
}

pub(crate) fn freed_address(node: CUgraphNode) -> Result<CUdeviceptr> {
    let mut address = 0;
    call!(cuGraphMemFreeNodeGetParams(
        node,
        (&raw mut address).cast::<CUdeviceptr>()
    ))?;
    Ok(address)
}

pub(crate) fn batch_params(node: CUgraphNode) -> Result<CUDA_BATCH_MEM_OP_NODE_PARAMS> {
    // SAFETY: plain data for which zero is a value of every field.
    let mut params: CUDA_BATCH_MEM_OP_NODE_PARAMS = unsafe { mem::zeroed() };
    call!(cuGraphBatchMemOpNodeGetParams(node, &mut params))?;
    Ok(params)
}

pub(crate) fn signal_params(node: CUgraphNode) -> Result<CUDA_EXT_SEM_SIGNAL_NODE_PARAMS> {
    // SAFETY: plain data for which zero is a value of every field.
    let mut params: CUDA_EXT_SEM_SIGNAL_NODE_PARAMS = unsafe { mem::zeroed() };
    call!(cuGraphExternalSemaphoresSignalNodeGetParams(
        node,
        &mut params
    ))?;
    Ok(params)
}

pub(crate) fn wait_params(node: CUgraphNode) -> Result<CUDA_EXT_SEM_WAIT_NODE_PARAMS> {
    // SAFETY: plain data for which zero is a value of every field.
    let mut params: CUDA_EXT_SEM_WAIT_NODE_PARAMS = unsafe { mem::zeroed() };
    call!(cuGraphExternalSemaphoresWaitNodeGetParams(
        node,
        &mut params
    ))?;
    Ok(params)
}

/// Parameters of kind `kind`, everything else zero.
pub(crate) fn blank(kind: CUgraphNodeType) -> CUgraphNodeParams {
    let mut params = mem::MaybeUninit::<CUgraphNodeParams>::zeroed();
    // SAFETY: the structure is a kind, which gets a value here, and plain data for which zero is a value.
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
    // SAFETY: in 12.9 the ownership follows the graph's handle. Headers before have only the handle,
    // in a union with members that are larger than both.
    unsafe { child.add(1).cast::<i32>().write(MOVE) };
}

/// Where parameter `index` of a function lies in its parameter block: offset and size. `None` beyond the last.
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
    let mut name = ptr::null();
    call!(cuFuncGetName(&mut name, function))?;
    if name.is_null() {
        return Ok(String::new());
    }
    // SAFETY: the driver gives a C string that lives as long as the function's module, which the caller holds.
    Ok(unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned())
}
