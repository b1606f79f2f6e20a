//! Blocks of several warps that split at branches, skip regions, and come together again: all forms
//! do the same.

use super::forms::same;

/// Blocks of one warp and of many, some with a last warp that lacks lanes, some with rows that are
/// no whole warps.
const SHAPES: [[u32; 3]; 12] = [
    [1, 1, 1],
    [24, 1, 1],
    [32, 1, 1],
    [64, 1, 1],
    [128, 1, 1],
    [8, 9, 1],
    [24, 4, 1],
    [40, 3, 1],
    [96, 2, 1],
    [32, 4, 2],
    [100, 1, 1],
    [64, 16, 1],
];

fn in_all_shapes(body: &str, n: u32) {
    for block in SHAPES {
        _ = same(body, block, n);
    }
}

/// Each warp goes another number of times through a loop without a barrier: warps wait for their
/// turn at one place, with another count each.
#[test]
fn warps_that_wait_at_one_place_came_there_at_different_times() {
    let body = "
        shr.u32 %r11, %r35, 5; mov.u32 %r10, 0;
        more:
        add.u32 %r10, %r10, 1;
        add.u32 %r12, %r10, %r11;
        setp.ge.u32 %p1, %r12, %r3;
        @%p1 bra over;
        shfl.sync.idx.b32 %r13, %r9, 3, 31, -1;
        add.u32 %r9, %r9, %r13;
        over:
        mad.lo.u32 %r9, %r9, 31, %r10;
        setp.lt.u32 %p2, %r10, 5;
        @%p2 bra more;";
    for n in [2, 3, 4] {
        in_all_shapes(body, n);
    }
}

/// Warps come to one barrier in different turns of a loop.
#[test]
fn warps_meet_at_a_barrier_in_different_turns() {
    let body = "
        shr.u32 %r11, %r35, 5; mov.u32 %r10, 0;
        more:
        add.u32 %r10, %r10, 1;
        add.u32 %r12, %r10, %r11; and.b32 %r12, %r12, 1;
        setp.eq.u32 %p1, %r12, %r3;
        @%p1 bra over;
        bar.sync 0;
        over:
        mad.lo.u32 %r9, %r9, 31, %r10;
        setp.lt.u32 %p2, %r10, 4;
        @%p2 bra more;
        bar.sync 0;";
    for n in [0, 1, 2] {
        in_all_shapes(body, n);
    }
}

/// The same, where the barrier gives something.
#[test]
fn warps_meet_at_a_reduction_in_different_turns() {
    let body = "
        shr.u32 %r11, %r35, 5; mov.u32 %r10, 0;
        more:
        add.u32 %r10, %r10, 1;
        add.u32 %r12, %r10, %r11; and.b32 %r12, %r12, 1;
        setp.eq.u32 %p1, %r12, %r3;
        @%p1 bra over;
        setp.gt.u32 %p3, %r1, 5;
        bar.red.popc.u32 %r13, 0, %p3;
        mad.lo.u32 %r9, %r9, 7, %r13;
        over:
        mad.lo.u32 %r9, %r9, 31, %r10;
        setp.lt.u32 %p2, %r10, 4;
        @%p2 bra more;
        bar.sync 0;";
    for n in [0, 1, 2] {
        in_all_shapes(body, n);
    }
}

