//! Where the lanes of a warp meet: an operation completes when every lane of its mask that has not
//! ended has arrived at an operation of the same kind with the same mask, wherever in the code that
//! is.
//!
//! What has no mask (`activemask`, and the older forms without `.sync`) means the lanes that are
//! there now. So it waits until no other lane of the warp can run, and is for the lanes that are at
//! that very instruction then: the mask that `activemask` gives is one with which all of them can
//! meet again.

use std::cell::Cell;
use std::mem::offset_of;

use super::block::{Block, linear_of, suspend, thread_of};
use super::cluster::fault_of;
use super::context::{BlockContext, CONTINUE, FAULTED, Status, ThreadContext};
use super::launch::FaultKind;
use super::matrix::group::{GroupProduct, Shared};
use super::matrix::rows::{How, Rows};
use super::matrix::{self, Product};
use super::rounds::START;
use super::running::fault;
use crate::jit::runtime::runtime;
use crate::jit::spmd::WIDTH;

/// What lanes do when they have met. The number in an operation's kind, see [`kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Meeting {
    /// `bar.warp.sync`
    Sync,
    /// `shfl.up`
    ShflUp,
    /// `shfl.down`
    ShflDown,
    /// `shfl.bfly`
    ShflBfly,
    /// `shfl.idx`
    ShflIdx,
    /// `vote.all`
    VoteAll,
    /// `vote.any`
    VoteAny,
    /// `vote.uni`
    VoteUni,
    /// `vote.ballot`, and `activemask`, which is the ballot of what is always true.
    VoteBallot,
    /// `match.any`
    MatchAny,
    /// `match.all`
    MatchAll,
    /// `redux.add`
    ReduxAdd,
    /// `redux.min.u32`
    ReduxMinU,
    /// `redux.max.u32`
    ReduxMaxU,
    /// `redux.min.s32`
    ReduxMinS,
    /// `redux.max.s32`
    ReduxMaxS,
    /// `redux.and`
    ReduxAnd,
    /// `redux.or`
    ReduxOr,
    /// `redux.xor`
    ReduxXor,
    /// `elect`
    Elect,
    /// `movmatrix`
    Transpose,
    /// `mma`, `wmma.mma`: what is multiplied says the rest of the kind, see [`multiplication`].
    Multiply,
    /// `wgmma.mma_async`: see [`group_multiplication`].
    MultiplyInGroup,
    /// `ldmatrix`, `stmatrix`: see [`Rows`].
    Rows,
}

impl Meeting {
    const ALL: [Meeting; 24] = {
        use Meeting::*;
        [
            Sync,
            ShflUp,
            ShflDown,
            ShflBfly,
            ShflIdx,
            VoteAll,
            VoteAny,
            VoteUni,
            VoteBallot,
            MatchAny,
            MatchAll,
            ReduxAdd,
            ReduxMinU,
            ReduxMaxU,
            ReduxMinS,
            ReduxMaxS,
            ReduxAnd,
            ReduxOr,
            ReduxXor,
            Elect,
            Transpose,
            Multiply,
            MultiplyInGroup,
            Rows,
        ]
    };
}

/// Set in a kind: the operation has no mask, and the rest of the kind says which instruction it is.
const UNMASKED: u32 = 1 << 31;

/// The kind that an operation without a mask has: `site` tells it from every other instruction of
/// the module.
pub(crate) const fn unmasked(meeting: Meeting, site: u32) -> u32 {
    UNMASKED | (site & 0x7f_ffff) << 8 | meeting as u32
}

/// What lanes do in a kind of which there is but one for all instructions, but for those that have
/// no mask.
pub(crate) fn plainly(kind: u32) -> u32 {
    match kind & UNMASKED {
        0 => kind,
        _ => kind & 0xff,
    }
}

/// The kind that a matrix product has.
pub(crate) fn multiplication(product: Product) -> u32 {
    const { assert!(8 + Product::CODE_BITS <= 31) };
    product.code() << 8 | Meeting::Multiply as u32
}

