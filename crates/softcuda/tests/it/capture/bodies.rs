//! Captures into bodies that fail: the body is gone, its node and the graph around it are not, and
//! all of it can be asked, instantiated and destroyed. A real driver crashes on most of that.

use super::*;
use crate::graphs::conditions::*;

/// How a capture fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Failure {
    /// Something is asked of the stream that a capture forbids.
    Query,
    /// A fork is not joined.
    Fork,
    /// The stream is destroyed before the end.
    StreamGone,
    /// The context of the stream is, which is another one than the graph's.
    ContextGone,
}

const FAILURES: [Failure; 4] = [
    Failure::Query,
    Failure::Fork,
    Failure::StreamGone,
    Failure::ContextGone,
];

/// Captures into a graph, which that costs.
unsafe fn fail(to: Handle, failure: Failure) {
    let own = current();
    let apart = failure == Failure::ContextGone;
    let context = if apart { new_context() } else { own };
    let (main, side) = (stream(), stream());
    cuStreamBeginCaptureToGraph(main, to, NONE, std::ptr::null(), 0, RELAXED).must();
    let mut kept = 0;
    cuMemAllocAsync(&mut kept, 1 << 20, main).must();
    cuMemsetD32Async(kept, 1, 4, main).must();
    order(main, side);
    cuMemsetD32Async(kept, 2, 4, side).must();
    match failure {
        Failure::Query => {
            assert_eq!(cuStreamQuery(side).code, UNSUPPORTED);
            assert_eq!(end_failed(main), INVALIDATED);
        }
        Failure::Fork => assert_eq!(end_failed(main), UNJOINED),
        Failure::StreamGone => cuStreamDestroy_v2(main).must(),
        Failure::ContextGone => {
            cuCtxDestroy_v2(context).must();
            cuCtxSetCurrent(own).must();
            return;
        }
    }
    assert!(is_of_use(side));
}

/// Has a graph keep an object; the counter says when that goes.
unsafe fn keep(graph: Handle) -> &'static AtomicU32 {
    let (mut object, gone) = (0, counter());
    cuUserObjectCreate(&mut object, pointer_to(gone), Some(add_one), 1, 1).must();
    cuGraphRetainUserObject(graph, object, 1, 1).must();
    gone
}

/// The object goes now, and once.
fn went(gone: &AtomicU32) -> bool {
    let start = std::time::Instant::now();
    while gone.load(Ordering::SeqCst) == 0 && start.elapsed().as_secs() < 10 {
        std::thread::yield_now();
    }
    gone.load(Ordering::SeqCst) == 1
}

/// What instantiating answers; leaves no executable.
unsafe fn instantiating(graph: Handle) -> u32 {
    let mut exec = 0;
    let answer = cuGraphInstantiateWithFlags(&mut exec, graph, 0);
    if answer.code == 0 {
        cuGraphExecDestroy(exec).must();
    }
    answer.code
}

/// A loop that turns three times around a branch, each with a kernel, in a graph with a kernel
/// before it; in the branch an embedded graph.
struct Nest {
    graph: Handle,
    first: Handle,
    outer: Handle,
    outer_body: Handle,
    inner: Handle,
    inner_body: Handle,
    embedded: Handle,
    in_embedded: Handle,
    inner_condition: u64,
    at: u64,
}

unsafe fn nest(kernels: &Kernels, at: u64) -> Nest {
    let graph = graph();
    let first = add_fill(graph, &[], at, 0);
    let turn = condition(graph, 1);
    let (outer, outer_body) = add_single(graph, &[first], turn, WHILE);
    let inner_condition = condition(graph, 1);
    let before = kernels.count_to(outer_body, &[], turn, at, 3);
    let (inner, inner_body) = add_single(outer_body, &[before], inner_condition, IF);
    let child = crate::graphs::api::graph();
    kernels.count(child, &[], at + 4);
    let node = add_child(inner_body, &[], child);
    cuGraphDestroy(child).must();
    let mut embedded = 0;
    cuGraphChildGraphNodeGetGraph(node, &mut embedded).must();
    Nest {
        graph,
        first,
        outer,
        outer_body,
        inner,
        inner_body,
        embedded,
        in_embedded: nodes(embedded)[0],
        inner_condition,
        at,
    }
}

