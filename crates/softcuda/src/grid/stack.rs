//! Native stacks: those of fibers, and how far down the current thread's own may be used.
//!
//! A compiled function compares its stack pointer with `ThreadContext::stack_limit` on entry, when
//! it has taken its frame, and faults below it. At least [`RED_ZONE`] bytes are below the limit, of
//! which runtime functions use most. A thread gets no more above the limit than it asked for,
//! however large its stack is, so recursion ends alike in all forms. A guard page lies below, so
//! that a mistake here is a crash and not silent damage; beyond [`GUARDED`] stacks there are none,
//! because the kernel limits how many separate mappings a process has.

use std::cell::Cell;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use corosensei::stack::{Stack, StackPointer};

use crate::jit::MAX_NATIVE_FRAME;

/// What compiled code leaves below its limit for the runtime functions that it calls: products of
/// matrices take 38 KiB.
const RED_ZONE: usize = 64 << 10;
// A function looks when it has taken its frame, and then the fault is a call.
const _: () = assert!(RED_ZONE >= 2 * MAX_NATIVE_FRAME as usize);
/// Sizes of stacks are multiples of this, so that launches of many kernels share stacks.
const STEP: usize = 64 << 10;
/// The guard below a stack: a page, or several where pages are small.
const GUARD: usize = 4 << 10;
/// How many stacks have a guard page: Linux allows 65,530 mappings by default, and a guarded stack
/// takes two.
const GUARDED: usize = 16 << 10;
/// How many stacks of one size a worker keeps between launches.
const KEPT: usize = 2048;

/// Stacks mapped now.
static MAPPED: AtomicUsize = AtomicUsize::new(0);
/// Stacks ever mapped: neighbours start at different offsets in their page.
static EVER: AtomicUsize = AtomicUsize::new(0);

/// The stack of a fiber, by what lies right above it: one word, so that it moves in a register.
pub(super) struct FiberStack(NonNull<Mapping>);

/// Where a stack lies.
struct Mapping {
    base: usize,
    size: usize,
}

// SAFETY: it owns its memory, of which nobody else knows.
unsafe impl Send for FiberStack {}

impl FiberStack {
    /// A stack of `size` bytes, a multiple of the page size.
    fn new(size: usize) -> io::Result<FiberStack> {
        // SAFETY: a fresh anonymous mapping touches nothing that exists.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if MAPPED.fetch_add(1, Ordering::Relaxed) < GUARDED {
            // A failure leaves the stack without its guard, which the limit does not rely on.
            // SAFETY: the range is the lowest page of the mapping just made.
            unsafe { libc::mprotect(map, GUARD, libc::PROT_NONE) };
        }
        // Stacks lie at multiples of a large power of two, so without this all their tops would
        // share a few cache sets.
        let colour = EVER.fetch_add(1, Ordering::Relaxed) * 5 % 63 * 64;
        // SAFETY: the mapping is far larger than its last page and a bit.
        let top = unsafe { map.byte_add(size - 64 - colour) }.cast::<Mapping>();
        let base = map as usize;
        // SAFETY: inside the mapping, aligned to 64.
        unsafe { top.write(Mapping { base, size }) };
        let top = NonNull::new(top).expect("a mapping does not start at 0");
        Ok(FiberStack(top))
    }

    fn mapping(&self) -> &Mapping {
        // SAFETY: written by `new`, and above the stack, so that no fiber touches it.
        unsafe { self.0.as_ref() }
    }

    /// The value of `ThreadContext::stack_limit` on this stack, which has room for `stack` bytes of
    /// compiled code's frames.
    pub fn soft_limit(&self, stack: u64) -> u64 {
        let lowest = (self.mapping().base + GUARD + RED_ZONE) as u64;
        let wanted = (self.0.addr().get() as u64).saturating_sub(stack);
        lowest.max(wanted)
    }
}

impl Drop for FiberStack {
    fn drop(&mut self) {
        let &Mapping { base, size } = self.mapping();
        MAPPED.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the mapping is this value's own, and no fiber runs on it: a fiber owns its stack.
        unsafe { libc::munmap(base as *mut _, size) };
    }
}

// SAFETY: `base` is 64-byte aligned, the mapping is far larger than the minimum, and its lowest
// page is a guard; where there is none, compiled code's own check against `soft_limit` upholds what
// it is for.
unsafe impl Stack for FiberStack {
    fn base(&self) -> StackPointer {
        self.0.addr()
    }

    fn limit(&self) -> StackPointer {
        NonZeroUsize::new(self.mapping().base).expect("a mapping does not start at 0")
    }
}

/// A worker's stacks that are not in use.
#[derive(Default)]
pub(super) struct Stacks {
    /// The size of all of them.
    size: usize,
    /// What of it is compiled code's.
    #[cfg(test)]
    stack: u64,
    free: Vec<FiberStack>,
}

impl Stacks {
    /// From now on stacks have room for `stack` bytes of compiled code's frames.
    pub fn resize(&mut self, stack: u64) {
        let size = usize::try_from(stack)
            .unwrap_or(1 << 40)
            .saturating_add(RED_ZONE + 2 * GUARD)
            .next_multiple_of(STEP);
        if size != self.size {
            self.free.clear();
            self.size = size;
        }
        #[cfg(test)]
        self.note_size(stack);
    }

