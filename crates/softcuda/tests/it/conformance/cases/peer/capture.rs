//! Captures with streams of two devices.

use super::super::graph_run::runs;
use super::{enable, new_context_of, reads, synchronizes};
use crate::capture::api::*;
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, two_devices};
use crate::conformance::fixture::*;
use crate::conformance::sides::Side;
use crate::graphs::api::named;

/// Ends a capture, writes down what it has, and runs the graph.
unsafe fn ends(line: &mut Line, stream: Handle) {
    let mut graph = 0;
    if line.says(cuStreamEndCapture(stream, &mut graph)) {
        line.value("kinds", format!("{:?}", kinds(graph)));
        line.value("edges", format!("{:?}", edges(graph)));
        runs(line, "run", graph);
    }
}

/// Writes down what capturing a stream has come to.
unsafe fn is_capturing(line: &mut Line, what: &str, stream: Handle) {
    let mut status = 77;
    line.gives(what, cuStreamIsCapturing(stream, &mut status), status);
}

/// Launches a side's `store` to its own word.
unsafe fn stores(side: &Side, value: u32) -> Answer {
    side.enter();
    launch_store(side.function(c"store"), side.stream, side.word, value)
}

pub const CASES: &[Case] = &[
    two_devices!("peer/capture/fork_and_join", |line, zero, one| {
        begin(zero.stream, GLOBAL);
        stores(zero, 5).must();
        let forked = event();
        cuEventRecord(forked, zero.stream).must();
        line.says_as("fork", cuStreamWaitEvent(one.stream, forked, 0));
        is_capturing(line, "one_captures", one.stream);
        line.says_as("store", stores(one, 6));
        let joined = event();
        line.says_as("record", cuEventRecord(joined, one.stream));
        zero.enter();
        line.says_as("join", cuStreamWaitEvent(zero.stream, joined, 0));
        stores(zero, 7).must();
        ends(line, zero.stream);
        synchronizes(line, [zero, one]);
        reads(line, "word_zero", zero.word);
        reads(line, "word_one", one.word);
    }),
    two_devices!("peer/capture/not_joined", |line, zero, one| {
        begin(zero.stream, GLOBAL);
        order(zero.stream, one.stream);
        line.says_as("store", stores(one, 6));
        ends(line, zero.stream);
        is_capturing(line, "one_captures", one.stream);
    }),
    two_devices!("peer/capture/ended_by_other", |line, zero, one| {
        begin(zero.stream, GLOBAL);
        stores(zero, 5).must();
        one.enter();
        ends(line, zero.stream);
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/capture/begun_from_other", |line, zero, one| {
        one.enter();
        line.says_as("begin", cuStreamBeginCapture_v2(zero.stream, GLOBAL));
        let store = zero.function(c"store");
        line.says_as("store", launch_store(store, zero.stream, zero.word, 5));
        ends(line, zero.stream);
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/capture/copies", |line, zero, one| {
        begin(zero.stream, RELAXED);
        line.says_as(
            "dtod",
            cuMemcpyDtoDAsync_v2(one.word, zero.word, 4, zero.stream),
        );
        line.says_as(
            "unified",
            cuMemcpyAsync(one.word, zero.word, 4, zero.stream),
        );
        line.says_as("fill", cuMemsetD32Async(one.word, 7, 1, zero.stream));
        ends(line, zero.stream);
        synchronizes(line, [zero, one]);
        reads(line, "value", one.word);
    }),
    two_devices!(
        "peer/capture/copies_with_other_current",
        |line, zero, one| {
            begin(zero.stream, RELAXED);
            one.enter();
            line.says_as(
                "dtod",
                cuMemcpyDtoDAsync_v2(one.word, zero.word, 4, zero.stream),
            );
            line.says_as("fill", cuMemsetD32Async(zero.word, 7, 1, zero.stream));
            ends(line, zero.stream);
            synchronizes(line, [zero, one]);
            reads(line, "value", one.word);
        }
    ),
    two_devices!("peer/capture/copy_peer", |line, zero, one| {
        let (a, b) = (zero.context, one.context);
        begin(zero.stream, RELAXED);
        line.says_as(
            "peer",
            cuMemcpyPeerAsync(one.word, b, zero.word, a, 4, zero.stream),
        );
        is_capturing(line, "status", zero.stream);
        ends(line, zero.stream);
        synchronizes(line, [zero, one]);
        reads(line, "value", one.word);
    }),
    two_devices!("peer/capture/copies_wrong", |line, zero, one| {
        let (a, b) = (zero.context, one.context);
        begin(zero.stream, RELAXED);
        line.says_as(
            "swapped",
            cuMemcpyPeerAsync(one.word, a, zero.word, b, 4, zero.stream),
        );
        line.says_as(
            "null_context",
            cuMemcpyPeerAsync(one.word, 0, zero.word, a, 4, zero.stream),
        );
        line.says_as(
            "null_address",
            cuMemcpyPeerAsync(0, b, zero.word, a, 4, zero.stream),
        );
        is_capturing(line, "status", zero.stream);
        ends(line, zero.stream);
        synchronizes(line, [zero, one]);
    }),
    two_devices!(
        "peer/capture/synchronous_work_of_other",
        |line, zero, one| {
            // What a global capture forbids, it forbids on every device.
            begin(zero.stream, GLOBAL);
            one.enter();
            line.says_as("synchronize", cuCtxSynchronize());
            line.says_as("stream", cuStreamSynchronize(one.stream));
            line.says_as("copy", cuMemcpyDtoD_v2(one.word, one.word, 4));
            line.says_as("alloc", cuMemAlloc_v2(&mut 0, 4));
            is_capturing(line, "status", zero.stream);
            let mut graph = 0;
            line.says(cuStreamEndCapture(zero.stream, &mut graph));
        }
    ),
    two_devices!("peer/capture/peer_access", |line, zero, one| {
        begin(zero.stream, GLOBAL);
        line.says_as("enable", cuCtxEnablePeerAccess(one.context, 0));
        line.says_as("disable", cuCtxDisablePeerAccess(one.context));
        is_capturing(line, "status", zero.stream);
        let mut can = -7;
        line.gives("can", cuDeviceCanAccessPeer(&mut can, 0, 1), can);
        let mut graph = 0;
        line.says(cuStreamEndCapture(zero.stream, &mut graph));
    }),
    two_devices!("peer/capture/peer_access_wrong", |line, zero, one| {
        begin(zero.stream, GLOBAL);
        line.says_as("flags", cuCtxEnablePeerAccess(one.context, 1));
        line.says_as("null", cuCtxEnablePeerAccess(0, 0));
        line.says_as("disable_null", cuCtxDisablePeerAccess(0));
        line.says_as("enable_self", cuCtxEnablePeerAccess(zero.context, 0));
        is_capturing(line, "status", zero.stream);
        line.says_as("disable_self", cuCtxDisablePeerAccess(zero.context));
        is_capturing(line, "then", zero.stream);
        let mut graph = 0;
        line.says(cuStreamEndCapture(zero.stream, &mut graph));
    }),
    two_devices!("peer/capture/legacy_stream_of_other", |line, zero, one| {
        // A blocking stream in a capture spoils the legacy stream of its own context.
        let mut blocking = 0;
        cuStreamCreate(&mut blocking, 0).must();
        begin(blocking, RELAXED);
        one.enter();
        line.says_as("fill", cuMemsetD32Async(one.word, 7, 1, 0));
        line.says_as("synchronize", cuStreamSynchronize(0));
        is_capturing(line, "status", blocking);
        let mut graph = 0;
        line.says(cuStreamEndCapture(blocking, &mut graph));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/capture/event_of_other_device", |line, zero, one| {
        // An event is recorded in streams of its own device, captured or not.
        begin(zero.stream, RELAXED);
        one.enter();
        let its = event();
        line.says_as("record", cuEventRecord(its, zero.stream));
        is_capturing(line, "status", zero.stream);
        let mut graph = 0;
        line.says(cuStreamEndCapture(zero.stream, &mut graph));
    }),
    two_devices!("peer/capture/allocation_of_other", |line, zero, one| {
        let pool = super::pool::pool_of(1);
        let mut address = 0;
        begin(zero.stream, RELAXED);
        line.says_as(
            "alloc",
            cuMemAllocFromPoolAsync(&mut address, 4, pool, zero.stream),
        );
        line.says_as("free", cuMemFreeAsync(address, zero.stream));
        ends(line, zero.stream);
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/capture/both_at_once", |line, zero, one| {
        // Two captures that do not know of each other, and an event between them.
        begin(zero.stream, RELAXED);
        line.says_as("begin", cuStreamBeginCapture_v2(one.stream, RELAXED));
        stores(zero, 5).must();
        line.says_as("store", stores(one, 6));
        zero.enter();
        let done = event();
        cuEventRecord(done, zero.stream).must();
        line.says_as("merge", cuStreamWaitEvent(one.stream, done, 0));
        let mut graph = 0;
        line.says_as("end_one", cuStreamEndCapture(one.stream, &mut graph));
        line.says_as("end_zero", cuStreamEndCapture(zero.stream, &mut graph));
    }),
    two_devices!("peer/capture/third_context", |line, zero, one| {
        let made = new_context_of(1);
        let its = stream();
        zero.enter();
        begin(zero.stream, RELAXED);
        order(zero.stream, its);
        line.says_as("fill", cuMemsetD32Async(one.word, 9, 1, its));
        cuCtxSetCurrent(made).must();
        let back = event();
        line.says_as("record", cuEventRecord(back, its));
        zero.enter();
        line.says_as("join", cuStreamWaitEvent(zero.stream, back, 0));
        ends(line, zero.stream);
        synchronizes(line, [zero, one]);
        reads(line, "value", one.word);
    }),
    two_devices!("peer/capture/contexts_of_nodes", |line, zero, one| {
        begin(zero.stream, RELAXED);
        let forked = order(zero.stream, one.stream);
        line.says_as("store", stores(one, 6));
        let joined = event();
        cuEventRecord(joined, one.stream).must();
        cuStreamWaitEvent(zero.stream, joined, 0).must();
        let graph = end(zero.stream);
        let mut params = crate::graphs::api::kernel_params(0, &mut []);
        for node in crate::graphs::api::nodes(graph) {
            line.gives(
                "context",
                crate::graphs::api::cuGraphKernelNodeGetParams_v2(node, &mut params),
                named(
                    params.context,
                    &[("zero", zero.context), ("one", one.context)],
                ),
            );
        }
        line.says_as("query_fork", cuEventQuery(forked));
    }),
    two_devices!("peer/capture/fill_alone", |line, zero, one| {
        // Access that comes before the graph is instantiated, or none.
        begin(zero.stream, RELAXED);
        line.says_as("fill", cuMemsetD32Async(one.word, 7, 1, zero.stream));
        let graph = end(zero.stream);
        runs(line, "without", graph);
        enable(zero, one);
        runs(line, "with", graph);
        synchronizes(line, [zero, one]);
        reads(line, "value", one.word);
    }),
];
