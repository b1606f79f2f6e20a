//! Nodes by the functions for any kind, and data of edges.

use std::ptr::{null, null_mut};

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

unsafe fn add(graph: Handle, params: &mut NodeParams) -> Answer {
    cuGraphAddNode_v2(&mut 0, graph, NONE, null(), 0, params)
}

/// A fill of one word.
unsafe fn fill(pointer: u64, value: u64) -> NodeParams {
    node_params(2, &[pointer, 0, 4 << 32 | value, 1, 1, current() as u64])
}

/// A kernel without parameters.
fn kernel(function: Handle) -> NodeParams {
    node_params(0, &[function as u64, 1 << 32 | 1, 1 << 32 | 1, 1 << 32 | 1])
}

/// Two kernel nodes, apart.
unsafe fn two_kernels(graph: Handle) -> [Handle; 2] {
    let module = module();
    [(); 2].map(|()| add_kernel(graph, &[], function_of(module, c"empty"), &mut []))
}

/// An edge of `data`: whether it can be.
unsafe fn ties(
    line: &mut Line,
    what: &str,
    graph: Handle,
    from: Handle,
    to: Handle,
    data: [u8; 8],
) {
    let answer = cuGraphAddDependencies_v2(graph, &from, &to, &data, 1);
    if line.says_as(what, answer) {
        line.says_as(
            format!("{what}_gone"),
            cuGraphRemoveDependencies_v2(graph, &from, &to, &data, 1),
        );
    }
}

const PROGRAMMATIC: [u8; 8] = [1, 0, 1, 0, 0, 0, 0, 0];

