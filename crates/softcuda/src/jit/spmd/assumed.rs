//! What is assumed of the threads of a group, because it is mostly so.
//!
//! A compiler makes two loops of one that it unrolls, and the second goes on where the first ended:
//!
//! ```text
//! turns = (n - 1 - t) / 32 + 1;
//! for (; turns % 4 != 0; turns--, j += 32) ...
//! for (; j < n; j += 128) ...
//! ```
//!
//! How many turns there are is mostly [the same](Kind::Same) for neighbours, although it is
//! computed from what is not. Threads may leave the first loop after different numbers of turns, so
//! that `j` varies behind it. Mostly it [counts up](Kind::CountsUp) from thread to thread all the
//! same, where it is widened to an address.
//!
//! Where threads' numbers are divided into rows and columns, neighbours are mostly in one row,
//! whose number is the same for all of them, and the columns count up. That is assumed where it
//! tells that more accesses are to neighbours in memory, and where rows are
//! [not short](super::granted).
//!
//! The group looks whether that is so, and goes on with one number then. Otherwise each thread goes
//! on by itself, to where nobody needs what is computed from it.

use std::cell::OnceCell;
use std::collections::HashMap;

use super::classes::{self, Group, Known, in_rows};
use super::control::Control;
use super::granted::Granted;
use super::marks::marked;
use super::{Class, Regions, Same};
use crate::jit::decode::{Division, Divisor, Flow, RegId};
use crate::jit::program::{Body, Instruction, Step};

/// The most steps that are assumed to divide alike.
const MOST_IN_ROWS: usize = 16;
/// How far apart neighbours' numbers may be that are divided.
pub(super) const FURTHEST: i64 = 4;
/// The least number by which neighbours likely divide alike.
pub(super) const LEAST: u64 = 16;
/// The same where but one access is better for it.
const LEAST_FOR_ONE: u64 = 64;

/// What is assumed of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What it widens counts up by so much from thread to thread.
    CountsUp(i64),
    /// What it divides is in one row for all threads.
    Same(Same),
}

/// A step of which something is assumed.
#[derive(Clone, Debug)]
pub(super) struct Assumption {
    pub kind: Kind,
    /// The step before which threads join for which it does not hold; `None` where they end apart.
    pub join: Option<usize>,
    /// By register, whether it is computed from what the step gives.
    derived: Vec<bool>,
}

/// What is assumed of a body.
#[derive(Clone, Debug, Default)]
pub(super) struct Assumed {
    /// By step.
    pub steps: HashMap<usize, Assumption>,
    /// Threads wait for each other.
    waits: bool,
    /// What is taken for granted of launches besides.
    pub granted: Granted,
}

impl Assumed {
    /// What may be assumed of groups: `known` is what is known of them, `alike` what would be if
    /// threads never parted. A block begins at each step that [may be](Assumed::may_be) one.
    /// `zeros` tells, by register, whether it is 0 in all threads; they wait at `waits`. Where
    /// `more` is wanted, something is taken for granted of launches.
    pub fn of(
        body: &Body,
        control: &Control,
        live: &[Vec<RegId>],
        zeros: &[bool],
        [known, alike]: [&Known; 2],
        waits: &[usize],
        more: bool,
    ) -> Assumed {
        let mut assumed = Assumed {
            waits: !waits.is_empty(),
            ..Assumed::default()
        };
        if !(0..body.steps.len()).any(|at| Assumed::may_be(body, at)) {
            return assumed;
        }
        let search = Search {
            group: known.group,
            body,
            control,
            live,
            zeros,
            waits,
            alone: OnceCell::new(),
            indices: OnceCell::new(),
            regions: match waits {
                [] => None,
                _ => Regions::of(body, control, live, waits),
            },
        };
        for at in 0..body.steps.len() {
            if let Some(kind) = search.kind(at, [known, alike]) {
                search.assume(&mut assumed, at, kind, false);
            }
        }
        if more {
            search.assume_in_rows(&mut assumed);
        }
        assumed
    }

    /// Whether something may be assumed of a step.
    pub fn may_be(body: &Body, at: usize) -> bool {
        match &body.steps[at] {
            Step::Instruction(step) => {
                let operation = &step.operation;
                operation.widens().is_some() || operation.division().is_some_and(is_coarse)
            }
            Step::Label(_) => false,
        }
    }

    /// Whether a block must begin at a step: threads join there for which what is assumed does not
    /// hold. With other blocks, they would write more by themselves than is known.
    pub fn joins_at(&self, at: usize) -> bool {
        let mut steps = self.steps.values();
        steps.any(|assumption| assumption.join == Some(at))
    }

