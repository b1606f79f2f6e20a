//! Accesses of a row by some threads of a group alone, and loads from one of two arrays, as each
//! thread chooses: nobody sees that they go by vectors.

use super::forms::{kernel, run, same};
use super::fuzz::Sample;
use crate::jit::module::Form;

/// `%p1` says whether a thread takes part, as the bits of `n` do.
const TAKES_PART: &str = "shr.u32 %r6, %r3, %r1; and.b32 %r6, %r6, 1; setp.ne.u32 %p1, %r6, 0;";

/// All, none, the first, the last, every other one, some.
const WHO: [u32; 7] = [
    !0,
    0,
    0x0101_0101,
    0x8080_8080,
    0x5555_5555,
    0x00f3_c80f,
    0xfffe,
];

/// An access by those that take part: under a guard, and behind a branch.
fn by_some(access: &str) -> [String; 2] {
    [
        access
            .split_inclusive(';')
            .map(|one| format!("@%p1 {}", one.trim()))
            .collect(),
        format!("@!%p1 bra over; {access} over:"),
    ]
}

/// As `same`, where several threads may fault, each in its way: a form names any of them.
fn ends_alike(body: &str, threads: u32, n: u32) {
    let source = kernel(body);
    let [vectors, rounds, fibers] = [Form::Vectors, Form::Rounds, Form::Fibers]
        .map(|form| run(&source, form, [1, 1, 1], [threads, 1, 1], n).map_err(drop));
    assert!(
        vectors == fibers && rounds == fibers,
        "{threads} {n:x}\n{body}"
    );
}

/// The last element of the array is that of thread `last`.
#[test]
fn loads() {
    let mut sample = Sample::one_in(6);
    for (access, bytes, apart) in [
        ("ld.global.u32 %r9, [%rd4];", 4, 4),
        ("ld.global.f32 %f1, [%rd4];", 4, 4),
        ("ld.global.u64 %rd6, [%rd4];", 8, 8),
        ("ld.global.u8 %r9, [%rd4];", 1, 1),
        ("ld.global.s8 %h0, [%rd4];", 1, 1),
        ("ld.global.s16 %r9, [%rd4];", 2, 2),
        ("ld.global.u32 %r9, [%rd4];", 4, 12),
        ("ld.global.v2.u32 {%r9, %r10}, [%rd4];", 8, 8),
        ("ld.global.v4.u8 {%h0, %h1, %h2, %h3}, [%rd4];", 4, 4),
        ("ld.u32 %r9, [%rd4];", 4, 4),
    ] {
        for access in by_some(access) {
            let body = |at: i32| {
                format!(
                    ".reg .b16 %h<4>; {TAKES_PART} mul.wide.u32 %rd5, %r1, {apart};
                    add.u64 %rd4, %rd2, %rd5; add.s64 %rd4, %rd4, {at};
                    mov.u32 %r9, 77; mov.u32 %r10, 78; mov.f32 %f1, 0f3f800000; mov.u64 %rd6, 79;
                    mov.u16 %h0, 80; mov.u16 %h1, 81; mov.u16 %h2, 82; mov.u16 %h3, 83;
                    {access}
                    mov.b32 %r7, %f1; mad.lo.u32 %r9, %r9, 31, %r7; mad.lo.u32 %r9, %r9, 31, %r10;
                    cvt.u32.u64 %r7, %rd6; mad.lo.u32 %r9, %r9, 31, %r7;
                    mov.b32 %r7, {{%h0, %h1}}; mad.lo.u32 %r9, %r9, 31, %r7;
                    mov.b32 %r7, {{%h2, %h3}}; mad.lo.u32 %r9, %r9, 31, %r7;"
                )
            };
            for n in WHO {
                if !sample.takes() {
                    continue;
                }
                for last in [40, 19, 16, 9, 0] {
                    // Threads behind the last are outside; some of these take part.
                    let at = 256 - apart * last - bytes;
                    _ = same(&body(at.min(0) & -8), [20, 1, 1], n);
                    _ = same(&body(at), [20, 1, 1], n);
                }
                _ = same(&body(-apart * 3), [20, 1, 1], n);
                _ = same(&body(1), [16, 1, 1], n);
            }
        }
    }
}

