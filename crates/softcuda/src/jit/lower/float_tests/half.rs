//! `.f16`, `.bf16` and their pairs.

use super::{Form, check, form};
use crate::jit::runtime::float::{Exact, Format, Rounding, narrow, round};

#[derive(Clone, Copy, PartialEq)]
struct Kind {
    name: &'static str,
    format: Format,
}

const F16: Kind = Kind {
    name: "f16",
    format: Format::F16,
};
const BF16: Kind = Kind {
    name: "bf16",
    format: Format::BF16,
};

impl Kind {
    fn value(self, bits: u64) -> f64 {
        match self.name {
            "f16" => half::f16::from_bits(bits as u16).to_f64(),
            _ => half::bf16::from_bits(bits as u16).to_f64(),
        }
    }

    fn bits(self, value: f64) -> u64 {
        narrow(self.format, value, Rounding::Nearest)
    }

    fn flush(self, bits: u64, ftz: bool) -> u64 {
        match ftz && bits & 0x7fff < 1 << self.format.fraction {
            true => bits & 0x8000,
            false => bits,
        }
    }

    /// The bits after a change of sign, which makes NaN canonical.
    fn signed(self, bits: u64) -> u64 {
        match bits & 0x7fff > self.format.infinity() {
            true => 0x7fff,
            false => bits,
        }
    }

    fn fma(self, a: u64, b: u64, c: u64) -> u64 {
        let [x, y, z] = [a, b, c].map(|bits| self.value(bits));
        match (Exact::of(x), Exact::of(y), Exact::of(z)) {
            (Some(x), Some(y), Some(z)) => {
                // The sum that the tests of `runtime::float` hold against the processor's.
                let sum = x.times(y).plus(z);
                sum.map_or(0, |sum| round(self.format, sum, Rounding::Nearest))
            }
            _ => self.bits(x * y + z),
        }
    }
}

/// A form, and the same on packed pairs.
fn both(
    forms: &mut Vec<Form>,
    name: &str,
    modifiers: &str,
    kind: Kind,
    count: usize,
    reference: impl Fn([u64; 3]) -> u64 + Clone + 'static,
) {
    let operands = ["%a", "%a, %b", "%a, %b, %c"][count - 1];
    let (scalar, packed) = [("h=h", "r=r"), ("h=hh", "r=rr"), ("h=hhh", "r=rrr")][count - 1];
    let pair = reference.clone();
    forms.push(form(
        format!("{name}.{modifiers}{} %d, {operands}", kind.name),
        scalar,
        reference,
    ));
    forms.push(form(
        format!("{name}.{modifiers}{}x2 %d, {operands}", kind.name),
        packed,
        move |v| pair(v.map(|bits| bits >> 16)) << 16 | pair(v.map(|bits| bits & 0xffff)),
    ));
}

