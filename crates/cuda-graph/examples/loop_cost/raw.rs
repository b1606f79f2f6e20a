//! Conditional nodes by the driver's own functions, as a C program would make them, and the loop
//! that the host drives.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::cudarc::driver::sys::{
    self, CUDA_CONDITIONAL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUgraph, CUgraphConditionalHandle,
    CUgraphConditionalNodeType, CUgraphExec, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
};
use cuda_graph::{Buffer, Kernel, PinnedBuffer};

use crate::kernels::Work;
use crate::{Contender, Result, Run};

const WHILE: CUgraphConditionalNodeType = CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE;
const IF: CUgraphConditionalNodeType = CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF;

/// A definition of our own; bodies are plain handles that live as long.
struct Graph<'a> {
    raw: CUgraph,
    work: &'a Work,
}

impl Drop for Graph<'_> {
    fn drop(&mut self) {
        // SAFETY: it is ours and goes once.
        let _ = unsafe { sys::cuGraphDestroy(self.raw) };
    }
}

struct Exec(CUgraphExec);

impl Exec {
    fn launch(&self, stream: &CudaStream) -> Result<()> {
        // SAFETY: executable and stream are alive, launches come one after the other, and what the
        // graph uses goes with its contender, after all work.
        Ok(unsafe { sys::cuGraphLaunch(self.0, stream.cu_stream()) }.result()?)
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        // SAFETY: it is ours and goes once.
        let _ = unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}

/// Adds a kernel node of one thread.
///
/// # Safety
/// The graph lives, `values` are what the kernel takes, and what they point at outlives the graph's
/// executables.
unsafe fn add_kernel<const N: usize>(
    graph: CUgraph,
    after: Option<CUgraphNode>,
    kernel: &Kernel,
    mut values: [u64; N],
) -> Result<CUgraphNode> {
    let mut pointers = [ptr::null_mut::<c_void>(); N];
    for (pointer, value) in pointers.iter_mut().zip(&mut values) {
        // The driver reads as many bytes as the parameter has; the machine is little-endian.
        *pointer = (&raw mut *value).cast();
    }
    let params = CUDA_KERNEL_NODE_PARAMS {
        func: kernel.raw(),
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: pointers.as_mut_ptr(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    };
    let (mut node, after) = (ptr::null_mut(), after.as_slice());
    // SAFETY: the caller's promise; the node before is of the same graph.
    unsafe { sys::cuGraphAddKernelNode_v2(&mut node, graph, after.as_ptr(), after.len(), &params) }
        .result()?;
    Ok(node)
}

impl<'a> Graph<'a> {
    fn new(work: &'a Work) -> Result<Graph<'a>> {
        let mut raw = ptr::null_mut();
        // SAFETY: a place for the answer.
        unsafe { sys::cuGraphCreate(&mut raw, 0) }.result()?;
        Ok(Graph { raw, work })
    }

    fn condition(&self, default: u32) -> Result<CUgraphConditionalHandle> {
        let (mut condition, context) = (0, self.work.stream.context().cu_ctx());
        // SAFETY: graph and context live; the flag has launches begin with the default.
        unsafe {
            sys::cuGraphConditionalHandleCreate(&mut condition, self.raw, context, default, 1)
        }
        .result()?;
        Ok(condition)
    }

    /// A node with one body, and that.
    ///
    /// # Safety
    /// `graph` is this one or a body of it, and the condition is of it and used once.
    unsafe fn add_conditional(
        &self,
        graph: CUgraph,
        after: Option<CUgraphNode>,
        condition: CUgraphConditionalHandle,
        kind: CUgraphConditionalNodeType,
    ) -> Result<(CUgraphNode, CUgraph)> {
        let mut params = MaybeUninit::<CUgraphNodeParams>::zeroed();
        // SAFETY: the structure is a kind, which gets a value here, and plain data for which zero
        // is a value.
        let mut params = unsafe {
            (*params.as_mut_ptr()).type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL;
            params.assume_init()
        };
        params.__bindgen_anon_1.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
            handle: condition,
            type_: kind,
            size: 1,
            phGraph_out: ptr::null_mut(),
            ctx: self.work.stream.context().cu_ctx(),
        };
        let (mut node, after) = (ptr::null_mut(), after.as_slice());
        // SAFETY: the caller's promise. The driver answers with an array of one body.
        unsafe {
            let (at, count) = (after.as_ptr(), after.len());
            sys::cuGraphAddNode_v2(&mut node, graph, at, ptr::null(), count, &mut params)
                .result()?;
            Ok((node, *params.__bindgen_anon_1.conditional.phGraph_out))
        }
    }

    /// Instantiates it, and launches that again and again.
    fn launched(self) -> Result<Run<'a>> {
        let (mut exec, stream) = (ptr::null_mut(), self.work.stream.clone());
        // SAFETY: the graph is alive.
        unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, self.raw, 0) }.result()?;
        let exec = Exec(exec);
        Ok(Box::new(move || exec.launch(&stream)))
    }
}

