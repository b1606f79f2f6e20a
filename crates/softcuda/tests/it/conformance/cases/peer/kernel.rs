//! Functions, modules and library kernels of two contexts: which context a launch goes to.

use std::ptr::null_mut;

use super::{enable, reads, synchronizes};
use crate::capture::api::launch_store;
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, two_devices};
use crate::conformance::fixture::*;
use crate::conformance::sides::Side;
use crate::conformance::structs::LaunchConfig;

/// Adds one to a word, as seen by all devices.
const ADD: &str = "
.version 8.3
.target sm_80
.address_size 64
.visible .entry add(.param .u64 add_0)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [add_0];
    atom.global.sys.add.u32 %r1, [%rd1], 1;
    ret;
}
";

/// Launches with each context current in turn, and then waits with both.
unsafe fn launches(line: &mut Line, sides: [&Side; 2], function: Handle, stream: Handle, to: u64) {
    for (side, what) in sides.into_iter().zip(["zero_current", "one_current"]) {
        side.enter();
        line.says_as(what, launch_store(function, stream, to, 5));
    }
    synchronizes(line, sides);
}

/// A kernel of a library.
unsafe fn kernel(name: &std::ffi::CStr) -> (Handle, Handle) {
    let (library, mut kernel) = (library(), 0);
    cuLibraryGetKernel(&mut kernel, library, name.as_ptr()).must();
    (library, kernel)
}

/// A launch of one thread without arguments.
fn one_thread(stream: Handle) -> LaunchConfig {
    LaunchConfig {
        grid: [1; 3],
        block: [1; 3],
        shared_bytes: 0,
        stream,
        attributes: std::ptr::null(),
        attribute_count: 0,
    }
}

