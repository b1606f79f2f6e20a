//! Edges and embeddings that cannot be.

use cuda_graph::{ChildOp, Edge, EdgeData, EmptyOp, Error, NodeId};

use super::graph;

/// Where edges come from is the caller's code, which runs before the graph is locked.
#[test]
fn edges_may_come_from_the_graph_that_they_go_into() {
    let graph = graph();
    let a = graph.add(EmptyOp::new(), ()).unwrap();
    let b = graph.add(EmptyOp::new(), ()).unwrap();
    let ask = |to: NodeId| {
        let from = graph.nodes().unwrap()[0];
        (from, to)
    };
    let edge = |(from, to)| Edge {
        from,
        to,
        data: EdgeData::default(),
    };
    let edges = || [b.id()].into_iter().map(ask);
    graph.add_edges(edges().map(edge)).unwrap();
    graph.remove_edges(edges()).unwrap();
    graph.add_edges(edges().map(edge)).unwrap();
    assert_eq!(graph.successors(a).list().unwrap(), [b.id()]);
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
fn edge_data_that_the_driver_refuses_name_the_node() {
    let graph = graph();
    let a = graph.add(EmptyOp::new(), ()).unwrap();
    let b = graph.add(EmptyOp::new().label("no kernel"), ()).unwrap();
    let edge = Edge {
        from: a.id(),
        to: b.id(),
        data: EdgeData::programmatic(),
    };
    let Err(Error::Node { node, .. }) = graph.add_edges([edge]) else {
        panic!("a programmatic dependency is one of kernels");
    };
    assert_eq!(node.label.as_deref(), Some("no kernel"));
    assert!(graph.edges().unwrap().is_empty());
}

/// What goes is a set: named twice, it goes once.
#[test]
fn an_edge_that_is_removed_twice_goes_once() {
    let graph = graph();
    let a = graph.add(EmptyOp::new(), ()).unwrap();
    let b = graph.add(EmptyOp::new(), a).unwrap();
    let c = graph.add(EmptyOp::new(), (a, b)).unwrap();
    let edge = |from: cuda_graph::Node<EmptyOp>| (from.id(), c.id());
    // None goes where one is not there.
    assert!(matches!(
        graph.remove_edges([edge(b), edge(b), (b.id(), a.id())]),
        Err(Error::NoEdge { .. })
    ));
    graph.remove_edges([edge(b), edge(a), edge(b)]).unwrap();
    assert!(graph.predecessors(c).list().unwrap().is_empty());
    graph.predecessors(b).remove((a, a)).unwrap();
    assert!(graph.edges().unwrap().is_empty());
}
