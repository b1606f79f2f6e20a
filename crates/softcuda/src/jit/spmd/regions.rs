//! Regions of a body whose threads wait: the groups of a block run through a region one after the
//! other, and then the block goes on to the next region.
//!
//! A region begins at its head, a block, and has one way out for all groups: to the head of another
//! region, to a branch that decides for whole warps, or to the thread's end. Every operation
//! that waits begins a region. Branches that lead some threads past a wait decide for warps:
//! where its groups do not agree, its threads go on one by one.
//!
//! What threads keep from region to region lies in their warp's tile.

use super::control::Control;
use crate::jit::decode::{Flow, RegId};
use crate::jit::program::{Body, Instruction, Step};

/// The most regions of a body that is worth a second form.
const MOST: usize = 200;
/// The most registers that are live at heads of regions, in all: each is taken there by code of its
/// own.
const MOST_LIVE: usize = 20_000;
/// The most accesses to memory of a simple region.
const FEW_ACCESSES: usize = 8;

/// Where groups go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// To the region of this number.
    Region(usize),
    /// To their ends.
    End,
}

/// How a region is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    To(Target),
    /// By the branch that a block consists of.
    Branch {
        block: usize,
        taken: Target,
        falls: Target,
    },
}

/// What groups do one after the other.
#[derive(Debug)]
pub(crate) struct Region {
    /// The block where it begins.
    pub head: usize,
    /// The wait that its head begins with: the step, and its number among all waits.
    pub wait: Option<(usize, usize)>,
    /// It has no steps: groups do no more than bring what the wait takes that its head begins with.
    pub brings: bool,
    pub exit: Exit,
    /// Registers that are live where its groups begin.
    pub live: Vec<RegId>,
    /// Those of them that are used in it, or written under a guard.
    pub loads: Vec<RegId>,
    /// Registers that it writes and that are live behind it.
    pub stores: Vec<RegId>,
    /// Registers that are live behind it.
    pub behind: Vec<RegId>,
    /// Registers that it uses or writes: what else is live lies in the tile all the while.
    pub touches: Vec<RegId>,
}

/// The regions of a body.
#[derive(Debug)]
pub(crate) struct Regions {
    /// By block, the region that it is in; `None` for what is never reached.
    pub of: Vec<Option<usize>>,
    /// The first is where threads start.
    pub regions: Vec<Region>,
}

impl Regions {
    /// The regions of a body whose threads wait at `places`; `None` if it does not fall into any,
    /// or waits under a guard.
    pub fn of(
        body: &Body,
        control: &Control,
        live: &[Vec<RegId>],
        places: &[usize],
    ) -> Option<Regions> {
        let blocks = Blocks::of(body, control, places)?;
        let count = blocks.successors.len();
        let mut heads = vec![false; count];
        heads[0] = true;
        for (block, wait) in blocks.waits.iter().enumerate() {
            heads[block] |= wait.is_some();
        }
        let mut decides = vec![false; count];
        loop {
            let owners = blocks.owners(&mut heads, &decides);
            let heads_live = heads.iter().zip(live).filter(|(head, _)| **head);
            let (count, live_there) = heads_live.fold((0, 0), |(count, all), (_, live)| {
                (count + 1, all + live.len())
            });
            if count > MOST || live_there > MOST_LIVE {
                return None;
            }
            let more = blocks.undecided(&heads, &decides, &owners);
            if more.is_empty() {
                return blocks.regions(&heads, &decides, &owners, live);
            }
            for block in more {
                decides[block] = true;
                for successor in &blocks.successors[block] {
                    heads[*successor] = true;
                }
            }
        }
    }

    /// Whether a way from one block to another stays in the region of the first.
    pub fn stays(&self, from: usize, to: usize) -> bool {
        let inside = |region| self.leads_inside(region, to);
        self.of[from].is_some_and(inside) && !self.decides(from)
    }

    /// By block, whether groups come to it once in their region, and the region has few accesses to
    /// memory: not enough to hold in registers what all of them need.
    pub fn simple(&self, body: &Body, block_of: &[usize], successors: &[Vec<usize>]) -> Vec<bool> {
        let mut accesses = vec![0; self.regions.len()];
        for (step, block) in body.steps.iter().zip(block_of) {
            if let (Step::Instruction(step), Some(region)) = (step, self.of[*block])
                && step.operation.weak_access().is_some()
            {
                accesses[region] += 1;
            }
        }
        let mut simple = self.loops(successors);
        for (block, simple) in simple.iter_mut().enumerate() {
            let few = |region: usize| accesses[region] <= FEW_ACCESSES;
            *simple = !*simple && self.of[block].is_some_and(few);
        }
        simple
    }

