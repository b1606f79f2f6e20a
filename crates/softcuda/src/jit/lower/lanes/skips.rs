//! Warps that have nothing to do in a region: it begins with a branch that leads past it, and all
//! lanes take that. A comparison of the first lane's number tells, as in
//! [`agreement`](super::agreement), so that no group of such a warp has to begin. Where the block
//! is one row of threads, and the comparison says the same of all warps that are left, none of them
//! is looked at.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, MemFlags, Value, types};

use super::Form;
use super::agreement::{Agreement, Threads};
use super::regions::LANES;
use crate::grid::MOST_THREADS;
use crate::grid::context::{BlockContext, Turn};
use crate::grid::rounds::{BarrierKind, Wait};
use crate::jit::decode::{Arg, Comparison, Flow, RegId};
use crate::jit::lower::Lower;
use crate::jit::lower::entry::Entry;
use crate::jit::program::{Instruction, Step};
use crate::jit::spmd::{Class, Exit, Target, Way, compared};

/// The most steps up to the branch.
const MOST_STEPS: usize = 12;

/// A branch that leads past its region.
pub(super) struct Skip {
    /// The steps before it that are not its comparison.
    steps: Vec<usize>,
    branch: usize,
    guard: RegId,
    /// Threads leave where the guard is true.
    pub if_true: bool,
    /// Registers that the steps read.
    reads: Vec<RegId>,
    /// What is compared counts on from warp to warp of a row.
    counts_over_row: bool,
}

