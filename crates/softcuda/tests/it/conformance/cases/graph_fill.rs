//! Fill nodes.

use std::ptr::{null, null_mut};

use super::graph_run::runs;
use crate::conformance::api::*;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

unsafe fn add(graph: Handle, fill: &FillParams) -> Answer {
    cuGraphAddMemsetNode(&mut 0, graph, NONE, 0, fill, current())
}

pub const CASES: &[Case] = &[
    case!("graph/fill/right", |line| {
        context();
        let (graph, pointer) = (graph(), memory(64));
        fill_words(pointer, 0, 16);
        line.says(add(graph, &word_fill(pointer + 4, 7)));
        runs(line, "run", graph);
        line.value(
            "words",
            format!(
                "{} {} {}",
                word(pointer),
                word(pointer + 4),
                word(pointer + 8)
            ),
        );
    }),
    case!("graph/fill/null", |line| {
        context();
        let (graph, fill) = (graph(), word_fill(memory(4), 1));
        line.says_as(
            "params",
            cuGraphAddMemsetNode(&mut 0, graph, NONE, 0, null(), current()),
        );
        line.says_as(
            "out",
            cuGraphAddMemsetNode(null_mut(), graph, NONE, 0, &fill, current()),
        );
        line.says_as("graph", add(0, &fill));
        line.says_as(
            "context",
            cuGraphAddMemsetNode(&mut 0, graph, NONE, 0, &fill, 0),
        );
        line.value("nodes", nodes(graph).len());
        cuCtxSetCurrent(0).must();
        line.says_as(
            "no_context",
            cuGraphAddMemsetNode(&mut 0, graph, NONE, 0, &fill, 0),
        );
    }),
    case!("graph/fill/without_context", |line| {
        let context = context();
        let (graph, to) = (graph(), memory(4));
        cuCtxSetCurrent(0).must();
        line.says(cuGraphAddMemsetNode(
            &mut 0,
            graph,
            NONE,
            0,
            &word_fill(to, 7),
            0,
        ));
        cuCtxSetCurrent(context).must();
        runs(line, "run", graph);
        line.value("word", word(to));
    }),
    alone!("graph/fill/bogus_context", |line| {
        context();
        let (graph, fill) = (graph(), word_fill(memory(4), 1));
        line.says(cuGraphAddMemsetNode(&mut 0, graph, NONE, 0, &fill, BOGUS));
    }),
    case!("graph/fill/elements", |line| {
        context();
        let (graph, pointer) = (graph(), memory(64));
        for element in [0, 1, 2, 3, 4, 8, 16] {
            let fill = FillParams {
                element,
                ..word_fill(pointer, 1)
            };
            line.says_as(format!("size_{element}"), add(graph, &fill));
        }
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/fill/nothing", |line| {
        context();
        let (graph, right) = (graph(), word_fill(memory(64), 1));
        line.says_as("width", add(graph, &FillParams { width: 0, ..right }));
        line.says_as("height", add(graph, &FillParams { height: 0, ..right }));
        line.says_as(
            "both",
            add(
                graph,
                &FillParams {
                    width: 0,
                    height: 0,
                    ..right
                },
            ),
        );
        line.value("nodes", nodes(graph).len());
        runs(line, "run", graph);
    }),
    case!("graph/fill/pitch", |line| {
        context();
        let (graph, right) = (graph(), word_fill(memory(1024), 1));
        let rows = FillParams {
            width: 4,
            height: 3,
            ..right
        };
        line.says_as("none", add(graph, &rows));
        line.says_as("small", add(graph, &FillParams { pitch: 8, ..rows }));
        line.says_as("exact", add(graph, &FillParams { pitch: 16, ..rows }));
        line.says_as("odd", add(graph, &FillParams { pitch: 18, ..rows }));
        line.says_as("wide", add(graph, &FillParams { pitch: 64, ..rows }));
        line.says_as(
            "line_small",
            add(
                graph,
                &FillParams {
                    width: 4,
                    pitch: 8,
                    ..right
                },
            ),
        );
        line.says_as(
            "line_odd",
            add(
                graph,
                &FillParams {
                    width: 4,
                    pitch: 17,
                    ..right
                },
            ),
        );
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/fill/unaligned", |line| {
        context();
        let (graph, pointer) = (graph(), memory(64));
        line.says_as("word_1", add(graph, &word_fill(pointer + 1, 1)));
        line.says_as("word_2", add(graph, &word_fill(pointer + 2, 1)));
        let half = FillParams {
            element: 2,
            ..word_fill(pointer, 1)
        };
        line.says_as(
            "half_1",
            add(
                graph,
                &FillParams {
                    address: pointer + 1,
                    ..half
                },
            ),
        );
        line.says_as(
            "half_2",
            add(
                graph,
                &FillParams {
                    address: pointer + 2,
                    ..half
                },
            ),
        );
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/fill/memory", |line| {
        context();
        let (graph, mut local) = (graph(), Box::new(0u32));
        line.says_as("null", add(graph, &word_fill(0, 1)));
        line.says_as("wild", add(graph, &word_fill(WILD, 1)));
        line.says_as("pinned", add(graph, &word_fill(pinned(4) as u64, 1)));
        line.says_as("managed", add(graph, &word_fill(managed(4), 1)));
        line.says_as(
            "pageable",
            add(graph, &word_fill(void(&mut *local) as u64, 1)),
        );
        let freed = memory(4 << 20);
        cuMemFree_v2(freed).must();
        line.says_as("freed", add(graph, &word_fill(freed, 1)));
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/fill/too_long", |line| {
        context();
        let (graph, pointer) = (graph(), memory(4 << 20));
        let fill = word_fill(pointer, 1);
        line.says_as(
            "all",
            add(
                graph,
                &FillParams {
                    width: 1 << 20,
                    ..fill
                },
            ),
        );
        line.says_as(
            "more",
            add(
                graph,
                &FillParams {
                    width: (1 << 20) + 1,
                    ..fill
                },
            ),
        );
        let late = FillParams {
            address: pointer + 4,
            width: 1 << 20,
            ..fill
        };
        line.says_as("late", add(graph, &late));
        let rows = FillParams {
            width: 1,
            height: 3,
            pitch: 2 << 20,
            ..fill
        };
        line.says_as("rows", add(graph, &rows));
        line.value("nodes", nodes(graph).len());
    }),
    case!("graph/fill/wide_value", |line| {
        context();
        let (graph, pointer) = (graph(), memory(64));
        fill_words(pointer, 0, 16);
        let byte = FillParams {
            element: 1,
            ..word_fill(pointer, 0x1234)
        };
        let half = FillParams {
            element: 2,
            ..word_fill(pointer + 4, 0x12_3456)
        };
        line.says_as("byte", add(graph, &byte));
        line.says_as("half", add(graph, &half));
        let [byte, half] = nodes(graph)[..] else {
            return line.value("nodes", nodes(graph).len());
        };
        let mut got = word_fill(0, 0);
        cuGraphMemsetNodeGetParams(byte, &mut got).must();
        line.value("byte_value", format!("{:#x}", got.value));
        cuGraphMemsetNodeGetParams(half, &mut got).must();
        line.value("half_value", format!("{:#x}", got.value));
        runs(line, "run", graph);
        line.value(
            "words",
            format!("{:#x} {:#x}", word(pointer), word(pointer + 4)),
        );
    }),
    case!("graph/fill/get", |line| {
        context();
        let (graph, pointer) = (graph(), memory(1024));
        let fill = FillParams {
            pitch: 64,
            element: 2,
            width: 5,
            height: 3,
            ..word_fill(pointer, 9)
        };
        let node = add_fill(graph, &[], pointer, 3);
        let mut got = word_fill(1, 1);
        line.says_as("line", cuGraphMemsetNodeGetParams(node, &mut got));
        let fields = |got: FillParams| {
            let FillParams {
                pitch,
                value,
                element,
                width,
                height,
                ..
            } = got;
            format!("{pitch} {value} {element} {width} {height}")
        };
        line.value("address", got.address == pointer);
        line.value("line", fields(got));
        line.says_as("set", cuGraphMemsetNodeSetParams(node, &fill));
        line.says_as("rows", cuGraphMemsetNodeGetParams(node, &mut got));
        line.value("rows", fields(got));
        line.says_as("out", cuGraphMemsetNodeGetParams(node, null_mut()));
        let other = add_empty(graph, &[]);
        line.says_as("kind", cuGraphMemsetNodeGetParams(other, &mut got));
        line.says_as("node", cuGraphMemsetNodeGetParams(0, &mut got));
    }),
    case!("graph/fill/line_pitch_is_kept", |line| {
        context();
        let (graph, pointer) = (graph(), memory(1024));
        let fill = FillParams {
            pitch: 64,
            width: 4,
            ..word_fill(pointer, 9)
        };
        line.says(add(graph, &fill));
        let mut got = word_fill(1, 1);
        line.says(cuGraphMemsetNodeGetParams(nodes(graph)[0], &mut got));
        line.value("pitch", got.pitch);
    }),
    case!("graph/fill/set", |line| {
        context();
        let (graph, pointer) = (graph(), memory(64));
        let (node, other) = (add_fill(graph, &[], pointer, 3), add_empty(graph, &[]));
        line.says_as(
            "right",
            cuGraphMemsetNodeSetParams(node, &word_fill(pointer, 8)),
        );
        line.says_as("null", cuGraphMemsetNodeSetParams(node, null()));
        line.says_as(
            "kind",
            cuGraphMemsetNodeSetParams(other, &word_fill(pointer, 8)),
        );
        line.says_as(
            "node",
            cuGraphMemsetNodeSetParams(0, &word_fill(pointer, 8)),
        );
        let wrong = FillParams {
            element: 3,
            ..word_fill(pointer, 9)
        };
        line.says_as("element", cuGraphMemsetNodeSetParams(node, &wrong));
        line.says_as(
            "address",
            cuGraphMemsetNodeSetParams(node, &word_fill(0, 9)),
        );
        runs(line, "run", graph);
        line.value("word", word(pointer));
    }),
];
