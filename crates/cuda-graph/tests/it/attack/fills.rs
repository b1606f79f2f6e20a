//! Disabled fills, in executables of all kinds.

use cuda_graph::cudarc::driver::result::memset_d8_async;
use cuda_graph::testing::with_failing_call;
use cuda_graph::{
    Buffer, ChildOp, Exec, FillOp, Graph, InstantiateOptions, Node, NodeId, Optimize, Updated,
};

use crate::fixture::{context, first_child, store, stream, words};

pub(super) fn optimized() -> InstantiateOptions {
    InstantiateOptions {
        optimize: Optimize::ALL,
        ..InstantiateOptions::default()
    }
}

fn both() -> [InstantiateOptions; 2] {
    [InstantiateOptions::default(), optimized()]
}

pub(super) fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}

/// What a launch leaves in zeroed memory.
fn run(exec: &mut Exec, a: &Buffer<u32>) -> Vec<u32> {
    let stream = stream();
    a.copy_from_host(&stream, &vec![0; a.len()]).unwrap();
    exec.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    a.to_host(&stream).unwrap()
}

/// A graph whose child has one fill by other code.
fn by_others(a: &Buffer<u32>, byte: u8) -> (Graph, Node<FillOp>) {
    let stream = stream();
    let (graph, ()) = Graph::capture(&stream, |path| {
        path.record(store(a, 1000))?;
        let to = a.address();
        // SAFETY: it is there.
        unsafe { path.foreign(|stream| Ok(memset_d8_async(to, byte, 4, stream.cu_stream())?)) }?;
        Ok(())
    })
    .unwrap();
    let inner = first_child(&graph);
    let node = inner.nodes().unwrap()[0].typed().unwrap();
    (graph, node)
}

/// A graph with one fill by other code at its root.
fn root_by_others(a: &Buffer<u32>, byte: u8) -> (Graph, NodeId) {
    let stream = stream();
    let (graph, ()) = Graph::capture(&stream, |path| {
        let to = a.address();
        // SAFETY: it is there.
        unsafe {
            path.foreign(|stream| {
                memset_d8_async(to, byte, 4, stream.cu_stream())?;
                Ok(memset_d8_async(to + 4, byte, 4, stream.cu_stream())?)
            })
        }?;
        Ok(())
    })
    .unwrap();
    let nodes = graph.nodes().unwrap();
    (graph, nodes[0])
}

#[test]
fn another_childs_update_keeps_what_other_code_fills() {
    let a = words(&stream(), &[0]);
    let (inner, embedded) = (graph(), graph());
    inner.add(store(&words(&stream(), &[0]), 1), ()).unwrap();
    embedded.add(store(&words(&stream(), &[0]), 2), ()).unwrap();
    for options in both() {
        let (graph, node) = by_others(&a, 1);
        let child = graph.add(ChildOp::new(&inner), ()).unwrap();
        let mut exec = graph.instantiate_with(&options).unwrap();
        assert_eq!(run(&mut exec, &a), [0x0101_0101]);
        exec.disable(node).unwrap();
        exec.update(child, ChildOp::new(&embedded)).unwrap();
        assert!(!exec.is_enabled(node).unwrap());
        assert_eq!(run(&mut exec, &a), [1000]);
        exec.enable(node).unwrap();
        assert!(exec.is_enabled(node).unwrap());
        assert_eq!(run(&mut exec, &a), [0x0101_0101], "{options:?}");
    }
}

#[test]
fn a_fill_in_a_child_that_is_updated_stays_disabled() {
    let a = words(&stream(), &[0, 0]);
    let fill = |value: u32| {
        let graph = graph();
        graph
            .add(FillOp::new(&a.slice(0..1).unwrap(), value).unwrap(), ())
            .unwrap();
        graph
            .add(FillOp::new(&a.slice(1..2).unwrap(), value).unwrap(), ())
            .unwrap();
        graph
    };
    for options in both() {
        let graph = graph();
        let child = graph.add(ChildOp::new(&fill(1)), ()).unwrap();
        let nodes = graph.child(child).unwrap().nodes().unwrap();
        let mut exec = graph.instantiate_with(&options).unwrap();
        exec.disable(nodes[0]).unwrap();
        assert_eq!(run(&mut exec, &a), [0, 1]);
        exec.update(child, ChildOp::new(&fill(2))).unwrap();
        assert!(!exec.is_enabled(nodes[0]).unwrap());
        assert_eq!(run(&mut exec, &a), [0, 2], "{options:?}");
        exec.enable(nodes[0]).unwrap();
        assert_eq!(run(&mut exec, &a), [2, 2], "{options:?}");
    }
}

