//! What waits for work that is held up: the end of executables with conditional nodes, of memory,
//! of modules. And graphs that get conditions, or memory nodes, when they have an executable
//! already.

use std::time::Duration;

use super::graph_run::{launches, updates};
use crate::capture::api::{cuStreamBeginCapture_v2, cuStreamEndCapture};
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;
use crate::graphs::conditions::*;

/// A call that has not returned then is said to wait.
const PATIENCE: Duration = Duration::from_millis(200);

/// Makes a call while a gate is closed, and writes down when it returned.
unsafe fn asks(line: &mut Line, what: &str, gate: Gate, call: impl FnOnce() -> Answer) {
    let (answer, waited) = while_held(gate, PATIENCE, call);
    line.says_as(what, answer);
    line.value("returned", if waited { "after" } else { "before" });
}

/// An executable that fills a word, with the conditional nodes of these kinds around the fill, the
/// first outermost.
unsafe fn around_a_fill(kinds: &[u32]) -> Handle {
    instantiate(graph_around_a_fill(kinds, memory(4)))
}

/// Destroys an executable with these conditional nodes while a launch of it is held up.
unsafe fn destroys(line: &mut Line, kinds: &[u32]) {
    context();
    let (exec, stream) = (around_a_fill(kinds), stream());
    let gate = Gate::close(stream);
    line.says(cuGraphLaunch(exec, stream));
    asks(line, "destroy", gate, || cuGraphExecDestroy(exec));
    line.says(cuStreamSynchronize(stream));
}

/// Instantiates in the way that tells why not.
unsafe fn instantiates(line: &mut Line, what: &str, graph: Handle) -> Option<Handle> {
    let (mut exec, mut params) = (0, InstantiateParams::default());
    let answer = cuGraphInstantiateWithParams(&mut exec, graph, &mut params);
    let made = line.says_as(what, answer);
    line.value("result", params.result);
    // What a failed call leaves there is nobody's.
    made.then_some(exec)
}

/// Launches what was instantiated, and reads the word.
unsafe fn runs(line: &mut Line, what: &str, exec: Option<Handle>, at: u64) {
    if let Some(exec) = exec {
        launches(line, what, exec, stream());
        line.value("ran", word(at));
    }
}

/// Destroys what was instantiated.
unsafe fn ends(line: &mut Line, exec: Option<Handle>) {
    if let Some(exec) = exec {
        line.says(cuGraphExecDestroy(exec));
    }
}

/// A graph that fills a word, and where a conditional node with another fill is to come.
unsafe fn plain() -> (Handle, u64) {
    let (graph, at) = (graph(), memory(4));
    fill_words(at, 77, 1);
    add_fill(graph, &[], at, 4);
    (graph, at)
}

unsafe fn add_branch(graph: Handle, at: u64) -> Handle {
    let (node, body) = add_single(graph, &nodes(graph), condition(graph, 1), IF);
    add_fill(body, &[], at, 5);
    node
}

