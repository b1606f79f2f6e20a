//! `mov`: registers, numbers, addresses, special registers; packing and unpacking.

use cranelift_codegen::ir::{self, InstBuilder, Value, types};
use ptx::ast::{Immediate, Type};

use super::float_value::{halves, pair};
use super::{Lower, value_type};
use crate::jit::decode::{Arg, Halves, Operation, Reader, Refusal, RegId, Special, Stride};

#[derive(Debug)]
enum Mov {
    Scalar {
        ty: Type,
        to: Arg,
        from: Arg,
    },
    /// Low element first.
    Pack {
        ty: Type,
        to: Arg,
        from: Vec<Arg>,
    },
    Unpack {
        ty: Type,
        to: Vec<Arg>,
        from: Arg,
    },
    /// Element by element.
    Each {
        ty: Type,
        pairs: Vec<(Arg, Arg)>,
    },
}

pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let vector = reader.eat_any(&[("v2", 2usize), ("v4", 4)]);
    let ty = reader.ty()?;
    let [to, from] = reader.finish()?;
    let from = match from {
        Arg::SpecialVector(_) if vector != Some(4) => {
            return Err(reader.invalid("takes a component of the special register".into()));
        }
        Arg::SpecialVector(special) => Arg::Vector(components(special)),
        from => from,
    };
    Ok(Box::new(match (to, from) {
        (Arg::Vector(to), Arg::Vector(from)) => {
            if to.len() != from.len() || vector.is_some_and(|n| n != to.len()) {
                return Err(reader.invalid("the vectors differ in length".into()));
            }
            Mov::Each {
                ty,
                pairs: to.into_iter().zip(from).collect(),
            }
        }
        (_, _) if vector.is_some() => return Err(reader.invalid("takes two vectors".into())),
        (Arg::Vector(to), from) => {
            element(reader, ty, to.len())?;
            Mov::Unpack { ty, to, from }
        }
        (to, Arg::Vector(from)) => {
            element(reader, ty, from.len())?;
            Mov::Pack { ty, to, from }
        }
        (
            to @ (Arg::Reg(_) | Arg::Sink),
            from @ (Arg::Reg(_) | Arg::Imm(_) | Arg::Symbol(..) | Arg::Special(_)),
        ) => {
            for arg in [&to, &from] {
                if let Arg::Reg(register) = arg
                    && reader.registers[register.0 as usize].size() != ty.size()
                {
                    return Err(
                        reader.invalid("Arguments mismatch: a register is of another size".into())
                    );
                }
            }
            if let Arg::Special(special) = from
                && !special.is(ty)
            {
                let ty = ty.name();
                return Err(reader.invalid(format!("a special register is no .{ty} here")));
            }
            Mov::Scalar { ty, to, from }
        }
        _ => return Err(reader.invalid("takes a register and a value".into())),
    }))
}

fn components(special: Special) -> Vec<Arg> {
    (0..4)
        .map(|n| {
            Arg::Special(match special {
                Special::Tid(_) => Special::Tid(n),
                Special::Ntid(_) => Special::Ntid(n),
                Special::Ctaid(_) => Special::Ctaid(n),
                Special::Nctaid(_) => Special::Nctaid(n),
                Special::Cluster(register, _) => Special::Cluster(register, n),
                other => other,
            })
        })
        .collect()
}

/// The untyped type of one of `n` elements.
fn element(reader: &Reader<'_>, ty: Type, n: usize) -> Result<Type, Refusal> {
    part(ty, n)
        .ok_or_else(|| reader.invalid(format!("{n} elements do not make up a .{}", ty.name())))
}

fn part(ty: Type, n: usize) -> Option<Type> {
    let size = ty.size() as usize;
    if ty == Type::Pred || n < 2 || !size.is_multiple_of(n) {
        return None;
    }
    Some(match size / n {
        1 => Type::B8,
        2 => Type::B16,
        4 => Type::B32,
        8 => Type::B64,
        _ => return None,
    })
}

/// Values of the type are bits, or integers.
fn is_bits(ty: Type) -> bool {
    use Type::*;
    matches!(ty, B32 | U32 | S32 | B64 | U64 | S64)
}

impl Operation for Mov {
    fn pure(&self) -> bool {
        true
    }

    fn vectorizes(&self) -> bool {
        matches!(self, Mov::Scalar { .. } | Mov::Each { .. })
    }

    fn vectorizes_short(&self) -> bool {
        match self {
            Mov::Scalar { .. } | Mov::Each { .. } => true,
            Mov::Pack { ty, from, .. } => ty.size() == 4 && from.len() == 2,
            Mov::Unpack { ty, to, .. } => ty.size() == 4 && to.len() == 2,
        }
    }

    fn halves(&self) -> Option<Halves> {
        let (ty, whole, parts, joins) = match self {
            Mov::Pack { ty, to, from } => (ty, to, from, true),
            Mov::Unpack { ty, to, from } => (ty, from, to, false),
            _ => return None,
        };
        match (ty.size(), whole, &parts[..]) {
            (8, Arg::Reg(whole), [Arg::Reg(low), Arg::Reg(high)]) => Some(Halves {
                whole: *whole,
                parts: [*low, *high],
                joins,
            }),
            _ => None,
        }
    }

