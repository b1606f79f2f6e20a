//! Condition handles and conditional nodes: made, refused, asked about, destroyed.

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;
use crate::graphs::conditions::*;

/// Adds a node of this kind and number of bodies.
unsafe fn adds(line: &mut Line, kind: u32, count: u32) {
    context();
    let graph = graph();
    let mut params = conditional_params(condition(graph, 0), kind, count);
    let (answer, node) = try_conditional(graph, &[], &mut params);
    if !line.says(answer) {
        line.value("out", params.union[2]);
        line.value("nodes", nodes(graph).len());
        return;
    }
    let (mut kind, bodies) = (0, bodies(&params));
    line.says(cuGraphNodeGetType(node, &mut kind));
    line.value("type", kind);
    line.value("bodies", bodies.len());
    let empty = bodies.iter().all(|&body| nodes(body).is_empty());
    line.value("empty", empty);
    line.value("first", nodes(graph) == [node]);
}

unsafe fn creates(line: &mut Line, graph: Handle, context: Handle, default: u32, flags: u32) {
    let mut condition = 0;
    line.says(cuGraphConditionalHandleCreate(
        &mut condition,
        graph,
        context,
        default,
        flags,
    ));
    line.value("some", condition != 0);
}

/// Instantiates in the way that tells why not.
unsafe fn instantiates(line: &mut Line, graph: Handle, names: &[(&str, Handle)]) -> Handle {
    let (mut exec, mut params) = (0, InstantiateParams::default());
    line.says_as(
        "instantiate",
        cuGraphInstantiateWithParams(&mut exec, graph, &mut params),
    );
    line.value("result", params.result);
    line.value("node", named(params.node, names));
    exec
}

