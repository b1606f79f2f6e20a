//! Bodies of conditional nodes: what they may hold, and what can be done with them as graphs.

use crate::capture::api::*;
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;
use crate::graphs::conditions::*;

/// A graph with a node of one body.
unsafe fn with_body() -> (Handle, Handle, Handle) {
    context();
    let graph = graph();
    let (node, body) = add_single(graph, &[], condition(graph, 0), IF);
    (graph, node, body)
}

unsafe fn instantiates(line: &mut Line, graph: Handle, names: &[(&str, Handle)]) {
    let (mut exec, mut params) = (0, InstantiateParams::default());
    line.says_as(
        "instantiate",
        cuGraphInstantiateWithParams(&mut exec, graph, &mut params),
    );
    line.value("result", params.result);
    line.value("node", named(params.node, names));
}

/// Adds something to a body, and instantiates.
unsafe fn holds(line: &mut Line, add: impl FnOnce(Handle, &mut Handle) -> Answer) {
    let (graph, node, body) = with_body();
    let mut inner = 0;
    line.says(add(body, &mut inner));
    instantiates(line, graph, &[("node", node), ("inner", inner)]);
}

unsafe extern "C" fn nothing(_: *mut std::ffi::c_void) {}

const HOST: HostParams = HostParams {
    function: Some(nothing),
    data: std::ptr::null_mut(),
};

