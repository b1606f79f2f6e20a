//! `.f32` and `.f64`.

use super::{Form, Random, check, form, harness, kernel, operands, run};
use crate::jit::runtime::float::Rounding;
#[cfg(target_arch = "x86_64")]
use crate::jit::runtime::float::tests::processor;

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn double(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// The bits of a result of single arithmetic.
pub(super) fn bits32(value: f32) -> u64 {
    match value.is_nan() {
        true => 0x7fff_ffff,
        false => u64::from(value.to_bits()),
    }
}

pub(super) fn flush(value: f32, ftz: bool) -> f32 {
    match ftz && value.is_subnormal() {
        true => 0f32.copysign(value),
        false => value,
    }
}

pub(super) fn saturated(value: f64) -> f64 {
    match value {
        value if value > 1.0 => 1.0,
        value if value > 0.0 => value,
        _ => 0.0,
    }
}

#[cfg(target_arch = "x86_64")]
const MODES: [(&str, Rounding); 4] = [
    ("rn", Rounding::Nearest),
    ("rz", Rounding::Zero),
    ("rm", Rounding::Down),
    ("rp", Rounding::Up),
];

#[cfg(target_arch = "x86_64")]
type OfSingles = fn(f32, f32, f32, Rounding) -> f32;
#[cfg(target_arch = "x86_64")]
type OfDoubles = fn(f64, f64, f64, Rounding) -> f64;

#[cfg(target_arch = "x86_64")]
/// Name, operands, in singles, in doubles.
const ARITHMETIC: [(&str, usize, OfSingles, OfDoubles); 7] = [
    (
        "add",
        2,
        |a, b, _, m| processor::add_f32(a, b, m),
        |a, b, _, m| processor::add_f64(b, a, m),
    ),
    (
        "sub",
        2,
        |a, b, _, m| processor::add_f32(a, -b, m),
        |a, b, _, m| processor::sub_f64(a, b, m),
    ),
    (
        "mul",
        2,
        |a, b, _, m| processor::mul_f32(a, b, m),
        |a, b, _, m| processor::mul_f64(b, a, m),
    ),
    ("fma", 3, processor::fma_f32, processor::fma_f64),
    (
        "div",
        2,
        |a, b, _, m| processor::div_f32(a, b, m),
        |a, b, _, m| processor::div_f64(a, b, m),
    ),
    (
        "rcp",
        1,
        |a, _, _, m| processor::div_f32(1.0, a, m),
        |a, _, _, m| processor::div_f64(1.0, a, m),
    ),
    (
        "sqrt",
        1,
        |a, _, _, m| processor::sqrt_f32_of(a, a, m),
        |a, _, _, m| processor::sqrt_f64_of(a, a, m),
    ),
];

fn text(name: &str, modifiers: &str, ty: &str, count: usize) -> String {
    format!(
        "{name}.{modifiers}{ty} %d, {}",
        ["%a", "%a, %b", "%a, %b, %c"][count - 1]
    )
}

#[cfg(target_arch = "x86_64")]
#[test]
fn arithmetic_rounds_in_every_mode() {
    if !std::is_x86_feature_detected!("fma") {
        return;
    }
    let mut forms: Vec<Form> = Vec::new();
    for (name, count, singles, doubles) in ARITHMETIC {
        let (classes32, classes64) =
            [("f=f", "d=d"), ("f=ff", "d=dd"), ("f=fff", "d=ddd")][count - 1];
        for (mode_name, mode) in MODES {
            for ftz in [false, true] {
                for sat in [false, true] {
                    if sat && matches!(name, "div" | "rcp" | "sqrt") {
                        continue;
                    }
                    let modifiers = format!(
                        "{mode_name}.{}{}",
                        if ftz { "ftz." } else { "" },
                        if sat { "sat." } else { "" }
                    );
                    forms.push(form(
                        text(name, &modifiers, "f32", count),
                        classes32,
                        move |v| {
                            let [a, b, c] = v.map(|bits| flush(single(bits), ftz));
                            let value = flush(singles(a, b, c, mode), ftz);
                            bits32(if sat {
                                saturated(f64::from(value)) as f32
                            } else {
                                value
                            })
                        },
                    ));
                }
            }
            forms.push(form(
                text(name, &format!("{mode_name}."), "f64", count),
                classes64,
                move |v| {
                    let [a, b, c] = v.map(double);
                    doubles(a, b, c, mode).to_bits()
                },
            ));
        }
    }
    // What stands for the same.
    for text in ["add.f32 %d, %a, %b", "add.rn.f32 %d, %b, %a"] {
        forms.push(form(text, "f=ff", |v| bits32(single(v[0]) + single(v[1]))));
    }
    forms.push(form("mad.rn.f32 %d, %a, %b, %c", "f=fff", |v| {
        bits32(single(v[0]).mul_add(single(v[1]), single(v[2])))
    }));
    forms.push(form("div.full.f32 %d, %a, %b", "f=ff", |v| {
        bits32(single(v[0]) / single(v[1]))
    }));
    forms.push(form("rcp.approx.ftz.f32 %d, %a", "f=f", |v| {
        bits32(flush(1.0 / flush(single(v[0]), true), true))
    }));
    forms.push(form("sqrt.approx.f32 %d, %a", "f=f", |v| {
        bits32(single(v[0]).sqrt())
    }));
    forms.push(form("rsqrt.approx.f32 %d, %a", "f=f", |v| {
        bits32(1.0 / single(v[0]).sqrt())
    }));
    check(forms);
}

/// The documented `min` and `max`.
fn extremum(max: bool, propagate: bool, xorsign: bool, a: f64, b: f64) -> f64 {
    let sign = a.is_sign_negative() != b.is_sign_negative();
    let (a, b) = if xorsign { (a.abs(), b.abs()) } else { (a, b) };
    let less = a < b || a == b && a.is_sign_negative();
    let result = match (a.is_nan(), b.is_nan()) {
        (true, true) => f64::NAN,
        (true, _) | (_, true) if propagate => f64::NAN,
        (true, _) => b,
        (_, true) => a,
        _ if less != max => a,
        _ => b,
    };
    match xorsign && !result.is_nan() {
        true => result.copysign(if sign { -1.0 } else { 1.0 }),
        false => result,
    }
}

#[test]
fn extrema_follow_the_documented_pseudocode() {
    let mut forms = Vec::new();
    for (name, max) in [("min", false), ("max", true)] {
        for ftz in [false, true] {
            for propagate in [false, true] {
                for xorsign in [false, true] {
                    let modifiers = format!(
                        "{}{}{}",
                        if ftz { "ftz." } else { "" },
                        if propagate { "NaN." } else { "" },
                        if xorsign { "xorsign.abs." } else { "" }
                    );
                    forms.push(form(text(name, &modifiers, "f32", 2), "f=ff", move |v| {
                        let [a, b, _] = v.map(|bits| f64::from(flush(single(bits), ftz)));
                        bits32(extremum(max, propagate, xorsign, a, b) as f32)
                    }));
                }
            }
        }
        for limit in [0.0, -0.0, 1.5, -1.5, 1e-40, -1e-40, f32::INFINITY, f32::NAN] {
            let literal = format!("0f{:08x}", limit.to_bits());
            for ftz in [false, true] {
                let name = if ftz {
                    format!("{name}.ftz")
                } else {
                    name.to_owned()
                };
                for text in [
                    format!("{name}.f32 %d, %a, {literal}"),
                    format!("{name}.f32 %d, {literal}, %a"),
                    format!(
                        "{{ .reg .f32 %l; mov.f32 %l, {literal}; {name}.f32 %d, %a, %l; }} \
                         mov.f32 %d, %d"
                    ),
                ] {
                    forms.push(form(text, "f=f", move |v| {
                        let [a, b] = [single(v[0]), limit].map(|v| f64::from(flush(v, ftz)));
                        bits32(extremum(max, false, false, a, b) as f32)
                    }));
                }
            }
        }
        for limit in [0.0, -0.0, 1.5, f64::NAN] {
            let text = format!(
                "{name}.f64 %x, %a, 0d{:016x}; testp.number.f64 %q, %x;
                selp.f64 %d, %x, 0d7ff8000000000000, %q",
                f64::to_bits(limit)
            );
            forms.push(form(text, "d=d", move |v| {
                extremum(max, false, false, double(v[0]), limit).to_bits()
            }));
        }
        let text = format!(
            "{name}.f64 %x, %a, %b; testp.number.f64 %q, %x; selp.f64 %d, %x, 0d7ff8000000000000, %q"
        );
        forms.push(form(text, "d=dd", move |v| {
            extremum(max, false, false, double(v[0]), double(v[1])).to_bits()
        }));
    }
    check(forms);
}

/// A double after a change of sign, which leaves that of NaN alone.
fn signed(before: u64, after: u64) -> u64 {
    match double(before).is_nan() {
        true => before | 1 << 51,
        false => after,
    }
}

#[test]
fn signs_and_properties_are_bits() {
    let mut forms = Vec::new();
    for ftz in [false, true] {
        let ftz_text = if ftz { "ftz." } else { "" };
        forms.push(form(text("abs", ftz_text, "f32", 1), "f=f", move |v| {
            bits32(flush(single(v[0]), ftz).abs())
        }));
        forms.push(form(text("neg", ftz_text, "f32", 1), "f=f", move |v| {
            bits32(-flush(single(v[0]), ftz))
        }));
    }
    forms.push(form("abs.f64 %d, %a", "d=d", |v| {
        signed(v[0], v[0] & !(1 << 63))
    }));
    forms.push(form("neg.f64 %d, %a", "d=d", |v| {
        signed(v[0], v[0] ^ 1 << 63)
    }));
    forms.push(form("copysign.f32 %d, %a, %b", "f=ff", |v| {
        v[1] & 0x7fff_ffff | v[0] & 0x8000_0000
    }));
    forms.push(form("copysign.f64 %d, %a, %b", "d=dd", |v| {
        v[1] & !(1 << 63) | v[0] & 1 << 63
    }));
    type Test = (&'static str, fn(f64) -> bool, fn(f32) -> bool);
    let tests: [Test; 6] = [
        ("finite", f64::is_finite, f32::is_finite),
        ("infinite", f64::is_infinite, f32::is_infinite),
        ("number", |x| !x.is_nan(), |x| !x.is_nan()),
        ("notanumber", f64::is_nan, f32::is_nan),
        (
            "normal",
            |x| x.is_normal() || x == 0.0,
            |x| x.is_normal() || x == 0.0,
        ),
        ("subnormal", f64::is_subnormal, f32::is_subnormal),
    ];
    for (name, doubles, singles) in tests {
        forms.push(form(format!("testp.{name}.f32 %d, %a"), "p=f", move |v| {
            u64::from(singles(single(v[0])))
        }));
        forms.push(form(format!("testp.{name}.f64 %d, %a"), "p=d", move |v| {
            u64::from(doubles(double(v[0])))
        }));
    }
    check(forms);
}

/// A NaN that arithmetic makes is the device's wherever its bits are seen, and one that is only
/// copied keeps its own.
#[test]
fn nan_is_canonical_where_it_is_seen() {
    let nan = |_: [u64; 3]| 0x7fff_ffff;
    check(vec![
        form(
            "mov.f32 %a, 0f7f800000; sub.f32 %d, %a, %a; mov.f32 %a, %d; mov.f32 %d, %a",
            "f=f",
            nan,
        ),
        form(
            "mov.f32 %a, 0fff812345; add.f32 %a, %a, %a; mul.f32 %a, %a, %a; mov.b32 %d, %a",
            "r=f",
            nan,
        ),
        form("mov.f32 %d, %a", "f=f", |v| v[0]),
        form("selp.f32 %d, %a, %b, %c", "f=ffp", |v| {
            if v[2] != 0 { v[0] } else { v[1] }
        }),
    ]);
}

/// Sums near their third operand, which are rounded without doubles: with products down to
/// nothing, of either sign, and sums on both sides of a power of 2.
#[cfg(target_arch = "x86_64")]
#[test]
fn fma_near_its_third_operand_rounds_down_and_up() {
    if !std::is_x86_feature_detected!("fma") {
        return;
    }
    // Factors of 1/2 to 2 and up to 2, and terms of 8 to 32.
    let operands = |v: [u64; 3]| {
        let [a, b, c] = v.map(|bits| bits as u32);
        let [a, b, c] = [
            a & 0x80ff_ffff | 0x3f00_0000,
            b & 0xbfff_ffff,
            c & 0x80ff_ffff | 0x4100_0000,
        ];
        [a, b, c].map(f32::from_bits)
    };
    let mut forms = Vec::new();
    for (name, mode) in MODES {
        // Terms of few bits, so that results are exact or close to a power of 2.
        for few in [0xffff_ffffu32, 0xff80_0000, 0xffc0_0000] {
            let text = format!(
                "and.b32 %a, %a, 0x80ffffff; or.b32 %a, %a, 0x3f000000;
                and.b32 %b, %b, 0xbfffffff; and.b32 %c, %c, {few};
                and.b32 %c, %c, 0x80ffffff; or.b32 %c, %c, 0x41000000;
                fma.{name}.f32 %d, %a, %b, %c"
            );
            forms.push(form(text, "f=rrr", move |[a, b, c]| {
                let [a, b, c] = operands([a, b, c & u64::from(few)]);
                bits32(processor::fma_f32(a, b, c, mode))
            }));
        }
    }
    check(forms);
}

/// `ex2.approx.ftz` flushes what `ex2.approx` takes and gives: for all upper halves of singles, and
/// around the powers where results become subnormal or infinite.
#[test]
fn powers_of_2_flush() {
    let compare = "ex2.approx.ftz.f32 %g, %f; mul.ftz.f32 %f, %f, 0f3f800000;
        ex2.approx.f32 %f, %f; mul.ftz.f32 %f, %f, 0f3f800000;
        mov.b32 %d, %f; mov.b32 %w, %g; xor.b32 %d, %d, %w";
    let mut forms = vec![form(
        format!(
            ".reg .f32 %f, %g; cvt.u32.u16 %w, %a; shl.b32 %w, %w, 16; mov.b32 %f, %w; {compare}"
        ),
        "r=h",
        |_| 0,
    )];
    for power in [-150f32, -149.0, -127.0, -126.0, -125.0, 127.0, 128.0, 129.0] {
        let bits = power.to_bits() - 0x8000;
        forms.push(form(
            format!(
                ".reg .f32 %f, %g; cvt.u32.u16 %w, %a; add.u32 %w, %w, {bits};
                mov.b32 %f, %w; {compare}"
            ),
            "r=h",
            |_| 0,
        ));
    }
    check(forms);
}

/// Approximate functions stay inside their documented errors, and have the documented corners.
#[test]
fn approximations_are_near() {
    type Function = (&'static str, fn(f64) -> f64, fn(f64) -> f64);
    // What may be wrong where: nothing is said of the sine of a great angle.
    let of_angle = |x: f64| match x.abs() {
        x if x <= std::f64::consts::TAU => 2f64.powf(-20.5),
        x if x <= 100.0 * std::f64::consts::PI => 2f64.powf(-14.7),
        _ => 2.0,
    };
    let functions: [Function; 5] = [
        ("sin", f64::sin, of_angle),
        ("cos", f64::cos, of_angle),
        ("lg2", f64::log2, |x| {
            2f64.powi(-22) * x.log2().abs().max(1.0)
        }),
        ("ex2", f64::exp2, |x| {
            x.exp2() * 2f64.powi(-22) + 2f64.powi(-149)
        }),
        ("tanh", f64::tanh, |x| x.tanh().abs() * 2f64.powi(-11)),
    ];
    let module = harness::load(&harness::module(
        &functions
            .iter()
            .map(|(name, ..)| {
                kernel(
                    name,
                    &form(format!("{name}.approx.f32 %d, %a"), "f=f", |v| v[0]),
                )
            })
            .collect::<String>(),
    ));
    let cases = operands(b"f", &mut Random(5));
    for (name, function, error) in functions {
        for (case, result) in cases.iter().zip(run(&module, name, &cases)) {
            let (x, ours) = (f64::from(single(case[0])), f64::from(single(result)));
            let exact = function(x);
            let near = match exact.is_nan() {
                true => ours.is_nan(),
                false => ours == f64::from(exact as f32) || (ours - exact).abs() <= error(x),
            };
            assert!(near, "{name} {x:e}: {ours:e}, not {exact:e}");
        }
    }
    let corners: [(&str, [u32; 5]); 6] = [
        // -Inf, -0, +0, +Inf, NaN
        (
            "sin.approx.f32",
            [0x7fff_ffff, 0x8000_0000, 0, 0x7fff_ffff, 0x7fff_ffff],
        ),
        (
            "cos.approx.f32",
            [
                0x7fff_ffff,
                0x3f80_0000,
                0x3f80_0000,
                0x7fff_ffff,
                0x7fff_ffff,
            ],
        ),
        (
            "lg2.approx.f32",
            [
                0x7fff_ffff,
                0xff80_0000,
                0xff80_0000,
                0x7f80_0000,
                0x7fff_ffff,
            ],
        ),
        (
            "ex2.approx.f32",
            [0, 0x3f80_0000, 0x3f80_0000, 0x7f80_0000, 0x7fff_ffff],
        ),
        (
            "tanh.approx.f32",
            [0xbf80_0000, 0x8000_0000, 0, 0x3f80_0000, 0x7fff_ffff],
        ),
        (
            "rsqrt.approx.f32",
            [0x7fff_ffff, 0xff80_0000, 0x7f80_0000, 0, 0x7fff_ffff],
        ),
    ];
    let mut forms = Vec::new();
    for (name, results) in corners {
        for (operand, result) in ["ff800000", "80000000", "00000000", "7f800000", "ffc12345"]
            .iter()
            .zip(results)
        {
            forms.push(form(format!("{name} %d, 0f{operand}"), "f=f", move |_| {
                u64::from(result)
            }));
        }
    }
    check(forms);
}
