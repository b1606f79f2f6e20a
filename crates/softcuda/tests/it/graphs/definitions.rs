//! Definitions: nodes, edges, clones, and what is refused.

use super::*;

#[test]
fn wrong_edges_are_refused_and_leave_nothing_behind() {
    unsafe {
        context();
        let (one, two) = (graph(), graph());
        let (a, b, c) = (
            add_empty(one, &[]),
            add_empty(one, &[]),
            add_empty(two, &[]),
        );
        add_edge(one, a, b).must();
        for (from, to) in [(a, b), (a, a), (a, c), (c, a)] {
            assert_eq!(add_edge(one, from, to).code, INVALID_VALUE);
        }
        // The second pair cannot be, so the first is not added either; a second pair that is there
        // already stops after the first.
        for (from, to, edges) in [([b, a], [a, a], 1), ([b, a], [a, b], 2)] {
            assert_eq!(
                cuGraphAddDependencies(one, from.as_ptr(), to.as_ptr(), 2).code,
                INVALID_VALUE
            );
            assert_eq!(edge_count(one), edges);
        }
        let mut node = 0;
        for on in [[a, a], [a, c]] {
            assert_eq!(
                cuGraphAddEmptyNode(&mut node, one, on.as_ptr(), 2).code,
                INVALID_VALUE
            );
        }
        assert_eq!(nodes(one), [a, b]);
    }
}

#[test]
fn a_cycle_fails_when_instantiated_and_names_a_node_of_it() {
    unsafe {
        context();
        let graph = graph();
        let (before, a) = (add_empty(graph, &[]), add_empty(graph, &[]));
        let b = add_empty(graph, &[before, a]);
        let after = add_empty(graph, &[b]);
        add_edge(graph, b, a).must();
        let (mut exec, mut params) = (0, InstantiateParams::default());
        let answer = cuGraphInstantiateWithParams(&mut exec, graph, &mut params);
        assert_eq!((answer.code, exec), (INVALID_VALUE, 0));
        assert_eq!(params.result, 2);
        assert!(
            params.node == a || params.node == b,
            "{params:?}, not {after:#x}"
        );
        cuGraphRemoveDependencies(graph, &b, &a, 1).must();
        cuGraphInstantiateWithParams(&mut exec, graph, &mut params).must();
        assert_eq!((params.result, params.node), (0, 0));
    }
}

#[test]
fn what_kernels_launch_holds_work_of_the_device_alone() {
    unsafe {
        context();
        const DEVICE_LAUNCH: u64 = 4;
        let with = |graph: Handle| {
            let mut params = InstantiateParams {
                flags: DEVICE_LAUNCH,
                ..InstantiateParams::default()
            };
            let answer = cuGraphInstantiateWithParams(&mut 0, graph, &mut params);
            (answer.code, params.result, params.node)
        };
        let (fine, host) = (graph(), graph());
        add_fill(fine, &[], memory(4), 1);
        assert_eq!(with(fine), (0, 0, 0));
        let node = add_host(host, &[], Some(add_one), pointer_to(counter()));
        let (code, result, named) = with(host);
        assert_ne!(code, 0);
        assert_eq!((result, named), (3, node));
        assert_ne!(with(graph()).0, 0, "an empty graph");
        // And it cannot free by itself what it allocated.
        assert_eq!(
            cuGraphInstantiateWithFlags(&mut 0, fine, 5).code,
            INVALID_VALUE
        );
    }
}

#[test]
fn a_launch_after_its_context_ended_is_an_error() {
    if !is_software() {
        return;
    }
    unsafe {
        context();
        let stream = stream();
        let made = new_context();
        let graph = graph();
        add_fill(graph, &[], memory(4), 1);
        let exec = instantiate(graph);
        cuCtxDestroy_v2(made).must();
        assert_eq!(cuGraphLaunch(exec, stream).code, 709);
        cuStreamSynchronize(stream).must();
    }
}

