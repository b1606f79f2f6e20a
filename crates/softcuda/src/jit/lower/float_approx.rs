//! Approximate functions of `.f32` and `.f64`: rsqrt, sin, cos, lg2, ex2, tanh, and
//! `rcp.approx.ftz.f64`. How near they come is said in [`approx`].

use cranelift_codegen::ir::{InstBuilder, Value};
use ptx::ast::Type;

use super::Lower;
use super::float::host_has_fma;
use super::float_modifiers::{Flag, Modifiers};
use super::float_value::{const_f32, flush_if};
use crate::jit::decode::{Arg, Operation, Reader, Refusal};
use crate::jit::runtime::{RuntimeFn, approx};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Sin,
    Cos,
    Lg2,
    Ex2,
    Tanh,
    Rsqrt,
    /// `rsqrt.approx.ftz.f64`
    RsqrtHigh,
    /// `rcp.approx.ftz.f64`
    RcpHigh,
}

#[derive(Debug)]
struct Approximate {
    function: Function,
    ty: Type,
    ftz: bool,
    args: [Arg; 2],
}

/// Decodes `sin`, `cos`, `lg2`, `ex2`, `tanh` of `.f32` and `rsqrt` of `.f32` and `.f64`.
pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let modifiers = Modifiers::read(r)?;
    let (mut function, types): (_, &[Type]) = match r.opcode {
        "sin" => (Function::Sin, &[Type::F32]),
        "cos" => (Function::Cos, &[Type::F32]),
        "lg2" => (Function::Lg2, &[Type::F32]),
        "ex2" => (Function::Ex2, &[Type::F32]),
        "tanh" => (Function::Tanh, &[Type::F32]),
        _ => (Function::Rsqrt, &[Type::F32, Type::F64]),
    };
    let ty = r.ty_of(types)?;
    modifiers.no_rounding(r)?;
    match function {
        Function::Tanh => modifiers.allow(r, &[Flag::Approx])?,
        _ => modifiers.allow(r, &[Flag::Approx, Flag::Ftz])?,
    }
    if !modifiers.has(Flag::Approx) {
        return Err(r.invalid(".approx is required".into()));
    }
    let ftz = modifiers.has(Flag::Ftz);
    if ty == Type::F64 && ftz {
        function = Function::RsqrtHigh;
    }
    Ok(Box::new(Approximate {
        function,
        ty,
        ftz: ftz && ty == Type::F32,
        args: r.finish()?,
    }))
}

/// Decodes `rcp.approx.ftz.f64`, whose modifiers and type have been read.
pub(crate) fn decode_rcp_f64(
    r: &Reader<'_>,
    modifiers: Modifiers,
) -> Result<Box<dyn Operation>, Refusal> {
    modifiers.no_rounding(r)?;
    modifiers.allow(r, &[Flag::Approx, Flag::Ftz])?;
    if !modifiers.has(Flag::Ftz) {
        return Err(r.invalid(".ftz is required".into()));
    }
    Ok(Box::new(Approximate {
        function: Function::RcpHigh,
        ty: Type::F64,
        ftz: false,
        args: r.finish()?,
    }))
}

impl Operation for Approximate {
    fn is_long(&self) -> bool {
        true
    }

    fn pure(&self) -> bool {
        true
    }

    fn vectorizes(&self) -> bool {
        let function = match self.function {
            Function::RsqrtHigh | Function::RcpHigh => false,
            Function::Rsqrt => true,
            _ => host_has_fma(),
        };
        function && self.ty == Type::F32
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let [dst, a] = &self.args;
        let value = l.read(a, self.ty);
        let value = match (self.function, self.ftz) {
            // A power that is subnormal gives 1, as 0 does.
            (Function::Ex2, true) => l.normal_power_of_2(value),
            (_, ftz) => {
                let value = flush_if(l, ftz, value);
                let value = self.value(l, value);
                flush_if(l, ftz, value)
            }
        };
        l.write_float(dst, self.ty, value);
    }
}

impl Approximate {
    fn value(&self, l: &mut Lower<'_>, value: Value) -> Value {
        let function: &'static RuntimeFn = match self.function {
            Function::Sin => return l.sine(value),
            Function::Cos => return l.cosine(value),
            Function::Tanh => return l.hyperbolic_tangent(value),
            Function::Lg2 => return l.logarithm_to_2(value),
            Function::Ex2 => return l.power_of_2(value),
            Function::RsqrtHigh => &approx::RSQRT_HIGH_F64,
            Function::RcpHigh => &approx::RCP_HIGH_F64,
            Function::Rsqrt if self.ty == Type::F64 => &approx::RSQRT_F64,
            Function::Rsqrt => {
                let root = l.b.ins().sqrt(value);
                let one = const_f32(l, 1f32.to_bits());
                return l.b.ins().fdiv(one, root);
            }
        };
        l.call_value(function, &[value])
    }
}
