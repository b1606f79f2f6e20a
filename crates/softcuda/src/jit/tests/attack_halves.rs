//! Attacks on the arithmetic of halves in vectors: every result is the exact one, rounded once, and
//! what is not done by the processor's conversions is as in the form of one thread.

use std::fmt::Write as _;
use std::sync::Arc;

use super::forms::{kernel, run_module};
use super::fuzz::{Random, run_cases, setting};
use crate::jit::harness::{self, buffer};
use crate::jit::module::{Form, Module};

/// Cases of a plain `cargo test`, and of a whole run the part that is run here.
const DEFAULT_CASES: u64 = 12;
const SHARE: u64 = 20;
/// Words of each buffer.
const WORDS: usize = 4096;
/// Words of each thread.
const EACH: usize = 32;

const OPERATIONS: [(&str, usize); 4] = [("add", 2), ("sub", 2), ("mul", 2), ("fma.rn", 3)];
const NAN: u16 = 0x7fff;

/// What is not to take the new path, or to take it for some threads alone.
const OTHERS: [&str; 13] = [
    "add.ftz.f16x2 %o, %a, %b;",
    "sub.sat.f16x2 %o, %a, %b;",
    "mul.ftz.sat.f16x2 %o, %a, %b;",
    "fma.rn.ftz.f16x2 %o, %a, %b, %c;",
    "fma.rn.sat.f16x2 %o, %a, %b, %c;",
    "fma.rn.relu.f16x2 %o, %a, %b, %c;",
    "fma.rn.bf16x2 %o, %a, %b, %c;",
    "mul.bf16x2 %o, %a, %b;",
    "mov.u32 %o, %c; @%p2 add.f16x2 %o, %a, %b;",
    "mov.u32 %o, %c; @!%p2 fma.rn.f16x2 %o, %o, %a, %o;",
    "mov.u32 %o, 9; mul.f16x2 %o, %a, %u;",
    "fma.rn.f16x2 %o, %a, 0x3c003c00, %u;",
    "mov.b32 {%h3, %h4}, %a; sub.f16 %h3, %h4, %h3; mov.b32 %o, {%h3, %h4};",
];

/// Half a number in units of `2^-48`.
fn units(half: u16) -> i128 {
    let (exponent, fraction) = (i32::from(half >> 10 & 31), i128::from(half & 0x3ff));
    let magnitude = match exponent {
        0 => fraction << 24,
        _ => (fraction + 1024) << (23 + exponent),
    };
    if half & 0x8000 != 0 {
        -magnitude
    } else {
        magnitude
    }
}

/// The nearest half of so many units, ties to even; zero has a sign.
fn nearest(units: i128, negative_zero: bool) -> u16 {
    let sign = if units < 0 || units == 0 && negative_zero {
        0x8000
    } else {
        0
    };
    let magnitude = units.unsigned_abs();
    let shift = magnitude
        .checked_ilog2()
        .map_or(24, |log2| log2.max(34) - 10);
    let (kept, rest) = (magnitude >> shift, magnitude & ((1 << shift) - 1));
    let half = 1 << (shift - 1);
    let kept = kept + u128::from(rest > half || rest == half && kept & 1 == 1);
    // A carry goes to the exponent.
    let bits = kept + (u128::from(shift - 24) << 10);
    sign | bits.min(0x7c00) as u16
}

fn is_finite(half: u16) -> bool {
    half >> 10 & 31 != 31
}

/// What an operation gives, from exact numbers.
fn exact(operation: &str, a: u16, b: u16, c: u16) -> u16 {
    let (a, b, c) = match operation {
        "add" => (a, 0x3c00, b),
        "sub" => (a, 0x3c00, b ^ 0x8000),
        "mul" => (a, b, (a ^ b) & 0x8000),
        _ => (a, b, c),
    };
    let (sign, plus) = ((a ^ b) & 0x8000, c & 0x8000);
    if [a, b, c].into_iter().all(is_finite) {
        // In the same units: halves are whole in units of 2^-24.
        let sum = (units(a) >> 24) * (units(b) >> 24) + units(c);
        return nearest(sum, sign != 0 && plus != 0);
    }
    let is_nan = |half: u16| half & 0x7fff > 0x7c00;
    let infinite = !(is_finite(a) && is_finite(b));
    let no_product = infinite && (a & 0x7fff == 0 || b & 0x7fff == 0);
    let opposite = infinite && !is_finite(c) && sign != plus;
    match [a, b, c].into_iter().any(is_nan) || no_product || opposite {
        true => NAN,
        false => 0x7c00 | if infinite { sign } else { plus },
    }
}

