//! SIMD video instructions: `vadd2`, `vsub2`, `vavrg2`, `vabsdiff2`, `vmin2`, `vmax2`, `vset2`, and
//! the same of four bytes.
//!
//! Operands are taken whole: all lanes, each operand's in its own order.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use ptx::ast::Type;

use super::Lower;
use crate::jit::decode::{Arg, Operation, Reader, Refusal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Add,
    Sub,
    Average,
    Difference,
    Min,
    Max,
    /// `vset` of a comparison, in signed form.
    Set(IntCC),
}

#[derive(Debug)]
struct Video {
    op: Op,
    lanes: u32,
    /// Signedness of result and operands.
    signed: [bool; 3],
    saturate: bool,
    /// The lanes are added up, with the third operand.
    add: bool,
    args: [Arg; 4],
}

/// `vop{2,4}.dtype.atype.btype{.sat}{.add} d, a, b, c`, `vset{2,4}.atype.btype.cmp{.add} d, a, b,
/// c`
pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    const SIGNS: &[(&str, bool)] = &[("u32", false), ("s32", true)];
    let (name, lanes) = reader.opcode.split_at(reader.opcode.len() - 1);
    let lanes = if lanes == "2" { 2 } else { 4 };
    let first = match name {
        "vset" => false,
        _ => reader.expect_any(SIGNS)?,
    };
    let (a, b) = (reader.expect_any(SIGNS)?, reader.expect_any(SIGNS)?);
    let op = match name {
        "vadd" => Op::Add,
        "vsub" => Op::Sub,
        "vavrg" => Op::Average,
        "vabsdiff" => Op::Difference,
        "vmin" => Op::Min,
        "vmax" => Op::Max,
        _ => Op::Set(reader.expect_any(&[
            ("eq", IntCC::Equal),
            ("ne", IntCC::NotEqual),
            ("lt", IntCC::SignedLessThan),
            ("le", IntCC::SignedLessThanOrEqual),
            ("gt", IntCC::SignedGreaterThan),
            ("ge", IntCC::SignedGreaterThanOrEqual),
        ])?),
    };
    let saturate = !matches!(op, Op::Set(_)) && reader.eat("sat");
    let add = reader.eat("add");
    Ok(Box::new(Video {
        op,
        lanes,
        signed: [first, a, b],
        saturate,
        add,
        args: reader.finish()?,
    }))
}

impl Operation for Video {
    fn pure(&self) -> bool {
        true
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let [d, a, b, c] = &self.args;
        let [a, b, c] = [a, b, c].map(|arg| l.read(arg, Type::U32));
        let bits = i64::from(32 / self.lanes);
        let mut all = match self.add {
            true => c,
            false => l.b.ins().iconst(types::I32, 0),
        };
        for lane in 0..i64::from(self.lanes) {
            let a = extract(l, a, lane * bits, bits, self.signed[1]);
            let b = extract(l, b, lane * bits, bits, self.signed[2]);
            let mut value = self.lane(l, a, b);
            if self.saturate {
                value = self.clamp(l, value, bits);
            }
            all = if self.add {
                l.b.ins().iadd(all, value)
            } else {
                let value = l.b.ins().band_imm(value, (1 << bits) - 1);
                let value = l.b.ins().ishl_imm(value, lane * bits);
                l.b.ins().bor(all, value)
            };
        }
        l.write(d, Type::U32, all);
    }
}

impl Video {
    /// One lane, exact: the operands have at most 17 bits.
    fn lane(&self, l: &mut Lower<'_>, a: Value, b: Value) -> Value {
        match self.op {
            Op::Add => l.b.ins().iadd(a, b),
            Op::Sub => l.b.ins().isub(a, b),
            Op::Min => l.b.ins().smin(a, b),
            Op::Max => l.b.ins().smax(a, b),
            Op::Difference => {
                let difference = l.b.ins().isub(a, b);
                l.b.ins().iabs(difference)
            }
            Op::Average => {
                // Halves are rounded away from zero.
                let sum = l.b.ins().iadd(a, b);
                let negative = l.b.ins().ushr_imm(sum, 31);
                let up = l.b.ins().bxor_imm(negative, 1);
                let sum = l.b.ins().iadd(sum, up);
                l.b.ins().sshr_imm(sum, 1)
            }
            Op::Set(condition) => {
                let holds = l.b.ins().icmp(condition, a, b);
                l.b.ins().uextend(types::I32, holds)
            }
        }
    }

