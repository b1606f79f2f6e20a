//! Operations to Cranelift's IR: the state of the function being compiled, and what every family needs of it.
//!
//! | PTX type | value |
//! |---|---|
//! | `.pred` | `I8`, 0 or 1 |
//! | 8, 16, 32, 64 and 128 bit integer and untyped | `I8` to `I128` |
//! | `.f16`, `.bf16` | `I16`, its bits |
//! | `.f16x2`, `.bf16x2` | `I32`, its bits |
//! | `.f32`, `.f64` | `F32`, `F64` |

pub(crate) mod bits;
pub(crate) mod compare;
pub(crate) mod convert;
pub(crate) mod convert_float;
pub(crate) mod float;
pub(crate) mod float_approx;
pub(crate) mod float_compare;
pub(crate) mod float_modifiers;
pub(crate) mod float_sign;
pub(crate) mod float_value;
pub(crate) mod half;
pub(crate) mod integer;

use cranelift_codegen::ir::{self, Value, types};
use cranelift_frontend::{FunctionBuilder, Variable};
use ptx::ast::Type;

use super::decode::{Arg, Decode, Operation, Reader, Refusal};
use super::runtime::RuntimeFn;

/// The decoder of an opcode's family; `None` for an opcode that is not run.
pub(crate) fn decoder(opcode: &str) -> Option<Decode> {
    Some(match opcode {
        "addc" | "subc" | "madc" | "mul24" | "mad24" | "sad" | "rem" => integer::decode,
        "and" | "or" | "xor" | "not" | "cnot" | "lop3" | "shl" | "shr" | "shf" | "popc" | "clz"
        | "bfind" | "brev" | "fns" | "bfe" | "bfi" | "szext" | "bmsk" | "prmt" | "dp4a"
        | "dp2a" => bits::decode,
        "add" | "sub" | "mul" | "mad" | "fma" | "div" | "min" | "max" | "abs" | "neg" => {
            arithmetic_by_type
        }
        "rcp" | "sqrt" => float::decode_division,
        "rsqrt" | "sin" | "cos" | "lg2" => float_approx::decode,
        "ex2" | "tanh" => approximate_by_type,
        "copysign" => float_sign::decode_copysign,
        "testp" => float_sign::decode_testp,
        "cvt" => convert::decode,
        "set" | "setp" | "selp" | "slct" => compare::decode,
        _ => return None,
    })
}

/// Decodes an opcode that integers, singles, doubles and halves share, by its type.
fn arithmetic_by_type(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    match r.last_type() {
        Some(Type::F32 | Type::F64) => match r.opcode {
            "add" | "sub" | "mul" | "mad" | "fma" => float::decode_arithmetic(r),
            "div" => float::decode_division(r),
            "min" | "max" => float_sign::decode_extremum(r),
            _ => float_sign::decode_sign(r),
        },
        Some(Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2) => half::decode(r),
        Some(Type::F32x2) => Err(r.not_run("packed singles, of sm_100,".into())),
        _ => integer::decode(r),
    }
}

/// Decodes an approximate function of singles and halves.
fn approximate_by_type(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    match r.last_type() {
        Some(Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2) => half::decode(r),
        _ => float_approx::decode(r),
    }
}

/// The type of the value that carries a PTX type.
pub(crate) fn value_type(ty: Type) -> ir::Type {
    use Type::*;
    match ty {
        Pred | B8 | U8 | S8 | E4m3 | E5m2 => types::I8,
        B16 | U16 | S16 | F16 | Bf16 | E4m3x2 | E5m2x2 => types::I16,
        B32 | U32 | S32 | F16x2 | Bf16x2 | Tf32 | U16x2 | S16x2 => types::I32,
        B64 | U64 | S64 | F32x2 | Texref | Samplerref | Surfref => types::I64,
        B128 => types::I128,
        F32 => types::F32,
        F64 => types::F64,
    }
}

/// The function being compiled.
pub(crate) struct Lower<'a> {
    /// Cranelift's builder, in the block where the next operation goes.
    pub b: FunctionBuilder<'a>,
    /// The `ThreadContext` pointer.
    pub thread: Value,
    /// The `BlockContext` pointer.
    pub block: Value,
    /// The carry flag `CC.CF`, once an instruction has used it.
    pub carry: Option<Variable>,
}

impl Lower<'_> {
    /// The operand as a value of type `ty` (see the table above). A register wider than `ty` gives its low bits; the bits
    /// of a register of another type of the same width are taken as they are.
    pub fn read(&mut self, arg: &Arg, ty: Type) -> Value {
        let _ = (arg, ty);
        unimplemented!("core")
    }

    /// Puts a value of type `ty` into a destination. A wider register gets it sign-extended where `ty` is signed,
    /// otherwise zero-extended. [`Arg::Sink`] drops it.
    pub fn write(&mut self, arg: &Arg, ty: Type, value: Value) {
        let _ = (arg, ty, value);
        unimplemented!("core")
    }

    /// Calls a runtime function.
    pub fn call(&mut self, function: &'static RuntimeFn, args: &[Value]) -> Option<Value> {
        let _ = (function, args);
        unimplemented!("core")
    }

    /// Calls a runtime function that has a result.
    pub fn call_value(&mut self, function: &'static RuntimeFn, args: &[Value]) -> Value {
        self.call(function, args)
            .expect("the caller names a function with a result")
    }

    /// Leaves the function with `status` unless it is `CONTINUE`.
    pub fn check_status(&mut self, status: Value) {
        let _ = status;
        unimplemented!("core")
    }

    /// The host address of a checked access of `size` bytes (a power of two, up to 32) at the operand's address in `space`
    /// (`None` is generic); leaves the function with a fault when it is not allowed. `write` also for atomics.
    pub fn checked_address(
        &mut self,
        address: &Arg,
        space: Option<ptx::ast::Space>,
        size: u32,
        write: bool,
    ) -> Value {
        let _ = (address, space, size, write);
        unimplemented!("core")
    }
}
