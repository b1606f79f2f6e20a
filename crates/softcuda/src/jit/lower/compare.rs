//! Comparison and selection: `set`, `setp`, `selp`, `slct`.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use ptx::ast::Type;

use super::float_compare::{self, FloatCmp};
use super::{Lower, value_type};
use crate::jit::decode::{Arg, Comparison, Operation, Reader, Refusal, RegId, Stride, Takes};

/// A comparison: of integers, or of floats.
#[derive(Clone, Copy, Debug)]
enum Cmp {
    Integer(IntCC),
    Float(FloatCmp),
}

/// How the result is combined with a predicate.
#[derive(Clone, Copy, Debug)]
enum Boolean {
    And,
    Or,
    Xor,
}

const BOOLEANS: &[(&str, Boolean)] = &[
    ("and", Boolean::And),
    ("or", Boolean::Or),
    ("xor", Boolean::Xor),
];

/// `a cmp b`, combined with a predicate.
#[derive(Debug)]
struct Compare {
    cmp: Cmp,
    flush: bool,
    ty: Type,
    a: Arg,
    b: Arg,
    combine: Option<(Boolean, Arg)>,
    to: Destination,
}

/// Where the outcome of a comparison goes.
#[derive(Debug)]
enum Destination {
    /// `setp`: a predicate, and one for the complement (of a packed pair: for the upper half).
    Predicates(Arg, Arg),
    /// `set`: a number of this type, all ones or 1.0 for true.
    Number(Arg, Type),
}

/// `selp`: `c ? a : b`.
#[derive(Debug)]
struct Select {
    ty: Type,
    dst: Arg,
    a: Arg,
    b: Arg,
    c: Arg,
}

/// `slct`: `c >= 0 ? a : b`.
#[derive(Debug)]
struct SelectBySign {
    ty: Type,
    by: Type,
    flush: bool,
    dst: Arg,
    a: Arg,
    b: Arg,
    c: Arg,
}

const FLOATS: &[Type] = &[
    Type::F16,
    Type::F16x2,
    Type::Bf16,
    Type::Bf16x2,
    Type::F32,
    Type::F64,
];
const INTEGERS: &[Type] = &[
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

/// Decodes an opcode of this family.
pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    match r.opcode {
        "set" | "setp" => decode_compare(r),
        "selp" => {
            let ty = selected_type(r)?;
            let [dst, a, b, c] = r.finish()?;
            r.check(&[
                (&dst, Takes::Fitting(ty)),
                (&a, Takes::Fitting(ty)),
                (&b, Takes::Fitting(ty)),
                (&c, Takes::Fitting(Type::Pred)),
            ])?;
            Ok(Box::new(Select { ty, dst, a, b, c }))
        }
        "slct" => {
            let flush = r.eat("ftz");
            let ty = selected_type(r)?;
            let by = r.ty_of(if flush {
                &[Type::F32]
            } else {
                &[Type::S32, Type::F32]
            })?;
            let [dst, a, b, c] = r.finish()?;
            r.check(&[
                (&dst, Takes::Fitting(ty)),
                (&a, Takes::Fitting(ty)),
                (&b, Takes::Fitting(ty)),
                (&c, Takes::Fitting(by)),
            ])?;
            Ok(Box::new(SelectBySign {
                ty,
                by,
                flush,
                dst,
                a,
                b,
                c,
            }))
        }
        _ => Err(r.invalid("is no comparison".into())),
    }
}

fn selected_type(r: &mut Reader<'_>) -> Result<Type, Refusal> {
    match r.peek() {
        Some("f32") => r.ty_of(&[Type::F32]),
        Some("f64") => r.ty_of(&[Type::F64]),
        _ => r.ty_of(INTEGERS),
    }
}

