//! Lanes that part by their numbers in the warp: what each takes from others, who stores, and whom
//! a fault names; where whole warps make up the rows of a block, and where they do not.

use super::forms::{kernel, run, run_module};
use super::fuzz::Sample;
use crate::grid::launch::FaultKind;
use crate::jit::harness;
use crate::jit::module::Form;

const BLOCKS: [[u32; 3]; 8] = [
    [32, 1, 1],
    [64, 1, 1],
    [64, 2, 1],
    [96, 1, 2],
    [16, 4, 1],
    [8, 12, 1],
    [40, 2, 1],
    [33, 1, 1],
];

const LANES: [&str; 3] = [
    "and.b32 %r4, %r1, 31;",
    "mov.u32 %r4, %laneid;",
    "shl.b32 %r25, %r1, 2; and.b32 %r26, %r25, 124; shr.u32 %r4, %r26, 2;",
];

/// Numbers around the ends of a vector, of a group and of a warp.
const NUMBERS: [i32; 13] = [-1, 0, 1, 3, 4, 7, 8, 9, 16, 24, 30, 31, 32];

const CONDITIONS: [&str; 10] = [
    "eq.u32", "ne.u32", "lt.u32", "le.u32", "gt.u32", "ge.u32", "lt.s32", "le.s32", "gt.s32",
    "ge.s32",
];

/// A body does the same in all forms, in groups of 16 and of 32.
fn the_same(body: &str, blocks: &[[u32; 3]], n: u32) {
    let [fibers, others @ ..] = [
        (Form::Fibers, ""),
        (Form::Rounds, ""),
        (Form::Vectors, ""),
        (Form::Vectors, "mov.u32 %r39, 1;"),
    ]
    .map(|(form, more)| harness::load_as(&kernel(&format!("{more} {body}")), form));
    for block in blocks {
        let [expected, got @ ..] = [&fibers, &others[0], &others[1], &others[2]]
            .map(|module| run_module(module, [1, 1, 1], *block, n).expect("nothing faults"));
        for got in got {
            assert!(got == expected, "{block:?} n={n} {body}");
        }
    }
}

#[test]
fn lanes_take_by_their_numbers() {
    let mut sample = Sample::one_in(3);
    for (lane, first) in LANES.into_iter().zip(0..) {
        for (condition, from) in CONDITIONS.into_iter().zip(first..) {
            for number in NUMBERS.into_iter().skip(from % 3).step_by(3) {
                if !sample.takes() {
                    continue;
                }
                let body = format!(
                    "{lane} setp.{condition} %p1, %r4, {number}; cvt.rn.f32.u32 %f1, %r2;
                    shfl.sync.up.b32 %r5, %r2, 1, 0, -1; selp.u32 %r6, 0, %r5, %p1;
                    add.u32 %r7, %r2, %r6;
                    shfl.sync.up.b32 %r5, %r7, 2, 0, -1; selp.u32 %r6, %r5, 0, %p1;
                    mad.lo.u32 %r7, %r7, 3, %r6; selp.f32 %f1, %f1, 0f3f800000, %p1;
                    shfl.sync.bfly.b32 %r5, %r7, 4, 31, -1; selp.u32 %r6, %r5, %r7, %p1;
                    mad.lo.u32 %r7, %r7, 5, %r6;
                    shfl.sync.down.b32 %r5, %r7, 16, 31, -1; selp.u32 %r6, %r5, %r2, %p1;
                    @%p1 add.u32 %r6, %r6, 1000;
                    mad.lo.u32 %r9, %r7, 7, %r6; cvt.rzi.u32.f32 %r8, %f1;
                    mad.lo.u32 %r9, %r9, 31, %r8;
                    bar.sync 0;
                    selp.u32 %r8, %r9, 77, %p1; xor.b32 %r9, %r9, %r8;"
                );
                the_same(&body, &BLOCKS, 0);
            }
        }
    }
}

#[test]
fn some_lanes_store() {
    let mut sample = Sample::one_in(6);
    for lane in LANES {
        for (condition, not) in [
            ("eq.u32", "!"),
            ("ne.s32", ""),
            ("lt.u32", ""),
            ("ge.s32", "!"),
        ] {
            for number in NUMBERS {
                if !sample.takes() {
                    continue;
                }
                let body = format!(
                    "{lane} mov.u32 %r10, s; shl.b32 %r11, %r35, 2; add.u32 %r11, %r11, %r10;
                    shr.u32 %r12, %r35, 5; shl.b32 %r12, %r12, 2; add.u32 %r12, %r12, %r10;
                    mov.u32 %r13, 5; st.shared.u32 [%r11], %r13; st.shared.u32 [%r12+4096], %r13;
                    bar.sync 0;
                    setp.{condition} %p1, %r4, {number};
                    mov.u32 %r16, %laneid; setp.eq.u32 %p2, %r16, {number};
                    shfl.sync.up.b32 %r5, %r2, 1, 0, -1; add.u32 %r7, %r2, %r5;
                    shfl.sync.up.b32 %r5, %r7, 8, 0, -1; mad.lo.u32 %r7, %r7, 3, %r5;
                    @{not}%p1 bra past;
                    add.u32 %r14, %r11, 0; st.shared.u32 [%r14], %r7;
                    past:
                    @!%p2 bra over;
                    st.shared.u32 [%r12+4096], %r7;
                    over:
                    bar.sync 0;
                    ld.shared.u32 %r8, [%r11]; mad.lo.u32 %r9, %r7, 31, %r8;
                    ld.shared.u32 %r8, [%r12+4096]; mad.lo.u32 %r9, %r9, 31, %r8;
                    bar.sync 0;
                    cvt.rn.f32.u32 %f1, %r9; add.f32 %f1, %f1, %f1;
                    @%p1 bra away;
                    @%p2 bra away;
                    st.global.f32 [%rd3], %f1;
                    st.shared.f32 [%r11], %f1;
                    away:
                    bar.sync 0;
                    ld.shared.u32 %r8, [%r11]; xor.b32 %r9, %r9, %r8;"
                );
                the_same(&body, &BLOCKS, 0);
            }
        }
    }
}

