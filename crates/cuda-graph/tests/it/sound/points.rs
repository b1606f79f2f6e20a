//! One test for each hole that a review found. Those that do not compile any more are compile-fail
//! tests in the library's documentation. Tests of other modules hold the rest:
//!
//! | what | test |
//! |---|---|
//! | values of types for which not every bit pattern is one | compile-fail tests of `FillOp`, `Buffer::to_host`, `PinnedBuffer::to_vec` |
//! | a panic whose payload panics when dropped | `memory::a_panic_that_panics_when_dropped_ends_in_its_host_function` |
//! | a capture begun while freeing waits | `memory::a_buffer_that_is_dropped_waits_for_nothing` |
//! | buffers made in a capture | `memory::buffers_are_not_made_or_read_in_a_capture` |
//! | arguments given as `extra`, or read from an old driver | `arguments::arguments_of_a_buffer_are_read_back`, `arguments::a_driver_that_does_not_tell_the_parameters_is_too_old` |
//! | graphs of softcuda that change owner | `graphs::moving` and `graphs::user_objects` of softcuda |

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_graph::cudarc::driver::{CudaStream, PushKernelArg, sys};
use cuda_graph::testing::settle;
use cuda_graph::{
    AnyOp, Buffer, CaptureInfo, ChildOp, DriverDot, Edge, EdgeData, EmptyOp, Error, FillOp, Graph,
    InstantiateOptions, KernelOp, LaunchAttribute, NodeId, NodeKind, Path, RawMemory, RawOp,
    Recorder, Result, WhileOp,
};

use crate::fixture::{
    Watch, add, alone, assert_soon, context, function, in_process, one, store, stream, words,
};

/// Adds one word to another as code does that knows a stream alone.
fn foreign_add(stream: &Arc<CudaStream>, to: &Buffer<u32>, from: &Buffer<u32>) -> Result<()> {
    let (function, to, from) = (function("add"), to.address(), from.address());
    let mut launch = stream.launch_builder(&function);
    launch.arg(&to).arg(&from);
    // SAFETY: `add` reads and writes one word of each, which the tests keep.
    unsafe { launch.launch(one()) }?;
    Ok(())
}

fn read(stream: &Arc<CudaStream>, word: &Buffer<u32>) -> u32 {
    word.to_host(stream).unwrap()[0]
}

/// Point 1. A body's launch on a clone of the outer stream.
#[test]
fn a_launch_on_the_outer_stream_is_not_moved_out_of_its_loop() {
    let _alone = alone();
    let stream = stream();
    let outer = stream.clone();
    let (one, minus) = (words(&stream, &[1]), words(&stream, &[u32::MAX]));
    let (turns, sum) = (words(&stream, &[3]), words(&stream, &[0]));
    let captured = Graph::capture(&stream, |path| {
        path.while_nonzero(&turns, |r| {
            foreign_add(&outer, &sum, &one)?;
            r.record(add(&turns, &minus).label("count")).map(drop)
        })
    });
    let Err(Error::StrayWork(stray)) = captured else {
        panic!("{captured:?}");
    };
    assert_eq!(stray.found.len(), 1, "{stray}");
    assert_eq!(stray.found[0].kernel.as_deref(), Some("add"), "{stray}");
    let before = stray.before.as_ref().and_then(|name| name.label.as_deref());
    assert_eq!((stray.after.is_none(), before), (true, Some("count")));
    assert_eq!(read(&stream, &sum), 0, "it did not run either");

    // Said to be foreign, it is a part of the loop.
    let (graph, ()) = Graph::capture(&stream, |path| {
        path.while_nonzero(&turns, |r| {
            // SAFETY: the words live as long as the test.
            unsafe { r.foreign(|_| foreign_add(&outer, &sum, &one)) }?;
            r.record(add(&turns, &minus)).map(drop)
        })
    })
    .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!((read(&stream, &sum), read(&stream, &turns)), (3, 0));
}

