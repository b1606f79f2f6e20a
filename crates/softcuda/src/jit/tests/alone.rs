//! Blocks that the threads of a group go through one by one: calls, and local memory.

use super::forms::{kernel, run, same};
use crate::jit::module::Form;

/// `%p1` and `%p2` say whether a thread comes, as the bits of `n` do; it has something to do that
/// goes by vectors.
const COMES: &str = ".reg .f32 %g<4>; shr.u32 %r6, %r3, %r1; and.b32 %r7, %r6, 1;
    setp.ne.u32 %p1, %r7, 0; shr.u32 %r7, %r6, 3; and.b32 %r7, %r7, 1; setp.ne.u32 %p2, %r7, 0;
    cvt.rn.f32.u32 %g0, %r1; mul.f32 %g1, %g0, 0f3fc00000; add.f32 %g1, %g1, %g0;
    fma.rn.f32 %g2, %g1, %g0, %g1; mul.f32 %g2, %g2, %g2; add.f32 %g2, %g2, %g0;
    cvt.rzi.u32.f32 %r9, %g2; xor.b32 %r9, %r9, %r1; mul.lo.u32 %r9, %r9, 31;
    add.u32 %r9, %r9, 7; xor.b32 %r9, %r9, 0x55; or.b32 %r9, %r9, 1;";

const WHO: [u32; 6] = [0, !0, 1, 0x8000_0080, 0x5555_5555, 0x00f3_c80f];

/// The same in all forms, and in blocks of any size.
fn all_same(body: &str) {
    for n in WHO {
        for threads in [1, 8, 20, 32] {
            _ = same(&format!("{COMES} {body}"), [threads, 1, 1], n);
        }
    }
}

#[test]
fn local_memory() {
    all_same(
        ".local .align 4 .b8 l[32]; mov.u64 %rd10, l; @!%p1 bra skip;
        st.local.u32 [%rd10], %r1; st.local.u32 [%rd10+4], %r9; and.b32 %r5, %r1, 1;
        mul.wide.u32 %rd6, %r5, 4; add.u64 %rd6, %rd10, %rd6; ld.local.u32 %r7, [%rd6];
        add.u32 %r9, %r9, %r7;
        skip: add.u32 %r9, %r9, 3;",
    );
}

/// What a thread has left in its local memory is there when it comes again.
#[test]
fn local_memory_stays() {
    all_same(
        ".local .align 4 .b8 l[24]; mov.u64 %rd10, l; @!%p1 bra skip;
        st.local.u32 [%rd10+20], %r9; st.local.u32 [%rd10+4], %r1;
        skip: add.u32 %r9, %r9, 3; mul.lo.u32 %r9, %r9, 5; and.pred %p3, %p1, %p2;
        @!%p3 bra past;
        ld.local.u32 %r7, [%rd10+20]; ld.local.u32 %r8, [%rd10+4];
        mad.lo.u32 %r9, %r9, %r7, %r8; st.local.u32 [%rd10+20], %r9;
        past: mul.lo.u32 %r9, %r9, 5; mov.u32 %r11, 0;
        again: and.b32 %r12, %r11, %r1; setp.eq.u32 %p4, %r12, 2; and.pred %p4, %p4, %p3;
        @!%p4 bra next;
        ld.local.u32 %r7, [%rd10+20]; add.u32 %r9, %r9, %r7; st.local.u32 [%rd10+20], %r9;
        next: add.u32 %r11, %r11, 1; setp.lt.u32 %p5, %r11, 6; @%p5 bra again;",
    );
}

/// Where all threads come, also by what is the same for all.
#[test]
fn what_is_written_there_varies() {
    all_same(
        ".local .align 4 .b8 l[8]; mov.u64 %rd10, l; mov.u32 %r12, 5; setp.gt.s32 %p6, %r3, 0;
        @%p6 bra skip;
        st.local.u32 [%rd10], %r1; mov.u32 %r12, 9; ld.local.u32 %r13, [%rd10];
        add.u32 %r9, %r9, %r13;
        skip: mad.lo.u32 %r9, %r9, 31, %r12;",
    );
    // Where a block may be cut: nothing wraps there.
    for cut in [
        "mul.wide.u32 %rd6, %r3, 4;",
        "div.u32 %r14, %r3, 3;",
        "cvt.u64.u32 %rd6, %r3;",
    ] {
        for (before, behind) in [("mov.u32 %r12, 9;", ""), ("", "mov.u32 %r12, 9;")] {
            all_same(&format!(
                ".local .align 4 .b8 l[8]; mov.u64 %rd10, l; mov.u32 %r12, 5;
                setp.gt.s32 %p6, %r3, 0; @%p6 bra skip; {before} {cut} st.local.u32 [%rd10], %r1;
                {cut} {behind} skip: mad.lo.u32 %r9, %r9, 31, %r12;"
            ));
        }
    }
}

/// An access outside of local memory is a fault of the thread that makes it.
#[test]
fn faults() {
    for who in [0, 3, 8, 13] {
        all_same(&format!(
            ".local .align 4 .b8 l[8]; mov.u64 %rd10, l; @!%p1 bra skip;
            setp.eq.u32 %p6, %r1, {who}; @%p6 add.u64 %rd10, %rd10, 0x10000000;
            st.local.u32 [%rd10], %r1; ld.local.u32 %r13, [%rd10]; add.u32 %r9, %r9, %r13;
            skip: mad.lo.u32 %r9, %r9, 31, 7;"
        ));
    }
}

