//! What is kept and until when, seen by drops (invariants L3, L4, L5).

mod in_captures;
mod matrix;
mod random;

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use cuda_graph::cudarc::driver::sys::CUresult;
use cuda_graph::cudarc::driver::{DriverError, LaunchConfig};
use cuda_graph::{
    AnyOp, Buffer, ChildOp, Eager, EmptyOp, Graph, HostOp, KernelOp, Node, Operation, RawMemory,
};

use crate::door::Door;
use crate::fixture::{
    Watch, Watched, assert_soon, context, in_process, kernel, one, store, stream, words,
};
use crate::resource::{Seen, each};

/// A graph with `op` as its only node, and the node. The operation's handle is gone.
fn define(op: AnyOp) -> (Graph, Node<AnyOp>) {
    let graph = Graph::new(&context()).unwrap();
    let node = graph.add(op, ()).unwrap();
    (graph, node)
}

#[test]
fn a_whole_update_lets_go_of_the_old_and_holds_the_new() {
    each(|resource, stream, case| {
        let (old, _, seen_old) = resource.make(stream);
        let (graph, node) = define(old);
        let mut exec = graph.instantiate().unwrap();
        let (extra, _, seen_extra) = resource.make(stream);
        exec.update(node, extra).unwrap();
        seen_old.assert_alive(case);
        drop(graph);
        seen_old.assert_dropped(&format!("{case}, of the first definition"));
        let (new, _, seen_new) = resource.make(stream);
        let (graph, _) = define(new);
        seen_extra.assert_alive(case);
        exec.update_in_place(&graph).unwrap();
        seen_extra.assert_dropped(&format!("{case}, given by a per-node update before"));
        drop(graph);
        seen_new.assert_alive(case);
        exec.launch(stream).unwrap();
        stream.synchronize().unwrap();
        drop(exec);
        seen_new.assert_dropped(case);
    });
}

#[test]
fn a_launch_in_flight_holds_what_both_updates_replaced() {
    each(|resource, stream, case| {
        let door = Arc::new(Door::default());
        let gated = |op: AnyOp| {
            let graph = Graph::new(&context()).unwrap();
            let first = graph.add(door.op(), ()).unwrap();
            let node = graph.add(op, first).unwrap();
            (graph, node)
        };
        let (old, _, seen_old) = resource.make(stream);
        let (graph, node) = gated(old);
        let mut exec = graph.instantiate().unwrap();
        let (extra, _, seen_extra) = resource.make(stream);
        exec.update(node, extra).unwrap();
        // Made before the launch: filling a buffer waits for the stream.
        let (next, _) = gated(resource.other(stream));
        door.close();
        exec.launch(stream).unwrap();
        door.until_someone_waits();
        exec.update_in_place(&next).unwrap();
        drop(exec);
        seen_extra.assert_alive(case);
        door.open();
        stream.synchronize().unwrap();
        seen_extra.assert_dropped(case);
        seen_old.assert_alive(case);
        // Not before: to free what nothing uses waits for the device.
        drop((graph, next));
        seen_old.assert_dropped(case);
    });
}

#[test]
fn a_failed_whole_update_changes_nothing() {
    each(|resource, stream, case| {
        let (op, _, seen) = resource.make(stream);
        let (graph, _) = define(op);
        let mut exec = graph.instantiate().unwrap();
        let other = Graph::new(&context()).unwrap();
        let (unused, _, seen_unused) = resource.make(stream);
        let first = other.add(EmptyOp::new(), ()).unwrap();
        other.add(unused, first).unwrap();
        let Err(cuda_graph::Error::Update { .. }) = exec.update_in_place(&other) else {
            panic!("another topology is refused");
        };
        drop((graph, other));
        seen_unused.assert_dropped(case);
        seen.assert_alive(case);
        exec.launch(stream).unwrap();
        stream.synchronize().unwrap();
        drop(exec);
        seen.assert_dropped(case);
    });
}

#[test]
fn operations_hold_what_they_use_before_they_are_added() {
    each(|resource, stream, case| {
        let (op, _, seen) = resource.make(stream);
        let copy = op.clone();
        drop(op);
        seen.assert_alive(case);
        drop(copy.into_any());
        seen.assert_dropped(case);
    });
}

