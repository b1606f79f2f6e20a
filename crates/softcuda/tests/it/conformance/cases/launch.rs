//! Launches, right and wrong. A wrong launch is refused by the call; nothing runs.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::{LaunchAttribute, LaunchAttributeValue, LaunchConfig};

/// `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE` and `CU_LAUNCH_PARAM_END`.
const BUFFER: *mut c_void = 1 as *mut c_void;
const SIZE: *mut c_void = 2 as *mut c_void;
const END: *mut c_void = null_mut();

/// Launches a kernel without parameters with the given grid, block and dynamic shared memory.
unsafe fn shaped(function: Handle, grid: [u32; 3], block: [u32; 3], shared: u32) -> Answer {
    let ([a, b, c], [x, y, z]) = (grid, block);
    cuLaunchKernel(
        function,
        a,
        b,
        c,
        x,
        y,
        z,
        shared,
        0,
        null_mut(),
        null_mut(),
    )
}

unsafe fn extended(
    function: Handle,
    grid: u32,
    block: u32,
    attributes: &[LaunchAttribute],
) -> Answer {
    let config = LaunchConfig {
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        shared_bytes: 0,
        stream: 0,
        attributes: attributes.as_ptr(),
        attribute_count: attributes.len() as u32,
    };
    cuLaunchKernelEx(&config, function, null_mut(), null_mut())
}

fn attribute(id: u32, words: &[u32]) -> LaunchAttribute {
    let mut value = [0; 8];
    for (index, &word) in words.iter().enumerate() {
        value[index / 2] |= u64::from(word) << (32 * (index % 2));
    }
    LaunchAttribute {
        id,
        padding: 0,
        value: LaunchAttributeValue(value),
    }
}

unsafe fn buffered(
    line: &mut Line,
    what: &str,
    parameters: *mut *mut c_void,
    extra: &mut [*mut c_void],
) {
    let function = function(c"store");
    let answer = cuLaunchKernel(
        function,
        1,
        1,
        1,
        1,
        1,
        1,
        0,
        0,
        parameters,
        extra.as_mut_ptr(),
    );
    line.says_as(what, answer);
    line.says_as("then", cuCtxSynchronize());
}

