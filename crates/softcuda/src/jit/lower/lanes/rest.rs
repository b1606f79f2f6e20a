//! Threads that make no group: the last ones of a block whose threads are no multiple of a group's.
//!
//! They go from wait to wait as the groups do, but one by one, with the code of one thread: after
//! the groups have been through a region that begins with a wait, or the first one, each of them
//! goes on to where it waits next, or to its end. A region that begins otherwise they have behind
//! them when groups come to it. Where one of them waits elsewhere than the groups, threads have
//! turns one by one until the block has ended.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, MemFlags, StackSlot, Value, types};
use cranelift_frontend::Switch;

use crate::grid::context::Turn;
use crate::grid::rounds::START;
use crate::grid::warp::Tile;
use crate::jit::lower::Lower;
use crate::jit::lower::function::slot;
use crate::jit::spmd::WIDTH;

/// What leads from the code of one thread back to that of groups.
pub(in crate::jit::lower) struct Rest {
    /// In the native stack: the number of the region, counted from 1, that threads without a group
    /// have their turns for; 0: none.
    slot: StackSlot,
    /// By region, where the block goes on.
    follow: Vec<(usize, Block)>,
}

/// Where the threads are.
struct Place {
    warp: Value,
    tile: Value,
    /// The number of the first one in its warp.
    lane: Value,
    /// As many bits as there are threads, from the lowest one on.
    bits: Value,
    /// The address of where they stand.
    stands: Value,
}

impl Lower<'_> {
    /// Whether some threads of the block make no group.
    pub(super) fn has_rest(&self) -> bool {
        self.unit.rows.has_rest()
    }

    /// What is needed where some make none.
    pub(in crate::jit::lower) fn new_rest(&mut self) -> Option<Rest> {
        self.has_rest().then(|| Rest {
            slot: slot(&mut self.b, 4),
            follow: vec![],
        })
    }

    /// No thread has a turn for a region.
    pub(in crate::jit::lower) fn no_rest(&mut self) {
        if let Some(slot) = self.turns().rest.as_ref().map(|rest| rest.slot) {
            let none = self.b.ins().iconst(types::I32, 0);
            self.b.ins().stack_store(none, slot, 0);
        }
    }

    /// How many threads of the block are in groups.
    pub(super) fn threads_in_groups(&mut self) -> Value {
        let [threads, _] = self.turns().counts;
        match self.has_rest() {
            true => self.b.ins().band_imm(threads, -(WIDTH as i64)),
            false => threads,
        }
    }

    fn place_of_rest(&mut self) -> Place {
        let [threads, _] = self.turns().counts;
        let count = self.b.ins().band_imm(threads, WIDTH as i64 - 1);
        let one = self.b.ins().iconst(types::I32, 1);
        let bits = self.b.ins().ishl(one, count);
        let bits = self.b.ins().iadd_imm(bits, -1);
        let first = self.threads_in_groups();
        let warp = self.b.ins().ushr_imm(first, 5);
        let lane = self.b.ins().band_imm(first, 31);
        let tile = self.tile_of(warp);
        let distance = self.b.ins().uextend(types::I64, lane);
        let distance = self.b.ins().ishl_imm(distance, 2);
        let stands = self.b.ins().iadd(tile, distance);
        let stands = self
            .b
            .ins()
            .iadd_imm(stands, offset_of!(Tile, stands) as i64);
        Place {
            warp,
            tile,
            lane,
            bits,
            stands,
        }
    }

    /// Threads have turns one by one from here, unless those without a group stand at a place, as
    /// the groups do. What they keep lies in the tiles.
    pub(super) fn unless_rest_is_elsewhere(&mut self, place: u32) {
        if !self.has_rest() {
            return;
        }
        let Place { bits, stands, .. } = self.place_of_rest();
        let flags = MemFlags::trusted();
        let place = self.b.ins().iconst(types::I32, i64::from(place as i32));
        let places = self.b.ins().splat(types::I32X4, place);
        let mut elsewhere = bits;
        for chunk in 0..WIDTH as i32 / 4 {
            let stand = self.b.ins().load(types::I32X4, flags, stands, 16 * chunk);
            let here = self.b.ins().icmp(IntCC::Equal, stand, places);
            let here = self.b.ins().vhigh_bits(types::I32, here);
            let here = self.b.ins().ishl_imm(here, i64::from(4 * chunk));
            elsewhere = self.b.ins().band_not(elsewhere, here);
        }
        let (parts, on) = (self.cold_block(), self.b.create_block());
        self.b.ins().brif(elsewhere, parts, &[], on, &[]);
        self.b.switch_to_block(parts);
        self.part_at(place, place);
        self.b.switch_to_block(on);
    }

    /// The threads without a group go on from where they stand, to where they wait next.
    pub(super) fn rest_goes(&mut self, region: usize) {
        let Some(slot) = self.turns().rest.as_ref().map(|rest| rest.slot) else {
            return;
        };
        let Place {
            warp,
            tile,
            lane,
            bits,
            stands,
        } = self.place_of_rest();
        let threads = self.contexts_of(warp);
        let number = self.b.ins().iconst(types::I32, region as i64 + 1);
        self.set_turn_field(offset_of!(Turn, warp), warp);
        self.set_turn_field(offset_of!(Turn, tile), tile);
        self.set_turn_field(offset_of!(Turn, threads), threads);
        if region == 0 {
            // They stand where those of the block before have ended.
            let flags = MemFlags::trusted();
            let start = self.b.ins().iconst(types::I32, i64::from(START));
            let start = self.b.ins().splat(types::I32X4, start);
            for chunk in 0..WIDTH as i32 / 4 {
                self.b.ins().store(flags, start, stands, 16 * chunk);
            }
        }
        self.b.ins().stack_store(number, slot, 0);
        let lanes = self.b.ins().ishl(bits, lane);
        let follow = self.b.create_block();
        let head = self.rounds.as_ref().map(|rounds| rounds.head());
        let head = head.expect("regions are of rounds");
        self.b.ins().jump(head, &[lanes.into()]);
        self.b.switch_to_block(follow);
        self.no_rest();
        // Where threads have turns one by one from here, the first warp begins.
        let none = self.b.ins().iconst(types::I32, 0);
        self.set_turn_field(offset_of!(Turn, warp), none);
        if let Some(rest) = &mut self.turns().rest {
            rest.follow.push((region, follow));
        }
    }

    /// All lanes of a turn had it: the block goes on, if it was one of those without a group;
    /// otherwise the turn is over. Fills the builder's block.
    pub(in crate::jit::lower) fn end_turn(&mut self, over: Block) {
        let Some(rest) = self.turns().rest.take() else {
            return;
        };
        let mut switch = Switch::new();
        for (region, follow) in rest.follow {
            switch.set_entry(region as u128 + 1, follow);
        }
        let region = self.b.ins().stack_load(types::I32, rest.slot, 0);
        switch.emit(&mut self.b, region, over);
    }
}