impl Lower<'_> {
    /// Goes on with the next warp if this one has nothing to do in a region; otherwise the builder
    /// is where its groups begin. `of_block` is what they begin with.
    pub(super) fn skip_warp(&mut self, region: usize, of_block: &[(RegId, Value)]) {
        let Some(skip) = self.skip_of(region) else {
            return;
        };
        let (test, groups) = (self.b.create_block(), self.b.create_block());
        let row = self.entry(Entry::Ntid(0));
        let odd = self.b.ins().band_imm(row, LANES - 1);
        self.b.ins().brif(odd, groups, &[], test, &[]);
        self.b.switch_to_block(test);
        self.skip_if_all_leave(region, &skip, of_block, groups);
        self.b.switch_to_block(groups);
    }

    /// As [`skip_warp`](Self::skip_warp), of a warp that is part of a row.
    pub(super) fn skip_whole_warp(&mut self, region: usize, of_block: &[(RegId, Value)]) {
        if let Some(skip) = self.skip_of(region) {
            let groups = self.b.create_block();
            self.skip_if_all_leave(region, &skip, of_block, groups);
            self.b.switch_to_block(groups);
        }
    }

    /// Goes on with the next warp if all threads of this one leave, and otherwise to `groups`.
    /// Fills the builder's block.
    fn skip_if_all_leave(
        &mut self,
        region: usize,
        skip: &Skip,
        of_block: &[(RegId, Value)],
        groups: Block,
    ) {
        let blocks = self.turns().regions[region];
        let zero = self.b.ins().iconst(types::I64, 0);
        self.begin_group(zero);
        let mut reads = skip.reads.clone();
        reads.retain(|register| of_block.iter().all(|(held, _)| held != register));
        self.take_loads(region, &reads);
        for (register, value) in of_block {
            self.put_all(*register, *value);
        }
        let body = self.body;
        self.group = None;
        for at in &skip.steps {
            if let Step::Instruction(instruction) = &body.steps[*at] {
                self.reads_bits = instruction.reads_bits;
                self.group_step(*at, instruction);
            }
        }
        match self.all_leave(Threads::Known(LANES), skip) {
            Some(leave) => {
                let past = self.b.create_block();
                self.b.ins().brif(leave, past, &[], groups, &[]);
                self.b.switch_to_block(past);
                self.if_rest_leaves(skip, blocks.done, blocks.over);
            }
            None => _ = self.b.ins().jump(groups, &[]),
        }
    }

    /// What a group's branch at this step is, if all that take it have nothing to do in the region.
    pub(super) fn skip_at(&mut self, at: usize) -> Option<Skip> {
        if !self.in_turns() {
            return None;
        }
        let region = self.turns().region;
        self.leading_branch(region).filter(|skip| skip.branch == at)
    }

    /// The group takes the branch that leads past its region, `to` somewhere: goes past for all
    /// groups that are left, if they take it, too. Fills the builder's block.
    pub(super) fn leave_for_rest(&mut self, skip: &Skip, to: Block) {
        let region = self.turns().region;
        let past = self.turns().regions[region].past;
        self.if_rest_leaves(skip, past, to);
    }

    /// Where the groups that are left have nothing to do in a region.
    pub(super) fn lower_past(&mut self, region: usize) {
        let (blocks, (_, _, exit)) = (self.turns().regions[region], self.region(region));
        self.b.switch_to_block(blocks.past);
        let goes = match self.brings_nothing(exit) {
            true => blocks.done,
            false => blocks.leave,
        };
        self.b.ins().jump(goes, &[]);
    }

    /// Goes to `past` if it is certain that all threads of the turn from the group's first on take
    /// the branch, and otherwise to `to`. Fills the builder's block.
    fn if_rest_leaves(&mut self, skip: &Skip, past: Block, to: Block) {
        if !skip.counts_over_row {
            self.b.ins().jump(to, &[]);
            return;
        }
        // It is loaded again: Cranelift would compare once, and keep the result.
        let (flags, at) = (MemFlags::trusted(), offset_of!(BlockContext, threads));
        let threads = self.b.ins().load(types::I32, flags, self.block, at as i32);
        let row = self.entry(Entry::Ntid(0));
        let one_row = self.b.ins().icmp(IntCC::Equal, row, threads);
        let whole = self.b.create_block();
        self.b.ins().brif(one_row, whole, &[], to, &[]);
        self.b.switch_to_block(whole);
        let end = self.turn_field(offset_of!(Turn, end));
        let (warp, lane) = (self.turns().warp, self.turns().lane);
        let (warp, lane) = (self.b.use_var(warp), self.b.use_var(lane));
        let left = self.b.ins().isub(end, warp);
        let left = self.b.ins().imul_imm(left, LANES);
        let lane = self.b.ins().ireduce(types::I32, lane);
        let left = self.b.ins().isub(left, lane);
        match self.all_leave(Threads::UpTo(MOST_THREADS as i64, left), skip) {
            Some(leave) => _ = self.b.ins().brif(leave, past, &[], to, &[]),
            None => _ = self.b.ins().jump(to, &[]),
        }
    }

    /// Whether all of some threads, from the group's first on, take the branch: if that is true it
    /// is certain.
    fn all_leave(&mut self, threads: Threads, skip: &Skip) -> Option<Value> {
        let Agreement { none, all } = self.agreement_of(threads, skip.branch, skip.guard)?;
        let told = if skip.if_true { all } else { none }?;
        Some(self.all_told(told))
    }

    /// The branch that leads past a region, if it begins with one, a group that takes it leaves
    /// nothing behind, and it can be told for a warp.
    fn skip_of(&mut self, region: usize) -> Option<Skip> {
        let (_, _, exit) = self.region(region);
        let skip = self.leading_branch(region)?;
        self.brings_nothing(exit).then_some(skip)
    }

    /// The same, but for what a group brings to what comes next.
    fn leading_branch(&mut self, region: usize) -> Option<Skip> {
        let (head, wait, _) = self.region(region);
        let in_step = self.lanes().plan.is_in_step(region);
        if self.a_region(region).brings || in_step {
            return None;
        }
        let may_part = self.may_part(region);
        let mut stores = self.a_region(region).stores.clone();
        if !may_part {
            self.take_out_of_block(&mut stores);
        }
        // What is computed again has no place.
        let kept = self.places_of(&stores);
        let body = self.body;
        let plan = &self.lanes().plan;
        let regions = plan.regions.as_ref()?;
        let mut written: Vec<RegId> = vec![];
        if let Some((at, _)) = wait
            && let Step::Instruction(wait) = &body.steps[at]
        {
            written.extend(&wait.writes);
        }
        if region == 0 {
            // What is read before it is written is zero, also in warps that are skipped.
            written.extend(&regions.regions[0].live);
        }
        let of = &plan.control.graph.block_of;
        let inside = |block: usize| {
            let steps = plan.control.first[block]..of.len();
            steps.take_while(move |at| of[*at] == block)
        };
        // Blocks that simply follow each other.
        let (mut block, mut steps) = (head, vec![]);
        loop {
            steps.extend(inside(block).filter(|at| plan.ways[*at] != Way::Wait));
            if steps.len() > MOST_STEPS {
                return None;
            }
            match plan.control.graph.successors[block][..] {
                [next] if regions.stays(block, next) => block = next,
                _ => break,
            }
        }
        let branch = steps.pop()?;
        let mut reads: Vec<RegId> = vec![];
        for at in &steps {
            let Step::Instruction(step) = &body.steps[*at] else {
                continue;
            };
            let operation = &step.operation;
            let simple =
                plan.ways[*at] == Way::Once && (operation.pure() || operation.loads_parameter());
            // The branch's guard differs from lane to lane: of it, the comparison counts.
            let compares = step.operation.comparison();
            let compares = compares.is_some_and(|of| of.of_words());
            if step.guard.is_some() || !(simple || compares) {
                return None;
            }
            reads.extend(&step.reads);
            written.extend(&step.writes);
        }
        let Step::Instruction(last) = &body.steps[branch] else {
            return None;
        };
        let (guard, negated) = last.guard?;
        let Flow::Jump(label) = last.operation.flow() else {
            return None;
        };
        if plan.class(guard) != Class::Varying
            || regions.decides(block)
            || kept.iter().any(|(register, _)| written.contains(register))
        {
            return None;
        }
        let Comparison { a, b, .. } =
            compared(self.body, branch, guard).filter(Comparison::of_words)?;
        let plan = &self.lanes().plan;
        let steady = |arg: &Arg| match arg {
            Arg::Reg(register) => plan.counts_over_warp(*register),
            arg => matches!(arg, Arg::Imm(_)),
        };
        if !steady(a) || !steady(b) {
            return None;
        }
        let counts_over_row = [a, b].into_iter().all(|arg| match arg {
            Arg::Reg(register) => plan.counts_over_row(*register),
            _ => true,
        });
        let taken = self.jump_target(label);
        let [taken_leaves, falls_leaves] = [taken, block + 1].map(|to| self.leaves_by(block, to));
        if taken_leaves == falls_leaves {
            return None;
        }
        // The comparison itself is not done: it would need a vector.
        steps.retain(|at| match &body.steps[*at] {
            Step::Instruction(step) => !step.writes.contains(&guard),
            Step::Label(_) => false,
        });
        Some(Skip {
            steps,
            branch,
            guard,
            if_true: taken_leaves != negated,
            reads,
            counts_over_row,
        })
    }

    /// Whether one group does all that there is to do in a region: what is the same in all threads
    /// of the block.
    pub(super) fn is_for_one_group(&mut self, region: usize) -> bool {
        let (_, wait, exit) = self.region(region);
        let mut stores = self.a_region(region).stores.clone();
        self.take_out_of_block(&mut stores);
        let keeps = !self.places_of(&stores).is_empty();
        let in_step = self.lanes().plan.is_in_step(region);
        if keeps || self.a_region(region).brings || in_step || self.may_part(region) {
            return false;
        }
        let brings_nothing = match exit {
            Exit::Branch { block, .. } => self.guard_of(block),
            exit => self.brings_nothing(exit).then_some(None),
        };
        let Some(guard) = brings_nothing else {
            return false;
        };
        let (steps, body) = (self.steps_of(region), self.body);
        let plan = &self.lanes().plan;
        let of_block = |registers: &[RegId]| registers.iter().all(|at| plan.is_of_block(*at));
        guard.is_none_or(|guard| plan.is_of_block(guard))
            && steps.iter().all(|at| match &body.steps[*at] {
                Step::Label(_) => true,
                Step::Instruction(step) => match plan.ways[*at] {
                    Way::Wait => step.writes.is_empty() && wait.is_some(),
                    Way::Control => match step.guard {
                        Some((guard, _)) => plan.is_of_block(guard),
                        None => !step.operation.faults(),
                    },
                    _ => step.operation.pure() && step.guard.is_none() && of_block(&step.writes),
                },
            })
    }

    /// The guard of the branch that a block consists of, in that case.
    pub(super) fn guard_of(&mut self, block: usize) -> Option<Option<RegId>> {
        let at = self.lanes().plan.control.first[block];
        match &self.body.steps[at] {
            Step::Instruction(branch) => branch.guard.map(|(guard, _)| Some(guard)),
            Step::Label(_) => None,
        }
    }

    /// Whether the way from one block to another leads out of their region without another step.
    fn leaves_by(&mut self, mut from: usize, mut to: usize) -> bool {
        let body = self.body;
        let plan = &self.lanes().plan;
        let (of, successors) = (&plan.control.graph.block_of, &plan.control.graph.successors);
        let Some(regions) = &plan.regions else {
            return false;
        };
        loop {
            if !regions.stays(from, to) {
                return true;
            }
            let mut steps = (plan.control.first[to]..of.len()).take_while(|at| of[*at] == to);
            let ends = |step: &Instruction| {
                let operation = &step.operation;
                operation.flow() == Flow::Leave && !operation.faults() && step.guard.is_none()
            };
            let empty = steps.all(|at| match &body.steps[at] {
                Step::Label(_) => true,
                Step::Instruction(step) => ends(step),
            });
            match successors[to][..] {
                // Onwards: a loop of empty blocks has a jump.
                [] if empty => return true,
                [next] if empty => (from, to) = (to, next),
                _ => return false,
            }
        }
    }

    /// Whether groups that leave a region by this exit bring nothing to what comes next.
    fn brings_nothing(&mut self, exit: Exit) -> bool {
        match exit {
            Exit::To(Target::End) => true,
            Exit::To(Target::Region(next)) => match self.region(next) {
                (_, None, _) => true,
                (_, Some((_, number)), _) => {
                    let Wait { kind, mask, b, .. } = self.unit.waits[number];
                    BarrierKind::of(kind) == Some(BarrierKind::Sync)
                        && mask.is_some()
                        && b.is_some()
                }
            },
            Exit::Branch { .. } => false,
        }
    }

    /// A group begins with this lane of the warp.
    pub(super) fn begin_group(&mut self, lane: Value) {
        self.set_group(lane);
        self.set_form(Form::Once);
        let x = self.lane_tid(0);
        let first = self.lanes().first;
        self.b.def_var(first, x);
    }
}
