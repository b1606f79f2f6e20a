//! Loops over the grid that are harder than those in [`passes`](super::passes): grids with rows,
//! turns that end early, what threads keep beside what counts, and faults late in the loop.
//!
//! Grids with an odd number of blocks in a row go in step, see `goes_in_step`.

use super::forms::{kernel, run_module};
use crate::grid::launch::FaultKind;
use crate::jit::harness;
use crate::jit::module::Form;

const GRIDS: [[u32; 3]; 5] = [[1, 1, 1], [3, 1, 1], [5, 1, 1], [3, 2, 2], [1, 3, 1]];
const BLOCKS: [[u32; 3]; 7] = [
    [1, 1, 1],
    [8, 1, 1],
    [7, 1, 1],
    [40, 1, 1],
    [8, 3, 1],
    [16, 1, 2],
    [12, 2, 1],
];

/// `%r25` is a thread's number in the grid, `%r5` the grid's threads, `%rd3` the thread's word.
const INDEX: &str = "mov.u32 %r10, %ctaid.y; mov.u32 %r11, %ctaid.z; mov.u32 %r12, %nctaid.x;
    mov.u32 %r13, %nctaid.y; mov.u32 %r14, %nctaid.z; mad.lo.u32 %r34, %r12, %r10, %r34;
    mul.lo.u32 %r12, %r12, %r13; mad.lo.u32 %r34, %r12, %r11, %r34; mul.lo.u32 %r5, %r12, %r14;
    mul.lo.u32 %r5, %r5, %r36;
    mad.lo.u32 %r23, %r33, %r32, %r30; mad.lo.u32 %r24, %r23, %r31, %r1;
    mad.lo.u32 %r25, %r34, %r36, %r24;
    mul.wide.u32 %rd3, %r25, 4; add.u64 %rd3, %rd1, %rd3;";

/// `%r4` goes over the grid. `before` is done before the loop, `begin` at the begin of its first
/// block, `turn` next, and `next` before the thread knows whether it goes on.
fn looping(before: &str, begin: &str, turn: &str, next: &str) -> String {
    format!(
        "{INDEX} mov.u32 %r4, %r25; {before}
        setp.ge.u32 %p1, %r4, %r3; @%p1 bra none;
        again: {begin}
        mul.wide.u32 %rd4, %r4, 4; add.u64 %rd5, %rd1, %rd4;
        and.b32 %r6, %r4, 63; mul.wide.u32 %rd6, %r6, 4; add.u64 %rd6, %rd2, %rd6;
        ld.global.u32 %r7, [%rd6]; ld.global.u32 %r8, [%rd5+4096];
        {turn}
        mad.lo.u32 %r8, %r8, 31, %r7; st.global.u32 [%rd5+4096], %r8;
        {next}
        add.u32 %r4, %r4, %r5; setp.lt.u32 %p1, %r4, %r3; @%p1 bra again;
        none: add.u32 %r9, %r9, 5;"
    )
}

/// What a body does is the same as when each thread does all its turns at once. Whether its blocks
/// can go in step.
fn same(body: &str) -> bool {
    let source = kernel(body);
    let forms = [Form::Vectors, Form::Fibers].map(|form| harness::load_as(&source, form));
    for block in BLOCKS {
        for grid in GRIDS {
            let threads: u32 = grid.iter().chain(&block).product();
            for n in [0, 5, threads, 3 * threads + 7, 1000] {
                let ends = forms.each_ref();
                let [vectors, fibers] = ends.map(|module| run_module(module, grid, block, n));
                assert!(vectors == fibers, "{grid:?} {block:?} n={n}\n{body}");
            }
        }
    }
    let code = forms[0].kernel("k").expect("there is one").compile();
    code.expect("it compiles").passes
}

/// `%r15` and `%rd10` as part of what a turn leaves.
const MIX: &str = "cvt.u32.u64 %r18, %rd10; xor.b32 %r8, %r8, %r18; shr.u64 %rd12, %rd10, 32;
    cvt.u32.u64 %r18, %rd12; add.u32 %r8, %r8, %r18; xor.b32 %r8, %r8, %r15;";

