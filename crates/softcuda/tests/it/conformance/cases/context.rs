//! Contexts: creation, the stack, settings, and what a destroyed one answers.

use std::ptr::null_mut;

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::fixture::*;

unsafe fn current(line: &mut Line, when: &str, known: &[(&str, Handle)]) {
    let mut context = 7;
    let answer = cuCtxGetCurrent(&mut context);
    let name = known
        .iter()
        .find(|(_, handle)| *handle == context)
        .map_or("other", |(name, _)| name);
    line.gives(when, answer, if context == 0 { "none" } else { name });
}

pub const CASES: &[Case] = &[
    alone!("context/stack", |line| {
        let primary = context();
        let mut made = 0;
        line.says_as("create", cuCtxCreate_v2(&mut made, 0, 0));
        let known = [("primary", primary), ("made", made)];
        current(line, "created", &known);
        line.says_as("push", cuCtxPushCurrent_v2(primary));
        current(line, "pushed", &known);
        let mut popped = 0;
        line.gives("pop", cuCtxPopCurrent_v2(&mut popped), popped == primary);
        current(line, "popped", &known);
        line.gives("pop_made", cuCtxPopCurrent_v2(&mut popped), popped == made);
        current(line, "popped_made", &known);
        line.gives("pop_primary", cuCtxPopCurrent_v2(null_mut()), "null_taken");
        current(line, "empty", &known);
        popped = 7;
        line.says_as("pop_empty", cuCtxPopCurrent_v2(&mut popped));
        line.value("popped_empty", popped);
        line.says_as("push_null", cuCtxPushCurrent_v2(0));
        line.says_as("set_null_on_empty", cuCtxSetCurrent(0));
        line.says_as("set_on_empty", cuCtxSetCurrent(made));
        current(line, "set", &known);
        cuCtxPushCurrent_v2(primary).must();
        line.says_as("set_replaces_top", cuCtxSetCurrent(made));
        cuCtxPopCurrent_v2(&mut popped).must();
        current(line, "below", &known);
        cuCtxPushCurrent_v2(primary).must();
        line.says_as("set_null_pops", cuCtxSetCurrent(0));
        current(line, "after_null", &known);
    }),
    alone!("context/create/wrong", |line| {
        let (device, mut made) = (device(), 0);
        line.says_as("null", cuCtxCreate_v2(null_mut(), 0, device));
        line.says_as("wrong_device", cuCtxCreate_v2(&mut made, 0, 1000));
        line.says_as("negative_device", cuCtxCreate_v2(&mut made, 0, -1));
        line.says_as("unknown_flag", cuCtxCreate_v2(&mut made, 0x1000, device));
        line.says_as("two_schedules", cuCtxCreate_v2(&mut made, 3, device));
        current(line, "current", &[]);
    }),
    alone!("context/create/flags", |line| {
        let device = device();
        for flags in [0u32, 1, 2, 4, 8, 0x10, 0x1c, 0x80] {
            let (mut made, mut read) = (0, 0);
            if line.says_as(
                format!("create_{flags:#x}"),
                cuCtxCreate_v2(&mut made, flags, device),
            ) {
                line.gives("read", cuCtxGetFlags(&mut read), format!("{read:#x}"));
                cuCtxDestroy_v2(made).ignore();
            }
        }
    }),
    alone!("context/destroy/current", |line| {
        let primary = context();
        let made = new_context();
        line.says(cuCtxDestroy_v2(made));
        current(line, "current", &[("primary", primary), ("made", made)]);
        line.says(cuMemAlloc_v2(&mut 0, 16));
    }),
    alone!("context/destroy/current_elsewhere", |line| {
        let made = new_context();
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let (ready, is_ready) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            // SAFETY: the calls concern this thread's context, destroyed or not.
            unsafe {
                cuCtxSetCurrent(made).must();
                ready.send(()).expect("the case waits");
                receive.recv().expect("the case tells when");
                let (mut context, mut pointer, mut device, mut stream) = (0, 0, 0, 0);
                let answers = [
                    cuCtxGetCurrent(&mut context),
                    cuMemAlloc_v2(&mut pointer, 16),
                    cuCtxSynchronize(),
                    cuCtxGetDevice(&mut device),
                    cuStreamCreate(&mut stream, 0),
                    cuStreamSynchronize(0),
                    cuMemFree_v2(0),
                    cuMemFree_v2(WILD),
                    cuCtxPopCurrent_v2(&mut context),
                ];
                (context == made, answers)
            }
        });
        is_ready.recv().expect("the thread starts");
        line.says(cuCtxDestroy_v2(made));
        send.send(()).expect("the thread waits");
        let (same, answers) = other.join().expect("the thread does not panic");
        for answer in answers {
            line.says(answer);
        }
        line.value("still_current", same);
    }),
    alone!("context/destroy/with_objects", |line| {
        let primary = context();
        let made = new_context();
        let (pointer, stream, event, module) = (memory(64), stream(), event(), module());
        let function = function_of(module, c"empty");
        cuCtxDestroy_v2(made).must();
        cuCtxSetCurrent(primary).must();
        line.says_as("free", cuMemFree_v2(pointer));
        line.says_as("fill", cuMemsetD8_v2(pointer, 0, 64));
        line.value(
            "handles",
            [stream, event, function].iter().all(|&handle| handle != 0),
        );
    }),
    case!("context/get_device", |line| {
        let mut number = -1;
        context();
        line.gives("device", cuCtxGetDevice(&mut number), number);
        line.says_as("null", cuCtxGetDevice(null_mut()));
        line.says_as("null_current", cuCtxGetCurrent(null_mut()));
    }),
    case!("context/id", |line| {
        let primary = context();
        let (mut of_current, mut of_handle) = (0, 0);
        line.says_as("current", cuCtxGetId(0, &mut of_current));
        line.says_as("handle", cuCtxGetId(primary, &mut of_handle));
        line.value("same", of_current == of_handle);
        line.says_as("null", cuCtxGetId(primary, null_mut()));
        cuCtxSetCurrent(0).must();
        line.says_as("without_context", cuCtxGetId(0, &mut of_current));
    }),
    case!("context/api_version", |line| {
        let primary = context();
        let mut version = 0;
        line.gives("current", cuCtxGetApiVersion(0, &mut version), version);
        line.gives("handle", cuCtxGetApiVersion(primary, &mut version), version);
        line.says_as("null", cuCtxGetApiVersion(primary, null_mut()));
        cuCtxSetCurrent(0).must();
        line.says_as("without_context", cuCtxGetApiVersion(0, &mut version));
    }),
    alone!("context/flags", |line| {
        context();
        let mut flags = 0;
        line.gives("first", cuCtxGetFlags(&mut flags), format!("{flags:#x}"));
        line.says_as("null", cuCtxGetFlags(null_mut()));
        line.says_as("set_blocking", cuCtxSetFlags(4));
        line.gives("read", cuCtxGetFlags(&mut flags), format!("{flags:#x}"));
        line.says_as("set_sync_memops", cuCtxSetFlags(0x80));
        line.gives(
            "read_again",
            cuCtxGetFlags(&mut flags),
            format!("{flags:#x}"),
        );
        line.says_as("set_unknown", cuCtxSetFlags(0x1000));
        cuCtxSetCurrent(0).must();
        line.says_as("without_context", cuCtxGetFlags(&mut flags));
    }),
    alone!("context/limit/read", |line| {
        context();
        for limit in 0..10 {
            let mut value = 0;
            // The heap and the persisting cache follow the device's size.
            let answer = cuCtxGetLimit(&mut value, limit);
            line.gives(
                limit,
                answer,
                if limit == 6 {
                    "set".to_string()
                } else {
                    value.to_string()
                },
            );
        }
        line.says_as("unknown", cuCtxGetLimit(&mut 0, 99));
        line.says_as("null", cuCtxGetLimit(null_mut(), 0));
        cuCtxSetCurrent(0).must();
        line.says_as("without_context", cuCtxGetLimit(&mut 0, 0));
    }),
    alone!("context/limit/write", |line| {
        context();
        for (limit, value) in [
            (0, 4096),
            (0, 4097),
            (0, 0),
            (1, 1 << 16),
            (1, 0),
            (2, 1 << 20),
            (2, 1),
            (3, 4),
            (4, 64),
        ] {
            let mut read = 0;
            line.says_as(format!("set_{limit}_{value}"), cuCtxSetLimit(limit, value));
            line.gives("read", cuCtxGetLimit(&mut read, limit), read);
        }
        for (limit, value) in [(5, 64), (5, 0), (5, 1000), (7, 1), (8, 1), (9, 1), (99, 1)] {
            line.says_as(format!("set_{limit}_{value}"), cuCtxSetLimit(limit, value));
        }
        line.says_as("stack_too_large", cuCtxSetLimit(0, 1 << 30));
    }),
    alone!("context/cache_config", |line| {
        context();
        let mut config = 77;
        line.gives("first", cuCtxGetCacheConfig(&mut config), config);
        for value in 0..5 {
            line.says_as(format!("set_{value}"), cuCtxSetCacheConfig(value));
        }
        line.gives("last", cuCtxGetCacheConfig(&mut config), config);
        line.says_as("null", cuCtxGetCacheConfig(null_mut()));
        line.gives("banks", cuCtxGetSharedMemConfig(&mut config), config);
        line.says_as("set_banks", cuCtxSetSharedMemConfig(2));
        line.gives("banks_read", cuCtxGetSharedMemConfig(&mut config), config);
        line.says_as("set_banks_unknown", cuCtxSetSharedMemConfig(9));
    }),
    case!("context/priority_range", |line| {
        context();
        let (mut least, mut greatest) = (77, 77);
        line.says(cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
        line.value("range", format!("{least}..{greatest}"));
        line.says_as(
            "null_least",
            cuCtxGetStreamPriorityRange(null_mut(), &mut greatest),
        );
        line.says_as(
            "null_greatest",
            cuCtxGetStreamPriorityRange(&mut least, null_mut()),
        );
        line.says_as(
            "null_both",
            cuCtxGetStreamPriorityRange(null_mut(), null_mut()),
        );
        cuCtxSetCurrent(0).must();
        line.says_as(
            "without_context",
            cuCtxGetStreamPriorityRange(&mut least, &mut greatest),
        );
    }),
    alone!("context/attach", |line| {
        let mut attached = 0;
        let primary = context();
        line.gives(
            "attach_primary",
            cuCtxAttach(&mut attached, 0),
            attached == primary,
        );
        let made = new_context();
        line.gives("attach", cuCtxAttach(&mut attached, 0), attached == made);
        line.says_as("attach_flags", cuCtxAttach(&mut attached, 1));
        line.says_as("attach_null", cuCtxAttach(null_mut(), 0));
        line.says_as("detach", cuCtxDetach(made));
        line.says_as("usable", cuCtxSynchronize());
        line.says_as("detach_last", cuCtxDetach(made));
        current(line, "current", &[("primary", primary), ("made", made)]);
    }),
    case!("context/reset_l2", |line| {
        line.says_as("without_context", {
            device();
            cuCtxResetPersistingL2Cache()
        });
        context();
        line.says(cuCtxResetPersistingL2Cache());
    }),
];
