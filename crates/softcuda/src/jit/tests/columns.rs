//! What hangs on the column of a thread alone is computed once for all rows of a block; nobody sees
//! that.

use super::forms::{Outcome, kernel, run, same};
use crate::grid::launch::FaultKind;
use crate::jit::module::Form;

/// Blocks with rows: few columns of groups and many, whole groups and none, and the last warp in
/// part.
const SHAPES: [[u32; 3]; 14] = [
    [8, 4, 1],
    [16, 8, 1],
    [16, 3, 1],
    [24, 3, 1],
    [32, 4, 1],
    [40, 2, 1],
    [64, 3, 1],
    // Columns that take each other's place.
    [72, 3, 1],
    [128, 4, 1],
    [512, 2, 1],
    [8, 2, 3],
    [16, 2, 2],
    [12, 4, 1],
    [96, 1, 1],
];

/// `%r4` to `%r8` hang on the column: a place in a row that ends at both sides, and others; in
/// `%p1` and `%p2` some threads of a group differ.
const COLUMN: &str = "
    sub.s32 %r10, %r1, 3; max.s32 %r11, %r10, 0; min.s32 %r4, %r11, 40;
    mad.lo.u32 %r5, %r1, 40503, %r3; shr.u32 %r6, %r5, 3; xor.b32 %r7, %r6, %r34;
    and.b32 %r8, %r7, 7; setp.lt.u32 %p1, %r8, 3; setp.gt.s32 %p2, %r1, 9;
    .reg .b32 %row; mov.u32 %row, %tid.y; and.b32 %row, %row, 3;";

fn in_all_shapes(body: &str) {
    for shape in SHAPES {
        for n in [0, 5, 9_000] {
            same(body, shape, n).expect("all are inside");
        }
    }
}

/// What a body does, the same in vectors and thread by thread. Fibers have an order of their own.
fn in_order(body: &str, shape: [u32; 3], n: u32) -> Outcome {
    let source = kernel(body);
    let [vectors, rounds] =
        [Form::Vectors, Form::Rounds].map(|form| run(&source, form, [2, 1, 1], shape, n));
    assert_eq!(vectors, rounds, "{shape:?} n={n}\n{body}");
    vectors
}

/// Taken in regions behind it, and in others again.
#[test]
fn from_region_to_region() {
    in_all_shapes(&format!(
        "{COLUMN} mad.lo.u32 %r12, %row, 77, %r4; bar.sync 0;
        selp.u32 %r13, %r12, %r6, %p1; add.u32 %r9, %r13, %r8; bar.sync 0;
        @%p2 mad.lo.u32 %r9, %r9, 31, %r7; mad.lo.u32 %r9, %r9, 31, %r4;
        setp.eq.u32 %p3, %row, 2; @%p3 bra over; xor.b32 %r14, %r5, %r4;
        mad.lo.u32 %r9, %r9, 31, %r14; over:"
    ));
}

/// A counter of all threads is another one in each turn.
#[test]
fn of_what_the_block_counts() {
    in_all_shapes(&format!(
        "{COLUMN} mov.u32 %r20, 0;
        again: mad.lo.u32 %r21, %r1, 5, %r20; shr.u32 %r22, %r21, 2; xor.b32 %r23, %r22, %r8;
        setp.lt.u32 %p3, %r23, 9; @%p3 bra some; mad.lo.u32 %r9, %r9, 31, %r23; some:
        add.u32 %r9, %r9, %r22; selp.u32 %r24, %r22, 1, %p3; add.u32 %r9, %r9, %r24;
        bar.sync 0; add.u32 %r20, %r20, 3; setp.lt.u32 %p4, %r20, 10; @%p4 bra again;"
    ));
}

/// Threads part by their column, by their row, by what is in both; and join again.
#[test]
fn threads_that_part() {
    for parts in ["%p1", "%p2", "%p3", "!%p1", "!%p3"] {
        // As often as each likes.
        in_all_shapes(&format!(
            "{COLUMN} bar.sync 0; add.u32 %r12, %row, %r8; setp.lt.u32 %p3, %r12, 4;
            @{parts} bra over; and.b32 %r13, %r7, 3;
            turn: mad.lo.u32 %r9, %r9, 3, %r4; mad.lo.u32 %r9, %r9, 5, %r6;
            sub.u32 %r13, %r13, 1; setp.gt.s32 %p4, %r13, 0; @%p4 bra turn;
            over: mad.lo.u32 %r9, %r9, 31, %r7; add.u32 %r9, %r9, %r4; bar.sync 0;
            mad.lo.u32 %r9, %r9, 31, %r6; @%p1 add.u32 %r9, %r9, %r4;"
        ));
        // For good.
        in_all_shapes(&format!(
            "{COLUMN} bar.sync 0; add.u32 %r12, %row, %r8; setp.lt.u32 %p3, %r12, 4;
            mad.lo.u32 %r9, %r9, 31, %r6; @{parts} bra end; selp.u32 %r9, %r9, %r7, %p2;
            bar.sync 0; mad.lo.u32 %r9, %r9, 31, %r4; xor.b32 %r9, %r9, %r6; end:"
        ));
    }
}

