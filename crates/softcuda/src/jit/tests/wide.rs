//! Wide groups: where they give up, what groups of 8 take then, and whom a fault names. Each body
//! runs in groups of 16 and of 32: a step more or less decides.

use super::forms::{Outcome, kernel, run, same};
use super::fuzz::Sample;
use crate::grid::launch::FaultKind;
use crate::jit::module::Form;

pub(super) const BLOCKS: [[u32; 3]; 5] =
    [[32, 1, 1], [64, 1, 1], [96, 1, 1], [16, 4, 1], [40, 2, 1]];

/// What a body does, in groups of either width.
pub(super) fn in_both(body: &str, block: [u32; 3], n: u32) -> Outcome {
    let one = same(body, block, n);
    let other = same(&format!("mov.u32 %r39, 1; {body}"), block, n);
    assert_eq!(one, other, "{body}");
    one
}

/// Lanes leave a loop that stores one after the other.
#[test]
fn threads_leave_a_loop_that_stores() {
    let body = "mov.u32 %r4, %r1; mov.u32 %r10, 3; cvt.rn.f32.u32 %f1, %r1;
        shl.b32 %r5, %r35, 2; mov.u32 %r6, s; add.u32 %r5, %r5, %r6; st.shared.u32 [%r5], %r10;
        bar.sync 0;
        again:
        ld.shared.u32 %r7, [%r5]; mad.lo.u32 %r7, %r7, 7, %r4; st.shared.u32 [%r5], %r7;
        add.f32 %f1, %f1, 0f3f800000; mad.lo.u32 %r10, %r10, 3, %r1;
        add.u32 %r4, %r4, 5; setp.lt.u32 %p1, %r4, %r3; @%p1 bra again;
        ld.shared.u32 %r9, [%r5]; add.u32 %r9, %r9, %r10; cvt.rzi.u32.f32 %r11, %f1;
        mad.lo.u32 %r9, %r9, 31, %r11;
        bar.sync 0;
        add.u32 %r9, %r9, %r4;";
    for block in BLOCKS {
        for n in [
            0, 1, 4, 7, 8, 9, 15, 16, 17, 20, 31, 32, 33, 40, 64, 97, 130,
        ] {
            in_both(body, block, n).expect("nothing faults");
        }
    }
}

/// A number of 32 bits wraps between two lanes on the way to one of 64, before a wait and behind
/// it, where it can be computed again and where it is kept.
#[test]
fn numbers_wrap_between_groups() {
    let mut sample = Sample::one_in(3);
    for lane in [0, 1, 7, 8, 9, 15, 16, 17, 24, 31, 32] {
        let start = 0u32.wrapping_sub(lane);
        let from_memory = start.wrapping_sub(0x9e37_79b9);
        for number in [
            format!("add.u32 %r4, %r1, {start};"),
            format!(
                "ld.global.u32 %r20, [%rd2+4]; add.u32 %r20, %r20, {from_memory};
                add.u32 %r4, %r1, %r20;"
            ),
        ] {
            for widens in ["mul.wide.u32 %rd5, %r4, 4;", "cvt.u64.u32 %rd5, %r4;"] {
                if !sample.takes() {
                    continue;
                }
                let body = format!(
                    "{number} {widens} cvt.rn.f32.u32 %f1, %r1; add.f32 %f1, %f1, 0f3f800000;
                    bar.sync 0;
                    shr.u64 %rd6, %rd5, 32; cvt.u32.u64 %r9, %rd6; cvt.u32.u64 %r10, %rd5;
                    mad.lo.u32 %r9, %r9, 77, %r10; cvt.rzi.u32.f32 %r11, %f1;
                    mad.lo.u32 %r9, %r9, 31, %r11; xor.b32 %r9, %r9, %r4;
                    bar.sync 0;
                    {widens} shr.u64 %rd6, %rd5, 31; cvt.u32.u64 %r10, %rd6;
                    add.u32 %r9, %r9, %r10; add.f32 %f1, %f1, %f1; cvt.rzi.u32.f32 %r11, %f1;
                    mad.lo.u32 %r9, %r9, 31, %r11;"
                );
                for block in BLOCKS {
                    in_both(&body, block, 0).expect("nothing faults");
                }
            }
        }
    }
}

