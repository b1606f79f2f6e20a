//! Loops along a row as nvcc unrolls them: each lane computes how often it goes round. Wide groups
//! take what they count for a number that counts up with the lane, as long as they go on together.

use super::forms::{kernel, run, run_module};
use super::fuzz::Sample;
use super::wide::BLOCKS;
use crate::jit::harness::load_as;
use crate::jit::module::Form;

/// A body leaves the same in vectors, in groups of 16 and of 32, as in fibers; nothing faults.
fn the_same(body: &str, numbers: &[u32]) {
    let other = format!("mov.u32 %r39, 1; {body}");
    let [one, other] = [body, &other].map(kernel);
    let fibers = load_as(&one, Form::Fibers);
    let modules = [&one, &other].map(|source| load_as(source, Form::Vectors));
    for block in BLOCKS {
        for n in numbers {
            let expected = run_module(&fibers, [1, 1, 1], block, *n).expect("all are inside");
            for module in &modules {
                let got = run_module(module, [1, 1, 1], block, *n).expect("all are inside");
                let at = got.iter().zip(&expected).position(|(a, b)| a != b);
                assert_eq!(at, None, "{block:?} n={n} {body}");
            }
        }
    }
}

/// Fills the shared memory, one number in each word.
const FILL: &str = "mov.u32 %r4, %r35; mov.u32 %r6, s;
    fill: shl.b32 %r5, %r4, 2; add.u32 %r5, %r5, %r6; mul.lo.u32 %r7, %r4, 0x9e3779b9;
    st.shared.u32 [%r5], %r7; add.u32 %r4, %r4, %r36; setp.lt.u32 %p1, %r4, 2048; @%p1 bra fill;
    bar.sync 0;";

/// A loop from word `%r10` on to `%r20`, every 32nd, four at a time but for the first few. `at` and
/// `from` name its address and what is added to its index; labels end in `name`.
fn row(name: &str, wide: bool) -> String {
    let (at, address, next, access) = match wide {
        false => (
            "%r12",
            "shl.b32 %r12, %r10, 2; mov.u32 %r6, s; add.u32 %r12, %r12, %r6;",
            "add.u32 %r12, %r12",
            "ld.shared.u32",
        ),
        true => (
            "%rd6",
            "mul.wide.s32 %rd5, %r10, 4; add.s64 %rd6, %rd2, %rd5;",
            "add.s64 %rd6, %rd6",
            "ld.global.u32",
        ),
    };
    let each = |offset: u32| {
        format!(
            "{access} %r13, [{at}+{offset}]; mad.lo.u32 %r9, %r9, 31, %r13; add.f32 %f1, %f1, %f2;"
        )
    };
    format!(
        "setp.ge.s32 %p1, %r10, %r20; @%p1 bra over{name};
        not.b32 %r5, %r10; add.s32 %r16, %r5, %r20; shr.u32 %r7, %r16, 5;
        add.s32 %r7, %r7, 1; and.b32 %r11, %r7, 3; setp.eq.s32 %p3, %r11, 0; @%p3 bra rest{name};
        {address}
        first{name}: {one} add.s32 %r10, %r10, 32; {next}, 128; add.s32 %r11, %r11, -1;
        setp.ne.s32 %p4, %r11, 0; @%p4 bra first{name};
        rest{name}: setp.lt.u32 %p5, %r16, 96; @%p5 bra over{name};
        {address}
        four{name}: {one} {two} {three} {four} {next}, 512; add.s32 %r10, %r10, 128;
        setp.lt.s32 %p6, %r10, %r20; @%p6 bra four{name};
        over{name}:",
        one = each(0),
        two = each(128),
        three = each(256),
        four = each(384),
    )
}

/// What is counted within is not asked for behind it, or is, in the next region and the one behind.
const BEHIND: [&str; 3] = [
    "bar.sync 0;",
    "bar.sync 0; mad.lo.u32 %r9, %r9, 31, %r10; mad.lo.u32 %r9, %r9, 31, %r16;",
    "bar.sync 0; add.f32 %f1, %f1, %f2; bar.sync 0; shl.b32 %r17, %r10, 3;
    mad.lo.u32 %r9, %r9, 31, %r17; mad.lo.u32 %r9, %r9, 31, %r11;",
];

/// How far each lane goes: as the others, its own number further, some of them further.
const LIMITS: [&str; 4] = [
    "mov.u32 %r20, %r3;",
    "add.u32 %r20, %r3, %r1;",
    "and.b32 %r20, %r1, 9; mad.lo.u32 %r20, %r20, 8, %r3;",
    "shr.u32 %r20, %r1, 3; mad.lo.u32 %r20, %r20, 32, %r3;",
];

