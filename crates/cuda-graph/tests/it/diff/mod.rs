//! The difference of two graphs, and what is predicted of an update from one to the other.

mod memory;
mod plan;
mod random;

use std::sync::Arc;
use std::time::Instant;

use cuda_graph::cudarc::driver::result::memset_d8_async;
use cuda_graph::cudarc::driver::{CudaContext, LaunchConfig};
use cuda_graph::{
    AnyOp, Change, ChildOp, CopyOp, Difference, Edge, EdgeData, EmptyOp, Error, Exec, FillOp,
    Graph, HostOp, IfOp, KernelOp, Node, NodeId, NodeParameter as P, Source, UpdateFailure,
    Verdict, WhileOp,
};

use crate::fixture::{context, kernel, store, stream, words};

fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}

/// A graph of these nodes, each after the one before.
fn line(ops: impl IntoIterator<Item = AnyOp>) -> Graph {
    let graph = graph();
    let mut last = None;
    for op in ops {
        last = Some(graph.add(op, last).unwrap());
    }
    graph
}

/// The parameters of the only change.
fn changed(difference: &Difference) -> Vec<P> {
    match difference.changes() {
        [Change::Changed { parameters, .. }] => {
            parameters.iter().map(|changed| changed.parameter).collect()
        }
        _ => panic!("{difference}"),
    }
}

/// Both directions: the same parameters, and the verdict is what an update answers.
#[track_caller]
fn check(old: &Graph, new: &Graph, expected: &[P]) {
    for (old, new) in [(old, new), (new, old)] {
        let difference = old.diff(new).unwrap();
        assert_eq!(changed(&difference), expected, "{difference}");
        let mut exec = old.instantiate().unwrap();
        let predicted = exec.diff(new).unwrap();
        assert_eq!(predicted.changes(), difference.changes());
        let answer = exec.update_in_place(new);
        match (predicted.verdict(), &answer) {
            (Verdict::InPlace, Ok(())) => {}
            (Verdict::Refused { reason, .. }, Err(Error::Update { reason: why, .. })) => {
                assert_eq!(reason, why);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_parameter_is_named() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0; 8]), words(&stream, &[0; 8]));
    let bump = |blocks, threads, shared, n: u32| {
        let config = LaunchConfig {
            grid_dim: (blocks, 1, 1),
            block_dim: (threads, 1, 1),
            shared_mem_bytes: shared,
        };
        // SAFETY: it writes eight words at most.
        unsafe { KernelOp::new(kernel("bump"), config, (&a, n)) }.unwrap()
    };
    let of = |old: AnyOp, new: AnyOp, expected: &[P]| check(&line([old]), &line([new]), expected);
    let plain = bump(1, 1, 0, 1);
    of(store(&a, 1).into(), store(&a, 2).into(), &[P::Argument(1)]);
    of(store(&a, 1).into(), store(&b, 1).into(), &[P::Argument(0)]);
    of(plain.clone().into(), bump(2, 1, 0, 1).into(), &[P::Grid]);
    of(plain.clone().into(), bump(1, 2, 0, 1).into(), &[P::Block]);
    of(
        plain.clone().into(),
        bump(1, 1, 16, 1).into(),
        &[P::SharedMemory],
    );
    of(
        plain.clone().into(),
        plain.clone().cooperative().into(),
        &[P::Attributes],
    );
    of(plain.into(), store(&a, 1).into(), &[P::Function]);

    let part = |range| a.slice(range).unwrap();
    of(
        FillOp::new(&a, 1u32).unwrap().into(),
        FillOp::new(&a, 2u32).unwrap().into(),
        &[P::Value],
    );
    of(
        FillOp::new(&a, 1u32).unwrap().into(),
        FillOp::new(&b, 1u32).unwrap().into(),
        &[P::To],
    );
    of(
        FillOp::new(&part(0..2), 1u32).unwrap().into(),
        FillOp::new(&part(0..4), 1u32).unwrap().into(),
        &[P::Size],
    );
    of(
        FillOp::rows(&a, 1u32, 1, 2, 8).unwrap().into(),
        FillOp::rows(&a, 1u32, 1, 2, 12).unwrap().into(),
        &[P::Rows],
    );
    of(
        CopyOp::new(part(0..2), b.slice(0..2).unwrap())
            .unwrap()
            .into(),
        CopyOp::new(part(2..4), b.slice(2..4).unwrap())
            .unwrap()
            .into(),
        &[P::From, P::To],
    );
    of(
        CopyOp::rows(&a, 8, &b, 8, 4, 2).unwrap().into(),
        CopyOp::rows(&a, 8, &b, 12, 4, 2).unwrap().into(),
        &[P::Rows],
    );
    of(
        CopyOp::new(&a, &b).unwrap().into(),
        CopyOp::new(&a, Arc::new(vec![0u32; 8])).unwrap().into(),
        &[P::From],
    );
    of(
        HostOp::new(|| {}).into(),
        HostOp::new(|| ()).into(),
        &[P::Call],
    );
    of(EmptyOp::new().into(), store(&a, 1).into(), &[P::Kind]);
}

