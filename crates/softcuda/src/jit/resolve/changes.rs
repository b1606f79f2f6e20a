//! Which ways the numbers in memory go that a body changes for other threads to see: by atomic
//! operations and strong stores.
//!
//! Who adds to a number until it has passed a limit, as to take work from a queue, waits for
//! nobody. Who takes back what was too much, as to try a semaphore again, does, though no single
//! operation leaves the number as it is.

use std::collections::HashMap;
use std::ops::{BitAnd, BitOr};

use ptx::ast::{Immediate, Instruction};

use crate::jit::decode::{Arg, RegId, Symbol};

/// A set of ways that a number goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ways(u8);

impl Ways {
    const NONE: Ways = Ways(0);
    const UP: Ways = Ways(1);
    const DOWN: Ways = Ways(2);
    /// Some bits change each time.
    const FLIPS: Ways = Ways(4);
    /// It may also stay as it is.
    pub const ANY: Ways = Ways(7);

    /// The ways of an atomic operation.
    pub fn of(modifiers: &[String], value: &Arg) -> Ways {
        let adds = |zero: bool, negative: bool| match (zero, negative) {
            (true, _) => Ways::ANY,
            (false, true) => Ways::DOWN,
            (false, false) => Ways::UP,
        };
        let of = |name: &String| match (name.as_str(), value) {
            ("inc", _) => Ways::UP,
            ("dec", _) => Ways::DOWN,
            ("xor", Arg::Imm(Immediate::Int { bits, .. })) if *bits != 0 => Ways::FLIPS,
            // Also 32 bits that are written without a sign.
            ("add", Arg::Imm(Immediate::Int { bits, .. })) => {
                adds(*bits == 0, bits >> 63 == 1 || bits >> 31 == 1)
            }
            ("add", Arg::Imm(Immediate::F32(bits))) => adds(bits << 1 == 0, bits >> 31 == 1),
            ("add", Arg::Imm(Immediate::F64(bits))) => adds(bits << 1 == 0, bits >> 63 == 1),
            _ => Ways::ANY,
        };
        match value {
            // It stays as it is if all its elements do.
            Arg::Vector(values) => {
                let ways = values.iter().map(|value| Ways::of(modifiers, value));
                ways.fold(Ways::ANY, BitAnd::bitand)
            }
            _ => modifiers.iter().map(of).fold(Ways::ANY, BitAnd::bitand),
        }
    }

    /// Whether the other holds a way that is none of these.
    pub fn lacks(self, other: Ways) -> bool {
        other.0 & !self.0 != 0
    }
}

impl BitAnd for Ways {
    type Output = Ways;

    fn bitand(self, other: Ways) -> Ways {
        Ways(self.0 & other.0)
    }
}

impl BitOr for Ways {
    type Output = Ways;

    fn bitor(self, other: Ways) -> Ways {
        Ways(self.0 | other.0)
    }
}

/// The ways of the numbers in memory, by the base of the address that they are reached with.
#[derive(Debug, Default)]
pub(crate) struct Changes(HashMap<Base, Ways>);

#[derive(Debug, PartialEq, Eq, Hash)]
enum Base {
    Register(RegId),
    Symbol(Symbol),
}

impl Base {
    fn of(address: &Arg) -> Option<Base> {
        match address {
            Arg::Address(base, _) => Base::of(base),
            Arg::Reg(register) => Some(Base::Register(*register)),
            Arg::Symbol(symbol, _) => Some(Base::Symbol(*symbol)),
            _ => None,
        }
    }
}

impl Changes {
    /// Takes down what an instruction changes.
    pub fn count(&mut self, instruction: &Instruction, args: &[Arg]) {
        let modifiers = &instruction.modifiers;
        let strong = |name: &String| matches!(name.as_str(), "volatile" | "relaxed" | "release");
        let (address, ways) = match (instruction.opcode.as_str(), args) {
            ("atom", [_, address, value, ..]) | ("red", [address, value, ..]) => {
                (address, Ways::of(modifiers, value))
            }
            ("st", [address, ..]) if modifiers.iter().any(strong) => (address, Ways::ANY),
            _ => return,
        };
        if let Some(base) = Base::of(address) {
            let known = self.0.entry(base).or_default();
            *known = match (*known, ways) {
                // One turns over what another did.
                (Ways::FLIPS, Ways::FLIPS) => Ways::ANY,
                (known, ways) => known | ways,
            };
        }
    }

    /// All ways that the body's instructions change what they reach with an address's base.
    pub fn at(&self, address: &Arg) -> Ways {
        let ways = Base::of(address).and_then(|base| self.0.get(&base));
        ways.copied().unwrap_or(Ways::NONE)
    }
}
