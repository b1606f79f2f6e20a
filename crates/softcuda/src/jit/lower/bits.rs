//! Bits: `and`, `or`, `xor`, `not`, `cnot`, `lop3`, shifts, funnel shifts, bit fields, counts,
//! `prmt`, and the packed dot products `dp4a` and `dp2a`.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use ptx::ast::{Immediate, Type};

use super::bit_functions::{
    BFE_S32, BFE_S64, BFE_U32, BFE_U64, BFI_B32, BFI_B64, BMSK, FNS, PRMT, PRMT_MODE, SZEXT_S32,
    SZEXT_U32,
};
use super::float_value::number_like;
use super::runs::Term;
use super::{Lower, lop3, value_type};
use crate::jit::decode::{Arg, Division, Divisor, Logic, Operation, Reader, Refusal, Stride};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    And,
    Or,
    Xor,
    Not,
    Cnot,
    Shl,
    Shr,
    ShfLeft {
        wrap: bool,
    },
    ShfRight {
        wrap: bool,
    },
    Popc,
    Clz,
    Bfind {
        shift_amount: bool,
    },
    Brev,
    Fns,
    Bfe,
    Bfi,
    Szext {
        wrap: bool,
    },
    Bmsk {
        wrap: bool,
    },
    Prmt(Permute),
    Dp4a {
        a_signed: bool,
        b_signed: bool,
    },
    Dp2a {
        a_signed: bool,
        b_signed: bool,
        high: bool,
    },
}

/// How `prmt` reads its selector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Permute {
    Default,
    F4e,
    B4e,
    Rc8,
    Ecl,
    Ecr,
    Rc16,
}

#[derive(Debug)]
struct Bits {
    op: Op,
    /// Destination, then sources, with their types.
    dst: (Arg, Type),
    sources: Vec<(Arg, Type)>,
}

const LOGIC: &[Type] = &[Type::Pred, Type::B16, Type::B32, Type::B64];
const UNTYPED: &[Type] = &[Type::B16, Type::B32, Type::B64];
const SHIFTED: &[Type] = &[
    Type::B16,
    Type::B32,
    Type::B64,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::S16,
    Type::S32,
    Type::S64,
];
const COUNTED: &[Type] = &[Type::B32, Type::B64];
const FIELDS: &[Type] = &[Type::U32, Type::U64, Type::S32, Type::S64];
const WRAP: &[(&str, bool)] = &[("wrap", true), ("clamp", false)];
const SIGN: &[(&str, bool)] = &[("s32", true), ("u32", false)];

fn signed(ty: Type) -> bool {
    matches!(ty, Type::S16 | Type::S32 | Type::S64)
}

