//! Updates of executables that passes made.

use cuda_graph::testing::settle;
use cuda_graph::{
    AnyOp, Buffer, ChildOp, EmptyOp, Error, Graph, InstantiateOptions, KernelOp, Node, Optimize,
    Owner, Replay, ReplayOptions, Updated,
};

use super::optimized;
use crate::fixture::{Watch, add, assert_soon, context, store, stream, words};

/// A line with an edge too many, and an empty node.
struct Line {
    graph: Graph,
    nodes: [Node<KernelOp>; 3],
    empty: Node<EmptyOp>,
}

fn line(cells: &[Buffer<u32>; 3]) -> Line {
    let graph = Graph::new(&context()).expect("there is memory");
    let first = graph.add(store(&cells[0], 1), ()).unwrap();
    let second = graph.add(add(&cells[1], &cells[0]), first).unwrap();
    let empty = graph.add(EmptyOp::new(), (first, second)).unwrap();
    let third = graph
        .add(add(&cells[2], &cells[1]), (first, empty))
        .unwrap();
    Line {
        graph,
        nodes: [first, second, third],
        empty,
    }
}

fn cells() -> [Buffer<u32>; 3] {
    let stream = stream();
    [10, 20, 30].map(|word| words(&stream, &[word]))
}

#[test]
fn a_node_is_updated_by_its_own_handle() {
    let (stream, cells) = (stream(), cells());
    let Line {
        graph,
        nodes,
        empty,
    } = line(&cells);
    let mut exec = optimized(&graph, Optimize::ALL);
    exec.launch(&stream).unwrap();
    assert_eq!(cells[2].to_host(&stream).unwrap(), [30 + 21]);
    exec.update(nodes[0], store(&cells[0], 5)).unwrap();
    exec.update(empty, EmptyOp::new()).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(cells[2].to_host(&stream).unwrap(), [51 + 26]);
    let now = format!("{:?}", exec.op(nodes[0]).unwrap().arguments());
    assert_eq!(now, format!("{:?}", store(&cells[0], 5).arguments()));
    // The definition may go, and errors are the same as without passes.
    let other = line(&cells);
    let foreign = exec
        .update(other.nodes[0], store(&cells[0], 5))
        .unwrap_err();
    assert!(matches!(foreign, Error::ForeignNode { .. }), "{foreign}");
    drop(graph);
    exec.update(nodes[0], store(&cells[0], 6)).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(cells[2].to_host(&stream).unwrap(), [77 + 32]);
}

