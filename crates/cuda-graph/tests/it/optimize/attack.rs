//! Executables that passes made, beside those without: what they do, refuse and hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cuda_graph::cudarc::driver::{CudaStream, sys};
use cuda_graph::testing::with_failing_call;
use cuda_graph::{
    Buffer, CaptureInfo, ChildOp, Condition, CopyOp, EmptyOp, Error, Exec, FillOp, Graph, HostOp,
    IfOp, KernelOp, Node, Optimize, RawMemory, Result, WhileOp,
};

use super::optimized;
use crate::control::kernels::{set, step};
use crate::fixture::{add, assert_soon, context, is_software, store, stream, words};

fn graph() -> Graph {
    Graph::new(&context()).expect("there is memory")
}

fn fill(to: &Buffer<u32>, value: u32) -> FillOp {
    FillOp::new(to, value).expect("it fits")
}

/// What a plain executable answers, and one that passes made.
fn answers<T>(mut ask: impl FnMut(Optimize) -> T) -> [T; 2] {
    [Optimize::NONE, Optimize::ALL].map(&mut ask)
}

/// A text that is the same in another run.
fn without_addresses(text: &str) -> String {
    let words = text.split("0x").enumerate();
    let rest = |(at, part): (usize, &str)| match at {
        0 => part.to_owned(),
        _ => part
            .trim_start_matches(|c: char| c.is_ascii_hexdigit())
            .to_owned(),
    };
    words.map(rest).collect()
}

fn said<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => without_addresses(&error.to_string()),
    }
}

#[test]
fn a_whole_update_comes_after_one_of_a_node() {
    let stream = stream();
    let read = answers(|optimize| {
        let cells = [words(&stream, &[0]), words(&stream, &[0])];
        let graph = graph();
        let first = graph.add(fill(&cells[0], 1), ()).unwrap();
        let second = graph.add(fill(&cells[1], 2), ()).unwrap();
        let mut exec = optimized(&graph, optimize);
        exec.update(first, fill(&cells[0], 5)).unwrap();
        graph.update(first, fill(&cells[0], 7)).unwrap();
        exec.update_in_place(&graph).unwrap();
        // Both are done by one kernel, which is written anew.
        exec.disable(second).unwrap();
        exec.launch(&stream).unwrap();
        [0, 1].map(|at: usize| cells[at].to_host(&stream).unwrap())
    });
    assert_eq!(read[0], [[7], [0]]);
    assert_eq!(read[1], read[0]);
}

#[test]
fn a_condition_that_no_node_uses_is_refused() {
    let stream = stream();
    let said = answers(|optimize| {
        let cells = [words(&stream, &[0]), words(&stream, &[0])];
        let graph = graph();
        graph.add(fill(&cells[0], 1), ()).unwrap();
        graph.add(fill(&cells[1], 2), ()).unwrap();
        graph.condition(None).unwrap();
        said(
            graph
                .instantiate_with(&cuda_graph::InstantiateOptions {
                    optimize,
                    ..Default::default()
                })
                .map(drop),
        )
    });
    assert_eq!(said[0], said[1]);
}