/// Guards that are told for a warp, from values that count up over a group or a warp.
#[test]
fn skips() {
    let counts = [
        "mov.u32 %r4, %r1;",
        "mov.u32 %r4, %r35;",
        "mov.u32 %r4, %laneid;",
        "and.b32 %r4, %r1, 31;",
        "and.b32 %r4, %r1, 7;",
        "and.b32 %r4, %r1, -8;",
        "shl.b32 %r4, %r1, 2; or.b32 %r4, %r4, 1;",
        "or.b32 %r4, %r1, 64;",
        "xor.b32 %r4, %r1, 8;",
        "mad.lo.u32 %r4, %r1, -3, 0x80000010;",
        "mad.lo.u32 %r4, %r1, 3, 0x7fffffe0;",
        "mad.lo.u32 %r4, %r1, 5, -60;",
        "mad.lo.u32 %r4, %r1, 0x08000000, 7;",
        "mad.lo.u32 %r4, %r30, 7, %r1;",
        "sub.u32 %r4, %r3, %r1;",
        "mov.u32 %r4, %laneid; add.u32 %r4, %r4, %r1;",
        "shr.u32 %r5, %r35, 5; add.u32 %r4, %r1, %r5;",
        "rem.u32 %r4, %r1, 8;",
        "min.u32 %r4, %r1, 40;",
        "mul.wide.u32 %rd5, %r1, 4; cvt.u32.u64 %r4, %rd5;",
    ];
    let bounds = [
        0u32,
        1,
        8,
        31,
        32,
        33,
        64,
        0x7fff_ffff,
        0x8000_0000,
        0x8000_0020,
        0xffff_ffff,
    ];
    for (at, count) in counts.into_iter().enumerate() {
        let compares = [
            "lt.u32", "ge.u32", "le.s32", "gt.s32", "eq.u32", "ne.u32", "lt.s32", "gt.u32",
        ];
        for (which, compare) in compares.into_iter().enumerate() {
            let not = if (at + which) % 2 == 0 { "!" } else { "" };
            let body = format!(
                "{count} mov.u32 %r8, 3; mov.u32 %r10, 0; bar.sync 0;
                again:
                add.u32 %r6, %r4, 5; add.u32 %r7, %r10, 9; sub.u32 %r6, %r6, 5;
                setp.{compare} %p1, %r6, %r3;
                @{not}%p1 bra over;
                mad.lo.u32 %r9, %r9, 31, %r7; add.u32 %r8, %r8, 1;
                over:
                bar.sync 0;
                add.u32 %r9, %r9, %r7; add.u32 %r10, %r10, 1;
                setp.lt.u32 %p2, %r10, 2; @%p2 bra again;
                add.u32 %r9, %r9, %r6; add.u32 %r9, %r9, %r8;"
            );
            let shapes = [[96, 2, 1], [24, 4, 1], [40, 2, 1], [8, 9, 1], [64, 2, 2]];
            let block = shapes[(at + which) % shapes.len()];
            for n in bounds {
                same(&body, block, n).unwrap();
            }
            if which % 4 == 0 {
                same(&body, [64, 1, 1], 33).unwrap();
            }
        }
    }
}

/// Values of the block that are written where threads of a group part, and read behind.
#[test]
fn values_of_the_block_where_threads_part() {
    let parts = [
        // Wraps between neighbours.
        "sub.u32 %r12, %r1, %r3; mul.wide.u32 %rd5, %r12, 4; shr.u64 %rd5, %rd5, 7;
        cvt.u32.u64 %r13, %rd5; add.u32 %r9, %r9, %r13;",
        // Loops with a trip count of each thread.
        "and.b32 %r12, %r1, 5; add.u32 %r12, %r12, 1;
        inner: mad.lo.u32 %r9, %r9, 3, %r10; sub.u32 %r12, %r12, 1; setp.gt.s32 %p3, %r12, 0;
        @%p3 bra inner;",
        // A way that some take.
        "setp.gt.u32 %p3, %r1, %r3; @%p3 bra inner; rem.u32 %r9, %r2, 5; atom.global.add.u32 %r12, [%rd3], 3;
        rem.u32 %r9, %r9, 3; inner:",
        // Some end.
        "setp.eq.u32 %p3, %r1, %r3; @%p3 ret;",
        "setp.gt.u32 %p3, %r35, %r3; @%p3 ret;",
        "",
    ];
    let waits = [
        "bar.sync 0;",
        "shfl.sync.bfly.b32 %r13, %r9, 1, 31, -1; add.u32 %r9, %r9, %r13;",
        "setp.gt.u32 %p4, %r1, 3; bar.red.popc.u32 %r13, 2, %p4; add.u32 %r9, %r9, %r13;",
        "shr.u32 %r14, %r35, 5; setp.gt.u32 %p4, %r14, 1; @%p4 bra on;
        bar.warp.sync -1; add.u32 %r9, %r9, 5; on:",
        "add.u32 %r15, %r10, 1; bar.sync %r15;",
    ];
    for part in parts {
        for wait in waits {
            let body = format!(
                "mov.u32 %r10, 0; mul.lo.u32 %r16, %r3, 3;
                more:
                add.u32 %r10, %r10, 1; mad.lo.u32 %r16, %r16, 5, %r10;
                {part}
                add.u32 %r16, %r16, 7; cvt.rn.f32.u32 %f1, %r16; setp.gt.u32 %p5, %r16, 1000;
                {wait}
                @%p5 add.u32 %r9, %r9, 1; cvt.rzi.u32.f32 %r17, %f1;
                mad.lo.u32 %r9, %r9, 31, %r16; add.u32 %r9, %r9, %r17;
                setp.lt.u32 %p2, %r10, 4; @%p2 bra more; bar.sync 0;
                add.u32 %r9, %r9, %r10;"
            );
            for n in [3, 40, 1000] {
                for block in [[24, 1, 1], [128, 1, 1], [40, 3, 1], [100, 1, 1]] {
                    _ = same(&body, block, n);
                }
            }
        }
    }
}
