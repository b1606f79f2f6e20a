//! Each misuse gives its typed error and changes nothing, on drivers that crash on it too.

use cuda_graph::{
    AllocOp, AnyOp, Buffer, ChildOp, CopyOp, Edge, EdgeData, EmptyOp, Error, FillOp, FreeOp, Graph,
    KernelOp, LaunchAttribute, MemoryLocation, RawMemory,
};

use crate::fixture::{add, context, kernel, one, store, stream, words};

fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}

#[test]
fn nodes_of_other_graphs_are_foreign() {
    let (a, b) = (graph(), graph());
    let n = a.add(EmptyOp::new(), ()).unwrap();
    let m = b.add(EmptyOp::new(), ()).unwrap();
    assert!(matches!(
        b.add(EmptyOp::new(), n),
        Err(Error::ForeignNode { node: 0, .. })
    ));
    assert!(matches!(b.add_edge(n, m), Err(Error::ForeignNode { .. })));
    assert!(matches!(
        b.remove_edge(m, n),
        Err(Error::ForeignNode { .. })
    ));
    assert!(matches!(b.destroy(n), Err(Error::ForeignNode { .. })));
    assert!(matches!(b.any_op(n), Err(Error::ForeignNode { .. })));
    assert!(matches!(
        b.predecessors(n).list(),
        Err(Error::ForeignNode { .. })
    ));
    assert!(matches!(
        b.update(n, EmptyOp::new()),
        Err(Error::ForeignNode { .. })
    ));
    assert!(matches!(
        b.instantiate().unwrap().is_enabled(n),
        Err(Error::ForeignNode { .. })
    ));
    let clone = a.try_clone().unwrap();
    assert!(
        matches!(clone.destroy(n), Err(Error::ForeignNode { .. })),
        "a clone's nodes are its own"
    );
    assert_eq!((a.nodes().unwrap().len(), b.nodes().unwrap().len()), (1, 1));
}

#[test]
fn edges_that_cannot_be_are_named() {
    let graph = graph();
    let a = graph.add(EmptyOp::new().label("first"), ()).unwrap();
    let b = graph.add(EmptyOp::new().label("second"), a).unwrap();
    let c = graph.add(EmptyOp::new().label("third"), b).unwrap();
    let Err(Error::SelfEdge { node }) = graph.add_edge(a, a) else {
        panic!("a node cannot wait for itself");
    };
    assert_eq!(node.label.as_deref(), Some("first"));
    assert!(matches!(
        graph.add_edge(a, b),
        Err(Error::DuplicateEdge { .. })
    ));
    let twice = Edge {
        from: a.id(),
        to: c.id(),
        data: EdgeData::default(),
    };
    assert!(matches!(
        graph.add_edges([twice, twice]),
        Err(Error::DuplicateEdge { .. })
    ));
    assert!(matches!(
        graph.add(EmptyOp::new(), (a, b, a)),
        Err(Error::DuplicateNode { .. })
    ));
    assert!(matches!(graph.remove_edge(a, c), Err(Error::NoEdge { .. })));
    let Err(error) = graph.add_edge(c, a) else {
        panic!("a cycle is refused");
    };
    let text = error.to_string();
    assert!(
        text.contains("\"first\"") && text.contains("\"third\"") && text.contains("cycle"),
        "{text}"
    );
    // A cycle that two new edges close together.
    let d = graph.add(EmptyOp::new(), ()).unwrap();
    let e = graph.add(EmptyOp::new(), ()).unwrap();
    let edge = |from: cuda_graph::Node<EmptyOp>, to: cuda_graph::Node<EmptyOp>| Edge {
        from: from.id(),
        to: to.id(),
        data: EdgeData::default(),
    };
    assert!(matches!(
        graph.add_edges([edge(d, e), edge(e, d)]),
        Err(Error::Cycle { .. })
    ));
    assert_eq!(graph.edges().unwrap().len(), 2, "nothing was added");
    // A backward edge that closes none is fine, and is seen by later checks.
    graph.add_edge(e, a).unwrap();
    assert!(matches!(graph.add_edge(c, e), Err(Error::Cycle { .. })));
    assert!(matches!(
        graph.predecessors(a).set((c, d)),
        Err(Error::Cycle { .. })
    ));
    assert_eq!(
        graph.predecessors(a).list().unwrap(),
        [e.id()],
        "a set that fails changes nothing"
    );
    graph.instantiate().unwrap();
}

