//! Wide groups: [`Wide::width`] neighbouring threads that go through a region together, instead of
//! [`WIDTH`](super::WIDTH).
//!
//! What is done once for a group, such as its checks, is done less often so, and a loop over memory
//! goes through whole lines. A wide group has no masks, and its threads do not part: where they may
//! not agree, the groups that it consists of go on from there one after the other.
//!
//! So what its threads count counts up with them for as long as they go on together, also where
//! each goes through a loop as often as it has computed for itself:
//!
//! ```text
//! for (int j = lane; j < n; j += 32) sum += row[j];
//! ```
//!
//! What a group begins with it has from others, which may have parted. It is looked at there.
//!
//! A body in which no thread waits is one region.

use std::fmt;

use cranelift_codegen::ir::condcodes::IntCC;
use ptx::ast::Type;

use super::classes::{self, Group, Known};
use super::facts::Facts;
use super::next::computed_from;
use super::straight::straight;
use super::{Apart, Class, Exit, Pace, Regions, WIDEST, Way, wants_all};
use crate::jit::decode::{Arg, Comparison, Flow, RegId, Special};
use crate::jit::program::{Body, Instruction, Step};

/// The most instructions that the wide form of a region may have, as estimated.
const MOST: usize = 1300;
/// The same of all regions of a body: code for wide groups takes its time to compile.
const MOST_IN_ALL: usize = 16_000;
/// With so few, it pays although little is done in vectors: groups begin less often.
const FEW: usize = 32;
/// The most vectors that are live anywhere in a region.
const MOST_LIVE: usize = 32;
/// The most vectors that one step loads.
const MOST_LOADED: usize = 16;

/// How wide groups run a body.
#[derive(Debug)]
pub(crate) struct Wide {
    /// Threads of a group.
    pub width: usize,
    /// By register, as in [`Plan`](super::Plan).
    pub classes: Vec<Class>,
    /// By step.
    pub ways: Vec<Way>,
    /// By region, whether it has a wide form; of a body in which no thread waits, one.
    pub regions: Vec<bool>,
    /// By region, as in [`Plan`](super::Plan), where groups are warps.
    pub straight: Vec<Option<Vec<(usize, u32)>>>,
    /// Where groups go on in them.
    pub resumes: Vec<Resume>,
    /// By block that wide groups never come to: the branch where they give up instead.
    pub left_out: Vec<Option<usize>>,
}

/// Where threads of a wide group may not agree, so that the groups that it consists of go on.
#[derive(Debug)]
pub(crate) struct Resume {
    /// The block, which begins with the step that they may not agree on.
    pub block: usize,
    /// Up to it, nothing has been done that may not be done again, nor a loop: groups begin the
    /// region.
    pub from_start: bool,
    /// What they need: what is live there, and what tells in their code how threads go on, or
    /// whether an access is allowed.
    pub live: Vec<RegId>,
}

/// The wide form of a region.
struct Found {
    /// About how many instructions it has.
    cost: usize,
    resumes: Vec<Resume>,
    /// The steps with which blocks do not begin, but would have to.
    cuts: Vec<usize>,
    /// Blocks that it leaves out, as in [`Wide`].
    left_out: Vec<(usize, usize)>,
}

/// What is known of a body.
pub(super) struct Narrow<'a> {
    pub facts: Facts<'a>,
    pub regions: &'a Regions,
    pub apart: &'a [Option<Apart>],
    /// By register, as in [`Plan`](super::Plan).
    pub lanes: &'a [Option<u32>],
    /// Threads wait.
    pub waits: bool,
}

