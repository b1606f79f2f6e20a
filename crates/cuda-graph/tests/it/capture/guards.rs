//! Guards and closures left at any point, by a drop, an error, a panic or a driver call that fails: every stream takes
//! new work, everything held is dropped, and a graph that was there before is what it was.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cuda_graph::cudarc::driver::sys::{self, CUresult};
use cuda_graph::testing::with_failing_call;
use cuda_graph::{Branch, Capture, EmptyOp, Error, Graph, Kind, Mode, PinnedBuffer, Result};

use super::scene::{Before, Scene};
use crate::exit::{Exit, How, is_left};
use crate::fixture::{add, store, words};

/// Records something that holds an owner, and notes the stream.
pub(super) fn mark<K: Kind, M: Mode>(scene: &Scene, c: &mut Capture<K, M>) -> Result<()> {
    scene.uses(c.stream());
    let held = scene.held();
    c.host(move || {
        let _ = &held;
    })?;
    c.keep(scene.held())
}

/// Ten forks and joins by guards. The sum at the end is 6.
fn by_guards(scene: &Scene, into: Option<&Before>, exit: &Exit) -> Result<Option<Graph>> {
    let mut capture = match into {
        None => Capture::begin(&scene.stream)?,
        Some(before) => Capture::begin_into(&scene.stream, &before.graph, before.nodes[1])?,
    };
    exit.here()?;
    mark(scene, &mut capture)?;
    capture.record(scene.ops.store_a.clone())?;
    exit.here()?;
    let (joint, [mut left, mut right]) = capture.split()?;
    exit.here()?;
    mark(scene, &mut left)?;
    exit.here()?;
    mark(scene, &mut right)?;
    right.record(scene.ops.store_b.clone())?;
    exit.here()?;
    let (inner, [mut one, two, mut three]) = right.split()?;
    exit.here()?;
    mark(scene, &mut one)?;
    mark(scene, &mut three)?;
    exit.here()?;
    let right = inner.join([one, two, three])?;
    exit.here()?;
    let (empty, []) = right.split()?;
    let mut right = empty.join([])?;
    right.record(scene.ops.double_b.clone())?;
    exit.here()?;
    let mut capture = joint.join([left, right])?;
    exit.here()?;
    capture.record(scene.ops.add_b.clone())?;
    capture.record(scene.ops.double_a.clone())?;
    exit.here()?;
    let graph = capture.end()?;
    exit.here()?;
    Ok(into.is_none().then_some(graph))
}

/// The same by closures.
fn by_closures(scene: &Scene, into: Option<&Before>, exit: &Exit) -> Result<Option<Graph>> {
    let record = |c: &mut Capture| {
        exit.here()?;
        mark(scene, c)?;
        c.record(scene.ops.store_a.clone())?;
        exit.here()?;
        c.parallel(|p| {
            exit.here()?;
            p.branch(|c| {
                exit.here()?;
                mark(scene, c)?;
                exit.here()
            })?;
            exit.here()?;
            p.branch(|c| {
                exit.here()?;
                mark(scene, c)?;
                c.record(scene.ops.store_b.clone())?;
                c.parallel(|p| {
                    exit.here()?;
                    p.branch(|c| {
                        mark(scene, c)?;
                        exit.here()
                    })?;
                    p.branch(|_| exit.here())?;
                    p.branch(|c| {
                        exit.here()?;
                        mark(scene, c)?;
                        exit.here()
                    })
                })?;
                exit.here()?;
                c.record(scene.ops.double_b.clone()).map(drop)
            })
        })?;
        exit.here()?;
        c.record(scene.ops.add_b.clone())?;
        c.record(scene.ops.double_a.clone())?;
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
    for (name, program) in PROGRAMS {
        let scene = Scene::new();
        let exit = Exit::never();
        let graph = program(&scene, None, &exit)
            .unwrap()
            .expect("it is its own");
        assert_eq!(graph.nodes().unwrap().len(), 10, "{name}");
        is_whole(&scene, &graph, name);
        let before = Before::new(&scene);
        program(&scene, Some(&before), &exit).unwrap();
        assert_eq!(before.graph.nodes().unwrap().len(), 12, "{name}");
        is_whole(&scene, &before.graph, name);
        drop((graph, before));
        scene.is_clean(name);
        assert!(exit.passed() >= 24, "{name}");
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
            // The last exit is behind the end.
            let ended = name == "guards" && at == 11;
            match &before {
                Some(before) if ended => {
                    assert_eq!(before.graph.nodes().unwrap().len(), 12, "{what}");
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
                before.is_as_before(&scene, &what);
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
        mark(&scene, &mut left).unwrap();
        mark(&scene, &mut right).unwrap();
        let gone = |branch: &mut Capture<Branch>| {
            let error = branch.record(EmptyOp::new()).unwrap_err();
            assert!(matches!(error, Error::Call { .. }), "{what}: {error}");
            assert!(!branch.is_active(), "{what}");
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
    for spoilt in [false, true] {
        let what = format!("ended elsewhere, spoilt: {spoilt}");
        let mut capture = Capture::begin(&scene.stream).unwrap();
        mark(&scene, &mut capture).unwrap();
        if spoilt {
            assert!(scene.stream.synchronize().is_err());
        }
        end_raw(&scene);
        let error = capture.record(EmptyOp::new()).unwrap_err();
        assert!(matches!(error, Error::Call { .. }), "{what}: {error:?}");
        let error = capture.end().unwrap_err();
        let Error::CaptureInvalidated(why) = &error else {
            panic!("{what}: {error:?}");
        };
        assert_eq!(
            why.source.0,
            CUresult::CUDA_ERROR_ILLEGAL_STATE,
            "{what}: {why}"
        );
        assert!(
            why.to_string().contains("other code ended the capture"),
            "{what}: {why}"
        );
        scene.is_clean(&what);
    }

    // A capture that began since is not ended in its place.
    let capture = Capture::begin(&scene.stream).unwrap();
    end_raw(&scene);
    begin_raw(&scene);
    drop(capture);
    assert_eq!(end_raw(&scene).0, CUresult::CUDA_SUCCESS);
    scene.is_clean("begun since");

    // Whether the graph has outlived that, nobody can tell; its copy has.
    let before = Before::new(&scene);
    let capture = Capture::begin_into(&scene.stream, &before.graph, ()).unwrap();
    end_raw(&scene);
    drop(capture);
    before.is_as_before(&scene, "ended elsewhere");
    drop(before);
    scene.is_clean("ended elsewhere, into a graph");
}

#[test]
fn branches_are_joined_where_they_were_split() {
    let scene = Scene::new();
    let other = Scene::of(scene.context.clone());
    for case in ["another capture", "another split", "an outer split"] {
        let first = Capture::begin(&scene.stream).unwrap();
        let second = Capture::begin(&other.stream).unwrap();
        let (joint, [mut left, mut right]) = first.split().unwrap();
        mark(&scene, &mut left).unwrap();
        mark(&scene, &mut right).unwrap();
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
    let Error::Call { call, source } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(*call, "cuStreamBeginCaptureToGraph");
    assert_eq!(source.0, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
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
    let graph = by_closures(&scene, None, &Exit::never()).unwrap().unwrap();
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
