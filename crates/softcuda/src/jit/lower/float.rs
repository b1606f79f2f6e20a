//! Arithmetic on `.f32` and `.f64` that rounds exactly: add, sub, mul, fma, mad, div, rcp, sqrt.
//!
//! Rounding to nearest is the host's own instructions; other modes of sums and products of singles
//! are worked out with doubles, the rest calls the runtime.
//! Approximate forms of `div`, `rcp` and `sqrt` are the exact ones rounded to nearest, which is
//! within their documented error; `div.approx` by a divisor above 2^126 gives a zero, as
//! documented.
//!
//! `.ftz` flushes what is subnormal after rounding.

use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use ptx::ast::Type;
use smallvec::SmallVec;

use super::Lower;
use super::float_modifiers::{Flag, Modifiers};
use super::float_value::{const_f32, const_f64, flush_if, saturate, zero_of_sign};
use crate::jit::decode::{Arg, Operation, Reader, Refusal};
use crate::jit::runtime::RuntimeFn;
use crate::jit::runtime::float::{self, Rounding};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Add,
    Sub,
    Mul,
    Fma,
    Div,
    Rcp,
    Sqrt,
}

/// An arithmetic instruction.
#[derive(Debug)]
struct Arithmetic {
    op: Op,
    ty: Type,
    mode: Rounding,
    /// `div.approx`: as `a * (1 / b)` with the reciprocal flushed.
    by_reciprocal: bool,
    ftz: bool,
    sat: bool,
    dst: Arg,
    sources: SmallVec<[Arg; 3]>,
}

/// Decodes `add`, `sub`, `mul`, `fma` and `mad` of `.f32` and `.f64`.
pub(crate) fn decode_arithmetic(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let op = match r.opcode {
        "add" => Op::Add,
        "sub" => Op::Sub,
        "mul" => Op::Mul,
        _ => Op::Fma,
    };
    let modifiers = Modifiers::read(r)?;
    let ty = r.ty_of(&[Type::F32, Type::F64])?;
    modifiers.allow(r, flags_of(ty, &[Flag::Ftz, Flag::Sat]))?;
    let mode = modifiers.mode(r, op != Op::Fma)?;
    arithmetic(r, op, ty, mode, modifiers)
}

/// Decodes `div`, `rcp` and `sqrt` of `.f32` and `.f64`, but for `rcp.approx.ftz.f64`.
pub(crate) fn decode_division(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let op = match r.opcode {
        "div" => Op::Div,
        "rcp" => Op::Rcp,
        _ => Op::Sqrt,
    };
    let modifiers = Modifiers::read(r)?;
    let ty = r.ty_of(&[Type::F32, Type::F64])?;
    let approximate = modifiers.has(Flag::Approx) || modifiers.has(Flag::Full);
    let allowed: &[Flag] = match (ty, op) {
        (Type::F32, Op::Div) => &[Flag::Ftz, Flag::Approx, Flag::Full],
        (Type::F32, _) => &[Flag::Ftz, Flag::Approx],
        (_, Op::Rcp) if approximate => return super::float_approx::decode_rcp_f64(r, modifiers),
        // The assembler takes, and ignores, `.ftz` here.
        _ => &[Flag::Ftz],
    };
    modifiers.allow(r, allowed)?;
    let mode = match approximate {
        true => {
            modifiers.no_rounding(r)?;
            Rounding::Nearest
        }
        false => modifiers.mode(r, false)?,
    };
    arithmetic(r, op, ty, mode, modifiers)
}

fn flags_of(ty: Type, single: &[Flag]) -> &[Flag] {
    match ty {
        Type::F32 => single,
        _ => &[],
    }
}

fn arithmetic(
    r: &Reader<'_>,
    op: Op,
    ty: Type,
    mode: Rounding,
    modifiers: Modifiers,
) -> Result<Box<dyn Operation>, Refusal> {
    let (dst, sources): (Arg, SmallVec<[Arg; 3]>) = match op {
        Op::Rcp | Op::Sqrt => {
            let [dst, a] = r.finish()?;
            (dst, SmallVec::from_iter([a]))
        }
        Op::Fma => {
            let [dst, a, b, c] = r.finish()?;
            (dst, SmallVec::from_iter([a, b, c]))
        }
        _ => {
            let [dst, a, b] = r.finish()?;
            (dst, SmallVec::from_iter([a, b]))
        }
    };
    Ok(Box::new(Arithmetic {
        op,
        ty,
        mode,
        by_reciprocal: op == Op::Div && modifiers.has(Flag::Approx),
        ftz: modifiers.has(Flag::Ftz) && ty == Type::F32,
        sat: modifiers.has(Flag::Sat),
        dst,
        sources,
    }))
}

