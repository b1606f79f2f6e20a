//! What a capture tells, the dependencies that the program sets, the modes, and the graph
//! meanwhile.

use std::ptr::{null, null_mut};

use super::capture_setting::*;
use crate::capture::api::*;
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

unsafe fn step(stream: Handle, empty: Handle) {
    launch(empty, 1, 1, stream, &mut []).must();
}

unsafe fn update(stream: Handle, nodes: &[Handle], data: Option<EdgeData>, flags: u32) -> Answer {
    let data = data.as_ref().map_or(null(), std::ptr::from_ref);
    cuStreamUpdateCaptureDependencies_v2(stream, nodes.as_ptr(), data, nodes.len(), flags)
}

/// What each form of the question wrote, where nobody must write the numbers 1 to 6.
unsafe fn tell(line: &mut Line, name: &str, stream: Handle) {
    let (mut status, mut id, mut graph, mut count) = (1001, 1002, 1003, 1006);
    let (mut nodes, mut data) = (1004 as *const Handle, 1005 as *const EdgeData);
    let kept = |kept: bool, none: bool| match (kept, none) {
        (true, _) => "kept",
        (_, true) => "none",
        _ => "given",
    };
    let answer = cuStreamGetCaptureInfo(stream, &mut status, &mut id);
    line.gives(format!("{name}_1"), answer, status);
    line.value("id", kept(id == 1002, id == 0));
    (status, id) = (1001, 1002);
    let (nodes_at, data_at) = (&raw mut nodes, &raw mut data);
    let answer = cuStreamGetCaptureInfo_v2(
        stream,
        &mut status,
        &mut id,
        &mut graph,
        nodes_at,
        &mut count,
    );
    line.says_as(format!("{name}_2"), answer);
    line.value("status", status);
    line.value("id", kept(id == 1002, id == 0));
    line.value("graph", kept(graph == 1003, graph == 0));
    line.value("nodes", kept(nodes as usize == 1004, nodes.is_null()));
    line.value("count", count);
    (status, id, graph, count) = (1001, 1002, 1003, 1006);
    nodes = 1004 as *const Handle;
    let answer = cuStreamGetCaptureInfo_v3(
        stream,
        &mut status,
        &mut id,
        &mut graph,
        nodes_at,
        data_at,
        &mut count,
    );
    line.says_as(format!("{name}_3"), answer);
    line.value("status", status);
    line.value("id", kept(id == 1002, id == 0));
    line.value("graph", kept(graph == 1003, graph == 0));
    line.value("nodes", kept(nodes as usize == 1004, nodes.is_null()));
    line.value("data", kept(data as usize == 1005, data.is_null()));
    line.value("count", count);
}

