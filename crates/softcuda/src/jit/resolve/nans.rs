//! Where the bits of a NaN can be seen: there, and nowhere else, they are made those that the
//! device gives.
//!
//! Arithmetic on `.f32` gives one NaN, whatever its operands. The host's gives others, and putting
//! that right costs instructions for each operation. So a register that nothing but arithmetic (and
//! numbers, and copies of such registers, also other threads' by `shfl`) is written to is *lazy*:
//! it may hold any NaN, arithmetic reads it as it is, and whoever reads its bits puts them right
//! first. Any other register that arithmetic writes gets the right NaN at once, unless only
//! arithmetic reads it.

use ptx::ast::{Immediate, Instruction, Type};
use ptx::opcode::{self, Fact};

use crate::jit::decode::{Arg, RegId};

#[cfg(test)]
thread_local! {
    /// Modules that this thread loads make every NaN right where it comes about.
    pub(in crate::jit) static AT_ONCE: std::cell::Cell<bool> =
        const { std::cell::Cell::new(false) };
}

/// What an instruction does with NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Its result is arithmetic's, and so is what it takes from its operands.
    Arithmetic,
    /// It looks at its operands as arithmetic does; its result is no float.
    Test,
    /// It hands one of its operands on.
    Copy,
    /// It hands its first operand on, or another thread's; the others say whose.
    Shuffle,
    /// It writes no register.
    Sink,
    /// Anything else.
    Other,
}

fn class(instruction: &Instruction) -> Class {
    let has = |name: &str| {
        instruction
            .modifiers
            .iter()
            .any(|modifier| modifier == name)
    };
    let mut types = instruction
        .modifiers
        .iter()
        .filter_map(|name| Type::from_name(name));
    let first = types.next();
    let last = types.next_back().or(first);
    match instruction.opcode.as_str() {
        name if last == Some(Type::F32)
            && !has("xorsign")
            && opcode::has(name, Fact::Arithmetic) =>
        {
            Class::Arithmetic
        }
        // Its result is a number.
        "cvt" if (first, last) == (Some(Type::F32), Some(Type::F32)) && has("sat") => {
            Class::Arithmetic
        }
        "cvt" if (first, last) == (Some(Type::F32), Some(Type::F16)) => Class::Arithmetic,
        "setp" | "testp" if last == Some(Type::F32) => Class::Test,
        "cvt"
            if last == Some(Type::F32)
                && matches!(first, Some(ty) if is_integer(ty) || is_half(ty)) =>
        {
            Class::Test
        }
        "mov" | "selp" if matches!(last, Some(Type::F32 | Type::B32)) => Class::Copy,
        "shfl" => Class::Shuffle,
        "st" | "red" => Class::Sink,
        _ => Class::Other,
    }
}

/// The number's bits are a NaN's in a single.
fn is_nan(number: Immediate) -> bool {
    match number {
        Immediate::F32(bits) => f32::from_bits(bits).is_nan(),
        Immediate::Int { bits, .. } => f32::from_bits(bits as u32).is_nan(),
        _ => false,
    }
}

fn is_integer(ty: Type) -> bool {
    use Type::*;
    matches!(ty, U8 | U16 | U32 | U64 | S8 | S16 | S32 | S64)
}

/// All NaNs become one where a single is converted to it.
fn is_half(ty: Type) -> bool {
    matches!(ty, Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2)
}

/// What is known of a body's registers.
#[derive(Default)]
pub(super) struct Nans {
    /// Something else than arithmetic writes it.
    raw: Vec<bool>,
    /// Something else than arithmetic reads it.
    seen: Vec<bool>,
    /// To, from.
    copies: Vec<(RegId, RegId)>,
}

