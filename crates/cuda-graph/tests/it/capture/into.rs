//! Recordings into graphs that were there before: which graphs take one, what others may do to them
//! meanwhile, and that nothing of a recording that failed is left.

use std::cell::Cell;
use std::sync::Arc;

use cuda_graph::cudarc::driver::sys::{self, CUresult};
use cuda_graph::testing::with_failing_call;
use cuda_graph::{
    AllocOp, Capture, ChildOp, CopyOp, EmptyOp, Error, FreeOp, Graph, HostOp, IfOp, MemoryLocation,
    NodeId, Path, Recorder, Result,
};

use super::guards::{is_whole, mark};
use super::scene::{Before, Scene, foreign, has_condition_left, launch_store};
use crate::fixture::{add, allocated, alone, context, store, words};

fn left() -> Error {
    Error::other(std::io::Error::other("left"))
}

#[test]
fn it_takes_more_after_chosen_nodes() {
    let scene = Scene::new();
    let (a, b) = (words(&scene.stream, &[0]), words(&scene.stream, &[0]));
    let graph = Graph::new(&scene.context).unwrap();
    let first = graph.add(store(&a, 2), ()).unwrap();
    let other = graph.add(store(&b, 5), ()).unwrap();
    let more = graph
        .capture_into(&scene.stream, first, |path| {
            assert_eq!(path.ends()?, [first.id()]);
            let more = path.record(add(&a, &a))?;
            assert_eq!(graph.nodes()?.len(), 2, "nobody sees it yet");
            path.go_on_after((more, other))?;
            path.record(add(&a, &b))?;
            Ok(more)
        })
        .unwrap();
    assert_eq!(graph.predecessors(more).list().unwrap(), [first.id()]);
    assert_eq!(graph.edges().unwrap().len(), 3);
    // Without a stream too.
    let last = graph
        .record_into(more, |path| path.record(EmptyOp::new()))
        .unwrap();
    assert_eq!(graph.predecessors(last).list().unwrap(), [more.id()]);
    graph.instantiate().unwrap().launch(&scene.stream).unwrap();
    assert_eq!(a.to_host(&scene.stream).unwrap(), [9]);
    graph.update(more, add(&a, &b)).unwrap();
    graph.instantiate().unwrap().launch(&scene.stream).unwrap();
    assert_eq!(a.to_host(&scene.stream).unwrap(), [12]);
}

#[test]
fn nodes_to_go_on_from_are_those_of_the_graph() {
    let scene = Scene::new();
    let (before, other) = (Before::new(&scene), Before::new(&scene));
    let [first, second] = before.nodes;
    let error = before
        .graph
        .capture_into(&scene.stream, other.nodes[0], |_| Ok(()));
    assert!(matches!(error, Err(Error::ForeignNode { .. })), "{error:?}");
    let error = before
        .graph
        .capture_into(&scene.stream, (first, first), |_| Ok(()));
    assert!(
        matches!(error, Err(Error::DuplicateNode { .. })),
        "{error:?}"
    );
    let error = before.graph.capture_into(&scene.stream, first, |path| {
        let error = path.go_on_after(other.nodes[1]);
        assert!(matches!(error, Err(Error::ForeignNode { .. })), "{error:?}");
        path.go_on_after((first, second))?;
        assert_eq!(path.ends()?.len(), 2);
        path.record(ChildOp::new(&before.graph))
    });
    assert!(matches!(error, Err(Error::SelfEmbed { .. })), "{error:?}");
    before.is_as_before(&scene, "wrong nodes");
    before.graph.destroy(second).unwrap();
    let error = before.graph.capture_into(&scene.stream, second, |_| Ok(()));
    assert!(matches!(error, Err(Error::NodeGone { .. })), "{error:?}");
    scene.is_clean("wrong nodes");
}

