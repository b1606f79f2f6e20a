//! Loops whose kernels are declared to do nothing where the loop's flag is 0: they are repeated
//! without guards, as long as all name one flag.

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::cudarc::nvrtc::Ptx;
use cuda_graph::{
    Buffer, Eager, Exec, Graph, InstantiateOptions, KernelOp, Node, Optimize, Pass, Path, Recorder,
    Replay, ReplayOptions, Result,
};

use super::optimized;
use crate::fixture::{context, one, stream, words};

/// `mix(go, to, by)`: `to` becomes 3 times what it was and `by`. `step(go, left)`: one less is
/// left, and where that is none, `go` becomes 0. Both do nothing where `go` is 0.
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry mix(.param .u64 go, .param .u64 to, .param .u32 by)
{
    .reg .pred %q;
    .reg .b32 %v, %by;
    .reg .b64 %p;
    ld.param.u64 %p, [go];
    ld.global.u32 %v, [%p];
    setp.eq.u32 %q, %v, 0;
    @%q ret;
    ld.param.u64 %p, [to];
    ld.param.u32 %by, [by];
    ld.global.u32 %v, [%p];
    mad.lo.u32 %v, %v, 3, %by;
    st.global.u32 [%p], %v;
    ret;
}
.visible .entry step(.param .u64 go, .param .u64 left)
{
    .reg .pred %q;
    .reg .b32 %v;
    .reg .b64 %go, %p;
    ld.param.u64 %go, [go];
    ld.global.u32 %v, [%go];
    setp.eq.u32 %q, %v, 0;
    @%q ret;
    ld.param.u64 %p, [left];
    ld.global.u32 %v, [%p];
    sub.u32 %v, %v, 1;
    st.global.u32 [%p], %v;
    setp.eq.u32 %q, %v, 0;
    @%q st.global.u32 [%go], 0;
    ret;
}
";

struct Scene {
    stream: Arc<CudaStream>,
    module: Arc<cuda_graph::cudarc::driver::CudaModule>,
    cell: Buffer<u32>,
    left: Buffer<u32>,
    go: [Buffer<u32>; 2],
}

impl Scene {
    fn new() -> Scene {
        let stream = stream();
        let zero = || words(&stream, &[0]);
        Scene {
            // Its PTX is not known to the library.
            module: context()
                .load_module(Ptx::from_src(PTX))
                .expect("it is PTX"),
            cell: zero(),
            left: zero(),
            go: [zero(), zero()],
            stream,
        }
    }

    fn mix(&self, go: usize, by: u32) -> KernelOp {
        let kernel = self.module.load_function("mix").expect("it is there");
        let go = &self.go[go];
        // SAFETY: the kernel reads a word, and writes another.
        let op = unsafe { KernelOp::new(&kernel, one(), (go, &self.cell, by)) };
        op.expect("they fit").idle_without(go)
    }

    fn step(&self, go: usize) -> KernelOp {
        let kernel = self.module.load_function("step").expect("it is there");
        let go = &self.go[go];
        // SAFETY: the kernel reads and writes a word each.
        let op = unsafe { KernelOp::new(&kernel, one(), (go, &self.left)) };
        op.expect("they fit").idle_without(go)
    }

    /// The loop. Returns the nodes of both kernels.
    fn record(
        &self,
        r: &mut dyn Recorder,
        go: usize,
        by: u32,
    ) -> Result<[Option<Node<KernelOp>>; 2]> {
        let mut nodes = [None; 2];
        r.while_nonzero(&self.go[go], |r| {
            nodes[0] = r.record(self.mix(go, by))?;
            nodes[1] = r.record(self.step(go))?;
            Ok(())
        })?;
        Ok(nodes)
    }

    fn begin(&self, turns: u32) {
        let set = |buffer: &Buffer<u32>, value| {
            let copied = buffer.copy_from_host(&self.stream, &[value]);
            copied.expect("it has room");
        };
        set(&self.left, turns);
        set(&self.cell, 1);
        self.go.iter().for_each(|go| set(go, turns.min(1)));
    }

    fn cell(&self) -> u32 {
        self.cell.to_host(&self.stream).expect("it can be read")[0]
    }

    /// What the loop gives, by the host.
    fn eagerly(&self, turns: u32, by: u32) -> u32 {
        self.begin(turns);
        let mut eager = Eager::new(&self.stream).expect("a stream");
        self.record(&mut eager, 0, by).expect("it runs");
        self.cell()
    }

