//! Scalar video instructions: `vadd`, `vsub`, `vabsdiff`, `vmin`, `vmax`, `vshl`, `vshr`, `vset`
//! and `vmad`.
//!
//! An operand is a word, a half or a byte of a register, extended by its type. The result is exact
//! in 64 bits; it may be saturated, and then combined with the last operand or put into a part of
//! it.
//!
//! Devices of `sm_90` have no such instructions. The driver's compiler makes others of them, whose
//! results differ in places from PTX's description. They are as there:
//!
//! | instruction | result |
//! |---|---|
//! | `.sat` to `.u32`, not of shifts | a negative becomes 0, a large number keeps 32 bits |
//! | `.sat` to a half or byte, not of shifts | a negative becomes the largest number |
//! | `.sat` of shifts | 34 bits are kept, with sign, and saturated to 32, also for a part |
//! | `.min`, `.max` with the last operand | compare 64 bits, not the low 32 bits |
//! | into `.h1` | the result's upper half, not its lower half |
//! | `vmad` of words | its factors and its sum are signed, whatever their types |

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use ptx::ast::Type;

use super::{Second, Takes, Words, destination, operand};
use crate::jit::decode::{Arg, Operation, Reader, Refusal, Selector};
use crate::jit::lower::Lower;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Add,
    Sub,
    Difference,
    Min,
    Max,
    /// `vshl` or `vshr`, with amounts that wrap or are clamped.
    Shift {
        left: bool,
        wrap: bool,
    },
    /// `vset` of a comparison, in signed form.
    Set(IntCC),
}

/// What is done with the result.
#[derive(Debug)]
enum End {
    Write,
    Combine(Second, Arg),
    /// Goes into a part of the operand.
    Merge(Part, Arg),
}

/// Bits of a register: how many, and where they start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    bits: i64,
    at: i64,
}

/// A word, half or byte of an operand.
#[derive(Debug)]
struct Source {
    arg: Arg,
    part: Part,
    signed: bool,
}

#[derive(Debug)]
struct Scalar {
    op: Op,
    /// The result and the last operand are signed.
    signed: bool,
    saturate: bool,
    destination: Arg,
    sources: [Source; 2],
    end: End,
}

#[derive(Debug)]
struct Multiply {
    /// The product and the last operand are negated.
    negated: [bool; 2],
    plus_one: bool,
    scale: i64,
    saturate: bool,
    destination: Arg,
    sources: [Source; 2],
    last: Arg,
}

pub(super) fn is_scalar(opcode: &str) -> bool {
    matches!(
        opcode,
        "vadd" | "vsub" | "vabsdiff" | "vmin" | "vmax" | "vshl" | "vshr" | "vset" | "vmad"
    )
}

/// `vop.dtype.atype.btype{.sat}{.mode}{.op2} d{.part}, a{.part}, b{.part}{, c}`,
/// `vset.atype.btype.cmp{.op2} d{.part}, a{.part}, b{.part}{, c}`,
/// `vmad.dtype.atype.btype{.po}{.sat}{.shr} d, {-}a{.part}, {-}b{.part}, {-}c`
pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let words = Words::read(reader)?;
    match reader.opcode {
        "vmad" => decode_multiply(reader, &words),
        _ => decode_other(reader, &words),
    }
}

fn decode_other(reader: &Reader<'_>, words: &Words) -> Result<Box<dyn Operation>, Refusal> {
    let set = reader.opcode == "vset";
    let shift = matches!(reader.opcode, "vshl" | "vshr");
    let takes = Takes {
        saturate: !set,
        second: true,
        wrap: shift,
        compare: set,
        ..Takes::default()
    };
    words.only(reader, takes)?;
    let [d, a, b] = match set {
        true => {
            let [a, b] = words.types(reader)?;
            // What the comparison gives has the sign of the first operand.
            [a, a, b]
        }
        false => words.types(reader)?,
    };
    if shift && b {
        return Err(reader.invalid("takes amounts of type .u32".into()));
    }
    let op = match (reader.opcode, words.wrap, words.compare) {
        ("vadd", ..) => Op::Add,
        ("vsub", ..) => Op::Sub,
        ("vabsdiff", ..) => Op::Difference,
        ("vmin", ..) => Op::Min,
        ("vmax", ..) => Op::Max,
        ("vset", _, Some(compare)) => Op::Set(compare),
        ("vset", ..) => return Err(reader.invalid("a comparison is missing".into())),
        (name, Some(wrap), _) => Op::Shift {
            left: name == "vshl",
            wrap,
        },
        _ => return Err(reader.invalid(".clamp or .wrap is missing".into())),
    };
    let (to, first, second, last) = match reader.args {
        [to, first, second] => (to, first, second, None),
        [to, first, second, last] => (to, first, second, Some(last)),
        args => {
            let count = args.len();
            return Err(reader.invalid(format!("takes 3 or 4 operands, not {count}")));
        }
    };
    let (destination, part) = destination(reader, to)?;
    let last = last.map(|last| whole(reader, last)).transpose()?;
    let end = match (words.second, part, last) {
        (Some(_), Some(_), _) => {
            return Err(reader.invalid("writes a part or has .add, .min or .max".into()));
        }
        (Some(second), None, Some(last)) => End::Combine(second, last),
        (None, Some(selector), Some(last)) => End::Merge(part_of(reader, &selector)?, last),
        // The last operand has no effect then.
        (None, None, _) => End::Write,
        (_, _, None) => return Err(reader.invalid("the last operand is missing".into())),
    };
    Ok(Box::new(Scalar {
        op,
        signed: d,
        saturate: words.saturate,
        destination,
        sources: [source(reader, first, a)?.0, source(reader, second, b)?.0],
        end,
    }))
}