#[test]
fn a_buffer_outlives_its_graphs_if_someone_has_it() {
    let stream = stream();
    let buffer: Buffer<u32> = words(&stream, &[0]);
    let graph = Graph::new(&context()).unwrap();
    graph.add(store(&buffer, 4), ()).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    drop(graph);
    assert_eq!(buffer.to_host(&stream).unwrap(), [4]);
}

#[test]
fn memory_of_the_null_stream_is_freed_by_a_thread_without_a_context() {
    let null = context().default_stream();
    let buffer = words(&null, &[0; 4]);
    let seen = Seen::of_owner(&buffer.owner());
    let graph = Graph::new(&context()).unwrap();
    graph.add(store(&buffer, 1), ()).unwrap();
    drop(buffer);
    let mut exec = graph.instantiate().unwrap();
    drop(graph);
    exec.launch(&null).unwrap();
    // The last reference goes with the launch, on the reaper's thread.
    drop(exec);
    seen.assert_dropped("on the null stream");
    std::thread::sleep(std::time::Duration::from_millis(5));
    // cudarc notes an error of a drop and reports it here.
    context().check_err().unwrap();
}

/// What does something when it is dropped, and says that it was.
struct Last<F: FnMut() + Send + Sync>(
    F,
    #[expect(dead_code, reason = "its drop is what counts")] Watched,
);

impl<F: FnMut() + Send + Sync> Drop for Last<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A call that holds something that does `last` when it is dropped.
fn call(last: impl FnMut() + Send + Sync + 'static) -> (HostOp, Watch) {
    let (watch, watched) = Watch::new();
    let held = Last(last, watched);
    let op = HostOp::new(move || {
        let _ = &held;
    });
    (op, watch)
}

#[test]
fn what_is_dropped_may_use_the_graph_that_held_it() {
    // Wherever the last reference goes, no lock of the library's is held: not in destroying, not in
    // replacing, not at the end.
    for replace in [false, true] {
        let graph = Graph::new(&context()).unwrap();
        let same = Mutex::new(Some(ChildOp::new(&graph).graph()));
        let (op, watch) = call(move || {
            let same = same.lock().unwrap().take().unwrap();
            same.nodes().unwrap();
            let node = same.add(EmptyOp::new(), ()).unwrap();
            same.destroy(node).unwrap();
        });
        let node = graph.add(op, ()).unwrap();
        if replace {
            graph.update(node, HostOp::new(|| {})).unwrap();
        } else {
            graph.destroy(node).unwrap();
        }
        assert_soon(|| watch.is_dropped(), "an owner leaks, or waits for a lock");
        assert_eq!(graph.nodes().unwrap().len(), usize::from(replace));
    }
}

#[test]
fn what_is_dropped_may_be_a_graph_with_all_it_holds() {
    let (op, watch) = call(|| {});
    let inner = Graph::new(&context()).unwrap();
    inner.add(op, ()).unwrap();
    let exec = inner.instantiate().unwrap();
    let both = Mutex::new(Some((inner, exec)));
    let (op, outer_watch) = call(move || drop(both.lock().unwrap().take()));
    let outer = Graph::new(&context()).unwrap();
    outer.add(op, ()).unwrap();
    let mut exec = outer.instantiate().unwrap();
    drop(outer);
    assert!(!watch.is_dropped());
    exec.launch(&stream()).unwrap();
    // Goes on the reaper's thread, which then drops a graph and an executable.
    drop(exec);
    assert_soon(
        || outer_watch.is_dropped() && watch.is_dropped(),
        "a graph leaks",
    );
}

#[test]
fn an_owner_that_panics_when_dropped_stops_nobody() {
    let stream = stream();
    let mut watches = Vec::new();
    for panics in [false, true, false] {
        let (op, watch) = call(move || assert!(!panics, "this panic is part of the test"));
        let graph = Graph::new(&context()).unwrap();
        graph.add(op, ()).unwrap();
        let mut exec = graph.instantiate().unwrap();
        drop(graph);
        exec.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        watches.push(watch);
    }
    for watch in watches {
        assert_soon(|| watch.is_dropped(), "an owner leaks");
    }
}