    /// Whether a register is computed from what is assumed.
    pub fn derives(&self, register: RegId) -> bool {
        let mut steps = self.steps.values();
        steps.any(|assumption| assumption.derived[register.0 as usize])
    }

    /// The registers that threads may have written by themselves where they join, if what is
    /// assumed of a step does not hold, and whether each may be another than in threads that went
    /// on together; `classes` is what is known if everything assumed holds.
    pub fn written_apart(
        &self,
        body: &Body,
        control: &Control,
        live: &[Vec<RegId>],
        classes: &[Class],
        at: usize,
    ) -> Vec<(RegId, bool)> {
        let Some(join) = self.steps.get(&at).and_then(|assumption| assumption.join) else {
            return vec![];
        };
        let (block, join) = (control.graph.block_of[at], control.block_at(join));
        let mut blocks = control.on_the_way(block, Some(join));
        blocks.push(block);
        let steps: Vec<(usize, &Instruction)> = blocks
            .iter()
            .flat_map(|block| control.steps(body, *block))
            .collect();
        let differs = self.differs_apart(body, classes, &steps);
        let written = steps.iter().flat_map(|(_, step)| step.writes.iter());
        // Each thread begins with what the one before it has left where they join.
        let begins = |register: &RegId| live[block].contains(register);
        written
            .filter(|register| live[join].contains(register))
            .map(|register| {
                let differs = differs[register.0 as usize] || begins(register);
                (*register, differs)
            })
            .collect()
    }

    /// By register, whether what these steps write to it may be another in threads that do them by
    /// themselves, because something assumed does not hold.
    fn differs_apart(
        &self,
        body: &Body,
        classes: &[Class],
        steps: &[(usize, &Instruction)],
    ) -> Vec<bool> {
        let mut differs = vec![self.waits; body.tables.registers.len()];
        loop {
            let mut more = false;
            for (at, step) in steps {
                let operation = &step.operation;
                let guard = step.guard.map(|(guard, _)| guard);
                let differing = |register: &RegId| differs[register.0 as usize];
                let reads = step.reads.iter().chain(&guard).any(differing);
                let varies = |guard: RegId| classes[guard.0 as usize] == Class::Varying;
                if operation.flow() != Flow::Next {
                    // They go different ways, and are not known to.
                    if reads && !guard.is_some_and(varies) {
                        return vec![true; differs.len()];
                    }
                    continue;
                }
                // Memory may have changed since a thread before this one looked.
                let again = operation.pure() || operation.loads_parameter();
                if reads || !again || self.steps.contains_key(at) {
                    for register in &step.writes {
                        more |= !std::mem::replace(&mut differs[register.0 as usize], true);
                    }
                }
            }
            if !more {
                return differs;
            }
        }
    }

    /// By block, the registers that threads which join there may have written by themselves, but no
    /// others than in those that went on together.
    pub fn rewritten(
        &self,
        body: &Body,
        control: &Control,
        live: &[Vec<RegId>],
        classes: &[Class],
    ) -> Vec<Vec<RegId>> {
        let mut rewritten = vec![vec![]; control.first.len()];
        for (at, assumption) in &self.steps {
            let Some(join) = assumption.join else {
                continue;
            };
            for (register, differs) in self.written_apart(body, control, live, classes, *at) {
                if !differs {
                    rewritten[control.block_at(join)].push(register);
                }
            }
        }
        rewritten
    }
}

/// What is assumed where numbers are divided that count up by so much.
fn same(division: Division, by: i64) -> Same {
    Same {
        from: division.from,
        signed: division.signed,
        by,
        gives: if division.rest { by } else { 0 },
    }
}

/// Whether neighbours likely divide their numbers alike, as far as the divisor is known.
pub(super) fn is_coarse(division: Division) -> bool {
    match division.by {
        Divisor::Number(number) => number >= LEAST,
        Divisor::Register(_) => true,
    }
}

/// Whether what is derived decides which way threads go, and does nothing else.
fn only_decides(body: &Body, derived: &[bool]) -> bool {
    let derived = |register: &RegId| derived[register.0 as usize];
    let mut decides = false;
    for step in &body.steps {
        let Step::Instruction(step) = step else {
            continue;
        };
        if !step.operation.pure() && step.reads.iter().any(derived) {
            return false;
        }
        let guarded = step.guard.is_some_and(|(guard, _)| derived(&guard));
        decides |= guarded && step.operation.flow() != Flow::Next;
    }
    decides
}

/// By register, whether it is computed from numbers of threads, blocks and parameters alone: where
/// one comes from memory, neighbours may have any.
fn computed_alone(body: &Body) -> Vec<bool> {
    let others = marked(body, &[], |step, others| {
        let again = step.operation.pure() || step.operation.loads_parameter();
        if !again || others.any(&step.reads) {
            others.add_all(&step.writes);
        }
    });
    others.into_iter().map(|other| !other).collect()
}