    /// Tests that ask how stacks are used get none that others have used.
    #[cfg(test)]
    fn note_size(&mut self, stack: u64) {
        self.stack = stack;
        if use_of::asked() {
            self.free.clear();
        }
    }

    /// A stack.
    pub fn take(&mut self) -> io::Result<FiberStack> {
        match self.free.pop() {
            Some(stack) => Ok(stack),
            None => FiberStack::new(self.size),
        }
    }

    /// Takes a stack back.
    pub fn put(&mut self, stack: FiberStack) {
        #[cfg(test)]
        if use_of::note(&stack, self.stack) {
            return;
        }
        if stack.mapping().size == self.size {
            self.free.push(stack);
        }
    }

    /// Gives back to the system what a launch of unusual size left.
    pub fn trim(&mut self) {
        self.free.truncate(KEPT);
    }
}

/// The value of `ThreadContext::stack_limit` on the current thread's own stack, for `stack` bytes
/// of compiled code's frames. `None`: there are not so many left, or the caller runs on a stack
/// that is not the thread's own, such as a coroutine's.
pub(super) fn native_soft_limit(stack: u64) -> Option<u64> {
    let (lowest, top) = own_stack();
    let here = &raw const lowest as u64;
    let limit = here.checked_sub(stack)?;
    (limit >= lowest && here < top).then_some(limit)
}

/// How far down the current thread's own stack may be used, and where it ends above.
fn own_stack() -> (u64, u64) {
    thread_local!(static KNOWN: Cell<(u64, u64)> = const { Cell::new((0, 0)) });
    let known = KNOWN.get();
    if known != (0, 0) {
        return known;
    }
    let here = &raw const known as u64;
    // Where the system does not say, a stack of our own will do.
    let (mut limit, mut top) = (here, here);
    // SAFETY: `attr` is initialized by `pthread_getattr_np` before it is read, and destroyed once.
    unsafe {
        let mut attr = std::mem::zeroed::<libc::pthread_attr_t>();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attr) == 0 {
            let mut low = std::ptr::null_mut();
            let mut size = 0;
            if libc::pthread_attr_getstack(&attr, &mut low, &mut size) == 0 {
                // The first thread's stack grows on demand; with no limit set it is reported far
                // larger than it can become.
                let lowest = (low as u64).max(here.saturating_sub(8 << 20));
                limit = lowest + (RED_ZONE + GUARD) as u64;
                top = (low as u64).saturating_add(size as u64);
            }
            libc::pthread_attr_destroy(&mut attr);
        }
    }
    KNOWN.set((limit, top));
    (limit, top)
}

/// How far below their limit stacks are used, for tests that ask.
#[cfg(test)]
pub(crate) mod use_of {
    use super::{AtomicUsize, FiberStack, GUARD, Ordering, RED_ZONE};

    /// 0: nobody asks; otherwise one more than the most bytes below the limit that were used.
    static MOST: AtomicUsize = AtomicUsize::new(0);

    /// From now on stacks that are done with are looked at.
    pub fn ask() {
        MOST.fetch_max(1, Ordering::Relaxed);
    }

    pub(super) fn asked() -> bool {
        MOST.load(Ordering::Relaxed) > 0
    }

    /// The fewest bytes that were never used above the guard of a stack of just the size that is
    /// needed.
    pub fn left() -> usize {
        (RED_ZONE + 1).saturating_sub(MOST.load(Ordering::Relaxed))
    }

    /// Looks how far a stack was used: what was not is still zero. `false`: nobody asks.
    pub(super) fn note(stack: &FiberStack, room: u64) -> bool {
        if !asked() {
            return false;
        }
        let start = stack.mapping().base + GUARD;
        let limit = stack.soft_limit(room) as usize;
        // SAFETY: the bytes are the mapping's, above its guard, and no fiber runs on it.
        let below = unsafe { std::slice::from_raw_parts(start as *const u8, limit - start) };
        let used = below.iter().position(|byte| *byte != 0);
        let used = used.map_or(0, |unused| below.len() - unused);
        MOST.fetch_max(used + 1, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_reused_and_sized() {
        let mut stacks = Stacks::default();
        stacks.resize(1024);
        let first = stacks.take().unwrap();
        assert_eq!(first.mapping().size, 2 * STEP);
        let map = first.limit();
        stacks.put(first);
        assert_eq!(stacks.take().unwrap().limit(), map);
        stacks.resize(1 << 20);
        assert!(stacks.take().unwrap().mapping().size > 1 << 20);
    }

    #[test]
    fn the_native_limit_is_below_this_frame() {
        let here = 0u8;
        let address = &here as *const u8 as u64;
        let limit = native_soft_limit(64 << 10).expect("a test has as much");
        assert!(limit < address && address - limit <= 70 << 10);
        assert_eq!(native_soft_limit(1 << 30), None);
        assert_eq!(native_soft_limit(u64::MAX), None);
    }

    /// Programs run coroutines, whose stacks have an end that the system knows nothing of.
    #[test]
    fn the_stack_of_a_coroutine_is_not_the_thread_s() {
        assert!(native_soft_limit(1024).is_some());
        let mut stacks = Stacks::default();
        stacks.resize(1024);
        let mut stack = stacks.take().unwrap();
        let limit = corosensei::on_stack(&mut stack, || native_soft_limit(1024));
        assert_eq!(limit, None);
        assert!(native_soft_limit(1024).is_some());
    }
}
