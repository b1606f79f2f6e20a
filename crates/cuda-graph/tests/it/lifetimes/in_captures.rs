//! What goes while something is recorded: it disturbs no capture, and is not lost.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use cuda_graph::{
    Capture, ChildOp, Error, FillOp, Graph, Kernel, Owner, Path, PinnedBuffer, Recorder, Result,
};

use super::call;
use crate::capture::scene::launch_store;
use crate::door::Door;
use crate::fixture::{assert_soon, context, load, store, stream, words};
use crate::resource::Seen;

/// Freeing, unloading and destroying are calls that a capture of the same thread forbids: in a
/// block and between blocks.
#[test]
fn whatever_is_dropped_in_a_recording_the_recording_goes_on() {
    for in_block in [false, true] {
        goes_on(in_block);
    }
}

fn goes_on(in_block: bool) {
    let (captured, other) = (stream(), stream());
    let null = context().default_stream();
    let word = words(&captured, &[0]);
    let graph = Graph::new(&context()).unwrap();
    graph.add(store(&word, 1), ()).unwrap();
    let exec = || graph.instantiate().unwrap();
    let mut launched = exec();
    launched.launch(&captured).unwrap();
    let mut launched_in_null = exec();
    launched_in_null.launch(&null).unwrap();
    let module = load();
    let kernel = Kernel::new(&module.load_function("store").unwrap()).unwrap();
    drop(module);
    let pinned = PinnedBuffer::<u32>::zeroed(&context(), 4).unwrap();
    let things: Vec<(&str, Box<dyn Any>)> = vec![
        ("executable", Box::new(exec())),
        ("launched executable", Box::new(launched)),
        ("executable in the null stream", Box::new(launched_in_null)),
        ("memory of the stream", Box::new(words(&captured, &[0]))),
        ("memory of another stream", Box::new(words(&other, &[0]))),
        ("memory of the null stream", Box::new(words(&null, &[0]))),
        ("pinned memory", Box::new(pinned)),
        ("module", Box::new(kernel)),
        ("graph", Box::new(graph)),
    ];
    captured.synchronize().unwrap();
    null.synchronize().unwrap();
    for (name, thing) in things {
        let mut thing = Some(thing);
        let graph = Graph::capture(&captured, |path| {
            path.record(FillOp::new(&word, 1u32)?)?;
            if !in_block {
                drop(thing.take());
            }
            // SAFETY: the word outlives the graph.
            unsafe {
                path.foreign(|stream| {
                    launch_store(stream, &word, 2)?;
                    drop(thing.take());
                    launch_store(stream, &word, 3)
                })
            }
        });
        let (graph, ()) = graph.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(graph.nodes().unwrap().len(), 2, "{name}");
        let child = graph.nodes().unwrap()[1].typed().unwrap();
        let inside = graph.child(child).unwrap().nodes().unwrap();
        assert_eq!(inside.len(), 2, "{name}");
    }
}

/// The reaper frees memory in the stream where it was allocated: not while that is captured.
#[test]
fn memory_whose_stream_is_captured_is_freed_afterwards() {
    let (captured, other) = (stream(), stream());
    let buffer = words(&captured, &[1]);
    let door = Arc::new(Door::default());
    let graph = Graph::new(&context()).unwrap();
    let first = graph.add(door.op(), ()).unwrap();
    let fill = FillOp::new(&buffer, 3u32).unwrap();
    let fill = graph.add(fill, first).unwrap();
    let (op, watch) = call(|| {});
    graph.add(op, fill).unwrap();
    let mut exec = graph.instantiate().unwrap();
    let seen = Seen::of_owner(&buffer.owner());
    let word = words(&other, &[1]);
    door.close();
    exec.launch(&other).unwrap();
    door.until_someone_waits();
    drop((graph, exec, buffer));
    let mut capture = Capture::begin(&captured).unwrap();
    door.open();
    assert_soon(|| watch.is_dropped(), "an owner leaks");
    seen.assert_dropped("the program's handles, and the launch's, are gone");
    std::thread::sleep(Duration::from_millis(10));
    capture.record(FillOp::new(&word, 1u32).unwrap()).unwrap();
    assert_eq!(capture.end().unwrap().nodes().unwrap().len(), 1);
}

