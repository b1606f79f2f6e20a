//! What invalidates a capture, and what is said then: which stream, where it was begun, what was recorded last, which
//! call did it, what to do.

use std::panic::Location;
use std::sync::{Arc, Barrier};
use std::thread;

use cuda_graph::cudarc::driver::result;
use cuda_graph::cudarc::driver::sys::{self, CUresult};
use cuda_graph::cudarc::driver::{CudaStream, LaunchConfig, PushKernelArg};
use cuda_graph::{
    Capture, CaptureInfo, CaptureInvalidated, CaptureStatus, Captured, EmptyOp, Error, Graph,
    KernelOp, Mode, Relaxed, Result,
};

use super::scene::Scene;
use crate::fixture::{context, function, kernel, one, store, stream, words};

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

/// Spoils a capture by `spoil` and looks at what is said; then has the step run.
#[track_caller]
pub(super) fn spoilt(
    what: &str,
    call: Call,
    end: CUresult,
    remedy: &str,
    spoil: impl Fn(&Scene, &mut Capture) -> Result<()>,
) {
    let scene = Scene::new();
    spoilt_in(&scene, what, call, end, remedy, spoil);
}

#[track_caller]
fn spoilt_in(
    scene: &Scene,
    what: &str,
    call: Call,
    end: CUresult,
    remedy: &str,
    spoil: impl Fn(&Scene, &mut Capture) -> Result<()>,
) {
    let made = Location::caller();
    let result = Graph::capture(&scene.stream, |c| {
        scene.uses(c.stream());
        c.keep(scene.held())?;
        c.record(store(&scene.a, 10).label("the last one"))?;
        spoil(scene, c)
    });
    let found = why(result.map(drop).expect_err(what));
    assert_eq!(found.stream, scene.stream.cu_stream() as usize, "{what}");
    assert_eq!(found.begun, made, "{what}");
    let last = found
        .last
        .clone()
        .unwrap_or_else(|| panic!("{what}: {found}"));
    assert_eq!(last.label.as_deref(), Some("the last one"), "{what}");
    assert_eq!(last.kernel.as_deref(), Some("store"), "{what}");
    assert!(
        last.location
            .is_some_and(|location| location.file() == file!()),
        "{what}"
    );
    assert_eq!(found.source.0, end, "{what}: {found}");
    let fits = match (&call, &found.call) {
        (Call::Unknown, None) => found.code() == end,
        (Call::Ours(name, code), Some(Error::Call { call, source })) => {
            call == name && source.0 == *code
        }
        (Call::Foreign(code), Some(Error::Foreign { source })) => source.0 == *code,
        _ => false,
    };
    assert!(fits, "{what}: {call:?} is wanted: {:?}", found.call);
    let text = found.to_string();
    for part in [
        remedy,
        "invalidation.rs",
        "`store` \"the last one\"",
        "usually",
    ] {
        assert!(text.contains(part), "{what}: `{part}` is not in: {text}");
    }
    scene.is_clean(what);

    // The same, run where it cannot be recorded.
    scene
        .a
        .copy_from_host(&scene.stream, &[0])
        .expect("it fits");
    let ran = Graph::capture_or_run(&scene.stream, |c| {
        c.keep(scene.held())?;
        c.record(store(&scene.a, 10))?;
        spoil(scene, c)
    });
    match ran {
        Ok(Captured::Ran((), reason)) => drop(why(reason)),
        other => panic!("{what}: {other:?}"),
    }
    assert_eq!(
        scene.a.to_host(&scene.stream).expect("it ran"),
        [10],
        "{what}"
    );
    scene.is_clean(what);
}

pub(super) const INVALIDATED: CUresult = R::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
pub(super) const UNSUPPORTED: CUresult = R::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

