//! Launches of graphs with conditional nodes: which bodies run, how often, and what a condition is
//! when.
//!
//! Loops that may run at once, in one launch or in two, are in no case: an H200 (driver 580) runs
//! them one time and ends in LAUNCH_FAILED another.

use super::graph_run::launches;
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;
use crate::graphs::conditions::*;

/// Launches a node of a kind with a default; each body writes its number.
unsafe fn chooses(line: &mut Line, kind: u32, count: u32, defaults: &[u32]) {
    context();
    let (stream, at) = (stream(), memory(16));
    for &default in defaults {
        let graph = graph();
        fill_words(at, 77, 1);
        let (_, bodies) = add_conditional(graph, &[], condition(graph, default), kind, count);
        for (body, number) in bodies.iter().zip(0..) {
            add_fill(*body, &[], at, number);
        }
        launches(line, &format!("of_{default}"), instantiate(graph), stream);
        line.value("ran", word(at));
    }
}

/// A kernel sets the condition of a node that follows it.
unsafe fn sets(line: &mut Line, kind: u32, count: u32, values: &[u32]) {
    context();
    let (kernels, stream, at) = (Kernels::load(), stream(), memory(16));
    for &value in values {
        let graph = graph();
        fill_words(at, 77, 1);
        let condition = condition(graph, 0);
        let set = kernels.set_to(graph, &[], condition, value);
        let (_, bodies) = add_conditional(graph, &[set], condition, kind, count);
        for (body, number) in bodies.iter().zip(0..) {
            add_fill(*body, &[], at, number);
        }
        launches(line, &format!("of_{value}"), instantiate(graph), stream);
        line.value("ran", word(at));
    }
}

/// A loop of so many turns, launched twice.
unsafe fn turns(line: &mut Line, limit: u32, default: u32) {
    context();
    let (kernels, stream, at, graph) = (Kernels::load(), stream(), memory(16), graph());
    let condition = condition(graph, default);
    let clear = add_fill(graph, &[], at, 0);
    let (_, body) = add_single(graph, &[clear], condition, WHILE);
    kernels.count_to(body, &[], condition, at, limit);
    let exec = instantiate(graph);
    for what in ["first", "second"] {
        launches(line, what, exec, stream);
        line.value("turns", word(at));
    }
}

