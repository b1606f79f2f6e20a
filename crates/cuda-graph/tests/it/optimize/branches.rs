//! Branches whose kernels are guarded instead: they run when their flags say so.

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{
    Buffer, Eager, Graph, InstantiateOptions, KernelOp, Module, Optimize, Pass, Recorder, Replay,
    ReplayOptions, Report, Result,
};

use super::optimized;
use crate::fixture::{context, one, store, stream, words};

/// `mix(to, by)`: `to` becomes 3 times what it was and `by`, so that any other order shows.
/// `mask(to, from, bits)`: `to` becomes what `from` has of these bits. `down(to)`: one less.
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry mix(.param .u64 to, .param .u32 by)
{
    .reg .b32 %v, %by;
    .reg .b64 %p;
    ld.param.u64 %p, [to];
    ld.param.u32 %by, [by];
    ld.global.u32 %v, [%p];
    mad.lo.u32 %v, %v, 3, %by;
    st.global.u32 [%p], %v;
    ret;
}
.visible .entry mask(.param .u64 to, .param .u64 from, .param .u32 bits)
{
    .reg .b32 %v, %bits;
    .reg .b64 %p;
    ld.param.u64 %p, [from];
    ld.param.u32 %bits, [bits];
    ld.global.u32 %v, [%p];
    and.b32 %v, %v, %bits;
    ld.param.u64 %p, [to];
    st.global.u32 [%p], %v;
    ret;
}
.visible .entry down(.param .u64 to)
{
    .reg .b32 %v;
    .reg .b64 %p;
    ld.param.u64 %p, [to];
    ld.global.u32 %v, [%p];
    sub.u32 %v, %v, 1;
    st.global.u32 [%p], %v;
    ret;
}
";

struct Scene {
    stream: Arc<CudaStream>,
    module: Module,
    cell: Buffer<u32>,
    left: Buffer<u32>,
    flags: [Buffer<u32>; 3],
}

impl Scene {
    fn new() -> Scene {
        let stream = stream();
        let zero = || words(&stream, &[0]);
        Scene {
            module: Module::load(&context(), PTX).expect("it is PTX"),
            cell: zero(),
            left: zero(),
            flags: [zero(), zero(), zero()],
            stream,
        }
    }

    fn mix(&self, by: u32) -> KernelOp {
        let kernel = self.module.kernel("mix").expect("it is there");
        // SAFETY: the kernel reads and writes a word.
        unsafe { KernelOp::new(&kernel, one(), (&self.cell, by)) }.expect("they fit")
    }

    /// Makes a flag what these bits of `left` are.
    fn mask(&self, flag: usize, bits: u32) -> KernelOp {
        let kernel = self.module.kernel("mask").expect("it is there");
        // SAFETY: the kernel reads a word and writes one.
        unsafe { KernelOp::new(&kernel, one(), (&self.flags[flag], &self.left, bits)) }
            .expect("they fit")
    }

    fn down(&self) -> KernelOp {
        let kernel = self.module.kernel("down").expect("it is there");
        // SAFETY: the kernel reads and writes a word.
        unsafe { KernelOp::new(&kernel, one(), (&self.left,)) }.expect("they fit")
    }

    fn set(&self, buffer: &Buffer<u32>, value: u32) {
        buffer.copy_from_host(&self.stream, &[value]).expect("room");
    }

    /// What `cell` is, and has it begin at 1 again.
    fn take(&self) -> u32 {
        let was = self.cell.to_host(&self.stream).expect("it can be read")[0];
        self.set(&self.cell, 1);
        was
    }

    /// What `cell` is after `step`, by the host.
    fn eagerly(&self, step: impl Fn(&mut dyn Recorder) -> Result<()>) -> u32 {
        self.take();
        step(&mut Eager::new(&self.stream).expect("a stream")).expect("it runs");
        self.take()
    }

    /// The conditional branch, with the next one inside.
    fn branches(&self, r: &mut dyn Recorder) -> Result<()> {
        r.record(self.mask(0, 1))?;
        r.record(self.mask(1, 2))?;
        r.record(self.mask(2, 4))?;
        r.if_else_nonzero(
            &self.flags[0],
            |r| {
                r.record(self.mix(2))?;
                r.if_nonzero(&self.flags[1], |r| {
                    r.record(self.mix(3))?;
                    // It is looked at no more.
                    r.record(self.mask(1, 0))?;
                    r.if_nonzero(&self.flags[2], |r| r.record(self.mix(4)).map(drop))
                })?;
                r.record(self.mix(5)).map(drop)
            },
            |r| r.record(self.mix(6)).map(drop),
        )?;
        r.if_nonzero(&self.flags[2], |_| Ok(()))?;
        r.record(self.mix(7)).map(drop)
    }
}

