//! Kernels that use the other device's memory without access, or fail in another way: which
//! contexts fail, and what they answer then.

use super::{enable, reads, settles, synchronizes};
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, two_devices};
use crate::conformance::fixture::*;
use crate::conformance::sides::Side;

/// Has the first one's context fail by a store to the other's memory.
unsafe fn fail(line: &mut Line, failing: &Side, other: &Side) {
    line.says_as("store", failing.store(other.word, 5));
}

/// Waits for a launch of one side, and writes down what it and the other are good for then.
unsafe fn ends(line: &mut Line, launched: Answer, failing: &Side, other: &Side) {
    line.says_as("launch", launched);
    line.says_as("end", cuStreamSynchronize(failing.stream));
    line.says_as("alloc", cuMemAlloc_v2(&mut 0, 4));
    other.enter();
    line.says_as("other_end", cuStreamSynchronize(other.stream));
    line.says_as("other_alloc", cuMemAlloc_v2(&mut 0, 4));
    reads(line, "other_word", other.word);
    line.says_as("of_failed", cuCtxCreate_v2(&mut 0, 0, failing.device));
    line.says_as("of_other", cuCtxCreate_v2(&mut 0, 0, other.device));
    line.says_as("retain", cuDevicePrimaryCtxRetain(&mut 0, other.device));
}

/// Stores to an address, in the side's own stream.
unsafe fn stores(line: &mut Line, address: u64, failing: &Side, other: &Side) {
    let (mut address, mut value) = (address, 5u32);
    failing.enter();
    let store = failing.function(c"store");
    let mut arguments = [void(&mut address), void(&mut value)];
    let launched = launch(store, 1, 1, failing.stream, &mut arguments);
    ends(line, launched, failing, other);
}

/// Launches a kernel without parameters, in the side's own stream.
unsafe fn runs(line: &mut Line, name: &std::ffi::CStr, failing: &Side, other: &Side) {
    failing.enter();
    let function = failing.function(name);
    let launched = launch(function, 1, 1, failing.stream, &mut []);
    ends(line, launched, failing, other);
}

