//! A queue of steps, run in order, one thread at a time.
//!
//! | state | means | who moves it on |
//! |---|---|---|
//! | idle | nothing to do | whoever pushes |
//! | ready | in the pool's list | a worker, or a thread that synchronizes with the queue and takes it first |
//! | running | a thread runs its steps | that thread |
//! | blocked | its first step waits for a marker | whoever fires the marker |
//!
//! A ready queue that a synchronizing thread took leaves its entry in the pool's list: the worker
//! that finds it sees that the queue is not ready and lets it be.
//!
//! A marker inside a step fires at the latest when the step ends or is dropped.
//!
//! Lock order: a queue's lock, then a marker's. A marker fires with no lock of a queue held.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::host::forbid_calls;
use super::{Failure, Fate, pool};

/// Something a queue does.
pub(crate) enum Step {
    /// Work of the device: not run once the context has failed, which an error of its own makes it
    /// do.
    Device(Box<dyn FnOnce() -> Result<(), Failure> + Send>),
    /// As `Device`, and over so soon that the thread which pushes it into an idle queue runs it.
    Brief(Box<dyn FnOnce() -> Result<(), Failure> + Send>),
    /// As `Device`, on a thread of the engine: it calls host functions among other things.
    Calling(Box<dyn FnOnce() -> Result<(), Failure> + Send>),
    /// A host function: runs on a thread of the engine, not at all once the context has failed.
    Host(Box<dyn FnOnce() + Send>),
    /// A callback: runs on a thread of the engine, and is told how the context stands.
    Callback(Box<dyn FnOnce(Option<Failure>) + Send>),
    /// Fires a marker.
    Signal(Arc<Marker>),
    /// Waits for a marker, of this or another queue.
    Wait(Arc<Marker>),
}

/// How a queue is tied to the legacy default stream of its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It is the legacy default stream.
    Legacy,
    /// Its work and the legacy stream's wait for each other.
    Blocking,
    /// It has nothing to do with the legacy stream.
    NonBlocking,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    Idle,
    Ready,
    Running,
    Blocked,
}

/// Who runs steps, and which.
#[derive(Clone, Copy)]
enum Runner {
    /// A thread of the pool: all.
    Worker,
    /// A thread that synchronizes: those up to a ticket, but no host functions, which expect a
    /// driver's thread.
    Helper(u64),
    /// A thread that pushed a step: only what takes no time.
    Pusher,
}

struct State {
    steps: VecDeque<Step>,
    run: Run,
}

/// A queue of steps.
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Steps ever pushed: a step's ticket is their number with it. Written under the lock.
    pushed: AtomicU64,
    /// Steps that ended. Written by the thread that runs the queue.
    done: AtomicU64,
    /// Threads that sleep on `progress`.
    sleepers: AtomicU32,
    progress: Condvar,
    lane: usize,
    role: Role,
    fate: Arc<dyn Fate>,
}

/// A place in a queue, reached when all steps before it have ended, or inside one of its steps.
pub(crate) struct Marker {
    place: Place,
    fired: AtomicBool,
    /// Nanoseconds after [`epoch`].
    at: AtomicU64,
    waiters: Mutex<Vec<Arc<Queue>>>,
}

/// Where a marker is.
enum Place {
    /// A step of its own.
    Step(Arc<Queue>, u64),
    /// Inside a step; threads that wait for it sleep on this, with the lock of its waiters.
    Inside(Condvar),
}

/// How long a synchronizing thread spins before it sleeps.
const SPINS: u32 = 400;

/// The zero of [`Marker::at`].
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

impl Queue {
    /// An empty queue. `lane` is its priority, 0 the highest.
    pub fn new(role: Role, lane: usize, fate: Arc<dyn Fate>) -> Arc<Queue> {
        epoch();
        Arc::new(Queue {
            state: Mutex::new(State {
                steps: VecDeque::new(),
                run: Run::Idle,
            }),
            pushed: AtomicU64::new(0),
            done: AtomicU64::new(0),
            sleepers: AtomicU32::new(0),
            progress: Condvar::new(),
            lane,
            role,
            fate,
        })
    }