/// Point 2. A copy to memory of the host that safe code frees before the launch.
#[test]
fn a_copy_to_memory_that_goes_is_not_recorded_by_safe_code() {
    // With one stream, cudarc tracks no events, which no capture would survive.
    let fresh = cuda_graph::device(0).unwrap();
    let stream = fresh.context().per_thread_stream();
    let device = stream.clone_htod(&[7u32; 4]).unwrap();
    let mut host = vec![1u32; 4];
    stream.synchronize().unwrap();
    let captured = Graph::capture(&stream, |path| {
        // cudarc answers that it could not wait for the copy, or keeps it for later.
        let _ = stream.memcpy_dtoh(&device, &mut host);
        let _ = fresh.context().check_err();
        path.record(EmptyOp::new()).map(drop)
    });
    let Err(Error::StrayWork(stray)) = captured else {
        panic!("{captured:?}");
    };
    assert_eq!(stray.found.len(), 1, "{stray}");
    assert_eq!(stray.found[0].kind, NodeKind::Copy, "{stray}");
    assert_eq!(host, [1; 4]);
    stream.synchronize().unwrap();
}

fn memset(to: &Buffer<u32>, value: u32) -> sys::CUgraphNodeParams {
    // SAFETY: plain data for which zero is a value; the kind is written before it is read.
    let mut params: sys::CUgraphNodeParams = unsafe {
        let mut params = std::mem::MaybeUninit::<sys::CUgraphNodeParams>::zeroed();
        (*params.as_mut_ptr()).type_ = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET;
        params.assume_init()
    };
    params.__bindgen_anon_1.memset.dst = to.address();
    params.__bindgen_anon_1.memset.value = value;
    params.__bindgen_anon_1.memset.elementSize = 4;
    params.__bindgen_anon_1.memset.width = 1;
    params.__bindgen_anon_1.memset.height = 1;
    params.__bindgen_anon_1.memset.ctx = context().cu_ctx();
    params
}

/// Point 3. What was read from a node comes without the node's owners.
#[test]
fn what_is_read_is_not_added_without_its_owners() {
    let stream = stream();
    let word = words(&stream, &[0]);
    let one = words(&stream, &[1]);
    let weak = Arc::downgrade(&word.owner());
    let graph = Graph::new(&context()).unwrap();
    // SAFETY: the parameters are those of a fill of the word, which the owner keeps.
    let raw = unsafe { RawOp::new(memset(&word, 5), [word.owner()]) };
    let raw = graph.add(raw, ()).unwrap();
    let (foreign, ()) = Graph::capture(&stream, |path| {
        path.record(EmptyOp::new())?;
        path.keep(word.owner())?;
        // SAFETY: the word is kept.
        unsafe { path.foreign(|stream| foreign_add(stream, &word, &one)) }
    })
    .unwrap();
    let nodes = foreign.nodes().unwrap();
    let block = nodes.iter().find(|node| node.kind() == NodeKind::Child);
    let block = foreign.child(block.unwrap().typed().unwrap()).unwrap();
    let launch = block.nodes().unwrap()[0];
    drop(word);

    let other = Graph::new(&context()).unwrap();
    for (op, kind) in [
        (graph.any_op(raw).unwrap(), NodeKind::Fill),
        (block.any_op(launch).unwrap(), NodeKind::Kernel),
    ] {
        let node = other.add(store(&one, 1), ()).unwrap();
        let mut exec = other.instantiate().unwrap();
        let mut path = Path::new(&other);
        let refused = [
            other.add(op.clone(), ()).map(drop),
            path.record(op.clone()).map(drop),
            cuda_graph::Eager::new(&stream).unwrap().record(op.clone()),
        ];
        for refused in refused {
            assert!(matches!(refused, Err(Error::Unowned { .. })), "{refused:?}");
        }
        if let (AnyOp::Kernel(op), NodeKind::Kernel) = (&op, kind) {
            for refused in [other.update(node, op.clone()), exec.update(node, op)] {
                assert!(matches!(refused, Err(Error::Unowned { .. })), "{refused:?}");
            }
        }
        assert_eq!(op.kind_of(), kind);
    }
    // The graphs hold it still, and it goes with them.
    assert!(weak.strong_count() > 0);
    drop((graph, foreign, block));
    settle();
    assert_soon(|| weak.strong_count() == 0, "the word leaks");
}

trait KindOf {
    fn kind_of(&self) -> NodeKind;
}

impl KindOf for AnyOp {
    fn kind_of(&self) -> NodeKind {
        match self {
            AnyOp::Kernel(_) => NodeKind::Kernel,
            AnyOp::Fill(_) => NodeKind::Fill,
            other => panic!("{other:?}"),
        }
    }
}

unsafe extern "C" fn count_drop(count: *mut c_void) {
    // SAFETY: the counter was leaked for this.
    let count = unsafe { &*count.cast_const().cast::<AtomicU32>() };
    count.fetch_add(1, Ordering::SeqCst);
}