#[test]
fn synchronizing_the_stream() {
    let told = "do that before or after the capture";
    spoilt(
        "told",
        Call::Foreign(UNSUPPORTED),
        INVALIDATED,
        told,
        |_, c| Ok(c.stream().synchronize()?),
    );
    spoilt(
        "swallowed",
        Call::Unknown,
        INVALIDATED,
        "check the answer of every call",
        |_, c| {
            let _ = c.stream().synchronize();
            Ok(())
        },
    );
    // What fails afterwards is not what did it.
    spoilt(
        "gone on",
        Call::Ours("cuStreamGetCaptureInfo", INVALIDATED),
        INVALIDATED,
        "check the answer",
        |_, c| {
            let _ = c.stream().synchronize();
            c.record(EmptyOp::new()).map(drop)
        },
    );
    spoilt(
        "by another thread",
        Call::Unknown,
        INVALIDATED,
        "check the answer",
        |_, c| {
            let stream = c.stream().clone();
            thread::scope(|scope| {
                scope
                    .spawn(move || stream.synchronize().is_err())
                    .join()
                    .is_ok()
            });
            Ok(())
        },
    );
    spoilt(
        "of a branch",
        Call::Foreign(UNSUPPORTED),
        INVALIDATED,
        told,
        |_, c| {
            c.parallel(|p| {
                p.branch(|c| c.stream().record_event(None).map(drop).map_err(Error::from))?;
                p.branch(|c| Ok(c.stream().synchronize()?))
            })
        },
    );
    spoilt(
        "of the first stream within a branch",
        Call::Foreign(UNSUPPORTED),
        INVALIDATED,
        told,
        |scene, c| c.parallel(|p| p.branch(|_| Ok(scene.stream.synchronize()?))),
    );
}

#[test]
fn asking_the_stream_whether_it_is_done() {
    spoilt("query", Call::Unknown, INVALIDATED, "a query", |_, c| {
        query(c.stream());
        Ok(())
    });
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
        |_, c| {
            let event = c.stream().record_event(None)?;
            Ok(event.synchronize()?)
        },
    );
    spoilt("asked", Call::Foreign(code), INVALIDATED, told, |_, c| {
        let event = c.stream().record_event(None)?;
        event.try_is_complete()?;
        Ok(())
    });
}

#[test]
fn waiting_for_an_event_from_outside() {
    let code = R::CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    spoilt(
        "wait",
        Call::Foreign(code),
        INVALIDATED,
        "wait for such work before the capture",
        |scene, c| {
            let event = other(scene).record_event(None)?;
            Ok(c.stream().wait(&event)?)
        },
    );
    let scene = Scene::new();
    let event = Arc::new(other(&scene).record_event(None).unwrap());
    let (graph, ()) = Graph::capture(&scene.stream, |c| {
        c.wait_event(&event)?;
        c.record(store(&scene.a, 10)).map(drop)
    })
    .unwrap();
    graph.instantiate().unwrap().launch(&scene.stream).unwrap();
    assert_eq!(scene.a.to_host(&scene.stream).unwrap(), [10]);
}

#[test]
fn waiting_for_an_event_of_a_capture_that_is_over() {
    let scene = Scene::new();
    let event = scene.context.new_event(None).unwrap();
    Graph::capture(&scene.stream, |_| Ok(event.record(&scene.stream)?)).unwrap();
    let failed = Graph::capture(&scene.stream, |c| Ok(c.stream().wait(&event)?));
    let found = why(failed.unwrap_err());
    assert!(
        matches!(&found.call, Some(Error::Foreign { source }) if source.0 == R::CUDA_ERROR_INVALID_VALUE)
    );
    assert!(
        found.last.is_none()
            && found
                .to_string()
                .contains("nothing was recorded through this library")
    );
    scene.is_clean("an event of a capture that is over");
}

fn allocate() -> Result<()> {
    // SAFETY: freed at once.
    unsafe { result::free_sync(result::malloc_sync(64)?)? };
    Ok(())
}

/// Whether a capture in mode `M` survives an allocation.
pub(super) fn survives<M: Mode>(scene: &Scene, elsewhere: bool) -> bool {
    let result = Graph::capture_as::<M, _>(&scene.stream, |c| {
        c.record(EmptyOp::new())?;
        if !elsewhere {
            return allocate();
        }
        let context = scene.context.clone();
        let allocate = || {
            context.bind_to_thread()?;
            allocate()
        };
        thread::scope(|scope| scope.spawn(allocate).join().expect("it does not panic"))
    });
    scene.is_clean("allocating");
    match result {
        Ok((graph, ())) => {
            assert_eq!(graph.nodes().unwrap().len(), 1);
            true
        }
        Err(error) => {
            let found = why(error);
            assert_eq!(found.code(), UNSUPPORTED, "{found}");
            assert!(
                found.to_string().contains("use the mode `Relaxed`"),
                "{found}"
            );
            false
        }
    }
}

