//! Devices and what they say of themselves.

use std::ptr::null_mut;

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::DeviceProperties;

/// Writes attributes down by number.
unsafe fn attributes(line: &mut Line, numbers: &[u32]) {
    let device = device();
    for &number in numbers {
        let mut value = -1;
        line.gives(
            number,
            cuDeviceGetAttribute(&mut value, number, device),
            value,
        );
    }
}

pub const CASES: &[Case] = &[
    case!("device/get", |line| {
        cuInit(0).must();
        let mut device = -7;
        line.gives("first", cuDeviceGet(&mut device, 0), device);
        device = -7;
        line.says_as("negative", cuDeviceGet(&mut device, -1));
        line.says_as("far", cuDeviceGet(&mut device, 1000));
        line.value("untouched", device == -7);
        line.says_as("null", cuDeviceGet(null_mut(), 0));
        line.says_as("null_far", cuDeviceGet(null_mut(), 1000));
    }),
    case!("device/count", |line| {
        cuInit(0).must();
        let mut count = 0;
        line.says(cuDeviceGetCount(&mut count));
        line.value("some", count >= 1);
        line.says_as("null", cuDeviceGetCount(null_mut()));
    }),
    case!("device/name", |line| {
        let device = device();
        let mut name = [0x55i8; 256];
        line.says(cuDeviceGetName(name.as_mut_ptr(), 256, device));
        line.value("terminated", name.contains(&0) && name[0] != 0);
        name = [0x55; 256];
        line.says_as("four", cuDeviceGetName(name.as_mut_ptr(), 4, device));
        line.value(
            "four_bytes",
            name[..5]
                .iter()
                .map(|&c| if c == 0 { '0' } else { 'x' })
                .collect::<String>(),
        );
        line.says_as("one", cuDeviceGetName(name.as_mut_ptr(), 1, device));
        line.value("one_byte", name[0]);
        line.says_as("no_room", cuDeviceGetName(name.as_mut_ptr(), 0, device));
        line.says_as(
            "negative_room",
            cuDeviceGetName(name.as_mut_ptr(), -1, device),
        );
        line.says_as("null", cuDeviceGetName(null_mut(), 256, device));
        line.says_as(
            "wrong_device",
            cuDeviceGetName(name.as_mut_ptr(), 256, 1000),
        );
    }),
    case!("device/uuid", |line| {
        let device = device();
        let (mut first, mut second) = ([0; 16], [1; 16]);
        line.says(cuDeviceGetUuid_v2(&mut first, device));
        cuDeviceGetUuid_v2(&mut second, device).must();
        line.value("stable", first == second && first != [0; 16]);
        line.says_as("null", cuDeviceGetUuid_v2(null_mut(), device));
        line.says_as("wrong_device", cuDeviceGetUuid_v2(&mut first, 1000));
        line.says_as("negative_device", cuDeviceGetUuid_v2(&mut first, -1));
    }),
    case!("device/total_memory", |line| {
        let (device, mut bytes) = (device(), 0);
        line.says(cuDeviceTotalMem_v2(&mut bytes, device));
        line.value("some", bytes > 0);
        line.says_as("null", cuDeviceTotalMem_v2(null_mut(), device));
        line.says_as("wrong_device", cuDeviceTotalMem_v2(&mut bytes, 1000));
    }),
    case!("device/compute_capability", |line| {
        let (device, mut major, mut minor) = (device(), 0, 0);
        line.says(cuDeviceComputeCapability(&mut major, &mut minor, device));
        line.value("is", format!("{major}.{minor}"));
        line.says_as(
            "null_major",
            cuDeviceComputeCapability(null_mut(), &mut minor, device),
        );
        line.says_as(
            "null_minor",
            cuDeviceComputeCapability(&mut major, null_mut(), device),
        );
        line.says_as(
            "wrong_device",
            cuDeviceComputeCapability(&mut major, &mut minor, 1000),
        );
    }),
    case!("device/attribute/wrong", |line| {
        let (device, mut value) = (device(), -7);
        line.says_as("zero", cuDeviceGetAttribute(&mut value, 0, device));
        line.says_as("far", cuDeviceGetAttribute(&mut value, 9999, device));
        line.says_as(
            "all_ones",
            cuDeviceGetAttribute(&mut value, u32::MAX, device),
        );
        line.says_as("wrong_device", cuDeviceGetAttribute(&mut value, 10, 1000));
        line.says_as("negative_device", cuDeviceGetAttribute(&mut value, 10, -1));
        line.says_as("both_wrong", cuDeviceGetAttribute(&mut value, 9999, 1000));
        line.says_as("null", cuDeviceGetAttribute(null_mut(), 10, device));
        line.value("untouched", value == -7);
    }),
    case!("device/attribute/launch", |line| {
        attributes(
            line,
            &[
                1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 39, 81, 82, 97, 106, 111,
            ],
        );
    }),
    case!("device/attribute/capability", |line| {
        attributes(
            line,
            &[
                75, 76, 15, 18, 19, 20, 31, 35, 40, 41, 78, 79, 80, 84, 86, 87, 90, 95, 96, 120,
            ],
        );
    }),
    case!("device/attribute/memory", |line| {
        attributes(
            line,
            &[
                83, 89, 91, 92, 93, 94, 98, 99, 101, 102, 103, 104, 105, 112, 113, 114, 115, 119,
            ],
        );
        attributes(
            line,
            &[
                121, 122, 123, 125, 126, 127, 129, 133, 135, 138, 144, 145, 147,
            ],
        );
    }),
    case!("device/attribute/texture", |line| {
        attributes(
            line,
            &[
                14, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 42, 43, 44, 45, 46, 47, 48, 49, 51, 52,
                53, 54,
            ],
        );
        attributes(
            line,
            &[
                55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 77,
            ],
        );
    }),
    case!("device/properties", |line| {
        let device = device();
        let mut properties: DeviceProperties = std::mem::zeroed();
        line.says(cuDeviceGetProperties(&mut properties, device));
        line.value("threads", properties.max_threads_per_block);
        line.value("block", format!("{:?}", properties.max_threads_dim));
        line.value("grid", format!("{:?}", properties.max_grid_size));
        line.value("shared", properties.shared_mem_per_block);
        line.value("constant", properties.total_constant_memory);
        line.value("warp", properties.simd_width);
        line.value("pitch", properties.mem_pitch);
        line.value("registers", properties.regs_per_block);
        line.value("alignment", properties.texture_align);
        line.says_as("null", cuDeviceGetProperties(null_mut(), device));
        line.says_as("wrong_device", cuDeviceGetProperties(&mut properties, 1000));
    }),
    case!("device/bus_id", |line| {
        let (device, mut text, mut found) = (device(), [0i8; 32], -1);
        line.says(cuDeviceGetPCIBusId(text.as_mut_ptr(), 32, device));
        line.value("length", text.iter().position(|&c| c == 0).unwrap_or(32));
        line.gives(
            "back",
            cuDeviceGetByPCIBusId(&mut found, text.as_ptr()),
            found == device,
        );
        line.says_as("short", cuDeviceGetPCIBusId(text.as_mut_ptr(), 4, device));
        line.says_as("null", cuDeviceGetPCIBusId(null_mut(), 32, device));
        line.says_as(
            "nonsense",
            cuDeviceGetByPCIBusId(&mut found, c"nonsense".as_ptr()),
        );
        line.says_as(
            "absent",
            cuDeviceGetByPCIBusId(&mut found, c"ffff:ff:1f.0".as_ptr()),
        );
        line.says_as(
            "null_text",
            cuDeviceGetByPCIBusId(&mut found, std::ptr::null()),
        );
    }),
    case!("device/peer", |line| {
        let (device, mut value) = (device(), -7);
        line.gives(
            "self",
            cuDeviceCanAccessPeer(&mut value, device, device),
            value,
        );
        line.says_as(
            "wrong_peer",
            cuDeviceCanAccessPeer(&mut value, device, 1000),
        );
        line.says_as("null", cuDeviceCanAccessPeer(null_mut(), device, device));
        line.says_as(
            "attribute_self",
            cuDeviceGetP2PAttribute(&mut value, 1, device, device),
        );
        let context = context();
        line.says_as("enable_self", cuCtxEnablePeerAccess(context, 0));
        line.says_as("disable_self", cuCtxDisablePeerAccess(context));
        line.says_as("enable_null", cuCtxEnablePeerAccess(0, 0));
        line.says_as("enable_flags", cuCtxEnablePeerAccess(context, 1));
    }),
    case!("device/affinity", |line| {
        let (device, mut value) = (device(), -7);
        line.gives(
            "sm_count",
            cuDeviceGetExecAffinitySupport(&mut value, 0, device),
            value,
        );
        line.says_as(
            "unknown",
            cuDeviceGetExecAffinitySupport(&mut value, 9, device),
        );
        line.says_as(
            "null",
            cuDeviceGetExecAffinitySupport(null_mut(), 0, device),
        );
    }),
    case!("device/flush_remote_writes", |line| {
        context();
        line.says_as("owner", cuFlushGPUDirectRDMAWrites(0, 100));
        line.says_as("all", cuFlushGPUDirectRDMAWrites(0, 200));
        line.says_as("unknown_target", cuFlushGPUDirectRDMAWrites(5, 100));
        line.says_as("unknown_scope", cuFlushGPUDirectRDMAWrites(0, 7));
    }),
    case!("device/profiler", |line| {
        device();
        line.says_as("start_without_context", cuProfilerStart());
        line.says_as("stop_without_context", cuProfilerStop());
        context();
        line.says_as("start", cuProfilerStart());
        line.says_as("start_again", cuProfilerStart());
        line.says_as("stop", cuProfilerStop());
        line.says_as("stop_again", cuProfilerStop());
    }),
];
