//! Clones and child graphs.

use std::ptr::null_mut;

use super::graph_run::runs;
use crate::conformance::api::Handle;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

pub const CASES: &[Case] = &[
    case!("graph/clone/null", |line| {
        context();
        let (graph, mut clone) = (graph(), 0);
        line.says_as("out", cuGraphClone(null_mut(), graph));
        line.says_as("graph", cuGraphClone(&mut clone, 0));
    }),
    case!("graph/clone/find", |line| {
        context();
        let (graph, mut clone, mut node) = (graph(), 0, 0);
        let a = add_empty(graph, &[]);
        line.says(cuGraphClone(&mut clone, graph));
        line.says_as("in_clone", cuGraphNodeFindInClone(&mut node, a, clone));
        line.value("is_its", nodes(clone) == [node]);
        let late = add_empty(graph, &[]);
        node = 7;
        line.says_as("late", cuGraphNodeFindInClone(&mut node, late, clone));
        line.value("out_null", node == 0);
        line.says_as("no_clone", cuGraphNodeFindInClone(&mut node, a, graph));
    }),
    case!("graph/clone/order_of_edges", |line| {
        context();
        let (graph, mut clone, mut of) = (graph(), 0, [0; 4]);
        let nodes = [(); 4].map(|()| add_empty(graph, &[]));
        let [a, b, c, d] = nodes;
        for (from, to) in [(b, d), (c, d), (a, d), (b, c)] {
            add_edge(graph, from, to).must();
        }
        cuGraphClone(&mut clone, graph).must();
        for (node, found) in nodes.iter().zip(&mut of) {
            cuGraphNodeFindInClone(found, *node, clone).must();
        }
        for (what, [a, b, c, d]) in [("original", nodes), ("clone", of)] {
            let names = [("a", a), ("b", b), ("c", c), ("d", d)];
            let told = |list: &[Handle]| -> String {
                list.iter().map(|&node| named(node, &names)).collect()
            };
            let (mut list, mut count) = ([0; 4], 4);
            cuGraphNodeGetDependencies(d, list.as_mut_ptr(), &mut count).must();
            line.value(format!("{what}_in"), told(&list[..count]));
            count = 4;
            cuGraphNodeGetDependentNodes(b, list.as_mut_ptr(), &mut count).must();
            line.value(format!("{what}_out"), told(&list[..count]));
        }
    }),
    case!("graph/clone/outlives_original", |line| {
        context();
        let (graph, mut clone) = (graph(), 0);
        add_empty(graph, &[]);
        cuGraphClone(&mut clone, graph).must();
        line.says(cuGraphDestroy(graph));
        line.value("nodes", nodes(clone).len());
    }),
    case!("graph/child/is_a_copy", |line| {
        context();
        let (parent, child, mut inner) = (graph(), graph(), 0);
        let node = add_child(parent, &[], child);
        line.says(cuGraphChildGraphNodeGetGraph(node, &mut inner));
        line.value("same", inner == child);
        add_empty(child, &[]);
        line.value("nodes", nodes(inner).len());
    }),
    case!("graph/child/wrong", |line| {
        context();
        let (parent, mut out) = (graph(), 0);
        line.says_as(
            "null",
            cuGraphAddChildGraphNode(&mut out, parent, NONE, 0, 0),
        );
        let empty = add_empty(parent, &[]);
        line.says_as("kind", cuGraphChildGraphNodeGetGraph(empty, &mut out));
    }),
    alone!("graph/child/itself", |line| {
        context();
        let (graph, mut node) = (graph(), 0);
        line.says(cuGraphAddChildGraphNode(&mut node, graph, NONE, 0, graph));
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/child/two_of_one", |line| {
        context();
        let (parent, child, pointer) = (graph(), graph(), memory(4));
        add_fill(child, &[], pointer, 3);
        let first = add_child(parent, &[], child);
        add_child(parent, &[first], child);
        line.says(cuGraphDestroy(child));
        runs(line, "run", parent);
        line.value("word", word(pointer));
    }),
    case!("graph/child/null", |line| {
        context();
        let (parent, child) = (graph(), graph());
        line.says_as(
            "out",
            cuGraphAddChildGraphNode(null_mut(), parent, NONE, 0, child),
        );
        line.says_as("graph", cuGraphAddChildGraphNode(&mut 0, 0, NONE, 0, child));
        let node = add_child(parent, &[], child);
        line.says_as("get_out", cuGraphChildGraphNodeGetGraph(node, null_mut()));
        line.says_as("get_node", cuGraphChildGraphNodeGetGraph(0, &mut 0));
        line.value("nodes", nodes(parent).len());
    }),
    case!("graph/child/grows", |line| {
        context();
        let (parent, child, mut own) = (graph(), graph(), 0);
        let (pointer, node) = (memory(4), add_child(parent, &[], child));
        cuGraphChildGraphNodeGetGraph(node, &mut own).must();
        let fill = word_fill(pointer, 9);
        line.says(cuGraphAddMemsetNode(&mut 0, own, NONE, 0, &fill, current()));
        runs(line, "run", parent);
        line.value("word", word(pointer));
    }),
    alone!("graph/child/destroyed", |line| {
        context();
        let (parent, child, mut own) = (graph(), graph(), 0);
        let node = add_child(parent, &[], child);
        cuGraphChildGraphNodeGetGraph(node, &mut own).must();
        line.says(cuGraphDestroy(own));
    }),
    case!("graph/child/instantiated_alone", |line| {
        context();
        let (parent, child, mut own) = (graph(), graph(), 0);
        add_empty(child, &[]);
        let node = add_child(parent, &[], child);
        cuGraphChildGraphNodeGetGraph(node, &mut own).must();
        runs(line, "run", own);
        let mut clone = 0;
        line.says(cuGraphClone(&mut clone, own));
    }),
    case!("graph/clone/find_inside", |line| {
        context();
        let (graph, child, mut clone, mut found) = (graph(), graph(), 0, 0);
        let original = add_empty(child, &[]);
        let node = add_child(graph, &[], child);
        let mut own = 0;
        cuGraphChildGraphNodeGetGraph(node, &mut own).must();
        let inner = nodes(own)[0];
        cuGraphClone(&mut clone, graph).must();
        cuGraphNodeFindInClone(&mut found, node, clone).must();
        let mut copy = 0;
        line.says(cuGraphChildGraphNodeGetGraph(found, &mut copy));
        line.value("own_child", copy != own);
        line.says_as("inner", cuGraphNodeFindInClone(&mut found, inner, clone));
        line.says_as(
            "inner_in_child",
            cuGraphNodeFindInClone(&mut found, inner, copy),
        );
        line.says_as(
            "original_in_child",
            cuGraphNodeFindInClone(&mut found, original, own),
        );
        line.says_as(
            "original_in_clone",
            cuGraphNodeFindInClone(&mut found, original, copy),
        );
    }),
    case!("graph/clone/of_a_clone", |line| {
        context();
        let (graph, mut first, mut second, mut found) = (graph(), 0, 0, 0);
        let node = add_empty(graph, &[]);
        cuGraphClone(&mut first, graph).must();
        cuGraphClone(&mut second, first).must();
        line.says_as(
            "grandparent",
            cuGraphNodeFindInClone(&mut found, node, second),
        );
        line.says_as(
            "parent",
            cuGraphNodeFindInClone(&mut found, nodes(first)[0], second),
        );
        line.says_as(
            "back",
            cuGraphNodeFindInClone(&mut found, nodes(first)[0], graph),
        );
    }),
    case!("graph/child/set_keeps_its_node", |line| {
        context();
        let (parent, child, other, pointer) = (graph(), graph(), graph(), memory(4));
        let (node, mut before, mut after) = (add_child(parent, &[], child), 0, 0);
        add_fill(other, &[], pointer, 6);
        cuGraphChildGraphNodeGetGraph(node, &mut before).must();
        line.says(cuGraphNodeSetParams(
            node,
            &mut node_params(4, &[other as u64, 0]),
        ));
        cuGraphChildGraphNodeGetGraph(node, &mut after).must();
        line.value("graph", named(after, &[("same", before), ("other", other)]));
        runs(line, "run", parent);
        line.value("word", word(pointer));
        line.says_as(
            "null",
            cuGraphNodeSetParams(node, &mut node_params(4, &[0, 0])),
        );
        let empty = add_empty(parent, &[]);
        line.says_as(
            "kind",
            cuGraphNodeSetParams(empty, &mut node_params(4, &[other as u64, 0])),
        );
    }),
];
