//! Where the lanes of a warp meet: an operation completes when every lane of its mask that has not
//! ended has arrived at an operation of the same kind with the same mask, wherever in the code that
//! is.
//!
//! What has no mask (`activemask`, and the older forms without `.sync`) means the lanes that are
//! there now. So it waits until no other lane of the warp can run, and is for the lanes that are at
//! that very instruction then: the mask that `activemask` gives is one with which all of them can
//! meet again.

use std::cell::Cell;

use super::block::{Block, linear_of, suspend, thread_of};
use super::context::{BlockContext, CONTINUE, FAULTED, Status, ThreadContext};
use super::launch::FaultKind;
use super::running::fault;
use crate::jit::runtime::runtime;

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
}

impl Meeting {
    const ALL: [Meeting; 20] = {
        use Meeting::*;
        [
            Sync, ShflUp, ShflDown, ShflBfly, ShflIdx, VoteAll, VoteAny, VoteUni, VoteBallot,
            MatchAny, MatchAll, ReduxAdd, ReduxMinU, ReduxMaxU, ReduxMinS, ReduxMaxS, ReduxAnd,
            ReduxOr, ReduxXor, Elect,
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

/// Lanes on their way to one operation.
#[derive(Clone, Copy, Default)]
struct Group {
    mask: u32,
    kind: u32,
    arrived: u32,
}

/// A warp of a resident block.
#[derive(Default)]
pub(super) struct Warp {
    /// Lanes that can run.
    pub ready: Cell<u32>,
    /// Lanes that polled and have another turn when nobody else is ready.
    polling: Cell<u32>,
    /// Lanes that have ended, or never were.
    exited: Cell<u32>,
    groups: [Cell<Group>; 32],
    open: Cell<u32>,
    /// What each lane brought to its operation.
    values: [Cell<u64>; 32],
    /// The second and third operand of `shfl`, packed.
    selectors: [Cell<u64>; 32],
    /// What each lane takes from its operation.
    results: [Cell<u64>; 32],
}

impl Warp {
    /// A warp with `lanes` lanes, all ready to start.
    pub fn reset(&mut self, lanes: u32) {
        let exist = (1u64 << lanes) as u32;
        let exist = exist.wrapping_sub(1);
        self.ready.set(exist);
        self.polling.set(0);
        self.exited.set(!exist);
        self.open.set(0);
    }

    /// Lanes that have ended, or never were.
    pub fn exited(&self) -> u32 {
        self.exited.get()
    }

    /// The result of a lane's last operation.
    pub fn result(&self, lane: u32) -> u64 {
        self.results[lane as usize].get()
    }

    /// Gives a lane its result.
    pub fn set_result(&self, lane: u32, result: u64) {
        self.results[lane as usize].set(result);
    }

    /// Gives several lanes the same result.
    pub fn set_results(&self, lanes: u32, result: u64) {
        each(lanes, |lane| self.results[lane].set(result));
    }

    /// A lane polled.
    pub fn poll(&self, lane: u32) {
        self.polling.set(self.polling.get() | 1 << lane);
    }

    /// Makes the lanes that polled ready again, and says which.
    pub fn poll_again(&self) -> u32 {
        let polling = self.polling.take();
        self.ready.set(self.ready.get() | polling);
        polling
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
    /// whether it did.
    pub fn settle(&self) -> bool {
        let found = (0..self.open.get())
            .find(|&index| self.groups[index as usize].get().kind & UNMASKED != 0);
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
        self.complete(group.kind, group.arrived);
        self.ready.set(self.ready.get() | group.arrived);
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
    fn complete(&self, kind: u32, lanes: u32) {
        let meeting = Meeting::ALL[(kind & 0xff) as usize % Meeting::ALL.len()];
        let values = &self.values;
        let fold = |start: u32, op: fn(u32, u32) -> u32| {
            let mut result = start;
            each(lanes, |lane| result = op(result, values[lane].get() as u32));
            self.set_results(lanes, u64::from(result));
        };
        let signed = |op: fn(i32, i32) -> i32, start: i32| {
            let mut result = start;
            each(lanes, |lane| result = op(result, values[lane].get() as i32));
            self.set_results(lanes, u64::from(result as u32));
        };
        let ballot = || {
            let mut ballot = 0;
            each(lanes, |lane| {
                ballot |= u32::from(values[lane].get() != 0) << lane
            });
            ballot
        };
        match meeting {
            Meeting::Sync => {}
            Meeting::ShflUp | Meeting::ShflDown | Meeting::ShflBfly | Meeting::ShflIdx => {
                self.shuffle(meeting, lanes)
            }
            Meeting::VoteAll => self.set_results(lanes, u64::from(ballot() == lanes)),
            Meeting::VoteAny => self.set_results(lanes, u64::from(ballot() != 0)),
            Meeting::VoteUni => {
                self.set_results(lanes, u64::from(ballot() == lanes || ballot() == 0))
            }
            Meeting::VoteBallot => self.set_results(lanes, u64::from(ballot())),
            Meeting::MatchAny => each(lanes, |lane| {
                let mut same = 0;
                each(lanes, |other| {
                    same |= u32::from(values[other].get() == values[lane].get()) << other
                });
                self.results[lane].set(u64::from(same));
            }),
            Meeting::MatchAll => {
                let first = values[lanes.trailing_zeros() as usize % 32].get();
                let mut same = true;
                each(lanes, |lane| same &= values[lane].get() == first);
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
            Meeting::Elect => {
                let leader = lanes.trailing_zeros();
                each(lanes, |lane| {
                    let leads = if lane as u32 == leader { PREDICATE } else { 0 };
                    self.results[lane].set(leads | u64::from(leader));
                });
            }
        }
    }

    fn shuffle(&self, meeting: Meeting, lanes: u32) {
        each(lanes, |lane| {
            let selectors = self.selectors[lane].get();
            let (b, c) = (selectors as i32 & 0x1f, (selectors >> 32) as i32);
            let (clamp, segment) = (c & 0x1f, (c >> 8) & 0x1f);
            let own = lane as i32;
            let highest = own & segment | clamp & !segment;
            let (source, inside) = match meeting {
                Meeting::ShflUp => (own - b, own - b >= highest),
                Meeting::ShflDown => (own + b, own + b <= highest),
                Meeting::ShflBfly => (own ^ b, own ^ b <= highest),
                _ => {
                    let source = own & segment | b & !segment;
                    (source, source <= highest)
                }
            };
            // A lane that takes no part has nothing to give: what the taker gets then is undefined,
            // and here its own.
            let source = if inside && lanes >> (source & 0x1f) & 1 != 0 {
                source as usize & 0x1f
            } else {
                lane
            };
            let value = self.values[source].get() & 0xffff_ffff;
            self.results[lane].set(value | if inside { PREDICATE } else { 0 });
        });
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

fn each(mut lanes: u32, mut then: impl FnMut(usize)) {
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
        let bit = 1u32 << lane;
        warp.values[lane as usize].set(value);
        warp.selectors[lane as usize].set(u64::from(c) << 32 | u64::from(b));
        if mask & bit == 0 || mask & !warp.exited() == bit {
            // Alone: or not in its own mask, which is undefined and here as if alone.
            warp.complete(kind, bit);
        } else if !warp.arrive(lane, mask, kind) {
            let after = suspend(owner, fiber);
            if after != CONTINUE {
                return status(after);
            }
        }
        warp.result(lane)
    }
}

fn status(status: Status) -> u64 {
    u64::from(status) << STATUS_SHIFT
}
