//! Whose turn it is: see [`Mode::Rounds`](super::context::Mode::Rounds).
//!
//! A turn is of a warp: those of its lanes that can go on. Compiled code runs each of them to the
//! next place where it waits, or to its end, puts what it brings there into the warp's [`Tile`],
//! and then asks [`TURN`] for the next. So what waits is decided here, for all lanes of a turn
//! together where they stand at one place, by the rules that fibers follow: those of [`Warp`] and
//! of the block's barriers.
//!
//! Warps have turns in the order that fibers have them in: the same warp again as long as it can go
//! on, then the next. After a barrier, the first that can.
//!
//! Compiled code in vectors begins with a turn of all: the warps of the block go from barrier to
//! barrier together. Where they do not agree on a branch, those that go one way go to the next
//! barrier, then the others ([`SPLIT`], [`NEXT_WARPS`]). Where the lanes of a warp do not agree, or
//! warps come to different barriers, [`PART`], [`MEETS_APART`] and [`ALL_MEET`] end the turn.

use std::cell::Cell;
use std::ops::Range;

use super::barrier::{Part, no_such_barrier};
use super::block::Block;
use super::context::{BlockContext, CONTINUE, FAULTED, SUSPENDED, Status, Turn};
use super::launch::FaultKind;
use super::poll::{BUDGET, TURNS};
use super::running::fault;
use super::warp::{Polls, Selectors, Tile, Warp, each};
use crate::jit::runtime::runtime;
use crate::jit::spmd::WIDTH;

/// Where a thread stands that has not started. Otherwise it stands at the wait of this number,
/// counted from 1, or has [`ENDED`].
pub(crate) const START: u32 = 0;
/// Where a thread stands that has ended.
pub(crate) const ENDED: u32 = u32::MAX;

/// In [`BlockContext::start`]: every lane may stand elsewhere than where it starts.
pub(crate) const MOVED: u32 = 0;
/// There: only the first lane of each warp may.
pub(crate) const FIRSTS_MOVED: u32 = 1;
/// There: all stand where they start.
pub(crate) const AT_START: u32 = 2;

/// A place in a kernel where its threads wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// What they do there: a kind as [`MEET`](super::warp::MEET) takes it, or a
    /// [`BarrierKind`].
    pub kind: u32,
    /// For a warp operation, its mask; for a barrier, how many threads it waits for. `None`: each
    /// lane says it, in the tile.
    pub mask: Option<u32>,
    /// The second operand of `shfl`, or the barrier's number; `None` as above.
    pub b: Option<u32>,
    /// The third operand of `shfl`; `None` as above.
    pub c: Option<u32>,
    /// What the masks are that the lanes say, if that is known.
    pub tiles: Option<Tiles>,
}

/// Tiles that a warp consists of, each in the masks of its lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiles {
    /// Lanes of a tile, a power of two.
    pub size: u32,
    /// That is so where whole warps make up the rows of the block.
    pub of_rows: bool,
}

impl Tiles {
    /// A warp that is one tile.
    pub const WARP: Tiles = Tiles {
        size: 32,
        of_rows: false,
    };

    /// The mask of a lane.
    pub fn mask(self, lane: usize) -> u32 {
        let first = lane as u32 & !(self.size - 1);
        (u32::MAX >> (32 - self.size)) << first
    }
}

impl Wait {
    /// The kind of a place where threads stand that wait for nothing.
    const POINT: u32 = 0x7f;
    /// The kind of a poll.
    const POLL: u32 = 0x7e;
    /// The kind of a poll of an `mbarrier` alone.
    const MBARRIER: u32 = 0x7d;

    /// Not known yet.
    pub const NOWHERE: Wait = Wait {
        kind: 0,
        mask: Some(0),
        b: Some(0),
        c: Some(0),
        tiles: None,
    };

    /// A place where threads let others run before they look at memory again.
    pub const POLLS: Wait = Wait {
        kind: Wait::POLL,
        ..Wait::NOWHERE
    };

