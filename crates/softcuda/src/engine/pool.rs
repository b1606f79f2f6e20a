//! The threads that run queues, and help where a queue's step can use more than one.
//!
//! A step may wait for another queue's step (a kernel that spins on a flag, a host function that
//! waits for another), so the pool starts a thread whenever a queue is ready and no thread is idle.
//! Idle threads are kept.
//!
//! Invariant: under the lock, ready entries beyond the number of idle threads have each caused a
//! new thread, up to [`MOST`]; so an entry is picked up without waiting for a step to end.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};

use super::queue::Queue;
use crate::control_word;

/// Priorities: 0 is the highest lane.
pub(crate) const LANES: usize = 6;
/// The most threads there may be.
const MOST: usize = 256;

/// What a thread of the pool takes on.
enum Entry {
    /// A queue that was ready when it was put in.
    Queue(Arc<Queue>),
    /// A part of a step that another thread has begun.
    Task(Box<dyn FnOnce() + Send>),
}

struct Ready {
    lanes: [VecDeque<Entry>; LANES],
    count: usize,
    idle: usize,
    threads: usize,
}

struct Pool {
    ready: Mutex<Ready>,
    work: Condvar,
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool {
        ready: Mutex::new(Ready {
            lanes: Default::default(),
            count: 0,
            idle: 0,
            threads: 0,
        }),
        work: Condvar::new(),
    })
}

/// Gives a queue that is ready to a thread.
pub(super) fn schedule(queue: Arc<Queue>, lane: usize) {
    let threads = put(Entry::Queue(queue), lane);
    // Without any thread there is nobody, and that is an environment in which nothing can run
    // asynchronously.
    assert!(
        threads > 0,
        "softcuda could not start a thread to run streams"
    );
}

/// Has a thread do a part of a step that the calling thread has begun, and can end alone where
/// there is no other.
pub(super) fn start(task: Box<dyn FnOnce() + Send>, lane: usize) {
    put(Entry::Task(task), lane);
}

/// Puts an entry in; gives the number of threads.
fn put(entry: Entry, lane: usize) -> usize {
    let pool = pool();
    let mut ready = pool.ready.lock();
    ready.lanes[lane.min(LANES - 1)].push_back(entry);
    ready.count += 1;
    if ready.count <= ready.idle {
        let threads = ready.threads;
        drop(ready);
        pool.work.notify_one();
        return threads;
    }
    if ready.threads < MOST {
        ready.threads += 1;
        let started = std::thread::Builder::new()
            .name("softcuda-stream".into())
            .spawn(work);
        if started.is_err() {
            // The threads there are will come to it.
            ready.threads -= 1;
        }
    }
    ready.threads
}

fn work() {
    control_word::set_default();
    let pool = pool();
    let mut ready = pool.ready.lock();
    loop {
        if let Some(entry) = ready.lanes.iter_mut().find_map(VecDeque::pop_front) {
            ready.count -= 1;
            drop(ready);
            match entry {
                Entry::Queue(queue) => queue.run_as_worker(),
                // A panic that reaches us has been reported by its hook; the thread is good for
                // others.
                Entry::Task(task) => drop(catch_unwind(AssertUnwindSafe(task))),
            }
            ready = pool.ready.lock();
        } else {
            ready.idle += 1;
            pool.work.wait(&mut ready);
            ready.idle -= 1;
        }
    }
}
