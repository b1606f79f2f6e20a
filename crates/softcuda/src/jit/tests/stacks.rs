//! Recursion to the end of the native stack: whatever a function does there, the fault comes before
//! anything is overwritten, and the runtime finds the room that it needs.

use std::sync::Arc;

use crate::grid::context::Mode;
use crate::grid::launch::FaultKind;
use crate::grid::stack_use;
use crate::jit::harness::{self, buffer};
use crate::jit::module::{Form, Module};

/// A kernel whose threads call themselves `depth` times, and at the bottom a function that does
/// `last`. `%q1` is the address of some memory, `%c1` of some shared memory.
fn source(last: &str, waits: bool, dives: &str) -> String {
    let barrier = if waits { "bar.sync 0;" } else { "" };
    format!(
        ".version 9.0\n.target sm_90a\n.address_size 64
        .extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 arguments);
        .extern .func (.param .b64 memory) malloc (.param .b64 size);
        .extern .func free (.param .b64 memory);
        .global .align 1 .b8 format[] = {{37, 46, 102, 37, 46, 48, 115, 0}};
        .shared .align 1024 .b8 area[32768];
        .func last(.param .b64 at)
        {{
            .reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %r<8>, %a<8>, %b<8>, %c<20>; .reg .f32 %f<8>;
            .reg .f64 %d<8>; .reg .b64 %q<16>; .reg .b128 %w<4>;
            ld.param.b64 %q1, [at];
            mov.u32 %c1, area;
            {barrier}
            {last}
            ret;
        }}
        .func dive(.param .b32 left, .param .b64 at)
        {{
            .reg .pred %p1; .reg .b32 %r<4>; .reg .b64 %q<2>;
            {dives}
            ld.param.b32 %r1, [left];
            ld.param.b64 %q1, [at];
            setp.eq.u32 %p1, %r1, 0;
            @%p1 bra bottom;
            sub.u32 %r2, %r1, 1;
            {{
                .param .b32 next; .param .b64 there;
                st.param.b32 [next], %r2;
                st.param.b64 [there], %q1;
                call dive, (next, there);
            }}
            ret;
            bottom:
            {{
                .param .b64 there;
                st.param.b64 [there], %q1;
                call last, (there);
            }}
            ret;
        }}
        .visible .entry k(.param .u64 out, .param .u32 depth)
        {{
            .reg .b32 %r<4>; .reg .b64 %q<4>;
            ld.param.u64 %q1, [out];
            ld.param.u32 %r1, [depth];
            {{
                .param .b32 next; .param .b64 there;
                st.param.b32 [next], %r1;
                st.param.b64 [there], %q1;
                call dive, (next, there);
            }}
            red.global.add.u32 [%q1], 1;
            ret;
        }}"
    )
}

fn run(module: &Arc<Module>, threads: u32, depth: u32) -> Result<(), FaultKind> {
    let mut data = [0u32; 1024];
    let (buffers, depth) = (&mut [buffer(&mut data)], depth.to_le_bytes());
    let result = harness::run_in(module, "k", [1; 3], [threads, 1, 1], 0, buffers, &[&depth]);
    result.map_err(|fault| fault.kind)
}

/// How deep threads get without an overflow; deeper, they do not.
fn dive_to_the_end(module: &Arc<Module>, threads: u32, what: &str) -> u32 {
    let overflows = |depth| run(module, threads, depth) == Err(FaultKind::StackOverflow);
    let (mut fits, mut beyond) = (0, 1 << 20);
    assert!(!overflows(fits) && overflows(beyond), "{what}");
    while beyond - fits > 1 {
        let middle = (fits + beyond) / 2;
        match overflows(middle) {
            true => beyond = middle,
            false => fits = middle,
        }
    }
    fits
}

