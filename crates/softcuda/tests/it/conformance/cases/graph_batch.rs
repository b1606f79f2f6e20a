//! Nodes of memory operations.

use std::ptr::{null, null_mut};

use super::graph_run::{launches, runs};
use crate::conformance::api::*;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::BatchOperation;
use crate::graphs::api::*;

/// Writes a word.
pub fn write(address: u64, value: u64) -> BatchOperation {
    BatchOperation {
        operation: 2,
        padding: 0,
        address,
        value,
        flags: 0,
        padding_1: 0,
        alias: 0,
        padding_2: 0,
    }
}

pub unsafe fn batch(operations: &mut [BatchOperation]) -> BatchParams {
    BatchParams {
        context: current(),
        count: operations.len() as u32,
        operations: operations.as_mut_ptr(),
        flags: 0,
    }
}

unsafe fn add_batch(graph: Handle, params: &BatchParams) -> Answer {
    cuGraphAddBatchMemOpNode(&mut 0, graph, NONE, 0, params)
}

pub const CASES: &[Case] = &[
    case!("graph/batch/right", |line| {
        context();
        let (graph, pointer) = (graph(), memory(8));
        let mut operations = [write(pointer, 3), write(pointer + 4, 4)];
        line.says(add_batch(graph, &batch(&mut operations)));
        runs(line, "run", graph);
        line.value("words", format!("{} {}", word(pointer), word(pointer + 4)));
        let mut got = batch(&mut []);
        line.says(cuGraphBatchMemOpNodeGetParams(nodes(graph)[0], &mut got));
        line.value(
            "got",
            format!("{} {} {}", got.count, got.flags, (*got.operations).value),
        );
    }),
    case!("graph/batch/wrong", |line| {
        context();
        let (graph, pointer) = (graph(), memory(8));
        let mut operations = [write(pointer, 3); 257];
        let right = batch(&mut operations[..1]);
        line.says_as(
            "null",
            cuGraphAddBatchMemOpNode(&mut 0, graph, NONE, 0, null()),
        );
        line.says_as("none", add_batch(graph, &BatchParams { count: 0, ..right }));
        line.says_as(
            "many",
            add_batch(
                graph,
                &BatchParams {
                    count: 257,
                    ..right
                },
            ),
        );
        line.says_as(
            "flags",
            add_batch(graph, &BatchParams { flags: 1, ..right }),
        );
        let no_array = BatchParams {
            operations: null_mut(),
            ..right
        };
        line.says_as("no_array", add_batch(graph, &no_array));
        line.says_as(
            "no_context",
            add_batch(
                graph,
                &BatchParams {
                    context: 0,
                    ..right
                },
            ),
        );
        (*right.operations).operation = 99;
        line.says_as("operation", add_batch(graph, &right));
        *right.operations = write(pointer + 2, 3);
        line.says_as("unaligned", add_batch(graph, &right));
        *right.operations = write(0, 3);
        line.says_as("address", add_batch(graph, &right));
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/batch/set", |line| {
        context();
        let (graph, pointer, stream) = (graph(), memory(8), stream());
        let (mut one, mut two) = (
            [write(pointer, 3)],
            [write(pointer, 5), write(pointer + 4, 6)],
        );
        add_batch(graph, &batch(&mut one)).must();
        let (node, exec, empty) = (nodes(graph)[0], instantiate(graph), add_empty(graph, &[]));
        line.says_as(
            "two",
            cuGraphBatchMemOpNodeSetParams(node, &batch(&mut two)),
        );
        line.says_as(
            "kind",
            cuGraphBatchMemOpNodeSetParams(empty, &batch(&mut two)),
        );
        one[0].value = 8;
        line.says_as(
            "exec",
            cuGraphExecBatchMemOpNodeSetParams(exec, node, &batch(&mut one)),
        );
        line.says_as(
            "exec_two",
            cuGraphExecBatchMemOpNodeSetParams(exec, node, &batch(&mut two)),
        );
        line.says(cuGraphLaunch(exec, stream));
        line.says(cuStreamSynchronize(stream));
        line.value("word", word(pointer));
    }),
    alone!("graph/batch/null_address", |line| {
        context();
        let graph = graph();
        let mut operations = [write(0, 3)];
        line.says(add_batch(graph, &batch(&mut operations)));
        runs(line, "run", graph);
    }),
    alone!("graph/batch/wild_address", |line| {
        context();
        let graph = graph();
        let mut operations = [write(WILD, 3)];
        line.says(add_batch(graph, &batch(&mut operations)));
        runs(line, "run", graph);
    }),
    case!("graph/batch/nothing", |line| {
        context();
        let graph = graph();
        line.says(add_batch(graph, &batch(&mut [])));
        runs(line, "run", graph);
    }),
    alone!("graph/batch/memory_of_a_pool", |line| {
        context();
        let (graph, stream, mut pointer) = (graph(), stream(), 0);
        cuMemAllocAsync(&mut pointer, 64, stream).must();
        cuStreamSynchronize(stream).must();
        let mut operations = [write(pointer, 3)];
        line.says_as("stream", cuStreamWriteValue32_v2(stream, pointer, 3, 0));
        line.says_as("wait", cuStreamWaitValue32_v2(stream, pointer, 0, 0));
        line.says_as("write_64", cuStreamWriteValue64_v2(stream, pointer, 3, 0));
        line.says_as(
            "batch",
            cuStreamBatchMemOp_v2(stream, 1, operations.as_mut_ptr(), 0),
        );
        line.says_as("add", add_batch(graph, &batch(&mut operations)));
        let mut exec = 0;
        line.says(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        line.says(cuGraphLaunch(exec, stream));
        line.says(cuStreamSynchronize(stream));
        line.says(cuCtxSynchronize());
    }),
    alone!("graph/batch/memory_of_a_graph", |line| {
        context();
        let (allocating, graph, stream) = (graph(), graph(), stream());
        let (_, address) = add_alloc(allocating, &[], 64);
        cuGraphLaunch(instantiate(allocating), stream).must();
        cuStreamSynchronize(stream).must();
        let mut operations = [write(address, 3)];
        line.says_as("stream", cuStreamWriteValue32_v2(stream, address, 3, 0));
        line.says_as("add", add_batch(graph, &batch(&mut operations)));
        runs(line, "run", graph);
    }),
    alone!("graph/batch/kinds_of_memory", |line| {
        context();
        for (name, address) in [("pinned", pinned(4) as u64), ("managed", managed(4))] {
            let (graph, mut operations) = (graph(), [write(address, 3)]);
            line.says_as(name, add_batch(graph, &batch(&mut operations)));
            runs(line, name, graph);
        }
    }),
    alone!("graph/batch/exec_to_memory_of_a_pool", |line| {
        context();
        let (graph, stream, mut pooled) = (graph(), stream(), 0);
        cuMemAllocAsync(&mut pooled, 64, stream).must();
        cuStreamSynchronize(stream).must();
        let (mut right, mut wrong) = ([write(memory(4), 3)], [write(pooled, 3)]);
        add_batch(graph, &batch(&mut right)).must();
        let (node, exec) = (nodes(graph)[0], instantiate(graph));
        let set = |operations: &mut [BatchOperation]| {
            cuGraphExecBatchMemOpNodeSetParams(exec, node, &batch(operations))
        };
        line.says_as("set", set(&mut wrong));
        launches(line, "wrong", exec, stream);
        line.says_as("back", set(&mut right));
        launches(line, "right", exec, stream);
    }),
];