#[test]
fn a_graph_cannot_be_embedded_in_itself() {
    let outer = graph();
    outer.add(EmptyOp::new(), ()).unwrap();
    assert!(matches!(
        outer.add(ChildOp::new(&outer), ()),
        Err(Error::SelfEmbed { .. })
    ));
    let inner = graph();
    inner.add(EmptyOp::new(), ()).unwrap();
    let node = outer.add(ChildOp::new(&inner), ()).unwrap();
    let view = outer.child(node).unwrap();
    assert!(matches!(
        view.add(ChildOp::new(&outer), ()),
        Err(Error::SelfEmbed { .. })
    ));
    assert!(matches!(
        view.add(ChildOp::new(&view), ()),
        Err(Error::SelfEmbed { .. })
    ));
    assert!(matches!(
        outer.update(node, ChildOp::new(&outer)),
        Err(Error::SelfEmbed { .. })
    ));
    assert_eq!(outer.nodes().unwrap().len(), 2);
    outer.instantiate().unwrap();
}

#[test]
fn what_is_gone_says_so() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let outer = graph();
    let first = outer.add(store(&a, 1).label("first"), ()).unwrap();
    let inner = graph();
    inner.add(store(&a, 2), ()).unwrap();
    let node = outer.add(ChildOp::new(&inner), first).unwrap();
    let view = outer.child(node).unwrap();
    let within = view.nodes().unwrap()[0];
    let mut exec = outer.instantiate().unwrap();

    outer.destroy(node).unwrap();
    assert!(matches!(view.nodes(), Err(Error::GraphGone)));
    assert!(matches!(
        view.add(EmptyOp::new(), ()),
        Err(Error::GraphGone)
    ));
    assert!(matches!(view.any_op(within), Err(Error::GraphGone)));
    assert!(matches!(view.try_clone(), Err(Error::GraphGone)));
    assert!(matches!(view.instantiate(), Err(Error::GraphGone)));
    assert!(matches!(view.raw(), Err(Error::GraphGone)));
    assert!(matches!(exec.update_from(&view), Err(Error::GraphGone)));
    assert!(matches!(exec.disable(within), Err(Error::GraphGone)));
    assert!(matches!(outer.child(node), Err(Error::NodeGone { .. })));
    assert!(matches!(outer.destroy(node), Err(Error::NodeGone { .. })));
    assert!(matches!(
        outer.add(EmptyOp::new(), node),
        Err(Error::NodeGone { .. })
    ));
    assert!(matches!(
        graph().add(ChildOp::new(&view), ()),
        Err(Error::GraphGone)
    ));
    assert!(format!("{view:?}").contains("gone"));

    outer.destroy(first).unwrap();
    let Err(Error::NodeGone { node }) = exec.update(first, store(&a, 3)) else {
        panic!("the node is gone");
    };
    assert_eq!(node.label.as_deref(), Some("first"));
    drop((outer, view));
    assert!(matches!(
        exec.update(first, store(&a, 3)),
        Err(Error::GraphGone)
    ));
    assert!(matches!(exec.disable(first), Err(Error::GraphGone)));
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [2]);
}

#[test]
fn arguments_that_do_not_fit_name_kernel_argument_and_size() {
    let stream = stream();
    let a = words(&stream, &[0]);
    // SAFETY: the operations are refused.
    let (few, small) = unsafe {
        (
            KernelOp::new(kernel("store"), one(), (&a,)),
            KernelOp::new(kernel("store"), one(), (&a, 1u64)),
        )
    };
    let Err(Error::ArgumentCount {
        wants: 2, got: 1, ..
    }) = &few
    else {
        panic!("{few:?}");
    };
    assert_eq!(
        few.unwrap_err().to_string(),
        "kernel `store` takes 2 arguments and got 1"
    );
    assert_eq!(
        small.unwrap_err().to_string(),
        "argument 1 of kernel `store` takes 4 bytes and got 8"
    );
}

