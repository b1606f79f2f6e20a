//! What is recorded, by this library and by other code, in one line and in branches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_graph::{
    Buffer, Capture, CaptureInfo, CaptureStatus, Captured, ChildOp, EmptyOp, Error, FillOp, Graph,
    HostOp, NodeKind, Path, RecordEventOp, Recorder, Result, WaitEventOp,
};

use super::scene::{Held, foreign, launch_add, launch_store};
use crate::fixture::{Watch, add, assert_soon, context, store, stream, words};

fn kinds(graph: &Graph) -> Vec<NodeKind> {
    let nodes = graph.nodes().unwrap();
    nodes.iter().map(|node| node.kind()).collect()
}

#[test]
fn operations_run_in_order_and_are_held() {
    let stream = stream();
    for with_stream in [false, true] {
        let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
        let record = |path: &mut Path| {
            assert_eq!(path.has_stream(), with_stream);
            let node = path.record(store(&a, 3))?;
            path.record(store(&b, 4))?;
            path.record(add(&a, &b))?;
            Ok(node)
        };
        let (graph, node) = match with_stream {
            true => Graph::capture(&stream, record),
            false => Graph::record(&context(), record),
        }
        .unwrap();
        drop(b);
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
}

#[test]
fn foreign_work_needs_a_stream() {
    let failed = Graph::record(&context(), |path| foreign(path, |_| Ok(())));
    assert!(matches!(failed, Err(Error::NoStream)), "{failed:?}");
}

#[test]
fn foreign_work_is_one_node_between_others_and_all_there_is_is_the_graph() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[5]));
    let work = |path: &mut Path| {
        foreign(path, |stream| {
            launch_store(stream, &a, 1)?;
            launch_add(stream, &a, &b)
        })
    };
    let (graph, ()) = Graph::capture(&stream, |path| {
        path.record(store(&b, 2))?;
        foreign(path, |_| Ok(()))?;
        work(path)?;
        path.record(add(&b, &a)).map(drop)
    })
    .unwrap();
    use NodeKind::{Child, Kernel};
    assert_eq!(kinds(&graph), [Kernel, Child, Kernel]);
    assert_eq!(graph.edges().unwrap().len(), 2);
    let child = graph.child(graph.nodes().unwrap()[1].typed().unwrap());
    assert_eq!(kinds(&child.unwrap()), [Kernel, Kernel]);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [3]);
    assert_eq!(b.to_host(&stream).unwrap(), [5]);

    let (held, watched) = Watch::new();
    let (graph, ()) = Graph::capture(&stream, |path| {
        path.keep(Arc::new(Held(watched)))?;
        work(path)
    })
    .unwrap();
    assert_eq!(kinds(&graph), [Kernel, Kernel]);
    assert!(!held.is_dropped(), "the whole graph keeps what was kept");
    drop(graph);
    assert_soon(|| held.is_dropped(), "the owner leaks");

    // More behind it, and it is a node.
    let (graph, ()) = Graph::capture(&stream, |path| {
        work(path)?;
        work(path)
    })
    .unwrap();
    assert_eq!(kinds(&graph), [Child, Child]);
    let (graph, ()) = Graph::capture(&stream, |path| {
        work(path)?;
        assert_eq!(path.ends()?.len(), 1);
        Ok(())
    })
    .unwrap();
    assert_eq!(kinds(&graph), [Child]);
    let (graph, ()) = Graph::capture(&stream, |path| foreign(path, |_| Ok(()))).unwrap();
    assert_eq!(kinds(&graph), []);
}

#[test]
fn branches_start_together_and_are_waited_for() {
    let stream = stream();
    let buffers: Vec<_> = (0..4).map(|_| words(&stream, &[0])).collect();
    let sum = words(&stream, &[0]);
    let (graph, ()) = Graph::capture(&stream, |path| {
        let first = path.record(EmptyOp::new())?;
        path.parallel(&mut [
            &mut |r| r.record(store(&buffers[0], 1)).map(drop),
            &mut |r| {
                r.record(store(&buffers[1], 2))?;
                r.parallel(&mut [
                    &mut |r| r.record(add(&buffers[1], &buffers[1])).map(drop),
                    &mut |r| r.record(store(&buffers[2], 8)).map(drop),
                ])
            },
            // SAFETY: the buffers outlive the graph.
            &mut |r| unsafe { r.foreign(|stream| launch_store(stream, &buffers[3], 16)) },
            &mut |_| Ok(()),
        ])?;
        let ends = path.ends()?;
        assert_eq!(ends.len(), 4, "{ends:?}");
        assert!(!ends.contains(&first.id()));
        for buffer in &buffers {
            path.record(add(&sum, buffer))?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(graph.roots().unwrap().len(), 1);
    assert_eq!(
        graph
            .successors(graph.roots().unwrap()[0])
            .list()
            .unwrap()
            .len(),
        3
    );
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(sum.to_host(&stream).unwrap(), [29]);
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
    // SAFETY: the buffers outlive the graph.
    let block = unsafe { one.begin_foreign() }.unwrap();
    launch_store(block.stream(), &b, 2).unwrap();
    block.end().unwrap();
    three.record(EmptyOp::new()).unwrap();
    let right = inner.join([one, two, three]).unwrap();
    let mut capture = joint.join([left, right]).unwrap();
    capture.record(add(&a, &b)).unwrap();
    // A block that is dropped records nothing.
    // SAFETY: as above.
    let block = unsafe { capture.begin_foreign() }.unwrap();
    launch_store(block.stream(), &a, 100).unwrap();
    drop(block);
    let graph = capture.end().unwrap();
    assert_eq!(graph.nodes().unwrap().len(), 5);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [3]);
}

#[test]
fn a_path_goes_on_after_chosen_nodes() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let (graph, ()) = Graph::capture(&stream, |path| {
        assert_eq!(path.ends()?, []);
        let first = path.record(store(&a, 3))?;
        path.go_on_after(())?;
        let second = path.record(store(&b, 4))?;
        path.go_on_after((first, second))?;
        assert_eq!(path.ends()?, [first.id(), second.id()]);
        foreign(path, |stream| launch_add(stream, &a, &b))
    })
    .unwrap();
    assert_eq!(graph.roots().unwrap().len(), 2);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [7]);
}