#[test]
fn halves_are_rounded_once() {
    let mut forms = Vec::new();
    for kind in [F16, BF16] {
        type Binary = (&'static str, fn(f64, f64) -> f64);
        let binary: [Binary; 3] = [
            ("add", |a, b| a + b),
            ("sub", |a, b| a - b),
            ("mul", |a, b| a * b),
        ];
        for (name, function) in binary {
            for (modifiers, ftz, sat) in [
                ("", false, false),
                ("rn.", false, false),
                ("ftz.", true, false),
                ("sat.", false, true),
                ("ftz.sat.", true, true),
            ] {
                if kind == BF16 && (ftz || sat) {
                    continue;
                }
                both(&mut forms, name, modifiers, kind, 2, move |v| {
                    let [a, b, _] = v.map(|bits| kind.value(kind.flush(bits, ftz)));
                    let value = function(a, b);
                    let value = if sat {
                        super::single::saturated(value)
                    } else {
                        value
                    };
                    kind.flush(kind.bits(value), ftz)
                });
            }
        }
        for (modifiers, ftz, sat, relu, oob) in [
            ("rn.", false, false, false, false),
            ("rn.ftz.", true, false, false, false),
            ("rn.sat.", false, true, false, false),
            ("rn.relu.", false, false, true, false),
            ("rn.oob.", false, false, false, true),
            ("rn.oob.relu.", false, false, true, true),
        ] {
            if kind == BF16 && (ftz || sat) {
                continue;
            }
            both(&mut forms, "fma", modifiers, kind, 3, move |v| {
                if oob && v.map(|bits| bits & 0xffff).contains(&0x7fff) {
                    return 0;
                }
                let [a, b, c] = v.map(|bits| kind.flush(bits & 0xffff, ftz));
                let result = kind.flush(kind.fma(a, b, c), ftz);
                match (sat, relu) {
                    (true, _) => kind.bits(super::single::saturated(kind.value(result))),
                    (_, true) if result & 0x8000 != 0 => 0,
                    _ => result,
                }
            });
        }
    }
    check(forms);
}

#[test]
fn signs_of_halves_are_bits() {
    let mut forms = Vec::new();
    for kind in [F16, BF16] {
        for (modifiers, ftz) in [("", false), ("ftz.", true)] {
            if kind == BF16 && ftz {
                continue;
            }
            both(&mut forms, "neg", modifiers, kind, 1, move |v| {
                kind.signed(kind.flush(v[0] & 0xffff, ftz) ^ 0x8000)
            });
            both(&mut forms, "abs", modifiers, kind, 1, move |v| {
                kind.signed(kind.flush(v[0] & 0xffff, ftz) & 0x7fff)
            });
        }
    }
    check(forms);
}

#[test]
fn extrema_of_halves_follow_the_documented_pseudocode() {
    let mut forms = Vec::new();
    for kind in [F16, BF16] {
        for (name, max) in [("min", false), ("max", true)] {
            for (modifiers, ftz, propagate, xorsign) in [
                ("", false, false, false),
                ("ftz.", true, false, false),
                ("NaN.", false, true, false),
                ("xorsign.abs.", false, false, true),
                ("NaN.xorsign.abs.", false, true, true),
            ] {
                if kind == BF16 && ftz {
                    continue;
                }
                both(&mut forms, name, modifiers, kind, 2, move |v| {
                    let [a, b, _] = v.map(|bits| kind.flush(bits & 0xffff, ftz));
                    let sign = (a ^ b) & 0x8000;
                    let (a, b) = if xorsign {
                        (a & 0x7fff, b & 0x7fff)
                    } else {
                        (a, b)
                    };
                    let nan = |bits: u64| bits & 0x7fff > kind.format.infinity();
                    // Sign and magnitude, as one number that orders as the values do.
                    let key = |bits: u64| match bits & 0x8000 {
                        0 => bits as i64,
                        _ => -1 - (bits & 0x7fff) as i64,
                    };
                    let result = match (nan(a), nan(b)) {
                        (true, true) => return 0x7fff,
                        (true, _) | (_, true) if propagate => return 0x7fff,
                        (true, _) => b,
                        (_, true) => a,
                        _ if (key(a) < key(b)) != max => a,
                        _ => b,
                    };
                    if xorsign {
                        result & 0x7fff | sign
                    } else {
                        result
                    }
                });
            }
        }
    }
    check(forms);
}

#[test]
fn approximations_of_halves_are_rounded() {
    let mut forms = Vec::new();
    both(&mut forms, "ex2", "approx.", F16, 1, |v| {
        F16.bits(f64::from((F16.value(v[0]) as f32).exp2()))
    });
    both(&mut forms, "ex2", "approx.ftz.", BF16, 1, |v| {
        let value = BF16.value(BF16.flush(v[0] & 0xffff, true)) as f32;
        BF16.flush(BF16.bits(f64::from(value.exp2())), true)
    });
    for kind in [F16, BF16] {
        both(&mut forms, "tanh", "approx.", kind, 1, move |v| {
            kind.bits(f64::from((kind.value(v[0]) as f32).tanh()))
        });
    }
    check(forms);
}