/// Accesses leave their memory from each lane on: the fault names that lane.
#[test]
fn each_lane_of_a_wide_group_faults_by_itself() {
    for block in [[32, 1, 1], [64, 1, 1], [16, 4, 1]] {
        let width = block[0].min(32);
        for inside in 0..width {
            let shared = format!(
                "add.f32 %f1, %f1, 0f3f800000; bar.sync 0;
                mov.u32 %r6, s; add.u32 %r6, %r6, {}; shl.b32 %r5, %r1, 2; add.u32 %r5, %r5, %r6;
                add.f32 %f1, %f1, %f1; st.shared.f32 [%r5], %f1;
                bar.sync 0;",
                8192 - 4 * inside
            );
            let global = format!(
                "add.f32 %f1, %f1, 0f3f800000; bar.sync 0;
                mul.wide.u32 %rd5, %r1, 4; add.u64 %rd5, %rd5, %rd2;
                add.f32 %f1, %f1, %f1; ld.global.f32 %f2, [%rd5+{}]; add.f32 %f1, %f1, %f2;
                bar.sync 0; cvt.rzi.u32.f32 %r9, %f1;",
                256 - 4 * inside
            );
            for body in [shared, global] {
                // Fibers may begin with another lane that is outside.
                for body in [body.clone(), format!("mov.u32 %r39, 1; {body}")] {
                    for form in [Form::Vectors, Form::Rounds] {
                        let end = run(&kernel(&body), form, [1, 1, 1], block, 0);
                        let (kind, _, thread) = end.expect_err("a lane is outside");
                        assert_eq!(kind, FaultKind::IllegalAddress, "{form:?} {body}");
                        assert_eq!(thread, Some([inside, 0, 0]), "{form:?} {body}");
                    }
                }
            }
        }
    }
}

/// Lanes decide where their warp goes.
#[test]
fn lanes_decide_beyond_a_group() {
    let body = "cvt.rn.f32.u32 %f1, %r1; mov.u32 %r10, 0;
        more:
        add.f32 %f1, %f1, 0f3f800000; add.u32 %r10, %r10, 1;
        add.u32 %r4, %r35, %r10; setp.lt.u32 %p1, %r4, %r3; @%p1 bra past;
        add.f32 %f1, %f1, %f1;
        bar.warp.sync -1;
        add.u32 %r9, %r9, 5;
        past:
        add.f32 %f1, %f1, 0f40000000;
        bar.warp.sync -1;
        mad.lo.u32 %r9, %r9, 3, %r10; setp.lt.u32 %p2, %r10, 4; @%p2 bra more;
        cvt.rzi.u32.f32 %r11, %f1; add.u32 %r9, %r9, %r11;";
    for block in BLOCKS {
        for n in [0, 1, 5, 8, 16, 18, 24, 31, 33, 34, 36, 64, 66, 100] {
            in_both(body, block, n).expect("nothing faults");
        }
    }
}

/// Indices that are clamped count up in most groups.
#[test]
fn clamped_indices() {
    let mut sample = Sample::one_in(3);
    for clamp in [
        "max.s32 %r5, %r4, 0; min.s32 %r5, %r5, %r3;",
        "min.s32 %r5, %r4, %r3; max.s32 %r5, %r5, 2;",
        "setp.lt.s32 %p1, %r4, 0; selp.b32 %r5, %r3, %r4, %p1; min.u32 %r5, %r5, %r3;",
    ] {
        for start in [-40, -9, -8, -1, 0, 3] {
            if !sample.takes() {
                continue;
            }
            let body = format!(
                "add.s32 %r4, %r1, {start}; {clamp}
                mul.wide.s32 %rd5, %r5, 4; add.u64 %rd5, %rd5, %rd2; ld.global.u32 %r9, [%rd5];
                mad.lo.u32 %r9, %r9, 3, %r5; mul.wide.u32 %rd6, %r5, 4; add.u64 %rd6, %rd6, %rd1;
                bar.sync 0; ld.global.f32 %f1, [%rd5]; add.f32 %f1, %f1, %f1;
                st.global.u32 [%rd6+8192], %r5; mov.b32 %r10, %f1; add.u32 %r9, %r9, %r10;"
            );
            for block in BLOCKS {
                for n in [0, 5, 8, 23, 40, 63] {
                    in_both(&body, block, n).expect("nothing faults");
                }
            }
        }
    }
}

