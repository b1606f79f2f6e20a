//! Launches of graphs with loops wait for each other, and so do conditional nodes of branches
//! (invariant L16): an H200 fails loops of several executables that run at once, and does not end
//! some bodies whose conditional nodes do.

use std::sync::{Arc, Mutex};

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{
    Buffer, CopyOp, Driver, Edge, EmptyOp, Error, Exec, FillOp, Graph, IfOp, InstantiateOptions,
    NodeId, NodeKind, Path, PinnedBuffer, Recorder, Result, WhileOp,
};

use super::{BUILT, EVERY, launch, read, recorded, run, word};
use crate::exit::{Exit, How};
use crate::fixture::{add, alone, assert_soon, context, in_own_process, store, stream, words};

/// A graph that loops until the host says that it may end, and then stores 1.
struct Waiting {
    go_on: PinnedBuffer<u32>,
    done: Buffer<u32>,
    exec: Exec,
}

impl Waiting {
    fn new(stream: &Arc<CudaStream>, options: &InstantiateOptions) -> Waiting {
        let go_on = signal();
        let (flag, done) = (word(stream, 1), word(stream, 0));
        let graph = Graph::new(&context()).unwrap();
        let mut path = Path::new(&graph);
        path.while_nonzero(&flag, |r| r.record(CopyOp::new(&flag, &go_on)?).map(drop))
            .unwrap();
        path.record(store(&done, 1)).unwrap();
        Waiting {
            exec: graph.instantiate_with(options).unwrap(),
            go_on,
            done,
        }
    }

    fn end(&self) {
        self.go_on.write(&[0]).unwrap();
    }
}

/// What a loop waits for. It stays: to free it would wait for whatever loop goes on then, and have
/// all other calls wait too.
fn signal() -> PinnedBuffer<u32> {
    static KEPT: Mutex<Vec<PinnedBuffer<u32>>> = Mutex::new(Vec::new());
    let signal = PinnedBuffer::from_slice(&context(), &[1]).unwrap();
    KEPT.lock().unwrap().push(signal.clone());
    signal
}

/// A graph that counts in a loop.
fn counting(
    count: &Buffer<u32>,
    stream: &Arc<CudaStream>,
    options: &InstantiateOptions,
) -> Result<Exec> {
    let (left, minus, one) = (word(stream, 3), word(stream, u32::MAX), words(stream, &[1]));
    let graph = Graph::new(&context())?;
    Path::new(&graph).while_nonzero(&left, |r| {
        r.record(add(&left, &minus))?;
        r.record(add(count, &one)).map(drop)
    })?;
    graph.instantiate_with(options)
}

/// Alone in its process: elsewhere ranks may share the device, and then no loops take turns.
#[test]
fn loops_of_two_executables_run_one_after_the_other() {
    if !in_own_process("control::turns::loops_of_two_executables_run_one_after_the_other") {
        return;
    }
    let (first, second) = (stream(), stream());
    let options = InstantiateOptions::default();
    let mut waiting = Waiting::new(&first, &options);
    let count = word(&second, 0);
    let mut counter = counting(&count, &second, &options).unwrap();
    let after = second.context().new_event(None).unwrap();
    waiting.exec.launch(&first).unwrap();
    counter.launch(&second).unwrap();
    after.record(&second).unwrap();
    // Long enough to count to three many times over.
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!after.is_complete(), "it did not wait");
    waiting.end();
    second.synchronize().unwrap();
    assert_eq!(count.to_host(&second).unwrap(), [3]);
    assert_eq!(waiting.done.to_host(&first).unwrap(), [1]);
}

#[test]
fn without_loops_nothing_waits() {
    let _alone = alone();
    let (first, second) = (stream(), stream());
    let mut waiting = Waiting::new(&first, &InstantiateOptions::default());
    let a = word(&second, 0);
    let graph = Graph::new(&context()).unwrap();
    graph.add(store(&a, 5), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    waiting.exec.launch(&first).unwrap();
    exec.launch(&second).unwrap();
    assert_eq!(a.to_host(&second).unwrap(), [5]);
    waiting.end();
    first.synchronize().unwrap();
}

#[test]
fn on_request_loops_run_at_once() {
    if cuda_graph::device(0).unwrap().driver() == Driver::Gpu {
        // No driver that is known to take it has been seen.
        return;
    }
    let _alone = alone();
    let (first, second) = (stream(), stream());
    let options = InstantiateOptions {
        loops_at_once: true,
        ..InstantiateOptions::default()
    };
    let mut waiting = Waiting::new(&first, &options);
    let count = word(&second, 0);
    let mut counter = counting(&count, &second, &options).unwrap();
    waiting.exec.launch(&first).unwrap();
    counter.launch(&second).unwrap();
    assert_eq!(count.to_host(&second).unwrap(), [3]);
    waiting.end();
    first.synchronize().unwrap();
}

#[test]
fn threads_take_turns() {
    let _alone = alone();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                let stream = stream();
                let count = word(&stream, 0);
                let mut exec = counting(&count, &stream, &InstantiateOptions::default()).unwrap();
                exec.launch(&stream).unwrap();
                for _ in 0..20 {
                    // Nothing is left to count.
                    exec.launch(&stream).unwrap();
                }
                stream.synchronize().unwrap();
                count.to_host(&stream).unwrap()[0]
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 3);
    }
}