impl Nest {
    unsafe fn counted(&self, exec: Handle, stream: Handle) -> (u32, u32) {
        fill_words(self.at, 0, 2);
        cuGraphLaunch(exec, stream).must();
        cuStreamSynchronize(stream).must();
        (word(self.at), word(self.at + 4))
    }

    /// What was inside the graph that is gone is gone with it.
    unsafe fn check_gone(&self, graph: Handle, node: Handle) {
        let code = |answer: Answer| answer.code;
        let mut count = 0;
        let asked = cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count);
        let mut clone = 0;
        let parts = [
            code(asked),
            code(cuGraphClone(&mut clone, graph)),
            code(cuGraphAddEmptyNode(&mut clone, graph, NONE, 0)),
            code(cuGraphDestroy(graph)),
            code(cuGraphConditionalHandleCreate(
                &mut 0,
                graph,
                current(),
                0,
                0,
            )),
            code(cuGraphDestroyNode(node)),
            code(cuGraphNodeGetType(node, &mut 0)),
            instantiating(graph),
        ];
        assert_eq!(parts, [INVALID_VALUE; 8]);
    }
}

/// At every depth, however it fails, whatever is done then, with an executable from before and
/// without.
#[test]
fn what_is_left_can_be_asked_instantiated_and_destroyed() {
    if !is_software() {
        return;
    }
    alone(|| unsafe {
        context();
        let (kernels, stream, at) = (Kernels::load(), stream(), memory(64));
        let mut free = 0;
        cuMemGetInfo_v2(&mut free, &mut 0).must();
        for (round, failure) in (0..48).zip(FAILURES.into_iter().cycle()) {
            let (depth, destroys_node, has_exec) = (round / 4 % 3, round % 8 < 4, round < 24);
            let name = format!("{failure:?} at {depth}");
            let it = nest(&kernels, at);
            let exec = has_exec.then(|| instantiate(it.graph));
            let objects = [
                keep(it.graph),
                keep(it.outer_body),
                keep(it.inner_body),
                keep(it.embedded),
            ];
            let counts = || objects.map(|gone| gone.load(Ordering::SeqCst));
            let bodies = [it.outer_body, it.inner_body, it.embedded];
            fail(bodies[depth], failure);
            for gone in &objects[depth + 1..] {
                assert!(went(gone), "{name}");
            }
            assert_eq!(counts()[..=depth], [0; 4][..=depth], "{name}");
            for &gone in &bodies[depth..] {
                it.check_gone(gone, it.in_embedded);
            }
            assert_eq!(nodes(it.graph), [it.first, it.outer], "{name}");
            assert_eq!(kinds(it.graph), [FILL, CONDITIONAL], "{name}");
            let mut update = UpdateInfo::default();
            if let Some(exec) = exec {
                assert_eq!(it.counted(exec, stream), (3, 3), "{name}");
                let updated = cuGraphExecUpdate_v2(exec, it.graph, &mut update);
                assert_ne!(updated.code, 0, "{name}");
                assert_eq!(it.counted(exec, stream), (3, 3), "{name}");
                cuGraphExecDestroy(exec).must();
            }
            assert_eq!(instantiating(it.graph), INVALID_VALUE, "{name}");
            assert_ne!(cuGraphClone(&mut 0, it.graph).code, 0, "{name}");
            let drawn = cuGraphDebugDotPrint(it.graph, c"/dev/null".as_ptr(), 0);
            assert_ne!(drawn.code, 0, "{name}");
            if destroys_node {
                let node = if depth == 0 { it.outer } else { it.inner };
                cuGraphDestroyNode(node).must();
                assert_eq!(cuGraphDestroyNode(node).code, INVALID_VALUE);
                if depth > 0 {
                    // The condition is free again, and the graph whole.
                    let around = nodes(it.outer_body);
                    let condition = it.inner_condition;
                    let (_, body) = add_single(it.outer_body, &around, condition, IF);
                    kernels.count(body, &[], at + 4);
                    let exec = instantiate(it.graph);
                    assert_eq!(it.counted(exec, stream), (3, 3), "{name}");
                    cuGraphExecDestroy(exec).must();
                }
            }
            cuGraphDestroy(it.graph).must();
            for gone in objects {
                assert!(went(gone), "{name}");
            }
            assert_eq!(cuGraphDestroy(it.graph).code, INVALID_VALUE);
            assert_eq!(cuGraphDestroyNode(it.outer).code, INVALID_VALUE);
        }
        let mut then = 0;
        cuMemGetInfo_v2(&mut then, &mut 0).must();
        // What the recorded allocations had is given back.
        assert!(free - then < 1 << 20, "{free} became {then}");
    });
}