fn decode_multiply(reader: &Reader<'_>, words: &Words) -> Result<Box<dyn Operation>, Refusal> {
    let takes = Takes {
        saturate: true,
        scale: true,
        ..Takes::default()
    };
    words.only(reader, takes)?;
    let [_, a, b] = words.types(reader)?;
    let [to, first, second, last] = reader.finish()?;
    let (destination, None) = destination(reader, &to)? else {
        return Err(reader.invalid("writes a whole register".into()));
    };
    let (first, first_negated) = source(reader, &first, a)?;
    let (second, second_negated) = source(reader, &second, b)?;
    let (last, last_negated) = match last {
        Arg::Part(id, selector) if selector == Selector::WHOLE.negated() => (Arg::Reg(id), true),
        last => (last, false),
    };
    let negated = [first_negated != second_negated, last_negated];
    if negated == [true, true] {
        return Err(reader.invalid("negates the product or the last operand, not both".into()));
    }
    if words.plus_one && negated.contains(&true) {
        return Err(reader.invalid("negates nothing with .po".into()));
    }
    Ok(Box::new(Multiply {
        negated,
        plus_one: words.plus_one,
        scale: i64::from(words.scale.unwrap_or(0)),
        saturate: words.saturate,
        destination,
        sources: [first, second],
        last: whole(reader, &last)?,
    }))
}

/// An operand of which a part may be taken, and whether it is negated.
fn source(reader: &Reader<'_>, arg: &Arg, signed: bool) -> Result<(Source, bool), Refusal> {
    let (arg, selector) = operand(reader, arg)?;
    let selector = selector.unwrap_or(Selector::WHOLE);
    let part = part_of(reader, &selector)?;
    Ok((Source { arg, part, signed }, selector.negated))
}

fn part_of(reader: &Reader<'_>, selector: &Selector) -> Result<Part, Refusal> {
    let bits = i64::from(selector.bits);
    match selector.parts() {
        [part] if bits * i64::from(*part) < 32 => Ok(Part {
            bits,
            at: bits * i64::from(*part),
        }),
        _ => Err(reader.invalid("takes .b0 to .b3, .h0 and .h1 of registers".into())),
    }
}

/// An operand that is not taken in parts.
fn whole(reader: &Reader<'_>, arg: &Arg) -> Result<Arg, Refusal> {
    match operand(reader, arg)? {
        (arg, None) => Ok(arg),
        _ => Err(reader.invalid("takes the whole last operand".into())),
    }
}

impl Source {
    /// Its part, extended to 64 bits.
    fn read(&self, l: &mut Lower<'_>) -> Value {
        let Part { bits, at } = self.part;
        let word = l.read(&self.arg, Type::U32);
        let top = l.b.ins().ishl_imm(word, 32 - bits - at);
        let part = match self.signed {
            true => l.b.ins().sshr_imm(top, 32 - bits),
            false => l.b.ins().ushr_imm(top, 32 - bits),
        };
        extend(l, part, self.signed)
    }
}

fn extend(l: &mut Lower<'_>, word: Value, signed: bool) -> Value {
    match signed {
        true => l.b.ins().sextend(types::I64, word),
        false => l.b.ins().uextend(types::I64, word),
    }
}

/// The low bits of a number of 64 bits, extended by their sign.
fn keep(l: &mut Lower<'_>, value: Value, bits: i64) -> Value {
    let top = l.b.ins().ishl_imm(value, 64 - bits);
    l.b.ins().sshr_imm(top, 64 - bits)
}

/// The nearest number of a type of 32 bits.
fn clamp(l: &mut Lower<'_>, value: Value, signed: bool) -> Value {
    let (low, high) = match signed {
        true => (i64::from(i32::MIN), i64::from(i32::MAX)),
        false => (0, i64::from(u32::MAX)),
    };
    let low = l.b.ins().iconst(types::I64, low);
    let high = l.b.ins().iconst(types::I64, high);
    let value = l.b.ins().smax(value, low);
    l.b.ins().smin(value, high)
}

