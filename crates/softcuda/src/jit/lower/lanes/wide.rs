//! Wide groups, as [`spmd::Wide`](crate::jit::spmd::Wide) plans them: a region's code once more,
//! for more threads.
//!
//! ```text
//! warps:  for each warp, if its lanes make up wide groups:
//! head:     for each wide group: take what it keeps from the tile
//!             its code; where its threads may not agree: keep all, resume
//! leave:      keep what it has written; next wide group
//! resume:   for each group of those threads: take all, go on in the group's code, to its end
//! ```
//!
//! Where no thread waits, wide groups are those of a row of threads, and what they keep lies in a
//! slot of the native stack:
//!
//! ```text
//! begins: if wide groups make up the row:
//!           the wide group's code; where its threads may not agree: keep all, resume
//! latch:    next wide group
//! head:     for each group of those threads, or of all: its code
//! resume:   for each group of those threads: take all, go on in the group's code, to its end
//! ```
//!
//! While a wide group's code is lowered, the plan's classes and ways, the registers and the blocks
//! are its own.

use std::collections::HashMap;
use std::mem::{offset_of, swap};

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, Block, InstBuilder, MemFlags, Value, types};

use super::columns::Place;
use super::regions::Part;
use super::{Form, Kept};
use crate::grid::warp::Tile;
use crate::jit::decode::RegId;
use crate::jit::lower::Lower;
use crate::jit::lower::entry::Entry;
use crate::jit::lower::function::slot;
use crate::jit::spmd::{Class, Exit, Rows, Target, WIDEST, WIDTH, Wide};

/// What the wide form needs, while a function is lowered.
pub(in crate::jit::lower) struct WideForm {
    /// What is lowered is the code of a wide group.
    now: bool,
    /// The plan. Its classes and ways, and the three fields below, are those of the form that is
    /// not lowered now.
    plan: Wide,
    masked: Vec<Option<crate::jit::spmd::Masked>>,
    registers: Vec<Option<Kept>>,
    blocks: Vec<Block>,
    /// By region.
    regions: Vec<Option<WideBlocks>>,
    /// By region, whether threads of a group may go on by themselves, see
    /// [`may_part`](Lower::may_part).
    parts: Vec<bool>,
    /// Whether groups go on for a wide one: the number of the place, counted from 1.
    resumes: ir::StackSlot,
    /// Of predicates that the region takes and does not write, a bit for each thread.
    bits: HashMap<RegId, Value>,
    row: Option<Row>,
}

/// Of the wide form where no thread waits.
struct Row {
    /// The loop over groups.
    head: Block,
    /// Of the form that is not lowered now, as in [`Lanes`](super::Lanes).
    latch: Block,
    turns: [Block; 2],
    /// What is kept for the groups of a wide one, and where in it registers lie.
    kept: ir::StackSlot,
    places: HashMap<RegId, usize>,
    size: usize,
}

/// Where the parts of a region's wide form begin.
#[derive(Clone)]
struct WideBlocks {
    head: Block,
    /// The way to the loop over groups: what all of those need is computed here.
    narrow: Block,
    leave: Block,
    /// Blocks of the plan, and where groups begin that go on from there.
    resumes: Vec<(usize, Block)>,
}

impl WideForm {
    /// Without regions: `plan_wide` decides which have the form.
    pub fn new(l: &mut Lower<'_>, plan: Wide) -> WideForm {
        let count = l.lanes().plan.control.graph.successors.len();
        let regions = vec![None; plan.regions.len()];
        let parts = (0..regions.len()).map(|region| l.may_part(region));
        let parts = parts.collect();
        WideForm {
            now: false,
            masked: vec![None; count],
            registers: vec![],
            blocks: (0..count).map(|_| l.b.create_block()).collect(),
            regions,
            parts,
            resumes: slot(&mut l.b, 4),
            bits: HashMap::new(),
            row: None,
            plan,
        }
    }
}

