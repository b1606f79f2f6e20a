//! What registers hold, as terms over what they held before: two pieces of code do the same where
//! the terms are the same.
//!
//! Integers are sums of terms with factors, so `(i + 1) * 4` and `i * 4 + 4` are one term. A sum
//! that has a loop's counter is widened as if it never wrapped: what that asks for is noted.

use std::collections::{HashMap, HashSet};

use ptx::ast::Immediate;

use super::body::{Pending, named};
use crate::jit::decode::{Arg, RegId, Special, Symbol};

/// A term, by its number in [`Values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Term(u32);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Made {
    /// What the register held at first.
    Register(RegId),
    /// What the loop's counter begins with.
    Counter,
    /// Numbers of turns.
    Turns(Turns),
    /// A number that is none of a sum, or a place.
    Leaf(String),
    Sum(Sum),
    Widened {
        signed: bool,
        of: Term,
    },
    /// What an instruction makes of others.
    By(String, Vec<Term>),
}

impl Made {
    /// A number as an operand of what is no sum.
    pub fn number(bits: u64) -> Made {
        Made::Leaf(bits.to_string())
    }

    /// Of what an instruction of this name makes something.
    pub fn by(&self, name: &str) -> Option<&[Term]> {
        match self {
            Made::By(by, of) if by == name => Some(of),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Turns {
    /// That have been done.
    Done,
    /// That were done before the loop.
    Before,
}

/// Terms by factors, and a number more, modulo a power of two.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sum {
    is_wide: bool,
    pub parts: Vec<(Term, u64)>,
    pub more: u64,
}

impl Sum {
    fn number(is_wide: bool, more: u64) -> Sum {
        Sum {
            is_wide,
            parts: vec![],
            more,
        }
    }

    fn wrap(&self, number: u64) -> u64 {
        match self.is_wide {
            true => number,
            false => u64::from(number as u32),
        }
    }

    fn plus(mut self, other: &Sum, factor: u64) -> Sum {
        for (term, by) in &other.parts {
            let by = by.wrapping_mul(factor);
            match self.parts.binary_search_by_key(term, |part| part.0) {
                Ok(at) => self.parts[at].1 = self.parts[at].1.wrapping_add(by),
                Err(at) => self.parts.insert(at, (*term, by)),
            }
        }
        self.more = self.more.wrapping_add(other.more.wrapping_mul(factor));
        self.more = self.wrap(self.more);
        for at in 0..self.parts.len() {
            self.parts[at].1 = self.wrap(self.parts[at].1);
        }
        self.parts.retain(|(_, by)| *by != 0);
        self
    }
}

/// A sum with the counter that is widened, but for turns and numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Widening {
    pub of: Term,
    pub signed: bool,
    /// The least and the most number that is added.
    pub more: [i64; 2],
}

/// All terms, and what was taken for granted in making them.
#[derive(Default)]
pub(super) struct Values {
    made: Vec<Made>,
    numbers: HashMap<Made, Term>,
    /// How far the counter goes in a turn.
    step: u64,
    /// What was loaded: an address, and who loads.
    pub loaded: HashSet<Term>,
    pub widened: Vec<Widening>,
}

/// What registers hold where they no longer hold what they did at first.
pub(super) type Held = HashMap<RegId, Term>;

/// Stores, one after the other.
pub(super) type Stores = Vec<Term>;

/// Opcodes of instructions that give the same whenever their operands are the same.
const PURE: &[&str] = &[
    "abs", "add", "and", "bfe", "bfi", "bfind", "brev", "clz", "copysign", "cos", "cvt", "cvta",
    "div", "dp2a", "dp4a", "ex2", "fma", "fns", "lg2", "lop3", "mad", "mad24", "max", "min", "mov",
    "mul", "mul24", "neg", "not", "or", "popc", "prmt", "rcp", "rem", "rsqrt", "sad", "selp",
    "set", "setp", "shf", "shl", "shr", "sin", "slct", "sqrt", "sub", "tanh", "testp", "xor",
];

impl Values {
    /// Where a loop's counter goes so far in a turn.
    pub fn by_turns(step: u64) -> Values {
        Values {
            step,
            ..Values::default()
        }
    }

    pub fn made(&self, term: Term) -> &Made {
        &self.made[term.0 as usize]
    }

