//! Loads of neighbouring words, one a step, are done together where nobody could tell.

use super::forms::{kernel, run_module, same};
use super::fuzz::{Random, run_cases, setting};
use crate::grid::launch::FaultKind;
use crate::jit::harness::{self, load_as};
use crate::jit::module::Form;

/// Threads of a block whose words all lie in the buffer.
const BLOCKS: [[u32; 3]; 5] = [[8, 1, 1], [24, 1, 1], [32, 1, 1], [64, 1, 1], [16, 4, 1]];

/// Where the threads' words begin in memory, behind what they leave.
const BEGIN: i32 = 4096;

/// Each thread's place in memory, `stride` from the last one's: `%rd4` in global memory, and `%r14`
/// in shared memory, where there is the same.
fn begin(stride: u32) -> String {
    let mut text = format!(
        "mad.lo.u32 %r13, %r30, %r31, %r1; mul.lo.u32 %r14, %r13, {stride};
        mul.wide.u32 %rd4, %r13, {stride}; add.u64 %rd4, %rd1, %rd4; add.u64 %rd4, %rd4, {BEGIN};
        mov.u32 %r15, s; add.u32 %r14, %r14, %r15; mul.lo.u32 %r18, %r13, 77;\n"
    );
    for at in (0..stride).step_by(4) {
        text += &format!(
            "add.u32 %r18, %r18, 0x3f000000; st.global.u32 [%rd4+{at}], %r18;
            st.shared.u32 [%r14+{at}], %r18;\n"
        );
    }
    text + "bar.sync 0;\n"
}

/// Loads, stores and sums in any order.
fn body(random: &mut Random) -> String {
    let stride = [8, 16, 16, 12, 32][random.below(5)];
    let space = ["global", "shared", "shared"][random.below(3)];
    let at = if space == "global" { "%rd4" } else { "%r14" };
    let registers = ["%r4", "%r5", "%r6", "%r7", "%r8", "%f1", "%f2"];
    let mut text = begin(stride);
    text += "setp.lt.u32 %p1, %r13, %r3;\n";
    for _ in 0..4 + random.below(14) {
        let (to, from) = (registers[random.below(7)], registers[random.below(7)]);
        // Its own words: what others do meanwhile is chance.
        let offset = 4 * random.below(stride as usize / 4);
        let ty = |register: &str| {
            if register.starts_with("%f") {
                "f32"
            } else {
                "u32"
            }
        };
        text += &match random.below(12) {
            0 => format!("st.{space}.{} [{at}+{offset}], {from};\n", ty(from)),
            1 if ty(to) == "u32" => format!("add.u32 {to}, {to}, %r13;\n"),
            1 => format!("mov.b32 {to}, %r13;\n"),
            2 => format!("mov.b32 %r12, {from}; mad.lo.u32 %r9, %r9, 31, %r12;\n"),
            3 => format!("@%p1 ld.{space}.{} {to}, [{at}+{offset}];\n", ty(to)),
            4 => {
                format!("atom.{space}.add.u32 %r12, [{at}+{offset}], 3; add.u32 %r9, %r9, %r12;\n")
            }
            5 => "bar.sync 0;\n".to_owned(),
            // All words, in one order or another.
            6 | 7 => {
                let order = [[0, 4, 8, 12], [4, 0, 12, 8], [12, 8, 4, 0], [0, 8, 4, 4]];
                let order = order[random.below(4)];
                let order = order.iter().filter(|by| **by < stride);
                let loads = order.zip(["%r4", "%f1", "%r6", "%r7"]);
                loads
                    .map(|(by, to)| format!("ld.{space}.{} {to}, [{at}+{by}];\n", ty(to)))
                    .collect()
            }
            _ => format!("ld.{space}.{} {to}, [{at}+{offset}];\n", ty(to)),
        };
    }
    for register in registers {
        text += &format!("mov.b32 %r12, {register}; mad.lo.u32 %r9, %r9, 31, %r12;\n");
    }
    text
}

#[test]
fn in_any_order() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").unwrap_or(60);
    run_cases(cases, |_, random, _| {
        let body = "mov.u32 %r4, 1; mov.u32 %r5, 2; mov.u32 %r6, 3; mov.u32 %r7, 4; mov.u32 %r8, 5;
            mov.f32 %f1, 0f40c00000; mov.f32 %f2, 0f40e00000;"
            .to_owned()
            + &body(random);
        let block = BLOCKS[random.below(BLOCKS.len())];
        same(&body, block, random.below(70) as u32).unwrap();
        Ok(())
    });
}

