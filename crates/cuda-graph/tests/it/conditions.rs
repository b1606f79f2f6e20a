//! Conditional nodes: taken and not, again and again, nested; what their bodies hold.

use std::sync::Arc;

use cuda_graph::{
    AnyOp, Capture, ChildOp, Conditional, CopyOp, EmptyOp, Error, FillOp, Graph, HostOp, IfElseOp,
    IfOp, InstantiateFailure, KernelOp, NodeKind, Path, SwitchOp, WhileOp,
};

use crate::control::kernels::{set, step};
use crate::fixture::{add, alone, assert_soon, context, store, stream, words};

fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}

#[test]
fn if_runs_its_body_or_does_not() {
    let stream = stream();
    let (flag, a) = (words(&stream, &[0]), words(&stream, &[0]));
    let graph = graph();
    let condition = graph.condition(None).unwrap();
    let first = graph.add(set(condition, &flag), ()).unwrap();
    let node = graph.add(IfOp::new(&condition), first).unwrap();
    assert_eq!(node.id().kind(), NodeKind::Conditional);
    let body = graph.body(node).unwrap();
    body.add(store(&a, 7), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    for (value, becomes) in [(0, 0), (1, 7), (0, 0), (200, 7)] {
        flag.copy_from_host(&stream, &[value]).unwrap();
        a.copy_from_host(&stream, &[0]).unwrap();
        exec.launch(&stream).unwrap();
        assert_eq!(a.to_host(&stream).unwrap(), [becomes], "with {value}");
    }
}

#[test]
fn one_of_two_and_one_of_many_run() {
    let stream = stream();
    let (flag, a) = (words(&stream, &[0]), words(&stream, &[0]));
    let graph = graph();
    let condition = graph.condition(None).unwrap();
    let first = graph.add(set(condition, &flag), ()).unwrap();
    let node = graph.add(IfElseOp::new(&condition), first).unwrap();
    let bodies = graph.bodies(node).unwrap();
    assert_eq!(bodies.len(), 2);
    bodies[0].add(store(&a, 10), ()).unwrap();
    bodies[1].add(store(&a, 20), ()).unwrap();
    let second = graph.condition(None).unwrap();
    let set_second = graph.add(set(second, &flag), node).unwrap();
    let node = graph.add(SwitchOp::new(&second, 3), set_second).unwrap();
    for (number, body) in graph.bodies(node).unwrap().iter().enumerate() {
        let b = words(&stream, &[1 + number as u32]);
        body.add(add(&a, &b), ()).unwrap();
    }
    let mut exec = graph.instantiate().unwrap();
    for (value, becomes) in [(0, 21), (1, 12), (2, 13), (3, 10), (1000, 10)] {
        flag.copy_from_host(&stream, &[value]).unwrap();
        exec.launch(&stream).unwrap();
        assert_eq!(a.to_host(&stream).unwrap(), [becomes], "with {value}");
    }
}

#[test]
fn loops_run_as_often_as_their_condition_says() {
    let _alone = alone();
    let stream = stream();
    for limit in [1, 2, 3000] {
        let counter = words(&stream, &[0]);
        let graph = graph();
        let condition = graph.condition(Some(1)).unwrap();
        let node = graph.add(WhileOp::new(&condition), ()).unwrap();
        graph
            .body(node)
            .unwrap()
            .add(step(condition, &counter, limit), ())
            .unwrap();
        let mut exec = graph.instantiate().unwrap();
        for _ in 0..2 {
            counter.copy_from_host(&stream, &[0]).unwrap();
            exec.launch(&stream).unwrap();
            assert_eq!(counter.to_host(&stream).unwrap(), [limit]);
        }
    }
    // The condition is 0 at first.
    let counter = words(&stream, &[0]);
    let graph = graph();
    let condition = graph.condition(Some(0)).unwrap();
    let node = graph.add(WhileOp::new(&condition), ()).unwrap();
    let body = graph.body(node).unwrap();
    body.add(step(condition, &counter, 5), ()).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(counter.to_host(&stream).unwrap(), [0]);
}

#[test]
fn loops_nest() {
    let _alone = alone();
    let stream = stream();
    let (outer, inner, sum, one_word) = (
        words(&stream, &[0]),
        words(&stream, &[0]),
        words(&stream, &[0]),
        words(&stream, &[1]),
    );
    let graph = graph();
    let outermost = graph.condition(Some(1)).unwrap();
    let node = graph.add(WhileOp::new(&outermost), ()).unwrap();
    let body = graph.body(node).unwrap();
    // The inner condition is set anew in each turn of the outer loop.
    let innermost = body.condition(None).unwrap();
    let reset = body.add(FillOp::new(&inner, 0u32).unwrap(), ()).unwrap();
    let armed = body.add(set(innermost, &one_word), reset).unwrap();
    let nested = body.add(WhileOp::new(&innermost), armed).unwrap();
    let within = body.body(nested).unwrap();
    let counted = within.add(add(&sum, &one_word), ()).unwrap();
    within.add(step(innermost, &inner, 4), counted).unwrap();
    body.add(step(outermost, &outer, 3), nested).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(sum.to_host(&stream).unwrap(), [12]);
}

#[test]
fn bodies_hold_what_they_may_and_what_it_uses() {
    let stream = stream();
    let graph = graph();
    let condition = graph.condition(Some(1)).unwrap();
    let node = graph.add(IfOp::new(&condition), ()).unwrap();
    let body = graph.body(node).unwrap();
    for refused in [
        body.add(HostOp::new(|| {}), ()).map(drop),
        body.add(
            cuda_graph::RecordEventOp::new(&Arc::new(context().new_event(None).unwrap())),
            (),
        )
        .map(drop),
        {
            let calls = Graph::new(&context()).unwrap();
            calls.add(HostOp::new(|| {}), ()).unwrap();
            body.add(ChildOp::new(&calls), ()).map(drop)
        },
    ] {
        assert!(
            matches!(refused, Err(Error::NotInBody { .. })),
            "{refused:?}"
        );
    }
    let a = words(&stream, &[0]);
    let gone = Arc::downgrade(&a.owner());
    let inside = body.add(store(&a, 3), ()).unwrap();
    let address = a.address();
    drop(a);
    let mut exec = graph.instantiate().unwrap();
    let b = words(&stream, &[0]);
    exec.update(inside, store(&b, 4)).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(b.to_host(&stream).unwrap(), [4]);
    assert!(address != 0 && gone.strong_count() > 0);
    assert!(graph.dot().unwrap().contains("cluster"));
    drop((graph, body, exec));
    assert_soon(|| gone.strong_count() == 0, "the buffer leaks");
}

#[test]
fn a_condition_serves_one_node() {
    let graph = graph();
    let condition = graph.condition(Some(0)).unwrap();
    let unused = graph.instantiate();
    let Err(Error::Instantiate { reason, .. }) = unused else {
        panic!("a condition that no node looks at is refused");
    };
    assert_eq!(reason, InstantiateFailure::ConditionUnused);
    graph.add(IfOp::new(&condition), ()).unwrap();
    graph.add(IfOp::new(&condition), ()).unwrap_err();
    graph.instantiate().unwrap();
    assert!(graph.try_clone().is_err());
}

#[test]
fn nodes_read_back_as_what_they_are() {
    let graph = graph();
    let conditions = [0, 1, 2, 3].map(|default| graph.condition(Some(default)).unwrap());
    let [of_if, of_else, of_switch, of_while] = &conditions;
    let an_if = graph.add(IfOp::new(of_if), ()).unwrap();
    let an_else = graph.add(IfElseOp::new(of_else), ()).unwrap();
    let switch = graph.add(SwitchOp::new(of_switch, 5), ()).unwrap();
    let a_while = graph.add(WhileOp::new(of_while).label("loop"), ()).unwrap();
    assert_eq!(graph.op(an_if).unwrap().condition(), of_if);
    assert_eq!(graph.op(an_else).unwrap().condition(), of_else);
    assert_eq!(graph.op(switch).unwrap().bodies(), 5);
    assert_eq!(graph.op(a_while).unwrap().label_text(), Some("loop"));
    assert_eq!(
        graph.op(a_while).unwrap().condition().default_value(),
        Some(3)
    );
    let kinds = graph
        .nodes()
        .unwrap()
        .into_iter()
        .map(|node| match graph.any_op(node).unwrap() {
            AnyOp::If(_) => "if",
            AnyOp::IfElse(_) => "if/else",
            AnyOp::Switch(_) => "switch",
            AnyOp::While(_) => "while",
            other => panic!("{other:?}"),
        });
    assert_eq!(
        kinds.collect::<std::collections::BTreeSet<_>>().len(),
        4,
        "each is told"
    );
    // Of one kind, and not of one type.
    let wrong = a_while.id().typed::<IfOp>().unwrap();
    let Err(Error::WrongBranching { node }) = graph.op(wrong) else {
        panic!("a loop is no branch");
    };
    assert_eq!(node.label.as_deref(), Some("loop"));

    // What a recorder made is read, found in its bodies, and extended.
    let stream = stream();
    let (flag, a) = (words(&stream, &[1]), words(&stream, &[0]));
    let graph = crate::conditions::graph();
    Path::new(&graph)
        .if_nonzero(&flag, |r| r.record(store(&a, 7)).map(drop))
        .unwrap();
    let nodes = graph.nodes().unwrap();
    let node = nodes
        .into_iter()
        .find(|node| node.kind() == NodeKind::Conditional)
        .and_then(|node| node.typed::<IfOp>())
        .unwrap();
    let body = graph.body(node).unwrap();
    let stored = body.nodes().unwrap()[0].typed::<KernelOp>().unwrap();
    assert_eq!(body.op(stored).unwrap().kernel().name(), "store");
    body.add(add(&a, &a), stored).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [14]);
}

