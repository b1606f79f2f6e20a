//! What groups of one column of a block have in common, as [`spmd::columns`](crate::jit::spmd)
//! finds it: the first of them computes it, and the others take it from a table in the native
//! stack. That has a few entries; a column finds its own there unless another has taken its place.
//! What all groups of the block have in common is computed before, and copied into each entry.
//!
//! ```text
//! enter:  compute what is the same in the block; no entry is any column's
//! head:   a group begins, or goes on for a wide one that gave up, or where its threads joined
//!           if the entry is not its column's: compute it
//!           take what the region loads, and go on
//! ```
//!
//! Nothing else enters the group's code, so that what is taken there need not be taken again
//! wherever a group may go on.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, Block, InstBuilder, MemFlags, Value, types};
use cranelift_frontend::{Switch, Variable};
use ptx::ast::Type;

use super::agreement::{MOST_COMBINED, written_before};
use super::{Form, Kept, Landing, Turns, little_endian};
use crate::jit::decode::{Arg, Logic, RegId};
use crate::jit::lower::function::slot;
use crate::jit::lower::{Lower, Term};
use crate::jit::spmd::{Class, Column};

/// Entries of the table.
const ENTRIES: i64 = 8;
/// No column's first `%tid.x`.
const NOBODY: i64 = -1;

/// What a region has in the native stack: its own address, which is loaded so that nothing is taken
/// from there before it is put there; the addresses of the values of groups' columns, and of those
/// of wide ones; for each entry of either which column has it and where its values lie; and the
/// registers that are the same in all threads of the block.
const VALUES: [i32; 2] = [8, 16];
const INDEX: [i32; 2] = [32, 32 + (IN_INDEX * ENTRIES) as i32];
const IN_INDEX: i64 = 16;
const ADDRESS: i32 = 8;
const COMMON: i32 = INDEX[1] + (IN_INDEX * ENTRIES) as i32;

/// What a region needs whose groups have something in common.
#[derive(Clone)]
pub(in crate::jit::lower) struct Columns {
    /// Where a group begins or goes on: takes its first lane and the number of a [`Place`].
    head: Block,
    column: Column,
    frame: ir::StackSlot,
    /// What the entries hold: of groups, and of wide ones. What is computed from registers that are
    /// the same in all threads may be sunk past the region, so no other has its own there.
    values: [ir::StackSlot; 2],
    /// What groups take from the tile and the region does not write.
    taken: Vec<RegId>,
    /// What groups ask of `steady` registers: that is answered once, too.
    answers: Vec<Answer>,
}

/// What the groups of a column, or wide ones, know of a register.
#[derive(Clone, Copy)]
struct Answer {
    register: RegId,
    question: Question,
    wide: bool,
    variable: Variable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// Of a predicate: a bit for each thread.
    Bits,
    /// Of words: whether they do not count up by 1 from thread to thread.
    Differs,
    /// Of words: the first thread's.
    First,
}

/// Where a group goes on that does not begin the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// For a wide one, where that has given up: the number of the block among those where one may.
    Resume(usize),
    /// Where its threads have joined: one of the landings.
    Landing(usize),
}

