//! Every call of the driver made to fail in turn, for every kind of operation: what fails leaves
//! neither node nor owner behind, takes nothing early, and can be done again (invariant L4).

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::testing::with_failing_call;
use cuda_graph::{
    AllocOp, AnyOp, ChildOp, CopyOp, EmptyOp, Exec, FillOp, FreeOp, Graph, MemoryLocation, Node,
    Result,
};

use crate::door::Door;
use crate::fixture::{allocated, context, store, stream, words};
use crate::resource::{RESOURCES, Resource, Seen};

/// Has one call fail.
struct Failing {
    nth: u32,
    fired: Cell<bool>,
}

impl Failing {
    /// What `body` gives while its call number `nth` fails.
    fn run<R>(&self, body: impl FnOnce() -> R) -> R {
        let (result, fired) = with_failing_call(self.nth, body);
        self.fired.set(fired);
        result
    }
}

/// Does `step` with each of its calls failing in turn, and last with none.
fn each_call(step: impl Fn(&Failing)) {
    for nth in 0.. {
        let failing = Failing {
            nth,
            fired: Cell::new(false),
        };
        step(&failing);
        if !failing.fired.get() {
            assert!(nth > 0, "there was no call to fail");
            return;
        }
        assert!(nth < 200, "the calls have no end");
    }
}

/// Does it for every kind of resource.
fn each(step: impl Fn(&Failing, Resource, &Arc<CudaStream>, &str)) {
    let stream = stream();
    for resource in RESOURCES {
        each_call(|failing| {
            let case = format!("with {resource:?}, where call {} fails", failing.nth);
            step(failing, resource, &stream, &case);
        });
    }
}

fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}

/// An operation that nothing else holds, and a way to see what it uses go.
fn make(resource: Resource, stream: &Arc<CudaStream>) -> (AnyOp, Seen) {
    let (op, _, seen) = resource.make(stream);
    (op, seen)
}

/// Gives an operation to `body` while a call of its fails. A graph that the operation embeds is
/// kept meanwhile: a driver that cannot destroy it leaks it, whatever else is done.
fn give<R>(failing: &Failing, op: AnyOp, body: impl FnOnce(AnyOp) -> R) -> R {
    let kept = matches!(op, AnyOp::Child(_)).then(|| op.clone());
    let result = failing.run(|| body(op));
    drop(kept);
    result
}

/// A graph with one node.
fn define(op: AnyOp) -> (Graph, Node<AnyOp>) {
    let graph = graph();
    let node = graph.add(op, ()).unwrap();
    (graph, node)
}

