//! Copies in every direction and shape.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::{Copy2d, Copy3d};

const HOST: u32 = 1;
const DEVICE: u32 = 2;
const UNIFIED: u32 = 4;

/// Host to device, tightly packed.
fn copy_2d(host: &mut [u8], device: u64, width: usize, height: usize) -> Copy2d {
    Copy2d {
        src_x: 0,
        src_y: 0,
        src_kind: HOST,
        src_host: host.as_ptr().cast(),
        src_device: 0,
        src_array: 0,
        src_pitch: width,
        dst_x: 0,
        dst_y: 0,
        dst_kind: DEVICE,
        dst_host: null_mut(),
        dst_device: device,
        dst_array: 0,
        dst_pitch: width,
        width,
        height,
    }
}

fn copy_3d(host: &mut [u8], device: u64, width: usize, height: usize, depth: usize) -> Copy3d {
    Copy3d {
        src_x: 0,
        src_y: 0,
        src_z: 0,
        src_lod: 0,
        src_kind: HOST,
        src_host: host.as_ptr().cast(),
        src_device: 0,
        src_array: 0,
        reserved_0: 0,
        src_pitch: width,
        src_height: height,
        dst_x: 0,
        dst_y: 0,
        dst_z: 0,
        dst_lod: 0,
        dst_kind: DEVICE,
        dst_host: null_mut(),
        dst_device: device,
        dst_array: 0,
        reserved_1: 0,
        dst_pitch: width,
        dst_height: height,
        width,
        height,
        depth,
    }
}

unsafe fn changed_2d(line: &mut Line, what: &str, change: impl FnOnce(&mut Copy2d)) {
    let mut copy = copy_2d(Box::leak(Box::new([7; 4096])), memory(4096), 64, 8);
    change(&mut copy);
    line.says_as(what, cuMemcpy2D_v2(&copy));
}

unsafe fn changed_3d(line: &mut Line, what: &str, change: impl FnOnce(&mut Copy3d)) {
    let mut copy = copy_3d(Box::leak(Box::new([7; 4096])), memory(4096), 16, 8, 4);
    change(&mut copy);
    line.says_as(what, cuMemcpy3D_v2(&copy));
}

/// The sum of the bytes, enough to see where a copy went.
unsafe fn sum(pointer: u64, bytes: usize) -> u64 {
    let mut host = vec![0u8; bytes];
    cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), pointer, bytes).must();
    host.iter()
        .enumerate()
        .map(|(index, &byte)| (index as u64 + 1) * u64::from(byte))
        .sum()
}

