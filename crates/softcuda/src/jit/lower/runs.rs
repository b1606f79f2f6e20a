//! Accesses of one basic block to an array at neighbouring indices, which are checked together.
//!
//! Unrolled loops over `a[i]`, `a[i + 1]` and so on with a narrow `i` widen each index by itself,
//! so that each access has a register of its own: `a + wide(i + n) * size`. As long as no index
//! wraps between the first and the last, they are as far apart as their indices. As in
//! [groups](super::groups), the first checks them all.
//!
//! Single accesses to an array are found as well, for [`super::arrays`].

use std::collections::HashMap;

use ptx::ast::{Immediate, Space};

use super::groups::{FURTHEST, MOST, PlainAccess, ends};
use crate::jit::decode::{Arg, RegId};
use crate::jit::program::{Body, Instruction, Step};
use crate::jit::runtime::access::{Access, Indices};

/// What an operation computes of integers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Term<'a> {
    /// The sum of two, of so many bits.
    Sum(&'a Arg, &'a Arg, u32),
    /// A register of 32 bits, extended to 64 and multiplied.
    Scaled { from: RegId, by: i64, signed: bool },
    /// A register of 64 bits, multiplied.
    Product { of: RegId, by: i64 },
}

/// Accesses at neighbouring indices.
#[derive(Debug)]
pub(super) struct Run {
    /// The step of the first, which has the lowest index.
    pub first: u32,
    /// The register of that index, when it comes.
    pub index: RegId,
    /// The step that extends it: who comes later may not have it.
    pub since: u32,
    pub signed: bool,
    by: i64,
    size: u32,
    write: bool,
    /// For each: its step, how much more its index is than the first's, and its distance.
    members: Vec<(u32, u32, u64)>,
}

/// The runs of a body, and which step is in which.
#[derive(Debug, Default)]
pub(super) struct Runs {
    pub runs: Vec<Run>,
    pub of_step: HashMap<u32, u32>,
    /// By step, the element of an array that an access is relative to.
    pub elements: HashMap<u32, Element>,
}

/// An element of an array: where that begins, and the index, which is extended to 64 bits and
/// multiplied. The registers still hold what the access was computed from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element {
    pub array: RegId,
    pub index: RegId,
    pub by: i64,
    pub signed: bool,
    /// What is added to the index once both are extended, such as where a row begins; and whether
    /// it has a sign.
    pub plus: Option<(RegId, bool)>,
    /// The same of 64 bits, where the sum is what is multiplied.
    pub wide: Option<RegId>,
    /// The step that extends the index, or the first of two: who comes later may not have it.
    pub since: u32,
}

impl Element {
    /// The registers that its index is computed from.
    pub fn indices(self) -> impl Iterator<Item = RegId> {
        let plus = self.plus.map(|(plus, _)| plus);
        std::iter::once(self.index).chain(plus)
    }
}

/// A register's value: as it was written at a step.
type At = (RegId, u32);

/// A value of 32 bits: another, and so much more.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Index {
    root: At,
    more: u32,
}

/// An index, extended and multiplied.
#[derive(Clone, Copy)]
struct Scaled {
    index: Index,
    /// Where the index is.
    from: At,
    by: i64,
    signed: bool,
    /// What is added before it is multiplied, extended too; and whether it has a sign.
    plus: Option<(At, bool)>,
    /// The same of 64 bits.
    wide: Option<At>,
    /// The step that extends it, or the first of two.
    since: u32,
}

impl Scaled {
    /// Whether nothing is added to it.
    fn is_single(self) -> bool {
        self.plus.is_none() && self.wide.is_none()
    }

    /// The sum of two; `None` where one is a sum.
    fn plus(self, other: Scaled) -> Option<Scaled> {
        let alone = self.is_single() && other.is_single() && self.by == other.by;
        alone.then_some(Scaled {
            plus: Some((other.from, other.signed)),
            since: self.since.min(other.since),
            ..self
        })
    }
}

/// What is known where a step begins: when registers were written, and what they are.
#[derive(Default)]
struct Known {
    written: HashMap<RegId, u32>,
    indices: HashMap<RegId, Index>,
    scaled: HashMap<RegId, Scaled>,
    elements: HashMap<RegId, (At, Scaled)>,
}

/// What the accesses of a run share: array, index but for a number, scale, sign, space and size.
type Key = (At, At, i64, bool, Option<Space>, u32);

impl Known {
    fn at(&self, register: RegId) -> At {
        (register, self.written.get(&register).copied().unwrap_or(0))
    }

    fn index(&self, register: RegId) -> Index {
        let root = self.at(register);
        let known = self.indices.get(&register).copied();
        known.unwrap_or(Index { root, more: 0 })
    }

