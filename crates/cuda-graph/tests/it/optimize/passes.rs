//! What each pass makes of graphs that are made for it.

use cuda_graph::{
    ChildOp, EmptyOp, FillOp, Graph, KernelOp, Left, Module, Node, Optimize, Pass, Recorder, Report,
};

use super::optimized;
use crate::fixture::{add, context, one, store, stream, words};

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
Order: nothing
Transfers: nothing
";
    assert!(text.starts_with(wants), "{text}");
}

/// How often a pass did something.
fn did(report: &Report, what: &str) -> usize {
    let did = report.passes.iter().flat_map(|pass| &pass.did);
    did.filter(|(did, _)| did.contains(what))
        .map(|(_, count)| count)
        .sum()
}

const COUNT: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry count(.param .u64 left, .param .u64 turns)
{
    .reg .b32 %v;
    .reg .b64 %p;
    ld.param.u64 %p, [turns];
    ld.global.u32 %v, [%p];
    add.u32 %v, %v, 1;
    st.global.u32 [%p], %v;
    ld.param.u64 %p, [left];
    ld.global.u32 %v, [%p];
    sub.u32 %v, %v, 1;
    st.global.u32 [%p], %v;
    ret;
}
";

#[test]
fn loops_are_repeated_under_a_guard_and_turn_as_often() {
    let stream = stream();
    let module = Module::load(&context(), COUNT).unwrap();
    let (left, turns) = (words(&stream, &[0]), words(&stream, &[0]));
    for is_while in [false, true] {
        let (graph, ()) = Graph::record(&context(), |r| {
            let body = |r: &mut dyn Recorder| {
                // SAFETY: the kernel reads and writes a word of each.
                let count =
                    unsafe { KernelOp::new(module.kernel("count")?, one(), (&left, &turns)) };
                r.record(count?).map(drop)
            };
            match is_while {
                true => r.while_nonzero(&left, body),
                false => r.do_while_nonzero(&left, body),
            }
        })
        .unwrap();
        let mut exec = optimized(&graph, Pass::Loops);
        let report = exec.report().unwrap().clone();
        assert_eq!(did(&report, "loops unrolled"), 1, "{report}");
        for wants in (1..40).chain([0].repeat(usize::from(is_while))) {
            left.copy_from_host(&stream, &[wants]).unwrap();
            turns.copy_from_host(&stream, &[0]).unwrap();
            exec.launch(&stream).unwrap();
            assert_eq!(turns.to_host(&stream).unwrap(), [wants]);
            assert_eq!(left.to_host(&stream).unwrap(), [0]);
        }
        // With programmatic edges in the body, too.
        drop(exec);
        let mut exec = optimized(&graph, Optimize::ALL);
        assert!(did(exec.report().unwrap(), "start early") > 7);
        left.copy_from_host(&stream, &[21]).unwrap();
        turns.copy_from_host(&stream, &[0]).unwrap();
        exec.launch(&stream).unwrap();
        assert_eq!(turns.to_host(&stream).unwrap(), [21]);
    }
}

#[test]
fn loops_whose_kernels_are_not_known_are_left() {
    let stream = stream();
    let (flag, cell) = (words(&stream, &[0]), words(&stream, &[0]));
    let (graph, ()) = Graph::record(&context(), |r| {
        r.do_while_nonzero(&flag, |r| r.record(store(&cell, 3)).map(drop))
    })
    .unwrap();
    let mut exec = optimized(&graph, Optimize::ALL);
    let text = exec.report().unwrap().to_string();
    assert!(text.contains("load it by `Module::load`"), "{text}");
    exec.launch(&stream).unwrap();
    assert_eq!(cell.to_host(&stream).unwrap(), [3]);
}

