//! What the code that makes a value tells of it: how large it may be, and what one thread has of a
//! vector that was put together thread by thread.
//!
//! Where this tells that an address is inside of the static shared memory, it is not checked. A
//! histogram of bytes is such a case: four times a byte is below 1,024.

use cranelift_codegen::ir::immediates::{Imm64, Uimm8};
use cranelift_codegen::ir::{InstBuilder, InstructionData, Opcode, Type, Value};

use super::Lower;
use crate::jit::runtime::access::{Access, Window};

/// How far back it is looked.
const DEPTH: u32 = 8;

/// Of a value, or of each element of a vector.
#[derive(Clone, Copy)]
struct Known {
    /// It is not more, without a sign.
    most: u64,
    /// So many of its lowest bits are 0.
    zeros: u32,
}

impl Known {
    fn number(number: u64) -> Known {
        Known {
            most: number,
            zeros: number.trailing_zeros(),
        }
    }

    fn nothing(ty: Type) -> Known {
        Known {
            most: most_of(ty),
            zeros: 0,
        }
    }

    fn either(self, other: Known) -> Known {
        Known {
            most: self.most.max(other.most),
            zeros: self.zeros.min(other.zeros),
        }
    }
}

/// The most that an element of a type holds.
fn most_of(ty: Type) -> u64 {
    match ty.lane_bits() {
        64.. => u64::MAX,
        bits => (1 << bits) - 1,
    }
}

impl Lower<'_> {
    /// Whether all of an access to memory of the block is inside of its static shared memory, and
    /// aligned.
    pub(super) fn is_inside_shared(&self, first: Value, access: &Access) -> bool {
        if access.window != Window::Shared || access.threads != 1 {
            return false;
        }
        let length = (access.span() + 1) << access.log2;
        let known = self.known(first, DEPTH);
        let end = known.most.checked_add(length);
        known.zeros >= access.log2 && end.is_some_and(|end| end <= self.unit.shared.used)
    }

    fn known(&self, value: Value, depth: u32) -> Known {
        let dfg = &self.b.func.dfg;
        let ty = dfg.value_type(value);
        let nothing = Known::nothing(ty);
        if depth == 0 || !ty.lane_type().is_int() {
            return nothing;
        }
        let Some((opcode, args, number)) = self.made_by(value) else {
            return nothing;
        };
        let of = |at: usize| self.known(args[at], depth - 1);
        // A second operand, which may be a number of the instruction.
        let second = || match number {
            Some(number) => Known::number(number as u64 & nothing.most),
            None => of(1),
        };
        // What wraps is told by its lowest bits alone.
        let fits = |most: Option<u64>, zeros: u32| Known {
            most: most
                .filter(|most| *most <= nothing.most)
                .unwrap_or(nothing.most),
            zeros,
        };
        match opcode {
            Opcode::Iconst => number.map_or(nothing, |number| {
                Known::number(number as u64 & nothing.most)
            }),
            Opcode::Uextend | Opcode::Splat | Opcode::ScalarToVector | Opcode::Extractlane => of(0),
            Opcode::Insertlane => of(0).either(of(1)),
            Opcode::Ireduce => {
                let a = of(0);
                fits(Some(a.most), a.zeros)
            }
            Opcode::Band | Opcode::BandImm => {
                let (a, b) = (of(0), second());
                Known {
                    most: a.most.min(b.most),
                    zeros: a.zeros.max(b.zeros),
                }
            }
            Opcode::Iadd | Opcode::IaddImm => {
                let (a, b) = (of(0), second());
                fits(a.most.checked_add(b.most), a.zeros.min(b.zeros))
            }
            Opcode::Imul | Opcode::ImulImm => {
                let (a, b) = (of(0), second());
                fits(a.most.checked_mul(b.most), a.zeros.saturating_add(b.zeros))
            }
            Opcode::Ishl | Opcode::IshlImm | Opcode::Ushr | Opcode::UshrImm => {
                let Some(by) = self.amount(args, number, ty) else {
                    return nothing;
                };
                let a = of(0);
                match opcode {
                    Opcode::Ishl | Opcode::IshlImm => {
                        fits(a.most.checked_mul(1 << by), a.zeros.saturating_add(by))
                    }
                    _ => Known {
                        most: a.most >> by,
                        zeros: a.zeros.saturating_sub(by),
                    },
                }
            }
            _ => nothing,
        }
    }

    /// By how many bits a shift does, if that is a number.
    fn amount(&self, args: &[Value], number: Option<i64>, ty: Type) -> Option<u32> {
        let number = match number {
            Some(number) => number,
            None => match self.made_by(*args.get(1)?)? {
                (Opcode::Iconst, _, Some(number)) => number,
                _ => return None,
            },
        };
        let by = u32::try_from(number).ok()?;
        (by < ty.lane_bits()).then_some(by)
    }

    /// The opcode of the instruction that makes a value, its operands and its number.
    pub(super) fn made_by(&self, value: Value) -> Option<(Opcode, &[Value], Option<i64>)> {
        let dfg = &self.b.func.dfg;
        let inst = dfg.value_def(dfg.resolve_aliases(value)).inst()?;
        let number = match dfg.insts[inst] {
            InstructionData::UnaryImm { imm, .. } | InstructionData::BinaryImm64 { imm, .. } => {
                let imm: Imm64 = imm;
                Some(imm.bits())
            }
            InstructionData::BinaryImm8 { imm, .. } | InstructionData::TernaryImm8 { imm, .. } => {
                let imm: Uimm8 = imm;
                Some(i64::from(imm))
            }
            _ => None,
        };
        Some((dfg.insts[inst].opcode(), dfg.inst_args(inst), number))
    }

    /// Words that are all one number as a constant. Cranelift extends what is spread to a vector
    /// before it spreads it, and does not see then that it multiplies words.
    pub(super) fn as_constant(&mut self, words: Value) -> Value {
        let Some((Opcode::Splat, &[word], _)) = self.made_by(words) else {
            return words;
        };
        let Some((Opcode::Iconst, _, Some(number))) = self.made_by(word) else {
            return words;
        };
        self.constant_words([number as i32; 4])
    }

    /// An element of a vector: without taking it from there, where the code that made the vector
    /// had it by itself.
    pub(super) fn lane_of(&mut self, vector: Value, lane: u8) -> Value {
        match self.lane_put(vector, lane, DEPTH) {
            Some(element) => element,
            None => self.b.ins().extractlane(vector, lane),
        }
    }

    fn lane_put(&mut self, vector: Value, lane: u8, depth: u32) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        let (opcode, args, number) = self.made_by(vector)?;
        match (opcode, args, number) {
            (Opcode::Splat, &[element], _) => Some(element),
            (Opcode::ScalarToVector, &[element], _) => (lane == 0).then_some(element),
            (Opcode::Insertlane, &[rest, element], at) => match at == Some(i64::from(lane)) {
                true => Some(element),
                false => self.lane_put(rest, lane, depth),
            },
            (Opcode::Iadd, &[a, b], _) => {
                let a = self.lane_put(a, lane, depth)?;
                let b = self.lane_put(b, lane, depth)?;
                Some(self.b.ins().iadd(a, b))
            }
            _ => None,
        }
    }
}
