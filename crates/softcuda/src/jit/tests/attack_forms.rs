//! Combinations of the forms of groups: loops in step, threads apart, masks, wide groups, and
//! branches that decide for warps, behind and within each other. Steps that do nothing decide which
//! of them a body gets, and in each test there are 0 to 7.

use std::ops::RangeFrom;

use super::forms::{Outcome, same};
use crate::grid::launch::FaultKind;

const BLOCKS: [[u32; 3]; 6] = [
    [8, 1, 1],
    [32, 1, 1],
    [72, 1, 1],
    [16, 3, 1],
    [40, 2, 1],
    [8, 5, 1],
];

/// A body behind so many steps that do nothing.
fn behind(steps: usize, body: &str) -> String {
    format!("{}{body}", "mov.u32 %r39, 1;".repeat(steps))
}

/// A body does the same in each form. `turns` count on from one to the next: they say which form is
/// next, and of how many threads.
fn in_turns(turns: &mut RangeFrom<usize>, body: &str, blocks: &[[u32; 3]], n: &[u32]) -> Outcome {
    let turn = turns.next().expect("turns do not end");
    let block = blocks[(turn + turn / 8) % blocks.len()];
    let n = n[turn / 3 % n.len()];
    same(&behind(turn % 8, body), block, n)
}

/// The fault of the one thread of a row that is outside, in whichever forms.
fn faults(body: &str, block: [u32; 3], n: u32, thread: u32) {
    for steps in [thread as usize % 8, 4 + thread as usize % 4] {
        let body = behind(steps, body);
        let (kind, _, at) = same(&body, block, n).expect_err("a thread is outside");
        assert_eq!(kind, FaultKind::IllegalAddress, "{body}");
        assert_eq!(at, Some([thread, 0, 0]), "{body}");
    }
}

/// Registers of every kind, and what is left of them in `%r10`.
fn registers(body: &str) -> String {
    format!(
        ".reg .f64 %d<3>; .reg .b16 %h<3>;
        mul.lo.u32 %r20, %r35, 0x9e3779b9; shr.u32 %r21, %r20, 28; mov.u32 %r22, %r3;
        cvt.rn.f32.u32 %f1, %r21; cvt.rn.f64.u32 %d1, %r35; cvt.u16.u32 %h1, %r20;
        cvt.u64.u32 %rd10, %r20; setp.gt.u32 %p10, %r21, 7; setp.lt.u32 %p11, %r35, 9;
        mov.u32 %r28, s; shl.b32 %r24, %r35, 2; add.u32 %r23, %r28, %r24; mov.u32 %r10, %r21;
        and.b32 %r25, %r1, -8; add.u32 %r26, %r1, 3;
        st.shared.u32 [%r23], %r20; st.global.u32 [%rd3+8192], %r20;
        bar.sync 0;
        {body}
        bar.sync 1;
        cvt.rzi.u32.f32 %r11, %f1; mad.lo.u32 %r10, %r10, 31, %r11;
        bar.sync 1;
        cvt.rzi.u32.f64 %r11, %d1; mad.lo.u32 %r10, %r10, 31, %r11;
        cvt.u32.u16 %r11, %h1; mad.lo.u32 %r10, %r10, 31, %r11;
        bar.sync 1;
        shr.u64 %rd11, %rd10, 7; cvt.u32.u64 %r11, %rd11; mad.lo.u32 %r10, %r10, 31, %r11;
        selp.u32 %r11, 5, 9, %p10; mad.lo.u32 %r10, %r10, 31, %r11;
        selp.u32 %r11, 5, 9, %p11; mad.lo.u32 %r10, %r10, 31, %r11;
        bar.sync 1;
        ld.shared.u32 %r11, [%r23]; mad.lo.u32 %r10, %r10, 31, %r11;
        mad.lo.u32 %r10, %r10, 31, %r22; mad.lo.u32 %r10, %r10, 31, %r25;
        mad.lo.u32 %r9, %r10, 31, %r26;"
    )
}