pub const CASES: &[Case] = &[
    case!("conditional/run/if_by_default", |line| {
        chooses(line, IF, 1, &[0, 1, 2, u32::MAX]);
    }),
    case!("conditional/run/if_else_by_default", |line| {
        chooses(line, IF, 2, &[0, 1, 2, u32::MAX]);
    }),
    case!("conditional/run/switch_by_default", |line| {
        chooses(line, SWITCH, 3, &[0, 1, 2, 3, u32::MAX]);
    }),
    case!("conditional/run/if_set_by_a_kernel", |line| {
        sets(line, IF, 1, &[0, 1, 7]);
    }),
    case!("conditional/run/if_else_set_by_a_kernel", |line| {
        sets(line, IF, 2, &[0, 1, 7]);
    }),
    case!("conditional/run/switch_set_by_a_kernel", |line| {
        sets(line, SWITCH, 4, &[0, 1, 3, 4, u32::MAX]);
    }),
    case!("conditional/run/while_never", |line| { turns(line, 5, 0) }),
    case!("conditional/run/while_once", |line| { turns(line, 1, 1) }),
    case!("conditional/run/while_a_thousand_times", |line| {
        turns(line, 1000, 1)
    }),
    case!("conditional/run/while_of_no_nodes", |line| {
        context();
        let graph = graph();
        add_single(graph, &[], condition(graph, 0), WHILE);
        launches(line, "it", instantiate(graph), stream());
    }),
    case!("conditional/run/set_by_any_thread", |line| {
        context();
        let (kernels, stream, at) = (Kernels::load(), stream(), memory(16));
        for thread in [0u32, 1, 95, 255] {
            let graph = graph();
            let (mut condition, mut thread) = (condition(graph, 9), thread);
            let values = &mut [void(&mut condition), void(&mut thread)];
            let mut params = kernel_params(kernels.get(c"set_by"), values);
            (params.grid, params.block) = ([4, 1, 1], [64, 1, 1]);
            let mut set = 0;
            cuGraphAddKernelNode_v2(&mut set, graph, NONE, 0, &params).must();
            let (_, bodies) = add_conditional(graph, &[set], condition, SWITCH, 256);
            for (body, number) in bodies.iter().zip(0..) {
                add_fill(*body, &[], at, number);
            }
            launches(line, &format!("by_{thread}"), instantiate(graph), stream);
            line.value("ran", word(at));
        }
    }),
    case!("conditional/run/set_twice_by_kernels", |line| {
        context();
        let (kernels, stream, at, graph) = (Kernels::load(), stream(), memory(16), graph());
        fill_words(at, 77, 1);
        let condition = condition(graph, 0);
        let first = kernels.set_to(graph, &[], condition, 1);
        let second = kernels.set_to(graph, &[first], condition, 2);
        let (_, bodies) = add_conditional(graph, &[second], condition, SWITCH, 3);
        for (body, number) in bodies.iter().zip(0..) {
            add_fill(*body, &[], at, number);
        }
        launches(line, "it", instantiate(graph), stream);
        line.value("ran", word(at));
    }),
    case!("conditional/run/set_after_the_node", |line| {
        context();
        let (kernels, stream, at, graph) = (Kernels::load(), stream(), memory(16), graph());
        fill_words(at, 0, 1);
        let condition = condition(graph, 0);
        let (node, body) = add_single(graph, &[], condition, IF);
        kernels.count(body, &[], at);
        kernels.set_to(graph, &[node], condition, 1);
        let exec = instantiate(graph);
        for what in ["first", "second"] {
            launches(line, what, exec, stream);
            line.value("ran", word(at));
        }
    }),
    case!("conditional/run/kept_from_launch_to_launch", |line| {
        context();
        let (kernels, stream, at, graph) = (Kernels::load(), stream(), memory(16), graph());
        fill_words(at, 0, 1);
        let condition = kept_condition(graph);
        let (node, body) = add_single(graph, &[], condition, IF);
        kernels.count(body, &[], at);
        kernels.set_to(graph, &[node], condition, 1);
        let exec = instantiate(graph);
        for what in ["first", "second"] {
            launches(line, what, exec, stream);
            line.value("ran", word(at));
        }
    }),
    case!("conditional/run/default_without_the_flag", |line| {
        context();
        let (kernels, stream, at, graph) = (Kernels::load(), stream(), memory(16), graph());
        fill_words(at, 0, 1);
        let mut condition = 0;
        cuGraphConditionalHandleCreate(&mut condition, graph, current(), 1, 0).must();
        let (_, body) = add_single(graph, &[], condition, IF);
        kernels.count(body, &[], at);
        launches(line, "it", instantiate(graph), stream);
        line.value("ran", word(at));
    }),
    case!("conditional/run/kept_by_a_new_executable", |line| {
        context();
        let (kernels, stream, at, graph) = (Kernels::load(), stream(), memory(16), graph());
        fill_words(at, 0, 1);
        let condition = kept_condition(graph);
        let (node, body) = add_single(graph, &[], condition, IF);
        kernels.count(body, &[], at);
        kernels.set_to(graph, &[node], condition, 1);
        for what in ["first", "second"] {
            let exec = instantiate(graph);
            launches(line, what, exec, stream);
            cuGraphExecDestroy(exec).must();
            line.value("ran", word(at));
        }
    }),
    alone!("conditional/run/set_by_a_launch_outside", |line| {
        context();
        let (kernels, stream, at, graph) = (Kernels::load(), stream(), memory(16), graph());
        fill_words(at, 0, 1);
        let mut condition = kept_condition(graph);
        let (_, body) = add_single(graph, &[], condition, IF);
        kernels.count(body, &[], at);
        let (exec, mut value) = (instantiate(graph), 1u32);
        let mut values = [void(&mut condition), void(&mut value)];
        line.says(launch(kernels.get(c"set_to"), 1, 1, stream, &mut values));
        launches(line, "it", exec, stream);
        line.value("ran", word(at));
    }),
    case!("conditional/run/while_within_while", |line| {
        context();
        let (kernels, stream, at, graph) = (Kernels::load(), stream(), memory(16), graph());
        fill_words(at, 0, 4);
        let (outer, inner) = (condition(graph, 1), condition(graph, 1));
        let (_, body) = add_single(graph, &[], outer, WHILE);
        let clear = add_fill(body, &[], at, 0);
        let arm = kernels.set_to(body, &[clear], inner, 1);
        let (node, innermost) = add_single(body, &[arm], inner, WHILE);
        let turn = kernels.count_to(innermost, &[], inner, at, 4);
        kernels.count(innermost, &[turn], at + 4);
        kernels.count_to(body, &[node], outer, at + 8, 5);
        launches(line, "it", instantiate(graph), stream);
        line.value("inner", word(at + 4));
        line.value("outer", word(at + 8));
    }),
    case!(
        "conditional/run/inner_condition_is_not_armed_again",
        |line| {
            context();
            let (kernels, stream, at, graph) = (Kernels::load(), stream(), memory(16), graph());
            fill_words(at, 0, 4);
            let (outer, inner) = (condition(graph, 1), condition(graph, 1));
            let (_, body) = add_single(graph, &[], outer, WHILE);
            let (node, innermost) = add_single(body, &[], inner, WHILE);
            kernels.count_to(innermost, &[], inner, at, 4);
            kernels.count_to(body, &[node], outer, at + 8, 5);
            launches(line, "it", instantiate(graph), stream);
            line.value("inner", word(at));
            line.value("outer", word(at + 8));
        }
    ),
    alone!("conditional/run/set_a_condition_of_another_graph", |line| {
        context();
        let (kernels, stream, at, graph) = (Kernels::load(), stream(), memory(16), graph());
        let other = crate::graphs::api::graph();
        let foreign = condition(other, 0);
        add_single(other, &[], foreign, IF);
        let (_, body) = add_single(graph, &[], condition(graph, 1), IF);
        kernels.set_to(body, &[], foreign, 1);
        add_fill(body, &[], at, 5);
        launches(line, "it", instantiate(graph), stream);
    }),
    case!("conditional/run/uploaded_and_launched_again", |line| {
        context();
        let (kernels, stream, at, graph) = (Kernels::load(), stream(), memory(16), graph());
        fill_words(at, 77, 1);
        let condition = condition(graph, 0);
        let set = kernels.set_to(graph, &[], condition, 1);
        let (_, body) = add_single(graph, &[set], condition, IF);
        add_fill(body, &[], at, 5);
        let exec = instantiate(graph);
        line.says(cuGraphUpload(exec, stream));
        for what in ["first", "second", "third"] {
            launches(line, what, exec, stream);
        }
        line.value("ran", word(at));
    }),
    alone!("conditional/run/fault_in_a_body", |line| {
        context();
        let (stream, graph) = (stream(), graph());
        let (_, body) = add_single(graph, &[], condition(graph, 1), IF);
        add_store(body, &[], function(c"store"), 0, 1);
        launches(line, "it", instantiate(graph), stream);
        line.says(cuCtxSynchronize());
    }),
    alone!("conditional/run/fault_in_a_loop", |line| {
        context();
        let (stream, graph) = (stream(), graph());
        let (_, body) = add_single(graph, &[], condition(graph, 1), WHILE);
        add_store(body, &[], function(c"store"), 0, 1);
        launches(line, "it", instantiate(graph), stream);
        line.says(cuCtxSynchronize());
    }),
    case!(
        "conditional/run/fault_in_a_body_that_does_not_run",
        |line| {
            context();
            let (stream, graph) = (stream(), graph());
            let (_, body) = add_single(graph, &[], condition(graph, 0), IF);
            add_store(body, &[], function(c"store"), 0, 1);
            launches(line, "it", instantiate(graph), stream);
            line.says(cuCtxSynchronize());
        }
    ),
    case!("conditional/run/destroyed_graph", |line| {
        context();
        let (stream, at, graph) = (stream(), memory(16), graph());
        fill_words(at, 77, 1);
        let (_, body) = add_single(graph, &[], condition(graph, 1), IF);
        add_fill(body, &[], at, 5);
        let exec = instantiate(graph);
        line.says(cuGraphDestroy(graph));
        launches(line, "it", exec, stream);
        line.value("ran", word(at));
    }),
];