fn decode_compare(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let Some(name) = r.peek() else {
        return Err(r.unknown_modifier());
    };
    if !r.eat(name)
        || (integer_comparison(name, false).is_none() && FloatCmp::from_name(name).is_none())
    {
        return Err(r.invalid(format!("has no comparison .{name}")));
    }
    let boolean = r.eat_any(BOOLEANS);
    let flush = r.eat("ftz");
    let into = if r.opcode == "setp" {
        None
    } else {
        Some(destination_type(r)?)
    };
    let ty = match r.peek().and_then(Type::from_name) {
        Some(ty) if FLOATS.contains(&ty) => r.ty_of(FLOATS)?,
        _ => r.ty_of(INTEGERS)?,
    };
    if flush && !matches!(ty, Type::F32 | Type::F16 | Type::F16x2) {
        return Err(r.invalid(format!(".ftz is not for .{}", ty.name())));
    }
    let cmp = if FLOATS.contains(&ty) {
        FloatCmp::from_name(name).map(Cmp::Float)
    } else {
        let signed = matches!(ty, Type::S16 | Type::S32 | Type::S64);
        integer_comparison(name, signed).map(Cmp::Integer)
    };
    let Some(cmp) = cmp else {
        return Err(r.invalid(format!("cannot compare .{} by .{name}", ty.name())));
    };
    let (dst, a, b, combine) = match boolean {
        None => {
            let [dst, a, b] = r.finish()?;
            (dst, a, b, None)
        }
        Some(boolean) => {
            let [dst, a, b, c] = r.finish()?;
            (dst, a, b, Some((boolean, c)))
        }
    };
    r.check(&[(&a, Takes::Fitting(ty)), (&b, Takes::Fitting(ty))])?;
    if let Some((_, c)) = &combine {
        r.check(&[(c, Takes::Fitting(Type::Pred))])?;
    }
    match (into, &dst) {
        (None, Arg::Pair(p, q)) => r.check(&[
            (p, Takes::Fitting(Type::Pred)),
            (q, Takes::Fitting(Type::Pred)),
        ])?,
        (into, dst) => r.check(&[(dst, Takes::Fitting(into.unwrap_or(Type::Pred)))])?,
    }
    let to = match (into, dst) {
        (None, Arg::Pair(p, q)) => Destination::Predicates(*p, *q),
        (None, p) => Destination::Predicates(p, Arg::Sink),
        (Some(into), dst) => Destination::Number(dst, into),
    };
    Ok(Box::new(Compare {
        cmp,
        flush,
        ty,
        a,
        b,
        combine,
        to,
    }))
}

/// The destination type of `set`.
fn destination_type(r: &mut Reader<'_>) -> Result<Type, Refusal> {
    r.ty_of(&[
        Type::U16,
        Type::S16,
        Type::U32,
        Type::S32,
        Type::F16,
        Type::F16x2,
        Type::Bf16,
        Type::Bf16x2,
        Type::F32,
    ])
}

fn integer_comparison(name: &str, signed: bool) -> Option<IntCC> {
    use IntCC::*;
    Some(match (name, signed) {
        ("eq", _) => Equal,
        ("ne", _) => NotEqual,
        ("lt", true) => SignedLessThan,
        ("le", true) => SignedLessThanOrEqual,
        ("gt", true) => SignedGreaterThan,
        ("ge", true) => SignedGreaterThanOrEqual,
        ("lt" | "lo", _) => UnsignedLessThan,
        ("le" | "ls", _) => UnsignedLessThanOrEqual,
        ("gt" | "hi", _) => UnsignedGreaterThan,
        ("ge" | "hs", _) => UnsignedGreaterThanOrEqual,
        _ => return None,
    })
}

impl Compare {
    fn combined(&self, l: &mut Lower<'_>, outcome: Value) -> Value {
        let Some((boolean, c)) = &self.combine else {
            return outcome;
        };
        let c = l.read(c, Type::Pred);
        match boolean {
            Boolean::And => l.b.ins().band(outcome, c),
            Boolean::Or => l.b.ins().bor(outcome, c),
            Boolean::Xor => l.b.ins().bxor(outcome, c),
        }
    }

