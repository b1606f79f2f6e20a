//! Regions that a full warp runs through without a loop over its groups: between operations of its
//! lanes that compiled code does by itself, where all steps simply follow each other.
//!
//! Such regions come in chains: a sum over a warp has five. The groups do a region's steps one
//! after the other, each with registers of its own, so what they bring and take never goes through
//! the tile, nor does what they keep from one region of the chain to the next.
//!
//! Where lanes part by their numbers, a region is in a chain all the same, see
//! [`straight`](crate::jit::spmd); but the chain is then for blocks with rows of whole warps.

use std::mem::offset_of;

use cranelift_codegen::ir::{InstBuilder, MemFlags, Value, types};

use super::meetings::{Known, VECTORS};
use super::regions::Part;
use super::{Form, Kept, in_vector};
use crate::grid::context::Turn;
use crate::grid::warp::Tile;
use crate::jit::decode::{Arg, Flow, RegId};
use crate::jit::lower::Lower;
use crate::jit::program::Step;
use crate::jit::spmd::{Class, Exit, Region, Target, WIDEST, WIDTH, Way};

/// Groups of a full warp.
const GROUPS: usize = 32 / WIDTH;
/// The most steps of a region that is in a chain.
const MOST_STEPS: usize = 24;
/// The most steps of a chain.
const MOST_IN_ALL: usize = 96;

/// What the lanes of a warp take from an operation.
pub(super) struct Met {
    pub results: [Value; VECTORS],
    pub predicates: u32,
}

/// A group of a chain, while it is lowered.
#[derive(Default)]
pub(in crate::jit::lower) struct InChain {
    /// The group's number.
    group: usize,
    /// What its lanes take.
    met: Option<Met>,
    /// What its lanes bring, unless it goes into the tile.
    brought: Option<Vec<Value>>,
}

impl InChain {
    /// A vector of what the group's lanes take; `None`: it lies in the tile.
    pub fn taken(&self, chunk: usize) -> Option<Value> {
        let met = self.met.as_ref()?;
        Some(met.results[WIDTH / 4 * self.group + chunk])
    }

    /// The predicates of all lanes, the group's in the lowest bits.
    pub fn predicates(&self) -> Option<u32> {
        let met = self.met.as_ref()?;
        Some(met.predicates >> (WIDTH * self.group))
    }

    /// Whether what the group's lanes bring does not go into the tile.
    pub fn brings(&self) -> bool {
        self.brought.is_some()
    }

    /// Takes note of a vector that the group's lanes bring; whether it was to.
    pub fn bring(&mut self, vector: Value) -> bool {
        match &mut self.brought {
            Some(brought) => brought.push(vector),
            None => return false,
        }
        true
    }
}

