//! Loops over memory that the groups of a block go through in step: `for (i = threadIdx.x; i < n;
//! i += blockDim.x)`. All groups go through the loop once, then all that are not done go again.
//!
//! Otherwise a group would do all its turns before the next one begins, and each would be far away
//! in memory from the one before. In step, a block goes through memory in order, as the processor
//! expects. It pays where threads keep little from turn to turn.
//!
//! Some loops load at the end of a turn what the next one needs: `if (i < n) value = x[i];`. Where
//! they ask that, in the middle of a turn, threads keep less than at its end, and groups go in step
//! from there.

use ptx::ast::Type;

use super::classes::{self, Group};
use super::facts::Facts;
use super::loops::Counting;
use super::{Class, Regions, Wide, wants_all};
use crate::jit::decode::RegId;
use crate::jit::spins::spins;

/// The fewest accesses to memory in a turn, each in places of its own: fewer the processor follows
/// as it is.
const FEWEST: usize = 4;
/// As many threads as may be in a row of a block.
const ROW: usize = 1024;
/// The most bytes that a thread may keep from turn to turn, of what differs from thread to thread.
const MOST_KEPT: usize = 96;

/// A loop whose turns groups do in step.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// The region that it is in.
    pub region: usize,
    /// The block where groups go on with their next turn.
    pub head: usize,
    /// The block before, at whose end they wait for each other.
    pub branch: usize,
    /// Registers that a turn begins with and that its region touches.
    pub takes: Vec<RegId>,
    /// Those of them that its region writes.
    pub keeps: Vec<RegId>,
    /// Such as are written before the loop alone: what is kept after a group's first turn stays.
    pub once: Vec<RegId>,
}

/// What loops are judged by.
pub(super) struct Judge<'a> {
    pub facts: Facts<'a>,
    pub regions: &'a Regions,
    /// Wide groups go far enough in a turn as it is.
    pub wide: Option<&'a Wide>,
}