/// What is stored lies between what others have stored, in global and in shared memory.
#[test]
fn stores() {
    let mut sample = Sample::one_in(3);
    for (access, apart, scale) in [
        ("st.global.u32 [%rd4+8192], %r5;", 4, 1),
        ("st.global.u32 [%rd4+8192], %r5;", 12, 1),
        ("st.global.u8 [%rd4+8192], %r5;", 1, 1),
        ("st.global.u64 [%rd4+8192], %rd8;", 8, 1),
        ("st.global.v4.u32 [%rd4+8192], {%r5, %r1, %r3, %r5};", 16, 1),
        (
            "st.global.v4.f64 [%rd4+8192], {%fd1, %fd1, %fd1, %fd1};",
            32,
            1,
        ),
        ("st.shared.u32 [%r8], %r5;", 4, 1),
        ("st.shared.v2.u32 [%r8], {%r5, %r1};", 8, 1),
        ("st.shared.u16 [%r8+2], %r5;", 2, 1),
        ("st.u32 [%rd4+8192], %r5;", 4, 1),
    ] {
        for access in by_some(access) {
            for sync in ["", "bar.sync 0;"] {
                if !sample.takes() {
                    continue;
                }
                let body = format!(
                    ".reg .f64 %fd<4>; {TAKES_PART} mul.lo.u32 %r7, %r1, {apart};
                    mul.wide.u32 %rd5, %r7, {scale}; add.u64 %rd4, %rd1, %rd5;
                    mul.lo.u32 %r5, %r1, 0x01010101; add.u32 %r5, %r5, 0x11223344;
                    cvt.rn.f64.u32 %fd1, %r5; mul.wide.u32 %rd8, %r5, %r5; mov.u32 %r8, s; add.u32 %r8, %r8, %r7;
                    mul.wide.u32 %rd7, %r1, 4; add.u64 %rd7, %rd1, %rd7; not.b32 %r10, %r1;
                    shl.b32 %r13, %r1, 2; mov.u32 %r12, s; add.u32 %r13, %r13, %r12;
                    st.global.u32 [%rd7+8192], %r10; st.shared.u32 [%r13], %r10;
                    bar.sync 0; {access} {sync}
                    and.b32 %r11, %r1, 15; shl.b32 %r11, %r11, 2; mov.u32 %r12, s;
                    add.u32 %r12, %r12, %r11; ld.shared.u32 %r9, [%r12];"
                );
                // Threads of a row access the others' words behind a wait alone.
                let body = match access.contains("shared") && sync.is_empty() {
                    true => body.replace("ld.shared.u32 %r9, [%r12];", ""),
                    false => body,
                };
                for n in WHO {
                    for threads in [8, 20, 32] {
                        _ = same(&body, [threads, 1, 1], n);
                    }
                }
            }
        }
    }
}

/// `c ? a[i] : b[i]`: the arrays have 64 words, and 2048.
#[test]
fn chosen() {
    let mut sample = Sample::one_in(3);
    let first = "selp.b64 %rd4, %rd2, %rd18, %p1; add.u64 %rd4, %rd4, %rd5;";
    let offset_first = "selp.b64 %rd4, %rd18, %rd2, %p1; add.u64 %rd4, %rd5, %rd4;";
    let both = "add.u64 %rd6, %rd2, %rd5; add.u64 %rd7, %rd18, %rd5;
        selp.b64 %rd4, %rd6, %rd7, %p1;";
    let copied = "selp.b64 %rd6, %rd2, %rd18, %p1; cvta.to.global.u64 %rd7, %rd6;
        add.u64 %rd4, %rd7, %rd5;";
    let changed = "selp.b64 %rd4, %rd2, %rd18, %p1; add.u64 %rd4, %rd4, %rd5;
        not.pred %p1, %p1;";
    let moved = "mov.u64 %rd6, %rd2; selp.b64 %rd4, %rd6, %rd18, %p1; add.u64 %rd6, %rd6, 8;
        add.u64 %rd4, %rd4, %rd5;";
    // As `nvcc` has it: a block begins where the index is widened.
    let widened = "selp.b64 %rd4, %rd2, %rd18, %p1; cvta.to.global.u64 %rd6, %rd4;
        mul.wide.s32 %rd7, %r1, 4; add.u64 %rd4, %rd6, %rd7;";
    let wraps = "selp.b64 %rd4, %rd2, %rd18, %p1; add.u32 %r11, %r1, 0x7ffffffa;
        mul.wide.s32 %rd7, %r11, 4; and.b64 %rd7, %rd7, 252; add.u64 %rd4, %rd4, %rd7;";
    // What a loop leaves, and what is from before a wait.
    let looped = "mov.u32 %r10, 0; and.b32 %r11, %r1, 3; again: mul.wide.u32 %rd6, %r10, 4;
        add.u64 %rd7, %rd5, %rd6; selp.b64 %rd8, %rd2, %rd18, %p1; add.u64 %rd4, %rd8, %rd7;
        add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, %r11; @%p2 bra again;";
    let waited = "add.u64 %rd6, %rd2, %rd5; add.u64 %rd7, %rd18, %rd5;
        selp.b64 %rd4, %rd6, %rd7, %p1; bar.sync 0;";
    for address in [
        first,
        offset_first,
        both,
        copied,
        changed,
        moved,
        looped,
        waited,
        widened,
        wraps,
    ] {
        for (load, bytes) in [
            ("ld.global.u32 %r9, [%rd4+8];", 4),
            ("ld.global.f32 %f1, [%rd4]; mov.b32 %r9, %f1;", 4),
            ("ld.global.s16 %r9, [%rd4];", 2),
            ("ld.global.u64 %rd9, [%rd4]; cvt.u32.u64 %r9, %rd9;", 8),
            (
                "ld.global.v2.u32 {%r9, %r10}, [%rd4]; add.u32 %r9, %r9, %r10;",
                8,
            ),
            ("@%p3 ld.global.u32 %r9, [%rd4];", 4),
        ] {
            for at in [0, 256 - 15 * bytes] {
                if !sample.takes() {
                    continue;
                }
                let body = format!(
                    "{TAKES_PART} setp.lt.u32 %p3, %r1, 11; mul.wide.u32 %rd5, %r1, {bytes};
                    mul.lo.u32 %r8, %r1, 77; st.global.u32 [%rd3+8192], %r8; add.u64 %rd18, %rd1, 8192; bar.sync 0;
                    add.u64 %rd5, %rd5, {at}; {address} {load}"
                );
                for n in [!0, 0x8080_8080, 0x5555_5555, 0x00f3_c80f] {
                    for threads in [8, 20] {
                        ends_alike(&body, threads, n);
                    }
                }
            }
        }
    }
}
