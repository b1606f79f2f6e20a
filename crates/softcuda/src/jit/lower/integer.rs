//! Integer arithmetic: `add`, `sub`, `mul`, `mad`, `mul24`, `mad24`, `sad`, `div`, `rem`, `abs`,
//! `neg`, `min`, `max`, with the carry forms and the packed 16-bit pairs of sm_90.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use cranelift_frontend::Variable;
use ptx::ast::{Immediate, Type};

use super::division::{quotient, remainder};
use super::{Lower, Term, value_type};
use crate::jit::decode::{Arg, Division, Divisor, Operation, Reader, Refusal, RegId, Stride};

/// Which part of a product is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Lo,
    Hi,
    Wide,
}

const PARTS: &[(&str, Part)] = &[("lo", Part::Lo), ("hi", Part::Hi), ("wide", Part::Wide)];

/// How an addition or subtraction deals with the carry flag.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Carry {
    /// Takes the flag in.
    takes: bool,
    /// Gives it out.
    gives: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Add {
        saturate: bool,
        carry: Carry,
    },
    Sub {
        saturate: bool,
        carry: Carry,
    },
    Mul(Part),
    Mad {
        part: Part,
        saturate: bool,
        carry: Carry,
    },
    Mul24 {
        high: bool,
    },
    Mad24 {
        high: bool,
        saturate: bool,
    },
    Sad,
    Div,
    Rem,
    Abs,
    Neg,
    Min {
        relu: bool,
    },
    Max {
        relu: bool,
    },
}

/// An integer instruction: a destination and up to three sources, of the types that `ty` and `op`
/// say.
#[derive(Debug)]
struct Integer {
    op: Op,
    ty: Type,
    dst: Arg,
    sources: Vec<Arg>,
}

const WIDE: &[Type] = &[Type::U16, Type::S16, Type::U32, Type::S32];
const ALL: &[Type] = &[
    Type::U16,
    Type::S16,
    Type::U32,
    Type::S32,
    Type::U64,
    Type::S64,
];
const PACKED: &[Type] = &[
    Type::U16,
    Type::S16,
    Type::U32,
    Type::S32,
    Type::U64,
    Type::S64,
    Type::U16x2,
    Type::S16x2,
];
const CARRIED: &[Type] = &[Type::U32, Type::S32, Type::U64, Type::S64];
const WORDS: &[Type] = &[Type::U32, Type::S32];
const SIGNED: &[Type] = &[Type::S16, Type::S32, Type::S64];

pub(super) fn signed(ty: Type) -> bool {
    matches!(
        ty,
        Type::S8 | Type::S16 | Type::S32 | Type::S64 | Type::S16x2
    )
}

/// The type of twice the width.
fn widened(ty: Type) -> Type {
    match ty {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        _ => Type::S64,
    }
}

