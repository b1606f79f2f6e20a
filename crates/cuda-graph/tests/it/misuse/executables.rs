//! Executables that cannot be made, updated or switched as asked.

use std::sync::Arc;

use cuda_graph::cudarc::driver::sys;
use cuda_graph::{
    AnyOp, ChildOp, CopyOp, EmptyOp, Error, Exec, FillOp, HostOp, InstantiateFailure,
    InstantiateOptions, PinnedBuffer, RecordEventOp, UpdateFailure,
};

use super::graph;
use crate::fixture::{context, store, stream, words};

#[test]
fn another_topology_is_refused_with_the_reason() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let node = graph.add(store(&a, 1), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    graph.add(store(&a, 2), node).unwrap();
    let Err(Error::Update { reason, .. }) = exec.update_in_place(&graph) else {
        panic!("another topology is refused");
    };
    assert_eq!(reason, cuda_graph::UpdateFailure::TopologyChanged);
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [1]);
}

#[test]
fn another_kind_is_refused_and_named() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    graph.add(store(&a, 1), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    let other = super::graph();
    let fill = FillOp::new(&a, 2u32).unwrap().label("a fill");
    other.add(fill, ()).unwrap();
    let Err(Error::Update { reason, node, .. }) = exec.update_in_place(&other) else {
        panic!("a fill is no kernel");
    };
    assert_eq!(reason, UpdateFailure::KindChanged);
    assert_eq!(node.unwrap().label.as_deref(), Some("a fill"));
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [1]);
}

#[test]
fn a_copy_keeps_its_direction() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let pinned = PinnedBuffer::from_slice(&context(), &[5u32]).unwrap();
    let graph = graph();
    let node = graph.add(CopyOp::new(&a, &pinned).unwrap(), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    let back = CopyOp::new(&pinned, &a).unwrap().label("back");
    assert!(matches!(
        exec.update(node, &back),
        Err(Error::Node {
            action: "updating",
            ..
        })
    ));
    let other = super::graph();
    other.add(back, ()).unwrap();
    let Err(Error::Update { node, .. }) = exec.update_in_place(&other) else {
        panic!("a copy keeps its direction");
    };
    assert_eq!(node.unwrap().label.as_deref(), Some("back"));
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [5], "it is what it was");
}

#[test]
fn nodes_that_cannot_be_switched_say_so() {
    let graph = graph();
    let inner = super::graph();
    inner.add(EmptyOp::new(), ()).unwrap();
    let event = Arc::new(context().new_event(None).unwrap());
    let ops: [AnyOp; 4] = [
        EmptyOp::new().into(),
        HostOp::new(|| {}).into(),
        RecordEventOp::new(&event).into(),
        ChildOp::new(&inner).into(),
    ];
    let nodes = ops.map(|op| graph.add(op.label("always"), ()).unwrap());
    let mut exec = graph.instantiate().unwrap();
    for node in nodes {
        let Err(Error::Node { action, node, .. }) = exec.disable(node) else {
            panic!("{node:?} always runs");
        };
        assert_eq!(
            (action, node.label.as_deref()),
            ("disabling", Some("always"))
        );
    }
}

#[test]
fn nodes_of_a_clone_are_no_nodes_of_the_executable() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let original = graph();
    let node = original.add(store(&a, 1), ()).unwrap();
    let mut exec = original.instantiate().unwrap();
    let clone = original.try_clone().unwrap();
    let copy = original.find_in_clone(node, &clone).unwrap();
    assert!(matches!(
        exec.update(copy, store(&a, 2)),
        Err(Error::ForeignNode { .. })
    ));
    assert!(matches!(exec.disable(copy), Err(Error::ForeignNode { .. })));
}

