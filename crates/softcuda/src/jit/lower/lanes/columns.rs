//! What groups of one column of a block have in common, as [`spmd::columns`](crate::jit::spmd)
//! finds it: the first of them computes it, and the others take it from a table in the native
//! stack. That has a few entries; a column finds its own there unless another has taken its place.
//!
//! ```text
//! head:   a group begins, or goes on for a wide one that gave up, or where its threads joined
//!           if the entry is not its column's: compute it
//!           take what the region loads, and go on
//! ```
//!
//! Nothing else enters the group's code, so that what is taken there need not be taken again
//! wherever a group may go on.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, Block, InstBuilder, MemFlags, Value, types};
use cranelift_frontend::{FunctionBuilder, Switch, Variable};

use super::{Form, Kept, Landing};
use crate::jit::decode::{Arg, RegId};
use crate::jit::lower::function::slot;
use crate::jit::lower::{Lower, Term};
use crate::jit::program::Step;
use crate::jit::spmd::Column;

/// Entries of the table.
const ENTRIES: i64 = 8;
/// Bytes in its index for each: which column has it, and where it lies.
const IN_INDEX: i64 = 16;
const ADDRESS: i32 = 8;
/// No column's first `%tid.x`.
const NOBODY: i64 = -1;

/// The table of the columns of groups, or of wide ones.
#[derive(Clone, Copy)]
pub(in crate::jit::lower) struct Table {
    index: ir::StackSlot,
    values: ir::StackSlot,
}

impl Table {
    /// Without room, where nothing is `used`.
    pub fn new(b: &mut FunctionBuilder<'_>, used: bool) -> Table {
        let index = if used { ENTRIES * IN_INDEX } else { 0 };
        Table {
            index: slot(b, index as u64),
            values: slot(b, 0),
        }
    }
}

/// What a region needs whose groups have something in common.
#[derive(Clone)]
pub(in crate::jit::lower) struct Columns {
    /// Where a group begins or goes on: takes its first lane and the number of a [`Place`].
    head: Block,
    /// The steps that are done once, and the registers that groups take instead.
    steps: Vec<usize>,
    steady: Vec<RegId>,
    /// What the steps take that is the same in all threads of the block.
    of_block: Vec<RegId>,
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
    fn columns(&self, region: usize) -> Option<&Columns> {
        let turns = self.lanes.as_ref()?.turns.as_ref()?;
        turns.columns[region].as_ref()
    }

    /// Whether groups of a region take what they have in common from a table.
    pub(super) fn has_columns(&self, region: usize) -> bool {
        self.columns(region).is_some()
    }

    /// Whether groups of the region that is lowered take what a step of it computes.
    pub(super) fn is_done_before(&self, at: usize) -> bool {
        let turns = self.lanes.as_ref().and_then(|lanes| lanes.turns.as_ref());
        let columns = turns.and_then(|turns| turns.columns[turns.region].as_ref());
        let takes = |columns: &Columns| match &self.body.steps[at] {
            Step::Instruction(step) => {
                let mut writes = step.writes.iter();
                columns.steps.binary_search(&at).is_ok()
                    && writes.all(|register| columns.steady.contains(register))
            }
            Step::Label(_) => false,
        };
        columns.is_some_and(takes)
    }

    /// Whether a register is computed once for each column of a region.
    pub(super) fn is_steady(&self, region: usize, register: RegId) -> bool {
        let columns = self.columns(region);
        columns.is_some_and(|columns| columns.steady.contains(&register))
    }

    /// The same of the region that is lowered.
    pub(super) fn is_steady_here(&self, register: RegId) -> bool {
        let turns = self.lanes.as_ref().and_then(|lanes| lanes.turns.as_ref());
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
        let Column {
            steps,
            steady,
            of_block,
        } = column.expect("the plan has found something");
        let mut taken = self.a_region(region).loads.clone();
        if !self.may_part(region) {
            self.take_out_of_block(&mut taken);
        }
        let written = self.writes_of(region);
        taken.retain(|register| !steady.contains(register) && !written.contains(register));
        Columns {
            head,
            steps,
            steady,
            of_block,
            taken,
            answers: vec![],
        }
    }

