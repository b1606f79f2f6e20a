//! Bodies whose capture comes to nothing: that is told, nothing is destroyed twice, what was held is dropped, and every stream works. A body
//! that is captured into by hand is destroyed by the driver under its node, so the graph around it is given up.

use std::sync::Arc;

use cuda_graph::cudarc::driver::sys::{self, CUresult};
use cuda_graph::cudarc::driver::{CudaStream, PushKernelArg};
use cuda_graph::{
    CaptureInvalidated, EmptyOp, Error, FillOp, Graph, IfOp, Path, Recorder, Result, WhileOp,
};

use super::alone;
use crate::capture::scene::Scene;
use crate::fixture::{function, one, words};

use CUresult as R;

/// What closures do to the capture of a body.
struct Spoiler {
    name: &'static str,
    /// What is told of it.
    code: CUresult,
    remedy: &'static str,
    spoil: fn(&Scene, &Arc<CudaStream>) -> Result<()>,
}

const UNSUPPORTED: CUresult = R::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

const SPOILERS: [Spoiler; 5] = [
    Spoiler {
        name: "synchronizing, told",
        code: UNSUPPORTED,
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
];

/// A loop in a branch in a loop, of which the body at `depth` is spoilt.
fn nested(
    scene: &Scene,
    flag: &cuda_graph::Buffer<u32>,
    r: &mut dyn Recorder,
    depth: u32,
    spoiler: &Spoiler,
) -> Result<()> {
    if let Some(stream) = r.stream() {
        scene.uses(stream);
    }
    r.keep(scene.held())?;
    let op = FillOp::new(&scene.a, depth)?;
    r.record(op.label(format!("{depth} to go")))?;
    if depth == 0 {
        let stream = r.stream().expect("it is captured").clone();
        return (spoiler.spoil)(scene, &stream);
    }
    let inner = |r: &mut dyn Recorder| nested(scene, flag, r, depth - 1, spoiler);
    match depth {
        2 => r.if_nonzero(flag, inner)?,
        _ => r.while_nonzero(flag, inner)?,
    }
    r.record(FillOp::new(flag, 0u32)?).map(drop)
}

#[track_caller]
fn why(answer: Result<()>, what: &str) -> Box<CaptureInvalidated> {
    match answer {
        Err(Error::CaptureInvalidated(why)) => why,
        other => panic!("{what}: {other:?}"),
    }
}

#[track_caller]
fn is_told(found: &CaptureInvalidated, spoiler: &Spoiler, what: &str) {
    assert_eq!(found.code(), spoiler.code, "{what}: {found}");
    let text = found.to_string();
    for part in [spoiler.remedy, "lost.rs"] {
        assert!(text.contains(part), "{what}: `{part}` is not in: {text}");
    }
    // What came last, be it what a loop ends with.
    let last = ["0 to go", "set_condition"];
    assert!(
        last.iter().any(|last| text.contains(last)),
        "{what}: {text}"
    );
}

#[track_caller]
fn is_gone<T: std::fmt::Debug>(answer: Result<T>, what: &str) {
    assert!(
        matches!(answer, Err(Error::GraphGone)),
        "{what}: {answer:?}"
    );
}

/// The error goes through every closure, to the end of the outermost capture.
#[test]
fn at_any_depth_it_is_told_and_the_streams_work() {
    let _alone = alone();
    for spoiler in &SPOILERS {
        for depth in 1..=3 {
            let what = format!("{}, {depth} deep", spoiler.name);
            let scene = Scene::new();
            let flag = words(&scene.stream, &[0]);
            let answer =
                Graph::capture(&scene.stream, |c| nested(&scene, &flag, c, depth, spoiler));
            is_told(&why(answer.map(drop), &what), spoiler, &what);
            scene.is_clean(&what);
        }
    }
}

/// A closure around it swallows the error: then the rest is recorded all the same, unless that closure's own stream is the one that is spoilt.
#[test]
fn swallowed_it_is_told_where_it_was_and_the_rest_goes_on() {
    let _alone = alone();
    for spoiler in &SPOILERS {
        for depth in 0..=2 {
            let what = format!("{}, {depth} deep", spoiler.name);
            let scene = Scene::new();
            let flag = words(&scene.stream, &[0]);
            let answer = Graph::capture(&scene.stream, |c| {
                c.keep(scene.held())?;
                c.while_nonzero(&flag, |r| {
                    r.keep(scene.held())?;
                    let lost = nested(&scene, &flag, r, depth, spoiler);
                    if depth > 0 {
                        is_told(&why(lost, &what), spoiler, &what);
                    }
                    let goes_on = r.record(EmptyOp::new()).is_ok();
                    assert_eq!(goes_on, depth > 0, "{what}");
                    if goes_on {
                        // Serves the condition that is left over.
                        r.if_nonzero(&flag, |_| Ok(()))?;
                    }
                    Ok(())
                })
            });
            match depth {
                0 => drop(why(answer.map(drop), &what)),
                _ => {
                    let graph = answer.unwrap().0;
                    // Of two that failed one is still left over.
                    assert_eq!(graph.instantiate().is_ok(), depth == 1, "{what}");
                }
            }
            scene.is_clean(&what);
        }
    }
}

/// What invalidates every capture of the context, that of the step and that of its body, leaves nothing that the driver would trip over.
#[test]
fn both_may_be_invalidated_at_once() {
    let _alone = alone();
    for swallowed in [false, true] {
        let what = format!("swallowed: {swallowed}");
        let scene = Scene::new();
        let flag = words(&scene.stream, &[0]);
        let answer = Graph::capture(&scene.stream, |c| {
            c.keep(scene.held())?;
            let lost = c.while_nonzero(&flag, |r| {
                r.keep(scene.held())?;
                scene.uses(r.stream().expect("it is captured"));
                r.record(FillOp::new(&scene.a, 1u32)?)?;
                Ok(scene.context.synchronize()?)
            });
            match swallowed {
                true => Ok(()),
                false => lost,
            }
        });
        why(answer.map(drop), &what);
        scene.is_clean(&what);
    }
}

/// A body of an explicit graph that is captured into. Nothing of its graph is there any more.
#[test]
fn an_explicit_graph_is_gone_with_its_body() {
    let _alone = alone();
    for spoiler in &SPOILERS {
        for deep in [false, true] {
            let what = format!("{}, deep: {deep}", spoiler.name);
            let scene = Scene::new();
            let graph = Graph::new(&scene.context).unwrap();
            graph.keep(scene.held()).unwrap();
            let condition = graph.condition(Some(0)).unwrap();
            let first = graph.add(EmptyOp::new(), ()).unwrap();
            let node = graph.add(WhileOp::new(&condition), first).unwrap();
            let outer = graph.body(node).unwrap();
            outer.keep(scene.held()).unwrap();
            let mut path = Path::new(&graph);
            let body = match deep {
                false => graph.body(node).unwrap(),
                true => {
                    let condition = outer.condition(Some(0)).unwrap();
                    let node = outer.add(IfOp::new(&condition), ()).unwrap();
                    outer.body(node).unwrap()
                }
            };
            let inside = body.add(FillOp::new(&scene.a, 3u32).unwrap(), ()).unwrap();
            let answer = body.capture_into(&scene.stream, inside, |c| {
                scene.uses(c.stream());
                c.keep(scene.held())?;
                c.record(FillOp::new(&scene.a, 4u32)?.label("0 to go"))?;
                (spoiler.spoil)(&scene, c.stream())
            });
            is_told(&why(answer, &what), spoiler, &what);
            is_gone(graph.nodes(), &what);
            is_gone(body.nodes(), &what);
            is_gone(outer.add(EmptyOp::new(), ()), &what);
            is_gone(graph.instantiate(), &what);
            is_gone(graph.dot(), &what);
            is_gone(graph.op(first), &what);
            is_gone(body.op(inside), &what);
            is_gone(graph.condition(None), &what);
            is_gone(graph.destroy(node), &what);
            is_gone(path.record(EmptyOp::new()), &what);
            is_gone(body.capture_into(&scene.stream, (), |_| Ok(())), &what);
            is_gone(graph.try_clone(), &what);
            // What was held goes before the graph's handles do.
            scene.is_clean(&what);
            drop((graph, outer, body, path));
            scene.is_clean(&what);
        }
    }
}

/// An executable that was made before goes on, and holds what it runs.
#[test]
fn an_executable_made_before_goes_on() {
    let _alone = alone();
    for spoiler in &SPOILERS {
        let what = spoiler.name;
        let scene = Scene::new();
        let graph = Graph::new(&scene.context).unwrap();
        let condition = graph.condition(Some(1)).unwrap();
        let node = graph.add(IfOp::new(&condition), ()).unwrap();
        let body = graph.body(node).unwrap();
        let fill = body.add(FillOp::new(&scene.a, 3u32).unwrap(), ()).unwrap();
        let mut exec = graph.instantiate().unwrap();
        let answer = body.capture_into(&scene.stream, (), |c| {
            c.record(EmptyOp::new())?;
            (spoiler.spoil)(&scene, c.stream())
        });
        why(answer, what);
        drop((graph, body));
        for _ in 0..2 {
            scene.a.copy_from_host(&scene.stream, &[0]).unwrap();
            exec.launch(&scene.stream).unwrap();
            assert_eq!(scene.a.to_host(&scene.stream).unwrap(), [3], "{what}");
        }
        is_gone(exec.disable(fill), what);
        is_gone(
            exec.update(fill, FillOp::new(&scene.a, 4u32).unwrap()),
            what,
        );
        drop(exec);
        scene.is_clean(what);
    }
}
