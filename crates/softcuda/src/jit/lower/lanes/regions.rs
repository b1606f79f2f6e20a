//! In rounds: a warp's groups run through a region one after the other, and the warp goes on from
//! region to region, as [`Regions`](crate::jit::spmd::Regions) says.
//!
//! ```text
//! enter:  what the warp's lanes do together: the operation that the region begins with
//! head:   for each group: take what it keeps from the tile, and its results
//!           the group's code
//! leave:    keep what it has written; bring its operands to what comes next; next group
//! done:   on to the next region, or to the barrier of the block
//! ```
//!
//! All warps of a block run so to the next barrier, one after the other, while they come to the
//! same one: a turn of all. Where the groups of a warp do not go the same way, or threads of a
//! group end up elsewhere, [`PART`] sorts out who stands where, and from then on threads have turns
//! one by one.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, MemFlags, Value, types};
use cranelift_frontend::Variable;

use super::chains::InChain;
use super::meetings::Known;
use super::{FAILED, Form, Lanes};
use crate::grid::context::{BlockContext, CONTINUE, FAULTED, THREAD_STRIDE, Turn};
use crate::grid::rounds::{ALL_MEET, BarrierKind, ENDED, PART, WARP_MEETS, Wait};
use crate::grid::warp::{Meeting, Tile};
use crate::jit::decode::{Arg, RegId};
use crate::jit::lower::Lower;
use crate::jit::object::Outside;
use crate::jit::program::Step;
use crate::jit::recompute;
use crate::jit::spmd::{Class, Exit, Target, WIDTH};

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
    /// Where a lane has its turn by itself.
    pub enter: Block,
    /// The number of the group's first lane.
    pub lane: Variable,
    /// That lane's context.
    pub context: Variable,
    /// The context of the warp's first lane.
    pub threads: Value,
    /// The lanes that the warp has.
    pub limit: Value,
    pub regions: Vec<RegionBlocks>,
    /// The region that is lowered.
    pub region: usize,
    /// Of the branch that ends the region, for the groups so far: bits of threads that all take,
    /// and of those that any takes.
    pub all: Variable,
    pub any: Variable,
    pub part: Part,
    pub in_chain: InChain,
    /// The number of the wait that is lowered.
    pub wait: usize,
    /// Where a turn of all goes on with the next warp.
    pub turn: Block,
    /// Where threads have turns one by one.
    pub over: Block,
}

/// Where the parts of a region begin.
#[derive(Clone, Copy)]
pub(in crate::jit::lower) struct RegionBlocks {
    enter: Block,
    head: Block,
    leave: Block,
    latch: Block,
    /// Threads of a group may end up elsewhere.
    pub fails: bool,
}

impl Lanes {
    /// The heads of regions, and what is live there.
    pub fn heads(&self) -> Vec<(usize, Vec<RegId>)> {
        let heads = self.plan.heads();
        heads.map(|(head, live)| (head, live.to_vec())).collect()
    }
}

