//! Streams: creation, what they say of themselves, wrong handles.

use std::ptr::null_mut;

use crate::conformance::api::*;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::LaunchAttributeValue;

pub const CASES: &[Case] = &[
    case!("stream/create", |line| {
        context();
        let mut stream = 7;
        for flags in [0u32, 1, 2, 3, 0x10, u32::MAX] {
            line.says_as(
                format!("flags_{flags:#x}"),
                cuStreamCreate(&mut stream, flags),
            );
        }
        line.says_as("null", cuStreamCreate(null_mut(), 0));
    }),
    case!("stream/priority", |line| {
        context();
        let (mut stream, mut priority) = (0, 77);
        for asked in [0, -1, -5, -6, -100, 1, 5, i32::MIN] {
            let answer = cuStreamCreateWithPriority(&mut stream, 1, asked);
            line.says_as(format!("create_{asked}"), answer);
            line.gives(
                "priority",
                cuStreamGetPriority(stream, &mut priority),
                priority,
            );
        }
        line.says_as("flags", cuStreamCreateWithPriority(&mut stream, 2, 0));
        line.says_as("null", cuStreamCreateWithPriority(null_mut(), 0, 0));
        for (what, stream) in [
            ("of_null", 0),
            ("of_legacy", LEGACY),
            ("of_per_thread", PER_THREAD),
        ] {
            line.gives(what, cuStreamGetPriority(stream, &mut priority), priority);
        }
        line.says_as("null_out", cuStreamGetPriority(stream, null_mut()));
    }),
    case!("stream/flags", |line| {
        context();
        let (mut blocking, mut flags) = (0, 77);
        cuStreamCreate(&mut blocking, 0).must();
        for (what, stream) in [
            ("blocking", blocking),
            ("non_blocking", stream()),
            ("null", 0),
            ("legacy", LEGACY),
            ("per_thread", PER_THREAD),
        ] {
            line.gives(what, cuStreamGetFlags(stream, &mut flags), flags);
        }
        line.says_as("null_out", cuStreamGetFlags(blocking, null_mut()));
    }),
    case!("stream/id", |line| {
        context();
        let (mut first, mut second) = (0, 0);
        line.says(cuStreamGetId(stream(), &mut first));
        cuStreamGetId(stream(), &mut second).must();
        line.value("distinct", first != second);
        line.says_as("of_null", cuStreamGetId(0, &mut first));
        line.says_as("of_legacy", cuStreamGetId(LEGACY, &mut second));
        line.value("null_is_legacy", first == second);
        line.says_as("of_per_thread", cuStreamGetId(PER_THREAD, &mut second));
        line.value("per_thread_differs", first != second);
        line.says_as("null_out", cuStreamGetId(0, null_mut()));
    }),
    case!("stream/context", |line| {
        let (primary, mut found, mut device) = (context(), 0, -1);
        for (what, stream) in [
            ("made", stream()),
            ("null", 0),
            ("legacy", LEGACY),
            ("per_thread", PER_THREAD),
        ] {
            line.gives(what, cuStreamGetCtx(stream, &mut found), found == primary);
            line.gives("device", cuStreamGetDevice(stream, &mut device), device);
        }
        line.says_as("null_out", cuStreamGetCtx(0, null_mut()));
        line.says_as("null_out_device", cuStreamGetDevice(0, null_mut()));
    }),
    case!("stream/default_handles", |line| {
        context();
        for (what, stream) in [("null", 0), ("legacy", LEGACY), ("per_thread", PER_THREAD)] {
            line.says_as(format!("{what}_query"), cuStreamQuery(stream));
            line.says_as(format!("{what}_synchronize"), cuStreamSynchronize(stream));
            line.says_as(format!("{what}_destroy"), cuStreamDestroy_v2(stream));
        }
    }),
    alone!("stream/destroyed", |line| {
        context();
        let stream = stream();
        line.says_as("destroy", cuStreamDestroy_v2(stream));
        line.says_as("destroy_twice", cuStreamDestroy_v2(stream));
    }),
    alone!("stream/destroyed/query", |line| {
        context();
        let stream = stream();
        cuStreamDestroy_v2(stream).must();
        line.says(cuStreamQuery(stream));
    }),
    alone!("stream/destroyed/launch", |line| {
        context();
        let (stream, function) = (stream(), function(c"empty"));
        cuStreamDestroy_v2(stream).must();
        line.says(launch(function, 1, 1, stream, &mut []));
    }),
    alone!("stream/bogus", |line| {
        context();
        line.says(cuStreamQuery(BOGUS));
    }),
    case!("stream/destroy_with_work", |line| {
        context();
        let (stream, pointer) = (stream(), memory(64));
        cuMemsetD8_v2(pointer, 0, 64).must();
        cuCtxSynchronize().must();
        let gate = Gate::close(stream);
        line.says(cuMemsetD8Async(pointer, 1, 64, stream));
        line.says(cuStreamDestroy_v2(stream));
        gate.open();
        line.says(cuCtxSynchronize());
        line.value("work_was_done", word(pointer) == 0x0101_0101);
    }),
    case!("stream/query_busy", |line| {
        context();
        let stream = stream();
        let gate = Gate::close(stream);
        line.says_as("busy", cuStreamQuery(stream));
        gate.open();
        line.says(cuStreamSynchronize(stream));
        line.says_as("idle", cuStreamQuery(stream));
    }),
    alone!("stream/of_other_context", |line| {
        let primary = context();
        let (stream, event, pointer) = (stream(), event(), memory(64));
        let made = new_context();
        line.says_as("query", cuStreamQuery(stream));
        line.says_as("synchronize", cuStreamSynchronize(stream));
        line.says_as("fill", cuMemsetD8Async(pointer, 0, 64, stream));
        line.says_as("fill_sync", cuMemsetD8_v2(pointer, 0, 64));
        line.says_as(
            "launch_ours",
            launch(function(c"empty"), 1, 1, stream, &mut []),
        );
        line.says_as("record_event", cuEventRecord(event, stream));
        line.says_as("record_event_here", cuEventRecord(event, 0));
        line.says_as("wait_event_here", cuStreamWaitEvent(0, event, 0));
        line.says_as("free", cuMemFree_v2(pointer));
        let mut found = 0;
        line.gives(
            "context",
            cuStreamGetCtx(stream, &mut found),
            found == primary && found != made,
        );
        line.says_as("destroy", cuStreamDestroy_v2(stream));
    }),
    case!("stream/attributes", |line| {
        context();
        let (stream, mut value) = (stream(), LaunchAttributeValue([0x55; 8]));
        for number in [0, 1, 2, 3, 8, 9, 10, 99] {
            let answer = cuStreamGetAttribute(stream, number, &mut value);
            line.gives(
                format!("get_{number}"),
                answer,
                (value.0[0] & 0xffff_ffff) as u32,
            );
        }
        for (number, word) in [
            (3, 1),
            (3, 9),
            (8, -1i64 as u64),
            (8, 5),
            (10, 1),
            (10, 7),
            (2, 1),
            (99, 0),
        ] {
            value = LaunchAttributeValue([0; 8]);
            value.0[0] = word;
            line.says_as(
                format!("set_{number}_{}", word as i64),
                cuStreamSetAttribute(stream, number, &value),
            );
            value.0[0] = 0;
            let answer = cuStreamGetAttribute(stream, number, &mut value);
            line.gives("read", answer, value.0[0] as i32);
        }
        line.says_as("get_null", cuStreamGetAttribute(stream, 3, null_mut()));
        line.says_as(
            "set_null",
            cuStreamSetAttribute(stream, 3, std::ptr::null()),
        );
    }),
    case!("stream/copy_attributes", |line| {
        context();
        let (from, to, mut value) = (stream(), stream(), LaunchAttributeValue([0; 8]));
        value.0[0] = 2;
        cuStreamSetAttribute(from, 3, &value).must();
        line.says(cuStreamCopyAttributes(to, from));
        line.gives(
            "read",
            cuStreamGetAttribute(to, 3, &mut value),
            value.0[0] as i32,
        );
        line.says_as("to_null", cuStreamCopyAttributes(0, from));
        line.says_as("from_null", cuStreamCopyAttributes(to, 0));
    }),
    case!("stream/is_capturing", |line| {
        context();
        let (stream, mut status) = (stream(), 77);
        line.gives("idle", cuStreamIsCapturing(stream, &mut status), status);
        line.gives("null", cuStreamIsCapturing(0, &mut status), status);
        line.gives(
            "per_thread",
            cuStreamIsCapturing(PER_THREAD, &mut status),
            status,
        );
        line.says_as("null_out", cuStreamIsCapturing(stream, null_mut()));
    }),
    case!("stream/capture_mode", |line| {
        context();
        let mut mode = 1;
        line.gives(
            "exchange",
            cuThreadExchangeStreamCaptureMode(&mut mode),
            mode,
        );
        mode = 2;
        line.gives("again", cuThreadExchangeStreamCaptureMode(&mut mode), mode);
        mode = 9;
        line.says_as("unknown", cuThreadExchangeStreamCaptureMode(&mut mode));
        line.says_as("null", cuThreadExchangeStreamCaptureMode(null_mut()));
    }),
];
