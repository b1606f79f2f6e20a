//! What is kept and until when, seen by drops: each kind of resource, in each consumer, let go in each way (invariants L3, L4).

use std::ffi::c_void;
use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{
    AnyOp, Buffer, ChildOp, CopyOp, EmptyOp, FillOp, Graph, HostOp, Kernel, KernelOp, Node,
    Operation, Owner, RawMemory, RecordEventOp,
};

use crate::fixture::{Gate, Watch, Watched, context, kernel, load, one, store, stream, words};

/// The kinds of resources. Each makes an operation that uses one that nothing else keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Resource {
    Buffer,
    Slice,
    RawOwner,
    Module,
    Event,
    Closure,
    Data,
    Child,
}

const RESOURCES: [Resource; 8] = [
    Resource::Buffer,
    Resource::Slice,
    Resource::RawOwner,
    Resource::Module,
    Resource::Event,
    Resource::Closure,
    Resource::Data,
    Resource::Child,
];

/// Says when something whose drop nobody sees is gone: by a weak reference.
enum Seen {
    Watch(Watch),
    Weak(Box<dyn Fn() -> bool>),
}

impl Seen {
    fn is_dropped(&self) -> bool {
        match self {
            Seen::Watch(watch) => watch.is_dropped(),
            Seen::Weak(gone) => gone(),
        }
    }

    #[track_caller]
    fn assert_dropped(&self, when: &str) {
        crate::fixture::assert_soon(|| self.is_dropped(), &format!("leaked {when}"));
    }

    /// A while after whatever might have dropped it.
    #[track_caller]
    fn assert_alive(&self, when: &str) {
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(!self.is_dropped(), "dropped early {when}");
    }

    fn weak<T: Send + Sync + ?Sized + 'static>(arc: &Arc<T>) -> Seen {
        let weak = Arc::downgrade(arc);
        Seen::Weak(Box::new(move || weak.strong_count() == 0))
    }
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

impl Resource {
    /// An operation, and a way to see its resource go.
    fn op(self, stream: &Arc<CudaStream>) -> (AnyOp, Seen) {
        match self {
            Resource::Buffer => {
                let buffer = words(stream, &[0; 4]);
                let seen = Seen::weak(&buffer.owner());
                (store(&buffer, 1).into(), seen)
            }
            Resource::Slice => {
                let buffer = words(stream, &[0; 4]);
                let seen = Seen::weak(&buffer.owner());
                let slice = buffer.slice(1..3).unwrap();
                (FillOp::new(&slice, 1u32).unwrap().into(), seen)
            }
            Resource::RawOwner => {
                let (watch, watched) = Watch::new();
                let buffer = words(stream, &[0; 4]);
                let owner: Owner = Arc::new((Sendable(watched), buffer.clone()));
                // SAFETY: the owner keeps the buffer.
                let raw =
                    unsafe { RawMemory::device(buffer.address(), buffer.bytes()) }.owned_by(owner);
                let from = Arc::new(vec![1u32; 4]);
                (CopyOp::new(&raw, &from).unwrap().into(), Seen::Watch(watch))
            }
            Resource::Module => {
                let module = load();
                let seen = Seen::weak(&module);
                let function = Kernel::new(&module.load_function("bump").unwrap()).unwrap();
                let config = one();
                // SAFETY: with no elements, `bump` touches no memory.
                let op = unsafe { KernelOp::new(function, config, (0u64, 0u32)) }.unwrap();
                (op.into(), seen)
            }
            Resource::Event => {
                let event = Arc::new(context().new_event(None).unwrap());
                let seen = Seen::weak(&event);
                (RecordEventOp::new(&event).into(), seen)
            }
            Resource::Closure => {
                let (watch, watched) = Watch::new();
                let watched = Sendable(watched);
                let op = HostOp::new(move || {
                    let _ = &watched;
                });
                (op.into(), Seen::Watch(watch))
            }
            Resource::Data => {
                let (watch, watched) = Watch::new();
                let data = Arc::new(Sendable(watched));
                let at = Arc::as_ptr(&data).cast_mut().cast();
                // SAFETY: the function does nothing.
                let op = unsafe { HostOp::raw(nothing, at, Some(data)) };
                (op.into(), Seen::Watch(watch))
            }
            Resource::Child => {
                let inner = Graph::new(&context()).unwrap();
                let buffer = words(stream, &[0; 4]);
                let seen = Seen::weak(&buffer.owner());
                inner.add(store(&buffer, 1), ()).unwrap();
                (ChildOp::new(&inner).into(), seen)
            }
        }
    }

    /// An operation of the same kind that uses nothing of the first.
    fn other(self, stream: &Arc<CudaStream>) -> AnyOp {
        match self {
            Resource::Module => {
                // SAFETY: with no elements, `bump` touches no memory.
                unsafe { KernelOp::new(kernel("bump"), one(), (0u64, 0u32)) }
                    .unwrap()
                    .into()
            }
            other => other.op(stream).0,
        }
    }
}

