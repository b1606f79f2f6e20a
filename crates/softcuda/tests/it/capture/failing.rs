//! Captures that fail, in every way, at any point and in any stream of theirs: afterwards all
//! streams take and finish new work.

use super::*;

/// A call that invalidates.
type Spoiler = (&'static str, Box<dyn Fn() -> Answer>);

/// What invalidates a capture, by a stream that takes part in it and an event recorded there.
unsafe fn spoilers(stream: Handle, captured: Handle) -> Vec<Spoiler> {
    let (empty, exec, managed) = (function(c"empty"), instantiate(graph()), managed(64));
    let outside = event();
    cuEventRecord(outside, super::stream()).must();
    vec![
        ("query", Box::new(move || cuStreamQuery(stream))),
        ("synchronize", Box::new(move || cuStreamSynchronize(stream))),
        ("context", Box::new(|| cuCtxSynchronize())),
        ("flags", Box::new(move || cuStreamGetFlags(stream, &mut 0))),
        ("id", Box::new(move || cuStreamGetId(stream, &mut 0))),
        (
            "isolation",
            Box::new(move || cuStreamWaitEvent(stream, outside, 0)),
        ),
        ("event", Box::new(move || cuEventQuery(captured))),
        ("event_wait", Box::new(move || cuEventSynchronize(captured))),
        ("graph", Box::new(move || cuGraphLaunch(exec, stream))),
        ("upload", Box::new(move || cuGraphUpload(exec, stream))),
        (
            "no_blocks",
            Box::new(move || launch(empty, 0, 1, stream, &mut [])),
        ),
        (
            "attach",
            Box::new(move || cuStreamAttachMemAsync(stream, managed, 0, 1)),
        ),
        (
            "prefetch",
            Box::new(move || cuMemPrefetchAsync(managed, 64, 0, stream)),
        ),
        (
            "legacy",
            Box::new(move || cuStreamWaitEvent(0, captured, 0)),
        ),
    ]
}

/// On the stream of the capture, on a fork, on a fork of a fork.
#[test]
fn whatever_invalidates_leaves_streams_of_use() {
    alone(|| unsafe {
        context();
        let empty = function(c"empty");
        let step = |stream| launch(empty, 1, 1, stream, &mut []).must();
        let count = spoilers(0, 0).len();
        for (which, at) in (0..count).flat_map(|which| (0..3).map(move |at| (which, at))) {
            let streams = [stream(), stream(), stream()];
            let captured = event();
            let (name, spoil) = spoilers(streams[at], captured).swap_remove(which);
            begin(streams[0], RELAXED);
            step(streams[0]);
            order(streams[0], streams[1]);
            step(streams[1]);
            order(streams[1], streams[2]);
            cuEventRecord(captured, streams[2]).must();
            assert_ne!(spoil().code, 0, "{name}");
            for stream in streams {
                assert_eq!(status(stream), INVALIDATED_STATUS, "{name} at {at}");
                let again = cuStreamBeginCapture_v2(stream, RELAXED);
                assert_eq!(again.code, ILLEGAL_STATE);
                let answer = launch(empty, 1, 1, stream, &mut []);
                assert_eq!(answer.code, INVALIDATED, "{name} at {at}");
            }
            assert_eq!(end_failed(streams[0]), INVALIDATED, "{name} at {at}");
            for stream in streams {
                assert!(is_of_use(stream), "{name} at {at}");
            }
            // And for another capture.
            begin(streams[1], GLOBAL);
            step(streams[1]);
            order(streams[1], streams[0]);
            assert_eq!(kinds(end(streams[1])), [KERNEL]);
        }
    });
}

/// What is only wrong leaves the capture as it was.
#[test]
fn wrong_arguments_leave_a_capture_alone() {
    alone(|| unsafe {
        context();
        let (stream, other, never, store) = (stream(), stream(), event(), function(c"store"));
        let pointer = memory(64);
        let pool_less = 0;
        begin(stream, RELAXED);
        let wrong = [
            launch(0, 1, 1, stream, &mut []),
            cuMemcpyDtoDAsync_v2(WILD, pointer, 4, stream),
            cuMemsetD32Async(pointer + 1, 1, 1, stream),
            cuMemFreeAsync(pointer, stream),
            cuMemAllocFromPoolAsync(&mut 0, 4, pool_less, stream),
            cuMemAllocAsync(std::ptr::null_mut(), 4, stream),
            cuLaunchHostFunc(stream, None, std::ptr::null_mut()),
            cuEventRecordWithFlags(never, stream, 2),
            cuStreamWaitEvent(stream, never, 2),
            cuStreamBatchMemOp_v2(stream, 0, std::ptr::null_mut(), 1),
            cuStreamBeginCapture_v2(stream, RELAXED),
            cuStreamEndCapture(other, &mut 0),
            cuEventRecordWithFlags(never, other, EXTERNAL),
        ];
        for (at, answer) in wrong.iter().enumerate() {
            assert_ne!(answer.code, 0, "{at}: {}", answer.function);
        }
        assert_eq!((status(stream), dependencies(stream)), (ACTIVE, vec![]));
        launch_store(store, stream, pointer, 4).must();
        let graph = end(stream);
        assert_eq!(kinds(graph), [KERNEL]);
        run_once(graph, stream);
        assert_eq!(word(pointer), 4);
    });
}

/// The stream of a capture is destroyed: the capture is over. A fork is destroyed: it goes on.
#[test]
fn streams_may_be_destroyed_at_any_time() {
    alone(|| unsafe {
        context();
        let empty = function(c"empty");
        let step = |stream| launch(empty, 1, 1, stream, &mut []).must();
        for invalid in [false, true] {
            let [main, side] = [stream(), stream()];
            begin(main, GLOBAL);
            order(main, side);
            step(side);
            if invalid {
                cuStreamQuery(side).ignore();
            }
            cuStreamDestroy_v2(main).must();
            assert!(is_of_use(side));
        }
        let [main, side] = [stream(), stream()];
        begin(main, GLOBAL);
        order(main, side);
        step(side);
        order(side, main);
        cuStreamDestroy_v2(side).must();
        step(main);
        assert_eq!(edges(end(main)), [(0, 1)]);
        assert!(is_of_use(main));
    });
}

/// A context that is destroyed ends what was begun on its streams, and forbids nothing any more.
#[test]
fn a_destroyed_context_ends_its_captures() {
    alone(|| unsafe {
        let first = context();
        let side = stream();
        let second = new_context();
        let (main, event) = (stream(), event());
        begin(main, GLOBAL);
        cuEventRecord(event, main).must();
        cuStreamWaitEvent(side, event, 0).must();
        assert_eq!(status(side), ACTIVE);
        cuCtxDestroy_v2(second).must();
        cuCtxSetCurrent(first).must();
        memory(4);
        cuCtxSynchronize().must();
        assert!(is_of_use(side));
    });
}

/// So does a thread with a capture in its own stream.
#[test]
fn a_thread_that_ends_leaves_no_capture_in_its_stream() {
    alone(|| unsafe {
        let current = context();
        std::thread::spawn(move || {
            cuCtxSetCurrent(current).must();
            begin(PER_THREAD, GLOBAL);
            cuMemsetD32Async(WILD, 0, 1, PER_THREAD).must();
        })
        .join()
        .unwrap();
        memory(4);
        assert!(is_of_use(PER_THREAD) && is_of_use(0));
    });
}
