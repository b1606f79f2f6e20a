//! What it costs to make a graph by capture: the driver's own functions and this library, around
//! the same launches of cudarc; and operations recorded through this library beside the same ones
//! added.

use std::ptr;
use std::time::Duration;

use cuda_graph::Graph;
use cuda_graph::cudarc::driver::sys::{self, CUstreamCaptureMode};
use cuda_graph::cudarc::driver::{CudaStream, PushKernelArg};

use crate::{ONE_THREAD, Result, Shape, Work, library, median, timed, value};

/// Launches the kernel of each node, which `stream` records.
fn launches(work: &Work, stream: &CudaStream, nodes: usize) -> Result<()> {
    for node in 0..nodes {
        let (to, value) = (work.address(node), value(node, 0));
        let mut launch = stream.launch_builder(&work.store);
        launch.arg(&to).arg(&value);
        // SAFETY: these are the parameters of `store`, and the word is the node's own.
        unsafe { launch.launch(ONE_THREAD) }?;
    }
    Ok(())
}

fn raw(work: &Work, nodes: usize) -> Result<sys::CUgraph> {
    let stream = work.stream.cu_stream();
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    let mut graph = ptr::null_mut();
    // SAFETY: the stream lives.
    unsafe { sys::cuStreamBeginCapture_v2(stream, mode) }.result()?;
    launches(work, &work.stream, nodes)?;
    // SAFETY: as above; a place for the answer.
    unsafe { sys::cuStreamEndCapture(stream, &mut graph) }.result()?;
    Ok(graph)
}

fn captured(work: &Work, nodes: usize) -> Result<Graph> {
    let (graph, ()) = Graph::capture(&work.stream, |path| {
        let launch = |stream: &_| {
            launches(work, stream, nodes)
                .map_err(|error| cuda_graph::Error::other(std::io::Error::other(error.to_string())))
        };
        // SAFETY: the words and the kernel outlive the graph.
        unsafe { path.foreign(|stream| launch(stream)) }
    })?;
    Ok(graph)
}

fn recorded(work: &Work, nodes: usize) -> Result<Graph> {
    let ops = library::ops(work, Shape { nodes, lanes: 1 }, 0)?;
    let (graph, ()) = Graph::record(work.stream.context(), |path| {
        ops.into_iter().try_for_each(|op| path.record(op).map(drop))
    })?;
    Ok(graph)
}

fn added(work: &Work, nodes: usize) -> Result<Graph> {
    let ops = library::ops(work, Shape { nodes, lanes: 1 }, 0)?;
    let graph = Graph::new(work.stream.context())?;
    let mut last = None;
    for op in ops {
        last = Some(graph.add(op, last)?);
    }
    Ok(graph)
}

pub fn print(work: &Work, nodes: usize, repeats: usize) -> Result<()> {
    let mut times: [Vec<Duration>; 4] = Default::default();
    work.stream.synchronize()?;
    for repeat in 0..repeats.min(20_000 / nodes).max(5) {
        for at in (0..4).map(|at| (at + repeat) % 4) {
            let times = &mut times[at];
            match at {
                0 => {
                    let graph = timed(times, || raw(work, nodes))?;
                    // SAFETY: it is ours and goes once.
                    unsafe { sys::cuGraphDestroy(graph) }.result()?;
                }
                1 => drop(timed(times, || captured(work, nodes))?),
                2 => drop(timed(times, || recorded(work, nodes))?),
                _ => drop(timed(times, || added(work, nodes))?),
            }
        }
    }
    let per_node = times.map(|times| median(&times).unwrap_or(f64::NAN) / nodes as f64);
    let [raw, captured, recorded, added] = per_node;
    println!(
        "{nodes:>8}{raw:>16.3}{captured:>12.3} ({:4.2}){added:>16.3}{recorded:>12.3} ({:4.2})",
        captured / raw,
        recorded / added
    );
    Ok(())
}

pub fn header() {
    println!("\ncapture of a line, per node; operations are made as part of it");
    println!(
        "{:>8}{:>16}{:>19}{:>16}{:>19}",
        "nodes", "raw capture", "Graph::capture", "added", "recorded"
    );
}
