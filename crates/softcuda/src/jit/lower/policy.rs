//! `createpolicy`: what caches are to do with accesses. There are no caches of the device here, so
//! every policy is one number.

use cranelift_codegen::ir::{InstBuilder, types};
use ptx::ast::{Immediate, Type};

use super::Lower;
use super::async_copy::bracketed;
use crate::jit::decode::{Arg, Operation, Reader, Refusal, Stride, Takes};

#[derive(Debug)]
struct Policy {
    to: Arg,
}

const PRIORITIES: &[(&str, ())] = &[
    ("L2::evict_last", ()),
    ("L2::evict_normal", ()),
    ("L2::evict_first", ()),
    ("L2::evict_unchanged", ()),
];

/// Those of the rest.
const SECONDARY: &[(&str, ())] = &[("L2::evict_first", ()), ("L2::evict_unchanged", ())];

/// `createpolicy.fractional.primary{.secondary}.b64 d{, fraction}`,
/// `createpolicy.range{.global}.primary{.secondary}.b64 d, [a], size, whole`,
/// `createpolicy.cvt.L2.b64 d, property`
pub(super) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    #[derive(Clone, Copy)]
    enum Kind {
        Fraction,
        Range,
        Converted,
    }
    let kind = r.expect_any(&[
        ("fractional", Kind::Fraction),
        ("range", Kind::Range),
        ("cvt", Kind::Converted),
    ])?;
    match kind {
        Kind::Converted => r.expect_any(&[("L2", ())])?,
        Kind::Range | Kind::Fraction => {
            if matches!(kind, Kind::Range) {
                r.eat("global");
            }
            r.expect_any(PRIORITIES)?;
            r.eat_any(SECONDARY);
        }
    }
    r.ty_of(&[Type::B64])?;
    r.end()?;
    let to = match (kind, r.args) {
        (Kind::Fraction, [to]) => to,
        (Kind::Fraction, [to, fraction]) => {
            r.check(&[(fraction, Takes::From(Type::F32))])?;
            let value = match fraction {
                Arg::Imm(Immediate::F32(bits)) => f64::from(f32::from_bits(*bits)),
                Arg::Imm(Immediate::F64(bits)) => f64::from_bits(*bits),
                _ => 1.0,
            };
            if !(value > 0.0 && value <= 1.0) {
                return Err(r.invalid("takes a fraction above 0, and at most 1".into()));
            }
            to
        }
        (Kind::Converted, [to, property]) => {
            r.check(&[(property, Takes::From(Type::U64))])?;
            to
        }
        (Kind::Range, [to, address, size, whole]) => {
            bracketed(r, address)?;
            let sizes = [size, whole].map(|size| (size, Takes::From(Type::U32)));
            r.check(&sizes)?;
            if let [
                Arg::Imm(Immediate::Int { bits: size, .. }),
                Arg::Imm(Immediate::Int { bits: whole, .. }),
            ] = [size, whole]
                && size > whole
            {
                return Err(r.invalid("takes a size of at most the whole range's".into()));
            }
            to
        }
        _ => return Err(r.invalid("has not the operands that it takes".into())),
    };
    r.check(&[(to, Takes::To(Type::U64))])?;
    Ok(Box::new(Policy { to: to.clone() }))
}

impl Operation for Policy {
    fn lower(&self, l: &mut Lower<'_>) {
        let policy = l.b.ins().iconst(types::I64, 0);
        l.write(&self.to, Type::B64, policy);
    }

    fn pure(&self) -> bool {
        true
    }

    fn stride(&self, _: &dyn Fn(&Arg) -> Option<Stride>) -> Option<Stride> {
        Some(Stride::number(0))
    }
}
