//! Streams that take part in a capture of another, through events.

use super::*;

#[test]
fn a_fork_and_its_join_are_a_diamond() {
    alone(|| unsafe {
        context();
        let (main, side, store, pointer) = (stream(), stream(), function(c"store"), memory(16));
        begin(main, GLOBAL);
        launch_store(store, main, pointer, 1).must();
        order(main, side);
        assert_eq!(status(side), ACTIVE);
        assert_eq!(info(side).0, info(main).0);
        cuMemcpyDtoDAsync_v2(pointer + 4, pointer, 4, side).must();
        cuMemcpyDtoDAsync_v2(pointer + 8, pointer, 4, main).must();
        order(side, main);
        assert_eq!(dependencies(main).len(), 2);
        cuMemcpyDtoDAsync_v2(pointer + 12, pointer + 4, 4, main).must();
        let graph = end(main);
        assert_eq!(edges(graph), [(0, 1), (0, 2), (1, 3), (2, 3)]);
        assert_eq!((status(main), status(side)), (NONE_STATUS, NONE_STATUS));
        fill_words(pointer, 0, 4);
        run_once(graph, side);
        for at in 0..4 {
            assert_eq!(word(pointer + 4 * at), 1);
        }
    });
}

/// A stream drawn in by a stream that was drawn in, a wait for an older event, and one that waits
/// twice.
#[test]
fn forks_of_forks_depend_on_what_they_waited_for() {
    alone(|| unsafe {
        context();
        let [main, a, b] = [stream(), stream(), stream()];
        let empty = function(c"empty");
        let step = |stream| launch(empty, 1, 1, stream, &mut []).must();
        begin(main, GLOBAL);
        step(main);
        let first = order(main, a);
        step(a);
        let second = order(a, b);
        step(b);
        cuStreamWaitEvent(b, first, 0).must();
        cuStreamWaitEvent(b, first, 0).must();
        cuStreamWaitEvent(b, second, 0).must();
        let all = nodes(graph_of(b));
        assert_eq!(dependencies(b), [all[2], all[0], all[1]]);
        order(b, main);
        assert_eq!(dependencies(main), [all[0], all[2], all[1]]);
        step(main);
        let graph = end(main);
        assert_eq!(edges(graph), [(0, 1), (0, 3), (1, 2), (1, 3), (2, 3)]);
    });
}

#[test]
fn a_branch_that_did_not_come_back_fails_the_capture() {
    alone(|| unsafe {
        context();
        let empty = function(c"empty");
        let step = |stream| launch(empty, 1, 1, stream, &mut []).must();
        for joined in [false, true] {
            let [main, side] = [stream(), stream()];
            begin(main, GLOBAL);
            step(main);
            order(main, side);
            step(side);
            if joined {
                order(side, main);
                step(side);
            }
            let graph = graph_of(side);
            assert_eq!(end_failed(main), UNJOINED);
            assert_eq!(nodes_left(graph), 0);
            assert!(is_of_use(main) && is_of_use(side));
        }
        // One that did nothing need not.
        let [main, side] = [stream(), stream()];
        begin(main, GLOBAL);
        step(main);
        order(main, side);
        assert_eq!(kinds(end(main)), [KERNEL]);
        assert!(is_of_use(side));
    });
}

/// How many nodes a graph has: none where it is gone.
unsafe fn nodes_left(graph: Handle) -> usize {
    let mut count = 0;
    cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count).ignore();
    count
}

#[test]
fn captures_cannot_merge() {
    alone(|| unsafe {
        context();
        let [one, two] = [stream(), stream()];
        begin(one, RELAXED);
        begin(two, RELAXED);
        assert_ne!(info(one).0, info(two).0);
        let event = event();
        cuEventRecord(event, one).must();
        assert_eq!(cuStreamWaitEvent(two, event, 0).code, MERGE);
        assert_eq!(
            (status(one), status(two)),
            (INVALIDATED_STATUS, INVALIDATED_STATUS)
        );
        assert_eq!(
            (end_failed(one), end_failed(two)),
            (INVALIDATED, INVALIDATED)
        );
        assert!(is_of_use(one) && is_of_use(two));
    });
}

#[test]
fn a_capture_does_not_wait_for_work_outside() {
    alone(|| unsafe {
        context();
        let [main, other] = [stream(), stream()];
        let outside = event();
        cuEventRecord(outside, other).must();
        cuStreamSynchronize(other).must();
        begin(main, RELAXED);
        assert_eq!(cuStreamWaitEvent(main, outside, 0).code, ISOLATION);
        assert_eq!(end_failed(main), INVALIDATED);
        assert!(is_of_use(main));
    });
}