fn write(l: &mut Lower<'_>, destination: &Arg, value: Value) {
    let word = l.b.ins().ireduce(types::I32, value);
    l.write(destination, Type::U32, word);
}

impl Operation for Scalar {
    fn pure(&self) -> bool {
        true
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let [a, b] = self.sources.each_ref().map(|source| source.read(l));
        let exact = self.exact(l, a, b);
        let value = match self.saturate {
            true => self.saturated(l, exact),
            false => match self.op {
                Op::Add | Op::Sub => keep(l, exact, 32),
                _ => exact,
            },
        };
        let value = match &self.end {
            End::Write => value,
            End::Combine(second, last) => {
                let last = l.read(last, Type::U32);
                let last = extend(l, last, self.signed);
                match (second, self.signed) {
                    (Second::Add, _) => l.b.ins().iadd(value, last),
                    (Second::Min, true) => l.b.ins().smin(value, last),
                    (Second::Min, false) => l.b.ins().umin(value, last),
                    (Second::Max, true) => l.b.ins().smax(value, last),
                    (Second::Max, false) => l.b.ins().umax(value, last),
                }
            }
            End::Merge(part, last) => {
                let last = l.read(last, Type::U32);
                let last = extend(l, last, false);
                let mask = ((1 << part.bits) - 1) << part.at;
                // The upper half takes the result's upper half.
                let placed = match part {
                    Part { bits: 16, at: 16 } => value,
                    part => l.b.ins().ishl_imm(value, part.at),
                };
                let placed = l.b.ins().band_imm(placed, mask);
                let rest = l.b.ins().band_imm(last, !mask);
                l.b.ins().bor(rest, placed)
            }
        };
        write(l, &self.destination, value);
    }
}

impl Scalar {
    /// The result, exact in 64 bits.
    fn exact(&self, l: &mut Lower<'_>, a: Value, b: Value) -> Value {
        match self.op {
            Op::Add => l.b.ins().iadd(a, b),
            Op::Sub => l.b.ins().isub(a, b),
            Op::Difference => {
                let difference = l.b.ins().isub(a, b);
                l.b.ins().iabs(difference)
            }
            Op::Min => l.b.ins().smin(a, b),
            Op::Max => l.b.ins().smax(a, b),
            Op::Shift { left, wrap } => {
                let by = match wrap {
                    true => l.b.ins().band_imm(b, 31),
                    false => {
                        let most = l.b.ins().iconst(types::I64, 32);
                        l.b.ins().umin(b, most)
                    }
                };
                match left {
                    true => l.b.ins().ishl(a, by),
                    false => l.b.ins().sshr(a, by),
                }
            }
            Op::Set(condition) => {
                let holds = l.b.ins().icmp(condition, a, b);
                l.b.ins().uextend(types::I64, holds)
            }
        }
    }

    fn saturated(&self, l: &mut Lower<'_>, exact: Value) -> Value {
        let bits = match &self.end {
            End::Merge(part, _) => part.bits,
            _ => 32,
        };
        match (self.op, bits, self.signed) {
            (Op::Shift { left, .. }, ..) => {
                let kept = keep(l, exact, 34);
                let value = clamp(l, kept, self.signed);
                match left {
                    true => keep(l, value, 32),
                    false => value,
                }
            }
            (_, 32, true) => clamp(l, exact, true),
            (op, 32, false) => {
                let zero = l.b.ins().iconst(types::I64, 0);
                let value = l.b.ins().smax(exact, zero);
                match op {
                    Op::Add | Op::Sub => keep(l, value, 32),
                    _ => value,
                }
            }
            (_, bits, signed) => {
                let most = (1 << (bits - i64::from(signed))) - 1;
                let most = l.b.ins().iconst(types::I64, most);
                l.b.ins().umin(exact, most)
            }
        }
    }
}

impl Operation for Multiply {
    fn pure(&self) -> bool {
        true
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let [a, b] = self.sources.each_ref().map(|source| {
            let value = source.read(l);
            keep(l, value, 32)
        });
        let last = l.read(&self.last, Type::U32);
        let last = extend(l, last, true);
        let mut value = l.b.ins().imul(a, b);
        if self.negated[0] {
            value = l.b.ins().ineg(value);
        }
        value = match self.negated[1] {
            true => l.b.ins().isub(value, last),
            false => l.b.ins().iadd(value, last),
        };
        if self.plus_one {
            value = l.b.ins().iadd_imm(value, 1);
        }
        let signed =
            self.sources.iter().any(|source| source.signed) || self.negated.contains(&true);
        if self.scale != 0 {
            value = match signed {
                true => l.b.ins().sshr_imm(value, self.scale),
                false => l.b.ins().ushr_imm(value, self.scale),
            };
        }
        if self.saturate {
            value = clamp(l, value, signed);
        }
        write(l, &self.destination, value);
    }
}
