//! Work that reaches the stream of a recording outside of a foreign block: the recording fails and
//! names it, nothing of it runs, and the stream works on.

use cuda_graph::{
    Capture, Captured, CopyOp, EmptyOp, Error, Graph, NodeKind, Path, Recorder, Result, StrayWork,
};

use super::guards::mark;
use super::scene::{Before, Scene, foreign, launch_add, launch_store};
use crate::fixture::{store, words};

#[track_caller]
fn stray(error: Error) -> Box<StrayWork> {
    let text = error.to_string();
    let Error::StrayWork(stray) = error else {
        panic!("{error:?}");
    };
    assert_eq!(stray.begun.file(), file!());
    for part in [
        "stray.rs",
        "outside of a foreign block",
        "inside of `foreign`",
    ] {
        assert!(text.contains(part), "{text}");
    }
    stray
}

/// What follows stray work, and what it is then said to be before.
type Next = (
    &'static str,
    fn(&Scene, &mut Path) -> Result<()>,
    Option<&'static str>,
);

const NEXT: [Next; 6] = [
    ("the end", |_, _| Ok(()), None),
    (
        "an operation",
        |_, path| path.record(EmptyOp::new().label("next")).map(drop),
        Some("next"),
    ),
    ("a block", |_, path| foreign(path, |_| Ok(())), None),
    (
        "a branch",
        |_, path| path.parallel(&mut [&mut |r| r.record(EmptyOp::new().label("in")).map(drop)]),
        Some("in"),
    ),
    (
        "a loop",
        |scene, path| path.while_nonzero(&scene.a, |_| Ok(())),
        None,
    ),
    (
        "an error of the step's own",
        |_, _| Err(Error::other(std::io::Error::other("own"))),
        None,
    ),
];

#[test]
fn it_is_named_with_what_is_around_it() {
    let scene = Scene::new();
    let b = words(&scene.stream, &[0]);
    for (what, next, before) in NEXT {
        for first in [false, true] {
            let failed = Graph::capture(&scene.stream, |path| {
                mark(&scene, path)?;
                if !first {
                    path.record(scene.ops.store_a.clone().label("last"))?;
                }
                launch_store(&scene.stream, &scene.a, 99)?;
                launch_add(&scene.stream, &b, &scene.a)?;
                next(&scene, path)
            });
            let found = stray(failed.map(drop).expect_err(what));
            assert_eq!(found.stream, scene.stream.cu_stream() as usize, "{what}");
            let names: Vec<_> = found.found.iter().map(|node| &node.kernel).collect();
            let name = |name: &str| Some(name.into());
            assert_eq!(names, [&name("store"), &name("add")], "{what}");
            let after = found.after.as_ref().expect(what);
            match first {
                true => assert_eq!(after.kind, NodeKind::Host, "{what}"),
                false => assert_eq!(after.label.as_deref(), Some("last"), "{what}"),
            }
            assert_eq!(
                found.before.and_then(|node| node.label).as_deref(),
                before,
                "{what}"
            );
            scene.is_clean(what);
        }
    }
    let failed = Graph::capture(&scene.stream, |_| launch_store(&scene.stream, &scene.a, 99));
    let error = failed.unwrap_err();
    assert!(
        error.to_string().contains("after: the beginning"),
        "{error}"
    );
    assert!(stray(error).after.is_none());
    assert_eq!(scene.a.to_host(&scene.stream).unwrap(), [0], "nothing ran");
}

/// The example of the issue: code in a body launches on the outer stream, which it has a clone of.
#[test]
fn it_is_found_in_bodies_and_branches() {
    let scene = Scene::new();
    let stream = &scene.stream;
    let launch = |r: &mut dyn Recorder| {
        r.record(store(&scene.a, 1).label("in the body"))?;
        launch_store(stream, &scene.a, 99)?;
        Ok(())
    };
    type Record<'a> = &'a dyn Fn(&mut Path) -> Result<()>;
    let places: [Record<'_>; 4] = [
        &|path| path.while_nonzero(&scene.a, launch),
        &|path| path.if_else_nonzero(&scene.a, |_| Ok(()), launch),
        &|path| path.if_nonzero(&scene.a, |r| r.do_while_nonzero(&scene.a, launch)),
        &|path| path.parallel(&mut [&mut |_| Ok(()), &mut |r| launch(r)]),
    ];
    for (index, record) in places.iter().enumerate() {
        let what = format!("place {index}");
        let failed = Graph::capture(stream, |path| {
            mark(&scene, path)?;
            record(path)
        });
        let found = stray(failed.map(drop).expect_err(&what));
        let label = found.after.and_then(|node| node.label);
        assert_eq!(label.as_deref(), Some("in the body"), "{what}");
        assert_eq!(found.found.len(), 1, "{what}");
        scene.is_clean(&what);
        // The same step runs, and the launch with it, where there is no graph.
        let ran = Graph::capture_or_run(stream, |r| launch(r));
        assert!(matches!(ran, Err(Error::StrayWork(_))), "{ran:?}");
    }
    assert_eq!(scene.a.to_host(stream).unwrap(), [0], "nothing ran");
}