/// The bits of a number that lie above a lane's are not a lane's number.
#[test]
fn what_is_no_number_of_a_lane() {
    let mut sample = Sample::one_in(6);
    for number in [
        "and.b32 %r4, %r1, 32;",
        "and.b32 %r4, %r1, 63;",
        "and.b32 %r25, %r1, 31; or.b32 %r4, %r25, 64;",
        "or.b32 %r25, %r1, 64; and.b32 %r4, %r25, 95;",
        "and.b32 %r25, %r1, 31; add.u32 %r4, %r25, 32;",
        "shl.b32 %r25, %r1, 2; and.b32 %r4, %r25, 252;",
        "and.b32 %r25, %r1, 96; shr.u32 %r4, %r25, 5;",
        "and.b32 %r4, %r1, 31; mov.u32 %r5, 40; setp.eq.u32 %p2, %r3, 1; @%p2 mov.u32 %r4, %r5;",
    ] {
        for compare in ["eq.u32", "lt.u32", "gt.s32"] {
            for than in [0, 1, 8, 31, 32, 64, 70] {
                if !sample.takes() {
                    continue;
                }
                let body = format!(
                    "{number} setp.{compare} %p1, %r4, {than};
                    shfl.sync.up.b32 %r5, %r2, 1, 0, -1; selp.u32 %r6, 0, %r5, %p1;
                    add.u32 %r9, %r2, %r6;
                    shfl.sync.up.b32 %r5, %r9, 2, 0, -1; selp.u32 %r6, %r5, %r9, %p1;
                    mad.lo.u32 %r9, %r9, 3, %r6; bar.sync 0;
                    @%p1 bra past; st.global.u32 [%rd3+4096], %r9; past:
                    bar.sync 0;"
                );
                for n in [0, 1] {
                    the_same(&body, &[[128, 1, 1], [64, 2, 1], [16, 8, 1]], n);
                }
            }
        }
    }
}

/// A predicate that is written twice, or read before it is written.
#[test]
fn predicates_that_are_not_always_the_comparison() {
    for body in [
        "setp.eq.u32 %p1, %r4, 31; setp.eq.u32 %p2, %r3, 1; @%p2 setp.eq.u32 %p1, %r4, 0;",
        "setp.eq.u32 %p2, %r3, 1; @%p2 setp.eq.u32 %p1, %r4, 5;",
        "setp.eq.u32 %p2, %r3, 1; @%p2 bra on; setp.lt.u32 %p1, %r4, 5; on:",
        "setp.eq.u32 %p2, %r3, 1; @!%p2 bra on; setp.ne.u32 %p1, %r4, 5; bra on; on:",
    ] {
        let body = format!(
            "and.b32 %r4, %r1, 31; {body}
            shfl.sync.up.b32 %r5, %r2, 1, 0, -1; selp.u32 %r6, 0, %r5, %p1;
            add.u32 %r9, %r2, %r6; shfl.sync.up.b32 %r5, %r9, 2, 0, -1;
            selp.u32 %r6, %r5, %r9, %p1; mad.lo.u32 %r9, %r9, 3, %r6; bar.sync 0;
            @%p1 bra past; st.global.u32 [%rd3+4096], %r9; past:
            bar.sync 0;"
        );
        for n in [0, 1] {
            the_same(&body, &[[64, 1, 1], [16, 4, 1]], n);
        }
    }
}

/// The one lane that stores is outside: the fault names it, in the first warp that is.
#[test]
fn the_lane_that_stores_faults() {
    for number in [0, 1, 7, 8, 15, 23, 31] {
        let shuffles = "shfl.sync.up.b32 %r5, %r2, 1, 0, -1; add.u32 %r7, %r2, %r5;
            shfl.sync.up.b32 %r5, %r7, 8, 0, -1; mad.lo.u32 %r7, %r7, 3, %r5;";
        let vectors = "bar.sync 0; cvt.rn.f32.u32 %f1, %r2; add.f32 %f1, %f1, %f1;
            mov.b32 %r7, %f1; add.u32 %r7, %r7, %r7;";
        for before in [shuffles, vectors] {
            for store in [
                "shr.u32 %r12, %r1, 5; mul.lo.u32 %r12, %r12, 8192; mov.u32 %r10, s;
                add.u32 %r12, %r12, %r10; st.shared.u32 [%r12], %r7;",
                // No memory of another test lies there.
                "shr.u32 %r12, %r1, 5; cvt.u64.u32 %rd5, %r12; shl.b64 %rd5, %rd5, 47;
                add.u64 %rd5, %rd5, %rd2; st.global.u32 [%rd5], %r7;",
            ] {
                let body = format!(
                    "and.b32 %r4, %r1, 31; setp.ne.u32 %p1, %r4, {number};
                    {before} @%p1 bra past; {store} past: bar.sync 0;"
                );
                for body in [body.clone(), format!("mov.u32 %r39, 1; {body}")] {
                    // Fibers may begin with another warp.
                    for form in [Form::Vectors, Form::Rounds] {
                        let end = run(&kernel(&body), form, [1, 1, 1], [96, 1, 1], 0);
                        let (kind, _, thread) = end.expect_err("a lane is outside");
                        assert_eq!(kind, FaultKind::IllegalAddress, "{form:?} {body}");
                        assert_eq!(thread, Some([32 + number, 0, 0]), "{form:?} {body}");
                    }
                }
            }
        }
    }
}