#[test]
fn what_came_and_went_is_told_with_its_line() {
    let stream = stream();
    let a = words(&stream, &[0; 8]);
    let first: AnyOp = store(&a, 1).label("first").into();
    let second: AnyOp = store(&a, 2).into();
    let at = line!() + 1;
    let between: AnyOp = FillOp::new(&a, 3u32).unwrap().label("between").into();
    let old = line([first.clone(), second.clone()]);
    let new = line([first, between, second]);
    let there = old.diff(&new).unwrap();
    let text = there.to_string();
    assert!(
        text.contains(&format!(
            "added: fill node 1 \"between\" (crates/cuda-graph/tests/it/diff/mod.rs:{at}"
        )),
        "{text}"
    );
    let waits = "waits for: kernel node 0 `store` \"first\" -> fill node 1 \"between\"";
    assert!(text.contains(waits), "{text}");
    assert!(
        text.ends_with("an executable is not updated in place: the nodes or edges differ"),
        "{text}"
    );
    let back = new.diff(&old).unwrap();
    let text = back.to_string();
    assert!(text.contains("removed: fill node 1 \"between\""), "{text}");
    let picture = old.diff_svg(&new).unwrap();
    for part in ["added", "changed", "0: store"] {
        assert!(picture.contains(part), "{part} is missing in {picture}");
    }
    assert!(new.diff_svg(&old).unwrap().contains("removed"));
    assert!(!old.diff_svg(&old).unwrap().contains("changed"));
    assert_eq!(old.diff_svg(&old).unwrap(), old.svg().unwrap());
}

#[test]
fn an_error_says_what_is_different() {
    let stream = stream();
    let a = words(&stream, &[0; 8]);
    let old = line([FillOp::rows(&a, 1u32, 1, 2, 8)
        .unwrap()
        .label("rows")
        .into()]);
    let new = line([FillOp::rows(&a, 1u32, 2, 2, 8)
        .unwrap()
        .label("rows")
        .into()]);
    let mut exec = old.instantiate().unwrap();
    // Later edits of the definition count for nothing.
    old.add(EmptyOp::new(), ()).unwrap();
    let error = exec.update_in_place(&new).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("\n  changed: fill node 0 \"rows\""), "{text}");
    assert!(text.contains(": size: 4x2 -> 8x2"), "{text}");
    let Error::Update {
        difference: Some(difference),
        reason,
        ..
    } = error
    else {
        panic!("{text}");
    };
    assert_eq!(reason, UpdateFailure::ParametersChanged);
    assert!(matches!(
        difference.verdict(),
        Verdict::Refused {
            reason: UpdateFailure::ParametersChanged,
            ..
        }
    ));

    // What the executable does now counts, not what the definition says.
    let plain = line([store(&a, 1).into()]);
    let mut exec = plain.instantiate().unwrap();
    let node = plain.nodes().unwrap()[0].typed::<KernelOp>().unwrap();
    exec.update(node, store(&a, 5)).unwrap();
    assert_eq!(changed(&exec.diff(&plain).unwrap()), [P::Argument(1)]);
    assert!(exec.diff(&line([store(&a, 5).into()])).unwrap().is_empty());
}

