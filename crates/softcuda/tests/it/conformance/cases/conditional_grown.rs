//! Graphs that get conditional nodes when there is something in them already: memory nodes, graphs
//! inside, an executable.

use super::graph_move::{child_of, move_child};
use super::graph_run::launches;
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line};
use crate::conformance::fixture::*;
use crate::graphs::api::*;
use crate::graphs::conditions::*;

/// A graph, the one in it that grows, and the node that comes before what is added.
unsafe fn old(holder: &str) -> (Handle, Handle, Handle) {
    let root = graph();
    let inside = |graph: Handle| (root, graph, add_empty(graph, &[]));
    match holder {
        "top" => inside(root),
        "memory" => {
            let (alloc, address) = add_alloc(root, &[], 64);
            let fill = add_fill(root, &[alloc], address, 3);
            (root, root, add_free(root, &[fill], address))
        }
        "beside_memory" => {
            let (alloc, address) = add_alloc(root, &[], 64);
            add_free(root, &[alloc], address);
            inside(root)
        }
        "child" => inside(child_of(add_child(root, &[], graph()))),
        "moved" => inside(child_of(move_child(root, &[], graph()))),
        "embedded" | "embedded_gone" => {
            let (other, old) = (graph(), inside(root));
            add_child(other, &[], root);
            if holder == "embedded_gone" {
                cuGraphDestroy(other).must();
            }
            old
        }
        "cloned" | "cloned_gone" => {
            let (mut clone, old) = (0, inside(root));
            cuGraphClone(&mut clone, root).must();
            if holder == "cloned_gone" {
                cuGraphDestroy(clone).must();
            }
            old
        }
        "clone" => {
            let mut clone = 0;
            add_empty(root, &[]);
            cuGraphClone(&mut clone, root).must();
            (clone, clone, nodes(clone)[0])
        }
        other => panic!("no holder {other}"),
    }
}

/// Adds something that fills the word.
unsafe fn grow(content: &str, root: Handle, graph: Handle, before: Handle, at: u64) {
    let filled = || {
        let inner = crate::graphs::api::graph();
        add_fill(inner, &[], at, 4);
        inner
    };
    let branch = |on: &[Handle], kind: u32| {
        let (node, body) = add_single(graph, on, condition(root, u32::from(kind == IF)), kind);
        add_fill(body, &[], at, 5);
        node
    };
    match content {
        "if" => drop(branch(&[before], IF)),
        "while" => drop(branch(&[before], WHILE)),
        "while_beside_others" => {
            let empty = add_empty(graph, &[before]);
            let node = branch(&[before], WHILE);
            add_fill(graph, &[empty, node], at, 6);
        }
        "moved_then_while" => {
            let node = move_child(graph, &[before], filled());
            branch(&[node], WHILE);
        }
        "while_then_moved" => {
            let node = branch(&[before], WHILE);
            move_child(graph, &[node], filled());
        }
        "child_then_if" => {
            let node = add_child(graph, &[before], filled());
            branch(&[node], IF);
        }
        "kernels" | "kernels_moved" | "kernels_beside" => {
            let kernels = Kernels::load();
            let mut before = vec![before];
            if content == "kernels_moved" {
                let inner = crate::graphs::api::graph();
                kernels.count(inner, &[], at);
                before = vec![move_child(graph, &before, inner)];
            }
            let zero = memory(4);
            fill_words(zero, 0, 1);
            let condition = condition(root, 0);
            let set = kernels.set_from(graph, &before, condition, zero);
            let (node, body) = add_single(graph, &[set], condition, WHILE);
            let count = kernels.count(body, &[], at);
            kernels.set_from(body, &[count], condition, zero);
            let mut last = vec![node];
            if content == "kernels_beside" {
                last.push(add_empty(graph, &before));
            }
            kernels.count(graph, &last, at);
        }
        "host_then_if" => {
            unsafe extern "C" fn nothing(_: *mut std::ffi::c_void) {}
            let node = add_host(graph, &[before], Some(nothing), std::ptr::null_mut());
            branch(&[node], IF);
        }
        other => panic!("no content {other}"),
    }
}

/// Instantiates, runs, and instantiates anew. `earlier`: it was instantiated before it grew.
unsafe fn grown(line: &mut Line, holder: &str, content: &str, earlier: bool) {
    context();
    let at = memory(4);
    fill_words(at, 77, 1);
    let (root, grows, before) = old(holder);
    if earlier {
        cuGraphExecDestroy(instantiate(root)).must();
    }
    grow(content, root, grows, before, at);
    for what in ["first", "second"] {
        let (mut exec, mut params) = (0, InstantiateParams::default());
        let answer = cuGraphInstantiateWithParams(&mut exec, root, &mut params);
        let made = line.says_as(what, answer);
        line.value("result", params.result);
        if made {
            launches(line, "run", exec, stream());
            line.value("word", word(at));
            line.says(cuGraphExecDestroy(exec));
        }
    }
}

/// Cases for each holder and content, without and with an executable before.
macro_rules! grown {
    ($($holder:literal: $($content:literal)*;)*) => {
        &[$($(
            grown!(@ $holder, $content, "new", false),
            grown!(@ $holder, $content, "instantiated", true),
        )*)*]
    };
    (@ $holder:literal, $content:literal, $when:literal, $earlier:literal) => {
        Case {
            name: concat!("conditional/grown_", $when, "/", $holder, "_", $content),
            alone: true,
            devices: 1,
            ask: {
                unsafe fn ask(line: &mut Line) {
                    grown(line, $holder, $content, $earlier)
                }
                ask
            },
        }
    };
}

pub const CASES: &[Case] = grown! {
    "top": "kernels" "if" "while_beside_others" "moved_then_while" "while_then_moved" "child_then_if";
    "memory": "kernels" "kernels_moved" "kernels_beside" "host_then_if" "if" "while" "while_beside_others" "moved_then_while" "while_then_moved" "child_then_if";
    "beside_memory": "if" "while_beside_others" "moved_then_while";
    "child": "kernels" "kernels_moved" "kernels_beside" "host_then_if" "if" "while" "while_beside_others" "moved_then_while" "while_then_moved" "child_then_if";
    "moved": "if" "while" "moved_then_while" "child_then_if";
    "embedded": "if" "kernels_moved";
    "embedded_gone": "if";
    "cloned": "if" "kernels_moved";
    "cloned_gone": "if";
    "clone": "if";
};