/// An event that was recorded in a capture tells nothing, then and later, until it is recorded
/// again.
#[test]
fn a_captured_event_is_of_no_use_outside() {
    alone(|| unsafe {
        context();
        let [main, other] = [stream(), stream()];
        let (event, mut elapsed) = (event(), 0.0);
        for call in [cuEventQuery, cuEventSynchronize] {
            begin(main, RELAXED);
            cuEventRecord(event, main).must();
            let asked = cuEventElapsedTime(&mut elapsed, event, event);
            assert_eq!((asked.code, status(main)), (CAPTURED_EVENT, ACTIVE));
            assert_eq!(call(event).code, CAPTURED_EVENT);
            assert_eq!(call(event).code, INVALID_VALUE);
            assert_eq!(end_failed(main), INVALIDATED);
        }
        begin(main, RELAXED);
        cuEventRecord(event, main).must();
        end(main);
        assert_eq!(cuEventQuery(event).code, INVALID_VALUE);
        assert_eq!(cuStreamWaitEvent(other, event, 0).code, INVALID_VALUE);
        assert_eq!(status(other), NONE_STATUS);
        cuEventRecord(event, other).must();
        cuEventSynchronize(event).must();
        // An event that is recorded elsewhere meanwhile is that.
        begin(main, RELAXED);
        cuEventRecord(event, main).must();
        cuEventRecord(event, other).must();
        cuStreamWaitEvent(other, event, 0).must();
        assert_eq!((status(main), status(other)), (ACTIVE, NONE_STATUS));
        end(main);
        // A destroyed one has done its work.
        begin(main, RELAXED);
        launch(function(c"empty"), 1, 1, main, &mut []).must();
        cuEventDestroy_v2(order(main, other)).must();
        assert_eq!(dependencies(other), dependencies(main));
        end(main);
        assert!(is_of_use(main) && is_of_use(other));
    });
}

/// A blocking stream may be drawn in; then the legacy stream is of no use. It cannot be drawn in
/// itself.
#[test]
fn the_legacy_stream_stays_outside() {
    alone(|| unsafe {
        context();
        let (main, empty, mut blocking) = (stream(), function(c"empty"), 0);
        cuStreamCreate(&mut blocking, 0).must();
        begin(main, RELAXED);
        let event = order(main, blocking);
        let mut status_of_legacy = 77;
        let answer = cuStreamIsCapturing(0, &mut status_of_legacy);
        assert_eq!(
            (answer.code, status_of_legacy, status(main)),
            (IMPLICIT, 77, ACTIVE)
        );
        assert_eq!(launch(empty, 1, 1, LEGACY, &mut []).code, IMPLICIT);
        assert_eq!(
            (status(main), status(blocking)),
            (INVALIDATED_STATUS, INVALIDATED_STATUS)
        );
        assert_eq!(end_failed(main), INVALIDATED);
        begin(main, RELAXED);
        cuEventRecord(event, main).must();
        assert_eq!(cuStreamWaitEvent(0, event, 0).code, IMPLICIT);
        assert_eq!((status(0), end_failed(main)), (NONE_STATUS, INVALIDATED));
        begin(main, RELAXED);
        launch(empty, 1, 1, 0, &mut []).must();
        end(main);
        assert!(is_of_use(0) && is_of_use(blocking));
    });
}

/// A stream of another context takes part.
#[test]
fn streams_of_other_contexts_take_part() {
    alone(|| unsafe {
        context();
        let (main, mut current, ran) = (stream(), 0, counter());
        cuCtxGetCurrent(&mut current).must();
        let other_context = new_context();
        let other = stream();
        cuCtxSetCurrent(current).must();
        begin(main, RELAXED);
        let fork = event();
        cuEventRecord(fork, main).must();
        cuStreamWaitEvent(other, fork, 0).must();
        cuLaunchHostFunc(other, Some(add_one), pointer_to(ran)).must();
        cuCtxSetCurrent(other_context).must();
        order(other, main);
        cuCtxSetCurrent(current).must();
        let graph = end(main);
        run_once(graph, main);
        assert_eq!(ran.load(Ordering::SeqCst), 1);
        // And its end leaves the others.
        begin(main, RELAXED);
        cuEventRecord(fork, main).must();
        cuStreamWaitEvent(other, fork, 0).must();
        cuCtxDestroy_v2(other_context).must();
        assert_eq!(status(main), ACTIVE);
        end(main);
        assert!(is_of_use(main));
    });
}
