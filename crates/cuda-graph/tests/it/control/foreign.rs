//! Bodies that other code fills, which knows nothing of this library: launches, fills, copies and
//! forks by plain cudarc and driver calls, in the stream of the recorder.

use std::sync::Arc;

use cuda_graph::cudarc::driver::result::{memcpy_dtod_async, memset_d8_async};
use cuda_graph::cudarc::driver::{CudaContext, CudaStream, PushKernelArg};
use cuda_graph::{Buffer, ChildOp, Graph, NodeKind, Recorder, Result, WhileOp};

use super::kernels::{kernels, nearer, plus};
use super::{Through, alone, launch, recorded, run};
use crate::capture::scene::{apart, works};
use crate::fixture::one;

/// What it works on: turns, two numbers that are added up, and a copy and a fill made in each turn.
struct Work {
    stream: Arc<CudaStream>,
    /// For forks, at each depth: it is in a capture for as long as a block.
    side: Arc<CudaStream>,
    all: Buffer<i32>,
    turns: Buffer<i32>,
    sum: Buffer<i32>,
    other: Buffer<i32>,
    one: Buffer<i32>,
}

impl Work {
    fn new(context: &Arc<CudaContext>) -> Work {
        kernels();
        let stream = context.new_stream().unwrap();
        let all = Buffer::from_host(&stream, &[0, 0, 0, 1, 7, 7]).unwrap();
        let part = |at: usize| all.slice(at..at + 1).unwrap();
        Work {
            side: context.new_stream().unwrap(),
            turns: part(0),
            sum: part(1),
            other: part(2),
            one: part(3),
            all,
            stream,
        }
    }

    fn start(&self, turns: i32) {
        self.all
            .copy_from_host(&self.stream, &[turns, 0, 0, 1, 7, 7])
            .unwrap();
    }

    fn launch_plus(&self, stream: &Arc<CudaStream>, to: &Buffer<i32>) -> Result<()> {
        let (to, from) = (to.address(), self.one.address());
        let mut launch = stream.launch_builder(&kernels().plus_function);
        launch.arg(&to).arg(&from);
        // SAFETY: `plus` reads and writes one word of each.
        unsafe { launch.launch(one()) }?;
        Ok(())
    }

    /// One turn by other code: on a fork it counts and copies, beside that it counts and fills.
    fn turn(&self, stream: &Arc<CudaStream>) -> Result<()> {
        let at = |word: u64| self.all.address() + 4 * word;
        let side = &self.side;
        side.wait(&stream.record_event(None)?)?;
        self.launch_plus(side, &self.other)?;
        // SAFETY: each writes a word that the buffer has.
        unsafe { memcpy_dtod_async(at(4), at(2), 4, side.cu_stream()) }?;
        self.launch_plus(stream, &self.sum)?;
        // SAFETY: as above.
        unsafe { memset_d8_async(at(5), 1, 4, stream.cu_stream()) }?;
        stream.join(side)?;
        self.launch_plus(stream, &self.sum)
    }

    fn step(&self, r: &mut dyn Recorder) -> Result<()> {
        r.while_nonzero(&self.turns, |r| {
            r.keep(self.all.owner())?;
            // SAFETY: it works on the buffer that is kept.
            unsafe { r.foreign(|stream| self.turn(stream)) }?;
            r.if_nonzero(&self.turns, |r| {
                // SAFETY: as above.
                unsafe { r.foreign(|stream| self.turn(stream)) }?;
                // What this library records comes after it.
                r.record(plus(&self.sum, &self.other)).map(drop)
            })?;
            r.record(nearer(&self.turns)).map(drop)
        })
    }

    /// What so many turns leave.
    fn expected(turns: i32) -> [i32; 6] {
        let (mut sum, mut other) = (0, 0);
        for _ in 0..turns {
            other += 2;
            sum += 4 + other;
        }
        match turns {
            0 => [0, 0, 0, 1, 7, 7],
            _ => [0, sum, other, 1, other, 0x0101_0101],
        }
    }
}

#[test]
fn forks_copies_and_fills_run_in_each_turn() {
    let _alone = alone();
    let context = apart();
    let work = Work::new(&context);
    for turns in [3, 0, 1] {
        work.start(turns);
        run(Through::Eager, &work.stream, |r| work.step(r)).unwrap();
        let eagerly = work.all.to_host(&work.stream).unwrap();
        assert_eq!(eagerly, Work::expected(turns), "eagerly");
    }
    for through in [Through::Capture, Through::Into] {
        let (graph, ()) = recorded(through, &work.stream, |r| work.step(r)).unwrap();
        let mut exec = graph.instantiate().unwrap();
        for turns in [3, 0, 1, 20] {
            work.start(turns);
            launch(&mut exec, &work.stream).unwrap();
            let captured = work.all.to_host(&work.stream).unwrap();
            assert_eq!(captured, Work::expected(turns), "{through:?}");
        }
    }
    works(&work.stream, "the stream");
    works(&work.side, "the other code's stream");
}

#[test]
fn an_explicit_body_is_captured_into_by_other_code() {
    let _alone = alone();
    let context = apart();
    let work = Work::new(&context);
    let graph = Graph::new(&context).unwrap();
    let condition = graph.condition(Some(1)).unwrap();
    let node = graph.add(WhileOp::new(&condition), ()).unwrap();
    let body = graph.body(node).unwrap();
    let first = body.add(nearer(&work.turns), ()).unwrap();
    body.capture_into(&work.stream, first, |c| {
        // SAFETY: it works on the buffer, which outlives the graph.
        unsafe { c.foreign(|stream| work.turn(stream)) }?;
        c.record(super::kernels::set(condition, &work.turns))
            .map(drop)
    })
    .unwrap();
    let nodes = body.nodes().unwrap();
    assert_eq!(nodes.len(), 3);
    let child = nodes.into_iter().find_map(|node| node.typed::<ChildOp>());
    let child = body.child(child.unwrap()).unwrap();
    let count = |kind| {
        let nodes = child.nodes().unwrap();
        nodes.iter().filter(|node| node.kind() == kind).count()
    };
    assert_eq!(count(NodeKind::Kernel), 3);
    assert_eq!((count(NodeKind::Copy), count(NodeKind::Fill)), (1, 1));
    let mut exec = graph.instantiate().unwrap();
    for turns in [3, 1, 500] {
        work.start(turns);
        launch(&mut exec, &work.stream).unwrap();
        let got = work.all.to_host(&work.stream).unwrap();
        assert_eq!(got, [0, 2 * turns, turns, 1, turns, 0x0101_0101]);
    }
}
