//! Contexts of two devices: which is current, and what becomes of one when the other ends.

use std::ptr::null_mut;

use super::{new_context_of, reads, synchronizes};
use crate::capture::api::{cuCtxRecordEvent, cuCtxSynchronize_v2, cuCtxWaitEvent};
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, two_devices};
use crate::conformance::fixture::*;
use crate::conformance::sides::Side;

/// Writes down the device of the current context.
unsafe fn device_now(line: &mut Line, when: &str) {
    let mut device = -7;
    line.gives(when, cuCtxGetDevice(&mut device), device);
}

/// Writes down whether a device's primary context is there, and its flags.
unsafe fn state(line: &mut Line, when: &str, device: i32) {
    let (mut flags, mut active) = (77, 77);
    let answer = cuDevicePrimaryCtxGetState(device, &mut flags, &mut active);
    line.gives(when, answer, format!("{active} {flags:#x}"));
}

pub const CASES: &[Case] = &[
    two_devices!("peer/context/stack", |line, zero, one| {
        device_now(line, "set_zero");
        cuCtxPushCurrent_v2(one.context).must();
        device_now(line, "pushed_one");
        cuCtxPushCurrent_v2(zero.context).must();
        device_now(line, "pushed_zero");
        let mut popped = 0;
        line.gives(
            "pop",
            cuCtxPopCurrent_v2(&mut popped),
            popped == zero.context,
        );
        device_now(line, "popped");
        line.says_as("set", cuCtxSetCurrent(zero.context));
        device_now(line, "set_over_one");
        cuCtxPopCurrent_v2(null_mut()).must();
        device_now(line, "below");
        cuCtxPopCurrent_v2(null_mut()).must();
        device_now(line, "empty");
    }),
    two_devices!("peer/context/default_streams", |line, zero, one| {
        for (side, what) in [(zero, "zero"), (one, "one")] {
            side.enter();
            for (name, stream) in [("null", 0), ("legacy", LEGACY), ("own", PER_THREAD)] {
                let mut device = -7;
                line.gives(
                    format!("{what}_{name}"),
                    cuStreamGetDevice(stream, &mut device),
                    device,
                );
            }
        }
    }),
    two_devices!("peer/context/primary_states", |line| {
        device();
        let mut context = 0;
        state(line, "zero", 0);
        state(line, "one", 1);
        line.says_as("flags", cuDevicePrimaryCtxSetFlags_v2(1, 4));
        state(line, "zero_flags", 0);
        state(line, "one_flags", 1);
        line.says_as("retain", cuDevicePrimaryCtxRetain(&mut context, 1));
        state(line, "zero_retained", 0);
        state(line, "one_retained", 1);
        line.says_as("release_zero", cuDevicePrimaryCtxRelease_v2(0));
        line.says_as("reset_zero", cuDevicePrimaryCtxReset_v2(0));
        state(line, "one_still", 1);
        line.says_as("release", cuDevicePrimaryCtxRelease_v2(1));
        state(line, "one_released", 1);
        line.says_as("release_twice", cuDevicePrimaryCtxRelease_v2(1));
    }),
    two_devices!("peer/context/reset_of_other", |line, zero, one| {
        line.says_as("reset", cuDevicePrimaryCtxReset_v2(1));
        state(line, "state_zero", 0);
        state(line, "state_one", 1);
        device_now(line, "current");
        reads(line, "own_memory", zero.word);
        reads(line, "its_memory", one.word);
        line.says_as("free_its_memory", cuMemFree_v2(one.word));
        line.says_as("enter", cuCtxSetCurrent(one.context));
        line.says_as("alloc", cuMemAlloc_v2(&mut 0, 4));
        let again = Side::new(1);
        reads(line, "again", again.word);
        zero.enter();
        line.says_as("end_zero", cuCtxSynchronize());
    }),
    two_devices!("peer/context/destroy_of_other", |line, zero, one| {
        let made = new_context_of(1);
        let word = memory(4);
        zero.enter();
        line.says_as("destroy", cuCtxDestroy_v2(made));
        device_now(line, "current");
        line.says_as("its_memory", cuMemsetD8_v2(word, 0, 4));
        let mut ordinal = -7;
        line.gives(
            "its_device",
            cuPointerGetAttribute(void(&mut ordinal), 9, word),
            ordinal,
        );
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/context/by_handle", |line, zero, one| {
        line.says_as("synchronize", cuCtxSynchronize_v2(one.context));
        let own = event();
        line.says_as("record_own", cuCtxRecordEvent(one.context, own));
        line.says_as("wait_own", cuCtxWaitEvent(one.context, own));
        one.enter();
        let its = event();
        zero.enter();
        line.says_as("record_its", cuCtxRecordEvent(one.context, its));
        line.says_as("wait_its", cuCtxWaitEvent(zero.context, its));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/context/limits", |line, zero, one| {
        const STACK: u32 = 0;
        let (mut before, mut after, mut own) = (0, 0, 0);
        one.enter();
        cuCtxGetLimit(&mut before, STACK).must();
        zero.enter();
        line.says(cuCtxSetLimit(STACK, 8192));
        line.gives("own", cuCtxGetLimit(&mut own, STACK), own);
        one.enter();
        line.gives(
            "its_as_before",
            cuCtxGetLimit(&mut after, STACK),
            after == before,
        );
    }),
    two_devices!("peer/context/made_on_wrong_current", |line, zero, _one| {
        // A context is of the device that is named, whichever is current.
        zero.enter();
        let made = new_context_of(1);
        device_now(line, "made");
        let mut popped = 0;
        line.gives("pop", cuCtxPopCurrent_v2(&mut popped), popped == made);
        device_now(line, "below");
    }),
];
