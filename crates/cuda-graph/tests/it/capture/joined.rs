//! Captures that other code began, joined.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::cudarc::driver::sys::{self, CUresult, CUstreamCaptureMode};
use cuda_graph::{EmptyOp, Error, Graph, NodeKind, Path, Recorder, Result};

use super::guards::mark;
use super::scene::{Scene, foreign, launch_add, launch_store};
use crate::exit::{Exit, How};
use crate::fixture::{alone, store, words};

/// Other code captures what `work` does, and gets a graph.
fn other_code<T>(scene: &Scene, work: impl FnOnce(&Arc<CudaStream>) -> T) -> (T, Graph) {
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    scene.stream.begin_capture(mode).unwrap();
    let value = work(&scene.stream);
    let mut raw = std::ptr::null_mut();
    // SAFETY: the stream is alive, and the graph is this test's.
    let graph = unsafe {
        let answer = sys::cuStreamEndCapture(scene.stream.cu_stream(), &mut raw);
        assert_eq!(answer, CUresult::CUDA_SUCCESS);
        Graph::from_raw(raw, &scene.context)
    };
    (value, graph)
}

fn join<T>(stream: &Arc<CudaStream>, record: impl FnOnce(&mut Path) -> Result<T>) -> Result<T> {
    // SAFETY: nothing else uses the capture meanwhile.
    unsafe { Graph::record_in_capture(stream, record) }
}

#[test]
fn operations_are_recorded_between_those_of_other_code() {
    let _alone = alone();
    let scene = Scene::new();
    let (a, b) = (words(&scene.stream, &[0]), words(&scene.stream, &[0]));
    let (recorded, graph) = other_code(&scene, |stream| {
        launch_store(stream, &a, 1)?;
        join(stream, |path| {
            assert!(path.has_stream());
            assert_eq!(path.ends()?.len(), 1);
            mark(&scene, path)?;
            path.record(crate::fixture::add(&a, &a))?;
            // Foreign work goes straight into the capture.
            foreign(path, |stream| launch_store(stream, &b, 3))?;
            path.parallel(&mut [
                &mut |r| r.record(crate::fixture::add(&a, &b)).map(drop),
                &mut |r| r.record(EmptyOp::new()).map(drop),
            ])?;
            path.if_nonzero(&b, |r| r.record(crate::fixture::add(&a, &b)).map(drop))
        })?;
        launch_add(stream, &b, &a)
    });
    recorded.unwrap();
    let edges = graph.edges().unwrap().len();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&scene.stream).unwrap();
    assert_eq!(a.to_host(&scene.stream).unwrap(), [8]);
    assert_eq!(b.to_host(&scene.stream).unwrap(), [11]);
    // A store, two calls' worth of `mark`, an add, a store, two branches, a setter, an if, an add.
    let kinds: Vec<_> = graph
        .nodes()
        .unwrap()
        .iter()
        .map(|node| node.kind())
        .collect();
    assert_eq!((kinds.len(), edges), (9, 9), "{kinds:?}");
    assert_eq!(
        kinds
            .iter()
            .filter(|kind| **kind == NodeKind::Conditional)
            .count(),
        1
    );
    drop((graph, exec));
    scene.is_clean("joined");
}

/// What was recorded before an error or a panic stays, with what it uses.
#[test]
fn what_was_recorded_stays_however_it_is_left() {
    for how in [How::Error, How::Panic] {
        for at in 0..4 {
            let what = format!("left at {at} by {how:?}");
            let scene = Scene::new();
            let exit = Exit::new(at, how);
            let (_, graph) = other_code(&scene, |stream| {
                let program = || {
                    join(stream, |path| {
                        exit.here()?;
                        path.record(store(&scene.a, 10))?;
                        mark(&scene, path)?;
                        exit.here()?;
                        path.parallel(&mut [&mut |r| {
                            mark(&scene, r)?;
                            exit.here()
                        }])?;
                        exit.here()
                    })
                };
                let result = catch_unwind(AssertUnwindSafe(program));
                assert!(!matches!(result, Ok(Ok(()))), "{what}");
            });
            let nodes = [0, 2, 3, 3][at as usize];
            assert_eq!(graph.nodes().unwrap().len(), nodes, "{what}");
            graph.instantiate().unwrap().launch(&scene.stream).unwrap();
            let stored = if at == 0 { 0 } else { 10 };
            assert_eq!(scene.a.to_host(&scene.stream).unwrap(), [stored], "{what}");
            drop(graph);
            scene.is_clean(&what);
        }
    }
}

#[test]
fn only_what_is_captured_is_joined() {
    let scene = Scene::new();
    let failed = join(&scene.stream, |_| Ok(()));
    assert!(matches!(failed, Err(Error::NotCapturing)), "{failed:?}");
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    let end = || {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the stream is alive; nobody uses the graph any more.
        unsafe {
            sys::cuStreamEndCapture(scene.stream.cu_stream(), &mut raw);
            if !raw.is_null() {
                sys::cuGraphDestroy(raw);
            }
        }
    };
    scene.stream.begin_capture(mode).unwrap();
    // It is invalidated meanwhile.
    let failed = join(&scene.stream, |path| {
        path.record(EmptyOp::new())?;
        scene.stream.synchronize().unwrap_err();
        path.record(EmptyOp::new())
    });
    assert!(matches!(failed, Err(Error::NotCapturing)), "{failed:?}");
    let failed = join(&scene.stream, |_| Ok(()));
    assert!(matches!(failed, Err(Error::NotCapturing)), "{failed:?}");
    end();
    scene.is_clean("invalidated");
}