/// A recording with stray work in it stays failed, also for guards, whatever else is done.
#[test]
fn a_recording_that_it_reached_stays_failed() {
    let scene = Scene::new();
    let before = Before::new(&scene);
    for into in [false, true] {
        let mut capture = match into {
            false => Capture::begin(&scene.stream),
            true => Capture::begin_into(&scene.stream, &before.graph, ()),
        }
        .unwrap();
        mark(&scene, &mut *capture).unwrap();
        launch_store(&scene.stream, &scene.a, 99).unwrap();
        for _ in 0..2 {
            stray(capture.record(EmptyOp::new()).unwrap_err());
            // SAFETY: no work is done.
            stray(unsafe { capture.begin_foreign() }.map(drop).unwrap_err());
        }
        stray(capture.end().unwrap_err());
        scene.is_clean("guards");
        before.is_as_before(&scene, "guards");
    }
    // Branches that were split off before know of it too.
    let capture = Capture::begin(&scene.stream).unwrap();
    let (joint, [mut left, right]) = capture.split().unwrap();
    launch_store(&scene.stream, &scene.a, 99).unwrap();
    stray(left.record(EmptyOp::new()).unwrap_err());
    stray(joint.join([left, right]).unwrap().end().unwrap_err());
    scene.is_clean("branches");
    // A closure that swallows the error.
    let failed = Graph::capture(&scene.stream, |path| {
        launch_store(&scene.stream, &scene.a, 99)?;
        assert!(path.record(EmptyOp::new()).is_err());
        Ok(())
    });
    stray(failed.unwrap_err());
    scene.is_clean("swallowed");
}

/// What comes by way of another stream, which waits for the one that is held.
#[test]
fn it_is_found_when_a_fork_brings_it() {
    let scene = Scene::new();
    let side = scene.context.new_stream().unwrap();
    for joined in [false, true] {
        let failed = Graph::capture(&scene.stream, |path| {
            path.record(scene.ops.store_a.clone())?;
            side.join(&scene.stream)?;
            launch_store(&side, &scene.a, 99)?;
            if joined {
                scene.stream.join(&side)?;
            }
            path.record(EmptyOp::new().label("next")).map(drop)
        });
        let found = stray(failed.unwrap_err());
        assert_eq!(found.found.len(), 1);
        // What did not come back is found in the end, or where a block begins.
        let before = found.before.and_then(|node| node.label);
        assert_eq!(before.as_deref(), joined.then_some("next"));
        scene.uses(&side);
        scene.is_clean("a fork");
    }
}

/// Typed operations given to the held stream by this library's own calls are refused at once.
#[test]
fn the_librarys_own_calls_are_no_stray_work() {
    let scene = Scene::new();
    let b = words(&scene.stream, &[0]);
    let graph = Graph::new(&scene.context).unwrap();
    graph.add(CopyOp::new(&b, &scene.a).unwrap(), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    let failed = Graph::capture(&scene.stream, |path| {
        path.record(scene.ops.store_a.clone())?;
        exec.launch(&scene.stream)
    });
    let error = failed.unwrap_err();
    assert!(matches!(&error, Error::CaptureInvalidated(_)), "{error:?}");
    scene.is_clean("an executable");
    let done = Graph::capture_or_run(&scene.stream, |r| {
        r.record(scene.ops.store_a.clone())?;
        // SAFETY: the executable outlives the work.
        unsafe { r.foreign(|stream| exec.launch(stream)) }
    });
    assert!(matches!(done, Ok(Captured::Ran(..))), "{done:?}");
    assert_eq!(b.to_host(&scene.stream).unwrap(), [1]);
}
