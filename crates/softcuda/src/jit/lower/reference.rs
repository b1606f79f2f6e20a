//! `istypep`: which kind of texture or surface a handle is of. A bit of the handle says so.

use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::condcodes::IntCC;
use ptx::ast::Type;

use super::Lower;
use crate::jit::decode::{Arg, Operation, Reader, Refusal, Takes};

#[derive(Debug)]
struct IsOfKind {
    bit: i64,
    args: [Arg; 2],
}

/// `istypep.type p, a`
pub(super) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let bit = r.expect_any(&[("texref", 61), ("samplerref", 62), ("surfref", 63)])?;
    let args = r.finish()?;
    let [to, handle] = &args;
    r.check(&[
        (to, Takes::To(Type::Pred)),
        (handle, Takes::Register(Type::U64)),
    ])?;
    Ok(Box::new(IsOfKind { bit, args }))
}

impl Operation for IsOfKind {
    fn pure(&self) -> bool {
        true
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let [to, handle] = &self.args;
        let handle = l.read(handle, Type::U64);
        let bit = l.b.ins().ushr_imm(handle, self.bit);
        let bit = l.b.ins().band_imm(bit, 1);
        let is = l.b.ins().icmp_imm(IntCC::NotEqual, bit, 0);
        l.write(to, Type::Pred, is);
    }
}