    /// By block, whether threads may come to it again before they leave its region.
    pub fn loops(&self, successors: &[Vec<usize>]) -> Vec<bool> {
        let again = |block: usize| {
            let mut seen = vec![false; successors.len()];
            let mut work = vec![block];
            while let Some(from) = work.pop() {
                let stays = |to: &&usize| self.stays(from, **to);
                for to in successors[from].iter().filter(stays) {
                    if *to == block {
                        return true;
                    }
                    if !std::mem::replace(&mut seen[*to], true) {
                        work.push(*to);
                    }
                }
            }
            false
        };
        (0..successors.len()).map(again).collect()
    }

    /// Whether a block is one of a region, and not the wait that it begins with.
    pub fn leads_inside(&self, region: usize, to: usize) -> bool {
        let Region { head, wait, .. } = &self.regions[region];
        self.of[to] == Some(region) && !(to == *head && wait.is_some())
    }

    /// Whether a block is a branch that decides for whole warps.
    pub fn decides(&self, block: usize) -> bool {
        let decides =
            |region: &Region| matches!(region.exit, Exit::Branch { block: at, .. } if at == block);
        self.of[block].is_some_and(|region| decides(&self.regions[region]))
    }
}

/// The blocks of a body, with what regions ask about them.
struct Blocks<'a> {
    body: &'a Body,
    successors: &'a [Vec<usize>],
    predecessors: Vec<Vec<usize>>,
    first: &'a [usize],
    block_of: &'a [usize],
    /// By block, the wait that it begins with.
    waits: Vec<Option<(usize, usize)>>,
    /// By block, whether threads end in it other than by a fault.
    leaves: Vec<bool>,
    /// By block, whether control reaches it.
    reached: Vec<bool>,
}