impl Judge<'_> {
    /// The loops of a body that groups do in step.
    pub fn all(&self) -> Vec<Pace> {
        let Facts {
            body,
            control,
            live,
            ..
        } = self.facts;
        let regions = self.regions;
        // Threads that spin may wait for some that are behind.
        if spins(body) {
            return vec![];
        }
        let is_wide = |block: usize| {
            let region = regions.of[block];
            let is_wide = |wide: &Wide| region.is_some_and(|region| wide.regions[region]);
            match wants_all() {
                // Tests want both.
                true => body.steps.len() % 4 < 2,
                false => self.wide.is_some_and(is_wide),
            }
        };
        let mut threads = None;
        let mut all: Vec<(Pace, Vec<usize>)> = vec![];
        // A loop's branch lies behind those of the loops in it.
        for branch in (0..control.graph.successors.len()).rev() {
            let Some((pace, blocks)) = self.pace(branch) else {
                continue;
            };
            // Of loops in loops, the outer one.
            let inner = all.iter().any(|(_, known)| known.contains(&branch));
            if inner || is_wide(pace.head) {
                continue;
            }
            let group = Group {
                width: ROW,
                rows: self.facts.rows,
            };
            let row = || classes::of(body, control, live, group, self.facts.zeros);
            let row = threads.get_or_insert_with(row);
            if wants_all() || self.facts.counts(branch, &row.classes) {
                all.push((pace, blocks));
            }
        }
        let regions: Vec<usize> = all.iter().map(|(pace, _)| pace.region).collect();
        let loops = |region: usize| regions.iter().filter(|other| **other == region).count();
        let paces = all.into_iter().map(|(mut pace, blocks)| {
            // What a group comes with from elsewhere is not what it came with before.
            if loops(pace.region) > 1 || self.comes_again(pace.region, &blocks) {
                pace.keeps.append(&mut pace.once);
            }
            pace
        });
        paces.collect()
    }

    /// The loop that a block leads back to the head of, and its blocks.
    fn pace(&self, branch: usize) -> Option<(Pace, Vec<usize>)> {
        let (facts, regions) = (self.facts, self.regions);
        let Counting { head, blocks, .. } = facts.counting_loop(branch)?;
        let ends = [(branch, head)].into_iter();
        let ends = ends.chain(self.divisions(branch, &blocks));
        let (branch, head) = ends.min_by_key(|(_, head)| self.kept(*head, &blocks))?;
        let rows = facts
            .steps_of(&blocks)
            .filter(|step| facts.goes_through_memory(*step))
            .count();
        let enough = rows >= if wants_all() { 1 } else { FEWEST };
        let pays = enough && self.kept(head, &blocks) <= MOST_KEPT;
        let region = regions.of[head]?;
        let inside = |block: &usize| regions.of[*block] == Some(region) && !regions.decides(*block);
        let in_one = blocks.iter().all(inside) && regions.leads_inside(region, head);
        if !(in_one && pays) {
            return None;
        }
        let mut takes = facts.live[head].clone();
        takes.retain(|register| regions.regions[region].touches.contains(register));
        let in_loop = |register: &RegId| {
            let mut steps = facts.steps_of(&blocks);
            steps.any(|(_, step)| step.writes.contains(register))
        };
        let written = takes.iter().copied();
        let written = written.filter(|register| self.writes(region, *register));
        let (keeps, once) = written.partition(in_loop);
        let pace = Pace {
            region,
            head,
            branch,
            takes,
            keeps,
            once,
        };
        Some((pace, blocks))
    }

    /// Where threads within a loop ask what they ask at its end, and go on if they do not leave it:
    /// the block that ends so, and the next.
    fn divisions(&self, branch: usize, blocks: &[usize]) -> impl Iterator<Item = (usize, usize)> {
        let facts = self.facts;
        let successors = &facts.control.graph.successors;
        let at_end = facts.compares(branch);
        let same = move |block: &usize| *block != branch && facts.compares(*block) == at_end;
        let same = blocks.iter().copied().filter(same);
        let next = same.flat_map(|from| successors[from].iter().map(move |to| (from, *to)));
        let entered_so = move |(from, to): &(usize, usize)| {
            let leads = |block: usize| successors[block].contains(to);
            blocks.contains(to)
                && (0..successors.len()).all(|block| block == *from || !leads(block))
        };
        next.filter(entered_so)
    }

    /// Whether threads that have left a loop may come to it once more in its region.
    fn comes_again(&self, region: usize, blocks: &[usize]) -> bool {
        let successors = &self.facts.control.graph.successors;
        let mut seen = vec![false; successors.len()];
        let mut work = blocks.to_vec();
        while let Some(block) = work.pop() {
            for to in &successors[block] {
                let inside = self.regions.of[*to] == Some(region);
                match blocks.contains(to) {
                    true if !blocks.contains(&block) => return true,
                    false if inside && !std::mem::replace(&mut seen[*to], true) => work.push(*to),
                    _ => {}
                }
            }
        }
        false
    }

    /// Whether a region writes a register. Where threads start, those are zero that are read first.
    fn writes(&self, region: usize, register: RegId) -> bool {
        let of = &self.regions.of;
        let mut blocks = (0..of.len()).filter(|block| of[*block] == Some(region));
        region == 0 && self.facts.live[0].contains(&register)
            || blocks.any(|block| {
                let mut steps = self.facts.steps(block);
                steps.any(|(_, step)| step.writes.contains(&register))
            })
    }

    /// How many bytes each thread keeps from turn to turn that are not as in its neighbours.
    fn kept(&self, head: usize, blocks: &[usize]) -> usize {
        let facts = self.facts;
        let used = |register: RegId| {
            let mut steps = facts.steps_of(blocks);
            steps.any(|(_, step)| step.touches(register))
        };
        let varying = facts.live[head]
            .iter()
            .filter(|register| facts.class(**register) == Class::Varying);
        let registers = &facts.body.tables.registers;
        let kept = varying.filter(|register| used(**register));
        kept.map(|register| match registers[register.0 as usize] {
            Type::Pred => 4,
            ty => ty.size() as usize,
        })
        .sum()
    }
}
