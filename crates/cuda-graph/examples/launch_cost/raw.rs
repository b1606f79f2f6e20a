//! The driver's own functions, as a C program would call them.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;

use cuda_graph::cudarc::driver::sys::{
    self, CUDA_KERNEL_NODE_PARAMS, CUgraph, CUgraphExec, CUgraphNode,
};

use crate::{Result, Shape, Way, Work, value};

pub struct Raw;

/// Parameters of a node, where they stay.
pub struct Update {
    to: u64,
    value: u32,
}

impl Update {
    fn of(work: &Work, node: usize, round: u32) -> Update {
        Update {
            to: work.address(node),
            value: value(node, round),
        }
    }

    fn pointers(&mut self) -> [*mut c_void; 2] {
        [(&raw mut self.to).cast(), (&raw mut self.value).cast()]
    }
}

pub fn params(work: &Work, pointers: &mut [*mut c_void; 2]) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        // SAFETY: the function lives as long as `work`.
        func: work.store.cu_function(),
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
    }
}

pub struct Graph {
    raw: CUgraph,
    nodes: Vec<CUgraphNode>,
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: it is ours and goes once.
        let _ = unsafe { sys::cuGraphDestroy(self.raw) };
    }
}

pub struct Exec(CUgraphExec);

impl Drop for Exec {
    fn drop(&mut self) {
        // SAFETY: it is ours and goes once.
        let _ = unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}

impl Way for Raw {
    const NAME: &str = "raw driver";
    type Graph = Graph;
    type Exec = Exec;
    type Prepared = ();
    type Updates = Vec<(Update, CUDA_KERNEL_NODE_PARAMS)>;

    fn prepare(_: &Work, _: Shape) -> Result<()> {
        Ok(())
    }

    fn build(work: &Work, shape: Shape, (): ()) -> Result<Graph> {
        let mut raw = ptr::null_mut();
        // SAFETY: a place for the answer.
        unsafe { sys::cuGraphCreate(&mut raw, 0) }.result()?;
        let mut graph = Graph {
            raw,
            nodes: Vec::new(),
        };
        for node in 0..shape.nodes {
            let mut update = Update::of(work, node, 0);
            let mut pointers = update.pointers();
            let params = params(work, &mut pointers);
            let before = shape.before(node).map(|before| graph.nodes[before]);
            let after = before.as_slice();
            let mut added = ptr::null_mut();
            // SAFETY: the graph and the nodes are alive, the parameters are those of `store`.
            unsafe {
                sys::cuGraphAddKernelNode_v2(&mut added, raw, after.as_ptr(), after.len(), &params)
            }
            .result()?;
            graph.nodes.push(added);
        }
        Ok(graph)
    }

    fn instantiate(graph: &mut Graph) -> Result<Option<Exec>> {
        let mut exec = ptr::null_mut();
        // SAFETY: the graph is alive.
        unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph.raw, 0) }.result()?;
        Ok(Some(Exec(exec)))
    }

    fn launch(work: &Work, _: &mut Graph, exec: &mut Option<Exec>) -> Result<()> {
        let exec = exec.as_ref().ok_or("instantiated before")?;
        // SAFETY: executable and stream are alive, and launches come one after the other.
        Ok(unsafe { sys::cuGraphLaunch(exec.0, work.stream.cu_stream()) }.result()?)
    }

    fn updates(work: &Work, shape: Shape, round: u32) -> Result<Option<Self::Updates>> {
        let made = (0..shape.nodes).map(|node| {
            let mut unused = [ptr::null_mut(); 2];
            (Update::of(work, node, round), params(work, &mut unused))
        });
        Ok(Some(made.collect()))
    }

    fn update(
        graph: &Graph,
        exec: &mut Option<Exec>,
        updates: &Self::Updates,
        nodes: Range<usize>,
    ) -> Result<()> {
        let exec = exec.as_ref().ok_or("instantiated before")?;
        for node in nodes {
            let (update, params) = &updates[node];
            let mut pointers: [*mut c_void; 2] = [
                (&raw const update.to).cast_mut().cast(),
                (&raw const update.value).cast_mut().cast(),
            ];
            let params = CUDA_KERNEL_NODE_PARAMS {
                kernelParams: pointers.as_mut_ptr(),
                ..*params
            };
            // SAFETY: executable and node are alive, the parameters are those of `store`.
            unsafe { sys::cuGraphExecKernelNodeSetParams_v2(exec.0, graph.nodes[node], &params) }
                .result()?;
        }
        Ok(())
    }
}