pub const CASES: &[Case] = &[
    case!("conditional/afterwards/destroy_plain", |line| {
        destroys(line, &[])
    }),
    case!("conditional/afterwards/destroy_if", |line| {
        destroys(line, &[IF])
    }),
    case!("conditional/afterwards/destroy_while", |line| {
        destroys(line, &[WHILE])
    }),
    case!("conditional/afterwards/destroy_nested", |line| {
        destroys(line, &[WHILE, SWITCH, IF])
    }),
    case!("conditional/afterwards/destroy_beside_others", |line| {
        context();
        let other = around_a_fill(&[]);
        for what in [
            "launch",
            "host_function",
            "blocking_stream",
            "legacy_stream",
        ] {
            let (exec, mut stream) = (around_a_fill(&[IF]), stream());
            match what {
                "blocking_stream" => cuStreamCreate(&mut stream, 0).must(),
                "legacy_stream" => stream = LEGACY,
                _ => {}
            }
            let gate = Gate::close(stream);
            if what == "launch" {
                cuGraphLaunch(other, stream).must();
            }
            asks(line, what, gate, || cuGraphExecDestroy(exec));
            cuStreamSynchronize(stream).must();
        }
    }),
    case!("conditional/afterwards/destroy_updated", |line| {
        context();
        let exec = around_a_fill(&[IF]);
        let other = graph_around_a_fill(&[IF], memory(4));
        updates(line, "update", exec, other, &[]);
        cuGraphDestroy(other).must();
        let stream = stream();
        let gate = Gate::close(stream);
        asks(line, "destroy", gate, || cuGraphExecDestroy(exec));
        cuStreamSynchronize(stream).must();
    }),
    case!("conditional/afterwards/destroy_in_capture", |line| {
        context();
        let (captured, held) = (stream(), stream());
        for (mode, what) in [(0, "global"), (1, "local"), (2, "relaxed")] {
            let (exec, mut ended, mut status) = (around_a_fill(&[IF]), 0, 9);
            let gate = Gate::close(held);
            cuStreamBeginCapture_v2(captured, mode).must();
            asks(line, what, gate, || cuGraphExecDestroy(exec));
            line.says(cuStreamIsCapturing(captured, &mut status));
            line.value("status", status);
            line.says(cuStreamEndCapture(captured, &mut ended));
            cuStreamSynchronize(held).must();
        }
    }),
    alone!("conditional/afterwards/destroy_after_a_fault", |line| {
        context();
        let (graph, stream) = (graph(), stream());
        let (_, body) = add_single(graph, &[], condition(graph, 1), IF);
        add_store(body, &[], function(c"store"), 0, 1);
        let exec = instantiate(graph);
        launches(line, "it", exec, stream);
        line.says(cuGraphExecDestroy(exec));
        line.says(cuGraphDestroy(graph));
    }),
    alone!("conditional/afterwards/destroy_and_contexts", |line| {
        let first = context();
        let (exec, other, stream) = (around_a_fill(&[IF]), around_a_fill(&[IF]), stream());
        let second = new_context();
        let gate = Gate::close(stream);
        asks(line, "second_current", gate, || cuGraphExecDestroy(exec));
        let second_stream = crate::conformance::fixture::stream();
        let gate = Gate::close(second_stream);
        cuCtxSetCurrent(first).must();
        asks(line, "work_of_second", gate, || cuGraphExecDestroy(other));
        cuStreamSynchronize(second_stream).must();
        let last = around_a_fill(&[IF]);
        let gate = Gate::close(stream);
        cuCtxSetCurrent(0).must();
        asks(line, "none_current", gate, || cuGraphExecDestroy(last));
        cuStreamSynchronize(stream).must();
        cuCtxDestroy_v2(second).must();
    }),
    case!("conditional/afterwards/frees", |line| {
        context();
        let (exec, stream, idle) = (around_a_fill(&[IF]), stream(), stream());
        let held = || {
            let gate = Gate::close(stream);
            cuGraphLaunch(exec, stream).must();
            gate
        };
        let mut pooled = [0; 2];
        for pointer in &mut pooled {
            cuMemAllocAsync(pointer, 64, idle).must();
        }
        cuStreamSynchronize(idle).must();
        let (device, host, shared) = (memory(64), pinned(64), managed(64));
        asks(line, "free", held(), || cuMemFree_v2(device));
        asks(line, "free_host", held(), || cuMemFreeHost(host));
        asks(line, "free_managed", held(), || cuMemFree_v2(shared));
        let [first, second] = pooled;
        asks(line, "free_pooled", held(), || cuMemFree_v2(first));
        asks(line, "free_async", held(), || cuMemFreeAsync(second, idle));
        let device = memory(64);
        asks(line, "free_async_plain", held(), || {
            cuMemFreeAsync(device, idle)
        });
        asks(line, "free_null", held(), || cuMemFree_v2(0));
        asks(line, "free_wrong", held(), || cuMemFree_v2(WILD));
        let pages: &'static mut [u8] = Box::leak(Box::new([0; 8192]));
        let page = (pages.as_mut_ptr() as usize).next_multiple_of(4096) as *mut _;
        cuMemHostRegister_v2(page, 4096, 0).must();
        asks(line, "unregister", held(), || cuMemHostUnregister(page));
        line.says(cuCtxSynchronize());
    }),
    case!("conditional/afterwards/unloads", |line| {
        context();
        let (exec, stream) = (around_a_fill(&[]), stream());
        let held = || {
            let gate = Gate::close(stream);
            cuGraphLaunch(exec, stream).must();
            gate
        };
        let (module_one, library_one) = (module(), library());
        asks(line, "module", held(), || cuModuleUnload(module_one));
        asks(line, "library", held(), || cuLibraryUnload(library_one));
        let (module_two, word) = (module(), memory(4));
        let (mut to, mut value) = (word, 5u32);
        let store = function_of(module_two, c"store");
        launch(store, 1, 1, stream, &mut [void(&mut to), void(&mut value)]).must();
        cuStreamSynchronize(stream).must();
        asks(line, "module_that_ran", held(), || {
            cuModuleUnload(module_two)
        });
        let (library_two, mut store) = (library(), 0);
        cuLibraryGetKernel(&mut store, library_two, c"store".as_ptr()).must();
        launch(store, 1, 1, stream, &mut [void(&mut to), void(&mut value)]).must();
        cuStreamSynchronize(stream).must();
        asks(line, "library_that_ran", held(), || {
            cuLibraryUnload(library_two)
        });
        line.says(cuCtxSynchronize());
    }),
    case!("conditional/afterwards/others", |line| {
        context();
        let (exec, stream) = (around_a_fill(&[IF]), stream());
        let held = || {
            let gate = Gate::close(stream);
            cuGraphLaunch(exec, stream).must();
            gate
        };
        let (definition, one, idle) = (
            graph_around_a_fill(&[IF], memory(4)),
            event(),
            crate::conformance::fixture::stream(),
        );
        let mut made = 0;
        asks(line, "instantiate", held(), || {
            cuGraphInstantiateWithFlags(&mut made, definition, 0)
        });
        asks(line, "upload", held(), || cuGraphUpload(made, idle));
        asks(line, "launch", held(), || cuGraphLaunch(made, idle));
        let mut info = UpdateInfo::default();
        asks(line, "update", held(), || {
            cuGraphExecUpdate_v2(made, definition, &mut info)
        });
        asks(line, "graph", held(), || cuGraphDestroy(definition));
        asks(line, "event", held(), || cuEventDestroy_v2(one));
        asks(line, "stream", held(), || cuStreamDestroy_v2(idle));
        line.says(cuCtxSynchronize());
    }),
    case!("conditional/afterwards/earlier_executable", |line| {
        context();
        let (graph, at) = plain();
        let exec = instantiates(line, "before", graph);
        add_branch(graph, at);
        instantiates(line, "beside", graph);
        runs(line, "earlier", exec, at);
        ends(line, exec);
        let exec = instantiates(line, "after", graph);
        runs(line, "later", exec, at);
    }),
    case!("conditional/afterwards/earlier_executable_gone", |line| {
        context();
        let (graph, at) = plain();
        let exec = instantiates(line, "before", graph);
        ends(line, exec);
        add_branch(graph, at);
        instantiates(line, "after", graph);
        instantiates(line, "again", graph);
    }),
    case!("conditional/afterwards/two_earlier_executables", |line| {
        context();
        let (graph, at) = plain();
        let [first, second] = ["first", "second"].map(|what| instantiates(line, what, graph));
        add_branch(graph, at);
        instantiates(line, "beside_two", graph);
        ends(line, second);
        instantiates(line, "beside_one", graph);
        ends(line, first);
        instantiates(line, "alone", graph);
    }),
    case!(
        "conditional/afterwards/earlier_executable_updated",
        |line| {
            context();
            let ((graph, at), (other, there)) = (plain(), plain());
            let exec = instantiates(line, "before", graph);
            let Some(earlier) = exec else { return };
            updates(line, "to_other", earlier, other, &[]);
            let node = add_branch(graph, at);
            updates(line, "to_itself", earlier, graph, &[("node", node)]);
            instantiates(line, "beside", graph);
            runs(line, "earlier", exec, at);
            line.value("ran_there", word(there));
            // The executable does what this one said when it had no conditions.
            add_branch(other, there);
            instantiates(line, "other", other);
        }
    ),
    case!("conditional/afterwards/unused_condition", |line| {
        context();
        let (graph, at) = plain();
        let exec = instantiates(line, "before", graph);
        let later = condition(graph, 1);
        instantiates(line, "beside", graph);
        ends(line, exec);
        instantiates(line, "after", graph);
        instantiates(line, "again", graph);
        let (_, body) = add_single(graph, &[], later, IF);
        add_fill(body, &[], at, 5);
        instantiates(line, "used", graph);
    }),
    case!("conditional/afterwards/node_gone", |line| {
        context();
        let (graph, at) = plain();
        let node = add_branch(graph, at);
        let exec = instantiates(line, "before", graph);
        line.says(cuGraphDestroyNode(node));
        instantiates(line, "beside", graph);
        ends(line, exec);
        instantiates(line, "after", graph);
    }),
    case!("conditional/afterwards/memory_later", |line| {
        context();
        let (graph, at) = plain();
        let exec = instantiates(line, "before", graph);
        let (alloc, address) = add_alloc(graph, &[], 64);
        let free = add_free(graph, &[alloc], address);
        if let Some(earlier) = exec {
            let names = [("alloc", alloc), ("free", free)];
            updates(line, "update", earlier, graph, &names);
        }
        let second = instantiates(line, "beside", graph);
        runs(line, "second", second, at);
        runs(line, "earlier", exec, at);
        ends(line, second);
        let third = instantiates(line, "beside_again", graph);
        ends(line, third);
        ends(line, exec);
        let last = instantiates(line, "after", graph);
        runs(line, "last", last, at);
        instantiates(line, "again", graph);
    }),
];
