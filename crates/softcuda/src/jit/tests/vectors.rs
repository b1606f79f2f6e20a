//! Threads that run together: their faults are told of the thread that makes the access, and what
//! they compute in vectors is what each would compute.

use super::forms;
use crate::grid::launch::FaultKind;
use crate::jit::harness::{self, buffer};

/// The fault of a block of `threads` whose accesses fit `words` words and no more.
fn fault(body: &str, words: usize, threads: u32) -> (FaultKind, Option<[u32; 3]>) {
    let source = harness::module(&format!(
        ".visible .entry k(.param .u64 a) {{
            .shared .align 8 .b8 tile[{}];
            .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .f32 %f<4>; .reg .f64 %d<4>; .reg .pred %p<4>;
            ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x; mov.f32 %f1, 0f3f800000;
            {body}
        }}",
        words * 4
    ));
    let mut data = vec![0u32; words];
    let block = [threads, 1, 1];
    let fault = harness::run(&source, "k", [1; 3], block, &mut [buffer(&mut data)], &[]);
    let fault = fault.expect_err("an access is outside");
    (fault.kind, fault.thread)
}

/// Each body accesses, in thread `n`, word `n` of its memory, and the last thread that fits is
/// followed by one that does not.
#[test]
fn each_lane_faults_by_itself() {
    let side_by_side = "mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;";
    let anywhere = "xor.b32 %r2, %r1, 5; xor.b32 %r2, %r2, 5; mul.wide.u32 %rd2, %r2, 4;
        add.s64 %rd3, %rd1, %rd2;";
    let in_tile = "mov.u32 %r3, tile; shl.b32 %r2, %r1, 2; add.u32 %r3, %r3, %r2;";
    let mut bodies = vec![];
    for address in [side_by_side, anywhere] {
        for access in [
            "ld.global.f32 %f2, [%rd3];",
            "st.global.f32 [%rd3], %f1;",
            "ld.global.u32 %r4, [%rd3]; st.global.u32 [%rd3], %r4;",
            "red.global.add.u32 [%rd3], 1;",
            "setp.ne.u32 %p1, %r1, 77; @%p1 st.global.f32 [%rd3], %f1;",
            "ld.global.f32 %f2, [%rd3+-4];",
        ] {
            bodies.push(format!("{address} {access}"));
        }
    }
    for access in ["ld.shared.f32 %f2, [%r3];", "st.shared.u32 [%r3], %r1;"] {
        bodies.push(format!("{in_tile} {access}"));
    }
    for body in &bodies {
        for threads in [16, 11] {
            for words in 1..10 {
                // One access reads a word before its own: the first thread's is outside.
                let first = match body.contains("+-4") {
                    true => 0,
                    false => words as u32,
                };
                assert_eq!(
                    fault(body, words, threads),
                    (FaultKind::IllegalAddress, Some([first, 0, 0])),
                    "{words} words for {threads} threads: {body}"
                );
            }
        }
    }
}

#[test]
fn each_lane_is_misaligned_by_itself() {
    for thread in 0..9 {
        let body = format!(
            "mul.wide.u32 %rd2, %r1, 4; setp.eq.u32 %p1, %r1, {thread}; @%p1 add.s64 %rd2, %rd2, 2;
            add.s64 %rd3, %rd1, %rd2; ld.global.f32 %f2, [%rd3];"
        );
        for threads in [16, 11] {
            assert_eq!(
                fault(&body, 32, threads),
                (FaultKind::Misaligned, Some([thread, 0, 0])),
            );
        }
    }
    // Side by side, and none of them aligned.
    let body = "mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; ld.global.f32 %f2, [%rd3+2];";
    assert_eq!(
        fault(body, 32, 16),
        (FaultKind::Misaligned, Some([0, 0, 0]))
    );
}