#[test]
fn children_and_bodies_are_looked_into() {
    let stream = stream();
    let a = words(&stream, &[0; 8]);
    let child = |value| {
        line([ChildOp::new(&line([store(&a, value).into()]))
            .label("step")
            .into()])
    };
    let (old, new) = (child(1), child(2));
    check(&old, &new, &[P::Argument(1)]);
    let text = old.diff(&new).unwrap().to_string();
    assert!(text.contains(" in child graph node 0 \"step\""), "{text}");

    let branch = |value: u32, default: u32| {
        let graph = graph();
        let condition = graph.condition(Some(default)).unwrap();
        let node = graph.add(IfOp::new(&condition), ()).unwrap();
        graph.body(node).unwrap().add(store(&a, value), ()).unwrap();
        graph
    };
    assert!(branch(1, 1).diff(&branch(1, 1)).unwrap().is_empty());
    let difference = branch(1, 1).diff(&branch(2, 1)).unwrap();
    assert_eq!(changed(&difference), [P::Argument(1)]);
    assert!(
        difference
            .to_string()
            .contains("in body 0 of conditional node 0"),
        "{difference}"
    );
    check(&branch(1, 1), &branch(2, 1), &[P::Argument(1)]);
    assert_eq!(
        changed(&branch(1, 1).diff(&branch(1, 0)).unwrap()),
        [P::ConditionDefault]
    );
    let repeat = graph();
    let condition = repeat.condition(Some(1)).unwrap();
    let node = repeat.add(WhileOp::new(&condition), ()).unwrap();
    repeat.body(node).unwrap().add(store(&a, 1), ()).unwrap();
    let difference = branch(1, 1).diff(&repeat).unwrap();
    assert!(changed(&difference).contains(&P::Branching), "{difference}");
    assert!(matches!(
        difference.verdict(),
        Verdict::Refused {
            reason: UpdateFailure::NotSupported,
            ..
        }
    ));
}

#[test]
fn loops_side_by_side_are_foretold() {
    let loops = |count: usize| {
        let graph = graph();
        for _ in 0..count {
            let condition = graph.condition(Some(0)).unwrap();
            let node = graph.add(WhileOp::new(&condition), ()).unwrap();
            let empty = EmptyOp::new();
            graph.body(node).unwrap().add(empty, ()).unwrap();
        }
        graph
    };
    let (one, two) = (loops(1), loops(2));
    let difference = one.diff(&two).unwrap();
    assert!(
        matches!(difference.verdict(), Verdict::SideBySide { .. }),
        "{difference}"
    );
    let answer = one.instantiate().unwrap().update_in_place(&two);
    assert!(matches!(answer, Err(Error::SideBySide { .. })));
}

#[test]
fn an_executable_answers_by_the_pairs_of_the_driver() {
    let stream = stream();
    let a = words(&stream, &[0; 8]);
    // The same graph, whose nodes were made in another order.
    let old = graph();
    let [first, second] = [1, 2].map(|value| old.add(store(&a, value), ()).unwrap());
    let third = old.add(store(&a, 3), first).unwrap();
    old.add(store(&a, 4), second).unwrap();
    let new = graph();
    let [second, first] = [20, 10].map(|value| new.add(store(&a, value), ()).unwrap());
    new.add(store(&a, 30), first).unwrap();
    new.add(store(&a, 40), second).unwrap();
    let mut exec = old.instantiate().unwrap();
    exec.update_in_place(&new).unwrap();
    assert!(exec.diff(&new).unwrap().is_empty());
    let value = |node: Node<KernelOp>| exec.op(node).unwrap().arguments().get(1).unwrap().to_vec();
    let numbers = [old.nodes().unwrap()[0].typed().unwrap(), third].map(value);
    assert_eq!(
        numbers,
        [10u32, 30].map(|number| number.to_ne_bytes().to_vec())
    );
}

