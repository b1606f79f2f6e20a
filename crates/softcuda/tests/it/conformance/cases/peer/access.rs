//! `cuCtxEnablePeerAccess` and `cuCtxDisablePeerAccess`.

use super::{enable, new_context_of, reads, synchronizes};
use crate::conformance::api::*;
use crate::conformance::case::{Case, two_devices};
use crate::conformance::fixture::*;
use crate::conformance::sides::Side;

/// Writes where a word is that it allocated.
const ALLOCATES: &str = "
.version 8.3
.target sm_80
.address_size 64
.extern .func (.param .b64 result) malloc(.param .b64 size);
.visible .entry allocates(.param .u64 allocates_0)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [allocates_0];
    mov.u64 %rd2, 4;
    { .param .b64 size; .param .b64 result;
      st.param.b64 [size], %rd2;
      call.uni (result), malloc, (size);
      ld.param.b64 %rd3, [result]; }
    st.global.u64 [%rd1], %rd3;
    ret;
}
";

pub const CASES: &[Case] = &[
    two_devices!("peer/access/enable_twice", |line, zero, one| {
        line.says_as("disable_before", cuCtxDisablePeerAccess(one.context));
        line.says_as("enable", cuCtxEnablePeerAccess(one.context, 0));
        line.says_as("twice", cuCtxEnablePeerAccess(one.context, 0));
        line.says_as("disable", cuCtxDisablePeerAccess(one.context));
        line.says_as("disable_twice", cuCtxDisablePeerAccess(one.context));
        line.says_as("enable_anew", cuCtxEnablePeerAccess(one.context, 0));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/access/directions", |line, zero, one| {
        enable(zero, one);
        one.enter();
        line.says_as("disable_other_way", cuCtxDisablePeerAccess(zero.context));
        line.says_as("enable_other_way", cuCtxEnablePeerAccess(zero.context, 0));
        zero.enter();
        line.says_as("disable", cuCtxDisablePeerAccess(one.context));
        line.says_as("store_other_way", one.store(zero.word, 5));
        reads(line, "value", zero.word);
    }),
    two_devices!("peer/access/own_device", |line, zero, _one| {
        line.says_as("enable_self", cuCtxEnablePeerAccess(zero.context, 0));
        line.says_as("disable_self", cuCtxDisablePeerAccess(zero.context));
        let made = new_context_of(0);
        zero.enter();
        line.says_as("enable_made", cuCtxEnablePeerAccess(made, 0));
        line.says_as("disable_made", cuCtxDisablePeerAccess(made));
        line.says_as("enable_flags", cuCtxEnablePeerAccess(made, 1));
    }),
    two_devices!("peer/access/flags", |line, _zero, one| {
        line.says_as("one", cuCtxEnablePeerAccess(one.context, 1));
        line.says_as("all", cuCtxEnablePeerAccess(one.context, u32::MAX));
        line.says_as("null_context", cuCtxEnablePeerAccess(0, 1));
        line.says_as("right", cuCtxEnablePeerAccess(one.context, 0));
        line.says_as("enabled_already", cuCtxEnablePeerAccess(one.context, 1));
    }),
    two_devices!("peer/access/null", |line, _zero, _one| {
        line.says_as("enable", cuCtxEnablePeerAccess(0, 0));
        line.says_as("disable", cuCtxDisablePeerAccess(0));
    }),
    two_devices!("peer/access/no_context_current", |line, _zero, one| {
        cuCtxSetCurrent(0).must();
        line.says_as("enable", cuCtxEnablePeerAccess(one.context, 0));
        line.says_as("enable_flags", cuCtxEnablePeerAccess(one.context, 1));
        line.says_as("enable_null", cuCtxEnablePeerAccess(0, 0));
        line.says_as("disable", cuCtxDisablePeerAccess(one.context));
        line.says_as("disable_null", cuCtxDisablePeerAccess(0));
    }),
    two_devices!("peer/access/peer_destroyed_before", |line, zero, one| {
        let made = new_context_of(1);
        cuCtxDestroy_v2(made).must();
        zero.enter();
        line.says_as("enable", cuCtxEnablePeerAccess(made, 0));
        line.says_as("disable", cuCtxDisablePeerAccess(made));
        synchronizes(line, [zero, one]);
    }),
    two_devices!(
        "peer/access/peer_destroyed_while_enabled",
        |line, zero, one| {
            let made = new_context_of(1);
            zero.enter();
            cuCtxEnablePeerAccess(made, 0).must();
            line.says_as("destroy", cuCtxDestroy_v2(made));
            line.says_as("disable", cuCtxDisablePeerAccess(made));
            line.says_as("enable_primary", cuCtxEnablePeerAccess(one.context, 0));
            line.says_as("store", zero.store(one.word, 5));
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/access/own_context_destroyed", |line, zero, one| {
        let made = new_context_of(0);
        cuCtxEnablePeerAccess(one.context, 0).must();
        line.says_as("destroy", cuCtxDestroy_v2(made));
        zero.enter();
        line.says_as("disable", cuCtxDisablePeerAccess(one.context));
        line.says_as("enable", cuCtxEnablePeerAccess(one.context, 0));
    }),
    two_devices!("peer/access/peer_reset", |line, zero, one| {
        enable(zero, one);
        line.says_as("reset", cuDevicePrimaryCtxReset_v2(1));
        let again = Side::new(1);
        zero.enter();
        line.says_as("disable", cuCtxDisablePeerAccess(again.context));
        line.says_as("enable", cuCtxEnablePeerAccess(again.context, 0));
        line.says_as("store", zero.store(again.word, 5));
        reads(line, "value", again.word);
    }),
    two_devices!("peer/access/own_context_reset", |line, zero, one| {
        enable(zero, one);
        line.says_as("reset", cuDevicePrimaryCtxReset_v2(0));
        let again = Side::new(0);
        line.says_as("disable", cuCtxDisablePeerAccess(one.context));
        line.says_as("enable", cuCtxEnablePeerAccess(one.context, 0));
        line.says_as("store", again.store(one.word, 5));
        synchronizes(line, [&again, one]);
    }),
    two_devices!("peer/access/two_contexts_of_the_peer", |line, zero, one| {
        let made = new_context_of(1);
        zero.enter();
        line.says_as("enable_made", cuCtxEnablePeerAccess(made, 0));
        line.says_as("disable_primary", cuCtxDisablePeerAccess(one.context));
        line.says_as("enable_primary", cuCtxEnablePeerAccess(one.context, 0));
        line.says_as("disable_made", cuCtxDisablePeerAccess(made));
        line.says_as("store_primary", zero.store(one.word, 5));
        synchronizes(line, [zero, one]);
    }),
    two_devices!(
        "peer/access/another_context_of_the_peer",
        |line, zero, one| {
            let made = new_context_of(1);
            let word = memory(4);
            fill_words(word, 7, 1);
            zero.enter();
            cuCtxEnablePeerAccess(made, 0).must();
            line.says_as("store_enabled", zero.store(word, 5));
            reads(line, "value", word);
            line.says_as("store_other", zero.store(one.word, 5));
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!(
        "peer/access/another_context_of_this_device",
        |line, zero, one| {
            enable(zero, one);
            let made = new_context_of(0);
            let (store, stream) = (function(c"store"), stream());
            let (mut address, mut value) = (one.word, 5u32);
            let mut arguments = [void(&mut address), void(&mut value)];
            line.says_as("launch", launch(store, 1, 1, stream, &mut arguments));
            line.says_as("end_made", cuStreamSynchronize(stream));
            cuCtxSetCurrent(made).must();
            line.says_as("made_again", cuCtxSynchronize());
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!(
        "peer/access/two_contexts_of_one_device",
        |line, _zero, _one| {
            // What one context allocates is another's, even on the same device.
            let made = new_context_of(0);
            let word = memory(4);
            fill_words(word, 7, 1);
            let zero = Side::new(0);
            line.says_as("store", zero.store(word, 5));
            line.says_as("again", cuCtxSynchronize());
            cuCtxSetCurrent(made).must();
            line.says_as("end_made", cuCtxSynchronize());
            reads(line, "value", word);
        }
    ),
    two_devices!(
        "peer/access/both_contexts_of_this_device",
        |line, zero, one| {
            // Two contexts of a device enable the same access, and one of them disables it.
            let made = new_context_of(0);
            enable(zero, one);
            cuCtxSetCurrent(made).must();
            line.says_as("disable_made", cuCtxDisablePeerAccess(one.context));
            line.says_as("enable_made", cuCtxEnablePeerAccess(one.context, 0));
            zero.enter();
            line.says_as("disable_zero", cuCtxDisablePeerAccess(one.context));
            line.says_as("store", zero.store(one.word, 5));
            cuCtxSetCurrent(made).must();
            line.says_as("end_made", cuCtxSynchronize());
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/access/enabling_context_ends", |line, zero, one| {
        let made = new_context_of(0);
        cuCtxEnablePeerAccess(one.context, 0).must();
        line.says_as("store", zero.store(one.word, 5));
        line.says_as("destroy", cuCtxDestroy_v2(made));
        line.says_as("store_after", zero.store(one.word, 6));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/access/memory_of_kernels", |line, zero, one| {
        // What a kernel of the other device allocated.
        one.enter();
        let allocates = function_of(module_of(ALLOCATES), c"allocates");
        let mut result = memory(8);
        launch(allocates, 1, 1, one.stream, &mut [void(&mut result)]).must();
        cuStreamSynchronize(one.stream).must();
        let mut address = 0u64;
        cuMemcpyDtoH_v2(void(&mut address), result, 8).must();
        line.value("null", address == 0);
        enable(zero, one);
        line.says_as("store", zero.store(address, 5));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/access/disabled_again", |line, zero, one| {
        enable(zero, one);
        line.says_as("store", zero.store(one.word, 5));
        line.says_as("disable", cuCtxDisablePeerAccess(one.context));
        line.says_as("store_after", zero.store(one.word, 6));
        synchronizes(line, [zero, one]);
        one.enter();
        reads(line, "value", one.word);
    }),
    two_devices!("peer/access/memory_allocated_later", |line, zero, one| {
        enable(zero, one);
        one.enter();
        let later = memory(4);
        line.says_as("store", zero.store(later, 5));
        reads(line, "value", later);
    }),
    two_devices!("peer/access/failed_contexts", |line, zero, one| {
        zero.store(one.word, 5).ignore();
        zero.enter();
        line.says_as("enable_by_failed", cuCtxEnablePeerAccess(one.context, 0));
        line.says_as("disable_by_failed", cuCtxDisablePeerAccess(one.context));
        one.enter();
        line.says_as("enable_failed", cuCtxEnablePeerAccess(zero.context, 0));
        line.says_as("disable_failed", cuCtxDisablePeerAccess(zero.context));
        line.says_as("end_one", cuCtxSynchronize());
    }),
];
