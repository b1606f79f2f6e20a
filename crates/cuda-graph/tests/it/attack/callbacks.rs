//! Destructors of what operations hold call the library back, wherever they run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cuda_graph::testing::{settle, with_failing_call};
use cuda_graph::{ChildOp, EmptyOp, Graph, HostOp, Path, Recorder};

use crate::fixture::{context, stream, words};

/// Looks at a graph when it is dropped.
struct Looks {
    at: Arc<Mutex<Option<ChildOp>>>,
    dropped: Arc<AtomicUsize>,
}

impl Drop for Looks {
    fn drop(&mut self) {
        let at = self.at.lock().unwrap().clone();
        if let Some(at) = at {
            let graph = at.graph();
            let _ = graph.nodes();
            let _ = graph.edges();
            let _ = graph.add(EmptyOp::new(), ());
            let _ = graph.instantiate();
        }
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

/// Runs a test that must come to its end.
fn in_time(what: &'static str, test: impl FnOnce() + Send + 'static) {
    let (send, receive) = channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = send.send(());
    });
    match receive.recv_timeout(Duration::from_secs(20)) {
        Ok(()) => thread.join().unwrap(),
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => thread.join().unwrap(),
        Err(_) => panic!("{what} hangs"),
    }
}

struct Scene {
    graph: Graph,
    at: Arc<Mutex<Option<ChildOp>>>,
    dropped: Arc<AtomicUsize>,
}

impl Scene {
    fn new() -> Scene {
        let graph = Graph::new(&context()).unwrap();
        let at = Arc::new(Mutex::new(Some(ChildOp::new(&graph))));
        Scene {
            graph,
            at,
            dropped: Arc::default(),
        }
    }

    /// A call whose closure looks at the graph when it is dropped.
    fn op(&self) -> HostOp {
        let looks = Looks {
            at: self.at.clone(),
            dropped: self.dropped.clone(),
        };
        HostOp::new(move || {
            let _ = &looks;
        })
    }

    /// The circle of the graph and what it holds is broken.
    fn end(self) -> usize {
        *self.at.lock().unwrap() = None;
        drop(self.graph);
        settle();
        self.dropped.load(Ordering::SeqCst)
    }
}

#[test]
fn from_a_definition() {
    in_time("a definition", || {
        let scene = Scene::new();
        let graph = &scene.graph;
        let node = graph.add(scene.op(), ()).unwrap();
        graph.update(node, scene.op()).unwrap();
        graph.destroy(node).unwrap();
        assert!(graph.add(scene.op(), node).is_err());
        assert!(graph.update(node, scene.op()).is_err());
        for nth in 0..6 {
            let _ = with_failing_call(nth, || graph.add(scene.op(), ()).map(drop));
        }
        let node = graph.add(scene.op(), ()).unwrap();
        for nth in 0..6 {
            let _ = with_failing_call(nth, || graph.update(node, scene.op()).map(drop));
        }
        scene.end();
    });
}

#[test]
fn from_embedded_graphs() {
    in_time("an embedded graph", || {
        let scene = Scene::new();
        let graph = &scene.graph;
        let inner = Graph::new(&context()).unwrap();
        inner.add(scene.op(), ()).unwrap();
        let node = graph.add(ChildOp::new(&inner), ()).unwrap();
        drop(inner);
        let plain = Graph::new(&context()).unwrap();
        plain.add(EmptyOp::new(), ()).unwrap();
        graph.update(node, ChildOp::new(&plain)).unwrap();
        assert_eq!(scene.dropped.load(Ordering::SeqCst), 1);
        let inner = Graph::new(&context()).unwrap();
        inner.add(scene.op(), ()).unwrap();
        graph.update(node, ChildOp::new(&inner)).unwrap();
        drop(inner);
        for nth in 0..12 {
            let inner = Graph::new(&context()).unwrap();
            inner.add(scene.op(), ()).unwrap();
            let _ = with_failing_call(nth, || graph.update(node, ChildOp::new(&inner)));
            let _ = with_failing_call(nth, || graph.add(ChildOp::new(&inner), ()));
            drop(inner);
        }
        graph.destroy(node).unwrap();
        scene.end();
    });
}

#[test]
fn from_executables() {
    in_time("an executable", || {
        let stream = stream();
        let scene = Scene::new();
        let graph = &scene.graph;
        let node = graph.add(scene.op(), ()).unwrap();
        let inner = Graph::new(&context()).unwrap();
        let inside = inner.add(scene.op(), ()).unwrap();
        let child = graph.add(ChildOp::new(&inner), ()).unwrap();
        let mut exec = graph.instantiate().unwrap();
        let mut other = inner.instantiate().unwrap();
        for launched in [false, true] {
            for nth in 0..4 {
                if launched {
                    exec.launch(&stream).unwrap();
                    other.launch(&stream).unwrap();
                }
                exec.update(node, scene.op()).unwrap();
                exec.update(node, scene.op()).unwrap();
                other.update(inside, scene.op()).unwrap();
                other.update_from(&inner).unwrap();
                let again = Graph::new(&context()).unwrap();
                again.add(scene.op(), ()).unwrap();
                exec.update(child, ChildOp::new(&again)).unwrap();
                exec.update(child, ChildOp::new(&again)).unwrap();
                other.update_from(&again).unwrap();
                other.update_from(&again).unwrap();
                let _ = with_failing_call(nth, || exec.update(node, scene.op()));
                let _ = with_failing_call(nth, || exec.update(child, ChildOp::new(&again)));
                let _ = with_failing_call(nth, || other.update_from(&again));
                drop(again);
            }
        }
        drop((exec, other));
        scene.end();
    });
}

#[test]
fn from_recordings() {
    in_time("a recording", || {
        let stream = stream();
        let flag = words(&stream, &[0]);
        let scene = Scene::new();
        let graph = &scene.graph;
        for nth in 0..40 {
            let _ = with_failing_call(nth, || {
                graph.record_into((), |path| {
                    path.record(scene.op())?;
                    path.keep(Arc::new(Looks {
                        at: scene.at.clone(),
                        dropped: scene.dropped.clone(),
                    }))?;
                    path.if_nonzero(&flag, |r| {
                        r.keep(Arc::new(Looks {
                            at: scene.at.clone(),
                            dropped: scene.dropped.clone(),
                        }))?;
                        r.record(EmptyOp::new()).map(drop)
                    })
                })
            });
            let mut path = Path::new(graph);
            let _ = with_failing_call(nth, || {
                path.if_nonzero(&flag, |r| {
                    r.keep(Arc::new(Looks {
                        at: scene.at.clone(),
                        dropped: scene.dropped.clone(),
                    }))?;
                    r.record(scene.op()).map(drop)
                })
            });
        }
        scene.end();
    });
}
