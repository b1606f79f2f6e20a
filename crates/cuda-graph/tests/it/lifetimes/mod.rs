//! What is kept and until when, seen by drops (invariants L3, L4, L5).

mod door;
mod matrix;

use std::sync::Arc;

use cuda_graph::{AnyOp, Buffer, EmptyOp, Graph, Node, Operation};

use crate::fixture::{context, store, stream, words};
use crate::resource::{Resource, Seen, each};
use door::Door;

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
        drop(graph);
        let (new, _, seen_new) = resource.make(stream);
        let (graph, _) = define(new);
        // A driver may let go of a child's own references when a per-node update replaced it, as an H200 does.
        if !matches!(resource, Resource::Child) {
            seen_old.assert_alive(case);
        }
        seen_extra.assert_alive(case);
        exec.update_from(&graph).unwrap();
        seen_extra.assert_dropped(&format!("{case}, given by a per-node update before"));
        seen_old.assert_dropped(&format!("{case}, of the first definition"));
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
        exec.update_from(&next).unwrap();
        drop((graph, next, exec));
        seen_extra.assert_alive(case);
        door.open();
        stream.synchronize().unwrap();
        seen_extra.assert_dropped(case);
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
        let Err(cuda_graph::Error::Update { .. }) = exec.update_from(&other) else {
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
    let exec = graph.instantiate().unwrap();
    drop(graph);
    // The last reference goes with the executable, on the reaper's thread.
    drop(exec);
    seen.assert_dropped("on the null stream");
    std::thread::sleep(std::time::Duration::from_millis(5));
    // cudarc notes an error of a drop and reports it here.
    context().check_err().unwrap();
}
