//! Fills of the other device's memory.

use super::{reads, synchronizes};
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
];
