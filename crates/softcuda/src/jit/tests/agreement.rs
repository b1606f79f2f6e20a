//! Branches on a comparison of a number that counts up from thread to thread: where the first
//! thread's tells what all threads do, and where the number may wrap on the way.

use super::forms::{kernel, run_module};
use crate::jit::harness::{load_as, module};
use crate::jit::module::Form;

/// Numbers that are known to be small, that are just so, and just not; and such that wrap.
const NUMBERS: [&str; 7] = [
    "mov.u32 %r10, %r1;",
    "and.b32 %r10, %r1, 31;",
    "mul.lo.u32 %r10, %r1, 3;",
    "add.u32 %r10, %r1, 2147482593;",
    "add.u32 %r10, %r1, 2147482594;",
    "sub.u32 %r10, %r1, 16;",
    "sub.u32 %r10, 40, %r1;",
];

const CONDITIONS: [&str; 6] = ["lt", "le", "gt", "ge", "eq", "ne"];

const BLOCKS: [[u32; 3]; 5] = [
    [32, 1, 1],
    [128, 1, 1],
    [1024, 1, 1],
    [40, 2, 1],
    [16, 4, 1],
];

/// What is compared with: small numbers, the limits of signs, and where the numbers above end.
const OTHERS: [u32; 22] = [
    0,
    1,
    7,
    8,
    9,
    24,
    31,
    32,
    33,
    40,
    96,
    97,
    1023,
    1024,
    2_147_482_593,
    2_147_482_601,
    2_147_482_625,
    2_147_483_616,
    i32::MAX as u32,
    1 << 31,
    0u32.wrapping_sub(16),
    u32::MAX,
];

/// A thread counts the conditions under which it goes on, in shared memory, between barriers or
/// without any.
fn counts(number: &str, ty: &str, operands: &str, wait: &str) -> String {
    let branches = CONDITIONS.iter().zip(1..).map(|(condition, bit)| {
        format!(
            "setp.{condition}.{ty} %p1, {operands}; @%p1 bra past{bit};
            ld.shared.u32 %r6, [%r5]; mad.lo.u32 %r6, %r6, 5, {bit}; st.shared.u32 [%r5], %r6;
            past{bit}: {wait}"
        )
    });
    format!(
        "{number} mov.u32 %r4, s; shl.b32 %r5, %r35, 2; add.u32 %r5, %r5, %r4;
        st.shared.u32 [%r5], %r35; {wait} {} ld.shared.u32 %r9, [%r5];",
        branches.collect::<String>()
    )
}

/// A kernel does in vectors what it does as fibers, in all blocks and beside all numbers.
#[track_caller]
fn agree(source: &str) {
    let [fibers, vectors] = [Form::Fibers, Form::Vectors].map(|form| load_as(source, form));
    for block in BLOCKS {
        for other in OTHERS {
            let [expected, got] = [&fibers, &vectors]
                .map(|module| run_module(module, [1, 1, 1], block, other).expect("all are inside"));
            let at = got.iter().zip(&expected).position(|(a, b)| a != b);
            assert_eq!(at, None, "{block:?} {other} {source}");
        }
    }
}

#[test]
fn threads_agree_where_they_do() {
    for number in NUMBERS {
        for (ty, operands) in [
            ("u32", "%r10, %r3"),
            ("s32", "%r10, %r3"),
            ("u32", "%r3, %r10"),
            ("s32", "%r3, %r10"),
        ] {
            for wait in ["bar.sync 0;", ""] {
                let body = counts(number, ty, operands, wait);
                agree(&kernel(&body));
            }
        }
    }
}

/// The same where a kernel begins with the branch: nothing is kept for its threads yet, and a
/// register that nobody wrote is 0.
#[test]
fn threads_agree_at_the_start() {
    let source = |number: &str, condition: &str, ty: &str, operands: &str| {
        module(&format!(
            ".visible .entry k(.param .u64 out, .param .u64 in, .param .u32 n)
            {{
                .reg .pred %p<2>; .reg .b32 %r<40>; .reg .b64 %rd<4>;
                ld.param.u32 %r3, [n]; mov.u32 %r1, %tid.x; {number}
                setp.{condition}.{ty} %p1, {operands}; @%p1 bra past;
                ld.param.u64 %rd1, [out]; mov.u32 %r4, %tid.y; mov.u32 %r5, %ntid.x;
                mad.lo.u32 %r4, %r4, %r5, %r1; mul.wide.u32 %rd2, %r4, 4;
                add.u64 %rd2, %rd1, %rd2; atom.global.add.u32 %r6, [%rd2], 7;
                add.u32 %r6, %r6, 1; st.global.u32 [%rd2+8192], %r6;
                past: bar.sync 0;
                ld.param.u64 %rd1, [out]; mov.u32 %r4, %tid.y; mov.u32 %r5, %ntid.x;
                mad.lo.u32 %r4, %r4, %r5, %r1; mul.wide.u32 %rd2, %r4, 4;
                add.u64 %rd2, %rd1, %rd2; ld.global.u32 %r6, [%rd2]; add.u32 %r6, %r6, %r1;
                st.global.u32 [%rd2], %r6; ret;
            }}"
        ))
    };
    for number in NUMBERS {
        for (ty, operands) in [
            ("u32", "%r10, %r3"),
            ("s32", "%r3, %r10"),
            ("s32", "%r10, %r11"),
        ] {
            for condition in CONDITIONS {
                agree(&source(number, condition, ty, operands));
            }
        }
    }
}
