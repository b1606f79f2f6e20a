//! Managed memory and two devices.

use super::{new_context_of, reads, synchronizes};
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, two_devices};
use crate::conformance::fixture::*;
use crate::conformance::sides::location;

const SIZE: usize = 1 << 20;
const PREFERRED_LOCATION: u32 = 2;
const ACCESSED_BY: u32 = 3;
const LAST_PREFETCH: u32 = 4;

/// Writes down one number of a range.
unsafe fn says(line: &mut Line, what: &str, attribute: u32, address: u64) {
    let mut value = -77;
    let answer = cuMemRangeGetAttribute(void(&mut value), 4, attribute, address, SIZE);
    line.gives(what, answer, value);
}

pub const CASES: &[Case] = &[
    two_devices!("peer/managed/kernels_of_both", |line, zero, one| {
        let shared = managed(SIZE);
        line.says_as("store_zero", zero.store(shared, 5));
        one.enter();
        reads(line, "seen_by_one", shared);
        line.says_as("store_one", one.store(shared, 6));
        zero.enter();
        reads(line, "seen_by_zero", shared);
        line.value("seen_by_host", (shared as *const u32).read_volatile());
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/managed/prefetch", |line, zero, one| {
        let shared = managed(SIZE);
        for (device, stream, what) in [
            (0, zero.stream, "zero_in_zero"),
            (1, zero.stream, "one_in_zero"),
            (0, one.stream, "zero_in_one"),
            (1, one.stream, "one_in_one"),
            (-1, one.stream, "host_in_one"),
            (1, 0, "one_in_null"),
        ] {
            line.says_as(what, cuMemPrefetchAsync(shared, SIZE, device, stream));
            synchronizes(line, [zero, one]);
            says(line, "last", LAST_PREFETCH, shared);
        }
        line.says_as(
            "v2",
            cuMemPrefetchAsync_v2(shared, SIZE, location(1), 0, zero.stream),
        );
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/managed/advise", |line, _zero, _one| {
        let shared = managed(SIZE);
        says(line, "preferred_at_first", PREFERRED_LOCATION, shared);
        line.says_as("prefer_one", cuMemAdvise(shared, SIZE, 3, 1));
        says(line, "preferred", PREFERRED_LOCATION, shared);
        line.says_as("prefer_zero", cuMemAdvise(shared, SIZE, 3, 0));
        says(line, "preferred_then", PREFERRED_LOCATION, shared);
        line.says_as("unset", cuMemAdvise(shared, SIZE, 4, 1));
        says(line, "preferred_unset", PREFERRED_LOCATION, shared);
        line.says_as("by_one", cuMemAdvise(shared, SIZE, 5, 1));
        line.says_as("by_zero", cuMemAdvise(shared, SIZE, 5, 0));
        let mut devices = [-77; 3];
        line.gives(
            "accessed_by",
            cuMemRangeGetAttribute(void(&mut devices), 12, ACCESSED_BY, shared, SIZE),
            format!("{devices:?}"),
        );
        line.says_as("not_by_zero", cuMemAdvise(shared, SIZE, 6, 0));
        line.gives(
            "accessed_then",
            cuMemRangeGetAttribute(void(&mut devices), 12, ACCESSED_BY, shared, SIZE),
            format!("{devices:?}"),
        );
        line.says_as("v2", cuMemAdvise_v2(shared, SIZE, 3, location(1)));
    }),
    two_devices!("peer/managed/attached_to_its_stream", |line, zero, one| {
        let shared = managed(SIZE);
        line.says_as("attach", cuStreamAttachMemAsync(one.stream, shared, 0, 4));
        line.says_as("attach_end", cuStreamSynchronize(one.stream));
        line.says_as("store", one.store(shared, 6));
        zero.enter();
        reads(line, "value", shared);
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/managed/freed_by_other", |line, zero, one| {
        let shared = managed(SIZE);
        one.enter();
        let (mut ordinal, mut context) = (-7, 77usize);
        line.gives(
            "device",
            cuPointerGetAttribute(void(&mut ordinal), 9, shared),
            ordinal,
        );
        let answer = cuPointerGetAttribute(void(&mut context), 1, shared);
        let known = [("zero", zero.context), ("one", one.context)];
        line.gives(
            "context",
            answer,
            crate::graphs::api::named(context, &known),
        );
        line.says_as("free", cuMemFree_v2(shared));
        zero.enter();
        line.says_as("free_twice", cuMemFree_v2(shared));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/managed/of_destroyed_context", |line, zero, one| {
        let made = new_context_of(1);
        let shared = managed(SIZE);
        line.says_as("destroy", cuCtxDestroy_v2(made));
        zero.enter();
        let mut managed = 77u8;
        line.gives(
            "is_managed",
            cuPointerGetAttribute(void(&mut managed), 8, shared),
            managed,
        );
        line.says_as("fill", cuMemsetD32_v2(shared, 1, 1));
        synchronizes(line, [zero, one]);
    }),
];
