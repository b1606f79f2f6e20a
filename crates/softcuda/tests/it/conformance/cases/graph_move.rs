//! Child graphs that change owner: where they may go, what they may hold, and what their handles
//! are good for afterwards.
//!
//! Each case has a process of its own: what the header forbids may crash a real driver. Where
//! that is likely, the name contains `risky`. No case destroys a moved graph by its handle, or
//! moves a graph into itself.

use std::ptr::{null, null_mut};
use std::sync::atomic::AtomicU32;

use super::graph_run::{launches, runs};
use super::graph_user_object::{MOVE, destroyed, object};
use crate::capture::api::*;
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone};
use crate::conformance::fixture::*;
use crate::graphs::api::*;
use crate::graphs::conditions::*;

/// Adds a child graph's node, with an ownership.
pub(super) unsafe fn embed(
    parent: Handle,
    on: &[Handle],
    child: Handle,
    ownership: u32,
) -> (Answer, Handle) {
    let mut node = 0;
    let mut params = node_params(4, &[child as u64, ownership.into()]);
    let answer = cuGraphAddNode_v2(
        &mut node,
        parent,
        on.as_ptr(),
        null(),
        on.len(),
        &mut params,
    );
    (answer, node)
}

/// Moves a graph into a node.
pub(super) unsafe fn move_child(parent: Handle, on: &[Handle], child: Handle) -> Handle {
    let (answer, node) = embed(parent, on, child, MOVE);
    answer.must();
    node
}

pub(super) unsafe fn child_of(node: Handle) -> Handle {
    let mut own = 0;
    cuGraphChildGraphNodeGetGraph(node, &mut own).must();
    own
}

/// The graph that a child is moved into: `root` or one inside it.
unsafe fn place(root: Handle, name: &str) -> Handle {
    let body = || add_single(root, &[], condition(root, 1), IF).1;
    match name {
        "top" => root,
        "child" => child_of(add_child(root, &[], graph())),
        "moved" => child_of(move_child(root, &[], graph())),
        "body" => body(),
        "body_child" => child_of(add_child(body(), &[], graph())),
        other => panic!("no place {other}"),
    }
}

/// Fills a graph; gives a node.
unsafe fn fill_with(graph: Handle, content: &str, at: u64) -> Handle {
    unsafe extern "C" fn nothing(_: *mut std::ffi::c_void) {}
    let mut node = 0;
    match content {
        "nothing" => {}
        "kernel" => node = add_store(graph, &[], function(c"store"), at, 7),
        "fill" => node = add_fill(graph, &[], at, 7),
        "child" | "moved_child" => {
            let inner = crate::graphs::api::graph();
            add_fill(inner, &[], at, 7);
            node = match content {
                "child" => add_child(graph, &[], inner),
                _ => move_child(graph, &[], inner),
            };
        }
        "condition" => drop(condition(graph, 1)),
        "conditional" => {
            let body;
            (node, body) = add_single(graph, &[], condition(graph, 1), IF);
            add_fill(body, &[], at, 7);
        }
        "alloc" => node = add_alloc(graph, &[], 64).0,
        "alloc_free" => {
            let (alloc, address) = add_alloc(graph, &[], 64);
            let fill = add_fill(graph, &[alloc], address, 3);
            node = add_free(graph, &[fill], address);
        }
        "host" => node = add_host(graph, &[], Some(nothing), null_mut()),
        "record" => cuGraphAddEventRecordNode(&mut node, graph, NONE, 0, event()).must(),
        "wait" => cuGraphAddEventWaitNode(&mut node, graph, NONE, 0, event()).must(),
        other => panic!("no content {other}"),
    }
    node
}