impl Wide {
    /// The wide form of a body; `None` if no region has one. `warps` is what is known of the
    /// registers of warps.
    pub(super) fn of(narrow: &Narrow<'_>, warps: &Known) -> Option<Wide> {
        let mut wide = Wide::begun(narrow, Some(warps))?;
        let mut left = MOST_IN_ALL;
        for region in 0..narrow.regions.regions.len() {
            let straight = match wide.width {
                WIDEST => {
                    let facts = Facts {
                        classes: &wide.classes,
                        ways: &wide.ways,
                        ..narrow.facts
                    };
                    straight(facts, narrow.regions, narrow.lanes, region)
                }
                _ => None,
            };
            wide.straight.push(straight);
            let found = wide.find(narrow, region);
            let found = found.filter(|found| found.cost <= left && found.cuts.is_empty());
            wide.regions.push(found.is_some());
            if let Some(found) = found {
                left -= found.cost;
                wide.resumes.extend(found.resumes);
                for (block, branch) in found.left_out {
                    wide.left_out[block] = Some(branch);
                }
            }
        }
        wide.regions.contains(&true).then_some(wide)
    }

    /// The wide form of a body in which no thread waits, if it has one; the steps with which blocks
    /// must begin for that, where there are such.
    pub(super) fn without_waits(facts: Facts<'_>) -> Option<(Wide, Vec<usize>)> {
        // Tests want both.
        if wants_all() && facts.body.steps.len().is_multiple_of(5) {
            return None;
        }
        let regions = Regions::of(facts.body, facts.control, facts.live, &[])?;
        let narrow = Narrow {
            facts,
            regions: &regions,
            apart: &vec![None; facts.control.first.len()],
            lanes: &vec![None; facts.classes.len()],
            waits: false,
        };
        let mut wide = Wide::begun(&narrow, None)?;
        wide.straight.push(None);
        let found = wide.find(&narrow, 0)?;
        wide.regions.push(true);
        wide.resumes = found.resumes;
        Some((wide, found.cuts))
    }

    /// The form of no region yet. `warps` is what is known of the registers of warps, if that is.
    fn begun(narrow: &Narrow<'_>, warps: Option<&Known>) -> Option<Wide> {
        let Facts {
            body,
            control,
            live,
            zeros,
            rows,
            ..
        } = narrow.facts;
        // Tests want both.
        let short = match wants_all() {
            true => body.steps.len().is_multiple_of(2),
            false => has_short_rows(body),
        };
        let width = if short { 16 } else { WIDEST };
        let group = Group { width, rows };
        let parted = match (width, warps) {
            (WIDEST, Some(_)) => None,
            _ => Some(classes::of(body, control, live, group, zeros)),
        };
        let parted = parted.as_ref().or(warps)?;
        let known = classes::together(narrow.facts, parted, narrow.lanes, narrow.regions);
        let ways = classes::ways(body, &known)?;
        Some(Wide {
            width,
            classes: known.classes,
            ways,
            regions: vec![],
            straight: vec![],
            resumes: vec![],
            left_out: vec![None; control.first.len()],
        })
    }

    /// The blocks where groups go on, other than by beginning their region.
    pub fn inside(&self) -> impl Iterator<Item = usize> {
        let inside = self.resumes.iter().filter(|resume| !resume.from_start);
        inside.map(|resume| resume.block)
    }

    /// Regions with these loops have no wide form.
    pub(super) fn leave_out(&mut self, regions: &Regions, paces: &[Pace]) {
        for pace in paces {
            self.regions[pace.region] = false;
            self.resumes
                .retain(|resume| regions.of[resume.block] != Some(pace.region));
        }
    }