/// Decodes an integer form of an opcode of this family.
pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let (op, ty) = match r.opcode {
        "add" | "sub" => {
            let gives = r.eat("cc");
            let saturate = !gives && r.eat("sat");
            let ty = match (gives, saturate) {
                (true, _) => r.ty_of(CARRIED)?,
                (_, true) => r.ty_of(&[Type::S32])?,
                _ => r.ty_of(PACKED)?,
            };
            let carry = Carry {
                takes: false,
                gives,
            };
            (
                if r.opcode == "add" {
                    Op::Add { saturate, carry }
                } else {
                    Op::Sub { saturate, carry }
                },
                ty,
            )
        }
        "addc" | "subc" => {
            let carry = Carry {
                takes: true,
                gives: r.eat("cc"),
            };
            let op = if r.opcode == "addc" {
                Op::Add {
                    saturate: false,
                    carry,
                }
            } else {
                Op::Sub {
                    saturate: false,
                    carry,
                }
            };
            (op, r.ty_of(CARRIED)?)
        }
        "mul" => {
            let part = r.expect_any(PARTS)?;
            (
                Op::Mul(part),
                r.ty_of(if part == Part::Wide { WIDE } else { ALL })?,
            )
        }
        "mad" | "madc" => {
            let takes = r.opcode == "madc";
            let part = r.expect_any(PARTS)?;
            let gives = part != Part::Wide && r.eat("cc");
            let saturate = part == Part::Hi && !takes && !gives && r.eat("sat");
            let ty = match () {
                () if saturate => r.ty_of(&[Type::S32])?,
                () if takes || gives => r.ty_of(CARRIED)?,
                () => r.ty_of(if part == Part::Wide { WIDE } else { ALL })?,
            };
            (
                Op::Mad {
                    part,
                    saturate,
                    carry: Carry { takes, gives },
                },
                ty,
            )
        }
        "mul24" => {
            let high = r.expect_any(&[("hi", true), ("lo", false)])?;
            (Op::Mul24 { high }, r.ty_of(WORDS)?)
        }
        "mad24" => {
            let high = r.expect_any(&[("hi", true), ("lo", false)])?;
            let saturate = high && r.eat("sat");
            (
                Op::Mad24 { high, saturate },
                r.ty_of(if saturate { &[Type::S32] } else { WORDS })?,
            )
        }
        "sad" => (Op::Sad, r.ty_of(ALL)?),
        "div" => (Op::Div, r.ty_of(ALL)?),
        "rem" => (Op::Rem, r.ty_of(ALL)?),
        "abs" => (Op::Abs, r.ty_of(SIGNED)?),
        "neg" => (Op::Neg, r.ty_of(SIGNED)?),
        "min" | "max" => {
            let relu = r.eat("relu");
            let mut ty = r.ty_of(if relu {
                &[Type::S32, Type::S16x2]
            } else {
                PACKED
            })?;
            // The ISA writes `.relu` before the type; LLVM prints it after. Both are read.
            let relu = relu || (matches!(ty, Type::S32 | Type::S16x2) && r.eat("relu"));
            if ty == Type::B32 {
                ty = Type::U32;
            }
            (
                if r.opcode == "min" {
                    Op::Min { relu }
                } else {
                    Op::Max { relu }
                },
                ty,
            )
        }
        _ => return Err(r.invalid("is no integer instruction".into())),
    };
    r.end()?;
    let count = match op {
        Op::Abs | Op::Neg => 1,
        Op::Mad { .. } | Op::Mad24 { .. } | Op::Sad => 3,
        _ => 2,
    };
    let [dst, sources @ ..] = r.args else {
        return Err(r.invalid("takes operands".into()));
    };
    if sources.len() != count {
        return Err(r.invalid(format!(
            "takes {} operands, not {}",
            count + 1,
            r.args.len()
        )));
    }
    Ok(Box::new(Integer {
        op,
        ty,
        dst: dst.clone(),
        sources: sources.to_vec(),
    }))
}

impl Integer {
    /// Both operands of a product, one of them a number: the other, and the number.
    fn scaled(&self) -> Option<(&Arg, i64)> {
        let [a, b, ..] = &self.sources[..] else {
            return None;
        };
        let (from, by) = match (constant(a), constant(b)) {
            (None, Some(by)) => (a, by),
            (Some(by), None) => (b, by),
            _ => return None,
        };
        Some((
            from,
            match self.ty {
                Type::U32 => i64::from(by as u32),
                Type::S32 => i64::from(by as i32),
                _ => by as i64,
            },
        ))
    }

    /// How much more each thread's product of the first two operands is.
    fn product_stride(&self, of: &dyn Fn(&Arg) -> Option<Stride>) -> Option<Stride> {
        if let Some((from, by)) = self.scaled() {
            return Some(of(from)?.times(by));
        }
        let (a, b) = (of(&self.sources[0])?, of(&self.sources[1])?);
        let same = a.step == 0 && b.step == 0;
        same.then(|| Stride::same(a.zeros.max(b.zeros)))
    }
}