/// Moves a graph with something in it, and runs the whole.
unsafe fn placed(line: &mut Line, to: &str, content: &str) {
    context();
    let (root, child, at) = (graph(), graph(), memory(4));
    fill_words(at, 0, 1);
    let into = place(root, to);
    let inner = fill_with(child, content, at);
    let (answer, node) = embed(into, &[], child, MOVE);
    if !line.says_as("move", answer) {
        return;
    }
    line.value("own", named(child_of(node), &[("same", child)]));
    let (mut exec, mut params) = (0, InstantiateParams::default());
    let answer = cuGraphInstantiateWithParams(&mut exec, root, &mut params);
    let works = line.says_as("instantiate", answer);
    let names = [("null", 0), ("node", node), ("inner", inner)];
    line.value("result", params.result);
    line.value("failed", named(params.node, &names));
    if works {
        launches(line, "run", exec, stream());
        line.value("word", word(at));
        line.says_as("again", cuGraphInstantiateWithFlags(&mut 0, root, 0));
    }
    line.says_as("clone", cuGraphClone(&mut 0, root));
    line.says_as("destroy", cuGraphDestroy(root));
    if works {
        fill_words(at, 0, 1);
        launches(line, "alive", exec, stream());
        line.value("word", word(at));
        line.says(cuGraphExecDestroy(exec));
    }
}

/// A case for each place and content.
macro_rules! placed {
    ($($place:literal: $($content:literal)*;)*) => {
        &[$($(Case {
            name: concat!("graph/move_into_", $place, "/", $content),
            alone: true,
            devices: 1,
            ask: {
                unsafe fn ask(line: &mut Line) {
                    placed(line, $place, $content)
                }
                ask
            },
        },)*)*]
    };
}

pub const PLACED: &[Case] = placed! {
    "top": "nothing" "kernel" "fill" "child" "moved_child" "condition" "conditional" "alloc" "alloc_free" "host"
        "record" "wait";
    "child": "nothing" "kernel" "child" "conditional" "alloc_free" "host" "record";
    "moved": "nothing" "kernel" "moved_child" "alloc_free" "host";
    "body": "nothing" "kernel" "fill" "child" "moved_child" "conditional" "alloc" "alloc_free" "host" "record" "wait";
    "body_child": "nothing" "kernel" "alloc_free" "host";
};

/// A graph that has the only reference of an object, and fills a word.
unsafe fn owning(at: u64, value: u32) -> (Handle, &'static AtomicU32) {
    let (graph, (object, gone)) = (graph(), object(1));
    cuGraphRetainUserObject(graph, object, 1, MOVE).must();
    add_fill(graph, &[], at, value);
    (graph, gone)
}

/// An object of a moved graph, by where the graph went, until the executable is gone.
unsafe fn object_of_an_executable(line: &mut Line, to: &str) {
    context();
    let (root, at) = (graph(), memory(4));
    let (child, gone) = owning(at, 7);
    move_child(place(root, to), &[], child);
    let exec = instantiate(root);
    line.says(cuGraphDestroy(root));
    destroyed(line, "root", gone);
    launches(line, "run", exec, stream());
    destroyed(line, "run", gone);
    line.says(cuGraphExecDestroy(exec));
    destroyed(line, "exec", gone);
}

/// Writes down whether a graph is still the program's own, which can be instantiated alone.
/// Destroys it then.
unsafe fn is_the_programs(line: &mut Line, what: &str, graph: Handle) {
    let mut exec = 0;
    let answer = cuGraphInstantiateWithFlags(&mut exec, graph, 0);
    if line.says_as(format!("{what}_instantiate"), answer) {
        cuGraphExecDestroy(exec).must();
        line.says_as(format!("{what}_destroy"), cuGraphDestroy(graph));
    }
}

