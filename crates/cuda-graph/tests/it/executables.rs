//! Executables: their options, and what can be done to nodes at any depth.

use cuda_graph::{ChildOp, FillOp, Graph, InstantiateOptions, KernelOp, Node, Optimize};

use crate::fixture::{add, context, store, stream, words};

fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}

fn only<O: cuda_graph::Operation>(graph: &Graph) -> Node<O> {
    graph.nodes().unwrap()[0].typed().unwrap()
}

#[test]
fn options_are_told() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    graph.add(store(&a, 1), ()).unwrap();
    let all = InstantiateOptions {
        auto_free: true,
        device_launch: false,
        node_priority: true,
        loops_at_once: true,
        optimize: Optimize::ALL,
        upload: Some(stream.clone()),
    };
    let mut exec = graph.instantiate_with(&all).unwrap();
    let told = exec.options().unwrap();
    assert_eq!(told.optimize, Optimize::ALL);
    assert!(told.auto_free && told.node_priority && told.loops_at_once && !told.device_launch);
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [1]);
    let plain = graph.instantiate().unwrap().options().unwrap();
    assert!(!plain.auto_free && !plain.node_priority && !plain.device_launch);
}

#[test]
fn what_a_device_may_launch_the_host_may_too() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let node = graph.add(store(&a, 1), ()).unwrap();
    graph.add(add(&a, &a), node).unwrap();
    let options = InstantiateOptions {
        device_launch: true,
        optimize: Optimize::ALL,
        upload: Some(stream.clone()),
        ..InstantiateOptions::default()
    };
    let mut exec = graph.instantiate_with(&options).unwrap();
    assert!(exec.options().unwrap().device_launch);
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [2]);
}

#[test]
fn nodes_within_children_are_switched_and_updated() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let innermost = graph();
    innermost.add(store(&a, 1), ()).unwrap();
    let inner = graph();
    let fill = inner.add(FillOp::new(&b, 1u32).unwrap(), ()).unwrap();
    inner.add(ChildOp::new(&innermost), fill).unwrap();
    let outer = graph();
    let child = outer.add(ChildOp::new(&inner), ()).unwrap();
    let view = outer.child(child).unwrap();
    let fill: Node<FillOp> = only(&view);
    let nested: Node<ChildOp> = view.successors(fill).list().unwrap()[0].typed().unwrap();
    let deep = view.child(nested).unwrap();
    let kernel: Node<KernelOp> = only(&deep);
    drop((innermost, inner));

    let mut exec = outer.instantiate().unwrap();
    let run = |exec: &mut cuda_graph::Exec| {
        a.copy_from_host(&stream, &[9]).unwrap();
        b.copy_from_host(&stream, &[9]).unwrap();
        exec.launch(&stream).unwrap();
        (
            a.to_host(&stream).unwrap()[0],
            b.to_host(&stream).unwrap()[0],
        )
    };
    assert_eq!(run(&mut exec), (1, 1));
    exec.disable(kernel).unwrap();
    assert!(!exec.is_enabled(kernel).unwrap() && exec.is_enabled(fill).unwrap());
    assert_eq!(run(&mut exec), (9, 1));
    exec.disable(fill).unwrap();
    exec.enable(kernel).unwrap();
    assert_eq!(run(&mut exec), (1, 9));
    exec.enable(fill).unwrap();
    exec.update(kernel, store(&a, 5)).unwrap();
    exec.update(fill, FillOp::new(&b, 6u32).unwrap()).unwrap();
    assert_eq!(run(&mut exec), (5, 6));
    // The definition at any depth, and the executable from it.
    deep.update(kernel, store(&a, 7)).unwrap();
    assert_eq!(run(&mut exec), (5, 6));
    exec.update_from(&outer).unwrap();
    assert_eq!(run(&mut exec), (7, 1));
}

#[test]
fn an_update_of_a_disabled_node_shows_when_it_is_enabled() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let node = graph.add(store(&a, 1), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.disable(node).unwrap();
    exec.update(node, store(&a, 2)).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [0]);
    exec.enable(node).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [2]);
    // A definition knows nothing of it.
    let mut other = graph.instantiate().unwrap();
    assert!(other.is_enabled(node).unwrap());
    other.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [1]);
}

#[test]
fn executables_of_one_graph_are_apart() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let node = graph.add(store(&a, 1), ()).unwrap();
    let mut execs: Vec<_> = (0..3).map(|_| graph.instantiate().unwrap()).collect();
    execs[1].update(node, store(&a, 2)).unwrap();
    execs[2].disable(node).unwrap();
    graph.update(node, store(&a, 4)).unwrap();
    for (exec, wanted) in execs.iter_mut().zip([1, 2, 0]) {
        a.copy_from_host(&stream, &[0]).unwrap();
        exec.launch(&stream).unwrap();
        assert_eq!(a.to_host(&stream).unwrap(), [wanted]);
    }
}
