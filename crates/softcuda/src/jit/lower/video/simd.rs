//! SIMD video instructions: `vadd2`, `vsub2`, `vavrg2`, `vabsdiff2`, `vmin2`, `vmax2`, `vset2`, and
//! the same of four bytes.
//!
//! The lanes of each operand are halves or bytes of the first two registers, in any order. Lanes
//! that the destination's mask leaves out are those of the last register, or are not added up.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use ptx::ast::Type;

use super::{Second, Takes, Words, destination, operand};
use crate::jit::decode::{Arg, Operation, Reader, Refusal, Selector};
use crate::jit::lower::Lower;

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
    lanes: u8,
    /// Signedness of result and operands.
    signed: [bool; 3],
    saturate: bool,
    /// The lanes are added up, with the third operand.
    add: bool,
    /// Whether each lane is written or added.
    mask: [bool; 4],
    /// For each operand, which lane of the first two registers each of its lanes is.
    order: [[u8; 4]; 2],
    args: [Arg; 4],
}

pub(super) fn is_simd(opcode: &str) -> bool {
    let Some(name) = opcode.strip_suffix(['2', '4']) else {
        return false;
    };
    matches!(
        name,
        "vadd" | "vsub" | "vavrg" | "vabsdiff" | "vmin" | "vmax" | "vset"
    )
}

/// `vop{2,4}.dtype.atype.btype{.sat}{.add} d{.mask}, a{.lanes}, b{.lanes}, c`,
/// `vset{2,4}.atype.btype.cmp{.add} d{.mask}, a{.lanes}, b{.lanes}, c`
pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let words = Words::read(reader)?;
    let (name, lanes) = reader.opcode.split_at(reader.opcode.len() - 1);
    let lanes: u8 = if lanes == "2" { 2 } else { 4 };
    let takes = Takes {
        saturate: name != "vset",
        second: true,
        compare: name == "vset",
        ..Takes::default()
    };
    words.only(reader, takes)?;
    let signed = match name {
        "vset" => {
            let [a, b] = words.types(reader)?;
            [false, a, b]
        }
        _ => words.types(reader)?,
    };
    let op = match (name, words.compare) {
        ("vadd", _) => Op::Add,
        ("vsub", _) => Op::Sub,
        ("vavrg", _) => Op::Average,
        ("vabsdiff", _) => Op::Difference,
        ("vmin", _) => Op::Min,
        ("vmax", _) => Op::Max,
        (_, Some(compare)) => Op::Set(compare),
        _ => return Err(reader.invalid("a comparison is missing".into())),
    };
    let add = match words.second {
        None => false,
        Some(Second::Add) if words.saturate => {
            return Err(reader.invalid("has .sat or .add, not both".into()));
        }
        Some(Second::Add) => true,
        Some(_) => return Err(reader.invalid("takes no .min or .max".into())),
    };
    let [to, first, second, last] = reader.finish()?;
    let (to, mask) = destination(reader, &to)?;
    let (first, first_order) = register(reader, &first)?;
    let (second, second_order) = register(reader, &second)?;
    let (last, None) = register(reader, &last)? else {
        return Err(reader.invalid("takes the whole last register".into()));
    };
    Ok(Box::new(Video {
        op,
        lanes,
        signed,
        saturate: words.saturate,
        add,
        mask: mask_of(reader, mask, lanes)?,
        order: [
            order_of(reader, first_order, lanes, 0)?,
            order_of(reader, second_order, lanes, lanes)?,
        ],
        args: [to, first, second, last],
    }))
}

fn register(reader: &Reader<'_>, arg: &Arg) -> Result<(Arg, Option<Selector>), Refusal> {
    match operand(reader, arg)? {
        (Arg::Imm(_), _) => Err(reader.invalid("takes registers, not numbers".into())),
        register => Ok(register),
    }
}

/// The lanes of a mask, such as `.b310`, which are named in descending order.
fn mask_of(
    reader: &Reader<'_>,
    selector: Option<Selector>,
    lanes: u8,
) -> Result<[bool; 4], Refusal> {
    let Some(selector) = selector else {
        return Ok([true; 4]);
    };
    let parts = selector.parts();
    let known = parts.iter().all(|part| *part < lanes) && parts.is_sorted_by(|a, b| a < b);
    if selector.bits != 32 / lanes || !known {
        return Err(reader.invalid("the mask is none of its destination".into()));
    }
    let mut mask = [false; 4];
    for part in parts {
        mask[usize::from(*part)] = true;
    }
    Ok(mask)
}

/// The lanes that a selector such as `.h10` or `.b7654` names; without it, those from `first` on.
fn order_of(
    reader: &Reader<'_>,
    selector: Option<Selector>,
    lanes: u8,
    first: u8,
) -> Result<[u8; 4], Refusal> {
    let mut order = [0, 1, 2, 3].map(|lane| first + lane);
    if let Some(selector) = selector {
        let parts = selector.parts();
        if selector.bits != 32 / lanes || parts.len() != usize::from(lanes) {
            return Err(reader.invalid(format!("takes selectors of {lanes} lanes")));
        }
        order[..parts.len()].copy_from_slice(parts);
    }
    Ok(order)
}

impl Operation for Video {
    fn pure(&self) -> bool {
        true
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let [d, a, b, c] = &self.args;
        let [a, b, c] = [a, b, c].map(|arg| l.read(arg, Type::U32));
        let bits = i64::from(32 / self.lanes);
        let lanes = || (0..self.lanes).filter(|lane| self.mask[usize::from(*lane)]);
        let ones = (1 << bits) - 1;
        let mut all = c;
        if !self.add {
            let written = lanes().fold(0, |mask, lane| mask | ones << (i64::from(lane) * bits));
            all = l.b.ins().band_imm(c, !written & 0xffff_ffff);
        }
        for lane in lanes() {
            let [a, b] = [0, 1].map(|operand| {
                let from = self.order[operand][usize::from(lane)];
                let register = if from < self.lanes { a } else { b };
                let at = i64::from(from % self.lanes) * bits;
                extract(l, register, at, bits, self.signed[operand + 1])
            });
            let mut value = self.lane(l, a, b);
            if self.saturate {
                value = self.clamp(l, value, bits);
            }
            all = if self.add {
                l.b.ins().iadd(all, value)
            } else {
                let value = l.b.ins().band_imm(value, ones);
                let value = l.b.ins().ishl_imm(value, i64::from(lane) * bits);
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