/// A loop over rows of words from `start` to `end`, by as many as a row of the block has. `name` is
/// its own.
fn loop_in_step(name: &str, start: &str, end: &str, turn: &str) -> String {
    format!(
        ".reg .b32 %i{name}; .reg .b64 %j{name}, %k{name}; .reg .b32 %v{name}; .reg .pred %q{name};
        {start} setp.ge.s32 %q{name}, %i{name}, {end}; @%q{name} bra past{name};
        again{name}:
        mul.wide.s32 %j{name}, %i{name}, 4; add.u64 %k{name}, %j{name}, %rd1;
        ld.global.u32 %v{name}, [%k{name}+8192]; add.u32 %v{name}, %v{name}, %r1;
        {turn}
        add.s32 %i{name}, %i{name}, %r31; setp.lt.s32 %q{name}, %i{name}, {end};
        @%q{name} bra again{name};
        past{name}:"
    )
}

/// Changes registers of each kind, some of them under a guard.
const CHANGES: &str = "add.f32 %f1, %f1, 0f3f800000; @%p10 add.f64 %d1, %d1, 0d3ff8000000000000;
    mad.lo.u16 %h1, %h1, 7, 3; @!%p11 add.u64 %rd10, %rd10, 12345678901; not.pred %p10, %p10;
    mad.lo.u32 %r10, %r10, 31, %r35; @%p11 st.shared.u32 [%r23], %r10;
    red.shared.add.u32 [%r23], 3;";

/// Threads go on along a row of their own, as often as each likes.
const ROWS: &str = "and.b32 %r12, %r20, 7; shr.u32 %r13, %r20, 29; add.u32 %r13, %r13, 2;
    setp.ge.u32 %p5, %r12, %r13; @%p5 bra none;
    more: mad.lo.u32 %r14, %r12, 5, %r35; and.b32 %r14, %r14, 63; mul.wide.u32 %rd6, %r14, 4;
    add.u64 %rd6, %rd6, %rd2; ld.global.u32 %r14, [%rd6]; mad.lo.u32 %r10, %r10, 31, %r14;
    @%p10 add.u64 %rd10, %rd10, 99999; add.f64 %d1, %d1, 0d3ff0000000000000;
    setp.gt.s32 %p10, %r14, 0; add.u32 %r12, %r12, 1; setp.lt.u32 %p5, %r12, %r13; @%p5 bra more;
    none:";

/// A comparison into two predicates, the second of which is its guard. Vectors look at the guard
/// at each write: they must not write the first where the new one holds.
#[test]
fn a_comparison_writes_its_guard() {
    for guard in ["%p1", "!%p1", "%p2", "!%p2"] {
        let body = format!(
            "mul.lo.u32 %r4, %r1, %r1; and.b32 %r5, %r1, 1; setp.eq.u32 %p1, %r5, 0;
            and.b32 %r5, %r1, 2; setp.eq.u32 %p2, %r5, 0;
            @{guard} setp.gt.u32 %p1|%p2, %r4, 70;
            selp.u32 %r7, 1, 0, %p1; selp.u32 %r8, 2, 0, %p2; or.b32 %r9, %r7, %r8;"
        );
        same(&body, [32, 1, 1], 0).expect("nothing faults");
    }
}

/// An index wraps between the groups that a wide group consists of, behind a comparison and before
/// the branch by it. The groups go on at the index. At the branch, they ask of the numbers that
/// were compared whether they agree (`agreement`): these must be kept for them (`needed` in
/// `spmd/wide.rs`), though the branch is not where they go on.
#[test]
fn an_index_wraps_between_a_comparison_and_its_branch() {
    for first in [8, 16] {
        let body = format!(
            "ld.global.u32 %r5, [%rd2+4]; sub.u32 %r6, %r5, 0x9e3779b9; add.u32 %r7, %r6, %r3;
            mov.u32 %r11, s; mad.lo.u32 %r12, %r35, 4, %r11; cvt.rn.f32.u32 %f1, %r1;
            bar.sync 0;
            add.f32 %f1, %f1, 0f3f800000; st.shared.f32 [%r12], %f1;
            add.u32 %r13, %r7, 0; add.u32 %r14, %r1, %r6; sub.u32 %r15, %r1, {first};
            setp.lt.u32 %p1, %r14, %r13;
            cvt.u64.u32 %rd5, %r15;
            @%p1 bra over; add.f32 %f1, %f1, 0f42000000; over:
            shr.u64 %rd6, %rd5, 30; cvt.u32.u64 %r16, %rd6; cvt.rzi.u32.f32 %r17, %f1;
            mad.lo.u32 %r9, %r16, 1000, %r17;
            bar.sync 0;"
        );
        for block in [[32, 1, 1], [16, 4, 1]] {
            for n in [0, 3, 12] {
                for steps in 0..2 {
                    same(&behind(steps, &body), block, n).expect("nothing faults");
                }
            }
        }
    }
}

