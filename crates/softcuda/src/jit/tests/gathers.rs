//! Elements that threads find by indices of 32 bits, of arrays that are no parameter, such as a
//! slice of one, and at indices to which 64 bits are added: one check serves a group.

use super::forms::{place, same};
use super::fuzz::Sample;
use crate::grid::launch::FaultKind;

const BLOCKS: [[u32; 3]; 3] = [[64, 1, 1], [16, 4, 1], [37, 1, 1]];

/// `%r10`: a number below 64, another one for each of 64 threads.
const BEGIN: &str = "mul.lo.u32 %r10, %r2, 5; add.u32 %r10, %r10, 3; and.b32 %r10, %r10, 63;";

/// Bodies that are the same but for what makes them run in rounds, or in turns.
fn ways(body: &str) -> [String; 3] {
    [
        format!("{BEGIN} {body}"),
        format!("{BEGIN} bar.sync 0; {body}"),
        format!(
            "mov.u32 %r13, 0; mov.u32 %r14, 0; again: {BEGIN} {body} add.u32 %r14, %r14, %r9;
            add.u32 %r13, %r13, 1; setp.lt.u32 %p4, %r13, 3; @%p4 bra again; mov.u32 %r9, %r14;"
        ),
    ]
}

fn passes(body: &str) {
    for body in ways(body) {
        for block in BLOCKS {
            same(&body, block, 0).expect("nothing faults");
        }
    }
}

/// An index and an address: of an element so many bytes large, `%rd5` bytes behind `in`, or as many
/// elements.
fn addresses(signed: bool, by: u32) -> [String; 4] {
    let sign = if signed { 's' } else { 'u' };
    let shift = by.trailing_zeros();
    let slice = "add.u64 %rd6, %rd2, %rd5;";
    let wide = format!("cvt.{sign}64.{sign}32 %rd7, %r10;");
    let elements = format!("shr.s64 %rd8, %rd5, {shift};");
    [
        format!("{slice} mul.wide.{sign}32 %rd7, %r10, {by}; add.u64 %rd7, %rd6, %rd7;"),
        format!("{slice} {wide} shl.b64 %rd7, %rd7, {shift}; add.u64 %rd7, %rd7, %rd6;"),
        format!(
            "{elements} {wide} add.u64 %rd7, %rd8, %rd7; shl.b64 %rd7, %rd7, {shift};
            add.u64 %rd7, %rd2, %rd7;"
        ),
        format!(
            "{elements} cvt.u32.u64 %r11, %rd8; cvt.s64.s32 %rd8, %r11; {wide}
            add.u64 %rd7, %rd8, %rd7; shl.b64 %rd7, %rd7, {shift}; add.u64 %rd7, %rd2, %rd7;"
        ),
    ]
}

/// Loads of each size, in elements as large or larger, below the slice's start and above it.
#[test]
fn elements_of_slices() {
    let mut sample = Sample::one_in(3);
    for (load, size) in [
        ("ld.global.u8 %r9, [%rd7];", 1),
        ("ld.global.s16 %r9, [%rd7];", 2),
        ("ld.global.u32 %r9, [%rd7];", 4),
        ("ld.global.f32 %f1, [%rd7]; mov.b32 %r9, %f1;", 4),
        ("ld.global.u64 %rd9, [%rd7]; cvt.u32.u64 %r9, %rd9;", 8),
        (
            "ld.global.v2.u32 {%r9, %r12}, [%rd7]; add.u32 %r9, %r9, %r12;",
            8,
        ),
        ("ld.u32 %r9, [%rd7];", 4),
    ] {
        for by in [size, 2 * size] {
            let (count, middle) = (256 / by, 128 / by);
            for signed in [true, false] {
                for address in addresses(signed, by) {
                    if !sample.takes() {
                        continue;
                    }
                    // Indices from 0 on, or, with a sign, from below 0 on.
                    let index = match signed {
                        true => format!("mov.u64 %rd5, 128; sub.u32 %r10, %r10, {middle};"),
                        false => "mov.u64 %rd5, 0;".to_owned(),
                    };
                    passes(&format!(
                        "rem.u32 %r10, %r10, {count}; {index} {address} {load}"
                    ));
                }
            }
        }
    }
}

