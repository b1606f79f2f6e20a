//! Runs of steps that are done in slices, because more vectors are live than there are registers.

use std::fmt::Write as _;

use super::forms::{kernel, run, same};
use crate::jit::module::Form;

/// The body, and with one and two steps more: one of them is done in slices in a unit test.
fn padded(body: &str) -> [String; 3] {
    [0, 1, 2].map(|more| format!("{}\n{body}", "mov.u32 %r39, 7;\n".repeat(more)))
}

fn same_in_slices(body: &str) {
    for body in padded(body) {
        for (block, n) in [
            ([32, 1, 1], 3),
            ([64, 1, 1], 40),
            ([16, 3, 1], 1),
            ([24, 1, 1], 0),
        ] {
            let outcome = same(&body, block, n);
            assert!(outcome.is_ok(), "{outcome:x?}\n{body}");
        }
    }
}

/// A tile of a product: rows of four loaded at once, at registers that are written once, so that
/// they are known to count up; what is loaded once for all threads; and a register that is written
/// once for the group and was read before.
#[test]
fn a_tile_of_a_product() {
    for op in ["fma.rn.f32", "mad.lo.s32"] {
        let mut body = String::from(
            ".reg .b32 %c<16>, %x<4>, %y<4>, %me, %far, %row;
            mad.lo.u32 %me, %r30, %r31, %r1;
            mov.u32 %r4, s; shl.b32 %far, %me, 4; add.u32 %row, %far, %r4;
            mul.lo.u32 %r6, %r35, 3; and.b32 %r6, %r6, 63; cvt.rn.f32.u32 %f1, %r6;
            mov.b32 %r6, %f1;
            add.u32 %r7, %r6, 0x10000;
            st.shared.v4.u32 [%row], {%r6, %r7, %r6, %r7};
            st.shared.v4.u32 [%row+4096], {%r7, %r6, %r7, %r7};
            mov.u32 %r8, %r3; mov.u32 %r10, 0;
            bar.sync 0;\n",
        );
        for n in 0..16 {
            writeln!(body, "add.u32 %c{n}, %r35, {n};").unwrap();
        }
        body += "again:\n";
        for k in 0..3 {
            let far = 4096 * (k % 2);
            writeln!(
                body,
                "ld.shared.v4.u32 {{%x0, %x1, %x2, %x3}}, [%row+{far}];"
            )
            .unwrap();
            // The same for all threads.
            writeln!(
                body,
                "ld.shared.v4.u32 {{%y0, %y1, %y2, %y3}}, [%r4+{}];",
                16 * k
            )
            .unwrap();
            for n in 0..16 {
                let (x, y) = (n % 4, n / 4);
                writeln!(body, "{op} %c{n}, %x{x}, %y{y}, %c{n};").unwrap();
            }
            writeln!(
                body,
                "xor.b32 %c{k}, %c{k}, %r8; add.u32 %r8, %r8, 5; xor.b32 %c5, %c5, %r8;"
            )
            .unwrap();
        }
        body += "add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 3; @%p1 bra again;\n";
        for n in 0..16 {
            writeln!(body, "mad.lo.u32 %r9, %r9, 31, %c{n};").unwrap();
        }
        same_in_slices(&body);
    }
}

/// Doubles beside words: predicates of both, what is done under them, and what changes its width.
#[test]
fn doubles_and_words() {
    let mut body = String::from(
        ".reg .f64 %d<8>; .reg .pred %q<4>;
        cvt.rn.f64.u32 %d0, %r35; add.f64 %d1, %d0, 0d3FE0000000000000; mov.u32 %r8, %r3;
        mov.f64 %d4, %d0; mov.f64 %d5, %d1; mul.lo.u32 %r7, %r35, 40503;\n",
    );
    for n in 0..3 {
        write!(
            body,
            "fma.rn.f64 %d4, %d0, %d1, %d4; mul.rn.f64 %d5, %d5, %d1; sub.f64 %d6, %d4, %d5;
            setp.lt.f64 %q0, %d6, 0d4059000000000000; setp.gt.u32 %q1, %r7, {};
            selp.f64 %d4, %d4, %d0, %q0; @%q0 add.f64 %d5, %d0, %d1; @!%q1 xor.b32 %r7, %r7, %r8;
            and.pred %q2, %q0, %q1; @%q2 mov.u32 %r7, {n};
            add.u32 %r8, %r8, 3; mad.lo.u32 %r7, %r7, 31, %r8; cvt.rn.f32.f64 %f1, %d5;
            cvt.f64.f32 %d2, %f1; add.f64 %d4, %d4, %d2; cvt.rzi.u32.f64 %r6, %d4;
            xor.b32 %r7, %r7, %r6; cvt.s64.s32 %rd4, %r7; add.s64 %rd5, %rd5, %rd4;\n",
            1 << 20,
        )
        .unwrap();
    }
    body = body.replacen("mov.f64 %d4", "mov.u64 %rd5, 1; mov.f64 %d4", 1);
    body += "cvt.u32.u64 %r9, %rd5; shr.u64 %rd5, %rd5, 32; cvt.u32.u64 %r10, %rd5;
        mad.lo.u32 %r9, %r9, 31, %r10; mad.lo.u32 %r9, %r9, 31, %r7;
        cvt.rn.f32.f64 %f2, %d4; mov.b32 %r10, %f2; mad.lo.u32 %r9, %r9, 31, %r10;";
    same_in_slices(&body);
}

