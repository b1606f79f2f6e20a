//! Bodies that are captured while the graph around them is: both captures end well, or one of them
//! is spoilt, in either order.

use super::capture_setting::*;
use super::graph_run::launches;
use crate::capture::api::*;
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone};
use crate::conformance::fixture::*;
use crate::graphs::api::*;
use crate::graphs::conditions::*;

/// How often the loop turns.
const TURNS: u32 = 3;

/// A capture with a loop in it, whose body is captured in another stream.
struct Within {
    count_to: Handle,
    count: Handle,
    at: u64,
    outer: Handle,
    inner: Handle,
    graph: Handle,
    body: Handle,
    condition: u64,
    /// An event recorded outside.
    outside: Handle,
}

/// Begins the outer capture, and adds the loop.
unsafe fn outer(line: &mut Line, mode: u32) -> Within {
    let (kernels, at) = (Kernels::load(), memory(64));
    cuMemsetD32_v2(at, 0, 16).must();
    let (count_to, count) = (kernels.get(c"count_to"), kernels.get(c"count"));
    let (outer, inner, other, outside) = (stream(), stream(), stream(), event());
    cuEventRecord(outside, other).must();
    cuCtxSynchronize().must();
    begin(outer, mode);
    cuMemsetD32Async(at, 0, 1, outer).must();
    let (_, graph, before, _) = info(outer);
    let mut condition = 0;
    let made = cuGraphConditionalHandleCreate(&mut condition, graph, current(), 1, ASSIGN);
    line.says(made);
    let mut params = conditional_params(condition, WHILE, 1);
    let (answer, node) = try_conditional(graph, &before, &mut params);
    answer.must();
    let answer = cuStreamUpdateCaptureDependencies_v2(outer, &node, std::ptr::null(), 1, 1);
    line.says(answer);
    let body = bodies(&params)[0];
    Within {
        count_to,
        count,
        at,
        outer,
        inner,
        graph,
        body,
        condition,
        outside,
    }
}

impl Within {
    /// Begins the capture of the body, and records a kernel.
    unsafe fn begin(&self, line: &mut Line, mode: u32) {
        let null = std::ptr::null();
        line.says(cuStreamBeginCaptureToGraph(
            self.inner, self.body, NONE, null, 0, mode,
        ));
        let (mut condition, mut counter, mut limit) = (self.condition, self.at, TURNS);
        let values = &mut [void(&mut condition), void(&mut counter), void(&mut limit)];
        let recorded = launch(self.count_to, 1, 1, self.inner, values);
        line.says_as("inner_record", recorded);
    }

    unsafe fn end_inner(&self, line: &mut Line) {
        let mut ended = BOGUS;
        line.says_as("inner_end", cuStreamEndCapture(self.inner, &mut ended));
        line.value("ended", named(ended, &[("body", self.body)]));
    }

    /// Ends the outer capture; gives its graph.
    unsafe fn end_outer(&self, line: &mut Line) -> Handle {
        let mut ended = BOGUS;
        line.says_as("outer_end", cuStreamEndCapture(self.outer, &mut ended));
        line.value("ended", named(ended, &[("graph", self.graph)]));
        ended
    }

    unsafe fn record_after(&self, line: &mut Line) {
        let mut to = self.at + 4;
        let recorded = launch(self.count, 1, 1, self.outer, &mut [void(&mut to)]);
        line.says_as("outer_record", recorded);
    }

    unsafe fn states(&self, line: &mut Line) {
        line.value("outer", state(self.outer));
        line.value("inner", state(self.inner));
    }

    unsafe fn runs(&self, line: &mut Line, graph: Handle) {
        let mut exec = 0;
        if line.says(cuGraphInstantiateWithFlags(&mut exec, graph, 0)) {
            launches(line, "it", exec, stream());
            line.value("turns", word(self.at));
            line.value("after", word(self.at + 4));
        }
    }

    /// Not launched: a loop whose body is not what it was to be may never end.
    unsafe fn instantiates(&self, line: &mut Line, graph: Handle) {
        if graph == self.graph {
            line.says(cuGraphInstantiateWithFlags(&mut 0, graph, 0));
            line.says(cuGraphDestroy(graph));
        }
    }
}

/// Both captures go well.
unsafe fn well(line: &mut Line, outer_mode: u32, inner_mode: u32) {
    context();
    let it = outer(line, outer_mode);
    it.begin(line, inner_mode);
    it.end_inner(line);
    it.states(line);
    it.record_after(line);
    let graph = it.end_outer(line);
    it.states(line);
    it.runs(line, graph);
}