/// Nothing of a recording is in the graph until it moves in, so others do there what they like.
#[test]
fn a_graph_is_free_while_it_is_recorded_into() {
    let scene = Scene::new();
    let other = Scene::of(scene.context.clone());
    let graph = Graph::new(&scene.context).unwrap();
    let anchor = graph.add(store(&scene.a, 4), ()).unwrap();
    let mut one = Capture::begin_into(&scene.stream, &graph, anchor).unwrap();
    let mut two = Capture::begin_into(&other.stream, &graph, ()).unwrap();
    mark(&scene, &mut *one).unwrap();
    let first = two.record(store(&other.b, 1)).unwrap();
    let between = graph.add(EmptyOp::new(), anchor).unwrap();
    let second = one.record(add(&scene.a, &scene.b)).unwrap();
    assert_eq!(graph.nodes().unwrap(), [anchor.id(), between.id()]);
    // The handles of what is not there yet say so.
    for gone in [graph.op(first).map(drop), graph.op(second).map(drop)] {
        assert!(matches!(gone, Err(Error::NodeGone { .. })), "{gone:?}");
    }
    drop(one.end().unwrap());
    assert_eq!(graph.nodes().unwrap().len(), 4);
    graph.op(second).unwrap();
    graph.op(first).unwrap_err();
    graph
        .capture_into(&scene.stream, second, |path| {
            path.record(add(&scene.a, &scene.a))
        })
        .unwrap();
    drop(two.end().unwrap());
    graph.op(first).unwrap();
    graph.instantiate().unwrap().launch(&scene.stream).unwrap();
    assert_eq!(scene.a.to_host(&scene.stream).unwrap(), [8]);

    // A node that the recording goes on after may go too: then nothing of it moves in.
    let mut late = Capture::begin_into(&scene.stream, &graph, between).unwrap();
    mark(&scene, &mut *late).unwrap();
    let count = graph.nodes().unwrap().len();
    graph.destroy(between).unwrap();
    let error = late.end().unwrap_err();
    assert!(matches!(error, Error::NodeGone { .. }), "{error:?}");
    assert_eq!(graph.nodes().unwrap().len(), count - 1);
    drop(graph);
    scene.is_clean("free");
    other.is_clean("free");
}

#[test]
fn a_graph_goes_with_its_last_handle_and_not_with_its_capture() {
    let scene = Scene::new();
    let graph = Graph::new(&scene.context).unwrap();
    let mut capture = Capture::begin_into(&scene.stream, &graph, ()).unwrap();
    drop(graph);
    capture.record(store(&scene.a, 10)).unwrap();
    mark(&scene, &mut *capture).unwrap();
    let graph = capture.end().unwrap();
    is_whole(&scene, &graph, "the graph's first handle is gone");
    drop(graph);
    scene.is_clean("the graph's first handle is gone");
}

/// A graph, and something that says what it is.
struct Place {
    name: &'static str,
    graph: Graph,
    /// What it is part of, to be run.
    whole: Graph,
    /// Allocations and host functions cannot be in it.
    is_body: bool,
}

fn places(scene: &Scene) -> Vec<Place> {
    let graph = || Graph::new(&scene.context).unwrap();
    let part = |name, graph: Graph, whole, is_body| Place {
        name,
        graph,
        whole,
        is_body,
    };
    let plain = graph();
    plain.add(EmptyOp::new(), ()).unwrap();

    let allocating = graph();
    let alloc = AllocOp::new(MemoryLocation::Device(0), 4);
    let alloc = allocating.add(alloc, ()).unwrap();
    let memory = allocated(&allocating, alloc);
    let copy = CopyOp::new(&memory, &scene.zero).unwrap();
    let copy = allocating.add(copy, alloc).unwrap();
    allocating.add(FreeOp::new(&memory), copy).unwrap();

    // Of a graph that has a copy somewhere, and conditions, an H200 makes no executable.
    let (outer, inner) = (graph(), graph());
    inner.add(EmptyOp::new(), ()).unwrap();
    let node = outer.add(ChildOp::new(&inner), ()).unwrap();
    let embedded = outer.child(node).unwrap();

    let branching = graph();
    let condition = branching.condition(Some(1)).unwrap();
    let node = branching.add(IfOp::new(&condition), ()).unwrap();
    let body = branching.body(node).unwrap();
    body.add(EmptyOp::new(), ()).unwrap();

    let view = |graph: &Graph| ChildOp::new(graph).graph();
    vec![
        part("a graph", view(&plain), plain, false),
        part(
            "a graph that allocates",
            view(&allocating),
            allocating,
            false,
        ),
        part("an embedded graph", embedded, outer, false),
        part("a body", body, branching, true),
    ]
}

