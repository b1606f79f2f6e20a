//! Regions that groups go through in columns, as [`spmd::columns`](crate::jit::spmd) says:
//!
//! ```text
//! next:   for each column of the block
//! begin:    from its first row that has a turn
//! head:       for each row: the group's code
//! done:   ...
//! ```
//!
//! A column is as wide as a wide group where such make up rows, and otherwise as a group. The
//! groups of a wide one that gives up go through its row, from `begin`, and so do those that go on
//! where their threads have joined: nothing enters the loop over rows elsewhere, so Cranelift knows
//! it as one, and computes what is the same in all rows before it.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder, MemFlags, Value, types};
use cranelift_frontend::{Switch, Variable};

use super::{Kept, Landing};
use super::regions::LANES;
use crate::grid::context::Turn;
use crate::jit::decode::{Arg, RegId};
use crate::jit::lower::{Lower, Term};
use crate::jit::lower::entry::Entry;
use crate::jit::lower::function::slot;
use crate::jit::program::Step;
use crate::jit::spmd::{Column, WIDTH};

/// What such a region needs besides what all have.
#[derive(Clone)]
pub(in crate::jit::lower) struct Columns {
    /// Takes `%tid.x` of a column's first thread: begins the column, if the block has it.
    pub next: Block,
    /// Goes on in a column: takes `%tid.x` and the number of a group's first thread, and a
    /// [`Place`].
    pub begin: Block,
    /// The steps that are done once for a column, and the registers that they compute.
    steps: Vec<usize>,
    steady: Vec<RegId>,
    /// What these take that is the same in all threads of the block.
    of_block: Vec<RegId>,
    /// What groups take from the tile and the region does not write.
    taken: Vec<RegId>,
    /// What groups ask of such registers.
    told: Vec<Told>,
}

/// What groups ask of a register that is computed once for each column.
#[derive(Clone, Copy)]
struct Told {
    register: RegId,
    fact: Fact,
    /// It is for wide groups.
    wide: bool,
    variable: Variable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fact {
    /// Of a predicate: a bit for each thread.
    Bits,
    /// Of words: whether they do not count up by 1 from thread to thread.
    Differs,
}

/// Where a group goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It begins the region; a wide one, if it can.
    Begin,
    /// For a wide one, where that has given up: the number of the block among those where one may.
    Resume(usize),
    /// For a wide one, where the region begins.
    Narrow,
    /// Where its threads have joined: one of the landings.
    Landing(usize),
}

