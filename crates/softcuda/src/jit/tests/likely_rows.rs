//! Accesses at addresses that most likely count up with the thread: as one where they do, one by
//! one where not. Nobody sees which.

use super::forms::same;
use super::fuzz::Sample;

/// Threads whose bit is set in `n` have an index that is so much larger: pointers that loops move
/// on.
fn index(scale: u32, by: u32) -> String {
    format!(
        "mov.u32 %r5, %r1; shr.u32 %r6, %r3, %r1; and.b32 %r6, %r6, 1;
        setp.ne.u32 %p1, %r6, 0; @%p1 add.u32 %r5, %r1, {by};
        cvt.u64.u32 %rd6, %r5; shl.b64 %rd5, %rd6, {scale};"
    )
}

/// All go alike; groups of threads do; one does not; none of a group does as the next.
const MOVED: [u32; 7] = [0, !0, 0xff, 0xff00, 0x80, 0x7f, 0x5555_5555];

#[test]
fn loads() {
    for (access, scale) in [
        ("ld.global.u32 %r7, [%rd4]; add.u32 %r9, %r9, %r7;", 2),
        // Of which one is checked for both.
        (
            "ld.global.u32 %r7, [%rd4]; ld.global.u32 %r8, [%rd4+8];
            mad.lo.u32 %r9, %r9, 31, %r7; mad.lo.u32 %r9, %r9, 31, %r8;",
            2,
        ),
        (
            "ld.global.v2.u32 {%r7, %r8}, [%rd4]; mad.lo.u32 %r9, %r7, 31, %r8;",
            1 + 2,
        ),
        (
            "ld.global.v4.u16 {%h0, %h1, %h2, %h3}, [%rd4]; mov.b32 %r7, {%h0, %h3};
            mov.b32 %r8, {%h1, %h2}; mad.lo.u32 %r9, %r7, 31, %r8;",
            3,
        ),
        // A generic address, and one that is not all in place.
        ("ld.u32 %r7, [%rd4+4]; add.u32 %r9, %r9, %r7;", 3),
        (
            "ld.global.u8 %r7, [%rd4+1]; mad.lo.u32 %r9, %r9, 7, %r7;",
            0,
        ),
    ] {
        for sync in ["", "bar.sync 0;"] {
            for turns in [1, 3] {
                let body = format!(
                    ".reg .b16 %h<4>; {} add.u64 %rd4, %rd2, %rd5; {sync} mov.u32 %r10, 0;
                    again: {access} add.u64 %rd4, %rd4, 8; add.u32 %r10, %r10, 1;
                    setp.lt.u32 %p2, %r10, {turns}; @%p2 bra again; {sync}",
                    index(scale, 8)
                );
                for n in MOVED {
                    for threads in [1, 8, 20] {
                        same(&body, [threads, 1, 1], n).expect("all are inside");
                    }
                }
            }
        }
    }
}

#[test]
fn stores() {
    for (access, scale) in [
        ("st.global.u32 [%rd4+8192], %r1;", 2),
        (
            "st.global.v2.u32 [%rd4+8192], {%r1, %r5}; st.global.u16 [%rd4+8196], %r1;",
            3,
        ),
        (
            "cvt.u16.u32 %h0, %r1; st.global.v2.u16 [%rd4+8192], {%h0, %h0};",
            2,
        ),
    ] {
        let body = format!(
            ".reg .b16 %h<4>; {} add.u64 %rd4, %rd1, %rd5; add.u64 %rd4, %rd4, 8; {access}
            mov.u32 %r9, %r5;",
            index(scale, 32)
        );
        for n in MOVED {
            for threads in [1, 8, 20, 32] {
                same(&body, [threads, 1, 1], n).expect("all are inside");
            }
        }
    }
}

