//! Every call of the driver made to fail in turn: what fails leaves neither node nor owner behind, and nothing early gone.

use std::sync::Arc;

use cuda_graph::testing::with_failing_call;
use cuda_graph::{ChildOp, EmptyOp, Graph, HostOp, KernelOp, Owner, RawMemory, Result};

use crate::fixture::{Watch, Watched, assert_soon, context, kernel, one, store, stream, words};

struct Held(#[expect(dead_code, reason = "its drop is what counts")] Watched);

/// A launch that owns something whose drop is seen.
fn watched_launch() -> (KernelOp, Watch) {
    let (watch, watched) = Watch::new();
    let owner: Owner = Arc::new(Held(watched));
    // SAFETY: with no elements, `bump` touches no memory.
    let nowhere = unsafe { RawMemory::device(0, 0) }.owned_by(owner);
    // SAFETY: as above.
    let op = unsafe { KernelOp::new(kernel("bump"), one(), (&nowhere, 0u32)) }.unwrap();
    (op, watch)
}

fn watched_call() -> (HostOp, Watch) {
    let (watch, watched) = Watch::new();
    let held = Held(watched);
    let op = HostOp::new(move || {
        let _ = &held;
    });
    (op, watch)
}

fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}

/// Runs `step` with each of its calls failing, then with none, and returns how many there are.
fn each_call(mut step: impl FnMut(&dyn Fn(&mut dyn FnMut() -> Result<()>) -> Option<Result<()>>)) {
    for nth in 0.. {
        let fired = std::cell::Cell::new(false);
        step(&|body| {
            let (result, was) = with_failing_call(nth, body);
            fired.set(was);
            Some(result)
        });
        if !fired.get() {
            assert!(nth > 0, "there was no call to fail");
            return;
        }
        assert!(nth < 200, "the calls have no end");
    }
}

#[test]
fn adding_leaves_nothing_behind() {
    each_call(|run| {
        let graph = graph();
        let first = graph.add(EmptyOp::new(), ()).unwrap();
        let (op, watch) = watched_launch();
        let op = op.priority(0);
        let mut op = Some(op);
        let failed = run(&mut || graph.add(op.take().unwrap(), first).map(drop))
            .unwrap()
            .is_err();
        if failed {
            assert_soon(|| watch.is_dropped(), "the owner leaks");
            assert_eq!(graph.nodes().unwrap().len(), 1, "a node is left behind");
        } else {
            assert!(!watch.is_dropped());
            assert_eq!(graph.nodes().unwrap().len(), 2);
            drop(graph);
            assert_soon(|| watch.is_dropped(), "the owner leaks");
        }
    });
}

#[test]
fn embedding_leaves_nothing_behind() {
    each_call(|run| {
        let (op, watch) = watched_call();
        let inner = graph();
        inner.add(op, ()).unwrap();
        let outer = graph();
        let result = run(&mut || outer.add(ChildOp::new(&inner), ()).map(drop)).unwrap();
        drop(inner);
        if result.is_err() {
            assert_soon(|| watch.is_dropped(), "the owner leaks");
            assert!(outer.nodes().unwrap().is_empty());
        } else {
            std::thread::sleep(std::time::Duration::from_millis(3));
            assert!(!watch.is_dropped());
            outer.instantiate().unwrap();
            drop(outer);
            assert_soon(|| watch.is_dropped(), "the owner leaks");
        }
    });
}

#[test]
fn updating_a_definition_changes_all_or_nothing() {
    let stream = stream();
    each_call(|run| {
        let graph = graph();
        let (old, old_watch) = watched_launch();
        let node = graph.add(old, ()).unwrap();
        let (new, new_watch) = watched_launch();
        let mut new = Some(new.priority(0));
        let failed = run(&mut || graph.update(node, new.take().unwrap()))
            .unwrap()
            .is_err();
        let (gone, kept) = if failed {
            assert_soon(|| new_watch.is_dropped(), "an owner leaks");
            (new_watch, old_watch)
        } else {
            // Where the call that failed was to let go of the old version, the graph holds it until it is gone itself.
            (old_watch, new_watch)
        };
        std::thread::sleep(std::time::Duration::from_millis(3));
        assert!(!kept.is_dropped(), "an owner is gone early");
        graph.instantiate().unwrap().launch(&stream).unwrap();
        stream.synchronize().unwrap();
        drop(graph);
        assert_soon(|| gone.is_dropped() && kept.is_dropped(), "an owner leaks");
    });
}

#[test]
fn executables_are_made_and_updated_wholly_or_not() {
    let stream = stream();
    let a = words(&stream, &[0]);
    each_call(|run| {
        let graph = graph();
        let node = graph.add(store(&a, 1), ()).unwrap();
        let mut made = None;
        let result = run(&mut || {
            made = Some(graph.instantiate()?);
            Ok(())
        });
        assert_eq!(made.is_some(), result.unwrap().is_ok());
        let mut exec = graph.instantiate().expect("the graph is as good as before");
        exec.launch(&stream).unwrap();
        assert_eq!(a.to_host(&stream).unwrap(), [1]);
        drop(exec);
        graph.update(node, store(&a, 1)).unwrap();
    });
    each_call(|run| {
        let graph = graph();
        let (old, old_watch) = watched_launch();
        let node = graph.add(old, ()).unwrap();
        let mut exec = graph.instantiate().unwrap();
        let (extra, extra_watch) = watched_launch();
        exec.update(node, extra).unwrap();
        let failed = run(&mut || exec.update_from(&graph)).unwrap().is_err();
        if failed {
            std::thread::sleep(std::time::Duration::from_millis(3));
            assert!(!extra_watch.is_dropped(), "the executable still uses it");
        } else {
            assert_soon(|| extra_watch.is_dropped(), "an owner leaks");
        }
        exec.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        drop((exec, graph));
        assert_soon(
            || old_watch.is_dropped() && extra_watch.is_dropped(),
            "an owner leaks",
        );
    });
    each_call(|run| {
        let graph = graph();
        let (old, _) = watched_launch();
        let node = graph.add(old, ()).unwrap();
        let mut exec = graph.instantiate().unwrap();
        let (new, watch) = watched_launch();
        let mut new = Some(new);
        let failed = run(&mut || exec.update(node, new.take().unwrap()))
            .unwrap()
            .is_err();
        if failed {
            assert_soon(|| watch.is_dropped(), "an owner leaks");
        }
        drop((exec, graph));
        assert_soon(|| watch.is_dropped(), "an owner leaks");
    });
}

#[test]
fn cloning_and_destroying_lose_nothing() {
    each_call(|run| {
        let graph = graph();
        let (op, watch) = watched_call();
        let node = graph.add(op, ()).unwrap();
        let mut clone = None;
        let result = run(&mut || {
            clone = Some(graph.try_clone()?);
            Ok(())
        });
        assert_eq!(clone.is_some(), result.unwrap().is_ok());
        graph.destroy(node).unwrap();
        if clone.is_some() {
            std::thread::sleep(std::time::Duration::from_millis(3));
            assert!(!watch.is_dropped(), "an owner is gone early");
        }
        drop(clone);
        assert_soon(|| watch.is_dropped(), "an owner leaks");
    });
}
