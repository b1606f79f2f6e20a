//! `createpolicy`: what caches are to do with accesses. There are no caches of the device here, so
//! every policy is one number.

use cranelift_codegen::ir::{InstBuilder, types};
use ptx::ast::Type;

use super::Lower;
use super::async_copy::bracketed;
use crate::jit::decode::{Arg, Operation, Reader, Refusal, Stride};

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
            r.eat_any(PRIORITIES);
        }
    }
    r.ty_of(&[Type::B64])?;
    r.end()?;
    let to = match (kind, r.args) {
        (Kind::Fraction, [to] | [to, _]) | (Kind::Converted, [to, _]) => to,
        (Kind::Range, [to, address, _, _]) => {
            bracketed(r, address)?;
            to
        }
        _ => return Err(r.invalid("has not the operands that it takes".into())),
    };
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