/// Halves at the edges often, and otherwise any.
fn half(random: &mut Random) -> u16 {
    let bits = random.below(0x10000) as u16;
    const EDGES: [u16; 16] = [
        0, 1, 2, 0x3ff, 0x400, 0x401, 0x7bff, 0x7bfe, 0x7c00, 0x7c01, 0x7e00, 0x7fff, 0x3c00,
        0x3c01, 0x1400, 0x0c00,
    ];
    match random.below(6) {
        0 => bits & 0x83ff,
        1 | 2 => bits & 0x8000 | EDGES[random.below(16)],
        3 => bits & 0xfc03,
        _ => bits,
    }
}

/// A kernel that does all operations, of `steps` more, in threads that do not skip them.
fn body(waits: bool, skips: bool, more: usize) -> String {
    let mut text = format!(
        "{} .reg .b32 %a, %b, %c, %u, %o; .reg .b16 %h<8>;
        and.b32 %r4, %r35, 127; mul.wide.u32 %rd5, %r4, 16; add.u64 %rd5, %rd2, %rd5;
        ld.global.u32 %a, [%rd5]; ld.global.u32 %b, [%rd5+4]; ld.global.u32 %c, [%rd5+8];
        ld.global.u32 %u, [%rd2+12]; mul.wide.u32 %rd6, %r4, {}; add.u64 %rd6, %rd1, %rd6;
        setp.gt.u32 %p2, %a, %b;\n",
        "mov.u32 %r39, 7;\n".repeat(more),
        4 * EACH
    );
    if waits {
        text += "bar.sync 0;\n";
    }
    if skips {
        text += "and.b32 %r6, %a, 3; setp.eq.u32 %p1, %r6, %r3; @%p1 bra past;\n";
    }
    let mut at = 0;
    let mut store = |text: &mut String| {
        let _ = writeln!(text, "st.global.u32 [%rd6+{at}], %o;");
        at += 4;
    };
    for (operation, operands) in OPERATIONS {
        let packed = ["%a", "%b", "%c"][..operands].join(", ");
        let _ = writeln!(text, "{operation}.f16x2 %o, {packed};");
        store(&mut text);
        let single = ["%h0", "%h1", "%h2"][..operands].join(", ");
        let _ = writeln!(
            text,
            "cvt.u16.u32 %h0, %a; cvt.u16.u32 %h1, %b; cvt.u16.u32 %h2, %c;
            {operation}.f16 %h5, {single}; cvt.u32.u16 %o, %h5;"
        );
        store(&mut text);
    }
    for other in OTHERS {
        let _ = writeln!(text, "{other}");
        store(&mut text);
    }
    if skips {
        text += "past:\n";
    }
    if waits {
        text += "bar.sync 0;\n";
    }
    // The thread's own word was the first of another's row.
    text + "ld.global.u32 %r9, [%rd3];"
}

fn launch(module: &Arc<Module>, block: [u32; 3], n: u32, words: &[u32]) -> Vec<u32> {
    let (mut out, mut words) = (vec![0u32; WORDS], words.to_vec());
    let buffers: &mut [&mut [u8]] = &mut [buffer(&mut out), buffer(&mut words)];
    harness::run_in(
        module,
        "k",
        [1, 1, 1],
        block,
        0,
        buffers,
        &[&n.to_le_bytes()],
    )
    .expect("nothing faults");
    out
}

