//! Against the processor's own rounding modes, which the code under test never uses.

use super::*;

/// A small generator with a fixed seed: the same cases in every run.
pub(crate) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Edges, subnormals, values near each other, and anything.
    pub fn single(&mut self) -> f32 {
        const EDGES: [u32; 16] = [
            0,
            1,
            2,
            3,
            0x007f_ffff,
            0x0080_0000,
            0x0080_0001,
            0x3f7f_ffff,
            0x3f80_0000,
            0x3f80_0001,
            0x4b80_0000,
            0x7f7f_fffe,
            0x7f7f_ffff,
            0x7f80_0000,
            0x7fc0_0000,
            0x3480_0000,
        ];
        let random = self.next();
        let sign = (random as u32) << 31;
        let pick = (random >> 32) as u32;
        f32::from_bits(match random >> 1 & 7 {
            0 => EDGES[pick as usize % 16] ^ sign,
            1 => pick & 0x807f_ffff,
            2 => 0x3f80_0000 ^ pick & 0x8000_000f,
            3 => (127 - 12 + (pick & 15)) << 23 ^ (pick >> 4 & 0xff) << 15 ^ sign,
            4 => 0x7e80_0000 ^ pick & 0x81ff_ffff,
            _ => pick,
        })
    }

    pub fn double(&mut self) -> f64 {
        const EDGES: [u64; 12] = [
            0,
            1,
            2,
            3,
            0x000f_ffff_ffff_ffff,
            0x0010_0000_0000_0000,
            0x3ff0_0000_0000_0000,
            0x3ff0_0000_0000_0001,
            0x3fef_ffff_ffff_ffff,
            0x7fef_ffff_ffff_ffff,
            0x7ff0_0000_0000_0000,
            0x7ff8_0000_0000_0000,
        ];
        let random = self.next();
        let sign = random << 63;
        let pick = self.next();
        f64::from_bits(match random >> 1 & 7 {
            0 => EDGES[pick as usize % 12] ^ sign,
            1 => pick & 0x800f_ffff_ffff_ffff,
            2 => 0x3ff0_0000_0000_0000 ^ pick & 0x8000_0000_0000_00ff,
            3 => (1023 - 40 + (pick & 63)) << 52 ^ (pick >> 8 & 0xff) << 44 ^ sign,
            4 => 0x7fd0_0000_0000_0000 ^ pick & 0x803f_ffff_ffff_ffff,
            5 => 0x1ff0_0000_0000_0000 ^ pick & 0x803f_ffff_ffff_ffff,
            _ => pick,
        })
    }
}

const MODES: [Rounding; 4] = [
    Rounding::Nearest,
    Rounding::Zero,
    Rounding::Down,
    Rounding::Up,
];

#[cfg(target_arch = "x86_64")]
pub(crate) mod processor {
    use super::Rounding;
    use std::arch::asm;

    fn mxcsr(mode: Rounding) -> u32 {
        let field = match mode {
            Rounding::Nearest | Rounding::Away => 0,
            Rounding::Down => 1,
            Rounding::Up => 2,
            Rounding::Zero => 3,
        };
        0x1f80 | field << 13
    }

    macro_rules! binary {
        ($name:ident, $ty:ty, $inst:literal) => {
            pub fn $name(a: $ty, b: $ty, mode: Rounding) -> $ty {
                let (set, back, mut result) = (mxcsr(mode), 0x1f80u32, a);
                // SAFETY: the rounding mode is set for one instruction and set back within the
                // block.
                unsafe {
                    asm!("ldmxcsr [{set}]", concat!($inst, " {x}, {y}"), "ldmxcsr [{back}]",
                        set = in(reg) &set, back = in(reg) &back, x = inout(xmm_reg) result, y = in(xmm_reg) b);
                }
                result
            }
        };
    }
    binary!(add_f32, f32, "addss");
    binary!(mul_f32, f32, "mulss");
    binary!(div_f32, f32, "divss");
    binary!(add_f64, f64, "addsd");
    binary!(sub_f64, f64, "subsd");
    binary!(mul_f64, f64, "mulsd");
    binary!(div_f64, f64, "divsd");
    binary!(sqrt_f32_of, f32, "sqrtss");
    binary!(sqrt_f64_of, f64, "sqrtsd");