pub const CASES: &[Case] = &[
    case!("capture/info/not_capturing", |line| {
        context();
        tell(line, "stream", stream());
        tell(line, "null", 0);
        tell(line, "per_thread", PER_THREAD);
    }),
    case!("capture/info/capturing", |line| {
        context();
        let (stream, empty) = (stream(), function(c"empty"));
        begin(stream, GLOBAL);
        tell(line, "empty", stream);
        step(stream, empty);
        tell(line, "one", stream);
        line.value("end", ending(stream));
    }),
    case!("capture/info/invalidated", |line| {
        context();
        let (stream, empty) = (stream(), function(c"empty"));
        begin(stream, GLOBAL);
        step(stream, empty);
        cuStreamQuery(stream).ignore();
        tell(line, "invalidated", stream);
        line.value("end", ending(stream));
    }),
    case!("capture/info/null_outs", |line| {
        context();
        let (stream, empty) = (stream(), function(c"empty"));
        let (mut status, mut data, mut list, mut count) = (77, null(), null(), 0);
        for name in ["before", "in_capture"] {
            let no_nodes: *mut *const Handle = null_mut();
            let no_data: *mut *const EdgeData = null_mut();
            let none = null_mut;
            line.says_as(
                name,
                cuStreamGetCaptureInfo_v3(
                    stream,
                    null_mut(),
                    none(),
                    null_mut(),
                    no_nodes,
                    no_data,
                    null_mut(),
                ),
            );
            line.says_as(
                "status_alone",
                cuStreamGetCaptureInfo_v3(
                    stream,
                    &mut status,
                    none(),
                    null_mut(),
                    no_nodes,
                    no_data,
                    null_mut(),
                ),
            );
            line.says_as(
                "data_alone",
                cuStreamGetCaptureInfo_v3(
                    stream,
                    &mut status,
                    none(),
                    null_mut(),
                    no_nodes,
                    &mut data,
                    null_mut(),
                ),
            );
            line.says_as(
                "nodes_alone",
                cuStreamGetCaptureInfo_v3(
                    stream,
                    &mut status,
                    none(),
                    null_mut(),
                    &mut list,
                    no_data,
                    null_mut(),
                ),
            );
            line.says_as(
                "count_alone",
                cuStreamGetCaptureInfo_v3(
                    stream,
                    &mut status,
                    none(),
                    null_mut(),
                    no_nodes,
                    no_data,
                    &mut count,
                ),
            );
            line.says_as("is_capturing", cuStreamIsCapturing(stream, null_mut()));
            if name == "before" {
                begin(stream, GLOBAL);
                step(stream, empty);
            }
        }
        line.value("end", ending(stream));
    }),
    case!("capture/info/ids", |line| {
        context();
        let [one, two, side] = [stream(), stream(), stream()];
        begin(one, GLOBAL);
        begin(two, GLOBAL);
        line.value("later", info(two).0 > info(one).0);
        order(one, side);
        line.value("same_id", info(side).0 == info(one).0);
        line.value("same_graph", info(side).1 == info(one).1);
        let (first, graph) = (info(one).0, graph_of(one));
        line.value("graph", end(one) == graph);
        begin(one, GLOBAL);
        line.value("new_id", info(one).0 > first);
        line.value("end", ending(one));
        line.value("end", ending(two));
    }),
    case!("capture/info/lossy", |line| {
        context();
        let (stream, empty) = (stream(), function(c"empty"));
        begin(stream, GLOBAL);
        step(stream, empty);
        let list = dependencies(stream);
        line.says(update(stream, &list, Some(edge_data(1, 0, 1)), 1));
        let (mut status, mut count, mut nodes) = (77, 1006, null());
        let answer = cuStreamGetCaptureInfo_v2(
            stream,
            &mut status,
            null_mut(),
            null_mut(),
            &mut nodes,
            &mut count,
        );
        line.says_as("with_nodes", answer);
        line.value("status", status);
        line.value("count", count);
        let answer = cuStreamGetCaptureInfo_v2(
            stream,
            &mut status,
            null_mut(),
            null_mut(),
            null_mut(),
            &mut count,
        );
        line.says_as("without", answer);
        line.value("count", count);
        line.value("end", ending(stream));
    }),
    case!("capture/update/add_and_set", |line| {
        context();
        let (stream, empty) = (stream(), function(c"empty"));
        begin(stream, GLOBAL);
        step(stream, empty);
        let first = dependencies(stream)[0];
        step(stream, empty);
        let second = dependencies(stream)[0];
        for (name, list, flags) in [
            ("add", &[first][..], 0),
            ("add_again", &[first], 0),
            ("add_twice", &[first, first], 0),
            ("set", &[first], 1),
            ("set_twice", &[second, second], 1),
            ("set_both", &[second, first], 1),
            ("flags_2", &[first], 2),
            ("flags_3", &[first], 3),
            ("set_none", &[], 1),
            ("add_none", &[], 0),
            ("add_to_none", &[first], 0),
        ] {
            line.says_as(name, update(stream, list, None, flags));
            line.value("depends", depends(stream));
        }
        step(stream, empty);
        line.value("end", ending(stream));
    }),
    case!("capture/update/wrong", |line| {
        context();
        let (stream, empty) = (stream(), function(c"empty"));
        line.says_as("not_capturing", update(stream, &[], None, 0));
        line.says_as("legacy", update(0, &[], None, 0));
        begin(stream, GLOBAL);
        step(stream, empty);
        let own = dependencies(stream)[0];
        let foreign = add_empty(graph(), &[]);
        line.says_as("foreign", update(stream, &[foreign], None, 0));
        line.says_as("one_foreign", update(stream, &[own, foreign], None, 1));
        let null_list = cuStreamUpdateCaptureDependencies_v2(stream, null(), null(), 1, 0);
        line.says_as("null_list", null_list);
        line.value("depends", depends(stream));
        cuStreamQuery(stream).ignore();
        line.says_as("invalidated", update(stream, &[], None, 0));
        line.value("end", ending(stream));
    }),
    case!("capture/update/data", |line| {
        context();
        let (stream, empty, memory) = (stream(), function(c"empty"), memory(8));
        for (name, port, to_port, kind) in [
            ("programmatic", 1, 0, 1),
            ("at_block_start", 2, 0, 1),
            ("launch_order", 2, 0, 0),
            ("port_alone", 1, 0, 0),
            ("kind_alone", 0, 0, 1),
            ("to_port", 1, 1, 1),
            ("port_3", 3, 0, 1),
            ("kind_2", 0, 0, 2),
        ] {
            begin(stream, GLOBAL);
            step(stream, empty);
            let list = dependencies(stream);
            let data = edge_data(port, to_port, kind);
            line.says_as(name, update(stream, &list, Some(data), 1));
            line.value("depends", depends(stream));
            line.says(update(stream, &list, None, 0));
            line.value("depends", depends(stream));
            line.says(update(stream, &list, Some(data), 1));
            step(stream, empty);
            line.value("end", ending(stream));
        }
        begin(stream, GLOBAL);
        cuMemsetD32Async(memory, 1, 1, stream).must();
        let list = dependencies(stream);
        let data = edge_data(1, 0, 1);
        line.says_as("of_no_kernel", update(stream, &list, Some(data), 1));
        step(stream, empty);
        let list = dependencies(stream);
        line.says_as("of_a_kernel", update(stream, &list, Some(data), 1));
        line.says(cuMemsetD32Async(memory, 1, 1, stream));
        line.value("end", ending(stream));
    }),
    case!("capture/update/old_function", |line| {
        context();
        let (stream, empty) = (stream(), function(c"empty"));
        begin(stream, GLOBAL);
        step(stream, empty);
        let first = dependencies(stream)[0];
        step(stream, empty);
        line.says(cuStreamUpdateCaptureDependencies(stream, &first, 1, 1));
        line.value("depends", depends(stream));
        line.value("end", ending(stream));
    }),
    case!("capture/mode/exchange", |line| {
        let context = context();
        let exchange = |to: u32| {
            let mut mode = to;
            let answer = cuThreadExchangeStreamCaptureMode(&mut mode);
            format!("{},{mode}", crate::conformance::error_name(answer.code))
        };
        for mode in [1, 2, 0, 3, 0] {
            line.value(format!("to_{mode}"), exchange(mode));
        }
        exchange(2);
        line.value("elsewhere", elsewhere(context, || exchange(1)));
        line.value("back", exchange(0));
    }),
    case!("capture/mode/of_thread_and_capture", |line| {
        let context = context();
        let forbidden = |capture: u32, thread: u32, away: bool| {
            let (stream, mut mode) = (stream(), thread);
            begin(stream, capture);
            let mut call = || {
                cuThreadExchangeStreamCaptureMode(&mut mode).must();
                let answer = cuMemAlloc_v2(&mut 0, 4);
                cuThreadExchangeStreamCaptureMode(&mut mode).must();
                answer.code
            };
            let code = match away {
                false => call(),
                true => elsewhere(context, call),
            };
            let status = status(stream);
            format!(
                "{},{status},{}",
                crate::conformance::error_name(code),
                ending(stream)
            )
        };
        for capture in [GLOBAL, THREAD_LOCAL, RELAXED] {
            for thread in [GLOBAL, THREAD_LOCAL, RELAXED, 3] {
                let name = format!("capture_{capture}_thread_{thread}");
                line.value(&name, forbidden(capture, thread, false));
                line.value(name + "_elsewhere", forbidden(capture, thread, true));
            }
        }
    }),
    case!("capture/mode/which_captures_are_invalidated", |line| {
        let context = context();
        for (name, mine, theirs) in [
            ("global_and_relaxed", GLOBAL, RELAXED),
            ("global_and_local", GLOBAL, THREAD_LOCAL),
            ("global_and_global", GLOBAL, GLOBAL),
            ("local_and_local", THREAD_LOCAL, THREAD_LOCAL),
            ("local_and_relaxed", THREAD_LOCAL, RELAXED),
        ] {
            let [one, two] = [stream(), stream()];
            begin(one, mine);
            let answer = elsewhere(context, || {
                begin(two, theirs);
                let answer = cuMemAlloc_v2(&mut 0, 4);
                let states = format!("{}{}", status(one), status(two));
                let name = crate::conformance::error_name(answer.code);
                format!("{name},{states},{}", ending(two))
            });
            line.value(name, answer);
            line.value("end", ending(one));
        }
        let [one, two] = [stream(), stream()];
        begin(one, THREAD_LOCAL);
        begin(two, RELAXED);
        line.says_as("both_mine", cuMemAlloc_v2(&mut 0, 4));
        line.value("states", format!("{}{}", status(one), status(two)));
        line.says_as("context", cuCtxSynchronize());
        line.value("states", format!("{}{}", status(one), status(two)));
        line.value("end", ending(one));
        line.value("end", ending(two));
    }),
    alone!("capture/graph/while_captured", |line| {
        context();
        let (stream, empty) = (stream(), function(c"empty"));
        begin(stream, RELAXED);
        step(stream, empty);
        step(stream, empty);
        let (captured, list) = (graph_of(stream), nodes(graph_of(stream)));
        let mut out = 0;
        line.says(cuGraphDestroy(captured));
        line.says(cuGraphDestroyNode(list[0]));
        line.says(cuGraphInstantiateWithFlags(&mut out, captured, 0));
        line.says(cuGraphClone(&mut out, captured));
        let parent = graph();
        line.says(cuGraphAddChildGraphNode(
            &mut out, parent, NONE, 0, captured,
        ));
        let child = graph();
        line.says_as(
            "child",
            cuGraphAddChildGraphNode(&mut out, captured, NONE, 0, child),
        );
        line.value("state", state(stream));
        line.value("depends", depends(stream));
        cuStreamQuery(stream).ignore();
        line.says_as("destroy_invalidated", cuGraphDestroy(captured));
        line.says_as("destroy_node_invalidated", cuGraphDestroyNode(list[0]));
        line.value("end", ending(stream));
        line.value("after", count_of(captured));
        line.value("parent", count_of(parent));
    }),
    case!("capture/graph/after", |line| {
        context();
        let (stream, store, pointer) = (stream(), function(c"store"), memory(8));
        begin(stream, GLOBAL);
        launch_store(store, stream, pointer, 3).must();
        let graph = end(stream);
        let list = nodes(graph);
        let more = add_store(graph, &list, store, pointer + 4, 4);
        line.value("shape", shape(graph));
        let exec = instantiate(graph);
        line.says(cuGraphLaunch(exec, stream));
        line.says(cuStreamSynchronize(stream));
        line.value("words", format!("{},{}", word(pointer), word(pointer + 4)));
        line.says(cuGraphDestroyNode(more));
        line.says(cuGraphDestroy(graph));
    }),
    alone!("capture/mode/exchange_null", |line| {
        context();
        line.says(cuThreadExchangeStreamCaptureMode(null_mut()));
    }),
    alone!("capture/to_graph/two_captures", |line| {
        context();
        let [one, two] = [stream(), stream()];
        let graph = graph();
        let begin_on =
            |stream| cuStreamBeginCaptureToGraph(stream, graph, null(), null(), 0, RELAXED);
        line.says_as("first", begin_on(one));
        line.says_as("second", begin_on(two));
    }),
];
