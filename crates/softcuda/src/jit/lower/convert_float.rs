//! `cvt` from float to float, packed and 8-bit forms included.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use ptx::ast::Type;
use smallvec::SmallVec;

use super::Lower;
use super::convert::{format_of, limit_half, round_to_integral};
use super::float_modifiers::{Flag, Modifiers};
use super::float_sign::relu;
use super::float_value::{bits, flush_if, from_bits, halves, narrow, pair, saturate, widen};
use crate::jit::decode::{Arg, Operation};
use crate::jit::runtime::convert::{self, FP8_E4M3, FP8_RELU, KEEP_PAYLOAD, Target};
use crate::jit::runtime::float::{Format, Rounding};

/// What is converted to what.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// One value to another format.
    Scalar,
    /// Within a format, to an integral value if a mode is given.
    Integral(Option<Rounding>),
    /// Two singles to a pair of halves.
    Pair,
    /// A single to `.tf32`.
    Tf32,
    /// Two singles or a pair of halves to a pair of 8-bit floats.
    ToFp8,
    /// A pair of 8-bit floats to one of halves.
    FromFp8,
}

/// A conversion between floats.
#[derive(Debug)]
pub(crate) struct FloatConversion {
    /// What is converted to what.
    pub shape: Shape,
    /// Destination type.
    pub to: Type,
    /// Source type.
    pub from: Type,
    /// How the result is rounded.
    pub mode: Rounding,
    /// `.ftz`, `.sat`, `.relu`, `.satfinite`.
    pub modifiers: Modifiers,
    /// Destination.
    pub dst: Arg,
    /// Sources.
    pub sources: SmallVec<[Arg; 2]>,
}

impl Operation for FloatConversion {
    fn pure(&self) -> bool {
        true
    }

    fn vectorizes(&self) -> bool {
        let known = |ty: Type| matches!(ty, Type::F32 | Type::F16 | Type::Bf16);
        match self.shape {
            Shape::Scalar => {
                let narrow = self.to == Type::F32 || self.mode == Rounding::Nearest;
                known(self.from) && known(self.to) && narrow
            }
            Shape::Integral(_) => known(self.from),
            Shape::Pair => self.mode == Rounding::Nearest,
            _ => false,
        }
    }

    fn vectorizes_short(&self) -> bool {
        self.vectorizes()
    }

    fn lower(&self, l: &mut Lower<'_>) {
        match self.shape {
            Shape::Scalar => self.scalar(l),
            Shape::Integral(mode) => self.integral(l, mode),
            Shape::Pair => {
                let half = match self.to {
                    Type::Bf16x2 => Type::Bf16,
                    _ => Type::F16,
                };
                let [high, low] = [0, 1].map(|i| {
                    let value = l.read(&self.sources[i], Type::F32);
                    self.half(l, half, value)
                });
                let value = pair(l, [low, high]);
                l.write(&self.dst, self.to, value);
            }
            Shape::Tf32 => self.tf32(l),
            Shape::ToFp8 => self.to_fp8(l),
            Shape::FromFp8 => {
                let pair = l.read(&self.sources[0], Type::B16);
                let pair = l.b.ins().uextend(types::I32, pair);
                let code = self.fp8_code(l, self.from);
                let value = l.call_value(&convert::FROM_FP8X2, &[pair, code]);
                l.write(&self.dst, Type::F16x2, value);
            }
        }
    }
}

/// The value of a float type from the bits that the runtime gives as 64.
pub(crate) fn from_narrow(l: &mut Lower<'_>, ty: Type, bits: Value) -> Value {
    match ty {
        Type::F64 => from_bits(l, bits),
        Type::F32 => {
            let bits = l.b.ins().ireduce(types::I32, bits);
            from_bits(l, bits)
        }
        _ => l.b.ins().ireduce(types::I16, bits),
    }
}

impl FloatConversion {
    fn has(&self, flag: Flag) -> bool {
        self.modifiers.has(flag)
    }

    /// The source as a single, or as a double if it is one.
    fn source(&self, l: &mut Lower<'_>) -> Value {
        let value = l.read(&self.sources[0], self.from);
        match self.from {
            Type::F16 | Type::Bf16 => widen(l, self.from, false, value),
            Type::F32 => flush_if(l, self.has(Flag::Ftz), value),
            _ => value,
        }
    }

