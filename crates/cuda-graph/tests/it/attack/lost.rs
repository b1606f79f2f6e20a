//! Work that was recorded and is not there.

use std::sync::Arc;

use cuda_graph::cudarc::driver::{CudaStream, PushKernelArg};
use cuda_graph::testing::with_failing_call;
use cuda_graph::{Buffer, Capture, Error, FillOp, Graph, Path, Result};

use crate::fixture::{context, function, one, store, stream, words};

fn foreign_store(stream: &Arc<CudaStream>, to: &Buffer<u32>, value: u32) -> Result<()> {
    let (function, to) = (function("store"), to.address());
    let mut launch = stream.launch_builder(&function);
    launch.arg(&to).arg(&value);
    // SAFETY: `store` writes one word, which the tests keep.
    unsafe { launch.launch(one()) }?;
    Ok(())
}

fn read(stream: &Arc<CudaStream>, word: &Buffer<u32>) -> u32 {
    word.to_host(stream).unwrap()[0]
}

/// A driver call fails after a foreign block that is all there is so far, and the operation is
/// recorded again.
#[test]
fn a_block_is_not_lost_when_the_operation_behind_it_fails() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let mut lost = Vec::new();
    for nth in 0.. {
        a.copy_from_host(&stream, &[0]).unwrap();
        let mut fired = false;
        let captured = Graph::capture(&stream, |path| {
            // SAFETY: the word lives as long as the test.
            unsafe { path.foreign(|stream| foreign_store(stream, &a, 5)) }?;
            let op = store(&b, 6);
            let (first, was) = with_failing_call(nth, || path.record(op.clone()));
            fired = was;
            if first.is_err() {
                path.record(store(&b, 6))?;
            }
            Ok(())
        });
        if let Ok((graph, ())) = captured {
            graph.instantiate().unwrap().launch(&stream).unwrap();
            if read(&stream, &a) != 5 {
                lost.push(nth);
            }
        }
        if !fired {
            break;
        }
    }
    assert!(lost.is_empty(), "lost when call {lost:?} failed");
}

/// The same with a second block behind the first.
#[test]
fn a_block_is_not_lost_when_the_block_behind_it_fails() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let mut lost = Vec::new();
    for nth in 0.. {
        a.copy_from_host(&stream, &[0]).unwrap();
        b.copy_from_host(&stream, &[0]).unwrap();
        let mut fired = false;
        let captured = Graph::capture(&stream, |path| {
            // SAFETY: the words live as long as the test.
            unsafe {
                path.foreign(|stream| foreign_store(stream, &a, 5))?;
                let second = |path: &mut Path| path.foreign(|stream| foreign_store(stream, &b, 6));
                let (first, was) = with_failing_call(nth, || second(path));
                fired = was;
                if first.is_err() {
                    second(path)?;
                }
            }
            Ok(())
        });
        if let Ok((graph, ())) = captured {
            graph.instantiate().unwrap().launch(&stream).unwrap();
            let found = (read(&stream, &a), read(&stream, &b));
            if found != (5, 6) {
                lost.push((nth, found));
            }
        }
        if !fired {
            break;
        }
    }
    assert!(lost.is_empty(), "lost: {lost:?}");
}

/// A block that is neither ended nor dropped takes what comes behind it along.
#[test]
fn a_forgotten_block_does_not_swallow_work() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let captured = Graph::capture(&stream, |path| {
        // SAFETY: the words live as long as the test.
        unsafe {
            let block = path.begin_foreign()?;
            foreign_store(block.stream(), &a, 5)?;
            std::mem::forget(block);
        }
        path.record(store(&b, 6))?;
        foreign_store(&stream, &a, 7)?;
        path.record(store(&b, 7)).map(drop)
    });
    assert!(captured.is_err(), "{captured:?}");
    // The stream is free again.
    a.copy_from_host(&stream, &[1]).unwrap();
}