/// Decodes an opcode of this family.
pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    use Type::{B32, U32};
    // Each arm: the operation, the destination's type and the sources' types.
    let (op, dst, sources): (Op, Type, Vec<Type>) = match r.opcode {
        "and" | "or" | "xor" => {
            let op = match r.opcode {
                "and" => Op::And,
                "or" => Op::Or,
                _ => Op::Xor,
            };
            let ty = r.ty_of(LOGIC)?;
            (op, ty, vec![ty, ty])
        }
        "not" => {
            let ty = r.ty_of(LOGIC)?;
            (Op::Not, ty, vec![ty])
        }
        "cnot" => {
            let ty = r.ty_of(UNTYPED)?;
            (Op::Cnot, ty, vec![ty])
        }
        "shl" => {
            let ty = r.ty_of(UNTYPED)?;
            (Op::Shl, ty, vec![ty, U32])
        }
        "shr" => {
            let ty = r.ty_of(SHIFTED)?;
            (Op::Shr, ty, vec![ty, U32])
        }
        "shf" => {
            let left = r.expect_any(&[("l", true), ("r", false)])?;
            let wrap = r.expect_any(WRAP)?;
            r.ty_of(&[B32])?;
            (
                if left {
                    Op::ShfLeft { wrap }
                } else {
                    Op::ShfRight { wrap }
                },
                B32,
                vec![B32, B32, U32],
            )
        }
        "popc" => (Op::Popc, U32, vec![r.ty_of(COUNTED)?]),
        "clz" => (Op::Clz, U32, vec![r.ty_of(COUNTED)?]),
        "bfind" => {
            let shift_amount = r.eat("shiftamt");
            (Op::Bfind { shift_amount }, U32, vec![r.ty_of(FIELDS)?])
        }
        "brev" => {
            let ty = r.ty_of(COUNTED)?;
            (Op::Brev, ty, vec![ty])
        }
        "fns" => {
            r.ty_of(&[B32])?;
            (Op::Fns, B32, vec![B32, B32, Type::S32])
        }
        "bfe" => {
            let ty = r.ty_of(FIELDS)?;
            (Op::Bfe, ty, vec![ty, U32, U32])
        }
        "bfi" => {
            let ty = r.ty_of(COUNTED)?;
            (Op::Bfi, ty, vec![ty, ty, U32, U32])
        }
        "szext" => {
            let wrap = r.expect_any(WRAP)?;
            let ty = r.ty_of(&[Type::U32, Type::S32])?;
            (Op::Szext { wrap }, ty, vec![ty, U32])
        }
        "bmsk" => {
            let wrap = r.expect_any(WRAP)?;
            r.ty_of(&[B32])?;
            (Op::Bmsk { wrap }, B32, vec![U32, U32])
        }
        "prmt" => {
            r.ty_of(&[B32])?;
            let mode = r
                .eat_any(&[
                    ("f4e", Permute::F4e),
                    ("b4e", Permute::B4e),
                    ("rc8", Permute::Rc8),
                    ("ecl", Permute::Ecl),
                    ("ecr", Permute::Ecr),
                    ("rc16", Permute::Rc16),
                ])
                .unwrap_or(Permute::Default);
            (Op::Prmt(mode), B32, vec![B32, B32, B32])
        }
        "dp4a" => {
            let (a_signed, b_signed) = (r.expect_any(SIGN)?, r.expect_any(SIGN)?);
            (Op::Dp4a { a_signed, b_signed }, B32, vec![B32, B32, B32])
        }
        "dp2a" => {
            let high = r.expect_any(&[("hi", true), ("lo", false)])?;
            let (a_signed, b_signed) = (r.expect_any(SIGN)?, r.expect_any(SIGN)?);
            (
                Op::Dp2a {
                    a_signed,
                    b_signed,
                    high,
                },
                B32,
                vec![B32, B32, B32],
            )
        }
        "lop3" => return lop3::decode(r),
        _ => return Err(r.invalid("is no bit instruction".into())),
    };
    r.end()?;
    if r.args.len() != sources.len() + 1 {
        return Err(r.invalid(format!(
            "takes {} operands, not {}",
            sources.len() + 1,
            r.args.len()
        )));
    }
    Ok(Box::new(Bits {
        op,
        dst: (r.args[0].clone(), dst),
        sources: r.args[1..].iter().cloned().zip(sources).collect(),
    }))
}

impl Operation for Bits {
    fn pure(&self) -> bool {
        true
    }