/// Elements that are no power of two large, and accesses beside their start.
#[test]
fn parts_of_elements() {
    passes(
        "rem.u32 %r10, %r10, 20; add.u64 %rd6, %rd2, 8; mul.wide.u32 %rd7, %r10, 12;
        add.u64 %rd7, %rd6, %rd7; ld.global.u32 %r9, [%rd7+-8];",
    );
    for address in addresses(true, 16) {
        passes(&format!(
            "mov.u64 %rd5, 64; and.b32 %r10, %r10, 7; {address}
            ld.global.u32 %r9, [%rd7+12]; ld.global.u32 %r12, [%rd7+-20]; add.u32 %r9, %r9, %r12;"
        ));
    }
}

#[test]
fn stores_to_slices() {
    for address in addresses(true, 4) {
        passes(&format!(
            "mov.u64 %rd5, 128; sub.u32 %r10, %r10, 32; {address} st.global.u32 [%rd7], %r2;"
        ));
        passes(&format!(
            "mov.u64 %rd5, 128; sub.u32 %r10, %r10, 32; {address}
            atom.global.add.u32 %r9, [%rd7], 0;"
        ));
    }
}

/// Sums that wrap, in 64 bits or because they are multiplied, and indices that 32 bits just hold.
#[test]
fn sums_that_wrap() {
    for (begin, address) in [
        (
            "mov.u64 %rd8, 0x8000000000000000;",
            "cvt.u64.u32 %rd7, %r10;",
        ),
        (
            "mov.u64 %rd8, 0x4000000000000000;",
            "cvt.s64.s32 %rd7, %r10;",
        ),
        (
            "mov.u64 %rd8, 0x7fffffffffffffe0; sub.u32 %r10, %r10, 16; max.s32 %r10, %r10, -16;",
            "cvt.s64.s32 %rd7, %r10; add.u64 %rd7, %rd7, 0; add.u64 %rd7, %rd7, 48;",
        ),
        (
            "mov.u64 %rd8, -4294967232; sub.u32 %r10, %r10, 64;",
            "cvt.u64.u32 %rd7, %r10;",
        ),
        (
            "mov.u64 %rd8, 2147483648; xor.b32 %r10, %r10, 0x80000000;",
            "cvt.s64.s32 %rd7, %r10;",
        ),
        (
            "mov.u64 %rd8, -2147483584; add.u32 %r10, %r10, 0x7fffffc0;",
            "cvt.s64.s32 %rd7, %r10;",
        ),
    ] {
        passes(&format!(
            "{begin} {address} add.u64 %rd7, %rd7, %rd8; shl.b64 %rd7, %rd7, 2;
            add.u64 %rd7, %rd2, %rd7; ld.global.u32 %r9, [%rd7];"
        ));
        passes(&format!(
            "{begin} {address} shl.b64 %rd7, %rd7, 2; shl.b64 %rd8, %rd8, 2;
            add.u64 %rd6, %rd2, %rd8; add.u64 %rd7, %rd6, %rd7; ld.global.u32 %r9, [%rd7];"
        ));
    }
    // Where nothing is multiplied, 2^63 does not go away.
    for sum in [
        "add.u64 %rd7, %rd7, %rd8; shl.b64 %rd7, %rd7, 0; add.u64 %rd7, %rd2, %rd7;",
        "add.u64 %rd6, %rd2, %rd8; add.u64 %rd7, %rd6, %rd7;",
    ] {
        for number in ["0x8000000000000000", "0x7ffffffffffffff8"] {
            let [body, ..] = ways(&format!(
                "mov.u64 %rd8, {number}; cvt.s64.s32 %rd7, %r10; {sum} ld.global.u8 %r9, [%rd7];"
            ));
            let (kind, _, thread) = same(&body, [64, 1, 1], 0).expect_err("it is outside");
            assert_eq!((kind, thread), (FaultKind::IllegalAddress, Some([0; 3])));
        }
    }
}

