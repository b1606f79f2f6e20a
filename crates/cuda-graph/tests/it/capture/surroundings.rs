//! Recordings and the rest of a context: cudarc's events, and what waits for everything on the
//! device.
//!
//! What would disturb the captures of other tests, or be disturbed by them, runs in a process of
//! its own.

use std::thread;

use cuda_graph::cudarc::driver::PushKernelArg;
use cuda_graph::cudarc::driver::result::{self, stream::StreamKind};
use cuda_graph::cudarc::driver::sys::CUresult as R;
use cuda_graph::{Buffer, Capture, CaptureInfo, CaptureMode, Captured, Error, Graph, Result};

use super::invalidation::{Call, INVALIDATED, UNSUPPORTED, other, spoilt, survives, why};
use super::scene::{Scene, foreign, launch_store};
use crate::fixture::{add, context, function, in_process, one, store, words};

/// cudarc has streams wait for the events of its slices, which were recorded outside of the block.
#[test]
fn event_tracking_is_named_where_it_breaks_a_capture() {
    let scene = Scene::new();
    // SAFETY: slices that were made without events are not used by several streams.
    unsafe { scene.context.enable_event_tracking() };
    let mut slice = scene.stream.alloc_zeros::<u32>(1).unwrap();
    let stores = function("store");
    let isolated = R::CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    let off = "CudaContext::disable_event_tracking";

    // A launch says so; a fill leaves it to the next call that can say something.
    let failed = Graph::capture(&scene.stream, |path| {
        foreign(path, |stream| {
            let mut launch = stream.launch_builder(&stores);
            launch.arg(&mut slice).arg(&3u32);
            // SAFETY: `store` writes one word.
            unsafe { launch.launch(one()) }?;
            Ok(())
        })
    });
    let found = why(failed.unwrap_err());
    assert!(matches!(&found.call, Some(Error::Foreign { code }) if *code == isolated));
    assert!(found.to_string().contains(off), "{found}");
    for swallowed in [false, true] {
        let failed = Graph::capture(&scene.stream, |path| {
            foreign(path, |stream| {
                let filled = stream.memset_zeros(&mut slice);
                if swallowed {
                    return Ok(());
                }
                Ok(filled?)
            })
        });
        let found = why(failed.unwrap_err());
        assert!(
            matches!(&found.call, Some(Error::Foreign { code }) if *code == isolated),
            "{found:?}"
        );
        assert!(found.to_string().contains(off), "{found}");
        assert_eq!(scene.context.check_err(), Ok(()));
    }
    let ran = Graph::capture_or_run(&scene.stream, |r| {
        // SAFETY: the slice outlives the work.
        unsafe { r.foreign(|stream| Ok(stream.memset_zeros(&mut slice)?)) }
    });
    assert!(matches!(ran, Ok(Captured::Ran(..))), "{ran:?}");
    // What it has nothing to do with is told without it.
    let failed = Graph::capture(&scene.stream, |path| {
        foreign(path, |stream| Ok(stream.synchronize()?))
    });
    assert!(!failed.unwrap_err().to_string().contains(off));

    // SAFETY: the slice is used in one stream alone.
    unsafe { scene.context.disable_event_tracking() };
    let (graph, ()) = Graph::capture(&scene.stream, |path| {
        foreign(path, |stream| {
            stream.memset_zeros(&mut slice)?;
            let mut launch = stream.launch_builder(&stores);
            launch.arg(&mut slice).arg(&7u32);
            // SAFETY: `store` writes one word.
            unsafe { launch.launch(one()) }?;
            Ok(())
        })
    })
    .unwrap();
    graph.instantiate().unwrap().launch(&scene.stream).unwrap();
    assert_eq!(scene.stream.clone_dtoh(&slice).unwrap(), [7]);
    let failed = Graph::capture(&scene.stream, |path| {
        foreign(path, |stream| {
            let event = other(&scene).record_event(None)?;
            Ok(stream.wait(&event)?)
        })
    });
    assert!(!failed.unwrap_err().to_string().contains(off));
    drop(slice);
    scene.is_clean("event tracking");
}