#[test]
fn user_objects_of_a_graph_taken_over_outlive_its_launches() {
    unsafe extern "C" fn let_go(data: *mut std::ffi::c_void) {
        // SAFETY: a flag that lives for good.
        unsafe { &*data.cast::<AtomicBool>() }.store(true, Ordering::SeqCst);
    }
    let stream = stream();
    let cell = words(&stream, &[0]);
    let dropped = answers(|optimize| {
        let is_dropped: &'static AtomicBool = Box::leak(Box::default());
        let go_on: &'static AtomicBool = Box::leak(Box::default());
        let started: &'static AtomicBool = Box::leak(Box::default());
        context().bind_to_thread().unwrap();
        // SAFETY: the flag lives for good, and nobody else has the graph.
        let graph = unsafe {
            let mut raw = std::ptr::null_mut();
            sys::cuGraphCreate(&mut raw, 0).result().unwrap();
            let mut object = std::ptr::null_mut();
            let data = std::ptr::from_ref(is_dropped).cast_mut().cast();
            sys::cuUserObjectCreate(&mut object, data, Some(let_go), 1, 1)
                .result()
                .unwrap();
            sys::cuGraphRetainUserObject(raw, object, 1, 1)
                .result()
                .unwrap();
            Graph::from_raw(raw, &context())
        };
        let op = HostOp::new(move || {
            started.store(true, Ordering::SeqCst);
            while !go_on.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let first = graph.add(op, ()).unwrap();
        let second = graph.add(store(&cell, 1), first).unwrap();
        graph.add(store(&cell, 2), (first, second)).unwrap();
        let mut exec = optimized(&graph, optimize);
        drop(graph);
        exec.launch(&stream).unwrap();
        assert_soon(|| started.load(Ordering::SeqCst), "it starts");
        drop(exec);
        std::thread::sleep(Duration::from_millis(50));
        let early = is_dropped.load(Ordering::SeqCst);
        go_on.store(true, Ordering::SeqCst);
        stream.synchronize().unwrap();
        assert_soon(|| is_dropped.load(Ordering::SeqCst), "it goes at last");
        early
    });
    assert_eq!(dropped, [false, false]);
}

#[test]
fn nodes_beside_foreign_work_are_found_after_an_update_from_another_graph() {
    let stream = stream();
    let read = answers(|optimize| {
        let cells = [0; 4].map(|word| words(&stream, &[word]));
        let memory = memory();
        let make = |value: u32, more: bool| {
            let inner = Graph::capture(&stream, |path| {
                path.record(store(&cells[0], value))?;
                // SAFETY: the buffer outlives the graph.
                unsafe {
                    path.foreign(|stream| {
                        sys::cuMemsetD32Async(memory, value, 1, stream.cu_stream())
                            .result()
                            .unwrap();
                        Ok(())
                    })
                }
            })
            .unwrap()
            .0;
            let outer = graph();
            if more {
                // Numbers of graphs go on from it.
                let spare = graph();
                spare.add(EmptyOp::new(), ()).unwrap();
                let spare = outer.add(ChildOp::new(&spare), ()).unwrap();
                outer.child(spare).unwrap().nodes().unwrap();
                outer.destroy(spare).unwrap();
            }
            let child = outer.add(ChildOp::new(&inner), ()).unwrap();
            let second = outer.add(fill(&cells[2], value), child).unwrap();
            outer.add(fill(&cells[3], value), (child, second)).unwrap();
            let view = outer.child(child).unwrap();
            let nodes = view.nodes().unwrap();
            let node = nodes
                .iter()
                .find_map(|node| node.typed::<KernelOp>())
                .unwrap();
            (outer, node)
        };
        let (own, node) = make(1, false);
        let (other, _) = make(2, true);
        let mut exec = optimized(&own, optimize);
        exec.launch(&stream).unwrap();
        let mut log = vec![said(exec.update_in_place(&other))];
        exec.launch(&stream).unwrap();
        let see = |log: &mut Vec<String>| {
            let read = cells.each_ref().map(|cell| cell.to_host(&stream).unwrap());
            log.push(format!("{read:?}"));
        };
        see(&mut log);
        log.push(said(exec.update(node, store(&cells[0], 9))));
        exec.launch(&stream).unwrap();
        see(&mut log);
        log.push(said(exec.is_enabled(node)));
        log.push(said(exec.disable(node)));
        log.push(said(exec.is_enabled(node)));
        cells[0].copy_from_host(&stream, &[100]).unwrap();
        exec.launch(&stream).unwrap();
        see(&mut log);
        log
    });
    assert_eq!(read[1], read[0]);
}

#[test]
fn nodes_of_embedded_graphs_are_paired_as_the_driver_does() {
    let stream = stream();
    let read = answers(|optimize| {
        let cells = [0; 6].map(|word| words(&stream, &[word]));
        let make = |cells: &[Buffer<u32>], edited: bool| {
            let inner = graph();
            let nodes: Vec<Node<KernelOp>> = (0..3)
                .map(|at| inner.add(store(&cells[at], at as u32 + 1), ()).unwrap())
                .collect();
            if edited {
                // The first becomes an end again, after the others.
                inner.add_edge(nodes[0], nodes[2]).unwrap();
                inner.remove_edge(nodes[0], nodes[2]).unwrap();
            }
            let outer = graph();
            let child = outer.add(ChildOp::new(&inner), ()).unwrap();
            let node = outer.child(child).unwrap().nodes().unwrap()[0];
            (outer, node.typed::<KernelOp>().unwrap())
        };
        let (own, node) = make(&cells[..3], false);
        let (other, _) = make(&cells[3..], true);
        let mut exec = optimized(&own, optimize);
        exec.update_in_place(&other).unwrap();
        exec.update(node, store(&cells[0], 9)).unwrap();
        exec.launch(&stream).unwrap();
        cells
            .each_ref()
            .map(|cell| cell.to_host(&stream).unwrap()[0])
    });
    assert_eq!(read[1], read[0]);
}

/// Memory of the driver's own.
fn memory() -> u64 {
    context().bind_to_thread().unwrap();
    let mut address = 0;
    // SAFETY: the number is there to be written.
    unsafe { sys::cuMemAlloc_v2(&mut address, 4096).result().unwrap() };
    address
}

fn free(address: u64) {
    context().bind_to_thread().unwrap();
    // SAFETY: nothing uses it any more.
    unsafe { sys::cuMemFree_v2(address).result().unwrap() };
}

fn fill_at(address: u64, value: u32) -> FillOp {
    // SAFETY: nothing is run once it is freed.
    let to = unsafe { RawMemory::device(address, 4) };
    FillOp::pattern(to, value).unwrap()
}

#[test]
fn a_disabled_fill_may_be_of_memory_that_is_gone() {
    let stream = stream();
    let read = answers(|optimize| {
        let cells = [0; 3].map(|word| words(&stream, &[word]));
        let gone = memory();
        let graph = graph();
        let first = graph.add(fill_at(gone, 1), ()).unwrap();
        let second = graph.add(fill(&cells[0], 2), ()).unwrap();
        graph.add(fill(&cells[1], 3), ()).unwrap();
        let mut exec = optimized(&graph, optimize);
        let mut log = vec![said(exec.disable(first))];
        exec.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        free(gone);
        log.push(said(exec.disable(second)));
        exec.launch(&stream).unwrap();
        log.push(said(exec.enable(second)));
        log.push(said(exec.update(second, fill(&cells[0], 4))));
        log.push(said(exec.disable(first)));
        log.push(said(exec.is_enabled(first)));
        exec.launch(&stream).unwrap();
        let read = cells.each_ref().map(|cell| cell.to_host(&stream).unwrap());
        log.push(format!("{read:?}"));
        // Whether that is refused or not, it is told whether it runs.
        let done = exec.enable(first).is_ok();
        log.push((exec.is_enabled(first).unwrap() == done).to_string());
        log
    });
    assert_eq!(read[1], read[0]);
}

#[test]
fn a_fill_of_memory_that_is_gone_may_be_disabled() {
    let stream = stream();
    let read = answers(|optimize| {
        let cells = [0; 3].map(|word| words(&stream, &[word]));
        let gone = memory();
        let graph = graph();
        let first = graph.add(fill_at(gone, 1), ()).unwrap();
        graph.add(fill(&cells[0], 2), ()).unwrap();
        let mut exec = optimized(&graph, optimize);
        exec.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        free(gone);
        let mut log = vec![said(exec.disable(first))];
        log.push(said(exec.is_enabled(first)));
        log.push(said(exec.launch(&stream)));
        let read = cells.each_ref().map(|cell| cell.to_host(&stream).unwrap());
        log.push(format!("{read:?}"));
        log
    });
    assert_eq!(read[1], read[0]);
}

#[test]
fn refusals_are_the_same() {
    let stream = stream();
    let read = answers(|optimize| {
        let cells = [0; 4].map(|word| words(&stream, &[word]));
        // Nothing was ever there.
        let gone = 4096;
        let mut pageable = vec![7u32; 4];
        // SAFETY: it lives as long as the executable.
        let host = |start: *mut u32| unsafe { RawMemory::host(start, 4) };
        // SAFETY: no launch reads it.
        let freed = || unsafe { RawMemory::device(gone, 4) };
        let pinned = cuda_graph::Buffer::<u32>::from_host(&stream, &[1]).unwrap();
        let graph = graph();
        let first = graph.add(fill(&cells[0], 1), ()).unwrap();
        graph.add(fill(&cells[1], 1), ()).unwrap();
        let copy = graph
            .add(CopyOp::new(&cells[2], &cells[0]).unwrap(), first)
            .unwrap();
        graph
            .add(CopyOp::new(&cells[3], &cells[1]).unwrap(), first)
            .unwrap();
        let mut exec = optimized(&graph, optimize);
        let mut log = vec![
            said(exec.update(first, fill_at(gone, 3))),
            said(exec.update(
                copy,
                CopyOp::new(&cells[2], host(pageable.as_mut_ptr())).unwrap(),
            )),
            said(exec.update(
                copy,
                CopyOp::new(host(pageable.as_mut_ptr()), &cells[2]).unwrap(),
            )),
            said(exec.update(copy, CopyOp::new(&cells[2], freed()).unwrap())),
            said(exec.update(
                first,
                FillOp::pattern(host(pageable.as_mut_ptr()), 3u32).unwrap(),
            )),
            said(exec.update(first, FillOp::pattern(&cells[0], 3u8).unwrap())),
            said(exec.update(first, FillOp::pattern(&cells[0], 3u16).unwrap())),
            said(exec.update(first, FillOp::pattern(&cells[0], [1u8, 2, 3, 4]).unwrap())),
            said(exec.update(copy, CopyOp::new(&cells[2], &pinned).unwrap())),
        ];
        log.push(said(exec.launch(&stream)));
        log.push(said(stream.synchronize().map_err(|_| Error::GraphGone)));
        let read = cells.each_ref().map(|cell| cell.to_host(&stream).unwrap());
        log.push(format!("{read:?}"));
        log
    });
    // Where a graph is planned anew, another call of the driver refuses it.
    let refused = |log: &[String]| {
        let first = |text: &String| text.split(": ").next().map(str::to_owned);
        log.iter().map(first).collect::<Vec<_>>()
    };
    assert_eq!(refused(&read[1]), refused(&read[0]));
}

/// A graph that branches, branches inside of a branch, and loops.
struct Branching {
    graph: Graph,
    /// They set the conditions.
    setters: [Node<KernelOp>; 3],
    conditions: [Condition; 3],
    fill: Node<FillOp>,
}

/// What it counts in: the branch, the branch inside, the turns of the loop, and what ends the loop.
type Cells = [Buffer<u32>; 6];

fn branching(stream: &Arc<CudaStream>, flag: &Buffer<u32>, cells: &Cells, long: bool) -> Branching {
    let one = words(stream, &[1]);
    let graph = graph();
    // Those of one graph come in another order than those of the other.
    let mut conditions = [None, None, Some(1)].map(|default| graph.condition(default).unwrap());
    if long {
        conditions.swap(0, 1);
    }
    let first = graph.add(set(conditions[0], flag), ()).unwrap();
    let outer = graph.add(IfOp::new(&conditions[0]), first).unwrap();
    let body = graph.body(outer).unwrap();
    body.add(add(&cells[0], &one), ()).unwrap();
    let second = body.add(set(conditions[1], flag), ()).unwrap();
    let inner = body.add(IfOp::new(&conditions[1]), second).unwrap();
    let inner = body.body(inner).unwrap();
    inner.add(add(&cells[1], &one), ()).unwrap();
    let reset = graph.add(store(&cells[3], 0), outer).unwrap();
    let turns = graph.add(WhileOp::new(&conditions[2]), reset).unwrap();
    let body = graph.body(turns).unwrap();
    let turn = body.add(add(&cells[2], &one), ()).unwrap();
    let third = body.add(step(conditions[2], &cells[3], 3), turn).unwrap();
    let fill_node = graph.add(fill(&cells[4], 1), turns).unwrap();
    // Of a size that no pass touches, and of one that becomes a kernel.
    let bytes = if long { 4 << 20 } else { 4096 };
    let room = Buffer::<u8>::zeroed(stream, bytes).unwrap();
    let beside = graph.add(FillOp::new(&room, 1).unwrap(), turns).unwrap();
    graph.add(fill(&cells[5], 1), (turns, beside)).unwrap();
    Branching {
        graph,
        setters: [first, second, third],
        conditions,
        fill: fill_node,
    }
}

#[test]
fn conditions_are_set_after_an_update_from_another_graph() {
    let stream = stream();
    // In which order graphs are updated from: the own one, one of another plan, one of the same.
    for order in [&[1][..], &[1, 0], &[2, 1, 2], &[1, 2, 0, 2], &[2, 0, 1, 1]] {
        let read = answers(|optimize| {
            let [on, off] = [1, 0].map(|word| words(&stream, &[word]));
            let cells = [0; 6].map(|word| words(&stream, &[word]));
            let graphs = [false, true, false].map(|long| branching(&stream, &on, &cells, long));
            let own = &graphs[0];
            let mut exec = optimized(&own.graph, optimize);
            let mut log = Vec::new();
            let run = |exec: &mut Exec, log: &mut Vec<String>| {
                exec.launch(&stream).unwrap();
                let read = cells.each_ref().map(|cell| cell.to_host(&stream).unwrap());
                log.push(format!("{read:?}"));
            };
            run(&mut exec, &mut log);
            for &at in order {
                log.push(said(exec.update_in_place(&graphs[at].graph)));
                run(&mut exec, &mut log);
                for (turn, flag) in [&off, &on].into_iter().enumerate() {
                    for (node, condition) in own.setters.iter().zip(own.conditions).take(2) {
                        log.push(said(exec.update(*node, set(condition, flag))));
                        run(&mut exec, &mut log);
                    }
                    let limit = 5 + turn as u32;
                    let op = step(own.conditions[2], &cells[3], limit);
                    log.push(said(exec.update(own.setters[2], op)));
                    run(&mut exec, &mut log);
                    // Some setters do what the other graph's do when this is planned anew.
                    log.push(said(
                        exec.update(own.setters[1], set(own.conditions[1], &on)),
                    ));
                    log.push(said(exec.disable(own.fill)));
                    run(&mut exec, &mut log);
                    log.push(said(exec.enable(own.fill)));
                }
            }
            // The other's own conditions are foreign, as ever.
            let [_, other, _] = &graphs;
            log.push(said(
                exec.update(own.setters[0], set(other.conditions[0], &off)),
            ));
            run(&mut exec, &mut log);
            log
        });
        assert_eq!(read[1], read[0], "{order:?}");
    }
}

#[test]
fn what_sets_a_condition_is_planned_anew_after_an_update_from_another_graph() {
    let stream = stream();
    let read = answers(|optimize| {
        let [on, off] = [1, 0].map(|word| words(&stream, &[word]));
        let cells = [0; 6].map(|word| words(&stream, &[word]));
        let [own, other] = [false, true].map(|long| branching(&stream, &on, &cells, long));
        let mut exec = optimized(&own.graph, optimize);
        let mut log = vec![said(exec.update_in_place(&other.graph))];
        // One setter names the own graph's condition, the others the other's.
        log.push(said(
            exec.update(own.setters[1], set(own.conditions[1], &off)),
        ));
        log.push(said(exec.disable(own.fill)));
        // SAFETY: it is device memory in truth; no kernel of passes takes it.
        let managed = unsafe { RawMemory::managed(memory(), 4) };
        let op = FillOp::pattern(managed, 3u32).unwrap();
        log.push(said(exec.enable(own.fill)));
        log.push(said(exec.update(own.fill, op)));
        drop(other);
        drop(own.graph);
        for flag in [&off, &on] {
            exec.launch(&stream).unwrap();
            let read = cells.each_ref().map(|cell| cell.to_host(&stream).unwrap());
            log.push(format!("{read:?}"));
            log.push(said(
                exec.update(own.setters[0], set(own.conditions[0], flag)),
            ));
        }
        log
    });
    assert_eq!(read[1], read[0]);
}

/// Runs `act` with each of its driver calls failing in turn, until none is left to fail.
fn each_failing(
    make: &dyn Fn() -> (Exec, Box<dyn Fn() -> Vec<u32>>),
    act: &dyn Fn(&mut Exec) -> Result<()>,
) {
    let stream = stream();
    for nth in 0.. {
        assert!(nth < 2000, "no end of calls");
        let (mut exec, read) = make();
        exec.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        let before = read();
        let (done, failed) = with_failing_call(nth, || act(&mut exec));
        let is_refused = done.is_err();
        if is_refused {
            exec.launch(&stream).unwrap();
            stream.synchronize().unwrap();
            assert_eq!(read(), before, "call {nth}: {done:?}");
        }
        // It can be done again.
        act(&mut exec).unwrap();
        exec.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        let after = read();
        let (mut other, read) = make();
        act(&mut other).unwrap();
        other.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(after, read(), "call {nth}: {done:?}");
        if !failed {
            break;
        }
    }
}

#[test]
fn a_failed_call_changes_nothing() {
    let stream = stream();
    let cells = [0; 6].map(|word| words(&stream, &[word]));
    let pageable: &'static mut [u32] = Box::leak(Box::new([77u32; 4]));
    let pageable = pageable.as_mut_ptr() as usize;
    let spare = memory();
    type Nodes = (
        Graph,
        Node<FillOp>,
        Node<FillOp>,
        Node<ChildOp>,
        Node<CopyOp>,
    );
    let nodes = std::cell::RefCell::new(None::<Nodes>);
    let build = |value: u32| {
        let inner = graph();
        let within = inner.add(fill(&cells[3], value), ()).unwrap();
        inner.add(store(&cells[4], value), within).unwrap();
        let graph = graph();
        let first = graph.add(fill(&cells[0], value), ()).unwrap();
        let second = graph.add(fill(&cells[1], value), ()).unwrap();
        let child = graph.add(ChildOp::new(&inner), (first, second)).unwrap();
        // SAFETY: it lives for good.
        let from = unsafe { RawMemory::host(pageable as *mut u32, 4) };
        let copy = graph
            .add(CopyOp::new(&cells[2], from).unwrap(), (first, child))
            .unwrap();
        (graph, first, second, child, copy)
    };
    let make = || -> (Exec, Box<dyn Fn() -> Vec<u32>>) {
        let made = build(3);
        let exec = optimized(&made.0, Optimize::ALL);
        assert!(exec.report().unwrap().has_changed());
        *nodes.borrow_mut() = Some(made);
        for cell in &cells {
            cell.copy_from_host(&stream, &[0]).unwrap();
        }
        let (cells, stream) = (cells.clone(), stream.clone());
        let read = move || {
            let read = cells.iter().map(|cell| {
                let word = cell.to_host(&stream).unwrap()[0];
                cell.copy_from_host(&stream, &[0]).unwrap();
                word
            });
            read.collect()
        };
        (exec, Box::new(read))
    };
    let with = |act: &dyn Fn(&mut Exec, &Nodes) -> Result<()>| {
        each_failing(&make, &|exec| act(exec, nodes.borrow().as_ref().unwrap()));
    };
    let check = |exec: &Exec, node, done: &Result<()>| {
        if done.is_err() {
            assert!(
                exec.is_enabled(node).unwrap(),
                "it is disabled all the same"
            );
        }
    };
    with(&|exec, nodes| {
        let done = exec.disable(nodes.1);
        check(exec, nodes.1, &done);
        done
    });
    with(&|exec, nodes| exec.update(nodes.1, fill(&cells[0], 9)));
    // A fill of managed memory is none of a kernel's: the graph is planned anew.
    with(&|exec, nodes| {
        // SAFETY: it is memory of the device in truth, and stays.
        let to = unsafe { RawMemory::managed(spare, 4) };
        exec.update(nodes.2, FillOp::pattern(to, 5u32).unwrap())
    });
    let other = build(8);
    with(&|exec, _| exec.update_in_place(&other.0));
    with(&|exec, _| exec.update_from(&other.0).map(drop));
    let child = graph();
    let first = child.add(fill(&cells[3], 6), ()).unwrap();
    child.add(store(&cells[4], 6), first).unwrap();
    with(&|exec, nodes| exec.update(nodes.3, ChildOp::new(&child)));
    let more = build(8);
    more.0.add(fill(&cells[5], 4), ()).unwrap();
    with(&|exec, _| exec.update_from(&more.0).map(drop));
}

#[test]
#[ignore = "it looks at the clock: on an H200 a star of 20,000 nodes takes 10 s, plain 0.8 s"]
fn large_graphs_take_no_longer_than_their_nodes() {
    let stream = stream();
    let cells = [words(&stream, &[0]), words(&stream, &[0])];
    let count: u32 = std::env::var("ATTACK_NODES").map_or(20_000, |n| n.parse().unwrap());
    let time = |what: &str, graph: &Graph, node: Node<FillOp>| {
        let start = Instant::now();
        let plain = graph.instantiate().unwrap();
        let before = start.elapsed();
        drop(plain);
        let start = Instant::now();
        let mut exec = optimized(graph, Optimize::ALL);
        let after = start.elapsed();
        let start = Instant::now();
        exec.update(node, fill(&cells[0], 4)).unwrap();
        let first = start.elapsed();
        let start = Instant::now();
        exec.update(node, fill(&cells[0], 5)).unwrap();
        let second = start.elapsed();
        println!("{what}: plain {before:?}, optimized {after:?}, updates {first:?} {second:?}");
        after
    };
    let star = |count: u32| {
        let graph = graph();
        let node = graph.add(fill(&cells[0], 1), ()).unwrap();
        let wide: Vec<_> = (0..count)
            .map(|at| graph.add(store(&cells[0], at), node).unwrap())
            .collect();
        let join = graph.add(EmptyOp::new(), &wide).unwrap();
        graph.add(store(&cells[0], 2), join).unwrap();
        graph.add(EmptyOp::new(), ()).unwrap();
        time(&format!("star {count}"), &graph, node)
    };
    let line = |count: u32| {
        let graph = graph();
        let node = graph.add(fill(&cells[0], 1), ()).unwrap();
        let mut last = node.id();
        for at in 0..count {
            last = graph.add(store(&cells[0], at), last).unwrap().id();
        }
        time(&format!("line {count}"), &graph, node)
    };
    line(count / 4);
    line(count);
    let less = star(count / 4);
    let more = star(count);
    assert!(
        more < less * 8 + Duration::from_millis(200),
        "{less:?} {more:?}"
    );
}

/// The nodes and edges of a graph, without passes and with all of them.
fn sizes(graph: &Graph) -> [(usize, usize); 2] {
    let exec = optimized(graph, Optimize::ALL);
    let report = exec.report().unwrap();
    let at = |side: fn((usize, usize)) -> usize| (side(report.nodes), side(report.edges));
    [at(|both| both.0), at(|both| both.1)]
}

/// Planned in a time that grows with the square of the edges, this would take minutes. The driver
/// of an H200 takes such a time itself.
#[test]
fn a_node_may_have_very_many_edges() {
    const LINE: usize = 1_000;
    let many = if is_software() { 100_000 } else { 2_000 };
    let cell = words(&stream(), &[0]);
    let graph = graph();
    let first = graph.add(store(&cell, 1), ()).unwrap();
    let each = (0..many).map(|_| graph.add(store(&cell, 2), first).unwrap());
    let wide: Vec<_> = each.collect();
    // Each takes over whatever the one before waited for.
    let mut join = graph.add(EmptyOp::new(), &wide).unwrap();
    for &beside in &wide[..LINE] {
        join = graph.add(EmptyOp::new(), (join, beside)).unwrap();
    }
    graph.add(store(&cell, 3), join).unwrap();
    let [before, after] = sizes(&graph);
    assert_eq!(before, (many + LINE + 3, 2 * many + 2 * LINE + 1));
    assert_eq!(after, (many + 2, 2 * many));
}

/// If every node behind it waited for every node before it, there would be 400,000,000 edges.
#[test]
fn an_embedded_graph_of_nothing_may_have_very_many_edges() {
    let many = if is_software() { 20_000 } else { 1_000 };
    let cell = words(&stream(), &[0]);
    let outer = graph();
    let each = |after: Option<Node<ChildOp>>| {
        let add = |_| outer.add(store(&cell, 1), after).unwrap();
        (0..many).map(add).collect::<Vec<_>>()
    };
    let child = outer.add(ChildOp::new(&graph()), each(None)).unwrap();
    each(Some(child));
    let [before, after] = sizes(&outer);
    assert_eq!(before, (2 * many + 1, 2 * many));
    assert_eq!(after, before);
}

/// A block of foreign work that holds a user object, which says when it goes.
fn foreign_block(stream: &Arc<CudaStream>, is_dropped: &'static AtomicBool, to: u64) -> Result<()> {
    unsafe extern "C" fn let_go(data: *mut std::ffi::c_void) {
        // SAFETY: a flag that lives for good.
        unsafe { &*data.cast::<AtomicBool>() }.store(true, Ordering::SeqCst);
    }
    let graph = CaptureInfo::of(stream)?.graph;
    // SAFETY: the flag lives for good, and the memory as long as the test.
    unsafe {
        let mut object = std::ptr::null_mut();
        let data = std::ptr::from_ref(is_dropped).cast_mut().cast();
        sys::cuUserObjectCreate(&mut object, data, Some(let_go), 1, 1).result()?;
        sys::cuGraphRetainUserObject(graph, object, 1, 1).result()?;
        sys::cuMemsetD32Async(to, 7, 1, stream.cu_stream()).result()?;
    }
    Ok(())
}

#[test]
fn user_objects_of_a_block_outlive_launches_and_plans() {
    let stream = stream();
    let [cell, other] = [0; 2].map(|word| words(&stream, &[word]));
    let to = memory();
    for alone in [true, false] {
        let dropped = answers(|optimize| {
            let [is_dropped, go_on, started]: [&'static AtomicBool; 3] =
                std::array::from_fn(|_| &*Box::leak(Box::default()));
            let mut fills = None;
            let (block, ()) = Graph::capture(&stream, |path| {
                // SAFETY: as the block says.
                unsafe { path.foreign(|stream| foreign_block(stream, is_dropped, to)) }
            })
            .unwrap();
            let graph = match alone {
                true => block,
                false => {
                    let graph = graph();
                    graph.add(ChildOp::new(&block), ()).unwrap();
                    drop(block);
                    graph
                }
            };
            let op = HostOp::new(move || {
                started.store(true, Ordering::SeqCst);
                while !go_on.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let first = graph.add(op, ()).unwrap();
            fills.replace(graph.add(fill(&cell, 1), first).unwrap());
            graph.add(fill(&other, 1), first).unwrap();
            let mut exec = optimized(&graph, optimize);
            drop(graph);
            exec.launch(&stream).unwrap();
            assert_soon(|| started.load(Ordering::SeqCst), "it starts");
            // SAFETY: it is device memory in truth; no kernel of passes takes it.
            let managed = unsafe { RawMemory::managed(to, 4) };
            let op = FillOp::pattern(managed, 3u32).unwrap();
            let mut log = vec![said(exec.update(fills.unwrap(), op))];
            log.push(is_dropped.load(Ordering::SeqCst).to_string());
            exec.launch(&stream).unwrap();
            drop(exec);
            std::thread::sleep(Duration::from_millis(30));
            log.push(is_dropped.load(Ordering::SeqCst).to_string());
            go_on.store(true, Ordering::SeqCst);
            stream.synchronize().unwrap();
            cuda_graph::testing::settle();
            assert_soon(
                || is_dropped.load(Ordering::SeqCst),
                &format!("{alone} {optimize:?}: it goes at last"),
            );
            log
        });
        assert_eq!(dropped[1], dropped[0], "{alone}");
    }
}
