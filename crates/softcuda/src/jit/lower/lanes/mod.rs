//! The vector form of a kernel, as [`spmd`](crate::jit::spmd) plans it: a group of neighbouring
//! threads runs together.
//!
//! ```text
//! for each row of threads
//!   if whole groups make up the row
//!     for each group, or wide group: the vector form
//!                     where threads part: note where each stands; "next thread"
//!   else
//!     for each thread: the form of one thread
//! next thread: of the group that parted, one that has not come to where the ways join goes on
//!              there, in the form of one thread; when all have come there, the group goes on
//! ```
//!
//! That is where no thread waits; [`regions`] has the rest.
//!
//! What a thread leaves for the other form lies in a slot of the native stack, which has a place
//! for each register and thread.

mod agreement;
mod ahead;
mod apart;
mod batches;
mod chains;
mod chosen;
mod columns;
mod in_turn;
mod joined;
mod masks;
mod meetings;
mod of_block;
mod parting;
mod passes;
mod regions;
mod registers;
mod rest;
mod rows;
mod skips;
mod slices;
mod steps;
mod together;
mod waits;
mod wide;

use std::collections::HashMap;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, Block, InstBuilder, MemFlags, Type as ValueType, Value, types};
use cranelift_frontend::Variable;
use smallvec::SmallVec;

use self::in_turn::InTurn;
use self::joined::Joined;
use self::slices::Slice;
use super::Lower;
use super::entry::Entry;
use super::function::slot;
use crate::grid::context::THREAD_STRIDE;
use crate::jit::decode::RegId;
use crate::jit::program::Step;
use crate::jit::spmd::{MOST_BLOCKS_LOG2, Plan, Rows, WIDEST, WIDTH};

pub(in crate::jit::lower) use chains::InChain;
pub(in crate::jit::lower) use regions::{Part, Turns};

/// What the operation being lowered is lowered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::jit::lower) enum Form {
    /// A thread, by itself.
    Thread,
    /// The first thread of a group, for all.
    Once,
    /// One thread of a group.
    Lane(usize),
    /// The thread of a group that a loop has come to.
    InTurn,
    /// A vector of threads of a group: which, and whether of values of 64 bits.
    Vector { chunk: usize, wide: bool },
}

/// How a register is kept of a group.
#[derive(Clone, Debug)]
pub(in crate::jit::lower) enum Kept {
    /// The first thread's value, or that of all.
    One(Variable),
    /// Vectors, of so many bits an element; a predicate's elements have all bits set or none.
    Vectors(SmallVec<[Variable; 4]>),
    /// Each thread's value.
    Each(SmallVec<[Variable; WIDTH]>),
}

/// Where a thread stands that has ended.
const ENDED: i64 = 0;
/// Where threads join that never do.
const NOWHERE: i64 = -1;
/// In the slot: which thread of a group runs by itself; none, where the block has no groups.
const LANE: i32 = 0;
const NO_LANE: i64 = -1;
/// In the slot: where the threads join.
const JOIN: i32 = 4;
/// In the slot: `%tid.x` of the group's first thread.
const FIRST: i32 = 8;
/// In the slot, in rounds: the number of the group's first thread in its warp.
const GROUP: i32 = 12;
/// In the slot, in rounds: the number of the group's warp.
const WARP: i32 = 24;
/// In the slot: the number of the [`Landing`], where the group goes on.
const LANDING: i32 = 16;
/// In the slot, in rounds: not 0 once a group's threads went on by themselves.
const FAILED: i32 = 20;
/// In the slot, in a region with loops that groups go through in step: whether a group goes again,
/// and whether all have begun.
const AGAIN: i32 = 28;
/// In the slot: where each thread stands.
const STANDS: i32 = 32;
/// In the slot: the registers.
const REGISTERS: i32 = STANDS + 4 * WIDTH as i32;