    pub fn term(&mut self, made: Made) -> Term {
        let next = Term(self.made.len() as u32);
        *self.numbers.entry(made).or_insert_with_key(|made| {
            self.made.push(made.clone());
            next
        })
    }

    pub fn held(&mut self, held: &Held, register: RegId) -> Term {
        match held.get(&register) {
            Some(term) => *term,
            None => self.term(Made::Register(register)),
        }
    }

    /// A term as a sum.
    pub fn sum(&self, term: Term, is_wide: bool) -> Sum {
        match self.made(term) {
            Made::Sum(sum) => sum.clone(),
            _ => Sum {
                is_wide,
                parts: vec![(term, 1)],
                more: 0,
            },
        }
    }

    fn of_sum(&mut self, sum: Sum) -> Term {
        match (&sum.parts[..], sum.more) {
            ([(term, 1)], 0) => *term,
            _ => self.term(Made::Sum(sum)),
        }
    }

    /// So much more than a term.
    pub fn plus(&mut self, term: Term, is_wide: bool, more: u64) -> Term {
        let more = Sum::number(is_wide, more);
        let sum = self.sum(term, is_wide).plus(&more, 1);
        self.of_sum(sum)
    }

    /// How many times a sum has what is made so.
    pub fn times(&self, sum: &Sum, made: Made) -> u64 {
        let term = self.numbers.get(&made);
        let mut parts = sum.parts.iter();
        let found = parts.find(|(part, _)| Some(part) == term);
        found.map_or(0, |(_, by)| *by)
    }

    /// A term and so many turns more, of which each adds so much.
    pub fn after(&mut self, term: Term, is_wide: bool, turns: Turns, by: u64) -> Term {
        let turns = self.term(Made::Turns(turns));
        let turns = self.sum(turns, is_wide);
        let sum = self.sum(term, is_wide).plus(&turns, by);
        self.of_sum(sum)
    }

    /// By how much one term is more than another, if that is a number.
    pub fn apart(&self, more: Term, less: Term, is_wide: bool) -> Option<i64> {
        let apart = self
            .sum(more, is_wide)
            .plus(&self.sum(less, is_wide), u64::MAX);
        apart.parts.is_empty().then_some(match is_wide {
            true => apart.more as i64,
            false => i64::from(apart.more as i32),
        })
    }

    fn widen(&mut self, term: Term, signed: bool) -> Sum {
        let sum = self.sum(term, false);
        let times = self.times(&sum, Made::Counter);
        let of_turn = u64::from((times * self.step) as u32);
        let turns = [Turns::Done, Turns::Before].map(Made::Turns);
        let as_counted = |made: &Made| [0, of_turn].contains(&self.times(&sum, made.clone()));
        if times == 0 || !turns.iter().all(as_counted) {
            let widened = self.term(Made::Widened { signed, of: term });
            return self.sum(widened, true);
        }
        let number = i64::from(sum.more as i32);
        let has = turns.map(|made| (self.numbers.get(&made).copied(), self.times(&sum, made)));
        let mut base = Sum { more: 0, ..sum };
        base.parts
            .retain(|(part, _)| has.iter().all(|(term, _)| *term != Some(*part)));
        let of = self.of_sum(base);
        let same = |known: &&mut Widening| (known.of, known.signed) == (of, signed);
        match self.widened.iter_mut().find(same) {
            Some(Widening { more, .. }) => *more = [more[0].min(number), more[1].max(number)],
            None => self.widened.push(Widening {
                of,
                signed,
                more: [number; 2],
            }),
        }
        let widened = self.term(Made::Widened { signed, of });
        let mut all = Sum::number(true, number as u64).plus(&self.sum(widened, true), 1);
        for (term, by) in has {
            if let Some(term) = term.filter(|_| by != 0) {
                all = all.plus(&self.sum(term, true), by);
            }
        }
        all
    }