impl Lower<'_> {
    /// The blocks of a region, if groups go through it in columns.
    pub(super) fn columns(&mut self, region: usize) -> Option<Columns> {
        self.turns().columns[region].clone()
    }

    pub(super) fn goes_in_columns(&mut self, region: usize) -> bool {
        self.turns().columns[region].is_some()
    }

    fn columns_of(&self, region: usize) -> Option<&Columns> {
        let turns = self.lanes.as_ref()?.turns.as_ref()?;
        turns.columns[region].as_ref()
    }

    /// Whether a step of the region is done once for each column, before its rows.
    pub(super) fn is_done_before(&self, at: usize) -> bool {
        let turns = self.lanes.as_ref().and_then(|lanes| lanes.turns.as_ref());
        let columns = turns.and_then(|turns| turns.columns[turns.region].as_ref());
        columns.is_some_and(|columns| columns.steps.binary_search(&at).is_ok())
    }

    /// Whether groups of a region have in a register what they have there wherever they go on in
    /// it.
    pub(super) fn is_held(&self, region: usize, register: RegId) -> bool {
        self.columns_of(region).is_some_and(|columns| {
            columns.steady.contains(&register) || columns.taken.contains(&register)
        })
    }

    /// Whether a register is computed once for each column of a region.
    pub(super) fn is_steady(&self, region: usize, register: RegId) -> bool {
        self.columns_of(region)
            .is_some_and(|columns| columns.steady.contains(&register))
    }

    /// Decides which regions groups go through in columns, now that all waits are known.
    pub(super) fn plan_columns(&mut self) {
        for region in 0..self.turns().columns.len() {
            let plan = &self.lanes().plan;
            let in_step = plan.is_in_step(region);
            let goes = plan.columns[region].is_some() && !in_step && !self.unit.spins;
            if goes
                && self.link(region).is_none()
                && !self.a_region(region).brings
                && !self.is_for_one_group(region)
                && !self.may_be_skipped(region)
            {
                let columns = self.new_columns(region);
                self.turns().columns[region] = Some(columns);
            }
        }
    }

    fn new_columns(&mut self, region: usize) -> Columns {
        let (next, begin) = (self.b.create_block(), self.b.create_block());
        self.b.append_block_param(next, types::I32);
        for _ in 0..3 {
            self.b.append_block_param(begin, types::I32);
        }
        let column = self.lanes().plan.columns[region].clone();
        let Column {
            steps,
            mut steady,
            of_block,
        } = column.unwrap_or_default();
        let mut taken = self.a_region(region).loads.clone();
        if self.may_part(region) {
            // Elsewhere they are variables all the while.
            steady.extend(&of_block);
        } else {
            self.take_out_of_block(&mut taken);
        }
        let written = self.written_in(region);
        taken.retain(|register| !steady.contains(register) && !written.contains(register));
        Columns {
            next,
            begin,
            steps,
            steady,
            taken,
            of_block,
            told: vec![],
        }
    }

    /// The registers that a region writes.
    fn written_in(&mut self, region: usize) -> Vec<RegId> {
        let body = self.body;
        let steps = self.steps_of(region).into_iter();
        let writes = |at: usize| match &body.steps[at] {
            Step::Instruction(step) => &step.writes[..],
            Step::Label(_) => &[],
        };
        let mut written: Vec<RegId> = steps.flat_map(writes).copied().collect();
        written.sort_unstable_by_key(|register| register.0);
        written.dedup();
        written
    }

    /// The steps of a region that are done once for each column.
    fn begin_column(&mut self, region: usize, of_block: &[(RegId, Value)]) {
        let Some(columns) = self.columns(region) else {
            return;
        };
        self.set_form(super::Form::Once);
        self.group = None;
        match self.may_part(region) {
            true => self.take_of_block(&columns.of_block),
            false => {
                for (register, value) in of_block {
                    self.put_all(*register, *value);
                }
            }
        }
        for at in &columns.steps {
            self.step = *at as u32;
            self.group_step_again(*at);
        }
        let wide = self.is_wide();
        let mut kept = vec![];
        for told in columns.told.iter().filter(|told| told.wide == wide) {
            let value = self.fact(told.register, told.fact);
            self.b.def_var(told.variable, value);
            kept.push(told.variable);
        }
        // Rows take what was computed from memory: it would not stay in registers. From here on
        // that does not change, so it is taken where it is used.
        let steady = MemFlags::trusted().with_readonly().with_can_move();
        for register in &columns.steady {
            match self.kept_of(*register) {
                Kept::One(variable) => kept.push(variable),
                Kept::Vectors(variables) => kept.extend(variables),
                Kept::Each(_) => {}
            }
        }
        if kept.is_empty() {
            return;
        }
        let (values, address) = (
            slot(&mut self.b, 16 * kept.len() as u64),
            slot(&mut self.b, 8),
        );
        let to = self.b.ins().stack_addr(types::I64, values, 0);
        self.b.ins().stack_store(to, address, 0);
        let mut types = vec![];
        for (at, variable) in (0..).step_by(16).zip(&kept) {
            let value = self.b.use_var(*variable);
            types.push(self.b.func.dfg.value_type(value));
            self.b.ins().stack_store(value, values, at);
        }
        let from = self.b.ins().stack_load(types::I64, address, 0);
        for ((at, variable), ty) in (0..).step_by(16).zip(kept).zip(types) {
            let value = self.b.ins().load(ty, steady, from, at);
            self.b.def_var(variable, value);
        }
    }

    /// What is told of a register that is computed once for each column of the region, if it is
    /// of those.
    fn told(&mut self, register: RegId, fact: Fact) -> Option<Value> {
        if !matches!(self.kept_of(register), Kept::Vectors(_)) {
            return None;
        }
        let wide = self.is_wide();
        let turns = self.lanes.as_mut()?.turns.as_mut()?;
        let columns = turns.columns[turns.region].as_mut()?;
        if !columns.steady.contains(&register) {
            return None;
        }
        let is_it = |told: &&Told| (told.register, told.fact, told.wide) == (register, fact, wide);
        let variable = match columns.told.iter().find(is_it) {
            Some(told) => told.variable,
            None => {
                let variable = self.b.declare_var(match fact {
                    Fact::Bits => types::I32,
                    Fact::Differs => types::I8,
                });
                columns.told.push(Told {
                    register,
                    fact,
                    wide,
                    variable,
                });
                variable
            }
        };
        Some(self.b.use_var(variable))
    }

    /// The same, as it is computed.
    fn fact(&mut self, register: RegId, fact: Fact) -> Value {
        match fact {
            Fact::Bits => {
                let mask = self.predicate_mask(register);
                self.threads_in(&mask)
            }
            Fact::Differs => self.differs(register, 1),
        }
    }

    /// A bit for each thread, of a predicate that is computed once for each column of the region.
    pub(super) fn column_bits(&mut self, register: RegId) -> Option<Value> {
        self.told(register, Fact::Bits)
    }

    /// Whether words do not count up by 1 from thread to thread: of a register that the step's
    /// block writes before it, as the sum of one that is computed once for each column and of what
    /// is the same in all threads.
    pub(super) fn column_differs(&mut self, register: RegId) -> Option<Value> {
        let (body, at) = (self.body, self.step as usize);
        let plan = &self.lanes().plan;
        let of = &plan.control.graph.block_of;
        let before = (0..at).rev().take_while(|before| of[*before] == of[at]);
        let mut writes = before.filter_map(|before| match &body.steps[before] {
            Step::Instruction(step) => step.writes.contains(&register).then_some(step),
            Step::Label(_) => None,
        });
        let step = writes.next().filter(|step| step.guard.is_none())?;
        let Some(Term::Sum(Arg::Reg(a), Arg::Reg(b), 32)) = step.operation.term() else {
            return None;
        };
        let same = |register: &RegId| plan.class(*register).stride() == Some(0);
        let varies = match (same(a), same(b)) {
            (true, false) => *b,
            (false, true) => *a,
            _ => return None,
        };
        self.told(varies, Fact::Differs)
    }

    /// The number that says where a group of a region goes on.
    fn number_of(&mut self, region: usize, place: Place) -> i64 {
        let resumes = self.resumes_of(region).len();
        let number = match place {
            Place::Begin => 0,
            Place::Resume(number) => 1 + number,
            Place::Narrow => 1 + resumes,
            Place::Landing(number) => 2 + resumes + number,
        };
        number as i64
    }

    /// The landings inside of a region, and the numbers of all.
    fn landings_inside(&mut self, region: usize) -> Vec<(usize, Landing)> {
        let landings = self.lanes().landings.clone().into_iter().enumerate();
        let inside = |(_, landing): &(usize, Landing)| {
            landing.region == region && landing.join.is_some()
        };
        landings.filter(inside).collect()
    }

    /// What a region begins with, and the loops over its columns and their rows; its wide form. The
    /// builder is where all warps have come to it.
    pub(super) fn open_columns(
        &mut self,
        region: usize,
        of_block: &[(RegId, Value)],
        loads: &[RegId],
    ) {
        let blocks = self.turns().regions[region];
        let Some(columns) = self.columns(region) else {
            return;
        };
        let row = self.entry(Entry::Ntid(0));
        let [threads, _] = self.turns().counts;
        let ends = self.turns().ends;
        for (slot, offset) in ends
            .into_iter()
            .zip([offset_of!(Turn, begin), offset_of!(Turn, end)])
        {
            let warp = self.turn_field(offset);
            let thread = self.b.ins().imul_imm(warp, LANES);
            let thread = self.b.ins().umin(thread, threads);
            self.b.ins().stack_store(thread, slot, 0);
        }
        let zero = self.b.ins().iconst(types::I32, 0);
        self.b.ins().jump(columns.next, &[zero.into()]);

        // A column.
        self.b.switch_to_block(columns.next);
        let x = self.b.block_params(columns.next)[0];
        let (goes, late, rows) = (
            self.b.create_block(),
            self.cold_block(),
            self.b.create_block(),
        );
        let more = self.b.ins().icmp(IntCC::UnsignedLessThan, x, row);
        self.b.ins().brif(more, goes, &[], blocks.done, &[]);
        self.b.switch_to_block(goes);
        let begin = self.b.ins().stack_load(types::I32, ends[0], 0);
        let first = self.b.append_block_param(rows, types::I32);
        self.b.ins().brif(begin, late, &[], rows, &[x.into()]);
        self.b.switch_to_block(late);
        // The turn's first row is not the block's.
        let begin = self.b.ins().umax(begin, x);
        let past = self.b.ins().isub(begin, x);
        let less = self.b.ins().iadd_imm(row, -1);
        let past = self.b.ins().iadd(past, less);
        let before = self.b.ins().udiv(past, row);
        let before = self.b.ins().imul(before, row);
        let begin = self.b.ins().iadd(x, before);
        self.b.ins().jump(rows, &[begin.into()]);
        self.b.switch_to_block(rows);
        let zero = self.b.ins().iconst(types::I32, 0);
        let begin = [x.into(), first.into(), zero.into()];
        let more = self.is_in_turn(first);
        let over = self.cold_block();
        self.b.ins().brif(more, columns.begin, &begin, over, &[]);
        self.b.switch_to_block(over);
        let next = match self.odd_for_wide(region) {
            None => self.b.ins().iadd_imm(x, WIDTH as i64),
            Some(odd) => {
                let narrow = self.b.ins().iconst(types::I32, WIDTH as i64);
                let wide = self.widest() as i64;
                let wide = self.b.ins().iconst(types::I32, wide);
                let width = self.b.ins().select(odd, narrow, wide);
                self.b.ins().iadd(x, width)
            }
        };
        self.b.ins().jump(columns.next, &[next.into()]);

        // No group is begun.
        let (context, contexts) = (self.turns().context, self.entry.thread);
        for outside in [blocks.done, columns.begin] {
            self.b.switch_to_block(outside);
            self.b.def_var(context, contexts);
        }

        // In it.
        let &[x, thread, place] = self.b.block_params(columns.begin) else {
            unreachable!("it takes three");
        };
        let first = self.lanes().first;
        self.b.def_var(first, x);
        if let Some(wide) = self.wide_head(region) {
            let (narrow, anew, tries) = (
                self.b.create_block(),
                self.b.create_block(),
                self.b.create_block(),
            );
            self.b.ins().brif(place, narrow, &[], anew, &[]);
            self.b.switch_to_block(anew);
            self.forget_resumes(region);
            let odd = self.odd_for_wide(region);
            let odd = odd.expect("there is a wide form");
            self.b.ins().brif(odd, narrow, &[], tries, &[]);
            self.lower_wide(region, of_block);
            self.b.switch_to_block(tries);
            self.turn_wide();
            self.begin_column(region, of_block);
            self.turn_wide();
            self.b.ins().jump(wide, &[thread.into()]);
            self.b.switch_to_block(narrow);
        }
        self.begin_column(region, of_block);
        let narrow = [thread.into(), place.into()];
        self.b.ins().jump(blocks.head, &narrow);

        let thread = self.b.append_block_param(blocks.head, types::I32);
        let place = self.b.append_block_param(blocks.head, types::I32);
        self.b.switch_to_block(blocks.head);
        self.begin_group_of_thread(thread);
        let mut loads = loads.to_vec();
        loads.retain(|register| !columns.steady.contains(register));
        self.take_loads(region, &loads);
        self.go_to_place(region, place);
        self.begin_region(region, of_block);
    }

    /// Goes where a group goes on; the builder is where one goes that begins.
    fn go_to_place(&mut self, region: usize, place: Value) {
        let resumes = self.resumes_of(region);
        let landings = self.landings_inside(region);
        if resumes.is_empty() && landings.is_empty() {
            return;
        }
        let (elsewhere, begins) = (self.cold_block(), self.b.create_block());
        self.b.ins().brif(place, elsewhere, &[], begins, &[]);
        self.b.switch_to_block(elsewhere);
        let mut switch = Switch::new();
        for (number, (_, goes)) in resumes.iter().enumerate() {
            let number = self.number_of(region, Place::Resume(number));
            switch.set_entry(number as u128, *goes);
        }
        let mut lands = vec![];
        for (number, landing) in landings {
            let goes = self.cold_block();
            let number = self.number_of(region, Place::Landing(number));
            switch.set_entry(number as u128, goes);
            lands.push((landing, goes));
        }
        switch.emit(&mut self.b, place, begins);
        for (landing, goes) in lands {
            self.b.switch_to_block(goes);
            self.land(landing);
        }
        self.b.switch_to_block(begins);
    }

    /// A group begins whose first thread has this number in its block. `%tid.x` is known.
    pub(super) fn begin_group_of_thread(&mut self, thread: Value) {
        let number = self.turns().first;
        self.b.def_var(number, thread);
        let warp = self.b.ins().ushr_imm(thread, 5);
        self.set_warp(warp);
        let lane = self.b.ins().band_imm(thread, LANES - 1);
        let lane = self.b.ins().uextend(types::I64, lane);
        self.set_group(lane);
        self.set_form(super::Form::Once);
    }

    /// The number of the group's first thread in its block.
    fn thread_of_group(&mut self) -> Value {
        let first = self.turns().first;
        self.b.use_var(first)
    }

    /// Whether a thread comes before the end of the turn.
    fn is_in_turn(&mut self, thread: Value) -> Value {
        let [_, end] = self.turns().ends;
        let end = self.b.ins().stack_load(types::I32, end, 0);
        self.b.ins().icmp(IntCC::UnsignedLessThan, thread, end)
    }

    /// Goes to `head` with the group of the next row, or by way of the next column. Fills the
    /// builder's block.
    pub(super) fn next_in_column(&mut self, region: usize, head: Block) {
        let Some(columns) = self.columns(region) else {
            return;
        };
        let (thread, first) = (self.thread_of_group(), self.lanes().first);
        let x = self.b.use_var(first);
        if let Some(number) = self.begun_resume(region) {
            let (for_wide, plain) = (self.cold_block(), self.b.create_block());
            self.b.ins().brif(number, for_wide, &[], plain, &[]);
            self.b.switch_to_block(for_wide);
            let width = self.widest() as i64;
            let x = self.b.ins().iadd_imm(x, WIDTH as i64);
            let next = self.b.ins().iadd_imm(thread, WIDTH as i64);
            let inside = self.b.ins().band_imm(next, width - 1);
            let done = self.b.create_block();
            let args = [x.into(), next.into(), number.into()];
            self.b.ins().brif(inside, columns.begin, &args, done, &[]);
            self.b.switch_to_block(done);
            let thread = self.b.ins().iadd_imm(next, -width);
            let first = self.b.ins().iadd_imm(x, -width);
            self.go_to_next_row(columns.next, (columns.begin, Some(first)), thread, x);
            self.b.switch_to_block(plain);
        }
        let next = self.b.ins().iadd_imm(x, WIDTH as i64);
        let first = (head == columns.begin).then_some(x);
        self.go_to_next_row(columns.next, (head, first), thread, next);
    }

    /// Goes to `head` with the group of the row after that of `thread`, and with `%tid.x`, if it
    /// takes that; or on with the column at `next`. Fills the builder's block.
    fn go_to_next_row(
        &mut self,
        column: Block,
        (head, x): (Block, Option<Value>),
        thread: Value,
        next: Value,
    ) {
        let row = self.entry(Entry::Ntid(0));
        let thread = self.b.ins().iadd(thread, row);
        let more = self.is_in_turn(thread);
        let begins = self.b.ins().iconst(types::I32, 0);
        let mut args: Vec<BlockArg> = vec![thread.into(), begins.into()];
        if let Some(x) = x {
            args.insert(0, x.into());
        }
        let over = [next.into()];
        self.b.ins().brif(more, head, &args, column, &over);
    }

    /// Goes to the wide group of the next row, or on with the next column. Fills the builder's
    /// block.
    pub(super) fn next_wide_in_column(&mut self, region: usize, width: usize) {
        let (Some(columns), Some(head)) = (self.columns(region), self.wide_head(region)) else {
            return;
        };
        let (thread, first) = (self.thread_of_group(), self.lanes().first);
        let row = self.entry(Entry::Ntid(0));
        let thread = self.b.ins().iadd(thread, row);
        let more = self.is_in_turn(thread);
        let x = self.b.use_var(first);
        let next = self.b.ins().iadd_imm(x, width as i64);
        let (args, over) = ([thread.into()], [next.into()]);
        self.b.ins().brif(more, head, &args, columns.next, &over);
    }

    /// The group goes on at a place, in the loop over rows. Fills the builder's block.
    pub(super) fn go_on_in_column(&mut self, region: usize, place: Place) {
        let Some(columns) = self.columns(region) else {
            return;
        };
        let (thread, first) = (self.thread_of_group(), self.lanes().first);
        let x = self.b.use_var(first);
        let place = self.number_of(region, place);
        let place = self.b.ins().iconst(types::I32, place);
        let args = [x.into(), thread.into(), place.into()];
        self.b.ins().jump(columns.begin, &args);
    }
}