    fn logic(&self) -> Option<Logic<'_>> {
        let source = |at: usize| &self.sources[at].0;
        match self.op {
            _ if self.dst.1 != Type::Pred => None,
            Op::And => Some(Logic::Both(source(0), source(1))),
            Op::Or => Some(Logic::Either(source(0), source(1))),
            Op::Not => Some(Logic::Not(source(0))),
            _ => None,
        }
    }

    fn evaluates(&self, of: &dyn Fn(&Arg) -> Option<u64>) -> Option<u64> {
        let source = |at: usize| of(&self.sources[at].0);
        match self.op {
            Op::And => Some(source(0)? & source(1)?),
            Op::Or => Some(source(0)? | source(1)?),
            Op::Xor => Some(source(0)? ^ source(1)?),
            Op::Not => Some(!source(0)?),
            Op::Shl => {
                let (value, amount) = (source(0)?, source(1)? as u32);
                let bits = 8 * self.sources[0].1.size();
                Some(if amount < bits { value << amount } else { 0 })
            }
            _ => None,
        }
    }

    fn term(&self) -> Option<Term<'_>> {
        match (self.op, &self.sources[..]) {
            (Op::Shl, [(Arg::Reg(of), Type::B64), (amount, _)]) => {
                let amount = constant(amount).filter(|amount| *amount < 32)?;
                Some(Term::Product {
                    of: *of,
                    by: 1 << amount,
                })
            }
            _ => None,
        }
    }

    fn vectorizes(&self) -> bool {
        let ty = self.sources[0].1;
        match self.op {
            Op::And | Op::Or | Op::Xor | Op::Not => ty == Type::Pred || ty.size() == 4,
            Op::Shl | Op::Shr => ty.size() == 4 && constant(&self.sources[1].0).is_some(),
            Op::ShfLeft { .. } | Op::ShfRight { .. } => constant(&self.sources[2].0).is_some(),
            Op::Dp4a { .. } | Op::Dp2a { .. } => true,
            Op::Popc | Op::Brev => ty.size() == 4,
            Op::Bfe => {
                let field = [1, 2].map(|at| constant(&self.sources[at].0));
                let whole = |[pos, len]: [u64; 2]| len & 255 > 0 && (pos & 255) + (len & 255) <= 32;
                ty.size() == 4 && matches!(field, [Some(pos), Some(len)] if whole([pos, len]))
            }
            Op::Bfi => {
                let field = [2, 3].map(|at| constant(&self.sources[at].0));
                ty.size() == 4 && field.iter().all(Option::is_some)
            }
            // No sign is asked for.
            Op::Prmt(Permute::Default) => {
                constant(&self.sources[2].0).is_some_and(|selector| selector & 0x8888 == 0)
            }
            _ => false,
        }
    }

    fn vectorizes_short(&self) -> bool {
        match self.op {
            Op::And | Op::Or | Op::Xor | Op::Not => true,
            Op::Shl | Op::Shr => constant(&self.sources[1].0).is_some(),
            _ => false,
        }
    }

    fn stride(&self, of: &dyn Fn(&Arg) -> Option<Stride>) -> Option<Stride> {
        let (from, ty) = &self.sources[0];
        let bits = u32::from(ty.size() as u8) * 8;
        if !matches!(bits, 32 | 64) || *ty == Type::Pred {
            return None;
        }
        let other = self.sources.get(1).map(|(other, _)| other);
        let number = other.and_then(constant);
        let stride = of(from)?;
        // The bits that hold the thread's number in the group.
        let last = ((1u64 << stride.group) - 1) << stride.shift();
        let low = number.map(|number| number & last);
        match (self.op, number) {
            (Op::Shl, Some(amount)) => Some(match amount as u32 {
                amount if amount < bits => {
                    let stride = stride.times(1i64 << amount);
                    if bits == 32 {
                        stride.in_words()
                    } else {
                        stride
                    }
                }
                _ => Stride::number(0),
            }),
            // The thread's number in the group is shifted out.
            (Op::Shr, Some(amount)) if stride.counts() && amount >= stride.group.into() => {
                Some(Stride::same(0))
            }
            (Op::And, Some(number)) if stride.counts_by() && low == Some(last) => Some(Stride {
                zeros: stride.zeros.max((number & !last).trailing_zeros()),
                ..stride
            }),
            (Op::And, Some(number)) if stride.counts() && low == Some(0) => {
                Some(Stride::same(stride.zeros.max(number.trailing_zeros())))
            }
            (Op::Or, Some(number)) if stride.counts() && low == Some(0) => Some(Stride {
                zeros: stride.zeros.min(number.trailing_zeros()),
                ..stride
            }),
            (Op::Not, _) => {
                let less = stride.times(-1);
                let less = if bits == 32 { less.in_words() } else { less };
                Some(Stride { zeros: 0, ..less })
            }
            (Op::And | Op::Or | Op::Xor | Op::Shr, _) => {
                let other = of(other?)?;
                let same = stride.step == 0 && other.step == 0;
                let zeros = match self.op {
                    Op::And => stride.zeros.max(other.zeros),
                    Op::Or | Op::Xor => stride.zeros.min(other.zeros),
                    _ => 0,
                };
                same.then_some(Stride::same(zeros))
            }
            _ => None,
        }
    }

    fn division(&self) -> Option<Division> {
        let [(Arg::Reg(from), ty), (other, _)] = &self.sources[..] else {
            return None;
        };
        let number = constant(other).filter(|_| ty.size() == 4)?;
        let word = number as u32;
        let by = match self.op {
            Op::Shr if (1..32).contains(&number) => 1 << number,
            // Without what is left of a power of two.
            Op::And if word.wrapping_neg().is_power_of_two() => u64::from(word.wrapping_neg()),
            _ => return None,
        };
        Some(Division {
            from: *from,
            signed: self.op == Op::Shr && signed(*ty),
            by: Divisor::Number(by),
            rest: false,
        })
    }

    fn most(&self, of: &dyn Fn(&Arg) -> Option<u32>) -> Option<u32> {
        let (from, ty) = &self.sources[0];
        if ty.size() != 4 || *ty == Type::Pred {
            return None;
        }
        let (other, _) = self.sources.get(1)?;
        let amount = constant(other).map(|amount| amount as u32);
        match self.op {
            Op::And => of(from).into_iter().chain(of(other)).min(),
            // No bit is above the highest of both.
            Op::Or | Op::Xor => {
                let highest = (of(from)? | of(other)?).checked_ilog2();
                Some(highest.map_or(0, |bit| u32::MAX >> (31 - bit)))
            }
            Op::Shl => {
                let most = u64::from(of(from)?).checked_shl(amount?.min(32))?;
                u32::try_from(most).ok()
            }
            // What is known has no sign.
            Op::Shr => Some(of(from)?.checked_shr(amount?).unwrap_or(0)),
            _ => None,
        }
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let values: Vec<Value> = self
            .sources
            .iter()
            .map(|(arg, ty)| l.read_number(arg, *ty))
            .collect();
        let ty = self.sources[0].1;
        let kind = value_type(ty);
        let result = match (self.op, &values[..]) {
            (Op::And, &[a, b]) => l.b.ins().band(a, b),
            (Op::Or, &[a, b]) => l.b.ins().bor(a, b),
            (Op::Xor, &[a, b]) => l.b.ins().bxor(a, b),
            (Op::Not, &[a]) if ty == Type::Pred => l.not(a),
            (Op::Not, &[a]) => l.b.ins().bnot(a),
            (Op::Cnot, &[a]) => {
                let zero = l.b.ins().icmp_imm(IntCC::Equal, a, 0);
                l.b.ins().uextend(kind, zero)
            }
            (Op::Shl | Op::Shr, &[a, _]) if l.in_vectors() => {
                shift_by_constant(l, self.op, signed(ty), a, constant(&self.sources[1].0))
            }
            (Op::Shl, &[a, amount]) => {
                let shifted = l.b.ins().ishl(a, amount);
                zero_beyond(l, kind.bits(), &self.sources[1].0, amount, shifted)
            }
            (Op::Shr, &[a, amount]) if signed(ty) => {
                let most = l.b.ins().iconst(types::I32, i64::from(kind.bits()) - 1);
                let amount = l.b.ins().umin(amount, most);
                l.b.ins().sshr(a, amount)
            }
            (Op::Shr, &[a, amount]) => {
                let shifted = l.b.ins().ushr(a, amount);
                zero_beyond(l, kind.bits(), &self.sources[1].0, amount, shifted)
            }
            (Op::ShfLeft { wrap }, &[a, b, _]) if l.in_vectors() => {
                funnel_by_constant(l, wrap, [b, a], constant(&self.sources[2].0), true)
            }
            (Op::ShfRight { wrap }, &[a, b, _]) if l.in_vectors() => {
                funnel_by_constant(l, wrap, [a, b], constant(&self.sources[2].0), false)
            }
            (Op::ShfLeft { wrap }, &[a, b, amount]) => {
                let (joined, amount) = funnel(l, wrap, a, b, amount);
                let shifted = l.b.ins().ishl(joined, amount);
                let high = l.b.ins().ushr_imm(shifted, 32);
                l.b.ins().ireduce(types::I32, high)
            }
            (Op::ShfRight { wrap }, &[a, b, amount]) => {
                let (joined, amount) = funnel(l, wrap, a, b, amount);
                let shifted = l.b.ins().ushr(joined, amount);
                l.b.ins().ireduce(types::I32, shifted)
            }
            (Op::Popc, &[a]) if l.in_vectors() => count_in_vectors(l, a),
            (Op::Brev, &[a]) if l.in_vectors() => reverse_in_vectors(l, a),
            (Op::Popc, &[a]) => {
                let count = l.b.ins().popcnt(a);
                low_word(l, count)
            }
            (Op::Clz, &[a]) => {
                let count = l.b.ins().clz(a);
                low_word(l, count)
            }
            (Op::Bfind { shift_amount }, &[a]) => find_leading(l, ty, a, shift_amount),
            (Op::Brev, &[a]) => l.b.ins().bitrev(a),
            (Op::Fns, &[mask, base, offset]) => l.call_value(&FNS, &[mask, base, offset]),
            (Op::Bfe, &[a, pos, len]) => {
                let function = match ty {
                    Type::U32 => &BFE_U32,
                    Type::S32 => &BFE_S32,
                    Type::U64 => &BFE_U64,
                    _ => &BFE_S64,
                };
                extract(l, ty, a, pos, len, [&self.sources[1].0, &self.sources[2].0])
                    .unwrap_or_else(|| l.call_value(function, &[a, pos, len]))
            }
            (Op::Bfi, &[a, b, pos, len]) => insert(
                l,
                ty,
                a,
                b,
                pos,
                len,
                [&self.sources[2].0, &self.sources[3].0],
            ),
            (Op::Szext { wrap }, &[a, bits]) => {
                let wrap = l.b.ins().iconst(types::I32, i64::from(wrap));
                l.call_value(
                    if signed(ty) { &SZEXT_S32 } else { &SZEXT_U32 },
                    &[a, bits, wrap],
                )
            }
            (Op::Bmsk { wrap }, &[pos, len]) => {
                let wrap = l.b.ins().iconst(types::I32, i64::from(wrap));
                l.call_value(&BMSK, &[pos, len, wrap])
            }
            (Op::Prmt(Permute::Default), &[a, b, selector]) => match constant(&self.sources[2].0) {
                Some(selector) => permute_by_constant(l, a, b, selector as u32),
                None => l.call_value(&PRMT, &[a, b, selector]),
            },
            (Op::Prmt(mode), &[a, b, selector]) => {
                let mode = l.b.ins().iconst(types::I32, mode as i64);
                l.call_value(&PRMT_MODE, &[a, b, selector, mode])
            }
            (Op::Dp4a { a_signed, b_signed }, &[a, b, c]) => {
                let mut sum = c;
                for byte in 0..4 {
                    let x = lane(l, a, byte * 8, 8, a_signed);
                    let y = lane(l, b, byte * 8, 8, b_signed);
                    let product = l.b.ins().imul(x, y);
                    sum = l.b.ins().iadd(sum, product);
                }
                sum
            }
            (
                Op::Dp2a {
                    a_signed,
                    b_signed,
                    high,
                },
                &[a, b, c],
            ) => {
                let mut sum = c;
                for half in 0..2 {
                    let x = lane(l, a, half * 16, 16, a_signed);
                    let y = lane(l, b, half * 8 + if high { 16 } else { 0 }, 8, b_signed);
                    let product = l.b.ins().imul(x, y);
                    sum = l.b.ins().iadd(sum, product);
                }
                sum
            }
            _ => unreachable!("decode counted the operands"),
        };
        l.write_number(&self.dst.0, self.dst.1, result);
    }
}