    macro_rules! fused {
        ($name:ident, $ty:ty, $inst:literal) => {
            pub fn $name(a: $ty, b: $ty, c: $ty, mode: Rounding) -> $ty {
                let (set, back, mut result) = (mxcsr(mode), 0x1f80u32, a);
                // SAFETY: as above; the caller has seen that the processor has the instruction.
                unsafe {
                    asm!("ldmxcsr [{set}]", concat!($inst, " {x}, {y}, {z}"), "ldmxcsr [{back}]",
                        set = in(reg) &set, back = in(reg) &back, x = inout(xmm_reg) result, y = in(xmm_reg) b,
                        z = in(xmm_reg) c);
                }
                result
            }
        };
    }
    fused!(fma_f32, f32, "vfmadd213ss");
    fused!(fma_f64, f64, "vfmadd213sd");

    pub fn narrow(value: f64, mode: Rounding) -> f32 {
        let (set, back) = (mxcsr(mode), 0x1f80u32);
        let result: f32;
        // SAFETY: as above.
        unsafe {
            asm!("ldmxcsr [{set}]", "cvtsd2ss {x}, {y}", "ldmxcsr [{back}]",
                set = in(reg) &set, back = in(reg) &back, x = out(xmm_reg) result, y = in(xmm_reg) value);
        }
        result
    }
}

#[track_caller]
fn same_f32(ours: f32, theirs: f32, case: std::fmt::Arguments<'_>) {
    let agree = ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan();
    assert!(
        agree,
        "{case}: {ours:e} ({:08x}), not {theirs:e} ({:08x})",
        ours.to_bits(),
        theirs.to_bits()
    );
    assert!(
        !ours.is_nan() || ours.to_bits() == 0x7fff_ffff,
        "{case}: NaN {:08x}",
        ours.to_bits()
    );
}

#[track_caller]
fn same_f64(ours: f64, theirs: f64, case: std::fmt::Arguments<'_>) {
    let agree = ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan();
    assert!(
        agree,
        "{case}: {ours:e} ({:016x}), not {theirs:e} ({:016x})",
        ours.to_bits(),
        theirs.to_bits()
    );
}

fn softcuda_add_f32(a: f32, b: f32, code: u32) -> f32 {
    single(fma_narrow(
        Format::F32,
        a,
        1.0,
        b,
        Rounding::from_code(code),
    ))
}

fn softcuda_mul_f32(a: f32, b: f32, code: u32) -> f32 {
    let product = f64::from(a) * f64::from(b);
    single(narrow(Format::F32, product, Rounding::from_code(code)))
}

fn softcuda_fma_f32(a: f32, b: f32, c: f32, code: u32) -> f32 {
    single(fma_narrow(Format::F32, a, b, c, Rounding::from_code(code)))
}