/// Threads that part between accesses at neighbouring indices check those that are left by
/// themselves.
#[test]
fn threads_that_part_within_a_run() {
    for last in 0..12u32 {
        // Thread `last` is the first whose second index wraps, to far below the array.
        let first = u32::MAX - last;
        let body = format!(
            "add.u32 %r2, %r1, {first}; add.u32 %r3, %r2, 1; sub.s64 %rd4, %rd1, {};
            mul.wide.u32 %rd2, %r2, 4; add.s64 %rd2, %rd4, %rd2; ld.global.u32 %r4, [%rd2];
            mul.wide.u32 %rd3, %r3, 4; add.s64 %rd3, %rd4, %rd3; st.global.u32 [%rd3], %r4;",
            u64::from(first) * 4
        );
        for threads in [16, 13] {
            assert_eq!(
                fault(&body, 16, threads),
                (FaultKind::IllegalAddress, Some([last, 0, 0])),
            );
        }
    }
    // Thread after thread, in a row that has no group.
    for words in 2..8 {
        let body = "add.u32 %r2, %r1, 1; add.u32 %r3, %r1, 2; mul.wide.u32 %rd2, %r1, 4;
            mul.wide.u32 %rd3, %r2, 4; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd2, %rd1, %rd2;
            add.s64 %rd3, %rd1, %rd3; add.s64 %rd4, %rd1, %rd4; ld.global.u32 %r4, [%rd2];
            ld.global.u32 %r5, [%rd3]; ld.global.u32 %r6, [%rd4];";
        assert_eq!(
            fault(body, words, 7),
            (FaultKind::IllegalAddress, Some([words as u32 - 2, 0, 0])),
        );
    }
}

/// A narrow index that wraps within a group, upwards or downwards, is each thread's own; so it is
/// where the last thread's is the last that fits.
#[test]
fn an_index_that_wraps() {
    let steps = [1, -1, 3, -5, 1 << 28, -(1 << 28), i32::MAX, i32::MIN];
    for step in steps {
        let source = harness::module(&format!(
            ".visible .entry k(.param .u64 a, .param .u32 first) {{
                .reg .b32 %r<8>; .reg .b64 %rd<8>;
                ld.param.u64 %rd1, [a]; ld.param.u32 %r3, [first]; mov.u32 %r1, %tid.x;
                mad.lo.u32 %r2, %r1, {step}, %r3; mul.wide.u32 %rd3, %r1, 16;
                cvt.u64.u32 %rd2, %r2; cvt.s64.s32 %rd4, %r2;
                add.s64 %rd3, %rd1, %rd3; st.global.u64 [%rd3], %rd2; st.global.u64 [%rd3+8], %rd4;
            }}"
        ));
        let module = harness::load(&source);
        for edge in [0, i32::MIN] {
            for before in -1..10 {
                for first in [-1, 0, 1].map(|by| {
                    step.wrapping_mul(-before)
                        .wrapping_add(by)
                        .wrapping_add(edge)
                }) {
                    let mut data = [[0u64; 2]; 16];
                    let buffers: &mut [&mut [u8]] = &mut [buffer(data.as_flattened_mut())];
                    let (block, more) = ([16, 1, 1], (first as u32).to_le_bytes());
                    harness::run_in(&module, "k", [1; 3], block, 0, buffers, &[&more]).unwrap();
                    for (thread, got) in (0..).zip(data) {
                        let narrow = first.wrapping_add(step.wrapping_mul(thread));
                        let wanted = [u64::from(narrow as u32), i64::from(narrow) as u64];
                        assert_eq!(got, wanted, "thread {thread}, from {first:#x} by {step}");
                    }
                }
            }
        }
    }
}