/// What the driver refuses about the node itself is refused first, and says what to do instead.
#[test]
fn a_conditional_node_stays_what_it_is() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let condition = graph.condition(Some(1)).unwrap();
    let node = graph.add(IfOp::new(&condition).label("maybe"), ()).unwrap();
    let inside = graph.body(node).unwrap().add(store(&a, 5), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    for (answer, action) in [
        (exec.disable(node), "disabling"),
        (exec.enable(node), "enabling"),
        (exec.is_enabled(node).map(drop), "asking about"),
        (exec.update(node, IfOp::new(&condition)), "updating"),
        (graph.update(node, IfOp::new(&condition)), "updating"),
    ] {
        let Err(Error::Node {
            action: told,
            node,
            error,
        }) = answer
        else {
            panic!("{action}: {answer:?}");
        };
        assert_eq!((told, node.label.as_deref()), (action, Some("maybe")));
        let fixed = matches!(*error, Error::ConditionalFixed { .. });
        assert!(fixed, "{action}: {error:?}");
    }
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [5]);
    exec.update(inside, store(&a, 6)).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [6]);
    exec.disable(inside).unwrap();
    a.copy_from_host(&stream, &[0]).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [0]);
}

#[test]
fn a_graph_with_conditions_has_one_executable_at_a_time() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let condition = graph.condition(Some(1)).unwrap();
    let node = graph.add(IfOp::new(&condition), ()).unwrap();
    graph.body(node).unwrap().add(store(&a, 5), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    for _ in 0..2 {
        let Err(Error::Instantiate { reason, .. }) = graph.instantiate() else {
            panic!("there is one already");
        };
        assert_eq!(reason, InstantiateFailure::HasExecutable);
        exec.launch(&stream).unwrap();
        assert_eq!(a.to_host(&stream).unwrap(), [5]);
        drop(exec);
        exec = graph.instantiate().unwrap();
    }
}

