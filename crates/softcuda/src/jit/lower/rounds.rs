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
//! Where there is a vector form, a block begins with it: [`super::lanes`] has the groups' code, and
//! what is above follows where threads have turns one by one.
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
    self, Block, BlockArg, BlockCall, Inst, InstBuilder, JumpTableData, MemFlags, Type, Value,
    types,
};
use ptx::ast;

use super::Lower;
use super::function::{Frame, slot};
use super::lanes::{Form, InChain, Part, Turns};
use crate::grid::context::{BlockContext, CONTINUE, THREAD_STRIDE, Turn};
use crate::grid::rounds::{ENDED, TURN, Tiles, Wait};
use crate::grid::warp::{OPERANDS, Tile};
use crate::jit::decode::{Arg, RegId};
use crate::jit::liveness::{AtWait, Kept};
use crate::jit::object::Outside;
use crate::jit::program::Step;
use crate::jit::recompute::{self, recomputed};
use crate::jit::spmd::Plan;

/// With this many places to go on from, or fewer, a lane finds its own by comparing.
const FEW: usize = 3;

/// Rounds, as far as they are lowered.
pub(super) struct Rounds {
    /// For each wait in source order, what lanes keep there.
    kept: Vec<AtWait>,
    /// Where in the tile the array of each register begins.
    places: HashMap<RegId, usize>,
    /// For each register, the step that computes it again instead.
    pub recomputed: Vec<Option<usize>>,
    /// The same of the carry flag.
    carry: usize,
    /// The same of the words of the area for calls.
    call_area: Vec<usize>,
    /// Registers that are the same number wherever they are read, and how that is written.
    numbers: HashMap<RegId, (ast::Type, ast::Immediate)>,
    /// What tiles the masks in registers name, of those that somebody has asked for.
    tiles: HashMap<RegId, Option<Tiles>>,
    /// For each wait, the steps that are done again after it.
    again: Vec<Vec<usize>>,
    /// Where lanes go on after each wait, and then at the head of each region of the vector form.
    resumes: Vec<Block>,
    /// The waits lowered so far.
    lowered: usize,
    /// The body uses the carry flag.
    uses_carry: bool,
    /// The tile of the warp whose lane runs.
    tile: Value,
    /// The number of the lane that runs.
    lane: Value,
    /// The number of its warp.
    warp: Value,
    /// In the native stack: the lanes of the turn that have not run, this one included.
    lanes: ir::StackSlot,
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