/// Two loops in step in one region, the second as often as memory says. What they change and what
/// passes by is read in later regions.
#[test]
fn registers_of_every_kind_go_through_loops_in_step() {
    let first = loop_in_step(
        "A",
        "mov.u32 %iA, %r1;",
        "%r3",
        &format!("{CHANGES} add.u32 %r10, %r10, %vA;"),
    );
    let second = loop_in_step(
        "B",
        "sub.s32 %iB, %r1, 4;",
        "%r18",
        "mad.lo.u32 %r10, %r10, 5, %vB; add.f64 %d1, %d1, %d1;",
    );
    let body = registers(&format!(
        "ld.global.u32 %r17, [%rd2+12]; and.b32 %r18, %r17, 63;
        {first} cvt.rn.f64.u32 %d2, %r35; add.f64 %d1, %d1, %d2; {second} bar.sync 2; {first2}",
        first2 = loop_in_step("C", "mov.u32 %iC, %r35;", "%r3", CHANGES)
    ));
    let mut turns = 0..;
    for _ in 0..12 {
        in_turns(&mut turns, &body, &BLOCKS, &[5, 33, 0, 130]).expect("nothing faults");
    }
    for steps in [2, 4] {
        same(&behind(steps, &body), [1024, 1, 1], 1100).expect("nothing faults");
    }
}

/// Behind loops in step, threads apart, and masks, a branch decides for warps, which go on to each
/// kind of operation of their lanes. Some lanes wait there for others that never come.
#[test]
fn branches_decide_behind_each_form() {
    let turn = loop_in_step(
        "A",
        "mov.u32 %iA, %r1;",
        "%r3",
        "add.u32 %r10, %r10, %vA; add.f64 %d1, %d1, %d1;",
    );
    let mut turns = 0..;
    for way in [&turn[..], ROWS, CHANGES] {
        for (decides, operation) in [
            (
                "setp.lt.u32 %p6, %r35, 32;",
                "shfl.sync.bfly.b32 %r10, %r10, 9, 31, -1;",
            ),
            ("setp.ge.u32 %p6, %r35, %r3;", "bar.warp.sync -1;"),
            (
                "setp.gt.u32 %p6, %r3, 8;",
                "vote.sync.ballot.b32 %r10, %p10, -1;",
            ),
            (
                "shr.u32 %r19, %r1, 3; setp.eq.u32 %p6, %r19, 1;",
                "bar.warp.sync -1;",
            ),
            (
                "setp.gt.u32 %p6, %r3, 8;",
                "and.b32 %r19, %r10, 3; match.any.sync.b32 %r10, %r19, -1;",
            ),
            (
                "setp.lt.u32 %p6, %r35, 64;",
                "redux.sync.xor.b32 %r10, %r10, -1;",
            ),
        ] {
            let body = registers(&format!(
                "{way} {decides} @%p6 bra over; {operation} add.u32 %r10, %r10, 7;
                not.pred %p10, %p10; over: @%p6 add.f32 %f1, %f1, %f1;"
            ));
            _ = in_turns(
                &mut turns,
                &body,
                &[[32, 1, 1], [64, 1, 1], [40, 2, 1]],
                &[5, 40],
            );
        }
    }
}