/// What follows from several comparisons is each thread's own, wherever the threads of a group do
/// not agree on one of them, or what was compared has been written since.
#[test]
fn several_comparisons_decide() {
    type Holds = fn(i32, i32, i32) -> bool;
    let conditions: [(&str, Holds); 9] = [
        (
            "setp.lt.s32 %p1, %r2, %r4; setp.ge.s32 %p2, %r2, %r5; or.pred %p1, %p1, %p2;",
            |x, a, b| x < a || x >= b,
        ),
        (
            "setp.ge.s32 %p1, %r2, %r4; setp.gt.s32 %p2, %r5, %r2; and.pred %p1, %p2, %p1;",
            |x, a, b| x >= a && x < b,
        ),
        (
            "setp.lt.s32 %p1, %r2, %r4; not.pred %p2, %p1; setp.eq.s32 %p1, %r2, %r5;
            not.pred %p1, %p1; and.pred %p1, %p1, %p2;",
            |x, a, b| x >= a && x != b,
        ),
        (
            "setp.lt.s32 %p1, %r2, %r4; setp.lt.s32 %p2, %r4, %r5; or.pred %p1, %p1, %p2;",
            |x, a, b| x < a || a < b,
        ),
        (
            "setp.lt.s32 %p1, %r2, %r4; setp.lt.s32 %p2, %r4, %r5; and.pred %p1, %p1, %p2;",
            |x, a, b| x < a && a < b,
        ),
        (
            "setp.lt.s32 %p1, %r2, %r4; setp.ne.s32 %p2, %r4, %r5; xor.pred %p3, %p1, %p2;
            setp.hi.u32 %p2, %r2, %r5; or.pred %p1, %p3, %p2;",
            |x, a, b| ((x < a) ^ (a != b)) || x as u32 > b as u32,
        ),
        // What was compared is another number by then; so is a predicate.
        (
            "setp.lt.s32 %p1, %r2, %r4; setp.ge.s32 %p2, %r2, %r5; add.s32 %r2, %r2, 7;
            or.pred %p1, %p1, %p2;",
            |x, a, b| x < a || x >= b,
        ),
        (
            "setp.lt.s32 %p3, %r4, %r5; setp.lt.s32 %p1, %r2, %r4; or.pred %p1, %p1, %p3;
            setp.lt.s32 %p3, %r5, %r4;",
            |x, a, b| x < a || a < b,
        ),
        (
            "setp.lt.s32 %p1, %r2, %r4; setp.ge.s32 %p2, %r2, %r5; or.pred %p1, %p1, %p2;
            setp.ne.s32 %p3, %r2, %r4; and.pred %p1, %p1, %p3; setp.gt.s32 %p2, %r2, %r4;
            setp.eq.s32 %p3, %r4, 3; or.pred %p2, %p2, %p3; and.pred %p1, %p1, %p2;",
            |x, a, b| (x < a || x >= b) && x != a && (x > a || a == 3),
        ),
    ];
    for (condition, holds) in conditions {
        for negated in ["", "!"] {
            for step in [1i32, -3] {
                let source = harness::module(&format!(
                    ".visible .entry k(.param .u64 at, .param .u32 from, .param .u32 a, .param .u32 b) {{
                        .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<4>;
                        ld.param.u64 %rd1, [at]; ld.param.u32 %r3, [from];
                        ld.param.u32 %r4, [a]; ld.param.u32 %r5, [b]; mov.u32 %r1, %tid.x;
                        mad.lo.u32 %r2, %r1, {step}, %r3; mul.wide.u32 %rd2, %r1, 4;
                        add.s64 %rd1, %rd1, %rd2; mov.u32 %r7, 1;
                        {condition}
                        @{negated}%p1 bra skip;
                        mad.lo.u32 %r7, %r1, 10, 2;
                        skip: st.global.u32 [%rd1], %r7;
                    }}"
                ));
                let module = harness::load(&source);
                for edge in [0, i32::MAX, i32::MIN] {
                    for (from, a, b) in (-26..26)
                        .step_by(5)
                        .flat_map(|from| [(from, 0, 3), (from, 3, 0), (from, 3, 3), (from, -9, 30)])
                    {
                        let [from, a, b] = [from, a, b].map(|n| edge.wrapping_add(n));
                        let mut data = [0u32; 16];
                        let buffers: &mut [&mut [u8]] = &mut [buffer(&mut data)];
                        let scalars = [from, a, b].map(i32::to_le_bytes);
                        let scalars = scalars.each_ref().map(|bytes| &bytes[..]);
                        let (grid, block) = ([1; 3], [16, 1, 1]);
                        harness::run_in(&module, "k", grid, block, 0, buffers, &scalars).unwrap();
                        for (thread, got) in (0..).zip(data) {
                            let x = from.wrapping_add(step.wrapping_mul(thread));
                            let jumps = holds(x, a, b) == negated.is_empty();
                            let wanted = if jumps { 1 } else { 10 * thread as u32 + 2 };
                            assert_eq!(got, wanted, "{negated}{condition} {from} {a} {b} {thread}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn numbers_of_any_width_outlast_a_wait() {
    let source = harness::module(
        ".visible .entry k(.param .u64 a) {
            .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .b16 %h; .reg .pred %yes; .reg .f64 %d;
            mov.u16 %h, 5; mov.pred %yes, 1; mov.f64 %d, 0d4008000000000000;
            bar.sync 0;
            ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;
            add.s64 %rd1, %rd1, %rd2;
            cvt.u32.u16 %r3, %h; @%yes add.u32 %r3, %r3, 100; cvt.rzi.u32.f64 %r4, %d;
            mad.lo.u32 %r3, %r4, 1000, %r3; st.global.u32 [%rd1], %r3;
        }",
    );
    let mut data = [0u32; 32];
    let buffers: &mut [&mut [u8]] = &mut [buffer(&mut data)];
    harness::run(&source, "k", [1; 3], [32, 1, 1], buffers, &[]).unwrap();
    assert_eq!(data, [3105; 32]);
}

/// One check of a group's elements says nothing of the shared memory that they are copied to.
#[test]
fn elements_are_copied_to_shared_memory() {
    let source = harness::module(
        ".visible .entry k(.param .u64 from, .param .u64 to) {
            .shared .align 8 .b8 tile[64];
            .reg .b32 %r<5>; .reg .b64 %rd<7>;
            ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [to]; mov.u32 %r1, %tid.x;
            xor.b32 %r2, %r1, 5; mul.wide.u32 %rd3, %r2, 4; add.s64 %rd4, %rd1, %rd3;
            mov.u32 %r3, tile; mad.lo.u32 %r3, %r1, 4, %r3;
            cp.async.ca.shared.global [%r3], [%rd4], 4;
            cp.async.wait_all;
            ld.shared.u32 %r4, [%r3];
            mul.wide.u32 %rd5, %r1, 4; add.s64 %rd6, %rd2, %rd5; st.global.u32 [%rd6], %r4;
            ret;
        }",
    );
    let mut from: Vec<u32> = (0..16).map(|n| 100 + n).collect();
    let mut to = [0u32; 16];
    let buffers: &mut [&mut [u8]] = &mut [buffer(&mut from), buffer(&mut to)];
    harness::run(&source, "k", [1; 3], [16, 1, 1], buffers, &[]).unwrap();
    assert_eq!(to, std::array::from_fn(|n| 100 + (n as u32 ^ 5)));
}

/// Doubles that are taken apart and put together, in groups and thread by thread.
#[test]
fn halves_of_doubles() {
    let source = harness::module(
        ".visible .entry k(.param .u64 data) {
            .reg .b32 %r<6>; .reg .b64 %rd<4>; .reg .f64 %fd<4>; .reg .f32 %f<2>;
            ld.param.u64 %rd1, [data]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 8;
            add.u64 %rd3, %rd1, %rd2; ld.global.f64 %fd1, [%rd3];
            mov.b64 {%r2, %r3}, %fd1; xor.b32 %r2, %r2, 5; add.u32 %r3, %r3, %r1;
            mov.b64 %fd2, {%r3, %r2}; mov.b64 {%f1, %r4}, %fd2; mov.b64 %fd3, {%r4, %f1};
            st.global.f64 [%rd3], %fd3; st.global.f64 [%rd3+512], %fd2; }",
    );
    for threads in [64, 63] {
        let mut random = crate::jit::runtime::float::tests::Random(3);
        let mut data: Vec<u64> = (0..128).map(|_| random.next()).collect();
        let before = data.clone();
        harness::run(
            &source,
            "k",
            [1; 3],
            [threads, 1, 1],
            &mut [buffer(&mut data)],
            &[],
        )
        .unwrap();
        for thread in 0..threads as usize {
            let low = u64::from(before[thread] as u32 ^ 5);
            let high = u64::from(((before[thread] >> 32) as u32).wrapping_add(thread as u32));
            assert_eq!(data[thread], high << 32 | low, "{thread} of {threads}");
            assert_eq!(data[64 + thread], low << 32 | high, "{thread} of {threads}");
        }
    }
}

/// Where a value wraps, threads of a group go on one by one, with what is live there alone: the
/// index that an address was computed from is not.
#[test]
fn who_comes_in_between_has_no_index_to_check() {
    let body = "sub.u32 %r2, %r1, 12;
        mul.wide.u32 %rd2, %r1, 4;
        add.s64 %rd3, %rd1, %rd2;
        cvt.u64.u32 %rd4, %r2;
        add.s64 %rd4, %rd4, 1;
        st.global.f32 [%rd3], %f1;";
    for words in 8..16 {
        let first = (FaultKind::IllegalAddress, Some([words as u32, 0, 0]));
        assert_eq!(fault(body, words, 16), first, "{words} words");
    }
}

/// Arithmetic of halves, alone and in pairs, with what is rounded, subnormal, infinite or no
/// number: by the processor's conversions, and without.
#[test]
fn arithmetic_of_halves() {
    let mut body = String::from(
        ".reg .b16 %h<6>; .reg .b32 %x<6>; mul.lo.u32 %r4, %r2, 2654435761; add.u32 %r4, %r4, %r3;
        mov.u32 %r9, 0; mov.u32 %r10, 0;
        again: mad.lo.u32 %r4, %r4, 1664525, 1013904223; shr.u32 %r5, %r4, 7; xor.b32 %x0, %r4, %r5;
        mad.lo.u32 %r4, %r4, 1664525, 1013904223; shr.u32 %r5, %r4, 9; xor.b32 %x1, %r4, %r5;
        and.b32 %r6, %r10, 3; setp.eq.u32 %p2, %r6, 0; @%p2 and.b32 %x1, %x1, 0x83ff83ff;
        setp.eq.u32 %p2, %r6, 1; @%p2 or.b32 %x0, %x0, 0x78007c00;
        mad.lo.u32 %r4, %r4, 1664525, 1013904223; shr.u32 %r5, %r4, 5; xor.b32 %x2, %r4, %r5;
        mov.b32 {%h0, %h1}, %x0; mov.b32 {%h2, %h3}, %x1;\n",
    );
    for operation in [
        "add.rn.f16x2 %x3, %x0, %x1;",
        "sub.f16x2 %x3, %x0, %x1;",
        "mul.rn.f16x2 %x3, %x0, %x1;",
        "fma.rn.f16x2 %x3, %x0, %x1, %x2;",
        "fma.rn.sat.f16x2 %x3, %x0, %x1, %x2;",
        "add.ftz.f16x2 %x3, %x0, %x1;",
        "fma.rn.relu.f16x2 %x3, %x2, %x1, %x0;",
        "fma.rn.f16 %h4, %h0, %h2, %h3; cvt.u32.u16 %x3, %h4;",
        "add.f16 %h4, %h0, %h3; mul.f16 %h5, %h1, %h4; mov.b32 %x3, {%h4, %h5};",
        "sub.f16 %h4, %h1, %h3; cvt.f32.f16 %f1, %h4; mov.b32 %x3, %f1;",
        "mov.b32 %f1, %x0; cvt.rn.f16.f32 %h4, %f1; cvt.u32.u16 %x3, %h4;",
        "cvt.f32.f16 %f1, %h0; cvt.f32.f16 %f2, %h2; mul.f32 %f1, %f1, %f2;
        cvt.rn.f16x2.f32 %x3, %f1, %f2;",
    ] {
        body += &format!("{operation} mad.lo.u32 %r9, %r9, 31, %x3;\n");
    }
    body += "add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 20; @%p1 bra again;";
    for more in ["", "mov.u32 %r38, 1;"] {
        for block in [[32, 1, 1], [24, 1, 1], [256, 1, 1]] {
            for (n, wait) in [(1, ""), (77, "bar.sync 0;")] {
                let outcome = forms::same(&format!("{more}{wait}{body}"), block, n);
                assert!(outcome.is_ok(), "{outcome:?}");
            }
        }
    }
}

/// Upper halves of products, shifts of two words and signs of floats are in vectors what they are
/// for a thread.
#[test]
fn products_shifts_and_signs() {
    let mut operations = vec![];
    for ty in ["u32", "s32"] {
        operations.push(format!("mul.hi.{ty} %r8, A, B;"));
        operations.push(format!("mul.hi.{ty} %r8, A, -0x5bd1e995;"));
        operations.push(format!("mad.hi.{ty} %r8, A, B, %r11;"));
    }
    for amount in [0, 1, 13, 31, 32, 33, 64, -1] {
        for way in ["l.wrap", "r.wrap", "l.clamp", "r.clamp"] {
            operations.push(format!("shf.{way}.b32 %r8, A, B, {amount};"));
        }
    }
    operations.push(
        "mov.b32 %f1, A; mov.b32 %f2, B; copysign.f32 %f3, %f1, %f2; mov.b32 %r8, %f3;".into(),
    );
    operations.push(
        "mov.b64 %d1, {A, B}; mov.b64 %d2, {%r11, A}; copysign.f64 %d3, %d1, %d2;
        mov.b64 {%r8, %r15}, %d3; xor.b32 %r8, %r8, %r15;"
            .into(),
    );
    for operation in operations {
        let mut body = String::from(
            ".reg .f64 %d<4>;
            and.b32 %r10, %r1, 31; mul.wide.u32 %rd4, %r10, 4; add.u64 %rd4, %rd2, %rd4;
            ld.global.u32 %r11, [%rd4]; ld.global.u32 %r12, [%rd4+128];
            shr.u32 %r13, -1, %r10; shl.b32 %r14, 1, %r10;",
        );
        for [a, b] in [[11, 12], [12, 11], [11, 13], [13, 14], [14, 14], [13, 13]] {
            let text = operation.replace('A', &format!("%r{a}"));
            let text = text.replace('B', &format!("%r{b}"));
            body += &format!("{text} mad.lo.u32 %r9, %r9, 31, %r8;");
        }
        forms::same(&body, [72, 1, 1], 0).unwrap();
    }
}

/// Quotients and remainders are in vectors what they are for a thread: of numbers beside powers of
/// two, by each other, by zero, and of the most negative by -1.
#[test]
fn quotients() {
    let near = |to: u32, number: u32| {
        format!(
            "shl.b32 %r8, 1, %r{number}; mov.b32 %r{to}, %r8; add.u32 %r{}, %r8, 1;
            sub.u32 %r{}, %r8, 1; neg.s32 %r{}, %r8; sub.u32 %r{}, %r8, %r8;",
            to + 1,
            to + 2,
            to + 3,
            to + 4
        )
    };
    for operation in ["div.u32", "div.s32", "rem.u32", "rem.s32"] {
        // 32 numbers by 32.
        let mut body = format!(
            ".reg .b32 %q<40>; and.b32 %r10, %r1, 31; shr.u32 %r11, %r1, 5; {} {}",
            near(20, 10).replace("%r2", "%q2"),
            near(30, 11).replace("%r3", "%q3"),
        );
        for a in 20..25 {
            for b in 30..35 {
                for (a, b) in [(a, b), (b, a)] {
                    body +=
                        &format!("{operation} %r8, %q{a}, %q{b}; mad.lo.u32 %r9, %r9, 31, %r8;");
                }
            }
            for b in ["0", "1", "-1", "7", "-7", "0x80000000"] {
                body += &format!("{operation} %r8, %q{a}, {b}; mad.lo.u32 %r9, %r9, 31, %r8;");
            }
        }
        forms::same(&body, [1024, 1, 1], 0).unwrap();
    }
}

/// Where the next block's rows would lie far outside of all memory, this one's are what they are:
/// what is fetched ahead is no access.
#[test]
fn what_is_fetched_ahead_may_be_anywhere() {
    for (far, wide) in [
        ("shl.b32 %r5, %r3, 28;", "s32"),
        ("neg.s32 %r5, %r3;", "u32"),
    ] {
        let body = format!(
            "{far} mul.wide.{wide} %rd4, %r34, %r5; mul.wide.u32 %rd5, %r1, 4;
            add.u64 %rd6, %rd2, %rd5; add.u64 %rd6, %rd6, %rd4; mov.u32 %r6, 0;
            more: ld.global.u32 %r7, [%rd6]; ld.global.u32 %r8, [%rd6+128];
            mad.lo.u32 %r9, %r9, 31, %r7; mad.lo.u32 %r9, %r9, 31, %r8;
            st.global.u32 [%rd6], %r9; bar.sync 0;
            add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 3; @%p1 bra more;"
        );
        for (threads, n) in [(8, 5), (32, 7), (20, 0)] {
            forms::same(&body, [threads, 1, 1], n).unwrap();
        }
    }
}

/// The same of streams, upwards and downwards, and of the next turn of a loop.
#[test]
fn what_streams_access_next_may_be_anywhere() {
    let at = "mul.wide.u32 %rd4, %r1, 4; add.u64 %rd4, %rd2, %rd4; mov.u32 %r6, %r1;";
    let access = "ld.global.u32 %r7, [%rd4]; mad.lo.u32 %r9, %r9, 31, %r7;
        st.global.u32 [%rd4], %r9;";
    let by_blocks = "mov.u32 %r5, %ctaid.x; mov.u32 %r6, %ntid.x; mul.lo.u32 %r5, %r5, %r6;";
    let mut bodies = vec![
        format!(
            "{by_blocks} add.u32 %r5, %r5, %r1; mul.wide.u32 %rd4, %r5, 4;
            add.u64 %rd4, %rd2, %rd4; {access}"
        ),
        format!(
            "{by_blocks} sub.u32 %r5, %r1, %r5; mul.wide.u32 %rd4, %r5, 4;
            add.u64 %rd4, %rd2, %rd4; {access}"
        ),
    ];
    for by in [
        "4",
        "-4",
        "4096",
        "-4096",
        "0x7ffffff0",
        "0x200000000",
        "-0x200000000",
    ] {
        bodies.push(format!(
            "{at} more: {access} add.u64 %rd4, %rd4, {by}; add.u32 %r6, %r6, 1000;
            setp.lt.u32 %p1, %r6, 900; @%p1 bra more;"
        ));
    }
    for by in [
        "mov.u32 %r5, %r3;",
        "neg.s32 %r5, %r3;",
        "shl.b32 %r5, %r3, 20;",
    ] {
        bodies.push(format!(
            "{by} {at} more: mul.wide.s32 %rd4, %r6, 4; add.u64 %rd4, %rd2, %rd4; {access}
            add.u32 %r6, %r6, %r5; setp.lt.u32 %p1, %r6, %r3; @%p1 bra more;"
        ));
    }
    // Distances of constants in registers, and of what is added to an address besides.
    for (by, from, offset) in [
        (
            "mov.u32 %r5, 0x40000000;",
            "mul.wide.u32 %rd4, %r6, 4;",
            4096,
        ),
        (
            "mov.u32 %r5, 0x1ffffff0;",
            "mul.wide.u32 %rd4, %r6, 4;",
            4224,
        ),
        (
            "mov.u32 %r5, 0x80000000;",
            "cvt.u64.u32 %rd5, %r6; shl.b64 %rd4, %rd5, 2;",
            4160,
        ),
    ] {
        bodies.push(format!(
            "{by} {at} more: {from} add.u64 %rd4, %rd1, %rd4; ld.global.f32 %f2, [%rd4+{offset}];
            add.f32 %f1, %f1, %f2; add.u32 %r6, %r6, %r5; setp.lt.u32 %p1, %r6, %r3;
            @%p1 bra more; mov.b32 %r9, %f1;"
        ));
    }
    for by in ["0x7000000000", "0x2000000000000000", "0x4000000000000000"] {
        bodies.push(format!(
            "mov.u64 %rd8, {by}; cvt.u64.u32 %rd5, %r1; cvt.u64.u32 %rd7, %r3;
            more: shl.b64 %rd6, %rd5, 2; add.u64 %rd4, %rd2, %rd6; ld.global.f32 %f2, [%rd4];
            add.f32 %f1, %f1, %f2; add.s64 %rd5, %rd5, %rd8; setp.lt.u64 %p1, %rd5, %rd7;
            @%p1 bra more; add.s64 %rd5, %rd5, {by}; mov.b32 %r9, %f1;"
        ));
        bodies.push(format!(
            "cvt.u64.u32 %rd5, %r1; cvt.u64.u32 %rd7, %r3;
            more: shl.b64 %rd6, %rd5, 2; add.u64 %rd4, %rd2, %rd6; ld.global.f32 %f2, [%rd4];
            add.f32 %f1, %f1, %f2; add.s64 %rd5, %rd5, {by}; setp.lt.u64 %p1, %rd5, %rd7;
            @%p1 bra more; mov.b32 %r9, %f1;"
        ));
    }
    for body in bodies {
        for (threads, n) in [(8, 5), (32, 7), (20, 0), (64, 30)] {
            for waits in ["", "bar.sync 0;"] {
                forms::same(&format!("{body} {waits}"), [threads, 1, 1], n).unwrap();
            }
        }
    }
}

/// Threads of a group that go on by themselves, as what they widen does not count up after all, or
/// as they have not the same number of turns, leave what is the same in all of them where they
/// join: also behind what could have been such a place, and is not.
#[test]
fn what_is_the_same_behind_what_was_assumed() {
    for body in [
        // An address that does not count up; an index that was loaded is widened after it.
        "mov.u32 %r4, %r1; and.b32 %r5, %r1, 1; setp.eq.u32 %p1, %r5, 1; @%p1 bra on;
        add.u32 %r4, %r4, 32; on: mov.u32 %r6, 0;
        mul.wide.u32 %rd4, %r4, 4; add.u64 %rd4, %rd4, %rd1; ld.global.u32 %r7, [%rd4];
        mul.wide.u32 %rd5, %r7, 4; add.u32 %r6, %r3, 1; end:
        cvt.u32.u64 %r8, %rd5; mad.lo.u32 %r9, %r6, 3, %r8;",
        // The same in a loop, whose turns are counted.
        "and.b32 %r5, %r1, 3; and.b32 %r4, %r1, 31; mov.u32 %r6, 0; setp.eq.u32 %p1, %r5, 0;
        @%p1 bra on; more: add.u32 %r4, %r4, 2; sub.u32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, 0;
        @%p2 bra more; on: and.b32 %r10, %r3, 7; again: mul.wide.u32 %rd4, %r4, 4;
        add.u64 %rd4, %rd4, %rd2; ld.global.u32 %r7, [%rd4]; and.b32 %r7, %r7, 63;
        mul.wide.u32 %rd5, %r7, 4; add.u64 %rd5, %rd5, %rd2; ld.global.u32 %r8, [%rd5];
        mad.lo.u32 %r9, %r9, 31, %r8; add.u32 %r6, %r6, 1; sub.u32 %r10, %r10, 1;
        setp.gt.s32 %p3, %r10, 0; @%p3 bra again; mad.lo.u32 %r9, %r9, 31, %r6;",
        // How many turns are not the same, and something is divided after it.
        "not.b32 %r4, %r1; add.u32 %r4, %r4, 20; shr.u32 %r5, %r4, 4; setp.eq.u32 %p1, %r5, 0;
        @%p1 bra on; add.u32 %r9, %r9, 7; on: shr.u32 %r7, %r1, 4; mul.lo.u32 %r6, %r3, 5;
        xor.b32 %r9, %r9, %r7; end: add.u32 %r9, %r9, %r6;",
        // Columns to both sides, of rows that end inside of groups. Between, what is the same in
        // all threads and what counts up with them.
        "mul.lo.u32 %r4, %r3, 5; add.u32 %r5, %r1, 1; rem.u32 %r6, %r5, %r4; add.u32 %r7, %r1, %r4;
        sub.u32 %r8, %r7, 1; mad.lo.u32 %r10, %r3, 3, 1; rem.u32 %r12, %r8, %r4;
        add.u32 %r13, %r1, %r10; mul.wide.u32 %rd4, %r6, 4; add.u64 %rd5, %rd4, %rd2;
        ld.global.u32 %r14, [%rd5]; mul.wide.u32 %rd6, %r12, 4; add.u64 %rd7, %rd6, %rd2;
        ld.global.u32 %r15, [%rd7]; mad.lo.u32 %r16, %r14, 31, %r15; sub.u32 %r17, %r13, %r10;
        mul.wide.u32 %rd8, %r17, 4; add.u64 %rd9, %rd8, %rd2; ld.global.u32 %r18, [%rd9];
        mad.lo.u32 %r19, %r16, 31, %r18; mad.lo.u32 %r9, %r19, %r10, %r17;",
    ] {
        for (threads, n) in [(8, 4), (24, 5), (32, 4), (64, 12)] {
            // Whether there is another form is a matter of the number of steps.
            for more in 0..4 {
                let body = "add.u32 %r11, %r11, 1; ".repeat(more) + body;
                forms::same(&body, [threads, 1, 1], n).unwrap();
            }
        }
    }
}