/// The definition grows while executables of every age come and go. Each knows the edges that it
/// was made with: it takes the graph of its age, and no other.
#[test]
fn an_executable_knows_its_definition_as_it_was() {
    let stream = stream();
    let a = words(&stream, &[0; 8]);
    let of_age = |age: u32| line((0..=age).map(|value| store(&a, value).into()));
    let others: Vec<Graph> = (0..4).map(of_age).collect();
    let definition = graph();
    let (mut last, mut executables) = (None, Vec::new());
    for age in 0..4 {
        last = Some(definition.add(store(&a, age), last).unwrap());
        // Some go at once, so that their age is known by one, by several and by none.
        for kept in [age != 2, false, age == 1] {
            let exec = definition.instantiate().unwrap();
            assert!(exec.diff(&others[age as usize]).unwrap().is_empty());
            executables.extend(kept.then_some((age, exec)));
        }
    }
    // The youngest first, and those of one age apart.
    for at in [3, 1, 2, 0] {
        let other = |age: u32, exec: &Exec| exec.diff(&others[age as usize]).unwrap();
        for (age, exec) in &executables {
            assert!(other(*age, exec).is_empty(), "age {age}");
            assert!(!other((age + 1) % 4, exec).is_empty(), "age {age}");
        }
        executables.remove(at.min(executables.len() - 1));
    }
    assert!(executables.is_empty());
    let exec = definition.instantiate().unwrap();
    assert!(exec.diff(&others[3]).unwrap().is_empty());
}

#[test]
fn edges_count_with_their_data() {
    let stream = stream();
    let a = words(&stream, &[0; 8]);
    let pair = |data: Option<EdgeData>| {
        let graph = graph();
        let (from, to) = (store(&a, 1).label("from"), store(&a, 2).label("to"));
        let (from, to) = (
            graph.add(from, ()).unwrap().id(),
            graph.add(to, ()).unwrap().id(),
        );
        graph
            .add_edges(data.map(|data| Edge { from, to, data }))
            .unwrap();
        graph
    };
    let (none, plain) = (pair(None), pair(Some(EdgeData::default())));
    check(&none, &plain, &[P::Dependencies]);
    check(
        &plain,
        &pair(Some(EdgeData::programmatic())),
        &[P::Dependencies],
    );
}

#[test]
fn foreign_blocks_are_read() {
    let stream = stream();
    let a = words(&stream, &[0; 8]);
    let other = words(&stream, &[0; 64]);
    let capture = |large: bool, twice: bool| {
        let (graph, ()) = Graph::capture(&stream, |path| {
            path.record(store(&a, 1))?;
            // SAFETY: the buffers outlive the graph.
            unsafe {
                path.foreign(|stream| {
                    for _ in 0..=usize::from(twice) {
                        let to = if large { &other } else { &a }.source();
                        let (address, bytes) = (to.address(), to.bytes());
                        memset_d8_async(address, 7, bytes, stream.cu_stream())?;
                    }
                    Ok(())
                })
            }?;
            Ok(())
        })
        .unwrap();
        graph
    };
    let (old, new) = (capture(false, false), capture(true, false));
    check(&old, &new, &[P::To, P::Size]);
    assert!(old.diff(&capture(false, false)).unwrap().is_empty());
    let twice = capture(false, true);
    let mut exec = old.instantiate().unwrap();
    let predicted = exec.diff(&twice).unwrap();
    let text = predicted.to_string();
    assert!(
        text.contains("added: fill node") && text.contains(" in child graph node 1"),
        "{text}"
    );
    let error = exec.update_in_place(&twice).unwrap_err();
    assert!(matches!(
        error,
        Error::Update {
            reason: UpdateFailure::TopologyChanged,
            difference: Some(_),
            ..
        }
    ));
    assert!(error.to_string().contains("added: fill node"), "{error}");

    // What an update put into nodes of other code cannot be read any more.
    exec.update_in_place(&new).unwrap();
    let difference = exec.diff(&old).unwrap();
    assert!(matches!(difference.verdict(), Verdict::Unknown { .. }));
    assert_eq!(changed(&difference), [P::Operation]);
    assert!(
        difference
            .to_string()
            .contains("what it does: cannot be compared")
    );
}