    /// The wide form of a region; `None` if there is no such form.
    fn find(&self, narrow: &Narrow<'_>, number: usize) -> Option<Found> {
        let Narrow {
            facts,
            regions,
            apart,
            ..
        } = *narrow;
        let Facts {
            body,
            control,
            live,
            ..
        } = facts;
        let region = &regions.regions[number];
        if region.brings {
            return None;
        }
        // Where no thread waits, what is never reached has code, too.
        let inside = |block: &usize| !narrow.waits || regions.of[*block] == Some(number);
        let blocks = (0..control.first.len()).filter(inside);
        let always = |apart: &Apart| apart.always;
        if blocks
            .clone()
            .any(|block| apart[block].as_ref().is_some_and(always))
        {
            return None;
        }
        let left_out = self.left_out(narrow, number);
        let is_left_out = |block: &usize| left_out.iter().any(|(out, _)| out == block);
        let past = past(narrow, number, is_left_out);
        // By register, whether it is computed from a block's number. Warps do not ask.
        let of_grid = match self.width {
            WIDEST => vec![],
            _ => computed_from(body, |special| matches!(special, Special::Ctaid(_))),
        };
        let goes_straight = self.straight[number].is_some();
        let (mut all, mut useful, mut resumes, mut cuts) = (0, 0, vec![], vec![]);
        for block in blocks.filter(|block| !is_left_out(block)) {
            let held = |register: &&RegId| {
                let at = register.0 as usize;
                self.classes[at] == Class::Varying
                    // A comparison is seldom done in vectors: see `agreement`.
                    && body.tables.registers[at] != Type::Pred
                    && region.touches.contains(register)
            };
            let vectors = live[block].iter().filter(held);
            let vectors = vectors.map(|register| self.vectors(body, *register));
            if vectors.sum::<usize>() > MOST_LIVE {
                return None;
            }
            let mut is_past = past[block];
            for (at, step) in facts.steps(block) {
                let way = self.ways[at];
                all += self.cost(body, step, way)?;
                useful += usize::from(matches!(way, Way::Vector | Way::Row));
                let varies =
                    |(guard, _): (RegId, bool)| self.classes[guard.0 as usize] == Class::Varying;
                let decides = matches!(region.exit, Exit::Branch { block: at, .. } if at == block);
                let may_part = match way {
                    Way::Widen { .. } | Way::Assume { .. } | Way::Same(_) => true,
                    Way::Control => !decides && !goes_straight && step.guard.is_some_and(varies),
                    _ => false,
                };
                let by_one = |(guard, _): (RegId, bool)| self.tells_one(body, guard, &of_grid);
                if may_part && way == Way::Control && step.guard.is_some_and(by_one) {
                    return None;
                }
                let untold = |(guard, _): (RegId, bool)| {
                    !narrow.waits && !wants_all() && !self.is_told(body, guard)
                };
                if may_part && way == Way::Control && step.guard.is_some_and(untold) {
                    return None;
                }
                if may_part {
                    let from_start = !is_past;
                    if !from_start && control.first[block] != at {
                        cuts.push(at);
                        continue;
                    }
                    // The groups would take it for what a wide one has not assumed.
                    let unsure = |register: &RegId| {
                        facts.assumed.derives(*register)
                            && self.classes[register.0 as usize] == Class::Varying
                    };
                    if !from_start && live[block].iter().any(unsure) {
                        return None;
                    }
                    let mut needs = vec![];
                    if !from_start {
                        needs.extend(&live[block]);
                        needs.extend(needed(body, at));
                        needs.sort_unstable_by_key(|register: &RegId| register.0);
                        needs.dedup();
                    }
                    resumes.push(Resume {
                        block,
                        from_start,
                        live: needs,
                    });
                }
                is_past |= !may_be_again(step);
            }
        }
        let pays = useful > 1 || all <= FEW;
        // Tests want all that can be.
        let most = if wants_all() { 3 * MOST } else { MOST };
        (pays && all <= most).then_some(Found {
            cost: all,
            resumes,
            cuts,
            left_out,
        })
    }