impl Lower<'_> {
    /// The chain that begins with a region; empty if none does.
    pub(super) fn chain_from(&mut self, region: usize) -> Vec<usize> {
        let count = self.turns().regions.len();
        let before = |l: &mut Self, to: usize| {
            let leads = |from: &usize| match l.a_region(*from).exit {
                Exit::To(target) => target == Target::Region(to),
                Exit::Branch { taken, falls, .. } => [taken, falls].contains(&Target::Region(to)),
            };
            (0..count).filter(leads).collect::<Vec<_>>()
        };
        if self.link(region).is_none() {
            return vec![];
        }
        if let [from] = before(self, region)[..]
            && self.link(from).is_some()
        {
            return vec![]; // it is in that one's
        }
        let (mut chain, mut steps) = (vec![], 0);
        let mut next = region;
        while let Some(more) = self.link(next) {
            steps += more;
            let entered = chain.is_empty() || before(self, next).len() == 1;
            if !entered || steps > MOST_IN_ALL || chain.contains(&next) {
                break;
            }
            chain.push(next);
            match self.a_region(next).exit {
                Exit::To(Target::Region(to)) => next = to,
                _ => break,
            }
        }
        chain
    }

    /// The chain that a region is in.
    pub(super) fn chain_with(&mut self, region: usize) -> Option<Vec<usize>> {
        self.link(region)?;
        let count = self.turns().regions.len();
        let mut chains = (0..count).map(|first| self.chain_from(first));
        chains.find(|chain| chain.contains(&region))
    }

    /// Whether a chain is for warps of whole rows alone.
    pub(super) fn is_for_rows(&mut self, chain: &[usize]) -> bool {
        chain.iter().any(|region| {
            let wait = self.a_region(*region).wait;
            let tiles = wait.and_then(|(_, number)| self.unit.waits[number].tiles);
            tiles.is_some_and(|tiles| tiles.of_rows) || self.knows_lanes(*region)
        })
    }

    pub(super) fn a_region(&mut self, region: usize) -> &Region {
        let regions = self.lanes().plan.regions.as_ref();
        &regions
            .expect("regions are lowered in rounds alone")
            .regions[region]
    }

    /// How many steps a region has, if it can be in a chain.
    pub(super) fn link(&mut self, region: usize) -> Option<usize> {
        let Region {
            wait, brings, exit, ..
        } = *self.a_region(region);
        let (_, number) = wait?;
        Known::of(&self.unit.waits[number])?;
        if brings || !matches!(exit, Exit::To(Target::Region(_))) {
            return None;
        }
        let body = self.body;
        let plan = &self.lanes().plan;
        let steps = plan.straight[region].as_ref()?;
        let simple = |at: &usize| match &body.steps[*at] {
            Step::Label(_) => true,
            Step::Instruction(step) => {
                let way = plan.ways[*at];
                !step.operation.polls()
                    && matches!(
                        way,
                        Way::Once | Way::Vector | Way::Row | Way::Each | Way::Wait
                    )
            }
        };
        let count = steps.len();
        let links = count <= MOST_STEPS && steps.iter().all(|(at, _)| simple(at));
        (links && !self.may_part(region)).then_some(count)
    }

    /// Whether a region's code in a chain follows from the lanes' numbers, which are known where
    /// whole warps make up the rows of the block.
    fn knows_lanes(&mut self, region: usize) -> bool {
        let (steps, body) = (self.steps_of(region), self.body);
        let plan = &self.lanes().plan;
        let known = |register: RegId| plan.lanes[register.0 as usize].is_some();
        steps.iter().any(|at| match &body.steps[*at] {
            Step::Instruction(step) => {
                let guard = step.guard.map(|(guard, _)| guard);
                step.reads.iter().copied().chain(guard).any(known)
            }
            Step::Label(_) => false,
        })
    }

    /// The steps of a region, in source order.
    pub(super) fn steps_of(&mut self, region: usize) -> Vec<usize> {
        let plan = &self.lanes().plan;
        let of_region = plan.regions.as_ref().map(|regions| &regions.of);
        let inside = |block: &usize| of_region.is_some_and(|of| of[*block] == Some(region));
        let blocks = plan.control.graph.block_of.iter().enumerate();
        let steps = blocks.filter(|(_, block)| inside(block));
        steps.map(|(at, _)| at).collect()
    }

    /// The registers that a region writes, some of them more than once.
    pub(super) fn writes_of(&mut self, region: usize) -> Vec<RegId> {
        let body = self.body;
        let steps = self.steps_of(region).into_iter();
        let writes = |at: usize| match &body.steps[at] {
            Step::Instruction(step) => &step.writes[..],
            Step::Label(_) => &[],
        };
        steps.flat_map(writes).copied().collect()
    }

    /// Whether threads of a group may go on by themselves in a region.
    pub(super) fn may_part(&mut self, region: usize) -> bool {
        if self.unit.rows.has_rest() {
            return true; // those that make no group
        }
        if let Some(parts) = self.is_known_to_part(region) {
            return parts;
        }
        if self.lanes().plan.is_in_step(region) {
            return true; // groups do not all go through it as often
        }
        let (steps, body) = (self.steps_of(region), self.body);
        let plan = &self.lanes().plan;
        let parts = |at: &usize| {
            let Step::Instruction(step) = &body.steps[*at] else {
                return false;
            };
            let block = plan.control.graph.block_of[*at];
            let varies = |(guard, _)| plan.class(guard) == Class::Varying;
            let decides = plan.regions.as_ref().is_some_and(|all| all.decides(block));
            let branches = step.operation.flow() != Flow::Next && step.guard.is_some_and(varies);
            let apart = plan.apart.get(block).is_some_and(Option::is_some);
            let together = !plan.is_unreached(block);
            let by_branch = branches && plan.masked[block].is_none() && !decides && !apart;
            let widens = matches!(
                plan.ways[*at],
                Way::Widen { .. } | Way::Assume { .. } | Way::Same(_)
            );
            together && by_branch || widens && (together || plan.is_by_masks(block))
        };
        let polls = |at: &usize| match &body.steps[*at] {
            Step::Instruction(step) => step.operation.polls(),
            Step::Label(_) => false,
        };
        steps.iter().any(parts) || self.unit.spins && steps.iter().any(polls)
    }

    /// Lowers a chain; the builder is where full warps have come to its first operation.
    pub(super) fn lower_chain(&mut self, chain: &[usize]) {
        let (mut loads, mut stores) = self.kept_by(chain);
        let of_block = self.take_out_of_block(&mut loads);
        let held: Vec<(RegId, Value)> = of_block
            .into_iter()
            .map(|register| (register, self.held_of_block(register)))
            .collect();
        let of_block = self.take_out_of_block(&mut stores);
        let (head, done) = (self.b.create_block(), self.b.create_block());
        let warp = self.b.append_block_param(head, types::I32);
        let begin = self.turn_field(offset_of!(Turn, begin));
        self.b.ins().jump(head, &[begin.into()]);
        self.b.switch_to_block(head);
        self.set_warp(warp);
        let (flags, tile) = (MemFlags::trusted(), self.rounds_tile());
        let mut values: [Value; VECTORS] = std::array::from_fn(|vector| {
            let at = (offset_of!(Tile, values) + 16 * vector) as i32;
            self.b.ins().load(types::I32X4, flags, tile, at)
        });
        let mut sets: Vec<Vec<Option<Kept>>> = (0..GROUPS).map(|_| self.new_set()).collect();
        for (group, set) in sets.iter_mut().enumerate() {
            std::mem::swap(&mut self.lanes().registers, set);
            self.enter_group(group);
            self.take_kept(&loads);
            for (register, value) in &held {
                self.put_all(*register, *value);
            }
            std::mem::swap(&mut self.lanes().registers, set);
        }
        for (at, region) in chain.iter().copied().enumerate() {
            let Region { wait, exit, .. } = *self.a_region(region);
            let wait = wait.expect("a region of a chain begins with a wait");
            let known = Known::of(&self.unit.waits[wait.1]);
            let (results, predicates) = self.meet(known.expect("it is known"), &values);
            let next = match exit {
                Exit::To(Target::Region(next)) => self.a_region(next).wait,
                _ => None,
            };
            let last = at + 1 == chain.len();
            let mut all_brought = vec![];
            for (group, set) in sets.iter_mut().enumerate() {
                std::mem::swap(&mut self.lanes().registers, set);
                self.turns().region = region;
                self.enter_group(group);
                let met = Some(Met {
                    results,
                    predicates,
                });
                self.in_chain(InChain {
                    group,
                    met,
                    brought: None,
                });
                self.lower_wait(wait, Part::Takes);
                self.in_chain(InChain::default());
                let steps = self.lanes().plan.straight[region].clone();
                self.lower_straight(&steps.unwrap_or_default(), WIDTH * group);
                if last {
                    for (register, place) in self.places_of(&stores) {
                        self.keep_of_group(register, place);
                    }
                }
                if let Some(wait) = next {
                    let brought = (!last).then(Vec::new);
                    self.in_chain(InChain {
                        group,
                        met: None,
                        brought,
                    });
                    self.lower_wait(wait, Part::Brings);
                    let brought = std::mem::take(&mut self.turns().in_chain).brought;
                    all_brought.extend(brought.into_iter().flatten());
                }
                std::mem::swap(&mut self.lanes().registers, set);
            }
            if !last {
                let brought = all_brought.try_into();
                values = brought.expect("each group brings its vectors");
            }
        }
        // Each group has the same, and so does each warp.
        for register in of_block {
            let set = &sets[GROUPS - 1][register.0 as usize];
            if let Some(Kept::One(variable)) = set {
                let value = self.b.use_var(*variable);
                self.put_all(register, value);
            }
        }
        self.next_warp(warp, head, done);
        self.b.switch_to_block(done);
    }

    /// Whether what lanes bring to the next operation stays in registers.
    pub(in crate::jit::lower) fn brings_in_chain(&self) -> bool {
        let turns = self.lanes.as_ref().and_then(|lanes| lanes.turns.as_ref());
        turns.is_some_and(|turns| turns.in_chain.brings())
    }

    fn in_chain(&mut self, group: InChain) {
        self.turns().in_chain = group;
    }

    /// What the regions of a chain load when it begins, and store when it is over.
    fn kept_by(&mut self, chain: &[usize]) -> (Vec<RegId>, Vec<RegId>) {
        let mut touched: Vec<RegId> = vec![];
        let mut stores: Vec<RegId> = vec![];
        let last = self.a_region(chain[chain.len() - 1]).behind.clone();
        for region in chain {
            let region = self.a_region(*region);
            for register in &region.touches {
                if !touched.contains(register) {
                    touched.push(*register);
                }
            }
            for register in &region.stores {
                if last.contains(register) && !stores.contains(register) {
                    stores.push(*register);
                }
            }
        }
        let first = self.a_region(chain[0]);
        let mut loads = first.live.clone();
        loads.retain(|register| touched.contains(register));
        (loads, stores)
    }

    fn enter_group(&mut self, group: usize) {
        let lane = self.b.ins().iconst(types::I64, (WIDTH * group) as i64);
        self.begin_group(lane);
        self.lanes().bases.fill([None; WIDEST]);
    }

    /// Lowers what a group of a warp goes straight through; its first lane has this number.
    pub(super) fn lower_straight(&mut self, steps: &[(usize, u32)], first: usize) {
        let body = self.body;
        self.turns().number = Some(first);
        for (at, lanes) in steps {
            let all = self.every_bit() as u32;
            let lanes = lanes >> first & all;
            let Step::Instruction(step) = &body.steps[*at] else {
                continue;
            };
            let once = self.lanes().plan.ways[*at] == Way::Once && step.operation.pure();
            if lanes == all || once && lanes != 0 {
                self.lower_group_step(*at);
                continue;
            }
            self.step = *at as u32;
            self.group = None;
            self.reads_bits = step.reads_bits;
            for lane in (0..self.width()).filter(|lane| lanes >> lane & 1 != 0) {
                self.set_form(Form::Lane(lane));
                step.operation.lower(self);
            }
            self.set_form(Form::Once);
        }
        self.group = None;
        self.turns().number = None;
    }

    /// The threads of the vector that is lowered for which a predicate is known to be true, a bit
    /// for each.
    pub(in crate::jit::lower) fn known_in_vector(&self, arg: &Arg) -> Option<u32> {
        let (Arg::Reg(register), Form::Vector { chunk, wide }) = (arg, self.form()) else {
            return None;
        };
        let lanes = self.lanes.as_ref()?;
        let first = lanes.turns.as_ref()?.number?;
        let bits = lanes.plan.lanes[register.0 as usize]?;
        let count = in_vector(wide);
        Some(bits >> (first + count * chunk) & ((1 << count) - 1))
    }
}