#[test]
fn nodes_are_disabled_and_enabled() {
    let (stream, cells) = (stream(), cells());
    let Line {
        graph,
        nodes,
        empty,
    } = line(&cells);
    let mut exec = optimized(&graph, Optimize::ALL);
    exec.disable(nodes[1]).unwrap();
    assert!(!exec.is_enabled(nodes[1]).unwrap() && exec.is_enabled(nodes[0]).unwrap());
    exec.launch(&stream).unwrap();
    assert_eq!(cells[2].to_host(&stream).unwrap(), [50]);
    exec.enable(nodes[1]).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(cells[2].to_host(&stream).unwrap(), [71]);
    let mut plain = graph.instantiate().unwrap();
    let answers = [&mut exec, &mut plain].map(|exec| exec.disable(empty).unwrap_err().to_string());
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn a_whole_update_goes_by_the_passes_too() {
    let (stream, cells) = (stream(), cells());
    let Line { graph, nodes, .. } = line(&cells);
    let mut exec = optimized(&graph, Optimize::ALL);
    graph.update(nodes[0], store(&cells[0], 7)).unwrap();
    exec.update_in_place(&graph).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(cells[1].to_host(&stream).unwrap(), [27]);
    // From another graph of the same shape, and nodes are still updated by the first one's handles.
    let others = self::cells();
    let other = line(&others);
    assert_eq!(exec.update_from(&other.graph).unwrap(), Updated::InPlace);
    drop(other.graph);
    exec.launch(&stream).unwrap();
    assert_eq!(others[1].to_host(&stream).unwrap(), [21]);
    exec.update(nodes[0], store(&others[0], 9)).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(others[1].to_host(&stream).unwrap(), [30]);
    // Of another shape.
    let longer = line(&others);
    longer.graph.add(store(&others[0], 1), ()).unwrap();
    let refused = exec.update_in_place(&longer.graph).unwrap_err();
    assert!(matches!(refused, Error::Update { .. }), "{refused}");
    let updated = exec.update_from(&longer.graph).unwrap();
    assert!(
        matches!(updated, Updated::Instantiated { .. }),
        "{updated:?}"
    );
    assert!(exec.report().unwrap().has_changed());
}

#[test]
fn an_embedded_graph_that_was_inlined_is_updated() {
    let (stream, cells) = (stream(), cells());
    let inner = |value| {
        let graph = Graph::new(&context()).unwrap();
        let node = graph.add(store(&cells[0], value), ()).unwrap();
        (graph, node)
    };
    let graph = Graph::new(&context()).unwrap();
    let child = graph.add(ChildOp::new(&inner(3).0), ()).unwrap();
    graph.add(add(&cells[1], &cells[0]), child).unwrap();
    let inside = graph.child(child).unwrap().nodes().unwrap()[0];
    let mut exec = optimized(&graph, Optimize::ALL);
    exec.launch(&stream).unwrap();
    assert_eq!(cells[1].to_host(&stream).unwrap(), [23]);
    exec.update(inside.typed::<KernelOp>().unwrap(), store(&cells[0], 4))
        .unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(cells[1].to_host(&stream).unwrap(), [27]);
    exec.update(child, ChildOp::new(&inner(5).0)).unwrap();
    assert_eq!(exec.report().unwrap().fallbacks, 1);
    exec.launch(&stream).unwrap();
    assert_eq!(cells[1].to_host(&stream).unwrap(), [32]);
    exec.update(
        inside.typed::<AnyOp>().unwrap(),
        AnyOp::from(store(&cells[0], 6)),
    )
    .unwrap();
    exec.update(child, ChildOp::new(&inner(7).0)).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(cells[1].to_host(&stream).unwrap(), [39]);
    assert_eq!(exec.report().unwrap().fallbacks, 1);
}

#[test]
fn what_is_replaced_is_let_go() {
    let (stream, cells) = (stream(), cells());
    let Line { graph, nodes, .. } = line(&cells);
    let held = |value| {
        let (watched, watch) = Watch::new();
        let mut arguments = cuda_graph::Arguments::default();
        cuda_graph::KernelArgument::add_to(&cells[0], &mut arguments);
        arguments.value(&value);
        arguments.keep(std::sync::Arc::new(watch) as Owner);
        // SAFETY: `store` writes a word.
        let op = unsafe {
            KernelOp::new(
                crate::fixture::kernel("store"),
                crate::fixture::one(),
                arguments,
            )
        };
        (op.unwrap(), watched)
    };
    let (op, first) = held(1u32);
    graph.update(nodes[0], op).unwrap();
    let mut exec = optimized(&graph, Optimize::ALL);
    drop(graph);
    exec.launch(&stream).unwrap();
    assert!(!first.is_dropped());
    let (op, second) = held(2u32);
    exec.update(nodes[0], op).unwrap();
    stream.synchronize().unwrap();
    settle();
    assert_soon(|| first.is_dropped(), "what was replaced is held");
    exec.launch(&stream).unwrap();
    assert_eq!(cells[1].to_host(&stream).unwrap(), [23]);
    assert!(!second.is_dropped());
    drop(exec);
    settle();
    assert_soon(|| second.is_dropped(), "what the executable had is held");
}

#[test]
fn a_replay_takes_passes() {
    let (stream, cells) = (stream(), cells());
    let options = ReplayOptions {
        instantiate: InstantiateOptions {
            optimize: Optimize::ALL,
            ..InstantiateOptions::default()
        },
        ..ReplayOptions::default()
    };
    let mut replay = Replay::with_options(&context(), options).unwrap();
    let value = cuda_graph::Param::with_value("value", 0u32);
    let mut sum = 20;
    for number in 1..20u32 {
        value.set(number);
        replay
            .call(&stream, |r| {
                // SAFETY: `store` writes a word.
                let op = unsafe {
                    let kernel = crate::fixture::kernel("store");
                    KernelOp::new(kernel, crate::fixture::one(), (&cells[0], &value))
                };
                r.record(op?)?;
                r.record(EmptyOp::new())?;
                r.record(add(&cells[1], &cells[0]))?;
                Ok(())
            })
            .unwrap();
        value.set(number + 100);
        replay.run(&stream).unwrap();
        replay.run(&stream).unwrap();
        sum += number + 2 * (number + 100);
        assert_eq!(cells[1].to_host(&stream).unwrap(), [sum]);
    }
    assert_eq!(replay.counters().builds, 1);
}

#[test]
fn a_definition_that_is_followed_is_held_once() {
    let (stream, cells) = (stream(), cells());
    let held = |value: u32| {
        let owner: Owner = std::sync::Arc::new(value);
        let watch = std::sync::Arc::downgrade(&owner);
        let mut arguments = cuda_graph::Arguments::default();
        cuda_graph::KernelArgument::add_to(&cells[0], &mut arguments);
        arguments.value(&value);
        arguments.keep(owner);
        // SAFETY: `store` writes a word.
        let op = unsafe {
            KernelOp::new(
                crate::fixture::kernel("store"),
                crate::fixture::one(),
                arguments,
            )
        };
        (op.unwrap(), watch)
    };
    let inner = Graph::new(&context()).unwrap();
    let (op, first) = held(1);
    inner.add(op, ()).unwrap();
    let graph = Graph::new(&context()).unwrap();
    let child = graph.add(ChildOp::new(&inner), ()).unwrap();
    drop(inner);
    let view = graph.child(child).unwrap();
    let node: Node<KernelOp> = view.nodes().unwrap()[0].typed().unwrap();
    let mut exec = optimized(&graph, Optimize::ALL);
    let mut watches = vec![first];
    for turn in 0..12 {
        exec.launch(&stream).unwrap();
        let (op, watch) = held(turn);
        watches.push(watch);
        view.update(node, op).unwrap();
        exec.update_from(&graph).unwrap();
        if turn % 4 == 3 {
            exec.launch(&stream).unwrap();
            stream.synchronize().unwrap();
            settle();
            let held = watches
                .iter()
                .filter(|watch| watch.strong_count() > 0)
                .count();
            assert_eq!(held, 1, "{turn} {:?}", exec.report());
        }
    }
}
