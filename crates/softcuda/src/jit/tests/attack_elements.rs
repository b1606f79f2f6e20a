//! Against indices that are sums of rows and columns, and tiles in shared memory.

use super::forms::same;
use super::fuzz::Sample;
use super::wide::in_both;

const BLOCKS: [[u32; 3]; 4] = [[32, 1, 1], [32, 2, 1], [16, 4, 1], [24, 1, 1]];

/// The address of the element at a column `%r5` of a row `%r6`, each extended.
const ELEMENT: &str = "cvt.s64.s32 %rd5, %r5; cvt.s64.s32 %rd6, %r6; add.s64 %rd7, %rd5, %rd6;
    shl.b64 %rd7, %rd7, 2; add.s64 %rd7, %rd2, %rd7;";

/// A body does the same in all forms and blocks, and does not fault.
fn in_all_blocks(body: &str) {
    for block in BLOCKS {
        for n in [0, 3, 9] {
            same(body, block, n).expect("nothing faults");
            in_both(&format!("{body} bar.sync 0;"), block, n).expect("nothing faults");
        }
    }
}

/// The same; where some are outside of the array, all forms name one thread.
fn in_all_blocks_or_outside(body: &str) {
    for block in BLOCKS {
        for n in [0, 3, 9] {
            let _ = same(body, block, n);
            let _ = in_both(&format!("{body} bar.sync 0;"), block, n);
        }
    }
}

/// A column or a row is another number when its element is loaded.
#[test]
fn indices_change_before_the_access() {
    for change in [
        "add.u32 %r5, %r5, 1;",
        "add.u32 %r6, %r6, 1;",
        "mov.u32 %r6, %r5;",
        "setp.eq.u32 %p1, %r1, 3; @%p1 mov.u32 %r5, 1;",
        "xor.b32 %r6, %r6, %r5; xor.b32 %r5, %r5, %r6; xor.b32 %r6, %r6, %r5;",
    ] {
        for clamp in [
            "max.s32 %r5, %r1, 2;",
            "mov.u32 %r5, %r1;",
            "and.b32 %r5, %r2, 28;",
        ] {
            in_all_blocks(&format!(
                "{clamp} add.u32 %r6, %r3, 10; {ELEMENT} {change} ld.global.u32 %r9, [%rd7];
                add.u32 %r9, %r9, %r5;"
            ));
        }
    }
}

/// One of the two is extended in some threads alone, or as a number without a sign.
#[test]
fn one_is_extended_otherwise() {
    for extends in [
        "cvt.s64.s32 %rd5, %r5; mov.u64 %rd6, 7; setp.lt.u32 %p1, %r1, 5; @%p1 cvt.s64.s32 %rd6, %r6;",
        "cvt.u64.u32 %rd5, %r5; cvt.s64.s32 %rd6, %r6;",
        "cvt.s64.s32 %rd6, %r6; cvt.u64.u32 %rd5, %r5; add.s64 %rd5, %rd5, 1;",
        "cvt.s64.s16 %rd5, %r5; cvt.s64.s32 %rd6, %r6;",
        "mul.wide.s32 %rd5, %r5, 1; mul.wide.u32 %rd6, %r6, 1;",
        "mul.wide.s32 %rd5, %r5, 2; cvt.u64.u32 %rd6, %r6;",
    ] {
        for clamp in ["max.s32 %r5, %r1, 2;", "min.s32 %r5, %r1, 12;"] {
            in_all_blocks_or_outside(&format!(
                "{clamp} add.u32 %r6, %r3, 10; {extends} add.s64 %rd7, %rd6, %rd5;
                shl.b64 %rd7, %rd7, 2; add.s64 %rd7, %rd7, %rd2; ld.global.u32 %r9, [%rd7+-4];"
            ));
        }
    }
}

/// Rows that differ from thread to thread, as columns do.
#[test]
fn both_vary() {
    for row in [
        "ld.global.u32 %r6, [%rd2+64]; and.b32 %r6, %r6, 31; add.u32 %r6, %r6, %r1;",
        "mul.lo.u32 %r6, %r1, 3; and.b32 %r6, %r6, 63;",
        "sub.u32 %r6, 40, %r1;",
        "mul.wide.u32 %rd8, %r2, 4; add.u64 %rd8, %rd2, %rd8; ld.global.u32 %r6, [%rd8];
        and.b32 %r6, %r6, 63;",
    ] {
        for column in [
            "max.s32 %r5, %r1, 2;",
            "mov.u32 %r5, %r1;",
            "rem.u32 %r5, %r1, 20;",
        ] {
            in_all_blocks_or_outside(&format!(
                "{row} {column} {ELEMENT} ld.global.u32 %r9, [%rd7];"
            ));
        }
    }
}