impl<'a> Blocks<'a> {
    fn of(body: &'a Body, control: &'a Control, places: &[usize]) -> Option<Blocks<'a>> {
        let successors = &control.graph.successors;
        let count = successors.len();
        let mut predecessors = vec![vec![]; count];
        let mut reached = vec![false; count];
        let mut work = vec![0];
        while let Some(block) = work.pop() {
            if std::mem::replace(&mut reached[block], true) {
                continue;
            }
            for successor in &successors[block] {
                predecessors[*successor].push(block);
                work.push(*successor);
            }
        }
        let mut waits = vec![None; count];
        let mut leaves = vec![false; count];
        for (at, step) in body.steps.iter().enumerate() {
            let Step::Instruction(instruction) = step else {
                continue;
            };
            let (operation, block) = (&instruction.operation, control.graph.block_of[at]);
            if operation.waits() {
                if instruction.guard.is_some() || control.first[block] != at {
                    return None;
                }
                waits[block] = Some((at, places.binary_search(&at).ok()?));
            }
            leaves[block] |= operation.flow() == Flow::Leave && !operation.faults();
        }
        // Behind the last step.
        leaves[count - 1] |= successors[count - 1].is_empty();
        Some(Blocks {
            body,
            successors,
            predecessors,
            first: &control.first,
            block_of: &control.graph.block_of,
            waits,
            leaves,
            reached,
        })
    }

    /// By block, the head of its region. A block that several regions lead to is made a head.
    fn owners(&self, heads: &mut [bool], decides: &[bool]) -> Vec<Option<usize>> {
        loop {
            let mut owners = vec![None; heads.len()];
            let mut work: Vec<usize> = (0..heads.len())
                .rev()
                .filter(|block| heads[*block] && self.reached[*block])
                .collect();
            for head in &work {
                owners[*head] = Some(*head);
            }
            while let Some(block) = work.pop() {
                if decides[block] {
                    continue;
                }
                for successor in &self.successors[block] {
                    if owners[*successor].is_none() {
                        owners[*successor] = owners[block];
                        work.push(*successor);
                    }
                }
            }
            let mut settled = true;
            for block in 0..heads.len() {
                let other = |from: &usize| owners[*from] != owners[block];
                if !heads[block] && self.predecessors[block].iter().any(other) {
                    heads[block] = true;
                    settled = false;
                }
            }
            if settled {
                return owners;
            }
        }
    }

    /// Where a block's region is left from it; the number of a head, or none for the end.
    fn leads_out(
        &self,
        heads: &[bool],
        owners: &[Option<usize>],
        block: usize,
    ) -> Vec<Option<usize>> {
        let mut out: Vec<Option<usize>> = self.successors[block]
            .iter()
            .filter(|to| heads[**to] && (owners[block] != Some(**to) || self.waits[**to].is_some()))
            .map(|to| Some(*to))
            .collect();
        if self.leaves[block] {
            out.push(None);
        }
        out
    }

    /// Branches whose sides have different ways out of their region, and do not decide yet.
    fn undecided(&self, heads: &[bool], decides: &[bool], owners: &[Option<usize>]) -> Vec<usize> {
        let count = heads.len();
        // By block, the ways out that threads may come to in the region; a branch that decides is
        // one.
        let mut ways: Vec<Vec<(bool, Option<usize>)>> = (0..count)
            .map(|block| match decides[block] {
                true => vec![(true, Some(block))],
                false => {
                    let out = self.leads_out(heads, owners, block);
                    out.into_iter().map(|to| (false, to)).collect()
                }
            })
            .collect();
        let mut changed = true;
        while changed {
            changed = false;
            for block in (0..count).rev() {
                if decides[block] || owners[block].is_none() {
                    continue;
                }
                for to in &self.successors[block] {
                    if !self.leads_inside(heads, owners, block, *to) || *to == block {
                        continue;
                    }
                    let more: Vec<_> = ways[*to]
                        .iter()
                        .filter(|way| !ways[block].contains(way))
                        .copied()
                        .collect();
                    changed |= !more.is_empty();
                    ways[block].extend(more);
                }
            }
        }
        for ways in &mut ways {
            ways.sort_unstable();
        }
        // Where both sides of a branch have the same ways out, a later one tells them apart.
        let parts = |block: usize| {
            let to = self.successors[block].iter().map(|to| {
                match self.leads_inside(heads, owners, block, *to) {
                    true => ways[*to].clone(),
                    false => vec![(false, Some(*to))],
                }
            });
            let ends = self.leaves[block].then(|| vec![(false, None)]);
            let mut sides = to.chain(ends);
            let first = sides.next();
            sides.any(|side| first.as_ref() != Some(&side))
        };
        (0..count)
            .filter(|block| owners[*block].is_some() && !decides[*block] && ways[*block].len() > 1)
            .filter(|block| parts(*block))
            .collect()
    }

    /// Whether a way from one block to another stays in the region.
    fn leads_inside(
        &self,
        heads: &[bool],
        owners: &[Option<usize>],
        from: usize,
        to: usize,
    ) -> bool {
        owners[to] == owners[from] && !(heads[to] && self.waits[to].is_some())
    }

    /// The regions, now that each has one way out.
    fn regions(
        &self,
        heads: &[bool],
        decides: &[bool],
        owners: &[Option<usize>],
        live: &[Vec<RegId>],
    ) -> Option<Regions> {
        let order: Vec<usize> = (0..heads.len())
            .filter(|block| heads[*block] && self.reached[*block])
            .collect();
        let number = |head: usize| order.iter().position(|known| *known == head);
        let mut regions = vec![];
        for head in &order {
            let inside: Vec<usize> = (0..heads.len())
                .filter(|block| owners[*block] == Some(*head))
                .collect();
            let mut ways: Vec<Option<usize>> = vec![];
            let mut decision = None;
            for block in &inside {
                match decides[*block] {
                    true if decision.is_some() => return None,
                    true => decision = Some(*block),
                    false => ways.extend(self.leads_out(heads, owners, *block)),
                }
            }
            ways.sort_unstable();
            ways.dedup();
            let target = |to: Option<usize>| match to {
                Some(head) => number(head).map(Target::Region),
                None => Some(Target::End),
            };
            let exit = match (decision, &ways[..]) {
                (None, []) => Exit::To(Target::End), // it never ends
                (None, [way]) => Exit::To(target(*way)?),
                (Some(block), []) => self.decision(block, target)?,
                _ => return None,
            };
            regions.push(self.region(*head, &inside, exit, &order, live));
        }
        self.bring_after_branches(&mut regions, live);
        // Where threads start, nothing has been kept yet, or brought.
        let again = |region: &Region| match region.exit {
            Exit::To(to) => to == Target::Region(0),
            Exit::Branch { taken, falls, .. } => [taken, falls].contains(&Target::Region(0)),
        };
        if regions.iter().any(again) || regions[0].wait.is_some() {
            return None;
        }
        let of = owners.iter().map(|owner| owner.and_then(number)).collect();
        Some(Regions { of, regions })
    }

    /// Puts a region between each branch that decides and a wait right behind it.
    fn bring_after_branches(&self, regions: &mut Vec<Region>, live: &[Vec<RegId>]) {
        let first = regions.len();
        let mut between: Vec<Option<usize>> = vec![None; first];
        for at in 0..first {
            let Exit::Branch {
                block,
                mut taken,
                mut falls,
            } = regions[at].exit
            else {
                continue;
            };
            for target in [&mut taken, &mut falls] {
                let Target::Region(to) = *target else {
                    continue;
                };
                let head = regions[to].head;
                let Some(wait) = self.wait_of(head) else {
                    continue;
                };
                let new = *between[to].get_or_insert_with(|| {
                    let loads = live[head].iter().copied();
                    let loads: Vec<RegId> = loads
                        .filter(|register| wait.reads.contains(register))
                        .collect();
                    regions.push(Region {
                        head,
                        wait: None,
                        brings: true,
                        exit: Exit::To(Target::Region(to)),
                        live: live[head].clone(),
                        touches: loads.clone(),
                        loads,
                        stores: vec![],
                        behind: live[head].clone(),
                    });
                    regions.len() - 1
                });
                *target = Target::Region(new);
            }
            regions[at].exit = Exit::Branch {
                block,
                taken,
                falls,
            };
        }
    }

    /// The exit by a branch that a block consists of.
    fn decision(
        &self,
        block: usize,
        target: impl Fn(Option<usize>) -> Option<Target>,
    ) -> Option<Exit> {
        let at = self.first[block];
        let Step::Instruction(instruction) = self.body.steps.get(at)? else {
            return None;
        };
        instruction.guard?;
        let falls = target(Some(block + 1))?;
        let taken = match instruction.operation.flow() {
            Flow::Jump(_) => target(self.successors[block].first().copied())?,
            Flow::Leave => Target::End,
            _ => return None,
        };
        Some(Exit::Branch {
            block,
            taken,
            falls,
        })
    }

    fn region(
        &self,
        head: usize,
        inside: &[usize],
        exit: Exit,
        order: &[usize],
        live: &[Vec<RegId>],
    ) -> Region {
        let mut uses = Set::default();
        let mut writes = Set::default();
        let mut see = |instruction: &Instruction, brings: bool, takes: bool| {
            if brings {
                let guard = instruction.guard.map(|(register, _)| register);
                uses.extend(instruction.reads.iter().copied().chain(guard));
            }
            if takes {
                writes.extend(instruction.writes.iter().copied());
            }
        };
        for block in inside {
            let steps = self.first[*block]..self.body.steps.len();
            for at in steps.take_while(|at| self.block_of[*at] == *block) {
                if let Step::Instruction(instruction) = &self.body.steps[at] {
                    see(instruction, !instruction.operation.waits(), true);
                }
            }
        }
        // What a wait takes, the region before it brings.
        let next = |target: Target| match target {
            Target::Region(number) => Some(order[number]),
            Target::End => None,
        };
        let mut behind = Set::default();
        match exit {
            Exit::To(target) => {
                if let Some(next) = next(target) {
                    behind.extend(self.live_at(next, live).into_iter());
                    if let Some(wait) = self.wait_of(next) {
                        see(wait, true, false);
                    }
                }
            }
            Exit::Branch { taken, falls, .. } => {
                for next in [taken, falls].into_iter().filter_map(next) {
                    behind.extend(live[next].iter().copied());
                }
            }
        }
        if head == 0 {
            // What is read before it is written is zero.
            writes.extend(live[0].iter().copied());
        }
        let mut touches = uses;
        touches.extend(writes.0.iter().copied());
        let stores = writes
            .0
            .iter()
            .copied()
            .filter(|register| behind.has(*register));
        let live = self.live_at(head, live);
        let loads = live.iter().copied();
        let loads = loads.filter(|register| touches.has(*register));
        Region {
            head,
            wait: self.waits[head],
            brings: false,
            exit,
            loads: loads.collect(),
            live,
            stores: stores.collect(),
            touches: touches.0,
            behind: behind.0,
        }
    }
}