/// The kind that a matrix product of a warpgroup has.
pub(crate) fn group_multiplication(product: GroupProduct) -> u32 {
    const { assert!(8 + GroupProduct::CODE_BITS <= 31) };
    product.code() << 8 | Meeting::MultiplyInGroup as u32
}

/// Where in a tile the registers of matrix products lie, in kernels that have them.
pub(crate) const OPERANDS: usize = size_of::<Tile>();

/// What the lanes of a warp bring to an operation and take from it; in rounds also where they
/// stand. One array for each thing, so that neighbouring lanes lie side by side.
///
/// Behind it lie, in the same way, what lanes bring to matrix products and take from them, if the
/// kernel has any, and in rounds the registers that the lanes keep while they wait.
#[repr(C)]
pub(crate) struct Tile {
    /// In rounds: where each lane stands.
    pub stands: [Cell<u32>; 32],
    /// In rounds: the mask of an operation, or how many threads a barrier waits for.
    pub masks: [Cell<u32>; 32],
    /// The low half of the value that each lane brought, or its predicate.
    pub values: [Cell<u32>; 32],
    /// The high half, for `match`.
    pub highs: [Cell<u32>; 32],
    /// The second operand of `shfl`, or the number of a barrier.
    pub b: [Cell<u32>; 32],
    /// The third operand of `shfl`.
    pub c: [Cell<u32>; 32],
    /// What each lane takes.
    pub results: [Cell<u32>; 32],
    /// `%tid`, by component. The same as long as the block is prepared for one launch.
    pub tid: [[u32; 32]; 3],
    /// The predicates beside the results, a bit for each lane.
    pub predicates: Cell<u32>,
    /// For each group of neighbours that the vector form runs together, 1 while they do; 0 once one
    /// of them went on by itself.
    pub together: [Cell<u32>; 32 / WIDTH],
    /// For each such group, a bit for each lane: whether it takes the branch that decides where the
    /// warp goes.
    pub decisions: [Cell<u32>; 32 / WIDTH],
    /// For each such group, the number of the loop that it is to go through again, counted from 1;
    /// 0 for none.
    pub again: [Cell<u32>; 32 / WIDTH],
    /// Makes its size a multiple of what any register is aligned to.
    _room: [u32; 31 - 96 / WIDTH],
}

impl Tile {
    /// Bytes from a warp's tile to the next, whose lanes keep `kept` bytes each; `None` if that is
    /// too much.
    pub fn stride(kept: u32) -> Option<usize> {
        let registers = (kept as usize).checked_mul(32)?;
        size_of::<Tile>()
            .checked_add(registers)?
            .checked_next_multiple_of(64)
    }

    /// Every lane stands there.
    pub fn all_stand(&self, stands: u32) {
        self.stands.iter().for_each(|lane| lane.set(stands));
    }

    /// The lanes that take the branch that decides where the warp goes, of groups that have come to
    /// it. Others have any bits.
    pub fn taking(&self) -> u32 {
        let groups = (0..).step_by(WIDTH).zip(&self.decisions);
        let of_group = (1 << WIDTH) - 1;
        groups.fold(0, |all, (lane, bits)| all | (bits.get() & of_group) << lane)
    }

    fn value(&self, lane: usize) -> u64 {
        u64::from(self.highs[lane].get()) << 32 | u64::from(self.values[lane].get())
    }
}

/// The lanes whose word is this one.
#[cfg(target_arch = "x86_64")]
fn lanes_with(words: &[u32; 32], word: u32) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32,
        _mm_set1_epi32,
    };
    // SAFETY: every such processor has SSE2, and no more is read than the words.
    unsafe {
        let word = _mm_set1_epi32(word.cast_signed());
        let same = |vector: usize| {
            let of_lanes = _mm_loadu_si128(words[4 * vector..][..4].as_ptr().cast());
            _mm_cmpeq_epi32(of_lanes, word)
        };
        let half = |first: usize| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|vector| same(first + vector));
            let bytes = _mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d));
            _mm_movemask_epi8(bytes) as u32
        };
        half(0) | half(4) << 16
    }
}

