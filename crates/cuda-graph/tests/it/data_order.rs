//! Order by data: what is added after its data gives what one operation after the other gives, and
//! waits for nothing else.
//!
//! `CUDA_GRAPH_RANDOM=n` runs n times as many.

use std::collections::HashSet;
use std::ops::Range;

use cuda_graph::testing::conflicts;
use cuda_graph::{
    AnyOp, Buffer, ChildOp, CopyOp, Edge, EdgeData, EmptyOp, FillOp, Graph, HostOp, KernelOp,
    NodeId, Param,
};
use proptest::prelude::*;

use crate::fixture::{add, context, kernel, one, store, stream, words};
use crate::random::cases;

const WORDS: usize = 12;

/// What a node does to the words of a buffer.
#[derive(Clone, Debug)]
enum Act {
    Fill(Range<usize>, u32),
    /// To the first, from the second: as many words as both ranges have.
    Copy(Range<usize>, usize),
    /// Adds a word to another, which is declared.
    Add(usize, usize),
    /// Stores a word, which is not declared.
    Store(usize, u32),
    /// Nothing, after all before or after none.
    Host(bool),
    Empty,
}

fn act() -> impl Strategy<Value = Act> {
    let range = || (0..WORDS, 1usize..4).prop_map(|(at, len)| at..(at + len).min(WORDS));
    prop_oneof![
        4 => (range(), 1u32..100).prop_map(|(range, value)| Act::Fill(range, value)),
        4 => (range(), 0..WORDS).prop_map(|(to, from)| Act::Copy(to, from)),
        6 => (0..WORDS, 0..WORDS).prop_map(|(to, from)| Act::Add(to, from)),
        1 => (0..WORDS, 1u32..100).prop_map(|(to, value)| Act::Store(to, value)),
        1 => any::<bool>().prop_map(Act::Host),
        1 => Just(Act::Empty),
    ]
}

impl Act {
    fn op(&self, buffer: &Buffer<u32>) -> AnyOp {
        let part = |range: Range<usize>| buffer.slice(range).unwrap();
        let word = |at: usize| part(at..at + 1);
        match self.clone() {
            Act::Fill(range, value) => FillOp::new(&part(range), value).unwrap().into(),
            Act::Copy(to, from) => {
                let count = to.len().min(WORDS - from).min(to.start.abs_diff(from));
                let from = part(from..from + count.max(1));
                // The driver takes no copy of nothing.
                let to = part(to.start..to.start + count.max(1));
                CopyOp::new(&to, &from).unwrap().into()
            }
            Act::Add(to, from) => {
                let (to, from) = (word(to), word(from));
                add(&to, &from).reads(&from).writes(&to).into()
            }
            Act::Store(to, value) => store(&word(to), value).into(),
            Act::Host(true) => HostOp::new(|| ()).into(),
            Act::Host(false) => HostOp::new(|| ()).reads(buffer.slice(..0).unwrap()).into(),
            Act::Empty => EmptyOp::new().into(),
        }
    }
}

/// The nodes that are before each node, by number: `edges` lead up.
fn before(count: usize, edges: &[(usize, usize)]) -> Vec<HashSet<usize>> {
    let mut before = vec![HashSet::new(); count];
    for node in 0..count {
        for (from, _) in edges.iter().filter(|(_, to)| *to == node) {
            let further = before[*from].clone();
            before[node].insert(*from);
            before[node].extend(further);
        }
    }
    before
}

fn edges(graph: &Graph) -> Vec<(usize, usize)> {
    let edges = graph.edges().unwrap();
    let numbers = |edge: &Edge| (edge.from.index() as usize, edge.to.index() as usize);
    edges.iter().map(numbers).collect()
}

/// The edges that operations one after the other should have.
fn wanted(ops: &[AnyOp]) -> Vec<(usize, usize)> {
    let pairs = (0..ops.len()).flat_map(|to| (0..to).map(move |from| (from, to)));
    pairs
        .filter(|&(from, to)| conflicts(&ops[from], &ops[to]))
        .collect()
}