#[test]
fn an_owner_that_panics_when_dropped_keeps_no_other() {
    let stream = stream();
    let graph = Graph::new(&context()).unwrap();
    let mut watches = Vec::new();
    for panics in [false, false, true, false, false] {
        let (op, watch) = call(move || assert!(!panics, "this panic is part of the test"));
        graph.add(op, ()).unwrap();
        watches.push(watch);
    }
    let mut exec = graph.instantiate().unwrap();
    drop(graph);
    exec.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    drop(exec);
    for watch in watches {
        assert_soon(|| watch.is_dropped(), "an owner leaks");
    }
}

/// The thread that drops goes on whatever happens: without it, what is let go of would be dropped
/// at once, or never.
#[test]
fn a_panic_that_panics_when_dropped_stops_nobody() {
    struct Again;
    impl Drop for Again {
        fn drop(&mut self) {
            panic!("this panic is part of the test");
        }
    }
    let stream = stream();
    let door = Arc::new(Door::default());
    let in_flight = |op: HostOp| {
        let graph = Graph::new(&context()).unwrap();
        let first = graph.add(door.op(), ()).unwrap();
        graph.add(op, first).unwrap();
        let mut exec = graph.instantiate().unwrap();
        // The launch is to be the last that holds it: what goes on this thread panics there.
        drop(graph);
        exec.launch(&stream).unwrap();
    };
    let (op, watch) = call(|| std::panic::panic_any(Again));
    in_flight(op);
    stream.synchronize().unwrap();
    assert_soon(|| watch.is_dropped(), "an owner leaks");
    let (op, watch) = call(|| {});
    door.close();
    in_flight(op);
    door.until_someone_waits();
    std::thread::sleep(std::time::Duration::from_millis(10));
    assert!(!watch.is_dropped(), "the launch uses it");
    door.open();
    assert_soon(|| watch.is_dropped(), "an owner leaks");
}

/// What an operation holds may use the graph as it goes, whichever call lets it go: no lock is held
/// by then (L3).
#[test]
fn owners_may_use_the_graph_as_they_go() {
    /// Looks at a graph embedded in the one that it is used in: they are behind one lock.
    struct Looks(Mutex<Graph>, mpsc::Sender<usize>);
    impl Drop for Looks {
        fn drop(&mut self) {
            let view = self.0.get_mut().unwrap();
            self.1.send(view.nodes().unwrap().len()).unwrap();
        }
    }
    let (says, hears) = mpsc::channel();
    let refused = LaunchConfig {
        block_dim: (0, 1, 1),
        ..one()
    };
    let stream = stream();
    let word = words(&stream, &[0]);
    let inner = Graph::new(&context()).unwrap();
    inner.add(store(&word, 1), ()).unwrap();
    let op_that_looks = {
        let (word, says) = (word.clone(), says.clone());
        move |graph: &Graph, node: Node<ChildOp>, config| {
            let view = Mutex::new(graph.child(node).unwrap());
            let owner = Arc::new(Looks(view, says.clone()));
            // SAFETY: the word lives as long as the test.
            let memory = unsafe { RawMemory::device(word.address(), 4) }.owned_by(owner);
            // SAFETY: `store` writes one word.
            unsafe { KernelOp::new(kernel("store"), config, (memory, 2u32)) }.unwrap()
        }
    };
    // On a thread of its own, because a lock that is taken twice is waited for without end.
    let thread = std::thread::spawn(move || {
        let graph = Graph::new(&context()).unwrap();
        let node = graph.add(ChildOp::new(&inner), ()).unwrap();
        graph
            .add(op_that_looks(&graph, node, refused), ())
            .unwrap_err();
        let added = graph.add(op_that_looks(&graph, node, one()), ()).unwrap();
        graph
            .update(added, op_that_looks(&graph, node, refused))
            .unwrap_err();
        graph
            .update(added, op_that_looks(&graph, node, one()))
            .unwrap();
        graph.destroy(added).unwrap();
        let captured = Graph::capture_into(&graph, &stream, (), |path| {
            path.record(op_that_looks(&graph, node, refused)).map(drop)
        });
        captured.unwrap_err();
    });
    for which in 0..5 {
        let seen = hears.recv_timeout(Duration::from_secs(20));
        assert_eq!(seen.expect("no drop waits for its own call"), 1, "{which}");
    }
    thread.join().unwrap();
}