/// Of loops in branches one waits for the other; what else there is does not.
#[test]
fn loops_side_by_side_run_one_after_the_other() {
    let _alone = alone();
    let (stream, other) = (stream(), stream());
    for through in BUILT {
        for (inside, before) in [(false, false), (true, false), (false, true), (true, true)] {
            let what = format!("{through:?}, in a body: {inside}, in an IF: {before}");
            let go_on = signal();
            let (one, minus) = (word(&stream, 1), word(&stream, u32::MAX));
            let (flag, left) = (word(&stream, 1), word(&stream, 3));
            let (count, beside) = (word(&stream, 0), word(&stream, 0));
            let waits = |r: &mut dyn Recorder| {
                r.while_nonzero(&flag, |r| r.record(CopyOp::new(&flag, &go_on)?).map(drop))
            };
            let counts = |r: &mut dyn Recorder| {
                r.do_while_nonzero(&left, |r| {
                    r.record(add(&left, &minus))?;
                    r.record(add(&count, &one)).map(drop)
                })
            };
            let branches = |r: &mut dyn Recorder| {
                r.parallel(&mut [
                    &mut |r| match before {
                        true => r.if_nonzero(&one, waits),
                        false => waits(r),
                    },
                    &mut |r| r.record(store(&beside, 7)).map(drop),
                    &mut |r| counts(r),
                ])
            };
            let step = |r: &mut dyn Recorder| match inside {
                true => r.if_nonzero(&one, branches),
                false => branches(r),
            };
            let (graph, ()) = recorded(through, &stream, step).unwrap();
            let mut exec = graph.instantiate().unwrap();
            exec.launch(&stream).unwrap();
            assert_soon(
                || beside.to_host(&other).unwrap() == [7],
                "what has no loop waits",
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_eq!(count.to_host(&other).unwrap(), [0], "{what}");
            go_on.write(&[0]).unwrap();
            stream.synchronize().unwrap();
            assert_eq!(count.to_host(&stream).unwrap(), [3], "{what}");
        }
    }
}

/// How many conditional nodes of a graph wait for another, or the kernels that set their conditions
/// do.
fn waiting(graph: &Graph) -> usize {
    let edges = graph.edges().unwrap();
    let conditional = |node: NodeId| node.kind() == NodeKind::Conditional;
    let sets = |node| edges.iter().any(|e| e.from == node && conditional(e.to));
    let waits = |edge: &&Edge| conditional(edge.from) && (conditional(edge.to) || sets(edge.to));
    edges.iter().filter(waits).count()
}

/// Two paths in one graph, and what goes on after a branch was left, know each other's loops.
#[test]
fn loops_recorded_apart_are_chained() {
    let _alone = alone();
    let stream = stream();
    let (left, count) = (word(&stream, 1), word(&stream, 0));
    let (one, minus) = (word(&stream, 1), word(&stream, u32::MAX));
    let looping = |r: &mut dyn Recorder| {
        r.do_while_nonzero(&left, |r| {
            r.record(store(&left, 1))?;
            r.record(add(&left, &minus))?;
            r.record(add(&count, &one)).map(drop)
        })
    };
    let has = |graph: &Graph, loops: u32, what: &str| {
        // Those after branches wait for the loops of all.
        assert!(waiting(graph) >= loops as usize - 1, "{what}");
        count.copy_from_host(&stream, &[0]).unwrap();
        launch(&mut graph.instantiate().unwrap(), &stream).unwrap();
        assert_eq!(read(&stream, &count), loops, "{what}");
    };
    let graph = Graph::new(&context()).unwrap();
    let (mut first, mut second) = (Path::new(&graph), Path::new(&graph));
    looping(&mut first).unwrap();
    looping(&mut second).unwrap();
    has(&graph, 2, "two paths");
    graph.record_into((), |path| looping(path)).unwrap();
    graph.capture_into(&stream, (), |c| looping(c)).unwrap();
    second.go_on_after(()).unwrap();
    looping(&mut second).unwrap();
    has(&graph, 5, "in every way");
    // What other paths record meanwhile comes before.
    let mut later = None;
    graph
        .record_into((), |path| {
            looping(&mut first)?;
            looping(path)?;
            looping(&mut second)?;
            let in_path = path.ends()?;
            later = Some((in_path[0], second.ends()?[0]));
            looping(path)
        })
        .unwrap();
    // Numbers do not say which comes first.
    let (after, before) = later.unwrap();
    assert!(matches!(
        graph.add_edge(after, before),
        Err(Error::Cycle { .. })
    ));
    graph.record_into((), |_| looping(&mut first)).unwrap();
    looping(&mut second).unwrap();
    has(&graph, 11, "meanwhile");
    // What was last may go.
    let last = second.ends().unwrap()[0];
    graph.destroy(last).unwrap();
    second.go_on_after(()).unwrap();
    looping(&mut second).unwrap();
    has(&graph, 11, "the last was destroyed");

    for (how, through) in [How::Error, How::Panic]
        .into_iter()
        .flat_map(|how| BUILT.map(|through| (how, through)))
    {
        let what = format!("{through:?}, {how:?}");
        let exit = Exit::new(0, how);
        let (graph, ()) = recorded(through, &stream, |r| {
            let is_left = exit.takes(&what, || {
                r.parallel(&mut [&mut |r| looping(r), &mut |r| {
                    r.parallel(&mut [&mut |r| looping(r), &mut |_| exit.here()])
                }])
            });
            assert!(is_left);
            r.parallel(&mut [&mut |r| looping(r), &mut |r| looping(r)])
        })
        .unwrap();
        has(&graph, 4, &what);
    }
}

/// What is made by hand is ordered by hand.
#[test]
fn conditional_nodes_side_by_side_are_refused() {
    let stream = stream();
    let flag = word(&stream, 0);
    let options = InstantiateOptions {
        loops_at_once: true,
        ..InstantiateOptions::default()
    };
    let graph = || Graph::new(&context()).unwrap();
    // They never run.
    let looping = |graph: &Graph| {
        let condition = graph.condition(Some(0)).unwrap();
        graph.add(WhileOp::new(&condition), ()).unwrap()
    };
    let branch = |graph: &Graph| {
        let condition = graph.condition(Some(0)).unwrap();
        graph.add(IfOp::new(&condition), ()).unwrap()
    };
    #[track_caller]
    fn check(graph: &Graph, options: &InstantiateOptions, between: Option<[NodeId; 2]>) {
        let refused = graph.instantiate();
        let Err(Error::SideBySide { first, second }) = &refused else {
            panic!("{refused:?}");
        };
        assert_ne!(first.index, second.index);
        let mut exec = graph.instantiate_with(options).unwrap();
        exec.update_from(graph).unwrap();
        drop(exec);
        if let Some([from, to]) = between {
            graph.add_edge(from, to).unwrap();
            graph.instantiate().unwrap();
        }
    }
    // Two loops, with what else there is.
    let loops = graph();
    let (first, second) = (looping(&loops).id(), looping(&loops).id());
    loops.add(EmptyOp::new(), first).unwrap();
    check(&loops, &options, Some([first, second]));
    loops.remove_edge(first, second).unwrap();
    check(&loops, &options, None);
    // Known by its raw handle alone.
    // SAFETY: its owner outlives it.
    let known = unsafe { Graph::from_raw_borrowed(loops.raw().unwrap(), &context()) };
    check(&known, &options, None);
    loops.add_edge(first, second).unwrap();
    known.instantiate().unwrap();

    // Two branches in a body.
    let inside = graph();
    let outer = branch(&inside);
    let body = inside.body(outer).unwrap();
    let [first, second] = [(), ()].map(|()| branch(&body).id());
    let refused = inside.instantiate();
    assert!(matches!(refused, Err(Error::SideBySide { .. })));
    body.add_edge(first, second).unwrap();
    inside.instantiate().unwrap();

    // Outside of bodies, branches need not, unless they hold others.
    let beside = graph();
    let [first, second] = [(), ()].map(|()| branch(&beside));
    beside.instantiate().unwrap();
    branch(&beside.body(first).unwrap());
    beside.instantiate().unwrap();
    branch(&beside.body(second).unwrap());
    check(&beside, &options, Some([second.id(), first.id()]));

    // What a recorder ordered, and an edge was taken from.
    let recorded = graph();
    let body = |r: &mut dyn Recorder| r.record(store(&flag, 0)).map(drop);
    let mut path = Path::new(&recorded);
    path.do_while_nonzero(&flag, body).unwrap();
    let first = path.ends().unwrap()[0];
    path.do_while_nonzero(&flag, body).unwrap();
    let second = path.ends().unwrap()[0];
    let mut exec = recorded.instantiate().unwrap();
    recorded.remove_edge(first, second).unwrap();
    let refused = exec.update_from(&recorded);
    assert!(
        matches!(refused, Err(Error::SideBySide { .. })),
        "{refused:?}"
    );
    drop(exec);
    check(&recorded, &options, Some([second, first]));
}

/// Bodies whose conditional nodes an H200 does not get to the end of where they run at once: each
/// has three branches, of which two have such nodes.
#[test]
fn branches_of_bodies_end() {
    let _alone = alone();
    let stream = stream();
    let (minus, one) = (word(&stream, u32::MAX), word(&stream, 1));
    for through in EVERY {
        for filled in [false, true] {
            let (turns, last) = (word(&stream, 20), word(&stream, 0));
            let counts: Vec<_> = (0..5).map(|_| word(&stream, 0)).collect();
            let more = |r: &mut dyn Recorder, at: usize| r.record(add(&counts[at], &one)).map(drop);
            let step = |r: &mut dyn Recorder| {
                r.while_nonzero(&turns, |r| {
                    r.parallel(&mut [
                        &mut |r| r.if_nonzero(&one, |r| more(r, 0)),
                        &mut |r| match filled {
                            true => r.record(FillOp::new(&last, 7u32)?).map(drop),
                            false => r.record(store(&last, 7)).map(drop),
                        },
                        &mut |r| {
                            more(r, 1)?;
                            r.if_else_nonzero(&last, |r| more(r, 2), |r| more(r, 2))?;
                            more(r, 3)
                        },
                        &mut |r| r.switch_on(&one, &mut [&mut |_| Ok(()), &mut |r| more(r, 4)]),
                    ])?;
                    r.record(add(&turns, &minus)).map(drop)
                })
            };
            for _ in 0..5 {
                turns.copy_from_host(&stream, &[20]).unwrap();
                for count in &counts {
                    count.copy_from_host(&stream, &[0]).unwrap();
                }
                run(through, &stream, step).unwrap();
                let counted: Vec<_> = counts.iter().map(|count| read(&stream, count)).collect();
                assert_eq!(counted, [20; 5], "{through:?}, filled: {filled}");
                assert_eq!(read(&stream, &last), 7);
            }
        }
    }
}

/// Inside a body all conditional nodes of branches take turns; outside of all, those that loop or
/// have others inside.
#[test]
fn conditional_nodes_of_branches_wait_for_each_other_where_they_must() {
    let _alone = alone();
    let stream = stream();
    let flag = word(&stream, 0);
    let some = |r: &mut dyn Recorder| r.record(store(&flag, 0)).map(drop);
    let simple = |r: &mut dyn Recorder| r.if_nonzero(&flag, some);
    let nested = |r: &mut dyn Recorder| r.if_nonzero(&flag, simple);
    let looping = |r: &mut dyn Recorder| r.while_nonzero(&flag, some);
    for through in BUILT {
        let edges = |inside: bool, first: &dyn Fn(&mut dyn Recorder) -> Result<()>| {
            let branches = |r: &mut dyn Recorder| {
                r.parallel(&mut [
                    &mut |r| first(r),
                    &mut |r| some(r),
                    &mut |r| first(r),
                    &mut |r| simple(r),
                ])
            };
            let step = |r: &mut dyn Recorder| match inside {
                true => r.if_nonzero(&flag, branches),
                false => branches(r),
            };
            let (graph, ()) = recorded(through, &stream, step).unwrap();
            let nodes = graph.nodes().unwrap();
            let outer = nodes.iter().find_map(|node| node.typed::<IfOp>());
            let graph = match inside {
                true => graph.body(outer.unwrap()).unwrap(),
                false => graph,
            };
            waiting(&graph)
        };
        assert_eq!(edges(false, &simple), 0, "{through:?}");
        assert_eq!(edges(false, &nested), 1, "{through:?}");
        assert_eq!(edges(false, &looping), 1, "{through:?}");
        for first in [
            &simple as &dyn Fn(&mut dyn Recorder) -> Result<()>,
            &nested,
            &looping,
        ] {
            assert_eq!(edges(true, first), 2, "{through:?}");
        }
    }
}