/// Branches of a split share the stream: a block of one takes no work of the other.
#[test]
fn captures_are_left_in_any_order_and_the_stream_is_free() {
    let stream = stream();
    let a = words(&stream, &[0]);
    for order in 0..6 {
        let capture = Capture::begin(&stream).unwrap();
        let (joint, [mut left, mut right]) = capture.split::<2>().unwrap();
        left.record(store(&a, 1)).unwrap();
        {
            // SAFETY: the word lives as long as the test.
            let block = unsafe { right.begin_foreign() }.unwrap();
            foreign_store(block.stream(), &a, 2).unwrap();
            assert!(left.record(store(&a, 3)).is_ok());
            // SAFETY: as above.
            assert!(unsafe { left.begin_foreign() }.is_err());
            match order % 3 {
                0 => drop(block),
                1 => block.end().unwrap(),
                _ => {
                    drop(joint);
                    assert!(block.end().is_err());
                    assert!(left.record(store(&a, 4)).is_err());
                    a.copy_from_host(&stream, &[1]).unwrap();
                    continue;
                }
            }
        }
        if order < 3 {
            drop(left);
            drop(joint);
            assert!(right.record(store(&a, 4)).is_err());
            drop(right);
        } else {
            drop(joint);
            drop(right);
        }
        a.copy_from_host(&stream, &[1]).unwrap();
    }
}

/// Paths exchanged in the closures of two recordings.
#[test]
fn recordings_whose_paths_are_exchanged() {
    let (one, two) = (stream(), stream());
    let (a, b) = (words(&one, &[0]), words(&two, &[0]));
    let result = Graph::capture(&one, |outer| {
        outer.record(store(&a, 1))?;
        let inner = Graph::capture(&two, |inner| {
            inner.record(store(&b, 2))?;
            std::mem::swap(outer, inner);
            inner.record(store(&a, 3))?;
            outer.record(store(&b, 4)).map(drop)
        })?;
        Ok(inner.0)
    });
    let (graph, inner) = result.unwrap();
    inner.instantiate().unwrap().launch(&one).unwrap();
    assert_eq!((read(&one, &a), read(&two, &b)), (3, 0));
    graph.instantiate().unwrap().launch(&two).unwrap();
    assert_eq!((read(&one, &a), read(&two, &b)), (3, 4));
}

/// A path that outlives its recording.
#[test]
fn a_path_taken_out_of_its_recording() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let other = Graph::new(&context()).unwrap();
    let mut kept = None;
    let (graph, ()) = Graph::capture(&stream, |path| {
        path.record(store(&a, 1))?;
        kept = Some(std::mem::replace(path, Path::new(&other)));
        Ok(())
    })
    .unwrap();
    assert_eq!(graph.nodes().unwrap(), []);
    let mut kept = kept.unwrap();
    kept.record(store(&a, 2)).unwrap();
    assert!(matches!(
        a.copy_from_host(&stream, &[0]),
        Err(Error::AlreadyCapturing { .. })
    ));
    drop(kept);
    a.copy_from_host(&stream, &[0]).unwrap();
}

/// Fills of nothing do the same whoever runs them.
#[test]
#[ignore = "a graph refuses a fill of nothing, with the driver's INVALID_VALUE, and Eager does not"]
fn fills_of_nothing_do_nothing() {
    let stream = stream();
    let a = words(&stream, &[1, 2, 3, 4]);
    let empty = a.slice(2..2).unwrap();
    let ops = [
        FillOp::new(&empty, 7u32),
        FillOp::by_kernel(&empty, 7u32),
        FillOp::rows(&a, 7u32, 0, 3, 4),
        FillOp::rows(&a, 7u32, 1, 0, 4),
    ];
    for (index, op) in ops.into_iter().enumerate() {
        let Ok(op) = op else { continue };
        let eager = cuda_graph::Eager::new(&stream).unwrap().record(op.clone());
        let graph = Graph::record(&context(), |path| path.record(op).map(drop));
        let built = graph
            .and_then(|(graph, ())| graph.instantiate())
            .and_then(|mut exec| exec.launch(&stream));
        assert_eq!(
            eager.is_ok(),
            built.is_ok(),
            "{index}: {eager:?}, {built:?}"
        );
        assert_eq!(a.to_host(&stream).unwrap(), [1, 2, 3, 4]);
    }
}
