//! The lock of a hierarchy.
//!
//! Most graphs are used by the thread that makes them. That thread, the lock's owner, takes it by
//! plain loads and stores: an update of a node costs little beyond the driver's call, and an atomic
//! read-modify-write is a good part of that. The first other thread that wants the lock ends that,
//! for good: from then on everybody takes a spin lock.
//!
//! The owner says that it is inside (`owned`), and then looks whether the lock is shared. The other
//! thread says that it is shared, and then looks whether the owner is inside. One of them must see
//! what the other said, so a full barrier has to stand between each one's store and load. A barrier
//! in the owner would cost as much as the lock saves, so the other thread has Linux run one in
//! every thread of the process: `membarrier`. Where that is not granted, locks are shared from the
//! start. Where it is granted and refused later, by a filter of system calls, say, the process
//! aborts.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};
use std::thread;

type SpinLock = spin::mutex::SpinMutex<(), spin::Yield>;
type SpinGuard<'a> = spin::mutex::SpinMutexGuard<'a, (), spin::Yield>;

/// A lock that is cheap for the thread that made it until another thread takes it.
///
/// A thread that takes it while it has it waits for ever, or panics if nobody else took it before.
pub(crate) struct Lock<T> {
    /// The [number](thread_number) of the thread that made it.
    owner: u64,
    /// The owner is inside without `everybody`, or about to see that it may not be.
    owned: AtomicBool,
    /// All threads take `everybody`.
    shared: AtomicBool,
    everybody: SpinLock,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has the value, as `owned`, `shared` and `everybody` see to.
unsafe impl<T: Send> Sync for Lock<T> {}

/// Exclusive access to what a [`Lock`] protects. It stays in its thread.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// None: it is the owner's.
    shared: Option<SpinGuard<'a>>,
    not_send: PhantomData<*mut T>,
}

impl<T> Lock<T> {
    /// A lock that this thread owns.
    #[inline(always)]
    pub(crate) fn new(owner: Owner, value: T) -> Lock<T> {
        Lock {
            owner: owner.thread,
            owned: AtomicBool::new(false),
            shared: AtomicBool::new(owner.shares),
            everybody: SpinLock::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the lock.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.lock_at_once().unwrap_or_else(|| self.lock_shared())
    }

    /// The lock, if this thread owns it and no other thread took it ever.
    #[inline(always)]
    pub(crate) fn lock_at_once(&self) -> Option<Guard<'_, T>> {
        (self.owner == NUMBER.get() && self.enter()).then(|| Guard {
            lock: self,
            shared: None,
            not_send: PhantomData,
        })
    }

    /// Lets the owner in, unless the lock is shared.
    #[inline(always)]
    fn enter(&self) -> bool {
        assert!(
            !self.owned.load(Ordering::Relaxed),
            "it is locked here already"
        );
        self.owned.store(true, Ordering::Relaxed);
        // The processor may still load before it stores; `fence` in the other thread rules that
        // out.
        compiler_fence(Ordering::SeqCst);
        if !self.shared.load(Ordering::Relaxed) {
            return true;
        }
        self.owned.store(false, Ordering::Release);
        false
    }

    #[cold]
    fn lock_shared(&self) -> Guard<'_, T> {
        let guard = self.everybody.lock();
        if !self.shared.load(Ordering::Relaxed) {
            self.shared.store(true, Ordering::Relaxed);
            fence();
        }
        // If the owner is inside, it entered before the lock was shared, or is about to see that it
        // is and leave.
        while self.owned.load(Ordering::Acquire) {
            thread::yield_now();
        }
        Guard {
            lock: self,
            shared: Some(guard),
            not_send: PhantomData,
        }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: whoever has a guard is alone inside.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.shared.is_none() {
            self.lock.owned.store(false, Ordering::Release);
        }
    }
}

/// The calling thread, as the owner of a lock.
// Asked for before the value is made, so that the compiler makes that in its place.
pub(crate) struct Owner {
    thread: u64,
    /// The lock is shared from the start: `fence` does not work here.
    shares: bool,
}