/// How often the pass for branches did something.
fn guarded(report: &Report) -> usize {
    let pass = report.pass(Pass::Branches).expect("it ran");
    pass.count("branches guarded")
}

#[test]
fn branches_are_taken_as_their_flags_say() {
    let scene = Scene::new();
    let (graph, ()) = Graph::record(&context(), |r| scene.branches(r)).expect("it is sound");
    for optimize in [Pass::Branches.into(), Optimize::ALL] {
        let mut exec = optimized(&graph, optimize);
        let report = exec.report().expect("passes ran").clone();
        assert_eq!(guarded(&report), 4, "{report}");
        for flags in 0..8 {
            scene.set(&scene.left, flags);
            let wants = scene.eagerly(|r| scene.branches(r));
            exec.launch(&scene.stream).expect("it launches");
            assert_eq!(scene.take(), wants, "{flags:03b}");
        }
    }
}

#[test]
fn loops_with_branches_in_them_are_unrolled() {
    let scene = Scene::new();
    let step = |r: &mut dyn Recorder| {
        r.while_nonzero(&scene.left, |r| {
            scene.branches(r)?;
            r.record(scene.down()).map(drop)
        })
    };
    let (graph, ()) = Graph::record(&context(), |r| step(r)).expect("it is sound");
    for optimize in [
        Pass::Branches.into(),
        Optimize::ALL,
        Optimize::ALL.unroll(3),
    ] {
        let mut exec = optimized(&graph, optimize);
        let report = exec.report().expect("passes ran").clone();
        assert_eq!(guarded(&report), 4, "{report}");
        if let Some(loops) = report.pass(Pass::Loops) {
            assert_eq!(loops.count("loops unrolled"), 1, "{report}");
        }
        for turns in (0..20).rev() {
            scene.set(&scene.left, turns);
            let wants = scene.eagerly(step);
            scene.set(&scene.left, turns);
            exec.launch(&scene.stream).expect("it launches");
            assert_eq!(scene.take(), wants, "{turns} turns");
        }
    }
}

/// A loop that pauses in the middle of turns, and at their ends, where bits of what is left say so.
#[test]
fn steps_stop_at_checkpoints_in_unrolled_loops() {
    let scene = Scene::new();
    for (middle, end) in [(0, 0), (1, 0), (0, 2), (5, 2), (3, 3)] {
        let step = |r: &mut dyn Recorder| {
            r.do_while_nonzero(&scene.left, |r| {
                r.record(scene.mask(0, middle))?;
                r.record(scene.mix(2))?;
                r.checkpoint("middle", &scene.flags[0])?;
                r.record(scene.mix(3))?;
                r.record(scene.down())?;
                r.record(scene.mask(1, end))?;
                r.checkpoint("end", &scene.flags[1])
            })?;
            r.record(scene.mix(4)).map(drop)
        };
        let mut told = Vec::new();
        for optimize in [Optimize::NONE, Optimize::ALL, Optimize::ALL.unroll(3)] {
            let options = ReplayOptions {
                instantiate: InstantiateOptions {
                    optimize,
                    ..InstantiateOptions::default()
                },
                ..ReplayOptions::default()
            };
            let mut replay = Replay::with_options(&context(), options).expect("a replay");
            let mut seen = Vec::new();
            for turns in [1, 2, 9, 40] {
                scene.set(&scene.left, turns);
                scene.take();
                let mut outcome = replay.call(&scene.stream, step).expect("it runs");
                while let Some(name) = outcome.stopped().expect("it can be read") {
                    seen.push((scene.cell.to_host(&scene.stream).unwrap()[0], Some(name)));
                    outcome = replay.resume(&scene.stream, step).expect("it runs on");
                }
                seen.push((scene.take(), None));
            }
            if optimize != Optimize::NONE {
                let mut reports = replay.reports();
                let report = reports.next().expect("passes ran");
                let loops = report.pass(Pass::Loops).expect("it ran");
                assert_eq!(loops.count("loops unrolled"), 1, "{report}");
            }
            told.push(seen);
        }
        assert_eq!(told[0], told[1], "{middle} {end}");
        assert_eq!(told[0], told[2], "{middle} {end}");
    }
}

