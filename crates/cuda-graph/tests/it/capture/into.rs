//! Captures into graphs that were there before: which graphs take one, what may be done to them meanwhile, and what is
//! left of what was learnt.

use cuda_graph::cudarc::driver::sys::{self, CUresult};
use cuda_graph::{AllocOp, Capture, ChildOp, EmptyOp, Error, Graph, HostOp, IfOp, MemoryLocation};

use super::guards::{is_whole, mark};
use super::scene::{Before, Scene};
use crate::fixture::{context, store, words};

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
    let error = before.graph.capture_into(&scene.stream, first, |c| {
        let error = c.set_dependencies(other.nodes[1]);
        assert!(matches!(error, Err(Error::ForeignNode { .. })), "{error:?}");
        c.set_dependencies((first, second))?;
        assert_eq!(c.dependencies()?.len(), 2);
        c.embed(&before.graph)
    });
    assert!(matches!(error, Err(Error::SelfEmbed { .. })), "{error:?}");
    before.is_as_before(&scene, "wrong nodes");
    before.graph.destroy(second).unwrap();
    let error = before.graph.capture_into(&scene.stream, second, |_| Ok(()));
    assert!(matches!(error, Err(Error::NodeGone { .. })), "{error:?}");
    scene.is_clean("wrong nodes");
}

#[test]
fn a_graph_takes_one_capture_at_a_time_and_loses_no_node_meanwhile() {
    let scene = Scene::new();
    let other = Scene::of(scene.context.clone());
    let before = Before::new(&scene);
    let mut capture = Capture::begin_into(&scene.stream, &before.graph, ()).unwrap();
    mark(&scene, &mut capture).unwrap();
    let second = Capture::begin_into(&other.stream, &before.graph, ());
    assert!(
        matches!(&second, Err(Error::InvalidOperation { why }) if why.contains("captured into already")),
        "{second:?}"
    );
    let error = before.graph.destroy(before.nodes[0]).unwrap_err();
    assert!(matches!(error, Error::Node { .. }), "{error:?}");
    drop(capture);
    before.is_as_before(&scene, "two captures");
    scene.is_clean("two captures");
    other.is_clean("two captures");
}

#[test]
fn a_graph_goes_with_its_last_handle_and_not_with_its_capture() {
    let scene = Scene::new();
    let graph = Graph::new(&scene.context).unwrap();
    let mut capture = Capture::begin_into(&scene.stream, &graph, ()).unwrap();
    drop(graph);
    capture.record(store(&scene.a, 10)).unwrap();
    mark(&scene, &mut capture).unwrap();
    let graph = capture.end().unwrap();
    is_whole(&scene, &graph, "the graph's first handle is gone");
    drop(graph);
    scene.is_clean("the graph's first handle is gone");
}

/// What a capture that fails would destroy for good takes none.
#[test]
fn a_graph_that_cannot_be_restored_is_not_captured_into() {
    let scene = Scene::new();
    let before = Before::new(&scene);
    let into = |graph: &Graph| {
        let failed = graph.capture_into(&scene.stream, (), |_| Ok(()));
        failed.expect_err("it could be lost")
    };
    let embedded = into(&before.child);
    assert!(matches!(&embedded, Error::InvalidOperation { why } if why.contains("embedded")));
    // SAFETY: the graph outlives the handle.
    let borrowed = unsafe { Graph::from_raw_borrowed(before.graph.raw().unwrap(), &scene.context) };
    let borrowed = into(&borrowed);
    assert!(matches!(&borrowed, Error::InvalidOperation { why } if why.contains("borrowed")));
    let allocating = Graph::new(&scene.context).unwrap();
    let place = MemoryLocation::Device(0);
    allocating.add(AllocOp::new(place, 64), ()).unwrap();
    let error = into(&allocating);
    assert!(
        matches!(
            &error,
            Error::Call {
                call: "cuGraphClone",
                ..
            }
        ),
        "{error:?}"
    );
    before.is_as_before(&scene, "graphs that take no capture");
    drop((before, allocating));
    scene.is_clean("graphs that take no capture");
}

/// Embedded graphs that were looked into while something was captured are looked into anew.
#[test]
fn what_was_learnt_of_a_graph_meanwhile_goes_with_a_failure() {
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
    for _ in 0..2 {
        let mut views = Vec::new();
        let failed = graph.capture_into(&scene.stream, (), |c| {
            views.push(look(&graph));
            Ok(c.stream().synchronize()?)
        });
        assert!(
            matches!(failed, Err(Error::CaptureInvalidated(_))),
            "{failed:?}"
        );
        let known = views[0].nodes();
        assert!(matches!(&known, Err(Error::GraphGone)) || known.unwrap().len() == 1);
        look(&graph);
        graph.instantiate().unwrap().launch(&scene.stream).unwrap();
    }
    drop(graph);
    scene.is_clean("looked into meanwhile");
}

#[test]
fn a_body_takes_one_capture_at_a_time_and_keeps_what_it_had() {
    let scene = Scene::new();
    let (a, b) = (words(&scene.stream, &[0]), words(&scene.stream, &[0]));
    let graph = Graph::new(&context()).unwrap();
    let condition = graph.condition(Some(1)).unwrap();
    let node = graph.add(IfOp::new(&condition), ()).unwrap();
    let body = graph.body(node).unwrap();
    let first = body.add(store(&a, 1), ()).unwrap();
    let second = body
        .capture_into(&scene.stream, first, |c| c.record(store(&b, 2)))
        .unwrap();
    assert_eq!(body.predecessors(second).list().unwrap(), [first.id()]);

    let other = context().new_stream().unwrap();
    let mut capture = Capture::begin_into(&scene.stream, &body, second).unwrap();
    let twice = Capture::begin_into(&other, &body, second);
    assert!(
        matches!(&twice, Err(Error::InvalidOperation { why }) if why.contains("captured into already"))
    );
    capture.record(store(&b, 3)).unwrap();
    drop(capture);
    let failed = body.capture_into(&scene.stream, second, |c| {
        c.record(store(&b, 4))?;
        c.record(HostOp::new(|| {}))
    });
    assert!(matches!(failed, Err(Error::NotInBody { .. })), "{failed:?}");
    assert_eq!(body.nodes().unwrap().len(), 2);
    graph.instantiate().unwrap().launch(&scene.stream).unwrap();
    let got = [&a, &b].map(|buffer| buffer.to_host(&scene.stream).unwrap()[0]);
    assert_eq!(got, [1, 2]);
    scene.is_clean("bodies");
}