impl Integer {
    /// The result is as wide as the operands, and each bit of it is as in wider ones, extended.
    fn is_plain(&self) -> bool {
        match self.op {
            Op::Add { saturate, .. } | Op::Sub { saturate, .. } => !saturate,
            Op::Mad { part, saturate, .. } => part == Part::Lo && !saturate,
            Op::Mul(part) => part == Part::Lo,
            Op::Abs | Op::Neg => true,
            Op::Min { relu } | Op::Max { relu } => !relu,
            _ => false,
        }
    }

    /// The whole product, and perhaps a sum with it.
    fn is_wide(&self) -> bool {
        matches!(
            self.op,
            Op::Mul(Part::Wide)
                | Op::Mad {
                    part: Part::Wide,
                    ..
                }
        )
    }

    /// The upper half of a product, and perhaps a sum with it.
    fn is_high(&self) -> bool {
        match self.op {
            Op::Mul(part) => part == Part::Hi,
            Op::Mad { part, saturate, .. } => part == Part::Hi && !saturate,
            _ => false,
        }
    }
}

impl Operation for Integer {
    fn pure(&self) -> bool {
        true
    }

    fn vectorizes(&self) -> bool {
        let divides = matches!(self.op, Op::Div | Op::Rem);
        (self.is_plain() || self.is_high() || divides) && WORDS.contains(&self.ty)
    }

    fn vectorizes_short(&self) -> bool {
        (self.is_plain() || self.is_wide()) && matches!(self.ty, Type::U16 | Type::S16)
    }

    fn likely_stride(&self, of: &dyn Fn(&Arg) -> Option<Stride>) -> Option<Stride> {
        match (self.op, &self.sources[..]) {
            (Op::Min { relu: false } | Op::Max { relu: false }, [a, b]) => of(a)?.or(of(b)?),
            _ => self.stride(of),
        }
    }

    fn stride(&self, of: &dyn Fn(&Arg) -> Option<Stride>) -> Option<Stride> {
        let wide = self.widens().is_some();
        let stride = match (self.op, &self.sources[..]) {
            (
                Op::Add {
                    saturate: false, ..
                },
                [a, b],
            ) => of(a)?.plus(of(b)?),
            (
                Op::Sub {
                    saturate: false, ..
                },
                [a, b],
            ) => of(a)?.plus(of(b)?.times(-1)),
            (Op::Neg, [a]) => of(a)?.times(-1),
            (Op::Mul(Part::Lo), _) => self.product_stride(of)?,
            (Op::Mul(Part::Wide), _) if wide => self.product_stride(of)?,
            (
                Op::Mad {
                    part,
                    saturate: false,
                    ..
                },
                [_, _, c],
            ) if part == Part::Lo || (part == Part::Wide && wide) => {
                self.product_stride(of)?.plus(of(c)?)
            }
            _ => return None,
        };
        match (self.ty, wide) {
            (Type::U32 | Type::S32, false) => Some(stride.in_words()),
            (Type::U64 | Type::S64, _) | (_, true) => Some(stride),
            _ => None,
        }
    }

    fn factors(&self) -> Option<[&Arg; 2]> {
        let (Op::Mul(part) | Op::Mad { part, .. }) = self.op else {
            return None;
        };
        match &self.sources[..] {
            [a, b, ..] if part != Part::Hi => Some([a, b]),
            _ => None,
        }
    }

    fn high_product(&self) -> Option<(RegId, u32)> {
        let (Op::Mul(Part::Hi), true) = (self.op, WORDS.contains(&self.ty)) else {
            return None;
        };
        match self.scaled()? {
            (Arg::Reg(from), by) => Some((*from, by as u32)),
            _ => None,
        }
    }

    fn division(&self) -> Option<Division> {
        let rest = match self.op {
            Op::Div => false,
            Op::Rem => true,
            _ => return None,
        };
        let ([Arg::Reg(from), by], true) = (&self.sources[..], WORDS.contains(&self.ty)) else {
            return None;
        };
        Some(Division {
            from: *from,
            signed: signed(self.ty),
            by: match by {
                Arg::Reg(by) => Divisor::Register(*by),
                Arg::Imm(Immediate::Int { bits, .. }) => Divisor::Number(*bits),
                _ => return None,
            },
            rest,
        })
    }