    #[track_caller]
    fn check(&self, exec: &mut Exec, by: u32) {
        for turns in [0, 1, 2, 15, 16, 17, 40] {
            let wants = self.eagerly(turns, by);
            self.begin(turns);
            exec.launch(&self.stream).expect("it launches");
            assert_eq!(self.cell(), wants, "{turns} turns");
        }
    }

    fn graph(&self) -> (Graph, [Node<KernelOp>; 2]) {
        let graph = Graph::new(&context()).expect("there is memory");
        let nodes = self.record(&mut Path::new(&graph), 0, 5);
        (
            graph,
            nodes
                .expect("it is sound")
                .map(|node| node.expect("it is a node")),
        )
    }
}

/// How many loops have guards, and how many have none.
fn loops(exec: &Exec) -> (usize, usize) {
    let report = exec.report().expect("passes ran");
    let pass = report.pass(Pass::Loops).expect("it ran");
    let none = pass.count("loops without guards");
    (pass.count("loops unrolled") - none, none)
}

#[test]
fn they_are_repeated_without_guards() {
    let scene = Scene::new();
    let (graph, _) = scene.graph();
    for optimize in [Pass::Loops.into(), Optimize::ALL, Optimize::ALL.unroll(3)] {
        let mut exec = optimized(&graph, optimize);
        assert_eq!(loops(&exec), (0, 1), "{:?}", exec.report());
        scene.check(&mut exec, 5);
    }
}

#[test]
fn another_flag_in_one_kernel_alone_ends_that() {
    let scene = Scene::new();
    let (graph, [mix, step]) = scene.graph();
    let mut exec = optimized(&graph, Optimize::ALL);
    exec.update(mix, scene.mix(0, 6)).expect("it may be");
    assert_eq!(exec.report().expect("passes ran").fallbacks, 0);
    scene.check(&mut exec, 6);
    // The kernel looks at the other flag now, which stays set.
    exec.update(mix, scene.mix(1, 7)).expect("it may be");
    assert_eq!(exec.report().expect("passes ran").fallbacks, 1);
    assert_eq!(loops(&exec), (0, 0));
    scene.check(&mut exec, 7);
    drop(exec);
    // Disabled, nothing clears the flag: it is the loop's to look at.
    let mut exec = optimized(&graph, Optimize::ALL);
    exec.disable(mix).expect("it may be");
    scene.begin(9);
    exec.launch(&scene.stream).expect("it launches");
    assert_eq!(scene.cell(), 1);
    exec.enable(mix).expect("it may be");
    scene.check(&mut exec, 5);
    exec.update(step, scene.step(0)).expect("it may be");
    scene.check(&mut exec, 5);
}

#[test]
fn a_kernel_that_declares_nothing_has_them_guarded() {
    let scene = Scene::new();
    let kernel = scene.module.load_function("mix").expect("it is there");
    // SAFETY: the kernel reads a word, and writes another.
    let plain = unsafe { KernelOp::new(&kernel, one(), (&scene.go[0], &scene.cell, 5u32)) };
    let plain = plain.expect("they fit");
    let (graph, ()) = Graph::record(&context(), |r| {
        r.while_nonzero(&scene.go[0], |r| {
            r.record(plain.clone())?;
            r.record(scene.step(0)).map(drop)
        })
    })
    .expect("it is sound");
    let mut exec = optimized(&graph, Optimize::ALL);
    // The PTX of its module is not known.
    assert_eq!(loops(&exec), (0, 0));
    scene.check(&mut exec, 5);
}

#[test]
fn a_replay_gives_all_of_a_loop_another_flag() {
    let scene = Scene::new();
    let options = ReplayOptions {
        instantiate: InstantiateOptions {
            optimize: Optimize::ALL,
            ..InstantiateOptions::default()
        },
        ..ReplayOptions::default()
    };
    let mut replay = Replay::with_options(&context(), options).expect("a replay");
    for call in 0..12 {
        let (turns, go) = (3 * call, call as usize % 2);
        let wants = scene.eagerly(turns, call);
        scene.begin(turns);
        let step = |r: &mut dyn Recorder| scene.record(r, go, call).map(drop);
        replay.call(&scene.stream, step).expect("it runs");
        assert_eq!(scene.cell(), wants, "call {call}");
    }
    let fallbacks = replay.reports().map(|report| report.fallbacks);
    assert_eq!(fallbacks.sum::<u64>(), 0);
    assert_eq!(replay.counters().builds, 1);
}
