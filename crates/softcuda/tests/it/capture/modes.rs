//! What captures forbid to the threads of their process.

use super::*;

/// Does something on a thread of its own, where the context is current.
unsafe fn elsewhere<R: Send>(context: Handle, f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            cuCtxSetCurrent(context).must();
            f()
        });
        thread.join().unwrap()
    })
}

unsafe fn exchange(mode: u32) -> u32 {
    let mut mode = mode;
    cuThreadExchangeStreamCaptureMode(&mut mode).must();
    mode
}

/// The mode of a capture, of the calling thread, and whether that is another: only then an unsafe
/// call goes through.
#[test]
fn modes_decide_who_may_call_what() {
    alone(|| unsafe {
        let current = context();
        for capture in [GLOBAL, THREAD_LOCAL, RELAXED] {
            for thread in [GLOBAL, THREAD_LOCAL, RELAXED] {
                for away in [false, true] {
                    let stream = stream();
                    begin(stream, capture);
                    let call = || {
                        let before = exchange(thread);
                        let code = cuMemAlloc_v2(&mut 0, 4).code;
                        assert_eq!(exchange(before), thread);
                        code
                    };
                    let code = match away {
                        false => call(),
                        true => elsewhere(current, call),
                    };
                    let forbidden = thread != RELAXED
                        && match capture {
                            GLOBAL => !away || thread == GLOBAL,
                            THREAD_LOCAL => !away,
                            _ => false,
                        };
                    let expected = match forbidden {
                        true => (UNSUPPORTED, INVALIDATED_STATUS),
                        false => (0, ACTIVE),
                    };
                    let what = format!("capture {capture}, thread {thread}, away {away}");
                    assert_eq!((code, status(stream)), expected, "{what}");
                    match forbidden {
                        true => assert_eq!(end_failed(stream), INVALIDATED),
                        false => assert_eq!(nodes(end(stream)), []),
                    }
                }
            }
        }
        memory(4);
    });
}

/// The captures that forbid a call are invalidated, and no others. One that was invalidated goes on
/// forbidding.
#[test]
fn an_unsafe_call_invalidates_what_forbids_it() {
    alone(|| unsafe {
        let current = context();
        let [global, local, relaxed, theirs] = [stream(), stream(), stream(), stream()];
        begin(global, GLOBAL);
        begin(local, THREAD_LOCAL);
        begin(relaxed, RELAXED);
        elsewhere(current, || {
            begin(theirs, THREAD_LOCAL);
            for _ in 0..2 {
                assert_eq!(cuMemAlloc_v2(&mut 0, 4).code, UNSUPPORTED);
                assert_eq!(
                    [global, local, relaxed, theirs].map(|stream| status(stream)),
                    [INVALIDATED_STATUS, ACTIVE, ACTIVE, INVALIDATED_STATUS]
                );
            }
            assert_eq!(end_failed(theirs), INVALIDATED);
        });
        assert_eq!(cuMemAlloc_v2(&mut 0, 4).code, UNSUPPORTED);
        assert_eq!(status(local), INVALIDATED_STATUS);
        assert_eq!(end_failed(global), INVALIDATED);
        assert_eq!(cuMemAlloc_v2(&mut 0, 4).code, UNSUPPORTED);
        assert_eq!(end_failed(local), INVALIDATED);
        memory(4);
        end(relaxed);
    });
}

#[test]
fn captures_end_on_their_thread_but_relaxed_ones() {
    alone(|| unsafe {
        let (current, empty) = (context(), function(c"empty"));
        for (mode, expected) in [
            (GLOBAL, WRONG_THREAD),
            (THREAD_LOCAL, WRONG_THREAD),
            (RELAXED, 0),
        ] {
            let [main, side] = [stream(), stream()];
            begin(main, mode);
            order(main, side);
            // Any thread may record.
            elsewhere(current, || {
                launch(empty, 1, 1, side, &mut []).must();
                order(side, main);
            });
            let (code, graph) = elsewhere(current, || {
                let mut graph = BOGUS;
                (cuStreamEndCapture(main, &mut graph).code, graph)
            });
            assert_eq!(code, expected);
            assert_eq!(graph != 0, code == 0);
            assert_eq!(end_failed(main), ILLEGAL_STATE);
            assert!(is_of_use(main) && is_of_use(side));
        }
    });
}

/// Threads capture and run beside each other, each in streams of its own.
#[test]
fn threads_capture_side_by_side() {
    alone(|| unsafe {
        let (current, store) = (context(), function(c"store"));
        let threads = 4;
        let pointers: Vec<u64> = (0..threads).map(|_| memory(64)).collect();
        let streams: Vec<[Handle; 2]> = (0..threads).map(|_| [stream(), stream()]).collect();
        std::thread::scope(|scope| {
            for (&pointer, &[main, side]) in pointers.iter().zip(&streams) {
                scope.spawn(move || {
                    cuCtxSetCurrent(current).must();
                    exchange(THREAD_LOCAL);
                    for round in 0..30 {
                        begin(main, THREAD_LOCAL);
                        launch_store(store, main, pointer, round).must();
                        order(main, side);
                        for at in 1..8 {
                            let to = pointer + 4 * at;
                            cuMemcpyDtoDAsync_v2(to, pointer, 4, [main, side][at as usize % 2])
                                .must();
                        }
                        order(side, main);
                        let graph = end(main);
                        assert_eq!(nodes(graph).len(), 8);
                        let mut words = [77u32; 8];
                        exchange(RELAXED);
                        cuGraphLaunch(instantiate(graph), main).must();
                        cuMemcpyDtoHAsync_v2(void(&mut words), pointer, 32, main).must();
                        cuStreamSynchronize(main).must();
                        exchange(THREAD_LOCAL);
                        assert_eq!(words, [round; 8]);
                    }
                });
            }
        });
    });
}

/// Threads that record into one capture while it ends and begins again: each call is recorded, runs
/// or is an error, and nothing is left behind. A real driver crashes on it.
#[test]
fn threads_that_share_a_stream_get_answers() {
    if !is_software() {
        return;
    }
    alone(|| unsafe {
        let (current, empty) = (context(), function(c"empty"));
        let [main, side] = [stream(), stream()];
        std::thread::scope(|scope| {
            for at in 0..3 {
                scope.spawn(move || {
                    cuCtxSetCurrent(current).must();
                    exchange(RELAXED);
                    let event = event();
                    for round in 0..300 {
                        match (at, round % 4) {
                            (0, 0) => cuStreamBeginCapture_v2(main, RELAXED).ignore(),
                            (0, 3) => cuStreamEndCapture(main, &mut 0).ignore(),
                            (1, 0) => cuEventRecord(event, main).ignore(),
                            (1, 1) => cuStreamWaitEvent(side, event, 0).ignore(),
                            (2, 1) => cuMemsetD32Async(WILD, 0, 0, side).ignore(),
                            (2, 3) => cuStreamIsCapturing(side, &mut 0).ignore(),
                            (_, 2) => launch(empty, 1, 1, [main, side][at % 2], &mut []).ignore(),
                            _ => {}
                        }
                    }
                });
            }
        });
        cuStreamEndCapture(main, &mut 0).ignore();
        assert!(is_of_use(main) && is_of_use(side));
    });
}
