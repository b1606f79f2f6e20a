//! Blocks go in step through a loop over the grid: kernels leave the same as when each thread does
//! all its turns at once.

use std::sync::Arc;

use super::forms::{Outcome, kernel, run_module};
use crate::grid::launch::FaultKind;
use crate::jit::harness;
use crate::jit::module::{Form, Module};

/// Rows of whole groups, of others, and several of each.
const BLOCKS: [[u32; 3]; 6] = [
    [8, 1, 1],
    [32, 1, 1],
    [33, 1, 1],
    [16, 2, 2],
    [12, 3, 1],
    [64, 1, 1],
];

/// A thread's number in the grid, `%r25`, which counts up in a group.
const INDEX: &str = "mad.lo.u32 %r23, %r33, %r32, %r30; mad.lo.u32 %r24, %r23, %r31, %r1;
    mad.lo.u32 %r25, %r34, %r36, %r24; mov.u32 %r26, %nctaid.x; mul.lo.u32 %r5, %r26, %r36;";

/// A body in all forms.
struct Forms {
    body: String,
    all: [Arc<Module>; 3],
}

impl Forms {
    fn of(body: &str) -> Forms {
        let source = kernel(&format!("{INDEX} {body}"));
        let forms = [Form::Vectors, Form::Rounds, Form::Fibers];
        Forms {
            body: body.to_owned(),
            all: forms.map(|form| harness::load_as(&source, form)),
        }
    }

    /// What it does in a grid, the same in all forms.
    fn same(&self, grid: [u32; 3], block: [u32; 3], n: u32) -> Outcome {
        let ends = self.all.each_ref();
        let [vectors, rounds, fibers] = ends.map(|module| run_module(module, grid, block, n));
        let body = &self.body;
        assert!(
            vectors == fibers,
            "vectors: {grid:?} {block:?} n={n}\n{body}"
        );
        assert!(rounds == fibers, "rounds: {grid:?} {block:?} n={n}\n{body}");
        fibers
    }
}

/// A body does the same in all forms, in several grids and blocks, up to numbers that few, some and
/// all turns come to.
fn same_everywhere(body: &str) {
    let forms = Forms::of(body);
    for block in BLOCKS {
        for blocks in [1, 3, 8] {
            let threads = blocks * block.iter().product::<u32>();
            for n in [0, 1, 7, threads - 1, threads + 3, 2 * threads + 5, 1000] {
                let end = forms.same([blocks, 1, 1], block, n);
                end.expect("nothing faults");
            }
        }
    }
}

/// `%r4` goes over the grid; a turn ends with its `next`.
fn over_the_grid(turn: &str, next: &str) -> String {
    format!(
        "mov.u32 %r4, %r25;
        setp.ge.u32 %p1, %r4, %r3; @%p1 bra none;
        again:
        mul.wide.u32 %rd4, %r4, 4; add.u64 %rd5, %rd1, %rd4;
        and.b32 %r6, %r4, 63; mul.wide.u32 %rd6, %r6, 4; add.u64 %rd6, %rd2, %rd6;
        {turn}
        {next}
        none:"
    )
}

const NEXT: &str = "add.u32 %r4, %r4, %r5; setp.lt.u32 %p1, %r4, %r3; @%p1 bra again;";
/// Every word that a turn comes to is another.
const TURN: &str = "ld.global.u32 %r7, [%rd6]; ld.global.u32 %r8, [%rd5+4096];
    mad.lo.u32 %r8, %r8, 31, %r7; add.u32 %r8, %r8, %r4; st.global.u32 [%rd5+4096], %r8;";

#[test]
fn turns_of_all_threads() {
    same_everywhere(&over_the_grid(TURN, NEXT));
    // What counts is read behind the loop: then blocks go one after the other.
    let body = over_the_grid(TURN, NEXT);
    same_everywhere(&format!("{body} mad.lo.u32 %r9, %r4, 7, %r5;"));
    // What counts is compared before it is added to, or the other way round.
    for next in [
        "add.u32 %r4, %r5, %r4; setp.gt.u32 %p1, %r3, %r4; @%p1 bra again;",
        "add.u32 %r4, %r4, %r5; setp.ge.u32 %p1, %r4, %r3; @!%p1 bra again;",
    ] {
        same_everywhere(&over_the_grid(TURN, next));
    }
}

