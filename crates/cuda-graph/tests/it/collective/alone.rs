//! Collectives of one kind of recorder each: streams, graphs, updates, what is read back.

use std::thread;

use cuda_graph::{
    AnyOp, Buffer, ChildOp, CollectiveKind, CollectiveOp, Eager, ElementType, Error, Exec, FillOp,
    Graph, Node, Reduction,
};

use super::{Rank, ranks, run};
use crate::fixture::Watch;

fn sum(rank: &Rank, memory: &Buffer<u32>) -> CollectiveOp {
    CollectiveOp::all_reduce(&rank.communicator, memory, memory, Reduction::Sum)
        .expect("it can be made")
}

#[test]
fn eager_runs_it() {
    let ranks = ranks(3);
    thread::scope(|scope| {
        for rank in &ranks {
            scope.spawn(move || {
                let memory = Buffer::from_host(&rank.stream, &[rank.number() + 1; 5]);
                let memory = memory.expect("memory");
                let mut eager = Eager::new(&rank.stream).expect("it can be made");
                for _ in 0..3 {
                    eager.record(sum(rank, &memory)).expect("it runs");
                }
                rank.communicator.wait(&rank.stream).expect("all get on");
                let all = memory.to_host(&rank.stream).expect("it can be read");
                assert_eq!(all, [6 * 3 * 3; 5]);
            });
        }
    });
}

#[test]
fn an_executable_takes_other_memory_counts_and_reductions() {
    let ranks = ranks(2);
    let mut execs: Vec<Exec> = Vec::new();
    let mut nodes: Vec<Node<CollectiveOp>> = Vec::new();
    let mut memory = Vec::new();
    for rank in &ranks {
        let own = Buffer::from_host(&rank.stream, &[rank.number() + 2; 5000]).expect("memory");
        let graph = Graph::new(rank.context()).expect("a graph");
        nodes.push(graph.add(sum(rank, &own), ()).expect("a node"));
        execs.push(graph.instantiate().expect("an executable"));
        memory.push(own);
    }
    run(&ranks, &mut execs);
    let mut others = Vec::new();
    for ((rank, exec), node) in ranks.iter().zip(&mut execs).zip(&nodes) {
        let other = Buffer::from_host(&rank.stream, &[rank.number() + 4; 3]).expect("memory");
        let op = CollectiveOp::all_reduce(&rank.communicator, &other, &other, Reduction::Product);
        exec.update(*node, op.expect("it can be made"))
            .expect("it can be updated");
        let now = exec.op(*node).expect("it is known");
        assert_eq!(now.reduction(), Some(Reduction::Product));
        assert_eq!(now.to().next().expect("one").bytes(), 12);
        others.push(other);
    }
    run(&ranks, &mut execs);
    for (number, rank) in ranks.iter().enumerate() {
        let before = memory[number]
            .to_host(&rank.stream)
            .expect("it can be read");
        assert_eq!(before, [5; 5000], "what it did before is left alone");
        assert_eq!(
            others[number]
                .to_host(&rank.stream)
                .expect("it can be read"),
            [20; 3]
        );
    }
}

#[test]
fn what_is_read_back() {
    let ranks = ranks(2);
    let rank = &ranks[1];
    let memory = Buffer::<f64>::zeroed(&rank.stream, 12).expect("memory");
    let op = CollectiveOp::reduce(&rank.communicator, &memory, &memory, Reduction::Max, 1);
    let op = op.expect("it can be made");
    let text = "Reduce of 12 f64 by max to rank 1, rank 1 of 2";
    assert_eq!(op.label_text(), Some(text));
    let graph = Graph::new(rank.context()).expect("a graph");
    let node = graph.add(op, ()).expect("a node");
    let back = graph.op(node).expect("it is known");
    assert_eq!(back.collective(), CollectiveKind::Reduce);
    assert_eq!(
        (back.root(), back.element()),
        (Some(1), Some(ElementType::F64))
    );
    assert!(back.communicator().is_of_same(&ranks[0].communicator));
    assert!(matches!(graph.any_op(node), Ok(AnyOp::Collective(_))));
    assert!(
        graph.name(node).to_string().contains(text),
        "{}",
        graph.name(node)
    );
    assert!(
        back.location()
            .is_some_and(|at| at.file().ends_with("alone.rs"))
    );
    let named = back.label("the norm");
    assert_eq!(named.label_text(), Some("the norm"));
}