/// An index wraps in a later turn of a loop in step: the threads of that group part for good, the
/// others go on in step, and all meet at a barrier.
#[test]
fn an_index_wraps_in_a_later_turn() {
    let mut turns = 0..;
    for back in [3, 8, 35, 68, 100] {
        let turn = "mul.wide.u32 %rd12, %iA, 4; shr.u64 %rd13, %rd12, 27; cvt.u32.u64 %r15, %rd13;
            mad.lo.u32 %r10, %r10, 31, %r15; mad.lo.u32 %r10, %r10, 3, %vA; add.f32 %f1, %f1, %f1;";
        let body = registers(&loop_in_step(
            "A",
            &format!("sub.s32 %iA, %r1, {back};"),
            "%r3",
            turn,
        ));
        for _ in 0..5 {
            in_turns(&mut turns, &body, &BLOCKS, &[40]).expect("nothing faults");
        }
    }
}

/// Threads leave before, between and behind loops in step and threads apart. The others are
/// counted.
#[test]
fn threads_leave() {
    let turn = loop_in_step("A", "mov.u32 %iA, %r1;", "%r3", CHANGES);
    let mut turns = 0..;
    for who in [
        "setp.eq.u32 %p7, %r35, 5;",
        "setp.ge.u32 %p7, %r35, 32;",
        "shr.u32 %r19, %r1, 3; setp.eq.u32 %p7, %r19, 0;",
        "setp.gt.u32 %p7, %r21, 7;",
    ] {
        for leave in ["@%p7 ret;", "@!%p7 bra stays; exit; stays:"] {
            for body in [
                format!("{who} {leave} {turn}"),
                format!("{turn} {who} {leave} {ROWS}"),
                format!("{ROWS} {who} {leave} add.f32 %f1, %f1, %f1;"),
            ] {
                let body = registers(&format!(
                    "{body} setp.gt.u32 %p8, %r35, 2; bar.red.popc.u32 %r19, 3, %p8;
                    mad.lo.u32 %r10, %r10, 31, %r19; st.global.u32 [%rd3+8192], %r10;"
                ));
                in_turns(
                    &mut turns,
                    &body,
                    &[[32, 1, 1], [72, 1, 1], [40, 2, 1]],
                    &[40],
                )
                .expect("nothing faults");
            }
        }
    }
}

/// Wide groups give up behind a store: the groups that go on take registers of every kind, of which
/// some are the same in each of them alone.
#[test]
fn wide_groups_give_up_with_registers_of_every_kind() {
    let mut turns = 0..;
    for (branch, more) in [
        (
            "setp.lt.u32 %p6, %r26, %r3;",
            "and.b32 %r16, %r1, -8; add.u32 %r17, %r1, 9;",
        ),
        (
            "and.b32 %r19, %r1, 8; setp.eq.u32 %p6, %r19, 0;",
            "mad.lo.u32 %r16, %r1, -3, %r3; mov.u32 %r17, %r25;",
        ),
        (
            "setp.lt.u32 %p6, %r21, 9;",
            "shr.u32 %r16, %r1, 3; mov.u32 %r17, %tid.y;",
        ),
    ] {
        for change in [
            "add.f64 %d1, %d1, 0d3ff0000000000000; not.pred %p11, %p11;",
            "add.u64 %rd10, %rd10, 77; @%p10 mad.lo.u16 %h1, %h1, 3, 1;",
            "mad.lo.u32 %r22, %r16, 3, %r22; add.f32 %f1, %f1, 0f3f800000;",
        ] {
            let body = registers(&format!(
                "{more} bar.sync 2; {branch} st.shared.u32 [%r23], %r16;
                add.f32 %f1, %f1, %f1; @%p6 bra over; {change} over:
                xor.b32 %r22, %r22, %r17; add.f32 %f1, %f1, 0f40000000;
                bar.sync 2; add.u32 %r10, %r10, %r16; mad.lo.u32 %r10, %r10, 31, %r17;"
            ));
            for _ in 0..2 {
                in_turns(
                    &mut turns,
                    &body,
                    &[[32, 1, 1], [64, 1, 1], [16, 3, 1], [32, 2, 1]],
                    &[12, 5, 27],
                )
                .expect("nothing faults");
            }
        }
    }
}

