//! User objects of executables: which of them an update takes over, and which it lets go of.

use std::sync::atomic::AtomicU32;

use super::graph_move::{child_of, move_child};
use super::graph_run::launches;
use super::graph_user_object::{MOVE, destroyed, object};
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone};
use crate::conformance::fixture::*;
use crate::graphs::api::*;
use crate::graphs::conditions::*;

/// A graph that has the only reference of an object, and one node.
unsafe fn owning() -> (Handle, &'static AtomicU32) {
    let (graph, (object, gone)) = (graph(), object(1));
    cuGraphRetainUserObject(graph, object, 1, MOVE).must();
    add_fill(graph, &[], memory(4), 1);
    (graph, gone)
}

/// The same around a copy of another graph, which is gone then.
unsafe fn owning_around(inner: Handle) -> (Handle, &'static AtomicU32) {
    let (graph, (object, gone)) = (graph(), object(1));
    cuGraphRetainUserObject(graph, object, 1, MOVE).must();
    add_child(graph, &[], inner);
    cuGraphDestroy(inner).must();
    (graph, gone)
}

/// Updates a child graph's node of an executable, by either function.
unsafe fn set_child(exec: Handle, node: Handle, child: Handle, any: bool) -> Answer {
    match any {
        false => cuGraphExecChildGraphNodeSetParams(exec, node, child),
        true => cuGraphExecNodeSetParams(exec, node, &mut node_params(4, &[child as u64, 0])),
    }
}

/// A child's update, with everything else gone before it is looked at.
unsafe fn child(line: &mut Line, in_body: bool, any: bool) {
    context();
    let (root, (old, old_gone), (new, new_gone)) = (graph(), owning(), owning());
    let into = match in_body {
        false => root,
        true => add_single(root, &[], condition(root, 1), IF).1,
    };
    let node = add_child(into, &[], old);
    cuGraphDestroy(old).must();
    let exec = instantiate(root);
    line.says(set_child(exec, node, new, any));
    line.says_as("new", cuGraphDestroy(new));
    destroyed(line, "old_with_root", old_gone);
    destroyed(line, "new_with_exec", new_gone);
    line.says_as("root", cuGraphDestroy(root));
    destroyed(line, "old", old_gone);
    launches(line, "run", exec, stream());
    destroyed(line, "new_after_run", new_gone);
    line.says(cuGraphExecDestroy(exec));
    destroyed(line, "new", new_gone);
    destroyed(line, "old_at_last", old_gone);
}