#[test]
fn an_executable_without_its_graph_cannot_name_nodes() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let node = graph.add(store(&a, 1), ()).unwrap();
    let exec = graph.instantiate().unwrap();
    // SAFETY: `exec` outlives the handle; one thread uses both.
    let mut blind = unsafe { Exec::from_raw_borrowed(exec.raw(), &context(), None) };
    let unknown = |error: Error| matches!(error, Error::UnknownSource);
    assert!(unknown(blind.update(node, store(&a, 2)).unwrap_err()));
    assert!(unknown(blind.is_enabled(node).unwrap_err()));
    assert!(unknown(blind.enable(node).unwrap_err()));
    assert!(unknown(blind.disable(node).unwrap_err()));
    // What needs no node works.
    graph.update(node, store(&a, 3)).unwrap();
    blind.update_in_place(&graph).unwrap();
    blind.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [3]);
}

#[test]
fn a_cycle_made_past_the_library_fails_to_instantiate() {
    let graph = graph();
    let a = graph.add(EmptyOp::new(), ()).unwrap();
    let b = graph.add(EmptyOp::new(), a).unwrap();
    let (from, to) = (graph.raw_node(b).unwrap(), graph.raw_node(a).unwrap());
    // SAFETY: both are nodes of the graph.
    let added = unsafe {
        sys::cuGraphAddDependencies_v2(graph.raw().unwrap(), &from, &to, std::ptr::null(), 1)
    };
    assert_eq!(added, sys::CUresult::CUDA_SUCCESS);
    let Err(Error::Instantiate { reason, .. }) = graph.instantiate() else {
        panic!("a cycle has no order");
    };
    assert_eq!(reason, InstantiateFailure::InvalidStructure);
    let c = graph.add(EmptyOp::new(), b).unwrap();
    assert!(
        matches!(graph.add_edge(c, a), Err(Error::Cycle { .. })),
        "edges made past the library count"
    );
    graph.remove_edge(b, a).unwrap();
    graph.instantiate().unwrap();
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    graph.add(store(&a, 1), ()).unwrap();
    let both = InstantiateOptions {
        auto_free: true,
        device_launch: true,
        ..InstantiateOptions::default()
    };
    assert!(matches!(
        graph.instantiate_with(&both),
        Err(Error::Instantiate { .. })
    ));
    let device = InstantiateOptions {
        device_launch: true,
        ..InstantiateOptions::default()
    };
    graph
        .add(HostOp::new(|| {}).label("on the host"), ())
        .unwrap();
    let Err(Error::Instantiate { reason, .. }) = graph.instantiate_with(&device) else {
        panic!("a device calls no host function");
    };
    assert_eq!(reason, InstantiateFailure::OperationNotSupported);
    graph.instantiate().unwrap();
}

#[test]
fn nodes_that_came_after_the_executable_are_named() {
    let stream = stream();
    let word = words(&stream, &[0]);
    let graph = graph();
    let first = graph.add(store(&word, 1), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    // The driver may give the second the handle of the first.
    graph.destroy(first).unwrap();
    let inner = self::graph();
    let later = store(&word, 2).label("later");
    let second = graph.add(later, ()).unwrap();
    let within = inner.add(store(&word, 3), ()).unwrap();
    let child = graph.add(ChildOp::new(&inner), second).unwrap();
    let within = inner
        .find_in_clone(within, &graph.child(child).unwrap())
        .unwrap();
    for node in [second, within] {
        let Err(Error::NotInExecutable { .. }) = exec.update(node, store(&word, 4)) else {
            panic!("{node:?} is not there");
        };
        assert!(matches!(
            exec.disable(node),
            Err(Error::NotInExecutable { .. })
        ));
    }
    assert!(matches!(
        exec.update(child, ChildOp::new(&inner)),
        Err(Error::NotInExecutable { .. })
    ));
    let error = exec.is_enabled(second).unwrap_err().to_string();
    assert!(error.contains("\"later\""), "{error}");
    exec.launch(&stream).unwrap();
    assert_eq!(word.to_host(&stream).unwrap(), [1]);
    let mut exec = graph.instantiate().unwrap();
    exec.update(within, store(&word, 4)).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(word.to_host(&stream).unwrap(), [4]);
}