/// cudarc keeps an error that a drop could not answer with, and gives it to the next call about the
/// context, whatever it means.
#[test]
#[ignore = "run by the next test, in a process of its own"]
fn errors_are_left_in_the_context() {
    let stream = stream();
    let door = Arc::new(Door::default());
    let (op, watch) = call(|| {});
    let graph = Graph::new(&context()).unwrap();
    let first = graph.add(door.op(), ()).unwrap();
    graph.add(op, first).unwrap();
    let mut exec = graph.instantiate().unwrap();
    door.close();
    exec.launch(&stream).unwrap();
    door.until_someone_waits();
    let capture = cuda_graph::Capture::begin(&stream).unwrap();
    drop((graph, exec));
    let error = || {
        let left = CUresult::CUDA_ERROR_INVALID_HANDLE;
        context().record_err::<()>(Err(DriverError(left)));
    };
    for _ in 0..20 {
        error();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(!watch.is_dropped(), "the launch uses it");
    // Not this call's error, nor lost to it.
    Graph::new(&context()).unwrap();
    context().check_err().unwrap_err();
    drop(capture);
    door.open();
    stream.synchronize().unwrap();
    assert_soon(|| watch.is_dropped(), "an owner leaks");
}

#[test]
fn an_error_left_in_the_context_lets_nothing_go_early() {
    in_process("lifetimes::errors_are_left_in_the_context", &[]);
}

#[test]
fn one_owner_in_many_places_goes_with_the_last() {
    let stream = stream();
    let (op, watch) = call(|| {});
    let graph = Graph::new(&context()).unwrap();
    let nodes: Vec<_> = (0..4).map(|_| graph.add(op.clone(), ()).unwrap()).collect();
    let clone = graph.try_clone().unwrap();
    let mut exec = clone.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    drop((op, exec));
    for node in &nodes[1..] {
        graph.destroy(*node).unwrap();
    }
    drop(clone);
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert!(!watch.is_dropped(), "one node is left");
    graph.destroy(nodes[0]).unwrap();
    assert_soon(|| watch.is_dropped(), "an owner leaks");
}

/// Memory held is bounded by what runs, however often a node is updated (invariant L5).
#[test]
fn updating_again_and_again_does_not_gather_what_was_bound_before() {
    each(|resource, stream, case| {
        let (op, _, seen) = resource.make(stream);
        let (graph, node) = define(op);
        let mut exec = graph.instantiate().unwrap();
        drop(graph);
        // What is let go of in flight goes with the launch.
        exec.launch(stream).unwrap();
        let mut before = seen;
        for _ in 0..20 {
            let (op, _, seen) = resource.make(stream);
            exec.update(node, op).unwrap();
            before.assert_dropped(case);
            before = seen;
        }
        before.assert_alive(case);
        exec.launch(stream).unwrap();
        stream.synchronize().unwrap();
        drop(exec);
        before.assert_dropped(case);
    });
}

#[test]
fn graphs_executables_and_launches_move_between_threads() {
    let stream = stream();
    let (op, watch) = call(|| {});
    let graph = Graph::new(&context()).unwrap();
    let node = graph.add(op, ()).unwrap();
    let exec = std::thread::scope(|scope| {
        let made = scope.spawn(move || {
            let exec = graph.instantiate().unwrap();
            graph.destroy(node).unwrap();
            exec
        });
        made.join().unwrap()
    });
    let there = stream.clone();
    std::thread::spawn(move || {
        let mut exec = exec;
        exec.launch(&there).unwrap();
    })
    .join()
    .unwrap();
    stream.synchronize().unwrap();
    assert_soon(|| watch.is_dropped(), "an owner leaks");
}

/// A thread's own default stream is another stream on another thread.
#[test]
fn a_launch_in_a_threads_own_stream_holds_wherever_the_executable_is_dropped() {
    let own = context().per_thread_stream();
    let door = Arc::new(Door::default());
    let (op, watch) = call(|| {});
    let graph = Graph::new(&context()).unwrap();
    let first = graph.add(door.op(), ()).unwrap();
    graph.add(op, first).unwrap();
    let mut exec = graph.instantiate().unwrap();
    drop(graph);
    door.close();
    exec.launch(&own).unwrap();
    door.until_someone_waits();
    std::thread::spawn(move || drop(exec)).join().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(!watch.is_dropped(), "the launch uses it");
    door.open();
    own.synchronize().unwrap();
    assert_soon(|| watch.is_dropped(), "an owner leaks");
}

#[test]
fn launches_in_several_streams_hold_until_the_last_is_over() {
    let streams = [stream(), stream(), context().per_thread_stream(), stream()];
    let door = Arc::new(Door::default());
    let (op, watch) = call(|| {});
    let graph = Graph::new(&context()).unwrap();
    let first = graph.add(door.op(), ()).unwrap();
    graph.add(op, first).unwrap();
    // Each of the streams is the last once.
    for last in 0..streams.len() {
        let mut exec = graph.instantiate().unwrap();
        door.close();
        for stream in streams.iter().cycle().skip(last + 1).take(streams.len()) {
            exec.launch(stream).unwrap();
        }
        door.until_someone_waits();
        std::thread::spawn(move || drop(exec)).join().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        door.open();
        for stream in &streams {
            stream.synchronize().unwrap();
        }
    }
    assert!(!watch.is_dropped(), "the graph holds it");
    let mut exec = graph.instantiate().unwrap();
    drop(graph);
    door.close();
    for stream in &streams {
        exec.launch(stream).unwrap();
    }
    door.until_someone_waits();
    drop(exec);
    std::thread::sleep(std::time::Duration::from_millis(10));
    assert!(!watch.is_dropped(), "four launches use it");
    door.open();
    for stream in &streams {
        stream.synchronize().unwrap();
    }
    assert_soon(|| watch.is_dropped(), "an owner leaks");
}

#[test]
fn what_both_definitions_use_is_held_by_a_launch_of_the_first() {
    for own in [false, true] {
        let stream = if own {
            context().per_thread_stream()
        } else {
            stream()
        };
        let door = Arc::new(Door::default());
        let (op, watch) = call(|| {});
        let define = |op: HostOp| {
            let graph = Graph::new(&context()).unwrap();
            let first = graph.add(door.op(), ()).unwrap();
            graph.add(op, first).unwrap();
            graph
        };
        let (first, second) = (define(op.clone()), define(op));
        let mut exec = first.instantiate().unwrap();
        door.close();
        exec.launch(&stream).unwrap();
        door.until_someone_waits();
        exec.update_in_place(&second).unwrap();
        drop((first, second));
        // Never launched since the update, yet what it holds now is in use.
        drop(exec);
        std::thread::sleep(std::time::Duration::from_millis(10));
        assert!(!watch.is_dropped(), "the launch uses it");
        door.open();
        stream.synchronize().unwrap();
        assert_soon(|| watch.is_dropped(), "an owner leaks");
    }
}

#[test]
fn an_eager_recorder_holds_what_may_run_and_no_more() {
    let stream = stream();
    let mut eager = Eager::new(&stream).unwrap();
    // What the stream has not come to is held, also when the recorder is gone.
    let door = Arc::new(Door::default());
    door.close();
    let (watch, watched) = Watch::new();
    eager.record(door.op()).unwrap();
    eager
        .record(HostOp::new(move || drop_nothing(&watched)))
        .unwrap();
    drop(eager);
    door.until_someone_waits();
    assert!(!watch.is_dropped());
    door.open();
    stream.synchronize().unwrap();
    assert_soon(|| watch.is_dropped(), "what has run is held");

    // Many different owners do not gather.
    let mut eager = Eager::new(&stream).unwrap();
    let (first, watched) = Watch::new();
    eager
        .record(HostOp::new(move || drop_nothing(&watched)))
        .unwrap();
    for _ in 0..300 {
        eager.record(HostOp::new(|| {})).unwrap();
    }
    assert_soon(|| first.is_dropped(), "owners gather");

    // Reading a flag waits for all before it.
    let (watch, watched) = Watch::new();
    let flag = words(&stream, &[0]);
    eager
        .record(HostOp::new(move || drop_nothing(&watched)))
        .unwrap();
    assert!(!watch.is_dropped());
    eager.while_nonzero(&flag, |_| Ok(())).unwrap();
    assert!(watch.is_dropped());
}

fn drop_nothing<T>(_: &T) {}
