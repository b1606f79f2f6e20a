//! What invalidates a capture, and what is said then: which stream, where the recording began, what
//! was recorded last, which call did it, what to do. A foreign block that is invalidated leaves the
//! recording as it was; between blocks, the recording fails.

use std::panic::Location;
use std::sync::{Arc, Barrier};
use std::thread;

use cuda_graph::cudarc::driver::result;
use cuda_graph::cudarc::driver::sys::{self, CUresult};
use cuda_graph::cudarc::driver::{CudaStream, LaunchConfig, PushKernelArg};
use cuda_graph::{
    Capture, CaptureInfo, CaptureInvalidated, CaptureMode, CaptureStatus, Captured, ChildOp,
    EmptyOp, Error, Graph, Path, Recorder, Result, WaitEventOp,
};

use super::guards::is_whole;
use super::scene::{Scene, foreign, launch_store};
use crate::fixture::{context, function, one, store, stream, words};

/// What is known of the call that did it.
#[derive(Debug)]
pub(super) enum Call {
    Unknown,
    Ours(&'static str, CUresult),
    Foreign(CUresult),
}

use CUresult as R;

/// A stream of other code.
pub(super) fn other(scene: &Scene) -> Arc<CudaStream> {
    let stream = scene.context.new_stream().expect("a stream can be made");
    scene.uses(&stream);
    stream
}

fn query(stream: &CudaStream) -> CUresult {
    // SAFETY: the stream is alive.
    unsafe { sys::cuStreamQuery(stream.cu_stream()) }
}

#[track_caller]
pub(super) fn why(error: Error) -> Box<CaptureInvalidated> {
    match error {
        Error::CaptureInvalidated(why) => why,
        error => panic!("{error:?}"),
    }
}

/// What is to be said.
pub(super) struct Told {
    pub call: Call,
    /// The answer to the end of the capture.
    pub end: CUresult,
    /// A part of the text.
    pub remedy: &'static str,
}

impl Told {
    #[track_caller]
    fn fits(&self, what: &str, scene: &Scene, made: &Location, found: &CaptureInvalidated) {
        assert_eq!(found.stream, scene.stream.cu_stream() as usize, "{what}");
        assert_eq!(found.begun.to_string(), made.to_string(), "{what}");
        let last = found.last.as_ref();
        let last = last.unwrap_or_else(|| panic!("{what}: {found}"));
        assert_eq!(last.label.as_deref(), Some("the last one"), "{what}");
        assert_eq!(last.kernel.as_deref(), Some("store"), "{what}");
        let located = last.location;
        assert!(located.is_some_and(|at| at.file() == file!()), "{what}");
        assert_eq!(found.answer, self.end, "{what}: {found}");
        let (fits, wanted) = match (&self.call, &found.call) {
            (Call::Unknown, None) => (true, self.end),
            (Call::Ours(name, code), Some(Error::Call { call, code: got })) => {
                (call == name && got == code, *code)
            }
            (Call::Foreign(code), Some(Error::Foreign { code: got })) => (got == code, *code),
            _ => (false, self.end),
        };
        assert!(fits, "{what}: {:?} is wanted: {:?}", self.call, found.call);
        assert!(
            found.code() == wanted || wanted as u32 == 1,
            "{what}: {found:?}"
        );
        let text = found.to_string();
        for part in [
            self.remedy,
            "invalidation.rs",
            "`store` \"the last one\"",
            "usual",
        ] {
            assert!(text.contains(part), "{what}: `{part}` is not in: {text}");
        }
    }
}

type Spoil<'a> = &'a dyn Fn(&Scene, &Arc<CudaStream>) -> Result<()>;

/// Spoils a block and looks at what is said, whatever is done then.
#[track_caller]
pub(super) fn spoilt(
    what: &str,
    call: Call,
    end: CUresult,
    remedy: &'static str,
    spoil: impl Fn(&Scene, &Arc<CudaStream>) -> Result<()>,
) {
    let scene = Scene::new();
    let told = Told { call, end, remedy };
    in_a_block(&scene, what, &told, &spoil);
    by_a_guard(&scene, what, &told, &spoil);
    or_run(&scene, what, &spoil);
}

/// The closure gives the error back, or goes on.
#[track_caller]
fn in_a_block(scene: &Scene, what: &str, told: &Told, spoil: Spoil<'_>) {
    let made = Location::caller();
    let record = |path: &mut Path| {
        path.keep(scene.held())?;
        path.record(store(&scene.a, 5).label("the last one"))?;
        foreign(path, |stream| {
            launch_store(stream, &scene.a, 99)?;
            spoil(scene, stream)
        })
    };
    let failed = Graph::capture(&scene.stream, record);
    told.fits(what, scene, made, &why(failed.map(drop).expect_err(what)));
    scene.is_clean(what);
    let (graph, ()) = Graph::capture(&scene.stream, |path| {
        told.fits(what, scene, made, &why(record(path).expect_err(what)));
        // In a body and a branch as well.
        path.parallel(&mut [&mut |r| {
            r.if_nonzero(&scene.zero, |r| {
                // SAFETY: the scene keeps what is used.
                let failed = unsafe { r.foreign(|stream| spoil(scene, stream)) };
                why(failed.expect_err(what));
                r.record(store(&scene.a, 99)).map(drop)
            })
        }])?;
        path.record(scene.ops.double_a.clone()).map(drop)
    })
    .unwrap_or_else(|error| panic!("{what}: {error}"));
    // The store, a setter, the branch, the addition.
    assert_eq!(graph.nodes().expect("it is whole").len(), 4, "{what}");
    is_whole(scene, &graph, what);
    drop(graph);
    scene.is_clean(what);
}

/// A guard does not see the error, so the call is known where it went through this library alone.
#[track_caller]
fn by_a_guard(scene: &Scene, what: &str, told: &Told, spoil: Spoil<'_>) {
    let mut capture = Capture::begin(&scene.stream).expect("it begins");
    capture.record(store(&scene.a, 5)).expect("it records");
    for end in [false, true] {
        // SAFETY: the scene keeps what is used.
        let block = unsafe { capture.begin_foreign() }.expect("it begins");
        let _ = spoil(scene, block.stream());
        if end {
            let found = why(block.end().expect_err(what));
            assert_eq!(found.answer, told.end, "{what}: {found}");
            if let Call::Ours(name, _) = told.call {
                assert!(
                    matches!(found.call, Some(Error::Call { call, .. }) if call == name),
                    "{what}: {found}"
                );
            }
        }
    }
    capture.record(scene.ops.double_a.clone()).expect(what);
    is_whole(scene, &capture.end().expect(what), what);
    scene.is_clean(what);
}

/// The same, run where it cannot be recorded.
#[track_caller]
fn or_run(scene: &Scene, what: &str, spoil: Spoil<'_>) {
    let a = &scene.a;
    a.copy_from_host(&scene.stream, &[0]).expect("it fits");
    let ran = Graph::capture_or_run(&scene.stream, |r| {
        r.keep(scene.held())?;
        r.record(store(a, 10))?;
        // SAFETY: the scene keeps what is used.
        unsafe { r.foreign(|stream| spoil(scene, stream)) }
    });
    match ran {
        Ok(Captured::Ran((), reason)) => drop(why(reason)),
        other => panic!("{what}: {other:?}"),
    }
    assert_eq!(a.to_host(&scene.stream).expect("it ran"), [10], "{what}");
    scene.is_clean(what);
}

pub(super) const INVALIDATED: CUresult = R::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
pub(super) const UNSUPPORTED: CUresult = R::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

#[test]
fn synchronizing_the_stream() {
    let told = "do that before or after the capture";
    let check = "check the answer of every call";
    spoilt(
        "told",
        Call::Foreign(UNSUPPORTED),
        INVALIDATED,
        told,
        |_, stream| Ok(stream.synchronize()?),
    );
    spoilt(
        "swallowed",
        Call::Unknown,
        INVALIDATED,
        check,
        |_, stream| {
            let _ = stream.synchronize();
            Ok(())
        },
    );
    // What fails afterwards is not what did it.
    spoilt(
        "gone on",
        Call::Foreign(INVALIDATED),
        INVALIDATED,
        check,
        |scene, stream| {
            let _ = stream.synchronize();
            launch_store(stream, &scene.a, 10)
        },
    );
    spoilt(
        "by another thread",
        Call::Unknown,
        INVALIDATED,
        check,
        |_, stream| {
            let synchronize = || stream.synchronize().is_err();
            thread::scope(|scope| scope.spawn(synchronize).join()).expect("it does not panic");
            Ok(())
        },
    );
    spoilt(
        "of a fork",
        Call::Foreign(UNSUPPORTED),
        INVALIDATED,
        told,
        |scene, stream| {
            let side = other(scene);
            side.join(stream)?;
            side.synchronize()?;
            Ok(stream.join(&side)?)
        },
    );
}

#[test]
fn asking_the_stream_whether_it_is_done() {
    spoilt(
        "query",
        Call::Unknown,
        INVALIDATED,
        "a query",
        |_, stream| {
            query(stream);
            Ok(())
        },
    );
}

#[test]
fn waiting_for_an_event_of_the_capture_or_asking_it() {
    let told = "use another event for work that is not recorded";
    let code = R::CUDA_ERROR_CAPTURED_EVENT;
    spoilt(
        "synchronized",
        Call::Foreign(code),
        INVALIDATED,
        told,
        |_, stream| Ok(stream.record_event(None)?.synchronize()?),
    );
    spoilt(
        "asked",
        Call::Foreign(code),
        INVALIDATED,
        told,
        |_, stream| {
            stream.record_event(None)?.try_is_complete()?;
            Ok(())
        },
    );
}

#[test]
fn waiting_for_an_event_from_outside() {
    let code = R::CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    let told = "wait for such work before the capture";
    spoilt(
        "wait",
        Call::Foreign(code),
        INVALIDATED,
        told,
        |scene, stream| {
            let event = other(scene).record_event(None)?;
            Ok(stream.wait(&event)?)
        },
    );
    // What was recorded in another block, or in another recording, is over.
    let told = "wait for such work before the capture";
    let invalid = R::CUDA_ERROR_INVALID_VALUE;
    let scene = Scene::new();
    let event = scene.context.new_event(None).unwrap();
    Graph::capture(&scene.stream, |path| {
        foreign(path, |stream| Ok(event.record(stream)?))?;
        let failed = foreign(path, |stream| Ok(stream.wait(&event)?));
        let found = why(failed.unwrap_err());
        assert!(
            matches!(&found.call, Some(Error::Foreign { code }) if *code == invalid),
            "{told}: {found:?}"
        );
        let text = found.to_string();
        assert!(found.last.is_none() && text.contains("nothing through this library"));
        Ok(())
    })
    .unwrap();
    scene.is_clean("an event of a block that is over");

    let event = Arc::new(other(&scene).record_event(None).unwrap());
    let (graph, ()) = Graph::capture(&scene.stream, |path| {
        path.record(WaitEventOp::new(&event))?;
        path.record(store(&scene.a, 10)).map(drop)
    })
    .unwrap();
    is_whole(&scene, &graph, "an external wait");
}

fn allocate() -> Result<()> {
    // SAFETY: freed at once.
    unsafe { result::free_sync(result::malloc_sync(64)?)? };
    Ok(())
}

/// Whether a block in this mode survives an allocation.
pub(super) fn survives(scene: &Scene, mode: CaptureMode, elsewhere: bool) -> bool {
    let result = Graph::capture_as(&scene.stream, mode, |path| {
        // Between blocks, everything may be called.
        allocate()?;
        path.record(EmptyOp::new())?;
        let result = foreign(path, |stream| {
            launch_store(stream, &scene.a, 1)?;
            if !elsewhere {
                return allocate();
            }
            let allocate = || {
                scene.context.bind_to_thread()?;
                allocate()
            };
            thread::scope(|scope| scope.spawn(allocate).join().expect("it does not panic"))
        });
        allocate()?;
        result
    });
    scene.is_clean("allocating");
    match result {
        Ok((graph, ())) => {
            assert_eq!(graph.nodes().unwrap().len(), 2);
            true
        }
        Err(error) => {
            let found = why(error);
            assert_eq!(found.code(), UNSUPPORTED, "{found}");
            let text = found.to_string();
            assert!(text.contains("use the mode `Relaxed`"), "{text}");
            false
        }
    }
}

#[test]
fn allocating_on_the_capturing_thread() {
    let told = "use the mode `Relaxed`";
    let call = Call::Foreign(UNSUPPORTED);
    spoilt("cuMemAlloc", call, INVALIDATED, told, |_, _| {
        // Run at once, it is an ordinary call.
        allocate()
    });
    let scene = Scene::new();
    assert!(survives(&scene, CaptureMode::Relaxed, false));
    assert!(survives(&scene, CaptureMode::Relaxed, true));
    assert!(survives(&scene, CaptureMode::ThreadLocal, true));
    assert!(!survives(&scene, CaptureMode::ThreadLocal, false));
}

#[test]
fn instantiating_and_launching_an_executable() {
    let scene = Scene::new();
    let b = words(&scene.stream, &[0]);
    let inner = Graph::new(&scene.context).unwrap();
    inner.add(store(&b, 3), ()).unwrap();
    let exec = std::cell::RefCell::new(inner.instantiate().unwrap());
    let told = "embed a graph instead of launching its executable";
    let call = || Call::Ours("cuGraphLaunch", UNSUPPORTED);
    spoilt("launch", call(), INVALIDATED, told, |_, stream| {
        exec.borrow_mut().launch(stream)
    });
    spoilt(
        "launch, swallowed",
        call(),
        INVALIDATED,
        told,
        |_, stream| {
            let _ = exec.borrow_mut().launch(stream);
            Ok(())
        },
    );
    let call = Call::Ours("cuGraphUpload", UNSUPPORTED);
    spoilt("upload", call, INVALIDATED, told, |_, stream| {
        exec.borrow_mut().upload(stream)
    });
    let (graph, ()) =
        Graph::capture(&scene.stream, |c| c.record(ChildOp::new(&inner)).map(drop)).unwrap();
    graph.instantiate().unwrap().launch(&scene.stream).unwrap();
    assert_eq!(b.to_host(&scene.stream).unwrap(), [3]);
}

#[test]
fn a_launch_that_means_nothing() {
    let call = Call::Foreign(R::CUDA_ERROR_INVALID_VALUE);
    let told = "check the answer";
    spoilt("no blocks", call, INVALIDATED, told, |scene, stream| {
        if !CaptureInfo::of(stream)?.is_capturing() {
            return Ok(());
        }
        let stores = function("store");
        let (to, value) = (scene.a.address(), 1u32);
        let mut launch = stream.launch_builder(&stores);
        launch.arg(&to).arg(&value);
        let none = LaunchConfig {
            grid_dim: (0, 1, 1),
            ..one()
        };
        // SAFETY: nothing is launched.
        unsafe { launch.launch(none) }?;
        Ok(())
    });
}

#[test]
fn a_fork_of_other_code_that_is_not_joined() {
    let unjoined = R::CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    let fork = |scene: &Scene, stream: &Arc<CudaStream>| {
        let side = other(scene);
        side.join(stream)?;
        launch_store(&side, &scene.a, 10)?;
        if !CaptureInfo::of(&side)?.is_capturing() {
            side.synchronize()?;
        }
        Ok(side)
    };
    let told = "have the first stream wait for it";
    spoilt(
        "unjoined",
        Call::Unknown,
        unjoined,
        told,
        |scene, stream| fork(scene, stream).map(drop),
    );
    let scene = Scene::new();
    let (graph, ()) = Graph::capture(&scene.stream, |path| {
        foreign(path, |stream| {
            let side = fork(&scene, stream)?;
            Ok(stream.join(&side)?)
        })
    })
    .unwrap();
    is_whole(&scene, &graph, "joined");
    // An error of the step's own is told, though its fork was never joined.
    let failed = Graph::capture(&scene.stream, |path| {
        foreign(path, |stream| {
            fork(&scene, stream)?;
            Err::<(), _>(Error::other(std::io::Error::other("own")))
        })
    });
    assert!(
        matches!(&failed, Err(Error::Other(own)) if own.to_string() == "own"),
        "{failed:?}"
    );
    drop(graph);
    scene.is_clean("unjoined");
}

/// Two blocks at once are two captures, and a recording in a block is another stream's.
#[test]
fn two_captures_are_not_merged() {
    let (first, second) = (Scene::new(), Scene::new());
    let (graph, ()) = Graph::capture(&first.stream, |path| {
        path.record(store(&first.a, 10))?;
        let failed = foreign(path, |stream| {
            launch_store(stream, &first.a, 1)?;
            let event = stream.record_event(None)?;
            let failed = Graph::capture(&second.stream, |path| {
                foreign(path, |stream| Ok(stream.wait(&event)?))
            });
            let found = why(failed.unwrap_err());
            assert_eq!(found.code(), R::CUDA_ERROR_STREAM_CAPTURE_MERGE);
            let text = found.to_string();
            assert!(
                text.contains("record both parts into one capture"),
                "{text}"
            );
            let info = CaptureInfo::of(&first.stream)?;
            assert_eq!(info.status, CaptureStatus::Invalidated);
            assert!(info.is_capturing() && info.graph.is_null() && info.dependencies.is_empty());
            Ok(())
        });
        assert_eq!(why(failed.unwrap_err()).code(), INVALIDATED);
        Ok(())
    })
    .unwrap();
    is_whole(&first, &graph, "merge");
    drop(graph);
    first.is_clean("merge");
    second.is_clean("merge");
}

#[test]
fn a_block_in_a_block_of_the_same_stream_is_refused() {
    let scene = Scene::new();
    let (graph, ()) = Graph::capture(&scene.stream, |path| {
        foreign(path, |stream| {
            let refused = Graph::capture(stream, |_| Ok(()));
            assert!(
                matches!(refused, Err(Error::AlreadyCapturing { begun: Some(_) })),
                "{refused:?}"
            );
            launch_store(stream, &scene.a, 10)
        })
    })
    .unwrap();
    is_whole(&scene, &graph, "in a block");
    drop(graph);
    scene.is_clean("in a block");
}

#[test]
fn ending_on_another_thread_by_other_code() {
    let scene = Scene::new();
    let end = |stream: &Arc<CudaStream>| {
        let stream = stream.clone();
        let end = move || {
            let mut graph = std::ptr::null_mut();
            // SAFETY: the stream is alive.
            unsafe { sys::cuStreamEndCapture(stream.cu_stream(), &mut graph) }
        };
        thread::spawn(end).join().unwrap()
    };
    let (graph, ()) = Graph::capture(&scene.stream, |path| {
        path.record(store(&scene.a, 10))?;
        let failed = foreign(path, |stream| {
            assert_eq!(end(stream), R::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
            Ok(())
        });
        let found = why(failed.unwrap_err());
        assert_eq!(found.answer, R::CUDA_ERROR_ILLEGAL_STATE);
        let text = found.to_string();
        assert!(text.contains("leave the end to this library"), "{text}");
        Ok(())
    })
    .unwrap();
    is_whole(&scene, &graph, "ended on another thread");
    drop(graph);
    scene.is_clean("ended on another thread");
}

/// Between blocks, what reaches the stream and cannot be captured ends the recording.
#[test]
fn between_blocks_the_recording_fails() {
    let scene = Scene::new();
    let b = words(&scene.stream, &[0]);
    let inner = Graph::new(&scene.context).unwrap();
    inner.add(store(&b, 3), ()).unwrap();
    let exec = std::cell::RefCell::new(inner.instantiate().unwrap());
    let told = "do that before or after the capture";
    let check = "check the answer of every call";
    let isolated = R::CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    type Case<'a> = (&'static str, Call, &'static str, Spoil<'a>);
    let cases: [Case<'_>; 6] = [
        ("told", Call::Foreign(UNSUPPORTED), told, &|_, stream| {
            Ok(stream.synchronize()?)
        }),
        ("swallowed", Call::Unknown, check, &|_, stream| {
            let _ = stream.synchronize();
            Ok(())
        }),
        ("query", Call::Unknown, "a query", &|_, stream| {
            query(stream);
            Ok(())
        }),
        (
            "wait",
            Call::Foreign(isolated),
            "before the capture",
            &|scene, stream| {
                let event = other(scene).record_event(None)?;
                Ok(stream.wait(&event)?)
            },
        ),
        (
            "launch",
            Call::Ours("cuGraphLaunch", UNSUPPORTED),
            told,
            &|_, stream| exec.borrow_mut().launch(stream),
        ),
        (
            "launch, swallowed",
            Call::Ours("cuGraphLaunch", UNSUPPORTED),
            told,
            &|_, stream| {
                let _ = exec.borrow_mut().launch(stream);
                Ok(())
            },
        ),
    ];
    type After<'a> = &'a dyn Fn(&mut Path) -> Result<()>;
    let afters: [After<'_>; 3] = [
        &|_| Ok(()),
        &|path| foreign(path, |stream| launch_store(stream, &scene.a, 1)),
        &|path| path.if_nonzero(&scene.zero, |_| Ok(())),
    ];
    for (what, call, remedy, spoil) in cases {
        let told = Told {
            call,
            end: INVALIDATED,
            remedy,
        };
        for after in afters {
            let line = line!() + 1;
            let failed = Graph::capture(&scene.stream, |path| {
                path.keep(scene.held())?;
                path.record(store(&scene.a, 5).label("the last one"))?;
                spoil(&scene, &scene.stream)?;
                after(path)
            });
            let found = why(failed.map(drop).expect_err(what));
            assert_eq!(found.begun.line(), line, "{what}");
            told.fits(what, &scene, found.begun, &found);
            scene.is_clean(what);
        }
        // By guards.
        let mut capture = Capture::begin(&scene.stream).unwrap();
        capture.record(store(&scene.a, 5)).unwrap();
        let _ = spoil(&scene, &scene.stream);
        assert_eq!(
            why(capture.end().unwrap_err()).answer,
            INVALIDATED,
            "{what}"
        );
        scene.is_clean(what);
        // What cannot be recorded runs.
        or_run(&scene, what, spoil);
    }
}

/// The streams of two threads have one handle: the end of a capture of one is not kept from it by a
/// later one of the other.
#[test]
fn each_threads_own_stream_is_ended_by_itself() {
    let context = context();
    let (first, second) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let own = context.per_thread_stream();
            let capture = Capture::begin(&own).unwrap();
            first.wait();
            // The other thread has begun.
            second.wait();
            own.synchronize().unwrap_err();
            capture.end().unwrap_err();
            let word = words(&stream(), &[0]);
            let graph = Graph::new(&context).unwrap();
            graph.add(store(&word, 3), ()).unwrap();
            graph.instantiate().unwrap().launch(&own).unwrap();
            own.synchronize().unwrap();
        });
        scope.spawn(|| {
            let own = context.per_thread_stream();
            let word = words(&own, &[0]);
            own.synchronize().unwrap();
            first.wait();
            let mut capture = Capture::begin(&own).unwrap();
            second.wait();
            capture.record(EmptyOp::new()).unwrap();
            // SAFETY: the word outlives the graph.
            let block = unsafe { capture.begin_foreign() }.unwrap();
            launch_store(block.stream(), &word, 5).unwrap();
            block.end().unwrap();
            let graph = capture.end().unwrap();
            assert_eq!(graph.nodes().unwrap().len(), 2);
            graph.instantiate().unwrap().launch(&own).unwrap();
            assert_eq!(word.to_host(&own).unwrap(), [5]);
        });
    });
}