    fn stride(&self, of: &dyn Fn(&Arg) -> Option<Stride>) -> Option<Stride> {
        match self {
            Mov::Scalar { ty, from, .. } if ty.size() >= 4 && *ty != Type::B128 => of(from),
            _ => None,
        }
    }

    fn most(&self, of: &dyn Fn(&Arg) -> Option<u32>) -> Option<u32> {
        match self {
            Mov::Scalar { ty, from, .. } if ty.size() == 4 => of(from),
            _ => None,
        }
    }

    fn moves(&self) -> Option<(RegId, u32)> {
        match self {
            Mov::Scalar {
                ty,
                from: Arg::Reg(from),
                ..
            } => is_bits(*ty).then_some((*from, ty.size())),
            _ => None,
        }
    }

    fn copies(&self) -> Option<RegId> {
        match self {
            Mov::Scalar {
                ty,
                from: Arg::Reg(from),
                ..
            } if ty.size() == 8 => Some(*from),
            _ => None,
        }
    }

    fn evaluates(&self, of: &dyn Fn(&Arg) -> Option<u64>) -> Option<u64> {
        match self {
            Mov::Scalar { from, .. } => of(from),
            _ => None,
        }
    }

    fn number(&self) -> Option<(Type, Immediate)> {
        match self {
            Mov::Scalar {
                ty,
                to: Arg::Reg(_),
                from: Arg::Imm(number),
            } => Some((*ty, *number)),
            _ => None,
        }
    }

    fn lower(&self, l: &mut Lower<'_>) {
        match self {
            Mov::Scalar { ty, to, from } => l.mov(*ty, to, from),
            Mov::Each { ty, pairs } => {
                // All are read before any is written: the vectors may share registers.
                let values: Vec<Value> = pairs.iter().map(|(_, from)| l.read(from, *ty)).collect();
                for ((to, _), value) in pairs.iter().zip(values) {
                    l.write(to, *ty, value);
                }
            }
            Mov::Pack { ty, to, from } => {
                let Some(part) = part(*ty, from.len()) else {
                    return;
                };
                let parts: Vec<Value> = from.iter().map(|arg| l.read(arg, part)).collect();
                let value = l.pack(&parts);
                l.write(to, untyped(*ty), value);
            }
            Mov::Unpack { ty, to, from } => {
                let Some(part) = part(*ty, to.len()) else {
                    return;
                };
                let value = l.read(from, untyped(*ty));
                let parts = l.unpack(value, value_type(part), to.len());
                for (to, value) in to.iter().zip(parts) {
                    l.write(to, part, value);
                }
            }
        }
    }
}

fn untyped(ty: Type) -> Type {
    match ty.size() {
        1 => Type::B8,
        2 => Type::B16,
        4 => Type::B32,
        8 => Type::B64,
        _ => Type::B128,
    }
}

impl Lower<'_> {
    fn mov(&mut self, ty: Type, to: &Arg, from: &Arg) {
        // Between registers that hold the same, no bits need change their kind.
        if let (Some(a), Some(b)) = (self.held_type(to), self.held_type(from))
            && a == b
            && a.bits() == value_type(ty).bits()
            && let (Arg::Reg(to), Arg::Reg(from)) = (to, from)
        {
            let value = self.held(*from);
            return self.put(*to, value);
        }
        let value = self.read(from, ty);
        self.write(to, ty, value);
    }

    /// Integers of one type side by side, the first lowest.
    fn pack(&mut self, parts: &[Value]) -> Value {
        if let [low, high] = parts
            && self.b.func.dfg.value_type(*low) == types::I64
        {
            return self.b.ins().iconcat(*low, *high);
        }
        if let [low, high] = parts
            && self.in_vectors()
        {
            return pair(self, [*low, *high]);
        }
        let bits = self.b.func.dfg.value_type(parts[0]).bits();
        let total = bits * parts.len() as u32;
        if total == 128 {
            let half = parts.len() / 2;
            let low = self.pack(&parts[..half]);
            let high = self.pack(&parts[half..]);
            return self.b.ins().iconcat(low, high);
        }
        let whole = ir::Type::int(total as u16).expect("16, 32 or 64 bits");
        let mut value = self.b.ins().uextend(whole, parts[0]);
        for (n, part) in parts.iter().enumerate().skip(1) {
            let part = self.b.ins().uextend(whole, *part);
            let part = self.b.ins().ishl_imm(part, i64::from(bits) * n as i64);
            value = self.b.ins().bor(value, part);
        }
        value
    }

    /// The other way round.
    fn unpack(&mut self, value: Value, part: ir::Type, n: usize) -> Vec<Value> {
        if self.in_vectors() {
            return halves(self, value).into();
        }
        if self.b.func.dfg.value_type(value) == types::I128 {
            let (low, high) = self.b.ins().isplit(value);
            if n == 2 {
                return vec![low, high];
            }
            let mut parts = self.unpack(low, part, n / 2);
            parts.extend(self.unpack(high, part, n / 2));
            return parts;
        }
        (0..n)
            .map(|n| {
                let value = if n == 0 {
                    value
                } else {
                    self.b
                        .ins()
                        .ushr_imm(value, i64::from(part.bits()) * n as i64)
                };
                self.b.ins().ireduce(part, value)
            })
            .collect()
    }
}