/// Puts a user object on the graph that the stream is captured into, as NCCL and cuBLAS do.
fn put_user_object(stream: &CudaStream, drops: &'static AtomicU32) -> Result<()> {
    let info = CaptureInfo::of(stream)?;
    assert!(info.is_capturing());
    let data = std::ptr::from_ref(drops).cast_mut().cast();
    let mut object = std::ptr::null_mut();
    // SAFETY: the counter lives for good; the graph is the capture's, which takes the reference
    // over.
    unsafe {
        sys::cuUserObjectCreate(&mut object, data, Some(count_drop), 1, 1).result()?;
        sys::cuGraphRetainUserObject(info.graph, object, 1, 1).result()?;
    }
    Ok(())
}

/// Point 4. What other libraries put on the graph that their work is captured into.
#[test]
fn user_objects_of_foreign_work_live_as_long_as_it() {
    let _alone = alone();
    let stream = stream();
    let (one, minus) = (words(&stream, &[1]), words(&stream, &[u32::MAX]));
    let (turns, sum) = (words(&stream, &[2]), words(&stream, &[0]));
    for in_body in [false, true] {
        let drops: &'static AtomicU32 = Box::leak(Box::default());
        let block = |r: &mut dyn Recorder| {
            let work = |stream: &Arc<CudaStream>| {
                put_user_object(stream, drops)?;
                foreign_add(stream, &sum, &one)
            };
            // SAFETY: the words live as long as the test.
            unsafe { r.foreign(work) }
        };
        turns.copy_from_host(&stream, &[2]).unwrap();
        sum.copy_from_host(&stream, &[0]).unwrap();
        let (graph, ()) = Graph::capture(&stream, |path| match in_body {
            false => block(path),
            true => path.while_nonzero(&turns, |r| {
                block(r)?;
                r.record(add(&turns, &minus)).map(drop)
            }),
        })
        .unwrap();
        settle();
        assert_eq!(drops.load(Ordering::SeqCst), 0, "in a body: {in_body}");
        let mut exec = graph.instantiate().unwrap();
        drop(graph);
        settle();
        assert_eq!(drops.load(Ordering::SeqCst), 0, "in a body: {in_body}");
        exec.launch(&stream).unwrap();
        assert_eq!(read(&stream, &sum), if in_body { 2 } else { 1 });
        drop(exec);
        assert_soon(|| drops.load(Ordering::SeqCst) == 1, "a user object leaks");
    }
}

/// Point 5. There are no streams of branches to be used after they went back to a pool: a branch's
/// foreign work gets the recording's own stream, and no recorder shows another.
#[test]
fn branches_have_no_streams_of_their_own() {
    let stream = stream();
    let one = words(&stream, &[1]);
    let sums = [words(&stream, &[0]), words(&stream, &[0])];
    let mut seen = Vec::new();
    let (graph, ()) = Graph::capture(&stream, |path| {
        let [left, right] = [&sums[0], &sums[1]].map(|sum| {
            let (one, stream) = (&one, &stream);
            move |r: &mut dyn Recorder, seen: &mut Vec<Arc<CudaStream>>| {
                let work = |given: &Arc<CudaStream>| {
                    assert!(Arc::ptr_eq(given, stream));
                    seen.push(given.clone());
                    foreign_add(given, sum, one)
                };
                // SAFETY: the words live as long as the test.
                unsafe { r.foreign(work) }
            }
        });
        let seen = std::cell::RefCell::new(&mut seen);
        path.parallel(&mut [&mut |r| left(r, &mut seen.borrow_mut()), &mut |r| {
            right(r, &mut seen.borrow_mut())
        }])?;
        path.record(EmptyOp::new()).map(drop)
    })
    .unwrap();
    assert_eq!(seen.len(), 2);
    // Both branches are roots: neither waits for the other.
    assert_eq!(graph.roots().unwrap().len(), 2);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(sums.map(|sum| read(&stream, &sum)), [1, 1]);

    // A clone that was taken out is the outer stream, which the next recording holds.
    let taken = seen.remove(0);
    let sum = words(&stream, &[0]);
    let captured = Graph::capture(&stream, |path| {
        path.parallel(&mut [&mut |r| {
            foreign_add(&taken, &sum, &one)?;
            r.record(EmptyOp::new()).map(drop)
        }])
    });
    assert!(matches!(captured, Err(Error::StrayWork(_))), "{captured:?}");
    assert_eq!(read(&stream, &sum), 0);
}

