//! Host nodes, and nodes with events.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use super::graph_run::runs;
use crate::conformance::api::*;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

/// Adds one to the counter it is given.
unsafe extern "C" fn add_one(counter: *mut c_void) {
    (*counter.cast::<AtomicU32>()).fetch_add(1, Ordering::SeqCst);
}

/// Writes down what a driver call answers it.
unsafe extern "C" fn asks(answer: *mut c_void) {
    let code = cuMemAlloc_v2(&mut 0, 4).code;
    (*answer.cast::<AtomicU32>()).store(code, Ordering::SeqCst);
}

fn counter() -> &'static AtomicU32 {
    Box::leak(Box::new(AtomicU32::new(0)))
}

fn host(counter: &'static AtomicU32) -> HostParams {
    HostParams {
        function: Some(add_one),
        data: std::ptr::from_ref(counter).cast_mut().cast(),
    }
}

const NO_HOST: HostParams = HostParams {
    function: None,
    data: null_mut(),
};

pub const CASES: &[Case] = &[
    case!("graph/host/right", |line| {
        context();
        let (graph, seen) = (graph(), counter());
        let add = |params: &HostParams| cuGraphAddHostNode(&mut 0, graph, NONE, 0, params);
        line.says(add(&host(seen)));
        runs(line, "run", graph);
        line.value("calls", seen.load(Ordering::SeqCst));
    }),
    case!("graph/host/null", |line| {
        context();
        let (graph, seen) = (graph(), counter());
        line.says_as(
            "function",
            cuGraphAddHostNode(&mut 0, graph, NONE, 0, &NO_HOST),
        );
        line.says_as("params", cuGraphAddHostNode(&mut 0, graph, NONE, 0, null()));
        line.says_as(
            "out",
            cuGraphAddHostNode(null_mut(), graph, NONE, 0, &host(seen)),
        );
        line.says_as("graph", cuGraphAddHostNode(&mut 0, 0, NONE, 0, &host(seen)));
        line.value("nodes", nodes(graph).len());
        cuCtxSetCurrent(0).must();
        line.says_as(
            "no_context",
            cuGraphAddHostNode(&mut 0, graph, NONE, 0, &host(seen)),
        );
    }),
    case!("graph/host/calls_cuda", |line| {
        context();
        let (graph, answer) = (graph(), counter());
        let data = std::ptr::from_ref(answer).cast_mut().cast();
        add_host(graph, &[], Some(asks), data);
        runs(line, "run", graph);
        line.value(
            "inside",
            crate::conformance::error_name(answer.load(Ordering::SeqCst)),
        );
    }),
    case!("graph/host/params", |line| {
        context();
        let (graph, seen, other) = (graph(), counter(), counter());
        let node = add_host(graph, &[], Some(add_one), host(seen).data);
        let empty = add_empty(graph, &[]);
        let mut got = NO_HOST;
        line.says_as("get", cuGraphHostNodeGetParams(node, &mut got));
        line.value(
            "same",
            (got.function.is_some(), got.data) == (true, host(seen).data),
        );
        line.says_as("get_out", cuGraphHostNodeGetParams(node, null_mut()));
        line.says_as("get_kind", cuGraphHostNodeGetParams(empty, &mut got));
        line.says_as("set", cuGraphHostNodeSetParams(node, &host(other)));
        line.says_as("set_function", cuGraphHostNodeSetParams(node, &NO_HOST));
        line.says_as("set_null", cuGraphHostNodeSetParams(node, null()));
        line.says_as("set_kind", cuGraphHostNodeSetParams(empty, &host(other)));
        runs(line, "run", graph);
        let calls = [seen, other].map(|it| it.load(Ordering::SeqCst));
        line.value("calls", format!("{calls:?}"));
    }),
    case!("graph/event/record", |line| {
        context();
        let (graph, event) = (graph(), event());
        let stream = stream();
        line.says(cuGraphAddEventRecordNode(&mut 0, graph, NONE, 0, event));
        line.says_as("before", cuEventQuery(event));
        let (gate, exec) = (Gate::close(stream), instantiate(graph));
        line.says_as("instantiated", cuEventQuery(event));
        cuGraphLaunch(exec, stream).must();
        line.says_as("launched", cuEventQuery(event));
        gate.open();
        line.says(cuStreamSynchronize(stream));
        line.says_as("after", cuEventQuery(event));
    }),
    case!("graph/event/null", |line| {
        context();
        let (graph, event) = (graph(), event());
        line.says_as(
            "record",
            cuGraphAddEventRecordNode(&mut 0, graph, NONE, 0, 0),
        );
        line.says_as(
            "record_out",
            cuGraphAddEventRecordNode(null_mut(), graph, NONE, 0, event),
        );
        line.says_as("wait", cuGraphAddEventWaitNode(&mut 0, graph, NONE, 0, 0));
        line.says_as(
            "wait_out",
            cuGraphAddEventWaitNode(null_mut(), graph, NONE, 0, event),
        );
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/event/get_and_set", |line| {
        context();
        let (graph, first, second) = (graph(), event(), event());
        let (mut record, mut wait, mut got) = (0, 0, 0);
        cuGraphAddEventRecordNode(&mut record, graph, NONE, 0, first).must();
        cuGraphAddEventWaitNode(&mut wait, graph, NONE, 0, second).must();
        let names = [("first", first), ("second", second)];
        line.says(cuGraphEventRecordNodeGetEvent(record, &mut got));
        line.value("record", named(got, &names));
        line.says(cuGraphEventWaitNodeGetEvent(wait, &mut got));
        line.value("wait", named(got, &names));
        line.says_as(
            "record_kind",
            cuGraphEventRecordNodeGetEvent(wait, &mut got),
        );
        line.says_as("wait_kind", cuGraphEventWaitNodeGetEvent(record, &mut got));
        line.says_as(
            "record_out",
            cuGraphEventRecordNodeGetEvent(record, null_mut()),
        );
        line.says_as("wait_out", cuGraphEventWaitNodeGetEvent(wait, null_mut()));
        line.says(cuGraphEventRecordNodeSetEvent(record, second));
        line.says(cuGraphEventWaitNodeSetEvent(wait, first));
        cuGraphEventRecordNodeGetEvent(record, &mut got).must();
        line.value("record", named(got, &names));
        cuGraphEventWaitNodeGetEvent(wait, &mut got).must();
        line.value("wait", named(got, &names));
        line.says_as(
            "set_record_kind",
            cuGraphEventRecordNodeSetEvent(wait, first),
        );
        line.says_as("set_wait_kind", cuGraphEventWaitNodeSetEvent(record, first));
        line.says_as("set_record_null", cuGraphEventRecordNodeSetEvent(record, 0));
        line.says_as("set_wait_null", cuGraphEventWaitNodeSetEvent(wait, 0));
    }),
    case!("graph/event/wait_never_recorded", |line| {
        context();
        let graph = graph();
        line.says(cuGraphAddEventWaitNode(&mut 0, graph, NONE, 0, event()));
        runs(line, "run", graph);
    }),
    case!("graph/event/of_another_context", |line| {
        let first = context();
        let (graph, other) = (graph(), new_context());
        let elsewhere = event();
        cuCtxSetCurrent(first).must();
        line.says_as(
            "record",
            cuGraphAddEventRecordNode(&mut 0, graph, NONE, 0, elsewhere),
        );
        runs(line, "record", graph);
        let waiting = crate::graphs::api::graph();
        line.says_as(
            "wait",
            cuGraphAddEventWaitNode(&mut 0, waiting, NONE, 0, elsewhere),
        );
        runs(line, "wait", waiting);
        cuCtxDestroy_v2(other).must();
    }),
    alone!("graph/event/destroyed", |line| {
        context();
        let (graph, event, mut got) = (graph(), event(), 0);
        cuGraphAddEventRecordNode(&mut got, graph, NONE, 0, event).must();
        line.says(cuEventDestroy_v2(event));
        line.says(cuGraphDestroy(graph));
    }),
];
