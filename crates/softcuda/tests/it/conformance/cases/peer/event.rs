//! Events of one device in the streams of the other.

use super::{new_context_of, reads, synchronizes};
use crate::conformance::api::*;
use crate::conformance::case::{Case, two_devices};
use crate::conformance::fixture::*;

pub const CASES: &[Case] = &[
    two_devices!("peer/event/record_in_its_stream", |line, zero, one| {
        let own = event();
        line.says_as("record", cuEventRecord(own, one.stream));
        line.says_as("query", cuEventQuery(own));
        line.says_as("flags", cuEventRecordWithFlags(own, one.stream, 0));
        one.enter();
        line.says_as("one_current", cuEventRecord(own, one.stream));
        line.says_as("null_stream", cuEventRecord(own, 0));
        line.says_as("legacy_stream", cuEventRecord(own, LEGACY));
        line.says_as("thread_s_stream", cuEventRecord(own, PER_THREAD));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/event/record_from_other", |line, zero, one| {
        let own = event();
        one.enter();
        line.says_as("record", cuEventRecord(own, zero.stream));
        line.says_as("synchronize", cuEventSynchronize(own));
        line.says_as("query", cuEventQuery(own));
        cuCtxSetCurrent(0).must();
        line.says_as("none_current", cuEventRecord(own, zero.stream));
        line.says_as("synchronize_none_current", cuEventSynchronize(own));
        line.says_as("query_none_current", cuEventQuery(own));
        zero.enter();
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/event/wait_in_its_stream", |line, zero, one| {
        let done = event();
        let gate = Gate::close(zero.stream);
        cuMemsetD32Async(zero.word, 70, 1, zero.stream).must();
        line.says_as("record", cuEventRecord(done, zero.stream));
        line.says_as("wait", cuStreamWaitEvent(one.stream, done, 0));
        one.enter();
        line.says_as("wait_one_current", cuStreamWaitEvent(one.stream, done, 0));
        line.says_as("query", cuEventQuery(done));
        line.says_as(
            "copy",
            cuMemcpyDtoDAsync_v2(one.word, zero.word, 4, one.stream),
        );
        line.says_as("query_stream", cuStreamQuery(one.stream));
        gate.open();
        line.says_as("end", cuStreamSynchronize(one.stream));
        reads(line, "value", one.word);
    }),
    two_devices!("peer/event/wait_in_default_streams", |line, zero, one| {
        let done = event();
        cuEventRecord(done, zero.stream).must();
        one.enter();
        for (what, stream) in [("null", 0), ("legacy", LEGACY), ("own", PER_THREAD)] {
            line.says_as(what, cuStreamWaitEvent(stream, done, 0));
        }
        line.says_as("flags", cuStreamWaitEvent(one.stream, done, 9));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/event/elapsed_across", |line, zero, one| {
        let first = event();
        cuEventRecord(first, zero.stream).must();
        one.enter();
        let second = event();
        cuEventRecord(second, one.stream).must();
        synchronizes(line, [zero, one]);
        let mut time = 0.0;
        line.says_as("forward", cuEventElapsedTime(&mut time, first, second));
        line.says_as("back", cuEventElapsedTime(&mut time, second, first));
        line.says_as("same", cuEventElapsedTime(&mut time, first, first));
        zero.enter();
        line.says_as("v2", cuEventElapsedTime_v2(&mut time, first, second));
    }),
    two_devices!("peer/event/elapsed_from_other", |line, zero, one| {
        let events = [event(), event()];
        for event in events {
            cuEventRecord(event, zero.stream).must();
        }
        cuStreamSynchronize(zero.stream).must();
        let mut time = 0.0;
        one.enter();
        line.says(cuEventElapsedTime(&mut time, events[0], events[1]));
        cuCtxSetCurrent(0).must();
        line.says_as(
            "none_current",
            cuEventElapsedTime(&mut time, events[0], events[1]),
        );
    }),
    two_devices!("peer/event/never_recorded", |line, zero, one| {
        let own = event();
        one.enter();
        line.says_as("query", cuEventQuery(own));
        line.says_as("synchronize", cuEventSynchronize(own));
        line.says_as("wait", cuStreamWaitEvent(one.stream, own, 0));
        line.says_as("destroy", cuEventDestroy_v2(own));
        synchronizes(line, [zero, one]);
    }),
    two_devices!(
        "peer/event/destroyed_while_other_waits",
        |line, zero, one| {
            let done = event();
            let gate = Gate::close(zero.stream);
            cuEventRecord(done, zero.stream).must();
            one.enter();
            cuStreamWaitEvent(one.stream, done, 0).must();
            line.says_as("destroy", cuEventDestroy_v2(done));
            line.says_as("query", cuStreamQuery(one.stream));
            gate.open();
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/event/of_destroyed_context", |line, zero, one| {
        let made = new_context_of(1);
        let its = stream();
        let done = event();
        cuEventRecord(done, its).must();
        zero.enter();
        line.says_as("wait", cuStreamWaitEvent(zero.stream, done, 0));
        cuCtxDestroy_v2(made).must();
        line.says_as("alloc", cuMemAlloc_v2(&mut 0, 4));
        synchronizes(line, [zero, one]);
    }),
];
