//! Executables: made, uploaded, launched, destroyed.

use std::ffi::c_char;
use std::ptr::{null, null_mut};

use super::graph_run::launches;
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::Copy3d;
use crate::graphs::api::*;

const DEVICE_LAUNCH: u64 = 4;
const UPLOAD: u64 = 2;

/// Two nodes that wait for each other, after a third.
unsafe fn cycle() -> (Handle, [Handle; 2]) {
    let graph = graph();
    let before = add_empty(graph, &[]);
    let a = add_empty(graph, &[before]);
    let b = add_empty(graph, &[a]);
    add_edge(graph, b, a).must();
    (graph, [a, b])
}

/// Instantiates by the function that tells how it went, and writes that down.
unsafe fn makes(line: &mut Line, what: &str, graph: Handle, flags: u64, names: &[(&str, Handle)]) {
    let mut params = InstantiateParams {
        flags,
        node: 0x77,
        result: 77,
        upload: 0,
    };
    line.says_as(
        what,
        cuGraphInstantiateWithParams(&mut 0, graph, &mut params),
    );
    let node = named(params.node, names);
    line.value(format!("{what}_told"), format!("{} {node}", params.result));
}

/// A device-launch executable of a graph with one node of a kernel and another that `add` adds.
unsafe fn for_kernels(line: &mut Line, what: &str, add: unsafe fn(Handle) -> Handle) {
    let graph = graph();
    let kernel = add_kernel(graph, &[], function(c"empty"), &mut []);
    let node = add(graph);
    let names = [("kernel", kernel), ("node", node)];
    makes(line, what, graph, DEVICE_LAUNCH, &names);
}

unsafe extern "C" fn nothing(_: *mut std::ffi::c_void) {}

