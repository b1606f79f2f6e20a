//! Fills of the other device's memory.

use super::{enable, new_context_of, reads, synchronizes};
use crate::conformance::api::*;
use crate::conformance::case::{Case, two_devices};
use crate::conformance::fixture::*;

pub const CASES: &[Case] = &[
    two_devices!("peer/fill/all_widths", |line, zero, one| {
        line.says(cuMemsetD8_v2(one.word, 1, 4));
        reads(line, "d8", one.word);
        line.says(cuMemsetD16_v2(one.word, 2, 2));
        reads(line, "d16", one.word);
        line.says(cuMemsetD32_v2(one.word, 3, 1));
        reads(line, "d32", one.word);
        line.says(cuMemsetD2D8_v2(one.word, 4, 4, 4, 1));
        reads(line, "rows", one.word);
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/fill/streams", |line, zero, one| {
        for (side, current) in [(zero, "zero"), (one, "one")] {
            side.enter();
            for (what, stream) in [
                ("zero_stream", zero.stream),
                ("one_stream", one.stream),
                ("null_stream", 0),
            ] {
                line.says_as(
                    format!("{current}_{what}"),
                    cuMemsetD32Async(one.word, 7, 1, stream),
                );
            }
        }
        synchronizes(line, [zero, one]);
        reads(line, "value", one.word);
    }),
    two_devices!("peer/fill/over_the_end", |line, zero, one| {
        const SIZE: usize = 4 << 20;
        one.enter();
        let its = memory(SIZE);
        zero.enter();
        line.says_as("over", cuMemsetD8_v2(its, 0, SIZE + 1));
        line.says_as("over_async", cuMemsetD8Async(its, 0, SIZE + 1, zero.stream));
        line.says_as("within", cuMemsetD8_v2(its, 0, SIZE));
        line.says_as("nothing", cuMemsetD8_v2(its, 0, 0));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/fill/no_context_current", |line, zero, one| {
        cuCtxSetCurrent(0).must();
        line.says_as("sync", cuMemsetD32_v2(one.word, 7, 1));
        line.says_as("async", cuMemsetD32Async(one.word, 7, 1, one.stream));
        zero.enter();
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/fill/with_access", |line, zero, one| {
        enable(zero, one);
        line.says_as("sync", cuMemsetD32_v2(one.word, 5, 1));
        reads(line, "value", one.word);
        let (word, stream) = (one.word, zero.stream);
        line.says_as("own_stream", cuMemsetD32Async(word, 6, 1, stream));
        line.says_as("other_way", cuMemsetD32Async(zero.word, 6, 1, one.stream));
        cuCtxDisablePeerAccess(one.context).must();
        line.says_as("disabled", cuMemsetD32Async(word, 7, 1, stream));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/fill/access_to_another_context", |line, zero, one| {
        // Access is to a context's memory, and its own device's contexts need none.
        let made = new_context_of(1);
        let its = memory(4);
        zero.enter();
        cuCtxEnablePeerAccess(made, 0).must();
        line.says_as("its", cuMemsetD32_v2(its, 5, 1));
        line.says_as("other_context_s", cuMemsetD32_v2(one.word, 5, 1));
        let beside = new_context_of(0);
        line.says_as("of_device", cuMemsetD32_v2(zero.word, 5, 1));
        line.says_as("its_beside", cuMemsetD32_v2(its, 6, 1));
        line.value("distinct", beside != zero.context);
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/fill/other_memory", |line, zero, one| {
        // What the second device's context made.
        one.enter();
        let (host, shared) = (pinned(4) as u64, managed(4));
        let (mut counter, mut size) = (0, 0);
        cuModuleGetGlobal_v2(&mut counter, &mut size, one.module, c"counter".as_ptr()).must();
        zero.enter();
        for (what, address) in [("pinned", host), ("managed", shared), ("variable", counter)] {
            line.says_as(what, cuMemsetD32Async(address, 5, 1, zero.stream));
        }
        synchronizes(line, [zero, one]);
    }),
];
