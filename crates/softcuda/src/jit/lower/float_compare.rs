//! Floating-point comparisons of `set` and `setp`, in every format.

use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use ptx::ast::Type;

use super::Lower;
use super::float_value::{flush_f32, widen};

/// A relation of floating-point values; a name with a `u` is also true where an operand is NaN.
#[allow(missing_docs)] // the names are PTX's own
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatCmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

impl FloatCmp {
    /// All of them with their names, as `Reader::eat_any` takes them.
    pub const NAMES: [(&'static str, FloatCmp); 14] = [
        ("eq", FloatCmp::Eq),
        ("ne", FloatCmp::Ne),
        ("lt", FloatCmp::Lt),
        ("le", FloatCmp::Le),
        ("gt", FloatCmp::Gt),
        ("ge", FloatCmp::Ge),
        ("equ", FloatCmp::Equ),
        ("neu", FloatCmp::Neu),
        ("ltu", FloatCmp::Ltu),
        ("leu", FloatCmp::Leu),
        ("gtu", FloatCmp::Gtu),
        ("geu", FloatCmp::Geu),
        ("num", FloatCmp::Num),
        ("nan", FloatCmp::Nan),
    ];

    /// The relation of this name.
    pub fn from_name(name: &str) -> Option<FloatCmp> {
        Self::NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, op)| *op)
    }

    fn condition(self) -> FloatCC {
        match self {
            FloatCmp::Eq => FloatCC::Equal,
            FloatCmp::Ne => FloatCC::OrderedNotEqual,
            FloatCmp::Lt => FloatCC::LessThan,
            FloatCmp::Le => FloatCC::LessThanOrEqual,
            FloatCmp::Gt => FloatCC::GreaterThan,
            FloatCmp::Ge => FloatCC::GreaterThanOrEqual,
            FloatCmp::Equ => FloatCC::UnorderedOrEqual,
            FloatCmp::Neu => FloatCC::NotEqual,
            FloatCmp::Ltu => FloatCC::UnorderedOrLessThan,
            FloatCmp::Leu => FloatCC::UnorderedOrLessThanOrEqual,
            FloatCmp::Gtu => FloatCC::UnorderedOrGreaterThan,
            FloatCmp::Geu => FloatCC::UnorderedOrGreaterThanOrEqual,
            FloatCmp::Num => FloatCC::Ordered,
            FloatCmp::Nan => FloatCC::Unordered,
        }
    }
}

/// Compares two values of a scalar floating-point type (`.f16`, `.bf16`, `.f32`, `.f64`, carried as
/// `value_type` says): `I8`, 0 or 1. `ftz` treats subnormal operands as zeros, for `.f16` and
/// `.f32`.
///
/// For `.f16x2` and `.bf16x2` compare the halves that [`halves`](super::float_value::halves) gives,
/// as `.f16` and `.bf16`.
pub(crate) fn compare(
    l: &mut Lower<'_>,
    op: FloatCmp,
    ty: Type,
    ftz: bool,
    a: Value,
    b: Value,
) -> Value {
    let [a, b] = [a, b].map(|value| match ty {
        Type::F32 if ftz => flush_f32(l, value),
        Type::F32 | Type::F64 => value,
        _ => widen(l, ty, ftz, value),
    });
    // Vectors have no comparison for these two.
    let either = match op.condition() {
        FloatCC::UnorderedOrEqual => [FloatCC::Unordered, FloatCC::Equal],
        FloatCC::OrderedNotEqual => [FloatCC::LessThan, FloatCC::GreaterThan],
        condition => return l.b.ins().fcmp(condition, a, b),
    };
    if !l.in_vectors() {
        return l.b.ins().fcmp(op.condition(), a, b);
    }
    let [one, other] = either.map(|condition| l.b.ins().fcmp(condition, a, b));
    l.b.ins().bor(one, other)
}