/// The loops of a graph, each of which clears its flag.
fn loops(graph: &Graph) -> Vec<NodeId> {
    let nodes = graph.nodes().unwrap().into_iter();
    nodes
        .filter(|node| node.kind() == NodeKind::Conditional)
        .collect()
}

fn refuses_loops_at_once(graph: &Graph) {
    let refused = graph.instantiate();
    assert!(
        matches!(refused, Err(Error::SideBySide { .. })),
        "{refused:?}"
    );
    // Nothing is wrong with the graph.
    let anyway = InstantiateOptions {
        loops_at_once: true,
        ..InstantiateOptions::default()
    };
    graph.instantiate_with(&anyway).unwrap();
}

/// Point 6. Two paths in one graph.
#[test]
fn loops_of_two_paths_take_turns() {
    let _alone = alone();
    let stream = stream();
    let flags = [words(&stream, &[1]), words(&stream, &[1])];
    let graph = Graph::new(&context()).unwrap();
    let mut paths = [Path::new(&graph), Path::new(&graph)];
    for (path, flag) in paths.iter_mut().zip(&flags) {
        path.while_nonzero(flag, |r| r.record(store(flag, 0)).map(drop))
            .unwrap();
    }
    let [first, second] = loops(&graph)[..] else {
        panic!("there are two loops");
    };
    assert!(waits_for(&graph, second, first));
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(flags.map(|flag| read(&stream, &flag)), [0, 0]);
}

/// Point 6. Edges that leave loops side by side.
#[test]
fn loops_that_edges_leave_side_by_side_are_refused() {
    let _alone = alone();
    let stream = stream();
    let flag = words(&stream, &[0]);
    // Nodes added one by one, with edges from one node to both.
    let graph = Graph::new(&context()).unwrap();
    let first = graph.add(EmptyOp::new(), ()).unwrap();
    let [a, b] = [0, 1].map(|_| {
        let condition = graph.condition(Some(0)).unwrap();
        graph.add(WhileOp::new(&condition), ()).unwrap()
    });
    let edge = |to: NodeId| Edge {
        from: first.id(),
        to,
        data: EdgeData::default(),
    };
    graph.add_edges([edge(a.id()), edge(b.id())]).unwrap();
    refuses_loops_at_once(&graph);
    graph.add_edge(a, b).unwrap();
    graph.instantiate().unwrap();

    // Branches whose loops were put in turn, and whose edge is taken away.
    let (graph, ()) = Graph::record(&context(), |path| {
        let looping =
            |r: &mut dyn Recorder| r.while_nonzero(&flag, |r| r.record(store(&flag, 0)).map(drop));
        path.parallel(&mut [&mut |r| looping(r), &mut |r| looping(r)])
    })
    .unwrap();
    let exec = graph.instantiate().unwrap();
    drop(exec);
    let [a, b] = loops(&graph)[..] else {
        panic!("there are two loops");
    };
    // A kernel reads the flag of each loop before it.
    let setter = graph.predecessors(b).list().unwrap()[0];
    graph.remove_edges([(a, setter)]).unwrap();
    refuses_loops_at_once(&graph);
}

/// Point 6. A graph of other code.
#[test]
fn loops_of_other_code_are_looked_at() {
    let _alone = alone();
    let mut raw = std::ptr::null_mut();
    // SAFETY: a graph is made, which `from_raw` takes over.
    let graph = unsafe {
        context().bind_to_thread().unwrap();
        sys::cuGraphCreate(&mut raw, 0).result().unwrap();
        Graph::from_raw(raw, &context())
    };
    for _ in 0..2 {
        let mut handle = 0;
        let mut node = std::ptr::null_mut();
        // SAFETY: the graph is alive; the parameters are those of a loop.
        unsafe {
            sys::cuGraphConditionalHandleCreate(&mut handle, raw, context().cu_ctx(), 0, 0)
                .result()
                .unwrap();
            let mut params = std::mem::MaybeUninit::<sys::CUgraphNodeParams>::zeroed();
            (*params.as_mut_ptr()).type_ = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL;
            let mut params = params.assume_init();
            params.__bindgen_anon_1.conditional = sys::CUDA_CONDITIONAL_NODE_PARAMS {
                handle,
                type_: sys::CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE,
                size: 1,
                phGraph_out: std::ptr::null_mut(),
                ctx: context().cu_ctx(),
            };
            add_node(&mut node, raw, &mut params);
        }
    }
    refuses_loops_at_once(&graph);
    let [a, b] = loops(&graph)[..] else {
        panic!("there are two loops");
    };
    graph.add_edge(a, b).unwrap();
    graph.instantiate().unwrap();
}

