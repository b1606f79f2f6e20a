//! Values of 8 and 16 bits in groups: they lie in words, and go to and from memory side by side.

use super::forms::{kernel, run, same};
use crate::grid::launch::FaultKind;
use crate::jit::module::Form;

/// The bytes of the buffer that kernels read.
const BYTES: u32 = 256;

/// Types in memory, and the type and name of the register.
const KINDS: [(&str, u32, &str, &str); 8] = [
    ("u8", 1, ".b16", "%h"),
    ("s8", 1, ".b16", "%h"),
    ("u16", 2, ".b16", "%h"),
    ("s16", 2, ".b16", "%h"),
    ("u8", 1, ".b32", "%v"),
    ("s8", 1, ".b32", "%v"),
    ("u16", 2, ".b32", "%v"),
    ("s16", 2, ".b32", "%v"),
];

/// What a register holds, as a word that shows all of its bits.
fn shown(register: &str) -> &'static str {
    match register {
        "%h" => "mov.b32 %r9, {%h, %h}; cvt.s32.s16 %r10, %h; xor.b32 %r9, %r9, %r10;",
        _ => "mov.b32 %r9, %v;",
    }
}

/// Two versions of a kernel: its steps are odd in number, and even. What groups do follows from
/// that in tests.
fn versions(body: &str) -> [String; 4] {
    [
        "",
        "mov.u32 %r20, 1;",
        "mov.u32 %r20, 1; mov.u32 %r21, 1;",
        "mov.u32 %r20, 1; mov.u32 %r21, 1; mov.u32 %r22, 1;",
    ]
    .map(|more| format!("{more}{body}"))
}

#[test]
fn what_is_loaded_is_extended() {
    for (ty, size, kind, register) in KINDS {
        let shown = shown(register);
        for body in versions(&format!(
            ".reg {kind} {register}; mul.wide.u32 %rd4, %r1, {size}; add.u64 %rd4, %rd2, %rd4;
            ld.global.{ty} {register}, [%rd4+8]; {shown}"
        )) {
            for threads in [1, 8, 20, 32, 96] {
                let words = same(&body, [threads, 1, 1], 0).expect("it is inside");
                let all: Vec<u8> = words[4096..]
                    .iter()
                    .flat_map(|word| word.to_le_bytes())
                    .collect();
                for (at, got) in words[..threads as usize].iter().enumerate() {
                    let from = 8 + at * size as usize;
                    let half = u16::from_le_bytes([all[from], all[from + 1]]);
                    let value = match ty {
                        "u8" => i32::from(all[from]),
                        "s8" => i32::from(all[from] as i8),
                        "u16" => i32::from(half),
                        _ => i32::from(half as i16),
                    };
                    let low = value as u16;
                    let expected = match register {
                        "%h" => {
                            (u32::from(low) << 16 | u32::from(low)) ^ i32::from(low as i16) as u32
                        }
                        _ => value as u32,
                    };
                    assert_eq!(*got, expected, "{ty} in {kind}: thread {at} of {threads}");
                }
            }
        }
    }
}

#[test]
fn no_more_is_stored_than_there_is() {
    for (ty, size, kind, register) in KINDS {
        let into = match register {
            "%h" => "cvt.u16.u32 %h, %r11;",
            _ => "mov.b32 %v, %r11;",
        };
        for body in versions(&format!(
            ".reg {kind} {register}; mul.lo.u32 %r11, %r1, 0x9e3779b1; add.u32 %r11, %r11, 0x8000; {into}
            mul.wide.u32 %rd4, %r1, {size}; add.u64 %rd4, %rd2, %rd4;
            st.global.{ty} [%rd4+16], {register};"
        )) {
            for threads in [1, 8, 20, 32, 96] {
                let words = same(&body, [threads, 1, 1], 0).expect("it is inside");
                let all: Vec<u8> = words[4096..].iter().flat_map(|word| word.to_le_bytes()).collect();
                let before: Vec<u8> = (0..64u32)
                    .flat_map(|at| at.wrapping_mul(0x9e37_79b9).to_le_bytes())
                    .collect();
                let end = 16 + (threads * size) as usize;
                assert_eq!(all[..16], before[..16], "{ty} of {kind}");
                assert_eq!(all[end..], before[end..], "{ty} of {kind}: {threads} threads");
                for at in 0..threads {
                    let value = at.wrapping_mul(0x9e37_79b1).wrapping_add(0x8000).to_le_bytes();
                    let from = 16 + (at * size) as usize;
                    let to = from + size as usize;
                    assert_eq!(all[from..to], value[..size as usize], "{ty} of {kind}: thread {at}");
                }
            }
        }
    }
}

