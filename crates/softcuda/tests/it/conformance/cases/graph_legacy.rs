//! Functions under their first names, which newer headers give to newer forms, and semaphores.

use std::ptr::{null, null_mut};

use super::graph_run::launches;
use crate::conformance::api::*;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

pub const CASES: &[Case] = &[
    case!("graph/legacy/kernel", |line| {
        let context = context();
        let (graph, pointer, store) = (graph(), memory(4), function(c"store"));
        let (mut to, mut value, mut node) = (pointer, 7u32, 0);
        let values = &mut [void(&mut to), void(&mut value)];
        // What is behind the first form's fields is not looked at.
        let params = KernelParams {
            kernel: BOGUS,
            context: BOGUS,
            ..kernel_params(store, values)
        };
        line.says(cuGraphAddKernelNode(&mut node, graph, NONE, 0, &params));
        let mut got = KernelParams {
            function: 0,
            ..params
        };
        line.says(cuGraphKernelNodeGetParams(node, &mut got));
        line.value("function", named(got.function, &[("same", store)]));
        let behind = [got.kernel, got.context]
            .map(|it| named(it, &[("untouched", BOGUS), ("current", context)]));
        line.value("behind", behind.join(" "));
        let exec = instantiate(graph);
        value = 8;
        let values = &mut [void(&mut to), void(&mut value)];
        let params = kernel_params(store, values);
        line.says(cuGraphKernelNodeSetParams(node, &params));
        line.says(cuGraphExecKernelNodeSetParams(exec, node, &params));
        launches(line, "run", exec, stream());
        line.value("word", word(pointer));
        let none = kernel_params(0, &mut []);
        line.says_as(
            "function_null",
            cuGraphAddKernelNode(&mut node, graph, NONE, 0, &none),
        );
    }),
    alone!("graph/legacy/kernel_of_a_library", |line| {
        context();
        let (graph, mut kernel, mut node) = (graph(), 0, 0);
        cuLibraryGetKernel(&mut kernel, library(), c"empty".as_ptr()).must();
        let params = kernel_params(kernel, &mut []);
        line.says(cuGraphAddKernelNode(&mut node, graph, NONE, 0, &params));
    }),
    case!("graph/legacy/node", |line| {
        context();
        let (graph, mut node) = (graph(), 0);
        let mut params = node_params(5, &[]);
        line.says(cuGraphAddNode(&mut node, graph, NONE, 0, &mut params));
        line.says_as(
            "dependency",
            cuGraphAddNode(&mut 0, graph, &node, 1, &mut params),
        );
        line.says_as("null", cuGraphAddNode(&mut 0, graph, &0, 1, &mut params));
        line.value("edges", edge_count(graph));
    }),
    case!("graph/legacy/update", |line| {
        context();
        let (old, new, other) = (graph(), graph(), graph());
        add_empty(old, &[]);
        add_empty(new, &[]);
        let fill = add_fill(other, &[], memory(4), 1);
        let (exec, mut node, mut result) = (instantiate(old), 0x77, 77);
        let names = [("untouched", 0x77), ("fill", fill)];
        line.says_as(
            "right",
            cuGraphExecUpdate(exec, new, &mut node, &mut result),
        );
        line.value("right_told", format!("{result} {}", named(node, &names)));
        (node, result) = (0x77, 77);
        line.says_as(
            "kind",
            cuGraphExecUpdate(exec, other, &mut node, &mut result),
        );
        line.value("kind_told", format!("{result} {}", named(node, &names)));
        (node, result) = (0x77, 77);
        line.says_as("graph", cuGraphExecUpdate(exec, 0, &mut node, &mut result));
        line.value("graph_told", format!("{result} {}", named(node, &names)));
    }),
    case!("graph/legacy/update_to_nowhere", |line| {
        context();
        let graph = graph();
        add_empty(graph, &[]);
        let (exec, mut node, mut result) = (instantiate(graph), 0, 0);
        line.says_as(
            "no_node",
            cuGraphExecUpdate(exec, graph, null_mut(), &mut result),
        );
        line.says_as(
            "no_result",
            cuGraphExecUpdate(exec, graph, &mut node, null_mut()),
        );
    }),
    case!("graph/legacy/instantiate", |line| {
        context();
        let (graph, mut exec, mut node) = (graph(), 0, 0x77);
        let (a, b) = (add_empty(graph, &[]), add_empty(graph, &[]));
        line.says(cuGraphInstantiate(
            &mut exec,
            graph,
            &mut node,
            null_mut(),
            0,
        ));
        line.value("node", named(node, &[("untouched", 0x77)]));
        add_edge(graph, a, b).must();
        add_edge(graph, b, a).must();
        node = 0x77;
        line.says_as(
            "cycle",
            cuGraphInstantiate(&mut exec, graph, &mut node, null_mut(), 0),
        );
        let names = [("untouched", 0x77), ("a", a), ("b", b)];
        line.value("cycle_node", named(node, &names));
    }),
    case!("graph/semaphore/wrong", |line| {
        context();
        let (graph, nothing) = (graph(), [0; 3]);
        line.says_as(
            "signal_null",
            cuGraphAddExternalSemaphoresSignalNode(&mut 0, graph, NONE, 0, null()),
        );
        line.says_as(
            "wait_null",
            cuGraphAddExternalSemaphoresWaitNode(&mut 0, graph, NONE, 0, null()),
        );
        let empty = add_empty(graph, &[]);
        let mut got = nothing;
        line.says_as(
            "get_kind",
            cuGraphExternalSemaphoresSignalNodeGetParams(empty, &mut got),
        );
        line.value("nodes", nodes(graph).len());
    }),
];
