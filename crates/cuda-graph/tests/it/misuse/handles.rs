//! Handles of what is elsewhere, or gone.

use std::sync::Barrier;

use cuda_graph::cudarc::driver::sys::{CUgraphNodeParams, CUgraphNodeType};
use cuda_graph::{AnyOp, ChildOp, EmptyOp, Error, Operation, RawOp};

use super::graph;
use crate::fixture::{store, stream, words};

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
        Err(Error::NodeGone { .. })
    ));
    assert!(matches!(exec.disable(first), Err(Error::NodeGone { .. })));
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [2]);
}

#[test]
fn nodes_of_embedded_graphs_are_foreign_to_what_embeds_them() {
    let outer = graph();
    let inner = graph();
    inner.add(EmptyOp::new(), ()).unwrap();
    let node = outer.add(ChildOp::new(&inner), ()).unwrap();
    let view = outer.child(node).unwrap();
    let within = view.nodes().unwrap()[0];
    let foreign = |error: Error| matches!(error, Error::ForeignNode { .. });
    assert!(foreign(outer.destroy(within).unwrap_err()));
    assert!(foreign(outer.add(EmptyOp::new(), within).unwrap_err()));
    assert!(foreign(outer.add_edge(node, within).unwrap_err()));
    assert!(foreign(outer.any_op(within).unwrap_err()));
    assert!(foreign(view.add(EmptyOp::new(), node).unwrap_err()));
    assert!(foreign(view.successors(within).set(node).unwrap_err()));
    assert!(foreign(view.child(node).unwrap_err()));
    assert_eq!(
        (outer.nodes().unwrap().len(), view.nodes().unwrap().len()),
        (1, 1)
    );
}

#[test]
fn clones_do_not_have_what_was_not_cloned() {
    let original = graph();
    let before = original.add(EmptyOp::new().label("before"), ()).unwrap();
    let clone = original.try_clone().unwrap();
    let after = original.add(EmptyOp::new().label("after"), ()).unwrap();
    let other = graph();
    let foreign = other.add(EmptyOp::new(), ()).unwrap();
    let copy = original.find_in_clone(before, &clone).unwrap();
    assert_ne!(copy, before);

    let Err(Error::NotInClone { node }) = original.find_in_clone(after, &clone) else {
        panic!("it was added later");
    };
    assert_eq!(node.label.as_deref(), Some("after"));
    assert!(matches!(
        original.find_in_clone(before, &other),
        Err(Error::NotInClone { .. })
    ));
    assert!(matches!(
        original.find_in_clone(before, &original),
        Err(Error::NotInClone { .. })
    ));
    assert!(matches!(
        original.find_in_clone(foreign, &clone),
        Err(Error::ForeignNode { .. })
    ));
    clone.destroy(copy).unwrap();
    assert!(matches!(
        original.find_in_clone(before, &clone),
        Err(Error::NotInClone { .. })
    ));
    original.destroy(before).unwrap();
    assert!(matches!(
        original.find_in_clone(before, &clone),
        Err(Error::NodeGone { .. })
    ));
}

#[test]
fn an_embedded_graph_is_gone_when_its_node_embeds_another() {
    let outer = graph();
    let inner = graph();
    inner.add(EmptyOp::new(), ()).unwrap();
    let node = outer.add(ChildOp::new(&inner), ()).unwrap();
    let view = outer.child(node).unwrap();
    let within = view.nodes().unwrap()[0];
    let other = graph();
    other.add(EmptyOp::new(), ()).unwrap();
    other.add(EmptyOp::new(), ()).unwrap();
    match outer.update(node, ChildOp::new(&other)) {
        Ok(()) => {
            assert!(matches!(view.nodes(), Err(Error::GraphGone)));
            assert!(matches!(view.destroy(within), Err(Error::GraphGone)));
            let view = outer.child(node).unwrap();
            assert_eq!(view.nodes().unwrap().len(), 2);
            assert!(matches!(
                view.destroy(within),
                Err(Error::ForeignNode { .. })
            ));
        }
        // A driver may refuse it; nothing has changed then.
        Err(Error::Node { .. }) => assert_eq!(view.nodes().unwrap(), [within]),
        Err(error) => panic!("{error}"),
    }
    outer.instantiate().unwrap();
}

