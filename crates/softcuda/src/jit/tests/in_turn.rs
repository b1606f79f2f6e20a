//! Threads of a group that do a step in turn, what is asked out of line, and blocks whose rows are
//! not whole warps: the same in all forms.

use super::forms::{Outcome, difference, kernel, run, same};
use crate::grid::launch::FaultKind;
use crate::jit::harness;
use crate::jit::module::Form;

const BLOCKS: [[u32; 3]; 5] = [[8, 1, 1], [40, 1, 1], [64, 1, 1], [16, 4, 1], [32, 2, 1]];

/// Which threads do the step, by their numbers in the row modulo 32.
const WHO: [u32; 7] = [
    0,
    1,
    0x80,
    0x8000_0100,
    0x5555_5555,
    0xffff_fffe,
    0xffff_ffff,
];

/// `%p1`: the thread does the step; `%r10`: a number below 64, another one for each of 64 threads;
/// `%rd5`: the word of `in` with that number.
const BEGIN: &str = "and.b32 %r11, %r1, 31; shr.u32 %r11, %r3, %r11; and.b32 %r11, %r11, 1;
    setp.ne.u32 %p1, %r11, 0;
    mul.lo.u32 %r10, %r1, 5; add.u32 %r10, %r10, 3; and.b32 %r10, %r10, 63;
    mul.wide.u32 %rd5, %r10, 4; add.u64 %rd5, %rd2, %rd5;";

/// Bodies that are the same but for a wait, which makes them run in rounds.
fn both(body: &str) -> [String; 2] {
    [
        format!("{BEGIN} {body}"),
        format!("{BEGIN} bar.sync 0; {body}"),
    ]
}

fn all(body: &str) {
    for body in both(body) {
        for block in BLOCKS {
            for who in WHO {
                same(&body, block, who).expect("nothing faults");
            }
        }
    }
}

#[test]
fn what_is_loaded_takes_its_index_s_place() {
    all("@%p1 ld.global.u32 %r10, [%rd5]; mov.u32 %r9, %r10;");
    all(
        "@%p1 ld.global.u32 %r10, [%rd5]; @%p1 xor.b32 %r10, %r10, %r1;
        and.b32 %r10, %r10, 63; mul.wide.u32 %rd5, %r10, 4; add.u64 %rd5, %rd2, %rd5;
        @!%p1 ld.global.u32 %r10, [%rd5]; mov.u32 %r9, %r10;",
    );
}

#[test]
fn who_does_not_load_keeps_what_it_has() {
    all(
        "and.b32 %r10, %r10, 62; mul.wide.u32 %rd5, %r10, 4; add.u64 %rd5, %rd2, %rd5;
        cvt.u64.u32 %rd6, %r2; @%p1 ld.global.u64 %rd6, [%rd5];
        mov.u32 %r12, %r1; mov.u32 %r13, 7; @%p1 ld.global.v2.u32 {%r12, %r13}, [%rd5];
        shr.u64 %rd7, %rd6, 32; cvt.u32.u64 %r14, %rd7; cvt.u32.u64 %r15, %rd6;
        mad.lo.u32 %r9, %r14, 3, %r15; mad.lo.u32 %r9, %r9, 3, %r12;
        mad.lo.u32 %r9, %r9, 3, %r13;",
    );
    all("cvt.rn.f32.u32 %f1, %r1; @%p1 ld.global.f32 %f1, [%rd5]; mov.b32 %r9, %f1;");
    all("mov.u32 %r9, 1000; @%p1 ld.global.s8 %r9, [%rd5+1];");
}

/// Several threads change one word: in their order, where no thread waits; else, all of them do.
#[test]
fn words_that_threads_change_in_turn() {
    let word = "and.b32 %r12, %r10, 3; mul.wide.u32 %rd6, %r12, 4; add.u64 %rd6, %rd2, %rd6;";
    for step in [
        "mov.u32 %r9, 5; @%p1 atom.global.add.u32 %r9, [%rd6], %r2;",
        "@%p1 st.global.u32 [%rd6], %r2;",
    ] {
        for block in BLOCKS {
            for who in WHO {
                let body = format!("{BEGIN} {word} {step}");
                same(&body, block, who).expect("nothing faults");
            }
        }
    }
    let shared = "mov.u32 %r20, s; shl.b32 %r21, %r35, 2; add.u32 %r21, %r20, %r21;
        st.shared.u32 [%r21], %r1; bar.sync 0;
        and.b32 %r12, %r10, 3; shl.b32 %r12, %r12, 2; add.u32 %r12, %r20, %r12;";
    for step in [
        "@%p1 atom.shared.add.u32 %r14, [%r12], %r2;",
        "@%p1 red.shared.max.u32 [%r12], %r2;",
    ] {
        all(&format!(
            "{shared} {step} bar.sync 0; ld.shared.u32 %r9, [%r21];"
        ));
    }
}