/// Owners are shared between threads.
struct Sendable(#[expect(dead_code, reason = "its drop is what counts")] Watched);

/// A graph with `op` as its only node, and the node. The operation's handle is gone.
fn define(op: AnyOp) -> (Graph, Node<AnyOp>) {
    let graph = Graph::new(&context()).unwrap();
    let node = graph.add(op, ()).unwrap();
    (graph, node)
}

fn each(run: impl Fn(Resource, &Arc<CudaStream>, &str)) {
    let stream = stream();
    for resource in RESOURCES {
        run(resource, &stream, &format!("with {resource:?}"));
    }
}

#[test]
fn a_definition_holds_until_it_is_dropped() {
    each(|resource, stream, case| {
        let (op, seen) = resource.op(stream);
        let (graph, _) = define(op);
        seen.assert_alive(case);
        drop(graph);
        seen.assert_dropped(case);
    });
}

#[test]
fn a_definition_holds_until_the_node_is_destroyed() {
    each(|resource, stream, case| {
        let (op, seen) = resource.op(stream);
        let (graph, node) = define(op);
        seen.assert_alive(case);
        graph.destroy(node).unwrap();
        seen.assert_dropped(case);
    });
}

#[test]
fn a_definition_holds_until_the_operation_is_replaced() {
    each(|resource, stream, case| {
        let (op, seen) = resource.op(stream);
        let (graph, node) = define(op);
        seen.assert_alive(case);
        if resource == Resource::Child {
            // What the driver says to a definition's child given another graph is its business; nothing is lost either way.
            if graph.update(node, resource.other(stream)).is_err() {
                seen.assert_alive(case);
                graph.destroy(node).unwrap();
            }
        } else {
            graph.update(node, resource.other(stream)).unwrap();
        }
        seen.assert_dropped(case);
        graph.instantiate().unwrap().launch(stream).unwrap();
        stream.synchronize().unwrap();
    });
}

#[test]
fn a_clone_holds_by_itself() {
    each(|resource, stream, case| {
        let (op, seen) = resource.op(stream);
        let (graph, node) = define(op);
        let clone = graph.try_clone().unwrap();
        graph.destroy(node).unwrap();
        drop(graph);
        seen.assert_alive(case);
        clone.instantiate().unwrap().launch(stream).unwrap();
        stream.synchronize().unwrap();
        drop(clone);
        seen.assert_dropped(case);
    });
}

#[test]
fn a_clone_holds_until_its_node_is_destroyed_or_replaced() {
    each(|resource, stream, case| {
        for destroy in [true, false] {
            let (op, seen) = resource.op(stream);
            let (graph, node) = define(op);
            let clone = graph.try_clone().unwrap();
            let copy = graph.find_in_clone(node, &clone).unwrap();
            drop(graph);
            seen.assert_alive(case);
            if destroy || clone.update(copy, resource.other(stream)).is_err() {
                clone.destroy(copy).unwrap();
            }
            seen.assert_dropped(case);
        }
    });
}

#[test]
fn an_embedded_graph_holds_until_its_node_is_destroyed() {
    each(|resource, stream, case| {
        let (op, seen) = resource.op(stream);
        let (inner, _) = define(op);
        let outer = Graph::new(&context()).unwrap();
        let node = outer.add(ChildOp::new(&inner), ()).unwrap();
        drop(inner);
        seen.assert_alive(case);
        outer.instantiate().unwrap().launch(stream).unwrap();
        stream.synchronize().unwrap();
        outer.destroy(node).unwrap();
        seen.assert_dropped(case);
    });
}

#[test]
fn an_embedded_graph_holds_until_the_root_is_dropped_or_its_node_replaced() {
    each(|resource, stream, case| {
        for replace in [true, false] {
            let (op, seen) = resource.op(stream);
            let (inner, _) = define(op);
            let outer = Graph::new(&context()).unwrap();
            let node = outer.add(ChildOp::new(&inner), ()).unwrap();
            drop(inner);
            let view = outer.child(node).unwrap();
            if replace && resource != Resource::Child {
                let within = view.nodes().unwrap()[0].typed::<AnyOp>().unwrap();
                seen.assert_alive(case);
                view.update(within, resource.other(stream)).unwrap();
                outer.instantiate().unwrap().launch(stream).unwrap();
                stream.synchronize().unwrap();
                drop(outer);
            } else {
                drop(outer);
                seen.assert_alive(case);
            }
            drop(view);
            seen.assert_dropped(case);
        }
    });
}

#[test]
fn an_executable_holds_by_itself() {
    each(|resource, stream, case| {
        let (op, seen) = resource.op(stream);
        let (graph, node) = define(op);
        let mut exec = graph.instantiate().unwrap();
        graph.destroy(node).unwrap();
        seen.assert_alive(case);
        drop(graph);
        seen.assert_alive(case);
        exec.launch(stream).unwrap();
        stream.synchronize().unwrap();
        seen.assert_alive(case);
        drop(exec);
        seen.assert_dropped(case);
    });
}

#[test]
fn an_executable_holds_what_the_definition_replaced() {
    each(|resource, stream, case| {
        let (op, seen) = resource.op(stream);
        let (graph, node) = define(op);
        let mut exec = graph.instantiate().unwrap();
        if graph.update(node, resource.other(stream)).is_err() {
            assert_eq!(resource, Resource::Child);
        }
        seen.assert_alive(case);
        exec.launch(stream).unwrap();
        stream.synchronize().unwrap();
        seen.assert_alive(case);
        drop((exec, graph));
        seen.assert_dropped(case);
    });
}

/// A graph whose first node blocks, `op` after it; and its executable.
fn gated(op: AnyOp) -> (Graph, Node<AnyOp>, Gate) {
    let (gate, wait) = Gate::new();
    let graph = Graph::new(&context()).unwrap();
    let first = graph.add(wait, ()).unwrap();
    let node = graph.add(op, first).unwrap();
    (graph, node, gate)
}

#[test]
fn a_launch_in_flight_holds_when_everything_else_is_dropped() {
    each(|resource, stream, case| {
        let (op, seen) = resource.op(stream);
        let (graph, _, gate) = gated(op);
        let mut exec = graph.instantiate().unwrap();
        exec.launch(stream).unwrap();
        gate.started.recv().unwrap();
        drop(exec);
        drop(graph);
        seen.assert_alive(case);
        gate.go.send(()).unwrap();
        stream.synchronize().unwrap();
        seen.assert_dropped(case);
    });
}

#[test]
fn an_executable_holds_what_per_node_updates_gave() {
    each(|resource, stream, case| {
        let (graph, node) = define(resource.other(stream));
        let mut exec = graph.instantiate().unwrap();
        let (op, seen) = resource.op(stream);
        exec.update(node, op).unwrap();
        seen.assert_alive(case);
        exec.launch(stream).unwrap();
        stream.synchronize().unwrap();
        drop(graph);
        seen.assert_alive(case);
        drop(exec);
        seen.assert_dropped(case);
    });
}

#[test]
fn a_launch_in_flight_holds_what_per_node_updates_gave() {
    each(|resource, stream, case| {
        let (graph, node, gate) = gated(resource.other(stream));
        let mut exec = graph.instantiate().unwrap();
        let (op, seen) = resource.op(stream);
        exec.update(node, op).unwrap();
        exec.launch(stream).unwrap();
        gate.started.recv().unwrap();
        drop((exec, graph));
        seen.assert_alive(case);
        gate.go.send(()).unwrap();
        stream.synchronize().unwrap();
        seen.assert_dropped(case);
    });
}

#[test]
fn a_whole_update_lets_go_of_the_old_and_holds_the_new() {
    each(|resource, stream, case| {
        let (old, seen_old) = resource.op(stream);
        let (graph, node) = define(old);
        let mut exec = graph.instantiate().unwrap();
        let (extra, seen_extra) = resource.op(stream);
        exec.update(node, extra).unwrap();
        drop(graph);
        let (new, seen_new) = resource.op(stream);
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
fn a_launch_in_flight_holds_what_a_whole_update_replaced() {
    each(|resource, stream, case| {
        let (old, seen_old) = resource.op(stream);
        let (graph, node, gate) = gated(old);
        let mut exec = graph.instantiate().unwrap();
        let (extra, seen_extra) = resource.op(stream);
        exec.update(node, extra).unwrap();
        // Made before the launch: filling a buffer waits for the stream.
        let (next, _, next_gate) = gated(resource.other(stream));
        exec.launch(stream).unwrap();
        gate.started.recv().unwrap();
        exec.update_from(&next).unwrap();
        drop((graph, next, exec));
        seen_extra.assert_alive(case);
        gate.go.send(()).unwrap();
        drop(next_gate);
        stream.synchronize().unwrap();
        seen_extra.assert_dropped(case);
        seen_old.assert_dropped(case);
    });
}

#[test]
fn a_failed_whole_update_changes_nothing() {
    each(|resource, stream, case| {
        let (op, seen) = resource.op(stream);
        let (graph, _) = define(op);
        let mut exec = graph.instantiate().unwrap();
        let other = Graph::new(&context()).unwrap();
        let (unused, seen_unused) = resource.op(stream);
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
    let stream = stream();
    for resource in RESOURCES {
        let (op, seen) = resource.op(&stream);
        let copy = op.clone();
        drop(op);
        seen.assert_alive(&format!("with {resource:?}"));
        drop(copy.into_any());
        seen.assert_dropped(&format!("with {resource:?}"));
    }
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
    let seen = Seen::weak(&buffer.owner());
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
