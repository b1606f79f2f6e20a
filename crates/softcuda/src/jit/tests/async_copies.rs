//! `cp.async`, in all forms.

use super::forms::{self, Outcome};
use crate::grid::launch::FaultKind;
use crate::jit::harness;

/// What the kernels' second buffer holds.
fn input() -> Vec<u32> {
    (0..64u32).map(|at| at.wrapping_mul(0x9e37_79b9)).collect()
}

/// Each thread copies `size` bytes at its place in the input to its place in shared memory, as
/// `copy` says, and leaves the word at the same place of its neighbour.
fn exchange(size: u32, copy: &str, threads: u32) -> Outcome {
    let shift = size.trailing_zeros();
    let body = format!(
        "shl.b32 %r4, %r1, {shift};
        mov.u32 %r5, s;
        add.u32 %r5, %r5, %r4;
        mul.wide.u32 %rd4, %r1, {size};
        add.u64 %rd5, %rd2, %rd4;
        mov.u32 %r10, 0xaaaaaaaa;
        st.shared.u32 [%r5], %r10;
        {copy}
        bar.sync 0;
        xor.b32 %r6, %r1, 1;
        shl.b32 %r6, %r6, {shift};
        mov.u32 %r7, s;
        add.u32 %r6, %r6, %r7;
        ld.shared.u32 %r9, [%r6+{last}];",
        last = size - 4,
    );
    forms::same(&body, [threads, 1, 1], threads)
}

/// The words that [`exchange`] leaves where all is copied.
fn exchanged(size: u32, threads: u32) -> Vec<u32> {
    let words = size / 4;
    let word = |thread: u32| input()[((thread ^ 1) * words + words - 1) as usize];
    (0..threads).map(word).collect()
}

#[test]
fn neighbours_copy() {
    for (size, threads) in [(4, 64), (8, 32), (16, 16), (16, 6)] {
        for modifiers in [
            "ca.shared.global",
            "ca.shared::cta.global.L2::128B",
            "ca.shared.global.L2::cache_hint.L2::64B",
        ] {
            let policy = if modifiers.contains("hint") {
                ", %rd1"
            } else {
                ""
            };
            let copy = format!(
                "cp.async.{modifiers} [%r5], [%rd5], {size}{policy};
                cp.async.commit_group; cp.async.wait_group 0;"
            );
            let got = exchange(size, &copy, threads).unwrap();
            assert_eq!(
                got[..threads as usize],
                exchanged(size, threads),
                "{size} {modifiers}"
            );
        }
    }
    let got = exchange(
        16,
        "cp.async.cg.shared.global [%r5], [%rd5], 16; cp.async.wait_all;",
        16,
    );
    assert_eq!(got.unwrap()[..16], exchanged(16, 16));
}

/// To places at no fixed distance, as tiles are swizzled.
#[test]
fn to_places_out_of_order() {
    let got = exchange(
        16,
        "shr.u32 %r20, %r1, 1;
        xor.b32 %r20, %r20, %r1;
        shl.b32 %r20, %r20, 4;
        mov.u32 %r21, s;
        add.u32 %r21, %r21, %r20;
        cp.async.cg.shared.global [%r21], [%rd5], 16;",
        16,
    );
    let got = got.unwrap();
    for thread in 0..16u32 {
        let place = thread ^ 1;
        let from = (0..16).find(|from| from ^ from >> 1 == place).unwrap();
        assert_eq!(got[thread as usize], input()[4 * from as usize + 3]);
    }
}

