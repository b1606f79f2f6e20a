//! Guards and closures left at any point, by a drop, an error, a panic or a driver call that fails:
//! every stream takes new work, everything held is dropped, and a graph that was there before is
//! what it was.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::cudarc::driver::sys::{self, CUresult};
use cuda_graph::testing::with_failing_call;
use cuda_graph::{Branch, Capture, EmptyOp, Error, Graph, HostOp, PinnedBuffer, Recorder, Result};

use super::scene::{Before, Scene, foreign, launch_add, launch_store};
use crate::exit::{Exit, How, is_left};
use crate::fixture::{add, alone, store, words};

/// Records something that holds an owner.
pub(super) fn mark(scene: &Scene, r: &mut dyn Recorder) -> Result<()> {
    let held = scene.held();
    r.record(HostOp::new(move || {
        let _ = &held;
    }))?;
    r.keep(scene.held())
}

/// Does foreign work that a fork of its own takes part in. It stores 2 in `b`.
fn foreign_fork(scene: &Scene, stream: &Arc<CudaStream>, exit: &Exit) -> Result<()> {
    exit.here()?;
    let side = scene.context.new_stream()?;
    scene.uses(&side);
    side.join(stream)?;
    exit.here()?;
    launch_store(&side, &scene.b, 1)?;
    launch_add(&side, &scene.b, &scene.b)?;
    exit.here()?;
    stream.join(&side)?;
    exit.here()
}

/// By guards. The sum at the end is 10.
fn by_guards(scene: &Scene, into: Option<&Before>, exit: &Exit) -> Result<Option<Graph>> {
    let mut capture = match into {
        None => Capture::begin(&scene.stream)?,
        Some(before) => Capture::begin_into(&scene.stream, &before.graph, before.nodes[1])?,
    };
    exit.here()?;
    mark(scene, &mut *capture)?;
    capture.record(scene.ops.store_a.clone())?;
    exit.here()?;
    // SAFETY: the scene keeps what is used.
    let block = unsafe { capture.begin_foreign() }?;
    foreign_fork(scene, block.stream(), exit)?;
    block.end()?;
    exit.here()?;
    if into.is_none() {
        capture = split(scene, capture, exit)?;
    } else {
        mark(scene, &mut *capture)?;
    }
    capture.record(scene.ops.double_b.clone())?;
    exit.here()?;
    capture.record(scene.ops.add_b.clone())?;
    capture.record(scene.ops.double_a.clone())?;
    exit.here()?;
    let graph = capture.end()?;
    exit.here()?;
    Ok(into.is_none().then_some(graph))
}

/// Three forks and joins that compute nothing.
fn split(scene: &Scene, capture: Capture, exit: &Exit) -> Result<Capture> {
    let (joint, [mut left, mut right]) = capture.split()?;
    exit.here()?;
    mark(scene, &mut *left)?;
    exit.here()?;
    // SAFETY: nothing is used.
    let block = unsafe { right.begin_foreign() }?;
    exit.here()?;
    block.end()?;
    let (inner, [mut one, two, mut three]) = right.split()?;
    exit.here()?;
    mark(scene, &mut *one)?;
    mark(scene, &mut *three)?;
    exit.here()?;
    let right = inner.join([one, two, three])?;
    exit.here()?;
    let (empty, []) = right.split()?;
    let right = empty.join([])?;
    exit.here()?;
    let capture = joint.join([left, right])?;
    exit.here()?;
    Ok(capture)
}

