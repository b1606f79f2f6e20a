//! New parameters for kernels, host functions and events of an executable.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use super::graph_run::launches;
use crate::conformance::api::*;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

unsafe extern "C" fn nothing(_: *mut c_void) {}

fn host() -> HostParams {
    HostParams {
        function: Some(nothing),
        data: null_mut(),
    }
}

pub const CASES: &[Case] = &[
    case!("graph/exec_kernel/right", |line| {
        context();
        let (graph, pointer, module) = (graph(), memory(16), module());
        let (store, empty) = (function_of(module, c"store"), function_of(module, c"empty"));
        let node = add_store(graph, &[], store, pointer, 1);
        let (exec, stream) = (instantiate(graph), stream());
        let (mut to, mut value) = (pointer, 2u32);
        let values = &mut [void(&mut to), void(&mut value)];
        let params = kernel_params(store, values);
        line.says_as(
            "values",
            cuGraphExecKernelNodeSetParams_v2(exec, node, &params),
        );
        launches(line, "values", exec, stream);
        line.value("word", word(pointer));
        let wider = KernelParams {
            grid: [8, 1, 1],
            block: [32, 1, 1],
            shared: 64,
            ..params
        };
        line.says_as(
            "shape",
            cuGraphExecKernelNodeSetParams_v2(exec, node, &wider),
        );
        let another = kernel_params(empty, &mut []);
        line.says_as(
            "function",
            cuGraphExecKernelNodeSetParams_v2(exec, node, &another),
        );
        launches(line, "function", exec, stream);
        line.says_as(
            "back",
            cuGraphExecKernelNodeSetParams_v2(exec, node, &params),
        );
        let elsewhere = kernel_params(function(c"empty"), &mut []);
        line.says_as(
            "module",
            cuGraphExecKernelNodeSetParams_v2(exec, node, &elsewhere),
        );
        launches(line, "module", exec, stream);
    }),
    case!("graph/exec_kernel/wrong", |line| {
        context();
        let (graph, other, empty) = (graph(), graph(), function(c"empty"));
        let node = add_kernel(graph, &[], empty, &mut []);
        let (fill, foreign) = (
            add_fill(graph, &[], memory(4), 1),
            add_kernel(other, &[], empty, &mut []),
        );
        let exec = instantiate(graph);
        let late = add_kernel(graph, &[], empty, &mut []);
        let params = kernel_params(empty, &mut []);
        let set =
            |node, params: &KernelParams| cuGraphExecKernelNodeSetParams_v2(exec, node, params);
        line.says_as("foreign", set(foreign, &params));
        line.says_as("late", set(late, &params));
        line.says_as("kind", set(fill, &params));
        line.says_as("node", set(0, &params));
        line.says_as("exec", cuGraphExecKernelNodeSetParams_v2(0, node, &params));
        line.says_as(
            "params",
            cuGraphExecKernelNodeSetParams_v2(exec, node, null()),
        );
        line.says_as(
            "function",
            set(
                node,
                &KernelParams {
                    function: 0,
                    ..params
                },
            ),
        );
        line.says_as(
            "grid",
            set(
                node,
                &KernelParams {
                    grid: [0; 3],
                    ..params
                },
            ),
        );
        line.says_as(
            "block",
            set(
                node,
                &KernelParams {
                    block: [1025, 1, 1],
                    ..params
                },
            ),
        );
        line.says_as(
            "shared",
            set(
                node,
                &KernelParams {
                    shared: 100 << 10,
                    ..params
                },
            ),
        );
        launches(line, "still", exec, stream());
    }),
    alone!("graph/exec_kernel/node_destroyed", |line| {
        context();
        let (graph, empty) = (graph(), function(c"empty"));
        let node = add_kernel(graph, &[], empty, &mut []);
        let exec = instantiate(graph);
        line.says(cuGraphDestroyNode(node));
        let params = kernel_params(empty, &mut []);
        line.says(cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
    }),
    alone!("graph/exec_kernel/graph_destroyed", |line| {
        context();
        let (graph, empty) = (graph(), function(c"empty"));
        let node = add_kernel(graph, &[], empty, &mut []);
        let exec = instantiate(graph);
        line.says(cuGraphDestroy(graph));
        let params = kernel_params(empty, &mut []);
        line.says(cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
    }),
    case!("graph/exec_kernel/other_context", |line| {
        let first = context();
        let graph = graph();
        let node = add_kernel(graph, &[], function(c"empty"), &mut []);
        let exec = instantiate(graph);
        new_context();
        let elsewhere = kernel_params(function(c"empty"), &mut []);
        line.says_as(
            "there",
            cuGraphExecKernelNodeSetParams_v2(exec, node, &elsewhere),
        );
        cuCtxSetCurrent(first).must();
        line.says_as(
            "here",
            cuGraphExecKernelNodeSetParams_v2(exec, node, &elsewhere),
        );
        launches(line, "still", exec, stream());
    }),
    case!("graph/exec_host/set", |line| {
        context();
        let graph = graph();
        let node = add_host(graph, &[], Some(nothing), null_mut());
        let empty = add_empty(graph, &[]);
        let exec = instantiate(graph);
        line.says_as("right", cuGraphExecHostNodeSetParams(exec, node, &host()));
        let none = HostParams {
            function: None,
            ..host()
        };
        line.says_as("function", cuGraphExecHostNodeSetParams(exec, node, &none));
        line.says_as("kind", cuGraphExecHostNodeSetParams(exec, empty, &host()));
        line.says_as("params", cuGraphExecHostNodeSetParams(exec, node, null()));
        line.says_as("exec", cuGraphExecHostNodeSetParams(0, node, &host()));
        launches(line, "run", exec, stream());
    }),
    case!("graph/exec_event/set", |line| {
        context();
        let (graph, first, second) = (graph(), event(), event());
        let (mut record, mut wait) = (0, 0);
        cuGraphAddEventRecordNode(&mut record, graph, NONE, 0, first).must();
        cuGraphAddEventWaitNode(&mut wait, graph, NONE, 0, event()).must();
        let exec = instantiate(graph);
        line.says_as(
            "record",
            cuGraphExecEventRecordNodeSetEvent(exec, record, second),
        );
        line.says_as(
            "wait",
            cuGraphExecEventWaitNodeSetEvent(exec, wait, event()),
        );
        line.says_as(
            "record_kind",
            cuGraphExecEventRecordNodeSetEvent(exec, wait, second),
        );
        line.says_as(
            "wait_kind",
            cuGraphExecEventWaitNodeSetEvent(exec, record, second),
        );
        line.says_as(
            "record_null",
            cuGraphExecEventRecordNodeSetEvent(exec, record, 0),
        );
        line.says_as("wait_null", cuGraphExecEventWaitNodeSetEvent(exec, wait, 0));
        line.says_as(
            "exec",
            cuGraphExecEventRecordNodeSetEvent(0, record, second),
        );
        launches(line, "run", exec, stream());
        let mut time = 0.0;
        line.says_as("first", cuEventElapsedTime_v2(&mut time, first, first));
        line.says_as("second", cuEventElapsedTime_v2(&mut time, second, second));
    }),
];