/// Registers of more than a group's vectors can hold are computed in slices, from such loads.
#[test]
fn in_slices() {
    let mut body = begin(16);
    for register in 0..24 {
        body += &format!(".reg .f32 %s{register}; mov.f32 %s{register}, 0f3f800000;\n");
    }
    for turn in 0..4 {
        for word in [0, 4, 8, 12] {
            body += &format!(
                "ld.shared.f32 %f{}, [%r14+{word}];\n",
                (word / 4 + turn) % 4
            );
        }
        for register in 0..24 {
            let by = register % 4;
            body += &format!("fma.rn.f32 %s{register}, %f{by}, 0f3f000000, %s{register};\n");
        }
    }
    for register in 0..24 {
        body += &format!("mov.b32 %r12, %s{register}; mad.lo.u32 %r9, %r9, 31, %r12;\n");
    }
    for block in BLOCKS {
        same(&body, block, 0).unwrap();
    }
}

/// The last thread's words are the first that are outside: the fault is its own, in all forms.
#[test]
fn words_outside_are_their_threads() {
    for (stride, words) in [(16, 4), (8, 2)] {
        for outside in 1..=words {
            // 4,096 words, the end of which is behind these of the last of 32 threads.
            let first = 4096 * 4 - BEGIN - 31 * stride - 4 * (words - outside);
            let loads = (0..words).map(|word| {
                format!(
                    "ld.global.u32 %r{}, [%rd4+{}];",
                    4 + word,
                    first + 4 * word - 4
                )
            });
            let sum = (0..words).map(|word| format!("add.u32 %r9, %r9, %r{};", 4 + word));
            let body = begin(stride as u32) + &loads.collect::<String>() + &sum.collect::<String>();
            let end = same(&body, [32, 1, 1], 0);
            match outside {
                1 => _ = end.expect("all are inside"),
                _ => {
                    let (kind, _, thread) = end.expect_err("one is outside");
                    assert_eq!(kind, FaultKind::IllegalAddress);
                    assert_eq!(thread, Some([31, 0, 0]));
                }
            }
        }
    }
}

/// Nothing comes behind the loads, not even `ret`.
#[test]
fn at_the_end_of_a_kernel() {
    let source = harness::module(
        ".visible .entry k(.param .u64 out)
        {
            .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p;
            ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x;
            mul.wide.u32 %rd2, %r1, 16; add.u64 %rd1, %rd1, %rd2;
            st.global.u32 [%rd1], %r1;
            ld.global.u32 %r2, [%rd1]; ld.global.u32 %r3, [%rd1+4];
            ld.global.u32 %r4, [%rd1+8]; ld.global.u32 %r5, [%rd1+12];
        }",
    );
    for form in [Form::Vectors, Form::Rounds] {
        let mut out = vec![7u32; 4 * 32];
        let buffers: &mut [&mut [u8]] = &mut [harness::buffer(&mut out)];
        let module = harness::load_as(&source, form);
        harness::run_in(&module, "k", [1, 1, 1], [32, 1, 1], 0, buffers, &[]).unwrap();
        assert_eq!(out[4 * 31..], [31, 7, 7, 7]);
    }
}

/// Four loads of a word are one of four: there is less code.
#[test]
fn four_words_are_one_load() {
    let bytes = |stride: u32| {
        let source = kernel(&format!(
            "{} ld.shared.f32 %f1, [%r14]; ld.shared.f32 %f2, [%r14+4];
            ld.shared.f32 %f3, [%r14+8]; ld.shared.f32 %f4, [%r14+12];
            add.f32 %f1, %f1, %f2; add.f32 %f1, %f1, %f3; add.f32 %f1, %f1, %f4;
            mov.b32 %r9, %f1;",
            begin(stride)
        ));
        let module = load_as(&source, Form::Vectors);
        run_module(&module, [1, 1, 1], [32, 1, 1], 0).unwrap();
        let kernel = module.kernel("k").expect("it is there");
        kernel.compile_cost().expect("it is compiled").1
    };
    assert!(bytes(16) < bytes(32));
}