/// The same by closures.
fn by_closures(scene: &Scene, into: Option<&Before>, exit: &Exit) -> Result<Option<Graph>> {
    let record = |path: &mut cuda_graph::Path| {
        exit.here()?;
        mark(scene, path)?;
        path.record(scene.ops.store_a.clone())?;
        exit.here()?;
        // SAFETY: the scene keeps what is used.
        unsafe { path.foreign(|stream| foreign_fork(scene, stream, exit)) }?;
        exit.here()?;
        path.parallel(&mut [
            &mut |r| {
                exit.here()?;
                mark(scene, r)?;
                exit.here()
            },
            &mut |r| {
                exit.here()?;
                // SAFETY: nothing is used.
                unsafe { r.foreign(|_| exit.here()) }?;
                r.parallel(&mut [&mut |r| mark(scene, r), &mut |_| exit.here()])?;
                exit.here()
            },
        ])?;
        exit.here()?;
        // None of it runs.
        path.while_nonzero(&scene.zero, |r| {
            exit.here()?;
            r.keep(scene.held())?;
            r.record(scene.ops.double_b.clone())?;
            r.if_nonzero(&scene.zero, |r| {
                exit.here()?;
                r.record(scene.ops.double_a.clone())?;
                // SAFETY: the scene keeps what is used.
                unsafe { r.foreign(|stream| foreign_fork(scene, stream, exit)) }?;
                exit.here()
            })?;
            exit.here()
        })?;
        exit.here()?;
        path.record(scene.ops.double_b.clone())?;
        path.record(scene.ops.add_b.clone())?;
        path.record(scene.ops.double_a.clone())?;
        exit.here()
    };
    match into {
        None => Graph::capture(&scene.stream, record).map(|(graph, ())| Some(graph)),
        Some(before) => before
            .graph
            .capture_into(&scene.stream, before.nodes[1], record)
            .map(|()| None),
    }
}

type Program = fn(&Scene, Option<&Before>, &Exit) -> Result<Option<Graph>>;

const PROGRAMS: [(&str, Program); 2] = [("guards", by_guards), ("closures", by_closures)];

#[track_caller]
pub(super) fn is_whole(scene: &Scene, graph: &Graph, what: &str) {
    let mut exec = graph.instantiate().expect("it is whole");
    exec.launch(&scene.stream).expect("it runs");
    assert_eq!(
        scene.a.to_host(&scene.stream).expect("it runs"),
        [10],
        "{what}"
    );
}

#[test]
fn programs_that_are_not_left_record_all_of_it() {
    let _alone = alone();
    for (name, program) in PROGRAMS {
        let scene = Scene::new();
        let exit = Exit::never();
        let graph = program(&scene, None, &exit)
            .unwrap()
            .expect("it is its own");
        is_whole(&scene, &graph, name);
        assert!(exit.passed() >= 18, "{name}");
        let before = Before::new(&scene);
        program(&scene, Some(&before), &exit).unwrap();
        assert!(before.graph.nodes().unwrap().len() >= 8, "{name}");
        is_whole(&scene, &before.graph, name);
        drop((graph, before));
        scene.is_clean(name);
    }
}

fn left_at_every_point(how: How, into: bool) {
    for (name, program) in PROGRAMS {
        let scene = Scene::new();
        let before = into.then(|| Before::new(&scene));
        for at in 0.. {
            let what = format!("{name} left at {at} by {how:?}");
            let exit = Exit::new(at, how);
            let run = || program(&scene, before.as_ref(), &exit);
            let result = catch_unwind(AssertUnwindSafe(run));
            if !exit.was_taken() {
                break;
            }
            match (how, result) {
                (How::Error, Ok(Err(error))) => assert!(is_left(&error), "{what}: {error}"),
                (How::Panic, Err(_)) => {}
                (_, other) => panic!("{what}: {other:?}"),
            }
            // The last exit of the guards is behind their end.
            match &before {
                Some(before) if before.graph.nodes().unwrap().len() > 2 => {
                    assert_eq!((name, at), ("guards", 9), "{what}");
                    break;
                }
                Some(before) => before.is_as_before(&scene, &what),
                None => {}
            }
            scene.is_clean(&what);
            assert!(at < 40);
        }
    }
}

#[test]
fn dropped_at_every_point() {
    left_at_every_point(How::Error, false);
}

#[test]
fn dropped_at_every_point_into_a_graph() {
    left_at_every_point(How::Error, true);
}

#[test]
fn panicking_at_every_point() {
    left_at_every_point(How::Panic, false);
}

#[test]
fn panicking_at_every_point_into_a_graph() {
    left_at_every_point(How::Panic, true);
}