#[test]
fn allocating_on_the_capturing_thread() {
    spoilt(
        "cuMemAlloc",
        Call::Foreign(UNSUPPORTED),
        INVALIDATED,
        "use the mode `Relaxed`",
        |_, _| allocate(),
    );
    let scene = Scene::new();
    assert!(survives::<Relaxed>(&scene, false));
    assert!(survives::<Relaxed>(&scene, true));
    assert!(survives::<cuda_graph::ThreadLocal>(&scene, true));
    assert!(!survives::<cuda_graph::ThreadLocal>(&scene, false));
}

#[test]
fn instantiating_and_launching_an_executable() {
    let scene = Scene::new();
    let inner = Graph::new(&scene.context).unwrap();
    inner.add(store(&scene.a, 3), ()).unwrap();
    let exec = std::cell::RefCell::new(inner.instantiate().unwrap());
    let call = || Call::Ours("cuGraphLaunch", UNSUPPORTED);
    let told = "embed a graph instead of launching its executable";
    spoilt("launch", call(), INVALIDATED, told, |scene, c| {
        exec.borrow_mut().launch(c.stream())?;
        c.record(store(&scene.a, 10)).map(drop)
    });
    spoilt(
        "launch, swallowed",
        call(),
        INVALIDATED,
        told,
        |scene, c| {
            let _ = exec.borrow_mut().launch(c.stream());
            c.record(store(&scene.a, 10)).map(drop)
        },
    );
    spoilt("launch, gone on", call(), INVALIDATED, told, |scene, c| {
        let _ = exec.borrow_mut().launch(c.stream());
        c.record(store(&scene.a, 10)).map(drop)
    });
    spoilt(
        "upload",
        Call::Ours("cuGraphUpload", UNSUPPORTED),
        INVALIDATED,
        told,
        |_, c| exec.borrow_mut().upload(c.stream()),
    );
    let (graph, ()) = Graph::capture(&scene.stream, |c| c.embed(&inner).map(drop)).unwrap();
    graph.instantiate().unwrap().launch(&scene.stream).unwrap();
    assert_eq!(scene.a.to_host(&scene.stream).unwrap(), [3]);
}

#[test]
fn a_launch_that_means_nothing() {
    spoilt(
        "no blocks",
        Call::Foreign(R::CUDA_ERROR_INVALID_VALUE),
        INVALIDATED,
        "check the answer",
        |scene, c| {
            if !c.is_active() {
                return Ok(());
            }
            let stores = function("store");
            let (to, value) = (scene.a.address(), 1u32);
            let mut launch = c.stream().launch_builder(&stores);
            launch.arg(&to).arg(&value);
            let none = LaunchConfig {
                grid_dim: (0, 1, 1),
                ..one()
            };
            // SAFETY: nothing is launched.
            unsafe { launch.launch(none) }?;
            Ok(())
        },
    );
    // Through this library, the capture goes on.
    let scene = Scene::new();
    let none = LaunchConfig {
        grid_dim: (0, 1, 1),
        ..one()
    };
    // SAFETY: nothing is launched.
    let nothing = unsafe { KernelOp::new(kernel("store"), none, (&scene.a, 1u32)) };
    let (graph, ()) = Graph::capture(&scene.stream, |c| {
        let error = match nothing {
            Ok(nothing) => c.record(nothing).map(drop),
            Err(error) => Err(error),
        };
        assert!(error.is_err());
        c.record(store(&scene.a, 10)).map(drop)
    })
    .unwrap();
    assert_eq!(graph.nodes().unwrap().len(), 1);
}

