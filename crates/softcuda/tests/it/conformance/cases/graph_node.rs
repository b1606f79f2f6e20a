//! What graphs and nodes tell of themselves: kinds, lists, pictures.

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

use crate::conformance::api::*;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

unsafe extern "C" fn nothing(_: *mut c_void) {}

/// A file that only this process uses.
fn file() -> CString {
    let file = std::env::temp_dir().join(format!("conformance-{}.dot", std::process::id()));
    CString::new(file.to_str().expect("a path of ours")).expect("no zero byte")
}

fn read(path: &CString) -> String {
    let path = path.to_str().expect("a path of ours");
    let text = std::fs::read_to_string(path);
    std::fs::remove_file(path).ok();
    text.unwrap_or_default()
}

pub const CASES: &[Case] = &[
    case!("graph/node/kinds", |line| {
        context();
        let (graph, pointer) = (graph(), memory(8));
        let (mut record, mut wait) = (0, 0);
        cuGraphAddEventRecordNode(&mut record, graph, NONE, 0, event()).must();
        cuGraphAddEventWaitNode(&mut wait, graph, NONE, 0, event()).must();
        for (name, node) in [
            (
                "kernel",
                add_kernel(graph, &[], function(c"empty"), &mut []),
            ),
            (
                "copy",
                add_copy(graph, &[], &line_copy(pointer, pointer + 4, 4)),
            ),
            ("fill", add_fill(graph, &[], pointer, 1)),
            ("host", add_host(graph, &[], Some(nothing), null_mut())),
            ("child", add_child(graph, &[], crate::graphs::api::graph())),
            ("empty", add_empty(graph, &[])),
            ("record", record),
            ("wait", wait),
        ] {
            let mut kind = 99;
            line.gives(name, cuGraphNodeGetType(node, &mut kind), kind);
        }
    }),
    case!("graph/node/kind_wrong", |line| {
        context();
        let (node, mut kind) = (add_empty(graph(), &[]), 99);
        line.says_as("out", cuGraphNodeGetType(node, null_mut()));
        line.says_as("node", cuGraphNodeGetType(0, &mut kind));
    }),
    alone!("graph/node/bogus", |line| {
        context();
        line.says(cuGraphNodeGetType(BOGUS, &mut 99));
    }),
    alone!("graph/node/of_a_destroyed_graph", |line| {
        context();
        let graph = graph();
        let node = add_empty(graph, &[]);
        cuGraphDestroy(graph).must();
        line.says(cuGraphDestroyNode(node));
    }),
    case!("graph/node/destroy", |line| {
        context();
        let graph = graph();
        let a = add_empty(graph, &[]);
        let b = add_empty(graph, &[a]);
        let c = add_empty(graph, &[b]);
        line.says_as("middle", cuGraphDestroyNode(b));
        line.value("edges", edge_count(graph));
        line.value("nodes", nodes(graph) == [a, c]);
        let mut count = 9;
        line.gives(
            "roots",
            cuGraphGetRootNodes(graph, null_mut(), &mut count),
            count,
        );
        line.says_as("null", cuGraphDestroyNode(0));
    }),
    case!("graph/node/lists", |line| {
        context();
        let graph = graph();
        let (a, b) = (add_empty(graph, &[]), add_empty(graph, &[]));
        let c = add_empty(graph, &[b, a]);
        let d = add_empty(graph, &[c, a]);
        let names = [("a", a), ("b", b), ("c", c), ("d", d)];
        let (mut list, mut count) = ([0; 4], 4);
        let told = |list: &[Handle; 4], count: usize| -> String {
            list[..count]
                .iter()
                .map(|&node| named(node, &names))
                .collect()
        };
        line.says(cuGraphNodeGetDependencies(c, list.as_mut_ptr(), &mut count));
        line.value("in", told(&list, count));
        count = 4;
        line.says(cuGraphNodeGetDependentNodes(
            a,
            list.as_mut_ptr(),
            &mut count,
        ));
        line.value("out", told(&list, count));
        count = 4;
        line.says(cuGraphGetRootNodes(graph, list.as_mut_ptr(), &mut count));
        line.value("roots", told(&list, count));
        count = 4;
        line.says(cuGraphGetNodes(graph, list.as_mut_ptr(), &mut count));
        line.value("nodes", told(&list, count));
        let (mut to, mut edges) = ([0; 4], 4);
        line.says(cuGraphGetEdges(
            graph,
            list.as_mut_ptr(),
            to.as_mut_ptr(),
            &mut edges,
        ));
        let pairs = list.iter().zip(&to);
        let pairs: Vec<String> = pairs
            .map(|(&from, &to)| format!("{}{}", named(from, &names), named(to, &names)))
            .collect();
        line.value("edges", pairs.join(" "));
    }),
    case!("graph/node/order_of_roots", |line| {
        context();
        let graph = graph();
        let all = [(); 4].map(|()| add_empty(graph, &[]));
        let mut tell = |what: &str| {
            let (mut list, mut count) = ([0; 4], 4);
            cuGraphGetRootNodes(graph, list.as_mut_ptr(), &mut count).must();
            let place = |node: &Handle| all.iter().position(|it| it == node).unwrap_or(9);
            let places: Vec<usize> = list[..count].iter().map(place).collect();
            line.value(what, format!("{places:?}"));
        };
        tell("made");
        add_edge(graph, all[0], all[2]).must();
        tell("tied");
        cuGraphRemoveDependencies(graph, &all[0], &all[2], 1).must();
        tell("untied");
        let mut clone = 0;
        cuGraphClone(&mut clone, graph).must();
        let (mut list, mut count) = ([0; 4], 4);
        cuGraphGetRootNodes(clone, list.as_mut_ptr(), &mut count).must();
        let in_clone = all.map(|node| {
            let mut found = 0;
            cuGraphNodeFindInClone(&mut found, node, clone).must();
            found
        });
        let place = |node: &Handle| in_clone.iter().position(|it| it == node).unwrap_or(9);
        let places: Vec<usize> = list.iter().map(place).collect();
        line.value("clone", format!("{places:?}"));
    }),
    case!("graph/node/lists_wrong", |line| {
        context();
        let graph = graph();
        let a = add_empty(graph, &[]);
        let (mut list, mut count) = ([0; 2], 2);
        line.says_as(
            "in_node",
            cuGraphNodeGetDependencies(0, list.as_mut_ptr(), &mut count),
        );
        line.says_as(
            "in_count",
            cuGraphNodeGetDependencies(a, list.as_mut_ptr(), null_mut()),
        );
        line.says_as(
            "out_node",
            cuGraphNodeGetDependentNodes(0, list.as_mut_ptr(), &mut count),
        );
        line.says_as(
            "roots_graph",
            cuGraphGetRootNodes(0, list.as_mut_ptr(), &mut count),
        );
        line.says_as(
            "nodes_graph",
            cuGraphGetNodes(0, list.as_mut_ptr(), &mut count),
        );
        line.says_as(
            "edges_graph",
            cuGraphGetEdges(0, list.as_mut_ptr(), null_mut(), &mut count),
        );
        line.says_as(
            "edges_half",
            cuGraphGetEdges(graph, list.as_mut_ptr(), null_mut(), &mut count),
        );
    }),
    case!("graph/node/destroyed_by_its_clone", |line| {
        context();
        let (graph, mut clone, mut node) = (graph(), 0, 0);
        let a = add_empty(graph, &[]);
        cuGraphClone(&mut clone, graph).must();
        cuGraphNodeFindInClone(&mut node, a, clone).must();
        line.says(cuGraphDestroyNode(node));
        line.says_as("gone", cuGraphNodeFindInClone(&mut node, a, clone));
        line.value("original", nodes(graph).len());
        line.says_as("out", cuGraphNodeFindInClone(null_mut(), a, clone));
        line.says_as("node", cuGraphNodeFindInClone(&mut node, 0, clone));
        line.says_as("clone", cuGraphNodeFindInClone(&mut node, a, 0));
    }),
    case!("graph/dot/right", |line| {
        context();
        let (graph, path) = (graph(), file());
        let a = add_empty(graph, &[]);
        add_fill(graph, &[a], memory(4), 1);
        for flags in [0, 1, 1 << 14] {
            line.says_as(
                format!("flags_{flags}"),
                cuGraphDebugDotPrint(graph, path.as_ptr(), flags),
            );
            let text = read(&path);
            line.value("digraph", text.starts_with("digraph"));
            line.value("edges", text.matches("->").count() > 0);
        }
    }),
    case!("graph/dot/wrong", |line| {
        context();
        let (graph, path) = (graph(), file());
        line.says_as("path", cuGraphDebugDotPrint(graph, null(), 0));
        line.says_as(
            "folder",
            cuGraphDebugDotPrint(graph, c"/nowhere/at/all.dot".as_ptr(), 0),
        );
        line.says_as("empty_path", cuGraphDebugDotPrint(graph, c"".as_ptr(), 0));
        line.says_as("is_a_folder", cuGraphDebugDotPrint(graph, c"/".as_ptr(), 0));
        line.says_as("graph", cuGraphDebugDotPrint(0, path.as_ptr(), 0));
        for flags in [1 << 16, 1 << 20, u32::MAX] {
            line.says_as(
                format!("flags_{flags:#x}"),
                cuGraphDebugDotPrint(graph, path.as_ptr(), flags),
            );
        }
        read(&path);
    }),
];