/// Threads of a group go different ways in a turn, and so does one in each prologue.
#[test]
fn threads_part_in_a_turn() {
    let branches = "and.b32 %r10, %r4, 5; setp.eq.u32 %p2, %r10, 1; @%p2 bra other;
        ld.global.u32 %r7, [%rd6]; add.u32 %r7, %r7, %r10; bra both;
        other: xor.b32 %r7, %r4, 85; both: st.global.u32 [%rd5+4096], %r7;";
    same_everywhere(&over_the_grid(branches, NEXT));
    // A loop of its own in each turn, as often as was loaded.
    let inner = "ld.global.u32 %r7, [%rd6]; and.b32 %r11, %r7, 3; mov.u32 %r12, 1;
        deeper: mad.lo.u32 %r12, %r12, 5, %r4; sub.u32 %r11, %r11, 1;
        setp.lt.u32 %p3, %r11, 4; @%p3 bra deeper; st.global.u32 [%rd5+4096], %r12;";
    same_everywhere(&over_the_grid(inner, NEXT));
    let body = over_the_grid(TURN, NEXT);
    same_everywhere(&format!(
        "and.b32 %r13, %r1, 3; mov.u32 %r14, 5; setp.eq.u32 %p4, %r13, 2; @%p4 bra skips;
        mov.u32 %r14, 9; skips: {body} add.u32 %r9, %r9, %r14;"
    ));
    same_everywhere(&format!("setp.eq.u32 %p4, %r1, 5; @%p4 ret; {body}"));
    same_everywhere(&format!(
        "and.b32 %r13, %r1, 24; setp.eq.u32 %p4, %r13, 8; @%p4 bra ends; {body} ends:"
    ));
}

/// Numbers of 64 bits, several that count, pointers, steps that are written out, and downwards.
#[test]
fn what_counts() {
    same_everywhere(&over_the_grid(
        "add.u64 %rd7, %rd1, %rd4; add.u32 %r15, %r15, 3; st.global.u32 [%rd7+4096], %r15;",
        NEXT,
    ));
    same_everywhere(
        "cvt.u64.u32 %rd4, %r25;
        cvt.u64.u32 %rd5, %r5; cvt.u64.u32 %rd6, %r3; mul.wide.u32 %rd7, %r5, 4;
        setp.ge.u64 %p1, %rd4, %rd6; @%p1 bra none;
        mul.wide.u32 %rd9, %r25, 4; add.u64 %rd10, %rd1, %rd9;
        again:
        cvt.u32.u64 %r6, %rd4; st.global.u32 [%rd10+4096], %r6;
        add.u64 %rd10, %rd10, %rd7; add.u64 %rd4, %rd4, %rd5;
        setp.lt.u64 %p1, %rd4, %rd6; @%p1 bra again;
        none:",
    );
    same_everywhere(
        "sub.u32 %r4, %r3, %r25;
        sub.u32 %r4, %r4, 1; neg.s32 %r27, %r5; setp.lt.s32 %p1, %r4, 0; @%p1 bra none;
        again:
        mul.wide.u32 %rd4, %r4, 4; add.u64 %rd5, %rd1, %rd4; ld.global.u32 %r6, [%rd5+4096];
        mad.lo.u32 %r6, %r6, 3, %r4; st.global.u32 [%rd5+4096], %r6;
        add.s32 %r4, %r4, %r27; setp.ge.s32 %p1, %r4, 0; @%p1 bra again;
        none:",
    );
    // One row of the block at a time, of blocks that have a part each.
    same_everywhere(
        "mad.lo.u32 %r4, %r34, 96, %r1; mad.lo.u32 %r5, %r34, 96, 96; min.u32 %r5, %r5, %r3;
        setp.ge.u32 %p1, %r4, %r5; @%p1 bra none;
        again:
        mul.wide.u32 %rd4, %r4, 4; add.u64 %rd5, %rd1, %rd4; st.global.u32 [%rd5+4096], %r4;
        add.u32 %r4, %r4, 8; setp.lt.u32 %p1, %r4, %r5; @%p1 bra again;
        none:",
    );
}