pub const CASES: &[Case] = &[
    two_devices!("peer/kernel/store_with_access", |line, zero, one| {
        enable(zero, one);
        line.says_as("store", zero.store(one.word, 5));
        reads(line, "seen_by_zero", one.word);
        one.enter();
        reads(line, "seen_by_one", one.word);
    }),
    two_devices!("peer/kernel/load_with_access", |line, zero, one| {
        enable(zero, one);
        let (mut to, mut from) = (zero.word, one.word);
        let load = zero.function(c"load");
        let mut arguments = [void(&mut to), void(&mut from)];
        line.says_as("launch", launch(load, 1, 1, zero.stream, &mut arguments));
        line.says_as("end", cuStreamSynchronize(zero.stream));
        reads(line, "value", zero.word);
    }),
    two_devices!("peer/kernel/atomics_with_access", |line, zero, one| {
        enable(zero, one);
        let mut to = one.word;
        for side in [one, zero] {
            side.enter();
            let add = function_of(module_of(ADD), c"add");
            let answer = launch(add, 4, 64, side.stream, &mut [void(&mut to)]);
            line.says_as("launch", answer);
        }
        synchronizes(line, [zero, one]);
        reads(line, "sum", one.word);
    }),
    two_devices!(
        "peer/kernel/module_variable_with_access",
        |line, zero, one| {
            let (mut address, mut size) = (0, 0);
            one.enter();
            cuModuleGetGlobal_v2(&mut address, &mut size, one.module, c"counter".as_ptr()).must();
            enable(zero, one);
            line.says_as("store", zero.store(address, 5));
            synchronizes(line, [zero, one]);
            reads(line, "value", address);
        }
    ),
    two_devices!("peer/kernel/function_in_own_stream", |line, zero, one| {
        let store = zero.function(c"store");
        launches(line, [zero, one], store, zero.stream, zero.word);
    }),
    two_devices!("peer/kernel/function_in_its_stream", |line, zero, one| {
        let store = zero.function(c"store");
        launches(line, [zero, one], store, one.stream, zero.word);
    }),
    two_devices!("peer/kernel/function_in_null_stream", |line, zero, one| {
        let store = zero.function(c"store");
        launches(line, [zero, one], store, 0, zero.word);
    }),
    two_devices!(
        "peer/kernel/function_in_legacy_stream",
        |line, zero, one| {
            let store = zero.function(c"store");
            launches(line, [zero, one], store, LEGACY, zero.word);
        }
    ),
    two_devices!(
        "peer/kernel/function_in_thread_s_stream",
        |line, zero, one| {
            let store = zero.function(c"store");
            launches(line, [zero, one], store, PER_THREAD, zero.word);
        }
    ),
    two_devices!("peer/kernel/function_without_context", |line, zero, one| {
        let store = zero.function(c"store");
        cuCtxSetCurrent(0).must();
        for (what, stream) in [("own", zero.stream), ("its", one.stream), ("null", 0)] {
            line.says_as(what, launch_store(store, stream, zero.word, 5));
        }
        zero.enter();
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/kernel/other_launches", |line, zero, one| {
        let empty = zero.function(c"empty");
        let (own, its) = (one_thread(zero.stream), one_thread(one.stream));
        line.says_as("ex", cuLaunchKernelEx(&its, empty, null_mut(), null_mut()));
        let cooperative =
            |stream| cuLaunchCooperativeKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, null_mut());
        line.says_as("cooperative", cooperative(one.stream));
        one.enter();
        line.says_as(
            "ex_one_current",
            cuLaunchKernelEx(&own, empty, null_mut(), null_mut()),
        );
        line.says_as("cooperative_one_current", cooperative(zero.stream));
        synchronizes(line, [zero, one]);
    }),
    two_devices!(
        "peer/kernel/function_asked_from_other",
        |line, zero, one| {
            let store = zero.function(c"store");
            one.enter();
            let (mut value, mut handle, mut name) = (0, 0, std::ptr::null());
            line.says(cuFuncGetAttribute(&mut value, 0, store));
            line.says(cuFuncSetAttribute(store, 8, 4096));
            line.says(cuFuncSetCacheConfig(store, 1));
            line.gives(
                "module",
                cuFuncGetModule(&mut handle, store),
                handle == zero.module,
            );
            line.says(cuFuncGetName(&mut name, store));
            line.says(cuFuncLoad(store));
            line.says(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut value, store, 64, 0,
            ));
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/kernel/module_asked_from_other", |line, zero, one| {
        one.enter();
        let (mut store, mut address, mut size, mut count) = (0, 0, 0, 0);
        line.says(cuModuleGetFunction(
            &mut store,
            zero.module,
            c"store".as_ptr(),
        ));
        line.says(cuModuleGetFunctionCount(&mut count, zero.module));
        line.says(cuModuleGetGlobal_v2(
            &mut address,
            &mut size,
            zero.module,
            c"counter".as_ptr(),
        ));
        let mut ordinal = -7;
        line.gives(
            "device",
            cuPointerGetAttribute(void(&mut ordinal), 9, address),
            ordinal,
        );
        reads(line, "counter", address);
        zero.enter();
        line.says(launch_store(store, zero.stream, zero.word, 5));
        synchronizes(line, [zero, one]);
    }),
    two_devices!(
        "peer/kernel/module_unloaded_from_other",
        |line, zero, one| {
            let store = zero.function(c"store");
            one.enter();
            line.says(cuModuleUnload(zero.module));
            synchronizes(line, [zero, one]);
            line.value("had_function", store != 0);
            line.says_as(
                "own_module",
                launch_store(one.function(c"store"), one.stream, one.word, 5),
            );
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/kernel/library_in_both", |line, zero, one| {
        let (_, store) = kernel(c"store");
        for (side, what) in [(zero, "zero"), (one, "one")] {
            side.enter();
            line.says_as(what, launch_store(store, side.stream, side.word, 5));
            cuStreamSynchronize(side.stream).must();
            line.says_as(
                format!("{what}_null_stream"),
                launch_store(store, 0, side.word, 6),
            );
        }
        synchronizes(line, [zero, one]);
        reads(line, "value_zero", zero.word);
        reads(line, "value_one", one.word);
    }),
    two_devices!(
        "peer/kernel/library_in_stream_of_other",
        |line, zero, one| {
            let (_, store) = kernel(c"store");
            zero.enter();
            line.says_as("launch", launch_store(store, one.stream, one.word, 5));
            synchronizes(line, [zero, one]);
            reads(line, "value", one.word);
        }
    ),
    two_devices!("peer/kernel/library_handles", |line, zero, one| {
        let (library, store) = kernel(c"store");
        let (mut modules, mut functions, mut globals) = ([0; 2], [0; 2], [0; 2]);
        for (number, side) in [zero, one].into_iter().enumerate() {
            side.enter();
            let mut size = 0;
            line.says(cuLibraryGetModule(&mut modules[number], library));
            line.says(cuKernelGetFunction(&mut functions[number], store));
            line.says(cuLibraryGetGlobal(
                &mut globals[number],
                &mut size,
                library,
                c"counter".as_ptr(),
            ));
            let mut ordinal = -7;
            line.gives(
                "device",
                cuPointerGetAttribute(void(&mut ordinal), 9, globals[number]),
                ordinal,
            );
        }
        line.value("modules_distinct", modules[0] != modules[1]);
        line.value("functions_distinct", functions[0] != functions[1]);
        line.value("globals_distinct", globals[0] != globals[1]);
        line.says_as(
            "function_of_zero_in_one",
            launch_store(functions[0], one.stream, one.word, 5),
        );
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/kernel/library_settings", |line, zero, one| {
        const MAX_DYNAMIC_SHARED: u32 = 8;
        let (_, store) = kernel(c"store");
        let mut value = 0;
        line.says_as(
            "set",
            cuKernelSetAttribute(MAX_DYNAMIC_SHARED, 100 << 10, store, 1),
        );
        for device in [0, 1, 1000, -1] {
            line.gives(
                device,
                cuKernelGetAttribute(&mut value, MAX_DYNAMIC_SHARED, store, device),
                value,
            );
        }
        for (side, what) in [(zero, "function_zero"), (one, "function_one")] {
            side.enter();
            let mut function = 0;
            cuKernelGetFunction(&mut function, store).must();
            line.gives(
                what,
                cuFuncGetAttribute(&mut value, MAX_DYNAMIC_SHARED, function),
                value,
            );
        }
        line.says_as(
            "set_far",
            cuKernelSetAttribute(MAX_DYNAMIC_SHARED, 64, store, 1000),
        );
    }),
    two_devices!("peer/kernel/host_functions", |line, zero, one| {
        unsafe extern "C" fn nothing(_: *mut std::ffi::c_void) {}
        unsafe extern "C" fn told(_: Handle, _: u32, _: *mut std::ffi::c_void) {}
        line.says(cuLaunchHostFunc(one.stream, Some(nothing), null_mut()));
        line.says(cuStreamAddCallback(one.stream, Some(told), null_mut(), 0));
        synchronizes(line, [zero, one]);
    }),
];