    /// How it is tied to the legacy stream.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The ticket of the step pushed last.
    pub fn last(&self) -> u64 {
        self.pushed.load(SeqCst)
    }

    /// All steps have ended.
    pub fn is_idle(&self) -> bool {
        self.done.load(SeqCst) >= self.last()
    }

    /// Appends a step and gives its ticket.
    pub fn push(self: &Arc<Self>, step: Step) -> u64 {
        self.append(|_| step)
    }

    /// Appends a signal, or gives the one that stands last already: reached when all steps so far
    /// have ended.
    pub fn mark(self: &Arc<Self>) -> Arc<Marker> {
        if let Some(Step::Signal(last)) = self.state.lock().steps.back() {
            return last.clone();
        }
        self.record()
    }

    /// Appends a signal of its own, whose time is when all steps so far have ended.
    pub fn record(self: &Arc<Self>) -> Arc<Marker> {
        let mut made = None;
        self.append(|ticket| {
            let marker = Arc::new(Marker::at(Place::Step(self.clone(), ticket)));
            made = Some(marker.clone());
            Step::Signal(marker)
        });
        made.expect("append calls its argument")
    }

    fn append(self: &Arc<Self>, step: impl FnOnce(u64) -> Step) -> u64 {
        let mut state = self.state.lock();
        let ticket = self.last() + 1;
        let step = step(ticket);
        let cheap = match &step {
            Step::Signal(_) | Step::Brief(_) => true,
            Step::Wait(marker) => marker.fired(),
            _ => false,
        };
        state.steps.push_back(step);
        self.pushed.store(ticket, SeqCst);
        if state.run == Run::Idle {
            if cheap {
                state.run = Run::Running;
                drop(state);
                self.run(Runner::Pusher);
            } else {
                state.run = Run::Ready;
                drop(state);
                pool::schedule(self.clone(), self.lane);
            }
        }
        ticket
    }

    /// Waits until the step of this ticket has ended; runs steps itself when no thread has taken
    /// the queue yet.
    pub fn synchronize(self: &Arc<Self>, ticket: u64) {
        let ended = || self.done.load(SeqCst) >= ticket;
        if ended() {
            return;
        }
        loop {
            let mut state = self.state.lock();
            let helps = state.run == Run::Ready
                && !matches!(
                    state.steps.front(),
                    Some(Step::Host(_) | Step::Callback(_) | Step::Calling(_))
                );
            if !helps {
                break;
            }
            state.run = Run::Running;
            drop(state);
            self.run(Runner::Helper(ticket));
            if ended() {
                return;
            }
        }
        for _ in 0..SPINS {
            if ended() {
                return;
            }
            std::hint::spin_loop();
        }
        let mut state = self.state.lock();
        self.sleepers.fetch_add(1, SeqCst);
        while !ended() {
            self.progress.wait(&mut state);
        }
        self.sleepers.fetch_sub(1, SeqCst);
    }

    /// Called by a worker that found the queue in the pool's list.
    pub(super) fn run_as_worker(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.run == Run::Ready {
            state.run = Run::Running;
            drop(state);
            self.run(Runner::Worker);
        }
    }

    /// Called by a marker that has fired.
    fn unblock(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.run == Run::Blocked {
            state.run = Run::Ready;
            drop(state);
            pool::schedule(self.clone(), self.lane);
        }
    }