    fn operand(&mut self, held: &Held, arg: &Arg) -> Option<Term> {
        Some(match arg {
            Arg::Reg(register) => self.held(held, *register),
            Arg::Address(base, more) => match &**base {
                Arg::Reg(register) => {
                    let base = self.held(held, *register);
                    let more = self.leaf(&Arg::Imm(Immediate::Int {
                        bits: *more as u64,
                        signed: true,
                    }));
                    self.term(Made::By("address".into(), vec![base, more]))
                }
                _ => self.leaf(arg),
            },
            Arg::Imm(_)
            | Arg::Symbol(Symbol::Global(_) | Symbol::Shared(_) | Symbol::Param(_), _) => {
                self.leaf(arg)
            }
            Arg::Special(
                Special::Tid(_) | Special::Ntid(_) | Special::Ctaid(_) | Special::Nctaid(_),
            ) => self.leaf(arg),
            Arg::Not(of) => {
                let of = self.operand(held, of)?;
                self.term(Made::By("!".into(), vec![of]))
            }
            Arg::Vector(args) => {
                let args = args.iter().map(|arg| self.operand(held, arg));
                let args = args.collect::<Option<_>>()?;
                self.term(Made::By("{}".into(), args))
            }
            _ => return None,
        })
    }

    fn leaf(&mut self, arg: &Arg) -> Term {
        self.term(match arg {
            Arg::Imm(Immediate::Int { bits, .. }) => Made::number(*bits),
            _ => Made::Leaf(format!("{arg:?}")),
        })
    }

    /// An operand of integer arithmetic as a sum.
    fn addend(&mut self, held: &Held, arg: &Arg, is_wide: bool) -> Option<Sum> {
        Some(match arg {
            Arg::Imm(_) => {
                let number = Sum::number(is_wide, integer(arg)?);
                Sum::number(is_wide, 0).plus(&number, 1)
            }
            Arg::Reg(register) => {
                let term = self.held(held, *register);
                self.sum(term, is_wide)
            }
            _ => return None,
        })
    }

    /// What integer arithmetic gives, if that is a sum.
    fn arithmetic(&mut self, held: &Held, pending: &Pending<'_>) -> Option<Sum> {
        let (opcode, modifiers) = (&pending.instruction.opcode, &pending.instruction.modifiers);
        let modifiers: Vec<&str> = modifiers.iter().map(|word| word.as_str()).collect();
        let is_wide = match *modifiers.last()? {
            "u32" | "s32" | "b32" => false,
            "u64" | "s64" | "b64" => true,
            _ => return None,
        };
        let nothing = || Sum::number(is_wide, 0);
        match (opcode.as_str(), &modifiers[..], &pending.args[1..]) {
            ("mov", [_], [from]) => self.addend(held, from, is_wide),
            ("add", [_], [a, b]) => {
                let b = self.addend(held, b, is_wide)?;
                Some(self.addend(held, a, is_wide)?.plus(&b, 1))
            }
            ("sub", [_], [a, b]) => {
                let b = self.addend(held, b, is_wide)?;
                Some(self.addend(held, a, is_wide)?.plus(&b, u64::MAX))
            }
            ("shl", [_], [a, by]) => {
                let by = integer(by).filter(|by| *by < if is_wide { 64 } else { 32 })?;
                Some(nothing().plus(&self.addend(held, a, is_wide)?, 1 << by))
            }
            ("mul", ["lo", _], [a, b]) => {
                Some(nothing().plus(&self.addend(held, a, is_wide)?, integer(b)?))
            }
            ("mad", ["lo", ty], [a, b, c]) => {
                let c = self.addend(held, c, is_wide)?;
                match integer(b) {
                    Some(by) => Some(c.plus(&self.addend(held, a, is_wide)?, by)),
                    None => {
                        let factors = [self.operand(held, a)?, self.operand(held, b)?];
                        let product = Made::By(format!("mul.lo.{ty} 0"), factors.to_vec());
                        let product = self.term(product);
                        Some(self.sum(product, is_wide).plus(&c, 1))
                    }
                }
            }
            ("mul", ["wide", ty @ ("u32" | "s32")], [Arg::Reg(a), b]) => {
                let a = self.held(held, *a);
                let a = self.widen(a, *ty == "s32");
                let by = widened(integer(b)?, *ty == "s32");
                Some(Sum::number(true, 0).plus(&a, by))
            }
            ("mad", ["wide", ty @ ("u32" | "s32")], [Arg::Reg(a), b, c]) => {
                let by = widened(integer(b)?, *ty == "s32");
                let a = self.held(held, *a);
                let a = self.widen(a, *ty == "s32");
                Some(self.addend(held, c, true)?.plus(&a, by))
            }
            ("cvt", ["u64" | "s64" | "b64", ty @ ("u32" | "s32")], [Arg::Reg(a)]) => {
                let a = self.held(held, *a);
                Some(self.widen(a, *ty == "s32"))
            }
            _ => None,
        }
    }

