//! Collectives of a communicator run in the order in which they were recorded.

use cuda_graph::{
    Buffer, ChildOp, CollectiveOp, EmptyOp, Error, Graph, InstantiateOptions, Node, NodeId, Path,
    Reduction, Result,
};

use super::{Rank, ranks, run};

fn sum(rank: &Rank, memory: &Buffer<u32>) -> CollectiveOp {
    let rank = &rank.communicator;
    CollectiveOp::all_reduce(rank, memory, memory, Reduction::Sum).expect("it can be made")
}

fn memory(rank: &Rank) -> Buffer<u32> {
    Buffer::from_host(&rank.stream, &[rank.number() + 1]).expect("memory")
}

fn waits_for(graph: &Graph, node: impl Into<NodeId>, for_it: impl Into<NodeId>) -> bool {
    let before = graph.predecessors(node).list().expect("it is there");
    before.contains(&for_it.into())
}

#[test]
fn branches_are_chained() {
    let ranks = ranks(2);
    let mut execs = Vec::new();
    let mut all = Vec::new();
    for rank in &ranks {
        let (a, b, c) = (memory(rank), memory(rank), memory(rank));
        let mut nodes: Vec<Node<CollectiveOp>> = Vec::new();
        let (graph, ()) = Graph::record(rank.context(), |path| {
            path.parallel(&mut [
                &mut |r| r.record(sum(rank, &a)).map(drop),
                // A branch of its own communicator's own order, with a loop around.
                &mut |r| r.if_nonzero(&c, |r| r.record(sum(rank, &b)).map(drop)),
                &mut |r| r.record(sum(rank, &c)).map(drop),
            ])
        })
        .expect("it can be recorded");
        for node in graph.nodes().expect("they are known") {
            if let Ok(cuda_graph::AnyOp::Collective(_)) = graph.any_op(node) {
                nodes.push(node.typed().expect("it is one"));
            }
        }
        assert_eq!(nodes.len(), 2);
        execs.push(graph.instantiate().expect("it is in one line"));
        all.push([a, b, c]);
    }
    run(&ranks, &mut execs);
    for (rank, all) in ranks.iter().zip(&all) {
        for memory in all {
            assert_eq!(memory.to_host(&rank.stream).expect("it can be read"), [3]);
        }
    }
}

#[test]
fn a_path_adds_no_edge_where_none_is_missing() {
    let ranks = ranks(1);
    let rank = &ranks[0];
    let own = memory(rank);
    let graph = Graph::new(rank.context()).expect("a graph");
    let mut path = Path::new(&graph);
    let first = path.record(sum(rank, &own)).expect("a node");
    let between = path.record(EmptyOp::new()).expect("a node");
    let second = path.record(sum(rank, &own)).expect("a node");
    assert_eq!(
        graph.predecessors(second).list().expect("known"),
        [between.id()]
    );
    // Another path through the same graph waits for the last one.
    let mut other = Path::new(&graph);
    let third = other.record(sum(rank, &own)).expect("a node");
    assert_eq!(
        graph.predecessors(third).list().expect("known"),
        [second.id()]
    );
    let start = graph.add(EmptyOp::new(), ()).expect("a node");
    graph
        .record_into(start, |path| {
            let fourth = path.record(sum(rank, &own))?;
            let fifth = path.record(sum(rank, &own))?;
            Ok((fourth, fifth))
        })
        .map(|(fourth, fifth)| {
            assert!(waits_for(&graph, fourth, start) && waits_for(&graph, fourth, third));
            assert_eq!(
                graph.predecessors(fifth).list().expect("known"),
                [fourth.id()]
            );
        })
        .expect("it can be recorded");
    assert!(waits_for(&graph, between, first));
    graph.instantiate().expect("it is in one line");
}

#[test]
fn embedded_graphs_are_in_the_line() {
    let ranks = ranks(1);
    let rank = &ranks[0];
    let own = memory(rank);
    let (inner, ()) = Graph::record(rank.context(), |path| {
        path.record(sum(rank, &own)).map(drop)
    })
    .expect("it can be recorded");
    let recorded: Result<_> = Graph::record(rank.context(), |path| {
        let mut nodes = Vec::new();
        path.parallel(&mut [
            &mut |r| r.record(ChildOp::new(&inner)).map(drop),
            &mut |r| r.record(sum(rank, &own)).map(drop),
            &mut |r| r.record(ChildOp::new(&inner)).map(drop),
        ])?;
        nodes.extend(path.ends()?);
        Ok(nodes)
    });
    let (graph, _) = recorded.expect("it can be recorded");
    assert_eq!(
        graph.edges().expect("they are known").len(),
        2,
        "one behind the other"
    );
    let mut exec = graph.instantiate().expect("it is in one line");
    exec.launch(&rank.stream).expect("it can be launched");
    rank.communicator.wait(&rank.stream).expect("it is over");
}

#[test]
fn a_graph_where_two_could_run_at_once_is_refused() {
    let (ranks, others) = (ranks(1), super::ranks(1));
    let rank = &ranks[0];
    let own = memory(rank);
    let graph = Graph::new(rank.context()).expect("a graph");
    let start = graph.add(EmptyOp::new(), ()).expect("a node");
    let first = graph
        .add(sum(rank, &own).label("first"), start)
        .expect("a node");
    // Another communicator's may run beside it.
    graph.add(sum(&others[0], &own), start).expect("a node");
    graph.instantiate().expect("one of each");
    let (inner, ()) = Graph::record(rank.context(), |path| {
        path.record(sum(rank, &own)).map(drop)
    })
    .expect("it can be recorded");
    let second = graph
        .add(ChildOp::new(&inner).label("second"), start)
        .expect("a node");
    let options = InstantiateOptions {
        loops_at_once: true,
        ..Default::default()
    };
    for refused in [graph.instantiate(), graph.instantiate_with(&options)] {
        let Err(Error::CollectivesAtOnce { first, second }) = &refused else {
            panic!("two could run at once: {refused:?}");
        };
        let mut labels = [first, second].map(|name| name.label.as_deref().unwrap_or(""));
        labels.sort_unstable();
        assert_eq!(labels, ["first", "second"]);
    }
    graph.add_edge(second, first).expect("an edge");
    graph.instantiate().expect("it is in one line");
}
