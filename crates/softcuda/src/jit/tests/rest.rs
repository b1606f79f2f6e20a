//! Blocks whose threads make no whole number of groups, and wait for each other: groups go from
//! wait to wait, and the last threads follow one by one.

use super::forms::{kernel, place, run, same};
use crate::grid::launch::FaultKind;
use crate::jit::module::Form;

const BLOCKS: [[u32; 3]; 12] = [
    [9, 1, 1],
    [15, 1, 1],
    [33, 1, 1],
    [39, 1, 1],
    [100, 1, 1],
    [3, 3, 1],
    [6, 6, 1],
    [10, 10, 1],
    [18, 18, 1],
    [5, 5, 3],
    [1, 37, 1],
    [33, 3, 1],
];

fn check(body: &str, ns: &[u32]) {
    for block in BLOCKS {
        for n in ns {
            same(body, block, *n).expect("nothing faults");
        }
    }
}

/// Each thread takes what the next one has left, as often as `n` says; what counts the turns is the
/// same in all threads.
const PASSED_ON: &str = "mov.u32 %r11, s; shl.b32 %r12, %r35, 2; add.u32 %r12, %r12, %r11;
    add.u32 %r13, %r35, 1; setp.eq.u32 %p1, %r13, %r36; selp.u32 %r13, 0, %r13, %p1;
    shl.b32 %r13, %r13, 2; add.u32 %r13, %r13, %r11;
    mad.lo.u32 %r9, %r2, 77, 5; mov.u32 %r14, 0;
    more: st.shared.u32 [%r12], %r9; bar.sync 0; ld.shared.u32 %r15, [%r13];
    mad.lo.u32 %r9, %r9, 3, %r15; add.u32 %r9, %r9, %r14; bar.sync 0;
    add.u32 %r14, %r14, 1; setp.lt.u32 %p2, %r14, %r3; @%p2 bra more;";

#[test]
fn all_share_memory() {
    check(&format!("{PASSED_ON} add.u32 %r9, %r9, %r14;"), &[1, 2, 5]);
    // Several blocks, one after the other, and the same kernel in blocks of whole groups between.
    let source = kernel(PASSED_ON);
    for block in BLOCKS.into_iter().chain([[64, 1, 1], [100, 1, 1]]) {
        let [vectors, fibers] =
            [Form::Vectors, Form::Fibers].map(|form| run(&source, form, [5, 1, 1], block, 3));
        assert_eq!(vectors, fibers, "{block:?}");
    }
}

/// The threads from the one of number `n` on make fewer turns than the others, or more, and have
/// ended then, or wait elsewhere. What they have in common with the others stays theirs.
#[test]
fn some_leave_a_loop_earlier_or_later() {
    for (few, many) in [(2, 5), (5, 2), (1, 2), (0, 3)] {
        let begin = format!(
            "setp.lt.u32 %p1, %r35, %r3; selp.u32 %r10, {many}, {few}, %p1; mov.u32 %r14, 0;
            mov.u64 %rd9, 7; mad.lo.u32 %r9, %r35, 5, 1;"
        );
        let turn = "more: setp.ge.u32 %p2, %r14, %r10; @%p2 bra over; bar.sync 0;
            mad.lo.u32 %r9, %r9, 3, %r14; add.u64 %rd9, %rd9, 3; add.u32 %r14, %r14, 1;
            bra more; over:";
        let end = "cvt.u32.u64 %r15, %rd9; mad.lo.u32 %r9, %r14, 1000, %r9;
            add.u32 %r9, %r9, %r15;";
        for block in BLOCKS {
            let count: u32 = block.iter().product();
            for n in [count - 1, count & !7, (count & !7) - 1, 4, 0, count] {
                same(&format!("{begin} {turn} {end}"), block, n).expect("nothing faults");
                // A barrier of all that are left follows where they have left the loop.
                let wait = format!("{begin} {turn} {end} bar.sync 0; add.u32 %r9, %r9, 1;");
                same(&wait, block, n).expect("nothing faults");
            }
        }
    }
}