/// Gives a child graph's node another graph.
unsafe fn set_node(line: &mut Line, moved_before: bool, ownership: u32) {
    context();
    let (root, at) = (graph(), memory(4));
    let ((old, old_gone), (new, new_gone)) = (owning(at, 1), owning(at, 2));
    let node = match moved_before {
        true => move_child(root, &[], old),
        false => {
            let node = add_child(root, &[], old);
            cuGraphDestroy(old).must();
            node
        }
    };
    let mut params = node_params(4, &[new as u64, ownership.into()]);
    if line.says(cuGraphNodeSetParams(node, &mut params)) {
        line.value("own", named(child_of(node), &[("old", old), ("new", new)]));
    }
    destroyed(line, "old", old_gone);
    runs(line, "run", root);
    line.value("word", word(at));
    is_the_programs(line, "new", new);
    destroyed(line, "new", new_gone);
    line.says(cuGraphDestroy(root));
}

pub const CASES: &[Case] = &[
    alone!("graph/move/ownership", |line| {
        context();
        let root = graph();
        for ownership in [0, 1, 2, u32::MAX] {
            let child = graph();
            add_empty(child, &[]);
            let (mut node, mut params) = (0, node_params(4, &[child as u64, u64::from(ownership)]));
            let answer = cuGraphAddNode(&mut node, root, NONE, 0, &mut params);
            if line.says_as(ownership as i32, answer) {
                let own = child_of(node);
                line.value("own", named(own, &[("same", child)]));
                line.value("nodes", nodes(own).len());
                if own != child {
                    line.says(cuGraphDestroy(child));
                }
            }
            line.value("ownership", params.union[1] as i32);
        }
        runs(line, "run", root);
    }),
    alone!("graph/move/handles_after", |line| {
        context();
        let (root, child, at) = (graph(), graph(), memory(16));
        let first = add_fill(child, &[], at, 1);
        let second = add_fill(child, &[first], at + 4, 2);
        let node = move_child(root, &[], child);
        line.value("nodes", nodes(child) == [first, second]);
        line.value("edges", edge_count(child));
        let third = add_fill(child, &[first], at + 8, 3);
        line.says(cuGraphMemsetNodeSetParams(first, &word_fill(at, 9)));
        line.says_as("edge", add_edge(child, second, third));
        line.says(cuGraphDestroyNode(second));
        line.value("left", nodes(child) == [first, third]);
        line.value("own", named(child_of(node), &[("same", child)]));
        runs(line, "run", root);
        line.value("words", format!("{:?}", [0, 4, 8].map(|to| word(at + to))));
    }),
    alone!("graph/move/in_a_line", |line| {
        context();
        let (root, at) = (graph(), memory(8));
        let before = add_fill(root, &[], at, 1);
        let (first, second) = (graph(), graph());
        add_copy(first, &[], &line_copy(at + 4, at, 4));
        add_fill(second, &[], at, 2);
        let moved = move_child(root, &[before], first);
        let last = move_child(root, &[moved], second);
        add_fill(root, &[last], at, 3);
        runs(line, "run", root);
        line.value("words", format!("{:?}", [0, 4].map(|to| word(at + to))));
    }),
    alone!("graph/move/instantiated_alone", |line| {
        context();
        let (root, child) = (graph(), graph());
        add_empty(child, &[]);
        move_child(root, &[], child);
        runs(line, "child", child);
        runs(line, "root", root);
    }),
    alone!("graph/move/cloned_alone", |line| {
        context();
        let (root, child, mut clone, mut found) = (graph(), graph(), 0, 0);
        let node = add_empty(child, &[]);
        move_child(root, &[], child);
        if line.says(cuGraphClone(&mut clone, child)) {
            line.says(cuGraphNodeFindInClone(&mut found, node, clone));
            line.value("nodes", nodes(clone) == [found]);
            runs(line, "clone", clone);
            line.says(cuGraphDestroy(clone));
        }
        runs(line, "root", root);
    }),
    alone!("graph/move/parent_cloned", |line| {
        context();
        let (root, child, at) = (graph(), graph(), memory(4));
        let (mut clone, mut found, mut inside) = (0, 0, 0);
        let inner = add_fill(child, &[], at, 7);
        let node = move_child(root, &[], child);
        line.says(cuGraphClone(&mut clone, root));
        line.says(cuGraphNodeFindInClone(&mut found, node, clone));
        let own = child_of(found);
        line.value("own", named(own, &[("same", child)]));
        line.says_as("inside", cuGraphNodeFindInClone(&mut inside, inner, own));
        line.says_as("root", cuGraphDestroy(root));
        runs(line, "run", clone);
        line.value("word", word(at));
        line.says_as("instantiate", cuGraphInstantiateWithFlags(&mut 0, own, 0));
        line.says_as("clone", cuGraphDestroy(clone));
    }),
    alone!("graph/move/parent_embedded", |line| {
        context();
        let (outer, root, child, at) = (graph(), graph(), graph(), memory(4));
        add_fill(child, &[], at, 7);
        move_child(root, &[], child);
        let node = add_child(outer, &[], root);
        line.says(cuGraphDestroy(root));
        line.value("nodes", nodes(child_of(node)).len());
        runs(line, "run", outer);
        line.value("word", word(at));
    }),
    alone!("graph/move/node_then_parent_destroyed", |line| {
        context();
        let (root, (child, gone)) = (graph(), owning(memory(4), 7));
        let node = move_child(root, &[], child);
        destroyed(line, "moved", gone);
        line.says(cuGraphDestroyNode(node));
        destroyed(line, "node", gone);
        line.value("nodes", nodes(root).len());
        line.says(cuGraphDestroy(root));
        destroyed(line, "root", gone);
    }),
    alone!("graph/move/parent_destroyed", |line| {
        context();
        let (root, (child, gone)) = (graph(), owning(memory(4), 7));
        move_child(root, &[], child);
        destroyed(line, "moved", gone);
        line.says(cuGraphDestroy(root));
        destroyed(line, "root", gone);
    }),
    alone!("graph/move/object_in_clone", |line| {
        context();
        let (root, (child, gone), mut clone) = (graph(), owning(memory(4), 7), 0);
        move_child(root, &[], child);
        line.says(cuGraphClone(&mut clone, root));
        line.says_as("root", cuGraphDestroy(root));
        destroyed(line, "root_gone", gone);
        line.says_as("clone", cuGraphDestroy(clone));
        destroyed(line, "clone_gone", gone);
    }),
    alone!("graph/move/object_given_after", |line| {
        context();
        let (root, child) = (graph(), graph());
        let ((kept, kept_gone), (released, released_gone)) = (object(1), object(1));
        move_child(root, &[], child);
        line.says_as("kept", cuGraphRetainUserObject(child, kept, 1, MOVE));
        line.says_as(
            "released",
            cuGraphRetainUserObject(child, released, 1, MOVE),
        );
        line.says(cuGraphReleaseUserObject(child, released, 1));
        destroyed(line, "released", released_gone);
        destroyed(line, "kept", kept_gone);
        line.says(cuGraphDestroy(root));
        destroyed(line, "root", kept_gone);
    }),
    alone!("graph/move/object_at_the_top", |line| {
        object_of_an_executable(line, "top")
    }),
    alone!("graph/move/object_in_a_child", |line| {
        object_of_an_executable(line, "child")
    }),
    alone!("graph/move/object_in_a_moved_child", |line| {
        object_of_an_executable(line, "moved")
    }),
    alone!("graph/move/object_in_a_body", |line| {
        object_of_an_executable(line, "body")
    }),
    alone!("graph/move/failed_dependency", |line| {
        context();
        let (root, (child, gone)) = (graph(), owning(memory(4), 7));
        let foreign = add_empty(graph(), &[]);
        line.says(embed(root, &[foreign], child, MOVE).0);
        line.value("nodes", nodes(root).len());
        destroyed(line, "failed", gone);
        is_the_programs(line, "child", child);
        line.says(cuGraphDestroy(root));
    }),
    alone!("graph/move/failed_twice_the_same_dependency", |line| {
        context();
        let (root, (child, gone)) = (graph(), owning(memory(4), 7));
        let before = add_empty(root, &[]);
        line.says(embed(root, &[before, before], child, MOVE).0);
        line.value("nodes", nodes(root).len());
        destroyed(line, "failed", gone);
        is_the_programs(line, "child", child);
        line.says(cuGraphDestroy(root));
    }),
    alone!("graph/move/failed_no_place_for_the_node", |line| {
        context();
        let (root, (child, gone)) = (graph(), owning(memory(4), 7));
        let mut params = node_params(4, &[child as u64, 1]);
        let answer = cuGraphAddNode_v2(null_mut(), root, NONE, null(), 0, &mut params);
        line.says(answer);
        line.value("nodes", nodes(root).len());
        destroyed(line, "failed", gone);
        is_the_programs(line, "child", child);
        line.says(cuGraphDestroy(root));
    }),
    alone!("graph/move/failed_because_of_conditions", |line| {
        context();
        let (root, child) = (graph(), graph());
        add_single(child, &[], condition(child, 0), IF);
        line.says(embed(root, &[], child, MOVE).0);
        is_the_programs(line, "child", child);
        line.says(cuGraphDestroy(root));
    }),
    alone!("graph/move/executable_from_before", |line| {
        context();
        let (root, at, stream) = (graph(), memory(4), stream());
        let (child, gone) = owning(at, 1);
        let inner = nodes(child)[0];
        let before = instantiate(child);
        move_child(root, &[], child);
        let set = cuGraphExecMemsetNodeSetParams(before, inner, &word_fill(at, 5), current());
        line.says(set);
        launches(line, "run", before, stream);
        line.value("word", word(at));
        runs(line, "root", root);
        line.value("word", word(at));
        line.says(cuGraphDestroy(root));
        destroyed(line, "root", gone);
        launches(line, "after", before, stream);
        line.value("word", word(at));
        line.says(cuGraphExecDestroy(before));
        destroyed(line, "exec", gone);
    }),
    alone!("graph/move/executable_from_before_with_memory", |line| {
        context();
        let (root, child, stream) = (graph(), graph(), stream());
        fill_with(child, "alloc_free", 0);
        let before = instantiate(child);
        if line.says(embed(root, &[], child, MOVE).0) {
            let mut both = 0;
            let answer = cuGraphInstantiateWithFlags(&mut both, root, 0);
            if line.says_as("both", answer) {
                cuGraphExecDestroy(both).must();
            }
            launches(line, "run", before, stream);
            line.says(cuGraphExecDestroy(before));
            line.says_as("one", cuGraphInstantiateWithFlags(&mut 0, root, 0));
        }
    }),
    alone!("graph/move/launched_when_moved", |line| {
        context();
        let (root, at, stream) = (graph(), memory(4), stream());
        let (child, gone) = owning(at, 7);
        let before = instantiate(child);
        let gate = Gate::close(stream);
        cuGraphLaunch(before, stream).must();
        move_child(root, &[], child);
        line.says(cuGraphExecDestroy(before));
        line.says(cuGraphDestroy(root));
        destroyed(line, "in_flight", gone);
        gate.open();
        line.says(cuStreamSynchronize(stream));
        destroyed(line, "over", gone);
        line.value("word", word(at));
    }),
    alone!("graph/move/memory_added_after", |line| {
        context();
        let (root, child, mut params) = (graph(), graph(), alloc_params(64));
        let inner = child_of(add_child(child, &[], graph()));
        let (_, address) = add_alloc(graph(), &[], 64);
        move_child(root, &[], child);
        let alloc = cuGraphAddMemAllocNode(&mut 0, child, NONE, 0, &mut params);
        line.says_as("alloc", alloc);
        let free = cuGraphAddMemFreeNode(&mut 0, child, NONE, 0, address);
        line.says_as("free", free);
        let alloc = cuGraphAddMemAllocNode(&mut 0, inner, NONE, 0, &mut params);
        line.says_as("alloc_inside", alloc);
        let cloned = child_of(add_child(root, &[], graph()));
        let alloc = cuGraphAddMemAllocNode(&mut 0, cloned, NONE, 0, &mut params);
        line.says_as("alloc_in_copy", alloc);
        line.says_as("alloc_beside", {
            cuGraphAddMemAllocNode(&mut 0, root, NONE, 0, &mut params)
        });
    }),
    alone!("graph/move/memory_keeps_nodes", |line| {
        context();
        let (root, child) = (graph(), graph());
        let last = fill_with(child, "alloc_free", 0);
        let before = add_empty(root, &[]);
        let node = move_child(root, &[before], child);
        line.says_as("inner", cuGraphDestroyNode(last));
        line.says_as("node", cuGraphDestroyNode(node));
        line.says_as("before", cuGraphDestroyNode(before));
        let edge = cuGraphRemoveDependencies(root, &before, &node, 1);
        line.says_as("edge", edge);
        runs(line, "run", root);
        line.says_as("again", cuGraphInstantiateWithFlags(&mut 0, root, 0));
    }),
    alone!("graph/move/memory_nested", |line| {
        context();
        let (root, middle, child) = (graph(), graph(), graph());
        fill_with(child, "alloc_free", 0);
        let node = move_child(root, &[], middle);
        if line.says(embed(middle, &[], child, MOVE).0) {
            line.says_as("node", cuGraphDestroyNode(node));
            runs(line, "run", root);
            line.says_as("again", cuGraphInstantiateWithFlags(&mut 0, root, 0));
            line.says(cuGraphClone(&mut 0, root));
        }
    }),
    alone!("graph/move/conditions_added_after", |line| {
        context();
        let (root, child, at) = (graph(), graph(), memory(4));
        fill_words(at, 0, 1);
        move_child(root, &[], child);
        let mut condition = 0;
        let made = cuGraphConditionalHandleCreate(&mut condition, child, current(), 1, ASSIGN);
        line.says(made);
        let mut params = conditional_params(condition, IF, 1);
        let (answer, _) = try_conditional(child, &[], &mut params);
        if line.says(answer) {
            add_fill(bodies(&params)[0], &[], at, 7);
            runs(line, "run", root);
            line.value("word", word(at));
        }
        line.says(cuGraphClone(&mut 0, root));
    }),
    alone!("graph/move/captured_then_moved", |line| {
        context();
        let (root, at, from) = (graph(), memory(8), stream());
        let store = function(c"store");
        for (into, to) in [
            (root, at),
            (add_single(root, &[], condition(root, 1), IF).1, at + 4),
        ] {
            begin(from, 1);
            launch_store(store, from, to, 7).must();
            let child = end(from);
            line.says(embed(into, &[], child, MOVE).0);
        }
        runs(line, "run", root);
        line.value("words", format!("{:?}", [0, 4].map(|to| word(at + to))));
    }),
    alone!("graph/move/moved_into_a_capture", |line| {
        context();
        let (at, from, child) = (memory(12), stream(), graph());
        let store = function(c"store");
        add_copy(child, &[], &line_copy(at + 4, at, 4));
        begin(from, 1);
        launch_store(store, from, at, 7).must();
        let (_, root, before, _) = info(from);
        let (answer, node) = embed(root, &before, child, MOVE);
        line.says(answer);
        let set = cuStreamUpdateCaptureDependencies_v2(from, &node, null(), 1, 1);
        line.says(set);
        launch_store(store, from, at, 8).must();
        let root = end(from);
        runs(line, "run", root);
        line.value("words", format!("{:?}", [0, 4].map(|to| word(at + to))));
    }),
    alone!("graph/move/captured_to_after", |line| {
        context();
        let (root, child, at, from) = (graph(), graph(), memory(8), stream());
        let first = add_fill(child, &[], at, 1);
        let store = function(c"store");
        move_child(root, &[], child);
        let begun = cuStreamBeginCaptureToGraph(from, child, &first, null(), 1, 1);
        if line.says(begun) {
            line.says_as("store", launch_store(store, from, at + 4, 2));
            let mut ended = BOGUS;
            line.says(cuStreamEndCapture(from, &mut ended));
            line.value("ended", named(ended, &[("child", child)]));
        }
        line.value("nodes", nodes(child).len());
        runs(line, "run", root);
        line.value("words", format!("{:?}", [0, 4].map(|to| word(at + to))));
    }),
    alone!("graph/move/updated_in_an_executable", |line| {
        context();
        let (root, at, stream) = (graph(), memory(4), stream());
        let ((old, old_gone), (new, new_gone)) = (owning(at, 1), owning(at, 2));
        let (node, inner) = (move_child(root, &[], old), nodes(old)[0]);
        let exec = instantiate(root);
        line.says(cuGraphExecChildGraphNodeSetParams(exec, node, new));
        line.says_as("new", cuGraphDestroy(new));
        launches(line, "run", exec, stream);
        line.value("word", word(at));
        let set = cuGraphExecMemsetNodeSetParams(exec, inner, &word_fill(at, 3), current());
        line.says(set);
        launches(line, "inner", exec, stream);
        line.value("word", word(at));
        destroyed(line, "old", old_gone);
        line.says_as("root", cuGraphDestroy(root));
        destroyed(line, "old", old_gone);
        destroyed(line, "new", new_gone);
        line.says(cuGraphExecDestroy(exec));
        destroyed(line, "new", new_gone);
    }),
    alone!("graph/move/whole_update_from_its_parent", |line| {
        context();
        let (first, second, at) = (graph(), graph(), memory(4));
        let ((copied, copied_gone), (moved, moved_gone)) = (owning(at, 1), owning(at, 2));
        add_child(first, &[], copied);
        cuGraphDestroy(copied).must();
        move_child(second, &[], moved);
        let (exec, mut info) = (instantiate(first), UpdateInfo::default());
        line.says(cuGraphExecUpdate_v2(exec, second, &mut info));
        line.value("told", info.result);
        line.says_as("first", cuGraphDestroy(first));
        line.says_as("second", cuGraphDestroy(second));
        destroyed(line, "copied", copied_gone);
        destroyed(line, "moved", moved_gone);
        launches(line, "run", exec, stream());
        line.value("word", word(at));
        line.says(cuGraphExecDestroy(exec));
        destroyed(line, "moved", moved_gone);
    }),
    alone!("graph/move_risky/twice", |line| {
        context();
        let (root, other, child) = (graph(), graph(), graph());
        add_empty(child, &[]);
        let node = move_child(root, &[], child);
        line.says_as("same_parent", embed(root, &[], child, MOVE).0);
        line.says_as("other_parent", embed(other, &[], child, MOVE).0);
        line.value(
            "nodes",
            [root, other]
                .map(|graph| nodes(graph).len().to_string())
                .concat(),
        );
        line.value("own", named(child_of(node), &[("same", child)]));
        runs(line, "run", root);
    }),
    alone!("graph/move_risky/copied_elsewhere", |line| {
        context();
        let (root, other, child) = (graph(), graph(), graph());
        add_empty(child, &[]);
        move_child(root, &[], child);
        for (what, into) in [("same_parent", root), ("other_parent", other)] {
            let (answer, node) = embed(into, &[], child, 0);
            if line.says_as(what, answer) {
                line.value("own", named(child_of(node), &[("same", child)]));
            }
            let answer = cuGraphAddChildGraphNode(&mut 0, into, NONE, 0, child);
            line.says_as(format!("{what}_typed"), answer);
        }
        runs(line, "run", root);
    }),
    alone!("graph/move_risky/copy_of_a_node", |line| {
        context();
        let (root, other) = (graph(), graph());
        let node = add_child(root, &[], graph());
        let own = child_of(node);
        line.says_as("other_parent", embed(other, &[], own, MOVE).0);
        line.says_as("same_parent", embed(root, &[], own, MOVE).0);
        line.value(
            "nodes",
            [root, other]
                .map(|graph| nodes(graph).len().to_string())
                .concat(),
        );
        runs(line, "run", root);
    }),
    alone!("graph/move_risky/body_into_its_root", |line| {
        context();
        let root = graph();
        let (_, body) = add_single(root, &[], condition(root, 0), IF);
        line.says(embed(root, &[], body, MOVE).0);
    }),
    alone!("graph/move_risky/under_capture", |line| {
        context();
        let (root, at, from) = (graph(), memory(4), stream());
        begin(from, 1);
        launch_store(function(c"store"), from, at, 7).must();
        let child = graph_of(from);
        line.says(embed(root, &[], child, MOVE).0);
        line.value("status", status(from));
        let mut ended = BOGUS;
        line.says(cuStreamEndCapture(from, &mut ended));
        line.value("ended", named(ended, &[("child", child)]));
        runs(line, "run", root);
        line.value("word", word(at));
    }),
    alone!(
        "graph/move_risky/null_and_unknown_ownership_of_memory",
        |line| {
            context();
            let (root, child) = (graph(), graph());
            fill_with(child, "alloc_free", 0);
            line.says_as("null", embed(root, &[], 0, MOVE).0);
            for ownership in [0, 2, u32::MAX] {
                line.says_as(ownership as i32, embed(root, &[], child, ownership).0);
            }
            line.value("nodes", nodes(root).len());
        }
    ),
    alone!("graph/move_risky/set_copy_over_copy", |line| {
        set_node(line, false, 0)
    }),
    alone!("graph/move_risky/set_move_over_copy", |line| {
        set_node(line, false, MOVE)
    }),
    alone!("graph/move_risky/set_copy_over_move", |line| {
        set_node(line, true, 0)
    }),
    alone!("graph/move_risky/set_move_over_move", |line| {
        set_node(line, true, MOVE)
    }),
    alone!("graph/move_risky/executable_set_with_move", |line| {
        context();
        let (root, at) = (graph(), memory(4));
        let ((old, old_gone), (new, new_gone)) = (owning(at, 1), owning(at, 2));
        let node = add_child(root, &[], old);
        cuGraphDestroy(old).must();
        let exec = instantiate(root);
        let mut params = node_params(4, &[new as u64, 1]);
        line.says(cuGraphExecNodeSetParams(exec, node, &mut params));
        line.value("own", named(child_of(node), &[("new", new)]));
        launches(line, "run", exec, stream());
        line.value("word", word(at));
        is_the_programs(line, "new", new);
        destroyed(line, "new", new_gone);
        line.says_as("root", cuGraphDestroy(root));
        destroyed(line, "old", old_gone);
        line.says(cuGraphExecDestroy(exec));
        destroyed(line, "new", new_gone);
    }),
    alone!(
        "graph/move_risky/executable_set_from_a_moved_graph",
        |line| {
            context();
            let (root, other, at) = (graph(), graph(), memory(4));
            let ((old, _), (new, new_gone)) = (owning(at, 1), owning(at, 2));
            let node = add_child(root, &[], old);
            move_child(other, &[], new);
            let exec = instantiate(root);
            line.says(cuGraphExecChildGraphNodeSetParams(exec, node, new));
            line.says_as("other", cuGraphDestroy(other));
            destroyed(line, "new", new_gone);
            launches(line, "run", exec, stream());
            line.value("word", word(at));
            line.says(cuGraphExecDestroy(exec));
            destroyed(line, "new", new_gone);
        }
    ),
];