impl Nans {
    /// Counts an instruction of a body with this many registers.
    pub fn count(&mut self, instruction: &Instruction, args: &[Arg]) {
        let class = class(instruction);
        let (written, read) = match (class, args) {
            (Class::Sink, _) | (_, []) => (&[][..], args),
            (_, [first, rest @ ..]) => (std::slice::from_ref(first), rest),
        };
        match class {
            Class::Arithmetic => {}
            Class::Test => mark(&mut self.raw, written),
            Class::Sink => mark(&mut self.seen, read),
            Class::Copy => self.copy(written, read),
            Class::Shuffle => {
                let (handed_on, others) = read.split_at(read.len().min(1));
                self.copy(written, handed_on);
                mark(&mut self.raw, others);
                mark(&mut self.seen, others);
            }
            Class::Other => {
                mark(&mut self.raw, args);
                mark(&mut self.seen, args);
            }
        }
    }

    fn copy(&mut self, written: &[Arg], read: &[Arg]) {
        let Some(to) = written.first().and_then(Arg::target) else {
            mark(&mut self.raw, written);
            mark(&mut self.seen, read);
            return;
        };
        for arg in read {
            match arg {
                Arg::Reg(from) => self.copies.push((to, *from)),
                Arg::Imm(number) if is_nan(*number) => mark(&mut self.raw, written),
                Arg::Imm(_) => {}
                _ => {
                    mark(&mut self.raw, written);
                    mark(&mut self.seen, read);
                }
            }
        }
    }

    /// Decides; `floats` are the registers that are kept as floats, of which only singles matter.
    pub fn decide(mut self, registers: &[Type], floats: &[bool], parameters: &[RegId]) -> Decision {
        let count = registers.len();
        #[cfg(test)]
        if AT_ONCE.get() {
            return Decision {
                lazy: vec![false; count],
                seen: vec![true; count],
            };
        }
        self.raw.resize(count, false);
        self.seen.resize(count, false);
        for (at, (ty, float)) in registers.iter().zip(floats).enumerate() {
            self.raw[at] |= ty.size() != 4 || !float;
        }
        for id in parameters {
            self.raw[id.0 as usize] = true;
            self.seen[id.0 as usize] = true;
        }
        // What is raw makes its copies raw.
        let mut copied_to: Vec<Vec<u32>> = vec![vec![]; count];
        for (to, from) in &self.copies {
            copied_to[from.0 as usize].push(to.0);
        }
        let mut work: Vec<u32> = (0..count as u32)
            .filter(|at| self.raw[*at as usize])
            .collect();
        while let Some(from) = work.pop() {
            for to in &copied_to[from as usize] {
                if !std::mem::replace(&mut self.raw[*to as usize], true) {
                    work.push(*to);
                }
            }
        }
        for (_, from) in &self.copies {
            self.seen[from.0 as usize] = true;
        }
        Decision {
            lazy: self.raw.iter().map(|raw| !raw).collect(),
            seen: self.seen,
        }
    }
}

fn mark(list: &mut Vec<bool>, args: &[Arg]) {
    for arg in args {
        match arg {
            Arg::Reg(id) | Arg::Part(id, _) => {
                let at = id.0 as usize;
                if list.len() <= at {
                    list.resize(at + 1, false);
                }
                list[at] = true;
            }
            Arg::Vector(args) | Arg::List(args) => mark(list, args),
            Arg::Pair(a, b) => {
                mark(list, std::slice::from_ref(a));
                mark(list, std::slice::from_ref(b));
            }
            Arg::Not(arg) | Arg::Address(arg, _) => mark(list, std::slice::from_ref(arg)),
            Arg::Imm(_) | Arg::Symbol(..) | Arg::Special(_) | Arg::SpecialVector(_) | Arg::Sink => {
            }
        }
    }
}

/// How the registers of a body are treated.
pub(super) struct Decision {
    /// May hold any NaN.
    pub lazy: Vec<bool>,
    /// Something else than arithmetic reads it.
    pub seen: Vec<bool>,
}

impl Decision {
    /// Whether an instruction reads the bits of its operands.
    pub fn reads_bits(&self, instruction: &Instruction, args: &[Arg]) -> bool {
        match class(instruction) {
            Class::Arithmetic | Class::Test => false,
            Class::Copy | Class::Shuffle => !args
                .first()
                .and_then(Arg::target)
                .is_some_and(|to| self.lazy[to.0 as usize]),
            Class::Sink | Class::Other => true,
        }
    }
}