/// The lanes whose word is this one.
#[cfg(not(target_arch = "x86_64"))]
fn lanes_with(words: &[u32; 32], word: u32) -> u32 {
    let same = words.iter().enumerate();
    same.fold(0, |all, (lane, other)| {
        all | u32::from(*other == word) << lane
    })
}

/// Lanes on their way to one operation.
#[derive(Clone, Copy, Default)]
struct Group {
    mask: u32,
    kind: u32,
    arrived: u32,
}

/// What an operation was to read of shared memory that the block does not have.
#[derive(Clone, Copy, Default)]
enum Outside {
    #[default]
    Nothing,
    /// What a descriptor names.
    Descriptor,
    /// A lane's part of a row.
    Row { lane: u8, address: u64, size: u8 },
}

/// A warp of a resident block.
pub(super) struct Warp {
    /// Lanes that can run.
    pub ready: Cell<u32>,
    /// Lanes that polled and have another turn when nobody else is ready.
    polling: Cell<u32>,
    /// Of these, lanes that wait at an `mbarrier` alone.
    at_mbarrier: Cell<u32>,
    /// Lanes that have come where they wait before others of the warp: they count there when those
    /// have had their turn.
    pub early: Cell<u32>,
    /// Lanes that have ended, or never were.
    exited: Cell<u32>,
    /// In a turn of all that is split: what [`Turn::split`](super::context::Turn::split) was when
    /// the warp last parted from others, or they from it.
    pub split: Cell<u32>,
    groups: [Cell<Group>; 32],
    open: Cell<u32>,
    /// Its number in the block, and the block's shared memory.
    number: Cell<u32>,
    shared: Cell<Shared>,
    /// What an operation was to read that is not there.
    outside: Cell<Outside>,
    /// Null until the block is prepared for a launch.
    tile: Cell<*const Tile>,
}

impl Default for Warp {
    fn default() -> Warp {
        Warp {
            ready: Cell::new(0),
            polling: Cell::new(0),
            at_mbarrier: Cell::new(0),
            early: Cell::new(0),
            exited: Cell::new(0),
            split: Cell::new(0),
            groups: Default::default(),
            open: Cell::new(0),
            number: Cell::new(0),
            shared: Cell::new(Shared::NONE),
            outside: Cell::new(Outside::Nothing),
            tile: Cell::new(std::ptr::null()),
        }
    }
}

/// What threads poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Polls {
    None,
    /// All those that poll wait at `mbarrier`s alone, which only their cluster's threads complete.
    Mbarriers,
    Memory,
}

/// The second and third operand of `shfl`.
#[derive(Clone, Copy)]
pub(super) enum Selectors {
    /// Each lane has its own, in the tile.
    Each,
    /// They are the same for all lanes.
    Same(u32, u32),
}

impl Warp {
    /// Its tile lies at `tile`, in memory of the block that stays there as long as the block is
    /// prepared as it is, and says who its lanes are.
    ///
    /// # Safety
    /// There is room for a tile, which nobody else refers to now.
    pub unsafe fn set_tile(&mut self, tile: *mut Tile, tid: impl Fn(u32) -> [u32; 3]) {
        self.tile.set(tile);
        for lane in 0..32 {
            for (component, value) in tid(lane).into_iter().enumerate() {
                // SAFETY: the caller vouches for it.
                unsafe { (*tile).tid[component][lane as usize] = value };
            }
        }
    }

    /// It is this warp of a block with this shared memory.
    pub fn set_place(&mut self, number: u32, shared: Shared) {
        self.number.set(number);
        self.shared.set(shared);
        self.outside.set(Outside::Nothing);
    }

    /// The fault of a thread, if an operation was to read shared memory that the block does not
    /// have since this was asked last.
    pub fn read_outside(&self, owner: &Block, block: *mut BlockContext) -> Status {
        let thread = |lane: u8| owner.context_of(32 * self.number.get() + u32::from(lane));
        match self.outside.take() {
            Outside::Nothing => CONTINUE,
            Outside::Descriptor => {
                let what =
                    "the descriptor of a matrix names shared memory that the block does not have";
                fault(thread(0), block, FaultKind::IllegalAddress, None, what)
            }
            Outside::Row {
                lane,
                address,
                size,
            } => {
                let kind = fault_of(address, size.into());
                let access = Some((address, size.into()));
                fault(thread(lane), block, kind, access, "")
            }
        }
    }