    /// The element that a register is the address of.
    fn element(&self, address: RegId) -> Option<Element> {
        let (array, scaled) = self.elements.get(&address)?;
        let holds = |at: At| self.at(at.0) == at;
        let plus = scaled.plus;
        let all = holds(*array)
            && holds(scaled.from)
            && plus.is_none_or(|(plus, _)| holds(plus))
            && scaled.wide.is_none_or(holds);
        all.then_some(Element {
            array: array.0,
            index: scaled.from.0,
            by: scaled.by,
            signed: scaled.signed,
            plus: plus.map(|(plus, signed)| (plus.0, signed)),
            wide: scaled.wide.map(|wide| wide.0),
            since: scaled.since,
        })
    }

    /// The sum that a register is of an extended index and another register of 64 bits.
    fn with_wide(&self, sum: RegId) -> Option<Scaled> {
        let (wide, scaled) = *self.elements.get(&sum)?;
        let is_sum = scaled.by == 1 && scaled.is_single();
        is_sum.then_some(Scaled {
            wide: Some(wide),
            ..scaled
        })
    }

    /// An instruction has been done.
    fn step(&mut self, at: u32, instruction: &Instruction, body: &Body) {
        let term = match instruction.guard {
            None => instruction.operation.term(),
            Some(_) => None,
        };
        let index = counts_up(instruction, body).map(|(from, by)| {
            let index = self.index(from);
            let more = index.more.wrapping_add(by);
            Index { more, ..index }
        });
        let scaled = match term {
            Some(Term::Scaled { from, by, signed }) => Some(Scaled {
                index: self.index(from),
                from: self.at(from),
                by,
                signed,
                plus: None,
                wide: None,
                since: at,
            }),
            Some(Term::Product { of, by }) => {
                let scaled = self.scaled.get(&of).copied();
                scaled.or_else(|| self.with_wide(of)).and_then(|scaled| {
                    let by = scaled.by.checked_mul(by)?;
                    Some(Scaled { by, ..scaled })
                })
            }
            Some(Term::Sum(Arg::Reg(a), Arg::Reg(b), 64)) => {
                let both = self.scaled.get(a).zip(self.scaled.get(b));
                both.and_then(|(a, b)| a.plus(*b))
            }
            _ => None,
        };
        let element = match term {
            Some(Term::Sum(Arg::Reg(a), Arg::Reg(b), 64)) => {
                match (self.scaled.get(a), self.scaled.get(b)) {
                    (Some(scaled), None) => Some((self.at(*b), *scaled)),
                    (None, Some(scaled)) => Some((self.at(*a), *scaled)),
                    _ => None,
                }
            }
            _ => None,
        };
        for register in &instruction.writes {
            self.written.insert(*register, at + 1);
            self.indices.remove(register);
            self.scaled.remove(register);
            self.elements.remove(register);
        }
        let [to] = instruction.writes[..] else {
            return;
        };
        if let Some(index) = index {
            self.indices.insert(to, index);
        }
        // A register of another size would hold another number.
        if body.tables.registers[to.0 as usize].size() != 8 {
            return;
        }
        if let Some(scaled) = scaled {
            self.scaled.insert(to, scaled);
        }
        if let Some(element) = element {
            self.elements.insert(to, element);
        }
    }
}

/// The register of 32 bits that an instruction adds a number to, and that number, if that is all
/// it writes.
pub(super) fn counts_up(instruction: &Instruction, body: &Body) -> Option<(RegId, u32)> {
    let (
        Term::Sum(Arg::Reg(from), Arg::Imm(Immediate::Int { bits, .. }), 32)
        | Term::Sum(Arg::Imm(Immediate::Int { bits, .. }), Arg::Reg(from), 32),
        None,
        [to],
    ) = (
        instruction.operation.term()?,
        instruction.guard,
        &instruction.writes[..],
    )
    else {
        return None;
    };
    // A register of another size would hold another number.
    (body.tables.registers[to.0 as usize].size() == 4).then_some((*from, *bits as u32))
}

impl Run {
    /// What its check is of.
    pub fn access(&self) -> Access {
        Access {
            offsets: self.members.iter().map(|member| member.2).collect(),
            indices: Some(Indices {
                more: self.members.iter().map(|member| member.1).collect(),
                by: self.by,
                signed: self.signed,
            }),
            ..Access::one(self.size, self.write)
        }
    }

    /// How much more its highest index is than the first.
    pub fn more(&self) -> u32 {
        self.members
            .iter()
            .map(|member| member.1)
            .max()
            .unwrap_or(0)
    }
}