#[test]
fn every_result_is_rounded_once() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    let mut all = vec![];
    for (waits, skips) in [(false, false), (true, false), (false, true), (true, true)] {
        let load = |form, more| harness::load_as(&kernel(&body(waits, skips, more)), form);
        all.push((
            skips,
            load(Form::Rounds, 0),
            [0, 1, 4, 5].map(|more| load(Form::Vectors, more)),
        ));
    }
    run_cases(cases, |_, random, _| {
        let words: Vec<u32> = (0..512)
            .map(|_| u32::from(half(random)) | u32::from(half(random)) << 16)
            .collect();
        for (skips, rounds, vectors) in &all {
            for block in [[32, 1, 1], [16, 8, 1], [33, 1, 1], [24, 1, 1]] {
                let n = random.below(4) as u32;
                let expected = launch(rounds, block, n, &words);
                let threads = block.iter().product::<u32>() as usize;
                for thread in 0..threads.min(128) {
                    let [a, b, c] = [0, 1, 2].map(|at| words[4 * thread + at]);
                    for (at, (operation, _)) in OPERATIONS.into_iter().enumerate() {
                        let of = |by: u32| {
                            exact(
                                operation,
                                (a >> by) as u16,
                                (b >> by) as u16,
                                (c >> by) as u16,
                            )
                        };
                        let got = expected[EACH * thread + 2 * at];
                        let want = u32::from(of(0)) | u32::from(of(16)) << 16;
                        let skipped = *skips && a & 3 == n;
                        if !skipped && got != want {
                            return Err(format!(
                                "{operation} {a:x} {b:x} {c:x}: {got:x} for {want:x}"
                            ));
                        }
                    }
                }
                for (at, module) in vectors.iter().enumerate() {
                    let got = launch(module, block, n, &words);
                    if let Some(word) = got.iter().zip(&expected).position(|(a, b)| a != b) {
                        let inputs = &words[word / EACH * 4..][..3];
                        return Err(format!(
                            "form {at} {block:?} n={n}: word {} of {inputs:x?}: {:x} for {:x}",
                            word % EACH,
                            got[word],
                            expected[word]
                        ));
                    }
                }
            }
        }
        Ok(())
    });
}

/// All halves, and singles about the middles between them, in vectors as one at a time.
#[test]
fn vectors_of_all_halves() {
    let halves = "cvt.u16.u32 %h0, %r10; add.u32 %r13, %r10, %r11; cvt.u16.u32 %h1, %r13;
        mov.b32 %q0, {%h0, %h1}; mov.b32 %q1, {%h1, %h0};";
    let singles = "shl.b32 %r12, %r10, 16; or.b32 %r13, %r12, %r11; mov.b32 %f0, %r13;
        xor.b32 %r13, %r13, 0x80001000; mov.b32 %f1, %r13;";
    let bodies = [
        (halves, "cvt.f32.f16 %f2, %h0; mov.b32 %r14, %f2;"),
        (halves, "cvt.ftz.f32.f16 %f2, %h0; mov.b32 %r14, %f2;"),
        (halves, "cvt.f32.bf16 %f2, %h0; mov.b32 %r14, %f2;"),
        (halves, "add.f16x2 %r14, %q0, %q1;"),
        (halves, "sub.f16x2 %r14, %q0, %q1;"),
        (halves, "mul.f16x2 %r14, %q0, 0x3c003800;"),
        (halves, "fma.rn.f16x2 %r14, %q0, %q1, %q0;"),
        (halves, "fma.rn.bf16x2 %r14, %q0, %q1, %q0;"),
        (halves, "fma.rn.bf16x2 %r14, %q0, 0x3f803f80, %q1;"),
        (halves, "add.f16 %h2, %h0, %h1; cvt.s32.s16 %r14, %h2;"),
        (halves, "cvt.rn.bf16.f16 %h2, %h0; cvt.s32.s16 %r14, %h2;"),
        (halves, "cvt.rni.s32.f16 %r14, %h0;"),
        (singles, "cvt.rn.f16.f32 %h2, %f0; cvt.s32.s16 %r14, %h2;"),
        (
            singles,
            "cvt.rn.relu.f16.f32 %h2, %f0; cvt.s32.s16 %r14, %h2;",
        ),
        (singles, "cvt.rn.f16x2.f32 %r14, %f0, %f1;"),
        (singles, "cvt.rn.bf16x2.f32 %r14, %f0, %f1;"),
    ];
    for (made, text) in bodies {
        // With a step more, vectors go the other way in tests.
        let source = |more: &str| {
            kernel(&format!(
                ".reg .b16 %h<4>; .reg .b32 %q<4>; {more} mov.u32 %r11, %r3; mov.u32 %r10, %r1;
                again: {made} {text} mad.lo.u32 %r9, %r9, 31, %r14; add.u32 %r10, %r10, 40;
                setp.lt.u32 %p1, %r10, 65536; @%p1 bra again;"
            ))
        };
        let one_at_a_time = harness::load_as(&source(""), Form::Fibers);
        let vectors =
            ["", "mov.u32 %r39, 7;"].map(|more| harness::load_as(&source(more), Form::Vectors));
        for n in [
            0, 1, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff,
        ] {
            let run = |module| run_module(module, [1, 1, 1], [40, 1, 1], n);
            let expected = run(&one_at_a_time);
            for module in &vectors {
                assert!(run(module) == expected, "{n:#x} {text}");
            }
        }
    }
}