#[test]
fn operations_that_mean_nothing_are_not_made() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0; 4]), words(&stream, &[0; 3]));
    assert!(matches!(
        CopyOp::new(&a, &b),
        Err(Error::SizeMismatch {
            wants: 16,
            got: 12,
            ..
        })
    ));
    assert!(matches!(
        CopyOp::rows(&a, 8, &a, 8, 9, 2),
        Err(Error::InvalidOperation { .. })
    ));
    assert!(matches!(
        CopyOp::rows(&a, 8, &b, 8, 8, 2),
        Err(Error::OutOfRange { .. })
    ));
    assert!(matches!(
        CopyOp::rows(&a, usize::MAX, &a, 8, 8, 2),
        Err(Error::OutOfRange { .. })
    ));
    assert!(matches!(
        a.slice(3..5),
        Err(Error::OutOfRange {
            start: 3,
            end: 5,
            len: 4
        })
    ));
    #[expect(clippy::reversed_empty_ranges, reason = "that is the misuse")]
    let reversed = a.slice(3..2);
    assert!(matches!(reversed, Err(Error::OutOfRange { .. })));
    let bytes = Buffer::<u8>::zeroed(&stream, 7).unwrap();
    assert!(matches!(
        FillOp::new(&bytes, 1u32),
        Err(Error::InvalidOperation { .. })
    ));
    let odd = bytes.slice(1..5).unwrap();
    assert!(matches!(
        FillOp::new(&odd, 1u32),
        Err(Error::InvalidOperation { .. })
    ));
    assert!(matches!(
        a.copy_from_host(&stream, &[1]),
        Err(Error::SizeMismatch { .. })
    ));
}

#[test]
fn a_node_keeps_its_kind() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let node = graph.add(AnyOp::from(store(&a, 1)), ()).unwrap();
    let fill = AnyOp::from(FillOp::new(&a, 1u32).unwrap());
    assert!(matches!(
        graph.update(node, fill.clone()),
        Err(Error::WrongKind { .. })
    ));
    assert!(node.id().typed::<FillOp>().is_none());
    let mut exec = graph.instantiate().unwrap();
    assert!(matches!(
        exec.update(node, fill),
        Err(Error::WrongKind { .. })
    ));
    let attributed = AnyOp::from(store(&a, 1).attribute(LaunchAttribute::Priority(-1)));
    assert!(matches!(
        exec.update(node, attributed),
        Err(Error::AttributesFixed { .. })
    ));
}

#[test]
fn another_topology_is_refused_with_the_reason() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let node = graph.add(store(&a, 1), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    graph.add(store(&a, 2), node).unwrap();
    let Err(Error::Update { reason, .. }) = exec.update_from(&graph) else {
        panic!("another topology is refused");
    };
    assert_eq!(reason, cuda_graph::UpdateFailure::TopologyChanged);
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [1]);
}

#[test]
fn allocations_follow_the_drivers_rules() {
    let stream = stream();
    let graph = graph();
    let alloc = graph
        .add(AllocOp::new(MemoryLocation::Device(0), 64), ())
        .unwrap();
    let memory = graph.allocation(alloc).unwrap();
    let a = words(&stream, &[0; 16]);
    let from = words(&stream, &(0..16).collect::<Vec<_>>());
    let write = graph
        .add(CopyOp::new(&memory, &from).unwrap(), alloc)
        .unwrap();
    let read = graph.add(CopyOp::new(&a, &memory).unwrap(), write).unwrap();
    let free = graph.add(FreeOp::new(&memory), read).unwrap();
    assert_eq!(graph.op(free).unwrap().address(), memory.address());
    assert_eq!(graph.op(alloc).unwrap().bytes(), 64);
    assert!(matches!(graph.try_clone(), Err(Error::Call { .. })));
    assert!(matches!(
        self::graph().add(ChildOp::new(&graph), ()),
        Err(Error::Node { .. })
    ));
    let mut exec = graph.instantiate().unwrap();
    for _ in 0..3 {
        exec.launch(&stream).unwrap();
    }
    assert_eq!(a.to_host(&stream).unwrap(), (0..16).collect::<Vec<_>>());
    assert!(matches!(
        graph.instantiate(),
        Err(Error::Instantiate { .. })
    ));
    let pool = cuda_graph::GraphPool::of(&context());
    drop(exec);
    pool.trim().unwrap();
    let figures = pool.figures().unwrap();
    assert!(figures.used <= figures.used_high && figures.reserved <= figures.reserved_high);
    pool.reset_high().unwrap();
    // SAFETY: nothing is done with it: freeing what no graph allocated is refused.
    let stray = unsafe { RawMemory::device(a.address(), 64) };
    assert!(self::graph().add(FreeOp::new(&stray), ()).is_err());
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
