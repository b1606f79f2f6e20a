//! Streams, captures of other code, and what is left of them.

use std::sync::Arc;

use cuda_graph::cudarc::driver::{CudaStream, sys};
use cuda_graph::{Buffer, Capture, CopyOp, Eager, Graph, Result};

use crate::fixture::{alone, context, store, stream, words};

fn is_free(stream: &Arc<CudaStream>) -> bool {
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
    // SAFETY: the stream is there, and the status a place to write to.
    let asked = unsafe { sys::cuStreamIsCapturing(stream.cu_stream(), &mut status) };
    asked == sys::CUresult::CUDA_SUCCESS
        && status == sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE
}

/// Copies of nothing do the same whoever runs them.
#[test]
#[ignore = "a graph refuses a copy of nothing, with the driver's INVALID_VALUE, and Eager does not"]
fn copies_of_nothing_do_nothing() {
    let stream = stream();
    let (a, b) = (words(&stream, &[1, 2]), words(&stream, &[3, 4]));
    let (no_a, no_b) = (a.slice(1..1).unwrap(), b.slice(1..1).unwrap());
    let Ok(op) = CopyOp::new(&no_a, &no_b) else {
        return;
    };
    let eager = Eager::new(&stream).unwrap().record(op.clone());
    let graph = Graph::record(&context(), |path| path.record(op).map(drop));
    let built = graph
        .and_then(|(graph, ())| graph.instantiate())
        .and_then(|mut exec| exec.launch(&stream));
    assert_eq!(eager.is_ok(), built.is_ok(), "{eager:?}, {built:?}");
    assert_eq!(a.to_host(&stream).unwrap(), [1, 2]);
}

/// The null stream and the thread's own.
#[test]
fn a_stream_that_cannot_be_captured_stays_as_it_is() {
    let context = context();
    for stream in [context.default_stream(), context.per_thread_stream()] {
        if let Ok(capture) = Capture::begin(&stream) {
            drop(capture);
        }
        assert!(is_free(&stream));
    }
}

/// Launches into a stream that a recording holds, or that a block captures.
#[test]
fn a_launch_into_a_recording_is_found() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = Graph::new(&context()).unwrap();
    graph.add(store(&a, 5), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    let mut launched = None;
    let captured = Graph::capture(&stream, |path| {
        launched = Some(exec.launch(&stream).is_ok());
        path.record(store(&a, 6)).map(drop)
    });
    assert!(is_free(&stream));
    // The launch says no, and invalidates the recording.
    assert_eq!((launched, captured.is_err()), (Some(false), true));
    let found = a.to_host(&stream).unwrap()[0];
    assert_eq!(found, 0);
    drop(exec);
    a.to_host(&stream).unwrap();
}

/// A loop's executable launched while its stream is held does not make later launches wait for
/// what never comes.
#[test]
fn loops_launched_into_a_recording_do_not_spoil_the_turns() {
    let _alone = alone();
    let stream = stream();
    let (flag, zero, a) = (
        words(&stream, &[1]),
        words(&stream, &[0]),
        words(&stream, &[0]),
    );
    let make = || -> Result<_> {
        let (graph, ()) = Graph::record(&context(), |path| {
            path.while_nonzero(&flag, |r| {
                r.record(store(&a, 5))?;
                r.record(CopyOp::new(&flag, &zero)?).map(drop)
            })
        })?;
        graph.instantiate()
    };
    let mut exec = make().unwrap();
    let captured = Graph::capture(&stream, |path| {
        let _ = exec.launch(&stream);
        path.record(store(&a, 6)).map(drop)
    });
    drop(captured);
    assert!(is_free(&stream));
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [5]);
    let mut again = make().unwrap();
    let other: Arc<CudaStream> = crate::fixture::stream();
    again.launch(&other).unwrap();
    let _: Vec<u32> = Buffer::to_host(&a, &other).unwrap();
}

/// A held stream's other work, while a recording of another thread goes on. In software alone: a
/// GPU's driver does not lock captures, and crashes sooner or later ([`Graph::capture`] says so).
#[test]
fn work_of_another_thread_on_a_held_stream_is_found_in_software() {
    if !crate::fixture::is_software() {
        return;
    }
    let stream = stream();
    let a = words(&stream, &[0]);
    let mut lost = 0;
    for _ in 0..100 {
        a.copy_from_host(&stream, &[0]).unwrap();
        let (captured, launched) = std::thread::scope(|scope| {
            let (go, wait) = std::sync::mpsc::channel();
            let theirs = stream.clone();
            let thread = scope.spawn(move || {
                let () = wait.recv().unwrap();
                let graph = Graph::new(&context()).unwrap();
                drop(graph);
                // SAFETY: the stream is there; an event of nobody's.
                unsafe {
                    sys::cuMemsetD32Async(0, 0, 0, theirs.cu_stream());
                }
                crate::fixture::function("store");
                // SAFETY: the word lives as long as the test.
                unsafe {
                    cuda_graph::cudarc::driver::result::memset_d8_async(
                        A.load(std::sync::atomic::Ordering::SeqCst),
                        7,
                        4,
                        theirs.cu_stream(),
                    )
                }
                .is_ok()
            });
            A.store(a.address(), std::sync::atomic::Ordering::SeqCst);
            let captured = Graph::capture(&stream, |path| {
                path.record(store(&a, 1))?;
                go.send(()).unwrap();
                for _ in 0..20 {
                    path.record(store(&a, 1))?;
                }
                Ok(())
            });
            (captured.is_ok(), thread.join().unwrap())
        });
        assert!(is_free(&stream));
        let found = a.to_host(&stream).unwrap()[0];
        // Either it ran, or the recording failed, or the call did.
        if launched && captured && found != 0x0707_0707 {
            lost += 1;
        }
    }
    assert_eq!(lost, 0);
}

static A: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
