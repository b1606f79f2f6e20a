//! Captures into bodies that fail, and what can be done with the body, its node and the graph
//! around it then.

use super::capture_setting::*;
use super::graph_run::{launches, runs};
use crate::capture::api::*;
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone};
use crate::conformance::fixture::*;
use crate::graphs::api::*;
use crate::graphs::conditions::*;

/// How a capture is spoilt.
#[derive(Clone, Copy, PartialEq)]
enum By {
    /// The stream is asked whether it is done.
    Query,
    /// The stream is waited for.
    Synchronize,
    /// The stream waits for an event from outside.
    Wait,
    /// A fork is not joined, which only its end finds out.
    Fork,
}

/// A graph with an IF node, whose body's capture was spoilt.
struct Spoilt {
    kernels: Kernels,
    graph: Handle,
    /// The node before the IF.
    first: Handle,
    node: Handle,
    body: Handle,
    condition: u64,
    at: u64,
}

/// Makes one; `held` nodes are in the body before.
unsafe fn spoilt(line: &mut Line, by: By, held: usize) -> Spoilt {
    context();
    let it = around(held);
    spoil(line, &it, by);
    it
}

unsafe fn around(held: usize) -> Spoilt {
    let (kernels, at, graph) = (Kernels::load(), memory(64), graph());
    fill_words(at, 0, 16);
    let condition = condition(graph, 1);
    let first = kernels.count(graph, &[], at);
    let (node, body) = add_single(graph, &[first], condition, IF);
    for _ in 0..held {
        kernels.count(body, &[], at + 4);
    }
    Spoilt {
        kernels,
        graph,
        first,
        node,
        body,
        condition,
        at,
    }
}

unsafe fn spoil(line: &mut Line, it: &Spoilt, by: By) {
    let (main, side) = (stream(), stream());
    let outside = event();
    cuEventRecord(outside, side).must();
    cuStreamSynchronize(side).must();
    let (count, mut to) = (it.kernels.get(c"count"), it.at + 8);
    cuStreamBeginCaptureToGraph(main, it.body, NONE, std::ptr::null(), 0, RELAXED).must();
    launch(count, 1, 1, main, &mut [void(&mut to)]).must();
    match by {
        By::Query => line.says(cuStreamQuery(main)),
        By::Synchronize => line.says(cuStreamSynchronize(main)),
        By::Wait => line.says(cuStreamWaitEvent(main, outside, 0)),
        By::Fork => {
            order(main, side);
            line.says(launch(count, 1, 1, side, &mut [void(&mut to)]))
        }
    };
    line.value("status", state(main));
    let mut ended = BOGUS;
    line.says(cuStreamEndCapture(main, &mut ended));
    line.value("ended", named(ended, &[("body", it.body)]));
    line.value("then", state(main));
    line.value("side", state(side));
}

unsafe fn nothing_more(line: &mut Line, by: By) {
    spoilt(line, by, 0);
    line.says(cuCtxSynchronize());
}

unsafe fn asked_for_its_nodes(line: &mut Line, by: By, held: usize) {
    let it = spoilt(line, by, held);
    line.value("body", count_of(it.body));
    line.value("graph", count_of(it.graph));
}

unsafe fn node_destroyed(line: &mut Line, by: By) {
    let it = spoilt(line, by, 1);
    line.says(cuGraphDestroyNode(it.node));
    line.value("graph", count_of(it.graph));
    line.says(cuGraphDestroy(it.graph));
}

unsafe fn graph_destroyed(line: &mut Line, by: By) {
    let it = spoilt(line, by, 1);
    line.says(cuGraphDestroy(it.graph));
    line.says(cuCtxSynchronize());
}

unsafe fn added_to(line: &mut Line, by: By) {
    let it = spoilt(line, by, 0);
    let (mut node, mut to) = (0, it.at + 12);
    let values = &mut [void(&mut to)];
    let params = kernel_params(it.kernels.get(c"count"), values);
    line.says(cuGraphAddKernelNode_v2(
        &mut node, it.body, NONE, 0, &params,
    ));
    line.value("body", count_of(it.body));
    runs(line, "it", it.graph);
    line.value("ran", word(it.at + 12));
}

unsafe fn run(line: &mut Line, by: By) {
    let it = spoilt(line, by, 1);
    runs(line, "it", it.graph);
    for at in 0..3 {
        line.value(at, word(it.at + 4 * at));
    }
}

/// An executable of the graph that was made before.
unsafe fn run_as_it_was(line: &mut Line, by: By) {
    context();
    let it = around(1);
    let exec = instantiate(it.graph);
    spoil(line, &it, by);
    launches(line, "it", exec, stream());
    for at in 0..3 {
        line.value(at, word(it.at + 4 * at));
    }
    line.says(cuGraphExecDestroy(exec));
}