impl Lower<'_> {
    pub(super) fn turns(&mut self) -> &mut Turns {
        let turns = self.lanes().turns.as_mut();
        turns.expect("regions are lowered in rounds alone")
    }

    /// Blocks for the parts of regions.
    pub(in crate::jit::lower) fn region_blocks(&mut self, count: usize) -> Vec<RegionBlocks> {
        let mut block = || self.b.create_block();
        (0..count)
            .map(|_| RegionBlocks {
                enter: block(),
                head: block(),
                leave: block(),
                latch: block(),
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
        let stays = match &self.lanes().plan.regions {
            Some(regions) => regions.stays(from, to),
            None => true,
        };
        match stays {
            true => self.lanes().group_blocks[to],
            false => {
                let region = self.turns().region;
                self.turns().regions[region].leave
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
        let leave = self.turns().regions[region].leave;
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
        let latch = self.turns().regions[region].latch;
        self.b.ins().jump(latch, &[]);
    }

    /// Whether a block is a branch that decides for the warp.
    pub(super) fn decides(&mut self, block: usize) -> bool {
        let regions = &self.lanes().plan.regions;
        regions
            .as_ref()
            .is_some_and(|regions| regions.decides(block))
    }

    /// Notes which threads of the group take the branch that the region ends with.
    pub(super) fn decide(&mut self, register: RegId, negated: bool) {
        let region = self.turns().region;
        if self.decides_once(region, register) {
            self.leave_region();
            let next = self.fresh_block();
            return self.enter(next);
        }
        let bits = match self.lanes().plan.class(register) {
            Class::Varying => self.mask_bits(register),
            _ => {
                let guard = self.read(&Arg::Reg(register), ptx::ast::Type::Pred);
                let all = self.b.ins().iconst(types::I32, (1 << WIDTH) - 1);
                let none = self.b.ins().iconst(types::I32, 0);
                self.b.ins().select(guard, all, none)
            }
        };
        let bits = match negated {
            false => bits,
            true => self.b.ins().bxor_imm(bits, (1 << WIDTH) - 1),
        };
        self.store_group_word(bits, offset_of!(Tile, decisions));
        let (all, any) = (self.turns().all, self.turns().any);
        let before = self.b.use_var(all);
        let now = self.b.ins().band(before, bits);
        self.b.def_var(all, now);
        let before = self.b.use_var(any);
        let now = self.b.ins().bor(before, bits);
        self.b.def_var(any, now);
        self.leave_region();
        let next = self.fresh_block();
        self.enter(next);
    }

    /// Whether the last group's guard tells where the warp goes.
    fn decides_once(&mut self, region: usize, guard: RegId) -> bool {
        self.lanes().plan.is_of_warp(guard) && !self.may_part(region)
    }

    /// Puts a word where the tile has one for each group.
    fn store_group_word(&mut self, value: Value, offset: usize) {
        let (lane, tile) = (self.rounds_lane(), self.rounds_tile());
        let at = self.group_word(lane, tile);
        let flags = MemFlags::trusted();
        self.b.ins().store(flags, value, at, offset as i32);
    }

    /// The group is that of the lane of this number, the first of it.
    pub(super) fn set_group(&mut self, lane: Value) {
        let turns = self.turns();
        let (variable, context, threads) = (turns.lane, turns.context, turns.threads);
        self.b.def_var(variable, lane);
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

    /// Lowers all regions. The builder's block is filled.
    pub(super) fn lower_regions(&mut self) {
        self.lower_group_steps();
        let count = self.turns().regions.len();
        // What is brought says what the waits are.
        for region in 0..count {
            self.close_region(region);
        }
        for region in 0..count {
            self.open_region(region);
            self.end_region(region);
        }
    }

    fn region(&mut self, region: usize) -> (usize, Option<(usize, usize)>, Exit) {
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

    /// What a group does last in a region.
    fn close_region(&mut self, region: usize) {
        let (_, _, exit) = self.region(region);
        let blocks = self.turns().regions[region];
        self.turns().region = region;
        self.b.switch_to_block(blocks.leave);
        self.set_form(Form::Once);
        let stores = match &self.lanes().plan.regions {
            Some(regions) => regions.regions[region].stores.clone(),
            None => vec![],
        };
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

    /// What the warp does at the head of a region, and each group when it begins with it.
    fn open_region(&mut self, region: usize) {
        let (head, wait, exit) = self.region(region);
        let blocks = self.turns().regions[region];
        self.turns().region = region;
        self.b.switch_to_block(blocks.enter);
        let chain = self.chain_from(region);
        if let Some(last) = chain.last() {
            let (full, partial) = (self.b.create_block(), self.cold_block());
            let is_full = self.is_full();
            self.b.ins().brif(is_full, full, &[], partial, &[]);
            self.b.switch_to_block(full);
            self.lower_chain(&chain);
            if let (_, _, Exit::To(target)) = self.region(*last) {
                self.go_to_target(target);
            }
            self.b.switch_to_block(partial);
        }
        if let Some((_, number)) = wait {
            let in_chain = self.link(region).is_some();
            self.warp_meets(number, in_chain);
        }
        if blocks.fails {
            let slot = self.lanes().slot;
            let no = self.b.ins().iconst(types::I32, 0);
            self.b.ins().stack_store(no, slot, FAILED);
        }
        if let Exit::Branch { .. } = exit {
            let (all, any) = (self.turns().all, self.turns().any);
            let whole = self.b.ins().iconst(types::I32, (1 << WIDTH) - 1);
            self.b.def_var(all, whole);
            let none = self.b.ins().iconst(types::I32, 0);
            self.b.def_var(any, none);
        }
        let mut loads = match &self.lanes().plan.regions {
            Some(regions) => regions.regions[region].loads.clone(),
            None => vec![],
        };
        // Where threads go on by themselves, the way back to the next group is not from here.
        let of_warp = match region == 0 || self.may_part(region) {
            true => vec![],
            false => self.load_of_warp(&mut loads),
        };
        let zero = self.b.ins().iconst(types::I64, 0);
        self.b.ins().jump(blocks.head, &[zero.into()]);

        let lane = self.b.append_block_param(blocks.head, types::I64);
        self.b.switch_to_block(blocks.head);
        self.set_group(lane);
        self.set_form(Form::Once);
        let x = self.lane_tid(0);
        let first = self.lanes().first;
        self.b.def_var(first, x);
        if region == 0 {
            for register in loads {
                let zero = self.zero(self.register_types[register.0 as usize]);
                self.put_all(register, zero);
            }
        } else {
            self.take_kept(&loads);
        }
        for (register, value) in of_warp {
            self.put_all(register, value);
        }
        if let Some(wait) = wait {
            self.lower_wait(wait, Part::Takes);
        }
        let brings = match &self.lanes().plan.regions {
            Some(regions) => regions.regions[region].brings,
            None => false,
        };
        let begins = match brings {
            true => blocks.leave,
            false => self.lanes().group_blocks[head],
        };
        self.b.ins().jump(begins, &[]);
    }

    /// Takes those registers from the tile that are the same for the warp: what its first lane has.
    fn load_of_warp(&mut self, loads: &mut Vec<RegId>) -> Vec<(RegId, Value)> {
        let plan = &self.lanes().plan;
        let of_warp = |register: &RegId| plan.is_of_warp(*register);
        let of_warp: Vec<RegId> = loads.iter().copied().filter(of_warp).collect();
        let (flags, tile) = (MemFlags::trusted(), self.rounds_tile());
        let mut loaded = vec![];
        for (register, place) in self.places_of(&of_warp) {
            let ty = self.register_types[register.0 as usize];
            let value = self.b.ins().load(ty, flags, tile, place as i32);
            loads.retain(|other| *other != register);
            loaded.push((register, value));
        }
        loaded
    }

    /// The lanes of the warp are at an operation of theirs; a full warp's only if the region is not
    /// in a chain.
    fn warp_meets(&mut self, number: usize, in_chain: bool) {
        let wait = self.unit.waits[number];
        let nothing = wait.kind == Meeting::Sync as u32 && wait.mask == Some(u32::MAX);
        if BarrierKind::of(wait.kind).is_some() || nothing {
            return;
        }
        let (next, over) = (self.b.create_block(), self.turns().over);
        if let Some(known) = Known::of(&wait).filter(|_| !in_chain) {
            let (here, partial) = (self.b.create_block(), self.cold_block());
            let full = self.is_full();
            self.b.ins().brif(full, here, &[], partial, &[]);
            self.b.switch_to_block(here);
            self.meet_here(known);
            self.b.ins().jump(next, &[]);
            self.b.switch_to_block(partial);
        }
        let (block, waits) = (self.block, self.waits_address());
        let stands = self.b.ins().iconst(types::I32, number as i64 + 1);
        let done = self.call_value(&WARP_MEETS, &[block, waits, stands]);
        self.b.ins().brif(done, next, &[], over, &[]);
        self.b.switch_to_block(next);
    }

    /// The next group, and where all groups of the warp are done with a region.
    fn end_region(&mut self, region: usize) {
        let (_, _, exit) = self.region(region);
        let blocks = self.turns().regions[region];
        self.b.switch_to_block(blocks.latch);
        let (lane, limit) = (self.turns().lane, self.turns().limit);
        let lane = self.b.use_var(lane);
        let next = self.b.ins().iadd_imm(lane, WIDTH as i64);
        let more = self.b.ins().icmp(IntCC::UnsignedLessThan, next, limit);
        let done = self.b.create_block();
        self.b
            .ins()
            .brif(more, blocks.head, &[next.into()], done, &[]);
        self.b.switch_to_block(done);
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
            self.part_warp(taken, other);
            self.b.switch_to_block(on);
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
                self.branch_of_warp(taken, falls);
            }
        }
    }

    /// Goes on where the groups of the warp have decided to.
    fn branch_of_warp(&mut self, taken: Target, falls: Target) {
        let (goes, check, stays, parts) = (
            self.b.create_block(),
            self.b.create_block(),
            self.b.create_block(),
            self.cold_block(),
        );
        let (all, any) = (self.turns().all, self.turns().any);
        let all = self.b.use_var(all);
        let all = self.b.ins().icmp_imm(IntCC::Equal, all, (1 << WIDTH) - 1);
        self.b.ins().brif(all, goes, &[], check, &[]);
        self.b.switch_to_block(check);
        let any = self.b.use_var(any);
        self.b.ins().brif(any, parts, &[], stays, &[]);

        self.b.switch_to_block(goes);
        self.go_to_target(taken);
        self.b.switch_to_block(stays);
        self.go_to_target(falls);
        self.b.switch_to_block(parts);
        self.part_warp(taken, falls);
    }

    /// The warp goes on with a region, or with what the block's warps do together.
    fn go_to_target(&mut self, target: Target) {
        let number = match target {
            Target::End => i64::from(ENDED as i32),
            Target::Region(next) => {
                let (_, wait, _) = self.region(next);
                let enter = self.turns().regions[next].enter;
                match wait {
                    Some((_, number)) if self.is_barrier(number) => number as i64 + 1,
                    _ => {
                        self.b.ins().jump(enter, &[]);
                        return;
                    }
                }
            }
        };
        let number = self.b.ins().iconst(types::I32, number);
        let came = match &self.rounds {
            Some(rounds) => rounds.came,
            None => unreachable!("turns are of rounds"),
        };
        self.b.ins().jump(came, &[number.into()]);
    }

    fn is_barrier(&self, number: usize) -> bool {
        BarrierKind::of(self.unit.waits[number].kind).is_some()
    }

    /// What stands for a target in the tile.
    fn stand_for(&mut self, target: Target) -> Value {
        let number = match target {
            Target::End => i64::from(ENDED as i32),
            Target::Region(next) => match self.region(next) {
                (_, Some((_, number)), _) => number as i64 + 1,
                // After the waits come the heads of regions.
                _ => (self.unit.waits.len() - self.turns().regions.len() + next) as i64 + 1,
            },
        };
        self.b.ins().iconst(types::I32, number)
    }

    /// Threads have turns one by one from here: those of the groups that are together stand at
    /// `taken` if they decided so, otherwise at `other`.
    fn part_warp(&mut self, taken: Target, other: Target) {
        let (taken, other) = (self.stand_for(taken), self.stand_for(other));
        self.part_at(taken, other);
    }

    fn part_at(&mut self, taken: Value, other: Value) {
        let (block, waits) = (self.block, self.waits_address());
        let status = self.call_value(&PART, &[block, waits, taken, other]);
        let (over, stop) = (self.turns().over, self.cold_block());
        self.b.ins().brif(status, stop, &[], over, &[]);
        self.b.switch_to_block(stop);
        self.b.ins().return_(&[status]);
    }

    fn waits_address(&mut self) -> Value {
        self.outside(Outside::Waits, 0)
    }

    /// Where a warp has come to a barrier of its block, or to its end: the next warp's turn, or
    /// what the block does together.
    pub(in crate::jit::lower) fn lower_came(&mut self, came: Block, stride: usize) {
        let flags = MemFlags::trusted();
        let block = self.block;
        let field = |offset: usize| (offset_of!(BlockContext, turn) + offset) as i32;
        let number = self.b.append_block_param(came, types::I32);
        self.b.switch_to_block(came);
        let warp = {
            let at = field(offset_of!(Turn, warp));
            self.b.ins().load(types::I32, flags, block, at)
        };
        let at = field(offset_of!(Turn, comes));
        let comes = self.b.ins().load(types::I32, flags, block, at);
        let first = self.b.ins().icmp_imm(IntCC::Equal, warp, 0);
        let same = self.b.ins().icmp(IntCC::Equal, comes, number);
        let ok = self.b.ins().bor(first, same);
        let (on, parts) = (self.b.create_block(), self.cold_block());
        self.b.ins().brif(ok, on, &[], parts, &[]);
        self.b.switch_to_block(parts);
        self.part_at(number, number);

        self.b.switch_to_block(on);
        self.b.ins().store(flags, number, block, at);
        let next = self.b.ins().iadd_imm(warp, 1);
        let threads = self.b.ins().load(
            types::I32,
            flags,
            block,
            offset_of!(BlockContext, threads) as i32,
        );
        let begun = self.b.ins().ishl_imm(next, 5);
        let left = self.b.ins().isub(threads, begun);
        let more = self.b.ins().icmp_imm(IntCC::SignedGreaterThan, left, 0);
        let (another, all) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(more, another, &[], all, &[]);

        self.b.switch_to_block(another);
        let at = field(offset_of!(Turn, tile));
        let tile = self.b.ins().load(types::I64, flags, block, at);
        let tile = self.b.ins().iadd_imm(tile, stride as i64);
        let at = field(offset_of!(Turn, threads));
        let contexts = self.b.ins().load(types::I64, flags, block, at);
        let contexts = self.b.ins().iadd_imm(contexts, 32 * THREAD_STRIDE as i64);
        self.set_turn(next, left, tile, contexts);

        self.b.switch_to_block(all);
        let ended = self
            .b
            .ins()
            .icmp_imm(IntCC::Equal, number, i64::from(ENDED as i32));
        let (end, barrier) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(ended, end, &[], barrier, &[]);
        self.b.switch_to_block(end);
        let status = self.b.ins().iconst(types::I32, i64::from(CONTINUE));
        self.b.ins().return_(&[status]);

        self.b.switch_to_block(barrier);
        let at = offset_of!(BlockContext, stop) as i32;
        let stop = self.b.ins().load(types::I64, flags, block, at);
        let stop = self.b.ins().load(types::I8, flags, stop, 0);
        let (stopped, goes) = (self.cold_block(), self.b.create_block());
        self.b.ins().brif(stop, stopped, &[], goes, &[]);
        self.b.switch_to_block(stopped);
        let status = self.b.ins().iconst(types::I32, i64::from(FAULTED));
        self.b.ins().return_(&[status]);

        self.b.switch_to_block(goes);
        let plain = |wait: &Wait| {
            BarrierKind::of(wait.kind) == Some(BarrierKind::Sync)
                && wait.mask == Some(0)
                && wait.b.is_some_and(|id| id < 16)
        };
        for at in 0..self.unit.waits.len() {
            let wait = self.unit.waits[at];
            if BarrierKind::of(wait.kind).is_none() || plain(&wait) {
                continue;
            }
            let here = self.b.ins().icmp_imm(IntCC::Equal, number, at as i64 + 1);
            let (meets, other) = (self.b.create_block(), self.b.create_block());
            self.b.ins().brif(here, meets, &[], other, &[]);
            self.b.switch_to_block(meets);
            let waits = self.waits_address();
            let done = self.call_value(&ALL_MEET, &[block, waits, number]);
            let (go, over) = (self.b.create_block(), self.turns().over);
            self.b.ins().brif(done, go, &[], over, &[]);
            self.b.switch_to_block(go);
            self.begin_turn_of_all(number);
            self.b.switch_to_block(other);
        }
        self.begin_turn_of_all(number);
    }

    /// A turn of all threads of the block, which stand at this place. Fills the builder's block.
    pub(in crate::jit::lower) fn begin_turn_of_all(&mut self, stands: Value) {
        let (flags, block) = (MemFlags::trusted(), self.block);
        let at = (offset_of!(BlockContext, turn) + offset_of!(Turn, stands)) as i32;
        self.b.ins().store(flags, stands, block, at);
        let zero = self.b.ins().iconst(types::I32, 0);
        let at = offset_of!(BlockContext, threads) as i32;
        let threads = self.b.ins().load(types::I32, flags, block, at);
        let at = offset_of!(BlockContext, tiles) as i32;
        let tile = self.b.ins().load(types::I64, flags, block, at);
        let contexts = self.entry.thread;
        self.set_turn(zero, threads, tile, contexts);
    }

    /// Of a turn of all: the warp's; so many threads are left from it on.
    fn set_turn(&mut self, warp: Value, left: Value, tile: Value, contexts: Value) {
        let (flags, block, turn) = (MemFlags::trusted(), self.block, self.turns().turn);
        let full = self
            .b
            .ins()
            .icmp_imm(IntCC::SignedGreaterThanOrEqual, left, 32);
        let all = self.b.ins().iconst(types::I32, -1);
        let some = self.b.ins().ishl(all, left);
        let some = self.b.ins().bnot(some);
        let lanes = self.b.ins().select(full, all, some);
        let whole = self.b.ins().iconst(types::I32, 1);
        for (value, offset) in [
            (warp, offset_of!(Turn, warp)),
            (lanes, offset_of!(Turn, lanes)),
            (tile, offset_of!(Turn, tile)),
            (contexts, offset_of!(Turn, threads)),
            (whole, offset_of!(Turn, whole)),
        ] {
            let at = (offset_of!(BlockContext, turn) + offset) as i32;
            self.b.ins().store(flags, value, block, at);
        }
        self.b.ins().jump(turn, &[]);
    }

    /// A turn of all goes to where the warp stands: where it starts, or at a barrier.
    pub(in crate::jit::lower) fn enter_all(&mut self, stands: Value) {
        let count = self.turns().regions.len();
        let mut entries = vec![];
        for region in 0..count {
            let (_, wait, _) = self.region(region);
            let enter = self.turns().regions[region].enter;
            match wait {
                Some((_, number)) if self.is_barrier(number) => {
                    entries.push((number as u32 + 1, enter));
                }
                _ if region == 0 => entries.push((0, enter)),
                _ => {}
            }
        }
        let last = entries.pop();
        for (number, enter) in entries {
            let here = self
                .b
                .ins()
                .icmp_imm(IntCC::Equal, stands, i64::from(number));
            let other = self.b.create_block();
            self.b.ins().brif(here, enter, &[], other, &[]);
            self.b.switch_to_block(other);
        }
        if let Some((_, enter)) = last {
            self.b.ins().jump(enter, &[]);
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