    /// Runs steps as far as `runner` may. The caller has set the state to running, and is the only
    /// one who did.
    fn run(self: &Arc<Self>, runner: Runner) {
        loop {
            let mut state = self.state.lock();
            let may = match (runner, state.steps.front()) {
                (_, None) => {
                    state.run = Run::Idle;
                    return;
                }
                (Runner::Helper(ticket), _) if self.done.load(SeqCst) >= ticket => false,
                (_, Some(Step::Wait(marker))) => {
                    if self.fate.failure().is_none() && !marker.reached_or_wakes(self) {
                        state.run = Run::Blocked;
                        return;
                    }
                    true
                }
                (Runner::Worker, _) | (_, Some(Step::Signal(_) | Step::Brief(_))) => true,
                (Runner::Helper(_), Some(Step::Device(_))) => true,
                _ => false,
            };
            if !may {
                state.run = Run::Ready;
                drop(state);
                pool::schedule(self.clone(), self.lane);
                return;
            }
            let step = state.steps.pop_front().expect("the front was looked at");
            drop(state);
            self.perform(step);
            self.done.fetch_add(1, SeqCst);
            if self.sleepers.load(SeqCst) > 0 {
                // The lock makes sure that a sleeper which saw the old count is asleep by now.
                drop(self.state.lock());
                self.progress.notify_all();
            }
        }
    }

    fn perform(&self, step: Step) {
        match step {
            Step::Wait(_) => {}
            Step::Signal(marker) => marker.fire(),
            Step::Device(work) | Step::Brief(work) | Step::Calling(work) => {
                if self.fate.failure().is_none() {
                    let result = catch_unwind(AssertUnwindSafe(work));
                    if let Err(error) = result.unwrap_or(Err(Failure::PANICKED)) {
                        self.fate.fail(error);
                    }
                }
            }
            Step::Host(function) => {
                if self.fate.failure().is_none() {
                    // A panic that reaches us has been reported by its hook; the stream goes on.
                    let _ = catch_unwind(AssertUnwindSafe(|| forbid_calls(function)));
                }
            }
            Step::Callback(function) => {
                let failure = self.fate.failure();
                let _ = catch_unwind(AssertUnwindSafe(|| forbid_calls(|| function(failure))));
            }
        }
    }
}

impl Marker {
    fn at(place: Place) -> Marker {
        Marker {
            place,
            fired: AtomicBool::new(false),
            at: AtomicU64::new(0),
            waiters: Mutex::new(Vec::new()),
        }
    }

    /// A marker inside a step, which [fires](Inside) it before it ends. Nobody may wait for it
    /// before the step is in its queue.
    pub fn inside() -> Inside {
        Inside(Arc::new(Marker::at(Place::Inside(Condvar::new()))))
    }

    /// It has been reached.
    pub fn fired(&self) -> bool {
        self.fired.load(SeqCst)
    }

    /// When it was reached, in nanoseconds since an arbitrary moment; 0 before.
    pub fn nanoseconds(&self) -> u64 {
        self.at.load(SeqCst)
    }

    /// Waits until it is reached.
    pub fn synchronize(&self) {
        match &self.place {
            _ if self.fired() => {}
            Place::Step(queue, ticket) => queue.synchronize(*ticket),
            Place::Inside(reached) => {
                let mut waiters = self.waiters.lock();
                while !self.fired() {
                    reached.wait(&mut waiters);
                }
            }
        }
    }

    /// True when it is reached; otherwise `queue` will be unblocked when it is.
    fn reached_or_wakes(&self, queue: &Arc<Queue>) -> bool {
        if self.fired() {
            return true;
        }
        let mut waiters = self.waiters.lock();
        // Checked again: it fires under this lock.
        if self.fired() {
            return true;
        }
        waiters.push(queue.clone());
        false
    }

    fn fire(&self) {
        let waiters = {
            let mut waiters = self.waiters.lock();
            if self.fired() {
                return;
            }
            let at = epoch().elapsed().as_nanos() as u64;
            self.at.store(at.max(1), SeqCst);
            self.fired.store(true, SeqCst);
            if let Place::Inside(reached) = &self.place {
                reached.notify_all();
            }
            std::mem::take(&mut *waiters)
        };
        for queue in waiters {
            queue.unblock();
        }
    }
}

/// The duty to fire a marker inside a step: done when this is dropped, run or not.
pub(crate) struct Inside(Arc<Marker>);

impl Inside {
    /// The marker.
    pub fn marker(&self) -> &Arc<Marker> {
        &self.0
    }

    /// It is reached.
    pub fn fire(&self) {
        self.0.fire();
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fire();
    }
}