/// Of the threads, one is wrong: outside on either side, or beside an element.
#[test]
fn the_thread_that_is_wrong_is_named() {
    for address in addresses(true, 4) {
        for block in [[64, 1, 1], [16, 4, 1]] {
            for wrong in [0u32, 1, 6, 7, 8, 21, 31, 32, 63] {
                for (change, kind) in [
                    ("mov.u32 %r10, 32;", FaultKind::IllegalAddress),
                    ("mov.u32 %r10, -33;", FaultKind::IllegalAddress),
                    ("mov.u32 %r10, 0x7fffffff;", FaultKind::IllegalAddress),
                    ("mov.u32 %r10, 0x80000000;", FaultKind::IllegalAddress),
                ] {
                    let [body, ..] = ways(&format!(
                        "mov.u64 %rd5, 128; sub.u32 %r10, %r10, 32;
                        setp.eq.u32 %p1, %r2, %r3; @!%p1 bra on; {change} on:
                        {address} ld.global.u32 %r9, [%rd7];"
                    ));
                    let end = same(&body, block, wrong);
                    assert_eq!(
                        end,
                        Err((kind, [0; 3], Some(place(block, wrong)))),
                        "{body}"
                    );
                }
            }
        }
    }
    // All are beside an element, or one is because the slice of its group is.
    for more in [1, 2, 3] {
        let [body, ..] = ways(&format!(
            "add.u64 %rd6, %rd2, {more}; and.b32 %r10, %r10, 15; mul.wide.u32 %rd7, %r10, 4;
            add.u64 %rd7, %rd6, %rd7; ld.global.u32 %r9, [%rd7];"
        ));
        let end = same(&body, [64, 1, 1], 0);
        assert_eq!(end, Err((FaultKind::Misaligned, [0; 3], Some([0; 3]))));
    }
    let [body, ..] = ways(
        "shr.u32 %r11, %r2, 3; setp.eq.u32 %p1, %r11, %r3; selp.b64 %rd5, 2, 0, %p1;
        add.u64 %rd6, %rd2, %rd5; and.b32 %r10, %r10, 31; mul.wide.u32 %rd7, %r10, 4;
        add.u64 %rd7, %rd6, %rd7; ld.global.u32 %r9, [%rd7];",
    );
    for group in [0, 3, 7] {
        let end = same(&body, [64, 1, 1], group);
        let wrong = Some([8 * group, 0, 0]);
        assert_eq!(end, Err((FaultKind::Misaligned, [0; 3], wrong)));
    }
}

/// The slice is of another array from one time to the next, and from group to group.
#[test]
fn slices_of_several_arrays() {
    for which in ["%r13", "%r12"] {
        let body = format!(
            "shr.u32 %r12, %r2, 3; and.b32 %r11, {which}, 1; setp.eq.u32 %p1, %r11, 1;
            add.u64 %rd5, %rd1, 8192;
            selp.b64 %rd6, %rd5, %rd2, %p1; add.u64 %rd6, %rd6, 16; and.b32 %r10, %r10, 31;
            mul.wide.u32 %rd7, %r10, 4; add.u64 %rd7, %rd6, %rd7; ld.global.u32 %r9, [%rd7];"
        );
        let [.., turns] = ways(&body);
        for block in BLOCKS {
            same(&turns, block, 0).expect("nothing faults");
        }
    }
}

/// What is loaded takes the place of the index, or of what was added to it, or one of them changed.
#[test]
fn registers_change_before_and_after() {
    let load = "ld.global.u32 %r9, [%rd7];";
    for address in addresses(true, 4) {
        for change in [
            "add.u32 %r10, %r10, 1000000;",
            "mov.u64 %rd5, 0; mov.u64 %rd6, 0; mov.u64 %rd8, 77777777777;",
            "mov.u32 %r11, 99999;",
        ] {
            passes(&format!(
                "mov.u64 %rd5, 128; sub.u32 %r10, %r10, 32; {address} {change} {load}"
            ));
        }
        passes(&format!(
            "mov.u64 %rd5, 128; sub.u32 %r10, %r10, 32; {address}
            ld.global.u32 %r10, [%rd7]; mov.u32 %r9, %r10;"
        ));
    }
    passes(
        "mov.u64 %rd5, 128; and.b32 %r10, %r10, 15; mul.wide.u32 %rd7, %r10, 8;
        add.u64 %rd6, %rd2, %rd5; add.u64 %rd6, %rd6, %rd7; ld.global.u64 %rd6, [%rd6];
        cvt.u32.u64 %r9, %rd6;",
    );
}

