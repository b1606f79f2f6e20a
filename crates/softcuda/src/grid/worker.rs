//! A worker: what one thread needs to run blocks of a launch, kept from launch to launch.
//!
//! Units (a cluster of blocks, which is one block where there are no clusters) start in the order
//! of their linear index. A worker finishes a unit before it takes the next, unless all it has only
//! poll: they may wait for a block that has not started, so another starts beside them, as on a
//! device, where many are resident. That is also all that a cooperative launch needs.

use std::ops::Range;

use parking_lot::Mutex;

use super::block::{Block, MOST_THREADS, Outcome};
use super::cluster::Cluster;
use super::context::Mode;
use super::fiber::Fiber;
use super::launch::FaultKind;
use super::running::{Running, volume};
use super::stack::{FiberStack, Stacks, native_soft_limit};
use super::warp::{Polls, Warp};
use crate::jit::waits::ROUNDS;

/// Turns that end in nothing but polls before another unit starts beside those that poll.
const PATIENCE: u32 = 16;
/// The same of turns in which something happens, and which no unit ends: who polls may do other
/// things meanwhile.
const MOST_ROUNDS: u32 = 256;
/// The most threads that one worker keeps resident in a launch that is not cooperative.
const MOST_RESIDENT: u64 = 64 << 10;
/// The most units that a worker takes at once where blocks run as loops.
const MOST_AT_ONCE: u64 = 64;
/// The same where they go through a loop in step: the more, the longer they go through memory in
/// order.
const MOST_IN_STEP: u64 = 512;
/// The fewest threads of a grid whose blocks go in step. With fewer, turns lie near each other, and
/// where the processor's caches hold the data, passes take longer than turns.
const FEWEST_IN_STEP: u64 = 256 << 10;
/// Workers kept between launches.
const KEPT: usize = 64;
/// Units a worker keeps between launches.
const KEPT_UNITS: usize = 8;

static IDLE: Mutex<Vec<Worker>> = Mutex::new(Vec::new());

/// A block, and the fibers of its threads if it is run so.
struct Slot {
    block: Box<Block>,
    fibers: Vec<Option<Fiber>>,
    /// All its threads have ended.
    done: bool,
}

/// The blocks of a cluster.
#[derive(Default)]
struct Unit {
    /// First, so that it is dropped last of what blocks refer to. Boxed: blocks refer to it.
    cluster: Box<Cluster>,
    slots: Vec<Slot>,
    /// The launch it is prepared for, by its grid id; 0 for none.
    prepared: u64,
    /// How many rounds in turn brought nobody forward, where threads wait at `mbarrier`s.
    idle: usize,
    /// The lowest address that its threads' stack may reach, where they run on one; 0: not set.
    stack_limit: u64,
    /// Where blocks go through a loop in step: not 0 for each group of theirs that is in it.
    again: Vec<u8>,
}

/// The blocks of some units of a launch, by `%ctaid`.
struct Blocks {
    grid: [u32; 3],
    cluster: [u32; 3],
    unit: [u32; 3],
    rank: [u32; 3],
    left: u64,
}

impl Blocks {
    fn of(running: &Running<'_>, units: &Range<u64>) -> Blocks {
        let cluster = running.launch.cluster.map(|dim| dim.max(1));
        Blocks {
            grid: running.launch.grid,
            cluster,
            unit: place(running, units.start, 0),
            rank: [0; 3],
            left: (units.end - units.start) * volume(cluster),
        }
    }
}

impl Iterator for Blocks {
    type Item = [u32; 3];

    fn next(&mut self) -> Option<[u32; 3]> {
        self.left = self.left.checked_sub(1)?;
        let ctaid = std::array::from_fn(|axis| self.unit[axis] + self.rank[axis]);
        count_up(&mut self.rank, [1; 3], self.cluster);
        if self.rank == [0; 3] {
            count_up(&mut self.unit, self.cluster, self.grid);
        }
        Some(ctaid)
    }
}