    /// Does an instruction, with what registers hold. `None` of one that does more, or of which it
    /// is not known here.
    pub fn does(
        &mut self,
        held: &mut Held,
        stores: &mut Stores,
        pending: &Pending<'_>,
        is_wide: impl Fn(RegId) -> bool,
    ) -> Option<()> {
        let instruction = &*pending.instruction;
        let opcode = instruction.opcode.as_str();
        let modifiers = &instruction.modifiers;
        let has = |word: &str| modifiers.iter().any(|modifier| modifier == word);
        let is_weak = || {
            let seen = ["volatile", "relaxed", "acquire", "release", "mmio", "local"];
            let seen = seen.into_iter().any(has);
            (has("global") || has("shared")) && !seen || has("param") || has("const")
        };
        let does = match opcode {
            "ld" | "st" => is_weak(),
            _ => PURE.binary_search(&opcode).is_ok() && !has("cc"),
        };
        if !does || pending.args.iter().any(has_sink) {
            return None;
        }
        let guard = match pending.guard {
            Some((guard, not)) => {
                let guard = self.held(held, guard);
                let not = self.term(Made::Leaf(not.to_string()));
                Some([guard, not])
            }
            None => None,
        };
        let (writes, _) = named(instruction, &pending.args);
        // Sums that are addresses, with what is added in brackets.
        let address = |values: &mut Values, arg: &Arg| match arg {
            Arg::Address(base, more) => match **base {
                Arg::Reg(register) if is_wide(register) => {
                    let base = values.held(held, register);
                    Some(values.plus(base, true, *more as u64))
                }
                _ => values.operand(held, arg),
            },
            arg => values.operand(held, arg),
        };
        let what = || {
            let words = modifiers.iter().map(|word| format!(".{word}"));
            opcode.to_string() + &words.collect::<String>()
        };
        if opcode == "st" {
            let mut of = Vec::with_capacity(4);
            for arg in &pending.args {
                of.push(address(self, arg)?);
            }
            of.extend(guard.into_iter().flatten());
            let store = self.term(Made::By(what(), of));
            stores.push(store);
            return Some(());
        }
        let mut given = vec![];
        let is_one = matches!(pending.args.first(), Some(Arg::Reg(_)));
        if let ("mov", [Arg::Reg(_), Arg::Reg(from)], [_]) =
            (opcode, &pending.args[..], &writes[..])
        {
            given.push(self.held(held, *from));
        } else if is_one && let Some(sum) = self.arithmetic(held, pending) {
            given.push(self.of_sum(sum));
        } else {
            let mut of = Vec::with_capacity(4);
            for arg in &pending.args[1..] {
                of.push(address(self, arg)?);
            }
            if opcode == "ld" {
                let all = of.iter().copied().chain(guard.into_iter().flatten());
                let loaded = Made::By(what(), all.collect());
                let loaded = self.term(loaded);
                self.loaded.insert(loaded);
                // Nobody writes what the others load.
                if !(has("nc") || has("param") || has("const")) {
                    let when = format!("after {} stores", stores.len());
                    of.push(self.term(Made::Leaf(when)));
                }
            }
            for number in 0..writes.len() {
                given.push(self.term(Made::By(format!("{} {number}", what()), of.clone())));
            }
        }
        for (register, new) in writes.into_iter().zip(given) {
            let new = match guard {
                None => new,
                Some([guard, not]) => {
                    let old = self.held(held, register);
                    self.term(Made::By("if".into(), vec![guard, not, new, old]))
                }
            };
            held.insert(register, new);
        }
        Some(())
    }
}

/// The number that an operand is.
pub(super) fn integer(arg: &Arg) -> Option<u64> {
    match arg {
        Arg::Imm(Immediate::Int { bits, .. }) => Some(*bits),
        _ => None,
    }
}

/// Whether a destination, or a part of one, is `_`.
fn has_sink(arg: &Arg) -> bool {
    match arg {
        Arg::Sink => true,
        Arg::Pair(a, b) => has_sink(a) || has_sink(b),
        Arg::Vector(args) | Arg::List(args) => args.iter().any(has_sink),
        _ => false,
    }
}

/// A factor of 32 bits, as it multiplies what is widened.
fn widened(factor: u64, signed: bool) -> u64 {
    match signed {
        true => i64::from(factor as i32) as u64,
        false => u64::from(factor as u32),
    }
}