pub const CASES: &[Case] = &[
    case!("copy/round_trip", |line| {
        context();
        let (first, second, mut value) = (memory(64), memory(64), 0x1234_5678u32);
        line.says(cuMemcpyHtoD_v2(first, void(&mut value), 4));
        line.says(cuMemcpyDtoD_v2(second + 8, first, 4));
        value = 0;
        line.says(cuMemcpyDtoH_v2(void(&mut value), second + 8, 4));
        line.value("value", format!("{value:#x}"));
    }),
    case!("copy/nothing", |line| {
        context();
        let pointer = memory(64);
        line.says(cuMemcpyHtoD_v2(pointer, null(), 0));
        line.says(cuMemcpyDtoH_v2(null_mut(), pointer, 0));
        line.says(cuMemcpyDtoD_v2(pointer, pointer, 0));
        line.says_as("to_null", cuMemcpyHtoD_v2(0, null(), 0));
        line.says_as("to_wild", cuMemcpyDtoD_v2(WILD, WILD, 0));
        line.says(cuMemcpy(pointer, WILD, 0));
        line.says(cuMemcpyHtoDAsync_v2(0, null(), 0, 0));
    }),
    case!("copy/null", |line| {
        context();
        let (pointer, mut value) = (memory(64), 0u32);
        line.says_as("from_null_host", cuMemcpyHtoD_v2(pointer, null(), 4));
        line.says_as("to_null_device", cuMemcpyHtoD_v2(0, void(&mut value), 4));
        line.says_as("to_null_host", cuMemcpyDtoH_v2(null_mut(), pointer, 4));
        line.says_as("from_null_device", cuMemcpyDtoH_v2(void(&mut value), 0, 4));
        line.says_as("device_from_null", cuMemcpyDtoD_v2(pointer, 0, 4));
        line.says_as("device_to_null", cuMemcpyDtoD_v2(0, pointer, 4));
    }),
    alone!("copy/beyond_the_end", |line| {
        context();
        let (pointer, other) = (memory(4 << 20), memory(4 << 20));
        let host = Box::leak(vec![0u8; 64 << 20].into_boxed_slice());
        line.says_as(
            "to_device",
            cuMemcpyHtoD_v2(pointer, host.as_ptr().cast(), (4 << 20) + 1),
        );
        line.says_as(
            "to_host",
            cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), pointer, (4 << 20) + 1),
        );
        line.says_as(
            "start_past_end",
            cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), pointer + (1 << 45), 4),
        );
        line.says_as("on_device", cuMemcpyDtoD_v2(other, pointer, 1 << 40));
        line.says_as("size_wraps", cuMemcpyDtoD_v2(other, pointer, usize::MAX));
        line.says_as("wild", cuMemcpyHtoD_v2(WILD, host.as_ptr().cast(), 4));
        line.says_as("context_lives", cuCtxSynchronize());
    }),
    alone!("copy/small_overrun", |line| {
        context();
        let (pointer, mut host) = (memory(100), [0u8; 1024]);
        line.says_as("one_more", cuMemcpyHtoD_v2(pointer, void(&mut host), 101));
        line.says_as("to_512", cuMemcpyHtoD_v2(pointer, void(&mut host), 512));
        line.says_as(
            "back_one_more",
            cuMemcpyDtoH_v2(void(&mut host), pointer, 101),
        );
        line.says_as("fill_one_more", cuMemsetD8_v2(pointer, 0, 101));
    }),
    alone!("copy/freed", |line| {
        context();
        let (pointer, mut value) = (memory(16 << 20), 0u32);
        cuMemFree_v2(pointer).must();
        line.says_as("to", cuMemcpyHtoD_v2(pointer, void(&mut value), 4));
        line.says_as("from", cuMemcpyDtoH_v2(void(&mut value), pointer, 4));
        line.says_as("context_lives", cuCtxSynchronize());
    }),
    alone!("copy/host_as_device", |line| {
        context();
        let (pointer, mut source, mut value) = (memory(64), 5u32, 6u32);
        let pinned = pinned(64);
        line.says_as(
            "pinned_as_device",
            cuMemcpyHtoD_v2(pinned as u64, void(&mut source), 4),
        );
        line.value("arrived", *pinned.cast::<u32>());
        line.says_as(
            "pageable_as_device",
            cuMemcpyHtoD_v2(void(&mut value) as u64, void(&mut source), 4),
        );
        line.value("arrived_pageable", value);
        line.says_as(
            "device_as_host",
            cuMemcpyHtoD_v2(pointer, memory(64) as *const c_void, 4),
        );
        line.says_as(
            "both_host",
            cuMemcpyDtoD_v2(void(&mut value) as u64, void(&mut source) as u64, 4),
        );
        line.says_as(
            "both_device",
            cuMemcpyDtoH_v2(memory(64) as *mut c_void, pointer, 4),
        );
    }),
    case!("copy/unified", |line| {
        context();
        let (pointer, mut source, mut value) = (memory(64), 0xabcdu32, 0u32);
        line.says_as(
            "host_to_device",
            cuMemcpy(pointer, void(&mut source) as u64, 4),
        );
        line.says_as(
            "device_to_host",
            cuMemcpy(void(&mut value) as u64, pointer, 4),
        );
        line.value("value", value);
        value = 0;
        line.says_as(
            "host_to_host",
            cuMemcpy(void(&mut value) as u64, void(&mut source) as u64, 4),
        );
        line.value("value_on_host", value);
        line.says_as("null_to", cuMemcpy(0, pointer, 4));
        line.says_as("null_from", cuMemcpy(pointer, 0, 4));
        line.says_as(
            "async",
            cuMemcpyAsync(void(&mut value) as u64, pointer, 4, stream()),
        );
        line.says(cuCtxSynchronize());
    }),
    case!("copy/overlap", |line| {
        context();
        let (pointer, mut host) = (
            memory(64),
            std::array::from_fn::<u8, 64, _>(|index| index as u8),
        );
        cuMemcpyHtoD_v2(pointer, void(&mut host), 64).must();
        line.says_as("same", cuMemcpyDtoD_v2(pointer, pointer, 64));
        line.says_as("same_twice", cuMemcpyDtoD_v2(pointer, pointer, 32));
        line.value("sum", sum(pointer, 64));
    }),
    alone!("copy/async", |line| {
        context();
        let (stream, pointer, other, host) = (stream(), memory(64), memory(64), pinned(64));
        *host.cast::<u32>() = 99;
        line.says(cuMemcpyHtoDAsync_v2(pointer, host, 4, stream));
        line.says(cuMemcpyDtoDAsync_v2(other, pointer, 4, stream));
        line.says(cuMemcpyDtoHAsync_v2(host.byte_add(8), other, 4, stream));
        line.says(cuStreamSynchronize(stream));
        line.value("value", *host.byte_add(8).cast::<u32>());
        line.says_as("null_stream", cuMemcpyHtoDAsync_v2(pointer, host, 4, 0));
        line.says_as("legacy", cuMemcpyHtoDAsync_v2(pointer, host, 4, LEGACY));
        line.says_as(
            "per_thread",
            cuMemcpyHtoDAsync_v2(pointer, host, 4, PER_THREAD),
        );
        line.says_as(
            "null_source",
            cuMemcpyHtoDAsync_v2(pointer, null(), 4, stream),
        );
        line.says_as("wild", cuMemcpyHtoDAsync_v2(WILD, host, 4, stream));
        line.says_as(
            "wild_to_wild",
            cuMemcpyDtoDAsync_v2(WILD, WILD + 8, 4, stream),
        );
        line.says(cuCtxSynchronize());
    }),
    case!("copy/async/waits_its_turn", |line| {
        context();
        let (stream, pointer, host) = (stream(), memory(64), pinned(64));
        *host.cast::<u32>() = 1;
        fill_words(pointer, 0, 16);
        let gate = Gate::close(stream);
        line.says(cuMemcpyHtoDAsync_v2(pointer, host, 4, stream));
        *host.cast::<u32>() = 2;
        gate.open();
        cuStreamSynchronize(stream).must();
        line.value("pinned_read_late", word(pointer));
        let source = Box::leak(Box::new(3u32));
        let gate = Gate::close(stream);
        let opener = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            gate.open();
        });
        line.says_as(
            "pageable",
            cuMemcpyHtoDAsync_v2(pointer, void(source), 4, stream),
        );
        *source = 4;
        opener.join().expect("the thread does not panic");
        cuStreamSynchronize(stream).must();
        line.value("pageable_read_early", word(pointer));
    }),
    case!("copy/peer_same_context", |line| {
        let context = context();
        let (from, to) = (memory(64), memory(64));
        line.says(cuMemcpyPeer(to, context, from, context, 64));
        line.says_as("nothing", cuMemcpyPeer(to, context, from, context, 0));
        line.says_as("null_context", cuMemcpyPeer(to, 0, from, context, 64));
    }),
    case!("copy/2d", |line| {
        context();
        let host: &mut [u8; 4096] = Box::leak(Box::new(std::array::from_fn(|index| index as u8)));
        let device = memory(4096);
        cuMemsetD8_v2(device, 0, 4096).must();
        let mut copy = copy_2d(host, device, 16, 4);
        (copy.src_pitch, copy.src_x, copy.src_y) = (64, 3, 2);
        (copy.dst_pitch, copy.dst_x, copy.dst_y) = (32, 5, 1);
        line.says(cuMemcpy2D_v2(&copy));
        line.value("sum", sum(device, 4096));
        line.says(cuMemcpy2DUnaligned_v2(&copy));
        line.says(cuMemcpy2DAsync_v2(&copy, stream()));
        line.says(cuCtxSynchronize());
        line.says_as("null", cuMemcpy2D_v2(null()));
    }),
    alone!("copy/2d/wrong", |line| {
        context();
        changed_2d(line, "no_width", |copy| copy.width = 0);
        changed_2d(line, "no_height", |copy| copy.height = 0);
        changed_2d(line, "source_pitch_small", |copy| copy.src_pitch = 63);
        changed_2d(line, "target_pitch_small", |copy| copy.dst_pitch = 63);
        changed_2d(line, "source_pitch_zero", |copy| copy.src_pitch = 0);
        changed_2d(line, "target_pitch_zero_one_row", |copy| {
            (copy.dst_pitch, copy.height) = (0, 1)
        });
        changed_2d(line, "x_past_pitch", |copy| copy.src_x = 1);
        changed_2d(line, "pitch_huge", |copy| copy.dst_pitch = 1 << 33);
        changed_2d(line, "kind_zero", |copy| copy.src_kind = 0);
        changed_2d(line, "kind_unknown", |copy| copy.src_kind = 9);
        changed_2d(line, "kind_array_null", |copy| copy.src_kind = 3);
        changed_2d(line, "null_host", |copy| copy.src_host = null());
        changed_2d(line, "null_device", |copy| copy.dst_device = 0);
        changed_2d(line, "past_the_end", |copy| copy.dst_y = 1 << 30);
        changed_2d(line, "unified", |copy| {
            (copy.src_kind, copy.src_device) = (UNIFIED, copy.src_host as u64);
            copy.dst_kind = UNIFIED;
        });
        changed_2d(line, "device_to_device", |copy| {
            (copy.src_kind, copy.src_device) = (DEVICE, copy.dst_device)
        });
        line.says(cuCtxSynchronize());
    }),
    case!("copy/3d", |line| {
        context();
        let host: &mut [u8; 4096] = Box::leak(Box::new(std::array::from_fn(|index| index as u8)));
        let device = memory(4096);
        cuMemsetD8_v2(device, 0, 4096).must();
        let mut copy = copy_3d(host, device, 8, 3, 2);
        (
            copy.src_pitch,
            copy.src_height,
            copy.src_x,
            copy.src_y,
            copy.src_z,
        ) = (32, 8, 1, 2, 1);
        (
            copy.dst_pitch,
            copy.dst_height,
            copy.dst_x,
            copy.dst_y,
            copy.dst_z,
        ) = (16, 5, 4, 1, 1);
        line.says(cuMemcpy3D_v2(&copy));
        line.value("sum", sum(device, 4096));
        line.says(cuMemcpy3DAsync_v2(&copy, stream()));
        line.says(cuCtxSynchronize());
        line.says_as("null", cuMemcpy3D_v2(null()));
    }),
    alone!("copy/3d/wrong", |line| {
        context();
        changed_3d(line, "no_depth", |copy| copy.depth = 0);
        changed_3d(line, "no_width", |copy| copy.width = 0);
        changed_3d(line, "height_small", |copy| copy.src_height = 7);
        changed_3d(line, "height_zero", |copy| copy.src_height = 0);
        changed_3d(line, "height_zero_flat", |copy| {
            (copy.src_height, copy.dst_height, copy.depth) = (0, 0, 1)
        });
        changed_3d(line, "pitch_small", |copy| copy.dst_pitch = 15);
        changed_3d(line, "kind_unknown", |copy| copy.dst_kind = 9);
        changed_3d(line, "null_device", |copy| copy.dst_device = 0);
        changed_3d(line, "lod", |copy| copy.src_lod = 1);
        changed_3d(line, "reserved", |copy| copy.reserved_0 = 1);
        line.says(cuCtxSynchronize());
    }),
];