#[test]
fn large_graphs_take_time_in_proportion() {
    const NODES: u32 = 10_000;
    let stream = stream();
    let a = words(&stream, &[0; 8]);
    let chain = |skip: Option<u32>, changed: u32| {
        line(
            (0..NODES)
                .filter(|&at| Some(at) != skip)
                .map(|at| store(&a, if at == changed { NODES } else { at }).into()),
        )
    };
    let (old, new) = (chain(None, NODES), chain(None, 7));
    let shorter = chain(Some(NODES / 2), NODES);
    let start = Instant::now();
    assert!(old.diff(&old).unwrap().is_empty());
    assert_eq!(changed(&old.diff(&new).unwrap()), [P::Argument(1)]);
    let difference = old.diff(&shorter).unwrap();
    let removed = difference
        .changes()
        .iter()
        .filter(|it| matches!(it, Change::Removed { .. }));
    assert_eq!(removed.count(), 1);
    // What is quadratic takes minutes.
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

/// The nodes that a destroyed one waited for become ends in the driver's order, which pairs them
/// with those of another graph in that order and names the first that has no counterpart.
#[test]
fn destroying_a_node_makes_ends_in_the_drivers_order() {
    let ends = |in_pairs: bool, order: [usize; 4]| {
        let graph = graph();
        let add = |after: Vec<NodeId>| graph.add(EmptyOp::new(), after).unwrap().id();
        let mut nodes: Vec<NodeId> = Vec::new();
        for at in 0..4 {
            let after = (in_pairs && at % 2 == 1).then(|| nodes[at - 1]);
            nodes.push(add(after.into_iter().collect()));
        }
        let last = add(order.map(|at| nodes[at]).to_vec());
        graph.destroy(last).unwrap();
        graph
    };
    for order in [[0, 1, 2, 3], [2, 0, 3, 1], [3, 2, 1, 0], [1, 3, 0, 2]] {
        let (old, new) = (ends(true, order), ends(false, order));
        let mut exec = old.instantiate().unwrap();
        let predicted = exec.diff(&new).unwrap();
        random::check(&predicted, &exec.update_in_place(&new));
    }
}

#[test]
fn what_is_gone_or_elsewhere_is_an_error_or_told() {
    let stream = stream();
    let a = words(&stream, &[0; 8]);
    let outer = graph();
    let node = outer
        .add(ChildOp::new(&line([store(&a, 1).into()])), ())
        .unwrap();
    let view = outer.child(node).unwrap();
    let inside = outer.diff(&view).unwrap();
    assert!(matches!(
        inside.verdict(),
        Verdict::Refused {
            reason: UpdateFailure::Driver,
            ..
        }
    ));
    outer.destroy(node).unwrap();
    assert!(matches!(outer.diff(&view), Err(Error::GraphGone)));
    assert!(matches!(view.diff(&outer), Err(Error::GraphGone)));

    // A graph of another context. What is of a context cannot move to another.
    let Ok(context) = CudaContext::new(1) else {
        return;
    };
    let other = Graph::new(&context).unwrap();
    other.add(EmptyOp::new(), ()).unwrap();
    let same = line([EmptyOp::new().into()]);
    assert!(same.diff(&other).unwrap().is_empty());
    let exec = same.instantiate().unwrap();
    assert!(exec.diff(&other).unwrap().is_empty());
}
