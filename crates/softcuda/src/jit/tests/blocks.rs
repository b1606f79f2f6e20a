//! Blocks of several warps that split at branches, skip regions, and come together again: all forms
//! do the same.

use super::forms::{kernel, run, same};
use super::fuzz::Sample;
use crate::grid::launch::FaultKind;
use crate::jit::module::Form;

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

/// What a body does, the same in all forms, but for the thread that a fault names: where many
/// fault, the first one depends on the order that they run in.
fn alike(body: &str, block: [u32; 3], n: u32) {
    let source = kernel(body);
    let [vectors, rounds, fibers] = [Form::Vectors, Form::Rounds, Form::Fibers].map(|form| {
        let outcome = run(&source, form, [1, 1, 1], block, n);
        outcome.map_err(|(kind, ..)| match kind {
            // Of several threads that fault so, one may do this and another that.
            FaultKind::Misaligned => FaultKind::IllegalAddress,
            kind => kind,
        })
    });
    assert!(vectors == fibers, "vectors {block:?} n={n}\n{body}");
    assert!(rounds == fibers, "rounds {block:?} n={n}\n{body}");
}

fn in_all_shapes(body: &str, n: u32) {
    for block in SHAPES {
        same(body, block, n).unwrap();
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
        add.u32 %r9, %r9, %r11;
        bar.sync 0;
        add.u32 %r9, %r9, %r10;
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
            for more in 0..2 {
                let n = bounds[(3 * at + 5 * which + 4 * more) % bounds.len()];
                same(&body, block, n).unwrap();
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

const MANY: [[u32; 3]; 7] = [
    [20, 1, 1],
    [64, 1, 1],
    [128, 1, 1],
    [40, 3, 1],
    [100, 1, 1],
    [256, 1, 1],
    [512, 1, 1],
];

/// What warps do by themselves between barriers.
#[test]
fn warps_do_different_things() {
    let setup =
        "shr.u32 %r11, %r35, 5; mov.u32 %r10, 0; and.b32 %r12, %r11, 3; add.u32 %r9, %r2, 7;";
    let parts = [
        // Trip counts by warp, with warp operations inside.
        "add.u32 %r13, %r11, 1;
        more: shfl.sync.up.b32 %r14, %r9, 1, 0, -1; add.u32 %r9, %r9, %r14; add.u32 %r10, %r10, 1;
        sub.u32 %r13, %r13, 1; setp.ne.u32 %p1, %r13, 0; @%p1 bra more;
        bar.sync 0; mad.lo.u32 %r9, %r9, 31, %r10;",
        // Nested, all kinds inside.
        "setp.lt.u32 %p1, %r12, 2; @%p1 bra a;
        match.any.sync.b32 %r13, %r12, -1; add.u32 %r9, %r9, %r13;
        setp.eq.u32 %p2, %r12, 2; @%p2 bra b;
        redux.sync.add.u32 %r13, %r9, -1; add.u32 %r9, %r9, %r13; add.u32 %r10, %r10, 2;
        bra c; b: vote.sync.ballot.b32 %r13, %p2, -1; add.u32 %r9, %r9, %r13; bra c;
        a: activemask.b32 %r13; add.u32 %r9, %r9, %r13; elect.sync %r13|%p3, -1; @%p3 add.u32 %r9, %r9, 5;
        c: bar.red.popc.u32 %r13, 3, %p1; mad.lo.u32 %r9, %r9, 31, %r13;",
        // Pairs of warps have barriers of their own.
        "shr.u32 %r13, %r11, 1; and.b32 %r13, %r13, 7; add.u32 %r13, %r13, 1;
        setp.lt.u32 %p1, %r11, 2; @%p1 bra a; bar.sync %r13, 64; add.u32 %r9, %r9, 1; bra b;
        a: bar.sync %r13, 64; add.u32 %r9, %r9, 2; b: bar.sync 0; bar.sync %r13, 64;",
        "shr.u32 %r13, %r11, 1; and.b32 %r13, %r13, 7; mov.u32 %r14, 64; setp.gt.u32 %p2, %r1, 2;
        more: bar.red.popc.u32 %r15, %r13, %r14, %p2; add.u32 %r9, %r9, %r15;
        add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 3; @%p1 bra more;",
        // Some warps end.
        "setp.eq.u32 %p1, %r12, %r3; @%p1 bra stop; bar.sync 0; add.u32 %r9, %r9, 3; bar.sync 0; bra c;
        stop: st.global.u32 [%rd3], %r2; ret; c:",
        "more: add.u32 %r10, %r10, 1; setp.gt.u32 %p1, %r10, %r11; @%p1 ret; bar.sync 0;
        st.global.u32 [%rd3], %r10; bra more;",
        // A barrier that not all come to.
        "setp.eq.u32 %p1, %r12, %r3; @%p1 bra over; bar.sync 1; over:",
        "setp.eq.u32 %p1, %r12, %r3; @%p1 bra over; bar.sync 1; bra on; over: bar.sync 2; on:",
        "setp.eq.u32 %p1, %r1, 35; @%p1 bra over; shfl.sync.idx.b32 %r13, %r9, 3, 31, -1; over:",
        "setp.eq.u32 %p1, %r12, 1; @%p1 bra over; bar.arrive 1, 128; bra on; over: bar.sync 1, 128; on: bar.sync 0;",
        // Faults.
        "setp.eq.u32 %p1, %r11, 1; @!%p1 bra over; mov.u64 %rd5, 16; ld.global.u32 %r9, [%rd5]; over: bar.sync 0;",
        "setp.eq.u32 %p1, %r11, 1; @!%p1 bra over; mov.u32 %r13, 17; bar.sync %r13; over: bar.sync 0;",
        "add.u32 %r13, %r12, 15; bar.sync %r13;",
        "bar.sync 0; setp.eq.u32 %p1, %r35, 33; @%p1 trap; bar.sync 0;",
        "setp.eq.u32 %p1, %r12, 1; @%p1 bra over; bar.sync 0; bra on; over: mov.u32 %r13, 33; bar.sync 0, %r13; on:",
        "setp.eq.u32 %p1, %r12, 1; @%p1 bra over; shfl.sync.idx.b32 %r9, %r9, 0, 31, 0xff; over: bar.sync 0;",
        // One warp spins until another has come.
        "mov.u32 %r13, s; setp.eq.u32 %p1, %r11, 0; @%p1 bra spin; st.volatile.shared.u32 [%r13], 1;
        shfl.sync.idx.b32 %r14, %r9, 3, 31, -1; add.u32 %r9, %r9, %r14; bra on;
        spin: setp.le.u32 %p3, %r36, 32; @%p3 bra on;
        again: ld.volatile.shared.u32 %r14, [%r13]; setp.eq.u32 %p2, %r14, 0; @%p2 bra again;
        shfl.sync.idx.b32 %r14, %r9, 3, 31, -1; add.u32 %r9, %r9, %r14;
        on: bar.sync 0; add.u32 %r9, %r9, 1;",
        // A warp works, the others wait at a barrier; counters of the block go on within.
        "more: add.u32 %r10, %r10, 1; rem.u32 %r13, %r10, 3; setp.ne.u32 %p1, %r13, %r12; @%p1 bra w;
        add.u32 %r15, %r10, 4; redux.sync.max.u32 %r14, %r9, -1; add.u32 %r9, %r14, %r15;
        w: bar.sync 0; setp.lt.u32 %p2, %r10, 5; @%p2 bra more; add.u32 %r9, %r9, %r10;",
        // Carries.
        "sub.u32 %r13, 0, %r1; add.cc.u32 %r14, %r13, %r1; addc.u32 %r15, 10, 0; bar.sync 0;
        add.u32 %r9, %r9, %r15;",
        // A counter of the block behind a join that warps come to apart.
        "setp.eq.u32 %p1, %r12, 1; @%p1 bra a; shfl.sync.idx.b32 %r13, %r9, 3, 31, -1; a:
        add.u32 %r10, %r10, 3; bar.warp.sync -1; add.u32 %r10, %r10, 4; setp.eq.u32 %p1, %r12, 2; @%p1 bra b;
        bar.warp.sync 0xffffffff; shfl.sync.idx.b32 %r13, %r10, 3, 31, -1; add.u32 %r9, %r9, %r13; b:
        mad.lo.u32 %r9, %r9, 31, %r10; bar.sync 0; mad.lo.u32 %r9, %r9, 31, %r10;",
    ];
    for part in parts {
        let body = format!("{setup} {part}");
        for block in MANY {
            for n in [0, 1] {
                alike(&body, block, n);
            }
        }
    }
}

/// Loads and stores of several registers, at all distances, some misaligned.
#[test]
fn rows_of_several_registers() {
    let mut sample = Sample::one_in(3);
    let lists = [
        ("v2.u32", 8, "%r4, %r5", "%r5, %r4"),
        ("v2.u32", 8, "%r4, %r4", "%r4, %r4"),
        ("v2.f32", 8, "_, %f5", "%f5, %f5"),
        ("v2.u16", 4, "%h4, %h5", "%h4, %h5"),
        ("v2.u32", 8, "%f4, %r5", "%r5, %f4"),
        ("v4.u32", 16, "%r4, %r5, %r6, %r7", "%r7, %r4, %r5, %r5"),
        ("v4.f32", 16, "%f4, _, %f6, %f4", "%f6, %f5, %f4, %f4"),
        ("v4.b32", 16, "%r6, %f5, %r7, %f6", "%r6, %r1, %r3, %f6"),
        ("v2.f64", 16, "%d4, %d5", "%d5, %d4"),
        ("v2.b64", 16, "%d4, %rd6", "%rd6, %d4"),
        ("v2.u64", 16, "%rd6, %rd6", "%rd6, %rd18"),
    ];
    for (ty, size, to, from) in lists {
        for wait in ["", "bar.sync 0;"] {
            for (stride, at) in [
                (size, 0),
                (size, 4),
                (4, 0),
                (8, 0),
                (12, 0),
                (16, 0),
                (24, 8),
                (32, 0),
                (48, 16),
                (256, 0),
                (-16, 0),
            ] {
                if !sample.takes() {
                    continue;
                }
                let body = format!(
                    ".reg .f64 %d<8>; .reg .b16 %h<8>; {wait}
                    mul.wide.u32 %rd18, %r1, {stride}; add.s64 %rd4, %rd1, %rd18;
                    ld.global.u32 %r9, [%rd2+20]; st.global.u32 [%rd4+{at}], %r9; {wait}
                    ld.global.{ty} {{{to}}}, [%rd4+{at}]; {wait}
                    add.s64 %rd5, %rd4, 4096; st.global.{ty} [%rd5+{at}], {{{from}}};"
                );
                for block in [[8, 1, 1], [13, 1, 1]] {
                    alike(&body, block, 0);
                }
            }
        }
    }
}

/// NaNs with payloads through sums that are moved about, and loops that end by unordered
/// comparisons.
#[test]
fn floats_keep_their_bits() {
    for (compare, not) in [
        ("lt", ""),
        ("ltu", "!"),
        ("num", ""),
        ("nan", "!"),
        ("geu", ""),
        ("ne", "!"),
        ("neu", "!"),
    ] {
        for wait in ["", "bar.sync 0;"] {
            let body = format!(
                "mov.u32 %r10, 0; mov.f32 %f1, 0f7fa12345; mov.b32 %f2, %r2; mov.f32 %f7, 0f00000000;
                and.b32 %r11, %r1, 15; mul.wide.u32 %rd5, %r11, 4; add.s64 %rd5, %rd2, %rd5;
                more:
                ld.global.f32 %f3, [%rd5]; ld.global.f32 %f4, [%rd5+64]; ld.global.f32 %f5, [%rd5+128];
                {wait}
                mul.f32 %f3, %f3, %f4; fma.rn.f32 %f4, %f4, %f5, %f3; add.f32 %f5, %f5, %f1;
                sub.f32 %f6, %f3, %f5; add.f32 %f7, %f7, %f4; fma.rn.f32 %f7, %f6, %f2, %f7; neg.f32 %f2, %f7;
                min.f32 %f3, %f7, %f1; max.f32 %f4, %f1, %f5; mul.f32 %f7, %f3, %f4;
                add.u32 %r10, %r10, 1; setp.ge.u32 %p2, %r10, 6; @%p2 bra end;
                setp.{compare}.f32 %p1, %f7, %f4; @{not}%p1 bra more;
                end: mov.b32 %r9, %f7; mov.b32 %r12, %f2; mad.lo.u32 %r9, %r9, 31, %r12; mad.lo.u32 %r9, %r9, 31, %r10;"
            );
            for block in [[16, 1, 1], [64, 1, 1]] {
                alike(&body, block, 0);
            }
        }
    }
}

/// The same around loops with barriers that warps come to in turns of their own, with values of the
/// block of every type.
#[test]
fn values_of_the_block_of_every_type() {
    let body = "
        .reg .b16 %h<4>; .reg .f64 %d<4>; .reg .b64 %w<4>; .reg .b128 %q<2>;
        shr.u32 %r11, %r35, 5; mov.u32 %r10, 0; mov.f64 %d1, 0d7ff4000000000001; mov.b32 %f1, 0x7fa00001;
        more:
        add.u32 %r10, %r10, 1; cvt.u16.u32 %h1, %r10; cvt.u64.u32 %w1, %r10; neg.f64 %d1, %d1;
        mov.b64 %d2, %w1; setp.gt.u32 %p5, %r10, 2; neg.f32 %f1, %f1; mov.b128 %q1, {%w1, %w1};
        add.u32 %r12, %r10, %r11; and.b32 %r13, %r12, 1;
        setp.eq.u32 %p1, %r13, %r3; @%p1 bra over;
        shfl.sync.bfly.b32 %r14, %r9, 3, 31, -1; add.u32 %r9, %r9, %r14;
        bar.sync 0;
        add.u32 %r9, %r9, %r10;
        over:
        shfl.sync.bfly.b32 %r14, %r9, 1, 31, -1; add.u32 %r9, %r9, %r14;
        cvt.u32.u16 %r15, %h1; mad.lo.u32 %r9, %r9, 31, %r15; mov.b64 %w2, %d1; shr.u64 %w2, %w2, 60;
        cvt.u32.u64 %r15, %w2; mad.lo.u32 %r9, %r9, 31, %r15; mov.b64 %w2, %d2; cvt.u32.u64 %r15, %w2;
        mad.lo.u32 %r9, %r9, 31, %r15; @%p5 add.u32 %r9, %r9, 1; mov.b32 %r15, %f1; mad.lo.u32 %r9, %r9, 31, %r15;
        mov.b128 {%w2, %w3}, %q1; cvt.u32.u64 %r15, %w3; mad.lo.u32 %r9, %r9, 31, %r15;
        setp.lt.u32 %p2, %r10, 4; @%p2 bra more; bar.sync 0;";
    for n in [0, 1, 2] {
        in_all_shapes(body, n);
    }
}

/// All warps come to a barrier that waits for more, and go on one by one with the values of the
/// block.
#[test]
fn values_of_the_block_behind_a_barrier_that_waits_for_more() {
    for barrier in ["bar.arrive 1, %r12;", "bar.sync %r13, 64;"] {
        let body = format!(
            "shl.b32 %r12, %r36, 1; shr.u32 %r13, %r35, 5; add.u32 %r13, %r13, 1; mov.u32 %r10, 0;
            more: add.u32 %r10, %r10, 1; {barrier} mad.lo.u32 %r9, %r9, 31, %r10;
            setp.lt.u32 %p2, %r10, 4; @%p2 bra more;"
        );
        for block in [[32, 1, 1], [64, 1, 1], [128, 1, 1], [40, 4, 1]] {
            alike(&body, block, 0);
        }
    }
}