/// A worker.
pub(super) struct Worker {
    stacks: Stacks,
    #[expect(
        clippy::vec_box,
        reason = "one that was just written would wait to be moved"
    )]
    spare: Vec<Box<Unit>>,
    #[expect(clippy::vec_box, reason = "as above")]
    resident: Vec<Box<Unit>>,
    /// A stack for kernels in loop mode that may need more than the thread's own.
    deep: Option<(u64, FiberStack)>,
}

// SAFETY: a worker moves between threads only when no launch uses it. Then it has no fibers, and
// its blocks' cells and pointers are only read again after `prepare` and `place` have set them.
unsafe impl Send for Worker {}

impl Worker {
    /// One that is not in use.
    pub fn take() -> Worker {
        IDLE.lock().pop().unwrap_or_else(|| Worker {
            stacks: Stacks::default(),
            spare: Vec::new(),
            resident: Vec::new(),
            deep: None,
        })
    }

    /// Gives it back.
    pub fn put(mut self) {
        self.stacks.trim();
        self.spare.truncate(KEPT_UNITS);
        let mut idle = IDLE.lock();
        if idle.len() < KEPT {
            idle.push(self);
        }
    }

    /// Runs units of the launch until none is left to start, or `limit` have been taken.
    pub fn work(&mut self, running: &Running<'_>, smid: u32, nsmid: u32, limit: u64) {
        let threads = volume(running.launch.block);
        if threads == 0 || threads > MOST_THREADS as u64 {
            let detail = format!("a block of {threads} threads");
            running.fail(FaultKind::LaunchFailure, [0; 3], None, None, detail);
        } else if running.launch.code.mode == Mode::Fibers {
            self.stacks.resize(native_stack(running));
            self.side_by_side(running, smid, nsmid, limit, 0);
        } else {
            self.on_one_stack(running, |worker, stack_limit| {
                let code = &running.launch.code;
                let together = code.reaches && volume(running.launch.cluster) > 1;
                match code.spins || together {
                    true => worker.side_by_side(running, smid, nsmid, limit, stack_limit),
                    false => worker.loops(running, smid, nsmid, limit, stack_limit),
                }
            });
        }
    }

    /// Does work on a stack that is deep enough for the kernel; it gets the lowest address that
    /// compiled code may reach.
    fn on_one_stack(&mut self, running: &Running<'_>, work: impl FnOnce(&mut Worker, u64)) {
        let wanted = native_stack(running);
        if let Some(limit) = native_soft_limit(wanted) {
            return work(self, limit);
        }
        let deep = self.deep.take().filter(|(size, _)| *size >= wanted);
        let deep = deep.map_or_else(
            || {
                let mut stacks = Stacks::default();
                stacks.resize(wanted);
                stacks.take().map(|stack| (wanted, stack))
            },
            Ok,
        );
        match deep {
            Ok((size, mut stack)) => {
                let limit_on_it = stack.soft_limit(wanted);
                corosensei::on_stack(&mut stack, || work(self, limit_on_it));
                self.deep = Some((size, stack));
            }
            Err(error) => {
                let detail = format!("no stack of {wanted} bytes: {error}");
                running.fail(FaultKind::LaunchFailure, [0; 3], None, None, detail);
            }
        }
    }

    /// Blocks as loops over their threads, or in rounds, one after the other.
    fn loops(
        &mut self,
        running: &Running<'_>,
        smid: u32,
        nsmid: u32,
        limit: u64,
        stack_limit: u64,
    ) {
        let mut unit = self.spare.pop().unwrap_or_default();
        unit.run_loops(running, smid, nsmid, limit, stack_limit);
        self.spare.push(unit);
    }