/// Of the threads that are to access something, one is wrong: it is named, in any row.
#[test]
fn a_thread_in_turn_faults_by_itself() {
    for (wrong, row) in [(0u32, 0), (1, 0), (3, 1), (7, 3), (9, 2), (15, 3)] {
        for who in [1u32 << wrong, u32::MAX, 0xffff_fffe << wrong | 1 << wrong] {
            for (by, kind) in [
                ("0x20000000", FaultKind::IllegalAddress),
                ("2", FaultKind::Misaligned),
            ] {
                for body in both(&format!(
                    "setp.eq.u32 %p2, %r1, {wrong}; setp.eq.and.u32 %p2, %r30, {row}, %p2;
                    @%p2 add.u64 %rd5, %rd5, {by}; @%p1 ld.global.u32 %r9, [%rd5];"
                )) {
                    let end = same(&body, [16, 4, 1], who);
                    assert_eq!(
                        end,
                        Err((kind, [0; 3], Some([wrong, row, 0]))),
                        "{who:x} {by}"
                    );
                }
            }
        }
    }
}

/// The same where the index alone is wrong, and what is loaded takes its place; also in a branch.
#[test]
fn an_index_that_its_load_replaces_is_checked() {
    let load = "mul.wide.u32 %rd5, %r10, 4; add.u64 %rd5, %rd2, %rd5;
        ld.global.u32 %r10, [%rd5]; mov.u32 %r9, %r10;";
    let branch = format!("@!%p1 bra past; {load} past:");
    for wrong in [0u32, 3, 8, 13, 15] {
        for load in [load, &branch] {
            for body in both(&format!(
                "setp.eq.u32 %p2, %r1, {wrong}; setp.eq.and.u32 %p2, %r30, 2, %p2;
                @%p2 add.u32 %r10, %r10, 0x8000000; {load}"
            )) {
                let fault = Err((FaultKind::IllegalAddress, [0; 3], Some([wrong, 2, 0])));
                for who in [1 << wrong, 0xaaaa_aaaa | 1 << wrong, u32::MAX] {
                    assert_eq!(same(&body, [16, 4, 1], who), fault, "{who:x}");
                }
            }
        }
    }
}

/// A parameter's pointer leads into another allocation, below or above its own: each access passes,
/// also after others that did, and one beyond the end faults all the same.
#[test]
fn pointers_that_lead_into_another_allocation() {
    let elsewhere = "sub.s64 %rd6, %rd1, %rd2; shr.s64 %rd6, %rd6, 2; cvt.u32.u64 %r12, %rd6;";
    for shift in [0, 1000] {
        let body = format!(
            "{elsewhere} add.s32 %r12, %r12, %r2; add.s32 %r12, %r12, 2048;
            mov.u32 %r13, 0;
            again: mul.wide.s32 %rd7, %r12, 4; add.s64 %rd7, %rd2, %rd7;
            st.global.u32 [%rd7], %r13; ld.global.u32 %r14, [%rd7]; add.u32 %r9, %r9, %r14;
            add.s32 %r12, %r12, {shift}; add.u32 %r13, %r13, 1; setp.lt.u32 %p3, %r13, 2;
            @%p3 bra again;"
        );
        for body in both(&body) {
            for block in BLOCKS {
                same(&body, block, 0).expect("nothing faults");
            }
        }
    }
    for body in both(&format!(
        "{elsewhere} add.s32 %r12, %r12, %r2; setp.eq.u32 %p2, %r2, 21;
        mov.u32 %r13, 0;
        again: mul.wide.s32 %rd7, %r12, 4; add.s64 %rd7, %rd2, %rd7;
        @%p2 add.u64 %rd7, %rd7, %rd8; ld.global.u32 %r14, [%rd7]; add.u32 %r9, %r9, %r14;
        mov.u64 %rd8, 0x20000000; add.u32 %r13, %r13, 1; setp.lt.u32 %p3, %r13, 2;
        @%p3 bra again;"
    )) {
        let (kind, _, thread) = same(&body, [64, 1, 1], 0).expect_err("the second turn is wrong");
        assert_eq!(
            (kind, thread),
            (FaultKind::IllegalAddress, Some([21, 0, 0]))
        );
    }
}

/// Products and sums that are rounded down or up, with a constant that the result is near to, or
/// not: by a function where they are not, and never otherwise than with what is no constant.
#[test]
fn rounding_near_a_constant_and_far_from_it() {
    let numbers = [
        "0f4B400001", // 12582913, what CUDA's `expf` adds
        "0f3F800000", // 1
        "0fBF800000",
        "0f00000000",
        "0f80000000",
        "0f00000001",
        "0f7F7FFFFF",
        "0f7F800000",
        "0f7FC00000",
    ];
    for mode in ["rm", "rp"] {
        for (at, number) in numbers.iter().enumerate() {
            let body = format!(
                "ld.global.u32 %r12, [%rd5]; xor.b32 %r13, %r12, 0x5a5a5a5a;
                setp.gt.u32 %p2, %r1, 20; @%p2 and.b32 %r12, %r12, 0x43ffffff;
                @%p2 or.b32 %r13, %r13, 0x3f000000; @%p2 and.b32 %r13, %r13, 0x3f8fffff;
                setp.eq.u32 %p2, %r1, 5; @%p2 mov.u32 %r12, 0x80000000;
                mov.b32 %f1, %r12; mov.b32 %f2, %r13;
                fma.{mode}.f32 %f3, %f1, %f2, {number};
                mov.u32 %r14, 0x{}; setp.eq.u32 %p3, %r3, 12345; @%p3 mov.u32 %r14, 3;
                mov.b32 %f4, %r14; fma.{mode}.f32 %f5, %f1, %f2, %f4;
                mov.b32 %r15, %f3; mov.b32 %r16, %f5; xor.b32 %r17, %r15, %r16;
                st.global.u32 [%rd3+8192], %r17; mov.u32 %r9, %r15;",
                &number[2..]
            );
            for body in both(&body) {
                for block in [[8, 1, 1], [64, 1, 1]] {
                    let words = same(&body, block, at as u32).expect("nothing faults");
                    let differ = words[2048..2048 + block[0] as usize]
                        .iter()
                        .position(|it| *it != 0);
                    assert_eq!(differ, None, "{mode} {number} {block:?}");
                }
            }
        }
    }
}