/// The graph around it goes while a body is captured: with its node, or with the failure of a
/// capture of its own.
#[test]
fn a_body_may_go_while_it_is_captured() {
    if !is_software() {
        return;
    }
    alone(|| unsafe {
        context();
        for depth in 0..2 {
            let (outer, inner, side) = (stream(), stream(), stream());
            begin(outer, RELAXED);
            let graph = graph_of(outer);
            let (_, mut body) = add_single(graph, &[], condition(graph, 1), IF);
            if depth == 1 {
                body = add_single(body, &[], condition(graph, 1), IF).1;
            }
            let gone = keep(body);
            cuStreamBeginCaptureToGraph(inner, body, NONE, std::ptr::null(), 0, RELAXED).must();
            let at = memory(4);
            cuMemsetD32Async(at, 1, 1, inner).must();
            order(inner, side);
            assert_eq!(cuStreamQuery(outer).code, UNSUPPORTED);
            assert_eq!(end_failed(outer), INVALIDATED);
            assert!(went(gone));
            assert_eq!((status(inner), status(side)), (ACTIVE, ACTIVE));
            assert_ne!(cuMemsetD32Async(at, 1, 1, inner).code, 0);
            assert_ne!(cuMemsetD32Async(at, 1, 1, side).code, 0);
            assert_ne!(end_failed(inner), 0);
            for stream in [outer, inner, side] {
                assert!(is_of_use(stream), "{depth}");
            }
        }
    });
}

/// Captures fail while other threads look at the graph and destroy it.
#[test]
fn failures_and_destruction_at_the_same_time() {
    if !is_software() {
        return;
    }
    alone(|| unsafe {
        let context = context();
        let (kernels, at) = (Kernels::load(), memory(64));
        for round in 0..100 {
            let it = nest(&kernels, at);
            let gone = [keep(it.graph), keep(it.inner_body)];
            let main = stream();
            let null = std::ptr::null();
            cuStreamBeginCaptureToGraph(main, it.inner_body, NONE, null, 0, RELAXED).must();
            assert_eq!(cuStreamQuery(main).code, UNSUPPORTED);
            let it = &it;
            std::thread::scope(|scope| {
                scope.spawn(move || end_failed(main));
                scope.spawn(move || {
                    cuCtxSetCurrent(context).must();
                    let _ = instantiating(it.graph);
                    let mut count = 0;
                    let _ = cuGraphGetNodes(it.inner_body, std::ptr::null_mut(), &mut count);
                });
                scope.spawn(move || {
                    match round % 2 {
                        0 => cuGraphDestroy(it.graph),
                        _ => cuGraphDestroyNode(it.outer),
                    }
                    .ignore()
                });
            });
            assert_eq!(status(main), NONE_STATUS);
            // Where the end came later, destroying it was refused.
            let _ = cuGraphDestroy(it.graph).code;
            for gone in gone {
                assert!(went(gone), "{round}");
            }
        }
    });
}