#[test]
fn a_fault_is_of_the_first_thread_outside() {
    for (ty, size, kind, register) in KINDS {
        for access in [
            format!("ld.global.{ty} {register}, [%rd4]; {}", shown(register)),
            format!("mov{kind} {register}, 7; st.global.{ty} [%rd4], {register};"),
        ] {
            // Thread `n` is the first that is outside.
            let body = format!(
                ".reg {kind} {register}; sub.u32 %r11, %r1, %r3; add.u32 %r11, %r11, {};
                mul.wide.s32 %rd4, %r11, {size}; add.u64 %rd4, %rd2, %rd4; {access}",
                BYTES / size
            );
            let source = kernel(&body);
            for form in [Form::Vectors, Form::Rounds] {
                for n in 0..=34 {
                    let got = run(&source, form, [1, 1, 1], [34, 1, 1], n);
                    match got {
                        Ok(_) => assert_eq!(n, 34, "{access}"),
                        Err(fault) => {
                            let expected = (FaultKind::IllegalAddress, [0; 3], Some([n, 0, 0]));
                            assert_eq!(fault, expected, "{access}");
                        }
                    }
                }
            }
        }
    }
}

/// Values of 16 bits as integers: what is above them is never seen.
#[test]
fn what_is_above_is_never_seen() {
    let operations = [
        "add.s16 %h2, %h0, %h1;",
        "sub.u16 %h2, %h0, %h1;",
        "mul.lo.s16 %h2, %h0, %h1;",
        "mad.lo.u16 %h2, %h0, %h1, %h0;",
        "neg.s16 %h2, %h0;",
        "abs.s16 %h2, %h0;",
        "min.s16 %h2, %h0, %h1;",
        "max.u16 %h2, %h0, %h1;",
        "not.b16 %h2, %h0;",
        "xor.b16 %h2, %h0, %h1;",
        "shl.b16 %h2, %h0, 5;",
        "shl.b16 %h2, %h0, 16;",
        "shr.s16 %h2, %h0, 3;",
        "shr.s16 %h2, %h0, 40;",
        "shr.u16 %h2, %h0, 3;",
        "cvt.u16.s32 %h2, %r11;",
        "cvt.s8.s32 %h2, %r11;",
        "cvt.u8.s16 %h2, %h0;",
        "cvt.s16.s8 %h2, %h0;",
        "setp.lt.s16 %p1, %h0, %h1; selp.b16 %h2, %h0, %h1, %p1;",
        "setp.lt.u16 %p1, %h0, -5; selp.b16 %h2, -5, %h1, %p1;",
        "mov.b32 {%h2, %h0}, %r11;",
        "cvt.rzi.s16.f32 %h2, %f1;",
        "cvt.rni.u8.f32 %h2, %f1;",
        "fma.rn.f16 %h2, %h0, %h1, %h0;",
        "fma.rn.bf16 %h2, %h0, %h1, %h0;",
        "neg.f16 %h2, %h0;",
        "abs.bf16 %h2, %h0;",
        "mul.wide.u16 %r15, %h0, %h1; cvt.u16.u32 %h2, %r15;",
        "mul.wide.s16 %r15, %h0, %h1; cvt.u16.u32 %h2, %r15;",
        "mul.wide.u16 %r15, %h0, 2; shr.u32 %r15, %r15, 3; cvt.u16.u32 %h2, %r15;",
        "mul.wide.u16 %r15, %h0, -3; shr.u32 %r15, %r15, 16; cvt.u16.u32 %h2, %r15;",
        "mul.wide.s16 %r15, -3, %h1; shr.u32 %r15, %r15, 16; cvt.u16.u32 %h2, %r15;",
        "mad.wide.u16 %r15, %h0, %h1, %r11; shr.u32 %r15, %r15, 16; cvt.u16.u32 %h2, %r15;",
        "mad.wide.s16 %r15, %h0, -7, %r12; mov.b32 {%h2, %h0}, %r15;",
    ];
    for operation in operations {
        let body = format!(
            ".reg .b16 %h<4>; mul.lo.u32 %r11, %r1, 0x9e3779b1; shr.u32 %r12, %r11, 13;
            cvt.rn.f32.s32 %f1, %r11; mul.f32 %f1, %f1, 0f38000000;
            cvt.u16.u32 %h0, %r11; cvt.u16.u32 %h1, %r12; {operation}
            mov.b32 %r9, {{%h2, %h0}}; cvt.s32.s16 %r13, %h2; cvt.u32.u16 %r14, %h2;
            mad.lo.u32 %r9, %r9, 31, %r13; mad.lo.u32 %r9, %r9, 31, %r14;"
        );
        for body in versions(&body) {
            for threads in [8, 33, 96] {
                same(&body, [threads, 1, 1], 0).expect("no thread faults");
            }
        }
    }
}