    fn scalar(&self, l: &mut Lower<'_>) {
        let value = self.source(l);
        let sat = self.has(Flag::Sat);
        match self.to {
            Type::F16 | Type::Bf16 => {
                let value = if sat { saturate(l, value) } else { value };
                let value = self.half(l, self.to, value);
                l.write(&self.dst, self.to, value);
            }
            Type::F64 => {
                let value = l.b.ins().fpromote(types::F64, value);
                let value = if sat { saturate(l, value) } else { value };
                l.write(&self.dst, Type::F64, value);
            }
            _ => {
                let value = match (self.from, self.mode) {
                    (Type::F64, Rounding::Nearest) => l.b.ins().fdemote(types::F32, value),
                    (Type::F64, _) => {
                        let bits = self.narrow_exactly(l, Format::F32, value);
                        from_narrow(l, Type::F32, bits)
                    }
                    _ => value,
                };
                let value = flush_if(l, self.has(Flag::Ftz), value);
                match (sat, self.from) {
                    (true, _) => {
                        let value = saturate(l, value);
                        l.write(&self.dst, Type::F32, value);
                    }
                    // The payload of a NaN stays, as far as there is room for it.
                    (_, Type::Bf16 | Type::F64) => l.write(&self.dst, Type::F32, value),
                    _ => l.write_float(&self.dst, Type::F32, value),
                }
            }
        }
    }

    /// A single or double as the bits (`I16`) of a half.
    fn half(&self, l: &mut Lower<'_>, ty: Type, value: Value) -> Value {
        let single = l.b.func.dfg.value_type(value).lane_type() == types::F32;
        let half = match (single, self.mode) {
            (true, Rounding::Nearest) => narrow(l, ty, value),
            _ => {
                let bits = self.narrow_exactly(l, format_of(ty), value);
                from_narrow(l, ty, bits)
            }
        };
        limit_half(l, ty, self.modifiers, half)
    }

    fn narrow_exactly(&self, l: &mut Lower<'_>, format: Format, value: Value) -> Value {
        let value = match l.b.func.dfg.value_type(value) {
            types::F64 => value,
            _ => l.b.ins().fpromote(types::F64, value),
        };
        let target = Target {
            format,
            mode: self.mode,
        };
        // As the device does for what it converts from double by itself.
        let payload = match self.from == Type::F64 && format != Format::BF16 {
            true => KEEP_PAYLOAD,
            false => 0,
        };
        let code = l.b.ins().iconst(types::I32, target.code() | payload);
        l.call_value(&convert::NARROW, &[value, code])
    }

    fn integral(&self, l: &mut Lower<'_>, mode: Option<Rounding>) {
        let half = matches!(self.to, Type::F16 | Type::Bf16);
        if mode.is_none() && !self.has(Flag::Sat) && !self.has(Flag::Ftz) {
            let value = l.read(&self.sources[0], self.from);
            l.write(&self.dst, self.to, value);
            return;
        }
        let mut value = self.source(l);
        if let Some(mode) = mode {
            value = round_to_integral(l, value, mode);
        }
        if self.has(Flag::Sat) {
            value = saturate(l, value);
        }
        if half {
            value = narrow(l, self.to, value);
        }
        // What is saturated is no NaN.
        match half || self.has(Flag::Sat) {
            true => l.write(&self.dst, self.to, value),
            false => l.write_float(&self.dst, self.to, value),
        }
    }

    fn tf32(&self, l: &mut Lower<'_>) {
        let source = self.source(l);
        let value = match self.has(Flag::Relu) {
            true => relu(l, source),
            false => source,
        };
        let field = self.narrow_exactly(l, Format::TF32, value);
        let mut field = l.b.ins().ireduce(types::I32, field);
        if self.has(Flag::Satfinite) {
            let infinity = Format::TF32.infinity() as i64;
            let magnitude = l.b.ins().band_imm(field, Format::TF32.nan() as i64);
            let infinite = l.b.ins().icmp_imm(IntCC::Equal, magnitude, infinity);
            let greatest = l.b.ins().iadd_imm(field, -1);
            field = l.b.ins().select(infinite, greatest, field);
        }
        let mut result = l.b.ins().ishl_imm(field, 13);
        if self.mode == Rounding::Away {
            // A NaN loses its low bits, whatever is left of it.
            let all = bits(l, source);
            let cut = l.b.ins().band_imm(all, !0x1fff);
            let nan = l.b.ins().fcmp(FloatCC::Unordered, source, source);
            result = l.b.ins().select(nan, cut, result);
        }
        l.write(&self.dst, Type::B32, result);
    }

    fn fp8_code(&self, l: &mut Lower<'_>, ty: Type) -> Value {
        let mut code = 0;
        if ty == Type::E4m3x2 {
            code |= FP8_E4M3;
        }
        if self.has(Flag::Relu) {
            code |= FP8_RELU;
        }
        l.b.ins().iconst(types::I32, code)
    }

    fn to_fp8(&self, l: &mut Lower<'_>) {
        let [high, low] = match self.from {
            Type::F32 => [0, 1].map(|i| l.read(&self.sources[i], Type::F32)),
            _ => {
                let value = l.read(&self.sources[0], Type::F16x2);
                let [low, high] = halves(l, value);
                [high, low].map(|half| widen(l, Type::F16, false, half))
            }
        };
        let code = self.fp8_code(l, self.to);
        let value = l.call_value(&convert::TO_FP8X2, &[high, low, code]);
        let value = l.b.ins().ireduce(types::I16, value);
        l.write(&self.dst, Type::B16, value);
    }
}
