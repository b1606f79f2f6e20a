//! A resident block: its memory, its threads, and what they wait for.
//!
//! One worker runs a block from its first thread to its last, so everything here is plain cells.
//! Compiled code and the runtime functions it calls run inside [`Block::round`], on other stacks of
//! the same thread: they reach the block through [`BlockContext::runtime`], by shared reference, as
//! the scheduler does. Fibers themselves are the scheduler's alone.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering};

use super::barrier::Barrier;
use super::cluster::Cluster;
use super::context::{
    Asked, BlockContext, CONTINUE, EXITED, FAULTED, Floats, Mode, SUSPENDED, Site, Status, Sums,
    ThreadContext, Turn,
};
use super::fiber::{Fiber, Seat};
use super::launch::FaultKind;
use super::matrix::group::Shared;
use super::poll::{BUDGET, budget_of_all};
use super::rounds::{AT_START, FIRSTS_MOVED, MOVED, START};
use super::running::Running;
use super::scratch::Scratch;
use super::stack::Stacks;
use super::sums::Aside;
use super::warp::{Polls, Tile, Warp, each};
use super::worker::native_stack;
use crate::jit::runtime::access::Accesses;
use crate::jit::spmd::WIDTH;

/// The most threads a block has.
pub(crate) const MOST_THREADS: usize = 1024;
/// The most warps a block has.
pub(super) const MOST_WARPS: usize = MOST_THREADS / 32;

/// A thread of a resident block.
pub(super) struct Thread {
    context: UnsafeCell<ThreadContext>,
    /// Where its fiber and the scheduler find each other.
    seat: Seat,
    /// The thread has arrived at the cluster's barrier of this phase and not waited yet.
    pub cluster_phase: Cell<Option<u32>>,
}

/// How far apart the threads of a block lie.
pub(super) const THREAD_STRIDE: usize = size_of::<Thread>();

impl Thread {
    fn new() -> Thread {
        Thread {
            context: UnsafeCell::new(ThreadContext {
                tid: [0; 3],
                linear: 0,
                local_base: std::ptr::null_mut(),
                local_size: 0,
                local_top: 0,
                stack_limit: 0,
                polls: 0,
                status: 0,
                asked: Asked::NOTHING,
                fiber: std::ptr::null_mut(),
                block: std::ptr::null_mut(),
            }),
            seat: Seat::new(),
            cluster_phase: Cell::new(None),
        }
    }
}

/// What a block's turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All its threads have ended.
    Done,
    /// All threads that have not ended wait for each other, or for another block of their cluster,
    /// or poll: see [`Block::polls`].
    Stands,
}

/// The state of a block.
pub(crate) struct Block {
    context: UnsafeCell<BlockContext>,
    running: Cell<*const Running<'static>>,
    /// The cluster it is part of.
    cluster: Cell<*const Cluster>,
    threads: Vec<Thread>,
    warps: Vec<Warp>,
    pub(super) barriers: [Barrier; 16],
    /// A bit for each barrier that threads have arrived at.
    pub(super) barriers_open: Cell<u16>,
    exited: Cell<u32>,
    /// Its run is over.
    ended: Cell<bool>,
    /// Counts everything that brings the block forward: a thread's start or end, or its arrival
    /// anywhere but at a poll.
    pub(super) events: Cell<u64>,
    /// Turns since its threads began, or polled last where they had no turn left; in rounds.
    pub(super) turns: Cell<u32>,
    /// What its threads polled where they had no turn left.
    pub(super) polls: Cell<Polls>,
    /// A barrier has completed since the last turn, in rounds.
    pub(super) barrier_over: Cell<bool>,
    /// How long each thread has slept, in nanoseconds; empty while none has.
    slept: RefCell<Vec<u64>>,
    shared: Scratch,
    local: Scratch,
    tiles: Scratch,
    sites: Vec<Site>,
    arrays: Vec<u32>,
    pub(super) aside: Aside,
}

