//! Comparisons.

use super::{check, form};

type Holds = fn(Option<std::cmp::Ordering>) -> bool;

#[test]
fn comparisons_hold_as_documented() {
    use std::cmp::Ordering::*;
    let relations: [(&str, Holds); 14] = [
        ("eq", |o| o == Some(Equal)),
        ("ne", |o| matches!(o, Some(Less | Greater))),
        ("lt", |o| o == Some(Less)),
        ("le", |o| matches!(o, Some(Less | Equal))),
        ("gt", |o| o == Some(Greater)),
        ("ge", |o| matches!(o, Some(Greater | Equal))),
        ("equ", |o| matches!(o, None | Some(Equal))),
        ("neu", |o| o != Some(Equal)),
        ("ltu", |o| matches!(o, None | Some(Less))),
        ("leu", |o| o != Some(Greater)),
        ("gtu", |o| matches!(o, None | Some(Greater))),
        ("geu", |o| o != Some(Less)),
        ("num", |o| o.is_some()),
        ("nan", |o| o.is_none()),
    ];
    let mut forms = Vec::new();
    for (name, holds) in relations {
        for ftz in [false, true] {
            let ftz_text = if ftz { "ftz." } else { "" };
            forms.push(form(
                format!("setp.{name}.{ftz_text}f32 %d, %a, %b"),
                "p=ff",
                move |v| {
                    let [a, b, _] =
                        v.map(|bits| super::single::flush(f32::from_bits(bits as u32), ftz));
                    u64::from(holds(a.partial_cmp(&b)))
                },
            ));
            forms.push(form(
                format!("setp.{name}.{ftz_text}f16 %d, %a, %b"),
                "p=hh",
                move |v| {
                    let [a, b, _] = v.map(|bits| {
                        let bits = if ftz && bits & 0x7c00 == 0 {
                            bits & 0x8000
                        } else {
                            bits
                        };
                        half::f16::from_bits(bits as u16)
                    });
                    u64::from(holds(a.partial_cmp(&b)))
                },
            ));
        }
        forms.push(form(
            format!("setp.{name}.f64 %d, %a, %b"),
            "p=dd",
            move |v| {
                u64::from(holds(
                    f64::from_bits(v[0]).partial_cmp(&f64::from_bits(v[1])),
                ))
            },
        ));
        forms.push(form(
            format!("setp.{name}.bf16 %d, %a, %b"),
            "p=hh",
            move |v| {
                let [a, b, _] = v.map(|bits| half::bf16::from_bits(bits as u16));
                u64::from(holds(a.partial_cmp(&b)))
            },
        ));
        forms.push(form(
            format!("set.{name}.f32.f32 %d, %a, %b"),
            "f=ff",
            move |v| {
                let [a, b, _] = v.map(|bits| f32::from_bits(bits as u32));
                if holds(a.partial_cmp(&b)) {
                    0x3f80_0000
                } else {
                    0
                }
            },
        ));
        forms.push(form(
            format!("set.{name}.u32.f16x2 %d, %a, %b"),
            "r=rr",
            move |v| {
                let half = |shift: u32| {
                    let [a, b, _] = v.map(|bits| half::f16::from_bits((bits >> shift) as u16));
                    if holds(a.partial_cmp(&b)) { 0xffff } else { 0 }
                };
                half(16) << 16 | half(0)
            },
        ));
    }
    check(forms);
}
