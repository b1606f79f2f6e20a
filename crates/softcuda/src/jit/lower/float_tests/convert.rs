//! `cvt`.

use super::single::{bits32, flush, saturated};
use super::{Form, check, form};
use crate::jit::runtime::float::{Format, Rounding, narrow, narrow_integer};

const FLOATS: [(&str, u8, Format); 4] = [
    ("f16", b'h', Format::F16),
    ("bf16", b'h', Format::BF16),
    ("f32", b'f', Format::F32),
    ("f64", b'd', Format::F64),
];

const INTEGERS: [(&str, u8, u32, bool); 8] = [
    ("u8", b'h', 8, false),
    ("s8", b'h', 8, true),
    ("u16", b'h', 16, false),
    ("s16", b'h', 16, true),
    ("u32", b'r', 32, false),
    ("s32", b'r', 32, true),
    ("u64", b'l', 64, false),
    ("s64", b'l', 64, true),
];

const MODES: [(&str, Rounding); 4] = [
    ("rn", Rounding::Nearest),
    ("rz", Rounding::Zero),
    ("rm", Rounding::Down),
    ("rp", Rounding::Up),
];

fn classes(to: u8, from: u8) -> &'static str {
    const ALL: [&str; 25] = [
        "h=h", "h=r", "h=l", "h=f", "h=d", "r=h", "r=r", "r=l", "r=f", "r=d", "l=h", "l=r", "l=l",
        "l=f", "l=d", "f=h", "f=r", "f=l", "f=f", "f=d", "d=h", "d=r", "d=l", "d=f", "d=d",
    ];
    ALL.into_iter()
        .find(|text| text.as_bytes() == [to, b'=', from])
        .expect("every pair is listed")
}

fn value(ty: &str, bits: u64) -> f64 {
    match ty {
        "f16" => half::f16::from_bits(bits as u16).to_f64(),
        "bf16" => half::bf16::from_bits(bits as u16).to_f64(),
        "f32" => f64::from(f32::from_bits(bits as u32)),
        _ => f64::from_bits(bits),
    }
}

fn integer(bits: u64, width: u32, signed: bool) -> i128 {
    let bits = bits & (u64::MAX >> (64 - width));
    match signed && bits >> (width - 1) != 0 {
        true => i128::from(bits) - (1 << width),
        false => i128::from(bits),
    }
}

/// A double in a narrower format. Where the device converts by itself, a NaN stays itself as far as
/// there is room.
fn narrowed(format: Format, from: &str, x: f64, mode: Rounding) -> u64 {
    match x.is_nan() && from == "f64" && format != Format::BF16 {
        true => {
            let payload = x.to_bits() << 12 >> (64 - format.fraction);
            let quiet = format.infinity() | 1 << (format.fraction - 1);
            quiet
                | payload
                | if x.is_sign_negative() {
                    format.sign()
                } else {
                    0
                }
        }
        false => narrow(format, x, mode),
    }
}

/// The bits of a number in an integer type, extended to the register that holds it.
fn in_register(number: i128, width: u32, register: u8) -> u64 {
    let register_bits = super::bits_of(register);
    let _ = width;
    (number as u64) & (u64::MAX >> (64 - register_bits))
}

fn limit(number: i128, width: u32, signed: bool) -> i128 {
    match signed {
        true => number.clamp(-(1 << (width - 1)), (1 << (width - 1)) - 1),
        false => number.clamp(0, (1 << width) - 1),
    }
}

#[test]
fn integers_are_cut_or_limited() {
    let mut forms = Vec::new();
    for (to, to_class, to_bits, to_signed) in INTEGERS {
        for (from, from_class, from_bits, from_signed) in INTEGERS {
            forms.push(form(
                format!("cvt.{to}.{from} %d, %a"),
                classes(to_class, from_class),
                move |v| {
                    let number = integer(v[0], from_bits, from_signed);
                    let cut = integer(number as u64, to_bits, to_signed);
                    in_register(cut, to_bits, to_class)
                },
            ));
            let holds_all = |n: i128| limit(n, to_bits, to_signed) == n;
            let least = if from_signed {
                -1i128 << (from_bits - 1)
            } else {
                0
            };
            let greatest = if from_signed {
                -least - 1
            } else {
                (1 << from_bits) - 1
            };
            if holds_all(least) && holds_all(greatest) {
                continue;
            }
            forms.push(form(
                format!("cvt.sat.{to}.{from} %d, %a"),
                classes(to_class, from_class),
                move |v| {
                    let number = limit(integer(v[0], from_bits, from_signed), to_bits, to_signed);
                    in_register(number, to_bits, to_class)
                },
            ));
        }
    }
    check(forms);
}

/// These take registers of 8 bits, which the frame of these tests has not.
fn is_of_bytes(integer_bits: u32, float: &str) -> bool {
    integer_bits == 8 && float == "bf16"
}

