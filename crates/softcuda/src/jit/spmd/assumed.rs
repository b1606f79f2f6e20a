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
//! The group looks whether that is so, and goes on with one number then. Otherwise each thread goes
//! on by itself, to where nobody needs what is computed from it.

use std::collections::HashMap;

use super::classes::Known;
use super::control::Control;
use super::{Class, Regions};
use crate::jit::decode::{Flow, RegId};
use crate::jit::program::{Body, Instruction, Step};

/// What is assumed of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What it widens counts up by so much from thread to thread.
    CountsUp(i64),
    /// It gives the same in all threads, of what counts up by so much.
    Same(i64),
}

/// A step of which something is assumed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Assumption {
    pub kind: Kind,
    /// The step before which threads join for which it does not hold; `None` where they end apart.
    pub join: Option<usize>,
}

/// What is assumed of a body.
#[derive(Debug, Default)]
pub(super) struct Assumed {
    /// By step.
    pub steps: HashMap<usize, Assumption>,
    /// By register, whether it is computed from what is assumed; empty where nothing is.
    pub derived: Vec<bool>,
}

impl Assumed {
    /// What may be assumed of groups: `known` is what is known of them, `alike` what would be if
    /// threads never parted. A block begins at each step that [may be](Assumed::may_be) one.
    /// Threads wait at `waits`.
    pub fn of(
        body: &Body,
        control: &Control,
        live: &[Vec<RegId>],
        [known, alike]: [&Known; 2],
        waits: &[usize],
    ) -> Assumed {
        let mut assumed = Assumed::default();
        let (mut regions, mut computed) = (None, None);
        for (at, step) in body.steps.iter().enumerate() {
            let Step::Instruction(step) = step else {
                continue;
            };
            let ([to], None) = (&step.writes[..], step.guard) else {
                continue;
            };
            let Some(kind) = kind(body, step, [known, alike]) else {
                continue;
            };
            let mut derived = vec![false; body.tables.registers.len()];
            derived[to.0 as usize] = true;
            spread(body, &mut derived);
            if let Kind::Same(_) = kind {
                let computed = computed.get_or_insert_with(|| computed_alone(body));
                let mut reads = step.reads.iter();
                let is_computed = reads.all(|register| computed[register.0 as usize]);
                if !is_computed || !only_decides(body, &derived) {
                    continue;
                }
            }
            let place = Place {
                body,
                control,
                live,
                derived: &derived,
            };
            let block = control.graph.block_of[at];
            let Some((join, between)) = place.join(block) else {
                continue;
            };
            if !waits.is_empty() {
                let regions =
                    regions.get_or_insert_with(|| Regions::of(body, control, live, waits));
                let Some(regions) = regions else {
                    return Assumed::default();
                };
                let region = regions.of[block];
                let inside =
                    |other: &usize| regions.of[*other] == region && !regions.decides(*other);
                if !inside(&block) || !between.iter().all(inside) {
                    continue;
                }
            }
            let join = join.map(|join| control.first[join]);
            assumed.steps.insert(at, Assumption { kind, join });
            assumed.derived.resize(derived.len(), false);
            let both = assumed.derived.iter_mut().zip(&derived);
            both.for_each(|(all, derived)| *all |= derived);
        }
        assumed
    }

    /// Whether something may be assumed of a step.
    pub fn may_be(body: &Body, at: usize) -> bool {
        match &body.steps[at] {
            Step::Instruction(step) => {
                step.operation.widens().is_some() || step.operation.coarse().is_some()
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
        self.derived.get(register.0 as usize) == Some(&true)
    }

    /// The registers that threads may have written each by itself where they join, if what is
    /// assumed of a step does not hold.
    pub fn written_apart(
        &self,
        body: &Body,
        control: &Control,
        live: &[Vec<RegId>],
        at: usize,
    ) -> Vec<RegId> {
        let Some(join) = self.steps.get(&at).and_then(|assumption| assumption.join) else {
            return vec![];
        };
        let (block, join) = (control.graph.block_of[at], control.block_at(join));
        let mut blocks = control.on_the_way(block, Some(join));
        blocks.push(block);
        let steps = blocks.iter().flat_map(|block| control.steps(body, *block));
        let written = steps.flat_map(|(_, step)| step.writes.iter().copied());
        written
            .filter(|register| live[join].contains(register))
            .collect()
    }
}

/// What may be assumed of a step, as far as that says.
fn kind(body: &Body, step: &Instruction, [known, alike]: [&Known; 2]) -> Option<Kind> {
    let class = |known: &Known, register: RegId| known.classes[register.0 as usize];
    let is_word = |register: RegId| body.tables.registers[register.0 as usize].size() == 4;
    if let Some((from, _)) = step.operation.widens() {
        let by = class(alike, from).stride()?;
        let varies = class(known, from) == Class::Varying;
        return (varies && is_word(from)).then_some(Kind::CountsUp(by));
    }
    let (from, _) = step.operation.coarse()?;
    let mut others = step.reads.iter().filter(|register| **register != from);
    let same = others.all(|register| class(known, *register) == Class::Uniform);
    match class(alike, from) {
        Class::Affine(by) if same && is_word(from) => Some(Kind::Same(by)),
        _ => None,
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
    let mut alone = vec![true; body.tables.registers.len()];
    loop {
        let mut less = false;
        for step in &body.steps {
            let Step::Instruction(step) = step else {
                continue;
            };
            let operation = &step.operation;
            let mut reads = step.reads.iter();
            let stays = (operation.pure() || operation.loads_parameter())
                && reads.all(|register| alone[register.0 as usize]);
            for register in step.writes.iter().filter(|_| !stays) {
                less |= std::mem::replace(&mut alone[register.0 as usize], false);
            }
        }
        if !less {
            return alone;
        }
    }
}

/// Marks what is computed from registers by operations that may be done again.
fn spread(body: &Body, derived: &mut [bool]) {
    loop {
        let mut more = false;
        for step in &body.steps {
            let Step::Instruction(step) = step else {
                continue;
            };
            let reads = step
                .reads
                .iter()
                .any(|register| derived[register.0 as usize]);
            if reads && step.operation.pure() {
                for register in &step.writes {
                    more |= !std::mem::replace(&mut derived[register.0 as usize], true);
                }
            }
        }
        if !more {
            return;
        }
    }
}

/// Where a step is, and what is computed from what it writes.
struct Place<'a> {
    body: &'a Body,
    control: &'a Control,
    live: &'a [Vec<RegId>],
    derived: &'a [bool],
}

impl Place<'_> {
    /// The first block that all ways from a block come to where nothing derived is needed, and the
    /// blocks on the way; `None` if threads wait before.
    fn join(&self, block: usize) -> Option<(Option<usize>, Vec<usize>)> {
        let mut join = self.control.joins[block];
        let needs = |block: usize| {
            let mut live = self.live[block].iter();
            live.any(|register| self.derived[register.0 as usize])
        };
        while let Some(at) = join.filter(|at| needs(*at)) {
            join = self.control.joins[at];
        }
        let between = self.control.on_the_way(block, join);
        let waits = |block: &usize| {
            let mut steps = self.control.steps(self.body, *block);
            steps.any(|(_, step)| step.operation.waits() || step.operation.polls())
        };
        (!waits(&block) && !between.iter().any(waits)).then_some((join, between))
    }
}