fn constant(arg: &Arg) -> Option<u64> {
    match arg {
        Arg::Imm(Immediate::Int { bits, .. }) => Some(*bits),
        _ => None,
    }
}

/// Words shifted by a number.
fn shift_by_constant(
    l: &mut Lower<'_>,
    op: Op,
    signed: bool,
    words: Value,
    amount: Option<u64>,
) -> Value {
    let amount = amount.map_or(0, |amount| amount as u32);
    let by = l.b.ins().iconst(types::I32, i64::from(amount.min(31)));
    match (op, signed) {
        (Op::Shr, true) => l.b.ins().sshr(words, by),
        _ if amount > 31 => {
            let zero = l.b.ins().iconst(types::I32, 0);
            l.spread(zero)
        }
        (Op::Shr, false) => l.b.ins().ushr(words, by),
        _ => l.b.ins().ishl(words, by),
    }
}

/// How many bits are set in each word of a vector.
fn count_in_vectors(l: &mut Lower<'_>, words: Value) -> Value {
    let bytes = l.as_vector(words, types::I8X16);
    let bytes = l.b.ins().popcnt(bytes);
    let mut sum = l.as_vector(bytes, types::I32X4);
    for distance in [8, 16] {
        let others = l.b.ins().ushr_imm(sum, distance);
        sum = l.b.ins().iadd(sum, others);
    }
    let mask = l.word(0x3f);
    l.b.ins().band(sum, mask)
}

