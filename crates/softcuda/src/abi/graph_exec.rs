//! `cuGraphExec*`, instantiation and launches.

use std::ffi::c_char;

use super::copy::Copy3d;
use super::graph_params::{
    self, BatchParams, ChildParams, CopyParams, FillParams1, HostParams, KernelParams,
    KernelParams1, NodeParams, Params, RecordParams, WaitParams,
};
use super::types::{CUcontext, CUevent, CUgraph, CUgraphExec, CUgraphNode, CUstream};
use super::{In, InOut, NullStream, Out, export};
use crate::driver::graph::executable::{self, flag};
use crate::driver::graph::plan::Why;
use crate::driver::graph::{Kind, definition};
use crate::driver::{CUresult, Result, capture, stream};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// `CUgraphInstantiateResult`.
mod outcome {
    pub const SUCCESS: u32 = 0;
    pub const ERROR: u32 = 1;
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct InstantiateParams {
    flags: u64,
    upload: CUstream,
    failed: CUgraphNode,
    outcome: u32,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UpdateResult {
    result: u32,
    node: CUgraphNode,
    from: CUgraphNode,
}

fn instantiate(exec: Out<CUgraphExec>, graph: CUgraph, flags: u64) -> Result {
    exec.some()?;
    let graph = definition::resolve(graph)?;
    let made = executable::instantiate(&graph, flags);
    exec.set(made.map_err(|failed| failed.error)?)
}

/// The forms that tell of errors through a node and a text.
fn instantiate_telling(
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    node: Out<CUgraphNode>,
    text: Out<c_char>,
    room: usize,
) -> Result {
    exec.some()?;
    if room > 0 {
        text.set_if_wanted(0);
    }
    node.set_if_wanted(CUgraphNode::NULL);
    let graph = definition::resolve(graph)?;
    let made = executable::instantiate(&graph, 0).map_err(|failed| {
        // Of a cycle no node is named here.
        let named = failed.node.filter(|_| failed.why != Why::Structure);
        node.set_if_wanted(CUgraphNode(named.unwrap_or(0)));
        failed.error
    });
    exec.set(made?)
}

fn instantiate_with(
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    params: InOut<InstantiateParams>,
    null: NullStream,
) -> Result {
    exec.some()?;
    let given = params.get()?;
    let tell = |node: Option<usize>, outcome: u32| {
        params.set(InstantiateParams {
            failed: CUgraphNode(node.unwrap_or(0)),
            outcome,
            ..given
        })
    };
    let failed = |error: CUresult| tell(None, outcome::ERROR).and(Err(error));
    let upload = match given.flags & flag::UPLOAD {
        0 => None,
        _ => Some(stream::resolve_to_run(given.upload, null).or_else(failed)?),
    };
    let graph =
        definition::resolve(graph).or_else(|error| tell(None, outcome::ERROR).and(Err(error)))?;
    match executable::instantiate(&graph, given.flags) {
        Ok(made) => {
            if let Some(stream) = upload {
                executable::resolve(made)?.upload(&stream)?;
            }
            exec.set(made)?;
            tell(None, outcome::SUCCESS)
        }
        Err(failed) => {
            tell(failed.node, failed.why as u32)?;
            Err(failed.error)
        }
    }
}

fn set<P: Params>(exec: CUgraphExec, node: CUgraphNode, params: P) -> Result {
    executable::resolve(exec)?.set_operation(node, |old| {
        P::encode(old)?;
        params.decode(Some(old))
    })
}

fn set_child(exec: CUgraphExec, node: CUgraphNode, child: CUgraph) -> Result {
    let exec = executable::resolve(exec)?;
    exec.set_child(node, &definition::resolve(child)?)
}

fn update(exec: CUgraphExec, graph: CUgraph) -> (Result, UpdateResult) {
    let told = |result: u32, node: Option<usize>, from: Option<usize>| UpdateResult {
        result,
        node: CUgraphNode(node.unwrap_or(0)),
        from: CUgraphNode(from.unwrap_or(0)),
    };
    let both = executable::resolve(exec).and_then(|exec| Ok((exec, definition::resolve(graph)?)));
    match both {
        // Not a word on what is no update at all.
        Err(error) => (Err(error), told(0, None, None)),
        Ok((exec, graph)) => match exec.update(&graph) {
            Ok(()) => (Ok(()), told(0, None, None)),
            Err(refused) => {
                let info = told(refused.why as u32, refused.node, refused.from);
                (Err(refused.error), info)
            }
        },
    }
}

export! {
    /// Makes an executable of a graph.
    fn cuGraphInstantiate(
        exec: Out<CUgraphExec>, graph: CUgraph, node: Out<CUgraphNode>, text: Out<c_char>, room: usize,
    ) {
        capture::permit()?;
        instantiate_telling(exec, graph, node, text, room)
    }

    /// Makes an executable of a graph.
    fn cuGraphInstantiate_v2(
        exec: Out<CUgraphExec>, graph: CUgraph, node: Out<CUgraphNode>, text: Out<c_char>, room: usize,
    ) {
        capture::permit()?;
        instantiate_telling(exec, graph, node, text, room)
    }

    /// Makes an executable of a graph, with flags.
    fn cuGraphInstantiateWithFlags(exec: Out<CUgraphExec>, graph: CUgraph, flags: u64) {
        capture::permit()?;
        match flags & flag::UPLOAD {
            0 => instantiate(exec, graph, flags),
            // There is no stream to do it in.
            _ => Err(INVALID),
        }
    }

    /// Makes an executable of a graph, and tells how it went.
    fn cuGraphInstantiateWithParams | cuGraphInstantiateWithParams_ptsz(null;
        exec: Out<CUgraphExec>, graph: CUgraph, params: InOut<InstantiateParams>,
    ) {
        capture::permit()?;
        instantiate_with(exec, graph, params, null)
    }

    /// The flags that an executable was made with.
    fn cuGraphExecGetFlags(exec: CUgraphExec, flags: Out<u64>) {
        flags.some()?;
        flags.set(executable::resolve(exec)?.flags())
    }

    /// Destroys an executable; launches in flight go on.
    fn cuGraphExecDestroy(exec: CUgraphExec) {
        capture::permit()?;
        executable::destroy(exec)
    }

    /// Brings an executable to the device.
    fn cuGraphUpload | cuGraphUpload_ptsz(null; exec: CUgraphExec, stream: CUstream) {
        let exec = executable::resolve(exec)?;
        exec.upload(&*stream::resolve_to_run(stream, null)?)
    }

    /// Launches an executable.
    fn cuGraphLaunch | cuGraphLaunch_ptsz(null; exec: CUgraphExec, stream: CUstream) {
        let exec = executable::resolve(exec)?;
        exec.launch(&*stream::resolve_to_run(stream, null)?)
    }

    /// Has a kernel node of an executable launch something else.
    fn cuGraphExecKernelNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: In<KernelParams1>) {
        set(exec, node, params.get()?)
    }

    /// Has a kernel node of an executable launch something else.
    fn cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, params: In<KernelParams>) {
        set(exec, node, params.get()?)
    }