/// Whether Cranelift makes one instruction of `fma`.
pub(super) fn host_has_fma() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// `a * b + c`, rounded once to nearest.
pub(crate) fn fma(l: &mut Lower<'_>, a: Value, b: Value, c: Value) -> Value {
    if host_has_fma() {
        return l.b.ins().fma(a, b, c);
    }
    match l.b.func.dfg.value_type(a) {
        types::F64 => l.call_value(&float::FMA_RN_F64, &[a, b, c]),
        _ => l.call_value(&float::FMA_RN_F32, &[a, b, c]),
    }
}

impl Arithmetic {
    fn nearest(&self, l: &mut Lower<'_>, v: &[Value]) -> Value {
        match self.op {
            // Of two NaNs the device gives the second, the host the first.
            Op::Add => l.b.ins().fadd(v[1], v[0]),
            Op::Sub => l.b.ins().fsub(v[0], v[1]),
            Op::Mul => l.b.ins().fmul(v[1], v[0]),
            Op::Fma => fma(l, v[0], v[1], v[2]),
            Op::Div if self.by_reciprocal => divide_by_reciprocal(l, v[0], v[1]),
            Op::Div => l.b.ins().fdiv(v[0], v[1]),
            Op::Rcp => {
                let one = self.one(l);
                l.b.ins().fdiv(one, v[0])
            }
            Op::Sqrt => l.b.ins().sqrt(v[0]),
        }
    }

    fn directed(&self, l: &mut Lower<'_>, v: &[Value]) -> Value {
        if self.ty == Type::F32 {
            match self.op {
                Op::Add => return l.directed_single(v[0], None, Some(v[1]), self.mode),
                Op::Sub => {
                    let negated = l.b.ins().fneg(v[1]);
                    return l.directed_single(v[0], None, Some(negated), self.mode);
                }
                Op::Mul => return l.directed_single(v[0], Some(v[1]), None, self.mode),
                Op::Fma => return l.directed_single(v[0], Some(v[1]), Some(v[2]), self.mode),
                Op::Div | Op::Rcp | Op::Sqrt => {}
            }
        }
        let mode = l.b.ins().iconst(types::I32, self.mode.code());
        let single = self.ty == Type::F32;
        let pick = |f32, f64| -> &'static RuntimeFn { if single { f32 } else { f64 } };
        match self.op {
            Op::Add => l.call_value(&float::ADD_F64, &[v[0], v[1], mode]),
            Op::Sub => l.call_value(&float::SUB_F64, &[v[0], v[1], mode]),
            Op::Mul => l.call_value(&float::MUL_F64, &[v[0], v[1], mode]),
            Op::Fma => l.call_value(&float::FMA_F64, &[v[0], v[1], v[2], mode]),
            Op::Div => l.call_value(pick(&float::DIV_F32, &float::DIV_F64), &[v[0], v[1], mode]),
            Op::Rcp => {
                let one = self.one(l);
                l.call_value(pick(&float::DIV_F32, &float::DIV_F64), &[one, v[0], mode])
            }
            Op::Sqrt => l.call_value(pick(&float::SQRT_F32, &float::SQRT_F64), &[v[0], mode]),
        }
    }

    fn one(&self, l: &mut Lower<'_>) -> Value {
        match self.ty {
            Type::F32 => const_f32(l, 1f32.to_bits()),
            _ => const_f64(l, 1f64.to_bits()),
        }
    }
}

/// `a / b`, but `a` times a zero of the sign of `b` where the reciprocal of `b` would be subnormal.
fn divide_by_reciprocal(l: &mut Lower<'_>, a: Value, b: Value) -> Value {
    let quotient = l.b.ins().fdiv(a, b);
    let magnitude = l.b.ins().fabs(b);
    let limit = const_f32(l, 2f32.powi(126).to_bits());
    let large = l.b.ins().fcmp(FloatCC::GreaterThan, magnitude, limit);
    let zero = zero_of_sign(l, b);
    let vanished = l.b.ins().fmul(a, zero);
    l.select(large, vanished, quotient)
}

impl Operation for Arithmetic {
    fn is_long(&self) -> bool {
        self.mode != Rounding::Nearest
    }

    fn pure(&self) -> bool {
        true
    }

    fn vectorizes(&self) -> bool {
        match self.mode {
            Rounding::Nearest => self.op != Op::Fma || host_has_fma(),
            _ => {
                let sum = matches!(self.op, Op::Add | Op::Sub | Op::Mul | Op::Fma);
                sum && self.ty == Type::F32
            }
        }
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let mut sources = SmallVec::<[Value; 3]>::new();
        for source in &self.sources {
            let value = l.read(source, self.ty);
            sources.push(flush_if(l, self.ftz, value));
        }
        let value = match self.mode {
            Rounding::Nearest => self.nearest(l, &sources),
            _ => self.directed(l, &sources),
        };
        let value = flush_if(l, self.ftz, value);
        match self.sat {
            true => {
                let value = saturate(l, value);
                l.write(&self.dst, self.ty, value);
            }
            false => l.write_float(&self.dst, self.ty, value),
        }
    }
}