    /// Fills what lies in its tile with a byte, but for the numbers of threads.
    ///
    /// # Safety
    /// The tile has `kept` bytes for registers, and nothing else refers to it.
    pub unsafe fn fill_tile(&self, kept: usize, byte: u8) {
        let tile = self.tile.get().cast_mut();
        // SAFETY: the caller vouches for it; all that is filled are numbers.
        unsafe {
            let (before, after) = (offset_of!(Tile, tid), offset_of!(Tile, predicates));
            tile.cast::<u8>().write_bytes(byte, before);
            let rest = size_of::<Tile>() - after + kept;
            tile.cast::<u8>().add(after).write_bytes(byte, rest);
        }
    }

    /// Its tile.
    pub fn tile(&self) -> &Tile {
        // SAFETY: set by `Block::prepare` before any thread of the block runs. The tile is cells of
        // numbers, in memory that holds some numbers from the start; compiled code, which writes
        // them too, does not run while this reference is used.
        unsafe { &*self.tile.get() }
    }

    /// A warp with `lanes` lanes, all ready to start; those that make groups, together.
    pub fn reset(&mut self, lanes: u32) {
        let exist = (1u64 << lanes) as u32;
        let exist = exist.wrapping_sub(1);
        self.ready.set(exist);
        self.polling.set(0);
        self.at_mbarrier.set(0);
        self.early.set(0);
        self.exited.set(!exist);
        self.open.set(0);
        let tile = self.tile();
        tile.all_stand(START);
        for (group, together) in (1..).zip(&tile.together) {
            together.set(u32::from(lanes >= group * WIDTH as u32));
        }
    }

    /// Lanes that have ended, or never were.
    pub fn exited(&self) -> u32 {
        self.exited.get()
    }

    /// The result of a lane's last operation: a value and [`PREDICATE`].
    pub fn result(&self, lane: u32) -> u64 {
        let tile = self.tile();
        let predicate = tile.predicates.get() >> lane & 1 != 0;
        u64::from(tile.results[lane as usize].get()) | if predicate { PREDICATE } else { 0 }
    }

    /// Gives several lanes the same result.
    pub fn set_results(&self, lanes: u32, result: u64) {
        let tile = self.tile();
        if lanes == u32::MAX {
            tile.results.iter().for_each(|lane| lane.set(result as u32));
        } else {
            each(lanes, |lane| tile.results[lane].set(result as u32));
        }
        self.set_predicates(lanes, if result & PREDICATE != 0 { lanes } else { 0 });
    }

    /// Gives several lanes their predicates.
    fn set_predicates(&self, lanes: u32, predicates: u32) {
        let all = &self.tile().predicates;
        all.set(all.get() & !lanes | predicates);
    }

    /// No lane is at an operation.
    pub fn nobody_waits(&self) -> bool {
        self.open.get() == 0
    }

    /// Lanes have ended, which nobody waits for.
    pub fn forget(&self, lanes: u32) {
        self.exited.set(self.exited.get() | lanes);
    }

    /// Lanes polled; `at_mbarrier`: an `mbarrier` alone.
    pub fn poll(&self, lanes: u32, at_mbarrier: bool) {
        self.polling.set(self.polling.get() | lanes);
        let waiting = self.at_mbarrier.get();
        self.at_mbarrier.set(match at_mbarrier {
            true => waiting | lanes,
            false => waiting & !lanes,
        });
    }

    /// Makes the lanes that polled ready again, and says what they polled.
    pub fn poll_again(&self) -> Polls {
        let polling = self.polling.take();
        self.ready.set(self.ready.get() | polling);
        match polling & !self.at_mbarrier.get() {
            _ if polling == 0 => Polls::None,
            0 => Polls::Mbarriers,
            _ => Polls::Memory,
        }
    }