#[test]
fn loops_that_lanes_leave() {
    for limit in LIMITS {
        for behind in BEHIND {
            let body = format!(
                "{FILL} mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f3f800000; {limit}
                and.b32 %r10, %r1, 31; {} {behind}
                cvt.rzi.u32.f32 %r18, %f1; mad.lo.u32 %r9, %r9, 31, %r18;",
                row("", false)
            );
            the_same(&body, &[0, 9, 32, 33, 97, 128, 131, 257]);
        }
    }
}

/// The same through pointers, to the very end of the memory, and beyond: the fault names who is
/// outside.
#[test]
fn pointers_that_loops_move_on() {
    for limit in [LIMITS[0], "and.b32 %r20, %r1, 15; add.u32 %r20, %r20, %r3;"] {
        for behind in BEHIND {
            let body = format!(
                "mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f3f800000; {limit} bar.sync 0;
                and.b32 %r10, %r1, 7; {} {behind}",
                row("", true)
            );
            the_same(&body, &[0, 1, 20, 33, 40]);
        }
        // Each lane has words of its own; the last one is outside.
        let body = format!(
            "mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f3f800000; {limit} bar.sync 0;
            mov.u32 %r10, %r1; {} bar.sync 0;",
            row("", true)
        );
        for n in [60, 64, 65, 70, 200] {
            // Fibers may begin with another lane that is outside.
            let end = |form| run(&kernel(&body), form, [1, 1, 1], [32, 1, 1], n);
            assert_eq!(end(Form::Vectors), end(Form::Rounds), "n={n} {body}");
        }
    }
}

/// A register counts from the lane on in one region alone; those before take it for the lane. It
/// does so again in a loop around them.
#[test]
fn a_register_that_counts_in_the_last_region() {
    for again in [
        "",
        "add.u32 %r19, %r19, 1; setp.lt.u32 %p7, %r19, 3; @%p7 bra again;",
    ] {
        for begins in ["and.b32 %r10, %r1, 31;", "mov.u32 %r10, %r1;"] {
            for limit in LIMITS {
                let body = format!(
                    "{FILL} mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f3f800000; {limit}
                    mov.u32 %r19, 0; {begins} bar.sync 0;
                    again: shl.b32 %r15, %r10, 2; mov.u32 %r6, s; add.u32 %r15, %r15, %r6;
                    and.b32 %r15, %r15, 4092; add.u32 %r15, %r15, %r6; ld.shared.u32 %r14, [%r15];
                    mad.lo.u32 %r9, %r9, 31, %r14; add.f32 %f1, %f1, %f2;
                    bar.sync 0;
                    mad.lo.u32 %r9, %r9, 31, %r10; add.f32 %f1, %f1, %f1; {}
                    bar.sync 0; {again}",
                    row("", false)
                );
                the_same(&body, &[0, 33, 97, 256]);
            }
        }
    }
}

/// Threads part before a register is written that later regions take.
#[test]
fn what_follows_from_what_was_counted() {
    let body = format!(
        "{FILL} mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f3f800000;
        and.b32 %r20, %r1, 5; mad.lo.u32 %r20, %r20, 32, %r3; and.b32 %r10, %r1, 31;
        {} add.u32 %r21, %r10, 7; add.u32 %r22, %r16, %r10; bar.sync 0;
        mov.u32 %r10, %r21; and.b32 %r20, %r21, 255; {} bar.sync 0;
        mad.lo.u32 %r9, %r9, 31, %r21; mad.lo.u32 %r9, %r9, 31, %r22;",
        row("a", false),
        row("b", false)
    );
    the_same(&body, &[0, 1, 32, 64, 97, 128, 200]);
}

/// Quotients and rests of a thread's number as `int`, in blocks where it has no sign and in those
/// behind, where it has one.
#[test]
fn numbers_of_threads_that_are_divided() {
    for (log2, ones) in [(5, 31u32), (3, 7), (4, 15)] {
        for sync in ["", "bar.sync 0;"] {
            for number in [
                "mad.lo.s32 %r4, %r34, 1024, %r1;",
                "shl.b32 %r4, %r34, 10; add.s32 %r4, %r4, %r1;",
                "shl.b32 %r4, %r34, 10; or.b32 %r4, %r4, %r1;",
            ] {
                let (fill, mask) = (32 - log2, !ones as i32);
                let body = format!(
                    "setp.lt.u32 %p1, %r34, %r3; @%p1 bra done;
                    {number} shr.s32 %r5, %r4, 31; shr.u32 %r6, %r5, {fill};
                    add.s32 %r7, %r4, %r6; shr.s32 %r8, %r7, {log2}; and.b32 %r10, %r7, {mask};
                    sub.s32 %r11, %r4, %r10; {sync}
                    mul.lo.u32 %r9, %r8, 0x9e3779b9; xor.b32 %r9, %r9, %r11;
                    sub.u32 %r12, %r34, %r3; mad.lo.u32 %r12, %r12, 64, %r1;
                    mul.wide.u32 %rd5, %r12, 4; add.u64 %rd5, %rd1, %rd5;
                    st.global.u32 [%rd5], %r9; done: ret;"
                );
                let source = kernel(&body);
                // The last block without a sign, and the first with one.
                let blocks = (1 << 21) + 1;
                let end = |form| run(&source, form, [blocks, 1, 1], [40, 1, 1], blocks - 2);
                let mut expected = vec![0u32; 128];
                for (at, word) in expected.iter_mut().enumerate() {
                    let (block, x) = ((1 << 21) - 1 + at as u32 / 64, at as u32 % 64);
                    let number = (block * 1024 + x) as i32;
                    let by = 1 << log2;
                    if x < 40 {
                        *word = ((number / by) as u32).wrapping_mul(0x9e37_79b9);
                        *word ^= (number % by) as u32;
                    }
                }
                let words = end(Form::Vectors).expect("nothing faults");
                assert_eq!(words[..128], expected[..], "{body}");
            }
        }
    }
}

