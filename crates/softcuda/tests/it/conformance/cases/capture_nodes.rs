//! What the nodes of a capture say of themselves.

use std::ffi::c_void;
use std::mem::zeroed;
use std::ptr::null_mut;

use super::capture_setting::*;
use crate::capture::api::*;
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::*;
use crate::graphs::api::*;

/// The node that one call becomes, in a capture that has ended.
unsafe fn node_of(stream: Handle, call: impl FnOnce() -> Answer) -> Handle {
    begin(stream, GLOBAL);
    call().must();
    let node = dependencies(stream)[0];
    end(stream);
    node
}

unsafe fn fill(line: &mut Line, name: &str, stream: Handle, call: impl FnOnce() -> Answer) {
    let mut params: FillParams = zeroed();
    let answer = cuGraphMemsetNodeGetParams(node_of(stream, call), &mut params);
    let FillParams {
        pitch,
        value,
        element,
        width,
        height,
        ..
    } = params;
    let text = format!("{pitch},{value:#x},{element},{width},{height}");
    line.gives(name, answer, text);
}

unsafe fn copy(line: &mut Line, name: &str, stream: Handle, call: impl FnOnce() -> Answer) {
    let mut params: Copy3d = zeroed();
    let answer = cuGraphMemcpyNodeGetParams(node_of(stream, call), &mut params);
    let from = (
        params.src_kind,
        params.src_host.is_null(),
        params.src_device == 0,
        params.src_pitch,
        params.src_height,
    );
    let to = (
        params.dst_kind,
        params.dst_host.is_null(),
        params.dst_device == 0,
        params.dst_pitch,
        params.dst_height,
    );
    let size = (params.width, params.height, params.depth);
    line.gives(
        name,
        answer,
        format!("{from:?}{to:?}{size:?}").replace(' ', ""),
    );
}

unsafe fn batch(line: &mut Line, name: &str, stream: Handle, call: impl FnOnce() -> Answer) {
    let mut params: BatchParams = zeroed();
    let answer = cuGraphBatchMemOpNodeGetParams(node_of(stream, call), &mut params);
    let first = *params.operations;
    let text = format!(
        "{},{},{},{},{}",
        params.count, params.flags, first.operation, first.value, first.flags
    );
    line.gives(name, answer, text);
}

/// A launch with attributes.
unsafe fn launch_with(function: Handle, stream: Handle, attributes: &[(u32, [u64; 2])]) -> Answer {
    let list: Vec<_> = attributes
        .iter()
        .map(|&(id, [first, second])| LaunchAttribute {
            id,
            padding: 0,
            value: LaunchAttributeValue([first, second, 0, 0, 0, 0, 0, 0]),
        })
        .collect();
    let config = LaunchConfig {
        grid: [1; 3],
        block: [1; 3],
        shared_bytes: 0,
        stream,
        attributes: list.as_ptr(),
        attribute_count: list.len() as u32,
    };
    cuLaunchKernelEx(&config, function, null_mut(), null_mut())
}

/// Attributes of launches.
const CLUSTER: u32 = 4;
const SERIALIZATION: u32 = 6;
const PROGRAMMATIC_EVENT: u32 = 7;
const PRIORITY: u32 = 8;
const COMPLETION_EVENT: u32 = 12;

unsafe fn untimed() -> Handle {
    let mut event = 0;
    cuEventCreate(&mut event, 2).must();
    event
}

