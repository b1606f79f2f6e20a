//! What a step costs that is called again with other arguments.

use std::error::Error;
use std::ffi::c_void;
use std::ptr;
use std::time::{Duration, Instant};

use cuda_graph::cudarc::driver::sys::{
    self, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode, CUstreamCaptureMode,
};
use cuda_graph::{Buffer, KernelOp, Param, Recorder, Replay};

use crate::raw::params;
use crate::{ONE_THREAD, Result, Work, median, value};

/// A line of kernels, of which the first `changed` get another value in each round.
#[derive(Clone, Copy)]
struct Shape {
    nodes: usize,
    changed: usize,
}

impl Shape {
    fn value(self, node: usize, round: u32) -> u32 {
        value(node, if node < self.changed { round } else { 0 })
    }
}

/// One way to call a step again.
trait Way {
    fn name(&self) -> &'static str;

    /// Calls it for a round.
    fn call(&mut self, work: &Work, shape: Shape, round: u32) -> Result<()>;
}

/// Sets the changed nodes, and launches. Or launches alone.
struct Raw {
    graph: CUgraph,
    exec: CUgraphExec,
    nodes: Vec<CUgraphNode>,
    sets: bool,
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: both are ours and go once.
        let _ = unsafe {
            (
                sys::cuGraphExecDestroy(self.exec),
                sys::cuGraphDestroy(self.graph),
            )
        };
    }
}

fn pointers(to: &mut u64, value: &mut u32) -> [*mut c_void; 2] {
    [ptr::from_mut(to).cast(), ptr::from_mut(value).cast()]
}

impl Raw {
    fn new(work: &Work, shape: Shape, sets: bool) -> Result<Raw> {
        let (mut graph, mut exec) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a place for the answer.
        unsafe { sys::cuGraphCreate(&mut graph, 0) }.result()?;
        let mut nodes = Vec::new();
        for node in 0..shape.nodes {
            let (mut to, mut value) = (work.address(node), shape.value(node, 0));
            let mut pointers = pointers(&mut to, &mut value);
            let params = params(work, &mut pointers);
            let after: &[CUgraphNode] = nodes.last().map_or(&[], std::slice::from_ref);
            let mut added = ptr::null_mut();
            // SAFETY: the graph and the nodes are alive, the parameters are those of `store`.
            unsafe {
                sys::cuGraphAddKernelNode_v2(
                    &mut added,
                    graph,
                    after.as_ptr(),
                    after.len(),
                    &params,
                )
            }
            .result()?;
            nodes.push(added);
        }
        // SAFETY: the graph is alive.
        unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0) }.result()?;
        Ok(Raw {
            graph,
            exec,
            nodes,
            sets,
        })
    }
}

impl Way for Raw {
    fn name(&self) -> &'static str {
        "raw sets, launch"
    }

    fn call(&mut self, work: &Work, shape: Shape, round: u32) -> Result<()> {
        let count = if self.sets { shape.changed } else { 0 };
        for node in 0..count {
            let (mut to, mut value) = (work.address(node), shape.value(node, round));
            let mut pointers = pointers(&mut to, &mut value);
            let params = params(work, &mut pointers);
            // SAFETY: executable and node are alive, the parameters are those of `store`.
            unsafe { sys::cuGraphExecKernelNodeSetParams_v2(self.exec, self.nodes[node], &params) }
                .result()?;
        }
        // SAFETY: executable and stream are alive, and launches come one after the other.
        Ok(unsafe { sys::cuGraphLaunch(self.exec, work.stream.cu_stream()) }.result()?)
    }
}

/// Captures the step anew each time, and updates an executable from it, or makes a new one.
struct Recapture {
    exec: CUgraphExec,
    updates: bool,
}

impl Recapture {
    fn new(updates: bool) -> Recapture {
        Recapture {
            exec: ptr::null_mut(),
            updates,
        }
    }
}

impl Drop for Recapture {
    fn drop(&mut self) {
        if !self.exec.is_null() {
            // SAFETY: it is ours and goes once.
            let _ = unsafe { sys::cuGraphExecDestroy(self.exec) };
        }
    }
}

impl Way for Recapture {
    fn name(&self) -> &'static str {
        match self.updates {
            true => "capture, whole update",
            false => "capture, instantiate",
        }
    }

    fn call(&mut self, work: &Work, shape: Shape, round: u32) -> Result<()> {
        let stream = work.stream.cu_stream();
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is alive, the parameters are those of `store`, and what is made here
        // is destroyed once.
        unsafe {
            sys::cuStreamBeginCapture_v2(stream, mode).result()?;
            for node in 0..shape.nodes {
                let (mut to, mut value) = (work.address(node), shape.value(node, round));
                let mut pointers = pointers(&mut to, &mut value);
                let (function, arguments) = (work.store.cu_function(), pointers.as_mut_ptr());
                let none = ptr::null_mut();
                sys::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, none)
                    .result()?;
            }
            sys::cuStreamEndCapture(stream, &mut graph).result()?;
            if self.updates && !self.exec.is_null() {
                let mut info = std::mem::zeroed::<CUgraphExecUpdateResultInfo>();
                sys::cuGraphExecUpdate_v2(self.exec, graph, &mut info).result()?;
            } else {
                if !self.exec.is_null() {
                    sys::cuGraphExecDestroy(self.exec).result()?;
                }
                sys::cuGraphInstantiateWithFlags(&mut self.exec, graph, 0).result()?;
            }
            sys::cuGraphDestroy(graph).result()?;
            Ok(sys::cuGraphLaunch(self.exec, stream).result()?)
        }
    }
}

/// Walks the step.
struct Walked {
    replay: Replay,
    words: Vec<Buffer<u32>>,
}

