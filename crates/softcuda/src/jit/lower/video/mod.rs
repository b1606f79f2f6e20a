//! Video instructions. [`scalar`] has those of one value, [`simd`] those of two halves or four
//! bytes.

#[cfg(test)]
mod reference;
mod scalar;
mod simd;
#[cfg(test)]
mod tests;

use cranelift_codegen::ir::condcodes::IntCC;
use ptx::ast::{Immediate, Type};
use smallvec::SmallVec;

use crate::jit::decode::{Arg, Operation, Reader, Refusal, RegId, Selector};

/// Whether an opcode is a video instruction, whose operands may name parts of registers.
pub(crate) fn is_video(opcode: &str) -> bool {
    scalar::is_scalar(opcode) || simd::is_simd(opcode)
}

pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    match scalar::is_scalar(reader.opcode) {
        true => scalar::decode(reader),
        false => simd::decode(reader),
    }
}

/// What combines the result with the last operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Second {
    Add,
    Min,
    Max,
}

/// The modifiers of a video instruction, which may stand in any order.
#[derive(Default)]
struct Words {
    /// For each type, whether it is signed.
    signed: SmallVec<[bool; 3]>,
    saturate: bool,
    second: Option<Second>,
    /// A comparison, in signed form.
    compare: Option<IntCC>,
    /// Shift amounts wrap, instead of being clamped.
    wrap: Option<bool>,
    plus_one: bool,
    scale: Option<u8>,
}

impl Words {
    /// Reads all modifiers, each of which may stand once; `.sat` may be repeated.
    fn read(reader: &mut Reader<'_>) -> Result<Words, Refusal> {
        let mut words = Words::default();
        while let Some(word) = reader.peek() {
            let twice = match word {
                "u32" | "s32" => {
                    words.signed.push(word == "s32");
                    false
                }
                "sat" => {
                    words.saturate = true;
                    false
                }
                "add" => words.second.replace(Second::Add).is_some(),
                "min" => words.second.replace(Second::Min).is_some(),
                "max" => words.second.replace(Second::Max).is_some(),
                "clamp" => words.wrap.replace(false).is_some(),
                "wrap" => words.wrap.replace(true).is_some(),
                "po" => std::mem::replace(&mut words.plus_one, true),
                "shr7" => words.scale.replace(7).is_some(),
                "shr15" => words.scale.replace(15).is_some(),
                _ => {
                    let compare = match word {
                        "eq" => IntCC::Equal,
                        "ne" => IntCC::NotEqual,
                        "lt" => IntCC::SignedLessThan,
                        "le" => IntCC::SignedLessThanOrEqual,
                        "gt" => IntCC::SignedGreaterThan,
                        "ge" => IntCC::SignedGreaterThanOrEqual,
                        _ => return Err(reader.unknown_modifier()),
                    };
                    words.compare.replace(compare).is_some()
                }
            };
            if twice {
                return Err(reader.invalid(format!("modifier .{word} comes too late")));
            }
            reader.skip();
        }
        Ok(words)
    }

    /// Refuses modifiers that the instruction does not take.
    fn only(&self, reader: &Reader<'_>, takes: Takes) -> Result<(), Refusal> {
        let wrong = [
            (self.saturate && !takes.saturate, "sat"),
            (self.second.is_some() && !takes.second, "add, .min or .max"),
            (self.wrap.is_some() && !takes.wrap, "clamp or .wrap"),
            (self.plus_one && !takes.scale, "po"),
            (self.scale.is_some() && !takes.scale, "shr7 or .shr15"),
            (self.compare.is_some() && !takes.compare, "eq or the like"),
        ];
        match wrong.iter().find(|(wrong, _)| *wrong) {
            Some((_, word)) => Err(reader.invalid(format!("takes no .{word}"))),
            None => Ok(()),
        }
    }

    /// The signedness of so many types, which must be all.
    fn types<const N: usize>(&self, reader: &Reader<'_>) -> Result<[bool; N], Refusal> {
        <[bool; N]>::try_from(&self.signed[..])
            .map_err(|_| reader.invalid(format!("takes {N} types of .u32 and .s32")))
    }
}

/// Which modifiers an instruction takes beside types.
#[derive(Clone, Copy, Default)]
struct Takes {
    saturate: bool,
    second: bool,
    wrap: bool,
    scale: bool,
    compare: bool,
}

/// An operand: a register of 32 bits or a number, and its selector if it has one.
fn operand(reader: &Reader<'_>, arg: &Arg) -> Result<(Arg, Option<Selector>), Refusal> {
    match arg {
        Arg::Reg(id) => Ok((Arg::Reg(word(reader, *id)?), None)),
        Arg::Part(id, selector) => Ok((Arg::Reg(word(reader, *id)?), Some(*selector))),
        Arg::Imm(Immediate::Int { .. }) => Ok((arg.clone(), None)),
        _ => Err(reader.invalid("takes registers of 32 bits and integers".into())),
    }
}

/// A destination: a register of 32 bits, and its selector if it has one.
fn destination(reader: &Reader<'_>, arg: &Arg) -> Result<(Arg, Option<Selector>), Refusal> {
    match arg {
        Arg::Imm(_) => Err(reader.invalid("writes a register of 32 bits".into())),
        arg => operand(reader, arg),
    }
}

fn word(reader: &Reader<'_>, id: RegId) -> Result<RegId, Refusal> {
    match reader.registers[id.0 as usize] {
        Type::B32 | Type::U32 | Type::S32 => Ok(id),
        _ => Err(reader.invalid("takes registers of 32 bits".into())),
    }
}