/// Fills of several shapes of 12 words.
fn shapes(a: &Buffer<u32>, value: u32) -> [FillOp; 2] {
    [
        FillOp::rows(a, value, 2, 3, 8).unwrap(),
        FillOp::rows(a, value, 2, 3, 16).unwrap(),
    ]
}

#[test]
fn a_failed_update_leaves_what_a_disabled_fill_does() {
    let a = words(&stream(), &[0; 12]);
    let mut wrong = Vec::new();
    for options in both() {
        for (from, to) in [(0, 1), (1, 0), (1, 1), (0, 0)] {
            for nth in 0.. {
                let graph = graph();
                let node = graph.add(shapes(&a, 1)[from].clone(), ()).unwrap();
                let mut exec = graph.instantiate_with(&options).unwrap();
                let before = run(&mut exec, &a);
                exec.disable(node).unwrap();
                let op = shapes(&a, 2)[to].clone();
                let (updated, fired) = with_failing_call(nth, || exec.update(node, &op));
                if !fired {
                    break;
                }
                let is_enabled = exec.is_enabled(node).unwrap();
                let now = run(&mut exec, &a);
                let told = format!("{:?}", exec.op(node).unwrap());
                exec.enable(node).unwrap();
                let after = run(&mut exec, &a);
                if updated.is_ok() {
                    continue;
                }
                let is = if is_enabled {
                    before.clone()
                } else {
                    vec![0; 12]
                };
                if now != is || after != before {
                    wrong.push(format!(
                        "{:?} {from}->{to} nth {nth}: {updated:?}\n is_enabled {is_enabled} now \
                         {now:?} enabled {after:?}, told {told}",
                        options.optimize
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_refused_update_with_a_failing_call() {
    let a = words(&stream(), &[0; 12]);
    let mut wrong = Vec::new();
    for options in both() {
        for nth in 0.. {
            let graph = graph();
            let node = graph.add(FillOp::new(&a, 1u32).unwrap(), ()).unwrap();
            let mut exec = graph.instantiate_with(&options).unwrap();
            let before = run(&mut exec, &a);
            exec.disable(node).unwrap();
            let op = shapes(&a, 2)[1].clone();
            let (updated, fired) = with_failing_call(nth, || exec.update(node, &op));
            if !fired {
                break;
            }
            let is_enabled = exec.is_enabled(node).unwrap();
            let now = run(&mut exec, &a);
            exec.enable(node).unwrap();
            let after = run(&mut exec, &a);
            let is = if is_enabled {
                before.clone()
            } else {
                vec![0; 12]
            };
            if updated.is_err() && (now != is || after != before) {
                wrong.push(format!(
                    "{:?} nth {nth}: {updated:?}\n is_enabled {is_enabled} now {now:?} enabled \
                     {after:?}",
                    options.optimize
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_failed_update_of_all_leaves_everything() {
    let mut wrong = Vec::new();
    for options in both() {
        for by_kernel in [false, true] {
            for nth in 0.. {
                let (a, b) = (words(&stream(), &[0; 2]), words(&stream(), &[0; 2]));
                let make = |a: &Buffer<u32>, value: u32| {
                    let graph = graph();
                    let one = a.slice(0..1).unwrap();
                    let fill = match by_kernel {
                        true => FillOp::by_kernel(&one, value),
                        false => FillOp::new(&one, value),
                    };
                    let node = graph.add(fill.unwrap(), ()).unwrap();
                    let two = a.slice(1..2).unwrap();
                    graph.add(FillOp::new(&two, value).unwrap(), node).unwrap();
                    (graph, node)
                };
                let (graph, node) = make(&a, 1);
                let (other, _) = make(&b, 2);
                let mut exec = graph.instantiate_with(&options).unwrap();
                exec.disable(node).unwrap();
                let (updated, fired) = with_failing_call(nth, || exec.update_in_place(&other));
                if !fired {
                    break;
                }
                if updated.is_ok() {
                    continue;
                }
                let is_enabled = exec.is_enabled(node).unwrap();
                b.copy_from_host(&stream(), &[0; 2]).unwrap();
                let now = run(&mut exec, &a);
                let other = b.to_host(&stream()).unwrap();
                if now != [u32::from(is_enabled), 1] || other != [0; 2] {
                    wrong.push(format!(
                        "{:?} by_kernel {by_kernel} nth {nth}: {updated:?}\n is_enabled \
                         {is_enabled} a {now:?} b {other:?}",
                        options.optimize
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_other_code_fills_at_the_root_follows_updates() {
    let a = words(&stream(), &[0; 3]);
    for options in both() {
        let (graph, node) = root_by_others(&a, 1);
        let (other, _) = root_by_others(&a, 2);
        let mut exec = graph.instantiate_with(&options).unwrap();
        let was = run(&mut exec, &a);
        assert_eq!(was, [0x0101_0101, 0x0101_0101, 0]);
        exec.disable(node).unwrap();
        assert_eq!(run(&mut exec, &a), [0, 0x0101_0101, 0]);
        exec.update_in_place(&other).unwrap();
        assert!(!exec.is_enabled(node).unwrap());
        assert_eq!(run(&mut exec, &a), [0, 0x0202_0202, 0]);
        exec.enable(node).unwrap();
        let is = [0x0202_0202, 0x0202_0202, 0];
        assert_eq!(run(&mut exec, &a), is, "{options:?}");
    }
}

#[test]
fn an_executable_is_made_anew_where_the_definition_lost_a_disabled_fill() {
    let a = words(&stream(), &[0, 0]);
    for options in both() {
        for disable in [false, true] {
            let graph = graph();
            let node = graph
                .add(FillOp::new(&a.slice(0..1).unwrap(), 1u32).unwrap(), ())
                .unwrap();
            graph
                .add(FillOp::new(&a.slice(1..2).unwrap(), 1u32).unwrap(), ())
                .unwrap();
            let mut exec = graph.instantiate_with(&options).unwrap();
            if disable {
                exec.disable(node).unwrap();
            }
            graph.destroy(node).unwrap();
            let updated = exec.update_from(&graph);
            assert!(
                matches!(updated, Ok(Updated::Instantiated { .. })),
                "{updated:?}"
            );
            assert_eq!(run(&mut exec, &a), [0, 1]);
        }
    }
}

#[test]
fn an_update_from_another_graph_where_the_definition_lost_a_disabled_fill() {
    let a = words(&stream(), &[0, 0]);
    let make = |value: u32| {
        let graph = graph();
        let node = graph
            .add(FillOp::new(&a.slice(0..1).unwrap(), value).unwrap(), ())
            .unwrap();
        graph
            .add(FillOp::new(&a.slice(1..2).unwrap(), value).unwrap(), ())
            .unwrap();
        (graph, node)
    };
    for options in both() {
        let ((graph, node), (other, _)) = (make(1), make(2));
        let mut exec = graph.instantiate_with(&options).unwrap();
        exec.disable(node).unwrap();
        graph.destroy(node).unwrap();
        let updated = exec.update_in_place(&other);
        // Of what passes made, the nodes are there still.
        let is_done = options.optimize != Optimize::NONE;
        assert_eq!(updated.is_ok(), is_done, "{updated:?}");
        assert_eq!(run(&mut exec, &a), [0, if is_done { 2 } else { 1 }]);
    }
}

#[test]
fn a_failed_update_of_all_leaves_no_memory_that_is_gone() {
    let a = words(&stream(), &[0; 2]);
    let make = |a: &Buffer<u32>, value: u32| {
        let graph = graph();
        let node = graph
            .add(FillOp::new(&a.slice(0..1).unwrap(), value).unwrap(), ())
            .unwrap();
        graph
            .add(FillOp::new(&a.slice(1..2).unwrap(), value).unwrap(), node)
            .unwrap();
        (graph, node)
    };
    for nth in 0.. {
        let (graph, node) = make(&a, 1);
        let b = words(&stream(), &[0; 2]);
        let (other, _) = make(&b, 2);
        let mut exec = graph.instantiate_with(&optimized()).unwrap();
        exec.disable(node).unwrap();
        let (updated, fired) = with_failing_call(nth, || exec.update_in_place(&other));
        if !fired {
            break;
        }
        drop((other, b));
        cuda_graph::testing::settle();
        let stream = stream();
        let launched = exec.launch(&stream).and_then(|_| Ok(stream.synchronize()?));
        if updated.is_err() && launched.is_err() {
            panic!("nth {nth}: {updated:?}, then {launched:?}");
        }
    }
}

#[test]
fn memsets_of_another_context_are_disabled() {
    use cuda_graph::RawOp;
    use cuda_graph::cudarc::driver::sys;
    crate::fixture::on_devices(
        2..=2,
        "attack::fills::memsets_of_another_context_are_disabled",
        |contexts| {
            for at in [0, 1] {
                let context = &contexts[at];
                let s = context.new_stream().unwrap();
                let a = words(&s, &[0; 4]);
                for own in [0, 1] {
                    let op = |value: u32, height: usize| {
                        // SAFETY: zeros are parameters.
                        let mut params: sys::CUgraphNodeParams = unsafe { std::mem::zeroed() };
                        params.type_ = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET;
                        params.__bindgen_anon_1.memset = sys::CUDA_MEMSET_NODE_PARAMS_v2 {
                            dst: a.address(),
                            pitch: 8,
                            value,
                            elementSize: 4,
                            width: 1,
                            height,
                            ctx: context.cu_ctx(),
                        };
                        // SAFETY: the memory is there.
                        unsafe { RawOp::new(params, []) }
                    };
                    for (height, options) in [1, 2].into_iter().flat_map(|h| both().map(|o| (h, o)))
                    {
                        let graph = Graph::new(&contexts[own]).unwrap();
                        let Ok(node) = graph.add(op(1, height), ()) else {
                            continue;
                        };
                        let s = contexts[own].new_stream().unwrap();
                        let sa = context.new_stream().unwrap();
                        let mut exec = graph.instantiate_with(&options).unwrap();
                        let go = |exec: &mut Exec| {
                            a.copy_from_host(&sa, &[0; 4]).unwrap();
                            sa.synchronize().unwrap();
                            exec.launch(&s).unwrap();
                            s.synchronize().unwrap();
                            a.to_host(&sa).unwrap()[0]
                        };
                        assert_eq!(go(&mut exec), 1);
                        exec.disable(node).unwrap();
                        assert_eq!(go(&mut exec), 0);
                        exec.update(node, op(2, height)).unwrap();
                        assert!(!exec.is_enabled(node).unwrap());
                        assert_eq!(go(&mut exec), 0);
                        exec.enable(node).unwrap();
                        assert_eq!(go(&mut exec), 2);
                    }
                }
            }
        },
    );
}

#[test]
fn an_update_in_a_copied_child_outlives_planning() {
    let stream = stream();
    let (a, c) = (words(&stream, &[0; 3]), words(&stream, &[0]));
    let old = words(&stream, &[0]);
    let (inner, ()) = Graph::capture(&stream, |path| {
        path.record(store(&c, 1000))?;
        let to = c.address();
        // SAFETY: it is there.
        unsafe { path.foreign(|stream| Ok(memset_d8_async(to, 1, 4, stream.cu_stream())?)) }?;
        path.record(FillOp::new(&old, 4u32)?)?;
        Ok(())
    })
    .unwrap();
    let graph = graph();
    let child = graph.add(ChildOp::new(&inner), ()).unwrap();
    let nodes = graph.child(child).unwrap().nodes().unwrap().into_iter();
    let node = nodes
        .filter_map(|node| node.typed::<FillOp>())
        .next_back()
        .unwrap();
    let with = |value: u32| {
        let graph = self::graph();
        graph
            .add(FillOp::new(&a.slice(1..2).unwrap(), value).unwrap(), ())
            .unwrap();
        graph
    };
    let second = graph.add(ChildOp::new(&with(5)), ()).unwrap();
    drop(inner);
    let mut exec = graph.instantiate_with(&optimized()).unwrap();
    exec.update(node, FillOp::new(&a.slice(0..1).unwrap(), 9u32).unwrap())
        .unwrap();
    // Planned anew.
    exec.update(second, ChildOp::new(&with(6))).unwrap();
    old.copy_from_host(&stream, &[0]).unwrap();
    assert_eq!(old.to_host(&stream).unwrap(), [0]);
}