    /// Blocks whose threads may poll, or that reach each other's shared memory: as fibers, or in
    /// rounds on the stack that ends at `stack_limit`.
    fn side_by_side(
        &mut self,
        running: &Running<'_>,
        smid: u32,
        nsmid: u32,
        limit: u64,
        stack_limit: u64,
    ) {
        let launch = running.launch;
        let unit_threads = volume(launch.block) * volume(launch.cluster).max(1);
        let most = match launch.cooperative {
            true => u64::MAX,
            false => (MOST_RESIDENT / unit_threads).max(1),
        };
        let patience = if launch.cooperative { 1 } else { PATIENCE };
        let (mut taken, mut idle, mut rounds) = (0, 0, 0);
        loop {
            let more = match self.resident.is_empty() {
                true => taken < limit,
                false => {
                    let waits = idle >= patience || rounds >= MOST_ROUNDS;
                    waits && (self.resident.len() as u64) < most
                }
            };
            if more && let Some(index) = running.take(1).next() {
                let mut unit = self.spare.pop().unwrap_or_default();
                match unit.start(index, running, smid, nsmid, stack_limit) {
                    true => self.resident.push(unit),
                    false => self.spare.push(unit),
                }
                taken += 1;
                (idle, rounds) = (0, 0);
            } else if self.resident.is_empty() {
                return;
            }
            let mut progress = false;
            let mut at = 0;
            while at < self.resident.len() && !running.stopped() {
                let unit = &mut self.resident[at];
                let before = unit.events();
                if unit.round(running, &mut self.stacks) {
                    progress = true;
                    rounds = 0;
                    // In order, not swapped: earlier blocks go first.
                    self.spare.push(self.resident.remove(at));
                } else {
                    progress |= unit.events() != before;
                    at += 1;
                }
            }
            if running.stopped() {
                for mut unit in self.resident.drain(..) {
                    unit.abort(&mut self.stacks);
                    self.spare.push(unit);
                }
                return;
            }
            rounds += 1;
            if progress {
                idle = 0;
            } else {
                idle += 1;
                // Only another thread of the process can bring these forward.
                if idle > 2 && (running.left() == 0 || self.resident.len() as u64 >= most) {
                    std::thread::yield_now();
                }
            }
        }
    }
}

impl Unit {
    /// Makes it ready for units of a launch of `blocks` blocks each, whose threads get `lanes`
    /// contexts. `false`: there is no memory for it, and the launch has been stopped.
    fn prepare(
        &mut self,
        running: &Running<'_>,
        blocks: usize,
        lanes: u32,
        smid: u32,
        nsmid: u32,
    ) -> bool {
        if self.prepared == running.gridid {
            return true;
        }
        self.prepared = 0;
        self.stack_limit = 0;
        self.slots.truncate(blocks);
        self.slots.resize_with(blocks, || Slot {
            block: Block::new(),
            fibers: Vec::new(),
            done: false,
        });
        for slot in &mut self.slots {
            if slot.block.prepare(running, lanes, smid, nsmid).is_none() {
                let detail = "no memory for the shared and local memory of a block".into();
                running.fail(FaultKind::LaunchFailure, [0; 3], None, None, detail);
                return false;
            }
        }
        self.prepared = running.gridid;
        true
    }

    /// Blocks as loops or in rounds, one after the other.
    fn run_loops(
        &mut self,
        running: &Running<'_>,
        smid: u32,
        nsmid: u32,
        limit: u64,
        stack_limit: u64,
    ) {
        let lanes = match running.launch.code.mode {
            Mode::Rounds => volume(running.launch.block) as u32,
            _ => 1,
        };
        if !self.prepare(running, 1, lanes, smid, nsmid) {
            return;
        }
        self.cluster.reset(0);
        let block = &mut self.slots[0].block;
        block.on_one_stack(stack_limit);
        self.stack_limit = stack_limit;
        block.aside.allow();
        self.run_units(running, nsmid, limit);
        self.slots[0].block.put_in_place();
    }

    /// Runs units as long as there are any, or `limit` of them.
    fn run_units(&mut self, running: &Running<'_>, nsmid: u32, limit: u64) {
        let in_step = goes_in_step(running);
        let (shares, most) = match in_step {
            true => (4, MOST_IN_STEP),
            false => (16, MOST_AT_ONCE),
        };
        let at_once = running.units() / (u64::from(nsmid) * shares);
        let at_once = at_once.clamp(1, most).min(limit);
        let mut taken = 0;
        while taken < limit {
            let units = running.take(at_once);
            if units.is_empty() {
                return;
            }
            taken += at_once;
            match in_step {
                true => self.run_in_step(running, &units),
                false => self.run_in_turn(running, &units),
            }
        }
    }