/// A loop whose one kernel sets the condition.
pub fn sets_itself(work: &Work, turns: u32) -> Result<Contender<'_>> {
    let (graph, counts) = (Graph::new(work)?, work.counts()?);
    let condition = graph.condition(1)?;
    let values = [counts.address(), turns.into(), condition];
    // SAFETY: the graph is ours and what the kernel takes goes with the contender.
    unsafe {
        let (_, body) = graph.add_conditional(graph.raw, None, condition, WHILE)?;
        add_kernel(body, None, &work.count_and_set, values)?;
    }
    Contender::new(turns, &counts, graph.launched()?)
}

/// A loop of a kernel that writes a flag and one that sets the condition to it.
pub fn sets_from_flag(work: &Work, turns: u32) -> Result<Contender<'_>> {
    let (graph, counts, flag) = (Graph::new(work)?, work.counts()?, work.flag()?);
    let condition = graph.condition(1)?;
    // SAFETY: as above.
    unsafe {
        let (_, body) = graph.add_conditional(graph.raw, None, condition, WHILE)?;
        add_turn(work, body, None, &counts, turns, condition, &flag)?;
    }
    Ok(Contender::new(turns, &counts, graph.launched()?)?.keeping(flag))
}

/// A kernel that writes a flag, and one that sets a condition to it.
///
/// # Safety
/// As for [`add_kernel`].
unsafe fn add_turn(
    work: &Work,
    graph: CUgraph,
    after: Option<CUgraphNode>,
    counts: &Buffer<u32>,
    turns: u32,
    condition: CUgraphConditionalHandle,
    flag: &Buffer<u32>,
) -> Result<()> {
    let values = [counts.address(), turns.into(), flag.address()];
    // SAFETY: the caller's promise.
    unsafe {
        let count = add_kernel(graph, after, &work.count_to_flag, values)?;
        let values = [condition, flag.address()];
        add_kernel(graph, Some(count), &work.set_from, values)?;
    }
    Ok(())
}

/// A loop of loops of `inner` turns, each armed by a kernel before it.
pub fn nested(work: &Work, outer: u32, inner: u32) -> Result<Contender<'_>> {
    let graph = Graph::new(work)?;
    let (counts, outer_counts) = (work.counts()?, work.counts()?);
    let (flag, outer_flag) = (work.flag()?, work.flag()?);
    let (condition, outer_condition) = (graph.condition(0)?, graph.condition(1)?);
    // SAFETY: as above.
    unsafe {
        let (_, body) = graph.add_conditional(graph.raw, None, outer_condition, WHILE)?;
        let values = [condition, work.one.address()];
        let arm = add_kernel(body, None, &work.set_from, values)?;
        let (node, innermost) = graph.add_conditional(body, Some(arm), condition, WHILE)?;
        add_turn(work, innermost, None, &counts, inner, condition, &flag)?;
        let after = Some(node);
        let (counts, flag) = (&outer_counts, &outer_flag);
        add_turn(work, body, after, counts, outer, outer_condition, flag)?;
    }
    let kept = (outer_counts, flag, outer_flag);
    Ok(Contender::new(outer * inner, &counts, graph.launched()?)?.keeping(kept))
}

/// IFs in a row, each with a kernel before it that sets its condition and one in it.
pub fn ifs(work: &Work, count: u32) -> Result<Contender<'_>> {
    let (graph, counts) = (Graph::new(work)?, work.counts()?);
    let mut last = None;
    for _ in 0..count {
        let condition = graph.condition(0)?;
        // SAFETY: as above.
        unsafe {
            let values = [condition, work.one.address()];
            let set = add_kernel(graph.raw, last, &work.set_from, values)?;
            let (node, body) = graph.add_conditional(graph.raw, Some(set), condition, IF)?;
            add_kernel(body, None, &work.count, [counts.address()])?;
            last = Some(node);
        }
    }
    Contender::new(count, &counts, graph.launched()?)
}

/// A loop that the host drives: a launch, a copy of the flag to pinned memory, a wait, again and
/// again.
pub fn host_driven(work: &Work, turns: u32) -> Result<Contender<'_>> {
    let (counts, flag) = (work.counts()?, work.flag()?);
    let seen = PinnedBuffer::<u32>::zeroed(work.stream.context(), 1)?;
    let (mut at, mut limit, mut to) = (counts.address(), turns, flag.address());
    let run = move || {
        let stream = work.stream.cu_stream();
        loop {
            let mut values: [*mut c_void; 3] = [
                (&raw mut at).cast(),
                (&raw mut limit).cast(),
                (&raw mut to).cast(),
            ];
            // SAFETY: the kernel takes two addresses and a number between them; the memory outlives
            // the wait, and is read after it.
            let goes_on = unsafe {
                let (values, extra, kernel) = (
                    values.as_mut_ptr(),
                    ptr::null_mut(),
                    work.count_to_flag.raw(),
                );
                sys::cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, values, extra).result()?;
                let host = seen.address() as *mut u32;
                sys::cuMemcpyDtoHAsync_v2(host.cast(), flag.address(), 4, stream).result()?;
                sys::cuStreamSynchronize(stream).result()?;
                host.read_volatile()
            };
            if goes_on == 0 {
                return Ok(());
            }
        }
    };
    Contender::new(turns, &counts, Box::new(run))
}