/// The vector form, while a function is lowered.
pub(in crate::jit::lower) struct Lanes {
    plan: Plan,
    pub form: Form,
    registers: Vec<Option<Kept>>,
    /// The thread whose turn it is, in a loop over a group's.
    in_turn: Option<InTurn>,
    turns_slot: ir::StackSlot,
    /// What threads of the group add to memory in the step, and where they leave it.
    batch: Option<batches::Batch>,
    batches: Option<ir::StackSlot>,
    /// What threads of the group write one after the other, until all have.
    written: HashMap<(RegId, usize), Variable>,
    /// The first half of a predicate that is computed from values of 64 bits.
    halves: HashMap<RegId, Value>,
    /// By two vectors of halves, the vectors of 64 bits that they were split from: shuffles of
    /// whole vectors need not join them again.
    split: HashMap<(Value, Value), (Value, Value)>,
    /// The threads for which the operation counts; all, where there is none.
    mask: Option<RegId>,
    masks_by_false: bool,
    /// The vectors of each register that the steps are lowered for.
    slice: Slice,
    /// By step of a run in slices, where its row lies.
    rows: HashMap<u32, Value>,
    /// The accesses of the step are known to be inside of an array.
    pub checked: bool,
    /// What the first thread is known to have in registers: these need not be read.
    firsts: SmallVec<[(RegId, Value); 2]>,
    /// Where the range is remembered that all threads' accesses of the step are checked against, if
    /// each has no place of its own for that.
    pub site: Option<u32>,
    /// Where threads store that are not to store.
    aside: ir::StackSlot,
    /// Where a thread whose access is not known to be allowed goes, if the group can do anew what
    /// its threads do one after the other.
    pub retreat: Option<Block>,
    /// The addresses of accesses that were [checked ahead](ahead), by step.
    pub ahead: HashMap<u32, Value>,
    /// The operation is one thread's, which stands for those that come to it.
    pub by_one: bool,
    /// By branch, what it leads to by masks.
    by_masks: HashMap<usize, masks::ByMasks>,
    /// For each group of accesses, what [`Lower::group_bases`] is for one thread: by thread.
    pub bases: Vec<[Option<Value>; WIDEST]>,
    /// By group of accesses, the lines of memory that are fetched ahead.
    fetched: Vec<(u32, i64)>,
    /// Loads of the steps that are lowered one after the other.
    joined: Joined,
    /// By block of the plan: where the group's code begins, and where that of one thread does.
    group_blocks: Vec<Block>,
    thread_blocks: Vec<Option<Block>>,
    /// By block of the plan, whether threads of a group that parted may stand there.
    stands: Vec<bool>,
    /// By block of the plan, where threads join: they stop there.
    joins: Vec<bool>,
    /// `%tid.x` of the group's first thread.
    first: Variable,
    /// `%tid.x` of the thread that runs by itself.
    x: Variable,
    slot: ir::StackSlot,
    /// Where the local memory of a group's threads lies in it, which have one place for that while
    /// they run.
    local: Option<i32>,
    /// Where registers lie in it.
    places: HashMap<RegId, i32>,
    size: i32,
    /// Where the threads of a group part, wherever that is: takes where they stand, join and land.
    leaves: Block,
    /// Goes to the next thread of a group that parted.
    next: Block,
    /// Goes to the next group.
    latch: Block,
    /// Of a loop that blocks may go through in step: where a turn begins, and where a group goes
    /// that is to do another one.
    turn: Block,
    next_turn: Block,
    /// Where groups that parted go on.
    landings: Vec<Landing>,
    /// In rounds.
    pub turns: Option<Turns>,
    /// For more threads.
    wide: Option<wide::WideForm>,
    /// Where a thread goes on that parted from its group.
    parted: Block,
}

/// The most bytes that a thread stores at once: `.v4.b64`, or `.v8.b32`.
const LARGEST: u64 = 32;

/// Where a group goes on that parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Landing {
    /// The block where its threads join, if they do.
    join: Option<usize>,
    /// In rounds, the region that it parted in.
    region: usize,
}

impl Lanes {
    fn kept(&self, register: RegId) -> &Kept {
        self.registers[register.0 as usize]
            .as_ref()
            .expect("every register is declared before the form is lowered")
    }
}

/// Threads in a vector of values of so many bits.
const fn in_vector(wide: bool) -> usize {
    if wide { 2 } else { 4 }
}

pub(super) fn vector_of(ty: ValueType) -> ValueType {
    match ty {
        types::F32 => types::F32X4,
        types::F64 => types::F64X2,
        types::I64 => types::I64X2,
        _ => types::I32X4,
    }
}

