//! Driver calls on executable graphs.

use std::mem;
use std::ptr;

use cudarc::driver::sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUgraph, CUgraphExec,
    CUgraphExecUpdateResultInfo, CUgraphNode, CUgraphNodeParams, CUstream,
};

use super::{ask, call, calls, values};
use crate::Result;

/// Instantiates. The driver's verdict is in `params`.
#[inline(always)]
pub(crate) fn instantiate(
    graph: CUgraph,
    params: &mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> Result<CUgraphExec> {
    ask(ptr::null_mut(), |exec| {
        call!(cuGraphInstantiateWithParams(exec, graph, params))
    })
}

calls! {
    destroy(exec: CUgraphExec): cuGraphExecDestroy;
    upload(exec: CUgraphExec, stream: CUstream): cuGraphUpload;

    #[inline]
    launch(exec: CUgraphExec, stream: CUstream): cuGraphLaunch;

    #[inline(always)]
    set_kernel(exec: CUgraphExec, node: CUgraphNode, params: &CUDA_KERNEL_NODE_PARAMS):
        cuGraphExecKernelNodeSetParams_v2;
    set(exec: CUgraphExec, node: CUgraphNode, params: &mut CUgraphNodeParams):
        cuGraphExecNodeSetParams;
    set_child(exec: CUgraphExec, node: CUgraphNode, graph: CUgraph):
        cuGraphExecChildGraphNodeSetParams;
}

values! {
    /// The flags that it was instantiated with.
    flags(exec: CUgraphExec) -> u64: cuGraphExecGetFlags;
}

/// What the driver says about an update.
pub(crate) struct Verdict {
    /// A `CUgraphExecUpdateResult`, as a number: a later driver may have more of them.
    pub result: u32,
    /// The node at fault in the definition, or null.
    pub node: CUgraphNode,
}

/// Updates from a definition.
pub(crate) fn update(exec: CUgraphExec, graph: CUgraph) -> (Result<()>, Verdict) {
    let mut info = mem::MaybeUninit::<CUgraphExecUpdateResultInfo>::zeroed();
    let answer = call!(cuGraphExecUpdate_v2(exec, graph, info.as_mut_ptr()));
    let info = info.as_ptr();
    // SAFETY: zeroed, then written by the driver alone; the enumeration is read as a number.
    let (result, node, from) = unsafe {
        let result = (&raw const (*info).result).cast::<u32>().read();
        (result, (*info).errorNode, (*info).errorFromNode)
    };
    let node = if node.is_null() { from } else { node };
    (answer, Verdict { result, node })
}

pub(crate) fn set_enabled(exec: CUgraphExec, node: CUgraphNode, enabled: bool) -> Result<()> {
    call!(cuGraphNodeSetEnabled(exec, node, u32::from(enabled)))
}

pub(crate) fn is_enabled(exec: CUgraphExec, node: CUgraphNode) -> Result<bool> {
    let enabled = ask(0, |on| call!(cuGraphNodeGetEnabled(exec, node, on)))?;
    Ok(enabled != 0)
}
