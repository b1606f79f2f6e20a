//! Executables updated from definitions: which nodes are taken for which.

use std::ptr::null_mut;

use super::graph_run::updates;
use crate::conformance::api::*;
use crate::conformance::case::{Case, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

/// Three nodes in a line.
unsafe fn in_line() -> (Handle, [Handle; 3]) {
    let graph = graph();
    let a = add_empty(graph, &[]);
    let b = add_empty(graph, &[a]);
    let c = add_empty(graph, &[b]);
    (graph, [a, b, c])
}

fn names(nodes: &[Handle]) -> Vec<(&'static str, Handle)> {
    ["a", "b", "c", "d"]
        .into_iter()
        .zip(nodes.iter().copied())
        .collect()
}

pub const CASES: &[Case] = &[
    case!("graph/update/null", |line| {
        context();
        let (graph, mut info) = (graph(), UpdateInfo::default());
        add_empty(graph, &[]);
        let exec = instantiate(graph);
        line.says_as("info", cuGraphExecUpdate_v2(exec, graph, null_mut()));
        info.result = 77;
        line.says_as("exec", cuGraphExecUpdate_v2(0, graph, &mut info));
        line.value("exec_told", info.result);
        info.result = 77;
        line.says_as("graph", cuGraphExecUpdate_v2(exec, 0, &mut info));
        line.value("graph_told", info.result);
    }),
    case!("graph/update/nothing", |line| {
        context();
        let (one, another, nothing) = (graph(), graph(), instantiate(graph()));
        add_empty(one, &[]);
        updates(line, "both", nothing, another, &[]);
        updates(line, "from", nothing, one, &names(&nodes(one)));
        updates(line, "to", instantiate(one), another, &[]);
    }),
    case!("graph/update/kind_and_edges_changed", |line| {
        context();
        let memory = memory(8);
        let (old, [a, _, c]) = in_line();
        add_edge(old, a, c).must();
        let exec = instantiate(old);
        let new = graph();
        let first = add_empty(new, &[]);
        let middle = add_empty(new, &[first]);
        let last = add_fill(new, &[middle], memory, 1);
        updates(line, "fewer", exec, new, &[("last", last)]);
        // Of the ends, the one that was made last is looked at first.
        let old = graph();
        let (a, b) = (add_empty(old, &[]), add_empty(old, &[]));
        add_empty(old, &[a, b]);
        add_empty(old, &[a]);
        let exec = instantiate(old);
        let new = graph();
        let (a, b) = (add_empty(new, &[]), add_empty(new, &[]));
        add_empty(new, &[a]);
        let last = add_fill(new, &[a, b], memory, 1);
        updates(line, "more", exec, new, &[("last", last)]);
    }),
    case!("graph/update/node_added", |line| {
        context();
        let (old, _) = in_line();
        let exec = instantiate(old);
        let (new, [a, b, c]) = in_line();
        let d = add_empty(new, &[c]);
        updates(line, "end", exec, new, &names(&[a, b, c, d]));
        let (new, [a, b, c]) = in_line();
        let d = add_empty(new, &[]);
        updates(line, "apart", exec, new, &names(&[a, b, c, d]));
        let (new, [a, b, c]) = in_line();
        let d = add_empty(new, &[a]);
        updates(line, "beside", exec, new, &names(&[a, b, c, d]));
    }),
    case!("graph/update/node_removed", |line| {
        context();
        let (old, _) = in_line();
        let exec = instantiate(old);
        for (name, at) in [("first", 0), ("middle", 1), ("last", 2)] {
            let (new, nodes) = in_line();
            cuGraphDestroyNode(nodes[at]).must();
            updates(line, name, exec, new, &names(&nodes));
        }
    }),
    case!("graph/update/edge_changed", |line| {
        context();
        let (old, _) = in_line();
        let exec = instantiate(old);
        let (new, [a, b, c]) = in_line();
        add_edge(new, a, c).must();
        updates(line, "added", exec, new, &names(&[a, b, c]));
        let (new, [a, b, c]) = in_line();
        cuGraphRemoveDependencies(new, &b, &c, 1).must();
        updates(line, "removed", exec, new, &names(&[a, b, c]));
        add_edge(new, a, c).must();
        updates(line, "moved", exec, new, &names(&[a, b, c]));
        let (new, [a, b, c]) = in_line();
        add_edge(new, c, a).must();
        updates(line, "cycle", exec, new, &names(&[a, b, c]));
    }),
    case!("graph/update/two_inputs_swapped", |line| {
        context();
        let pointer = memory(16);
        let build = |swapped: bool| {
            let graph = graph();
            let a = add_fill(graph, &[], pointer, 1);
            let b = add_empty(graph, &[]);
            let on = if swapped { [b, a] } else { [a, b] };
            let c = add_fill(graph, &on, pointer, 2);
            (graph, [a, b, c])
        };
        let (old, _) = build(false);
        let (new, nodes) = build(true);
        updates(line, "swapped", instantiate(old), new, &names(&nodes));
        let late = graph();
        let b = add_empty(late, &[]);
        let a = add_fill(late, &[], pointer, 1);
        let c = add_fill(late, &[a, b], pointer, 2);
        updates(
            line,
            "made_later",
            instantiate(old),
            late,
            &names(&[a, b, c]),
        );
    }),
    case!("graph/update/two_apart_swapped", |line| {
        context();
        let pointer = memory(16);
        let (old, new) = (graph(), graph());
        add_fill(old, &[], pointer, 1);
        add_empty(old, &[]);
        let a = add_empty(new, &[]);
        let b = add_fill(new, &[], pointer, 1);
        updates(line, "apart", instantiate(old), new, &names(&[a, b]));
    }),
    case!("graph/update/order_of_exits", |line| {
        context();
        let pointer = memory(16);
        let plain = || {
            let graph = graph();
            let a = add_fill(graph, &[], pointer, 1);
            (graph, [a, add_empty(graph, &[])])
        };
        // The first node has had a dependent since.
        let (reordered, [a, b]) = plain();
        add_edge(reordered, a, b).must();
        cuGraphRemoveDependencies(reordered, &a, &b, 1).must();
        let (mut clone, mut of) = (0, [0; 2]);
        cuGraphClone(&mut clone, reordered).must();
        for (node, at) in [(a, 0), (b, 1)] {
            cuGraphNodeFindInClone(&mut of[at], node, clone).must();
        }
        let own = names(&[a, b]);
        updates(line, "plain", instantiate(plain().0), reordered, &own);
        updates(line, "itself", instantiate(reordered), reordered, &own);
        updates(line, "from_clone", instantiate(clone), reordered, &own);
        updates(line, "to_clone", instantiate(reordered), clone, &names(&of));
        updates(
            line,
            "plain_to_clone",
            instantiate(plain().0),
            clone,
            &names(&of),
        );
        let (latest, nodes) = plain();
        updates(
            line,
            "to_plain",
            instantiate(reordered),
            latest,
            &names(&nodes),
        );
    }),
    case!("graph/update/order_of_exits_after_a_node", |line| {
        context();
        let pointer = memory(16);
        let build = |destroy: bool| {
            let graph = graph();
            let a = add_fill(graph, &[], pointer, 1);
            let b = add_empty(graph, &[]);
            if destroy {
                cuGraphDestroyNode(add_empty(graph, &[a])).must();
            }
            (graph, [a, b])
        };
        let (new, nodes) = build(true);
        updates(
            line,
            "destroyed",
            instantiate(build(false).0),
            new,
            &names(&nodes),
        );
        updates(line, "itself", instantiate(new), new, &names(&nodes));
    }),
    case!("graph/update/edge_data", |line| {
        context();
        let module = module();
        let pair = |data: [u8; 8]| {
            let graph = graph();
            let [a, b] =
                [(); 2].map(|()| add_kernel(graph, &[], function_of(module, c"empty"), &mut []));
            cuGraphAddDependencies_v2(graph, &a, &b, &data, 1).must();
            (graph, [a, b])
        };
        let programmatic = [1, 0, 1, 0, 0, 0, 0, 0];
        let (plain, plain_nodes) = pair([0; 8]);
        let (early, early_nodes) = pair(programmatic);
        updates(line, "same", instantiate(early), pair(programmatic).0, &[]);
        updates(
            line,
            "to_programmatic",
            instantiate(plain),
            early,
            &names(&early_nodes),
        );
        updates(
            line,
            "to_plain",
            instantiate(early),
            plain,
            &names(&plain_nodes),
        );
    }),
    case!("graph/update/from_a_child_graph", |line| {
        context();
        let (exec_of, parent, child, moved) = (graph(), graph(), graph(), graph());
        for graph in [exec_of, child, moved] {
            add_empty(graph, &[]);
        }
        let (exec, mut own) = (instantiate(exec_of), 0);
        let node = add_child(parent, &[], child);
        cuGraphChildGraphNodeGetGraph(node, &mut own).must();
        updates(line, "copy", exec, own, &[]);
        let mut params = node_params(4, &[moved as u64, 1]);
        cuGraphAddNode_v2(&mut 0, parent, NONE, std::ptr::null(), 0, &mut params).must();
        updates(line, "moved", exec, moved, &[]);
        line.says_as("instantiate", cuGraphInstantiateWithFlags(&mut 0, moved, 0));
    }),
    case!("graph/update/without_context", |line| {
        context();
        let graph = graph();
        add_fill(graph, &[], memory(4), 1);
        let exec = instantiate(graph);
        cuCtxSetCurrent(0).must();
        updates(line, "update", exec, graph, &[]);
    }),
];
