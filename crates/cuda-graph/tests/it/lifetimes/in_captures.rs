//! What goes while something is captured: it disturbs no capture, and is not lost.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use cuda_graph::{Capture, ChildOp, Error, FillOp, Graph, Kernel, PinnedBuffer, Result};

use super::call;
use crate::door::Door;
use crate::fixture::{assert_soon, context, load, store, stream, words};
use crate::resource::Seen;

/// Freeing, unloading and destroying are calls that a capture of the same thread forbids.
#[test]
fn whatever_is_dropped_in_a_capture_the_capture_goes_on() {
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
    let things: Vec<(&str, Box<dyn Any>)> = vec![
        ("executable", Box::new(exec())),
        ("launched executable", Box::new(launched)),
        ("executable in the null stream", Box::new(launched_in_null)),
        (
            "memory of the captured stream",
            Box::new(words(&captured, &[0])),
        ),
        ("memory of another stream", Box::new(words(&other, &[0]))),
        ("memory of the null stream", Box::new(words(&null, &[0]))),
        (
            "pinned memory",
            Box::new(PinnedBuffer::<u32>::zeroed(&context(), 4).unwrap()),
        ),
        ("module", Box::new(kernel)),
        ("graph", Box::new(graph)),
    ];
    captured.synchronize().unwrap();
    null.synchronize().unwrap();
    for (name, thing) in things {
        let mut capture = Capture::begin(&captured).unwrap();
        drop(thing);
        capture
            .record(FillOp::new(&word, 1u32).unwrap())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let graph = capture
            .end()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(graph.nodes().unwrap().len(), 1, "{name}");
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

/// A capture that fails leaves the graph as it was when the capture began, with what its nodes used then.
#[test]
fn what_a_failed_capture_takes_back_is_held() {
    let stream = stream();
    let (old, new) = (words(&stream, &[0]), words(&stream, &[0]));
    let seen = Seen::of_owner(&old.owner());
    let graph = Graph::new(&context()).unwrap();
    let node = graph.add(FillOp::new(&old, 1u32).unwrap(), ()).unwrap();
    let inner = Graph::new(&context()).unwrap();
    inner.add(FillOp::new(&old, 2u32).unwrap(), ()).unwrap();
    let child = graph.add(ChildOp::new(&inner), node).unwrap();
    drop(inner);
    let address = old.address();
    drop(old);
    let empty = Graph::new(&context()).unwrap();
    let mut extra = None;
    let failed: Result<()> = graph.capture_into(&stream, child, |c| {
        extra = Some(c.host(|| {})?);
        graph.update(node, FillOp::new(&new, 3u32)?)?;
        graph.update(child, ChildOp::new(&empty))?;
        Err(Error::GraphGone)
    });
    assert!(matches!(failed, Err(Error::GraphGone)), "{failed:?}");
    seen.assert_alive("the graph's nodes use it again");
    assert_eq!(graph.op(node).unwrap().to().address(), address);
    assert_eq!(graph.child(child).unwrap().nodes().unwrap().len(), 1);
    assert!(matches!(
        graph.op(extra.unwrap()),
        Err(Error::NodeGone { .. })
    ));
    graph.instantiate().unwrap().launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(new.to_host(&stream).unwrap(), [0]);
    drop(graph);
    seen.assert_dropped("nothing uses it");
}
