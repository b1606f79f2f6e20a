//! Loops over memory that groups go through in step, and the same loops where each group does all
//! its turns at once: steps that do nothing decide.

use super::forms::{Outcome, kernel, run, same};
use crate::grid::launch::FaultKind;
use crate::jit::module::Form;

const BLOCKS: [[u32; 3]; 6] = [
    [8, 1, 1],
    [32, 1, 1],
    [96, 1, 1],
    [33, 1, 1],
    [16, 4, 1],
    [40, 2, 1],
];

/// What a body does, whichever way its loops are done.
fn in_any_way(body: &str, block: [u32; 3], n: u32) -> Outcome {
    let first = same(body, block, n);
    for more in 1..4 {
        let padded = format!("{}{body}", "mov.u32 %r39, 1;".repeat(more));
        assert_eq!(first, same(&padded, block, n), "{body}");
    }
    first
}

/// Threads go through rows of words in turns, and sum up what is there; `turn` is one more thing
/// that they do in each.
fn sums(turn: &str) -> String {
    format!(
        "mov.u32 %r4, %r1; mov.u32 %r10, 0; mov.u32 %r13, 0; setp.ge.u32 %p1, %r4, %r3;
        @%p1 bra none;
        again:
        mul.wide.u32 %rd5, %r4, 4; add.u64 %rd6, %rd1, %rd5; and.b32 %r5, %r4, 63;
        mul.wide.u32 %rd5, %r5, 4; add.u64 %rd7, %rd2, %rd5;
        ld.global.u32 %r6, [%rd7]; mad.lo.u32 %r10, %r10, 31, %r6; add.u32 %r13, %r13, 3;
        {turn}
        st.global.u32 [%rd6+8192], %r10;
        add.u32 %r4, %r4, %r31; setp.lt.u32 %p1, %r4, %r3; @%p1 bra again;
        none:
        mov.u32 %r11, s; shl.b32 %r12, %r35, 2; add.u32 %r11, %r11, %r12;
        mad.lo.u32 %r10, %r13, 77, %r10;
        st.shared.u32 [%r11], %r10; bar.sync 0;
        mov.u32 %r11, s; ld.shared.u32 %r7, [%r11]; ld.shared.u32 %r8, [%r11+28];
        add.u32 %r9, %r7, %r8; mad.lo.u32 %r9, %r9, 5, %r10;"
    )
}

#[test]
fn groups_leave_after_different_turns() {
    for block in BLOCKS {
        for n in [0, 1, 7, 8, 9, 31, 33, 64, 65, 97, 130, 333] {
            // Rows of a block write the same words: these must be the same values.
            in_any_way(&sums(""), block, n).expect("nothing faults");
        }
    }
}

/// Within a turn, threads part, by masks and one by one, and go through loops of their own.
#[test]
fn threads_part_within_a_turn() {
    for turn in [
        "and.b32 %r5, %r6, 1; setp.eq.u32 %p2, %r5, 1; @%p2 bra odd; add.u32 %r10, %r10, 9; odd:",
        "and.b32 %r5, %r6, 3; setp.eq.u32 %p2, %r5, 1; @%p2 bra most; mov.u32 %r12, 0;
        more: add.u32 %r12, %r12, 1; mad.lo.u32 %r10, %r10, 3, %r12;
        setp.lt.u32 %p3, %r12, %r5; @%p3 bra more;
        most:",
        "shl.b32 %r5, %r6, 30; setp.lt.s32 %p2, %r5, 0; @%p2 bra past;
        and.b32 %r5, %r10, 63; mul.wide.u32 %rd8, %r5, 4; add.u64 %rd8, %rd2, %rd8;
        ld.global.u32 %r5, [%rd8]; add.u32 %r10, %r10, %r5;
        past:",
    ] {
        for block in BLOCKS {
            for n in [0, 5, 8, 17, 40, 63, 100] {
                in_any_way(&sums(turn), block, n).expect("nothing faults");
            }
        }
    }
}

/// What a turn needs is loaded at the end of the one before, if there is one: under the branch
/// that asks so, threads keep less than at the loop's end. `%r13` is written before the loop alone.
fn loads_ahead(ask: &str, turn: &str) -> String {
    format!(
        "mov.u32 %r4, %r1; mul.lo.u32 %r13, %r34, 5; ld.global.u32 %r14, [%rd2+12];
        add.u32 %r13, %r13, %r14;
        mul.wide.u32 %rd5, %r4, 4; add.u64 %rd6, %rd1, %rd5; mov.u32 %r6, 7;
        setp.ge.u32 %p1, %r4, %r3; @%p1 bra none;
        ld.global.u32 %r6, [%rd6+8192];
        again:
        mul.wide.u32 %rd5, %r4, 4; add.u64 %rd6, %rd1, %rd5;
        mad.lo.u32 %r10, %r6, 3, %r13; st.global.u32 [%rd6+8192], %r10;
        add.u32 %r9, %r9, %r10; {turn}
        add.u32 %r4, %r4, %r31; {ask} %p2, %r4, %r3; @%p2 bra past;
        mul.wide.u32 %rd5, %r4, 4; add.u64 %rd7, %rd1, %rd5;
        ld.global.u32 %r6, [%rd7+8192]; xor.b32 %r6, %r6, %r4;
        past:
        setp.lt.u32 %p1, %r4, %r3; @%p1 bra again;
        none:"
    )
}

