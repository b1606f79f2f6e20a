//! Edges and the lists of a graph.

use std::ptr::{null, null_mut};

use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

pub const CASES: &[Case] = &[
    case!("graph/edges/add", |line| {
        context();
        let graph = graph();
        let (a, b) = (add_empty(graph, &[]), add_empty(graph, &[]));
        line.says_as("right", add_edge(graph, a, b));
        line.says_as("duplicate", add_edge(graph, a, b));
        line.value("edges", edge_count(graph));
    }),
    case!("graph/edges/self", |line| {
        context();
        let graph = graph();
        let a = add_empty(graph, &[]);
        line.says(add_edge(graph, a, a));
        line.value("edges", edge_count(graph));
    }),
    case!("graph/edges/cycle", |line| {
        context();
        let graph = graph();
        let a = add_empty(graph, &[]);
        let b = add_empty(graph, &[a]);
        line.says(add_edge(graph, b, a));
        line.value("edges", edge_count(graph));
    }),
    case!("graph/edges/foreign", |line| {
        context();
        let (one, two) = (graph(), graph());
        let (a, b) = (add_empty(one, &[]), add_empty(two, &[]));
        line.says_as("to", add_edge(one, a, b));
        line.says_as("from", add_edge(one, b, a));
        line.value("edges", edge_count(one));
    }),
    case!("graph/edges/second_pair_wrong", |line| {
        context();
        let graph = graph();
        let (a, b) = (add_empty(graph, &[]), add_empty(graph, &[]));
        let (from, to) = ([a, b], [b, b]);
        line.says(cuGraphAddDependencies(graph, from.as_ptr(), to.as_ptr(), 2));
        line.value("edges", edge_count(graph));
    }),
    case!("graph/edges/null_arrays", |line| {
        context();
        let graph = graph();
        line.says_as("none", cuGraphAddDependencies(graph, null(), null(), 0));
        line.says_as("one", cuGraphAddDependencies(graph, null(), null(), 1));
        line.says_as("graph", cuGraphAddDependencies(0, null(), null(), 0));
    }),
    case!("graph/edges/remove", |line| {
        context();
        let graph = graph();
        let a = add_empty(graph, &[]);
        let b = add_empty(graph, &[a]);
        line.says_as("right", cuGraphRemoveDependencies(graph, &a, &b, 1));
        line.says_as("again", cuGraphRemoveDependencies(graph, &a, &b, 1));
        line.value("edges", edge_count(graph));
    }),
    case!("graph/edges/remove_second_pair_wrong", |line| {
        context();
        let graph = graph();
        let a = add_empty(graph, &[]);
        let b = add_empty(graph, &[a]);
        let (from, to) = ([a, b], [b, a]);
        line.says(cuGraphRemoveDependencies(
            graph,
            from.as_ptr(),
            to.as_ptr(),
            2,
        ));
        line.value("edges", edge_count(graph));
    }),
    case!("graph/nodes/counts", |line| {
        context();
        let graph = graph();
        let a = add_empty(graph, &[]);
        let b = add_empty(graph, &[a]);
        let (mut list, mut count) = ([7; 4], 1);
        line.says_as(
            "small",
            cuGraphGetNodes(graph, list.as_mut_ptr(), &mut count),
        );
        line.value("small_count", count);
        line.value("small_first", list[0] == a);
        count = 4;
        line.says_as(
            "large",
            cuGraphGetNodes(graph, list.as_mut_ptr(), &mut count),
        );
        line.value("large_count", count);
        line.value("ordered", list[..2] == [a, b]);
        line.value("rest_null", list[2..] == [0, 0]);
        line.says_as("null_count", cuGraphGetNodes(graph, null_mut(), null_mut()));
    }),
    case!("graph/nodes/no_room", |line| {
        context();
        let graph = graph();
        let (mut list, mut to, mut count) = ([7; 4], [7; 4], 0);
        let mut ask = |name: &str| {
            let (list, to) = (list.as_mut_ptr(), to.as_mut_ptr());
            count = 0;
            line.says_as(
                format!("{name}_nodes"),
                cuGraphGetNodes(graph, list, &mut count),
            );
            count = 0;
            line.says_as(
                format!("{name}_roots"),
                cuGraphGetRootNodes(graph, list, &mut count),
            );
            count = 0;
            line.says_as(
                format!("{name}_edges"),
                cuGraphGetEdges(graph, list, to, &mut count),
            );
        };
        ask("empty");
        let a = add_empty(graph, &[]);
        let b = add_empty(graph, &[a]);
        ask("two");
        count = 0;
        line.says_as(
            "dependencies",
            cuGraphNodeGetDependencies(b, list.as_mut_ptr(), &mut count),
        );
        count = 0;
        line.says_as(
            "dependents",
            cuGraphNodeGetDependentNodes(a, list.as_mut_ptr(), &mut count),
        );
        count = 0;
        line.says_as(
            "none",
            cuGraphNodeGetDependencies(a, list.as_mut_ptr(), &mut count),
        );
    }),
    alone!("graph/nodes/destroy_twice", |line| {
        context();
        let graph = graph();
        let a = add_empty(graph, &[]);
        line.says_as("first", cuGraphDestroyNode(a));
        line.says_as("second", cuGraphDestroyNode(a));
    }),
];