/// A recording that fails takes nothing of its own along, and leaves what others did meanwhile.
#[test]
fn what_others_do_to_a_graph_outlives_a_failed_recording_into_it() {
    let stream = stream();
    let (old, new) = (words(&stream, &[0]), words(&stream, &[0]));
    let seen = Seen::of_owner(&old.owner());
    let graph = Graph::new(&context()).unwrap();
    let node = graph.add(FillOp::new(&old, 1u32).unwrap(), ()).unwrap();
    let inner = Graph::new(&context()).unwrap();
    inner.add(FillOp::new(&old, 2u32).unwrap(), ()).unwrap();
    let child = graph.add(ChildOp::new(&inner), node).unwrap();
    drop((inner, old));
    let empty = Graph::new(&context()).unwrap();
    let mut extra = None;
    let (op, watch) = call(|| {});
    let failed: Result<()> = graph.capture_into(&stream, child, |path| {
        extra = Some(path.record(op)?);
        graph.update(node, FillOp::new(&new, 3u32)?)?;
        seen.assert_alive("the embedded graph uses it");
        graph.update(child, ChildOp::new(&empty))?;
        Err(Error::GraphGone)
    });
    assert!(matches!(failed, Err(Error::GraphGone)), "{failed:?}");
    assert_soon(|| watch.is_dropped(), "the recording's operation leaks");
    seen.assert_dropped("others replaced what used it");
    assert!(matches!(
        graph.op(extra.unwrap()),
        Err(Error::NodeGone { .. })
    ));
    assert_eq!(graph.child(child).unwrap().nodes().unwrap().len(), 0);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(new.to_host(&stream).unwrap(), [3]);
}

/// What a block's work uses is kept on request, for as long as something can run it.
#[test]
fn what_is_kept_for_a_block_goes_with_what_runs_it() {
    let stream = stream();
    let word = words(&stream, &[0]);
    let record = |path: &mut Path, owner: Owner| {
        // SAFETY: the owner keeps the word.
        unsafe { path.foreign(|stream| launch_store(stream, &word, 1)) }?;
        path.keep(owner)
    };
    let into = || Graph::new(&context()).unwrap();
    // All there is, a node among others, in a body, in a graph that was there before.
    for place in 0..4 {
        let what = format!("place {place}");
        let seen_owner: Owner = Arc::new(());
        let seen = Seen::of_owner(&seen_owner);
        let mut owner = Some(seen_owner);
        let mut record = |path: &mut Path| record(path, owner.take().unwrap());
        let graph = match place {
            0 => Graph::capture(&stream, record).unwrap().0,
            1 => {
                let with_more = |path: &mut Path| {
                    record(path)?;
                    path.record(FillOp::new(&word, 1u32)?).map(drop)
                };
                Graph::capture(&stream, with_more).unwrap().0
            }
            2 => {
                let flag = words(&stream, &[0]);
                let in_body = |path: &mut Path| {
                    path.if_nonzero(&flag, |r| {
                        // SAFETY: as above.
                        unsafe { r.foreign(|stream| launch_store(stream, &word, 1)) }?;
                        r.keep(owner.take().unwrap())
                    })
                };
                Graph::capture(&stream, in_body).unwrap().0
            }
            _ => {
                let graph = into();
                graph.capture_into(&stream, (), record).unwrap();
                graph
            }
        };
        seen.assert_alive(&what);
        let mut exec = graph.instantiate().unwrap();
        drop(graph);
        exec.launch(&stream).unwrap();
        seen.assert_alive(&what);
        stream.synchronize().unwrap();
        drop(exec);
        seen.assert_dropped(&what);
    }
}
