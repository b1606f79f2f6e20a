//! Graphs made and destroyed, and how they grow.

use std::ptr::{null, null_mut};

use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

pub const CASES: &[Case] = &[
    case!("graph/create/flags", |line| {
        context();
        for flags in [0u32, 1, 2, u32::MAX] {
            let mut graph = 0;
            line.says_as(
                format!("flags_{flags:#x}"),
                cuGraphCreate(&mut graph, flags),
            );
        }
    }),
    case!("graph/create/null_out", |line| {
        context();
        line.says(cuGraphCreate(null_mut(), 0));
    }),
    case!("graph/create/without_context", |line| {
        device();
        let mut graph = 0;
        line.says(cuGraphCreate(&mut graph, 0));
    }),
    case!("graph/destroy/null", |line| {
        context();
        line.says(cuGraphDestroy(0));
    }),
    alone!("graph/destroy/bogus", |line| {
        context();
        line.says(cuGraphDestroy(BOGUS));
    }),
    alone!("graph/destroy/twice", |line| {
        context();
        let graph = graph();
        line.says_as("first", cuGraphDestroy(graph));
        line.says_as("second", cuGraphDestroy(graph));
    }),
    case!("graph/destroy/with_nodes", |line| {
        context();
        let graph = graph();
        let a = add_empty(graph, &[]);
        add_empty(graph, &[a]);
        line.says(cuGraphDestroy(graph));
    }),
    case!("graph/empty/right", |line| {
        context();
        let (graph, mut node) = (graph(), 0);
        let answer = cuGraphAddEmptyNode(&mut node, graph, null(), 0);
        line.gives("made", answer, node != 0);
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/empty/null_out", |line| {
        context();
        let graph = graph();
        line.says(cuGraphAddEmptyNode(null_mut(), graph, null(), 0));
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/empty/null_graph", |line| {
        context();
        let mut node = 0;
        line.says(cuGraphAddEmptyNode(&mut node, 0, null(), 0));
    }),
    case!("graph/empty/null_dependencies_with_count", |line| {
        context();
        let (graph, mut node) = (graph(), 0);
        line.says(cuGraphAddEmptyNode(&mut node, graph, null(), 1));
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/empty/null_dependency", |line| {
        context();
        let (graph, mut node) = (graph(), 0);
        line.says(cuGraphAddEmptyNode(&mut node, graph, &0, 1));
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/empty/foreign_dependency", |line| {
        context();
        let (one, two, mut node) = (graph(), graph(), 0);
        let foreign = add_empty(two, &[]);
        line.says(cuGraphAddEmptyNode(&mut node, one, &foreign, 1));
        line.value("nodes", nodes(one).len());
    }),
    case!("graph/empty/duplicate_dependency", |line| {
        context();
        let (graph, mut node) = (graph(), 0);
        let a = add_empty(graph, &[]);
        line.says(cuGraphAddEmptyNode(&mut node, graph, [a, a].as_ptr(), 2));
        line.value("nodes", nodes(graph).len());
    }),
];
