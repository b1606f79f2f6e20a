//! Kernels on single numbers, and on conditions, for explicit nodes.

use std::sync::{Arc, OnceLock};

use cuda_graph::cudarc::driver::{CudaFunction, CudaModule};
use cuda_graph::cudarc::nvrtc::Ptx;
use cuda_graph::{Buffer, Condition, Kernel, KernelOp, Param};

use crate::fixture::{context, one};

/// `put(to, value)`: `*to = value`. `plus(to, from)`: `*to += *from`. `count(to, from, sign)`: `*to
/// = (*from & 3) * sign`. `nearer(at)`: `*at` moves by one towards 0, if it is not there.
/// `set(condition, from)`: the condition is what the word at `from` is. `arm(condition, value)`:
/// the condition is `value`. `step(condition, counter, limit)`: counts, and the condition is
/// whether the count is below the limit.
const PTX: &str = "
.version 8.3
.target sm_70
.address_size 64

.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);

.visible .entry put(.param .u64 to, .param .u32 value)
{
    .reg .b32 %v;
    .reg .b64 %p;
    ld.param.u64 %p, [to];
    ld.param.u32 %v, [value];
    st.global.u32 [%p], %v;
    ret;
}

.visible .entry plus(.param .u64 to, .param .u64 from)
{
    .reg .b32 %v, %w;
    .reg .b64 %p, %q;
    ld.param.u64 %p, [to];
    ld.param.u64 %q, [from];
    ld.global.u32 %v, [%p];
    ld.global.u32 %w, [%q];
    add.u32 %v, %v, %w;
    st.global.u32 [%p], %v;
    ret;
}

.visible .entry count(.param .u64 to, .param .u64 from, .param .u32 sign)
{
    .reg .b32 %v, %s;
    .reg .b64 %p, %q;
    ld.param.u64 %p, [to];
    ld.param.u64 %q, [from];
    ld.param.u32 %s, [sign];
    ld.global.u32 %v, [%q];
    and.b32 %v, %v, 3;
    mul.lo.s32 %v, %v, %s;
    st.global.u32 [%p], %v;
    ret;
}

.visible .entry nearer(.param .u64 at)
{
    .reg .pred %more, %less;
    .reg .b32 %v;
    .reg .b64 %p;
    ld.param.u64 %p, [at];
    ld.global.s32 %v, [%p];
    setp.gt.s32 %more, %v, 0;
    setp.lt.s32 %less, %v, 0;
    @%more sub.s32 %v, %v, 1;
    @%less add.s32 %v, %v, 1;
    st.global.s32 [%p], %v;
    ret;
}