#[track_caller]
fn runs(exec: &mut Exec, stream: &Arc<CudaStream>) {
    exec.launch(stream).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn adding_leaves_nothing_behind() {
    each(|failing, resource, stream, case| {
        let graph = graph();
        let first = graph.add(EmptyOp::new(), ()).unwrap();
        let (op, seen) = make(resource, stream);
        // Attributes are set by calls of their own.
        let op = match op {
            AnyOp::Kernel(op) => op.priority(0).cooperative().into(),
            op => op,
        };
        match give(failing, op, |op| graph.add(op, first)) {
            Ok(node) => {
                assert_eq!(graph.nodes().unwrap(), [first.id(), node.id()], "{case}");
                assert_eq!(graph.edges().unwrap().len(), 1, "{case}");
                seen.assert_alive(case);
            }
            Err(_) => {
                assert_eq!(graph.nodes().unwrap(), [first.id()], "{case}");
                seen.assert_dropped(case);
                graph.add(resource.other(stream), first).unwrap();
            }
        }
        runs(&mut graph.instantiate().unwrap(), stream);
        drop(graph);
        seen.assert_dropped(case);
    });
}

#[test]
fn embedding_leaves_nothing_behind() {
    each(|failing, resource, stream, case| {
        let (op, seen) = make(resource, stream);
        let (inner, _) = define(op);
        let outer = graph();
        let embedded = failing.run(|| outer.add(ChildOp::new(&inner), ()));
        drop(inner);
        match embedded {
            Ok(_) => seen.assert_alive(case),
            Err(_) => {
                assert_eq!(outer.nodes().unwrap(), [], "{case}");
                seen.assert_dropped(case);
            }
        }
        runs(&mut outer.instantiate().unwrap(), stream);
        drop(outer);
        seen.assert_dropped(case);
    });
}

#[test]
fn updating_a_definition_changes_all_or_nothing() {
    each(|failing, resource, stream, case| {
        let (old, seen_old) = make(resource, stream);
        let (graph, node) = define(old);
        let (new, seen_new) = make(resource, stream);
        let new = match new {
            AnyOp::Kernel(op) => op.priority(0).cooperative().into(),
            op => op,
        };
        match give(failing, new, |new| graph.update(node, new)) {
            // Where the call that failed was to let go of the old version, the graph holds it until
            // it is gone itself.
            Ok(()) => seen_new.assert_alive(case),
            Err(_) => {
                seen_new.assert_dropped(case);
                seen_old.assert_alive(case);
            }
        }
        assert_eq!(graph.nodes().unwrap().len(), 1, "{case}");
        runs(&mut graph.instantiate().unwrap(), stream);
        drop(graph);
        seen_new.assert_dropped(case);
        seen_old.assert_dropped(case);
    });
}

#[test]
fn cloning_loses_nothing() {
    each(|failing, resource, stream, case| {
        let (op, seen) = make(resource, stream);
        let (graph, node) = define(op);
        let clone = failing.run(|| graph.try_clone());
        graph.destroy(node).unwrap();
        if let Ok(clone) = &clone {
            seen.assert_alive(case);
            assert_eq!(clone.nodes().unwrap().len(), 1, "{case}");
            runs(&mut clone.instantiate().unwrap(), stream);
        } else {
            seen.assert_dropped(case);
        }
        drop(clone);
        seen.assert_dropped(case);
    });
}

#[test]
fn destroying_is_done_or_not() {
    each(|failing, resource, stream, case| {
        let (op, seen) = make(resource, stream);
        let (graph, node) = define(op);
        if failing.run(|| graph.destroy(node)).is_err() {
            assert_eq!(graph.nodes().unwrap(), [node.id()], "{case}");
            seen.assert_alive(case);
            runs(&mut graph.instantiate().unwrap(), stream);
            graph.destroy(node).unwrap();
        }
        assert_eq!(graph.nodes().unwrap(), [], "{case}");
        drop(graph);
        seen.assert_dropped(case);
    });
}

#[test]
fn instantiating_leaves_nothing_behind() {
    each(|failing, resource, stream, case| {
        let (op, seen) = make(resource, stream);
        let (graph, node) = define(op);
        let exec = failing.run(|| graph.instantiate());
        if exec.is_err() {
            runs(&mut graph.instantiate().unwrap(), stream);
        }
        graph.destroy(node).unwrap();
        match exec {
            Ok(mut exec) => {
                seen.assert_alive(case);
                runs(&mut exec, stream);
            }
            Err(_) => seen.assert_dropped(case),
        }
        drop(graph);
        seen.assert_dropped(case);
    });
}

#[test]
fn updating_a_node_of_an_executable_is_done_or_not() {
    each(|failing, resource, stream, case| {
        let (old, seen_old) = make(resource, stream);
        let (graph, node) = define(old);
        let mut exec = graph.instantiate().unwrap();
        let (new, seen_new) = make(resource, stream);
        match give(failing, new, |new| exec.update(node, new)) {
            Ok(()) => {
                seen_new.assert_alive(case);
                drop(graph);
                seen_old.assert_dropped(case);
            }
            Err(_) => {
                seen_new.assert_dropped(case);
                drop(graph);
                seen_old.assert_alive(case);
            }
        }
        runs(&mut exec, stream);
        drop(exec);
        seen_new.assert_dropped(case);
    });
}

#[test]
fn updating_an_executable_as_a_whole_is_done_or_not() {
    each(|failing, resource, stream, case| {
        let (old, seen_old) = make(resource, stream);
        let (graph, node) = define(old);
        let mut exec = graph.instantiate().unwrap();
        let (extra, seen_extra) = make(resource, stream);
        exec.update(node, extra).unwrap();
        drop(graph);
        let (new, seen_new) = make(resource, stream);
        let (graph, _) = define(new);
        let updated = failing.run(|| exec.update_in_place(&graph));
        drop(graph);
        match updated {
            Ok(()) => {
                seen_old.assert_dropped(case);
                seen_extra.assert_dropped(case);
                seen_new.assert_alive(case);
            }
            Err(_) => {
                seen_new.assert_dropped(case);
                seen_extra.assert_alive(case);
            }
        }
        runs(&mut exec, stream);
        drop(exec);
        seen_old.assert_dropped(case);
        seen_extra.assert_dropped(case);
        seen_new.assert_dropped(case);
    });
}

#[test]
fn allocations_and_frees_are_added_or_not() {
    let stream = stream();
    let from = words(&stream, &[1, 2, 3, 4]);
    let to = words(&stream, &[0; 4]);
    each_call(|failing| {
        let graph = graph();
        let op = AllocOp::new(MemoryLocation::Device(0), 16);
        let alloc = match failing.run(|| graph.add(op.clone(), ())) {
            Ok(alloc) => alloc,
            Err(_) => {
                assert_eq!(graph.nodes().unwrap(), []);
                graph.add(op, ()).unwrap()
            }
        };
        let memory = allocated(&graph, alloc);
        let write = graph.add(CopyOp::new(&memory, &from).unwrap(), alloc);
        let read = graph.add(CopyOp::new(&to, &memory).unwrap(), write.unwrap());
        let read = read.unwrap();
        if failing
            .run(|| graph.add(FreeOp::new(&memory), read))
            .is_err()
        {
            assert_eq!(graph.nodes().unwrap().len(), 3);
            graph.add(FreeOp::new(&memory), read).unwrap();
        }
        to.copy_from_host(&stream, &[0; 4]).unwrap();
        runs(&mut graph.instantiate().unwrap(), &stream);
        assert_eq!(to.to_host(&stream).unwrap(), [1, 2, 3, 4]);
    });
}

#[test]
fn edges_are_edited_wholly_or_not() {
    type Edit = fn(&Graph, &[Node<EmptyOp>]) -> Result<()>;
    let edits: [Edit; 6] = [
        |graph, n| graph.add_edge(n[3], n[0]),
        |graph, n| graph.predecessors(n[4]).add([n[2], n[3]]),
        |graph, n| graph.predecessors(n[4]).remove([n[0], n[1]]),
        |graph, n| graph.predecessors(n[4]).set([n[1], n[2], n[3]]),
        |graph, n| graph.successors(n[0]).set([n[5], n[3]]),
        |graph, n| graph.predecessors(n[4]).set(()),
    ];
    for edit in edits {
        let build = || {
            let graph = graph();
            let n: Vec<_> = (0..6)
                .map(|_| graph.add(EmptyOp::new(), ()).unwrap())
                .collect();
            graph.predecessors(n[4]).add([n[0], n[1]]).unwrap();
            (graph, n)
        };
        let edges = |graph: &Graph| -> HashSet<(u32, u32)> {
            let edges = graph.edges().unwrap();
            let pair = |edge: &cuda_graph::Edge| (edge.from.index(), edge.to.index());
            edges.iter().map(pair).collect()
        };
        let (graph, n) = build();
        edit(&graph, &n).unwrap();
        let done = edges(&graph);
        each_call(|failing| {
            let (graph, n) = build();
            let before = edges(&graph);
            assert_ne!(before, done);
            if failing.run(|| edit(&graph, &n)).is_err() {
                assert_eq!(edges(&graph), before, "call {} failed", failing.nth);
                edit(&graph, &n).unwrap();
            }
            assert_eq!(edges(&graph), done);
        });
    }
}

#[test]
fn launches_and_switches_can_be_tried_again() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let node = graph.add(store(&a, 1), ()).unwrap();
    each_call(|failing| {
        let mut exec = graph.instantiate().unwrap();
        a.copy_from_host(&stream, &[0]).unwrap();
        let launched = failing.run(|| exec.launch(&stream)).is_ok();
        assert_eq!(a.to_host(&stream).unwrap(), [u32::from(launched)]);
        runs(&mut exec, &stream);
        assert_eq!(a.to_host(&stream).unwrap(), [1]);
    });
    each_call(|failing| {
        let mut exec = graph.instantiate().unwrap();
        let disabled = failing.run(|| exec.disable(node)).is_ok();
        assert_eq!(exec.is_enabled(node).unwrap(), !disabled);
        a.copy_from_host(&stream, &[0]).unwrap();
        runs(&mut exec, &stream);
        assert_eq!(a.to_host(&stream).unwrap(), [u32::from(!disabled)]);
    });
}

