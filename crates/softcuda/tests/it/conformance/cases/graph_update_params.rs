//! Executables updated from definitions: what may change about a node.

use std::ffi::c_void;

use super::graph_run::{launches, updates};
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::{Copy3d, LaunchAttributeValue};
use crate::graphs::api::*;

unsafe extern "C" fn nothing(_: *mut c_void) {}

/// A graph of one node.
unsafe fn of_one(add: impl FnOnce(Handle) -> Handle) -> (Handle, Handle) {
    let graph = graph();
    (graph, add(graph))
}

/// Updates an executable of one node from a graph with another.
unsafe fn changes(
    line: &mut Line,
    what: &str,
    from: impl FnOnce(Handle) -> Handle,
    to: impl FnOnce(Handle) -> Handle,
) {
    let (old, _) = of_one(from);
    let (new, node) = of_one(to);
    updates(line, what, instantiate(old), new, &[("node", node)]);
}

unsafe fn add_rows(graph: Handle, fill: FillParams) -> Handle {
    let mut node = 0;
    cuGraphAddMemsetNode(&mut node, graph, NONE, 0, &fill, current()).must();
    node
}

/// A kernel node with an attribute.
unsafe fn add_with(graph: Handle, function: Handle, id: u32, words: [u32; 2]) -> Handle {
    let mut node = 0;
    let params = KernelParams {
        grid: [4, 1, 1],
        ..kernel_params(function, &mut [])
    };
    cuGraphAddKernelNode_v2(&mut node, graph, NONE, 0, &params).must();
    let words = u64::from(words[0]) | u64::from(words[1]) << 32;
    let value = LaunchAttributeValue([words, 1, 0, 0, 0, 0, 0, 0]);
    cuGraphKernelNodeSetAttribute(node, id, &value).must();
    node
}

