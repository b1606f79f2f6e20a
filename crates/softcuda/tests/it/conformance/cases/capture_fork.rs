//! Streams that take part in a capture of another: what they depend on, and what must come back.

use super::capture_setting::*;
use crate::capture::api::*;
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

unsafe fn step(stream: Handle, empty: Handle) {
    launch(empty, 1, 1, stream, &mut []).must();
}

/// A capture of one launch, with a fork: the two streams and the kernel.
unsafe fn forked(work: bool) -> (Handle, Handle, Handle) {
    context();
    let (main, side, empty) = (stream(), stream(), function(c"empty"));
    begin(main, GLOBAL);
    step(main, empty);
    order(main, side);
    if work {
        step(side, empty);
    }
    (main, side, empty)
}

unsafe fn update(stream: Handle, nodes: &[Handle], flags: u32) -> Answer {
    cuStreamUpdateCaptureDependencies_v2(
        stream,
        nodes.as_ptr(),
        std::ptr::null(),
        nodes.len(),
        flags,
    )
}

/// How the capture ends, and what becomes of the fork.
unsafe fn finish(line: &mut Line, main: Handle, side: Handle) {
    line.value("end", ending(main));
    line.value("main", state(main));
    line.value("side", state(side));
    line.says_as("side_works", cuStreamSynchronize(side));
}

