//! Divisions by a number that a register holds. A compiler does not know `WARP_SZ`, and leaves the
//! division by it as it is:
//!
//! ```text
//! mov.u32 %r5, WARP_SZ;
//! rem.u32 %r6, %r1, %r5;
//! ```
//!
//! Here it is the number, and what is left of a power of two is a mask or a shift.

use std::borrow::Cow;
use std::collections::HashMap;

use ptx::ast::{Immediate, Type};

use super::body::{Pending, PendingStep, named};
use crate::jit::decode::{Arg, RegId};
use crate::jit::program::Tables;

/// Puts numbers in the place of registers that hold nothing else.
pub(super) fn known(steps: &mut [PendingStep<'_>], tables: &Tables) {
    let numbers = numbers(steps, tables);
    let is_word = |register: &RegId| is_word(tables, *register);
    for step in steps {
        let PendingStep::Instruction(Pending {
            instruction, args, ..
        }) = step
        else {
            continue;
        };
        let (divides, [ty]) = (instruction.opcode.as_str(), &instruction.modifiers[..]) else {
            continue;
        };
        let ("div" | "rem", "u32" | "s32", [Arg::Reg(to), Arg::Reg(from), by]) =
            (divides, ty.as_str(), &mut args[..])
        else {
            continue;
        };
        if !is_word(to) || !is_word(from) {
            continue;
        }
        if let Arg::Reg(register) = by
            && let Some(number) = numbers.get(register)
        {
            *by = Arg::Imm(*number);
        }
        let Arg::Imm(Immediate::Int { bits, .. }) = by else {
            continue;
        };
        if ty.as_str() != "u32" || !(*bits as u32).is_power_of_two() {
            continue;
        }
        let (opcode, ty, number) = match divides {
            "div" => ("shr", "u32", (*bits as u32).trailing_zeros()),
            _ => ("and", "b32", *bits as u32 - 1),
        };
        *by = Arg::Imm(Immediate::Int {
            bits: number.into(),
            signed: false,
        });
        let mut other = instruction.as_ref().clone();
        (other.opcode, other.modifiers) = (opcode.into(), vec![ty.into()]);
        *instruction = Cow::Owned(other);
    }
}

/// The numbers that registers of 32 bits hold which are written once.
fn numbers(steps: &[PendingStep<'_>], tables: &Tables) -> HashMap<RegId, Immediate> {
    let mut written = vec![0; tables.registers.len()];
    // A function's parameters are written where it is called.
    for (register, _) in &tables.incoming {
        written[register.0 as usize] += 1;
    }
    let mut numbers = HashMap::new();
    for step in steps {
        let PendingStep::Instruction(pending) = step else {
            continue;
        };
        let (writes, _) = named(&pending.instruction, &pending.args);
        for register in writes {
            written[register.0 as usize] += 1;
        }
        if let ("mov", None, [Arg::Reg(to), Arg::Imm(number @ Immediate::Int { .. })]) = (
            pending.instruction.opcode.as_str(),
            pending.guard,
            &pending.args[..],
        ) && is_word(tables, *to)
        {
            numbers.insert(*to, *number);
        }
    }
    numbers.retain(|register, _| written[register.0 as usize] == 1);
    numbers
}

fn is_word(tables: &Tables, register: RegId) -> bool {
    let ty = tables.registers[register.0 as usize];
    matches!(ty, Type::U32 | Type::S32 | Type::B32)
}