#[test]
fn a_fork_of_other_code_that_is_not_joined() {
    let unjoined = R::CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    let fork = |scene: &Scene, c: &mut Capture| {
        let side = other(scene);
        side.wait(&c.stream().record_event(None)?)?;
        let launches = function("store");
        let (to, value) = (scene.a.address(), 10u32);
        let mut launch = side.launch_builder(&launches);
        launch.arg(&to).arg(&value);
        // SAFETY: `store` writes one word.
        unsafe { launch.launch(one()) }?;
        if CaptureInfo::of(&side)?.is_capturing() {
            return Ok(side);
        }
        side.synchronize()?;
        Ok(side)
    };
    spoilt(
        "unjoined",
        Call::Unknown,
        unjoined,
        "have the first stream wait for it",
        |scene, c| fork(scene, c).map(drop),
    );
    let scene = Scene::new();
    Graph::capture(&scene.stream, |c| {
        let side = fork(&scene, c)?;
        Ok(c.stream().join(&side)?)
    })
    .unwrap();
    // An error of the step's own is told, though its fork was never joined.
    let failed = Graph::capture(&scene.stream, |c| {
        fork(&scene, c)?;
        Err::<(), _>(Error::other(std::io::Error::other("own")))
    });
    assert!(
        matches!(&failed, Err(Error::Other(own)) if own.to_string() == "own"),
        "{failed:?}"
    );
    scene.is_clean("unjoined");
}

#[test]
fn two_captures_are_not_merged() {
    let (first, second) = (Scene::new(), Scene::new());
    let mut one = Capture::begin(&first.stream).unwrap();
    one.record(EmptyOp::new()).unwrap();
    let event = first.stream.record_event(None).unwrap();
    let failed = Graph::capture(&second.stream, |c| Ok(c.stream().wait(&event)?));
    let found = why(failed.unwrap_err());
    assert_eq!(found.code(), R::CUDA_ERROR_STREAM_CAPTURE_MERGE);
    assert!(
        found
            .to_string()
            .contains("record both parts into one capture"),
        "{found}"
    );
    let info = CaptureInfo::of(&first.stream).unwrap();
    assert_eq!(info.status, CaptureStatus::Invalidated);
    assert!(info.is_capturing() && info.graph.is_null() && info.dependencies.is_empty());
    assert_eq!(found.begun.file(), file!());
    let found = why(one.end().unwrap_err());
    assert_eq!(found.code(), INVALIDATED, "{found}");
    first.is_clean("merge");
    second.is_clean("merge");
}

#[test]
fn ending_on_another_thread_by_other_code() {
    let scene = Scene::new();
    let capture = Capture::begin(&scene.stream).unwrap();
    let stream = scene.stream.clone();
    let end = move || {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is alive.
        unsafe { sys::cuStreamEndCapture(stream.cu_stream(), &mut graph) }
    };
    let answer = thread::spawn(end).join().unwrap();
    assert_eq!(answer, R::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    let found = why(capture.end().unwrap_err());
    assert_eq!(found.source.0, R::CUDA_ERROR_ILLEGAL_STATE);
    assert!(
        found.to_string().contains("leave the end to this library"),
        "{found}"
    );
    scene.is_clean("ended on another thread");
}

#[test]
fn ending_a_branch_by_other_code() {
    let scene = Scene::new();
    let capture = Capture::begin(&scene.stream).unwrap();
    let (joint, [mut one]) = capture.split().unwrap();
    one.record(EmptyOp::new()).unwrap();
    scene.uses(one.stream());
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive.
    let answer = unsafe { sys::cuStreamEndCapture(one.stream().cu_stream(), &mut graph) };
    assert_eq!(answer, R::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    let error = joint.join([one]).unwrap_err();
    assert!(
        matches!(&error, Error::Call { source, .. } if source.0 == INVALIDATED),
        "{error:?}"
    );
    scene.is_clean("a branch that was ended");
}

/// The streams of two threads have one handle: the end of a capture of one is not kept from it by a later one of the other.
#[test]
fn each_threads_own_stream_is_ended_by_itself() {
    let context = context();
    let (first, second) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
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
            first.wait();
            let mut capture = Capture::begin(&own).unwrap();
            second.wait();
            capture.record(cuda_graph::EmptyOp::new()).unwrap();
            assert_eq!(capture.end().unwrap().nodes().unwrap().len(), 1);
        });
    });
}