#[test]
fn a_handle_never_comes_to_mean_another_node() {
    let graph = graph();
    let mut gone = Vec::new();
    for round in 0..200 {
        let node = graph.add(EmptyOp::new(), ()).unwrap();
        assert!(!gone.contains(&node), "round {round}");
        graph.destroy(node).unwrap();
        gone.push(node);
    }
    let stays = graph.add(EmptyOp::new(), ()).unwrap();
    for node in gone {
        assert!(!graph.contains(node));
        assert!(matches!(graph.destroy(node), Err(Error::NodeGone { .. })));
        assert!(matches!(
            graph.add_edge(node, stays),
            Err(Error::NodeGone { .. })
        ));
    }
    assert_eq!(graph.nodes().unwrap(), [stays.id()]);
}

#[test]
fn two_threads_may_edit_one_graph_by_two_handles() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let first = graph.add(EmptyOp::new(), ()).unwrap();
    let same = ChildOp::new(&graph).graph();
    let start = Barrier::new(2);
    let edit = |graph: cuda_graph::Graph| {
        start.wait();
        for round in 0..300 {
            let node = graph.add(store(&a, round), first).unwrap();
            if round % 3 == 0 {
                graph.update(node, store(&a, 7)).unwrap();
                graph.destroy(node).unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| edit(same));
        let edit = &edit;
        let other = ChildOp::new(&graph).graph();
        scope.spawn(move || edit(other));
    });
    assert_eq!(graph.nodes().unwrap().len(), 401);
    assert_eq!(graph.edges().unwrap().len(), 400);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn a_node_embeds_anew_what_is_embedded_in_it() {
    let stream = stream();
    let word = words(&stream, &[0]);
    let (innermost, middle, graph) = (graph(), graph(), graph());
    innermost.add(store(&word, 5), ()).unwrap();
    middle.add(ChildOp::new(&innermost), ()).unwrap();
    let node = graph.add(ChildOp::new(&middle), ()).unwrap();
    let view = graph.child(node).unwrap();
    // What is embedded is copied before it goes.
    let same = graph.op(node).unwrap();
    graph.update(node, same).unwrap();
    assert!(matches!(view.nodes(), Err(Error::GraphGone)));
    let view = graph.child(node).unwrap();
    let within = view.nodes().unwrap()[0].typed::<ChildOp>().unwrap();
    graph.update(node, view.op(within).unwrap()).unwrap();
    assert!(matches!(view.nodes(), Err(Error::GraphGone)));
    assert_eq!(graph.child(node).unwrap().nodes().unwrap().len(), 1);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(word.to_host(&stream).unwrap(), [5]);
}

#[test]
fn a_graph_replaced_by_raw_parameters_is_gone() {
    let stream = stream();
    let word = words(&stream, &[0]);
    let (graph, first, second) = (graph(), graph(), graph());
    first.add(store(&word, 1), ()).unwrap();
    second.add(store(&word, 2), ()).unwrap();
    let node = graph.add(AnyOp::from(ChildOp::new(&first)), ()).unwrap();
    let typed = node.id().typed::<ChildOp>().unwrap();
    let view = graph.child(typed).unwrap();
    // SAFETY: plain data for which zero is a value of every field but the kind, which gets one.
    let mut params: CUgraphNodeParams = unsafe {
        let mut params = std::mem::MaybeUninit::<CUgraphNodeParams>::zeroed();
        (*params.as_mut_ptr()).type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH;
        params.assume_init()
    };
    params.__bindgen_anon_1.graph.graph = second.raw().unwrap();
    // SAFETY: the graph lives beyond the call, and what its node uses with its owner.
    let raw = unsafe { RawOp::new(params, [word.owner()]) };
    graph.update(node, raw.into_any()).unwrap();
    assert!(matches!(view.nodes(), Err(Error::GraphGone)));
    let view = graph.child(typed).unwrap();
    assert_eq!(view.nodes().unwrap().len(), 1);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(word.to_host(&stream).unwrap(), [2]);
}
