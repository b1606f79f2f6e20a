//! Threads go on one after the other from a branch by what they loaded, within the code of their
//! group, or by masks, or part: steps that do nothing decide.

use super::forms::{Outcome, kernel, run, same};
use crate::grid::launch::FaultKind;
use crate::jit::module::Form;

const BLOCKS: [[u32; 3]; 5] = [[8, 1, 1], [32, 1, 1], [33, 1, 1], [16, 4, 1], [40, 2, 1]];

/// What a body does, whichever way its threads go.
pub(super) fn in_any_way(body: &str, block: [u32; 3], n: u32) -> Outcome {
    let first = same(body, block, n);
    for more in [2, 4, 6] {
        let padded = format!("{}{body}", "mov.u32 %r39, 1;".repeat(more));
        assert_eq!(first, same(&padded, block, n), "{body}");
    }
    first
}

/// Threads load `%r5` and `%r6`, in a block that waits at its end.
pub(super) fn loaded(body: &str) -> String {
    format!(
        "and.b32 %r4, %r35, 63; mul.wide.u32 %rd5, %r4, 4; add.u64 %rd5, %rd2, %rd5;
        ld.global.u32 %r5, [%rd5]; and.b32 %r6, %r5, 7; shr.u32 %r7, %r5, 28;
        cvt.rn.f32.u32 %f1, %r7; mov.f32 %f2, 0f00000000; mov.u32 %r10, 0; mov.u32 %r20, %r3;
        {body}
        mov.u32 %r11, s; shl.b32 %r12, %r35, 2; add.u32 %r11, %r11, %r12;
        cvt.rzi.u32.f32 %r13, %f2; mad.lo.u32 %r10, %r13, 77, %r10;
        st.shared.u32 [%r11], %r10; bar.sync 0;
        mov.u32 %r11, s; ld.shared.u32 %r8, [%r11+28];
        mad.lo.u32 %r9, %r8, 5, %r10; mad.lo.u32 %r9, %r9, 3, %r6; add.u32 %r9, %r9, %r20;"
    )
}

/// The same, in a region where groups may part: they do where `n` is not 0.
pub(super) fn may_part(body: &str) -> String {
    loaded(&format!(
        "sub.u32 %r24, %r1, %r3; mul.wide.u32 %rd12, %r24, 4; shr.u64 %rd13, %rd12, 30;
        cvt.u32.u64 %r25, %rd13; {body} add.u32 %r10, %r10, %r25;"
    ))
}

/// Rows of different lengths, as of a sparse matrix; with some whose loops are unrolled, and with
/// branches in the loop.
#[test]
fn rows_of_different_lengths() {
    let gather = "mad.lo.u32 %r14, %r6, 5, %r7; and.b32 %r14, %r14, 63;
        mul.wide.u32 %rd6, %r14, 4; add.u64 %rd6, %rd2, %rd6; ld.global.u32 %r15, [%rd6];";
    for turn in [
        format!("{gather} mad.lo.u32 %r10, %r10, 31, %r15; add.u32 %r6, %r6, 1;"),
        format!(
            "{gather} cvt.rn.f32.u32 %f3, %r15; fma.rn.f32 %f2, %f3, 0f30000000, %f2;
            add.u32 %r6, %r6, 1;"
        ),
        format!(
            "{gather} mad.lo.u32 %r10, %r10, 31, %r15; add.u32 %r6, %r6, 1;
            setp.ge.u32 %p2, %r6, %r7; @%p2 bra skip;
            {gather} add.u32 %r10, %r10, %r15; add.u32 %r20, %r20, 3; skip:"
        ),
        format!(
            "and.b32 %r16, %r6, 1; setp.eq.u32 %p2, %r16, 1; @%p2 bra other;
            {gather} xor.b32 %r10, %r10, %r15; bra both;
            other: add.u32 %r10, %r10, 7; both: add.u32 %r6, %r6, 1;"
        ),
        // Loops in loops.
        format!(
            "mov.u32 %r17, %r6;
            inner: {gather} mad.lo.u32 %r10, %r10, 31, %r15; add.u32 %r17, %r17, 1;
            setp.lt.u32 %p2, %r17, %r7; @%p2 bra inner; add.u32 %r6, %r6, 2;"
        ),
    ] {
        let body = loaded(&format!(
            "setp.ge.u32 %p1, %r6, %r7; @%p1 bra none;
            again: {turn} setp.lt.u32 %p1, %r6, %r7; @%p1 bra again;
            none:"
        ));
        for block in BLOCKS {
            in_any_way(&body, block, 4).expect("nothing faults");
        }
    }
}