/// The bits of each word of a vector the other way round: those of each half of a byte by a table,
/// and then the bytes.
fn reverse_in_vectors(l: &mut Lower<'_>, words: Value) -> Value {
    let low_half = l.word(0x0f0f_0f0f);
    let upper = l.b.ins().ushr_imm(words, 4);
    let [lower, upper] = [words, upper].map(|half| {
        let half = l.b.ins().band(half, low_half);
        l.as_vector(half, types::I8X16)
    });
    let reversed: [u8; 16] = std::array::from_fn(|half| (half as u8).reverse_bits() >> 4);
    let [to_upper, to_lower] = [4, 0].map(|distance| {
        let table: Vec<u8> = reversed.iter().map(|half| half << distance).collect();
        let table = l.b.func.dfg.constants.insert(table.into());
        l.b.ins().vconst(types::I8X16, table)
    });
    let lower = l.b.ins().swizzle(to_upper, lower);
    let upper = l.b.ins().swizzle(to_lower, upper);
    let bytes = l.b.ins().bor(lower, upper);
    let order: Vec<u8> = (0..16).map(|byte| byte ^ 3).collect();
    let order = l.b.func.dfg.immediates.push(order.into());
    let bytes = l.b.ins().shuffle(bytes, bytes, order);
    l.as_vector(bytes, types::I32X4)
}