pub const CASES: &[Case] = &[
    case!("launch/runs", |line| {
        context();
        let pointer = memory(64);
        cuMemsetD8_v2(pointer, 0, 64).must();
        let mut argument = pointer;
        line.says(launch(
            function(c"fill_count"),
            3,
            4,
            0,
            &mut [void(&mut argument)],
        ));
        cuCtxSynchronize().must();
        line.value(
            "values",
            format!(
                "{} {} {}",
                word(pointer),
                word(pointer + 44),
                word(pointer + 48)
            ),
        );
    }),
    case!("launch/zero", |line| {
        context();
        let function = function(c"empty");
        line.says_as("grid_x", shaped(function, [0, 1, 1], [1, 1, 1], 0));
        line.says_as("grid_y", shaped(function, [1, 0, 1], [1, 1, 1], 0));
        line.says_as("grid_z", shaped(function, [1, 1, 0], [1, 1, 1], 0));
        line.says_as("block_x", shaped(function, [1, 1, 1], [0, 1, 1], 0));
        line.says_as("block_y", shaped(function, [1, 1, 1], [1, 0, 1], 0));
        line.says_as("block_z", shaped(function, [1, 1, 1], [1, 1, 0], 0));
        line.says_as("all", shaped(function, [0, 0, 0], [0, 0, 0], 0));
        line.says(cuCtxSynchronize());
    }),
    case!("launch/block_limits", |line| {
        context();
        let function = function(c"empty");
        for block in [
            [1024, 1, 1],
            [1025, 1, 1],
            [1, 1024, 1],
            [1, 1025, 1],
            [1, 1, 64],
            [1, 1, 65],
            [32, 32, 1],
            [32, 33, 1],
            [2048, 1, 1],
            [u32::MAX, 1, 1],
        ] {
            line.says_as(
                format!("{}x{}x{}", block[0], block[1], block[2]),
                shaped(function, [1, 1, 1], block, 0),
            );
        }
        line.says(cuCtxSynchronize());
    }),
    case!("launch/grid_limits", |line| {
        context();
        let function = function(c"empty");
        for grid in [
            [1, 65535, 1],
            [1, 65536, 1],
            [1, 1, 65535],
            [1, 1, 65536],
            [1 << 31, 1, 1],
            [u32::MAX, 1, 1],
        ] {
            line.says_as(
                format!("{}x{}x{}", grid[0], grid[1], grid[2]),
                shaped(function, grid, [1, 1, 1], 0),
            );
        }
        line.says(cuCtxSynchronize());
    }),
    case!("launch/bounds_of_the_kernel", |line| {
        context();
        let module = module();
        let (most, exact) = (
            function_of(module, c"at_most_128"),
            function_of(module, c"exactly_64"),
        );
        for threads in [1, 128, 129] {
            line.says_as(
                format!("at_most_128_{threads}"),
                shaped(most, [1, 1, 1], [threads, 1, 1], 0),
            );
        }
        line.says_as("at_most_128_8x16", shaped(most, [1, 1, 1], [8, 16, 1], 0));
        line.says_as("at_most_128_16x16", shaped(most, [1, 1, 1], [16, 16, 1], 0));
        for threads in [63, 64, 65, 128] {
            line.says_as(
                format!("exactly_64_{threads}"),
                shaped(exact, [1, 1, 1], [threads, 1, 1], 0),
            );
        }
        line.says_as("exactly_64_8x8", shaped(exact, [1, 1, 1], [8, 8, 1], 0));
        line.says(cuCtxSynchronize());
    }),
    case!("launch/shared_limits", |line| {
        context();
        let function = function(c"empty");
        for shared in [0, 49152, 49153, 232_448, 232_449, u32::MAX] {
            line.says_as(shared, shaped(function, [1, 1, 1], [1, 1, 1], shared));
        }
        cuFuncSetAttribute(function, 8, 65536).must();
        line.says_as(
            "raised_65536",
            shaped(function, [1, 1, 1], [1, 1, 1], 65536),
        );
        line.says_as(
            "raised_65537",
            shaped(function, [1, 1, 1], [1, 1, 1], 65537),
        );
        line.says(cuCtxSynchronize());
    }),
    case!("launch/handles", |line| {
        context();
        let function = function(c"empty");
        line.says_as("null_function", shaped(0, [1, 1, 1], [1, 1, 1], 0));
        for (what, stream) in [("null", 0), ("legacy", LEGACY), ("per_thread", PER_THREAD)] {
            line.says_as(what, launch(function, 1, 1, stream, &mut []));
        }
        line.says(cuCtxSynchronize());
    }),
    alone!("launch/bogus_function", |line| {
        context();
        line.says(shaped(BOGUS, [1, 1, 1], [1, 1, 1], 0));
    }),
    case!("launch/parameters/null", |line| {
        context();
        let (store, empty) = (function(c"store"), function(c"empty"));
        line.says_as("none_needed", shaped(empty, [1, 1, 1], [1, 1, 1], 0));
        line.says_as("needed", shaped(store, [1, 1, 1], [1, 1, 1], 0));
        line.says(cuCtxSynchronize());
    }),
    alone!("launch/parameters/null_element", |line| {
        context();
        let mut value = 0u32;
        line.says(launch(
            function(c"store"),
            1,
            1,
            0,
            &mut [null_mut(), void(&mut value)],
        ));
    }),
    case!("launch/parameters/buffer", |line| {
        context();
        let pointer = memory(64);
        let mut buffer = [pointer, 77];
        let mut size = 12usize;
        let mut extra = [BUFFER, void(&mut buffer), SIZE, void(&mut size), END];
        buffered(line, "right", null_mut(), &mut extra);
        line.value("value", word(pointer));
        let mut arguments = [void(&mut buffer[0]), void(&mut size)];
        buffered(line, "both", arguments.as_mut_ptr(), &mut extra);
    }),
    alone!("launch/parameters/buffer_wrong", |line| {
        context();
        let mut buffer = [memory(64), 77, 0, 0];
        let data = void(&mut buffer);
        for asked in [0usize, 8, 11, 16, 32, 1 << 20] {
            let mut size = asked;
            let mut extra = [BUFFER, data, SIZE, void(&mut size), END];
            buffered(line, &format!("size_{asked}"), null_mut(), &mut extra);
        }
        let mut size = 12usize;
        buffered(line, "no_size", null_mut(), &mut [BUFFER, data, END]);
        buffered(
            line,
            "no_buffer",
            null_mut(),
            &mut [SIZE, void(&mut size), END],
        );
        buffered(line, "nothing", null_mut(), &mut [END]);
        buffered(
            line,
            "unknown",
            null_mut(),
            &mut [9 as *mut c_void, data, END],
        );
        buffered(
            line,
            "null_buffer",
            null_mut(),
            &mut [BUFFER, null_mut(), SIZE, void(&mut size), END],
        );
    }),
    alone!("launch/function_of_other_context", |line| {
        context();
        let function = function(c"empty");
        let stream = stream();
        new_context();
        line.says_as("null_stream", launch(function, 1, 1, 0, &mut []));
        line.says_as(
            "stream_of_function",
            launch(function, 1, 1, stream, &mut []),
        );
        line.says_as("attribute", cuFuncGetAttribute(&mut 0, 0, function));
        line.says(cuCtxSynchronize());
    }),
    alone!("launch/without_context", |line| {
        context();
        let (function, stream) = (function(c"empty"), stream());
        cuCtxSetCurrent(0).must();
        line.says_as("null_stream", launch(function, 1, 1, 0, &mut []));
        line.says_as("own_stream", launch(function, 1, 1, stream, &mut []));
        line.says_as("attribute", cuFuncGetAttribute(&mut 0, 0, function));
        line.says_as("name", cuFuncGetName(&mut std::ptr::null(), function));
        line.says_as(
            "parameters",
            cuFuncGetParamInfo(function, 0, &mut 0, &mut 0),
        );
    }),
    alone!("launch/function_of_unloaded_module", |line| {
        context();
        let module = module();
        let function = function_of(module, c"empty");
        cuModuleUnload(module).must();
        line.says(launch(function, 1, 1, 0, &mut []));
    }),
    alone!("launch/function_of_destroyed_context", |line| {
        let primary = context();
        let made = new_context();
        let function = function(c"empty");
        cuCtxDestroy_v2(made).must();
        cuCtxSetCurrent(primary).must();
        line.says(launch(function, 1, 1, 0, &mut []));
    }),
    case!("launch/cooperative", |line| {
        context();
        let function = function(c"empty");
        let go = |blocks, threads, shared| {
            // SAFETY: a kernel without parameters.
            unsafe {
                cuLaunchCooperativeKernel(
                    function,
                    blocks,
                    1,
                    1,
                    threads,
                    1,
                    1,
                    shared,
                    0,
                    null_mut(),
                )
            }
        };
        line.says_as("one", go(1, 32, 0));
        line.says_as("none", go(0, 32, 0));
        line.says_as("too_large", go(1 << 20, 1024, 0));
        line.says_as("block_too_large", go(1, 1025, 0));
        line.says_as("shared_too_large", go(1, 32, 1 << 20));
        line.says_as("extended", extended(function, 1, 32, &[attribute(2, &[1])]));
        line.says_as(
            "extended_too_large",
            extended(function, 1 << 20, 1024, &[attribute(2, &[1])]),
        );
        line.says_as(
            "extended_off_large",
            extended(function, 1 << 20, 1024, &[attribute(2, &[0])]),
        );
        line.says(cuCtxSynchronize());
    }),
    case!("launch/extended", |line| {
        context();
        let function = function(c"empty");
        line.says_as("plain", extended(function, 1, 1, &[]));
        line.says_as("no_blocks", extended(function, 0, 1, &[]));
        line.says_as("null_function", extended(0, 1, 1, &[]));
        line.says_as(
            "null_config",
            cuLaunchKernelEx(std::ptr::null(), function, null_mut(), null_mut()),
        );
        let config = LaunchConfig {
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            stream: 0,
            attributes: std::ptr::null(),
            attribute_count: 1,
        };
        line.says_as(
            "null_attributes",
            cuLaunchKernelEx(&config, function, null_mut(), null_mut()),
        );
        line.says(cuCtxSynchronize());
    }),
    case!("launch/extended/attributes", |line| {
        context();
        let function = function(c"empty");
        let tries: &[(&str, u32, &[u32])] = &[
            ("ignore", 0, &[]),
            ("unknown", 99, &[]),
            ("priority", 8, &[-1i32 as u32]),
            ("priority_out_of_range", 8, &[100]),
            ("serialization", 6, &[1]),
            ("serialization_two", 6, &[2]),
            ("sync_policy", 3, &[1]),
            ("sync_policy_unknown", 3, &[9]),
            ("scheduling", 5, &[1]),
            ("scheduling_unknown", 5, &[9]),
            ("domain", 10, &[1]),
            ("domain_unknown", 10, &[9]),
            ("carveout", 14, &[50]),
            ("carveout_unknown", 14, &[200]),
            ("cooperative_two", 2, &[2]),
            ("updatable_outside_graph", 13, &[1]),
        ];
        for (what, id, words) in tries {
            line.says_as(what, extended(function, 1, 1, &[attribute(*id, words)]));
        }
        line.says_as(
            "twice",
            extended(function, 1, 1, &[attribute(8, &[0]), attribute(8, &[0])]),
        );
        line.says(cuCtxSynchronize());
    }),
    case!("launch/extended/clusters", |line| {
        context();
        let function = function(c"empty");
        for (what, grid, cluster) in [
            ("one", 4, [1, 1, 1]),
            ("two", 4, [2, 1, 1]),
            ("eight", 8, [8, 1, 1]),
            ("sixteen", 16, [16, 1, 1]),
            ("thirty_two", 32, [32, 1, 1]),
            ("not_dividing", 3, [2, 1, 1]),
            ("not_a_power", 6, [3, 1, 1]),
            ("none", 4, [0, 1, 1]),
            ("other_axis", 4, [1, 2, 1]),
        ] {
            line.says_as(
                what,
                extended(function, grid, 32, &[attribute(4, &cluster)]),
            );
        }
        cuFuncSetAttribute(function, 14, 1).must();
        line.says_as(
            "sixteen_allowed",
            extended(function, 16, 32, &[attribute(4, &[16, 1, 1])]),
        );
        line.says(cuCtxSynchronize());
    }),
];