impl Block {
    /// A block for no launch yet.
    pub fn new() -> Box<Block> {
        Box::new(Block {
            context: UnsafeCell::new(BlockContext {
                ctaid: [0; 3],
                ntid: [1; 3],
                nctaid: [1; 3],
                cluster: [1; 3],
                threads: 0,
                smid: 0,
                nsmid: 1,
                dynamic_shared: 0,
                gridid: 0,
                params: std::ptr::null(),
                params_size: 0,
                shared_base: std::ptr::null_mut(),
                shared_size: 0,
                sites: std::ptr::null_mut(),
                arrays: std::ptr::null(),
                sums: Sums::NONE,
                accesses: Accesses::NONE,
                workspace: 0,
                pass: 0,
                again: std::ptr::null_mut(),
                goes: 0,
                floats: Floats::default(),
                turn: Turn::NONE,
                polls: 0,
                resumes: 0,
                start: MOVED,
                tiles: std::ptr::null_mut(),
                stop: std::ptr::null(),
                runtime: std::ptr::null_mut(),
            }),
            running: Cell::new(std::ptr::null()),
            cluster: Cell::new(std::ptr::null()),
            threads: Vec::new(),
            warps: Vec::new(),
            barriers: std::array::from_fn(|_| Barrier::default()),
            barriers_open: Cell::new(0),
            exited: Cell::new(0),
            ended: Cell::new(false),
            events: Cell::new(0),
            turns: Cell::new(0),
            polls: Cell::new(Polls::None),
            barrier_over: Cell::new(false),
            slept: RefCell::default(),
            shared: Scratch::new(),
            local: Scratch::new(),
            tiles: Scratch::new(),
            sites: Vec::new(),
            arrays: Vec::new(),
            aside: Aside::default(),
        })
    }

    /// The block that runs with this context.
    pub fn of<'a>(context: *mut BlockContext) -> &'a Block {
        // SAFETY: compiled code passes on the context that the grid gave it, whose `runtime` is its
        // block; the block stays where it is, and is only referred to by shared references, as long
        // as compiled code runs.
        unsafe { &*(*context).runtime.cast::<Block>() }
    }