impl Blocks<'_> {
    /// The wait that a block begins with.
    fn wait_of(&self, block: usize) -> Option<&Instruction> {
        match &self.body.steps[self.waits[block]?.0] {
            Step::Instruction(wait) => Some(wait),
            Step::Label(_) => None,
        }
    }

    /// What lies in the tile where a region begins: what is live there; at a wait, behind it, but
    /// for what the wait gives.
    fn live_at(&self, head: usize, live: &[Vec<RegId>]) -> Vec<RegId> {
        let Some(wait) = self.wait_of(head) else {
            return live[head].clone();
        };
        let behind = self.successors[head].iter().flat_map(|next| &live[*next]);
        behind
            .filter(|register| !wait.writes.contains(register))
            .copied()
            .collect()
    }
}

/// A set of registers, in no order.
#[derive(Default)]
struct Set(Vec<RegId>, Vec<bool>);

impl Set {
    fn has(&self, register: RegId) -> bool {
        self.1.get(register.0 as usize).copied().unwrap_or(false)
    }

    fn extend(&mut self, more: impl Iterator<Item = RegId>) {
        for register in more {
            let at = register.0 as usize;
            if at >= self.1.len() {
                self.1.resize(at + 1, false);
            }
            if !std::mem::replace(&mut self.1[at], true) {
                self.0.push(register);
            }
        }
    }
}