/// Registers of which several lie in a word, with and without one that nobody wants.
#[test]
fn several_lie_in_a_word() {
    for (ty, size, kind, _) in KINDS {
        for parts in [2, 4] {
            let bytes = size * parts;
            let registers = |last: &str| {
                let all: Vec<String> = (0..parts - 1).map(|n| format!("%q{n}")).collect();
                format!("{{{}, {last}}}", all.join(", "))
            };
            let last = format!("%q{}", parts - 1);
            let (mut shown, mut made) = (String::new(), String::new());
            for n in 0..parts {
                let (show, make) = match kind {
                    ".b16" => (
                        format!(
                            "mov.b32 %r10, {{%q{n}, %q{n}}}; cvt.s32.s16 %r11, %q{n};
                            xor.b32 %r10, %r10, %r11;"
                        ),
                        format!("cvt.u16.u32 %q{n}, %r12;"),
                    ),
                    _ => (
                        format!("mov.b32 %r10, %q{n};"),
                        format!("mov.b32 %q{n}, %r12;"),
                    ),
                };
                shown += &format!("{show} mad.lo.u32 %r9, %r9, 31, %r10;");
                made += &format!(
                    "mad.lo.u32 %r12, %r1, 0x9e3779b1, {};{make}",
                    n * 0x3779_b9e3
                );
            }
            let accesses = [
                format!(
                    "ld.global.v{parts}.{ty} {}, [%rd4];{shown}",
                    registers(&last)
                ),
                format!("ld.global.v{parts}.{ty} {}, [%rd4];{shown}", registers("_")),
                format!(
                    "{made} st.global.v{parts}.{ty} [%rd4], {};",
                    registers(&last)
                ),
            ];
            for access in accesses {
                // Thread `n` is the first that is outside.
                let body = format!(
                    ".reg {kind} %q<4>; mov{kind} {last}, 0;
                    sub.u32 %r11, %r1, %r3; add.u32 %r11, %r11, {};
                    mul.wide.s32 %rd4, %r11, {bytes}; add.u64 %rd4, %rd2, %rd4; {access}",
                    BYTES / bytes
                );
                for body in versions(&body) {
                    for threads in [1, 8, 13, 20] {
                        same(&body, [threads, 1, 1], threads).expect("it is inside");
                    }
                    for n in [0, 1, 7, 12] {
                        let (kind, _, thread) = same(&body, [20, 1, 1], n).expect_err("one is not");
                        let expected = (FaultKind::IllegalAddress, Some([n, 0, 0]));
                        assert_eq!((kind, thread), expected, "{access}");
                    }
                }
            }
        }
    }
}
