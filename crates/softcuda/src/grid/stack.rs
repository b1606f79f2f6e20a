//! Native stacks: those of fibers, and how far down the current thread's own may be used.
//!
//! A compiled function compares its stack pointer with `ThreadContext::stack_limit` on entry and
//! faults below it. The limit stands [`RED_ZONE`] bytes above the last byte, which is what runtime
//! functions called from there may use. A guard page lies below, so that a mistake here is a crash
//! and not silent damage; beyond [`GUARDED`] stacks there are none, because the kernel limits how
//! many separate mappings a process has.

use std::cell::Cell;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use corosensei::stack::{Stack, StackPointer};

/// What compiled code must leave for the runtime functions it calls.
const RED_ZONE: usize = 24 << 10;
/// The smallest stack of a fiber.
const SMALLEST: usize = 64 << 10;
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

    /// The value of `ThreadContext::stack_limit` on this stack.
    pub fn soft_limit(&self) -> u64 {
        (self.mapping().base + GUARD + RED_ZONE) as u64
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
    free: Vec<FiberStack>,
}

impl Stacks {
    /// From now on stacks have room for `stack` bytes of compiled code's frames.
    pub fn resize(&mut self, stack: u64) {
        let size = usize::try_from(stack)
            .unwrap_or(1 << 40)
            .saturating_add(RED_ZONE + 2 * GUARD)
            .next_power_of_two()
            .max(SMALLEST);
        if size != self.size {
            self.free.clear();
            self.size = size;
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
        if stack.mapping().size == self.size {
            self.free.push(stack);
        }
    }

    /// Gives back to the system what a launch of unusual size left.
    pub fn trim(&mut self) {
        self.free.truncate(KEPT);
    }
}

/// The value of `ThreadContext::stack_limit` on the current thread's own stack.
pub(super) fn native_soft_limit() -> u64 {
    thread_local!(static LIMIT: Cell<u64> = const { Cell::new(0) });
    let known = LIMIT.get();
    if known != 0 {
        return known;
    }
    let here = &known as *const u64 as u64;
    // Where the system does not say, a thread still has this much.
    let mut limit = here.saturating_sub(128 << 10);
    // SAFETY: `attr` is initialized by `pthread_getattr_np` before it is read, and destroyed once.
    unsafe {
        let mut attr = std::mem::zeroed::<libc::pthread_attr_t>();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attr) == 0 {
            let mut low = std::ptr::null_mut();
            let mut size = 0;
            if libc::pthread_attr_getstack(&attr, &mut low, &mut size) == 0 {
                // The first thread's stack grows on demand; with no limit set it is reported far
                // larger than it can become.
                limit = (low as u64).max(here.saturating_sub(8 << 20)) + (64 << 10);
            }
            libc::pthread_attr_destroy(&mut attr);
        }
    }
    LIMIT.set(limit);
    limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_reused_and_sized() {
        let mut stacks = Stacks::default();
        stacks.resize(1024);
        let first = stacks.take().unwrap();
        assert_eq!(first.mapping().size, SMALLEST);
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
        assert!(native_soft_limit() < address);
        assert!(address - native_soft_limit() <= 8 << 20);
    }
}