    /// Runs the blocks of some units one after the other.
    fn run_in_turn(&mut self, running: &Running<'_>, units: &Range<u64>) {
        let block = &mut self.slots[0].block;
        for ctaid in Blocks::of(running, units) {
            block.place(ctaid, &*self.cluster);
            self.cluster.set_blocks([&raw const **block].into_iter());
            block.run_loop();
            if running.stopped() {
                return;
            }
        }
    }

    /// Runs the blocks of some units through a loop in step: each does a turn, then those that have
    /// more to do the next.
    fn run_in_step(&mut self, running: &Running<'_>, units: &Range<u64>) {
        let block = &mut self.slots[0].block;
        let groups = block.groups();
        let count = Blocks::of(running, units).left as usize;
        self.again.clear();
        self.again.resize(count * groups, 0);
        for pass in 0.. {
            let mut goes = false;
            let all = self.again.chunks_mut(groups);
            for (ctaid, again) in Blocks::of(running, units).zip(all) {
                if pass == 0 || again.iter().any(|is_in| *is_in != 0) {
                    block.place(ctaid, &*self.cluster);
                    self.cluster.set_blocks([&raw const **block].into_iter());
                    goes |= block.run_pass(pass, again);
                }
                if running.stopped() {
                    return;
                }
            }
            if !goes {
                return;
            }
        }
    }

    /// Makes it the unit `index` of the launch, of which no thread has started. `false`: see
    /// [`Unit::prepare`].
    fn start(
        &mut self,
        index: u64,
        running: &Running<'_>,
        smid: u32,
        nsmid: u32,
        stack_limit: u64,
    ) -> bool {
        let blocks = volume(running.launch.cluster).max(1);
        let threads = volume(running.launch.block) as u32;
        let contexts = match running.launch.code.mode {
            Mode::Loop => 1,
            _ => threads,
        };
        if !self.prepare(running, blocks as usize, contexts, smid, nsmid) {
            return false;
        }
        self.idle = 0;
        self.cluster.reset(threads * blocks as u32);
        for (rank, slot) in (0..).zip(&mut self.slots) {
            slot.block
                .place(place(running, index, rank), &*self.cluster);
            slot.done = false;
            if running.launch.code.mode == Mode::Fibers {
                slot.block.ready();
                slot.fibers.resize_with(threads as usize, || None);
            } else if self.stack_limit != stack_limit {
                slot.block.on_one_stack(stack_limit);
            }
        }
        self.stack_limit = stack_limit;
        let blocks = self.slots.iter().map(|slot| &raw const *slot.block);
        self.cluster.set_blocks(blocks);
        true
    }

    /// See [`Block::events`].
    fn events(&self) -> u64 {
        self.slots.iter().map(|slot| slot.block.events.get()).sum()
    }

    /// Gives every thread turns; says whether all have ended.
    fn round(&mut self, running: &Running<'_>, stacks: &mut Stacks) -> bool {
        let before = self.events();
        let (mut done, mut polls) = (true, Polls::None);
        for slot in &mut self.slots {
            if slot.done {
                continue;
            }
            let outcome = match running.launch.code.mode {
                Mode::Fibers => slot.block.round(&mut slot.fibers, stacks),
                _ => slot.block.run_loop(),
            };
            if running.stopped() {
                return false;
            }
            slot.done = outcome == Outcome::Done;
            done &= slot.done;
            if !slot.done {
                polls = polls.max(slot.block.polls.get());
            }
        }
        let idle = !done && self.events() == before;
        match polls {
            Polls::None if idle => self.deadlock(),
            Polls::Mbarriers if idle => {
                self.idle += 1;
                if self.idle > ROUNDS {
                    self.deadlock();
                }
            }
            _ => self.idle = 0,
        }
        done
    }

    /// No thread of the unit can ever run again.
    fn deadlock(&self) {
        if let Some(slot) = self.slots.iter().find(|slot| !slot.done) {
            slot.block.deadlock();
        }
    }