/// Threads' numbers are divided into rows and columns of a tile in shared memory, by an operation
/// and as compilers multiply and shift instead; most groups are in one row.
#[test]
fn rows_and_columns_of_tiles() {
    let rest = "mul.lo.u32 %r12, %r6, 34; sub.u32 %r5, %r4, %r12;";
    for divides in [
        "add.u32 %r11, %r3, 34; rem.u32 %r5, %r4, %r11; div.u32 %r6, %r4, %r11;".to_owned(),
        format!("mul.hi.u32 %r12, %r4, 0xf0f0f0f1; shr.u32 %r6, %r12, 5; {rest}"),
        format!(
            "mul.hi.s32 %r12, %r4, 2021161081; shr.u32 %r6, %r12, 31; shr.s32 %r12, %r12, 4;
            add.u32 %r6, %r12, %r6; {rest}"
        ),
    ] {
        for start in [0, 25, 1000, 2000] {
            let body = format!(
                "add.u32 %r4, %r35, {start}; {divides}
                mad.lo.u32 %r7, %r6, 40, %r5; mul.wide.u32 %rd5, %r7, 4; add.u64 %rd5, %rd1, %rd5;
                ld.global.f32 %f1, [%rd5]; cvt.rn.f32.u32 %f2, %r7; add.f32 %f1, %f1, %f2;
                st.global.f32 [%rd5], %f1; mov.u32 %r8, s; mad.lo.u32 %r7, %r6, 160, %r8; shl.b32 %r10, %r5, 2;
                add.u32 %r7, %r7, %r10; st.shared.f32 [%r7], %f1; bar.sync 0;
                ld.shared.u32 %r9, [%r7]; mad.lo.u32 %r9, %r9, 3, %r5;"
            );
            for block in [[32, 1, 1], [64, 1, 1], [16, 4, 1], [96, 1, 1]] {
                for n in [0, 3] {
                    // The last ones are not all inside.
                    let _ = in_both(&body, block, n);
                }
            }
        }
    }
}

/// An index that is clamped, and one where a row begins: each is extended before they are added.
#[test]
fn clamped_indices_in_rows() {
    let mut sample = Sample::one_in(3);
    // In the last, the numbers of some lanes wrap before a row is added, which ends far away then.
    for row in [0, 5, -3, i32::MAX, i32::MIN + 2, -0x7fff_fff4] {
        for start in [-9, 0, 3] {
            let start = i32::wrapping_sub(start, row);
            for clamp in [
                "max.s32 %r5, %r4, %r11; min.s32 %r5, %r5, %r12;",
                "min.s32 %r5, %r4, %r12;",
                "max.s32 %r5, %r4, 0x80000000;",
            ] {
                if !sample.takes() {
                    continue;
                }
                let [least, most] = [0, 60].map(|index| i32::wrapping_sub(index, row));
                let body = format!(
                    "add.s32 %r4, %r1, {start}; mov.u32 %r11, {least}; mov.u32 %r12, {most}; {clamp}
                    add.s32 %r6, %r3, {row}; cvt.s64.s32 %rd5, %r5; cvt.s64.s32 %rd6, %r6;
                    add.s64 %rd5, %rd6, %rd5; shl.b64 %rd5, %rd5, 2; add.s64 %rd5, %rd2, %rd5;
                    ld.global.u32 %r9, [%rd5]; cvt.rn.f32.u32 %f1, %r9; add.f32 %f1, %f1, %f1;
                    cvt.rzi.u32.f32 %r10, %f1; add.u32 %r9, %r9, %r10;"
                );
                for block in [[32, 1, 1], [64, 1, 1], [16, 4, 1]] {
                    for n in [0, 2, -1i32 as u32] {
                        let _ = same(&body, block, n);
                    }
                }
                let waits = format!("{body} bar.sync 0; ld.global.u32 %r9, [%rd5];");
                let _ = in_both(&waits, [32, 2, 1], 0);
            }
        }
    }
}