/// What is recorded: typed operations, foreign work, branches and loops. It stores 7 in `a`.
fn record(
    scene: &Scene,
    path: &mut Path,
    is_body: bool,
    exit: &dyn Fn() -> Result<()>,
) -> Result<()> {
    path.keep(scene.held())?;
    path.record(store(&scene.a, 3))?;
    exit()?;
    foreign(path, |stream| launch_store(stream, &scene.b, 4))?;
    exit()?;
    path.parallel(
        &mut [&mut |r| r.record(EmptyOp::new()).map(drop), &mut |r| {
            exit()?;
            r.while_nonzero(&scene.zero, |r| {
                r.keep(scene.held())?;
                exit()?;
                r.record(store(&scene.a, 99)).map(drop)
            })
        }],
    )?;
    exit()?;
    if !is_body {
        mark(scene, path)?;
    }
    path.record(scene.ops.add_b.clone())?;
    exit()
}

fn runs(scene: &Scene, place: &Place, stores: u32) {
    scene.a.copy_from_host(&scene.stream, &[0]).unwrap();
    let mut exec = place.whole.instantiate().unwrap();
    exec.launch(&scene.stream).unwrap();
    let a = scene.a.to_host(&scene.stream).unwrap();
    assert_eq!(a, [stores], "{}", place.name);
}

#[test]
fn every_graph_takes_all_or_nothing() {
    let _alone = alone();
    let scene = Scene::new();
    for place in places(&scene) {
        let what = place.name;
        let before: Vec<NodeId> = place.graph.nodes().unwrap();
        let edges = place.graph.edges().unwrap().len();
        let last = *before.last().unwrap();
        let as_before = |what: &str| {
            assert_eq!(place.graph.nodes().unwrap(), before, "{what}");
            assert_eq!(place.graph.edges().unwrap().len(), edges, "{what}");
            scene.is_clean(what);
        };
        // Left at every point.
        for at in 0.. {
            let passed = Cell::new(0);
            let exit = || {
                passed.set(passed.get() + 1);
                match passed.get() == at + 1 {
                    true => Err(left()),
                    false => Ok(()),
                }
            };
            let stream = &scene.stream;
            let mut extra = None;
            let result = place.graph.capture_into(stream, last, |path| {
                extra = Some(path.record(EmptyOp::new())?);
                record(&scene, path, place.is_body, &exit)
            });
            if passed.get() <= at {
                result.unwrap();
                assert!(at > 5);
                let first = place.graph.successors(last).list().unwrap();
                assert!(first.contains(&extra.unwrap().id()), "{what}");
                break;
            }
            assert!(matches!(result, Err(Error::Other(_))), "{what}: {result:?}");
            let gone = place.graph.op(extra.unwrap());
            assert!(
                matches!(gone, Err(Error::NodeGone { .. })),
                "{what}: {gone:?}"
            );
            as_before(&format!("{what}, left at {at}"));
            runs(&scene, &place, 0);
        }
        runs(&scene, &place, 7);
        drop(place);
        scene.is_clean(what);
    }
}

#[test]
fn every_graph_takes_all_or_nothing_where_calls_fail() {
    let _alone = alone();
    let scene = Scene::new();
    for kind in 0..places(&scene).len() {
        for nth in 0.. {
            let place = places(&scene).swap_remove(kind);
            let what = format!("{}, call {nth} fails", place.name);
            let before = place.graph.nodes().unwrap();
            let last = *before.last().unwrap();
            let capture = || {
                place.graph.capture_into(&scene.stream, last, |path| {
                    record(&scene, path, place.is_body, &|| Ok(()))
                })
            };
            let (result, fired) = with_failing_call(nth, capture);
            match result {
                Ok(()) => runs(&scene, &place, 7),
                Err(error) => {
                    assert!(fired, "{what}: {error}");
                    // The driver destroys no node of a graph that allocates, so what moved in
                    // before stays there.
                    if place.name != "a graph that allocates" {
                        assert_eq!(place.graph.nodes().unwrap(), before, "{what}: {error}");
                        if !has_condition_left(&place.whole) {
                            runs(&scene, &place, 0);
                        }
                        // It can be tried again.
                        capture().unwrap_or_else(|error| panic!("{what}: {error}"));
                        runs(&scene, &place, 7);
                    }
                }
            }
            drop(place);
            scene.is_clean(&what);
            if !fired {
                break;
            }
            assert!(nth < 1000);
        }
    }
}

