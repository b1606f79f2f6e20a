//! What each pass makes of graphs that are made for it.

use cuda_graph::{ChildOp, EmptyOp, Graph, Left, Node, Optimize, Pass, Report};

use super::optimized;
use crate::fixture::{add, context, store, stream, words};

fn graph() -> Graph {
    Graph::new(&context()).expect("there is memory")
}

fn report(graph: &Graph, optimize: impl Into<Optimize>) -> Report {
    optimized(graph, optimize)
        .report()
        .expect("passes ran")
        .clone()
}

#[test]
fn no_pass_means_no_report() {
    let stream = stream();
    let graph = graph();
    graph.add(store(&words(&stream, &[0]), 1), ()).unwrap();
    assert_eq!(graph.instantiate().unwrap().report(), None);
    let mut exec = optimized(&graph, Optimize::ALL);
    let report = exec.report().expect("passes ran");
    assert!(!report.has_changed(), "{report}");
    exec.launch(&stream).unwrap();
}

#[test]
fn edges_that_others_imply_go() {
    let stream = stream();
    let graph = graph();
    let cells = words(&stream, &[0]);
    let mut nodes: Vec<Node<_>> = Vec::new();
    for number in 0..200 {
        let before = &nodes[nodes.len().saturating_sub(8)..];
        nodes.push(graph.add(store(&cells, number), before).unwrap());
    }
    let report = report(&graph, Pass::Edges);
    assert_eq!(report.nodes, (200, 200));
    assert_eq!(report.edges, (graph.edges().unwrap().len(), 199));
    assert!(report.gain() > 0.0);
}

#[test]
fn edges_that_nothing_implies_stay() {
    let stream = stream();
    let graph = graph();
    let cells: Vec<_> = (0..6).map(|_| words(&stream, &[0])).collect();
    // Two lines that wait for each other crosswise.
    let mut ends = [None, None];
    for number in 0..20 {
        let next = [0, 1].map(|at| {
            let before = (ends[0], ends[1]);
            graph.add(store(&cells[at], number), before).unwrap()
        });
        ends = next.map(Some);
    }
    let report = report(&graph, Pass::Edges);
    assert_eq!(report.edges, (19 * 4, 19 * 4));
}

#[test]
fn a_long_way_round_implies_an_edge() {
    let stream = stream();
    let graph = graph();
    let cells = words(&stream, &[0]);
    let first = graph.add(store(&cells, 1), ()).unwrap();
    let mut last = first;
    for number in 0..1000 {
        last = graph.add(store(&cells, number), last).unwrap();
    }
    graph.add(store(&cells, 5), (first, last)).unwrap();
    let report = report(&graph, Pass::Edges);
    assert_eq!(report.edges, (1002, 1001));
}

#[test]
fn empty_nodes_that_pass_an_order_on_go() {
    let stream = stream();
    let graph = graph();
    let cells: Vec<_> = (0..9).map(|_| words(&stream, &[0])).collect();
    let first: Vec<_> = cells[..4]
        .iter()
        .map(|cell| graph.add(store(cell, 1), ()).unwrap())
        .collect();
    let start = graph.add(EmptyOp::new(), ()).unwrap();
    let join = graph.add(EmptyOp::new(), (&first, start)).unwrap();
    let joined = graph.add(store(&cells[4], 1), join).unwrap();
    graph.add(EmptyOp::new(), joined).unwrap();
    let report = report(&graph, Pass::Edges);
    assert_eq!(report.nodes, (8, 5));
    assert_eq!(report.edges, (7, 4));
}

#[test]
fn an_empty_node_between_many_stays() {
    let stream = stream();
    let graph = graph();
    let cells: Vec<_> = (0..8).map(|_| words(&stream, &[0])).collect();
    let first: Vec<_> = cells
        .iter()
        .map(|cell| graph.add(store(cell, 1), ()).unwrap())
        .collect();
    let join = graph.add(EmptyOp::new(), &first).unwrap();
    for cell in &cells {
        graph.add(store(cell, 2), join).unwrap();
    }
    assert!(!report(&graph, Pass::Edges).has_changed());
    // One of nothing else is a graph all the same.
    let graph = self::graph();
    graph.add(EmptyOp::new(), ()).unwrap();
    optimized(&graph, Optimize::ALL).launch(&stream).unwrap();
}

#[test]
fn embedded_graphs_are_inlined_in_embedded_graphs() {
    let stream = stream();
    let (cell, other) = (words(&stream, &[1]), words(&stream, &[2]));
    let add_to = |graph: &Graph, after: &dyn Fn() -> Vec<Node<cuda_graph::KernelOp>>| {
        graph.add(add(&cell, &other), after()).unwrap()
    };
    let inner = graph();
    add_to(&inner, &Vec::new);
    let middle = graph();
    let child = middle.add(ChildOp::new(&inner), ()).unwrap();
    middle.add(ChildOp::new(&inner), child).unwrap();
    let outer = graph();
    let first = add_to(&outer, &Vec::new);
    let child = outer.add(ChildOp::new(&middle), first).unwrap();
    outer.add(add(&other, &cell), child).unwrap();
    let mut exec = optimized(&outer, Pass::Inline);
    let report = exec.report().unwrap();
    assert_eq!(report.nodes, (2 + 1 + 2 + 2, 4), "{report}");
    assert_eq!(report.edges.1, 3);
    exec.launch(&stream).unwrap();
    assert_eq!(cell.to_host(&stream).unwrap(), [7]);
    assert_eq!(other.to_host(&stream).unwrap(), [9]);
}

#[test]
fn what_cannot_be_made_again_is_left() {
    let stream = stream();
    let graph = graph();
    let alloc = cuda_graph::AllocOp::new(cuda_graph::MemoryLocation::Device(0), 16);
    let alloc = graph.add(alloc, ()).unwrap();
    // SAFETY: nothing but the free uses it.
    let memory = unsafe { graph.allocation(alloc) }.unwrap();
    graph.add(cuda_graph::FreeOp::new(&memory), alloc).unwrap();
    let mut exec = optimized(&graph, Optimize::ALL);
    let report = exec.report().unwrap();
    let left: &Left = report.left.as_ref().expect("it is left");
    assert!(left.why.contains("allocates"), "{report}");
    exec.launch(&stream).unwrap();
}

#[test]
fn graphs_whose_handles_other_code_has_are_left() {
    let stream = stream();
    let graph = graph();
    let cell = words(&stream, &[1]);
    let node = graph.add(store(&cell, 1), ()).unwrap();
    graph.add(EmptyOp::new(), node).unwrap();
    assert!(report(&graph, Optimize::ALL).has_changed());
    graph.raw_node(node).unwrap();
    assert!(report(&graph, Optimize::ALL).left.is_some());
}

#[test]
fn a_report_says_what_was_done() {
    let stream = stream();
    let graph = graph();
    let cell = words(&stream, &[1]);
    let a = graph.add(store(&cell, 1), ()).unwrap();
    let b = graph.add(store(&cell, 2), a).unwrap();
    let c = graph.add(EmptyOp::new(), b).unwrap();
    graph.add(store(&cell, 3), (a, c)).unwrap();
    let text = report(&graph, Optimize::ALL).to_string();
    let wants = "\
nodes: 4 to 3, edges: 4 to 2
Inline: nothing
Edges: 1 empty nodes removed, 1 edges removed; 0.2 µs a launch expected
";
    assert!(
        text.starts_with(&wants[..60]) && text.contains("1 edges removed"),
        "{text}"
    );
}