pub const CASES: &[Case] = &[
    case!("capture/node/fill", |line| {
        context();
        let (s, to) = (stream(), memory(256));
        fill(line, "bytes", s, || cuMemsetD8Async(to, 0xab, 7, s));
        fill(line, "bytes_8", s, || cuMemsetD8Async(to, 1, 8, s));
        fill(line, "words", s, || cuMemsetD16Async(to, 0xabcd, 7, s));
        fill(line, "longs", s, || cuMemsetD32Async(to, u32::MAX, 7, s));
        fill(line, "rows", s, || cuMemsetD2D32Async(to, 64, 1, 3, 2, s));
        fill(line, "one_row", s, || cuMemsetD2D8Async(to, 64, 1, 3, 1, s));
    }),
    case!("capture/node/fill_without_memory", |line| {
        context();
        let (s, freed, mut host) = (stream(), memory(64), [0u32; 4]);
        for (name, address) in [
            ("wild", WILD),
            ("host", host.as_mut_ptr() as u64),
            ("freed", freed),
        ] {
            begin(s, RELAXED);
            line.says_as(name, cuMemsetD32Async(address, 1, 4, s));
            let graph = end(s);
            if name == "freed" {
                cuMemFree_v2(freed).must();
            }
            line.says(cuGraphInstantiateWithFlags(&mut 0, graph, 0));
        }
    }),
    case!("capture/node/copy", |line| {
        context();
        let (s, a, b, pin) = (stream(), memory(256), memory(256), pinned(64));
        let mut host = [0u32; 4];
        let host = host.as_mut_ptr();
        copy(line, "on_device", s, || cuMemcpyDtoDAsync_v2(a, b, 8, s));
        copy(line, "from_host", s, || {
            cuMemcpyHtoDAsync_v2(a, host.cast(), 8, s)
        });
        copy(line, "to_host", s, || {
            cuMemcpyDtoHAsync_v2(host.cast(), a, 8, s)
        });
        copy(line, "from_pinned", s, || {
            cuMemcpyHtoDAsync_v2(a, pin, 8, s)
        });
        copy(line, "unified", s, || cuMemcpyAsync(a, b, 8, s));
        copy(line, "unified_host", s, || {
            cuMemcpyAsync(a, host as u64, 8, s)
        });
        let rows = Copy2d {
            src_kind: 2,
            src_device: a,
            src_pitch: 64,
            dst_kind: 2,
            dst_device: b,
            dst_pitch: 32,
            width: 16,
            height: 2,
            ..zeroed()
        };
        copy(line, "rows", s, || cuMemcpy2DAsync_v2(&rows, s));
    }),
    case!(
        "capture/node/copy_from_host_is_read_by_the_launch",
        |line| {
            context();
            let (s, to) = (stream(), memory(4));
            let host: &mut u32 = Box::leak(Box::new(5));
            begin(s, GLOBAL);
            line.says(cuMemcpyHtoDAsync_v2(to, void(host), 4, s));
            let graph = end(s);
            *host = 6;
            line.says(cuGraphLaunch(instantiate(graph), s));
            line.says(cuStreamSynchronize(s));
            line.value("read", word(to));
        }
    ),
    case!("capture/node/batch", |line| {
        context();
        let (s, at) = (stream(), memory(64));
        batch(line, "write_32", s, || cuStreamWriteValue32_v2(s, at, 7, 0));
        batch(line, "write_64", s, || cuStreamWriteValue64_v2(s, at, 7, 0));
        batch(line, "wait_equal", s, || {
            cuStreamWaitValue32_v2(s, at, 7, 1)
        });
    }),
    alone!("capture/node/batch_without_memory", |line| {
        context();
        let (s, freed) = (stream(), memory(64));
        for (name, address) in [("wild", WILD), ("freed", freed)] {
            begin(s, RELAXED);
            line.says_as(name, cuStreamWriteValue32_v2(s, address, 1, 0));
            let graph = end(s);
            if name == "freed" {
                cuMemFree_v2(freed).must();
            }
            line.says(cuGraphInstantiateWithFlags(&mut 0, graph, 0));
        }
    }),
    alone!("capture/node/kernel_of_an_unloaded_module", |line| {
        context();
        let (s, module) = (stream(), module());
        let empty = function_of(module, c"empty");
        begin(s, RELAXED);
        line.says(launch(empty, 1, 1, s, &mut []));
        let graph = end(s);
        line.says(cuModuleUnload(module));
        line.says(cuGraphInstantiateWithFlags(&mut 0, graph, 0));
    }),
    alone!("capture/node/event_destroyed", |line| {
        context();
        let (s, event) = (stream(), event());
        begin(s, RELAXED);
        cuEventRecordWithFlags(event, s, EXTERNAL).must();
        let graph = end(s);
        line.says(cuEventDestroy_v2(event));
        let exec = instantiate(graph);
        line.says(cuGraphLaunch(exec, s));
        line.says(cuStreamSynchronize(s));
    }),
    case!("capture/node/host", |line| {
        context();
        let s = stream();
        let node = node_of(s, || {
            cuLaunchHostFunc(s, Some(nothing_done), 0x77 as *mut c_void)
        });
        let mut params: HostParams = zeroed();
        let answer = cuGraphHostNodeGetParams(node, &mut params);
        line.gives("data", answer, params.data as usize);
        line.value("function", params.function.is_some());
    }),
    case!("capture/node/kernel", |line| {
        context();
        let (s, store, mut to, mut value) = (stream(), function(c"store"), 5u64, 6u32);
        let node = node_of(s, || {
            launch(store, 3, 2, s, &mut [void(&mut to), void(&mut value)])
        });
        let mut params: KernelParams = zeroed();
        let answer = cuGraphKernelNodeGetParams_v2(node, &mut params);
        let shape = (params.grid, params.block, params.shared);
        line.gives("shape", answer, format!("{shape:?}"));
        line.value("function", params.function == store);
        line.value("kernel", params.kernel);
        let values = std::slice::from_raw_parts(params.values, 2);
        let first = *values[0].cast::<u64>();
        line.value("values", format!("{first},{}", *values[1].cast::<u32>()));
    }),
    case!("capture/node/kernel_attributes", |line| {
        context();
        let (empty, mut s) = (function(c"empty"), 0);
        cuStreamCreateWithPriority(&mut s, NON_BLOCKING, -3).must();
        let say = |line: &mut Line, name: &str, node| {
            for id in [1, 2, 4, 5, 6, 8, 9, 10, 14] {
                let mut value = LaunchAttributeValue([0; 8]);
                let answer = cuGraphKernelNodeGetAttribute(node, id, &mut value);
                let value = format!("{:#x}", value.0[0]);
                line.gives(format!("{name}_{id}"), answer, value);
            }
        };
        let plain = node_of(s, || launch(empty, 1, 1, s, &mut []));
        say(line, "plain", plain);
        let cooperative = node_of(s, || {
            cuLaunchCooperativeKernel(empty, 1, 1, 1, 1, 1, 1, 0, s, null_mut())
        });
        say(line, "cooperative", cooperative);
        let other = node_of(s, || {
            let cluster = (CLUSTER, [1 | 1 << 32, 1]);
            launch_with(empty, s, &[(PRIORITY, [0xffff_fffe, 0]), cluster])
        });
        say(line, "attributes", other);
    }),
    case!("capture/node/alloc", |line| {
        context();
        let (s, mut to) = (stream(), 0);
        begin(s, GLOBAL);
        line.says(cuMemAllocAsync(&mut to, 100, s));
        let mut params: AllocParams = zeroed();
        let node = dependencies(s)[0];
        let answer = cuGraphMemAllocNodeGetParams(node, &mut params);
        line.gives("properties", answer, format!("{:?}", params.properties));
        line.value("size", params.size);
        line.value("address", params.address == to && to != 0);
        line.value("access", params.access_count);
        line.says(cuMemsetD32Async(to, 7, 4, s));
        line.says(cuMemFreeAsync(to, s));
        line.says_as("free_again", cuMemFreeAsync(to, s));
        line.value("depends", depends(s));
        line.value("end", ending(s));
    }),
    case!("capture/node/alloc_kept_by_a_launch", |line| {
        context();
        let (s, mut to) = (stream(), 0);
        begin(s, RELAXED);
        cuMemAllocAsync(&mut to, 64, s).must();
        cuMemsetD32Async(to, 7, 4, s).must();
        let graph = end(s);
        let exec = instantiate(graph);
        line.says(cuGraphLaunch(exec, s));
        line.says(cuStreamSynchronize(s));
        line.value("word", word(to));
        begin(s, RELAXED);
        line.says(cuMemFreeAsync(to, s));
        let other = end(s);
        line.value("shape", shape(other));
        line.says(cuGraphLaunch(instantiate(other), s));
        line.says(cuStreamSynchronize(s));
        line.says(cuGraphLaunch(exec, s));
        line.says_as("free_in_stream", cuMemFreeAsync(to, s));
        line.says(cuStreamSynchronize(s));
    }),
    case!(
        "capture/node/free_of_a_captured_allocation_outside",
        |line| {
            context();
            let (s, mut to) = (stream(), 0);
            begin(s, RELAXED);
            cuMemAllocAsync(&mut to, 64, s).must();
            line.says_as("other_stream", cuMemFreeAsync(to, stream()));
            line.says_as("at_once", cuMemFree_v2(to));
            line.value("end", ending(s));
        }
    ),
    case!("capture/programmatic/serialization", |line| {
        context();
        let ([s, side], empty, to) = ([stream(), stream()], function(c"empty"), memory(4));
        let early = [(SERIALIZATION, [1, 0])];
        begin(s, GLOBAL);
        line.says_as("first", launch_with(empty, s, &early));
        line.says_as("after_kernel", launch_with(empty, s, &early));
        line.value("depends", depends(s));
        line.says_as("off", launch_with(empty, s, &[(SERIALIZATION, [0, 0])]));
        line.value("end", ending(s));
        begin(s, GLOBAL);
        cuMemsetD32Async(to, 1, 1, s).must();
        line.says_as("after_fill", launch_with(empty, s, &early));
        line.value("end", ending(s));
        begin(s, GLOBAL);
        order(s, side);
        launch(empty, 1, 1, s, &mut []).must();
        cuMemsetD32Async(to, 1, 1, side).must();
        order(side, s);
        line.says_as("after_both", launch_with(empty, s, &early));
        line.value("end", ending(s));
        begin(s, GLOBAL);
        order(s, side);
        launch(empty, 1, 1, s, &mut []).must();
        launch(empty, 1, 1, side, &mut []).must();
        order(side, s);
        line.says_as("after_two_kernels", launch_with(empty, s, &early));
        let graph = end(s);
        line.value("shape", shape(graph));
        line.says(cuGraphLaunch(instantiate(graph), s));
        line.says(cuStreamSynchronize(s));
    }),
    case!("capture/programmatic/events", |line| {
        context();
        let ([s, side], empty, to) = ([stream(), stream()], function(c"empty"), memory(4));
        for (name, attribute, at_start) in [
            ("programmatic", PROGRAMMATIC_EVENT, 0),
            ("at_block_start", PROGRAMMATIC_EVENT, 1),
            ("completion", COMPLETION_EVENT, 0),
        ] {
            for fill in [false, true] {
                let event = untimed();
                begin(s, GLOBAL);
                let value = [event as u64, at_start << 32];
                line.says_as(name, launch_with(empty, s, &[(attribute, value)]));
                line.says(cuStreamWaitEvent(side, event, 0));
                line.value("side", depends(side));
                match fill {
                    true => line.says_as("fill", cuMemsetD32Async(to, 1, 1, side)),
                    false => line.says_as("launch", launch(empty, 1, 1, side, &mut [])),
                };
                order(side, s);
                line.value("end", ending(s));
            }
        }
    }),
    case!("capture/programmatic/events_passed_on", |line| {
        context();
        let ([s, side, third], empty) = ([stream(), stream(), stream()], function(c"empty"));
        let event = untimed();
        begin(s, GLOBAL);
        launch_with(empty, s, &[(PROGRAMMATIC_EVENT, [event as u64, 0])]).must();
        line.says_as("own_stream", cuStreamWaitEvent(s, event, 0));
        line.value("own", depends(s));
        cuStreamWaitEvent(side, event, 0).must();
        order(side, third);
        line.value("third", depends(third));
        order(s, side);
        line.value("side", depends(side));
        line.says(cuEventQuery(event));
        line.value("end", ending(s));
    }),
    case!("capture/programmatic/events_refused", |line| {
        context();
        let (s, empty) = (stream(), function(c"empty"));
        for (name, event, flags) in [("timed", event(), 0), ("external", untimed(), 1)] {
            begin(s, GLOBAL);
            let value = [event as u64, flags];
            line.says_as(name, launch_with(empty, s, &[(PROGRAMMATIC_EVENT, value)]));
            line.value("end", ending(s));
        }
        begin(s, GLOBAL);
        line.says_as("unknown", launch_with(empty, s, &[(99, [1, 0])]));
        line.value("end", ending(s));
        begin(s, GLOBAL);
        let cluster = (CLUSTER, [2 | 1 << 32, 1]);
        line.says_as("cluster", launch_with(empty, s, &[cluster]));
        line.value("end", ending(s));
    }),
];
