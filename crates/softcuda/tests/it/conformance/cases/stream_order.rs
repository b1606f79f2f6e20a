//! What happens in which order: waits, host functions, memory operations, and the default streams'
//! implicit ordering.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::conformance::api::*;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::BatchOperation;

/// Writes one to the counter it is given.
unsafe extern "C" fn mark(counter: *mut c_void) {
    (*counter.cast::<AtomicU32>()).fetch_add(1, Ordering::SeqCst);
}

/// What calls inside a host function answered.
static INSIDE: [AtomicU32; 6] = [const { AtomicU32::new(777) }; 6];

unsafe extern "C" fn call_driver(_: *mut c_void) {
    let (mut pointer, mut context, mut device) = (0, 0, 0);
    let answers = [
        cuMemAlloc_v2(&mut pointer, 16),
        cuStreamQuery(0),
        cuCtxGetCurrent(&mut context),
        cuCtxSynchronize(),
        cuDeviceGet(&mut device, 0),
        cuEventQuery(0),
    ];
    for (seen, answer) in INSIDE.iter().zip(answers) {
        seen.store(answer.code, Ordering::SeqCst);
    }
}

/// The stream and status that a callback was called with, the status plus one.
static CALLED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

unsafe extern "C" fn callback(stream: Handle, status: u32, _: *mut c_void) {
    CALLED[0].store(stream, Ordering::SeqCst);
    CALLED[1].store(status as usize + 1, Ordering::SeqCst);
}