#[test]
fn kernels_in_a_line_start_early_and_are_disabled_all_the_same() {
    let stream = stream();
    let module = Module::load(&context(), COUNT).unwrap();
    let (left, turns) = (words(&stream, &[100]), words(&stream, &[0]));
    let graph = graph();
    let mut nodes: Vec<Node<KernelOp>> = Vec::new();
    for _ in 0..10 {
        // SAFETY: the kernel reads and writes a word of each.
        let count = unsafe {
            KernelOp::new(module.kernel("count").unwrap(), one(), (&left, &turns)).unwrap()
        };
        let before = nodes.last().copied();
        nodes.push(graph.add(count, before).unwrap());
    }
    let mut exec = optimized(&graph, Optimize::ALL);
    assert_eq!(did(exec.report().unwrap(), "start early"), 9);
    exec.launch(&stream).unwrap();
    assert_eq!(turns.to_host(&stream).unwrap(), [10]);
    exec.disable(nodes[4]).unwrap();
    let report = exec.report().unwrap();
    assert_eq!((report.fallbacks, did(report, "start early")), (1, 7));
    exec.launch(&stream).unwrap();
    assert_eq!(turns.to_host(&stream).unwrap(), [19]);
    // SAFETY: as above.
    let other =
        unsafe { KernelOp::new(module.kernel("count").unwrap(), one(), (&left, &left)).unwrap() };
    exec.update(nodes[2], other).unwrap();
    exec.enable(nodes[4]).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(turns.to_host(&stream).unwrap(), [28]);
    // A kernel whose PTX is not known breaks what the pass made.
    exec.update(nodes[3], store(&turns, 5)).unwrap();
    assert_eq!(exec.report().unwrap().fallbacks, 2);
    exec.launch(&stream).unwrap();
    assert_eq!(turns.to_host(&stream).unwrap(), [5 + 6]);
}

#[test]
fn fills_beside_each_other_are_one_kernel() {
    let stream = stream();
    let graph = graph();
    let cells: Vec<_> = (0..20).map(|_| words(&stream, &[7; 8])).collect();
    let nodes: Vec<Node<FillOp>> = cells
        .iter()
        .map(|cell| graph.add(FillOp::new(cell, 1u32).unwrap(), ()).unwrap())
        .collect();
    let mut exec = optimized(&graph, Pass::Transfers);
    assert_eq!(exec.report().unwrap().nodes, (20, 1));
    exec.disable(nodes[3]).unwrap();
    exec.update(nodes[4], FillOp::new(&cells[4], 9u32).unwrap())
        .unwrap();
    exec.launch(&stream).unwrap();
    let got: Vec<_> = cells
        .iter()
        .map(|cell| cell.to_host(&stream).unwrap()[5])
        .collect();
    let mut wants = [1; 20];
    (wants[3], wants[4]) = (7, 9);
    assert_eq!(got, wants);
    assert!(!exec.is_enabled(nodes[3]).unwrap());
    exec.enable(nodes[3]).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(cells[3].to_host(&stream).unwrap(), [1; 8]);
}

/// On an H200 the order through a disabled memset node is not kept.
#[test]
fn no_order_leads_through_a_disabled_fill_alone() {
    let stream = stream();
    let graph = graph();
    let (cell, other) = (words(&stream, &[1]), words(&stream, &[2]));
    let first = graph.add(store(&cell, 1), ()).unwrap();
    let fill = FillOp::new(&other, 7u32).unwrap();
    let fill = graph.add(fill, first).unwrap();
    graph.add(add(&other, &cell), (first, fill)).unwrap();
    let mut exec = optimized(&graph, Pass::Edges);
    assert_eq!(exec.report().unwrap().edges, (3, 2));
    exec.disable(fill).unwrap();
    assert!(!exec.is_enabled(fill).unwrap());
    assert_eq!(exec.report().unwrap().edges, (3, 3));
    exec.launch(&stream).unwrap();
    assert_eq!(other.to_host(&stream).unwrap(), [3]);
    exec.enable(fill).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(other.to_host(&stream).unwrap(), [8]);
}