    fn most(&self, of: &dyn Fn(&Arg) -> Option<u32>) -> Option<u32> {
        if !WORDS.contains(&self.ty) || self.carry() {
            return None;
        }
        let of = |at: usize| of(self.sources.get(at)?);
        match self.op {
            Op::Add { .. } => of(0)?.checked_add(of(1)?),
            Op::Mul(Part::Lo) => of(0)?.checked_mul(of(1)?),
            Op::Mad { part: Part::Lo, .. } => of(0)?.checked_mul(of(1)?)?.checked_add(of(2)?),
            _ => None,
        }
    }

    fn term(&self) -> Option<Term<'_>> {
        match (self.op, self.ty, &self.sources[..]) {
            (
                Op::Add {
                    saturate: false, ..
                },
                Type::U32 | Type::S32 | Type::U64 | Type::S64,
                [a, b],
            ) if !self.carry() => Some(Term::Sum(a, b, self.ty.size() * 8)),
            (Op::Mul(Part::Wide), ..) => {
                let (from, signed) = self.widens()?;
                let (_, by) = self.scaled()?;
                Some(Term::Scaled { from, by, signed })
            }
            _ => None,
        }
    }

    fn widens(&self) -> Option<(RegId, bool)> {
        match (self.is_wide() && WORDS.contains(&self.ty), self.scaled()) {
            (true, Some((Arg::Reg(from), _))) => Some((*from, signed(self.ty))),
            _ => None,
        }
    }

    fn carry(&self) -> bool {
        match self.op {
            Op::Add { carry, .. } | Op::Sub { carry, .. } | Op::Mad { carry, .. } => {
                carry != Carry::default()
            }
            _ => false,
        }
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let ty = self.ty;
        let wide = self.is_wide();
        let result_ty = if wide { widened(ty) } else { ty };
        // The third source of a wide multiply-add is of the wide type.
        let values: Vec<Value> = self
            .sources
            .iter()
            .enumerate()
            .map(|(i, source)| l.read_number(source, if i == 2 { result_ty } else { ty }))
            .collect();
        let result = match (self.op, &values[..]) {
            (Op::Add { saturate, carry }, &[a, b]) => add(l, ty, a, b, saturate, carry),
            (Op::Sub { saturate, carry }, &[a, b]) => sub(l, ty, a, b, saturate, carry),
            (Op::Mul(part), &[a, b]) => multiply(l, ty, part, a, b),
            (
                Op::Mad {
                    part,
                    saturate,
                    carry,
                },
                &[a, b, c],
            ) => {
                let product = multiply(l, ty, part, a, b);
                add(l, result_ty, product, c, saturate, carry)
            }
            (Op::Mul24 { high }, &[a, b]) => multiply24(l, ty, high, a, b),
            (Op::Mad24 { high, saturate }, &[a, b, c]) => {
                let product = multiply24(l, ty, high, a, b);
                add(l, ty, product, c, saturate, Carry::default())
            }
            (Op::Sad, &[a, b, c]) => {
                let (low, high) = (least(l, ty, a, b), greatest(l, ty, a, b));
                let distance = l.b.ins().isub(high, low);
                l.b.ins().iadd(c, distance)
            }
            (Op::Div, &[a, b]) => quotient(l, ty, a, b, constant(&self.sources[1])),
            (Op::Rem, &[a, b]) => remainder(l, ty, a, b, constant(&self.sources[1])),
            (Op::Abs, &[a]) => l.b.ins().iabs(a),
            (Op::Neg, &[a]) => l.b.ins().ineg(a),
            (Op::Min { relu }, &[a, b]) => {
                let value = each_half(l, ty, a, b, least);
                relu_of(l, ty, relu, value)
            }
            (Op::Max { relu }, &[a, b]) => {
                let value = each_half(l, ty, a, b, greatest);
                relu_of(l, ty, relu, value)
            }
            _ => unreachable!("decode counted the operands"),
        };
        l.write_number(&self.dst, result_ty, result);
    }
}

