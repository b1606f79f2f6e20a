//! A kernel that runs its block in rounds: a loop over the lanes that have a turn, in which each
//! goes on from where it stood to where it waits next.
//!
//! ```text
//! over:    ask the grid whose turn is next; when all have ended, return
//! lane:    go to where the lane stands: start, or after the nth wait
//!          ...
//!          nth wait: keep what is live, bring the operands, stand after the nth wait, next lane
//!          end: stand at the end, next lane
//! next:    the next lane of the turn, or over
//! ```
//!
//! What a lane keeps lies in its warp's [`Tile`], behind what lanes bring to a wait: in arrays over
//! the lanes, one for each register, whichever wait it is kept at. Registers share an array that
//! are of one size and never kept at the same wait: lanes stand at different waits, so what one
//! keeps must not lie where another keeps something of another size. What lies there already is not
//! stored again, and what is read only after a later wait is loaded after that, see
//! [`liveness`](crate::jit::liveness).
//!
//! The grid decides who goes on, see [`crate::grid::rounds`].

use std::collections::HashMap;
use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    Block, BlockArg, BlockCall, Inst, InstBuilder, JumpTableData, MemFlags, Type, Value, types,
};
use ptx::ast;

use super::Lower;
use super::function::Frame;
use super::lanes::Form;
use crate::grid::context::{BlockContext, CONTINUE, THREAD_STRIDE, Turn};
use crate::grid::rounds::{ENDED, TURN, Wait};
use crate::grid::warp::Tile;
use crate::jit::decode::{Arg, RegId};
use crate::jit::liveness::{AtWait, Kept};
use crate::jit::program::Step;
use crate::jit::recompute::{self, recomputed};
use crate::jit::spmd::{Plan, WIDTH};

/// With this many places to go on from, or fewer, a lane finds its own by comparing.
const FEW: usize = 3;

/// Rounds, as far as they are lowered.
pub(super) struct Rounds {
    /// For each wait in source order, what lanes keep there.
    kept: Vec<AtWait>,
    /// Where in the tile the array of each register begins.
    places: HashMap<RegId, usize>,
    /// The same of the carry flag.
    carry: usize,
    /// The same of the words of the area for calls.
    call_area: Vec<usize>,
    /// Registers that are the same number wherever they are read, and how that is written.
    numbers: HashMap<RegId, (ast::Type, ast::Immediate)>,
    /// For each wait, the steps that are done again after it.
    again: Vec<Vec<usize>>,
    /// Where lanes go on after each wait, and where groups do.
    resumes: Vec<Block>,
    group_resumes: Vec<Block>,
    /// The waits lowered so far, for lanes and for groups.
    lowered: usize,
    group_lowered: usize,
    /// The body uses the carry flag.
    uses_carry: bool,
    /// The warp's tile.
    tile: Value,
    /// The number of the lane that runs.
    lane: Value,
    /// The number of the thread that is lane 0.
    first_thread: Value,
    /// The lanes of the turn that have not run, this one included.
    lanes: Value,
    /// Asks whose turn is next.
    over: Block,
    /// The loop over lanes.
    head: Block,
    /// Goes to the next lane.
    latch: Block,
}

/// The arrays of a tile: for each size of a register, from 16 bytes to 1, how many there are.
#[derive(Clone, Copy, Default)]
struct Arrays([usize; 5]);

impl Arrays {
    fn class(bytes: u32) -> usize {
        4 - bytes.trailing_zeros() as usize
    }

    /// Takes an array that nobody has; its number among those of its size.
    fn take(&mut self, bytes: u32) -> usize {
        let count = &mut self.0[Arrays::class(bytes)];
        *count += 1;
        *count - 1
    }

    /// Takes an array of this number.
    fn take_this(&mut self, bytes: u32, number: usize) {
        let count = &mut self.0[Arrays::class(bytes)];
        *count = (*count).max(number + 1);
    }

    /// The bytes of a lane in the arrays of the first sizes.
    fn bytes(&self, sizes: usize) -> usize {
        let counts = self.0.iter().zip([16, 8, 4, 2, 1]).take(sizes);
        counts.map(|(count, bytes)| count * bytes).sum()
    }

