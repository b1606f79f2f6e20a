//! The lock of a hierarchy: in which order it is taken, and what is left of it when a call fails.

use std::sync::{Arc, Barrier, OnceLock};
use std::thread;

use cuda_graph::testing::with_failing_call;
use cuda_graph::{Arguments, Buffer, ChildOp, Exec, Graph, KernelOp, Node};

use crate::fixture::{context, kernel, one, store, stream, words};

fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}

fn with_store(word: &Buffer<u32>) -> Graph {
    let graph = graph();
    graph.add(store(word, 9), ()).unwrap();
    graph
}

/// A graph and its executable that update a word.
struct Scene {
    word: Buffer<u32>,
    handle: ChildOp,
    node: Node<KernelOp>,
    exec: Exec,
}

impl Scene {
    fn new() -> Scene {
        let stream = stream();
        let word = words(&stream, &[0]);
        let graph = graph();
        let node = graph.add(store(&word, 1), ()).unwrap();
        let mut exec = graph.instantiate().unwrap();
        // From here on plain updates take the short way.
        exec.update(node, store(&word, 2)).unwrap();
        let handle = ChildOp::new(&graph);
        Scene {
            word,
            handle,
            node,
            exec,
        }
    }
}

/// Each of two threads made one of two graphs, and takes both of them, its own first and last.
#[test]
fn two_graphs_are_taken_in_both_orders() {
    for round in 0..100u32 {
        let (begin, given) = (Barrier::new(2), [(); 2].map(|()| OnceLock::new()));
        thread::scope(|scope| {
            for own in 0..2 {
                let (begin, given) = (&begin, &given);
                scope.spawn(move || {
                    let mut scene = Scene::new();
                    given[own].set(scene.handle.clone()).ok().unwrap();
                    begin.wait();
                    let other = given[1 - own].get().unwrap().graph();
                    (0..round * 20).for_each(|_| std::hint::spin_loop());
                    for _ in 0..20 {
                        scene.exec.update_in_place(&other).unwrap();
                        scene.exec.diff(&other).unwrap();
                        other.diff(&scene.handle.graph()).unwrap();
                        drop(scene.handle.graph().try_clone().unwrap());
                    }
                    begin.wait();
                });
            }
        });
    }
}

/// An owner that uses the executable's graph and goes with a short update.
#[test]
fn an_executable_goes_with_what_its_own_graph_holds() {
    struct Holds(#[expect(dead_code, reason = "it goes with this")] Exec);
    // SAFETY: nobody calls it.
    unsafe impl Sync for Holds {}
    let stream = stream();
    let word = words(&stream, &[0]);
    let graph = graph();
    let holding = |exec| {
        let mut arguments = Arguments::default();
        arguments.value(&word.address());
        arguments.value(&3u32);
        arguments.keep(Arc::new(Holds(exec)));
        arguments.keep(word.owner());
        // SAFETY: `store` writes one word, which the buffer has.
        unsafe { KernelOp::new(kernel("store"), one(), arguments) }.unwrap()
    };
    let node = graph.add(store(&word, 1), ()).unwrap();
    let child = graph.add(ChildOp::new(&with_store(&word)), ()).unwrap();
    for launched in [false, true] {
        let mut exec = graph.instantiate().unwrap();
        let inner = || graph.instantiate().unwrap();
        for _ in 0..3 {
            exec.update(node, holding(inner())).unwrap();
            if launched {
                exec.launch(&stream).unwrap();
            }
            exec.update(node, holding(inner())).unwrap();
            exec.update(node, store(&word, 1)).unwrap();
        }
        graph.update(node, holding(inner())).unwrap();
        exec.update_in_place(&graph).unwrap();
        graph.update(node, holding(inner())).unwrap();
        exec.update_in_place(&graph).unwrap();
        graph.update(node, store(&word, 1)).unwrap();
        exec.update_in_place(&graph).unwrap();
        let other = self::graph();
        other.add(holding(inner()), ()).unwrap();
        graph.update(child, ChildOp::new(&other)).unwrap();
        drop(other);
        graph
            .update(child, ChildOp::new(&with_store(&word)))
            .unwrap();
        stream.synchronize().unwrap();
    }
    cuda_graph::testing::settle();
}

#[test]
fn a_failed_short_update_changes_nothing() {
    let stream = stream();
    let mut scene = Scene::new();
    let (mut failures, now) = (0, |scene: &Scene| {
        let op = scene.exec.op(scene.node).unwrap();
        (op.location(), op.arguments().get(1).unwrap().to_vec())
    });
    for nth in 0..6 {
        let (before, new) = (now(&scene), store(&scene.word, 90 + nth));
        let (done, _) = with_failing_call(nth, || scene.exec.update(scene.node, &new));
        let Err(error) = done else {
            assert_eq!(now(&scene).1, (90 + nth).to_ne_bytes());
            break;
        };
        failures += 1;
        assert_eq!(now(&scene), before, "{error}");
        assert!(error.to_string().contains("`store`"), "{error}");
        scene.exec.launch(&stream).unwrap();
        assert_eq!(scene.word.to_host(&stream).unwrap(), [2]);
        // The lock is free.
        assert_eq!(scene.handle.graph().nodes().unwrap().len(), 1);
    }
    assert!(failures > 0);
}