pub const CASES: &[Case] = &[
    case!("conditional/body/holds_a_kernel", |line| {
        holds(line, |body, node| {
            let params = kernel_params(function(c"empty"), &mut []);
            cuGraphAddKernelNode_v2(node, body, NONE, 0, &params)
        });
    }),
    case!("conditional/body/holds_an_empty_node", |line| {
        holds(line, |body, node| cuGraphAddEmptyNode(node, body, NONE, 0));
    }),
    case!("conditional/body/holds_a_host_node", |line| {
        holds(line, |body, node| {
            cuGraphAddHostNode(node, body, NONE, 0, &HOST)
        });
    }),
    case!("conditional/body/holds_a_host_node_in_a_child", |line| {
        holds(line, |body, node| {
            let inner = graph();
            cuGraphAddHostNode(&mut 0, inner, NONE, 0, &HOST).must();
            cuGraphAddChildGraphNode(node, body, NONE, 0, inner)
        });
    }),
    case!("conditional/body/holds_an_event_record_node", |line| {
        holds(line, |body, node| {
            cuGraphAddEventRecordNode(node, body, NONE, 0, event())
        });
    }),
    case!("conditional/body/holds_an_event_wait_node", |line| {
        holds(line, |body, node| {
            cuGraphAddEventWaitNode(node, body, NONE, 0, event())
        });
    }),
    case!("conditional/body/holds_an_allocation", |line| {
        holds(line, |body, node| {
            cuGraphAddMemAllocNode(node, body, NONE, 0, &mut alloc_params(64))
        });
    }),
    case!("conditional/body/holds_a_free", |line| {
        let (_, address) = {
            context();
            add_alloc(graph(), &[], 64)
        };
        holds(line, |body, node| {
            cuGraphAddMemFreeNode(node, body, NONE, 0, address)
        });
    }),
    case!("conditional/body/holds_memory_operations", |line| {
        holds(line, |body, node| {
            let params = BatchParams {
                context: current(),
                count: 0,
                operations: std::ptr::null_mut(),
                flags: 0,
            };
            cuGraphAddBatchMemOpNode(node, body, NONE, 0, &params)
        });
    }),
    case!("conditional/body/holds_a_copy_of_pinned_memory", |line| {
        holds(line, |body, node| {
            let mut copy = line_copy(memory(64), 0, 64);
            (copy.src_kind, copy.src_host) = (1, pinned(64));
            cuGraphAddMemcpyNode(node, body, NONE, 0, &copy, current())
        });
    }),
    case!("conditional/body/holds_a_copy_of_pageable_memory", |line| {
        holds(line, |body, node| {
            let host = Box::leak(Box::new([0u64; 8]));
            let mut copy = line_copy(memory(64), 0, 64);
            (copy.src_kind, copy.src_host) = (1, host.as_mut_ptr().cast());
            cuGraphAddMemcpyNode(node, body, NONE, 0, &copy, current())
        });
    }),
    case!(
        "conditional/body/holds_a_kernel_of_another_context",
        |line| {
            let (graph, node, body) = with_body();
            new_context();
            let inner = add_kernel(body, &[], function(c"empty"), &mut []);
            instantiates(line, graph, &[("node", node), ("inner", inner)]);
        }
    ),
    case!("conditional/body/holds_a_cycle", |line| {
        let (graph, node, body) = with_body();
        let first = add_empty(body, &[]);
        let second = add_empty(body, &[first]);
        add_edge(body, second, first).must();
        // Which one is named is the driver's choice.
        let names = [("node", node), ("inner", first), ("inner", second)];
        instantiates(line, graph, &names);
    }),
    case!("conditional/body/nested_sixteen_deep", |line| {
        context();
        let outermost = graph();
        let mut graph = outermost;
        for depth in 0..16 {
            let mut params = conditional_params(condition(outermost, 0), depth % 2, 1);
            let (answer, _) = try_conditional(graph, &[], &mut params);
            if answer.code != 0 {
                line.says_as(depth, answer);
                return;
            }
            graph = bodies(&params)[0];
        }
        instantiates(line, outermost, &[]);
    }),
    alone!("conditional/body/instantiate_it", |line| {
        let (_, _, body) = with_body();
        line.says(cuGraphInstantiateWithFlags(&mut 0, body, 0));
    }),
    alone!("conditional/body/destroy_it", |line| {
        let (graph, _, body) = with_body();
        line.says(cuGraphDestroy(body));
        line.value("nodes", nodes(graph).len());
    }),
    case!("conditional/body/clone_it", |line| {
        let (_, _, body) = with_body();
        add_empty(body, &[]);
        let mut clone = 0;
        line.says(cuGraphClone(&mut clone, body));
        if clone != 0 {
            line.says(cuGraphInstantiateWithFlags(&mut 0, clone, 0));
        }
    }),
    case!("conditional/body/embed_it", |line| {
        let (_, _, body) = with_body();
        add_empty(body, &[]);
        let outer = graph();
        line.says(cuGraphAddChildGraphNode(&mut 0, outer, NONE, 0, body));
        line.says(cuGraphInstantiateWithFlags(&mut 0, outer, 0));
    }),
    case!("conditional/body/move_it", |line| {
        let (_, _, body) = with_body();
        let mut params = node_params(4, &[body as u64, 1]);
        line.says(cuGraphAddNode(&mut 0, graph(), NONE, 0, &mut params));
    }),
    case!("conditional/body/edited", |line| {
        let (graph, _, body) = with_body();
        let first = add_empty(body, &[]);
        let second = add_empty(body, &[first]);
        let third = add_empty(body, &[second]);
        line.says(cuGraphRemoveDependencies(body, &first, &second, 1));
        line.says(cuGraphDestroyNode(third));
        line.value("nodes", nodes(body).len());
        line.value("edges", edge_count(body));
        instantiates(line, graph, &[]);
    }),
    case!("conditional/body/parameters_read_and_set", |line| {
        let (_, _, body) = with_body();
        let (store, to) = (function(c"store"), memory(16));
        let node = add_store(body, &[], store, to, 5);
        let mut params = kernel_params(0, &mut []);
        line.says(cuGraphKernelNodeGetParams_v2(node, &mut params));
        line.value("function", params.function == store);
        params.grid = [2, 1, 1];
        line.says(cuGraphKernelNodeSetParams_v2(node, &params));
    }),
    case!("conditional/body/keeps_user_objects", |line| {
        let (_, _, body) = with_body();
        let mut object = 0;
        cuUserObjectCreate(&mut object, std::ptr::null_mut(), Some(nothing), 1, 1).must();
        line.says(cuGraphRetainUserObject(body, object, 1, 0));
        line.says(cuGraphReleaseUserObject(body, object, 1));
    }),
    case!("conditional/body/captured_into", |line| {
        let (graph, _, body) = with_body();
        let (stream, pointer) = (stream(), memory(16));
        let answer = cuStreamBeginCaptureToGraph(stream, body, NONE, std::ptr::null(), 0, 2);
        line.says(answer);
        line.says(cuMemsetD32Async(pointer, 3, 4, stream));
        let mut ended = 0;
        line.says(cuStreamEndCapture(stream, &mut ended));
        line.value("graph", named(ended, &[("body", body), ("graph", graph)]));
        line.value("nodes", nodes(body).len());
        instantiates(line, graph, &[]);
    }),
    case!(
        "conditional/body/captured_into_something_forbidden",
        |line| {
            let (graph, _, body) = with_body();
            let stream = stream();
            let answer = cuStreamBeginCaptureToGraph(stream, body, NONE, std::ptr::null(), 0, 2);
            line.says(answer);
            line.says(cuLaunchHostFunc(
                stream,
                Some(nothing),
                std::ptr::null_mut(),
            ));
            let mut pointer = 0;
            line.says(cuMemAllocAsync(&mut pointer, 64, stream));
            let mut ended = 0;
            line.says(cuStreamEndCapture(stream, &mut ended));
            line.value("graph", named(ended, &[("body", body)]));
            instantiates(line, graph, &[]);
        }
    ),
    case!("conditional/capture/node_in_a_capture", |line| {
        context();
        let (stream, pointer) = (stream(), memory(16));
        cuStreamBeginCapture_v2(stream, 2).must();
        cuMemsetD32Async(pointer, 3, 4, stream).must();
        let (mut status, mut graph, mut on, mut count) = (0, 0, NONE, 0);
        cuStreamGetCaptureInfo_v2(stream, &mut status, &mut 0, &mut graph, &mut on, &mut count)
            .must();
        let mut made = 0;
        let answer = cuGraphConditionalHandleCreate(&mut made, graph, current(), 1, ASSIGN);
        line.says(answer);
        let mut params = conditional_params(made, IF, 1);
        let mut node = 0;
        line.says(cuGraphAddNode(&mut node, graph, on, count, &mut params));
        let answer = cuStreamUpdateCaptureDependencies_v2(stream, &node, std::ptr::null(), 1, 1);
        line.says(answer);
        cuMemsetD32Async(pointer, 4, 4, stream).must();
        add_fill(bodies(&params)[0], &[], pointer + 4, 9);
        let mut ended = 0;
        line.says(cuStreamEndCapture(stream, &mut ended));
        line.value("nodes", nodes(ended).len());
        line.value("edges", edge_count(ended));
        instantiates(line, ended, &[]);
    }),
];