/// The first turn of a loop finds the memory; in the second, some are outside, or all beside their
/// elements: what the first has found must not let them pass.
#[test]
fn the_second_turn_is_checked_as_the_first() {
    // `%rd9`: 0 in the first turn, all bits in the second. `in` is 256 bytes.
    let turns = |body: &str| {
        format!(
            "{BEGIN} and.b32 %r10, %r10, 7; mov.u32 %r13, 0; again: cvt.s64.s32 %rd9, %r13;
            neg.s64 %rd9, %rd9; {body} add.u32 %r9, %r9, %r12;
            add.u32 %r13, %r13, 1; setp.lt.u32 %p4, %r13, 2; @%p4 bra again;"
        )
    };
    let slice = |base: &str, scale: &str, load: &str| {
        format!(
            "and.b64 %rd5, %rd9, {base}; add.u64 %rd6, %rd2, %rd5; mul.wide.s32 %rd7, %r10, {scale};
            add.u64 %rd7, %rd6, %rd7; {load}"
        )
    };
    let word = "ld.global.u32 %r12, [%rd7];";
    let pair = "ld.global.v2.u32 {%r12, %r14}, [%rd7];";
    let byte = "ld.global.u8 %r12, [%rd7];";
    let lanes = |base: &str| {
        format!(
            "and.b64 %rd5, %rd9, {base}; setp.eq.u32 %p1, %r1, 5; selp.b64 %rd5, %rd5, 0, %p1;
            add.u64 %rd6, %rd2, %rd5; mul.wide.u32 %rd7, %r10, 4; add.u64 %rd7, %rd6, %rd7; {word}"
        )
    };
    let far = |base: &str| {
        format!(
            "cvt.u32.u64 %r15, %rd9; and.b32 %r15, %r15, 0x7fffffff; or.b32 %r15, %r10, %r15;
            and.b64 %rd5, %rd9, {base}; add.u64 %rd6, %rd2, %rd5; cvt.s64.s32 %rd7, %r15;
            add.u64 %rd7, %rd6, %rd7; {byte}"
        )
    };
    use FaultKind::{IllegalAddress, Misaligned};
    for (body, kind, thread) in [
        // Elements of 12 bytes: the last one ends beyond the memory.
        (slice("172", "12", word), IllegalAddress, None),
        // Pairs at words.
        (slice("4", "8", pair), Misaligned, Some(0)),
        (slice("4", "16", pair), Misaligned, Some(0)),
        // One thread has another slice.
        (lanes("240"), IllegalAddress, Some(5)),
        (lanes("2"), Misaligned, Some(5)),
        // All have one index, half of all addresses away.
        (far("0x8000000000000000"), IllegalAddress, Some(0)),
        (far("0x8000000000000008"), IllegalAddress, Some(0)),
    ] {
        let body = turns(&body);
        let end = same(&body, [64, 1, 1], 0);
        let (found, _, who) = end.expect_err(&body);
        assert_eq!(found, kind, "{body}");
        if let Some(thread) = thread {
            assert_eq!(who, Some([thread, 0, 0]), "{body}");
        }
    }
    // Pairs at words, where the first turn has even ones alone.
    let body = turns(&format!(
        "and.b32 %r15, %r10, 6; selp.b32 %r15, %r10, %r15, %p3; setp.eq.u32 %p3, %r13, 0;
        add.u64 %rd6, %rd2, 16; mul.wide.u32 %rd7, %r15, 4; add.u64 %rd7, %rd6, %rd7; {pair}"
    ));
    let body = format!("setp.ne.u32 %p3, %r1, %r1; {body}");
    let (kind, ..) = same(&body, [64, 1, 1], 0).expect_err("some are odd");
    assert_eq!(kind, Misaligned);
}
