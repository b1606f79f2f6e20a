//! What recorders and conditions are refused because it would be used where or when it must not be.

use std::sync::Arc;

use cuda_graph::testing::with_driver_version;
use cuda_graph::{
    Capture, Captured, Eager, Error, FillOp, Graph, HostOp, IfOp, InstantiateFailure, KernelOp,
    NodeKind, Path,
};

use super::{read, word};
use crate::fixture::{Watch, add, assert_soon, context, store, stream};

#[test]
fn an_eager_recorder_does_not_record_into_a_capture() {
    let stream = stream();
    let flag = word(&stream, 0);
    let mut eager = Eager::new(&stream).unwrap();
    let capture = Capture::begin(&stream).unwrap();
    let (watch, watched) = Watch::new();
    let op = HostOp::new(move || {
        let _ = &watched;
    });
    let refused = eager.record(op);
    let begun = capture.begun();
    assert!(
        matches!(&refused, Err(Error::AlreadyCapturing { begun: Some(at) }) if *at == begun),
        "{refused:?}"
    );
    assert!(watch.is_dropped());
    let refused = eager.while_nonzero(&flag, |_| Ok(()));
    assert!(
        matches!(refused, Err(Error::AlreadyCapturing { .. })),
        "{refused:?}"
    );
    // The capture knows nothing of it.
    assert!(capture.end().unwrap().nodes().unwrap().is_empty());
    eager.record(store(&flag, 3)).unwrap();
    drop(eager);
    assert_eq!(read(&stream, &flag), 3);
}

#[test]
fn an_eager_recorder_does_not_take_a_stream_that_means_another_elsewhere() {
    let refused = Eager::new(&context().per_thread_stream());
    assert!(
        matches!(&refused, Err(Error::InvalidOperation { why }) if why.contains("each thread")),
        "{refused:?}"
    );
    Eager::new(&context().default_stream()).unwrap();
}

#[test]
fn what_is_kept_stays_while_flags_are_read() {
    let stream = stream();
    let flag = word(&stream, 2);
    let minus = word(&stream, u32::MAX);
    let (watch, watched) = Watch::new();
    let mut eager = Eager::new(&stream).unwrap();
    cuda_graph::Recorder::keep(&mut eager, Arc::new(watched)).unwrap();
    eager
        .while_nonzero(&flag, |r| {
            assert!(!watch.is_dropped());
            r.record(add(&flag, &minus)).map(drop)
        })
        .unwrap();
    assert!(!watch.is_dropped());
    drop(eager);
    assert_soon(|| watch.is_dropped(), "what is kept leaks");
}

#[test]
fn conditions_stay_in_their_graph() {
    let stream = stream();
    let flag = word(&stream, 0);
    let (graph, other) = (
        Graph::new(&context()).unwrap(),
        Graph::new(&context()).unwrap(),
    );
    Path::new(&graph)
        .while_nonzero(&flag, |r| r.record(store(&flag, 0)).map(drop))
        .unwrap();
    let setter = graph
        .nodes()
        .unwrap()
        .into_iter()
        .find(|node| node.kind() == NodeKind::Kernel)
        .unwrap();
    let op = graph.any_op(setter).unwrap();
    let node = other.add(store(&flag, 1), ()).unwrap();
    let mut exec = other.instantiate().unwrap();
    let kernel: KernelOp = graph.op(setter.typed().unwrap()).unwrap();
    for (what, refused) in [
        ("add", other.add(op.clone(), ()).map(drop)),
        ("update", other.update(node, kernel.clone())),
        ("update an executable", exec.update(node, kernel)),
        (
            "a node",
            other
                .add(IfOp::new(&graph.condition(Some(1)).unwrap()), ())
                .map(drop),
        ),
    ] {
        assert!(
            matches!(refused, Err(Error::ForeignCondition)),
            "{what}: {refused:?}"
        );
    }
    let refused = Eager::new(&stream).unwrap().record(op);
    assert!(
        matches!(&refused, Err(Error::InvalidOperation { why }) if why.contains("sets a condition")),
        "{refused:?}"
    );
    exec.launch(&stream).unwrap();
    assert_eq!(read(&stream, &flag), 1);
}

#[test]
fn half_a_loop_is_not_run() {
    let stream = stream();
    let (flag, a) = (word(&stream, 1), word(&stream, 0));
    let graph = Graph::new(&context()).unwrap();
    graph.add(store(&a, 1), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    let mut asked = 0;
    Path::new(&graph)
        .while_nonzero(&flag, |r| {
            for refused in [graph.instantiate().map(drop), exec.update_from(&graph)] {
                asked += 1;
                assert!(
                    matches!(&refused, Err(Error::InvalidOperation { why }) if why.contains("half a loop")),
                    "{refused:?}"
                );
            }
            r.record(store(&flag, 0)).map(drop)
        })
        .unwrap();
    assert_eq!(asked, 2);
    // A graph with conditional nodes has one executable at a time.
    let second = graph.instantiate();
    assert!(
        matches!(
            second,
            Err(Error::Instantiate {
                reason: InstantiateFailure::HasExecutable,
                ..
            })
        ),
        "{second:?}"
    );
    drop(exec);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(read(&stream, &flag), 0);

    // While a graph is captured no node of it goes: what fails meanwhile stays half, and is not run either.
    let graph = Graph::new(&context()).unwrap();
    let capture = Capture::begin_into(&stream, &graph, ()).unwrap();
    let failing = Path::new(&graph).while_nonzero(&flag, |_| {
        Err(Error::InvalidOperation {
            why: "as meant".into(),
        })
    });
    assert!(matches!(failing, Err(Error::InvalidOperation { .. })));
    capture.end().unwrap();
    if !graph.nodes().unwrap().is_empty() {
        graph.instantiate().unwrap_err();
    }
}

#[test]
fn a_loop_that_failed_in_a_capture_makes_room_for_another() {
    let stream = stream();
    let flag = word(&stream, 1);
    let (graph, ()) = Graph::capture(&stream, |c| {
        let failed = c.while_nonzero(&flag, |_| {
            Err(Error::InvalidOperation {
                why: "as meant".into(),
            })
        });
        assert!(matches!(failed, Err(Error::InvalidOperation { .. })));
        c.record(FillOp::new(&flag, 2u32)?).map(drop)
    })
    .unwrap();
    assert_eq!(graph.nodes().unwrap().len(), 1);
    Path::new(&graph)
        .if_nonzero(&flag, |r| r.record(store(&flag, 5)).map(drop))
        .unwrap();
    graph.instantiate().unwrap();
}

#[test]
fn a_step_that_the_driver_is_too_old_for_runs_all_the_same() {
    let stream = stream();
    let (flag, a) = (word(&stream, 1), word(&stream, 0));
    // Made before: kernels take a newer driver too.
    let op = store(&a, 1);
    let ran = with_driver_version(12_020, || {
        Graph::capture_or_run(&stream, |c| {
            c.if_nonzero(&flag, |r| r.record(op.clone()).map(drop))
        })
    });
    assert!(
        matches!(&ran, Ok(Captured::Ran((), Error::Unsupported { .. }))),
        "{ran:?}"
    );
    assert_eq!(read(&stream, &a), 1);
}
