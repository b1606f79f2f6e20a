//! Executables as snapshots, and what updates reach.

use super::*;

#[test]
fn an_executable_does_not_see_what_happens_to_the_definition() {
    unsafe {
        context();
        let (graph, stream, pointer) = (graph(), stream(), memory(8));
        let node = add_store(graph, &[], function(c"store"), pointer, 1);
        let exec = instantiate(graph);
        let (mut to, mut value) = (pointer, 2u32);
        let values = &mut [void(&mut to), void(&mut value)];
        cuGraphKernelNodeSetParams_v2(node, &kernel_params(function(c"store"), values)).must();
        add_fill(graph, &[node], pointer, 3);
        run(exec, stream);
        assert_eq!(word(pointer), 1);
        cuGraphDestroy(graph).must();
        run(exec, stream);
    }
}

#[test]
fn an_update_reaches_later_launches_alone() {
    unsafe {
        context();
        let module = module();
        let store = function_of(module, c"store");
        let (graph, stream, pointer) = (graph(), stream(), memory(12));
        let node = add_store(graph, &[], store, pointer, 1);
        let exec = instantiate(graph);
        let gate = Gate::close(stream);
        cuGraphLaunch(exec, stream).must();
        let (mut to, mut value) = (pointer + 4, 2u32);
        let values = &mut [void(&mut to), void(&mut value)];
        cuGraphExecKernelNodeSetParams_v2(exec, node, &kernel_params(store, values)).must();
        cuGraphLaunch(exec, stream).must();
        cuGraphNodeSetEnabled(exec, node, 0).must();
        cuGraphLaunch(exec, stream).must();
        (to, value) = (pointer + 8, 3);
        let values = &mut [void(&mut to), void(&mut value)];
        cuGraphExecKernelNodeSetParams_v2(exec, node, &kernel_params(store, values)).must();
        cuGraphNodeSetEnabled(exec, node, 1).must();
        cuGraphLaunch(exec, stream).must();
        gate.open();
        cuStreamSynchronize(stream).must();
        assert_eq!([0, 4, 8].map(|at| word(pointer + at)), [1, 2, 3]);
        // Not the definition's.
        run(instantiate(graph), stream);
        assert_eq!([0, 4, 8].map(|at| word(pointer + at)), [1, 2, 3]);
    }
}

#[test]
fn a_whole_update_pairs_nodes_by_their_edges() {
    unsafe {
        context();
        let (stream, pointer) = (stream(), memory(8));
        // The same shape, its nodes made in another order.
        let first = graph();
        let a = add_fill(first, &[], pointer, 1);
        add_fill(first, &[a], pointer + 4, 2);
        let second = graph();
        let late = add_fill(second, &[], pointer + 4, 20);
        let early = add_fill(second, &[], pointer, 10);
        add_edge(second, early, late).must();
        let exec = instantiate(first);
        let mut info = UpdateInfo::default();
        cuGraphExecUpdate_v2(exec, second, &mut info).must();
        assert_eq!(info, UpdateInfo::default());
        run(exec, stream);
        assert_eq!((word(pointer), word(pointer + 4)), (10, 20));

        // Wrong shapes and kinds change nothing.
        let fewer = graph();
        add_fill(fewer, &[], pointer, 5);
        assert_eq!(cuGraphExecUpdate_v2(exec, fewer, &mut info).code, 910);
        assert_eq!((info.result, info.node), (2, 0));
        let other = graph();
        let empty = add_empty(other, &[]);
        add_fill(other, &[empty], pointer, 5);
        assert_eq!(cuGraphExecUpdate_v2(exec, other, &mut info).code, 910);
        assert_eq!((info.result, info.node), (3, empty));
        let apart = graph();
        add_fill(apart, &[], pointer, 5);
        add_fill(apart, &[], pointer, 6);
        assert_eq!(cuGraphExecUpdate_v2(exec, apart, &mut info).code, 910);
        assert_eq!(info.result, 2);
        run(exec, stream);
        assert_eq!((word(pointer), word(pointer + 4)), (10, 20));
    }
}

#[test]
fn nodes_of_a_child_graph_are_updated_through_its_handle() {
    unsafe {
        context();
        let (parent, child, stream, pointer) = (graph(), graph(), stream(), memory(8));
        let module = module();
        let store = function_of(module, c"store");
        add_store(child, &[], store, pointer, 1);
        let first = add_fill(parent, &[], pointer, 0);
        let node = add_child(parent, &[first], child);
        let exec = instantiate(parent);
        let mut own = 0;
        cuGraphChildGraphNodeGetGraph(node, &mut own).must();
        let inner = nodes(own)[0];
        let (mut to, mut value) = (pointer, 2u32);
        let values = &mut [void(&mut to), void(&mut value)];
        cuGraphExecKernelNodeSetParams_v2(exec, inner, &kernel_params(store, values)).must();
        run(exec, stream);
        assert_eq!(word(pointer), 2);
        let other = graph();
        add_store(other, &[], store, pointer, 3);
        cuGraphExecChildGraphNodeSetParams(exec, node, other).must();
        run(exec, stream);
        assert_eq!(word(pointer), 3);
        cuGraphNodeSetEnabled(exec, inner, 0).must();
        run(exec, stream);
        assert_eq!(word(pointer), 0);
    }
}