/// What threads add up is no number that counts.
#[test]
fn sums_are_kept() {
    let turn = "ld.global.u32 %r7, [%rd6]; ld.global.u32 %r8, [%rd5+4096];
        add.u32 %r9, %r9, %r7; mad.lo.u32 %r9, %r8, 3, %r9;";
    same_everywhere(&over_the_grid(turn, NEXT));
    // A word that only some turns write.
    let turn = "ld.global.u32 %r7, [%rd6]; setp.lt.u32 %p5, %r4, 40; @%p5 mov.u32 %r9, %r4;
        st.global.u32 [%rd5+4096], %r7;";
    same_everywhere(&over_the_grid(turn, NEXT));
}

/// A counter that wraps on the way, in some threads of a group before others.
#[test]
fn counters_wrap() {
    for start in [0x7fff_ff00_u32, 0xffff_ff00, 0xffff_fffc] {
        let body = format!(
            "add.u32 %r4, %r25, {start};
            mov.u32 %r16, 0;
            again:
            sub.u32 %r6, %r4, {start}; mul.wide.u32 %rd4, %r6, 4; add.u64 %rd5, %rd1, %rd4;
            mul.wide.u32 %rd6, %r4, 4; cvt.u32.u64 %r7, %rd6; shr.u64 %rd6, %rd6, 30;
            cvt.u32.u64 %r8, %rd6; mad.lo.u32 %r7, %r8, 77, %r7; st.global.u32 [%rd5+4096], %r7;
            add.u32 %r4, %r4, %r5; sub.u32 %r17, %r4, {start};
            setp.lt.u32 %p1, %r17, %r3; @%p1 bra again;"
        );
        same_everywhere(&body);
    }
}

/// Two such loops, one in the other, and loops in blocks with shared memory.
#[test]
fn more_loops() {
    let first = over_the_grid(TURN, NEXT);
    let second = over_the_grid(TURN, NEXT)
        .replace("again", "again2")
        .replace("none", "none2")
        .replace("4096", "8320");
    same_everywhere(&format!("{first} {second}"));
    let inner = "mov.u32 %r18, %r1; inner: mul.wide.u32 %rd7, %r18, 4; add.u64 %rd7, %rd7, %rd5;
        ld.global.u32 %r7, [%rd7+4096]; add.u32 %r9, %r9, %r7; add.u32 %r18, %r18, 32;
        setp.lt.u32 %p6, %r18, 64; @%p6 bra inner;";
    same_everywhere(&over_the_grid(inner, NEXT));
    // A thread reads what it left in the turn before.
    let shared = "mov.u32 %r19, s; shl.b32 %r20, %r35, 2; add.u32 %r19, %r19, %r20;
        ld.shared.u32 %r21, [%r19]; setp.eq.u32 %p7, %r4, %r25; selp.u32 %r21, 1, %r21, %p7;
        mad.lo.u32 %r21, %r21, 5, %r4; st.shared.u32 [%r19], %r21;
        st.global.u32 [%rd5+4096], %r21;";
    same_everywhere(&over_the_grid(shared, NEXT));
    // Every turn counts.
    let atomic = "atom.global.add.u32 %r7, [%rd2+4], 1; st.global.u32 [%rd5+4096], %r4;";
    same_everywhere(&over_the_grid(atomic, NEXT));
}

/// The thread is named whose access is outside, in whatever turn.
#[test]
fn each_turn_may_fault() {
    for outside in [0, 7, 8, 63, 64, 200, 417] {
        let turn = format!(
            "setp.eq.u32 %p8, %r4, {outside}; selp.u32 %r22, 0x7fffffff, %r4, %p8;
            mul.wide.u32 %rd8, %r22, 4; add.u64 %rd8, %rd8, %rd1;
            ld.global.u32 %r7, [%rd6]; st.global.u32 [%rd8+4096], %r7;"
        );
        let body = over_the_grid(&turn, NEXT);
        let end = Forms::of(&body).same([4, 1, 1], [16, 1, 1], 500);
        let (kind, block, thread) = end.expect_err("one is outside");
        assert_eq!(kind, FaultKind::IllegalAddress);
        let at = outside % 64;
        assert_eq!((block[0], thread), (at / 16, Some([at % 16, 0, 0])));
    }
}