fn words(work: &Work, shape: Shape) -> Result<Vec<Buffer<u32>>> {
    let word = |node| Ok(work.words.slice(node..node + 1)?);
    (0..shape.nodes).map(word).collect()
}

impl Way for Walked {
    fn name(&self) -> &'static str {
        "Replay, walked"
    }

    fn call(&mut self, work: &Work, shape: Shape, round: u32) -> Result<()> {
        let step = |r: &mut dyn Recorder| {
            for (node, word) in self.words.iter().enumerate() {
                let arguments = (word, shape.value(node, round));
                // SAFETY: `store` writes one word, which the slice has.
                r.record(unsafe { KernelOp::new(&work.kernel, ONE_THREAD, arguments) }?)?;
            }
            Ok(())
        };
        self.replay.call(&work.stream, step)?;
        Ok(())
    }
}

/// Binds a parameter, which the changed kernels have as an argument.
struct Bound {
    replay: Replay,
    value: Param<u32>,
}

impl Bound {
    fn new(work: &Work, shape: Shape) -> Result<Bound> {
        let mut bound = Bound {
            replay: Replay::new(work.stream.context())?,
            value: Param::with_value("value", 0),
        };
        let words = words(work, shape)?;
        bound.replay.call(&work.stream, |r| {
            for (node, word) in words.iter().enumerate() {
                r.record(match node < shape.changed {
                    true => {
                        // SAFETY: `store` writes one word, which the slice has.
                        unsafe { KernelOp::new(&work.kernel, ONE_THREAD, (word, &bound.value)) }?
                    }
                    false => {
                        // SAFETY: as above.
                        unsafe { KernelOp::new(&work.kernel, ONE_THREAD, (word, value(node, 0))) }?
                    }
                })?;
            }
            Ok(())
        })?;
        Ok(bound)
    }
}

impl Way for Bound {
    fn name(&self) -> &'static str {
        "Replay, by parameters"
    }

    fn call(&mut self, work: &Work, shape: Shape, round: u32) -> Result<()> {
        if shape.changed > 0 {
            self.replay.bind(&self.value, round)?;
        }
        self.replay.run(&work.stream)?;
        Ok(())
    }
}

/// The middle of so many calls of each way, in µs. The round of a call is `round` of its number.
fn measure(
    work: &Work,
    shape: Shape,
    repeats: usize,
    ways: &mut [Box<dyn Way>],
    round: impl Fn(usize) -> u32,
) -> Result<Vec<f64>> {
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); ways.len()];
    let warm = 10;
    for repeat in 0..repeats + warm {
        // Whoever is first after another pays for cold caches, so each is first in turn.
        for at in 0..ways.len() {
            let way = (at + repeat) % ways.len();
            work.stream.synchronize()?;
            let start = Instant::now();
            ways[way].call(work, shape, round(repeat))?;
            let time = start.elapsed();
            work.stream.synchronize()?;
            if repeat >= warm {
                times[way].push(time);
            }
        }
    }
    Ok(times
        .iter()
        .map(|times| median(times).unwrap_or(f64::NAN))
        .collect())
}

/// Measures and prints steps of so many kernels. Each way takes turns with the raw driver alone:
/// what others leave in the caches is not its doing.
pub fn print(work: &Work, nodes: usize, repeats: usize) -> Result<()> {
    let raw = |shape, sets| Ok::<_, Box<dyn Error>>(Box::new(Raw::new(work, shape, sets)?));
    let walked = |shape| -> Result<Box<dyn Way>> {
        Ok(Box::new(Walked {
            replay: Replay::new(work.stream.context())?,
            words: words(work, shape)?,
        }))
    };
    let line = |way: &dyn Way, time: f64, raw: f64| {
        println!("  {:24}{time:10.2}{raw:10.2}{:8.2}", way.name(), time / raw);
    };
    let mut counts = vec![0, 1, nodes / 10, nodes];
    counts.dedup();
    for changed in counts {
        let shape = Shape { nodes, changed };
        println!("\n{changed} of {nodes} kernels change: µs a call, raw sets and launch, ratio");
        let contenders: [Box<dyn Way>; 4] = [
            walked(shape)?,
            Box::new(Bound::new(work, shape)?),
            Box::new(Recapture::new(true)),
            Box::new(Recapture::new(false)),
        ];
        for contender in contenders {
            let mut ways: [Box<dyn Way>; 2] = [raw(shape, true)?, contender];
            // Values do not come again.
            let times = measure(work, shape, repeats, &mut ways, |repeat| repeat as u32 + 1)?;
            line(&*ways[1], times[1], times[0]);
        }
    }
    let shape = Shape {
        nodes,
        changed: nodes,
    };
    println!("\nall {nodes} kernels, two sets of arguments in turn: the same");
    let mut ways: [Box<dyn Way>; 2] = [raw(shape, true)?, walked(shape)?];
    let times = measure(work, shape, repeats, &mut ways, |repeat| {
        repeat as u32 % 2 + 1
    })?;
    line(&*ways[1], times[1], times[0]);

    println!("the same arguments each time: µs a walk beyond the launch, raw sets alone, ratio");
    let mut launch: [Box<dyn Way>; 2] = [raw(shape, false)?, walked(shape)?];
    let launched = measure(work, shape, repeats, &mut launch, |_| 1)?;
    let mut sets: [Box<dyn Way>; 2] = [raw(shape, false)?, raw(shape, true)?];
    let set = measure(work, shape, repeats, &mut sets, |repeat| repeat as u32)?;
    line(&*launch[1], launched[1] - launched[0], set[1] - set[0]);
    Ok(())
}