/// # Safety
///
/// As `cuGraphAddNode`.
unsafe fn add_node(
    node: &mut sys::CUgraphNode,
    graph: sys::CUgraph,
    params: &mut sys::CUgraphNodeParams,
) {
    // SAFETY: by this function's contract.
    let result = unsafe {
        sys::cuGraphAddNode_v2(node, graph, std::ptr::null(), std::ptr::null(), 0, params)
    };
    result.result().unwrap();
}

/// Point 6. A panic in a branch, after a loop.
#[test]
fn loops_take_turns_after_a_panic_in_a_branch() {
    let _alone = alone();
    let stream = stream();
    let flags = [0; 3].map(|_| words(&stream, &[1]));
    let looping = |r: &mut dyn Recorder, at: usize| {
        let flag = &flags[at];
        r.while_nonzero(flag, |r| r.record(store(flag, 0)).map(drop))
    };
    let (graph, ()) = Graph::record(&context(), |path| {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            path.parallel(&mut [&mut |r| looping(r, 0), &mut |r| {
                looping(r, 1)?;
                resume_unwind(Box::new("as meant"))
            }])
        }));
        panicked.unwrap_err();
        looping(path, 2)
    })
    .unwrap();
    let [first, second, third] = loops(&graph)[..] else {
        panic!("there are three loops");
    };
    assert!(waits_for(&graph, second, first));
    assert!(waits_for(&graph, third, second));
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(flags.map(|flag| read(&stream, &flag)), [0; 3]);
}

fn waits_for(graph: &Graph, node: NodeId, other: NodeId) -> bool {
    let before = graph.predecessors(node).list().unwrap();
    before
        .into_iter()
        .any(|node| node == other || waits_for(graph, node, other))
}

