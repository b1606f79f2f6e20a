//! Executables with conditional nodes, changed: node by node, and as a whole.

use super::graph_run::{launches, updates};
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;
use crate::graphs::conditions::*;

/// A graph with a node whose bodies fill a word, each with `value` and its number.
unsafe fn filling(at: u64, kind: u32, count: u32, default: u32, value: u32) -> (Handle, Handle) {
    let graph = graph();
    let (node, bodies) = add_conditional(graph, &[], condition(graph, default), kind, count);
    for (body, number) in bodies.iter().zip(0..) {
        add_fill(*body, &[], at, value + number);
    }
    (graph, node)
}

/// Updates an executable of the first graph to the second, and launches it.
unsafe fn becomes(line: &mut Line, at: u64, first: (Handle, Handle), second: (Handle, Handle)) {
    fill_words(at, 77, 1);
    let exec = instantiate(first.0);
    updates(line, "update", exec, second.0, &[("node", second.1)]);
    launches(line, "it", exec, stream());
    line.value("ran", word(at));
}

pub const CASES: &[Case] = &[
    case!("conditional/update/parameters_within", |line| {
        context();
        let at = memory(16);
        let (first, second) = (filling(at, IF, 2, 1, 10), filling(at, IF, 2, 1, 20));
        becomes(line, at, first, second);
    }),
    case!("conditional/update/default_value", |line| {
        context();
        let at = memory(16);
        let (first, second) = (filling(at, IF, 2, 1, 10), filling(at, IF, 2, 0, 20));
        becomes(line, at, first, second);
    }),
    case!("conditional/update/itself", |line| {
        context();
        let at = memory(16);
        let it = filling(at, SWITCH, 3, 2, 10);
        becomes(line, at, it, it);
    }),
    case!("conditional/update/another_kind_of_condition", |line| {
        context();
        let at = memory(16);
        let (first, second) = (filling(at, IF, 1, 1, 10), filling(at, SWITCH, 1, 0, 20));
        becomes(line, at, first, second);
    }),
    case!("conditional/update/another_number_of_bodies", |line| {
        context();
        let at = memory(16);
        let (first, second) = (filling(at, SWITCH, 3, 1, 10), filling(at, SWITCH, 2, 1, 20));
        becomes(line, at, first, second);
    }),
    case!("conditional/update/another_kind_of_node", |line| {
        context();
        let at = memory(16);
        let other = graph();
        let node = add_empty(other, &[]);
        becomes(line, at, filling(at, IF, 1, 1, 10), (other, node));
    }),
    case!("conditional/update/more_nodes_within", |line| {
        context();
        let (at, graph) = (memory(16), graph());
        let (_, body) = add_single(graph, &[], condition(graph, 1), IF);
        let first = add_fill(body, &[], at, 20);
        add_fill(body, &[first], at, 21);
        becomes(line, at, filling(at, IF, 1, 1, 10), (graph, 0));
    }),
    case!("conditional/update/another_kind_within", |line| {
        context();
        let (at, graph) = (memory(16), graph());
        let (_, body) = add_single(graph, &[], condition(graph, 1), IF);
        let inner = add_empty(body, &[]);
        becomes(line, at, filling(at, IF, 1, 1, 10), (graph, inner));
    }),
    case!("conditional/update/flag_of_the_condition", |line| {
        context();
        let (at, graph) = (memory(16), graph());
        let (_, body) = add_single(graph, &[], kept_condition(graph), IF);
        add_fill(body, &[], at, 20);
        let (first, node) = filling(at, IF, 1, 1, 10);
        becomes(line, at, (first, node), (graph, 0));
    }),
    case!(
        "conditional/update/kernel_that_sets_another_condition",
        |line| {
            context();
            let (kernels, at) = (Kernels::load(), memory(16));
            let build = |value: u32| {
                let graph = graph();
                let condition = condition(graph, 0);
                let set = kernels.set_to(graph, &[], condition, value);
                let (node, bodies) = add_conditional(graph, &[set], condition, SWITCH, 4);
                for (body, number) in bodies.iter().zip(0..) {
                    add_fill(*body, &[], at, number);
                }
                (graph, node)
            };
            becomes(line, at, build(1), build(2));
        }
    ),
    case!("conditional/update/unused_condition", |line| {
        context();
        let at = memory(16);
        let (first, second) = (filling(at, IF, 1, 1, 10), filling(at, IF, 1, 1, 20));
        condition(second.0, 0);
        becomes(line, at, first, second);
    }),
    case!("conditional/update/body_as_a_graph", |line| {
        context();
        let (at, graph) = (memory(16), graph());
        fill_words(at, 77, 1);
        let (_, body) = add_single(graph, &[], condition(graph, 1), IF);
        add_fill(body, &[], at, 5);
        let plain = crate::graphs::api::graph();
        add_fill(plain, &[], at, 4);
        let exec = instantiate(plain);
        updates(line, "update", exec, body, &[]);
    }),
    alone!(
        "conditional/update/then_a_kernel_with_the_first_condition",
        |line| {
            context();
            let (kernels, at) = (Kernels::load(), memory(16));
            fill_words(at, 77, 1);
            let build = |value: u32| {
                let graph = graph();
                let condition = condition(graph, 0);
                let set = kernels.set_to(graph, &[], condition, value);
                let (_, bodies) = add_conditional(graph, &[set], condition, SWITCH, 4);
                for (body, number) in bodies.iter().zip(0..) {
                    add_fill(*body, &[], at, number);
                }
                (graph, set, condition)
            };
            let (first, set, mut condition) = build(1);
            let (second, ..) = build(2);
            let exec = instantiate(first);
            updates(line, "update", exec, second, &[]);
            let mut value = 3u32;
            let values = &mut [void(&mut condition), void(&mut value)];
            let params = kernel_params(kernels.get(c"set_to"), values);
            line.says(cuGraphExecKernelNodeSetParams_v2(exec, set, &params));
            launches(line, "it", exec, stream());
            line.value("ran", word(at));
        }
    ),
    alone!("conditional/update/both_graphs_have_executables", |line| {
        context();
        let at = memory(16);
        let (first, second) = (filling(at, IF, 1, 1, 10), filling(at, IF, 1, 1, 20));
        let exec = instantiate(first.0);
        let other = instantiate(second.0);
        updates(line, "update", exec, second.0, &[("node", second.1)]);
        launches(line, "it", exec, stream());
        line.value("ran", word(at));
        launches(line, "other", other, stream());
        line.value("ran", word(at));
    }),
    case!("conditional/exec/kernel_within", |line| {
        context();
        let (store, at, graph) = (function(c"store"), memory(16), graph());
        let (_, body) = add_single(graph, &[], condition(graph, 1), IF);
        let inner = add_store(body, &[], store, at, 5);
        let (exec, mut to, mut value) = (instantiate(graph), at, 6u32);
        let values = &mut [void(&mut to), void(&mut value)];
        let params = kernel_params(store, values);
        line.says(cuGraphExecKernelNodeSetParams_v2(exec, inner, &params));
        launches(line, "it", exec, stream());
        line.value("ran", word(at));
        line.says(cuGraphNodeSetEnabled(exec, inner, 0));
        let mut enabled = 9;
        line.says(cuGraphNodeGetEnabled(exec, inner, &mut enabled));
        line.value("enabled", enabled);
        fill_words(at, 77, 1);
        launches(line, "disabled", exec, stream());
        line.value("ran", word(at));
    }),
    case!("conditional/exec/fill_within", |line| {
        context();
        let (at, graph) = (memory(16), graph());
        let (_, body) = add_single(graph, &[], condition(graph, 1), IF);
        let inner = add_fill(body, &[], at, 5);
        let exec = instantiate(graph);
        let params = word_fill(at, 6);
        let answer = cuGraphExecMemsetNodeSetParams(exec, inner, &params, current());
        line.says(answer);
        launches(line, "it", exec, stream());
        line.value("ran", word(at));
        line.says(cuGraphNodeSetEnabled(exec, inner, 0));
        let mut enabled = 9;
        line.says(cuGraphNodeGetEnabled(exec, inner, &mut enabled));
    }),
    case!("conditional/exec/copy_within", |line| {
        context();
        let (at, graph) = (memory(16), graph());
        fill_words(at, 0, 1);
        fill_words(at + 4, 4, 1);
        fill_words(at + 8, 8, 1);
        let (_, body) = add_single(graph, &[], condition(graph, 1), IF);
        let inner = add_copy(body, &[], &line_copy(at, at + 4, 4));
        let exec = instantiate(graph);
        let copy = line_copy(at, at + 8, 4);
        let answer = cuGraphExecMemcpyNodeSetParams(exec, inner, &copy, current());
        line.says(answer);
        launches(line, "it", exec, stream());
        line.value("ran", word(at));
        line.says(cuGraphNodeSetEnabled(exec, inner, 0));
    }),
    case!("conditional/exec/child_graph_within", |line| {
        context();
        let (at, graph) = (memory(16), graph());
        let (_, body) = add_single(graph, &[], condition(graph, 1), IF);
        let build = |value: u32| {
            let inner = crate::graphs::api::graph();
            add_fill(inner, &[], at, value);
            inner
        };
        let child = add_child(body, &[], build(5));
        let exec = instantiate(graph);
        let answer = cuGraphExecChildGraphNodeSetParams(exec, child, build(6));
        line.says(answer);
        launches(line, "it", exec, stream());
        line.value("ran", word(at));
    }),
    case!("conditional/exec/the_node_itself", |line| {
        context();
        let (graph, node) = filling(memory(16), IF, 1, 1, 10);
        let exec = instantiate(graph);
        let mut params = conditional_params(condition(graph, 0), IF, 1);
        line.says(cuGraphExecNodeSetParams(exec, node, &mut params));
        line.says(cuGraphNodeSetEnabled(exec, node, 0));
        line.says(cuGraphNodeGetEnabled(exec, node, &mut 0));
    }),
    case!("conditional/exec/flags_and_upload", |line| {
        context();
        let (graph, _) = filling(memory(16), WHILE, 1, 0, 10);
        let (mut exec, mut flags) = (0, 9);
        line.says(cuGraphInstantiateWithFlags(&mut exec, graph, 8));
        line.says(cuGraphExecGetFlags(exec, &mut flags));
        line.value("flags", flags);
        line.says(cuGraphUpload(exec, stream()));
        launches(line, "it", exec, stream());
    }),
];