#[test]
fn what_fails_of_a_disabled_fill_leaves_it_as_it_is_told() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let fill = |value: u32| FillOp::new(&a, value).unwrap();
    let (graph, other) = (graph(), self::graph());
    let node = graph.add(fill(1), ()).unwrap();
    other.add(fill(3), ()).unwrap();
    type Change<'a> = &'a dyn Fn(&mut Exec) -> cuda_graph::Result<()>;
    let changes: [(Change<'_>, bool, [u32; 2]); 4] = [
        (&|exec| exec.disable(node), true, [1, 1]),
        (&|exec| exec.enable(node), false, [1, 1]),
        (&|exec| exec.update(node, fill(2)), false, [1, 2]),
        (&|exec| exec.update_in_place(&other), false, [1, 3]),
    ];
    for (change, starts_enabled, values) in changes {
        each_call(|failing| {
            let mut exec = graph.instantiate().unwrap();
            if !starts_enabled {
                exec.disable(node).unwrap();
            }
            let changed = failing.run(|| change(&mut exec)).is_ok();
            a.copy_from_host(&stream, &[0]).unwrap();
            runs(&mut exec, &stream);
            let is_enabled = exec.is_enabled(node).unwrap();
            let filled = a.to_host(&stream).unwrap()[0];
            assert_eq!(filled != 0, is_enabled);
            exec.enable(node).unwrap();
            runs(&mut exec, &stream);
            let filled = a.to_host(&stream).unwrap()[0];
            assert!(filled == values[usize::from(changed)] || !changed && is_enabled);
        });
    }
}

