//! The threads that run queues.
//!
//! A step may wait for another queue's step (a kernel that spins on a flag, a host function that waits for another), so
//! the pool starts a thread whenever a queue is ready and no thread is idle. Idle threads are kept.
//!
//! Invariant: under the lock, ready entries beyond the number of idle threads have each caused a new thread, up to
//! [`MOST`]; so an entry is picked up without waiting for a step to end.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};

use super::queue::Queue;

/// Priorities: 0 is the highest lane.
pub(crate) const LANES: usize = 6;
/// The most threads there may be.
const MOST: usize = 256;

struct Ready {
    lanes: [VecDeque<Arc<Queue>>; LANES],
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
    let pool = pool();
    let mut ready = pool.ready.lock();
    ready.lanes[lane.min(LANES - 1)].push_back(queue);
    ready.count += 1;
    if ready.count <= ready.idle {
        drop(ready);
        pool.work.notify_one();
    } else if ready.threads < MOST {
        ready.threads += 1;
        let started = std::thread::Builder::new()
            .name("softcuda-stream".into())
            .spawn(work);
        if started.is_err() {
            // The threads there are will come to it; without any there is nobody, and that is an environment
            // in which nothing can run asynchronously.
            ready.threads -= 1;
            assert!(
                ready.threads > 0,
                "softcuda could not start a thread to run streams"
            );
        }
    }
}

fn work() {
    let pool = pool();
    let mut ready = pool.ready.lock();
    loop {
        if let Some(queue) = ready.lanes.iter_mut().find_map(VecDeque::pop_front) {
            ready.count -= 1;
            drop(ready);
            queue.run_as_worker();
            drop(queue);
            ready = pool.ready.lock();
        } else {
            ready.idle += 1;
            pool.work.wait(&mut ready);
            ready.idle -= 1;
        }
    }
}