    /// Where an array begins in the tile.
    fn place(&self, bytes: u32, number: usize) -> usize {
        let before = self.bytes(Arrays::class(bytes)) + number * bytes as usize;
        size_of::<Tile>() + 32 * before
    }
}

/// Gives each register that is kept an array that no other has that is kept at the same wait.
fn numbered(
    kept: &[AtWait],
    bytes: impl Fn(RegId) -> u32,
    arrays: &mut Arrays,
) -> HashMap<RegId, usize> {
    let mut waits: HashMap<RegId, Vec<usize>> = HashMap::new();
    for (number, wait) in kept.iter().enumerate() {
        for register in &wait.live {
            waits.entry(*register).or_default().push(number);
        }
    }
    // By wait and size, a bit for each array.
    let mut taken: Vec<[Vec<u64>; 5]> = vec![Default::default(); kept.len()];
    let mut numbers = HashMap::new();
    for register in kept.iter().flat_map(|wait| &wait.live) {
        let Some(waits) = waits.remove(register) else {
            continue; // it has one
        };
        let size = bytes(*register);
        let class = Arrays::class(size);
        let mut all: Vec<u64> = vec![];
        for wait in &waits {
            let words = &taken[*wait][class];
            all.resize(all.len().max(words.len()), 0);
            all.iter_mut()
                .zip(words)
                .for_each(|(all, word)| *all |= word);
        }
        let word = all.iter().position(|word| *word != u64::MAX);
        let word = word.unwrap_or(all.len());
        let bit = all.get(word).map_or(0, |word| word.trailing_ones());
        for wait in waits {
            let words = &mut taken[wait][class];
            words.resize(words.len().max(word + 1), 0);
            words[word] |= 1 << bit;
        }
        let number = 64 * word + bit as usize;
        arrays.take_this(size, number);
        numbers.insert(*register, number);
    }
    numbers
}

fn places_of(list: &[RegId], places: &HashMap<RegId, usize>) -> Vec<(RegId, usize)> {
    list.iter()
        .map(|register| (*register, places[register]))
        .collect()
}