proptest! {
    #![proptest_config(cases(150))]

    /// Nodes have a way between them exactly if conflicts lead from one to the other, no edge could
    /// be left out, and the bytes are those of one node after the other.
    #[test]
    fn it_is_the_order_of_the_program(acts in prop::collection::vec(act(), 1..40)) {
        let stream = stream();
        let initial: Vec<u32> = (0..WORDS as u32).collect();
        let [free, lined] = [0, 1].map(|_| words(&stream, &initial));
        let graphs = [0, 1].map(|_| Graph::new(&context()).unwrap());
        let (mut ops, mut last) = (Vec::new(), None);
        for act in &acts {
            let op = act.op(&free);
            graphs[0].add_after_data(op.clone()).unwrap();
            ops.push(op);
            last = Some(graphs[1].add(act.op(&lined), last).unwrap());
        }
        let made = edges(&graphs[0]);
        let ways = before(ops.len(), &made);
        prop_assert_eq!(&ways, &before(ops.len(), &wanted(&ops)));
        for &(from, to) in &made {
            let others = made.iter().filter(|edge| **edge != (from, to) && edge.1 == to);
            let spare = others.map(|edge| &ways[edge.0]).any(|ways| ways.contains(&from));
            prop_assert!(!spare, "{from} to {to} of {made:?}");
        }
        for graph in &graphs {
            graph.instantiate().unwrap().launch(&stream).unwrap();
        }
        prop_assert_eq!(free.to_host(&stream).unwrap(), lined.to_host(&stream).unwrap());
    }

    /// Whatever is done to a graph by other means, a node is after all that it conflicts with.
    #[test]
    fn other_edits_are_seen(
        acts in prop::collection::vec((act(), 0..10usize, any::<prop::sample::Index>()), 1..40),
    ) {
        let buffer = words(&stream(), &[0; WORDS]);
        let graph = Graph::new(&context()).unwrap();
        let mut there: Vec<(NodeId, AnyOp)> = Vec::new();
        for (act, edit, index) in &acts {
            let op = act.op(&buffer);
            let index = (!there.is_empty()).then(|| index.index(there.len()));
            match (edit, index) {
                (0, Some(index)) => graph.destroy(there.swap_remove(index).0).unwrap(),
                (1, Some(index)) => {
                    let node = there[index].0;
                    graph.predecessors(node).set(()).unwrap();
                }
                (2, Some(index)) => {
                    // An edge down, unless there is a way up.
                    let (one, other) = (there[index].0, there[0].0);
                    let _ = graph.add_edge(one, other);
                }
                (3, Some(index)) if matches!(there[index].1, AnyOp::Fill(_)) => {
                    let other = Act::Fill(0..WORDS, 1).op(&buffer);
                    let node = there[index].0.typed::<AnyOp>().unwrap();
                    graph.update(node, other.clone()).unwrap();
                    there[index].1 = other;
                }
                (4 | 5, index) => {
                    let after: Option<NodeId> = index.map(|index| there[index].0);
                    there.push((graph.add(op, after).unwrap().id(), act.op(&buffer)));
                    continue;
                }
                _ => {}
            }
            let node = graph.add_after_data(op.clone()).unwrap().id();
            let ways = all_before(&graph, node);
            for (other, does) in &there {
                let conflict = conflicts(does, &op);
                prop_assert!(!conflict || ways.contains(other), "{other:?} and {node:?}");
            }
            there.push((node, op));
        }
    }
}

fn all_before(graph: &Graph, node: NodeId) -> HashSet<NodeId> {
    let edges = graph.edges().unwrap();
    let (mut found, mut next) = (HashSet::new(), vec![node]);
    while let Some(node) = next.pop() {
        for edge in edges.iter().filter(|edge| edge.to == node) {
            if found.insert(edge.from) {
                next.push(edge.from);
            }
        }
    }
    found
}

/// A node waits for the start alone of what it has another kind of edge from.
#[test]
fn an_edge_that_does_not_wait_for_the_end_gives_no_order() {
    let buffer = words(&stream(), &[0]);
    let graph = Graph::new(&context()).unwrap();
    let first = graph.add(store(&buffer, 1).writes(&buffer), ()).unwrap();
    let second = graph.add(store(&buffer, 2).writes(&buffer), ()).unwrap();
    let data = EdgeData::programmatic();
    let (from, to) = (first.id(), second.id());
    graph.add_edges([Edge { from, to, data }]).unwrap();
    let third = graph
        .add_after_data(FillOp::new(&buffer, 3).unwrap())
        .unwrap();
    assert_eq!(graph.predecessors(third).list().unwrap(), [from, to]);
}

/// What is declared of a launch does not count where it cannot be known.
#[test]
fn some_operations_may_touch_everything() {
    let (one_word, other) = (words(&stream(), &[0]), words(&stream(), &[0]));
    let fill = AnyOp::from(FillOp::new(&other, 1).unwrap());
    let declared = AnyOp::from(store(&one_word, 1).writes(&one_word));
    assert!(!conflicts(&declared, &fill) && !conflicts(&fill, &declared));
    assert!(conflicts(&store(&one_word, 1).into(), &fill));
    assert!(conflicts(
        &HostOp::new(|| ()).into(),
        &EmptyOp::new().into()
    ));

    // SAFETY: `store` writes one word, which each value has.
    let store_to = |to: &Param<Buffer<u32>>, value: &Param<u32>| unsafe {
        KernelOp::new(kernel("store"), one(), (to, value)).unwrap()
    };
    let to = Param::with_value("to", one_word.clone());
    let value = Param::with_value("value", 1u32);
    assert!(conflicts(
        &store_to(&to, &value).writes(&one_word).into(),
        &fill
    ));
    // SAFETY: as above.
    let by_number = unsafe { KernelOp::new(kernel("store"), one(), (&one_word, &value)).unwrap() };
    assert!(!conflicts(&by_number.writes(&one_word).into(), &fill));

    let graph = Graph::new(&context()).unwrap();
    let first = graph.add_after_data(fill.clone()).unwrap();
    let child = Graph::new(&context()).unwrap();
    child.add(EmptyOp::new(), ()).unwrap();
    let child = graph.add_after_data(ChildOp::new(&child)).unwrap();
    assert_eq!(graph.predecessors(child).list().unwrap(), [first.id()]);
    let last = graph.add_after_data(declared).unwrap();
    assert_eq!(graph.predecessors(last).list().unwrap(), [child.id()]);
    // A launch made again, as replays do, is told from one that declares something else.
    assert_eq!(graph.op(last).unwrap().kind(), cuda_graph::NodeKind::Kernel);
}

/// Many nodes in many lanes: each has one edge, to the node before in its lane.
#[test]
fn thousands_of_nodes_have_few_edges() {
    const LANES: usize = 64;
    let buffer = words(&stream(), &[0; LANES]);
    let graph = Graph::new(&context()).unwrap();
    for node in 0..4096 {
        let lane = node % LANES;
        let fill = FillOp::new(&buffer.slice(lane..lane + 1).unwrap(), 1).unwrap();
        graph.add_after_data(fill).unwrap();
    }
    let mut made = edges(&graph);
    made.sort_unstable();
    let wanted: Vec<_> = (0..4096 - LANES).map(|node| (node, node + LANES)).collect();
    assert_eq!(made, wanted);
}