    /// A place where threads poll an `mbarrier` and nothing else, until others of their cluster
    /// complete its phase: see [`mbarrier_waits`](crate::jit::waits::mbarrier_waits).
    pub const AT_MBARRIER: Wait = Wait {
        kind: Wait::MBARRIER,
        ..Wait::NOWHERE
    };

    /// A place where nothing is waited for.
    pub const POINTS: Wait = Wait {
        kind: Wait::POINT,
        ..Wait::NOWHERE
    };
}

/// Beyond the numbers of warp operations: what threads do at a barrier of their block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum BarrierKind {
    /// `bar.sync`
    Sync = 0x40,
    /// `bar.arrive`
    Arrive,
    /// `bar.red`
    Reduce,
}

impl BarrierKind {
    pub fn of(kind: u32) -> Option<BarrierKind> {
        use BarrierKind::*;
        match kind {
            _ if kind == Sync as u32 => Some(Sync),
            _ if kind == Arrive as u32 => Some(Arrive),
            _ if kind == Reduce as u32 => Some(Reduce),
            _ => None,
        }
    }
}

runtime! {
    /// The lanes of the last turn have come where they wait, or have ended; `waits` are the places
    /// of the kernel. Says whose turn is next in the block's context. The answer is a status.
    TURN = fn turn(context: *mut BlockContext, waits: *const Wait) -> u32 {
        let block = moved(context);
        if block.running().stopped() {
            return FAULTED;
        }
        // SAFETY: compiled code passes on the context that the grid gave it, and no reference to it
        // exists meanwhile.
        let last = unsafe { (*context).turn };
        if last.lanes != 0 {
            // SAFETY: as above, and the waits live as long as the code.
            let status = unsafe { block.settle_turn(context, last, waits) };
            if status != CONTINUE {
                return status;
            }
        }
        let (next, status) = match block.next_turn(last.warp) {
            Some(next) => (next, CONTINUE),
            None if block.exited() as usize == block.threads().len() => (Turn::NONE, CONTINUE),
            None if block.poll_again() != Polls::None => (Turn::NONE, SUSPENDED),
            None => {
                block.deadlock();
                return FAULTED;
            }
        };
        // SAFETY: as above.
        let context = unsafe { &mut *context };
        context.turn = next;
        let turns = if status == SUSPENDED { 0 } else { block.turns.get() + 1 };
        block.turns.set(turns.min(TURNS));
        context.polls = match turns < TURNS {
            true => BUDGET * next.lanes.count_ones() as i32,
            false => 0,
        };
        context.resumes = u32::from(status == SUSPENDED);
        status
    }

    /// In a turn of all: the warps that go on together do not agree on a branch. Answers whether
    /// each goes one way by itself: those whose lanes decided so ([`Tile::decisions`]) stand at
    /// `taken` then, the others at `other`, and the first ones have their turn.
    SPLIT = fn split(context: *mut BlockContext, taken: u32, other: u32) -> u32 {
        let block = Block::of(context);
        // SAFETY: compiled code passes on the context that the grid gave it, and no reference to it
        // exists meanwhile.
        let BlockContext { turn, start, .. } = unsafe { &mut *context };
        let warps = &block.warps()[turn.begin as usize..turn.end as usize];
        for warp in warps {
            let (lanes, taking) = (!warp.exited(), warp.tile().taking());
            if taking & lanes != lanes && taking & lanes != 0 {
                return 0;
            }
        }
        *start = (*start).min(FIRSTS_MOVED);
        turn.split = turn.split.wrapping_add(1).max(1);
        for warp in warps {
            let takes = warp.tile().taking() & 1 != 0;
            warp.stand_at(if takes { taken } else { other });
            warp.split.set(turn.split);
        }
        turn.end = turn.begin + run_of_warps(warps);
        1
    }

    /// In a turn of all that is split: the turn of those warps that stand next to each other behind
    /// the ones that had theirs, and came to one place together. Answers the place.
    NEXT_WARPS = fn next_warps(context: *mut BlockContext) -> u32 {
        let block = Block::of(context);
        // SAFETY: as in `SPLIT`.
        let turn = unsafe { &mut (*context).turn };
        let warps = &block.warps()[turn.end as usize..];
        turn.begin = turn.end;
        turn.end += run_of_warps(warps);
        warps.first().map_or(ENDED, Warp::stand)
    }

    /// In a turn of all: the lanes of a warp do not go the same way from here, or do not come to
    /// where other warps came. Those of the groups that are still together stand at `taken` where
    /// they decided so ([`Tile::decisions`]), otherwise at `other`; the others have said where.
    /// From here on, threads have turns one by one.
    PART = fn part(context: *mut BlockContext, waits: *const Wait, taken: u32, other: u32) -> u32 {
        let block = moved(context);
        // SAFETY: compiled code passes on the context that the grid gave it, and no reference to it
        // exists meanwhile.
        let turn = unsafe { (*context).turn };
        for warp in turn.begin..turn.end {
            let tile = block.warps()[warp as usize].tile();
            let taking = tile.taking();
            for (lane, stands) in tile.stands.iter().enumerate() {
                if tile.together[lane / WIDTH].get() != 0 {
                    let took = taking >> lane & 1 != 0;
                    stands.set(if took { taken } else { other });
                }
            }
        }
        // SAFETY: as above; the waits live as long as the code.
        unsafe { block.end_all(context, waits, turn, turn.begin..turn.end) }
    }

    /// In a turn of all: a warp has come to an operation of its lanes. Answers whether it is
    /// complete; otherwise [`MEETS_APART`] follows.
    WARP_MEETS = fn warp_meets(context: *mut BlockContext, waits: *const Wait, number: u32, warp: u32) -> u32 {
        let block = moved(context);
        if block.running().stopped() {
            return 0;
        }
        let state = &block.warps()[warp as usize];
        state.tile().all_stand(number);
        // SAFETY: as in `PART`.
        let status = unsafe { block.settle_warp(context, warp, waits) };
        u32::from(status == CONTINUE && state.ready.get() == !state.exited())
    }

    /// In a turn of all: an operation of this warp's lanes is not complete. It is for the warps of
    /// the turn before it; those after it come to it now. From here on, threads have turns one by
    /// one.
    MEETS_APART = fn meets_apart(context: *mut BlockContext, waits: *const Wait, number: u32, warp: u32) -> u32 {
        let block = moved(context);
        // SAFETY: as in `PART`.
        let turn = unsafe { (*context).turn };
        for before in &block.warps()[turn.begin as usize..warp as usize] {
            before.tile().all_stand(number);
            before.ready.set(!before.exited());
        }
        for after in &block.warps()[warp as usize + 1..turn.end as usize] {
            after.tile().all_stand(number);
        }
        // SAFETY: as in `PART`.
        unsafe { block.end_all(context, waits, turn, warp + 1..turn.end) }
    }

    /// In a turn of all: all warps have come to a barrier that is not simply for all. Answers
    /// whether all go on from there; otherwise threads have turns one by one.
    ALL_MEET = fn all_meet(context: *mut BlockContext, waits: *const Wait, number: u32) -> u32 {
        let block = moved(context);
        for (index, warp) in (0..).zip(block.warps()) {
            warp.tile().all_stand(number);
            // SAFETY: as in `PART`.
            unsafe { block.settle_warp(context, index, waits) };
        }
        let all = |warp: &Warp| warp.ready.get() == !warp.exited();
        if block.barriers_open.get() == 0 && block.warps().iter().all(all) {
            block.barrier_over.set(false);
            return 1;
        }
        // The turn stays until the next: it says whose tiles take what compiled code holds.
        0
    }
}