pub const CASES: &[Case] = &[
    alone!("graph/object/exec_child", |line| {
        child(line, false, false)
    }),
    alone!("graph/object/exec_child_any", |line| {
        child(line, false, true)
    }),
    alone!("graph/object/exec_child_in_a_body", |line| {
        child(line, true, false)
    }),
    alone!("graph/object/exec_child_in_a_body_any", |line| {
        child(line, true, true)
    }),
    alone!("graph/object/exec_child_in_flight", |line| {
        context();
        let (root, stream) = (graph(), stream());
        let ((old, old_gone), (new, new_gone)) = (owning(), owning());
        let node = add_child(root, &[], old);
        let exec = instantiate(root);
        let gate = Gate::close(stream);
        cuGraphLaunch(exec, stream).must();
        line.says(cuGraphExecChildGraphNodeSetParams(exec, node, new));
        for graph in [old, new] {
            cuGraphDestroy(graph).must();
        }
        line.says(cuGraphDestroy(root));
        destroyed(line, "in_flight", old_gone);
        gate.open();
        line.says(cuStreamSynchronize(stream));
        destroyed(line, "over", old_gone);
        destroyed(line, "new", new_gone);
        line.says(cuGraphExecDestroy(exec));
        destroyed(line, "new", new_gone);
    }),
    alone!("graph/object/exec_child_refused", |line| {
        context();
        let (root, (old, old_gone), (new, new_gone)) = (graph(), owning(), owning());
        let node = add_child(root, &[], old);
        add_empty(new, &[]);
        let exec = instantiate(root);
        line.says(cuGraphExecChildGraphNodeSetParams(exec, node, new));
        for graph in [old, new, root] {
            cuGraphDestroy(graph).must();
        }
        destroyed(line, "new", new_gone);
        destroyed(line, "old", old_gone);
        line.says(cuGraphExecDestroy(exec));
        destroyed(line, "old", old_gone);
    }),
    alone!("graph/object/exec_child_beside_another", |line| {
        context();
        let (root, (old, old_gone), (other, other_gone)) = (graph(), owning(), owning());
        let ((new, new_gone), (top, top_gone)) = (owning(), object(1));
        cuGraphRetainUserObject(root, top, 1, MOVE).must();
        let node = add_child(root, &[], old);
        add_child(root, &[], other);
        let exec = instantiate(root);
        line.says(cuGraphExecChildGraphNodeSetParams(exec, node, new));
        for graph in [old, other, new, root] {
            cuGraphDestroy(graph).must();
        }
        let all = [
            ("old", old_gone),
            ("other", other_gone),
            ("top", top_gone),
            ("new", new_gone),
        ];
        for (what, gone) in all {
            destroyed(line, what, gone);
        }
        line.says(cuGraphExecDestroy(exec));
        for (what, gone) in all {
            destroyed(line, what, gone);
        }
    }),
    alone!("graph/object/exec_child_again_and_again", |line| {
        context();
        let (root, (old, old_gone)) = (graph(), owning());
        let node = add_child(root, &[], old);
        let exec = instantiate(root);
        cuGraphDestroy(old).must();
        let [(first, first_gone), (second, second_gone)] = [owning(), owning()];
        line.says_as(
            "first",
            cuGraphExecChildGraphNodeSetParams(exec, node, first),
        );
        cuGraphDestroy(first).must();
        destroyed(line, "first", first_gone);
        line.says_as(
            "second",
            cuGraphExecChildGraphNodeSetParams(exec, node, second),
        );
        cuGraphDestroy(second).must();
        destroyed(line, "first", first_gone);
        destroyed(line, "second", second_gone);
        let own = cuGraphExecChildGraphNodeSetParams(exec, node, child_of(node));
        line.says_as("own", own);
        destroyed(line, "second", second_gone);
        line.says(cuGraphDestroy(root));
        destroyed(line, "old", old_gone);
        line.says(cuGraphExecDestroy(exec));
        destroyed(line, "old", old_gone);
    }),
    alone!("graph/object/exec_child_of_the_same_object", |line| {
        context();
        let (root, old, new, (object, gone)) = (graph(), graph(), graph(), object(1));
        for graph in [old, new] {
            cuGraphRetainUserObject(graph, object, 1, 0).must();
            add_empty(graph, &[]);
        }
        cuUserObjectRelease(object, 1).must();
        let node = add_child(root, &[], old);
        let exec = instantiate(root);
        line.says(cuGraphExecChildGraphNodeSetParams(exec, node, new));
        for graph in [old, new, root] {
            cuGraphDestroy(graph).must();
        }
        destroyed(line, "early", gone);
        line.says(cuGraphExecDestroy(exec));
        destroyed(line, "destroyed", gone);
    }),
    alone!("graph/object/exec_grandchild", |line| {
        context();
        let root = graph();
        let (inner, inner_gone) = owning();
        let (outer, outer_gone) = owning_around(inner);
        let (new, new_gone) = owning();
        let node = add_child(root, &[], outer);
        let grandchild = nodes(child_of(node))[0];
        cuGraphDestroy(outer).must();
        let exec = instantiate(root);
        line.says(cuGraphExecChildGraphNodeSetParams(exec, grandchild, new));
        line.says_as("new", cuGraphDestroy(new));
        line.says_as("root", cuGraphDestroy(root));
        destroyed(line, "inner", inner_gone);
        destroyed(line, "outer", outer_gone);
        destroyed(line, "new", new_gone);
        line.says(cuGraphExecDestroy(exec));
        destroyed(line, "outer", outer_gone);
        destroyed(line, "new", new_gone);
    }),
    alone!("graph/object/exec_child_with_grandchild", |line| {
        context();
        let root = graph();
        let [(inner, inner_gone), (new_inner, new_inner_gone)] = [owning(), owning()];
        let (outer, outer_gone) = owning_around(inner);
        let (new_outer, new_outer_gone) = owning_around(new_inner);
        let (last, last_gone) = owning();
        let node = add_child(root, &[], outer);
        let grandchild = nodes(child_of(node))[0];
        cuGraphDestroy(outer).must();
        let exec = instantiate(root);
        line.says(cuGraphExecChildGraphNodeSetParams(exec, node, new_outer));
        line.says_as("new", cuGraphDestroy(new_outer));
        destroyed(line, "new_inner", new_inner_gone);
        destroyed(line, "new_outer", new_outer_gone);
        let set = cuGraphExecChildGraphNodeSetParams(exec, grandchild, last);
        line.says_as("grandchild", set);
        line.says_as("last", cuGraphDestroy(last));
        destroyed(line, "new_inner", new_inner_gone);
        destroyed(line, "new_outer", new_outer_gone);
        line.says_as("root", cuGraphDestroy(root));
        let all = [
            ("inner", inner_gone),
            ("outer", outer_gone),
            ("new_outer", new_outer_gone),
            ("last", last_gone),
        ];
        for (what, gone) in all {
            destroyed(line, what, gone);
        }
        line.says(cuGraphExecDestroy(exec));
        for (what, gone) in all {
            destroyed(line, what, gone);
        }
    }),
    alone!("graph/object/exec_child_moved_within", |line| {
        context();
        let (root, (old, old_gone)) = (graph(), owning());
        let ((inner, inner_gone), outer) = (owning(), graph());
        let around = graph();
        add_child(around, &[], old);
        let node = add_child(root, &[], around);
        cuGraphDestroy(old).must();
        cuGraphDestroy(around).must();
        move_child(outer, &[], inner);
        let exec = instantiate(root);
        line.says(cuGraphExecChildGraphNodeSetParams(exec, node, outer));
        line.says_as("outer", cuGraphDestroy(outer));
        line.says_as("root", cuGraphDestroy(root));
        destroyed(line, "old", old_gone);
        destroyed(line, "inner", inner_gone);
        line.says(cuGraphExecDestroy(exec));
        destroyed(line, "inner", inner_gone);
    }),
    alone!("graph/object/exec_update", |line| {
        context();
        let ((old, old_gone), (new, new_gone)) = (owning(), owning());
        let exec = instantiate(old);
        line.says(cuGraphExecUpdate_v2(exec, new, &mut UpdateInfo::default()));
        line.says_as("old", cuGraphDestroy(old));
        line.says_as("new", cuGraphDestroy(new));
        destroyed(line, "old", old_gone);
        destroyed(line, "new", new_gone);
        line.says(cuGraphExecDestroy(exec));
        destroyed(line, "new", new_gone);
    }),
    alone!("graph/object/exec_update_after_a_child", |line| {
        context();
        let [(old, old_gone), (set, set_gone), (new, new_gone)] = [owning(), owning(), owning()];
        let [first, second] = [graph(), graph()];
        let node = add_child(first, &[], old);
        add_child(second, &[], new);
        let exec = instantiate(first);
        line.says(cuGraphExecChildGraphNodeSetParams(exec, node, set));
        line.says(cuGraphExecUpdate_v2(
            exec,
            second,
            &mut UpdateInfo::default(),
        ));
        for graph in [old, set, new, first, second] {
            cuGraphDestroy(graph).must();
        }
        destroyed(line, "old", old_gone);
        destroyed(line, "set", set_gone);
        destroyed(line, "new", new_gone);
        line.says(cuGraphExecDestroy(exec));
        destroyed(line, "new", new_gone);
    }),
];