/// Guarded steps, predicates and wide registers go through the branch; what is the same in all
/// threads is theirs alone once they have changed it.
#[test]
fn registers_of_every_kind() {
    let body = loaded(
        "cvt.u64.u32 %rd8, %r35; mov.u64 %rd9, 5; setp.gt.u32 %p3, %r6, 3; mov.u32 %r21, %r3;
        setp.ge.u32 %p1, %r6, %r7; @%p1 bra none;
        mov.u32 %r22, %r3;
        again:
        mul.wide.u32 %rd6, %r6, 4; add.u64 %rd6, %rd2, %rd6; ld.global.u32 %r15, [%rd6];
        @%p3 add.u32 %r10, %r10, %r15; setp.gt.u32 %p3, %r15, %r5;
        add.u64 %rd8, %rd8, %rd9; add.u32 %r22, %r22, 1; add.u32 %r21, %r21, %r22;
        add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, %r7; @%p1 bra again;
        none:
        selp.u32 %r16, 9, 4, %p3; add.u32 %r10, %r10, %r16; cvt.u32.u64 %r16, %rd8;
        mad.lo.u32 %r10, %r10, 3, %r16; add.u32 %r10, %r10, %r21;",
    );
    for block in BLOCKS {
        for n in [0, 3] {
            in_any_way(&body, block, n).expect("nothing faults");
        }
    }
}

/// Threads store on their way, into memory of their own.
#[test]
fn stores_on_the_way() {
    let body = loaded(
        "setp.ge.u32 %p1, %r6, %r7; @%p1 bra none;
        again:
        add.u32 %r14, %r2, %r5; and.b32 %r14, %r14, 7; mad.lo.u32 %r14, %r2, 8, %r14;
        mul.wide.u32 %rd6, %r14, 4; add.u64 %rd6, %rd1, %rd6; st.global.u32 [%rd6+4096], %r6;
        ld.global.u32 %r15, [%rd6+4096]; mad.lo.u32 %r10, %r10, 31, %r15;
        add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, %r7; @%p1 bra again;
        none:",
    );
    for block in BLOCKS {
        in_any_way(&body, block, 4).expect("nothing faults");
    }
}

/// A branch that others come to by masks, in a region behind a wait: there, threads part where an
/// index wraps, and the next group finds what is the same in all of them.
#[test]
fn they_part_where_an_index_wraps_by_masks() {
    let body = loaded(
        "mov.u32 %r21, %r3; bar.sync 0;
        setp.gt.u32 %p3, %r6, 3; not.pred %p4, %p3; @!%p4 bra over;
        setp.ge.u32 %p1, %r6, %r7; @%p1 bra over;
        sub.u32 %r14, %r1, 3; mul.wide.u32 %rd6, %r14, 4;
        cvt.u32.u64 %r16, %rd6; and.b32 %r16, %r16, 63; mul.wide.u32 %rd7, %r7, 4;
        add.u64 %rd7, %rd7, %rd2; ld.global.u32 %r15, [%rd7]; shr.u64 %rd8, %rd6, 30;
        cvt.u32.u64 %r17, %rd8; mad.lo.u32 %r10, %r15, 31, %r17; add.u32 %r10, %r10, %r16;
        over: add.u32 %r10, %r10, %r21;",
    );
    for block in BLOCKS {
        in_any_way(&body, block, 4).expect("nothing faults");
    }
}

/// The first thread whose access is outside is named, whatever those before it did.
#[test]
fn each_thread_faults_by_itself() {
    for outside in 0..32u32 {
        let body = format!(
            "and.b32 %r4, %r35, 63; mul.wide.u32 %rd5, %r4, 4; add.u64 %rd5, %rd2, %rd5;
            ld.global.u32 %r5, [%rd5]; shr.u32 %r7, %r5, 30; mov.u32 %r6, 0;
            setp.ne.u32 %p2, %r35, {outside}; @%p2 bra inside; mov.u32 %r6, 64; mov.u32 %r7, 65;
            inside:
            setp.ge.u32 %p1, %r6, %r7; @%p1 bra none;
            again:
            mul.wide.u32 %rd6, %r6, 4; add.u64 %rd6, %rd2, %rd6; ld.global.u32 %r15, [%rd6];
            add.u32 %r9, %r9, %r15; add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, %r7; @%p1 bra again;
            none: bar.sync 0;"
        );
        for more in [0, 2, 4, 6] {
            let body = format!("{}{body}", "mov.u32 %r39, 1;".repeat(more));
            for form in [Form::Vectors, Form::Rounds] {
                let end = run(&kernel(&body), form, [1, 1, 1], [32, 1, 1], 0);
                let (kind, _, thread) = end.expect_err("a thread is outside");
                assert_eq!(kind, FaultKind::IllegalAddress, "{form:?} {body}");
                assert_eq!(thread, Some([outside, 0, 0]), "{form:?} {body}");
            }
        }
    }
}