    /// How many of its lanes wait at `mbarrier`s alone, where all that are ready do.
    pub fn at_mbarriers(&self) -> u32 {
        (self.ready.get() & self.at_mbarrier.get()).count_ones()
    }

    /// A lane has ended: operations that waited for it alone complete.
    pub fn exit(&self, lane: u32) {
        self.exited.set(self.exited.get() | 1 << lane);
        let mut index = 0;
        while index < self.open.get() {
            let group = self.groups[index as usize].get();
            if group.mask & !self.exited.get() == group.arrived {
                self.release(index);
            } else {
                index += 1;
            }
        }
    }

    /// No lane is ready: completes an operation without a mask, if lanes are at one, and says
    /// whether it did. Of several, it is the one that the lowest lane is at.
    pub fn settle(&self) -> bool {
        let group = |index: &u32| self.groups[*index as usize].get();
        let found = (0..self.open.get())
            .filter(|index| group(index).kind & UNMASKED != 0)
            .min_by_key(|index| group(index).arrived.trailing_zeros());
        if let Some(index) = found {
            self.release(index);
        }
        found.is_some()
    }

    /// Completes the operation of a group whose lanes are all there: they become ready, with their
    /// results.
    fn release(&self, index: u32) {
        let group = self.groups[index as usize].get();
        let last = self.open.get() - 1;
        self.groups[index as usize].set(self.groups[last as usize].get());
        self.open.set(last);
        self.complete(group.kind, group.arrived, Selectors::Each);
        self.ready.set(self.ready.get() | group.arrived);
    }

    /// A lane comes to an operation; says whether it need not wait. It brought its operands.
    pub fn meet(&self, lane: u32, mask: u32, kind: u32) -> bool {
        let bit = 1 << lane;
        if mask & bit == 0 || mask & !self.exited() == bit {
            // Alone: or not in its own mask, which is undefined and here as if alone.
            self.complete(kind, bit, Selectors::Each);
            return true;
        }
        self.arrive(lane, mask, kind)
    }

    /// Puts a lane at an operation; says whether that completed it.
    fn arrive(&self, lane: u32, mask: u32, kind: u32) -> bool {
        let bit = 1 << lane;
        let open = self.open.get();
        let index = (0..open)
            .find(|&index| {
                let group = self.groups[index as usize].get();
                group.mask == mask && group.kind == kind
            })
            .unwrap_or_else(|| {
                // A lane is in one group at a time, so there is room for the 32nd lane's.
                self.groups[open as usize].set(Group {
                    mask,
                    kind,
                    arrived: 0,
                });
                self.open.set(open + 1);
                open
            });
        let mut group = self.groups[index as usize].get();
        group.arrived |= bit;
        self.groups[index as usize].set(group);
        if mask & !self.exited.get() != group.arrived {
            return false;
        }
        self.release(index);
        self.ready.set(self.ready.get() & !bit);
        true
    }

