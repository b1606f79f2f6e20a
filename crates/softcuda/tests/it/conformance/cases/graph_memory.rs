//! Allocation and free nodes.

use std::ptr::{null, null_mut};

use super::graph_run::{launches, runs};
use crate::conformance::api::*;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

unsafe fn alloc(graph: Handle, params: &mut AllocParams) -> Answer {
    cuGraphAddMemAllocNode(&mut 0, graph, NONE, 0, params)
}

unsafe fn free(graph: Handle, address: u64) -> Answer {
    cuGraphAddMemFreeNode(&mut 0, graph, NONE, 0, address)
}

pub const CASES: &[Case] = &[
    case!("graph/alloc/right", |line| {
        context();
        let (graph, mut params) = (graph(), alloc_params(64));
        line.says(alloc(graph, &mut params));
        line.value("address", params.address != 0);
        let (node, mut kind, mut got) = (nodes(graph)[0], 99, alloc_params(0));
        line.gives("kind", cuGraphNodeGetType(node, &mut kind), kind);
        line.says(cuGraphMemAllocNodeGetParams(node, &mut got));
        line.value("same_address", got.address == params.address);
        line.value("size", got.size);
        line.value("properties", format!("{:?}", got.properties));
        line.value("access", got.access_count);
        let empty = add_empty(graph, &[]);
        line.says_as("get_kind", cuGraphMemAllocNodeGetParams(empty, &mut got));
        line.says_as("get_out", cuGraphMemAllocNodeGetParams(node, null_mut()));
    }),
    case!("graph/alloc/wrong", |line| {
        context();
        let (graph, right) = (graph(), alloc_params(64));
        line.says_as(
            "params",
            cuGraphAddMemAllocNode(&mut 0, graph, NONE, 0, null_mut()),
        );
        line.says_as(
            "out",
            cuGraphAddMemAllocNode(null_mut(), graph, NONE, 0, &mut { right }),
        );
        line.says_as("graph", alloc(0, &mut { right }));
        line.says_as("nothing", alloc(graph, &mut alloc_params(0)));
        for (name, properties) in [
            ("kind_0", [0, 0, 1, 0]),
            ("kind_max", [u32::MAX >> 1, 0, 1, 0]),
            ("location_0", [1, 0, 0, 0]),
            ("device_99", [1, 0, 1, 99]),
            ("device_negative", [1, 0, 1, u32::MAX]),
            ("handle_type", [1, 1, 1, 0]),
        ] {
            line.says_as(
                name,
                alloc(
                    graph,
                    &mut AllocParams {
                        properties,
                        ..right
                    },
                ),
            );
        }
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/alloc/host_and_managed", |line| {
        context();
        let (graph, right) = (graph(), alloc_params(64));
        for (name, properties) in [
            ("host", [1, 0, 2, 0]),
            ("host_numa", [1, 0, 3, 0]),
            ("host_numa_current", [1, 0, 4, 0]),
            ("managed", [2, 0, 1, 0]),
            ("managed_host", [2, 0, 2, 0]),
            ("managed_nowhere", [2, 0, 0, 0]),
        ] {
            line.says_as(
                name,
                alloc(
                    graph,
                    &mut AllocParams {
                        properties,
                        ..right
                    },
                ),
            );
        }
        line.value("nodes", nodes(graph).len());
    }),
    alone!("graph/alloc/too_much", |line| {
        context();
        let graph = graph();
        line.says_as("petabyte", alloc(graph, &mut alloc_params(1 << 50)));
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/alloc/used_before_launch", |line| {
        context();
        let graph = graph();
        let (_, address) = add_alloc(graph, &[], 64);
        line.says_as("read", cuMemcpyDtoH_v2(void(&mut 0u32), address, 4));
        line.says_as("fill", cuMemsetD32_v2(address, 1, 1));
        line.says_as("free", cuMemFree_v2(address));
        line.says_as("free_async", cuMemFreeAsync(address, stream()));
        line.says(cuCtxSynchronize());
    }),
    case!("graph/free/right", |line| {
        context();
        let (graph, mut got) = (graph(), 0);
        let (node, address) = add_alloc(graph, &[], 64);
        let freeing = add_free(graph, &[node], address);
        let mut kind = 99;
        line.gives("kind", cuGraphNodeGetType(freeing, &mut kind), kind);
        line.says(cuGraphMemFreeNodeGetParams(freeing, &mut got));
        line.value("same", got == address);
        line.says_as("get_kind", cuGraphMemFreeNodeGetParams(node, &mut got));
        line.says_as("get_out", cuGraphMemFreeNodeGetParams(freeing, null_mut()));
        let (exec, stream) = (instantiate(graph), stream());
        launches(line, "first", exec, stream);
        launches(line, "second", exec, stream);
    }),
    case!("graph/free/wrong", |line| {
        context();
        let graph = graph();
        let (node, address) = add_alloc(graph, &[], 64);
        line.says_as("null", free(graph, 0));
        line.says_as("wild", free(graph, WILD));
        line.says_as("of_cu_mem_alloc", free(graph, memory(64)));
        line.says_as("inside", free(graph, address + 8));
        line.says_as(
            "out",
            cuGraphAddMemFreeNode(null_mut(), graph, &node, 1, address),
        );
        line.says_as("graph", free(0, address));
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/free/not_after_its_alloc", |line| {
        context();
        let graph = graph();
        let (_, address) = add_alloc(graph, &[], 64);
        line.says(free(graph, address));
        line.value("nodes", nodes(graph).len());
        runs(line, "run", graph);
    }),
    case!("graph/free/twice", |line| {
        context();
        let graph = graph();
        let (node, address) = add_alloc(graph, &[], 64);
        let first = add_free(graph, &[node], address);
        let again = cuGraphAddMemFreeNode(&mut 0, graph, &first, 1, address);
        line.says_as("same_graph", again);
        line.says_as("other_graph", free(crate::graphs::api::graph(), address));
    }),
    case!("graph/free/in_another_graph", |line| {
        context();
        let (allocating, freeing, stream) = (graph(), graph(), stream());
        let (_, address) = add_alloc(allocating, &[], 64);
        line.says_as("other", free(freeing, address));
        line.says_as("own", free(allocating, address));
        line.says_as("third", free(graph(), address));
        let (alloc, free) = (instantiate(allocating), instantiate(freeing));
        launches(line, "free_first", free, stream);
        launches(line, "alloc", alloc, stream);
        launches(line, "free", free, stream);
        launches(line, "alloc_again", alloc, stream);
        line.says(cuMemFree_v2(address));
        launches(line, "free_again", free, stream);
    }),
    case!("graph/alloc/launched_twice", |line| {
        context();
        let (graph, stream) = (graph(), stream());
        let (node, address) = add_alloc(graph, &[], 64);
        add_fill(graph, &[node], address, 5);
        let exec = instantiate(graph);
        launches(line, "first", exec, stream);
        line.value("word", word(address));
        launches(line, "second", exec, stream);
        line.says(cuMemFreeAsync(address, stream));
        launches(line, "third", exec, stream);
        line.says(cuMemFree_v2(address));
        line.says_as("twice", cuMemFree_v2(address));
    }),
    case!("graph/alloc/auto_free", |line| {
        context();
        let (graph, stream, mut exec) = (graph(), stream(), 0);
        let (node, address) = add_alloc(graph, &[], 64);
        add_fill(graph, &[node], address, 5);
        cuGraphInstantiateWithFlags(&mut exec, graph, 1).must();
        launches(line, "first", exec, stream);
        launches(line, "second", exec, stream);
        line.value("word", word(address));
        line.says(cuMemFree_v2(address));
    }),
    case!("graph/alloc/outlives_its_graph", |line| {
        context();
        let (graph, stream) = (graph(), stream());
        let (node, address) = add_alloc(graph, &[], 64);
        add_fill(graph, &[node], address, 5);
        let exec = instantiate(graph);
        launches(line, "run", exec, stream);
        line.says(cuGraphExecDestroy(exec));
        line.says(cuGraphDestroy(graph));
        line.value("word", word(address));
        line.says(cuMemFree_v2(address));
    }),
    case!("graph/alloc/cannot", |line| {
        context();
        let (graph, parent, mut clone) = (graph(), graph(), 0);
        let (node, address) = add_alloc(graph, &[], 64);
        let freeing = add_free(graph, &[node], address);
        let empty = add_empty(graph, &[]);
        line.says_as("clone", cuGraphClone(&mut clone, graph));
        line.says_as(
            "embed",
            cuGraphAddChildGraphNode(&mut 0, parent, NONE, 0, graph),
        );
        line.says_as("destroy_alloc", cuGraphDestroyNode(node));
        line.says_as("destroy_free", cuGraphDestroyNode(freeing));
        line.says_as(
            "remove_edge",
            cuGraphRemoveDependencies(graph, &node, &freeing, 1),
        );
        line.says_as("add_edge", add_edge(graph, node, empty));
        line.says_as("destroy_empty", cuGraphDestroyNode(empty));
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/alloc/reachable", |line| {
        context();
        let (graph, stream) = (graph(), stream());
        let (node, address) = add_alloc(graph, &[], 64);
        add_free(graph, &[node], address);
        let mut read = |what: &str| {
            line.says_as(what, cuMemcpyDtoH_v2(void(&mut 0u32), address, 4));
        };
        read("made");
        let exec = instantiate(graph);
        read("instantiated");
        cuGraphUpload(exec, stream).must();
        cuStreamSynchronize(stream).must();
        read("uploaded");
        cuGraphLaunch(exec, stream).must();
        cuStreamSynchronize(stream).must();
        read("freed_by_the_graph");
        cuGraphExecDestroy(exec).must();
        read("without_executable");
        cuGraphDestroy(graph).must();
        read("destroyed");
    }),
    case!("graph/alloc/in_a_node_of_another_graph", |line| {
        context();
        let (graph, other, pointer) = (graph(), graph(), memory(4));
        let (_, address) = add_alloc(graph, &[], 64);
        let fill = word_fill(address, 3);
        line.says(cuGraphAddMemsetNode(
            &mut 0,
            other,
            NONE,
            0,
            &fill,
            current(),
        ));
        let copy = line_copy(pointer, address, 4);
        line.says(cuGraphAddMemcpyNode(
            &mut 0,
            other,
            NONE,
            0,
            &copy,
            current(),
        ));
        let too_long = FillParams { width: 17, ..fill };
        line.says_as(
            "too_long",
            cuGraphAddMemsetNode(&mut 0, other, NONE, 0, &too_long, current()),
        );
    }),
    case!("graph/alloc/access", |line| {
        context();
        let (graph, right) = (graph(), alloc_params(64));
        for (name, access) in [
            ("read_write", [1u32, 0, 3]),
            ("read", [1, 0, 1]),
            ("none", [1, 0, 0]),
            ("device_99", [1, 99, 3]),
            ("host", [2, 0, 3]),
            ("flags", [1, 0, 9]),
        ] {
            let params = AllocParams {
                access: access.as_ptr() as usize,
                access_count: 1,
                ..right
            };
            line.says_as(name, alloc(graph, &mut { params }));
        }
        line.value("nodes", nodes(graph).len());
    }),
    alone!("graph/alloc/access_without_list", |line| {
        context();
        let graph = graph();
        let mut params = AllocParams {
            access_count: 1,
            ..alloc_params(64)
        };
        line.says(alloc(graph, &mut params));
    }),
    case!("graph/alloc/moved_child", |line| {
        context();
        let (child, parent, mut node) = (graph(), graph(), 0);
        let (first, address) = add_alloc(child, &[], 64);
        add_free(child, &[first], address);
        let mut params = node_params(4, &[child as u64, 1]);
        let answer = cuGraphAddNode_v2(&mut node, parent, NONE, null(), 0, &mut params);
        line.says_as("move", answer);
        runs(line, "run", parent);
        line.says_as("clone", cuGraphClone(&mut 0, parent));
    }),
    case!("graph/alloc/any", |line| {
        context();
        let (graph, mut node) = (graph(), 0);
        let mut params = node_params(10, &[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64]);
        line.says(cuGraphAddNode_v2(
            &mut node,
            graph,
            NONE,
            null(),
            0,
            &mut params,
        ));
        let mut got = alloc_params(0);
        line.says(cuGraphMemAllocNodeGetParams(node, &mut got));
        line.value("size", got.size);
        line.value("address", params.union[14] == got.address);
        let mut free = node_params(11, &[got.address]);
        line.says(cuGraphAddNode_v2(
            &mut 0,
            graph,
            &node,
            null(),
            1,
            &mut free,
        ));
        runs(line, "run", graph);
        line.says_as("set", cuGraphNodeSetParams(node, &mut params));
    }),
    case!("graph/alloc/access_of_two", |line| {
        context();
        let (graph, right, mut devices) = (graph(), alloc_params(64), 0);
        cuDeviceGetCount(&mut devices).must();
        for (name, other) in [
            ("twice", [1u32, 0, 3]),
            ("host_too", [2, 0, 3]),
            ("host_read", [2, 0, 1]),
            ("host_none", [2, 0, 0]),
        ] {
            // One more than there are devices.
            let mut list = vec![other; devices as usize + 1];
            list[0] = [1, 0, 3];
            let params = AllocParams {
                access: list.as_ptr() as usize,
                access_count: list.len() as _,
                ..right
            };
            line.says_as(name, alloc(graph, &mut { params }));
        }
        if let Some(&node) = nodes(graph).first() {
            let mut got = right;
            line.says(cuGraphMemAllocNodeGetParams(node, &mut got));
            line.value("count", got.access_count);
        }
    }),
];
