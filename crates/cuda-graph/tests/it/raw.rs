//! The way down and up again: raw handles of graphs and executables.

use std::sync::Arc;

use cuda_graph::cudarc::driver::sys;
use cuda_graph::{Buffer, Error, Exec, FillOp, Graph, HostOp, KernelOp};

use crate::door::Door;
use crate::fixture::{Watch, Watched, add, assert_soon, context, store, stream, words};

fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}

#[test]
fn raw_graphs_and_executables_are_like_the_rest() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let made = graph();
    let node = made.add(store(&a, 1), ()).unwrap();
    // SAFETY: `made` outlives the handle; one thread uses both.
    let seen = unsafe { Graph::from_raw_borrowed(made.raw().unwrap(), &context()) };
    // SAFETY: the node is one of that graph.
    let same = unsafe { seen.node_from_raw(made.raw_node(node).unwrap()) }.unwrap();
    let b = words(&stream, &[0]);
    seen.add(add(&b, &a), same).unwrap();
    let mut exec = seen.instantiate().unwrap();
    exec.update(same.typed::<KernelOp>().unwrap(), store(&a, 6))
        .unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(b.to_host(&stream).unwrap(), [6]);
    // SAFETY: `exec` outlives the handle; one thread uses both.
    let mut other =
        unsafe { cuda_graph::Exec::from_raw_borrowed(exec.raw(), &context(), Some(&seen)) };
    other
        .update(same.typed::<KernelOp>().unwrap(), store(&a, 4))
        .unwrap();
    other.launch(&stream).unwrap();
    assert_eq!(b.to_host(&stream).unwrap(), [10]);
    // SAFETY: as above.
    let mut blind = unsafe { cuda_graph::Exec::from_raw_borrowed(exec.raw(), &context(), None) };
    assert!(matches!(
        blind.update(same.typed::<KernelOp>().unwrap(), store(&a, 4)),
        Err(Error::UnknownSource)
    ));
    drop((seen, blind, other));
    assert_eq!(made.nodes().unwrap().len(), 2);
}

/// A graph made by the driver alone, with one fill.
fn foreign(to: &Buffer<u32>, value: u32) -> (sys::CUgraph, sys::CUgraphNode) {
    let (mut graph, mut node) = (std::ptr::null_mut(), std::ptr::null_mut());
    let params = sys::CUDA_MEMSET_NODE_PARAMS {
        dst: to.address(),
        pitch: 0,
        value,
        elementSize: 4,
        width: to.len(),
        height: 1,
    };
    // SAFETY: the places for answers are there, the context is alive, the buffer outlives the graph
    // in the tests below.
    let made = unsafe {
        let created = sys::cuGraphCreate(&mut graph, 0);
        assert_eq!(created, sys::CUresult::CUDA_SUCCESS);
        let context = context().cu_ctx();
        sys::cuGraphAddMemsetNode(&mut node, graph, std::ptr::null(), 0, &params, context)
    };
    assert_eq!(made, sys::CUresult::CUDA_SUCCESS);
    (graph, node)
}

#[test]
fn a_graph_made_elsewhere_is_inspected_run_updated_and_extended() {
    let stream = stream();
    let a = words(&stream, &[0; 2]);
    let (raw, raw_node) = foreign(&a, 3);
    // SAFETY: the graph is nobody else's; the buffer outlives it.
    let graph = unsafe { Graph::from_raw(raw, &context()) };
    assert_eq!(graph.raw().unwrap(), raw);
    // SAFETY: the node is one of that graph.
    let node = unsafe { graph.node_from_raw(raw_node) }.unwrap();
    assert_eq!(graph.nodes().unwrap(), [node]);
    assert_eq!(graph.raw_node(node).unwrap(), raw_node);
    let fill = node.typed::<FillOp>().unwrap();
    let read = graph.op(fill).unwrap();
    assert_eq!(
        (read.value(), read.size()),
        (&3u32.to_le_bytes()[..], (2, 1))
    );
    assert!(!read.to().is_owned());

    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [3, 3]);
    exec.update(fill, FillOp::new(&a, 4u32).unwrap()).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [4, 4]);
    exec.disable(fill).unwrap();
    a.copy_from_host(&stream, &[0, 0]).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [0, 0]);

    graph.update(fill, FillOp::new(&a, 5u32).unwrap()).unwrap();
    graph.add(add(&a, &a), fill).unwrap();
    let clone = graph.try_clone().unwrap();
    drop(graph);
    clone.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [10, 5]);
    assert!(clone.dot().unwrap().contains("fill"));
}