/// Shuffles and votes in blocks of any shape, one after the other, by one module.
#[test]
fn rows_that_are_no_whole_warps() {
    let body = "mov.u32 %r12, %r1; mov.u32 %r13, 16;
        again: shfl.sync.down.b32 %r14|%p2, %r12, %r13, 31, 0xffffffff; add.u32 %r12, %r12, %r14;
        shr.u32 %r13, %r13, 1; setp.ne.u32 %p3, %r13, 0; @%p3 bra again;
        mov.u32 %r15, %laneid;
        shfl.sync.bfly.b32 %r16, %r2, 1, 31, 0xffffffff;
        shfl.sync.up.b32 %r17|%p4, %r16, 2, 0, 0xffffffff; @%p4 add.u32 %r16, %r16, %r17;
        shfl.sync.up.b32 %r17|%p4, %r16, 4, 0, 0xffffffff; @%p4 add.u32 %r16, %r16, %r17;
        setp.gt.u32 %p5, %r16, 40; vote.sync.ballot.b32 %r18, %p5, 0xffffffff;
        setp.eq.u32 %p6, %r15, 0; @%p6 add.u32 %r12, %r12, %r18;
        mad.lo.u32 %r9, %r12, 31, %r16; xor.b32 %r9, %r9, %r18;";
    let source = kernel(body);
    let blocks = [
        [32, 1, 1],
        [48, 1, 1],
        [16, 2, 1],
        [64, 2, 1],
        [8, 8, 1],
        [100, 1, 1],
        [16, 3, 1],
        [96, 1, 2],
        [7, 1, 1],
    ];
    let ends = |form, blocks: &mut dyn Iterator<Item = [u32; 3]>| -> Vec<Outcome> {
        blocks
            .map(|block| run(&source, form, [2, 1, 1], block, 0))
            .collect()
    };
    let expected = ends(Form::Fibers, &mut blocks.into_iter());
    for form in [Form::Vectors, Form::Rounds] {
        let there = ends(form, &mut blocks.into_iter());
        let mut back = ends(form, &mut blocks.into_iter().rev());
        back.reverse();
        for got in [there, back] {
            for ((got, expected), block) in got.iter().zip(&expected).zip(blocks) {
                assert!(
                    got == expected,
                    "{form:?} {block:?}: {}",
                    difference(got, expected)
                );
            }
        }
    }
}

/// Who shuffles has code for blocks whose rows are whole warps, and, once it is asked for, for
/// others; who does not has one code for all.
#[test]
fn kernels_that_shuffle_have_code_for_other_rows() {
    let shuffles = kernel("shfl.sync.bfly.b32 %r9, %r1, 1, 31, 0xffffffff;");
    let waits = kernel("bar.sync 0; mov.u32 %r9, %r1;");
    for (source, form, more) in [
        (&shuffles, Form::Vectors, true),
        (&shuffles, Form::Rounds, false),
        (&waits, Form::Vectors, false),
    ] {
        let module = harness::load_as(source, form);
        let kernel = module.kernel("k").expect("it is there");
        let entry = |block| kernel.compile_for(block).expect("it compiles").entry as usize;
        let usual = entry([64, 2, 1]);
        assert_eq!(
            kernel.compile().expect("it compiles").entry as usize,
            usual,
            "{form:?}"
        );
        assert_eq!(entry([32, 1, 1]), usual, "{form:?}");
        assert_eq!(entry([16, 2, 1]) != usual, more, "{form:?}");
        assert_eq!(entry([48, 1, 1]), entry([16, 2, 1]), "{form:?}");
    }
    let required = shuffles.replace("n)\n        {", "n) .reqntid 16, 16, 1\n        {");
    assert_ne!(required, shuffles);
    let module = harness::load(&required);
    let kernel = module.kernel("k").expect("it is there");
    let [asked, usual] = [kernel.compile(), kernel.compile_for([16, 16, 1])];
    let entry = |compiled: Result<crate::jit::module::Compiled, _>| {
        let compiled: Result<_, crate::jit::compile::CompileError> = compiled;
        compiled.expect("it compiles").entry as usize
    };
    assert_eq!(entry(asked), entry(usual));
}