impl Lower<'_> {
    fn turns_here(&self) -> Option<&Turns> {
        self.lanes.as_ref()?.turns.as_ref()
    }

    fn columns(&self, region: usize) -> Option<&Columns> {
        self.turns_here()?.columns[region].as_ref()
    }

    /// Whether groups of a region take what they have in common from a table.
    pub(super) fn has_columns(&self, region: usize) -> bool {
        self.columns(region).is_some()
    }

    /// Whether groups of the region that is lowered take what a step of it computes.
    pub(super) fn is_done_before(&self, at: usize) -> bool {
        let columns = self
            .turns_here()
            .and_then(|turns| self.columns(turns.region));
        columns.is_some_and(|columns| columns.column.does(self.body, at))
    }

    /// Whether a register is computed once for each column of a region, or once for all.
    pub(super) fn is_steady(&self, region: usize, register: RegId) -> bool {
        let columns = self.columns(region);
        columns.is_some_and(|columns| columns.column.has(register))
    }

    /// The same of the region that is lowered.
    pub(super) fn is_steady_here(&self, register: RegId) -> bool {
        let turns = self.turns_here();
        turns.is_some_and(|turns| self.is_steady(turns.region, register))
    }

    /// Whether groups of a region have in a register what they have there wherever they go on in
    /// it.
    pub(super) fn is_held(&self, region: usize, register: RegId) -> bool {
        let taken = |columns: &Columns| columns.taken.contains(&register);
        self.is_steady(region, register) || self.columns(region).is_some_and(taken)
    }

    /// Decides in which regions groups take what they have in common from a table, now that all
    /// waits are known.
    pub(super) fn plan_columns(&mut self) {
        for region in 0..self.turns().columns.len() {
            let plan = &self.lanes().plan;
            if plan.columns[region].is_some()
                && !plan.is_in_step(region)
                && self.link(region).is_none()
                && !self.a_region(region).brings
                && !self.is_for_one_group(region)
            {
                let columns = self.new_columns(region);
                self.turns().columns[region] = Some(columns);
            }
        }
    }

    fn new_columns(&mut self, region: usize) -> Columns {
        let head = self.b.create_block();
        self.b.append_block_param(head, types::I64);
        self.b.append_block_param(head, types::I32);
        let column = self.lanes().plan.columns[region].clone();
        let column = column.expect("the plan has found something");
        let mut taken = self.a_region(region).loads.clone();
        if !self.may_part(region) {
            self.take_out_of_block(&mut taken);
        }
        let written = self.writes_of(region);
        taken.retain(|register| !column.has(*register) && !written.contains(register));
        Columns {
            head,
            frame: slot(&mut self.b, COMMON as u64 + 16 * column.common.len() as u64),
            values: [0; 2].map(|size| slot(&mut self.b, size)),
            column,
            taken,
            answers: vec![],
        }
    }

    /// No column has an entry of the table; what all groups have in common is computed.
    pub(super) fn forget_columns(&mut self, region: usize) {
        let columns = self.columns(region).cloned();
        let Some(Columns {
            column,
            frame,
            values,
            ..
        }) = columns
        else {
            return;
        };
        self.set_form(Form::Once);
        self.group = None;
        self.do_steps(&column, true);
        for (slot, at) in [(frame, 0), (values[0], VALUES[0]), (values[1], VALUES[1])] {
            let address = self.b.ins().stack_addr(types::I64, slot, 0);
            // Of another type, so that the load is not replaced by what is stored.
            let address = self.b.ins().bitcast(types::F64, little_endian(), address);
            self.b.ins().stack_store(address, frame, at);
        }
        for (at, register) in (COMMON..).step_by(16).zip(&column.common) {
            let value = self.held_of_block(*register);
            self.b.ins().stack_store(value, frame, at);
        }
        let nobody = self.b.ins().iconst(types::I32, NOBODY);
        let indices = if self.has_wide(region) { 2 } else { 1 };
        for index in &INDEX[..indices] {
            for entry in 0..ENTRIES {
                let at = index + (IN_INDEX * entry) as i32;
                self.b.ins().stack_store(nobody, frame, at);
            }
        }
    }

    /// Does those steps of a column that are for all, or the others.
    fn do_steps(&mut self, column: &Column, for_all: bool) {
        for at in &column.steps {
            if column.is_for_all(self.body, *at) == for_all {
                self.step = *at as u32;
                self.group_step_again(*at);
            }
        }
    }

    /// The loop over groups of a region whose builder is where one begins at `lane`.
    pub(super) fn begin_in_column(
        &mut self,
        region: usize,
        lane: Value,
        loads: &[RegId],
        of_block: &[(RegId, Value)],
    ) {
        let columns = self.columns(region);
        let head = columns.expect("groups take something").head;
        let begins = self.b.ins().iconst(types::I32, 0);
        self.b.ins().jump(head, &[lane.into(), begins.into()]);
        self.b.switch_to_block(head);
        let (lane, place) = (self.b.block_params(head)[0], self.b.block_params(head)[1]);
        self.begin_group(lane);
        let goes = self.b.create_block();
        self.find_column(region, goes);
        self.b.switch_to_block(goes);
        let mut loads = loads.to_vec();
        loads.retain(|register| !self.is_steady(region, *register));
        self.take_loads(region, &loads);
        self.go_to_place(region, place);
        self.begin_region(region, of_block);
    }

    /// Takes what a group has in common with others of its column from the table; first puts it
    /// there, if that is not done. The builder is where the group has begun; goes on at `goes`. The
    /// code behind that is lowered before, so that it is known what groups ask.
    pub(super) fn find_column(&mut self, region: usize, goes: Block) {
        let Some(columns) = self.columns(region).cloned() else {
            return;
        };
        let flags = MemFlags::trusted();
        let frame = self.b.ins().stack_load(types::I64, columns.frame, 0);
        let x = self.lanes().first;
        let x = self.b.use_var(x);
        // The next columns have the next entries.
        let far = i64::from(self.width().trailing_zeros()) - i64::from(IN_INDEX.trailing_zeros());
        let at = match far {
            ..0 => self.b.ins().ishl_imm(x, -far),
            0.. => self.b.ins().ushr_imm(x, far),
        };
        let at = self.b.ins().band_imm(at, (ENTRIES - 1) * IN_INDEX);
        let at = self.b.ins().uextend(types::I64, at);
        let entry = self.b.ins().iadd(frame, at);
        let wide = self.is_wide();
        let index = INDEX[usize::from(wide)];
        let whose = self.b.ins().load(types::I32, flags, entry, index);
        let (computes, takes) = (self.b.create_block(), self.b.create_block());
        let is_own = self.b.ins().icmp(IntCC::Equal, whose, x);
        self.b.ins().brif(is_own, takes, &[], computes, &[]);

        self.b.switch_to_block(computes);
        self.set_form(Form::Once);
        self.group = None;
        for (at, register) in (COMMON..).step_by(16).zip(&columns.column.common) {
            let ty = self.register_types[register.0 as usize];
            let value = self.b.ins().load(ty, flags, frame, at);
            self.put_all(*register, value);
        }
        self.do_steps(&columns.column, false);
        let mut kept = vec![];
        for answer in columns.answers.iter().filter(|answer| answer.wide == wide) {
            let value = self.work_out(answer.register, answer.question);
            self.b.def_var(answer.variable, value);
            kept.push(answer.variable);
        }
        for register in columns.column.steady.iter().chain(&columns.column.common) {
            match self.kept_of(*register) {
                Kept::One(variable) => kept.push(variable),
                Kept::Vectors(variables) => kept.extend(variables),
                Kept::Each(variables) => kept.extend(variables),
            }
        }
        let size = 16 * kept.len() as i64;
        let values = columns.values[usize::from(wide)];
        self.b.func.sized_stack_slots[values].size = (ENTRIES * size) as u32;
        let at_values = VALUES[usize::from(wide)];
        let values = self.b.ins().load(types::I64, flags, frame, at_values);
        let distance = self.b.ins().imul_imm(at, size / IN_INDEX);
        let to = self.b.ins().iadd(values, distance);
        let mut types = vec![];
        for (at, variable) in (0..).step_by(16).zip(&kept) {
            let value = self.b.use_var(*variable);
            types.push(self.b.func.dfg.value_type(value));
            self.b.ins().store(flags, value, to, at);
        }
        self.b.ins().store(flags, to, entry, index + ADDRESS);
        self.b.ins().store(flags, x, entry, index);
        self.b.ins().jump(takes, &[]);

        // While the group has this address, what lies there does not change: it is taken where it
        // is needed.
        let steady = flags.with_readonly().with_can_move();
        self.b.switch_to_block(takes);
        let from = self.b.ins().load(types::I64, flags, entry, index + ADDRESS);
        for ((at, variable), ty) in (0..).step_by(16).zip(kept).zip(types) {
            let value = self.b.ins().load(ty, steady, from, at);
            self.b.def_var(variable, value);
        }
        self.b.ins().jump(goes, &[]);
    }

    /// The number that says where a group of a region goes on; 0 where it begins.
    fn number_of(&mut self, region: usize, place: Place) -> i64 {
        let number = match place {
            Place::Resume(number) => 1 + number,
            Place::Landing(number) => 1 + self.resumes_of(region) + number,
        };
        number as i64
    }

    /// The group goes on at a place in a region, by way of where it begins. Fills the builder's
    /// block.
    pub(super) fn go_on_at(&mut self, region: usize, lane: Value, place: Place) {
        let number = self.number_of(region, place);
        let number = self.b.ins().iconst(types::I32, number);
        let columns = self.columns(region);
        let head = columns.expect("groups take something").head;
        self.b.ins().jump(head, &[lane.into(), number.into()]);
    }

    /// Goes to a place, if the group does not begin the region; the builder is where it does.
    fn go_to_place(&mut self, region: usize, place: Value) {
        let resumes = self.resumes_of(region);
        let landings = self.lanes().landings.clone().into_iter().enumerate();
        let inside =
            |(_, landing): &(usize, Landing)| landing.region == region && landing.join.is_some();
        let landings: Vec<_> = landings.filter(inside).collect();
        if resumes == 0 && landings.is_empty() {
            return;
        }
        let (elsewhere, begins) = (self.cold_block(), self.b.create_block());
        self.b.ins().brif(place, elsewhere, &[], begins, &[]);
        self.b.switch_to_block(elsewhere);
        let mut switch = Switch::new();
        let mut goes = |l: &mut Self, place| {
            let goes = l.cold_block();
            switch.set_entry(l.number_of(region, place) as u128, goes);
            goes
        };
        let resumes: Vec<(usize, Block)> = (0..resumes)
            .map(|number| (number, goes(self, Place::Resume(number))))
            .collect();
        let lands: Vec<(Landing, Block)> = landings
            .into_iter()
            .map(|(number, landing)| (landing, goes(self, Place::Landing(number))))
            .collect();
        switch.emit(&mut self.b, place, begins);
        for (number, goes) in resumes {
            self.b.switch_to_block(goes);
            self.set_form(Form::Once);
            self.go_on_for_wide(region, number);
        }
        for (landing, goes) in lands {
            self.b.switch_to_block(goes);
            self.set_form(Form::Once);
            self.land(landing);
        }
        self.b.switch_to_block(begins);
    }

    /// What is known of a register of the region that is lowered, if groups take that.
    fn answer(&mut self, register: RegId, question: Question) -> Option<Value> {
        if !self.is_steady_here(register) || !matches!(self.kept_of(register), Kept::Vectors(_)) {
            return None;
        }
        let (region, wide) = (self.turns().region, self.is_wide());
        let is_it = |answer: &&Answer| {
            (answer.register, answer.question, answer.wide) == (register, question, wide)
        };
        let known = self.columns(region)?.answers.iter().find(is_it);
        let variable = match known {
            Some(answer) => answer.variable,
            None => {
                let variable = self.b.declare_var(match question {
                    Question::Bits | Question::First => types::I32,
                    Question::Differs => types::I8,
                });
                let columns = self.turns().columns[region].as_mut();
                columns?.answers.push(Answer {
                    register,
                    question,
                    wide,
                    variable,
                });
                variable
            }
        };
        Some(self.b.use_var(variable))
    }

    fn work_out(&mut self, register: RegId, question: Question) -> Value {
        match question {
            Question::Bits => {
                let mask = self.predicate_mask(register);
                self.threads_in(&mask)
            }
            Question::Differs => self.differs(register, 1),
            Question::First => {
                self.set_form(Form::Lane(0));
                let first = self.read(&Arg::Reg(register), Type::B32);
                self.set_form(Form::Once);
                first
            }
        }
    }

    /// A bit for each thread, of a predicate that is computed once for each column of the region,
    /// or that follows right before `at` from such and from what is the same in all threads.
    pub(super) fn column_bits(&mut self, at: usize, register: RegId) -> Option<Value> {
        let region = self.turns_here()?.region;
        if !self.has_columns(region) {
            return None;
        }
        let mut left = MOST_COMBINED;
        self.bits_before(at, vec![], &Arg::Reg(register), &mut left)
    }

    /// The same of an operand of the step at `at`, where these registers have been written since.
    fn bits_before(
        &mut self,
        at: usize,
        mut written: Vec<RegId>,
        operand: &Arg,
        left: &mut usize,
    ) -> Option<Value> {
        let Arg::Reg(register) = *operand else {
            return None;
        };
        *left = left.checked_sub(1)?;
        if let Some(bits) = self.answer(register, Question::Bits) {
            return Some(bits);
        }
        if self.lanes().plan.class(register) != Class::Varying {
            if written.contains(&register) {
                return None;
            }
            self.set_form(Form::Once);
            let value = self.read(operand, Type::Pred);
            let value = self.b.ins().uextend(types::I32, value);
            let value = self.b.ins().ineg(value);
            let every = self.every_bit();
            return Some(self.b.ins().band_imm(value, every));
        }
        let (at, step) = written_before(self.body, at, register, &mut written)?;
        written.extend(&step.writes);
        let (a, b, both) = match step.operation.logic()? {
            Logic::Not(a) => {
                let bits = self.bits_before(at, written, a, left)?;
                let every = self.every_bit();
                return Some(self.b.ins().bxor_imm(bits, every));
            }
            Logic::Both(a, b) => (a, b, true),
            Logic::Either(a, b) => (a, b, false),
        };
        let a = self.bits_before(at, written.clone(), a, left)?;
        let b = self.bits_before(at, written, b, left)?;
        Some(match both {
            true => self.b.ins().band(a, b),
            false => self.b.ins().bor(a, b),
        })
    }

    /// Whether words do not count up by 1 from thread to thread, and the first of them: of a
    /// register that is written right before, as the sum of one that is computed once for each
    /// column and of what is the same in all threads.
    pub(super) fn column_row(&mut self, register: RegId) -> Option<(Value, Value)> {
        let mut since = vec![];
        let (_, step) = written_before(self.body, self.step as usize, register, &mut since)?;
        let Some(Term::Sum(Arg::Reg(a), Arg::Reg(b), 32)) = step.operation.term() else {
            return None;
        };
        let plan = &self.lanes().plan;
        let same = |register: &RegId| plan.class(*register).stride() == Some(0);
        let (varies, same) = match (same(a), same(b)) {
            (true, false) => (*b, *a),
            (false, true) => (*a, *b),
            _ => return None,
        };
        if since.contains(&same) {
            return None;
        }
        let differs = self.answer(varies, Question::Differs)?;
        let first = self.answer(varies, Question::First)?;
        self.set_form(Form::Once);
        let same = self.read(&Arg::Reg(same), Type::B32);
        Some((differs, self.b.ins().iadd(first, same)))
    }
}