/// Another node with the same condition in the place of the first.
unsafe fn replaced(line: &mut Line, by: By) {
    let it = spoilt(line, by, 1);
    line.says(cuGraphDestroyNode(it.node));
    let mut params = conditional_params(it.condition, IF, 1);
    let (answer, _) = try_conditional(it.graph, &[it.first], &mut params);
    if !line.says(answer) {
        return;
    }
    it.kernels.count(bodies(&params)[0], &[], it.at + 16);
    let mut exec = 0;
    if line.says(cuGraphInstantiateWithFlags(&mut exec, it.graph, 0)) {
        launches(line, "it", exec, stream());
        line.value("ran", word(it.at + 16));
        line.says(cuGraphExecDestroy(exec));
    }
    line.says(cuGraphDestroy(it.graph));
}

/// The same body once more, well.
unsafe fn captured_again(line: &mut Line, by: By) {
    let it = spoilt(line, by, 0);
    let (stream, count, mut to) = (stream(), it.kernels.get(c"count"), it.at + 20);
    let begun = cuStreamBeginCaptureToGraph(stream, it.body, NONE, std::ptr::null(), 0, RELAXED);
    if line.says(begun) {
        line.says(launch(count, 1, 1, stream, &mut [void(&mut to)]));
        line.says_as("end", cuStreamEndCapture(stream, &mut 0));
    }
    runs(line, "it", it.graph);
    line.value("ran", word(it.at + 20));
}

pub const CASES: &[Case] = &[
    alone!("conditional/spoilt/by_a_query", |line| {
        nothing_more(line, By::Query)
    }),
    alone!("conditional/spoilt/by_synchronizing", |line| {
        nothing_more(line, By::Synchronize)
    }),
    alone!("conditional/spoilt/by_a_wait", |line| {
        nothing_more(line, By::Wait)
    }),
    alone!("conditional/spoilt/by_a_fork", |line| {
        nothing_more(line, By::Fork)
    }),
    alone!("conditional/spoilt/by_a_query_nodes", |line| {
        asked_for_its_nodes(line, By::Query, 0)
    }),
    alone!("conditional/spoilt/by_synchronizing_nodes", |line| {
        asked_for_its_nodes(line, By::Synchronize, 0)
    }),
    alone!("conditional/spoilt/by_a_wait_nodes", |line| {
        asked_for_its_nodes(line, By::Wait, 0)
    }),
    alone!("conditional/spoilt/by_a_wait_nodes_held_before", |line| {
        asked_for_its_nodes(line, By::Wait, 2)
    }),
    alone!("conditional/spoilt/by_a_fork_nodes", |line| {
        asked_for_its_nodes(line, By::Fork, 0)
    }),
    alone!("conditional/spoilt/by_a_fork_nodes_held_before", |line| {
        asked_for_its_nodes(line, By::Fork, 2)
    }),
    alone!("conditional/spoilt/by_a_query_node_destroyed", |line| {
        node_destroyed(line, By::Query)
    }),
    alone!("conditional/spoilt/by_a_wait_node_destroyed", |line| {
        node_destroyed(line, By::Wait)
    }),
    alone!("conditional/spoilt/by_a_fork_node_destroyed", |line| {
        node_destroyed(line, By::Fork)
    }),
    alone!("conditional/spoilt/by_a_query_graph_destroyed", |line| {
        graph_destroyed(line, By::Query)
    }),
    alone!("conditional/spoilt/by_a_wait_graph_destroyed", |line| {
        graph_destroyed(line, By::Wait)
    }),
    alone!("conditional/spoilt/by_a_fork_graph_destroyed", |line| {
        graph_destroyed(line, By::Fork)
    }),
    alone!("conditional/spoilt/by_a_wait_added_to", |line| {
        added_to(line, By::Wait)
    }),
    alone!("conditional/spoilt/by_a_fork_added_to", |line| {
        added_to(line, By::Fork)
    }),
    alone!("conditional/spoilt/by_a_query_run", |line| {
        run(line, By::Query)
    }),
    alone!("conditional/spoilt/by_a_wait_run", |line| {
        run(line, By::Wait)
    }),
    alone!("conditional/spoilt/by_a_fork_run", |line| {
        run(line, By::Fork)
    }),
    alone!("conditional/spoilt/by_a_wait_run_as_it_was", |line| {
        run_as_it_was(line, By::Wait)
    }),
    alone!("conditional/spoilt/by_a_fork_run_as_it_was", |line| {
        run_as_it_was(line, By::Fork)
    }),
    alone!("conditional/spoilt/by_a_query_replaced", |line| {
        replaced(line, By::Query)
    }),
    alone!("conditional/spoilt/by_a_wait_replaced", |line| {
        replaced(line, By::Wait)
    }),
    alone!("conditional/spoilt/by_a_fork_replaced", |line| {
        replaced(line, By::Fork)
    }),
    alone!("conditional/spoilt/by_a_wait_captured_again", |line| {
        captured_again(line, By::Wait)
    }),
    alone!("conditional/spoilt/by_a_fork_captured_again", |line| {
        captured_again(line, By::Fork)
    }),
];
