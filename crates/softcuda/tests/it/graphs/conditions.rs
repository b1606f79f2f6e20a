//! Conditional nodes: short ways to build graphs with them, and kernels that set conditions.

#![allow(non_snake_case, reason = "the functions are the driver's")]

use std::ffi::CStr;
use std::sync::OnceLock;

use crate::conformance::api::*;
use crate::conformance::fixture::*;
use crate::driver;
use crate::graphs::api::*;

driver_functions! {
    cuGraphConditionalHandleCreate(handle: *mut u64, graph: Handle, context: Handle, default: u32, flags: u32);
}

/// `CU_GRAPH_NODE_TYPE_CONDITIONAL`.
pub const CONDITIONAL: u32 = 13;
/// `CUgraphConditionalNodeType`.
pub const IF: u32 = 0;
pub const WHILE: u32 = 1;
pub const SWITCH: u32 = 2;
/// `CU_GRAPH_COND_ASSIGN_DEFAULT`.
pub const ASSIGN: u32 = 1;

/// Kernels that set conditions.
const KERNELS: &str = "
.version 8.3
.target sm_80
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 condition, .param .b32 value);

// condition = value
.visible .entry set_to(.param .u64 p0, .param .u32 p1)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [p0];
    ld.param.u32 %r1, [p1];
    {
        .param .b64 a;
        .param .b32 b;
        st.param.b64 [a], %rd1;
        st.param.b32 [b], %r1;
        call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}

// condition = *source
.visible .entry set_from(.param .u64 p0, .param .u64 p1)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [p0];
    ld.param.u64 %rd2, [p1];
    cvta.to.global.u64 %rd3, %rd2;
    ld.global.u32 %r1, [%rd3];
    {
        .param .b64 a;
        .param .b32 b;
        st.param.b64 [a], %rd1;
        st.param.b32 [b], %r1;
        call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}

// condition = (*counter += 1) < limit
.visible .entry count_to(.param .u64 p0, .param .u64 p1, .param .u32 p2)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<5>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [p0];
    ld.param.u64 %rd2, [p1];
    ld.param.u32 %r1, [p2];
    cvta.to.global.u64 %rd3, %rd2;
    ld.global.u32 %r2, [%rd3];
    add.u32 %r3, %r2, 1;
    st.global.u32 [%rd3], %r3;
    setp.lt.u32 %p1, %r3, %r1;
    selp.u32 %r4, 1, 0, %p1;
    {
        .param .b64 a;
        .param .b32 b;
        st.param.b64 [a], %rd1;
        st.param.b32 [b], %r4;
        call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}

// The thread of this number in the grid has condition = its number.
.visible .entry set_by(.param .u64 p0, .param .u32 p1)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<6>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [p0];
    ld.param.u32 %r1, [p1];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ne.u32 %p1, %r5, %r1;
    @%p1 ret;
    {
        .param .b64 a;
        .param .b32 b;
        st.param.b64 [a], %rd1;
        st.param.b32 [b], %r5;
        call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}

// *counter += 1
.visible .entry count(.param .u64 p0)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [p0];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.u32 %r1, [%rd2];
    add.u32 %r2, %r1, 1;
    st.global.u32 [%rd2], %r2;
    ret;
}
";

/// The kernels, loaded into the current context.
pub struct Kernels(Handle);

impl Kernels {
    pub unsafe fn load() -> Kernels {
        Kernels(module_of(KERNELS))
    }

    pub unsafe fn get(&self, name: &CStr) -> Handle {
        function_of(self.0, name)
    }

    /// A node that sets a condition.
    pub unsafe fn set_to(&self, graph: Handle, on: &[Handle], condition: u64, to: u32) -> Handle {
        let (mut condition, mut to) = (condition, to);
        let values = &mut [void(&mut condition), void(&mut to)];
        add_kernel(graph, on, self.get(c"set_to"), values)
    }

    /// A node that sets a condition to what is in memory.
    pub unsafe fn set_from(&self, graph: Handle, on: &[Handle], condition: u64, at: u64) -> Handle {
        let (mut condition, mut at) = (condition, at);
        let values = &mut [void(&mut condition), void(&mut at)];
        add_kernel(graph, on, self.get(c"set_from"), values)
    }

    /// A node that counts, and keeps a condition set below a limit.
    pub unsafe fn count_to(
        &self,
        graph: Handle,
        on: &[Handle],
        condition: u64,
        at: u64,
        limit: u32,
    ) -> Handle {
        let (mut condition, mut at, mut limit) = (condition, at, limit);
        let values = &mut [void(&mut condition), void(&mut at), void(&mut limit)];
        add_kernel(graph, on, self.get(c"count_to"), values)
    }

    /// A node that counts.
    pub unsafe fn count(&self, graph: Handle, on: &[Handle], at: u64) -> Handle {
        let mut at = at;
        add_kernel(graph, on, self.get(c"count"), &mut [void(&mut at)])
    }
}

/// A condition with a value that each launch begins with.
pub unsafe fn condition(graph: Handle, default: u32) -> u64 {
    let mut condition = 0;
    cuGraphConditionalHandleCreate(&mut condition, graph, current(), default, ASSIGN).must();
    condition
}

/// A condition that launches do not set.
pub unsafe fn kept_condition(graph: Handle) -> u64 {
    let mut condition = 0;
    cuGraphConditionalHandleCreate(&mut condition, graph, current(), 0, 0).must();
    condition
}

/// Parameters of a conditional node in the current context.
pub unsafe fn conditional_params(condition: u64, kind: u32, bodies: u32) -> NodeParams {
    let second = u64::from(kind) | u64::from(bodies) << 32;
    node_params(CONDITIONAL, &[condition, second, 0, current() as u64])
}

/// Where the driver put the bodies of a node that was added.
pub unsafe fn bodies(params: &NodeParams) -> Vec<Handle> {
    let count = (params.union[1] >> 32) as usize;
    let bodies = params.union[2] as *const Handle;
    (0..count).map(|at| *bodies.add(at)).collect()
}

/// The node, and its bodies.
pub unsafe fn try_conditional(
    graph: Handle,
    on: &[Handle],
    params: &mut NodeParams,
) -> (Answer, Handle) {
    let mut node = 0;
    let answer = cuGraphAddNode(&mut node, graph, on.as_ptr(), on.len(), params);
    (answer, node)
}

pub unsafe fn add_conditional(
    graph: Handle,
    on: &[Handle],
    condition: u64,
    kind: u32,
    count: u32,
) -> (Handle, Vec<Handle>) {
    let mut params = conditional_params(condition, kind, count);
    let (answer, node) = try_conditional(graph, on, &mut params);
    answer.must();
    (node, bodies(&params))
}

/// A node with one body.
pub unsafe fn add_single(
    graph: Handle,
    on: &[Handle],
    condition: u64,
    kind: u32,
) -> (Handle, Handle) {
    let (node, bodies) = add_conditional(graph, on, condition, kind, 1);
    (node, bodies[0])
}

/// A graph that fills a word, with the conditional nodes of these kinds around the fill, the first
/// outermost.
pub unsafe fn graph_around_a_fill(kinds: &[u32], at: u64) -> Handle {
    let root = graph();
    let mut inside = root;
    for &kind in kinds {
        // A loop must come to an end by itself: it does not begin.
        let default = u32::from(kind != WHILE);
        (_, inside) = add_single(inside, &[], condition(root, default), kind);
    }
    add_fill(inside, &[], at, 5);
    root
}