impl Runs {
    /// Finds them.
    pub fn of(body: &Body) -> Runs {
        let mut found = Runs::default();
        let mut known = Known::default();
        let mut open: HashMap<Key, (Run, Index, i64)> = HashMap::new();
        for (at, step) in (0..).zip(&body.steps) {
            let instruction = match step {
                Step::Instruction(instruction) if !ends(instruction) => instruction,
                _ => {
                    found.close(&mut open);
                    known = Known::default();
                    continue;
                }
            };
            if let Some(access) = instruction.operation.plain_access() {
                if let Some(element) = known.element(access.base) {
                    found.elements.insert(at, element);
                }
                if instruction.guard.is_none() {
                    add(&mut open, &known, access, at);
                }
            }
            known.step(at, instruction, body);
        }
        found.close(&mut open);
        found
    }

    fn close(&mut self, open: &mut HashMap<Key, (Run, Index, i64)>) {
        let mut runs: Vec<Run> = open.drain().map(|(_, (run, ..))| run).collect();
        runs.retain(|run| run.more() > 0);
        runs.sort_by_key(|run| run.first);
        for run in runs {
            let number = self.runs.len() as u32;
            let steps = run.members.iter().map(|member| (member.0, number));
            self.of_step.extend(steps);
            self.runs.push(run);
        }
    }
}