pub const CASES: &[Case] = &[
    case!("capture/fork/unjoined", |line| {
        let (main, side, _) = forked(true);
        finish(line, main, side);
    }),
    case!("capture/fork/idle", |line| {
        let (main, side, _) = forked(false);
        finish(line, main, side);
    }),
    case!("capture/fork/joined", |line| {
        let (main, side, empty) = forked(true);
        order(side, main);
        line.value("depends", depends(main));
        step(main, empty);
        finish(line, main, side);
    }),
    case!("capture/fork/joined_idle", |line| {
        let (main, side, _) = forked(false);
        order(side, main);
        line.value("depends", depends(main));
        finish(line, main, side);
    }),
    case!("capture/fork/work_after_the_join", |line| {
        let (main, side, empty) = forked(true);
        order(side, main);
        step(side, empty);
        finish(line, main, side);
    }),
    case!("capture/fork/recorded_and_not_waited_for", |line| {
        let (main, side, _) = forked(true);
        cuEventRecord(event(), side).must();
        finish(line, main, side);
    }),
    case!("capture/fork/joined_in_part", |line| {
        let (main, side, empty) = forked(true);
        order(side, main);
        step(main, empty);
        step(side, empty);
        line.value("main_depends", depends(main));
        line.value("side_depends", depends(side));
        finish(line, main, side);
    }),
    case!("capture/fork/of_an_empty_capture", |line| {
        context();
        let ([main, a, b], empty) = ([stream(), stream(), stream()], function(c"empty"));
        begin(main, GLOBAL);
        order(main, a);
        order(main, b);
        line.value("depends", depends(a));
        step(a, empty);
        step(b, empty);
        order(b, main);
        order(a, main);
        line.value("depends", depends(main));
        step(main, empty);
        line.value("end", ending(main));
    }),
    case!("capture/fork/nested", |line| {
        let (main, side, empty) = forked(true);
        let inner = stream();
        order(side, inner);
        line.value("inner", depends(inner));
        step(inner, empty);
        step(main, empty);
        order(main, inner);
        line.value("inner", depends(inner));
        order(inner, main);
        line.value("main", depends(main));
        step(main, empty);
        line.value("end", ending(main));
    }),
    case!("capture/fork/wait_for_an_ancestor", |line| {
        let (main, side, empty) = forked(false);
        let event = event();
        cuEventRecord(event, main).must();
        step(main, empty);
        step(main, empty);
        cuStreamWaitEvent(main, event, 0).must();
        line.value("depends", depends(main));
        order(side, main);
        line.value("depends", depends(main));
        order(main, side);
        line.value("side", depends(side));
        step(main, empty);
        line.value("end", ending(main));
    }),
    case!("capture/fork/event_recorded_again", |line| {
        let (main, side, empty) = forked(true);
        let event = event();
        cuEventRecord(event, main).must();
        step(main, empty);
        cuEventRecord(event, main).must();
        cuStreamWaitEvent(side, event, 0).must();
        line.value("side", depends(side));
        cuEventRecord(event, side).must();
        cuStreamWaitEvent(main, event, 0).must();
        line.value("main", depends(main));
        line.value("end", ending(main));
    }),
    case!("capture/fork/event_destroyed", |line| {
        let (main, side, empty) = forked(false);
        let event = event();
        cuEventRecord(event, main).must();
        cuStreamWaitEvent(side, event, 0).must();
        line.says(cuEventDestroy_v2(event));
        step(side, empty);
        line.value("state", state(main));
        let event = order(side, main);
        line.says(cuEventDestroy_v2(event));
        finish(line, main, side);
    }),
    case!("capture/fork/busy_stream", |line| {
        context();
        let [main, side] = [stream(), stream()];
        let gate = Gate::close(side);
        begin(main, RELAXED);
        order(main, side);
        line.value("side", state(side));
        line.says(cuLaunchHostFunc(
            side,
            Some(nothing_done),
            std::ptr::null_mut(),
        ));
        order(side, main);
        line.value("end", ending(main));
        gate.open();
        line.says(cuStreamSynchronize(side));
    }),
    case!("capture/fork/from_another_thread", |line| {
        let context = context();
        let ([main, side], empty) = ([stream(), stream()], function(c"empty"));
        begin(main, THREAD_LOCAL);
        let event = event();
        cuEventRecord(event, main).must();
        elsewhere(context, || {
            cuStreamWaitEvent(side, event, 0).must();
            step(side, empty);
        });
        line.value("side", depends(side));
        order(side, main);
        finish(line, main, side);
    }),
    case!("capture/fork/blocking_stream", |line| {
        context();
        let (main, empty, mut side) = (stream(), function(c"empty"), 0);
        cuStreamCreate(&mut side, 0).must();
        begin(main, RELAXED);
        order(main, side);
        line.value("legacy", state(LEGACY));
        line.says(launch(empty, 1, 1, 0, &mut []));
        line.value("main", state(main));
        finish(line, main, side);
    }),
    case!("capture/fork/default_streams", |line| {
        context();
        for (name, side) in [("legacy", LEGACY), ("per_thread", PER_THREAD)] {
            let (main, event) = (stream(), event());
            begin(main, RELAXED);
            cuEventRecord(event, main).must();
            line.says_as(name, cuStreamWaitEvent(side, event, 0));
            finish(line, main, side);
        }
    }),
    case!("capture/fork/other_context", |line| {
        let first = context();
        let (main, event_here) = (stream(), event());
        let second = new_context();
        let (side, event_there) = (stream(), event());
        cuCtxSetCurrent(first).must();
        begin(main, RELAXED);
        cuEventRecord(event_here, main).must();
        line.says(cuStreamWaitEvent(side, event_here, 0));
        line.value("side", state(side));
        line.says(cuLaunchHostFunc(
            side,
            Some(nothing_done),
            std::ptr::null_mut(),
        ));
        line.says_as("synchronize_there", cuCtxSynchronize_v2(second));
        line.value("state", state(main));
        line.value("end", ending(main));
        begin(main, RELAXED);
        line.says_as("event_of_other", cuEventRecord(event_there, main));
        line.says_as(
            "external",
            cuEventRecordWithFlags(event_there, main, EXTERNAL),
        );
        line.says_as("synchronize_there", cuCtxSynchronize_v2(second));
        line.value("end", ending(main));
        cuCtxDestroy_v2(second).must();
    }),
    case!("capture/fork/begin_in_fork", |line| {
        let (main, side, _) = forked(true);
        line.says(cuStreamBeginCapture_v2(side, RELAXED));
        line.value("side", state(side));
        order(side, main);
        finish(line, main, side);
    }),
    case!("capture/fork/merge", |line| {
        context();
        let ([one, two], event) = ([stream(), stream()], event());
        begin(one, GLOBAL);
        begin(two, GLOBAL);
        cuEventRecord(event, one).must();
        line.says(cuStreamWaitEvent(two, event, 0));
        line.value("one", state(one));
        line.value("two", state(two));
        line.value("end_one", ending(one));
        line.value("end_two", ending(two));
    }),
    case!("capture/fork/event_of_an_ended_capture", |line| {
        let first = context();
        let ([main, other], event) = ([stream(), stream()], event());
        begin(main, GLOBAL);
        cuEventRecord(event, main).must();
        end(main);
        line.says(cuEventQuery(event));
        line.says(cuEventSynchronize(event));
        line.says(cuEventElapsedTime(&mut 0.0, event, event));
        line.says_as("wait", cuStreamWaitEvent(other, event, 0));
        line.says_as("wait_external", cuStreamWaitEvent(other, event, EXTERNAL));
        line.says(cuCtxWaitEvent(first, event));
        for (name, flags) in [("in_capture", 0), ("in_capture_external", EXTERNAL)] {
            begin(main, GLOBAL);
            line.says_as(name, cuStreamWaitEvent(main, event, flags));
            line.value("end", ending(main));
        }
        line.says_as("recorded", cuEventRecord(event, other));
        line.says_as("synchronized", cuEventSynchronize(event));
    }),
    case!("capture/fork/event_recorded_outside_meanwhile", |line| {
        context();
        let ([main, other], event) = ([stream(), stream()], event());
        begin(main, RELAXED);
        cuEventRecord(event, main).must();
        line.says(cuEventRecord(event, other));
        line.says_as("wait", cuStreamWaitEvent(other, event, 0));
        line.value("other", state(other));
        line.says(cuEventSynchronize(event));
        line.says_as("wait_in_capture", cuStreamWaitEvent(main, event, 0));
        line.value("end", ending(main));
    }),
    case!("capture/fork/external_record_of_a_captured_event", |line| {
        context();
        let (main, event) = (stream(), event());
        begin(main, RELAXED);
        cuEventRecord(event, main).must();
        line.says(cuEventRecordWithFlags(event, main, EXTERNAL));
        line.says(cuEventQuery(event));
        line.value("end", ending(main));
    }),
    case!("capture/fork/external_record_and_a_wait", |line| {
        context();
        let ([main, other], event) = ([stream(), stream()], event());
        begin(main, RELAXED);
        cuEventRecordWithFlags(event, main, EXTERNAL).must();
        line.says(cuEventQuery(event));
        line.says(cuStreamWaitEvent(other, event, 0));
        line.value("other", state(other));
        line.says_as("wait_in_capture", cuStreamWaitEvent(main, event, 0));
        line.value("end", ending(main));
    }),
    case!("capture/fork/invalidated", |line| {
        let (main, side, empty) = forked(true);
        let (captured, recorded) = (event(), event());
        cuEventRecord(captured, main).must();
        line.says_as("bad", cuStreamQuery(side));
        line.value("main", state(main));
        line.value("side", state(side));
        line.says_as("launch", launch(empty, 1, 1, main, &mut []));
        line.says_as("launch_side", launch(empty, 1, 1, side, &mut []));
        line.says_as("record", cuEventRecord(recorded, side));
        line.says_as("wait", cuStreamWaitEvent(side, captured, 0));
        line.says_as("fork", cuStreamWaitEvent(stream(), captured, 0));
        line.says_as("begin", cuStreamBeginCapture_v2(side, RELAXED));
        line.says_as("query", cuStreamQuery(side));
        line.says_as("alloc", cuMemAlloc_v2(&mut 0, 4));
        line.says_as("event", cuEventQuery(captured));
        line.value("end_side", ending(side));
        finish(line, main, side);
    }),
    case!("capture/join/by_dependencies", |line| {
        let (main, side, _) = forked(true);
        line.says(update(main, &dependencies(side), 0));
        line.value("depends", depends(main));
        finish(line, main, side);
    }),
    case!("capture/join/forgotten", |line| {
        let (main, side, _) = forked(true);
        line.says(update(side, &[], 1));
        line.value("depends", depends(side));
        finish(line, main, side);
    }),
    case!("capture/join/set_back", |line| {
        let (main, side, empty) = forked(true);
        step(side, empty);
        line.says(update(side, &dependencies(main), 1));
        line.value("depends", depends(side));
        finish(line, main, side);
    }),
    case!("capture/join/origin_forgets", |line| {
        let (main, side, _) = forked(false);
        line.says(update(main, &[], 1));
        finish(line, main, side);
    }),
    case!("capture/join/held_by_two", |line| {
        let (main, side, _) = forked(true);
        let third = stream();
        order(side, third);
        line.says(update(side, &[], 1));
        finish(line, main, third);
    }),
    case!("capture/join/through_an_added_node", |line| {
        let (main, side, empty) = forked(true);
        let added = add_empty(graph_of(main), &dependencies(side));
        line.says(update(main, &[added], 0));
        line.value("depends", depends(main));
        step(main, empty);
        finish(line, main, side);
    }),
    case!("capture/join/followed_by_an_added_node", |line| {
        let (main, side, _) = forked(true);
        add_empty(graph_of(main), &dependencies(side));
        finish(line, main, side);
    }),
    case!("capture/join/fork_after_an_added_node", |line| {
        let (main, side, _) = forked(false);
        let added = add_empty(graph_of(main), &dependencies(main));
        line.says(update(side, &[added], 1));
        finish(line, main, side);
    }),
    case!("capture/join/by_an_added_edge", |line| {
        let (main, side, empty) = forked(true);
        let [from] = dependencies(side)[..] else {
            return;
        };
        step(main, empty);
        let [to] = dependencies(main)[..] else { return };
        line.says(add_edge(graph_of(main), from, to));
        finish(line, main, side);
    }),
    case!("capture/join/edge_removed", |line| {
        let (main, side, empty) = forked(false);
        step(main, empty);
        let list = nodes(graph_of(main));
        line.says(cuGraphRemoveDependencies(
            graph_of(main),
            &list[0],
            &list[1],
            1,
        ));
        finish(line, main, side);
    }),
    case!("capture/join/of_other_kinds", |line| {
        for name in ["alloc", "external", "fill"] {
            let (main, side, _) = forked(false);
            let event = {
                let mut event = 0;
                cuEventCreate(&mut event, 0).must();
                event
            };
            match name {
                "alloc" => cuMemAllocAsync(&mut 0, 64, side).must(),
                "external" => cuEventRecordWithFlags(event, side, EXTERNAL).must(),
                _ => cuMemsetD8Async(WILD, 0, 1, side).must(),
            }
            line.value(name, ending(main));
        }
    }),
];