#[test]
fn owners_are_kept_until_the_graph_is_gone() {
    let stream = stream();
    let (watch, watched) = Watch::new();
    let (graph, ()) = Graph::capture(&stream, |path| {
        path.keep(Arc::new(Held(watched)))?;
        path.record(HostOp::new(|| {})).map(drop)
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
fn what_a_stream_is_in_can_be_read() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let none = CaptureInfo::of(&stream).unwrap();
    assert_eq!(none.status, CaptureStatus::None);
    assert!(!none.is_capturing() && none.graph.is_null());
    Graph::capture(&stream, |path| {
        let held = CaptureInfo::of(&stream)?;
        assert_eq!(held.status, CaptureStatus::Active);
        path.record(store(&a, 1))?;
        assert_eq!(CaptureInfo::of(&stream)?.dependencies, held.dependencies);
        foreign(path, |inside| {
            assert_eq!(inside.cu_stream(), stream.cu_stream());
            let first = CaptureInfo::of(inside)?;
            assert!(first.is_capturing() && first.id != held.id && first.graph != held.graph);
            launch_store(inside, &a, 1)?;
            let second = CaptureInfo::of(inside)?;
            assert_eq!((second.id, second.graph), (first.id, first.graph));
            assert_eq!(second.dependencies.len(), 1);
            Ok(())
        })?;
        let held = CaptureInfo::of(&stream)?;
        assert!(held.is_capturing() && held.dependencies.is_empty());
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
    let ten = cuda_graph::HostOp::new(move || {
        counted.fetch_add(10, Ordering::Relaxed);
    });
    inner.add(ten, ()).unwrap();
    let event = Arc::new(context().new_event(None).unwrap());
    let a = words(&stream, &[0; 2]);
    let (graph, ()) = Graph::capture(&stream, |path| {
        let counted = calls.clone();
        path.record(HostOp::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        }))?;
        path.record(ChildOp::new(&inner))?;
        path.record(FillOp::new(&a, 6u32)?)?;
        path.record(RecordEventOp::new(&event))?;
        path.record(WaitEventOp::new(&event))?;
        Ok(())
    })
    .unwrap();
    use NodeKind::{Child, Fill, Host, RecordEvent, WaitEvent};
    assert_eq!(kinds(&graph), [Host, Child, Fill, RecordEvent, WaitEvent]);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [6, 6]);
    assert_eq!(calls.load(Ordering::Relaxed), 11);
}

#[test]
fn memory_is_not_read_or_written_while_its_stream_is_held() {
    let stream = stream();
    let a = words(&stream, &[1]);
    let refused = |result: Result<()>| {
        assert!(
            matches!(&result, Err(Error::AlreadyCapturing { begun: Some(at) }) if at.file() == file!()),
            "{result:?}"
        );
    };
    let all = || {
        refused(Buffer::<u32>::zeroed(&stream, 1).map(drop));
        refused(Buffer::from_host(&stream, &[1u32]).map(drop));
        refused(a.to_host(&stream).map(drop));
        refused(a.copy_from_host(&stream, &[2]));
    };
    let (graph, ()) = Graph::capture(&stream, |path| {
        all();
        foreign(path, |_| {
            all();
            Ok(())
        })?;
        path.record(add(&a, &a)).map(drop)
    })
    .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [2]);
}

#[test]
fn a_step_that_cannot_be_recorded_runs() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let step = |r: &mut dyn Recorder| {
        r.record(store(&a, 3))?;
        r.parallel(&mut [&mut |r| r.record(store(&b, 4)).map(drop)])?;
        // Not allowed while the stream is captured.
        // SAFETY: nothing is used.
        unsafe { r.foreign(|stream| Ok(stream.synchronize()?)) }?;
        r.record(add(&a, &b)).map(drop)
    };
    let done = Graph::capture_or_run(&stream, step).unwrap();
    let Captured::Ran((), Error::CaptureInvalidated(why)) = done else {
        panic!("{done:?}");
    };
    assert!(why.to_string().contains("recording.rs"), "{why}");
    assert_eq!(a.to_host(&stream).unwrap(), [7]);

    let done = Graph::capture_or_run(&stream, |r| r.record(store(&a, 5)).map(drop)).unwrap();
    assert!(matches!(done, Captured::Graph(..)), "{done:?}");
    assert_eq!(a.to_host(&stream).unwrap(), [7]);

    // An error of the step's own does not have it run.
    let mut calls = 0;
    let failed = Graph::capture_or_run(&stream, |r| {
        calls += 1;
        r.record(store(&a, 5))?;
        Err::<(), _>(Error::other(std::io::Error::other("own")))
    });
    assert!(matches!(failed, Err(Error::Other(_))), "{failed:?}");
    assert_eq!((calls, a.to_host(&stream).unwrap()), (1, vec![7]));
}