/// The low 32 bits of a count.
fn low_word(l: &mut Lower<'_>, count: Value) -> Value {
    match l.b.func.dfg.value_type(count) {
        types::I64 => l.b.ins().ireduce(types::I32, count),
        _ => count,
    }
}

/// `shifted`, or 0 when the amount is the width or more: the host's shifts wrap, PTX's clamp.
fn zero_beyond(
    l: &mut Lower<'_>,
    width: u32,
    amount_arg: &Arg,
    amount: Value,
    shifted: Value,
) -> Value {
    if constant(amount_arg).is_some_and(|amount| (amount as u32) < width) {
        return shifted;
    }
    let kind = l.b.func.dfg.value_type(shifted);
    let zero = l.b.ins().iconst(kind, 0);
    let inside =
        l.b.ins()
            .icmp_imm(IntCC::UnsignedLessThan, amount, i64::from(width));
    l.b.ins().select(inside, shifted, zero)
}

/// `b:a` as 64 bits, and the amount of a funnel shift: at most 32, or modulo 32.
fn funnel(l: &mut Lower<'_>, wrap: bool, a: Value, b: Value, amount: Value) -> (Value, Value) {
    let low = l.b.ins().uextend(types::I64, a);
    let high = l.b.ins().uextend(types::I64, b);
    let high = l.b.ins().ishl_imm(high, 32);
    let joined = l.b.ins().bor(high, low);
    let amount = if wrap {
        l.b.ins().band_imm(amount, 31)
    } else {
        let most = l.b.ins().iconst(types::I32, 32);
        l.b.ins().umin(amount, most)
    };
    (joined, amount)
}