pub const CASES: &[Case] = &[
    case!("order/wait_event", |line| {
        context();
        let (first, second, event) = (stream(), stream(), event());
        line.says_as("unrecorded", cuStreamWaitEvent(second, event, 0));
        line.says_as("unrecorded_goes_on", cuStreamSynchronize(second));
        let gate = Gate::close(first);
        cuEventRecord(event, first).must();
        line.says(cuStreamWaitEvent(second, event, 0));
        line.says_as("held", cuStreamQuery(second));
        gate.open();
        line.says(cuStreamSynchronize(second));
        line.says_as("flags_external", cuStreamWaitEvent(second, event, 1));
        line.says_as("flags_unknown", cuStreamWaitEvent(second, event, 2));
        line.says_as("null_event", cuStreamWaitEvent(second, 0, 0));
        line.says_as("null_stream", cuStreamWaitEvent(0, event, 0));
    }),
    case!("order/event_recorded_again", |line| {
        context();
        let (first, second, waiter, event) = (stream(), stream(), stream(), event());
        let gate = Gate::close(first);
        cuEventRecord(event, first).must();
        cuStreamWaitEvent(waiter, event, 0).must();
        let other = Gate::close(second);
        cuEventRecord(event, second).must();
        gate.open();
        line.says_as("waits_for_the_first", cuStreamSynchronize(waiter));
        line.says_as("event_is_the_second", cuEventQuery(event));
        other.open();
        line.says(cuEventSynchronize(event));
    }),
    case!("order/host_function", |line| {
        context();
        let (stream, counter) = (stream(), Box::leak(Box::new(AtomicU32::new(0))));
        line.says(cuLaunchHostFunc(stream, Some(mark), void(counter)));
        line.says(cuStreamSynchronize(stream));
        line.value("ran", counter.load(Ordering::SeqCst));
        line.says_as("null_function", cuLaunchHostFunc(stream, None, null_mut()));
        line.says_as(
            "null_stream",
            cuLaunchHostFunc(0, Some(mark), void(counter)),
        );
        line.says_as(
            "per_thread",
            cuLaunchHostFunc(PER_THREAD, Some(mark), void(counter)),
        );
        line.says(cuCtxSynchronize());
        line.value("ran_in_all", counter.load(Ordering::SeqCst));
    }),
    alone!("order/host_function_calls_driver", |line| {
        context();
        let stream = stream();
        cuLaunchHostFunc(stream, Some(call_driver), null_mut()).must();
        line.says(cuStreamSynchronize(stream));
        let names = [
            "alloc",
            "stream_query",
            "get_current",
            "synchronize",
            "device_get",
            "event_query_null",
        ];
        for (name, seen) in names.iter().zip(&INSIDE) {
            line.value(
                name,
                crate::conformance::error_name(seen.load(Ordering::SeqCst)),
            );
        }
    }),
    alone!("order/callback", |line| {
        context();
        let stream = stream();
        line.says(cuStreamAddCallback(stream, Some(callback), null_mut(), 0));
        line.says(cuStreamSynchronize(stream));
        line.value("stream", CALLED[0].load(Ordering::SeqCst) == stream);
        line.value("status", CALLED[1].load(Ordering::SeqCst) as i64 - 1);
        line.says_as(
            "flags",
            cuStreamAddCallback(stream, Some(callback), null_mut(), 1),
        );
        line.says_as(
            "null_function",
            cuStreamAddCallback(stream, None, null_mut(), 0),
        );
    }),
    case!("order/legacy_waits_for_blocking", |line| {
        context();
        let (mut blocking, mut pointer) = (0, memory(4));
        cuStreamCreate(&mut blocking, 0).must();
        let gate = Gate::close(blocking);
        line.says(cuMemsetD8Async(pointer, 0, 4, 0));
        line.says_as("legacy_held", cuStreamQuery(0));
        line.says_as("non_blocking_free", cuStreamQuery(stream()));
        gate.open();
        line.says(cuStreamSynchronize(0));
        pointer = memory(4);
        let gate = Gate::close(0);
        line.says(cuMemsetD8Async(pointer, 0, 4, blocking));
        line.says_as("blocking_held", cuStreamQuery(blocking));
        gate.open();
        line.says(cuStreamSynchronize(blocking));
    }),
    case!("order/legacy_leaves_non_blocking", |line| {
        context();
        let stream = stream();
        let gate = Gate::close(stream);
        line.says(cuMemsetD8_v2(memory(4), 0, 4));
        line.says(cuStreamSynchronize(0));
        line.says_as("still_busy", cuStreamQuery(stream));
        gate.open();
        line.says(cuCtxSynchronize());
        line.says_as("idle", cuStreamQuery(stream));
    }),
    case!("order/per_thread_waits_for_legacy", |line| {
        context();
        let (pointer, gate) = (memory(4), Gate::close(LEGACY));
        line.says(cuMemsetD8Async(pointer, 0, 4, PER_THREAD));
        line.says_as("held", cuStreamQuery(PER_THREAD));
        gate.open();
        line.says(cuStreamSynchronize(PER_THREAD));
    }),
    case!("order/write_value", |line| {
        context();
        let (stream, pointer) = (stream(), memory(64));
        fill_words(pointer, 0, 16);
        line.says(cuStreamWriteValue32_v2(stream, pointer, 7, 0));
        line.says(cuStreamWriteValue64_v2(
            stream,
            pointer + 8,
            0x1_0000_0009,
            0,
        ));
        line.says(cuStreamSynchronize(stream));
        line.value(
            "values",
            format!(
                "{} {} {}",
                word(pointer),
                word(pointer + 8),
                word(pointer + 12)
            ),
        );
        line.says_as("no_barrier", cuStreamWriteValue32_v2(stream, pointer, 7, 1));
        line.says_as("flags", cuStreamWriteValue32_v2(stream, pointer, 7, 2));
        line.says_as(
            "misaligned",
            cuStreamWriteValue32_v2(stream, pointer + 2, 7, 0),
        );
        line.says_as(
            "misaligned_64",
            cuStreamWriteValue64_v2(stream, pointer + 4, 7, 0),
        );
        line.says_as("null", cuStreamWriteValue32_v2(stream, 0, 7, 0));
        line.says_as(
            "pinned",
            cuStreamWriteValue32_v2(stream, pinned(64) as u64, 7, 0),
        );
        line.says_as("null_stream", cuStreamWriteValue32_v2(0, pointer, 7, 0));
        line.says(cuCtxSynchronize());
    }),
    case!("order/wait_value", |line| {
        context();
        let (first, second, pointer) = (stream(), stream(), memory(64));
        fill_words(pointer, 0, 16);
        line.says(cuStreamWaitValue32_v2(first, pointer, 5, 1));
        line.says_as("held", cuStreamQuery(first));
        line.says(cuStreamWriteValue32_v2(second, pointer, 5, 0));
        line.says(cuStreamSynchronize(first));
        line.says_as("at_least", cuStreamWaitValue32_v2(first, pointer, 4, 0));
        line.says_as("any_bit", cuStreamWaitValue32_v2(first, pointer, 1, 2));
        line.says_as("nor", cuStreamWaitValue32_v2(first, pointer, 0xff, 3));
        line.says_as("wide", cuStreamWaitValue64_v2(first, pointer, 5, 1));
        line.says(cuStreamSynchronize(first));
        line.says_as("flags", cuStreamWaitValue32_v2(first, pointer, 5, 0x10));
        line.says_as(
            "misaligned",
            cuStreamWaitValue32_v2(first, pointer + 2, 0, 0),
        );
        line.says_as("null", cuStreamWaitValue32_v2(first, 0, 0, 0));
    }),
    case!("order/batch", |line| {
        context();
        let (stream, pointer) = (stream(), memory(64));
        let write = |at, value| BatchOperation {
            operation: 2,
            padding: 0,
            address: pointer + at,
            value,
            flags: 0,
            padding_1: 0,
            alias: 0,
            padding_2: 0,
        };
        let mut operations = [write(0, 3), write(4, 4)];
        line.says(cuStreamBatchMemOp_v2(stream, 2, operations.as_mut_ptr(), 0));
        cuStreamSynchronize(stream).must();
        line.value("values", format!("{} {}", word(pointer), word(pointer + 4)));
        line.says_as(
            "nothing",
            cuStreamBatchMemOp_v2(stream, 0, operations.as_mut_ptr(), 0),
        );
        line.says_as("null", cuStreamBatchMemOp_v2(stream, 2, null_mut(), 0));
        line.says_as(
            "too_many",
            cuStreamBatchMemOp_v2(stream, 257, operations.as_mut_ptr(), 0),
        );
        line.says_as(
            "flags",
            cuStreamBatchMemOp_v2(stream, 1, operations.as_mut_ptr(), 1),
        );
        operations[0].operation = 99;
        line.says_as(
            "unknown",
            cuStreamBatchMemOp_v2(stream, 1, operations.as_mut_ptr(), 0),
        );
    }),
];
