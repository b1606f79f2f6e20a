//! One definition, its executables and its recordings on several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cuda_graph::{Buffer, ChildOp, EmptyOp, Graph, Result};

use crate::fixture::{alone, context, store, stream, words};

#[test]
fn a_definition_and_its_executables_on_several_threads() {
    let _alone = alone();
    let graph = Graph::new(&context()).unwrap();
    let made = stream();
    let word = words(&made, &[0]);
    let flag = words(&made, &[0]);
    let node = graph.add(store(&word, 1), ()).unwrap();
    let inner = Graph::new(&context()).unwrap();
    let inside = inner.add(store(&word, 2), ()).unwrap();
    let child = graph.add(ChildOp::new(&inner), node).unwrap();
    drop(inner);
    let _ = inside;
    let handle = ChildOp::new(&graph);
    let until = Instant::now() + Duration::from_secs(4);
    let failed = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        for number in 0..6u32 {
            let (handle, flag) = (handle.clone(), flag.clone());
            let failed = failed.clone();
            scope.spawn(move || {
                let work = || -> Result<()> {
                    let stream = stream();
                    let graph = handle.graph();
                    let mut turn = 0;
                    while Instant::now() < until {
                        turn += 1;
                        let mine: Buffer<u32> = words(&stream, &[0]);
                        match number {
                            0 | 1 => {
                                let Ok(mut exec) = graph.instantiate() else {
                                    continue;
                                };
                                exec.update(node, store(&mine, 40 + turn))?;
                                exec.launch(&stream)?;
                                exec.update(node, store(&mine, 41 + turn))?;
                                let another = Graph::new(&context())?;
                                another.add(store(&mine, turn), ())?;
                                let _ = exec.update(child, ChildOp::new(&another));
                                drop(another);
                                exec.launch(&stream)?;
                                drop(exec);
                                let found = mine.to_host(&stream)?[0];
                                assert!(
                                    found == 41 + turn || found == turn,
                                    "{found} in turn {turn}"
                                );
                            }
                            2 => {
                                graph.update(node, store(&mine, turn))?;
                                let another = Graph::new(&context())?;
                                another.add(store(&mine, turn), ())?;
                                graph.update(child, ChildOp::new(&another))?;
                            }
                            3 => {
                                let added = graph.add(store(&mine, turn), node)?;
                                graph.destroy(added)?;
                            }
                            4 => {
                                let (nodes, ()) = graph.record_into(node, |path| {
                                    path.record(store(&mine, 1))?;
                                    path.record(EmptyOp::new())?;
                                    Ok((path.ends()?, ()))
                                })?;
                                for node in nodes {
                                    let before = graph.predecessors(node).list()?;
                                    graph.destroy(node)?;
                                    for node in before {
                                        graph.destroy(node)?;
                                    }
                                }
                            }
                            _ => {
                                let failed = graph.record_into(node, |path| {
                                    path.if_nonzero(&flag, |r| {
                                        r.record(store(&mine, 3))?;
                                        Err(cuda_graph::Error::GraphGone)
                                    })
                                });
                                assert!(failed.is_err());
                                let _ = graph.edges()?;
                            }
                        }
                    }
                    Ok(())
                };
                if let Err(error) = work() {
                    eprintln!("thread {number}: {error}");
                    failed.store(true, Ordering::SeqCst);
                }
            });
        }
    });
    assert!(!failed.load(Ordering::SeqCst));
}