/// A shuffle in segments of the warp, and what it says of who took something, twice in a row.
#[test]
fn shuffles_in_segments() {
    let mut sample = Sample::one_in(4);
    for kind in ["up", "down", "bfly", "idx"] {
        for segments in [0x1f, 0x1e, 0x1c, 0x18, 0x10, 0x0c, 0] {
            for (by, least) in [(1, 31), (2, 31), (4, 28), (9, 31), (16, 0), (31, 7)] {
                if !sample.takes() {
                    continue;
                }
                let clamp = segments << 8 | if kind == "up" { 31 - least } else { least };
                let body = format!(
                    "add.u32 %r4, %r2, 7; cvt.rn.f32.u32 %f1, %r2;
                    shfl.sync.{kind}.b32 %r5|%p1, %r4, {by}, {clamp}, -1;
                    mad.lo.u32 %r6, %r5, 5, %r4; @%p1 add.u32 %r6, %r6, 1000;
                    shfl.sync.{kind}.b32 %r7|%p2, %r6, {by}, {clamp}, -1;
                    mov.b32 %r10, %f1; mad.lo.u32 %r9, %r7, 3, %r10; @!%p2 add.u32 %r9, %r9, 50;"
                );
                for block in [[32, 1, 1], [64, 1, 1], [16, 4, 1]] {
                    in_both(&body, block, 0).expect("nothing faults");
                }
            }
        }
    }
}

/// All lanes of a warp as one, once and from what that gave; the last warp may be part of one.
#[test]
fn reductions() {
    let mut sample = Sample::one_in(2);
    for (op, other) in [
        ("add.u32", "add.s32"),
        ("min.u32", "max.u32"),
        ("max.u32", "min.s32"),
        ("min.s32", "max.s32"),
        ("max.s32", "add.u32"),
        ("and.b32", "or.b32"),
        ("or.b32", "xor.b32"),
        ("xor.b32", "and.b32"),
    ] {
        for value in [
            "mul.lo.u32 %r4, %r2, 2654435761;",
            "mad.lo.u32 %r4, %r2, 66052, -70000;",
            "mul.lo.u32 %r4, %r2, 2654435761; and.b32 %r4, %r4, 0x0f0f00ff; or.b32 %r4, %r4, 2304;",
            "mov.u32 %r4, 0x80000000;",
        ] {
            if !sample.takes() {
                continue;
            }
            let body = format!(
                "{value} redux.sync.{op} %r5, %r4, -1; mad.lo.u32 %r6, %r5, 5, %r4;
                redux.sync.{other} %r7, %r6, -1; mad.lo.u32 %r9, %r7, 3, %r5;
                and.b32 %r10, %r2, 1; setp.eq.u32 %p1, %r10, 1;
                @!%p1 bra even; redux.sync.{op} %r8, %r4, 0xaaaaaaaa; add.u32 %r9, %r9, %r8;
                even:"
            );
            for block in [[32, 1, 1], [64, 1, 1], [16, 4, 1], [8, 12, 1]] {
                in_both(&body, block, 0).expect("nothing faults");
            }
        }
    }
}

/// Doubles go from lane to lane in halves.
#[test]
fn doubles_are_shuffled() {
    for (kind, clamp) in [("up", 0), ("down", 31), ("bfly", 31), ("idx", 31)] {
        for by in [1, 2, 3, 4, 8, 12, 16, 31] {
            let body = format!(
                ".reg .f64 %d<4>; .reg .b32 %h<4>;
                cvt.rn.f64.u32 %d1, %r2; add.f64 %d1, %d1, 0d3ff8000000000000;
                mov.b64 {{%h0, %h1}}, %d1;
                shfl.sync.{kind}.b32 %h2, %h0, {by}, {clamp}, -1;
                shfl.sync.{kind}.b32 %h3, %h1, {by}, {clamp}, -1;
                mov.b64 %d2, {{%h2, %h3}}; mov.b64 %d3, {{%h2, %h1}}; add.f64 %d1, %d1, %d2;
                mov.b64 {{%h0, %h1}}, %d1;
                shfl.sync.{kind}.b32 %h2, %h0, {by}, {clamp}, -1;
                shfl.sync.{kind}.b32 %h3, %h1, 4, {clamp}, -1;
                mov.b64 %d2, {{%h2, %h3}}; mul.f64 %d1, %d1, %d2; add.f64 %d1, %d1, %d3;
                mov.b64 {{%h0, %h1}}, %d1; mad.lo.u32 %r9, %h0, 31, %h1;"
            );
            for block in [[32, 1, 1], [64, 1, 1], [32, 2, 1]] {
                in_both(&body, block, 0).expect("nothing faults");
            }
        }
    }
}

