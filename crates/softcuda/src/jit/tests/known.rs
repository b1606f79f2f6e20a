//! Accesses to shared memory that need no check, because the code tells that they are inside, and
//! those that nearly are.

use super::forms::same;
use crate::grid::launch::FaultKind;

/// A body of which thread `n` has `last` in `%r4`, others have even numbers below 64.
fn body(last: u32, address: &str, access: &str) -> String {
    format!(
        "mul.lo.u32 %r4, %r1, %r1; and.b32 %r4, %r4, 62;
        setp.eq.u32 %p1, %r1, %r3; selp.u32 %r4, {last}, %r4, %p1;
        .reg .b16 %h<4>; mov.u32 %r5, s; shl.b32 %r6, %r1, 2; add.u32 %r6, %r6, %r5;
        st.shared.u32 [%r6], %r1; bar.sync 0;
        {address} {access}
        bar.sync 0; ld.shared.u32 %r9, [%r6];"
    )
}

/// What keeps a number below 2,048, times 4, of the 8,192 bytes: and what comes of it with a step
/// that goes one too far, in a thread alone.
#[test]
fn numbers_at_the_end_of_shared_memory() {
    const WORD: &str = "red.shared.add.u32 [%r4], 3;";
    const DOUBLE: &str = "red.shared.add.u64 [%r4], 3;";
    let inside = [
        (
            "and.b32 %r4, %r4, 2047; shl.b32 %r4, %r4, 2; add.u32 %r4, %r5, %r4;",
            WORD,
        ),
        (
            "shl.b32 %r4, %r4, 21; shr.u32 %r4, %r4, 19; add.u32 %r4, %r4, %r5;",
            WORD,
        ),
        (
            "cvt.u16.u32 %h1, %r4; and.b16 %h1, %h1, 2047; mul.wide.u16 %r4, %h1, 4;
            add.u32 %r4, %r5, %r4;",
            WORD,
        ),
        ("and.b32 %r4, %r4, 2047; mad.lo.u32 %r4, %r4, 4, %r5;", WORD),
        (
            "and.b32 %r4, %r4, 1023; mul.lo.u32 %r4, %r4, 8; add.u32 %r4, %r4, %r5;",
            DOUBLE,
        ),
    ];
    for (address, access) in inside {
        for n in [0, 13, 31] {
            same(&body(0xffff_ffff, address, access), [32, 1, 1], n).expect("all is inside");
        }
    }
    use FaultKind::{IllegalAddress, Misaligned};
    let outside = [
        (
            2047,
            "and.b32 %r4, %r4, 2047; shl.b32 %r4, %r4, 2; add.u32 %r4, %r5, %r4;",
            "red.shared.add.u32 [%r4+4], 3;",
            IllegalAddress,
        ),
        (
            2048,
            "and.b32 %r4, %r4, 4095; shl.b32 %r4, %r4, 2; add.u32 %r4, %r5, %r4;",
            WORD,
            IllegalAddress,
        ),
        // Less than nothing.
        (
            0,
            "xor.b32 %r4, %r1, %r3; and.b32 %r4, %r4, 63; shl.b32 %r4, %r4, 2;
            add.u32 %r4, %r4, -4;",
            WORD,
            IllegalAddress,
        ),
        // A product that wraps.
        (
            0x4000_0801,
            "mul.lo.u32 %r4, %r4, 4; and.b32 %r4, %r4, 16383; add.u32 %r4, %r4, %r5;",
            WORD,
            IllegalAddress,
        ),
        (
            1023,
            "and.b32 %r4, %r4, 2047; shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r5;",
            DOUBLE,
            Misaligned,
        ),
        (
            2047,
            "and.b32 %r4, %r4, 2047; mul.lo.u32 %r4, %r4, 2; add.u32 %r4, %r4, %r5;",
            WORD,
            Misaligned,
        ),
    ];
    for (last, address, access, kind) in outside {
        for n in [0u32, 13, 31] {
            let body = body(last, address, access);
            let got = same(&body, [32, 1, 1], n).expect_err("a thread is outside");
            assert_eq!(got, (kind, [0, 0, 0], Some([n, 0, 0])), "{body}");
        }
    }
}