/// Every driver call of the programs fails in turn.
fn failing_at_every_call(into: bool) {
    let _alone = alone();
    for (name, program) in PROGRAMS {
        let scene = Scene::new();
        // What is made once is made.
        drop(program(&scene, None, &Exit::never()));
        scene.is_clean(name);
        for nth in 0.. {
            let what = format!("{name}: call {nth} fails");
            let before = into.then(|| Before::new(&scene));
            let run = || program(&scene, before.as_ref(), &Exit::never());
            let (result, fired) = with_failing_call(nth, run);
            if !fired {
                result.unwrap();
                break;
            }
            let failed = result.is_err();
            match result {
                // Some failures are got over.
                Ok(None) => {
                    let before = before.as_ref().expect("it goes into a graph");
                    is_whole(&scene, &before.graph, &what);
                }
                Ok(Some(graph)) => is_whole(&scene, &graph, &what),
                Err(error) => assert!(
                    error.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY"),
                    "{what}: {error}"
                ),
            }
            if let Some(before) = before.as_ref().filter(|_| failed) {
                before.is_as_before_but_for_a_condition(&scene, &what);
            }
            drop(before);
            scene.is_clean(&what);
            assert!(nth < 1000);
        }
    }
}

#[test]
fn failing_at_every_call_is_told_and_taken_back() {
    failing_at_every_call(false);
}

#[test]
fn failing_at_every_call_into_a_graph_leaves_it_as_it_was() {
    failing_at_every_call(true);
}

#[test]
fn guards_may_go_in_any_order() {
    let scene = Scene::new();
    for order in 0..6 {
        let what = format!("order {order}");
        let capture = Capture::begin(&scene.stream).unwrap();
        let (joint, [mut left, mut right]) = capture.split().unwrap();
        mark(&scene, &mut *left).unwrap();
        mark(&scene, &mut *right).unwrap();
        let gone = |branch: &mut Capture<Branch>| {
            let over = |result: Result<()>| matches!(result, Err(Error::RecordingOver));
            assert!(over(branch.record(EmptyOp::new()).map(drop)), "{what}");
            assert!(over(branch.if_nonzero(&scene.a, |_| Ok(()))), "{what}");
            // SAFETY: nothing is used.
            assert!(over(unsafe { branch.begin_foreign() }.map(drop)), "{what}");
        };
        match order {
            // While other guards are there, each says that it is over.
            0 => drop((joint, left, right)),
            1 => drop((left, joint, right)),
            2 => drop((left, right, joint)),
            3 => {
                drop(joint);
                gone(&mut left);
                gone(&mut right);
                drop((left, right));
            }
            4 => {
                drop(left);
                right.record(EmptyOp::new()).unwrap();
                drop(joint);
                gone(&mut right);
                drop(right);
            }
            _ => {
                let (inner, [one, two]) = left.split().unwrap();
                drop(inner);
                drop(joint);
                drop((right, two, one));
            }
        }
        scene.is_clean(&what);
    }
}

#[test]
fn beginning_twice_says_where_it_was_begun() {
    let scene = Scene::new();
    let line = line!() + 1;
    let capture = Capture::begin(&scene.stream).unwrap();
    for _ in 0..2 {
        let again = Capture::begin(&scene.stream).unwrap_err();
        let Error::AlreadyCapturing { begun: Some(begun) } = again else {
            panic!("{again:?}");
        };
        assert_eq!((begun.file(), begun.line()), (file!(), line));
        let again = Graph::capture(&scene.stream, |_| Ok(())).unwrap_err();
        assert!(
            again.to_string().contains(&format!("guards.rs:{line}")),
            "{again}"
        );
        let run = Graph::capture_or_run(&scene.stream, |_| Ok(()));
        assert!(
            matches!(run, Err(Error::AlreadyCapturing { .. })),
            "{run:?}"
        );
        // The second time it is invalid, and still there.
        assert!(scene.stream.synchronize().is_err());
    }
    assert!(matches!(capture.end(), Err(Error::CaptureInvalidated(_))));
    scene.is_clean("begun twice");

    // What other code began has no place that is known.
    begin_raw(&scene);
    let again = Capture::begin(&scene.stream).unwrap_err();
    assert!(
        matches!(again, Error::AlreadyCapturing { begun: None }),
        "{again:?}"
    );
    end_raw(&scene);
    scene.is_clean("begun by other code");
}

fn begin_raw(scene: &Scene) {
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    scene.stream.begin_capture(mode).unwrap();
}