/// Memory of the library is none of cudarc's tracked slices.
#[test]
fn operations_work_where_cudarc_tracks_events() {
    let scene = Scene::of(context());
    assert!(scene.context.is_managing_stream_synchronization());
    let buffer = Buffer::from(scene.stream.clone_htod(&[5u32]).unwrap());
    let (graph, ()) = Graph::capture(&scene.stream, |c| {
        c.parallel(&mut [&mut |r| r.record(store(&buffer, 6)).map(drop)])?;
        c.record(add(&buffer, &buffer)).map(drop)
    })
    .unwrap();
    graph.instantiate().unwrap().launch(&scene.stream).unwrap();
    assert_eq!(buffer.to_host(&scene.stream).unwrap(), [12]);
}

#[test]
fn what_concerns_the_whole_device_is_told() {
    for case in ["whole_context", "global_mode", "default_stream_beside"] {
        in_process(&format!("capture::surroundings::{case}"), &[]);
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn whole_context() {
    let told = "do that before or after the capture";
    spoilt(
        "context",
        Call::Foreign(UNSUPPORTED),
        INVALIDATED,
        told,
        |scene, _| Ok(scene.context.synchronize()?),
    );
    spoilt(
        "elsewhere",
        Call::Unknown,
        INVALIDATED,
        "a synchronization",
        |scene, _| {
            let context = scene.context.clone();
            thread::spawn(move || context.synchronize().is_err())
                .join()
                .expect("it does not panic");
            Ok(())
        },
    );
    // Of two recordings with one context, both, whatever mode their blocks have.
    let (first, second) = (Scene::new(), Scene::new());
    let one = Capture::begin(&first.stream).unwrap();
    let two = Capture::begin_as(&second.stream, CaptureMode::Relaxed).unwrap();
    assert!(first.context.synchronize().is_err());
    why(one.end().unwrap_err());
    why(two.end().unwrap_err());
    first.is_clean("two recordings");
    second.is_clean("two recordings");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn global_mode() {
    let scene = Scene::new();
    assert!(!survives(&scene, CaptureMode::Global, false));
    assert!(!survives(&scene, CaptureMode::Global, true));
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn default_stream_beside() {
    let scene = Scene::new();
    let raw = result::stream::create(StreamKind::Default).unwrap();
    // SAFETY: the stream is never destroyed.
    let blocking = unsafe { scene.context.wrap_borrowed_stream(raw) };
    let legacy = scene.context.default_stream();
    let implicit = R::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    let info = Graph::capture(&blocking, |path| {
        foreign(path, |_| CaptureInfo::of(&legacy).map(drop))
    });
    let found = why(info.unwrap_err());
    assert!(
        matches!(&found.call, Some(Error::Call { code, .. }) if *code == implicit),
        "{found}"
    );
    let told = "as `CudaContext::new_stream` makes them";
    let invalidated = |result: Result<()>| {
        let found = why(result.unwrap_err());
        assert!(
            matches!(&found.call, Some(Error::Foreign { code }) if *code == implicit),
            "{found}"
        );
        assert!(found.to_string().contains(told), "{found}");
    };
    for elsewhere in [false, true] {
        let launch = || launch_store(&legacy, &scene.a, 10);
        let failed = Graph::capture(&blocking, |path| match elsewhere {
            // Between blocks.
            true => launch(),
            false => foreign(path, |_| launch()),
        });
        invalidated(failed.map(drop));
    }
    scene.uses(&blocking);
    scene.is_clean("the default stream");
    // Streams that do not wait for it do not mind.
    let (graph, ()) = Graph::capture(&scene.stream, |c| {
        c.record(store(&scene.a, 10))?;
        let record = || Ok(legacy.context().new_event(None)?.record(&legacy)?);
        record()?;
        foreign(c, |_| record())
    })
    .unwrap();
    graph.instantiate().unwrap().launch(&scene.stream).unwrap();
    assert_eq!(words(&legacy, &[1]).to_host(&legacy).unwrap(), [1]);
    assert_eq!(scene.a.to_host(&scene.stream).unwrap(), [10]);
}
