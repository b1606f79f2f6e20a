//! What calls that failed leave behind in a graph.

use std::ptr::null_mut;

use super::graph_move::{child_of, embed};
use super::graph_user_object::MOVE;
use crate::capture::api::{cuStreamBeginCaptureToGraph, cuStreamEndCapture};
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;
use crate::graphs::conditions::*;

/// Which of some nodes each of others is, by number.
fn places(of: &[Handle], nodes: &[Handle]) -> String {
    let place = |node: &Handle| match nodes.iter().position(|known| known == node) {
        Some(place) => place.to_string(),
        None => "?".to_string(),
    };
    of.iter().map(place).collect::<Vec<_>>().join(" ")
}

unsafe fn roots(graph: Handle, nodes: &[Handle]) -> String {
    let (mut list, mut count) = (vec![0; 16], 16);
    cuGraphGetRootNodes(graph, list.as_mut_ptr(), &mut count).must();
    places(&list[..count], nodes)
}

/// The nodes without dependents, in the order in which updates look at them, but for the first:
/// an executable of as many nodes with fewer ends is told the first that it has no partner for.
unsafe fn exits(graph: Handle, nodes: &[Handle]) -> String {
    let mut found = vec![];
    for count in 1..nodes.len() {
        let other = crate::graphs::api::graph();
        let mut last = add_empty(other, &[]);
        for _ in count..nodes.len() {
            last = add_empty(other, &[last]);
        }
        for _ in 1..count {
            add_empty(other, &[]);
        }
        let mut info = UpdateInfo::default();
        cuGraphExecUpdate_v2(instantiate(other), graph, &mut info).ignore();
        found.push(info.node);
    }
    places(&found, nodes)
}

unsafe fn edges(graph: Handle, nodes: &[Handle]) -> String {
    let (from, to) = edge_ends(graph);
    format!("{} > {}", places(&from, nodes), places(&to, nodes))
}

/// Four nodes without edges, and one of another graph.
unsafe fn apart() -> (Handle, [Handle; 4], Handle) {
    let (graph, other) = (graph(), graph());
    let nodes = [0; 4].map(|_| add_empty(graph, &[]));
    (graph, nodes, add_empty(other, &[]))
}

/// The two ends of edges between such nodes, the foreign one being number 4.
fn ends(
    pairs: &[(usize, usize)],
    nodes: &[Handle; 4],
    foreign: Handle,
) -> (Vec<Handle>, Vec<Handle>) {
    let handle = |at: usize| nodes.get(at).copied().unwrap_or(foreign);
    let ends = |&(from, to): &(usize, usize)| (handle(from), handle(to));
    pairs.iter().map(ends).unzip()
}

/// Writes down a call's answer, the graph's ends and edges.
unsafe fn leaves(line: &mut Line, name: &str, graph: Handle, nodes: &[Handle], answer: Answer) {
    line.says_as(name, answer);
    let (roots, exits) = (roots(graph, nodes), exits(graph, nodes));
    let edges = edges(graph, nodes);
    line.value(
        format!("{name}_leaves"),
        format_args!("{roots}, {exits}, {edges}"),
    );
}