/// Threads go apart in each turn of a loop in step; a loop that counts up lies within theirs.
#[test]
fn loops_within_each_other() {
    let inner = loop_in_step(
        "B",
        "add.s32 %iB, %r1, %r12;",
        "%r3",
        "mad.lo.u32 %r10, %r10, 7, %vB;",
    );
    let apart = ROWS.replace("more: ", &format!("more: {inner} "));
    let mut turns = 0..;
    for body in [
        loop_in_step("A", "mov.u32 %iA, %r1;", "%r3", ROWS),
        apart.clone(),
        loop_in_step("A", "mov.u32 %iA, %r1;", "50", &apart),
    ] {
        let body = registers(&format!(
            "mov.u32 %r27, 0; outer: {body} {CHANGES} bar.sync 2; add.u32 %r27, %r27, 1;
            setp.lt.u32 %p9, %r27, 2; @%p9 bra outer;"
        ));
        for _ in 0..8 {
            in_turns(&mut turns, &body, &BLOCKS, &[40, 5]).expect("nothing faults");
        }
    }
}

/// The first two warps alone come to a barrier, behind loops in step and apart; the others go on.
#[test]
fn barriers_of_some_warps() {
    let turn = loop_in_step("A", "mov.u32 %iA, %r1;", "%r3", CHANGES);
    let mut turns = 0..;
    for way in [&turn[..], ROWS] {
        let body = registers(&format!(
            "setp.ge.u32 %p7, %r35, 64; @%p7 bra others; {way} bar.sync 4, 64;
            ld.shared.u32 %r19, [s+16]; add.u32 %r10, %r10, %r19; setp.gt.u32 %p8, %r35, 7;
            bar.red.popc.u32 %r19, 5, 64, %p8; add.u32 %r10, %r10, %r19;
            others: add.f64 %d1, %d1, %d1;"
        ));
        for _ in 0..8 {
            in_turns(
                &mut turns,
                &body,
                &[[64, 1, 1], [96, 1, 1], [72, 1, 1], [32, 4, 1]],
                &[40, 5, 130],
            )
            .expect("nothing faults");
        }
    }
}

/// One thread is outside: in a turn of a loop in step, among threads apart, by masks, and where a
/// wide group has given up.
#[test]
fn one_thread_faults() {
    let outside = "selp.u32 %r15, 0x100000, 5, %p6; mul.wide.u32 %rd14, %r15, 4;
        add.u64 %rd14, %rd14, %rd2; ld.global.u32 %r16, [%rd14]; add.u32 %r10, %r10, %r16;";
    let far = "@%p6 st.shared.u32 [%r23+65536], %r10;";
    let step = |turn: &str| loop_in_step("A", "mov.u32 %iA, %r1;", "70", turn);
    for thread in [0, 9, 23, 30] {
        for access in [outside, far] {
            for body in [
                step(&format!(
                    "setp.gt.s32 %p7, %iA, 31; and.pred %p6, %p5, %p7; {access}"
                )),
                ROWS.replace("more: ", &format!("more: and.pred %p6, %p5, %p5; {access}"))
                    .replace("%p5, %r12", "%p4, %r12")
                    .replace("%r20, 7", "%r20, 1")
                    .replace("@%p5", "@%p4"),
                format!(
                    "and.pred %p6, %p5, %p5; setp.lt.u32 %p7, %r21, 1; @%p7 bra on; on: {access}"
                ),
                format!(
                    "st.shared.u32 [%r23], %r10; add.f32 %f1, %f1, %f1; and.pred %p6, %p5, %p5;
                    setp.gt.u32 %p7, %r26, 14; @%p7 bra on; add.f32 %f1, %f1, %f1; on: {access}"
                ),
            ] {
                let body = registers(&format!(
                    "setp.eq.u32 %p5, %r1, {thread}; bar.sync 2; {body}"
                ));
                faults(&body, [32, 1, 1], 40, thread);
            }
        }
    }
}
