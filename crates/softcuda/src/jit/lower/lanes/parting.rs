//! Threads of a group that part: what they leave for each other, and how they join again.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    self, Block, BlockArg, InstBuilder, MemFlags, StackSlot, Type as ValueType, Value, types,
};
use cranelift_frontend::Switch;

use super::columns::Place;
use super::{
    ENDED, FIRST, Form, GROUP, JOIN, Kept, LANDING, LANE, Landing, NO_LANE, NOWHERE, STANDS, WARP,
    vector_of,
};
use crate::grid::context::BlockContext;
use crate::grid::rounds::MOVED;
use crate::jit::decode::RegId;
use crate::jit::lower::Lower;
use crate::jit::lower::entry::Entry;
use crate::jit::spmd::WIDTH;

/// Where each thread of a group stands.
pub(super) type Stands = [Value; WIDTH / 4];

impl Lower<'_> {
    /// What says that threads stand where a block begins, or that they have ended.
    pub(super) fn stands(&mut self, block: Option<usize>) -> Stands {
        let number = block.map_or(ENDED, |block| block as i64 + 1);
        let number = self.b.ins().iconst(types::I32, number);
        [self.b.ins().splat(types::I32X4, number); WIDTH / 4]
    }

    /// The first in threads that have a bit set, the second in others.
    pub(super) fn stands_by_bits(&mut self, bits: Value, yes: Stands, no: Stands) -> Stands {
        let bits = self.b.ins().splat(types::I32X4, bits);
        let mut stands = no;
        for (chunk, stand) in stands.iter_mut().enumerate() {
            let own = std::array::from_fn(|lane| 1 << (4 * chunk + lane));
            let own = self.constant_words(own);
            let set = self.b.ins().band(bits, own);
            let set = self.b.ins().icmp(IntCC::Equal, set, own);
            *stand = self.b.ins().bitselect(set, yes[chunk], no[chunk]);
        }
        stands
    }

    /// The threads of the group go on by themselves: each where it stands, one of `blocks`. The
    /// builder's block is filled.
    pub(super) fn part(&mut self, blocks: &[usize], stands: Stands, join: Option<usize>) {
        let landing = self.landing(join);
        let mut live: Vec<RegId> = vec![];
        for block in blocks {
            self.parts_at(*block);
            live.extend(&self.lanes().plan.live[*block]);
        }
        live.sort_unstable_by_key(|register| register.0);
        live.dedup();
        self.take_what_passes(&live);
        for register in live {
            self.leave_register(register);
        }
        if let Some(join) = join {
            self.parts_at(join);
            self.lanes().joins[join] = true;
        }
        let join = join.map_or(NOWHERE, |join| join as i64 + 1);
        let mut args = stands.to_vec();
        for number in [join, landing as i64] {
            args.push(self.b.ins().iconst(types::I32, number));
        }
        let args: Vec<BlockArg> = args.into_iter().map(BlockArg::from).collect();
        let leaves = self.lanes().leaves;
        self.b.ins().jump(leaves, &args);
    }

    /// A block that threads of groups come to as they part.
    pub(super) fn leaving_block(&mut self) -> Block {
        let block = self.cold_block();
        let stands = [types::I32X4; WIDTH / 4];
        for ty in stands.into_iter().chain([types::I32; 2]) {
            self.b.append_block_param(block, ty);
        }
        block
    }

    /// What all that part have in common: the group's threads get their turns, where they stand,
    /// join and land is said. Fills the block that they go to.
    fn leave(&mut self) {
        let (leaves, slot) = (self.lanes().leaves, self.lanes().slot);
        self.b.switch_to_block(leaves);
        self.set_form(Form::Once);
        let places = (0..WIDTH as i32 / 4).map(|chunk| STANDS + 16 * chunk);
        let given = self.b.block_params(leaves).to_vec();
        for (value, place) in given.into_iter().zip(places.chain([JOIN, LANDING])) {
            self.b.ins().stack_store(value, slot, place);
        }
        let first = self.lanes().first;
        let first = self.b.use_var(first);
        self.b.ins().stack_store(first, slot, FIRST);
        if self.in_turns() {
            // Those that go on say where they come to; the others have ended.
            self.group_stands(i64::from(crate::grid::rounds::ENDED as i32));
            let moved = self.b.ins().iconst(types::I32, i64::from(MOVED));
            let at = offset_of!(BlockContext, start) as i32;
            let block = self.block;
            self.b.ins().store(MemFlags::trusted(), moved, block, at);
            let lane = self.rounds_lane();
            let lane = self.b.ins().ireduce(types::I32, lane);
            self.b.ins().stack_store(lane, slot, GROUP);
            let warp = self.turns().warp;
            let warp = self.b.use_var(warp);
            self.b.ins().stack_store(warp, slot, WARP);
        }
        let before = self.b.ins().iconst(types::I32, NO_LANE);
        self.b.ins().stack_store(before, slot, LANE);
        let next = self.lanes().next;
        self.b.ins().jump(next, &[]);
        self.set_form(Form::Thread);
    }

    /// Where the code of one thread begins for a block of the plan.
    pub(super) fn thread_block(&mut self, block: usize) -> Block {
        if let Some(begins) = self.lanes().thread_blocks[block] {
            return begins;
        }
        let begins = self.b.create_block();
        self.lanes().thread_blocks[block] = Some(begins);
        begins
    }

    /// Threads of a group that parted may stand at a block.
    fn parts_at(&mut self, block: usize) {
        self.thread_block(block);
        self.lanes().stands[block] = true;
    }

    /// Where a register lies in the slot.
    pub(super) fn place(&mut self, register: RegId) -> i32 {
        let bytes = self.element(register).bytes() as i32 * WIDTH as i32;
        let lanes = self.lanes();
        if let Some(place) = lanes.places.get(&register) {
            return *place;
        }
        let place = (lanes.size + 15) & !15;
        lanes.places.insert(register, place);
        lanes.size = place + bytes;
        place
    }

    /// The type of a thread's value in the slot: a predicate's has 32 bits, all set or none.
    pub(super) fn element(&self, register: RegId) -> ValueType {
        match self.is_predicate(register) {
            true => types::I32,
            false => self.register_types[register.0 as usize],
        }
    }

    /// Leaves what a group has in a register for the code of one thread.
    pub(super) fn leave_register(&mut self, register: RegId) {
        let (place, slot) = (self.place(register), self.lanes().slot);
        self.leave_at(register, slot, place);
    }

    /// Leaves what a group has in a register in a slot.
    pub(super) fn leave_at(&mut self, register: RegId, slot: StackSlot, place: i32) {
        match self.kept_of(register) {
            Kept::One(variable) => {
                let value = self.b.use_var(variable);
                let value = self.slot_value(register, value);
                self.b.ins().stack_store(value, slot, place);
            }
            Kept::Vectors(variables) => {
                for (chunk, variable) in (0..).zip(variables) {
                    let value = self.b.use_var(variable);
                    self.b.ins().stack_store(value, slot, place + 16 * chunk);
                }
            }
            Kept::Each(variables) => {
                let bytes = self.element(register).bytes() as i32;
                for (lane, variable) in (0..).zip(variables) {
                    let value = self.b.use_var(variable);
                    let value = self.slot_value(register, value);
                    self.b.ins().stack_store(value, slot, place + bytes * lane);
                }
            }
        }
    }

    /// What a group has left in a register for its thread of this number, or what follows from its
    /// first thread's value.
    pub(super) fn left_by_group(
        &mut self,
        register: RegId,
        first: Option<Value>,
        lane: Value,
    ) -> Value {
        let ty = self.element(register);
        let Some(first) = first else {
            let (from, at) = self.place_of_lane(register, lane);
            let value = self.b.ins().load(ty, MemFlags::trusted(), from, at);
            return self.register_value(register, value);
        };
        match self.more_in_lane(register, lane) {
            Some(more) => self.b.ins().iadd(first, more),
            None => first,
        }
    }

    /// How much more a thread of the group has in a register that counts up than the first one.
    fn more_in_lane(&mut self, register: RegId, lane: Value) -> Option<Value> {
        let ty = self.element(register);
        let stride = self.lanes().plan.class(register).stride();
        let stride = stride.filter(|stride| *stride != 0)?;
        let (lane, stride) = match ty {
            types::I64 => (lane, stride),
            _ => (self.b.ins().ireduce(ty, lane), i64::from(stride as i32)),
        };
        Some(self.b.ins().imul_imm(lane, stride))
    }

    /// Leaves what the group's thread of this number has in a register for the group. Nobody writes
    /// a register by himself of which the group has one value.
    pub(super) fn leave_for_group(&mut self, register: RegId, lane: Value) {
        if matches!(self.lanes().kept(register), Kept::One(_)) {
            return;
        }
        let value = self.held(register);
        let value = self.slot_value(register, value);
        let (to, at) = self.place_of_lane(register, lane);
        self.b.ins().store(MemFlags::trusted(), value, to, at);
    }

    /// The same where the thread may have written it: what the first one has follows from that.
    fn leave_first_for_group(&mut self, register: RegId, lane: Value) {
        if !matches!(self.lanes().kept(register), Kept::One(_)) {
            return self.leave_for_group(register, lane);
        }
        let mut value = self.held(register);
        if let Some(more) = self.more_in_lane(register, lane) {
            value = self.b.ins().isub(value, more);
        }
        let value = self.slot_value(register, value);
        let (place, slot) = (self.place(register), self.lanes().slot);
        self.b.ins().stack_store(value, slot, place);
    }

    /// Where a thread's value of a register lies in the slot: so far from an address that is the
    /// same for all registers of a size.
    fn place_of_lane(&mut self, register: RegId, lane: Value) -> (Value, i32) {
        let (place, bytes) = (self.place(register), self.element(register).bytes());
        (self.in_slot(lane, bytes), place)
    }

    /// The slot's address, and so many bytes more for each thread before this one.
    fn in_slot(&mut self, lane: Value, bytes: u32) -> Value {
        let slot = self.lanes().slot;
        let base = self.b.ins().stack_addr(types::I64, slot, 0);
        let offset = self.b.ins().imul_imm(lane, i64::from(bytes));
        self.b.ins().iadd(base, offset)
    }

    /// Copies the local memory of the group's thread of this number from the slot, or into it.
    fn copy_local(&mut self, lane: Value, from_slot: bool) {
        let Some(place) = self.lanes().local else {
            return;
        };
        let size = self.body.tables.frame;
        let kept = self.in_slot(lane, size.next_multiple_of(16) as u32);
        let kept = self.b.ins().iadd_imm(kept, i64::from(place));
        let local = self.entry(Entry::LocalBase);
        let (to, from) = if from_slot {
            (local, kept)
        } else {
            (kept, local)
        };
        self.copy(to, from, size, 8);
    }

    /// Takes room for the local memory of a group's threads, which holds zeros at first.
    fn keep_local(&mut self) {
        let size = self.body.tables.frame;
        if size == 0 || !self.lanes().plan.has_alone() {
            return;
        }
        let lanes = self.lanes();
        let place = (lanes.size + 15) & !15;
        let bytes = WIDTH as i32 * size.next_multiple_of(16) as i32;
        lanes.local = Some(place);
        lanes.size = place + bytes;
        let slot = lanes.slot;
        let zero = self.zero(types::I64);
        let zero = self.b.ins().splat(types::I64X2, zero);
        for at in (place..place + bytes).step_by(16) {
            self.b.ins().stack_store(zero, slot, at);
        }
    }

    /// A thread's value as it lies in the slot.
    pub(super) fn slot_value(&mut self, register: RegId, value: Value) -> Value {
        match self.is_predicate(register) {
            false => value,
            true => {
                let value = self.b.ins().uextend(types::I32, value);
                self.b.ins().ineg(value)
            }
        }
    }

    /// The other way round.
    pub(super) fn register_value(&mut self, register: RegId, value: Value) -> Value {
        match self.is_predicate(register) {
            false => value,
            true => self.b.ins().icmp_imm(IntCC::NotEqual, value, 0),
        }
    }

    /// In the code of one thread, where a step begins a block that threads of a group come to.
    pub(in crate::jit::lower) fn thread_begins(&mut self, at: usize) {
        let Some(lanes) = &self.lanes else {
            return;
        };
        let Some(block) = lanes.plan.control.begins(at) else {
            return;
        };
        let (begins, joins, slot, next) = (
            lanes.thread_blocks[block],
            lanes.joins[block],
            lanes.slot,
            lanes.next,
        );
        let Some(begins) = begins else {
            return;
        };
        if joins {
            // A thread of a group that joins here waits for the others.
            let join = self.b.ins().stack_load(types::I32, slot, JOIN);
            let stands = self.b.ins().icmp_imm(IntCC::Equal, join, block as i64 + 1);
            let stop = self.cold_block();
            self.b.ins().brif(stands, stop, &[], begins, &[]);
            self.enter(stop);
            let lane = self.b.ins().stack_load(types::I32, slot, LANE);
            let lane = self.b.ins().uextend(types::I64, lane);
            for register in self.lanes().plan.live[block].clone() {
                match self.lanes().plan.is_rewritten(block, register) {
                    true => self.leave_first_for_group(register, lane),
                    false => self.leave_for_group(register, lane),
                }
            }
            self.copy_local(lane, false);
            let to = self.in_slot(lane, 4);
            self.b.ins().store(MemFlags::trusted(), join, to, STANDS);
            self.b.ins().jump(next, &[]);
        } else {
            self.b.ins().jump(begins, &[]);
        }
        self.b.switch_to_block(begins);
        self.forget_checks(at);
    }

    /// A thread has ended; the builder is where all that end come together. Goes on where the block
    /// has no groups.
    pub(in crate::jit::lower) fn thread_ends(&mut self) {
        let Some(lanes) = &self.lanes else {
            return;
        };
        let (slot, next) = (lanes.slot, lanes.next);
        let lane = self.b.ins().stack_load(types::I32, slot, LANE);
        let alone = self.b.ins().icmp_imm(IntCC::SignedLessThan, lane, 0);
        let (on, ended) = (self.fresh_block(), self.cold_block());
        self.b.ins().brif(alone, on, &[], ended, &[]);
        self.enter(ended);
        let lane = self.b.ins().uextend(types::I64, lane);
        let to = self.in_slot(lane, 4);
        let over = self.b.ins().iconst(types::I32, ENDED);
        self.b.ins().store(MemFlags::trusted(), over, to, STANDS);
        self.b.ins().jump(next, &[]);
        self.enter(on);
    }

    /// Goes on where a thread stands that parted from its group, if the one that runs has. Gives
    /// the branch.
    pub(in crate::jit::lower) fn unless_parted(&mut self) -> ir::Inst {
        let (slot, parted) = (self.lanes().slot, self.lanes().parted);
        let lane = self.b.ins().stack_load(types::I32, slot, LANE);
        let alone = self.b.ins().icmp_imm(IntCC::SignedLessThan, lane, 0);
        let on = self.fresh_block();
        let branch = self.b.ins().brif(alone, on, &[], parted, &[]);
        self.enter(on);
        branch
    }

    /// What leads from thread to thread of a group that parted, and back to the group.
    pub(in crate::jit::lower) fn close_row(&mut self) {
        if self.lanes.is_none() {
            return;
        }
        self.leave();
        let (slot, next) = (self.lanes().slot, self.lanes().next);
        let flags = MemFlags::trusted();
        let (resume, over) = (self.cold_block(), self.cold_block());

        self.b.switch_to_block(next);
        let lane = self.b.ins().stack_load(types::I32, slot, LANE);
        let lane = self.b.ins().iadd_imm(lane, 1);
        self.b.ins().stack_store(lane, slot, LANE);
        let more = self
            .b
            .ins()
            .icmp_imm(IntCC::UnsignedLessThan, lane, WIDTH as i64);
        self.b.ins().brif(more, resume, &[], over, &[]);

        self.b.switch_to_block(resume);
        let join = self.b.ins().stack_load(types::I32, slot, JOIN);
        let wide = self.b.ins().uextend(types::I64, lane);
        let from = self.in_slot(wide, 4);
        let stands = self.b.ins().load(types::I32, flags, from, STANDS);
        let waits = self.b.ins().icmp(IntCC::Equal, stands, join);
        let (goes, sets) = (self.cold_block(), self.cold_block());
        self.b.ins().brif(waits, next, &[], goes, &[]);
        self.b.switch_to_block(goes);
        let ended = self.b.ins().icmp_imm(IntCC::Equal, stands, ENDED);
        self.b.ins().brif(ended, next, &[], sets, &[]);
        self.b.switch_to_block(sets);
        let parted = self.lanes().parted;
        let enter = self.lanes().turns.as_ref().map(|turns| turns.enter);
        match enter {
            Some(enter) => {
                let first = self.b.ins().stack_load(types::I32, slot, GROUP);
                let first = self.b.ins().uextend(types::I64, first);
                let lane = self.b.ins().iadd(first, wide);
                let warp = self.b.ins().stack_load(types::I32, slot, WARP);
                let (tile, contexts) = (self.tile_of(warp), self.contexts_of(warp));
                let args = [lane.into(), warp.into(), tile.into(), contexts.into()];
                self.b.ins().jump(enter, &args);
            }
            None => {
                let first = self.b.ins().stack_load(types::I32, slot, FIRST);
                let x = self.b.ins().iadd(first, lane);
                let variable = self.lanes().x;
                self.b.def_var(variable, x);
                self.b.ins().jump(parted, &[]);
            }
        }

        self.b.switch_to_block(parted);
        let lane = self.b.ins().stack_load(types::I32, slot, LANE);
        let wide = self.b.ins().uextend(types::I64, lane);
        let from = self.in_slot(wide, 4);
        let stands = self.b.ins().load(types::I32, flags, from, STANDS);
        self.copy_local(wide, true);
        let nobody = self.cold_block();
        let lanes = self.lanes();
        let blocks = lanes.thread_blocks.iter().zip(&lanes.stands).enumerate();
        let entries: Vec<(usize, Block)> = blocks
            .filter_map(|(block, (begins, stands))| Some((block, begins.filter(|_| *stands)?)))
            .collect();
        let mut switch = Switch::new();
        let mut restores = vec![];
        for (block, begins) in &entries {
            let restore = self.cold_block();
            switch.set_entry(*block as u128 + 1, restore);
            restores.push((*block, *begins, restore));
        }
        switch.emit(&mut self.b, stands, nobody);
        for (block, begins, restore) in restores {
            self.b.switch_to_block(restore);
            for register in self.lanes().plan.live[block].clone() {
                let first = match self.lanes().kept(register) {
                    Kept::One(_) => {
                        let (place, ty) = (self.place(register), self.element(register));
                        let value = self.b.ins().stack_load(ty, slot, place);
                        Some(self.register_value(register, value))
                    }
                    _ => None,
                };
                let value = self.left_by_group(register, first, wide);
                let variable = self.variable(register);
                self.b.def_var(variable, value);
            }
            self.b.ins().jump(begins, &[]);
        }
        // No thread stands anywhere else.
        self.b.switch_to_block(nobody);
        self.b.ins().jump(next, &[]);

        // Every thread has had its turn.
        self.b.switch_to_block(over);
        let join = self.b.ins().stack_load(types::I32, slot, JOIN);
        let wanted = self.b.ins().splat(types::I32X4, join);
        let ended = self.b.ins().iconst(types::I32, ENDED);
        let ended = self.b.ins().splat(types::I32X4, ended);
        let (mut all_join, mut all_ended) = (None, None);
        for chunk in 0..WIDTH as i32 / 4 {
            let stands = self
                .b
                .ins()
                .stack_load(types::I32X4, slot, STANDS + 16 * chunk);
            for (all, want) in [(&mut all_join, wanted), (&mut all_ended, ended)] {
                let same = self.b.ins().icmp(IntCC::Equal, stands, want);
                *all = Some(match *all {
                    None => same,
                    Some(before) => self.b.ins().band(before, same),
                });
            }
        }
        let [all_join, all_ended] = [all_join, all_ended].map(|all| {
            let all = all.expect("a group has a vector");
            let bits = self.b.ins().vhigh_bits(types::I32, all);
            self.b.ins().icmp_imm(IntCC::Equal, bits, 15)
        });
        let none = self.b.ins().iconst(types::I32, NO_LANE);
        let (together, apart, done, again) = (
            self.cold_block(),
            self.cold_block(),
            self.cold_block(),
            self.cold_block(),
        );
        self.b.ins().brif(all_join, together, &[], apart, &[]);
        self.b.switch_to_block(apart);
        self.b.ins().brif(all_ended, done, &[], again, &[]);
        // Some have ended: the others go on by themselves to their ends.
        self.b.switch_to_block(again);
        let nowhere = self.b.ins().iconst(types::I32, NOWHERE);
        self.b.ins().stack_store(nowhere, slot, JOIN);
        self.b.ins().stack_store(none, slot, LANE);
        self.b.ins().jump(next, &[]);
        self.b.switch_to_block(done);
        self.b.ins().stack_store(none, slot, LANE);
        // All may wait before they join: who has its turn by itself later joins nobody.
        let nowhere = self.b.ins().iconst(types::I32, NOWHERE);
        self.b.ins().stack_store(nowhere, slot, JOIN);
        self.land_apart();

        self.b.switch_to_block(together);
        self.b.ins().stack_store(none, slot, LANE);
        let nowhere = self.b.ins().iconst(types::I32, NOWHERE);
        self.b.ins().stack_store(nowhere, slot, JOIN);
        self.land_together();
        self.set_form(Form::Thread);
        let size = self.lanes().size as u32;
        self.b.func.sized_stack_slots[slot].size = size.next_multiple_of(16);
    }

    /// Where the group that is being lowered goes on if its threads part here, and join there.
    fn landing(&mut self, join: Option<usize>) -> usize {
        let spins = self.unit.spins;
        let region = match &mut self.lanes().turns {
            None => 0,
            Some(turns) => {
                turns.regions[turns.region].fails |= join.is_none() || spins;
                turns.region
            }
        };
        // What groups take at the head of a region hangs on it.
        debug_assert!(!self.in_turns() || self.may_part(region), "region {region}");
        let landing = Landing { join, region };
        let landings = &mut self.lanes().landings;
        match landings.iter().position(|known| *known == landing) {
            Some(at) => at,
            None => {
                landings.push(landing);
                landings.len() - 1
            }
        }
    }

    /// The threads of a group have joined: it goes on there.
    fn land_together(&mut self) {
        let slot = self.lanes().slot;
        let landing = self.b.ins().stack_load(types::I32, slot, LANDING);
        let mut switch = Switch::new();
        let mut restores = vec![];
        for (at, landing) in self.lanes().landings.clone().into_iter().enumerate() {
            if landing.join.is_some() {
                let restore = self.cold_block();
                switch.set_entry(at as u128, restore);
                restores.push((at, landing, restore));
            }
        }
        let elsewhere = self.cold_block();
        switch.emit(&mut self.b, landing, elsewhere);
        for (at, landing, restore) in restores {
            self.b.switch_to_block(restore);
            self.restore_group();
            if self.has_columns(landing.region) {
                let lane = self.rounds_lane();
                self.go_on_at(landing.region, lane, Place::Landing(at));
            } else {
                self.land(landing);
            }
        }
        // Threads join nowhere else.
        self.b.switch_to_block(elsewhere);
        self.b.ins().jump(elsewhere, &[]);
    }

    /// A group goes on whose threads have joined. Fills the builder's block.
    pub(super) fn land(&mut self, Landing { join, region }: Landing) {
        let Some(join) = join else {
            return;
        };
        for register in self.lanes().plan.live[join].clone() {
            if !self.is_held(region, register) {
                self.take_register(register);
            }
        }
        let goes = self.way_in(region, join);
        self.b.ins().jump(goes, &[]);
    }

    /// What says which group it is that parted.
    fn restore_group(&mut self) {
        let (slot, first) = (self.lanes().slot, self.lanes().first);
        let at = self.b.ins().stack_load(types::I32, slot, FIRST);
        self.b.def_var(first, at);
        if self.in_turns() {
            let warp = self.b.ins().stack_load(types::I32, slot, WARP);
            self.begin_warp(warp);
            let lane = self.b.ins().stack_load(types::I32, slot, GROUP);
            let lane = self.b.ins().uextend(types::I64, lane);
            self.set_group(lane);
            self.set_form(Form::Once);
        }
    }

    /// All threads of a group that parted have ended, or wait: the next one's turn.
    fn land_apart(&mut self) {
        let slot = self.lanes().slot;
        if !self.in_turns() {
            let latch = self.lanes().latch;
            let first = self.b.ins().stack_load(types::I32, slot, FIRST);
            self.b.ins().jump(latch, &[first.into()]);
            return;
        }
        self.restore_group();
        let landing = self.b.ins().stack_load(types::I32, slot, LANDING);
        let mut switch = Switch::new();
        let mut leaves = vec![];
        for (at, landing) in self.lanes().landings.clone().into_iter().enumerate() {
            let leave = self.cold_block();
            switch.set_entry(at as u128, leave);
            leaves.push((landing.region, leave));
        }
        let elsewhere = self.cold_block();
        switch.emit(&mut self.b, landing, elsewhere);
        for (region, leave) in leaves {
            self.b.switch_to_block(leave);
            self.leave_apart(region);
        }
        // Groups part nowhere else.
        self.b.switch_to_block(elsewhere);
        self.b.ins().jump(elsewhere, &[]);
    }

    /// Takes what lies in the slot into a register of a group.
    pub(super) fn take_register(&mut self, register: RegId) {
        let (place, slot) = (self.place(register), self.lanes().slot);
        let ty = self.element(register);
        match self.lanes().kept(register).clone() {
            Kept::One(variable) => {
                let value = self.b.ins().stack_load(ty, slot, place);
                let value = self.register_value(register, value);
                self.b.def_var(variable, value);
            }
            Kept::Vectors(variables) => {
                for (chunk, variable) in variables.into_iter().enumerate() {
                    let at = place + 16 * chunk as i32;
                    let value = self.b.ins().stack_load(vector_of(ty), slot, at);
                    self.b.def_var(variable, value);
                }
            }
            Kept::Each(variables) => {
                for (lane, variable) in variables.into_iter().enumerate() {
                    let at = place + ty.bytes() as i32 * lane as i32;
                    let value = self.b.ins().stack_load(ty, slot, at);
                    self.b.def_var(variable, value);
                }
            }
        }
    }

    /// No group has parted.
    pub(in crate::jit::lower) fn alone(&mut self) {
        let slot = self.lanes().slot;
        let none = self.b.ins().iconst(types::I32, NO_LANE);
        self.b.ins().stack_store(none, slot, LANE);
        let nowhere = self.b.ins().iconst(types::I32, NOWHERE);
        self.b.ins().stack_store(nowhere, slot, JOIN);
        self.keep_local();
    }
}
