//! Child graphs of executables, nodes of any kind, and nodes enabled and disabled.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::graph_run::launches;
use crate::conformance::api::*;
use crate::conformance::case::{Case, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

unsafe extern "C" fn nothing(_: *mut c_void) {}

/// A fill of one word, as nodes of any kind take it.
unsafe fn fill(pointer: u64, value: u64) -> NodeParams {
    node_params(2, &[pointer, 0, 4 << 32 | value, 1, 1, current() as u64])
}

/// A graph that fills a word.
unsafe fn filling(pointer: u64, value: u32) -> Handle {
    let graph = graph();
    add_fill(graph, &[], pointer, value);
    graph
}

pub const CASES: &[Case] = &[
    case!("graph/exec_child/right", |line| {
        context();
        let (parent, pointer) = (graph(), memory(4));
        let child = filling(pointer, 1);
        let node = add_child(parent, &[], child);
        let (exec, other) = (instantiate(parent), filling(pointer, 2));
        line.says(cuGraphExecChildGraphNodeSetParams(exec, node, other));
        line.says(cuGraphDestroy(other));
        launches(line, "run", exec, stream());
        line.value("word", word(pointer));
        line.says_as("own", cuGraphExecChildGraphNodeSetParams(exec, node, child));
    }),
    case!("graph/exec_child/other_shapes", |line| {
        context();
        let (parent, pointer) = (graph(), memory(16));
        let node = add_child(parent, &[], filling(pointer, 1));
        let exec = instantiate(parent);
        let set = |child| cuGraphExecChildGraphNodeSetParams(exec, node, child);
        let (more, kind, wide) = (filling(pointer, 1), graph(), graph());
        add_fill(more, &[], pointer, 3);
        add_empty(kind, &[]);
        let rows = FillParams {
            height: 2,
            pitch: 8,
            ..word_fill(pointer, 4)
        };
        cuGraphAddMemsetNode(&mut 0, wide, NONE, 0, &rows, current()).must();
        line.says_as("nothing", set(graph()));
        line.says_as("more", set(more));
        line.says_as("kind", set(kind));
        line.says_as("parameters", set(wide));
        launches(line, "run", exec, stream());
        line.value("word", word(pointer));
    }),
    case!("graph/exec_child/wrong", |line| {
        context();
        let (parent, child) = (graph(), filling(memory(4), 1));
        let (node, empty) = (add_child(parent, &[], child), add_empty(parent, &[]));
        let exec = instantiate(parent);
        line.says_as(
            "kind",
            cuGraphExecChildGraphNodeSetParams(exec, empty, child),
        );
        line.says_as("null", cuGraphExecChildGraphNodeSetParams(exec, node, 0));
        line.says_as("exec", cuGraphExecChildGraphNodeSetParams(0, node, child));
        line.says_as("node", cuGraphExecChildGraphNodeSetParams(exec, 0, child));
    }),
    case!("graph/exec_child/inner_node", |line| {
        context();
        let (parent, pointer, mut own) = (graph(), memory(4), 0);
        let child = filling(pointer, 1);
        let node = add_child(parent, &[], child);
        cuGraphChildGraphNodeGetGraph(node, &mut own).must();
        let (exec, context) = (instantiate(parent), current());
        let (inner, original) = (nodes(own)[0], nodes(child)[0]);
        let set =
            |node| cuGraphExecMemsetNodeSetParams(exec, node, &word_fill(pointer, 5), context);
        line.says_as("inner", set(inner));
        line.says_as("original", set(original));
        launches(line, "run", exec, stream());
        line.value("word", word(pointer));
        line.says_as("disable", cuGraphNodeSetEnabled(exec, inner, 0));
        line.says_as("disable_original", cuGraphNodeSetEnabled(exec, original, 0));
    }),
    case!("graph/exec_any/kinds", |line| {
        context();
        let (graph, pointer) = (graph(), memory(8));
        let (node, empty) = (add_fill(graph, &[], pointer, 1), add_empty(graph, &[]));
        let host = add_host(graph, &[], Some(nothing), null_mut());
        let child = add_child(graph, &[], filling(pointer + 4, 1));
        let kernel = add_kernel(graph, &[], function(c"empty"), &mut []);
        let exec = instantiate(graph);
        let set = |node, mut params: NodeParams| cuGraphExecNodeSetParams(exec, node, &mut params);
        line.says_as("fill", set(node, fill(pointer, 9)));
        line.says_as("kernel", {
            let function = function(c"empty") as u64;
            set(
                kernel,
                node_params(0, &[function, 1 << 32 | 2, 1 << 32 | 1, 1 << 32 | 1]),
            )
        });
        line.says_as(
            "host",
            set(host, node_params(3, &[nothing as *const () as u64, 0])),
        );
        line.says_as(
            "child",
            set(child, node_params(4, &[filling(pointer, 9) as u64, 0])),
        );
        line.says_as("empty", set(empty, node_params(5, &[])));
        launches(line, "run", exec, stream());
    }),
    case!("graph/exec_any/wrong", |line| {
        context();
        let (graph, pointer) = (graph(), memory(4));
        let (node, empty) = (add_fill(graph, &[], pointer, 1), add_empty(graph, &[]));
        let exec = instantiate(graph);
        let set =
            |exec, node, mut params: NodeParams| cuGraphExecNodeSetParams(exec, node, &mut params);
        line.says_as("kind", set(exec, empty, fill(pointer, 9)));
        line.says_as("other_kind", set(exec, node, node_params(5, &[])));
        line.says_as("unknown", set(exec, node, node_params(99, &[])));
        line.says_as("alloc", set(exec, node, node_params(10, &[])));
        line.says_as("node", set(exec, 0, fill(pointer, 9)));
        line.says_as("exec", set(0, node, fill(pointer, 9)));
        line.says_as("params", cuGraphExecNodeSetParams(exec, node, null_mut()));
        let mut wrong = fill(pointer, 9);
        wrong.last = 1;
        line.says_as("last", set(exec, node, wrong));
        wrong = fill(pointer, 9);
        wrong.union[5] = 0;
        line.says_as("no_context", set(exec, node, wrong));
    }),
    case!("graph/enabled/kinds", |line| {
        context();
        let (graph, pointer) = (graph(), memory(8));
        let (mut record, mut wait) = (0, 0);
        cuGraphAddEventRecordNode(&mut record, graph, NONE, 0, event()).must();
        cuGraphAddEventWaitNode(&mut wait, graph, NONE, 0, event()).must();
        let list = [
            (
                "kernel",
                add_kernel(graph, &[], function(c"empty"), &mut []),
            ),
            (
                "copy",
                add_copy(graph, &[], &line_copy(pointer, pointer + 4, 4)),
            ),
            ("fill", add_fill(graph, &[], pointer, 1)),
            ("host", add_host(graph, &[], Some(nothing), null_mut())),
            ("child", add_child(graph, &[], filling(pointer, 2))),
            ("empty", add_empty(graph, &[])),
            ("record", record),
            ("wait", wait),
        ];
        let exec = instantiate(graph);
        for (name, node) in list {
            let mut enabled = 99;
            line.gives(
                name,
                cuGraphNodeGetEnabled(exec, node, &mut enabled),
                enabled,
            );
            line.says_as(format!("{name}_off"), cuGraphNodeSetEnabled(exec, node, 0));
            line.gives(
                format!("{name}_then"),
                cuGraphNodeGetEnabled(exec, node, &mut enabled),
                enabled,
            );
        }
        launches(line, "run", exec, stream());
    }),
    case!("graph/enabled/off_and_on", |line| {
        context();
        let (graph, pointer, stream) = (graph(), memory(8), stream());
        fill_words(pointer, 0, 2);
        let first = add_fill(graph, &[], pointer, 1);
        add_fill(graph, &[first], pointer + 4, 2);
        let (exec, mut enabled) = (instantiate(graph), 99);
        line.says(cuGraphNodeSetEnabled(exec, first, 0));
        launches(line, "off", exec, stream);
        line.value("words", format!("{} {}", word(pointer), word(pointer + 4)));
        line.says_as("two", cuGraphNodeSetEnabled(exec, first, 2));
        line.gives(
            "enabled",
            cuGraphNodeGetEnabled(exec, first, &mut enabled),
            enabled,
        );
        launches(line, "on", exec, stream);
        line.value("word", word(pointer));
    }),
    case!("graph/enabled/wrong", |line| {
        context();
        let (graph, other, pointer) = (graph(), graph(), memory(4));
        let (node, foreign) = (
            add_fill(graph, &[], pointer, 1),
            add_fill(other, &[], pointer, 1),
        );
        let (exec, mut enabled) = (instantiate(graph), 99);
        let late = add_fill(graph, &[], pointer, 1);
        line.says_as("foreign", cuGraphNodeSetEnabled(exec, foreign, 0));
        line.says_as("late", cuGraphNodeSetEnabled(exec, late, 0));
        line.says_as("node", cuGraphNodeSetEnabled(exec, 0, 0));
        line.says_as("exec", cuGraphNodeSetEnabled(0, node, 0));
        line.says_as(
            "get_foreign",
            cuGraphNodeGetEnabled(exec, foreign, &mut enabled),
        );
        line.says_as("get_late", cuGraphNodeGetEnabled(exec, late, &mut enabled));
        line.says_as("get_out", cuGraphNodeGetEnabled(exec, node, null_mut()));
        line.says_as("get_exec", cuGraphNodeGetEnabled(0, node, &mut enabled));
    }),
    case!("graph/enabled/parameters_and_updates", |line| {
        context();
        let (graph, pointer, mut enabled) = (graph(), memory(4), 99);
        let node = add_fill(graph, &[], pointer, 1);
        let (exec, context) = (instantiate(graph), current());
        cuGraphNodeSetEnabled(exec, node, 0).must();
        line.says(cuGraphExecMemsetNodeSetParams(
            exec,
            node,
            &word_fill(pointer, 2),
            context,
        ));
        line.gives(
            "after_set",
            cuGraphNodeGetEnabled(exec, node, &mut enabled),
            enabled,
        );
        let mut info = UpdateInfo::default();
        line.says(cuGraphExecUpdate_v2(exec, graph, &mut info));
        line.gives(
            "after_update",
            cuGraphNodeGetEnabled(exec, node, &mut enabled),
            enabled,
        );
    }),
];