impl Owner {
    #[inline]
    pub(crate) fn this() -> Owner {
        Owner {
            thread: thread_number(),
            shares: !*CAN_FENCE,
        }
    }
}

thread_local! {
    /// The thread's number; 0 before it is asked for.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// A number that no other thread has or had.
#[inline]
fn thread_number() -> u64 {
    match NUMBER.get() {
        0 => new_number(),
        number => number,
    }
}

#[cold]
fn new_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    NUMBER.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
    NUMBER.get()
}

/// Whether [`fence`] works.
static CAN_FENCE: LazyLock<bool> =
    LazyLock::new(|| membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED));

/// Has every thread of the process that runs now pass a full barrier. Others pass one before they
/// run again.
fn fence() {
    if !membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        // Two threads might be inside from now on.
        tracing::error!("the system has granted barriers, and does not run one");
        std::process::abort();
    }
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call reads and writes no memory of the program's.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use super::*;

    fn of_this_thread<T>(value: T) -> Lock<T> {
        Lock::new(Owner::this(), value)
    }

    /// Two numbers that are the same whenever nobody is inside.
    fn count(lock: &Lock<(u64, u64)>, times: u64) {
        for _ in 0..times {
            let mut pair = lock.lock();
            assert_eq!(pair.0, pair.1);
            pair.0 += 1;
            std::hint::black_box(&mut *pair);
            pair.1 += 1;
        }
    }

    /// The lock becomes shared once, so each round has a new one.
    fn contend(rounds: u64, make: impl Fn((u64, u64)) -> Lock<(u64, u64)>) {
        let (times, others) = (200, 2);
        for _ in 0..rounds {
            let (lock, begin) = (make((0, 0)), Barrier::new(others + 1));
            thread::scope(|scope| {
                for other in 0..others as u64 {
                    let (lock, begin) = (&lock, &begin);
                    scope.spawn(move || {
                        begin.wait();
                        // They come at another time in each round.
                        (0..other * 50).for_each(|_| std::hint::spin_loop());
                        count(lock, times);
                    });
                }
                begin.wait();
                count(&lock, times);
            });
            let all = times * (others as u64 + 1);
            assert_eq!(*lock.lock(), (all, all));
        }
    }

    fn rounds() -> u64 {
        let rounds = std::env::var("CUDA_GRAPH_LOCK_ROUNDS");
        rounds.map_or(2_000, |rounds| rounds.parse().expect("a number"))
    }

    #[test]
    fn one_thread_at_a_time_is_inside() {
        contend(rounds(), of_this_thread);
    }

    #[test]
    fn one_thread_at_a_time_is_inside_where_there_is_no_barrier() {
        let shared = |value| {
            let (thread, shares) = (thread_number(), true);
            Lock::new(Owner { thread, shares }, value)
        };
        contend(rounds() / 10, shared);
    }

    #[test]
    fn others_wait_for_the_owner_and_the_owner_for_others() {
        let lock = of_this_thread(0);
        let (mut guard, begin) = (lock.lock(), Barrier::new(2));
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                begin.wait();
                let mut guard = lock.lock();
                assert_eq!(*guard, 1);
                begin.wait();
                thread::sleep(Duration::from_millis(20));
                *guard = 2;
            });
            begin.wait();
            thread::sleep(Duration::from_millis(20));
            *guard = 1;
            drop(guard);
            begin.wait();
            assert_eq!(*lock.lock(), 2);
            other.join().expect("no assertion fails there");
        });
    }

    #[test]
    fn a_lock_outlives_its_owner() {
        let made = thread::spawn(|| of_this_thread(1)).join();
        let lock = made.expect("it is made");
        *lock.lock() += 1;
        assert_eq!(*lock.lock(), 2);
    }

    #[test]
    #[should_panic = "it is locked here already"]
    fn the_owner_cannot_take_it_twice() {
        let lock = of_this_thread(());
        let _guard = lock.lock();
        let _again = lock.lock();
    }
}