    /// The launch it is part of.
    pub fn running(&self) -> &Running<'_> {
        // SAFETY: set by `prepare` to the launch that runs the block; it outlives every block's
        // run.
        unsafe { &*self.running.get() }
    }

    /// The cluster it is part of.
    pub(super) fn cluster(&self) -> &Cluster {
        // SAFETY: set by `place` to the cluster's state, which stays where it is while its blocks
        // run.
        unsafe { &*self.cluster.get() }
    }

    /// Where its shared memory begins, and its size.
    pub(super) fn shared(&self) -> (u64, u64) {
        let context = self.context.get();
        // SAFETY: `prepare` has written it, and compiled code only reads it.
        unsafe { ((*context).shared_base as u64, (*context).shared_size) }
    }

    /// `%cluster_ctarank`
    pub(super) fn rank(&self) -> u32 {
        // SAFETY: as in `shared`.
        let (at, cluster) = unsafe { ((*self.context.get()).ctaid, (*self.context.get()).cluster) };
        let within = |axis: usize| at[axis] % cluster[axis].max(1);
        (within(2) * cluster[1].max(1) + within(1)) * cluster[0].max(1) + within(0)
    }

    /// Its threads have all ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// `%ctaid`
    pub fn ctaid(&self) -> [u32; 3] {
        // SAFETY: only read by compiled code while it runs, and written by `place` before.
        unsafe { (*self.context.get()).ctaid }
    }

    /// Its threads.
    pub(super) fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Its warps.
    pub(super) fn warps(&self) -> &[Warp] {
        &self.warps
    }

    /// A thread sleeps for so many nanoseconds; how long it has in all, this time included.
    pub(super) fn slept(&self, linear: u32, nanoseconds: u64) -> u64 {
        let mut slept = self.slept.borrow_mut();
        let index = linear as usize;
        if slept.len() <= index {
            slept.resize(index + 1, 0);
        }
        slept[index] += nanoseconds;
        slept[index]
    }

    /// Its run is over: no other block of the cluster may reach its shared memory any more.
    fn end(&self) {
        self.ended.set(true);
        let (base, size) = self.shared();
        self.cluster().forget_range(base, size);
    }

    /// What its access sites know.
    pub(super) fn sites(&self) -> &[Site] {
        // SAFETY: the context has as many sites, and compiled code of the block does not run on
        // while the grid looks at them.
        unsafe { std::slice::from_raw_parts((*self.context.get()).sites, self.sites.len()) }
    }

    /// What its threads add to a copy of.
    pub(super) fn sums(&self) -> Sums {
        // SAFETY: as of the sites.
        unsafe { (*self.context.get()).sums }
    }

    pub(super) fn set_sums(&self, sums: Sums) {
        // SAFETY: as of the sites.
        unsafe { (*self.context.get()).sums = sums };
    }

    /// The next access to this range is looked up again.
    pub(super) fn forget_range(&self, base: u64, size: u64) {
        // SAFETY: the context has as many sites, and no compiled code of the block runs now.
        let sites = unsafe {
            std::slice::from_raw_parts_mut((*self.context.get()).sites, self.sites.len())
        };
        for site in sites {
            if site.base.wrapping_sub(base) < size {
                *site = Site::default();
            }
        }
    }

    /// How many of its threads have ended.
    pub(super) fn exited(&self) -> u32 {
        self.exited.get()
    }

    /// Makes it ready for blocks of a launch. `lanes` is how many threads need a context of their
    /// own: all of them, or one that stands for each in turn. `None`: there is no memory for it.
    pub(super) fn prepare(
        &mut self,
        running: &Running<'_>,
        lanes: u32,
        smid: u32,
        nsmid: u32,
    ) -> Option<()> {
        let launch = running.launch;
        let [x, y, _] = launch.block;
        // Frames at one offset from a power of two would share cache sets.
        let stride = (launch.local as usize).checked_next_multiple_of(64)? + 64;
        let local = self.local.reserve(stride.checked_mul(lanes as usize)?)?;
        let shared_size = u64::from(launch.static_shared) + u64::from(launch.dynamic_shared);
        let shared_base = self.shared.reserve(usize::try_from(shared_size).ok()?)?;
        let warps = lanes.div_ceil(32) as usize;
        let tile = Tile::stride(launch.code.kept)?;
        let tiles = self.tiles.reserve(tile.checked_mul(warps)?)?;
        self.running.set(std::ptr::from_ref(running).cast());
        self.threads.truncate(lanes as usize);
        self.threads.resize_with(lanes as usize, Thread::new);
        self.warps.resize_with(warps, Warp::default);
        let tid = |linear: u32| [linear % x, linear / x % y, linear / x / y];
        for (index, warp) in self.warps.iter_mut().enumerate() {
            let first = 32 * index as u32;
            // SAFETY: the buffer has `tile` bytes for each warp, aligned as a tile must be; that of
            // shared memory has its bytes until the block is prepared anew.
            unsafe {
                let at = tiles.add(tile * index).cast();
                warp.set_tile(at, |lane| tid(first + lane));
                warp.set_place(index as u32, Shared::new(shared_base, shared_size as usize));
            }
        }
        for (linear, thread) in (0..).zip(&mut self.threads) {
            let context = thread.context.get_mut();
            context.linear = linear;
            context.tid = tid(linear);
            // SAFETY: the buffer has `stride` bytes for each thread.
            context.local_base = unsafe { local.add(stride * linear as usize) };
            context.local_size = u64::from(launch.local);
            context.block = self.context.get();
        }
        self.sites.clear();
        self.sites
            .resize(launch.code.sites as usize, Site::default());
        self.aside.forbid();
        // SAFETY: the launch holds its kernel's module.
        unsafe {
            launch
                .code
                .arrays
                .count(&launch.params, launch.device, &mut self.arrays)
        };
        let runtime = std::ptr::from_mut(self).cast::<c_void>();
        let context = self.context.get_mut();
        *context = BlockContext {
            ctaid: [0; 3],
            ntid: launch.block,
            nctaid: launch.grid,
            cluster: launch.cluster,
            threads: launch.block.iter().product(),
            smid,
            nsmid,
            dynamic_shared: launch.dynamic_shared,
            gridid: running.gridid,
            params: launch.params.as_ptr(),
            params_size: launch.params.len() as u64,
            shared_base,
            shared_size,
            sites: self.sites.as_mut_ptr(),
            arrays: self.arrays.as_ptr(),
            sums: Sums::NONE,
            accesses: launch.code.accesses,
            workspace: running.workspace,
            pass: 0,
            again: std::ptr::null_mut(),
            goes: 0,
            floats: Floats::default(),
            turn: Turn::NONE,
            polls: 0,
            resumes: 0,
            start: MOVED,
            tiles: tiles.cast(),
            stop: running.stop_flag(),
            runtime,
        };
        Some(())
    }

    /// Makes it the block `ctaid` of the launch it is prepared for, of which no thread has started.
    pub(super) fn place(&mut self, ctaid: [u32; 3], cluster: *const Cluster) {
        let runtime = std::ptr::from_mut(self).cast::<c_void>();
        let context = self.context.get_mut();
        context.ctaid = ctaid;
        context.runtime = runtime;
        self.cluster.set(cluster);
        self.exited.set(0);
        self.ended.set(false);
        self.events.set(0);
        self.turns.set(0);
        self.slept.get_mut().clear();
        context.turn = Turn::NONE;
        context.polls = budget_of_all(context.threads);
        context.resumes = 0;
        if cfg!(test) {
            self.fill_shared();
        }
        if self.running().launch.code.mode == Mode::Rounds {
            if cfg!(test) {
                self.fill_tiles();
            }
            // Compiled code sets what a context of it needs.
            match std::mem::replace(&mut self.context.get_mut().start, AT_START) {
                AT_START => {}
                FIRSTS_MOVED => self.warps.iter().for_each(|warp| warp.stand_at(START)),
                _ => self.reset_waits(),
            }
            return;
        }
        for thread in &mut self.threads {
            let context = thread.context.get_mut();
            context.local_top = 0;
            context.polls = BUDGET;
        }
    }

    /// In tests, shared memory holds something else for each block until it is written, so that
    /// kernels that read it before do not give the same by chance.
    fn fill_shared(&mut self) {
        static BLOCKS: AtomicU8 = AtomicU8::new(0);
        let byte = BLOCKS.fetch_add(0x35, Ordering::Relaxed);
        let (base, size) = self.shared();
        // SAFETY: `prepare` has reserved so many bytes, and no thread of the block has started.
        unsafe { (base as *mut u8).write_bytes(byte, size as usize) };
    }

    /// In tests, what threads keep is no number that another block may have left.
    fn fill_tiles(&mut self) {
        let kept = self.running().launch.code.kept as usize;
        for warp in &self.warps {
            // SAFETY: `prepare` has made the tile, and no thread has started.
            unsafe { warp.fill_tile(32 * kept, 0xee) };
        }
    }

    /// Every thread is ready to start, and nobody waits.
    fn reset_waits(&mut self) {
        let mut left = self.threads.len() as u32;
        for warp in &mut self.warps {
            warp.reset(left.min(32));
            left -= left.min(32);
        }
        if self.barriers_open.get() != 0 {
            self.barriers
                .iter_mut()
                .for_each(|barrier| *barrier = Barrier::default());
            self.barriers_open.set(0);
        }
    }

    /// Makes every thread ready to start as a fiber.
    pub(super) fn ready(&mut self) {
        self.reset_waits();
        self.context.get_mut().start = MOVED;
        for thread in &mut self.threads {
            thread.cluster_phase.set(None);
            let fiber = std::ptr::from_ref(thread).cast_mut().cast();
            thread.context.get_mut().fiber = fiber;
        }
    }

    /// Makes its threads ready to run on the current stack, one after the other.
    pub(super) fn on_one_stack(&mut self, stack_limit: u64) {
        for thread in &mut self.threads {
            let context = thread.context.get_mut();
            context.stack_limit = stack_limit;
            context.fiber = std::ptr::null_mut();
        }
    }

    /// Runs the whole block on the current stack, as a loop over its threads or in rounds.
    pub(super) fn run_loop(&self) -> Outcome {
        let status = self.enter();
        if status == SUSPENDED {
            return Outcome::Stands;
        }
        self.check(status, None);
        self.end();
        Outcome::Done
    }

    /// Runs the block through one turn of its loop, where the blocks of a range do so in step:
    /// those of its [groups](Self::groups) that are in it, and notes which are to go again. Whether
    /// any is.
    pub(super) fn run_pass(&self, pass: u64, again: &mut [u8]) -> bool {
        assert_eq!(again.len(), self.groups(), "a byte for each group");
        let context = self.context.get();
        // SAFETY: no compiled code of the block runs now, and nothing else refers to the context.
        unsafe {
            (*context).pass = pass;
            (*context).again = again.as_mut_ptr();
            (*context).goes = 0;
        }
        let status = self.enter();
        self.check(status, None);
        // SAFETY: as above.
        let goes = unsafe { (*context).goes != 0 };
        let goes = goes && !self.running().stopped();
        if !goes {
            self.end();
        }
        goes
    }

    /// Groups of its threads, the last of which may have fewer.
    pub(super) fn groups(&self) -> usize {
        // SAFETY: `prepare` has written it, and compiled code only reads it.
        let threads = unsafe { (*self.context.get()).threads };
        (threads as usize).div_ceil(WIDTH)
    }

    fn enter(&self) -> Status {
        let thread = self.threads[0].context.get();
        // SAFETY: nothing else refers to the contexts now; the entry is compiled code for this kind
        // of run, which keeps its accesses inside what the contexts describe.
        unsafe { (self.running().launch.code.entry)(thread, self.context.get()) }
    }

    /// A thread has returned.
    fn check(&self, status: Status, thread: Option<u32>) {
        match status {
            CONTINUE | EXITED => {}
            // Whoever made the thread return this has recorded why, first.
            FAULTED if self.running().stopped() => {}
            _ => self.running().fail(
                FaultKind::LaunchFailure,
                self.ctaid(),
                thread.map(|linear| self.tid(linear)),
                None,
                format!("a thread ended with status {status} and no fault"),
            ),
        }
    }

    /// The context of a thread.
    pub(super) fn context_of(&self, linear: u32) -> *mut ThreadContext {
        self.threads[linear as usize].context.get()
    }

    /// `%tid` of a thread.
    fn tid(&self, linear: u32) -> [u32; 3] {
        // SAFETY: compiled code never writes it in fiber mode, and `prepare` has no other reference
        // while threads run.
        unsafe { (*self.threads[linear as usize].context.get()).tid }
    }

    /// Gives every thread turns until each has ended, waits, or polls. `fibers` has a place for
    /// each thread.
    pub(super) fn round(&self, fibers: &mut [Option<Fiber>], stacks: &mut Stacks) -> Outcome {
        loop {
            let mut ran = false;
            for index in 0..self.warps.len() {
                ran |= self.run_warp(index, fibers, stacks);
                if self.running().stopped() {
                    return Outcome::Stands;
                }
            }
            if !ran {
                break;
            }
        }
        if self.exited.get() as usize == self.threads.len() {
            self.end();
            return Outcome::Done;
        }
        self.poll_again();
        Outcome::Stands
    }

    /// Gives those that poll another turn; says what they poll.
    pub(super) fn poll_again(&self) -> Polls {
        let again = self.warps.iter().map(Warp::poll_again);
        let polls = again.max().unwrap_or(Polls::None);
        self.polls.set(polls);
        polls
    }

    /// Gives the threads of a warp turns until none is ready; says whether any was.
    fn run_warp(&self, index: usize, fibers: &mut [Option<Fiber>], stacks: &mut Stacks) -> bool {
        let warp = &self.warps[index];
        let mut ran = false;
        loop {
            let mut ready = warp.ready.get();
            if ready == 0 {
                if warp.settle() {
                    continue;
                }
                return ran;
            }
            ran = true;
            while ready != 0 {
                let lane = ready.trailing_zeros();
                ready &= ready - 1;
                warp.ready.set(warp.ready.get() & !(1 << lane));
                let linear = index as u32 * 32 + lane;
                self.turn(linear, &mut fibers[linear as usize], stacks);
            }
            if self.running().stopped() {
                return ran;
            }
        }
    }

    /// Gives a thread a turn: it runs until it waits, polls or ends.
    fn turn(&self, linear: u32, fiber: &mut Option<Fiber>, stacks: &mut Stacks) {
        let running = match fiber {
            Some(fiber) => fiber,
            None => match self.start(linear, stacks) {
                Some(started) => fiber.insert(started),
                None => return,
            },
        };
        let seat = &self.threads[linear as usize].seat;
        if let Some(status) = running.resume(seat) {
            if let Some(fiber) = fiber.take() {
                stacks.put(fiber.into_stack());
            }
            self.check(status, Some(linear));
            self.exit(linear);
        }
    }

    /// The fiber of a thread, before its first turn.
    fn start(&self, linear: u32, stacks: &mut Stacks) -> Option<Fiber> {
        let stack = match stacks.take() {
            Ok(stack) => stack,
            Err(error) => {
                let detail = format!("no stack for a thread: {error}");
                self.running().fail(
                    FaultKind::LaunchFailure,
                    self.ctaid(),
                    Some(self.tid(linear)),
                    None,
                    detail,
                );
                return None;
            }
        };
        self.events.set(self.events.get() + 1);
        let entry = self.running().launch.code.entry;
        let thread = &self.threads[linear as usize];
        let limit = stack.soft_limit(native_stack(self.running()));
        // SAFETY: the thread has not started, so nothing else refers to its context.
        unsafe { (*thread.context.get()).stack_limit = limit };
        let contexts = (thread.context.get(), self.context.get());
        // SAFETY: the entry is compiled code for one thread, which keeps its accesses inside what
        // the contexts describe. The thread and the block stay where they are until the fiber has
        // ended: the scheduler resumes every fiber to its end before the block is used again.
        Some(unsafe { Fiber::start(stack, &thread.seat, entry, contexts.0, contexts.1) })
    }

    /// A thread has ended: those of its block that wait for it wait no longer.
    pub(super) fn leave(&self, linear: u32) {
        self.exited.set(self.exited.get() + 1);
        let warp = &self.warps[linear as usize / 32];
        warp.exit(linear % 32);
        if self.barriers_open.get() != 0 {
            self.barriers_without(linear);
        }
    }

    /// Lanes of a warp have ended, in ascending order.
    pub(super) fn leave_together(&self, index: usize, lanes: u32) {
        let warp = &self.warps[index];
        if self.barriers_open.get() == 0 && warp.nobody_waits() {
            self.exited.set(self.exited.get() + lanes.count_ones());
            return warp.forget(lanes);
        }
        each(lanes, |lane| self.leave((index * 32 + lane) as u32));
    }

    /// A fiber has ended: those that wait for it wait no longer.
    fn exit(&self, linear: u32) {
        self.events.set(self.events.get() + 1);
        self.leave(linear);
        if let Some(phase) = self.threads[linear as usize].cluster_phase.take() {
            self.cluster().forget(phase);
        }
        self.cluster().exit();
    }

    /// Lets every thread that has started return, after the launch was stopped: each wait ends at
    /// once with `FAULTED`.
    pub(super) fn abort(&self, fibers: &mut [Option<Fiber>], stacks: &mut Stacks) {
        for (fiber, thread) in fibers.iter_mut().zip(&self.threads) {
            while let Some(running) = fiber {
                if running.resume(&thread.seat).is_some()
                    && let Some(fiber) = fiber.take()
                {
                    stacks.put(fiber.into_stack());
                }
            }
        }
    }
}

/// The thread that runs with this context; `None` in loop mode.
pub(super) fn thread_of<'a>(context: *mut ThreadContext) -> Option<&'a Thread> {
    // SAFETY: compiled code passes on the context that the grid gave it, whose `fiber` is its
    // thread or null; the thread stays where it is as long as compiled code runs.
    unsafe { (*context).fiber.cast::<Thread>().as_ref() }
}

/// The block's threads have contexts of their own.
pub(crate) fn has_contexts(context: *mut BlockContext) -> bool {
    Block::of(context).threads().len() > 1
}

/// The number of the thread that runs with this context.
pub(super) fn linear_of(context: *mut ThreadContext) -> u32 {
    // SAFETY: compiled code passes on the context that the grid gave it.
    unsafe { (*context).linear }
}

/// Gives up the running thread's turn. It has put itself where somebody makes it ready again. The
/// answer is `CONTINUE`, or `FAULTED` when the launch was stopped meanwhile.
pub(super) fn suspend(block: &Block, thread: &Thread) -> Status {
    // SAFETY: only the running fiber asks, for its own thread.
    unsafe { thread.seat.suspend() };
    if block.running().stopped() {
        FAULTED
    } else {
        CONTINUE
    }
}