const FUNCTIONS: &str = ".func (.param .b32 r) twice(.param .b32 a, .param .b64 p) {
        .reg .b32 %a<4>; .reg .b64 %b<2>; .local .align 4 .b8 l[16];
        ld.param.u32 %a0, [a]; ld.param.u64 %b0, [p]; mov.u32 %a1, %tid.x;
        st.local.u32 [l+4], %a0; st.global.u32 [%b0+4096], %a1; ld.local.u32 %a2, [l+4];
        mad.lo.u32 %a0, %a2, 2, %a1; st.param.u32 [r], %a0; ret; }
    .func ends(.param .b32 a) { .reg .b32 %a<2>; .reg .pred %q; ld.param.u32 %a0, [a];
        and.b32 %a0, %a0, 2; setp.ne.u32 %q, %a0, 0; @%q exit; ret; }
    .func (.param .b64 r) generic(.param .b64 a) { .reg .b64 %a<2>; ld.param.u64 %a0, [a];
        cvta.local.u64 %a0, %a0; st.param.u64 [r], %a0; ret; }
    .func fails(.param .b32 a) { .reg .b32 %a<2>; .reg .pred %q; ld.param.u32 %a0, [a];
        setp.eq.u32 %q, %a0, 11; @%q trap; ret; }";

/// The same of kernels that call functions.
fn calls_same(body: &str) {
    let source = kernel(&format!("{COMES} {body}"));
    let source = source.replace(".visible .entry", &format!("{FUNCTIONS} .visible .entry"));
    for n in WHO {
        for threads in [1, 8, 20, 32] {
            for grid in [1, 3] {
                let [vectors, rounds, fibers] = [Form::Vectors, Form::Rounds, Form::Fibers]
                    .map(|form| run(&source, form, [grid, 1, 1], [threads, 1, 1], n));
                assert!(
                    vectors == fibers && rounds == fibers,
                    "{threads} {n:x}\n{body}"
                );
            }
        }
    }
}

#[test]
fn calls() {
    let call = "{ .param .b32 ret; .param .b32 x; .param .b64 y;
        st.param.b32 [x], %r9; st.param.b64 [y], %rd3; call.uni (ret), twice, (x, y);
        ld.param.b32 %r7, [ret]; } add.u32 %r9, %r9, %r7;";
    calls_same(&format!(
        "@!%p1 bra skip; {call} skip: mul.lo.u32 %r9, %r9, 3;"
    ));
    calls_same(&format!(
        "@!%p1 bra skip; {call} skip: mul.lo.u32 %r9, %r9, 3; @!%p2 bra past; {call} {call}
        past: xor.b32 %r9, %r9, %r1;"
    ));
    calls_same(&format!(
        "mov.u32 %r11, 0; again: @!%p1 bra skip; {call} skip: mul.lo.u32 %r9, %r9, 3;
        add.u32 %r11, %r11, 1; setp.lt.u32 %p5, %r11, %r1; @%p5 bra again;"
    ));
}

/// Arguments from another block than the call: no group can keep them.
#[test]
fn arguments_from_elsewhere() {
    calls_same(
        ".param .b32 ret; .param .b32 x; .param .b64 y; @!%p1 bra skip; st.param.b32 [x], %r9;
        st.param.b64 [y], %rd3; setp.gt.u32 %p5, %r1, 4; @%p5 bra other; add.u32 %r9, %r9, 1;
        other: call.uni (ret), twice, (x, y); ld.param.b32 %r7, [ret]; add.u32 %r9, %r9, %r7;
        skip: mul.lo.u32 %r9, %r9, 3;",
    );
}

/// Local memory by an address that a function has made: no group shares it.
#[test]
fn generic_addresses_of_local_memory() {
    calls_same(
        ".local .align 8 .b8 l[8]; mov.u64 %rd10, l; mov.u64 %rd11, %rd3; @!%p1 bra skip;
        st.local.u32 [l], %r9;
        { .param .b64 ret; .param .b64 x; st.param.b64 [x], %rd10; call.uni (ret), generic, (x);
        ld.param.b64 %rd11, [ret]; }
        skip: mul.lo.u32 %r9, %r9, 3; ld.u32 %r7, [%rd11]; add.u32 %r9, %r9, %r7;",
    );
}

/// Functions in which threads end, or fail.
#[test]
fn functions_that_do_not_return() {
    for function in ["ends", "fails"] {
        calls_same(&format!(
            "@!%p1 bra skip; {{ .param .b32 x; st.param.b32 [x], %r1; call.uni {function}, (x); }}
            skip: mul.lo.u32 %r9, %r9, 3;"
        ));
    }
    // The last block has no end but the call's.
    calls_same(
        "st.global.u32 [%rd3], %r9; @!%p1 bra skip; ret;
        skip: { .param .b32 x; st.param.b32 [x], %r1; call.uni ends, (x); }",
    );
}
