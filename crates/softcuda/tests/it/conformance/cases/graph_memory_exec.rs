//! Executables of graphs with allocation and free nodes: one at a time, and what they are updated
//! to.

use super::graph_run::launches;
use crate::conformance::api::*;
use crate::conformance::case::{Case, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

unsafe fn free(graph: Handle, address: u64) -> Answer {
    cuGraphAddMemFreeNode(&mut 0, graph, NONE, 0, address)
}

pub const CASES: &[Case] = &[
    case!("graph/alloc/one_executable", |line| {
        context();
        let (graph, mut second) = (graph(), 0);
        let (node, address) = add_alloc(graph, &[], 64);
        add_free(graph, &[node], address);
        let exec = instantiate(graph);
        line.says_as("second", cuGraphInstantiateWithFlags(&mut second, graph, 0));
        let mut params = InstantiateParams::default();
        line.says_as(
            "told",
            cuGraphInstantiateWithParams(&mut second, graph, &mut params),
        );
        line.value("result", params.result);
        line.says(cuGraphExecDestroy(exec));
        line.says_as("after", cuGraphInstantiateWithFlags(&mut second, graph, 0));
    }),
    case!("graph/alloc/free_alone_twice", |line| {
        context();
        let (allocating, freeing) = (graph(), graph());
        let (_, address) = add_alloc(allocating, &[], 64);
        free(freeing, address).must();
        line.says_as("first", cuGraphInstantiateWithFlags(&mut 0, freeing, 0));
        line.says_as("second", cuGraphInstantiateWithFlags(&mut 0, freeing, 0));
    }),
    case!("graph/alloc/update", |line| {
        context();
        let graph = graph();
        let (node, address) = add_alloc(graph, &[], 64);
        add_free(graph, &[node], address);
        let (exec, mut info) = (instantiate(graph), UpdateInfo::default());
        line.says_as("itself", cuGraphExecUpdate_v2(exec, graph, &mut info));
        line.value("told", info.result);
        let other = crate::graphs::api::graph();
        let (node, address) = add_alloc(other, &[], 64);
        add_free(other, &[node], address);
        line.says_as("other", cuGraphExecUpdate_v2(exec, other, &mut info));
        line.value("other_told", info.result);
        let mut enabled = 9;
        line.says_as(
            "enabled",
            cuGraphNodeGetEnabled(exec, nodes(graph)[0], &mut enabled),
        );
    }),
    case!("graph/alloc/update_to_another_address", |line| {
        context();
        let build = |value: u32| {
            let graph = graph();
            let (node, address) = add_alloc(graph, &[], 64);
            add_fill(graph, &[node], address, value);
            (graph, address)
        };
        let ((old, first), (new, second), stream) = (build(5), build(6), stream());
        let (exec, mut info) = (instantiate(old), UpdateInfo::default());
        line.says(cuGraphExecUpdate_v2(exec, new, &mut info));
        line.value("told", info.result);
        line.value("same_address", first == second);
        launches(line, "run", exec, stream);
        line.says_as("free_first", cuMemFree_v2(first));
        line.says_as("free_second", cuMemFree_v2(second));
    }),
    case!("graph/alloc/update_of_other_size", |line| {
        context();
        let build = |size: usize| {
            let graph = graph();
            let (node, address) = add_alloc(graph, &[], size);
            add_free(graph, &[node], address);
            graph
        };
        let (exec, mut info) = (instantiate(build(64)), UpdateInfo::default());
        for size in [32, 65, 4 << 20] {
            line.says_as(size, cuGraphExecUpdate_v2(exec, build(size), &mut info));
            line.value(format!("{size}_told"), info.result);
        }
        launches(line, "run", exec, stream());
    }),
    case!("graph/alloc/update_from_an_instantiated_graph", |line| {
        context();
        let build = || {
            let graph = graph();
            let (node, address) = add_alloc(graph, &[], 64);
            add_free(graph, &[node], address);
            graph
        };
        let (exec, other, mut info) = (instantiate(build()), build(), UpdateInfo::default());
        info.result = 77;
        instantiate(other);
        line.says(cuGraphExecUpdate_v2(exec, other, &mut info));
        line.value("told", info.result);
    }),
    case!("graph/alloc/executables_after_an_update", |line| {
        context();
        let build = || {
            let graph = graph();
            let (node, address) = add_alloc(graph, &[], 64);
            add_free(graph, &[node], address);
            graph
        };
        let (old, new, mut made) = (build(), build(), 0);
        let (exec, mut info) = (instantiate(old), UpdateInfo::default());
        line.says(cuGraphExecUpdate_v2(exec, new, &mut info));
        line.says_as("old", cuGraphInstantiateWithFlags(&mut made, old, 0));
        line.says_as("new", cuGraphInstantiateWithFlags(&mut made, new, 0));
        line.says(cuGraphExecDestroy(exec));
        line.says_as("new_then", cuGraphInstantiateWithFlags(&mut made, new, 0));
    }),
];