    /// Computes the results of an operation for the lanes that take part.
    pub fn complete(&self, kind: u32, lanes: u32, selectors: Selectors) {
        let meeting = Meeting::ALL[(kind & 0xff) as usize % Meeting::ALL.len()];
        let tile = self.tile();
        let fold = |start: u32, op: fn(u32, u32) -> u32| {
            let mut result = start;
            each(lanes, |lane| result = op(result, tile.values[lane].get()));
            self.set_results(lanes, u64::from(result));
        };
        let signed = |op: fn(i32, i32) -> i32, start: i32| {
            let mut result = start;
            each(lanes, |lane| {
                result = op(result, tile.values[lane].get() as i32)
            });
            self.set_results(lanes, u64::from(result as u32));
        };
        let ballot = || {
            let mut ballot = 0;
            each(lanes, |lane| {
                ballot |= u32::from(tile.values[lane].get() != 0) << lane
            });
            ballot
        };
        match meeting {
            Meeting::Sync => {}
            Meeting::ShflUp | Meeting::ShflDown | Meeting::ShflBfly | Meeting::ShflIdx => {
                let whole = if meeting == Meeting::ShflUp { 0 } else { 31 };
                match selectors {
                    Selectors::Same(b, c) if lanes == u32::MAX && c & 0x1f1f == whole => {
                        self.shuffle_whole(meeting, b)
                    }
                    Selectors::Same(b, c) => self.shuffle(meeting, lanes, |_| (b, c)),
                    Selectors::Each => {
                        let own = |lane: usize| (tile.b[lane].get(), tile.c[lane].get());
                        self.shuffle(meeting, lanes, own);
                    }
                }
            }
            Meeting::VoteAll => self.set_results(lanes, u64::from(ballot() == lanes)),
            Meeting::VoteAny => self.set_results(lanes, u64::from(ballot() != 0)),
            Meeting::VoteUni => {
                let ballot = ballot();
                self.set_results(lanes, u64::from(ballot == lanes || ballot == 0));
            }
            Meeting::VoteBallot => self.set_results(lanes, u64::from(ballot())),
            Meeting::MatchAny => {
                self.set_predicates(lanes, 0);
                let low: [u32; 32] = std::array::from_fn(|lane| tile.values[lane].get());
                let high: [u32; 32] = std::array::from_fn(|lane| tile.highs[lane].get());
                let narrow = high.iter().fold(0, |all, high| all | high) == 0;
                each(lanes, |lane| {
                    let mut same = lanes & lanes_with(&low, low[lane]);
                    if !narrow {
                        same &= lanes_with(&high, high[lane]);
                    }
                    tile.results[lane].set(same);
                });
            }
            Meeting::MatchAll => {
                let first = tile.value(lanes.trailing_zeros() as usize % 32);
                let mut same = true;
                each(lanes, |lane| same &= tile.value(lane) == first);
                self.set_results(
                    lanes,
                    if same {
                        PREDICATE | u64::from(lanes)
                    } else {
                        0
                    },
                );
            }
            Meeting::ReduxAdd => fold(0, u32::wrapping_add),
            Meeting::ReduxMinU => fold(u32::MAX, u32::min),
            Meeting::ReduxMaxU => fold(0, u32::max),
            Meeting::ReduxMinS => signed(i32::min, i32::MAX),
            Meeting::ReduxMaxS => signed(i32::max, i32::MIN),
            Meeting::ReduxAnd => fold(u32::MAX, |a, b| a & b),
            Meeting::ReduxOr => fold(0, |a, b| a | b),
            Meeting::ReduxXor => fold(0, |a, b| a ^ b),
            Meeting::Transpose => {
                let values = std::array::from_fn(|lane| match lanes >> lane & 1 {
                    0 => 0,
                    _ => tile.values[lane].get(),
                });
                let transposed = matrix::transpose(&values);
                each(lanes, |lane| tile.results[lane].set(transposed[lane]));
            }
            Meeting::Rows => self.tell_rows(Rows::of_kind(kind), lanes),
            Meeting::MultiplyInGroup => {
                self.multiply_in_group(GroupProduct::of_code(kind >> 8), lanes)
            }
            Meeting::Multiply => self.multiply(Product::of_code(kind >> 8), lanes),
            Meeting::Elect => {
                let leader = lanes.trailing_zeros();
                self.set_results(lanes, u64::from(leader));
                self.set_predicates(lanes, lanes & lanes.wrapping_neg());
            }
        }
    }

    /// The words behind the tile that lanes bring to an operation and take from it. Lanes that are
    /// not there bring zeros, not what another operation left.
    ///
    /// # Safety
    /// The kernel has an operation of so many words, so that its tiles have room for them.
    #[allow(clippy::mut_from_ref)] // the tile is shared by address, and no one else looks now
    unsafe fn operands(&self, count: usize, lanes: u32) -> &mut [matrix::Words] {
        let start = self.tile.get().cast_mut().cast::<u8>();
        // SAFETY: the caller vouches for the room. Words are numbers, in memory that holds some
        // from the start; compiled code, which writes them too, does not run meanwhile.
        let words: &mut [matrix::Words] =
            unsafe { std::slice::from_raw_parts_mut(start.add(OPERANDS).cast(), count) };
        if lanes != u32::MAX {
            for words in &mut *words {
                each(!lanes, |lane| words[lane] = 0);
            }
        }
        words
    }

