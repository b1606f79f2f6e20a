//! Events.

use std::ptr::null_mut;

use crate::conformance::api::*;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;

const DISABLE_TIMING: u32 = 2;

unsafe fn event_with(flags: u32) -> Handle {
    let mut event = 0;
    cuEventCreate(&mut event, flags).must();
    event
}

pub const CASES: &[Case] = &[
    case!("event/create", |line| {
        context();
        let mut event = 0;
        for flags in [0u32, 1, 2, 3, 4, 6, 8, 0x10, u32::MAX] {
            line.says_as(
                format!("flags_{flags:#x}"),
                cuEventCreate(&mut event, flags),
            );
        }
        line.says_as("null", cuEventCreate(null_mut(), 0));
    }),
    case!("event/unrecorded", |line| {
        context();
        let event = event();
        line.says(cuEventQuery(event));
        line.says(cuEventSynchronize(event));
    }),
    case!("event/null", |line| {
        context();
        line.says(cuEventQuery(0));
        line.says(cuEventSynchronize(0));
        line.says(cuEventRecord(0, 0));
        line.says(cuEventDestroy_v2(0));
    }),
    alone!("event/destroyed", |line| {
        context();
        let event = event();
        line.says_as("first", cuEventDestroy_v2(event));
        line.says_as("second", cuEventDestroy_v2(event));
    }),
    alone!("event/destroyed/query", |line| {
        context();
        let event = event();
        cuEventDestroy_v2(event).must();
        line.says(cuEventQuery(event));
    }),
    case!("event/destroyed_while_pending", |line| {
        context();
        let (stream, event) = (stream(), event());
        let gate = Gate::close(stream);
        cuEventRecord(event, stream).must();
        line.says(cuEventDestroy_v2(event));
        gate.open();
        line.says(cuStreamSynchronize(stream));
    }),
    case!("event/pending", |line| {
        context();
        let (stream, event) = (stream(), event());
        let gate = Gate::close(stream);
        line.says(cuEventRecord(event, stream));
        line.says_as("pending", cuEventQuery(event));
        gate.open();
        line.says(cuEventSynchronize(event));
        line.says_as("done", cuEventQuery(event));
    }),
    case!("event/record", |line| {
        context();
        let event = event();
        for (what, stream) in [("null", 0), ("legacy", LEGACY), ("per_thread", PER_THREAD)] {
            line.says_as(what, cuEventRecord(event, stream));
        }
        line.says_as("flags_zero", cuEventRecordWithFlags(event, 0, 0));
        line.says_as("flags_external", cuEventRecordWithFlags(event, 0, 1));
        line.says_as("flags_unknown", cuEventRecordWithFlags(event, 0, 2));
        line.says(cuCtxSynchronize());
    }),
    case!("event/elapsed", |line| {
        context();
        let (start, end, mut time) = (event(), event(), -1.0f32);
        cuEventRecord(start, 0).must();
        let gate = Gate::close(0);
        cuEventRecord(end, 0).must();
        line.says_as("pending", cuEventElapsedTime(&mut time, start, end));
        std::thread::sleep(std::time::Duration::from_millis(20));
        gate.open();
        cuEventSynchronize(end).must();
        line.gives(
            "forward",
            cuEventElapsedTime(&mut time, start, end),
            time >= 15.0,
        );
        line.gives(
            "backward",
            cuEventElapsedTime(&mut time, end, start),
            time <= -15.0,
        );
        line.gives(
            "with_itself",
            cuEventElapsedTime(&mut time, start, start),
            time,
        );
        line.gives(
            "second_version",
            cuEventElapsedTime_v2(&mut time, start, end),
            time >= 15.0,
        );
    }),
    case!("event/elapsed/wrong", |line| {
        context();
        let (start, end, untimed, unrecorded, mut time) =
            (event(), event(), event_with(DISABLE_TIMING), event(), 0.0);
        cuEventRecord(start, 0).must();
        cuEventRecord(end, 0).must();
        cuEventRecord(untimed, 0).must();
        cuCtxSynchronize().must();
        line.says_as("untimed_end", cuEventElapsedTime(&mut time, start, untimed));
        line.says_as("untimed_start", cuEventElapsedTime(&mut time, untimed, end));
        line.says_as(
            "unrecorded_end",
            cuEventElapsedTime(&mut time, start, unrecorded),
        );
        line.says_as(
            "unrecorded_start",
            cuEventElapsedTime(&mut time, unrecorded, end),
        );
        line.says_as(
            "unrecorded_both",
            cuEventElapsedTime(&mut time, unrecorded, unrecorded),
        );
        line.says_as("null_out", cuEventElapsedTime(null_mut(), start, end));
        line.says_as("null_start", cuEventElapsedTime(&mut time, 0, end));
        line.says_as("null_end", cuEventElapsedTime(&mut time, start, 0));
    }),
];
