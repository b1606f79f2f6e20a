//! Foreign work that is invalidated in a body: it is told where it was, nothing of it is recorded,
//! and what is around it goes on, as do all streams. A hold that is invalidated fails the
//! recording, and takes nothing from what was there before.

use std::sync::Arc;

use cuda_graph::cudarc::driver::sys::{self, CUresult};
use cuda_graph::cudarc::driver::{CudaStream, PushKernelArg};
use cuda_graph::{
    Buffer, CaptureInvalidated, EmptyOp, Error, FillOp, Graph, IfOp, Recorder, Result, WhileOp,
};

use super::{Through, alone, launch, read, recorded};
use crate::capture::scene::{Before, Scene};
use crate::fixture::{function, one, words};

use CUresult as R;

/// What closures do to the capture of a stream.
struct Spoiler {
    name: &'static str,
    /// What is told of it.
    code: CUresult,
    remedy: &'static str,
    spoil: fn(&Scene, &Arc<CudaStream>) -> Result<()>,
}

const SPOILERS: [Spoiler; 5] = [
    Spoiler {
        name: "synchronizing, told",
        code: R::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        remedy: "do that before or after the capture",
        spoil: |_, stream| Ok(stream.synchronize()?),
    },
    Spoiler {
        name: "synchronizing, swallowed",
        code: R::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        remedy: "check the answer of every call",
        spoil: |_, stream| {
            let _ = stream.synchronize();
            Ok(())
        },
    },
    Spoiler {
        name: "waiting for what is outside",
        code: R::CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
        remedy: "wait for such work before the capture",
        spoil: |scene, stream| {
            let outside = scene.context.new_stream()?.record_event(None)?;
            Ok(stream.wait(&outside)?)
        },
    },
    Spoiler {
        name: "ended by other code",
        code: R::CUDA_ERROR_ILLEGAL_STATE,
        remedy: "leave the end to this library",
        spoil: |_, stream| {
            let mut graph = std::ptr::null_mut();
            // SAFETY: the stream is alive.
            unsafe { sys::cuStreamEndCapture(stream.cu_stream(), &mut graph) };
            Ok(())
        },
    },
    // Without a block it is stray work.
    Spoiler {
        name: "a fork that is not joined",
        code: R::CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
        remedy: "have the first stream wait for it",
        spoil: |scene, stream| {
            let side = scene.context.new_stream()?;
            scene.uses(&side);
            side.wait(&stream.record_event(None)?)?;
            let (to, value) = (scene.a.address(), 10u32);
            let stores = function("store");
            let mut launch = side.launch_builder(&stores);
            launch.arg(&to).arg(&value);
            // SAFETY: `store` writes one word.
            unsafe { launch.launch(one()) }?;
            Ok(())
        },
    },
];

/// Those that work on a hold, too.
const OF_HOLDS: &[Spoiler] = SPOILERS.split_at(4).0;

const RECORDED: [Through; 2] = [Through::Capture, Through::Into];

/// A loop in a branch in a loop. The innermost stores 5 and records foreign work, which is spoilt.
fn nested(
    scene: &Scene,
    flag: &Buffer<u32>,
    r: &mut dyn Recorder,
    depth: u32,
    spoiler: &Spoiler,
) -> Result<()> {
    r.keep(scene.held())?;
    let op = FillOp::new(&scene.a, 5 + depth)?;
    r.record(op.label(format!("{depth} to go")))?;
    if depth == 0 {
        // SAFETY: nothing of it is recorded.
        return unsafe { r.foreign(|stream| (spoiler.spoil)(scene, stream)) };
    }
    let inner = |r: &mut dyn Recorder| nested(scene, flag, r, depth - 1, spoiler);
    match depth {
        2 => r.if_nonzero(flag, inner)?,
        _ => r.while_nonzero(flag, inner)?,
    }
    r.record(FillOp::new(flag, 0u32)?).map(drop)
}

#[track_caller]
fn is_told(answer: Result<()>, spoiler: &Spoiler, last: &str, what: &str) {
    let found: Box<CaptureInvalidated> = match answer {
        Err(Error::CaptureInvalidated(why)) => why,
        other => panic!("{what}: {other:?}"),
    };
    assert_eq!(found.code(), spoiler.code, "{what}: {found}");
    let text = found.to_string();
    for part in [spoiler.remedy, last] {
        assert!(text.contains(part), "{what}: `{part}` is not in: {text}");
    }
}

/// The error goes through every closure, to the end of the recording.
#[test]
fn at_any_depth_it_is_told_and_the_streams_work() {
    let _alone = alone();
    for spoiler in &SPOILERS {
        for depth in 0..=3 {
            let what = format!("{}, {depth} deep", spoiler.name);
            let scene = Scene::new();
            let flag = words(&scene.stream, &[0]);
            let answer =
                Graph::capture(&scene.stream, |c| nested(&scene, &flag, c, depth, spoiler));
            is_told(answer.map(drop), spoiler, "0 to go", &what);
            scene.is_clean(&what);

            let before = Before::new(&scene);
            let answer = before.graph.capture_into(&scene.stream, (), |c| {
                nested(&scene, &flag, c, depth, spoiler)
            });
            is_told(answer, spoiler, "0 to go", &what);
            before.is_as_before(&scene, &what);
            scene.is_clean(&what);
        }
    }
}