fn add(open: &mut HashMap<Key, (Run, Index, i64)>, known: &Known, access: PlainAccess, at: u32) {
    let Some((array, scaled)) = known.elements.get(&access.base).copied() else {
        return;
    };
    if matches!(access.space, Some(Space::Shared | Space::Local)) || scaled.by <= 0 {
        return;
    }
    let Scaled {
        index,
        by,
        signed,
        plus: None,
        wide: None,
        ..
    } = scaled
    else {
        return;
    };
    let key = (array, index.root, by, signed, access.space, access.size);
    let Some((run, first, offset)) = open.get_mut(&key) else {
        // The check reads the index.
        if known.at(scaled.from.0) == scaled.from {
            let run = Run {
                first: at,
                index: scaled.from.0,
                since: scaled.since,
                signed,
                by,
                size: access.size,
                write: access.write,
                members: vec![(at, 0, 0)],
            };
            open.insert(key, (run, index, access.offset));
        }
        return;
    };
    let more = index.more.wrapping_sub(first.more);
    let distance = i64::from(more)
        .checked_mul(by)
        .and_then(|distance| distance.checked_add(access.offset.checked_sub(*offset)?));
    if let Some(distance) = distance
        && (0..=FURTHEST).contains(&distance)
        && i64::from(more) <= FURTHEST
        && distance % i64::from(access.size) == 0
        && run.members.len() < MOST
    {
        run.write |= access.write;
        run.members.push((at, more, distance as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jit::harness;

    /// By run of a body, the indices and distances of its accesses.
    fn runs(body: &str) -> Vec<Vec<(u32, u64)>> {
        let module = harness::load(&harness::module(&format!(
            ".visible .entry k(.param .u64 a) {{
                .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .pred %p;
                ld.param.u64 %rd1, [a]; add.s32 %r2, %r1, 1; add.s32 %r3, %r2, 2;
                mul.wide.u32 %rd2, %r1, 4; mul.wide.u32 %rd3, %r2, 4; mul.wide.u32 %rd4, %r3, 4;
                add.s64 %rd5, %rd1, %rd2; add.s64 %rd6, %rd3, %rd1; add.s64 %rd7, %rd1, %rd4;
                {body}
            }}"
        )));
        let body = module.program().functions[0].body.as_ref();
        let runs = Runs::of(body.expect("it has a body")).runs;
        let members = |run: &Run| {
            run.members
                .iter()
                .map(|member| (member.1, member.2))
                .collect()
        };
        runs.iter().map(members).collect()
    }

    /// The element that each access of a body is relative to: its index, what is added to that, and
    /// how far elements are apart.
    fn elements(body: &str) -> Vec<(u32, Option<u32>, i64)> {
        let module = harness::load(&harness::module(&format!(
            ".visible .entry k(.param .u64 a) {{
                .reg .b32 %r<4>; .reg .b64 %rd<8>;
                ld.param.u64 %rd1, [a]; cvt.s64.s32 %rd2, %r1; cvt.u64.u32 %rd3, %r2;
                {body}
            }}"
        )));
        let body = module.program().functions[0].body.as_ref();
        let elements = Runs::of(body.expect("it has a body")).elements;
        let mut all: Vec<_> = elements.into_iter().collect();
        all.sort_by_key(|(at, _)| *at);
        all.into_iter()
            .map(|(_, it)| (it.index.0, it.plus.map(|(plus, _)| plus.0), it.by))
            .collect()
    }

    #[test]
    fn indices_may_be_sums() {
        let [first, second] = [1, 2].map(|number| {
            let load = format!(
                "add.s64 %rd4, %rd1, %rd{}; ld.global.u8 %r3, [%rd4];",
                number + 1
            );
            let [(index, None, 1)] = elements(&load)[..] else {
                panic!("there is one element: {:?}", elements(&load));
            };
            index
        });
        let sum = "add.s64 %rd4, %rd2, %rd3;";
        let load = "add.s64 %rd6, %rd5, %rd1; ld.global.u32 %r3, [%rd6];";
        let four = "shl.b64 %rd5, %rd4, 2;";
        let all = elements(&format!("{sum} {four} {load}"));
        assert_eq!(all, [(first, Some(second), 4)]);
        for none in [
            // A third index, a scale of its own, one that is no more, a shift by what is not known.
            format!("{sum} add.s64 %rd4, %rd4, %rd2; {four} {load}"),
            format!("shl.b64 %rd4, %rd2, 1; add.s64 %rd4, %rd4, %rd3; {four} {load}"),
            format!("{sum} {four} mov.u32 %r2, 1; {load}"),
            format!("{sum} shl.b64 %rd5, %rd4, %r1; {load}"),
        ] {
            assert_eq!(elements(&none), [], "{none}");
        }
    }

    #[test]
    fn sums_with_64_bits_may_be_multiplied() {
        let wide = |body: &str| {
            let module = harness::load(&harness::module(&format!(
                ".visible .entry k(.param .u64 a, .param .u64 n) {{
                    .reg .b32 %r<4>; .reg .b64 %rd<8>;
                    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [n]; cvt.u64.u32 %rd3, %r1;
                    cvt.s64.s32 %rd7, %r2; {body} add.s64 %rd6, %rd5, %rd1; ld.global.u32 %r3, [%rd6];
                }}"
            )));
            let body = module.program().functions[0].body.as_ref();
            let elements = Runs::of(body.expect("it has a body")).elements;
            let found = elements.into_values().map(|it| (it.wide.is_some(), it.by));
            found.collect::<Vec<_>>()
        };
        let sum = "add.s64 %rd4, %rd3, %rd2;";
        assert_eq!(wide(&format!("{sum} shl.b64 %rd5, %rd4, 2;")), [(true, 4)]);
        assert_eq!(wide("shl.b64 %rd5, %rd3, 2;"), [(false, 4)]);
        for none in [
            // Multiplied before, something else added after, changed since.
            "shl.b64 %rd4, %rd3, 1; add.s64 %rd4, %rd4, %rd2; shl.b64 %rd5, %rd4, 1;",
            "add.s64 %rd4, %rd3, %rd2; add.s64 %rd4, %rd4, %rd2; shl.b64 %rd5, %rd4, 2;",
            "add.s64 %rd4, %rd3, %rd7; add.s64 %rd4, %rd4, %rd2; shl.b64 %rd5, %rd4, 2;",
            "add.s64 %rd4, %rd3, %rd2; shl.b64 %rd5, %rd4, 2; mov.u64 %rd2, 0;",
            "add.s64 %rd4, %rd3, %rd2; shl.b64 %rd5, %rd4, 2; add.s64 %rd5, %rd5, %rd2;",
        ] {
            assert_eq!(wide(none), [], "{none}");
        }
    }

    #[test]
    fn runs_are_found_within_a_block() {
        let three = "ld.global.u32 %r4, [%rd5]; ld.global.u32 %r5, [%rd6+4];
            st.global.u32 [%rd7], %r4;";
        assert_eq!(runs(three), [[(0, 0), (1, 8), (3, 12)]]);
        for none in [
            // Downwards, at one index, in two blocks, of two sizes, and under a guard.
            "ld.global.u32 %r4, [%rd7]; ld.global.u32 %r5, [%rd6];",
            "ld.global.u32 %r4, [%rd5]; ld.global.u32 %r5, [%rd5+4];",
            "ld.global.u32 %r4, [%rd5]; on: ld.global.u32 %r5, [%rd6];",
            "ld.global.u32 %r4, [%rd5]; ld.global.u16 %r5, [%rd6];",
            "ld.global.u32 %r4, [%rd5]; @%p ld.global.u32 %r5, [%rd6];",
            // Something is added to one index.
            "mul.wide.u32 %rd2, %r1, 1; add.s64 %rd2, %rd2, %rd6; shl.b64 %rd2, %rd2, 2;
            add.s64 %rd2, %rd1, %rd2; ld.global.u32 %r4, [%rd2]; ld.global.u32 %r5, [%rd6];",
            // The index of the first is no more.
            "mov.u32 %r1, 5; ld.global.u32 %r4, [%rd5]; ld.global.u32 %r5, [%rd6];",
        ] {
            assert!(runs(none).is_empty(), "{none}");
        }
    }
}
