//! Clones and child graphs.

use std::ptr::null_mut;

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
];