    /// Multiplies what the lanes brought.
    fn multiply(&self, product: Product, lanes: u32) {
        let [.., taken] = product.words();
        // SAFETY: the kernel has this operation.
        product.compute(unsafe { self.operands(product.brought().max(taken), lanes) });
    }

    /// Multiplies for the warp's part of a warpgroup; a descriptor that names memory that is not
    /// there is remembered.
    fn multiply_in_group(&self, product: GroupProduct, lanes: u32) {
        // SAFETY: the kernel has this operation.
        let words = unsafe { self.operands(product.brought(), lanes) };
        let (number, shared) = (self.number.get(), self.shared.get());
        if product.compute(number, words, &shared).is_none() {
            self.outside.set(Outside::Descriptor);
        }
    }

    /// Gives the lanes their parts of rows, or the addresses of these. What is not there is
    /// remembered.
    fn tell_rows(&self, rows: Rows, lanes: u32) {
        // SAFETY: the kernel has this operation.
        let words = unsafe { self.operands(rows.words(), lanes) };
        let brought = rows.addresses(words);
        if rows.how != How::Tell {
            if rows.read(&brought, &self.shared.get(), words).is_none() {
                self.outside.set(self.outside_of(rows, &brought, lanes));
            }
            return;
        }
        for (to, taken) in words.chunks_mut(2).zip(rows.exchange(&brought)) {
            to.copy_from_slice(&taken);
        }
    }

    /// The first part of a row that one of these lanes cannot read.
    fn outside_of(&self, rows: Rows, brought: &[matrix::Words; 2], lanes: u32) -> Outside {
        let taken: Vec<_> = rows.exchange(brought).collect();
        let parts = (0..32).filter(|lane| lanes >> lane & 1 != 0);
        let parts = parts.flat_map(|lane| taken.iter().map(move |words| (lane, words)));
        for (lane, [lows, highs]) in parts {
            let address = u64::from(highs[lane]) << 32 | u64::from(lows[lane]);
            let size = if rows.turned { 2 } else { 4 };
            if !self.shared.get().has(address, size) {
                let (lane, size) = (lane as u8, size as u8);
                return Outside::Row {
                    lane,
                    address,
                    size,
                };
            }
        }
        // No lane takes what is not there.
        Outside::Nothing
    }

    /// A shuffle of all lanes with the same selectors over the whole warp.
    fn shuffle_whole(&self, meeting: Meeting, b: u32) {
        let tile = self.tile();
        let values: [u32; 32] = std::array::from_fn(|lane| tile.values[lane].get());
        let b = b as usize & 0x1f;
        let mut results = values;
        let mut predicates = u32::MAX;
        match meeting {
            Meeting::ShflUp => {
                results[b..].copy_from_slice(&values[..32 - b]);
                predicates <<= b;
            }
            Meeting::ShflDown => {
                results[..32 - b].copy_from_slice(&values[b..]);
                predicates >>= b;
            }
            Meeting::ShflBfly => results = std::array::from_fn(|lane| values[lane ^ b]),
            _ => results = [values[b]; 32],
        }
        for (lane, result) in tile.results.iter().zip(results) {
            lane.set(result);
        }
        tile.predicates.set(predicates);
    }

    #[inline(always)]
    fn shuffle(&self, meeting: Meeting, lanes: u32, selectors: impl Fn(usize) -> (u32, u32)) {
        let tile = self.tile();
        let mut predicates = 0;
        each(lanes, |lane| {
            let (b, c) = selectors(lane);
            let (source, inside) = source(meeting, lane as i32, b as i32, c as i32);
            // A lane that takes no part has nothing to give: what the taker gets then is undefined,
            // and here its own.
            let given = inside && lanes >> (source & 0x1f) & 1 != 0;
            let from = if given { source as usize & 0x1f } else { lane };
            tile.results[lane].set(tile.values[from].get());
            predicates |= u32::from(inside) << lane;
        });
        self.set_predicates(lanes, predicates);
    }

