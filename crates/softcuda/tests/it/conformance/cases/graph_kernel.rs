//! Kernel nodes: made, read, changed.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

/// Adds a node of these parameters that depends on nothing.
unsafe fn add(graph: Handle, params: &KernelParams) -> Answer {
    cuGraphAddKernelNode_v2(&mut 0, graph, NONE, 0, params)
}

/// Parameters of the kernel without parameters, in another shape.
unsafe fn shaped(function: Handle, grid: [u32; 3], block: [u32; 3], shared: u32) -> KernelParams {
    KernelParams {
        grid,
        block,
        shared,
        ..kernel_params(function, &mut [])
    }
}

/// Launches, and writes down what became of it.
unsafe fn runs(line: &mut Line, graph: Handle, pointer: u64) {
    let stream = stream();
    line.says(cuGraphLaunch(instantiate(graph), stream));
    line.says(cuStreamSynchronize(stream));
    line.value("word", word(pointer));
}

pub const CASES: &[Case] = &[
    case!("graph/kernel/right", |line| {
        context();
        let (graph, pointer) = (graph(), memory(4));
        let node = add_store(graph, &[], function(c"store"), pointer, 7);
        let mut kind = 99;
        line.gives("kind", cuGraphNodeGetType(node, &mut kind), kind);
        runs(line, graph, pointer);
    }),
    case!("graph/kernel/null", |line| {
        context();
        let (graph, empty) = (graph(), function(c"empty"));
        let params = kernel_params(empty, &mut []);
        line.says_as(
            "params",
            cuGraphAddKernelNode_v2(&mut 0, graph, NONE, 0, null()),
        );
        line.says_as(
            "out",
            cuGraphAddKernelNode_v2(null_mut(), graph, NONE, 0, &params),
        );
        line.says_as("graph", add(0, &params));
        line.says_as("function", add(graph, &kernel_params(0, &mut [])));
        line.value("nodes", nodes(graph).len());
    }),
    alone!("graph/kernel/bogus_function", |line| {
        context();
        let graph = graph();
        line.says(add(graph, &kernel_params(BOGUS, &mut [])));
    }),
    case!("graph/kernel/shape", |line| {
        context();
        let (graph, empty) = (graph(), function(c"empty"));
        for (name, grid, block) in [
            ("grid_x_0", [0, 1, 1], [1, 1, 1]),
            ("grid_y_0", [1, 0, 1], [1, 1, 1]),
            ("grid_z_0", [1, 1, 0], [1, 1, 1]),
            ("block_x_0", [1, 1, 1], [0, 1, 1]),
            ("block_z_0", [1, 1, 1], [1, 1, 0]),
            ("block_1024", [1, 1, 1], [1024, 1, 1]),
            ("block_1025", [1, 1, 1], [1025, 1, 1]),
            ("block_32_33", [1, 1, 1], [32, 33, 1]),
            ("block_z_64", [1, 1, 1], [1, 1, 64]),
            ("block_z_65", [1, 1, 1], [1, 1, 65]),
            ("grid_x_max", [i32::MAX as u32, 1, 1], [1, 1, 1]),
            ("grid_x_more", [1 << 31, 1, 1], [1, 1, 1]),
            ("grid_y_max", [1, 65535, 1], [1, 1, 1]),
            ("grid_y_more", [1, 65536, 1], [1, 1, 1]),
            ("grid_z_more", [1, 1, 65536], [1, 1, 1]),
        ] {
            line.says_as(name, add(graph, &shaped(empty, grid, block, 0)));
        }
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/kernel/launch_bounds", |line| {
        context();
        let graph = graph();
        let (most, exact) = (function(c"at_most_128"), function(c"exactly_64"));
        for threads in [128, 129] {
            let params = shaped(most, [1; 3], [threads, 1, 1], 0);
            line.says_as(format!("most_{threads}"), add(graph, &params));
        }
        for threads in [32, 64, 65] {
            let params = shaped(exact, [1; 3], [threads, 1, 1], 0);
            line.says_as(format!("exact_{threads}"), add(graph, &params));
        }
        line.value("nodes", nodes(graph).len());
        line.says(cuGraphInstantiateWithFlags(&mut 0, graph, 0));
    }),
    case!("graph/kernel/shared", |line| {
        context();
        let (graph, empty) = (graph(), function(c"empty"));
        for bytes in [48 << 10, (48 << 10) + 1, 227 << 10, (227 << 10) + 1] {
            let answer = add(graph, &shaped(empty, [1; 3], [1; 3], bytes));
            line.says_as(format!("bytes_{bytes}"), answer);
        }
        cuFuncSetAttribute(empty, 8, 64 << 10).must();
        let answer = add(graph, &shaped(empty, [1; 3], [1; 3], 64 << 10));
        line.says_as("allowed", answer);
        let answer = add(graph, &shaped(empty, [1; 3], [1; 3], (64 << 10) + 1));
        line.says_as("more", answer);
        line.value("nodes", nodes(graph).len());
        line.says(cuGraphInstantiateWithFlags(&mut 0, graph, 0));
    }),
    alone!("graph/kernel/no_values", |line| {
        context();
        let graph = graph();
        let params = KernelParams {
            values: null_mut(),
            ..kernel_params(function(c"store"), &mut [])
        };
        line.says(add(graph, &params));
        line.value("nodes", nodes(graph).len());
    }),
    alone!("graph/kernel/no_values_wanted", |line| {
        context();
        let graph = graph();
        let params = KernelParams {
            values: null_mut(),
            ..kernel_params(function(c"empty"), &mut [])
        };
        line.says(add(graph, &params));
        line.value("nodes", nodes(graph).len());
    }),
    alone!("graph/kernel/a_null_value", |line| {
        context();
        let (mut pointer, graph) = (memory(4), graph());
        let values = &mut [void(&mut pointer), null_mut()];
        line.says(add(graph, &kernel_params(function(c"store"), values)));
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/kernel/extra", |line| {
        context();
        let (graph, pointer, store) = (graph(), memory(4), function(c"store"));
        let (mut buffer, mut size) = ([pointer, 9], 12usize);
        let mut extra = [
            1 as *mut c_void,
            void(&mut buffer),
            2 as _,
            void(&mut size),
            null_mut(),
        ];
        let params = KernelParams {
            values: null_mut(),
            extra: extra.as_mut_ptr(),
            ..kernel_params(store, &mut [])
        };
        line.says(add(graph, &params));
        runs(line, graph, pointer);
        let (mut to, mut value) = (pointer, 3u32);
        let values = &mut [void(&mut to), void(&mut value)];
        let both = KernelParams {
            extra: extra.as_mut_ptr(),
            ..kernel_params(store, values)
        };
        line.says_as("both", add(graph, &both));
        for bytes in [8usize, 11, 16, 24] {
            *(*params.extra.add(3)).cast::<usize>() = bytes;
            line.says_as(format!("size_{bytes}"), add(graph, &params));
        }
        *params.extra = null_mut();
        line.says_as("nothing", add(graph, &params));
        *params.extra = 7 as _;
        line.says_as("unknown", add(graph, &params));
        line.value("nodes", nodes(graph).len());
    }),
    alone!("graph/kernel/without_context", |line| {
        context();
        let (graph, store, pointer) = (graph(), function(c"store"), memory(4));
        cuCtxSetCurrent(0).must();
        let (mut to, mut value) = (pointer, 3u32);
        let values = &mut [void(&mut to), void(&mut value)];
        line.says(add(graph, &kernel_params(store, values)));
    }),
    case!("graph/kernel/of_a_library", |line| {
        let context = context();
        let (graph, mut kernel, mut node) = (graph(), 0, 0);
        cuLibraryGetKernel(&mut kernel, library(), c"empty".as_ptr()).must();
        let mut params = KernelParams {
            kernel,
            ..kernel_params(0, &mut [])
        };
        line.says_as(
            "kernel",
            cuGraphAddKernelNode_v2(&mut node, graph, NONE, 0, &params),
        );
        let mut got = params;
        line.says(cuGraphKernelNodeGetParams_v2(node, &mut got));
        let mut function = 0;
        cuKernelGetFunction(&mut function, kernel).must();
        let names = [("kernel", kernel), ("its", function)];
        line.value("function", named(got.function, &names));
        line.value("kernel", named(got.kernel, &[("same", kernel)]));
        line.value("context", named(got.context, &[("current", context)]));
        params.context = context;
        line.says_as("context", add(graph, &params));
        params.function = crate::conformance::fixture::function(c"empty");
        line.says_as("both", add(graph, &params));
        // A kernel may stand where a function is asked for.
        line.says_as("as_function", add(graph, &kernel_params(kernel, &mut [])));
        cuCtxSetCurrent(0).must();
        (params.function, params.context) = (0, 0);
        line.says_as("without_context", add(graph, &params));
        params.context = context;
        line.says_as("context_named", add(graph, &params));
    }),
    case!("graph/kernel/get", |line| {
        let context = context();
        let (graph, store, pointer) = (graph(), function(c"store"), memory(4));
        let (mut to, mut value, mut node) = (pointer, 77u32, 0);
        let values = &mut [void(&mut to), void(&mut value)];
        let params = KernelParams {
            grid: [2, 3, 4],
            block: [5, 6, 7],
            shared: 100,
            ..kernel_params(store, values)
        };
        cuGraphAddKernelNode_v2(&mut node, graph, NONE, 0, &params).must();
        *values[1].cast::<u32>() = 5;
        let mut got = kernel_params(1, &mut []);
        (got.extra, got.kernel, got.context) = (1 as _, 1, 1);
        line.says(cuGraphKernelNodeGetParams_v2(node, &mut got));
        line.value("function", named(got.function, &[("same", store)]));
        line.value(
            "shape",
            format!("{:?} {:?} {}", got.grid, got.block, got.shared),
        );
        line.value("extra_null", got.extra.is_null());
        line.value("kernel", named(got.kernel, &[]));
        line.value("context", named(got.context, &[("current", context)]));
        line.value("own_values", got.values != params.values);
        line.value("first", *(*got.values).cast::<u64>() == pointer);
        line.value("second", *(*got.values.add(1)).cast::<u32>());
    }),
    case!("graph/kernel/get_wrong", |line| {
        context();
        let graph = graph();
        let (kernel, other) = (
            add_kernel(graph, &[], function(c"empty"), &mut []),
            add_empty(graph, &[]),
        );
        let mut got = kernel_params(0, &mut []);
        line.says_as("out", cuGraphKernelNodeGetParams_v2(kernel, null_mut()));
        line.says_as("kind", cuGraphKernelNodeGetParams_v2(other, &mut got));
        line.says_as("node", cuGraphKernelNodeGetParams_v2(0, &mut got));
    }),
    case!("graph/kernel/set", |line| {
        context();
        let (graph, pointer, module) = (graph(), memory(4), module());
        let store = function_of(module, c"store");
        let (node, other) = (
            add_store(graph, &[], store, pointer, 7),
            add_empty(graph, &[]),
        );
        let (mut to, mut value) = (pointer, 8u32);
        let values = &mut [void(&mut to), void(&mut value)];
        let params = kernel_params(store, values);
        line.says_as("right", cuGraphKernelNodeSetParams_v2(node, &params));
        line.says_as("null", cuGraphKernelNodeSetParams_v2(node, null()));
        line.says_as("kind", cuGraphKernelNodeSetParams_v2(other, &params));
        let wrong = KernelParams {
            grid: [0; 3],
            ..params
        };
        line.says_as("shape", cuGraphKernelNodeSetParams_v2(node, &wrong));
        let wrong = KernelParams {
            function: 0,
            ..params
        };
        line.says_as("function", cuGraphKernelNodeSetParams_v2(node, &wrong));
        runs(line, graph, pointer);
        let another = kernel_params(function_of(module, c"empty"), &mut []);
        line.says_as("another", cuGraphKernelNodeSetParams_v2(node, &another));
    }),
    case!("graph/kernel/other_context", |line| {
        let first = context();
        let graph = graph();
        new_context();
        let elsewhere = function(c"empty");
        cuCtxSetCurrent(first).must();
        line.says(add(graph, &kernel_params(elsewhere, &mut [])));
        line.says_as(
            "here",
            add(graph, &kernel_params(function(c"empty"), &mut [])),
        );
        let (mut exec, stream) = (0, stream());
        line.says(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        line.says(cuGraphLaunch(exec, stream));
        line.says(cuStreamSynchronize(stream));
    }),
    alone!("graph/kernel/module_unloaded", |line| {
        context();
        let (graph, module) = (graph(), module());
        let node = add_kernel(graph, &[], function_of(module, c"empty"), &mut []);
        cuModuleUnload(module).must();
        let mut kind = 99;
        line.gives("kind", cuGraphNodeGetType(node, &mut kind), kind);
        line.says(cuGraphDestroy(graph));
    }),
];