.visible .entry set(.param .u64 condition, .param .u64 from)
{
    .reg .b32 %v;
    .reg .b64 %c, %p;
    ld.param.u64 %c, [condition];
    ld.param.u64 %p, [from];
    ld.global.u32 %v, [%p];
    {
        .param .b64 a;
        .param .b32 b;
        st.param.b64 [a], %c;
        st.param.b32 [b], %v;
        call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}

.visible .entry arm(.param .u64 condition, .param .u32 value)
{
    .reg .b32 %v;
    .reg .b64 %c;
    ld.param.u64 %c, [condition];
    ld.param.u32 %v, [value];
    {
        .param .b64 a;
        .param .b32 b;
        st.param.b64 [a], %c;
        st.param.b32 [b], %v;
        call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}

.visible .entry step(.param .u64 condition, .param .u64 counter, .param .u32 limit)
{
    .reg .pred %more;
    .reg .b32 %v, %n;
    .reg .b64 %c, %p;
    ld.param.u64 %c, [condition];
    ld.param.u64 %p, [counter];
    ld.param.u32 %n, [limit];
    ld.global.u32 %v, [%p];
    add.u32 %v, %v, 1;
    st.global.u32 [%p], %v;
    setp.lt.u32 %more, %v, %n;
    selp.u32 %v, 1, 0, %more;
    {
        .param .b64 a;
        .param .b32 b;
        st.param.b64 [a], %c;
        st.param.b32 [b], %v;
        call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}
";

/// They are loaded once, before anything is captured.
pub struct Kernels {
    put: Kernel,
    plus: Kernel,
    count: Kernel,
    nearer: Kernel,
    set: Kernel,
    arm: Kernel,
    step: Kernel,
    /// `plus`, for other code to launch.
    pub plus_function: CudaFunction,
}

pub fn kernels() -> &'static Kernels {
    static KERNELS: OnceLock<(Arc<CudaModule>, Kernels)> = OnceLock::new();
    let (_, kernels) = KERNELS.get_or_init(|| {
        let module = context().load_module(Ptx::from_src(PTX)).expect("it loads");
        let function = |name| module.load_function(name).expect("it is there");
        let kernel = |name| Kernel::new(&function(name)).expect("its parameters are known");
        let kernels = Kernels {
            put: kernel("put"),
            plus: kernel("plus"),
            count: kernel("count"),
            nearer: kernel("nearer"),
            set: kernel("set"),
            arm: kernel("arm"),
            step: kernel("step"),
            plus_function: function("plus"),
        };
        (module, kernels)
    });
    kernels
}

#[track_caller]
pub fn put(to: &Buffer<i32>, value: i32) -> KernelOp {
    // SAFETY: `put` writes one word, which each such function's buffers have.
    unsafe { KernelOp::new(&kernels().put, one(), (to, value)) }.expect("the arguments fit")
}

#[track_caller]
pub fn put_param(to: &Buffer<i32>, value: &Param<i32>) -> KernelOp {
    // SAFETY: as above.
    unsafe { KernelOp::new(&kernels().put, one(), (to, value)) }.expect("it is bound")
}

#[track_caller]
pub fn put_to(to: &Param<Buffer<i32>>, value: i32) -> KernelOp {
    // SAFETY: as above.
    unsafe { KernelOp::new(&kernels().put, one(), (to, value)) }.expect("it is bound")
}

#[track_caller]
pub fn plus(to: &Buffer<i32>, from: &Buffer<i32>) -> KernelOp {
    // SAFETY: `plus` reads and writes one word of each.
    unsafe { KernelOp::new(&kernels().plus, one(), (to, from)) }.expect("the arguments fit")
}

/// What [`count`] makes of a number.
pub fn counted(from: i32, sign: i32) -> i32 {
    (from & 3) * sign
}

#[track_caller]
pub fn count(to: &Buffer<i32>, from: &Buffer<i32>, sign: i32) -> KernelOp {
    // SAFETY: `count` reads one word and writes one.
    unsafe { KernelOp::new(&kernels().count, one(), (to, from, sign)) }.expect("the arguments fit")
}

#[track_caller]
pub fn nearer(at: &Buffer<i32>) -> KernelOp {
    // SAFETY: `nearer` reads and writes one word.
    unsafe { KernelOp::new(&kernels().nearer, one(), (at,)) }.expect("the arguments fit")
}

/// Sets a condition to the first word of `from`.
#[track_caller]
pub fn set<T>(condition: Condition, from: &Buffer<T>) -> KernelOp {
    // SAFETY: `set` reads one word.
    unsafe { KernelOp::new(&kernels().set, one(), (condition, from)) }.expect("the arguments fit")
}

#[track_caller]
pub fn arm(condition: &Condition, value: u32) -> KernelOp {
    // SAFETY: `arm` touches no memory.
    unsafe { KernelOp::new(&kernels().arm, one(), (condition, value)) }.expect("the arguments fit")
}

/// Counts the first word of `counter`, and sets `condition` while it is below `limit`.
#[track_caller]
pub fn step(condition: Condition, counter: &Buffer<u32>, limit: u32) -> KernelOp {
    // SAFETY: `step` reads and writes one word.
    unsafe { KernelOp::new(&kernels().step, one(), (condition, counter, limit)) }
        .expect("the arguments fit")
}