/// The block of a context, whose lanes are not all where they start from here on.
fn moved<'a>(context: *mut BlockContext) -> &'a Block {
    // SAFETY: compiled code passes on the context that the grid gave it, and no reference to it
    // exists meanwhile.
    unsafe { (*context).start = MOVED };
    Block::of(context)
}

impl Block {
    /// All lanes of a warp have come to where they stand.
    ///
    /// # Safety
    /// As for [`settle_turn`](Self::settle_turn).
    unsafe fn settle_warp(
        &self,
        context: *mut BlockContext,
        warp: u32,
        waits: *const Wait,
    ) -> Status {
        let state = &self.warps()[warp as usize];
        state.ready.set(0);
        let turn = Turn {
            lanes: !state.exited(),
            warp,
            ..Turn::NONE
        };
        // SAFETY: the caller vouches for it.
        unsafe { self.settle_turn(context, turn, waits) }
    }

    /// The same of a warp some of whose lanes may have their turn next, where they wait for
    /// nothing. The others count where they wait when those have had it: a warp comes to a barrier
    /// as one, so that other warps do not leave it with some of its lanes.
    ///
    /// # Safety
    /// As for [`settle_turn`](Self::settle_turn).
    unsafe fn settle_parted(
        &self,
        context: *mut BlockContext,
        warp: u32,
        waits: *const Wait,
    ) -> Status {
        let state = &self.warps()[warp as usize];
        let mut go_on = 0;
        each(!state.exited(), |lane| {
            let stands = state.tile().stands[lane].get();
            // SAFETY: the caller vouches for it; numbers count from 1.
            let point =
                stands != ENDED && unsafe { (*waits.add(stands as usize - 1)).kind } == Wait::POINT;
            go_on |= u32::from(point) << lane;
        });
        if go_on == 0 {
            // SAFETY: the caller vouches for it.
            return unsafe { self.settle_warp(context, warp, waits) };
        }
        state.ready.set(go_on);
        state.early.set(!state.exited() & !go_on);
        CONTINUE
    }

