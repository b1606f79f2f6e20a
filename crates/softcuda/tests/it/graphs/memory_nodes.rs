//! Allocation and free nodes.

use super::*;

#[test]
fn memory_that_a_launch_keeps_must_be_given_back_before_the_next() {
    unsafe {
        context();
        let (graph, stream) = (graph(), stream());
        let (alloc, address) = add_alloc(graph, &[], 64);
        add_fill(graph, &[alloc], address, 5);
        let exec = instantiate(graph);
        run(exec, stream);
        assert_eq!(word(address), 5);
        assert_eq!(cuGraphLaunch(exec, stream).code, INVALID_VALUE);
        cuMemFreeAsync(address, stream).must();
        run(exec, stream);
        assert_eq!(word(address), 5);
        cuMemFree_v2(address).must();
        assert_eq!(cuMemFree_v2(address).code, INVALID_VALUE);
        // It outlives graph and executable while it is the program's.
        run(exec, stream);
        cuGraphExecDestroy(exec).must();
        cuGraphDestroy(graph).must();
        assert_eq!(word(address), 5);
        cuMemFree_v2(address).must();
    }
}

#[test]
fn auto_free_gives_it_back_and_so_does_another_graph() {
    unsafe {
        context();
        let (graph, freeing, stream) = (graph(), super::api::graph(), stream());
        let (alloc, address) = add_alloc(graph, &[], 64);
        add_fill(graph, &[alloc], address, 5);
        let mut exec = 0;
        cuGraphInstantiateWithFlags(&mut exec, graph, 1).must();
        (0..5).for_each(|_| run(exec, stream));
        add_free(freeing, &[], address);
        let free = instantiate(freeing);
        run(free, stream);
        // The owning graph cannot free it any more, and nobody can free it twice.
        let mut node = 0;
        for wrong in [graph, freeing] {
            let answer = cuGraphAddMemFreeNode(&mut node, wrong, NONE, 0, address);
            assert_eq!(answer.code, INVALID_VALUE);
        }
        run(exec, stream);
        cuMemFree_v2(address).must();
    }
}

#[test]
fn a_graph_that_frees_its_own_can_run_again() {
    unsafe {
        context();
        let (graph, stream, pointer) = (graph(), stream(), memory(4));
        let (alloc, address) = add_alloc(graph, &[], 1 << 20);
        let fill = add_fill(graph, &[alloc], address, 7);
        let mut copy: crate::conformance::structs::Copy3d = std::mem::zeroed();
        (
            copy.src_kind,
            copy.src_device,
            copy.dst_kind,
            copy.dst_device,
        ) = (2, address, 2, pointer);
        (copy.width, copy.height, copy.depth) = (4, 1, 1);
        let (mut node, mut context) = (0, 0);
        cuCtxGetCurrent(&mut context).must();
        cuGraphAddMemcpyNode(&mut node, graph, &fill, 1, &copy, context).must();
        add_free(graph, &[node], address);
        let exec = instantiate(graph);
        (0..5).for_each(|_| run(exec, stream));
        assert_eq!(word(pointer), 7);
        let elsewhere = super::api::graph();
        let mut free = 0;
        let answer = cuGraphAddMemFreeNode(&mut free, elsewhere, NONE, 0, address);
        assert_eq!(answer.code, INVALID_VALUE);
    }
}

#[test]
fn what_a_graph_with_memory_nodes_cannot() {
    unsafe {
        context();
        let (graph, parent) = (graph(), super::api::graph());
        let (alloc, address) = add_alloc(graph, &[], 64);
        let free = add_free(graph, &[alloc], address);
        let exec = instantiate(graph);
        let mut out = 0;
        let must_fail = |answer: Answer| assert_ne!(answer.code, 0, "{}", answer.function);
        must_fail(cuGraphInstantiateWithFlags(&mut out, graph, 0));
        must_fail(cuGraphClone(&mut out, graph));
        must_fail(cuGraphAddChildGraphNode(&mut out, parent, NONE, 0, graph));
        must_fail(cuGraphDestroyNode(free));
        must_fail(cuGraphRemoveDependencies(graph, &alloc, &free, 1));
        cuGraphExecDestroy(exec).must();
        instantiate(graph);
    }
}

#[test]
fn a_moved_child_graph_belongs_to_its_parent() {
    unsafe {
        context();
        let (child, parent, stream, pointer) = (graph(), graph(), stream(), memory(4));
        let (alloc, address) = add_alloc(child, &[], 64);
        let fill = add_fill(child, &[alloc], address, 5);
        add_free(child, &[fill], address);
        add_fill(child, &[], pointer, 9);
        let mut node = 0;
        let mut params = node_params(4, &[child as u64, 1]);
        cuGraphAddNode_v2(&mut node, parent, NONE, std::ptr::null(), 0, &mut params).must();
        let mut own = 0;
        cuGraphChildGraphNodeGetGraph(node, &mut own).must();
        assert_eq!(own, child);
        let exec = instantiate(parent);
        (0..3).for_each(|_| run(exec, stream));
        assert_eq!(word(pointer), 9);
        if is_software() {
            let mut out = 0;
            assert_ne!(cuGraphInstantiateWithFlags(&mut out, child, 0).code, 0);
            assert_ne!(cuGraphDestroy(child).code, 0);
            let answer = cuGraphAddNode_v2(
                &mut out,
                child,
                NONE,
                std::ptr::null(),
                0,
                &mut node_params(4, &[parent as u64, 1]),
            );
            assert_ne!(answer.code, 0, "a graph inside itself");
        }
    }
}