fn end_raw(scene: &Scene) -> (CUresult, sys::CUgraph) {
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive.
    let answer = unsafe { sys::cuStreamEndCapture(scene.stream.cu_stream(), &mut graph) };
    (answer, graph)
}

#[test]
fn what_other_code_ended_is_told_and_not_touched() {
    let scene = Scene::new();
    let is_told = |error: Error, what: &str| {
        let Error::CaptureInvalidated(why) = &error else {
            panic!("{what}: {error:?}");
        };
        assert_eq!(
            why.answer,
            CUresult::CUDA_ERROR_ILLEGAL_STATE,
            "{what}: {why}"
        );
        assert!(
            why.to_string().contains("other code ended the capture"),
            "{what}: {why}"
        );
    };
    for spoilt in [false, true] {
        let what = format!("ended elsewhere, spoilt: {spoilt}");
        let mut capture = Capture::begin(&scene.stream).unwrap();
        mark(&scene, &mut *capture).unwrap();
        if spoilt {
            assert!(scene.stream.synchronize().is_err());
        }
        end_raw(&scene);
        is_told(capture.end().unwrap_err(), &what);
        scene.is_clean(&what);

        // In a block, the recording goes on as before it.
        let what = format!("{what}, in a block");
        let (graph, ()) = Graph::capture(&scene.stream, |path| {
            mark(&scene, path)?;
            let failed = foreign(path, |stream| {
                if spoilt {
                    assert!(stream.synchronize().is_err());
                }
                end_raw(&scene);
                Ok(())
            });
            is_told(failed.unwrap_err(), &what);
            path.record(store(&scene.a, 10)).map(drop)
        })
        .unwrap();
        is_whole(&scene, &graph, &what);
        drop(graph);
        scene.is_clean(&what);
    }

    // In a block, and the stream joins another capture: the recording is over, and says why.
    let other = Scene::of(scene.context.clone());
    let capture = Capture::begin(&other.stream).unwrap();
    let mut taken = Capture::begin(&scene.stream).unwrap();
    let failed = foreign(&mut taken, |stream| {
        end_raw(&scene);
        Ok(stream.join(&other.stream)?)
    });
    is_told(failed.unwrap_err(), "taken by another capture");
    let is_taken = |error: Error| match &error {
        Error::AlreadyCapturing { begun: Some(begun) } => assert_eq!(begun.file(), file!()),
        _ => panic!("{error:?}"),
    };
    is_taken(taken.record(EmptyOp::new()).unwrap_err());
    is_taken(foreign(&mut taken, |_| Ok(())).unwrap_err());
    is_taken(taken.end().unwrap_err());
    drop(capture);
    scene.is_clean("taken by another capture");
    other.is_clean("it took another's stream");

    // Safe code ends it, and destroys the graph that comes back.
    let mut capture = Capture::begin(&scene.stream).unwrap();
    mark(&scene, &mut *capture).unwrap();
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    drop(scene.stream.end_capture(flags));
    let _ = capture.record(EmptyOp::new());
    is_told(capture.end().unwrap_err(), "ended by cudarc");
    scene.is_clean("ended by cudarc");

    // A capture that began since is not ended in its place.
    let capture = Capture::begin(&scene.stream).unwrap();
    end_raw(&scene);
    begin_raw(&scene);
    drop(capture);
    assert_eq!(end_raw(&scene).0, CUresult::CUDA_SUCCESS);
    scene.is_clean("begun since");
}

#[test]
fn branches_are_joined_where_they_were_split() {
    let scene = Scene::new();
    let other = Scene::of(scene.context.clone());
    for case in ["another capture", "another split", "an outer split"] {
        let first = Capture::begin(&scene.stream).unwrap();
        let second = Capture::begin(&other.stream).unwrap();
        let (joint, [mut left, mut right]) = first.split().unwrap();
        mark(&scene, &mut *left).unwrap();
        mark(&scene, &mut *right).unwrap();
        let (others, [theirs]) = second.split().unwrap();
        let wrong = match case {
            "another capture" => {
                drop(right);
                joint.join([left, theirs]).map(drop)
            }
            "another split" => {
                let (inner, [one, two]) = left.split().unwrap();
                drop((inner, two));
                joint.join([one, right]).map(drop)
            }
            _ => {
                let (inner, [one]) = left.split().unwrap();
                drop(one);
                let wrong = inner.join([right]).map(drop);
                drop(joint);
                wrong
            }
        };
        assert!(
            matches!(wrong, Err(Error::ForeignBranch)),
            "{case}: {wrong:?}"
        );
        drop(others);
        scene.is_clean(case);
        other.is_clean(case);
    }
}