impl Lower<'_> {
    /// The kernel runs its block in rounds.
    pub(super) fn rounds(&self) -> bool {
        self.rounds.is_some()
    }

    /// Opens the loops over turns and lanes; the builder is where a thread starts.
    pub(super) fn open_rounds(&mut self, kept: Kept, plan: Option<Plan>) {
        let flags = MemFlags::trusted();
        let recomputed = recomputed(self.body, &kept.at_start);
        let numbers = self.numbers(&recomputed);
        let mut kept = kept.waits;
        let steps = |wait: &AtWait| recompute::steps(self.body, &recomputed, &wait.load);
        let again = kept.iter().map(steps).collect();
        for wait in &mut kept {
            for list in [&mut wait.live, &mut wait.store, &mut wait.load] {
                list.retain(|register| recomputed[register.0 as usize].is_none());
            }
        }
        let mut arrays = Arrays::default();
        let bytes = |register: RegId| self.register_types[register.0 as usize].bytes();
        let mut places = numbered(&kept, bytes, &mut arrays);
        let carry = arrays.take(1);
        let words = self.body.tables.call_area.div_ceil(8);
        let call_area: Vec<_> = (0..words).map(|_| arrays.take(8)).collect();
        for (register, at) in &mut places {
            *at = arrays.place(bytes(*register), *at);
        }
        let carry = arrays.place(1, carry);
        let call_area = call_area.iter().map(|at| arrays.place(8, *at)).collect();
        self.unit.kept = arrays.bytes(5) as u32;
        self.unit.waits = vec![Wait::NOWHERE; kept.len()].into();

        let over = self.b.create_block();
        let end = self.b.ins().jump(over, &[]);
        self.entry.end.get_or_insert(end);
        self.b.switch_to_block(over);
        let waits = self.unit.waits.as_ptr() as i64;
        let waits = self.b.ins().iconst(types::I64, waits);
        let block = self.block;
        let status = self.call_value(&TURN, &[block, waits]);
        let (stop, turn) = (self.cold_block(), self.fresh_block());
        self.b.ins().brif(status, stop, &[], turn, &[]);
        self.enter(stop);
        self.b.ins().return_(&[status]);

        self.enter(turn);
        let mut field = |ty, offset: usize| {
            let offset = offset_of!(BlockContext, turn) + offset;
            self.b.ins().load(ty, flags, block, offset as i32)
        };
        let lanes = field(types::I32, offset_of!(Turn, lanes));
        let threads = field(types::I64, offset_of!(Turn, threads));
        let tile = field(types::I64, offset_of!(Turn, tile));
        let warp = field(types::I32, offset_of!(Turn, warp));
        let first_thread = self.b.ins().ishl_imm(warp, 5);
        let (head, done) = (self.b.create_block(), self.cold_block());
        let first = [BlockArg::Value(lanes)];
        self.b.ins().brif(lanes, head, &first, done, &[]);
        self.enter(done);
        let status = self.b.ins().iconst(types::I32, i64::from(CONTINUE));
        self.b.ins().return_(&[status]);

        let lanes = self.b.append_block_param(head, types::I32);
        self.b.switch_to_block(head);
        let number = self.b.ins().ctz(lanes);
        let lane = self.b.ins().uextend(types::I64, number);
        let distance = self.b.ins().imul_imm(lane, THREAD_STRIDE as i64);
        self.thread = self.b.ins().iadd(threads, distance);
        let groups = usize::from(plan.is_some()) * kept.len();
        self.rounds = Some(Rounds {
            resumes: kept.iter().map(|_| self.b.create_block()).collect(),
            group_resumes: (0..groups).map(|_| self.b.create_block()).collect(),
            again,
            group_lowered: 0,
            kept,
            places,
            carry,
            call_area,
            numbers,
            lowered: 0,
            uses_carry: self.uses_carry(),
            tile,
            lane,
            first_thread,
            lanes,
            over,
            head,
            latch: self.b.create_block(),
        });
        if let Some(plan) = plan {
            self.open_groups(plan, threads, number);
        }
        let stands = self.load_lane(types::I32, offset_of!(Tile, stands));
        let start = self.b.create_block();
        let branch = self.go_on(stands, start);
        self.entry.thread_end.get_or_insert(branch);
        self.enter(start);
    }

    /// Lowers the groups' code; the builder is where a lane has its turn, alone or with its group,
    /// and then where it has it alone.
    fn open_groups(&mut self, plan: Plan, threads: Value, number: Value) {
        let flags = MemFlags::trusted();
        let Some(rounds) = &self.rounds else {
            unreachable!("turns are of rounds");
        };
        let (tile, lane, lanes, head, over) = (
            rounds.tile,
            rounds.lane,
            rounds.lanes,
            rounds.head,
            rounds.over,
        );
        let latch = self.b.create_block();
        let enter = self.b.create_block();
        self.new_lanes(plan, latch, Some((self.thread, enter)));
        self.alone();
        let low = self.b.ins().band_imm(number, 32 - WIDTH as i64);
        let all = self.b.ins().iconst(types::I32, (1 << WIDTH) - 1);
        let own = self.b.ins().ushr(lanes, low);
        let own = self.b.ins().band(own, all);
        let full = self.b.ins().icmp(IntCC::Equal, own, all);
        let word = self.group_word(lane, tile);
        let offset = offset_of!(Tile, together) as i32;
        let together = self.b.ins().load(types::I32, flags, word, offset);
        let together = self.b.ins().icmp_imm(IntCC::NotEqual, together, 0);
        let group = self.b.ins().band(full, together);
        let begins = self.fresh_block();
        let alone = [BlockArg::Value(lane)];
        self.b.ins().brif(group, begins, &[], enter, &alone);
        self.enter(begins);
        self.group_first();
        let stands = self.load_lane(types::I32, offset_of!(Tile, stands));
        let resumes = match &self.rounds {
            Some(rounds) => rounds.group_resumes.clone(),
            None => vec![],
        };
        let start = self.b.create_block();
        self.go_to(stands, start, &resumes);
        self.enter(start);
        self.lower_groups();
        self.b.switch_to_block(latch);
        let own = self.b.ins().ishl(all, low);
        let left = self.b.ins().band_not(lanes, own);
        let next = [BlockArg::Value(left)];
        self.b.ins().brif(left, head, &next, over, &[]);

        self.b.switch_to_block(enter);
        let lane = self.b.append_block_param(enter, types::I64);
        let distance = self.b.ins().imul_imm(lane, THREAD_STRIDE as i64);
        self.thread = self.b.ins().iadd(threads, distance);
        if let Some(rounds) = &mut self.rounds {
            rounds.lane = lane;
        }
        let branch = self.unless_parted();
        self.entry.thread_end = Some(branch);
        self.group = None;
    }

    /// A group waits here: the next one's turn.
    fn group_wait(&mut self, wait: Wait) {
        let Some(rounds) = &mut self.rounds else {
            return;
        };
        let number = rounds.group_lowered;
        rounds.group_lowered += 1;
        let resume = rounds.group_resumes[number];
        let kept = rounds.kept[number].clone();
        let again = rounds.again[number].clone();
        let places = |list: &[RegId]| places_of(list, &rounds.places);
        let (store, load) = (places(&kept.store), places(&kept.load));
        self.unit.waits[number] = wait;
        for (register, offset) in store {
            self.keep_of_group(register, offset);
        }
        self.group_stands(number as i64 + 1);
        self.leave_turn();
        self.enter(resume);
        // Nobody looks at these before the next wait is over.
        for register in kept.idle {
            let zero = self.zero(self.register_types[register.0 as usize]);
            self.put_all(register, zero);
        }
        for (register, offset) in load {
            self.take_of_group(register, offset);
        }
        for at in again {
            self.group_step_again(at);
        }
    }

    /// The number of the lane that runs, or of the first of its group.
    pub(super) fn rounds_lane(&self) -> Option<Value> {
        self.rounds.as_ref().map(|rounds| rounds.lane)
    }

    /// The predicates of the last wait, the group's in the lowest bits.
    pub(super) fn group_predicates(&mut self) -> Value {
        let Some(rounds) = &self.rounds else {
            unreachable!("groups wait in rounds");
        };
        let (tile, lane) = (rounds.tile, rounds.lane);
        let offset = offset_of!(Tile, predicates) as i32;
        let flags = MemFlags::trusted();
        let all = self.b.ins().load(types::I32, flags, tile, offset);
        self.b.ins().ushr(all, lane)
    }

    /// Goes where a lane stands. Gives the first branch.
    fn go_on(&mut self, stands: Value, start: Block) -> Inst {
        let resumes = match &self.rounds {
            Some(rounds) => rounds.resumes.clone(),
            None => vec![],
        };
        self.go_to(stands, start, &resumes)
    }

    /// Goes to `start`, or to where those go on that stand at a wait. Gives the first branch.
    fn go_to(&mut self, stands: Value, start: Block, resumes: &[Block]) -> Inst {
        if resumes.len() > FEW {
            let lists = &mut self.b.func.dfg.value_lists;
            let calls: Vec<_> = std::iter::once(start)
                .chain(resumes.iter().copied())
                .map(|block| BlockCall::new(block, [], lists))
                .collect();
            let table = JumpTableData::new(calls[0], &calls);
            let table = self.b.create_jump_table(table);
            return self.b.ins().br_table(stands, table);
        }
        // All threads mostly stand at one place, so these branches are predicted.
        let mut first = None;
        for (number, resume) in (1..).zip(resumes.iter().copied()) {
            let here = self.b.ins().icmp_imm(IntCC::Equal, stands, number);
            let other = self.fresh_block();
            let branch = self.b.ins().brif(here, resume, &[], other, &[]);
            first.get_or_insert(branch);
            self.enter(other);
        }
        let branch = self.b.ins().jump(start, &[]);
        first.unwrap_or(branch)
    }

    /// The address of what an array of the tile has for the lane that runs, less the array's
    /// offset.
    pub(super) fn lane_address(&mut self, ty: Type) -> Value {
        let Some(rounds) = &self.rounds else {
            unreachable!("lanes are of rounds");
        };
        let (tile, lane) = (rounds.tile, rounds.lane);
        let distance = i64::from(ty.bytes().trailing_zeros());
        let distance = self.b.ins().ishl_imm(lane, distance);
        self.b.ins().iadd(tile, distance)
    }

    /// What the array at `offset` of the tile has for the lane.
    fn load_lane(&mut self, ty: Type, offset: usize) -> Value {
        let at = self.lane_address(ty);
        let flags = MemFlags::trusted();
        self.b.ins().load(ty, flags, at, offset as i32)
    }

    fn store_lane(&mut self, value: Value, offset: usize) {
        let at = self.lane_address(self.b.func.dfg.value_type(value));
        let flags = MemFlags::trusted();
        self.b.ins().store(flags, value, at, offset as i32);
    }

    /// A component of `%tid` of the lane, or of the first of its group.
    pub(super) fn lane_tid(&mut self, n: u8) -> Value {
        let at = self.lane_address(types::I32);
        let flags = MemFlags::trusted().with_readonly().with_can_move();
        let offset = offset_of!(Tile, tid) + 4 * 32 * usize::from(n);
        self.b.ins().load(types::I32, flags, at, offset as i32)
    }

    /// The number of the lane's thread in its block.
    pub(super) fn lane_linear(&mut self) -> Value {
        let Some(rounds) = &self.rounds else {
            unreachable!("lanes are of rounds");
        };
        let (first, lane) = (rounds.first_thread, rounds.lane);
        let lane = self.b.ins().ireduce(types::I32, lane);
        self.b.ins().iadd(first, lane)
    }

    /// Brings an operand to the wait that is next: its low and its high half to the arrays at these
    /// offsets.
    pub(super) fn bring(&mut self, arg: &Arg, ty: ast::Type, low: usize, high: Option<usize>) {
        if self.form() != Form::Thread {
            return self.group_brings(arg, ty, low, high);
        }
        let value = self.read(arg, ty);
        let value = self.fit(value, types::I64, false);
        let word = self.b.ins().ireduce(types::I32, value);
        self.store_lane(word, low);
        if let Some(high) = high {
            let word = self.b.ins().ushr_imm(value, 32);
            let word = self.b.ins().ireduce(types::I32, word);
            self.store_lane(word, high);
        }
    }

    /// An operand of the wait that is next: what it is for all lanes, or brought.
    pub(super) fn bring_number(&mut self, arg: &Arg, offset: usize) -> Option<u32> {
        let known = match arg {
            Arg::Imm(number) => Some(*number),
            Arg::Reg(id) => self.held_number(*id).map(|(_, number)| number),
            _ => None,
        };
        if let Some(ast::Immediate::Int { bits, .. }) = known {
            return Some(bits as u32);
        }
        self.bring(arg, ast::Type::U32, offset, None);
        None
    }

    /// Puts what the lane takes from the last wait where it goes; as a predicate, whether it is not
    /// zero.
    pub(super) fn take(&mut self, to: &Arg, ty: ast::Type) {
        if *to == Arg::Sink {
            return;
        }
        if self.form() != Form::Thread {
            return self.group_takes(to, ty);
        }
        let taken = self.load_lane(types::I32, offset_of!(Tile, results));
        let value = match ty {
            ast::Type::Pred => self.b.ins().icmp_imm(IntCC::NotEqual, taken, 0),
            _ => taken,
        };
        self.write(to, ty, value);
    }

    /// The predicate beside it.
    pub(super) fn take_predicate(&mut self, to: &Arg) {
        if *to == Arg::Sink {
            return;
        }
        if self.form() != Form::Thread {
            return self.group_takes_predicates(to);
        }
        let own = self.group_predicates();
        let own = self.b.ins().ireduce(types::I8, own);
        let own = self.b.ins().band_imm(own, 1);
        self.write(to, ast::Type::Pred, own);
    }

    /// The lane waits here: the next lane's turn. What is lowered next, it does when it goes on.
    pub(super) fn wait(&mut self, wait: Wait) {
        if self.form() != Form::Thread {
            return self.group_wait(wait);
        }
        let Some(rounds) = &mut self.rounds else {
            return;
        };
        let number = rounds.lowered;
        rounds.lowered += 1;
        let (latch, resume) = (rounds.latch, rounds.resumes[number]);
        let carry = self.carry.filter(|_| rounds.uses_carry);
        let (carry_at, call_area) = (rounds.carry, rounds.call_area.clone());
        let kept = std::mem::take(&mut rounds.kept[number]);
        let again = std::mem::take(&mut rounds.again[number]);
        let places = |list: &[RegId]| places_of(list, &rounds.places);
        let (store, load) = (places(&kept.store), places(&kept.load));
        let (tile, lane) = (rounds.tile, rounds.lane);
        self.unit.waits[number] = wait;
        let flags = MemFlags::trusted();
        for (register, at) in store {
            let variable = self.variable(register);
            let value = self.b.use_var(variable);
            self.store_lane(value, at);
        }
        if let Some(carry) = carry {
            let value = self.b.use_var(carry);
            self.store_lane(value, carry_at);
        }
        for (word, at) in (0..).step_by(8).zip(&call_area) {
            let value = self.b.ins().stack_load(types::I64, self.call_area, word);
            self.store_lane(value, *at);
        }
        let stands = self.b.ins().iconst(types::I32, number as i64 + 1);
        self.store_lane(stands, offset_of!(Tile, stands));
        if self.lanes.is_some() {
            let word = self.group_word(lane, tile);
            let no = self.b.ins().iconst(types::I32, 0);
            let offset = offset_of!(Tile, together) as i32;
            self.b.ins().store(flags, no, word, offset);
        }
        self.b.ins().jump(latch, &[]);

        self.enter(resume);
        self.clear_registers();
        for (register, at) in load {
            let variable = self.variable(register);
            let ty = self.register_types[register.0 as usize];
            let value = self.load_lane(ty, at);
            self.b.def_var(variable, value);
        }
        if let Some(carry) = carry {
            let value = self.load_lane(types::I8, carry_at);
            self.b.def_var(carry, value);
        }
        for (word, at) in (0..).step_by(8).zip(&call_area) {
            let value = self.load_lane(types::I64, *at);
            self.b.ins().stack_store(value, self.call_area, word);
        }
        let body = self.body;
        for at in again {
            if let Step::Instruction(instruction) = &body.steps[at]
                && instruction.operation.number().is_none()
            {
                self.reads_bits = instruction.reads_bits;
                instruction.operation.lower(self);
            }
        }
    }

    fn uses_carry(&self) -> bool {
        self.body.steps.iter().any(
            |step| matches!(step, Step::Instruction(instruction) if instruction.operation.carry()),
        )
    }

    /// A thread has ended; the builder is where all that end come together. Goes on to the next
    /// lane, and the next turn.
    pub(super) fn close_rounds(&mut self) {
        let ended = self.b.ins().iconst(types::I32, i64::from(ENDED as i32));
        self.store_lane(ended, offset_of!(Tile, stands));
        let Some(rounds) = self.rounds.take() else {
            return;
        };
        self.b.ins().jump(rounds.latch, &[]);
        self.b.switch_to_block(rounds.latch);
        self.thread_ends();
        let less = self.b.ins().iadd_imm(rounds.lanes, -1);
        let left = self.b.ins().band(rounds.lanes, less);
        let next = [BlockArg::Value(left)];
        self.b
            .ins()
            .brif(left, rounds.head, &next, rounds.over, &[]);
    }

    /// Whether values of the thread's context differ from one run through the body to the next.
    pub(super) fn many_contexts(&self) -> bool {
        matches!(self.frame, Frame::Rounds { .. })
    }

    /// Of the registers that are computed again, those that are numbers, and how these are written.
    fn numbers(&self, recomputed: &[Option<usize>]) -> HashMap<RegId, (ast::Type, ast::Immediate)> {
        let number = |(register, at): (u32, &Option<usize>)| match &self.body.steps[(*at)?] {
            Step::Instruction(step) => Some((RegId(register), step.operation.number()?)),
            Step::Label(_) => None,
        };
        (0..).zip(recomputed).filter_map(number).collect()
    }

    /// The number that a register holds, if it holds one wherever it is read.
    pub(super) fn held_number(&self, register: RegId) -> Option<(ast::Type, ast::Immediate)> {
        self.rounds.as_ref()?.numbers.get(&register).copied()
    }

    /// Every register is zero.
    pub(super) fn clear_registers(&mut self) {
        let mut zeros: Vec<(Type, Value)> = vec![];
        for at in 0..self.register_types.len() {
            let ty = self.register_types[at];
            let zero = match zeros.iter().find(|(known, _)| *known == ty) {
                Some((_, zero)) => *zero,
                None => {
                    let zero = self.zero(ty);
                    zeros.push((ty, zero));
                    zero
                }
            };
            let variable = self.variable(RegId(at as u32));
            self.b.def_var(variable, zero);
        }
    }
}