/// In loops that threads of a group leave one by one, by masks.
#[test]
fn in_loops_by_masks() {
    in_all_shapes(
        "and.b32 %r15, %r35, 3; mov.u32 %r20, 0;
        turn: max.s32 %r11, %r1, 2; mul.lo.u32 %r12, %r11, %r11; min.u32 %r13, %r12, 30;
        add.u32 %r20, %r20, %r13; sub.s32 %r15, %r15, 1; setp.gt.s32 %p3, %r15, 0;
        @%p3 bra turn; mov.u32 %r9, %r20; bar.sync 0;",
    );
}

/// What all threads have is read in a region behind those that compute something else for columns.
#[test]
fn behind_other_regions() {
    let [mut first, mut last] = [const { String::new() }; 2];
    for n in 0..12 {
        let before = if n == 0 {
            "%r1".to_owned()
        } else {
            format!("%v{}", n - 1)
        };
        first += &format!("mad.lo.u32 %v{n}, %r1, {before}, {n};");
        last += &format!("xor.b32 %r15, %r15, %v{n};");
    }
    in_all_shapes(&format!(
        ".reg .b32 %v<12>; mov.u32 %r6, s; shl.b32 %r7, %r35, 2; add.u32 %r6, %r6, %r7;
        setp.gt.u32 %p1, %r3, 5; add.u32 %r8, %r3, 7; div.u32 %r11, %r8, 7; {first}
        @%p1 bra over; st.shared.u32 [%r6], %r35; over: mov.u32 %r15, %r35; {last}
        st.shared.u32 [%r6], %r15; bar.warp.sync -1;
        mad.lo.u32 %r22, %r1, %r1, 77; xor.b32 %r23, %r22, %r1; mul.lo.u32 %r24, %r23, %r22;
        shr.u32 %r25, %r24, 3; xor.b32 %r26, %r25, %r24; xor.b32 %r27, %r26, %r22;
        xor.b32 %r28, %r27, %r23; st.shared.u32 [%r6+4096], %r28; bar.sync 0;
        mov.u32 %r9, %r11;"
    ));
}

/// Wide groups that give up leave something where what the block has in common was kept.
#[test]
fn for_wide_groups_that_give_up() {
    for guard in [
        "setp.ne.s32 %p1, %r1, %r1;",
        "setp.gt.s32 %p1, %r30, 0;",
        "setp.gt.s32 %p1, %r1, 20;",
    ] {
        for start in [0, 3] {
            in_all_shapes(&format!(
                "mov.u32 %r7, %ctaid.x; add.u32 %r7, %r7, 5; add.u32 %r20, %r1, 1; bar.sync 0;
                and.b32 %r15, %r1, 1; mov.u32 %r21, {start}; and.b32 %r15, %r35, 3;
                max.s32 %r8, %r1, %r7; xor.b32 %r11, %r8, %r7; mul.lo.u32 %r12, %r11, %r8; {guard}
                turn: @%p1 add.u32 %r21, %r21, %r30; sub.s32 %r15, %r15, 1;
                setp.gt.s32 %p3, %r15, 0; @%p3 bra turn; add.u32 %r20, %r20, %r12;
                xor.b32 %r9, %r20, %r21;"
            ));
        }
    }
}