/// Compiled sums and products, of single threads and of groups.
#[test]
fn compiled_singles_round_the_same() {
    use crate::jit::harness::{self, buffer};
    const THREADS: usize = 256;
    let mut random = Random(2);
    for (mode, name) in [
        (Rounding::Zero, "rz"),
        (Rounding::Down, "rm"),
        (Rounding::Up, "rp"),
    ] {
        let source = harness::module(&format!(
            ".visible .entry k(.param .u64 from, .param .u64 to) {{
                .reg .b32 %r<3>; .reg .b64 %rd<6>; .reg .f32 %f<8>;
                ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [to];
                mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4;
                add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
                ld.global.f32 %f1, [%rd4]; ld.global.f32 %f2, [%rd4+4096];
                ld.global.f32 %f3, [%rd4+8192];
                add.{name}.f32 %f4, %f1, %f2; mul.{name}.f32 %f5, %f1, %f2;
                fma.{name}.f32 %f6, %f1, %f2, %f3; sub.{name}.f32 %f7, %f1, %f2;
                st.global.f32 [%rd5], %f4; st.global.f32 [%rd5+4096], %f5;
                st.global.f32 [%rd5+8192], %f6; st.global.f32 [%rd5+12288], %f7;
            }}"
        ));
        let module = harness::load(&source);
        for round in 0..200 {
            // Groups, and threads by themselves.
            let threads = THREADS - round % 2;
            let mut from = [0f32; 3 * 1024];
            for at in 0..threads {
                let (a, b) = (random.single(), random.single());
                let near = f32::from_bits((-(a * b)).to_bits() ^ (random.next() as u32 & 3));
                let c = if random.next() & 1 == 0 {
                    near
                } else {
                    random.single()
                };
                [from[at], from[1024 + at], from[2048 + at]] = [a, b, c];
            }
            let inputs = from;
            let mut to = [0f32; 4 * 1024];
            let block = [threads as u32, 1, 1];
            let buffers = &mut [buffer(&mut from), buffer(&mut to)];
            harness::run_in(&module, "k", [1; 3], block, 0, buffers, &[]).unwrap();
            let code = mode.code() as u32;
            for at in 0..threads {
                let [a, b, c] = [0, 1024, 2048].map(|array| inputs[array + at]);
                let expected = [
                    softcuda_add_f32(a, b, code),
                    softcuda_mul_f32(a, b, code),
                    softcuda_fma_f32(a, b, c, code),
                    softcuda_add_f32(a, -b, code),
                ];
                for (array, expected) in [0, 1024, 2048, 3072].into_iter().zip(expected) {
                    let what = format_args!("{a:e} {b:e} {c:e} {name} {array}");
                    same_f32(to[array + at], expected, what);
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn singles_round_as_the_processor_does() {
    let fma = is_x86_feature_detected!("fma");
    let mut random = Random(1);
    for _ in 0..200_000 {
        let (a, b, c) = (random.single(), random.single(), random.single());
        for mode in MODES {
            let code = mode.code() as u32;
            same_f32(
                softcuda_add_f32(a, b, code),
                processor::add_f32(a, b, mode),
                format_args!("{a:e}+{b:e} {mode:?}"),
            );
            same_f32(
                softcuda_mul_f32(a, b, code),
                processor::mul_f32(a, b, mode),
                format_args!("{a:e}*{b:e} {mode:?}"),
            );
            same_f32(
                softcuda_div_f32(a, b, code),
                processor::div_f32(a, b, mode),
                format_args!("{a:e}/{b:e} {mode:?}"),
            );
            same_f32(
                softcuda_sqrt_f32(a, code),
                processor::sqrt_f32_of(a, a, mode),
                format_args!("sqrt {a:e} {mode:?}"),
            );
            if fma {
                let theirs = processor::fma_f32(a, b, c, mode);
                same_f32(
                    softcuda_fma_f32(a, b, c, code),
                    theirs,
                    format_args!("{a:e}*{b:e}+{c:e} {mode:?}"),
                );
                // A product and an addend that nearly cancel.
                let near = f32::from_bits((-(a * b)).to_bits() ^ (c.to_bits() & 3));
                let theirs = processor::fma_f32(a, b, near, mode);
                same_f32(
                    softcuda_fma_f32(a, b, near, code),
                    theirs,
                    format_args!("{a:e}*{b:e}+{near:e} {mode:?}"),
                );
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn doubles_round_as_the_processor_does() {
    let fma = is_x86_feature_detected!("fma");
    let mut random = Random(2);
    for _ in 0..200_000 {
        let (a, b, c) = (random.double(), random.double(), random.double());
        for mode in MODES {
            let code = mode.code() as u32;
            same_f64(
                softcuda_add_f64(a, b, code),
                processor::add_f64(a, b, mode),
                format_args!("{a:e}+{b:e} {mode:?}"),
            );
            same_f64(
                softcuda_mul_f64(a, b, code),
                processor::mul_f64(a, b, mode),
                format_args!("{a:e}*{b:e} {mode:?}"),
            );
            same_f64(
                softcuda_div_f64(a, b, code),
                processor::div_f64(a, b, mode),
                format_args!("{a:e}/{b:e} {mode:?}"),
            );
            same_f64(
                softcuda_sqrt_f64(a, code),
                processor::sqrt_f64_of(a, a, mode),
                format_args!("sqrt {a:e} {mode:?}"),
            );
            same_f32(
                single(narrow(Format::F32, a, mode)),
                processor::narrow(a, mode),
                format_args!("{a:e} {mode:?}"),
            );
            if fma {
                let theirs = processor::fma_f64(a, b, c, mode);
                same_f64(
                    softcuda_fma_f64(a, b, c, code),
                    theirs,
                    format_args!("{a:e}*{b:e}+{c:e} {mode:?}"),
                );
                let near = f64::from_bits((-(a * b)).to_bits() ^ (c.to_bits() & 3));
                let theirs = processor::fma_f64(a, b, near, mode);
                same_f64(
                    softcuda_fma_f64(a, b, near, code),
                    theirs,
                    format_args!("{a:e}*{b:e}+{near:e} {mode:?}"),
                );
            }
        }
    }
}

/// Every half between two neighbours of a format, and a bit to either side of it, in every mode.
#[test]
fn small_formats_round_between_neighbours() {
    for format in [Format::F16, Format::BF16, Format::TF32, Format::E5M2] {
        let step = match format.fraction + format.exponent > 15 {
            true => 37,
            false => 1,
        };
        let value = |bits: u64| -> f64 {
            let field = (bits >> format.fraction) as i32;
            let fraction = (bits & ((1 << format.fraction) - 1)) as f64;
            let unit = 2f64.powi(1 - format.bias() - format.fraction as i32);
            match field {
                0 => fraction * unit,
                _ => (fraction + 2f64.powi(format.fraction as i32)) * unit * 2f64.powi(field - 1),
            }
        };
        for below in (0..format.infinity() - 1).step_by(step) {
            let above = below + 1;
            let (low, high) = (value(below), value(above));
            let middle = (low + high) / 2.0;
            let even = below + (below & 1);
            for (exact, nearest, away) in [
                (middle, even, above),
                (f64::from_bits(middle.to_bits() - 1), below, below),
                (f64::from_bits(middle.to_bits() + 1), above, above),
            ] {
                let case = format!("{format:?} {exact:e}");
                assert_eq!(narrow(format, exact, Rounding::Nearest), nearest, "{case}");
                assert_eq!(narrow(format, exact, Rounding::Away), away, "{case}");
                assert_eq!(narrow(format, exact, Rounding::Zero), below, "{case}");
                assert_eq!(narrow(format, exact, Rounding::Down), below, "{case}");
                assert_eq!(narrow(format, exact, Rounding::Up), above, "{case}");
                assert_eq!(
                    narrow(format, -exact, Rounding::Down),
                    above | format.sign(),
                    "{case}"
                );
                assert_eq!(
                    narrow(format, -exact, Rounding::Up),
                    below | format.sign(),
                    "{case}"
                );
                assert_eq!(
                    narrow(format, -exact, Rounding::Nearest),
                    nearest | format.sign(),
                    "{case}"
                );
            }
            assert_eq!(narrow(format, low, Rounding::Up), below);
            assert_eq!(narrow(format, low, Rounding::Down), below);
        }
        let greatest = format.infinity() - 1;
        let beyond = value(greatest) + (value(greatest) - value(greatest - 1)) / 2.0;
        assert_eq!(narrow(format, beyond, Rounding::Nearest), format.infinity());
        assert_eq!(
            narrow(
                format,
                f64::from_bits(beyond.to_bits() - 1),
                Rounding::Nearest
            ),
            greatest
        );
        assert_eq!(narrow(format, f64::MAX, Rounding::Zero), greatest);
        assert_eq!(narrow(format, f64::MAX, Rounding::Up), format.infinity());
        assert_eq!(
            narrow(format, -f64::MAX, Rounding::Up),
            greatest | format.sign()
        );
        assert_eq!(narrow(format, f64::from_bits(1), Rounding::Up), 1);
        assert_eq!(narrow(format, f64::from_bits(1), Rounding::Nearest), 0);
        assert_eq!(
            narrow(format, f64::INFINITY, Rounding::Zero),
            format.infinity()
        );
        assert_eq!(narrow(format, -0.0, Rounding::Up), format.sign());
        assert_eq!(narrow(format, f64::NAN, Rounding::Up), format.nan());
    }
}

#[test]
fn integers_round_once() {
    let mut random = Random(3);
    for _ in 0..100_000 {
        let magnitude = random.next() >> (random.next() & 63);
        let nearest = f64::from_bits(narrow_integer(
            Format::F64,
            false,
            magnitude,
            Rounding::Nearest,
        ));
        assert_eq!(nearest, magnitude as f64);
        let nearest = single(narrow_integer(
            Format::F32,
            true,
            magnitude,
            Rounding::Nearest,
        ));
        assert_eq!(nearest, -(magnitude as i128) as f32);
        let down = f64::from_bits(narrow_integer(
            Format::F64,
            false,
            magnitude,
            Rounding::Down,
        )) as u128;
        let up =
            f64::from_bits(narrow_integer(Format::F64, false, magnitude, Rounding::Up)) as u128;
        let magnitude = u128::from(magnitude);
        assert!(
            down <= magnitude && magnitude <= up && up - down <= 2048,
            "{down} {magnitude} {up}"
        );
        assert!(down == up || (down as f64).to_bits() + 1 == (up as f64).to_bits());
    }
}
