//! Graphs with nodes of two devices.

use std::ptr::null_mut;

use super::super::graph_batch::{batch, write};
use super::super::graph_run::{launches, runs};
use super::{enable, reads, settles, synchronizes};
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, two_devices};
use crate::conformance::fixture::*;
use crate::conformance::sides::Side;
use crate::graphs::api::*;
use crate::graphs::conditions::*;

/// A node with a side's `store`, which writes to the side's own word.
unsafe fn store_of(graph: Handle, on: &[Handle], side: &Side, value: u32) -> Handle {
    side.enter();
    add_store(graph, on, side.function(c"store"), side.word, value)
}

/// Launches an executable in each side's stream, with each context current.
unsafe fn launches_everywhere(line: &mut Line, sides: [&Side; 2], exec: Handle) {
    for (side, current) in sides.into_iter().zip(["zero", "one"]) {
        side.enter();
        launches(line, &format!("{current}_in_zero"), exec, sides[0].stream);
        launches(line, &format!("{current}_in_one"), exec, sides[1].stream);
    }
    synchronizes(line, sides);
}

pub const CASES: &[Case] = &[
    two_devices!("peer/graph/kernels_of_both", |line, zero, one| {
        let graph = graph();
        let first = store_of(graph, &[], zero, 5);
        let second = store_of(graph, &[first], one, 6);
        store_of(graph, &[second], zero, 7);
        launches_everywhere(line, [zero, one], instantiate(graph));
        reads(line, "word_zero", zero.word);
        reads(line, "word_one", one.word);
    }),
    two_devices!("peer/graph/kernels_side_by_side", |line, zero, one| {
        let graph = graph();
        store_of(graph, &[], zero, 5);
        store_of(graph, &[], one, 6);
        zero.enter();
        runs(line, "run", graph);
        synchronizes(line, [zero, one]);
        reads(line, "word_zero", zero.word);
        reads(line, "word_one", one.word);
    }),
    two_devices!(
        "peer/graph/kernel_added_with_other_current",
        |line, zero, one| {
            let store = zero.function(c"store");
            one.enter();
            let graph = graph();
            let (mut to, mut value) = (zero.word, 5u32);
            let mut values = [void(&mut to), void(&mut value)];
            let (mut node, mut params) = (0, kernel_params(store, &mut values));
            line.says_as(
                "add",
                cuGraphAddKernelNode_v2(&mut node, graph, NONE, 0, &params),
            );
            let mut found = kernel_params(0, &mut []);
            line.gives(
                "context",
                cuGraphKernelNodeGetParams_v2(node, &mut found),
                named(
                    found.context,
                    &[("zero", zero.context), ("one", one.context)],
                ),
            );
            params.context = one.context;
            line.says_as(
                "context_of_other",
                cuGraphAddKernelNode_v2(&mut 0, graph, NONE, 0, &params),
            );
            params.context = zero.context;
            line.says_as(
                "context_named",
                cuGraphAddKernelNode_v2(&mut 0, graph, NONE, 0, &params),
            );
            line.value("nodes", nodes(graph).len());
            runs(line, "run", graph);
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/graph/library_kernels", |line, zero, one| {
        // A node of a library's kernel is of the context that is named, or is current.
        let (library, mut kernel) = (library(), 0);
        cuLibraryGetKernel(&mut kernel, library, c"store".as_ptr()).must();
        let graph = graph();
        let known = [("zero", zero.context), ("one", one.context)];
        for (side, what) in [(zero, "zero"), (one, "one")] {
            side.enter();
            let (mut to, mut value) = (side.word, 5u32);
            let mut values = [void(&mut to), void(&mut value)];
            let mut params = kernel_params(0, &mut values);
            params.kernel = kernel;
            let mut node = 0;
            line.says_as(
                what,
                cuGraphAddKernelNode_v2(&mut node, graph, NONE, 0, &params),
            );
            let mut found = params;
            line.gives(
                format!("{what}_context"),
                cuGraphKernelNodeGetParams_v2(node, &mut found),
                named(found.context, &known),
            );
        }
        let (mut to, mut value) = (zero.word, 6u32);
        let mut values = [void(&mut to), void(&mut value)];
        let mut params = kernel_params(0, &mut values);
        (params.kernel, params.context) = (kernel, zero.context);
        line.says_as(
            "named",
            cuGraphAddKernelNode_v2(&mut 0, graph, NONE, 0, &params),
        );
        runs(line, "run", graph);
        synchronizes(line, [zero, one]);
        reads(line, "word_one", one.word);
    }),
    two_devices!("peer/graph/copies", |line, zero, one| {
        // A copy across devices, with each context and none.
        let copy = line_copy(one.word, zero.word, 4);
        let graph = graph();
        let mut node = 0;
        for (what, context) in [("zero", zero.context), ("one", one.context), ("null", 0)] {
            line.says_as(
                what,
                cuGraphAddMemcpyNode(&mut node, graph, NONE, 0, &copy, context),
            );
        }
        line.value("nodes", nodes(graph).len());
        launches_everywhere(line, [zero, one], instantiate(graph));
        reads(line, "value", one.word);
    }),
    two_devices!("peer/graph/copy_by_third_context", |line, zero, one| {
        let made = super::new_context_of(1);
        let copy = line_copy(one.word, zero.word, 4);
        let graph = graph();
        line.says_as(
            "add",
            cuGraphAddMemcpyNode(&mut 0, graph, NONE, 0, &copy, made),
        );
        zero.enter();
        runs(line, "run", graph);
        synchronizes(line, [zero, one]);
        reads(line, "value", one.word);
    }),
    two_devices!("peer/graph/copy_within_the_other", |line, zero, one| {
        one.enter();
        let more = memory(4);
        let copy = line_copy(more, one.word, 4);
        zero.enter();
        let graph = graph();
        line.says_as(
            "add",
            cuGraphAddMemcpyNode(&mut 0, graph, NONE, 0, &copy, zero.context),
        );
        runs(line, "run", graph);
        synchronizes(line, [zero, one]);
        reads(line, "value", more);
    }),
    two_devices!("peer/graph/fills", |line, zero, one| {
        let graph = graph();
        let params = word_fill(one.word, 9);
        for (what, context) in [("its", one.context), ("other", zero.context), ("null", 0)] {
            line.says_as(
                what,
                cuGraphAddMemsetNode(&mut 0, graph, NONE, 0, &params, context),
            );
        }
        line.value("nodes", nodes(graph).len());
        runs(line, "run", graph);
        synchronizes(line, [zero, one]);
        reads(line, "value", one.word);
    }),
    two_devices!("peer/graph/fill_by_other_context", |line, zero, one| {
        let graph = graph();
        let params = word_fill(one.word, 9);
        let answer = cuGraphAddMemsetNode(&mut 0, graph, NONE, 0, &params, zero.context);
        if line.says_as("add", answer) {
            runs(line, "run", graph);
        }
        synchronizes(line, [zero, one]);
        one.enter();
        reads(line, "value", one.word);
    }),
    two_devices!("peer/graph/event_nodes", |line, zero, one| {
        // One device's event is recorded, and the other's stream waits for it.
        let own = event();
        one.enter();
        let its = event();
        zero.enter();
        let graph = graph();
        let mut record = 0;
        line.says_as(
            "record_own",
            cuGraphAddEventRecordNode(&mut record, graph, NONE, 0, own),
        );
        line.says_as(
            "record_its",
            cuGraphAddEventRecordNode(&mut 0, graph, &record, 1, its),
        );
        line.says_as(
            "wait_its",
            cuGraphAddEventWaitNode(&mut 0, graph, &record, 1, its),
        );
        launches_everywhere(line, [zero, one], instantiate(graph));
        line.says_as("query_own", cuEventQuery(own));
        line.says_as("query_its", cuEventQuery(its));
        line.says_as("wait", cuStreamWaitEvent(one.stream, own, 0));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/graph/child_of_other", |line, zero, one| {
        let inner = graph();
        store_of(inner, &[], one, 5);
        zero.enter();
        let outer = graph();
        let first = store_of(outer, &[], zero, 6);
        let child = add_child(outer, &[first], inner);
        store_of(outer, &[child], zero, 7);
        zero.enter();
        runs(line, "run", outer);
        synchronizes(line, [zero, one]);
        reads(line, "word_zero", zero.word);
        reads(line, "word_one", one.word);
    }),
    two_devices!("peer/graph/kernel_without_access", |line, zero, one| {
        let graph = graph();
        zero.enter();
        add_store(graph, &[], zero.function(c"store"), one.word, 5);
        one.enter();
        let exec = instantiate(graph);
        line.says_as("launch", cuGraphLaunch(exec, one.stream));
        let ended = settles(line, "end", one.stream);
        zero.enter();
        line.says_as("end_zero", cuCtxSynchronize());
        if ended {
            one.enter();
            line.says_as("end_one", cuCtxSynchronize());
        }
        line.says_as("launch_again", cuGraphLaunch(exec, one.stream));
    }),
    two_devices!("peer/graph/kernel_with_access", |line, zero, one| {
        // Access that comes between instantiation and launch is enough.
        let graph = graph();
        add_store(graph, &[], zero.function(c"store"), one.word, 5);
        let exec = instantiate(graph);
        enable(zero, one);
        launches(line, "run", exec, zero.stream);
        synchronizes(line, [zero, one]);
        reads(line, "value", one.word);
    }),
    two_devices!("peer/graph/failing_node_of_other", |line, zero, one| {
        // The second device's node fails in a launch in the first one's stream.
        let graph = graph();
        one.enter();
        let bad = add_store(graph, &[], one.function(c"store"), zero.word, 5);
        store_of(graph, &[bad], zero, 6);
        zero.enter();
        let exec = instantiate(graph);
        line.says_as("launch", cuGraphLaunch(exec, zero.stream));
        let ended = settles(line, "end", zero.stream);
        one.enter();
        line.says_as("end_one", cuCtxSynchronize());
        if ended {
            zero.enter();
            line.says_as("end_zero", cuCtxSynchronize());
            reads(line, "word", zero.word);
        }
    }),
    two_devices!("peer/graph/attributes_of_other", |line, zero, one| {
        let graph = graph();
        let node = store_of(graph, &[], zero, 5);
        one.enter();
        let mut value = crate::conformance::structs::LaunchAttributeValue([0; 8]);
        line.says_as("get", cuGraphKernelNodeGetAttribute(node, 8, &mut value));
        line.says_as("set", cuGraphKernelNodeSetAttribute(node, 8, &value));
        let other = store_of(graph, &[], one, 5);
        line.says_as("copy", cuGraphKernelNodeCopyAttributes(other, node));
    }),
    two_devices!("peer/graph/no_context_current", |line, zero, one| {
        let graph = graph();
        store_of(graph, &[], one, 6);
        cuCtxSetCurrent(0).must();
        let mut exec = 0;
        line.says_as(
            "instantiate",
            cuGraphInstantiateWithFlags(&mut exec, graph, 0),
        );
        if exec == 0 {
            one.enter();
            exec = instantiate(graph);
            cuCtxSetCurrent(0).must();
        }
        line.says_as("launch_in_one", cuGraphLaunch(exec, one.stream));
        line.says_as("launch_in_zero", cuGraphLaunch(exec, zero.stream));
        line.says_as("launch_in_null", cuGraphLaunch(exec, 0));
        zero.enter();
        synchronizes(line, [zero, one]);
    }),
    two_devices!(
        "peer/graph/context_destroyed_before_launch",
        |line, zero, one| {
            let graph = graph();
            let made = super::new_context_of(1);
            let word = memory(4);
            add_store(graph, &[], function(c"store"), word, 5);
            zero.enter();
            let exec = instantiate(graph);
            line.says_as("destroy", cuCtxDestroy_v2(made));
            line.says_as("destroy_exec", cuGraphExecDestroy(exec));
            line.says_as("destroy_graph", cuGraphDestroy(graph));
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/graph/condition_body_of_other", |line, zero, one| {
        let graph = graph();
        let (_, body) = add_single(graph, &[], condition(graph, 1), IF);
        one.enter();
        let inner = add_store(body, &[], one.function(c"store"), one.word, 5);
        zero.enter();
        let (mut exec, mut params) = (0, InstantiateParams::default());
        let made = line.says_as(
            "instantiate",
            cuGraphInstantiateWithParams(&mut exec, graph, &mut params),
        );
        line.value("result", params.result);
        line.value("node", named(params.node, &[("inner", inner)]));
        if made {
            launches(line, "run", exec, zero.stream);
        }
        synchronizes(line, [zero, one]);
        reads(line, "value", one.word);
    }),
    two_devices!(
        "peer/graph/condition_of_other_context",
        |line, zero, one| {
            // A handle made for one context, and a node in the other.
            let graph = graph();
            let handle = condition(graph, 1);
            one.enter();
            let mut params = conditional_params(handle, IF, 1);
            let (answer, node) = try_conditional(graph, &[], &mut params);
            line.says_as("add", answer);
            if node != 0 {
                let body = bodies(&params)[0];
                add_store(body, &[], one.function(c"store"), one.word, 5);
                runs(line, "run", graph);
            }
            synchronizes(line, [zero, one]);
            reads(line, "value", one.word);
        }
    ),
    two_devices!("peer/graph/condition_set_by_other", |line, zero, one| {
        let graph = graph();
        let handle = condition(graph, 0);
        one.enter();
        let set = Kernels::load().set_to(graph, &[], handle, 1);
        zero.enter();
        let (_, body) = add_single(graph, &[set], handle, IF);
        store_of(body, &[], zero, 5);
        zero.enter();
        let mut exec = 0;
        if line.says(cuGraphInstantiateWithFlags(&mut exec, graph, 0)) {
            launches(line, "run", exec, zero.stream);
        }
        synchronizes(line, [zero, one]);
        reads(line, "value", zero.word);
    }),
    two_devices!(
        "peer/graph/condition_set_by_other_with_access",
        |line, zero, one| {
            enable(one, zero);
            zero.enter();
            let graph = graph();
            let handle = condition(graph, 0);
            one.enter();
            let set = Kernels::load().set_to(graph, &[], handle, 1);
            zero.enter();
            let (_, body) = add_single(graph, &[set], handle, IF);
            store_of(body, &[], zero, 5);
            zero.enter();
            let mut exec = 0;
            if line.says(cuGraphInstantiateWithFlags(&mut exec, graph, 0)) {
                launches(line, "run", exec, zero.stream);
            }
            synchronizes(line, [zero, one]);
            reads(line, "value", zero.word);
        }
    ),
    two_devices!(
        "peer/graph/condition_body_copies_across",
        |line, zero, one| {
            let graph = graph();
            let (_, body) = add_single(graph, &[], condition(graph, 1), IF);
            let copy = line_copy(one.word, zero.word, 4);
            line.says_as(
                "add",
                cuGraphAddMemcpyNode(null_mut(), body, NONE, 0, &copy, zero.context),
            );
            let mut node = 0;
            let answer = cuGraphAddMemcpyNode(&mut node, body, NONE, 0, &copy, zero.context);
            line.says_as("add_out", answer);
            runs(line, "run", graph);
            synchronizes(line, [zero, one]);
            reads(line, "value", one.word);
        }
    ),
    two_devices!("peer/graph/condition_body_fills", |line, zero, one| {
        // The node names the context of the condition, the memory is the other device's.
        let graph = graph();
        let (_, body) = add_single(graph, &[], condition(graph, 1), IF);
        let params = word_fill(one.word, 9);
        line.says_as(
            "add",
            cuGraphAddMemsetNode(&mut 0, body, NONE, 0, &params, zero.context),
        );
        runs(line, "run", graph);
        synchronizes(line, [zero, one]);
        reads(line, "value", one.word);
    }),
    two_devices!("peer/graph/memory_operations", |line, zero, one| {
        // The memory is looked at when the graph is launched.
        let graph = graph();
        let mut operations = [write(one.word, 5)];
        let params = batch(&mut operations);
        line.says_as(
            "add",
            cuGraphAddBatchMemOpNode(&mut 0, graph, NONE, 0, &params),
        );
        runs(line, "without", graph);
        enable(zero, one);
        runs(line, "with", graph);
        synchronizes(line, [zero, one]);
        reads(line, "value", one.word);
    }),
];
