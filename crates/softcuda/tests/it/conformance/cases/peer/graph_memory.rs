//! Allocation and free nodes on a device that is not the current one.

use super::super::graph_run::launches;
use super::{enable, reads, synchronizes};
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, two_devices};
use crate::conformance::fixture::*;
use crate::conformance::sides::access;
use crate::conformance::structs::Access;
use crate::graphs::api::*;

/// Parameters of memory on a device, that some devices may use.
fn on_device(device: i32, wishes: &[Access]) -> AllocParams {
    let mut params = alloc_params(4);
    params.properties[3] = device as u32;
    (params.access, params.access_count) = (wishes.as_ptr() as usize, wishes.len());
    params
}

/// Adds an allocation node.
unsafe fn add(line: &mut Line, graph: Handle, params: &mut AllocParams) -> Handle {
    let mut node = 0;
    line.says_as(
        "add",
        cuGraphAddMemAllocNode(&mut node, graph, NONE, 0, params),
    );
    node
}

pub const CASES: &[Case] = &[
    two_devices!("peer/graph_memory/on_other", |line, zero, one| {
        let (graph, mut params) = (graph(), on_device(1, &[]));
        add(line, graph, &mut params);
        launches(line, "run", instantiate(graph), zero.stream);
        let mut ordinal = -7;
        line.gives(
            "device",
            cuPointerGetAttribute(void(&mut ordinal), 9, params.address),
            ordinal,
        );
        line.says_as("fill", cuMemsetD32_v2(params.address, 7, 1));
        line.says_as("store", one.store(params.address, 8));
        reads(line, "value", params.address);
        line.says_as("free", cuMemFree_v2(params.address));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/graph_memory/without_access", |line, zero, one| {
        let (graph, mut params) = (graph(), on_device(1, &[]));
        add(line, graph, &mut params);
        launches(line, "run", instantiate(graph), zero.stream);
        line.says_as("store", zero.store(params.address, 8));
        synchronizes(line, [zero, one]);
    }),
    two_devices!(
        "peer/graph_memory/with_peer_access_only",
        |line, zero, one| {
            enable(zero, one);
            let (graph, mut params) = (graph(), on_device(1, &[]));
            add(line, graph, &mut params);
            launches(line, "run", instantiate(graph), zero.stream);
            line.says_as("store", zero.store(params.address, 8));
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/graph_memory/with_access", |line, zero, one| {
        let wishes = [access(0)];
        let (graph, mut params) = (graph(), on_device(1, &wishes));
        let node = add(line, graph, &mut params);
        let mut found = alloc_params(0);
        line.gives(
            "access_count",
            cuGraphMemAllocNodeGetParams(node, &mut found),
            found.access_count,
        );
        launches(line, "run", instantiate(graph), zero.stream);
        line.says_as("store", zero.store(params.address, 8));
        reads(line, "value", params.address);
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/graph_memory/access_wrong", |line, _zero, _one| {
        let graph = graph();
        for (what, wish) in [
            ("own", access(1)),
            ("far", access(1000)),
            ("negative", access(-1)),
            (
                "read_only",
                Access {
                    flags: 1,
                    ..access(0)
                },
            ),
            (
                "none",
                Access {
                    flags: 0,
                    ..access(0)
                },
            ),
            (
                "flags_9",
                Access {
                    flags: 9,
                    ..access(0)
                },
            ),
        ] {
            let wishes = [wish];
            line.says_as(
                what,
                cuGraphAddMemAllocNode(&mut 0, graph, NONE, 0, &mut on_device(1, &wishes)),
            );
        }
        let twice = [access(0), access(0)];
        line.says_as(
            "twice",
            cuGraphAddMemAllocNode(&mut 0, graph, NONE, 0, &mut on_device(1, &twice)),
        );
        line.value("nodes", nodes(graph).len());
    }),
    two_devices!(
        "peer/graph_memory/used_by_nodes_of_both",
        |line, zero, one| {
            let wishes = [access(0)];
            let (graph, mut params) = (graph(), on_device(1, &wishes));
            let alloc = add(line, graph, &mut params);
            let store = zero.function(c"store");
            let first = add_store(graph, &[alloc], store, params.address, 5);
            one.enter();
            let load = one.function(c"load");
            let (mut to, mut from) = (one.word, params.address);
            let mut values = [void(&mut to), void(&mut from)];
            let second = add_kernel(graph, &[first], load, &mut values);
            add_free(graph, &[second], params.address);
            zero.enter();
            let exec = instantiate(graph);
            launches(line, "first", exec, zero.stream);
            launches(line, "second", exec, one.stream);
            synchronizes(line, [zero, one]);
            reads(line, "value", one.word);
        }
    ),
    two_devices!(
        "peer/graph_memory/freed_in_its_stream",
        |line, zero, one| {
            let (graph, mut params) = (graph(), on_device(1, &[]));
            add(line, graph, &mut params);
            launches(line, "run", instantiate(graph), zero.stream);
            line.says_as("free", cuMemFreeAsync(params.address, one.stream));
            line.says_as("free_twice", cuMemFreeAsync(params.address, zero.stream));
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/graph_memory/counts", |line, zero, one| {
        const USED: u32 = 0;
        let (graph, mut params) = (graph(), on_device(1, &[]));
        add(line, graph, &mut params);
        launches(line, "run", instantiate(graph), zero.stream);
        for device in 0..2 {
            let mut used = 0;
            line.gives(
                format!("used_{device}"),
                cuDeviceGetGraphMemAttribute(device, USED, &mut used),
                used != 0,
            );
        }
        line.says_as("trim_zero", cuDeviceGraphMemTrim(0));
        line.says_as("trim_one", cuDeviceGraphMemTrim(1));
        synchronizes(line, [zero, one]);
    }),
];