/// By register, whether an address is computed from it.
fn indices(body: &Body) -> Vec<bool> {
    marked(body, &[], |step, indices| {
        if let Some(access) = step.operation.plain_access() {
            indices.add(access.base);
        }
        if step.operation.pure() && indices.any(&step.writes) {
            indices.add_all(&step.reads);
        }
    })
}

/// By register, whether it is computed from one by operations that may be done again, or loaded
/// for it where `loaded` says so.
fn derived(body: &Body, from: RegId, loaded: impl Fn(&RegId) -> bool) -> Vec<bool> {
    marked(body, &[from], |step, derived| {
        let may = step.operation.pure() || step.writes.iter().any(&loaded);
        if may && derived.any(&step.reads) {
            derived.add_all(&step.writes);
        }
    })
}

/// The search for what may be assumed.
struct Search<'a> {
    group: Group,
    body: &'a Body,
    control: &'a Control,
    live: &'a [Vec<RegId>],
    zeros: &'a [bool],
    waits: &'a [usize],
    /// By register, see [`computed_alone`].
    alone: OnceCell<Vec<bool>>,
    /// By register, see [`indices`].
    indices: OnceCell<Vec<bool>>,
    /// Where threads wait.
    regions: Option<Regions>,
}

impl Search<'_> {
    /// What may be assumed of a step so that threads leave loops together, as far as it says.
    fn kind(&self, at: usize, [known, alike]: [&Known; 2]) -> Option<Kind> {
        let step = self.writes_one(at)?;
        if let Some((from, _)) = step.operation.widens() {
            let by = alike.class(from).stride()?;
            let varies = known.class(from) == Class::Varying;
            return (varies && self.is_word(from)).then_some(Kind::CountsUp(by));
        }
        let division = step.operation.division()?;
        match alike.class(division.from) {
            Class::Affine(by) if !division.rest && self.is_even(step, division, known) => {
                Some(Kind::Same(same(division, by)))
            }
            _ => None,
        }
    }

    /// Assumes that the threads of a group are in one row where their numbers are divided into
    /// rows, if more accesses are to neighbours in memory so.
    fn assume_in_rows(&self, assumed: &mut Assumed) {
        let divides = |at| match self.writes_one(at) {
            Some(step) => step.operation.division().is_some_and(is_coarse),
            None => false,
        };
        if !(0..self.body.steps.len()).any(divides) {
            return;
        }
        let (mut all, mut found) = (assumed.clone(), vec![]);
        loop {
            let (known, before) = (self.assuming(&all), found.len());
            for at in 0..self.body.steps.len() {
                if !all.steps.contains_key(&at)
                    && let Some(kind) = self.in_row(at, &known)
                    && self.assume(&mut all, at, kind, true)
                {
                    found.push(at);
                }
            }
            if found.len() == before {
                break;
            }
        }
        if found.is_empty() || found.len() > MOST_IN_ROWS {
            return;
        }
        let accesses = |assumed: &Assumed| self.accesses(&self.assuming(assumed));
        let most = accesses(&all);
        let least = match most.saturating_sub(accesses(assumed)) {
            0 => return,
            1 => LEAST_FOR_ONE,
            _ => LEAST,
        };
        for at in found.iter().rev() {
            let mut fewer = all.clone();
            fewer.steps.remove(at);
            if self.settle(&mut fewer) && accesses(&fewer) >= most {
                all = fewer;
            }
        }
        let divisors = found.iter().filter(|at| all.steps.contains_key(at));
        let divisors =
            divisors.filter_map(|at| match self.writes_one(*at)?.operation.division()?.by {
                Divisor::Register(by) => Some(by),
                Divisor::Number(_) => None,
            });
        all.granted = Granted::of(self.body, &divisors.collect::<Vec<_>>(), least);
        *assumed = all;
    }

    /// What may be assumed of a step that divides threads' numbers into rows.
    fn in_row(&self, at: usize, known: &Known) -> Option<Kind> {
        let step = self.writes_one(at)?;
        let division = step.operation.division()?;
        if let Divisor::Register(by) = division.by
            && !Granted::tells(self.body, by)
        {
            return None;
        }
        match known.class(division.from) {
            Class::Affine(by @ 1..=FURTHEST) if self.is_even(step, division, known) => {
                Some(Kind::Same(same(division, by)))
            }
            _ => None,
        }
    }

    /// Assumes something of a step, if that may be: that threads leave loops together, or are in
    /// one row.
    fn assume(&self, assumed: &mut Assumed, at: usize, kind: Kind, in_rows: bool) -> bool {
        let Some(step) = self.writes_one(at) else {
            return false;
        };
        // What is loaded for a row, and chooses what is loaded next.
        let index = |register: &RegId| {
            let indices = || self.indices.get_or_init(|| indices(self.body));
            in_rows && indices()[register.0 as usize]
        };
        let derived = derived(self.body, step.writes[0], index);
        if !in_rows && matches!(kind, Kind::Same(_)) && !only_decides(self.body, &derived) {
            return false;
        }
        let assumption = Assumption {
            kind,
            join: None,
            derived,
        };
        assumed.steps.insert(at, assumption);
        let settles = self.settle(assumed);
        if !settles {
            assumed.steps.remove(&at);
            let before = self.settle(assumed);
            debug_assert!(before, "it did without step {at}");
        }
        settles
    }

    /// Says where threads join for which one of what is assumed does not hold; `false` where there
    /// is one for which they may not.
    fn settle(&self, assumed: &mut Assumed) -> bool {
        let steps: Vec<usize> = assumed.steps.keys().copied().collect();
        for at in steps {
            let Some((join, between)) = self.join(assumed, at) else {
                return false;
            };
            let block = self.control.graph.block_of[at];
            if !self.waits.is_empty() {
                let Some(regions) = &self.regions else {
                    return false;
                };
                let region = regions.of[block];
                let inside =
                    |other: &usize| regions.of[*other] == region && !regions.decides(*other);
                if !inside(&block) || !between.iter().all(inside) {
                    return false;
                }
            }
            if let Some(assumption) = assumed.steps.get_mut(&at) {
                assumption.join = join.map(|join| self.control.first[join]);
            }
        }
        true
    }

    /// The first block that all ways from a step come to where nothing is needed that is computed
    /// from it, or from others that something is assumed of on the way, and the blocks on the way;
    /// `None` if threads wait before.
    fn join(&self, assumed: &Assumed, at: usize) -> Option<(Option<usize>, Vec<usize>)> {
        let block = self.control.graph.block_of[at];
        let mut derived = assumed.steps[&at].derived.clone();
        let mut join = self.control.joins[block];
        let between = loop {
            let needs = |block: usize| {
                let mut live = self.live[block].iter();
                live.any(|register| derived[register.0 as usize])
            };
            while let Some(at) = join.filter(|at| needs(*at)) {
                join = self.control.joins[at];
            }
            let between = self.control.on_the_way(block, join);
            let before = derived.clone();
            for (other, assumption) in &assumed.steps {
                if between.contains(&self.control.graph.block_of[*other]) {
                    let both = derived.iter_mut().zip(&assumption.derived);
                    both.for_each(|(all, derived)| *all |= derived);
                }
            }
            if derived == before {
                break between;
            }
        };
        let waits = |block: &usize| {
            let mut steps = self.control.steps(self.body, *block);
            steps.any(|(_, step)| step.operation.waits() || step.operation.polls())
        };
        (!waits(&block) && !between.iter().any(waits)).then_some((join, between))
    }

    /// A step that every thread does and that writes one register.
    fn writes_one(&self, at: usize) -> Option<&Instruction> {
        match &self.body.steps[at] {
            Step::Instruction(step) => {
                (step.writes.len() == 1 && step.guard.is_none()).then_some(step)
            }
            Step::Label(_) => None,
        }
    }

    /// Whether neighbours likely divide their numbers alike.
    fn is_even(&self, step: &Instruction, division: Division, known: &Known) -> bool {
        let from = division.from;
        let mut others = step.reads.iter().filter(|register| **register != from);
        let same = others.all(|register| known.class(*register) == Class::Uniform);
        let computed = || self.alone.get_or_init(|| computed_alone(self.body));
        let alone = |register: &RegId| computed()[register.0 as usize];
        is_coarse(division) && same && self.is_word(from) && step.reads.iter().all(alone)
    }

    fn is_word(&self, register: RegId) -> bool {
        self.body.tables.registers[register.0 as usize].size() == 4
    }

    /// What is known if that holds.
    fn assuming(&self, assumed: &Assumed) -> Known {
        let how = (self.group, assumed);
        classes::assuming(self.body, self.control, self.live, self.zeros, how)
    }

    /// How many steps access memory at one address for all threads, or at neighbouring ones.
    fn accesses(&self, known: &Known) -> usize {
        let accesses = self.body.steps.iter().filter(|step| {
            let Step::Instruction(step) = step else {
                return false;
            };
            let Some(access) = step.operation.plain_access() else {
                return false;
            };
            match known.class(access.base).stride() {
                Some(stride) => stride == 0 || in_rows(stride, access.size),
                None => false,
            }
        });
        accesses.count()
    }
}