#[test]
fn a_part_is_copied_and_zeros_follow() {
    for bytes in 0..=16u32 {
        let got = exchange(
            16,
            &format!(
                "mov.u32 %r11, {bytes};
                cp.async.ca.shared.global [%r5], [%rd5], 16, %r11;
                ld.shared.u32 %r12, [%r5];
                cp.async.ca.shared.global [%r5+256], [%rd5], 16, {bytes};
                ld.shared.u32 %r13, [%r5+268]; ld.shared.u32 %r14, [%r5+12];
                setp.ne.u32 %p1, %r13, %r14; @%p1 trap;
                add.u32 %r15, %r1, 100; mul.wide.u32 %rd6, %r15, 4; add.u64 %rd6, %rd6, %rd1;
                st.global.u32 [%rd6], %r12;"
            ),
            16,
        );
        let got = got.unwrap();
        for thread in 0..16usize {
            let word = |at: usize, from: u32| {
                let kept = bytes.saturating_sub(from).min(4);
                let mask = (1u64 << (8 * kept)) - 1;
                input()[4 * at + from as usize / 4] & mask as u32
            };
            assert_eq!(got[thread], word(thread ^ 1, 12), "{bytes}");
            assert_eq!(got[100 + thread], word(thread, 0), "{bytes}");
        }
    }
}

/// Nothing is read where nothing is copied.
#[test]
fn ignored_sources_are_zeros() {
    for copy in [
        "setp.ge.u32 %p1, %r1, 8; add.u64 %rd6, %rd5, 0; @%p1 mov.u64 %rd6, 8;
        cp.async.ca.shared.global [%r5], [%rd6], 8, %p1;",
        "setp.lt.u32 %p1, %r1, 8; add.u64 %rd6, %rd5, 0; @!%p1 mov.u64 %rd6, 8;
        selp.b32 %r11, 8, 0, %p1; cp.async.ca.shared.global [%r5], [%rd6], 8, %r11;",
    ] {
        let got = exchange(8, copy, 32).unwrap();
        let mut wanted = exchanged(8, 32);
        wanted[8..].fill(0);
        assert_eq!(got[..32], wanted);
    }
}

#[test]
fn copies_are_guarded() {
    let got = exchange(
        4,
        "and.b32 %r11, %r1, 3; setp.eq.u32 %p1, %r11, 0;
        @%p1 cp.async.ca.shared.global [%r5], [%rd5], 4;",
        64,
    )
    .unwrap();
    for (thread, got) in got[..64].iter().enumerate() {
        let wanted = match (thread ^ 1) % 4 {
            0 => input()[thread ^ 1],
            _ => 0xaaaa_aaaa,
        };
        assert_eq!(*got, wanted);
    }
}

/// As an H200 answered.
#[test]
fn wrong_addresses_fault() {
    use FaultKind::{IllegalAddress, Misaligned};
    for (copy, fault) in [
        (
            "add.u64 %rd5, %rd5, 4; cp.async.cg.shared.global [%r5], [%rd5], 16;",
            Misaligned,
        ),
        ("cp.async.cg.shared.global [%r5+4], [%rd5], 16;", Misaligned),
        (
            "mov.u64 %rd5, 0; cp.async.cg.shared.global [%r5], [%rd5], 16;",
            IllegalAddress,
        ),
        (
            "cp.async.cg.shared.global [%r5+0x40000], [%rd5], 16;",
            IllegalAddress,
        ),
        (
            "mov.u64 %rd5, 0; cp.async.cg.shared.global [%r5], [%rd5], 16, 3;",
            IllegalAddress,
        ),
        (
            "cp.async.cg.shared.global [%r5], [%rd5+4], 16, 3;",
            Misaligned,
        ),
        // More than is copied.
        (
            "mov.u32 %r11, 20; cp.async.cg.shared.global [%r5], [%rd5], 16, %r11;",
            Misaligned,
        ),
        (
            "@%p2 trap; setp.eq.u32 %p1, %r1, 5; @%p1 mov.u64 %rd5, 4096;
            cp.async.cg.shared.global [%r5], [%rd5], 16;",
            IllegalAddress,
        ),
    ] {
        let got = exchange(16, copy, 16).unwrap_err();
        assert_eq!(got.0, fault, "{copy}");
        if copy.contains("setp") {
            assert_eq!(got.2, Some([5, 0, 0]));
        }
    }
}