/// What fails at the driver when the recording moves in takes what moved in before with it.
#[test]
fn what_the_driver_refuses_in_the_end_takes_all_with_it() {
    let scene = Scene::new();
    let before = Before::new(&scene);
    let refused = cuda_graph::cudarc::driver::LaunchConfig {
        block_dim: (0, 1, 1),
        ..crate::fixture::one()
    };
    let kernel = crate::fixture::kernel("store");
    // SAFETY: `store` writes one word.
    let refused = unsafe { cuda_graph::KernelOp::new(kernel, refused, (&scene.a, 1u32)) }.unwrap();
    let failed = before
        .graph
        .capture_into(&scene.stream, before.nodes[1], |path| {
            mark(&scene, path)?;
            foreign(path, |stream| launch_store(stream, &scene.a, 1))?;
            path.record(refused.clone())?;
            mark(&scene, path)
        });
    let error = failed.unwrap_err();
    assert_eq!(
        error.code(),
        Some(CUresult::CUDA_ERROR_INVALID_VALUE),
        "{error}"
    );
    before.is_as_before(&scene, "refused");
    // What a loop leaves at the driver serves the next.
    for fails in [true, false] {
        let moved = before
            .graph
            .capture_into(&scene.stream, before.nodes[1], |path| {
                path.if_nonzero(&scene.zero, |r| r.record(store(&scene.a, 2)).map(drop))?;
                match fails {
                    true => path.record(refused.clone()).map(drop),
                    false => path.record(store(&scene.a, 10)).map(drop),
                }
            });
        assert_eq!(moved.is_err(), fails, "{moved:?}");
    }
    is_whole(&scene, &before.graph, "a loop after one that failed");
    // In a graph of its own it is refused at once, and the recording goes on.
    let (graph, ()) = Graph::capture(&scene.stream, |path| {
        path.record(refused.clone()).unwrap_err();
        path.record(store(&scene.a, 10)).map(drop)
    })
    .unwrap();
    assert_eq!(graph.nodes().unwrap().len(), 1);
    drop((before, graph));
    scene.is_clean("refused");
}

#[test]
fn an_invalidated_block_leaves_a_recording_into_a_graph_as_it_was() {
    let scene = Scene::new();
    let before = Before::new(&scene);
    let failed = before
        .graph
        .capture_into(&scene.stream, before.nodes[1], |path| {
            mark(&scene, path)?;
            foreign(path, |stream| Ok(stream.synchronize()?))
        });
    assert!(
        matches!(failed, Err(Error::CaptureInvalidated(_))),
        "{failed:?}"
    );
    before.is_as_before(&scene, "invalidated");
    let mut exec = before.graph.instantiate().unwrap();
    before
        .graph
        .capture_into(&scene.stream, before.nodes[1], |path| {
            path.record(store(&scene.a, 1))?;
            let failed = foreign(path, |stream| Ok(stream.synchronize()?));
            assert!(matches!(failed, Err(Error::CaptureInvalidated(_))));
            path.record(store(&scene.a, 10)).map(drop)
        })
        .unwrap();
    assert_eq!(before.graph.nodes().unwrap().len(), 4);
    is_whole(&scene, &before.graph, "invalidated");
    exec.launch(&scene.stream).unwrap();
    drop((before, exec));
    scene.is_clean("invalidated");
}