#[test]
fn memory_and_communicator_live_as_long_as_a_launch() {
    let ranks = ranks(2);
    let (watch, watched) = Watch::new();
    let rank = &ranks[0];
    let memory = Buffer::<u32>::zeroed(&rank.stream, 4).expect("memory");
    rank.stream.synchronize().expect("it is there");
    let slice = rank.stream.clone_htod(&[1u32; 4]).expect("memory");
    let owner = std::sync::Arc::new((slice, watched));
    // SAFETY: the owner holds the slice, which nobody replaces.
    let lent = unsafe { Buffer::lent(&owner.0, owner.clone()) };
    drop(owner);
    let op = CollectiveOp::all_reduce(&rank.communicator, &memory, &lent, Reduction::Sum);
    let mut exec = rank.exec([op.expect("it can be made")]);
    drop(lent);
    exec.launch(&rank.stream).expect("it can be launched");
    drop(exec);
    // The other rank has not come, so the launch goes on.
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!watch.is_dropped(), "the launch uses the memory");

    let other = Buffer::<u32>::zeroed(&ranks[1].stream, 4).expect("memory");
    let mut last = ranks[1].exec([sum(&ranks[1], &other)]);
    last.launch(&ranks[1].stream).expect("it can be launched");
    let stream = rank.stream.clone();
    let communicator = rank.communicator.clone();
    drop(ranks);
    communicator.wait(&stream).expect("all get on");
    assert_eq!(memory.to_host(&stream).expect("it can be read"), [1; 4]);
    crate::fixture::assert_soon(|| watch.is_dropped(), "nothing uses the memory any more");
}

#[test]
fn misuse_is_told() {
    let ranks = ranks(2);
    let rank = &ranks[0];
    let communicator = &rank.communicator;
    let a = Buffer::<u32>::zeroed(&rank.stream, 8).expect("memory");
    let part = |range| a.slice(range).expect("a part");
    let by = Reduction::Sum;
    let text = |op: cuda_graph::Result<CollectiveOp>| op.expect_err("misuse").to_string();

    let short = CollectiveOp::all_reduce(communicator, &part(0..4), &part(4..7), by);
    assert!(matches!(
        short,
        Err(Error::SizeMismatch {
            wants: 12,
            got: 16,
            ..
        })
    ));
    let short = CollectiveOp::all_gather(communicator, &part(0..4), &part(4..7));
    assert!(matches!(
        short,
        Err(Error::SizeMismatch {
            wants: 24,
            got: 16,
            ..
        })
    ));
    let root = CollectiveOp::broadcast(communicator, &a, &a, 2);
    assert_eq!(
        text(root),
        "the root is rank 2, and the communicator has 2 ranks, counted from 0"
    );
    let overlap = CollectiveOp::all_reduce(communicator, &part(0..4), &part(2..6), by);
    assert!(matches!(overlap, Err(Error::Overlap { .. })));
    // In place, but of another rank's part.
    let overlap = CollectiveOp::all_gather(communicator, &a, &part(4..8));
    assert!(matches!(overlap, Err(Error::Overlap { .. })));
    CollectiveOp::all_gather(communicator, &a, &part(0..4)).expect("its own part");
    let peer = CollectiveOp::send(communicator, &a, 7);
    assert!(matches!(
        peer,
        Err(Error::NoRank {
            rank: 7,
            size: 2,
            ..
        })
    ));

    // A node stays with its communicator, and other nodes do not come to one.
    let graph = Graph::new(rank.context()).expect("a graph");
    let node = graph.add(AnyOp::from(sum(rank, &a)), ()).expect("a node");
    let mut exec = graph.instantiate().expect("an executable");
    let others = super::ranks(1);
    let foreign = AnyOp::from(sum(&others[0], &a));
    let fill = AnyOp::from(FillOp::by_kernel(&a, 1).expect("a fill"));
    for op in [foreign, fill] {
        let refused = exec.update(node, op.clone());
        assert!(
            matches!(refused, Err(Error::CommunicatorFixed { .. })),
            "{refused:?}"
        );
        let refused = graph.update(node, op);
        assert!(
            matches!(refused, Err(Error::CommunicatorFixed { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn an_embedded_graph_stays_with_its_communicators() {
    let (ranks, others) = (ranks(1), super::ranks(1));
    let own = Buffer::<u32>::zeroed(&ranks[0].stream, 4).expect("memory");
    let graph_of = |rank: &Rank| {
        let graph = Graph::new(rank.context()).expect("a graph");
        graph.add(sum(rank, &own), ()).expect("a node");
        graph
    };
    let graph = Graph::new(ranks[0].context()).expect("a graph");
    let node = graph
        .add(ChildOp::new(&graph_of(&ranks[0])), ())
        .expect("a node");
    let mut exec = graph.instantiate().expect("an executable");
    exec.update(node, ChildOp::new(&graph_of(&ranks[0])))
        .expect("the same communicator");
    let refused = exec.update(node, ChildOp::new(&graph_of(&others[0])));
    assert!(
        matches!(refused, Err(Error::CommunicatorFixed { .. })),
        "{refused:?}"
    );
}
