//! Which untyped registers (`.b32`, `.b64`) floats go through: they are kept in float registers.
//!
//! A guess that costs moves between register files where it is wrong, and nothing else. Each
//! instruction that names a type votes for the registers it uses; copies pass the answer on.

use ptx::ast::{Instruction, Type};
use ptx::opcode::{self, Fact};

use crate::jit::decode::{Arg, RegId};

/// The votes of a body.
#[derive(Default)]
pub(super) struct Votes {
    votes: Vec<i32>,
    copies: Vec<(RegId, RegId)>,
}

impl Votes {
    /// Counts an instruction.
    pub fn count(&mut self, instruction: &Instruction, args: &[Arg]) {
        let mut types = instruction
            .modifiers
            .iter()
            .filter_map(|name| Type::from_name(name));
        match instruction.opcode.as_str() {
            // The others say which lane's.
            "shfl" => self.copy_all(&args[..args.len().min(2)]),
            name if opcode::has(name, Fact::Moves) => self.copy_all(args),
            "cvt" => {
                for (arg, ty) in args.iter().zip(types) {
                    self.vote(arg, ty);
                }
            }
            "set" | "slct" => {
                for (n, arg) in args.iter().enumerate() {
                    if let Some(ty) = types.next().filter(|_| n < 2) {
                        self.vote(arg, ty);
                    }
                }
            }
            _ => {
                if let Some(ty) = types.next_back() {
                    args.iter().for_each(|arg| self.vote(arg, ty));
                }
            }
        }
    }

    fn copy_all(&mut self, args: &[Arg]) {
        let [to, rest @ ..] = args else {
            return;
        };
        if let Some(to) = to.target() {
            for arg in rest {
                if let Arg::Reg(from) = arg {
                    self.copies.push((to, *from));
                }
            }
        }
    }

    fn vote(&mut self, arg: &Arg, ty: Type) {
        let Arg::Reg(id) = arg else {
            return;
        };
        let at = id.0 as usize;
        if self.votes.len() <= at {
            self.votes.resize(at + 1, 0);
        }
        self.votes[at] += if matches!(ty, Type::F32 | Type::F64) {
            1
        } else {
            -1
        };
    }

    /// For each register, whether it holds a float.
    pub fn decide(mut self, registers: &[Type]) -> Vec<bool> {
        self.votes.resize(registers.len(), 0);
        let votes = &mut self.votes;
        // Two rounds reach through a copy of a copy, which is as far as compilers' output goes.
        for _ in 0..2 {
            for (to, from) in self.copies.iter().chain(self.copies.iter().rev()) {
                let (to, from) = (to.0 as usize, from.0 as usize);
                if registers[to].size() != registers[from].size() {
                    continue;
                }
                if votes[to] == 0 {
                    votes[to] = votes[from].signum();
                } else if votes[from] == 0 {
                    votes[from] = votes[to].signum();
                }
            }
        }
        registers
            .iter()
            .zip(votes)
            .map(|(ty, votes)| match ty {
                Type::F32 | Type::F64 => true,
                Type::B32 | Type::B64 => *votes > 0,
                _ => false,
            })
            .collect()
    }
}