    /// Ends a turn of all: looks where warps stand, of those that had their turn the ones in
    /// `unsettled`.
    ///
    /// # Safety
    /// As for [`settle_turn`](Self::settle_turn).
    unsafe fn end_all(
        &self,
        context: *mut BlockContext,
        waits: *const Wait,
        turn: Turn,
        unsettled: Range<u32>,
    ) -> Status {
        // SAFETY: the caller vouches for it.
        unsafe { (*context).turn = Turn::NONE };
        if self.running().stopped() {
            return CONTINUE; // the next turn says so
        }
        for warp in &self.warps()[..turn.begin as usize] {
            warp.tile().all_stand(turn.comes);
        }
        for warp in &self.warps()[turn.end as usize..] {
            warp.tile().all_stand(warp.stand());
        }
        let others = turn.end..self.warps().len() as u32;
        for index in others.chain(0..turn.begin).chain(unsettled) {
            // SAFETY: the caller vouches for it.
            let status = unsafe { self.settle_parted(context, index, waits) };
            if status != CONTINUE {
                return status;
            }
        }
        CONTINUE
    }

    /// Looks where the lanes of a turn stand: who can go on becomes ready.
    ///
    /// # Safety
    /// `waits` has a place for each number that lanes stand at, and `context` is the block's.
    #[inline]
    unsafe fn settle_turn(
        &self,
        context: *mut BlockContext,
        turn: Turn,
        waits: *const Wait,
    ) -> Status {
        let index = turn.warp as usize;
        let warp = &self.warps()[index];
        let tile = warp.tile();
        let mut left = turn.lanes | warp.early.take();
        while left != 0 {
            // Neighbours that stand at one place are looked at together.
            let stands = tile.stands[left.trailing_zeros() as usize].get();
            let lanes = run_of(tile, left, stands);
            left &= !lanes;
            if stands == ENDED {
                self.events.set(self.events.get() + 1);
                self.leave_together(index, lanes);
                match warp.read_outside(self, context) {
                    CONTINUE => continue,
                    faulted => return faulted,
                }
            }
            // SAFETY: the caller vouches for it; numbers count from 1.
            let wait = unsafe { *waits.add(stands as usize - 1) };
            debug_assert_ne!(wait.kind, Wait::POINT, "who stands there has a turn");
            if matches!(wait.kind, Wait::POLL | Wait::MBARRIER) {
                warp.poll(lanes, wait.kind == Wait::MBARRIER);
                continue;
            }
            self.events.set(self.events.get() + 1);
            let status = match BarrierKind::of(wait.kind) {
                Some(kind) => self.at_barrier(context, index, lanes, kind, wait),
                None => {
                    warp.at_operation(lanes, wait);
                    warp.read_outside(self, context)
                }
            };
            if status != CONTINUE {
                return status;
            }
        }
        CONTINUE
    }