#[test]
fn a_graph_with_conditions_and_a_copy_has_no_executable() {
    let (stream, graph, other) = (stream(), self::graph(), self::graph());
    let a = words(&stream, &[0]);
    graph.add(store(&a, 4), ()).unwrap();
    other.add(ChildOp::new(&graph), ()).unwrap();
    let condition = graph.condition(Some(1)).unwrap();
    let node = graph.add(IfOp::new(&condition), ()).unwrap();
    graph.body(node).unwrap().add(EmptyOp::new(), ()).unwrap();
    let error = graph.instantiate().unwrap_err();
    let is_told = matches!(error, Error::Instantiate { reason, .. } if reason == InstantiateFailure::HasExecutable);
    assert!(is_told, "{error:?}");
    drop(other);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [4]);
}

/// What a body may not hold does not get there by an update either.
#[test]
fn updates_put_nothing_into_bodies_that_they_may_not_hold() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let condition = graph.condition(Some(1)).unwrap();
    let node = graph.add(IfOp::new(&condition), ()).unwrap();
    let body = graph.body(node).unwrap();
    let (inner, host) = (self::graph(), self::graph());
    inner.add(store(&a, 1), ()).unwrap();
    host.add(HostOp::new(|| {}), ()).unwrap();
    let child = body.add(ChildOp::new(&inner), ()).unwrap();
    let copy = body
        .add(CopyOp::new(&a, words(&stream, &[2])).unwrap(), child)
        .unwrap();
    let answer = body.update(child, ChildOp::new(&host));
    assert!(matches!(answer, Err(Error::NotInBody { .. })), "{answer:?}");
    let pageable = CopyOp::new(&a, Arc::new(vec![3u32])).unwrap();
    let answer = body.update(copy, pageable);
    assert!(matches!(answer, Err(Error::NotInBody { .. })), "{answer:?}");
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [2]);
}

/// A capture into a graph takes nothing from it when it fails.
#[test]
fn conditions_made_while_a_capture_fails_serve() {
    let stream = stream();
    let flag = words(&stream, &[1]);
    let graph = graph();
    let capture = Capture::begin_into(&stream, &graph, ()).unwrap();
    let condition = graph.condition(None).unwrap();
    drop(capture);
    let first = graph.add(set(condition, &flag), ()).unwrap();
    graph.add(IfOp::new(&condition), first).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    stream.synchronize().unwrap();
}

/// An operation read back, whose node is destroyed, is added again; its condition serves nobody
/// else then.
#[test]
fn a_loop_destroyed_and_added_again_keeps_its_condition() {
    let stream = stream();
    let flag = words(&stream, &[0]);
    let graph = graph();
    Path::new(&graph).while_nonzero(&flag, |_| Ok(())).unwrap();
    let is_loop = |id: &cuda_graph::NodeId| id.kind() == NodeKind::Conditional;
    let node = graph.nodes().unwrap().into_iter().find(is_loop).unwrap();
    let (op, before) = (
        graph.any_op(node).unwrap(),
        graph.predecessors(node).list().unwrap(),
    );
    graph.destroy(node).unwrap();
    let again = graph.add(op, before).unwrap();
    let mut path = Path::new(&graph);
    path.go_on_after(again).unwrap();
    path.while_nonzero(&flag, |_| Ok(())).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    stream.synchronize().unwrap();
}
