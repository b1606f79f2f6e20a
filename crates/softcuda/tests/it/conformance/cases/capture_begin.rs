//! Captures begun and ended, by whom and on which streams.

use std::ptr::{null, null_mut};

use super::capture_setting::*;
use crate::capture::api::*;
use crate::conformance::api::*;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

/// The name of a mode.
const MODES: [(&str, u32); 3] = [
    ("global", GLOBAL),
    ("local", THREAD_LOCAL),
    ("relaxed", RELAXED),
];

/// Adds a node to a stream's capture.
unsafe fn step(stream: Handle, empty: Handle) {
    launch(empty, 1, 1, stream, &mut []).must();
}

pub const CASES: &[Case] = &[
    case!("capture/begin/streams", |line| {
        context();
        let (stream, mut blocking) = (stream(), 0);
        cuStreamCreate(&mut blocking, 0).must();
        for (name, stream) in [
            ("null", 0),
            ("legacy", LEGACY),
            ("per_thread", PER_THREAD),
            ("non_blocking", stream),
            ("blocking", blocking),
        ] {
            line.says_as(name, cuStreamBeginCapture_v2(stream, GLOBAL));
            line.value("state", state(stream));
            line.value("legacy_state", state(LEGACY));
            line.value("end", ending(stream));
        }
    }),
    case!("capture/begin/modes", |line| {
        context();
        let stream = stream();
        for mode in [0, 1, 2, 3, u32::MAX] {
            line.says_as(
                format!("mode_{mode}"),
                cuStreamBeginCapture_v2(stream, mode),
            );
            line.value("end", ending(stream));
        }
        line.says_as("wrong_on_legacy", cuStreamBeginCapture_v2(0, 3));
        begin(stream, GLOBAL);
        line.says_as("wrong_in_capture", cuStreamBeginCapture_v2(stream, 3));
        line.value("end", ending(stream));
    }),
    case!("capture/begin/twice", |line| {
        context();
        let stream = stream();
        for mode in [GLOBAL, RELAXED] {
            begin(stream, mode);
            line.says_as("again", cuStreamBeginCapture_v2(stream, mode));
            line.value("state", state(stream));
            line.value("end", ending(stream));
            line.value("end_again", ending(stream));
        }
    }),
    case!("capture/begin/with_work_before", |line| {
        context();
        let (stream, empty) = (stream(), function(c"empty"));
        let gate = Gate::close(stream);
        line.says(cuStreamBeginCapture_v2(stream, RELAXED));
        step(stream, empty);
        line.value("end", ending(stream));
        gate.open();
        line.says(cuStreamSynchronize(stream));
    }),
    case!("capture/begin/in_other_context", |line| {
        context();
        let stream = stream();
        let other = new_context();
        line.says(cuStreamBeginCapture_v2(stream, GLOBAL));
        line.value("end", ending(stream));
        cuCtxSetCurrent(0).must();
        line.says_as("no_context", cuStreamBeginCapture_v2(stream, GLOBAL));
        line.value("end", ending(stream));
        cuCtxDestroy_v2(other).must();
    }),
    case!("capture/end/not_begun", |line| {
        context();
        for (name, stream) in [
            ("stream", stream()),
            ("null", 0),
            ("per_thread", PER_THREAD),
        ] {
            line.value(name, ending(stream));
        }
        line.says_as("null_out", cuStreamEndCapture(stream(), null_mut()));
    }),
    case!("capture/end/null_out", |line| {
        context();
        let stream = stream();
        begin(stream, GLOBAL);
        line.says(cuStreamEndCapture(stream, null_mut()));
        line.value("state", state(stream));
        line.value("end", ending(stream));
    }),
    case!("capture/end/elsewhere", |line| {
        let (context, empty) = (context(), function(c"empty"));
        for (name, mode) in MODES {
            let stream = stream();
            begin(stream, mode);
            step(stream, empty);
            let answer = elsewhere(context, || ending(stream));
            line.value(name, answer);
            line.value("state", state(stream));
            line.value("end", ending(stream));
            line.says(cuStreamSynchronize(stream));
        }
    }),
    case!("capture/end/invalidated_elsewhere", |line| {
        let context = context();
        for (name, mode) in MODES {
            let stream = stream();
            begin(stream, mode);
            cuStreamSynchronize(stream).ignore();
            line.value("before", state(stream));
            line.value(name, elsewhere(context, || ending(stream)));
            line.value("state", state(stream));
        }
    }),
    case!("capture/end/begun_by_a_thread_that_is_gone", |line| {
        let context = context();
        for (name, mode) in MODES {
            let stream = stream();
            elsewhere(context, || begin(stream, mode));
            line.says_as(name, cuMemAlloc_v2(&mut 0, 4));
            line.value("state", state(stream));
            line.value("end", ending(stream));
        }
    }),
    case!("capture/end/per_thread_of_a_thread_that_is_gone", |line| {
        let context = context();
        elsewhere(context, || begin(PER_THREAD, GLOBAL));
        line.says(cuMemAlloc_v2(&mut 0, 4));
        line.value("legacy", state(LEGACY));
        line.value("own", state(PER_THREAD));
    }),
    case!("capture/end/recorded_elsewhere", |line| {
        let (context, empty) = (context(), function(c"empty"));
        for (name, mode) in MODES {
            let stream = stream();
            begin(stream, mode);
            elsewhere(context, || step(stream, empty));
            line.value(name, ending(stream));
        }
    }),
    case!("capture/end/of_a_fork", |line| {
        let (context, empty) = (context(), function(c"empty"));
        for (name, away) in [("here", false), ("elsewhere", true)] {
            let [main, side] = [stream(), stream()];
            begin(main, GLOBAL);
            step(main, empty);
            order(main, side);
            let answer = match away {
                false => ending(side),
                true => elsewhere(context, || ending(side)),
            };
            line.value(name, answer);
            line.value("main", state(main));
            line.value("side", state(side));
            line.value("side_again", ending(side));
            line.value("end", ending(main));
            line.value("main", state(main));
            line.value("side", state(side));
            line.says(cuStreamSynchronize(side));
        }
    }),
    case!("capture/end/unjoined_elsewhere", |line| {
        let (context, empty) = (context(), function(c"empty"));
        let [main, side] = [stream(), stream()];
        begin(main, THREAD_LOCAL);
        order(main, side);
        step(side, empty);
        line.value("end", elsewhere(context, || ending(main)));
        line.value("state", state(main));
    }),
    alone!("capture/end/stream_destroyed", |line| {
        context();
        let empty = function(c"empty");
        for (name, mode) in MODES {
            let [main, side] = [stream(), stream()];
            begin(main, mode);
            order(main, side);
            step(side, empty);
            let graph = graph_of(main);
            line.says_as(name, cuStreamDestroy_v2(main));
            line.value("side", state(side));
            line.value("end_side", ending(side));
            line.value("nodes", count_of(graph));
            line.says_as("launch", launch(empty, 1, 1, side, &mut []));
            line.says_as("alloc", cuMemAlloc_v2(&mut 0, 4));
        }
    }),
    case!("capture/end/fork_destroyed", |line| {
        context();
        let empty = function(c"empty");
        for (name, work, joined) in [
            ("idle", false, false),
            ("joined", true, true),
            ("unjoined", true, false),
        ] {
            let [main, side] = [stream(), stream()];
            begin(main, GLOBAL);
            step(main, empty);
            order(main, side);
            if work {
                step(side, empty);
            }
            if joined {
                order(side, main);
            }
            line.says_as(name, cuStreamDestroy_v2(side));
            line.value("state", state(main));
            line.value("end", ending(main));
        }
    }),
    case!("capture/end/context_destroyed", |line| {
        let first = context();
        let other = new_context();
        let stream = stream();
        begin(stream, GLOBAL);
        line.says(cuCtxDestroy_v2(other));
        cuCtxSetCurrent(first).must();
        line.says(cuMemAlloc_v2(&mut 0, 4));
        line.says(cuCtxSynchronize());
    }),
    case!("capture/per_thread/functions", |line| {
        context();
        let (mut status, mut graph) = (77, 0);
        line.says(cuStreamBeginCapture_v2_ptsz(0, RELAXED));
        line.says(cuLaunchHostFunc_ptsz(0, Some(nothing_done), null_mut()));
        let answer = cuStreamIsCapturing_ptsz(0, &mut status);
        line.gives("status", answer, status);
        line.value("by_handle", depends(PER_THREAD));
        line.says_as("legacy_copy", cuMemcpyDtoD_v2(memory(8), memory(8), 8));
        line.value("state", state(PER_THREAD));
        line.says(cuStreamEndCapture_ptsz(0, &mut graph));
        line.value("graph", graph);
    }),
    case!("capture/per_thread/calls_that_wait", |line| {
        context();
        let (memory, mut host) = (memory(64), [0u32; 4]);
        type Call = unsafe fn(u64, *mut u32) -> Answer;
        let calls: [(&str, Call); 3] = [
            ("from_host", |memory, host| {
                cuMemcpyHtoD_v2_ptds(memory, host.cast(), 8)
            }),
            ("on_device", |memory, _| {
                cuMemcpyDtoD_v2_ptds(memory, memory + 32, 8)
            }),
            ("fill", |memory, _| cuMemsetD32_v2_ptds(memory, 1, 4)),
        ];
        for (name, call) in calls {
            begin(PER_THREAD, RELAXED);
            line.says_as(name, call(memory, host.as_mut_ptr()));
            line.value("end", ending(PER_THREAD));
        }
    }),
    case!("capture/to_graph/right", |line| {
        context();
        let (stream, empty, graph) = (stream(), function(c"empty"), graph());
        let list = [add_empty(graph, &[]), add_empty(graph, &[])];
        line.says(begin_to(stream, graph, &list, None, GLOBAL));
        line.value("same_graph", graph_of(stream) == graph);
        line.value("depends", depends(stream));
        step(stream, empty);
        let mut clone = 0;
        line.says(cuGraphClone(&mut clone, graph));
        let mut ended = 0;
        line.says(cuStreamEndCapture(stream, &mut ended));
        line.value("same_graph", ended == graph);
        line.value("shape", shape(graph));
        line.says(cuGraphInstantiateWithFlags(&mut 0, graph, 0));
        line.says(cuGraphDestroy(graph));
    }),
    case!("capture/to_graph/arguments", |line| {
        context();
        let (stream, graph) = (stream(), graph());
        let node = add_empty(graph, &[]);
        let foreign = add_empty(crate::graphs::api::graph(), &[]);
        for (name, list) in [
            ("twice", &[node, node][..]),
            ("foreign", &[foreign]),
            ("one_foreign", &[node, foreign]),
            ("none", &[]),
        ] {
            line.says_as(name, begin_to(stream, graph, list, None, GLOBAL));
            line.value("depends", depends(stream));
            line.value("end", ending(stream));
        }
        let answer = cuStreamBeginCaptureToGraph(stream, graph, null(), null(), 1, GLOBAL);
        line.says_as("null_list", answer);
        line.says_as("mode", begin_to(stream, graph, &[node], None, 3));
        line.says_as("legacy", begin_to(0, graph, &[node], None, GLOBAL));
        line.says_as("null_graph", begin_to(stream, 0, &[], None, GLOBAL));
        begin(stream, GLOBAL);
        line.says_as("in_capture", begin_to(stream, graph, &[], None, GLOBAL));
        line.value("end", ending(stream));
    }),
    case!("capture/to_graph/data", |line| {
        context();
        let (stream, empty, graph) = (stream(), function(c"empty"), graph());
        let (kernel, other) = (
            add_kernel(graph, &[], empty, &mut []),
            add_empty(graph, &[]),
        );
        for (name, node, port, to_port, kind) in [
            ("programmatic", kernel, 1, 0, 1),
            ("at_block_start", kernel, 2, 0, 1),
            ("launch_order", kernel, 2, 0, 0),
            ("port_alone", kernel, 1, 0, 0),
            ("kind_alone", kernel, 0, 0, 1),
            ("to_port", kernel, 0, 1, 0),
            ("of_no_kernel", other, 1, 0, 1),
        ] {
            let data = edge_data(port, to_port, kind);
            line.says_as(name, begin_to(stream, graph, &[node], Some(data), GLOBAL));
            line.value("depends", depends(stream));
            if status(stream) == ACTIVE {
                step(stream, empty);
            }
            line.value("end", ending(stream));
        }
    }),
    alone!("capture/to_graph/failed", |line| {
        let (context, empty) = (context(), function(c"empty"));
        for name in [
            "invalidated",
            "unjoined",
            "wrong_thread",
            "stream_destroyed",
        ] {
            let ([main, side], graph) = ([stream(), stream()], graph());
            let node = add_empty(graph, &[]);
            begin_to(main, graph, &[node], None, GLOBAL).must();
            step(main, empty);
            let answer = match name {
                "invalidated" => {
                    line.says(cuStreamQuery(main));
                    line.says_as("destroy", cuGraphDestroy(graph));
                    line.says_as("add", cuGraphAddEmptyNode(&mut 0, graph, NONE, 0));
                    ending(main)
                }
                "unjoined" => {
                    order(main, side);
                    step(side, empty);
                    ending(main)
                }
                "wrong_thread" => elsewhere(context, || ending(main)),
                _ => error_name(cuStreamDestroy_v2(main)),
            };
            line.value(name, answer);
            line.value("nodes", count_of(graph));
            let again = begin_to(side, graph, &[node], None, GLOBAL);
            line.says_as("again", again);
            line.says_as("destroy", cuGraphDestroy(graph));
        }
    }),
];

fn error_name(answer: Answer) -> String {
    crate::conformance::error_name(answer.code).to_string()
}

unsafe fn begin_to(
    stream: Handle,
    graph: Handle,
    after: &[Handle],
    data: Option<EdgeData>,
    mode: u32,
) -> Answer {
    let data = data.as_ref().map_or(null(), std::ptr::from_ref);
    cuStreamBeginCaptureToGraph(stream, graph, after.as_ptr(), data, after.len(), mode)
}
