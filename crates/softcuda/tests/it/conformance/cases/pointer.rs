//! What the driver knows of an address.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::peer::mapped_for;
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

/// Writes down every attribute of an address, as facts: which pointer it is rather than its value.
unsafe fn attributes(line: &mut Line, pointer: u64) {
    for number in 1..=21u32 {
        // P2P tokens are a structure of their own, and long obsolete.
        if number == 5 {
            continue;
        }
        let mut value = [0x5555_5555_5555_5555u64; 8];
        let answer = cuPointerGetAttribute(value.as_mut_ptr().cast(), number, pointer);
        let word = value[0];
        let fact = match number {
            1 | 17 => named(word, &[]),
            3 | 4 | 11 | 19 => named(word, &[("it", pointer)]),
            7 | 20 => (if word == 0 { "zero" } else { "some" }).to_string(),
            12 => word.to_string(),
            // The size of the driver's own mapping is its business.
            18 => "size".to_string(),
            6 | 8 | 10 | 13 | 15 | 21 => (word as u8).to_string(),
            2 | 9 | 14 => (word as u32 as i32).to_string(),
            _ => (word & 0xffff_ffff).to_string(),
        };
        line.gives(number, answer, fact);
    }
}

fn named(word: u64, known: &[(&str, u64)]) -> String {
    match known.iter().find(|(_, value)| *value == word) {
        Some((name, _)) => name.to_string(),
        None if word == 0 => "null".to_string(),
        None => "other".to_string(),
    }
}