    /// Where an array begins in the tile, behind the operands of matrix products.
    fn place(&self, bytes: u32, number: usize, operands: u32) -> usize {
        let before = self.bytes(Arrays::class(bytes)) + number * bytes as usize;
        OPERANDS + 32 * (operands as usize + before)
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

impl Rounds {
    /// The loop over lanes, which takes a bit for each lane that has a turn.
    pub fn head(&self) -> Block {
        self.head
    }

    /// Where in the tile the arrays of these registers begin; what is computed again has none.
    pub fn places_of(&self, list: &[RegId]) -> Vec<(RegId, usize)> {
        let place = |register: &RegId| Some((*register, *self.places.get(register)?));
        list.iter().filter_map(place).collect()
    }
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
        let count = kept.len();
        let steps = |wait: &AtWait| recompute::steps(self.body, &recomputed, &wait.load);
        let again = kept.iter().map(steps).collect();
        for wait in &mut kept {
            for list in [&mut wait.live, &mut wait.store, &mut wait.load] {
                list.retain(|register| recomputed[register.0 as usize].is_none());
            }
        }
        let at_place = |live: &[RegId]| {
            let mut live = live.to_vec();
            live.retain(|register| recomputed[register.0 as usize].is_none());
            AtWait {
                live,
                ..AtWait::default()
            }
        };
        kept.extend(
            plan.iter()
                .flat_map(Plan::heads)
                .map(|(_, live)| at_place(live)),
        );
        let at_places = kept.len();
        // Where a branch decides, what either way needs is kept.
        kept.extend(plan.iter().flat_map(Plan::live_at_branches).map(at_place));
        // What groups take that go on for a wide one.
        kept.extend(plan.iter().flat_map(Plan::live_at_resumes).map(at_place));
        kept.extend(plan.iter().flat_map(Plan::live_at_paces).map(at_place));
        let operands = self.unit.operands;
        let mut arrays = Arrays::default();
        let bytes = |register: RegId| self.register_types[register.0 as usize].bytes();
        let mut places = numbered(&kept, bytes, &mut arrays);
        let carry = arrays.take(1);
        let words = self.body.tables.call_area.div_ceil(8);
        let call_area: Vec<_> = (0..words).map(|_| arrays.take(8)).collect();
        for (register, at) in &mut places {
            *at = arrays.place(bytes(*register), *at, operands);
        }
        let carry = arrays.place(1, carry, operands);
        let call_area = call_area.iter().map(|at| arrays.place(8, *at, operands));
        let call_area = call_area.collect();
        self.unit.kept = operands + arrays.bytes(5) as u32;
        kept.truncate(at_places);
        let mut waits = vec![Wait::NOWHERE; kept.len()];
        waits[count..].fill(Wait::POINTS);
        self.unit.waits = waits.into();

        let (over, turn) = (self.b.create_block(), self.b.create_block());
        let at = offset_of!(BlockContext, tiles) as i32;
        let tiles = self.b.ins().load(types::I64, flags, self.block, at);
        let at = offset_of!(BlockContext, threads) as i32;
        let threads_in_block = self.b.ins().load(types::I32, flags, self.block, at);
        let warps = self.b.ins().iadd_imm(threads_in_block, 31);
        let warps = self.b.ins().ushr_imm(warps, 5);
        let (begin, apart) = (self.b.create_block(), self.b.create_block());
        let end = match &plan {
            None => self.b.ins().jump(over, &[]),
            Some(plan) => {
                let mut apart_at_once = self.has_no_groups(plan);
                if self.unit.spins {
                    let at = offset_of!(BlockContext, resumes) as i32;
                    let resumes = self.b.ins().load(types::I32, flags, self.block, at);
                    apart_at_once = self.b.ins().bor(apart_at_once, resumes);
                }
                self.b.ins().brif(apart_at_once, apart, &[], begin, &[])
            }
        };
        self.entry.end.get_or_insert(end);
        self.b.switch_to_block(over);
        let waits = self.outside(Outside::Waits, 0);
        let block = self.block;
        let status = self.call_value(&TURN, &[block, waits]);
        let stop = self.cold_block();
        self.b.ins().brif(status, stop, &[], turn, &[]);
        self.enter(stop);
        self.b.ins().return_(&[status]);

        self.b.switch_to_block(turn);
        let field = |l: &mut Self, ty, offset: usize| {
            let offset = offset_of!(BlockContext, turn) + offset;
            l.b.ins().load(ty, flags, block, offset as i32)
        };
        let whose = |l: &mut Self| {
            let warp = field(l, types::I32, offset_of!(Turn, warp));
            let tile = field(l, types::I64, offset_of!(Turn, tile));
            [warp, tile, field(l, types::I64, offset_of!(Turn, threads))]
        };
        let lanes = field(self, types::I32, offset_of!(Turn, lanes));
        let of_turn = whose(self);
        let (head, done) = (self.b.create_block(), self.cold_block());
        let first = [BlockArg::Value(lanes)];
        self.b.ins().brif(lanes, head, &first, done, &[]);
        self.enter(done);
        let status = self.b.ins().iconst(types::I32, i64::from(CONTINUE));
        self.b.ins().return_(&[status]);

        let lanes = self.b.append_block_param(head, types::I32);
        self.b.switch_to_block(head);
        // From threads that part from a group, a way leads here that is not from the turn.
        let [warp, tile, threads] = match &plan {
            None => of_turn,
            Some(_) => whose(self),
        };
        let left = slot(&mut self.b, 4);
        self.b.ins().stack_store(lanes, left, 0);
        let number = self.b.ins().ctz(lanes);
        let lane = self.b.ins().uextend(types::I64, number);
        let enter = self.b.create_block();
        let args = [lane.into(), warp.into(), tile.into(), threads.into()];
        self.b.ins().jump(enter, &args);
        let mut taken = |ty| self.b.append_block_param(enter, ty);
        let (lane, warp) = (taken(types::I64), taken(types::I32));
        let (tile, threads) = (taken(types::I64), taken(types::I64));
        let latch = self.b.create_block();
        self.rounds = Some(Rounds {
            resumes: kept.iter().map(|_| self.b.create_block()).collect(),
            again,
            kept,
            places,
            recomputed,
            carry,
            call_area,
            numbers,
            tiles: HashMap::new(),
            lowered: 0,
            uses_carry: self.uses_carry(),
            tile,
            lane,
            warp,
            lanes: left,
            over,
            head,
            latch,
        });
        let vectors = plan.is_some();
        if let Some(plan) = plan {
            let count = plan.heads().count();
            let turns = Turns {
                enter,
                lane: self.b.declare_var(types::I64),
                context: self.b.declare_var(types::I64),
                warp: self.b.declare_var(types::I32),
                tile: self.b.declare_var(types::I64),
                threads: self.b.declare_var(types::I64),
                limit: self.b.declare_var(types::I64),
                left: slot(&mut self.b, 8),
                simple: plan.regions.as_ref().map_or_else(Vec::new, |regions| {
                    let graph = &plan.control.graph;
                    regions.simple(self.body, &graph.block_of, &graph.successors)
                }),
                counts: [threads_in_block, warps],
                tiles,
                stride: Tile::stride(self.unit.kept).expect("a unit keeps no more than fits"),
                regions: self.region_blocks(count),
                by_chains: vec![false; count],
                columns: vec![None; count],
                region: 0,
                all: self.b.declare_var(types::I32),
                any: self.b.declare_var(types::I32),
                part: Part::Brings,
                in_chain: InChain::default(),
                number: None,
                wait: 0,
                came: self.b.create_block(),
                dispatch: self.b.create_block(),
                over,
                again: plan.paces.iter().map(|_| self.b.create_block()).collect(),
                rest: self.new_rest(),
            };
            self.new_lanes(plan, latch, Some(turns));
            self.lower_groups(None);
            self.close_regions();
            self.b.switch_to_block(apart);
            self.alone();
            self.no_rest();
            self.b.ins().jump(over, &[]);
            self.b.switch_to_block(begin);
            self.alone();
            self.begin_together();
        }
        self.b.switch_to_block(enter);
        let distance = self.b.ins().imul_imm(lane, THREAD_STRIDE as i64);
        self.thread = self.b.ins().iadd(threads, distance);
        if vectors {
            let branch = self.unless_parted();
            self.entry.thread_end = Some(branch);
            self.group = None;
        }
        let stands = self.load_lane(types::I32, offset_of!(Tile, stands));
        let start = self.b.create_block();
        let branch = self.go_on(stands, start);
        self.entry.thread_end.get_or_insert(branch);
        self.resume_at_heads(count);
        self.enter(start);
    }

    /// Where lanes go on at the heads of regions.
    fn resume_at_heads(&mut self, waits: usize) {
        let heads = match &self.lanes {
            Some(lanes) => lanes.heads(),
            None => return,
        };
        let Some(rounds) = &self.rounds else {
            return;
        };
        type Head = (usize, Option<usize>, Vec<RegId>);
        let resume = |((head, wait, mut live), resume): (Head, &Block)| {
            if let Some(wait) = wait {
                let wanted = &rounds.kept[wait].load_before;
                live.retain(|register| wanted.contains(register));
            }
            let again = recompute::steps(self.body, &rounds.recomputed, &live);
            (head, *resume, rounds.places_of(&live), again)
        };
        let heads = heads.into_iter().zip(&rounds.resumes[waits..]);
        let heads: Vec<_> = heads.map(resume).collect();
        for (head, resume, load, again) in heads {
            self.b.switch_to_block(resume);
            self.b.set_cold_block(resume);
            self.clear_registers();
            self.load_registers(load);
            self.steps_again(again);
            let begins = self.thread_head(head);
            self.b.ins().jump(begins, &[]);
        }
    }

    /// The number of the lane that runs, or of the first of its group.
    pub(super) fn rounds_lane(&mut self) -> Value {
        let lane = self.rounds.as_ref().map(|rounds| rounds.lane);
        let turns = self.lanes.as_ref().and_then(|lanes| lanes.turns.as_ref());
        match (turns, self.form()) {
            (Some(turns), form) if form != Form::Thread => {
                let lane = turns.lane;
                self.b.use_var(lane)
            }
            _ => lane.expect("lanes are of rounds"),
        }
    }

    /// The tile of the warp that runs.
    pub(super) fn rounds_tile(&mut self) -> Value {
        let tile = self.rounds.as_ref().map(|rounds| rounds.tile);
        let turns = self.lanes.as_ref().and_then(|lanes| lanes.turns.as_ref());
        match (turns, self.form()) {
            (Some(turns), form) if form != Form::Thread => {
                let tile = turns.tile;
                self.b.use_var(tile)
            }
            _ => tile.expect("tiles are of rounds"),
        }
    }

    /// The predicates of the last wait, the group's in the lowest bits.
    pub(super) fn group_predicates(&mut self) -> Value {
        let turns = self.lanes.as_ref().and_then(|lanes| lanes.turns.as_ref());
        if let Some(known) = turns.and_then(|turns| turns.in_chain.predicates()) {
            return self.b.ins().iconst(types::I32, i64::from(known as i32));
        }
        let (tile, lane) = (self.rounds_tile(), self.rounds_lane());
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
        let (tile, lane) = (self.rounds_tile(), self.rounds_lane());
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

    /// A component of `%tid` of the lane; of a group, that of its first, or of the one that the
    /// operation is lowered for where groups go across rows.
    pub(super) fn lane_tid(&mut self, n: u8) -> Value {
        let at = self.lane_address(types::I32);
        let (at, lane) = match self.form() {
            Form::InTurn if self.goes_across() => {
                let lane = self.lane_in_turn();
                let distance = self.b.ins().ishl_imm(lane, 2);
                (self.b.ins().iadd(at, distance), 0)
            }
            Form::Lane(lane) if self.goes_across() => (at, lane),
            _ => (at, 0),
        };
        self.load_tid(types::I32, at, n, lane)
    }

    /// The same of the vector of a group that is lowered.
    pub(super) fn lane_tids(&mut self, n: u8) -> Value {
        let Form::Vector { chunk, .. } = self.form() else {
            unreachable!("vectors are lowered as such");
        };
        let at = self.lane_address(types::I32);
        self.load_tid(types::I32X4, at, n, 4 * chunk)
    }

    /// What the tile has of a component of `%tid`, so many lanes behind the one at `at`.
    fn load_tid(&mut self, ty: Type, at: Value, n: u8, lane: usize) -> Value {
        let flags = MemFlags::trusted().with_readonly().with_can_move();
        let offset = offset_of!(Tile, tid) + 4 * (32 * usize::from(n) + lane);
        self.b.ins().load(ty, flags, at, offset as i32)
    }

    /// Whether what is lowered is for groups that may go across the rows of a block.
    pub(super) fn goes_across(&self) -> bool {
        self.unit.rows.goes_across() && self.rounds() && self.form() != Form::Thread
    }

    /// The number of the lane's thread in its block.
    pub(super) fn lane_linear(&mut self) -> Value {
        let Some(rounds) = &self.rounds else {
            unreachable!("lanes are of rounds");
        };
        let turns = self.lanes.as_ref().and_then(|lanes| lanes.turns.as_ref());
        let warp = match (turns, self.form()) {
            (Some(turns), form) if form != Form::Thread => {
                let warp = turns.warp;
                self.b.use_var(warp)
            }
            _ => rounds.warp,
        };
        let first = self.b.ins().ishl_imm(warp, 5);
        let lane = self.rounds_lane();
        let lane = self.b.ins().ireduce(types::I32, lane);
        let linear = self.b.ins().iadd(first, lane);
        match self.form() {
            Form::Lane(lane) => self.b.ins().iadd_imm(linear, lane as i64),
            Form::InTurn => {
                let lane = self.lane_in_turn();
                let lane = self.b.ins().ireduce(types::I32, lane);
                self.b.ins().iadd(linear, lane)
            }
            _ => linear,
        }
    }

    /// Brings an operand to the wait that is next: its low and its high half to the arrays at these
    /// offsets.
    pub(super) fn bring(&mut self, arg: &Arg, ty: ast::Type, low: usize, high: Option<usize>) {
        if self.form() != Form::Thread {
            if self.group_part() == Part::Brings {
                self.group_brings(arg, ty, low, high);
            }
            return;
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
        let known = self.known_number(arg);
        if known.is_none() {
            self.bring(arg, ast::Type::U32, offset, None);
        }
        known
    }

    /// The number that an operand is for all lanes.
    pub(super) fn known_number(&self, arg: &Arg) -> Option<u32> {
        let known = match arg {
            Arg::Imm(number) => Some(*number),
            Arg::Reg(id) => self.held_number(*id).map(|(_, number)| number),
            _ => None,
        };
        match known? {
            ast::Immediate::Int { bits, .. } => Some(bits as u32),
            _ => None,
        }
    }

    /// The tiles that a mask names.
    pub(super) fn tiles(&mut self, mask: &Arg) -> Option<Tiles> {
        let (Arg::Reg(mask), Some(rounds)) = (mask, &mut self.rounds) else {
            return None;
        };
        let found = rounds.tiles.entry(*mask);
        *found.or_insert_with(|| super::tiles::named_by(self.body, *mask))
    }

    /// Puts what the lane takes from the last wait where it goes; as a predicate, whether it is not
    /// zero.
    pub(super) fn take(&mut self, to: &Arg, ty: ast::Type) {
        self.take_from(to, ty, offset_of!(Tile, results), None);
    }

    /// The same of an array of the tile, or of two with a half each.
    pub(super) fn take_from(&mut self, to: &Arg, ty: ast::Type, low: usize, high: Option<usize>) {
        if *to == Arg::Sink {
            return;
        }
        if self.form() != Form::Thread {
            if self.group_part() == Part::Takes {
                self.group_takes(to, ty, low, high);
            }
            return;
        }
        let mut value = self.load_lane(types::I32, low);
        if let Some(high) = high {
            let upper = self.load_lane(types::I32, high);
            value = self.joined(value, upper);
        }
        if ty == ast::Type::Pred {
            value = self.b.ins().icmp_imm(IntCC::NotEqual, value, 0);
        }
        self.write(to, ty, value);
    }

    /// The 64 bits of two words.
    pub(super) fn joined(&mut self, low: Value, high: Value) -> Value {
        let low = self.b.ins().uextend(types::I64, low);
        let high = self.b.ins().uextend(types::I64, high);
        let high = self.b.ins().ishl_imm(high, 32);
        self.b.ins().bor(low, high)
    }

    /// The predicate beside it.
    pub(super) fn take_predicate(&mut self, to: &Arg) {
        if *to == Arg::Sink {
            return;
        }
        if self.form() != Form::Thread {
            if self.group_part() == Part::Takes {
                self.group_takes_predicates(to);
            }
            return;
        }
        let own = self.group_predicates();
        let own = self.b.ins().ireduce(types::I8, own);
        let own = self.b.ins().band_imm(own, 1);
        self.write(to, ast::Type::Pred, own);
    }

    /// The lane waits here: the next lane's turn. What is lowered next, it does when it goes on.
    pub(super) fn wait(&mut self, wait: Wait) {
        if self.form() != Form::Thread {
            return self.group_waits(wait);
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
        let (store, load) = (rounds.places_of(&kept.store), rounds.places_of(&kept.load));
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
        self.load_registers(load);
        if let Some(carry) = carry {
            let value = self.load_lane(types::I8, carry_at);
            self.b.def_var(carry, value);
        }
        for (word, at) in (0..).step_by(8).zip(&call_area) {
            let value = self.load_lane(types::I64, *at);
            self.b.ins().stack_store(value, self.call_area, word);
        }
        self.steps_again(again);
    }

    /// Where threads spin: each poll costs the turn one of its budget. Who finds it used up waits
    /// here. Of groups, all do so where a block begins.
    pub(super) fn poll_in_rounds(&mut self) {
        if !self.unit.spins || !self.rounds() || self.form() != Form::Thread {
            return;
        }
        let (waits, next) = (self.cold_block(), self.fresh_block());
        let over = self.spend_polls(1);
        self.b.ins().brif(over, waits, &[], next, &[]);
        self.enter(waits);
        self.wait(match self.mbarrier_waits.contains(&self.step) {
            true => Wait::AT_MBARRIER,
            false => Wait::POLLS,
        });
        self.b.ins().jump(next, &[]);
        self.enter(next);
    }

    /// Takes so many polls from the budget of the turn; whether there were fewer.
    pub(super) fn spend_polls(&mut self, count: i64) -> Value {
        let (flags, block) = (MemFlags::trusted(), self.block);
        let at = offset_of!(BlockContext, polls) as i32;
        let polls = self.b.ins().load(types::I32, flags, block, at);
        let polls = self.b.ins().iadd_imm(polls, -count);
        self.b.ins().store(flags, polls, block, at);
        self.b.ins().icmp_imm(IntCC::SignedLessThan, polls, 0)
    }

    /// Takes registers from where the lane has kept them.
    fn load_registers(&mut self, kept: Vec<(RegId, usize)>) {
        for (register, at) in kept {
            let variable = self.variable(register);
            let ty = self.register_types[register.0 as usize];
            let value = self.load_lane(ty, at);
            self.b.def_var(variable, value);
        }
    }

    /// Does steps once more that compute what the lane has not kept.
    fn steps_again(&mut self, again: Vec<usize>) {
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
        let Some(rounds) = &self.rounds else {
            return;
        };
        let (lanes, latch, head, over) = (rounds.lanes, rounds.latch, rounds.head, rounds.over);
        self.b.ins().jump(latch, &[]);
        self.b.switch_to_block(latch);
        self.thread_ends();
        let lanes = self.b.ins().stack_load(types::I32, lanes, 0);
        let less = self.b.ins().iadd_imm(lanes, -1);
        let left = self.b.ins().band(lanes, less);
        let next = [BlockArg::Value(left)];
        if !self.unit.rows.has_rest() || self.lanes.is_none() {
            self.b.ins().brif(left, head, &next, over, &[]);
            return;
        }
        let done = self.b.create_block();
        self.b.ins().brif(left, head, &next, done, &[]);
        self.b.switch_to_block(done);
        self.end_turn(over);
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