/// What a graph with memory nodes does not take.
unsafe fn refuses(line: &mut Line, name: &str, graph: Handle, node: Handle, answer: Answer) {
    line.says_as(name, answer);
    let (mut clone, mut exec) = (0, 0);
    line.says_as("  clone", cuGraphClone(&mut clone, graph));
    line.says_as("  one", cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    line.says_as("  two", cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    line.says_as("  destroy", cuGraphDestroyNode(node));
}

unsafe extern "C" fn nothing(_: *mut std::ffi::c_void) {}

unsafe fn instantiate_if_it_can_be(graph: Handle) {
    cuGraphInstantiateWithFlags(&mut 0, graph, 0).ignore();
}

pub const CASES: &[Case] = &[
    case!("graph/failed/add", |line| {
        context();
        for (name, on) in [
            ("twice", &[0, 0][..]),
            ("later", &[0, 1, 0]),
            ("two", &[2, 1, 1]),
            ("all", &[0, 1, 2, 3, 0]),
            ("foreign", &[4]),
            ("then_foreign", &[0, 4]),
            ("two_then_foreign", &[2, 0, 4]),
            ("foreign_first", &[4, 0]),
        ] {
            let (graph, nodes, foreign) = apart();
            let all = [nodes[0], nodes[1], nodes[2], nodes[3], foreign];
            let on: Vec<Handle> = on.iter().map(|at| all[*at]).collect();
            let mut node = 0;
            let answer = cuGraphAddEmptyNode(&mut node, graph, on.as_ptr(), on.len());
            leaves(line, name, graph, &nodes, answer);
        }
    }),
    case!("graph/failed/add_edges", |line| {
        context();
        for (name, pairs) in [
            ("self", &[(0, 0)][..]),
            ("twice", &[(0, 1), (0, 1)]),
            ("then_self", &[(0, 1), (2, 2)]),
            ("two_then_self", &[(2, 1), (0, 1), (2, 2)]),
            ("then_foreign", &[(0, 1), (2, 4)]),
            ("then_from_foreign", &[(0, 1), (4, 2)]),
            ("line_then_self", &[(2, 0), (0, 1), (3, 3)]),
            ("fan_then_twice", &[(2, 0), (2, 1), (2, 3), (2, 0)]),
            ("cycle_then_self", &[(0, 1), (1, 0), (2, 2)]),
            ("none", &[]),
        ] {
            let (graph, nodes, foreign) = apart();
            let (from, to) = ends(pairs, &nodes, foreign);
            let answer = cuGraphAddDependencies(graph, from.as_ptr(), to.as_ptr(), from.len());
            leaves(line, name, graph, &nodes, answer);
        }
    }),
    case!("graph/failed/remove_edges", |line| {
        context();
        for (name, pairs) in [
            ("missing", &[(1, 0)][..]),
            ("self", &[(0, 0)]),
            ("then_missing", &[(0, 1), (1, 0)]),
            ("then_self", &[(0, 1), (1, 1)]),
            ("then_self_of_another", &[(0, 1), (3, 3)]),
            ("twice", &[(0, 1), (0, 1)]),
            ("self_between", &[(0, 1), (1, 1), (0, 1)]),
            ("self_then", &[(1, 1), (0, 1)]),
            ("missing_then", &[(1, 0), (0, 1)]),
            ("two_then_missing", &[(0, 1), (0, 2), (2, 3)]),
            ("two_then_self", &[(0, 1), (0, 2), (2, 2)]),
            ("then_foreign", &[(0, 1), (0, 4)]),
            ("then_from_foreign", &[(0, 1), (4, 1)]),
            ("foreign", &[(0, 4), (0, 1)]),
            ("right", &[(0, 1), (0, 2)]),
        ] {
            let (graph, nodes, foreign) = apart();
            add_edge(graph, nodes[0], nodes[1]).must();
            add_edge(graph, nodes[0], nodes[2]).must();
            let (from, to) = ends(pairs, &nodes, foreign);
            let answer = cuGraphRemoveDependencies(graph, from.as_ptr(), to.as_ptr(), from.len());
            leaves(line, name, graph, &nodes, answer);
        }
    }),
    case!("graph/failed/alloc", |line| {
        context();
        for name in [
            "right", "twice", "foreign", "size", "kind", "access", "child", "null",
        ] {
            let (mut graph, nodes, foreign) = apart();
            let mut params = alloc_params(64);
            let access = crate::conformance::structs::Access {
                location: crate::conformance::structs::Location { kind: 1, id: 0 },
                flags: 7,
            };
            let mut on = vec![nodes[0]];
            match name {
                "twice" => on.push(nodes[0]),
                "foreign" => on.push(foreign),
                "size" => params.size = 0,
                "kind" => params.properties[0] = 9,
                "access" => {
                    params.access = (&raw const access) as usize;
                    params.access_count = 1;
                }
                "child" => {
                    let node = add_child(graph, &[], crate::graphs::api::graph());
                    cuGraphChildGraphNodeGetGraph(node, &mut graph).must();
                    on.clear();
                }
                _ => {}
            }
            let mut node = 0;
            let out = if name == "null" {
                null_mut()
            } else {
                &mut node
            };
            let answer = cuGraphAddMemAllocNode(out, graph, on.as_ptr(), on.len(), &mut params);
            line.value(format!("{name}_address"), params.address != 0);
            if name == "child" {
                line.says_as(name, answer);
            } else {
                refuses(line, name, graph, nodes[3], answer);
            }
        }
    }),
    case!("graph/failed/free", |line| {
        context();
        for name in [
            "right",
            "twice",
            "foreign",
            "wrong_address",
            "null_address",
            "null",
        ] {
            let (graph, nodes, foreign) = apart();
            let other = crate::graphs::api::graph();
            let (_, address) = add_alloc(other, &[], 64);
            let mut on = vec![nodes[0]];
            let mut at = address;
            match name {
                "twice" => on.push(nodes[0]),
                "foreign" => on.push(foreign),
                "wrong_address" => at += 8,
                "null_address" => at = 0,
                _ => {}
            }
            let mut node = 0;
            let out = if name == "null" {
                null_mut()
            } else {
                &mut node
            };
            let answer = cuGraphAddMemFreeNode(out, graph, on.as_ptr(), on.len(), at);
            refuses(line, name, graph, nodes[3], answer);
            let mut node = 0;
            let answer = cuGraphAddMemFreeNode(&mut node, graph, NONE, 0, address);
            line.says_as("  again", answer);
        }
    }),
    case!("graph/failed/child_with_memory", |line| {
        context();
        for name in ["right", "twice", "foreign"] {
            let (graph, nodes, foreign) = apart();
            let child = crate::graphs::api::graph();
            add_alloc(child, &[], 64);
            let mut on = vec![nodes[0]];
            match name {
                "twice" => on.push(nodes[0]),
                "foreign" => on.push(foreign),
                _ => {}
            }
            let mut node = 0;
            let answer = cuGraphAddChildGraphNode(&mut node, graph, on.as_ptr(), on.len(), child);
            refuses(line, name, graph, nodes[3], answer);
        }
    }),
    case!("graph/failed/free_afterwards", |line| {
        context();
        for name in [
            "none",
            "instantiated",
            "gone",
            "instantiated_before",
            "instantiated_with_free",
            "instantiated_to_free",
            "failed",
            "updated",
            "destroyed",
            "disconnected",
            "launched",
            "cloned",
        ] {
            let graph = graph();
            let first = add_empty(graph, &[]);
            if name == "instantiated_before" {
                instantiate(graph);
            }
            let (alloc, address) = add_alloc(graph, &[first], 64);
            match name {
                "gone" => cuGraphExecDestroy(instantiate(graph)).must(),
                "instantiated_with_free" => {
                    let (other, address) = add_alloc(graph, &[], 64);
                    add_free(graph, &[other], address);
                    instantiate(graph);
                }
                "instantiated_to_free" => {
                    cuGraphInstantiateWithFlags(&mut 0, graph, 1).must();
                }
                "failed" => {
                    let other = add_empty(graph, &[first]);
                    add_edge(graph, other, first).must();
                    instantiate_if_it_can_be(graph);
                }
                "updated" => {
                    let old = crate::graphs::api::graph();
                    let first = add_empty(old, &[]);
                    add_alloc(old, &[first], 64);
                    let mut info = UpdateInfo::default();
                    let exec = instantiate(old);
                    line.says(cuGraphExecUpdate_v2(exec, graph, &mut info));
                }
                "instantiated" => drop(instantiate(graph)),
                "destroyed" => cuGraphDestroyNode(alloc).ignore(),
                "disconnected" => cuGraphRemoveDependencies(graph, &first, &alloc, 1).ignore(),
                "launched" => {
                    let exec = instantiate(graph);
                    let stream = stream();
                    cuGraphLaunch(exec, stream).must();
                    cuStreamSynchronize(stream).must();
                }
                "cloned" => cuGraphClone(&mut 0, graph).ignore(),
                _ => {}
            }
            let mut node = 0;
            line.says_as(
                name,
                cuGraphAddMemFreeNode(&mut node, graph, &alloc, 1, address),
            );
            line.says_as(
                "  again",
                cuGraphAddMemFreeNode(&mut node, graph, &alloc, 1, address),
            );
            let other = crate::graphs::api::graph();
            line.says_as(
                "  other",
                cuGraphAddMemFreeNode(&mut node, other, NONE, 0, address),
            );
        }
    }),
    case!("graph/failed/child_of_embedded", |line| {
        context();
        for name in ["other", "own_parent", "clone", "body", "deep"] {
            let (inner, parent, other) = (graph(), graph(), graph());
            add_empty(inner, &[]);
            add_empty(other, &[]);
            let embedded = child_of(add_child(parent, &[], inner));
            let (mut to, mut from) = (other, embedded);
            match name {
                "own_parent" => to = parent,
                "clone" => {
                    let mut clone = 0;
                    cuGraphClone(&mut clone, parent).must();
                    from = child_of(nodes(clone)[0]);
                }
                "body" => (_, from) = add_single(parent, &[], condition(parent, 0), IF),
                "deep" => from = child_of(nodes(child_of(add_child(other, &[], parent)))[0]),
                _ => {}
            }
            let mut node = 0;
            line.says_as(name, cuGraphAddChildGraphNode(&mut node, to, NONE, 0, from));
            let twice = [nodes(to)[0]; 2];
            let answer = cuGraphAddChildGraphNode(&mut node, to, twice.as_ptr(), 2, from);
            line.says_as("  twice", answer);
            let mut clone = 0;
            line.says_as("  clone", cuGraphClone(&mut clone, from));
        }
    }),
    case!("graph/failed/instantiate_for_kernels", |line| {
        context();
        const FOR_KERNELS: u64 = 4;
        let ask = |line: &mut Line, name: &str, graph: Handle, nodes: &[Handle]| {
            let mut exec = 0;
            let mut params = InstantiateParams {
                flags: FOR_KERNELS,
                ..Default::default()
            };
            let answer = cuGraphInstantiateWithParams(&mut exec, graph, &mut params);
            line.says_as(name, answer);
            let node = places(&[params.node], nodes);
            line.value("  told", format_args!("{} {node}", params.result));
        };
        let at = memory(4);
        let (store, event) = (function(c"store"), event());
        for name in [
            "kernel",
            "empty",
            "host",
            "record",
            "wait",
            "fill",
            "child",
            "alloc",
            "condition",
        ] {
            let fill = |graph: Handle| {
                let first = add_store(graph, &[], store, at, 1);
                let on = [first];
                let mut last = 0;
                match name {
                    "empty" => last = add_empty(graph, &on),
                    "host" => last = add_host(graph, &on, Some(nothing), null_mut()),
                    "record" => {
                        cuGraphAddEventRecordNode(&mut last, graph, &first, 1, event).ignore();
                    }
                    "wait" => cuGraphAddEventWaitNode(&mut last, graph, &first, 1, event).ignore(),
                    "fill" => last = add_fill(graph, &on, at, 1),
                    "child" => last = add_child(graph, &on, crate::graphs::api::graph()),
                    "alloc" => {
                        let mut params = alloc_params(64);
                        cuGraphAddMemAllocNode(&mut last, graph, &first, 1, &mut params).ignore();
                    }
                    "condition" => drop(condition(graph, 0)),
                    _ => last = add_store(graph, &on, store, at, 1),
                }
                [first, last]
            };
            let graph = graph();
            let nodes = fill(graph);
            ask(line, name, graph, &nodes);
            instantiate_if_it_can_be(graph);
            ask(line, "  again", graph, &nodes);
            let graph = crate::graphs::api::graph();
            let child = child_of(add_child(graph, &[], crate::graphs::api::graph()));
            let nodes = fill(child);
            ask(line, "  child", child, &nodes);
            let graph = crate::graphs::api::graph();
            let (node, body) = add_single(graph, &[], condition(graph, 0), IF);
            if name != "condition" {
                let nodes = fill(body);
                ask(line, "  body", body, &nodes);
            }
            ask(line, "  around", graph, &[node]);
            instantiate_if_it_can_be(graph);
            ask(line, "  around_again", graph, &[node]);
        }
    }),
    case!("graph/destroy_node/ends", |line| {
        context();
        for count in 1..6 {
            let graph = graph();
            let nodes: Vec<Handle> = (0..count).map(|_| add_empty(graph, &[])).collect();
            let last = add_empty(graph, &nodes);
            let answer = cuGraphDestroyNode(last);
            leaves(line, &format!("{count}_before"), graph, &nodes, answer);
            let graph = crate::graphs::api::graph();
            let first = add_empty(graph, &[]);
            let nodes: Vec<Handle> = (0..count).map(|_| add_empty(graph, &[first])).collect();
            let answer = cuGraphDestroyNode(first);
            leaves(line, &format!("{count}_after"), graph, &nodes, answer);
        }
    }),
    case!("graph/clone/of_moved", |line| {
        context();
        for moves in [0, MOVE] {
            let (root, middle, inner) = (graph(), graph(), graph());
            add_empty(inner, &[]);
            let (answer, node) = embed(middle, &[], inner, moves);
            answer.must();
            let mut clone = 0;
            line.says_as(format!("{moves}_parent"), cuGraphClone(&mut clone, middle));
            line.says_as("  child", cuGraphClone(&mut clone, child_of(node)));
            let mut other = 0;
            let answer = cuGraphAddChildGraphNode(&mut other, root, NONE, 0, middle);
            if line.says_as("  embed", answer) {
                line.says_as("  parents_copy", cuGraphClone(&mut clone, child_of(other)));
            }
            instantiate(middle);
            line.says_as("  instantiated", cuGraphClone(&mut clone, middle));
            add_empty(child_of(node), &[]);
            line.says_as("  changed", cuGraphClone(&mut clone, middle));
            line.says_as("  changed_child", cuGraphClone(&mut clone, child_of(node)));
        }
    }),
    case!("graph/exec_child/other_nodes", |line| {
        context();
        let event = event();
        let graph = graph();
        let at = memory(4);
        let mut record = 0;
        let child = crate::graphs::api::graph();
        add_empty(child, &[]);
        let (alloc, address) = add_alloc(graph, &[], 64);
        cuGraphAddEventRecordNode(&mut record, graph, NONE, 0, event).must();
        let nodes = [
            ("empty", add_empty(graph, &[])),
            ("kernel", add_store(graph, &[], function(c"store"), at, 1)),
            ("fill", add_fill(graph, &[], at, 1)),
            ("record", record),
            ("alloc", alloc),
            ("free", add_free(graph, &[alloc], address)),
            (
                "conditional",
                add_single(graph, &[], condition(graph, 0), IF).0,
            ),
        ];
        let other = crate::graphs::api::graph();
        let exec = instantiate(graph);
        for (name, node) in nodes {
            line.says_as(name, cuGraphExecChildGraphNodeSetParams(exec, node, child));
            line.says_as(
                "  empty",
                cuGraphExecChildGraphNodeSetParams(exec, node, other),
            );
            line.says_as(
                "  own",
                cuGraphExecChildGraphNodeSetParams(exec, node, graph),
            );
        }
    }),
    case!("graph/exec_child/definition_changed", |line| {
        context();
        let with = |count: usize| {
            let graph = graph();
            for _ in 0..count {
                add_empty(graph, &[]);
            }
            graph
        };
        for (before, after) in [(0, 1), (1, 2), (1, 0)] {
            let root = graph();
            let node = add_child(root, &[], with(before));
            let exec = instantiate(root);
            let own = child_of(node);
            match after < before {
                true => cuGraphDestroyNode(nodes(own)[0]).must(),
                false => drop(add_empty(own, &[])),
            }
            for count in [0, 1, 2, 0, 1] {
                let answer = cuGraphExecChildGraphNodeSetParams(exec, node, with(count));
                line.says_as(format!("{before}_{after}_{count}"), answer);
            }
            let answer = cuGraphExecChildGraphNodeSetParams(exec, node, own);
            line.says_as("  own", answer);
            let mut info = UpdateInfo::default();
            line.says_as("  update", cuGraphExecUpdate_v2(exec, root, &mut info));
        }
    }),
    case!("graph/failed/other_kinds", |line| {
        context();
        for on in [&[0, 1][..], &[2, 0, 1], &[0, 0], &[1, 2, 1]] {
            let name = |what: &str| format!("{what}_{}", on.len());
            let of = |nodes: &[Handle; 4]| on.iter().map(|at| nodes[*at]).collect::<Vec<_>>();
            let mut node = 0;
            let (graph, nodes, _) = apart();
            let from = of(&nodes);
            let (list, count) = (from.as_ptr(), from.len());
            let answer = cuGraphAddMemFreeNode(&mut node, graph, list, count, WILD);
            leaves(line, &name("free"), graph, &nodes, answer);
            let (graph, nodes, _) = apart();
            let from = of(&nodes);
            let mut params = alloc_params(0);
            let (list, count) = (from.as_ptr(), from.len());
            let answer = cuGraphAddMemAllocNode(&mut node, graph, list, count, &mut params);
            leaves(line, &name("alloc"), graph, &nodes, answer);
            let (graph, nodes, _) = apart();
            let from = of(&nodes);
            let condition = condition(graph, 0);
            let mut params = conditional_params(condition, IF, 7);
            let (answer, _) = try_conditional(graph, &from, &mut params);
            leaves(line, &name("conditional"), graph, &nodes, answer);
            let (graph, nodes, _) = apart();
            let from = of(&nodes);
            let answer = cuGraphAddChildGraphNode(&mut node, graph, from.as_ptr(), from.len(), 0);
            leaves(line, &name("child"), graph, &nodes, answer);
            let (graph, nodes, _) = apart();
            let from = of(&nodes);
            let fill = FillParams {
                element: 3,
                ..word_fill(WILD, 0)
            };
            let (list, count) = (from.as_ptr(), from.len());
            let answer = cuGraphAddMemsetNode(&mut node, graph, list, count, &fill, current());
            leaves(line, &name("fill"), graph, &nodes, answer);
            for work in [false, true] {
                let (graph, nodes, _) = apart();
                let from = of(&nodes);
                let (list, count) = (from.as_ptr(), from.len());
                let stream = stream();
                let answer =
                    cuStreamBeginCaptureToGraph(stream, graph, list, std::ptr::null(), count, 2);
                if work && answer.code == 0 {
                    cuStreamWaitEvent(stream, event(), 0).ignore();
                }
                let mut captured = 0;
                cuStreamEndCapture(stream, &mut captured).ignore();
                leaves(line, &name("capture"), graph, &nodes, answer);
            }
        }
    }),
];