    fn outcome(&self, l: &mut Lower<'_>, ty: Type, a: Value, b: Value) -> Value {
        match self.cmp {
            Cmp::Integer(condition) => l.b.ins().icmp(condition, a, b),
            Cmp::Float(cmp) => float_compare::compare(l, cmp, ty, self.flush, a, b),
        }
    }
}

impl Operation for Compare {
    fn pure(&self) -> bool {
        true
    }

    fn vectorizes(&self) -> bool {
        matches!(self.to, Destination::Predicates(..)) && in_vectors(self.ty)
    }

    fn vectorizes_short(&self) -> bool {
        matches!(self.to, Destination::Predicates(..)) && short_in_vectors(self.ty)
    }

    fn equality(&self) -> Option<(bool, RegId, RegId, u32)> {
        let equal = match (self.cmp, &self.to, &self.combine) {
            (Cmp::Integer(IntCC::Equal), Destination::Predicates(_, Arg::Sink), None) => true,
            (Cmp::Integer(IntCC::NotEqual), Destination::Predicates(_, Arg::Sink), None) => false,
            _ => return None,
        };
        match (&self.a, &self.b) {
            (Arg::Reg(a), Arg::Reg(b)) => Some((equal, *a, *b, self.ty.size())),
            _ => None,
        }
    }

    fn evaluates(&self, of: &dyn Fn(&Arg) -> Option<u64>) -> Option<u64> {
        let (Destination::Predicates(_, Arg::Sink), None) = (&self.to, &self.combine) else {
            return None;
        };
        let different = (of(&self.a)? ^ of(&self.b)?) << (64 - 8 * self.ty.size()) != 0;
        match self.cmp {
            Cmp::Integer(IntCC::Equal) => Some(u64::from(!different)),
            Cmp::Integer(IntCC::NotEqual) => Some(u64::from(different)),
            _ => None,
        }
    }

    fn comparison(&self) -> Option<Comparison<'_>> {
        use Type::{B32, B64, S32, S64, U32, U64};
        let fits = matches!(self.ty, B32 | U32 | S32 | B64 | U64 | S64);
        match (self.cmp, &self.to) {
            (Cmp::Integer(condition), Destination::Predicates(_, Arg::Sink))
                if fits && self.combine.is_none() =>
            {
                Some(Comparison {
                    condition,
                    a: &self.a,
                    b: &self.b,
                    ty: self.ty,
                })
            }
            _ => None,
        }
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let a = l.read_number(&self.a, self.ty);
        let b = l.read_number(&self.b, self.ty);
        let half = match self.ty {
            Type::F16x2 => Some(Type::F16),
            Type::Bf16x2 => Some(Type::Bf16),
            _ => None,
        };
        let Some(half) = half else {
            let plain = self.outcome(l, self.ty, a, b);
            let outcome = self.combined(l, plain);
            match &self.to {
                Destination::Predicates(p, q) => {
                    if !matches!(q, Arg::Sink) {
                        // The second predicate combines the complement of the comparison, not of
                        // the result.
                        let complement = l.not(plain);
                        let complement = self.combined(l, complement);
                        l.write(q, Type::Pred, complement);
                    }
                    l.write(p, Type::Pred, outcome);
                }
                Destination::Number(dst, ty) => {
                    let number = number(l, *ty, outcome);
                    l.write(dst, *ty, number);
                }
            }
            return;
        };
        let outcomes = [0, 16].map(|shift| {
            let [x, y] = [a, b].map(|pair| {
                let down = l.b.ins().ushr_imm(pair, shift);
                l.b.ins().ireduce(types::I16, down)
            });
            let outcome = self.outcome(l, half, x, y);
            self.combined(l, outcome)
        });
        match &self.to {
            Destination::Predicates(p, q) => {
                l.write(p, Type::Pred, outcomes[0]);
                l.write(q, Type::Pred, outcomes[1]);
            }
            Destination::Number(dst, ty) => {
                let each = match ty {
                    Type::F16x2 => Type::F16,
                    Type::Bf16x2 => Type::Bf16,
                    _ => Type::S16,
                };
                let [low, high] = outcomes.map(|outcome| {
                    let value = number(l, each, outcome);
                    l.b.ins().uextend(types::I32, value)
                });
                let high = l.b.ins().ishl_imm(high, 16);
                let both = l.b.ins().bor(high, low);
                l.write(dst, *ty, both);
            }
        }
    }
}