    /// Lanes of a warp have come to a barrier.
    #[inline]
    fn at_barrier(
        &self,
        context: *mut BlockContext,
        index: usize,
        lanes: u32,
        kind: BarrierKind,
        wait: Wait,
    ) -> Status {
        let warp = &self.warps()[index];
        let tile = warp.tile();
        let (id, count) = (
            same(wait.b, &tile.b, lanes),
            same(wait.mask, &tile.masks, lanes),
        );
        if let (Some(id), Some(count)) = (id, count)
            && id < 16
            && kind != BarrierKind::Arrive
        {
            let predicates = (kind == BarrierKind::Reduce).then(|| {
                let mut predicates = 0;
                each(lanes, |lane| {
                    predicates |= u32::from(tile.values[lane].get() != 0) << lane
                });
                predicates
            });
            self.arrive_together(index, lanes, id, count, predicates);
            return CONTINUE;
        }
        let part = match kind {
            BarrierKind::Arrive => Part::Arrive,
            _ => Part::Wait,
        };
        let mut left = lanes;
        while left != 0 {
            let lane = left.trailing_zeros();
            left &= left - 1;
            let at = lane as usize;
            let id = wait.b.unwrap_or_else(|| tile.b[at].get());
            let count = wait.mask.unwrap_or_else(|| tile.masks[at].get());
            let linear = (index * 32) as u32 + lane;
            if id >= 16 {
                let thread = self.context_of(linear);
                let what = no_such_barrier(id);
                return fault(thread, context, FaultKind::Trap, None, what);
            }
            let predicate = (kind == BarrierKind::Reduce).then(|| tile.values[at].get() != 0);
            if self.arrive(linear, id, count, predicate, part) || part == Part::Arrive {
                warp.ready.set(warp.ready.get() | 1 << lane);
            }
        }
        CONTINUE
    }

    /// Whose turn is next, after one of warp `last`. `None`: nobody can go on.
    #[inline]
    fn next_turn(&self, last: u32) -> Option<Turn> {
        let warps = self.warps();
        let first = match self.barrier_over.take() {
            true => 0,
            false => last as usize,
        };
        let index = (first..warps.len())
            .chain(0..first)
            .find(|index| warps[*index].ready.get() != 0 || warps[*index].settle())?;
        Some(Turn {
            lanes: warps[index].ready.take(),
            warp: index as u32,
            threads: self.context_of(index as u32 * 32),
            tile: std::ptr::from_ref(warps[index].tile()).cast_mut(),
            ..Turn::NONE
        })
    }
}

/// How many warps, from the first on, came together to where they stand. Others may stand there
/// since another turn of a loop: then what is the same in all threads of a block at one time has
/// another value for each.
fn run_of_warps(warps: &[Warp]) -> u32 {
    let came = |warp: &Warp| (warp.stand(), warp.split.get());
    let first = warps.first().map(came);
    let same = |warp: &&Warp| Some(came(warp)) == first;
    warps.iter().take_while(same).count() as u32
}

