//! Device and pinned host memory: allocation, freeing, ranges.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::conformance::api::*;
use crate::conformance::case::{Case, case};
use crate::conformance::fixture::*;

/// Pageable memory that begins on a page.
unsafe fn pages(bytes: usize) -> *mut c_void {
    let layout =
        std::alloc::Layout::from_size_align(bytes, 4096).expect("a page is a power of two");
    std::alloc::alloc_zeroed(layout).cast()
}

pub const CASES: &[Case] = &[
    case!("memory/alloc/zero_bytes", |line| {
        context();
        let mut pointer = 7;
        line.says(cuMemAlloc_v2(&mut pointer, 0));
        line.value("untouched", pointer == 7);
    }),
    case!("memory/alloc/null", |line| {
        context();
        line.says(cuMemAlloc_v2(null_mut(), 16));
        line.says_as("both", cuMemAlloc_v2(null_mut(), 0));
    }),
    case!("memory/alloc/too_much", |line| {
        context();
        let mut pointer = 7;
        line.says_as("terabytes", cuMemAlloc_v2(&mut pointer, 1 << 44));
        line.says_as("half_of_all", cuMemAlloc_v2(&mut pointer, 1 << 63));
        line.says_as("all_ones", cuMemAlloc_v2(&mut pointer, usize::MAX));
        line.value("untouched", pointer == 7);
        line.says_as("then_a_little", cuMemAlloc_v2(&mut pointer, 16));
    }),
    case!("memory/alloc/alignment", |line| {
        context();
        for bytes in [1usize, 3, 511, 513, 4097, 1 << 20] {
            let pointer = memory(bytes);
            line.value(
                bytes,
                if pointer.is_multiple_of(512) {
                    "aligned_512"
                } else {
                    "not_aligned"
                },
            );
        }
    }),
    case!("memory/alloc/distinct", |line| {
        context();
        let (first, second) = (memory(1), memory(1));
        line.value("apart", first.abs_diff(second) >= 512);
        cuMemFree_v2(first).must();
        line.value("freed_is_reused", memory(1) == first);
    }),
    case!("memory/pitch", |line| {
        context();
        let (mut pointer, mut pitch) = (0, 0);
        for (width, height, element) in [(1, 1, 4), (100, 10, 8), (512, 3, 16), (513, 3, 4)] {
            let answer = cuMemAllocPitch_v2(&mut pointer, &mut pitch, width, height, element);
            line.gives(format!("{width}x{height}"), answer, pitch);
        }
        let (mut base, mut size) = (0, 0);
        cuMemAllocPitch_v2(&mut pointer, &mut pitch, 100, 10, 4).must();
        cuMemGetAddressRange_v2(&mut base, &mut size, pointer).must();
        line.value("range", size);
    }),
    case!("memory/pitch/wrong", |line| {
        context();
        let (mut pointer, mut pitch) = (0, 0);
        for element in [0, 1, 2, 3, 12, 32] {
            line.says_as(
                format!("element_{element}"),
                cuMemAllocPitch_v2(&mut pointer, &mut pitch, 64, 1, element),
            );
        }
        line.says_as(
            "no_width",
            cuMemAllocPitch_v2(&mut pointer, &mut pitch, 0, 1, 4),
        );
        line.says_as(
            "no_height",
            cuMemAllocPitch_v2(&mut pointer, &mut pitch, 64, 0, 4),
        );
        line.says_as(
            "null_pointer",
            cuMemAllocPitch_v2(null_mut(), &mut pitch, 64, 1, 4),
        );
        line.says_as(
            "null_pitch",
            cuMemAllocPitch_v2(&mut pointer, null_mut(), 64, 1, 4),
        );
        line.says_as(
            "too_wide",
            cuMemAllocPitch_v2(&mut pointer, &mut pitch, 1 << 40, 1 << 10, 4),
        );
    }),
    case!("memory/free", |line| {
        context();
        line.says_as("null", cuMemFree_v2(0));
        line.says_as("wild", cuMemFree_v2(WILD));
        let pointer = memory(1024);
        line.says_as("interior", cuMemFree_v2(pointer + 512));
        line.says_as("odd", cuMemFree_v2(pointer + 1));
        line.says_as("right", cuMemFree_v2(pointer));
        line.says_as("twice", cuMemFree_v2(pointer));
        line.says_as("pinned", cuMemFree_v2(pinned(64) as u64));
        line.says_as("pageable", cuMemFree_v2(pages(64) as u64));
    }),
    case!("memory/range", |line| {
        context();
        let pointer = memory(1000);
        let (mut base, mut size) = (0, 0);
        line.gives(
            "start",
            cuMemGetAddressRange_v2(&mut base, &mut size, pointer),
            base == pointer,
        );
        line.value("size", size);
        line.gives(
            "inside",
            cuMemGetAddressRange_v2(&mut base, &mut size, pointer + 999),
            base == pointer,
        );
        line.says_as(
            "end",
            cuMemGetAddressRange_v2(&mut base, &mut size, pointer + 1000),
        );
        line.says_as(
            "size_alone",
            cuMemGetAddressRange_v2(null_mut(), &mut size, pointer),
        );
        line.says_as(
            "base_alone",
            cuMemGetAddressRange_v2(&mut base, null_mut(), pointer),
        );
        line.says_as(
            "neither",
            cuMemGetAddressRange_v2(null_mut(), null_mut(), pointer),
        );
        line.says_as("null", cuMemGetAddressRange_v2(&mut base, &mut size, 0));
        line.says_as("wild", cuMemGetAddressRange_v2(&mut base, &mut size, WILD));
        cuMemFree_v2(pointer).must();
        line.says_as(
            "freed",
            cuMemGetAddressRange_v2(&mut base, &mut size, pointer),
        );
        let host = pinned(100) as u64;
        line.gives(
            "pinned",
            cuMemGetAddressRange_v2(&mut base, &mut size, host + 50),
            base == host,
        );
        line.value("pinned_size", size);
        let host = pages(4096) as u64;
        line.says_as(
            "pageable",
            cuMemGetAddressRange_v2(&mut base, &mut size, host),
        );
    }),
    case!("memory/info", |line| {
        context();
        let (mut free, mut total) = (0, 0);
        line.says(cuMemGetInfo_v2(&mut free, &mut total));
        line.value("free_within_total", free <= total && free > 0);
        let before = free;
        memory(64 << 20);
        cuMemGetInfo_v2(&mut free, &mut total).must();
        line.value("allocation_shows", before - free >= 64 << 20);
        line.says_as("null_free", cuMemGetInfo_v2(null_mut(), &mut total));
        line.says_as("null_total", cuMemGetInfo_v2(&mut free, null_mut()));
        line.says_as("null_both", cuMemGetInfo_v2(null_mut(), null_mut()));
    }),
    case!("memory/host/alloc", |line| {
        context();
        let mut pointer = 7 as *mut c_void;
        line.says_as("zero_bytes", cuMemAllocHost_v2(&mut pointer, 0));
        line.value(
            "zero_gives",
            if pointer.is_null() { "null" } else { "other" },
        );
        line.says_as("null", cuMemAllocHost_v2(null_mut(), 16));
        line.says_as("too_much", cuMemAllocHost_v2(&mut pointer, 1 << 60));
        line.says_as("right", cuMemAllocHost_v2(&mut pointer, 100));
        line.value("alignment_512", (pointer as usize).is_multiple_of(512));
        line.says_as("free", cuMemFreeHost(pointer));
        line.says_as("free_twice", cuMemFreeHost(pointer));
        line.says_as("free_null", cuMemFreeHost(null_mut()));
        line.says_as("free_pageable", cuMemFreeHost(pages(64)));
        line.says_as("free_device", cuMemFreeHost(memory(64) as *mut c_void));
        line.says_as("free_interior", cuMemFreeHost(pinned(4096).byte_add(64)));
    }),
    case!("memory/host/flags", |line| {
        context();
        for flags in [0u32, 1, 2, 3, 4, 7, 8, 0x10, u32::MAX] {
            let (mut pointer, mut read) = (null_mut(), 77);
            if line.says_as(
                format!("alloc_{flags:#x}"),
                cuMemHostAlloc(&mut pointer, 64, flags),
            ) {
                line.gives("flags", cuMemHostGetFlags(&mut read, pointer), read);
            }
        }
        let (pointer, mut read) = (pinned(64), 77);
        line.gives("alloc_host", cuMemHostGetFlags(&mut read, pointer), read);
        line.gives(
            "interior",
            cuMemHostGetFlags(&mut read, pointer.byte_add(8)),
            read,
        );
        line.says_as("null_flags", cuMemHostGetFlags(null_mut(), pointer));
        line.says_as("null_pointer", cuMemHostGetFlags(&mut read, null_mut()));
        line.says_as("pageable", cuMemHostGetFlags(&mut read, pages(64)));
        line.says_as(
            "device",
            cuMemHostGetFlags(&mut read, memory(64) as *mut c_void),
        );
    }),
    case!("memory/host/flags_shared", |line| {
        // Small allocations report the flags of the first one, beside which they lie.
        let first = context();
        let mut flags_of = |what: &str, flags: &[u32], size: usize| {
            let pointers: Vec<*mut c_void> = flags
                .iter()
                .map(|&flags| {
                    let mut pointer = null_mut();
                    cuMemHostAlloc(&mut pointer, size, flags).must();
                    pointer
                })
                .collect();
            for (at, pointer) in pointers.into_iter().enumerate() {
                let mut read = 77;
                let answer = cuMemHostGetFlags(&mut read, pointer);
                line.gives(format!("{what}_{at}"), answer, read);
            }
        };
        flags_of("portable_first", &[1, 0, 2, 3], 64);
        flags_of("combined", &[4, 5, 7], 64);
        flags_of("below", &[0, 1], (1 << 20) - 4096);
        flags_of("large", &[0, 1, 4, 5], 1 << 20);
        let mut other = 0;
        cuCtxCreate_v2(&mut other, 0, 0).must();
        flags_of("other", &[0, 1], 64);
        flags_of("other_combined", &[5, 4], 64);
        cuCtxSetCurrent(first).must();
        flags_of("again", &[0, 5], 64);
    }),
    case!("memory/host/flags_when_all_went", |line| {
        context();
        for (what, flags) in [("portable", 1), ("plain", 0), ("portable_again", 1)] {
            let (mut pointer, mut read) = (null_mut(), 77);
            cuMemHostAlloc(&mut pointer, 64, flags).must();
            line.gives(what, cuMemHostGetFlags(&mut read, pointer), read);
            line.says_as(format!("free_{what}"), cuMemFreeHost(pointer));
        }
    }),
    case!("memory/host/alloc_wrong", |line| {
        context();
        let mut pointer = 7 as *mut c_void;
        line.says_as("zero_bytes", cuMemHostAlloc(&mut pointer, 0, 0));
        line.value(
            "zero_gives",
            if pointer.is_null() { "null" } else { "other" },
        );
        line.says_as("null", cuMemHostAlloc(null_mut(), 64, 0));
        line.says_as("too_much", cuMemHostAlloc(&mut pointer, 1 << 60, 0));
    }),
    case!("memory/host/device_pointer", |line| {
        context();
        let (host, mut device) = (pinned(64), 0);
        line.gives(
            "pinned",
            cuMemHostGetDevicePointer_v2(&mut device, host, 0),
            device == host as u64,
        );
        let inside = host.byte_add(8);
        line.gives(
            "inside",
            cuMemHostGetDevicePointer_v2(&mut device, inside, 0),
            device == inside as u64,
        );
        line.says_as("flags", cuMemHostGetDevicePointer_v2(&mut device, host, 1));
        line.says_as(
            "null_out",
            cuMemHostGetDevicePointer_v2(null_mut(), host, 0),
        );
        line.says_as(
            "null_in",
            cuMemHostGetDevicePointer_v2(&mut device, null_mut(), 0),
        );
        line.says_as(
            "device_memory",
            cuMemHostGetDevicePointer_v2(&mut device, memory(64) as *mut c_void, 0),
        );
        line.says_as(
            "beyond",
            cuMemHostGetDevicePointer_v2(&mut device, host.byte_add(1 << 30), 0),
        );
    }),
    case!("memory/register", |line| {
        context();
        let (host, mut device, mut flags) = (pages(16384), 0, 77);
        line.says_as("register", cuMemHostRegister_v2(host, 8192, 0));
        line.says_as("again", cuMemHostRegister_v2(host, 8192, 0));
        line.says_as(
            "overlap",
            cuMemHostRegister_v2(host.byte_add(4096), 8192, 0),
        );
        line.gives(
            "device_pointer",
            cuMemHostGetDevicePointer_v2(&mut device, host, 0),
            device == host as u64,
        );
        line.gives("flags", cuMemHostGetFlags(&mut flags, host), flags);
        line.says_as("free_host", cuMemFreeHost(host));
        line.says_as(
            "unregister_interior",
            cuMemHostUnregister(host.byte_add(4096)),
        );
        line.says_as("unregister", cuMemHostUnregister(host));
        line.says_as("unregister_twice", cuMemHostUnregister(host));
        line.says_as("unregister_null", cuMemHostUnregister(null_mut()));
        line.says_as("unregister_pinned", cuMemHostUnregister(pinned(4096)));
    }),
    case!("memory/register/wrong", |line| {
        context();
        let host = pages(16384);
        line.says_as("null", cuMemHostRegister_v2(null_mut(), 4096, 0));
        line.says_as("zero_bytes", cuMemHostRegister_v2(host, 0, 0));
        line.says_as("unknown_flag", cuMemHostRegister_v2(host, 4096, 0x100));
        line.says_as("io_memory", cuMemHostRegister_v2(host, 4096, 4));
        line.says_as("wraps", cuMemHostRegister_v2(host, usize::MAX, 0));
        line.says_as("too_much", cuMemHostRegister_v2(host, 1 << 44, 0));
        line.says_as(
            "pinned_already",
            cuMemHostRegister_v2(pinned(4096), 4096, 0),
        );
        line.says_as(
            "device_memory",
            cuMemHostRegister_v2(memory(4096) as *mut c_void, 4096, 0),
        );
    }),
    case!("memory/register/mappings", |line| {
        context();
        let (read, write) = (libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
        let map = |bytes, permits| {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(null_mut(), bytes, permits, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            at
        };
        let partly = |permits| {
            let at = map(4 * 4096, write);
            match permits {
                Some(permits) => libc::mprotect(at.byte_add(8192), 4096, permits),
                None => libc::munmap(at.byte_add(8192), 4096),
            };
            at
        };
        let all = [
            ("whole", map(4 * 4096, write)),
            ("read_only", map(4 * 4096, read)),
            ("no_access", map(4 * 4096, libc::PROT_NONE)),
            ("partly_unmapped", partly(None)),
            ("partly_read_only", partly(Some(read))),
            ("partly_no_access", partly(Some(libc::PROT_NONE))),
        ];
        let gone = map(4096, write);
        libc::munmap(gone, 4096);
        line.says_as("unmapped", cuMemHostRegister_v2(gone, 4096, 0));
        for (name, at) in all {
            for (how, flags) in [("", 0), ("_to_read", 8)] {
                let name = format!("{name}{how}");
                if line.says_as(name, cuMemHostRegister_v2(at, 4 * 4096, flags)) {
                    cuMemHostUnregister(at).must();
                }
            }
        }
    }),
    case!("memory/register/unaligned", |line| {
        context();
        let (host, mut device) = (pages(16384), 0);
        let odd = host.byte_add(100);
        line.says_as("register", cuMemHostRegister_v2(odd, 50, 2));
        line.gives(
            "device_pointer",
            cuMemHostGetDevicePointer_v2(&mut device, odd, 0),
            device == odd as u64,
        );
        line.says_as(
            "before_it",
            cuMemHostGetDevicePointer_v2(&mut device, host, 0),
        );
        line.says_as("unregister_page", cuMemHostUnregister(host));
        line.says_as("unregister", cuMemHostUnregister(odd));
    }),
    case!("memory/ipc", |line| {
        context();
        let (mut handle, mut opened) = (crate::conformance::structs::IpcHandle([0; 64]), 0);
        line.says_as("null_handle", cuIpcGetMemHandle(null_mut(), memory(64)));
        line.says_as("wild", cuIpcGetMemHandle(&mut handle, WILD));
        line.says_as("pinned", cuIpcGetMemHandle(&mut handle, pinned(64) as u64));
        line.says_as(
            "event_without_flag",
            cuIpcGetEventHandle(&mut handle, event()),
        );
        line.says_as(
            "open_nothing",
            cuIpcOpenMemHandle_v2(&mut opened, handle, 1),
        );
        line.says_as("open_flags", cuIpcOpenMemHandle_v2(&mut opened, handle, 9));
        line.says_as("close_own", cuIpcCloseMemHandle(memory(64)));
    }),
    case!("memory/array", |line| {
        context();
        let mut array = 0;
        let mut descriptor = crate::conformance::structs::ArrayDescriptor {
            width: 16,
            height: 4,
            format: 0x20,
            channels: 1,
        };
        line.says_as("create", cuArrayCreate_v2(&mut array, &descriptor));
        let asked = descriptor;
        descriptor.width = 0;
        line.gives(
            "read",
            cuArrayGetDescriptor_v2(&mut descriptor, array),
            descriptor.width == asked.width,
        );
        line.says_as("destroy", cuArrayDestroy(array));
        line.says_as("destroy_null", cuArrayDestroy(0));
        line.says_as("null_out", cuArrayCreate_v2(null_mut(), &asked));
        line.says_as("null_in", cuArrayCreate_v2(&mut array, std::ptr::null()));
        for (what, width, format, channels) in [
            ("no_width", 0, 0x20, 1),
            ("format", 16, 0x99, 1),
            ("channels", 16, 0x20, 3),
        ] {
            let wrong = crate::conformance::structs::ArrayDescriptor {
                width,
                height: 4,
                format,
                channels,
            };
            line.says_as(what, cuArrayCreate_v2(&mut array, &wrong));
        }
    }),
];