/// A thread of any slice loads what is not there, by a row of its group: it is named, as where
/// threads run one by one.
#[test]
fn a_thread_of_a_slice_faults() {
    for threads in [16, 32] {
        for first in [1, 3, 4, 7, 8, 12, 30] {
            let body = format!(
                ".reg .b32 %c<6>, %far, %row; shl.b32 %far, %r1, 4; mov.u32 %r4, s;
                add.u32 %row, %far, %r4; mov.u32 %c4, 3; st.shared.u32 [%row], %c4; bar.sync 0;
                add.u32 %c4, %r35, 5; mul.lo.u32 %c5, %c4, %c4;
                ld.shared.v4.u32 {{%c0, %c1, %c2, %c3}}, [%row+{}];
                mad.lo.u32 %c4, %c0, %c1, %c5; mad.lo.u32 %c5, %c2, %c3, %c4;
                add.u32 %r9, %c4, %c5;",
                8192 - 16 * first
            );
            let bodies = padded(&body);
            let forms = [Form::Vectors, Form::Rounds];
            for (body, form) in bodies
                .iter()
                .flat_map(|body| forms.map(|form| (body, form)))
            {
                let outcome = run(&kernel(body), form, [1; 3], [threads, 1, 1], 0);
                assert_eq!(outcome.is_err(), threads > first, "{outcome:?}");
                if let Err((_, _, thread)) = outcome {
                    assert_eq!(thread, Some([first, 0, 0]), "{form:?}");
                }
            }
        }
    }
}

/// What is written once for a group, from what it was before: each slice begins with the same.
#[test]
fn what_is_done_once_is_done_for_each_slice() {
    let body = "mov.u32 %r20, %r3; mov.u32 %r21, 1; mul.lo.u32 %r6, %r35, 977; mov.u32 %r7, %r6;
        again: add.u32 %r20, %r20, %r21; xor.b32 %r6, %r6, %r20; add.u32 %r21, %r20, %r21;
        mad.lo.u32 %r7, %r7, %r21, %r6; xor.b32 %r20, %r20, 9; add.u32 %r6, %r6, %r20;
        setp.lt.u32 %p2, %r21, 5000; selp.u32 %r22, %r20, %r21, %p2; add.u32 %r7, %r7, %r22;
        setp.lt.u32 %p1, %r21, 100000; @%p1 bra again;
        mad.lo.u32 %r9, %r6, 31, %r7; mad.lo.u32 %r9, %r9, 31, %r20;";
    same_in_slices(body);
    // Not only the same, but right.
    let (mut counts, n) = ([0u32, 1], 3u32);
    counts[0] = n;
    let (mut sums, mut products): (Vec<u32>, Vec<u32>) =
        (0..32).map(|t| (t * 977, t * 977)).unzip();
    loop {
        counts[0] = counts[0].wrapping_add(counts[1]);
        sums.iter_mut().for_each(|sum| *sum ^= counts[0]);
        counts[1] = counts[1].wrapping_add(counts[0]);
        for (product, sum) in products.iter_mut().zip(&sums) {
            *product = product.wrapping_mul(counts[1]).wrapping_add(*sum);
        }
        counts[0] ^= 9;
        sums.iter_mut()
            .for_each(|sum| *sum = sum.wrapping_add(counts[0]));
        let more = if counts[1] < 5000 {
            counts[0]
        } else {
            counts[1]
        };
        products
            .iter_mut()
            .for_each(|product| *product = product.wrapping_add(more));
        if counts[1] >= 100_000 {
            break;
        }
    }
    let expected = sums.iter().zip(&products).map(|(sum, product)| {
        let all = sum.wrapping_mul(31).wrapping_add(*product);
        all.wrapping_mul(31).wrapping_add(counts[0])
    });
    let expected: Vec<u32> = expected.collect();
    for body in padded(body) {
        let outcome = run(&kernel(&body), Form::Vectors, [1; 3], [32, 1, 1], n);
        assert_eq!(outcome.unwrap()[..32], expected);
    }
}
