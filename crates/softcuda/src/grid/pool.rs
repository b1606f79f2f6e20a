//! Threads that help with a launch: the one that starts it works on it too, and others join while
//! blocks are left.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use super::running::Running;
use super::worker::Worker;
use crate::control_word;

/// A launch that wants help. It lives as long as the [`Invitation`] that made it.
struct Job {
    running: *const Running<'static>,
    /// How many more may join.
    wanted: u32,
    /// The number of the next to join.
    next: u32,
    /// How many have joined and not left.
    active: u32,
}

// SAFETY: a `Running` may be shared between threads; the pointer is good while the job is in the
// pool, see `Invitation`.
unsafe impl Send for Job {}

#[derive(Default)]
struct Pool {
    jobs: Mutex<Vec<Job>>,
    /// A job came.
    work: Condvar,
    /// A helper left.
    left: Condvar,
    /// Helpers that wait for a job.
    idle: AtomicUsize,
}

/// How many threads run blocks, the one that launches included.
pub(crate) fn workers() -> u32 {
    static WORKERS: OnceLock<u32> = OnceLock::new();
    *WORKERS.get_or_init(|| {
        std::thread::available_parallelism().map_or(1, |n| n.get().min(1024) as u32)
    })
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<&'static Pool> = OnceLock::new();
    POOL.get_or_init(|| {
        let pool: &'static Pool = Box::leak(Box::default());
        for index in 1..workers() {
            // With fewer helpers, or none, a launch takes longer and is as right.
            let _ = std::thread::Builder::new()
                .name(format!("softcuda-grid-{index}"))
                .spawn(move || pool.help());
        }
        pool
    })
}

impl Pool {
    fn help(&self) {
        control_word::set_default();
        let mut jobs = self.jobs.lock();
        loop {
            let Some(job) = jobs.iter_mut().find(|job| job.wanted > 0) else {
                self.idle.fetch_add(1, Ordering::Relaxed);
                self.work.wait(&mut jobs);
                self.idle.fetch_sub(1, Ordering::Relaxed);
                continue;
            };
            job.wanted -= 1;
            job.active += 1;
            let smid = job.next;
            job.next += 1;
            let running = job.running;
            drop(jobs);
            let mut worker = Worker::take();
            // SAFETY: `active` counts this helper, and the launch lives until its invitation has
            // seen it leave.
            worker.work(unsafe { &*running }, smid, workers(), u64::MAX);
            worker.put();
            jobs = self.jobs.lock();
            if let Some(job) = jobs.iter_mut().find(|job| job.running == running) {
                job.active -= 1;
                if job.active == 0 {
                    self.left.notify_all();
                }
            }
        }
    }
}

/// Helpers may join a launch while this lives; dropping it waits until all have left.
pub(super) struct Invitation(*const Running<'static>);

impl Invitation {
    /// Invites up to `wanted` helpers.
    pub fn new(running: &Running<'_>, wanted: u32) -> Invitation {
        let pool = pool();
        let running = std::ptr::from_ref(running).cast();
        pool.jobs.lock().push(Job {
            running,
            wanted,
            next: 1,
            active: 0,
        });
        for _ in 0..pool.idle.load(Ordering::Relaxed).min(wanted as usize) {
            pool.work.notify_one();
        }
        Invitation(running)
    }
}

impl Drop for Invitation {
    fn drop(&mut self) {
        let pool = pool();
        let mut jobs = pool.jobs.lock();
        // Its place may change while this waits, as others' jobs come and go.
        while let Some(at) = jobs.iter().position(|job| job.running == self.0) {
            jobs[at].wanted = 0;
            if jobs[at].active == 0 {
                jobs.remove(at);
                return;
            }
            pool.left.wait(&mut jobs);
        }
    }
}