    /// Has a copy node of an executable copy something else.
    fn cuGraphExecMemcpyNodeSetParams(exec: CUgraphExec, node: CUgraphNode, copy: In<Copy3d>, context: CUcontext) {
        set(exec, node, CopyParams::new(copy.get()?, context))
    }

    /// Has a fill node of an executable fill something else.
    fn cuGraphExecMemsetNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, fill: In<FillParams1>, context: CUcontext,
    ) {
        set(exec, node, fill.get()?.in_context(context))
    }

    /// Has a host node of an executable call something else.
    fn cuGraphExecHostNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: In<HostParams>) {
        set(exec, node, params.get()?)
    }

    /// Has a child graph's nodes do in an executable what another graph's do.
    fn cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, child: CUgraph) {
        set_child(exec, node, child)
    }

    /// Has a node of an executable record another event.
    fn cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) {
        set(exec, node, RecordParams(event))
    }

    /// Has a node of an executable wait for another event.
    fn cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) {
        set(exec, node, WaitParams(event))
    }

    /// Gives a node of an executable other memory operations.
    fn cuGraphExecBatchMemOpNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: In<BatchParams>) {
        set(exec, node, params.get()?)
    }

    /// Gives a node of an executable other parameters.
    fn cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: In<NodeParams>) {
        if params.get()?.kind()? == Kind::Child as u32 {
            let child = graph_params::member::<ChildParams>(params).get()?;
            return set_child(exec, node, child.graph);
        }
        executable::resolve(exec)?.set_operation(node, |old| graph_params::decode(params, Some(old)))
    }

    /// Enables or disables a node of an executable.
    fn cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: u32) {
        executable::resolve(exec)?.set_enabled(node, enabled != 0)
    }

    /// Whether a node of an executable is enabled.
    fn cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: Out<u32>) {
        enabled.some()?;
        enabled.set(executable::resolve(exec)?.enabled(node)?.into())
    }

    /// Has all nodes of an executable do what a graph's do.
    fn cuGraphExecUpdate(exec: CUgraphExec, graph: CUgraph, node: Out<CUgraphNode>, result: Out<u32>) {
        let (done, info) = update(exec, graph);
        node.set_if_wanted(info.node);
        result.set_if_wanted(info.result);
        done
    }

    /// Has all nodes of an executable do what a graph's do, and tells how it went.
    fn cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, info: Out<UpdateResult>) {
        let (done, told) = update(exec, graph);
        info.set_if_wanted(told);
        done
    }
}