    fn table(&mut self) -> Table {
        let wide = usize::from(self.is_wide());
        self.turns().tables[wide]
    }

    /// No column has an entry of the tables. What their entries are computed from goes where it
    /// stays while the region is done: in the tiles, what groups leave for each other may take its
    /// place.
    pub(super) fn forget_columns(&mut self, region: usize) {
        let Some(columns) = self.columns(region) else {
            return;
        };
        let (of_block, common) = (columns.of_block.clone(), self.turns().common);
        let size = &mut self.b.func.sized_stack_slots[common].size;
        *size = (*size).max(16 * of_block.len() as u32);
        for (at, register) in (0..).step_by(16).zip(of_block) {
            let value = self.held_of_block(register);
            self.b.ins().stack_store(value, common, at);
        }
        let nobody = self.b.ins().iconst(types::I32, NOBODY);
        let [narrow, wide] = self.turns().tables;
        let wide = self.has_wide(region).then_some(wide);
        for Table { index, .. } in std::iter::once(narrow).chain(wide) {
            for entry in 0..ENTRIES {
                let at = (IN_INDEX * entry) as i32;
                self.b.ins().stack_store(nobody, index, at);
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
        let Some(&Columns { head, .. }) = self.columns(region) else {
            return;
        };
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
        let (flags, table) = (MemFlags::trusted(), self.table());
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
        let index = self.b.ins().stack_addr(types::I64, table.index, 0);
        let entry = self.b.ins().iadd(index, at);
        let whose = self.b.ins().load(types::I32, flags, entry, 0);
        let (computes, takes) = (self.b.create_block(), self.b.create_block());
        let is_own = self.b.ins().icmp(IntCC::Equal, whose, x);
        self.b.ins().brif(is_own, takes, &[], computes, &[]);

        self.b.switch_to_block(computes);
        self.set_form(Form::Once);
        self.group = None;
        let common = self.turns().common;
        for (at, register) in (0..).step_by(16).zip(&columns.of_block) {
            let ty = self.register_types[register.0 as usize];
            let value = self.b.ins().stack_load(ty, common, at);
            self.put_all(*register, value);
        }
        for at in &columns.steps {
            self.step = *at as u32;
            self.group_step_again(*at);
        }
        let wide = self.is_wide();
        let mut kept = vec![];
        for answer in columns.answers.iter().filter(|answer| answer.wide == wide) {
            let value = self.work_out(answer.register, answer.question);
            self.b.def_var(answer.variable, value);
            kept.push(answer.variable);
        }
        for register in &columns.steady {
            match self.kept_of(*register) {
                Kept::One(variable) => kept.push(variable),
                Kept::Vectors(variables) => kept.extend(variables),
                Kept::Each(variables) => kept.extend(variables),
            }
        }
        // All regions share the table: it is as large as the largest needs it.
        let size = 16 * kept.len() as i64;
        let before = &mut self.b.func.sized_stack_slots[table.values].size;
        *before = (*before).max((ENTRIES * size) as u32);
        let values = self.b.ins().stack_addr(types::I64, table.values, 0);
        let distance = self.b.ins().imul_imm(at, size / IN_INDEX);
        let to = self.b.ins().iadd(values, distance);
        let mut types = vec![];
        for (at, variable) in (0..).step_by(16).zip(&kept) {
            let value = self.b.use_var(*variable);
            types.push(self.b.func.dfg.value_type(value));
            self.b.ins().store(flags, value, to, at);
        }
        self.b.ins().store(flags, to, entry, ADDRESS);
        self.b.ins().store(flags, x, entry, 0);
        self.b.ins().jump(takes, &[]);

        // While the group has this address, what lies there does not change: it is taken where it
        // is needed.
        self.b.switch_to_block(takes);
        let from = self.b.ins().load(types::I64, flags, entry, ADDRESS);
        let steady = flags.with_readonly().with_can_move();
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
                    Question::Bits => types::I32,
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
        }
    }

    /// A bit for each thread, of a predicate that is computed once for each column of the region.
    pub(super) fn column_bits(&mut self, register: RegId) -> Option<Value> {
        self.answer(register, Question::Bits)
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
        self.answer(varies, Question::Differs)
    }
}
