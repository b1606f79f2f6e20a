//! How the warps of a block go on from a region: together, as long as all go the same way.
//!
//! ```text
//! go to a region:   on with it
//! go to a barrier:  all warps are there: what the block does, and on
//! branch:           all agree: there. Each warp agrees in itself: those that go one way go on, to
//!                   where they `came`: the next barrier; then the others. From there on all go
//!                   together again
//! ```
//!
//! Where the lanes of a warp do not agree, or warps come to different barriers, or to one barrier
//! in different turns of a loop, threads have turns one by one until the block has ended.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, MemFlags, Value, types};
use cranelift_frontend::Switch;

use crate::grid::context::{BlockContext, CONTINUE, FAULTED, Turn};
use crate::grid::rounds::{ALL_MEET, BarrierKind, ENDED, NEXT_WARPS, PART, SPLIT, Wait};
use crate::grid::warp::Tile;
use crate::jit::decode::RegId;
use crate::jit::lower::Lower;
use crate::jit::object::Outside;
use crate::jit::spmd::{Exit, Target, WIDTH};

impl Lower<'_> {
    /// A field of the turn.
    pub(super) fn turn_field(&mut self, field: usize) -> Value {
        let (flags, block) = (MemFlags::trusted(), self.block);
        let at = (offset_of!(BlockContext, turn) + field) as i32;
        self.b.ins().load(types::I32, flags, block, at)
    }

    pub(super) fn set_turn_field(&mut self, field: usize, value: Value) {
        let (flags, block) = (MemFlags::trusted(), self.block);
        let at = (offset_of!(BlockContext, turn) + field) as i32;
        self.b.ins().store(flags, value, block, at);
    }

    /// All warps of the block have their turn together.
    fn turn_of_all(&mut self) {
        let zero = self.b.ins().iconst(types::I32, 0);
        let [_, warps] = self.turns().counts;
        self.set_turn_field(offset_of!(Turn, begin), zero);
        self.set_turn_field(offset_of!(Turn, end), warps);
        self.set_turn_field(offset_of!(Turn, split), zero);
    }

    /// All threads of the block start. Fills the builder's block.
    pub(in crate::jit::lower) fn begin_together(&mut self) {
        self.no_rest();
        self.turn_of_all();
        let enter = self.turns().regions[0].enter;
        self.b.ins().jump(enter, &[]);
    }

    /// Whether no warp of the block lacks lanes.
    pub(super) fn warps_are_full(&mut self) -> Value {
        let [threads, _] = self.turns().counts;
        let odd = self.b.ins().band_imm(threads, 31);
        self.b.ins().icmp_imm(IntCC::Equal, odd, 0)
    }

    /// The registers that are live where a region begins.
    fn live_at(&mut self, target: Target) -> Vec<RegId> {
        match target {
            Target::End => vec![],
            Target::Region(next) => self.a_region(next).live.clone(),
        }
    }

    /// The warps of the turn go on with a region, or with what the block does. Fills the builder's
    /// block.
    pub(super) fn go_to_target(&mut self, target: Target) {
        let number = match target {
            Target::End => ENDED,
            Target::Region(next) => match self.barrier_of(next) {
                Some(number) => number,
                None => {
                    let enter = self.turns().regions[next].enter;
                    self.b.ins().jump(enter, &[]);
                    return;
                }
            },
        };
        let split = self.turn_field(offset_of!(Turn, split));
        let apart = match self.warps_may_part() {
            true => self.b.create_block(),
            false => self.cold_block(),
        };
        let together = self.b.create_block();
        self.b.ins().brif(split, apart, &[], together, &[]);

        self.b.switch_to_block(apart);
        let live = self.live_at(target);
        self.keep_of_block(&live);
        let differs = self.differs_from_first(&live);
        let number = self.b.ins().iconst(types::I32, i64::from(number as i32));
        let came = self.turns().came;
        match differs {
            Some(differs) => {
                let parts = self.cold_block();
                let args = [number.into()];
                self.b.ins().brif(differs, parts, &[], came, &args);
                self.b.switch_to_block(parts);
                self.part_at(number, number);
            }
            None => _ = self.b.ins().jump(came, &[number.into()]),
        }

        self.b.switch_to_block(together);
        match target {
            Target::End => {
                self.unless_rest_is_elsewhere(ENDED);
                self.return_with(CONTINUE);
            }
            Target::Region(next) => {
                let together = self.turns().regions[next].together;
                self.b.ins().jump(together, &[]);
            }
        }
    }

    /// Whether warps of the block may go ways of their own as long as no thread does.
    fn warps_may_part(&mut self) -> bool {
        let count = self.turns().regions.len();
        self.unit.spins
            || (0..count).any(|region| match self.region(region) {
                (_, _, Exit::Branch { block, .. }) => match self.guard_of(block) {
                    Some(Some(guard)) => !self.decides_once(region, guard),
                    _ => true,
                },
                _ => false,
            })
    }

    fn return_with(&mut self, status: u32) {
        let status = self.b.ins().iconst(types::I32, i64::from(status));
        self.b.ins().return_(&[status]);
    }

    /// The place of the barrier that a region begins with.
    pub(super) fn barrier_of(&mut self, region: usize) -> Option<u32> {
        let (_, wait, _) = self.region(region);
        let (_, number) = wait?;
        BarrierKind::of(self.unit.waits[number].kind)?;
        Some(number as u32 + 1)
    }

    /// The place where those stand that go to a target.
    fn place_of(&mut self, target: Target) -> u32 {
        match target {
            Target::End => ENDED,
            Target::Region(next) => match self.region(next) {
                (_, Some((_, number)), _) => number as u32 + 1,
                // After the waits come the heads of regions.
                _ => (self.unit.waits.len() - self.turns().regions.len() + next) as u32 + 1,
            },
        }
    }

    /// Goes on where the groups have decided to. Fills the builder's block.
    pub(super) fn branch_of_warps(&mut self, taken: Target, falls: Target) {
        let (goes, check, stays, differ) = (
            self.b.create_block(),
            self.b.create_block(),
            self.b.create_block(),
            self.b.create_block(),
        );
        let (all, any) = (self.turns().all, self.turns().any);
        let all = self.b.use_var(all);
        let every = (1 << WIDTH) - 1;
        let all = self.b.ins().icmp_imm(IntCC::Equal, all, every);
        self.b.ins().brif(all, goes, &[], check, &[]);
        self.b.switch_to_block(check);
        let any = self.b.use_var(any);
        self.b.ins().brif(any, differ, &[], stays, &[]);

        self.b.switch_to_block(goes);
        self.go_to_target(taken);
        self.b.switch_to_block(stays);
        self.go_to_target(falls);

        self.b.switch_to_block(differ);
        if self.has_rest() {
            // Warps do not go ways of their own: those without a group say where they are first.
            return self.part_warps(taken, falls);
        }
        let mut live = self.live_at(taken);
        for register in self.live_at(falls) {
            if !live.contains(&register) {
                live.push(register);
            }
        }
        self.keep_of_block(&live);
        let (there, here) = (self.stand_at(taken), self.stand_at(falls));
        let block = self.block;
        let split = self.call_value(&SPLIT, &[block, there, here]);
        let (first, parts) = (self.b.create_block(), self.cold_block());
        self.b.ins().brif(split, first, &[], parts, &[]);
        self.b.switch_to_block(first);
        self.go_where_they_stand();
        self.b.switch_to_block(parts);
        self.part_warps(taken, falls);
    }

    fn stand_at(&mut self, target: Target) -> Value {
        let place = self.place_of(target);
        self.b.ins().iconst(types::I32, i64::from(place as i32))
    }

    /// The warps of the turn go on where they stand. Fills the builder's block.
    fn go_where_they_stand(&mut self) {
        let begin = self.turn_field(offset_of!(Turn, begin));
        let tile = self.tile_of(begin);
        let at = offset_of!(Tile, stands) as i32;
        let flags = MemFlags::trusted();
        let stands = self.b.ins().load(types::I32, flags, tile, at);
        let dispatch = self.turns().dispatch;
        self.b.ins().jump(dispatch, &[stands.into()]);
    }

    /// Threads have turns one by one from here: those of the groups that are together stand at
    /// `taken` if they decided so, otherwise at `other`. What they keep lies in the tiles. Fills
    /// the builder's block.
    pub(super) fn part_warps(&mut self, taken: Target, other: Target) {
        let (taken, other) = (self.stand_at(taken), self.stand_at(other));
        self.part_at(taken, other);
    }

    pub(super) fn part_at(&mut self, taken: Value, other: Value) {
        let (block, waits) = (self.block, self.waits_address());
        let status = self.call_value(&PART, &[block, waits, taken, other]);
        self.one_by_one(status);
    }

    /// Threads have turns one by one, unless this status says otherwise. Fills the builder's block.
    pub(super) fn one_by_one(&mut self, status: Value) {
        let (over, stop) = (self.turns().over, self.cold_block());
        self.b.ins().brif(status, stop, &[], over, &[]);
        self.b.switch_to_block(stop);
        self.b.ins().return_(&[status]);
    }

    pub(super) fn waits_address(&mut self) -> Value {
        self.outside(Outside::Waits, 0)
    }

    /// What leads from region to region where not all warps go the same way, and the barriers.
    pub(in crate::jit::lower) fn close_regions(&mut self) {
        let places = self.entries();
        self.lower_came();
        for region in 0..self.turns().regions.len() {
            self.lower_barrier(region);
        }
        let (dispatch, came) = (self.turns().dispatch, self.turns().came);
        let number = self.b.append_block_param(dispatch, types::I32);
        self.b.switch_to_block(dispatch);
        let mut switch = Switch::new();
        for (place, load) in places {
            switch.set_entry(u128::from(place), load);
        }
        let elsewhere = self.b.create_block();
        switch.emit(&mut self.b, number, elsewhere);
        // They have ended.
        self.b.switch_to_block(elsewhere);
        self.b.ins().jump(came, &[number.into()]);
    }

    /// The regions that warps come to by themselves: where they stand, and where they go on.
    fn entries(&mut self) -> Vec<(u32, Block)> {
        let mut entries = vec![];
        for region in 0..self.turns().regions.len() {
            let blocks = self.turns().regions[region];
            let target = Target::Region(region);
            let barrier = self.barrier_of(region).is_some();
            let all = self
                .lanes()
                .plan
                .regions
                .iter()
                .flat_map(|all| &all.regions);
            let leads = |exit: Exit| match exit {
                Exit::Branch { taken, falls, .. } => [taken, falls].contains(&target),
                Exit::To(_) => false,
            };
            if !barrier && !all.map(|region| region.exit).any(leads) {
                continue;
            }
            entries.push((self.place_of(target), blocks.load));
            self.b.switch_to_block(blocks.load);
            let live = self.live_at(target);
            self.take_of_block(&live);
            let goes = if barrier {
                blocks.together
            } else {
                blocks.enter
            };
            self.b.ins().jump(goes, &[]);
        }
        entries
    }

    /// Some warps have come to a barrier of their block, or to their end: the turn of the next
    /// ones, or that of all.
    fn lower_came(&mut self) {
        let came = self.turns().came;
        let number = self.b.append_block_param(came, types::I32);
        self.b.switch_to_block(came);
        let begin = self.turn_field(offset_of!(Turn, begin));
        let comes = self.turn_field(offset_of!(Turn, comes));
        let first = self.b.ins().icmp_imm(IntCC::Equal, begin, 0);
        let same = self.b.ins().icmp(IntCC::Equal, comes, number);
        let ok = self.b.ins().bor(first, same);
        let (on, parts) = (self.b.create_block(), self.cold_block());
        self.b.ins().brif(ok, on, &[], parts, &[]);
        self.b.switch_to_block(parts);
        self.part_at(number, number);

        self.b.switch_to_block(on);
        self.set_turn_field(offset_of!(Turn, comes), number);
        let end = self.turn_field(offset_of!(Turn, end));
        let [_, warps] = self.turns().counts;
        let more = self.b.ins().icmp(IntCC::UnsignedLessThan, end, warps);
        let (others, all) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(more, others, &[], all, &[]);

        self.b.switch_to_block(others);
        let block = self.block;
        let stands = self.call_value(&NEXT_WARPS, &[block]);
        let dispatch = self.turns().dispatch;
        self.b.ins().jump(dispatch, &[stands.into()]);

        self.b.switch_to_block(all);
        self.turn_of_all();
        let ended = i64::from(ENDED as i32);
        let ended = self.b.ins().icmp_imm(IntCC::Equal, number, ended);
        let (end, barrier) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(ended, end, &[], barrier, &[]);
        self.b.switch_to_block(end);
        self.return_with(CONTINUE);
        self.b.switch_to_block(barrier);
        let dispatch = self.turns().dispatch;
        self.b.ins().jump(dispatch, &[number.into()]);
    }

    /// All warps are at the barrier that a region begins with.
    fn lower_barrier(&mut self, region: usize) {
        let Some(number) = self.barrier_of(region) else {
            return;
        };
        let (flags, block) = (MemFlags::trusted(), self.block);
        let blocks = self.turns().regions[region];
        self.b.switch_to_block(blocks.together);
        let at = offset_of!(BlockContext, stop) as i32;
        let stop = self.b.ins().load(types::I64, flags, block, at);
        let stop = self.b.ins().load(types::I8, flags, stop, 0);
        let (stopped, goes) = (self.cold_block(), self.b.create_block());
        self.b.ins().brif(stop, stopped, &[], goes, &[]);
        self.b.switch_to_block(stopped);
        self.return_with(FAULTED);

        self.b.switch_to_block(goes);
        self.unless_rest_is_elsewhere(number);
        let Wait { kind, mask, b, .. } = self.unit.waits[number as usize - 1];
        let for_all = BarrierKind::of(kind) == Some(BarrierKind::Sync)
            && mask == Some(0)
            && b.is_some_and(|id| id < 16);
        if !for_all {
            let waits = self.waits_address();
            let number = self.b.ins().iconst(types::I32, i64::from(number));
            let done = self.call_value(&ALL_MEET, &[block, waits, number]);
            let (on, apart) = (self.b.create_block(), self.cold_block());
            self.b.ins().brif(done, on, &[], apart, &[]);
            self.b.switch_to_block(apart);
            let live = self.live_at(Target::Region(region));
            self.keep_of_block(&live);
            let over = self.turns().over;
            self.b.ins().jump(over, &[]);
            self.b.switch_to_block(on);
        }
        self.b.ins().jump(blocks.enter, &[]);
    }
}