/// Where all come to one of two branches, each with a wait, and where they do not.
#[test]
fn branches_with_waits() {
    let body = "mov.u32 %r11, s; shl.b32 %r12, %r35, 2; add.u32 %r12, %r12, %r11;
        st.shared.u32 [%r12], %r2; and.b32 %r13, %r3, 1; setp.eq.u32 %p1, %r13, 1; mov.u32 %r14, 9;
        @%p1 bra one; add.u32 %r14, %r14, 1; bar.sync 0; ld.shared.u32 %r9, [s]; bra both;
        one: add.u32 %r14, %r14, 2; bar.sync 0; ld.shared.u32 %r9, [s+4];
        both: mad.lo.u32 %r9, %r9, 31, %r14; bar.sync 0; add.u32 %r9, %r9, %r35;";
    check(body, &[0, 1]);
    // Warps that go ways of their own, and threads that do.
    for guard in [
        "shr.u32 %r13, %r35, 5; setp.eq.u32 %p1, %r13, %r3;",
        "setp.ge.u32 %p1, %r35, %r3;",
        "and.b32 %r13, %r35, 1; setp.eq.u32 %p1, %r13, 0;",
    ] {
        let body = format!(
            "{guard} mov.u32 %r14, 9; @%p1 bra one; add.u32 %r14, %r14, 1; bar.sync 0; bra both;
            one: add.u32 %r14, %r14, 2; bar.sync 0;
            both: bar.sync 0; mad.lo.u32 %r9, %r35, 31, %r14;"
        );
        check(&body, &[0, 1, 8, 32, 36]);
    }
}

/// What the lanes of a warp do together, of which the last has some alone.
#[test]
fn lanes_of_the_last_warp() {
    let mask = "mov.u32 %r20, %laneid; sub.u32 %r21, %r35, %r20; sub.u32 %r22, %r36, %r21;
        min.u32 %r22, %r22, 32; mov.u64 %rd10, 1; shl.b64 %rd10, %rd10, %r22;
        sub.u64 %rd10, %rd10, 1; cvt.u32.u64 %r25, %rd10; mad.lo.u32 %r4, %r2, 77, 5;
        setp.gt.u32 %p1, %r35, %r3;";
    for what in [
        "vote.sync.ballot.b32 %r9, %p1, %r25;",
        "shfl.sync.up.b32 %r5|%p2, %r4, 1, 0, %r25; selp.u32 %r6, 3, 4, %p2;
        mad.lo.u32 %r9, %r5, 31, %r6;",
        "shfl.sync.idx.b32 %r9, %r4, 2, 31, %r25;",
        "redux.sync.add.u32 %r9, %r4, %r25;",
        "shr.u32 %r6, %r35, 1; match.any.sync.b32 %r9, %r6, %r25;",
        "redux.sync.max.u32 %r5, %r4, %r25; bar.sync 0; vote.sync.any.pred %p3, %p1, %r25;
        selp.u32 %r6, 3, 4, %p3; add.u32 %r9, %r5, %r6; bar.warp.sync %r25;",
        "bar.red.popc.u32 %r5, 0, %p1; bar.red.or.pred %p2, 0, %p1; selp.u32 %r6, 3, 4, %p2;
        mad.lo.u32 %r9, %r5, 31, %r6;",
    ] {
        check(&format!("{mask} {what}"), &[0, 7, 33]);
    }
}

/// One thread alone faults, whichever it is: before a wait, after it, and after two.
#[test]
fn the_thread_that_faults_is_named() {
    for block in [[37, 1, 1], [6, 6, 1], [15, 1, 1]] {
        let count: u32 = block.iter().product();
        for at in 0..count {
            for waits in 0..3 {
                let wait = "bar.sync 0; ".repeat(waits);
                let body = format!(
                    "setp.eq.u32 %p1, %r35, %r3; mov.u64 %rd9, 16; {wait}
                    @%p1 st.global.u32 [%rd9], %r3; bar.sync 0;"
                );
                let thread = place(block, at);
                let fault = same(&body, block, at).expect_err("it faults");
                let expected = (FaultKind::IllegalAddress, [0, 0, 0], Some(thread));
                assert_eq!(fault, expected, "{block:?} {at} {waits}");
            }
        }
    }
}

/// Threads that wait for each other by spinning.
#[test]
fn locks() {
    let body = "bar.sync 0; more: atom.global.cas.b32 %r10, [%rd2], 0, 1; setp.ne.u32 %p1, %r10, 0;
        @%p1 bra more; ld.volatile.global.u32 %r11, [%rd2+4]; add.u32 %r11, %r11, 3;
        st.volatile.global.u32 [%rd2+4], %r11; membar.gl; st.volatile.global.u32 [%rd2], 0;
        bar.sync 0; ld.volatile.global.u32 %r9, [%rd2+4];";
    check(body, &[0]);
}