/// Embedded graphs of other code that were looked into while something was recorded stay known.
#[test]
fn what_was_learnt_of_a_graph_meanwhile_stays() {
    let scene = Scene::new();
    let inner = Graph::new(&scene.context).unwrap();
    inner.add(EmptyOp::new(), ()).unwrap();
    let middle = Graph::new(&scene.context).unwrap();
    middle.add(ChildOp::new(&inner), ()).unwrap();
    let raw = {
        let graph = Graph::new(&scene.context).unwrap();
        graph.add(ChildOp::new(&middle), ()).unwrap();
        // SAFETY: the clone is nobody else's.
        unsafe {
            let mut clone = std::ptr::null_mut();
            let answer = sys::cuGraphClone(&mut clone, graph.raw().unwrap());
            assert_eq!(answer, CUresult::CUDA_SUCCESS);
            clone
        }
    };
    // SAFETY: as above; no node of it uses anything.
    let graph = unsafe { Graph::from_raw(raw, &scene.context) };
    let look = |graph: &Graph| {
        let node = graph.nodes().unwrap()[0].typed::<ChildOp>().unwrap();
        let middle = graph.child(node).unwrap();
        let node = middle.nodes().unwrap()[0].typed::<ChildOp>().unwrap();
        let inner = middle.child(node).unwrap();
        assert_eq!(inner.nodes().unwrap().len(), 1);
        inner
    };
    let mut views = Vec::new();
    let failed = graph.capture_into(&scene.stream, (), |path| {
        path.record(EmptyOp::new())?;
        views.push(look(&graph));
        Err::<(), _>(left())
    });
    failed.unwrap_err();
    assert_eq!(views[0].nodes().unwrap().len(), 1);
    look(&graph)
        .capture_into(&scene.stream, (), |path| path.record(EmptyOp::new()))
        .unwrap();
    assert_eq!(views[0].nodes().unwrap().len(), 2);
    graph.instantiate().unwrap().launch(&scene.stream).unwrap();
    drop((graph, views));
    scene.is_clean("looked into meanwhile");
}

#[test]
fn a_graph_that_is_gone_takes_nothing() {
    let scene = Scene::new();
    let before = Before::new(&scene);
    let capture = Capture::begin_into(&scene.stream, &before.child, ()).unwrap();
    before.graph.destroy(before.nodes[1]).unwrap();
    let error = capture.end().unwrap_err();
    assert!(matches!(error, Error::GraphGone), "{error:?}");
    let record = |path: &mut Path| path.record(EmptyOp::new());
    let error = before.child.capture_into(&scene.stream, (), record);
    let error = error.unwrap_err();
    assert!(matches!(error, Error::GraphGone), "{error:?}");
    scene.is_clean("gone");
}

#[test]
fn a_body_refuses_what_it_may_not_hold() {
    let scene = Scene::new();
    let graph = Graph::new(&context()).unwrap();
    let condition = graph.condition(Some(1)).unwrap();
    let node = graph.add(IfOp::new(&condition), ()).unwrap();
    let body = graph.body(node).unwrap();
    let first = body.add(store(&scene.a, 1), ()).unwrap();
    let failed = body.capture_into(&scene.stream, first, |path| {
        path.record(store(&scene.a, 4))?;
        path.record(HostOp::new(|| {}))
    });
    assert!(matches!(failed, Err(Error::NotInBody { .. })), "{failed:?}");
    // Foreign work too: the block is refused, and the recording goes on.
    let event = Arc::new(context().new_event(None).unwrap());
    body.capture_into(&scene.stream, first, |path| {
        let failed = foreign(path, |stream| {
            launch_store(stream, &scene.a, 4)?;
            let inner = Graph::new(&context())?;
            inner.add(cuda_graph::RecordEventOp::new(&event), ())?;
            // SAFETY: nothing else uses the capture meanwhile.
            unsafe {
                Graph::record_in_capture(stream, |path| path.record(ChildOp::new(&inner)).map(drop))
            }
        });
        assert!(matches!(failed, Err(Error::NotInBody { .. })), "{failed:?}");
        path.record(store(&scene.a, 2)).map(drop)
    })
    .unwrap();
    assert_eq!(body.nodes().unwrap().len(), 2);
    graph.instantiate().unwrap().launch(&scene.stream).unwrap();
    assert_eq!(scene.a.to_host(&scene.stream).unwrap(), [2]);
    scene.is_clean("bodies");
}