#[test]
fn the_default_stream_cannot_be_captured() {
    let scene = Scene::new();
    let stream = scene.context.default_stream();
    let error = Capture::begin(&stream).unwrap_err();
    let Error::Call { call, code } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(*call, "cuStreamBeginCaptureToGraph");
    assert_eq!(*code, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    let before = Before::new(&scene);
    let error = before.graph.capture_into(&stream, (), |_| Ok(()));
    assert!(matches!(error, Err(Error::Call { .. })), "{error:?}");
    before.is_as_before(&scene, "the default stream");
    scene.is_clean("the default stream");
}

#[test]
fn an_executable_may_go_while_its_thread_captures() {
    let scene = Scene::new();
    let graph = Graph::new(&scene.context).unwrap();
    let held = scene.held();
    graph.keep(held).unwrap();
    let exec = graph.instantiate().unwrap();
    let (captured, ()) = Graph::capture(&scene.stream, |c| {
        drop((exec, graph));
        c.record(store(&scene.a, 10)).map(drop)
    })
    .unwrap();
    is_whole(&scene, &captured, "an executable dropped meanwhile");
    drop(captured);
    scene.is_clean("an executable dropped meanwhile");
}

/// What a closure has borrowed it may put in another's place: each is ended once all the same.
#[test]
fn captures_may_change_places() {
    let (first, second) = (Scene::new(), Scene::new());
    for fails in [false, true] {
        let what = format!("swapped, failing: {fails}");
        let mut inner = None;
        let outer = Graph::capture(&first.stream, |c| {
            mark(&first, c)?;
            c.record(store(&first.a, 10))?;
            let (graph, ()) = Graph::capture(&second.stream, |d| {
                mark(&second, d)?;
                d.record(store(&second.a, 10))?;
                std::mem::swap(c, d);
                if fails {
                    return Err(Error::other(std::io::Error::other("left")));
                }
                Ok(())
            })?;
            inner = Some(graph);
            Ok(())
        });
        match (fails, outer, inner.take()) {
            (false, Ok((graph, ())), Some(inner)) => {
                is_whole(&second, &graph, &what);
                is_whole(&first, &inner, &what);
            }
            (true, Err(error), None) => assert!(is_left(&error), "{what}: {error}"),
            (_, outer, _) => panic!("{what}: {outer:?}"),
        }
        first.is_clean(&what);
        second.is_clean(&what);
    }
}

#[test]
fn memory_may_go_while_its_stream_is_captured() {
    let scene = Scene::new();
    let (gone, pinned) = (
        words(&scene.stream, &[1]),
        PinnedBuffer::<u32>::zeroed(&scene.context, 1),
    );
    let (captured, ()) = Graph::capture(&scene.stream, |c| {
        drop((gone, pinned));
        c.record(store(&scene.a, 10)).map(drop)
    })
    .unwrap();
    assert_eq!(
        captured.nodes().unwrap().len(),
        1,
        "the release was recorded"
    );
    is_whole(&scene, &captured, "memory dropped meanwhile");
    drop(captured);
    scene.is_clean("memory dropped meanwhile");
}

#[test]
fn a_captured_graph_is_an_ordinary_one() {
    let scene = Scene::new();
    // The driver clones no graph with a loop.
    let graph = by_guards(&scene, None, &Exit::never()).unwrap().unwrap();
    let last = graph
        .nodes()
        .unwrap()
        .into_iter()
        .find(|&node| graph.successors(node).list().unwrap().is_empty());
    let b = words(&scene.stream, &[0]);
    graph
        .add(add(&b, &scene.a), last.expect("something is last"))
        .unwrap();
    let copy = graph.try_clone().unwrap();
    drop(graph);
    is_whole(&scene, &copy, "a clone");
    assert_eq!(b.to_host(&scene.stream).unwrap(), [10]);
    drop((copy, Arc::new(b)));
    scene.is_clean("a clone");
}
