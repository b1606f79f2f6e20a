//! What counts up from thread to thread unless threads have parted before, and mostly they have
//! not.
//!
//! A compiler makes two loops of one that it unrolls, and the second goes on where the first ended:
//!
//! ```text
//! for (; turns % 4 != 0; j += 32) ...
//! for (; j < n; j += 128) ...
//! ```
//!
//! Threads may leave the first after different numbers of turns, so that `j` varies behind it.
//! Where such a number is widened to an address, the group looks whether it counts up after all. It
//! goes on with one address then; otherwise each thread goes on by itself, to where nobody needs
//! what is computed from it.

use std::collections::HashMap;

use super::classes::Known;
use super::control::Control;
use super::{Class, Regions};
use crate::jit::decode::RegId;
use crate::jit::program::{Body, Instruction, Step};

/// A step that widens what is assumed to count up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assumption {
    /// How much more each thread has than the one before.
    pub by: i64,
    /// Where threads join for which it does not hold; `None` where they end apart.
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
    /// threads never parted. A block begins at each step that widens; threads wait at `waits`.
    pub fn of(
        body: &Body,
        control: &Control,
        live: &[Vec<RegId>],
        [known, alike]: [&Known; 2],
        waits: &[usize],
    ) -> Assumed {
        let mut assumed = Assumed::default();
        let mut regions = None;
        let all = body.steps.iter().enumerate();
        for (at, step) in all {
            let Step::Instruction(step) = step else {
                continue;
            };
            let (Some((from, _)), [to], None) =
                (step.operation.widens(), &step.writes[..], step.guard)
            else {
                continue;
            };
            let class = |known: &Known| known.classes[from.0 as usize];
            let is_word = body.tables.registers[from.0 as usize].size() == 4;
            let (Class::Varying, Some(by), true) = (class(known), class(alike).stride(), is_word)
            else {
                continue;
            };
            let mut derived = vec![false; body.tables.registers.len()];
            derived[to.0 as usize] = true;
            spread(body, &mut derived);
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
            assumed.steps.insert(at, Assumption { by, join });
            assumed.derived.resize(derived.len(), false);
            let both = assumed.derived.iter_mut().zip(&derived);
            both.for_each(|(all, derived)| *all |= derived);
        }
        assumed
    }

    /// The same where the body falls into other blocks.
    pub fn again(mut self, body: &Body, control: &Control, live: &[Vec<RegId>]) -> Option<Assumed> {
        for (at, assumption) in &mut self.steps {
            let place = Place {
                body,
                control,
                live,
                derived: &self.derived,
            };
            assumption.join = place.join(control.graph.block_of[*at])?.0;
        }
        Some(self)
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
        let block = control.graph.block_of[at];
        let mut blocks = between(control, block, Some(join));
        blocks.push(block);
        let steps = blocks.iter().flat_map(|block| steps(body, control, *block));
        let written = steps.flat_map(|step| step.writes.iter().copied());
        written
            .filter(|register| live[join].contains(register))
            .collect()
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
        let between = between(self.control, block, join);
        let waits = |block: &usize| {
            let mut steps = steps(self.body, self.control, *block);
            steps.any(|step| step.operation.waits() || step.operation.polls())
        };
        (!waits(&block) && !between.iter().any(waits)).then_some((join, between))
    }
}

/// The instructions of a block.
fn steps<'a>(
    body: &'a Body,
    control: &'a Control,
    block: usize,
) -> impl Iterator<Item = &'a Instruction> {
    let of = &control.graph.block_of;
    let steps = (control.first[block]..of.len()).take_while(move |at| of[*at] == block);
    steps.filter_map(|at| match &body.steps[at] {
        Step::Instruction(instruction) => Some(instruction),
        Step::Label(_) => None,
    })
}

/// The blocks on the ways from the end of a block to another.
fn between(control: &Control, from: usize, to: Option<usize>) -> Vec<usize> {
    let mut seen = vec![false; control.graph.successors.len()];
    let mut work = control.graph.successors[from].clone();
    let mut found = vec![];
    while let Some(block) = work.pop() {
        if Some(block) == to || std::mem::replace(&mut seen[block], true) {
            continue;
        }
        found.push(block);
        work.extend(&control.graph.successors[block]);
    }
    found
}