/// Point 7. What updates gave is let go: three thousand buffers of 4 MiB, of which a few are there
/// at once.
#[test]
fn updates_do_not_gather_memory() {
    let stream = stream();
    let graph = Graph::new(&context()).unwrap();
    let first = Buffer::<u32>::zeroed(&stream, 1 << 20).unwrap();
    let node = graph.add(FillOp::new(&first, 1).unwrap(), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    let mut seen = Vec::new();
    for _ in 0..3000 {
        let fresh = Buffer::<u32>::zeroed(&stream, 1 << 20).unwrap();
        seen.push(Arc::downgrade(&fresh.owner()));
        let part = fresh.slice(..4).unwrap();
        exec.update(node, FillOp::new(&part, 1).unwrap()).unwrap();
        exec.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        settle();
        seen.retain(|weak| weak.strong_count() > 0);
        assert!(seen.len() <= 1, "{} buffers are held", seen.len() + 1);
    }
}

/// Point 8. Attributes are compared with those that the executable has.
#[test]
fn attributes_are_those_of_the_executable() {
    let stream = stream();
    let word = words(&stream, &[0]);
    let plain = |value| store(&word, value);
    let clustered = |value| store(&word, value).cluster(1, 1, 1);
    let graph = Graph::new(&context()).unwrap();
    let node = graph.add(plain(1), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    graph.update(node, clustered(2)).unwrap();

    // What the executable's node does not have.
    let refused = exec.update(node, clustered(3));
    assert!(
        matches!(refused, Err(Error::AttributesFixed { .. })),
        "{refused:?}"
    );
    let op: KernelOp = exec.op(node).unwrap();
    assert!(op.attributes().is_empty());
    // What it has.
    exec.update(node, plain(4)).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(read(&stream, &word), 4);

    exec.update_in_place(&graph).unwrap_or_else(|error| {
        // Other attributes may be another graph to the driver.
        assert!(matches!(error, Error::Update { .. }), "{error}");
        exec = graph.instantiate().unwrap();
    });
    let has = |op: &KernelOp| {
        op.attributes()
            .iter()
            .any(|attribute| matches!(attribute, LaunchAttribute::Cluster(..)))
    };
    assert!(has(&exec.op(node).unwrap()));
    exec.update(node, clustered(5)).unwrap();
    let refused = exec.update(node, plain(6));
    assert!(
        matches!(refused, Err(Error::AttributesFixed { .. })),
        "{refused:?}"
    );
    exec.launch(&stream).unwrap();
    assert_eq!(read(&stream, &word), 5);
}

/// Point 10. A graph that is recorded into stays whole, and free to be edited by others.
#[test]
fn a_graph_is_edited_while_others_record_into_it() {
    let stream = stream();
    let word = words(&stream, &[0]);
    let graph = Graph::new(&context()).unwrap();
    let first = graph.add(store(&word, 1), ()).unwrap();
    let shared = ChildOp::new(&graph).graph();
    let (one, mine) = (words(&stream, &[1]), words(&stream, &[0]));
    let ((), others) = graph
        .capture_into(&stream, first, |path| {
            path.record(add(&mine, &one))?;
            let before = shared.nodes()?.len();
            let editing = std::thread::spawn(move || {
                for _ in 0..100 {
                    shared.add(EmptyOp::new(), ()).unwrap();
                }
                let gone = shared.add(EmptyOp::new(), ()).unwrap();
                shared.destroy(gone).unwrap();
                shared
            });
            // SAFETY: the words live as long as the test.
            unsafe { path.foreign(|stream| foreign_add(stream, &mine, &one)) }?;
            for _ in 0..100 {
                path.record(add(&mine, &one))?;
            }
            let shared = editing.join().expect("nobody panics");
            assert_eq!(before, 1, "nothing of a recording is seen before its end");
            Ok(((), shared.nodes()?.len()))
        })
        .unwrap();
    assert_eq!(others, 101);
    assert_eq!(graph.nodes().unwrap().len(), 101 + 102);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(read(&stream, &mine), 102);
}

/// Point 10. One edge, named twice to be taken away.
#[test]
fn an_edge_that_is_named_twice_is_removed() {
    let graph = Graph::new(&context()).unwrap();
    let first = graph.add(EmptyOp::new(), ()).unwrap();
    let second = graph.add(EmptyOp::new(), first).unwrap();
    let edge = (first.id(), second.id());
    graph.remove_edges([edge, edge]).unwrap();
    assert!(graph.predecessors(second).list().unwrap().is_empty());
    let refused = graph.remove_edges([edge, edge]);
    assert!(matches!(refused, Err(Error::NoEdge { .. })), "{refused:?}");
    // The driver's edges are what this library says they are.
    graph.add_edge(first, second).unwrap();
    assert_eq!(graph.edges().unwrap().len(), 1);
}

/// Point 10. Names that anyone can guess: links wait at them, which a driver would write through.
#[test]
#[ignore = "run by the next, in a process of its own"]
fn a_picture_with_links_in_its_way() {
    let folder = std::env::temp_dir();
    let victim = folder.join("victim");
    std::fs::write(&victim, "untouched").unwrap();
    for n in 0..100 {
        let guess = folder.join(format!("cuda-graph-{}-{n}.dot", std::process::id()));
        std::os::unix::fs::symlink(&victim, guess).unwrap();
    }
    let graph = Graph::new(&context()).unwrap();
    graph.add(EmptyOp::new(), ()).unwrap();
    let picture = graph.driver_dot(DriverDot::default()).unwrap();
    assert!(picture.contains("digraph"), "{picture}");
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        assert!(path == victim || path.is_symlink(), "{path:?} is left over");
    }
}

#[test]
fn the_drivers_picture_goes_through_no_name_that_can_be_guessed() {
    let folder = tempfile::tempdir().unwrap();
    in_process(
        "sound::points::a_picture_with_links_in_its_way",
        &[("TMPDIR", folder.path().to_str().unwrap())],
    );
}

/// Owners that came with raw nodes are held through updates, too: see point 3.
#[test]
fn an_owner_of_raw_memory_is_held_by_what_holds_the_operation() {
    let stream = stream();
    let word = words(&stream, &[0]);
    let (watch, watched) = Watch::new();
    // SAFETY: the word lives as long as the test.
    let memory = unsafe { RawMemory::device(word.address(), 4) }.owned_by(Arc::new(watched));
    let graph = Graph::new(&context()).unwrap();
    let node = graph
        .add(FillOp::pattern(&memory, 1u32).unwrap(), ())
        .unwrap();
    drop(memory);
    // This library's own operation is read with its owners, and may be added anywhere.
    let op = graph.op(node).unwrap();
    drop(graph);
    let other = Graph::new(&context()).unwrap();
    other.add(op, ()).unwrap();
    assert!(!watch.is_dropped());
    drop(other);
    assert!(watch.is_dropped());
}