/// Whose drop is seen, as an owner.
struct Held(#[expect(dead_code, reason = "its drop is what counts")] Watched);

/// A call that holds something whose drop is seen.
fn watched_call() -> (HostOp, Watch) {
    let (watch, watched) = Watch::new();
    let held = Held(watched);
    let call = HostOp::new(move || {
        let _ = &held;
    });
    (call, watch)
}

fn assert_alive(watch: &Watch) {
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert!(!watch.is_dropped(), "dropped early");
}

#[test]
fn a_graph_taken_over_is_destroyed_and_a_borrowed_one_is_not() {
    let stream = stream();
    let a = words(&stream, &[0; 2]);
    for borrowed in [false, true] {
        let (raw, _) = foreign(&a, 3);
        let (call, watch) = watched_call();
        let mut object = std::ptr::null_mut();
        let (flag, seen) = Watch::new();
        // SAFETY: the payload is a box, which `let_go` takes back once; the graph is there.
        unsafe {
            let payload = Box::into_raw(Box::new(Held(seen))).cast();
            sys::cuUserObjectCreate(&mut object, payload, Some(let_go), 1, 1)
                .result()
                .unwrap();
            sys::cuGraphRetainUserObject(raw, object, 1, 1)
                .result()
                .unwrap();
        }
        // SAFETY: the graph is this test's, which destroys a borrowed one after the handle.
        let graph = unsafe {
            if borrowed {
                Graph::from_raw_borrowed(raw, &context())
            } else {
                Graph::from_raw(raw, &context())
            }
        };
        graph.add(call, ()).unwrap();
        graph.raw_with_owners().unwrap();
        drop(graph);
        if borrowed {
            // Handed over to the driver's graph, which is there.
            assert_alive(&watch);
            assert_alive(&flag);
            // SAFETY: no handle is left.
            unsafe { sys::cuGraphDestroy(raw) }.result().unwrap();
        }
        assert_soon(|| flag.is_dropped(), "the graph leaks");
        assert_soon(|| watch.is_dropped(), "an owner leaks");
    }
}

/// Takes back a payload.
unsafe extern "C" fn let_go(payload: *mut std::ffi::c_void) {
    // SAFETY: the test made it of such a box, and the driver gives it once.
    drop(unsafe { Box::from_raw(payload.cast::<Held>()) });
}

#[test]
fn a_borrowed_graph_lets_go_with_its_handle() {
    let stream = stream();
    let a = words(&stream, &[0; 2]);
    let (raw, _) = foreign(&a, 3);
    let (call, watch) = watched_call();
    // SAFETY: the graph is this test's, which destroys it after the handle and never runs it.
    let graph = unsafe { Graph::from_raw_borrowed(raw, &context()) };
    graph.add(call, ()).unwrap();
    assert_alive(&watch);
    drop(graph);
    assert_soon(|| watch.is_dropped(), "an owner leaks");
    // SAFETY: no handle is left.
    unsafe { sys::cuGraphDestroy(raw) }.result().unwrap();
}

#[test]
fn what_foreign_code_makes_of_a_handle_with_owners_holds_them() {
    let stream = stream();
    let door = Arc::new(Door::default());
    let (call, watch) = watched_call();
    let graph = graph();
    let first = graph.add(door.op(), ()).unwrap();
    graph.add(call, first).unwrap();
    let (mut clone, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the graph is there, and the places for answers are.
    unsafe {
        let raw = graph.raw_with_owners().unwrap();
        sys::cuGraphClone(&mut clone, raw).result().unwrap();
    }
    drop(graph);
    assert_alive(&watch);
    // SAFETY: as above, of the clone.
    unsafe {
        sys::cuGraphInstantiateWithFlags(&mut exec, clone, 0)
            .result()
            .unwrap();
        sys::cuGraphDestroy(clone).result().unwrap();
    }
    assert_alive(&watch);
    door.close();
    // SAFETY: the executable is there until it is destroyed, and its launch holds what it needs.
    unsafe {
        sys::cuGraphLaunch(exec, stream.cu_stream())
            .result()
            .unwrap();
        door.until_someone_waits();
        sys::cuGraphExecDestroy(exec).result().unwrap();
    }
    assert_alive(&watch);
    door.open();
    stream.synchronize().unwrap();
    assert_soon(|| watch.is_dropped(), "an owner leaks");
}

#[test]
fn an_executable_taken_over_holds_what_updates_gave() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let first = graph.add(HostOp::new(|| {}), ()).unwrap();
    let node = graph.add(HostOp::new(|| {}), first).unwrap();
    graph.add(store(&a, 1), node).unwrap();
    let mut raw = std::ptr::null_mut();
    // SAFETY: the place for the answer is there, the graph is alive.
    let made = unsafe { sys::cuGraphInstantiateWithFlags(&mut raw, graph.raw().unwrap(), 0) };
    assert_eq!(made, sys::CUresult::CUDA_SUCCESS);
    // SAFETY: made from that graph, and nobody else's.
    let mut exec = unsafe { Exec::from_raw(raw, &context(), Some(&graph)) };
    assert!(!exec.options().unwrap().auto_free);

    let door = Arc::new(Door::default());
    let (call, watch) = watched_call();
    exec.update(first, door.op()).unwrap();
    exec.update(node, call).unwrap();
    door.close();
    exec.launch(&stream).unwrap();
    door.until_someone_waits();
    drop(exec);
    assert_alive(&watch);
    door.open();
    assert_eq!(a.to_host(&stream).unwrap(), [1]);
    assert_soon(|| watch.is_dropped(), "the executable leaks");
}

#[test]
fn an_executable_taken_over_is_updated_from_a_definition() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let node = graph.add(store(&a, 1), ()).unwrap();
    let mut raw = std::ptr::null_mut();
    // SAFETY: the place for the answer is there, the graph is alive.
    let made = unsafe { sys::cuGraphInstantiateWithFlags(&mut raw, graph.raw().unwrap(), 0) };
    assert_eq!(made, sys::CUresult::CUDA_SUCCESS);
    // SAFETY: made from that graph, and nobody else's.
    let mut exec = unsafe { Exec::from_raw(raw, &context(), Some(&graph)) };
    assert_eq!(exec.raw(), raw);
    let buffers = [words(&stream, &[0]), words(&stream, &[0])];
    let gone = buffers
        .each_ref()
        .map(|buffer| Arc::downgrade(&buffer.owner()));
    exec.update(node, store(&buffers[0], 2)).unwrap();
    let next = self::graph();
    next.add(store(&buffers[1], 3), ()).unwrap();
    exec.launch(&stream).unwrap();
    exec.update_from(&next).unwrap();
    drop(next);
    drop(buffers);
    assert_soon(|| gone[0].strong_count() == 0, "an update leaks");
    exec.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert!(gone[1].strong_count() > 0, "the executable uses it");
    drop(exec);
    assert_soon(|| gone[1].strong_count() == 0, "an update leaks");
}