/// What a lane leaves.
type Expected<'a> = &'a dyn Fn(u32) -> u32;

/// Which NaN a shuffle hands on: arithmetic's is the device's, others keep their bits.
#[test]
fn nans_are_shuffled() {
    const OURS: u32 = 0x7fff_ffff;
    const OTHER: u32 = 0xffc1_2345;
    // `%f1` is the lane's number, and lane 5 has a NaN: of arithmetic, or some other.
    let number = "cvt.rn.f32.u32 %f1, %r1; setp.eq.u32 %p1, %r1, 5;";
    let computed =
        format!("{number} @%p1 mul.f32 %f1, %f1, 0f7f800000; @%p1 sub.f32 %f1, %f1, %f1;");
    let other =
        format!("{number} mov.b32 %r4, {OTHER:#x}; mov.b32 %f2, %r4; @%p1 mov.f32 %f1, %f2;");
    let of_lane = |lane: u32, nan: u32| match lane {
        5 => nan,
        lane => (lane as f32).to_bits(),
    };
    let shuffled = "mov.b32 %r5, %f1; shfl.sync.bfly.b32 %r6, %r5, 1, 31, -1;";
    let added = "mov.b32 %f3, %r6; add.f32 %f4, %f1, %f3; mov.b32 %r9, %f4;";
    let greater = "mov.b32 %f3, %r6; max.f32 %f4, %f1, %f3; mov.b32 %r9, %f4;";
    let twice = "shfl.sync.bfly.b32 %r7|%p2, %r6, 1, 31, -1; mov.b32 %r9, %r7;";
    let by_itself = "mov.b32 %r5, %f1; shfl.sync.idx.b32 %r6, %r5, %r5, 31, -1;
        mov.b32 %f3, %r6; add.f32 %f4, %f3, 0f00000000; mov.b32 %r9, %f4;";
    let sum = |lane: u32| match lane {
        4 | 5 => OURS,
        lane => ((2 * lane - lane % 2 * 2 + 1) as f32).to_bits(),
    };
    let larger = |lane: u32| match lane {
        4 | 5 => 4f32.to_bits(),
        lane => ((lane | 1) as f32).to_bits(),
    };
    let from = |lane: u32, nan: u32| {
        let number = of_lane(of_lane(lane, nan) & 31, nan);
        match f32::from_bits(number).is_nan() {
            true => OURS,
            false => number,
        }
    };
    for (start, nan) in [(&computed, OURS), (&other, OTHER)] {
        let cases: [(&str, &str, Expected<'_>); 6] = [
            (shuffled, "mov.b32 %r9, %r6;", &|lane| {
                of_lane(lane ^ 1, nan)
            }),
            (shuffled, "and.b32 %r9, %r6, 0xffffffff;", &|lane| {
                of_lane(lane ^ 1, nan)
            }),
            (shuffled, twice, &|lane| of_lane(lane, nan)),
            (shuffled, added, &sum),
            (shuffled, greater, &larger),
            ("", by_itself, &|lane| from(lane, nan)),
        ];
        for (shuffles, uses, expected) in cases {
            let body = format!("{start} {shuffles} {uses}");
            for block in [[32, 1, 1], [32, 3, 1]] {
                let out = same(&body, block, 0).expect("nothing faults");
                for (at, got) in (0..32 * block[1]).zip(out) {
                    let expected = expected(at % 32);
                    assert_eq!(got, expected, "{at}: {got:x} for {expected:x}\n{body}");
                }
            }
        }
    }
}
