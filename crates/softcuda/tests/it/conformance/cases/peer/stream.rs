//! Streams of one device while the other's context is current.

use super::{enable, new_context_of, reads, synchronizes};
use crate::conformance::api::*;
use crate::conformance::case::{Case, two_devices};
use crate::conformance::fixture::*;
use crate::conformance::structs::LaunchAttributeValue;

pub const CASES: &[Case] = &[
    two_devices!("peer/stream/asked_from_other", |line, zero, one| {
        let (mut context, mut device, mut flags, mut priority, mut id) = (0, -7, 77, 77, 0);
        line.gives(
            "context",
            cuStreamGetCtx(one.stream, &mut context),
            context == one.context,
        );
        line.gives("device", cuStreamGetDevice(one.stream, &mut device), device);
        line.gives("flags", cuStreamGetFlags(one.stream, &mut flags), flags);
        line.gives(
            "priority",
            cuStreamGetPriority(one.stream, &mut priority),
            priority,
        );
        line.says(cuStreamGetId(one.stream, &mut id));
        line.says(cuStreamQuery(one.stream));
        line.says(cuStreamSynchronize(one.stream));
        let mut status = 77;
        line.gives(
            "capturing",
            cuStreamIsCapturing(one.stream, &mut status),
            status,
        );
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/stream/asked_without_context", |line, zero, one| {
        cuCtxSetCurrent(0).must();
        let (mut context, mut device) = (0, -7);
        line.gives(
            "context",
            cuStreamGetCtx(one.stream, &mut context),
            context == one.context,
        );
        line.gives("device", cuStreamGetDevice(one.stream, &mut device), device);
        line.says(cuStreamQuery(one.stream));
        line.says(cuStreamSynchronize(one.stream));
        line.says(cuStreamDestroy_v2(one.stream));
        zero.enter();
        line.says(cuCtxSynchronize());
    }),
    two_devices!("peer/stream/destroyed_from_other", |line, zero, one| {
        let gate = Gate::close(one.stream);
        cuMemsetD32Async(one.word, 7, 1, one.stream).must();
        line.says(cuStreamDestroy_v2(one.stream));
        gate.open();
        synchronizes(line, [zero, one]);
        reads(line, "value", one.word);
    }),
    two_devices!("peer/stream/attributes", |line, zero, one| {
        const SYNCHRONIZATION: u32 = 3;
        let mut value = LaunchAttributeValue([0; 8]);
        value.0[0] = 2;
        line.says_as(
            "set_its",
            cuStreamSetAttribute(one.stream, SYNCHRONIZATION, &value),
        );
        let mut found = LaunchAttributeValue([0; 8]);
        line.gives(
            "get_its",
            cuStreamGetAttribute(one.stream, SYNCHRONIZATION, &mut found),
            found.0[0] as u32,
        );
        line.says_as("copy", cuStreamCopyAttributes(zero.stream, one.stream));
        line.gives(
            "copied",
            cuStreamGetAttribute(zero.stream, SYNCHRONIZATION, &mut found),
            found.0[0] as u32,
        );
    }),
    two_devices!(
        "peer/stream/write_value_without_access",
        |line, zero, one| {
            line.says_as(
                "write",
                cuStreamWriteValue32_v2(zero.stream, one.word, 5, 0),
            );
            line.says_as("end", cuStreamSynchronize(zero.stream));
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/stream/write_value_with_access", |line, zero, one| {
        enable(zero, one);
        line.says_as(
            "write",
            cuStreamWriteValue32_v2(zero.stream, one.word, 5, 0),
        );
        line.says_as("end", cuStreamSynchronize(zero.stream));
        reads(line, "value", one.word);
        // The word is there already, so that no stream stays blocked.
        line.says_as("wait", cuStreamWaitValue32_v2(zero.stream, one.word, 5, 1));
        line.says_as("wait_end", cuStreamSynchronize(zero.stream));
    }),
    two_devices!("peer/stream/write_value_from_other", |line, zero, one| {
        line.says_as("write", cuStreamWriteValue32_v2(one.stream, one.word, 5, 0));
        line.says_as("end", cuStreamSynchronize(one.stream));
        reads(line, "value", one.word);
    }),
    two_devices!(
        "peer/stream/legacy_order_is_a_context_s",
        |line, zero, one| {
            // Work of a blocking stream does not hold up the other device's legacy stream.
            let mut blocking = 0;
            cuStreamCreate(&mut blocking, 0).must();
            let gate = Gate::close(blocking);
            one.enter();
            line.says_as("fill", cuMemsetD32Async(one.word, 7, 1, LEGACY));
            line.says_as("end", cuStreamSynchronize(LEGACY));
            gate.open();
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!(
        "peer/stream/wait_value_without_access",
        |line, zero, one| {
            // The word is there already.
            line.says_as("wait", cuStreamWaitValue32_v2(zero.stream, one.word, 11, 1));
            line.says_as("end", cuStreamSynchronize(zero.stream));
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/stream/attributes_beside", |line, zero, one| {
        // Streams of two contexts of one device, and kernel nodes of both.
        use crate::graphs::api::{add_kernel, cuGraphKernelNodeCopyAttributes, graph};
        let graph = graph();
        let own = add_kernel(graph, &[], zero.function(c"empty"), &mut []);
        let made = new_context_of(0);
        let beside = stream();
        let other = add_kernel(graph, &[], function(c"empty"), &mut []);
        line.says_as("streams", cuStreamCopyAttributes(zero.stream, beside));
        line.says_as("nodes", cuGraphKernelNodeCopyAttributes(own, other));
        line.value("distinct", made != zero.context);
        synchronizes(line, [zero, one]);
    }),
];
