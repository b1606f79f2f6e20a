//! The primary context: counts, flags, reset.

use std::ptr::null_mut;

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone};
use crate::conformance::fixture::*;

unsafe fn state(line: &mut Line, when: &str) {
    let (mut flags, mut active) = (77, 77);
    let answer = cuDevicePrimaryCtxGetState(0, &mut flags, &mut active);
    line.gives(when, answer, format!("{active}/{flags}"));
}

pub const CASES: &[Case] = &[
    alone!("primary/counts", |line| {
        let device = device();
        let (mut first, mut second, mut third) = (0, 0, 0);
        state(line, "fresh");
        line.says_as("release_unretained", cuDevicePrimaryCtxRelease_v2(device));
        line.says_as("retain", cuDevicePrimaryCtxRetain(&mut first, device));
        state(line, "retained");
        let mut current = 7;
        cuCtxGetCurrent(&mut current).must();
        line.value("current_after_retain", current);
        line.says_as(
            "retain_again",
            cuDevicePrimaryCtxRetain(&mut second, device),
        );
        line.value("same", first == second);
        line.says_as("release", cuDevicePrimaryCtxRelease_v2(device));
        state(line, "once_retained");
        line.says_as("release_last", cuDevicePrimaryCtxRelease_v2(device));
        state(line, "released");
        line.says_as("release_too_often", cuDevicePrimaryCtxRelease_v2(device));
        line.says_as("revive", cuDevicePrimaryCtxRetain(&mut third, device));
        line.value("same_handle", first == third);
        state(line, "revived");
    }),
    alone!("primary/wrong", |line| {
        let (device, mut context, mut flags, mut active) = (device(), 0, 0, 0);
        line.says_as("retain_null", cuDevicePrimaryCtxRetain(null_mut(), device));
        line.says_as(
            "retain_wrong_device",
            cuDevicePrimaryCtxRetain(&mut context, 1000),
        );
        line.says_as(
            "retain_negative_device",
            cuDevicePrimaryCtxRetain(&mut context, -1),
        );
        line.says_as("release_wrong_device", cuDevicePrimaryCtxRelease_v2(1000));
        line.says_as("reset_wrong_device", cuDevicePrimaryCtxReset_v2(1000));
        line.says_as(
            "state_null_flags",
            cuDevicePrimaryCtxGetState(device, null_mut(), &mut active),
        );
        line.says_as(
            "state_null_active",
            cuDevicePrimaryCtxGetState(device, &mut flags, null_mut()),
        );
        line.says_as(
            "state_wrong_device",
            cuDevicePrimaryCtxGetState(1000, &mut flags, &mut active),
        );
        line.says_as("flags_wrong_device", cuDevicePrimaryCtxSetFlags_v2(1000, 0));
    }),
    alone!("primary/flags", |line| {
        let (device, mut context) = (device(), 0);
        line.says_as("blocking", cuDevicePrimaryCtxSetFlags_v2(device, 4));
        state(line, "before_retain");
        cuDevicePrimaryCtxRetain(&mut context, device).must();
        state(line, "active");
        line.says_as(
            "spin_while_active",
            cuDevicePrimaryCtxSetFlags_v2(device, 1),
        );
        state(line, "changed");
        line.says_as("unknown", cuDevicePrimaryCtxSetFlags_v2(device, 0x1000));
        line.says_as("two_schedules", cuDevicePrimaryCtxSetFlags_v2(device, 3));
        line.says_as("map_host", cuDevicePrimaryCtxSetFlags_v2(device, 8));
        state(line, "map_host_kept");
        line.says_as("keep_local", cuDevicePrimaryCtxSetFlags_v2(device, 0x10));
        state(line, "local_kept");
        line.says_as("sync_memops", cuDevicePrimaryCtxSetFlags_v2(device, 0x80));
        state(line, "last");
    }),
    alone!("primary/reset", |line| {
        let (device, first) = (device(), context());
        let pointer = memory(64);
        line.says(cuDevicePrimaryCtxReset_v2(device));
        state(line, "after");
        let mut current = 0;
        line.gives(
            "current_kept",
            cuCtxGetCurrent(&mut current),
            current == first,
        );
        line.says_as("alloc", cuMemAlloc_v2(&mut 0, 16));
        line.says_as("fill_old", cuMemsetD8_v2(pointer, 0, 64));
        line.says_as("synchronize", cuCtxSynchronize());
        let mut again = 0;
        line.says_as("retain", cuDevicePrimaryCtxRetain(&mut again, device));
        line.value("same_handle", first == again);
        line.says_as("set", cuCtxSetCurrent(again));
        line.says_as("alloc_again", cuMemAlloc_v2(&mut 0, 16));
        line.says_as("free_old", cuMemFree_v2(pointer));
    }),
    alone!("primary/reset_inactive", |line| {
        line.says(cuDevicePrimaryCtxReset_v2(device()));
        state(line, "after");
    }),
    alone!("primary/released_while_current", |line| {
        let (device, first) = (device(), context());
        let pointer = memory(64);
        line.says(cuDevicePrimaryCtxRelease_v2(device));
        state(line, "after");
        let (mut current, mut number) = (0, -1);
        line.gives(
            "current_kept",
            cuCtxGetCurrent(&mut current),
            current == first,
        );
        line.says(cuMemAlloc_v2(&mut 0, 16));
        line.says(cuMemFree_v2(pointer));
        line.says(cuCtxSynchronize());
        line.says(cuStreamSynchronize(0));
        line.says(cuCtxGetDevice(&mut number));
        line.says(cuStreamCreate(&mut 0, 0));
        line.says(cuCtxSetCurrent(first));
    }),
    alone!("primary/destroyed_by_handle", |line| {
        let first = context();
        line.says(cuCtxDestroy_v2(first));
        state(line, "after");
    }),
    alone!("primary/set_current_unretained", |line| {
        let (device, mut context) = (device(), 0);
        cuDevicePrimaryCtxRetain(&mut context, device).must();
        cuDevicePrimaryCtxRelease_v2(device).must();
        line.says(cuCtxSetCurrent(context));
        line.says(cuCtxPushCurrent_v2(context));
        line.says(cuMemAlloc_v2(&mut 0, 16));
    }),
];
