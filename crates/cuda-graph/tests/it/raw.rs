//! The way down and up again: raw handles of graphs and executables.

use cuda_graph::{Error, Graph, KernelOp};

use crate::fixture::{add, context, store, stream, words};

fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}

#[test]
fn raw_graphs_and_executables_are_like_the_rest() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let made = graph();
    let node = made.add(store(&a, 1), ()).unwrap();
    // SAFETY: `made` outlives the handle; one thread uses both.
    let seen = unsafe { Graph::from_raw_borrowed(made.raw().unwrap(), &context()) };
    // SAFETY: the node is one of that graph.
    let same = unsafe { seen.node_from_raw(made.raw_node(node).unwrap()) }.unwrap();
    let b = words(&stream, &[0]);
    seen.add(add(&b, &a), same).unwrap();
    let mut exec = seen.instantiate().unwrap();
    exec.update(same.typed::<KernelOp>().unwrap(), store(&a, 6))
        .unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(b.to_host(&stream).unwrap(), [6]);
    // SAFETY: `exec` outlives the handle; one thread uses both.
    let mut other =
        unsafe { cuda_graph::Exec::from_raw_borrowed(exec.raw(), &context(), Some(&seen)) };
    other
        .update(same.typed::<KernelOp>().unwrap(), store(&a, 4))
        .unwrap();
    other.launch(&stream).unwrap();
    assert_eq!(b.to_host(&stream).unwrap(), [10]);
    // SAFETY: as above.
    let mut blind = unsafe { cuda_graph::Exec::from_raw_borrowed(exec.raw(), &context(), None) };
    assert!(matches!(
        blind.update(same.typed::<KernelOp>().unwrap(), store(&a, 4)),
        Err(Error::UnknownSource)
    ));
    drop((seen, blind, other));
    assert_eq!(made.nodes().unwrap().len(), 2);
}