/// The first word, shifted left or right by a constant, with bits of the second behind it.
fn funnel_by_constant(
    l: &mut Lower<'_>,
    wrap: bool,
    [first, second]: [Value; 2],
    amount: Option<u64>,
    left: bool,
) -> Value {
    let amount = amount.expect("only shifts by constants are done in vectors") as u32;
    let amount = match wrap {
        true => amount & 31,
        false => amount.min(32),
    };
    let (rest, amount) = (i64::from(32 - amount), i64::from(amount));
    match amount {
        0 => return first,
        32 => return second,
        _ => {}
    }
    let (first, second) = match left {
        true => (
            l.b.ins().ishl_imm(first, amount),
            l.b.ins().ushr_imm(second, rest),
        ),
        false => (
            l.b.ins().ushr_imm(first, amount),
            l.b.ins().ishl_imm(second, rest),
        ),
    };
    l.b.ins().bor(first, second)
}

/// The position of the highest bit that is set (for a negative number: clear), all ones when there
/// is none; or its distance from the top.
fn find_leading(l: &mut Lower<'_>, ty: Type, a: Value, shift_amount: bool) -> Value {
    let kind = value_type(ty);
    let a = if signed(ty) {
        let sign = l.b.ins().sshr_imm(a, i64::from(kind.bits()) - 1);
        l.b.ins().bxor(a, sign)
    } else {
        a
    };
    let zeros = l.b.ins().clz(a);
    let zeros = low_word(l, zeros);
    let found = if shift_amount {
        zeros
    } else {
        let top = l.b.ins().iconst(types::I32, i64::from(kind.bits()) - 1);
        l.b.ins().isub(top, zeros)
    };
    let none = l.b.ins().icmp_imm(IntCC::Equal, a, 0);
    let ones = l.b.ins().iconst(types::I32, -1);
    l.b.ins().select(none, ones, found)
}

/// `bfe` of a constant field that lies inside the word.
fn extract(
    l: &mut Lower<'_>,
    ty: Type,
    a: Value,
    _pos: Value,
    _len: Value,
    args: [&Arg; 2],
) -> Option<Value> {
    let width = u64::from(value_type(ty).bits());
    let (pos, len) = (constant(args[0])? & 255, constant(args[1])? & 255);
    if len == 0 || pos + len > width {
        return None;
    }
    let up = l.b.ins().ishl_imm(a, (width - pos - len) as i64);
    Some(match signed(ty) {
        true => l.b.ins().sshr_imm(up, (width - len) as i64),
        false => l.b.ins().ushr_imm(up, (width - len) as i64),
    })
}

