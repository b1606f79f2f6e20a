//! What is recorded, by this library and by other code, in one stream and in branches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_graph::cudarc::driver::PushKernelArg;
use cuda_graph::{
    Capture, CaptureInfo, CaptureStatus, Captured, EmptyOp, Error, FillOp, Graph, NodeKind,
    Relaxed, Root,
};

use crate::fixture::{Watch, Watched, add, assert_soon, context, load, one, store, stream, words};

struct Held(#[expect(dead_code, reason = "its drop is what counts")] Watched);

#[test]
fn operations_run_in_order_and_are_held() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let (graph, node) = Graph::capture(&stream, |c| {
        let node = c.record(store(&a, 3))?;
        c.record(store(&b, 4))?;
        c.record(add(&a, &b))?;
        Ok(node)
    })
    .unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [0], "nothing ran yet");
    assert_eq!(graph.nodes().unwrap().len(), 3);
    assert_eq!(graph.edges().unwrap().len(), 2);
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [7]);
    exec.update(node, store(&a, 10)).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [14]);
}

#[test]
fn what_other_code_launches_is_recorded_between() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[5]));
    let adds = load().load_function("add").unwrap();
    let (graph, ()) = Graph::capture(&stream, |c| {
        c.record(store(&a, 1))?;
        let (to, from) = (a.address(), b.address());
        let mut launch = c.stream().launch_builder(&adds);
        launch.arg(&to).arg(&from);
        // SAFETY: `add` reads and writes one word of each buffer.
        unsafe { launch.launch(one()) }?;
        c.record(add(&b, &a))?;
        Ok(())
    })
    .unwrap();
    assert_eq!(graph.edges().unwrap().len(), 2);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [6]);
    assert_eq!(b.to_host(&stream).unwrap(), [11]);
}

#[test]
fn branches_start_together_and_are_waited_for() {
    let stream = stream();
    let buffers: Vec<_> = (0..3).map(|_| words(&stream, &[0])).collect();
    let sum = words(&stream, &[0]);
    let (graph, ()) = Graph::capture(&stream, |c| {
        c.record(EmptyOp::new())?;
        let nested = c.parallel(|p| {
            p.branch(|c| c.record(store(&buffers[0], 1)))?;
            p.branch(|c| {
                c.record(store(&buffers[1], 2))?;
                c.parallel(|p| {
                    p.branch(|c| c.record(add(&buffers[1], &buffers[1])))?;
                    p.branch(|c| c.record(store(&buffers[2], 8)))
                })
            })
        })?;
        let waits = c.dependencies()?;
        assert!(
            waits.contains(&nested.id()) && waits.len() >= 2,
            "{waits:?}"
        );
        for buffer in &buffers {
            c.record(add(&sum, buffer))?;
        }
        Ok(())
    })
    .unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(sum.to_host(&stream).unwrap(), [13]);
}

#[test]
fn guards_do_what_closures_do() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let mut capture = Capture::begin(&stream).unwrap();
    capture.record(EmptyOp::new()).unwrap();
    let (joint, [mut left, right]) = capture.split().unwrap();
    left.record(store(&a, 1)).unwrap();
    let (inner, [mut one, two, mut three]) = right.split().unwrap();
    one.record(store(&b, 2)).unwrap();
    three.record(EmptyOp::new()).unwrap();
    let right = inner.join([one, two, three]).unwrap();
    let mut capture = joint.join([left, right]).unwrap();
    capture.record(add(&a, &b)).unwrap();
    let graph = capture.end().unwrap();
    assert_eq!(graph.nodes().unwrap().len(), 5);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [3]);
}

#[test]
fn a_graph_takes_more_after_chosen_nodes_and_loses_it_when_that_fails() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let graph = Graph::new(&context()).unwrap();
    let first = graph.add(store(&a, 2), ()).unwrap();
    let other = graph.add(store(&b, 5), ()).unwrap();
    let more = graph
        .capture_into(&stream, first, |c| {
            assert_eq!(c.dependencies()?, [first.id()]);
            c.record(add(&a, &a))
        })
        .unwrap();
    assert_eq!(graph.predecessors(more).list().unwrap(), [first.id()]);
    let failed = graph.capture_into(&stream, (more, other), |c| {
        c.record(add(&a, &b))?;
        Err::<(), _>(Error::other(std::io::Error::other("no more")))
    });
    assert!(matches!(failed, Err(Error::Other(_))), "{failed:?}");
    assert_eq!(graph.nodes().unwrap().len(), 3);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [4]);
}

#[test]
fn owners_are_kept_until_the_graph_is_gone() {
    let stream = stream();
    let (watch, watched) = Watch::new();
    let (graph, ()) = Graph::capture(&stream, |c| {
        c.keep(Arc::new(Held(watched)))?;
        c.host(|| {}).map(drop)
    })
    .unwrap();
    let mut exec = graph.instantiate().unwrap();
    drop(graph);
    exec.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert!(!watch.is_dropped());
    drop(exec);
    assert_soon(|| watch.is_dropped(), "the owner leaks");
}

#[test]
fn a_relaxed_capture_ends_on_another_thread() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let mut capture = Capture::<Root, Relaxed>::begin_as(&stream).unwrap();
    capture.record(store(&a, 9)).unwrap();
    let graph = std::thread::spawn(move || capture.end().unwrap())
        .join()
        .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [9]);
}