/// Numbers below zero that are written without a sign are no small ones.
#[test]
fn numbers_without_a_sign_that_have_one() {
    for number in ["0x80000000", "4294967295", "-2147483648"] {
        for (first, then) in [
            (31, "shr.s32 %r5, %r5, 1;"),
            (31, "shr.u32 %r5, %r5, 1;"),
            (29, "shr.u32 %r5, %r5, 3;"),
        ] {
            for sync in ["", "bar.sync 0;"] {
                // Each register is written once.
                let body = format!(
                    "shr.s32 %r4, {number}, {first}; {} {sync} add.s32 %r7, %r1, %r6;
                    shr.u32 %r8, %r7, 5; and.b32 %r10, %r7, 31; mad.lo.u32 %r9, %r8, 31, %r10;",
                    then.replacen("%r5", "%r6", 1).replace("%r5", "%r4")
                );
                the_same(&body, &[0]);
            }
        }
    }
}

/// Between two barriers, a few threads do what wide groups do not: those give up there, before or
/// behind a store, and the others go on.
#[test]
fn what_few_threads_do_is_left_to_groups() {
    let mut sample = Sample::one_in(3);
    let few = [
        "setp.ne.u32 %p1, %r1, 0;",
        "setp.ne.u32 %p1, %r1, %r3;",
        "sub.u32 %r21, %r31, 1; setp.ne.u32 %p1, %r1, %r21;",
        "setp.ge.u32 %p1, %r1, 9;",
        "setp.lt.u32 %p1, %r1, 37;",
        "setp.lt.u32 %p1, %r1, %r3; setp.ge.u32 %p2, %r1, 50; or.pred %p1, %p1, %p2;",
    ];
    let first = [
        "",
        "st.shared.u32 [%r23], %r24;",
        "mov.u32 %r25, 0; more: add.u32 %r24, %r24, %r35; add.u32 %r25, %r25, 1;
        setp.lt.u32 %p3, %r25, 3; @%p3 bra more;",
    ];
    let alone = [
        "red.global.add.u32 [%rd2], %r24; add.u32 %r24, %r24, 3;",
        "ld.volatile.global.u32 %r26, [%rd2+4]; add.u32 %r24, %r24, %r26; mov.u32 %r27, 1;",
        // In a loop, and for some of them.
        "mov.u32 %r25, 2; turn: red.shared.add.u32 [s+8000], %r24; sub.u32 %r25, %r25, 1;
        setp.eq.u32 %p4, %r35, 11; @%p4 bra on; setp.ne.u32 %p3, %r25, 0; @%p3 bra turn;
        add.u32 %r24, %r24, 5;",
    ];
    for few in few {
        for first in first {
            for alone in alone {
                if !sample.takes() {
                    continue;
                }
                the_same(
                    &format!(
                        "{FILL} mov.u32 %r27, 7; shl.b32 %r21, %r35, 2; mov.u32 %r22, s;
                        add.u32 %r23, %r22, %r21; xor.b32 %r21, %r21, 4; add.u32 %r22, %r22, %r21;
                        ld.shared.u32 %r24, [%r22]; bar.sync 0; {few} mad.lo.u32 %r24, %r24, 5, %r35;
                        {first} @%p1 bra on; {alone} on: mad.lo.u32 %r24, %r24, 3, %r27; bar.sync 0;
                        st.shared.u32 [%r23], %r24; bar.sync 0; ld.shared.u32 %r9, [%r22];
                        ld.shared.u32 %r28, [s+8000]; mad.lo.u32 %r9, %r9, 31, %r28;"
                    ),
                    &[0, 31, 40],
                );
            }
        }
    }
}
