//! What recorders and conditions are refused because it would be used where or when it must not be.

use std::sync::Arc;

use cuda_graph::cudarc::driver::PushKernelArg;
use cuda_graph::testing::with_driver_version;
use cuda_graph::{
    Body, Capture, Captured, Eager, Error, Graph, HostOp, IfOp, KernelOp, NodeKind, NodeName, Path,
    Recorder, Result,
};

use super::{read, word};
use crate::fixture::{Watch, add, assert_soon, context, function, one, store, stream};

#[test]
fn an_eager_recorder_does_not_record_into_a_capture() {
    let stream = stream();
    let flag = word(&stream, 0);
    let mut eager = Eager::new(&stream).unwrap();
    let line = line!() + 1;
    let capture = Capture::begin(&stream).unwrap();
    let (watch, watched) = Watch::new();
    let op = HostOp::new(move || {
        let _ = &watched;
    });
    let refused = eager.record(op);
    assert!(
        matches!(refused, Err(Error::AlreadyCapturing { begun: Some(at) }) if at.line() == line),
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
        matches!(refused, Err(Error::PerThreadStream)),
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
        matches!(refused, Err(Error::ConditionOutsideGraph)),
        "{refused:?}"
    );
    exec.launch(&stream).unwrap();
    assert_eq!(read(&stream, &flag), 1);
}

#[test]
fn a_loop_is_nodes_when_it_is_whole() {
    let stream = stream();
    let (flag, a) = (word(&stream, 1), word(&stream, 0));
    let graph = Graph::new(&context()).unwrap();
    let first = graph.add(store(&a, 1), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    Path::new(&graph)
        .while_nonzero(&flag, |r| {
            r.record(store(&flag, 0))?;
            r.if_nonzero(&flag, |r| {
                assert_eq!(graph.nodes()?, [first.id()]);
                exec.update_in_place(&graph)?;
                graph.instantiate()?;
                r.record(store(&flag, 0)).map(drop)
            })
        })
        .unwrap();
    drop(exec);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(read(&stream, &flag), 0);
}

/// A body has no stream but that of its foreign work: what else reaches the recording's stream is
/// found before the next operation, at any depth.
#[test]
fn the_stream_is_not_used_in_bodies_and_branches() {
    type Inside<'a> = dyn Fn(&mut dyn Recorder, &mut Body<'_>) -> Result<()> + 'a;
    let stream = stream();
    let (flag, a) = (word(&stream, 1), word(&stream, 0));
    let step = store(&a, 2).label("after");
    let places: [&Inside<'_>; 4] = [
        &|r, body| r.while_nonzero(&flag, body),
        &|r, body| r.parallel(&mut [&mut |_| Ok(()), body]),
        &|r, body| r.if_nonzero(&flag, |r| r.do_while_nonzero(&flag, &mut *body)),
        &|r, body| r.if_nonzero(&flag, |r| r.parallel(&mut [&mut *body])),
    ];
    for (at, place) in places.iter().enumerate() {
        // Told at once, told by nobody, told at the end of the body.
        for how in 0..3 {
            let what = format!("place {at}, {how}");
            let mut body = |r: &mut dyn Recorder| {
                r.record(store(&a, 1).label("before"))?;
                let (to, value) = (a.address(), 3u32);
                let stores = function("store");
                let mut launch = stream.launch_builder(&stores);
                launch.arg(&to).arg(&value);
                // SAFETY: it is not run.
                unsafe { launch.launch(one()) }?;
                match how {
                    0 => r.record(step.clone()).map(drop),
                    1 => {
                        r.record(step.clone()).unwrap_err();
                        Ok(())
                    }
                    _ => Ok(()),
                }
            };
            let captured = Graph::capture(&stream, |c| {
                place(c, &mut body)?;
                c.record(store(&a, 4)).map(drop)
            });
            let Err(Error::StrayWork(stray)) = captured else {
                panic!("{what}: {captured:?}");
            };
            assert_eq!(stray.found.len(), 1, "{what}: {stray}");
            let label = |name: &Option<NodeName>| name.as_ref().and_then(|n| n.label.clone());
            assert_eq!(label(&stray.after).as_deref(), Some("before"), "{what}");
            if how == 0 {
                assert_eq!(label(&stray.before).as_deref(), Some("after"), "{what}");
            }
            assert_eq!(read(&stream, &a), 0, "{what}");
        }
    }
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