    /// The blocks of a region that wide groups leave out, each with the branch where they give up
    /// instead: what they do not do, where few groups go by all that is known.
    fn left_out(&self, narrow: &Narrow<'_>, number: usize) -> Vec<(usize, usize)> {
        let Narrow { facts, regions, .. } = *narrow;
        let (body, successors) = (facts.body, &facts.control.graph.successors);
        let mut left_out = vec![];
        // Where no thread waits, a row of threads has one region.
        if !narrow.waits || self.straight[number].is_some() {
            return left_out;
        }
        let inside = |block: &usize| regions.of[*block] == Some(number);
        let refused = |block: usize| {
            let mut steps = facts.steps(block);
            steps.any(|(at, step)| self.cost(body, step, self.ways[at]).is_none())
        };
        for branch in (0..successors.len()).filter(inside) {
            let [one, other] = successors[branch][..] else {
                continue;
            };
            let is_told = |(guard, _): (RegId, bool)| {
                self.classes[guard.0 as usize] == Class::Varying && self.is_told(body, guard)
            };
            let last = facts.steps(branch).last();
            let parts = last.is_some_and(|(_, step)| {
                step.operation.flow() != Flow::Next && step.guard.is_some_and(is_told)
            });
            if one == other || !parts || regions.decides(branch) {
                continue;
            }
            for side in [one, other] {
                let mut reached = vec![false; successors.len()];
                let mut work = vec![regions.regions[number].head];
                while let Some(from) = work.pop() {
                    if std::mem::replace(&mut reached[from], true) {
                        continue;
                    }
                    let goes =
                        |to: &usize| regions.stays(from, *to) && (from, *to) != (branch, side);
                    work.extend(successors[from].iter().copied().filter(goes));
                }
                let behind = (0..reached.len()).filter(|block| inside(block) && !reached[*block]);
                if behind.clone().any(refused) {
                    left_out.extend(behind.map(|block| (block, branch)));
                }
            }
        }
        // Of branches behind each other, the first.
        let all = left_out.clone();
        left_out.retain(|(_, branch)| all.iter().all(|(block, _)| block != branch));
        left_out
    }

    /// Whether a predicate likely differs in one of a group's threads, where rows are short: it
    /// says whether numbers that count up are one that is the same in all threads. A number
    /// `of_grid` is that in few blocks.
    fn tells_one(&self, body: &Body, predicate: RegId, of_grid: &[bool]) -> bool {
        // Tests want all that can be.
        if self.width == WIDEST || wants_all() {
            return false;
        }
        let counts = |arg: &Arg| match arg {
            Arg::Reg(register) => {
                let class = self.classes[register.0 as usize];
                !of_grid[register.0 as usize] && class.stride().is_some_and(|by| by != 0)
            }
            Arg::Special(special) => *special == Special::Tid(0),
            _ => false,
        };
        makers(body, predicate)
            .iter()
            .any(|step| match step.operation.comparison() {
                Some(Comparison {
                    condition: IntCC::Equal | IntCC::NotEqual,
                    a,
                    b,
                    ..
                }) => counts(a) != counts(b),
                _ => false,
            })
    }

    /// Whether a predicate follows from comparisons of numbers that count up, or are the same in
    /// all threads: groups mostly agree on it.
    fn is_told(&self, body: &Body, predicate: RegId) -> bool {
        let known = |arg: &Arg| match arg {
            Arg::Reg(register) => self.classes[register.0 as usize].stride().is_some(),
            _ => true,
        };
        makers(body, predicate).iter().all(|step| {
            let same = |register: &RegId| self.classes[register.0 as usize] == Class::Uniform;
            match step.operation.comparison() {
                Some(Comparison { a, b, .. }) => known(a) && known(b),
                None => step.operation.logic().is_some() || step.reads.iter().all(same),
            }
        })
    }

    /// About how many instructions a step is; `None` if wide groups do not do it.
    fn cost(&self, body: &Body, step: &Instruction, way: Way) -> Option<usize> {
        let operation = &step.operation;
        if operation.polls() {
            return None;
        }
        let vectors = step.reads.iter().chain(&step.writes);
        let vectors = vectors.map(|register| self.vectors(body, *register)).max();
        let vectors = vectors.unwrap_or(1);
        match way {
            Way::Once | Way::Widen { .. } | Way::Assume { .. } | Way::Wait => Some(2),
            Way::Same(_) => Some(6),
            Way::Control if operation.flow() == Flow::Leave && operation.faults() => None,
            Way::Control => Some(6),
            Way::Vector if operation.is_long() => Some(10 * vectors),
            Way::Vector => Some(2 * vectors),
            Way::Row => {
                operation.weak_access()?;
                // A narrow group has whole lines of such, and their vectors in registers.
                if step.writes.len() * vectors > MOST_LOADED && !wants_all() {
                    return None;
                }
                Some(6 + step.writes.len().max(1) * vectors)
            }
            Way::Each if operation.pure() => Some(8 * self.width),
            // Each thread has a check, and a way out of it.
            Way::Each if operation.weak_access().is_some() => Some(20 * self.width),
            // Nothing is gained: threads do these one after the other.
            Way::Each => None,
        }
    }