/// Numbers beside the first, of 32 and 64 bits, that wrap, or that count down; before or behind
/// what a turn does.
#[test]
fn several_count() {
    let before = "mad.lo.u32 %r15, %r25, 12, 0x7ffffff0; mul.wide.s32 %rd10, %r25, -4;
        mov.u64 %rd11, 0x123456789a; setp.lt.u32 %p4, %r34, 1; selp.u32 %r16, 3, -5, %p4;";
    for step in [
        "add.u32 %r15, %r15, %r16;",
        "add.u32 %r15, 0x40000001, %r15; add.u64 %rd10, %rd11, %rd10;",
        "add.s64 %rd10, %rd10, -8; add.u32 %r15, %r3, %r15;",
        // Nothing has been written to it.
        "add.u32 %r15, %r15, %r20;",
    ] {
        assert!(same(&looping(before, step, MIX, "")), "{step}");
        assert!(same(&looping(before, "", MIX, step)), "{step}");
    }
    // Nothing has been written to what counts.
    let step = "add.u32 %r15, %r15, 3; add.u64 %rd10, %rd10, 5;";
    assert!(same(&looping("", step, MIX, "")));
}

/// What threads keep from turn to turn does not count.
#[test]
fn what_does_not_count() {
    let before = "mad.lo.u32 %r15, %r25, 12, 7; mov.u32 %r16, 3; mov.u64 %rd10, 5;
        setp.lt.u32 %p4, %r34, 1;";
    for step in [
        "add.sat.s32 %r15, %r15, 0x30000000;",
        "@%p4 add.u32 %r15, %r15, 3;",
        "add.u32 %r15, %r15, %r15;",
        "add.u32 %r15, %r15, %r16; add.u32 %r16, %r16, 1;",
        "mov.u32 %r22, %r15; add.u32 %r15, %r22, 1;",
        "@%p4 mov.u32 %r15, %r4; not.pred %p4, %p4;",
    ] {
        assert!(!same(&looping(before, "", MIX, step)), "{step}");
    }
}

/// Threads end the loop in the middle of a turn, alone or by groups, or pass by it.
#[test]
fn some_end_early() {
    let by_groups = "shr.u32 %r18, %r4, 3; and.b32 %r18, %r18, 7; setp.eq.u32 %p5, %r18, 3;";
    for ends in [
        "setp.eq.u32 %p5, %r4, 77;",
        "and.b32 %r18, %r7, 15; setp.eq.u32 %p5, %r18, 3;",
        by_groups,
    ] {
        let turn = format!("{ends} @%p5 bra none;");
        assert!(same(&looping("", "", &turn, "")), "{turn}");
    }
    for before in [
        "setp.eq.u32 %p4, %r1, 5; @%p4 ret;",
        "and.b32 %r10, %r25, 8; setp.ne.u32 %p4, %r10, 0; @%p4 bra none;",
        "setp.gt.u32 %p4, %r34, 1; @%p4 ret;",
    ] {
        assert!(same(&looping(before, "", "", "")), "{before}");
    }
    assert!(!same(&looping(
        "setp.eq.u32 %p4, %r3, 1000; @%p4 ret;",
        "",
        "",
        "@%p4 ret;"
    )));
}

/// A fault in a late turn is of the thread and the block that did it.
#[test]
fn late_faults() {
    for outside in [0, 130, 300, 999] {
        let turn = format!(
            "setp.eq.u32 %p8, %r4, {outside}; selp.u64 %rd8, 0x1000000000, 0, %p8;
            add.u64 %rd8, %rd8, %rd5; st.global.u32 [%rd8+4096], %r7;"
        );
        let source = kernel(&looping("", "", &turn, ""));
        let module = harness::load_as(&source, Form::Vectors);
        let end = run_module(&module, [3, 2, 1], [8, 2, 1], 1000);
        let (kind, block, thread) = end.expect_err("one is outside");
        assert_eq!(kind, FaultKind::IllegalAddress);
        let at = outside % 96;
        assert_eq!(block, [at / 16 % 3, at / 48, 0]);
        assert_eq!(thread, Some([at % 8, at / 8 % 2, 0]));
    }
}