/// One row: others would race.
const ROWS: [[u32; 3]; 5] = [[8, 1, 1], [32, 1, 1], [33, 1, 1], [96, 1, 1], [128, 1, 1]];

#[test]
fn what_a_turn_needs_is_loaded_in_the_one_before() {
    // The last of these loads in some turns only.
    for ask in ["setp.ge.u32", "setp.gt.u32", "setp.lt.u32", "setp.ne.u32"] {
        for turn in ["", "and.b32 %r5, %r6, 1; mad.lo.u32 %r9, %r9, 5, %r5;"] {
            let body = format!(
                "{} bar.sync 0; add.u32 %r9, %r9, %r13;",
                loads_ahead(ask, turn)
            );
            for block in ROWS {
                for n in [0, 1, 8, 50, 96, 97, 130, 400] {
                    in_any_way(&body, block, n).expect("nothing faults");
                }
            }
        }
    }
}

/// What a loop leaves as it is changes before groups come to it once more, or to the next.
#[test]
fn what_stays_in_a_loop_changes_between_loops() {
    let ahead = loads_ahead("setp.ge.u32", "add.u32 %r9, %r9, %r15;");
    let outer = format!(
        "mov.u32 %r15, 1; mov.u32 %r20, 0;
        outer: {ahead}
        mad.lo.u32 %r15, %r15, 7, 3;
        add.u32 %r20, %r20, 1; setp.lt.u32 %p3, %r20, 3; @%p3 bra outer;
        bar.sync 0;"
    );
    let named = |number: u32| {
        ["again", "past", "none"]
            .iter()
            .fold(ahead.clone(), |text, label| {
                text.replace(label, &format!("{label}{number}"))
            })
    };
    let after = format!(
        "mov.u32 %r15, 1; {} mad.lo.u32 %r15, %r9, 7, 3; {} mad.lo.u32 %r15, %r15, 5, %r9; {}
        bar.sync 0;",
        named(1),
        named(2),
        named(3)
    );
    for body in [outer, after] {
        for block in ROWS {
            for n in [0, 1, 8, 50, 96, 97, 130, 300] {
                in_any_way(&body, block, n).expect("nothing faults");
            }
        }
    }
}

/// A loop in which threads wait holds one that they go through in step.
#[test]
fn in_a_loop_with_barriers() {
    let body = "mov.u32 %r20, 0; mov.u32 %r10, %r1;
        outer:
        mov.u32 %r4, %r1;
        again:
        mul.wide.u32 %rd5, %r4, 4; add.u64 %rd6, %rd1, %rd5;
        ld.global.u32 %r6, [%rd6+8192]; mad.lo.u32 %r10, %r6, 3, %r10; xor.b32 %r10, %r10, %r4;
        st.global.u32 [%rd6+8192], %r10;
        add.u32 %r4, %r4, %r31; setp.lt.u32 %p1, %r4, %r3; @%p1 bra again;
        bar.sync 0;
        add.u32 %r20, %r20, 1; setp.lt.u32 %p2, %r20, 3; @%p2 bra outer;
        add.u32 %r9, %r10, %r20;";
    for block in ROWS {
        for n in [0, 1, 8, 50, 96, 97, 130, 400] {
            in_any_way(body, block, n).expect("nothing faults");
        }
    }
}

/// Whoever leaves the memory first in the order of threads is named, in whichever turn.
#[test]
fn a_fault_in_a_later_turn() {
    for inside in [8, 9, 31, 32, 40, 63] {
        let body = format!(
            "mov.u32 %r4, %r1;
            again:
            mul.wide.u32 %rd5, %r4, 4; add.u64 %rd7, %rd2, %rd5;
            ld.global.u32 %r6, [%rd7+{}]; add.u32 %r9, %r9, %r6;
            add.u32 %r4, %r4, %r31; setp.lt.u32 %p1, %r4, %r3; @%p1 bra again;
            bar.sync 0;",
            256 - 4 * inside
        );
        for more in 0..4 {
            let body = format!("{}{body}", "mov.u32 %r39, 1;".repeat(more));
            for form in [Form::Vectors, Form::Rounds] {
                let end = run(&kernel(&body), form, [1, 1, 1], [32, 1, 1], 64);
                let (kind, _, thread) = end.expect_err("a thread is outside");
                assert_eq!(kind, FaultKind::IllegalAddress, "{form:?} {body}");
                let [x, _, _] = thread.expect("a thread is at fault");
                assert!(
                    (x..64).step_by(32).any(|at| at >= inside),
                    "{form:?} {x} {body}"
                );
            }
        }
    }
}