pub const CASES: &[Case] = &[
    case!("pointer/attribute/device", |line| {
        context();
        attributes(line, memory(1000));
    }),
    case!("pointer/attribute/device_interior", |line| {
        context();
        attributes(line, memory(1000) + 100);
    }),
    case!("pointer/attribute/pinned", |line| {
        context();
        attributes(line, pinned(1000) as u64);
    }),
    case!("pointer/attribute/mapped", |line| {
        context();
        let mut host = null_mut();
        cuMemHostAlloc(&mut host, 1000, 2).must();
        attributes(line, host as u64);
    }),
    case!("pointer/attribute/managed", |line| {
        context();
        attributes(line, managed(1000));
    }),
    case!("pointer/attribute/stream_ordered", |line| {
        context();
        let mut pointer = 0;
        cuMemAllocAsync(&mut pointer, 1000, 0).must();
        attributes(line, pointer);
    }),
    case!("pointer/attribute/graph", |line| {
        context();
        let graph = graph();
        let (_, address) = add_alloc(graph, &[], 1000);
        cuGraphLaunch(instantiate(graph), 0).must();
        cuCtxSynchronize().must();
        attributes(line, address);
    }),
    case!("pointer/attribute/virtual", |line| {
        context();
        attributes(line, mapped_for(0, &[0]));
    }),
    case!("pointer/attribute/module", |line| {
        context();
        let mut address = 0;
        let module = module();
        cuModuleGetGlobal_v2(&mut address, null_mut(), module, c"buffer".as_ptr()).must();
        attributes(line, address);
    }),
    case!("pointer/attribute/registered", |line| {
        context();
        let layout =
            std::alloc::Layout::from_size_align(8192, 4096).expect("a page is a power of two");
        let host = std::alloc::alloc_zeroed(layout);
        cuMemHostRegister_v2(host.cast(), 8192, 0).must();
        attributes(line, host as u64);
    }),
    case!("pointer/attribute/pageable", |line| {
        context();
        let host = Box::leak(Box::new([0u8; 64]));
        attributes(line, host.as_ptr() as u64);
    }),
    case!("pointer/attribute/global", |line| {
        context();
        let (mut pointer, mut size) = (0, 0);
        cuModuleGetGlobal_v2(&mut pointer, &mut size, module(), c"counter".as_ptr()).must();
        let mut value = 0u32;
        line.gives(
            "memory_type",
            cuPointerGetAttribute(void(&mut value), 2, pointer),
            value,
        );
        let mut range = 0u64;
        line.says_as(
            "range_size",
            cuPointerGetAttribute(void(&mut range), 12, pointer),
        );
        line.says_as(
            "range",
            cuMemGetAddressRange_v2(&mut pointer, &mut size, pointer),
        );
        line.says_as("free", cuMemFree_v2(pointer));
    }),
    case!("pointer/attribute/freed", |line| {
        context();
        let (pointer, mut value) = (memory(1 << 22), 77u32);
        cuMemFree_v2(pointer).must();
        line.gives(
            "memory_type",
            cuPointerGetAttribute(void(&mut value), 2, pointer),
            value,
        );
    }),
    case!("pointer/attribute/wrong", |line| {
        context();
        let (pointer, mut value) = (memory(64), 0u64);
        line.says_as("zero", cuPointerGetAttribute(void(&mut value), 0, pointer));
        line.says_as(
            "unknown",
            cuPointerGetAttribute(void(&mut value), 99, pointer),
        );
        line.says_as("null_out", cuPointerGetAttribute(null_mut(), 2, pointer));
        line.says_as(
            "null_pointer",
            cuPointerGetAttribute(void(&mut value), 2, 0),
        );
        line.says_as("wild", cuPointerGetAttribute(void(&mut value), 2, WILD));
    }),
    case!("pointer/attribute/without_context", |line| {
        let primary = context();
        let (pointer, mut value) = (memory(64), 0u64);
        cuCtxSetCurrent(0).must();
        line.gives(
            "memory_type",
            cuPointerGetAttribute(void(&mut value), 2, pointer),
            value,
        );
        line.gives(
            "context",
            cuPointerGetAttribute(void(&mut value), 1, pointer),
            value == primary as u64,
        );
        line.says_as("free", cuMemFree_v2(pointer));
    }),
    case!("pointer/attributes", |line| {
        let primary = context();
        let pointer = memory(64);
        let (mut context, mut kind, mut managed) = (7u64, 7u32, 7u32);
        let mut numbers = [1u32, 2, 8];
        let mut out: [*mut c_void; 3] = [void(&mut context), void(&mut kind), void(&mut managed)];
        line.says(cuPointerGetAttributes(
            3,
            numbers.as_mut_ptr(),
            out.as_mut_ptr(),
            pointer,
        ));
        line.value(
            "device",
            format!("{} {kind} {}", context == primary as u64, managed as u8),
        );
        let host = Box::leak(Box::new([0u8; 64]));
        (context, kind, managed) = (7, 7, 7);
        line.says_as(
            "pageable",
            cuPointerGetAttributes(
                3,
                numbers.as_mut_ptr(),
                out.as_mut_ptr(),
                host.as_ptr() as u64,
            ),
        );
        line.value(
            "pageable_values",
            format!("{context} {kind} {}", managed as u8),
        );
        line.says_as(
            "none",
            cuPointerGetAttributes(0, numbers.as_mut_ptr(), out.as_mut_ptr(), pointer),
        );
        line.says_as(
            "null_numbers",
            cuPointerGetAttributes(3, null_mut(), out.as_mut_ptr(), pointer),
        );
        line.says_as(
            "null_out",
            cuPointerGetAttributes(3, numbers.as_mut_ptr(), null_mut(), pointer),
        );
        numbers[1] = 99;
        line.says_as(
            "unknown",
            cuPointerGetAttributes(3, numbers.as_mut_ptr(), out.as_mut_ptr(), pointer),
        );
        line.says_as(
            "null_pointer",
            cuPointerGetAttributes(1, numbers.as_mut_ptr(), out.as_mut_ptr(), 0),
        );
    }),
    case!("pointer/set_sync_memops", |line| {
        context();
        let (pointer, mut value, mut read) = (memory(64), 1u32, 7u8);
        line.says_as("set", cuPointerSetAttribute(void(&mut value), 6, pointer));
        line.gives(
            "read",
            cuPointerGetAttribute(void(&mut read), 6, pointer),
            read,
        );
        line.says_as(
            "set_on_pinned",
            cuPointerSetAttribute(void(&mut value), 6, pinned(64) as u64),
        );
        line.says_as("set_on_null", cuPointerSetAttribute(void(&mut value), 6, 0));
        line.says_as(
            "set_other",
            cuPointerSetAttribute(void(&mut value), 2, pointer),
        );
        line.says_as("set_null", cuPointerSetAttribute(null_mut(), 6, pointer));
    }),
];