pub const CASES: &[Case] = &[
    two_devices!("peer/kernel_fault/wild", |line, zero, one| {
        stores(line, 0x7_0000_0000_0000, zero, one);
    }),
    two_devices!("peer/kernel_fault/null", |line, zero, one| {
        stores(line, 0, zero, one);
    }),
    two_devices!("peer/kernel_fault/misaligned", |line, zero, one| {
        stores(line, zero.word + 2, zero, one);
    }),
    two_devices!("peer/kernel_fault/trap", |line, zero, one| {
        runs(line, c"trap_always", zero, one);
    }),
    two_devices!(
        "peer/kernel_fault/trap_by_second_device",
        |line, zero, one| {
            runs(line, c"trap_always", one, zero);
        }
    ),
    two_devices!("peer/kernel_fault/assert", |line, zero, one| {
        runs(line, c"assert_always", zero, one);
    }),
    two_devices!("peer/kernel_fault/trap_then_reset", |line, zero, one| {
        let trap = zero.function(c"trap_always");
        launch(trap, 1, 1, zero.stream, &mut []).must();
        line.says_as("end", cuStreamSynchronize(zero.stream));
        line.says_as("reset", cuDevicePrimaryCtxReset_v2(0));
        one.enter();
        line.says_as("end_one", cuCtxSynchronize());
        line.says_as("retain", cuDevicePrimaryCtxRetain(&mut 0, 0));
    }),
    two_devices!("peer/kernel_fault/trap_not_awaited", |line, zero, one| {
        // The other context asks first.
        let trap = zero.function(c"trap_always");
        launch(trap, 1, 1, zero.stream, &mut []).must();
        one.enter();
        let ended = settles(line, "failing", zero.stream);
        line.value("ended", ended);
        line.says_as("end_one", cuCtxSynchronize());
        zero.enter();
        line.says_as("end_zero", cuCtxSynchronize());
    }),
    two_devices!(
        "peer/kernel_fault/while_other_has_work",
        |line, zero, one| {
            // What the other device has in its stream when a kernel fails.
            let store = one.function(c"store");
            let (mut address, mut value) = (one.word, 6u32);
            let mut arguments = [void(&mut address), void(&mut value)];
            one.enter();
            let gate = Gate::close(one.stream);
            launch(store, 1, 1, one.stream, &mut arguments).must();
            fail(line, zero, one);
            one.enter();
            line.says_as("query", cuStreamQuery(one.stream));
            gate.open();
            settles(line, "end_one", one.stream);
        }
    ),
    two_devices!("peer/kernel_fault/store", |line, zero, one| {
        fail(line, zero, one);
        line.says_as("again", cuCtxSynchronize());
        line.says_as("alloc", cuMemAlloc_v2(&mut 0, 4));
        line.says_as("query", cuStreamQuery(zero.stream));
        line.says_as("fill", cuMemsetD32_v2(zero.word, 1, 1));
        one.enter();
        line.says_as("other_end", cuCtxSynchronize());
        line.says_as("other_alloc", cuMemAlloc_v2(&mut 0, 4));
        reads(line, "other_word", one.word);
        line.says_as("other_store", one.store(one.word, 6));
        reads(line, "other_word", one.word);
    }),
    two_devices!(
        "peer/kernel_fault/store_by_second_device",
        |line, zero, one| {
            fail(line, one, zero);
            synchronizes(line, [zero, one]);
            zero.enter();
            reads(line, "word", zero.word);
            line.says_as("store", zero.store(zero.word, 6));
        }
    ),
    two_devices!("peer/kernel_fault/load", |line, zero, one| {
        let (mut to, mut from) = (zero.word, one.word);
        let load = zero.function(c"load");
        let mut arguments = [void(&mut to), void(&mut from)];
        line.says_as("launch", launch(load, 1, 1, zero.stream, &mut arguments));
        line.says_as("end", cuStreamSynchronize(zero.stream));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/kernel_fault/wrong_direction", |line, zero, one| {
        // The one whose memory it is may use the other's, which is no help.
        enable(one, zero);
        fail(line, zero, one);
        synchronizes(line, [zero, one]);
        line.says_as("other_store", one.store(one.word, 6));
    }),
    two_devices!("peer/kernel_fault/peer_was_enabled", |line, zero, one| {
        // A context with access to one that fails is none the worse.
        enable(one, zero);
        line.says_as("before", one.store(zero.word, 6));
        fail(line, zero, one);
        line.says_as("into_failed", one.store(zero.word, 7));
        line.says_as("own", one.store(one.word, 8));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/kernel_fault/both", |line, zero, one| {
        fail(line, zero, one);
        fail(line, one, zero);
        synchronizes(line, [zero, one]);
    }),
    two_devices!(
        "peer/kernel_fault/then_copies_by_other",
        |line, zero, one| {
            fail(line, zero, one);
            one.enter();
            line.says_as("from_failed", cuMemcpyDtoD_v2(one.word, zero.word, 4));
            line.says_as("to_failed", cuMemcpyDtoD_v2(zero.word, one.word, 4));
            line.says_as(
                "peer",
                cuMemcpyPeer(one.word, one.context, zero.word, zero.context, 4),
            );
            reads(line, "read", zero.word);
            line.says_as("fill", cuMemsetD32_v2(zero.word, 1, 1));
            line.says_as("end_one", cuCtxSynchronize());
        }
    ),
    two_devices!(
        "peer/kernel_fault/then_memory_by_other",
        |line, zero, one| {
            fail(line, zero, one);
            one.enter();
            let (mut ordinal, mut base, mut size) = (-7, 0, 0);
            line.gives(
                "device",
                cuPointerGetAttribute(void(&mut ordinal), 9, zero.word),
                ordinal,
            );
            line.says_as(
                "range",
                cuMemGetAddressRange_v2(&mut base, &mut size, zero.word),
            );
            line.says_as("free", cuMemFree_v2(zero.word));
            line.says_as("end_one", cuCtxSynchronize());
        }
    ),
    two_devices!("peer/kernel_fault/then_events", |line, zero, one| {
        let (before, never) = (event(), event());
        cuEventRecord(before, zero.stream).must();
        cuStreamSynchronize(zero.stream).must();
        fail(line, zero, one);
        line.says_as("record", cuEventRecord(never, zero.stream));
        one.enter();
        line.says_as("query_before", cuEventQuery(before));
        line.says_as("query_never", cuEventQuery(never));
        line.says_as("synchronize", cuEventSynchronize(before));
        line.says_as("wait_before", cuStreamWaitEvent(one.stream, before, 0));
        line.says_as("end_one", cuStreamSynchronize(one.stream));
        line.says_as("query_stream", cuStreamQuery(zero.stream));
        line.says_as("stream_end", cuStreamSynchronize(zero.stream));
        line.says_as("wait_in_failed", cuStreamWaitEvent(zero.stream, before, 0));
    }),
    two_devices!("peer/kernel_fault/while_other_waits", |line, zero, one| {
        let done = event();
        let gate = Gate::close(zero.stream);
        let (mut address, mut value) = (one.word, 5u32);
        let mut arguments = [void(&mut address), void(&mut value)];
        let store = zero.function(c"store");
        launch(store, 1, 1, zero.stream, &mut arguments).must();
        cuEventRecord(done, zero.stream).must();
        one.enter();
        cuStreamWaitEvent(one.stream, done, 0).must();
        gate.open();
        let ended = settles(line, "end_one", one.stream);
        line.says_as("query", cuEventQuery(done));
        if ended {
            line.says_as("one_again", cuCtxSynchronize());
            line.says_as("own", one.store(one.word, 6));
        }
        zero.enter();
        line.says_as("end_zero", cuCtxSynchronize());
    }),
    two_devices!("peer/kernel_fault/then_reset", |line, zero, one| {
        fail(line, zero, one);
        line.says_as("reset", cuDevicePrimaryCtxReset_v2(0));
        one.enter();
        line.says_as("end_one", cuCtxSynchronize());
        let mut context = 0;
        let retained = cuDevicePrimaryCtxRetain(&mut context, 0);
        if line.says_as("retain", retained) && line.says(cuCtxSetCurrent(context)) {
            let mut address = 0;
            line.says_as("alloc", cuMemAlloc_v2(&mut address, 4));
            line.says_as("fill", cuMemsetD32_v2(address, 1, 1));
            line.says_as("end_zero", cuCtxSynchronize());
        }
    }),
    two_devices!("peer/kernel_fault/then_new_contexts", |line, zero, one| {
        fail(line, zero, one);
        line.says_as("of_failed", cuCtxCreate_v2(&mut 0, 0, 0));
        one.enter();
        line.says_as("of_failed_again", cuCtxCreate_v2(&mut 0, 0, 0));
        one.enter();
        line.says_as("of_other", cuCtxCreate_v2(&mut 0, 0, 1));
        line.says_as("alloc", cuMemAlloc_v2(&mut 0, 4));
    }),
    two_devices!(
        "peer/kernel_fault/then_launches_into_it",
        |line, zero, one| {
            let (empty, its) = (one.function(c"empty"), zero.stream);
            fail(line, zero, one);
            one.enter();
            line.says_as("in_failed_stream", launch(empty, 1, 1, its, &mut []));
            line.says_as("in_own_stream", launch(empty, 1, 1, one.stream, &mut []));
            line.says_as("end_one", cuCtxSynchronize());
        }
    ),
];