/// Rows of two arrays whose loops are unrolled, up to the end of the shorter one: what is checked
/// ahead of a row's last turns lies outside. A row that is too long faults where its own thread
/// leaves the array.
#[test]
fn rows_at_the_end_of_an_array() {
    let short = "mul.wide.u32 %rd6, %r14, 4; add.u64 %rd7, %rd2, %rd6;
        ld.global.u32 %r15, [%rd7];";
    let long = "mul.wide.u32 %rd6, %r14, 4; add.u64 %rd8, %rd6, %rd1;
        ld.global.u32 %r16, [%rd8+8192];";
    for (ends, fits, loads) in [
        (
            "add.u32 %r7, %r7, %r6; min.u32 %r7, %r7, 64;",
            true,
            [short, long],
        ),
        ("add.u32 %r7, %r7, %r6;", false, [short, long]),
        (
            "and.b32 %r7, %r7, 3; add.u32 %r7, %r7, %r6;",
            false,
            [short, long],
        ),
        (
            "and.b32 %r7, %r7, 3; add.u32 %r7, %r7, %r6;",
            false,
            [long, short],
        ),
    ] {
        let entry = |k: usize| {
            format!(
                "add.u32 %r14, %r6, {k}; setp.ge.u32 %p2, %r14, %r7; @%p2 bra past{k}; {}
                mad.lo.u32 %r10, %r10, 31, %r15; add.u32 %r10, %r10, %r16; past{k}:",
                loads.concat()
            )
        };
        let entries: String = (0..4).map(entry).collect();
        let body = may_part(&format!(
            "and.b32 %r6, %r5, 63; {ends}
            setp.ge.u32 %p1, %r6, %r7; @%p1 bra none;
            again: {entries} add.u32 %r6, %r6, 4;
            setp.lt.u32 %p1, %r6, %r7; @%p1 bra again;
            none:"
        ));
        let mut faults = 0;
        for (block, n) in BLOCKS.into_iter().zip([0, 0, 4, 0, 0]) {
            faults += usize::from(in_any_way(&body, block, n).is_err());
        }
        assert_eq!(faults == 0, fits, "{ends}");
    }
}

/// Indices whose neighbours would wrap, and some of which no way leads to from the first.
#[test]
fn indices_that_are_told_from_others() {
    let at = |index: &str| {
        format!(
            "mul.wide.u32 %rd6, {index}, 4; add.u64 %rd6, %rd2, %rd6; ld.global.u32 %r15, [%rd6];
            mad.lo.u32 %r10, %r10, 31, %r15;"
        )
    };
    let (first, load) = (at("%r6"), at("%r14"));
    for steps in [
        // Below what the loop begins with.
        format!("sub.u32 %r14, %r6, 1; and.b32 %r14, %r14, 63; {load} {first}"),
        format!(
            "add.u32 %r14, %r6, 4294967290; setp.gt.u32 %p2, %r14, 63; @%p2 bra low; {load} low:
            {first}"
        ),
        // Changed on one of two ways.
        format!(
            "{first} and.b32 %r16, %r15, 1; setp.eq.u32 %p2, %r16, 0;
            @%p2 bra even; add.u32 %r14, %r6, 1; even: and.b32 %r14, %r14, 63; {load}
            add.u32 %r14, %r6, 1; @%p2 add.u32 %r14, %r14, 2; {load}"
        ),
        // In a loop of its own, which begins at what it was told by.
        format!(
            "{first} mov.u32 %r14, %r6;
            inner: add.u32 %r14, %r14, 1; setp.gt.u32 %p2, %r14, 63; @%p2 bra end; {load}
            setp.lt.u32 %p2, %r14, %r7; @%p2 bra inner; end:"
        ),
    ] {
        let body = may_part(&format!(
            "setp.ge.u32 %p1, %r6, %r7; @%p1 bra none;
            again: {steps} add.u32 %r6, %r6, 1;
            setp.lt.u32 %p1, %r6, %r7; @%p1 bra again;
            none:"
        ));
        for (block, n) in BLOCKS.into_iter().zip([0, 0, 4, 0, 0]) {
            in_any_way(&body, block, n).unwrap_or_else(|fault| panic!("{fault:?}: {steps}"));
        }
    }
}

/// Threads load from one of two arrays in turns: no site knows where all accesses go. Some count
/// what they have found, once each.
#[test]
fn arrays_that_take_turns() {
    for step in [
        "ld.global.u32 %r15, [%rd6];",
        "mad.lo.u32 %r14, %r2, 4, 4096; cvt.u64.u32 %rd7, %r14; add.u64 %rd7, %rd1, %rd7;
        ld.global.u32 %r15, [%rd6]; ld.global.u32 %r16, [%rd7]; add.u32 %r16, %r16, %r15;
        st.global.u32 [%rd7], %r16;",
    ] {
        let body = may_part(&format!(
            "setp.ge.u32 %p1, %r6, %r7; @%p1 bra none;
            again:
            and.b32 %r16, %r6, 1; setp.eq.u32 %p2, %r16, 0; selp.b64 %rd9, %rd1, %rd2, %p2;
            mul.wide.u32 %rd6, %r6, 4; add.u64 %rd6, %rd9, %rd6; {step}
            mad.lo.u32 %r10, %r10, 31, %r15; add.u32 %r6, %r6, 1;
            setp.lt.u32 %p1, %r6, %r7; @%p1 bra again;
            none:"
        ));
        for (block, n) in BLOCKS.into_iter().zip([0, 0, 4, 0, 0]) {
            in_any_way(&body, block, n).expect("nothing faults");
        }
    }
}