/// True as a number of type `ty`: 1.0, or all ones in an integer; false is zero.
fn number(l: &mut Lower<'_>, ty: Type, outcome: Value) -> Value {
    match ty {
        Type::F32 => {
            let (one, zero) = (l.b.ins().f32const(1.0), l.b.ins().f32const(0.0));
            l.b.ins().select(outcome, one, zero)
        }
        Type::F16 | Type::Bf16 => {
            let bits = if ty == Type::F16 { 0x3c00 } else { 0x3f80 };
            let (one, zero) = (
                l.b.ins().iconst(types::I16, bits),
                l.b.ins().iconst(types::I16, 0),
            );
            l.b.ins().select(outcome, one, zero)
        }
        _ => {
            let wide = l.b.ins().uextend(value_type(ty), outcome);
            l.b.ins().ineg(wide)
        }
    }
}

/// Values of the type are compared and selected in vectors.
fn in_vectors(ty: Type) -> bool {
    matches!(
        ty,
        Type::B32 | Type::U32 | Type::S32 | Type::F32 | Type::F64
    )
}

/// Values of 16 bits are compared and selected in vectors, whether as integers or bits.
fn short_in_vectors(ty: Type) -> bool {
    matches!(ty, Type::B16 | Type::U16 | Type::S16)
}

impl Operation for Select {
    fn pure(&self) -> bool {
        true
    }

    fn vectorizes(&self) -> bool {
        in_vectors(self.ty)
    }

    fn vectorizes_short(&self) -> bool {
        short_in_vectors(self.ty)
    }

    fn evaluates(&self, of: &dyn Fn(&Arg) -> Option<u64>) -> Option<u64> {
        match of(&self.c)? {
            0 => of(&self.b),
            _ => of(&self.a),
        }
    }

    fn likely_stride(&self, of: &dyn Fn(&Arg) -> Option<Stride>) -> Option<Stride> {
        of(&self.a)?.or(of(&self.b)?)
    }

    fn chooses(&self) -> Option<(RegId, [RegId; 2])> {
        match (&self.c, &self.a, &self.b) {
            (Arg::Reg(c), Arg::Reg(a), Arg::Reg(b)) if self.ty.size() == 8 => Some((*c, [*a, *b])),
            _ => None,
        }
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let a = l.read(&self.a, self.ty);
        let b = l.read(&self.b, self.ty);
        let value = match l.known_in_vector(&self.c) {
            Some(bits) => l.select_known(bits, [&self.a, &self.b], [a, b]),
            None => {
                let c = l.read(&self.c, Type::Pred);
                l.select(c, a, b)
            }
        };
        l.write(&self.dst, self.ty, value);
    }
}

impl Operation for SelectBySign {
    fn pure(&self) -> bool {
        true
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let a = l.read(&self.a, self.ty);
        let b = l.read(&self.b, self.ty);
        let c = l.read(&self.c, self.by);
        let chosen = if self.by == Type::F32 {
            let zero = l.b.ins().f32const(0.0);
            float_compare::compare(l, FloatCmp::Ge, Type::F32, self.flush, c, zero)
        } else {
            l.b.ins().icmp_imm(IntCC::SignedGreaterThanOrEqual, c, 0)
        };
        let value = l.b.ins().select(chosen, a, b);
        l.write(&self.dst, self.ty, value);
    }
}