#[test]
fn what_a_stream_is_in_can_be_read() {
    let stream = stream();
    let none = CaptureInfo::of(&stream).unwrap();
    assert_eq!(none.status, CaptureStatus::None);
    assert!(!none.is_capturing() && none.graph.is_null());
    Graph::capture(&stream, |c| {
        let first = CaptureInfo::of(c.stream())?;
        assert_eq!(first.status, CaptureStatus::Active);
        assert!(first.dependencies.is_empty());
        c.record(EmptyOp::new())?;
        let second = CaptureInfo::of(c.stream())?;
        assert_eq!((second.id, second.graph), (first.id, first.graph));
        assert_eq!(second.dependencies.len(), 1);
        Ok(())
    })
    .unwrap();
    assert!(!CaptureInfo::of(&stream).unwrap().is_capturing());
}

#[test]
fn every_kind_can_be_recorded() {
    let stream = stream();
    let calls = Arc::new(AtomicUsize::new(0));
    let inner = Graph::new(&context()).unwrap();
    let counted = calls.clone();
    inner
        .add(
            cuda_graph::HostOp::new(move || {
                counted.fetch_add(10, Ordering::Relaxed);
            }),
            (),
        )
        .unwrap();
    let event = Arc::new(context().new_event(None).unwrap());
    let a = words(&stream, &[0; 2]);
    let (graph, ()) = Graph::capture(&stream, |c| {
        let counted = calls.clone();
        c.host(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        })?;
        c.embed(&inner)?;
        c.record(FillOp::new(&a, 6u32)?)?;
        c.record_event(&event)?;
        c.wait_event(&event)?;
        Ok(())
    })
    .unwrap();
    let kinds: Vec<_> = graph
        .nodes()
        .unwrap()
        .iter()
        .map(|node| node.kind())
        .collect();
    for kind in [
        NodeKind::Host,
        NodeKind::Child,
        NodeKind::Fill,
        NodeKind::RecordEvent,
        NodeKind::WaitEvent,
    ] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [6, 6]);
    assert_eq!(calls.load(Ordering::Relaxed), 11);
}

#[test]
fn a_step_that_cannot_be_recorded_runs() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let step = |c: &mut Capture| {
        c.record(store(&a, 3))?;
        c.parallel(|p| p.branch(|c| c.record(store(&b, 4))))?;
        // Not allowed while the stream is captured.
        c.stream().synchronize()?;
        c.record(add(&a, &b)).map(drop)
    };
    let done = Graph::capture_or_run(&stream, step).unwrap();
    let Captured::Ran((), Error::CaptureInvalidated(why)) = done else {
        panic!("{done:?}");
    };
    assert!(why.to_string().contains("recording.rs"), "{why}");
    assert_eq!(a.to_host(&stream).unwrap(), [7]);

    let done = Graph::capture_or_run(&stream, |c| c.record(store(&a, 5))).unwrap();
    assert!(matches!(done, Captured::Graph(..)), "{done:?}");
    assert_eq!(a.to_host(&stream).unwrap(), [7]);
}

/// The driver destroys a graph into which a capture failed; a copy takes its place.
#[test]
fn a_graph_survives_a_capture_into_it_that_is_invalidated() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = Graph::new(&context()).unwrap();
    let inner = Graph::new(&context()).unwrap();
    inner.add(store(&a, 2), ()).unwrap();
    let first = graph.add(cuda_graph::ChildOp::new(&inner), ()).unwrap();
    let second = graph.add(add(&a, &a), first).unwrap();
    let mut before = graph.instantiate().unwrap();
    let (watch, watched) = Watch::new();
    let failed = graph.capture_into(&stream, second, |c| {
        c.keep(Arc::new(Held(watched)))?;
        c.record(store(&a, 100))?;
        c.stream().synchronize()?;
        Ok(())
    });
    assert!(
        matches!(failed, Err(Error::CaptureInvalidated(_))),
        "{failed:?}"
    );
    assert_eq!(graph.nodes().unwrap(), [first.id(), second.id()]);
    assert_eq!(graph.predecessors(second).list().unwrap(), [first.id()]);
    assert_eq!(graph.child(first).unwrap().nodes().unwrap().len(), 1);
    graph.update(second, add(&a, &a)).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [4]);
    before.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [4]);
    let update = before.update(second, add(&a, &a));
    assert!(matches!(update, Err(Error::UnknownSource)), "{update:?}");
    before.update_from(&graph).unwrap();
    let mut after = graph.instantiate().unwrap();
    after.update(second, store(&a, 9)).unwrap();
    after.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [9]);
    drop((graph, before, after));
    assert_soon(|| watch.is_dropped(), "the owner leaks");
}

#[test]
fn a_step_may_say_what_it_waits_for_wherever_it_runs() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    for spoilt in [false, true] {
        let done = Graph::capture_or_run(&stream, |c| {
            assert_eq!(c.dependencies()?, []);
            let first = c.record(store(&a, 3))?;
            c.set_dependencies(())?;
            let second = c.record(store(&b, 4))?;
            c.set_dependencies((first, second))?;
            if spoilt {
                c.stream().synchronize()?;
            }
            c.record(add(&a, &b)).map(drop)
        });
        match done.unwrap() {
            Captured::Graph(graph, ()) => {
                assert!(!spoilt);
                assert_eq!(graph.roots().unwrap().len(), 2);
                graph.instantiate().unwrap().launch(&stream).unwrap();
            }
            Captured::Ran((), reason) => assert!(spoilt, "{reason}"),
        }
        assert_eq!(a.to_host(&stream).unwrap(), [7]);
        a.copy_from_host(&stream, &[0]).unwrap();
    }
}