/// The value of an immediate operand.
fn constant(arg: &Arg) -> Option<u64> {
    match arg {
        Arg::Imm(Immediate::Int { bits, .. }) => Some(*bits),
        _ => None,
    }
}

/// Applies `f` to the value, or to each half of a packed pair.
fn each_half(
    l: &mut Lower<'_>,
    ty: Type,
    a: Value,
    b: Value,
    f: fn(&mut Lower<'_>, Type, Value, Value) -> Value,
) -> Value {
    let half = match ty {
        Type::U16x2 => Type::U16,
        Type::S16x2 => Type::S16,
        _ => return f(l, ty, a, b),
    };
    let mut halves = [0, 16].map(|shift| {
        let [x, y] = [a, b].map(|pair| {
            let shifted = l.b.ins().ushr_imm(pair, shift);
            l.b.ins().ireduce(types::I16, shifted)
        });
        let value = f(l, half, x, y);
        l.b.ins().uextend(types::I32, value)
    });
    halves[1] = l.b.ins().ishl_imm(halves[1], 16);
    l.b.ins().bor(halves[0], halves[1])
}

fn relu_of(l: &mut Lower<'_>, ty: Type, relu: bool, value: Value) -> Value {
    if !relu {
        return value;
    }
    let zero = l.b.ins().iconst(types::I32, 0);
    each_half(l, ty, value, zero, greatest)
}

fn least(l: &mut Lower<'_>, ty: Type, a: Value, b: Value) -> Value {
    if signed(ty) {
        l.b.ins().smin(a, b)
    } else {
        l.b.ins().umin(a, b)
    }
}

fn greatest(l: &mut Lower<'_>, ty: Type, a: Value, b: Value) -> Value {
    if signed(ty) {
        l.b.ins().smax(a, b)
    } else {
        l.b.ins().umax(a, b)
    }
}

impl Lower<'_> {
    /// The carry flag, `I8`, 0 or 1; 0 before anything has set it.
    fn carry(&mut self) -> Value {
        let flag = self.carry_variable();
        self.b.use_var(flag)
    }

    fn set_carry(&mut self, value: Value) {
        let flag = self.carry_variable();
        self.b.def_var(flag, value);
    }

    fn carry_variable(&mut self) -> Variable {
        *self
            .carry
            .get_or_insert_with(|| self.b.declare_var(types::I8))
    }
}

/// Clamps the 64-bit exact result of a saturating `.s32` operation.
fn clamp_s32(l: &mut Lower<'_>, exact: Value) -> Value {
    let low = l.b.ins().iconst(types::I64, i64::from(i32::MIN));
    let high = l.b.ins().iconst(types::I64, i64::from(i32::MAX));
    let value = l.b.ins().smax(exact, low);
    let value = l.b.ins().smin(value, high);
    l.b.ins().ireduce(types::I32, value)
}

fn add(l: &mut Lower<'_>, ty: Type, a: Value, b: Value, saturate: bool, carry: Carry) -> Value {
    if saturate {
        let [a, b] = [a, b].map(|v| l.b.ins().sextend(types::I64, v));
        let sum = l.b.ins().iadd(a, b);
        return clamp_s32(l, sum);
    }
    if matches!(ty, Type::U16x2 | Type::S16x2) {
        return each_half(l, ty, a, b, |l, _, a, b| l.b.ins().iadd(a, b));
    }
    let sum = l.b.ins().iadd(a, b);
    if carry == Carry::default() {
        return sum;
    }
    let out = l.b.ins().icmp(IntCC::UnsignedLessThan, sum, a);
    let (sum, out) = if carry.takes {
        let flag = l.carry();
        let flag = l.b.ins().uextend(value_type(ty), flag);
        let with = l.b.ins().iadd(sum, flag);
        let again = l.b.ins().icmp(IntCC::UnsignedLessThan, with, sum);
        (with, l.b.ins().bor(out, again))
    } else {
        (sum, out)
    };
    if carry.gives {
        l.set_carry(out);
    }
    sum
}