impl Warp {
    /// Where its lanes stand that all stand at one place.
    fn stand(&self) -> u32 {
        self.tile().stands[0].get()
    }

    /// All of its lanes stand there, as the first one says for all until the turn of all ends.
    pub(super) fn stand_at(&self, stands: u32) {
        self.tile().stands[0].set(stands);
    }

    /// Lanes have come to an operation of the warp.
    fn at_operation(&self, lanes: u32, wait: Wait) {
        let tile = self.tile();
        let kind = wait.kind;
        if same(wait.mask, &tile.masks, lanes).is_some_and(|mask| mask & !self.exited() == lanes) {
            // All that were waited for: nothing needs to be remembered.
            let b = same(wait.b, &tile.b, lanes);
            let c = same(wait.c, &tile.c, lanes);
            let selectors = match (b, c) {
                (Some(b), Some(c)) => Selectors::Same(b, c),
                _ => {
                    self.spell_out(lanes, wait);
                    Selectors::Each
                }
            };
            self.complete(kind, lanes, selectors);
            self.ready.set(self.ready.get() | lanes);
            return;
        }
        self.spell_out(lanes, wait);
        if wait.mask.is_none() && self.parts_into_masks(lanes) {
            let mut left = lanes;
            while left != 0 {
                let mask = tile.masks[left.trailing_zeros() as usize].get() & lanes;
                self.complete(kind, mask, Selectors::Each);
                left &= !mask;
            }
            self.ready.set(self.ready.get() | lanes);
            return;
        }
        each(lanes, |lane| {
            let mask = wait.mask.unwrap_or_else(|| tile.masks[lane].get());
            if self.meet(lane as u32, mask, kind) {
                self.ready.set(self.ready.get() | 1 << lane);
            }
        });
    }

    /// Whether the masks of these lanes name them all, each in one: then nobody waits for others.
    fn parts_into_masks(&self, lanes: u32) -> bool {
        let masks = &self.tile().masks;
        let mut left = lanes;
        while left != 0 {
            let mask = masks[left.trailing_zeros() as usize].get();
            let here = mask & !self.exited();
            let mut other = 0;
            each(here & lanes, |lane| other |= masks[lane].get() ^ mask);
            if here & !left != 0 || here == 0 || other != 0 {
                return false;
            }
            left &= !here;
        }
        true
    }

    /// Puts what all lanes have in common where each has its own.
    fn spell_out(&self, lanes: u32, wait: Wait) {
        let tile = self.tile();
        each(lanes, |lane| {
            if let Some(b) = wait.b {
                tile.b[lane].set(b);
            }
            if let Some(c) = wait.c {
                tile.c[lane].set(c);
            }
        });
    }
}

/// The lowest of these lanes, and those above it without a gap in `lanes` that stand at the same
/// place.
#[inline]
fn run_of(tile: &Tile, lanes: u32, stands: u32) -> u32 {
    if lanes == u32::MAX && all_are(&tile.stands, stands) {
        return lanes;
    }
    let (mut run, mut left) = (0, lanes);
    while left != 0 && tile.stands[left.trailing_zeros() as usize].get() == stands {
        run |= left & left.wrapping_neg();
        left &= left - 1;
    }
    run
}

/// What all of these lanes have in common: `known`, or else what each says.
#[inline]
fn same(known: Option<u32>, each: &[Cell<u32>; 32], lanes: u32) -> Option<u32> {
    if known.is_some() {
        return known;
    }
    let first = each[lanes.trailing_zeros() as usize].get();
    let alike = match lanes {
        u32::MAX => all_are(each, first),
        _ => (0..32).all(|lane| lanes >> lane & 1 == 0 || each[lane].get() == first),
    };
    alike.then_some(first)
}

/// Without an end halfway, so that it is done for several lanes at once.
fn all_are(each: &[Cell<u32>; 32], what: u32) -> bool {
    each.iter().fold(0, |other, lane| other | lane.get() ^ what) == 0
}