/// What all threads have is computed once for each turn: it is read in the next one, behind the
/// loop, and in threads that go on by themselves.
#[test]
fn common_to_the_block() {
    for parts in ["", "@%p1 bra over;", "@%p3 bra over;"] {
        in_all_shapes(&format!(
            "{COLUMN} mov.u32 %r20, 1; mov.u32 %r26, 5; setp.eq.u32 %p3, %row, 1;
            again: mad.lo.u32 %r21, %r20, 9, %r34; xor.b32 %r22, %r21, %r3; add.u32 %r23, %r22, 7;
            mad.lo.u32 %r24, %r1, 5, %r23; shr.u32 %r25, %r24, 2; xor.b32 %r27, %r25, %r22; {parts}
            mad.lo.u32 %r9, %r9, 31, %r27; add.u32 %r9, %r9, %r23; over:
            mad.lo.u32 %r9, %r9, 31, %r26; add.u32 %r9, %r9, %r25; bar.sync 0;
            mov.u32 %r26, %r23; mad.lo.u32 %r9, %r9, 3, %r22;
            add.u32 %r20, %r20, 3; setp.lt.u32 %p4, %r20, 10; @%p4 bra again;
            mad.lo.u32 %r9, %r9, 31, %r22; bar.sync 0; mad.lo.u32 %r10, %r1, %r1, %r23;
            xor.b32 %r11, %r10, %r26; mad.lo.u32 %r12, %r11, %r10, %r1;
            mad.lo.u32 %r9, %r9, 31, %r12; add.u32 %r9, %r9, %r26;"
        ));
    }
}

/// Predicates that follow from columns and from what all threads of a group have, which is written
/// again before they are asked for.
#[test]
fn predicates_of_both() {
    for logic in [
        "or.pred %p5, %p1, %p3; or.pred %p6, %p5, %p2;",
        "and.pred %p5, %p1, %p3; or.pred %p6, %p2, %p5;",
        "not.pred %p5, %p2; and.pred %p6, %p5, %p3;",
        "or.pred %p5, %p1, %p3; setp.eq.u32 %p3, %row, 0; or.pred %p6, %p5, %p3;",
        "or.pred %p5, %p1, %p3; setp.eq.u32 %p3, %row, 0; and.pred %p6, %p2, %p3;
        or.pred %p6, %p6, %p5;",
        "or.pred %p6, %p2, %p3; @%p1 setp.eq.u32 %p6, %row, 0;",
        "xor.pred %p5, %p1, %p2; or.pred %p6, %p5, %p3;",
        "or.pred %p6, %p1, %p3; not.pred %p6, %p6; and.pred %p6, %p6, %p2;",
    ] {
        for (some, rest) in [
            ("@%p6 bra over;", ""),
            ("@!%p6 bra over;", ""),
            ("@%p6 bra end;", "end:"),
            ("@!%p6 mad.lo.u32 %r9, %r7, 3, %r8;", ""),
        ] {
            in_all_shapes(&format!(
                "{COLUMN} bar.sync 0; setp.gt.u32 %p3, %row, 1; {logic} {some}
                mad.lo.u32 %r9, %r9, 31, %r7; add.u32 %r9, %r9, %r4; over: bar.sync 0;
                mad.lo.u32 %r9, %r9, 31, %r6; add.u32 %r9, %r9, %r8; {rest}"
            ));
        }
    }
}

/// A loop that threads leave one by one writes such a predicate again.
#[test]
fn predicates_of_both_in_loops() {
    in_all_shapes(&format!(
        "{COLUMN} bar.sync 0; setp.gt.u32 %p3, %row, 1; or.pred %p5, %p1, %p3;
        and.b32 %r13, %r35, 3; @%p5 bra over;
        turn: mul.wide.u32 %rd4, %r13, 4; add.s64 %rd5, %rd2, %rd4;
        ld.global.u32 %r14, [%rd5]; mul.wide.u32 %rd6, %r14, 0; add.s64 %rd7, %rd5, %rd6;
        ld.global.u32 %r15, [%rd7+4]; mad.lo.u32 %r9, %r9, 31, %r15;
        add.u32 %r13, %r13, 1; setp.lt.u32 %p5, %r13, 7; @%p5 bra turn;
        over: mad.lo.u32 %r9, %r9, 31, %r7; selp.u32 %r16, %r4, %r6, %p5; xor.b32 %r9, %r9, %r16;"
    ));
}

/// What is added to an index is another thing where memory is accessed.
#[test]
fn rows_at_an_index_that_is_no_more() {
    for (between, more) in [
        ("", ""),
        ("add.u32 %r12, %r12, 1;", ""),
        ("", "add.u32 %r12, %r12, 1;"),
        ("", "mov.u32 %r13, %r12;"),
        ("add.s32 %r13, %r13, %r12;", ""),
    ] {
        for (wide, offset) in [("s32", "+4"), ("u32", "+4"), ("s32", "+-4"), ("s32", "")] {
            in_all_shapes(&format!(
                "{COLUMN} bar.sync 0; and.b32 %r12, %row, 3; add.u32 %r12, %r12, 1;
                add.s32 %r13, %r4, %r12; {between} mul.wide.{wide} %rd4, %r13, 4; {more}
                add.s64 %rd5, %rd2, %rd4; ld.global.u32 %r14, [%rd5{offset}];
                mad.lo.u32 %r9, %r14, 31, %r13; add.u32 %r9, %r9, %r12;
                @%p1 bra over; add.s32 %r15, %r12, %r4; mul.wide.{wide} %rd6, %r15, 4; {more}
                add.s64 %rd7, %rd2, %rd6; ld.global.u32 %r16, [%rd7{offset}];
                mad.lo.u32 %r9, %r9, 31, %r16; over:"
            ));
        }
    }
}