    /// Lets every thread that has started return.
    fn abort(&mut self, stacks: &mut Stacks) {
        for slot in &mut self.slots {
            slot.block.abort(&mut slot.fibers, stacks);
        }
    }
}

/// Whether the blocks of a launch go through a loop in step. None may have shared memory, which is
/// its own for as long as it runs.
fn goes_in_step(running: &Running<'_>) -> bool {
    let launch = running.launch;
    let threads = volume(launch.grid).saturating_mul(volume(launch.block));
    let has_shared = launch.static_shared > 0 || launch.dynamic_shared > 0;
    launch.code.passes
        && !has_shared
        && match cfg!(test) {
            // Tests want both.
            true => launch.grid[0] % 2 == 1,
            false => threads >= FEWEST_IN_STEP,
        }
}

/// Bytes of native stack of a thread: the kernel's own frame, which nothing else is to lack, and
/// what it asks for.
pub(super) fn native_stack(running: &Running<'_>) -> u64 {
    u64::from(running.launch.code.frame) + u64::from(running.launch.stack)
}

/// `%ctaid` of a block: the unit's index, and its rank in the unit.
fn place(running: &Running<'_>, unit: u64, rank: u64) -> [u32; 3] {
    let (grid, cluster) = (
        running.launch.grid,
        running.launch.cluster.map(|dim| dim.max(1)),
    );
    let (mut unit, mut rank, mut ctaid) = (unit, rank, [0; 3]);
    for axis in 0..3 {
        let size = u64::from(cluster[axis]);
        let clusters = divided(grid[axis].into(), size).0.max(1);
        let (of_units, of_ranks);
        (unit, of_units) = divided(unit, clusters);
        (rank, of_ranks) = divided(rank, size);
        ctaid[axis] = (of_units * size + of_ranks) as u32;
    }
    ctaid
}

/// A quotient and what is left. Most often, for the place of a block, there is nothing to divide.
#[inline]
fn divided(number: u64, by: u64) -> (u64, u64) {
    match by {
        1 => (number, 0),
        by if number < by => (0, number),
        by => (number / by, number % by),
    }
}

/// Goes to the next place, x first; after the last one comes the first.
fn count_up(at: &mut [u32; 3], step: [u32; 3], end: [u32; 3]) {
    for axis in 0..3 {
        at[axis] += step[axis];
        if at[axis] < end[axis] {
            return;
        }
        at[axis] = 0;
    }
}

impl Block {
    /// None of its threads can ever run again, and some have not ended.
    pub(super) fn deadlock(&self) {
        let detail = self.standstill();
        self.running()
            .fail(FaultKind::Deadlock, self.ctaid(), None, None, detail);
    }

    /// Why no thread can go on, for a message.
    fn standstill(&self) -> String {
        let total = self.threads().len();
        let mut parts = vec![format!("{} of {total} threads have ended", self.exited())];
        for (id, barrier) in self.barriers.iter().enumerate() {
            if self.barriers_open.get() & (1 << id) != 0 {
                parts.push(format!("{} wait at barrier {id}", barrier.waiting()));
            }
        }
        for (index, warp) in self.warps().iter().enumerate() {
            let waiting = warp.waiting();
            if !waiting.is_empty() {
                parts.push(format!("in warp {index} {waiting}"));
            }
        }
        let tests: u32 = self.warps().iter().map(Warp::at_mbarriers).sum();
        if tests > 0 {
            parts.push(format!("{tests} wait at an mbarrier"));
        }
        match self.cluster().waiting() {
            0 => {}
            waiting => parts.push(format!("{waiting} wait at the cluster's barrier")),
        }
        parts.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_up_comes_to_each_place_once() {
        let (mut at, mut seen) = ([0; 3], vec![]);
        for _ in 0..12 {
            seen.push(at);
            count_up(&mut at, [2, 1, 3], [4, 3, 6]);
        }
        assert_eq!(at, [0; 3]);
        let expected = (0..12).map(|n| [n % 2 * 2, n / 2 % 3, n / 6 * 3]);
        assert_eq!(seen, expected.collect::<Vec<_>>());
    }
}