/// Elements of all sizes, loaded and stored, by all and by some, in a loop too.
#[test]
fn elements_of_all_sizes() {
    for (shift, access) in [
        ("mov.b64 %rd7, %rd7;", "ld.global.u8 %r9, [%rd7];"),
        ("mov.b64 %rd7, %rd7;", "ld.global.s8 %r9, [%rd7+3];"),
        ("shl.b64 %rd7, %rd7, 1;", "ld.global.s16 %r9, [%rd7];"),
        (
            "shl.b64 %rd7, %rd7, 3;",
            "ld.global.u64 %rd8, [%rd7]; cvt.u32.u64 %r9, %rd8;",
        ),
        (
            "shl.b64 %rd7, %rd7, 3;",
            "ld.global.v2.u32 {%r9, %r10}, [%rd7]; add.u32 %r9, %r9, %r10;",
        ),
        (
            "shl.b64 %rd7, %rd7, 4;",
            "ld.global.v4.u32 {%r9, %r10, %r11, %r12}, [%rd7+16];
            add.u32 %r9, %r9, %r12;",
        ),
        ("shl.b64 %rd7, %rd7, 2;", "@%p3 ld.global.u32 %r9, [%rd7];"),
        (
            "shl.b64 %rd7, %rd7, 2;",
            "@!%p3 ld.global.f32 %f1, [%rd7+-4]; mov.b32 %r9, %f1;",
        ),
    ] {
        for clamp in [
            "max.s32 %r5, %r17, 2;",
            "min.s32 %r5, %r17, 21;",
            "mov.u32 %r5, %r17;",
        ] {
            // The array has 64 words.
            let down = if shift.ends_with(" 4;") {
                2
            } else {
                u32::from(shift.ends_with(" 3;"))
            };
            let body = format!(
                "mov.f32 %f1, 0f00000000; setp.lt.u32 %p3, %r1, 13; shr.u32 %r17, %r1, {down};
                {clamp} shr.u32 %r6, %r3, {down};
                cvt.s64.s32 %rd5, %r5; cvt.s64.s32 %rd6, %r6; add.s64 %rd7, %rd5, %rd6; {shift}
                add.s64 %rd7, %rd2, %rd7; {access}"
            );
            in_all_blocks(&body);
            in_all_blocks(&format!(
                "mov.u32 %r13, 0; mov.u32 %r14, 0; again: {body} add.u32 %r14, %r14, %r9;
                add.u32 %r13, %r13, 1; setp.lt.u32 %p4, %r13, 3; @%p4 bra again;
                mov.u32 %r9, %r14;"
            ));
        }
    }
    // Each in a place of its own, further back.
    in_all_blocks(
        "mov.u32 %r5, %r1; max.s32 %r5, %r5, 0; sub.u32 %r6, %r2, %r1; add.u32 %r6, %r6, 2000;
        cvt.s64.s32 %rd5, %r5; cvt.s64.s32 %rd6, %r6; add.s64 %rd7, %rd6, %rd5;
        shl.b64 %rd7, %rd7, 2; add.s64 %rd7, %rd1, %rd7; st.global.u32 [%rd7], %r2;",
    );
}

/// Neighbouring columns of a row are checked together, or are not.
#[test]
fn runs_in_rows() {
    in_all_blocks(
        "max.s32 %r5, %r1, 2; add.u32 %r6, %r3, 10; add.s32 %r7, %r5, 1; add.s32 %r8, %r5, 2;
        cvt.s64.s32 %rd6, %r6; cvt.s64.s32 %rd5, %r5; add.s64 %rd5, %rd5, %rd6;
        shl.b64 %rd5, %rd5, 2; add.s64 %rd5, %rd5, %rd2; ld.global.u32 %r9, [%rd5];
        cvt.s64.s32 %rd5, %r7; add.s64 %rd5, %rd5, %rd6; shl.b64 %rd5, %rd5, 2;
        add.s64 %rd5, %rd5, %rd2; ld.global.u32 %r10, [%rd5]; cvt.s64.s32 %rd5, %r8;
        add.s64 %rd5, %rd5, %rd6; shl.b64 %rd5, %rd5, 2; add.s64 %rd5, %rd5, %rd2;
        ld.global.u32 %r11, [%rd5]; mad.lo.u32 %r9, %r10, 3, %r9; mad.lo.u32 %r9, %r11, 7, %r9;",
    );
}

