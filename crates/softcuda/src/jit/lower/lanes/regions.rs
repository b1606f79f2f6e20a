//! In rounds: the groups of a block run through a region one after the other, and the block goes on
//! from region to region, as [`Regions`](crate::jit::spmd::Regions) says.
//!
//! ```text
//! enter:  what the lanes of each warp do together: the operation that the region begins with
//! warps:  for each warp:
//! head:     for each group: take what it keeps from the tile, and its results
//!             the group's code
//! leave:      keep what it has written; bring its operands to what comes next; next group
//! done:   on to the next region, see [`together`](super::together)
//! ```
//!
//! A region with loops that groups go through in [step](crate::jit::spmd::Pace) begins again at
//! `warps`, as long as a group goes again: it keeps what it needs, and begins where a turn does.
//!
//! Registers that are the same in all threads of the block are variables of the function from
//! region to region. Where threads of a group may go on by themselves in a region, the tiles have
//! them meanwhile.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, Block, InstBuilder, MemFlags, TrapCode, Value, types};
use cranelift_frontend::{Switch, Variable};

use super::chains::InChain;
use super::columns::Columns;
use super::meetings::Known;
use super::rest::Rest;
use super::{AGAIN, FAILED, Form, Lanes};
use crate::grid::context::{THREAD_STRIDE, Turn};
use crate::grid::rounds::{BarrierKind, MEETS_APART, WARP_MEETS, Wait};
use crate::grid::warp::{Meeting, Tile};
use crate::jit::decode::{Arg, RegId};
use crate::jit::lower::Lower;
use crate::jit::lower::entry::Entry;
use crate::jit::program::Step;
use crate::jit::recompute;
use crate::jit::spmd::{Class, Exit, Pace, Region, Rows, Target, WIDTH};

/// Lanes of a warp.
pub(super) const LANES: i64 = 32;

/// A group goes again through the loop that it is in.
const GOES: i64 = 1;
/// All groups have begun the region.
const WENT: i64 = 2;

/// Which part of an operation that waits is lowered for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::jit::lower) enum Part {
    /// What it brings.
    Brings,
    /// What it takes.
    Takes,
}

/// What the vector form needs in rounds.
pub(in crate::jit::lower) struct Turns {
    /// Where a lane has its turn by itself; takes the lane, its warp, the warp's tile, and the
    /// context of the warp's first lane.
    pub enter: Block,
    /// The number of the group's first lane.
    pub lane: Variable,
    /// That lane's context.
    pub context: Variable,
    /// The number of the group's warp.
    pub warp: Variable,
    /// The warp's tile.
    pub tile: Variable,
    /// The context of the warp's first lane.
    pub threads: Variable,
    /// The lanes that the warp has.
    pub limit: Variable,
    /// The same, in the native stack.
    pub left: ir::StackSlot,
    /// By block of the plan, whether it is simple: see
    /// [`Regions::simple`](crate::jit::spmd::Regions::simple).
    pub simple: Vec<bool>,
    /// How many threads and warps the block has.
    pub counts: [Value; 2],
    /// The tile of the block's first warp, and how far apart tiles lie.
    pub tiles: Value,
    pub stride: usize,
    pub regions: Vec<RegionBlocks>,
    /// By region, whether chains do it for all warps, so that groups have no code for it.
    pub by_chains: Vec<bool>,
    /// By region, what its groups [have in common](super::columns), if they take it from a table.
    pub columns: Vec<Option<Columns>>,
    /// The region that is lowered.
    pub region: usize,
    /// Of the branch that ends the region, for the groups so far: bits of threads that all take,
    /// and of those that any takes.
    pub all: Variable,
    pub any: Variable,
    pub part: Part,
    pub in_chain: InChain,
    /// The number of the group's first lane in its warp, where that is known.
    pub number: Option<usize>,
    /// The number of the wait that is lowered.
    pub wait: usize,
    /// Where a warp goes that has come to a barrier or to its end by itself; takes the place.
    pub came: Block,
    /// Goes to the place that it takes.
    pub dispatch: Block,
    /// Where threads have turns one by one.
    pub over: Block,
    /// By loop that groups go through in step, where one comes that goes again.
    pub again: Vec<Block>,
    /// Threads that make no group, if there are such.
    pub rest: Option<Rest>,
}

