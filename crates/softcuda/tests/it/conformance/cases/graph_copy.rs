//! Copy nodes.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use super::graph_run::runs;
use crate::conformance::api::*;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::Copy3d;
use crate::graphs::api::*;

/// Adds a node that depends on nothing.
unsafe fn add(graph: Handle, copy: &Copy3d) -> Answer {
    cuGraphAddMemcpyNode(&mut 0, graph, NONE, 0, copy, current())
}

/// From host memory to the device.
fn from_host(to: u64, from: *const c_void, bytes: usize) -> Copy3d {
    Copy3d {
        src_kind: 1,
        src_host: from,
        ..line_copy(to, 0, bytes)
    }
}

/// From the device to host memory.
fn to_host(to: *mut c_void, from: u64, bytes: usize) -> Copy3d {
    Copy3d {
        dst_kind: 1,
        dst_host: to,
        ..line_copy(0, from, bytes)
    }
}

pub const CASES: &[Case] = &[
    case!("graph/copy/right", |line| {
        context();
        let (graph, from, to) = (graph(), memory(64), memory(64));
        fill_words(from, 7, 16);
        fill_words(to, 0, 16);
        line.says(add(graph, &line_copy(to, from, 4)));
        runs(line, "right", graph);
        line.value("words", format!("{} {}", word(to), word(to + 4)));
    }),
    case!("graph/copy/null", |line| {
        context();
        let (graph, copy) = (graph(), line_copy(memory(4), memory(4), 4));
        line.says_as(
            "params",
            cuGraphAddMemcpyNode(&mut 0, graph, NONE, 0, null(), current()),
        );
        line.says_as(
            "out",
            cuGraphAddMemcpyNode(null_mut(), graph, NONE, 0, &copy, current()),
        );
        line.says_as("graph", add(0, &copy));
        line.says_as(
            "context",
            cuGraphAddMemcpyNode(&mut 0, graph, NONE, 0, &copy, 0),
        );
        line.value("nodes", nodes(graph).len());
        cuCtxSetCurrent(0).must();
        line.says_as(
            "no_context",
            cuGraphAddMemcpyNode(&mut 0, graph, NONE, 0, &copy, 0),
        );
    }),
    case!("graph/copy/without_context", |line| {
        let context = context();
        let (graph, from, to) = (graph(), memory(4), memory(4));
        fill_words(from, 7, 1);
        cuCtxSetCurrent(0).must();
        let copy = line_copy(to, from, 4);
        line.says(cuGraphAddMemcpyNode(&mut 0, graph, NONE, 0, &copy, 0));
        cuCtxSetCurrent(context).must();
        runs(line, "run", graph);
        line.value("word", word(to));
    }),
    alone!("graph/copy/bogus_context", |line| {
        context();
        let (graph, copy) = (graph(), line_copy(memory(4), memory(4), 4));
        line.says(cuGraphAddMemcpyNode(&mut 0, graph, NONE, 0, &copy, BOGUS));
    }),
    case!("graph/copy/host", |line| {
        context();
        let (mut source, mut target) = (Box::new(5u32), Box::new(0u32));
        let (graph, pointer) = (graph(), memory(4));
        line.says_as("in", add(graph, &from_host(pointer, void(&mut *source), 4)));
        let last = nodes(graph)[0];
        let out = to_host(void(&mut *target), pointer, 4);
        let answer = cuGraphAddMemcpyNode(&mut 0, graph, &last, 1, &out, current());
        line.says_as("out", answer);
        // What is there when it runs, not when it was made.
        *source = 6;
        runs(line, "both", graph);
        line.value("target", *target);
    }),
    case!("graph/copy/host_to_host", |line| {
        context();
        let (mut source, mut target) = (Box::new(5u32), Box::new(0u32));
        let graph = graph();
        let copy = Copy3d {
            src_kind: 1,
            src_host: void(&mut *source),
            ..to_host(void(&mut *target), 0, 4)
        };
        line.says(add(graph, &copy));
        runs(line, "run", graph);
        line.value("target", *target);
    }),
    case!("graph/copy/null_pointers", |line| {
        context();
        let (graph, pointer) = (graph(), memory(4));
        line.says_as("device_from", add(graph, &line_copy(pointer, 0, 4)));
        line.says_as("device_to", add(graph, &line_copy(0, pointer, 4)));
        line.says_as("host_from", add(graph, &from_host(pointer, null(), 4)));
        line.says_as("host_to", add(graph, &to_host(null_mut(), pointer, 4)));
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/copy/unified", |line| {
        context();
        let (graph, pointer, mut word) = (graph(), memory(4), Box::new(3u32));
        let managed = managed(4);
        let unified = |to, from| Copy3d {
            src_kind: 4,
            dst_kind: 4,
            ..line_copy(to, from, 4)
        };
        line.says_as("device", add(graph, &unified(pointer, pointer)));
        line.says_as("pinned", add(graph, &unified(pointer, pinned(4) as u64)));
        line.says_as("managed", add(graph, &unified(managed, pointer)));
        line.says_as(
            "pageable",
            add(graph, &unified(pointer, void(&mut *word) as u64)),
        );
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/copy/pinned_as_device", |line| {
        context();
        let (graph, pointer, host) = (graph(), memory(4), pinned(4));
        *host.cast::<u32>() = 9;
        line.says(add(graph, &line_copy(pointer, host as u64, 4)));
        runs(line, "run", graph);
        line.value("word", word(pointer));
        let mut got = line_copy(0, 0, 0);
        let node = nodes(graph)[0];
        line.says(cuGraphMemcpyNodeGetParams(node, &mut got));
        line.value("kinds", format!("{} {}", got.src_kind, got.dst_kind));
    }),
    case!("graph/copy/nothing", |line| {
        context();
        let (graph, from, to) = (graph(), memory(4), memory(4));
        let right = line_copy(to, from, 4);
        line.says_as("width", add(graph, &Copy3d { width: 0, ..right }));
        line.says_as("height", add(graph, &Copy3d { height: 0, ..right }));
        line.says_as("depth", add(graph, &Copy3d { depth: 0, ..right }));
        let all = Copy3d {
            width: 0,
            height: 0,
            depth: 0,
            ..right
        };
        line.says_as("all", add(graph, &all));
        line.value("nodes", nodes(graph).len());
        runs(line, "run", graph);
    }),
    case!("graph/copy/kinds", |line| {
        context();
        let (graph, from, to) = (graph(), memory(4), memory(4));
        let right = line_copy(to, from, 4);
        for kind in [0, 3, 5] {
            line.says_as(
                format!("from_{kind}"),
                add(
                    graph,
                    &Copy3d {
                        src_kind: kind,
                        ..right
                    },
                ),
            );
            line.says_as(
                format!("to_{kind}"),
                add(
                    graph,
                    &Copy3d {
                        dst_kind: kind,
                        ..right
                    },
                ),
            );
        }
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/copy/bogus_device_address", |line| {
        context();
        let (graph, pointer) = (graph(), memory(4));
        line.says_as("from", add(graph, &line_copy(pointer, WILD, 4)));
        line.says_as("to", add(graph, &line_copy(WILD, pointer, 4)));
        let freed = memory(4 << 20);
        cuMemFree_v2(freed).must();
        line.says_as("freed", add(graph, &line_copy(pointer, freed, 4)));
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/copy/too_long", |line| {
        context();
        let (graph, from, to) = (graph(), memory(4 << 20), memory(4 << 20));
        line.says_as("both", add(graph, &line_copy(to, from, (4 << 20) + 1)));
        line.says_as("start", add(graph, &line_copy(to, from + 1, 4 << 20)));
        line.says_as("huge", add(graph, &line_copy(to, from, usize::MAX)));
        line.value("nodes", nodes(graph).len());
    }),
    alone!("graph/copy/freed_before_launch", |line| {
        context();
        let (graph, from, to) = (graph(), memory(4 << 20), memory(4 << 20));
        add(graph, &line_copy(to, from, 4)).must();
        let (exec, stream) = (instantiate(graph), stream());
        cuMemFree_v2(from).must();
        line.says(cuGraphLaunch(exec, stream));
        line.says(cuStreamSynchronize(stream));
    }),
    case!("graph/copy/pitch", |line| {
        context();
        let (graph, from, to) = (graph(), memory(4096), memory(4096));
        let rows = Copy3d {
            height: 4,
            ..line_copy(to, from, 64)
        };
        line.says_as("none", add(graph, &rows));
        line.says_as(
            "small",
            add(
                graph,
                &Copy3d {
                    src_pitch: 32,
                    dst_pitch: 64,
                    ..rows
                },
            ),
        );
        line.says_as(
            "right",
            add(
                graph,
                &Copy3d {
                    src_pitch: 64,
                    dst_pitch: 128,
                    ..rows
                },
            ),
        );
        let line_pitch = Copy3d {
            src_pitch: 1,
            dst_pitch: 1,
            ..line_copy(to, from, 64)
        };
        line.says_as("line_small", add(graph, &line_pitch));
        let deep = Copy3d {
            src_pitch: 64,
            dst_pitch: 64,
            depth: 2,
            ..rows
        };
        line.says_as("no_height", add(graph, &deep));
        line.says_as(
            "low",
            add(
                graph,
                &Copy3d {
                    src_height: 2,
                    dst_height: 4,
                    ..deep
                },
            ),
        );
        line.says_as(
            "deep",
            add(
                graph,
                &Copy3d {
                    src_height: 4,
                    dst_height: 8,
                    ..deep
                },
            ),
        );
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/copy/rows", |line| {
        context();
        let (graph, from, to) = (graph(), memory(256), memory(256));
        for at in 0..64 {
            fill_words(from + at * 4, at as u32, 1);
        }
        fill_words(to, 0, 64);
        let copy = Copy3d {
            src_x: 4,
            src_y: 1,
            src_pitch: 16,
            dst_x: 8,
            dst_pitch: 32,
            height: 2,
            ..line_copy(to, from, 8)
        };
        line.says(add(graph, &copy));
        runs(line, "run", graph);
        let words = [0, 8, 12, 16, 40, 44].map(|at| word(to + at));
        line.value("words", format!("{words:?}"));
    }),
    case!("graph/copy/level_of_detail", |line| {
        context();
        let (graph, right) = (graph(), line_copy(memory(4), memory(4), 4));
        line.says_as(
            "from",
            add(
                graph,
                &Copy3d {
                    src_lod: 1,
                    ..right
                },
            ),
        );
        line.says_as(
            "to",
            add(
                graph,
                &Copy3d {
                    dst_lod: 1,
                    ..right
                },
            ),
        );
        line.says_as(
            "reserved",
            add(
                graph,
                &Copy3d {
                    reserved_0: 1,
                    ..right
                },
            ),
        );
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/copy/overlap", |line| {
        context();
        let (graph, pointer) = (graph(), memory(4096));
        line.says_as("part", add(graph, &line_copy(pointer + 8, pointer, 64)));
        line.says_as("same", add(graph, &line_copy(pointer, pointer, 64)));
        runs(line, "run", graph);
    }),
    case!("graph/copy/get", |line| {
        context();
        let (graph, from, to) = (graph(), memory(4096), memory(4096));
        let copy = Copy3d {
            src_x: 3,
            src_pitch: 64,
            dst_pitch: 128,
            src_height: 5,
            dst_height: 6,
            height: 2,
            ..line_copy(to, from, 16)
        };
        let node = add_copy(graph, &[], &copy);
        let mut got = line_copy(1, 1, 1);
        line.says(cuGraphMemcpyNodeGetParams(node, &mut got));
        line.value("addresses", (got.src_device, got.dst_device) == (from, to));
        line.value("kinds", format!("{} {}", got.src_kind, got.dst_kind));
        line.value("at", format!("{} {}", got.src_x, got.dst_x));
        line.value("pitches", format!("{} {}", got.src_pitch, got.dst_pitch));
        line.value("heights", format!("{} {}", got.src_height, got.dst_height));
        line.value(
            "extent",
            format!("{} {} {}", got.width, got.height, got.depth),
        );
        line.says_as("out", cuGraphMemcpyNodeGetParams(node, null_mut()));
        let other = add_empty(graph, &[]);
        line.says_as("kind", cuGraphMemcpyNodeGetParams(other, &mut got));
        line.says_as("node", cuGraphMemcpyNodeGetParams(0, &mut got));
    }),
    case!("graph/copy/set", |line| {
        context();
        let (graph, from, to) = (graph(), memory(4096), memory(4096));
        let mut source = Box::new(5u32);
        let (node, other) = (
            add_copy(graph, &[], &line_copy(to, from, 16)),
            add_empty(graph, &[]),
        );
        let right = line_copy(to, from, 4);
        line.says_as("right", cuGraphMemcpyNodeSetParams(node, &right));
        let host = from_host(to, void(&mut *source), 4);
        line.says_as("direction", cuGraphMemcpyNodeSetParams(node, &host));
        line.says_as(
            "nothing",
            cuGraphMemcpyNodeSetParams(node, &Copy3d { width: 0, ..right }),
        );
        line.says_as("kind", cuGraphMemcpyNodeSetParams(other, &right));
        line.says_as("null", cuGraphMemcpyNodeSetParams(node, null()));
        line.says_as("node", cuGraphMemcpyNodeSetParams(0, &right));
    }),
];
