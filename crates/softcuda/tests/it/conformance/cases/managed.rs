//! Managed memory: allocation, attachment, advice and prefetch.

use std::ptr::null_mut;

use crate::conformance::api::*;
use crate::conformance::case::{Case, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::Location;

pub const CASES: &[Case] = &[
    case!("managed/alloc", |line| {
        context();
        let mut pointer = 7;
        line.says_as("zero_bytes", cuMemAllocManaged(&mut pointer, 0, 1));
        line.says_as("null", cuMemAllocManaged(null_mut(), 64, 1));
        for flags in [0, 1, 2, 3, 4, 8] {
            line.says_as(
                format!("flags_{flags}"),
                cuMemAllocManaged(&mut pointer, 64, flags),
            );
        }
        line.says_as("too_much", cuMemAllocManaged(&mut pointer, 1 << 60, 1));
        let pointer = managed(100);
        line.value("alignment_512", pointer.is_multiple_of(512));
        let (mut base, mut size) = (0, 0);
        line.gives(
            "range",
            cuMemGetAddressRange_v2(&mut base, &mut size, pointer + 1),
            base == pointer,
        );
        line.value("size", size);
        line.says_as("free_interior", cuMemFree_v2(pointer + 64));
        line.says_as("free", cuMemFree_v2(pointer));
        line.says_as("free_twice", cuMemFree_v2(pointer));
    }),
    case!("managed/host_access", |line| {
        context();
        let pointer = managed(64);
        *(pointer as *mut u32) = 41;
        line.says(cuMemsetD32_v2(pointer + 4, 42, 1));
        cuCtxSynchronize().must();
        line.value("host_reads", *((pointer + 4) as *const u32));
        let other = memory(64);
        line.says(cuMemcpyDtoD_v2(other, pointer, 4));
        line.value("device_reads", word(other));
        line.says_as(
            "as_host",
            cuMemcpyHtoD_v2(other, (pointer + 4) as *const _, 4),
        );
        line.says_as("flags", cuMemHostGetFlags(&mut 0, pointer as *mut _));
        line.says_as("free_host", cuMemFreeHost(pointer as *mut _));
    }),
    case!("managed/attach", |line| {
        context();
        let (stream, pointer) = (stream(), managed(4096));
        line.says_as("single", cuStreamAttachMemAsync(stream, pointer, 0, 4));
        line.says_as("global", cuStreamAttachMemAsync(stream, pointer, 4096, 1));
        line.says_as("host", cuStreamAttachMemAsync(stream, pointer, 0, 2));
        line.says_as("part", cuStreamAttachMemAsync(stream, pointer, 64, 4));
        line.says_as("flags_zero", cuStreamAttachMemAsync(stream, pointer, 0, 0));
        line.says_as("flags_two", cuStreamAttachMemAsync(stream, pointer, 0, 3));
        line.says_as("null_stream", cuStreamAttachMemAsync(0, pointer, 0, 4));
        line.says_as(
            "device_memory",
            cuStreamAttachMemAsync(stream, memory(64), 0, 4),
        );
        line.says_as("null", cuStreamAttachMemAsync(stream, 0, 0, 4));
        line.says(cuStreamSynchronize(stream));
    }),
    case!("managed/prefetch", |line| {
        context();
        let (stream, pointer) = (stream(), managed(1 << 20));
        line.says_as("device", cuMemPrefetchAsync(pointer, 1 << 20, 0, stream));
        line.says_as("host", cuMemPrefetchAsync(pointer, 4096, -1, stream));
        line.says_as(
            "wrong_device",
            cuMemPrefetchAsync(pointer, 4096, 1000, stream),
        );
        line.says_as("negative", cuMemPrefetchAsync(pointer, 4096, -7, stream));
        line.says_as("nothing", cuMemPrefetchAsync(pointer, 0, 0, stream));
        line.says_as("too_long", cuMemPrefetchAsync(pointer, 1 << 40, 0, stream));
        line.says_as("null", cuMemPrefetchAsync(0, 4096, 0, stream));
        line.says_as(
            "device_memory",
            cuMemPrefetchAsync(memory(4096), 4096, 0, stream),
        );
        line.says_as("odd", cuMemPrefetchAsync(pointer + 3, 5, 0, stream));
        for (what, kind, id) in [
            ("v2_device", 1, 0),
            ("v2_host", 2, 0),
            ("v2_none", 0, 0),
            ("v2_unknown", 9, 0),
        ] {
            line.says_as(
                what,
                cuMemPrefetchAsync_v2(pointer, 4096, Location { kind, id }, 0, stream),
            );
        }
        line.says_as(
            "v2_flags",
            cuMemPrefetchAsync_v2(pointer, 4096, Location { kind: 1, id: 0 }, 1, stream),
        );
        line.says(cuStreamSynchronize(stream));
    }),
    case!("managed/advise", |line| {
        context();
        let pointer = managed(1 << 20);
        for advice in 0..8 {
            line.says_as(advice, cuMemAdvise(pointer, 4096, advice, 0));
        }
        line.says_as("host", cuMemAdvise(pointer, 4096, 3, -1));
        line.says_as("wrong_device", cuMemAdvise(pointer, 4096, 3, 1000));
        line.says_as("nothing", cuMemAdvise(pointer, 0, 1, 0));
        line.says_as("null", cuMemAdvise(0, 4096, 1, 0));
        line.says_as("device_memory", cuMemAdvise(memory(4096), 4096, 1, 0));
        line.says_as(
            "v2_device",
            cuMemAdvise_v2(pointer, 4096, 3, Location { kind: 1, id: 0 }),
        );
        line.says_as(
            "v2_host",
            cuMemAdvise_v2(pointer, 4096, 3, Location { kind: 2, id: 0 }),
        );
        line.says_as(
            "v2_unknown",
            cuMemAdvise_v2(pointer, 4096, 3, Location { kind: 9, id: 0 }),
        );
    }),
    case!("managed/range_attributes", |line| {
        context();
        let (pointer, stream) = (managed(1 << 20), stream());
        for number in [1, 2, 4, 5, 6, 7, 8] {
            let mut value = 77i32;
            line.gives(
                number,
                cuMemRangeGetAttribute(void(&mut value), 4, number, pointer, 4096),
                value,
            );
        }
        let mut devices = [77i32; 2];
        let answer = cuMemRangeGetAttribute(void(&mut devices), 8, 3, pointer, 4096);
        line.gives("accessed_by", answer, format!("{devices:?}"));
        cuMemAdvise(pointer, 4096, 1, 0).must();
        cuMemAdvise(pointer, 4096, 3, 0).must();
        cuMemAdvise(pointer, 4096, 5, 0).must();
        cuMemPrefetchAsync(pointer, 4096, 0, stream).must();
        cuStreamSynchronize(stream).must();
        for number in [1, 2, 4, 5, 6, 7, 8] {
            let mut value = 77i32;
            line.gives(
                format!("set_{number}"),
                cuMemRangeGetAttribute(void(&mut value), 4, number, pointer, 4096),
                value,
            );
        }
        let answer = cuMemRangeGetAttribute(void(&mut devices), 8, 3, pointer, 4096);
        line.gives("set_accessed_by", answer, format!("{devices:?}"));
        let mut value = 77i32;
        line.gives(
            "mixed",
            cuMemRangeGetAttribute(void(&mut value), 4, 1, pointer, 1 << 20),
            value,
        );
    }),
    case!("managed/range_attributes/wrong", |line| {
        context();
        let (pointer, mut value) = (managed(1 << 20), 77i32);
        line.says_as(
            "unknown",
            cuMemRangeGetAttribute(void(&mut value), 4, 99, pointer, 4096),
        );
        line.says_as(
            "zero",
            cuMemRangeGetAttribute(void(&mut value), 4, 0, pointer, 4096),
        );
        line.says_as(
            "size_small",
            cuMemRangeGetAttribute(void(&mut value), 2, 1, pointer, 4096),
        );
        line.says_as(
            "size_large",
            cuMemRangeGetAttribute(void(&mut [0i32; 2]), 8, 1, pointer, 4096),
        );
        line.says_as(
            "null_out",
            cuMemRangeGetAttribute(null_mut(), 4, 1, pointer, 4096),
        );
        line.says_as(
            "null",
            cuMemRangeGetAttribute(void(&mut value), 4, 1, 0, 4096),
        );
        line.says_as(
            "nothing",
            cuMemRangeGetAttribute(void(&mut value), 4, 1, pointer, 0),
        );
        line.says_as(
            "device_memory",
            cuMemRangeGetAttribute(void(&mut value), 4, 1, memory(4096), 4096),
        );
        let (mut numbers, mut sizes, mut out) = ([1u32], [4usize], [void(&mut value)]);
        let (numbers, sizes, out) = (numbers.as_mut_ptr(), sizes.as_mut_ptr(), out.as_mut_ptr());
        line.says_as(
            "several",
            cuMemRangeGetAttributes(out, sizes, numbers, 1, pointer, 4096),
        );
        line.says_as(
            "several_none",
            cuMemRangeGetAttributes(out, sizes, numbers, 0, pointer, 4096),
        );
        line.says_as(
            "several_null",
            cuMemRangeGetAttributes(null_mut(), sizes, numbers, 1, pointer, 4096),
        );
    }),
];
