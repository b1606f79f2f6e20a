//! Plain cudarc: launches on streams, captured.

use std::convert::Infallible;
use std::ops::Range;

use cuda_graph::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cuda_graph::cudarc::driver::{CudaGraph, PushKernelArg};

use crate::{ONE_THREAD, Result, Shape, Way, Work, value};

pub struct Captured;

impl Way for Captured {
    const NAME: &str = "cudarc capture";
    type Graph = CudaGraph;
    type Exec = Infallible;
    type Prepared = ();
    type Updates = Infallible;

    fn prepare(_: &Work, _: Shape) -> Result<()> {
        Ok(())
    }

    fn build(work: &Work, shape: Shape, (): ()) -> Result<CudaGraph> {
        let first = &work.stream;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        let others: Vec<_> = (1..shape.lanes)
            .map(|_| first.context().new_stream())
            .collect::<std::result::Result<_, _>>()?;
        first.begin_capture(mode)?;
        for other in &others {
            other.join(first)?;
        }
        for node in 0..shape.nodes {
            let (to, value) = (work.address(node), value(node, 0));
            let stream = match node % shape.lanes {
                0 => first,
                lane => &others[lane - 1],
            };
            let mut launch = stream.launch_builder(&work.store);
            launch.arg(&to).arg(&value);
            // SAFETY: these are the parameters of `store`, and the word is the node's own.
            unsafe { launch.launch(ONE_THREAD) }?;
        }
        for other in &others {
            first.join(other)?;
        }
        let graph = first.end_capture(CUgraphInstantiate_flags(0))?;
        Ok(graph.ok_or("the capture ended without a graph")?)
    }

    fn instantiate(_: &mut CudaGraph) -> Result<Option<Infallible>> {
        Ok(None)
    }

    fn launch(_: &Work, graph: &mut CudaGraph, _: &mut Option<Infallible>) -> Result<()> {
        Ok(graph.launch()?)
    }

    fn updates(_: &Work, _: Shape, _: u32) -> Result<Option<Infallible>> {
        Ok(None)
    }

    fn update(
        _: &CudaGraph,
        _: &mut Option<Infallible>,
        updates: &Infallible,
        _: Range<usize>,
    ) -> Result<()> {
        match *updates {}
    }
}