/// The body is captured by a thread of its own.
unsafe fn elsewhere_well(line: &mut Line, mode: u32) {
    let context = context();
    let it = outer(line, mode);
    elsewhere(context, || {
        it.begin(line, mode);
        it.end_inner(line);
    });
    it.states(line);
    it.record_after(line);
    let graph = it.end_outer(line);
    it.runs(line, graph);
}

/// The outer capture ends before the body's.
unsafe fn ended_around(line: &mut Line, mode: u32) {
    context();
    let it = outer(line, mode);
    it.begin(line, mode);
    it.record_after(line);
    let graph = it.end_outer(line);
    it.states(line);
    it.end_inner(line);
    it.states(line);
    it.runs(line, graph);
}

/// One of the two is spoilt, and one of the two ends first.
unsafe fn spoilt(line: &mut Line, mode: u32, outer_is: bool, outer_first: bool) {
    context();
    let it = outer(line, mode);
    it.begin(line, mode);
    let stream = if outer_is { it.outer } else { it.inner };
    line.says(cuStreamWaitEvent(stream, it.outside, 0));
    it.states(line);
    let graph;
    if outer_first {
        graph = it.end_outer(line);
        it.states(line);
        it.end_inner(line);
    } else {
        it.end_inner(line);
        it.states(line);
        graph = it.end_outer(line);
    }
    it.states(line);
    it.instantiates(line, graph);
    line.says(cuCtxSynchronize());
}

pub const CASES: &[Case] = &[
    alone!("conditional/within/well_global_global", |line| {
        well(line, GLOBAL, GLOBAL)
    }),
    alone!("conditional/within/well_global_local", |line| {
        well(line, GLOBAL, THREAD_LOCAL)
    }),
    alone!("conditional/within/well_global_relaxed", |line| {
        well(line, GLOBAL, RELAXED)
    }),
    alone!("conditional/within/well_local_global", |line| {
        well(line, THREAD_LOCAL, GLOBAL)
    }),
    alone!("conditional/within/well_local_local", |line| {
        well(line, THREAD_LOCAL, THREAD_LOCAL)
    }),
    alone!("conditional/within/well_local_relaxed", |line| {
        well(line, THREAD_LOCAL, RELAXED)
    }),
    alone!("conditional/within/well_relaxed_global", |line| {
        well(line, RELAXED, GLOBAL)
    }),
    alone!("conditional/within/well_relaxed_local", |line| {
        well(line, RELAXED, THREAD_LOCAL)
    }),
    alone!("conditional/within/well_relaxed_relaxed", |line| {
        well(line, RELAXED, RELAXED)
    }),
    alone!("conditional/within/elsewhere_global", |line| {
        elsewhere_well(line, GLOBAL)
    }),
    alone!("conditional/within/elsewhere_local", |line| {
        elsewhere_well(line, THREAD_LOCAL)
    }),
    alone!("conditional/within/elsewhere_relaxed", |line| {
        elsewhere_well(line, RELAXED)
    }),
    alone!("conditional/within/ended_around_it_global", |line| {
        ended_around(line, GLOBAL)
    }),
    alone!("conditional/within/ended_around_it_local", |line| {
        ended_around(line, THREAD_LOCAL)
    }),
    alone!("conditional/within/outer_spoilt_global", |line| {
        spoilt(line, GLOBAL, true, false)
    }),
    alone!("conditional/within/outer_spoilt_local", |line| {
        spoilt(line, THREAD_LOCAL, true, false)
    }),
    alone!(
        "conditional/within/outer_spoilt_ends_first_global",
        |line| { spoilt(line, GLOBAL, true, true) }
    ),
    alone!("conditional/within/outer_spoilt_ends_first_local", |line| {
        spoilt(line, THREAD_LOCAL, true, true)
    }),
    alone!("conditional/within/inner_spoilt_global", |line| {
        spoilt(line, GLOBAL, false, false)
    }),
    alone!("conditional/within/inner_spoilt_local", |line| {
        spoilt(line, THREAD_LOCAL, false, false)
    }),
    alone!("conditional/within/inner_spoilt_ends_last_global", |line| {
        spoilt(line, GLOBAL, false, true)
    }),
    alone!("conditional/within/inner_spoilt_ends_last_local", |line| {
        spoilt(line, THREAD_LOCAL, false, true)
    }),
];