#[test]
fn a_clone_is_apart_and_knows_its_nodes() {
    unsafe {
        context();
        let (original, stream, pointer) = (graph(), stream(), memory(8));
        let fill = add_fill(original, &[], pointer, 1);
        let inner = graph();
        let inner_fill = add_fill(inner, &[], pointer + 4, 2);
        let child = add_child(original, &[fill], inner);
        let (mut clone, mut cloned, mut cloned_child) = (0, 0, 0);
        cuGraphClone(&mut clone, original).must();
        cuGraphNodeFindInClone(&mut cloned, fill, clone).must();
        cuGraphNodeFindInClone(&mut cloned_child, child, clone).must();
        assert_eq!(nodes(clone), [cloned, cloned_child]);
        assert_eq!(edge_count(clone), 1);
        cuGraphMemsetNodeSetParams(cloned, &word_fill(pointer, 5)).must();
        cuGraphDestroyNode(child).must();
        cuGraphDestroy(inner).must();
        run(instantiate(original), stream);
        assert_eq!(word(pointer), 1);
        run(instantiate(clone), stream);
        assert_eq!((word(pointer), word(pointer + 4)), (5, 2));
        assert_eq!(
            cuGraphNodeFindInClone(&mut cloned_child, inner_fill, clone).code,
            INVALID_VALUE
        );
        cuGraphDestroyNode(cloned).must();
        assert_eq!(
            cuGraphNodeFindInClone(&mut cloned, fill, clone).code,
            INVALID_VALUE
        );
    }
}

#[test]
fn a_child_graph_is_a_copy_that_lives_as_long_as_its_node() {
    unsafe {
        context();
        let (parent, child, stream, pointer) = (graph(), graph(), stream(), memory(4));
        add_fill(child, &[], pointer, 1);
        let node = add_child(parent, &[], child);
        let mut own = 0;
        cuGraphChildGraphNodeGetGraph(node, &mut own).must();
        assert_ne!(own, child);
        let [fill] = nodes(own)[..] else {
            panic!("one node")
        };
        cuGraphMemsetNodeSetParams(fill, &word_fill(pointer, 3)).must();
        add_fill(own, &[fill], pointer, 4);
        run(instantiate(parent), stream);
        assert_eq!(word(pointer), 4);
        run(instantiate(child), stream);
        assert_eq!(word(pointer), 1);
        if super::is_software() {
            // On these a real driver crashes.
            assert_eq!(cuGraphDestroy(own).code, INVALID_VALUE);
            let mut wrong = 0;
            for inside in [parent, own] {
                let answer = cuGraphAddChildGraphNode(&mut wrong, own, NONE, 0, inside);
                assert_eq!(answer.code, INVALID_VALUE);
            }
            cuGraphDestroyNode(node).must();
            let mut count = 0;
            assert_eq!(
                cuGraphGetNodes(own, std::ptr::null_mut(), &mut count).code,
                INVALID_VALUE
            );
            assert_eq!(cuGraphDestroyNode(fill).code, INVALID_VALUE);
            assert_eq!(cuGraphDestroyNode(node).code, INVALID_VALUE);
        }
    }
}

#[test]
fn stale_and_wild_handles_are_errors() {
    if !super::is_software() {
        return;
    }
    unsafe {
        context();
        let graph = graph();
        let node = add_empty(graph, &[]);
        let exec = instantiate(graph);
        cuGraphDestroy(graph).must();
        let mut out = 0;
        for graph in [graph, 0, BOGUS, node, exec] {
            assert_eq!(cuGraphClone(&mut out, graph).code, INVALID_VALUE);
            assert_eq!(cuGraphDestroy(graph).code, INVALID_VALUE);
            assert_eq!(
                cuGraphAddEmptyNode(&mut out, graph, NONE, 0).code,
                INVALID_VALUE
            );
            assert_eq!(
                cuGraphInstantiateWithFlags(&mut out, graph, 0).code,
                INVALID_VALUE
            );
        }
        for node in [node, 0, BOGUS, graph, exec] {
            assert_eq!(cuGraphDestroyNode(node).code, INVALID_VALUE);
            assert_eq!(cuGraphNodeSetEnabled(exec, node, 1).code, INVALID_VALUE);
        }
        for exec in [0, BOGUS, graph, node] {
            assert_eq!(cuGraphLaunch(exec, stream()).code, INVALID_VALUE);
        }
    }
}