pub const CASES: &[Case] = &[
    case!("conditional/handle/create", |line| {
        context();
        creates(line, graph(), current(), 3, ASSIGN);
    }),
    case!("conditional/handle/create_unassigned", |line| {
        context();
        creates(line, graph(), current(), 3, 0);
    }),
    case!("conditional/handle/unknown_flag", |line| {
        context();
        creates(line, graph(), current(), 0, 2);
        creates(line, graph(), current(), 0, 3);
    }),
    case!("conditional/handle/no_context", |line| {
        context();
        creates(line, graph(), 0, 0, ASSIGN);
    }),
    case!("conditional/handle/no_current_context", |line| {
        context();
        let (graph, context) = (graph(), current());
        cuCtxSetCurrent(0).must();
        creates(line, graph, context, 0, ASSIGN);
        creates(line, graph, 0, 0, ASSIGN);
    }),
    alone!("conditional/handle/nowhere_to_put_it", |line| {
        context();
        line.says(cuGraphConditionalHandleCreate(
            std::ptr::null_mut(),
            graph(),
            current(),
            0,
            0,
        ));
    }),
    alone!("conditional/handle/no_graph", |line| {
        context();
        creates(line, 0, current(), 0, ASSIGN);
    }),
    case!("conditional/handle/two_of_a_graph", |line| {
        context();
        let graph = graph();
        line.value("same", condition(graph, 0) == condition(graph, 0));
    }),
    case!("conditional/handle/of_a_child_graph", |line| {
        context();
        let (graph, inner) = (graph(), graph());
        let (mut child, node) = (0, add_child(graph, &[], inner));
        cuGraphChildGraphNodeGetGraph(node, &mut child).must();
        creates(line, child, current(), 0, ASSIGN);
    }),
    case!("conditional/handle/of_a_body", |line| {
        context();
        let graph = graph();
        let (_, body) = add_single(graph, &[], condition(graph, 0), IF);
        creates(line, body, current(), 0, ASSIGN);
    }),
    case!("conditional/node/if", |line| { adds(line, IF, 1) }),
    case!("conditional/node/if_else", |line| { adds(line, IF, 2) }),
    case!("conditional/node/if_of_none", |line| { adds(line, IF, 0) }),
    case!("conditional/node/if_of_three", |line| { adds(line, IF, 3) }),
    case!("conditional/node/while", |line| { adds(line, WHILE, 1) }),
    case!("conditional/node/while_of_none", |line| {
        adds(line, WHILE, 0)
    }),
    case!("conditional/node/while_of_two", |line| {
        adds(line, WHILE, 2)
    }),
    case!("conditional/node/switch_of_none", |line| {
        adds(line, SWITCH, 0)
    }),
    case!("conditional/node/switch_of_one", |line| {
        adds(line, SWITCH, 1)
    }),
    case!("conditional/node/switch_of_many", |line| {
        adds(line, SWITCH, 100)
    }),
    case!("conditional/node/unknown_type", |line| { adds(line, 3, 1) }),
    case!("conditional/node/through_the_second_form", |line| {
        context();
        let (graph, mut node) = (graph(), 0);
        let mut params = conditional_params(condition(graph, 0), IF, 1);
        let answer = cuGraphAddNode_v2(&mut node, graph, NONE, std::ptr::null(), 0, &mut params);
        line.says(answer);
        line.value("bodies", bodies(&params).len());
    }),
    case!("conditional/node/no_condition", |line| {
        context();
        let mut params = conditional_params(0, IF, 1);
        line.says(try_conditional(graph(), &[], &mut params).0);
    }),
    alone!("conditional/node/wild_condition", |line| {
        context();
        let mut params = conditional_params(0x1234_5678, IF, 1);
        line.says(try_conditional(graph(), &[], &mut params).0);
    }),
    case!("conditional/node/condition_of_another_graph", |line| {
        context();
        let mut params = conditional_params(condition(graph(), 0), IF, 1);
        let graph = graph();
        line.says(try_conditional(graph, &[], &mut params).0);
        instantiates(line, graph, &[]);
    }),
    case!("conditional/node/condition_of_the_outer_graph", |line| {
        context();
        let graph = graph();
        let (outer, inner) = (condition(graph, 0), condition(graph, 0));
        let (_, body) = add_single(graph, &[], outer, IF);
        let mut params = conditional_params(inner, IF, 1);
        line.says(try_conditional(body, &[], &mut params).0);
        instantiates(line, graph, &[]);
    }),
    case!("conditional/node/condition_of_its_body", |line| {
        context();
        let graph = graph();
        let (_, body) = add_single(graph, &[], condition(graph, 0), IF);
        let inner = condition(body, 0);
        let mut params = conditional_params(inner, IF, 1);
        line.says(try_conditional(graph, &[], &mut params).0);
        instantiates(line, graph, &[]);
    }),
    case!("conditional/node/no_context", |line| {
        context();
        let graph = graph();
        let mut params = conditional_params(condition(graph, 0), IF, 1);
        params.union[3] = 0;
        line.says(try_conditional(graph, &[], &mut params).0);
    }),
    case!("conditional/node/another_context", |line| {
        context();
        let graph = graph();
        let mut params = conditional_params(condition(graph, 0), IF, 1);
        params.union[3] = new_context() as u64;
        line.says(try_conditional(graph, &[], &mut params).0);
    }),
    case!("conditional/node/bytes_that_are_not_used", |line| {
        context();
        for word in [4, 5, 28] {
            let graph = graph();
            let mut params = conditional_params(condition(graph, 0), IF, 1);
            params.union[word] = 1;
            line.says_as(word, try_conditional(graph, &[], &mut params).0);
        }
        let graph = graph();
        let mut params = conditional_params(condition(graph, 0), IF, 1);
        params.union[2] = 8;
        line.says_as("out", try_conditional(graph, &[], &mut params).0);
    }),
    case!("conditional/node/set_params", |line| {
        context();
        let graph = graph();
        let (node, _) = add_single(graph, &[], condition(graph, 0), IF);
        let mut params = conditional_params(condition(graph, 0), IF, 1);
        line.says(cuGraphNodeSetParams(node, &mut params));
    }),
    case!("conditional/node/programmatic_edges", |line| {
        context();
        let (graph, empty) = (graph(), function(c"empty"));
        let kernel = add_kernel(graph, &[], empty, &mut []);
        let mut params = conditional_params(condition(graph, 0), IF, 1);
        let data = [1u8, 0, 1, 0, 0, 0, 0, 0];
        let mut node = 0;
        let into = cuGraphAddNode_v2(&mut node, graph, &kernel, &data, 1, &mut params);
        line.says_as("into", into);
        let (node, _) = add_single(graph, &[kernel], condition(graph, 0), IF);
        let after = add_kernel(graph, &[], empty, &mut []);
        let from = cuGraphAddDependencies_v2(graph, &node, &after, &data, 1);
        line.says_as("from", from);
    }),
    case!("conditional/node/destroy", |line| {
        context();
        let graph = graph();
        let (node, _) = add_single(graph, &[], condition(graph, 0), IF);
        line.says(cuGraphDestroyNode(node));
        line.value("nodes", nodes(graph).len());
        instantiates(line, graph, &[]);
    }),
    case!("conditional/node/destroy_and_add", |line| {
        context();
        let graph = graph();
        let condition = condition(graph, 0);
        let (node, _) = add_single(graph, &[], condition, IF);
        line.says(cuGraphDestroyNode(node));
        let mut params = conditional_params(condition, IF, 1);
        line.says(try_conditional(graph, &[], &mut params).0);
        instantiates(line, graph, &[]);
    }),
    case!("conditional/node/edges_beside", |line| {
        context();
        let graph = graph();
        let before = add_empty(graph, &[]);
        let (node, _) = add_single(graph, &[before], condition(graph, 0), IF);
        let after = add_empty(graph, &[node]);
        line.says(cuGraphRemoveDependencies(graph, &before, &node, 1));
        line.says(cuGraphDestroyNode(after));
        line.value("edges", edge_count(graph));
    }),
    case!("conditional/graph/unused_condition", |line| {
        context();
        let graph = graph();
        condition(graph, 0);
        line.says(cuGraphInstantiateWithFlags(&mut 0, graph, 0));
        instantiates(line, graph, &[]);
    }),
    case!("conditional/graph/unused_condition_as_text", |line| {
        context();
        let graph = graph();
        add_empty(graph, &[]);
        condition(graph, 0);
        let (mut node, mut text) = (9, [9 as std::ffi::c_char; 64]);
        let answer = cuGraphInstantiate_v2(&mut 0, graph, &mut node, text.as_mut_ptr(), 64);
        line.says(answer);
        line.value("node", node);
        line.value("text", text[0]);
    }),
    case!("conditional/graph/unused_condition_of_a_body", |line| {
        context();
        let graph = graph();
        let (_, body) = add_single(graph, &[], condition(graph, 0), IF);
        condition(body, 0);
        instantiates(line, graph, &[]);
    }),
    case!("conditional/graph/condition_used_twice", |line| {
        context();
        let graph = graph();
        let condition = condition(graph, 0);
        let (first, _) = add_single(graph, &[], condition, IF);
        let mut params = conditional_params(condition, IF, 1);
        let (answer, second) = try_conditional(graph, &[first], &mut params);
        line.says(answer);
        line.value("second", second != 0);
        instantiates(line, graph, &[("first", first)]);
    }),
    case!("conditional/graph/clone", |line| {
        context();
        let graph = graph();
        add_single(graph, &[], condition(graph, 0), IF);
        line.says(cuGraphClone(&mut 0, graph));
    }),
    case!("conditional/graph/clone_with_a_condition_alone", |line| {
        context();
        let (graph, mut clone) = (graph(), 0);
        condition(graph, 0);
        line.says(cuGraphClone(&mut clone, graph));
        if clone != 0 {
            instantiates(line, clone, &[]);
        }
    }),
    case!("conditional/graph/clone_after_destroying", |line| {
        context();
        let graph = graph();
        let (node, _) = add_single(graph, &[], condition(graph, 0), IF);
        cuGraphDestroyNode(node).ignore();
        line.says(cuGraphClone(&mut 0, graph));
    }),
    case!("conditional/graph/embed", |line| {
        context();
        let (graph, outer) = (graph(), graph());
        add_single(graph, &[], condition(graph, 0), IF);
        line.says(cuGraphAddChildGraphNode(&mut 0, outer, NONE, 0, graph));
        let mut params = node_params(4, &[graph as u64, 1]);
        line.says_as("move", cuGraphAddNode(&mut 0, outer, NONE, 0, &mut params));
        if nodes(outer).len() == 1 {
            instantiates(line, outer, &[]);
        }
    }),
    case!("conditional/graph/add_to_a_child_graph", |line| {
        context();
        let (graph, inner) = (graph(), graph());
        let (mut child, node) = (0, add_child(graph, &[], inner));
        cuGraphChildGraphNodeGetGraph(node, &mut child).must();
        let mut made = 0;
        let answer = cuGraphConditionalHandleCreate(&mut made, graph, current(), 0, ASSIGN);
        line.says(answer);
        let mut params = conditional_params(made, IF, 1);
        line.says(try_conditional(child, &[], &mut params).0);
        instantiates(line, graph, &[]);
        line.says(cuGraphClone(&mut 0, graph));
    }),
    case!("conditional/graph/two_executables", |line| {
        context();
        let graph = graph();
        add_single(graph, &[], condition(graph, 0), IF);
        let exec = instantiates(line, graph, &[]);
        instantiates(line, graph, &[]);
        line.says(cuGraphExecDestroy(exec));
        instantiates(line, graph, &[]);
    }),
    case!("conditional/graph/for_device_launch", |line| {
        context();
        let graph = graph();
        let (node, body) = add_single(graph, &[], condition(graph, 0), IF);
        add_kernel(body, &[], function(c"empty"), &mut []);
        let mut params = InstantiateParams {
            flags: 4,
            ..Default::default()
        };
        line.says(cuGraphInstantiateWithParams(&mut 0, graph, &mut params));
        line.value("result", params.result);
        line.value("node", named(params.node, &[("node", node)]));
    }),
    case!("conditional/graph/with_allocations", |line| {
        context();
        let graph = graph();
        let (alloc, address) = add_alloc(graph, &[], 64);
        let mut params = conditional_params(condition(graph, 0), IF, 1);
        line.says(try_conditional(graph, &[alloc], &mut params).0);
        add_free(graph, &[alloc], address);
        instantiates(line, graph, &[]);
    }),
    case!("conditional/graph/pictures", |line| {
        context();
        let graph = graph();
        let (_, bodies) = add_conditional(graph, &[], condition(graph, 0), SWITCH, 2);
        add_empty(bodies[1], &[]);
        let path = std::env::temp_dir().join(format!("conditional-{}", std::process::id()));
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        for flags in [0u32, 1, 1 << 15] {
            line.says_as(flags, cuGraphDebugDotPrint(graph, name.as_ptr(), flags));
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            line.value("graphs", text.matches("subgraph").count());
        }
        let _ = std::fs::remove_file(path);
    }),
];