    /// The vectors that hold a register of a group.
    fn vectors(&self, body: &Body, register: RegId) -> usize {
        let bytes = body.tables.registers[register.0 as usize].size() as usize;
        self.width * bytes.max(4) / 16
    }
}

impl fmt::Display for Wide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (region, is_wide) in self.regions.iter().enumerate() {
            if *is_wide {
                writeln!(f, "region {region}: in groups of {}", self.width)?;
            }
        }
        for resume in &self.resumes {
            writeln!(f, "{resume:?}")?;
        }
        Ok(())
    }
}

/// By block of a region, whether what was done must not be done again where the block begins: a
/// store, or a whole loop. Groups never come to blocks that are left out.
fn past(narrow: &Narrow<'_>, region: usize, left_out: impl Fn(&usize) -> bool) -> Vec<bool> {
    let Narrow { facts, regions, .. } = narrow;
    let successors = &facts.control.graph.successors;
    let loops = regions.loops(successors);
    let acts = |block: usize| facts.steps(block).any(|(_, step)| !may_be_again(step));
    let mut past: Vec<bool> = loops.clone();
    let mut work: Vec<usize> = (0..past.len())
        .filter(|block| regions.of[*block] == Some(region))
        .filter(|block| !left_out(block) && (loops[*block] || acts(*block)))
        .collect();
    while let Some(block) = work.pop() {
        for to in &successors[block] {
            if regions.stays(block, *to) && !std::mem::replace(&mut past[*to], true) {
                work.push(*to);
            }
        }
    }
    past
}

/// The steps that write a predicate, and those that write what it is combined from.
fn makers(body: &Body, predicate: RegId) -> Vec<&Instruction> {
    let (mut work, mut seen, mut makers) = (vec![predicate], vec![], vec![]);
    while let Some(predicate) = work.pop() {
        if seen.contains(&predicate) {
            continue;
        }
        seen.push(predicate);
        for step in &body.steps {
            let Step::Instruction(step) = step else {
                continue;
            };
            if step.writes.contains(&predicate) {
                makers.push(step);
                if step.operation.logic().is_some() {
                    work.extend(&step.reads);
                }
            }
        }
    }
    makers
}

/// Whether a step may be done again from the start of its region.
fn may_be_again(step: &Instruction) -> bool {
    let operation = &step.operation;
    operation.pure()
        || operation.loads()
        || operation.loads_parameter()
        || operation.waits()
        || operation.flow() != Flow::Next
}

/// What the code of groups reads behind the beginning of a step, other than the operands of what is
/// done there: what was compared for the next branch, and indices.
fn needed(body: &Body, at: usize) -> Vec<RegId> {
    let mut needed = vec![];
    for step in &body.steps[at..] {
        let Step::Instruction(step) = step else {
            break;
        };
        if let Some((guard, _)) = step.guard {
            let makers = makers(body, guard).into_iter();
            needed.extend(makers.flat_map(|step| &step.reads));
        }
        if step.operation.flow() != Flow::Next {
            break;
        }
    }
    for before in body.steps[..at].iter().rev() {
        match before {
            Step::Instruction(before) if before.operation.flow() == Flow::Next => {
                needed.extend(before.operation.widens().map(|(from, _)| from));
            }
            _ => break,
        }
    }
    needed
}

/// Whether a body looks as if its blocks had rows that are shorter than a warp.
pub(super) fn has_short_rows(body: &Body) -> bool {
    body.steps.iter().any(|step| match step {
        Step::Instruction(step) => step.specials.contains(&Special::Tid(1)),
        Step::Label(_) => false,
    })
}