pub const CASES: &[Case] = &[
    case!("graph/update/same", |line| {
        context();
        let (graph, pointer, stream) = (graph(), memory(4), stream());
        let (node, exec) = (add_fill(graph, &[], pointer, 1), instantiate(graph));
        updates(line, "itself", exec, graph, &[]);
        cuGraphMemsetNodeSetParams(node, &word_fill(pointer, 5)).must();
        updates(line, "changed", exec, graph, &[]);
        launches(line, "run", exec, stream);
        line.value("word", word(pointer));
        let mut clone = 0;
        cuGraphClone(&mut clone, graph).must();
        updates(line, "clone", exec, clone, &[]);
    }),
    case!("graph/update/kind_changed", |line| {
        context();
        let pointer = memory(64);
        changes(
            line,
            "fill_to_empty",
            |it| add_fill(it, &[], pointer, 1),
            |it| add_empty(it, &[]),
        );
        changes(
            line,
            "empty_to_fill",
            |it| add_empty(it, &[]),
            |it| add_fill(it, &[], pointer, 1),
        );
        let copy = line_copy(pointer, pointer + 8, 4);
        changes(
            line,
            "fill_to_copy",
            |it| add_fill(it, &[], pointer, 1),
            |it| add_copy(it, &[], &copy),
        );
    }),
    case!("graph/update/kernel", |line| {
        context();
        let (module, pointer) = (module(), memory(4));
        let (store, empty) = (function_of(module, c"store"), function_of(module, c"empty"));
        let elsewhere = function(c"empty");
        let kernel = |function| move |it| add_kernel(it, &[], function, &mut []);
        changes(
            line,
            "values",
            |it| add_store(it, &[], store, pointer, 1),
            |it| add_store(it, &[], store, pointer, 2),
        );
        changes(
            line,
            "function",
            |it| add_store(it, &[], store, pointer, 1),
            kernel(empty),
        );
        changes(line, "module", kernel(empty), kernel(elsewhere));
        let first = current();
        new_context();
        let other = function(c"empty");
        cuCtxSetCurrent(first).must();
        changes(line, "context", kernel(empty), kernel(other));
    }),
    case!("graph/update/attributes", |line| {
        context();
        let function = function(c"empty");
        for (name, id, old, new) in [
            ("priority", 8, [0, 0], [-3i32 as u32, 0]),
            ("cooperative", 2, [0, 0], [1, 0]),
            ("not_cooperative", 2, [1, 0], [0, 0]),
            ("cluster", 4, [1, 1], [2, 1]),
            ("policy", 5, [0, 0], [1, 0]),
        ] {
            changes(
                line,
                name,
                |it| add_with(it, function, id, old),
                |it| add_with(it, function, id, new),
            );
        }
    }),
    case!("graph/update/priority_that_counts", |line| {
        context();
        let (empty, mut exec) = (function(c"empty"), 0);
        let (old, _) = of_one(|it| add_with(it, empty, 8, [0, 0]));
        let (new, node) = of_one(|it| add_with(it, empty, 8, [-3i32 as u32, 0]));
        cuGraphInstantiateWithFlags(&mut exec, old, 8).must();
        updates(line, "priority", exec, new, &[("node", node)]);
    }),
    case!("graph/update/fill", |line| {
        context();
        let pointer = memory(4096);
        let one = word_fill(pointer, 1);
        let rows = FillParams {
            width: 4,
            height: 3,
            pitch: 64,
            ..one
        };
        for (name, old, new) in [
            ("value", one, FillParams { value: 2, ..one }),
            ("width", one, FillParams { width: 9, ..one }),
            ("element", one, FillParams { element: 1, ..one }),
            ("to_rows", one, rows),
            ("rows_value", rows, FillParams { value: 2, ..rows }),
            ("rows_width", rows, FillParams { width: 5, ..rows }),
            ("rows_height", rows, FillParams { height: 4, ..rows }),
            ("rows_pitch", rows, FillParams { pitch: 128, ..rows }),
            ("to_line", rows, one),
            (
                "memory",
                one,
                FillParams {
                    address: pinned(4) as u64,
                    ..one
                },
            ),
        ] {
            changes(line, name, |it| add_rows(it, old), |it| add_rows(it, new));
        }
    }),
    case!("graph/update/copy", |line| {
        context();
        let (from, to, host) = (memory(1024), memory(1024), pinned(64));
        let local: &'static mut u32 = Box::leak(Box::new(1));
        let one = line_copy(to, from, 4);
        let rows = Copy3d {
            height: 2,
            src_pitch: 64,
            dst_pitch: 64,
            ..one
        };
        let pageable = Copy3d {
            src_kind: 1,
            src_host: void(local),
            ..one
        };
        let pinned = Copy3d {
            src_kind: 1,
            src_host: host,
            ..one
        };
        for (name, old, new) in [
            ("addresses", one, line_copy(to + 8, from + 8, 4)),
            ("size", one, line_copy(to, from, 64)),
            ("to_rows", one, rows),
            ("rows_width", rows, Copy3d { width: 8, ..rows }),
            (
                "rows_address",
                rows,
                Copy3d {
                    src_device: from + 128,
                    ..rows
                },
            ),
            ("from_pageable", one, pageable),
            ("from_pinned", one, pinned),
            ("pageable_to_pinned", pageable, pinned),
            ("pinned_to_pageable", pinned, pageable),
            ("pinned_as_device", pinned, line_copy(to, host as u64, 4)),
        ] {
            changes(
                line,
                name,
                |it| add_copy(it, &[], &old),
                |it| add_copy(it, &[], &new),
            );
        }
    }),
    case!("graph/update/host_and_event", |line| {
        context();
        let host = |data: usize| move |it| add_host(it, &[], Some(nothing), data as *mut c_void);
        changes(line, "host", host(0), host(16));
        let record = |it| {
            let mut node = 0;
            cuGraphAddEventRecordNode(&mut node, it, NONE, 0, event()).must();
            node
        };
        let wait = |it| {
            let mut node = 0;
            cuGraphAddEventWaitNode(&mut node, it, NONE, 0, event()).must();
            node
        };
        changes(line, "record", record, record);
        changes(line, "wait", wait, wait);
        changes(line, "record_to_wait", record, wait);
    }),
    case!("graph/update/child", |line| {
        context();
        let pointer = memory(16);
        let child = |fills: &'static [u32]| {
            move |it| {
                let inner = graph();
                for &value in fills {
                    add_fill(inner, &[], pointer, value);
                }
                add_child(it, &[], inner)
            }
        };
        changes(line, "values", child(&[1]), child(&[2]));
        changes(line, "more", child(&[1]), child(&[1, 2]));
        changes(line, "fewer", child(&[1, 2]), child(&[1]));
        let with_empty = |it| {
            let inner = graph();
            add_empty(inner, &[]);
            add_child(it, &[], inner)
        };
        changes(line, "kind", child(&[1]), with_empty);
    }),
    case!("graph/update/after_node_parameters", |line| {
        context();
        let (graph, pointer) = (graph(), memory(4));
        let (node, context) = (add_fill(graph, &[], pointer, 1), current());
        let exec = instantiate(graph);
        cuGraphExecMemsetNodeSetParams(exec, node, &word_fill(pointer, 2), context).must();
        updates(line, "back", exec, graph, &[]);
        launches(line, "run", exec, stream());
        line.value("word", word(pointer));
    }),
];