/// What a thread has if it has written nothing yet.
#[test]
fn written_under_a_branch() {
    in_all_shapes(&format!(
        "{COLUMN} .reg .b32 %once, %guarded, %twice; bar.sync 0; setp.eq.u32 %p3, %row, 1;
        @%p3 bra not; mad.lo.u32 %once, %r1, 9, 4; not: @%p1 shl.b32 %guarded, %r1, 3;
        add.u32 %twice, %r1, 5; add.u32 %r9, %once, %guarded; bar.sync 0;
        mad.lo.u32 %r9, %r9, 31, %once; mad.lo.u32 %r9, %r9, 31, %guarded;
        mad.lo.u32 %r9, %r9, 31, %twice; @%p3 add.u32 %twice, %r1, 6;
        mad.lo.u32 %r9, %r9, 31, %twice;"
    ));
}

/// Rows of memory that end at both sides; also where few threads access them.
#[test]
fn rows_that_end() {
    for some in ["", "@%p1 bra over;", "@%p2 bra over;", "@%p3 bra over;"] {
        in_all_shapes(&format!(
            "{COLUMN} bar.sync 0; setp.eq.u32 %p3, %row, 1; shl.b32 %r12, %row, 2; {some}
            add.s32 %r13, %r4, %r12; mul.wide.s32 %rd4, %r13, 4; add.s64 %rd5, %rd2, %rd4;
            ld.global.u32 %r14, [%rd5]; mad.lo.u32 %r9, %r14, 31, %r4;
            add.s32 %r15, %r12, %r4; mul.wide.s32 %rd6, %r15, 4; add.s64 %rd7, %rd2, %rd6;
            ld.global.u32 %r16, [%rd7+32]; xor.b32 %r9, %r9, %r16; over: bar.sync 0;
            add.u32 %r9, %r9, %r4;"
        ));
    }
}

/// The first thread whose element is outside is named, in its row.
#[test]
fn faults() {
    for shape in [[16, 4, 1], [32, 3, 1], [72, 2, 1], [8, 2, 3]] {
        for least in [-5, 20, 52] {
            for (some, row) in [("", 0), ("@%p3 bra over;", 1)] {
                let body = format!(
                    "{COLUMN} bar.sync 0; setp.ne.u32 %p3, %row, 1; add.s32 %r10, %r1, {least};
                    min.s32 %r11, %r10, 900; max.s32 %r12, %r11, -3; {some} shl.b32 %r13, %row, 2;
                    add.s32 %r14, %r12, %r13; mul.wide.s32 %rd4, %r14, 4; add.s64 %rd5, %rd2, %rd4;
                    ld.global.u32 %r9, [%rd5]; add.u32 %r9, %r9, %r12; over:"
                );
                match in_order(&body, shape, 0) {
                    Ok(_) => {}
                    Err((kind, _, thread)) => {
                        assert_eq!(kind, FaultKind::IllegalAddress);
                        let [_, y, z] = thread.expect("it is known");
                        assert!(y + z >= row, "{thread:?}");
                    }
                }
            }
        }
    }
}

/// Atomics and shuffles stay in the order of threads.
#[test]
fn in_the_order_of_threads() {
    let body = format!(
        "{COLUMN} mov.u32 %r12, s; st.shared.u32 [%r12], 0; bar.sync 0; selp.u32 %r13, %r8, %r4, %p1;
        atom.shared.add.u32 %r14, [%r12], 1; mad.lo.u32 %r9, %r14, 31, %r13; bar.sync 0;
        ld.shared.u32 %r15, [%r12]; mad.lo.u32 %r9, %r9, 31, %r15; selp.u32 %r16, %r6, %r4, %p2;
        activemask.b32 %r18; shfl.sync.bfly.b32 %r17, %r16, 1, 31, %r18;
        mad.lo.u32 %r9, %r9, 31, %r17;"
    );
    for shape in SHAPES {
        in_order(&body, shape, 5).expect("all are inside");
    }
}