#[test]
fn floats_become_integers() {
    type Round = (&'static str, fn(f64) -> f64);
    let modes: [Round; 4] = [
        ("rni", f64::round_ties_even),
        ("rzi", f64::trunc),
        ("rmi", f64::floor),
        ("rpi", f64::ceil),
    ];
    let mut forms: Vec<Form> = Vec::new();
    for (from, from_class, _) in FLOATS {
        for (mode, round) in modes {
            for (to, to_class, to_bits, signed) in INTEGERS {
                if is_of_bytes(to_bits, from) {
                    continue;
                }
                for ftz in [false, true] {
                    if ftz && from != "f32" {
                        continue;
                    }
                    let text = format!(
                        "cvt.{mode}.{}{to}.{from} %d, %a",
                        if ftz { "ftz." } else { "" }
                    );
                    forms.push(form(text, classes(to_class, from_class), move |v| {
                        let mut x = value(from, v[0]);
                        if ftz {
                            x = f64::from(flush(x as f32, true));
                        }
                        let number = match x.is_nan() {
                            true if from == "f64" || to_bits == 64 => {
                                integer(1 << (to_bits - 1), to_bits, signed)
                            }
                            true => 0,
                            false => limit(round(x) as i128, to_bits, signed),
                        };
                        in_register(number, to_bits, to_class)
                    }));
                }
            }
            let to_class = from_class;
            forms.push(form(
                format!("cvt.{mode}.{from}.{from} %d, %a"),
                classes(to_class, from_class),
                move |v| {
                    let x = value(from, v[0]);
                    let (_, _, format) = FLOATS.into_iter().find(|f| f.0 == from).expect("listed");
                    match from {
                        "f64" if x.is_nan() => (x + x).to_bits(),
                        _ => narrow(format, round(x), Rounding::Nearest),
                    }
                },
            ));
        }
    }
    check(forms);
}

#[test]
fn integers_become_floats() {
    let mut forms = Vec::new();
    for (to, to_class, format) in FLOATS {
        for (mode_name, mode) in MODES {
            for (from, from_class, from_bits, signed) in INTEGERS {
                if is_of_bytes(from_bits, to) {
                    continue;
                }
                let reference = move |v: [u64; 3]| {
                    let number = integer(v[0], from_bits, signed);
                    narrow_integer(format, number < 0, number.unsigned_abs() as u64, mode)
                };
                let classes = classes(to_class, from_class);
                forms.push(form(
                    format!("cvt.{mode_name}.{to}.{from} %d, %a"),
                    classes,
                    reference,
                ));
                if to != "bf16" && mode == Rounding::Nearest {
                    forms.push(form(
                        format!("cvt.{mode_name}.sat.{to}.{from} %d, %a"),
                        classes,
                        move |v| {
                            let number = integer(v[0], from_bits, signed);
                            narrow_integer(format, false, number.clamp(0, 1) as u64, mode)
                        },
                    ));
                }
            }
        }
    }
    check(forms);
}

#[test]
fn floats_become_narrower_floats() {
    let mut forms = Vec::new();
    for (to, from) in [
        ("f16", "f32"),
        ("bf16", "f32"),
        ("f32", "f64"),
        ("f16", "f64"),
        ("bf16", "f64"),
        ("bf16", "f16"),
        ("f16", "bf16"),
    ] {
        let (_, to_class, format) = FLOATS.into_iter().find(|f| f.0 == to).expect("listed");
        let (_, from_class, _) = FLOATS.into_iter().find(|f| f.0 == from).expect("listed");
        let classes = classes(to_class, from_class);
        if matches!((to, from), ("bf16", "f16") | ("f16", "bf16")) {
            let text = format!("cvt.{to}.{from} %d, %a");
            forms.push(form(text, classes, move |v| {
                narrowed(format, from, value(from, v[0]), Rounding::Nearest)
            }));
        }
        for (mode_name, mode) in MODES {
            let text = |flags: &str| format!("cvt.{mode_name}.{flags}{to}.{from} %d, %a");
            forms.push(form(text(""), classes, move |v| {
                narrowed(format, from, value(from, v[0]), mode)
            }));
            if from == "f32" || to == "f32" {
                forms.push(form(text("ftz."), classes, move |v| {
                    let mut x = value(from, v[0]);
                    if from == "f32" {
                        x = f64::from(flush(x as f32, true));
                    }
                    let bits = narrowed(format, from, x, mode);
                    if to == "f32" {
                        u64::from(flush(f32::from_bits(bits as u32), true).to_bits())
                    } else {
                        bits
                    }
                }));
            }
            if to != "bf16" && from != "bf16" {
                forms.push(form(text("sat."), classes, move |v| {
                    narrow(format, saturated(value(from, v[0])), mode)
                }));
            }
            if from == "f32" && matches!(mode, Rounding::Nearest | Rounding::Zero) {
                let finite = move |bits: u64| match bits & 0x7fff == format.infinity() {
                    true => bits - 1,
                    false => bits,
                };
                let relu = |bits: u64| if bits & 0x8000 != 0 { 0 } else { bits };
                let plain = move |bits: u64| narrow(format, value("f32", bits), mode);
                forms.push(form(text("relu."), classes, move |v| relu(plain(v[0]))));
                forms.push(form(text("satfinite."), classes, move |v| {
                    finite(plain(v[0]))
                }));
                forms.push(form(text("relu.satfinite."), classes, move |v| {
                    relu(finite(plain(v[0])))
                }));
                let pair = format!("cvt.{mode_name}.relu.{to}x2.f32 %d, %a, %b");
                forms.push(form(pair, "r=ff", move |v| {
                    relu(plain(v[0])) << 16 | relu(plain(v[1]))
                }));
                let pair = format!("cvt.{mode_name}.{to}x2.f32 %d, %a, %b");
                forms.push(form(pair, "r=ff", move |v| plain(v[0]) << 16 | plain(v[1])));
            }
        }
    }
    for (name, mode, relu, finite) in [
        ("rna", Rounding::Away, false, false),
        ("rna.satfinite", Rounding::Away, false, true),
        ("rn", Rounding::Nearest, false, false),
        ("rz.relu", Rounding::Zero, true, false),
    ] {
        forms.push(form(
            format!("cvt.{name}.tf32.f32 %d, %a"),
            "r=f",
            move |v| {
                let x = value("f32", v[0]);
                if x.is_nan() {
                    return match mode {
                        Rounding::Away => v[0] & 0xffff_e000,
                        _ => 0x7fff_e000,
                    };
                }
                if relu && x.is_sign_negative() {
                    return 0;
                }
                let field = narrow(Format::TF32, x, mode);
                let infinite = field & Format::TF32.nan() == Format::TF32.infinity();
                (field - u64::from(finite && infinite)) << 13
            },
        ));
    }
    check(forms);
}

#[test]
fn floats_become_wider_floats() {
    let mut forms = Vec::new();
    for (to, from) in [
        ("f32", "f16"),
        ("f32", "bf16"),
        ("f64", "f16"),
        ("f64", "bf16"),
        ("f64", "f32"),
    ] {
        let (_, to_class, format) = FLOATS.into_iter().find(|f| f.0 == to).expect("listed");
        let (_, from_class, _) = FLOATS.into_iter().find(|f| f.0 == from).expect("listed");
        let classes = classes(to_class, from_class);
        forms.push(form(format!("cvt.{to}.{from} %d, %a"), classes, move |v| {
            let x = value(from, v[0]);
            match (to, from) {
                ("f32", "bf16") => v[0] << 16,
                // What the processor does: the payload moves along, made quiet.
                ("f64", "f32") => f64::from(f32::from_bits(v[0] as u32)).to_bits(),
                ("f64", _) if x.is_nan() => {
                    let shift = if from == "f16" { 42 } else { 45 };
                    (v[0] & 0x8000) << 48
                        | 0x7ff8 << 48
                        | (v[0] & 0x7fff) << shift & ((1 << 52) - 1)
                }
                _ => narrow(format, x, Rounding::Nearest),
            }
        }));
        if (to, from) == ("f32", "bf16") {
            for (mode, _) in MODES {
                let text = format!("cvt.{mode}.f32.bf16 %d, %a");
                forms.push(form(text, classes, |v| v[0] << 16));
            }
        }
        if from != "bf16" {
            forms.push(form(
                format!("cvt.sat.{to}.{from} %d, %a"),
                classes,
                move |v| narrow(format, saturated(value(from, v[0])), Rounding::Nearest),
            ));
        }
        if from == "f32" {
            forms.push(form("cvt.ftz.f64.f32 %d, %a", classes, |v| {
                f64::from(flush(f32::from_bits(v[0] as u32), true)).to_bits()
            }));
        }
    }
    for (text, ftz, sat) in [
        ("", false, false),
        ("ftz.", true, false),
        ("ftz.sat.", true, true),
    ] {
        forms.push(form(format!("cvt.{text}f32.f32 %d, %a"), "f=f", move |v| {
            let x = flush(f32::from_bits(v[0] as u32), ftz);
            match (sat, ftz) {
                (true, _) => bits32(saturated(f64::from(x)) as f32),
                (_, true) => bits32(x),
                _ => v[0],
            }
        }));
    }
    check(forms);
}

#[test]
fn integers_are_packed() {
    let mut forms = Vec::new();
    for (ty, bits, signed) in [
        ("u8", 8, false),
        ("s8", 8, true),
        ("u4", 4, false),
        ("s2", 2, true),
    ] {
        forms.push(form(
            format!("cvt.pack.sat.{ty}.s32.b32 %d, %a, %b, %c"),
            "r=rrr",
            move |v| {
                let [a, b, _] =
                    v.map(|x| limit(integer(x, 32, true), bits, signed) as u64 & ((1 << bits) - 1));
                (v[2] << (2 * bits) | a << bits | b) & 0xffff_ffff
            },
        ));
    }
    for (ty, signed) in [("u16", false), ("s16", true)] {
        forms.push(form(
            format!("cvt.pack.sat.{ty}.s32 %d, %a, %b"),
            "r=rr",
            move |v| {
                let [a, b, _] = v.map(|x| limit(integer(x, 32, true), 16, signed) as u64 & 0xffff);
                a << 16 | b
            },
        ));
    }
    check(forms);
}