const AT_THE_BOTTOM: &[(&str, u32)] = &[
    ("", 32),
    // printf, malloc and free.
    (
        "{ .local .align 8 .b8 args[24]; .param .b64 f; .param .b64 a; .param .b32 s;
        mov.f64 %d1, 0d3FF0000000000000; mov.u64 %q2, args; cvta.local.u64 %q3, %q2;
        st.local.f64 [args], %d1; mov.u64 %q4, format; st.local.u64 [args+8], %q4;
        st.local.u32 [args+16], %c1; st.param.b64 [f], %q4; st.param.b64 [a], %q3;
        call (s), vprintf, (f, a); }",
        1,
    ),
    (
        "{ .param .b64 n; .param .b64 m; st.param.b64 [n], 4096; call (m), malloc, (n); }
        { .param .b64 m; st.param.b64 [m], 0; call free, (m); }",
        32,
    ),
    // Faults of accesses.
    ("mov.u64 %q2, 24; st.global.u32 [%q2], 1;", 32),
    ("st.shared.u32 [%c1+3], 1;", 1),
    ("ld.global.u32 %r1, [%q1]; ld.global.u32 %r2, [%q1+64]; st.global.u32 [%q1+4], %r1;", 32),
    // Operations of a warp, and atomics.
    ("shfl.sync.idx.b32 %r1, %c1, 0, 31, -1; vote.sync.ballot.b32 %r2, %p1, -1;", 32),
    ("match.any.sync.b32 %r1, %c1, -1; redux.sync.add.s32 %r2, %c1, -1;", 32),
    (
        "atom.global.add.f32 %f1, [%q1+16], 0f3f800000; atom.global.add.noftz.f16x2 %r1, [%q1+20], %c1;
        atom.global.exch.b128 %w1, [%q1+32], %w2; atom.global.inc.u32 %r1, [%q1+24], 7;",
        32,
    ),
    // Floats that no instruction computes.
    (
        "cvt.rn.f64.u32 %d1, %c1; mov.f64 %d2, 0d3FF0000000000001; fma.rp.f64 %d3, %d1, %d2, %d2; div.rz.f64 %d3, %d1, %d2;
        sqrt.rm.f64 %d3, %d2; add.rp.f64 %d4, %d3, %d1; cvt.rn.f32.f64 %f1, %d3; sin.approx.f32 %f2, %f1;
        ex2.approx.f32 %f2, %f1; lg2.approx.f32 %f2, %f1; st.global.f64 [%q1+8], %d4; st.global.f32 [%q1+8], %f2;",
        32,
    ),
    // Tensor cores.
    (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%c1, %c2, %c3, %c4}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, {%c1, %c2, %c3, %c4};
        st.global.b32 [%q1+8], %c1;",
        32,
    ),
    (
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%c1, %c2, %c3, %c4}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, {%c1, %c2, %c3, %c4};",
        32,
    ),
    (
        "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%c1, %c2, %c3, %c4}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, {%c1, %c2, %c3, %c4};",
        32,
    ),
    (
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%c1, %c2, %c3, %c4}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, {%c1, %c2, %c3, %c4};",
        32,
    ),
    (
        "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%c1, %c2, %c3, %c4}, {%a0, %a1, %a2, %a3}, {%b0, %b1, %b2, %b3}, {%c1, %c2, %c3, %c4}, %a4, 0;",
        32,
    ),
    (
        "mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 {%c1, %c2, %c3, %c4}, {%a0, %a1, %a2, %a3}, {%b0, %b1, %b2, %b3}, {%c1, %c2, %c3, %c4}, %a4, 0;",
        32,
    ),
    (
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d1, %d2}, {%d3}, {%d4}, {%d1, %d2};",
        32,
    ),
    (
        "mov.u64 %q2, 0x4000000800000010; mov.u64 %q3, 0x4000000800000010;
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%c1, %c2, %c3, %c4}, %q2, %q3, 1, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        128,
    ),
    // Copies.
    (
        "mov.u32 %r1, area; cp.async.ca.shared.global [%r1], [%q1], 16; cp.async.wait_all;
        mbarrier.init.shared.b64 [%r1+64], 32; mbarrier.arrive.shared.b64 %q2, [%r1+64];
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        32,
    ),
    ("nanosleep.u32 10; exit;", 32),
    ("trap;", 32),
];

#[test]
fn at_the_bottom_there_is_room_for_the_runtime() {
    stack_use::ask();
    for waits in [true, false] {
        for (last, threads) in AT_THE_BOTTOM {
            let module = harness::load_as(&source(last, waits, ""), Form::Fibers);
            let mode = module.kernel("k").unwrap().compile().unwrap().mode;
            assert!(!waits || mode == Mode::Fibers, "{last}");
            let fits = dive_to_the_end(&module, *threads, last);
            for depth in fits.saturating_sub(3)..fits + 3 {
                let overflow = run(&module, *threads, depth) == Err(FaultKind::StackOverflow);
                assert_eq!(overflow, depth > fits, "{last}");
            }
        }
    }
    let left = stack_use::left();
    assert!(left >= 16 << 10, "{left} bytes were left");
}

/// A function whose frame is as large as any may be.
#[test]
fn large_frames_end_in_a_fault() {
    stack_use::ask();
    for registers in [10, 500, 1000, 1900, 2030] {
        let mut dives = format!(".reg .b64 %live<{registers}>; ld.param.b64 %q0, [at];\n");
        for n in 0..registers {
            dives += &format!("ld.global.u64 %live{n}, [%q0+{}];\n", 8 * (n % 100));
        }
        let mut after = String::from("st.global.u64 [%q1+64], %live0;");
        for n in 1..registers {
            after += &format!("xor.b64 %live0, %live0, %live{n}; ");
        }
        after += "st.global.u64 [%q1+72], %live0; ret;\nbottom:";
        for waits in [true, false] {
            let source = source("", waits, &dives).replace("ret;\n            bottom:", &after);
            let module = harness::load_as(&source, Form::Fibers);
            let fits = dive_to_the_end(&module, 2, "large frames");
            assert!(fits > 3, "{registers} {fits}");
        }
    }
    let left = stack_use::left();
    assert!(left >= 16 << 10, "{left} bytes were left");
}