/// The manual calls the carry flag of a subtraction its borrow, but the device adds the complement:
/// the flag is set when nothing was borrowed. An `addc` that follows sees it, as in the division of
/// 128-bit integers that nvcc emits.
fn sub(l: &mut Lower<'_>, ty: Type, a: Value, b: Value, saturate: bool, carry: Carry) -> Value {
    if saturate {
        let [a, b] = [a, b].map(|v| l.b.ins().sextend(types::I64, v));
        let difference = l.b.ins().isub(a, b);
        return clamp_s32(l, difference);
    }
    if matches!(ty, Type::U16x2 | Type::S16x2) {
        return each_half(l, ty, a, b, |l, _, a, b| l.b.ins().isub(a, b));
    }
    let difference = l.b.ins().isub(a, b);
    if carry == Carry::default() {
        return difference;
    }
    let out = l.b.ins().icmp(IntCC::UnsignedLessThan, a, b);
    let (difference, out) = if carry.takes {
        let kept = l.carry();
        let borrowed = l.b.ins().bxor_imm(kept, 1);
        let flag = l.b.ins().uextend(value_type(ty), borrowed);
        let again = l.b.ins().icmp(IntCC::UnsignedLessThan, difference, flag);
        (l.b.ins().isub(difference, flag), l.b.ins().bor(out, again))
    } else {
        (difference, out)
    };
    if carry.gives {
        let kept = l.b.ins().bxor_imm(out, 1);
        l.set_carry(kept);
    }
    difference
}

fn multiply(l: &mut Lower<'_>, ty: Type, part: Part, a: Value, b: Value) -> Value {
    match part {
        Part::Lo => l.b.ins().imul(a, b),
        Part::Hi if l.in_vectors() => {
            let [a, b] = [a, b].map(|v| l.as_constant(v));
            let mut products = |high: bool| {
                let [x, y] = [a, b].map(|v| match (signed(ty), high) {
                    (true, false) => l.b.ins().swiden_low(v),
                    (true, true) => l.b.ins().swiden_high(v),
                    (false, false) => l.b.ins().uwiden_low(v),
                    (false, true) => l.b.ins().uwiden_high(v),
                });
                l.b.ins().imul(x, y)
            };
            let (low, high) = (products(false), products(true));
            let upper = l.shuffled(low, high, [1, 3, 5, 7]);
            l.as_vector(upper, types::I32X4)
        }
        Part::Hi if signed(ty) => l.b.ins().smulhi(a, b),
        Part::Hi => l.b.ins().umulhi(a, b),
        // Those of 16 bits are words.
        Part::Wide if l.in_vectors() => l.b.ins().imul(a, b),
        Part::Wide => {
            let wide = value_type(widened(ty));
            let [a, b] = [a, b].map(|v| {
                if signed(ty) {
                    l.b.ins().sextend(wide, v)
                } else {
                    l.b.ins().uextend(wide, v)
                }
            });
            l.b.ins().imul(a, b)
        }
    }
}

/// The 48-bit product of the low 24 bits of each: bits 47 to 16, or 31 to 0.
fn multiply24(l: &mut Lower<'_>, ty: Type, high: bool, a: Value, b: Value) -> Value {
    let [a, b] = [a, b].map(|v| {
        let up = l.b.ins().ishl_imm(v, 8);
        if signed(ty) {
            let down = l.b.ins().sshr_imm(up, 8);
            l.b.ins().sextend(types::I64, down)
        } else {
            let down = l.b.ins().ushr_imm(up, 8);
            l.b.ins().uextend(types::I64, down)
        }
    });
    let mut product = l.b.ins().imul(a, b);
    if high {
        product = l.b.ins().ushr_imm(product, 16);
    }
    l.b.ins().ireduce(types::I32, product)
}