pub const CASES: &[Case] = &[
    case!("graph/instantiate/flags", |line| {
        context();
        let graph = graph();
        add_empty(graph, &[]);
        for flags in [0u64, 1, 2, 4, 5, 8, 9, 16, 32, 1 << 32, u64::MAX] {
            let answer = cuGraphInstantiateWithFlags(&mut 0, graph, flags);
            line.says_as(format!("flags_{flags:#x}"), answer);
        }
    }),
    case!("graph/instantiate/null", |line| {
        context();
        let (graph, mut exec, mut params) = (graph(), 0, InstantiateParams::default());
        line.says_as("out", cuGraphInstantiateWithFlags(null_mut(), graph, 0));
        line.says_as("graph", cuGraphInstantiateWithFlags(&mut exec, 0, 0));
        line.says_as(
            "told_out",
            cuGraphInstantiateWithParams(null_mut(), graph, &mut params),
        );
        line.says_as(
            "told_graph",
            cuGraphInstantiateWithParams(&mut exec, 0, &mut params),
        );
        line.value(
            "told",
            format!("{} {}", params.result, named(params.node, &[])),
        );
        line.says_as(
            "params",
            cuGraphInstantiateWithParams(&mut exec, graph, null_mut()),
        );
    }),
    case!("graph/instantiate/told", |line| {
        context();
        let graph = graph();
        add_fill(graph, &[], memory(4), 1);
        for flags in [0u64, 1, UPLOAD, DEVICE_LAUNCH, 5, 8, 16] {
            makes(line, &format!("flags_{flags}"), graph, flags, &[]);
        }
    }),
    case!("graph/instantiate/upload", |line| {
        context();
        let (graph, mut exec) = (graph(), 0);
        add_fill(graph, &[], memory(4), 1);
        let mut params = InstantiateParams {
            flags: UPLOAD,
            upload: stream(),
            ..InstantiateParams::default()
        };
        line.says(cuGraphInstantiateWithParams(&mut exec, graph, &mut params));
        line.value("told", params.result);
        line.says(cuStreamSynchronize(params.upload));
        let mut flags = 99;
        line.gives("flags", cuGraphExecGetFlags(exec, &mut flags), flags);
    }),
    case!("graph/instantiate/cycle", |line| {
        context();
        let (graph, cycle) = cycle();
        line.says_as("flags", cuGraphInstantiateWithFlags(&mut 0, graph, 0));
        let mut params = InstantiateParams::default();
        line.says_as(
            "told",
            cuGraphInstantiateWithParams(&mut 0, graph, &mut params),
        );
        line.value("result", params.result);
        line.value("names_one", cycle.contains(&params.node));
    }),
    case!("graph/instantiate/text", |line| {
        context();
        let ((graph, cycle), mut exec) = (cycle(), 0);
        let (mut node, mut text): (Handle, [c_char; 64]) = (0x77, [7; 64]);
        let answer = cuGraphInstantiate_v2(&mut exec, graph, &mut node, text.as_mut_ptr(), 64);
        line.says_as("cycle", answer);
        line.value("names_one", cycle.contains(&node));
        line.value("node", named(node, &[("untouched", 0x77)]));
        line.value("text", format!("{:?}", &text[..4]));
        let fine = crate::graphs::api::graph();
        (node, text) = (0x77, [7; 64]);
        let answer = cuGraphInstantiate_v2(&mut exec, fine, &mut node, text.as_mut_ptr(), 64);
        line.says_as("fine", answer);
        line.value("node", named(node, &[("untouched", 0x77)]));
        line.value("fine_text", text[0]);
        let answer = cuGraphInstantiate_v2(&mut exec, fine, null_mut(), null_mut(), 0);
        line.says_as("nowhere", answer);
        let answer = cuGraphInstantiate_v2(&mut exec, graph, null_mut(), null_mut(), 0);
        line.says_as("cycle_nowhere", answer);
    }),
    case!("graph/instantiate/for_kernels", |line| {
        context();
        for_kernels(line, "kernel", |graph| {
            add_kernel(graph, &[], function(c"empty"), &mut [])
        });
        for_kernels(line, "fill", |graph| add_fill(graph, &[], memory(4), 1));
        for_kernels(line, "empty", |graph| add_empty(graph, &[]));
        for_kernels(line, "host", |graph| {
            add_host(graph, &[], Some(nothing), null_mut())
        });
        for_kernels(line, "record", |graph| {
            let mut node = 0;
            cuGraphAddEventRecordNode(&mut node, graph, NONE, 0, event()).must();
            node
        });
        for_kernels(line, "wait", |graph| {
            let mut node = 0;
            cuGraphAddEventWaitNode(&mut node, graph, NONE, 0, event()).must();
            node
        });
        for_kernels(line, "child", |graph| {
            let child = crate::graphs::api::graph();
            add_fill(child, &[], memory(4), 1);
            add_child(graph, &[], child)
        });
        for_kernels(line, "alloc", |graph| add_alloc(graph, &[], 64).0);
    }),
    case!("graph/instantiate/copies_for_kernels", |line| {
        context();
        for_kernels(line, "device", |graph| {
            add_copy(graph, &[], &line_copy(memory(4), memory(4), 4))
        });
        for_kernels(line, "pinned", |graph| {
            let from = Copy3d {
                src_kind: 1,
                src_host: pinned(4),
                ..line_copy(memory(4), 0, 4)
            };
            add_copy(graph, &[], &from)
        });
        for_kernels(line, "pageable", |graph| {
            let word: &'static mut u32 = Box::leak(Box::new(1));
            let from = Copy3d {
                src_kind: 1,
                src_host: void(word),
                ..line_copy(memory(4), 0, 4)
            };
            add_copy(graph, &[], &from)
        });
        for_kernels(line, "managed", |graph| {
            add_copy(graph, &[], &line_copy(memory(4), managed(4), 4))
        });
    }),
    case!("graph/instantiate/alone_for_kernels", |line| {
        context();
        let (nothing, empty, fill) = (graph(), graph(), graph());
        makes(line, "nothing", nothing, DEVICE_LAUNCH, &[]);
        let node = add_empty(empty, &[]);
        makes(line, "empty", empty, DEVICE_LAUNCH, &[("node", node)]);
        let node = add_fill(fill, &[], memory(4), 1);
        makes(line, "fill", fill, DEVICE_LAUNCH, &[("node", node)]);
    }),
    case!("graph/instantiate/without_context", |line| {
        context();
        let graph = graph();
        add_empty(graph, &[]);
        cuCtxSetCurrent(0).must();
        let (mut exec, nothing) = (0, crate::graphs::api::graph());
        line.says(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        line.says_as(
            "nothing",
            cuGraphInstantiateWithFlags(&mut exec, nothing, 0),
        );
        line.says(cuGraphExecDestroy(exec));
    }),
    case!("graph/exec/flags", |line| {
        context();
        let (graph, mut exec, mut got) = (graph(), 0, 99);
        add_fill(graph, &[], memory(4), 1);
        for flags in [0u64, 1, DEVICE_LAUNCH, 8, 9] {
            cuGraphInstantiateWithFlags(&mut exec, graph, flags).must();
            line.gives(
                format!("flags_{flags}"),
                cuGraphExecGetFlags(exec, &mut got),
                got,
            );
        }
        line.says_as("out", cuGraphExecGetFlags(exec, null_mut()));
        line.says_as("exec", cuGraphExecGetFlags(0, &mut got));
    }),
    case!("graph/exec/destroy", |line| {
        context();
        let graph = graph();
        let exec = instantiate(graph);
        line.says(cuGraphDestroy(graph));
        line.says(cuGraphExecDestroy(exec));
        line.says_as("null", cuGraphExecDestroy(0));
    }),
    alone!("graph/exec/destroy_twice", |line| {
        context();
        let exec = instantiate(graph());
        line.says_as("first", cuGraphExecDestroy(exec));
        line.says_as("second", cuGraphExecDestroy(exec));
    }),
    alone!("graph/exec/destroy_bogus", |line| {
        context();
        line.says(cuGraphExecDestroy(BOGUS));
    }),
    alone!("graph/exec/launch_destroyed", |line| {
        context();
        let (exec, stream) = (instantiate(graph()), stream());
        cuGraphExecDestroy(exec).must();
        line.says(cuGraphLaunch(exec, stream));
    }),
    case!("graph/exec/launch", |line| {
        context();
        let (graph, pointer) = (graph(), memory(4));
        add_fill(graph, &[], pointer, 3);
        let exec = instantiate(graph);
        line.says_as("exec", cuGraphLaunch(0, stream()));
        for (name, stream) in [("null", 0), ("legacy", LEGACY), ("per_thread", PER_THREAD)] {
            launches(line, name, exec, stream);
        }
        launches(line, "own", exec, stream());
        line.value("word", word(pointer));
    }),
    alone!("graph/exec/launch_in_bogus_stream", |line| {
        context();
        line.says(cuGraphLaunch(instantiate(graph()), BOGUS));
    }),
    case!("graph/exec/launch_nothing", |line| {
        context();
        launches(line, "nothing", instantiate(graph()), stream());
    }),
    case!("graph/exec/without_context", |line| {
        context();
        let (graph, stream) = (graph(), stream());
        add_fill(graph, &[], memory(4), 3);
        let (exec, nothing) = (instantiate(graph), instantiate(crate::graphs::api::graph()));
        cuCtxSetCurrent(0).must();
        line.says_as("upload", cuGraphUpload(exec, stream));
        line.says_as("launch", cuGraphLaunch(exec, stream));
        line.says_as("nothing", cuGraphLaunch(nothing, stream));
        line.says_as("null_stream", cuGraphLaunch(exec, 0));
        line.says_as("null_stream_nothing", cuGraphLaunch(nothing, 0));
        line.says_as("flags", cuGraphExecGetFlags(exec, &mut 0));
        line.says(cuStreamSynchronize(stream));
        line.says(cuGraphExecDestroy(exec));
    }),
    case!("graph/exec/launch_from_another_context", |line| {
        context();
        let (graph, pointer) = (graph(), memory(4));
        add_fill(graph, &[], pointer, 3);
        let (exec, home) = (instantiate(graph), stream());
        new_context();
        launches(line, "here", exec, stream());
        launches(line, "there", exec, home);
    }),
    case!("graph/exec/destroyed_in_flight", |line| {
        context();
        let (graph, pointer, stream) = (graph(), memory(4), stream());
        fill_words(pointer, 0, 1);
        add_fill(graph, &[], pointer, 3);
        let (exec, gate) = (instantiate(graph), Gate::close(stream));
        line.says(cuGraphLaunch(exec, stream));
        line.says(cuGraphExecDestroy(exec));
        line.says_as("in_flight", cuStreamQuery(stream));
        gate.open();
        line.says(cuStreamSynchronize(stream));
        line.value("word", word(pointer));
    }),
    case!("graph/exec/upload", |line| {
        context();
        let (graph, stream) = (graph(), stream());
        add_fill(graph, &[], memory(4), 3);
        let exec = instantiate(graph);
        line.says(cuGraphUpload(exec, stream));
        line.says_as("again", cuGraphUpload(exec, stream));
        line.says_as("null_stream", cuGraphUpload(exec, 0));
        line.says_as("null", cuGraphUpload(0, stream));
        launches(line, "then", exec, stream);
    }),
    alone!("graph/exec/trap", |line| {
        context();
        let (graph, stream) = (graph(), stream());
        let trap = add_kernel(graph, &[], function(c"trap_always"), &mut []);
        add_fill(graph, &[trap], memory(4), 3);
        let exec = instantiate(graph);
        launches(line, "first", exec, stream);
        line.says_as("again", cuGraphLaunch(exec, stream));
        line.says(cuGraphExecDestroy(exec));
        line.says(cuGraphDestroy(graph));
        line.says(cuGraphAddEmptyNode(&mut 0, graph, null(), 0));
    }),
    alone!("graph/exec/definitions_after_a_failure", |line| {
        context();
        let (stream, trap, pointer) = (stream(), function(c"trap_always"), memory(64));
        let (graph, mut made) = (graph(), 0);
        let (fill, a) = (add_fill(graph, &[], pointer, 3), add_empty(graph, &[]));
        let exec = instantiate(graph);
        launch(trap, 1, 1, stream, &mut []).must();
        line.says(cuStreamSynchronize(stream));
        line.says(cuGraphCreate(&mut made, 0));
        line.says(cuGraphAddEmptyNode(&mut 0, graph, null(), 0));
        line.says(cuGraphAddKernelNode_v2(
            &mut 0,
            graph,
            NONE,
            0,
            &kernel_params(trap, &mut []),
        ));
        let one = word_fill(pointer, 3);
        line.says(cuGraphAddMemsetNode(
            &mut 0,
            graph,
            NONE,
            0,
            &one,
            current(),
        ));
        let copy = line_copy(pointer, pointer + 8, 4);
        line.says(cuGraphAddMemcpyNode(
            &mut 0,
            graph,
            NONE,
            0,
            &copy,
            current(),
        ));
        line.says(cuGraphAddMemAllocNode(
            &mut 0,
            made,
            NONE,
            0,
            &mut alloc_params(64),
        ));
        line.says(add_edge(graph, a, fill));
        line.says(cuGraphClone(&mut made, graph));
        line.says(cuGraphMemsetNodeSetParams(fill, &one));
        line.says(cuGraphNodeGetType(fill, &mut 0));
        line.says(cuGraphDestroyNode(a));
        line.says(cuGraphInstantiateWithFlags(&mut 0, graph, 0));
        line.says(cuGraphExecMemsetNodeSetParams(exec, fill, &one, current()));
        line.says(cuGraphNodeSetEnabled(exec, fill, 0));
        line.says(cuGraphExecGetFlags(exec, &mut 0));
        line.says(cuGraphExecUpdate_v2(exec, made, &mut UpdateInfo::default()));
        line.says(cuGraphUpload(exec, stream));
        line.says(cuGraphLaunch(exec, stream));
        line.says(cuGraphExecDestroy(exec));
        line.says(cuGraphDestroy(graph));
    }),
];