impl Lower<'_> {
    /// Threads of the group whose code is lowered.
    pub(in crate::jit::lower) fn width(&self) -> usize {
        let wide = self.lanes.as_ref().and_then(|lanes| lanes.wide.as_ref());
        match wide {
            Some(wide) if wide.now => wide.plan.width,
            _ => WIDTH,
        }
    }

    pub(super) fn is_wide(&self) -> bool {
        self.width() != WIDTH
    }

    /// Goes from the code of groups to that of wide ones, or back.
    fn turn_wide(&mut self) {
        let lanes = self.lanes();
        let Some(wide) = &mut lanes.wide else {
            return;
        };
        swap(&mut lanes.plan.classes, &mut wide.plan.classes);
        swap(&mut lanes.plan.ways, &mut wide.plan.ways);
        swap(&mut lanes.plan.masked, &mut wide.masked);
        swap(&mut lanes.registers, &mut wide.registers);
        swap(&mut lanes.group_blocks, &mut wide.blocks);
        if let Some(row) = &mut wide.row {
            swap(&mut lanes.latch, &mut row.latch);
            swap(&mut lanes.turn, &mut row.turns[0]);
            swap(&mut lanes.next_turn, &mut row.turns[1]);
        }
        wide.now = !wide.now;
        lanes.bases.fill([None; WIDEST]);
    }

    /// Decides which regions have a wide form, now that all waits are known.
    pub(super) fn plan_wide(&mut self) {
        let Some(wide) = self.lanes().plan.wide.take() else {
            return;
        };
        let mut form = WideForm::new(self, wide);
        for region in 0..form.regions.len() {
            let alone = self.link(region).is_none() && !self.is_for_one_group(region);
            if !form.plan.regions[region] || !alone {
                continue;
            }
            let plan = &self.lanes().plan;
            let of = plan.regions.as_ref().map_or(&[][..], |all| &all.of);
            let inside = form.plan.inside();
            let inside = inside.filter(|block| of[*block] == Some(region)).collect();
            form.regions[region] = Some(self.new_wide_blocks(inside));
        }
        self.lanes().wide = Some(form);
        self.turn_wide();
        self.declare();
        self.turn_wide();
    }

    /// Blocks for groups that give up at these.
    fn new_wide_blocks(&mut self, resumes: Vec<usize>) -> WideBlocks {
        let resumes = resumes.into_iter();
        WideBlocks {
            head: self.b.create_block(),
            narrow: self.b.create_block(),
            leave: self.b.create_block(),
            resumes: resumes
                .map(|block| (block, self.b.create_block()))
                .collect(),
        }
    }

    /// Plans wide groups of a row whose loop over groups begins at `head`, if there are any; where
    /// they begin.
    pub(super) fn plan_wide_row(&mut self, head: Block) -> Option<Block> {
        let wide = self.lanes().plan.wide.take()?;
        let mut form = WideForm::new(self, wide);
        let blocks = self.new_wide_blocks(form.plan.inside().collect());
        let begins = blocks.head;
        for block in [begins, blocks.narrow, blocks.leave] {
            self.b.append_block_param(block, types::I32);
        }
        form.row = Some(Row {
            head,
            latch: blocks.leave,
            turns: [self.b.create_block(), self.b.create_block()],
            kept: slot(&mut self.b, 0),
            places: HashMap::new(),
            size: 0,
        });
        form.regions = vec![Some(blocks)];
        self.lanes().wide = Some(form);
        Some(begins)
    }

    /// Lowers wide groups of a row, which is done at `over`. The builder's block is filled.
    pub(super) fn lower_wide_row(&mut self, over: Block) {
        let Some(blocks) = self.wide_blocks(0) else {
            return;
        };
        self.turn_wide();
        self.declare();
        let first = self.b.block_params(blocks.head)[0];
        self.b.switch_to_block(blocks.head);
        self.set_form(Form::Once);
        let variable = self.lanes().first;
        self.b.def_var(variable, first);
        self.set_resume(0);
        let threads = self.in_groups();
        let width = self.width() as i64;
        let fits = match self.unit.rows {
            Rows::WithRest => {
                let left = self.b.ins().isub(threads, first);
                let fits = IntCC::UnsignedGreaterThanOrEqual;
                self.b.ins().icmp_imm(fits, left, width)
            }
            // What is known of wide groups is so where they make up rows.
            _ => {
                let odd = self.b.ins().band_imm(threads, width - 1);
                self.b.ins().icmp_imm(IntCC::Equal, odd, 0)
            }
        };
        let goes = self.b.create_block();
        self.b
            .ins()
            .brif(fits, goes, &[], blocks.narrow, &[first.into()]);
        self.fill_narrow(&blocks);
        self.b.switch_to_block(goes);
        self.begin_pass();
        self.clear_group();
        self.lower_group_steps();
        self.close_turn();

        self.b.switch_to_block(blocks.leave);
        let at = self.b.block_params(blocks.leave)[0];
        let at = self.b.ins().iadd_imm(at, width);
        let threads = self.in_groups();
        let more = self.b.ins().icmp(IntCC::UnsignedLessThan, at, threads);
        self.b
            .ins()
            .brif(more, blocks.head, &[at.into()], over, &[]);
        self.turn_wide();

        for (block, begins) in &blocks.resumes {
            let at = self.b.append_block_param(*begins, types::I32);
            self.b.switch_to_block(*begins);
            self.set_form(Form::Once);
            self.b.def_var(variable, at);
            let live = self.needed_at(0, *block).unwrap_or_default();
            for (register, place) in self.kept_places(&live) {
                self.take_of_group(register, place);
            }
            let goes = self.lanes().group_blocks[*block];
            self.b.ins().jump(goes, &[]);
        }
        if let Some(row) = self.row() {
            let (slot, size) = (row.kept, row.size as u32);
            self.b.func.sized_stack_slots[slot].size = size.next_multiple_of(16);
        }
    }

    /// Goes on in a row with the group at `next`, or with a wide one. Fills the builder's block.
    pub(super) fn next_in_row(&mut self, head: Block, next: Value) {
        let args = [next.into()];
        let Some(blocks) = self.wide_blocks(0) else {
            self.b.ins().jump(head, &args);
            return;
        };
        let width = self.widest() as i64;
        let inside = self.b.ins().band_imm(next, width - 1);
        let here = self.b.create_block();
        self.b.ins().brif(inside, here, &[], blocks.head, &args);
        self.b.switch_to_block(here);
        if blocks.resumes.is_empty() {
            self.b.ins().jump(head, &args);
            return;
        }
        let number = self.unless_begun(head, next);
        self.go_to_resume(&blocks, number, head, next);
    }

    fn row(&mut self) -> Option<&mut Row> {
        self.lanes().wide.as_mut()?.row.as_mut()
    }

    /// The region that is lowered; a row is one.
    fn wide_region(&mut self) -> usize {
        match self.in_turns() {
            true => self.turns().region,
            false => 0,
        }
    }

    /// The loop over groups of a region.
    fn narrow_head(&mut self, region: usize) -> Block {
        match self.row() {
            Some(row) => row.head,
            None => self.turns().regions[region].head,
        }
    }

    /// The address of what is kept in an array for the group's first thread, less the array's
    /// offset.
    pub(super) fn kept_address(&mut self, ty: ir::Type) -> Value {
        let width = self.widest() as i64;
        let is_wide = self.is_wide();
        let first = self.lanes().first;
        let Some(kept) = self.row().map(|row| row.kept) else {
            return self.lane_address(ty);
        };
        let base = self.b.ins().stack_addr(types::I64, kept, 0);
        if is_wide {
            return base;
        }
        let first = self.b.use_var(first);
        let lane = self.b.ins().band_imm(first, width - 1);
        let lane = self.b.ins().uextend(types::I64, lane);
        let distance = self.b.ins().imul_imm(lane, i64::from(ty.bytes()));
        self.b.ins().iadd(base, distance)
    }

    /// Where registers are kept, of those that are.
    fn kept_places(&mut self, registers: &[RegId]) -> Vec<(RegId, usize)> {
        let types = registers
            .iter()
            .map(|register| self.register_types[register.0 as usize]);
        let bytes: Vec<usize> = types.map(|ty| ty.bytes() as usize).collect();
        let width = self.widest();
        let Some(row) = self.row() else {
            return self.places_of(registers);
        };
        let places = registers.iter().zip(bytes);
        places
            .map(|(register, bytes)| {
                let place = *row.places.entry(*register).or_insert(row.size);
                row.size = row.size.max(place + (width * bytes).next_multiple_of(16));
                (*register, place)
            })
            .collect()
    }

    /// What [`may_part`](Self::may_part) says, where that is known already.
    pub(super) fn is_known_to_part(&self, region: usize) -> Option<bool> {
        let wide = self.lanes.as_ref()?.wide.as_ref()?;
        Some(wide.parts[region])
    }

    fn wide_blocks(&self, region: usize) -> Option<WideBlocks> {
        let wide = self.lanes.as_ref()?.wide.as_ref()?;
        wide.regions.get(region)?.clone()
    }

    /// Where a group that is done with a region goes.
    pub(super) fn leave_of(&mut self, region: usize) -> Block {
        match self.wide_blocks(region) {
            Some(blocks) if self.is_wide() => blocks.leave,
            _ => self.turns().regions[region].leave,
        }
    }

    /// Goes to the loop over a warp's groups: wide ones, if the region has them and they make up
    /// the block's rows. Goes on with the next warp if there is nothing to do. `of_block` is what
    /// groups begin with. Fills the builder's block.
    pub(super) fn begin_groups(&mut self, region: usize, of_block: &[(RegId, Value)]) {
        let in_warps = self.is_in_warps(region);
        if !in_warps {
            self.skip_warp(region, of_block);
        }
        let zero = self.b.ins().iconst(types::I64, 0);
        let args = [zero.into()];
        let Some(blocks) = self.wide_blocks(region) else {
            let head = self.turns().regions[region].head;
            self.b.ins().jump(head, &args);
            return;
        };
        let row = self.entry(Entry::Ntid(0));
        let width = self.widest();
        let odd = self.b.ins().band_imm(row, width as i64 - 1);
        if !in_warps {
            self.b
                .ins()
                .brif(odd, blocks.narrow, &args, blocks.head, &args);
            return;
        }
        let (narrow, whole) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(odd, narrow, &[], whole, &[]);
        self.b.switch_to_block(narrow);
        self.begin_lanes();
        self.b.ins().jump(blocks.narrow, &args);
        self.b.switch_to_block(whole);
        self.skip_whole_warp(region, of_block);
        self.b.ins().jump(blocks.head, &args);
    }

    /// Fills the block that leads to the loop over groups.
    fn fill_narrow(&mut self, blocks: &WideBlocks) {
        let region = self.wide_region();
        let head = self.narrow_head(region);
        let first = self.b.block_params(blocks.narrow)[0];
        self.b.switch_to_block(blocks.narrow);
        self.b.ins().jump(head, &[first.into()]);
    }

    /// Whether a wide group of a region is a warp: there is no loop over such, and only groups that
    /// go on for it need to know how many lanes there are.
    pub(super) fn is_in_warps(&mut self, region: usize) -> bool {
        self.wide_blocks(region).is_some() && self.widest() == WIDEST
    }

    /// Notes how many lanes there are, before groups go on for a wide one of a region.
    fn begin_lanes_of_warp(&mut self, region: usize) {
        if self.is_in_warps(region) {
            let left = self.turns().left;
            let lanes = self.b.ins().iconst(types::I64, WIDEST as i64);
            self.b.ins().stack_store(lanes, left, 0);
        }
    }

    /// Threads of a wide group.
    fn widest(&mut self) -> usize {
        let wide = self.lanes().wide.as_ref();
        wide.map_or(WIDTH, |wide| wide.plan.width)
    }

    /// No group goes on for a wide one.
    pub(super) fn forget_resumes(&mut self, region: usize) {
        if self.resumes_of(region) > 0 {
            self.set_resume(0);
        }
    }

    fn set_resume(&mut self, number: i64) {
        if let Some(slot) = self.lanes().wide.as_ref().map(|wide| wide.resumes) {
            let number = self.b.ins().iconst(types::I32, number);
            self.b.ins().stack_store(number, slot, 0);
        }
    }

    /// Lowers a region's wide form. The builder's block is filled.
    pub(super) fn lower_wide(&mut self, region: usize, of_block: &[(RegId, Value)]) {
        let Some(blocks) = self.wide_blocks(region) else {
            return;
        };
        let (head, wait, exit) = self.region(region);
        let may_part = self.may_part(region);
        self.b.append_block_param(blocks.narrow, types::I64);
        self.fill_narrow(&blocks);
        let lane = self.b.append_block_param(blocks.head, types::I64);
        self.b.switch_to_block(blocks.head);
        self.forget_resumes(region);
        self.turn_wide();
        self.begin_group(lane);
        let (finds, goes) = (self.b.create_block(), self.b.create_block());
        if self.has_columns(region) {
            self.b.ins().jump(finds, &[]);
            self.b.switch_to_block(goes);
        }
        let mut loads = self.a_region(region).loads.clone();
        loads.retain(|register| {
            let is_held = of_block.iter().any(|(held, _)| held == register);
            !is_held && !self.is_steady(region, *register)
        });
        self.take_loads(region, &loads);
        if region != 0 {
            self.unless_it_differs(region, &loads);
            self.take_bits(region, &loads);
        }
        for (register, value) in of_block {
            self.put_all(*register, *value);
        }
        if let Some(wait) = wait {
            self.lower_wait(wait, Part::Takes);
        }
        let begins = self.lanes().group_blocks[head];
        self.b.ins().jump(begins, &[]);
        self.lower_wide_steps(region);
        if self.has_columns(region) {
            self.b.switch_to_block(finds);
            self.find_column(region, goes);
        }

        self.b.switch_to_block(blocks.leave);
        self.set_form(Form::Once);
        let mut stores = self.a_region(region).stores.clone();
        if !may_part {
            let mut of_block = self.take_out_of_block(&mut stores);
            // The region's exit reads what decides for all warps.
            if let Exit::Branch { block, .. } = exit
                && let Some(Some(guard)) = self.guard_of(block)
                && self.lanes().plan.is_of_block(guard)
                && !of_block.contains(&guard)
            {
                of_block.push(guard);
            }
            for register in of_block {
                let value = self.held_of_block(register);
                self.turn_wide();
                self.put_all(register, value);
                self.turn_wide();
            }
        }
        for (register, place) in self.places_of(&stores) {
            self.keep_of_group(register, place);
        }
        if let Exit::To(Target::Region(next)) = exit
            && let (_, Some(wait), _) = self.region(next)
        {
            self.lower_wait(wait, Part::Brings);
        }
        let width = self.width();
        self.turn_wide();
        let over = self.turns().regions[region].over;
        match width {
            WIDEST => _ = self.b.ins().jump(over, &[]),
            _ => {
                let (lane, more) = self.more_lanes(width);
                self.b
                    .ins()
                    .brif(more, blocks.head, &[lane.into()], over, &[]);
            }
        }
        for (number, (_, begins)) in blocks.resumes.iter().enumerate() {
            let lane = self.b.append_block_param(*begins, types::I64);
            self.b.switch_to_block(*begins);
            if self.has_columns(region) {
                self.go_on_at(region, lane, Place::Resume(number));
                continue;
            }
            self.begin_group(lane);
            self.go_on_for_wide(region, number);
        }
    }

    /// Whether a region has a wide form.
    pub(super) fn has_wide(&self, region: usize) -> bool {
        self.wide_blocks(region).is_some()
    }

    /// How many places there are in a region where groups go on for wide ones.
    pub(super) fn resumes_of(&self, region: usize) -> usize {
        let blocks = self.wide_blocks(region);
        blocks.map_or(0, |blocks| blocks.resumes.len())
    }

    /// A group goes on for a wide one, at the place of this number. Fills the builder's block.
    pub(super) fn go_on_for_wide(&mut self, region: usize, number: usize) {
        let blocks = self.wide_blocks(region);
        let blocks = blocks.expect("the region has wide groups");
        let (block, _) = blocks.resumes[number];
        let live = self.needed_at(region, block).unwrap_or_default();
        self.take_kept(&live);
        let goes = self.lanes().group_blocks[block];
        self.b.ins().jump(goes, &[]);
    }

    /// Takes the predicates that a wide group loads and does not write once more, as bits: most
    /// often, all that is asked of one is who goes by a branch.
    fn take_bits(&mut self, region: usize, loads: &[RegId]) {
        let writes = self.writes_of(region);
        let mut taken = HashMap::new();
        for (register, place) in self.places_of(loads) {
            let vectors = matches!(self.kept_of(register), Kept::Vectors(_));
            if !vectors || !self.is_predicate(register) || writes.contains(&register) {
                continue;
            }
            let at = self.lane_address(types::I8);
            let zero = self.b.ins().iconst(types::I8, 0);
            let zero = self.b.ins().splat(types::I8X16, zero);
            let mut bits = None;
            for first in (0..self.width()).step_by(16) {
                let (flags, offset) = (MemFlags::trusted(), (place + first) as i32);
                let bytes = self.b.ins().load(types::I8X16, flags, at, offset);
                let masks = self.b.ins().isub(zero, bytes);
                let more = self.b.ins().vhigh_bits(types::I32, masks);
                bits = Some(match bits {
                    None => more,
                    Some(bits) => {
                        let more = self.b.ins().ishl_imm(more, first as i64);
                        self.b.ins().bor(bits, more)
                    }
                });
            }
            taken.extend(bits.map(|bits| (register, bits)));
        }
        if let Some(wide) = &mut self.lanes().wide {
            wide.bits = taken;
        }
    }

    /// The bits of a predicate that a wide group has taken.
    pub(super) fn taken_bits(&self, register: RegId) -> Option<Value> {
        let wide = self.lanes.as_ref()?.wide.as_ref()?;
        wide.bits.get(&register).copied().filter(|_| wide.now)
    }

    /// The lane so many after the group's, and whether the warp has it.
    pub(super) fn more_lanes(&mut self, width: usize) -> (Value, Value) {
        let (lane, left) = (self.turns().lane, self.turns().left);
        let lane = self.b.use_var(lane);
        let limit = self.b.ins().stack_load(types::I64, left, 0);
        let next = self.b.ins().iadd_imm(lane, width as i64);
        let more = self.b.ins().icmp(IntCC::UnsignedLessThan, next, limit);
        (next, more)
    }

    /// The code of wide groups, block after block.
    fn lower_wide_steps(&mut self, region: usize) {
        let wide = self.lanes().wide.as_ref();
        if let Some(steps) = wide.and_then(|wide| wide.plan.straight[region].clone()) {
            let head = self.a_region(region).head;
            let begins = self.lanes().group_blocks[head];
            self.b.switch_to_block(begins);
            self.lanes().bases.fill([None; WIDEST]);
            self.enter_region(head);
            self.lower_straight(&steps, 0);
            return self.leave_region();
        }
        let plan = &self.lanes().plan;
        let of = plan.regions.as_ref().map_or(&[][..], |all| &all.of);
        let blocks = (0..of.len()).filter(|block| of[*block] == Some(region));
        for block in blocks.collect::<Vec<usize>>() {
            let begins = self.lanes().group_blocks[block];
            let wide = self.lanes().wide.as_ref();
            if let Some(branch) = wide.and_then(|wide| wide.plan.left_out[block]) {
                if self.lanes().plan.control.graph.successors[branch].contains(&block) {
                    self.b.switch_to_block(begins);
                    self.b.set_cold_block(begins);
                    self.set_form(Form::Once);
                    self.resume(branch);
                }
                continue;
            }
            self.b.switch_to_block(begins);
            self.lanes().bases.fill([None; WIDEST]);
            self.enter_region(block);
            let first = self.lanes().plan.control.first[block];
            let end = self.end_of_block(first);
            self.lower_group_part(first..end);
            self.group = None;
            let last = block + 1 == self.lanes().group_blocks.len();
            match last {
                true => self.leave_region(),
                false => {
                    let falls = self.way_to(block, block + 1);
                    self.b.ins().jump(falls, &[]);
                }
            }
        }
    }

    /// The registers that groups need which go on at a block of a region for a wide one, of those
    /// that it uses or writes: the others lie in the tile all the while. None, where they begin the
    /// region.
    fn needed_at(&mut self, region: usize, block: usize) -> Option<Vec<RegId>> {
        let mut resumes = self.lanes().wide.iter().flat_map(|wide| &wide.plan.resumes);
        let resume = resumes.find(|resume| resume.block == block);
        let resume = resume.expect("the plan knows where threads may not agree");
        if resume.from_start {
            return None;
        }
        let mut live = resume.live.clone();
        if self.in_turns() {
            let touches = &self.a_region(region).touches;
            live.retain(|register| touches.contains(register));
            live.retain(|register| !self.is_steady(region, *register));
        }
        Some(live)
    }

    /// A wide group gives up at a block, whose first step its threads may not agree on: its groups
    /// go on there. Fills the builder's block.
    pub(super) fn resume(&mut self, block: usize) {
        let region = self.wide_region();
        let Some(live) = self.needed_at(region, block) else {
            self.begin_pass_anew();
            return self.begin_narrow();
        };
        for (register, place) in self.kept_places(&live) {
            let wide = self.lanes().wide.as_ref();
            let of_groups = wide.map(|wide| wide.plan.classes[register.0 as usize]);
            match (self.kept_of(register), of_groups) {
                (Kept::One(_), Some(class)) if class != Class::Varying => {
                    self.keep_first_of_groups(register, place);
                }
                _ => self.keep_of_group(register, place),
            }
        }
        let blocks = self.wide_blocks(region).map(|blocks| blocks.resumes);
        let mut resumes = (1..).zip(blocks.into_iter().flatten());
        let resume = resumes.find(|(_, (at, _))| *at == block);
        let (number, (_, begins)) = resume.expect("there is a block for it");
        self.set_resume(number);
        self.go_to_groups(region, begins);
    }

    /// Goes to the code of a wide group's first group. Fills the builder's block.
    fn go_to_groups(&mut self, region: usize, begins: Block) {
        let first = match self.in_turns() {
            true => {
                self.begin_lanes_of_warp(region);
                self.rounds_lane()
            }
            false => {
                let first = self.lanes().first;
                self.b.use_var(first)
            }
        };
        self.b.ins().jump(begins, &[first.into()]);
    }

    /// Keeps what groups take of a register of which they take their first thread's value.
    fn keep_first_of_groups(&mut self, register: RegId, place: usize) {
        let ty = self.register_types[register.0 as usize];
        let at = self.kept_address(ty);
        for lane in (0..self.width()).step_by(WIDTH) {
            self.set_form(Form::Lane(lane));
            let value = self.held_in_group(register);
            let offset = place + lane * ty.bytes() as usize;
            let flags = MemFlags::trusted();
            self.b.ins().store(flags, value, at, offset as i32);
        }
        self.set_form(Form::Once);
    }

    /// A wide group gives up, and its groups begin the region. Fills the builder's block.
    pub(super) fn begin_narrow(&mut self) {
        let region = self.wide_region();
        let blocks = self.wide_blocks(region);
        let blocks = blocks.expect("there are wide groups");
        self.go_to_groups(region, blocks.narrow);
    }

    /// Gives up where a register that the wide group took is not for all of its threads what it is
    /// for the first: a narrow number may have wrapped on the way to a wide one between groups.
    fn unless_it_differs(&mut self, region: usize, loads: &[RegId]) {
        let mut differs = None;
        for (register, place) in self.places_of(loads) {
            let Kept::One(variable) = self.kept_of(register) else {
                continue;
            };
            let plan = &self.lanes().plan;
            if plan.counts_over_warp(register) {
                continue;
            }
            let stride = match plan.class(register) {
                Class::Varying => continue,
                class => class.stride().unwrap_or(0),
            };
            let ty = self.register_types[register.0 as usize];
            let (bits, bytes) = (ty.as_int(), ty.bytes() as usize);
            let at = self.lane_address(ty);
            let wide = self.lanes().wide.as_ref();
            let of_groups = wide.map(|wide| wide.plan.classes[register.0 as usize]);
            if of_groups == Some(Class::Varying) && ty == types::I32 {
                let other = self.words_differ(register, place);
                differs = Some(match differs {
                    None => other,
                    Some(differs) => self.b.ins().bor(differs, other),
                });
                continue;
            }
            let first = self.b.use_var(variable);
            let first = match ty == bits {
                true => first,
                false => self.b.ins().bitcast(bits, MemFlags::new(), first),
            };
            for lane in (WIDTH..self.width()).step_by(WIDTH) {
                let offset = (place + lane * bytes) as i32;
                let value = self.b.ins().load(bits, MemFlags::trusted(), at, offset);
                let expected = self.plus(first, stride.wrapping_mul(lane as i64));
                let other = self.b.ins().icmp(IntCC::NotEqual, value, expected);
                differs = Some(match differs {
                    None => other,
                    Some(differs) => self.b.ins().bor(differs, other),
                });
            }
        }
        if let Some(differs) = differs {
            let (narrow, next) = (self.cold_block(), self.fresh_block());
            self.b.ins().brif(differs, narrow, &[], next, &[]);
            self.enter(narrow);
            self.turns().region = region;
            self.begin_narrow();
            self.enter(next);
        }
    }

    /// Whether a word that groups keep for each thread is not what the wide group takes it for.
    fn words_differ(&mut self, register: RegId, place: usize) -> Value {
        let at = self.lane_address(types::I32);
        let mut all = None;
        for chunk in 0..self.width() / 4 {
            self.set_form(Form::Vector { chunk, wide: false });
            let expected = self.held_in_group(register);
            let (flags, offset) = (MemFlags::trusted(), (place + 16 * chunk) as i32);
            let kept = self.b.ins().load(types::I32X4, flags, at, offset);
            let other = self.b.ins().bxor(kept, expected);
            all = Some(match all {
                None => other,
                Some(all) => self.b.ins().bor(all, other),
            });
        }
        self.set_form(Form::Once);
        let all = all.expect("a wide group has threads");
        self.b.ins().vany_true(all)
    }

    /// Goes on with a region's next group, whose first lane is `next`. Fills the builder's block.
    pub(super) fn go_on_with_group(&mut self, region: usize, next: Value) {
        let head = self.turns().regions[region].head;
        let args = [next.into()];
        let Some(blocks) = self.wide_blocks(region) else {
            self.b.ins().jump(head, &args);
            return;
        };
        if blocks.resumes.is_empty() {
            self.b.ins().jump(head, &args);
            return;
        }
        let number = self.unless_begun(head, next);
        let width = self.widest();
        if width < WIDEST {
            let inside = self.b.ins().band_imm(next, width as i64 - 1);
            let here = self.b.create_block();
            self.b.ins().brif(inside, here, &[], blocks.head, &args);
            self.b.switch_to_block(here);
        }
        self.go_to_resume(&blocks, number, head, next);
    }

    /// Goes to `head` with the group at `next`, unless groups go on for a wide one: at the place of
    /// the number that is answered.
    fn unless_begun(&mut self, head: Block, next: Value) -> Value {
        let wide = self.lanes().wide.as_ref();
        let slot = wide.expect("there are wide groups").resumes;
        let number = self.b.ins().stack_load(types::I32, slot, 0);
        let resumes = self.b.create_block();
        self.b
            .ins()
            .brif(number, resumes, &[], head, &[next.into()]);
        self.b.switch_to_block(resumes);
        number
    }

    /// Goes on with the group at `next` where the wide one has given up, at the place of this
    /// number; at `head`, where there is none. Fills the builder's block.
    fn go_to_resume(&mut self, blocks: &WideBlocks, number: Value, head: Block, next: Value) {
        let args = [next.into()];
        let mut all = (1..).zip(&blocks.resumes).peekable();
        while let Some((at, (_, begins))) = all.next() {
            if all.peek().is_none() {
                self.b.ins().jump(*begins, &args);
                return;
            }
            let is = self.b.ins().icmp_imm(IntCC::Equal, number, at);
            let other = self.b.create_block();
            self.b.ins().brif(is, *begins, &args, other, &[]);
            self.b.switch_to_block(other);
        }
        self.b.ins().jump(head, &args);
    }

    /// Notes the decisions of a wide group, by groups.
    pub(super) fn decide_wide(&mut self, bits: Value) {
        let (lane, tile) = (self.rounds_lane(), self.rounds_tile());
        let at = self.group_word(lane, tile);
        for group in 0..self.width() / WIDTH {
            let own = self.b.ins().ushr_imm(bits, (WIDTH * group) as i64);
            let own = self.b.ins().band_imm(own, (1 << WIDTH) - 1);
            let offset = offset_of!(Tile, decisions) + 4 * group;
            let flags = MemFlags::trusted();
            self.b.ins().store(flags, own, at, offset as i32);
            self.note_decision(own);
        }
    }
}