/// A graph that passes through a door, then does `op`.
fn gated(door: &Arc<Door>, op: AnyOp) -> (Graph, Node<AnyOp>) {
    let graph = graph();
    let first = graph.add(door.op(), ()).unwrap();
    let node = graph.add(op, first).unwrap();
    (graph, node)
}

#[test]
fn a_launch_in_flight_is_waited_for_whatever_fails_in_letting_go() {
    each(|failing, resource, stream, case| {
        let door = Arc::new(Door::default());
        let (op, seen) = make(resource, stream);
        let (graph, _) = gated(&door, op);
        let mut exec = graph.instantiate().unwrap();
        drop(graph);
        door.close();
        exec.launch(stream).unwrap();
        door.until_someone_waits();
        failing.run(|| drop(exec));
        seen.assert_alive(case);
        door.open();
        stream.synchronize().unwrap();
        seen.assert_dropped(case);
    });
}

#[test]
fn a_launch_in_flight_is_waited_for_whatever_fails_in_a_whole_update() {
    each(|failing, resource, stream, case| {
        let door = Arc::new(Door::default());
        let (old, seen_old) = make(resource, stream);
        let (graph, _) = gated(&door, old);
        let mut exec = graph.instantiate().unwrap();
        let (new, seen_new) = make(resource, stream);
        let (next, _) = gated(&door, new);
        drop(graph);
        door.close();
        exec.launch(stream).unwrap();
        door.until_someone_waits();
        let updated = failing.run(|| exec.update_in_place(&next));
        seen_old.assert_alive(case);
        door.open();
        stream.synchronize().unwrap();
        // Not before: the driver frees some memory only when nothing is in flight.
        drop(next);
        let (gone, kept) = match updated {
            Ok(()) => (seen_old, seen_new),
            Err(_) => (seen_new, seen_old),
        };
        gone.assert_dropped(case);
        kept.assert_alive(case);
        runs(&mut exec, stream);
        drop(exec);
        kept.assert_dropped(case);
    });
}

#[test]
fn a_launch_in_a_threads_own_stream_is_known_to_be_over_or_not_made() {
    let own = context().per_thread_stream();
    let a = words(&own, &[0]);
    each_call(|failing| {
        let door = Arc::new(Door::default());
        let (graph, _) = gated(&door, store(&a, 1).into());
        let gone = Arc::downgrade(&a.owner());
        let mut exec = graph.instantiate().unwrap();
        drop(graph);
        door.close();
        a.copy_from_host(&own, &[0]).unwrap();
        let launched = std::thread::scope(|scope| {
            // Where the end cannot be known later, the launch waits for it.
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(5));
                door.open();
            });
            failing.run(|| exec.launch(&own)).is_ok()
        });
        assert_eq!(a.to_host(&own).unwrap(), [u32::from(launched)]);
        drop(exec);
        assert!(gone.strong_count() > 0);
    });
}