/// The first thread outside is named, wherever it is in its group, also where one check is for two
/// accesses.
#[test]
fn faults() {
    let mut sample = Sample::one_in(4);
    for moved in [0, !0, 0xff, 1, 0x100, 0xfe] {
        for last in 0..=20i32 {
            let words = 63 - last - if moved == 0 { 0 } else { 32 };
            let at = format!("[%rd4+{}]", 4 * words - 4);
            let below = format!("[%rd4+{}]", 4 * words - 20);
            for access in [
                format!("ld.global.u32 %r9, {at};"),
                format!("st.global.u32 {at}, %r1;"),
                format!("ld.global.u32 %r9, {at}; ld.global.u32 %r10, {below};"),
            ] {
                if !sample.takes() {
                    continue;
                }
                // No element of an array that is known.
                let body = format!(
                    "{} add.u64 %rd4, %rd2, %rd5; add.u64 %rd4, %rd4, 4; {access}",
                    index(2, 32)
                );
                _ = same(&body, [24, 1, 1], moved);
            }
        }
    }
}

/// Words at twice and three times a thread's number, to the end of the array.
#[test]
fn between_words_are_others() {
    for by in [2, 3] {
        for first in 0..by {
            for threads in [1, 7, 8, 16, 21] {
                let body = format!(
                    "mul.lo.u32 %r5, %r1, {by}; mul.wide.u32 %rd5, %r5, 4; add.u64 %rd4, %rd2, %rd5;
                    ld.global.u32 %r9, [%rd4+{}]; ld.global.f32 %f1, [%rd4+{}];
                    mov.b32 %r7, %f1; mad.lo.u32 %r9, %r9, 31, %r7;",
                    4 * first,
                    256 - 4 * by * threads + 4 * first
                );
                let words = same(&body, [threads, 1, 1], 0).expect("it is inside");
                let all = &words[4096..];
                for (thread, got) in words[..threads as usize].iter().enumerate() {
                    let at = thread * by as usize + first as usize;
                    let end = 64 - (by * threads) as usize + at;
                    let expected = all[at].wrapping_mul(31).wrapping_add(all[end]);
                    assert_eq!(*got, expected, "{by} {first}: {thread} of {threads}");
                }
            }
        }
    }
}

/// Some of a group's threads load from an array of 64 words: all of the row is inside, or only what
/// is loaded, or their indices are others.
#[test]
fn of_some_threads() {
    for index in [
        // Beside the array's end, all of it or some.
        "add.s32 %r5, %r1, %r3; min.s32 %r5, %r5, 63;",
        "add.s32 %r5, %r1, %r3; max.s32 %r5, %r5, 40; min.s32 %r5, %r5, 1000;",
        "sub.s32 %r5, %r1, %r3; max.s32 %r5, %r5, 0; min.s32 %r5, %r5, 63;",
        // Those that load nothing are elsewhere.
        "selp.b32 %r5, %r1, 0x7fffffff, %p1;",
        "add.s32 %r6, %r1, 0x40000000; selp.b32 %r5, %r1, %r6, %p1;",
    ] {
        for who in [
            "and.b32 %r4, %r1, 3; setp.ne.u32 %p1, %r4, 1;",
            "setp.lt.u32 %p1, %r1, 5;",
            "shr.u32 %r4, %r3, %r1; and.b32 %r4, %r4, 1; setp.ne.u32 %p1, %r4, 0;",
        ] {
            for load in [
                "ld.global.u32 %r7, [%rd4];",
                "ld.global.f32 %f1, [%rd4]; mov.b32 %r7, %f1;",
                "ld.global.u16 %h0, [%rd4]; cvt.u32.u16 %r7, %h0;",
            ] {
                for more in ["", "bar.sync 0;"] {
                    let body = format!(
                        ".reg .b16 %h<4>; mov.u32 %r7, 77; {who} {index}
                        setp.ge.u32 %p2, %r5, 64; @!%p1 bra over; @%p2 bra over;
                        mul.wide.s32 %rd5, %r5, 4; add.s64 %rd4, %rd2, %rd5; {load}
                        mad.lo.u32 %r9, %r7, 31, %r1;
                        over: mad.lo.u32 %r9, %r9, 31, %r7; {more}"
                    );
                    for n in [0, 1, 5, 40, 56, 57, 60, 64, 0xa5a5] {
                        for threads in [8, 24, 40] {
                            same(&body, [threads, 1, 1], n).expect("all are inside");
                        }
                    }
                }
            }
        }
    }
}