    /// What its lanes wait for, for a message; empty when nothing.
    pub fn waiting(&self) -> String {
        (0..self.open.get())
            .map(|index| {
                let group = self.groups[index as usize].get();
                let meeting = Meeting::ALL[(group.kind & 0xff) as usize % Meeting::ALL.len()];
                format!(
                    "lanes {:#010x} wait in {meeting:?} with mask {:#010x}",
                    group.arrived, group.mask
                )
            })
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// The lane that `shfl` takes from, and whether that is in the lane's segment.
#[inline(always)]
pub(crate) fn source(meeting: Meeting, own: i32, b: i32, c: i32) -> (i32, bool) {
    let (b, clamp, segment) = (b & 0x1f, c & 0x1f, (c >> 8) & 0x1f);
    let highest = own & segment | clamp & !segment;
    match meeting {
        Meeting::ShflUp => (own - b, own - b >= highest),
        Meeting::ShflDown => (own + b, own + b <= highest),
        Meeting::ShflBfly => (own ^ b, own ^ b <= highest),
        _ => {
            let source = own & segment | b & !segment;
            (source, source <= highest)
        }
    }
}

/// Does something for each lane of a mask, in ascending order.
#[inline(always)]
pub(super) fn each(mut lanes: u32, mut then: impl FnMut(usize)) {
    if lanes == u32::MAX {
        // Without a search, so that it may be done for several lanes at once.
        return (0..32).for_each(then);
    }
    while lanes != 0 {
        then(lanes.trailing_zeros() as usize);
        lanes &= lanes - 1;
    }
}

/// The predicate in the result of an operation that has one beside its value.
pub(crate) const PREDICATE: u64 = 1 << 32;
/// Where the status starts in the result of an operation.
pub(crate) const STATUS_SHIFT: u32 = 40;

runtime! {
    /// Where in its warp's tile the thread's word of each array is, less the array's offset.
    LANE = fn lane(thread: *mut ThreadContext, block: *mut BlockContext) -> *mut u8 {
        let linear = linear_of(thread);
        let warp = &Block::of(block).warps()[linear as usize / 32];
        let tile = warp.tile.get().cast_mut().cast::<u8>();
        tile.wrapping_add(4 * (linear as usize % 32))
    }

    /// Meets the other lanes of `mask` in an operation of `kind`: a [`Meeting`], or what
    /// [`unmasked`] makes of one. `value` is what the lane brings; `b` and `c` are `shfl`'s. The
    /// low half of the answer is the value, bit 32 the predicate, and the bits from
    /// [`STATUS_SHIFT`] are a status.
    MEET = fn meet(
        thread: *mut ThreadContext, block: *mut BlockContext, kind: u32, mask: u32, value: u64, b: u32, c: u32,
    ) -> u64 {
        let owner = Block::of(block);
        let Some(fiber) = thread_of(thread) else {
            let what = "a warp operation in code that was compiled not to wait";
            return status(fault(thread, block, FaultKind::LaunchFailure, None, what));
        };
        if owner.running().stopped() {
            return status(FAULTED);
        }
        owner.events.set(owner.events.get() + 1);
        let linear = linear_of(thread);
        let (warp, lane) = (&owner.warps()[linear as usize / 32], linear % 32);
        let (tile, at) = (warp.tile(), lane as usize);
        tile.values[at].set(value as u32);
        tile.highs[at].set((value >> 32) as u32);
        tile.b[at].set(b);
        tile.c[at].set(c);
        if !warp.meet(lane, mask, kind) {
            let after = suspend(owner, fiber);
            if after != CONTINUE {
                return status(after);
            }
        }
        // The lane that completed the operation may be one that has ended since.
        match warp.read_outside(owner, block) {
            CONTINUE => warp.result(lane),
            faulted => status(faulted),
        }
    }
}

fn status(status: Status) -> u64 {
    u64::from(status) << STATUS_SHIFT
}