pub const CASES: &[Case] = &[
    case!("graph/any/kinds", |line| {
        context();
        let (graph, child, pointer) = (graph(), graph(), memory(4));
        for (name, mut params) in [
            ("kernel", kernel(function(c"empty"))),
            ("fill", fill(pointer, 3)),
            ("host_null", node_params(3, &[0, 0])),
            ("child", node_params(4, &[child as u64, 0])),
            ("child_null", node_params(4, &[0, 0])),
            ("child_ownership", node_params(4, &[child as u64, 2])),
            ("empty", node_params(5, &[])),
            ("wait", node_params(6, &[event() as u64])),
            ("wait_null", node_params(6, &[0])),
            ("record", node_params(7, &[event() as u64])),
            ("record_null", node_params(7, &[0])),
            ("free_unknown", node_params(11, &[pointer])),
            ("kind_14", node_params(14, &[])),
            ("kind_99", node_params(99, &[])),
        ] {
            line.says_as(name, add(graph, &mut params));
        }
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/any/null", |line| {
        context();
        let graph = graph();
        let mut params = node_params(5, &[]);
        line.says_as(
            "params",
            cuGraphAddNode_v2(&mut 0, graph, NONE, null(), 0, null_mut()),
        );
        line.says_as(
            "out",
            cuGraphAddNode_v2(null_mut(), graph, NONE, null(), 0, &mut params),
        );
        line.says_as("graph", add(0, &mut params));
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/any/bytes_that_should_be_zero", |line| {
        context();
        let (graph, pointer) = (graph(), memory(4));
        let mut wrong = fill(pointer, 1);
        wrong.reserved[0] = 1;
        line.says_as("reserved", add(graph, &mut wrong));
        wrong = fill(pointer, 1);
        wrong.union[28] = 1;
        line.says_as("union_end", add(graph, &mut wrong));
        wrong = fill(pointer, 1);
        wrong.union[6] = 1;
        line.says_as("union_next", add(graph, &mut wrong));
        wrong = fill(pointer, 1);
        wrong.last = 1;
        line.says_as("last", add(graph, &mut wrong));
        wrong = node_params(5, &[1]);
        line.says_as("empty", add(graph, &mut wrong));
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/any/child_gives_its_graph", |line| {
        context();
        let (graph, child, mut node, mut own) = (graph(), graph(), 0, 0);
        let mut params = node_params(4, &[child as u64, 0]);
        line.says(cuGraphAddNode_v2(
            &mut node,
            graph,
            NONE,
            null(),
            0,
            &mut params,
        ));
        cuGraphChildGraphNodeGetGraph(node, &mut own).must();
        let given = params.union[0] as Handle;
        line.value("given", named(given, &[("own", own), ("same", child)]));
    }),
    case!("graph/any/move_child", |line| {
        context();
        let (graph, child, mut node, mut own) = (graph(), graph(), 0, 0);
        add_fill(child, &[], memory(4), 1);
        let mut params = node_params(4, &[child as u64, 1]);
        line.says(cuGraphAddNode_v2(
            &mut node,
            graph,
            NONE,
            null(),
            0,
            &mut params,
        ));
        line.says(cuGraphChildGraphNodeGetGraph(node, &mut own));
        line.value("own", named(own, &[("same", child)]));
        line.value("nodes", nodes(own).len());
    }),
    case!("graph/any/set", |line| {
        context();
        let (graph, pointer, stream) = (graph(), memory(4), stream());
        let node = add_fill(graph, &[], pointer, 1);
        line.says_as("right", cuGraphNodeSetParams(node, &mut fill(pointer, 6)));
        let empty = &mut kernel(function(c"empty"));
        line.says_as("kind", cuGraphNodeSetParams(node, empty));
        line.says_as("null", cuGraphNodeSetParams(node, null_mut()));
        line.says_as("node", cuGraphNodeSetParams(0, &mut fill(pointer, 6)));
        let mut wrong = fill(pointer, 7);
        wrong.last = 1;
        line.says_as("last", cuGraphNodeSetParams(node, &mut wrong));
        let none = add_empty(graph, &[]);
        line.says_as(
            "empty",
            cuGraphNodeSetParams(none, &mut node_params(5, &[])),
        );
        line.says(cuGraphLaunch(instantiate(graph), stream));
        line.says(cuStreamSynchronize(stream));
        line.value("word", word(pointer));
    }),
    case!("graph/any/set_child", |line| {
        context();
        let (graph, child, other) = (graph(), graph(), graph());
        let node = add_child(graph, &[], child);
        add_empty(other, &[]);
        let answer = cuGraphNodeSetParams(node, &mut node_params(4, &[other as u64, 0]));
        if line.says(answer) {
            let mut own = 0;
            cuGraphChildGraphNodeGetGraph(node, &mut own).must();
            line.value("nodes", nodes(own).len());
        }
    }),
    case!("graph/edge_data/kernels", |line| {
        context();
        let graph = graph();
        let [a, b] = two_kernels(graph);
        for (name, data) in [
            ("zero", [0; 8]),
            ("programmatic", PROGRAMMATIC),
            ("launch_order", [2, 0, 1, 0, 0, 0, 0, 0]),
            ("port_0", [0, 0, 1, 0, 0, 0, 0, 0]),
            ("port_3", [3, 0, 1, 0, 0, 0, 0, 0]),
            ("full_port_1", [1, 0, 0, 0, 0, 0, 0, 0]),
            ("full_port_2", [2, 0, 0, 0, 0, 0, 0, 0]),
            ("to_port", [0, 1, 0, 0, 0, 0, 0, 0]),
            ("kind_2", [0, 0, 2, 0, 0, 0, 0, 0]),
            ("reserved", [0, 0, 0, 1, 0, 0, 0, 0]),
        ] {
            ties(line, name, graph, a, b, data);
        }
    }),
    case!("graph/edge_data/other_kinds", |line| {
        context();
        let graph = graph();
        let ([a, _], empty) = (two_kernels(graph), add_empty(graph, &[]));
        let fill = add_fill(graph, &[], memory(4), 1);
        ties(line, "kernel_to_empty", graph, a, empty, PROGRAMMATIC);
        ties(line, "empty_to_kernel", graph, empty, a, PROGRAMMATIC);
        ties(line, "kernel_to_fill", graph, a, fill, PROGRAMMATIC);
        ties(line, "fill_to_kernel", graph, fill, a, PROGRAMMATIC);
        ties(
            line,
            "fill_to_fill_port",
            graph,
            fill,
            empty,
            [1, 0, 0, 0, 0, 0, 0, 0],
        );
    }),
    case!("graph/edge_data/add_node", |line| {
        context();
        let graph = graph();
        let [a, _] = two_kernels(graph);
        let empty = function(c"empty");
        let next =
            |data: [u8; 8]| cuGraphAddNode_v2(&mut 0, graph, &a, &data, 1, &mut kernel(empty));
        line.says_as("programmatic", next(PROGRAMMATIC));
        line.says_as("port", next([3, 0, 1, 0, 0, 0, 0, 0]));
        line.says_as("kind", next([0, 0, 9, 0, 0, 0, 0, 0]));
        let answer = cuGraphAddNode_v2(&mut 0, graph, NONE, &PROGRAMMATIC, 0, &mut kernel(empty));
        line.says_as("data_alone", answer);
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/edge_data/read", |line| {
        context();
        let graph = graph();
        let [a, b] = two_kernels(graph);
        cuGraphAddDependencies_v2(graph, &a, &b, &PROGRAMMATIC, 1).must();
        let (mut from, mut to, mut data, mut count) = (0, 0, [9; 8], 1);
        line.says_as(
            "lossy_edges",
            cuGraphGetEdges(graph, &mut from, &mut to, &mut count),
        );
        line.says_as(
            "lossy_in",
            cuGraphNodeGetDependencies(b, &mut from, &mut count),
        );
        line.says_as(
            "lossy_out",
            cuGraphNodeGetDependentNodes(a, &mut to, &mut count),
        );
        line.says_as(
            "counted",
            cuGraphGetEdges(graph, null_mut(), null_mut(), &mut count),
        );
        line.says_as(
            "edges",
            cuGraphGetEdges_v2(graph, &mut from, &mut to, &mut data, &mut count),
        );
        line.value("data", format!("{data:?}"));
        line.value("right", (from, to) == (a, b));
        data = [9; 8];
        line.says_as(
            "in",
            cuGraphNodeGetDependencies_v2(b, &mut from, &mut data, &mut count),
        );
        line.value("in_data", format!("{data:?}"));
        data = [9; 8];
        line.says_as(
            "out",
            cuGraphNodeGetDependentNodes_v2(a, &mut to, &mut data, &mut count),
        );
        line.value("out_data", format!("{data:?}"));
        let answer = cuGraphGetEdges_v2(graph, &mut from, &mut to, null_mut(), &mut count);
        line.says_as("no_data", answer);
        let answer = cuGraphGetEdges_v2(graph, null_mut(), null_mut(), &mut data, &mut count);
        line.says_as("data_alone", answer);
    }),
    case!("graph/edge_data/remove", |line| {
        context();
        let graph = graph();
        let [a, b] = two_kernels(graph);
        let mut other = |what: &str, data: Option<[u8; 8]>| {
            cuGraphAddDependencies_v2(graph, &a, &b, &PROGRAMMATIC, 1).must();
            let answer = match data {
                Some(data) => cuGraphRemoveDependencies_v2(graph, &a, &b, &data, 1),
                None => cuGraphRemoveDependencies(graph, &a, &b, 1),
            };
            line.says_as(what, answer);
            line.value(format!("{what}_left"), edge_count(graph));
            cuGraphRemoveDependencies_v2(graph, &a, &b, &PROGRAMMATIC, 1).ignore();
            line.value(format!("{what}_end"), edge_count(graph));
        };
        other("right", Some(PROGRAMMATIC));
        other("no_data", None);
        other("zero", Some([0; 8]));
        other("other_port", Some([2, 0, 1, 0, 0, 0, 0, 0]));
        other("wrong", Some([9; 8]));
        add_edge(graph, a, b).must();
        let answer = cuGraphRemoveDependencies_v2(graph, &a, &b, &PROGRAMMATIC, 1);
        line.says_as("plain", answer);
        line.value("plain_left", edge_count(graph));
    }),
    case!("graph/edge_data/two_between_a_pair", |line| {
        context();
        let graph = graph();
        let [a, b] = two_kernels(graph);
        add_edge(graph, a, b).must();
        let answer = cuGraphAddDependencies_v2(graph, &a, &b, &PROGRAMMATIC, 1);
        line.says_as("programmatic", answer);
        let answer = cuGraphAddDependencies_v2(graph, &a, &b, &[2, 0, 1, 0, 0, 0, 0, 0], 1);
        line.says_as("other_port", answer);
        line.says_as("plain", add_edge(graph, a, b));
        line.value("edges", edge_count(graph));
    }),
    case!("graph/edge_data/completion_port", |line| {
        context();
        let graph = graph();
        let ([a, b], empty) = (two_kernels(graph), add_empty(graph, &[]));
        let port = [2, 0, 0, 0, 0, 0, 0, 0];
        ties(line, "kernel_to_kernel", graph, a, b, port);
        ties(line, "kernel_to_empty", graph, a, empty, port);
        ties(line, "empty_to_kernel", graph, empty, a, port);
        cuGraphAddDependencies_v2(graph, &a, &b, &port, 1).must();
        line.says(cuGraphInstantiateWithFlags(&mut 0, graph, 0));
    }),
    case!("graph/any/child_ownership", |line| {
        context();
        let (graph, child) = (graph(), graph());
        for ownership in [2u64, 9, u32::MAX.into()] {
            let (mut node, mut own) = (0, 0);
            let mut params = node_params(4, &[child as u64, ownership]);
            let answer = cuGraphAddNode_v2(&mut node, graph, NONE, null(), 0, &mut params);
            if line.says_as(ownership, answer) {
                cuGraphChildGraphNodeGetGraph(node, &mut own).must();
                line.value("own", named(own, &[("same", child)]));
            }
        }
    }),
];