/// One thread is before the array, behind it, or where its column wraps.
#[test]
fn one_thread_is_outside() {
    let mut sample = Sample::one_in(3);
    for lane in [0, 3, 7, 8, 15, 16, 31] {
        for far in [-100_000, 100_000, i32::MAX, i32::MIN] {
            for clamp in ["max.s32 %r5, %r5, 0x80000001;", ""] {
                if !sample.takes() {
                    continue;
                }
                let body = format!(
                    "mov.u32 %r5, %r1; setp.eq.u32 %p1, %r1, {lane}; selp.s32 %r10, {far}, 0, %p1;
                    add.s32 %r5, %r5, %r10; {clamp} add.u32 %r6, %r3, 10; {ELEMENT}
                    ld.global.u32 %r9, [%rd7];"
                );
                for n in [0, 3] {
                    let _ = same(&body, [32, 1, 1], n);
                    let _ = in_both(&format!("bar.sync 0; {body}"), [32, 1, 1], n);
                }
            }
        }
    }
    // The column of the last alone wraps before its row is added.
    let wraps = format!(
        "add.u32 %r5, %r1, 0x7fffffe1; min.u32 %r5, %r5, 0xffffffff; mov.u32 %r6, %r3; {ELEMENT}
        ld.global.u32 %r9, [%rd7];"
    );
    for waits in ["", "bar.sync 0;"] {
        let end = in_both(&format!("{waits} {wraps}"), [32, 1, 1], 0x8000_001f);
        assert_eq!(end.map_err(|(_, _, thread)| thread), Err(Some([31, 0, 0])));
    }
    // The last of a block alone is behind the end of the array, or the first before them.
    for (start, offset) in [(64 - 31, 0), (63 - 31, 4), (-1, 0), (0, -4)] {
        for clamp in ["max.s32 %r5, %r1, 0;", "mov.u32 %r5, %r1;"] {
            let body = format!(
                "{clamp} add.u32 %r6, %r3, {start}; cvt.s64.s32 %rd5, %r5; cvt.s64.s32 %rd6, %r6;
                add.s64 %rd7, %rd6, %rd5; shl.b64 %rd7, %rd7, 2; add.s64 %rd7, %rd2, %rd7;
                ld.global.u32 %r9, [%rd7+{offset}];"
            );
            let _ = same(&body, [32, 1, 1], 0);
            let _ = in_both(&format!("bar.sync 0; {body}"), [32, 1, 1], 0);
        }
    }
}

/// Places in shared memory that mostly count up; one thread's is elsewhere, or outside.
#[test]
fn places_in_shared_memory() {
    let own = "mov.u32 %r8, s; div.u32 %r6, %r35, %r11; rem.u32 %r5, %r35, %r11;
        mad.lo.u32 %r7, %r6, 320, %r8;";
    for (size, store, load) in [
        (1, "st.shared.u8 [%r7], %r2;", "ld.shared.u8 %r9, [%r7];"),
        (
            2,
            "st.shared.u16 [%r7+2], %r2;",
            "ld.shared.s16 %r9, [%r7+2];",
        ),
        (4, "st.shared.u32 [%r7], %r2;", "ld.shared.u32 %r9, [%r7];"),
        (
            8,
            "st.shared.v2.u32 [%r7], {%r2, %r1};",
            "ld.shared.v2.u32 {%r10, %r9}, [%r7];",
        ),
        (
            8,
            "cvt.u64.u32 %rd8, %r2; st.shared.u64 [%r7], %rd8;",
            "ld.shared.u64 %rd8, [%r7]; cvt.u32.u64 %r9, %rd8;",
        ),
        (
            4,
            "@%p5 st.shared.u32 [%r7], %r2;",
            "mov.u32 %r9, 5; @%p5 ld.shared.u32 %r9, [%r7];",
        ),
    ] {
        for (lane, else_at) in [
            (99, 0),
            (0, 4000),
            (5, 4000),
            (31, 4000),
            (7, 8192),
            (12, -64),
        ] {
            let body = format!(
                "add.u32 %r11, %r3, 18; setp.ne.u32 %p5, %r1, 9; {own}
                mad.lo.u32 %r7, %r5, {size}, %r7; setp.eq.u32 %p1, %r35, {lane};
                selp.s32 %r12, {else_at}, 0, %p1; add.s32 %r7, %r7, %r12;
                {store} bar.sync 0; {load} add.u32 %r9, %r9, %r5;"
            );
            for block in BLOCKS {
                for n in [0, 4] {
                    let _ = in_both(&body, block, n);
                }
            }
        }
    }
}