/// `bfi`: the low `len` bits of `a` over `b` from `pos`; positions and lengths are taken modulo
/// 256.
fn insert(
    l: &mut Lower<'_>,
    ty: Type,
    a: Value,
    b: Value,
    pos: Value,
    len: Value,
    args: [&Arg; 2],
) -> Value {
    let kind = value_type(ty);
    let width = u64::from(kind.bits());
    let (Some(pos_constant), Some(len_constant)) = (constant(args[0]), constant(args[1])) else {
        return l.call_value(
            if kind == types::I32 {
                &BFI_B32
            } else {
                &BFI_B64
            },
            &[a, b, pos, len],
        );
    };
    let mask = field_mask(pos_constant & 255, len_constant & 255, width);
    if mask == 0 {
        return b;
    }
    let up = l.b.ins().ishl_imm(a, (pos_constant & 255) as i64);
    let mask_value = number_like(l, a, mask as i64);
    let rest_value = number_like(l, a, !mask as i64);
    let new = l.b.ins().band(up, mask_value);
    let old = l.b.ins().band(b, rest_value);
    l.b.ins().bor(new, old)
}

/// Bits `pos` to `pos + len - 1` of a word of `width` bits, as far as they exist.
pub(super) fn field_mask(pos: u64, len: u64, width: u64) -> u64 {
    if pos >= width || len == 0 {
        return 0;
    }
    let ones = if len >= 64 { u64::MAX } else { (1 << len) - 1 };
    (ones << pos)
        & if width == 64 {
            u64::MAX
        } else {
            (1 << width) - 1
        }
}

/// `prmt` with a constant selector: each byte of the result is a byte of `b:a`, or that byte's sign
/// spread over it.
fn permute_by_constant(l: &mut Lower<'_>, a: Value, b: Value, selector: u32) -> Value {
    if l.in_vectors() {
        // Of each word, by its number in the vector.
        let byte = |at: u32| {
            let pick = selector >> (4 * (at % 4)) & 7;
            (16 * (pick / 4) + 4 * (at / 4) + pick % 4) as u8
        };
        let bytes: Vec<u8> = (0..16).map(byte).collect();
        let bytes = l.b.func.dfg.immediates.push(bytes.into());
        let [a, b] = [a, b].map(|value| l.as_vector(value, types::I8X16));
        let both = l.b.ins().shuffle(a, b, bytes);
        return l.as_vector(both, types::I32X4);
    }
    let low = l.b.ins().uextend(types::I64, a);
    let high = l.b.ins().uextend(types::I64, b);
    let high = l.b.ins().ishl_imm(high, 32);
    let bytes = l.b.ins().bor(high, low);
    let mut result = l.b.ins().iconst(types::I32, 0);
    for i in 0..4 {
        let pick = selector >> (4 * i) & 15;
        // The byte at the top of 64 bits, then moved down, with its sign where that is asked for.
        let up = l.b.ins().ishl_imm(bytes, i64::from(56 - 8 * (pick & 7)));
        let byte = if pick & 8 != 0 {
            l.b.ins().sshr_imm(up, 63)
        } else {
            l.b.ins().ushr_imm(up, 56)
        };
        let byte = l.b.ins().ireduce(types::I32, byte);
        let byte = l.b.ins().band_imm(byte, 255);
        let placed = l.b.ins().ishl_imm(byte, i64::from(8 * i));
        result = l.b.ins().bor(result, placed);
    }
    result
}

/// `bits` bits of `word` from `from`, extended to 32.
fn lane(l: &mut Lower<'_>, word: Value, from: i64, bits: i64, signed: bool) -> Value {
    let up = l.b.ins().ishl_imm(word, 32 - from - bits);
    if signed {
        l.b.ins().sshr_imm(up, 32 - bits)
    } else {
        l.b.ins().ushr_imm(up, 32 - bits)
    }
}