/// Where the parts of a region begin.
#[derive(Clone, Copy)]
pub(in crate::jit::lower) struct RegionBlocks {
    /// Where warps come to it that had their turn by themselves.
    pub load: Block,
    /// Where all warps have come to the barrier that it begins with.
    pub together: Block,
    pub enter: Block,
    /// The loop over warps.
    warps: Block,
    /// The loop over groups.
    pub head: Block,
    pub leave: Block,
    latch: Block,
    /// The warp is done.
    pub over: Block,
    /// All warps are.
    pub done: Block,
    /// The groups that are left have nothing to do.
    pub past: Block,
    /// Threads of a group may end up elsewhere.
    pub fails: bool,
}

impl Lanes {
    /// The heads of regions, and what is live there.
    pub fn heads(&self) -> Vec<(usize, Option<usize>, Vec<RegId>)> {
        let regions = self.plan.regions.iter().flat_map(|all| &all.regions);
        let wait = |region: &Region| region.wait.map(|(_, number)| number);
        let heads = regions.map(|region| (wait(region), region.head));
        let live = |head: usize| self.plan.live[head].clone();
        heads.map(|(wait, head)| (head, wait, live(head))).collect()
    }
}

impl Lower<'_> {
    pub(super) fn turns(&mut self) -> &mut Turns {
        let turns = self.lanes().turns.as_mut();
        turns.expect("regions are lowered in rounds alone")
    }

    /// Whether what is lowered is in a block that is simple.
    pub(in crate::jit::lower) fn is_simple(&self) -> bool {
        let lanes = self.lanes.as_ref();
        let Some((lanes, turns)) = lanes.and_then(|lanes| Some((lanes, lanes.turns.as_ref()?)))
        else {
            return false;
        };
        let block = lanes.plan.control.graph.block_of.get(self.step as usize);
        block.is_some_and(|block| turns.simple.get(*block) == Some(&true))
    }

    /// Blocks for the parts of regions.
    pub(in crate::jit::lower) fn region_blocks(&mut self, count: usize) -> Vec<RegionBlocks> {
        let mut block = || self.b.create_block();
        (0..count)
            .map(|_| RegionBlocks {
                load: block(),
                together: block(),
                enter: block(),
                warps: block(),
                head: block(),
                leave: block(),
                latch: block(),
                over: block(),
                done: block(),
                past: block(),
                fails: false,
            })
            .collect()
    }

    /// The steps of this block are of its region.
    pub(super) fn enter_region(&mut self, block: usize) {
        let Some(regions) = &self.lanes().plan.regions else {
            return;
        };
        // What is never reached may be in any.
        let region = regions.of[block].unwrap_or(0);
        self.turns().region = region;
        self.set_form(Form::Once);
    }

    /// Where a group goes from one block to another.
    pub(super) fn way_to(&mut self, from: usize, to: usize) -> Block {
        if self.is_next_turn(from, to) {
            return self.lanes().next_turn;
        }
        let paces = &self.lanes().plan.paces;
        let again = paces
            .iter()
            .position(|pace| (pace.branch, pace.head) == (from, to));
        if let Some(number) = again {
            return self.turns().again[number];
        }
        let stays = match &self.lanes().plan.regions {
            Some(regions) => regions.stays(from, to),
            None => true,
        };
        match stays {
            true => self.lanes().group_blocks[to],
            false => {
                let region = self.turns().region;
                self.leave_of(region)
            }
        }
    }

    /// Where a group goes on whose threads parted in a region and joined at a block.
    pub(super) fn way_in(&mut self, region: usize, join: usize) -> Block {
        let inside = match &self.lanes().plan.regions {
            Some(regions) => regions.leads_inside(region, join),
            None => true,
        };
        match inside {
            true => self.lanes().group_blocks[join],
            false => self.turns().regions[region].leave,
        }
    }

    /// The group is done with its region.
    pub(super) fn leave_region(&mut self) {
        let region = self.turns().region;
        let leave = self.leave_of(region);
        self.b.ins().jump(leave, &[]);
    }

    /// A group is done with its region, but its threads have ended or wait elsewhere.
    pub(super) fn leave_apart(&mut self, region: usize) {
        let exit = match &self.lanes().plan.regions {
            Some(regions) => regions.regions[region].exit,
            None => unreachable!("regions are lowered in rounds alone"),
        };
        // Who spins may stand at a poll instead of its end.
        if exit != Exit::To(Target::End) || self.unit.spins {
            let slot = self.lanes().slot;
            let yes = self.b.ins().iconst(types::I32, 1);
            self.b.ins().stack_store(yes, slot, FAILED);
            let no = self.b.ins().iconst(types::I32, 0);
            self.store_group_word(no, offset_of!(Tile, together));
        }
        // From elsewhere, the loops are entered where they begin: so Cranelift knows them as loops.
        let over = self.cold_block();
        self.next_group(region, over);
    }

    /// Whether a block is a branch that decides for the warp.
    pub(super) fn decides(&mut self, block: usize) -> bool {
        let regions = &self.lanes().plan.regions;
        regions
            .as_ref()
            .is_some_and(|regions| regions.decides(block))
    }

    /// Notes which threads of the group take the branch that the region ends with.
    pub(super) fn decide(&mut self, at: usize, register: RegId, negated: bool) {
        let region = self.turns().region;
        if self.decides_once(region, register) {
            self.leave_region();
            let next = self.fresh_block();
            return self.enter(next);
        }
        let bits = match self.lanes().plan.class(register) {
            Class::Varying => self.mask_bits(at, register),
            _ => {
                let guard = self.read(&Arg::Reg(register), ptx::ast::Type::Pred);
                let every = self.every_bit();
                let all = self.b.ins().iconst(types::I32, every);
                let none = self.b.ins().iconst(types::I32, 0);
                self.b.ins().select(guard, all, none)
            }
        };
        let bits = match negated {
            false => bits,
            true => {
                let every = self.every_bit();
                self.b.ins().bxor_imm(bits, every)
            }
        };
        if self.is_wide() {
            self.decide_wide(bits);
        } else {
            self.store_group_word(bits, offset_of!(Tile, decisions));
            self.note_decision(bits);
        }
        self.leave_region();
        let next = self.fresh_block();
        self.enter(next);
    }

    /// A number with a bit set for each thread of a group.
    pub(super) fn every_bit(&self) -> i64 {
        i64::from(u32::MAX.unbounded_shr(32 - self.width() as u32) as i32)
    }

    /// Notes the bits of a group's threads that take the branch that the region ends with.
    pub(super) fn note_decision(&mut self, bits: Value) {
        let (all, any) = (self.turns().all, self.turns().any);
        let before = self.b.use_var(all);
        let now = self.b.ins().band(before, bits);
        self.b.def_var(all, now);
        let before = self.b.use_var(any);
        let now = self.b.ins().bor(before, bits);
        self.b.def_var(any, now);
    }

    /// Whether the last group's guard tells where all warps go.
    pub(super) fn decides_once(&mut self, region: usize, guard: RegId) -> bool {
        self.lanes().plan.is_of_block(guard) && !self.may_part(region)
    }

    /// Puts a word where the tile has one for each group.
    fn store_group_word(&mut self, value: Value, offset: usize) {
        let (lane, tile) = (self.rounds_lane(), self.rounds_tile());
        let at = self.group_word(lane, tile);
        let flags = MemFlags::trusted();
        self.b.ins().store(flags, value, at, offset as i32);
    }

    /// The other way round.
    fn load_group_word(&mut self, offset: usize) -> Value {
        let (lane, tile) = (self.rounds_lane(), self.rounds_tile());
        let at = self.group_word(lane, tile);
        let flags = MemFlags::trusted();
        self.b.ins().load(types::I32, flags, at, offset as i32)
    }

    /// The tile of the warp of this number.
    pub(super) fn tile_of(&mut self, warp: Value) -> Value {
        let (tiles, stride) = (self.turns().tiles, self.turns().stride);
        let wide = self.b.ins().uextend(types::I64, warp);
        let distance = self.b.ins().imul_imm(wide, stride as i64);
        self.b.ins().iadd(tiles, distance)
    }

    /// The context of the first lane of the warp of this number.
    pub(super) fn contexts_of(&mut self, warp: Value) -> Value {
        let first = self.entry.thread;
        let wide = self.b.ins().uextend(types::I64, warp);
        let distance = self.b.ins().imul_imm(wide, 32 * THREAD_STRIDE as i64);
        self.b.ins().iadd(first, distance)
    }

    /// The groups are those of the warp of this number.
    pub(super) fn set_warp(&mut self, number: Value) {
        let turns = self.turns();
        let (warp, tile, threads, limit) = (turns.warp, turns.tile, turns.threads, turns.limit);
        self.b.def_var(warp, number);
        let at = self.tile_of(number);
        self.b.def_var(tile, at);
        let contexts = self.contexts_of(number);
        self.b.def_var(threads, contexts);
        let before = self.b.ins().ishl_imm(number, 5);
        let count = self.threads_in_groups();
        let left = self.b.ins().isub(count, before);
        let most = self.b.ins().iconst(types::I32, 32);
        let lanes = self.b.ins().umin(left, most);
        let lanes = self.b.ins().uextend(types::I64, lanes);
        self.b.def_var(limit, lanes);
    }

    /// As [`set_warp`](Self::set_warp), where a loop over its groups begins or goes on.
    pub(super) fn begin_warp(&mut self, number: Value) {
        self.set_warp(number);
        self.begin_lanes();
    }

    /// Notes how many lanes the warp has, for a loop over its groups.
    pub(super) fn begin_lanes(&mut self) {
        let (limit, left) = (self.turns().limit, self.turns().left);
        let lanes = self.b.use_var(limit);
        self.b.ins().stack_store(lanes, left, 0);
    }

    /// The group is that of the lane of this number, the first of it.
    pub(super) fn set_group(&mut self, lane: Value) {
        let turns = self.turns();
        let (variable, context, threads) = (turns.lane, turns.context, turns.threads);
        self.b.def_var(variable, lane);
        let threads = self.b.use_var(threads);
        let distance = self.b.ins().imul_imm(lane, THREAD_STRIDE as i64);
        let first = self.b.ins().iadd(threads, distance);
        self.b.def_var(context, first);
    }

    /// Takes what is live and lies in the tile all the while the group is in its region.
    pub(super) fn take_what_passes(&mut self, live: &[RegId]) {
        if !self.in_turns() {
            return;
        }
        let region = self.turns().region;
        let touched: Vec<RegId> = match &self.lanes().plan.regions {
            Some(regions) => regions.regions[region].touches.clone(),
            None => return,
        };
        let passes = live.iter().filter(|register| !touched.contains(register));
        let passes: Vec<RegId> = passes.copied().collect();
        self.take_kept(&passes);
    }

    /// Takes registers from the tile, or computes them again.
    pub(super) fn take_kept(&mut self, registers: &[RegId]) {
        let Some(rounds) = &self.rounds else {
            return;
        };
        let again = recompute::steps(self.body, &rounds.recomputed, registers);
        for (register, place) in rounds.places_of(registers) {
            self.take_of_group(register, place);
        }
        let group = self.group.take();
        for at in again {
            self.group_step_again(at);
        }
        self.group = group;
    }

    /// Takes what a region loads: from the tile, or zeros where threads start.
    pub(super) fn take_loads(&mut self, region: usize, loads: &[RegId]) {
        if region != 0 {
            return self.take_kept(loads);
        }
        for register in loads {
            let zero = self.zero(self.register_types[register.0 as usize]);
            self.put_all(*register, zero);
        }
    }

    /// Lowers all regions. The builder's block is filled.
    pub(super) fn lower_regions(&mut self) {
        let count = self.turns().regions.len();
        // What is brought says what the waits are.
        for region in 0..count {
            self.close_region(region);
        }
        if self.unit.rows == Rows::OfWarps {
            let in_chain = |region| self.chain_with(region).is_some();
            self.turns().by_chains = (0..count).map(in_chain).collect();
        }
        self.plan_wide();
        self.plan_columns();
        self.lower_group_steps();
        for region in 0..count {
            if self.turns().by_chains[region] {
                self.open_chain(region);
                continue;
            }
            self.open_region(region);
            self.lower_past(region);
            self.end_region(region);
        }
    }

    pub(super) fn region(&mut self, region: usize) -> (usize, Option<(usize, usize)>, Exit) {
        match &self.lanes().plan.regions {
            Some(regions) => {
                let region = &regions.regions[region];
                (region.head, region.wait, region.exit)
            }
            None => unreachable!("regions are lowered in rounds alone"),
        }
    }

    /// Where in the tile registers are kept.
    pub(super) fn places_of(&self, registers: &[RegId]) -> Vec<(RegId, usize)> {
        let rounds = self.rounds.as_ref();
        rounds.expect("tiles are of rounds").places_of(registers)
    }

    /// In a region with loops in step: a group begins; but once all have, one goes on with the next
    /// turn of the loop that it is in, if it is in any.
    fn begin_in_step(&mut self, region: usize) {
        let paces = self.paces_of(region);
        if paces.is_empty() {
            return;
        }
        let latch = self.turns().regions[region].latch;
        let slot = self.lanes().slot;
        let went = self.b.ins().stack_load(types::I32, slot, AGAIN);
        let went = self.b.ins().band_imm(went, WENT);
        let (asks, begins, done) = (
            self.b.create_block(),
            self.b.create_block(),
            self.b.create_block(),
        );
        self.b.ins().brif(went, asks, &[], begins, &[]);

        self.b.switch_to_block(asks);
        let again = self.load_group_word(offset_of!(Tile, again));
        let no = self.b.ins().iconst(types::I32, 0);
        self.store_group_word(no, offset_of!(Tile, again));
        let mut switch = Switch::new();
        let blocks: Vec<Block> = paces.iter().map(|_| self.b.create_block()).collect();
        for ((number, _), block) in paces.iter().zip(&blocks) {
            switch.set_entry(*number as u128 + 1, *block);
        }
        switch.emit(&mut self.b, again, done);
        self.b.switch_to_block(done);
        self.b.ins().jump(latch, &[]);
        for ((_, pace), block) in paces.iter().zip(blocks) {
            self.b.switch_to_block(block);
            self.take_kept(&pace.takes);
            let head = self.lanes().group_blocks[pace.head];
            self.b.ins().jump(head, &[]);
        }

        self.b.switch_to_block(begins);
        let no = self.b.ins().iconst(types::I32, 0);
        self.store_group_word(no, offset_of!(Tile, again));
    }

    /// The loops that groups go through in step in a region, with their numbers.
    fn paces_of(&mut self, region: usize) -> Vec<(usize, Pace)> {
        let paces = self.lanes().plan.paces.iter().cloned().enumerate();
        paces.filter(|(_, pace)| pace.region == region).collect()
    }

    /// Where groups go again through loops in step of a region, and first keep what they need.
    fn lower_again(&mut self, region: usize) {
        for (number, pace) in self.paces_of(region) {
            let (again, latch) = (
                self.turns().again[number],
                self.turns().regions[region].latch,
            );
            self.b.switch_to_block(again);
            self.set_form(Form::Once);
            for (register, place) in self.places_of(&pace.keeps) {
                self.keep_of_group(register, place);
            }
            let number = self.b.ins().iconst(types::I32, number as i64 + 1);
            self.store_group_word(number, offset_of!(Tile, again));
            let slot = self.lanes().slot;
            let before = self.b.ins().stack_load(types::I32, slot, AGAIN);
            if !pace.once.is_empty() {
                let (first, then) = (self.fresh_block(), self.fresh_block());
                let went = self.b.ins().band_imm(before, WENT);
                self.b.ins().brif(went, then, &[], first, &[]);
                self.enter(first);
                for (register, place) in self.places_of(&pace.once) {
                    self.keep_of_group(register, place);
                }
                self.b.ins().jump(then, &[]);
                self.enter(then);
            }
            let goes = self.b.ins().bor_imm(before, GOES);
            self.b.ins().stack_store(goes, slot, AGAIN);
            self.b.ins().jump(latch, &[]);
        }
    }

    /// All groups are done with a region, or have done a turn of a loop in step.
    fn end_in_step(&mut self, region: usize) {
        if !self.lanes().plan.is_in_step(region) {
            return;
        }
        let blocks = self.turns().regions[region];
        let slot = self.lanes().slot;
        let goes = self.b.ins().stack_load(types::I32, slot, AGAIN);
        let goes = self.b.ins().band_imm(goes, GOES);
        let (again, over) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(goes, again, &[], over, &[]);
        self.b.switch_to_block(again);
        let went = self.b.ins().iconst(types::I32, WENT);
        self.b.ins().stack_store(went, slot, AGAIN);
        let begin = self.turn_field(offset_of!(Turn, begin));
        self.b.ins().jump(blocks.warps, &[begin.into()]);
        self.b.switch_to_block(over);
    }

    /// What a group does last in a region.
    fn close_region(&mut self, region: usize) {
        let (_, _, exit) = self.region(region);
        let blocks = self.turns().regions[region];
        self.turns().region = region;
        self.lower_again(region);
        self.b.switch_to_block(blocks.leave);
        self.set_form(Form::Once);
        let mut stores = self.a_region(region).stores.clone();
        if !self.may_part(region) {
            self.take_out_of_block(&mut stores);
        }
        for (register, place) in self.places_of(&stores) {
            self.keep_of_group(register, place);
        }
        if let Exit::To(Target::Region(next)) = exit
            && let (_, Some(wait), _) = self.region(next)
        {
            self.lower_wait(wait, Part::Brings);
        }
        self.b.ins().jump(blocks.latch, &[]);
    }

    pub(super) fn lower_wait(&mut self, (at, number): (usize, usize), part: Part) {
        let body = self.body;
        let Step::Instruction(instruction) = &body.steps[at] else {
            return;
        };
        self.turns().part = part;
        self.turns().wait = number;
        self.set_form(Form::Once);
        self.group = None;
        self.reads_bits = instruction.reads_bits;
        instruction.operation.lower(self);
        self.set_form(Form::Once);
    }

    /// The warps go through a chain, to where its last region leads. Fills the builder's block.
    fn go_through(&mut self, chain: &[usize], last: usize) {
        self.lower_chain(chain);
        if let (_, _, Exit::To(target)) = self.region(last) {
            self.go_to_target(target);
        }
    }

    /// All that there is of a region that chains do.
    fn open_chain(&mut self, region: usize) {
        let blocks = self.turns().regions[region];
        let chain = self.chain_from(region);
        if let Some(last) = chain.last() {
            self.turns().region = region;
            self.b.switch_to_block(blocks.enter);
            self.go_through(&chain, *last);
        }
        // What groups would do last leads here, and no group comes to that.
        self.b.switch_to_block(blocks.latch);
        self.b.ins().trap(TrapCode::unwrap_user(1));
    }

    /// What the warps do at the head of a region, and each group when it begins with it.
    fn open_region(&mut self, region: usize) {
        let (_, wait, exit) = self.region(region);
        let blocks = self.turns().regions[region];
        self.turns().region = region;
        self.b.switch_to_block(blocks.enter);
        let chain = self.chain_from(region);
        if let Some(last) = chain.last() {
            let (full, partial) = (self.b.create_block(), self.cold_block());
            let mut is_full = self.warps_are_full();
            if self.is_for_rows(&chain) {
                let whole = self.has_rows_of_warps();
                is_full = self.b.ins().band(is_full, whole);
            }
            self.b.ins().brif(is_full, full, &[], partial, &[]);
            self.b.switch_to_block(full);
            self.go_through(&chain, *last);
            self.b.switch_to_block(partial);
        }
        if let Some((_, number)) = wait {
            if self.barrier_of(region).is_none() {
                self.unless_rest_is_elsewhere(number as u32 + 1);
            }
            // The chain does it for all full warps, or for those of whole rows.
            let chain = self.chain_with(region);
            let in_chain = chain.is_some_and(|chain| !self.is_for_rows(&chain));
            self.warps_meet(region, number, in_chain);
        }
        if blocks.fails {
            let slot = self.lanes().slot;
            let no = self.b.ins().iconst(types::I32, 0);
            self.b.ins().stack_store(no, slot, FAILED);
        }
        if self.lanes().plan.is_in_step(region) {
            let slot = self.lanes().slot;
            let first = self.b.ins().iconst(types::I32, 0);
            self.b.ins().stack_store(first, slot, AGAIN);
        }
        if let Exit::Branch { .. } = exit {
            let (all, any) = (self.turns().all, self.turns().any);
            let whole = self.b.ins().iconst(types::I32, (1 << WIDTH) - 1);
            self.b.def_var(all, whole);
            let none = self.b.ins().iconst(types::I32, 0);
            self.b.def_var(any, none);
        }
        let mut loads = self.a_region(region).loads.clone();
        let of_block: Vec<(RegId, Value)> = match (region, self.may_part(region)) {
            (0, _) => vec![],
            // From a thread that goes on by itself, the way back to the next group is not from
            // here: groups take them from their tiles.
            (_, true) => {
                let live = self.a_region(region).live.clone();
                self.keep_of_block(&live);
                vec![]
            }
            (_, false) => {
                let of_block = self.take_out_of_block(&mut loads);
                let held = |register| (register, self.held_of_block(register));
                of_block.into_iter().map(held).collect()
            }
        };
        self.forget_resumes(region);
        self.forget_columns(region);
        let begin = self.turn_field(offset_of!(Turn, begin));
        self.b.ins().jump(blocks.warps, &[begin.into()]);

        let warp = self.b.append_block_param(blocks.warps, types::I32);
        self.b.switch_to_block(blocks.warps);
        match self.is_for_one_group(region) || self.is_in_warps(region) {
            true => self.set_warp(warp),
            false => self.begin_warp(warp),
        }
        self.begin_groups(region, &of_block);
        self.lower_wide(region, &of_block);

        let lane = self.b.append_block_param(blocks.head, types::I64);
        self.b.switch_to_block(blocks.head);
        if self.has_columns(region) {
            return self.begin_in_column(region, lane, &loads, &of_block);
        }
        self.begin_group(lane);
        self.begin_in_step(region);
        self.take_loads(region, &loads);
        self.begin_region(region, &of_block);
    }

    /// A group begins a region, and has taken what that loads. Fills the builder's block.
    pub(super) fn begin_region(&mut self, region: usize, of_block: &[(RegId, Value)]) {
        let (head, wait, _) = self.region(region);
        for (register, value) in of_block {
            self.put_all(*register, *value);
        }
        if let Some(wait) = wait {
            self.lower_wait(wait, Part::Takes);
        }
        let begins = match self.a_region(region).brings {
            true => self.turns().regions[region].leave,
            false => self.lanes().group_blocks[head],
        };
        self.b.ins().jump(begins, &[]);
    }

    /// Whether whole warps make up the rows of the block.
    fn has_rows_of_warps(&mut self) -> Value {
        let row = self.entry(Entry::Ntid(0));
        let odd = self.b.ins().band_imm(row, LANES - 1);
        self.b.ins().icmp_imm(IntCC::Equal, odd, 0)
    }

    /// Goes to `head` with the warp after this one, if the turn has it, or to `done`.
    pub(super) fn next_warp(&mut self, warp: Value, head: Block, done: Block) {
        let next = self.b.ins().iadd_imm(warp, 1);
        let end = self.turn_field(offset_of!(Turn, end));
        let more = self.b.ins().icmp(IntCC::UnsignedLessThan, next, end);
        self.b.ins().brif(more, head, &[next.into()], done, &[]);
    }

    /// The lanes of each warp are at an operation of theirs; full warps only if the region is not
    /// in a chain.
    fn warps_meet(&mut self, region: usize, number: usize, in_chain: bool) {
        let wait = self.unit.waits[number];
        let all = wait.mask == Some(u32::MAX) || wait.tiles.is_some_and(|tiles| !tiles.of_rows);
        let nothing = wait.kind == Meeting::Sync as u32 && all;
        if BarrierKind::of(wait.kind).is_some() || nothing {
            return;
        }
        let (head, next, done) = (
            self.b.create_block(),
            self.b.create_block(),
            self.b.create_block(),
        );
        let warp = self.b.append_block_param(head, types::I32);
        let begin = self.turn_field(offset_of!(Turn, begin));
        self.b.ins().jump(head, &[begin.into()]);
        self.b.switch_to_block(head);
        self.set_warp(warp);
        if let Some(known) = Known::of(&wait).filter(|_| !in_chain) {
            let (here, partial) = (self.b.create_block(), self.cold_block());
            let limit = self.turns().limit;
            let limit = self.b.use_var(limit);
            let mut full = self.b.ins().icmp_imm(IntCC::Equal, limit, 32);
            if wait.tiles.is_some_and(|tiles| tiles.of_rows) {
                let whole = self.has_rows_of_warps();
                full = self.b.ins().band(full, whole);
            }
            self.b.ins().brif(full, here, &[], partial, &[]);
            self.b.switch_to_block(here);
            self.meet_here(known);
            self.b.ins().jump(next, &[]);
            self.b.switch_to_block(partial);
        }
        let (block, waits) = (self.block, self.waits_address());
        let stands = self.b.ins().iconst(types::I32, number as i64 + 1);
        let complete = self.call_value(&WARP_MEETS, &[block, waits, stands, warp]);
        let apart = self.cold_block();
        self.b.ins().brif(complete, next, &[], apart, &[]);

        self.b.switch_to_block(apart);
        let live = self.a_region(region).live.clone();
        self.keep_of_block(&live);
        let waits = self.waits_address();
        let stands = self.b.ins().iconst(types::I32, number as i64 + 1);
        let status = self.call_value(&MEETS_APART, &[block, waits, stands, warp]);
        self.one_by_one(status);

        self.b.switch_to_block(next);
        self.next_warp(warp, head, done);
        self.b.switch_to_block(done);
    }

    /// Goes on with the next group of a region, of this warp or, by way of `over`, of the next.
    /// Fills the builder's block.
    fn next_group(&mut self, region: usize, over: Block) {
        let warp = self.turns().warp;
        let blocks = self.turns().regions[region];
        let (next, more) = self.more_lanes(WIDTH);
        let goes = self.b.create_block();
        self.b.ins().brif(more, goes, &[], over, &[]);
        self.b.switch_to_block(goes);
        self.go_on_with_group(region, next);
        self.b.switch_to_block(over);
        let warp = self.b.use_var(warp);
        if !self.has_rest() {
            return self.next_warp(warp, blocks.warps, blocks.done);
        }
        // The last warp may have no group. The turn is of all.
        let next = self.b.ins().iadd_imm(warp, 1);
        let first = self.b.ins().ishl_imm(next, 5);
        let threads = self.threads_in_groups();
        let more = self.b.ins().icmp(IntCC::UnsignedLessThan, first, threads);
        self.b
            .ins()
            .brif(more, blocks.warps, &[next.into()], blocks.done, &[]);
    }

    /// Where all groups of all warps are done with a region.
    fn end_region(&mut self, region: usize) {
        let (_, wait, exit) = self.region(region);
        let blocks = self.turns().regions[region];
        self.b.switch_to_block(blocks.latch);
        match self.is_for_one_group(region) {
            true => _ = self.b.ins().jump(blocks.done, &[]),
            false => self.next_group(region, blocks.over),
        }
        self.b.switch_to_block(blocks.done);
        self.end_in_step(region);
        if wait.is_some() || region == 0 {
            self.rest_goes(region);
        }
        if blocks.fails {
            let slot = self.lanes().slot;
            let failed = self.b.ins().stack_load(types::I32, slot, FAILED);
            let (part, on) = (self.cold_block(), self.b.create_block());
            self.b.ins().brif(failed, part, &[], on, &[]);
            self.b.switch_to_block(part);
            let (taken, other) = match exit {
                Exit::To(target) => (target, target),
                Exit::Branch { taken, falls, .. } => (taken, falls),
            };
            self.part_warps(taken, other);
            self.b.switch_to_block(on);
        }
        if self.may_part(region) {
            let behind = self.a_region(region).behind.clone();
            self.take_of_block(&behind);
        }
        match exit {
            Exit::To(target) => self.go_to_target(target),
            Exit::Branch {
                block,
                taken,
                falls,
            } => {
                let body = self.body;
                let at = self.lanes().plan.control.first[block];
                if let Step::Instruction(branch) = &body.steps[at]
                    && let Some((guard, negated)) = branch.guard
                    && self.decides_once(region, guard)
                {
                    self.set_form(Form::Once);
                    let guard = self.read(&Arg::Reg(guard), ptx::ast::Type::Pred);
                    let (goes, stays) = (self.b.create_block(), self.b.create_block());
                    let (holds, not) = if negated {
                        (stays, goes)
                    } else {
                        (goes, stays)
                    };
                    self.b.ins().brif(guard, holds, &[], not, &[]);
                    self.b.switch_to_block(goes);
                    self.go_to_target(taken);
                    self.b.switch_to_block(stays);
                    return self.go_to_target(falls);
                }
                self.branch_of_warps(taken, falls);
            }
        }
    }

    pub(in crate::jit::lower) fn group_part(&mut self) -> Part {
        self.turns().part
    }

    /// What the wait is that is lowered.
    pub(in crate::jit::lower) fn group_waits(&mut self, wait: Wait) {
        if self.group_part() == Part::Brings {
            let number = self.turns().wait;
            self.unit.waits[number] = wait;
        }
    }

    /// Where the code of one thread begins for the head of a region.
    pub(in crate::jit::lower) fn thread_head(&mut self, block: usize) -> Block {
        self.thread_block(block)
    }
}
