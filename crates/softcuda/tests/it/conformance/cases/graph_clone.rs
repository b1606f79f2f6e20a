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
];