#[test]
fn wrong_forms_are_refused() {
    for (copy, what) in [
        (
            "cp.async.ca.shared.global [%r5], [%rd5], 12;",
            "cannot copy 12 bytes",
        ),
        (
            "cp.async.cg.shared.global [%r5], [%rd5], 8;",
            "cannot copy 8 bytes",
        ),
        (
            "cp.async.cg.shared.global [%r5], [%rd5], %r1;",
            "takes an integer constant",
        ),
        (
            "cp.async.cg.shared.global [%r5], [%rd5];",
            "takes two addresses and a size",
        ),
        (
            "cp.async.cg.shared.global %r5, [%rd5], 16;",
            "takes an address in brackets",
        ),
        (
            "cp.async.cg.shared.global.L2::cache_hint [%r5], [%rd5], 16;",
            "takes two addresses",
        ),
        (
            "cp.async.cg.shared.global [%r5], [%rd5], 16, %f1, %f1;",
            "takes two addresses",
        ),
        ("cp.async.wait_group;", "takes 1 operands"),
        ("cp.async.wait_group %r1;", "takes an integer constant"),
        ("cp.async.commit_group 1;", "takes 0 operands"),
        (
            "cp.async.cg.global.shared [%rd5], [%r5], 16;",
            "modifier .global",
        ),
    ] {
        let refusal = harness::complaint(&forms::kernel(copy));
        assert!(refusal.contains(what), "{copy}: {refusal}");
    }
}

/// Of several threads that copy from or to where they must not, the first one faults.
#[test]
fn the_first_wrong_copy_faults() {
    for (first, second) in [
        ("add.u32 %r5, %r5, 4;", "mov.u64 %rd5, 0;"),
        ("mov.u64 %rd5, 0;", "add.u32 %r5, %r5, 4;"),
        ("mov.u32 %r5, 8192;", "add.u64 %rd5, %rd5, 8;"),
        ("add.u64 %rd5, %rd5, 8;", "mov.u32 %r5, 8192;"),
    ] {
        for (one, other) in [(3, 5), (0, 1), (7, 8), (9, 2)] {
            for threads in [8, 16, 20] {
                let body = format!(
                    "shl.b32 %r4, %r1, 4; mov.u32 %r5, s; add.u32 %r5, %r5, %r4;
                    and.b32 %r6, %r1, 15; mul.wide.u32 %rd4, %r6, 16; add.u64 %rd5, %rd2, %rd4;
                    setp.eq.u32 %p1, %r1, {one}; setp.eq.u32 %p2, %r1, {other};
                    @!%p1 bra a; {first} a: @!%p2 bra b; {second} b:
                    cp.async.cg.shared.global [%r5], [%rd5], 16; cp.async.wait_all;"
                );
                forms::same(&body, [threads, 1, 1], 0).expect_err(&body);
            }
        }
    }
}

/// The same where the addresses of neighbours are as far apart everywhere, so that vectors check
/// them as one range.
#[test]
fn the_first_wrong_copy_of_a_row_faults() {
    for (to, from) in [(3, 5), (5, 3), (3, 3), (0, 7), (7, 0), (3, 9), (9, 3)] {
        for place in ["mul.lo.u32 %r5, %r1, 16;", "shl.b32 %r5, %r1, %r4;"] {
            for threads in [8, 11, 16] {
                let body = format!(
                    "mov.u32 %r4, 4; and.b32 %r4, %r4, %r3; {place}
                    mov.u32 %r6, s; add.u32 %r5, %r5, %r6; add.u32 %r5, %r5, {};
                    mul.wide.u32 %rd4, %r1, 16; add.u64 %rd5, %rd2, %rd4; add.u64 %rd5, %rd5, {};
                    cp.async.cg.shared.global [%r5], [%rd5], 16; cp.async.wait_all;",
                    8192 - 16 * to,
                    256 - 16 * from,
                );
                let outcome = forms::same(&body, [threads, 1, 1], 4);
                let first = u32::min(to, from);
                if first >= threads {
                    outcome.unwrap();
                    continue;
                }
                let (kind, _, thread) = outcome.expect_err(&body);
                assert_eq!(kind, FaultKind::IllegalAddress);
                assert_eq!(thread, Some([first, 0, 0]));
            }
        }
    }
}