#[test]
fn what_runs_in_a_branch_is_updated_and_disabled_there() {
    let scene = Scene::new();
    let graph = Graph::new(&context()).expect("there is memory");
    let mut path = cuda_graph::Path::new(&graph);
    let mut inner = None;
    path.if_nonzero(&scene.flags[0], |r| {
        inner = Some(r.record(scene.mix(5))?);
        Ok(())
    })
    .expect("it is sound");
    let inner = inner.flatten().expect("a node");
    let mut exec = optimized(&graph, Pass::Branches);
    let gives = |exec: &mut cuda_graph::Exec, flag: u32| {
        scene.take();
        scene.set(&scene.flags[0], flag);
        exec.launch(&scene.stream).expect("it launches");
        scene.take()
    };
    assert_eq!((gives(&mut exec, 0), gives(&mut exec, 9)), (1, 3 + 5));
    exec.update(inner, scene.mix(6)).expect("it may be");
    assert_eq!((gives(&mut exec, 0), gives(&mut exec, 9)), (1, 3 + 6));
    exec.disable(inner).expect("it may be");
    assert_eq!(gives(&mut exec, 9), 1);
    exec.enable(inner).expect("it may be");
    assert_eq!(gives(&mut exec, 9), 3 + 6);
    assert_eq!(exec.report().expect("passes ran").fallbacks, 0);
    // A kernel whose PTX is not known has no guard: the branch comes back.
    exec.update(inner, store(&scene.cell, 40))
        .expect("it may be");
    assert_eq!((gives(&mut exec, 0), gives(&mut exec, 9)), (1, 40));
    assert_eq!(exec.report().expect("passes ran").fallbacks, 1);
}

#[test]
fn a_replay_gives_branches_other_flags() {
    let scene = Scene::new();
    let options = ReplayOptions {
        instantiate: InstantiateOptions {
            optimize: Optimize::ALL,
            ..InstantiateOptions::default()
        },
        ..ReplayOptions::default()
    };
    let mut replay = Replay::with_options(&context(), options).expect("a replay");
    scene.set(&scene.flags[1], 1);
    for call in 0..12 {
        scene.take();
        let step = |r: &mut dyn Recorder| {
            r.if_else_nonzero(
                &scene.flags[call % 3],
                |r| r.record(scene.mix(call as u32)).map(drop),
                |r| r.record(scene.mix(100)).map(drop),
            )
        };
        replay.call(&scene.stream, step).expect("it runs");
        let by = if call % 3 == 1 { call as u32 } else { 100 };
        assert_eq!(scene.take(), 3 + by, "call {call}");
    }
    assert!(replay.reports().all(|report| guarded(report) == 1));
    assert_eq!(
        replay.reports().map(|report| report.fallbacks).sum::<u64>(),
        0
    );
}

#[test]
fn branches_that_guards_do_not_serve_are_left() {
    let scene = Scene::new();
    let left = |body: &mut dyn FnMut(&mut dyn Recorder) -> Result<()>| {
        let (graph, ()) = Graph::record(&context(), |r| r.if_nonzero(&scene.flags[0], |r| body(r)))
            .expect("it is sound");
        let exec = optimized(&graph, Optimize::ALL);
        let report = exec.report().expect("passes ran");
        assert_eq!(guarded(report), 0, "{report}");
        report.pass(Pass::Branches).expect("it ran").left[0].why
    };
    let unknown = left(&mut |r| r.record(store(&scene.cell, 1)).map(drop));
    assert_eq!(unknown, "its PTX is not known: load it by `Module::load`");
    let many = left(&mut |r| (0..9).try_for_each(|by| r.record(scene.mix(by)).map(drop)));
    assert_eq!(many, "its body has many kernels");
    let looping = left(&mut |r| r.while_nonzero(&scene.left, |r| r.record(scene.down()).map(drop)));
    assert_eq!(looping, "its body has other nodes than kernels");
    let large = left(&mut |r| {
        let kernel = scene.module.kernel("down")?;
        let mut config = one();
        config.grid_dim = (1000, 1, 1);
        // SAFETY: it reads and writes a word.
        let large = unsafe { KernelOp::new(&kernel, config, (&scene.left,)) }?;
        r.record(large).map(drop)
    });
    assert_eq!(large, "its body has a kernel of many blocks");
}
