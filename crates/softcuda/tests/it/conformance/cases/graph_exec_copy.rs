//! New parameters for copies and fills of an executable.

use std::ffi::c_void;
use std::ptr::null;

use super::graph_run::launches;
use crate::conformance::case::{Case, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::Copy3d;
use crate::graphs::api::*;

pub const CASES: &[Case] = &[
    case!("graph/exec_copy/line", |line| {
        context();
        let (graph, from, to) = (graph(), memory(64), memory(64));
        fill_words(from, 3, 16);
        fill_words(to, 0, 16);
        let node = add_copy(graph, &[], &line_copy(to, from, 4));
        let (exec, context) = (instantiate(graph), current());
        let set = |copy: &Copy3d| cuGraphExecMemcpyNodeSetParams(exec, node, copy, context);
        line.says_as("addresses", set(&line_copy(to + 4, from + 4, 4)));
        line.says_as("size", set(&line_copy(to + 4, from + 4, 8)));
        line.says_as("nothing", set(&line_copy(to, from, 0)));
        launches(line, "run", exec, stream());
        let words = [0, 4, 8, 12].map(|at| word(to + at));
        line.value("words", format!("{words:?}"));
        let rows = Copy3d {
            height: 2,
            src_pitch: 8,
            dst_pitch: 8,
            ..line_copy(to, from, 8)
        };
        line.says_as("rows", set(&rows));
        line.says_as(
            "null_context",
            cuGraphExecMemcpyNodeSetParams(exec, node, &line_copy(to, from, 4), 0),
        );
        line.says_as("null_to", set(&line_copy(0, from, 4)));
    }),
    case!("graph/exec_copy/direction", |line| {
        context();
        let (graph, from, to, host) = (graph(), memory(64), memory(64), pinned(64));
        let word: &'static mut u32 = Box::leak(Box::new(1));
        let pageable = void(word);
        let node = add_copy(graph, &[], &line_copy(to, from, 4));
        let (exec, context) = (instantiate(graph), current());
        let set = |copy: &Copy3d| cuGraphExecMemcpyNodeSetParams(exec, node, copy, context);
        let right = line_copy(to, from, 4);
        line.says_as(
            "from_pinned",
            set(&Copy3d {
                src_kind: 1,
                src_host: host,
                ..right
            }),
        );
        line.says_as(
            "from_pageable",
            set(&Copy3d {
                src_kind: 1,
                src_host: pageable,
                ..right
            }),
        );
        line.says_as(
            "to_pinned",
            set(&Copy3d {
                dst_kind: 1,
                dst_host: host,
                ..right
            }),
        );
        line.says_as("pinned_as_device", set(&line_copy(to, host as u64, 4)));
        line.says_as("managed", set(&line_copy(to, managed(64), 4)));
        line.says_as(
            "unified",
            set(&Copy3d {
                src_kind: 4,
                dst_kind: 4,
                ..right
            }),
        );
    }),
    case!("graph/exec_copy/host", |line| {
        context();
        let (graph, to) = (graph(), memory(64));
        let words: &'static mut [u32; 2] = Box::leak(Box::new([5, 6]));
        let host = pinned(64);
        let address = words.as_mut_ptr();
        let from = |host: *const c_void| Copy3d {
            src_kind: 1,
            src_host: host,
            ..line_copy(to, 0, 4)
        };
        let node = add_copy(graph, &[], &from(address.cast()));
        let (exec, context) = (instantiate(graph), current());
        let set = |copy: &Copy3d| cuGraphExecMemcpyNodeSetParams(exec, node, copy, context);
        line.says_as("pageable", set(&from(address.add(1).cast())));
        launches(line, "pageable", exec, stream());
        line.value("word", word(to));
        line.says_as("pinned", set(&from(host)));
        line.says_as("null", set(&from(null())));
    }),
    case!("graph/exec_copy/rows", |line| {
        context();
        let (graph, from, to) = (graph(), memory(1024), memory(1024));
        let rows = Copy3d {
            height: 2,
            src_pitch: 64,
            dst_pitch: 64,
            ..line_copy(to, from, 16)
        };
        let node = add_copy(graph, &[], &rows);
        let (exec, context) = (instantiate(graph), current());
        let set = |copy: &Copy3d| cuGraphExecMemcpyNodeSetParams(exec, node, copy, context);
        line.says_as("same", set(&rows));
        line.says_as(
            "addresses",
            set(&Copy3d {
                src_device: from + 128,
                ..rows
            }),
        );
        line.says_as("width", set(&Copy3d { width: 32, ..rows }));
        line.says_as(
            "pitch",
            set(&Copy3d {
                src_pitch: 128,
                ..rows
            }),
        );
        line.says_as("height", set(&Copy3d { height: 3, ..rows }));
        line.says_as("line", set(&line_copy(to, from, 16)));
    }),
    case!("graph/exec_copy/wrong", |line| {
        context();
        let (graph, from, to) = (graph(), memory(64), memory(64));
        let right = line_copy(to, from, 4);
        let (node, fill) = (add_copy(graph, &[], &right), add_fill(graph, &[], to, 1));
        let (exec, context) = (instantiate(graph), current());
        let late = add_copy(graph, &[], &right);
        let set = |exec, node, copy: *const Copy3d| {
            cuGraphExecMemcpyNodeSetParams(exec, node, copy, context)
        };
        line.says_as("kind", set(exec, fill, &right));
        line.says_as("late", set(exec, late, &right));
        line.says_as("node", set(exec, 0, &right));
        line.says_as("exec", set(0, node, &right));
        line.says_as("params", set(exec, node, null()));
    }),
    case!("graph/exec_fill/line", |line| {
        context();
        let (graph, pointer) = (graph(), memory(1024));
        fill_words(pointer, 0, 256);
        let node = add_fill(graph, &[], pointer, 1);
        let (exec, context) = (instantiate(graph), current());
        let set = |fill: &FillParams| cuGraphExecMemsetNodeSetParams(exec, node, fill, context);
        let right = word_fill(pointer + 8, 7);
        line.says_as("value", set(&right));
        line.says_as("width", set(&FillParams { width: 3, ..right }));
        launches(line, "run", exec, stream());
        let words = [0, 8, 16, 20].map(|at| word(pointer + at));
        line.value("words", format!("{words:?}"));
        line.says_as(
            "element",
            set(&FillParams {
                element: 1,
                ..right
            }),
        );
        line.says_as(
            "rows",
            set(&FillParams {
                height: 2,
                pitch: 64,
                ..right
            }),
        );
        line.says_as("nothing", set(&FillParams { width: 0, ..right }));
        line.says_as(
            "null_to",
            set(&FillParams {
                address: 0,
                ..right
            }),
        );
        line.says_as(
            "pinned",
            set(&FillParams {
                address: pinned(4) as u64,
                ..right
            }),
        );
        line.says_as(
            "null_context",
            cuGraphExecMemsetNodeSetParams(exec, node, &right, 0),
        );
    }),
    case!("graph/exec_fill/rows", |line| {
        context();
        let (graph, pointer, mut node) = (graph(), memory(4096), 0);
        let rows = FillParams {
            width: 4,
            height: 3,
            pitch: 64,
            ..word_fill(pointer, 1)
        };
        cuGraphAddMemsetNode(&mut node, graph, NONE, 0, &rows, current()).must();
        let (exec, context) = (instantiate(graph), current());
        let set = |fill: &FillParams| cuGraphExecMemsetNodeSetParams(exec, node, fill, context);
        line.says_as("value", set(&FillParams { value: 9, ..rows }));
        line.says_as(
            "address",
            set(&FillParams {
                address: pointer + 512,
                ..rows
            }),
        );
        line.says_as("width", set(&FillParams { width: 5, ..rows }));
        line.says_as("height", set(&FillParams { height: 2, ..rows }));
        line.says_as("pitch", set(&FillParams { pitch: 128, ..rows }));
        line.says_as("element", set(&FillParams { element: 2, ..rows }));
        line.says_as("line", set(&word_fill(pointer, 1)));
    }),
    case!("graph/exec_fill/wrong", |line| {
        context();
        let (graph, pointer) = (graph(), memory(64));
        let right = word_fill(pointer, 1);
        let (node, empty) = (add_fill(graph, &[], pointer, 1), add_empty(graph, &[]));
        let (exec, context) = (instantiate(graph), current());
        let set = |exec, node, fill: *const FillParams| {
            cuGraphExecMemsetNodeSetParams(exec, node, fill, context)
        };
        line.says_as("kind", set(exec, empty, &right));
        line.says_as("node", set(exec, 0, &right));
        line.says_as("exec", set(0, node, &right));
        line.says_as("params", set(exec, node, null()));
        line.says_as(
            "element",
            set(
                exec,
                node,
                &FillParams {
                    element: 3,
                    ..right
                },
            ),
        );
    }),
];