    fn clamp(&self, l: &mut Lower<'_>, value: Value, bits: i64) -> Value {
        let (low, high) = match self.signed[0] {
            true => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            false => (0, (1 << bits) - 1),
        };
        let low = l.b.ins().iconst(types::I32, low & 0xffff_ffff);
        let high = l.b.ins().iconst(types::I32, high);
        let value = l.b.ins().smax(value, low);
        l.b.ins().smin(value, high)
    }
}

/// A lane, extended to 32 bits.
fn extract(l: &mut Lower<'_>, value: Value, at: i64, bits: i64, signed: bool) -> Value {
    let top = l.b.ins().ishl_imm(value, 32 - bits - at);
    match signed {
        true => l.b.ins().sshr_imm(top, 32 - bits),
        false => l.b.ins().ushr_imm(top, 32 - bits),
    }
}

#[cfg(test)]
mod tests {
    use crate::jit::harness::{self, buffer};

    fn run(instruction: &str, a: u32, b: u32, c: u32) -> u32 {
        let source = harness::module(&format!(
            ".visible .entry k(.param .u64 out, .param .u32 a, .param .u32 b, .param .u32 c) {{
    .reg .b32 %r<5>; .reg .b64 %rd1;
    ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [a]; ld.param.u32 %r2, [b]; ld.param.u32 %r3, [c];
    {instruction} %r4, %r1, %r2, %r3; st.global.u32 [%rd1], %r4; }}"
        ));
        let mut out = [0u32];
        let scalars = [a, b, c].map(u32::to_le_bytes);
        let scalars = scalars.each_ref().map(|bytes| &bytes[..]);
        let one = [1, 1, 1];
        harness::run(&source, "k", one, one, &mut [buffer(&mut out)], &scalars).unwrap();
        out[0]
    }

    #[test]
    fn lanes_do_not_touch_each_other() {
        let (a, b) = (0x80ff_7f01, 0x01ff_8002);
        assert_eq!(run("vabsdiff4.u32.u32.u32", a, b, 9), 0x7f00_0101);
        assert_eq!(run("vabsdiff4.u32.u32.u32.add", a, b, 9), 0x7f + 2 + 9);
        assert_eq!(run("vadd4.u32.u32.u32", a, b, 0), 0x81fe_ff03);
        assert_eq!(run("vadd4.u32.u32.u32.sat", a, b, 0), 0x81ff_ff03);
        assert_eq!(run("vadd4.s32.s32.s32.sat", a, b, 0), 0x81fe_ff03);
        assert_eq!(run("vsub4.s32.s32.s32.sat", a, b, 0), 0x8000_7fff);
        assert_eq!(run("vmin4.s32.s32.s32", a, b, 0), 0x80ff_8001);
        assert_eq!(run("vmax4.u32.u32.u32", a, b, 0), 0x80ff_8002);
        assert_eq!(run("vavrg4.u32.u32.u32", a, b, 0), 0x41ff_8002);
        assert_eq!(run("vset4.u32.u32.lt", a, b, 0), 0x0000_0101);
        assert_eq!(run("vset4.u32.u32.ge.add", a, b, 10), 12);
        assert_eq!(run("vadd2.u32.u32.u32", 0xffff_0001, 0x0001_ffff, 0), 0);
        assert_eq!(
            run("vsub2.s32.s32.s32.sat", 0x8000_7fff, 0x0001_ffff, 0),
            0x8000_7fff
        );
        assert_eq!(
            run("vabsdiff2.s32.s32.s32", 0x8000_0001, 0x7fff_ffff, 0),
            0xffff_0002
        );
    }
}