/// A closure around it swallows the error. The rest is recorded, and runs.
#[test]
fn swallowed_it_is_told_where_it_was_and_the_rest_goes_on() {
    let _alone = alone();
    for (spoiler, through) in SPOILERS.iter().flat_map(|s| RECORDED.map(|t| (s, t))) {
        for depth in 0..=2 {
            let what = format!("{}, {depth} deep, {through:?}", spoiler.name);
            let scene = Scene::new();
            let (flag, turns) = (words(&scene.stream, &[1]), words(&scene.stream, &[0]));
            let (graph, ()) = recorded(through, &scene.stream, |r| {
                r.while_nonzero(&flag, |r| {
                    let lost = nested(&scene, &flag, r, depth, spoiler);
                    is_told(lost, spoiler, "0 to go", &what);
                    r.if_nonzero(&flag, |r| r.record(FillOp::new(&turns, 1u32)?).map(drop))?;
                    r.record(FillOp::new(&flag, 0u32)?).map(drop)
                })
            })
            .unwrap();
            let nodes = graph.nodes().unwrap();
            assert_eq!(nodes.len(), 2, "{what}");
            let of_loop = nodes.iter().find_map(|node| node.typed::<WhileOp>());
            // The fill before it, a branch of two nodes, a fill, and what ends a turn.
            let body = graph.body(of_loop.unwrap()).unwrap();
            assert_eq!(body.nodes().unwrap().len(), 5, "{what}");
            launch(&mut graph.instantiate().unwrap(), &scene.stream).unwrap();
            assert_eq!(read(&scene.stream, &turns), 1, "{what}");
            assert_eq!(read(&scene.stream, &scene.a), 5 + depth, "{what}");
            drop((graph, body));
            scene.is_clean(&what);
        }
    }
}

/// What reaches the stream itself, in a body but outside of foreign work, fails all of the
/// recording.
#[test]
fn a_hold_that_is_invalidated_fails_the_recording() {
    let _alone = alone();
    for spoiler in OF_HOLDS {
        for (deep, swallowed) in [(false, false), (false, true), (true, false), (true, true)] {
            let what = format!("{}, deep: {deep}, {swallowed}", spoiler.name);
            let scene = Scene::new();
            let flag = words(&scene.stream, &[0]);
            let step = |r: &mut dyn Recorder| {
                r.keep(scene.held())?;
                let mut body = |r: &mut dyn Recorder| {
                    r.keep(scene.held())?;
                    r.record(FillOp::new(&scene.a, 1u32)?.label("0 to go"))?;
                    (spoiler.spoil)(&scene, &scene.stream)
                };
                let lost = match deep {
                    false => r.if_nonzero(&flag, body),
                    true => r.while_nonzero(&flag, |r| r.if_nonzero(&flag, &mut body)),
                };
                match swallowed {
                    true => Ok(()),
                    false => lost,
                }
            };
            let before = Before::new(&scene);
            let answers = [
                Graph::capture(&scene.stream, |c| step(c)).map(drop),
                before.graph.capture_into(&scene.stream, (), |c| step(c)),
            ];
            for answer in answers {
                let told = matches!(answer, Err(Error::CaptureInvalidated(_)));
                assert!(told, "{what}: {answer:?}");
            }
            before.is_as_before(&scene, &what);
            scene.is_clean(&what);
        }
    }
}

/// A body that is there keeps what it had, as does the graph around it. An executable that was made
/// before knows its nodes.
#[test]
fn a_body_that_is_there_keeps_what_it_had() {
    let _alone = alone();
    for spoiler in &SPOILERS {
        for deep in [false, true] {
            let what = format!("{}, deep: {deep}", spoiler.name);
            let scene = Scene::new();
            let graph = Graph::new(&scene.context).unwrap();
            graph.keep(scene.held()).unwrap();
            let condition = graph.condition(Some(1)).unwrap();
            let node = graph.add(IfOp::new(&condition), ()).unwrap();
            let mut body = graph.body(node).unwrap();
            if deep {
                let condition = body.condition(Some(1)).unwrap();
                let node = body.add(IfOp::new(&condition), ()).unwrap();
                body = body.body(node).unwrap();
            }
            body.keep(scene.held()).unwrap();
            let fill = body.add(FillOp::new(&scene.a, 3u32).unwrap(), ()).unwrap();
            let mut exec = graph.instantiate().unwrap();
            let answer = body.capture_into(&scene.stream, fill, |c| {
                c.keep(scene.held())?;
                c.record(FillOp::new(&scene.a, 4u32)?.label("0 to go"))?;
                // SAFETY: nothing of it is recorded.
                unsafe { c.foreign(|stream| (spoiler.spoil)(&scene, stream)) }
            });
            is_told(answer, spoiler, "0 to go", &what);
            assert_eq!(graph.nodes().unwrap(), [node.id()], "{what}");
            assert_eq!(body.nodes().unwrap(), [fill.id()], "{what}");
            body.add(EmptyOp::new(), fill).unwrap();
            for value in [3, 6] {
                exec.update(fill, FillOp::new(&scene.a, value).unwrap())
                    .unwrap();
                launch(&mut exec, &scene.stream).unwrap();
                assert_eq!(read(&scene.stream, &scene.a), value, "{what}");
            }
            drop(exec);
            launch(&mut graph.instantiate().unwrap(), &scene.stream).unwrap();
            assert_eq!(read(&scene.stream, &scene.a), 3, "{what}");
            drop((graph, body));
            scene.is_clean(&what);
        }
    }
}