impl Lower<'_> {
    /// The operation works on vectors.
    pub(in crate::jit::lower) fn in_vectors(&self) -> bool {
        matches!(self.form(), Form::Vector { .. })
    }

    /// It is done for a group's first thread, which mostly stands for all.
    pub(in crate::jit::lower) fn is_once(&self) -> bool {
        matches!(self.form(), Form::Once | Form::Lane(0))
    }

    pub(in crate::jit::lower) fn form(&self) -> Form {
        self.lanes.as_ref().map_or(Form::Thread, |lanes| lanes.form)
    }

    pub(in crate::jit::lower) fn set_form(&mut self, form: Form) {
        let Some(lanes) = &mut self.lanes else {
            return;
        };
        lanes.form = form;
        // In rounds, each thread has a context of its own.
        let Some(turns) = &lanes.turns else {
            return;
        };
        let first = turns.context;
        match form {
            Form::Thread => {}
            Form::Lane(lane @ 1..) => {
                let first = self.b.use_var(first);
                self.thread = self.b.ins().iadd_imm(first, (lane * THREAD_STRIDE) as i64);
            }
            Form::InTurn => self.thread = self.context_in_turn(),
            _ => self.thread = self.b.use_var(first),
        }
    }

    fn lanes(&mut self) -> &mut Lanes {
        self.lanes
            .as_mut()
            .expect("the vector form is only lowered where there is one")
    }

    /// Lowers the group's code; the builder is where a row's groups begin. Where no thread waits, a
    /// row is done at `over`.
    pub(in crate::jit::lower) fn lower_groups(&mut self, over: Option<Block>) {
        // Operations of a group leave the function by faults alone.
        let fault = self.cold_block();
        let status = self.b.append_block_param(fault, types::I32);
        let leave = std::mem::replace(&mut self.leave, fault);
        self.declare();
        match over {
            None => self.lower_regions(),
            Some(over) => {
                self.set_form(Form::Once);
                self.clear_group();
                self.lower_group_steps();
                self.close_turn();
                self.lower_wide_row(over);
            }
        }
        self.b.switch_to_block(fault);
        self.b.ins().return_(&[status]);
        self.leave = leave;
        self.set_form(Form::Thread);
    }

    /// The group's code, block after block. The builder is where the group begins.
    fn lower_group_steps(&mut self) {
        let body = self.body;
        let mut at = 0;
        while at < body.steps.len() {
            self.group_begins(at);
            if self.is_unreached(at) {
                at += 1;
                continue;
            }
            let end = self.end_of_block(at);
            if !self.goes_alone(at) {
                self.lower_group_part(at..end);
            }
            at = end;
        }
        self.group_begins(at);
        let plan = &self.lanes().plan;
        let last = plan.control.block_at(at);
        let falls_in = plan.control.begins(at).is_some() || !plan.is_alone(last);
        if falls_in && !self.is_unreached(at) {
            self.end_group();
        }
    }

    /// Whether groups never come to a block: it has no code.
    fn has_no_code(&mut self, block: usize) -> bool {
        let lanes = self.lanes();
        let regions = lanes.plan.regions.as_ref();
        let region = regions.and_then(|regions| regions.of[block]);
        let in_chain = match (&lanes.turns, region) {
            (Some(turns), Some(region)) => turns.by_chains[region],
            _ => false,
        };
        in_chain || lanes.plan.is_unreached(block)
    }

    /// Whether groups never come to a step, or behind the last one.
    fn is_unreached(&mut self, at: usize) -> bool {
        let block = self.lanes().plan.control.block_at(at);
        let unreached = self.has_no_code(block);
        let plan = &self.lanes().plan;
        if unreached && plan.control.first[block] == at {
            let here = self.lanes().group_blocks[block];
            self.b.ins().jump(here, &[]);
        }
        unreached
    }

    fn lower_group_step(&mut self, at: usize) {
        let body = self.body;
        if let Step::Instruction(instruction) = &body.steps[at]
            && !self.is_done_before(at)
        {
            self.step = at as u32;
            self.group = self.groups.of_step.get(&(at as u32)).copied();
            self.reads_bits = instruction.reads_bits;
            self.group_step(at, instruction);
        }
    }

    /// At the head of a block where threads go on by themselves: has the group part.
    fn goes_alone(&mut self, at: usize) -> bool {
        let plan = &self.lanes().plan;
        let block = plan.control.block_at(at);
        let is_alone = plan.is_alone(block);
        if is_alone {
            let join = plan.control.joins[block];
            let here = self.stands(Some(block));
            self.part(&[block], here, join);
        }
        is_alone
    }

    /// Behind the last step of the block that a step is in.
    fn end_of_block(&mut self, at: usize) -> usize {
        let of = &self.lanes().plan.control.graph.block_of;
        let end = (at..of.len()).find(|step| of[*step] != of[at]);
        end.unwrap_or(of.len())
    }

    /// The function runs in rounds.
    pub(in crate::jit::lower) fn in_turns(&self) -> bool {
        self.lanes
            .as_ref()
            .is_some_and(|lanes| lanes.turns.is_some())
    }

    /// In the code of a group, where a step may begin a block.
    fn group_begins(&mut self, at: usize) {
        if let Some(block) = self.lanes().plan.control.begins(at) {
            match block.checked_sub(1) {
                None if self.in_turns() => {}
                None => {
                    let begins = self.lanes().group_blocks[0];
                    self.b.ins().jump(begins, &[]);
                }
                Some(before) if self.has_no_code(before) => {}
                Some(before) if self.lanes().plan.is_alone(before) => {}
                Some(before) => {
                    let falls = self.way_to(before, block);
                    self.b.ins().jump(falls, &[]);
                }
            }
            let begins = self.lanes().group_blocks[block];
            self.b.switch_to_block(begins);
            self.lanes().bases.fill([None; WIDEST]);
            self.lanes().fetched.clear();
            self.enter_region(block);
            self.begin_turn(block);
            if !self.has_no_code(block) {
                self.group_polls(block);
            }
        }
    }

    /// At the head of a block where threads that spin poll: when the budget of polls is used up,
    /// the group's threads go on by themselves.
    fn group_polls(&mut self, block: usize) {
        if !self.unit.spins {
            return;
        }
        let body = self.body;
        let plan = &self.lanes().plan;
        if let Some(regions) = &plan.regions
            && regions.of[block].is_none()
        {
            return; // nobody comes there: behind the last end, say
        }
        let control = &plan.control;
        let of = &control.graph.block_of;
        let steps = (control.first[block]..of.len()).take_while(|at| of[*at] == block);
        let polls = |at: &usize| match &body.steps[*at] {
            Step::Instruction(instruction) => instruction.operation.polls(),
            Step::Label(_) => false,
        };
        let count = steps.filter(polls).count();
        if count == 0 {
            return;
        }
        let over = self.spend_polls((count * WIDTH) as i64);
        let (cold, next) = (self.cold_block(), self.fresh_block());
        self.b.ins().brif(over, cold, &[], next, &[]);
        self.enter(cold);
        let here = self.stands(Some(block));
        self.part(&[block], here, None);
        self.enter(next);
    }

    /// The group has ended: the next one's turn.
    fn end_group(&mut self) {
        if self.in_turns() {
            return self.leave_region();
        }
        let (latch, first) = (self.lanes().latch, self.lanes().first);
        let first = self.b.use_var(first);
        self.b.ins().jump(latch, &[first.into()]);
    }

    /// The function has a vector form: what its lowering needs.
    pub(in crate::jit::lower) fn new_lanes(
        &mut self,
        plan: Plan,
        latch: Block,
        turns: Option<Turns>,
    ) {
        let count = plan.control.graph.successors.len();
        let aside = slot(&mut self.b, LARGEST);
        self.lanes = Some(Lanes {
            form: Form::Thread,
            registers: vec![None; self.register_types.len()],
            in_turn: None,
            turns_slot: slot(&mut self.b, 16),
            batch: None,
            batches: None,
            written: HashMap::new(),
            halves: HashMap::new(),
            split: HashMap::new(),
            mask: None,
            masks_by_false: false,
            slice: Slice::WHOLE,
            rows: HashMap::new(),
            checked: false,
            firsts: SmallVec::new(),
            site: None,
            aside,
            retreat: None,
            ahead: HashMap::new(),
            by_one: false,
            by_masks: HashMap::new(),
            bases: vec![[None; WIDEST]; self.groups.groups.len()],
            fetched: vec![],
            joined: Joined::new(),
            group_blocks: (0..count).map(|_| self.b.create_block()).collect(),
            thread_blocks: vec![None; count],
            stands: vec![false; count],
            joins: vec![false; count],
            first: self.b.declare_var(types::I32),
            x: self.b.declare_var(types::I32),
            slot: slot(&mut self.b, 16),
            local: None,
            places: HashMap::new(),
            size: REGISTERS,
            leaves: self.leaving_block(),
            next: self.cold_block(),
            parted: self.cold_block(),
            latch,
            turn: self.b.create_block(),
            next_turn: self.b.create_block(),
            landings: vec![],
            turns,
            wide: None,
            plan,
        });
    }

    /// Opens the loop over a row of threads, in groups and then one by one; lowers the groups. The
    /// builder is where a thread starts; what is answered is the head of its loop, which takes
    /// `%tid.x`, and where a row is over.
    pub(in crate::jit::lower) fn open_row(&mut self, plan: Plan) -> (Block, Block) {
        let head = self.b.create_block();
        let begins = self.b.append_block_param(head, types::I32);
        let latch = self.b.create_block();
        self.b.append_block_param(latch, types::I32);
        let odd = self.has_no_groups(&plan);
        self.new_lanes(plan, latch, None);
        let (first, x) = (self.lanes().first, self.lanes().x);
        let (scalar, over) = (self.b.create_block(), self.b.create_block());
        let rest = self.b.create_block();
        let zero = self.b.ins().iconst(types::I32, 0);
        self.alone();
        let alone = self.b.create_block();
        let wide = self.plan_wide_row(head);
        let groups = wide.unwrap_or(head);
        self.b.ins().brif(odd, alone, &[], groups, &[zero.into()]);
        self.b.switch_to_block(alone);
        self.begin_alone(zero, scalar, over);

        self.b.switch_to_block(head);
        self.b.def_var(first, begins);
        self.begin_pass();
        self.lower_groups(Some(rest));
        self.b.switch_to_block(latch);
        let at = self.b.block_params(latch)[0];
        let at = self.b.ins().iadd_imm(at, WIDTH as i64);
        let threads = self.in_groups();
        let more = self.b.ins().icmp(IntCC::UnsignedLessThan, at, threads);
        let next = self.b.create_block();
        self.b.ins().brif(more, next, &[], rest, &[]);
        self.b.switch_to_block(next);
        self.next_in_row(head, at);

        self.b.switch_to_block(rest);
        match self.unit.rows {
            Rows::WithRest => {
                let first = self.in_groups();
                self.begin_alone(first, scalar, over);
            }
            _ => _ = self.b.ins().jump(over, &[]),
        }

        self.b.switch_to_block(scalar);
        let at = self.b.append_block_param(scalar, types::I32);
        self.b.def_var(x, at);
        self.group = None;
        (scalar, over)
    }

    /// Not 0 where the threads of the block make no groups.
    pub(in crate::jit::lower) fn has_no_groups(&mut self, plan: &Plan) -> Value {
        let threads = self.entry(Entry::Ntid(0));
        let none = match self.unit.rows {
            Rows::Any => self.b.ins().band_imm(threads, WIDTH as i64 - 1),
            // Who spins may wait for a thread that has its turn after the groups.
            rows if rows.has_rest() && self.unit.spins => self.b.ins().iconst(types::I32, 1),
            _ => self.b.ins().iconst(types::I32, 0),
        };
        if !plan.in_first_blocks {
            return none;
        }
        let block = self.entry(Entry::Ctaid(0));
        let late = self.b.ins().ushr_imm(block, i64::from(MOST_BLOCKS_LOG2));
        self.b.ins().bor(none, late)
    }

    /// How many threads of a row run in groups: the others follow one by one.
    fn in_groups(&mut self) -> Value {
        let threads = self.entry(Entry::Ntid(0));
        match self.unit.rows {
            Rows::WithRest => self.b.ins().band_imm(threads, -(WIDTH as i64)),
            _ => threads,
        }
    }

    /// `%tid.x` of the thread that the operation is lowered for: of a group, its first.
    pub(in crate::jit::lower) fn group_tid(&mut self) -> Option<Value> {
        let lanes = self.lanes.as_ref()?;
        let (form, first, x) = (lanes.form, lanes.first, lanes.x);
        Some(match form {
            Form::Thread if lanes.turns.is_some() => return None,
            Form::Thread => self.b.use_var(x),
            Form::Once | Form::Vector { .. } | Form::Lane(0) => self.b.use_var(first),
            Form::Lane(lane) => {
                let first = self.b.use_var(first);
                self.b.ins().iadd_imm(first, lane as i64)
            }
            Form::InTurn => {
                let (first, lane) = (self.b.use_var(first), self.lane_in_turn());
                let lane = self.b.ins().ireduce(types::I32, lane);
                self.b.ins().iadd(first, lane)
            }
        })
    }
}

fn little_endian() -> MemFlags {
    MemFlags::new().with_endianness(ir::Endianness::Little)
}
